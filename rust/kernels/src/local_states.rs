//! Sites with two local states: spins, qubits, hard-core bosons.

use crate::Error;
use crate::element::Sample;

/// The values of the two local states, in the dtype of the samples. Their indices, 0 and 1, are NetKet's.
#[derive(Debug, Clone, Copy)]
pub struct TwoStates<S> {
    states: [S; 2],
    exact: [f64; 2],
}

impl<S: Sample> TwoStates<S> {
    /// From the values of index 0 and 1. An error if they are equal, or if `S` can't hold them.
    pub fn new(first: f64, second: f64) -> Result<Self, Error> {
        match (S::from_exact(first), S::from_exact(second)) {
            (Some(a), Some(b)) if a != b => Ok(Self { states: [a, b], exact: [first, second] }),
            _ => Err(Error::LocalStates { first, second }),
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
        let [first, second] = self.exact;
        Error::NotALocalState { sample, site, value, first, second }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_indices() {
        let mut indices = [9; 3];
        let spins = TwoStates::<i8>::new(1.0, -1.0).expect("int8 holds both");
        spins.read(0, &[-1, 1, -1], &mut indices).expect("local states");
        assert_eq!(indices, [1, 0, 1]);
        assert_eq!([spins.value(0), spins.value(1)], [1, -1]);
    }

    #[test]
    fn negative_zero_is_zero() {
        let mut indices = [9; 2];
        let occupations = TwoStates::<f64>::new(0.0, 1.0).expect("float64 holds both");
        occupations.read(0, &[-0.0, 1.0], &mut indices).expect("local states");
        assert_eq!(indices, [0, 1]);
    }

    #[test]
    fn names_the_first_value_that_is_no_local_state() {
        let spins = TwoStates::<f32>::new(1.0, -1.0).expect("float32 holds both");
        for (value, text) in [(0.5, "0.5"), (f32::NAN, "NaN"), (3.0, "3")] {
            let error = spins.read(7, &[1.0, value, 9.0], &mut [0; 3]).expect_err("not a spin");
            assert_eq!(
                error.to_string(),
                format!("sample 7, site 1 has the value {text}, but the local states are 1 and -1")
            );
        }
    }

    #[test]
    fn refuses_a_dtype_that_cannot_hold_the_states() {
        let error = TwoStates::<u8>::new(1.0, -1.0).expect_err("-1 is no uint8");
        assert_eq!(error, Error::LocalStates { first: 1.0, second: -1.0 });
        assert!(TwoStates::<i8>::new(1.0, 1.0).is_err());
    }
}
