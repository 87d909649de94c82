//! The functions that the fake runtime gives to handlers.

use super::{Failure, Threads};
use crate::raw;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::thread::{self, JoinHandle};

/// What the context of a fake call points to.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) threads: Threads,
    pub(super) scheduled: usize,
    pub(super) late: Vec<Work>,
    pub(super) running: Vec<JoinHandle<()>>,
}

/// A task and its data.
#[derive(Debug)]
pub(super) struct Work(raw::Task, *mut c_void);

// SAFETY: whoever queues a task allows any thread to run it.
unsafe impl Send for Work {}

impl Work {
    pub(super) fn run(self) {
        // SAFETY: a queued task is run once, with its data.
        unsafe { (self.0)(self.1) }
    }
}

/// What a `raw::Error` of this runtime points to.
struct FakeError {
    code: i32,
    message: CString,
}

thread_local! {
    static DESTROYED: Cell<usize> = const { Cell::new(0) };
}

/// How many errors have been destroyed by the calling thread.
#[must_use]
pub fn destroyed_errors() -> usize {
    DESTROYED.get()
}

fn make_error(code: i32, message: CString) -> *mut raw::Error {
    Box::into_raw(Box::new(FakeError { code, message })).cast()
}

/// Does with the error of a call what the runtime does: reads it and destroys it.
pub(super) fn take_failure(error: *mut raw::Error) -> Result<(), Failure> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: errors of calls are made by `error_create`.
    let FakeError { code, message } = unsafe { *Box::from_raw(error.cast::<FakeError>()) };
    DESTROYED.set(DESTROYED.get() + 1);
    Err(Failure { code, message: message.to_string_lossy().into_owned() })
}

pub(super) unsafe extern "C" fn error_create(args: *mut raw::ErrorCreateArgs) -> *mut raw::Error {
    // SAFETY: the arguments are as the C API has them.
    let (args, message) = unsafe { (&*args, CStr::from_ptr((*args).message)) };
    assert!(args.struct_size >= 28, "the size of the arguments");
    make_error(args.code, message.into())
}

pub(super) unsafe extern "C" fn error_get_message(args: *mut raw::ErrorGetMessageArgs) {
    // SAFETY: the arguments are as the C API has them, and the error is one of ours.
    unsafe {
        assert!((*args).struct_size >= 32, "the size of the arguments");
        (*args).message = (*(*args).error.cast::<FakeError>()).message.as_ptr();
    }
}

pub(super) unsafe extern "C" fn error_destroy(args: *mut raw::ErrorDestroyArgs) {
    // SAFETY: the arguments are as the C API has them, and the error is one of ours.
    unsafe {
        assert!((*args).struct_size >= 24, "the size of the arguments");
        drop(Box::from_raw((*args).error.cast::<FakeError>()));
    }
    DESTROYED.set(DESTROYED.get() + 1);
}

pub(super) unsafe extern "C" fn thread_pool_num_threads(args: *mut raw::ThreadPoolNumThreadsArgs) -> *mut raw::Error {
    // SAFETY: the arguments are as the C API has them, and the context is one of ours.
    unsafe {
        assert!((*args).struct_size >= 32, "the size of the arguments");
        match (*(*args).ctx.cast::<Context>()).threads {
            Threads::None => return make_error(raw::CODE_INVALID_ARGUMENT, c"there is no thread pool".into()),
            Threads::Inline(n) | Threads::Real(n) | Threads::Late(n) | Threads::Refused(n) => {
                *(*args).num_threads = n;
            }
        }
    }
    ptr::null_mut()
}

pub(super) unsafe extern "C" fn thread_pool_schedule(args: *mut raw::ThreadPoolScheduleArgs) -> *mut raw::Error {
    // SAFETY: the arguments are as the C API has them, and the context is one of ours. Handlers queue tasks from the
    // thread that runs them, so the context is not shared.
    let (args, context) = unsafe { (&*args, &mut *(*args).ctx.cast::<Context>()) };
    assert!(args.struct_size >= 40, "the size of the arguments");
    let Some(task) = args.task else { return make_error(raw::CODE_INVALID_ARGUMENT, c"there is no task".into()) };
    let work = Work(task, args.data);
    if matches!(context.threads, Threads::None | Threads::Refused(_)) {
        return make_error(raw::CODE_INTERNAL, c"tasks are refused".into());
    }
    context.scheduled += 1;
    match context.threads {
        Threads::Real(_) => {
            let thread = thread::spawn(move || work.run());
            context.running.push(thread);
        }
        Threads::Late(_) => context.late.push(work),
        _ => work.run(),
    }
    ptr::null_mut()
}
