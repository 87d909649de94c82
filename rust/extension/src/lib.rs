//! `ferroket._lib`: the one compiled file of the package. Python imports it, and MPItrampoline opens it.

use pyo3::prelude::*;

mod handlers;

/// The compiled half of Ferroket.
#[pymodule]
mod _lib {
    #[pymodule_export]
    use super::handlers::ffi_handlers;
}
