//! The modulus of determinants along a chain.

use super::moves::Moves;
use super::solver::Solver;
use super::state::{State, sum};
use super::{Orbital, Slater};
use crate::Error;
use crate::amplitudes::{self, Odds};
use crate::sites::LocalIndex;
use pulp::Simd;

/// Determinants at a configuration that moves.
pub struct Walker<'a, E> {
    slater: &'a Slater<E>,
    solver: Solver<E>,
    state: State<E>,
    /// The proposed moves, and what the determinants add to the ratio.
    moves: Moves,
    summands: Vec<E>,
}

impl<'a, E: Orbital> Walker<'a, E> {
    /// At no configuration.
    #[must_use]
    pub fn new(slater: &'a Slater<E>) -> Self {
        let summands = vec![E::default(); slater.determinants];
        Self { slater, solver: Solver::of(slater), state: State::default(), moves: Moves::default(), summands }
    }
}

impl<E: Orbital> amplitudes::Walker for Walker<'_, E> {
    fn check(&self, indices: &[LocalIndex]) -> Result<(), Error> {
        self.slater.check(indices)
    }

    fn visit<S: Simd>(&mut self, _: S, indices: &[LocalIndex]) {
        self.state.set(self.slater, &mut self.solver, indices);
    }

    #[inline(always)]
    fn odds<S: Simd>(&mut self, _: S, indices: &[LocalIndex], sites: &[u32]) -> Odds {
        let changes = sites.iter().map(|&site| {
            let site = site as usize;
            (site, self.slater.is_occupied(site, indices[site]))
        });
        self.moves.set(self.slater.modes, changes);
        if !self.moves.conserve() {
            return Odds::Squared(0.0);
        }
        if self.state.is_zero() {
            // Any other amplitude is infinitely larger; if it is 0, too, the ratio is no number.
            let there = self.state.psi_there(self.slater, &self.moves);
            return Odds::Log(if there.is_zero() { f64::NAN } else { f64::INFINITY });
        }
        for (index, summand) in self.summands.iter_mut().enumerate() {
            *summand = self.state.summand(self.slater, index, &self.moves);
        }
        let modulus = sum(&self.summands).modulus();
        let squared = modulus * modulus;
        if squared.is_normal() { Odds::Squared(squared) } else { Odds::Log(modulus.ln()) }
    }

    #[inline(always)]
    fn accept<S: Simd>(&mut self, _: S, _: &[LocalIndex]) {
        self.state.go(self.slater, &mut self.solver, &self.moves, &self.summands);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::Walker as _;
    use crate::amplitudes::testing::RandomSlater;
    use crate::numbers::{dispatch, each_level};
    use num_complex::Complex;
    use proptest::prelude::*;
    use pulp::WithSimd;
    use rand::rngs::StdRng;
    use rand::seq::IteratorRandom;
    use rand::{RngExt, SeedableRng};

    /// Fermions that hop, one or two at once, from and to any modes of their sectors.
    struct Hops<'a, E, const P: usize> {
        random: &'a RandomSlater<P>,
        slater: &'a Slater<E>,
        rng: &'a mut StdRng,
        start: Vec<LocalIndex>,
        moves: usize,
    }

    impl<E: Orbital, const P: usize> Hops<'_, E, P> {
        /// One or two occupied modes, and as many empty ones of the same sectors.
        fn sites(&mut self, indices: &[LocalIndex]) -> Vec<u32> {
            let mut sites = Vec::new();
            for _ in 0..self.rng.random_range(1..=2) {
                let first = self.rng.random_range(0..self.random.fermions.len()) * self.random.modes;
                for is_occupied in [true, false] {
                    let is_such = |&site: &usize| self.slater.is_occupied(site, indices[site]) == is_occupied;
                    let free = (first..first + self.random.modes).filter(is_such);
                    let free = free.map(|site| site as u32).filter(|site| !sites.contains(site));
                    sites.extend(free.choose(self.rng));
                }
                if sites.len() % 2 == 1 {
                    sites.pop();
                }
            }
            sites
        }
    }

    impl<E: Orbital, const P: usize> WithSimd for Hops<'_, E, P> {
        type Output = ();

        fn with_simd<S: Simd>(mut self, simd: S) {
            let mut walker = Walker::new(self.slater);
            let mut indices = self.start.clone();
            walker.visit(simd, &indices);
            let mut here = self.random.psi(&indices).norm();
            for _ in 0..self.moves {
                let sites = self.sites(&indices);
                let mut next = indices.clone();
                for &site in &sites {
                    next[site as usize] ^= 1;
                }
                let there = self.random.psi(&next).norm();
                let odds = walker.odds(simd, &indices, &sites).to_the(1.0);
                let expected = there / here;
                if here == 0.0 {
                    assert!(if there == 0.0 { odds.is_nan() } else { odds == f64::INFINITY }, "{odds} {there}");
                } else {
                    assert!((odds - expected).abs() <= 1e-10 * (1.0 + expected), "{odds} instead of {expected}");
                }
                if self.rng.random::<f64>() < odds * odds {
                    (indices, here) = (next, there);
                    walker.accept(simd, &indices);
                }
            }
        }
    }

    fn compare<E: Orbital, const P: usize>(
        rng: &mut StdRng,
        random: &RandomSlater<P>,
        start: &[LocalIndex],
        moves: usize,
    ) {
        let slater = Slater::<E>::new::<f64, P>(random.tables(), start.len()).expect("tables");
        let seed = rng.random();
        for _ in each_level() {
            let rng = &mut StdRng::seed_from_u64(seed);
            dispatch(Hops { random, slater: &slater, rng, start: start.to_vec(), moves });
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn odds_along_chains(
            modes in 1_usize..=8, fermions in proptest::collection::vec(0.0..=1.0_f64, 1..=3), determinants in 1_usize..=3,
            holes in 0_usize..=24, seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let fermions: Vec<usize> = fermions.iter().map(|share: &f64| (share * modes as f64).round() as usize).collect();
            let mut real = RandomSlater::<1>::new(rng, modes, determinants, &fermions);
            let mut complex = RandomSlater::<2>::new(rng, modes, determinants, &fermions);
            (real.holes, complex.holes) = (holes, holes);
            let start = real.sample(rng);
            compare::<f64, 1>(rng, &real, &start, 300);
            compare::<Complex<f64>, 2>(rng, &complex, &start, 300);
        }
    }

    #[test]
    fn ten_thousand_moves_do_not_drift() {
        let rng = &mut StdRng::seed_from_u64(3);
        for (determinants, holes) in [(1, 24), (2, 24), (1, 12)] {
            let mut random = RandomSlater::<1>::new(rng, 12, determinants, &[5, 6]);
            random.holes = holes;
            let start = random.sample(rng);
            compare::<f64, 1>(rng, &random, &start, 10_000);
        }
    }

    /// Two orbitals that are alike on the first two modes: with both occupied, ψ is 0.
    #[test]
    fn a_start_where_the_amplitude_vanishes_is_left() {
        let rng = &mut StdRng::seed_from_u64(5);
        let row = [[0.5], [-1.0]];
        let rows = [row, row, [[1.0], [0.3]], [[0.2], [0.9]]];
        let random = RandomSlater::of(rows.concat(), 4, 1, &[2]);
        compare::<f64, 1>(rng, &random, &[1, 1, 0, 0], 100);
    }
}
