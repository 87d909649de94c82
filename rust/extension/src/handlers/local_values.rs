//! Local values with amplitudes whose ratios are known.

use super::amplitudes::{self, with_types};
use super::configurations::{Configurations, configurations};
use super::dispatch::{FirstError, invalid, with_weights};
use super::forms::{Operator, TermArguments};
use ferroket_kernels::amplitudes::{Ratios, jastrow, local_values, rbm};
use ferroket_kernels::connected::terms::{BLOCK, Terms};
use ferroket_kernels::numbers::Weight;
use ferroket_kernels::sites::Sites;
use ferroket_xla_ffi::{DataType, Error, Frame, Rows, handler};
use num_complex::Complex;
use std::ops::Range;

handler! {
    /// Arguments `x (Ns, N)`, `kind`, the tables of the form, `values`, and of float32 or float64
    /// `theta (P, M)`, `delta (P, N, M)` and `bias (P, N)`, with P = 1 for real machines
    /// and 2 for complex ones, or for two real ones; attributes `starts`, `steps`, `sizes`, `diagonal`, and `pairs`, whether
    /// there are two; result `local (Ns,)` of
    /// complex64 or complex128.
    pub(super) fn rbm = call_rbm
}

handler! {
    /// Arguments `x (Ns, N)`, `kind`, the tables of the form, `values`, and of float32 or float64
    /// `fields (P, M)` and `pairs (P, N, M)`, with P = 1 for real amplitudes and 2 for complex ones; attributes `starts`,
    /// `steps`, `sizes` and `diagonal`; result `local (Ns,)` of
    /// complex64 or complex128.
    pub(super) fn jastrow = call_jastrow
}

/// The numbers of the amplitudes that a block of samples has stay in the second-level cache.
const CACHED: usize = 1 << 16;

/// The arguments that describe samples and operator.
const ARGUMENTS: usize = Operator::<TermArguments>::ARGUMENTS;

fn call_rbm(frame: &Frame) -> Result<(), Error> {
    frame.expect_counts(ARGUMENTS + amplitudes::RBM, 1)?;
    let pairs = frame.attr_bool("pairs")?;
    with_types!(frame, ARGUMENTS, pairs, (T, A, P) => {
        let (_, sites) = shape(frame)?;
        let machine = amplitudes::machine::<T, A, P>(frame, ARGUMENTS, sites)?;
        evaluate(frame, machine.numbers(), || rbm::Amplitudes::new(&machine))
    })
}

fn call_jastrow(frame: &Frame) -> Result<(), Error> {
    frame.expect_counts(ARGUMENTS + amplitudes::JASTROW, 1)?;
    with_types!(frame, ARGUMENTS, false, (T, A, P) => {
        let (_, sites) = shape(frame)?;
        let tables = amplitudes::quadratic::<T>(frame, ARGUMENTS, P, sites)?;
        let amplitudes = jastrow::Amplitudes::<T, A, P>::new(tables, sites).map_err(|error| invalid(&error))?;
        evaluate(frame, P * tables.columns, || amplitudes.clone())
    })
}

/// The numbers of samples and sites.
fn shape(frame: &Frame) -> Result<(usize, usize), Error> {
    let x = frame.arg(0, "x")?;
    x.expect_rank(2)?;
    Ok((x.dims()[0], x.dims()[1]))
}

/// Has the threads of the pool evaluate blocks of samples, for each of which `amplitudes` holds so many numbers.
fn evaluate<R: Ratios>(frame: &Frame, numbers: usize, amplitudes: impl Fn() -> R + Sync) -> Result<(), Error> {
    let (_, sites) = shape(frame)?;
    let Operator { sites, form, values } = Operator::<TermArguments>::parse(frame, sites)?;
    let call = Call { frame, sites, form, numbers, amplitudes };
    with_weights!(values, values => call.with(values))
}

/// What is evaluated, but for the operator's values.
struct Call<'a, 'f, F> {
    frame: &'f Frame<'a>,
    sites: Sites,
    form: Terms<'a>,
    numbers: usize,
    amplitudes: F,
}

impl<R: Ratios, F: Fn() -> R + Sync> Call<'_, '_, F> {
    fn with<V: Weight>(self, values: &[V]) -> Result<(), Error> {
        let Self { frame, sites, form, numbers, amplitudes } = self;
        let (samples, n_sites) = shape(frame)?;
        let local = frame.result(0, "local")?;
        local.expect_dims(&[samples])?;
        let (configurations, _) = configurations(&sites, frame.arg(0, "x")?, None)?;
        let configurations: &dyn Configurations<Terms> = &*configurations;
        let block = (CACHED / numbers.max(1)).clamp(64, BLOCK) / 64 * 64;
        let pool = frame.pool();
        let share = samples.div_ceil(samples.div_ceil(block).next_multiple_of(pool.threads()).max(1)).max(1);
        let first_error = FirstError::default();
        let evaluate = |range: Range<usize>, local: &mut [Complex<f64>]| {
            let mut indices = vec![0; block * n_sites];
            let mut amplitudes = amplitudes();
            for (place, local) in local.chunks_mut(block).enumerate() {
                let first = range.start + place * block;
                let indices = &mut indices[..local.len() * n_sites];
                match configurations.read(first..first + local.len(), indices) {
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

#[allow(clippy::cast_possible_truncation, reason = "the nearest number is wanted")]
fn narrow(number: Complex<f64>) -> Complex<f32> {
    Complex::new(number.re as f32, number.im as f32)
}
