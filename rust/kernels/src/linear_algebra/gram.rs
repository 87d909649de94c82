//! Gram matrices of log-derivatives that are written: half of their tiles are computed, and the others mirror them.

use super::sums::{Region, Stage, Sums, Target};
use super::terms::{Shape, Term, stages};
use super::{Deal, each};
use crate::numbers::Real;
use pulp::Simd;
use std::mem::take;

/// Writes a matrix `(rows, components, columns, components)`: all of it if one device has all samples. Otherwise those tiles of
/// each row of tiles that are on the diagonal and behind it up to half way round.
///
/// # Panics
///
/// If the arrays aren't of their shapes, or the components aren't one or two.
pub fn gram<T: Real, D: Deal>(terms: &[Term<T>], shape: Shape, matrix: &mut [T], deal: &D) -> Result<(), D::Error> {
    assert!((1..=2).contains(&shape.components), "a sample has one row or two");
    if shape.rows == 0 {
        return Ok(());
    }
    let stages = stages(terms, shape);
    for number in 0..stages.len() {
        let stage = Stage::new(&stages, number, shape, deal)?;
        each(deal, tiles(shape, matrix), |tile| stage.compute(tile))?;
    }
    Ok(())
}

/// A part of a row of tiles that is computed.
struct Tile<'m, T> {
    row: usize,
    column: usize,
    own: Vec<&'m mut [T]>,
    /// The rows of the tile that mirrors it, if that is written with it.
    mirrored: Vec<&'m mut [T]>,
}

fn tiles<T>(shape: Shape, matrix: &mut [T]) -> impl Iterator<Item = Tile<'_, T>> {
    let all = shape.all_tiles();
    let mut parts = parts(shape, matrix);
    let places = (0..shape.tiles()).flat_map(move |row| shape.computed(row).map(move |column| (row, column)));
    places.map(move |(row, column)| {
        let is_mirrored = shape.devices() == 1 && row != column;
        let mirrored = if is_mirrored { take(&mut parts[column * all + row]) } else { Vec::new() };
        Tile { row, column, own: take(&mut parts[row * all + column]), mirrored }
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

impl<T: Real> Target<T> for Tile<'_, T> {
    fn place(&self) -> [usize; 2] {
        [self.row, self.column]
    }

    fn is_whole(&self) -> bool {
        false
    }

    #[inline(always)]
    fn read<S: Simd, const V: usize, const M: usize, const C: usize, const W: usize>(
        &self,
        region: &Region,
        sums: &mut Sums<T, S, V, M, C, W>,
    ) {
        for (component, sums) in sums.iter_mut().enumerate() {
            for row in 0..region.rows {
                for (first, columns) in region.panels::<T, S, V>() {
                    let numbers = self.own[row * C + component][W * columns.start..W * columns.end].as_chunks::<W>().0;
                    for (plane, sums) in sums.iter_mut().enumerate() {
                        let lanes: &mut [T] = bytemuck::cast_slice_mut(&mut sums[first + row / M][row % M]);
                        for (lane, numbers) in lanes.iter_mut().zip(numbers) {
                            *lane = numbers[plane];
                        }
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn write<S: Simd, const V: usize, const M: usize, const C: usize, const W: usize>(
        &mut self,
        region: &Region,
        sums: &Sums<T, S, V, M, C, W>,
        is_last: bool,
    ) {
        for (component, sums) in sums.iter().enumerate() {
            for row in 0..region.rows {
                for (first, columns) in region.panels::<T, S, V>() {
                    // On the diagonal the other ones mirror some.
                    let skipped =
                        if region.is_diagonal { row.saturating_sub(columns.start).min(columns.len()) } else { 0 };
                    let own = &mut self.own[row * C + component][W * (columns.start + skipped)..W * columns.end];
                    for (plane, sums) in sums.iter().enumerate() {
                        let lanes: &[T] = bytemuck::cast_slice(&sums[first + row / M][row % M]);
                        for (own, &lane) in own.as_chunks_mut::<W>().0.iter_mut().zip(&lanes[skipped..]) {
                            own[plane] = lane;
                        }
                    }
                }
            }
        }
        if is_last {
            self.write_mirrored::<S, V, M, C, W>(region, sums);
        }
    }
}

impl<T: Real> Tile<'_, T> {
    /// Writes the conjugates of what isn't on the diagonal where they mirror it, unless there are no rows for that.
    #[inline(always)]
    fn write_mirrored<S: Simd, const V: usize, const M: usize, const C: usize, const W: usize>(
        &mut self,
        region: &Region,
        sums: &Sums<T, S, V, M, C, W>,
    ) {
        let all = if region.is_diagonal { &mut self.own } else { &mut self.mirrored };
        for (first, columns) in region.panels::<T, S, V>() {
            for (lane, column) in columns.enumerate() {
                for (other, mirrored) in all.iter_mut().skip(column * C).take(C).enumerate() {
                    let rows = if region.is_diagonal { region.rows.min(column) } else { region.rows };
                    let mirrored = mirrored[..W * rows].as_chunks_mut::<W>().0;
                    for plane in 0..W {
                        let blocks = if C == W { &sums[plane][other] } else { &sums[0][plane] };
                        let sign = if W > C && plane == 1 { -T::ONE } else { T::ONE };
                        for (mirrored, block) in mirrored.chunks_mut(M).zip(&blocks[first..]) {
                            for (mirrored, lanes) in mirrored.iter_mut().zip(block) {
                                mirrored[plane] = sign * bytemuck::cast_slice::<_, T>(lanes)[lane];
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::terms::Sides;
    use super::super::tests::Order;
    use super::*;
    use crate::numbers::{SimdLevel, each_level};
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
    fn rows_of_factors(
        x: &[Complex<f64>],
        delta: &[Complex<f64>],
        [samples, components, parts, positions]: [usize; 4],
        is_nested: bool,
    ) -> Vec<Complex<f64>> {
        let [inputs, outputs] =
            [x.len() / (samples * parts * positions), delta.len() / (samples * components * parts * positions)];
        let mut rows = Vec::new();
        for row in 0..samples * components {
            for part in 0..parts {
                let of_x = if is_nested { 0..part + 1 } else { part..part + 1 };
                for (of_x, i) in of_x.flat_map(|of_x| (0..inputs).map(move |i| (of_x, i))) {
                    for o in 0..outputs {
                        let product = |position| {
                            x[((row / components * parts + of_x) * positions + position) * inputs + i]
                                * delta[((row * parts + part) * positions + position) * outputs + o]
                        };
                        rows.push((0..positions).map(product).sum());
                    }
                }
            }
        }
        rows
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        #[test]
        fn products_of_rows(
            samples in 1_usize..90, devices in 1_usize..4, components in 1_usize..3, parts in 1_usize..4, positions in 1_usize..3,
            side in 12_usize..100, sizes in [0_usize..4, 0_usize..4, 0_usize..600], are_complex: [bool; 3], is_complex: bool, seed in 0_usize..99,
        ) {
            let is_complex = is_complex && components == 1;
            let is_nested = positions == 1 && seed % 2 == 0;
            let all = samples * devices;
            let places = parts * positions;
            let x = numbers(seed, all * places * sizes[0], are_complex[0]);
            let delta = numbers(seed + 1, all * components * places * sizes[1], are_complex[1]);
            let rows = numbers(seed + 2, all * components * sizes[2], are_complex[2]);
            let mean = numbers(seed + 3, components * sizes[2], are_complex[2]);
            let own = rows_of_factors(
                &complex(&x, are_complex[0]), &complex(&delta, are_complex[1]), [all, components, parts, positions], is_nested,
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
                let shape = Shape { rows: samples, columns: all, components, device, side, is_complex, is_transposed: false };
                let sides = |numbers: &[f64], is_complex: bool| -> Sides<f64> {
                    let len = numbers.len() / devices;
                    // They live as long as the test does.
                    let numbers: &'static [f64] = numbers.to_vec().leak();
                    Sides { rows: &numbers[device * len..][..len], columns: numbers, is_complex }
                };
                let terms = [
                    Term::Factors { x: sides(&x, are_complex[0]), delta: sides(&delta, are_complex[1]), parts, positions, is_nested },
                    Term::Rows { numbers: sides(&rows, are_complex[2]), mean: &mean },
                ];
                let height = samples * components;
                let mut matrix = vec![f64::NAN; height * shape.columns * components * shape.numbers()];
                // One of them, as long as this is there.
                let mut levels = each_level();
                levels.nth(seed % SimdLevel::all().len());
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
