//! Products of activations with weights, summed: dense layers, convolutions, layers that are symmetrised, projections.

use super::Numbers;
use crate::Error;
use crate::network::words::Words;
use crate::numbers::{CACHE_LINE, Real};
use aligned_vec::AVec;
use pulp::Simd;

/// `out[g, p, m] = Σ_j x[g, p, j] w[g, j, m]`, where the x of a group and a position are runs of places.
#[derive(Debug)]
pub(crate) struct Contract<T> {
    positions: usize,
    width: usize,
    depth: usize,
    /// How long a run is.
    length: usize,
    out: usize,
    /// By group and position: where its runs begin.
    runs: Vec<u32>,
    /// By group, and by block of outputs: the weights of each x with these.
    weights: AVec<T>,
}

/// So many outputs are summed up at once, in registers; what is left in fewer.
const BLOCKS: [usize; 4] = [8, 4, 2, 1];

/// The outputs in blocks: the first one of each, and how many.
#[inline(always)]
fn blocks(width: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let block = BLOCKS.into_iter().find(|&block| first + block <= width)?;
        first += block;
        Some((first - block, block))
    })
}

impl<T: Real> Contract<T> {
    pub(super) fn read(words: &mut Words, tables: &[T]) -> Result<Self, Error> {
        let (groups, positions, width) = (words.number()?, words.number()?, words.number()?);
        let (depth, length) = (words.number()?, words.number()?.max(1));
        let out = words.run(groups.saturating_mul(positions).saturating_mul(width))?;
        let all = groups.saturating_mul(depth).saturating_mul(width);
        let first = words.numbers(all)?;
        let runs = words.runs(groups.saturating_mul(positions).saturating_mul(depth / length), length)?;
        let mut weights = Vec::with_capacity(all);
        for group in tables[first..first + all].chunks_exact((depth * width).max(1)) {
            for (first, block) in blocks(width) {
                weights.extend(group.chunks_exact(width).flat_map(|row| row[first..first + block].iter().copied()));
            }
        }
        let weights = AVec::from_slice(CACHE_LINE, &weights);
        Ok(Self { positions, width, depth, length, out, runs, weights })
    }

    pub(super) fn work(&self) -> usize {
        self.runs.len() * self.length * self.width
    }

    #[inline(always)]
    pub(super) fn run<S: Simd, const V: usize>(&self, simd: S, places: &mut [Numbers<T, S, V>]) {
        let Self { positions, width, depth, length, out, .. } = *self;
        let n_runs = depth / length;
        let mut out = out;
        let groups = self.weights.chunks_exact((depth * width).max(1));
        for (weights, runs) in groups.zip(self.runs.chunks_exact((positions * n_runs).max(1))) {
            for runs in runs.chunks_exact(n_runs.max(1)) {
                for (first, block) in blocks(width) {
                    let weights = &weights[first * depth..][..block * depth];
                    let out = out + first;
                    match block {
                        // Where there are 16 registers, eight outputs have no room.
                        8 if V > 1 && S::REGISTER_COUNT < 32 => {
                            sums::<T, S, V, 8, 0, 4>(simd, places, runs, length, weights, out);
                            sums::<T, S, V, 8, 4, 4>(simd, places, runs, length, weights, out + 4);
                        }
                        8 => sums::<T, S, V, 8, 0, 8>(simd, places, runs, length, weights, out),
                        4 => sums::<T, S, V, 4, 0, 4>(simd, places, runs, length, weights, out),
                        2 => sums::<T, S, V, 2, 0, 2>(simd, places, runs, length, weights, out),
                        _ => sums::<T, S, V, 1, 0, 1>(simd, places, runs, length, weights, out),
                    }
                }
                out += width;
            }
        }
    }
}

/// `M` outputs of one position, from `FIRST` on in a block of `BLOCK`.
#[inline(always)]
fn sums<T: Real, S: Simd, const V: usize, const BLOCK: usize, const FIRST: usize, const M: usize>(
    simd: S,
    places: &mut [Numbers<T, S, V>],
    runs: &[u32],
    length: usize,
    weights: &[T],
    out: usize,
) {
    let mut sums = [[T::splat(simd, T::default()); V]; M];
    for (&run, weights) in runs.iter().zip(weights.chunks_exact(length * BLOCK)) {
        let x = &places[run as usize..][..length];
        for (x, weights) in x.iter().zip(weights.as_chunks::<BLOCK>().0) {
            for (sums, &weight) in sums.iter_mut().zip(&weights[FIRST..FIRST + M]) {
                let weight = T::splat(simd, weight);
                for (sum, &x) in sums.iter_mut().zip(x) {
                    *sum = T::times_plus(simd, weight, x, *sum);
                }
            }
        }
    }
    places[out..][..M].copy_from_slice(&sums);
}
