//! How many samples are worked on at once.

use ferroket_kernels::elements::Form;
use ferroket_kernels::local_states::LocalIndex;
use std::ops::Range;

/// The memory that a thread may use for a block of samples, unless a few samples take more.
const SCRATCH: usize = 1 << 20;

/// So many elements are worth a thread's while.
const MIN_ELEMENTS: usize = 1 << 13;

/// The bytes that the scratch of one sample takes, with so many elements of so many bytes.
pub(super) fn sample_bytes<F: Form>(form: &F, elements: usize, mel: usize) -> usize {
    form.sites() * size_of::<LocalIndex>() + elements * (size_of::<F::Change>() + mel)
}

/// The most samples of a block, if each takes so many bytes.
pub(super) fn max_block<F: Form>(_: &F, threads: usize, samples: usize, bytes: usize) -> usize {
    (SCRATCH / bytes.max(1)).max(F::GRAIN).saturating_mul(threads).min(samples)
}

/// The least samples whose elements are a thread's work, if there are so many of each.
pub(super) fn min_samples<F: Form>(_: &F, elements: usize) -> usize {
    (MIN_ELEMENTS / elements.max(1)).max(F::GRAIN)
}

/// Ranges of at most `len` samples, one after the other.
pub(super) fn blocks(samples: usize, len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..samples).step_by(len.max(1)).map(move |start| start..(start + len).min(samples))
}
