//! Determinants at one configuration.

use super::solver::{Solver, determinant, pivot_at};
use super::{Sector, Slater};
use crate::amplitudes::fermions::accuracy::{LARGEST, MOVES, Pivots, RESIDUAL};
use crate::amplitudes::fermions::moves::{Hop, Move, Moves};
use crate::amplitudes::fermions::{Orbital, SignedLog};
use crate::sites::LocalIndex;
use smallvec::SmallVec;

/// Determinants at a configuration, and what it takes to go on.
#[derive(Debug, Clone)]
pub struct State<E> {
    /// The place of each mode among the occupied modes of its sector, or among its empty ones.
    place: Vec<u32>,
    /// The occupied modes of each sector. Rows of A are in this order; at first they ascend.
    occupied: Vec<u32>,
    /// The empty ones.
    empty: Vec<u32>,
    /// W for each determinant and sector, `(empty, occupied)`.
    w: Vec<E>,
    /// `ψ_d` relative to `psi`.
    shares: Vec<E>,
    /// Whether W of a determinant is used.
    is_regular: Vec<bool>,
    /// ψ, or where it is 0 the largest summand.
    psi: SignedLog<E>,
    /// Whether ψ is 0, or no number.
    is_zero: bool,
    /// The pivots since W was computed, for each determinant and sector.
    pivots: Vec<Pivots>,
    /// A row of W.
    row: Vec<E>,
    /// How many moves it has made.
    moves: usize,
}

impl<E: Orbital> Default for State<E> {
    fn default() -> Self {
        Self {
            place: Vec::new(),
            occupied: Vec::new(),
            empty: Vec::new(),
            w: Vec::new(),
            shares: Vec::new(),
            is_regular: Vec::new(),
            psi: SignedLog::ZERO,
            is_zero: true,
            pivots: Vec::new(),
            row: Vec::new(),
            moves: 0,
        }
    }
}

impl<E: Orbital> State<E> {
    /// Goes to a configuration of local indices, with as many fermions in each sector as orbitals. With another number ψ
    /// is 0.
    #[inline(always)]
    pub(crate) fn set(&mut self, slater: &Slater<E>, solver: &mut Solver<E>, indices: &[LocalIndex]) {
        self.place.clear();
        self.occupied.clear();
        self.empty.clear();
        for sector in &slater.sectors {
            let here = slater.occupations(sector, indices);
            if here.clone().filter(|&is_occupied| is_occupied).count() != sector.fermions.len() {
                self.clear(slater.determinants);
                return;
            }
            // One more mode each than there are, since each is written to both, and counted in one.
            let starts = [self.empty.len(), self.occupied.len()];
            self.empty.resize(starts[0] + sector.empty.len() + 1, 0);
            self.occupied.resize(starts[1] + sector.fermions.len() + 1, 0);
            let (mut empty, mut occupied) = (0, 0);
            for (mode, is_occupied) in here.enumerate() {
                self.empty[starts[0] + empty] = mode as u32;
                self.occupied[starts[1] + occupied] = mode as u32;
                self.place.push(if is_occupied { occupied } else { empty } as u32);
                occupied += usize::from(is_occupied);
                empty += usize::from(!is_occupied);
            }
            self.empty.pop();
            self.occupied.pop();
        }
        self.w.resize(slater.determinants * slater.w_len(), E::default());
        self.solve(slater, solver);
    }

    /// Makes ψ and all summands 0.
    #[cold]
    fn clear(&mut self, summands: usize) {
        (self.psi, self.is_zero) = (SignedLog::ZERO, true);
        self.shares.clear();
        self.shares.resize(summands, E::default());
        self.is_regular.clear();
        self.is_regular.resize(summands, true);
    }

    /// Computes all numbers from the orbitals.
    #[inline(always)]
    pub(crate) fn solve(&mut self, slater: &Slater<E>, solver: &mut Solver<E>) {
        let n = slater.determinants;
        self.is_regular.clear();
        self.pivots.clear();
        self.pivots.resize(n * slater.sectors.len(), Pivots::default());
        let mut psi = SmallVec::<[_; 4]>::new();
        for index in 0..n {
            let mut product = SignedLog::ONE;
            let mut is_regular = true;
            for sector in &slater.sectors {
                let (found, is_exact) = self.solve_sector(slater, solver, index, sector);
                product = product.times(found);
                is_regular &= is_exact;
            }
            psi.push(product);
            self.is_regular.push(is_regular);
        }
        (self.psi, self.is_zero) = SignedLog::scale(&psi);
        self.is_zero |= n == 1 && !self.is_regular[0];
        self.shares.clear();
        self.shares.extend(psi.iter().map(|&of| if n == 1 { E::ONE } else { of.over(self.psi) }));
    }

    /// Computes W of one determinant in a sector, and whether it may be used.
    #[inline(always)]
    fn solve_sector(
        &mut self,
        slater: &Slater<E>,
        solver: &mut Solver<E>,
        index: usize,
        sector: &Sector,
    ) -> (SignedLog<E>, bool) {
        let (orbitals, w) = (slater.orbitals(index, sector), &mut self.w[slater.w(index, sector)]);
        let (occupied, empty) = (&self.occupied[sector.fermions.clone()], &self.empty[sector.empty.clone()]);
        let found = if sector.has_diagonal {
            solver.solve_from_diagonal(orbitals, occupied, empty, w)
        } else {
            let [occupied, empty] = [occupied, empty].map(|modes| modes.iter().map(|&mode| mode as usize));
            solver.solve(orbitals, occupied, empty, w)
        };
        // With one determinant the errors of W are those of ψ.
        let are_small = slater.determinants == 1 || w.iter().all(|number| number.modulus() <= LARGEST);
        (found, found.log.is_finite() && are_small)
    }

    /// Whether ψ is 0, or no number.
    #[inline(always)]
    pub(crate) fn is_zero(&self) -> bool {
        self.is_zero
    }

    /// The ratio of ψ with the fermions moved to that here; no number where ψ is 0 here. The moves keep each sector's
    /// fermions.
    #[inline(always)]
    pub(crate) fn ratio(&self, slater: &Slater<E>, moves: &Moves) -> E {
        if self.is_zero {
            return E::real(f64::NAN);
        }
        let (ratio, is_even) = match moves.hop() {
            Some(hop) if slater.determinants == 1 => self.ratio_of_hop(slater, hop),
            _ => (self.ratio_of_all(slater, moves), self.is_even(slater, moves)),
        };
        if is_even { ratio } else { -ratio }
    }

    /// What most operators ask for, with one determinant: the number of W, and whether there is an even number of fermions
    /// between the modes.
    #[inline(always)]
    fn ratio_of_hop(&self, slater: &Slater<E>, Hop { sector, from, to }: Hop) -> (E, bool) {
        let sector = &slater.sectors[sector];
        let place = &self.place[sector.modes.clone()];
        let (column, row) = (place[from as usize], place[to as usize]);
        let ratio = self.w[sector.w.start + row as usize * sector.fermions.len() + column as usize];
        (ratio, (column + (to - row) + u32::from(from < to)).is_multiple_of(2))
    }

    /// The ratio for any moves, up to the sign of the order of the modes.
    fn ratio_of_all(&self, slater: &Slater<E>, moves: &Moves) -> E {
        (0..slater.determinants).fold(E::default(), |mut sum, index| {
            sum += self.summand(slater, index, moves);
            sum
        })
    }

    /// What one determinant adds to the ratio.
    #[inline(always)]
    pub(crate) fn summand(&self, slater: &Slater<E>, index: usize, moves: &Moves) -> E {
        if self.is_regular[index] {
            self.shares[index] * self.ratio_of(slater, index, moves)
        } else {
            self.there(slater, index, moves).over(self.psi)
        }
    }

    /// The ratio of one determinant: a minor of W for each sector.
    #[inline(always)]
    fn ratio_of(&self, slater: &Slater<E>, index: usize, moves: &Moves) -> E {
        moves.iter().fold(E::ONE, |product, there| {
            let sector = &slater.sectors[there.sector];
            let (n, place) = (sector.fermions.len(), &self.place[sector.modes.clone()]);
            let w = &self.w[slater.w(index, sector)];
            let number = |a: usize, b: usize| {
                w[place[there.filled[a] as usize] as usize * n + place[there.emptied[b] as usize] as usize]
            };
            product
                * match there.filled.len() {
                    0 => E::ONE,
                    1 => number(0, 0),
                    2 => number(0, 0) * number(1, 1) - number(0, 1) * number(1, 0),
                    n => determinant(n, number),
                }
        })
    }

    /// One determinant with the fermions moved, from its orbitals.
    #[cold]
    pub(crate) fn there(&self, slater: &Slater<E>, index: usize, moves: &Moves) -> SignedLog<E> {
        let mut product = SignedLog::ONE;
        for (number, sector) in slater.sectors.iter().enumerate() {
            let mut occupied = self.occupied[sector.fermions.clone()].to_vec();
            for there in moves.iter().filter(|there| there.sector == number) {
                let place = &self.place[sector.modes.clone()];
                for (&from, &to) in there.emptied.iter().zip(&there.filled) {
                    occupied[place[from as usize] as usize] = to;
                }
            }
            let mut solver = Solver::new(occupied.len(), 0);
            let modes = occupied.iter().map(|&mode| mode as usize);
            product = product.times(solver.solve(slater.orbitals(index, sector), modes, std::iter::empty(), &mut []));
        }
        product
    }

    /// Whether moving the fermions takes an even permutation of the occupied modes, which have to be in order, as those
    /// that are emptied and filled are.
    pub(crate) fn is_even(&self, slater: &Slater<E>, moves: &Moves) -> bool {
        let mut swaps = 0;
        for there in moves.iter() {
            let place = &self.place[slater.sectors[there.sector].modes.clone()];
            // So many fermions below the emptied modes, and below the filled ones, stay where they are.
            for (below, &mode) in there.emptied.iter().enumerate() {
                swaps += place[mode as usize] as usize + below;
            }
            for &mode in &there.filled {
                let below = there.emptied.iter().filter(|&&emptied| emptied < mode).count();
                swaps += (mode - place[mode as usize]) as usize + below;
            }
        }
        swaps % 2 == 0
    }

    /// Moves the fermions. `summands` are what the determinants add to the ratio.
    #[inline(always)]
    pub(crate) fn go(&mut self, slater: &Slater<E>, solver: &mut Solver<E>, moves: &Moves, summands: &[E]) {
        let mut is_exact = !self.is_zero() && self.is_regular.iter().all(|&is_regular| is_regular);
        self.moves += 1;
        is_exact &= !self.moves.is_multiple_of(MOVES);
        for there in moves.iter() {
            self.go_in_sector(slater, there, is_exact);
            for index in 0..slater.determinants {
                is_exact &= self.amend(slater, solver, index, there.sector, is_exact);
            }
        }
        let ratio = E::sum(summands);
        // Nothing has a share of 0.
        is_exact &= slater.determinants == 1 || ratio.modulus() > 0.0;
        if !is_exact {
            self.solve(slater, solver);
        } else if slater.determinants > 1 {
            for (share, &summand) in self.shares.iter_mut().zip(summands) {
                *share = summand / ratio;
            }
        }
    }

    /// Moves the fermions of one sector: modes change their places, and if W is `exact`, it changes with them.
    #[inline(always)]
    fn go_in_sector(&mut self, slater: &Slater<E>, there: &Move, exact: bool) {
        let sector = &slater.sectors[there.sector];
        let n = sector.fermions.len();
        let (mut emptied, mut filled) = (there.emptied.clone(), there.filled.clone());
        while !emptied.is_empty() {
            let place = &mut self.place[sector.modes.clone()];
            let pivot = |from: u32, to: u32| place[to as usize] as usize * n + place[from as usize] as usize;
            let (a, b) = largest(&self.w[slater.w(0, sector)], &emptied, &filled, pivot);
            let (from, to) = (emptied.swap_remove(a) as usize, filled.swap_remove(b) as usize);
            let (column, row) = (place[from] as usize, place[to] as usize);
            place.swap(from, to);
            self.occupied[sector.fermions.start + column] = to as u32;
            self.empty[sector.empty.start + row] = from as u32;
            for index in (0..slater.determinants).filter(|_| exact) {
                let w = &mut self.w[slater.w(index, sector)];
                self.pivots[index * slater.sectors.len() + there.sector].note(w[row * n + column].modulus());
                pivot_at(w, n, row, column, &mut self.row);
            }
        }
    }

    /// Computes W of one determinant in a sector anew if it may be inexact. Says whether it is exact now.
    #[inline(always)]
    fn amend(&mut self, slater: &Slater<E>, solver: &mut Solver<E>, index: usize, sector: usize, exact: bool) -> bool {
        let place = index * slater.sectors.len() + sector;
        let sector = &slater.sectors[sector];
        if !exact || (self.pivots[place].are_moderate && self.residual(slater, index, sector) < RESIDUAL) {
            return exact;
        }
        self.pivots[place] = Pivots::default();
        self.solve_sector(slater, solver, index, sector).1
    }

    /// How wrong a number of M = W A is, another one each time.
    #[inline(always)]
    fn residual(&self, slater: &Slater<E>, index: usize, sector: &Sector) -> f64 {
        let (n, empty) = (sector.fermions.len(), sector.empty.len());
        let (row, column) = (self.moves % empty, self.moves / empty % n);
        let (orbitals, w) = (slater.orbitals(index, sector), &self.w[slater.w(index, sector)][row * n..][..n]);
        let of_mode = |mode: u32| orbitals[mode as usize * n + column];
        let expected = of_mode(self.empty[sector.empty.start + row]);
        let (mut found, mut size) = (E::default(), expected.modulus());
        for (&number, &mode) in w.iter().zip(&self.occupied[sector.fermions.clone()]) {
            let summand = number * of_mode(mode);
            found += summand;
            size += summand.modulus();
        }
        (found - expected).modulus() / size
    }
}

/// Which of the emptied and filled modes have the largest number of W.
#[inline(always)]
fn largest<E: Orbital>(w: &[E], emptied: &[u32], filled: &[u32], place: impl Fn(u32, u32) -> usize) -> (usize, usize) {
    let mut found = (0, 0);
    let mut largest = 0.0;
    if emptied.len() > 1 {
        for (a, &from) in emptied.iter().enumerate() {
            for (b, &to) in filled.iter().enumerate() {
                let modulus = w[place(from, to)].modulus();
                if modulus > largest {
                    (found, largest) = ((a, b), modulus);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::testing::RandomSlater;
    use num_complex::Complex;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    /// W is what takes A to M, for any number of fermions and modes.
    fn compare<E: Orbital, const P: usize>(modes: usize, fermions: usize, seed: u64) {
        let rng = &mut StdRng::seed_from_u64(seed);
        let random = RandomSlater::<P>::new(rng, modes, 1, &[fermions]);
        let slater = Slater::<E>::new::<f64, P>(random.tables(), modes).expect("tables");
        let mut state = State::default();
        state.set(&slater, &mut Solver::of(&slater), &random.sample(rng));
        let (orbitals, mut largest) = (slater.orbitals(0, &slater.sectors[0]), 0.0_f64);
        for (row, &mode) in state.w.chunks_exact(fermions.max(1)).zip(&state.empty) {
            for column in 0..fermions {
                let of_mode = |mode: u32| orbitals[mode as usize * fermions + column];
                let found = row.iter().zip(&state.occupied).fold(E::default(), |mut sum, (&number, &mode)| {
                    sum += number * of_mode(mode);
                    sum
                });
                largest = largest.max((found - of_mode(mode)).modulus());
            }
        }
        assert!(largest < 1e-11, "{largest:e} of {fermions} fermions on {modes} modes, seed {seed}");
    }

    #[test]
    fn orbitals_are_those_of_occupied_modes() {
        for modes in 1..=24 {
            for fermions in 0..=modes {
                compare::<f64, 1>(modes, fermions, 1);
                compare::<Complex<f64>, 2>(modes, fermions, 1);
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn orbitals_are_those_of_occupied_modes_on_threads_of_xla() {
        crate::numbers::without_subnormals(orbitals_are_those_of_occupied_modes);
    }
}
