//! What can be wrong with the input of a kernel.

use thiserror::Error;

/// An input that has no connected elements. Each message names the value and the rule that it broke.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A sample holds a value that the site can't take.
    #[error("sample {sample}, site {site} has the value {value}, but the local states are {states}")]
    NotALocalState {
        /// Which sample, counted from the first one of the buffer.
        sample: usize,
        /// Which site.
        site: usize,
        /// What the sample holds.
        value: String,
        /// The local states of the site.
        states: String,
    },
    /// The dtype of the samples can't hold the local states, or can't tell them apart.
    #[error("the local states {states} can't all be held by samples of this dtype")]
    LocalStates {
        /// The local states.
        states: String,
    },
    /// A sample has more connected elements than there is room for.
    #[error("sample {sample} has {count} connected elements, but there is room for {room} (max_conn_size)")]
    TooManyElements {
        /// Which sample, counted from the first one of the buffer.
        sample: usize,
        /// How many elements it has.
        count: usize,
        /// How many there may be.
        room: usize,
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
    /// A sector hasn't as many fermions as its determinant has orbitals.
    #[error(
        "sector {sector} has {found} fermions, but the determinant has {expected} orbitals there: give the state the Hilbert \
         space of its model"
    )]
    Fermions {
        /// Which sector.
        sector: usize,
        /// How many fermions it has.
        found: usize,
        /// How many orbitals there are.
        expected: usize,
    },
    /// There are no pairs of fermions, one of each kind.
    #[error(
        "a sample has {excess} more fermions of one kind than of the other, but pairs are made for {expected}: give the state the \
         Hilbert space of its model"
    )]
    UnpairedFermions {
        /// How many more of the first kind.
        excess: i64,
        /// How many more there should be.
        expected: i64,
    },
    /// There is another number of fermions than pairs are made of.
    #[error(
        "a sample has {found} fermions, but pairs are made of {expected}: give the state the Hilbert space of its model"
    )]
    PairedFermions {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// A variable names a level of vector instructions that this processor lacks, or none.
    #[error(
        "{variable} is '{value}', but this processor has the levels {names}: set it to one of these, or to {best} for the best \
         one"
    )]
    SimdLevel {
        /// The variable.
        variable: &'static str,
        /// What it is set to.
        value: String,
        /// The levels that there are.
        names: String,
        /// What stands for the best one.
        best: &'static str,
    },
    /// The tables of an operator contradict each other.
    #[error("the tables are wrong: {0}")]
    Tables(String),
}

/// An error of the tables unless `valid`.
pub(crate) fn check(valid: bool, message: impl FnOnce() -> String) -> Result<(), Error> {
    if valid { Ok(()) } else { Err(Error::Tables(message())) }
}

/// A number that counts things of which there are so many.
pub(crate) fn index(number: i32, count: usize) -> Option<usize> {
    usize::try_from(number).ok().filter(|&number| number < count)
}
