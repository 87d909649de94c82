//! How chains propose to move.
//!
//! The rules are those of `NetKet`'s samplers: `LocalRule`, `ExchangeRule`, of which `FermionHopRule` is one, and
//! `HamiltonianRule`. Beside them are exchanges of several pairs of sites at once, within limits.

use crate::sites::LocalIndex;
use rand::{Rng, RngExt};

mod connected;
mod exchange;
mod hamiltonian;
mod members;
mod swap;
#[cfg(test)]
pub(super) mod testing;

pub use connected::Connected;
pub use exchange::{ClusterTables, Clusters, Exchange};
pub use hamiltonian::Hamiltonian;
pub use swap::{Swap, SwapTables, Swaps};

/// What a move changes: some sites, each named once, and their new local indices.
#[derive(Debug, Clone, Default)]
pub struct ProposedChange {
    /// The sites.
    pub sites: Vec<u32>,
    /// The local indices that they get.
    pub to: Vec<LocalIndex>,
}

impl ProposedChange {
    /// Nothing changes.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.sites.clear();
        self.to.clear();
    }

    /// Changes one more site.
    #[inline(always)]
    pub fn push(&mut self, site: u32, to: LocalIndex) {
        self.sites.push(site);
        self.to.push(to);
    }

    /// Whether nothing changes.
    #[must_use]
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// Each site, the local index that it has, and the one that it gets.
    #[inline(always)]
    pub(crate) fn from(&self, indices: &[LocalIndex]) -> impl Iterator<Item = (usize, LocalIndex, LocalIndex)> {
        self.sites.iter().zip(&self.to).map(|(&site, &to)| (site as usize, indices[site as usize], to))
    }

    /// Makes the change in a configuration.
    #[inline(always)]
    pub fn apply(&self, indices: &mut [LocalIndex]) {
        for (&site, &to) in self.sites.iter().zip(&self.to) {
            indices[site as usize] = to;
        }
    }
}

/// Proposes moves of one chain. What it proposes depends on the configuration and on the random numbers alone.
pub trait TransitionRule {
    /// Goes to a configuration of local indices.
    fn visit(&mut self, indices: &[LocalIndex]);

    /// Adds what is to be changed, and gives T(σ' → σ) / T(σ → σ'); `None` if there is no move. The indices are those
    /// of the configuration where it is.
    fn propose(&mut self, rng: &mut impl Rng, indices: &[LocalIndex], change: &mut ProposedChange) -> Option<f64>;

    /// Goes where it has proposed to, which is elsewhere.
    fn accept(&mut self);

    /// Stays where it is.
    fn reject(&mut self);

    /// How many words [`TransitionRule::keep`] fills.
    fn kept(&self) -> usize {
        0
    }

    /// Keeps what it knows of the configuration where it is.
    fn keep(&self, _: &mut [u32]) {}

    /// Goes to a configuration at which [`TransitionRule::keep`] gave these words.
    fn restore(&mut self, indices: &[LocalIndex], _: &[u32]) {
        self.visit(indices);
    }
}

/// Gives one site another local state, all sites being as likely, and all other states.
#[derive(Debug, Clone)]
pub struct Local<'a> {
    /// How many local states each site has.
    sizes: &'a [LocalIndex],
}

impl<'a> Local<'a> {
    /// On sites with so many local states.
    #[must_use]
    pub fn new(sizes: &'a [LocalIndex]) -> Self {
        Self { sizes }
    }
}

impl TransitionRule for Local<'_> {
    fn visit(&mut self, _: &[LocalIndex]) {}

    #[inline(always)]
    fn propose(&mut self, rng: &mut impl Rng, indices: &[LocalIndex], change: &mut ProposedChange) -> Option<f64> {
        if self.sizes.is_empty() {
            return None;
        }
        let site = rng.random_range(0..self.sizes.len() as u32);
        let from = indices[site as usize];
        match self.sizes[site as usize] {
            0 | 1 => {}
            2 => change.push(site, from ^ 1),
            size => {
                let to = rng.random_range(0..size - 1);
                change.push(site, to + LocalIndex::from(to >= from));
            }
        }
        Some(1.0)
    }

    fn accept(&mut self) {}

    fn reject(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use std::collections::HashMap;

    #[test]
    fn sites_and_states_are_all_as_likely() {
        let rng = &mut StdRng::seed_from_u64(1);
        let (sizes, indices) = ([2, 4, 1], [1, 2, 0]);
        let mut counts = HashMap::new();
        for _ in 0..30_000 {
            let mut change = ProposedChange::default();
            assert_eq!(Local::new(&sizes).propose(rng, &indices, &mut change), Some(1.0));
            *counts.entry((change.sites, change.to)).or_insert(0) += 1;
        }
        let changes =
            [(vec![0], vec![0]), (vec![1], vec![0]), (vec![1], vec![1]), (vec![1], vec![3]), (vec![], vec![])];
        for (change, expected) in changes.into_iter().zip([10_000, 3_333, 3_333, 3_333, 10_000]) {
            let found: i32 = counts.remove(&change).unwrap_or(0);
            assert!((found - expected).abs() < 300, "{change:?}");
        }
        assert!(counts.is_empty());
        assert_eq!(Local::new(&[]).propose(rng, &[], &mut ProposedChange::default()), None);
    }
}
