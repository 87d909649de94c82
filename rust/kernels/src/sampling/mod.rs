//! Markov chains of configurations.
//!
//! A [`rules::TransitionRule`] proposes moves, a [`crate::amplitudes::Walker`] gives the ratio of the amplitudes, and
//! [`run`] accepts or rejects by the rule of Metropolis and Hastings. Where the amplitudes are evaluated elsewhere, a [`Proposer`]
//! takes chains from one proposal to the next, and a [`MixedPrecision`] through all of them.

mod chains;
mod mixed_precision;
mod proposals;
mod rows;
pub mod rules;
mod stream;

pub use chains::{KEY_WORDS, Key, Sampling, run};
pub use mixed_precision::MixedPrecision;
pub use proposals::{Chain, Estimate, EvaluationRequest, PROGRESS_WORDS, Pending, Proposer};
pub use rows::EqualRows;
pub use stream::STREAM_WORDS;
