//! Markov chains of configurations, by the rule of Metropolis and Hastings.
//!
//! A move from σ to σ' is accepted with probability min(1, |ψ(σ')/ψ(σ)|^p T(σ' → σ) / T(σ → σ')), where T is how likely a
//! [`TransitionRule`] proposes it. A [`Walker`] knows the ratio of the amplitudes without evaluating either.
//!
//! The random numbers of a chain are a stream of their own, of which the key and the number of the chain are all there
//! is to know: a chain is the same whichever thread, device or process runs it, and beside whichever others.

use crate::amplitudes::Walker;
use crate::numbers::dispatch;
use crate::sampling::rules::{ProposedChange, TransitionRule};
use crate::sampling::stream::random_numbers;
use crate::sites::LocalIndex;
use pulp::{Simd, WithSimd};
use rand::RngExt;

/// The words of a [`Key`].
pub const KEY_WORDS: usize = 8;

/// What all chains' random numbers depend on.
pub type Key = [u32; KEY_WORDS];

/// What chains have in common.
#[derive(Debug, Clone, Copy)]
pub struct Sampling {
    /// What their random numbers depend on.
    pub key: Key,
    /// So many moves are proposed between samples.
    pub sweep: usize,
}

/// Runs one chain of the distribution |ψ|^p from a configuration on, and writes its samples, one behind the other. Gives
/// how many moves were accepted. The chain has this number among all.
pub fn run<W: Walker, R: TransitionRule>(
    sampling: &Sampling,
    power: f64,
    number: u64,
    walker: &mut W,
    rule: &mut R,
    start: &[LocalIndex],
    samples: &mut [LocalIndex],
) -> u64 {
    dispatch(RunChain { sampling, power, number, walker, rule, start, samples })
}

/// What [`run`] does.
struct RunChain<'a, W, R> {
    sampling: &'a Sampling,
    power: f64,
    number: u64,
    walker: &'a mut W,
    rule: &'a mut R,
    start: &'a [LocalIndex],
    samples: &'a mut [LocalIndex],
}

impl<W: Walker, R: TransitionRule> WithSimd for RunChain<'_, W, R> {
    type Output = u64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> u64 {
        let Self { sampling, power, number, walker, rule, start, samples } = self;
        let mut rng = random_numbers(&sampling.key, number);
        let mut indices = start.to_vec();
        let mut change = ProposedChange::default();
        let mut accepted = 0;
        walker.visit(simd, &indices);
        rule.visit(&indices);
        for sample in samples.chunks_exact_mut(indices.len().max(1)) {
            for _ in 0..sampling.sweep {
                change.clear();
                // How much likelier the way back is proposed than the way there.
                let Some(correction) = rule.propose(&mut rng, &indices, &mut change) else { continue };
                let uniform: f64 = rng.random();
                let amplitude_ratio = if change.is_empty() {
                    1.0
                } else {
                    walker.amplitude_ratio(simd, &indices, &change.sites).to_the(power)
                };
                // Not accepted if it isn't a number.
                if uniform < amplitude_ratio * correction {
                    accepted += 1;
                    if !change.is_empty() {
                        change.apply(&mut indices);
                        walker.accept(simd, &indices);
                        rule.accept();
                    }
                } else {
                    rule.reject();
                }
            }
            sample.copy_from_slice(&indices);
        }
        accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::AmplitudeRatio;
    use crate::numbers::each_level;
    use crate::sampling::rules::Local;

    /// ψ that is `up` to the power of how many sites have their second local state.
    struct Product {
        up: f64,
        visited: Vec<LocalIndex>,
    }

    impl Walker for Product {
        fn visit<S: Simd>(&mut self, _: S, indices: &[LocalIndex]) {
            self.visited = indices.to_vec();
        }

        fn amplitude_ratio<S: Simd>(&mut self, _: S, indices: &[LocalIndex], sites: &[u32]) -> AmplitudeRatio {
            assert_eq!(indices, self.visited);
            let log: f64 =
                sites.iter().map(|&site| if indices[site as usize] == 0 { self.up.ln() } else { -self.up.ln() }).sum();
            if sites[0] == 0 { AmplitudeRatio::Log(log) } else { AmplitudeRatio::Squared((2.0 * log).exp()) }
        }

        fn accept<S: Simd>(&mut self, _: S, indices: &[LocalIndex]) {
            self.visited = indices.to_vec();
        }
    }

    fn samples(key: u32, power: f64, chain: u64, up: f64, length: usize) -> (Vec<LocalIndex>, u64) {
        let sampling = Sampling { key: [key; KEY_WORDS], sweep: 5 };
        let mut samples = vec![7; 3 * length];
        let mut walker = Product { up, visited: Vec::new() };
        let accepted = run(&sampling, power, chain, &mut walker, &mut Local::new(&[2; 3]), &[0, 1, 0], &mut samples);
        for _ in each_level() {
            let mut same = vec![7; 3 * length];
            let also = run(&sampling, power, chain, &mut walker, &mut Local::new(&[2; 3]), &[0, 1, 0], &mut same);
            assert_eq!((&same, also), (&samples, accepted));
        }
        (samples, accepted)
    }

    #[test]
    fn sites_are_as_likely_as_they_should_be() {
        for power in [0.5, 2.0, 3.0] {
            let (samples, accepted) = samples(1, power, 0, 0.6, 20_000);
            let weight = 0.6_f64.powf(power);
            let found = samples.iter().map(|&index| f64::from(index)).sum::<f64>() / samples.len() as f64;
            // Four deviations of samples that hardly depend on those before.
            assert!((found - weight / (1.0 + weight)).abs() < 4.0 * (0.25_f64 / 60_000.0).sqrt() * 1.5, "{found}");
            // Half of the moves go each way.
            let expected = 2.0 * weight / (1.0 + weight);
            assert!((accepted as f64 / 100_000.0 - expected).abs() < 0.01, "{accepted}");
        }
    }

    #[test]
    fn streams_depend_on_key_and_chain_alone() {
        let one = samples(1, 2.0, 3, 0.6, 50);
        assert_eq!(one, samples(1, 2.0, 3, 0.6, 50));
        assert_eq!(one.0[..60], samples(1, 2.0, 3, 0.6, 20).0, "the beginning of a longer chain");
        assert_ne!(one.0, samples(1, 2.0, 4, 0.6, 50).0);
        assert_ne!(one.0, samples(2, 2.0, 3, 0.6, 50).0);
    }

    #[test]
    fn what_is_no_number_is_not_accepted() {
        let (samples, accepted) = samples(1, 2.0, 0, f64::NAN, 4);
        assert_eq!((samples, accepted), ([0, 1, 0].repeat(4), 0));
    }
}
