//! Products with those rows of a matrix that each configuration chooses: the orbitals of occupied modes that a network gives.
//!
//! The outputs of a row are the lanes of the vectors here, and configurations that choose the same row share its weights: what no
//! configuration chooses isn't computed.

use super::Numbers;
use super::index::choice;
use crate::Error;
use crate::network::words::{Words, wrong};
use crate::numbers::{CACHE_LINE, Real, lanes};
use aligned_vec::AVec;
use pulp::Simd;

/// `out[r, c] = bias[i, c] + Σ_j x[j] weights[i, j, c]` with the choice i = index[r]. Without x it is a row of parameters.
#[derive(Debug)]
pub(crate) struct Rows<T> {
    choices: usize,
    depth: usize,
    columns: usize,
    /// How many numbers a row of the tables has: a multiple of those of the longest vector.
    padded: usize,
    /// Whether a row whose choice there isn't consists of NaN. Else it takes the nearest one.
    has_limits: bool,
    out: usize,
    /// Where the number of each row's choice is.
    index: Vec<u32>,
    /// Where x is.
    x: Vec<u32>,
    /// `(choices, depth, padded)`.
    weights: AVec<T>,
    /// `(choices, padded)`.
    bias: AVec<T>,
}

/// So many configurations that choose a row are multiplied with it at once, and so many vectors of its outputs.
const AT_ONCE: usize = 4;
const VECTORS: usize = 2;

impl<T: Real> Rows<T> {
    pub(super) fn read(words: &mut Words, tables: &[T]) -> Result<Self, Error> {
        let (rows, choices, depth) = (words.number()?, words.number()?, words.number()?);
        let (columns, has_limits) = (words.number()?, words.number()? > 0);
        if choices == 0 || columns == 0 {
            return Err(wrong("there is nothing to choose from"));
        }
        let out = words.run(rows.saturating_mul(columns))?;
        let (index, x) = (words.runs(rows, 1)?, words.runs(depth, 1)?);
        let all = choices.saturating_mul(depth).saturating_mul(columns);
        let first = words.numbers(all)?;
        let padded = columns.next_multiple_of(CACHE_LINE / size_of::<T>());
        let mut weights = AVec::new(CACHE_LINE);
        for row in tables[first..first + all].chunks_exact(columns) {
            weights.extend_from_slice(row);
            weights.resize(weights.len() + padded - columns, T::default());
        }
        let mut bias = AVec::new(CACHE_LINE);
        bias.resize(choices * padded, T::default());
        for _ in 0..words.number()? {
            let numbers = words.numbers_at(choices * columns)?;
            for (row, numbers) in bias.chunks_exact_mut(padded).zip(numbers.chunks_exact(columns)) {
                for (sum, &number) in row.iter_mut().zip(numbers) {
                    *sum = *sum + tables[number as usize];
                }
            }
        }
        Ok(Self { choices, depth, columns, padded, has_limits, out, index, x, weights, bias })
    }

    pub(super) fn work(&self) -> usize {
        self.index.len() * self.depth * self.padded
    }

    /// How many vectors of memory it takes.
    pub(super) fn vectors(&self) -> usize {
        // Two vectors of configurations at most, and the outputs of some of these.
        2 * self.depth + AT_ONCE * VECTORS
    }

    /// With memory for [`Rows::vectors`].
    #[inline(always)]
    pub(super) fn run<S: Simd, const V: usize>(
        &self,
        simd: S,
        places: &mut [Numbers<T, S, V>],
        memory: &mut [T::Vector<S>],
    ) {
        let &Self { depth, columns, out, .. } = self;
        let width = V * lanes::<T, S>();
        let numbers: &mut [T] = bytemuck::cast_slice_mut(places.as_flattened_mut());
        // The numbers of a configuration are one behind the other.
        let (x, of_outputs) = memory[..V * depth + AT_ONCE * VECTORS].split_at_mut(V * depth);
        let x: &mut [T] = bytemuck::cast_slice_mut(x);
        for (j, &place) in self.x.iter().enumerate() {
            for (lane, &number) in numbers[place as usize * width..][..width].iter().enumerate() {
                x[lane * depth + j] = number;
            }
        }
        // Who chooses each row, one behind the other: counted, and then put there.
        let mut starts = vec![0; self.choices + 1];
        let mut chosen = vec![usize::MAX; self.index.len() * width];
        for (row, &index) in self.index.iter().enumerate() {
            for lane in 0..width {
                let wanted: f64 = numbers[index as usize * width + lane].into();
                if let Some(choice) = choice(wanted, self.choices, self.has_limits) {
                    chosen[row * width + lane] = choice;
                    starts[choice + 1] += 1;
                } else {
                    for column in 0..columns {
                        numbers[(out + row * columns + column) * width + lane] = T::nearest(f64::NAN);
                    }
                }
            }
        }
        for choice in 0..self.choices {
            starts[choice + 1] += starts[choice];
        }
        let (mut next, mut who) = (starts.clone(), vec![0; starts[self.choices]]);
        for (place, &choice) in chosen.iter().enumerate() {
            if choice < usize::MAX {
                who[next[choice]] = place;
                next[choice] += 1;
            }
        }
        for choice in 0..self.choices {
            let mut who = &who[starts[choice]..starts[choice + 1]];
            while !who.is_empty() {
                let (now, later) = who.split_at(who.len().min(AT_ONCE));
                match now.len() {
                    1 => self.outputs::<S, V, 1>(simd, choice, now, x, of_outputs, numbers),
                    2 => self.outputs::<S, V, 2>(simd, choice, now, x, of_outputs, numbers),
                    3 => self.outputs::<S, V, 3>(simd, choice, now, x, of_outputs, numbers),
                    _ => self.outputs::<S, V, AT_ONCE>(simd, choice, now, x, of_outputs, numbers),
                }
                who = later;
            }
        }
    }

    /// Writes the outputs of `R` rows of configurations that have made this choice.
    #[inline(always)]
    fn outputs<S: Simd, const V: usize, const R: usize>(
        &self,
        simd: S,
        choice: usize,
        who: &[usize],
        x: &[T],
        memory: &mut [T::Vector<S>],
        numbers: &mut [T],
    ) {
        let &Self { depth, columns, padded, out, .. } = self;
        let (of_vector, width) = (lanes::<T, S>(), V * lanes::<T, S>());
        let vectors = padded / of_vector;
        let weights: &[T::Vector<S>] = bytemuck::cast_slice(&self.weights[choice * depth * padded..][..depth * padded]);
        let bias: &[T::Vector<S>] = bytemuck::cast_slice(&self.bias[choice * padded..][..padded]);
        let mut of_rows = [&x[..0]; R];
        for (of_row, &place) in of_rows.iter_mut().zip(who) {
            *of_row = &x[place % width * depth..][..depth];
        }
        let mut first = 0;
        while first < vectors {
            let count = if first + VECTORS <= vectors { VECTORS } else { 1 };
            // There are none without x.
            let weights = weights.get(first..).unwrap_or_default();
            if count == VECTORS {
                sums::<T, S, R, VECTORS>(simd, weights, vectors, &of_rows, &bias[first..], memory);
            } else {
                sums::<T, S, R, 1>(simd, weights, vectors, &of_rows, &bias[first..], memory);
            }
            let sums: &[T] = bytemuck::cast_slice(memory);
            let end = columns.min((first + count) * of_vector);
            for (&place, sums) in who.iter().zip(sums.chunks_exact(count * of_vector)) {
                let (row, lane) = (place / width, place % width);
                for (column, &sum) in (first * of_vector..end).zip(sums) {
                    numbers[(out + row * columns + column) * width + lane] = sum;
                }
            }
            first += count;
        }
    }
}

/// The sums of `R` rows, `C` vectors of each: `x[r, j]` times weights that are so many `vectors` apart, added to a bias.
#[inline(always)]
fn sums<T: Real, S: Simd, const R: usize, const C: usize>(
    simd: S,
    weights: &[T::Vector<S>],
    vectors: usize,
    x: &[&[T]; R],
    bias: &[T::Vector<S>],
    out: &mut [T::Vector<S>],
) {
    let mut sums = [[T::splat(simd, T::default()); C]; R];
    for of_row in &mut sums {
        of_row.copy_from_slice(&bias[..C]);
    }
    for (j, weights) in weights.chunks(vectors).enumerate() {
        let weights: &[T::Vector<S>; C] = weights[..C].try_into().expect("as many");
        for (of_row, x) in sums.iter_mut().zip(x) {
            let x = T::splat(simd, x[j]);
            for (sum, &weight) in of_row.iter_mut().zip(weights) {
                *sum = T::times_plus(simd, weight, x, *sum);
            }
        }
    }
    for (out, sums) in out.chunks_exact_mut(C).zip(&sums) {
        out.copy_from_slice(sums);
    }
}
