//! The samples of a block as columns: of one site each, one bit a sample.

use crate::numbers::MatrixElement;
use crate::sites::LocalIndex;

/// Words of a column.
pub(crate) const WORDS: usize = 4;

/// Samples of a block.
pub const BLOCK: usize = WORDS * 64;

/// One bit for each sample of a block.
pub(crate) type Column = [u64; WORDS];

/// The numbers of the bits that are set.
#[inline(always)]
pub(crate) fn bits(word: impl Into<u64>) -> impl Iterator<Item = usize> {
    let mut word = word.into();
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}

/// The sites that a row of the tables has bits of.
#[inline(always)]
pub(super) fn bits_of_row(row: &[u32]) -> impl Iterator<Item = usize> {
    row.iter().enumerate().flat_map(|(word, &row)| bits(row).map(move |bit| 32 * word + bit))
}

/// Ones for the first `len` samples of a block.
#[inline]
pub(super) fn first_lanes(len: usize) -> Column {
    std::array::from_fn(|word| match len.saturating_sub(64 * word) {
        lanes @ 0..64 => (1 << lanes) - 1,
        _ => u64::MAX,
    })
}

/// Turns `samples` rows of local indices into columns.
#[inline(always)]
pub(super) fn transpose(indices: &[LocalIndex], samples: usize, plane: &mut [u64], columns: &mut [Column]) {
    let sites = plane.len();
    for (word, first) in (0..samples).step_by(64).enumerate() {
        plane.fill(0);
        for lane in 0..64.min(samples - first) {
            for (bits, &index) in plane.iter_mut().zip(&indices[(first + lane) * sites..][..sites]) {
                *bits |= u64::from(index) << lane;
            }
        }
        for (column, &bits) in columns.iter_mut().zip(&*plane) {
            column[word] = bits;
        }
    }
}

/// Adds `value`, or `-value` where `negative`, to the sums where `active`.
#[inline(always)]
pub(super) fn accumulate<T: MatrixElement>(sums: &mut [T; 64], value: T, active: u64, negative: u64) {
    let opposite = value.negated();
    if active == u64::MAX {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum = sum.plus(if (negative >> lane) & 1 == 0 { value } else { opposite });
        }
    } else {
        for (lane, sum) in sums.iter_mut().enumerate() {
            let signed = if (negative >> lane) & 1 == 0 { value } else { opposite };
            *sum = if (active >> lane) & 1 == 0 { *sum } else { sum.plus(signed) };
        }
    }
}

/// The samples of a block that are set in a column.
#[inline(always)]
pub(crate) fn lanes(column: Column) -> impl Iterator<Item = usize> {
    (0..WORDS).flat_map(move |word| bits(column[word]).map(move |lane| 64 * word + lane))
}
