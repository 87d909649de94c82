//! Connected elements.

pub mod distinct;
mod elements;
pub mod ising;
pub mod matrices;
pub mod terms;
#[cfg(test)]
pub(crate) mod testing;

pub use elements::{Elements, Form, Part, Sink, SinkRow, count_nonzero, write_configurations};
