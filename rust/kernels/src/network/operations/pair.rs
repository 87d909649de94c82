//! Products of activations with activations, summed: the scores and the mixtures of attention.

use super::Numbers;
use crate::Error;
use crate::network::words::{Words, wrong};
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
    left: Vectors,
    right: Vectors,
}

/// Where vectors are: the place of the first number of each, and the step to the next one.
#[derive(Debug)]
struct Vectors {
    first: Vec<u32>,
    step: usize,
}

impl Pair {
    pub(super) fn read(words: &mut Words) -> Result<Self, Error> {
        let (batch, rows, columns, depth) = (words.number()?, words.number()?, words.number()?, words.number()?);
        if depth == 0 {
            return Err(wrong("it sums up nothing"));
        }
        let steps = [words.number()?, words.number()?];
        let out = words.run(batch.saturating_mul(rows).saturating_mul(columns))?;
        let mut vectors = |count: usize, step: usize| {
            let length = step.saturating_mul(depth - 1).saturating_add(1);
            Ok(Vectors { first: words.runs(batch.saturating_mul(count), length)?, step })
        };
        let (left, right) = (vectors(rows, steps[0])?, vectors(columns, steps[1])?);
        Ok(Self { rows, columns, depth, out, left, right })
    }

    pub(super) fn work(&self) -> usize {
        self.left.first.len() * self.depth * self.columns
    }
}

/// A pair of numbers of this type.
pub(super) struct Multiply<'a, T>(pub(super) &'a Pair, pub(super) PhantomData<T>);

impl<T: Real> Multiply<'_, T> {
    #[inline(always)]
    pub(super) fn run<S: Simd, const V: usize>(&self, simd: S, places: &mut [Numbers<T, S, V>]) {
        let &Pair { rows, columns, depth, out, ref left, ref right } = self.0;
        let steps = [left.step, right.step];
        let batches = left.first.chunks_exact(rows.max(1)).zip(right.first.chunks_exact(columns.max(1)));
        for (batch, (left, right)) in batches.enumerate() {
            let out = out + batch * rows * columns;
            let mut row = 0;
            while row < rows {
                let height = if row + 2 <= rows { 2 } else { 1 };
                let x = &left[row..][..height];
                let mut column = 0;
                while column < columns {
                    let many = if S::REGISTER_COUNT >= 32 || V == 1 { 4 } else { 2 };
                    let width = if column + many <= columns { many } else { 1 };
                    let y = &right[column..][..width];
                    let out = out + row * columns + column;
                    match (height, width) {
                        (2, 4) => sums::<T, S, V, 2, 4>(simd, places, x, y, steps, depth, out, columns),
                        (2, 2) => sums::<T, S, V, 2, 2>(simd, places, x, y, steps, depth, out, columns),
                        (2, _) => sums::<T, S, V, 2, 1>(simd, places, x, y, steps, depth, out, columns),
                        (_, 4) => sums::<T, S, V, 1, 4>(simd, places, x, y, steps, depth, out, columns),
                        (_, 2) => sums::<T, S, V, 1, 2>(simd, places, x, y, steps, depth, out, columns),
                        _ => sums::<T, S, V, 1, 1>(simd, places, x, y, steps, depth, out, columns),
                    }
                    column += width;
                }
                row += height;
            }
        }
    }
}

/// `R` rows and `C` columns of a result whose rows are `stride` places apart.
#[expect(clippy::too_many_arguments, reason = "a loop over the numbers of two vectors, and where the result goes")]
#[inline(always)]
fn sums<T: Real, S: Simd, const V: usize, const R: usize, const C: usize>(
    simd: S,
    places: &mut [Numbers<T, S, V>],
    x: &[u32],
    y: &[u32],
    [step_of_x, step_of_y]: [usize; 2],
    depth: usize,
    out: usize,
    stride: usize,
) {
    let mut sums = [[[T::splat(simd, T::default()); V]; C]; R];
    let x: [usize; R] = std::array::from_fn(|row| x[row] as usize);
    let y: [usize; C] = std::array::from_fn(|column| y[column] as usize);
    for k in 0..depth {
        let mut of_columns = [[T::splat(simd, T::default()); V]; C];
        for (of_column, first) in of_columns.iter_mut().zip(y) {
            *of_column = places[first + k * step_of_y];
        }
        for (sums, first) in sums.iter_mut().zip(x) {
            let x = places[first + k * step_of_x];
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
