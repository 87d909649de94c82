//! Markov chains around a network, which XLA evaluates, or its program here.

use crate::dtypes::Weights;
use crate::errors::invalid;
use crate::first_layer::read_layer;
use crate::operators::{MatricesOf, Operator};
use crate::rules::{check_indices, read_key, read_sweep, with_rule};
use ferroket_kernels::amplitudes::FirstLayer;
use ferroket_kernels::numbers::Real;
use ferroket_kernels::sampling::rules::{Connected, TransitionRule};
use ferroket_kernels::sampling::{
    Chain, EqualRows, Estimate, EvaluationRequest, MixedPrecision, PROGRESS_WORDS, Pending, Proposer, STREAM_WORDS,
    Sampling,
};
use ferroket_kernels::sites::{LocalIndex, LocalStates, Sites, StateRange};
use ferroket_xla_ffi::{Arguments, Buffer, DataType, Element, Error, Frame, Rows, handler};

/// A thread has so many chains at least, if they make a move each.
const AT_LEAST: usize = 32;

handler! {
    /// Has chains go on until they need amplitudes. Arguments `proposed_log_probs (C, K)`, the logarithms of |ψ|^p of
    /// what was proposed last, float32 or float64; `chains (C,)` of uint32, the numbers of the chains; `key (8,)` of
    /// uint32; and `sizes (N,)` of uint16, how many local states each site has.
    ///
    /// Then those that become the results of the same shapes: `indices (C, N)` of uint16, the configurations; `progress
    /// (C, 5)`, `random (C, 66)` and `kept (C, R)` of uint32, see [`Chain`], zeros at first; `log_prob (C,)`;
    /// `samples (C, L, N)` of uint16; `log_probs` of the last samples of each chain; and `own_sums (C, H)`. Then
    /// `constant (H,)` and `table (N, D - 1, H)` of a first layer, see [`FirstLayer`], with H = 0 without one; `words` and
    /// `tables` of the program behind it, and the power p, if it is to decide all moves of the chains; and the
    /// arguments of the rule, as for [`crate::chains::rbm`].
    ///
    /// Attributes `rule`, `sweep` and `program`, whether there is one; of the rule `hamiltonian` also `matrices`, whether
    /// its operator has the form of matrices. More results: `proposals (C, K, N)` of uint16; `sums (C, K, H)`, what the
    /// first layer makes of them; and `waiting ()` of int32, how many chains wait for amplitudes.
    pub(crate) fn proposals = call
}

fn call(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let proposed_log_probs = args.any("proposed_log_probs")?;
    if proposed_log_probs.dtype() == DataType::F32 {
        run::<f32>(frame, args, &proposed_log_probs.typed()?)
    } else {
        run::<f64>(frame, args, &proposed_log_probs.typed()?)
    }
}

#[allow(clippy::too_many_lines, reason = "it reads one argument after the other")]
fn run<'a, T: Real + Element>(
    frame: &Frame<'a>,
    mut args: Arguments<'_, 'a>,
    proposed_log_probs: &Buffer<T>,
) -> Result<(), Error> {
    proposed_log_probs.expect_rank(2)?;
    let &[chains, n_speculative] = proposed_log_probs.dims() else { unreachable!("there are two dimensions") };
    let numbers = args.typed::<u32>("chains")?;
    numbers.expect_dims(&[chains])?;
    let key = read_key(&mut args)?;
    let sizes = args.vector::<LocalIndex>("sizes")?;
    let sites = sizes.len();
    let mut results = frame.results();
    let indices = results.updated::<LocalIndex>(&mut args, "indices")?;
    indices.expect_dims(&[chains, sites])?;
    let progress = results.updated::<u32>(&mut args, "progress")?;
    progress.expect_dims(&[chains, PROGRESS_WORDS])?;
    let random = results.updated::<u32>(&mut args, "random")?;
    random.expect_dims(&[chains, STREAM_WORDS])?;
    let kept = results.updated::<u32>(&mut args, "kept")?;
    kept.expect_rank(2)?;
    let kept_words = kept.dims()[1];
    kept.expect_dims(&[chains, kept_words])?;
    let log_prob = results.updated::<T>(&mut args, "log_prob")?;
    log_prob.expect_dims(&[chains])?;
    let samples = results.updated::<LocalIndex>(&mut args, "samples")?;
    samples.expect_rank(3)?;
    let length = samples.dims()[1];
    samples.expect_dims(&[chains, length, sites])?;
    let log_probs = results.updated::<T>(&mut args, "log_probs")?;
    log_probs.expect_rank(2)?;
    let wanted = log_probs.dims()[1].min(length);
    log_probs.expect_dims(&[chains, wanted])?;
    let own_sums = results.updated::<T>(&mut args, "own_sums")?;
    let layer = read_layer::<T>(&mut args, sizes.iter().map(|&size| usize::from(size)))?;
    let width = layer.width();
    own_sums.expect_dims(&[chains, width])?;
    let of_program = if frame.attr_bool("program")? {
        Some((args.vector::<i32>("words")?, args.vector::<T>("tables")?, args.scalar("power")?))
    } else {
        None
    };
    let proposals = results.typed::<LocalIndex>("proposals")?;
    proposals.expect_dims(&[chains, n_speculative, sites])?;
    let sums = results.typed::<T>("sums")?;
    sums.expect_dims(&[chains, n_speculative, width])?;
    let waiting = results.typed::<i32>("waiting")?;
    waiting.expect_dims(&[])?;
    results.finish()?;
    let sampling = &Sampling { key, sweep: read_sweep(frame)? };
    check_moves(sampling.sweep, length)?;
    let indices = indices.into_mut_slice();
    let progress = progress.into_mut_slice().as_chunks_mut().0;
    // What chains have come to by themselves is right.
    let begins = progress.first().is_some_and(|progress| *progress == [0; PROGRESS_WORDS]);
    if begins {
        check_indices(indices, sizes, numbers.as_slice())?;
    }

    // A part of the chains would take layers as long as all of them.
    let share = chains.div_ceil(frame.pool().threads());
    let moves = share.saturating_mul(length).saturating_mul(sampling.sweep);
    let mixed_precision =
        of_program.map(|(words, tables, power)| MixedPrecision::new(words, tables, power, moves)).transpose();
    let mixed_precision = mixed_precision.map_err(|error| invalid(&error))?;
    if let Some(inputs) = mixed_precision.as_ref().map(MixedPrecision::inputs).filter(|&inputs| inputs != width) {
        return Err(Error::invalid(format!("the program takes {inputs} numbers, not {width}")));
    }
    let mut indices = EqualRows::new(indices, sites);
    let mut kept = EqualRows::new(kept.into_mut_slice(), kept_words);
    let mut samples = EqualRows::new(samples.into_mut_slice(), length * sites);
    let mut log_probs = EqualRows::new(log_probs.into_mut_slice(), wanted);
    let mut proposals = EqualRows::new(proposals.into_mut_slice(), n_speculative * sites);
    let mut own_sums = EqualRows::new(own_sums.into_mut_slice(), width);
    let mut sums = EqualRows::new(sums.into_mut_slice(), n_speculative * width);
    let random = random.into_mut_slice().as_chunks_mut().0;
    let log_prob = log_prob.into_mut_slice();
    let of_one = progress.iter_mut().zip(random).zip(&*log_prob);
    let mut requests: Vec<_> = of_one
        .enumerate()
        .map(|(place, ((progress, random), log_prob))| EvaluationRequest {
            number: numbers.as_slice()[place].into(),
            estimates: proposed_log_probs.as_slice()[place * n_speculative..][..n_speculative]
                .iter()
                .copied()
                .map(estimate)
                .collect(),
            proposals: proposals.take(),
            sums: sums.take(),
            chain: Chain {
                indices: indices.take(),
                log_prob: estimate(*log_prob),
                progress,
                random,
                rule: kept.take(),
                sums: own_sums.take(),
                samples: samples.take(),
                log_probs: log_probs.take(),
            },
            pending: Pending::Proposals,
        })
        .collect();
    let proceed = Proceed { frame, sampling, layer, mixed_precision: mixed_precision.as_ref(), kept_words, share };
    if frame.attr_str("rule")? == "hamiltonian" && frame.attr_bool("matrices")? {
        let sites = &sites_of(sizes)?;
        let states = &LocalStates::new(sites).map_err(|error| invalid(&error))?;
        let Operator { form, values, .. } = Operator::<MatricesOf>::on_sites(frame, &mut args, sites.clone())?;
        args.finish()?;
        let values = Weights::read(values)?.into_complex();
        proceed.all(&mut requests, || Connected::new(&form, &values, states))?;
    } else {
        with_rule!(frame, args, sizes, begins, rule => {
            args.finish()?;
            proceed.all(&mut requests, rule)
        })?;
    }
    let count = requests.iter().filter(|request| request.pending != Pending::Nothing).count();
    for (log_prob, request) in log_prob.iter_mut().zip(&requests) {
        *log_prob = T::nearest(request.chain.log_prob.value);
    }
    waiting.into_mut_slice()[0] = i32::try_from(count).unwrap_or(i32::MAX);
    Ok(())
}

fn check_moves(sweep: usize, length: usize) -> Result<(), Error> {
    if u32::try_from(sweep.saturating_mul(length)).is_err() {
        return Err(Error::invalid(format!(
            "{length} samples with {sweep} moves each are more than 2**32 moves of a chain: take fewer samples at once"
        )));
    }
    Ok(())
}

fn estimate<T: Real>(log_prob: T) -> Estimate {
    Estimate::exact(log_prob.into())
}

/// Sites with so many local states, whose values are their local indices.
fn sites_of(sizes: &[LocalIndex]) -> Result<Sites, Error> {
    let mut kinds = sizes.to_vec();
    kinds.sort_unstable();
    kinds.dedup();
    let kind: Vec<_> = sizes.iter().map(|size| kinds.partition_point(|other| other < size) as i32).collect();
    let range = |&size: &LocalIndex| StateRange { start: 0.0, step: 1.0, size: size.into() };
    Sites::new(sizes.len(), kinds.iter().map(range).collect(), &kind).map_err(|error| invalid(&error))
}

/// What all chains have in common.
struct Proceed<'p, 'a, T> {
    frame: &'p Frame<'a>,
    sampling: &'p Sampling,
    layer: FirstLayer<'a, T>,
    mixed_precision: Option<&'p MixedPrecision<T>>,
    kept_words: usize,
    /// How many chains a thread has where it evaluates layers.
    share: usize,
}

impl<T: Real> Proceed<'_, '_, T> {
    /// Has all chains go on, by this rule.
    fn all<R: TransitionRule>(
        &self,
        requests: &mut [EvaluationRequest<T>],
        rule: impl Fn() -> R + Sync,
    ) -> Result<(), Error> {
        let Self { frame, sampling, layer, mixed_precision, kept_words, share } = *self;
        let words = rule().kept();
        if kept_words != words {
            return Err(Error::invalid(format!("the rule keeps {words} words for each chain, not {kept_words}")));
        }
        let at_least = if mixed_precision.is_some() { share } else { AT_LEAST };
        frame.pool().for_each_part(requests.len(), at_least, Rows::new(requests, 1), |_, part| {
            let part = part.into_slice();
            let mut proposer = Proposer::new(sampling, rule(), layer);
            match mixed_precision {
                Some(mixed_precision) => mixed_precision.run_chains(&mut proposer, part),
                None => part.iter_mut().for_each(|request| proposer.proceed(request)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::POOLS;
    use ferroket_kernels::sampling::KEY_WORDS;
    use ferroket_xla_ffi::testing::{TestFrame, Threads};

    const CHAINS: usize = 80;
    const LENGTH: usize = 5;

    /// What a call gives back to the next one.
    #[derive(Clone)]
    struct State {
        indices: Vec<LocalIndex>,
        progress: Vec<u32>,
        random: Vec<u32>,
        kept: Vec<u32>,
        log_prob: Vec<f64>,
        samples: Vec<LocalIndex>,
        log_probs: Vec<f64>,
        sums: Vec<f64>,
    }

    fn start(indices: [LocalIndex; 3], kept: usize) -> State {
        State {
            indices: indices.repeat(CHAINS),
            progress: vec![0; PROGRESS_WORDS * CHAINS],
            random: vec![0; STREAM_WORDS * CHAINS],
            kept: vec![0; kept * CHAINS],
            log_prob: vec![0.0; CHAINS],
            samples: vec![9; 3 * LENGTH * CHAINS],
            log_probs: vec![9.0; LENGTH * CHAINS],
            sums: vec![9.0; CHAINS],
        }
    }

    /// A call for chains on three sites with two, three and two local states, which ask for two amplitudes at once.
    fn frame(threads: Threads, state: &State, rule: &str, proposed_log_probs: &[f64]) -> TestFrame {
        let words = state.kept.len() / CHAINS;
        let numbers: Vec<u32> = (0..CHAINS as u32).collect();
        TestFrame::new(threads)
            .attr_str("rule", rule)
            .attr_bool("matrices", false)
            .attr_i64("sweep", 2)
            .arg(proposed_log_probs, &[CHAINS, 2])
            .arg(&numbers, &[CHAINS])
            .arg(&[1_u32; KEY_WORDS], &[KEY_WORDS])
            .arg::<LocalIndex>(&[2, 3, 2], &[3])
            .arg(&state.indices, &[CHAINS, 3])
            .arg(&state.progress, &[CHAINS, PROGRESS_WORDS])
            .arg(&state.random, &[CHAINS, STREAM_WORDS])
            .arg(&state.kept, &[CHAINS, words])
            .arg(&state.log_prob, &[CHAINS])
            .arg(&state.samples, &[CHAINS, LENGTH, 3])
            .arg(&state.log_probs, &[CHAINS, LENGTH])
            .arg(&state.sums, &[CHAINS, 1])
            .arg(&[2.0], &[1])
            .arg(&TABLE, &[3, 2, 1])
    }

    fn with_results(frame: TestFrame, words: usize) -> TestFrame {
        frame
            .result::<LocalIndex>(&[CHAINS, 3])
            .result::<u32>(&[CHAINS, PROGRESS_WORDS])
            .result::<u32>(&[CHAINS, STREAM_WORDS])
            .result::<u32>(&[CHAINS, words])
            .result::<f64>(&[CHAINS])
            .result::<LocalIndex>(&[CHAINS, LENGTH, 3])
            .result::<f64>(&[CHAINS, LENGTH])
            .result::<f64>(&[CHAINS, 1])
            .result::<LocalIndex>(&[CHAINS, 2, 3])
            .result::<f64>(&[CHAINS, 2, 1])
            .result::<i32>(&[])
    }

    /// The first layer has one sum, which is the logarithm itself but for a constant.
    const TABLE: [f64; 6] = [0.3, 0.6, -0.4, -0.8, 0.5, 1.0];

    fn log_prob(indices: &[LocalIndex]) -> f64 {
        indices.iter().zip([0.3, -0.4, 0.5]).map(|(&index, weight)| f64::from(index) * weight).sum()
    }

    /// Gives amplitudes until no chain waits any more.
    fn run(threads: Threads, mut state: State, rule: &str, tables: impl Fn(TestFrame) -> TestFrame) -> State {
        let words = state.kept.len() / CHAINS;
        let tables = |frame: TestFrame| tables(frame.attr_bool("program", false));
        let mut proposed_log_probs = vec![f64::NAN; 2 * CHAINS];
        for _ in 0..=2 * LENGTH {
            let mut call = with_results(tables(frame(threads, &state, rule, &proposed_log_probs)), words);
            assert_eq!(call.execute(proposals), Ok(()));
            state = State {
                indices: call.read(0),
                progress: call.read(1),
                random: call.read(2),
                kept: call.read(3),
                log_prob: call.read(4),
                samples: call.read(5),
                log_probs: call.read(6),
                sums: call.read(7),
            };
            let proposed: Vec<LocalIndex> = call.read(8);
            proposed_log_probs = proposed.chunks(3).map(log_prob).collect();
            // The first layer says as much.
            for (sum, log_prob) in call.read::<f64>(9).iter().zip(&proposed_log_probs) {
                assert!((sum - 2.0 - log_prob).abs() < 1e-13);
            }
            if call.read::<i32>(10) == [0] {
                return state;
            }
        }
        panic!("the chains make more moves than they should")
    }

    #[test]
    fn chains_ask_until_they_have_made_all_moves() {
        let start = State { log_prob: vec![log_prob(&[0, 2, 1]); CHAINS], ..start([0, 2, 1], 0) };
        let [alone, ..] = POOLS.map(|threads| {
            let end = run(threads, start.clone(), "local", |frame| frame);
            for (sample, &found) in end.samples.chunks(3).zip(&end.log_probs) {
                assert!((found - log_prob(sample)).abs() < 1e-14);
            }
            assert!(end.progress.chunks(PROGRESS_WORDS).all(|words| words[0] == 2 * LENGTH as u32));
            let last = end.samples.chunks(3 * LENGTH).flat_map(|samples| &samples[3 * (LENGTH - 1)..]);
            assert!(end.indices.iter().eq(last));
            end
        });
        assert!(
            POOLS.iter().all(|&threads| run(threads, start.clone(), "local", |frame| frame).samples == alone.samples)
        );
        // Chains have random numbers of their own.
        assert_ne!(alone.samples[..15], alone.samples[15..30]);
    }

    /// The same samples, in one call.
    #[test]
    fn chains_run_by_a_program() {
        let start = State { log_prob: vec![log_prob(&[0, 2, 1]); CHAINS], ..start([0, 2, 1], 0) };
        let expected = run(Threads::None, start.clone(), "local", |frame| frame);
        // A half of the sum, less 1.
        let words = [1, 0, 1, 1, 2, 2, 1, 0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0];
        for threads in POOLS {
            let call = frame(threads, &start, "local", &[f64::NAN; 2 * CHAINS]).attr_bool("program", true);
            let mut call = with_results(call.arg(&words, &[words.len()]).arg(&[0.5, -1.0], &[2]).arg(&[2.0], &[]), 0);
            assert_eq!(call.execute(proposals), Ok(()));
            assert_eq!(call.read::<LocalIndex>(5), expected.samples);
            for (found, expected) in call.read::<f64>(6).into_iter().zip(&expected.log_probs) {
                assert!((found - expected).abs() < 1e-14);
            }
            assert_eq!(call.read::<i32>(10), [0]);
        }
    }

    #[test]
    fn exchanges_keep_the_states() {
        let tables = |frame: TestFrame| {
            let frame = frame.arg(&[0, 1, 1, 2], &[2, 2]).arg::<f64>(&[], &[0]);
            frame.arg(&[0, 1, 3, 4], &[4]).arg(&[0, 1, 0, 0, 1, 2, 1, 1], &[4, 2])
        };
        let end = run(Threads::None, start([0, 1, 1], 1), "exchange", tables);
        let mut found: Vec<_> = end.samples.chunks(3).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, [[0, 1, 1], [1, 0, 1], [1, 1, 0]]);
    }

    #[test]
    fn wrong_calls_are_named() {
        let proposed_log_probs = [0.0; 2 * CHAINS];
        let message = |state: State, rule: &str| {
            let words = state.kept.len() / CHAINS;
            let mut call = with_results(
                frame(Threads::None, &state, rule, &proposed_log_probs).attr_bool("program", false),
                words,
            );
            call.execute(proposals).expect_err("a wrong call").message
        };
        assert_eq!(
            message(start([0, 3, 0], 0), "local"),
            "chain 0 holds something else than one of the local states on site 1: start it with a sample of its Hilbert \
             space"
        );
        assert_eq!(message(start([0, 1, 0], 2), "local"), "the rule keeps 0 words for each chain, not 2");
        assert_eq!(
            message(start([0, 1, 0], 0), "hamiltonian"),
            "site 1 doesn't have two local states, as the rule wants"
        );
        assert!(message(start([0, 1, 0], 0), "global").starts_with("there is no rule 'global'"));
    }
}
