//! The number types of samples and of matrix elements.

use half::{bf16, f16};
use num_complex::Complex;
use std::fmt::Display;

/// A type that samples come in. Equality is that of numbers: -0.0 is 0.0.
pub trait Sample: Copy + PartialEq + Display + Send + Sync {
    /// The value as this type, if it is held exactly.
    fn from_exact(value: f64) -> Option<Self>;

    /// The nearest real number.
    fn to_f64(self) -> f64;
}

/// A type of matrix elements. Integers wrap around, as `NumPy`'s and JAX's do.
pub trait MatrixElement: Copy + Default + PartialEq + Send + Sync {
    /// `self` times a whole number.
    #[must_use]
    fn times(self, n: i64) -> Self;

    /// `self + other`.
    #[must_use]
    fn plus(self, other: Self) -> Self;

    /// `-self`.
    #[must_use]
    fn negated(self) -> Self;
}

macro_rules! integers {
    ($($t:ty),+) => {$(
        impl Sample for $t {
            #[allow(clippy::float_cmp, clippy::cast_lossless)] // an exact round trip is the question
            fn from_exact(value: f64) -> Option<Self> {
                // `as` takes what is too large to the largest number, which as a float may be the value again.
                let held = value as $t;
                (held as f64 == value && held as i128 == value as i128).then_some(held)
            }

            #[allow(clippy::cast_lossless)]
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
        }

        impl MatrixElement for $t {
            #[inline(always)]
            fn times(self, n: i64) -> Self {
                self.wrapping_mul(n as $t)
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn negated(self) -> Self {
                self.wrapping_neg()
            }
        }
    )+};
}

macro_rules! floats {
    ($($t:ty: $from:expr),+) => {$(
        impl Sample for $t {
            #[allow(clippy::float_cmp, clippy::redundant_closure_call)] // as above; one macro for all floats
            fn from_exact(value: f64) -> Option<Self> {
                let held: $t = $from(value);
                (f64::from(held) == value).then_some(held)
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
        }

        impl MatrixElement for $t {
            #[allow(clippy::redundant_closure_call)]
            #[inline(always)]
            fn times(self, n: i64) -> Self {
                let n: $t = $from(n as f64);
                self * n
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn negated(self) -> Self {
                -self
            }
        }
    )+};
}

macro_rules! complexes {
    ($($t:ty),+) => {$(
        impl Sample for Complex<$t> {
            fn from_exact(value: f64) -> Option<Self> {
                <$t>::from_exact(value).map(Self::from)
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self.re)
            }
        }

        impl MatrixElement for Complex<$t> {
            #[inline(always)]
            fn times(self, n: i64) -> Self {
                self * (n as $t)
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn negated(self) -> Self {
                -self
            }
        }
    )+};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);
floats!(f16: f16::from_f64, bf16: bf16::from_f64, f32: |v: f64| v as f32, f64: |v: f64| v);
complexes!(f32, f64);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_held_exactly_or_not_at_all() {
        assert_eq!(i8::from_exact(-1.0), Some(-1));
        assert_eq!(u8::from_exact(-1.0), None);
        assert_eq!(i8::from_exact(128.0), None);
        assert_eq!(i32::from_exact(0.5), None);
        assert_eq!(f32::from_exact(0.5), Some(0.5));
        assert_eq!(f32::from_exact(0.1), None);
        assert_eq!(bf16::from_exact(257.0), None);
        assert_eq!(f16::from_exact(-1.0), Some(f16::NEG_ONE));
        assert_eq!(Complex::<f64>::from_exact(1.0), Some(Complex::new(1.0, 0.0)));
    }

    /// For each type of integers, what it makes of a value against what a wide one says.
    fn integers_hold(value: f64) {
        let whole = (value.trunc() == value && value.abs() < 2_f64.powi(100)).then_some(value as i128);
        macro_rules! check {
            ($($t:ty),+) => {$(
                assert_eq!(<$t>::from_exact(value), whole.and_then(|whole| whole.try_into().ok()), "{value:?}");
            )+};
        }
        check!(i8, i16, i32, i64, u8, u16, u32, u64);
    }

    #[test]
    fn integers_hold_what_is_in_their_range_and_nothing_else() {
        assert_eq!(u64::from_exact(2_f64.powi(64)), None);
        assert_eq!(i64::from_exact(2_f64.powi(63)), None);
        assert_eq!(i64::from_exact(-(2_f64.powi(63))), Some(i64::MIN));
        assert_eq!(u64::from_exact(2_f64.powi(64).next_down()), Some(u64::MAX - 2047));
        for bits in [0, 7, 8, 15, 16, 31, 32, 63, 64, 99] {
            let edge = 2_f64.powi(bits);
            for value in [edge, edge - 1.0, edge + 1.0, edge.next_down(), edge.next_up()] {
                integers_hold(value);
                integers_hold(-value);
            }
        }
        [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().for_each(integers_hold);
    }

    proptest! {
        #[test]
        fn integers_hold_any_value_exactly_or_not_at_all(bits: u64, whole: i64) {
            integers_hold(f64::from_bits(bits));
            integers_hold(whole as f64);
            integers_hold((whole >> 40) as f64);
        }
    }

    #[test]
    fn values_become_real_numbers() {
        assert_eq!((-3_i8).to_f64(), -3.0);
        assert_eq!(bf16::from_f32(0.5).to_f64(), 0.5);
        assert_eq!(Complex::new(2.0_f32, 1.0).to_f64(), 2.0);
    }

    #[test]
    fn matrix_elements_multiply_and_negate() {
        assert_eq!(MatrixElement::times(0.25_f64, -3), -0.75);
        assert_eq!(MatrixElement::times(3_i64, -3), -9);
        assert_eq!(MatrixElement::times(200_u8, 2), 144);
        assert_eq!(MatrixElement::negated(1_u8), 255);
        assert_eq!(MatrixElement::plus(200_u8, 100), 44);
        assert_eq!(MatrixElement::plus(0.25_f64, 0.5), 0.75);
        assert_eq!(Complex::new(1.0_f32, -2.0).plus(Complex::new(0.5, 2.0)), Complex::new(1.5, 0.0));
        assert_eq!(Complex::new(1.0_f32, -2.0).times(2), Complex::new(2.0, -4.0));
        assert_eq!(bf16::from_f32(1.5).times(2), bf16::from_f32(3.0));
    }
}
