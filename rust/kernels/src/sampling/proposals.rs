//! Markov chains around an amplitude that is evaluated elsewhere, for many configurations at once.
//!
//! A chain goes on by itself until it has proposed so many configurations whose amplitudes it doesn't know: the next
//! one, and those that it proposes if the ones before are rejected. It goes back to where it proposed the first, and is
//! given the amplitudes. Then it makes the same moves again, up to the first proposal that is accepted, and goes
//! on from there. So a chain is the same however many amplitudes are evaluated at once; those that it asked for in vain
//! had no influence.

use crate::amplitudes::FirstLayer;
use crate::numbers::{Real, dispatch};
use crate::sampling::Sampling;
use crate::sampling::rows::EqualRows;
use crate::sampling::rules::{ProposedChange, TransitionRule};
use crate::sampling::stream::{STREAM_WORDS, Stream};
use crate::sites::LocalIndex;
use pulp::{Simd, WithSimd};
use rand::RngExt;

/// A chain, and what is kept of it between two calls.
#[derive(Debug)]
pub struct Chain<'a, T> {
    /// Its configuration.
    pub indices: &'a mut [LocalIndex],
    /// The logarithm of |ψ|^p there.
    pub log_prob: Estimate,
    /// What it has done so far; zeros at first.
    pub progress: &'a mut [u32; PROGRESS_WORDS],
    /// Its random numbers.
    pub random: &'a mut [u32; STREAM_WORDS],
    /// What its rule keeps ([`TransitionRule::kept`]).
    pub rule: &'a mut [u32],
    /// What the first layer makes of its configuration; empty without one.
    pub sums: &'a mut [T],
    /// Its samples, one behind the other: each is written when the chain comes to it.
    pub samples: &'a mut [LocalIndex],
    /// The logarithms of |ψ|^p of the last samples, of so many as are wanted.
    pub log_probs: &'a mut [T],
}

/// The logarithm of |ψ|^p, and by how much it may be off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Not less than the modulus of its error; 0 for what decides.
    pub error: f64,
}

impl Estimate {
    /// What isn't known yet.
    pub const UNKNOWN: Self = Self::exact(f64::NAN);

    /// A number that decides.
    #[must_use]
    pub const fn exact(value: f64) -> Self {
        Self { value, error: 0.0 }
    }
}

/// Whether a move is accepted, to where this is the logarithm of |ψ|^p; None if the errors are too large to decide.
fn is_accepted(uniform: f64, correction: f64, from: Estimate, to: Estimate) -> Option<bool> {
    // Not accepted if it isn't a number.
    let accepted = |difference: f64| uniform < difference.exp() * correction;
    let (difference, error) = (to.value - from.value, to.error + from.error);
    if error == 0.0 {
        return Some(accepted(difference));
    }
    let (least, most) = (accepted(difference - error), accepted(difference + error));
    (least == most && difference.is_finite() && error.is_finite()).then_some(least)
}

/// How many words keep what a chain has done. The third one is how many of its moves were accepted.
pub const PROGRESS_WORDS: usize = 5;

/// What a chain has done so far.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// How many random numbers it has drawn, as words.
    drawn: u64,
    /// How many moves it has made.
    moves: u32,
    /// How many of them were accepted.
    accepted: u32,
    /// Of how many proposals it waits for the amplitudes.
    asked: u32,
}

impl Progress {
    fn of([moves, asked, accepted, low, high]: [u32; PROGRESS_WORDS]) -> Self {
        Self { drawn: u64::from(low) | u64::from(high) << 32, moves, accepted, asked }
    }

    fn words(self) -> [u32; PROGRESS_WORDS] {
        [self.moves, self.asked, self.accepted, self.drawn as u32, (self.drawn >> 32) as u32]
    }
}

/// After so many moves that were accepted the sums of the first layer are made anew, so that no error adds up.
const ANEW: u32 = 256;

/// Takes chains from one proposal to the next.
#[derive(Debug)]
pub struct Proposer<'a, T, R> {
    sampling: &'a Sampling,
    rule: R,
    layer: FirstLayer<'a, T>,
    change: ProposedChange,
}

impl<'a, T: Real, R: TransitionRule> Proposer<'a, T, R> {
    /// By this rule, for a network with this first layer.
    pub fn new(sampling: &'a Sampling, rule: R, layer: FirstLayer<'a, T>) -> Self {
        Self { sampling, rule, layer, change: ProposedChange::default() }
    }

    pub(super) fn layer(&self) -> FirstLayer<'a, T> {
        self.layer
    }

    /// Has a chain go on, with the amplitudes of what it has proposed, until it proposes as much again or has made all
    /// moves. Before the first time nothing is kept of it: all is zero.
    ///
    /// Where there is room for more proposals than are made, they are the configuration of the chain.
    pub fn proceed(&mut self, request: &mut EvaluationRequest<T>) {
        dispatch(Proceed { proposer: self, request });
    }
}

/// A chain, the amplitudes that it has asked for, and the next ones that it asks for.
#[derive(Debug)]
pub struct EvaluationRequest<'a, T> {
    /// The number of the chain among all.
    pub number: u64,
    /// The chain.
    pub chain: Chain<'a, T>,
    /// The logarithms of |ψ|^p of its last proposals.
    pub estimates: Vec<Estimate>,
    /// What it proposes, as many configurations as estimates.
    pub proposals: &'a mut [LocalIndex],
    /// What the first layer makes of them.
    pub sums: &'a mut [T],
    /// What it waits for.
    pub pending: Pending,
}

/// What a chain waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pending {
    /// The amplitudes of its proposals.
    Proposals,
    /// Those of its configuration and its first proposal, without an error.
    Exactly,
    /// Nothing: it has made all moves.
    Nothing,
}

/// What [`Proposer::proceed`] does.
struct Proceed<'p, 'a, 'c, T, R> {
    proposer: &'p mut Proposer<'a, T, R>,
    request: &'p mut EvaluationRequest<'c, T>,
}

impl<T: Real, R: TransitionRule> WithSimd for Proceed<'_, '_, '_, T, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Proposer { sampling, rule, layer, change } = self.proposer;
        let EvaluationRequest { number, chain, estimates, proposals, sums, pending } = self.request;
        let Chain { indices, log_prob, progress, random, rule: kept, sums: own_sums, samples, log_probs } = chain;
        if **progress == [0; PROGRESS_WORDS] {
            rule.visit(indices);
            layer.evaluate(indices, own_sums);
        } else {
            rule.restore(indices, kept);
        }
        let Progress { drawn, mut moves, mut accepted, mut asked } = Progress::of(**progress);
        let (sites, sweep) = (indices.len().max(1), sampling.sweep as u32);
        let length = samples.len() / sites;
        let all = sweep * length as u32;
        let mut rng = Stream::new(&sampling.key, *number, drawn, random);
        let mut estimates = estimates[..asked as usize].iter();
        let mut proposals = proposals.chunks_exact_mut(sites);
        let mut sums = EqualRows::new(sums, layer.width());
        (*pending, asked) = (Pending::Nothing, 0);
        // How far the chain is known to go: random numbers and moves.
        let mut known = None;
        while moves < all && proposals.len() > 0 {
            let before = (rng.drawn, moves);
            moves += 1;
            change.clear();
            // How much likelier the way back is proposed than the way there.
            let correction = rule.propose(&mut rng, indices, change);
            let uniform: f64 = if correction.is_some() { rng.random() } else { 0.0 };
            // A move that leads nowhere has the same amplitude, whatever it is.
            let here = if change.is_empty() { Estimate::exact(log_prob.value) } else { *log_prob };
            let estimate = if change.is_empty() { Some(here) } else { estimates.next().copied() };
            let is_known = estimate.is_some();
            let decision = estimate.and_then(|there| {
                let is_accepted = correction.map_or(Some(false), |it| is_accepted(uniform, it, here, there));
                is_accepted.map(|is_accepted| (there, is_accepted))
            });
            let Some((estimate, is_accepted)) = decision else {
                if let Some(proposal) = proposals.next() {
                    proposal.copy_from_slice(indices);
                    change.apply(proposal);
                    layer.change(change.from(indices), own_sums, sums.take());
                }
                known.get_or_insert(before);
                asked += 1;
                rule.reject();
                if is_known {
                    *pending = Pending::Exactly;
                    break;
                }
                *pending = Pending::Proposals;
                continue;
            };
            if known.is_some() {
                continue; // a move that leads nowhere, behind one that may lead elsewhere
            }
            if is_accepted {
                accepted += 1;
                if !change.is_empty() {
                    *log_prob = estimate;
                    layer.update(change.from(indices), own_sums);
                    change.apply(indices);
                    if accepted.is_multiple_of(ANEW) {
                        layer.evaluate(indices, own_sums);
                    }
                    rule.accept();
                    estimates = [].iter();
                }
            } else if !change.is_empty() {
                rule.reject();
            }
            if moves.is_multiple_of(sweep) {
                let place = (moves / sweep - 1) as usize;
                samples[place * sites..][..sites].copy_from_slice(indices);
                if let Some(place) = (place + log_probs.len()).checked_sub(length) {
                    log_probs[place] = T::nearest(log_prob.value);
                }
            }
        }
        for proposal in proposals {
            proposal.copy_from_slice(indices);
            sums.take().copy_from_slice(own_sums);
        }
        rule.keep(kept);
        let (drawn, moves) = known.unwrap_or((rng.drawn, moves));
        **progress = Progress { drawn, moves, accepted, asked }.words();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::amplitudes::{AmplitudeRatio, Walker};
    use crate::numbers::each_level;
    use crate::sampling::rules::testing::by_site;
    use crate::sampling::rules::{ClusterTables, Clusters, Exchange, Local};
    use crate::sampling::{self, KEY_WORDS};
    use proptest::prelude::*;

    /// The logarithm of an amplitude: so much for each site and state, and for the pair of the first two sites.
    fn log_psi(indices: &[LocalIndex]) -> f64 {
        let of_sites = indices.iter().enumerate().map(|(site, &index)| f64::from(index) * (0.3 * site as f64 - 0.5));
        of_sites.sum::<f64>() + if indices[0] == indices[1] { 0.7 } else { 0.0 }
    }

    struct Known(Vec<LocalIndex>);

    impl Walker for Known {
        fn visit<S: Simd>(&mut self, _: S, indices: &[LocalIndex]) {
            self.0 = indices.to_vec();
        }

        fn amplitude_ratio<S: Simd>(&mut self, _: S, indices: &[LocalIndex], sites: &[u32]) -> AmplitudeRatio {
            let mut there = indices.to_vec();
            for &site in sites {
                there[site as usize] ^= 1;
            }
            AmplitudeRatio::Log(log_psi(&there) - log_psi(indices))
        }

        fn accept<S: Simd>(&mut self, _: S, _: &[LocalIndex]) {}
    }

    /// What a chain keeps, and gives.
    pub(in crate::sampling) struct Kept {
        indices: Vec<LocalIndex>,
        log_prob: f64,
        pub(in crate::sampling) progress: [u32; PROGRESS_WORDS],
        random: [u32; STREAM_WORDS],
        rule: Vec<u32>,
        sums: Vec<f64>,
        pub(in crate::sampling) samples: Vec<LocalIndex>,
        pub(in crate::sampling) log_probs: Vec<f64>,
    }

    impl Kept {
        /// Before the first move. The samples are none yet.
        pub(in crate::sampling) fn at(
            start: &[LocalIndex],
            log_prob: f64,
            rule: usize,
            width: usize,
            length: usize,
        ) -> Self {
            Self {
                indices: start.to_vec(),
                log_prob,
                progress: [0; PROGRESS_WORDS],
                random: [0; STREAM_WORDS],
                rule: vec![0; rule],
                sums: vec![9.0; width],
                samples: vec![9; start.len() * length],
                log_probs: vec![f64::NAN; length],
            }
        }

        /// A request that asks for the amplitudes of these proposals at once.
        pub(in crate::sampling) fn request<'a>(
            &'a mut self,
            number: u64,
            proposals: &'a mut [LocalIndex],
            sums: &'a mut [f64],
        ) -> EvaluationRequest<'a, f64> {
            let n_speculative = proposals.len() / self.indices.len();
            EvaluationRequest {
                number,
                chain: Chain {
                    indices: &mut self.indices,
                    log_prob: Estimate::exact(self.log_prob),
                    progress: &mut self.progress,
                    random: &mut self.random,
                    rule: &mut self.rule,
                    sums: &mut self.sums,
                    samples: &mut self.samples,
                    log_probs: &mut self.log_probs,
                },
                estimates: vec![Estimate::UNKNOWN; n_speculative],
                proposals,
                sums,
                pending: Pending::Proposals,
            }
        }
    }

    /// The samples of a chain that asks for `n_speculative` amplitudes at once, how many moves were accepted, how often it
    /// asked. The sums of the first layer with these constants come with each proposal.
    #[allow(clippy::too_many_arguments, reason = "all of a chain")]
    fn run_chain<R: TransitionRule>(
        sampling: &Sampling,
        power: f64,
        rule: R,
        start: &[LocalIndex],
        length: usize,
        n_speculative: usize,
        layer: &FirstLayer<f64>,
        constants: &[f64],
    ) -> (Vec<LocalIndex>, u64, usize) {
        let width = constants.len();
        let mut kept = Kept::at(start, power * log_psi(start), rule.kept(), width, length);
        let (mut proposals, mut sums) = (vec![9; start.len() * n_speculative], vec![9.0; width * n_speculative]);
        let mut proposer = Proposer::new(sampling, rule, *layer);
        let mut calls = 0;
        let mut request = kept.request(3, &mut proposals, &mut sums);
        loop {
            proposer.proceed(&mut request);
            let EvaluationRequest { pending: Pending::Proposals, proposals, sums, estimates, .. } = &mut request else {
                break;
            };
            calls += 1;
            for (place, proposal) in proposals.chunks(start.len()).enumerate() {
                let mut expected = constants.to_vec();
                layer.evaluate(proposal, &mut expected);
                for (sum, expected) in sums[place * width..].iter().zip(expected) {
                    assert!((sum - expected).abs() < 1e-12);
                }
            }
            for (estimate, proposal) in estimates.iter_mut().zip(proposals.chunks(start.len())) {
                *estimate = Estimate::exact(power * log_psi(proposal));
            }
        }
        assert_eq!(request.pending, Pending::Nothing);
        for (sample, &log_prob) in kept.samples.chunks(start.len()).zip(&kept.log_probs) {
            assert_eq!(log_prob, power * log_psi(sample));
        }
        let Progress { moves, accepted, .. } = Progress::of(kept.progress);
        assert_eq!(moves as usize, sampling.sweep * length);
        assert_eq!(kept.indices, kept.samples[kept.samples.len() - start.len()..]);
        (kept.samples, accepted.into(), calls)
    }

    proptest! {
        #[test]
        fn a_chain_is_the_same_however_many_amplitudes_it_asks_for(
            seed: u32, power in 0.5..3.0, sweep in 1_usize..7, length in 1_usize..20, n_speculative in 1_usize..7,
        ) {
            let sampling = Sampling { key: [seed; KEY_WORDS], sweep };
            let start = [0, 1, 0, 1, 1, 0];
            let pairs = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 0], [0, 3]];
            let (first, of_site) = by_site(6, &pairs);
            let tables = ClusterTables { pairs: &pairs, weights: &[], first: &first, of_site: &of_site };
            let clusters = Clusters::new(6, tables).expect("pairs of sites");
            let weights = [1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 0.7];
            let weighted = Clusters::new(6, ClusterTables { weights: &weights, ..tables }).expect("pairs of sites");
            let (constants, table) = (vec![0.5, -1.0, 2.0], (0..18).map(|i| f64::from(i).sin()).collect::<Vec<_>>());
            let layer = FirstLayer::new(6, 2, &constants, &table).expect("a table");
            macro_rules! compare {
                ($rule:expr) => {{
                    let mut expected = vec![9; 6 * length];
                    let accepted =
                        sampling::run(&sampling, power, 3, &mut Known(Vec::new()), &mut $rule, &start, &mut expected);
                    for _ in each_level() {
                        let (samples, asked_accepted, calls) =
                            run_chain(&sampling, power, $rule, &start, length, n_speculative, &layer, &constants);
                        prop_assert_eq!((&samples, asked_accepted), (&expected, accepted));
                        prop_assert!(calls <= sweep * length);
                    }
                }};
            }
            compare!(Local::new(&[2; 6]));
            compare!(Exchange::new(clusters));
            compare!(Exchange::new(weighted));
        }
    }

    #[test]
    fn several_at_once_take_fewer_calls() {
        let sampling = Sampling { key: [5; KEY_WORDS], sweep: 4 };
        let layer = FirstLayer::new(6, 2, &[], &[]).expect("no table");
        let calls =
            |n_speculative| run_chain(&sampling, 2.0, Local::new(&[2; 6]), &[0; 6], 500, n_speculative, &layer, &[]).2;
        assert_eq!(calls(1), 2000);
        assert!(calls(4) < 1500, "{}", calls(4));
    }

    /// The sums are made anew now and then: without that their errors are ten times as large here.
    #[test]
    fn errors_of_the_first_layer_do_not_add_up() {
        let sampling = Sampling { key: [7; KEY_WORDS], sweep: 40 };
        let (constants, table) = ([0.1; 8], (0..8 * 6).map(|i| f64::from(i).sin()).collect::<Vec<_>>());
        let layer = FirstLayer::new(6, 2, &constants, &table).expect("a table");
        let mut kept = Kept::at(&[0; 6], 2.0 * log_psi(&[0; 6]), 0, 8, 1000);
        let (mut sums, mut proposal) = ([9.0; 8], [9; 6]);
        let mut largest = 0.0_f64;
        let mut proposer = Proposer::new(&sampling, Local::new(&[2; 6]), layer);
        let mut request = kept.request(0, &mut proposal, &mut sums);
        while request.pending == Pending::Proposals {
            proposer.proceed(&mut request);
            let EvaluationRequest { proposals, sums, estimates, .. } = &mut request;
            estimates[0] = Estimate::exact(2.0 * log_psi(proposals));
            let mut expected = constants;
            layer.evaluate(proposals, &mut expected);
            largest =
                sums.iter().zip(expected).fold(largest, |largest, (sum, expected)| largest.max((sum - expected).abs()));
        }
        assert!(kept.progress[2] > 10_000);
        assert!(largest < 1e-14, "{largest:e}");
    }

    #[test]
    fn sites_with_more_states_are_as_likely_as_they_should_be() {
        let (sampling, length) = (Sampling { key: [6; KEY_WORDS], sweep: 6 }, 20_000);
        let sizes = [3, 2, 4];
        let layer = FirstLayer::new(3, 4, &[], &[]).expect("no table");
        let (samples, ..) = run_chain(&sampling, 2.0, Local::new(&sizes), &[2, 0, 3], length, 3, &layer, &[]);
        let all = (0..3).flat_map(|a| (0..2).flat_map(move |b| (0..4).map(move |c| [a, b, c])));
        let weight = |indices: [LocalIndex; 3]| (2.0 * log_psi(&indices)).exp();
        let norm: f64 = all.clone().map(weight).sum();
        for indices in all {
            let found = samples.chunks(3).filter(|sample| **sample == indices).count() as f64 / length as f64;
            let expected = weight(indices) / norm;
            // Four deviations, of samples that depend a little on those before.
            assert!((found - expected).abs() < 4.0 * (2.0 * expected / length as f64).sqrt(), "{indices:?} {found}");
        }
    }

    /// Whether a move is accepted, by numbers with errors.
    #[test]
    fn errors_leave_open_what_they_may_change() {
        let (here, ln_half) = (Estimate { value: 1.0, error: 0.01 }, 0.5_f64.ln());
        let to = |difference: f64| Estimate { value: 1.0 + difference, error: 0.02 };
        assert_eq!(is_accepted(0.5, 1.0, here, to(ln_half + 0.031)), Some(true));
        assert_eq!(is_accepted(0.5, 1.0, here, to(ln_half - 0.031)), Some(false));
        for difference in [0.029, 0.0, -0.029] {
            assert_eq!(is_accepted(0.5, 1.0, here, to(ln_half + difference)), None);
            assert_eq!(is_accepted(0.25, 0.5, here, to(ln_half + difference)), None);
        }
        for unknown in [f64::NAN, f64::INFINITY] {
            assert_eq!(is_accepted(0.5, 1.0, here, Estimate { value: 1.0, error: unknown }), None);
            assert_eq!(is_accepted(0.5, 1.0, here, Estimate { value: unknown, error: 0.1 }), None);
        }
        assert_eq!(is_accepted(0.5, 1.0, Estimate::exact(1.0), Estimate::UNKNOWN), Some(false));
    }

    #[test]
    fn what_is_no_number_is_not_accepted_and_a_start_of_probability_zero_is_left() {
        let sampling = Sampling { key: [1; KEY_WORDS], sweep: 1 };
        let layer = FirstLayer::new(2, 2, &[], &[]).expect("no table");
        for (of_proposal, log_prob, moves) in [(f64::NAN, 0.0, false), (0.0, f64::NEG_INFINITY, true)] {
            let (mut kept, mut proposals) = (Kept::at(&[0, 0], log_prob, 0, 0, 1), [9; 2]);
            let mut request = kept.request(0, &mut proposals, &mut []);
            for pending in [Pending::Proposals, Pending::Nothing] {
                Proposer::new(&sampling, Local::new(&[2, 2]), layer).proceed(&mut request);
                assert_eq!(request.pending, pending);
                request.estimates[0] = Estimate::exact(of_proposal);
            }
            assert_eq!(kept.samples != [0, 0], moves);
            assert_eq!(kept.progress[..3], [1, 0, u32::from(moves)]);
        }
    }
}
