//! Solutions of systems that [`System`] has factored: of some right-hand sides at once.
//!
//! The numbers of a row have Q planes: those of all right-hand sides.

use super::cholesky::{Column, System, subtract};
use super::panels::{Lanes, OnBlocks, height, lanes, lanes_mut, on_blocks, product, zeros};
use super::{Deal, each};
use crate::numbers::{Real, with_subnormals};
use aligned_vec::AVec;
use pulp::Simd;
use std::ops::Range;

impl<const P: usize> System<P> {
    /// Zeros for each row, and some vectors at once: of each row of tiles `(panels, Q, height)`, where Q is the number of planes of
    /// the numbers of a row.
    pub(super) fn parts<T: Real, const Q: usize>(&self) -> Vec<AVec<T>> {
        (0..self.tiles()).map(|tile| zeros(Q * self.rows_of_panels(tile))).collect()
    }

    /// Puts the numbers of a row into vectors, and returns what was there.
    pub(super) fn exchange<T: Real, const Q: usize>(
        &self,
        parts: &mut [AVec<T>],
        row: usize,
        mut numbers: [T; Q],
    ) -> [T; Q] {
        let (part, row) = (&mut parts[row / self.tile], row % self.tile);
        for (plane, number) in numbers.iter_mut().enumerate() {
            std::mem::swap(number, &mut part[self.place(row, Q) + plane * self.format.height]);
        }
        numbers
    }

    /// `(L L†)⁻¹ b`, in the place of b.
    pub(super) fn solve<T: Real, D: Deal, const Q: usize>(
        &self,
        columns: &[Column<T>],
        parts: &mut [AVec<T>],
        deal: &D,
    ) -> Result<(), D::Error> {
        self.solve_forward::<T, D, Q>(columns, parts, deal)?;
        self.solve_backward::<T, D, Q>(columns, parts, deal)
    }

    /// L⁻¹ b, in the place of b.
    fn solve_forward<T: Real, D: Deal, const Q: usize>(
        &self,
        columns: &[Column<T>],
        parts: &mut [AVec<T>],
        deal: &D,
    ) -> Result<(), D::Error> {
        for (place, column) in columns.iter().enumerate() {
            let (part, others) = parts[place..].split_first_mut().expect("as many");
            let width = self.width(place);
            let mut singles = vec![[T::default(); Q]; width];
            let (singles, lanes) = (&mut singles[..], &*column.diagonal);
            let inverse = &column.inverse[..self.length(place)];
            with_subnormals(|| on_blocks(Forward::<T, P, Q> { lanes, inverse, width, part, singles }));
            let singles = &*singles;
            each(deal, others.iter_mut().zip(&column.below), |(part, lanes): (&mut AVec<T>, &AVec<T>)| {
                with_subnormals(|| on_blocks(Applied::<T, Q> { lanes, singles, part }));
            })?;
        }
        Ok(())
    }

    /// L⁻† b, in the place of b.
    fn solve_backward<T: Real, D: Deal, const Q: usize>(
        &self,
        columns: &[Column<T>],
        parts: &mut [AVec<T>],
        deal: &D,
    ) -> Result<(), D::Error> {
        for place in (0..columns.len()).rev() {
            let (part, others) = parts[..=place].split_last_mut().expect("as many");
            let Column { diagonal, inverse, .. } = &columns[place];
            let (lanes, width, inverse) = (&**diagonal, self.width(place), &inverse[..self.length(place)]);
            with_subnormals(|| on_blocks(Backward::<T, P, Q> { lanes, inverse, width, part }));
            let part = &*part;
            each(
                deal,
                others.iter_mut().zip(columns).enumerate(),
                |(row, (other, column)): (_, (&mut AVec<T>, _))| {
                    let (lanes, width) = (&*column.below[place - row - 1], self.width(row));
                    let columns = 0..self.length(row);
                    let sums = with_subnormals(|| on_blocks(Adjoint::<T, P, Q> { lanes, width, part, columns }));
                    for (row, sum) in sums.into_iter().enumerate() {
                        for (plane, sum) in sum.into_iter().enumerate() {
                            let number = &mut other[self.place(row, Q) + plane * self.format.height];
                            *number = *number - sum;
                        }
                    }
                },
            )?;
        }
        Ok(())
    }
}

/// L⁻¹ b for L on the diagonal, in the place of b, and as singles. The numbers of a row have Q planes: those of some vectors.
pub(super) struct Forward<'a, T, const P: usize, const Q: usize> {
    pub(super) lanes: &'a [T],
    pub(super) inverse: &'a [T],
    pub(super) width: usize,
    pub(super) part: &'a mut [T],
    pub(super) singles: &'a mut [[T; Q]],
}

impl<T: Real, const P: usize, const Q: usize> OnBlocks<T> for Forward<'_, T, P, Q> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const V: usize, const M: usize>(self, simd: S) {
        let height = height::<T, S, V>();
        for (row, &inverse) in self.inverse.iter().enumerate() {
            let (panel, lane) = (row / height, row % height);
            let mut numbers = [T::default(); Q];
            for (plane, number) in numbers.iter_mut().enumerate() {
                *number = self.part[(panel * Q + plane) * height + lane] * inverse;
            }
            let singles = &mut self.singles[P * row..][..P];
            singles[0] = numbers;
            if let [_, second] = singles {
                for (turned, number) in second.chunks_exact_mut(P).zip(numbers.chunks_exact(P)) {
                    (turned[0], turned[1]) = (-number[1], number[0]);
                }
            }
            let parts = lanes_mut::<T, S, V>(self.part).as_chunks_mut::<Q>().0[panel..].iter_mut();
            for (part, lanes) in parts.zip(lanes::<T, S, V>(self.lanes)[panel * self.width..].chunks(self.width)) {
                let sums = product::<T, S, V, Q>(simd, &lanes[P * row..][..P], singles);
                subtract::<T, S, V, Q>(simd, part, &sums);
            }
            for (plane, &number) in numbers.iter().enumerate() {
                self.part[(panel * Q + plane) * height + lane] = number;
            }
        }
    }
}

/// Subtracts the product of a tile with the numbers of its columns from a part of vectors.
pub(super) struct Applied<'a, T, const Q: usize> {
    pub(super) lanes: &'a [T],
    pub(super) singles: &'a [[T; Q]],
    pub(super) part: &'a mut [T],
}

impl<T: Real, const Q: usize> OnBlocks<T> for Applied<'_, T, Q> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const V: usize, const M: usize>(self, simd: S) {
        let parts = lanes_mut::<T, S, V>(self.part).as_chunks_mut::<Q>().0;
        for (part, lanes) in parts.iter_mut().zip(lanes::<T, S, V>(self.lanes).chunks_exact(self.singles.len())) {
            let sums = product::<T, S, V, Q>(simd, lanes, self.singles);
            subtract::<T, S, V, Q>(simd, part, &sums);
        }
    }
}

/// L⁻† b for L on the diagonal, in the place of b.
pub(super) struct Backward<'a, T, const P: usize, const Q: usize> {
    pub(super) lanes: &'a [T],
    pub(super) inverse: &'a [T],
    pub(super) width: usize,
    pub(super) part: &'a mut [T],
}

impl<T: Real, const P: usize, const Q: usize> OnBlocks<T> for Backward<'_, T, P, Q> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const V: usize, const M: usize>(self, simd: S) {
        let height = height::<T, S, V>();
        for (row, &inverse) in self.inverse.iter().enumerate().rev() {
            let (panel, lane) = (row / height, row % height);
            // Of the numbers of a column those behind its diagonal have been solved, and none is before it.
            let mut numbers = [T::default(); Q];
            for (plane, number) in numbers.iter_mut().enumerate() {
                std::mem::swap(number, &mut self.part[(panel * Q + plane) * height + lane]);
            }
            let panels = &lanes::<T, S, V>(self.lanes)[panel * self.width..];
            let parts = &lanes::<T, S, V>(self.part).as_chunks::<Q>().0[panel..];
            let sums = adjoint_of_column::<T, S, V, P, Q>(simd, panels, self.width, row, parts);
            for (plane, (number, sum)) in numbers.into_iter().zip(sums).enumerate() {
                self.part[(panel * Q + plane) * height + lane] = (number - sum) * inverse;
            }
        }
    }
}

/// The product of the adjoint of some columns of a tile with a part of vectors.
pub(super) struct Adjoint<'a, T, const P: usize, const Q: usize> {
    pub(super) lanes: &'a [T],
    pub(super) width: usize,
    pub(super) part: &'a [T],
    pub(super) columns: Range<usize>,
}

impl<T: Real, const P: usize, const Q: usize> OnBlocks<T> for Adjoint<'_, T, P, Q> {
    type Output = Vec<[T; Q]>;

    #[inline(always)]
    fn run<S: Simd, const V: usize, const M: usize>(self, simd: S) -> Vec<[T; Q]> {
        let panels = lanes::<T, S, V>(self.lanes);
        let parts = lanes::<T, S, V>(self.part).as_chunks::<Q>().0;
        let mut found = Vec::with_capacity(self.columns.len());
        for column in self.columns {
            found.push(adjoint_of_column::<T, S, V, P, Q>(simd, panels, self.width, column, parts));
        }
        found
    }
}

/// The product of the adjoint of a column of some panels with parts of vectors.
#[inline(always)]
fn adjoint_of_column<T: Real, S: Simd, const V: usize, const P: usize, const Q: usize>(
    simd: S,
    panels: &[Lanes<T, S, V>],
    width: usize,
    column: usize,
    parts: &[[Lanes<T, S, V>; Q]],
) -> [T; Q] {
    // Of each plane of the tile with each of the vectors.
    let mut sums = [[[T::splat(simd, T::default()); V]; Q]; P];
    for (lanes, parts) in panels.chunks_exact(width).zip(parts) {
        for (sums, lanes) in sums.iter_mut().zip(&lanes[P * column..]) {
            for (sums, part) in sums.iter_mut().zip(parts) {
                for ((sum, &lane), &number) in sums.iter_mut().zip(lanes).zip(part) {
                    *sum = T::times_plus(simd, lane, number, *sum);
                }
            }
        }
    }
    let mut totals = [[T::default(); Q]; P];
    for (totals, sums) in totals.iter_mut().zip(&sums) {
        for (total, sums) in totals.iter_mut().zip(sums) {
            let numbers: &[T] = bytemuck::cast_slice(sums);
            *total = numbers.iter().fold(T::default(), |total, &number| total + number);
        }
    }
    let mut numbers = totals[0];
    if let [re, im] = &totals[..] {
        for (first, number) in (0..Q).step_by(P).zip(numbers.chunks_exact_mut(P)) {
            (number[0], number[1]) = (re[first] + im[first + 1], re[first + 1] - im[first]);
        }
    }
    numbers
}
