//! By how much layers in single precision may be off.
//!
//! All norms are Euclidean. A sum whose terms are rounded n times each is off by no more than γ(n) times the sum of
//! their moduli: Higham, Accuracy and Stability of Numerical Algorithms, section 3.1.

use super::Stage;
use super::activation::ROUNDING as OF_FUNCTIONS;
use super::products;
use crate::numbers::{CACHE_LINE, Real, dispatch};
use aligned_vec::AVec;
use pulp::{Simd, WithSimd};

/// The unit roundoff of single precision.
const ROUNDING: f64 = f32::EPSILON as f64 / 2.0;

/// A bound is computed with errors of its own, of less than so much.
const SLACK: f64 = 1.01;

/// How a stage spreads the errors of its inputs, and adds others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    /// How steep the function is at most.
    slope: f64,
    depth: usize,
    /// How much the matrix lengthens a vector at most.
    norm: f64,
    /// The error of the product with a vector of length 1, and that of the bias.
    of_product: f64,
    of_bias: f64,
}

impl Bound {
    /// Of a stage before its numbers are rounded.
    pub(super) fn of<T: Real>(stage: &Stage<T>) -> Self {
        let Stage { function, depth, matrix, bias, .. } = stage;
        let frobenius = norm(matrix);
        let (norm_of_matrix, roundings) = if bias.len() == 1 {
            (frobenius, products::roundings_of_sum(*depth))
        } else {
            (spectral_norm(matrix, bias.len(), frobenius), products::roundings(*depth))
        };
        // One more for what rounds the numbers themselves, and one where a product is rounded before it is added.
        let rounding = gamma(roundings + 2);
        Self {
            slope: function.slope(),
            depth: *depth,
            norm: SLACK * norm_of_matrix,
            of_product: SLACK * rounding * frobenius,
            // What underflows is lost as well.
            of_bias: SLACK * rounding * norm(bias) + (depth * bias.len()) as f64 * f64::from(f32::MIN_POSITIVE),
        }
    }

    #[cfg(test)]
    pub(super) fn add(&mut self, error: f64) {
        self.of_bias += error;
    }

    /// Makes the errors of rows behind the stage of those before it, with what its function made of the rows. A row of
    /// x are the first numbers of `stride`.
    #[inline(always)]
    pub(super) fn spread<T: Real>(&self, stride: usize, x: &[T], errors: &mut [f64]) {
        let of_function = OF_FUNCTIONS * (self.depth as f64).sqrt();
        for (x, error) in x.chunks_exact(stride).zip(errors) {
            let length = SLACK * norm(&x[..self.depth]);
            let input = self.slope * *error + of_function + OF_FUNCTIONS * length;
            *error = self.norm * input + self.of_product * length + self.of_bias;
        }
    }
}

/// The error of a vector that is rounded.
pub(super) fn of_rounding<T: Real>(x: &[T]) -> f64 {
    SLACK * ROUNDING * norm(x)
}

fn gamma(count: usize) -> f64 {
    let all = count as f64 * ROUNDING;
    // Behind that many products nothing is known.
    if all < 1.0 { all / (1.0 - all) } else { f64::INFINITY }
}

#[inline(always)]
fn norm<T: Real>(x: &[T]) -> f64 {
    const LANES: usize = 16;
    let (parts, rest) = x.as_chunks::<LANES>();
    let mut last = [T::default(); LANES];
    last[..rest.len()].copy_from_slice(rest);
    let mut sums = last.map(|x| x * x);
    for part in parts {
        for (sum, &x) in sums.iter_mut().zip(part) {
            *sum = *sum + x * x;
        }
    }
    sums.into_iter().map(Into::<f64>::into).sum::<f64>().sqrt()
}

/// A bound of a matrix's greatest singular value σ: σ⁴ is one of the terms of tr (WᵀW)².
fn spectral_norm<T: Real>(matrix: &[T], columns: usize, frobenius: f64) -> f64 {
    let depth = matrix.len() / columns;
    let zeros = |count| -> AVec<T> { AVec::from_iter(CACHE_LINE, std::iter::repeat_n(T::default(), count)) };
    // Some rows of WᵀW at a time: all would take more memory than the network.
    let (mut x, mut y) = (zeros(products::TOGETHER * depth), zeros(products::TOGETHER * columns));
    let (bias, mut memory) = (zeros(columns), zeros(products::TOGETHER * depth));
    let mut squares = 0.0;
    for first in (0..columns).step_by(products::TOGETHER) {
        for (row, x) in x.chunks_exact_mut(depth).enumerate() {
            for (x, numbers) in x.iter_mut().zip(matrix.chunks_exact(columns)) {
                *x = numbers[first + row];
            }
        }
        dispatch(Multiply { x: &x, depth, matrix, bias: &bias, memory: &mut memory, y: &mut y });
        squares += norm(&y).powi(2);
    }
    squares.powf(0.25).min(frobenius)
}

/// As [`products::multiply`].
struct Multiply<'a, T> {
    x: &'a [T],
    depth: usize,
    matrix: &'a [T],
    bias: &'a [T],
    memory: &'a mut [T],
    y: &'a mut [T],
}

impl<T: Real> WithSimd for Multiply<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { x, depth, matrix, bias, memory, y } = self;
        products::multiply(simd, depth, x, (matrix, bias), memory, y);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{numbers, stages};
    use super::super::{Activation, Layers, Rows};
    use super::*;
    use crate::numbers::each_level;
    use proptest::prelude::*;

    proptest! {
        /// No number is off by more than its bound, and the bound isn't far away.
        #[test]
        fn errors_are_within_their_bounds(
            seed in 0_usize..1000, scale in 0.01..30.0_f64,
            width in 1_usize..150, hidden in prop::collection::vec(1_usize..150, 0..3),
            function in prop::sample::select(Activation::ALL.to_vec())
        ) {
            let functions = vec![function; hidden.len() + 1];
            let widths: Vec<_> = [width].into_iter().chain(hidden).chain([1]).collect();
            let mut stages = stages(&functions, &widths);
            for (_, matrix, _) in &mut stages {
                for weight in matrix {
                    *weight *= 0.3;
                }
            }
            let layers = Layers::new(width, stages.iter().map(|(f, matrix, bias)| (*f, &matrix[..], &bias[..]))).expect("layers");
            let sums: Vec<f64> = numbers(seed, 9 * width).into_iter().map(|x| scale * x).collect();
            for _ in each_level() {
                let mut exact = Rows { sums: sums.clone(), ..Rows::default() };
                exact.evaluate(&layers);
                let mut rounded = Rows::default();
                for sums in sums.chunks(width) {
                    rounded.push_rounded(sums);
                }
                rounded.evaluate(&layers.rounded());
                for ((exact, &rounded), &error) in exact.log_psi.iter().zip(&rounded.log_psi).zip(&rounded.errors) {
                    let found = (exact - f64::from(rounded)).abs();
                    prop_assert!(found <= error, "{found} is more than {error}");
                    prop_assert!(error < 0.02 * scale.max(1.0) * 50.0_f64.powi(widths.len() as i32 - 2), "{error}");
                }
            }
        }
    }

    #[test]
    fn norms_of_matrices() {
        // Singular values 3 and 1, with a column of zeros.
        let (a, b) = (2.0_f64.sqrt() * 1.5, 0.5_f64.sqrt());
        let mut matrix = vec![0.0; 32];
        (matrix[0], matrix[1], matrix[16], matrix[17]) = (a, -b, a, b);
        let matrix = AVec::<f64>::from_slice(CACHE_LINE, &matrix);
        for _ in each_level() {
            let found = spectral_norm(&matrix, 16, norm(&matrix));
            assert!((found - 82.0_f64.powf(0.25)).abs() < 1e-14, "{found}");
        }
        assert!((norm(&matrix) - 10.0_f64.sqrt()).abs() < 1e-14);
        // Of one column both are its length.
        assert_eq!(gamma(1 << 25), f64::INFINITY);
    }
}
