//! How chains propose to move, on sites with two local states.
//!
//! The rules are those of `NetKet`'s samplers: `LocalRule`, `ExchangeRule`, of which `FermionHopRule` is one, and
//! `HamiltonianRule`.

use crate::Error;
use crate::connected::terms::SparseTerms;
use crate::error::check;
use crate::numbers::Weight;
use crate::sites::LocalIndex;
use rand::{Rng, RngExt};
use std::hint::select_unpredictable;

/// Proposes moves of one chain.
pub trait Rule {
    /// Goes to a configuration of local indices.
    fn visit(&mut self, indices: &[LocalIndex]);

    /// Adds the sites that are to be flipped, and gives T(σ' → σ) / T(σ → σ'); `None` if there is no move.
    fn propose(&mut self, rng: &mut impl Rng, sites: &mut Vec<u32>) -> Option<f64>;

    /// Goes where it has proposed to, which is elsewhere.
    fn accept(&mut self);

    /// Stays where it is.
    fn reject(&mut self);
}

/// Flips one site, all being as likely.
#[derive(Debug, Clone)]
pub struct Local {
    sites: u32,
}

impl Local {
    /// On so many sites.
    #[must_use]
    pub fn new(sites: usize) -> Self {
        Self { sites: sites as u32 }
    }
}

impl Rule for Local {
    fn visit(&mut self, _: &[LocalIndex]) {}

    #[inline(always)]
    fn propose(&mut self, rng: &mut impl Rng, sites: &mut Vec<u32>) -> Option<f64> {
        if self.sites == 0 {
            return None;
        }
        sites.push(rng.random_range(0..self.sites));
        Some(1.0)
    }

    fn accept(&mut self) {}

    fn reject(&mut self) {}
}

/// Some of the numbers below a bound, of which each can be had by its place.
#[derive(Debug, Clone, Default)]
struct Members {
    len: u32,
    /// Those that belong, and then others.
    list: Vec<u32>,
    /// Where in the list each number is that belongs.
    place: Vec<u32>,
}

impl Members {
    const ABSENT: u32 = u32::MAX;

    /// Makes it those that `belongs` says.
    fn set(&mut self, bound: usize, belongs: impl Fn(usize) -> bool) {
        self.len = 0;
        self.list.clear();
        self.list.resize(bound, 0);
        self.place.clear();
        self.place.resize(bound, Self::ABSENT);
        for number in (0..bound).filter(|&number| belongs(number)) {
            self.toggle(number as u32);
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        self.list[..self.len as usize].iter().copied()
    }

    #[inline(always)]
    fn contains(&self, number: u32) -> bool {
        self.place[number as usize] != Self::ABSENT
    }

    /// Adds a number that isn't there, or takes it away: the last one of the list takes its place. Both are the same
    /// instructions, since a branch would be guessed wrong half of the time.
    #[inline(always)]
    fn toggle(&mut self, number: u32) {
        let present = self.contains(number);
        let len = self.len - u32::from(present);
        let place = select_unpredictable(present, self.place[number as usize], len);
        let last = self.list[len as usize];
        let moved = select_unpredictable(present, last, number);
        self.list[place as usize] = moved;
        self.place[moved as usize] = place;
        self.place[number as usize] = select_unpredictable(present, Self::ABSENT, place);
        self.len = len + u32::from(!present);
    }

    /// One of them, all being as likely; `None` if there is none.
    #[inline(always)]
    fn any(&self, rng: &mut impl Rng) -> Option<u32> {
        (self.len > 0).then(|| self.list[rng.random_range(0..self.len) as usize])
    }
}

/// The pairs of sites that [`Exchange`] may exchange.
#[derive(Debug, Clone)]
pub struct Clusters {
    pairs: Vec<[u32; 2]>,
    /// How likely each is, compared with others; nothing if all are alike.
    weights: Vec<f64>,
    /// For each site the pairs with another one, and that one.
    of_site: Vec<Vec<(u32, u32)>>,
}

impl Clusters {
    /// Checks the pairs, and their weights if there are any.
    pub fn new(sites: usize, pairs: &[i32], weights: &[f64]) -> Result<Self, Error> {
        let (pairs, rest) = pairs.as_chunks::<2>();
        check(rest.is_empty(), || "a cluster has two sites".into())?;
        check(weights.is_empty() || weights.len() == pairs.len(), || {
            format!("there are {} probabilities, but {} clusters", weights.len(), pairs.len())
        })?;
        check(weights.iter().all(|&weight| weight > 0.0 && weight.is_finite()), || {
            "a probability isn't positive, or no number".into()
        })?;
        let mut of_site = vec![Vec::new(); sites];
        for (edge, &ends) in pairs.iter().enumerate() {
            if !ends.iter().all(|&end| usize::try_from(end).is_ok_and(|end| end < sites)) {
                return Err(Error::EdgeOutOfRange { edge, ends, sites });
            }
            if ends[0] != ends[1] {
                let [a, b] = ends.map(|end| end as u32);
                of_site[a as usize].push((edge as u32, b));
                of_site[b as usize].push((edge as u32, a));
            }
        }
        Ok(Self {
            pairs: pairs.iter().map(|pair| pair.map(|end| end as u32)).collect(),
            weights: weights.to_vec(),
            of_site,
        })
    }

    fn weight(&self, pair: u32) -> f64 {
        self.weights.get(pair as usize).copied().unwrap_or(1.0)
    }
}

/// Exchanges two sites of a cluster, one of those in which they differ.
#[derive(Debug, Clone)]
pub struct Exchange<'a> {
    clusters: &'a Clusters,
    /// The clusters whose sites differ.
    differing: Members,
    /// The sum of their weights.
    total: f64,
    /// Those that join or leave if the proposed move is accepted.
    toggled: Vec<u32>,
}

impl<'a> Exchange<'a> {
    /// Of these clusters.
    #[must_use]
    pub fn new(clusters: &'a Clusters) -> Self {
        Self { clusters, differing: Members::default(), total: 0.0, toggled: Vec::new() }
    }

    fn sum(&mut self) {
        self.total = self.differing.iter().map(|pair| self.clusters.weight(pair)).sum();
    }

    /// One of the clusters whose sites differ.
    #[inline(always)]
    fn any(&self, rng: &mut impl Rng) -> Option<u32> {
        if self.clusters.weights.is_empty() {
            return self.differing.any(rng);
        }
        let mut rest = rng.random::<f64>() * self.total;
        let found = self.differing.iter().find(|&pair| {
            rest -= self.clusters.weight(pair);
            rest < 0.0
        });
        found.or_else(|| self.differing.iter().last())
    }
}

impl Rule for Exchange<'_> {
    fn visit(&mut self, indices: &[LocalIndex]) {
        let pairs = &self.clusters.pairs;
        self.differing.set(pairs.len(), |pair| {
            let [a, b] = pairs[pair];
            indices[a as usize] != indices[b as usize]
        });
        self.sum();
    }

    #[inline(always)]
    fn propose(&mut self, rng: &mut impl Rng, sites: &mut Vec<u32>) -> Option<f64> {
        let pair = self.any(rng)?;
        let [a, b] = self.clusters.pairs[pair as usize];
        sites.extend([a, b]);
        self.toggled.clear();
        let (mut joining, mut weight) = (0, 0.0);
        // Both sites change, so a cluster of the two stays as it is, and one of either with a third site doesn't.
        for (site, partner) in [(a, b), (b, a)] {
            for &(other, end) in &self.clusters.of_site[site as usize] {
                if end != partner {
                    let sign = 1 - 2 * i32::from(self.differing.contains(other));
                    joining += sign;
                    if let Some(&of_other) = self.clusters.weights.get(other as usize) {
                        weight += f64::from(sign) * of_other;
                    }
                    self.toggled.push(other);
                }
            }
        }
        let change = if self.clusters.weights.is_empty() { joining.into() } else { weight };
        let total = self.total + change;
        Some(self.total / total)
    }

    #[inline(always)]
    fn accept(&mut self) {
        for &pair in &self.toggled {
            self.differing.toggle(pair);
        }
        if self.clusters.weights.is_empty() {
            self.total = self.differing.len.into();
        } else {
            // Anew, so that no error adds up.
            self.sum();
        }
    }

    fn reject(&mut self) {}
}

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

impl<V: Weight> Rule for Hamiltonian<'_, V> {
    fn visit(&mut self, indices: &[LocalIndex]) {
        let Self { terms, state: State { bits, parts }, .. } = self;
        bits.clear();
        bits.resize(crate::connected::terms::words(indices.len()), 0);
        let second = (0..indices.len()).filter(|&site| indices[site] == 1);
        Self::flip(bits, &second.map(|site| site as u32).collect::<Vec<_>>());
        parts.clear();
        parts.extend((0..terms.len()).map(|term| terms.part(term, bits)));
        self.nonzero.set(terms.groups(), |group| Self::is_nonzero(terms, parts, group));
        self.listed.clear();
        self.listed.resize(terms.groups(), false);
    }

    fn propose(&mut self, rng: &mut impl Rng, sites: &mut Vec<u32>) -> Option<f64> {
        let Self { terms, state: State { bits, parts }, nonzero, changed, groups, listed, toggled, .. } = self;
        let group = nonzero.any(rng)?;
        sites.extend_from_slice(terms.sites(group as usize));
        self.sites.clone_from(sites);
        changed.clear();
        groups.clear();
        toggled.clear();
        Self::flip(bits, sites);
        for &site in &*sites {
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
    use super::*;
    use crate::connected::terms::{TermTables, Terms};
    use crate::connected::testing::SPIN;
    use crate::sites::Sites;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use std::collections::HashMap;

    /// Has a rule move at random, and compares what it does with the moves that it should choose from at each
    /// configuration: the sites that are flipped, and the weight.
    fn compare(
        rule: &mut impl Rule,
        rng: &mut StdRng,
        mut indices: Vec<LocalIndex>,
        moves: impl Fn(&[LocalIndex]) -> Vec<(Vec<u32>, f64)>,
    ) {
        rule.visit(&indices);
        for _ in 0..60 {
            let mut sites = Vec::new();
            let here = moves(&indices);
            let Some(correction) = rule.propose(rng, &mut sites) else {
                assert!(here.is_empty());
                return;
            };
            sites.sort_unstable();
            assert!(here.iter().any(|(flipped, _)| *flipped == sites), "{sites:?} is no move");
            let mut there = indices.clone();
            for &site in &sites {
                there[site as usize] ^= 1;
            }
            let total = |moves: &[(Vec<u32>, f64)]| moves.iter().fold(0.0, |total, (_, weight)| total + weight);
            let expected = total(&here) / total(&moves(&there));
            assert!(correction == expected || (correction / expected - 1.0).abs() < 1e-12, "{correction} {expected}");
            if rng.random() {
                rule.reject();
            } else if !sites.is_empty() {
                rule.accept();
                indices = there;
            }
        }
    }

    fn indices(rng: &mut StdRng, sites: usize) -> Vec<LocalIndex> {
        (0..sites).map(|_| rng.random_range(0..2)).collect()
    }

    proptest! {
        #[test]
        fn exchanges(sites in 1_usize..=9, pairs in 0_usize..=12, weighted: bool, seed: u64) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let pairs: Vec<i32> = (0..2 * pairs).map(|_| rng.random_range(0..sites as i32)).collect();
            let weights: Vec<f64> =
                if weighted { (0..pairs.len() / 2).map(|_| rng.random_range(0.1..3.0)).collect() } else { Vec::new() };
            let clusters = Clusters::new(sites, &pairs, &weights).expect("pairs of sites");
            let indices = indices(rng, sites);
            compare(&mut Exchange::new(&clusters), rng, indices, |indices| {
                let pairs = pairs.as_chunks::<2>().0.iter().enumerate();
                let differing = pairs.filter(|(_, pair)| indices[pair[0] as usize] != indices[pair[1] as usize]);
                let sorted = |[a, b]: [i32; 2]| vec![a.min(b) as u32, a.max(b) as u32];
                differing.map(|(place, &pair)| (sorted(pair), weights.get(place).copied().unwrap_or(1.0))).collect()
            });
        }

        #[test]
        fn connected_configurations(sites in 1_usize..=40, groups in 0_usize..=8, seed: u64) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let words = crate::connected::terms::words(sites);
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
            let start = indices(rng, sites);
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
                    .map(|group| ((0..sites as u32).filter(|&s| bit(&row(&flip, group), s as usize) == 1).collect(), 1.0))
                    .collect()
            });
        }
    }

    /// How often each cluster is chosen at one configuration.
    #[test]
    fn clusters_are_as_likely_as_their_weights() {
        let pairs = [0, 1, 1, 2, 2, 3, 0, 3];
        for weights in [&[][..], &[1.0, 2.0, 3.0, 4.0]] {
            let clusters = Clusters::new(4, &pairs, weights).expect("pairs of sites");
            let mut rule = Exchange::new(&clusters);
            rule.visit(&[0, 1, 1, 0]); // 1 and 2 are alike, and so are 0 and 3
            let rng = &mut StdRng::seed_from_u64(1);
            let mut counts = HashMap::new();
            for _ in 0..20_000 {
                let mut sites = Vec::new();
                rule.propose(rng, &mut sites).expect("some differ");
                *counts.entry(sites).or_insert(0) += 1;
            }
            let share = f64::from(counts[&vec![0, 1]]) / 20_000.0;
            let expected = if weights.is_empty() { 0.5 } else { 0.25 };
            assert_eq!(counts.len(), 2);
            assert!((share - expected).abs() < 0.015, "{share}");
        }
    }

    #[test]
    fn sites_are_all_as_likely() {
        let rng = &mut StdRng::seed_from_u64(1);
        let mut counts = [0; 5];
        for _ in 0..50_000 {
            let mut sites = Vec::new();
            assert_eq!(Local::new(5).propose(rng, &mut sites), Some(1.0));
            counts[sites[0] as usize] += 1;
        }
        assert!(counts.iter().all(|&count: &i32| (count - 10_000).abs() < 400), "{counts:?}");
        assert_eq!(Local::new(0).propose(rng, &mut Vec::new()), None);
    }

    #[test]
    fn wrong_clusters() {
        let message = |sites, pairs: &[i32], weights: &[f64]| {
            Clusters::new(sites, pairs, weights).expect_err("wrong clusters").to_string()
        };
        assert!(message(3, &[0, 1, 2], &[]).contains("a cluster has two sites"));
        assert!(message(3, &[0, 1, 1, 3], &[]).contains("edge 1 joins the sites 1 and 3, but there are 3 sites"));
        assert!(message(3, &[0, -1], &[]).contains("edge 0 joins the sites 0 and -1"));
        assert!(message(3, &[0, 1], &[1.0, 2.0]).contains("2 probabilities, but 1 clusters"));
        assert!(message(3, &[0, 1], &[0.0]).contains("a probability isn't positive"));
        assert!(message(3, &[0, 1], &[f64::NAN]).contains("a probability isn't positive"));
    }
}
