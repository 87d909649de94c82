//! A rank's *beacon*: a pipe into which it writes its [`State`], and at whose end others see that it has ended.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// What a rank's beacon says to the others. A rank that has said nothing runs: if it ends now, it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// It has said itself why it ends.
    Reported = 1,
    /// It has done its work, as all have.
    Finished = 2,
    /// A library ends it by `abort`. That may be so since another rank has ended: JAX's client does it if rank 0 is gone.
    Aborts = 3,
}

/// Whether ranks are watched on this system.
pub(crate) const ARE_WATCHED: bool = cfg!(target_os = "linux");

/// The end of the pipe that this rank writes to.
static OWN: AtomicI32 = AtomicI32::new(-1);
/// The process whose pipe it is; a fork shares it.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Changes what this rank's beacon says, if it has one and this is its process, not a fork. Async-signal-safe.
/// Returns whether it did.
pub(crate) fn mark(state: State) -> bool {
    if !ARE_WATCHED {
        return true;
    }
    let own = OWN.load(Ordering::Acquire);
    // SAFETY: getpid has no preconditions.
    let is_rank = own >= 0 && unsafe { libc::getpid() } == PROCESS.load(Ordering::Acquire);
    if is_rank {
        // SAFETY: one byte is read from a live variable. The pipe has room for more states than there are, and this process
        // has its other end open as well.
        unsafe { libc::write(own, (&raw const state).cast(), 1) };
    }
    is_rank
}

/// Opens this rank's pipe, where ranks are watched: its process, and the end that others read.
#[cfg(target_os = "linux")]
fn light() -> io::Result<Option<(i32, i32)>> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors, which are ours alone. They stay open as long as the process lives: the
    // others open the first by its number.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let process = std::process::id().cast_signed();
    PROCESS.store(process, Ordering::Release);
    OWN.store(ends[1], Ordering::Release);
    Ok(Some((process, ends[0])))
}

#[cfg(not(target_os = "linux"))]
fn light() -> io::Result<Option<(i32, i32)>> {
    Ok(None)
}

/// This rank's beacon: how the others of the node find it, and what it says.
#[pyclass(frozen, module = "ferroket._lib")]
#[derive(Debug)]
pub(crate) struct Beacon {
    /// Process and file descriptor, for [`super::peers::watch_ranks`]; None where the system has no such thing.
    #[pyo3(get)]
    address: Option<(i32, i32)>,
}

#[pymethods]
impl Beacon {
    #[new]
    fn new() -> PyResult<Self> {
        ferroket_mpi_abi::ending::when_reported(Self::reported);
        light().map(|address| Self { address }).map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// This rank has said why it ends.
    #[staticmethod]
    fn reported() {
        mark(State::Reported);
    }

    /// This rank has done its work, as all have.
    #[staticmethod]
    fn finished() {
        mark(State::Finished);
    }
}
