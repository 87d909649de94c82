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
use crate::element::{MatrixElement, Sample};
use crate::elements::Form;
use crate::error::{check, check_offsets};
use crate::local_states::{LocalIndex, LocalStates, Sites};
use crate::simd::vectorized;

/// Words of a column.
const WORDS: usize = 4;

/// Samples of a block.
const BLOCK: usize = WORDS * 64;

/// One bit for each sample of a block.
type Column = [u64; WORDS];

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
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    tables: TermTables<'a>,
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
    /// Checks the tables. There are `values` terms; `diagonal` says that group 0 is the diagonal.
    pub fn new(sites: &Sites, tables: TermTables<'a>, values: usize, diagonal: bool) -> Result<Self, Error> {
        let TermTables { flip, first, mask, pattern, sign } = tables;
        let n_sites = sites.len();
        for site in 0..n_sites {
            let size = sites.states(site).size;
            check(size == 2, || format!("site {site} has {size} local states, but terms are for sites with two"))?;
        }
        let words = words(n_sites);
        let groups = first.len().saturating_sub(1);
        check_offsets("first", first, values)?;
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
        let outside = pattern.iter().zip(mask).position(|(pattern, mask)| pattern & !mask != 0);
        check(outside.is_none(), || {
            format!("the pattern of term {} has sites outside its mask", outside.unwrap_or_default() / words)
        })?;
        check(!diagonal || groups > 0, || "there is no group 0, which is that of the diagonal".into())?;
        for (group, row) in flip.chunks_exact(words).enumerate() {
            let flips = row.iter().any(|&word| word != 0);
            check(flips != (diagonal && group == 0), || {
                if flips {
                    "group 0 flips sites, but is that of the diagonal".into()
                } else {
                    format!("group {group} flips no site, but it is not that of the diagonal")
                }
            })?;
        }
        Ok(Self { tables, sites: n_sites, words, diagonal })
    }

    /// The groups, the diagonal included.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.tables.first.len() - 1
    }

    fn row<'t>(&self, table: &'t [u32], index: usize) -> &'t [u32] {
        &table[index * self.words..][..self.words]
    }

    /// The samples of `active` for which a term is active.
    #[inline(always)]
    fn active(&self, term: usize, columns: &[Column], mut active: Column) -> Column {
        let pattern = self.row(self.tables.pattern, term);
        for (word, (&mask, &pattern)) in self.row(self.tables.mask, term).iter().zip(pattern).enumerate() {
            for bit in bits(mask) {
                let unwanted = u64::from(pattern >> bit & 1).wrapping_sub(1); // all ones if index 0 is wanted
                let column = &columns[32 * word + bit];
                for (active, &column) in active.iter_mut().zip(column) {
                    *active &= column ^ unwanted;
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

    /// As [`Form::for_each_active`].
    #[inline(always)]
    fn sweep<T: MatrixElement>(
        &self,
        values: &[T],
        indices: &[LocalIndex],
        samples: usize,
        off_diagonal_only: bool,
        emit: &mut impl FnMut(usize, u32, T),
    ) {
        let mut columns = vec![[0; WORDS]; self.sites];
        let mut plane = vec![0; self.sites];
        let mut sums = [[T::default(); 64]; WORDS];
        let skipped = usize::from(off_diagonal_only && self.diagonal);
        for start in (0..samples).step_by(BLOCK) {
            let len = BLOCK.min(samples - start);
            transpose(&indices[start * self.sites..][..len * self.sites], len, &mut plane, &mut columns);
            let all = first_lanes(len);
            let words = len.div_ceil(64);
            for group in skipped..self.groups() {
                let mut any = if self.diagonal && group == 0 { all } else { [0; WORDS] };
                for sums in &mut sums[..words] {
                    sums.fill(T::default());
                }
                for term in self.tables.first[group] as usize..self.tables.first[group + 1] as usize {
                    let active = self.active(term, &columns, all);
                    if active == [0; WORDS] {
                        continue;
                    }
                    let negative = self.negative(term, &columns);
                    for (word, sums) in sums[..words].iter_mut().enumerate() {
                        any[word] |= active[word];
                        accumulate(sums, values[term], active[word], negative[word]);
                    }
                }
                for (word, sums) in sums[..words].iter().enumerate() {
                    let mut left = any[word];
                    while left != 0 {
                        let lane = left.trailing_zeros() as usize;
                        left &= left - 1;
                        emit(start + 64 * word + lane, group as u32, sums[lane]);
                    }
                }
            }
        }
    }
}

impl Form for Terms<'_> {
    const GRAIN: usize = 16;

    /// The group.
    type Change = u32;

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
        off_diagonal_only: bool,
        emit: &mut impl FnMut(usize, u32, T),
    ) {
        vectorized(
            #[inline(always)]
            || self.sweep(values, indices, samples, off_diagonal_only, emit),
        );
    }

    fn apply<S: Sample>(&self, states: &LocalStates<S>, indices: &[LocalIndex], group: u32, row: &mut [S]) {
        for (word, &flip) in self.row(self.tables.flip, group as usize).iter().enumerate() {
            for bit in bits(flip) {
                let site = 32 * word + bit;
                row[site] = states.value(site, 1 - indices[site]);
            }
        }
    }
}

/// The numbers of the bits that are set.
#[inline(always)]
fn bits(mut word: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}

/// Ones for the first `len` samples of a block.
fn first_lanes(len: usize) -> Column {
    std::array::from_fn(|word| match len.saturating_sub(64 * word) {
        0 => 0,
        lanes @ 1..64 => (1 << lanes) - 1,
        _ => u64::MAX,
    })
}

/// Turns `samples` rows of local indices into columns.
#[inline(always)]
fn transpose(indices: &[LocalIndex], samples: usize, plane: &mut [u64], columns: &mut [Column]) {
    let sites = plane.len();
    for (word, first) in (0..samples).step_by(64).enumerate() {
        plane.fill(0);
        for lane in 0..64.min(samples - first) {
            for (bits, &index) in plane.iter_mut().zip(&indices[(first + lane) * sites..][..sites]) {
                *bits |= u64::from(index) << lane;
            }
        }
        for (column, &bits) in columns.iter_mut().zip(&*plane) {
            column[word] = bits;
        }
    }
}

/// Adds `value`, or `-value` where `negative`, to the sums where `active`.
#[inline(always)]
fn accumulate<T: MatrixElement>(sums: &mut [T; 64], value: T, active: u64, negative: u64) {
    let opposite = value.negated();
    if active == u64::MAX {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum = sum.plus(if negative >> lane & 1 == 0 { value } else { opposite });
        }
    } else {
        for (lane, sum) in sums.iter_mut().enumerate() {
            let new = sum.plus(if negative >> lane & 1 == 0 { value } else { opposite });
            *sum = if active >> lane & 1 == 0 { *sum } else { new };
        }
    }
}

/// An error if a row of bits has sites that don't exist.
fn check_sites(name: &str, table: &[u32], words: usize, sites: usize) -> Result<(), Error> {
    // Only the last word has bits that are no site: all of them, if there are no sites.
    let last = sites - 32 * (words - 1).min(sites);
    let allowed = if last == 32 { u32::MAX } else { (1 << last) - 1 };
    let outside = table.chunks_exact(words).position(|row| row[words - 1] & !allowed != 0);
    check(outside.is_none(), || {
        format!("row {} of `{name}` has a bit that is none of the {sites} sites", outside.unwrap_or_default())
    })
}
