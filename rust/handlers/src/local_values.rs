//! Local values with amplitudes whose ratios are known.

use crate::amplitudes::{
    JastrowArguments, PfaffianArguments, RbmArguments, SlaterArguments, with_fermions, with_types,
};
use crate::configurations::{Configurations, configurations};
use crate::dtypes::{Weights, narrow};
use crate::errors::{FirstError, invalid};
use crate::operators::{Operator, TermsOf};
use crate::products::{Ansatz, ProductArguments};
use ferroket_kernels::amplitudes::fermions::{self, Fermions};
use ferroket_kernels::amplitudes::{Ratios, jastrow, local_values, product, rbm};
use ferroket_kernels::connected::Form;
use ferroket_kernels::connected::terms::{BLOCK, Terms};
use ferroket_kernels::numbers::Weight;
use ferroket_xla_ffi::{AnyBuffer, AnyBufferMut, Arguments, DataType, Error, Frame, Pool, Rows, handler};
use num_complex::Complex;
use std::ops::Range;

handler! {
    /// Arguments `x (Ns, N)`, `kind`, the tables of the form, `values`, and of float32 or float64
    /// `theta (P, M)`, `delta (P, N, M)` and `bias (P, N)`, with P = 1 for real parameters
    /// and 2 for complex ones, or for two real ones; attributes `starts`, `steps`, `sizes`, `diagonal`, and `pairs`, whether
    /// there are two; result `local (Ns,)` of
    /// complex64 or complex128.
    pub(crate) fn rbm = call_rbm
}

handler! {
    /// Arguments `x (Ns, N)`, `kind`, the tables of the form, `values`, and of float32 or float64
    /// `fields (P, M)` and `pairs (P, N, M)`, with P = 1 for real amplitudes and 2 for complex ones; attributes `starts`,
    /// `steps`, `sizes` and `diagonal`; result `local (Ns,)` of
    /// complex64 or complex128.
    pub(crate) fn jastrow = call_jastrow
}

handler! {
    /// Arguments `x (Ns, N)`, `kind`, the tables of the form, `values`, and of float32 or float64 `orbitals (P, D, K)` of D
    /// determinants, with P = 1 for real orbitals and 2 for complex ones, see `SlaterTables`; attributes `starts`, `steps`,
    /// `sizes`, `diagonal` and `fermions`; result `local (Ns,)` of complex64 or complex128.
    pub(crate) fn slater = call_slater
}

handler! {
    /// Arguments `x (Ns, N)`, `kind`, the tables of the form, `values`, and of float32 or float64 `pairs (P, D, N, N)` and
    /// `weights (P, D)` of D Pfaffians, with P = 1 for real pairs and 2 for complex ones, see `PfaffianTables`; attributes
    /// `starts`, `steps`, `sizes`, `diagonal` and `fermions`; result `local (Ns,)` of complex64 or complex128.
    pub(crate) fn pfaffian = call_pfaffian
}

handler! {
    /// As [`rbm`], with the tables and the attributes of a product, see `ProductArguments`.
    pub(crate) fn product = call_product
}

/// The numbers of the amplitudes that a block of samples has stay in the second-level cache.
const CACHED: usize = 1 << 16;

fn call_rbm(frame: &Frame) -> Result<(), Error> {
    let pairs = frame.attr_bool("pairs")?;
    let mut args = frame.arguments();
    let samples = Samples::read(frame, &mut args)?;
    let amplitudes = RbmArguments::read(&mut args)?;
    args.finish()?;
    with_types!(amplitudes, pairs, (T, A, P) => {
        let rbm = amplitudes.rbm::<T, A, P>(samples.sites())?;
        samples.evaluate(rbm.numbers(), || rbm::Amplitudes::new(&rbm))
    })
}

fn call_jastrow(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let samples = Samples::read(frame, &mut args)?;
    let amplitudes = JastrowArguments::read(&mut args)?;
    args.finish()?;
    with_types!(amplitudes, false, (T, A, P) => {
        let tables = amplitudes.tables::<T>(P, samples.sites())?;
        let amplitudes = jastrow::Amplitudes::<T, A, P>::new(tables, samples.sites()).map_err(|error| invalid(&error))?;
        samples.evaluate(P * tables.columns, || amplitudes.clone())
    })
}

fn call_slater(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let samples = Samples::read(frame, &mut args)?;
    let amplitudes = SlaterArguments::read(frame, &mut args, "")?;
    args.finish()?;
    with_fermions!(amplitudes, samples.sites(), determinants => {
        samples.evaluate(determinants.numbers(), || fermions::Amplitudes::new(&determinants))
    })
}

fn call_pfaffian(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let samples = Samples::read(frame, &mut args)?;
    let amplitudes = PfaffianArguments::read(frame, &mut args, "")?;
    args.finish()?;
    with_fermions!(amplitudes, samples.sites(), pfaffians => {
        samples.evaluate(pfaffians.numbers(), || fermions::Amplitudes::new(&pfaffians))
    })
}

fn call_product(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let samples = Samples::read(frame, &mut args)?;
    let factors = ProductArguments::read(frame, &mut args)?;
    args.finish()?;
    let ansatze = factors.ansatze(samples.sites())?;
    let numbers = ansatze.iter().map(|ansatz| ansatz.numbers(samples.sites())).sum();
    samples.evaluate(numbers, || product::Amplitudes::new(ansatze.iter().map(Ansatz::amplitudes).collect()))
}

/// The samples and the operator of a call.
struct Samples<'a, 'f> {
    frame: &'f Frame<'a>,
    x: AnyBuffer<'a>,
    operator: Operator<'a, TermsOf>,
}

impl<'a, 'f> Samples<'a, 'f> {
    fn read(frame: &'f Frame<'a>, args: &mut Arguments<'_, 'a>) -> Result<Self, Error> {
        let (x, operator) = Operator::read(frame, args)?;
        x.expect_rank(2)?;
        Ok(Self { frame, x, operator })
    }

    fn sites(&self) -> usize {
        self.operator.sites.len()
    }

    /// Has the threads of the pool evaluate blocks of samples, for each of which `amplitudes` holds so many numbers.
    fn evaluate<R: Ratios>(self, numbers: usize, amplitudes: impl Fn() -> R + Sync) -> Result<(), Error> {
        let Self { frame, x, operator: Operator { sites, form, values } } = self;
        let mut results = frame.results();
        let local = results.any("local")?;
        results.finish()?;
        let samples = x.dims()[0];
        local.expect_dims(&[samples])?;
        let (configurations, _) = configurations(&sites, x, None)?;
        let sweep = Sweep { pool: frame.pool(), samples, form, configurations: &*configurations, numbers, amplitudes };
        match Weights::read(values)? {
            Weights::Real(values) => sweep.run(&values, local),
            Weights::Complex(values) => sweep.run(&values, local),
        }
    }
}

/// What is evaluated, but for the operator's values.
struct Sweep<'s, 'a, F> {
    pool: Pool<'a>,
    samples: usize,
    form: Terms<'a>,
    configurations: &'s (dyn Configurations<Terms<'a>> + 's),
    numbers: usize,
    amplitudes: F,
}

impl<R: Ratios, F: Fn() -> R + Sync> Sweep<'_, '_, F> {
    fn run<V: Weight>(self, values: &[V], local: AnyBufferMut) -> Result<(), Error> {
        let Self { pool, samples, form, configurations, numbers, amplitudes } = self;
        let n_sites = form.sites();
        let block = (CACHED / numbers.max(1)).clamp(64, BLOCK) / 64 * 64;
        let share = samples.div_ceil(samples.div_ceil(block).next_multiple_of(pool.threads()).max(1)).max(1);
        let first_error = FirstError::default();
        let evaluate = |range: Range<usize>, local: &mut [Complex<f64>]| {
            let mut indices = vec![0; block * n_sites];
            let mut amplitudes = amplitudes();
            for (place, local) in local.chunks_mut(block).enumerate() {
                let first = range.start + place * block;
                let indices = &mut indices[..local.len() * n_sites];
                let read = configurations.read(first..first + local.len(), indices).and_then(|()| {
                    indices.chunks_exact(n_sites.max(1)).try_for_each(|sample| amplitudes.check(sample))
                });
                match read {
                    Ok(()) => local_values(&form, values, indices, &mut amplitudes, local),
                    error => return first_error.keep(range.start, error),
                }
            }
        };
        if local.dtype() == DataType::C64 {
            let rows = Rows::new(local.typed::<Complex<f32>>()?.into_mut_slice(), 1);
            pool.for_each_part(samples, share, rows, |range, local| {
                let mut wide = vec![Complex::default(); range.len()];
                evaluate(range, &mut wide);
                for (local, wide) in local.into_slice().iter_mut().zip(wide) {
                    *local = narrow(wide);
                }
            })?;
        } else {
            let rows = Rows::new(local.typed::<Complex<f64>>()?.into_mut_slice(), 1);
            pool.for_each_part(samples, share, rows, |range, local| evaluate(range, local.into_slice()))?;
        }
        first_error.into_result(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{POOLS, arguments};
    use ferroket_xla_ffi::testing::{TestFrame, Threads};

    /// With a visible bias alone: ψ is multiplied by exp(a) if the second site goes to its second state.
    fn with_rbm(frame: TestFrame, a: f64) -> TestFrame {
        let frame = frame.arg(&[0.0; 16], &[1, 16]).arg(&[0.0; 32], &[1, 2, 16]).arg(&[7.0, a], &[1, 2]);
        frame.attr_bool("pairs", false).result::<Complex<f64>>(&[3])
    }

    #[test]
    fn local_values_of_an_example() {
        let a = 0.75_f64;
        let expected = [0.5, -0.5 + 2.0 * a.exp(), -0.5 + 2.0 * (-a).exp()];
        for threads in POOLS {
            let mut frame = with_rbm(arguments().frame(threads), a);
            assert_eq!(frame.execute(rbm), Ok(()));
            for (found, expected) in frame.read::<Complex<f64>>(0).into_iter().zip(expected) {
                assert!((found - expected).norm() < 1e-14, "{found} instead of {expected}");
            }
            // The same as a Jastrow amplitude, in a result of half the width.
            let mut fields = [0.0; 16];
            (fields[0], fields[1]) = (7.0, a);
            let frame = arguments().frame(threads).arg(&fields, &[1, 16]).arg(&[0.0; 32], &[1, 2, 16]);
            let mut frame = frame.result::<Complex<f32>>(&[3]);
            assert_eq!(frame.execute(jastrow), Ok(()));
            for (found, expected) in frame.read::<Complex<f32>>(0).into_iter().zip(expected) {
                assert!((found - expected as f32).norm() < 1e-6, "{found} instead of {expected}");
            }
        }
    }

    #[test]
    fn wrong_pairs_are_named() {
        let message = |pairs: &[usize], weights: &[usize], fermions: i64| {
            let zeros = |dims: &[usize]| vec![0.0; dims.iter().product()];
            let frame = arguments().frame(Threads::None).attr_i64("fermions", fermions).result::<Complex<f64>>(&[3]);
            let frame = frame.arg(&zeros(pairs), pairs).arg(&zeros(weights), weights);
            { frame }.execute(pfaffian).expect_err("a wrong call").message
        };
        assert_eq!(message(&[1, 1, 2, 3], &[1, 1], 2), "'pairs' has shape [1, 1, 2, 3], expected [1, 1, 2, 2]");
        assert_eq!(message(&[1, 2, 2, 2], &[1, 1], 2), "'pairs' has shape [1, 2, 2, 2], expected [1, 1, 2, 2]");
        assert_eq!(message(&[2, 1, 2, 2], &[1, 1], 2), "'weights' has shape [1, 1], expected [2, 1]");
        assert!(message(&[1, 1, 2, 2], &[1, 1], 1).contains("there are 1 fermions, but pairs have an even number"));
        assert!(message(&[1, 1, 2, 2], &[1, 1], -2).contains("fermions, but pairs have an even number"));
        assert!(message(&[1, 1, 2, 2], &[1, 1], 4).contains("there are 4 fermions on 2 modes"));
        assert!(message(&[1, 0, 2, 2], &[1, 0], 2).contains("there are 0 weights"));
    }

    #[test]
    fn wrong_calls_are_named() {
        let message = |frame: TestFrame| { frame }.execute(rbm).expect_err("a wrong call").message;
        let frame = || arguments().frame(Threads::None).attr_bool("pairs", true);
        assert_eq!(message(frame()), "argument 8 'theta' is missing: the call has 8");
        let wrong = |theta: &[usize], delta: &[usize], bias: &[usize]| {
            let zeros = |dims: &[usize]| vec![0.0; dims.iter().product()];
            let frame = arguments().frame(Threads::None).attr_bool("pairs", false).result::<Complex<f64>>(&[3]);
            message(frame.arg(&zeros(theta), theta).arg(&zeros(delta), delta).arg(&zeros(bias), bias))
        };
        assert_eq!(wrong(&[1, 16], &[1, 2, 32], &[1, 2]), "'theta' has shape [1, 16], expected [1, 32]");
        assert_eq!(wrong(&[1, 16], &[1, 3, 16], &[1, 2]), "'delta' has shape [1, 3, 16], expected [1, 2, 16]");
        assert_eq!(wrong(&[1, 16], &[1, 2, 16], &[1, 3]), "'bias' has shape [1, 3], expected [1, 2]");
        assert!(wrong(&[1, 15], &[1, 2, 15], &[1, 2]).contains("15 hidden units"));
        assert!(wrong(&[3, 16], &[3, 2, 16], &[3, 2]).starts_with("the tables have 3 planes of float64"));
        let more = with_rbm(arguments().frame(Threads::None), 1.0).arg(&[1.0], &[]);
        assert_eq!(message(more), "the call has 12 arguments, but the handler takes 11");
    }
}
