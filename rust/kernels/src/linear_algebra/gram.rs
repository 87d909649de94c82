//! Gram matrices of log-derivatives, tile by tile, so that what a tile is the sum of stays in the cache.
//!
//! Complex numbers are pairs of real ones, so that all products are of real matrices: with v̂ = (Im v, -Re v) for v = (Re v, Im v),
//! Re x y* = v·w and Im x y* = v̂·w.

use super::{Deal, each};
use crate::numbers::vectorized;
use faer::linalg::matmul::matmul;
use faer::traits::ComplexField;
use faer::{Accum, MatMut, MatRef, Par};
use std::mem::take;
use std::ops::{AddAssign, Mul, Neg, Range, Sub};
use std::sync::{Mutex, PoisonError};

/// So many numbers of long rows are multiplied at once, so that they stay in the cache.
const AT_ONCE: usize = 512;

/// Numbers of single or double precision.
pub trait Scalar:
    ComplexField + Copy + Default + Send + Sync + Neg<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + AddAssign
{
    /// 1.
    const ONE: Self;
}

impl Scalar for f32 {
    const ONE: Self = 1.0;
}

impl Scalar for f64 {
    const ONE: Self = 1.0;
}

/// An array of the samples that have rows in the matrix, and of those that have columns, sample by sample.
#[derive(Debug, Clone, Copy)]
pub struct Sides<'a, T> {
    /// Of those with rows.
    pub rows: &'a [T],
    /// Of those with columns.
    pub columns: &'a [T],
    /// Whether its numbers are pairs of a real and an imaginary part.
    pub is_complex: bool,
}

/// What a Gram matrix is a sum of.
#[derive(Debug)]
pub enum Term<'a, T> {
    /// Rows `Σ_p x_p ⊗ δ_p` of several parts.
    Factors {
        /// `(samples, parts, positions, I)`.
        x: Sides<'a, T>,
        /// `(samples, components, parts, positions, O)`.
        delta: Sides<'a, T>,
        /// How many parts there are.
        parts: usize,
        /// How many positions each has.
        positions: usize,
    },
    /// Rows that are written down.
    Rows {
        /// `(samples, components, K)`.
        numbers: Sides<'a, T>,
        /// What is subtracted from all of them, `(components, K)`.
        mean: &'a [T],
    },
}

/// The shape of a Gram matrix, and which part of it is computed.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The samples that have rows: those of one of several devices, each of which has as many.
    pub rows: usize,
    /// The samples that have columns: those of all devices, one after the other.
    pub columns: usize,
    /// The rows of each sample.
    pub components: usize,
    /// The device.
    pub device: usize,
    /// The samples of a tile on each side, at most.
    pub side: usize,
    /// Whether the matrix is complex.
    pub is_complex: bool,
}

impl Shape {
    /// How many tiles the samples of a device are cut into.
    fn tiles(&self) -> usize {
        self.rows.div_ceil(self.side)
    }

    fn devices(&self) -> usize {
        self.columns / self.rows.max(1)
    }

    /// The samples of a tile among those of its device.
    fn samples(&self, tile: usize) -> Range<usize> {
        tile * self.side..self.rows.min((tile + 1) * self.side)
    }

    /// How many tiles the samples of all devices are cut into.
    fn all_tiles(&self) -> usize {
        self.tiles() * self.devices()
    }

    /// The samples of a tile among those of all devices.
    fn samples_of_all(&self, tile: usize) -> Range<usize> {
        let Range { start, end } = self.samples(tile % self.tiles());
        let offset = tile / self.tiles() * self.rows;
        offset + start..offset + end
    }

    /// The tiles that a row of tiles has: half of the matrix in all.
    fn computed(&self, row: usize) -> impl Iterator<Item = usize> + use<> {
        let all = self.all_tiles();
        // So that all devices have as many.
        let (first, count) =
            if self.devices() == 1 { (row, all - row) } else { (self.device * self.tiles() + row, all / 2 + 1) };
        (first..first + count).map(move |tile| tile % all)
    }

    /// Real numbers that an element has.
    fn numbers(&self) -> usize {
        1 + usize::from(self.is_complex)
    }
}

/// Writes a matrix `(rows, components, columns, components)`: all of it if one device has all samples. Otherwise those tiles of
/// each row of tiles that are on the diagonal and behind it up to half way round.
///
/// # Panics
///
/// If the arrays aren't of their shapes, or the components aren't one or two.
pub fn gram<T: Scalar, D: Deal>(terms: &[Term<T>], shape: Shape, matrix: &mut [T], deal: &D) -> Result<(), D::Error> {
    if shape.rows * shape.components == 0 {
        return Ok(());
    }
    let all = shape.all_tiles();
    let mut parts = parts(shape, matrix);
    let places = (0..shape.tiles()).flat_map(|row| shape.computed(row).map(move |column| (row, column)));
    let tiles = places.map(|(row, column)| {
        let is_mirrored = shape.devices() == 1 && row != column;
        let mirrored = if is_mirrored { take(&mut parts[column * all + row]) } else { Vec::new() };
        (row, column, take(&mut parts[row * all + column]), mirrored)
    });
    let rooms = Mutex::new(Vec::new());
    let free = || rooms.lock().unwrap_or_else(PoisonError::into_inner);
    each(deal, tiles, |(row, column, mut own, mut mirrored)| {
        let mut room = free().pop().unwrap_or_else(Room::default);
        let tile = Tile { shape, rows: &shape.samples(row), columns: &shape.samples_of_all(column) };
        room.compute(terms, &tile);
        room.write(shape.is_complex, &mut own, &mut mirrored);
        free().push(room);
    })
}

/// The part of each row of a matrix that belongs to a tile, for all tiles in a row, and one row of tiles after the other.
fn parts<T>(shape: Shape, matrix: &mut [T]) -> Vec<Vec<&mut [T]>> {
    let (all, of_sample) = (shape.all_tiles(), shape.components * shape.numbers());
    let mut parts: Vec<_> = (0..shape.tiles() * all).map(|_| Vec::new()).collect();
    for (row, mut rest) in matrix.chunks_exact_mut(shape.columns * of_sample).enumerate() {
        let tile = row / (shape.components * shape.side);
        for (column, parts) in parts[tile * all..][..all].iter_mut().enumerate() {
            parts.push(rest.split_off_mut(..shape.samples_of_all(column).len() * of_sample).expect("as many"));
        }
    }
    parts
}

/// The samples of the rows and of the columns of a tile.
struct Tile<'t> {
    shape: Shape,
    rows: &'t Range<usize>,
    columns: &'t Range<usize>,
}

/// Some of the numbers of each row of an array.
#[derive(Clone, Copy)]
struct Cut<'a, T> {
    sides: Sides<'a, T>,
    /// How many rows a sample has.
    components: usize,
    /// How many numbers a row has, the first of those that are meant for rows and for columns of the matrix, and how many those are.
    of_row: usize,
    firsts: [usize; 2],
    len: usize,
    /// What is subtracted from the rows of each component.
    mean: Option<&'a [T]>,
}

impl<T: Scalar> Cut<'_, T> {
    /// The numbers of some samples, where they are; or a copy of them less the mean.
    fn view<'c>(&self, numbers: &'c [T], first: usize, samples: &Range<usize>, copy: &'c mut Vec<T>) -> MatRef<'c, T> {
        if self.mean.is_some() {
            self.copy(numbers, first, samples, copy);
            return MatRef::from_row_major_slice(copy, copy.len() / self.len, self.len);
        }
        let numbers = &numbers[samples.start * self.components * self.of_row + first..];
        MatRef::from_row_major_slice_with_stride(numbers, samples.len() * self.components, self.len, self.of_row)
    }

    /// The numbers of some samples less the mean, one row behind the other.
    fn copy(&self, numbers: &[T], first: usize, samples: &Range<usize>, to: &mut Vec<T>) {
        to.clear();
        for row in samples.start * self.components..samples.end * self.components {
            let numbers = &numbers[row * self.of_row + first..][..self.len];
            if let Some(mean) = self.mean {
                let mean = &mean[row % self.components * self.of_row + first..][..self.len];
                to.extend(numbers.iter().zip(mean).map(|(&number, &mean)| number - mean));
            } else {
                to.extend_from_slice(numbers);
            }
        }
    }

    /// Products of the rows of a tile with its columns: real parts, and imaginary ones if they are wanted and there are any.
    fn products(&self, tile: &Tile, copies: &mut Copies<T>, accum: Accum, real: &mut [T], imaginary: Option<&mut [T]>) {
        let Self { sides, firsts: [first, other], .. } = *self;
        let right = self.view(sides.columns, other, tile.columns, &mut copies.right);
        let left = self.view(sides.rows, first, tile.rows, &mut copies.left);
        multiply(left, right, accum, real);
        if let Some(imaginary) = imaginary
            && sides.is_complex
        {
            self.copy(sides.rows, first, tile.rows, &mut copies.left);
            for [real, imaginary] in copies.left.as_chunks_mut().0 {
                (*real, *imaginary) = (*imaginary, -*real);
            }
            let left = MatRef::from_row_major_slice(&copies.left, copies.left.len() / self.len, self.len);
            multiply(left, right, accum, imaginary);
        }
    }
}

/// Products of all rows of `left` with all of `right`.
fn multiply<T: Scalar>(left: MatRef<T>, right: MatRef<T>, accum: Accum, out: &mut [T]) {
    let [n, m] = [left.nrows(), right.nrows()];
    let out = MatMut::from_row_major_slice_mut(&mut out[..n * m], n, m);
    matmul(out, accum, left, right.transpose(), T::ONE, Par::Seq);
}

#[derive(Default)]
struct Copies<T> {
    left: Vec<T>,
    right: Vec<T>,
}

/// The memory for a tile.
#[derive(Default)]
struct Room<T> {
    /// Sums over all terms, real and imaginary parts.
    sums: [Vec<T>; 2],
    /// Products of x, and of δ, of one pair of positions.
    of_x: [Vec<T>; 2],
    of_delta: [Vec<T>; 2],
    copies: Copies<T>,
}

impl<T: Scalar> Room<T> {
    fn compute(&mut self, terms: &[Term<T>], tile: &Tile) {
        let Tile { shape, rows, columns } = tile;
        let of_x = rows.len() * columns.len();
        let of_delta = of_x * shape.components.pow(2);
        for (numbers, len) in [(&mut self.sums, of_delta), (&mut self.of_x, of_x), (&mut self.of_delta, of_delta)] {
            for numbers in numbers {
                numbers.resize(len, T::default());
            }
        }
        for sums in &mut self.sums {
            sums.fill(T::default());
        }
        for term in terms {
            match *term {
                // Nothing is summed up then.
                Term::Factors { x, delta, .. } if x.columns.is_empty() || delta.columns.is_empty() => {}
                Term::Factors { x, delta, parts, positions } => {
                    for pair in 0..parts * positions.pow(2) {
                        let (part, pair) = (pair / positions.pow(2), pair % positions.pow(2));
                        let places = [pair / positions, pair % positions].map(|position| part * positions + position);
                        self.add_factors([x, delta], places, parts * positions, tile);
                    }
                }
                Term::Rows { numbers, mean } => self.add_rows(numbers, mean, tile),
            }
        }
    }

    /// Adds products of x times those of δ, of a pair of places, of which each row has so many.
    fn add_factors(&mut self, [x, delta]: [Sides<T>; 2], places: [usize; 2], count: usize, tile: &Tile) {
        let Tile { shape, columns, .. } = tile;
        let are_complex = x.is_complex && delta.is_complex;
        let both = [(x, 1, &mut self.of_x), (delta, shape.components, &mut self.of_delta)];
        for (sides, components, [real, imaginary]) in both {
            let of_row = sides.columns.len() / (shape.columns * components);
            let len = of_row / count;
            let firsts = places.map(|place| place * len);
            let cut = Cut { sides, components, of_row, firsts, len, mean: None };
            let imaginary = (shape.is_complex || are_complex).then_some(&mut imaginary[..]);
            cut.products(tile, &mut self.copies, Accum::Replace, real, imaginary);
        }
        let Self { sums: [real, imaginary], of_x, of_delta, .. } = self;
        let shape = [columns.len(), shape.components];
        add(real, &of_x[0], &of_delta[0], T::ONE, shape);
        if are_complex {
            add(real, &of_x[1], &of_delta[1], -T::ONE, shape);
        }
        if tile.shape.is_complex && x.is_complex {
            add(imaginary, &of_x[1], &of_delta[0], T::ONE, shape);
        }
        if tile.shape.is_complex && delta.is_complex {
            add(imaginary, &of_x[0], &of_delta[1], T::ONE, shape);
        }
    }

    fn add_rows(&mut self, sides: Sides<T>, mean: &[T], tile: &Tile) {
        let components = tile.shape.components;
        let of_row = mean.len() / components;
        for first in (0..of_row).step_by(AT_ONCE) {
            let len = AT_ONCE.min(of_row - first);
            let cut = Cut { sides, components, of_row, firsts: [first; 2], len, mean: Some(mean) };
            let [real, imaginary] = &mut self.sums;
            let imaginary = tile.shape.is_complex.then_some(&mut imaginary[..]);
            cut.products(tile, &mut self.copies, Accum::Add, real, imaginary);
        }
    }

    /// Writes the sums into the rows of a tile, and into those of the one that mirrors it, if there are any.
    fn write(&self, is_complex: bool, own: &mut [&mut [T]], mirrored: &mut [&mut [T]]) {
        let [real, imaginary] = &self.sums;
        vectorized(
            #[inline(always)]
            || {
                if is_complex {
                    write(own, mirrored, real.len(), |place| [real[place], imaginary[place]], |[re, im]| [re, -im]);
                } else {
                    write(own, mirrored, real.len(), |place| [real[place]], |number| number);
                }
            },
        );
    }
}

/// Writes elements of so many numbers, and what mirrors each.
#[inline(always)]
fn write<T, const NUMBERS: usize>(
    own: &mut [&mut [T]],
    mirrored: &mut [&mut [T]],
    len: usize,
    element: impl Fn(usize) -> [T; NUMBERS],
    mirror: impl Fn([T; NUMBERS]) -> [T; NUMBERS],
) {
    /// Of so many rows at once, so that what is read is a line of the cache.
    const BLOCK: usize = 8;
    let (height, width) = (own.len(), len / own.len());
    for (row, own) in own.iter_mut().enumerate() {
        for (own, place) in own.as_chunks_mut().0.iter_mut().zip(row * width..) {
            *own = element(place);
        }
    }
    for (block, mirrored) in mirrored.chunks_mut(BLOCK).enumerate() {
        for row in 0..height {
            for (mirrored, place) in mirrored.iter_mut().zip(row * width + block * BLOCK..) {
                mirrored.as_chunks_mut().0[row] = mirror(element(place));
            }
        }
    }
}

/// Adds `sign x δ` of each pair of samples and of their components, of which there are `C`.
#[inline(always)]
fn add_products<T: Scalar, const C: usize>(sums: &mut [T], x: &[T], delta: &[T], sign: T, columns: usize) {
    let rows = sums.as_chunks_mut::<C>().0.chunks_exact_mut(columns);
    for (row, (sums, delta)) in rows.zip(delta.as_chunks::<C>().0.chunks_exact(columns)).enumerate() {
        let x = &x[row / C * columns..][..columns];
        for ((sums, delta), &x) in sums.iter_mut().zip(delta).zip(x) {
            for (sum, &delta) in sums.iter_mut().zip(delta) {
                *sum += sign * x * delta;
            }
        }
    }
}

fn add<T: Scalar>(sums: &mut [T], x: &[T], delta: &[T], sign: T, [columns, components]: [usize; 2]) {
    vectorized(
        #[inline(always)]
        || match components {
            1 => add_products::<T, 1>(sums, x, delta, sign, columns),
            2 => add_products::<T, 2>(sums, x, delta, sign, columns),
            _ => panic!("a sample has one row or two"),
        },
    );
}

#[cfg(test)]
mod tests {
    use super::super::tests::Order;
    use super::*;
    use num_complex::Complex;
    use proptest::prelude::*;

    /// Numbers, in pairs if they are complex.
    fn numbers(seed: usize, count: usize, is_complex: bool) -> Vec<f64> {
        (0..count * (1 + usize::from(is_complex))).map(|i| ((seed + 1) as f64 * 0.7 + i as f64 * 1.3).sin()).collect()
    }

    fn complex(numbers: &[f64], is_complex: bool) -> Vec<Complex<f64>> {
        if is_complex {
            numbers.as_chunks().0.iter().map(|&[re, im]| Complex::new(re, im)).collect()
        } else {
            numbers.iter().map(|&number| number.into()).collect()
        }
    }

    /// The rows `(samples, components, K)` that factors stand for.
    fn written(
        x: &[Complex<f64>],
        delta: &[Complex<f64>],
        [samples, components, parts, positions]: [usize; 4],
    ) -> Vec<Complex<f64>> {
        let [inputs, outputs] =
            [x.len() / (samples * parts * positions), delta.len() / (samples * components * parts * positions)];
        let mut rows = Vec::new();
        for row in 0..samples * components {
            for part in 0..parts {
                for i in 0..inputs {
                    for o in 0..outputs {
                        let product = |position| {
                            let place = part * positions + position;
                            x[(row / components * parts * positions + place) * inputs + i]
                                * delta[(row * parts * positions + place) * outputs + o]
                        };
                        rows.push((0..positions).map(product).sum());
                    }
                }
            }
        }
        rows
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn products_of_rows(
            samples in 1_usize..90, devices in 1_usize..4, components in 1_usize..3, parts in 1_usize..3, positions in 1_usize..3,
            side in 12_usize..100, sizes in [0_usize..4, 0_usize..4, 0_usize..600], are_complex: [bool; 3], is_complex: bool, seed in 0_usize..99,
        ) {
            let is_complex = is_complex && components == 1;
            let all = samples * devices;
            let places = parts * positions;
            let x = numbers(seed, all * places * sizes[0], are_complex[0]);
            let delta = numbers(seed + 1, all * components * places * sizes[1], are_complex[1]);
            let rows = numbers(seed + 2, all * components * sizes[2], are_complex[2]);
            let mean = numbers(seed + 3, components * sizes[2], are_complex[2]);
            let own = written(
                &complex(&x, are_complex[0]), &complex(&delta, are_complex[1]), [all, components, parts, positions],
            );
            let centred: Vec<_> = complex(&rows, are_complex[2]).iter().zip(complex(&mean, are_complex[2]).iter().cycle()).map(|(a, b)| a - b).collect();
            let expected = |row: usize, column: usize| -> Complex<f64> {
                let product = |rows: &[Complex<f64>]| -> Complex<f64> {
                    let len = rows.len() / (all * components);
                    let [a, b] = [row, column].map(|row| &rows[row * len..][..len]);
                    a.iter().zip(b).map(|(a, b)| a * b.conj()).sum()
                };
                product(&own) + product(&centred)
            };
            for device in 0..devices {
                let shape = Shape { rows: samples, columns: all, components, device, side, is_complex };
                let sides = |numbers: &[f64], is_complex: bool| -> Sides<f64> {
                    let len = numbers.len() / devices;
                    // They live as long as the test does.
                    let numbers: &'static [f64] = numbers.to_vec().leak();
                    Sides { rows: &numbers[device * len..][..len], columns: numbers, is_complex }
                };
                let terms = [
                    Term::Factors { x: sides(&x, are_complex[0]), delta: sides(&delta, are_complex[1]), parts, positions },
                    Term::Rows { numbers: sides(&rows, are_complex[2]), mean: &mean },
                ];
                let height = samples * components;
                let mut matrix = vec![f64::NAN; height * shape.columns * components * shape.numbers()];
                let Ok(()) = gram(&terms, shape, &mut matrix, &Order::Backward);
                let found = complex(&matrix, is_complex);
                for row in 0..height {
                    let tile = row / components / side;
                    let is_computed = |column: usize| {
                        devices == 1
                            || shape.computed(tile).any(|tile| shape.samples_of_all(tile).contains(&(column / components)))
                    };
                    for column in (0..all * components).filter(|&column| is_computed(column)) {
                        let expected = expected(device * height + row, column);
                        let found = found[row * all * components + column];
                        prop_assert!((found.re - expected.re).abs() < 1e-9, "{row} {column} {found} {expected}");
                        prop_assert!(!is_complex || (found.im - expected.im).abs() < 1e-9, "{row} {column} {found} {expected}");
                    }
                }
            }
        }
    }
}
