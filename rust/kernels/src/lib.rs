//! Connected elements, local energies and Markov chains of lattice Hamiltonians.
//!
//! For a configuration σ, the connected elements of an operator O are the configurations σ' and the matrix elements
//! ⟨σ|O|σ'⟩ that don't vanish. Configurations are rows of `sites` values in the dtype of the samples. This crate knows
//! nothing of Python, JAX or threads: a kernel works on the rows that it is given, and its caller deals the rows out.
//!
//! It has rooms, each of which uses itself and those before it, and never one after it:
//!
//! 1. [`numbers`]: the types of samples and matrix elements, functions such as tanh as vector code, and numbers as planes
//!    of vectors.
//! 2. [`sites`]: the local states of the sites, and samples as indices of them.
//! 3. [`connected`]: the connected elements of operators in two forms, [`connected::terms`] and [`connected::matrices`]; and
//!    which configurations are the same.
//! 4. [`amplitudes`]: ψ(σ') / ψ(σ) of wave functions that are known, restricted Boltzmann machines and Jastrow
//!    amplitudes, and the local values of operators from them.
//! 5. [`network`]: networks as programs of operations, for many configurations side by side.
//! 6. [`sampling`]: Markov chains of configurations that such amplitudes lead, by transition rules.
//! 7. [`linear_algebra`]: linear systems of large matrices, which several threads share.

#![cfg_attr(test, allow(clippy::float_cmp))] // the numbers of the tests are exact

pub mod amplitudes;
pub mod connected;
pub mod error;
pub mod linear_algebra;
pub mod network;
pub mod numbers;
pub mod sampling;
pub mod sites;

pub use error::Error;
