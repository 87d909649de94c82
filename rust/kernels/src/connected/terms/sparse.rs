//! Terms at one configuration that moves.

use super::columns::bits;
use super::{TermTables, Terms};
use crate::connected::offsets::range;
use crate::numbers::MatrixElement;
use std::ops::Range;

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
            for term in range(first, group) {
                let rows = [mask, pattern, sign].map(|table| terms.row(table, term));
                for word in (0..terms.words).filter(|&word| rows[0][word] | rows[2][word] != 0) {
                    let [mask, pattern, sign] = rows.map(|row| row[word]);
                    looks.push(Look { word: word as u32, mask, pattern, sign });
                    for bit in bits(mask | sign) {
                        of_site[32 * word + bit].push((term as u32, group as u32));
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
        range(self.first, group)
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
