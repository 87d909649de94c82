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
    right: Right,
}

/// Where the numbers of y are.
#[derive(Debug)]
enum Right {
    /// The first one of each vector, and the step from one to the next one.
    Steps(Vec<u32>, usize),
    Places(Vec<u32>),
}

/// A block of so many columns is multiplied with all rows, as long a part of them after the other as stays in the nearest cache,
/// which has room for so many bytes: often the numbers of different columns are those that are one behind the other.
const BLOCK: usize = 16;
const NEAR: usize = 24 << 10;

/// A part has so many numbers of each column at least: the sums so far are read and written for each.
const LEAST: usize = 8;

impl Pair {
    pub(super) fn read(words: &mut Words) -> Result<Self, Error> {
        let (batch, rows, columns, depth) = (words.number()?, words.number()?, words.number()?, words.number()?);
        if depth == 0 {
            return Err(wrong("it sums up nothing"));
        }
        let (has_steps, step) = (words.number()? == 0, words.number()?);
        let out = words.run(batch.saturating_mul(rows).saturating_mul(columns))?;
        let left = words.runs(batch.saturating_mul(rows).saturating_mul(depth), 1)?;
        let columns_of_all = batch.saturating_mul(columns);
        let right = if has_steps {
            Right::Steps(words.runs(columns_of_all, step.saturating_mul(depth - 1).saturating_add(1))?, step)
        } else {
            Right::Places(words.runs(columns_of_all.saturating_mul(depth), 1)?)
        };
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
        match &self.0.right {
            Right::Steps(first, step) => self.by(
                simd,
                places,
                #[inline(always)]
                |vector, k| first[vector] as usize + k * step,
            ),
            Right::Places(all) => self.by(
                simd,
                places,
                #[inline(always)]
                |vector, k| all[vector * self.0.depth + k] as usize,
            ),
        }
    }

    /// Where `right(vector, k)` is the place of a number of y.
    #[inline(always)]
    fn by<S: Simd, const V: usize>(
        &self,
        simd: S,
        places: &mut [Numbers<T, S, V>],
        right: impl Fn(usize, usize) -> usize + Copy,
    ) {
        let &Pair { rows, columns, depth, out, ref left, .. } = self.0;
        let many = if S::REGISTER_COUNT >= 32 || V == 1 { 4 } else { 2 };
        let at_once = (NEAR / (BLOCK.min(columns).max(1) * size_of::<Numbers<T, S, V>>())).max(LEAST);
        for (batch, left) in left.chunks_exact((rows * depth).max(1)).enumerate() {
            for block in (0..columns).step_by(BLOCK) {
                for start in (0..depth).step_by(at_once) {
                    let part = start..depth.min(start + at_once);
                    let mut row = 0;
                    while row < rows {
                        let height = if row + 2 <= rows { 2 } else { 1 };
                        let x = &left[row * depth..][..height * depth];
                        let (mut column, end) = (block, columns.min(block + BLOCK));
                        while column < end {
                            let width = if column + many <= end { many } else { 1 };
                            let y = |other: usize, k: usize| right(batch * columns + column + other, k);
                            let to = Out { first: out + (batch * rows + row) * columns + column, stride: columns };
                            let part = part.clone();
                            match (height, width) {
                                (2, 4) => sums::<T, S, V, 2, 4>(simd, places, x, y, part, to),
                                (2, 2) => sums::<T, S, V, 2, 2>(simd, places, x, y, part, to),
                                (2, _) => sums::<T, S, V, 2, 1>(simd, places, x, y, part, to),
                                (_, 4) => sums::<T, S, V, 1, 4>(simd, places, x, y, part, to),
                                (_, 2) => sums::<T, S, V, 1, 2>(simd, places, x, y, part, to),
                                _ => sum::<T, S, V>(simd, places, x, |k| y(0, k), part, to.first),
                            }
                            column += width;
                        }
                        row += height;
                    }
                }
            }
        }
    }
}

/// A block of a result whose rows are so many places apart.
#[derive(Clone, Copy)]
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
    y: impl Fn(usize, usize) -> usize,
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
    let x: [&[u32]; R] = from_fn(|row| &x[row * depth..][..part.end]);
    for k in part {
        let mut of_columns = [[T::splat(simd, T::default()); V]; C];
        for (column, of_column) in of_columns.iter_mut().enumerate() {
            *of_column = places[y(column, k)];
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

/// As [`sums`], of one row and one column: several sums, none of which has to wait for the others.
#[inline(always)]
fn sum<T: Real, S: Simd, const V: usize>(
    simd: S,
    places: &mut [Numbers<T, S, V>],
    x: &[u32],
    y: impl Fn(usize) -> usize,
    part: Range<usize>,
    out: usize,
) {
    const APART: usize = 4;
    let mut sums = [[T::splat(simd, T::default()); V]; APART];
    if part.start > 0 {
        sums[0] = places[out];
    }
    let mut k = part.start;
    while k < part.end {
        for (next, sums) in sums.iter_mut().enumerate().take(part.end - k) {
            let (x, y) = (places[x[k + next] as usize], places[y(k + next)]);
            for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
                *sum = T::times_plus(simd, x, y, *sum);
            }
        }
        k += APART;
    }
    let [first, others @ ..] = sums;
    places[out] = others.into_iter().fold(first, |a, b| from_fn(|v| T::plus(simd, a[v], b[v])));
}
