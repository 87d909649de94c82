//! Markov chains of configurations, on sites with two local states.

use crate::amplitudes::{
    JastrowArguments, PfaffianArguments, RbmArguments, SlaterArguments, with_fermions, with_types,
};
use crate::errors::invalid;
use crate::products::{Ansatz, ProductArguments};
use crate::rules::{check_indices, read_key, read_sweep, real_numbers, with_rule};
use ferroket_kernels::amplitudes::{Walker, fermions, jastrow, product, rbm};
use ferroket_kernels::numbers::Real;
use ferroket_kernels::sampling::rules::TransitionRule;
use ferroket_kernels::sampling::{self, Sampling};
use ferroket_kernels::sites::LocalIndex;
use ferroket_xla_ffi::{AnyBuffer, Arguments, DataType, Element, Error, Frame, Rows, handler};
use std::ops::Range;

handler! {
    /// Arguments `start (C, N)` of uint16, local indices 0 and 1; `chains (C,)` of uint32, the numbers of the chains;
    /// `key (8,)` of uint32; `power ()` of float32 or float64; those of the rule; and the tables of an RBM as for
    /// local values, real or complex. Attributes `rule`, and `sweep`, how many moves are proposed between samples. Results
    /// `samples (C, L, N)`, as `start`, and `accepted (C,)` of int32 or int64, how many of the moves were.
    ///
    /// The rule `local` has no arguments; `exchange` has `clusters (E, 2)` of int32, `weights (E,)` or `(0,)` of float32 or
    /// float64, `first (N + 1,)` and `of_site (2 E, 2)` of int32, see `ClusterTables`; those of `swap` are at `read_swaps`;
    /// `hamiltonian` has `flip (G, W)`, `first (G + 1,)`, `mask`, `pattern` and `sign (T, W)` and
    /// `values (T,)`, and the attribute `diagonal`.
    pub(crate) fn rbm = call_rbm
}

handler! {
    /// As [`rbm`], with the tables of a real JastrowTables amplitude.
    pub(crate) fn jastrow = call_jastrow
}

handler! {
    /// As [`rbm`], with `orbitals (P, D, K)` of determinants as for local values, and their attribute `fermions`.
    pub(crate) fn slater = call_slater
}

handler! {
    /// As [`rbm`], with `pairs (P, D, N, N)` and `weights (P, D)` of Pfaffians as for local values, and their attribute
    /// `fermions`.
    pub(crate) fn pfaffian = call_pfaffian
}

handler! {
    /// As [`rbm`], with the tables and the attributes of a product as for local values.
    pub(crate) fn product = call_product
}

fn call_rbm(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let chains = &Chains::read(frame, &mut args)?;
    with_rule!(chains.frame, args, &chains.sizes, true, rule => {
        let amplitudes = RbmArguments::read(&mut args)?;
        args.finish()?;
        with_types!(amplitudes, false, (T, A, P) => {
            let rbm = amplitudes.rbm::<T, A, P>(chains.sites())?;
            chains.run(|| rbm::Walker::new(&rbm), rule)
        })
    })
}

fn call_jastrow(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let chains = &Chains::read(frame, &mut args)?;
    with_rule!(chains.frame, args, &chains.sizes, true, rule => {
        let amplitudes = JastrowArguments::read(&mut args)?;
        args.finish()?;
        if amplitudes.planes().0 == DataType::F32 {
            run_jastrow::<f32, _>(chains, amplitudes, rule)
        } else {
            run_jastrow::<f64, _>(chains, amplitudes, rule)
        }
    })
}

fn call_slater(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let chains = &Chains::read(frame, &mut args)?;
    with_rule!(chains.frame, args, &chains.sizes, true, rule => {
        let amplitudes = SlaterArguments::read(frame, &mut args, "")?;
        args.finish()?;
        with_fermions!(amplitudes, chains.sites(), determinants => {
            chains.run(|| fermions::Walker::new(&determinants), rule)
        })
    })
}

fn call_pfaffian(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let chains = &Chains::read(frame, &mut args)?;
    with_rule!(chains.frame, args, &chains.sizes, true, rule => {
        let amplitudes = PfaffianArguments::read(frame, &mut args, "")?;
        args.finish()?;
        with_fermions!(amplitudes, chains.sites(), pfaffians => {
            chains.run(|| fermions::Walker::new(&pfaffians), rule)
        })
    })
}

fn call_product(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let chains = &Chains::read(frame, &mut args)?;
    with_rule!(chains.frame, args, &chains.sizes, true, rule => {
        let factors = ProductArguments::read(frame, &mut args)?;
        args.finish()?;
        let ansatze = factors.ansatze(chains.sites())?;
        let walkers = || ansatze.iter().map(Ansatz::walker).collect::<Option<Vec<_>>>();
        walkers().ok_or_else(|| Error::invalid("a factor has a phase, which chains have no use for"))?;
        chains.run(|| product::Walker::new(walkers().expect("they were made once")), rule)
    })
}

fn run_jastrow<T: Real + Element, R: TransitionRule>(
    chains: &Chains,
    amplitudes: JastrowArguments<AnyBuffer>,
    rule: impl Fn() -> R + Sync,
) -> Result<(), Error> {
    let walker = jastrow::Walker::new(amplitudes.tables::<T>(1, chains.sites())?, chains.sites());
    let walker = walker.map_err(|error| invalid(&error))?;
    chains.run(|| walker.clone(), rule)
}

/// What all rules and amplitudes have in common.
struct Chains<'a, 'f> {
    frame: &'f Frame<'a>,
    /// How many local states each site has.
    sizes: Vec<LocalIndex>,
    start: &'a [LocalIndex],
    /// Their numbers among all chains, of which the random numbers are made.
    numbers: &'a [u32],
    /// p of the distribution |ψ|^p.
    power: f64,
    sampling: Sampling,
}

impl<'a, 'f> Chains<'a, 'f> {
    fn read(frame: &'f Frame<'a>, args: &mut Arguments<'_, 'a>) -> Result<Self, Error> {
        let start = args.typed::<LocalIndex>("start")?;
        start.expect_rank(2)?;
        let sites = start.dims()[1];
        let numbers = args.typed::<u32>("chains")?;
        numbers.expect_dims(&start.dims()[..1])?;
        let key = read_key(args)?;
        let power = args.any("power")?;
        power.expect_dims(&[])?;
        let power = real_numbers(power)?[0];
        let sweep = read_sweep(frame)?;
        let (start, numbers) = (start.as_slice(), numbers.as_slice());
        let sizes = vec![2; sites];
        check_indices(start, &sizes, numbers)?;
        Ok(Self { frame, sizes, start, numbers, power, sampling: Sampling { key, sweep } })
    }

    fn sites(&self) -> usize {
        self.sizes.len()
    }

    /// Has the threads of the pool run the chains.
    fn run<W: Walker, R: TransitionRule>(
        &self,
        walker: impl Fn() -> W + Sync,
        rule: impl Fn() -> R + Sync,
    ) -> Result<(), Error> {
        let Self { frame, start, numbers, power, ref sampling, .. } = *self;
        let sites = self.sites();
        let mut results = frame.results();
        let samples = results.typed::<LocalIndex>("samples")?;
        let result = results.any("accepted")?;
        results.finish()?;
        result.expect_dims(&[numbers.len()])?;
        samples.expect_rank(3)?;
        let length = samples.dims()[1];
        samples.expect_dims(&[numbers.len(), length, sites])?;
        let beginning = walker();
        for (start, number) in start.chunks(sites.max(1)).zip(numbers) {
            let checked = beginning.check(start);
            checked.map_err(|error| Error::invalid(format!("chain {number} can't begin: {error}")))?;
        }
        let of_chain = length * sites;
        let mut accepted = vec![0; numbers.len()];
        let parts = (Rows::new(samples.into_mut_slice(), of_chain), Rows::new(&mut accepted, 1));
        frame.pool().for_each_part(numbers.len(), 1, parts, |range: Range<usize>, (samples, accepted)| {
            let (mut walker, mut rule) = (walker(), rule());
            let mut rest = samples.into_slice();
            for (chain, accepted) in range.zip(accepted.into_slice()) {
                let samples;
                (samples, rest) = rest.split_at_mut(of_chain);
                let start = &start[chain * sites..][..sites];
                *accepted =
                    sampling::run(sampling, power, numbers[chain].into(), &mut walker, &mut rule, start, samples);
            }
        })?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::POOLS;
    use ferroket_kernels::sampling::KEY_WORDS;
    use ferroket_xla_ffi::testing::{TestFrame, Threads};
    use num_complex::Complex;

    /// Two chains of three sites, of which each amplitude is as large.
    fn frame(threads: Threads, start: &[LocalIndex; 6], rule: &str) -> TestFrame {
        let frame = TestFrame::new(threads).attr_str("rule", rule).attr_i64("sweep", 2).attr_bool("diagonal", true);
        frame.arg(start, &[2, 3]).arg(&[4_u32, 9], &[2]).arg(&[1_u32; KEY_WORDS], &[KEY_WORDS]).arg(&[2.0], &[])
    }

    /// With two clusters, of which the first and the last site have one, and the site between them both.
    fn with_clusters(frame: TestFrame, clusters: &[i32; 4]) -> TestFrame {
        let frame = frame.arg(clusters, &[2, 2]).arg::<f64>(&[], &[0]);
        frame.arg(&[0, 1, 3, 4], &[4]).arg(&[0, 1, 0, 0, 1, 2, 1, 1], &[4, 2])
    }

    fn with_jastrow(frame: TestFrame) -> TestFrame {
        let frame = frame.arg(&[0.0_f32; 16], &[1, 16]).arg(&[0.0_f32; 48], &[1, 3, 16]);
        frame.result::<LocalIndex>(&[2, 5, 3]).result::<i32>(&[2])
    }

    #[test]
    fn all_moves_between_equal_amplitudes_are_accepted() {
        for threads in POOLS {
            let mut frame = with_jastrow(frame(threads, &[0, 1, 0, 1, 1, 1], "local"));
            assert_eq!(frame.execute(jastrow), Ok(()));
            assert_eq!(frame.read::<i32>(1), [10, 10]);
            let samples = frame.read::<LocalIndex>(0);
            // Two flips at once keep the parity of each chain.
            for (chain, parity) in samples.chunks(15).zip([1, 1]) {
                assert!(chain.chunks(3).all(|sample| sample.iter().sum::<u16>() % 2 == parity), "{chain:?}");
            }
        }
    }

    #[test]
    fn exchanges_keep_the_sum() {
        let frame = with_clusters(frame(Threads::None, &[0, 1, 0, 1, 1, 0], "exchange"), &[0, 1, 1, 2]);
        let mut frame = with_jastrow(frame);
        assert_eq!(frame.execute(jastrow), Ok(()));
        let sums: Vec<u16> = frame.read::<LocalIndex>(0).chunks(3).map(|sample| sample.iter().sum()).collect();
        assert_eq!(sums, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
    }

    /// The operator leads from 0 to 1 on site 2 and back, and nowhere else.
    fn with_operator<T: Element>(value: T) -> TestFrame {
        let frame = frame(Threads::None, &[0, 1, 0, 1, 1, 0], "hamiltonian");
        let frame = frame.arg(&[0_u32, 4], &[2, 1]).arg(&[0, 0, 1], &[3]).arg(&[0_u32], &[1, 1]);
        with_jastrow(frame.arg(&[0_u32], &[1, 1]).arg(&[0_u32], &[1, 1]).arg(&[value], &[1]))
    }

    #[test]
    fn connected_configurations_of_an_operator() {
        for mut frame in [
            with_operator(1.5_f32),
            with_operator(1.5_f64),
            with_operator(Complex::new(0.0_f32, 1.5)),
            with_operator(Complex::new(0.0_f64, 1.5)),
        ] {
            assert_eq!(frame.execute(jastrow), Ok(()));
            assert_eq!(frame.read::<i32>(1), [10, 10]);
            assert!(frame.read::<LocalIndex>(0)[..15].chunks(3).all(|sample| sample == [0, 1, 0]));
        }
        let message = with_operator(1_i32).execute(jastrow).expect_err("integers").message;
        assert_eq!(message, "the values have dtype int32, but must be real or complex floats");
    }

    #[test]
    fn wrong_calls_are_named() {
        let message = |frame: TestFrame| { frame }.execute(jastrow).expect_err("a wrong call").message;
        let start = [0, 1, 0, 1, 1, 0];
        assert_eq!(
            message(with_jastrow(frame(Threads::None, &start, "global"))),
            "there is no rule 'global', but 'local', 'exchange', 'swap' and 'hamiltonian'"
        );
        assert_eq!(
            message(frame(Threads::None, &start, "exchange")),
            "argument 4 'clusters' is missing: the call has 4"
        );
        let clusters = with_clusters(frame(Threads::None, &start, "exchange"), &[0, 3, 0, 1]);
        assert_eq!(
            message(with_jastrow(clusters)),
            "edge 0 joins the sites 0 and 3, but there are 3 sites, counted from 0"
        );
        // The tables of a rule that isn't asked for are left over.
        let more = frame(Threads::None, &start, "local").arg(&[0.0; 16], &[1, 16]).arg(&[0.0; 48], &[1, 3, 16]);
        assert_eq!(message(more.arg(&[0, 1], &[1, 2])), "the call has 7 arguments, but the handler takes 6");
        assert_eq!(
            message(with_jastrow(frame(Threads::None, &[0, 1, 0, 1, 2, 0], "local"))),
            "chain 9 holds something else than one of the local states on site 1: start it with a sample of its Hilbert \
             space"
        );
    }
}
