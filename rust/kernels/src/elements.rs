//! What all forms of operators have in common: the sweeps over samples.
//!
//! A sweep has three steps, so that none of them depends on more than one number type. The samples are read as local
//! indices ([`LocalStates::read`]). The [`Form`] gives the active elements of each sample, in order: their matrix
//! elements, and the changes that lead to their configurations. Where the elements go, the rows are written.
//!
//! Which elements of a sample are *active* depends on the operator's structure and on the sample, never on values: the
//! matrix elements are linear in the values.

use crate::Error;
use crate::element::{MatrixElement, Sample};
use crate::local_states::{LocalIndex, LocalStates};

/// An operator's structure: its connected elements, up to the values of its terms.
pub trait Form: Sync {
    /// Evaluating fewer samples at once takes as long.
    const GRAIN: usize;

    /// What leads from a sample to the configuration of an element.
    type Change: Copy + Default + Send + Sync;

    /// How many sites there are.
    fn sites(&self) -> usize;

    /// No sample has more active elements.
    fn max_elements(&self) -> usize;

    /// Calls `emit(sample, change, matrix_element)` for the active elements of `samples` rows of local indices, for
    /// each sample in order, whatever the order of the samples.
    fn for_each_active<T: MatrixElement>(
        &self,
        values: &[T],
        indices: &[LocalIndex],
        samples: usize,
        off_diagonal_only: bool,
        emit: &mut impl FnMut(usize, Self::Change, T),
    );

    /// Makes a copy of the sample with these local indices the configuration of an element.
    fn apply<S: Sample>(&self, states: &LocalStates<S>, indices: &[LocalIndex], change: Self::Change, row: &mut [S]);
}

/// Elements of some samples, as rows of equal width.
#[derive(Debug)]
pub struct Elements<'a, C, T> {
    /// How many elements each sample has.
    pub counts: &'a mut [u32],
    /// The matrix elements.
    pub mels: &'a mut [T],
    /// The changes, or nothing if no configurations are wanted.
    pub changes: &'a mut [C],
}

impl<C: Copy, T: MatrixElement> Elements<'_, C, T> {
    /// Writes the active elements, and zeros as the matrix elements of the remaining room. `first` is the number of the
    /// first sample, for the error's sake.
    pub fn write_active<F: Form<Change = C>>(
        self,
        form: &F,
        values: &[T],
        indices: &[LocalIndex],
        first: usize,
    ) -> Result<(), Error> {
        let Self { counts, mels, changes } = self;
        let room = mels.len().checked_div(counts.len()).unwrap_or_default();
        let with_changes = !changes.is_empty();
        counts.fill(0);
        form.for_each_active(values, indices, counts.len(), false, &mut |sample, change, mel| {
            let count = counts[sample] as usize;
            counts[sample] += 1;
            if count < room {
                mels[sample * room + count] = mel;
                if with_changes {
                    changes[sample * room + count] = change;
                }
            }
        });
        for (sample, &count) in counts.iter().enumerate() {
            let count = count as usize;
            if count > room {
                return Err(Error::TooManyElements { sample: first + sample, count, room });
            }
            mels[sample * room + count..(sample + 1) * room].fill(T::default());
        }
        Ok(())
    }

    /// Writes the elements that are not zero.
    ///
    /// # Panics
    /// If there is no room for all the elements that the form may have.
    pub fn write_nonzero<F: Form<Change = C>>(
        self,
        form: &F,
        values: &[T],
        indices: &[LocalIndex],
        off_diagonal_only: bool,
    ) {
        let Self { counts, mels, changes } = self;
        let room = form.max_elements();
        counts.fill(0);
        form.for_each_active(values, indices, counts.len(), off_diagonal_only, &mut |sample, change, mel| {
            if mel != T::default() {
                let place = sample * room + counts[sample] as usize;
                mels[place] = mel;
                changes[place] = change;
                counts[sample] += 1;
            }
        });
    }
}

/// Counts the elements of each sample that are not zero.
pub fn count_nonzero<F: Form, T: MatrixElement>(
    form: &F,
    values: &[T],
    indices: &[LocalIndex],
    off_diagonal_only: bool,
    counts: &mut [i32],
) {
    counts.fill(0);
    form.for_each_active(values, indices, counts.len(), off_diagonal_only, &mut |sample, _, mel| {
        counts[sample] += i32::from(mel != T::default());
    });
}

/// Writes the configurations of one sample: one for each change, then the sample itself as far as there are rows.
pub fn write_configurations<F: Form, S: Sample>(
    form: &F,
    states: &LocalStates<S>,
    indices: &[LocalIndex],
    changes: &[F::Change],
    sample: &mut [S],
    rows: &mut [S],
) {
    states.write(indices, sample);
    let mut rows = rows.chunks_exact_mut(form.sites().max(1));
    for (&change, row) in changes.iter().zip(&mut rows) {
        row.copy_from_slice(sample);
        form.apply(states, indices, change, row);
    }
    for row in rows {
        row.copy_from_slice(sample);
    }
}
