use super::*;
use crate::connected::testing::{Element, Mistake, Operator, check_mistakes, compare, damage, odd_number};
use crate::sites::testing::{SPIN, boson, random_samples};
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
        (|terms| terms.sites = two_and_three_states(), "site 1 has 3 local states, but terms are for sites with two"),
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
