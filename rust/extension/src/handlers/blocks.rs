//! How many samples a thread gets, and how many it works on at once.

use ferroket_kernels::connected::Form;
use ferroket_kernels::sites::LocalIndex;
use std::ops::Range;

/// The memory that a thread may use for a block of samples, unless a few samples take more: what stays in its cache.
const SCRATCH: usize = 1 << 20;

/// So many numbers of the results are worth a thread's while.
const MIN_NUMBERS: usize = 1 << 15;

/// So many matrix elements are.
const MIN_ELEMENTS: usize = 1 << 12;

/// The most samples that a thread works on at once, if each has so many elements in memory, of so many bytes beside the
/// changes.
pub(super) fn block_len<F: Form>(form: &F, elements: usize, bytes: usize) -> usize {
    let sample = form.sites() * size_of::<LocalIndex>() + elements * (size_of::<F::Change>() + bytes);
    let len = (SCRATCH / sample.max(1)).max(F::GRAIN);
    // A part of those that are evaluated together would take as long as all of them.
    if len > F::LANES { len - len % F::LANES } else { len }
}

/// The least samples that a thread gets, if it writes so many numbers for each.
pub(super) fn min_written<F: Form>(form: &F, numbers: usize) -> usize {
    MIN_NUMBERS / numbers.max(form.sites()).max(1)
}

/// The least samples that a thread gets, if it evaluates their matrix elements only.
pub(super) fn min_evaluated<F: Form>(form: &F, samples: usize, threads: usize) -> usize {
    (MIN_ELEMENTS / form.max_elements().max(1)).max(share::<F>(samples, threads))
}

/// Equal shares of samples for the threads, each of as many as are evaluated together if there are enough.
pub(super) fn share<F: Form>(samples: usize, threads: usize) -> usize {
    let shares = samples.div_ceil(F::LANES).next_multiple_of(threads).max(1);
    samples.div_ceil(shares).max(F::GRAIN)
}

/// The range in pieces of at most `len`.
pub(super) fn blocks(range: Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(len.max(1)).map(move |start| start..(start + len).min(end))
}
