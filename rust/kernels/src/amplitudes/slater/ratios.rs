//! Ratios of determinants, at many samples.

use super::moves::Moves;
use super::solver::Solver;
use super::state::State;
use super::{Orbital, Slater};
use crate::Error;
use crate::amplitudes::{Ratios, TOGETHER};
use crate::connected::terms::BLOCK;
use crate::sites::LocalIndex;
use pulp::Simd;

/// The determinants at some samples, as [`Ratios`].
pub struct Amplitudes<'a, E> {
    slater: &'a Slater<E>,
    solver: Solver<E>,
    states: Vec<State<E>>,
}

impl<'a, E: Orbital> Amplitudes<'a, E> {
    /// At no samples.
    #[must_use]
    pub fn new(slater: &'a Slater<E>) -> Self {
        Self { slater, solver: Solver::of(slater), states: Vec::new() }
    }
}

/// What some sites that change do to the fermions, and on the way back.
#[derive(Debug, Default)]
pub struct Change {
    there: Moves,
    back: Moves,
}

impl<E: Orbital> Ratios for Amplitudes<'_, E> {
    type Ratio = E;
    type Change = Change;

    fn cached(&self) -> usize {
        BLOCK
    }

    fn check(&self, indices: &[LocalIndex]) -> Result<(), Error> {
        self.slater.check(indices)
    }

    fn visit<S: Simd>(&mut self, _: S, indices: &[LocalIndex], samples: usize) {
        if self.states.len() < samples {
            self.states.resize_with(samples, State::default);
        }
        let sites = indices.len() / samples.max(1);
        for (sample, state) in self.states[..samples].iter_mut().enumerate() {
            state.set(self.slater, &mut self.solver, &indices[sample * sites..][..sites]);
        }
    }

    #[inline(always)]
    fn prepare<S: Simd>(&self, _: S, change: &mut Change, sites: &[usize], opposite: &[bool]) {
        let emptied = [false].into_iter().chain(opposite.iter().copied()).map(LocalIndex::from);
        let changes = sites.iter().copied().zip(emptied);
        change.there.set(self.slater.modes, changes.map(|(site, index)| (site, self.slater.is_occupied(site, index))));
        change.back.clone_from(&change.there);
        change.back.reverse();
    }

    #[inline(always)]
    fn ratios<S: Simd>(
        &self,
        _: S,
        change: &Change,
        n: usize,
        samples: [usize; TOGETHER],
        reversed: [bool; TOGETHER],
    ) -> [E; TOGETHER] {
        let mut ratios = [E::default(); TOGETHER];
        // Where a sector has another number of fermions ψ is 0.
        if !change.there.conserve() {
            return ratios;
        }
        for ((ratio, sample), reversed) in ratios.iter_mut().zip(samples).zip(reversed).take(n) {
            let moves = if reversed { &change.back } else { &change.there };
            *ratio = self.states[sample].ratio(self.slater, moves);
        }
        ratios
    }
}
