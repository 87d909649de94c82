//! Linear systems of a Gram matrix less its means, which is never written: it is factored where its tiles are summed up.
//!
//! With the projector `P = 1 - Σ_c 1_c 1_c† / N` on what has no mean, the solution of `(P G P + λ) x = P b` has none either, so that
//! `P (G + λ) x = P b`, and `x = u - Σ_c w_c ν_c` for `(G + λ) u = b` and `(G + λ) w_c = 1_c`, where ν makes the means zero. So G needs
//! no pass over all of it, only one more right-hand side for each row that a sample has.

use super::cholesky::{Column, System};
use super::panels::{Format, lanes, lanes_mut};
use super::sums::{Region, Stage, Sums, Target};
use super::terms::{Shape, Term, stages};
use super::{Deal, each};
use crate::numbers::Real;
use num_complex::Complex;
use pulp::Simd;

/// The rows of a linear system.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// How many samples there are.
    pub samples: usize,
    /// The rows of each.
    pub components: usize,
    /// Whether the matrix is complex.
    pub is_complex: bool,
}

/// Solves `(P G P + shift) x = P b` in the place of b `(samples, components)`, where G is the Gram matrix of some terms, and P
/// subtracts the mean of each component over all samples. False, and b has no meaning, where `G + shift` isn't positive definite
/// in its precision.
///
/// # Panics
///
/// If the arrays aren't of their shapes, or the components aren't one or two, or are two of complex numbers.
pub fn solve_gram<T: Real, D: Deal>(
    terms: &[Term<T>],
    rows: Rows,
    shift: T,
    right: &mut [T],
    deal: &D,
) -> Result<bool, D::Error> {
    match (rows.components, rows.is_complex) {
        (1, false) => solve::<T, D, 1, 1, 2>(terms, rows, shift, right, deal),
        (1, true) => solve::<T, D, 2, 1, 4>(terms, rows, shift, right, deal),
        (2, false) => solve::<T, D, 1, 2, 3>(terms, rows, shift, right, deal),
        other => panic!("rows of a sample and whether they are complex: {other:?}"),
    }
}

/// Where the numbers of samples are in the system: in each tile those of the first component, in whole panels, and then those of
/// the second one. What is no sample is a row of a unit matrix.
#[derive(Clone, Copy)]
pub(super) struct Order {
    /// The samples of a tile.
    pub(super) side: usize,
    pub(super) samples: usize,
    pub(super) components: usize,
    pub(super) unit: usize,
}

impl Order {
    /// The rows of a component in a tile.
    pub(super) fn rows(&self, tile: usize) -> usize {
        self.side.min(self.samples - tile * self.side).next_multiple_of(self.unit)
    }

    /// The row of a component of a sample.
    pub(super) fn row(&self, sample: usize, component: usize) -> usize {
        let tile = sample / self.side;
        tile * self.side * self.components + component * self.rows(tile) + sample % self.side
    }

    pub(super) fn tiles(&self) -> usize {
        self.samples.div_ceil(self.side)
    }

    /// All rows.
    pub(super) fn side(&self) -> usize {
        let last = self.tiles() - 1;
        (last * self.side + self.rows(last)) * self.components
    }
}

fn solve<T: Real, D: Deal, const P: usize, const C: usize, const Q: usize>(
    terms: &[Term<T>],
    Rows { samples, is_complex, .. }: Rows,
    shift: T,
    right: &mut [T],
    deal: &D,
) -> Result<bool, D::Error> {
    assert_eq!(right.len(), samples * C * P);
    if samples == 0 {
        return Ok(true);
    }
    let unit = Format::of::<T>().height;
    let side = System::<P>::rows_of_tile(samples * C) / C;
    let order = Order { side, samples, components: C, unit };
    let system = System::<P>::with_tiles::<T>(order.side(), side * C);
    let shape =
        Shape { rows: samples, columns: samples, components: C, device: 0, side, is_complex, is_transposed: false };
    let mut columns = system.columns(|_, _, _: &mut [T]| (), deal)?;
    // Of the samples of each tile, their columns in it.
    let of_tile = |tile| {
        let of_component = move |component| shape.samples(tile).map(move |sample| order.row(sample, component));
        let first = order.row(shape.samples(tile).start, 0);
        (0..C).flat_map(of_component).map(|row| row - first).collect()
    };
    let places: Vec<Vec<usize>> = (0..order.tiles()).map(of_tile).collect();
    let stages = stages(terms, shape);
    for number in 0..stages.len() {
        let stage = Stage::new(&stages, number, shape, deal)?;
        let tiles = columns.iter_mut().enumerate().flat_map(|(column, Column { diagonal, below, .. })| {
            let tiles = std::iter::once(diagonal).chain(below).zip(column..);
            let places = &places[column];
            tiles.map(move |(lanes, tile)| TileOfRows::<T> {
                tile,
                column,
                places,
                lanes,
                width: system.width(column),
                panels: order.rows(tile) / unit,
                is_whole: C > 1,
            })
        });
        each(deal, tiles, |tile| stage.compute(tile))?;
    }
    // Of all numbers of the right-hand side, their component and their row in the system.
    let rows: Vec<_> = (0..samples * C).map(|place| (place, place % C, order.row(place / C, place % C))).collect();
    let mut shifts = vec![T::ONE; order.side()];
    for &(_, _, row) in &rows {
        shifts[row] = shift;
    }
    // By columns it is the conjugate of G + λ.
    system.add_diagonal(&mut columns, &shifts);
    if !system.factor(&mut columns, deal)? {
        return Ok(false);
    }
    let mut parts = system.parts::<T, Q>();
    for &(place, component, row) in &rows {
        let mut numbers = [T::default(); Q];
        for (plane, number) in numbers.iter_mut().enumerate().take(P) {
            *number = if plane == 0 { right[P * place] } else { -right[P * place + plane] };
        }
        numbers[P * (1 + component)] = T::ONE;
        system.exchange(&mut parts, row, numbers);
    }
    system.solve::<T, D, Q>(&columns, &mut parts, deal)?;
    let mut solution = |&(place, component, row): &(usize, usize, usize)| {
        (place, component, system.exchange(&mut parts, row, [T::default(); Q]))
    };
    let solutions: Vec<_> = rows.iter().map(&mut solution).collect();
    put_centred::<T, P, C, Q>(&solutions, right);
    Ok(true)
}

/// Puts the conjugates of x into their places, from the places, the components and the numbers of u and all w.
pub(super) fn put_centred<T: Real, const P: usize, const C: usize, const Q: usize>(
    solutions: &[(usize, usize, [T; Q])],
    out: &mut [T],
) {
    let complex = |numbers: &[T; Q], vector: usize| {
        Complex::new(numbers[P * vector].into(), if P == 2 { numbers[P * vector + 1].into() } else { 0.0 })
    };
    // The sums over each component.
    let mut sums = [[Complex::<f64>::default(); 3]; C];
    for (_, component, numbers) in solutions {
        for (vector, sum) in sums[*component].iter_mut().enumerate().take(C + 1) {
            *sum += complex(numbers, vector);
        }
    }
    let nu = multipliers(&sums);
    for (place, _, numbers) in solutions {
        let shifts = (0..C).map(|component| complex(numbers, 1 + component) * nu[component]);
        let number: Complex<f64> = complex(numbers, 0) - shifts.sum::<Complex<f64>>();
        out[P * place] = T::nearest(number.re);
        if P == 2 {
            out[P * place + 1] = T::nearest(-number.im);
        }
    }
}

/// ν for the sums of u and of `w_c` over each component.
fn multipliers<const C: usize>(sums: &[[Complex<f64>; 3]; C]) -> [Complex<f64>; C] {
    let mut found = [Complex::default(); C];
    match sums.as_slice() {
        [[of_u, of_w, _]] => found[0] = of_u / of_w,
        // By Cramer's rule.
        [first, second] => {
            let determinant = |a: usize, b: usize| first[a] * second[b] - second[a] * first[b];
            found[0] = determinant(0, 2) / determinant(1, 2);
            found[1] = determinant(1, 0) / determinant(1, 2);
        }
        _ => unreachable!("a sample has one row or two"),
    }
    found
}

/// Rows of L of a tile of samples, as panels of lanes, and of them the columns of another tile.
pub(super) struct TileOfRows<'m, T> {
    pub(super) tile: usize,
    pub(super) column: usize,
    /// The columns of the samples of that one, for each component.
    pub(super) places: &'m [usize],
    pub(super) lanes: &'m mut [T],
    /// Of all columns, in planes.
    pub(super) width: usize,
    /// The panels of a component.
    pub(super) panels: usize,
    /// Whether there are several components: those of the second one with all of the first are below the diagonal.
    pub(super) is_whole: bool,
}

impl<T: Real> TileOfRows<'_, T> {
    /// Where the lanes of a column are.
    #[inline(always)]
    fn place<const C: usize, const W: usize>(
        &self,
        panel: usize,
        component: usize,
        plane: usize,
        sample: usize,
    ) -> usize {
        let column = self.places[component * (self.places.len() / C) + sample];
        if W > C {
            panel * self.width + W * column + plane
        } else {
            (plane * self.panels + panel) * self.width + column
        }
    }
}

impl<T: Real> Target<T> for TileOfRows<'_, T> {
    fn place(&self) -> [usize; 2] {
        [self.column, self.tile]
    }

    fn is_whole(&self) -> bool {
        self.is_whole
    }

    #[inline(always)]
    fn read<S: Simd, const V: usize, const M: usize, const C: usize, const W: usize>(
        &self,
        region: &Region,
        sums: &mut Sums<T, S, V, M, C, W>,
    ) {
        let from = lanes::<T, S, V>(self.lanes);
        for (component, sums) in sums.iter_mut().enumerate() {
            for (plane, sums) in sums.iter_mut().enumerate() {
                for (panel, blocks) in sums.chunks_exact_mut(region.blocks).enumerate() {
                    for (sample, sum) in blocks.as_flattened_mut().iter_mut().enumerate().take(region.rows) {
                        *sum = from[self.place::<C, W>(panel, component, plane, sample)];
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
        _is_last: bool,
    ) {
        for (component, sums) in sums.iter().enumerate() {
            for (plane, sums) in sums.iter().enumerate() {
                for (panel, blocks) in sums.chunks_exact(region.blocks).enumerate() {
                    for (sample, sum) in blocks.as_flattened().iter().enumerate().take(region.rows) {
                        let place = self.place::<C, W>(panel, component, plane, sample);
                        lanes_mut::<T, S, V>(self.lanes)[place] = *sum;
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
    use crate::numbers::each_level;
    use proptest::prelude::*;

    fn numbers(seed: usize, count: usize) -> Vec<f64> {
        (0..count).map(|i| ((seed + 1) as f64 * 0.7 + i as f64 * 1.3).sin()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6))]

        /// Beside the Gram matrix that is written, its means subtracted, times the solution.
        #[test]
        fn what_solves_a_system(
            samples in 1_usize..130, kind in 0_usize..3, sizes in [1_usize..5, 1_usize..5, 0_usize..1100], seed in 0_usize..99,
        ) {
            let (components, is_complex) = [(1, false), (1, true), (2, false)][kind];
            let planes = 1 + usize::from(is_complex);
            let x = numbers(seed, samples * sizes[0]);
            let delta = numbers(seed + 1, samples * components * sizes[1] * planes);
            let rows = numbers(seed + 2, samples * components * sizes[2] * planes);
            let mean = numbers(seed + 3, components * sizes[2] * planes);
            let right = numbers(seed + 4, samples * components * planes);
            let sides = |numbers, is_complex| Sides { rows: numbers, columns: numbers, is_complex };
            let terms = [
                Term::Factors { x: sides(&x, false), delta: sides(&delta, is_complex), parts: 1, positions: 1, is_nested: false },
                Term::Rows { numbers: sides(&rows, is_complex), mean: &mean },
            ];
            let height = samples * components;
            let shape = Shape { rows: samples, columns: samples, components, device: 0, side: 48, is_complex, is_transposed: false };
            let mut matrix = vec![0.0; height * height * planes];
            let Ok(()) = super::super::gram(&terms, shape, &mut matrix, &Order::Forward);
            let complex = |numbers: &[f64]| -> Vec<Complex<f64>> {
                numbers.chunks_exact(planes).map(|part| Complex::new(part[0], part.get(1).copied().unwrap_or(0.0))).collect()
            };
            let (matrix, expected) = (complex(&matrix), centred(&complex(&right), components));
            let shift = 3.0;
            for _ in each_level() {
                let mut solution = right.clone();
                let Ok(is_positive) =
                    solve_gram(&terms, Rows { samples, components, is_complex }, shift, &mut solution, &Order::Backward);
                prop_assert!(is_positive);
                let solution = complex(&solution);
                prop_assert!(off(&centred(&solution, components), &solution) < 1e-9);
                let product: Vec<Complex<f64>> = matrix
                    .chunks_exact(height)
                    .map(|row| row.iter().zip(&solution).map(|(a, x)| a * x).sum())
                    .collect();
                let mut found = centred(&product, components);
                found.iter_mut().zip(&solution).for_each(|(found, x)| *found += shift * x);
                prop_assert!(off(&found, &expected) < 1e-8, "{}", off(&found, &expected));
            }
        }
    }

    /// Without the mean of each component.
    fn centred(numbers: &[Complex<f64>], components: usize) -> Vec<Complex<f64>> {
        let mean = |component: usize| {
            let all = numbers.iter().skip(component).step_by(components);
            all.sum::<Complex<f64>>() / (numbers.len() / components) as f64
        };
        numbers.iter().enumerate().map(|(place, number)| number - mean(place % components)).collect()
    }

    fn off(some: &[Complex<f64>], others: &[Complex<f64>]) -> f64 {
        some.iter().zip(others).map(|(a, b)| (a - b).norm()).fold(0.0, f64::max)
    }

    #[test]
    fn what_has_no_solution() {
        let x = [1.0, f64::NAN, 0.5];
        let sides = |numbers| Sides { rows: numbers, columns: numbers, is_complex: false };
        let term = Term::Factors { x: sides(&x), delta: sides(&x), parts: 1, positions: 1, is_nested: false };
        let rows = Rows { samples: 3, components: 1, is_complex: false };
        let mut right = [1.0, 2.0, 3.0];
        assert_eq!(solve_gram(&[term], rows, 1.0, &mut right, &Order::Forward), Ok(false));
        // Without any term it is the shift.
        let mut right = [1.0, 2.0, 3.0];
        assert_eq!(solve_gram(&[], rows, 2.0, &mut right, &Order::Forward), Ok(true));
        assert!(
            right.iter().zip([-0.5, 0.0, 0.5]).all(|(found, expected): (&f64, _)| (found - expected).abs() < 1e-15)
        );
        assert_eq!(solve_gram(&[], rows, -2.0, &mut right, &Order::Forward), Ok(false));
    }
}
