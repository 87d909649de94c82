//! The errors of kernels, as the runtime takes them.

use ferroket_xla_ffi::Error;
use std::sync::{Mutex, PoisonError};

/// The errors of the parts of a sweep over samples. The one of the first sample wins, whichever thread was faster.
#[derive(Default)]
pub(crate) struct FirstError(Mutex<Option<(usize, ferroket_kernels::Error)>>);

impl FirstError {
    /// Keeps the error of the part that begins at sample `start`, if there is one and it is the first so far.
    pub(crate) fn keep(&self, start: usize, outcome: Result<(), ferroket_kernels::Error>) {
        if let Err(error) = outcome {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if first.as_ref().is_none_or(|&(other, _)| start < other) {
                *first = Some((start, error));
            }
        }
    }

    /// The error, as the runtime takes it. A call sees the samples of one device alone, and counts those.
    pub(crate) fn into_result(self, samples: usize) -> Result<(), Error> {
        match self.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some((_, error)) => Err(Error::invalid(format!("{error} (counted among the {samples} of this device)"))),
        }
    }
}

/// An error of a kernel, as the runtime takes it.
pub(crate) fn invalid(error: &ferroket_kernels::Error) -> Error {
    Error::invalid(error.to_string())
}
