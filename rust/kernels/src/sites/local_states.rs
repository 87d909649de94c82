//! The local states of the sites, and samples as indices of local states.
//!
//! A site takes one of a few values, an arithmetic sequence: 1, -1 for a spin ½; 0, 1, 2 for bosons. Sites with the same
//! values are of one kind. The *local index* of a site says which of its values it has.

use crate::Error;
use crate::error::check;
use crate::numbers::{Sample, vectorized};
use std::fmt;
use std::hint::select_unpredictable;

/// The index of a local state.
pub type LocalIndex = u16;

/// The most local states that a site can have.
pub const MAX_STATES: usize = LocalIndex::MAX as usize + 1;

/// The local states of one kind of sites: `size` values from `start` on, `step` apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StateRange {
    /// The value of local index 0.
    pub start: f64,
    /// From each value to the next.
    pub step: f64,
    /// How many values.
    pub size: usize,
}

impl StateRange {
    /// The value of a local index.
    #[must_use]
    pub fn value(&self, index: usize) -> f64 {
        self.start + index as f64 * self.step
    }
}

impl fmt::Display for StateRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.size.saturating_sub(1);
        match self.size {
            0 => f.write_str("none"),
            1 => write!(f, "{}", self.start),
            2..=6 => {
                for index in 0..last {
                    write!(f, "{}{}", if index == 0 { "" } else { ", " }, self.value(index))?;
                }
                write!(f, " and {}", self.value(last))
            }
            _ => write!(f, "{}, {}, ..., {}", self.start, self.value(1), self.value(last)),
        }
    }
}

/// The sites and the kind of each.
#[derive(Debug, Clone)]
pub struct Sites {
    kinds: Vec<StateRange>,
    /// The kind of each site.
    kind: Vec<u32>,
    /// Where the values of each kind begin, if those of all kinds follow each other.
    first_values: Vec<u32>,
}

impl Sites {
    /// Sites of the kinds that `kind` numbers. Without any numbers, all `sites` are of the one kind.
    pub fn new(sites: usize, kinds: Vec<StateRange>, kind: &[i32]) -> Result<Self, Error> {
        for (number, states) in kinds.iter().enumerate() {
            let size = states.size;
            check((1..=MAX_STATES).contains(&size), || {
                format!("sites of kind {number} have {size} local states, but a site has 1 to {MAX_STATES}")
            })?;
        }
        let count = kinds.len();
        let kind = if kind.is_empty() {
            check(count == 1 || sites == 0, || {
                format!("there are {count} kinds of sites, so `kind` must give that of each site")
            })?;
            vec![0; sites]
        } else {
            check(kind.len() == sites, || format!("`kind` has {} sites, but the samples have {sites}", kind.len()))?;
            let unknown = kind.iter().position(|&kind| usize::try_from(kind).map_or(true, |kind| kind >= count));
            check(unknown.is_none(), || {
                let site = unknown.unwrap_or_default();
                format!("site {site} is of kind {}, but there are {count} kinds, counted from 0", kind[site])
            })?;
            kind.iter().map(|&kind| kind as u32).collect()
        };
        let mut first_values = Vec::with_capacity(count);
        let mut values = 0;
        for states in &kinds {
            first_values.push(values);
            values += states.size as u32;
        }
        Ok(Self { kinds, kind, first_values })
    }

    /// How many sites there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kind.len()
    }

    /// Whether there are no sites.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kind.is_empty()
    }

    /// The local states of a site.
    #[must_use]
    pub fn states(&self, site: usize) -> StateRange {
        self.kinds[self.kind[site] as usize]
    }

    /// Where the values of a site begin in [`LocalStates::values`].
    pub(crate) fn first_value(&self, site: usize) -> u32 {
        self.first_values[self.kind[site] as usize]
    }
}

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
                values.push(S::from_exact(states.value(index)).ok_or(Error::LocalStates { states })?);
            }
            if values[first..].windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(Error::LocalStates { states });
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
                let StateRange { start, size, .. } = self.sites.states(site);
                // A conversion of floats to integers saturates, and NaN becomes 0.
                let nearest = ((value.to_f64() - start) * self.inverse_steps[site] + 0.5) as usize;
                *index = nearest.min(size - 1) as LocalIndex;
                valid &= self.value(site, *index) == value;
            }
            valid
        };
        if valid { Ok(()) } else { Err(self.find_invalid(sample, values)) }
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
        Error::NotALocalState { sample, site, value: values[site].to_string(), states: self.sites.states(site) }
    }
}

/// The values of two local states, in the dtype of the samples. Their indices, 0 and 1, are NetKet's.
#[derive(Debug, Clone, Copy)]
pub struct TwoStates<S> {
    states: [S; 2],
    range: StateRange,
}

impl<S: Sample> TwoStates<S> {
    /// From the values of index 0 and 1. An error if they are equal, or if `S` can't hold them.
    pub fn new(first: f64, second: f64) -> Result<Self, Error> {
        let range = StateRange { start: first, step: second - first, size: 2 };
        match (S::from_exact(first), S::from_exact(second)) {
            (Some(a), Some(b)) if a != b => Ok(Self { states: [a, b], range }),
            _ => Err(Error::LocalStates { states: range }),
        }
    }

    /// The value of the local state of this index.
    #[must_use]
    pub fn value(&self, index: u8) -> S {
        self.states[usize::from(index & 1)]
    }

    /// Writes the indices of the values of one sample. `sample` counts samples, for the error's sake.
    pub fn read(&self, sample: usize, values: &[S], indices: &mut [u8]) -> Result<(), Error> {
        let [first, second] = self.states;
        let mut valid = true;
        for (index, &value) in indices.iter_mut().zip(values) {
            let is_second = value == second;
            *index = u8::from(is_second);
            valid &= is_second || value == first;
        }
        if valid { Ok(()) } else { Err(self.find_invalid(sample, values)) }
    }

    /// The error of a sample that is known to hold something else than local states.
    #[cold]
    fn find_invalid(&self, sample: usize, values: &[S]) -> Error {
        let site = values.iter().position(|value| !self.states.contains(value)).unwrap_or_default();
        let value = values.get(site).map(ToString::to_string).unwrap_or_default();
        Error::NotALocalState { sample, site, value, states: self.range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const SPIN: StateRange = StateRange { start: 1.0, step: -2.0, size: 2 };
    const BOSON: StateRange = StateRange { start: 0.0, step: 1.0, size: 4 };

    fn spins(sites: usize) -> Sites {
        Sites::new(sites, vec![SPIN], &[]).expect("sites of one kind")
    }

    fn mixed() -> Sites {
        Sites::new(3, vec![SPIN, BOSON], &[1, 0, 1]).expect("sites of two kinds")
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
        let sites = Sites::new(2, vec![BOSON], &[]).expect("two sites");
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
        assert!(TwoStates::<u8>::new(1.0, -1.0).is_err());
        assert!(TwoStates::<i8>::new(1.0, 1.0).is_err());
    }

    #[test]
    fn every_site_is_of_a_kind_that_exists() {
        let message = |sites, kinds: &[StateRange], kind: &[i32]| {
            Sites::new(sites, kinds.to_vec(), kind).expect_err("wrong kinds").to_string()
        };
        let prefix = "the operator's tables are wrong: ";
        for (found, expected) in [
            (message(2, &[SPIN, BOSON], &[0, 2]), "site 1 is of kind 2, but there are 2 kinds, counted from 0"),
            (message(2, &[SPIN], &[-1, 0]), "site 0 is of kind -1, but there are 1 kinds, counted from 0"),
            (message(3, &[SPIN], &[0, 0]), "`kind` has 2 sites, but the samples have 3"),
            (message(2, &[SPIN, BOSON], &[]), "there are 2 kinds of sites, so `kind` must give that of each site"),
            (message(2, &[], &[]), "there are 0 kinds of sites, so `kind` must give that of each site"),
            (
                message(2, &[StateRange { size: 0, ..SPIN }], &[]),
                "sites of kind 0 have 0 local states, but a site has 1 to 65536",
            ),
        ] {
            assert_eq!(found, format!("{prefix}{expected}"));
        }
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
                let (mut indices, mut sample) = (vec![9; sites.len()], states.first());
                states.write(&expected, &mut sample);
                states.read(0, &sample.values, &mut indices).expect("local states");
                prop_assert_eq!(indices, expected);
            }
        }
    }

    #[test]
    fn two_states_read_indices() {
        let mut indices = [9; 3];
        let spins = TwoStates::<i8>::new(1.0, -1.0).expect("int8 holds both");
        spins.read(0, &[-1, 1, -1], &mut indices).expect("local states");
        assert_eq!(indices, [1, 0, 1]);
        assert_eq!([spins.value(0), spins.value(1)], [1, -1]);
        assert_eq!(
            spins.read(7, &[1, 3, 9], &mut indices).expect_err("not a spin").to_string(),
            "sample 7, site 1 has the value 3, but the local states are 1 and -1"
        );
    }
}
