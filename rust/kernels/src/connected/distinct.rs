//! Which rows of a table are the same.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::hash::BuildHasher;

/// A hash of each row of so many bytes.
pub fn hash_rows(rows: &[u8], width: usize, hashes: &mut [u64]) {
    let state = FixedState::default();
    for (row, hash) in hashes.iter_mut().enumerate() {
        *hash = state.hash_one(&rows[row * width..][..width]);
    }
}

/// Writes to `place` which of the distinct rows each of the first rows is, and gives the first one of each kind, in order.
/// There are as many rows as hashes.
pub fn find_distinct(rows: &[u8], width: usize, hashes: &[u64], place: &mut [i32]) -> Vec<usize> {
    let row = |index: usize| &rows[index * width..][..width];
    let mut first = Vec::with_capacity(hashes.len());
    let mut table = HashTable::<u32>::with_capacity(hashes.len());
    for (index, (&hash, place)) in hashes.iter().zip(place).enumerate() {
        let is_same = |&kind: &u32| hashes[first[kind as usize]] == hash && row(first[kind as usize]) == row(index);
        let kind = match table.entry(hash, is_same, |&kind| hashes[first[kind as usize]]) {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(free) => {
                let kind = first.len() as u32;
                free.insert(kind);
                first.push(index);
                kind
            }
        };
        *place = kind as i32;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn find(rows: &[u8], width: usize, len: usize) -> (Vec<usize>, Vec<i32>) {
        let (mut hashes, mut place) = (vec![0; len], vec![-1; len]);
        hash_rows(rows, width, &mut hashes);
        (find_distinct(rows, width, &hashes, &mut place), place)
    }

    proptest! {
        #[test]
        fn as_found_by_comparing_all(width in 0_usize..4, bytes in vec(0_u8..3, 0..300)) {
            let len = bytes.len().checked_div(width).unwrap_or(bytes.len());
            let row = |index: usize| &bytes[index * width..][..width];
            let (first, place) = find(&bytes, width, len);
            let mut kinds = Vec::new();
            for index in 0..len {
                if !kinds.iter().any(|&kind| row(kind) == row(index)) {
                    kinds.push(index);
                }
                prop_assert_eq!(row(first[place[index] as usize]), row(index));
            }
            prop_assert_eq!(first, kinds);
        }
    }

    #[test]
    fn rows_with_one_hash_are_told_apart() {
        let mut place = [-1; 3];
        assert_eq!(find_distinct(&[1, 2, 1], 1, &[5, 5, 5], &mut place), [0, 1]);
        assert_eq!(place, [0, 1, 0]);
    }
}
