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
