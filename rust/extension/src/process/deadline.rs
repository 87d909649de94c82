//! A deadline for a call that waits for other ranks inside MPI, where neither Python's signals nor its threads
//! get a turn.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use pyo3::prelude::*;

/// Context manager: if its block takes longer than `seconds`, writes `message` to stderr and ends the process with
/// exit code 1, at which the launcher ends the others. 0 seconds is no deadline.
#[pyclass(module = "ferroket._lib")]
pub(crate) struct Deadline {
    seconds: f64,
    message: String,
    /// Dropped when the block is left, which wakes the watching thread.
    inside: Option<Sender<()>>,
}

#[pymethods]
impl Deadline {
    #[new]
    fn new(seconds: f64, message: String) -> Self {
        Self { seconds, message, inside: None }
    }

    fn __enter__(&mut self) {
        // A duration that isn't one (0, negative, NaN, endless) is no deadline.
        let Some(limit) = Duration::try_from_secs_f64(self.seconds).ok().filter(|limit| !limit.is_zero()) else {
            return;
        };
        let (inside, left) = channel::<()>();
        let message = self.message.clone();
        std::thread::spawn(move || {
            if left.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                ferroket_mpi_abi::runtime::tell(&message);
                ferroket_mpi_abi::runtime::exit(1);
            }
        });
        self.inside = Some(inside);
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&mut self, _exception: &Bound<'_, PyAny>) {
        self.inside = None;
    }
}
