//! Two local states that all sites have.

use crate::Error;
use crate::numbers::Sample;
use crate::sites::StateRange;

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
            _ => Err(Error::LocalStates { states: range.to_string() }),
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
        Error::NotALocalState { sample, site, value, states: self.range.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn two_states_that_differ_and_that_the_dtype_holds() {
        assert!(TwoStates::<u8>::new(1.0, -1.0).is_err());
        assert!(TwoStates::<i8>::new(1.0, 1.0).is_err());
    }
}
