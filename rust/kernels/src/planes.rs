//! Numbers as planes: of complex numbers all real parts, and then all imaginary parts.

use num_complex::Complex;
use std::array::from_fn;
use std::fmt::Debug;

/// Real numbers that tables consist of.
pub trait Real: Copy + Default + PartialEq + Debug + Into<f64> + Send + Sync {
    /// 1.
    const ONE: Self;

    /// Up to this |Re δ| the terms of a factor cancel by no more than the tolerance allows.
    const NARROW: f64;

    /// Up to this Σ |Re δ| no product overflows.
    const RANGE: f64;

    /// The nearest number.
    #[must_use]
    fn nearest(number: f64) -> Self;

    /// `self * a + b`, in one instruction where it is `FUSED`.
    #[must_use]
    fn times_plus<const FUSED: bool>(self, a: Self, b: Self) -> Self;

    /// `self * other`.
    #[must_use]
    fn times(self, other: Self) -> Self;

    /// `-self`.
    #[must_use]
    fn negated(self) -> Self;
}

macro_rules! reals {
    ($($t:ty: $narrow:literal, $range:literal);+) => {$(
        impl Real for $t {
            const ONE: Self = 1.0;
            const NARROW: f64 = $narrow;
            const RANGE: f64 = $range;

            #[allow(clippy::cast_possible_truncation, reason = "the nearest number is wanted")]
            fn nearest(number: f64) -> Self {
                number as Self
            }

            #[inline(always)]
            fn times_plus<const FUSED: bool>(self, a: Self, b: Self) -> Self {
                // Without the instruction, `mul_add` would be a slow function.
                if FUSED { self.mul_add(a, b) } else { self * a + b }
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn negated(self) -> Self {
                -self
            }
        }
    )+};
}

reals!(f32: 2.5, 70.0; f64: 5.0, 600.0);

/// `N` numbers of `P` planes.
pub type Planes<T, const P: usize, const N: usize> = [[T; N]; P];

/// What numbers of `P` planes are, and what ψ they stand for.
pub trait Algebra<const P: usize>: Copy + Debug + Send + Sync {
    /// The number 1.
    const ONE: [bool; P];

    /// How many of the planes make products large or small.
    const MAGNITUDES: usize;

    /// `a * b + c`.
    fn product_plus<T: Real, const N: usize, const FUSED: bool>(
        a: Planes<T, P, N>,
        b: Planes<T, P, N>,
        c: Planes<T, P, N>,
    ) -> Planes<T, P, N>;

    /// `a * b`.
    fn product<T: Real, const N: usize, const FUSED: bool>(a: Planes<T, P, N>, b: Planes<T, P, N>) -> Planes<T, P, N>;

    /// ln cosh of a number, as a summand of ln ψ, up to a multiple of 2πi.
    fn log_cosh(number: [f64; P]) -> Complex<f64>;

    /// cosh and sinh of a number.
    fn cosh_sinh(number: [f64; P]) -> [[f64; P]; 2];

    /// The ln of a number, as a summand of ln ψ.
    fn log(number: [f64; P]) -> Complex<f64>;

    /// The factor of ψ that a number is.
    #[inline(always)]
    fn factor(number: [f64; P]) -> Complex<f64> {
        Self::log(number).exp()
    }
}

/// Real numbers, which are factors of ψ.
#[derive(Debug, Clone, Copy)]
pub struct Reals;

/// Complex numbers, which are factors of ψ.
#[derive(Debug, Clone, Copy)]
pub struct Complexes;

/// Two real numbers each, of which ln ψ has the logarithm of the first one as its real part, and that of the second one
/// as its imaginary part.
#[derive(Debug, Clone, Copy)]
pub struct Pairs;

#[inline(always)]
fn times<T: Real, const N: usize>(a: [T; N], b: [T; N]) -> [T; N] {
    from_fn(|place| a[place].times(b[place]))
}

#[inline(always)]
fn times_plus<T: Real, const N: usize, const FUSED: bool>(a: [T; N], b: [T; N], c: [T; N]) -> [T; N] {
    from_fn(|place| a[place].times_plus::<FUSED>(b[place], c[place]))
}

// `array::map` isn't always inlined, and what isn't is compiled for the oldest processors.
#[inline(always)]
fn negated<T: Real, const N: usize>(a: [T; N]) -> [T; N] {
    from_fn(|place| a[place].negated())
}

impl Algebra<1> for Reals {
    const ONE: [bool; 1] = [true];
    const MAGNITUDES: usize = 1;

    #[inline(always)]
    fn product_plus<T: Real, const N: usize, const FUSED: bool>(
        [a]: Planes<T, 1, N>,
        [b]: Planes<T, 1, N>,
        [c]: Planes<T, 1, N>,
    ) -> Planes<T, 1, N> {
        [times_plus::<T, N, FUSED>(a, b, c)]
    }

    #[inline(always)]
    fn product<T: Real, const N: usize, const FUSED: bool>([a]: Planes<T, 1, N>, [b]: Planes<T, 1, N>) -> Planes<T, 1, N> {
        [times(a, b)]
    }

    fn log_cosh([number]: [f64; 1]) -> Complex<f64> {
        real_log_cosh(number).into()
    }

    fn cosh_sinh([number]: [f64; 1]) -> [[f64; 1]; 2] {
        [[number.cosh()], [number.sinh()]]
    }

    fn log([number]: [f64; 1]) -> Complex<f64> {
        Complex::new(number, 0.0).ln()
    }

    #[inline(always)]
    fn factor([number]: [f64; 1]) -> Complex<f64> {
        number.into()
    }
}

impl Algebra<2> for Complexes {
    const ONE: [bool; 2] = [true, false];
    const MAGNITUDES: usize = 1;

    #[inline(always)]
    fn product_plus<T: Real, const N: usize, const FUSED: bool>(
        [a, ai]: Planes<T, 2, N>,
        [b, bi]: Planes<T, 2, N>,
        [c, ci]: Planes<T, 2, N>,
    ) -> Planes<T, 2, N> {
        [
            times_plus::<T, N, FUSED>(a, b, times_plus::<T, N, FUSED>(negated(ai), bi, c)),
            times_plus::<T, N, FUSED>(a, bi, times_plus::<T, N, FUSED>(ai, b, ci)),
        ]
    }

    #[inline(always)]
    fn product<T: Real, const N: usize, const FUSED: bool>(
        [a, ai]: Planes<T, 2, N>,
        [b, bi]: Planes<T, 2, N>,
    ) -> Planes<T, 2, N> {
        [
            times_plus::<T, N, FUSED>(a, b, times(negated(ai), bi)),
            times_plus::<T, N, FUSED>(a, bi, times(ai, b)),
        ]
    }

    fn log_cosh([re, im]: [f64; 2]) -> Complex<f64> {
        let z = if re < 0.0 { Complex::new(-re, -im) } else { Complex::new(re, im) };
        // 1 + e^(-2z) loses nothing: where it is small, so is cosh z.
        z + (1.0 + (-2.0 * z).exp()).ln() - std::f64::consts::LN_2
    }

    fn cosh_sinh([re, im]: [f64; 2]) -> [[f64; 2]; 2] {
        let z = Complex::new(re, im);
        [z.cosh(), z.sinh()].map(|z| [z.re, z.im])
    }

    fn log([re, im]: [f64; 2]) -> Complex<f64> {
        Complex::new(re, im).ln()
    }

    #[inline(always)]
    fn factor([re, im]: [f64; 2]) -> Complex<f64> {
        Complex::new(re, im)
    }
}

impl Algebra<2> for Pairs {
    const ONE: [bool; 2] = [true, true];
    const MAGNITUDES: usize = 2;

    #[inline(always)]
    fn product_plus<T: Real, const N: usize, const FUSED: bool>(
        a: Planes<T, 2, N>,
        b: Planes<T, 2, N>,
        c: Planes<T, 2, N>,
    ) -> Planes<T, 2, N> {
        from_fn(|plane| times_plus::<T, N, FUSED>(a[plane], b[plane], c[plane]))
    }

    #[inline(always)]
    fn product<T: Real, const N: usize, const FUSED: bool>(a: Planes<T, 2, N>, b: Planes<T, 2, N>) -> Planes<T, 2, N> {
        from_fn(|plane| times(a[plane], b[plane]))
    }

    fn log_cosh([re, im]: [f64; 2]) -> Complex<f64> {
        Complex::new(real_log_cosh(re), real_log_cosh(im))
    }

    fn cosh_sinh(number: [f64; 2]) -> [[f64; 2]; 2] {
        [number.map(f64::cosh), number.map(f64::sinh)]
    }

    #[inline(always)]
    fn log([re, im]: [f64; 2]) -> Complex<f64> {
        Complex::new(re.ln(), im.ln())
    }
}

fn real_log_cosh(number: f64) -> f64 {
    number.abs() + (-2.0 * number.abs()).exp().ln_1p() - std::f64::consts::LN_2
}

/// The complex number with these planes.
#[inline(always)]
pub(crate) fn complex<const P: usize>(planes: [f64; P]) -> Complex<f64> {
    Complex::new(planes[0], planes.get(1).copied().unwrap_or_default())
}
