//! What can go wrong between a process and its MPI library.

use std::path::PathBuf;

use crate::abi::ThreadLevel;
use crate::library::Attempt;

/// Each message names the value, the rule it broke and the mend.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No library could be opened at any of the places where one may be.
    #[error(
        "no MPI library was found. Install one beside this package, `pip install mpich`, or name \
         yours in FERROKET_LIBMPI=/path/to/libmpi.so. Tried: {}", list(.tried)
    )]
    NotFound {
        /// Every place, and why not.
        tried: Vec<Attempt>,
    },

    /// The user named a library that can't be used.
    #[error(
        "{variable} names {path}, which can't be used as the MPI library: {reason}. Name the file of an MPI \
             library (such as libmpi.so.12 or libmpi.so.40), or unset {variable}"
    )]
    BadVariable {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        path: String,
        /// What the loader said.
        reason: String,
    },

    /// The file was opened, but isn't a usable MPI library.
    #[error("{} isn't a usable MPI library: {reason}", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },

    /// A call of MPI failed.
    #[error("{function} of {} failed: {message}", .path.display())]
    Failed {
        /// The function of MPI.
        function: &'static str,
        /// The library.
        path: PathBuf,
        /// What `MPI_Error_string` says.
        message: String,
    },

    /// Somebody else initialised MPI with too low a level, or the library has no higher one.
    #[error(
        "{} runs with {}, but XLA calls MPI from the threads of its pool, which needs MPI_THREAD_MULTIPLE. \
         If mpi4py was imported first, remove mpi4py.rc.thread_level and mpi4py.rc.threads, or initialise \
         Ferroket before; if the library was built without thread support, use another one",
        .path.display(), .level.name()
    )]
    ThreadLevel {
        /// The library.
        path: PathBuf,
        /// What it provides.
        level: ThreadLevel,
    },

    /// MPI counts in 32 bits.
    #[error("a rank can't send {bytes} bytes at once to the others: MPI counts up to 2147483647")]
    TooLong {
        /// The length of the message.
        bytes: usize,
    },

    /// MPI is over in this process; the standard allows no second start.
    #[error("MPI was finalized in this process already, and can't be started again: remove the call of MPI_Finalize")]
    Finalized,
}

fn list(tried: &[Attempt]) -> String {
    let lines: Vec<_> = tried.iter().map(|attempt| format!("\n  {}: {}", attempt.candidate, attempt.outcome)).collect();
    lines.concat()
}
