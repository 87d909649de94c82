//! Exchanges of two sites.

use super::members::Members;
use super::{ProposedChange, TransitionRule};
use crate::Error;
use crate::connected::offsets::{check_offsets, range};
use crate::error::{check, index};
use crate::sites::LocalIndex;
use rand::{Rng, RngExt};

/// The tables of [`Clusters`].
#[derive(Debug, Clone, Copy)]
pub struct ClusterTables<'a> {
    /// The two sites of each cluster.
    pub pairs: &'a [[i32; 2]],
    /// How likely each is, compared with others; nothing if all are alike.
    pub weights: &'a [f64],
    /// The clusters of site i are `first[i]..first[i + 1]` of `of_site`.
    pub first: &'a [i32],
    /// For each site its clusters, and the other site of each.
    pub of_site: &'a [[i32; 2]],
}

/// The pairs of sites that [`Exchange`] may exchange.
#[derive(Debug, Clone, Copy)]
pub struct Clusters<'a> {
    tables: ClusterTables<'a>,
}

impl<'a> Clusters<'a> {
    /// Checks the tables, for so many sites.
    pub fn new(sites: usize, tables: ClusterTables<'a>) -> Result<Self, Error> {
        let ClusterTables { pairs, weights, first, of_site } = tables;
        check(weights.is_empty() || weights.len() == pairs.len(), || {
            format!("there are {} probabilities, but {} clusters", weights.len(), pairs.len())
        })?;
        check(weights.iter().all(|&weight| weight > 0.0 && weight.is_finite()), || {
            "a probability isn't positive, or no number".into()
        })?;
        let outside = pairs.iter().position(|ends| ends.iter().any(|&end| index(end, sites).is_none()));
        if let Some(edge) = outside {
            return Err(Error::EdgeOutOfRange { edge, ends: pairs[edge], sites });
        }
        check(first.len() == sites + 1, || format!("`first` has {} numbers for {sites} sites", first.len()))?;
        check_offsets("first", first, of_site.len())?;
        let belong = |&[pair, end]: &[i32; 2]| index(pair, pairs.len()).is_some() && index(end, sites).is_some();
        check(of_site.iter().all(belong), || "a cluster of a site doesn't exist".into())?;
        Ok(Self { tables })
    }

    /// Takes tables that were checked before; with others a chain panics.
    #[must_use]
    pub fn again(tables: ClusterTables<'a>) -> Self {
        Self { tables }
    }

    /// The clusters of a site, and the other site of each.
    #[inline(always)]
    fn of_site(&self, site: u32) -> impl Iterator<Item = (u32, u32)> {
        let of_site = &self.tables.of_site[range(self.tables.first, site as usize)];
        of_site.iter().map(|&[pair, end]| (pair as u32, end as u32))
    }

    /// The two sites of a cluster.
    #[inline(always)]
    fn pair(&self, pair: u32) -> [u32; 2] {
        self.tables.pairs[pair as usize].map(|end| end as u32)
    }
}

/// Exchanges two sites of a cluster, one of those in which they differ.
#[derive(Debug, Clone)]
pub struct Exchange<'a> {
    clusters: Clusters<'a>,
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
    pub fn new(clusters: Clusters<'a>) -> Self {
        Self { clusters, differing: Members::default(), total: 0.0, toggled: Vec::new() }
    }

    /// Sums the weights anew, so that no error adds up.
    #[inline(always)]
    fn count(&mut self) {
        self.total = if self.clusters.tables.weights.is_empty() {
            self.differing.len.into()
        } else {
            self.differing.iter().map(|pair| self.clusters.tables.weights[pair as usize]).sum()
        };
    }

    /// One of the clusters whose sites differ.
    #[inline(always)]
    fn any(&self, rng: &mut impl Rng) -> Option<u32> {
        if self.clusters.tables.weights.is_empty() {
            return self.differing.any(rng);
        }
        let mut rest = rng.random::<f64>() * self.total;
        let found = self.differing.iter().find(|&pair| {
            rest -= self.clusters.tables.weights[pair as usize];
            rest < 0.0
        });
        found.or_else(|| self.differing.iter().last())
    }
}

impl TransitionRule for Exchange<'_> {
    fn visit(&mut self, indices: &[LocalIndex]) {
        let clusters = self.clusters;
        self.differing.set(clusters.tables.pairs.len(), |pair| {
            let [a, b] = clusters.pair(pair as u32);
            indices[a as usize] != indices[b as usize]
        });
        self.count();
    }

    #[inline(always)]
    fn propose(&mut self, rng: &mut impl Rng, indices: &[LocalIndex], change: &mut ProposedChange) -> Option<f64> {
        let pair = self.any(rng)?;
        let [a, b] = self.clusters.pair(pair);
        let states = [indices[a as usize], indices[b as usize]];
        change.push(a, states[1]);
        change.push(b, states[0]);
        self.toggled.clear();
        let (mut joining, mut weight) = (0, 0.0);
        // Both sites change, so a cluster of the two stays as it is, and so does one of either with a third site whose
        // state is neither of theirs. Of two local states there is no such site.
        for (site, partner) in [(a, b), (b, a)] {
            for (other, end) in self.clusters.of_site(site) {
                if end != partner && end != site && states.contains(&indices[end as usize]) {
                    let sign = 1 - 2 * i32::from(self.differing.contains(other));
                    joining += sign;
                    if let Some(&of_other) = self.clusters.tables.weights.get(other as usize) {
                        weight += f64::from(sign) * of_other;
                    }
                    self.toggled.push(other);
                }
            }
        }
        let change = if self.clusters.tables.weights.is_empty() { joining.into() } else { weight };
        let total = self.total + change;
        Some(self.total / total)
    }

    #[inline(always)]
    fn accept(&mut self) {
        for &pair in &self.toggled {
            self.differing.toggle(pair);
        }
        self.count();
    }

    fn reject(&mut self) {}

    fn kept(&self) -> usize {
        Members::words(self.clusters.tables.pairs.len())
    }

    fn keep(&self, words: &mut [u32]) {
        words.copy_from_slice(self.differing.kept());
    }

    #[inline(always)]
    fn restore(&mut self, _: &[LocalIndex], words: &[u32]) {
        self.differing.restore(words);
        self.count();
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{by_site, compare, indices};
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn exchanges(
            sites in 1_usize..=9, states in 2_u16..=3, pairs in 0_usize..=12, weighted: bool, seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let pairs: Vec<[i32; 2]> = (0..pairs).map(|_| [(); 2].map(|()| rng.random_range(0..sites as i32))).collect();
            let weights: Vec<f64> =
                if weighted { pairs.iter().map(|_| rng.random_range(0.1..3.0)).collect() } else { Vec::new() };
            let (first, of_site) = by_site(sites, &pairs);
            let tables = ClusterTables { pairs: &pairs, weights: &weights, first: &first, of_site: &of_site };
            let clusters = Clusters::new(sites, tables).expect("pairs of sites");
            let indices = indices(rng, sites, states);
            compare(&mut Exchange::new(clusters), rng, indices, |indices| {
                let pairs = pairs.iter().enumerate();
                let differing = pairs.filter(|(_, pair)| indices[pair[0] as usize] != indices[pair[1] as usize]);
                let exchanged = |[a, b]: [i32; 2]| {
                    let (a, b) = (a.min(b) as u32, a.max(b) as u32);
                    vec![(a, indices[b as usize]), (b, indices[a as usize])]
                };
                differing.map(|(place, &pair)| (exchanged(pair), weights.get(place).copied().unwrap_or(1.0))).collect()
            });
        }
    }

    /// How often each cluster is chosen at one configuration.
    #[test]
    fn clusters_are_as_likely_as_their_weights() {
        let pairs = [[0, 1], [1, 2], [2, 3], [0, 3]];
        let (first, of_site) = by_site(4, &pairs);
        for weights in [&[][..], &[1.0, 2.0, 3.0, 4.0]] {
            let tables = ClusterTables { pairs: &pairs, weights, first: &first, of_site: &of_site };
            let clusters = Clusters::new(4, tables).expect("pairs of sites");
            let mut rule = Exchange::new(clusters);
            let indices = [0, 1, 1, 0]; // 1 and 2 are alike, and so are 0 and 3
            rule.visit(&indices);
            let rng = &mut StdRng::seed_from_u64(1);
            let mut counts = HashMap::new();
            for _ in 0..20_000 {
                let mut change = ProposedChange::default();
                rule.propose(rng, &indices, &mut change).expect("some differ");
                *counts.entry(change.sites).or_insert(0) += 1;
            }
            let share = f64::from(counts[&vec![0, 1]]) / 20_000.0;
            let expected = if weights.is_empty() { 0.5 } else { 0.25 };
            assert_eq!(counts.len(), 2);
            assert!((share - expected).abs() < 0.015, "{share}");
        }
    }

    #[test]
    fn wrong_clusters() {
        let message = |pairs: &[[i32; 2]], weights: &[f64], first: &[i32], of_site: &[[i32; 2]]| {
            let tables = ClusterTables { pairs, weights, first, of_site };
            Clusters::new(3, tables).expect_err("wrong clusters").to_string()
        };
        let of_pair = |pair, weights: &[f64]| {
            let (first, of_site) = by_site(3, &[[0, 1]]);
            message(&[pair], weights, &first, &of_site)
        };
        assert!(of_pair([1, 3], &[]).contains("edge 0 joins the sites 1 and 3, but there are 3 sites"));
        assert!(of_pair([0, -1], &[]).contains("edge 0 joins the sites 0 and -1"));
        assert!(of_pair([0, 1], &[1.0, 2.0]).contains("2 probabilities, but 1 clusters"));
        assert!(of_pair([0, 1], &[0.0]).contains("a probability isn't positive"));
        assert!(of_pair([0, 1], &[f64::NAN]).contains("a probability isn't positive"));
        assert!(message(&[[0, 1]], &[], &[0, 1, 2], &[[0, 1], [0, 0]]).contains("first"));
        let no_cluster = message(&[[0, 1]], &[], &[0, 1, 2, 2], &[[0, 1], [1, 0]]);
        assert!(no_cluster.contains("a cluster of a site doesn't exist"));
    }
}
