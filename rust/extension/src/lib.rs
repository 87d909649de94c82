//! `ferroket._lib`: the one compiled file of the package. Python imports it, and MPItrampoline opens it.
//!
//! The symbols that MPItrampoline looks up are those of [`ferroket_mpi_abi::exports`]: a cdylib exports the
//! `no_mangle` symbols of the crates it links.

use pyo3::prelude::*;

mod handlers;
mod mpi;
mod process;

/// The compiled half of Ferroket.
#[pymodule]
mod _lib {
    #[pymodule_export]
    use super::handlers::{ffi_handlers, marker_handler};
    #[pymodule_export]
    use super::mpi::{
        Launcher, Mpi, MpiLibrary, announce_group, attach_mpi, compare_at_marker, compare_programs, detect_launcher,
        exit_now, find_mpi, is_child_of_rank, is_trampoline_attached, launcher_console, left_over_variables,
        mark_of_children, mpi_calls, mpi_traffic, name_program, program_marker, set_yielding, unannounced_groups,
        unknown_launcher, wait_for_difference, withdraw_group,
    };
    #[pymodule_export]
    use super::process::beacon::Beacon;
    #[pymodule_export]
    use super::process::crash::announce_crashes;
    #[pymodule_export]
    use super::process::deadline::Deadline;
    #[pymodule_export]
    use super::process::limits::{fma_rate, profile_network, simd_level, simd_levels};
    #[pymodule_export]
    use super::process::memory::keep_freed_memory;
    #[pymodule_export]
    use super::process::peers::{Found, find_ranks, oom_kills, watch_ranks, who_killed};
}
