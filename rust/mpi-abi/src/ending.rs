//! How this process says why it ends, and ends alone; [`crate::runtime`] ends the whole job.

use std::ffi::c_int;
use std::io::Write;
use std::sync::OnceLock;

/// Called when this process says why it ends.
static REPORTED: OnceLock<fn()> = OnceLock::new();

/// Has `reported` called when this process says why it ends; only the first one counts.
pub fn when_reported(reported: fn()) {
    let _ = REPORTED.set(reported);
}

/// Says on stderr why this process ends.
pub fn tell(message: &str) {
    if let Some(reported) = REPORTED.get() {
        reported();
    }
    // Nothing is left to do where even stderr is gone.
    let _ = writeln!(std::io::stderr(), "{message}");
}

/// Ends this process alone, and at once: the exit handlers of libraries that are in the middle of a call could wait for
/// ever. The launcher ends the others.
pub fn exit(code: c_int) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}
