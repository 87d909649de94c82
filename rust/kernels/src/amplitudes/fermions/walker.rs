//! The modulus of amplitudes of fermions along a chain.

use super::moves::Moves;
use super::{Fermions, Orbital};
use crate::Error;
use crate::amplitudes::{self, AmplitudeRatio};
use crate::sites::LocalIndex;
use pulp::{NullaryFnOnce, Simd};

/// Amplitudes at a configuration that moves.
pub struct Walker<'a, F: Fermions> {
    fermions: &'a F,
    memory: F::Memory,
    state: F::State,
    /// The proposed moves, and what the summands add to the ratio.
    moves: Moves,
    summands: Vec<F::Number>,
}

impl<'a, F: Fermions> Walker<'a, F> {
    /// At no configuration.
    #[must_use]
    pub fn new(fermions: &'a F) -> Self {
        let summands = vec![F::Number::default(); fermions.summands()];
        Self { fermions, memory: fermions.memory(), state: F::State::default(), moves: Moves::default(), summands }
    }
}

impl<F: Fermions> amplitudes::Walker for Walker<'_, F> {
    fn check(&self, indices: &[LocalIndex]) -> Result<(), Error> {
        self.fermions.check(indices)
    }

    fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]) {
        self.fermions.set(simd, &mut self.memory, &mut self.state, indices);
    }

    #[inline(always)]
    fn amplitude_ratio<S: Simd>(&mut self, _: S, indices: &[LocalIndex], sites: &[u32]) -> AmplitudeRatio {
        let changes = sites.iter().map(|&site| {
            let site = site as usize;
            (site, self.fermions.is_occupied(site, indices[site]))
        });
        self.moves.set(self.fermions.modes(), changes);
        if !self.moves.conserve() {
            return AmplitudeRatio::Squared(0.0);
        }
        if self.fermions.is_zero(&self.state) {
            // Any other amplitude is infinitely larger; if it is 0, too, the ratio is no number.
            let there = self.fermions.psi_there(&self.state, &self.moves);
            return AmplitudeRatio::Log(if there.is_zero() { f64::NAN } else { f64::INFINITY });
        }
        for (index, summand) in self.summands.iter_mut().enumerate() {
            *summand = self.fermions.summand(&self.state, index, &self.moves);
        }
        let modulus = Orbital::sum(&self.summands).modulus();
        let squared = modulus * modulus;
        if squared.is_normal() { AmplitudeRatio::Squared(squared) } else { AmplitudeRatio::Log(modulus.ln()) }
    }

    #[inline(always)]
    fn accept<S: Simd>(&mut self, simd: S, _: &[LocalIndex]) {
        simd.vectorize(Accept { simd, walker: self });
    }
}

/// What [`Walker::accept`] does, as a function of its own: rules of moves share it.
struct Accept<'w, 'a, S, F: Fermions> {
    simd: S,
    walker: &'w mut Walker<'a, F>,
}

impl<S: Simd, F: Fermions> NullaryFnOnce for Accept<'_, '_, S, F> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Walker { fermions, memory, state, moves, summands } = self.walker;
        fermions.go(self.simd, memory, state, moves, summands);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::pfaffian::Pfaffians;
    use crate::amplitudes::slater::Slater;
    use crate::amplitudes::testing::{RandomPfaffians, RandomSlater, compare_hops};
    use num_complex::Complex;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    fn compare<F: Fermions>(
        rng: &mut StdRng,
        fermions: &F,
        start: &[LocalIndex],
        moves: usize,
        psi: impl Fn(&[LocalIndex]) -> Complex<f64>,
    ) {
        let is_occupied = |site: usize, index| fermions.is_occupied(site, index);
        compare_hops(rng, fermions.modes(), is_occupied, start, moves, psi, || Walker::new(fermions));
    }

    fn compare_slater<E: Orbital, const P: usize>(
        rng: &mut StdRng,
        random: &RandomSlater<P>,
        start: &[LocalIndex],
        moves: usize,
    ) {
        let slater = Slater::<E>::new::<f64, P>(random.tables(), start.len()).expect("tables");
        compare(rng, &slater, start, moves, |indices| random.psi(indices));
    }

    fn compare_pfaffians<E: Orbital, const P: usize>(rng: &mut StdRng, random: &RandomPfaffians<P>, moves: usize) {
        let start = random.sample(rng);
        let pfaffians = Pfaffians::<E>::new::<f64, P>(random.tables(), start.len()).expect("tables");
        compare(rng, &pfaffians, &start, moves, |indices| random.psi(indices));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn amplitude_ratios_along_chains(
            modes in 1_usize..=8, fermions in proptest::collection::vec(0.0..=1.0_f64, 1..=3), determinants in 1_usize..=3,
            holes in 0_usize..=24, seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let fermions: Vec<usize> = fermions.iter().map(|share: &f64| (share * modes as f64).round() as usize).collect();
            let mut real = RandomSlater::<1>::new(rng, modes, determinants, &fermions);
            let mut complex = RandomSlater::<2>::new(rng, modes, determinants, &fermions);
            (real.holes, complex.holes) = (holes, holes);
            let start = real.sample(rng);
            compare_slater::<f64, 1>(rng, &real, &start, 300);
            compare_slater::<Complex<f64>, 2>(rng, &complex, &start, 300);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn amplitude_ratios_of_pairs_along_chains(modes in 1_usize..=10, share in 0.0..=1.0_f64, summands in 1_usize..=3, seed: u64) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let fermions = (share * modes as f64 / 2.0).floor() as usize * 2;
            let real = RandomPfaffians::<1>::new(rng, modes, fermions, summands);
            let complex = RandomPfaffians::<2>::new(rng, modes, fermions, summands);
            compare_pfaffians::<f64, 1>(rng, &real, 300);
            compare_pfaffians::<Complex<f64>, 2>(rng, &complex, 300);
        }
    }

    #[test]
    fn ten_thousand_moves_do_not_drift() {
        let rng = &mut StdRng::seed_from_u64(3);
        for summands in [1, 2, 4] {
            let random = RandomPfaffians::<1>::new(rng, 16, 8, summands);
            compare_pfaffians::<f64, 1>(rng, &random, 10_000);
        }
        for (determinants, holes) in [(1, 24), (2, 24), (1, 12)] {
            let mut random = RandomSlater::<1>::new(rng, 12, determinants, &[5, 6]);
            random.holes = holes;
            let start = random.sample(rng);
            compare_slater::<f64, 1>(rng, &random, &start, 10_000);
        }
    }

    /// The first two modes have the same pairs: with both occupied, ψ is 0.
    #[test]
    fn a_start_where_no_pair_is_possible_is_left() {
        let rng = &mut StdRng::seed_from_u64(7);
        let mut random = RandomPfaffians::<1>::new(rng, 6, 2, 1);
        random.cut(0, 1);
        let pfaffians = Pfaffians::<f64>::new::<f64, 1>(random.tables(), 6).expect("tables");
        compare(rng, &pfaffians, &[1, 1, 0, 0, 0, 0], 100, |indices| random.psi(indices));
    }

    /// Two orbitals that are alike on the first two modes: with both occupied, ψ is 0.
    #[test]
    fn a_start_where_the_amplitude_vanishes_is_left() {
        let rng = &mut StdRng::seed_from_u64(5);
        let row = [[0.5], [-1.0]];
        let rows = [row, row, [[1.0], [0.3]], [[0.2], [0.9]]];
        let random = RandomSlater::of(rows.concat(), 4, 1, &[2]);
        compare_slater::<f64, 1>(rng, &random, &[1, 1, 0, 0], 100);
    }
}
