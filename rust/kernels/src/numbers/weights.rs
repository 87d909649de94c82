//! Ratios of amplitudes, and the matrix elements that they are multiplied by.

use crate::numbers::MatrixElement;
use num_complex::Complex;
use std::ops::Mul;

/// What ratios are: real or complex numbers. Both are multiplied by matrix elements of either kind.
pub trait Ratio:
    Copy
    + Default
    + Into<Complex<f64>>
    + Mul<Output = Self>
    + Mul<f64, Output: Into<Complex<f64>>>
    + Mul<Complex<f64>, Output: Into<Complex<f64>>>
{
}

impl Ratio for f64 {}
impl Ratio for Complex<f64> {}

/// Matrix elements that ratios are multiplied by.
pub trait Weight: MatrixElement + Into<Complex<f64>> {
    /// The product with a ratio.
    fn times_ratio<R: Ratio>(self, ratio: R) -> Complex<f64>;
}

impl Weight for f64 {
    #[inline(always)]
    fn times_ratio<R: Ratio>(self, ratio: R) -> Complex<f64> {
        Mul::<Self>::mul(ratio, self).into()
    }
}

impl Weight for Complex<f64> {
    #[inline(always)]
    fn times_ratio<R: Ratio>(self, ratio: R) -> Self {
        Mul::<Self>::mul(ratio, self).into()
    }
}
