//! Sums over the terms of a Gram matrix, a tile at a time, and within it block by block, in registers.

use super::Deal;
use super::panels::{Block, OnBlocks, height, on_blocks};
use super::terms::{Piece, Place, Shape, Summand};
use crate::numbers::Real;
use pulp::Simd;
use std::ops::Range;

/// Where a tile is written.
pub(super) trait Target<T: Real> {
    /// The tile of samples that are singles, those with rows, and that of those that are lanes; see
    /// [`Shape::is_transposed`].
    fn place(&self) -> [usize; 2];

    /// Whether of a tile on the diagonal the rows of a sample with others before it are computed: its `C` rows aren't mirrored
    /// one by one.
    fn is_whole(&self) -> bool;

    /// What has been summed up before.
    fn read<S: Simd, const V: usize, const M: usize, const C: usize, const W: usize>(
        &self,
        region: &Region,
        sums: &mut Sums<T, S, V, M, C, W>,
    );

    /// Writes the sums, and if they are the last ones also what mirrors them.
    fn write<S: Simd, const V: usize, const M: usize, const C: usize, const W: usize>(
        &mut self,
        region: &Region,
        sums: &Sums<T, S, V, M, C, W>,
        is_last: bool,
    );
}

/// What belongs to a tile, block by block, and one panel of columns after the other.
struct Room<T: Real, S: Simd, const V: usize, const M: usize, const C: usize, const W: usize> {
    /// Of each row of a sample `W` planes: those of the rows of the other one, or of complex numbers.
    sums: [[Vec<Block<T, S, V, M>>; W]; C],
    /// Products of x, and of δ, of one pair of positions, x of nested parts up to one: real parts and imaginary ones.
    of_x: [Vec<Block<T, S, V, M>>; 2],
    of_delta: [Vec<Block<T, S, V, M>>; 2],
}

impl<T: Real, S: Simd, const V: usize, const M: usize, const C: usize, const W: usize> Room<T, S, V, M, C, W> {
    /// For so many blocks in each of so many panels.
    #[inline(always)]
    fn new(simd: S, blocks: usize, panels: usize) -> Self {
        // Outside of the closures, which aren't inlined.
        let zero = [[T::splat(simd, T::default()); V]; M];
        let zeros = |blocks| vec![zero; blocks];
        Self {
            sums: [(); C].map(|()| [(); W].map(|()| zeros(blocks * panels))),
            of_x: [zeros(blocks), zeros(blocks)],
            of_delta: [zeros(blocks), zeros(blocks)],
        }
    }

    /// Adds all that a term adds to some blocks of a panel.
    #[inline(always)]
    fn add(&mut self, simd: S, range: Range<usize>, summand: &Summand<T>, place: Place) {
        let blocks = range.len();
        match summand {
            Summand::Rows(rows) => {
                for (set, sums) in self.sums.iter_mut().enumerate() {
                    for other in 0..C {
                        rows.add_products::<S, V, M>(
                            simd,
                            &rows.singles,
                            place,
                            [set, other],
                            &mut sums[other][range.clone()],
                        );
                        if W > C
                            && let Some(turned) = &rows.turned
                        {
                            rows.add_products::<S, V, M>(
                                simd,
                                turned,
                                place,
                                [set, other],
                                &mut sums[W - 1][range.clone()],
                            );
                        }
                    }
                }
            }
            Summand::Factors { x, delta, parts, positions, is_nested } => {
                let places = parts * positions;
                for pair in 0..places * positions {
                    let (of_row, column) = (pair / positions, pair % positions);
                    let of_column = of_row / positions * positions + column;
                    let sets = [of_row, of_column];
                    x.put_products::<S, V, M>(simd, place, sets, blocks, *is_nested && pair > 0, &mut self.of_x);
                    for component in 0..C {
                        for other in 0..C {
                            let sets = [component * places + of_row, other * places + of_column];
                            delta.put_products::<S, V, M>(simd, place, sets, blocks, false, &mut self.of_delta);
                            let imaginary = [x.turned.is_some(), delta.turned.is_some()];
                            self.combine(simd, range.clone(), [component, other], imaginary);
                        }
                    }
                }
            }
        }
    }

    /// Adds the products of x times those of δ.
    #[inline(always)]
    fn combine(&mut self, simd: S, range: Range<usize>, [component, other]: [usize; 2], [of_x, of_delta]: [bool; 2]) {
        let (sums, blocks) = (&mut self.sums[component], range.len());
        let x = [&self.of_x[0][..blocks], &self.of_x[1][..blocks]];
        let delta = [&self.of_delta[0][..blocks], &self.of_delta[1][..blocks]];
        add_products::<T, S, V, M>(simd, &mut sums[other][range.clone()], x[0], delta[0], T::ONE);
        if of_x && of_delta {
            add_products::<T, S, V, M>(simd, &mut sums[other][range.clone()], x[1], delta[1], -T::ONE);
        }
        if W > C && of_x {
            add_products::<T, S, V, M>(simd, &mut sums[W - 1][range.clone()], x[1], delta[0], T::ONE);
        }
        if W > C && of_delta {
            add_products::<T, S, V, M>(simd, &mut sums[W - 1][range], x[0], delta[1], T::ONE);
        }
    }
}

/// Adds `sign x δ` of each pair of samples.
#[inline(always)]
fn add_products<T: Real, S: Simd, const V: usize, const M: usize>(
    simd: S,
    sums: &mut [Block<T, S, V, M>],
    x: &[Block<T, S, V, M>],
    delta: &[Block<T, S, V, M>],
    sign: T,
) {
    let sign = T::splat(simd, sign);
    let numbers = x.as_flattened().as_flattened().iter().zip(delta.as_flattened().as_flattened());
    for (sum, (&x, &delta)) in sums.as_flattened_mut().as_flattened_mut().iter_mut().zip(numbers) {
        *sum = T::times_plus(simd, T::times(simd, sign, x), delta, *sum);
    }
}

/// Terms that are summed up together.
pub(super) struct Stage<T> {
    sums: Vec<Summand<T>>,
    shape: Shape,
    /// Whether others have been summed up before, or will be.
    is_first: bool,
    is_last: bool,
}

impl<T: Real> Stage<T> {
    /// One of some stages.
    pub(super) fn new<D: Deal>(
        stages: &[Vec<Piece<T>>],
        number: usize,
        shape: Shape,
        deal: &D,
    ) -> Result<Self, D::Error> {
        let mut sums = Vec::new();
        for piece in &stages[number] {
            sums.push(piece.packed(shape, deal)?);
        }
        Ok(Self { sums, shape, is_first: number == 0, is_last: number + 1 == stages.len() })
    }

    /// Computes a tile.
    pub(super) fn compute(&self, tile: impl Target<T>) {
        on_blocks(Computed { stage: self, tile });
    }
}

struct Computed<'s, T, O> {
    stage: &'s Stage<T>,
    tile: O,
}

impl<T: Real, O: Target<T>> OnBlocks<T> for Computed<'_, T, O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const V: usize, const M: usize>(self, simd: S) {
        match (self.stage.shape.components, self.stage.shape.is_complex) {
            (1, false) => self.blocks::<S, V, M, 1, 1>(simd),
            (1, true) => self.blocks::<S, V, M, 1, 2>(simd),
            _ => self.blocks::<S, V, M, 2, 2>(simd),
        }
    }
}

impl<T: Real, O: Target<T>> Computed<'_, T, O> {
    /// All blocks on the diagonal and behind it, for `C` rows of each sample and elements of `W` numbers with a sample.
    #[inline(always)]
    fn blocks<S: Simd, const V: usize, const M: usize, const C: usize, const W: usize>(mut self, simd: S) {
        let Stage { sums: summands, shape, is_first, is_last } = self.stage;
        let [row, column] = self.tile.place();
        let ([rows, columns], is_diagonal) = shape.region(row, column);
        let blocks = rows.div_ceil(M);
        let panels = columns.div_ceil(height::<T, S, V>());
        let region = Region { rows, columns, blocks, is_diagonal };
        let mut room = Room::<T, S, V, M, C, W>::new(simd, blocks, panels);
        if !is_first {
            self.tile.read(&region, &mut room.sums);
        }
        for panel in 0..panels {
            let place = Place { side: shape.side, row, column, panel };
            // Below the diagonal are those that mirror others.
            let end =
                if is_diagonal && !self.tile.is_whole() { rows.min((panel + 1) * height::<T, S, V>()) } else { rows };
            for summand in summands {
                room.add(simd, panel * blocks..panel * blocks + end.div_ceil(M), summand, place);
            }
        }
        self.tile.write(&region, &room.sums, *is_last);
    }
}

/// The samples of a tile.
pub(super) struct Region {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// How many blocks a panel has.
    pub(super) blocks: usize,
    pub(super) is_diagonal: bool,
}

/// The sums of a tile, for each row of a sample in `W` planes, block by block and panel by panel.
pub(super) type Sums<T, S, const V: usize, const M: usize, const C: usize, const W: usize> =
    [[Vec<Block<T, S, V, M>>; W]; C];

impl Region {
    /// The places of panels and their columns.
    #[inline(always)]
    pub(super) fn panels<T: Real, S: Simd, const V: usize>(
        &self,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + use<T, S, V> {
        let (columns, blocks, height) = (self.columns, self.blocks, height::<T, S, V>());
        (0..columns.div_ceil(height))
            .map(move |panel| (panel * blocks, panel * height..columns.min((panel + 1) * height)))
    }
}
