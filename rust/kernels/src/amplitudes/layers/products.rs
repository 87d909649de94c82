//! Products of a few rows with a matrix.

use crate::numbers::{MULTIPLE, Real};
use pulp::Simd;

/// So many rows are multiplied at once: each vector of the matrix is read for all of them.
pub(super) const TOGETHER: usize = 8;

/// Vectors of a result that are kept in registers for each row, if there are 32 registers, or 16.
const VECTORS: [usize; 2] = [2, 1];

/// No more products than so many are summed up one after the other, so that errors stay small.
const LONGEST: usize = 64;

/// How often each term of a [`multiply`] of this depth is rounded at most.
pub(super) fn roundings(depth: usize) -> usize {
    let parts = depth.div_ceil(LONGEST);
    depth.div_ceil(parts.max(1)) + parts
}

/// As [`roundings`], of [`sum_up`].
pub(super) fn roundings_of_sum(depth: usize) -> usize {
    depth.div_ceil(SUMS) + SUMS.ilog2() as usize + 2
}

/// A matrix, and a bias.
type Vectors<'a, T, S> = (&'a [<T as Real>::Vector<S>], &'a [<T as Real>::Vector<S>]);

/// `y = bias + x matrix` for a `matrix (depth, columns)` and `y (n, columns)`, with a multiple of [`MULTIPLE`] columns. A
/// row of x are the first `depth` of `stride` numbers.
///
/// A row's results are the same to the bit beside whichever other rows it is. `memory` has room for
/// [`TOGETHER`] rows.
#[inline(always)]
pub(super) fn multiply<T: Real, S: Simd>(
    simd: S,
    stride: usize,
    x: &[T],
    (matrix, bias): (&[T], &[T]),
    memory: &mut [T],
    y: &mut [T],
) {
    let columns = bias.len();
    let matrix: &[T::Vector<S>] = bytemuck::cast_slice(matrix);
    let bias: &[T::Vector<S>] = bytemuck::cast_slice(bias);
    let (mut x, mut y) = (x, y);
    macro_rules! rows {
        ($($rows:literal)+) => {$(
            while x.len() >= $rows * stride {
                let (these, others) = x.split_at($rows * stride);
                let (results, other_results) = std::mem::take(&mut y).split_at_mut($rows * columns);
                block::<T, S, $rows>(simd, stride, these, (matrix, bias), memory, results);
                (x, y) = (others, other_results);
            }
        )+};
    }
    rows!(8 4 2 1);
}

/// As [`multiply`], of so many rows.
#[inline(always)]
fn block<T: Real, S: Simd, const R: usize>(
    simd: S,
    stride: usize,
    x: &[T],
    (matrix, bias): Vectors<T, S>,
    memory: &mut [T],
    y: &mut [T],
) {
    // Number by number, all rows' side by side.
    let turned = memory.as_chunks_mut::<R>().0;
    let turned = &mut turned[..matrix.len() / bias.len()];
    for (row, x) in x.chunks_exact(stride).enumerate() {
        for (numbers, &number) in turned.iter_mut().zip(x) {
            numbers[row] = number;
        }
    }
    let y: &mut [T::Vector<S>] = bytemuck::cast_slice_mut(y);
    let [many, few] = VECTORS;
    let at_once = if S::REGISTER_COUNT >= 32 || R < TOGETHER { many } else { few };
    for place in (0..bias.len()).step_by(at_once) {
        if at_once == many && place + many <= bias.len() {
            columns::<T, S, R, { VECTORS[0] }>(simd, turned, (matrix, bias), place, y);
        } else {
            columns::<T, S, R, { VECTORS[1] }>(simd, turned, (matrix, bias), place, y);
        }
    }
}

/// As [`block`], of the vectors from `place` on.
#[inline(always)]
fn columns<T: Real, S: Simd, const R: usize, const V: usize>(
    simd: S,
    x: &[[T; R]],
    (matrix, bias): Vectors<T, S>,
    place: usize,
    y: &mut [T::Vector<S>],
) {
    let stride = bias.len();
    for y in y.chunks_exact_mut(stride) {
        y[place..][..V].copy_from_slice(&bias[place..][..V]);
    }
    let parts = x.len().div_ceil(LONGEST).max(1);
    let longest = x.len().div_ceil(parts).max(1);
    for (x, matrix) in x.chunks(longest).zip(matrix.chunks(longest * stride)) {
        let mut sums = [[T::splat(simd, T::default()); V]; R];
        for (numbers, row) in x.iter().zip(matrix.chunks_exact(stride)) {
            let row = &row[place..][..V];
            for (sums, &number) in sums.iter_mut().zip(numbers) {
                let number = T::splat(simd, number);
                for (sum, &of_row) in sums.iter_mut().zip(row) {
                    *sum = T::times_plus(simd, number, of_row, *sum);
                }
            }
        }
        for (y, sums) in y.chunks_exact_mut(stride).zip(sums) {
            for (y, sum) in y[place..][..V].iter_mut().zip(sums) {
                *y = T::plus(simd, *y, sum);
            }
        }
    }
}

/// `bias + Σ_i x_i w_i` of each row of x, the first numbers of `stride`.
#[inline(always)]
pub(super) fn sum_up<T: Real>(stride: usize, x: &[T], (weights, bias): (&[T], T), y: &mut [T]) {
    for (x, y) in x.chunks_exact(stride).zip(y) {
        // As many sums as fill some registers.
        let mut sums = [T::default(); SUMS];
        let (parts, rest) = x[..weights.len()].as_chunks::<SUMS>();
        let (weights, last_weights) = weights.as_chunks::<SUMS>();
        let rows = parts.iter().zip(weights).map(|(x, weights)| (&x[..], &weights[..])).chain([(rest, last_weights)]);
        for (x, weights) in rows {
            for ((sum, &x), &weight) in sums.iter_mut().zip(x).zip(weights) {
                *sum = *sum + x * weight;
            }
        }
        let mut count = SUMS;
        while count > 1 {
            count /= 2;
            let (first, second) = sums.split_at_mut(count);
            for (sum, &other) in first.iter_mut().zip(&*second) {
                *sum = *sum + other;
            }
        }
        *y = bias + sums[0];
    }
}

/// Partial sums of [`sum_up`].
const SUMS: usize = 2 * MULTIPLE;
