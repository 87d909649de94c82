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
        let mut table = Vec::with_capacity(index.len());
        for _ in 0..rows {
            table.push(words.below(tables, "a table")? as u32);
        }
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
        let last = choices as f64 - 1.0;
        for (row, (&index, &table)) in index.iter().zip(table).enumerate() {
            let table = &tables[table as usize * choices * columns..][..choices * columns];
            for lane in 0..width {
                let wanted: f64 = numbers[index as usize * width + lane].into();
                let choice = wanted.clamp(0.0, last);
                let first = (out + row * columns) * width + lane;
                // Also if it is no number.
                if has_limits && choice != wanted {
                    for column in 0..columns {
                        numbers[first + column * width] = T::nearest(f64::NAN);
                    }
                    continue;
                }
                for (column, &place) in table[choice as usize * columns..][..columns].iter().enumerate() {
                    numbers[first + column * width] = numbers[place as usize * width + lane];
                }
            }
        }
    }
}

/// `out[g, index[g, u], c] += x[g, u, c]` for all u, of zeros; rows that there is no place for are left out.
#[derive(Debug)]
pub(crate) struct Put {
    updates: usize,
    size: usize,
    columns: usize,
    out: usize,
    index: Vec<u32>,
    places: Vec<u32>,
}

impl Put {
    pub(super) fn read(words: &mut Words) -> Result<Self, Error> {
        let [groups, updates, size, columns] = [words.number()?, words.number()?, words.number()?, words.number()?];
        if updates == 0 || size == 0 || columns == 0 {
            return Err(wrong("nothing is added"));
        }
        let out = words.run(groups.saturating_mul(size).saturating_mul(columns))?;
        let all = groups.saturating_mul(updates);
        let index = words.runs(all, 1)?;
        Ok(Self { updates, size, columns, out, index, places: words.runs(all.saturating_mul(columns), 1)? })
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
        let &Put { updates, size, columns, out, ref index, places: ref from } = self.0;
        let width = V * lanes::<T, S>();
        let numbers: &mut [T] = bytemuck::cast_slice_mut(places.as_flattened_mut());
        let groups = index.chunks_exact(updates).zip(from.chunks_exact(updates * columns));
        for (group, (index, from)) in groups.enumerate() {
            let first = (out + group * size * columns) * width;
            numbers[first..first + size * columns * width].fill(T::default());
            for (&index, from) in index.iter().zip(from.chunks_exact(columns)) {
                for lane in 0..width {
                    let wanted: f64 = numbers[index as usize * width + lane].into();
                    if wanted >= 0.0 && wanted < size as f64 {
                        let row = first + wanted as usize * columns * width + lane;
                        for (column, &from) in from.iter().enumerate() {
                            let target = row + column * width;
                            numbers[target] = numbers[target] + numbers[from as usize * width + lane];
                        }
                    }
                }
            }
        }
    }
}
