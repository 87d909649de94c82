//! What can be wrong with the input of a kernel.

use thiserror::Error;

/// An input that has no connected elements. Each message names the value and the rule that it broke.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A sample holds a value that no site of the Hilbert space can take.
    #[error("sample {sample}, site {site} has the value {value}, but the local states are {first} and {second}")]
    NotALocalState {
        /// Which sample, counted from the first one of the buffer.
        sample: usize,
        /// Which site.
        site: usize,
        /// What the sample holds.
        value: String,
        /// The local state of index 0.
        first: f64,
        /// The local state of index 1.
        second: f64,
    },
    /// The dtype of the samples can't tell the two local states apart.
    #[error("the local states {first} and {second} can't both be held by samples of this dtype")]
    LocalStates {
        /// The local state of index 0.
        first: f64,
        /// The local state of index 1.
        second: f64,
    },
    /// An edge names a site that doesn't exist.
    #[error("edge {edge} joins the sites {} and {}, but there are {sites} sites, counted from 0", .ends[0], .ends[1])]
    EdgeOutOfRange {
        /// Which edge.
        edge: usize,
        /// The sites that it joins.
        ends: [i32; 2],
        /// How many sites there are.
        sites: usize,
    },
}
