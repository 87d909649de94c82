//! The FFI handlers that Python registers with JAX.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The handlers by name, each a capsule as `jax.ffi.register_ffi_target` takes it.
#[pyfunction]
pub(crate) fn ffi_handlers(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    Ok(PyDict::new(py))
}
