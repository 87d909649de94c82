//! Sums of activations, and the greatest or least of them.

use super::Numbers;
use crate::Error;
use crate::network::words::{Words, wrong};
use crate::numbers::Real;
use pulp::Simd;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Sum,
    Greatest,
    Least,
    Product,
}

/// `out[r]`, what is made of `x[r, k]` for all k.
#[derive(Debug)]
pub(crate) struct Reduce {
    depth: usize,
    kind: Kind,
    out: usize,
    places: Vec<u32>,
}

impl Reduce {
    pub(super) fn read(words: &mut Words) -> Result<Self, Error> {
        let (rows, depth, kind) = (words.number()?, words.number()?, words.number()?);
        let kind = match kind {
            0 => Kind::Sum,
            1 => Kind::Greatest,
            2 => Kind::Least,
            3 => Kind::Product,
            _ => return Err(wrong(&format!("there is no reduction {kind}"))),
        };
        if depth == 0 {
            return Err(wrong("it reduces nothing"));
        }
        let out = words.run(rows)?;
        Ok(Self { depth, kind, out, places: words.runs(rows.saturating_mul(depth), 1)? })
    }

    pub(super) fn work(&self) -> usize {
        self.places.len()
    }

    #[inline(always)]
    pub(super) fn run<T: Real, S: Simd, const V: usize>(&self, simd: S, places: &mut [Numbers<T, S, V>]) {
        match self.kind {
            Kind::Sum => self.by(
                places,
                #[inline(always)]
                |a, b| T::plus(simd, a, b),
            ),
            Kind::Product => self.by(
                places,
                #[inline(always)]
                |a, b| T::times(simd, a, b),
            ),
            Kind::Greatest => self.by(
                places,
                #[inline(always)]
                |a, b| T::greatest(simd, a, b),
            ),
            // The least one is the greatest of those with the other sign.
            Kind::Least => self.by(
                places,
                #[inline(always)]
                |a, b| T::negated(simd, T::greatest(simd, T::negated(simd, a), T::negated(simd, b))),
            ),
        }
    }

    #[inline(always)]
    fn by<N: Copy, const V: usize>(&self, places: &mut [[N; V]], combine: impl Fn(N, N) -> N) {
        let mut row = 0;
        while row < self.rows() {
            if row + ROWS <= self.rows() {
                self.rows_by::<N, V, ROWS>(row, places, &combine);
                row += ROWS;
            } else {
                self.rows_by::<N, V, 1>(row, places, &combine);
                row += 1;
            }
        }
    }

    #[inline(always)]
    fn rows_by<N: Copy, const V: usize, const R: usize>(
        &self,
        first: usize,
        places: &mut [[N; V]],
        combine: &impl Fn(N, N) -> N,
    ) {
        let depth = self.depth;
        let of_rows = &self.places[first * depth..][..R * depth];
        let mut totals: [[N; V]; R] = std::array::from_fn(|row| places[of_rows[row * depth] as usize]);
        for k in 1..depth {
            for (row, total) in totals.iter_mut().enumerate() {
                let numbers = places[of_rows[row * depth + k] as usize];
                for (total, number) in total.iter_mut().zip(numbers) {
                    *total = combine(*total, number);
                }
            }
        }
        places[self.out + first..][..R].copy_from_slice(&totals);
    }

    fn rows(&self) -> usize {
        self.places.len() / self.depth
    }
}

/// So many rows are reduced at once: a result waits for the one before it.
const ROWS: usize = 4;
