//! One call, seen from the handler: its arguments, results and attributes.

use crate::buffer::raw_slice;
use crate::{AnyBuffer, AnyBufferMut, DataType, Error, Pool, raw};
use std::cell::Cell;
use std::ffi::c_void;

/// The arguments, results and attributes of a running call. What it hands out lives no longer than the call.
pub struct Frame<'a> {
    api: *const raw::Api,
    ctx: *mut raw::ExecutionContext,
    args: &'a [*mut c_void],
    results: &'a [*mut c_void],
    /// Which results have been handed out.
    taken: Box<[Cell<bool>]>,
    attrs: Attributes<'a>,
}

/// The attributes, in three arrays of one length.
struct Attributes<'a> {
    types: &'a [i32],
    names: &'a [*mut raw::ByteSpan],
    values: &'a [*mut c_void],
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
            taken: results.iter().map(|_| Cell::new(false)).collect(),
            attrs: Attributes { types, names, values },
        })
    }

    /// An error unless the call has that many arguments and results.
    pub fn expect_counts(&self, args: usize, results: usize) -> Result<(), Error> {
        let found = (self.args.len(), self.results.len());
        if found == (args, results) {
            return Ok(());
        }
        Err(Error::Counts { args: found.0, results: found.1, expected_args: args, expected_results: results })
    }

    /// Argument `index`, which messages will call `name`.
    pub fn arg(&self, index: usize, name: &'static str) -> Result<AnyBuffer<'a>, Error> {
        let count = self.args.len();
        let Some(buffer) = self.args.get(index) else {
            return Err(Error::Missing { kind: "argument", index, name, count });
        };
        // SAFETY: all arguments are buffers, see `new`. Results that lie in the same memory are not handed out.
        unsafe { AnyBuffer::new(buffer.cast(), name) }
    }

    /// Result `index`, which messages will call `name`. Each result can be had once.
    pub fn result(&self, index: usize, name: &'static str) -> Result<AnyBufferMut<'a>, Error> {
        let count = self.results.len();
        let Some(&result) = self.results.get(index) else {
            return Err(Error::Missing { kind: "result", index, name, count });
        };
        if self.taken[index].replace(true) {
            return Err(Error::ResultTaken { index, name });
        }
        if let Some(arg) = self.args.iter().position(|&arg| same_memory(arg.cast(), result.cast())) {
            return Err(Error::Aliased { index, name, arg });
        }
        // SAFETY: all results are buffers, see `new`. This one is handed out for the first time, results don't overlap
        // each other, and none of the arguments is in its memory.
        unsafe { AnyBufferMut::new(result.cast(), name) }
    }

    /// The attribute `name`, an integer of 32 or 64 bits.
    pub fn attr_i64(&self, name: &str) -> Result<i64, Error> {
        let expected = "an int64 or int32 scalar";
        self.attrs.scalar(name, expected, |dtype, value| match dtype {
            // SAFETY: the value of a scalar is of the type that it says.
            DataType::I64 => Some(unsafe { value.cast::<i64>().read_unaligned() }),
            // SAFETY: as above.
            DataType::I32 => Some(i64::from(unsafe { value.cast::<i32>().read_unaligned() })),
            _ => None,
        })
    }

    /// The attribute `name`, a boolean.
    pub fn attr_bool(&self, name: &str) -> Result<bool, Error> {
        self.attrs.scalar(name, "a bool scalar", |dtype, value| match dtype {
            // SAFETY: the value of a scalar is of the type that it says; a bool is one byte.
            DataType::Pred => Some(unsafe { value.cast::<u8>().read() } != 0),
            _ => None,
        })
    }

    /// The attribute `name`, a real number of 32 or 64 bits.
    pub fn attr_f64(&self, name: &str) -> Result<f64, Error> {
        let expected = "a float64 or float32 scalar";
        self.attrs.scalar(name, expected, |dtype, value| match dtype {
            // SAFETY: the value of a scalar is of the type that it says.
            DataType::F64 => Some(unsafe { value.cast::<f64>().read_unaligned() }),
            // SAFETY: as above.
            DataType::F32 => Some(f64::from(unsafe { value.cast::<f32>().read_unaligned() })),
            _ => None,
        })
    }

    /// The attribute `name`, an array of integers of 32 or 64 bits.
    pub fn attr_i64s(&self, name: &str) -> Result<Vec<i64>, Error> {
        let expected = "an array of int64 or int32";
        self.attrs.array(name, expected, |dtype, data, len| match dtype {
            // SAFETY: an array has as many numbers as it says, of the type that it says.
            DataType::I64 => Some(unsafe { read_numbers::<i64>(data, len) }.collect()),
            // SAFETY: as above.
            DataType::I32 => Some(unsafe { read_numbers::<i32>(data, len) }.map(i64::from).collect()),
            _ => None,
        })
    }

    /// The attribute `name`, an array of real numbers of 32 or 64 bits.
    pub fn attr_f64s(&self, name: &str) -> Result<Vec<f64>, Error> {
        let expected = "an array of float64 or float32";
        self.attrs.array(name, expected, |dtype, data, len| match dtype {
            // SAFETY: an array has as many numbers as it says, of the type that it says.
            DataType::F64 => Some(unsafe { read_numbers::<f64>(data, len) }.collect()),
            // SAFETY: as above.
            DataType::F32 => Some(unsafe { read_numbers::<f32>(data, len) }.map(f64::from).collect()),
            _ => None,
        })
    }

    /// The attribute `name`, a string.
    pub fn attr_str(&self, name: &str) -> Result<&'a str, Error> {
        let expected = "a string";
        let (kind, value) = self.attrs.find(name)?;
        if kind != raw::ATTR_STRING {
            return Err(wrong_attribute(name, describe_attribute(kind), expected));
        }
        // SAFETY: the value of such an attribute is a byte span.
        let bytes = unsafe { span_bytes(value.cast()) };
        std::str::from_utf8(bytes).map_err(|_| wrong_attribute(name, "a string that is not UTF-8".into(), expected))
    }

    /// XLA's thread pool.
    #[must_use]
    pub fn pool(&self) -> Pool<'a> {
        // SAFETY: table and context are those of the running call, which lasts for `'a`.
        unsafe { Pool::new(self.api, self.ctx) }
    }
}

impl<'a> Attributes<'a> {
    /// The type and the value of an attribute.
    fn find(&self, name: &str) -> Result<(i32, *mut c_void), Error> {
        // They are sorted, but handlers have a handful of them: looking at each is as fast.
        match self.names().position(|bytes| bytes == name.as_bytes()) {
            Some(index) => Ok((self.types[index], self.values[index])),
            None => Err(Error::MissingAttribute {
                name: name.into(),
                present: self.names().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect(),
            }),
        }
    }

    fn names(&self) -> impl Iterator<Item = &'a [u8]> {
        // SAFETY: the names are byte spans of the runtime.
        self.names.iter().map(|&name| unsafe { span_bytes(name) })
    }

    /// The value of a scalar attribute, read by `read`, which gives `None` for types that it doesn't take.
    fn scalar<T>(
        &self,
        name: &str,
        expected: &'static str,
        read: impl Fn(DataType, *const c_void) -> Option<T>,
    ) -> Result<T, Error> {
        let (kind, value) = self.find(name)?;
        if kind != raw::ATTR_SCALAR || value.is_null() {
            return Err(wrong_attribute(name, describe_attribute(kind), expected));
        }
        // SAFETY: the value of such an attribute is a scalar.
        let scalar = unsafe { &*value.cast::<raw::Scalar>() };
        let dtype = DataType::from_raw(scalar.dtype);
        if scalar.value.is_null() {
            return Err(Error::Malformed(format!("the value of attribute '{name}' is null")));
        }
        read(dtype, scalar.value).ok_or_else(|| wrong_attribute(name, format!("a scalar of type {dtype}"), expected))
    }

    /// The numbers of an array attribute, read by `read`, which gives `None` for types that it doesn't take.
    fn array<T>(
        &self,
        name: &str,
        expected: &'static str,
        read: impl Fn(DataType, *const c_void, usize) -> Option<Vec<T>>,
    ) -> Result<Vec<T>, Error> {
        let (kind, value) = self.find(name)?;
        if kind != raw::ATTR_ARRAY || value.is_null() {
            return Err(wrong_attribute(name, describe_attribute(kind), expected));
        }
        // SAFETY: the value of such an attribute is an array.
        let array = unsafe { &*value.cast::<raw::Array>() };
        let dtype = DataType::from_raw(array.dtype);
        if array.size > 0 && array.data.is_null() {
            return Err(Error::Malformed(format!("the numbers of attribute '{name}' are null")));
        }
        read(dtype, array.data, array.size)
            .ok_or_else(|| wrong_attribute(name, format!("an array of type {dtype}"), expected))
    }
}

/// The numbers of an array, which the runtime may have put anywhere.
///
/// # Safety
/// `data` points to `len` numbers of type `T`, aligned or not, that stay there as long as the iterator is used.
unsafe fn read_numbers<T: Copy>(data: *const c_void, len: usize) -> impl Iterator<Item = T> {
    // SAFETY: the caller vouches for the numbers.
    (0..len).map(move |index| unsafe { data.cast::<T>().add(index).read_unaligned() })
}

fn wrong_attribute(name: &str, found: String, expected: &'static str) -> Error {
    Error::Attribute { name: name.into(), found, expected }
}

fn describe_attribute(kind: i32) -> String {
    match kind {
        raw::ATTR_ARRAY => "an array".into(),
        raw::ATTR_DICTIONARY => "a dictionary".into(),
        raw::ATTR_SCALAR => "a scalar".into(),
        raw::ATTR_STRING => "a string".into(),
        other => format!("of the unknown kind {other}"),
    }
}

/// The bytes of a span; none if it is null.
///
/// # Safety
/// `span` is null or points to a span whose bytes live as long as `'a`.
unsafe fn span_bytes<'a>(span: *const raw::ByteSpan) -> &'a [u8] {
    // SAFETY: the caller vouches for the span, and a span for its bytes.
    unsafe { span.as_ref().and_then(|span| raw_slice(span.ptr.cast::<u8>(), i64::try_from(span.len).ok()?)) }
        .unwrap_or_default()
}

/// Whether an argument and a result are the same memory. The runtime aliases whole buffers or none, so comparing where
/// they start is enough; empty ones may share an address and overlap with nothing.
fn same_memory(arg: *const raw::Buffer, result: *const raw::Buffer) -> bool {
    let start = |buffer: *const raw::Buffer| {
        // SAFETY: arguments and results are null or buffers of the runtime, see `Frame::new`.
        let buffer = unsafe { AnyBuffer::new(buffer, "") }.ok().filter(|buffer| !buffer.is_empty())?;
        Some(buffer.address()).filter(|&address| address != 0)
    };
    start(arg).is_some_and(|address| start(result) == Some(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Call, Threads};
    use half::bf16;
    use num_complex::Complex;

    fn ok(call: &mut Call, body: impl FnOnce(&Frame) -> Result<(), Error>) {
        assert_eq!(call.run(body), Ok(()));
    }

    fn message(call: &mut Call, body: impl FnOnce(&Frame) -> Result<(), Error>) -> String {
        call.run(body).unwrap_err().message
    }

    fn two_by_three() -> Call {
        Call::new(Threads::None).arg(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).result::<f64>(&[3])
    }

    #[test]
    fn results_are_computed_from_arguments() {
        let mut call = two_by_three();
        ok(&mut call, |frame| {
            frame.expect_counts(1, 1)?;
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
        let mut call = Call::new(Threads::None)
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
    fn wrong_counts_name_both_numbers() {
        assert_eq!(
            message(&mut two_by_three(), |frame| frame.expect_counts(2, 3)),
            "expected 2 arguments and 3 results, but the call has 1 arguments and 1 results"
        );
        assert_eq!(
            message(&mut two_by_three(), |frame| frame.arg(1, "y").map(drop)),
            "argument 1 'y' is missing: the call has 1"
        );
        assert_eq!(
            message(&mut two_by_three(), |frame| frame.result(7, "z").map(drop)),
            "result 7 'z' is missing: the call has 1"
        );
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
        let mut call = Call::new(Threads::None).arg(&[0_i8], &[1]).arg(&[1.0, 2.0], &[2]).aliased_result(1);
        assert_eq!(
            message(&mut call, |frame| frame.result(0, "y").map(drop)),
            "result 0 'y' shares its memory with argument 1; call without input_output_aliases for that pair"
        );
    }

    #[test]
    fn empty_buffers_may_be_null() {
        let mut call = Call::new(Threads::None).arg::<f64>(&[], &[4, 0]).result::<i32>(&[0]);
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
        let mut call = Call::new(Threads::None).arg::<f64>(&[], &[1 << 40, 1 << 40, 0]);
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

        let mut call = Call::new(Threads::None).arg::<f64>(&[], &[0]);
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

    #[test]
    fn attributes_are_found_by_name() {
        let mut call = Call::new(Threads::None)
            .attr_i64("sites", -7)
            .attr_i32("chunk", 1 << 20)
            .attr_bool("hermitian", true)
            .attr_f64("beta", 0.25)
            .attr_f32("gamma", 1.5)
            .attr_str("model", "J₁-J₂");
        ok(&mut call, |frame| {
            assert_eq!(frame.attr_i64("sites")?, -7);
            assert_eq!(frame.attr_i64("chunk")?, 1 << 20);
            assert!(frame.attr_bool("hermitian")?);
            assert!((frame.attr_f64("beta")? - 0.25).abs() < f64::EPSILON);
            assert!((frame.attr_f64("gamma")? - 1.5).abs() < f64::EPSILON);
            assert_eq!(frame.attr_str("model")?, "J₁-J₂");
            Ok(())
        });
    }

    #[test]
    fn attributes_may_be_arrays() {
        let mut call = Call::new(Threads::None)
            .attr_array("sizes", &[2_i64, -3, 4])
            .attr_array("kinds", &[1_i32, -1])
            .attr_array("starts", &[0.25, -1.0])
            .attr_array("steps", &[0.5_f32])
            .attr_array::<f64>("none", &[]);
        ok(&mut call, |frame| {
            assert_eq!(frame.attr_i64s("sizes")?, [2, -3, 4]);
            assert_eq!(frame.attr_i64s("kinds")?, [1, -1]);
            assert_eq!(frame.attr_f64s("starts")?, [0.25, -1.0]);
            assert_eq!(frame.attr_f64s("steps")?, [0.5]);
            assert!(frame.attr_f64s("none")?.is_empty());
            Ok(())
        });
    }

    #[test]
    fn wrong_arrays_are_named() {
        let mut call = Call::new(Threads::None).attr_array("sizes", &[2_i64]).attr_f64("start", 1.0);
        assert_eq!(
            message(&mut call, |frame| frame.attr_f64s("sizes").map(drop)),
            "attribute 'sizes' is an array of type int64, expected an array of float64 or float32"
        );
        assert_eq!(
            message(&mut call, |frame| frame.attr_i64s("start").map(drop)),
            "attribute 'start' is a scalar, expected an array of int64 or int32"
        );
        assert_eq!(
            message(&mut call, |frame| frame.attr_i64("sizes").map(drop)),
            "attribute 'sizes' is an array, expected an int64 or int32 scalar"
        );
        assert_eq!(
            message(&mut call, |frame| frame.attr_i64s("kinds").map(drop)),
            r#"attribute 'kinds' is missing: the call has ["sizes", "start"]"#
        );
    }

    #[test]
    fn wrong_attributes_are_named() {
        let mut call = Call::new(Threads::None).attr_i64("sites", 3).attr_str("model", "x");
        assert_eq!(
            message(&mut call, |frame| frame.attr_i64("site").map(drop)),
            r#"attribute 'site' is missing: the call has ["model", "sites"]"#
        );
        assert_eq!(
            message(&mut call, |frame| frame.attr_f64("sites").map(drop)),
            "attribute 'sites' is a scalar of type int64, expected a float64 or float32 scalar"
        );
        assert_eq!(
            message(&mut call, |frame| frame.attr_bool("model").map(drop)),
            "attribute 'model' is a string, expected a bool scalar"
        );
        assert_eq!(
            message(&mut call, |frame| frame.attr_str("sites").map(drop)),
            "attribute 'sites' is a scalar, expected a string"
        );
        let mut call = Call::new(Threads::None);
        assert_eq!(
            message(&mut call, |frame| frame.attr_bool("sites").map(drop)),
            "attribute 'sites' is missing: the call has []"
        );
    }
}
