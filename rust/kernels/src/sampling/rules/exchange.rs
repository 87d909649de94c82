//! Exchanges of two sites.

use super::TransitionRule;
use super::members::Members;
use crate::Error;
use crate::error::{check, index};
use crate::sites::LocalIndex;
use rand::{Rng, RngExt};

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
            if ends.iter().any(|&end| index(end, sites).is_none()) {
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

impl TransitionRule for Exchange<'_> {
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

#[cfg(test)]
mod tests {
    use super::super::testing::{compare, indices};
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use std::collections::HashMap;

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
