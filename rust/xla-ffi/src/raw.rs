//! The part of the XLA FFI C API that handlers need, as `repr(C)` types.
//!
//! The runtime says with `struct_size` how much of a struct it knows. Fields that only newer runtimes have at the end
//! of a struct (the future of a call frame, the state's type in the metadata, the end of the function table) are left
//! out here, so that no code of this crate can touch them. C enums are plain integers here: a number that we don't
//! know is data to check, not undefined behaviour.

use std::ffi::{c_char, c_int, c_void};

/// Major version of the API that handlers announce.
pub const API_MAJOR: c_int = 0;
/// Minor version of the API that handlers announce: the lowest that has all we use, since runtimes refuse newer ones.
pub const API_MINOR: c_int = 1;

/// [`ExtensionBase::kind`] of a [`MetadataExtension`].
pub const EXTENSION_METADATA: c_int = 1;
/// [`CallFrame::stage`] in which arguments and results may be touched.
pub const STAGE_EXECUTE: c_int = 3;
/// The only type of arguments.
pub const ARG_BUFFER: c_int = 1;
/// The only type of results.
pub const RET_BUFFER: c_int = 1;
/// Attribute type: numbers of one type, see [`Array`].
pub const ATTR_ARRAY: c_int = 1;
/// Attribute type: further attributes by name.
pub const ATTR_DICTIONARY: c_int = 2;
/// Attribute type: one number, see [`Scalar`].
pub const ATTR_SCALAR: c_int = 3;
/// Attribute type: a string, see [`ByteSpan`].
pub const ATTR_STRING: c_int = 4;
/// [`ErrorCreateArgs::code`] of a call that can't work with these arguments.
pub const CODE_INVALID_ARGUMENT: c_int = 3;
/// [`ErrorCreateArgs::code`] of a defect in the handler or the runtime.
pub const CODE_INTERNAL: c_int = 13;

/// An error that the runtime made; opaque.
#[repr(C)]
#[derive(Debug)]
pub struct Error {
    _opaque: [u8; 0],
}

/// What the runtime knows of the running call; opaque.
#[repr(C)]
#[derive(Debug)]
pub struct ExecutionContext {
    _opaque: [u8; 0],
}

/// Head of a node in the linked list of extensions.
#[repr(C)]
#[derive(Debug)]
pub struct ExtensionBase {
    /// Bytes of the whole extension that the runtime knows.
    pub struct_size: usize,
    /// Which extension this is.
    pub kind: c_int,
    /// The next one, or null.
    pub next: *mut ExtensionBase,
}

/// A version of the API.
#[repr(C)]
#[derive(Debug)]
pub struct ApiVersion {
    /// Bytes of this struct.
    pub struct_size: usize,
    /// Extensions, or null.
    pub extension_start: *mut ExtensionBase,
    /// Changes with the ABI.
    pub major: c_int,
    /// Changes with additions.
    pub minor: c_int,
}

/// What the runtime asks of a handler before it is used. Newer runtimes have one more field behind these.
#[repr(C)]
#[derive(Debug)]
pub struct Metadata {
    /// Bytes of this struct that the runtime knows.
    pub struct_size: usize,
    /// Out: the version that the handler was made for.
    pub api_version: ApiVersion,
    /// Out: a set of bits; none of them is for us.
    pub traits: u32,
}

/// The extension through which the runtime asks for [`Metadata`].
#[repr(C)]
#[derive(Debug)]
pub struct MetadataExtension {
    /// The list node.
    pub base: ExtensionBase,
    /// Where the answer goes.
    pub metadata: *mut Metadata,
}

/// Arguments of [`ErrorCreate`].
#[repr(C)]
#[derive(Debug)]
pub struct ErrorCreateArgs {
    /// Bytes of this struct.
    pub struct_size: usize,
    /// Extensions, or null.
    pub extension_start: *mut ExtensionBase,
    /// The message, ending in a zero byte; the runtime copies it.
    pub message: *const c_char,
    /// An absl status code.
    pub code: c_int,
}

/// Arguments of [`ErrorGetMessage`].
#[repr(C)]
#[derive(Debug)]
pub struct ErrorGetMessageArgs {
    /// Bytes of this struct.
    pub struct_size: usize,
    /// Extensions, or null.
    pub extension_start: *mut ExtensionBase,
    /// The error.
    pub error: *mut Error,
    /// Out: its message, which lives as long as the error.
    pub message: *const c_char,
}

/// Arguments of [`ErrorDestroy`].
#[repr(C)]
#[derive(Debug)]
pub struct ErrorDestroyArgs {
    /// Bytes of this struct.
    pub struct_size: usize,
    /// Extensions, or null.
    pub extension_start: *mut ExtensionBase,
    /// The error to free.
    pub error: *mut Error,
}

/// A task for the runtime's thread pool.
pub type Task = unsafe extern "C" fn(data: *mut c_void);

/// Arguments of [`ThreadPoolSchedule`].
#[repr(C)]
#[derive(Debug)]
pub struct ThreadPoolScheduleArgs {
    /// Bytes of this struct.
    pub struct_size: usize,
    /// Extensions, or null.
    pub extension_start: *mut ExtensionBase,
    /// The running call.
    pub ctx: *mut ExecutionContext,
    /// What to run, once, now or later, on any thread.
    pub task: Option<Task>,
    /// What to hand to it.
    pub data: *mut c_void,
}

/// Arguments of [`ThreadPoolNumThreads`].
#[repr(C)]
#[derive(Debug)]
pub struct ThreadPoolNumThreadsArgs {
    /// Bytes of this struct.
    pub struct_size: usize,
    /// Extensions, or null.
    pub extension_start: *mut ExtensionBase,
    /// The running call.
    pub ctx: *mut ExecutionContext,
    /// Where the answer goes.
    pub num_threads: *mut i64,
}

/// Makes an error, which belongs to the caller.
pub type ErrorCreate = unsafe extern "C" fn(*mut ErrorCreateArgs) -> *mut Error;
/// Reads the message of an error.
pub type ErrorGetMessage = unsafe extern "C" fn(*mut ErrorGetMessageArgs);
/// Frees an error.
pub type ErrorDestroy = unsafe extern "C" fn(*mut ErrorDestroyArgs);
/// Queues a task; an error means that there is no pool, and that the task will not run.
pub type ThreadPoolSchedule = unsafe extern "C" fn(*mut ThreadPoolScheduleArgs) -> *mut Error;
/// Counts the threads of the pool; an error means that there is none.
pub type ThreadPoolNumThreads = unsafe extern "C" fn(*mut ThreadPoolNumThreadsArgs) -> *mut Error;

/// The runtime's table of functions, as far as we use it. The table of a real runtime goes on behind these.
#[repr(C)]
#[derive(Debug)]
pub struct Api {
    /// Bytes of the table that the runtime knows.
    pub struct_size: usize,
    /// Extensions, or null.
    pub extension_start: *mut ExtensionBase,
    /// The runtime's version.
    pub api_version: ApiVersion,
    /// Not for us.
    pub internal_api: *const c_void,
    /// Makes an error.
    pub error_create: Option<ErrorCreate>,
    /// Reads an error.
    pub error_get_message: Option<ErrorGetMessage>,
    /// Frees an error.
    pub error_destroy: Option<ErrorDestroy>,
    /// Handlers, streams, types, state and device memory: eight functions that we don't use.
    pub unused: [*const c_void; 8],
    /// Queues a task.
    pub thread_pool_schedule: Option<ThreadPoolSchedule>,
    /// Counts threads.
    pub thread_pool_num_threads: Option<ThreadPoolNumThreads>,
}

/// Reads one function of the table, or `None` where the runtime's table ends before it.
macro_rules! api_function {
    ($(#[$meta:meta])* $name:ident: $function:ty) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// `api` is null or points to the table of a runtime.
        #[must_use]
        pub unsafe fn $name(api: *const Self) -> Option<$function> {
            let end = std::mem::offset_of!(Self, $name) + size_of::<$function>();
            // SAFETY: a table is at least a `struct_size`, and holds the field if that says so. No reference to the
            // whole table is made, which may be shorter than `Self`.
            unsafe { if api.is_null() || (*api).struct_size < end { None } else { (*api).$name } }
        }
    };
}

impl Api {
    api_function! { /// [`Api::error_create`] if the runtime has it.
    error_create: ErrorCreate }
    api_function! { /// [`Api::error_destroy`] if the runtime has it.
    error_destroy: ErrorDestroy }
    api_function! { /// [`Api::thread_pool_schedule`] if the runtime has it.
    thread_pool_schedule: ThreadPoolSchedule }
    api_function! { /// [`Api::thread_pool_num_threads`] if the runtime has it.
    thread_pool_num_threads: ThreadPoolNumThreads }
}

/// An array in memory, row by row.
#[repr(C)]
#[derive(Debug)]
pub struct Buffer {
    /// Bytes of this struct that the runtime knows.
    pub struct_size: usize,
    /// Extensions, or null.
    pub extension_start: *mut ExtensionBase,
    /// Type of the elements.
    pub dtype: c_int,
    /// The elements; may be null if there are none.
    pub data: *mut c_void,
    /// How many dimensions.
    pub rank: i64,
    /// The dimensions.
    pub dims: *const i64,
}

/// Text that doesn't end in a zero byte.
#[repr(C)]
#[derive(Debug)]
pub struct ByteSpan {
    /// The first byte.
    pub ptr: *const c_char,
    /// How many bytes.
    pub len: usize,
}

/// An attribute that is one number.
#[repr(C)]
#[derive(Debug)]
pub struct Scalar {
    /// Type of the number.
    pub dtype: c_int,
    /// The number.
    pub value: *const c_void,
}

/// An attribute that is an array of one dimension.
#[repr(C)]
#[derive(Debug)]
pub struct Array {
    /// Type of the numbers.
    pub dtype: c_int,
    /// How many numbers.
    pub size: usize,
    /// The numbers; may be null if there are none.
    pub data: *const c_void,
}

/// The arguments of a call.
#[repr(C)]
#[derive(Debug)]
pub struct Args {
    /// Bytes of this struct that the runtime knows.
    pub struct_size: usize,
    /// Extensions, or null.
    pub extension_start: *mut ExtensionBase,
    /// How many arguments.
    pub size: i64,
    /// Their types: [`ARG_BUFFER`].
    pub types: *const c_int,
    /// The arguments: each a [`Buffer`].
    pub args: *const *mut c_void,
}

/// The results of a call, in memory that the runtime has set aside.
#[repr(C)]
#[derive(Debug)]
pub struct Rets {
    /// Bytes of this struct that the runtime knows.
    pub struct_size: usize,
    /// Extensions, or null.
    pub extension_start: *mut ExtensionBase,
    /// How many results.
    pub size: i64,
    /// Their types: [`RET_BUFFER`].
    pub types: *const c_int,
    /// The results: each a [`Buffer`].
    pub rets: *const *mut c_void,
}

/// The attributes of a call, constants of the compiled program, sorted by name.
#[repr(C)]
#[derive(Debug)]
pub struct Attrs {
    /// Bytes of this struct that the runtime knows.
    pub struct_size: usize,
    /// Extensions, or null.
    pub extension_start: *mut ExtensionBase,
    /// How many attributes.
    pub size: i64,
    /// Their types: [`ATTR_SCALAR`] and so on.
    pub types: *const c_int,
    /// Their names.
    pub names: *const *mut ByteSpan,
    /// The attributes: each a [`Scalar`], an [`Array`] or what else its type says.
    pub attrs: *const *mut c_void,
}

/// One call of a handler. Newer runtimes have one more field behind these.
#[repr(C)]
#[derive(Debug)]
pub struct CallFrame {
    /// Bytes of this struct that the runtime knows.
    pub struct_size: usize,
    /// Extensions, or null.
    pub extension_start: *mut ExtensionBase,
    /// The runtime's functions.
    pub api: *const Api,
    /// The running call; null in a metadata probe.
    pub ctx: *mut ExecutionContext,
    /// Which stage is running: [`STAGE_EXECUTE`] or one before it.
    pub stage: c_int,
    /// The arguments.
    pub args: Args,
    /// The results.
    pub rets: Rets,
    /// The attributes.
    pub attrs: Attrs,
}

/// A handler, as the runtime calls it.
pub type Handler = unsafe extern "C" fn(*mut CallFrame) -> *mut Error;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Asserts the size of a struct and the offsets of its fields.
    macro_rules! assert_layout {
        ($type:ty, $size:literal, $($field:ident: $offset:literal),+) => {
            assert_eq!(size_of::<$type>(), $size, stringify!($type));
            assert_eq!(align_of::<$type>(), 8, stringify!($type));
            $(assert_eq!(offset_of!($type, $field), $offset, concat!(stringify!($type), ".", stringify!($field)));)+
        };
    }

    // The numbers are those of a C compiler for 64-bit targets, the same for API versions 0.1 and 0.3.

    #[test]
    fn layout_of_versions_and_metadata() {
        assert_layout!(ExtensionBase, 24, struct_size: 0, kind: 8, next: 16);
        assert_layout!(ApiVersion, 24, struct_size: 0, extension_start: 8, major: 16, minor: 20);
        assert_layout!(Metadata, 40, struct_size: 0, api_version: 8, traits: 32);
        assert_layout!(MetadataExtension, 32, base: 0, metadata: 24);
    }

    #[test]
    fn layout_of_function_arguments() {
        assert_layout!(ErrorCreateArgs, 32, struct_size: 0, extension_start: 8, message: 16, code: 24);
        assert_layout!(ErrorGetMessageArgs, 32, struct_size: 0, extension_start: 8, error: 16, message: 24);
        assert_layout!(ErrorDestroyArgs, 24, struct_size: 0, extension_start: 8, error: 16);
        assert_layout!(ThreadPoolScheduleArgs, 40, struct_size: 0, extension_start: 8, ctx: 16, task: 24, data: 32);
        assert_layout!(ThreadPoolNumThreadsArgs, 32, struct_size: 0, extension_start: 8, ctx: 16, num_threads: 24);
    }

    #[test]
    fn layout_of_the_function_table() {
        assert_layout!(
            Api, 152,
            struct_size: 0, extension_start: 8, api_version: 16, internal_api: 40,
            error_create: 48, error_get_message: 56, error_destroy: 64, unused: 72,
            thread_pool_schedule: 136, thread_pool_num_threads: 144
        );
    }

    #[test]
    fn layout_of_values() {
        assert_layout!(Buffer, 48, struct_size: 0, extension_start: 8, dtype: 16, data: 24, rank: 32, dims: 40);
        assert_layout!(ByteSpan, 16, ptr: 0, len: 8);
        assert_layout!(Scalar, 16, dtype: 0, value: 8);
        assert_layout!(Array, 24, dtype: 0, size: 8, data: 16);
    }

    #[test]
    fn layout_of_call_frames() {
        assert_layout!(Args, 40, struct_size: 0, extension_start: 8, size: 16, types: 24, args: 32);
        assert_layout!(Rets, 40, struct_size: 0, extension_start: 8, size: 16, types: 24, rets: 32);
        assert_layout!(Attrs, 48, struct_size: 0, extension_start: 8, size: 16, types: 24, names: 32, attrs: 40);
        assert_layout!(
            CallFrame, 168,
            struct_size: 0, extension_start: 8, api: 16, ctx: 24, stage: 32, args: 40, rets: 80, attrs: 120
        );
    }
}
