//! Connected elements of the transverse-field Ising Hamiltonian.

use crate::dtypes::with_number_type;
use crate::errors::{FirstError, invalid};
use crate::operators::{batch, read_samples};
use crate::padded::read_results;
use ferroket_kernels::connected::ising::{Lattice, matrix_elements};
use ferroket_kernels::numbers::{MatrixElement, Sample};
use ferroket_kernels::sites::TwoStates;
use ferroket_xla_ffi::{AnyBuffer, AnyBufferMut, Element, Error, Frame, Pool, Rows, handler};

handler! {
    /// Arguments `x (..., N)`, `edges (E, 2)` of int32, and the scalars `h` and `J`; attributes `first` and `second`, the
    /// local states, and `states`; results `xp (..., K, N)`, if `states`, and `mels (..., K)`.
    pub(crate) fn connected_elements = call
}

/// So many elements of the results are worth a thread's while.
const MIN_ELEMENTS: usize = 1 << 15;

fn call(frame: &Frame) -> Result<(), Error> {
    let states = frame.attr_bool("states")?;
    let (mut args, results) = (frame.arguments(), frame.results());
    let x = read_samples(&mut args)?;
    let edges = args.typed::<i32>("edges")?;
    let (h, j) = (args.any("h")?, args.any("J")?);
    args.finish()?;
    let (xp, mels, connections) = read_results(results, &x, states)?;
    let (samples, sites) = (batch(&x).iter().product(), x.dims()[batch(&x).len()]);
    if connections != 1 && connections != sites + 1 {
        return Err(Error::invalid(format!("mels has {connections} connected elements, expected 1 or {}", sites + 1)));
    }
    edges.expect_dims(&[edges.len() / 2, 2])?;

    let edges: Vec<[i32; 2]> = edges.as_slice().chunks_exact(2).map(|ends| [ends[0], ends[1]]).collect();
    let lattice = Lattice::new(sites, &edges).map_err(|error| invalid(&error))?;
    let sweep = Sweep { pool: frame.pool(), lattice, samples, connections };
    let mut correlations = vec![0; sweep.samples];
    with_number_type!(x.dtype(), "the samples", S => {
        let states = TwoStates::<S>::new(frame.attr_f64("first")?, frame.attr_f64("second")?);
        sweep.configurations(&states.map_err(|error| invalid(&error))?, x, xp, &mut correlations)
    })?;
    with_number_type!(mels.dtype(), "the matrix elements", T => sweep.matrix_elements::<T>(h, j, mels, &correlations))
}

/// What all parts of a call have in common.
struct Sweep<'a> {
    pool: Pool<'a>,
    lattice: Lattice<'a>,
    samples: usize,
    connections: usize,
}

impl Sweep<'_> {
    /// Reads the samples: writes their correlations, and their connected configurations if they are wanted.
    fn configurations<S: Sample + Element>(
        &self,
        states: &TwoStates<S>,
        x: AnyBuffer,
        xp: Option<AnyBufferMut>,
        correlations: &mut [i64],
    ) -> Result<(), Error> {
        let x = x.typed::<S>()?;
        let sites = x.dims().last().copied().unwrap_or_default();
        let wanted = xp.is_some();
        let xp = match xp {
            Some(xp) => {
                let mut xp = xp.typed::<S>()?;
                xp.advise_huge_pages();
                xp.into_mut_slice()
            }
            None => &mut [],
        };
        let width = if wanted { self.connections * sites } else { 0 };
        let min_samples = MIN_ELEMENTS / width.max(sites).max(1);
        let first_error = FirstError::default();
        let lattice = self.lattice; // the pool itself is not for other threads
        let parts = (Rows::new(xp, width), Rows::new(correlations, 1));
        self.pool.for_each_part(self.samples, min_samples, parts, |range, (xp, correlations)| {
            let start = range.start;
            let samples = &x.as_slice()[range.start * sites..range.end * sites];
            let xp = wanted.then(|| xp.into_slice());
            first_error.keep(start, lattice.connected(states, start, samples, correlations.into_slice(), xp));
        })?;
        first_error.into_result(self.samples)
    }

    /// Writes the matrix elements of samples whose correlations are known.
    fn matrix_elements<T: MatrixElement + Element>(
        &self,
        h: AnyBuffer,
        j: AnyBuffer,
        mels: AnyBufferMut,
        correlations: &[i64],
    ) -> Result<(), Error> {
        let (h, j) = (scalar::<T>(h)?, scalar::<T>(j)?);
        let mels = Rows::new(mels.typed::<T>()?.into_mut_slice(), self.connections);
        self.pool.for_each_part(self.samples, MIN_ELEMENTS / self.connections, mels, |range, mels| {
            matrix_elements(h, j, &correlations[range], mels.into_slice());
        })
    }
}

/// The value of an array without dimensions.
fn scalar<T: Element>(buffer: AnyBuffer) -> Result<T, Error> {
    buffer.expect_dims(&[])?;
    Ok(buffer.typed::<T>()?.as_slice()[0])
}
