//! The modulus along a chain.

use super::{Correlated, Factors};
use crate::Error;
use crate::amplitudes::fermions::moves::Moves;
use crate::amplitudes::fermions::{Fermions, Orbital, SignedLog};
use crate::amplitudes::{self, AmplitudeRatio, rbm};
use crate::numbers::Reals;
use crate::sites::LocalIndex;
use pulp::Simd;

/// After so many moves ln φ is computed anew, since each adds a rounding error.
const MOVES: usize = 256;

/// Such a sum at a configuration that moves.
pub struct Walker<'a, F: Fermions> {
    of: &'a Correlated<'a, F>,
    memory: F::Memory,
    state: F::State,
    summands: Vec<Summand<'a>>,
    factors: Factors<F::Number>,
    /// ln φ of each summand, and how much larger that of the proposed configuration is.
    logs: Vec<f64>,
    changes: Vec<f64>,
    /// The proposed moves, and what the summands add to the fermions' ratio.
    moves: Moves,
    of_fermions: Vec<F::Number>,
    /// The proposed sites, where they go for a summand.
    moved: Vec<u32>,
    /// How many moves it has made.
    count: usize,
}

/// φ of a summand, at the configuration that is moved by its permutation.
struct Summand<'a> {
    rbm: rbm::Walker<'a, f64, Reals, 1>,
    indices: Vec<LocalIndex>,
}

impl<'a, F: Fermions> Walker<'a, F> {
    /// At no configuration.
    #[must_use]
    pub fn new(of: &'a Correlated<'a, F>) -> Self {
        let count = of.fermions.summands();
        let new = |_| Summand { rbm: rbm::Walker::new(&of.rbm), indices: vec![0; of.sites] };
        Self {
            of,
            memory: of.fermions.memory(),
            state: F::State::default(),
            summands: (0..count).map(new).collect(),
            factors: Factors::default(),
            logs: vec![0.0; count],
            changes: vec![0.0; count],
            moves: Moves::default(),
            of_fermions: vec![F::Number::default(); count],
            moved: Vec::new(),
            count: 0,
        }
    }

    /// Computes ln φ of all summands.
    #[inline(always)]
    fn renew_logs<S: Simd>(&mut self, simd: S) {
        for (log, summand) in self.logs.iter_mut().zip(&mut self.summands) {
            *log = summand.rbm.log_modulus(simd, &summand.indices);
        }
    }

    /// Whether ψ is 0 with the fermions moved, or no number.
    #[cold]
    fn is_zero_there(&self) -> bool {
        let there = |summand| self.of.fermions.there(&self.state, summand, &self.moves);
        let all = (0..self.summands.len()).map(|summand| {
            let factor = SignedLog { log: self.logs[summand] + self.changes[summand], phase: F::Number::ONE };
            there(summand).times(factor)
        });
        let psi = SignedLog::sum(&all.collect::<Vec<_>>());
        psi.is_zero() || psi.log.is_nan()
    }

    /// The ratio of the proposed configuration, of which ln φ may have become much larger.
    #[cold]
    fn log_of_ratio(&self) -> AmplitudeRatio {
        let largest = self.changes.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut ratio = F::Number::default();
        for (summand, &change) in self.changes.iter().enumerate() {
            let factor = self.factors.relative[summand] * F::Number::real((change - largest).exp());
            ratio += self.of_fermions[summand] * factor;
        }
        AmplitudeRatio::Log(ratio.modulus().ln() + largest)
    }
}

impl<F: Fermions> amplitudes::Walker for Walker<'_, F> {
    fn check(&self, indices: &[LocalIndex]) -> Result<(), Error> {
        self.of.fermions.check(indices)
    }

    #[inline(always)]
    fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]) {
        self.of.fermions.set(simd, &mut self.memory, &mut self.state, indices);
        for (number, summand) in self.summands.iter_mut().enumerate() {
            self.of.permute(number, indices, &mut summand.indices);
            summand.rbm.visit(simd, &summand.indices);
        }
        self.renew_logs(simd);
        self.factors.set(&self.of.fermions, &self.state, &self.logs);
    }

    #[inline(always)]
    fn amplitude_ratio<S: Simd>(&mut self, simd: S, indices: &[LocalIndex], sites: &[u32]) -> AmplitudeRatio {
        let fermions = &self.of.fermions;
        let changes = sites.iter().map(|&site| {
            let site = site as usize;
            (site, fermions.is_occupied(site, indices[site]))
        });
        self.moves.set(fermions.modes(), changes);
        if !self.moves.conserve() {
            return AmplitudeRatio::Squared(0.0);
        }
        let mut ratio = F::Number::default();
        for (number, summand) in self.summands.iter_mut().enumerate() {
            let permutation = self.of.permutation(number);
            self.moved.clear();
            self.moved.extend(sites.iter().map(|&site| permutation[site as usize] as u32));
            let of_rbm = summand.rbm.amplitude_ratio(simd, &summand.indices, &self.moved);
            self.changes[number] = of_rbm.log();
            self.of_fermions[number] = fermions.summand(&self.state, number, &self.moves);
            if !self.factors.is_zero {
                let factor = self.factors.relative[number] * F::Number::real(of_rbm.to_the(1.0));
                ratio += self.of_fermions[number] * factor;
            }
        }
        if self.factors.is_zero {
            // Any other amplitude is infinitely larger; if it is 0, too, the ratio is no number.
            return AmplitudeRatio::Log(if self.is_zero_there() { f64::NAN } else { f64::INFINITY });
        }
        let modulus = ratio.modulus();
        let squared = modulus * modulus;
        if squared.is_normal() { AmplitudeRatio::Squared(squared) } else { self.log_of_ratio() }
    }

    #[inline(always)]
    fn accept<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]) {
        let of = self.of;
        of.fermions.go(simd, &mut self.memory, &mut self.state, &self.moves, &self.of_fermions);
        for (number, summand) in self.summands.iter_mut().enumerate() {
            of.permute(number, indices, &mut summand.indices);
            summand.rbm.accept(simd, &summand.indices);
        }
        self.count += 1;
        if self.count.is_multiple_of(MOVES) {
            self.renew_logs(simd);
        } else {
            for (log, change) in self.logs.iter_mut().zip(&self.changes) {
                *log += change;
            }
        }
        self.factors.set(&of.fermions, &self.state, &self.logs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::rbm::Rbm;
    use crate::amplitudes::slater::Slater;
    use crate::amplitudes::testing::{RandomCorrelated, RandomSlater, compare_hops};
    use num_complex::Complex;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    fn compare<E: Orbital, const P: usize>(rng: &mut StdRng, random: &RandomCorrelated<P>, start: &[LocalIndex]) {
        let (modes, sites) = (random.slater.modes, start.len());
        let slater = Slater::<E>::new::<f64, P>(random.slater.tables(), sites).expect("tables");
        let rbm = Rbm::new(random.rbm.tables(), sites).expect("tables");
        let of = Correlated::new(slater, rbm, random.permutations.clone(), sites).expect("permutations");
        let is_occupied = |site, index| of.fermions.is_occupied(site, index);
        compare_hops(rng, modes, is_occupied, start, 600, |indices| random.psi(indices), || Walker::new(&of));
    }

    /// Where determinants of one fermion are 1 and −1 their sum is 0, and with the factors it isn't.
    #[test]
    fn fermions_that_vanish_without_their_factors() {
        for seed in 0..20 {
            let rng = &mut StdRng::seed_from_u64(seed);
            let mut random = RandomCorrelated::<1>::new(rng, 6, 2, &[1], 0.7);
            let signs = (0..12).map(|_| [if rng.random() { 1.0 } else { -1.0 }]).collect();
            random.slater = RandomSlater::of(signs, 6, 2, &[1]);
            let start = random.slater.sample(rng);
            compare::<f64, 1>(rng, &random, &start);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Along chains so long that everything is computed anew.
        #[test]
        fn amplitude_ratios_along_chains(
            modes in 2_usize..=8, fermions in proptest::collection::vec(0.0..=1.0_f64, 1..=2), determinants in 1_usize..=4,
            holes in 0_usize..=16, scale in prop_oneof![Just(0.1_f64), Just(0.7), Just(6.0)], seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let fermions: Vec<usize> = fermions.iter().map(|share: &f64| (share * modes as f64).round() as usize).collect();
            let mut real = RandomCorrelated::<1>::new(rng, modes, determinants, &fermions, scale);
            let mut complex = RandomCorrelated::<2>::new(rng, modes, determinants, &fermions, scale);
            (real.slater.holes, complex.slater.holes) = (holes, holes);
            let start = real.slater.sample(rng);
            compare::<f64, 1>(rng, &real, &start);
            compare::<Complex<f64>, 2>(rng, &complex, &start);
        }
    }
}
