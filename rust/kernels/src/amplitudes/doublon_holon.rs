//! Factors of how many empty sites there are around doubly occupied ones, and the other way round.
//!
//! A site has two modes, one for each spin. In each shell s of neighbours ln ψ has a number for each doubly occupied site,
//! which depends on how many of its neighbours are empty, and one for each empty site, which depends on how many are doubly
//! occupied. A hop changes the numbers of few sites and their neighbours.

use crate::Error;
use crate::amplitudes::{self, AmplitudeRatio, RATIOS_PER_BLOCK, Ratios};
use crate::connected::terms::BLOCK;
use crate::error::check;
use crate::numbers::{Algebra, complex};
use crate::sites::LocalIndex;
use pulp::Simd;
use std::array::from_fn;
use std::marker::PhantomData;

/// What a site with 0, 1 or 2 fermions adds to the counts of sites that it is a neighbour of: empty sites are counted in the
/// lower half of a number, and doubly occupied ones in the upper half.
const COUNTED: [u32; 3] = [1, 0, 1 << HALF];
const HALF: u32 = 16;
/// So many neighbours can be counted.
const MOST: usize = (1 << HALF) - 1;

/// The numbers of ln ψ, and the neighbours.
#[derive(Debug, Clone, Copy)]
pub struct DoublonHolonTables<'a> {
    /// Of each shell with z neighbours, one shell after the other, `(planes, numbers)`: those of doubly occupied sites with 0 to z
    /// empty neighbours, and those of empty sites with 0 to z doubly occupied ones.
    pub alpha: &'a [f64],
    /// For each shell the neighbours of each site, `(sites, z)`.
    pub shells: &'a [Vec<usize>],
}

/// A factor whose numbers have `P` planes.
#[derive(Debug)]
pub struct DoublonHolon<const P: usize> {
    sites: usize,
    shells: Vec<Shell>,
    /// Those of sites with 0, 1 and 2 fermions in each shell, for each count.
    alpha: Vec<[f64; P]>,
    /// The places where each site is counted, and how often. Sites have a place in each shell, `(shells, sites)`.
    counted_at: Vec<Vec<(usize, u32)>>,
}

/// The neighbours of all sites in a shell.
#[derive(Debug, Clone)]
struct Shell {
    /// `(sites, z)`.
    neighbours: Vec<usize>,
    /// Where its numbers begin.
    first: usize,
    /// So many there are for each number of fermions, z + 1.
    width: usize,
}

impl<const P: usize> DoublonHolon<P> {
    /// Checks the tables.
    pub fn new(tables: DoublonHolonTables, modes: usize) -> Result<Self, Error> {
        let DoublonHolonTables { alpha: numbers, shells: neighbours } = tables;
        check(modes > 0 && modes.is_multiple_of(2), || {
            format!("there are {modes} modes, but must be two for each site")
        })?;
        let sites = modes / 2;
        for (number, shell) in neighbours.iter().enumerate() {
            check(shell.len().is_multiple_of(sites) && shell.len() / sites <= MOST, || {
                format!(
                    "shell {number} has {} neighbours, but must have as many for each of {sites} sites",
                    shell.len()
                )
            })?;
            check(shell.iter().all(|&site| site < sites), || {
                format!("shell {number} has a neighbour that isn't one of {sites} sites, counted from 0")
            })?;
        }
        let widths = || neighbours.iter().map(|shell| shell.len() / sites + 1);
        let len = 2 * widths().sum::<usize>();
        check(numbers.len() == P * len, || {
            format!("`alpha` has {} numbers, but must have {P} for each of {len}", numbers.len())
        })?;
        let number = |place: usize| from_fn(|plane| numbers[plane * len + place]);
        let (mut shells, mut alpha, mut begin) = (Vec::new(), Vec::new(), 0);
        for (width, neighbours) in widths().zip(neighbours) {
            shells.push(Shell { neighbours: neighbours.clone(), first: alpha.len(), width });
            alpha.extend((begin + width..begin + 2 * width).map(number));
            alpha.extend((0..width).map(|_| [0.0; P]));
            alpha.extend((begin..begin + width).map(number));
            begin += 2 * width;
        }
        let mut counted_at = vec![Vec::<(usize, u32)>::new(); sites];
        for (shell, neighbours) in neighbours.iter().enumerate() {
            let of_site = neighbours.len() / sites;
            for (place, &site) in neighbours.iter().enumerate() {
                let place = shell * sites + place / of_site;
                match counted_at[site].last_mut() {
                    Some((last, times)) if *last == place => *times += 1,
                    _ => counted_at[site].push((place, 1)),
                }
            }
        }
        Ok(Self { sites, shells, alpha, counted_at })
    }

    /// How many counts a sample has.
    #[must_use]
    pub fn numbers(&self) -> usize {
        self.shells.len() * self.sites
    }

    /// Counts what there is around the sites of a sample with these numbers of fermions.
    #[inline(always)]
    fn count(&self, fermions: &[u8], counts: &mut [u32]) {
        for (shell, counts) in self.shells.iter().zip(counts.chunks_mut(self.sites)) {
            counts.fill(0);
            if shell.width == 1 {
                continue;
            }
            for (count, neighbours) in counts.iter_mut().zip(shell.neighbours.chunks(shell.width - 1)) {
                *count = neighbours.iter().map(|&site| COUNTED[usize::from(fermions[site])]).sum();
            }
        }
    }

    /// How ln ψ changes at a sample with these numbers of fermions and these counts, there or `back`.
    #[inline(always)]
    fn log_ratio(&self, change: &DoublonHolonChange, fermions: &[u8], counts: &[u32], back: bool) -> [f64; P] {
        let mut few = [0; FEW];
        let mut many = Vec::new();
        let steps = change.steps(fermions, back, &mut few, &mut many);
        let mut log = [0.0; P];
        for (place, times) in change.places.iter().zip(change.times.chunks_exact(steps.len().max(1))) {
            let (here, count) = (fermions[place.site], counts[place.index]);
            let there = if back { here.wrapping_sub(place.more) } else { here.wrapping_add(place.more) };
            let [before, after] =
                [self.alpha[place.number(here, count)], self.alpha[place.number(there, moved(count, steps, times))]];
            for plane in 0..P {
                log[plane] += after[plane] - before[plane];
            }
        }
        log
    }
}

/// A count, after some sites have changed what they add to it so many times.
#[inline(always)]
fn moved(count: u32, steps: &[u32], times: &[u32]) -> u32 {
    steps.iter().zip(times).fold(count, |count, (step, times)| count.wrapping_add(step.wrapping_mul(*times)))
}

/// The numbers of fermions on the sites of a sample.
#[inline(always)]
fn set_fermions(indices: &[LocalIndex], fermions: &mut [u8]) {
    let (up, down) = indices.split_at(fermions.len());
    for ((fermions, &up), &down) in fermions.iter_mut().zip(up).zip(down) {
        *fermions = (up + down) as u8;
    }
}

/// For so many sites there is memory on the stack.
const FEW: usize = 4;
/// The place of a number in a list that doesn't have it.
const NONE: u32 = u32::MAX;

/// Some modes that change, and what depends on them.
#[derive(Debug, Clone, Default)]
pub struct DoublonHolonChange {
    /// The sites with another number of fermions, and how many more there are. Negative numbers wrap around.
    sites: Vec<(usize, u8)>,
    /// Where ln ψ has another number.
    places: Vec<Place>,
    /// How often each of the sites is counted there, `(places, sites)`.
    times: Vec<u32>,
    /// Where each place is in the list of those, for all places.
    listed: Vec<u32>,
}

/// A site and a shell.
#[derive(Debug, Clone, Copy)]
struct Place {
    site: usize,
    /// In `(shells, sites)`.
    index: usize,
    /// How many fermions the site has more.
    more: u8,
    /// See [`Shell`].
    first: usize,
    width: usize,
}

impl Place {
    /// Which of the numbers belongs to so many fermions and this count.
    #[inline(always)]
    fn number(&self, fermions: u8, count: u32) -> usize {
        // Those with one fermion are all 0.
        let counted = if fermions == 0 { count >> HALF } else { count & MOST as u32 };
        self.first + usize::from(fermions) * self.width + counted as usize
    }
}

impl DoublonHolonChange {
    /// Makes it that of some modes that go from their first to their second state, or `back`.
    #[inline(always)]
    fn set<const P: usize>(&mut self, factor: &DoublonHolon<P>, modes: impl Iterator<Item = (usize, bool)>) {
        self.sites.clear();
        for (mode, back) in modes {
            let (site, more) = (mode % factor.sites, if back { u8::MAX } else { 1 });
            match self.sites.iter_mut().find(|(other, _)| *other == site) {
                Some((_, sum)) => *sum = sum.wrapping_add(more),
                None => self.sites.push((site, more)),
            }
        }
        self.sites.retain(|&(_, more)| more != 0);
        for place in self.places.drain(..) {
            self.listed[place.index] = NONE;
        }
        self.listed.resize(factor.numbers(), NONE);
        self.times.clear();
        for number in 0..self.sites.len() {
            let (site, more) = self.sites[number];
            for shell in 0..factor.shells.len() {
                let own = self.listed(factor, shell * factor.sites + site);
                self.places[own].more = more;
            }
            for &(place, times) in &factor.counted_at[site] {
                let of_place = self.listed(factor, place) * self.sites.len();
                self.times[of_place + number] = times;
            }
        }
    }

    /// Where a place is in the list, to which it is added if it isn't there.
    #[inline(always)]
    fn listed<const P: usize>(&mut self, factor: &DoublonHolon<P>, place: usize) -> usize {
        if self.listed[place] == NONE {
            self.listed[place] = self.places.len() as u32;
            let Shell { first, width, .. } = factor.shells[place / factor.sites];
            self.places.push(Place { site: place % factor.sites, index: place, more: 0, first, width });
            self.times.resize(self.places.len() * self.sites.len(), 0);
        }
        self.listed[place] as usize
    }

    /// By how much each of the sites changes what it adds to counts, of a sample with these numbers of fermions.
    #[inline(always)]
    fn steps<'m>(&self, fermions: &[u8], back: bool, few: &'m mut [u32; FEW], many: &'m mut Vec<u32>) -> &'m [u32] {
        let steps = if self.sites.len() <= FEW {
            &mut few[..self.sites.len()]
        } else {
            many.resize(self.sites.len(), 0);
            &mut many[..]
        };
        for (step, &(site, more)) in steps.iter_mut().zip(&self.sites) {
            let here = fermions[site];
            let there = if back { here.wrapping_sub(more) } else { here.wrapping_add(more) };
            *step = COUNTED[usize::from(there)].wrapping_sub(COUNTED[usize::from(here)]);
        }
        steps
    }
}

/// The factor at some samples, whose numbers are those of `A`.
#[derive(Debug, Clone)]
pub struct Amplitudes<'a, A, const P: usize> {
    factor: &'a DoublonHolon<P>,
    /// `(samples, sites)`.
    fermions: Vec<u8>,
    /// `(samples, shells, sites)`.
    counts: Vec<u32>,
    algebra: PhantomData<A>,
}

impl<'a, A, const P: usize> Amplitudes<'a, A, P> {
    /// At no samples.
    #[must_use]
    pub fn new(factor: &'a DoublonHolon<P>) -> Self {
        Self { factor, fermions: Vec::new(), counts: Vec::new(), algebra: PhantomData }
    }
}

impl<A: Algebra<P>, const P: usize> Ratios for Amplitudes<'_, A, P> {
    type Ratio = A::Factor;
    type SiteChange = DoublonHolonChange;

    fn cached(&self) -> usize {
        BLOCK
    }

    #[inline(always)]
    fn visit<S: Simd>(&mut self, _: S, indices: &[LocalIndex], samples: usize) {
        let (sites, numbers) = (self.factor.sites, self.factor.numbers());
        self.fermions.resize(samples * sites, 0);
        self.counts.resize(samples * numbers, 0);
        for (sample, (indices, fermions)) in
            indices.chunks_exact(2 * sites).zip(self.fermions.chunks_exact_mut(sites)).enumerate()
        {
            set_fermions(indices, fermions);
            self.factor.count(fermions, &mut self.counts[sample * numbers..][..numbers]);
        }
    }

    #[inline(always)]
    fn prepare<S: Simd>(&self, _: S, change: &mut DoublonHolonChange, sites: &[usize], opposite: &[bool]) {
        change.set(self.factor, sites.iter().copied().zip([false].into_iter().chain(opposite.iter().copied())));
    }

    #[inline(always)]
    fn ratios<S: Simd>(
        &self,
        _: S,
        change: &DoublonHolonChange,
        n: usize,
        samples: [usize; RATIOS_PER_BLOCK],
        reversed: [bool; RATIOS_PER_BLOCK],
    ) -> [A::Factor; RATIOS_PER_BLOCK] {
        let (sites, numbers) = (self.factor.sites, self.factor.numbers());
        let mut ratios = [A::Factor::default(); RATIOS_PER_BLOCK];
        for ((ratio, sample), reversed) in ratios.iter_mut().zip(samples).zip(reversed).take(n) {
            let (fermions, counts) =
                (&self.fermions[sample * sites..][..sites], &self.counts[sample * numbers..][..numbers]);
            *ratio = A::exponential(complex(self.factor.log_ratio(change, fermions, counts, reversed)));
        }
        ratios
    }
}

/// The modulus of the factor, from real numbers, at a configuration that moves.
#[derive(Debug, Clone)]
pub struct Walker<'a> {
    factor: &'a DoublonHolon<1>,
    fermions: Vec<u8>,
    counts: Vec<u32>,
    /// The proposed move.
    change: DoublonHolonChange,
}

impl<'a> Walker<'a> {
    /// At no configuration.
    #[must_use]
    pub fn new(factor: &'a DoublonHolon<1>) -> Self {
        let (fermions, counts) = (vec![0; factor.sites], vec![0; factor.numbers()]);
        Self { factor, fermions, counts, change: DoublonHolonChange::default() }
    }
}

impl amplitudes::Walker for Walker<'_> {
    #[inline(always)]
    fn visit<S: Simd>(&mut self, _: S, indices: &[LocalIndex]) {
        set_fermions(indices, &mut self.fermions);
        self.factor.count(&self.fermions, &mut self.counts);
    }

    #[inline(always)]
    fn amplitude_ratio<S: Simd>(&mut self, _: S, indices: &[LocalIndex], sites: &[u32]) -> AmplitudeRatio {
        let modes = sites.iter().map(|&mode| (mode as usize, indices[mode as usize] == 1));
        self.change.set(self.factor, modes);
        let [log] = self.factor.log_ratio(&self.change, &self.fermions, &self.counts, false);
        AmplitudeRatio::Log(log)
    }

    #[inline(always)]
    fn accept<S: Simd>(&mut self, _: S, _: &[LocalIndex]) {
        let Self { fermions, counts, change, .. } = self;
        let (mut few, mut many) = ([0; FEW], Vec::new());
        let steps = change.steps(fermions, false, &mut few, &mut many);
        for (place, times) in change.places.iter().zip(change.times.chunks_exact(steps.len().max(1))) {
            counts[place.index] = moved(counts[place.index], steps, times);
        }
        for &(site, more) in &change.sites {
            fermions[site] = fermions[site].wrapping_add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::testing::{Flips, RandomDoublonHolon, compare_steps, flipped};
    use crate::numbers::{Complexes, Reals, dispatch, each_level};
    use crate::sites::Sites;
    use crate::sites::testing::{SPIN, random_samples};
    use num_complex::Complex;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    fn compare<A: Algebra<P>, const P: usize>(rng: &mut StdRng, sites: usize, shells: usize, scale: f64) {
        let random = RandomDoublonHolon::<P>::new(rng, sites, shells, scale);
        let modes = Sites::new(2 * sites, vec![SPIN], &[]).expect("modes");
        let samples = random_samples(rng, &modes, 3);
        let factor = DoublonHolon::<P>::new(random.tables(), 2 * sites).expect("tables");
        // As many as a hop has, and up to all.
        let share = rng.random::<f64>();
        let flips: Vec<usize> = (0..2 * sites).filter(|_| rng.random_bool(share)).collect();
        if flips.is_empty() {
            return;
        }
        let there = flipped(&samples[2], flips.iter().copied());
        let expected = (random.log_psi(&there) - random.log_psi(&samples[2])).exp();
        for _ in each_level() {
            let ratios = Amplitudes::<A, P>::new(&factor);
            let found: Complex<f64> = dispatch(Flips { ratios, samples: &samples, sites: &flips }).into();
            assert!((found - expected).norm() <= 1e-12 * (1.0 + expected.norm()), "{found} instead of {expected}");
        }
    }

    proptest! {
        #[test]
        fn ratios_are_those_of_two_evaluations(sites in 1_usize..=10, shells in 0_usize..=3, scale in 0.01_f64..1.0, seed: u64) {
            let rng = &mut StdRng::seed_from_u64(seed);
            compare::<Reals, 1>(rng, sites, shells, scale);
            compare::<Complexes, 2>(rng, sites, shells, scale);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn amplitude_ratios_are_those_of_two_evaluations(sites in 1_usize..=8, shells in 0_usize..=3, scale in 0.01_f64..2.0, seed: u64) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let random = RandomDoublonHolon::<1>::new(rng, sites, shells, scale);
            let start: Vec<_> = (0..2 * sites).map(|_| rng.random_range(0..2)).collect();
            let factor = DoublonHolon::new(random.tables(), 2 * sites).expect("tables");
            compare_steps(rng, &start, 1e-12, |sample| random.log_psi(sample), || Walker::new(&factor));
        }
    }

    #[test]
    fn wrong_tables_are_named() {
        let (alpha, shells) = ([0.0; 6], [vec![1, 1, 0, 0]]);
        let message = |alpha, shells, modes| {
            DoublonHolon::<1>::new(DoublonHolonTables { alpha, shells }, modes).expect_err("wrong tables").to_string()
        };
        assert!(DoublonHolon::<1>::new(DoublonHolonTables { alpha: &alpha, shells: &shells }, 4).is_ok());
        assert!(message(&alpha, &shells, 3).contains("there are 3 modes"));
        assert!(message(&alpha, &shells, 0).contains("there are 0 modes"));
        assert!(message(&alpha, &shells, 6).contains("shell 0 has 4 neighbours"));
        assert!(message(&alpha, &shells, 2).contains("shell 0 has a neighbour that isn't one of 1 sites"));
        assert!(message(&alpha[1..], &shells, 4).contains("`alpha` has 5 numbers, but must have 1 for each of 6"));
    }
}
