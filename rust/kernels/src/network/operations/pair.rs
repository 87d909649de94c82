//! Products of activations with activations, summed: the scores and the mixtures of attention.

use super::Numbers;
use crate::Error;
use crate::network::words::Words;
use crate::numbers::Real;
use pulp::Simd;
use std::marker::PhantomData;

/// `out[b, i, j] = Σ_k x[b, i, k] y[b, j, k]`.
#[derive(Debug)]
pub(crate) struct Pair {
    rows: usize,
    columns: usize,
    depth: usize,
    out: usize,
    /// By b, i and k, and by b, j and k: the places of x and y.
    left: Vec<u32>,
    right: Vec<u32>,
}

impl Pair {
    pub(super) fn read(words: &mut Words) -> Result<Self, Error> {
        let (batch, rows, columns, depth) = (words.number()?, words.number()?, words.number()?, words.number()?);
        let count = |of: usize, more: usize| of.saturating_mul(more).saturating_mul(batch);
        let out = words.run(count(rows, columns))?;
        let left = words.runs(count(rows, depth), 1)?;
        let right = words.runs(count(columns, depth), 1)?;
        Ok(Self { rows, columns, depth, out, left, right })
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
        let &Pair { rows, columns, depth, out, ref left, ref right } = self.0;
        let depth = depth.max(1);
        let batches = left.chunks_exact((rows * depth).max(1)).zip(right.chunks_exact((columns * depth).max(1)));
        for (batch, (left, right)) in batches.enumerate() {
            let out = out + batch * rows * columns;
            let mut row = 0;
            while row < rows {
                let step = if row + 2 <= rows { 2 } else { 1 };
                let x = &left[row * depth..][..step * depth];
                let mut column = 0;
                while column < columns {
                    let many = if S::REGISTER_COUNT >= 32 || V == 1 { 4 } else { 2 };
                    let width = if column + many <= columns { many } else { 1 };
                    let y = &right[column * depth..][..width * depth];
                    let out = out + row * columns + column;
                    match (step, width) {
                        (2, 4) => sums::<T, S, V, 2, 4>(simd, places, x, y, depth, out, columns),
                        (2, 2) => sums::<T, S, V, 2, 2>(simd, places, x, y, depth, out, columns),
                        (2, _) => sums::<T, S, V, 2, 1>(simd, places, x, y, depth, out, columns),
                        (_, 4) => sums::<T, S, V, 1, 4>(simd, places, x, y, depth, out, columns),
                        (_, 2) => sums::<T, S, V, 1, 2>(simd, places, x, y, depth, out, columns),
                        _ => sums::<T, S, V, 1, 1>(simd, places, x, y, depth, out, columns),
                    }
                    column += width;
                }
                row += step;
            }
        }
    }
}

/// `R` rows and `C` columns of a result whose rows are `stride` places apart.
#[inline(always)]
fn sums<T: Real, S: Simd, const V: usize, const R: usize, const C: usize>(
    simd: S,
    places: &mut [Numbers<T, S, V>],
    x: &[u32],
    y: &[u32],
    depth: usize,
    out: usize,
    stride: usize,
) {
    let mut sums = [[[T::splat(simd, T::default()); V]; C]; R];
    for k in 0..depth {
        let mut of_columns = [[T::splat(simd, T::default()); V]; C];
        for (numbers, y) in of_columns.iter_mut().zip(y.chunks_exact(depth)) {
            *numbers = places[y[k] as usize];
        }
        for (sums, x) in sums.iter_mut().zip(x.chunks_exact(depth)) {
            let x = places[x[k] as usize];
            for (sums, y) in sums.iter_mut().zip(&of_columns) {
                for ((sum, &x), &y) in sums.iter_mut().zip(&x).zip(y) {
                    *sum = T::times_plus(simd, x, y, *sum);
                }
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        places[out + row * stride..][..C].copy_from_slice(sums);
    }
}
