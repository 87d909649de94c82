//! The sites, their local states, and samples as indices of local states.
//!
//! A site takes one of a few values, an arithmetic sequence: 1, -1 for a spin ½; 0, 1, 2 for bosons. Sites with the same
//! values are of one kind. The *local index* of a site says which of its values it has.

mod kinds;
mod local_states;
#[cfg(test)]
pub(crate) mod testing;
mod two_states;

pub use kinds::{LocalIndex, MAX_STATES, Sites, StateRange};
pub use local_states::{Configuration, LocalStates};
pub use two_states::TwoStates;
