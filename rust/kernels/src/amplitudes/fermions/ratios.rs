//! Ratios of amplitudes of fermions, at many samples.

use super::Fermions;
use super::moves::Moves;
use crate::Error;
use crate::amplitudes::{RATIOS_PER_BLOCK, Ratios};
use crate::connected::terms::BLOCK;
use crate::sites::LocalIndex;
use pulp::Simd;

/// So many numbers stay in the second-level cache.
const CACHED: usize = 1 << 16;

/// Amplitudes at some samples, as [`Ratios`].
pub struct Amplitudes<'a, F: Fermions> {
    fermions: &'a F,
    memory: F::Memory,
    states: Vec<F::State>,
}

impl<'a, F: Fermions> Amplitudes<'a, F> {
    /// At no samples.
    #[must_use]
    pub fn new(fermions: &'a F) -> Self {
        Self { fermions, memory: fermions.memory(), states: Vec::new() }
    }

    /// The numbers at one of the samples.
    #[inline(always)]
    pub(crate) fn state(&self, sample: usize) -> &F::State {
        &self.states[sample]
    }
}

/// What some sites that change do to the fermions, and on the way back.
#[derive(Debug, Default)]
pub struct FermionChange {
    there: Moves,
    back: Moves,
}

impl FermionChange {
    /// Whether each sector keeps its fermions.
    #[inline(always)]
    pub(crate) fn conserves(&self) -> bool {
        self.there.conserve()
    }

    /// The moves, or those on the way back.
    #[inline(always)]
    pub(crate) fn moves(&self, is_back: bool) -> &Moves {
        if is_back { &self.back } else { &self.there }
    }
}

impl<F: Fermions> Ratios for Amplitudes<'_, F> {
    type Ratio = F::Number;
    type SiteChange = FermionChange;

    fn cached(&self) -> usize {
        if F::READS_MANY { (CACHED / self.fermions.numbers().max(1)).clamp(1, BLOCK) } else { BLOCK }
    }

    fn changes(&self) -> usize {
        // The hops of a lattice or a molecule, all at once.
        if F::READS_MANY { 512 } else { 16 }
    }

    fn check(&self, indices: &[LocalIndex]) -> Result<(), Error> {
        self.fermions.check(indices)
    }

    fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex], samples: usize) {
        if self.states.len() < samples {
            self.states.resize_with(samples, F::State::default);
        }
        let sites = indices.len() / samples.max(1);
        for (sample, state) in self.states[..samples].iter_mut().enumerate() {
            self.fermions.set(simd, &mut self.memory, state, &indices[sample * sites..][..sites]);
        }
    }

    #[inline(always)]
    fn prepare<S: Simd>(&self, _: S, change: &mut FermionChange, sites: &[usize], opposite: &[bool]) {
        let emptied = [false].into_iter().chain(opposite.iter().copied()).map(LocalIndex::from);
        let changes = sites.iter().copied().zip(emptied);
        let changes = changes.map(|(site, index)| (site, self.fermions.is_occupied(site, index)));
        change.there.set(self.fermions.modes(), changes);
        change.back.clone_from(&change.there);
        change.back.reverse();
    }

    #[inline(always)]
    fn ratios<S: Simd>(
        &self,
        _: S,
        change: &FermionChange,
        n: usize,
        samples: [usize; RATIOS_PER_BLOCK],
        reversed: [bool; RATIOS_PER_BLOCK],
    ) -> [F::Number; RATIOS_PER_BLOCK] {
        let mut ratios = [F::Number::default(); RATIOS_PER_BLOCK];
        // Where a sector has another number of fermions ψ is 0.
        if !change.conserves() {
            return ratios;
        }
        for ((ratio, sample), reversed) in ratios.iter_mut().zip(samples).zip(reversed).take(n) {
            *ratio = self.fermions.ratio(&self.states[sample], change.moves(reversed));
        }
        ratios
    }
}
