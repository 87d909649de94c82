//! What numbers are that consist of one or two planes: real, complex, or pairs.

use crate::numbers::{MULTIPLE, Ratio, Real, lanes, number};
use num_complex::Complex;
use pulp::{Scalar, Simd};
use std::fmt::Debug;

/// Vectors of numbers of `P` planes.
pub type Planes<T, S, const P: usize> = [<T as Real>::Vector<S>; P];

/// What numbers of `P` planes are, and what ψ they stand for.
pub trait Algebra<const P: usize>: Copy + Debug + Send + Sync {
    /// The planes of the number 1 that are 1; the others are 0.
    const ONE: [bool; P];

    /// What a factor of ψ is.
    type Factor: Ratio;

    /// How many of the planes make products large or small.
    const MAGNITUDES: usize;

    /// Whether magnitudes are squared.
    const SQUARED: bool;

    /// `a * b + c`.
    fn product_plus<T: Real, S: Simd>(
        simd: S,
        a: Planes<T, S, P>,
        b: Planes<T, S, P>,
        c: Planes<T, S, P>,
    ) -> Planes<T, S, P>;

    /// `a * b`.
    fn product<T: Real, S: Simd>(simd: S, a: Planes<T, S, P>, b: Planes<T, S, P>) -> Planes<T, S, P>;

    /// |a|, or its square, as factors of |ψ| have it. Up to its sign, if it isn't squared.
    fn magnitude<T: Real, S: Simd>(simd: S, a: Planes<T, S, P>) -> T::Vector<S>;

    /// `a / b`, and |b|², or the least of it.
    fn quotient<T: Real, S: Simd>(simd: S, a: Planes<T, S, P>, b: Planes<T, S, P>) -> (Planes<T, S, P>, T::Vector<S>);

    /// ln cosh of a number, as a summand of ln ψ, up to a multiple of 2πi.
    fn log_cosh(number: [f64; P]) -> Complex<f64>;

    /// The sum of the real parts of [`Algebra::log_cosh`] of many numbers, as many as a [`MULTIPLE`].
    fn sum_of_log_cosh<T: Real>(numbers: [&[T]; P]) -> f64;

    /// cosh and sinh of a number.
    fn cosh_sinh(number: [f64; P]) -> [[f64; P]; 2];

    /// tanh of many numbers.
    fn tanh_of<T: Real>(numbers: [&[T]; P], tanh: [&mut [T]; P]);

    /// cosh and sinh of many numbers.
    fn cosh_sinh_of<T: Real>(numbers: [&[T]; P], cosh: [&mut [T]; P], sinh: [&mut [T]; P]);

    /// The ln of a number, as a summand of ln ψ.
    fn log(number: [f64; P]) -> Complex<f64>;

    /// The factor of ψ that a number is.
    #[must_use]
    fn factor(number: [f64; P]) -> Self::Factor;

    /// The factor of ψ with this ln, as numbers have it.
    #[must_use]
    fn exponential(log: Complex<f64>) -> Self::Factor;

    /// The product of the numbers of a vector.
    #[inline(always)]
    fn product_of_lanes<T: Real, S: Simd>(_: S, vector: Planes<T, S, P>) -> [f64; P] {
        let mut product = number::<T, S, P>(&vector, 0);
        for lane in 1..lanes::<T, S>() {
            product = Self::times(product, number::<T, S, P>(&vector, lane));
        }
        product
    }

    /// `a * b`, of single numbers.
    #[inline(always)]
    #[must_use]
    fn times(a: [f64; P], b: [f64; P]) -> [f64; P] {
        Self::product::<f64, Scalar>(Scalar::new(), a, b)
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
pub struct RealPairs;

impl Algebra<1> for Reals {
    type Factor = f64;

    const ONE: [bool; 1] = [true];
    const MAGNITUDES: usize = 1;
    const SQUARED: bool = false;

    #[inline(always)]
    fn product_plus<T: Real, S: Simd>(
        simd: S,
        [a]: Planes<T, S, 1>,
        [b]: Planes<T, S, 1>,
        [c]: Planes<T, S, 1>,
    ) -> Planes<T, S, 1> {
        [T::times_plus(simd, a, b, c)]
    }

    #[inline(always)]
    fn product<T: Real, S: Simd>(simd: S, [a]: Planes<T, S, 1>, [b]: Planes<T, S, 1>) -> Planes<T, S, 1> {
        [T::times(simd, a, b)]
    }

    #[inline(always)]
    fn magnitude<T: Real, S: Simd>(_: S, [a]: Planes<T, S, 1>) -> T::Vector<S> {
        a
    }

    #[inline(always)]
    fn quotient<T: Real, S: Simd>(
        simd: S,
        [a]: Planes<T, S, 1>,
        [b]: Planes<T, S, 1>,
    ) -> (Planes<T, S, 1>, T::Vector<S>) {
        ([T::over(simd, a, b)], T::times(simd, b, b))
    }

    fn log_cosh([number]: [f64; 1]) -> Complex<f64> {
        real_log_cosh(number).into()
    }

    #[inline(always)]
    fn sum_of_log_cosh<T: Real>([numbers]: [&[T]; 1]) -> f64 {
        let mut sums = [0.0; MULTIPLE];
        for chunk in numbers.chunks_exact(MULTIPLE) {
            for (sum, &x) in sums.iter_mut().zip(chunk) {
                let x = T::abs(x);
                *sum += (x + T::softplus::<false>(-(x + x))).into();
            }
        }
        sum_less_ln_2(&sums, numbers.len())
    }

    fn cosh_sinh([number]: [f64; 1]) -> [[f64; 1]; 2] {
        [[number.cosh()], [number.sinh()]]
    }

    #[inline(always)]
    fn tanh_of<T: Real>([numbers]: [&[T]; 1], [tanh]: [&mut [T]; 1]) {
        for (tanh, &number) in tanh.iter_mut().zip(numbers) {
            *tanh = T::tanh::<false>(number);
        }
    }

    #[inline(always)]
    fn cosh_sinh_of<T: Real>([numbers]: [&[T]; 1], [cosh]: [&mut [T]; 1], [sinh]: [&mut [T]; 1]) {
        for ((cosh, sinh), &number) in cosh.iter_mut().zip(sinh).zip(numbers) {
            (*cosh, *sinh) = T::cosh_sinh(number);
        }
    }

    fn log([number]: [f64; 1]) -> Complex<f64> {
        Complex::new(number, 0.0).ln()
    }

    #[inline(always)]
    fn factor([number]: [f64; 1]) -> f64 {
        number
    }

    #[inline(always)]
    fn exponential(log: Complex<f64>) -> f64 {
        log.re.exp()
    }

    #[inline(always)]
    fn product_of_lanes<T: Real, S: Simd>(simd: S, [vector]: Planes<T, S, 1>) -> [f64; 1] {
        [T::product_of_lanes(simd, vector).into()]
    }
}

impl Algebra<2> for Complexes {
    type Factor = Complex<f64>;

    const ONE: [bool; 2] = [true, false];
    const MAGNITUDES: usize = 1;
    const SQUARED: bool = true;

    #[inline(always)]
    fn product_plus<T: Real, S: Simd>(
        simd: S,
        [a, ai]: Planes<T, S, 2>,
        [b, bi]: Planes<T, S, 2>,
        [c, ci]: Planes<T, S, 2>,
    ) -> Planes<T, S, 2> {
        [
            T::times_plus(simd, a, b, T::times_plus(simd, T::negated(simd, ai), bi, c)),
            T::times_plus(simd, a, bi, T::times_plus(simd, ai, b, ci)),
        ]
    }

    #[inline(always)]
    fn product<T: Real, S: Simd>(simd: S, [a, ai]: Planes<T, S, 2>, [b, bi]: Planes<T, S, 2>) -> Planes<T, S, 2> {
        [
            T::times_plus(simd, a, b, T::times(simd, T::negated(simd, ai), bi)),
            T::times_plus(simd, a, bi, T::times(simd, ai, b)),
        ]
    }

    #[inline(always)]
    fn magnitude<T: Real, S: Simd>(simd: S, [a, ai]: Planes<T, S, 2>) -> T::Vector<S> {
        T::times_plus(simd, a, a, T::times(simd, ai, ai))
    }

    #[inline(always)]
    fn quotient<T: Real, S: Simd>(
        simd: S,
        a: Planes<T, S, 2>,
        [b, bi]: Planes<T, S, 2>,
    ) -> (Planes<T, S, 2>, T::Vector<S>) {
        let square = Self::magnitude::<T, S>(simd, [b, bi]);
        let inverse = T::over(simd, T::splat(simd, T::ONE), square);
        let [re, im] = Self::product::<T, S>(simd, a, [b, T::negated(simd, bi)]);
        ([T::times(simd, re, inverse), T::times(simd, im, inverse)], square)
    }

    fn log_cosh([re, im]: [f64; 2]) -> Complex<f64> {
        let z = if re < 0.0 { Complex::new(-re, -im) } else { Complex::new(re, im) };
        // 1 + e^(-2z) loses nothing: where it is small, so is cosh z.
        z + (1.0 + (-2.0 * z).exp()).ln() - std::f64::consts::LN_2
    }

    #[inline(always)]
    fn sum_of_log_cosh<T: Real>([re, im]: [&[T]; 2]) -> f64 {
        let mut sums = [0.0; MULTIPLE];
        let within = within_angles(im);
        for (re, im) in re.chunks_exact(MULTIPLE).zip(im.chunks_exact(MULTIPLE)) {
            let numbers = sums.iter_mut().zip(re.iter().zip(im));
            if within {
                for (sum, (&x, &y)) in numbers {
                    *sum += log_of_exponentials(x, T::sin_cos(y)).into();
                }
            } else {
                for (sum, (&x, &y)) in numbers {
                    *sum += log_of_exponentials(x, T::sin_cos_of_any(y)).into();
                }
            }
        }
        sum_less_ln_2(&sums, re.len())
    }

    fn cosh_sinh([re, im]: [f64; 2]) -> [[f64; 2]; 2] {
        let z = Complex::new(re, im);
        [z.cosh(), z.sinh()].map(|z| [z.re, z.im])
    }

    #[inline(always)]
    fn tanh_of<T: Real>([re, im]: [&[T]; 2], [tanh, tanh_im]: [&mut [T]; 2]) {
        let numbers = re.iter().zip(im);
        let results = tanh.iter_mut().zip(tanh_im);
        if within_angles(im) {
            for ((tanh, tanh_im), (&x, &y)) in results.zip(numbers) {
                [*tanh, *tanh_im] = T::complex_tanh(x, T::sin_cos(y));
            }
        } else {
            for ((tanh, tanh_im), (&x, &y)) in results.zip(numbers) {
                [*tanh, *tanh_im] = T::complex_tanh(x, T::sin_cos_of_any(y));
            }
        }
    }

    #[inline(always)]
    fn cosh_sinh_of<T: Real>([re, im]: [&[T]; 2], cosh: [&mut [T]; 2], sinh: [&mut [T]; 2]) {
        let ([cosh, cosh_im], [sinh, sinh_im]) = (cosh, sinh);
        let numbers = re.iter().zip(im);
        let results = cosh.iter_mut().zip(cosh_im).zip(sinh.iter_mut().zip(sinh_im));
        if within_angles(im) {
            for (((cosh, cosh_im), (sinh, sinh_im)), (&x, &y)) in results.zip(numbers) {
                [[*cosh, *cosh_im], [*sinh, *sinh_im]] = T::complex_cosh_sinh(x, T::sin_cos(y));
            }
        } else {
            for (((cosh, cosh_im), (sinh, sinh_im)), (&x, &y)) in results.zip(numbers) {
                [[*cosh, *cosh_im], [*sinh, *sinh_im]] = T::complex_cosh_sinh(x, T::sin_cos_of_any(y));
            }
        }
    }

    fn log([re, im]: [f64; 2]) -> Complex<f64> {
        Complex::new(re, im).ln()
    }

    #[inline(always)]
    fn factor([re, im]: [f64; 2]) -> Complex<f64> {
        Complex::new(re, im)
    }

    fn exponential(log: Complex<f64>) -> Complex<f64> {
        log.exp()
    }
}

impl Algebra<2> for RealPairs {
    type Factor = Complex<f64>;

    const ONE: [bool; 2] = [true, true];
    const MAGNITUDES: usize = 2;
    const SQUARED: bool = false;

    #[inline(always)]
    fn product_plus<T: Real, S: Simd>(
        simd: S,
        [a, ai]: Planes<T, S, 2>,
        [b, bi]: Planes<T, S, 2>,
        [c, ci]: Planes<T, S, 2>,
    ) -> Planes<T, S, 2> {
        [T::times_plus(simd, a, b, c), T::times_plus(simd, ai, bi, ci)]
    }

    #[inline(always)]
    fn product<T: Real, S: Simd>(simd: S, [a, ai]: Planes<T, S, 2>, [b, bi]: Planes<T, S, 2>) -> Planes<T, S, 2> {
        [T::times(simd, a, b), T::times(simd, ai, bi)]
    }

    #[inline(always)]
    fn magnitude<T: Real, S: Simd>(simd: S, [a, _]: Planes<T, S, 2>) -> T::Vector<S> {
        Reals::magnitude::<T, S>(simd, [a])
    }

    #[inline(always)]
    fn quotient<T: Real, S: Simd>(
        simd: S,
        [a, ai]: Planes<T, S, 2>,
        [b, bi]: Planes<T, S, 2>,
    ) -> (Planes<T, S, 2>, T::Vector<S>) {
        let least = T::lesser(simd, T::times(simd, b, b), T::times(simd, bi, bi));
        ([T::over(simd, a, b), T::over(simd, ai, bi)], least)
    }

    fn log_cosh([re, im]: [f64; 2]) -> Complex<f64> {
        Complex::new(real_log_cosh(re), real_log_cosh(im))
    }

    #[inline(always)]
    fn sum_of_log_cosh<T: Real>([re, _]: [&[T]; 2]) -> f64 {
        Reals::sum_of_log_cosh([re])
    }

    fn cosh_sinh(number: [f64; 2]) -> [[f64; 2]; 2] {
        [number.map(f64::cosh), number.map(f64::sinh)]
    }

    #[inline(always)]
    fn tanh_of<T: Real>([a, b]: [&[T]; 2], [tanh_a, tanh_b]: [&mut [T]; 2]) {
        Reals::tanh_of([a], [tanh_a]);
        Reals::tanh_of([b], [tanh_b]);
    }

    #[inline(always)]
    fn cosh_sinh_of<T: Real>([a, b]: [&[T]; 2], [cosh_a, cosh_b]: [&mut [T]; 2], [sinh_a, sinh_b]: [&mut [T]; 2]) {
        Reals::cosh_sinh_of([a], [cosh_a], [sinh_a]);
        Reals::cosh_sinh_of([b], [cosh_b], [sinh_b]);
    }

    #[inline(always)]
    fn log([re, im]: [f64; 2]) -> Complex<f64> {
        Complex::new(re.ln(), im.ln())
    }

    #[inline(always)]
    fn factor(number: [f64; 2]) -> Complex<f64> {
        Self::log(number).exp()
    }

    fn exponential(log: Complex<f64>) -> Complex<f64> {
        log.exp()
    }

    #[inline(always)]
    fn product_of_lanes<T: Real, S: Simd>(simd: S, [a, b]: Planes<T, S, 2>) -> [f64; 2] {
        [T::product_of_lanes(simd, a).into(), T::product_of_lanes(simd, b).into()]
    }
}

/// Whether vector code may take the sines of all these.
#[inline(always)]
fn within_angles<T: Real>(numbers: &[T]) -> bool {
    let mut within = true;
    for &number in numbers {
        within &= T::ANGLES.contains(&number.into());
    }
    within
}

/// ln |e^z + e^-z| with z = x + iy.
#[inline(always)]
fn log_of_exponentials<T: Real>(x: T, (sin, cos): (T, T)) -> T {
    let x = T::abs(x);
    // 1 + e^(-2z) loses nothing: where it is small, so is cosh z.
    let small = T::exp::<false>(-(x + x));
    let (re, im) = (T::ONE + small * (cos * cos - sin * sin), small * (sin * cos + sin * cos));
    x + T::nearest(0.5) * T::ln::<false>(re * re + im * im)
}

fn sum_less_ln_2(sums: &[f64], numbers: usize) -> f64 {
    sums.iter().sum::<f64>() - numbers as f64 * std::f64::consts::LN_2
}

fn real_log_cosh(number: f64) -> f64 {
    number.abs() + (-2.0 * number.abs()).exp().ln_1p() - std::f64::consts::LN_2
}

#[cfg(test)]
mod tests;
