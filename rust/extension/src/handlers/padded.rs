//! Connected elements in the padded form: as many for each sample, those beyond its own with matrix element 0.

use super::blocks::{block_len, blocks, min_written, share};
use super::configurations::{Configurations, Connected, configurations};
use super::dispatch::{FirstError, with_number_type};
use super::forms::{FormArguments, MatrixArguments, Operator, TermArguments};
use ferroket_kernels::connected::{Elements, Form, Part};
use ferroket_kernels::numbers::MatrixElement;
use ferroket_xla_ffi::{Element, Error, Frame, Pool, Rows, handler};
use std::ops::Range;

handler! {
    /// Arguments `x (..., N)`, `kind`, the tables of the form, and `values`; attributes `starts`, `steps`, `sizes`,
    /// `diagonal`, `diagonal_only` and `states`; results `xp (..., K, N)`, if `states`, and `mels (..., K)`.
    pub(super) fn terms = call::<TermArguments>
}

handler! {
    /// As [`terms`], with the tables of the other form.
    pub(super) fn tables = call::<MatrixArguments>
}

fn call<F: FormArguments>(frame: &Frame) -> Result<(), Error> {
    let states = frame.attr_bool("states")?;
    let part = if frame.attr_bool("diagonal_only")? { Part::Diagonal } else { Part::All };
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
    let (configurations, xp) = configurations(&sites, x, xp)?;
    let sweep = Sweep { form: &form, part, room, states, configurations };
    with_number_type!(mels.dtype(), "the matrix elements", T => {
        let values = values.typed::<T>()?.as_slice();
        sweep.run(frame.pool(), samples, values, mels.typed::<T>()?.into_mut_slice(), xp)
    })
}

struct Sweep<'a, F: Form> {
    form: &'a F,
    part: Part,
    /// K, the room for elements of each sample.
    room: usize,
    /// Whether configurations are wanted.
    states: bool,
    configurations: Box<dyn Configurations<F> + 'a>,
}

impl<F: Form> Sweep<'_, F> {
    fn run<T: MatrixElement + Element>(
        &self,
        pool: Pool,
        samples: usize,
        values: &[T],
        mels: &mut [T],
        xp: &mut [u8],
    ) -> Result<(), Error> {
        let numbers = self.room * if self.states { self.form.sites() } else { 1 };
        let width = xp.len().checked_div(samples).unwrap_or_default();
        let parts = (Rows::new(mels, self.room), Rows::new(xp, width));
        let first_error = FirstError::default();
        let min = min_written(self.form, numbers).max(share::<F>(samples, pool.threads()));
        pool.for_each_part(samples, min, parts, |range, (mels, xp)| {
            first_error.keep(range.start, self.part(range, values, mels.into_slice(), xp.into_slice()));
        })?;
        first_error.into_result(samples)
    }

    /// The elements of some samples.
    fn part<T: MatrixElement>(
        &self,
        samples: Range<usize>,
        values: &[T],
        mels: &mut [T],
        xp: &mut [u8],
    ) -> Result<(), ferroket_kernels::Error> {
        let Self { form, part, room, states, ref configurations } = *self;
        let (sites, changes_room) = (form.sites(), if states { room } else { 0 });
        let max_len = block_len(form, changes_room, 0).min(samples.len());
        let mut indices = vec![0; max_len * sites];
        let mut counts = vec![0; max_len];
        let mut changes = vec![F::Change::default(); max_len * changes_room];
        let width = xp.len().checked_div(samples.len()).unwrap_or_default();
        for block in blocks(0..samples.len(), max_len) {
            let len = block.len();
            let (indices, counts) = (&mut indices[..len * sites], &mut counts[..len]);
            let first = samples.start + block.start;
            configurations.read(first..first + len, indices)?;
            let (mels, changes) = (&mut mels[block.start * room..][..len * room], &mut changes[..len * changes_room]);
            Elements { counts, mels, changes }.write_active(form, values, indices, part, first)?;
            if states {
                let connected: Vec<_> = counts
                    .iter()
                    .enumerate()
                    .map(|(sample, &count)| Connected {
                        indices: &indices[sample * sites..][..sites],
                        changes: &changes[sample * room..][..count as usize],
                        rows: room,
                    })
                    .collect();
                configurations.write(form, &connected, &mut xp[block.start * width..][..len * width]);
            }
        }
        Ok(())
    }
}
