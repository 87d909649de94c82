//! Ratios of amplitudes, and the matrix elements that they are multiplied by.

use crate::numbers::MatrixElement;
use num_complex::Complex;
use std::ops::Mul;

/// What ratios are: real or complex numbers.
pub trait Ratio:
    Copy + Default + Into<Complex<f64>> + Mul<Output = Self> + Mul<Complex<f64>, Output = Complex<f64>>
{
}

impl Ratio for f64 {}
impl Ratio for Complex<f64> {}

/// Matrix elements that ratios are multiplied by.
pub trait Weight: MatrixElement + Into<Complex<f64>> {}

impl Weight for f64 {}
impl Weight for Complex<f64> {}
