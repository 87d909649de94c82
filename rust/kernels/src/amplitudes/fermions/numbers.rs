//! Numbers of matrices, and logarithms of their determinants and Pfaffians.

use crate::numbers::Ratio;
use faer::traits::ComplexField;
use num_complex::Complex;
use std::f64::consts::PI;
use std::fmt::Debug;
use std::ops::{AddAssign, Div, Neg, Sub};

/// What matrices of fermions have: real or complex numbers.
pub trait Orbital:
    Ratio + ComplexField + Debug + AddAssign + Neg<Output = Self> + Sub<Output = Self> + Div<Output = Self>
{
    /// 1.
    const ONE: Self;

    /// A number, without its imaginary part if these are real.
    fn of(number: Complex<f64>) -> Self;

    /// A real number.
    fn real(number: f64) -> Self;

    /// |x|.
    fn modulus(self) -> f64;

    /// The argument of x: 0 or π for a real number.
    fn argument(self) -> f64;

    /// The sum of numbers.
    #[inline(always)]
    fn sum(numbers: &[Self]) -> Self {
        numbers.iter().fold(Self::default(), |mut sum, &number| {
            sum += number;
            sum
        })
    }
}

impl Orbital for f64 {
    const ONE: Self = 1.0;

    fn of(number: Complex<f64>) -> Self {
        number.re
    }

    #[inline(always)]
    fn real(number: f64) -> Self {
        number
    }

    #[inline(always)]
    fn modulus(self) -> f64 {
        self.abs()
    }

    fn argument(self) -> f64 {
        if self < 0.0 { PI } else { 0.0 }
    }
}

impl Orbital for Complex<f64> {
    const ONE: Self = Complex::new(1.0, 0.0);

    fn of(number: Self) -> Self {
        number
    }

    #[inline(always)]
    fn real(number: f64) -> Self {
        number.into()
    }

    #[inline(always)]
    fn modulus(self) -> f64 {
        self.norm()
    }

    fn argument(self) -> f64 {
        self.arg()
    }
}

/// A number, as the logarithm of its modulus, and its sign or phase.
#[derive(Debug, Clone, Copy)]
pub struct SignedLog<E> {
    pub(crate) log: f64,
    pub(crate) phase: E,
}

impl<E: Orbital> SignedLog<E> {
    pub(crate) const ONE: Self = Self { log: 0.0, phase: E::ONE };
    pub(crate) const ZERO: Self = Self { log: f64::NEG_INFINITY, phase: E::ONE };

    /// What summands are given relative to, and whether their sum is 0 or no number: the sum, or if it is 0 the largest of them.
    pub(crate) fn scale(all: &[Self]) -> (Self, bool) {
        let sum = Self::sum(all);
        (if sum.is_zero() { Self::largest(all) } else { sum }, !sum.log.is_finite())
    }

    fn largest(all: &[Self]) -> Self {
        all.iter().fold(Self::ZERO, |largest, &one| if one.log > largest.log { one } else { largest })
    }

    /// The sum of some.
    pub(crate) fn sum(all: &[Self]) -> Self {
        let largest = Self::largest(all);
        if largest.is_zero() || all.len() == 1 {
            return all.first().copied().unwrap_or(Self::ZERO);
        }
        let scale = Self { log: largest.log, phase: E::ONE };
        let mut sum = E::default();
        for one in all {
            sum += one.over(scale);
        }
        scale.times(Self::of(sum))
    }

    /// A number.
    pub(crate) fn of(value: E) -> Self {
        let modulus = value.modulus();
        Self { log: modulus.ln(), phase: if modulus == 0.0 { E::ONE } else { value / E::real(modulus) } }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self { log: self.log + other.log, phase: self.phase * other.phase }
    }

    /// `self / other`, a number.
    pub(crate) fn over(self, other: Self) -> E {
        if self.is_zero() { E::default() } else { self.phase / other.phase * E::real((self.log - other.log).exp()) }
    }

    /// Its logarithm.
    pub(crate) fn logarithm(self) -> Complex<f64> {
        Complex::new(self.log, self.phase.argument())
    }

    pub(crate) fn is_zero(self) -> bool {
        self.log == f64::NEG_INFINITY
    }
}
