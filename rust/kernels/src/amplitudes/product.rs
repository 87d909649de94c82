//! Products of amplitudes: ψ = `Π_a ψ_a`, of any kinds.

use crate::Error;
use crate::amplitudes::pfaffian::Pfaffians;
use crate::amplitudes::slater::Slater;
use crate::amplitudes::{
    self, AmplitudeRatio, RATIOS_PER_BLOCK, Ratios, correlated, doublon_holon, fermions, jastrow, rbm,
};
use crate::connected::terms::BLOCK;
use crate::numbers::{Complexes, RealPairs, Reals};
use crate::sites::LocalIndex;
use num_complex::Complex;
use pulp::Simd;

/// Declares [`Factor`], what its changes are, and what [`WalkingFactor`] walks, with a variant for each kind of amplitudes.
macro_rules! factors {
    ($($kind:ident: $amplitudes:ty),+; $($walking:ident: $walker:ty),+) => {
        /// A factor, at some samples.
        #[allow(missing_docs, missing_debug_implementations, clippy::large_enum_variant, reason = "one of each factor")]
        pub enum Factor<'a> {
            $($kind($amplitudes),)+
        }

        /// What all ratios of one change have in common, for a factor.
        #[allow(missing_docs, clippy::large_enum_variant, reason = "one of each factor")]
        pub enum FactorChange<'a> {
            $($kind(<$amplitudes as Ratios>::SiteChange),)+
        }

        impl<'a> Factor<'a> {
            /// A change of this factor.
            fn change(&self) -> FactorChange<'a> {
                match self {
                    $(Self::$kind(_) => FactorChange::$kind(Default::default()),)+
                }
            }

            fn check(&self, indices: &[LocalIndex]) -> Result<(), Error> {
                match self {
                    $(Self::$kind(amplitudes) => amplitudes.check(indices),)+
                }
            }

            fn cached(&self) -> usize {
                match self {
                    $(Self::$kind(amplitudes) => amplitudes.cached(),)+
                }
            }

            fn changes(&self) -> usize {
                match self {
                    $(Self::$kind(amplitudes) => amplitudes.changes(),)+
                }
            }

            #[inline(always)]
            fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex], samples: usize) {
                match self {
                    $(Self::$kind(amplitudes) => amplitudes.visit(simd, indices, samples),)+
                }
            }

            #[inline(always)]
            fn prepare<S: Simd>(&self, simd: S, change: &mut FactorChange<'a>, sites: &[usize], opposite: &[bool]) {
                match (self, change) {
                    $((Self::$kind(amplitudes), FactorChange::$kind(change)) => {
                        amplitudes.prepare(simd, change, sites, opposite);
                    })+
                    _ => unreachable!("a change is that of its factor"),
                }
            }

            /// Multiplies ratios by those of this factor.
            #[inline(always)]
            fn multiply<S: Simd>(
                &self,
                simd: S,
                change: &FactorChange<'a>,
                n: usize,
                samples: [usize; RATIOS_PER_BLOCK],
                reversed: [bool; RATIOS_PER_BLOCK],
                ratios: &mut [Complex<f64>; RATIOS_PER_BLOCK],
            ) {
                match (self, change) {
                    $((Self::$kind(amplitudes), FactorChange::$kind(change)) => {
                        for (ratio, of_factor) in
                            ratios.iter_mut().zip(amplitudes.ratios(simd, change, n, samples, reversed))
                        {
                            *ratio *= Complex::from(of_factor);
                        }
                    })+
                    _ => unreachable!("a change is that of its factor"),
                }
            }
        }

        /// The modulus of a factor at a configuration that moves.
        #[allow(missing_docs, missing_debug_implementations, clippy::large_enum_variant, reason = "one of each factor")]
        pub enum WalkingFactor<'a> {
            $($walking($walker),)+
        }

        impl amplitudes::Walker for WalkingFactor<'_> {
            fn check(&self, indices: &[LocalIndex]) -> Result<(), Error> {
                match self {
                    $(Self::$walking(walker) => walker.check(indices),)+
                }
            }

            #[inline(always)]
            fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]) {
                match self {
                    $(Self::$walking(walker) => walker.visit(simd, indices),)+
                }
            }

            #[inline(always)]
            fn amplitude_ratio<S: Simd>(&mut self, simd: S, indices: &[LocalIndex], sites: &[u32]) -> AmplitudeRatio {
                match self {
                    $(Self::$walking(walker) => walker.amplitude_ratio(simd, indices, sites),)+
                }
            }

            #[inline(always)]
            fn accept<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]) {
                match self {
                    $(Self::$walking(walker) => walker.accept(simd, indices),)+
                }
            }
        }
    };
}

factors! {
    RealRbm: rbm::Amplitudes<'a, f64, Reals, 1>,
    ComplexRbm: rbm::Amplitudes<'a, f64, Complexes, 2>,
    PairOfRbms: rbm::Amplitudes<'a, f64, RealPairs, 2>,
    RealJastrow: jastrow::Amplitudes<'a, f64, Reals, 1>,
    ComplexJastrow: jastrow::Amplitudes<'a, f64, Complexes, 2>,
    RealDoublonHolon: doublon_holon::Amplitudes<'a, Reals, 1>,
    ComplexDoublonHolon: doublon_holon::Amplitudes<'a, Complexes, 2>,
    RealSlater: fermions::Amplitudes<'a, Slater<f64>>,
    ComplexSlater: fermions::Amplitudes<'a, Slater<Complex<f64>>>,
    RealPfaffians: fermions::Amplitudes<'a, Pfaffians<f64>>,
    ComplexPfaffians: fermions::Amplitudes<'a, Pfaffians<Complex<f64>>>,
    RealCorrelated: correlated::Amplitudes<'a, Slater<f64>>,
    ComplexCorrelated: correlated::Amplitudes<'a, Slater<Complex<f64>>>;
    RealRbm: rbm::Walker<'a, f64, Reals, 1>,
    ComplexRbm: rbm::Walker<'a, f64, Complexes, 2>,
    Jastrow: jastrow::Walker<'a, f64>,
    DoublonHolon: doublon_holon::Walker<'a>,
    RealSlater: fermions::Walker<'a, Slater<f64>>,
    ComplexSlater: fermions::Walker<'a, Slater<Complex<f64>>>,
    RealPfaffians: fermions::Walker<'a, Pfaffians<f64>>,
    ComplexPfaffians: fermions::Walker<'a, Pfaffians<Complex<f64>>>,
    RealCorrelated: correlated::Walker<'a, Slater<f64>>,
    ComplexCorrelated: correlated::Walker<'a, Slater<Complex<f64>>>
}

/// A product at some samples, as [`Ratios`].
pub struct Amplitudes<'a> {
    factors: Vec<Factor<'a>>,
}

impl<'a> Amplitudes<'a> {
    /// Of these factors.
    #[must_use]
    pub fn new(factors: Vec<Factor<'a>>) -> Self {
        Self { factors }
    }
}

impl<'a> Ratios for Amplitudes<'a> {
    type Ratio = Complex<f64>;
    type SiteChange = Vec<FactorChange<'a>>;

    fn check(&self, indices: &[LocalIndex]) -> Result<(), Error> {
        self.factors.iter().try_for_each(|factor| factor.check(indices))
    }

    fn cached(&self) -> usize {
        self.factors.iter().map(Factor::cached).min().unwrap_or(BLOCK)
    }

    fn changes(&self) -> usize {
        self.factors.iter().map(Factor::changes).max().unwrap_or(1)
    }

    #[inline(always)]
    fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex], samples: usize) {
        for factor in &mut self.factors {
            factor.visit(simd, indices, samples);
        }
    }

    #[inline(always)]
    fn prepare<S: Simd>(&self, simd: S, change: &mut Self::SiteChange, sites: &[usize], opposite: &[bool]) {
        if change.is_empty() {
            change.extend(self.factors.iter().map(Factor::change));
        }
        for (factor, change) in self.factors.iter().zip(change) {
            factor.prepare(simd, change, sites, opposite);
        }
    }

    #[inline(always)]
    fn ratios<S: Simd>(
        &self,
        simd: S,
        change: &Self::SiteChange,
        n: usize,
        samples: [usize; RATIOS_PER_BLOCK],
        reversed: [bool; RATIOS_PER_BLOCK],
    ) -> [Complex<f64>; RATIOS_PER_BLOCK] {
        let mut ratios = [Complex::ONE; RATIOS_PER_BLOCK];
        for (factor, change) in self.factors.iter().zip(change) {
            factor.multiply(simd, change, n, samples, reversed, &mut ratios);
        }
        ratios
    }
}

/// The modulus of a product at a configuration that moves.
pub struct Walker<'a> {
    factors: Vec<WalkingFactor<'a>>,
}

impl<'a> Walker<'a> {
    /// Of these factors.
    #[must_use]
    pub fn new(factors: Vec<WalkingFactor<'a>>) -> Self {
        Self { factors }
    }
}

impl amplitudes::Walker for Walker<'_> {
    fn check(&self, indices: &[LocalIndex]) -> Result<(), Error> {
        self.factors.iter().try_for_each(|factor| factor.check(indices))
    }

    #[inline(always)]
    fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]) {
        for factor in &mut self.factors {
            factor.visit(simd, indices);
        }
    }

    #[inline(always)]
    fn amplitude_ratio<S: Simd>(&mut self, simd: S, indices: &[LocalIndex], sites: &[u32]) -> AmplitudeRatio {
        let mut amplitude_ratio = AmplitudeRatio::Squared(1.0);
        for factor in &mut self.factors {
            amplitude_ratio = amplitude_ratio.times(factor.amplitude_ratio(simd, indices, sites));
        }
        amplitude_ratio
    }

    #[inline(always)]
    fn accept<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]) {
        for factor in &mut self.factors {
            factor.accept(simd, indices);
        }
    }
}
