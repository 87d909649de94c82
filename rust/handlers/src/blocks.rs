//! How many samples a thread gets, and how many it works on at once.

use ferroket_kernels::connected::Form;
use ferroket_kernels::sites::LocalIndex;
use std::ops::Range;

/// The memory that a thread may use for a block of samples, unless a few samples take more: what stays in its cache.
const SCRATCH: usize = 1 << 20;

/// So many numbers of the results are worth a thread's while.
pub(crate) const MIN_NUMBERS: usize = 1 << 15;

/// So many matrix elements are.
const MIN_ELEMENTS: usize = 1 << 12;

/// The most samples that a thread works on at once, if each has so many elements in memory, of so many bytes beside the
/// changes.
pub(crate) fn block_len<F: Form>(form: &F, elements: usize, bytes: usize) -> usize {
    let sample = form.sites() * size_of::<LocalIndex>() + elements * (size_of::<F::ElementChange>() + bytes);
    let len = (SCRATCH / sample.max(1)).max(F::GRAIN);
    // A part of those that are evaluated together would take as long as all of them.
    if len > F::LANES { len - len % F::LANES } else { len }
}

/// The least samples that a thread gets, if it writes so many numbers for each.
pub(crate) fn min_written<F: Form>(form: &F, numbers: usize) -> usize {
    MIN_NUMBERS / numbers.max(form.sites()).max(1)
}

/// The least samples that a thread gets, if it evaluates their matrix elements only.
pub(crate) fn min_evaluated<F: Form>(form: &F, samples: usize, threads: usize) -> usize {
    (MIN_ELEMENTS / form.max_elements().max(1)).max(share::<F>(samples, threads))
}

/// Equal shares of samples for the threads, each of as many as are evaluated together if there are enough.
pub(crate) fn share<F: Form>(samples: usize, threads: usize) -> usize {
    let shares = samples.div_ceil(F::LANES).next_multiple_of(threads).max(1);
    samples.div_ceil(shares).max(F::GRAIN)
}

/// The range in pieces of at most `len`.
pub(crate) fn blocks(range: Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> {
    let (end, len) = (range.end, len.max(1));
    range.step_by(len).map(move |start| start..(start + len).min(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroket_kernels::connected::terms::{BLOCK, TermTables, Terms};
    use ferroket_kernels::sites::{Sites, StateRange};

    /// So many groups of one term, each of which flips site 0.
    fn with_terms(n_sites: usize, groups: usize, work: impl FnOnce(&Terms)) {
        let spins = Sites::new(n_sites, vec![StateRange { start: 0.0, step: 1.0, size: 2 }], &[]).expect("spins");
        let words = n_sites.div_ceil(32);
        let none = vec![0; groups * words];
        let flip: Vec<u32> = (0..groups * words).map(|word| u32::from(word % words == 0)).collect();
        let first: Vec<i32> = (0..=groups as i32).collect();
        let tables = TermTables { flip: &flip, first: &first, mask: &none, pattern: &none, sign: &none };
        work(&Terms::new(&spins, tables, groups, false).expect("tables"));
    }

    #[test]
    fn a_block_fits_its_memory_and_is_made_of_whole_lanes() {
        with_terms(100, 100, |terms| {
            // 200 bytes of indices alone, and with 100 changes and matrix elements of 8 bytes 1200 more.
            assert_eq!(block_len(terms, 0, 0), SCRATCH / 200 / BLOCK * BLOCK);
            assert_eq!(block_len(terms, 100, 8), SCRATCH / 1400 / BLOCK * BLOCK);
            // Fewer than there are lanes stay as they are, down to the grain.
            assert_eq!(block_len(terms, 1000, 8), SCRATCH / 12_200);
            assert_eq!(block_len(terms, 1_000_000, 8), Terms::GRAIN);
        });
    }

    #[test]
    fn blocks_cover_the_range() {
        assert_eq!(blocks(3..10, 3).collect::<Vec<_>>(), [3..6, 6..9, 9..10]);
        assert_eq!(blocks(3..9, 3).collect::<Vec<_>>(), [3..6, 6..9]);
        assert_eq!(blocks(3..9, 100).collect::<Vec<_>>(), vec![3..9]);
        assert_eq!(blocks(0..2, 0).collect::<Vec<_>>(), [0..1, 1..2]);
        assert_eq!(blocks(4..4, 3).count(), 0);
    }

    #[test]
    fn shares_are_equal_and_cover_all_samples() {
        for samples in [0, 1, 15, 16, 255, 256, 257, 1000, 4096, 100_000] {
            for threads in [1, 2, 7, 64] {
                let share = share::<Terms>(samples, threads);
                assert!(share >= Terms::GRAIN && share * threads * samples.div_ceil(BLOCK).max(1) >= samples);
                // No share is of more samples than are evaluated together.
                assert!(share <= BLOCK, "{share} of {samples}");
            }
        }
        assert_eq!(share::<Terms>(1024, 4), 256);
        assert_eq!(share::<Terms>(1024, 8), 128);
        assert_eq!(share::<Terms>(1024, 3), 171);
    }

    #[test]
    fn a_thread_gets_what_is_worth_its_while() {
        with_terms(100, 50, |terms| {
            assert_eq!(min_written(terms, 5000), MIN_NUMBERS / 5000);
            assert_eq!(min_written(terms, 1), MIN_NUMBERS / 100);
            assert_eq!(min_evaluated(terms, 64, 8), MIN_ELEMENTS / 50);
            assert_eq!(min_evaluated(terms, 2048, 8), 256);
        });
    }
}
