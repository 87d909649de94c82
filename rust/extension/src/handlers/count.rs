//! How many connected elements of each sample are not zero.

use super::blocks::{block_len, blocks, min_evaluated};
use super::configurations::{Configurations, configurations};
use super::dispatch::{FirstError, with_number_type};
use super::forms::{FormArguments, MatrixArguments, Operator, TermArguments};
use ferroket_kernels::connected::{Form, Part, count_nonzero};
use ferroket_kernels::numbers::MatrixElement;
use ferroket_xla_ffi::{Error, Frame, Rows, handler};
use std::ops::Range;

handler! {
    /// Arguments `x (Ns, N)`, `kind`, the tables of the form, and `values`; attributes `starts`, `steps`, `sizes`,
    /// `diagonal` and `off_diagonal_only`; result `counts (Ns,)` of int32.
    pub(super) fn terms = call::<TermArguments>
}

handler! {
    /// As [`terms`], with the tables of the other form.
    pub(super) fn tables = call::<MatrixArguments>
}

fn call<F: FormArguments>(frame: &Frame) -> Result<(), Error> {
    frame.expect_counts(Operator::<F>::ARGUMENTS, 1)?;
    let x = frame.arg(0, "x")?;
    let counts = frame.result(0, "counts")?.typed::<i32>()?;
    x.expect_rank(2)?;
    counts.expect_dims(&x.dims()[..1])?;
    let part = if frame.attr_bool("off_diagonal_only")? { Part::OffDiagonal } else { Part::All };
    let Operator { sites, form, values } = Operator::<F>::parse(frame, x.dims()[1])?;
    let (configurations, _) = configurations(&sites, x, None)?;
    let sweep = Sweep { form: &form, part, configurations };
    let samples = counts.len();
    let counts = Rows::new(counts.into_mut_slice(), 1);
    let first_error = FirstError::default();
    let pool = frame.pool();
    let min = min_evaluated(&form, samples, pool.threads());
    with_number_type!(values.dtype(), "the values", T => {
        let values = values.typed::<T>()?.as_slice();
        pool.for_each_part(samples, min, counts, |range, counts| {
            first_error.keep(range.start, sweep.part(range, values, counts.into_slice()));
        })
    })?;
    first_error.into_result(samples)
}

struct Sweep<'a, F: Form> {
    form: &'a F,
    part: Part,
    configurations: Box<dyn Configurations<F> + 'a>,
}

impl<F: Form> Sweep<'_, F> {
    /// The counts of some samples.
    fn part<T: MatrixElement>(
        &self,
        samples: Range<usize>,
        values: &[T],
        counts: &mut [i32],
    ) -> Result<(), ferroket_kernels::Error> {
        let sites = self.form.sites();
        let max_len = block_len(self.form, 0, 0).min(samples.len());
        let mut indices = vec![0; max_len * sites];
        for block in blocks(0..samples.len(), max_len) {
            let indices = &mut indices[..block.len() * sites];
            self.configurations.read(samples.start + block.start..samples.start + block.end, indices)?;
            count_nonzero(self.form, values, indices, self.part, &mut counts[block]);
        }
        Ok(())
    }
}
