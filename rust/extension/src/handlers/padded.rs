//! Connected elements in the padded form: as many for each sample, those beyond its own with matrix element 0.

use super::configurations::{Changes, Configurations, configurations};
use super::dispatch::{FirstError, with_number_type};
use super::forms::{FormArguments, Operator, TablesArguments, TermsArguments};
use super::scratch::{blocks, max_block, min_samples, sample_bytes};
use ferroket_kernels::element::MatrixElement;
use ferroket_kernels::elements::{Elements, Form};
use ferroket_xla_ffi::{AnyBuffer, AnyBufferMut, Element, Error, Frame, Pool, Rows, handler};

handler! {
    /// Arguments `x (..., N)`, `kind`, the tables of the form, and `values`; attributes `starts`, `steps`, `sizes`,
    /// `diagonal` and `states`; results `xp (..., K, N)`, if `states`, and `mels (..., K)`.
    pub(super) fn terms = call::<TermsArguments>
}

handler! {
    /// As [`terms`], with the tables of the other form.
    pub(super) fn tables = call::<TablesArguments>
}

fn call<F: FormArguments>(frame: &Frame) -> Result<(), Error> {
    let states = frame.attr_bool("states")?;
    frame.expect_counts(Operator::<F>::ARGUMENTS, 1 + usize::from(states))?;
    let x = frame.arg(0, "x")?;
    let xp = if states { Some(frame.result(0, "xp")?) } else { None };
    let mels = frame.result(usize::from(states), "mels")?;

    let Some((&sites, batch)) = x.dims().split_last() else {
        return Err(Error::invalid("x has no dimension, but its last one must be that of the sites"));
    };
    let Some((&room, _)) = mels.dims().split_last() else {
        return Err(Error::invalid("mels has no dimension, but its last one must be that of the connected elements"));
    };
    mels.expect_dims(&[batch, &[room]].concat())?;
    if let Some(xp) = &xp {
        xp.expect_dims(&[batch, &[room, sites]].concat())?;
    }
    let samples = batch.iter().product();
    let Operator { sites, form, values } = Operator::<F>::parse(frame, sites)?;
    let configurations = configurations(&sites, x, xp)?;
    let sweep = Sweep { pool: frame.pool(), form: &form, samples, room, states, configurations };
    with_number_type!(mels.dtype(), "the matrix elements", T => sweep.run::<T>(values, mels))
}

struct Sweep<'a, F: Form> {
    pool: Pool<'a>,
    form: &'a F,
    samples: usize,
    /// K, the room for elements of each sample.
    room: usize,
    /// Whether configurations are wanted.
    states: bool,
    configurations: Box<dyn Configurations<F> + 'a>,
}

impl<F: Form> Sweep<'_, F> {
    fn run<T: MatrixElement + Element>(mut self, values: AnyBuffer, mels: AnyBufferMut) -> Result<(), Error> {
        let Self { pool, form, samples, room, .. } = self;
        let values = values.typed::<T>()?.as_slice();
        let mels = mels.typed::<T>()?.into_mut_slice();
        let sites = form.sites();
        let changes_room = if self.states { room } else { 0 };
        let block_len = max_block(form, pool.threads(), samples, sample_bytes(form, changes_room, 0));
        let mut indices = vec![0; block_len * sites];
        let mut counts = vec![0; block_len];
        let mut changes = vec![Default::default(); block_len * changes_room];
        for block in blocks(samples, block_len) {
            let len = block.len();
            let indices = &mut indices[..len * sites];
            self.configurations.read(pool, block.clone(), indices)?;

            let first_error = FirstError::default();
            let indices = &*indices;
            let parts = (
                Rows::new(&mut counts[..len], 1),
                Rows::new(&mut mels[block.start * room..block.end * room], room),
                Rows::new(&mut changes[..len * changes_room], changes_room),
            );
            pool.for_each_part(len, min_samples(form, room), parts, |range, (counts, mels, changes)| {
                let first = block.start + range.start;
                let indices = &indices[range.start * sites..range.end * sites];
                let (counts, mels, changes) = (counts.into_slice(), mels.into_slice(), changes.into_slice());
                let elements = Elements { counts, mels, changes };
                first_error.keep(first, elements.write_active(form, values, indices, first));
            })?;
            first_error.into_result(samples)?;

            if self.states {
                let of_sample: Vec<_> =
                    counts[..len].iter().enumerate().map(|(s, &n)| s * room..s * room + n as usize).collect();
                let first_row: Vec<_> = (block.start..=block.end).map(|sample| sample * room).collect();
                let changes = Changes { indices, changes: &changes, of_sample: &of_sample, first_row: &first_row };
                self.configurations.write(pool, form, &changes)?;
            }
        }
        Ok(())
    }
}
