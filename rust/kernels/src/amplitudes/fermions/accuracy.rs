//! When numbers that change along with a configuration are computed anew.

/// Numbers of one summand among others are used if they are no larger. They are the ratios to a configuration where this
/// summand is that much smaller than elsewhere: with errors as much larger, which others wouldn't share.
pub(crate) const LARGEST: f64 = 1e5;

/// If a pivot is larger or smaller, all numbers are computed anew, and also if the product of some of them is: where numbers have
/// become as large, and small again, errors are larger by the square.
const MODERATE: std::ops::Range<f64> = 1.0 / 64.0..64.0;

/// After so many moves all numbers are computed anew.
pub(crate) const MOVES: usize = 256;

/// If an equation that the numbers solve is wrong by more, relative to its summands, they are computed anew.
pub(crate) const RESIDUAL: f64 = 1e-13;

/// The products of pivots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pivots {
    product: f64,
    /// Whether none of them was large or small, nor their product.
    pub(crate) are_moderate: bool,
}

impl Default for Pivots {
    fn default() -> Self {
        Self { product: 1.0, are_moderate: true }
    }
}

impl Pivots {
    #[inline(always)]
    pub(crate) fn note(&mut self, pivot: f64) {
        self.product *= pivot;
        self.are_moderate &= MODERATE.contains(&pivot) && MODERATE.contains(&self.product);
    }
}
