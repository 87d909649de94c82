//! Markov chains of configurations.
//!
//! A [`rules::TransitionRule`] proposes moves, a [`crate::amplitudes::Walker`] gives the ratio of the amplitudes, and
//! [`run`] accepts or rejects by the rule of Metropolis and Hastings. Where the amplitudes are evaluated elsewhere, a [`Proposer`]
//! takes chains from one proposal to the next, and a [`Teller`] through all of them.

mod chains;
mod proposals;
mod rows;
pub mod rules;
mod stream;
mod told;

pub use chains::{KEY_WORDS, Key, Sampling, run};
pub use proposals::{Chain, Conversation, Estimate, PROGRESS_WORDS, Proposer, Question};
pub use rows::EqualRows;
pub use stream::STREAM_WORDS;
pub use told::Teller;
