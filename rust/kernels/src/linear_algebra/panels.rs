//! Products of matrices: sums over a depth of vectors times single numbers, which stay in the registers of the processor.
//!
//! Goto and van de Geijn, ACM Transactions on Mathematical Software 34, 12 (2008). One factor is cut into *panels* of as many rows as
//! there are numbers in some vectors, written one column after the other, `(depth, height)`: its *lanes*. The other is cut into
//! panels of a few rows, whose numbers are multiplied with these vectors one by one, `(depth, outputs)`: its *singles*. So
//! numbers that are multiplied together are read one behind the other, however their matrices lie in memory.

use crate::numbers::{CACHE_LINE, Real, dispatch};
use aligned_vec::AVec;
use pulp::{Simd, WithSimd};
use std::marker::PhantomData;
use std::ops::Range;

/// What computes on blocks of `V` vectors times `M` outputs.
pub(super) trait OnBlocks<T: Real> {
    type Output;

    /// It has to be inlined.
    fn run<S: Simd, const V: usize, const M: usize>(self, simd: S) -> Self::Output;
}

/// Calls `work` with as many vectors and outputs as there are registers for their sums: with fewer than eight, additions wait for
/// each other. Panels of lanes are whole ones of singles.
#[inline(always)]
pub(super) fn on_blocks<T: Real, W: OnBlocks<T>>(work: W) -> W::Output {
    struct Registers<T, W>(W, PhantomData<T>);
    impl<T: Real, W: OnBlocks<T>> WithSimd for Registers<T, W> {
        type Output = W::Output;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> W::Output {
            match size_of::<T::Vector<S>>() {
                64 => self.0.run::<S, 3, 8>(simd),
                32 => self.0.run::<S, 2, 4>(simd),
                _ => self.0.run::<S, 4, 4>(simd),
            }
        }
    }
    dispatch(Registers(work, PhantomData))
}

/// The shape of blocks on this processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    /// The rows of a panel of lanes.
    pub(super) height: usize,
    /// The rows of a panel of singles.
    pub(super) outputs: usize,
}

impl Format {
    /// That of numbers of type `T`.
    pub(super) fn of<T: Real>() -> Self {
        struct Found;
        impl<T: Real> OnBlocks<T> for Found {
            type Output = Format;

            #[inline(always)]
            fn run<S: Simd, const V: usize, const M: usize>(self, _: S) -> Format {
                Format { height: height::<T, S, V>(), outputs: M }
            }
        }
        on_blocks::<T, _>(Found)
    }
}

/// The numbers of `V` vectors.
#[inline(always)]
pub(super) const fn height<T: Real, S: Simd, const V: usize>() -> usize {
    V * size_of::<T::Vector<S>>() / size_of::<T>()
}

/// The numbers of some vectors side by side.
pub(super) type Lanes<T, S, const V: usize> = [<T as Real>::Vector<S>; V];

/// Panels of lanes as vectors.
#[inline(always)]
pub(super) fn lanes<T: Real, S: Simd, const V: usize>(numbers: &[T]) -> &[Lanes<T, S, V>] {
    bytemuck::cast_slice::<T, T::Vector<S>>(numbers).as_chunks().0
}

/// The same to be written.
#[inline(always)]
pub(super) fn lanes_mut<T: Real, S: Simd, const V: usize>(numbers: &mut [T]) -> &mut [Lanes<T, S, V>] {
    bytemuck::cast_slice_mut::<T, T::Vector<S>>(numbers).as_chunks_mut().0
}

/// Rows times the numbers of some vectors.
pub(super) type Block<T, S, const V: usize, const M: usize> = [Lanes<T, S, V>; M];

/// So many bytes of lanes stay in the nearest cache while one block of singles after the other is multiplied with them.
const NEAR: usize = 24 << 10;

/// Parts of a depth, for which lanes stay in the nearest cache.
#[inline(always)]
pub(super) fn near<T: Real, S: Simd, const V: usize>(depth: usize) -> impl Iterator<Item = Range<usize>> {
    parts_of::<T>(depth, height::<T, S, V>())
}

/// The same for panels of so many rows.
#[inline(always)]
pub(super) fn parts_of<T: Real>(depth: usize, height: usize) -> impl Iterator<Item = Range<usize>> {
    // An even number, for complex numbers.
    let at_once = NEAR / (height * size_of::<T>()) / 2 * 2;
    (0..depth).step_by(at_once).map(move |first| first..depth.min(first + at_once))
}

/// `Σ_k lanes[k] singles[k, m]` for each output m.
#[inline(always)]
pub(super) fn product<T: Real, S: Simd, const V: usize, const M: usize>(
    simd: S,
    lanes: &[Lanes<T, S, V>],
    singles: &[[T; M]],
) -> Block<T, S, V, M> {
    let mut sums = [[T::splat(simd, T::default()); V]; M];
    for (vectors, singles) in lanes.iter().zip(singles) {
        for (sums, &single) in sums.iter_mut().zip(singles) {
            let single = T::splat(simd, single);
            for (sum, &vector) in sums.iter_mut().zip(vectors) {
                *sum = T::times_plus(simd, single, vector, *sum);
            }
        }
    }
    sums
}

/// Zeros, so that no vector is part of two lines of the cache.
pub(super) fn zeros<T: Real>(len: usize) -> AVec<T> {
    let mut numbers = AVec::with_capacity(CACHE_LINE, len);
    numbers.resize(len, T::default());
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::each_level;

    struct Multiplied<'a> {
        lanes: &'a [f64],
        singles: &'a [f64],
    }

    impl OnBlocks<f64> for Multiplied<'_> {
        type Output = Vec<f64>;

        #[inline(always)]
        fn run<S: Simd, const V: usize, const M: usize>(self, simd: S) -> Vec<f64> {
            let sums = product::<f64, S, V, M>(simd, lanes::<f64, S, V>(self.lanes), self.singles.as_chunks().0);
            bytemuck::cast_slice::<_, f64>(sums.as_flattened()).to_vec()
        }
    }

    #[test]
    fn what_a_block_is() {
        for _ in each_level() {
            let Format { height, outputs } = Format::of::<f64>();
            let depth = 5;
            let filled = |len: usize, step: f64| {
                let mut numbers = zeros(len);
                numbers.iter_mut().enumerate().for_each(|(place, number)| *number = (step * place as f64).sin());
                numbers
            };
            let (lanes, singles) = (filled(depth * height, 0.7), filled(depth * outputs, 1.3));
            let found = on_blocks(Multiplied { lanes: &lanes, singles: &singles });
            for (place, found) in found.into_iter().enumerate() {
                let (output, lane) = (place / height, place % height);
                let expected: f64 = (0..depth).map(|k| lanes[k * height + lane] * singles[k * outputs + output]).sum();
                assert!((found - expected).abs() < 1e-15);
            }
        }
    }
}
