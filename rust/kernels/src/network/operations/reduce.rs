//! Sums of activations, and the greatest or least of them.

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
    pub(super) fn run<T: Real, S: Simd>(&self, _: S, width: usize, places: &mut [T]) {
        match self.kind {
            Kind::Sum => self.by(
                width,
                places,
                #[inline(always)]
                |a, b| a + b,
            ),
            Kind::Product => self.by(
                width,
                places,
                #[inline(always)]
                |a, b| a * b,
            ),
            // A NaN stays one.
            Kind::Greatest => self.by(
                width,
                places,
                #[inline(always)]
                |a, b| if a > b || T::is_nan(a) { a } else { b },
            ),
            Kind::Least => self.by(
                width,
                places,
                #[inline(always)]
                |a, b| if a < b || T::is_nan(a) { a } else { b },
            ),
        }
    }

    #[inline(always)]
    fn by<T: Real>(&self, width: usize, places: &mut [T], combine: impl Fn(T, T) -> T) {
        /// The most lanes of a tile.
        const MOST: usize = 32;
        for (row, of_row) in self.places.chunks_exact(self.depth).enumerate() {
            let mut total = [T::default(); MOST];
            let total = &mut total[..width];
            let (&first, others) = of_row.split_first().expect("there is one");
            total.copy_from_slice(&places[first as usize * width..][..width]);
            for &place in others {
                for (total, &x) in total.iter_mut().zip(&places[place as usize * width..][..width]) {
                    *total = combine(*total, x);
                }
            }
            places[(self.out + row) * width..][..width].copy_from_slice(total);
        }
    }
}
