//! The kinds of operations.

mod contract;
mod functions;
mod map;
mod pair;
mod reduce;

pub(super) use contract::Contract;
pub(super) use map::{Instruction, Map};

use super::words::{Words, wrong};
use crate::Error;
use crate::numbers::Real;
use pair::{Multiply, Pair};
use pulp::Simd;
use reduce::Reduce;

/// One of them.
#[derive(Debug)]
pub(super) enum Operation<T> {
    /// Products with weights, summed.
    Contract(Contract<T>),
    /// Products of activations, summed.
    Pair(Pair),
    /// Sums, and the like.
    Reduce(Reduce),
    /// Functions of single numbers.
    Map(Map<T>),
}

impl<T: Real> Operation<T> {
    pub(super) fn read(words: &mut Words, tables: &[T]) -> Result<Self, Error> {
        Ok(match words.number()? {
            0 => Self::Contract(Contract::read(words, tables)?),
            1 => Self::Pair(Pair::read(words)?),
            2 => Self::Reduce(Reduce::read(words)?),
            3 => Self::Map(Map::read(words, tables)?),
            code => return Err(wrong(&format!("there is no operation {code}"))),
        })
    }

    /// See [`super::Program::work`].
    pub(super) fn work(&self) -> usize {
        match self {
            Self::Contract(contract) => contract.work(),
            Self::Pair(pair) => pair.work(),
            Self::Reduce(reduce) => reduce.work(),
            Self::Map(map) => map.work(),
        }
    }

    /// How many registers it has for blocks of numbers.
    pub(super) fn registers(&self) -> usize {
        if let Self::Map(map) = self { map.registers() } else { 0 }
    }

    /// Runs it on a tile of so many vectors: `memory` has as many vectors for each of the `places`, and behind them the
    /// registers.
    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, simd: S, vectors: usize, places: usize, memory: &mut [T]) {
        macro_rules! with_vectors {
            ($operation:expr) => {
                if vectors == 1 {
                    $operation.run::<S, 1>(simd, bytemuck::cast_slice_mut(memory))
                } else {
                    $operation.run::<S, 2>(simd, bytemuck::cast_slice_mut(memory))
                }
            };
        }
        match self {
            Self::Contract(contract) => with_vectors!(contract),
            Self::Pair(pair) => with_vectors!(Multiply::<T>(pair, std::marker::PhantomData)),
            Self::Reduce(reduce) => {
                if vectors == 1 {
                    reduce.run::<T, S, 1>(simd, bytemuck::cast_slice_mut(memory));
                } else {
                    reduce.run::<T, S, 2>(simd, bytemuck::cast_slice_mut(memory));
                }
            }
            Self::Map(map) => map.run(simd, vectors, places, memory),
        }
    }
}

/// Some vectors of configurations: what a place has in a tile.
type Numbers<T, S, const V: usize> = [<T as Real>::Vector<S>; V];
