//! Markov chains around a network that XLA evaluates.

use crate::rules::{check_indices, read_key, read_sweep, with_rule};
use ferroket_kernels::numbers::Real;
use ferroket_kernels::sampling::rules::TransitionRule;
use ferroket_kernels::sampling::{Chain, PROGRESS_WORDS, Proposer, STREAM_WORDS, Sampling};
use ferroket_kernels::sites::LocalIndex;
use ferroket_xla_ffi::{Arguments, Buffer, DataType, Element, Error, Frame, Rows, handler};

/// A thread has so many chains at least.
const AT_LEAST: usize = 32;

handler! {
    /// Has chains go on until they need amplitudes. Arguments `answers (C, K)`, the logarithms of |ψ|^p of what was
    /// proposed last, float32 or float64; `chains (C,)` of uint32, the numbers of the chains; `key (8,)` of uint32; and
    /// `sizes (N,)` of uint16, how many local states each site has.
    ///
    /// Then those that become the results of the same shapes: `indices (C, N)` of uint16, the configurations; `progress
    /// (C, 5)`, `random (C, 66)` and `kept (C, R)` of uint32, see [`Chain`], zeros at first; `log_prob (C,)`;
    /// `samples (C, L, N)` of uint16; and `log_probs (C, L)`. Then the arguments of the rule, as for
    /// [`crate::chains::rbm`].
    ///
    /// Attributes `rule` and `sweep`. More results: `proposals (C, K, N)` of uint16, and `waiting ()` of int32, how many
    /// chains wait for amplitudes.
    pub(crate) fn proposals = call
}

fn call(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let answers = args.any("answers")?;
    if answers.dtype() == DataType::F32 {
        run::<f32>(frame, args, &answers.typed()?)
    } else {
        run::<f64>(frame, args, &answers.typed()?)
    }
}

fn run<'a, T: Real + Element>(
    frame: &Frame<'a>,
    mut args: Arguments<'_, 'a>,
    answers: &Buffer<T>,
) -> Result<(), Error> {
    answers.expect_rank(2)?;
    let &[chains, together] = answers.dims() else { unreachable!("there are two dimensions") };
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
    log_probs.expect_dims(&[chains, length])?;
    let proposals = results.typed::<LocalIndex>("proposals")?;
    proposals.expect_dims(&[chains, together, sites])?;
    let waiting = results.typed::<i32>("waiting")?;
    waiting.expect_dims(&[])?;
    results.finish()?;
    let sampling = &Sampling { key, sweep: read_sweep(frame)? };
    if u32::try_from(sampling.sweep.saturating_mul(length)).is_err() {
        return Err(Error::invalid(format!(
            "{length} samples with {} moves each are more than 2**32 moves of a chain: take fewer samples at once",
            sampling.sweep
        )));
    }
    let indices = indices.into_mut_slice();
    let progress = progress.into_mut_slice().as_chunks_mut().0;
    // What chains have come to by themselves is right.
    let begins = progress.first().is_some_and(|progress| *progress == [0; PROGRESS_WORDS]);
    if begins {
        check_indices(indices, sizes, numbers.as_slice())?;
    }

    let mut indices = EqualRows(indices, sites);
    let mut kept = EqualRows(kept.into_mut_slice(), kept_words);
    let mut samples = EqualRows(samples.into_mut_slice(), length * sites);
    let mut log_probs = EqualRows(log_probs.into_mut_slice(), length);
    let mut proposals = EqualRows(proposals.into_mut_slice(), together * sites);
    let random = random.into_mut_slice().as_chunks_mut().0;
    let of_one = progress.iter_mut().zip(random).zip(log_prob.into_mut_slice());
    let mut conversations: Vec<_> = of_one
        .enumerate()
        .map(|(place, ((progress, random), log_prob))| Conversation {
            number: numbers.as_slice()[place],
            answers: &answers.as_slice()[place * together..][..together],
            proposals: proposals.next(),
            chain: Chain {
                indices: indices.next(),
                log_prob,
                progress,
                random,
                rule: kept.next(),
                samples: samples.next(),
                log_probs: log_probs.next(),
            },
            waits: false,
        })
        .collect();
    with_rule!(frame, args, sizes, begins, rule => {
        args.finish()?;
        let words = rule().kept();
        if kept_words != words {
            return Err(Error::invalid(format!("the rule keeps {words} words for each chain, not {kept_words}")));
        }
        frame.pool().for_each_part(chains, AT_LEAST, Rows::new(&mut conversations, 1), |_, part| {
            let mut proposer = Proposer::new(sampling, rule());
            for Conversation { number, chain, answers, proposals, waits } in part.into_slice() {
                *waits = proposer.proceed((*number).into(), chain, answers, proposals);
            }
        })
    })?;
    let count = conversations.iter().filter(|conversation| conversation.waits).count();
    waiting.into_mut_slice()[0] = i32::try_from(count).unwrap_or(i32::MAX);
    Ok(())
}

/// A chain, what it is told, and what it says.
struct Conversation<'a, T> {
    number: u32,
    chain: Chain<'a, T>,
    answers: &'a [T],
    proposals: &'a mut [LocalIndex],
    waits: bool,
}

/// The rows of a slice, of equal lengths, also of none.
struct EqualRows<'a, T>(&'a mut [T], usize);

impl<'a, T> EqualRows<'a, T> {
    fn next(&mut self) -> &'a mut [T] {
        self.0.split_off_mut(..self.1).unwrap_or_default()
    }
}
