//! What the tests of the rules have in common.

use super::TransitionRule;
use crate::sites::LocalIndex;
use rand::RngExt;
use rand::rngs::StdRng;

/// Has a rule move at random, and compares what it does with the moves that it should choose from at each
/// configuration: the sites that are flipped, and the weight.
pub(super) fn compare(
    rule: &mut impl TransitionRule,
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

pub(super) fn indices(rng: &mut StdRng, sites: usize) -> Vec<LocalIndex> {
    (0..sites).map(|_| rng.random_range(0..2)).collect()
}
