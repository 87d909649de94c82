//! MPItrampoline's wrapper ABI over any MPI library, found and opened at run time.
//!
//! jaxlib holds MPItrampoline, which forwards every call of MPI to a *wrapper*: a shared library with 641 known
//! symbols ([`exports`]). This crate is such a wrapper. It is not linked to an MPI library: it finds the one that
//! the process uses or should use ([`library`]) when MPI is first needed, and translates between the numbers of
//! its own ABI and those of that library. So importing jax stays free of MPI, and one file serves MPICH,
//! Intel MPI, Open MPI and their relatives.
//!
//! XLA's use of MPI has faults that a wrapper can mend; [`runtime`] and [`exports::functions`] say where.

pub mod abi;
pub mod calls;
pub mod checks;
pub mod ending;
pub mod error;
pub mod exports;
pub mod groups;
pub mod launcher;
pub mod library;
mod memory;
pub mod overhead;
mod packets;
pub mod programs;
mod reductions;
pub mod runtime;
pub mod siblings;
pub mod traffic;
pub mod waiting;

pub use error::Error;
