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

/// The seconds that each operation of a network's program takes for inputs, in float32 if it `is_single`.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "what Python gives is a list")]
pub(crate) fn profile_network(
    words: Vec<i32>,
    tables: Vec<f64>,
    inputs: Vec<f64>,
    is_single: bool,
) -> PyResult<Vec<f64>> {
    ferroket_handlers::profile_network(&words, &tables, &inputs, is_single)
        .map_err(|error| PyValueError::new_err(error.to_string()))
}
