//! Ratios at many samples.

use super::{Correlated, Factors};
use crate::Error;
use crate::amplitudes::fermions::{self, FermionChange, Fermions, Orbital};
use crate::amplitudes::rbm::{self, Row};
use crate::amplitudes::{RATIOS_PER_BLOCK, Ratios};
use crate::numbers::Reals;
use crate::sites::LocalIndex;
use pulp::Simd;

/// Such a sum at some samples, as [`Ratios`].
pub struct Amplitudes<'a, F: Fermions> {
    of: &'a Correlated<'a, F>,
    fermions: fermions::Amplitudes<'a, F>,
    /// φ, for each summand.
    rbms: Vec<rbm::Amplitudes<'a, f64, Reals, 1>>,
    /// Those of each sample.
    factors: Vec<Factors<F::Number>>,
    /// Memory for samples that are moved, and for ln φ of each summand at each sample.
    moved: Vec<LocalIndex>,
    logs: Vec<f64>,
}

impl<'a, F: Fermions> Amplitudes<'a, F> {
    /// At no samples.
    #[must_use]
    pub fn new(of: &'a Correlated<'a, F>) -> Self {
        let rbms = (0..of.fermions.summands()).map(|_| rbm::Amplitudes::new(&of.rbm)).collect();
        let fermions = fermions::Amplitudes::new(&of.fermions);
        Self { of, fermions, rbms, factors: Vec::new(), moved: Vec::new(), logs: Vec::new() }
    }
}

/// What some sites that change do to the fermions, and to φ of each summand.
#[derive(Default)]
pub struct CorrelatedChange {
    fermions: FermionChange,
    rows: Vec<Row<f64, Reals, 1>>,
    moved: Vec<usize>,
}

impl<F: Fermions> Ratios for Amplitudes<'_, F> {
    type Ratio = F::Number;
    type SiteChange = CorrelatedChange;

    fn check(&self, indices: &[LocalIndex]) -> Result<(), Error> {
        self.fermions.check(indices)
    }

    fn cached(&self) -> usize {
        // Of so few samples the numbers of all summands are in the second-level cache.
        self.fermions.cached().min(RATIOS_PER_BLOCK)
    }

    fn changes(&self) -> usize {
        4
    }

    #[inline(always)]
    fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex], samples: usize) {
        self.fermions.visit(simd, indices, samples);
        let (of, summands) = (self.of, self.rbms.len());
        self.moved.resize(indices.len(), 0);
        self.logs.resize(samples * summands, 0.0);
        for (summand, rbm) in self.rbms.iter_mut().enumerate() {
            let both = indices.chunks_exact(of.sites.max(1)).zip(self.moved.chunks_exact_mut(of.sites.max(1)));
            for (indices, moved) in both {
                of.permute(summand, indices, moved);
            }
            rbm.visit(simd, &self.moved, samples);
            for sample in 0..samples {
                self.logs[sample * summands + summand] =
                    rbm.log_modulus(sample, &self.moved[sample * of.sites..][..of.sites]);
            }
        }
        self.factors.resize_with(samples, Factors::default);
        for (sample, factors) in self.factors.iter_mut().enumerate() {
            factors.set(&of.fermions, self.fermions.state(sample), &self.logs[sample * summands..][..summands]);
        }
    }

    #[inline(always)]
    fn prepare<S: Simd>(&self, simd: S, change: &mut CorrelatedChange, sites: &[usize], opposite: &[bool]) {
        let CorrelatedChange { fermions, rows, moved } = change;
        self.fermions.prepare(simd, fermions, sites, opposite);
        rows.resize_with(self.rbms.len(), Row::default);
        for (summand, (rbm, row)) in self.rbms.iter().zip(rows).enumerate() {
            let permutation = self.of.permutation(summand);
            moved.clear();
            moved.extend(sites.iter().map(|&site| permutation[site]));
            rbm.prepare(simd, row, moved, opposite);
        }
    }

    #[inline(always)]
    fn ratios<S: Simd>(
        &self,
        simd: S,
        change: &CorrelatedChange,
        n: usize,
        samples: [usize; RATIOS_PER_BLOCK],
        reversed: [bool; RATIOS_PER_BLOCK],
    ) -> [F::Number; RATIOS_PER_BLOCK] {
        let mut ratios = [F::Number::default(); RATIOS_PER_BLOCK];
        // Where a sector has another number of fermions ψ is 0.
        if !change.fermions.conserves() {
            return ratios;
        }
        let fermions = &self.of.fermions;
        for (summand, (rbm, row)) in self.rbms.iter().zip(&change.rows).enumerate() {
            let of_rbm = rbm.ratios(simd, row, n, samples, reversed);
            for place in 0..n {
                let (state, factors) = (self.fermions.state(samples[place]), &self.factors[samples[place]]);
                if !factors.is_zero {
                    let moves = change.fermions.moves(reversed[place]);
                    let factor = factors.relative[summand] * F::Number::real(of_rbm[place]);
                    ratios[place] += fermions.summand(state, summand, moves) * factor;
                }
            }
        }
        for place in 0..n {
            let (sample, moves) = (samples[place], change.fermions.moves(reversed[place]));
            if self.factors[sample].is_zero {
                ratios[place] = F::Number::real(f64::NAN);
            } else if !fermions.is_even(self.fermions.state(sample), moves) {
                ratios[place] = -ratios[place];
            }
        }
        ratios
    }
}
