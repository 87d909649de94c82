//! What Gram matrices are sums of, and copies of it in panels.
//!
//! Complex numbers are pairs of real ones, so that all products are of real matrices: with v̂ = (Im v, -Re v) for v = (Re v, Im v),
//! Re x y* = v·w and Im x y* = v̂·w.

use super::panels::{Block, Format, height, lanes, near, product, zeros};
use super::{Deal, each};
use crate::numbers::Real;
use aligned_vec::AVec;
use pulp::Simd;
use std::ops::Range;

/// So many numbers of each sample are multiplied at once, so that copies of them take little memory; an even number.
const AT_ONCE: usize = 1024;

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
        /// Whether a part has the x of all parts before it, too. There is one position then.
        is_nested: bool,
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
    /// Whether the samples that have rows are those with lanes, and what is computed are columns.
    pub is_transposed: bool,
}

impl Shape {
    /// How many tiles the samples of a device are cut into.
    pub(super) fn tiles(&self) -> usize {
        self.rows.div_ceil(self.side)
    }

    pub(super) fn devices(&self) -> usize {
        self.columns / self.rows.max(1)
    }

    /// The samples of a tile among those of its device.
    pub(super) fn samples(&self, tile: usize) -> Range<usize> {
        tile * self.side..self.rows.min((tile + 1) * self.side)
    }

    /// How many tiles the samples of all devices are cut into.
    pub(super) fn all_tiles(&self) -> usize {
        self.tiles() * self.devices()
    }

    /// The samples of a tile among those of all devices.
    pub(super) fn samples_of_all(&self, tile: usize) -> Range<usize> {
        let Range { start, end } = self.samples(tile % self.tiles());
        let offset = tile / self.tiles() * self.rows;
        offset + start..offset + end
    }

    /// The tiles that a row of tiles has: half of the matrix in all.
    pub(super) fn computed(&self, row: usize) -> impl Iterator<Item = usize> + use<> {
        let all = self.all_tiles();
        // So that all devices have as many.
        let (first, count) =
            if self.devices() == 1 { (row, all - row) } else { (self.device * self.tiles() + row, all / 2 + 1) };
        (first..first + count).map(move |tile| tile % all)
    }

    /// The samples of a tile of singles and of one of lanes, and whether they are the same ones.
    pub(super) fn region(&self, row: usize, column: usize) -> ([usize; 2], bool) {
        let own = self.device * self.tiles();
        if self.is_transposed {
            ([self.samples_of_all(row).len(), self.samples(column).len()], own + column == row)
        } else {
            ([self.samples(row).len(), self.samples_of_all(column).len()], own + row == column)
        }
    }

    /// Real numbers that an element has.
    pub(super) fn numbers(&self) -> usize {
        1 + usize::from(self.is_complex)
    }
}

/// Some of the numbers of each row of an array.
#[derive(Clone, Copy)]
pub(super) struct Cut<'a, T> {
    sides: Sides<'a, T>,
    /// How many rows a sample has, and how many places each of them.
    components: usize,
    places: usize,
    /// How many numbers a place has, the first of those that are meant, and how many these are.
    of_place: usize,
    first: usize,
    len: usize,
    /// What is subtracted from the rows of each component.
    mean: Option<&'a [T]>,
}

/// What is summed up at once: all of a term, or a part of its rows.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a, T> {
    Factors { x: Cut<'a, T>, delta: Cut<'a, T>, parts: usize, positions: usize, is_nested: bool },
    Rows(Cut<'a, T>),
}

/// All of some terms, so many numbers of each sample at once that copies of them take little memory.
pub(super) fn stages<'a, T: Real>(terms: &[Term<'a, T>], shape: Shape) -> Vec<Vec<Piece<'a, T>>> {
    let mut pieces = Vec::new();
    for term in terms {
        match *term {
            // Nothing is summed up then.
            Term::Factors { x, delta, .. } if x.columns.is_empty() || delta.columns.is_empty() => {}
            Term::Factors { x, delta, parts, positions, is_nested } => {
                assert!(positions == 1 || !is_nested);
                let places = parts * positions;
                let cut = |sides: Sides<'a, T>, components: usize| {
                    let of_place = sides.columns.len() / (shape.columns * components * places);
                    Cut { sides, components, places, of_place, first: 0, len: of_place, mean: None }
                };
                let (x, delta) = (cut(x, 1), cut(delta, shape.components));
                pieces.push((x.depth() + delta.depth(), Piece::Factors { x, delta, parts, positions, is_nested }));
            }
            Term::Rows { numbers: sides, mean } => {
                let (components, of_place) = (shape.components, mean.len() / shape.components);
                for first in (0..of_place).step_by(AT_ONCE) {
                    let len = AT_ONCE.min(of_place - first);
                    let cut = Cut { sides, components, places: 1, of_place, first, len, mean: Some(mean) };
                    pieces.push((cut.depth(), Piece::Rows(cut)));
                }
            }
        }
    }
    let mut stages = vec![Vec::new()];
    let mut depth = 0;
    for (more, piece) in pieces {
        if depth > 0 && depth + more > AT_ONCE {
            stages.push(Vec::new());
            depth = 0;
        }
        stages.last_mut().expect("there is one").push(piece);
        depth += more;
    }
    stages
}

impl<'a, T: Real> Cut<'a, T> {
    /// The numbers of each sample.
    fn depth(&self) -> usize {
        self.components * self.places * self.len
    }

    fn packed<D: Deal>(&self, shape: Shape, is_turned: bool, deal: &D) -> Result<Packed<T>, D::Error> {
        let Format { height, outputs } = Format::of::<T>();
        let Sides { rows, columns, is_complex } = self.sides;
        let of_device = |tile| shape.samples(tile);
        let of_all = |tile| shape.samples_of_all(tile);
        let of_rows =
            |height, is_turned| self.panels(rows, shape.tiles(), of_device, shape.side, height, is_turned, deal);
        let of_columns =
            |height, is_turned| self.panels(columns, shape.all_tiles(), of_all, shape.side, height, is_turned, deal);
        let is_transposed = shape.is_transposed;
        let lanes = if is_transposed { of_rows(height, false)? } else { of_columns(height, false)? };
        let in_singles =
            |is_turned| if is_transposed { of_columns(outputs, is_turned) } else { of_rows(outputs, is_turned) };
        let singles = in_singles(false)?;
        let turned = if is_turned && is_complex { Some(in_singles(true)?) } else { None };
        Ok(Packed { len: self.len, sets: self.components * self.places, lanes, singles, turned })
    }

    /// Panels of so many rows: `(tiles, components, places, panels, len, rows)`.
    #[allow(clippy::too_many_arguments)]
    fn panels<D: Deal>(
        &self,
        numbers: &[T],
        tiles: usize,
        samples: impl Fn(usize) -> Range<usize> + Sync,
        side: usize,
        rows: usize,
        is_turned: bool,
        deal: &D,
    ) -> Result<AVec<T>, D::Error> {
        let of_set = side.next_multiple_of(rows) * self.len;
        let sets = self.components * self.places;
        let mut panels = zeros(tiles * sets * of_set);
        each(deal, panels.chunks_exact_mut(sets * of_set).enumerate(), |(tile, panels)| {
            for (set, panels) in panels.chunks_exact_mut(of_set).enumerate() {
                for (samples, panel) in in_runs(samples(tile), rows).zip(panels.chunks_exact_mut(rows * self.len)) {
                    for part in in_runs(0..self.len, TURN) {
                        for (place, sample) in samples.clone().enumerate() {
                            let from = (sample * sets + set) * self.of_place + self.first;
                            let numbers = &numbers[from..][part.clone()];
                            let of_set = |mean: &'a [T]| &mean[set * self.of_place + self.first..][part.clone()];
                            let panel = &mut panel[part.start * rows + place..];
                            put(panel, rows, numbers, self.mean.map(of_set), is_turned);
                        }
                    }
                }
            }
        })?;
        Ok(panels)
    }
}

/// So many numbers of some rows are put into a panel before the next ones, so that these stay in the nearest cache; an even
/// number.
const TURN: usize = 64;

/// Runs of so many numbers of a range; the last one may be shorter.
fn in_runs(range: Range<usize>, length: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(length).map(move |first| first..range.end.min(first + length))
}

/// Puts a row into a panel, less the mean if there is one, in each pair (Im, -Re) in the place of (Re, Im) if it is turned.
fn put<T: Real>(panel: &mut [T], rows: usize, numbers: &[T], mean: Option<&[T]>, is_turned: bool) {
    let panel = panel.iter_mut().step_by(rows);
    match mean {
        None if is_turned => {
            let turned = numbers.as_chunks().0.iter().flat_map(|&[re, im]| [im, -re]);
            panel.zip(turned).for_each(|(out, number)| *out = number);
        }
        None => panel.zip(numbers).for_each(|(out, &number)| *out = number),
        Some(mean) if is_turned => {
            let pairs = numbers.as_chunks().0.iter().zip(mean.as_chunks().0);
            let turned = pairs.flat_map(|(&[re, im], &[of_re, of_im])| [im - of_im, of_re - re]);
            panel.zip(turned).for_each(|(out, number)| *out = number);
        }
        Some(mean) => {
            panel.zip(numbers.iter().zip(mean)).for_each(|(out, (&number, &mean))| *out = number - mean);
        }
    }
}

/// Some numbers of all samples, in panels.
pub(super) struct Packed<T> {
    len: usize,
    /// The rows and places of each sample.
    sets: usize,
    /// Of the columns.
    lanes: AVec<T>,
    /// Of the rows, and v̂ if imaginary parts are wanted and there are any.
    pub(super) singles: AVec<T>,
    pub(super) turned: Option<AVec<T>>,
}

impl<T: Real> Packed<T> {
    /// Writes the products of some blocks, or adds them: real parts, and imaginary ones if there are any.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn put_products<S: Simd, const V: usize, const M: usize>(
        &self,
        simd: S,
        place: Place,
        sets: [usize; 2],
        blocks: usize,
        adds: bool,
        [real, imaginary]: &mut [Vec<Block<T, S, V, M>>; 2],
    ) {
        let zero = [[T::splat(simd, T::default()); V]; M];
        if !adds {
            real.fill(zero);
        }
        self.add_products::<S, V, M>(simd, &self.singles, place, sets, &mut real[..blocks]);
        if let Some(turned) = &self.turned {
            if !adds {
                imaginary.fill(zero);
            }
            self.add_products::<S, V, M>(simd, turned, place, sets, &mut imaginary[..blocks]);
        }
    }

    /// Adds the products of all blocks of rows of a set with a panel of the columns of another one.
    #[inline(always)]
    pub(super) fn add_products<S: Simd, const V: usize, const M: usize>(
        &self,
        simd: S,
        singles: &[T],
        place: Place,
        [set, other]: [usize; 2],
        sums: &mut [Block<T, S, V, M>],
    ) {
        let Place { side, row, column, panel } = place;
        let of_panel = ((column * self.sets + other) * side.div_ceil(height::<T, S, V>()) + panel) * self.len;
        let of_rows = (row * self.sets + set) * side.div_ceil(M) * self.len;
        let lanes = &lanes::<T, S, V>(&self.lanes)[of_panel..][..self.len];
        let singles = &singles.as_chunks().0[of_rows..];
        for part in near::<T, S, V>(self.len) {
            let lanes = &lanes[part.clone()];
            for (sums, singles) in sums.iter_mut().zip(singles.chunks_exact(self.len)) {
                plus::<T, S, V, M>(simd, sums, &product(simd, lanes, &singles[part.clone()]));
            }
        }
    }
}

/// Where a panel of columns and the blocks of rows are: in which tiles of so many samples.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) side: usize,
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) panel: usize,
}

/// A term in panels.
pub(super) enum Summand<T> {
    Factors { x: Packed<T>, delta: Packed<T>, parts: usize, positions: usize, is_nested: bool },
    Rows(Packed<T>),
}

impl<T: Real> Piece<'_, T> {
    pub(super) fn packed<D: Deal>(&self, shape: Shape, deal: &D) -> Result<Summand<T>, D::Error> {
        Ok(match *self {
            Piece::Factors { x, delta, parts, positions, is_nested } => {
                let is_turned = shape.is_complex || x.sides.is_complex && delta.sides.is_complex;
                let [x, delta] = [x.packed(shape, is_turned, deal)?, delta.packed(shape, is_turned, deal)?];
                Summand::Factors { x, delta, parts, positions, is_nested }
            }
            Piece::Rows(cut) => Summand::Rows(cut.packed(shape, shape.is_complex, deal)?),
        })
    }
}

#[inline(always)]
fn plus<T: Real, S: Simd, const V: usize, const M: usize>(
    simd: S,
    sums: &mut Block<T, S, V, M>,
    more: &Block<T, S, V, M>,
) {
    for (sums, more) in sums.iter_mut().zip(more) {
        for (sum, &more) in sums.iter_mut().zip(more) {
            *sum = T::plus(simd, *sum, more);
        }
    }
}
