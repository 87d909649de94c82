//! What Python sees of the MPI of this process.

#![allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value

use std::path::PathBuf;

use ferroket_mpi_abi::library::{Attempt, Candidate, Library, find};
use ferroket_mpi_abi::runtime::{self, Runtime};
use ferroket_mpi_abi::{Error, launcher};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// The launcher that started this process.
#[pyclass(frozen, get_all, module = "ferroket._lib")]
#[derive(Debug)]
pub(crate) struct Launcher {
    name: &'static str,
    rank: usize,
    size: usize,
}

/// An MPI library: the file, what it is, how it was found, and all that was tried as (place, outcome).
#[pyclass(frozen, get_all, module = "ferroket._lib")]
#[derive(Debug)]
pub(crate) struct MpiLibrary {
    path: PathBuf,
    family: String,
    version: String,
    origin: String,
    attempts: Vec<(String, String)>,
}

/// The MPI that runs in this process, from its library's point of view.
#[pyclass(frozen, get_all, module = "ferroket._lib")]
#[derive(Debug)]
pub(crate) struct Mpi {
    library: Py<MpiLibrary>,
    thread_level: &'static str,
    rank: i32,
    size: i32,
}

impl MpiLibrary {
    fn new(library: &Library, found: &Candidate, attempts: &[Attempt]) -> Self {
        Self {
            path: library.path().to_path_buf(),
            family: library.family().to_string(),
            version: library.version(),
            origin: found.origin(),
            attempts: attempts.iter().map(|a| (a.candidate.to_string(), a.outcome.clone())).collect(),
        }
    }
}

fn to_python(error: &Error) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// The launcher that started this process, or None.
#[pyfunction]
pub(crate) fn detect_launcher() -> Option<Launcher> {
    launcher::detect().map(|found| Launcher { name: found.kind.name(), rank: found.rank, size: found.size })
}

/// The MPI library that `attach_mpi` would use. Opens it, but doesn't start MPI.
#[pyfunction]
pub(crate) fn find_mpi(prefixes: Vec<PathBuf>) -> PyResult<MpiLibrary> {
    let found = find(&prefixes).map_err(|error| to_python(&error))?;
    Ok(MpiLibrary::new(&found.library, &found.candidate, &found.attempts))
}

/// Starts MPI, or joins the one that runs. Collective over all ranks of the job.
#[pyfunction]
pub(crate) fn attach_mpi(py: Python<'_>, prefixes: Vec<PathBuf>) -> PyResult<Mpi> {
    // The GIL is let go: starting MPI waits for the other ranks.
    let running: &Runtime = py.detach(|| runtime::attach(&prefixes)).map_err(|error| to_python(&error))?;
    let library = MpiLibrary::new(running.library(), running.found(), running.attempts());
    Ok(Mpi {
        library: Py::new(py, library)?,
        thread_level: running.thread_level().name(),
        rank: running.rank(),
        size: running.size(),
    })
}

/// Whether jaxlib's MPItrampoline has this file as its wrapper.
#[pyfunction]
pub(crate) fn is_trampoline_attached() -> bool {
    runtime::is_trampoline_attached()
}
