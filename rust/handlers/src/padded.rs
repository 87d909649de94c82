//! Connected elements in the padded form: as many for each sample, those beyond its own with matrix element 0.

use crate::blocks::{block_len, blocks, min_written, share};
use crate::configurations::{Configurations, Connected, configurations};
use crate::dtypes::with_number_type;
use crate::errors::FirstError;
use crate::operators::{FormTables, MatricesOf, Operator, TermsOf, batch};
use ferroket_kernels::connected::{Elements, Form, Part};
use ferroket_kernels::numbers::MatrixElement;
use ferroket_xla_ffi::{AnyBuffer, AnyBufferMut, Element, Error, Frame, Pool, Results, Rows, handler};
use std::ops::Range;

handler! {
    /// Arguments `x (..., N)`, `kind`, the tables of the form, and `values`; attributes `starts`, `steps`, `sizes`,
    /// `diagonal`, `diagonal_only` and `states`; results `xp (..., K, N)`, if `states`, and `mels (..., K)`.
    pub(crate) fn terms = call::<TermsOf>
}

handler! {
    /// As [`terms`], with the tables of the other form.
    pub(crate) fn matrices = call::<MatricesOf>
}

fn call<F: FormTables>(frame: &Frame) -> Result<(), Error> {
    let states = frame.attr_bool("states")?;
    let part = if frame.attr_bool("diagonal_only")? { Part::Diagonal } else { Part::All };
    let (mut args, results) = (frame.arguments(), frame.results());
    let (x, Operator { sites, form, values }) = Operator::<F>::read(frame, &mut args)?;
    args.finish()?;
    let (xp, mels, room) = read_results(results, &x, states)?;
    let samples = batch(&x).iter().product();
    let (configurations, xp) = configurations(&sites, x, xp)?;
    let sweep = Sweep { form: &form, part, room, states, configurations };
    with_number_type!(mels.dtype(), "the matrix elements", T => {
        let values = values.typed::<T>()?.as_slice();
        sweep.run(frame.pool(), samples, values, mels.typed::<T>()?.into_mut_slice(), xp)
    })
}

/// The results `xp (..., K, N)`, if `states`, and `mels (..., K)` of these samples; and K.
pub(crate) fn read_results<'a>(
    mut results: Results<'_, 'a>,
    x: &AnyBuffer,
    states: bool,
) -> Result<(Option<AnyBufferMut<'a>>, AnyBufferMut<'a>, usize), Error> {
    let xp = if states { Some(results.any("xp")?) } else { None };
    let mels = results.any("mels")?;
    results.finish()?;
    let (batch, sites) = x.dims().split_at(batch(x).len());
    let Some(&room) = mels.dims().last() else {
        return Err(Error::invalid("mels has no dimension, but its last one must be that of the connected elements"));
    };
    mels.expect_dims(&[batch, &[room]].concat())?;
    if let Some(xp) = &xp {
        xp.expect_dims(&[batch, &[room], sites].concat())?;
    }
    Ok((xp, mels, room))
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
        let mut changes = vec![F::ElementChange::default(); max_len * changes_room];
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, POOLS, arguments};
    use ferroket_xla_ffi::raw::Handler;
    use ferroket_xla_ffi::testing::{TestFrame, Threads};

    fn with_results(frame: TestFrame, states: bool, room: usize) -> TestFrame {
        let frame = frame.attr_bool("states", states).attr_bool("diagonal_only", room == 1);
        let frame = if states { frame.result::<i8>(&[3, room, 2]) } else { frame };
        frame.result::<f32>(&[3, room])
    }

    #[test]
    fn elements_and_padding() {
        for threads in POOLS {
            let handlers: [(Handler, TestFrame); 2] =
                [(terms, arguments().frame(threads)), (matrices, testing::matrices(threads))];
            for (handler, frame) in handlers {
                let mut frame = with_results(frame, true, 3);
                assert_eq!(frame.execute(handler), Ok(()));
                assert_eq!(frame.read::<i8>(0), [0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1]);
                assert_eq!(frame.read::<f32>(1), [0.5, 0.0, 0.0, -0.5, 2.0, 0.0, -0.5, 2.0, 0.0]);
            }
        }
    }

    #[test]
    fn without_configurations_and_the_diagonal_alone() {
        let mut frame = with_results(arguments().frame(Threads::None), false, 2);
        assert_eq!(frame.execute(terms), Ok(()));
        assert_eq!(frame.read::<f32>(0), [0.5, 0.0, -0.5, 2.0, -0.5, 2.0]);
        let mut frame = with_results(arguments().frame(Threads::None), false, 1);
        assert_eq!(frame.execute(terms), Ok(()));
        assert_eq!(frame.read::<f32>(0), [0.5, -0.5, -0.5]);
    }

    fn message(frame: TestFrame) -> String {
        { frame }.execute(terms).expect_err("a wrong call").message
    }

    #[test]
    fn wrong_calls_are_named() {
        let frame = || arguments().frame(Threads::None);
        assert_eq!(
            message(with_results(frame().arg(&[1_i32], &[1]), true, 2)),
            "the call has 9 arguments, but the handler takes 8"
        );
        assert_eq!(
            message(with_results(frame(), true, 2).result::<i8>(&[])),
            "the call has 3 results, but the handler takes 2"
        );
        let more = with_results(frame(), true, 2);
        assert_eq!(message(more.attr_bool("states", false)), "the call has 2 results, but the handler takes 1");
        let missing = frame().attr_bool("states", true).attr_bool("diagonal_only", false);
        assert_eq!(message(missing), "result 0 'xp' is missing: the call has 0");
        let alone = frame().attr_bool("states", false).attr_bool("diagonal_only", false);
        assert_eq!(message(alone.result::<f32>(&[3, 2, 1])), "'mels' has shape [3, 2, 1], expected [3, 1]");
        let alone = frame().attr_bool("states", false).attr_bool("diagonal_only", false);
        assert_eq!(message(alone.result::<f64>(&[3, 2])), "'values' has dtype float32, expected float64");
        let little = frame().attr_bool("states", false).attr_bool("diagonal_only", false);
        assert_eq!(
            message(little.result::<f32>(&[3, 1])),
            "sample 1 has 2 connected elements, but there is room for 1 (max_conn_size) \
             (counted among the 3 of this device)"
        );
    }

    #[test]
    fn wrong_tables_are_named() {
        let of = |change: &dyn Fn(&mut testing::Arguments<f32>)| {
            let mut wrong = arguments();
            change(&mut wrong);
            message(with_results(wrong.frame(Threads::None), true, 2))
        };
        let prefix = "the tables are wrong: ";
        assert_eq!(
            of(&|args| args.kind = vec![0, 1]),
            format!("{prefix}site 1 is of kind 1, but there are 1 kinds, counted from 0")
        );
        assert_eq!(of(&|args| args.mask.push(0)), format!("{prefix}`mask` has 3 words, but 2 terms have 1 words each"));
        assert_eq!(of(&|args| args.first[2] = 1), format!("{prefix}`first` ends with 1, not with 2"));
        assert_eq!(of(&|args| args.values.push(1.0)), format!("{prefix}`first` ends with 2, not with 3"));
        let no_state = "sample 1, site 0 has the value 3, but the local states are 0 and 1";
        assert_eq!(of(&|args| args.x[2] = 3), format!("{no_state} (counted among the 3 of this device)"));
    }

    #[test]
    fn rows_of_the_wrong_length_and_type() {
        let frame = |kind: i32| {
            let frame = TestFrame::new(Threads::None).attr_bool("states", false).attr_bool("diagonal_only", false);
            let frame = frame.attr_array("starts", &[0.0]).attr_array("steps", &[1.0]).attr_array("sizes", &[2_i64]);
            let frame = frame.attr_bool("diagonal", true).arg(&[0_i8, 0], &[1, 2]);
            if kind == 0 { frame.arg::<i32>(&[], &[0]) } else { frame.arg::<i64>(&[], &[0]) }
        };
        assert_eq!(message(frame(1)), "'kind' has dtype int64, expected int32");
        assert_eq!(message(frame(0).arg(&[0_i32], &[1, 1])), "'flip' has dtype int32, expected uint32");
        assert_eq!(message(frame(0).arg(&[0_u32, 0], &[1, 2])), "'flip' has shape [1, 2], expected [1, 1]");
        assert_eq!(message(frame(0).arg(&[0_u32], &[1])), "'flip' has shape [1], expected 2 dimensions");
        let frame = frame(0).arg(&[0_u32], &[1, 1]).arg(&[0, 1], &[2, 1]);
        assert_eq!(message(frame), "'first' has shape [2, 1], expected 1 dimensions");
    }
}
