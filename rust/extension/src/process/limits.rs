//! What the machine can do, for reports and benchmarks.

use ferroket_kernels::numbers::SimdLevel;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The rate at which this core multiplies and adds float64 numbers in registers, in operations a second.
#[pyfunction]
pub(crate) fn fma_rate() -> f64 {
    ferroket_kernels::numbers::fma_rate()
}

/// The levels of vector instructions that this processor has, the best one first: "avx512", "avx2", "neon", "scalar".
#[pyfunction]
pub(crate) fn simd_levels() -> Vec<&'static str> {
    SimdLevel::all().iter().map(|level| level.name).collect()
}

/// The level that the kernels run on; a `ValueError` if `FERROKET_SIMD` names none of this processor's.
#[pyfunction]
pub(crate) fn simd_level() -> PyResult<&'static str> {
    SimdLevel::current().map(|level| level.name).map_err(|error| PyValueError::new_err(error.to_string()))
}
