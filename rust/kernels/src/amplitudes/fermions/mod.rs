//! What determinants and Pfaffians of fermions have in common: how ratios are asked for, and how errors are kept small.

mod connected;
mod numbers;
mod ratios;
mod walker;

pub(crate) mod accuracy;
pub(crate) mod moves;

pub use connected::ConnectedRatios;
pub use numbers::{Orbital, SignedLog};
pub use ratios::{Amplitudes, FermionChange};
pub use walker::Walker;

use crate::Error;
use crate::sites::LocalIndex;
use moves::Moves;
use pulp::Simd;

/// A sum of amplitudes of fermions on modes, one mode a site: at a configuration it has numbers that ratios are made of.
pub trait Fermions: Sync {
    /// Real or complex numbers.
    type Number: Orbital;

    /// The numbers at a configuration; at none by default.
    type State: Default;

    /// The memory that it takes to compute them.
    type Memory;

    /// That memory.
    fn memory(&self) -> Self::Memory;

    /// How many modes a sector has: each sector keeps its fermions.
    fn modes(&self) -> usize;

    /// How many summands there are.
    fn summands(&self) -> usize;

    /// How many numbers a sample has, real ones or pairs of them.
    fn numbers(&self) -> usize;

    /// Whether a ratio reads many of a sample's numbers, so that they should stay in the cache until all were asked for.
    const READS_MANY: bool;

    /// Whether a mode with this local index is occupied.
    fn is_occupied(&self, site: usize, index: LocalIndex) -> bool;

    /// An error if a sector of a sample, as local indices, has another number of fermions.
    fn check(&self, indices: &[LocalIndex]) -> Result<(), Error>;

    /// Goes to a configuration of local indices. With other numbers of fermions ψ is 0.
    fn set<S: Simd>(&self, simd: S, memory: &mut Self::Memory, state: &mut Self::State, indices: &[LocalIndex]);

    /// Whether ψ is 0, or no number.
    fn is_zero(&self, state: &Self::State) -> bool;

    /// The ratio of ψ with the fermions moved to that where the state was set; no number where ψ is 0 there. The moves keep
    /// each sector's fermions, and name modes in order.
    fn ratio(&self, state: &Self::State, moves: &Moves) -> Self::Number;

    /// Whether moving the fermions takes an even permutation of the occupied modes, where the state was set.
    fn is_even(&self, state: &Self::State, moves: &Moves) -> bool;

    /// What one of the summands adds to the ratio, up to the sign of the order of the modes. Where ψ is 0 it is relative to the
    /// largest summand.
    fn summand(&self, state: &Self::State, index: usize, moves: &Moves) -> Self::Number;

    /// One of the summands with the fermions moved, from the tables, up to the sign of the order of the modes.
    fn there(&self, state: &Self::State, index: usize, moves: &Moves) -> SignedLog<Self::Number>;

    /// ψ with the fermions moved, alike.
    #[cold]
    fn psi_there(&self, state: &Self::State, moves: &Moves) -> SignedLog<Self::Number> {
        let all: Vec<_> = (0..self.summands()).map(|index| self.there(state, index, moves)).collect();
        SignedLog::sum(&all)
    }

    /// Moves the fermions. `summands` are what the summands add to the ratio.
    fn go<S: Simd>(
        &self,
        simd: S,
        memory: &mut Self::Memory,
        state: &mut Self::State,
        moves: &Moves,
        summands: &[Self::Number],
    );
}
