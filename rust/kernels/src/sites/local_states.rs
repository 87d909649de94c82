//! The local states of sites in the dtype of the samples, and samples as indices of local states.

use crate::Error;
use crate::numbers::{Sample, vectorized};
use crate::sites::{LocalIndex, Sites, StateRange};
use std::hint::select_unpredictable;

/// The local states of the sites in the dtype of the samples.
#[derive(Debug, Clone)]
pub struct LocalStates<'a, S> {
    sites: &'a Sites,
    /// The values of all kinds, one after the other.
    values: Vec<S>,
    /// Where in `values` the kind of each site begins.
    offsets: Vec<u32>,
    /// How many local indices there are to a unit of the values, of each site.
    inverse_steps: Vec<f64>,
    /// The first and the second value of each site, if all sites have two.
    pair: Option<[Vec<S>; 2]>,
}

/// So many sites are compared at once.
const SITES_PER_BLOCK: usize = 16;

/// A sample as its connected configurations are made from it.
#[derive(Debug, Clone)]
pub struct Configuration<S> {
    /// The values of the sites.
    pub values: Vec<S>,
    /// If all sites have two local states: the other one of each site.
    pub flipped: Vec<S>,
}

impl<'a, S: Sample> LocalStates<'a, S> {
    /// The values of `sites` as samples hold them. An error if `S` can't hold them, or if two of a site are equal.
    pub fn new(sites: &'a Sites) -> Result<Self, Error> {
        let mut values = Vec::new();
        for &states in &sites.kinds {
            let first = values.len();
            for index in 0..states.size {
                values.push(
                    S::from_exact(states.value(index))
                        .ok_or_else(|| Error::LocalStates { states: states.to_string() })?,
                );
            }
            if values[first..].windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(Error::LocalStates { states: states.to_string() });
            }
        }
        let offsets: Vec<u32> = (0..sites.len()).map(|site| sites.first_value(site)).collect();
        let are_pairs = (0..sites.len()).all(|site| sites.states(site).size == 2);
        let nth = |n| offsets.iter().map(|&offset| values[offset as usize + n]).collect();
        let pair = are_pairs.then(|| [nth(0), nth(1)]);
        let inverse_steps = (0..sites.len()).map(|site| sites.states(site).step.recip()).collect();
        Ok(Self { sites, values, offsets, inverse_steps, pair })
    }

    /// The configuration of all first local states.
    #[must_use]
    pub fn first(&self) -> Configuration<S> {
        Configuration {
            values: self.offsets.iter().map(|&offset| self.values[offset as usize]).collect(),
            flipped: self.pair.as_ref().map_or(Vec::new(), |[_, second]| second.clone()),
        }
    }

    /// How many sites there are.
    #[must_use]
    pub(crate) fn sites(&self) -> usize {
        self.sites.len()
    }

    /// The values of all kinds of sites, one after the other.
    pub(crate) fn values(&self) -> &[S] {
        &self.values
    }

    /// The value of a site's local state.
    #[must_use]
    pub fn value(&self, site: usize, index: LocalIndex) -> S {
        self.values[self.offsets[site] as usize + usize::from(index)]
    }

    /// Writes the local indices of one sample. `sample` counts samples, for the error's sake.
    pub fn read(&self, sample: usize, values: &[S], indices: &mut [LocalIndex]) -> Result<(), Error> {
        let valid = if let Some([first, second]) = &self.pair {
            vectorized(
                #[inline(always)]
                || {
                    let mut invalid = 0;
                    for (((index, &value), &first), &second) in indices.iter_mut().zip(values).zip(first).zip(second) {
                        *index = LocalIndex::from(value == second);
                        invalid |= LocalIndex::from(value != first) & LocalIndex::from(value != second);
                    }
                    invalid == 0
                },
            )
        } else {
            let mut valid = true;
            for (site, (index, &value)) in indices.iter_mut().zip(values).enumerate() {
                *index = self.nearest(site, value);
                valid &= self.value(site, *index) == value;
            }
            valid
        };
        if valid { Ok(()) } else { Err(self.find_invalid(sample, values)) }
    }

    /// Adds the sites where the values of `x` aren't those of a sample: each with the sample's local index and its own.
    /// `sample` counts samples, for the error's sake.
    pub(crate) fn find_changes(
        &self,
        sample: usize,
        indices: &[LocalIndex],
        values: &[S],
        x: &[S],
        changes: &mut Vec<(usize, LocalIndex, LocalIndex)>,
    ) -> Result<(), Error> {
        vectorized(
            #[inline(always)]
            || {
                let ((parts, _), (of_sample, _)) =
                    (x.as_chunks::<SITES_PER_BLOCK>(), values.as_chunks::<SITES_PER_BLOCK>());
                for (part, (x, values)) in parts.iter().zip(of_sample).enumerate() {
                    // No branch for each site, so that this is vector code.
                    let differing = x.iter().zip(values).fold(0_u8, |found, (x, value)| found | u8::from(x != value));
                    if differing != 0 {
                        self.find_in(sample, part * SITES_PER_BLOCK, indices, values, x, changes)?;
                    }
                }
                let rest = parts.len() * SITES_PER_BLOCK;
                self.find_in(sample, rest, indices, &values[rest..], &x[rest..], changes)
            },
        )
    }

    /// As [`LocalStates::find_changes`], on some sites from `first` on.
    #[inline(always)]
    fn find_in(
        &self,
        sample: usize,
        first: usize,
        indices: &[LocalIndex],
        values: &[S],
        x: &[S],
        changes: &mut Vec<(usize, LocalIndex, LocalIndex)>,
    ) -> Result<(), Error> {
        for (site, (&x, value)) in (first..).zip(x.iter().zip(values)) {
            if x != *value {
                let to = self.nearest(site, x);
                if self.value(site, to) != x {
                    return Err(self.not_local(sample, site, x));
                }
                changes.push((site, indices[site], to));
            }
        }
        Ok(())
    }

    /// The local index whose value is next to this one.
    #[inline(always)]
    fn nearest(&self, site: usize, value: S) -> LocalIndex {
        let StateRange { start, size, .. } = self.sites.states(site);
        // A conversion of floats to integers saturates, and NaN becomes 0.
        let nearest = ((value.to_f64() - start) * self.inverse_steps[site] + 0.5) as usize;
        nearest.min(size - 1) as LocalIndex
    }

    /// Makes `sample` the configuration with these local indices.
    pub fn write(&self, indices: &[LocalIndex], sample: &mut Configuration<S>) {
        let Configuration { values, flipped } = sample;
        if let Some([first, second]) = &self.pair {
            vectorized(
                #[inline(always)]
                || {
                    for ((((value, flipped), &index), &first), &second) in
                        values.iter_mut().zip(flipped).zip(indices).zip(first).zip(second)
                    {
                        *value = select_unpredictable(index == 0, first, second);
                        *flipped = select_unpredictable(index == 0, second, first);
                    }
                },
            );
        } else {
            for (site, (value, &index)) in values.iter_mut().zip(indices).enumerate() {
                *value = self.value(site, index);
            }
        }
    }

    /// The error of a sample that is known to hold something else than local states.
    #[cold]
    fn find_invalid(&self, sample: usize, values: &[S]) -> Error {
        let is_local = |(site, value): (usize, &S)| {
            (0..self.sites.states(site).size).any(|index| self.value(site, index as LocalIndex) == *value)
        };
        let site = values.iter().enumerate().position(|value| !is_local(value)).unwrap_or_default();
        self.not_local(sample, site, values[site])
    }

    #[cold]
    fn not_local(&self, sample: usize, site: usize, value: S) -> Error {
        Error::NotALocalState { sample, site, value: value.to_string(), states: self.sites.states(site).to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::each_level;
    use crate::sites::testing::{SPIN, boson};
    use half::f16;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn spins(sites: usize) -> Sites {
        Sites::new(sites, vec![SPIN], &[]).expect("sites of one kind")
    }

    fn mixed() -> Sites {
        Sites::new(3, vec![SPIN, boson(4)], &[1, 0, 1]).expect("sites of two kinds")
    }

    #[test]
    fn reads_and_writes_spins() {
        let sites = spins(3);
        let states = LocalStates::<i8>::new(&sites).expect("int8 holds both");
        let (mut indices, mut sample) = ([9; 3], states.first());
        states.read(0, &[-1, 1, -1], &mut indices).expect("local states");
        states.write(&indices, &mut sample);
        assert_eq!(indices, [1, 0, 1]);
        assert_eq!((sample.values, sample.flipped), (vec![-1, 1, -1], vec![1, -1, 1]));
        assert_eq!([states.value(2, 0), states.value(2, 1)], [1, -1]);
    }

    #[test]
    fn reads_and_writes_sites_of_several_kinds() {
        let sites = mixed();
        let states = LocalStates::<f16>::new(&sites).expect("float16 holds all");
        let values = [3.0, -1.0, 0.0].map(f16::from_f32);
        let (mut indices, mut sample) = ([9; 3], states.first());
        assert_eq!(sample.values, [0.0, 1.0, 0.0].map(f16::from_f32));
        states.read(0, &values, &mut indices).expect("local states");
        states.write(&indices, &mut sample);
        assert_eq!((indices, sample.values), ([3, 1, 0], values.to_vec()));
    }

    #[test]
    fn every_state_of_a_range_is_read() {
        for states in [
            StateRange { start: 2.0, step: -2.0, size: 3 },
            StateRange { start: -1.5, step: 0.25, size: 9 },
            StateRange { start: 5.0, step: 0.0, size: 1 },
            StateRange { start: 0.1, step: 0.1, size: 1000 },
        ] {
            let sites = Sites::new(1, vec![states], &[]).expect("one site");
            let held = LocalStates::<f64>::new(&sites).expect("float64 holds all");
            for index in 0..states.size {
                let mut read = [9999];
                held.read(0, &[states.value(index)], &mut read).expect("a local state");
                assert_eq!(usize::from(read[0]), index, "of {states}");
            }
        }
    }

    #[test]
    fn negative_zero_is_zero() {
        let sites = Sites::new(2, vec![boson(4)], &[]).expect("two sites");
        let states = LocalStates::<f64>::new(&sites).expect("float64 holds all");
        let (mut indices, mut sample) = ([9; 2], states.first());
        states.read(0, &[-0.0, 1.0], &mut indices).expect("local states");
        states.write(&indices, &mut sample);
        assert_eq!(indices, [0, 1]);
        assert!(sample.values[0].is_sign_positive());
    }

    #[test]
    fn names_the_first_value_that_is_no_local_state() {
        let sites = spins(3);
        let states = LocalStates::<f32>::new(&sites).expect("float32 holds both");
        for (value, text) in [(0.5, "0.5"), (f32::NAN, "NaN"), (3.0, "3")] {
            let error = states.read(7, &[1.0, value, 9.0], &mut [0; 3]).expect_err("not a spin");
            assert_eq!(
                error.to_string(),
                format!("sample 7, site 1 has the value {text}, but the local states are 1 and -1")
            );
        }
        let sites = mixed();
        let states = LocalStates::<i64>::new(&sites).expect("int64 holds all");
        for value in [-1, 4, i64::MIN, i64::MAX] {
            let error = states.read(0, &[0, 1, value], &mut [0; 3]).expect_err("not so many bosons");
            assert_eq!(
                error.to_string(),
                format!("sample 0, site 2 has the value {value}, but the local states are 0, 1, 2 and 3")
            );
        }
    }

    #[test]
    fn refuses_a_dtype_that_cannot_hold_the_states() {
        let error = LocalStates::<u8>::new(&spins(1)).expect_err("-1 is no uint8");
        assert_eq!(error.to_string(), "the local states 1 and -1 can't all be held by samples of this dtype");
        let many = StateRange { start: 0.0, step: 1.0, size: 300 };
        let sites = Sites::new(1, vec![many], &[]).expect("one site");
        let error = LocalStates::<u8>::new(&sites).expect_err("256 is no uint8");
        assert_eq!(error.to_string(), "the local states 0, 1, ..., 299 can't all be held by samples of this dtype");
        let equal = StateRange { start: 1.0, step: 0.0, size: 2 };
        let sites = Sites::new(1, vec![equal], &[]).expect("one site");
        assert!(LocalStates::<i8>::new(&sites).is_err());
    }

    proptest! {
        /// Kinds are an error, or else all their local states are read and written.
        #[test]
        fn arbitrary_kinds(
            sites in 0_usize..4,
            kinds in vec((prop_oneof![-3.0..3.0, any::<f64>()], -3_i8..3, 0_usize..4), 0..3),
            kind in vec(-1_i32..3, 0..4)
        ) {
            let state_range = |(start, step, size)| StateRange { start, step: f64::from(step), size };
            let kinds = kinds.into_iter().map(state_range).collect();
            let Ok(sites) = Sites::new(sites, kinds, &kind) else { return Ok(()) };
            let Ok(states) = LocalStates::<f64>::new(&sites) else { return Ok(()) };
            for index in 0..4 {
                let last = |site| (sites.states(site).size - 1) as LocalIndex;
                let expected: Vec<_> = (0..sites.len()).map(|site| last(site).min(index)).collect();
                for _ in each_level() {
                    let (mut indices, mut sample) = (vec![9; sites.len()], states.first());
                    states.write(&expected, &mut sample);
                    states.read(0, &sample.values, &mut indices).expect("local states");
                    prop_assert_eq!(&indices, &expected);
                }
            }
        }
    }
}
