//! Transcendental functions as plain arithmetic, so that a loop over many numbers becomes vector code.
//!
//! Each is exact to a few units in the last place of 1, or of its result if that is larger: what they are for is products
//! such as cosh δ + tanh θ sinh δ.

use std::ops::RangeInclusive;

/// The functions of one type of numbers. A NaN gives a NaN.
pub trait Functions: Copy {
    /// The numbers of which [`Functions::sin_cos`] is exact.
    const ANGLES: RangeInclusive<f64>;

    /// e^x; 0 where that is hardly a normal number any more, or less, and ∞ where it is too large for one.
    ///
    /// By instructions for a b + c if they are `FUSED`. On processors without them that takes a hundred times as long.
    #[must_use]
    fn exp<const FUSED: bool>(x: Self) -> Self;

    /// e^x - 1, exact to a few units in its own last place.
    #[must_use]
    fn exp_m1<const FUSED: bool>(x: Self) -> Self;

    /// tanh x, exact to a few units in its own last place.
    #[must_use]
    fn tanh<const FUSED: bool>(x: Self) -> Self;

    /// 1 / (1 + e^-x).
    #[must_use]
    fn sigmoid<const FUSED: bool>(x: Self) -> Self;

    /// ln (1 + e^x).
    #[must_use]
    fn softplus<const FUSED: bool>(x: Self) -> Self;

    /// ln x.
    #[must_use]
    fn ln<const FUSED: bool>(x: Self) -> Self;

    /// ln (1 + x).
    #[must_use]
    fn ln_1p<const FUSED: bool>(x: Self) -> Self;

    /// The angle of the point (x, y).
    #[must_use]
    fn atan2(y: Self, x: Self) -> Self;

    /// √x.
    #[must_use]
    fn sqrt(x: Self) -> Self;

    /// |x|.
    #[must_use]
    fn abs(x: Self) -> Self;

    /// x without what is behind the point.
    #[must_use]
    fn truncated(x: Self) -> Self;

    /// Whether the sign of x is negative, also of -0.
    #[must_use]
    fn is_negative(x: Self) -> bool;

    /// Whether x is no number.
    #[must_use]
    fn is_nan(x: Self) -> bool;

    /// Whether x is neither infinite nor NaN.
    #[must_use]
    fn is_finite(x: Self) -> bool;

    /// The greater one of x and 0.
    #[must_use]
    fn relu(x: Self) -> Self;

    /// cosh x and sinh x; beyond the largest arguments of which they are finite, of one near these.
    #[must_use]
    fn cosh_sinh(x: Self) -> (Self, Self);

    /// sin x and cos x.
    #[must_use]
    fn sin_cos(x: Self) -> (Self, Self);

    /// sin x and cos x of any x.
    #[must_use]
    fn sin_cos_of_any(x: Self) -> (Self, Self);

    /// tanh of x + iy, whose y has this sine and cosine.
    #[must_use]
    fn complex_tanh(x: Self, sin_cos: (Self, Self)) -> [Self; 2];

    /// cosh and sinh of x + iy, whose y has this sine and cosine.
    #[must_use]
    fn complex_cosh_sinh(x: Self, sin_cos: (Self, Self)) -> [[Self; 2]; 2];
}

/// `WHOLE` makes the nearest integer of a number that it is added to, in the last bits of the sum. All parts of ln 2 and π/2 but
/// the last ones are short enough to be multiplied by such integers exactly.
macro_rules! functions {
    ($($t:ident, $bits:ident, $module:ident: whole $whole:literal, exponent $bias:literal << $mantissa:literal,
       ln2 $ln2:expr, half_pi $half_pi:expr, from $lowest:literal to $highest:literal, finite to $limit:literal, angles to $angles:literal, terms $exp:literal $sin:literal $cos:literal $ln:literal $pade:literal $atan:literal,
       ln of $root:literal small by $scale:literal $shift:literal;
    )+) => {$(
        mod $module {
            use super::{Functions, RangeInclusive, artanh, doubled, pade, taylor};
            use std::$t::consts::{FRAC_2_PI, LOG2_E};

            const WHOLE: $t = $whole;

            /// x without so many times what the parts sum to.
            #[inline(always)]
            fn remainder<const FUSED: bool, const N: usize>(mut x: $t, whole: $t, parts: [$t; N]) -> $t {
                for part in parts {
                    x = product_plus::<FUSED>(-whole, part, x);
                }
                x
            }

            /// a b + c, in one operation if it is `FUSED`.
            #[inline(always)]
            fn product_plus<const FUSED: bool>(a: $t, b: $t, c: $t) -> $t {
                if FUSED { a.mul_add(b, c) } else { a * b + c }
            }

            /// A sine with its sign, in a quarter of the circle with this number.
            #[inline(always)]
            fn signed(value: $t, quarters: $bits) -> $t {
                <$t>::from_bits(value.to_bits() ^ (quarters & 2) << ($bits::BITS - 2))
            }

            /// A polynomial, by descending powers.
            #[inline(always)]
            fn polynomial<const FUSED: bool, const N: usize>(x: $t, coefficients: [f64; N]) -> $t {
                let mut value = coefficients[0] as $t;
                for coefficient in &coefficients[1..] {
                    value = product_plus::<FUSED>(value, x, *coefficient as $t);
                }
                value
            }

            /// x from the lowest to the highest number. Comparisons, not `clamp`: they let a NaN pass.
            #[inline(always)]
            fn within(x: $t, lowest: $t, highest: $t) -> $t {
                let x = if x > highest { highest } else { x };
                if x < lowest { lowest } else { x }
            }

            /// 2^(k - 1) and r of x = k ln 2 + r. Of the lowest x the power is 0.
            #[inline(always)]
            fn half_power_and_rest<const FUSED: bool>(x: $t) -> ($t, $t) {
                let x = within(x, $lowest, $highest);
                let whole = product_plus::<FUSED>(x, LOG2_E, WHOLE);
                let rest = remainder::<FUSED, _>(x, whole - WHOLE, $ln2);
                // The integer becomes the exponent.
                (<$t>::from_bits(whole.to_bits().wrapping_add($bias - 1) << $mantissa), rest)
            }

            /// p, a and b of e^-x = p (a - b) / (a + b), by Padé: whatever is made of it has one quotient.
            #[inline(always)]
            fn quotient<const FUSED: bool>(x: $t) -> ($t, $t, $t) {
                let whole = product_plus::<FUSED>(x, -LOG2_E, WHOLE);
                let count = WHOLE - whole;
                let mut rest = x;
                for part in $ln2 {
                    rest = product_plus::<FUSED>(-count, part, rest);
                }
                let square = rest * rest;
                let [[first, others @ ..], [_, first_odd, other_odds @ ..]] = const { pade::<$pade>() };
                let (mut even, mut odd) = (first as $t, first_odd as $t);
                for coefficient in others {
                    even = product_plus::<FUSED>(even, square, coefficient as $t);
                }
                for coefficient in other_odds {
                    odd = product_plus::<FUSED>(odd, square, coefficient as $t);
                }
                (<$t>::from_bits(whole.to_bits().wrapping_add($bias) << $mantissa), even, odd * rest)
            }

            impl Functions for $t {
                const ANGLES: RangeInclusive<f64> = -$angles..=$angles;

                #[inline(always)]
                fn exp<const FUSED: bool>(x: Self) -> Self {
                    let (half_power, rest) = half_power_and_rest::<FUSED>(x);
                    polynomial::<FUSED, _>(rest, const { doubled(taylor::<$exp>(1, 0)) }) * half_power
                }

                #[inline(always)]
                fn exp_m1<const FUSED: bool>(x: Self) -> Self {
                    let (half_power, rest) = half_power_and_rest::<FUSED>(x);
                    // 2^k e^r - 1 = 2^k (e^r - 1) + (2^k - 1): where k is 0, nothing is lost.
                    let twice = rest * polynomial::<FUSED, _>(rest, const { doubled(taylor::<$exp>(1, 1)) });
                    product_plus::<FUSED>(half_power, twice, half_power - 0.5) + (half_power - 0.5)
                }

                #[inline(always)]
                fn tanh<const FUSED: bool>(x: Self) -> Self {
                    // Beyond it is 1.
                    let (power, even, odd) = quotient::<FUSED>(within(2.0 * x.abs(), 0.0, 64.0));
                    // (1 - p) a + (1 + p) b: where p is 1, nothing is lost.
                    let value = product_plus::<FUSED>(1.0 - power, even, (1.0 + power) * odd)
                        / product_plus::<FUSED>(power, even - odd, even + odd);
                    (if value > 1.0 { 1.0 } else { value }).copysign(x)
                }

                #[inline(always)]
                fn sigmoid<const FUSED: bool>(x: Self) -> Self {
                    // Of the lowest number the power is infinite.
                    let (power, even, odd) = quotient::<FUSED>(within(x, -$highest, $limit));
                    let denominator = even + odd;
                    denominator / product_plus::<FUSED>(power, even - odd, denominator)
                }

                #[inline(always)]
                fn softplus<const FUSED: bool>(x: Self) -> Self {
                    // ln (1 + s) = 2 artanh (s / (2 + s))
                    let small = <Self as Functions>::exp::<FUSED>(-x.abs());
                    let argument = small / (2.0 + small);
                    let series = polynomial::<FUSED, _>(argument * argument, const { artanh::<$ln>() });
                    product_plus::<FUSED>(2.0 * argument, series, <Self as Functions>::relu(x))
                }

                #[inline(always)]
                fn ln<const FUSED: bool>(x: Self) -> Self {
                    // Numbers that are too small to be normal have no exponent of their own.
                    let is_small = x < <$t>::MIN_POSITIVE;
                    let (scaled, shift) = if is_small { (x * $scale, $shift) } else { (x, 0.0) };
                    // x = m 2^e with m from √½ to √2
                    let bits = scaled.to_bits().wrapping_add((1.0 as $t).to_bits() - $root);
                    let exponent = <$t>::from_bits(WHOLE.to_bits() + (bits >> $mantissa)) - (WHOLE + <$t>::from($bias as u16)) - shift;
                    let m = <$t>::from_bits((bits & ((1 << $mantissa) - 1)) + $root);
                    let z = (m - 1.0) / (m + 1.0);
                    let series = polynomial::<FUSED, _>(z * z, const { artanh::<$ln>() });
                    let [high, low] = $ln2;
                    let value = 2.0 * z * series + exponent * low + exponent * high;
                    let value = if x == 0.0 { <$t>::NEG_INFINITY } else { value };
                    let value = if x == <$t>::INFINITY { x } else { value };
                    if x >= 0.0 { value } else { <$t>::NAN }
                }

                #[inline(always)]
                fn ln_1p<const FUSED: bool>(x: Self) -> Self {
                    let sum = 1.0 + x;
                    // What the sum has lost
                    let lost = x - (sum - 1.0);
                    let value = <Self as Functions>::ln::<FUSED>(sum);
                    if sum > 0.0 && sum < <$t>::MAX { value + lost / sum } else { value }
                }

                #[inline(always)]
                fn atan2(y: Self, x: Self) -> Self {
                    let (a, b) = (x.abs(), y.abs());
                    let (large, small) = if a > b { (a, b) } else { (b, a) };
                    let ratio = if large == 0.0 { 0.0 } else { small / large };
                    // atan r = π/8 + atan ((r - t) / (1 + r t)) with t = tan π/8, so that the argument is at most t.
                    let t = std::$t::consts::SQRT_2 - 1.0;
                    let z = (ratio - t) / (1.0 + ratio * t);
                    let square = z * z;
                    let series = polynomial::<false, _>(-square, const { artanh::<$atan>() });
                    let angle = std::$t::consts::FRAC_PI_8 + z * series;
                    let angle = if ratio == 0.0 { 0.0 } else { angle };
                    let angle = if b > a { std::$t::consts::FRAC_PI_2 - angle } else { angle };
                    let angle = if <Self as Functions>::is_negative(x) { std::$t::consts::PI - angle } else { angle };
                    let angle = angle.copysign(y);
                    if x.is_nan() || y.is_nan() { <$t>::NAN } else { angle }
                }

                #[inline(always)]
                fn sqrt(x: Self) -> Self {
                    x.sqrt()
                }

                #[inline(always)]
                fn abs(x: Self) -> Self {
                    x.abs()
                }

                #[inline(always)]
                fn truncated(x: Self) -> Self {
                    x.trunc()
                }

                #[inline(always)]
                fn is_negative(x: Self) -> bool {
                    x.to_bits() >> ($bits::BITS - 1) == 1
                }

                #[inline(always)]
                fn is_nan(x: Self) -> bool {
                    x.is_nan()
                }

                #[inline(always)]
                fn is_finite(x: Self) -> bool {
                    x.abs() < <$t>::INFINITY
                }

                #[inline(always)]
                fn relu(x: Self) -> Self {
                    if x < 0.0 { 0.0 } else { x }
                }

                #[inline(always)]
                fn cosh_sinh(x: Self) -> (Self, Self) {
                    let large = <Self as Functions>::exp::<false>(within(x.abs(), 0.0, $limit));
                    let (half, half_small) = (0.5 * large, 0.5 / large);
                    (half + half_small, (half - half_small).copysign(x))
                }

                #[inline(always)]
                fn sin_cos(x: Self) -> (Self, Self) {
                    let whole = x * FRAC_2_PI + WHOLE;
                    let rest = remainder::<false, _>(x, whole - WHOLE, $half_pi);
                    let square = rest * rest;
                    let sin = rest * polynomial::<false, _>(square, const { taylor::<$sin>(2, 1) });
                    let cos = polynomial::<false, _>(square, const { taylor::<$cos>(2, 0) });
                    let quarters = whole.to_bits();
                    let (sin, cos) = if quarters & 1 == 1 { (cos, sin) } else { (sin, cos) };
                    (signed(sin, quarters), signed(cos, quarters.wrapping_add(1)))
                }

                fn sin_cos_of_any(x: Self) -> (Self, Self) {
                    x.sin_cos()
                }

                #[inline(always)]
                fn complex_tanh(x: Self, (sin, cos): (Self, Self)) -> [Self; 2] {
                    // (t + i (1 - t²) sin y cos y) / (cos² y + t² sin² y) with t = tanh x
                    let t = <Self as Functions>::tanh::<false>(x);
                    let square = t * t;
                    let norm = cos * cos + square * (sin * sin);
                    [t / norm, (1.0 - square) * (sin * cos) / norm]
                }

                #[inline(always)]
                fn complex_cosh_sinh(x: Self, (sin, cos): (Self, Self)) -> [[Self; 2]; 2] {
                    let (cosh, sinh) = <Self as Functions>::cosh_sinh(x);
                    [[cosh * cos, sinh * sin], [sinh * cos, cosh * sin]]
                }
            }
        }
    )+};
}

functions! {
    f32, u32, single: whole 12_582_912.0, exponent 127 << 23,
        ln2 [0.693_145_75, 1.428_606_8e-6], half_pi [1.570_312_5, 4.837_513e-4, 7.549_533_6e-8, 2.563_344e-12],
        from -87.3 to 88.9, finite to 87.0, angles to 8192.0, terms 8 5 6 8 3 9,
        ln of 0x3f35_04f3 small by 8_388_608.0 23.0;
    f64, u64, double: whole 6_755_399_441_055_744.0, exponent 1023 << 52,
        ln2 [0.693_147_180_559_890_3, 5.497_923_018_708_371e-14],
        half_pi [1.570_796_326_734_125_6, 6.077_100_506_303_966e-11, 2.022_266_248_795_950_6e-21],
        from -708.3 to 709.9, finite to 708.0, angles to 1e6, terms 14 9 10 17 4 20,
        ln of 0x3fe6_a09e_667f_3bcd small by 18_014_398_509_481_984.0 54.0;
}

/// The coefficients of Taylor's series of e^x, by descending powers; of those of sin and cos, whose powers have a step of 2
/// and the signs of which alternate.
const fn taylor<const N: usize>(step: usize, first: usize) -> [f64; N] {
    let mut coefficients = [0.0; N];
    let mut place = 0;
    let mut coefficient = 1.0;
    while place < N {
        coefficients[N - 1 - place] = coefficient;
        let mut factor = 0;
        while factor < step {
            factor += 1;
            coefficient /= (first + place * step + factor) as f64;
        }
        if step == 2 {
            coefficient = -coefficient;
        }
        place += 1;
    }
    coefficients
}

const fn doubled<const N: usize>(mut coefficients: [f64; N]) -> [f64; N] {
    let mut place = 0;
    while place < N {
        coefficients[place] *= 2.0;
        place += 1;
    }
    coefficients
}

/// The even and the odd coefficients of Padé's approximation of e^x of degree 2 N - 2, by descending powers of x²; the
/// highest odd one is 0.
const fn pade<const N: usize>() -> [[f64; N]; 2] {
    let degree = 2 * N - 2;
    let mut parts = [[0.0; N]; 2];
    let (mut coefficient, mut power) = (1.0, 0);
    while power <= degree {
        parts[power % 2][N - 1 - power / 2] = coefficient;
        coefficient *= (degree - power) as f64 / ((power + 1) * (2 * degree - power)) as f64;
        power += 1;
    }
    parts
}

/// The coefficients of the series of artanh x / x in x², by descending powers.
const fn artanh<const N: usize>() -> [f64; N] {
    let mut coefficients = [0.0; N];
    let mut place = 0;
    while place < N {
        coefficients[N - 1 - place] = 1.0 / (2 * place + 1) as f64;
        place += 1;
    }
    coefficients
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_complex::Complex;
    use proptest::prelude::*;

    /// Whether numbers are what the standard library has for them, exact to `tolerance` of 1 or of themselves.
    fn compare(x: f64, found: &[f64], expected: &[f64], tolerance: f64) {
        for (found, expected) in found.iter().zip(expected) {
            let allowed = tolerance * expected.abs().max(1.0);
            assert!((found - expected).abs() <= allowed, "{found} instead of {expected} at {x}");
        }
    }

    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    fn softplus(x: f64) -> f64 {
        x.max(0.0) + (-x.abs()).exp().ln_1p()
    }

    proptest! {
        #[test]
        fn double_precision(x in -700.0..700.0, small in -3.0..3.0, angle in -1e6..1e6) {
            for x in [x, small] {
                compare(x, &[Functions::exp::<false>(x), Functions::exp::<true>(x)], &[x.exp(); 2], 5e-16);
                compare(x, &[Functions::tanh::<false>(x), Functions::tanh::<true>(x)], &[x.tanh(); 2], 5e-16);
                compare(x, &[Functions::sigmoid::<false>(x), Functions::sigmoid::<true>(x)], &[sigmoid(x); 2], 3e-16);
                compare(x, &[Functions::softplus::<false>(x), Functions::softplus::<true>(x)], &[softplus(x); 2], 5e-16);
                let (cosh, sinh) = Functions::cosh_sinh(x);
                compare(x, &[cosh, sinh], &[x.cosh(), x.sinh()], 1e-15);
                let found = [Functions::ln::<false>(x.abs()), Functions::ln::<true>(x.abs()), Functions::ln::<false>(x.exp())];
                compare(x, &found, &[x.abs().ln(), x.abs().ln(), x.exp().ln()], 5e-16);
                let large = x.abs() - 1.0;
                let found = [Functions::ln_1p::<true>(large), Functions::ln_1p::<false>(1e-9 * x)];
                compare(x, &found, &[large.ln_1p(), (1e-9 * x).ln_1p()], 5e-16);
                let points = [(x, small), (small, x), (-small, -x), (x, x * x)];
                for (y, x) in points {
                    compare(x, &[Functions::atan2(y, x)], &[y.atan2(x)], 5e-16);
                }
            }
            for angle in [angle, small] {
                let (sin, cos) = Functions::sin_cos(angle);
                compare(angle, &[sin, cos], &[angle.sin(), angle.cos()], 3e-16);
                let number = Complex::new(small, angle);
                let [cosh, sinh] = Functions::complex_cosh_sinh(small, (sin, cos)).map(|[re, im]| Complex::new(re, im));
                assert!((cosh - number.cosh()).norm() < 3e-15 * small.abs().exp(), "cosh {number}");
                assert!((sinh - number.sinh()).norm() < 3e-15 * small.abs().exp(), "sinh {number}");
                let [re, im] = Functions::complex_tanh(small, (sin, cos));
                // Exact where cosh is small, unlike the library's tanh.
                let (tanh, scale) = (number.sinh() / number.cosh(), number.cosh().norm().min(1.0));
                assert!((Complex::new(re, im) - tanh).norm() < 3e-15 / (scale * scale), "tanh {number}");
            }
        }

        #[test]
        fn single_precision(x in -87.0_f32..87.0, small in -3.0_f32..3.0, angle in -8192.0_f32..8192.0) {
            for x in [x, small] {
                let wide = f64::from(x);
                compare(wide, &[Functions::exp::<false>(x).into(), Functions::exp::<true>(x).into()], &[wide.exp(); 2], 3e-7);
                compare(wide, &[Functions::tanh::<false>(x).into(), Functions::tanh::<true>(x).into()], &[wide.tanh(); 2], 3e-7);
                let found = [Functions::sigmoid::<false>(x).into(), Functions::sigmoid::<true>(x).into()];
                compare(wide, &found, &[sigmoid(wide); 2], 2e-7);
                compare(wide, &[Functions::softplus::<false>(x).into(), Functions::softplus::<true>(x).into()], &[softplus(wide); 2], 3e-7);
                let (cosh, sinh) = Functions::cosh_sinh(x);
                compare(wide, &[cosh.into(), sinh.into()], &[wide.cosh(), wide.sinh()], 4e-7);
                compare(wide, &[Functions::ln::<true>(x.abs()).into()], &[wide.abs().ln()], 3e-7);
                compare(wide, &[Functions::ln_1p::<false>(x.abs()).into()], &[wide.abs().ln_1p()], 3e-7);
                compare(wide, &[Functions::atan2(x, small).into()], &[wide.atan2(small.into())], 5e-7);
            }
            for angle in [angle, small] {
                let (sin, cos) = Functions::sin_cos(angle);
                let wide = f64::from(angle);
                compare(wide, &[sin.into(), cos.into()], &[wide.sin(), wide.cos()], 2e-7);
            }
        }
    }

    proptest! {
        /// Of small numbers, too, and up to the largest ones.
        #[test]
        fn relative_precision(x in -40.0_f64..40.0, decades in 0.0_f64..290.0, large in 700.0_f64..709.78) {
            let close = |found: f64, expected: f64, x: f64| {
                assert!((found - expected).abs() <= 2e-15 * expected.abs(), "{found} instead of {expected} at {x}");
            };
            for x in [x, x * 10.0_f64.powf(-decades)] {
                close(Functions::exp_m1::<false>(x), x.exp_m1(), x);
                close(Functions::exp_m1::<true>(x), x.exp_m1(), x);
                close(Functions::tanh::<false>(x), x.tanh(), x);
                close(Functions::tanh::<true>(x), x.tanh(), x);
                close(Functions::exp::<true>(x), x.exp(), x);
            }
            close(Functions::exp::<false>(large), large.exp(), large);
            close(Functions::exp_m1::<true>(large), large.exp_m1(), large);
            close(Functions::exp::<true>(2.0 - large), (2.0 - large).exp(), 2.0 - large);
        }

        #[test]
        fn relative_precision_of_single(x in -16.0_f32..16.0, decades in 0.0_f32..30.0, large in 80.0_f32..88.72) {
            let close = |found: f32, expected: f64, x: f32| {
                assert!((f64::from(found) - expected).abs() <= 1e-6 * expected.abs(), "{found} instead of {expected} at {x}");
            };
            for x in [x, x * 10.0_f32.powf(-decades)] {
                let wide = f64::from(x);
                close(Functions::exp_m1::<false>(x), wide.exp_m1(), x);
                close(Functions::exp_m1::<true>(x), wide.exp_m1(), x);
                close(Functions::tanh::<false>(x), wide.tanh(), x);
                close(Functions::tanh::<true>(x), wide.tanh(), x);
            }
            close(Functions::exp::<true>(large), f64::from(large).exp(), large);
            close(Functions::exp_m1::<false>(large), f64::from(large).exp_m1(), large);
        }
    }

    #[test]
    fn numbers_at_the_ends() {
        assert_eq!(Functions::tanh::<true>(f64::INFINITY), 1.0);
        assert_eq!(Functions::tanh::<false>(-1e300_f64), -1.0);
        assert_eq!(Functions::exp::<true>(0.0_f64), 1.0);
        assert_eq!(Functions::cosh_sinh(0.0_f64), (1.0, 0.0));
        assert_eq!(Functions::sin_cos(0.0_f32), (0.0, 1.0));
        for low in [-1e9_f32, f32::NEG_INFINITY, -88.0] {
            assert_eq!((Functions::exp::<true>(low), Functions::exp_m1::<false>(low)), (0.0, -1.0));
        }
        for high in [88.73_f32, 1e9, f32::INFINITY] {
            assert_eq!((Functions::exp::<true>(high), Functions::exp_m1::<true>(high)), (f32::INFINITY, f32::INFINITY));
        }
        assert_eq!((Functions::exp::<true>(-709.0), Functions::exp::<false>(709.79)), (0.0, f64::INFINITY));
        assert_eq!((Functions::sigmoid::<true>(-1e9_f32), Functions::sigmoid::<true>(f64::NEG_INFINITY)), (0.0, 0.0));
        assert_eq!((Functions::relu(-2.0_f64), Functions::relu(2.0_f64)), (0.0, 2.0));
        assert!(Functions::relu(f64::NAN).is_nan() && Functions::softplus::<true>(f64::NAN).is_nan());
        assert_eq!(Functions::ln::<true>(0.0), f64::NEG_INFINITY);
        assert_eq!((Functions::ln::<true>(f64::INFINITY), Functions::ln::<true>(1.0_f64)), (f64::INFINITY, 0.0));
        assert!((Functions::ln::<true>(5e-324) - 5e-324_f64.ln()).abs() < 1e-12);
        assert!(Functions::ln::<true>(-1.0_f64).is_nan() && Functions::ln::<true>(f64::NAN).is_nan());
        assert_eq!(
            (Functions::ln_1p::<true>(-1.0), Functions::ln_1p::<true>(f64::INFINITY)),
            (f64::NEG_INFINITY, f64::INFINITY)
        );
        assert_eq!((Functions::atan2(0.0, 1.0), Functions::atan2(-0.0, 1.0)), (0.0, 0.0));
        assert_eq!(Functions::atan2(0.0, -1.0), std::f64::consts::PI);
        assert!(Functions::tanh::<true>(f64::NAN).is_nan() && Functions::exp::<true>(f32::NAN).is_nan());
        assert!(Functions::exp_m1::<true>(f64::NAN).is_nan() && Functions::sigmoid::<true>(f64::NAN).is_nan());
    }
}
