//! Amplitudes whose ratios are known, as handlers take them: the last ones of their arguments.

use super::dispatch::invalid;
use ferroket_kernels::amplitudes::jastrow::JastrowTables;
use ferroket_kernels::amplitudes::rbm::{Rbm, RbmTables};
use ferroket_kernels::numbers::{Algebra, Real};
use ferroket_xla_ffi::{Element, Error, Frame};

/// How many arguments a machine has.
pub(super) const RBM: usize = 3;

/// How many a Jastrow amplitude has.
pub(super) const JASTROW: usize = 2;

/// Evaluates `$body` with the types of the amplitudes' tables and of their numbers, and how many planes these have; `$pairs`
/// says whether they are [`Pairs`]. The tables begin at argument `$first`.
macro_rules! with_types {
    ($frame:expr, $first:expr, $pairs:expr, ($T:ident, $A:ident, $P:ident) => $body:expr) => {{
        macro_rules! with {
            ($tables:ty, $algebra:ty, $planes:literal) => {{
                type $T = $tables;
                type $A = $algebra;
                const $P: usize = $planes;
                $body
            }};
        }
        use ferroket_kernels::numbers::{Complexes, Pairs, Reals};
        use ferroket_xla_ffi::DataType;
        let tables = $frame.arg($first, "the first table")?;
        tables.expect_rank(2)?;
        match (tables.dtype(), tables.dims()[0], $pairs) {
            (DataType::F32, 1, false) => with!(f32, Reals, 1),
            (DataType::F64, 1, false) => with!(f64, Reals, 1),
            (DataType::F32, 2, false) => with!(f32, Complexes, 2),
            (DataType::F64, 2, false) => with!(f64, Complexes, 2),
            (DataType::F32, 2, true) => with!(f32, Pairs, 2),
            (DataType::F64, 2, true) => with!(f64, Pairs, 2),
            (dtype, planes, _) => Err(ferroket_xla_ffi::Error::invalid(format!(
                "the tables have {planes} planes of {dtype}, but must have 1 or 2 (if pairs: 2) of float32 or float64"
            ))),
        }
    }};
}

pub(super) use with_types;

/// The tables `theta (P, M)`, `delta (P, N, M)` and `bias (P, N)` of a machine.
pub(super) fn machine<'a, T: Real + Element, A: Algebra<P>, const P: usize>(
    frame: &Frame<'a>,
    first: usize,
    sites: usize,
) -> Result<Rbm<'a, T, A, P>, Error> {
    let units = columns(frame, first)?;
    let tables = RbmTables {
        theta: table(frame, first, "theta", &[P, units])?,
        delta: table(frame, first + 1, "delta", &[P, sites, units])?,
        bias: table(frame, first + 2, "bias", &[P, sites])?,
        units,
    };
    Rbm::new(tables, sites).map_err(|error| invalid(&error))
}

/// The tables `fields (P, M)` and `pairs (P, N, M)` of a Jastrow amplitude.
pub(super) fn quadratic<'a, T: Element>(
    frame: &Frame<'a>,
    first: usize,
    planes: usize,
    sites: usize,
) -> Result<JastrowTables<'a, T>, Error> {
    let columns = columns(frame, first)?;
    Ok(JastrowTables {
        fields: table(frame, first, "fields", &[planes, columns])?,
        pairs: table(frame, first + 1, "pairs", &[planes, sites, columns])?,
        columns,
    })
}

/// The length of the rows of the tables, the second of which is `(P, N, M)`.
fn columns(frame: &Frame, first: usize) -> Result<usize, Error> {
    let table = frame.arg(first + 1, "the second table")?;
    table.expect_rank(3)?;
    Ok(table.dims()[2])
}

fn table<'a, T: Element>(
    frame: &Frame<'a>,
    index: usize,
    name: &'static str,
    dims: &[usize],
) -> Result<&'a [T], Error> {
    let table = frame.arg(index, name)?.typed::<T>()?;
    table.expect_dims(dims)?;
    Ok(table.as_slice())
}
