//! The FFI handlers that Python registers with JAX.

use crate::process::limits::simd_level;
use ferroket_handlers::{HANDLERS, MARKER};
use ferroket_xla_ffi::raw::Handler;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The handlers by name, each a capsule as `jax.ffi.register_ffi_target` takes it; a `ValueError` as of [`simd_level`].
#[pyfunction]
pub(crate) fn ffi_handlers(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    simd_level()?;
    let handlers = PyDict::new(py);
    for (name, handler) in HANDLERS {
        handlers.set_item(name, capsule(py, handler)?)?;
    }
    Ok(handlers)
}

/// The handler that keeps the marker of a program, a capsule as above.
#[pyfunction]
pub(crate) fn marker_handler(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    capsule(py, MARKER)
}

/// The address of a handler as JAX wants it: the capsule's pointer is the function itself. The capsules of `PyO3` would
/// point to a box with the function in it.
fn capsule(py: Python<'_>, handler: Handler) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: a function lives for ever and needs no destructor; the name may be null. The new reference is ours, or null
    // with a Python exception set.
    unsafe {
        let capsule = pyo3::ffi::PyCapsule_New(handler as *mut std::ffi::c_void, std::ptr::null(), None);
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}
