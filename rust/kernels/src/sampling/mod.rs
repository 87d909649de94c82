//! Markov chains of configurations.

mod chains;
pub mod rules;

pub use chains::{KEY_WORDS, Key, Sampling, run};
