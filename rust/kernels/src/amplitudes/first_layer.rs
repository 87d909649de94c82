//! First layers of networks, which are sums over the sites: they are updated where a few sites change.

use crate::Error;
use crate::error::{check, index};
use crate::numbers::{Real, Sample, dispatch};
use crate::sites::{LocalIndex, LocalStates};
use pulp::{Simd, WithSimd};

/// A site, its local index, and the one that it gets.
pub(crate) type LocalChange = (usize, LocalIndex, LocalIndex);

/// What a network's first layer makes of a configuration: a constant vector, where all sites have local index 0, and what
/// each site adds that has another one.
#[derive(Debug, Clone, Copy)]
pub struct FirstLayer<'a, T> {
    constant: &'a [T],
    /// One row for each site and each local index but 0.
    table: &'a [T],
    states: usize,
}

impl<'a, T: Real> FirstLayer<'a, T> {
    /// Of so many sites with at most so many local states. Without a first layer all vectors are empty.
    pub fn new(sites: usize, states: usize, constant: &'a [T], table: &'a [T]) -> Result<Self, Error> {
        let rows = sites * states.saturating_sub(1);
        check(table.len() == rows * constant.len(), || {
            format!(
                "the table of the first layer has {} numbers, but {sites} sites with {states} local states and {} sums \
                 take {}",
                table.len(),
                constant.len(),
                rows * constant.len()
            )
        })?;
        Ok(Self { constant, table, states })
    }

    /// How many sums there are.
    #[must_use]
    #[inline(always)]
    pub fn width(&self) -> usize {
        self.constant.len()
    }

    /// What a site adds.
    #[inline(always)]
    fn row(&self, site: usize, index: LocalIndex) -> Option<&'a [T]> {
        let place = site * (self.states - 1) + usize::from(index.checked_sub(1)?);
        Some(&self.table[place * self.width()..][..self.width()])
    }

    /// Sums up all sites of a configuration.
    #[inline(always)]
    pub(crate) fn evaluate(&self, indices: &[LocalIndex], sums: &mut [T]) {
        sums.copy_from_slice(self.constant);
        let rows = indices.iter().enumerate().filter_map(|(site, &index)| self.row(site, index));
        add(rows.map(|row| (T::ONE, row)), sums);
    }

    /// As [`FirstLayer::evaluate`], compiled for the processor.
    pub(crate) fn write(&self, indices: &[LocalIndex], sums: &mut [T]) {
        dispatch(Evaluate { layer: *self, indices, sums });
    }

    /// Changes the sums of a configuration.
    #[inline(always)]
    pub(crate) fn update(&self, changes: impl Iterator<Item = LocalChange>, sums: &mut [T]) {
        add(self.rows(changes), sums);
    }

    /// As [`FirstLayer::update`], to another place.
    #[inline(always)]
    pub(crate) fn change(&self, changes: impl Iterator<Item = LocalChange>, from: &[T], sums: &mut [T]) {
        let mut rows = self.rows(changes);
        // Most often there are two rows, which are added on the way.
        match (rows.next(), rows.next()) {
            (Some((a, first)), Some((b, second))) => {
                for (((sum, &from), &first), &second) in sums.iter_mut().zip(from).zip(first).zip(second) {
                    *sum = from + a * first + b * second;
                }
            }
            (Some((a, first)), None) => {
                for ((sum, &from), &first) in sums.iter_mut().zip(from).zip(first) {
                    *sum = from + a * first;
                }
            }
            (None, _) => sums.copy_from_slice(from),
        }
        add(rows, sums);
    }

    /// What is added and, with the sign -1, what is taken away.
    #[inline(always)]
    fn rows(&self, changes: impl Iterator<Item = LocalChange>) -> impl Iterator<Item = (T, &'a [T])> {
        let signed = |(site, from, to)| {
            let row = |sign, index| self.row(site, index).map(|row| (sign, row));
            [row(-T::ONE, from), row(T::ONE, to)].into_iter().flatten()
        };
        changes.flat_map(signed)
    }
}

/// Adds rows, each with a sign.
#[inline(always)]
fn add<'a, T: Real>(rows: impl Iterator<Item = (T, &'a [T])>, sums: &mut [T]) {
    for (sign, row) in rows {
        for (sum, &part) in sums.iter_mut().zip(row) {
            *sum = *sum + sign * part;
        }
    }
}

/// The sums of configurations that differ from samples on a few sites: those that an operator connects.
#[derive(Debug)]
pub struct ConnectedSums<'a, S, T> {
    layer: FirstLayer<'a, T>,
    states: &'a LocalStates<'a, S>,
    samples: &'a [S],
    /// The sample of the last configuration, its local indices, and its sums.
    sample: Option<usize>,
    indices: Vec<LocalIndex>,
    own: Vec<T>,
    changes: Vec<LocalChange>,
}

impl<'a, S: Sample, T: Real> ConnectedSums<'a, S, T> {
    /// Of samples on these sites, one behind the other.
    #[must_use]
    pub fn new(layer: FirstLayer<'a, T>, states: &'a LocalStates<'a, S>, samples: &'a [S]) -> Self {
        let indices = vec![0; states.sites()];
        let own = vec![T::default(); layer.width()];
        Self { layer, states, samples, sample: None, indices, own, changes: Vec::new() }
    }

    /// Writes the sums of a configuration of this sample. It is fast for one that differs on a few sites, if that before
    /// was of the same sample.
    pub fn write(&mut self, sample: i32, x: &[S], sums: &mut [T]) -> Result<(), Error> {
        let sites = self.indices.len();
        let count = self.samples.len().checked_div(sites).unwrap_or(usize::MAX);
        let found = index(sample, count);
        check(found.is_some(), || format!("a configuration is of sample {sample}, but there are {count}"))?;
        let place = found.unwrap_or_default();
        let values = &self.samples[place * sites..][..sites];
        let layer = self.layer;
        if self.sample != found {
            self.sample = None;
            self.states.read(place, values, &mut self.indices)?;
            layer.write(&self.indices, &mut self.own);
            self.sample = found;
        }
        self.changes.clear();
        self.states.find_changes(place, &self.indices, values, x, &mut self.changes)?;
        if 2 * self.changes.len() < sites {
            dispatch(Update { layer, changes: &self.changes, from: &self.own, sums });
        } else {
            let mut indices = self.indices.clone();
            for &(site, _, to) in &self.changes {
                indices[site] = to;
            }
            layer.write(&indices, sums);
        }
        Ok(())
    }
}

/// What [`FirstLayer::write`] does.
struct Evaluate<'s, T> {
    layer: FirstLayer<'s, T>,
    indices: &'s [LocalIndex],
    sums: &'s mut [T],
}

impl<T: Real> WithSimd for Evaluate<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.layer.evaluate(self.indices, self.sums);
    }
}

/// [`FirstLayer::change`], compiled for the processor.
struct Update<'s, T> {
    layer: FirstLayer<'s, T>,
    changes: &'s [LocalChange],
    from: &'s [T],
    sums: &'s mut [T],
}

impl<T: Real> WithSimd for Update<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.layer.change(self.changes.iter().copied(), self.from, self.sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::each_level;
    use crate::sites::Sites;
    use crate::sites::testing::{SPIN, boson};
    use proptest::collection::vec;
    use proptest::prelude::*;

    const SITES: usize = 40;
    const WIDTH: usize = 5;

    /// Sites 1, 3, 5, ... have three local states, the others two.
    fn sites() -> Sites {
        let kind: Vec<_> = (0..SITES).map(|site| (site % 2) as i32).collect();
        Sites::new(SITES, vec![SPIN, boson(3)], &kind).expect("sites of two kinds")
    }

    fn table() -> Vec<f64> {
        (0..SITES * 2 * WIDTH).map(|i| f64::from(i as u32).sin()).collect()
    }

    /// The readable twin: all sites are summed up.
    fn sums(constant: &[f64], table: &[f64], indices: &[LocalIndex]) -> Vec<f64> {
        let others = || indices.iter().enumerate().filter(|&(_, &index)| index > 0);
        let part = |sum, site, index| table[(2 * site + usize::from(index) - 1) * WIDTH + sum];
        (0..WIDTH)
            .map(|sum| constant[sum] + others().map(|(site, &index)| part(sum, site, index)).sum::<f64>())
            .collect()
    }

    fn values(indices: &[LocalIndex]) -> Vec<f32> {
        indices
            .iter()
            .enumerate()
            .map(|(site, &i)| if site % 2 == 0 { 1.0 - 2.0 * f32::from(i) } else { i.into() })
            .collect()
    }

    proptest! {
        #[test]
        fn sums_of_any_configuration(
            drawn in vec(vec(0_u16..6, SITES), 2),
            changes in vec((0..2_i32, vec((0..SITES, 0_u16..6), 0..40)), 1..8)
        ) {
            let (sites, constant, table) = (sites(), [0.5, -1.0, 2.0, 0.0, 3.0], table());
            let states = LocalStates::<f32>::new(&sites).expect("float32 holds all");
            let local = |site: usize, drawn: u16| drawn % if site.is_multiple_of(2) { 2 } else { 3 };
            let samples: Vec<Vec<_>> = drawn.iter().map(|row| (0..SITES).map(|site| local(site, row[site])).collect()).collect();
            let of_samples: Vec<_> = samples.iter().flat_map(|sample| values(sample)).collect();
            let layer = FirstLayer::new(SITES, 3, &constant, &table).expect("a table");
            for _ in each_level() {
                let mut connected = ConnectedSums::new(layer, &states, &of_samples);
                for (sample, changes) in &changes {
                    let mut x = samples[*sample as usize].clone();
                    for &(site, to) in changes {
                        x[site] = local(site, to);
                    }
                    let mut found = [9.0; WIDTH];
                    connected.write(*sample, &values(&x), &mut found).expect("local states");
                    for (found, expected) in found.iter().zip(sums(&constant, &table, &x)) {
                        prop_assert!((found - expected).abs() < 1e-12);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let (sites, constant, table) = (sites(), [0.0; WIDTH], table());
        let message = FirstLayer::new(SITES, 2, &constant, &table).expect_err("a table for three states").to_string();
        assert!(message.ends_with(
            "the table of the first layer has 400 numbers, but 40 sites with 2 local states and 5 sums take 200"
        ));
        let states = LocalStates::<f32>::new(&sites).expect("float32 holds all");
        let layer = FirstLayer::new(SITES, 3, &constant, &table).expect("a table");
        let mut sample = values(&[0; SITES]);
        let sums = &mut [0.0; WIDTH];
        let mut x = sample.clone();
        let message =
            ConnectedSums::new(layer, &states, &sample).write(1, &x, sums).expect_err("one sample").to_string();
        assert!(message.ends_with("a configuration is of sample 1, but there are 1"), "{message}");
        x[37] = 3.0;
        let message =
            ConnectedSums::new(layer, &states, &sample).write(0, &x, sums).expect_err("three states").to_string();
        assert_eq!(message, "sample 0, site 37 has the value 3, but the local states are 0, 1 and 2");
        sample[2] = f32::NAN;
        let message =
            ConnectedSums::new(layer, &states, &sample).write(0, &x, sums).expect_err("not a spin").to_string();
        assert_eq!(message, "sample 0, site 2 has the value NaN, but the local states are 1 and -1");
    }
}
