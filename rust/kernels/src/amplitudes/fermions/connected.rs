//! Ratios of amplitudes of fermions at configurations that come one by one.

use super::Fermions;
use super::moves::Moves;
use crate::Error;
use crate::error::{check, index};
use crate::sites::LocalIndex;
use pulp::Scalar;

/// Ratios of ψ at configurations to that at samples from which they differ on a few sites: those that an operator
/// connects.
pub struct ConnectedRatios<'a, F: Fermions> {
    fermions: &'a F,
    memory: F::Memory,
    /// The samples, one behind the other: a mode is empty where it is 0.
    samples: &'a [u8],
    /// The sample of the last configuration, and its numbers.
    sample: Option<usize>,
    indices: Vec<LocalIndex>,
    state: F::State,
    moves: Moves,
}

impl<'a, F: Fermions> ConnectedRatios<'a, F> {
    /// To samples on so many sites.
    #[must_use]
    pub fn new(fermions: &'a F, sites: usize, samples: &'a [u8]) -> Self {
        let (memory, indices) = (fermions.memory(), vec![0; sites]);
        let (state, moves) = (F::State::default(), Moves::default());
        Self { fermions, memory, samples, sample: None, indices, state, moves }
    }

    /// `ψ(x) / ψ(σ)` for a configuration x and this sample σ; no number where ψ(σ) is 0. It is fast if the configuration
    /// before was of the same sample.
    pub fn ratio(&mut self, sample: i32, x: &[u8]) -> Result<F::Number, Error> {
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
            self.fermions.check(&self.indices)?;
            self.fermions.set(Scalar::new(), &mut self.memory, &mut self.state, &self.indices);
            self.sample = found;
        }
        let sites = own.iter().zip(x).enumerate();
        let changed = sites.filter(|(_, (from, to))| (**from != 0) != (**to != 0));
        let changed = changed.map(|(site, (&from, _))| (site, LocalIndex::from(from != 0)));
        let changed = changed.map(|(site, from)| (site, self.fermions.is_occupied(site, from)));
        self.moves.set(self.fermions.modes(), changed);
        if !self.moves.conserve() {
            return Ok(F::Number::default());
        }
        Ok(self.fermions.ratio(&self.state, &self.moves))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::pfaffian::Pfaffians;
    use crate::amplitudes::slater::Slater;
    use crate::amplitudes::testing::{RandomPfaffians, RandomSlater};
    use num_complex::Complex;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    /// Ratios to three samples, one after the other, and what isn't a configuration.
    fn compare<F: Fermions<Number = Complex<f64>>>(
        fermions: &F,
        sites: usize,
        mut sample: impl FnMut() -> Vec<LocalIndex>,
        psi: impl Fn(&[LocalIndex]) -> Complex<f64>,
    ) {
        let samples: Vec<Vec<LocalIndex>> = (0..3).map(|_| sample()).collect();
        let bytes: Vec<u8> = samples.iter().flatten().map(|&index| index as u8).collect();
        let mut ratios = ConnectedRatios::new(fermions, sites, &bytes);
        for step in 0..60 {
            let from = step / 10 % 3;
            let there = sample();
            let x: Vec<u8> = there.iter().map(|&index| index as u8).collect();
            let expected = psi(&there) / psi(&samples[from]);
            let found = ratios.ratio(from as i32, &x).expect("a ratio");
            assert!((found - expected).norm() < 1e-10 * (1.0 + expected.norm()), "{found} {expected}");
        }
        let mut other = bytes[..sites].to_vec();
        other[sites - 6] ^= 1;
        assert_eq!(ratios.ratio(0, &other), Ok(Complex::default()));
        assert!(ratios.ratio(3, &other).is_err());
        assert!(ratios.ratio(-1, &other).is_err());
    }

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
            compare(&slater, sites, || random.sample(rng), |indices| random.psi(indices));
        }
        for (modes, fermions, summands) in [(7, 2, 1), (8, 4, 3), (12, 6, 1), (12, 10, 2)] {
            let rng = &mut StdRng::seed_from_u64(4);
            let random = RandomPfaffians::<2>::new(rng, modes, fermions, summands);
            let pfaffians = Pfaffians::<Complex<f64>>::new::<f64, 2>(random.tables(), modes).expect("tables");
            compare(&pfaffians, modes, || random.sample(rng), |indices| random.psi(indices));
        }
    }
}
