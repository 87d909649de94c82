//! The sites and their local states.

mod local_states;

pub use local_states::{Configuration, LocalIndex, LocalStates, MAX_STATES, Sites, StateRange, TwoStates};
