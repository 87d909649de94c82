//! Ratios of determinants at configurations that come one by one.

use super::moves::Moves;
use super::solver::Solver;
use super::state::State;
use super::{Orbital, Slater};
use crate::Error;
use crate::error::{check, index};
use crate::sites::LocalIndex;

/// Ratios of ψ at configurations to that at samples from which they differ on a few sites: those that an operator
/// connects.
pub struct ConnectedRatios<'a, E> {
    slater: &'a Slater<E>,
    solver: Solver<E>,
    /// The samples, one behind the other: a mode is empty where it is 0.
    samples: &'a [u8],
    /// The sample of the last configuration, and its determinants.
    sample: Option<usize>,
    indices: Vec<LocalIndex>,
    state: State<E>,
    moves: Moves,
}

impl<'a, E: Orbital> ConnectedRatios<'a, E> {
    /// To samples on so many sites.
    #[must_use]
    pub fn new(slater: &'a Slater<E>, sites: usize, samples: &'a [u8]) -> Self {
        let (solver, indices) = (Solver::of(slater), vec![0; sites]);
        Self { slater, solver, samples, sample: None, indices, state: State::default(), moves: Moves::default() }
    }

    /// `ψ(x) / ψ(σ)` for a configuration x and this sample σ; no number where ψ(σ) is 0. It is fast if the configuration
    /// before was of the same sample.
    pub fn ratio(&mut self, sample: i32, x: &[u8]) -> Result<E, Error> {
        let sites = self.indices.len();
        let count = self.samples.len().checked_div(sites).unwrap_or(usize::MAX);
        let found = index(sample, count);
        check(found.is_some(), || format!("a configuration is of sample {sample}, but there are {count}"))?;
        let own = &self.samples[found.unwrap_or_default() * sites..][..sites];
        if self.sample != found {
            self.sample = None;
            for (index, &occupation) in self.indices.iter_mut().zip(own) {
                *index = LocalIndex::from(occupation != 0);
            }
            self.slater.check(&self.indices)?;
            self.state.set(self.slater, &mut self.solver, &self.indices);
            self.sample = found;
        }
        let sites = own.iter().zip(x).enumerate();
        let changed = sites.filter(|(_, (from, to))| (**from != 0) != (**to != 0));
        let changed = changed.map(|(site, (&from, _))| (site, LocalIndex::from(from != 0)));
        self.moves.set(self.slater.modes, changed.map(|(site, from)| (site, self.slater.is_occupied(site, from))));
        if !self.moves.conserve() {
            return Ok(E::default());
        }
        Ok(self.state.ratio(self.slater, &self.moves))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::testing::RandomSlater;
    use num_complex::Complex;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn ratios_are_those_of_the_definition() {
        let cases =
            [(1, &[3][..], 99), (1, &[2, 3], 99), (3, &[1, 2], 99), (2, &[0, 4], 99), (1, &[3], 2), (2, &[2, 5], 6)];
        for (determinants, fermions, holes) in cases {
            let rng = &mut StdRng::seed_from_u64(2);
            let mut random = RandomSlater::<2>::new(rng, 6, determinants, fermions);
            random.holes = holes;
            let sites = 6 * fermions.len();
            let slater = Slater::<Complex<f64>>::new::<f64, 2>(random.tables(), sites).expect("tables");
            let samples: Vec<Vec<LocalIndex>> = (0..3).map(|_| random.sample(rng)).collect();
            let bytes: Vec<u8> = samples.iter().flatten().map(|&index| index as u8).collect();
            let mut ratios = ConnectedRatios::new(&slater, sites, &bytes);
            for step in 0..60 {
                let sample = step / 10 % 3;
                let there = random.sample(rng);
                let x: Vec<u8> = there.iter().map(|&index| index as u8).collect();
                let expected = random.psi(&there) / random.psi(&samples[sample]);
                let found = ratios.ratio(sample as i32, &x).expect("a ratio");
                assert!((found - expected).norm() < 1e-10 * (1.0 + expected.norm()), "{found} {expected}");
            }
            let mut other = bytes[..sites].to_vec();
            other[sites - 6] ^= 1;
            assert_eq!(ratios.ratio(0, &other), Ok(Complex::default()));
            assert!(ratios.ratio(3, &other).is_err());
            assert!(ratios.ratio(-1, &other).is_err());
        }
    }
}
