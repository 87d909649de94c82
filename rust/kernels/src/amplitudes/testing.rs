//! Amplitudes with random numbers, evaluated by their definition, for tests.

use crate::amplitudes::doublon_holon::DoublonHolonTables;
use crate::amplitudes::jastrow::JastrowTables;
use crate::amplitudes::pfaffian::PfaffianTables;
use crate::amplitudes::rbm::RbmTables;
use crate::amplitudes::slater::SlaterTables;
use crate::amplitudes::{AmplitudeRatio, RATIOS_PER_BLOCK, Ratios, Walker};
use crate::numbers::{MULTIPLE, Real, complex, dispatch, each_level};
use crate::sites::LocalIndex;
use num_complex::Complex;
use pulp::{Simd, WithSimd};
use rand::rngs::StdRng;
use rand::seq::{IteratorRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use std::array::from_fn;
use std::cmp::Ordering;

/// Checks what a walker says against the logarithm of the ratio of the moduli.
pub(crate) fn check_amplitude_ratio(amplitude_ratio: AmplitudeRatio, expected: f64, allowed: f64) {
    match amplitude_ratio {
        AmplitudeRatio::Log(log) => assert!((log - expected).abs() <= allowed, "{log} {expected}"),
        AmplitudeRatio::Squared(square) => {
            let ratio = (square / (2.0 * expected).exp()).ln();
            assert!(ratio.abs() <= 2.0 * allowed, "{square} {expected}: {ratio} of {allowed}");
        }
    }
}

/// A configuration with some sites flipped.
pub(crate) fn flipped(indices: &[LocalIndex], sites: impl IntoIterator<Item = usize>) -> Vec<LocalIndex> {
    let mut there = indices.to_vec();
    for site in sites {
        there[site] ^= 1;
    }
    there
}

/// The ratio of the last sample with some sites flipped, and with the samples before it as ballast.
pub(crate) struct Flips<'a, R> {
    pub(crate) ratios: R,
    pub(crate) samples: &'a [Vec<LocalIndex>],
    pub(crate) sites: &'a [usize],
}

impl<R: Ratios> WithSimd for Flips<'_, R> {
    type Output = R::Ratio;

    fn with_simd<S: Simd>(self, simd: S) -> R::Ratio {
        let Self { mut ratios, samples, sites } = self;
        ratios.visit(simd, &samples.concat(), samples.len());
        let last = &samples[samples.len() - 1];
        let opposite: Vec<bool> = sites[1..].iter().map(|&site| last[site] != last[sites[0]]).collect();
        let mut change = R::SiteChange::default();
        ratios.prepare(simd, &mut change, sites, &opposite);
        let reversed = [last[sites[0]] == 1; RATIOS_PER_BLOCK];
        ratios.ratios(simd, &change, 1, [samples.len() - 1; RATIOS_PER_BLOCK], reversed)[0]
    }
}

/// Moves at random: the amplitude ratio of each is compared with what `log_psi` says.
struct Steps<'a, W, F> {
    walker: W,
    rng: &'a mut StdRng,
    indices: Vec<LocalIndex>,
    tolerance: f64,
    log_psi: F,
}

impl<W: Walker, F: Fn(&[LocalIndex]) -> Complex<f64>> WithSimd for Steps<'_, W, F> {
    type Output = ();

    fn with_simd<S: Simd>(self, simd: S) {
        let Self { mut walker, rng, mut indices, tolerance, log_psi } = self;
        walker.visit(simd, &indices);
        let mut log_here = log_psi(&indices).re;
        // So many that everything is summed up anew.
        for _ in 0..600 {
            let mut sites: Vec<u32> = Vec::new();
            for _ in 0..rng.random_range(1..=4) {
                let site = rng.random_range(0..indices.len() as u32);
                if !sites.contains(&site) {
                    sites.push(site);
                }
            }
            let amplitude_ratio = walker.amplitude_ratio(simd, &indices, &sites);
            let there = flipped(&indices, sites.iter().map(|&site| site as usize));
            let log_there = log_psi(&there).re;
            let expected = log_there - log_here;
            let allowed = tolerance * (1.0 + log_here.abs() + log_there.abs());
            check_amplitude_ratio(amplitude_ratio, expected, allowed);
            // Where ψ is nearly 0 no chain goes, and all errors are large.
            if rng.random::<f64>() < (2.0 * expected).exp().max(0.1) && expected > -30.0 {
                (indices, log_here) = (there, log_there);
                walker.accept(simd, &indices);
            }
        }
    }
}

/// Compares walkers with the definition along chains of moves, one on each level of vector instructions.
pub(crate) fn compare_steps<W: Walker>(
    rng: &mut StdRng,
    start: &[LocalIndex],
    tolerance: f64,
    log_psi: impl Fn(&[LocalIndex]) -> Complex<f64>,
    walker: impl Fn() -> W,
) {
    for _ in each_level() {
        let (walker, indices, log_psi) = (walker(), start.to_vec(), &log_psi);
        dispatch(Steps { walker, rng: &mut *rng, indices, tolerance, log_psi });
    }
}

/// Fermions that hop, one to three at once, from and to any modes of their sectors.
struct Hops<'a, W, O, P> {
    walker: W,
    modes: usize,
    is_occupied: O,
    /// ψ by definition.
    psi: P,
    rng: &'a mut StdRng,
    start: Vec<LocalIndex>,
    moves: usize,
}

impl<W, O: Fn(usize, LocalIndex) -> bool, P> Hops<'_, W, O, P> {
    /// Some occupied modes, and as many empty ones of the same sectors.
    fn sites(&mut self, indices: &[LocalIndex]) -> Vec<u32> {
        let modes = self.modes;
        let mut sites = Vec::new();
        for _ in 0..self.rng.random_range(1..=3) {
            let first = self.rng.random_range(0..indices.len() / modes) * modes;
            for is_occupied in [true, false] {
                let is_such = |&site: &usize| (self.is_occupied)(site, indices[site]) == is_occupied;
                let free = (first..first + modes).filter(is_such);
                let free = free.map(|site| site as u32).filter(|site| !sites.contains(site));
                sites.extend(free.choose(self.rng));
            }
            if sites.len() % 2 == 1 {
                sites.pop();
            }
        }
        sites
    }
}

impl<W: Walker, O: Fn(usize, LocalIndex) -> bool, P: Fn(&[LocalIndex]) -> Complex<f64>> WithSimd for Hops<'_, W, O, P> {
    type Output = ();

    fn with_simd<S: Simd>(mut self, simd: S) {
        let mut indices = self.start.clone();
        self.walker.visit(simd, &indices);
        let mut here = (self.psi)(&indices).norm();
        for _ in 0..self.moves {
            let sites = self.sites(&indices);
            let mut next = indices.clone();
            for &site in &sites {
                next[site as usize] ^= 1;
            }
            let there = (self.psi)(&next).norm();
            let amplitude_ratio = self.walker.amplitude_ratio(simd, &indices, &sites).to_the(1.0);
            let expected = there / here;
            if here == 0.0 {
                assert!(
                    if there == 0.0 { amplitude_ratio.is_nan() } else { amplitude_ratio == f64::INFINITY },
                    "{amplitude_ratio} {there}"
                );
            } else {
                assert!(
                    (amplitude_ratio - expected).abs() <= 1e-10 * (1.0 + expected),
                    "{amplitude_ratio} instead of {expected}"
                );
            }
            if self.rng.random::<f64>() < amplitude_ratio * amplitude_ratio {
                (indices, here) = (next, there);
                self.walker.accept(simd, &indices);
            }
        }
    }
}

/// Compares walkers with the definition along chains of hops between modes of the same sector.
pub(crate) fn compare_hops<W: Walker>(
    rng: &mut StdRng,
    modes: usize,
    is_occupied: impl Fn(usize, LocalIndex) -> bool,
    start: &[LocalIndex],
    moves: usize,
    psi: impl Fn(&[LocalIndex]) -> Complex<f64>,
    walker: impl Fn() -> W,
) {
    let seed = rng.random();
    for _ in each_level() {
        let (rng, start) = (&mut StdRng::seed_from_u64(seed), start.to_vec());
        dispatch(Hops { walker: walker(), modes, is_occupied: &is_occupied, psi: &psi, rng, start, moves });
    }
}

/// The value of a spin's local state.
pub(crate) fn value(index: LocalIndex) -> f64 {
    1.0 - 2.0 * f64::from(index)
}

/// ln cosh of a complex number.
pub(crate) fn log_cosh(z: Complex<f64>) -> Complex<f64> {
    let z = if z.re < 0.0 { -z } else { z };
    z + ((1.0 + (-2.0 * z).exp()) / 2.0).ln()
}

/// `(planes, ...)` of what `number` gives for each place.
fn planes<T: Real, const P: usize>(len: usize, number: impl Fn(usize) -> [f64; P]) -> Vec<T> {
    (0..P)
        .flat_map(|plane| (0..len).map(move |place| (plane, place)))
        .map(|(plane, place)| T::nearest(number(place)[plane]))
        .collect()
}

/// Numbers around 0 that `T` holds.
fn random<T: Real, const P: usize>(rng: &mut StdRng, len: usize, scale: f64) -> Vec<[f64; P]> {
    (0..len).map(|_| from_fn(|_| T::nearest(rng.random_range(-scale..scale)).into())).collect()
}

fn sum<const P: usize>(numbers: impl Iterator<Item = [f64; P]>) -> [f64; P] {
    numbers.fold([0.0; P], |sum, number| from_fn(|plane| sum[plane] + number[plane]))
}

/// ln cosh by definition, of the numbers of an ansatz whose planes are real, complex, or two real ones.
pub(crate) fn log_cosh_of_real([x]: [f64; 1]) -> Complex<f64> {
    log_cosh(x.into())
}

/// As [`log_cosh_of_real`].
pub(crate) fn log_cosh_of_complex([x, y]: [f64; 2]) -> Complex<f64> {
    log_cosh(Complex::new(x, y))
}

/// As [`log_cosh_of_real`].
pub(crate) fn log_cosh_of_pair([x, y]: [f64; 2]) -> Complex<f64> {
    Complex::new(log_cosh(x.into()).re, log_cosh(y.into()).re)
}

/// A restricted Boltzmann machine.
pub(crate) struct RandomRbm<T, const P: usize> {
    units: usize,
    weights: Vec<[f64; P]>,
    hidden_bias: Vec<[f64; P]>,
    visible_bias: Vec<[f64; P]>,
    /// The tables of the kernel, and the length of their rows.
    theta: Vec<T>,
    delta: Vec<T>,
    bias: Vec<T>,
    padded: usize,
}

impl<T: Real, const P: usize> RandomRbm<T, P> {
    pub(crate) fn new(rng: &mut StdRng, sites: usize, units: usize, scale: f64) -> Self {
        let weights = random::<T, P>(rng, sites * units, scale);
        let (hidden_bias, visible_bias) = (random::<T, P>(rng, units, scale), random::<T, P>(rng, sites, scale));
        let [theta, delta, bias] = [const { Vec::new() }; 3];
        let padded = units.next_multiple_of(MULTIPLE);
        let mut rbm = Self { units, weights, hidden_bias, visible_bias, theta, delta, bias, padded };
        // Units that there are not have θ = δ = 0.
        let of_unit = |place: usize, number: &dyn Fn(usize, usize) -> [f64; P]| {
            if place % padded < units { number(place / padded, place % padded) } else { [0.0; P] }
        };
        let first = vec![0; sites];
        let theta = planes(padded, |place| of_unit(place, &|_, unit| rbm.theta_of(&first, unit)));
        let delta = planes(sites * padded, |place| {
            of_unit(place, &|site, unit| rbm.weights[site * units + unit].map(|w| -2.0 * w))
        });
        let bias = planes(sites, |site| rbm.visible_bias[site].map(|a| -2.0 * a));
        (rbm.theta, rbm.delta, rbm.bias) = (theta, delta, bias);
        rbm
    }

    pub(crate) fn tables(&self) -> RbmTables<'_, T> {
        RbmTables { theta: &self.theta, delta: &self.delta, bias: &self.bias, units: self.padded }
    }

    /// θ of a hidden unit, by definition.
    pub(crate) fn theta_of(&self, sample: &[LocalIndex], unit: usize) -> [f64; P] {
        let weight = |site: usize| self.weights[site * self.units + unit];
        let of_sites = sample.iter().enumerate().map(|(site, &s)| weight(site).map(|w| w * value(s)));
        sum(of_sites.chain([self.hidden_bias[unit]]))
    }

    /// ln ψ, by definition.
    pub(crate) fn log_psi(&self, sample: &[LocalIndex], log_cosh: impl Fn([f64; P]) -> Complex<f64>) -> Complex<f64> {
        let visible = sum(sample.iter().zip(&self.visible_bias).map(|(&s, a)| a.map(|a| a * value(s))));
        complex(visible) + (0..self.units).map(|unit| log_cosh(self.theta_of(sample, unit))).sum::<Complex<f64>>()
    }
}

/// A Jastrow amplitude.
pub(crate) struct RandomJastrow<T, const P: usize> {
    sites: usize,
    /// The matrix, of which the lower part counts.
    matrix: Vec<[f64; P]>,
    /// The tables of the kernel, and the length of their rows.
    fields: Vec<T>,
    pairs: Vec<T>,
    columns: usize,
}

impl<T: Real, const P: usize> RandomJastrow<T, P> {
    pub(crate) fn new(rng: &mut StdRng, sites: usize, scale: f64) -> Self {
        let matrix = random::<T, P>(rng, sites * sites, scale);
        let columns = sites.next_multiple_of(MULTIPLE);
        let mut amplitude = Self { sites, matrix, fields: Vec::new(), pairs: Vec::new(), columns };
        let of_column = |place: usize, number: &dyn Fn(usize, usize) -> [f64; P]| {
            if place % columns < sites { number(place / columns, place % columns) } else { [0.0; P] }
        };
        let field = |i: usize| sum((0..sites).map(|j| amplitude.pair(i, j).map(|w| -2.0 * w)));
        let fields = planes(columns, |place| of_column(place, &|_, i| field(i)));
        let pairs = planes(sites * columns, |place| of_column(place, &|i, j| amplitude.pair(i, j).map(|w| 4.0 * w)));
        (amplitude.fields, amplitude.pairs) = (fields, pairs);
        amplitude
    }

    fn pair(&self, i: usize, j: usize) -> [f64; P] {
        if i == j { [0.0; P] } else { self.matrix[i.max(j) * self.sites + i.min(j)] }
    }

    pub(crate) fn tables(&self) -> JastrowTables<'_, T> {
        JastrowTables { fields: &self.fields, pairs: &self.pairs, columns: self.columns }
    }

    /// Those of the modulus, which depends on the real parts.
    pub(crate) fn tables_of_modulus(&self) -> JastrowTables<'_, T> {
        let Self { fields, pairs, columns, .. } = self;
        JastrowTables { fields: &fields[..*columns], pairs: &pairs[..self.sites * columns], columns: *columns }
    }

    /// ln ψ, by definition.
    pub(crate) fn log_psi(&self, sample: &[LocalIndex]) -> Complex<f64> {
        let pairs = (0..self.sites).flat_map(|i| (0..i).map(move |j| (i, j)));
        complex(sum(pairs.map(|(i, j)| self.pair(i, j).map(|w| w * value(sample[i]) * value(sample[j])))))
    }
}

/// A factor of doublons and holons, with neighbours of any kind: a site may be its own one, or have another one twice, and
/// needn't be one of its neighbours'.
pub(crate) struct RandomDoublonHolon<const P: usize> {
    sites: usize,
    /// For each shell the neighbours of each site, `(sites, z)`.
    shells: Vec<Vec<usize>>,
    /// For each shell those of doubly occupied sites, and of empty ones.
    numbers: Vec<[Vec<[f64; P]>; 2]>,
    table: Vec<f64>,
}

impl<const P: usize> RandomDoublonHolon<P> {
    pub(crate) fn new(rng: &mut StdRng, sites: usize, shells: usize, scale: f64) -> Self {
        let counts: Vec<usize> = (0..shells).map(|_| rng.random_range(0..=4)).collect();
        let mut some = |count: usize| (0..count * sites).map(|_| rng.random_range(0..sites)).collect();
        let shells = counts.iter().map(|&count| some(count)).collect();
        let numbers: Vec<_> =
            counts.iter().map(|&count| from_fn(|_| random::<f64, P>(rng, count + 1, scale))).collect();
        let all: Vec<_> = numbers.as_flattened().concat();
        Self { sites, shells, numbers, table: planes(all.len(), |place| all[place]) }
    }

    pub(crate) fn tables(&self) -> DoublonHolonTables<'_> {
        DoublonHolonTables { alpha: &self.table, shells: &self.shells }
    }

    /// ln ψ, by definition.
    pub(crate) fn log_psi(&self, sample: &[LocalIndex]) -> Complex<f64> {
        let fermions = |site: usize| sample[site] + sample[site + self.sites];
        let of_site = |(shell, site): (usize, usize)| {
            let z = self.shells[shell].len() / self.sites;
            let around = |n| self.shells[shell][site * z..][..z].iter().filter(|&&other| fermions(other) == n).count();
            let [doubly_occupied, empty] = &self.numbers[shell];
            match fermions(site) {
                0 => empty[around(2)],
                2 => doubly_occupied[around(0)],
                _ => [0.0; P],
            }
        };
        let places = (0..self.shells.len()).flat_map(|shell| (0..self.sites).map(move |site| (shell, site)));
        complex(sum(places.map(of_site)))
    }
}

/// Determinants, of sectors with as many modes.
pub(crate) struct RandomSlater<const P: usize> {
    pub(crate) modes: usize,
    pub(crate) determinants: usize,
    pub(crate) fermions: Vec<usize>,
    /// See [`SlaterTables::holes`].
    pub(crate) holes: usize,
    orbitals: Vec<[f64; P]>,
    table: Vec<f64>,
}

impl<const P: usize> RandomSlater<P> {
    pub(crate) fn new(rng: &mut StdRng, modes: usize, determinants: usize, fermions: &[usize]) -> Self {
        let len = determinants * modes * fermions.iter().sum::<usize>();
        let orbitals = random::<f64, P>(rng, len, 1.0);
        Self::of(orbitals, modes, determinants, fermions)
    }

    pub(crate) fn of(orbitals: Vec<[f64; P]>, modes: usize, determinants: usize, fermions: &[usize]) -> Self {
        let table = planes(orbitals.len(), |place| orbitals[place]);
        Self { modes, determinants, fermions: fermions.to_vec(), holes: usize::MAX, orbitals, table }
    }

    pub(crate) fn tables(&self) -> SlaterTables<'_, f64> {
        SlaterTables {
            orbitals: &self.table,
            determinants: self.determinants,
            fermions: &self.fermions,
            holes: self.holes,
        }
    }

    /// A configuration at random, with the right numbers of fermions.
    pub(crate) fn sample(&self, rng: &mut StdRng) -> Vec<LocalIndex> {
        let mut sample = Vec::new();
        for &fermions in &self.fermions {
            let mut sector: Vec<LocalIndex> = (0..self.modes).map(|mode| LocalIndex::from(mode < fermions)).collect();
            for place in (1..sector.len()).rev() {
                sector.swap(place, rng.random_range(0..=place));
            }
            sample.extend(sector);
        }
        for index in sample.iter_mut().skip(self.holes) {
            *index ^= 1;
        }
        sample
    }

    /// ψ by definition; 0 with other numbers of fermions.
    pub(crate) fn psi(&self, sample: &[LocalIndex]) -> Complex<f64> {
        self.summands(sample).iter().sum()
    }

    /// Its determinants.
    pub(crate) fn summands(&self, sample: &[LocalIndex]) -> Vec<Complex<f64>> {
        let flipped = sample.iter().enumerate().map(|(site, &index)| index ^ LocalIndex::from(site >= self.holes));
        let sample: &[LocalIndex] = &flipped.collect::<Vec<_>>();
        let mut orbitals = self.orbitals.iter();
        (0..self.determinants)
            .map(|_| {
                let sectors = sample.chunks(self.modes).zip(&self.fermions);
                let of_sector = |(sector, &fermions): (&[LocalIndex], &usize)| {
                    let all: Vec<_> = orbitals.by_ref().take(self.modes * fermions).copied().map(complex).collect();
                    let occupied = (0..self.modes).filter(|&mode| sector[mode] == 1);
                    let rows: Vec<_> = occupied.map(|mode| all[mode * fermions..][..fermions].to_vec()).collect();
                    if rows.len() == fermions { determinant(rows) } else { 0.0.into() }
                };
                sectors.map(of_sector).product::<Complex<f64>>()
            })
            .collect()
    }
}

/// Determinants, each times a restricted Boltzmann machine where the sites are moved.
pub(crate) struct RandomCorrelated<const P: usize> {
    pub(crate) slater: RandomSlater<P>,
    pub(crate) rbm: RandomRbm<f64, 1>,
    pub(crate) permutations: Vec<usize>,
}

impl<const P: usize> RandomCorrelated<P> {
    pub(crate) fn new(rng: &mut StdRng, modes: usize, determinants: usize, fermions: &[usize], scale: f64) -> Self {
        let sites = modes * fermions.len();
        let slater = RandomSlater::new(rng, modes, determinants, fermions);
        let rbm = RandomRbm::new(rng, sites, 5, scale);
        let mut permutations: Vec<usize> = (0..determinants).flat_map(|_| 0..sites).collect();
        permutations.chunks_mut(sites).for_each(|permutation| permutation.shuffle(rng));
        Self { slater, rbm, permutations }
    }

    /// ψ by definition.
    pub(crate) fn psi(&self, sample: &[LocalIndex]) -> Complex<f64> {
        let permutations = self.permutations.chunks(sample.len());
        let terms = self.slater.summands(sample).into_iter().zip(permutations).map(|(determinant, permutation)| {
            let mut moved = vec![0; sample.len()];
            permutation.iter().zip(sample).for_each(|(&to, &index)| moved[to] = index);
            determinant * self.rbm.log_psi(&moved, log_cosh_of_real).exp()
        });
        terms.sum()
    }
}

/// A determinant by Gaussian elimination.
fn determinant(mut rows: Vec<Vec<Complex<f64>>>) -> Complex<f64> {
    let mut product = Complex::new(1.0, 0.0);
    for column in 0..rows.len() {
        let pivot = (column..rows.len()).max_by(|&a, &b| rows[a][column].norm().total_cmp(&rows[b][column].norm()));
        let pivot = pivot.expect("a row");
        if pivot != column {
            rows.swap(pivot, column);
            product = -product;
        }
        product *= rows[column][column];
        if product == Complex::default() {
            break;
        }
        let of_pivot = rows[column].clone();
        for row in &mut rows[column + 1..] {
            let factor = row[column] / of_pivot[column];
            for (number, of_pivot) in row.iter_mut().zip(&of_pivot) {
                *number -= factor * of_pivot;
            }
        }
    }
    product
}

/// Pfaffians of pairs.
pub(crate) struct RandomPfaffians<const P: usize> {
    modes: usize,
    fermions: usize,
    pairs: Vec<[f64; P]>,
    weights: Vec<[f64; P]>,
    pairs_table: Vec<f64>,
    weights_table: Vec<f64>,
}

impl<const P: usize> RandomPfaffians<P> {
    pub(crate) fn new(rng: &mut StdRng, modes: usize, fermions: usize, summands: usize) -> Self {
        let pairs = random::<f64, P>(rng, summands * modes * modes, 1.0);
        let weights = random::<f64, P>(rng, summands, 1.0);
        let (pairs_table, weights_table) = (planes(pairs.len(), |at| pairs[at]), planes(summands, |at| weights[at]));
        Self { modes, fermions, pairs, weights, pairs_table, weights_table }
    }

    /// Leaves no pair of two modes, the second one above the first.
    pub(crate) fn cut(&mut self, a: usize, b: usize) {
        self.pairs[a * self.modes + b] = [0.0; P];
        self.pairs_table = planes(self.pairs.len(), |at| self.pairs[at]);
    }

    pub(crate) fn tables(&self) -> PfaffianTables<'_, f64> {
        PfaffianTables { pairs: &self.pairs_table, weights: &self.weights_table, fermions: self.fermions }
    }

    /// A configuration at random, with the right number of fermions.
    pub(crate) fn sample(&self, rng: &mut StdRng) -> Vec<LocalIndex> {
        let mut sample: Vec<LocalIndex> = (0..self.modes).map(|mode| LocalIndex::from(mode < self.fermions)).collect();
        for place in (1..self.modes).rev() {
            sample.swap(place, rng.random_range(0..=place));
        }
        sample
    }

    /// ψ by definition; 0 with another number of fermions.
    pub(crate) fn psi(&self, sample: &[LocalIndex]) -> Complex<f64> {
        let occupied: Vec<_> = (0..self.modes).filter(|&mode| sample[mode] != 0).collect();
        if occupied.len() != self.fermions {
            return 0.0.into();
        }
        let of_summand = |(summand, &weight): (usize, &[f64; P])| {
            let number = |a: usize, b: usize| complex(self.pairs[(summand * self.modes + a) * self.modes + b]);
            complex(weight) * pfaffian(&occupied, &number)
        };
        self.weights.iter().enumerate().map(of_summand).sum()
    }
}

/// A Pfaffian by elimination of its last two rows, once the largest number of the last one is their neighbour.
fn pfaffian(modes: &[usize], number: &dyn Fn(usize, usize) -> Complex<f64>) -> Complex<f64> {
    let n = modes.len();
    let pair = |a: usize, b: usize| match a.cmp(&b) {
        Ordering::Less => number(modes[a], modes[b]),
        Ordering::Equal => Complex::default(),
        Ordering::Greater => -number(modes[b], modes[a]),
    };
    let mut matrix: Vec<Vec<_>> = (0..n).map(|a| (0..n).map(|b| pair(a, b)).collect()).collect();
    let mut product = Complex::new(1.0, 0.0);
    for last in (1..n).rev().step_by(2) {
        let pivot = (0..last).max_by(|&a, &b| matrix[last][a].norm().total_cmp(&matrix[last][b].norm()));
        let (pivot, before) = (pivot.expect("a row"), last - 1);
        if pivot != before {
            matrix.swap(pivot, before);
            for row in &mut matrix {
                row.swap(pivot, before);
            }
            product = -product;
        }
        let of_pair = matrix[before][last];
        product *= of_pair;
        if product == Complex::default() {
            break;
        }
        let rest = |a: usize, b: usize| {
            let change = matrix[a][before] * matrix[last][b] - matrix[a][last] * matrix[before][b];
            matrix[a][b] + change / of_pair
        };
        matrix = (0..before).map(|a| (0..before).map(|b| rest(a, b)).collect()).collect();
    }
    product
}
