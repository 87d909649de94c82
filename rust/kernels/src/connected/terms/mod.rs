//! Operators on sites with two local states, as sums of terms that lead from a configuration to one other.
//!
//! A term with mask m, pattern p, sign s, flip f and value v has ⟨σ|O|σ ⊕ f⟩ = v (-1)^|σ ∧ s| if σ ∧ m = p, and is
//! inactive otherwise; the bits of σ are the local indices of the sites. The terms of one flip are a group, and a group
//! is one connected element.
//!
//! Terms are evaluated for many samples at once. The samples of a block are turned into columns: a column has the bits of
//! one site, one bit a sample, so that one operation on words acts on 64 samples. Whether a term is active is the AND
//! of the columns in its mask, and its sign the XOR of those in its sign mask.

use crate::Error;
use crate::connected::offsets::{check_offsets, range};
use crate::connected::{Form, Part, Sink};
use crate::error::check;
use crate::numbers::{MatrixElement, Sample, copy, vectorized};
use crate::sites::{Configuration, LocalIndex, LocalStates, Sites};
use columns::{accumulate, bits_of_row, first_lanes, transpose};
use flips::{Flip, select};

mod columns;
mod flips;
mod sparse;

pub use columns::BLOCK;
pub use sparse::SparseTerms;

pub(crate) use columns::{Column, WORDS, bits, lanes};

/// Groups that are evaluated before their elements are put in place.
const TILE: usize = 8;

/// The tables of [`Terms`]. Bit i % 32 of word i / 32 of a row is site i; rows have as many words as that needs, at least
/// one.
#[derive(Debug, Clone, Copy)]
pub struct TermTables<'a> {
    /// The sites that each group flips.
    pub flip: &'a [u32],
    /// The terms of group g are `first[g]..first[g + 1]`.
    pub first: &'a [i32],
    /// The sites that each term looks at.
    pub mask: &'a [u32],
    /// What it wants to see there.
    pub pattern: &'a [u32],
    /// The sites whose local indices make the term's sign.
    pub sign: &'a [u32],
}

/// The terms of an operator, without their values.
#[derive(Debug, Clone)]
pub struct Terms<'a> {
    tables: TermTables<'a>,
    /// What each group flips.
    flips: Vec<Flip>,
    /// For each group that flips many sites, a row of ones for those and zeros for the others.
    masks: Vec<u8>,
    sites: usize,
    words: usize,
    diagonal: bool,
}

/// How many words of 32 bits a row of the tables has.
#[must_use]
pub fn words(sites: usize) -> usize {
    sites.div_ceil(32).max(1)
}

impl<'a> Terms<'a> {
    /// Checks the tables. There are `values` terms; `diagonal` says whether group 0 is the diagonal.
    pub fn new(sites: &Sites, tables: TermTables<'a>, values: usize, diagonal: bool) -> Result<Self, Error> {
        let TermTables { flip, first, mask, pattern, sign } = tables;
        let n_sites = sites.len();
        for site in 0..n_sites {
            let size = sites.states(site).size;
            check(size == 2, || format!("site {site} has {size} local states, but terms are for sites with two"))?;
        }
        check_offsets("first", first, values)?;
        let words = words(n_sites);
        let groups = first.len() - 1;
        check(flip.len() == groups * words, || {
            format!("`flip` has {} words, but {groups} groups have {words} words each", flip.len())
        })?;
        for (name, table) in [("mask", mask), ("pattern", pattern), ("sign", sign)] {
            check(table.len() == values * words, || {
                format!("`{name}` has {} words, but {values} terms have {words} words each", table.len())
            })?;
        }
        for (name, table) in [("flip", flip), ("mask", mask), ("sign", sign)] {
            check_sites(name, table, words, n_sites)?;
        }
        if let Some(word) = pattern.iter().zip(mask).position(|(pattern, mask)| pattern & !mask != 0) {
            return Err(Error::Tables(format!("the pattern of term {} has sites outside its mask", word / words)));
        }
        check(!diagonal || groups > 0, || "there is no group 0, which is that of the diagonal".into())?;
        for (group, row) in flip.chunks_exact(words).enumerate() {
            let flips = row.iter().any(|&word| word != 0);
            check(flips || (diagonal && group == 0), || {
                format!("group {group} flips no site, but only group 0 may, if `diagonal` says so")
            })?;
            check(!(flips && diagonal && group == 0), || "group 0 flips sites, but is that of the diagonal".into())?;
        }
        let mut masks = Vec::new();
        let flips = flip.chunks_exact(words).map(|row| Flip::new(row, n_sites, &mut masks)).collect();
        Ok(Self { tables, flips, masks, sites: n_sites, words, diagonal })
    }

    /// The groups, the diagonal included.
    fn groups(&self) -> usize {
        self.tables.first.len() - 1
    }

    #[inline(always)]
    fn row(&self, table: &'a [u32], index: usize) -> &'a [u32] {
        &table[index * self.words..][..self.words]
    }

    /// The sites that a group flips.
    #[inline(always)]
    fn flipped(&self, group: usize) -> impl Iterator<Item = usize> + use<'a> {
        bits_of_row(self.row(self.tables.flip, group))
    }

    /// Those of `samples` for which a term is active.
    #[inline(always)]
    fn active(&self, term: usize, columns: &[Column], samples: Column) -> Column {
        let pattern = self.row(self.tables.pattern, term);
        let mut active = samples;
        for (word, (&mask, &pattern)) in self.row(self.tables.mask, term).iter().zip(pattern).enumerate() {
            for bit in bits(mask) {
                // All ones where the pattern wants index 0.
                let inverted = u64::from((pattern >> bit) & 1).wrapping_sub(1);
                for (active, &column) in active.iter_mut().zip(&columns[32 * word + bit]) {
                    *active &= column ^ inverted;
                }
            }
        }
        active
    }

    /// The samples in which a term has a minus sign.
    #[inline(always)]
    fn negative(&self, term: usize, columns: &[Column]) -> Column {
        let mut negative = [0; WORDS];
        for (word, &sign) in self.row(self.tables.sign, term).iter().enumerate() {
            for bit in bits(sign) {
                for (negative, &column) in negative.iter_mut().zip(&columns[32 * word + bit]) {
                    *negative ^= column;
                }
            }
        }
        negative
    }

    /// Writes the sum of a group's active terms for each of `samples`, and gives those that have any.
    #[inline(always)]
    fn evaluate<T: MatrixElement>(
        &self,
        group: usize,
        values: &[T],
        columns: &[Column],
        samples: Column,
        sums: &mut [[T; 64]],
    ) -> Column {
        let mut any = if self.diagonal && group == 0 { samples } else { [0; WORDS] };
        sums.as_flattened_mut().fill(T::default());
        let terms = range(self.tables.first, group);
        for (term, &value) in terms.clone().zip(&values[terms]) {
            let active = self.active(term, columns, samples);
            if active == [0; WORDS] {
                continue;
            }
            let negative = self.negative(term, columns);
            for (word, sums) in sums.iter_mut().enumerate() {
                any[word] |= active[word];
                accumulate(sums, value, active[word], negative[word]);
            }
        }
        any
    }

    /// Gives `work` the elements of up to [`BLOCK`] samples group by group: the sites that are flipped, the columns of all
    /// sites, for which samples the matrix element isn't zero, and the matrix elements.
    #[inline(always)]
    pub(crate) fn for_each_group<T: MatrixElement>(
        &self,
        values: &[T],
        indices: &[LocalIndex],
        samples: usize,
        mut work: impl FnMut(&[usize], &[Column], Column, &[[T; 64]]),
    ) {
        let mut columns = vec![[0; WORDS]; self.sites];
        transpose(indices, samples, &mut vec![0; self.sites], &mut columns);
        let mut sums = [[T::default(); 64]; WORDS];
        let mut sites = Vec::new();
        for group in 0..self.groups() {
            let mut active = self.evaluate(group, values, &columns, first_lanes(samples), &mut sums);
            for (active, sums) in active.iter_mut().zip(&sums) {
                for (lane, &sum) in sums.iter().enumerate() {
                    *active &= !(u64::from(sum == T::default()) << lane);
                }
            }
            if active != [0; WORDS] {
                sites.clear();
                sites.extend(self.flipped(group));
                work(&sites, &columns, active, &sums);
            }
        }
    }

    /// As [`Form::for_each_active`].
    #[inline(always)]
    fn sweep<T: MatrixElement>(
        &self,
        values: &[T],
        indices: &[LocalIndex],
        samples: usize,
        part: Part,
        sink: &mut impl Sink<u32, T>,
    ) {
        let diagonal = usize::from(self.diagonal);
        let wanted =
            if part.has_diagonal() { 0 } else { diagonal }..if part.has_others() { self.groups() } else { diagonal };
        let mut columns = vec![[0; WORDS]; self.sites];
        let mut plane = vec![0; self.sites];
        let mut sums = [[[T::default(); 64]; WORDS]; TILE];
        let mut active = [[0; WORDS]; TILE];
        for start in (0..samples).step_by(BLOCK) {
            let len = BLOCK.min(samples - start);
            let words = len.div_ceil(64);
            let all = first_lanes(len);
            transpose(&indices[start * self.sites..][..len * self.sites], len, &mut plane, &mut columns);
            for first in wanted.clone().step_by(TILE) {
                let tile = TILE.min(wanted.end - first);
                for (group, (sums, active)) in sums.iter_mut().zip(&mut active).enumerate().take(tile) {
                    *active = self.evaluate(first + group, values, &columns, all, &mut sums[..words]);
                }
                if active == [all; TILE] && tile == TILE {
                    let groups: [u32; TILE] = std::array::from_fn(|group| (first + group) as u32);
                    for lane in 0..len {
                        let mels: [T; TILE] = std::array::from_fn(|group| sums[group][lane / 64][lane % 64]);
                        sink.extend(start + lane, groups, mels);
                    }
                } else {
                    for (group, (sums, active)) in sums.iter().zip(&active).enumerate().take(tile) {
                        for (word, (sums, &active)) in sums.iter().zip(active).enumerate() {
                            for lane in bits(active) {
                                sink.push(start + 64 * word + lane, (first + group) as u32, sums[lane]);
                            }
                        }
                    }
                }
            }
        }
    }
}

impl Form for Terms<'_> {
    const GRAIN: usize = 16;

    const LANES: usize = BLOCK;

    /// The group.
    type ElementChange = u32;

    fn sites(&self) -> usize {
        self.sites
    }

    fn max_elements(&self) -> usize {
        self.groups()
    }

    fn for_each_active<T: MatrixElement>(
        &self,
        values: &[T],
        indices: &[LocalIndex],
        samples: usize,
        part: Part,
        sink: &mut impl Sink<u32, T>,
    ) {
        vectorized(
            #[inline(always)]
            || self.sweep(values, indices, samples, part, sink),
        );
    }

    #[inline(always)]
    fn write<S: Sample>(&self, _: &LocalStates<S>, sample: &Configuration<S>, group: u32, row: &mut [S]) {
        let Configuration { values, flipped } = sample;
        let flip = &self.flips[group as usize];
        if let Some(sites) = flip.first.get(..flip.count as usize) {
            copy(values, row);
            for &site in sites {
                row[site as usize] = flipped[site as usize];
            }
        } else {
            select(&self.masks[flip.mask..][..self.sites], values, flipped, row);
        }
    }
}

/// An error if a row of bits has sites that don't exist.
fn check_sites(name: &str, table: &[u32], words: usize, sites: usize) -> Result<(), Error> {
    // Only the last word has bits that are no sites.
    let last = sites - 32 * (words - 1);
    let allowed = if last == 32 { u32::MAX } else { (1 << last) - 1 };
    let outside = table.chunks_exact(words).position(|row| row[words - 1] & !allowed != 0);
    check(outside.is_none(), || {
        format!("row {} of `{name}` has a bit that is none of the {sites} sites", outside.unwrap_or_default())
    })
}

#[cfg(test)]
mod tests;
