//! Local values of amplitudes whose ratios are known, so that no connected configuration is ever built.

use crate::amplitudes::{RATIOS_PER_BLOCK, Ratios};
use crate::connected::terms::{BLOCK, Column, Terms, WORDS, bits, lanes};
use crate::numbers::{Weight, dispatch};
use crate::sites::LocalIndex;
use num_complex::Complex;
use pulp::{NullaryFnOnce, Simd, WithSimd};

/// The local values Σ ⟨σ|O|σ'⟩ ψ(σ') / ψ(σ) of up to [`crate::connected::terms::BLOCK`] samples σ, given as local indices.
pub fn local_values<V: Weight, R: Ratios>(
    terms: &Terms,
    values: &[V],
    indices: &[LocalIndex],
    ratios: &mut R,
    local: &mut [Complex<f64>],
) {
    local.fill(Complex::default());
    let prepared = || Prepared { change: R::SiteChange::default(), wanted: Vec::with_capacity(BLOCK), visited: 0 };
    let changes = (0..ratios.changes()).map(|_| prepared()).collect();
    let sums = Sums { ratios, local, opposite: Vec::new(), changes, prepared: 0 };
    dispatch(Work { terms, values, indices, sums });
}

/// What [`local_values`] does.
struct Work<'a, V, R: Ratios> {
    terms: &'a Terms<'a>,
    values: &'a [V],
    indices: &'a [LocalIndex],
    sums: Sums<'a, R>,
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
struct Prepared<C> {
    change: C,
    /// At which samples of the block, in order.
    wanted: Vec<Wanted>,
    /// At how many of them it was evaluated.
    visited: usize,
}

/// A sample at which a change is wanted.
#[derive(Clone, Copy)]
struct Wanted {
    lane: u8,
    /// Whether all sites go the other way.
    reversed: bool,
    mel: Complex<f64>,
}

/// The local values of some samples, in the making.
struct Sums<'a, R: Ratios> {
    ratios: &'a mut R,
    local: &'a mut [Complex<f64>],
    opposite: Vec<bool>,
    changes: Vec<Prepared<R::SiteChange>>,
    /// How many of those wait for their samples.
    prepared: usize,
}

/// [`Sums::add_prepared`] as a function of its own, which both types of matrix elements share.
///
/// No closure: the standard library would call it from a function that isn't inlined.
struct AddPrepared<'s, 'a, S, R: Ratios> {
    simd: S,
    sums: &'s mut Sums<'a, R>,
}

impl<S: Simd, R: Ratios> NullaryFnOnce for AddPrepared<'_, '_, S, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.sums.add_prepared_here(self.simd);
    }
}

impl<R: Ratios> Sums<'_, R> {
    /// Adds what one flip gives to the samples that are `active`, now or later.
    #[inline(always)]
    fn add_group<S: Simd, V: Weight>(
        &mut self,
        simd: S,
        sites: &[usize],
        columns: &[Column],
        active: Column,
        mels: &[V],
    ) {
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
            if self.prepared == self.changes.len() {
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
                    mel: mels[bit % 64].into(),
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
        simd.vectorize(AddPrepared { simd, sums: self });
    }

    #[inline(always)]
    fn add_prepared_here<S: Simd>(&mut self, simd: S) {
        let step = self.ratios.cached();
        for end in (step..self.local.len() + step).step_by(step) {
            for prepared in &mut self.changes[..self.prepared] {
                let unvisited = &prepared.wanted[prepared.visited..];
                let n = unvisited.iter().take_while(|wanted| usize::from(wanted.lane) < end).count();
                prepared.visited += n;
                for wanted in unvisited[..n].chunks(RATIOS_PER_BLOCK) {
                    let (mut samples, mut reversed) = ([0; RATIOS_PER_BLOCK], [false; RATIOS_PER_BLOCK]);
                    for place in 0..RATIOS_PER_BLOCK {
                        let wanted = wanted[place.min(wanted.len() - 1)];
                        samples[place] = usize::from(wanted.lane);
                        reversed[place] = wanted.reversed;
                    }
                    let ratios = self.ratios.ratios(simd, &prepared.change, wanted.len(), samples, reversed);
                    for (wanted, ratio) in wanted.iter().zip(ratios) {
                        self.local[usize::from(wanted.lane)] += ratio * wanted.mel;
                    }
                }
            }
        }
        self.prepared = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::correlated::{self, Correlated};
    use crate::amplitudes::doublon_holon::{self, DoublonHolon};
    use crate::amplitudes::fermions::{self, Orbital};
    use crate::amplitudes::jastrow;
    use crate::amplitudes::pfaffian::Pfaffians;
    use crate::amplitudes::rbm::{self, Rbm};
    use crate::amplitudes::slater::Slater;
    use crate::amplitudes::testing::{
        RandomCorrelated, RandomDoublonHolon, RandomJastrow, RandomPfaffians, RandomRbm, RandomSlater,
        log_cosh_of_complex, log_cosh_of_pair, log_cosh_of_real,
    };
    use crate::connected::terms::TermTables;
    use crate::numbers::{Algebra, Complexes, Real, RealPairs, Reals, each_level};
    use crate::sites::Sites;
    use crate::sites::testing::{SPIN, random_samples};
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

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

        /// Compares local values of samples, of which `log_psi` is the amplitude, on each level of vector instructions.
        fn compare(
            &self,
            samples: &[Vec<LocalIndex>],
            mut ratios: impl Ratios,
            tolerance: f64,
            log_psi: impl Fn(&[LocalIndex]) -> Complex<f64>,
        ) {
            let levels: Vec<_> = each_level().map(|_| self.local_values(samples, &mut ratios)).collect();
            for (place, sample) in samples.iter().enumerate() {
                let of_sample = log_psi(sample);
                let parts: Vec<_> = self
                    .connected(sample)
                    .into_iter()
                    .filter(|(_, mel)| mel.norm() > 0.0)
                    .map(|(other, mel)| mel * (log_psi(&other) - of_sample).exp())
                    .collect();
                let expected: Complex<f64> = parts.iter().sum();
                let allowed = tolerance * (1.0 + parts.iter().map(|part| part.norm()).sum::<f64>());
                for found in levels.iter().map(|local| local[place]) {
                    assert!((found - expected).norm() <= allowed, "{found} instead of {expected}");
                }
            }
        }

        fn compare_rbm<T: Real, A: Algebra<P>, const P: usize>(
            &self,
            random: &RandomRbm<T, P>,
            samples: &[Vec<LocalIndex>],
            tolerance: f64,
            log_cosh: impl Fn([f64; P]) -> Complex<f64>,
        ) {
            let rbm = Rbm::<T, A, P>::new(random.tables(), self.sites.len()).expect("tables");
            let ratios = rbm::Amplitudes::new(&rbm);
            self.compare(samples, ratios, tolerance, |sample| random.log_psi(sample, &log_cosh));
        }

        fn compare_jastrow<T: Real, A: Algebra<P>, const P: usize>(
            &self,
            jastrow: &RandomJastrow<T, P>,
            samples: &[Vec<LocalIndex>],
            tolerance: f64,
        ) {
            let amplitudes = jastrow::Amplitudes::<T, A, P>::new(jastrow.tables(), self.sites.len()).expect("tables");
            self.compare(samples, amplitudes, tolerance, |sample| jastrow.log_psi(sample));
        }

        fn compare_doublon_holon<A: Algebra<P>, const P: usize>(
            &self,
            random: &RandomDoublonHolon<P>,
            samples: &[Vec<LocalIndex>],
        ) {
            let factor = DoublonHolon::<P>::new(random.tables(), self.sites.len()).expect("tables");
            let ratios = doublon_holon::Amplitudes::<A, P>::new(&factor);
            self.compare(samples, ratios, 1e-11, |sample| random.log_psi(sample));
        }

        fn compare_slater<E: Orbital, const P: usize>(
            &self,
            slater: &RandomSlater<P>,
            samples: &[Vec<LocalIndex>],
            tolerance: f64,
        ) {
            let determinants = Slater::<E>::new::<f64, P>(slater.tables(), self.sites.len()).expect("tables");
            let ratios = fermions::Amplitudes::new(&determinants);
            self.compare(samples, ratios, tolerance, |sample| slater.psi(sample).ln());
        }

        fn compare_pfaffians<E: Orbital, const P: usize>(
            &self,
            random: &RandomPfaffians<P>,
            samples: &[Vec<LocalIndex>],
            tolerance: f64,
        ) {
            let pfaffians = Pfaffians::<E>::new::<f64, P>(random.tables(), self.sites.len()).expect("tables");
            let ratios = fermions::Amplitudes::new(&pfaffians);
            self.compare(samples, ratios, tolerance, |sample| random.psi(sample).ln());
        }

        fn compare_correlated<E: Orbital, const P: usize>(
            &self,
            random: &RandomCorrelated<P>,
            samples: &[Vec<LocalIndex>],
            tolerance: f64,
        ) {
            let sites = self.sites.len();
            let slater = Slater::<E>::new::<f64, P>(random.slater.tables(), sites).expect("tables");
            let rbm = Rbm::new(random.rbm.tables(), sites).expect("tables");
            let of = Correlated::new(slater, rbm, random.permutations.clone(), sites).expect("permutations");
            self.compare(samples, correlated::Amplitudes::new(&of), tolerance, |sample| random.psi(sample).ln());
        }

        fn local_values(&self, samples: &[Vec<LocalIndex>], ratios: &mut impl Ratios) -> Vec<Complex<f64>> {
            let mut local = vec![Complex::new(7.0, 7.0); samples.len()];
            let terms = self.terms();
            for (samples, local) in samples.chunks(BLOCK).zip(local.chunks_mut(BLOCK)) {
                super::local_values(&terms, &self.values, &samples.concat(), ratios, local);
            }
            local
        }
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
            let samples = &random_samples(rng, &operator.sites, samples);
            let narrow = scale.min(2.0);
            // The angles of complex amplitudes are as large as their logarithms, and as inexact.
            let large = (1 + units) as f64 * scale.max(1.0);
            let (single, double) = (2e-6 * large, 1e-14 * large * 40.0);
            operator.compare_rbm::<f64, Reals, 1>(&RandomRbm::new(rng, sites, units, scale), samples, double, log_cosh_of_real);
            operator.compare_rbm::<f32, Reals, 1>(&RandomRbm::new(rng, sites, units, narrow), samples, single, log_cosh_of_real);
            operator.compare_rbm::<f64, RealPairs, 2>(&RandomRbm::new(rng, sites, units, scale), samples, double, log_cosh_of_pair);
            operator.compare_rbm::<f32, RealPairs, 2>(&RandomRbm::new(rng, sites, units, narrow), samples, single, log_cosh_of_pair);
            // cosh of a complex number may be near zero.
            let (small, tiny) = (RandomRbm::new(rng, sites, units, scale.min(0.7)), RandomRbm::new(rng, sites, units, 0.1));
            operator.compare_rbm::<f64, Complexes, 2>(&small, samples, 1e3 * double, log_cosh_of_complex);
            operator.compare_rbm::<f32, Complexes, 2>(&tiny, samples, 1e2 * single, log_cosh_of_complex);
            operator.compare_jastrow::<f64, Reals, 1>(&RandomJastrow::new(rng, sites, scale), samples, 1e-12 * large);
            operator.compare_jastrow::<f64, Complexes, 2>(&RandomJastrow::new(rng, sites, scale), samples, 1e-12 * large);
            operator.compare_jastrow::<f32, Complexes, 2>(&RandomJastrow::new(rng, sites, 0.1), samples, 1e-4);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn local_values_of_determinants(
            modes in 1_usize..=8, fermions in proptest::collection::vec(0.0..=1.0_f64, 1..=3), determinants in 1_usize..=3,
            groups in 0_usize..=12, samples in 0_usize..=300, holes in 0_usize..=24, seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let fermions: Vec<usize> = fermions.iter().map(|share: &f64| (share * modes as f64).round() as usize).collect();
            let operator = Operator::random(rng, modes * fermions.len(), groups);
            let mut real = RandomSlater::<1>::new(rng, modes, determinants, &fermions);
            let mut complex = RandomSlater::<2>::new(rng, modes, determinants, &fermions);
            (real.holes, complex.holes) = (holes, holes);
            let samples: Vec<_> = (0..samples).map(|_| real.sample(rng)).collect();
            // Where ψ is nearly 0 ratios are large, and their errors larger.
            operator.compare_slater::<f64, 1>(&real, &samples, 1e-9);
            operator.compare_slater::<Complex<f64>, 2>(&complex, &samples, 1e-9);
        }

        #[test]
        fn local_values_of_correlated_determinants(
            modes in 1_usize..=6, fermions in proptest::collection::vec(0.0..=1.0_f64, 1..=2), determinants in 1_usize..=4,
            groups in 0_usize..=12, samples in 0_usize..=150, holes in 0_usize..=12,
            scale in prop_oneof![Just(0.1_f64), Just(0.7), Just(6.0)], seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let fermions: Vec<usize> = fermions.iter().map(|share: &f64| (share * modes as f64).round() as usize).collect();
            let operator = Operator::random(rng, modes * fermions.len(), groups);
            let mut real = RandomCorrelated::<1>::new(rng, modes, determinants, &fermions, scale);
            let mut complex = RandomCorrelated::<2>::new(rng, modes, determinants, &fermions, scale);
            (real.slater.holes, complex.slater.holes) = (holes, holes);
            let samples: Vec<_> = (0..samples).map(|_| real.slater.sample(rng)).collect();
            operator.compare_correlated::<f64, 1>(&real, &samples, 1e-9);
            operator.compare_correlated::<Complex<f64>, 2>(&complex, &samples, 1e-9);
        }

        #[test]
        fn local_values_of_doublons_and_holons(
            sites in 1_usize..=6, shells in 0_usize..=2, groups in 0_usize..=12, samples in 0_usize..=300, seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let operator = Operator::random(rng, 2 * sites, groups);
            let samples = &random_samples(rng, &operator.sites, samples);
            operator.compare_doublon_holon::<Reals, 1>(&RandomDoublonHolon::new(rng, sites, shells, 1.0), samples);
            operator.compare_doublon_holon::<Complexes, 2>(&RandomDoublonHolon::new(rng, sites, shells, 1.0), samples);
        }

        #[test]
        fn local_values_of_pairs(
            modes in 1_usize..=12, share in 0.0..=1.0_f64, summands in 1_usize..=3, groups in 0_usize..=12,
            samples in 0_usize..=150, seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let fermions = (share * modes as f64 / 2.0).floor() as usize * 2;
            let real = RandomPfaffians::<1>::new(rng, modes, fermions, summands);
            let complex = RandomPfaffians::<2>::new(rng, modes, fermions, summands);
            let operator = Operator::random(rng, modes, groups);
            let samples: Vec<_> = (0..samples).map(|_| real.sample(rng)).collect();
            operator.compare_pfaffians::<f64, 1>(&real, &samples, 1e-9);
            operator.compare_pfaffians::<Complex<f64>, 2>(&complex, &samples, 1e-9);
        }
    }
}
