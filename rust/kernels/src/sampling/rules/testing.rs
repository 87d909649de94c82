//! What the tests of the rules have in common.

use super::{ProposedChange, TransitionRule};
use crate::sites::LocalIndex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A move, sites ascending with what they become, and its weight.
pub(super) type Move = (Vec<(u32, LocalIndex)>, f64);

/// Has a rule move at random, and compares what it does with the moves that it should choose from at each
/// configuration. What it keeps is as good as what it knows.
pub(super) fn compare<R: TransitionRule + Clone>(
    rule: &mut R,
    rng: &mut StdRng,
    mut indices: Vec<LocalIndex>,
    moves: impl Fn(&[LocalIndex]) -> Vec<Move>,
) {
    let mut other = rule.clone();
    rule.visit(&indices);
    for _ in 0..60 {
        let mut kept = vec![0; rule.kept()];
        rule.keep(&mut kept);
        other.restore(&indices, &kept);
        let (mut change, mut again) = (ProposedChange::default(), ProposedChange::default());
        let here = moves(&indices);
        let [ours, others] = &mut [rng.random(); 2].map(StdRng::seed_from_u64);
        let proposed = rule.propose(ours, &indices, &mut change);
        let expected = other.propose(others, &indices, &mut again);
        assert_eq!((proposed, &change.sites, &change.to), (expected, &again.sites, &again.to));
        let Some(correction) = proposed else {
            assert!(here.is_empty());
            return;
        };
        let mut changed: Vec<(u32, LocalIndex)> = change.sites.iter().copied().zip(change.to.clone()).collect();
        changed.sort_unstable();
        assert!(here.iter().any(|(expected, _)| *expected == changed), "{changed:?} is no move");
        let mut there = indices.clone();
        change.apply(&mut there);
        let total = |moves: &[Move]| moves.iter().fold(0.0, |total, (_, weight)| total + weight);
        let expected = total(&here) / total(&moves(&there));
        assert!(correction == expected || (correction / expected - 1.0).abs() < 1e-12, "{correction} {expected}");
        if rng.random() {
            rule.reject();
        } else if !change.is_empty() {
            rule.accept();
            indices = there;
        }
    }
}

/// Random local indices of sites with so many local states.
pub(super) fn indices(rng: &mut StdRng, sites: usize, states: LocalIndex) -> Vec<LocalIndex> {
    (0..sites).map(|_| rng.random_range(0..states)).collect()
}

/// The tables `first` and `of_site` of clusters.
pub(crate) fn by_site(sites: usize, pairs: &[[i32; 2]]) -> (Vec<i32>, Vec<[i32; 2]>) {
    let mut first = vec![0];
    let mut of_site = Vec::new();
    for site in 0..sites as i32 {
        for (place, &[a, b]) in pairs.iter().enumerate() {
            of_site.extend(
                [(a, b), (b, a)].iter().filter(|(end, _)| *end == site).map(|&(_, other)| [place as i32, other]),
            );
        }
        first.push(of_site.len() as i32);
    }
    (first, of_site)
}
