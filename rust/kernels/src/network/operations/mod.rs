//! The kinds of operations.

mod contract;
mod functions;
mod index;
mod lu;
mod map;
mod pair;
mod pfaffian;
mod reduce;
mod rows;
mod triangular;

pub(super) use contract::Contract;
pub(super) use map::{Instruction, Map};

use super::words::{Words, wrong};
use crate::Error;
use crate::numbers::{CACHE_LINE, Real};
use index::{Gather, Put, Scatter, Take};
use lu::{Decompose, Lu};
use pair::{Multiply, Pair};
use pfaffian::{Pfaffian, Tridiagonalize};
use pulp::Simd;
use reduce::Reduce;
use rows::Rows;
use std::marker::PhantomData;
use triangular::{Solve, Triangular};

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
    /// Matrices as products of triangular ones.
    Lu(Lu),
    /// Systems of equations of such.
    Triangular(Triangular),
    /// Factors of Pfaffians.
    Pfaffian(Pfaffian),
    /// Elements at places that depend on the configuration.
    Take(Take),
    /// Sums of elements, at such places.
    Put(Put),
    /// Products with rows of a matrix that depend on the configuration.
    Rows(Rows<T>),
}

impl<T: Real> Operation<T> {
    pub(super) fn read(words: &mut Words, tables: &[T]) -> Result<Self, Error> {
        Ok(match words.number()? {
            0 => Self::Contract(Contract::read(words, tables)?),
            1 => Self::Pair(Pair::read(words)?),
            2 => Self::Reduce(Reduce::read(words)?),
            3 => Self::Map(Map::read(words, tables)?),
            4 => Self::Lu(Lu::read(words)?),
            5 => Self::Triangular(Triangular::read(words)?),
            6 => Self::Pfaffian(Pfaffian::read(words)?),
            7 => Self::Take(Take::read(words)?),
            8 => Self::Put(Put::read(words)?),
            9 => Self::Rows(Rows::read(words, tables)?),
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
            Self::Lu(lu) => lu.work(),
            Self::Triangular(triangular) => triangular.work(),
            Self::Pfaffian(pfaffian) => pfaffian.work(),
            Self::Take(take) => take.work(),
            Self::Put(put) => put.work(),
            Self::Rows(rows) => rows.work(),
        }
    }

    /// How many registers it has for blocks of numbers.
    pub(super) fn registers(&self) -> usize {
        // The longest vectors have as many bytes as a line of the cache.
        let of_vectors = |vectors: usize| (vectors * CACHE_LINE).div_ceil(Map::<T>::BLOCK * size_of::<T>());
        match self {
            Self::Map(map) => map.registers(),
            Self::Lu(lu) => of_vectors(lu.vectors()),
            Self::Triangular(triangular) => of_vectors(triangular.vectors()),
            Self::Pfaffian(pfaffian) => of_vectors(pfaffian.vectors()),
            Self::Rows(rows) => of_vectors(rows.vectors()),
            Self::Contract(_) | Self::Pair(_) | Self::Reduce(_) | Self::Take(_) | Self::Put(_) => 0,
        }
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
        macro_rules! with_memory {
            ($operation:expr) => {{
                let width = vectors * (size_of::<T::Vector<S>>() / size_of::<T>());
                let (numbers, memory) = memory.split_at_mut(places * width);
                let memory = bytemuck::cast_slice_mut(memory);
                if vectors == 1 {
                    $operation.run::<S, 1>(simd, bytemuck::cast_slice_mut(numbers), memory)
                } else {
                    $operation.run::<S, 2>(simd, bytemuck::cast_slice_mut(numbers), memory)
                }
            }};
        }
        match self {
            Self::Contract(contract) => with_vectors!(contract),
            Self::Pair(pair) => with_vectors!(Multiply::<T>(pair, PhantomData)),
            Self::Reduce(reduce) => {
                if vectors == 1 {
                    reduce.run::<T, S, 1>(simd, bytemuck::cast_slice_mut(memory));
                } else {
                    reduce.run::<T, S, 2>(simd, bytemuck::cast_slice_mut(memory));
                }
            }
            Self::Map(map) => map.run(simd, vectors, places, memory),
            Self::Lu(lu) => with_memory!(Decompose::<T>(lu, PhantomData)),
            Self::Triangular(triangular) => with_memory!(Solve::<T>(triangular, PhantomData)),
            Self::Pfaffian(pfaffian) => with_memory!(Tridiagonalize::<T>(pfaffian, PhantomData)),
            Self::Take(take) => with_vectors!(Gather::<T>(take, PhantomData)),
            Self::Put(put) => with_vectors!(Scatter::<T>(put, PhantomData)),
            Self::Rows(rows) => with_memory!(rows),
        }
    }
}

/// Some vectors of configurations: what a place has in a tile.
type Numbers<T, S, const V: usize> = [<T as Real>::Vector<S>; V];

#[cfg(test)]
mod tests;
