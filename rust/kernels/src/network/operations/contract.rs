//! Products of activations with weights, summed: dense layers, convolutions, layers that are symmetrised, projections.

use super::Numbers;
use crate::Error;
use crate::network::words::{Words, wrong};
use crate::numbers::{CACHE_LINE, Real};
use aligned_vec::AVec;
use pulp::Simd;
use std::ops::Range;

/// `out[g, p, m] = b[g, m] + Σ_j x[g, p, j] w[g, j, m]`, where the x of a group and a position are runs of places.
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
    /// By group and output.
    bias: Vec<T>,
    pieces: Vec<Piece>,
}

/// A part of the products of an output, which are summed up one after the other.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// The first run, and how many there are.
    first: usize,
    count: usize,
    /// The numbers of each: the first one, and how many.
    from: usize,
    length: usize,
}

/// No more products than so many are summed up one after the other, so that errors stay small.
const LONGEST: usize = 64;

/// The pieces of so many runs of a length.
fn pieces(runs: usize, length: usize) -> Vec<Piece> {
    let runs_per_piece = (LONGEST / length).max(1);
    let of_run = length.div_ceil(LONGEST);
    let longest = length.div_ceil(of_run.max(1)).max(1);
    let mut pieces = Vec::new();
    for first in (0..runs).step_by(runs_per_piece) {
        let count = runs_per_piece.min(runs - first);
        for from in (0..length).step_by(longest) {
            pieces.push(Piece { first, count, from, length: longest.min(length - from) });
        }
    }
    pieces
}

/// So many outputs are summed up at once, in registers; what is left in fewer.
const BLOCKS: [usize; 5] = [16, 8, 4, 2, 1];

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
        let (depth, length) = (words.number()?, words.number()?);
        if depth == 0 || length == 0 {
            return Err(wrong("it sums up nothing"));
        }
        let out = words.run(groups.saturating_mul(positions).saturating_mul(width))?;
        let all = groups.saturating_mul(depth).saturating_mul(width);
        let first = words.numbers(all)?;
        let n_outputs = groups.saturating_mul(width);
        let bias = match words.number()? {
            0 => vec![T::default(); n_outputs],
            _ => words.numbers_at(n_outputs)?.iter().map(|&number| tables[number as usize]).collect(),
        };
        let runs = words.runs(groups.saturating_mul(positions).saturating_mul(depth / length), length)?;
        let mut weights = Vec::with_capacity(all);
        for group in tables[first..first + all].chunks_exact((depth * width).max(1)) {
            for (first, block) in blocks(width) {
                weights.extend(group.chunks_exact(width).flat_map(|row| row[first..first + block].iter().copied()));
            }
        }
        let weights = AVec::from_slice(CACHE_LINE, &weights);
        let pieces = pieces(depth / length, length);
        Ok(Self { positions, width, depth, length, out, runs, weights, bias, pieces })
    }

    /// Where the numbers are that a dense layer makes of numbers one behind the other, and where these are; None if it is
    /// another one.
    pub(crate) fn dense(&self) -> Option<[Range<usize>; 2]> {
        let &Self { positions, width, depth, out, ref runs, .. } = self;
        let &[first] = &runs[..] else { return None };
        (positions == 1 && width * depth == self.weights.len())
            .then(|| [first as usize..first as usize + depth, out..out + width])
    }

    /// The weights of a dense layer, `(depth, width)`, and its bias.
    pub(crate) fn matrix(&self) -> (Vec<T>, &[T]) {
        let mut matrix = vec![T::default(); self.weights.len()];
        for (first, block) in blocks(self.width) {
            let rows = self.weights[first * self.depth..].chunks_exact(block);
            for (row, weights) in matrix.chunks_exact_mut(self.width).zip(rows) {
                row[first..first + block].copy_from_slice(weights);
            }
        }
        (matrix, &self.bias)
    }

    /// How often each product of an output is rounded at most.
    pub(crate) fn roundings(&self) -> usize {
        self.pieces.iter().map(|piece| piece.count * piece.length).max().unwrap_or(0) + self.pieces.len()
    }

    pub(crate) fn work(&self) -> usize {
        self.runs.len() * self.length * self.width
    }

    #[inline(always)]
    pub(super) fn run<S: Simd, const V: usize>(&self, simd: S, places: &mut [Numbers<T, S, V>]) {
        let Self { positions, width, depth, length, out, .. } = *self;
        let n_runs = depth / length;
        let groups = self.weights.chunks_exact((depth * width).max(1)).zip(self.bias.chunks_exact(width.max(1)));
        for (group, (weights, bias)) in groups.enumerate() {
            let runs = &self.runs[group * positions * n_runs..][..positions * n_runs];
            for (first, block) in blocks(width) {
                let weights = &weights[first * depth..][..block * depth];
                let bias = &bias[first..][..block];
                let block_of =
                    Block { contract: self, runs, weights, bias, out: out + group * positions * width + first };
                // As many sums as there are registers for: with fewer than eight, products wait for each other.
                let has_many_registers = S::REGISTER_COUNT >= 32;
                match block {
                    16 if V == 1 && has_many_registers => block_of.run::<S, V, 16, 0, 16>(simd, places),
                    16 if V == 1 || has_many_registers => {
                        block_of.run::<S, V, 16, 0, 8>(simd, places);
                        block_of.run::<S, V, 16, 8, 8>(simd, places);
                    }
                    16 => {
                        block_of.run::<S, V, 16, 0, 4>(simd, places);
                        block_of.run::<S, V, 16, 4, 4>(simd, places);
                        block_of.run::<S, V, 16, 8, 4>(simd, places);
                        block_of.run::<S, V, 16, 12, 4>(simd, places);
                    }
                    8 if V == 1 || has_many_registers => block_of.run::<S, V, 8, 0, 8>(simd, places),
                    8 => {
                        block_of.run::<S, V, 8, 0, 4>(simd, places);
                        block_of.run::<S, V, 8, 4, 4>(simd, places);
                    }
                    4 => block_of.run::<S, V, 4, 0, 4>(simd, places),
                    2 => block_of.run::<S, V, 2, 0, 2>(simd, places),
                    _ => block_of.run::<S, V, 1, 0, 1>(simd, places),
                }
            }
        }
    }
}

/// A block of the outputs of all positions of a group.
struct Block<'c, T> {
    contract: &'c Contract<T>,
    runs: &'c [u32],
    /// By x and output.
    weights: &'c [T],
    bias: &'c [T],
    /// The place of the first output.
    out: usize,
}

impl<T: Real> Block<'_, T> {
    /// `M` outputs from `FIRST` on in a block of `BLOCK`.
    #[inline(always)]
    fn run<S: Simd, const V: usize, const BLOCK: usize, const FIRST: usize, const M: usize>(
        &self,
        simd: S,
        places: &mut [Numbers<T, S, V>],
    ) {
        let &Contract { width, depth, length, ref pieces, .. } = self.contract;
        let bias: &[T; M] = self.bias[FIRST..FIRST + M].try_into().expect("as many");
        for (position, runs) in self.runs.chunks_exact(depth / length).enumerate() {
            let out = self.out + position * width + FIRST;
            for (number, &piece) in pieces.iter().enumerate() {
                let sum = Sum { runs, length, piece, weights: self.weights };
                let sums = sum.of::<S, V, BLOCK, FIRST, M>(simd, places);
                let outs: &mut [Numbers<T, S, V>; M] = (&mut places[out..out + M]).try_into().expect("as many");
                for ((out, sums), &bias) in outs.iter_mut().zip(sums).zip(bias) {
                    for (out, sum) in out.iter_mut().zip(sums) {
                        let before = if number == 0 { T::splat(simd, bias) } else { *out };
                        *out = T::plus(simd, before, sum);
                    }
                }
            }
        }
    }
}

/// A piece of the outputs of one position.
struct Sum<'c, T> {
    runs: &'c [u32],
    length: usize,
    piece: Piece,
    /// By x and output.
    weights: &'c [T],
}

impl<T: Real> Sum<'_, T> {
    /// `M` outputs from `FIRST` on in a block of `BLOCK`.
    #[inline(always)]
    fn of<S: Simd, const V: usize, const BLOCK: usize, const FIRST: usize, const M: usize>(
        &self,
        simd: S,
        places: &[Numbers<T, S, V>],
    ) -> [Numbers<T, S, V>; M] {
        let Piece { first, count, from, length } = self.piece;
        let mut sums = [[T::splat(simd, T::default()); V]; M];
        macro_rules! add {
            ($x:expr, $weights:expr) => {
                for (sums, &weight) in sums.iter_mut().zip(&$weights[FIRST..FIRST + M]) {
                    let weight = T::splat(simd, weight);
                    for (sum, &x) in sums.iter_mut().zip($x) {
                        *sum = T::times_plus(simd, weight, x, *sum);
                    }
                }
            };
        }
        let runs = &self.runs[first..first + count];
        if self.length == 1 {
            let weights = &self.weights.as_chunks::<BLOCK>().0[first..];
            for (&run, weights) in runs.iter().zip(weights) {
                add!(&places[run as usize], weights);
            }
        } else {
            let weights = self.weights.chunks_exact(self.length * BLOCK).skip(first);
            for (&run, weights) in runs.iter().zip(weights) {
                let x = &places[run as usize + from..][..length];
                for (x, weights) in x.iter().zip(weights[from * BLOCK..].as_chunks::<BLOCK>().0) {
                    add!(x, weights);
                }
            }
        }
        sums
    }
}
