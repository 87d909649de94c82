//! Amplitudes whose ratios are known.

pub mod jastrow;
mod local_values;
mod ratios;
pub mod rbm;
mod sums;

pub use local_values::local_values;
pub use ratios::{Odds, Ratios, TOGETHER, Walker};
