//! How many connected elements of each sample are not zero.

use crate::blocks::{block_len, blocks, min_evaluated};
use crate::configurations::{Configurations, configurations};
use crate::dtypes::with_number_type;
use crate::errors::FirstError;
use crate::operators::{FormTables, MatricesOf, Operator, TermsOf, batch};
use ferroket_kernels::connected::{Form, Part, count_nonzero};
use ferroket_kernels::numbers::MatrixElement;
use ferroket_xla_ffi::{Error, Frame, Rows, handler};
use std::ops::Range;

handler! {
    /// Arguments `x (..., N)`, `kind`, the tables of the form, and `values`; attributes `starts`, `steps`, `sizes`,
    /// `diagonal` and `off_diagonal_only`; result `counts (...)` of int32.
    pub(crate) fn terms = call::<TermsOf>
}

handler! {
    /// As [`terms`], with the tables of the other form.
    pub(crate) fn matrices = call::<MatricesOf>
}

fn call<F: FormTables>(frame: &Frame) -> Result<(), Error> {
    let (mut args, mut results) = (frame.arguments(), frame.results());
    let (x, Operator { sites, form, values }) = Operator::<F>::read(frame, &mut args)?;
    args.finish()?;
    let counts = results.typed::<i32>("counts")?;
    results.finish()?;
    counts.expect_dims(batch(&x))?;
    let part = if frame.attr_bool("off_diagonal_only")? { Part::OffDiagonal } else { Part::All };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, POOLS, arguments};
    use ferroket_xla_ffi::testing::Threads;

    #[test]
    fn elements_that_are_not_zero() {
        for threads in POOLS {
            for (off_diagonal_only, expected) in [(false, [1, 2, 2]), (true, [0, 1, 1])] {
                let frame = arguments().frame(threads).attr_bool("off_diagonal_only", off_diagonal_only);
                let mut frame = frame.result::<i32>(&[3]);
                assert_eq!(frame.execute(terms), Ok(()));
                assert_eq!(frame.read::<i32>(0), expected);
                let frame = testing::matrices(threads).attr_bool("off_diagonal_only", off_diagonal_only);
                let mut frame = frame.result::<i32>(&[3]);
                assert_eq!(frame.execute(matrices), Ok(()));
                assert_eq!(frame.read::<i32>(0), expected);
            }
        }
    }

    /// More samples than a thread works on at once, each with its own count.
    #[test]
    fn many_samples() {
        let mut many = arguments();
        many.x = (0..4000).flat_map(|sample| [i8::from(sample % 3 == 0), i8::from(sample % 5 == 0)]).collect();
        let frame = many.frame(Threads::Real(4)).attr_bool("off_diagonal_only", true);
        let mut frame = frame.result::<i32>(&[4000]);
        assert_eq!(frame.execute(terms), Ok(()));
        let expected: Vec<i32> = (0..4000).map(|sample| i32::from(sample % 3 == 0)).collect();
        assert_eq!(frame.read::<i32>(0), expected);
    }

    #[test]
    fn the_first_wrong_sample_is_named() {
        let mut wrong = arguments();
        wrong.x = vec![0; 8000];
        (wrong.x[7001], wrong.x[4003]) = (7, 8);
        let frame = wrong.frame(Threads::Real(4)).attr_bool("off_diagonal_only", false);
        let failure = frame.result::<i32>(&[4000]).execute(terms).expect_err("a wrong sample");
        assert_eq!(
            failure.message,
            "sample 2001, site 1 has the value 8, but the local states are 0 and 1 (counted among the 4000 of this device)"
        );
    }

    #[test]
    fn wrong_results_are_named() {
        let frame = || arguments().frame(Threads::None).attr_bool("off_diagonal_only", false);
        let message = |failure: Result<(), ferroket_xla_ffi::testing::Failure>| failure.expect_err("wrong").message;
        assert_eq!(message(frame().result::<i64>(&[3]).execute(terms)), "'counts' has dtype int64, expected int32");
        assert_eq!(message(frame().result::<i32>(&[2]).execute(terms)), "'counts' has shape [2], expected [3]");
        assert_eq!(message(frame().execute(terms)), "result 0 'counts' is missing: the call has 0");
    }
}
