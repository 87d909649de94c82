//! What Python sees of the MPI of this process.

#![allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value

use std::ffi::c_int;
use std::path::PathBuf;

use ferroket_mpi_abi::groups::{self, Group};
use ferroket_mpi_abi::library::{Attempt, Candidate, Library, find};
use ferroket_mpi_abi::runtime::{self, Runtime};
use ferroket_mpi_abi::{Error, calls, checks, ending, launcher, overhead, programs, traffic, waiting};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The launcher that started this process.
#[pyclass(frozen, get_all, module = "ferroket._lib")]
#[derive(Debug)]
pub(crate) struct Launcher {
    kind: &'static str,
    name: &'static str,
    rank: usize,
    size: Option<usize>,
}

/// An MPI library: the file, what it is, how it was found, all that was tried as (place, outcome), and a variable, with
/// its value, that has to be set before MPI starts.
#[pyclass(frozen, get_all, module = "ferroket._lib")]
#[derive(Debug)]
pub(crate) struct MpiLibrary {
    path: PathBuf,
    family: String,
    version: String,
    origin: String,
    attempts: Vec<(String, String)>,
    variable: Option<(&'static str, PathBuf)>,
}

/// The MPI that runs in this process, from its library's point of view.
#[pyclass(frozen, module = "ferroket._lib")]
#[derive(Debug)]
pub(crate) struct Mpi {
    #[pyo3(get)]
    library: Py<MpiLibrary>,
    #[pyo3(get)]
    thread_level: &'static str,
    #[pyo3(get)]
    rank: i32,
    #[pyo3(get)]
    size: i32,
    runtime: &'static Runtime,
}

#[pymethods]
impl Mpi {
    /// Gathers bytes, of any length on each rank, from all ranks, by rank. A collective of all ranks.
    fn allgather<'py>(&self, py: Python<'py>, own: &[u8]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let all = py.detach(|| self.runtime.allgather(own)).map_err(|error| to_python(&error))?;
        Ok(all.iter().map(|part| PyBytes::new(py, part)).collect())
    }

    /// Seconds of a call through the wrapper and of the library's own, on this rank alone.
    fn overhead(&self, py: Python<'_>) -> PyResult<(f64, f64)> {
        let both = py.detach(|| overhead::measure(self.runtime, 25, 2000)).map_err(|error| to_python(&error))?;
        Ok((both.wrapped.as_secs_f64(), both.direct.as_secs_f64()))
    }

    /// Waits, asleep, until all ranks are here; false if MPI is over. A collective of all ranks.
    fn wait_for_all(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.runtime.wait_for_all()).map_err(|error| to_python(&error))
    }

    /// Ends the whole job with an exit code.
    fn abort(&self, py: Python<'_>, code: i32) {
        py.detach(|| self.runtime.abort(code));
    }

    /// Finalizes MPI if it was started here; later calls do nothing.
    fn finish(&self, py: Python<'_>) {
        py.detach(|| self.runtime.finish());
    }
}

/// How many calls of MPI have come back, and those that XLA is in: number, description, and the system's number of the
/// thread.
#[pyfunction]
pub(crate) fn mpi_calls() -> (u64, Vec<(u64, String, i32)>) {
    let now = calls::now();
    (now.done, now.inside.iter().map(|(number, call, thread)| (*number, call.to_string(), *thread)).collect())
}

/// Whether ranks compare which programs they run, from the next call of MPI on: all of them do, or none.
#[pyfunction]
pub(crate) fn compare_programs(comparing: bool) {
    programs::set_comparing(comparing);
}

/// What a program's marker says: its first number, the program, its devices, and how the history counts it.
///
/// A program is "spread" if it works on values that are spread over ranks, "whole" if each rank has all of them, "own" if
/// it belongs to the runtime itself. The marker of a "place" stands in a branch or a loop, which has the program's number.
#[pyfunction]
pub(crate) fn program_marker(program: u64, ranks: Vec<c_int>, kind: &str) -> PyResult<[u64; programs::MARKER_LENGTH]> {
    let kind = match kind {
        "spread" => programs::Kind::Spread,
        "whole" => programs::Kind::Whole,
        "own" => programs::Kind::Own,
        "place" => programs::Kind::Place,
        _ => {
            return Err(PyValueError::new_err(format!(
                "a marker is of kind spread, whole, own or place, not {kind:?}"
            )));
        }
    };
    Ok([programs::MARKER, program, programs::devices_of(&ranks), kind as u64])
}

/// Gives a program its name in messages.
#[pyfunction]
pub(crate) fn name_program(program: u64, name: String) {
    programs::name(program, name);
}

/// Has ranks compare what they run at the marker of a program, too: some of its collectives come before it.
#[pyfunction]
pub(crate) fn compare_at_marker(program: u64) {
    programs::compare_at_marker(program);
}

/// Waits until this rank finds that others are in another call than it is itself, and says in which it is, with a number
/// that tells it from others. That call doesn't come back: who waits here has to end the job.
#[pyfunction]
pub(crate) fn wait_for_difference(py: Python<'_>) -> (String, u64) {
    let found = py.detach(checks::wait);
    (found.place, found.digest)
}

/// What this process has sent over MPI so far: function, number of ranks that take part (0 for all), calls, and bytes
/// that it put into its messages.
#[pyfunction]
pub(crate) fn mpi_traffic() -> Vec<(&'static str, usize, u64, u64)> {
    let totals = traffic::totals().into_iter();
    totals.map(|((function, ranks), total)| (function, ranks, total.calls, total.bytes)).collect()
}

/// Announces the group of ranks that XLA will ask for next, by the number of its first device, when XLA has asked for the one
/// that was announced before.
#[pyfunction]
pub(crate) fn announce_group(py: Python<'_>, color: i32, ranks: Vec<i32>) {
    py.detach(|| groups::announce(Group { color, ranks }));
}

/// Takes an announcement back, if XLA hasn't asked.
#[pyfunction]
pub(crate) fn withdraw_group(color: i32, ranks: Vec<i32>) {
    groups::withdraw(&Group { color, ranks });
}

/// How many groups XLA has asked for without an announcement, so that all ranks had to take part.
#[pyfunction]
pub(crate) fn unannounced_groups() -> usize {
    groups::unannounced()
}

/// Whether ranks that wait in MPI give their core away (they share it with others), or keep it.
#[pyfunction]
pub(crate) fn set_yielding(yielding: bool) {
    waiting::set_yielding(yielding);
}

/// The stderr of the mpirun that started this process, if it runs on this node and can be opened: for what is to be said
/// when it doesn't forward any more.
#[pyfunction]
pub(crate) fn launcher_console() -> Option<PathBuf> {
    launcher::console()
}

/// Ends this process at once, with no exit handlers.
#[pyfunction]
pub(crate) fn exit_now(code: i32) {
    ending::exit(code);
}

impl MpiLibrary {
    fn new(library: &Library, found: &Candidate, attempts: &[Attempt]) -> Self {
        Self {
            path: library.path().to_path_buf(),
            family: library.family().to_string(),
            version: library.version(),
            origin: found.origin(),
            attempts: attempts.iter().map(|a| (a.candidate.to_string(), a.outcome.clone())).collect(),
            variable: library.variable(),
        }
    }
}

fn to_python(error: &Error) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// The launcher that started this process, or None.
#[pyfunction]
pub(crate) fn detect_launcher() -> Option<Launcher> {
    let found = launcher::detect()?;
    Some(Launcher { kind: found.kind.tag(), name: found.kind.name(), rank: found.rank, size: found.size })
}

/// Variables by which a launcher that isn't known has told this process its number, as `NAME=value`; None without.
#[pyfunction]
pub(crate) fn unknown_launcher() -> Option<String> {
    launcher::unknown()
}

/// Why the variables of a launcher can't be those of this process, if so.
#[pyfunction]
pub(crate) fn left_over_variables() -> Option<String> {
    launcher::left_over()
}

/// Whether a rank has started this process, so that what the launcher told that rank is not for this one.
#[pyfunction]
pub(crate) fn is_child_of_rank() -> bool {
    launcher::is_child()
}

/// The variable by which children of this rank know that they are, and its value. It is for their environment.
#[pyfunction]
pub(crate) fn mark_of_children() -> (&'static str, String) {
    (launcher::RANK_PROCESS, launcher::mark_of_children(std::process::id()))
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
        runtime: running,
    })
}

/// Whether jaxlib's MPItrampoline has this file as its wrapper.
#[pyfunction]
pub(crate) fn is_trampoline_attached() -> bool {
    runtime::is_trampoline_attached()
}
