//! Elements at places that depend on the configuration: those that are taken from there, and those that are added there.

use super::Numbers;
use crate::Error;
use crate::network::words::{Words, wrong};
use crate::numbers::{Real, lanes};
use pulp::Simd;
use std::marker::PhantomData;

/// `out[r, c] = x[index[r], c]`, where each row r takes one of some rows.
#[derive(Debug)]
pub(crate) struct Take {
    columns: usize,
    /// How many rows there are to take from.
    choices: usize,
    /// Whether a row that there isn't consists of NaN. Else it is the nearest one.
    has_limits: bool,
    out: usize,
    /// Where the number of each row's row is.
    index: Vec<u32>,
    /// Which of the tables each row takes from.
    table: Vec<u32>,
    /// Where the numbers are, `(choices, columns)` of each table.
    tables: Vec<u32>,
}

impl Take {
    pub(super) fn read(words: &mut Words) -> Result<Self, Error> {
        let (rows, choices, columns) = (words.number()?, words.number()?, words.number()?);
        let (has_limits, tables) = (words.number()? > 0, words.number()?);
        if choices == 0 || columns == 0 {
            return Err(wrong("there is nothing to take from"));
        }
        let out = words.run(rows.saturating_mul(columns))?;
        let index = words.runs(rows, 1)?;
        let table = words.all_below(rows, tables, "a table")?;
        let tables = words.runs(tables.saturating_mul(choices).saturating_mul(columns), 1)?;
        Ok(Self { columns, choices, has_limits, out, index, table, tables })
    }

    pub(super) fn work(&self) -> usize {
        self.index.len() * self.columns * EACH
    }
}

/// What is done lane by lane takes about as long as so many products.
const EACH: usize = 8;

/// Takes numbers of this type.
pub(super) struct Gather<'a, T>(pub(super) &'a Take, pub(super) PhantomData<T>);

impl<T: Real> Gather<'_, T> {
    #[inline(always)]
    pub(super) fn run<S: Simd, const V: usize>(&self, _: S, places: &mut [Numbers<T, S, V>]) {
        let &Take { columns, choices, has_limits, out, ref index, ref table, ref tables } = self.0;
        let width = V * lanes::<T, S>();
        let numbers: &mut [T] = bytemuck::cast_slice_mut(places.as_flattened_mut());
        for (row, (&index, &table)) in index.iter().zip(table).enumerate() {
            let table = &tables[table as usize * choices * columns..][..choices * columns];
            for lane in 0..width {
                let wanted: f64 = numbers[index as usize * width + lane].into();
                let first = (out + row * columns) * width + lane;
                let Some(choice) = choice(wanted, choices, has_limits) else {
                    for column in 0..columns {
                        numbers[first + column * width] = T::nearest(f64::NAN);
                    }
                    continue;
                };
                for (column, &place) in table[choice * columns..][..columns].iter().enumerate() {
                    numbers[first + column * width] = numbers[place as usize * width + lane];
                }
            }
        }
    }
}

/// `out[targets[index[r], c]] += x[r, c]` for all rows r, of zeros, where each row has one of some tables of targets.
#[derive(Debug)]
pub(crate) struct Put {
    columns: usize,
    choices: usize,
    /// Whether a row whose choice there isn't is left out. Else it takes the nearest one.
    has_limits: bool,
    size: usize,
    out: usize,
    /// Where the number of each row's choice is.
    index: Vec<u32>,
    /// Which of the tables each row has.
    table: Vec<u32>,
    /// Where numbers go, `(choices, columns)` of each table.
    targets: Vec<u32>,
    /// Where the numbers of the rows are.
    places: Vec<u32>,
}

impl Put {
    pub(super) fn read(words: &mut Words) -> Result<Self, Error> {
        let (rows, choices, columns) = (words.number()?, words.number()?, words.number()?);
        let (has_limits, tables, size) = (words.number()? > 0, words.number()?, words.number()?);
        if choices == 0 || columns == 0 {
            return Err(wrong("nothing is added"));
        }
        let out = words.run(size)?;
        let index = words.runs(rows, 1)?;
        let table = words.all_below(rows, tables, "a table")?;
        let targets = words.all_below(tables.saturating_mul(choices).saturating_mul(columns), size, "a target")?;
        let places = words.runs(rows.saturating_mul(columns), 1)?;
        Ok(Self { columns, choices, has_limits, size, out, index, table, targets, places })
    }

    pub(super) fn work(&self) -> usize {
        self.places.len() * EACH
    }
}

/// Adds numbers of this type.
pub(super) struct Scatter<'a, T>(pub(super) &'a Put, pub(super) PhantomData<T>);

impl<T: Real> Scatter<'_, T> {
    #[inline(always)]
    pub(super) fn run<S: Simd, const V: usize>(&self, _: S, places: &mut [Numbers<T, S, V>]) {
        let &Put { columns, choices, has_limits, size, out, .. } = self.0;
        let width = V * lanes::<T, S>();
        let numbers: &mut [T] = bytemuck::cast_slice_mut(places.as_flattened_mut());
        numbers[out * width..(out + size) * width].fill(T::default());
        let rows = self.0.index.iter().zip(&self.0.table).zip(self.0.places.chunks_exact(columns));
        for ((&index, &table), from) in rows {
            let targets = &self.0.targets[table as usize * choices * columns..][..choices * columns];
            for lane in 0..width {
                let wanted: f64 = numbers[index as usize * width + lane].into();
                let Some(choice) = choice(wanted, choices, has_limits) else { continue };
                for (&target, &from) in targets[choice * columns..][..columns].iter().zip(from) {
                    let target = (out + target as usize) * width + lane;
                    numbers[target] = numbers[target] + numbers[from as usize * width + lane];
                }
            }
        }
    }
}

/// The choice that is wanted, or the nearest one; None if there is none and there are limits.
#[inline(always)]
pub(super) fn choice(wanted: f64, choices: usize, has_limits: bool) -> Option<usize> {
    let limits = 0.0..=choices as f64 - 1.0;
    // Numbers that are none are no choice either.
    if has_limits && !limits.contains(&wanted) {
        None
    } else {
        Some(wanted.clamp(*limits.start(), *limits.end()) as usize)
    }
}
