//! Positive definite systems, by a Cholesky factorisation tile by tile.
//!
//! Buttari, Langou, Kurzak and Dongarra, Parallel Computing 35, 38 (2009), in the right-looking form; within a tile the left-looking
//! one of Golub and Van Loan, Matrix Computations, 4.2. A tile is kept as panels of [lanes](super::panels), in which it is
//! computed and multiplied, and once it is a part of L also as one of singles.
//!
//! Complex numbers are `P = 2` planes, one behind the other: a column of them is one of real parts and one of imaginary parts,
//! and a number c that multiplies columns as c* does is the real matrix `((re, -im), (im, re))`. So all is as for `P = 1`, but for
//! the small blocks on the diagonal.

use super::panels::{Block, Format, OnBlocks, height, lanes, lanes_mut, near, on_blocks, product, zeros};
use super::{Deal, each};
use crate::numbers::{Real, vectorized, with_subnormals};
use aligned_vec::AVec;
use num_complex::Complex;
use pulp::Simd;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// The rows of a tile: multiples of those of panels, for all vector instructions. Small tiles leave less to one thread, and
/// large ones have fewer rows that aren't multiplied with others.
const SIDES: [usize; 2] = [96, 192];

/// From so many rows on tiles are large.
const LARGE: usize = 3072;

/// Columns of tiles are factored in groups with so many planes, so that the rest of the matrix, which no cache has room for, is
/// read and written once for each group.
const DEPTH: usize = 576;

/// A block has so many columns at most.
const COLUMNS: usize = 8;

/// Solves `A x = b` in the place of b `(n,)` for a Hermitian matrix A `(n, n)`, of which the elements on and behind the diagonal
/// of each row are read. False, and b has no meaning, where it isn't positive definite in its precision.
///
/// Complex numbers are pairs of their parts. The solution doesn't depend on the threads, to the bit.
///
/// # Panics
///
/// If A and b aren't of these shapes.
pub fn solve_positive<T: Real, D: Deal>(
    matrix: &[T],
    right: &mut [T],
    is_complex: bool,
    deal: &D,
) -> Result<bool, D::Error> {
    if is_complex { solve::<T, D, 2>(matrix, right, deal) } else { solve::<T, D, 1>(matrix, right, deal) }
}

fn solve<T: Real, D: Deal, const P: usize>(matrix: &[T], right: &mut [T], deal: &D) -> Result<bool, D::Error> {
    let side = right.len() / P;
    assert_eq!(matrix.len(), P * side * side);
    let system = System::<P>::new::<T>(side);
    // By columns it is A*, and A* x* = b*.
    let mut columns = system.columns(|row, column, tile| system.read(matrix, row, column, tile), deal)?;
    if !system.factor(&mut columns, deal)? {
        return Ok(false);
    }
    let mut parts = system.parts::<T, P>();
    for (row, number) in right.as_chunks().0.iter().enumerate() {
        system.exchange(&mut parts, row, conjugate::<T, P>(*number));
    }
    system.solve::<T, D, P>(&columns, &mut parts, deal)?;
    for (row, number) in right.as_chunks_mut().0.iter_mut().enumerate() {
        *number = conjugate::<T, P>(system.exchange(&mut parts, row, [T::default(); P]));
    }
    Ok(true)
}

/// The conjugate of a number in planes.
pub(super) fn conjugate<T: Real, const P: usize>(mut number: [T; P]) -> [T; P] {
    number.iter_mut().skip(1).for_each(|part| *part = -*part);
    number
}

/// Of each column of tiles the one on the diagonal and those below it, of which this is the first.
///
/// A tile is `(panels, width, height)`, where the width is that of its columns in planes.
pub(super) struct Column<T> {
    pub(super) diagonal: AVec<T>,
    /// One over the diagonal of L, and zeros for what is no column.
    pub(super) inverse: Vec<T>,
    pub(super) below: Vec<AVec<T>>,
}

/// Columns of L from one on, the last ones of the sources, and the tiles below their diagonals as singles, by their rows.
struct Update<'a, T> {
    sources: &'a [Column<T>],
    right: &'a [Vec<AVec<T>>],
    from: usize,
}

/// The shapes of tiles.
#[derive(Clone, Copy)]
pub(super) struct System<const P: usize> {
    side: usize,
    /// The rows of a tile.
    pub(super) tile: usize,
    pub(super) format: Format,
}

impl<const P: usize> System<P> {
    pub(super) fn new<T: Real>(side: usize) -> Self {
        Self::with_tiles::<T>(side, Self::rows_of_tile(side))
    }

    /// With tiles of so many rows.
    pub(super) fn with_tiles<T: Real>(side: usize, tile: usize) -> Self {
        Self { side, tile, format: Format::of::<T>() }
    }

    /// The rows of a tile, of so many in all.
    pub(super) fn rows_of_tile(side: usize) -> usize {
        SIDES[usize::from(P * side >= LARGE)]
    }

    /// How many tiles there are along a side.
    pub(super) fn tiles(&self) -> usize {
        self.side.div_ceil(self.tile)
    }

    /// The rows of a row of tiles, and the columns of a column of tiles.
    pub(super) fn length(&self, tile: usize) -> usize {
        self.tile.min(self.side - tile * self.tile)
    }

    /// The planes of a column of tiles, in whole blocks.
    pub(super) fn width(&self, tile: usize) -> usize {
        (P * self.length(tile)).next_multiple_of(self.format.outputs)
    }

    /// The numbers of a plane of all panels of a row of tiles.
    pub(super) fn rows_of_panels(&self, tile: usize) -> usize {
        self.length(tile).next_multiple_of(self.format.height)
    }

    /// The columns of a block.
    pub(super) fn columns_of_block(&self) -> usize {
        self.format.outputs / P
    }

    /// Tiles that are written once, by their row and column, and are zero before.
    pub(super) fn columns<T: Real, D: Deal>(
        &self,
        write: impl Fn(usize, usize, &mut [T]) + Sync,
        deal: &D,
    ) -> Result<Vec<Column<T>>, D::Error> {
        let mut columns: Vec<_> = (0..self.tiles())
            .map(|tile| Column {
                diagonal: zeros(0),
                inverse: vec![T::default(); self.width(tile) / P],
                below: (tile + 1..self.tiles()).map(|_| zeros(0)).collect(),
            })
            .collect();
        let all = columns.iter_mut().enumerate().flat_map(|(place, column)| {
            let tiles = std::iter::once(&mut column.diagonal).chain(&mut column.below);
            tiles.zip(place..).map(move |(tile, row)| (tile, row, place))
        });
        each(deal, all, |(tile, row, column): (&mut AVec<T>, _, _)| {
            *tile = zeros(self.rows_of_panels(row) * self.width(column));
            write(row, column, tile);
        })?;
        Ok(columns)
    }

    /// Adds a diagonal matrix.
    pub(super) fn add_diagonal<T: Real>(&self, columns: &mut [Column<T>], numbers: &[T]) {
        for ((place, column), numbers) in columns.iter_mut().enumerate().zip(numbers.chunks(self.tile)) {
            for (row, &number) in numbers.iter().enumerate() {
                let element = &mut column.diagonal[self.place(row, self.width(place)) + P * row * self.format.height];
                *element = *element + number;
            }
        }
    }

    /// Reads the elements of a tile, on the diagonal those of its lower triangle.
    fn read<T: Real>(&self, matrix: &[T], row: usize, column: usize, tile: &mut [T]) {
        let Format { height, .. } = self.format;
        let rows = self.length(row);
        for number in 0..self.length(column) {
            let first = if row == column { number } else { 0 };
            let from = &matrix[P * ((column * self.tile + number) * self.side + row * self.tile)..][..P * rows];
            for (panel, lanes) in tile.chunks_exact_mut(self.width(column) * height).enumerate().skip(first / height) {
                let (start, end) = (first.max(panel * height), rows.min((panel + 1) * height));
                let from = &from[P * start..P * end];
                for (plane, lanes) in lanes[P * number * height..].chunks_exact_mut(height).enumerate().take(P) {
                    let lanes = &mut lanes[start - panel * height..][..end - start];
                    if P == 1 {
                        lanes.copy_from_slice(from);
                    } else {
                        let numbers = lanes.iter_mut().zip(from.as_chunks::<P>().0);
                        numbers.for_each(|(lane, number)| *lane = number[plane]);
                    }
                }
            }
        }
    }

    /// Puts L with `A = L L†` in the place of A. False where there is none.
    pub(super) fn factor<T: Real, D: Deal>(&self, columns: &mut [Column<T>], deal: &D) -> Result<bool, D::Error> {
        let Some(Column { diagonal, inverse, .. }) = columns.first_mut() else { return Ok(true) };
        // As singles: the tile on the diagonal, and those below it of the columns of a group.
        let mut own = zeros(0);
        if !self.factor_diagonal(0, diagonal, inverse, &mut own) {
            return Ok(false);
        }
        let at_once = (DEPTH / self.width(0)).max(1);
        let mut right: Vec<_> = (0..at_once).map(|_| vec![zeros(0); self.tiles()]).collect();
        for start in (0..self.tiles()).step_by(at_once) {
            let end = self.tiles().min(start + at_once);
            let (group, others) = columns.split_at_mut(end);
            for place in start..end {
                let Column { inverse, below, .. } = &mut group[place];
                let (depth, right_of_column) = (self.width(place), &mut right[place - start][place + 1..]);
                let tiles = below.iter_mut().zip(right_of_column).zip(place + 1..);
                each(deal, tiles, |((tile, right), row): ((&mut AVec<T>, &mut AVec<T>), _)| {
                    with_subnormals(|| on_blocks(Triangular::<T, P> { lanes: tile, singles: &own, inverse, depth }));
                    self.write_singles(tile, self.length(row), depth, right);
                })?;
                let (sources, targets) = group.split_at_mut(place + 1);
                let update = Update { sources, right: &right[place - start..], from: place };
                if !self.update(&update, targets, place + 1, &mut own, deal)? {
                    return Ok(false);
                }
            }
            let update = Update { sources: group, right: &right, from: start };
            if !self.update(&update, others, end, &mut own, deal)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Subtracts from the columns from the first one on what some before them contribute, and puts L in the place of its tile
    /// on the diagonal, and as singles. False where there is none.
    fn update<T: Real, D: Deal>(
        &self,
        update: &Update<T>,
        columns: &mut [Column<T>],
        first: usize,
        own: &mut AVec<T>,
        deal: &D,
    ) -> Result<bool, D::Error> {
        let is_positive = AtomicBool::new(true);
        let mut own = Some(own);
        let tiles = columns.iter_mut().zip(first..).flat_map(|(column, place)| {
            let Column { diagonal, inverse, below } = column;
            // What is done next, and nobody waits for.
            let next = own.take().map(|own| (inverse, own));
            let below = below.iter_mut().zip(place + 1..).map(move |(tile, row)| (tile, row, place, None));
            std::iter::once((diagonal, place, place, next)).chain(below)
        });
        each(deal, tiles, |(tile, row, column, next): (&mut AVec<T>, usize, usize, _)| {
            let sources = update.sources.iter().zip(0..).skip(update.from);
            for ((source, place), right) in sources.zip(update.right) {
                let (left, right) = (&source.below[row - place - 1], &right[column]);
                let (width, depth, is_diagonal) = (self.width(column), self.width(place), row == column);
                let subtract = Subtract::<T, P> { lanes: tile, left, right, width, depth, is_diagonal };
                with_subnormals(|| on_blocks(subtract));
            }
            if let Some((inverse, own)) = next
                && !self.factor_diagonal(column, tile, inverse, own)
            {
                is_positive.store(false, Ordering::Relaxed);
            }
        })?;
        Ok(is_positive.into_inner())
    }

    /// L in the place of a tile on the diagonal, zeros above, and as singles. False where there is none.
    pub(super) fn factor_diagonal<T: Real>(
        &self,
        place: usize,
        lanes: &mut [T],
        inverse: &mut [T],
        singles: &mut AVec<T>,
    ) -> bool {
        let (rows, width) = (self.length(place), self.width(place));
        singles.clear();
        singles.resize(inverse.len() * P * width, T::default());
        with_subnormals(|| on_blocks(Diagonal::<T, P> { system: *self, lanes, singles, inverse, rows, width }))
    }

    /// Writes lanes of so many rows and planes of columns as singles, `(blocks of rows, depth, outputs)`.
    fn write_singles<T: Real>(&self, lanes: &[T], rows: usize, depth: usize, singles: &mut AVec<T>) {
        singles.clear();
        singles.resize(rows.div_ceil(self.columns_of_block()) * depth * self.format.outputs, T::default());
        vectorized(
            #[inline(always)]
            || {
                for (block, singles) in singles.chunks_exact_mut(depth * self.format.outputs).enumerate() {
                    self.singles_of_block(lanes, depth, self.rows_of_block(block, rows), 0..depth, singles);
                }
            },
        );
    }

    /// Those of some planes of a block of rows, which are part of one panel.
    #[inline(always)]
    pub(super) fn singles_of_block<T: Real>(
        &self,
        lanes: &[T],
        width: usize,
        rows: Range<usize>,
        planes: Range<usize>,
        singles: &mut [T],
    ) {
        let Format { height, outputs } = self.format;
        let count = rows.len();
        let mut lanes = lanes[self.place(rows.start, width)..].chunks(height).skip(planes.start);
        let mut singles = singles.chunks_exact_mut(outputs);
        if P == 1 {
            for (singles, lanes) in singles.zip(lanes).take(planes.len()) {
                singles[..count].copy_from_slice(&lanes[..count]);
            }
            return;
        }
        for _ in 0..planes.len() / P {
            let [first, second] = [(); 2].map(|()| singles.next().expect("as many"));
            let [re, im] = [(); 2].map(|()| &lanes.next().expect("as many")[..count]);
            let numbers = first.chunks_exact_mut(P).zip(second.chunks_exact_mut(P)).zip(re.iter().zip(im));
            for ((first, second), (&re, &im)) in numbers {
                (first[0], first[1]) = (re, -im);
                (second[0], second[1]) = (im, re);
            }
        }
    }

    /// The rows of a block, of so many.
    pub(super) fn rows_of_block(&self, block: usize, rows: usize) -> Range<usize> {
        block * self.columns_of_block()..rows.min((block + 1) * self.columns_of_block())
    }

    /// Where the numbers of a row begin in lanes of so many planes of columns.
    pub(super) fn place(&self, row: usize, width: usize) -> usize {
        let Format { height, .. } = self.format;
        row / height * width * height + row % height
    }
}

/// Subtracts `left right†` from a tile, of which the part above the diagonal doesn't matter if it is on the diagonal.
struct Subtract<'a, T, const P: usize> {
    lanes: &'a mut [T],
    left: &'a [T],
    /// As singles.
    right: &'a [T],
    /// Of the tile.
    width: usize,
    /// Of the factors.
    depth: usize,
    is_diagonal: bool,
}

impl<T: Real, const P: usize> OnBlocks<T> for Subtract<'_, T, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const V: usize, const M: usize>(self, simd: S) {
        let Self { width, depth, .. } = self;
        let right = self.right.as_chunks::<M>().0;
        let panels = lanes_mut::<T, S, V>(self.lanes).chunks_exact_mut(width);
        for (number, (panel, left)) in panels.zip(lanes::<T, S, V>(self.left).chunks_exact(depth)).enumerate() {
            // One behind the last row of the panel.
            let end = (number + 1) * height::<T, S, V>();
            for part in near::<T, S, V>(depth) {
                let blocks = panel.as_chunks_mut::<M>().0.iter_mut().zip(right.chunks_exact(depth));
                for (block, (out, right)) in blocks.enumerate() {
                    if self.is_diagonal && block * M / P >= end {
                        break;
                    }
                    let sums = product::<T, S, V, M>(simd, &left[part.clone()], &right[part.clone()]);
                    subtract::<T, S, V, M>(simd, out, &sums);
                }
            }
        }
    }
}

/// Subtracts one block from another one.
#[inline(always)]
pub(super) fn subtract<T: Real, S: Simd, const V: usize, const M: usize>(
    simd: S,
    from: &mut Block<T, S, V, M>,
    sums: &Block<T, S, V, M>,
) {
    for (from, sums) in from.iter_mut().zip(sums) {
        for (from, &sum) in from.iter_mut().zip(sums) {
            *from = T::plus(simd, *from, T::negated(simd, sum));
        }
    }
}

/// Puts `X` with `X L† = A` in the place of a tile A, for L on the diagonal.
pub(super) struct Triangular<'a, T, const P: usize> {
    pub(super) lanes: &'a mut [T],
    /// L.
    pub(super) singles: &'a [T],
    pub(super) inverse: &'a [T],
    pub(super) depth: usize,
}

impl<T: Real, const P: usize> OnBlocks<T> for Triangular<'_, T, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const V: usize, const M: usize>(self, simd: S) {
        let singles = self.singles.as_chunks::<M>().0;
        for panel in lanes_mut::<T, S, V>(self.lanes).chunks_exact_mut(self.depth) {
            for (block, singles) in singles.chunks_exact(self.depth).enumerate() {
                let (solved, rest) = panel.split_at_mut(block * M);
                let (before, own) = singles.split_at(block * M);
                let out = rest.first_chunk_mut().expect("a block");
                let sums = product::<T, S, V, M>(simd, solved, before);
                subtract::<T, S, V, M>(simd, out, &sums);
                let inverse = &self.inverse[block * M / P..];
                divide::<T, S, V, M, P>(simd, out, own, inverse);
            }
        }
    }
}

/// As [`Triangular`], for a block.
#[inline(always)]
fn divide<T: Real, S: Simd, const V: usize, const M: usize, const P: usize>(
    simd: S,
    block: &mut Block<T, S, V, M>,
    singles: &[[T; M]],
    inverse: &[T],
) {
    // All of it in registers, which takes loops whose ends the compiler knows.
    let mut found = *block;
    let singles: &[[T; M]; M] = singles.first_chunk().expect("those of a block");
    let inverse = &inverse[..M / P];
    for column in 0..M / P {
        let inverse = T::splat(simd, inverse[column]);
        for solved in P * column..P * (column + 1) {
            for vector in &mut found[solved] {
                *vector = T::times(simd, *vector, inverse);
            }
            for output in P * (column + 1)..M {
                let single = T::splat(simd, -singles[solved][output]);
                let number = found[solved];
                for (out, vector) in found[output].iter_mut().zip(number) {
                    *out = T::times_plus(simd, single, vector, *out);
                }
            }
        }
    }
    *block = found;
}

/// Puts L in the place of a tile on the diagonal, and zeros above it. False where there is none.
struct Diagonal<'a, T, const P: usize> {
    system: System<P>,
    lanes: &'a mut [T],
    /// Those of L, which are zeros before.
    singles: &'a mut [T],
    inverse: &'a mut [T],
    rows: usize,
    width: usize,
}

impl<T: Real, const P: usize> OnBlocks<T> for Diagonal<'_, T, P> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd, const V: usize, const M: usize>(self, simd: S) -> bool {
        let Self { system, lanes, singles, inverse, rows, width } = self;
        let height = height::<T, S, V>();
        let blocks = singles.chunks_exact_mut(width * M).zip(inverse.chunks_mut(M / P));
        for (block, (singles, inverse)) in blocks.enumerate() {
            let (row, depth) = (block * M / P, block * M);
            let of_block = system.rows_of_block(block, rows);
            system.singles_of_block(lanes, width, of_block.clone(), 0..depth, singles);
            let first = row / height * width;
            for panel in lanes_mut::<T, S, V>(lanes)[first..].chunks_exact_mut(width) {
                let (solved, rest) = panel.split_at_mut(depth);
                let sums = product::<T, S, V, M>(simd, solved, singles.as_chunks().0);
                subtract::<T, S, V, M>(simd, rest.first_chunk_mut::<M>().expect("a block"), &sums);
            }
            let Some(factor) = system.factor_of_block(lanes, width, of_block.clone(), inverse) else { return false };
            system.put_block(lanes, width, of_block.clone(), &factor);
            system.singles_of_block(lanes, width, of_block.clone(), depth..depth + M, &mut singles[depth * M..]);
            for panel in lanes_mut::<T, S, V>(lanes)[first..].chunks_exact_mut(width) {
                let out = panel[depth..].first_chunk_mut().expect("a block");
                divide::<T, S, V, M, P>(simd, out, &singles.as_chunks().0[depth..], inverse);
            }
            system.put_block(lanes, width, of_block, &factor);
        }
        system.clear_above(lanes, width, rows);
        true
    }
}

/// L of a block on the diagonal, by rows.
type Small = [[Complex<f64>; COLUMNS]; COLUMNS];

impl<const P: usize> System<P> {
    /// L of a block, and one over its diagonal. None if there is none.
    fn factor_of_block<T: Real>(
        &self,
        lanes: &[T],
        width: usize,
        rows: Range<usize>,
        inverse: &mut [T],
    ) -> Option<Small> {
        let mut factor = Small::default();
        for row in 0..rows.len() {
            for column in 0..=row {
                let numbers = &lanes[self.place(rows.start + row, width)..];
                let plane =
                    |plane: usize| -> f64 { numbers[(P * (rows.start + column) + plane) * self.format.height].into() };
                let mut number: Complex<f64> = Complex::new(plane(0), if P == 2 { plane(1) } else { 0.0 });
                for (a, b) in factor[row].iter().zip(&factor[column]).take(column) {
                    number -= a * b.conj();
                }
                factor[row][column] = if column < row {
                    number / factor[column][column].re
                } else if number.re > 0.0 && number.re.is_finite() {
                    number.re.sqrt().into()
                } else {
                    return None;
                };
            }
            inverse[row] = T::nearest(1.0 / factor[row][row].re);
        }
        Some(factor)
    }

    /// Puts L of a block into its place, with zeros above the diagonal.
    fn put_block<T: Real>(&self, lanes: &mut [T], width: usize, rows: Range<usize>, factor: &Small) {
        let Format { height, .. } = self.format;
        for (numbers, row) in factor.iter().zip(rows.clone()) {
            let place = self.place(row, width);
            for (number, column) in numbers.iter().zip(rows.clone()) {
                for (plane, number) in [number.re, number.im].into_iter().enumerate().take(P) {
                    lanes[place + (P * column + plane) * height] = T::nearest(number);
                }
            }
        }
    }

    /// Puts zeros above the diagonal.
    fn clear_above<T: Real>(&self, lanes: &mut [T], width: usize, rows: usize) {
        let Format { height, .. } = self.format;
        for (first, panel) in (0..rows).step_by(height).zip(lanes.chunks_exact_mut(width * height)) {
            for (column, lanes) in panel.chunks_exact_mut(P * height).enumerate().skip(first + 1) {
                let above = height.min(column - first);
                lanes.chunks_exact_mut(height).for_each(|lanes| lanes[..above].fill(T::default()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Order;
    use super::*;
    use crate::numbers::each_level;
    use bytemuck::Pod;
    use proptest::prelude::*;

    /// Real or complex numbers.
    trait Number: Pod + Into<Complex<f64>> {
        type Part: Real;
    }

    impl Number for f64 {
        type Part = f64;
    }

    impl Number for Complex<f64> {
        type Part = f64;
    }

    fn solved<T: Number>(matrix: &[T], right: &[T], order: &Order) -> Option<Vec<T>> {
        let mut solution = right.to_vec();
        let is_complex = size_of::<T>() > size_of::<T::Part>();
        let parts: &mut [T::Part] = bytemuck::cast_slice_mut(&mut solution);
        let Ok(is_positive) = solve_positive(bytemuck::cast_slice(matrix), parts, is_complex, order);
        is_positive.then_some(solution)
    }

    /// A matrix `(n, n)` with this diagonal, and Hermitian numbers of modulus 1 and less elsewhere.
    fn matrix(n: usize, seed: f64, diagonal: f64) -> Vec<Complex<f64>> {
        let number = |i: usize, j: usize| {
            let phase = seed * (i * n + j) as f64;
            Complex::new(phase.sin(), (1.7 * phase).cos())
        };
        let place = |i: usize, j: usize| match i.cmp(&j) {
            std::cmp::Ordering::Less => number(i, j),
            std::cmp::Ordering::Equal => diagonal.into(),
            std::cmp::Ordering::Greater => number(j, i).conj(),
        };
        (0..n * n).map(|k| place(k / n, k % n)).collect()
    }

    fn off<T: Number>(matrix: &[T], x: &[T], right: &[T]) -> f64 {
        let rows = matrix.chunks_exact(x.len()).zip(right);
        let of_row = |(row, &right): (&[T], &T)| {
            let product: Complex<f64> = row.iter().zip(x).map(|(&a, &x)| a.into() * x.into()).sum();
            (product - right.into()).norm()
        };
        rows.map(of_row).fold(0.0, f64::max)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn what_solves_a_system(n in 1_usize..300, seed in 0.1..9.0) {
            let matrix = matrix(n, seed, 2.0 * n as f64);
            let right: Vec<_> = (0..n).map(|i| Complex::new((seed + i as f64).cos(), i as f64 / n as f64)).collect();
            let x = solved(&matrix, &right, &Order::Forward).expect("it is positive definite");
            prop_assert!(off(&matrix, &x, &right) < 1e-13);
            for order in [Order::Backward, Order::AtOnce] {
                prop_assert_eq!(solved(&matrix, &right, &order), Some(x.clone()));
            }
            for _ in each_level() {
                let x = solved(&matrix, &right, &Order::Forward).expect("it is positive definite");
                prop_assert!(off(&matrix, &x, &right) < 1e-13);
            }
            let real: Vec<_> = matrix.iter().map(|number| number.re).collect();
            let right: Vec<_> = right.iter().map(|number| number.re).collect();
            let x = solved(&real, &right, &Order::Backward).expect("it is positive definite");
            prop_assert!(off(&real, &x, &right) < 1e-13);
            // What is before the diagonal isn't read.
            let mut half = matrix;
            for row in 0..n {
                half[row * n..][..row].fill(f64::NAN.into());
            }
            prop_assert!(solved(&half, &vec![Complex::new(1.0, 0.0); n], &Order::Forward).is_some());
        }
    }

    #[test]
    fn what_has_no_solution() {
        for n in [1, 3, SIDES[0] + 2, 2 * SIDES[0]] {
            for number in [-1.0, f64::NAN] {
                for row in [0, n / 2, n - 1] {
                    let mut numbers = matrix(n, 0.3, 2.0 * n as f64);
                    numbers[row * n + n - 1] = number.into();
                    let is_definite = number == -1.0 && row < n - 1;
                    let found = solved(&numbers, &vec![Complex::new(1.0, 0.0); n], &Order::Forward);
                    assert_eq!(found.is_some(), is_definite, "{n} {row} {number}");
                }
            }
        }
        assert_eq!(solved::<f64>(&[], &[], &Order::Forward), Some(Vec::new()));
    }
}
