//! Jastrow amplitudes.
//!
//! ln ψ(σ) = ½ `Σ_ij σ_i S_ij σ_j` with a symmetric S that has no diagonal. If the `σ_i` change by `d_i`, ln ψ does by
//! `Σ_i d_i (Sσ)_i + Σ_{i<j} d_i S_ij d_j`.

use crate::Error;
use crate::amplitudes::sums::{Changed, sum_rows};
use crate::amplitudes::{self, AmplitudeRatio, RATIOS_PER_BLOCK, Ratios};
use crate::connected::terms::BLOCK;
use crate::error::check;
use crate::numbers::{Algebra, MULTIPLE, Real, add_signed, complex, planes, planes_mut};
use crate::sites::LocalIndex;
use num_complex::Complex;
use pulp::Simd;
use std::marker::PhantomData;

/// How ln ψ changes if sites go from their first to their second local state, in planes of real numbers.
#[derive(Debug, Clone, Copy)]
pub struct JastrowTables<'a, T> {
    /// `d_i (Sσ)_i` where all sites have their first local state, `(planes, columns)`.
    pub fields: &'a [T],
    /// `d_i S_ij d_j`, `(planes, sites, columns)`.
    pub pairs: &'a [T],
    /// As many as there are sites, and some more, for a [`MULTIPLE`].
    pub columns: usize,
}

impl<'a, T> JastrowTables<'a, T> {
    /// `d_i S_ij d_j` of a site with all others, in the first plane.
    #[inline(always)]
    fn pairs(&self, site: usize) -> &'a [T] {
        &self.pairs[site * self.columns..][..self.columns]
    }

    /// Checks the tables, of `planes` planes.
    fn check(&self, planes: usize, sites: usize) -> Result<(), Error> {
        let Self { fields, pairs, columns } = *self;
        check(columns % MULTIPLE == 0 && columns >= sites, || {
            format!("there are {columns} columns, but must be a multiple of {MULTIPLE}, and at least {sites}")
        })?;
        check(fields.len() == planes * columns, || {
            format!("`fields` has {} numbers, but must have {planes} for each of {columns} columns", fields.len())
        })?;
        check(pairs.len() == planes * sites * columns, || {
            format!(
                "`pairs` has {} numbers, but must have {planes} for each of {sites} sites and {columns} columns",
                pairs.len()
            )
        })
    }
}

/// The amplitudes of some samples, whose numbers are those of `A`, of `P` planes.
#[derive(Debug, Clone)]
pub struct Amplitudes<'a, T, A, const P: usize> {
    tables: JastrowTables<'a, T>,
    changed: Changed,
    /// `d_i (Sσ)_i` of the samples, `(planes, samples, columns)`.
    fields: Vec<T>,
    algebra: PhantomData<A>,
}

/// Some sites that change.
#[derive(Debug, Default)]
pub struct JastrowChange {
    /// Whether they go from their second to their first state.
    sites: Vec<(usize, bool)>,
    /// What the pairs of them give.
    of_pairs: Complex<f64>,
}

impl<'a, T: Real, A, const P: usize> Amplitudes<'a, T, A, P> {
    /// Checks the tables. At no samples.
    pub fn new(tables: JastrowTables<'a, T>, sites: usize) -> Result<Self, Error> {
        tables.check(P, sites)?;
        Ok(Self { tables, changed: Changed::default(), fields: Vec::new(), algebra: PhantomData })
    }
}

/// A number of a table with planes of one length.
#[inline(always)]
fn at<T: Real, const P: usize>(table: &[T], place: usize) -> Complex<f64> {
    let plane_len = table.len() / P;
    let mut number = [0.0; P];
    for (plane, part) in number.iter_mut().enumerate() {
        *part = table[plane * plane_len + place].into();
    }
    complex(number)
}

impl<T: Real, A: Algebra<P>, const P: usize> Ratios for Amplitudes<'_, T, A, P> {
    type Ratio = A::Factor;
    type SiteChange = JastrowChange;

    fn cached(&self) -> usize {
        BLOCK
    }

    #[inline(always)]
    fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex], samples: usize) {
        let JastrowTables { fields, pairs, columns } = self.tables;
        self.changed.set(indices, samples);
        self.fields.resize(P * samples * columns, T::default());
        let sums = planes_mut::<T, P>(&mut self.fields).into_iter();
        for ((sums, first), pairs) in sums.zip(planes::<T, P>(fields)).zip(planes::<T, P>(pairs)) {
            sum_rows(simd, first, pairs, &self.changed, sums);
        }
    }

    #[inline(always)]
    fn prepare<S: Simd>(&self, _: S, change: &mut JastrowChange, sites: &[usize], opposite: &[bool]) {
        change.sites.clear();
        change.of_pairs = Complex::default();
        for (&site, back) in sites.iter().zip([false].into_iter().chain(opposite.iter().copied())) {
            for &(other, other_back) in &change.sites {
                let pair = at::<T, P>(self.tables.pairs, other * self.tables.columns + site);
                change.of_pairs += if back == other_back { pair } else { -pair };
            }
            change.sites.push((site, back));
        }
    }

    #[inline(always)]
    fn ratios<S: Simd>(
        &self,
        _: S,
        change: &JastrowChange,
        n: usize,
        samples: [usize; RATIOS_PER_BLOCK],
        reversed: [bool; RATIOS_PER_BLOCK],
    ) -> [A::Factor; RATIOS_PER_BLOCK] {
        let mut ratios = [A::Factor::default(); RATIOS_PER_BLOCK];
        for ((ratio, sample), reversed) in ratios.iter_mut().zip(samples).zip(reversed).take(n) {
            let mut log = change.of_pairs;
            for &(site, back) in &change.sites {
                let field = at::<T, P>(&self.fields, sample * self.tables.columns + site);
                log += if back == reversed { field } else { -field };
            }
            *ratio = A::exponential(log);
        }
        ratios
    }
}

/// After so many moves the fields are summed up anew, since each adds a rounding error.
const MOVES: usize = 256;

/// The modulus of an amplitude, from real tables, at a configuration that moves.
#[derive(Debug, Clone)]
pub struct Walker<'a, T> {
    tables: JastrowTables<'a, T>,
    changed: Changed,
    /// `d_i (Sσ)_i` of the configuration.
    fields: Vec<T>,
    /// The sites of the proposed move, and whether they go from their second to their first state.
    flips: Vec<(usize, bool)>,
    moves: usize,
}

impl<'a, T: Real> Walker<'a, T> {
    /// Checks the tables. At no configuration.
    pub fn new(tables: JastrowTables<'a, T>, sites: usize) -> Result<Self, Error> {
        tables.check(1, sites)?;
        let fields = vec![T::default(); tables.columns];
        Ok(Self { tables, changed: Changed::default(), fields, flips: Vec::new(), moves: 0 })
    }
}

impl<T: Real> amplitudes::Walker for Walker<'_, T> {
    #[inline(always)]
    fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]) {
        self.changed.set(indices, 1);
        sum_rows(simd, self.tables.fields, self.tables.pairs, &self.changed, &mut self.fields);
        self.moves = 0;
    }

    #[inline(always)]
    fn amplitude_ratio<S: Simd>(&mut self, _: S, indices: &[LocalIndex], sites: &[u32]) -> AmplitudeRatio {
        self.flips.clear();
        let mut log = 0.0;
        for &site in sites {
            let site = site as usize;
            let back = indices[site] == 1;
            let mut change: f64 = self.fields[site].into();
            for &(other, other_back) in &self.flips {
                let pair: f64 = self.tables.pairs(other)[site].into();
                change += if other_back { -pair } else { pair };
            }
            log += if back { -change } else { change };
            self.flips.push((site, back));
        }
        AmplitudeRatio::Log(log)
    }

    #[inline(always)]
    fn accept<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]) {
        self.moves += 1;
        if self.moves == MOVES {
            self.visit(simd, indices);
            return;
        }
        for place in 0..self.flips.len() {
            let (site, back) = self.flips[place];
            add_signed(simd, &mut self.fields, self.tables.pairs(site), back);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::Walker as _;
    use crate::amplitudes::testing::{Flips, RandomJastrow, compare_steps, flipped};
    use crate::numbers::{Complexes, Reals, dispatch, each_level};
    use crate::sites::Sites;
    use crate::sites::testing::{SPIN, random_samples};
    use proptest::prelude::*;
    use pulp::WithSimd;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    fn compare<T: Real, A: Algebra<P>, const P: usize>(rng: &mut StdRng, sites: usize, scale: f64, tolerance: f64) {
        let random = RandomJastrow::<T, P>::new(rng, sites, scale);
        let spins = Sites::new(sites, vec![SPIN], &[]).expect("spins");
        let samples = random_samples(rng, &spins, 3);
        let amplitudes = Amplitudes::<T, A, P>::new(random.tables(), sites).expect("tables");
        let flips: Vec<usize> = (0..sites).filter(|_| rng.random()).collect();
        if flips.is_empty() {
            return;
        }
        let there = flipped(&samples[2], flips.iter().copied());
        let expected = (random.log_psi(&there) - random.log_psi(&samples[2])).exp();
        for _ in each_level() {
            let ratios = amplitudes.clone();
            let found: Complex<f64> = dispatch(Flips { ratios, samples: &samples, sites: &flips }).into();
            assert!((found - expected).norm() <= tolerance * (1.0 + expected.norm()), "{found} instead of {expected}");
        }
    }

    proptest! {
        #[test]
        fn ratios_are_those_of_two_evaluations(
            sites in 1_usize..=20, scale in prop_oneof![Just(0.02_f64), Just(0.2), Just(1.0)], seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            compare::<f64, Reals, 1>(rng, sites, scale, 1e-11);
            compare::<f64, Complexes, 2>(rng, sites, scale, 1e-11);
            compare::<f32, Reals, 1>(rng, sites, 0.02, 1e-4);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Along a chain, past the move at which the fields are summed up anew.
        #[test]
        fn amplitude_ratios_are_those_of_two_evaluations(sites in 1_usize..=12, scale in 0.01_f64..2.0, seed: u64) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let start: Vec<_> = (0..sites).map(|_| rng.random_range(0..2)).collect();
            macro_rules! compare {
                ($T:ty, $P:literal, $scale:expr, $tolerance:expr) => {{
                    let random = RandomJastrow::<$T, $P>::new(rng, sites, $scale);
                    let walker = || Walker::new(random.tables_of_modulus(), sites).expect("tables");
                    compare_steps(rng, &start, $tolerance, |sample| random.log_psi(sample), walker);
                }};
            }
            compare!(f64, 1, scale, 1e-12);
            compare!(f64, 2, scale, 1e-12);
            compare!(f32, 2, 0.1, 1e-4);
        }
    }

    /// Flips sites one after the other; the fields then, and those of a fresh walker.
    struct Sequence<'a> {
        walker: Walker<'a, f64>,
        start: Vec<LocalIndex>,
        flips: usize,
    }

    impl WithSimd for Sequence<'_> {
        type Output = [Vec<f64>; 2];

        fn with_simd<S: Simd>(self, simd: S) -> [Vec<f64>; 2] {
            let Self { mut walker, start: mut indices, flips } = self;
            let mut fresh = walker.clone();
            walker.visit(simd, &indices);
            for flip in 0..flips {
                let site = flip % indices.len();
                walker.amplitude_ratio(simd, &indices, &[site as u32]);
                indices = flipped(&indices, [site]);
                walker.accept(simd, &indices);
            }
            fresh.visit(simd, &indices);
            [walker.fields, fresh.fields]
        }
    }

    #[test]
    fn after_flips_it_is_where_a_fresh_one_is() {
        let random = RandomJastrow::<f64, 1>::new(&mut StdRng::seed_from_u64(5), 6, 0.4);
        for flips in [0, 1, 5, 255, 256, 300] {
            for _ in each_level() {
                let walker = Walker::new(random.tables(), 6).expect("tables");
                let [walked, fresh] = dispatch(Sequence { walker, start: vec![0, 1, 1, 0, 1, 0], flips });
                for (walked, fresh) in walked.iter().zip(&fresh) {
                    assert!((walked - fresh).abs() < 1e-12, "{walked} instead of {fresh} after {flips} flips");
                }
            }
        }
    }

    #[test]
    fn tables_of_the_wrong_length() {
        let (right, one) = ([0.0; 16], [0.0; 1]);
        let tables = JastrowTables { fields: &right, pairs: &right, columns: 16 };
        let message = |tables| Amplitudes::<f64, Reals, 1>::new(tables, 1).expect_err("wrong tables").to_string();
        assert!(Amplitudes::<f64, Reals, 1>::new(tables, 1).is_ok());
        assert!(message(JastrowTables { columns: 15, ..tables }).contains("15 columns"));
        assert!(message(JastrowTables { columns: 0, ..tables }).contains("0 columns"));
        assert!(message(JastrowTables { fields: &one, ..tables }).contains("`fields` has 1 numbers"));
        assert!(message(JastrowTables { pairs: &one, ..tables }).contains("`pairs` has 1 numbers"));
    }
}
