//! Markov chains of configurations.
//!
//! A [`rules::TransitionRule`] proposes moves, a [`crate::amplitudes::Walker`] gives the ratio of the amplitudes, and
//! [`run`] accepts or rejects by the rule of Metropolis and Hastings.

mod chains;
pub mod rules;

pub use chains::{KEY_WORDS, Key, Sampling, run};
