//! What all forms of operators have in common: the sweeps over samples.
//!
//! A sweep has three steps, so that none of them depends on more than one number type. The samples are read as local
//! indices ([`LocalStates::read`]). The [`Form`] gives the active elements of each sample, in order: their matrix
//! elements, and the changes that lead to their configurations. Where the elements go, the rows are written.
//!
//! Which elements of a sample are *active* depends on the operator's structure and on the sample, never on values: the
//! matrix elements are linear in the values.

use crate::numbers::{MatrixElement, Sample, copy, vectorized};
use crate::sites::{Configuration, LocalIndex, LocalStates};

/// An operator's structure: its connected elements, up to the values of its terms.
pub trait Form: Sync {
    /// Evaluating fewer samples at once takes as long.
    const GRAIN: usize;

    /// So many samples are evaluated together.
    const LANES: usize;

    /// What leads from a sample to the configuration of an element.
    type ElementChange: Copy + Default + Send + Sync;

    /// How many sites there are.
    fn sites(&self) -> usize;

    /// No sample has more active elements.
    fn max_elements(&self) -> usize;

    /// Gives the active elements of `samples` rows of local indices to `sink`, those of each sample in order.
    fn for_each_active<T: MatrixElement>(
        &self,
        values: &[T],
        indices: &[LocalIndex],
        samples: usize,
        part: Part,
        sink: &mut impl Sink<Self::ElementChange, T>,
    );

    /// Writes the configuration of an element of `sample`.
    fn write<S: Sample>(
        &self,
        states: &LocalStates<S>,
        sample: &Configuration<S>,
        change: Self::ElementChange,
        row: &mut [S],
    );
}

/// Which of the elements are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of them.
    All,
    /// The one on the diagonal.
    Diagonal,
    /// All others.
    OffDiagonal,
}

impl Part {
    /// Whether the element on the diagonal is wanted.
    #[must_use]
    pub fn has_diagonal(self) -> bool {
        self != Self::OffDiagonal
    }

    /// Whether the others are wanted.
    #[must_use]
    pub fn has_others(self) -> bool {
        self != Self::Diagonal
    }
}

/// What takes active elements.
pub trait Sink<C: Copy, T: Copy> {
    /// What takes the elements of one sample.
    type Row<'a>: SinkRow<C, T>
    where
        Self: 'a;

    /// Takes the next element of a sample.
    fn push(&mut self, sample: usize, change: C, mel: T);

    /// Takes the next few elements of a sample.
    #[inline(always)]
    fn extend<const N: usize>(&mut self, sample: usize, changes: [C; N], mels: [T; N]) {
        for (change, mel) in changes.into_iter().zip(mels) {
            self.push(sample, change, mel);
        }
    }

    /// What takes the elements of a sample that has none yet.
    fn row(&mut self, sample: usize) -> Self::Row<'_>;
}

/// What takes the elements of one sample.
pub trait SinkRow<C, T> {
    /// Takes the next element, if it is active; else nothing, which takes as long but no branch.
    fn push(&mut self, active: bool, change: C, mel: T);

    /// Must follow the last element.
    fn end(self);
}

/// Writes configurations of one sample: one for each change, then the sample itself as far as there are rows.
pub fn write_configurations<F: Form, S: Sample>(
    form: &F,
    states: &LocalStates<S>,
    sample: &Configuration<S>,
    changes: &[F::ElementChange],
    rows: &mut [S],
) {
    vectorized(
        #[inline(always)]
        || {
            let mut rows = rows.chunks_exact_mut(form.sites().max(1));
            for (&change, row) in changes.iter().zip(&mut rows) {
                form.write(states, sample, change, row);
            }
            for row in rows {
                copy(&sample.values, row);
            }
        },
    );
}
