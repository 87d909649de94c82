//! Amplitudes whose ratios are known, so that neither a network is evaluated nor a connected configuration built.
//!
//! What is asked of them is [`Ratios`] of many samples, for [`local_values`], and a [`Walker`] along a Markov chain.
//! Of a network whose ratios aren't known the [`FirstLayer`] may be.

pub mod correlated;
pub mod doublon_holon;
pub mod fermions;
mod first_layer;
pub mod jastrow;
mod local_values;
pub mod pfaffian;
pub mod product;
mod ratios;
pub mod rbm;
pub mod slater;
mod sums;
#[cfg(test)]
mod testing;

pub use first_layer::{ConnectedSums, FirstLayer};
pub use local_values::local_values;
pub use ratios::{AmplitudeRatio, RATIOS_PER_BLOCK, Ratios, Walker};
