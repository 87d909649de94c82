//! Local values with restricted Boltzmann machines.

use super::configurations::{Configurations, configurations};
use super::dispatch::{FirstError, invalid};
use super::forms::{Operator, TermsArguments};
use ferroket_kernels::element::MatrixElement;
use ferroket_kernels::rbm::{Hidden, Machine, Rbm, Real, local_values};
use ferroket_kernels::terms::{BLOCK, Terms};
use ferroket_xla_ffi::{DataType, Element, Error, Frame, Rows, handler};
use num_complex::Complex;

handler! {
    /// Arguments `x (Ns, N)`, `kind`, the tables of the form, `values` of float64 or complex128, and of float32 or float64
    /// `theta` and `tanh (P, Ns, M)`, `delta`, `cosh` and `sinh (P, N, M)` and `bias (P, N)`, with P = 1 for real and 2
    /// for complex machines; attributes `starts`, `steps`, `sizes` and `diagonal`; result `local (Ns,)` of complex128.
    pub(super) fn local_values_of_rbm = call
}

const ARGUMENTS: usize = Operator::<TermsArguments>::ARGUMENTS;

/// The numbers of a sample's tanh θ that a block has stay in the second-level cache.
const CACHED: usize = 1 << 16;

fn call(frame: &Frame) -> Result<(), Error> {
    frame.expect_counts(ARGUMENTS + 6, 1)?;
    let values = frame.arg(ARGUMENTS - 1, "values")?;
    let delta = frame.arg(ARGUMENTS + 2, "delta")?;
    delta.expect_rank(3)?;
    match (values.dtype(), delta.dtype(), delta.dims()[0]) {
        (DataType::F64, DataType::F32, 1) => of_types::<f64, f32, 1>(frame),
        (DataType::F64, DataType::F64, 1) => of_types::<f64, f64, 1>(frame),
        (DataType::F64, DataType::F32, 2) => of_types::<f64, f32, 2>(frame),
        (DataType::F64, DataType::F64, 2) => of_types::<f64, f64, 2>(frame),
        (DataType::C128, DataType::F32, 1) => of_types::<Complex<f64>, f32, 1>(frame),
        (DataType::C128, DataType::F64, 1) => of_types::<Complex<f64>, f64, 1>(frame),
        (DataType::C128, DataType::F32, 2) => of_types::<Complex<f64>, f32, 2>(frame),
        (DataType::C128, DataType::F64, 2) => of_types::<Complex<f64>, f64, 2>(frame),
        (values, tables, planes) => Err(Error::invalid(format!(
            "the values have dtype {values} and the tables {planes} planes of {tables}, but must be float64 or complex128, \
             and 1 or 2 planes of float32 or float64"
        ))),
    }
}

fn of_types<V, T, const P: usize>(frame: &Frame) -> Result<(), Error>
where
    V: Element + MatrixElement + Into<Complex<f64>>,
    T: Element + Real,
{
    let x = frame.arg(0, "x")?;
    x.expect_rank(2)?;
    let (samples, n_sites) = (x.dims()[0], x.dims()[1]);
    let Operator { sites, form, values } = Operator::<TermsArguments>::parse(frame, n_sites)?;
    let values = values.typed::<V>()?.as_slice();
    let units = frame.arg(ARGUMENTS + 2, "delta")?.dims()[2];
    let table = |index: usize, name, dims: &[usize]| -> Result<&[T], Error> {
        let table = frame.arg(ARGUMENTS + index, name)?.typed::<T>()?;
        table.expect_dims(dims)?;
        Ok(table.as_slice())
    };
    let hidden = Hidden {
        theta: table(0, "theta", &[P, samples, units])?,
        tanh: table(1, "tanh", &[P, samples, units])?,
    };
    let tables = Rbm {
        delta: table(2, "delta", &[P, n_sites, units])?,
        cosh: table(3, "cosh", &[P, n_sites, units])?,
        sinh: table(4, "sinh", &[P, n_sites, units])?,
        bias: table(5, "bias", &[P, n_sites])?,
        units,
    };
    let machine = Machine::<T, P>::new(tables, n_sites).map_err(|error| invalid(&error))?;
    let local = frame.result(0, "local")?.typed::<Complex<f64>>()?;
    local.expect_dims(&[samples])?;
    let (configurations, _) = configurations(&sites, x, None)?;
    let configurations: &dyn Configurations<Terms> = &*configurations;

    let block = (CACHED / (P * units).max(1)).clamp(64, BLOCK) / 64 * 64;
    let pool = frame.pool();
    let share = samples.div_ceil(samples.div_ceil(block).next_multiple_of(pool.threads()).max(1)).max(1);
    let first_error = FirstError::default();
    pool.for_each_part(samples, share, Rows::new(local.into_mut_slice(), 1), |range, local| {
        let mut indices = vec![0; block * n_sites];
        for (place, local) in local.into_slice().chunks_mut(block).enumerate() {
            let first = range.start + place * block;
            let indices = &mut indices[..local.len() * n_sites];
            match configurations.read(first..first + local.len(), indices) {
                Ok(()) => local_values(&form, values, indices, &machine, hidden, first, local),
                error => return first_error.keep(range.start, error),
            }
        }
    })?;
    first_error.into_result(samples)
}
