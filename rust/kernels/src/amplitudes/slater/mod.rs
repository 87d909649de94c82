//! Slater determinants of fermions on modes, and sums of them.
//!
//! `ψ(n) = Σ_d Π_s det M_ds[R_s]`, where `R_s` are the occupied modes of sector s, in order, and `M_ds` the orbitals of
//! determinant d there, one column for each fermion: `NetKet`'s `Slater2nd` and `MultiSlater2nd`.
//!
//! With A = M\[R\] and W = M A⁻¹, to move the fermions of some rows j of A to modes r multiplies its determinant by the minor
//! det W\[r, j\]: one number of W for a hop. Only the rows of W of empty modes are kept, since those of occupied ones are
//! unit vectors. A hop changes W by a pivot ([`state::State::go`]), with a product for each of its numbers.

use crate::Error;
use crate::amplitudes::fermions::moves::Moves;
use crate::amplitudes::fermions::{Fermions, Orbital, SignedLog};
use crate::error::check;
use crate::numbers::{Real, complex};
use crate::sites::LocalIndex;
use pulp::{NullaryFnOnce, Simd};
use solver::Solver;
use state::State;
use std::ops::Range;

mod derivatives;
mod solver;
mod state;

pub use derivatives::LogDerivatives;

/// The orbitals of determinants.
#[derive(Debug, Clone, Copy)]
pub struct SlaterTables<'a, T> {
    /// For each plane and determinant those of all sectors, one behind the other, `(modes, fermions)` each.
    pub orbitals: &'a [T],
    /// How many determinants there are.
    pub determinants: usize,
    /// How many fermions each sector has. All sectors have as many modes.
    pub fermions: &'a [usize],
    /// From this site on, holes take the place of fermions: a mode counts as occupied where its local index is 0.
    pub holes: usize,
}

/// Determinants whose tables were checked.
#[derive(Debug, Clone)]
pub struct Slater<E> {
    /// `(determinants, those of all sectors)`.
    orbitals: Vec<E>,
    determinants: usize,
    sectors: Vec<Sector>,
    /// How many modes each sector has.
    modes: usize,
    /// See [`SlaterTables::holes`].
    holes: usize,
}

/// Where a sector's numbers are.
#[derive(Debug, Clone)]
struct Sector {
    /// Its modes among all.
    modes: Range<usize>,
    /// Its fermions among all.
    fermions: Range<usize>,
    /// Its empty modes among all.
    empty: Range<usize>,
    /// Its orbitals among those of a determinant.
    orbitals: Range<usize>,
    /// Its W among those of a determinant.
    w: Range<usize>,
    /// Whether the orbitals of the last modes, as many as there are fermions, are a diagonal matrix without zeros in all
    /// determinants: those of holes beside pairs are.
    has_diagonal: bool,
}

impl<E: Orbital> Slater<E> {
    /// Checks the tables, of `P` planes: real orbitals, or real and imaginary parts. There is a mode for each site.
    pub fn new<T: Real, const P: usize>(tables: SlaterTables<T>, sites: usize) -> Result<Self, Error> {
        let SlaterTables { orbitals, determinants, fermions, holes } = tables;
        check(!fermions.is_empty() && sites.is_multiple_of(fermions.len()), || {
            format!("there are {} sectors, but must be as many modes in each of {sites}", fermions.len())
        })?;
        check(determinants > 0, || "there is no determinant".into())?;
        let modes = sites / fermions.len();
        if let Some(&many) = fermions.iter().find(|&&many| many > modes) {
            return Err(Error::Tables(format!("there are {many} fermions on {modes} modes")));
        }
        let mut sectors: Vec<Sector> = Vec::with_capacity(fermions.len());
        for &here in fermions {
            let next = |of: &dyn Fn(&Sector) -> &Range<usize>, len: usize| {
                let start = sectors.last().map_or(0, |sector| of(sector).end);
                start..start + len
            };
            sectors.push(Sector {
                modes: next(&|sector| &sector.modes, modes),
                fermions: next(&|sector| &sector.fermions, here),
                empty: next(&|sector| &sector.empty, modes - here),
                orbitals: next(&|sector| &sector.orbitals, modes * here),
                w: next(&|sector| &sector.w, (modes - here) * here),
                has_diagonal: false,
            });
        }
        let len = determinants * sectors.last().map_or(0, |sector| sector.orbitals.end);
        check(orbitals.len() == P * len, || {
            format!("`orbitals` has {} numbers, but must have {P} for each of {len}", orbitals.len())
        })?;
        let number = |place: usize| complex::<P>(std::array::from_fn(|plane| orbitals[plane * len + place].into()));
        let orbitals = (0..len).map(|place| E::of(number(place))).collect();
        let mut slater = Self { orbitals, determinants, sectors, modes, holes };
        for place in 0..slater.sectors.len() {
            let sector = &slater.sectors[place];
            let has_diagonal = (0..determinants).all(|index| slater.has_diagonal(index, sector));
            slater.sectors[place].has_diagonal = has_diagonal;
        }
        Ok(slater)
    }

    /// See [`Sector::has_diagonal`].
    fn has_diagonal(&self, determinant: usize, sector: &Sector) -> bool {
        let n = sector.fermions.len();
        let last = &self.orbitals(determinant, sector)[sector.empty.len() * n..];
        n > 0 && (0..n * n).all(|place| (last[place].modulus() != 0.0) == place.is_multiple_of(n + 1))
    }

    /// How many orbitals a determinant has in all sectors.
    #[must_use]
    pub fn orbitals_len(&self) -> usize {
        self.sectors.last().map_or(0, |sector| sector.orbitals.end)
    }

    /// An error if there is another number of determinants.
    pub fn expect_determinants(&self, expected: usize) -> Result<(), Error> {
        check(self.determinants == expected, || {
            format!("there are configurations of {expected} determinants, but there are {}", self.determinants)
        })
    }

    /// Names another number of occupied modes: of fermions, or by how many there are more of one kind than of the other.
    #[cold]
    fn error(&self, number: usize, sector: &Sector, found: usize) -> Error {
        let expected = sector.fermions.len();
        if !sector.modes.contains(&self.holes) {
            return Error::Fermions { sector: number, found, expected };
        }
        let holes = sector.modes.end - self.holes;
        Error::UnpairedFermions { excess: found as i64 - holes as i64, expected: expected as i64 - holes as i64 }
    }

    /// Whether each mode of a sector is occupied.
    #[inline(always)]
    fn occupations<'i>(
        &self,
        sector: &Sector,
        indices: &'i [LocalIndex],
    ) -> impl Iterator<Item = bool> + Clone + use<'i, E> {
        let holes = self.holes;
        sector
            .modes
            .clone()
            .zip(&indices[sector.modes.clone()])
            .map(move |(site, &index)| (index != 0) != (site >= holes))
    }

    /// The orbitals of a determinant in a sector, `(modes, fermions)`.
    fn orbitals(&self, determinant: usize, sector: &Sector) -> &[E] {
        &self.orbitals[determinant * self.orbitals_len()..][sector.orbitals.clone()]
    }

    /// How many numbers W of a determinant has.
    #[inline(always)]
    fn w_len(&self) -> usize {
        self.sectors.last().map_or(0, |sector| sector.w.end)
    }

    /// Where W of a determinant in a sector is among all.
    #[inline(always)]
    fn w(&self, determinant: usize, sector: &Sector) -> Range<usize> {
        let first = determinant * self.w_len();
        first + sector.w.start..first + sector.w.end
    }
}

/// What [`Fermions::set`] does, as a function of its own.
struct Set<'s, E: Orbital> {
    slater: &'s Slater<E>,
    solver: &'s mut Solver<E>,
    state: &'s mut State<E>,
    indices: &'s [LocalIndex],
}

impl<E: Orbital> NullaryFnOnce for Set<'_, E> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.state.set(self.slater, self.solver, self.indices);
    }
}

impl<E: Orbital> Fermions for Slater<E> {
    type Number = E;
    type State = State<E>;
    type Memory = Solver<E>;

    const READS_MANY: bool = false;

    fn memory(&self) -> Solver<E> {
        Solver::of(self)
    }

    #[inline(always)]
    fn modes(&self) -> usize {
        self.modes
    }

    #[inline(always)]
    fn summands(&self) -> usize {
        self.determinants
    }

    fn numbers(&self) -> usize {
        self.determinants * self.w_len() * size_of::<E>() / size_of::<f64>()
    }

    #[inline(always)]
    fn is_occupied(&self, site: usize, index: LocalIndex) -> bool {
        (index != 0) != (site >= self.holes)
    }

    fn check(&self, indices: &[LocalIndex]) -> Result<(), Error> {
        for (number, sector) in self.sectors.iter().enumerate() {
            let found = self.occupations(sector, indices).filter(|&is_occupied| is_occupied).count();
            if found != sector.fermions.len() {
                return Err(self.error(number, sector, found));
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn set<S: Simd>(&self, simd: S, solver: &mut Solver<E>, state: &mut State<E>, indices: &[LocalIndex]) {
        simd.vectorize(Set { slater: self, solver, state, indices });
    }

    #[inline(always)]
    fn is_zero(&self, state: &State<E>) -> bool {
        state.is_zero()
    }

    #[inline(always)]
    fn ratio(&self, state: &State<E>, moves: &Moves) -> E {
        state.ratio(self, moves)
    }

    #[inline(always)]
    fn is_even(&self, state: &State<E>, moves: &Moves) -> bool {
        state.is_even(self, moves)
    }

    #[inline(always)]
    fn summand(&self, state: &State<E>, index: usize, moves: &Moves) -> E {
        state.summand(self, index, moves)
    }

    fn there(&self, state: &State<E>, index: usize, moves: &Moves) -> SignedLog<E> {
        state.there(self, index, moves)
    }

    #[inline(always)]
    fn go<S: Simd>(&self, _: S, solver: &mut Solver<E>, state: &mut State<E>, moves: &Moves, summands: &[E]) {
        state.go(self, solver, moves, summands);
    }
}
