//! `ferroket._lib`: the one compiled file of the package. Python imports it, and MPItrampoline opens it.
//!
//! The symbols that MPItrampoline looks up are those of [`ferroket_mpi_abi::exports`]: a cdylib exports the
//! `no_mangle` symbols of the crates it links.

use pyo3::prelude::*;

mod deadline;
mod handlers;
mod mpi;

/// The compiled half of Ferroket.
#[pymodule]
mod _lib {
    #[pymodule_export]
    use super::deadline::Deadline;
    #[pymodule_export]
    use super::handlers::ffi_handlers;
    #[pymodule_export]
    use super::mpi::{Launcher, Mpi, MpiLibrary, attach_mpi, detect_launcher, find_mpi, is_trampoline_attached};
}
