//! The samples of a call and its connected configurations, whatever their dtype.

use crate::dtypes::with_number_type;
use crate::errors::invalid;
use bytemuck::{Pod, cast_slice_mut};
use ferroket_kernels::connected::{Form, write_configurations};
use ferroket_kernels::numbers::Sample;
use ferroket_kernels::sites::{LocalIndex, LocalStates, Sites};
use ferroket_xla_ffi::{AnyBuffer, AnyBufferMut, Element, Error};
use std::ops::Range;

/// Reads samples and writes configurations.
pub(crate) trait Configurations<F: Form>: Sync {
    /// Reads samples as local indices.
    fn read(&self, samples: Range<usize>, indices: &mut [LocalIndex]) -> Result<(), ferroket_kernels::Error>;

    /// Writes the connected configurations of samples, one sample after the other, to the bytes of their rows.
    fn write(&self, form: &F, samples: &[Connected<F::ElementChange>], rows: &mut [u8]);
}

/// A sample and what leads to its connected configurations.
pub(crate) struct Connected<'a, C> {
    /// The local indices of the sample.
    pub(crate) indices: &'a [LocalIndex],
    /// One for each configuration.
    pub(crate) changes: &'a [C],
    /// How many rows the sample has. Where there are more rows than changes, they are copies of the sample.
    pub(crate) rows: usize,
}

/// Configurations, and the bytes of the rows that they are written to.
type WithRows<'a, F> = (Box<dyn Configurations<F> + 'a>, &'a mut [u8]);

/// The samples `x` of shape `(..., N)` on these sites, and the bytes of the result `xp`, if there is one.
pub(crate) fn configurations<'a, F: Form>(
    sites: &'a Sites,
    x: AnyBuffer<'a>,
    xp: Option<AnyBufferMut<'a>>,
) -> Result<WithRows<'a, F>, Error> {
    with_number_type!(x.dtype(), "the samples", S => {
        let states = LocalStates::<S>::new(sites).map_err(|error| invalid(&error))?;
        let samples = x.typed::<S>()?.as_slice();
        let rows = match xp {
            Some(xp) => {
                let mut xp = xp.typed::<S>()?;
                xp.advise_huge_pages();
                cast_slice_mut(xp.into_mut_slice())
            }
            None => &mut [],
        };
        Ok((Box::new(Typed { states, samples, sites: sites.len() }), rows))
    })
}

struct Typed<'a, S> {
    states: LocalStates<'a, S>,
    samples: &'a [S],
    sites: usize,
}

impl<F: Form, S: Sample + Element + Pod> Configurations<F> for Typed<'_, S> {
    fn read(&self, samples: Range<usize>, indices: &mut [LocalIndex]) -> Result<(), ferroket_kernels::Error> {
        let sites = self.sites;
        for (sample, indices) in samples.zip(indices.chunks_exact_mut(sites.max(1))) {
            self.states.read(sample, &self.samples[sample * sites..][..sites], indices)?;
        }
        Ok(())
    }

    fn write(&self, form: &F, samples: &[Connected<F::ElementChange>], rows: &mut [u8]) {
        let mut sample = self.states.first();
        let mut rest = cast_slice_mut(rows);
        for &Connected { indices, changes, rows } in samples {
            let of_sample;
            (of_sample, rest) = rest.split_at_mut(rows * self.sites);
            self.states.write(indices, &mut sample);
            write_configurations(form, &self.states, &sample, changes, of_sample);
        }
    }
}
