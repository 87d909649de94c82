//! How chains propose to move, on sites with two local states.
//!
//! The rules are those of `NetKet`'s samplers: `LocalRule`, `ExchangeRule`, of which `FermionHopRule` is one, and
//! `HamiltonianRule`.

use crate::sites::LocalIndex;
use rand::{Rng, RngExt};

mod exchange;
mod hamiltonian;
mod members;
#[cfg(test)]
mod testing;

pub use exchange::{Clusters, Exchange};
pub use hamiltonian::Hamiltonian;

/// Proposes moves of one chain.
pub trait TransitionRule {
    /// Goes to a configuration of local indices.
    fn visit(&mut self, indices: &[LocalIndex]);

    /// Adds the sites that are to be flipped, and gives T(σ' → σ) / T(σ → σ'); `None` if there is no move.
    fn propose(&mut self, rng: &mut impl Rng, sites: &mut Vec<u32>) -> Option<f64>;

    /// Goes where it has proposed to, which is elsewhere.
    fn accept(&mut self);

    /// Stays where it is.
    fn reject(&mut self);
}

/// Flips one site, all being as likely.
#[derive(Debug, Clone)]
pub struct Local {
    sites: u32,
}

impl Local {
    /// On so many sites.
    #[must_use]
    pub fn new(sites: usize) -> Self {
        Self { sites: sites as u32 }
    }
}

impl TransitionRule for Local {
    fn visit(&mut self, _: &[LocalIndex]) {}

    #[inline(always)]
    fn propose(&mut self, rng: &mut impl Rng, sites: &mut Vec<u32>) -> Option<f64> {
        if self.sites == 0 {
            return None;
        }
        sites.push(rng.random_range(0..self.sites));
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

    #[test]
    fn sites_are_all_as_likely() {
        let rng = &mut StdRng::seed_from_u64(1);
        let mut counts = [0; 5];
        for _ in 0..50_000 {
            let mut sites = Vec::new();
            assert_eq!(Local::new(5).propose(rng, &mut sites), Some(1.0));
            counts[sites[0] as usize] += 1;
        }
        assert!(counts.iter().all(|&count: &i32| (count - 10_000).abs() < 400), "{counts:?}");
        assert_eq!(Local::new(0).propose(rng, &mut Vec::new()), None);
    }
}
