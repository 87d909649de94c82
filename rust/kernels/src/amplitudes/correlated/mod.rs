//! Sums of amplitudes of fermions, each with a factor of its own.
//!
//! `ψ(n) = Σ_d ψ_d(n) φ(T_d n)`, where `T_d` takes what is on site i to site `p_d(i)`, and φ is a restricted Boltzmann machine of
//! real numbers. Where `ψ_d` is a determinant of pairs at `T_d n`, this is the product of pairs and φ, projected onto a
//! representation of a group: Y. Nomura and M. Imada, Phys. Rev. X 11, 031034 (2021).

use crate::Error;
use crate::amplitudes::fermions::moves::Moves;
use crate::amplitudes::fermions::{Fermions, Orbital};
use crate::amplitudes::rbm::Rbm;
use crate::error::check;
use crate::numbers::Reals;
use crate::sites::LocalIndex;

mod ratios;
mod walker;

pub use ratios::{Amplitudes, CorrelatedChange};
pub use walker::Walker;

/// Such a sum.
#[derive(Debug, Clone)]
pub struct Correlated<'a, F> {
    fermions: F,
    rbm: Rbm<'a, f64, Reals, 1>,
    /// Where the sites go, for each summand.
    permutations: Vec<usize>,
    sites: usize,
}

impl<'a, F: Fermions> Correlated<'a, F> {
    /// Of amplitudes whose summands these `permutations` belong to: `p_d`, one behind the other.
    pub fn new(
        fermions: F,
        rbm: Rbm<'a, f64, Reals, 1>,
        permutations: Vec<usize>,
        sites: usize,
    ) -> Result<Self, Error> {
        let summands = fermions.summands();
        check(permutations.len() == summands * sites, || {
            let found = permutations.len();
            format!(
                "`permutations` has {found} numbers, but must have one for each of {summands} summands and {sites} sites"
            )
        })?;
        for (summand, permutation) in permutations.chunks_exact(sites.max(1)).enumerate() {
            let mut is_taken = vec![false; sites];
            for &site in permutation {
                let is_free = is_taken.get(site).is_some_and(|is_taken| !is_taken);
                check(is_free, || {
                    format!("permutation {summand} has {site}, which isn't one of {sites} sites, or is twice")
                })?;
                is_taken[site] = true;
            }
        }
        Ok(Self { fermions, rbm, permutations, sites })
    }

    /// How many numbers a sample has, real ones or pairs of them.
    #[must_use]
    pub fn numbers(&self) -> usize {
        self.fermions.numbers() + self.fermions.summands() * self.rbm.numbers()
    }

    /// Where the sites go for a summand.
    #[inline(always)]
    fn permutation(&self, summand: usize) -> &[usize] {
        &self.permutations[summand * self.sites..][..self.sites]
    }

    /// Moves what is on the sites, for a summand.
    #[inline(always)]
    fn permute(&self, summand: usize, indices: &[LocalIndex], moved: &mut [LocalIndex]) {
        for (&to, &index) in self.permutation(summand).iter().zip(indices) {
            moved[to] = index;
        }
    }
}

/// The factors of all summands at a configuration.
#[derive(Debug, Clone)]
struct Factors<E> {
    /// What the summands of the fermions' ratio are multiplied with, beside the ratio of φ: `φ(T_d n)` relative to ψ.
    relative: Vec<E>,
    /// Whether ψ is 0, or no number.
    is_zero: bool,
}

impl<E> Default for Factors<E> {
    fn default() -> Self {
        Self { relative: Vec::new(), is_zero: true }
    }
}

/// The largest number that [`Factors::relative`] has is the exponential of this: that of a summand that is nearly 0.
const MOST: f64 = 600.0;

impl<E: Orbital> Factors<E> {
    /// Makes them those where the fermions' state is, from ln φ of each summand.
    #[inline(always)]
    fn set<F: Fermions<Number = E>>(&mut self, fermions: &F, state: &F::State, logs: &[f64]) {
        let nowhere = Moves::default();
        // The largest term of ψ is 1, so that none overflows.
        let mut largest = f64::NEG_INFINITY;
        for (summand, &log) in logs.iter().enumerate() {
            largest = largest.max(fermions.summand(state, summand, &nowhere).modulus().ln() + log);
        }
        self.relative.clear();
        let mut psi = E::default();
        for (summand, &log) in logs.iter().enumerate() {
            let factor = E::real((log - largest).min(MOST).exp());
            psi += fermions.summand(state, summand, &nowhere) * factor;
            self.relative.push(factor);
        }
        let modulus = psi.modulus();
        self.is_zero = modulus == 0.0 || !modulus.is_finite() || (logs.len() == 1 && fermions.is_zero(state));
        if !self.is_zero {
            let inverse = E::ONE / psi;
            for factor in &mut self.relative {
                *factor *= inverse;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::rbm::RbmTables;
    use crate::amplitudes::slater::{Slater, SlaterTables};

    #[test]
    fn wrong_permutations_are_named() {
        let slater = SlaterTables { orbitals: &[1.0, 2.0, 3.0, 4.0], determinants: 2, fermions: &[1], holes: 9 };
        let slater = Slater::<f64>::new::<f64, 1>(slater, 2).expect("tables");
        let rbm = RbmTables { theta: &[], delta: &[], bias: &[0.0; 2], units: 0 };
        let rbm = Rbm::<f64, Reals, 1>::new(rbm, 2).expect("tables");
        let error = |permutations: &[usize]| {
            let found = Correlated::new(slater.clone(), rbm.clone(), permutations.to_vec(), 2);
            found.expect_err("wrong permutations").to_string()
        };
        assert!(
            error(&[0, 1])
                .contains("`permutations` has 2 numbers, but must have one for each of 2 summands and 2 sites")
        );
        assert!(error(&[0, 1, 1, 1]).contains("permutation 1 has 1, which isn't one of 2 sites, or is twice"));
        assert!(error(&[0, 2, 1, 0]).contains("permutation 0 has 2"));
    }
}
