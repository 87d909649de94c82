//! What is asked of amplitudes: ratios, at many samples ([`Ratios`]) or at one configuration that moves ([`Walker`]).

use crate::Error;
use crate::numbers::Ratio;
use crate::sites::LocalIndex;
use pulp::Simd;

/// So many ratios are evaluated together.
pub const RATIOS_PER_BLOCK: usize = 8;

/// ψ(σ') / ψ(σ) for samples σ, and σ' that differ from them on the same sites, in the same ways or all the other way.
///
/// Each site has two local states.
pub trait Ratios {
    /// Real or complex numbers.
    type Ratio: Ratio;

    /// What all ratios of one change have in common.
    type SiteChange: Default;

    /// An error if these amplitudes aren't defined for a sample, given as local indices.
    fn check(&self, _: &[LocalIndex]) -> Result<(), Error> {
        Ok(())
    }

    /// Of so many samples the numbers stay in a cache.
    fn cached(&self) -> usize;

    /// So many changes are prepared before samples are visited, so that what is read of a sample serves all of them.
    fn changes(&self) -> usize {
        16
    }

    /// Sets the samples, as local indices.
    fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex], samples: usize);

    /// Sets how σ' differs: the first one of `sites` goes from its first to its second state, and those of the others that
    /// are `opposite` go the other way.
    fn prepare<S: Simd>(&self, simd: S, change: &mut Self::SiteChange, sites: &[usize], opposite: &[bool]);

    /// The ratios of `n` of the samples, of which there are more to fill the array up. At those that are `reversed` all
    /// sites go the other way.
    fn ratios<S: Simd>(
        &self,
        simd: S,
        change: &Self::SiteChange,
        n: usize,
        samples: [usize; RATIOS_PER_BLOCK],
        reversed: [bool; RATIOS_PER_BLOCK],
    ) -> [Self::Ratio; RATIOS_PER_BLOCK];
}

/// |ψ(σ')/ψ(σ)|, as it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AmplitudeRatio {
    /// Its square.
    Squared(f64),
    /// Its logarithm, where the square might be no number of its own.
    Log(f64),
}

impl AmplitudeRatio {
    /// Those of a product.
    #[inline(always)]
    pub(crate) fn times(self, other: Self) -> Self {
        if let (Self::Squared(one), Self::Squared(other)) = (self, other)
            && (one * other).is_normal()
        {
            return Self::Squared(one * other);
        }
        Self::Log(self.log() + other.log())
    }

    #[inline(always)]
    pub(crate) fn log(self) -> f64 {
        match self {
            Self::Squared(square) => 0.5 * square.ln(),
            Self::Log(log) => log,
        }
    }

    /// Its power, as probabilities have it.
    #[inline(always)]
    pub(crate) fn to_the(self, power: f64) -> f64 {
        match self {
            #[allow(clippy::float_cmp, reason = "nearly always it is exactly 2")]
            Self::Squared(square) if power == 2.0 => square,
            Self::Squared(square) => square.powf(0.5 * power),
            Self::Log(log) => (power * log).exp(),
        }
    }
}

/// An amplitude at a configuration that moves, of sites with two local states each.
pub trait Walker {
    /// As [`Ratios::check`], for where chains begin.
    fn check(&self, _: &[LocalIndex]) -> Result<(), Error> {
        Ok(())
    }

    /// Goes to a configuration of local indices.
    fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]);

    /// The ratio of the amplitude with some sites flipped, each named once, to that of the configuration.
    fn amplitude_ratio<S: Simd>(&mut self, simd: S, indices: &[LocalIndex], sites: &[u32]) -> AmplitudeRatio;

    /// Goes to where [`Walker::amplitude_ratio`] was called for last. The indices are those of the new configuration.
    fn accept<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]);
}
