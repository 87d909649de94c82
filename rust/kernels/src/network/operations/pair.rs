//! Products of activations with activations, summed: the scores and the mixtures of attention, and what a backward pass makes
//! of the inputs of a layer and of its outputs' derivatives.

use super::Numbers;
use crate::Error;
use crate::network::words::{Words, wrong};
use crate::numbers::Real;
use pulp::Simd;
use std::array::from_fn;
use std::marker::PhantomData;
use std::ops::Range;

/// `out[b, i, j] = Σ_k x[b, i, k] y[b, j, k]`.
#[derive(Debug)]
pub(crate) struct Pair {
    rows: usize,
    columns: usize,
    depth: usize,
    out: usize,
    /// Where the numbers of x are.
    left: Vec<u32>,
    /// Where each vector of y begins, and the step from one number to the next one.
    right: Vec<u32>,
    step: usize,
}

/// Vectors of y of so many bytes stay in the nearest cache while all x are multiplied with them. Of more a part comes after the
/// other.
const NEAR: usize = 24 << 10;

/// A part has so many numbers of each vector at least: the sums so far are read and written for each.
const LEAST: usize = 8;

impl Pair {
    pub(super) fn read(words: &mut Words) -> Result<Self, Error> {
        let (batch, rows, columns, depth) = (words.number()?, words.number()?, words.number()?, words.number()?);
        if depth == 0 {
            return Err(wrong("it sums up nothing"));
        }
        let step = words.number()?;
        let out = words.run(batch.saturating_mul(rows).saturating_mul(columns))?;
        let left = words.runs(batch.saturating_mul(rows).saturating_mul(depth), 1)?;
        let length = step.saturating_mul(depth - 1).saturating_add(1);
        let right = words.runs(batch.saturating_mul(columns), length)?;
        Ok(Self { rows, columns, depth, out, left, right, step })
    }

    pub(super) fn work(&self) -> usize {
        self.left.len() * self.columns
    }
}

/// A pair of numbers of this type.
pub(super) struct Multiply<'a, T>(pub(super) &'a Pair, pub(super) PhantomData<T>);

impl<T: Real> Multiply<'_, T> {
    #[inline(always)]
    pub(super) fn run<S: Simd, const V: usize>(&self, simd: S, places: &mut [Numbers<T, S, V>]) {
        let &Pair { rows, columns, depth, out, ref left, ref right, step } = self.0;
        let bytes = columns * size_of::<Numbers<T, S, V>>();
        let at_once = if depth * bytes > NEAR { (NEAR / bytes.max(1)).max(LEAST) } else { depth };
        let batches = left.chunks_exact((rows * depth).max(1)).zip(right.chunks_exact(columns.max(1)));
        for (batch, (left, right)) in batches.enumerate() {
            let out = out + batch * rows * columns;
            for start in (0..depth).step_by(at_once) {
                let part = start..depth.min(start + at_once);
                let mut row = 0;
                while row < rows {
                    let height = if row + 2 <= rows { 2 } else { 1 };
                    let x = &left[row * depth..][..height * depth];
                    let mut column = 0;
                    while column < columns {
                        let many = if S::REGISTER_COUNT >= 32 || V == 1 { 4 } else { 2 };
                        let width = if column + many <= columns { many } else { 1 };
                        let y = &right[column..][..width];
                        let to = Out { first: out + row * columns + column, stride: columns };
                        let part = part.clone();
                        match (height, width) {
                            (2, 4) => sums::<T, S, V, 2, 4>(simd, places, x, y, step, part, to),
                            (2, 2) => sums::<T, S, V, 2, 2>(simd, places, x, y, step, part, to),
                            (2, _) => sums::<T, S, V, 2, 1>(simd, places, x, y, step, part, to),
                            (_, 4) => sums::<T, S, V, 1, 4>(simd, places, x, y, step, part, to),
                            (_, 2) => sums::<T, S, V, 1, 2>(simd, places, x, y, step, part, to),
                            _ => sums::<T, S, V, 1, 1>(simd, places, x, y, step, part, to),
                        }
                        column += width;
                    }
                    row += height;
                }
            }
        }
    }
}

/// A block of a result whose rows are so many places apart.
struct Out {
    first: usize,
    stride: usize,
}

/// Adds a part of the products to `R` rows and `C` columns, or begins with it.
#[inline(always)]
fn sums<T: Real, S: Simd, const V: usize, const R: usize, const C: usize>(
    simd: S,
    places: &mut [Numbers<T, S, V>],
    x: &[u32],
    y: &[u32],
    step: usize,
    part: Range<usize>,
    out: Out,
) {
    let mut sums = [[[T::splat(simd, T::default()); V]; C]; R];
    if part.start > 0 {
        for (row, sums) in sums.iter_mut().enumerate() {
            sums.copy_from_slice(&places[out.first + row * out.stride..][..C]);
        }
    }
    let depth = x.len() / R;
    let x: [&[u32]; R] = from_fn(|row| &x[row * depth..][part.clone()]);
    let y: [usize; C] = from_fn(|column| y[column] as usize + part.start * step);
    for k in 0..part.len() {
        let mut of_columns = [[T::splat(simd, T::default()); V]; C];
        for (of_column, first) in of_columns.iter_mut().zip(y) {
            *of_column = places[first + k * step];
        }
        for (sums, x) in sums.iter_mut().zip(x) {
            let x = places[x[k] as usize];
            for (sums, y) in sums.iter_mut().zip(&of_columns) {
                for ((sum, &x), &y) in sums.iter_mut().zip(&x).zip(y) {
                    *sum = T::times_plus(simd, x, y, *sum);
                }
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        places[out.first + row * out.stride..][..C].copy_from_slice(sums);
    }
}
