//! Connected elements of lattice Hamiltonians.
//!
//! For a configuration σ, the connected elements of an operator O are the configurations σ' and the matrix elements
//! ⟨σ|O|σ'⟩ that don't vanish. Configurations are rows of `sites` values in the dtype of the samples; each operator
//! family is one module. This crate knows nothing of Python, JAX or threads: a kernel works on the rows that it is
//! given, and its caller deals the rows out.

#![cfg_attr(test, allow(clippy::float_cmp))] // the numbers of the tests are exact

pub mod amplitudes;
pub mod connected;
pub mod error;
pub mod numbers;
pub mod sampling;
pub mod sites;

pub use error::Error;
