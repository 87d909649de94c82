//! One call, seen from the handler: its arguments, results and attributes.

use crate::attributes::Attributes;
use crate::buffer::{address, raw_slice};
use crate::{AnyBuffer, AnyBufferMut, Arguments, BufferMut, Element, Error, Pool, Results, raw};
use smallvec::SmallVec;
use std::cell::Cell;
use std::ffi::c_void;

/// The arguments, results and attributes of a running call. What it hands out lives no longer than the call.
pub struct Frame<'a> {
    api: *const raw::Api,
    ctx: *mut raw::ExecutionContext,
    args: &'a [*mut c_void],
    results: &'a [*mut c_void],
    /// Where the elements of arguments and results are, as far as they have any.
    addresses: (Addresses, Addresses),
    /// Which arguments have been handed out, to be read or to be updated.
    given: Box<[Cell<bool>]>,
    /// Which results have been handed out.
    taken: Box<[Cell<bool>]>,
    pub(crate) attrs: Attributes<'a>,
}

impl<'a> Frame<'a> {
    /// # Safety
    /// `frame` points to a complete call frame of the runtime in the execute stage, and all that it leads to lives and stays as
    /// it is during `'a`. Nobody else touches the elements of results, and nobody writes to those of arguments. There
    /// is one `Frame` for it.
    pub(crate) unsafe fn new(frame: *const raw::CallFrame) -> Result<Self, Error> {
        // SAFETY: the caller vouches for the frame.
        let frame = unsafe { &*frame };
        let (args, rets, attrs) = (&frame.args, &frame.rets, &frame.attrs);
        // SAFETY: in each of the three structs, the pointers are to arrays of `size` values.
        let arrays = unsafe {
            (
                raw_slice(args.types, args.size).zip(raw_slice(args.args, args.size)),
                raw_slice(rets.types, rets.size).zip(raw_slice(rets.rets, rets.size)),
                raw_slice(attrs.types, attrs.size)
                    .zip(raw_slice(attrs.names, attrs.size))
                    .zip(raw_slice(attrs.attrs, attrs.size)),
            )
        };
        let (Some((arg_types, args)), Some((result_types, results)), Some(((types, names), values))) = arrays else {
            return Err(Error::Malformed("a list of arguments, results or attributes is missing".into()));
        };
        let all_buffers = arg_types.iter().all(|&kind| kind == raw::ARG_BUFFER)
            && result_types.iter().all(|&kind| kind == raw::RET_BUFFER);
        if !all_buffers {
            return Err(Error::Malformed("an argument or result is not a buffer".into()));
        }
        Ok(Self {
            api: frame.api,
            ctx: frame.ctx,
            args,
            results,
            addresses: (addresses(args), addresses(results)),
            given: args.iter().map(|_| Cell::new(false)).collect(),
            taken: results.iter().map(|_| Cell::new(false)).collect(),
            attrs: Attributes { types, names, values },
        })
    }

    /// The arguments, to be taken one after the other.
    pub fn arguments(&self) -> Arguments<'_, 'a> {
        Arguments::new(self)
    }

    /// The results, to be taken one after the other.
    pub fn results(&self) -> Results<'_, 'a> {
        Results::new(self)
    }

    pub(crate) fn arguments_len(&self) -> usize {
        self.args.len()
    }

    pub(crate) fn results_len(&self) -> usize {
        self.results.len()
    }

    /// Argument `index`, which messages will call `name`.
    pub(crate) fn arg(&self, index: usize, name: &'static str) -> Result<AnyBuffer<'a>, Error> {
        let count = self.args.len();
        let Some(buffer) = self.args.get(index) else {
            return Err(Error::Missing { kind: "argument", index, name, count });
        };
        let updated = |place: usize| self.taken[place].get() && self.share_memory(index, place);
        if let Some(result) = (0..self.results.len()).find(|&place| updated(place)) {
            return Err(Error::Updated { index, name, result });
        }
        self.given[index].set(true);
        // SAFETY: all arguments are buffers, see `new`. Results that lie in the same memory are not handed out.
        unsafe { AnyBuffer::new(buffer.cast(), name) }
    }

    /// Result `index`, with what argument `arg` holds: the same memory where the call says so, or a copy.
    pub(crate) fn updated<T: Element>(
        &self,
        arg: usize,
        index: usize,
        name: &'static str,
    ) -> Result<BufferMut<'a, T>, Error> {
        if arg >= self.args.len() || index >= self.results.len() || !self.share_memory(arg, index) {
            // Whichever is missing says so.
            let from = self.arg(arg, name)?.typed::<T>()?;
            let mut to = self.result(index, name)?.typed::<T>()?;
            to.expect_dims(from.dims())?;
            to.as_mut_slice().copy_from_slice(from.as_slice());
            return Ok(to);
        }
        if self.taken[index].replace(true) {
            return Err(Error::ResultTaken { index, name });
        }
        let also = (0..self.args.len()).find(|&place| place != arg && self.share_memory(place, index));
        let arg = if self.given[arg].replace(true) { Some(arg) } else { also };
        if let Some(arg) = arg {
            return Err(Error::Aliased { index, name, arg });
        }
        // SAFETY: all results are buffers, see `new`. This one is handed out for the first time, results don't overlap
        // each other. The argument in its memory was not handed out, and won't be, and there is no other.
        unsafe { AnyBufferMut::new(self.results[index].cast(), name) }?.typed()
    }

    /// Result `index`, which messages will call `name`. Each result can be had once.
    pub(crate) fn result(&self, index: usize, name: &'static str) -> Result<AnyBufferMut<'a>, Error> {
        let count = self.results.len();
        let Some(&result) = self.results.get(index) else {
            return Err(Error::Missing { kind: "result", index, name, count });
        };
        if self.taken[index].replace(true) {
            return Err(Error::ResultTaken { index, name });
        }
        if let Some(arg) = (0..self.args.len()).find(|&arg| self.share_memory(arg, index)) {
            return Err(Error::Aliased { index, name, arg });
        }
        // SAFETY: all results are buffers, see `new`. This one is handed out for the first time, results don't overlap
        // each other, and none of the arguments is in its memory.
        unsafe { AnyBufferMut::new(result.cast(), name) }
    }

    /// Whether an argument and a result are the same memory. The runtime aliases whole buffers or none, so comparing where
    /// they start is enough; empty ones may share an address and overlap with nothing.
    fn share_memory(&self, arg: usize, result: usize) -> bool {
        let arg = self.addresses.0[arg];
        arg.is_some() && arg == self.addresses.1[result]
    }

    /// XLA's thread pool.
    #[must_use]
    pub fn pool(&self) -> Pool<'a> {
        // SAFETY: table and context are those of the running call, which lasts for `'a`.
        unsafe { Pool::new(self.api, self.ctx) }
    }
}

/// One for each buffer.
type Addresses = SmallVec<[Option<usize>; 16]>;

fn addresses(buffers: &[*mut c_void]) -> Addresses {
    // SAFETY: arguments and results are null or buffers of the runtime, see `Frame::new`.
    buffers.iter().map(|&buffer| unsafe { address(buffer.cast()) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataType;
    use crate::testing::{TestFrame, Threads};
    use half::bf16;
    use num_complex::Complex;

    fn ok(call: &mut TestFrame, body: impl FnOnce(&Frame) -> Result<(), Error>) {
        assert_eq!(call.run(body), Ok(()));
    }

    fn message(call: &mut TestFrame, body: impl FnOnce(&Frame) -> Result<(), Error>) -> String {
        call.run(body).unwrap_err().message
    }

    fn two_by_three() -> TestFrame {
        TestFrame::new(Threads::None).arg(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).result::<f64>(&[3])
    }

    #[test]
    fn results_are_computed_from_arguments() {
        let mut call = two_by_three();
        ok(&mut call, |frame| {
            let x = frame.arg(0, "x")?;
            assert_eq!((x.name(), x.dtype(), x.dims(), x.len()), ("x", DataType::F64, &[2, 3][..], 6));
            x.expect_rank(2)?;
            x.expect_dims(&[2, 3])?;
            let x = x.typed::<f64>()?;
            let mut sums = frame.result(0, "sums")?.typed::<f64>()?;
            sums.expect_dims(&x.dims()[1..])?;
            for (i, sum) in sums.as_mut_slice().iter_mut().enumerate() {
                *sum = x.as_slice()[i] + x.as_slice()[i + 3];
            }
            Ok(())
        });
        assert_eq!(call.read::<f64>(0), [5.0, 7.0, 9.0]);
    }

    #[test]
    fn other_element_types_work_alike() {
        let mut call = TestFrame::new(Threads::None)
            .arg(&[Complex::new(1.0_f32, 2.0)], &[1])
            .arg(&[bf16::from_f32(0.5)], &[])
            .arg(&[crate::Pred::from(true)], &[1, 1])
            .result::<Complex<f64>>(&[]);
        ok(&mut call, |frame| {
            let z = frame.arg(0, "z")?.typed::<Complex<f32>>()?.as_slice()[0];
            let scale = frame.arg(1, "scale")?.typed::<bf16>()?.as_slice()[0];
            assert!(frame.arg(2, "flag")?.typed::<crate::Pred>()?.as_slice()[0].get());
            let result = frame.result(0, "w")?.typed()?.into_mut_slice();
            result[0] = Complex::new(f64::from(z.re), f64::from(z.im)) * f64::from(scale);
            Ok(())
        });
        assert_eq!(call.read::<Complex<f64>>(0), [Complex::new(0.5, 1.0)]);
    }

    #[test]
    fn wrong_types_and_shapes_name_the_buffer() {
        let mut call = two_by_three();
        assert_eq!(
            message(&mut call, |frame| frame.arg(0, "x")?.typed::<f32>().map(drop)),
            "'x' has dtype float64, expected float32"
        );
        assert_eq!(
            message(&mut call, |frame| frame.result(0, "y")?.typed::<i8>().map(drop)),
            "'y' has dtype float64, expected int8"
        );
        assert_eq!(
            message(&mut call, |frame| frame.arg(0, "x")?.expect_rank(3)),
            "'x' has shape [2, 3], expected 3 dimensions"
        );
        assert_eq!(
            message(&mut call, |frame| frame.arg(0, "x")?.expect_dims(&[3, 2])),
            "'x' has shape [2, 3], expected [3, 2]"
        );
    }

    #[test]
    fn a_result_is_handed_out_once() {
        let mut call = two_by_three();
        let failure = call
            .run(|frame| {
                let _first = frame.result(0, "y")?;
                frame.result(0, "y").map(drop)
            })
            .unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (13, "result 0 'y' was handed out before"));
    }

    #[test]
    fn a_result_in_an_arguments_memory_is_refused() {
        let mut call = TestFrame::new(Threads::None).arg(&[0_i8], &[1]).arg(&[1.0, 2.0], &[2]).aliased_result(1);
        assert_eq!(
            message(&mut call, |frame| frame.result(0, "y").map(drop)),
            "result 0 'y' shares its memory with argument 1; call without input_output_aliases for that pair"
        );
    }

    #[test]
    fn an_argument_is_updated_in_its_place_or_in_a_copy() {
        let add = |frame: &Frame| {
            let mut sums = frame.updated::<f64>(0, 0, "sums")?;
            sums.as_mut_slice().iter_mut().for_each(|sum| *sum += 1.0);
            Ok(())
        };
        for mut call in [
            TestFrame::new(Threads::None).arg(&[1.0, 2.0], &[2]).aliased_result(0),
            TestFrame::new(Threads::None).arg(&[1.0, 2.0], &[2]).result::<f64>(&[2]),
        ] {
            ok(&mut call, add);
            assert_eq!(call.read::<f64>(0), [2.0, 3.0]);
        }
        let mut other = TestFrame::new(Threads::None).arg(&[1.0, 2.0], &[2]).result::<f64>(&[1]);
        assert_eq!(message(&mut other, add), "'sums' has shape [1], expected [2]");
        let mut missing = TestFrame::new(Threads::None).arg(&[1.0, 2.0], &[2]);
        assert_eq!(message(&mut missing, add), "result 0 'sums' is missing: the call has 0");
    }

    #[test]
    fn an_argument_that_is_updated_is_not_read() {
        let mut call = TestFrame::new(Threads::None).arg(&[1.0, 2.0], &[2]).aliased_result(0);
        let message_of_reading = message(&mut call, |frame| {
            let _sums = frame.updated::<f64>(0, 0, "sums")?;
            frame.arg(0, "x").map(drop)
        });
        assert_eq!(message_of_reading, "argument 0 'x' is in the memory of result 0, which was handed out before");
        let message_of_updating = message(&mut call, |frame| {
            let _x = frame.arg(0, "x")?;
            frame.updated::<f64>(0, 0, "sums").map(drop)
        });
        assert_eq!(
            message_of_updating,
            "result 0 'sums' shares its memory with argument 0; call without input_output_aliases for that pair"
        );
        let twice = message(&mut call, |frame| {
            let _sums = frame.updated::<f64>(0, 0, "sums")?;
            frame.updated::<f64>(0, 0, "sums").map(drop)
        });
        assert_eq!(twice, "result 0 'sums' was handed out before");
    }

    #[test]
    fn empty_buffers_may_be_null() {
        let mut call = TestFrame::new(Threads::None).arg::<f64>(&[], &[4, 0]).result::<i32>(&[0]);
        call.buffer_mut(0).data = std::ptr::null_mut();
        call.buffer_mut(1).data = std::ptr::null_mut();
        ok(&mut call, |frame| {
            let x = frame.arg(0, "x")?.typed::<f64>()?;
            assert!(x.is_empty() && x.as_slice().is_empty());
            assert_eq!(x.dims(), [4, 0]);
            assert!(frame.result(0, "y")?.typed::<i32>()?.as_mut_slice().is_empty());
            Ok(())
        });
    }

    #[test]
    fn an_empty_buffer_is_empty_however_large_its_other_dimensions() {
        let mut call = TestFrame::new(Threads::None).arg::<f64>(&[], &[1 << 40, 1 << 40, 0]);
        ok(&mut call, |frame| {
            assert_eq!(frame.arg(0, "x")?.len(), 0);
            Ok(())
        });
    }

    #[test]
    fn impossible_buffers_are_errors() {
        let x = |frame: &Frame| frame.arg(0, "x")?.typed::<f64>().map(drop);

        let mut call = two_by_three();
        call.buffer_mut(0).data = call.buffer_mut(0).data.wrapping_byte_add(4);
        assert_eq!(message(&mut call, x), "the data of 'x' is not aligned to 8 bytes");

        let mut call = two_by_three();
        call.buffer_mut(0).data = std::ptr::null_mut();
        assert_eq!(message(&mut call, x), "malformed call: the data of 'x' is null or larger than memory");

        let mut call = TestFrame::new(Threads::None).arg::<f64>(&[], &[0]);
        for (dims, reason) in [
            (&[-1_i64][..], "malformed call: a negative dimension of 'x'"),
            (&[1 << 40, 1 << 40], "malformed call: the size of 'x'"),
            (&[1 << 62], "malformed call: the data of 'x' is null or larger than memory"),
        ] {
            call.buffer_mut(0).dims = dims.as_ptr();
            call.buffer_mut(0).rank = dims.len() as i64;
            assert_eq!(message(&mut call, x), reason);
        }
        call.buffer_mut(0).rank = -1;
        assert_eq!(message(&mut call, x), "malformed call: the rank of 'x'");
        call.buffer_mut(0).struct_size = 40;
        assert_eq!(message(&mut call, x), "malformed call: the description of 'x' is missing or too short");
    }
}
