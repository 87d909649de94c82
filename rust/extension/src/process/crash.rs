//! A rank that crashes says which one it was, where, and why, before it dies.

use std::ffi::c_int;
use std::sync::OnceLock;

use pyo3::prelude::*;

use super::beacon::{self, State};

/// The signals of a crash, and what they mean to a user.
pub(crate) const CRASHES: [(c_int, &str); 5] = [
    (libc::SIGSEGV, "segmentation fault (SIGSEGV)"),
    (libc::SIGBUS, "bus error (SIGBUS): a file or shared memory that is mapped became too short, or is full"),
    (libc::SIGFPE, "arithmetic error (SIGFPE)"),
    (libc::SIGILL, "illegal instruction (SIGILL): was a library built for another processor?"),
    (libc::SIGABRT, ABORT),
];
pub(crate) const ABORT: &str = "abort (SIGABRT) by a library, which has usually said why above";

/// What is said of a crash of `who`.
pub(crate) fn announcement(who: &str, meaning: &str) -> String {
    format!("ferroket: {who}: {meaning}, so the whole job ends")
}

/// By crash: the whole message, made beforehand, since a handler may not allocate.
static MESSAGES: OnceLock<[String; CRASHES.len()]> = OnceLock::new();

/// From now on a crash of this process is announced on stderr as one of `who`. Handlers that are installed later run
/// before.
#[pyfunction]
pub(crate) fn announce_crashes(who: &str) {
    let messages = CRASHES.map(|(_, meaning)| announcement(who, meaning) + "\n");
    if MESSAGES.set(messages).is_err() {
        return; // announced already
    }
    for (signal, _) in CRASHES {
        // SAFETY: all-zero is a valid sigaction; the handler does only what a handler may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as extern "C" fn(c_int) as usize;
            action.sa_flags = libc::SA_ONSTACK | libc::SA_RESETHAND | libc::SA_NODEFER;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Only async-signal-safe functions here: write, nanosleep, raise, and stores.
extern "C" fn handle(signal: c_int) {
    let message = MESSAGES.get().and_then(|all| {
        let index = CRASHES.iter().position(|(known, _)| *known == signal)?;
        all.get(index)
    });
    // JAX aborts a rank when it has lost rank 0. Those who watch both know which came first.
    let is_left_to_watchers = beacon::ARE_WATCHED && signal == libc::SIGABRT;
    let state = if is_left_to_watchers { State::Aborts } else { State::Reported };
    // A process that this rank has forked is no rank.
    if let Some(message) = message
        && beacon::mark(state)
    {
        if !is_left_to_watchers {
            // SAFETY: the bytes live as long as the process; where stderr is gone, nothing is left to do.
            unsafe { libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len()) };
        }
        // The launcher has to read it before it sees the process end: it may look for no more then.
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        // SAFETY: the interval is valid, and nobody wants the rest of it.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
    // SAFETY: the handler was reset to the default, which ends the process.
    unsafe { libc::raise(signal) };
}
