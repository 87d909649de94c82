//! The kinds of operations.

mod contract;
mod map;
mod pair;
mod reduce;

pub(super) use map::Map;

use super::words::{Words, wrong};
use crate::Error;
use crate::numbers::Real;
use contract::Contract;
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

    /// Runs it on a tile of so many vectors: `places` are as many vectors for each place.
    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, simd: S, vectors: usize, places: &mut [T], registers: &mut [T]) {
        macro_rules! with_vectors {
            ($operation:expr) => {
                if vectors == 1 {
                    $operation.run::<S, 1>(simd, bytemuck::cast_slice_mut(places))
                } else {
                    $operation.run::<S, 2>(simd, bytemuck::cast_slice_mut(places))
                }
            };
        }
        match self {
            Self::Contract(contract) => with_vectors!(contract),
            Self::Pair(pair) => with_vectors!(Multiply::<T>(pair, std::marker::PhantomData)),
            Self::Reduce(reduce) => reduce.run(simd, vectors * (size_of::<T::Vector<S>>() / size_of::<T>()), places),
            Self::Map(map) => map.run(simd, vectors * (size_of::<T::Vector<S>>() / size_of::<T>()), places, registers),
        }
    }
}

/// Some vectors of configurations: what a place has in a tile.
type Numbers<T, S, const V: usize> = [<T as Real>::Vector<S>; V];
