//! Networks: programs of a few kinds of operations, for many configurations side by side.
//!
//! A [`Program`] works on *places*, each of which holds one number of the network. A tile has some vectors of configurations,
//! and each place has a number for each of them: so all is arithmetic of whole vectors, whatever the network is, and
//! the weights are the same for all lanes. What moves numbers has been done by whoever wrote the program, who says where they
//! are.

mod bounds;
mod operations;
mod program;
#[cfg(test)]
pub(crate) mod testing;
mod words;

pub use bounds::Rounded;
pub(crate) use bounds::of_rounding;
pub use program::{Lanes, Program};
