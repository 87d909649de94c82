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
use crate::connected::{Form, Part, Sink};
use crate::error::{check, check_offsets};
use crate::numbers::{MatrixElement, Sample, copy, vectorized};
use crate::sites::{Configuration, LocalIndex, LocalStates, Sites};
use std::hint::select_unpredictable;
use std::ops::Range;

/// Words of a column.
pub(crate) const WORDS: usize = 4;

/// Samples of a block.
pub const BLOCK: usize = WORDS * 64;

/// One bit for each sample of a block.
pub(crate) type Column = [u64; WORDS];

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

/// Configurations that differ from the sample at more sites than these are written by a mask of all sites.
const FEW: usize = 4;

/// The sites that a group flips.
#[derive(Debug, Clone, Copy)]
struct Flip {
    /// How many.
    count: u32,
    /// The first few of them.
    first: [u32; FEW],
    /// Where the row of this group starts in the masks of all sites, if there are more than a few.
    mask: usize,
}

impl Flip {
    /// The flip of a row of the tables. `masks` has a number for each site of those groups that flip many.
    fn new(row: &[u32], sites: usize, masks: &mut Vec<u8>) -> Self {
        let flipped = || row.iter().enumerate().flat_map(|(word, &flip)| bits(flip).map(move |bit| 32 * word + bit));
        let mut flip =
            Self { count: row.iter().map(|word| word.count_ones()).sum(), first: [0; FEW], mask: masks.len() };
        for (first, site) in flip.first.iter_mut().zip(flipped()) {
            *first = site as u32;
        }
        if flip.count as usize > FEW {
            masks.resize(flip.mask + sites, 0);
            for site in flipped() {
                masks[flip.mask + site] = 1;
            }
        }
        flip
    }
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
        let flip = self.row(self.tables.flip, group).iter().enumerate();
        flip.flat_map(|(word, &flip)| bits(flip).map(move |bit| 32 * word + bit))
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
        let terms = self.tables.first[group] as usize..self.tables.first[group + 1] as usize;
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

/// Terms with their values, to be followed along a chain of configurations that differ on a few sites.
#[derive(Debug, Clone)]
pub struct SparseTerms<'a, V> {
    first: &'a [i32],
    values: &'a [V],
    /// What the terms look at, a word at a time, and where each term's words begin.
    looks: Vec<Look>,
    first_look: Vec<u32>,
    /// The sites that the groups flip, and where those of each begin.
    flips: Vec<u32>,
    first_flip: Vec<u32>,
    /// For each site the terms that look at it, and their groups.
    of_site: Vec<Vec<(u32, u32)>>,
}

/// What a term looks at in a word of the configuration.
#[derive(Debug, Clone, Copy)]
struct Look {
    word: u32,
    mask: u32,
    pattern: u32,
    sign: u32,
}

impl<'a, V: MatrixElement> SparseTerms<'a, V> {
    /// Of these terms, which have as many values.
    #[must_use]
    pub fn new(terms: &Terms<'a>, values: &'a [V]) -> Self {
        let TermTables { first, mask, pattern, sign, .. } = terms.tables;
        let (mut looks, mut first_look) = (Vec::new(), vec![0]);
        let (mut flips, mut first_flip) = (Vec::new(), vec![0]);
        let mut of_site = vec![Vec::new(); terms.sites];
        for group in 0..terms.groups() {
            for term in first[group] as u32..first[group + 1] as u32 {
                let rows = [mask, pattern, sign].map(|table| terms.row(table, term as usize));
                for word in (0..terms.words).filter(|&word| rows[0][word] | rows[2][word] != 0) {
                    let [mask, pattern, sign] = rows.map(|row| row[word]);
                    looks.push(Look { word: word as u32, mask, pattern, sign });
                    for bit in bits(mask | sign) {
                        of_site[32 * word + bit].push((term, group as u32));
                    }
                }
                first_look.push(looks.len() as u32);
            }
            flips.extend(terms.flipped(group).map(|site| site as u32));
            first_flip.push(flips.len() as u32);
        }
        Self { first, values, looks, first_look, flips, first_flip, of_site }
    }

    /// How many terms there are.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// How many groups.
    #[inline(always)]
    pub(crate) fn groups(&self) -> usize {
        self.first.len() - 1
    }

    /// The terms of a group.
    #[inline(always)]
    pub(crate) fn of_group(&self, group: usize) -> Range<usize> {
        self.first[group] as usize..self.first[group + 1] as usize
    }

    /// The sites that a group flips.
    #[inline(always)]
    pub(crate) fn sites(&self, group: usize) -> &[u32] {
        &self.flips[self.first_flip[group] as usize..self.first_flip[group + 1] as usize]
    }

    /// The terms that look at a site, and their groups.
    #[inline(always)]
    pub(crate) fn of_site(&self, site: usize) -> &[(u32, u32)] {
        &self.of_site[site]
    }

    /// What a term adds to the matrix element of its group, at a configuration given as words of bits.
    #[inline(always)]
    pub(crate) fn part(&self, term: usize, words: &[u32]) -> V {
        let mut odd = 0;
        for look in &self.looks[self.first_look[term] as usize..self.first_look[term + 1] as usize] {
            let word = words[look.word as usize];
            if word & look.mask != look.pattern {
                return V::default();
            }
            odd ^= word & look.sign;
        }
        if odd.count_ones() % 2 == 1 { self.values[term].negated() } else { self.values[term] }
    }
}

/// Writes `flipped` where the mask has ones, and `values` where it has zeros.
#[inline(always)]
fn select<S: Copy>(mask: &[u8], values: &[S], flipped: &[S], row: &mut [S]) {
    // As many sites as make a vector or two.
    match size_of::<S>() {
        1 => select_parts::<S, 32>(mask, values, flipped, row),
        2 => select_parts::<S, 16>(mask, values, flipped, row),
        _ => select_parts::<S, 8>(mask, values, flipped, row),
    }
}

/// As [`select`], in parts of `N` sites, the last one of which overlaps with the one before.
#[inline(always)]
fn select_parts<S: Copy, const N: usize>(mask: &[u8], values: &[S], flipped: &[S], row: &mut [S]) {
    if let Some(last) = mask.len().checked_sub(N) {
        for start in (0..last).step_by(N) {
            select_part::<S, N>(&mask[start..], &values[start..], &flipped[start..], &mut row[start..]);
        }
        select_part::<S, N>(&mask[last..], &values[last..], &flipped[last..], &mut row[last..]);
    } else {
        for (to, ((&mask, &value), &flipped)) in row.iter_mut().zip(mask.iter().zip(values).zip(flipped)) {
            *to = select_unpredictable(mask == 0, value, flipped);
        }
    }
}

/// As [`select`], for the first `N` sites. A loop over arrays becomes a few vector instructions; closures do not.
#[inline(always)]
fn select_part<S: Copy, const N: usize>(mask: &[u8], values: &[S], flipped: &[S], row: &mut [S]) {
    if let (Some(mask), Some(values), Some(flipped), Some(row)) =
        (mask.first_chunk::<N>(), values.first_chunk::<N>(), flipped.first_chunk::<N>(), row.first_chunk_mut::<N>())
    {
        for site in 0..N {
            row[site] = select_unpredictable(mask[site] == 0, values[site], flipped[site]);
        }
    }
}

/// The numbers of the bits that are set.
#[inline(always)]
pub(crate) fn bits(word: impl Into<u64>) -> impl Iterator<Item = usize> {
    let mut word = word.into();
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
        lanes @ 0..64 => (1 << lanes) - 1,
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
    let signed = |lane| if (negative >> lane) & 1 == 0 { value } else { value.negated() };
    if active == u64::MAX {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum = sum.plus(signed(lane));
        }
    } else {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum = if (active >> lane) & 1 == 0 { *sum } else { sum.plus(signed(lane)) };
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
mod tests {
    use super::*;
    use crate::connected::testing::{
        Element, Mistake, Operator, SPIN, boson, check_mistakes, compare, damage, odd_number, random_samples,
    };
    use proptest::collection::vec;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    #[derive(Debug, Clone)]
    struct Owned {
        sites: Sites,
        flip: Vec<u32>,
        first: Vec<i32>,
        mask: Vec<u32>,
        pattern: Vec<u32>,
        sign: Vec<u32>,
        values: Vec<i8>,
        diagonal: bool,
    }

    impl Operator for Owned {
        fn form(&self) -> Result<impl Form, Error> {
            let Self { flip, first, mask, pattern, sign, .. } = self;
            let tables = TermTables { flip, first, mask, pattern, sign };
            Terms::new(&self.sites, tables, self.values.len(), self.diagonal)
        }

        fn sites(&self) -> &Sites {
            &self.sites
        }

        fn values(&self) -> &[i8] {
            &self.values
        }

        fn elements<T: MatrixElement>(&self, values: &[T], sample: &[LocalIndex]) -> Vec<Element<T>> {
            let sigma = packed(sample);
            let row = |table: &'_ [u32], number: usize| table[number * sigma.len()..][..sigma.len()].to_vec();
            let mut elements = Vec::new();
            for (group, terms) in self.first.windows(2).enumerate() {
                let (mut mel, mut active) = (T::default(), self.diagonal && group == 0);
                let terms = terms[0] as usize..terms[1] as usize;
                for (term, &value) in terms.clone().zip(&values[terms]) {
                    if and(&sigma, &row(&self.mask, term)) == row(&self.pattern, term) {
                        let ones: u32 = and(&sigma, &row(&self.sign, term)).iter().map(|word| word.count_ones()).sum();
                        mel = mel.plus(if ones.is_multiple_of(2) { value } else { value.negated() });
                        active = true;
                    }
                }
                if active {
                    let flip = row(&self.flip, group);
                    let flipped = |(site, &index)| index ^ (flip[site / 32] >> (site % 32) & 1) as LocalIndex;
                    elements.push(Element { mel, indices: sample.iter().enumerate().map(flipped).collect() });
                }
            }
            elements
        }
    }

    impl Owned {
        /// No terms.
        fn empty(sites: Sites, diagonal: bool) -> Self {
            let [flip, mask, pattern, sign] = [const { Vec::new() }; 4];
            Self { sites, flip, first: vec![0], mask, pattern, sign, values: Vec::new(), diagonal }
        }
    }

    /// A row of the tables.
    fn packed(indices: &[LocalIndex]) -> Vec<u32> {
        let mut row = vec![0; words(indices.len())];
        for (site, &index) in indices.iter().enumerate() {
            row[site / 32] |= u32::from(index) << (site % 32);
        }
        row
    }

    fn and(a: &[u32], b: &[u32]) -> Vec<u32> {
        a.iter().zip(b).map(|(a, b)| a & b).collect()
    }

    /// A few sites or many, `least` or more.
    fn some_sites(rng: &mut StdRng, sites: usize, least: usize) -> Vec<u32> {
        let most = if rng.random() { 3 } else { 2 * sites };
        let mut chosen = vec![0; sites];
        for _ in 0..rng.random_range(least..=most) {
            chosen[rng.random_range(0..sites)] = 1;
        }
        packed(&chosen)
    }

    fn spins(sites: usize) -> Sites {
        Sites::new(sites, vec![SPIN], &[]).expect("sites of one kind")
    }

    fn two_and_three_states() -> Sites {
        Sites::new(2, vec![boson(2), boson(3)], &[0, 1]).expect("sites of two kinds")
    }

    /// Spins and bosons; the third kind is that of no site.
    fn spins_and_bosons(rng: &mut StdRng, sites: usize) -> Sites {
        let kind: Vec<_> = (0..sites).map(|_| rng.random_range(0..2)).collect();
        Sites::new(sites, vec![SPIN, boson(2), boson(3)], &kind).expect("sites of two kinds")
    }

    /// Terms of which each is active for at least one of the samples, and for all if `always`.
    fn random_terms(rng: &mut StdRng, sites: Sites, samples: &[Vec<LocalIndex>], groups: usize, always: bool) -> Owned {
        let (n, no_sites) = (sites.len(), vec![0; words(sites.len())]);
        let diagonal = groups > 0 && rng.random();
        let mut all = Owned::empty(sites, diagonal);
        for group in 0..groups {
            let on_diagonal = diagonal && group == 0;
            all.flip.extend(if on_diagonal { no_sites.clone() } else { some_sites(rng, n, 1) });
            for _ in 0..rng.random_range(usize::from(always)..4) {
                let mask = if always { no_sites.clone() } else { some_sites(rng, n, 0) };
                all.pattern.extend(and(&mask, &packed(&samples[rng.random_range(0..samples.len())])));
                all.mask.extend(mask);
                all.sign.extend(some_sites(rng, n, 0));
                all.values.push(rng.random_range(-2..=2));
            }
            all.first.push(all.values.len() as i32);
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn elements_by_definition(
            sites in 1_usize..=70, samples in 1_usize..=300, groups in 0_usize..=20,
            always: bool, mixed: bool, seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let sites = if mixed { spins_and_bosons(rng, sites) } else { spins(sites) };
            let samples = random_samples(rng, &sites, samples);
            let terms = random_terms(rng, sites, &samples, groups, always);
            compare(&terms, &samples).expect("valid tables");
        }
    }

    proptest! {
        /// Tables with a few wrong numbers are an error, or else still an operator.
        #[test]
        fn damaged_tables(sites in 1_usize..=40, groups in 0_usize..=4, damages in 1..=2, seed: u64) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let sites = spins_and_bosons(rng, sites);
            let samples = random_samples(rng, &sites, 5);
            let mut terms = random_terms(rng, sites, &samples, groups, false);
            for _ in 0..damages {
                let (word, number) = (1 << rng.random_range(0..32), odd_number(rng));
                match rng.random_range(0..7) {
                    0 => damage(rng, &mut terms.flip, word),
                    1 => damage(rng, &mut terms.first, number),
                    2 => damage(rng, &mut terms.mask, word),
                    3 => damage(rng, &mut terms.pattern, word),
                    4 => damage(rng, &mut terms.sign, word),
                    5 => damage(rng, &mut terms.values, 1),
                    _ => terms.diagonal ^= true,
                }
            }
            let _ = compare(&terms, &samples);
        }

        /// As above, with tables that were never those of an operator.
        #[test]
        fn arbitrary_tables(
            sites in 0_usize..40, [flip, mask, pattern, sign] in [(); 4].map(|()| vec(0_u32..4, 0..4)),
            first in vec(-1_i32..4, 0..4), values in vec(-2_i8..=2, 0..4), diagonal: bool, seed: u64
        ) {
            let sites = spins(sites);
            let samples = random_samples(&mut StdRng::seed_from_u64(seed), &sites, 5);
            let _ = compare(&Owned { sites, flip, first, mask, pattern, sign, values, diagonal }, &samples);
        }
    }

    /// (1 - σᶻ₀) on the diagonal, and σ⁺₀ σ⁻₁ on two sites.
    fn example() -> Owned {
        Owned {
            sites: spins(2),
            flip: vec![0b00, 0b11],
            first: vec![0, 2, 3],
            mask: vec![0b00, 0b00, 0b11],
            pattern: vec![0b00, 0b00, 0b01],
            sign: vec![0b00, 0b01, 0b00],
            values: vec![1, -1, 5],
            diagonal: true,
        }
    }

    #[test]
    fn an_example() {
        let elements = |sample: [LocalIndex; 2]| {
            let elements = example().elements(&[1, -1, 5], &sample);
            elements.into_iter().map(|element| (element.mel, element.indices)).collect::<Vec<_>>()
        };
        assert_eq!(elements([0, 1]), [(0, vec![0, 1])]);
        assert_eq!(elements([1, 0]), [(2, vec![1, 0]), (5, vec![0, 1])]);
        let samples = [[0, 0], [0, 1], [1, 0], [1, 1]].map(Vec::from);
        compare(&example(), &samples).expect("valid tables");
        compare(&example(), &[]).expect("valid tables");
    }

    #[test]
    fn no_sites() {
        let (sites, zeros) = (spins(0), vec![0, 0]);
        let constants = Owned { sites, flip: vec![0], first: vec![0, 2], mask: zeros.clone(), ..example() };
        let constants = Owned { pattern: zeros.clone(), sign: zeros, values: vec![1, 2], ..constants };
        compare(&constants, &[vec![], vec![]]).expect("valid tables");
    }

    #[test]
    fn all_groups_but_one_are_always_active() {
        let sites = spins(2 * TILE);
        let samples = random_samples(&mut StdRng::seed_from_u64(1), &sites, 70);
        for exception in 0..2 * TILE {
            let mut terms = Owned::empty(sites.clone(), false);
            for group in 0..2 * TILE {
                terms.flip.push(1 << group);
                terms.first.push(group as i32 + 1);
                terms.mask.push(u32::from(group == exception));
                terms.values.push(group as i8 - 3);
            }
            [terms.pattern, terms.sign] = [(); 2].map(|()| vec![0; 2 * TILE]);
            compare(&terms, &samples).expect("valid tables");
        }
    }

    #[test]
    fn wrong_tables() {
        let mistakes: &[Mistake<Owned>] = &[
            (
                |terms| terms.sites = two_and_three_states(),
                "site 1 has 3 local states, but terms are for sites with two",
            ),
            (|terms| terms.first.clear(), "`first` is empty, but has one number more than it has ranges"),
            (|terms| terms.first[0] = 1, "`first` begins with 1, not with 0"),
            (|terms| terms.first[2] = 4, "`first` ends with 4, not with 3"),
            (|terms| terms.first[2] = -1, "`first` ends with -1, not with 3"),
            (|terms| terms.first[1] = 4, "`first` falls after index 1"),
            (|terms| terms.flip.push(1), "`flip` has 3 words, but 2 groups have 1 words each"),
            (|terms| terms.mask.truncate(2), "`mask` has 2 words, but 3 terms have 1 words each"),
            (|terms| terms.pattern.clear(), "`pattern` has 0 words, but 3 terms have 1 words each"),
            (|terms| terms.sign.push(0), "`sign` has 4 words, but 3 terms have 1 words each"),
            (|terms| terms.flip[1] = 0b100, "row 1 of `flip` has a bit that is none of the 2 sites"),
            (|terms| terms.mask[0] = 0b100, "row 0 of `mask` has a bit that is none of the 2 sites"),
            (|terms| terms.sign[2] = 1 << 31, "row 2 of `sign` has a bit that is none of the 2 sites"),
            (|terms| terms.pattern[1] = 1, "the pattern of term 1 has sites outside its mask"),
            (|terms| *terms = Owned::empty(spins(2), true), "there is no group 0, which is that of the diagonal"),
            (|terms| terms.diagonal = false, "group 0 flips no site, but only group 0 may, if `diagonal` says so"),
            (|terms| terms.flip[0] = 1, "group 0 flips sites, but is that of the diagonal"),
        ];
        check_mistakes(example, mistakes);
    }
}
