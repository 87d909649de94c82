//! What changes with the sites that change: sums of rows of a table.

use crate::numbers::Real;
use crate::sites::LocalIndex;
use pulp::Simd;

/// The sites that have their second local state, sample by sample.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changed {
    sites: Vec<u32>,
    /// Where each sample's end.
    ends: Vec<usize>,
}

impl Changed {
    /// Makes it that of samples of local indices 0 and 1, `(samples, sites)`.
    #[inline(always)]
    pub(crate) fn set(&mut self, indices: &[LocalIndex], samples: usize) {
        let sites = indices.len() / samples.max(1);
        // Each site is written, and the next one over it unless that has changed: no branch is guessed wrong.
        self.sites.resize(indices.len() + 1, 0);
        self.ends.clear();
        let mut end = 0;
        for sample in 0..samples {
            for (site, &index) in indices[sample * sites..][..sites].iter().enumerate() {
                self.sites[end] = site as u32;
                end += usize::from(index);
            }
            self.ends.push(end);
        }
    }
}

/// For each sample the sum of `first` and of those rows of a table `(sites, numbers)` whose sites have changed.
#[inline(always)]
pub(crate) fn sum_rows<T: Real, S: Simd>(simd: S, first: &[T], table: &[T], changed: &Changed, sums: &mut [T]) {
    let first: &[T::Vector<S>] = bytemuck::cast_slice(first);
    let table: &[T::Vector<S>] = bytemuck::cast_slice(table);
    let sums: &mut [T::Vector<S>] = bytemuck::cast_slice_mut(sums);
    // So few columns that the rows stay in the first-level cache, and the sums in registers.
    let mut column = 0;
    while column + 4 <= first.len() {
        sum_columns::<T, S, 4>(simd, column, first, table, changed, sums);
        column += 4;
    }
    while column < first.len() {
        sum_columns::<T, S, 1>(simd, column, first, table, changed, sums);
        column += 1;
    }
}

/// What [`sum_rows`] does, for `N` vectors of each sum.
#[inline(always)]
fn sum_columns<T: Real, S: Simd, const N: usize>(
    simd: S,
    column: usize,
    first: &[T::Vector<S>],
    table: &[T::Vector<S>],
    changed: &Changed,
    sums: &mut [T::Vector<S>],
) {
    let len = first.len();
    let mut start = 0;
    for (&end, sums) in changed.ends.iter().zip(sums.chunks_exact_mut(len)) {
        let mut sum = [T::splat(simd, T::default()); N];
        sum.copy_from_slice(&first[column..][..N]);
        for &site in &changed.sites[start..end] {
            let row = &table[site as usize * len + column..][..N];
            for (sum, &number) in sum.iter_mut().zip(row) {
                *sum = T::plus(simd, *sum, number);
            }
        }
        sums[column..][..N].copy_from_slice(&sum);
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::{dispatch, each_level};
    use proptest::prelude::*;
    use pulp::WithSimd;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    struct Sum<'a> {
        first: &'a [f64],
        table: &'a [f64],
        changed: &'a Changed,
        sums: Vec<f64>,
    }

    impl WithSimd for Sum<'_> {
        type Output = Vec<f64>;

        fn with_simd<S: Simd>(mut self, simd: S) -> Vec<f64> {
            sum_rows(simd, self.first, self.table, self.changed, &mut self.sums);
            self.sums
        }
    }

    #[test]
    fn sites_that_have_changed() {
        let mut changed = Changed::default();
        changed.set(&[0, 1, 1, 0, 0, 0, 1, 0, 1], 3);
        assert_eq!((&changed.sites[..4], &changed.ends[..]), (&[1, 2, 0, 2][..], &[2, 2, 4][..]));
        changed.set(&[1, 0], 1);
        assert_eq!((&changed.sites[..1], &changed.ends[..]), (&[0][..], &[1][..]));
    }

    proptest! {
        /// Whole numbers, whose sums are exact in any order. Rows of one vector and of so many that some are summed together.
        #[test]
        fn sums_by_definition(
            columns in prop_oneof![Just(16_usize), Just(48), Just(160)], sites in 1_usize..9, samples in 0_usize..5, seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let mut numbers = |len: usize| (0..len).map(|_| f64::from(rng.random_range(-9..=9))).collect::<Vec<_>>();
            let (first, table) = (numbers(columns), numbers(sites * columns));
            let indices: Vec<LocalIndex> = (0..samples * sites).map(|_| rng.random_range(0..2)).collect();
            let mut changed = Changed::default();
            changed.set(&indices, samples);
            for _ in each_level() {
                let sums = vec![77.0; samples * columns];
                let sums = dispatch(Sum { first: &first, table: &table, changed: &changed, sums });
                for (indices, sums) in indices.chunks(sites).zip(sums.chunks(columns)) {
                    for (column, &sum) in sums.iter().enumerate() {
                        let of_sites = indices.iter().enumerate().map(|(site, &n)| f64::from(n) * table[site * columns + column]);
                        prop_assert_eq!(sum, first[column] + of_sites.sum::<f64>());
                    }
                }
            }
        }
    }
}
