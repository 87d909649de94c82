//! What the tests of the forms have in common: all sweeps are compared with the elements that an operator has by its
//! definition.

use crate::Error;
use crate::connected::{Elements, Form, Part, count_nonzero, write_configurations};
use crate::numbers::{MatrixElement, Sample, each_level};
use crate::sites::{LocalIndex, LocalStates, Sites};
use half::f16;
use num_complex::Complex;
use rand::RngExt;
use rand::rngs::StdRng;
use std::fmt::Debug;
use std::iter::repeat;

/// A connected element.
#[derive(Debug, Clone)]
pub(crate) struct Element<T> {
    pub(crate) mel: T,
    /// The local indices of its configuration.
    pub(crate) indices: Vec<LocalIndex>,
}

/// An operator that owns its tables.
pub(crate) trait Operator {
    fn form(&self) -> Result<impl Form, Error>;

    fn sites(&self) -> &Sites;

    /// Small whole numbers, so that sums are exact and often 0.
    fn values(&self) -> &[i8];

    /// The active elements by definition.
    fn elements<T: MatrixElement>(&self, values: &[T], sample: &[LocalIndex]) -> Vec<Element<T>>;
}

/// Puts `number`, or another number of the table, somewhere in it, or changes its length.
pub(crate) fn damage<N: Copy>(rng: &mut StdRng, table: &mut Vec<N>, number: N) {
    let mut place = |len| rng.random_range(0..len);
    match (place(16), table.len()) {
        (0, _) => table.push(number),
        (_, 0) => {}
        (1, len) => table.truncate(len - 1),
        (2..8, len) => table[place(len)] = number,
        (_, len) => table[place(len)] = table[place(len)],
    }
}

/// A number that is likely to be wrong in a table.
pub(crate) fn odd_number(rng: &mut StdRng) -> i32 {
    [i32::MIN, -1, 0, 1, 2, 3, 4, 5, 6, i32::MAX][rng.random_range(0..10)]
}

/// A change that makes an operator wrong, and what the error says.
pub(crate) type Mistake<O> = (fn(&mut O), &'static str);

/// Checks that each mistake in an operator that is right otherwise is an error, and what it says.
pub(crate) fn check_mistakes<O: Operator>(right: impl Fn() -> O, mistakes: &[Mistake<O>]) {
    for (change, expected) in mistakes {
        let mut operator = right();
        change(&mut operator);
        let message = operator.form().err().expect("wrong tables").to_string();
        assert_eq!(message, format!("the tables are wrong: {expected}"));
    }
}

/// Compares what all sweeps give with the definition, for several number types. An error if the tables are wrong.
pub(crate) fn compare<O: Operator>(operator: &O, samples: &[Vec<LocalIndex>]) -> Result<(), Error> {
    compare_as::<f64, i8, O>(operator, samples, |value| value.wrapping_mul(60))?; // sums wrap around
    compare_as::<f16, Complex<f32>, O>(operator, samples, |value| Complex::new(value.into(), (value - 1).into()))?;
    compare_as::<i8, f64, O>(operator, samples, f64::from)
}

/// As [`compare`], for samples and matrix elements of these types.
pub(crate) fn compare_as<S: Sample + Debug, T: MatrixElement + Sample + Debug, O: Operator>(
    operator: &O,
    samples: &[Vec<LocalIndex>],
    value: impl Fn(i8) -> T,
) -> Result<(), Error> {
    let form = operator.form()?;
    let values: Vec<T> = operator.values().iter().map(|&small| value(small)).collect();
    let states = LocalStates::<S>::new(operator.sites()).expect("the dtype holds the local states");
    let sweep = Sweep { form: &form, sites: operator.sites(), states, values: &values, samples };
    let active: Vec<_> = samples.iter().map(|sample| operator.elements(&values, sample)).collect();
    for _ in each_level() {
        sweep.check_active(&active);
    }
    for part in [Part::All, Part::OffDiagonal, Part::Diagonal] {
        let mut non_zero = active.clone();
        for (elements, sample) in non_zero.iter_mut().zip(samples) {
            elements.retain(|element| {
                let on_diagonal = element.indices == *sample;
                let wanted = if on_diagonal { part.has_diagonal() } else { part.has_others() };
                wanted && element.mel != T::default()
            });
        }
        for _ in each_level() {
            sweep.check_nonzero(&non_zero, part);
        }
    }
    Ok(())
}

/// The sweeps over some samples.
struct Sweep<'a, F, S, T> {
    form: &'a F,
    sites: &'a Sites,
    states: LocalStates<'a, S>,
    values: &'a [T],
    samples: &'a [Vec<LocalIndex>],
}

impl<F: Form, S: Sample + Debug, T: MatrixElement + Sample + Debug> Sweep<'_, F, S, T> {
    /// What all results hold at first.
    fn junk<N: Sample>() -> N {
        N::from_exact(77.0).expect("a small number")
    }

    fn row(&self, indices: &[LocalIndex]) -> Vec<S> {
        let value = |(site, &index)| S::from_exact(self.sites.states(site).value(usize::from(index)));
        indices.iter().enumerate().map(|state| value(state).expect("a local state")).collect()
    }

    /// The local indices of the samples, as they are read from their values.
    fn indices(&self) -> Vec<LocalIndex> {
        let read = |sample: &Vec<LocalIndex>| {
            let mut indices = vec![LocalIndex::MAX; sample.len()];
            self.states.read(0, &self.row(sample), &mut indices).expect("local states");
            indices
        };
        self.samples.iter().flat_map(read).collect()
    }

    fn write_active(
        &self,
        room: usize,
        mels: &mut Vec<T>,
        changes: &mut [F::ElementChange],
        first: usize,
    ) -> Result<Vec<u32>, Error> {
        let mut counts = vec![77; self.samples.len()];
        *mels = vec![Self::junk(); self.samples.len() * room];
        let elements = Elements { counts: &mut counts, mels, changes };
        elements.write_active(self.form, self.values, &self.indices(), Part::All, first)?;
        Ok(counts)
    }

    fn check_active(&self, expected: &[Vec<Element<T>>]) {
        let most = expected.iter().map(Vec::len).max().unwrap_or_default();
        assert!(most <= self.form.max_elements(), "{most} elements of at most {}", self.form.max_elements());
        for room in [most, most + 3] {
            let mut changes = vec![F::ElementChange::default(); expected.len() * room];
            let (mut mels, mut only_mels) = (Vec::new(), Vec::new());
            let counts = self.write_active(room, &mut mels, &mut changes, 0).expect("enough room");
            self.check_rows(expected, room, &counts, &mels, &changes);
            for (sample, &count) in counts.iter().enumerate() {
                let padding = &mels[sample * room..][count as usize..room];
                assert!(padding.iter().all(|&mel| mel == T::default()), "the padding of sample {sample}");
            }
            self.write_active(room, &mut only_mels, &mut [], 0).expect("enough room");
            assert_eq!(only_mels, mels, "without configurations");
        }
        if let Some(room) = most.checked_sub(1) {
            let sample = expected.iter().position(|elements| elements.len() > room).expect("one has the most");
            let error = self.write_active(room, &mut Vec::new(), &mut [], 1000).expect_err("too little room");
            assert_eq!(error, Error::TooManyElements { sample: 1000 + sample, count: most, room });
        }
    }

    fn check_nonzero(&self, expected: &[Vec<Element<T>>], part: Part) {
        let (samples, width) = (expected.len(), self.form.max_elements());
        let mut counts = vec![77; samples];
        let mut mels = vec![Self::junk(); samples * width];
        let mut changes = vec![F::ElementChange::default(); samples * width];
        let elements = Elements { counts: &mut counts, mels: &mut mels, changes: &mut changes };
        elements.write_nonzero(self.form, self.values, &self.indices(), part);
        self.check_rows(expected, width, &counts, &mels, &changes);

        let mut counted = vec![77; samples];
        count_nonzero(self.form, self.values, &self.indices(), part, &mut counted);
        assert!(counted.iter().zip(&counts).all(|(&counted, &count)| counted == count as i32));
    }

    /// Checks elements in rows of `width`, and their configurations, with the sample itself in two rows more.
    fn check_rows(
        &self,
        expected: &[Vec<Element<T>>],
        width: usize,
        counts: &[u32],
        mels: &[T],
        changes: &[F::ElementChange],
    ) {
        let sites = self.form.sites();
        let mut configuration = self.states.first();
        for (number, (elements, sample)) in expected.iter().zip(self.samples).enumerate() {
            let count = elements.len();
            assert_eq!(counts[number] as usize, count, "the number of elements of sample {number}");
            let mels = &mels[number * width..][..count];
            let expected: Vec<_> = elements.iter().map(|element| element.mel).collect();
            assert_eq!(mels, expected, "the matrix elements of sample {number}");

            let mut rows = vec![Self::junk(); (count + 2) * sites];
            self.states.write(sample, &mut configuration);
            let changes = &changes[number * width..][..count];
            write_configurations(self.form, &self.states, &configuration, changes, &mut rows);
            let expected = elements.iter().map(|element| &element.indices).chain(repeat(sample));
            for (row, indices) in rows.chunks_exact(sites.max(1)).zip(expected) {
                assert_eq!(row, self.row(indices), "a configuration of sample {number}");
            }
        }
    }
}
