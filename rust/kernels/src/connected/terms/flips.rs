//! Sites that are flipped.

use super::columns::bits_of_row;
use std::hint::select_unpredictable;

/// Configurations that differ from the sample at more sites than these are written by a mask of all sites.
const FEW: usize = 4;

/// The sites that a group flips.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flip {
    /// How many.
    pub(super) count: u32,
    /// The first few of them.
    pub(super) first: [u32; FEW],
    /// Where the row of this group starts in the masks of all sites, if there are more than a few.
    pub(super) mask: usize,
}

impl Flip {
    /// The flip of a row of the tables. `masks` has a number for each site of those groups that flip many.
    pub(super) fn new(row: &[u32], sites: usize, masks: &mut Vec<u8>) -> Self {
        let mut flip =
            Self { count: row.iter().map(|word| word.count_ones()).sum(), first: [0; FEW], mask: masks.len() };
        for (first, site) in flip.first.iter_mut().zip(bits_of_row(row)) {
            *first = site as u32;
        }
        if flip.count as usize > FEW {
            masks.resize(flip.mask + sites, 0);
            for site in bits_of_row(row) {
                masks[flip.mask + site] = 1;
            }
        }
        flip
    }
}

/// Writes `flipped` where the mask has ones, and `values` where it has zeros.
#[inline(always)]
pub(super) fn select<S: Copy>(mask: &[u8], values: &[S], flipped: &[S], row: &mut [S]) {
    // As many sites as make a vector or two.
    match size_of::<S>() {
        1 => select_parts::<S, 32>(mask, values, flipped, row),
        2 => select_parts::<S, 16>(mask, values, flipped, row),
        _ => select_parts::<S, 8>(mask, values, flipped, row),
    }
}

/// As [`select`], in parts of `N` sites, the last one of which overlaps with the one before.
#[inline(always)]
fn select_parts<S: Copy, const N: usize>(mask: &[u8], values: &[S], flipped: &[S], row: &mut [S]) {
    if let Some(last) = mask.len().checked_sub(N) {
        for start in (0..last).step_by(N) {
            select_part::<S, N>(&mask[start..], &values[start..], &flipped[start..], &mut row[start..]);
        }
        select_part::<S, N>(&mask[last..], &values[last..], &flipped[last..], &mut row[last..]);
    } else {
        for (to, ((&mask, &value), &flipped)) in row.iter_mut().zip(mask.iter().zip(values).zip(flipped)) {
            *to = select_unpredictable(mask == 0, value, flipped);
        }
    }
}

/// As [`select`], for the first `N` sites. A loop over arrays becomes a few vector instructions; closures do not.
#[inline(always)]
fn select_part<S: Copy, const N: usize>(mask: &[u8], values: &[S], flipped: &[S], row: &mut [S]) {
    if let (Some(mask), Some(values), Some(flipped), Some(row)) =
        (mask.first_chunk::<N>(), values.first_chunk::<N>(), flipped.first_chunk::<N>(), row.first_chunk_mut::<N>())
    {
        for site in 0..N {
            row[site] = select_unpredictable(mask[site] == 0, values[site], flipped[site]);
        }
    }
}
