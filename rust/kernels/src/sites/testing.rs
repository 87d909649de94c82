//! Sites and samples for tests.

use crate::sites::{LocalIndex, Sites, StateRange};
use rand::{Rng, RngExt};

/// The values of a spin ½.
pub(crate) const SPIN: StateRange = StateRange { start: 1.0, step: -2.0, size: 2 };

/// The numbers of so many bosons less one.
pub(crate) fn boson(size: usize) -> StateRange {
    StateRange { start: 0.0, step: 1.0, size }
}

/// Local indices of some samples.
pub(crate) fn random_samples(rng: &mut impl Rng, sites: &Sites, samples: usize) -> Vec<Vec<LocalIndex>> {
    let mut index = |site| rng.random_range(0..sites.states(site).size) as LocalIndex;
    (0..samples).map(|_| (0..sites.len()).map(&mut index).collect()).collect()
}
