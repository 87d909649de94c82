//! The sites, and what local states each has.

use crate::Error;
use crate::error::{check, index};
use std::fmt;

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
    pub(super) kinds: Vec<StateRange>,
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
            let unknown = kind.iter().position(|&kind| index(kind, count).is_none());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sites::testing::{SPIN, boson};

    #[test]
    fn every_site_is_of_a_kind_that_exists() {
        let message = |sites, kinds: &[StateRange], kind: &[i32]| {
            Sites::new(sites, kinds.to_vec(), kind).expect_err("wrong kinds").to_string()
        };
        let prefix = "the tables are wrong: ";
        for (found, expected) in [
            (message(2, &[SPIN, boson(4)], &[0, 2]), "site 1 is of kind 2, but there are 2 kinds, counted from 0"),
            (message(2, &[SPIN], &[-1, 0]), "site 0 is of kind -1, but there are 1 kinds, counted from 0"),
            (message(3, &[SPIN], &[0, 0]), "`kind` has 2 sites, but the samples have 3"),
            (message(2, &[SPIN, boson(4)], &[]), "there are 2 kinds of sites, so `kind` must give that of each site"),
            (message(2, &[], &[]), "there are 0 kinds of sites, so `kind` must give that of each site"),
            (
                message(2, &[StateRange { size: 0, ..SPIN }], &[]),
                "sites of kind 0 have 0 local states, but a site has 1 to 65536",
            ),
        ] {
            assert_eq!(found, format!("{prefix}{expected}"));
        }
    }
}
