//! How many connected elements of each sample are not zero.

use super::configurations::{Configurations, configurations};
use super::dispatch::with_number_type;
use super::forms::{FormArguments, Operator, TablesArguments, TermsArguments};
use super::scratch::{blocks, max_block, min_samples, sample_bytes};
use ferroket_kernels::element::MatrixElement;
use ferroket_kernels::elements::{Form, count_nonzero};
use ferroket_xla_ffi::{AnyBuffer, Element, Error, Frame, Pool, Rows, handler};

handler! {
    /// Arguments `x (Ns, N)`, `kind`, the tables of the form, and `values`; attributes `starts`, `steps`, `sizes`,
    /// `diagonal` and `off_diagonal_only`; result `counts (Ns,)` of int32.
    pub(super) fn terms = call::<TermsArguments>
}

handler! {
    /// As [`terms`], with the tables of the other form.
    pub(super) fn tables = call::<TablesArguments>
}

fn call<F: FormArguments>(frame: &Frame) -> Result<(), Error> {
    frame.expect_counts(Operator::<F>::ARGUMENTS, 1)?;
    let x = frame.arg(0, "x")?;
    let counts = frame.result(0, "counts")?.typed::<i32>()?;
    x.expect_rank(2)?;
    counts.expect_dims(&x.dims()[..1])?;
    let off_diagonal_only = frame.attr_bool("off_diagonal_only")?;
    let Operator { sites, form, values } = Operator::<F>::parse(frame, x.dims()[1])?;
    let configurations = configurations(&sites, x, None)?;
    let sweep = Sweep { pool: frame.pool(), form: &form, off_diagonal_only, configurations };
    let counts = counts.into_mut_slice();
    with_number_type!(values.dtype(), "the values", T => sweep.run::<T>(values, counts))
}

struct Sweep<'a, F: Form> {
    pool: Pool<'a>,
    form: &'a F,
    off_diagonal_only: bool,
    configurations: Box<dyn Configurations<F> + 'a>,
}

impl<F: Form> Sweep<'_, F> {
    fn run<T: MatrixElement + Element>(self, values: AnyBuffer, counts: &mut [i32]) -> Result<(), Error> {
        let Self { pool, form, off_diagonal_only, configurations } = self;
        let values = values.typed::<T>()?.as_slice();
        let sites = form.sites();
        let block_len = max_block(form, pool.threads(), counts.len(), sample_bytes(form, 0, 0));
        let mut indices = vec![0; block_len * sites];
        for block in blocks(counts.len(), block_len) {
            let indices = &mut indices[..block.len() * sites];
            configurations.read(pool, block.clone(), indices)?;
            let indices = &*indices;
            let counts = Rows::new(&mut counts[block.clone()], 1);
            pool.for_each_part(block.len(), min_samples(form, form.max_elements()), counts, |range, counts| {
                let indices = &indices[range.start * sites..range.end * sites];
                count_nonzero(form, values, indices, off_diagonal_only, counts.into_slice());
            })?;
        }
        Ok(())
    }
}
