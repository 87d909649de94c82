//! What the machine could do at most, for the benchmarks.

use pyo3::prelude::*;

/// The rate at which this core multiplies and adds float64 numbers in registers, in operations a second.
#[pyfunction]
pub(crate) fn fma_rate() -> f64 {
    ferroket_kernels::numbers::fma_rate()
}
