//! Local values of amplitudes whose ratios are known, so that no connected configuration is ever built.

use crate::amplitudes::{Ratios, TOGETHER};
use crate::connected::terms::{BLOCK, Column, Terms, WORDS, bits};
use crate::numbers::Weight;
use crate::sites::LocalIndex;
use num_complex::Complex;
use pulp::{Arch, Simd, WithSimd};

/// The local values Σ ⟨σ|O|σ'⟩ ψ(σ') / ψ(σ) of up to [`crate::connected::terms::BLOCK`] samples σ, given as local indices.
pub fn local_values<V: Weight, R: Ratios>(
    terms: &Terms,
    values: &[V],
    indices: &[LocalIndex],
    ratios: &mut R,
    local: &mut [Complex<f64>],
) {
    local.fill(Complex::default());
    let prepared = || Prepared { change: R::Change::default(), wanted: Vec::with_capacity(BLOCK), visited: 0 };
    let changes = (0..CHANGES).map(|_| prepared()).collect();
    let sums = Sums { ratios, local, opposite: Vec::new(), changes, prepared: 0 };
    Arch::new().dispatch(Work { terms, values, indices, sums });
}

/// So many changes are prepared before samples are visited, so that what is read of a sample serves all of them.
const CHANGES: usize = 16;

/// What [`local_values`] does.
struct Work<'a, V, R: Ratios> {
    terms: &'a Terms<'a>,
    values: &'a [V],
    indices: &'a [LocalIndex],
    sums: Sums<'a, V, R>,
}

impl<V: Weight, R: Ratios> WithSimd for Work<'_, V, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { terms, values, indices, mut sums } = self;
        let samples = sums.local.len();
        sums.ratios.visit(simd, indices, samples);
        terms.for_each_group(
            values,
            indices,
            samples,
            #[inline(always)]
            |sites, columns, active, mels| sums.add_group(simd, sites, columns, active, mels.as_flattened()),
        );
        sums.add_prepared(simd);
    }
}

/// A change, and where it is wanted.
struct Prepared<C, V> {
    change: C,
    /// At which samples of the block, in order.
    wanted: Vec<Wanted<V>>,
    /// At how many of them it was evaluated.
    visited: usize,
}

/// A sample at which a change is wanted.
#[derive(Clone, Copy)]
struct Wanted<V> {
    lane: u8,
    /// Whether all sites go the other way.
    reversed: bool,
    mel: V,
}

/// The local values of some samples, in the making.
struct Sums<'a, V, R: Ratios> {
    ratios: &'a mut R,
    local: &'a mut [Complex<f64>],
    opposite: Vec<bool>,
    changes: Vec<Prepared<R::Change, V>>,
    /// How many of those wait for their samples.
    prepared: usize,
}

impl<V: Weight, R: Ratios> Sums<'_, V, R> {
    /// Adds what one flip gives to the samples that are `active`, now or later.
    #[inline(always)]
    fn add_group<S: Simd>(&mut self, simd: S, sites: &[usize], columns: &[Column], active: Column, mels: &[V]) {
        let Some((&first, others)) = sites.split_first() else {
            for lane in lanes(active) {
                self.local[lane] += mels[lane].into();
            }
            return;
        };
        let mut rest = active;
        while let Some(lane) = lanes(rest).next() {
            // Those whose flipped sites are all as this one's, or all the other way.
            let mut alike = rest;
            self.opposite.clear();
            for &site in others {
                let opposite = (columns[site][lane / 64] ^ columns[first][lane / 64]) >> (lane % 64) & 1;
                self.opposite.push(opposite == 1);
                for word in 0..WORDS {
                    alike[word] &= columns[site][word] ^ columns[first][word] ^ opposite.wrapping_sub(1);
                }
            }
            if self.prepared == CHANGES {
                self.add_prepared(simd);
            }
            let prepared = &mut self.changes[self.prepared];
            self.prepared += 1;
            self.ratios.prepare(simd, &mut prepared.change, sites, &self.opposite);
            prepared.visited = 0;
            prepared.wanted.clear();
            for (word, (&alike, &reversed)) in alike.iter().zip(&columns[first]).enumerate() {
                let mels = &mels[64 * word..][..64];
                prepared.wanted.extend(bits(alike).map(|bit| Wanted {
                    lane: (64 * word + bit) as u8,
                    reversed: reversed >> bit & 1 == 1,
                    mel: mels[bit % 64],
                }));
            }
            for (rest, alike) in rest.iter_mut().zip(alike) {
                *rest &= !alike;
            }
        }
    }

    /// Adds what the prepared changes give, some samples after the others.
    #[inline(always)]
    fn add_prepared<S: Simd>(&mut self, simd: S) {
        let step = self.ratios.cached();
        for end in (step..self.local.len() + step).step_by(step) {
            for prepared in &mut self.changes[..self.prepared] {
                let unvisited = &prepared.wanted[prepared.visited..];
                let n = unvisited.iter().take_while(|wanted| usize::from(wanted.lane) < end).count();
                prepared.visited += n;
                for wanted in unvisited[..n].chunks(TOGETHER) {
                    let (mut samples, mut reversed) = ([0; TOGETHER], [false; TOGETHER]);
                    for place in 0..TOGETHER {
                        let wanted = wanted[place.min(wanted.len() - 1)];
                        samples[place] = usize::from(wanted.lane);
                        reversed[place] = wanted.reversed;
                    }
                    let ratios = self.ratios.ratios(simd, &prepared.change, wanted.len(), samples, reversed);
                    for (wanted, ratio) in wanted.iter().zip(ratios) {
                        self.local[usize::from(wanted.lane)] += wanted.mel.times_ratio(ratio);
                    }
                }
            }
        }
        self.prepared = 0;
    }
}

/// The samples of a block that are set in a column.
#[inline(always)]
fn lanes(column: Column) -> impl Iterator<Item = usize> {
    (0..WORDS).flat_map(move |word| bits(column[word]).map(move |lane| 64 * word + lane))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::jastrow::{self, Jastrow};
    use crate::amplitudes::rbm::{self, Machine, Rbm};
    use crate::amplitudes::{Odds, Walker};
    use crate::connected::terms::TermTables;
    use crate::connected::testing::{SPIN, random_samples};
    use crate::numbers::{Algebra, Complexes, MULTIPLE, Pairs, Real, Reals, complex};
    use crate::sites::Sites;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use std::array::from_fn;

    /// An operator on up to 32 spins.
    struct Operator {
        sites: Sites,
        flip: Vec<u32>,
        first: Vec<i32>,
        mask: Vec<u32>,
        pattern: Vec<u32>,
        sign: Vec<u32>,
        values: Vec<Complex<f64>>,
    }

    impl Operator {
        /// A diagonal, and then so many groups of one or two terms.
        fn random(rng: &mut StdRng, sites: usize, groups: usize) -> Self {
            let all = u32::MAX >> (32 - sites);
            let mut some = |at_most: u32| (0..at_most).fold(0, |sites_, _| sites_ | 1 << rng.random_range(0..sites));
            let flips: Vec<u32> = (0..groups).map(|group| if group % 3 == 2 { some(32) } else { some(2) }).collect();
            let flip: Vec<_> = [0].into_iter().chain(flips).collect();
            let n = 2 * flip.len();
            let mask: Vec<u32> =
                (0..n).map(|_| rng.random::<u32>() & rng.random::<u32>() & rng.random::<u32>() & all).collect();
            let pattern = mask.iter().map(|mask| mask & rng.random::<u32>()).collect();
            let sign = (0..n).map(|_| rng.random::<u32>() & all).collect();
            let values = (0..n).map(|_| Complex::new(rng.random_range(-2..=2).into(), rng.random_range(-2..=2).into()));
            let values = values.collect();
            let first = (0..=flip.len()).map(|group| 2 * group as i32).collect();
            let sites = Sites::new(sites, vec![SPIN], &[]).expect("sites of one kind");
            Self { sites, flip, first, mask, pattern, sign, values }
        }

        fn terms(&self) -> Terms<'_> {
            let Self { flip, first, mask, pattern, sign, .. } = self;
            let tables = TermTables { flip, first, mask, pattern, sign };
            Terms::new(&self.sites, tables, self.values.len(), true).expect("valid tables")
        }

        /// The connected configurations of a sample, and their matrix elements.
        fn connected(&self, sample: &[LocalIndex]) -> Vec<(Vec<LocalIndex>, Complex<f64>)> {
            let sigma = sample.iter().rev().fold(0_u32, |bits, &index| bits << 1 | u32::from(index));
            let term = |term: usize| {
                let sign = 1.0 - 2.0 * f64::from((sigma & self.sign[term]).count_ones() % 2);
                if sigma & self.mask[term] == self.pattern[term] { sign * self.values[term] } else { 0.0.into() }
            };
            let flipped =
                |flip: u32| sample.iter().enumerate().map(|(site, &s)| s ^ (flip >> site & 1) as LocalIndex).collect();
            let elements = self.flip.iter().enumerate();
            elements.map(|(group, &flip)| (flipped(flip), term(2 * group) + term(2 * group + 1))).collect()
        }

        /// The local values of samples, of which `log_psi` is the amplitude, and what they are exact to.
        fn compare(
            &self,
            samples: &[Vec<LocalIndex>],
            found: &[Complex<f64>],
            tolerance: f64,
            log_psi: impl Fn(&[LocalIndex]) -> Complex<f64>,
        ) {
            for (sample, found) in samples.iter().zip(found) {
                let of_sample = log_psi(sample);
                let parts: Vec<_> = self
                    .connected(sample)
                    .into_iter()
                    .filter(|(_, mel)| mel.norm() > 0.0)
                    .map(|(other, mel)| mel * (log_psi(&other) - of_sample).exp())
                    .collect();
                let expected: Complex<f64> = parts.iter().sum();
                let allowed = tolerance * (1.0 + parts.iter().map(|part| part.norm()).sum::<f64>());
                assert!((found - expected).norm() <= allowed, "{found} instead of {expected}");
            }
        }

        fn local_values(&self, samples: &[Vec<LocalIndex>], mut ratios: impl Ratios) -> Vec<Complex<f64>> {
            let mut local = vec![Complex::new(7.0, 7.0); samples.len()];
            let terms = self.terms();
            for (samples, local) in samples.chunks(BLOCK).zip(local.chunks_mut(BLOCK)) {
                super::local_values(&terms, &self.values, &samples.concat(), &mut ratios, local);
            }
            local
        }
    }

    /// Moves at random: the odds of each are compared with what `log_psi` says.
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
                let odds = walker.odds(simd, &indices, &sites);
                let mut there = indices.clone();
                for &site in &sites {
                    there[site as usize] ^= 1;
                }
                let log_there = log_psi(&there).re;
                let expected = log_there - log_here;
                let allowed = tolerance * (1.0 + log_here.abs() + log_there.abs());
                match odds {
                    Odds::Log(log) => assert!((log - expected).abs() < allowed, "{log} {expected}"),
                    Odds::Squared(square) => {
                        let ratio = (square / (2.0 * expected).exp()).ln();
                        assert!(ratio.abs() < 2.0 * allowed, "{square} {expected}");
                    }
                }
                // Where ψ is nearly 0 no chain goes, and all errors are large.
                if rng.random::<f64>() < (2.0 * expected).exp().max(0.1) && expected > -30.0 {
                    (indices, log_here) = (there, log_there);
                    walker.accept(simd, &indices);
                }
            }
        }
    }

    /// Compares a walker from a few samples on.
    fn compare_steps<W: Walker>(
        rng: &mut StdRng,
        samples: &[Vec<LocalIndex>],
        tolerance: f64,
        log_psi: impl Fn(&[LocalIndex]) -> Complex<f64>,
        mut walker: impl FnMut() -> W,
    ) {
        for sample in samples.iter().take(2) {
            let indices = sample.clone();
            Arch::new().dispatch(Steps { walker: walker(), rng, indices, tolerance, log_psi: &log_psi });
        }
    }

    fn value(index: LocalIndex) -> f64 {
        1.0 - 2.0 * f64::from(index)
    }

    /// ln cosh of a complex number.
    fn log_cosh(z: Complex<f64>) -> Complex<f64> {
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

    /// The tables of a machine with weights `(sites, units)`, against ln ψ by its definition.
    fn compare_machine<T: Real, A: Algebra<P>, const P: usize>(
        rng: &mut StdRng,
        operator: &Operator,
        samples: &[Vec<LocalIndex>],
        units: usize,
        scale: f64,
        tolerance: f64,
        log_cosh: impl Fn([f64; P]) -> Complex<f64>,
    ) {
        let sites = operator.sites.len();
        let weights = random::<T, P>(rng, sites * units, scale);
        let (bias, visible) = (random::<T, P>(rng, units, scale), random::<T, P>(rng, sites, scale));
        let theta = |sample: &[LocalIndex], unit: usize| {
            let of_sites = sample.iter().enumerate();
            sum(of_sites.map(|(site, &s)| weights[site * units + unit].map(|w| w * value(s))).chain([bias[unit]]))
        };
        let log_psi = &|sample: &[LocalIndex]| {
            let visible = sum(sample.iter().zip(&visible).map(|(&s, a)| a.map(|a| a * value(s))));
            complex(visible) + (0..units).map(|unit| log_cosh(theta(sample, unit))).sum::<Complex<f64>>()
        };

        // Units that there are not have θ = δ = 0.
        let padded = units.next_multiple_of(MULTIPLE);
        let of_unit = |place: usize, number: &dyn Fn(usize, usize) -> [f64; P]| {
            if place % padded < units { number(place / padded, place % padded) } else { [0.0; P] }
        };
        let first = vec![0; sites];
        let tables = [
            planes::<T, P>(padded, |place| of_unit(place, &|_, unit| theta(&first, unit))),
            planes::<T, P>(sites * padded, |place| {
                of_unit(place, &|site, unit| weights[site * units + unit].map(|w| -2.0 * w))
            }),
            planes::<T, P>(sites, |site| visible[site].map(|a| -2.0 * a)),
        ];
        let [theta, delta, bias] = tables.each_ref().map(|table| &table[..]);
        let machine = Machine::<T, A, P>::new(Rbm { theta, delta, bias, units: padded }, sites).expect("tables");
        let found = operator.local_values(samples, rbm::Amplitudes::new(&machine));
        operator.compare(samples, &found, tolerance, log_psi);
        compare_steps(rng, samples, tolerance, log_psi, || rbm::Walker::new(&machine));
    }

    /// A Jastrow amplitude with a symmetric matrix, alike.
    fn compare_jastrow<T: Real, A: Algebra<P>, const P: usize>(
        rng: &mut StdRng,
        operator: &Operator,
        samples: &[Vec<LocalIndex>],
        scale: f64,
        tolerance: f64,
    ) {
        let sites = operator.sites.len();
        let lower = random::<T, P>(rng, sites * sites, scale);
        let pair = |i: usize, j: usize| if i == j { [0.0; P] } else { lower[i.max(j) * sites + i.min(j)] };
        let log_psi = &|sample: &[LocalIndex]| {
            let pairs = (0..sites).flat_map(|i| (0..i).map(move |j| (i, j)));
            complex(sum(pairs.map(|(i, j)| pair(i, j).map(|w| w * value(sample[i]) * value(sample[j])))))
        };
        let columns = sites.next_multiple_of(MULTIPLE);
        let of_column = |place: usize, number: &dyn Fn(usize, usize) -> [f64; P]| {
            if place % columns < sites { number(place / columns, place % columns) } else { [0.0; P] }
        };
        let field = |i: usize| sum((0..sites).map(|j| pair(i, j).map(|w| -2.0 * w)));
        let fields = planes::<T, P>(columns, |place| of_column(place, &|_, i| field(i)));
        let pairs = planes::<T, P>(sites * columns, |place| of_column(place, &|i, j| pair(i, j).map(|w| 4.0 * w)));
        let tables = Jastrow { fields: &fields, pairs: &pairs, columns };
        let amplitudes = jastrow::Amplitudes::<T, A, P>::new(tables, sites).expect("tables");
        operator.compare(samples, &operator.local_values(samples, amplitudes), tolerance, log_psi);
        // What the modulus depends on are the real parts.
        let tables = Jastrow { fields: &fields[..columns], pairs: &pairs[..sites * columns], columns };
        compare_steps(rng, samples, tolerance, log_psi, || jastrow::Walker::new(tables, sites).expect("tables"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn local_values_by_definition(
            sites in 1_usize..=12, groups in 0_usize..=12, units in 0_usize..=40, samples in 0_usize..=300,
            scale in prop_oneof![Just(0.1_f64), Just(0.7), Just(2.0), Just(6.0)], seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let operator = Operator::random(rng, sites, groups);
            let samples = random_samples(rng, &operator.sites, samples);
            let real = |[x]: [f64; 1]| log_cosh(x.into());
            let complex = |[x, y]: [f64; 2]| log_cosh(Complex::new(x, y));
            let pair = |[x, y]: [f64; 2]| Complex::new(log_cosh(x.into()).re, log_cosh(y.into()).re);
            // The angles of complex amplitudes are as large as their logarithms, and as inexact.
            let large = (1 + units) as f64 * scale.max(1.0);
            let (single, double) = (2e-6 * large, 1e-14 * large * 40.0);
            compare_machine::<f64, Reals, 1>(rng, &operator, &samples, units, scale, double, real);
            compare_machine::<f32, Reals, 1>(rng, &operator, &samples, units, scale.min(2.0), single, real);
            compare_machine::<f64, Pairs, 2>(rng, &operator, &samples, units, scale, double, pair);
            compare_machine::<f32, Pairs, 2>(rng, &operator, &samples, units, scale.min(2.0), single, pair);
            // cosh of a complex number may be near zero.
            compare_machine::<f64, Complexes, 2>(rng, &operator, &samples, units, scale.min(0.7), 1e3 * double, complex);
            compare_machine::<f32, Complexes, 2>(rng, &operator, &samples, units, 0.1, 1e2 * single, complex);
            compare_jastrow::<f64, Reals, 1>(rng, &operator, &samples, scale, 1e-12 * large);
            compare_jastrow::<f64, Complexes, 2>(rng, &operator, &samples, scale, 1e-12 * large);
            compare_jastrow::<f32, Complexes, 2>(rng, &operator, &samples, 0.1, 1e-4);
        }
    }

    /// Two samples, one site and no unit that matters, with some tables of the wrong length.
    #[test]
    fn tables_of_the_wrong_length() {
        let (right, one) = ([0.0; 16], [0.0; 1]);
        let rbm = Rbm { theta: &right, delta: &right, bias: &one, units: 16 };
        let message = |rbm| Machine::<f64, Reals, 1>::new(rbm, 1).expect_err("wrong tables").to_string();
        assert!(Machine::<f64, Reals, 1>::new(rbm, 1).is_ok());
        assert!(message(Rbm { units: 15, ..rbm }).contains("15 hidden units"));
        assert!(message(Rbm { theta: &right[1..], ..rbm }).contains("`theta` has 15 numbers"));
        assert!(message(Rbm { delta: &right[1..], ..rbm }).contains("`delta` has 15 numbers"));
        assert!(message(Rbm { bias: &right, ..rbm }).contains("`bias` has 16 numbers"));
        let jastrow = Jastrow { fields: &right, pairs: &right, columns: 16 };
        let message =
            |jastrow| jastrow::Amplitudes::<f64, Reals, 1>::new(jastrow, 1).expect_err("wrong tables").to_string();
        assert!(jastrow::Amplitudes::<f64, Reals, 1>::new(jastrow, 1).is_ok());
        assert!(message(Jastrow { columns: 15, ..jastrow }).contains("15 columns"));
        assert!(message(Jastrow { columns: 0, ..jastrow }).contains("0 columns"));
        assert!(message(Jastrow { fields: &one, ..jastrow }).contains("`fields` has 1 numbers"));
        assert!(message(Jastrow { pairs: &one, ..jastrow }).contains("`pairs` has 1 numbers"));
    }
}
