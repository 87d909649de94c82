//! Gaussian elimination with partial pivoting, for systems of up to some hundred equations.

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use num_complex::Complex;
use pulp::{Simd, WithSimd};
use std::ops::{Mul, Neg, Range, Sub};

/// So many rows are subtracted at once from another, which is read and written once for all of them.
const BLOCK: usize = 8;

/// The numbers of a matrix: real or complex ones.
pub trait Entry: Pod + Mul<Output = Self> + Sub<Output = Self> + Neg<Output = Self> {
    /// As many as a register of the processor holds.
    type Vector<S: Simd>: Pod;

    /// |x|, or |Re x| + |Im x|: what pivots are compared by.
    fn size(self) -> f64;

    /// 1 / x, wherever it can be represented.
    #[must_use]
    fn reciprocal(self) -> Self;

    /// `number` in all places.
    fn splat<S: Simd>(simd: S, number: Self) -> Self::Vector<S>;

    /// `a * b + c`.
    fn times_plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;

    /// The numbers of a slice that is shorter than a vector, and zeros.
    fn load<S: Simd>(simd: S, numbers: &[Self]) -> Self::Vector<S>;

    /// As many of a vector's numbers as the slice has room for.
    fn store<S: Simd>(simd: S, numbers: &mut [Self], vector: Self::Vector<S>);
}

macro_rules! entries {
    ($($type:ty, $vector:ident, $splat:ident, $times_plus:ident, $load:ident, $store:ident, $size:expr, $reciprocal:expr;)+) => {$(
        impl Entry for $type {
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn size(self) -> f64 {
                $size(self)
            }

            #[inline(always)]
            fn reciprocal(self) -> Self {
                $reciprocal(self)
            }

            #[inline(always)]
            fn splat<S: Simd>(simd: S, number: Self) -> S::$vector {
                simd.$splat(number)
            }

            #[inline(always)]
            fn times_plus<S: Simd>(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                simd.$times_plus(a, b, c)
            }

            #[inline(always)]
            fn load<S: Simd>(simd: S, numbers: &[Self]) -> S::$vector {
                simd.$load(numbers)
            }

            #[inline(always)]
            fn store<S: Simd>(simd: S, numbers: &mut [Self], vector: S::$vector) {
                simd.$store(numbers, vector);
            }
        }
    )+};
}

entries! {
    f64, f64s, splat_f64s, mul_add_e_f64s, partial_load_f64s, partial_store_f64s, f64::abs, f64::recip;
    Complex<f64>, c64s, splat_c64s, mul_add_e_c64s, partial_load_c64s, partial_store_c64s,
        |number: Self| number.l1_norm(), reciprocal;
}

/// The reciprocal of a complex number. It is scaled first, so that no square is out of range.
#[inline(always)]
fn reciprocal(number: Complex<f64>) -> Complex<f64> {
    let scale = number.re.abs().max(number.im.abs()).recip();
    let scaled = number * scale;
    scaled.conj() * (scale / scaled.norm_sqr())
}

/// Solves `A X = B`. The rows `(n, n + columns)` hold \[A | B\], and then X in the place of B, and pivots on the diagonal of A.
/// Says whether an even number of rows was exchanged, so that the product of the pivots is det A, and not -det A.
///
/// Where A is singular, a pivot is 0, and what comes after it are no numbers.
pub(super) struct Elimination<'a, E> {
    pub(super) n: usize,
    pub(super) rows: &'a mut [E],
}

impl<E: Entry> WithSimd for Elimination<'_, E> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let Self { n, rows } = self;
        let width = rows.len() / n;
        let mut is_even = true;
        for first in (0..n).step_by(BLOCK) {
            let last = (first + BLOCK).min(n);
            is_even ^= !eliminate_columns(first..last, rows, width);
            // What was done to the columns of the block, done to those behind it.
            for place in first + 1..last {
                let (above, row) = rows[first * width..].split_at_mut((place - first) * width);
                let (multiples, row) = row[first..width].split_at_mut(last - first);
                subtract_rows(simd, &multiples[..place - first], &above[last..], width, row);
            }
            let (block, below) = rows[first * width..].split_at_mut((last - first) * width);
            for row in below.chunks_exact_mut(width) {
                let (multiples, row) = row[first..].split_at_mut(last - first);
                subtract_rows(simd, multiples, &block[last..], width, row);
            }
        }
        if width > n {
            for place in (0..n).rev() {
                let (row, below) = rows[place * width..].split_at_mut(width);
                let (of_a, of_b) = row.split_at_mut(n);
                if place + 1 < n {
                    subtract_rows(simd, &of_a[place + 1..], &below[n..], width, of_b);
                }
                let reciprocal = of_a[place].reciprocal();
                for number in of_b {
                    *number = *number * reciprocal;
                }
            }
        }
        is_even
    }
}

/// Finds the pivots of some columns and the multiples of their rows that eliminate these columns from those below, which are
/// written in the place of what they eliminate. Says whether an even number of rows was exchanged.
#[inline(always)]
fn eliminate_columns<E: Entry>(columns: Range<usize>, rows: &mut [E], width: usize) -> bool {
    let mut is_even = true;
    for place in columns.clone() {
        let (_, rest) = rows.split_at_mut(place * width);
        let mut pivot = 0;
        let mut largest = rest[place].size();
        for (index, row) in rest.chunks_exact(width).enumerate() {
            if row[place].size() > largest {
                (pivot, largest) = (index, row[place].size());
            }
        }
        let (row, below) = rest.split_at_mut(width);
        if pivot > 0 {
            row.swap_with_slice(&mut below[(pivot - 1) * width..][..width]);
            is_even = !is_even;
        }
        let reciprocal = row[place].reciprocal();
        for other in below.chunks_exact_mut(width) {
            let multiple = other[place] * reciprocal;
            other[place] = multiple;
            for column in place + 1..columns.end {
                other[column] = other[column] - multiple * row[column];
            }
        }
    }
    is_even
}

/// Subtracts multiples of `rows`, which begin at multiples of `width`, from another row.
#[inline(always)]
fn subtract_rows<S: Simd, E: Entry>(simd: S, multiples: &[E], rows: &[E], width: usize, row: &mut [E]) {
    let (blocks, rest) = multiples.as_chunks::<BLOCK>();
    for (block, &multiples) in blocks.iter().enumerate() {
        subtract(simd, multiples, &rows[block * BLOCK * width..], width, row);
    }
    for (one, &multiple) in rest.iter().enumerate() {
        subtract(simd, [multiple], &rows[(blocks.len() * BLOCK + one) * width..], width, row);
    }
}

/// Subtracts multiples of as many rows.
#[inline(always)]
fn subtract<S: Simd, E: Entry, const K: usize>(simd: S, multiples: [E; K], rows: &[E], width: usize, row: &mut [E]) {
    let mut factors = [E::splat(simd, multiples[0]); K];
    let mut others = [rows; K];
    for k in 0..K {
        factors[k] = E::splat(simd, -multiples[k]);
        others[k] = &rows[k * width..][..row.len()];
    }
    let lanes = size_of::<E::Vector<S>>() / size_of::<E>();
    let whole = row.len() / lanes * lanes;
    let (vectors, rest) = row.split_at_mut(whole);
    let vectors: &mut [E::Vector<S>] = cast_slice_mut(vectors);
    let mut of_others: [&[E::Vector<S>]; K] = [&[]; K];
    for k in 0..K {
        of_others[k] = &cast_slice(&others[k][..whole])[..vectors.len()];
    }
    for (place, vector) in vectors.iter_mut().enumerate() {
        let mut sum = *vector;
        for k in 0..K {
            sum = E::times_plus(simd, factors[k], of_others[k][place], sum);
        }
        *vector = sum;
    }
    if !rest.is_empty() {
        let mut sum = E::load(simd, rest);
        for k in 0..K {
            sum = E::times_plus(simd, factors[k], E::load(simd, &others[k][whole..]), sum);
        }
        E::store(simd, rest, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulp::Arch;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use std::fmt::Debug;

    /// `[A | B]` by the textbook: one row after the other, subtracted number by number.
    fn slowly<E: Entry>(n: usize, rows: &mut [Vec<E>]) -> bool {
        let mut is_even = true;
        for place in 0..n {
            let pivot = (place..n).rev().max_by(|&a, &b| rows[a][place].size().total_cmp(&rows[b][place].size()));
            let pivot = pivot.expect("there are rows");
            rows.swap(place, pivot);
            is_even ^= pivot != place;
            for other in place + 1..n {
                let multiple = rows[other][place] * rows[place][place].reciprocal();
                for column in place + 1..rows[place].len() {
                    rows[other][column] = rows[other][column] - multiple * rows[place][column];
                }
            }
        }
        for place in (0..n).rev() {
            for column in n..rows[place].len() {
                let mut number = rows[place][column];
                for other in place + 1..n {
                    number = number - rows[place][other] * rows[other][column];
                }
                rows[place][column] = number * rows[place][place].reciprocal();
            }
        }
        is_even
    }

    fn compare<E: Entry + Debug>(random: impl Fn(&mut StdRng) -> E) {
        let rng = &mut StdRng::seed_from_u64(1);
        for n in 1..=40 {
            for columns in [0, 1, n, 2 * n + 1] {
                let width = n + columns;
                let mut rows: Vec<E> = (0..n * width).map(|_| random(rng)).collect();
                let mut expected: Vec<_> = rows.chunks(width).map(<[E]>::to_vec).collect();
                let is_even = slowly(n, &mut expected);
                assert_eq!(Arch::new().dispatch(Elimination { n, rows: &mut rows }), is_even);
                for (place, (row, expected)) in rows.chunks(width).zip(&expected).enumerate() {
                    // The pivots, and X.
                    for column in std::iter::once(place).chain(n..width) {
                        let difference = (row[column] - expected[column]).size();
                        assert!(difference < 1e-10 * (1.0 + expected[column].size()), "{n}, {columns}: {row:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_of_rows_do_what_single_rows_do() {
        compare(|rng| rng.random_range(-1.0..1.0));
        compare(|rng| Complex::new(rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0)));
    }

    #[test]
    fn reciprocals_of_any_size() {
        for size in [1e-300, 1e-160, 1.0, 1e160, 1e300] {
            let number = Complex::new(3.0, -4.0) * size;
            let product = number * number.reciprocal();
            assert!((product - 1.0).norm() < 1e-15, "{product}");
        }
    }

    #[test]
    fn pivots_of_singular_matrices_are_zero() {
        let mut rows = [1.0, 2.0, 5.0, 2.0, 4.0, 6.0];
        Arch::new().dispatch(Elimination { n: 2, rows: &mut rows });
        assert_eq!((rows[0], rows[4]), (2.0, 0.0));
        assert!(!rows[2].is_finite() && !rows[5].is_finite());
    }
}
