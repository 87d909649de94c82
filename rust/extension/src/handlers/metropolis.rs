//! Markov chains of configurations, on sites with two local states.

use super::amplitudes::{self, with_types};
use super::dispatch::{invalid, with_weights};
use super::forms;
use ferroket_kernels::amplitudes::{Walker, jastrow, rbm};
use ferroket_kernels::connected::terms::{SparseTerms, Terms};
use ferroket_kernels::numbers::Real;
use ferroket_kernels::sampling::rules::{Clusters, Exchange, Hamiltonian, Local, TransitionRule};
use ferroket_kernels::sampling::{self, KEY_WORDS, Sampling};
use ferroket_kernels::sites::{LocalIndex, Sites, StateRange};
use ferroket_xla_ffi::{AnyBuffer, DataType, Element, Error, Frame, Rows, handler};
use std::ops::Range;

handler! {
    /// Arguments `start (C, N)` of uint16, local indices 0 and 1; `chains (C,)` of uint32, the numbers of the chains;
    /// `key (8,)` of uint32; `power ()` of float32 or float64; those of the rule; and the tables of an RBM as for
    /// local values, real or complex. Attributes `rule`, and `sweep`, how many moves are proposed between samples. Results
    /// `samples (C, L, N)`, as `start`, and `accepted (C,)` of int32 or int64, how many of the moves were.
    ///
    /// The rule `local` has no arguments; `exchange` has `clusters (E, 2)` of int32 and `weights (E,)` or `(0,)` of
    /// float32 or float64; `hamiltonian` has `flip (G, W)`, `first (G + 1,)`, `mask`, `pattern` and `sign (T, W)` and
    /// `values (T,)`, and the attribute `diagonal`.
    pub(super) fn rbm = call_rbm
}

handler! {
    /// As [`rbm`], with the tables of a real JastrowTables amplitude.
    pub(super) fn jastrow = call_jastrow
}

/// Evaluates `$body` with `$first` standing for where the arguments of the amplitudes begin, and `$rule` for a function that
/// makes a chain's rule.
macro_rules! with_rule {
    ($call:expr, ($first:ident, $rule:ident) => $body:expr) => {{
        let Call { frame, sites, .. } = *$call;
        match frame.attr_str("rule")? {
            "local" => {
                let $first = ARGUMENTS;
                let $rule = || Local::new(sites);
                $body
            }
            "exchange" => {
                let $first = ARGUMENTS + 2;
                let clusters = clusters(frame, sites)?;
                let $rule = || Exchange::new(&clusters);
                $body
            }
            "hamiltonian" => {
                let $first = ARGUMENTS + 6;
                let (terms, values) = terms(frame, sites)?;
                with_weights!(values, values => {
                    let sparse = SparseTerms::new(&terms, values);
                    let $rule = || Hamiltonian::new(&sparse);
                    $body
                })
            }
            other => {
                Err(Error::invalid(format!("there is no rule '{other}', but 'local', 'exchange' and 'hamiltonian'")))
            }
        }
    }};
}

/// The arguments that all rules and amplitudes have in common.
const ARGUMENTS: usize = 4;

fn call_rbm(frame: &Frame) -> Result<(), Error> {
    let call = &Call::parse(frame)?;
    with_rule!(call, (first, rule) => {
        frame.expect_counts(first + amplitudes::RBM, 2)?;
        with_types!(frame, first, false, (T, A, P) => {
            let machine = amplitudes::machine::<T, A, P>(frame, first, call.sites)?;
            call.run(|| rbm::Walker::new(&machine), rule)
        })
    })
}

fn call_jastrow(frame: &Frame) -> Result<(), Error> {
    let call = &Call::parse(frame)?;
    with_rule!(call, (first, rule) => {
        frame.expect_counts(first + amplitudes::JASTROW, 2)?;
        if frame.arg(first, "fields")?.dtype() == DataType::F32 {
            run_jastrow::<f32, _>(call, first, rule)
        } else {
            run_jastrow::<f64, _>(call, first, rule)
        }
    })
}

fn run_jastrow<T: Real + Element, R: TransitionRule>(
    call: &Call,
    first: usize,
    rule: impl Fn() -> R + Sync,
) -> Result<(), Error> {
    let tables = amplitudes::quadratic::<T>(call.frame, first, 1, call.sites)?;
    let walker = jastrow::Walker::new(tables, call.sites).map_err(|error| invalid(&error))?;
    call.run(|| walker.clone(), rule)
}

/// What all rules and amplitudes have in common.
struct Call<'a, 'f> {
    frame: &'f Frame<'a>,
    sites: usize,
    start: &'a [LocalIndex],
    chains: &'a [u32],
    sampling: Sampling,
}

impl<'a, 'f> Call<'a, 'f> {
    fn parse(frame: &'f Frame<'a>) -> Result<Self, Error> {
        let start = frame.arg(0, "start")?.typed::<LocalIndex>()?;
        start.expect_rank(2)?;
        let sites = start.dims()[1];
        let chains = frame.arg(1, "chains")?.typed::<u32>()?;
        chains.expect_dims(&start.dims()[..1])?;
        let words = frame.arg(2, "key")?.typed::<u32>()?;
        words.expect_dims(&[KEY_WORDS])?;
        let mut key = [0; KEY_WORDS];
        key.copy_from_slice(words.as_slice());
        let power = frame.arg(3, "power")?;
        power.expect_dims(&[])?;
        let power = numbers(power)?[0];
        let sweep = usize::try_from(frame.attr_i64("sweep")?);
        let sweep = sweep.map_err(|_| Error::invalid("`sweep` is negative"))?;
        let (start, chains) = (start.as_slice(), chains.as_slice());
        if let Some(place) = start.iter().position(|&index| index > 1) {
            return Err(Error::invalid(format!(
                "chain {} holds something else than one of the two local states on site {}: start it with a sample of its \
                 Hilbert space",
                chains[place / sites],
                place % sites
            )));
        }
        Ok(Self { frame, sites, start, chains, sampling: Sampling { key, power, sweep } })
    }

    /// Has the threads of the pool run the chains.
    fn run<W: Walker, R: TransitionRule>(
        &self,
        walker: impl Fn() -> W + Sync,
        rule: impl Fn() -> R + Sync,
    ) -> Result<(), Error> {
        let Self { frame, sites, start, chains, ref sampling } = *self;
        let samples = frame.result(0, "samples")?.typed::<LocalIndex>()?;
        samples.expect_rank(3)?;
        let length = samples.dims()[1];
        samples.expect_dims(&[chains.len(), length, sites])?;
        let of_chain = length * sites;
        let mut accepted = vec![0; chains.len()];
        let parts = (Rows::new(samples.into_mut_slice(), of_chain), Rows::new(&mut accepted, 1));
        frame.pool().for_each_part(chains.len(), 1, parts, |range: Range<usize>, (samples, accepted)| {
            let (mut walker, mut rule) = (walker(), rule());
            let mut rest = samples.into_slice();
            for (chain, accepted) in range.zip(accepted.into_slice()) {
                let samples;
                (samples, rest) = rest.split_at_mut(of_chain);
                let start = &start[chain * sites..][..sites];
                *accepted = sampling::run(sampling, chains[chain].into(), &mut walker, &mut rule, start, samples);
            }
        })?;
        let result = frame.result(1, "accepted")?;
        result.expect_dims(&[chains.len()])?;
        if result.dtype() == DataType::I32 {
            for (to, accepted) in result.typed::<i32>()?.into_mut_slice().iter_mut().zip(accepted) {
                *to = i32::try_from(accepted).unwrap_or(i32::MAX);
            }
        } else {
            for (to, accepted) in result.typed::<i64>()?.into_mut_slice().iter_mut().zip(accepted) {
                *to = accepted as i64;
            }
        }
        Ok(())
    }
}

/// The clusters of the rule `exchange`.
fn clusters(frame: &Frame, sites: usize) -> Result<Clusters, Error> {
    let clusters = frame.arg(ARGUMENTS, "clusters")?.typed::<i32>()?;
    let weights = frame.arg(ARGUMENTS + 1, "weights")?;
    weights.expect_rank(1)?;
    Clusters::new(sites, clusters.as_slice(), &numbers(weights)?).map_err(|error| invalid(&error))
}

/// The operator of the rule `hamiltonian`.
fn terms<'a>(frame: &Frame<'a>, sites: usize) -> Result<(Terms<'a>, AnyBuffer<'a>), Error> {
    let values = frame.arg(ARGUMENTS + 5, "values")?;
    values.expect_rank(1)?;
    // What the states are doesn't matter, only that there are two.
    let kind = StateRange { start: 0.0, step: 1.0, size: 2 };
    let sites = Sites::new(sites, vec![kind], &[]).map_err(|error| invalid(&error))?;
    let terms = forms::terms(frame, ARGUMENTS, &sites, values.len(), frame.attr_bool("diagonal")?)?;
    Ok((terms, values))
}

/// Real numbers of 32 or 64 bits.
fn numbers(buffer: AnyBuffer) -> Result<Vec<f64>, Error> {
    if buffer.dtype() == DataType::F32 {
        return Ok(buffer.typed::<f32>()?.as_slice().iter().map(|&number| number.into()).collect());
    }
    Ok(buffer.typed::<f64>()?.as_slice().to_vec())
}
