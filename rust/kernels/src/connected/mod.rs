//! The connected elements of operators.
//!
//! An operator's structure is a [`Form`], of which there are two: [`terms`] on sites with two local states, and small
//! [`matrices`] on sites with any. A sweep over samples has three steps, which [`Form`] tells. [`ising`] is one Hamiltonian
//! with a kernel of its own.

pub mod distinct;
mod elements;
mod form;
pub mod ising;
pub mod matrices;
pub(crate) mod offsets;
pub mod terms;
#[cfg(test)]
pub(crate) mod testing;

pub use elements::{Elements, count_nonzero};
pub use form::{Form, Part, Sink, SinkRow, write_configurations};
