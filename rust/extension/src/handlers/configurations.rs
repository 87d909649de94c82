//! The samples of a call and the configurations that it writes, whatever their dtype.

use super::dispatch::{FirstError, invalid, with_number_type};
use ferroket_kernels::element::Sample;
use ferroket_kernels::elements::{Form, write_configurations};
use ferroket_kernels::local_states::{LocalIndex, LocalStates, Sites};
use ferroket_xla_ffi::{AnyBuffer, AnyBufferMut, Element, Error, Pool, RaggedRows, Rows};
use std::ops::Range;

/// So many numbers read or written are worth a thread's while.
pub(super) const MIN_ELEMENTS: usize = 1 << 15;

/// The samples of a call, and the result that their connected configurations go to.
pub(super) trait Configurations<F: Form> {
    /// Reads samples as local indices.
    fn read(&self, pool: Pool, samples: Range<usize>, indices: &mut [LocalIndex]) -> Result<(), Error>;

    /// Writes connected configurations.
    fn write(&mut self, pool: Pool, form: &F, elements: &Changes<F::Change>) -> Result<(), Error>;

    /// Fills rows of the result with the first local states of the sites.
    fn fill(&mut self, rows: Range<usize>);
}

/// How the configurations of some samples come about.
pub(super) struct Changes<'a, C> {
    /// The local indices of the samples.
    pub(super) indices: &'a [LocalIndex],
    /// The changes of all samples.
    pub(super) changes: &'a [C],
    /// Which of them are those of each sample.
    pub(super) of_sample: &'a [Range<usize>],
    /// The rows of sample s are `first_row[s]..first_row[s + 1]`. Where there are more rows than changes, they are copies of
    /// the sample.
    pub(super) first_row: &'a [usize],
}

struct Typed<'a, S> {
    states: LocalStates<'a, S>,
    samples: &'a [S],
    sites: usize,
    count: usize,
    rows: &'a mut [S],
}

/// The samples `x` of shape `(..., N)` on these sites, and the result `xp`.
pub(super) fn configurations<'a, F: Form>(
    sites: &'a Sites,
    x: AnyBuffer<'a>,
    xp: Option<AnyBufferMut<'a>>,
) -> Result<Box<dyn Configurations<F> + 'a>, Error> {
    with_number_type!(x.dtype(), "the samples", S => {
        let states = LocalStates::<S>::new(sites).map_err(|error| invalid(&error))?;
        let rows = match xp {
            Some(xp) => {
                let mut xp = xp.typed::<S>()?;
                xp.advise_huge_pages();
                xp.into_mut_slice()
            }
            None => &mut [],
        };
        let batch = &x.dims()[..x.dims().len().saturating_sub(1)];
        let count = batch.iter().product();
        let samples = x.typed::<S>()?.as_slice();
        Ok(Box::new(Typed { states, samples, sites: sites.len(), count, rows }))
    })
}

impl<F: Form, S: Sample + Element> Configurations<F> for Typed<'_, S> {
    fn read(&self, pool: Pool, samples: Range<usize>, indices: &mut [LocalIndex]) -> Result<(), Error> {
        let sites = self.sites;
        let first_error = FirstError::default();
        let (count, min) = (samples.len(), MIN_ELEMENTS / sites.max(1));
        pool.for_each_part(count, min, Rows::new(indices, sites), |range, indices| {
            for (indices, sample) in indices.into_slice().chunks_exact_mut(sites.max(1)).zip(range) {
                let sample = samples.start + sample;
                let values = &self.samples[sample * sites..][..sites];
                if let Err(error) = self.states.read(sample, values, indices) {
                    return first_error.keep(sample, Err(error));
                }
            }
        })?;
        first_error.into_result(self.count)
    }

    fn write(&mut self, pool: Pool, form: &F, elements: &Changes<F::Change>) -> Result<(), Error> {
        let &Changes { indices, changes, of_sample, first_row } = elements;
        let (sites, states, samples) = (self.sites, &self.states, of_sample.len());
        let (start, end) = (first_row[0], first_row[samples]);
        let rows = RaggedRows::new(&mut self.rows[start * sites..end * sites], first_row, sites);
        let min = MIN_ELEMENTS * samples / ((end - start) * sites).max(1);
        pool.for_each_part(samples, min, rows, |range, rows| {
            let mut sample = states.first();
            let mut rest = rows.into_slice();
            for number in range {
                let rows;
                (rows, rest) = rest.split_at_mut((first_row[number + 1] - first_row[number]) * sites);
                let indices = &indices[number * sites..][..sites];
                write_configurations(form, states, indices, &changes[of_sample[number].clone()], &mut sample, rows);
            }
        })
    }

    fn fill(&mut self, rows: Range<usize>) {
        let first = self.states.first();
        for row in self.rows[rows.start * self.sites..rows.end * self.sites].chunks_exact_mut(self.sites.max(1)) {
            row.copy_from_slice(&first);
        }
    }
}
