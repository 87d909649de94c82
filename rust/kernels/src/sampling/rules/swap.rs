//! Exchanges of several pairs of sites at once, within limits.

use super::members::Members;
use super::{ProposedChange, TransitionRule};
use crate::Error;
use crate::connected::offsets::{check_offsets, range};
use crate::error::{check, index};
use crate::sites::LocalIndex;
use rand::{Rng, RngExt};

/// The tables of [`Swaps`].
#[derive(Debug, Clone, Copy)]
pub struct SwapTables<'a> {
    /// Pairs of sites, swap after swap.
    pub pairs: &'a [[i32; 2]],
    /// The pairs of swap s are `first_pair[s]..first_pair[s + 1]`.
    pub first_pair: &'a [i32],
    /// The swaps that depend on site i are `first[i]..first[i + 1]` of `of_site`.
    pub first: &'a [i32],
    /// For each site the swaps that exchange it, or another site of its group.
    pub of_site: &'a [i32],
    /// The group of each site, or -1.
    pub group: &'a [i32],
    /// The smallest and the largest sum of the local indices of each group.
    pub limits: &'a [[i32; 2]],
    /// So many swaps are of the first kind, and those behind them of the second.
    pub first_kind: usize,
    /// How likely a swap of the second kind is proposed, and not one of the first.
    pub probability: f64,
}

/// Swaps: each exchanges the local states of one or more pairs of sites.
#[derive(Debug, Clone, Copy)]
pub struct Swaps<'a> {
    tables: SwapTables<'a>,
}

impl<'a> Swaps<'a> {
    /// Checks the tables, for so many sites.
    pub fn new(sites: usize, tables: SwapTables<'a>) -> Result<Self, Error> {
        let SwapTables { pairs, first_pair, first, of_site, group, limits, first_kind, probability } = tables;
        let outside = pairs.iter().position(|ends| ends.iter().any(|&end| index(end, sites).is_none()));
        if let Some(edge) = outside {
            return Err(Error::EdgeOutOfRange { edge, ends: pairs[edge], sites });
        }
        check_offsets("first_pair", first_pair, pairs.len())?;
        let swaps = first_pair.len() - 1;
        for swap in 0..swaps {
            let mut ends = pairs[range(first_pair, swap)].as_flattened().to_vec();
            ends.sort_unstable();
            check(ends.windows(2).all(|ends| ends[0] != ends[1]), || format!("swap {swap} has a site twice"))?;
        }
        check(first.len() == sites + 1, || format!("`first` has {} numbers for {sites} sites", first.len()))?;
        check_offsets("first", first, of_site.len())?;
        check(of_site.iter().all(|&swap| index(swap, swaps).is_some()), || "a swap of a site doesn't exist".into())?;
        check(group.len() == sites, || format!("there are {} groups of sites, but {sites} sites", group.len()))?;
        check(group.iter().all(|&group| group == -1 || index(group, limits.len()).is_some()), || {
            "a group of a site doesn't exist".into()
        })?;
        check(first_kind <= swaps, || format!("{first_kind} swaps are of the first kind, but there are {swaps}"))?;
        check((0.0..=1.0).contains(&probability), || format!("{probability} is no probability"))?;
        Ok(Self { tables })
    }

    /// Takes tables that were checked before; with others a chain panics.
    #[must_use]
    pub fn again(tables: SwapTables<'a>) -> Self {
        Self { tables }
    }

    /// How many swaps there are of each kind.
    fn numbers(&self) -> [usize; 2] {
        let SwapTables { first_pair, first_kind, .. } = self.tables;
        [first_kind, first_pair.len() - 1 - first_kind]
    }

    /// The kind of a swap, and its number among those of this kind.
    #[inline(always)]
    fn place(&self, swap: u32) -> (usize, u32) {
        let first_kind = self.tables.first_kind as u32;
        if swap < first_kind { (0, swap) } else { (1, swap - first_kind) }
    }

    /// The pairs of a swap.
    #[inline(always)]
    fn pairs(&self, swap: u32) -> impl Iterator<Item = [usize; 2]> + use<'a> {
        self.tables.pairs[range(self.tables.first_pair, swap as usize)].iter().map(|ends| ends.map(|end| end as usize))
    }
}

/// A configuration, and the sums of its groups.
#[derive(Debug, Clone, Default)]
struct Place {
    indices: Vec<LocalIndex>,
    sums: Vec<i32>,
}

impl Place {
    fn visit(&mut self, tables: &SwapTables, indices: &[LocalIndex]) {
        self.indices.clear();
        self.indices.extend_from_slice(indices);
        self.sums.clear();
        self.sums.resize(tables.limits.len(), 0);
        for (&group, &local) in tables.group.iter().zip(indices) {
            self.add(group, i32::from(local));
        }
    }

    #[inline(always)]
    fn add(&mut self, group: i32, change: i32) {
        if let Some(sum) = usize::try_from(group).ok().and_then(|group| self.sums.get_mut(group)) {
            *sum += change;
        }
    }

    /// Makes a swap. Made twice, it is none.
    #[inline(always)]
    fn swap(&mut self, swaps: &Swaps, swap: u32) {
        for [a, b] in swaps.pairs(swap) {
            let change = i32::from(self.indices[b]) - i32::from(self.indices[a]);
            self.add(swaps.tables.group[a], change);
            self.add(swaps.tables.group[b], -change);
            self.indices.swap(a, b);
        }
    }

    /// Whether a swap changes anything and stays within the limits.
    #[inline(always)]
    fn admits(&mut self, swaps: &Swaps, swap: u32) -> bool {
        if !swaps.pairs(swap).any(|[a, b]| self.indices[a] != self.indices[b]) {
            return false;
        }
        let SwapTables { group, limits, .. } = swaps.tables;
        if limits.is_empty() {
            return true;
        }
        self.swap(swaps, swap);
        let inside = swaps.pairs(swap).flatten().all(|site| {
            let group = usize::try_from(group[site]).ok();
            group.is_none_or(|group| (limits[group][0]..=limits[group][1]).contains(&self.sums[group]))
        });
        self.swap(swaps, swap);
        inside
    }
}

/// Chooses a kind, and one of the swaps of this kind that change the configuration and stay within the limits.
///
/// The moves of each kind are in detailed balance by themselves, so that they are together.
#[derive(Debug, Clone)]
pub struct Swap<'a> {
    swaps: Swaps<'a>,
    /// Where it is, or where it has proposed to go.
    place: Place,
    /// Of each kind, the swaps that it may choose.
    admitted: [Members; 2],
    /// The proposed swap.
    proposed: u32,
    /// The swaps that depend on the sites of the proposed one.
    affected: Vec<u32>,
    /// Whether a swap is among these.
    is_affected: Vec<bool>,
    /// Those that join or leave if the proposed swap is accepted.
    toggled: Vec<u32>,
}

impl<'a> Swap<'a> {
    /// Of these swaps.
    #[must_use]
    pub fn new(swaps: Swaps<'a>) -> Self {
        Self {
            swaps,
            place: Place::default(),
            admitted: Default::default(),
            proposed: 0,
            affected: Vec::new(),
            is_affected: vec![false; swaps.numbers().iter().sum()],
            toggled: Vec::new(),
        }
    }

    /// The kind of the next move.
    #[inline(always)]
    fn kind(&self, rng: &mut impl Rng) -> usize {
        let probability = self.swaps.tables.probability;
        if probability == 0.0 { 0 } else { usize::from(rng.random::<f64>() < probability) }
    }
}

impl TransitionRule for Swap<'_> {
    fn visit(&mut self, indices: &[LocalIndex]) {
        let swaps = self.swaps;
        self.place.visit(&swaps.tables, indices);
        let numbers = swaps.numbers();
        for (kind, first) in [0, numbers[0]].into_iter().enumerate() {
            let place = &mut self.place;
            self.admitted[kind].set(numbers[kind], |number| place.admits(&swaps, (first + number) as u32));
        }
    }

    #[inline(always)]
    fn propose(&mut self, rng: &mut impl Rng, indices: &[LocalIndex], change: &mut ProposedChange) -> Option<f64> {
        let swaps = self.swaps;
        let kind = self.kind(rng);
        let number = self.admitted[kind].any(rng)?;
        let swap = number + if kind == 0 { 0 } else { swaps.tables.first_kind as u32 };
        self.proposed = swap;
        for [a, b] in swaps.pairs(swap).filter(|&[a, b]| indices[a] != indices[b]) {
            change.push(a as u32, indices[b]);
            change.push(b as u32, indices[a]);
        }
        self.place.swap(&swaps, swap);
        self.affected.clear();
        for &site in &change.sites {
            for &other in &swaps.tables.of_site[range(swaps.tables.first, site as usize)] {
                if !self.is_affected[other as usize] {
                    self.is_affected[other as usize] = true;
                    self.affected.push(other as u32);
                }
            }
        }
        self.toggled.clear();
        let mut joining = 0;
        for &other in &self.affected {
            self.is_affected[other as usize] = false;
            let (of_kind, number) = swaps.place(other);
            let before = self.admitted[of_kind].contains(number);
            if self.place.admits(&swaps, other) != before {
                self.toggled.push(other);
                if of_kind == kind {
                    joining += 1 - 2 * i32::from(before);
                }
            }
        }
        let here = f64::from(self.admitted[kind].len);
        Some(here / (here + f64::from(joining)))
    }

    #[inline(always)]
    fn accept(&mut self) {
        for &swap in &self.toggled {
            let (kind, number) = self.swaps.place(swap);
            self.admitted[kind].toggle(number);
        }
    }

    #[inline(always)]
    fn reject(&mut self) {
        self.place.swap(&self.swaps, self.proposed);
    }

    fn kept(&self) -> usize {
        self.swaps.numbers().into_iter().map(Members::words).sum()
    }

    fn keep(&self, words: &mut [u32]) {
        let (first, second) = words.split_at_mut(Members::words(self.swaps.numbers()[0]));
        first.copy_from_slice(self.admitted[0].kept());
        second.copy_from_slice(self.admitted[1].kept());
    }

    #[inline(always)]
    fn restore(&mut self, indices: &[LocalIndex], words: &[u32]) {
        self.place.visit(&self.swaps.tables, indices);
        let (first, second) = words.split_at(Members::words(self.swaps.numbers()[0]));
        self.admitted[0].restore(first);
        self.admitted[1].restore(second);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{compare, indices};
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    /// What the tables borrow.
    struct Owned {
        pairs: Vec<[i32; 2]>,
        first_pair: Vec<i32>,
        first: Vec<i32>,
        of_site: Vec<i32>,
        group: Vec<i32>,
        limits: Vec<[i32; 2]>,
        first_kind: usize,
        probability: f64,
    }

    impl Owned {
        fn new(
            swaps: &[Vec<[i32; 2]>],
            group: Vec<i32>,
            limits: Vec<[i32; 2]>,
            first_kind: usize,
            probability: f64,
        ) -> Self {
            let mut first_pair = vec![0];
            first_pair.extend(swaps.iter().scan(0, |end, pairs| {
                *end += pairs.len() as i32;
                Some(*end)
            }));
            let (mut first, mut of_site) = (vec![0], Vec::new());
            for site in 0..group.len() {
                let depends = |end: &i32| {
                    let end = *end as usize;
                    end == site || (group[site] >= 0 && group[site] == group[end])
                };
                let depending = swaps.iter().enumerate().filter(|(_, pairs)| pairs.iter().flatten().any(depends));
                of_site.extend(depending.map(|(swap, _)| swap as i32));
                first.push(of_site.len() as i32);
            }
            Self { pairs: swaps.concat(), first_pair, first, of_site, group, limits, first_kind, probability }
        }

        fn tables(&self) -> SwapTables<'_> {
            SwapTables {
                pairs: &self.pairs,
                first_pair: &self.first_pair,
                first: &self.first,
                of_site: &self.of_site,
                group: &self.group,
                limits: &self.limits,
                first_kind: self.first_kind,
                probability: self.probability,
            }
        }
    }

    fn swapped(indices: &[LocalIndex], swap: &[[i32; 2]]) -> Vec<LocalIndex> {
        let mut indices = indices.to_vec();
        for [a, b] in swap {
            indices.swap(*a as usize, *b as usize);
        }
        indices
    }

    proptest! {
        /// Of one kind, since the moves of the other are others.
        #[test]
        fn swaps_within_limits(
            sites in 2_usize..=9, states in 2_u16..=3, swaps in 0_usize..=12, second: bool, seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let groups = 3;
            let group: Vec<i32> = (0..sites).map(|_| rng.random_range(-1..groups)).collect();
            let swaps: Vec<Vec<[i32; 2]>> = (0..swaps)
                .map(|_| {
                    let mut free: Vec<i32> = (0..sites as i32).collect();
                    let mut one = || free.swap_remove(rng.random_range(0..free.len()));
                    (0..(sites / 2).min(2)).map(|_| [one(), one()]).collect()
                })
                .collect();
            let start = indices(rng, sites, states);
            let sum = |indices: &[LocalIndex], which: i32| -> i32 {
                group.iter().zip(indices).filter(|(group, _)| **group == which).map(|(_, &local)| i32::from(local)).sum()
            };
            let limits: Vec<[i32; 2]> = (0..groups)
                .map(|which| sum(&start, which))
                .map(|sum| [sum - rng.random_range(0..=1), sum + rng.random_range(0..=1)])
                .collect();
            let first_kind = if second { swaps.len() / 2 } else { swaps.len() };
            let probability = f64::from(u8::from(second));
            let owned = Owned::new(&swaps, group.clone(), limits.clone(), first_kind, probability);
            let chosen = if second { &swaps[first_kind..] } else { &swaps[..] };
            let rule = &mut Swap::new(Swaps::new(sites, owned.tables()).expect("right tables"));
            compare(rule, rng, start, |indices| {
                let inside = |there: &Vec<LocalIndex>| {
                    there[..] != *indices
                        && limits.iter().zip(0..).all(|(limits, group)| (limits[0]..=limits[1]).contains(&sum(there, group)))
                };
                let moves = chosen.iter().map(|swap| swapped(indices, swap)).filter(inside);
                let changes = |there: Vec<LocalIndex>| {
                    let changed = there.iter().zip(indices).enumerate().filter(|(_, (to, from))| to != from);
                    changed.map(|(site, (&to, _))| (site as u32, to)).collect()
                };
                moves.map(|there| (changes(there), 1.0)).collect()
            });
        }
    }

    #[test]
    fn both_kinds_are_as_likely_as_they_should_be() {
        // Two exchanges of one pair, and one of both.
        let owned = Owned::new(&[vec![[0, 1]], vec![[2, 3]], vec![[0, 1], [2, 3]]], vec![-1; 4], vec![], 2, 0.25);
        let mut rule = Swap::new(Swaps::new(4, owned.tables()).expect("right tables"));
        let indices = [0, 1, 1, 0];
        rule.visit(&indices);
        let rng = &mut StdRng::seed_from_u64(1);
        let mut both = 0;
        for _ in 0..20_000 {
            let mut change = ProposedChange::default();
            assert_eq!(rule.propose(rng, &indices, &mut change), Some(1.0));
            both += u32::from(change.sites.len() == 4);
            rule.reject();
        }
        assert!((f64::from(both) / 20_000.0 - 0.25).abs() < 0.015, "{both}");
    }

    #[test]
    fn wrong_swaps() {
        let right = Owned::new(&[vec![[0, 1]]], vec![0, 0], vec![[0, 1]], 1, 0.0);
        assert!(Swaps::new(2, right.tables()).is_ok());
        let message = |tables: SwapTables| Swaps::new(2, tables).expect_err("wrong swaps").to_string();
        let tables = right.tables();
        assert!(message(SwapTables { pairs: &[[0, 2]], ..tables }).contains("edge 0 joins the sites 0 and 2"));
        assert!(message(SwapTables { pairs: &[[1, 1]], ..tables }).contains("swap 0 has a site twice"));
        assert!(message(SwapTables { first_pair: &[0, 2], ..tables }).contains("first_pair"));
        assert!(message(SwapTables { first: &[0, 1], ..tables }).contains("`first` has 2 numbers for 2 sites"));
        assert!(message(SwapTables { of_site: &[0, 1], ..tables }).contains("a swap of a site doesn't exist"));
        assert!(message(SwapTables { group: &[0], ..tables }).contains("there are 1 groups of sites, but 2 sites"));
        assert!(message(SwapTables { group: &[0, 1], ..tables }).contains("a group of a site doesn't exist"));
        assert!(message(SwapTables { first_kind: 2, ..tables }).contains("2 swaps are of the first kind"));
        assert!(message(SwapTables { probability: f64::NAN, ..tables }).contains("NaN is no probability"));
    }
}
