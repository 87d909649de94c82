//! A fake runtime, to test handlers without XLA: it builds call frames, runs handlers on them, keeps the errors, and has
//! thread pools of every temper.
//!
//! ```
//! # use ferroket_xla_ffi::{Error, Frame};
//! # fn negate(frame: &Frame) -> Result<(), Error> {
//! #     let x = frame.arguments().typed::<f64>("x")?;
//! #     let y = frame.results().typed::<f64>("y")?.into_mut_slice();
//! #     y.iter_mut().zip(x.as_slice()).for_each(|(y, x)| *y = -x);
//! #     Ok(())
//! # }
//! use ferroket_xla_ffi::testing::{TestFrame, Threads};
//!
//! let mut frame = TestFrame::new(Threads::Real(2)).arg(&[1.0, 2.0], &[2]).result::<f64>(&[2]);
//! assert_eq!(frame.run(negate), Ok(()));
//! assert_eq!(frame.read::<f64>(0), [-1.0, -2.0]);
//! ```

use crate::buffer::element_count;
use crate::{DataType, Element, Error, Frame, guard, raw};
use runtime::{Context, Work, take_failure};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;

mod runtime;

pub use runtime::destroyed_errors;

/// How the fake thread pool treats tasks. The number is what it says about its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// There is no pool.
    None,
    /// Each task is run at once, by the thread that queues it.
    Inline(i64),
    /// Each task gets a thread.
    Real(i64),
    /// Tasks wait for [`TestFrame::run_late_tasks`], or for the end of the [`TestFrame`].
    Late(i64),
    /// Tasks are refused, though there are threads.
    Refused(i64),
}

/// What a failed call told the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The status code.
    pub code: i32,
    /// The message.
    pub message: String,
}

/// The frame of a call that can be run, as often as one likes.
#[derive(Debug)]
pub struct TestFrame {
    api: Box<raw::Api>,
    context: Box<Context>,
    frame: Box<raw::CallFrame>,
    args: Vec<Stored>,
    results: Vec<Stored>,
    attrs: BTreeMap<String, Attribute>,
}

/// Of buffers, in bytes.
const ALIGNMENT: usize = 64;

/// A buffer and its memory.
#[derive(Debug)]
struct Stored {
    buffer: raw::Buffer,
    /// What `buffer.dims` points to.
    dims: Vec<i64>,
    /// What `start` points to, aligned for every element; empty if the memory is another buffer's.
    _memory: Vec<u128>,
    start: *mut u8,
    bytes: usize,
}

#[derive(Debug)]
enum Attribute {
    /// A number, in the first bytes.
    Scalar(DataType, [u64; 1]),
    /// The bytes of some numbers, and how many numbers.
    Array(DataType, Vec<u8>, usize),
    String(String),
}

impl Stored {
    fn new(dtype: DataType, dims: &[usize], width: usize, fill: u8) -> Self {
        let bytes = element_count(dims).expect("a shape that fits into memory") * width;
        // Aligned as XLA aligns its buffers.
        let mut memory = vec![u128::from_ne_bytes([fill; 16]); bytes.div_ceil(16) + ALIGNMENT / 16];
        let offset = memory.as_ptr().cast::<u8>().align_offset(ALIGNMENT);
        let start = memory.as_mut_ptr().cast::<u8>().wrapping_add(offset);
        Self::at(start, memory, bytes, dtype, dims.iter().map(|&dim| dim as i64).collect())
    }

    fn at(start: *mut u8, memory: Vec<u128>, bytes: usize, dtype: DataType, dims: Vec<i64>) -> Self {
        let buffer = raw::Buffer {
            struct_size: size_of::<raw::Buffer>(),
            extension_start: ptr::null_mut(),
            dtype: dtype.to_raw(),
            data: start.cast(),
            rank: dims.len() as i64,
            dims: dims.as_ptr(),
        };
        Self { buffer, dims, _memory: memory, start, bytes }
    }
}

impl TestFrame {
    /// One without arguments, results and attributes, and with that thread pool.
    #[must_use]
    pub fn new(threads: Threads) -> Self {
        let version = |major, minor| raw::ApiVersion {
            struct_size: size_of::<raw::ApiVersion>(),
            extension_start: ptr::null_mut(),
            major,
            minor,
        };
        let api = Box::new(raw::Api {
            struct_size: size_of::<raw::Api>(),
            extension_start: ptr::null_mut(),
            api_version: version(raw::API_MAJOR, raw::API_MINOR),
            internal_api: ptr::null(),
            error_create: Some(runtime::error_create),
            error_get_message: Some(runtime::error_get_message),
            error_destroy: Some(runtime::error_destroy),
            unused: [ptr::null(); 8],
            thread_pool_schedule: Some(runtime::thread_pool_schedule),
            thread_pool_num_threads: Some(runtime::thread_pool_num_threads),
        });
        let context = Box::new(Context { threads, scheduled: 0, late: Vec::new(), running: Vec::new() });
        let frame = Box::new(raw::CallFrame {
            struct_size: size_of::<raw::CallFrame>(),
            extension_start: ptr::null_mut(),
            api: ptr::null(),
            ctx: ptr::dangling_mut(),
            stage: raw::STAGE_EXECUTE,
            args: raw::Args {
                struct_size: size_of::<raw::Args>(),
                extension_start: ptr::null_mut(),
                size: 0,
                types: ptr::null(),
                args: ptr::null(),
            },
            rets: raw::Rets {
                struct_size: size_of::<raw::Rets>(),
                extension_start: ptr::null_mut(),
                size: 0,
                types: ptr::null(),
                rets: ptr::null(),
            },
            attrs: raw::Attrs {
                struct_size: size_of::<raw::Attrs>(),
                extension_start: ptr::null_mut(),
                size: 0,
                types: ptr::null(),
                names: ptr::null(),
                attrs: ptr::null(),
            },
        });
        Self { api, context, frame, args: Vec::new(), results: Vec::new(), attrs: BTreeMap::new() }
    }

    /// Adds an argument.
    ///
    /// # Panics
    /// If there are not as many values as the dimensions say.
    #[must_use]
    pub fn arg<T: Element>(mut self, values: &[T], dims: &[usize]) -> Self {
        assert_eq!(Some(values.len()), element_count(dims), "an argument of shape {dims:?}");
        let stored = Stored::new(T::DTYPE, dims, size_of::<T>(), 0);
        // SAFETY: the memory was made for as many elements, and is aligned for all.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), stored.start.cast(), values.len()) };
        self.args.push(stored);
        self
    }

    /// Adds a result, full of bytes 0xAA.
    ///
    /// # Panics
    /// If the dimensions multiply to more than a number holds.
    #[must_use]
    pub fn result<T: Element>(mut self, dims: &[usize]) -> Self {
        self.results.push(Stored::new(T::DTYPE, dims, size_of::<T>(), 0xAA));
        self
    }

    /// Adds a result that lies in the memory of argument `arg`.
    ///
    /// # Panics
    /// If there is no such argument.
    #[must_use]
    pub fn aliased_result(mut self, arg: usize) -> Self {
        let arg = &self.args[arg];
        let dtype = DataType::from_raw(arg.buffer.dtype);
        self.results.push(Stored::at(arg.start, Vec::new(), arg.bytes, dtype, arg.dims.clone()));
        self
    }

    fn scalar(mut self, name: &str, dtype: DataType, bytes: &[u8]) -> Self {
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        self.attrs.insert(name.into(), Attribute::Scalar(dtype, [u64::from_ne_bytes(value)]));
        self
    }

    /// Adds an attribute, a 64-bit integer.
    #[must_use]
    pub fn attr_i64(self, name: &str, value: i64) -> Self {
        self.scalar(name, DataType::I64, &value.to_ne_bytes())
    }

    /// Adds an attribute, a 32-bit integer.
    #[must_use]
    pub fn attr_i32(self, name: &str, value: i32) -> Self {
        self.scalar(name, DataType::I32, &value.to_ne_bytes())
    }

    /// Adds an attribute, a boolean.
    #[must_use]
    pub fn attr_bool(self, name: &str, value: bool) -> Self {
        self.scalar(name, DataType::Pred, &[u8::from(value)])
    }

    /// Adds an attribute, a 64-bit real number.
    #[must_use]
    pub fn attr_f64(self, name: &str, value: f64) -> Self {
        self.scalar(name, DataType::F64, &value.to_ne_bytes())
    }

    /// Adds an attribute, a 32-bit real number.
    #[must_use]
    pub fn attr_f32(self, name: &str, value: f32) -> Self {
        self.scalar(name, DataType::F32, &value.to_ne_bytes())
    }

    /// Adds an attribute, an array of numbers.
    #[must_use]
    pub fn attr_array<T: Element>(mut self, name: &str, values: &[T]) -> Self {
        let mut bytes = vec![0; size_of_val(values)];
        // SAFETY: the memory was made for as many bytes.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr().cast(), bytes.as_mut_ptr(), bytes.len()) };
        self.attrs.insert(name.into(), Attribute::Array(T::DTYPE, bytes, values.len()));
        self
    }

    /// Adds an attribute, a string.
    #[must_use]
    pub fn attr_str(mut self, name: &str, value: &str) -> Self {
        self.attrs.insert(name.into(), Attribute::String(value.into()));
        self
    }

    /// Runs a function as the body of a handler.
    pub fn run(&mut self, body: impl for<'a> FnOnce(&Frame<'a>) -> Result<(), Error>) -> Result<(), Failure> {
        // SAFETY: the frame is valid.
        self.with_frame(|frame| unsafe { guard(frame, body) })
    }

    /// Runs a handler that was made by [`handler!`](crate::handler).
    pub fn execute(&mut self, handler: raw::Handler) -> Result<(), Failure> {
        // SAFETY: the frame is valid, which is all that handlers ask for.
        self.with_frame(|frame| unsafe { handler(frame) })
    }

    /// The elements of a result.
    ///
    /// # Panics
    /// If the result is of another type.
    #[must_use]
    pub fn read<T: Element>(&self, result: usize) -> Vec<T> {
        let stored = &self.results[result];
        assert_eq!(DataType::from_raw(stored.buffer.dtype), T::DTYPE, "the type of result {result}");
        let len = stored.bytes / size_of::<T>();
        // SAFETY: the memory holds as many bytes, is aligned, and any bytes are a `T`.
        (0..len).map(|index| unsafe { stored.start.cast::<T>().add(index).read() }).collect()
    }

    /// How many tasks were queued so far.
    #[must_use]
    pub fn scheduled(&self) -> usize {
        self.context.scheduled
    }

    /// Runs the tasks that wait in a pool of [`Threads::Late`], and says how many there were.
    pub fn run_late_tasks(&mut self) -> usize {
        let late = std::mem::take(&mut self.context.late);
        let count = late.len();
        late.into_iter().for_each(Work::run);
        count
    }

    /// Fills in the arrays of the frame, calls `call`, and takes its error apart.
    fn with_frame(&mut self, call: impl FnOnce(*mut raw::CallFrame) -> *mut raw::Error) -> Result<(), Failure> {
        let pointers = |buffers: &mut Vec<Stored>| -> Vec<*mut c_void> {
            buffers.iter_mut().map(|stored| (&raw mut stored.buffer).cast()).collect()
        };
        let (args, results) = (pointers(&mut self.args), pointers(&mut self.results));
        let buffer_types = vec![raw::ARG_BUFFER; args.len().max(results.len())];

        let span = |text: &str| raw::ByteSpan { ptr: text.as_ptr().cast(), len: text.len() };
        let mut names: Vec<raw::ByteSpan> = self.attrs.keys().map(|name| span(name)).collect();
        let names: Vec<*mut raw::ByteSpan> = names.iter_mut().map(ptr::from_mut).collect();
        let mut scalars = Vec::with_capacity(self.attrs.len());
        let mut arrays = Vec::with_capacity(self.attrs.len());
        let mut strings = Vec::with_capacity(self.attrs.len());
        let mut types = Vec::with_capacity(self.attrs.len());
        let mut values: Vec<*mut c_void> = Vec::with_capacity(self.attrs.len());
        for attribute in self.attrs.values() {
            match attribute {
                Attribute::Scalar(dtype, value) => {
                    types.push(raw::ATTR_SCALAR);
                    let scalar = raw::Scalar { dtype: dtype.to_raw(), value: value.as_ptr().cast() };
                    scalars.push(Box::new(scalar));
                    values.extend(scalars.last_mut().map(|scalar| ptr::from_mut(&mut **scalar).cast()));
                }
                Attribute::Array(dtype, bytes, size) => {
                    types.push(raw::ATTR_ARRAY);
                    let array = raw::Array { dtype: dtype.to_raw(), size: *size, data: bytes.as_ptr().cast() };
                    arrays.push(Box::new(array));
                    values.extend(arrays.last_mut().map(|array| ptr::from_mut(&mut **array).cast()));
                }
                Attribute::String(text) => {
                    types.push(raw::ATTR_STRING);
                    strings.push(Box::new(span(text)));
                    values.extend(strings.last_mut().map(|span| ptr::from_mut(&mut **span).cast()));
                }
            }
        }

        let frame = &mut *self.frame;
        frame.api = &raw const *self.api;
        if !frame.ctx.is_null() {
            frame.ctx = (&raw mut *self.context).cast();
        }
        (frame.args.size, frame.args.types, frame.args.args) =
            (args.len() as i64, buffer_types.as_ptr(), args.as_ptr());
        (frame.rets.size, frame.rets.types, frame.rets.rets) =
            (results.len() as i64, buffer_types.as_ptr(), results.as_ptr());
        (frame.attrs.size, frame.attrs.types) = (types.len() as i64, types.as_ptr());
        (frame.attrs.names, frame.attrs.attrs) = (names.as_ptr(), values.as_ptr());
        take_failure(call(frame))
    }

    /// The function table, to spoil it.
    #[cfg(test)]
    pub(crate) fn api_mut(&mut self) -> &mut raw::Api {
        &mut self.api
    }

    /// The frame, to spoil it; its lists are filled in when the call is run.
    #[cfg(test)]
    pub(crate) fn frame_mut(&mut self) -> &mut raw::CallFrame {
        &mut self.frame
    }

    /// A buffer, to spoil it: arguments come first, then results.
    #[cfg(test)]
    pub(crate) fn buffer_mut(&mut self, index: usize) -> &mut raw::Buffer {
        let args = self.args.len();
        if index < args { &mut self.args[index].buffer } else { &mut self.results[index - args].buffer }
    }
}

impl Drop for TestFrame {
    fn drop(&mut self) {
        self.run_late_tasks();
        for thread in self.context.running.drain(..) {
            // A task that panics aborts the process, so there is no error to look at.
            let _ = thread.join();
        }
    }
}
