//! Moves to connected configurations.

use super::members::Members;
use super::{ProposedChange, TransitionRule};
use crate::connected::terms::{SparseTerms, words};
use crate::numbers::Weight;
use crate::sites::LocalIndex;
use rand::Rng;

/// Goes to one of the connected configurations of an operator whose matrix elements aren't zero, all being as likely. The
/// configuration itself is one if its matrix element isn't zero.
#[derive(Debug, Clone)]
pub struct Hamiltonian<'a, V> {
    terms: &'a SparseTerms<'a, V>,
    state: State<V>,
    /// The groups whose matrix elements aren't zero.
    nonzero: Members,
    /// Of the proposed move, what the terms that change were before.
    changed: Vec<(u32, V)>,
    /// The groups with such terms.
    groups: Vec<u32>,
    /// For each group whether it is among those.
    listed: Vec<bool>,
    /// Those that join or leave if the move is accepted.
    toggled: Vec<u32>,
    /// The sites that it flips.
    sites: Vec<u32>,
}

/// A configuration and what the terms of an operator are there.
#[derive(Debug, Clone, Default)]
struct State<V> {
    /// As the bits of words.
    bits: Vec<u32>,
    /// What each term adds to its group's matrix element.
    parts: Vec<V>,
}

impl<'a, V: Weight> Hamiltonian<'a, V> {
    /// Of the operator with these terms.
    #[must_use]
    pub fn new(terms: &'a SparseTerms<'a, V>) -> Self {
        Self {
            terms,
            state: State { bits: Vec::new(), parts: Vec::new() },
            nonzero: Members::default(),
            changed: Vec::new(),
            groups: Vec::new(),
            listed: Vec::new(),
            toggled: Vec::new(),
            sites: Vec::new(),
        }
    }

    #[inline(always)]
    fn flip(bits: &mut [u32], sites: &[u32]) {
        for &site in sites {
            bits[site as usize / 32] ^= 1 << (site % 32);
        }
    }

    /// Whether the matrix element of a group isn't zero. The order of the sum is that of the terms, so that it is the same
    /// whichever way led here.
    #[inline(always)]
    fn is_nonzero(terms: &SparseTerms<'a, V>, parts: &[V], group: usize) -> bool {
        let sum = parts[terms.of_group(group)].iter().fold(V::default(), |sum, &part| sum.plus(part));
        sum != V::default()
    }
}

impl<V: Weight> TransitionRule for Hamiltonian<'_, V> {
    fn visit(&mut self, indices: &[LocalIndex]) {
        let Self { terms, state: State { bits, parts }, .. } = self;
        bits.clear();
        bits.resize(words(indices.len()), 0);
        let second = (0..indices.len()).filter(|&site| indices[site] == 1);
        Self::flip(bits, &second.map(|site| site as u32).collect::<Vec<_>>());
        parts.clear();
        parts.extend((0..terms.len()).map(|term| terms.part(term, bits)));
        self.nonzero.set(terms.groups(), |group| Self::is_nonzero(terms, parts, group));
        self.listed.clear();
        self.listed.resize(terms.groups(), false);
    }

    fn propose(&mut self, rng: &mut impl Rng, indices: &[LocalIndex], change: &mut ProposedChange) -> Option<f64> {
        let Self { terms, state: State { bits, parts }, nonzero, changed, groups, listed, toggled, .. } = self;
        let group = nonzero.any(rng)?;
        for &site in terms.sites(group as usize) {
            change.push(site, indices[site as usize] ^ 1);
        }
        self.sites.clone_from(&change.sites);
        changed.clear();
        groups.clear();
        toggled.clear();
        Self::flip(bits, &change.sites);
        for &site in &change.sites {
            for &(term, group) in terms.of_site(site as usize) {
                let part = terms.part(term as usize, bits);
                let before = std::mem::replace(&mut parts[term as usize], part);
                // A term of several of the sites is found again, and is then as it will be.
                if before != part {
                    changed.push((term, before));
                    if !std::mem::replace(&mut listed[group as usize], true) {
                        groups.push(group);
                    }
                }
            }
        }
        let mut count = nonzero.len;
        for &group in &*groups {
            listed[group as usize] = false;
            match (nonzero.contains(group), Self::is_nonzero(terms, parts, group as usize)) {
                (true, false) => count -= 1,
                (false, true) => count += 1,
                _ => continue,
            }
            toggled.push(group);
        }
        // Of an operator that isn't Hermitian there may be no way back: the ratio is infinite, but NetKet's move is accepted.
        Some(f64::from(nonzero.len) / f64::from(count))
    }

    fn accept(&mut self) {
        for &group in &self.toggled {
            self.nonzero.toggle(group);
        }
    }

    fn reject(&mut self) {
        let State { bits, parts } = &mut self.state;
        Self::flip(bits, &self.sites);
        for &(term, before) in &self.changed {
            parts[term as usize] = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{compare, indices};
    use super::*;
    use crate::connected::terms::{TermTables, Terms};
    use crate::sites::Sites;
    use crate::sites::testing::SPIN;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    proptest! {
        #[test]
        fn connected_configurations(sites in 1_usize..=40, groups in 0_usize..=8, seed: u64) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let words = words(sites);
            let mut some = |at_most: usize| {
                let mut row = vec![0_u32; words];
                for _ in 0..at_most {
                    let site = rng.random_range(0..sites);
                    row[site / 32] |= 1 << (site % 32);
                }
                row
            };
            let mut flip = vec![0; words];
            for _ in 0..groups { flip.extend(some(1 + groups % 3)); }
            let n = 3 * (groups + 1);
            let (mask, sign): (Vec<_>, Vec<_>) = (0..n).map(|term| (some(term % 3), some(term % 2))).unzip();
            let (mask, sign) = (mask.concat(), sign.concat());
            let pattern: Vec<u32> = mask.iter().map(|&mask| mask & rng.random::<u32>()).collect();
            // Small whole numbers, so that sums often are zero.
            let values: Vec<f64> = (0..n).map(|_| f64::from(rng.random_range(-1..=1))).collect();
            let first: Vec<i32> = (0..=groups as i32 + 1).map(|group| 3 * group).collect();
            let of_spins = Sites::new(sites, vec![SPIN], &[]).expect("spins");
            let tables = TermTables { flip: &flip, first: &first, mask: &mask, pattern: &pattern, sign: &sign };
            let terms = Terms::new(&of_spins, tables, n, true).expect("tables");
            let sparse = SparseTerms::new(&terms, &values);
            let start = indices(rng, sites, 2);
            compare(&mut Hamiltonian::new(&sparse), rng, start, |indices| {
                let bit = |row: &[u32], site: usize| row[site / 32] >> (site % 32) & 1;
                let row = |table: &[u32], row: usize| table[row * words..][..words].to_vec();
                let term = |term: usize| {
                    let (mask, pattern, sign) = (row(&mask, term), row(&pattern, term), row(&sign, term));
                    let fits = (0..sites).all(|s| bit(&mask, s) == 0 || bit(&pattern, s) == u32::from(indices[s]));
                    let odd = (0..sites).filter(|&s| bit(&sign, s) == 1 && indices[s] == 1).count() % 2 == 1;
                    if fits { if odd { -values[term] } else { values[term] } } else { 0.0 }
                };
                (0..=groups)
                    .filter(|group| (3 * group..3 * group + 3).map(term).sum::<f64>() != 0.0)
                    .map(|group| {
                        let flipped = (0..sites as u32).filter(|&s| bit(&row(&flip, group), s as usize) == 1);
                        (flipped.map(|site| (site, indices[site as usize] ^ 1)).collect(), 1.0)
                    })
                    .collect()
            });
        }
    }
}
