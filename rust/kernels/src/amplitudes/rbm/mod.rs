//! Local values with restricted Boltzmann machines, for which no connected configuration is ever built.
//!
//! `ln ψ(σ) = Σ_i a_i σ_i + Σ_j ln cosh θ_j` with `θ_j = b_j + Σ_i σ_i W_ij`. To change some sites is to add `δ_j` to `θ_j`,
//! and
//!
//! cosh(θ + δ) / cosh θ = cosh δ + tanh θ sinh δ,
//!
//! so that the ratio of two amplitudes is a product of such factors. tanh θ depends on the sample alone, cosh δ and sinh δ
//! on the sites that change and on their signs: of two sites they are made from those of one by the addition theorems.
//! No transcendental function is left in the inner loop.
//!
//! Where |δ| is large the two terms of a factor may cancel, and a product may overflow though the ratio doesn't: such
//! factors are taken from differences of ln cosh. Where the δ of single sites are large and their sum isn't, the
//! addition theorems would cancel, and cosh δ and sinh δ are computed anew.
//!
//! Complex numbers are planes: all real parts, then all imaginary parts.

use crate::Error;
use crate::amplitudes::sums::{Changed, sum_rows};
use crate::amplitudes::{RATIOS_PER_BLOCK, Ratios};
use crate::connected::terms::BLOCK;
use crate::error::check;
use crate::numbers::{Algebra, CACHE_LINE, MULTIPLE, Planes, Real, complex, dispatch, planes, planes_mut};
use crate::sites::LocalIndex;
use aligned_vec::AVec;
use num_complex::Complex;
use pulp::Simd;
use std::marker::PhantomData;

mod row;
mod walker;

pub use row::Row;
pub use walker::Walker;

/// A restricted Boltzmann machine on sites with two local states each.
#[derive(Debug, Clone, Copy)]
pub struct RbmTables<'a, T> {
    /// θ where all sites have their first local state, `(planes, units)`.
    pub theta: &'a [T],
    /// How much θ changes if a site goes from its first to its second local state, `(planes, sites, units)`.
    pub delta: &'a [T],
    /// How much Σ a σ changes, `(planes, sites)`.
    pub bias: &'a [T],
    /// How many hidden units there are, a [`MULTIPLE`]: those that are too many have δ = 0.
    pub units: usize,
}

/// A [`RbmTables`] that was checked, whose numbers are those of `A`, of `P` planes.
#[derive(Debug, Clone)]
pub struct Rbm<'a, T, A, const P: usize> {
    tables: RbmTables<'a, T>,
    sites: usize,
    /// cosh δ and sinh δ, as δ is given.
    cosh_sinh: [AVec<T>; 2],
    /// The |Re δ| of each site.
    extents: Vec<Extent>,
    /// How large the |ln| of the ratio of amplitudes can be if a site changes, and of its hidden units alone.
    reaches: Vec<[f64; 2]>,
    /// What the visible bias multiplies |ψ|² by, of each site, and if it changes the other way.
    of_bias: Vec<[f64; 2]>,
    algebra: PhantomData<A>,
}

/// How large the |Re δ| of a site, or of some, can be.
#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    largest: f64,
    /// The sums over the units whose places in a vector may be the same.
    sums: [f64; MULTIPLE],
}

impl Extent {
    fn of<T: Real>(deltas: &[T]) -> Self {
        let mut extent = Self::default();
        for (unit, &delta) in deltas.iter().enumerate() {
            let part = delta.into().abs();
            extent.largest = extent.largest.max(part);
            extent.sums[unit % MULTIPLE] += part;
        }
        extent
    }

    fn max(&self, other: &Self) -> Self {
        let sums = std::array::from_fn(|unit| self.sums[unit].max(other.sums[unit]));
        Self { largest: self.largest.max(other.largest), sums }
    }

    fn sum(&self) -> f64 {
        self.sums.iter().sum()
    }

    /// The largest sum over the units that are multiplied with each other in vectors of so many numbers.
    fn largest_sum(&self, lanes: usize) -> f64 {
        let of_lane = |lane: usize| self.sums[lane..].iter().step_by(lanes).sum();
        (0..lanes).map(of_lane).fold(0.0, f64::max)
    }

    fn add(&mut self, other: &Self) {
        self.largest += other.largest;
        for (to, sum) in self.sums.iter_mut().zip(other.sums) {
            *to += sum;
        }
    }
}

impl<'a, T: Real, A: Algebra<P>, const P: usize> Rbm<'a, T, A, P> {
    /// Checks the tables.
    pub fn new(tables: RbmTables<'a, T>, sites: usize) -> Result<Self, Error> {
        let RbmTables { theta, delta, bias, units } = tables;
        check(units % MULTIPLE == 0, || {
            format!("there are {units} hidden units, but must be a multiple of {MULTIPLE}")
        })?;
        check(theta.len() == P * units, || {
            format!("`theta` has {} numbers, but must have {P} for each of {units} units", theta.len())
        })?;
        check(delta.len() == P * sites * units, || {
            format!(
                "`delta` has {} numbers, but must have {P} for each of {sites} sites and {units} units",
                delta.len()
            )
        })?;
        check(bias.len() == P * sites, || format!("`bias` has {} numbers, but there are {sites} sites", bias.len()))?;
        let extents = (0..sites).map(|site| {
            (0..A::MAGNITUDES).fold(Extent::default(), |extent, plane| {
                extent.max(&Extent::of(&delta[(plane * sites + site) * units..][..units]))
            })
        });
        let mut cosh_sinh = [(); 2].map(|()| zeros(delta.len()));
        dispatch(
            #[inline(always)]
            || {
                let [cosh, sinh] = &mut cosh_sinh;
                A::cosh_sinh_of(planes(delta), planes_mut(cosh), planes_mut(sinh));
            },
        );
        let extents: Vec<Extent> = extents.collect();
        let log_of_bias = |site: usize| complex::<P>(std::array::from_fn(|plane| bias[plane * sites + site].into())).re;
        let reaches = extents.iter().enumerate();
        let reaches = reaches.map(|(site, extent)| [extent.sum() + log_of_bias(site).abs(), extent.sum()]).collect();
        let of_bias = (0..sites).map(|site| [2.0, -2.0].map(|times| (times * log_of_bias(site)).exp())).collect();
        Ok(Self { extents, reaches, of_bias, tables, sites, cosh_sinh, algebra: PhantomData })
    }

    /// How many numbers θ of a sample consists of.
    #[must_use]
    pub fn numbers(&self) -> usize {
        P * self.tables.units
    }

    /// ln |ψ| at a configuration of local indices, up to a constant, from its θ.
    #[inline(always)]
    fn log_modulus(&self, theta: [&[T]; P], indices: &[LocalIndex]) -> f64 {
        // Real parts are the first plane.
        let changed = self.tables.bias.iter().zip(indices).filter(|&(_, &index)| index != 0);
        changed.fold(A::sum_of_log_cosh(theta), |sum, (&bias, _)| sum + bias.into())
    }

    /// The numbers of a site in one plane of a table.
    #[inline(always)]
    fn of_site<'t>(&self, table: &'t [T], plane: usize, site: usize) -> &'t [T] {
        let units = self.tables.units;
        &table[(plane * self.sites + site) * units..][..units]
    }

    /// cosh δ and sinh δ of a site.
    #[inline(always)]
    fn rows(&self, site: usize) -> [[&[T]; P]; 2] {
        let mut rows = [[&[] as &[T]; P]; 2];
        for (planes, table) in rows.iter_mut().zip(&self.cosh_sinh) {
            for (plane, row) in planes.iter_mut().enumerate() {
                *row = self.of_site(table, plane, site);
            }
        }
        rows
    }
}

/// Numbers that vectors are aligned with.
fn zeros<T: Real>(len: usize) -> AVec<T> {
    AVec::from_iter(CACHE_LINE, std::iter::repeat_n(T::default(), len))
}

/// A restricted Boltzmann machine at some samples, as [`Ratios`].
#[derive(Debug)]
pub struct Amplitudes<'a, T, A, const P: usize> {
    rbm: &'a Rbm<'a, T, A, P>,
    changed: Changed,
    /// θ of the samples, `(planes, samples, units)`.
    theta: AVec<T>,
    /// tanh θ, alike.
    tanh: AVec<T>,
}

impl<'a, T: Real, A: Algebra<P>, const P: usize> Amplitudes<'a, T, A, P> {
    /// At no samples.
    #[must_use]
    pub fn new(rbm: &'a Rbm<'a, T, A, P>) -> Self {
        Self { rbm, changed: Changed::default(), theta: zeros(0), tanh: zeros(0) }
    }
}

/// The bytes of tanh θ that are in the first-level cache, beside a row.
const CACHED: usize = 40 << 10;

/// Ratios are evaluated by so many or twice as many.
const HALF: usize = RATIOS_PER_BLOCK / 2;

impl<T: Real, A: Algebra<P>, const P: usize> Ratios for Amplitudes<'_, T, A, P> {
    type Ratio = A::Factor;
    type SiteChange = Row<T, A, P>;

    fn cached(&self) -> usize {
        let of_sample = P * self.rbm.tables.units * size_of::<T>();
        (CACHED / of_sample.max(1)).clamp(RATIOS_PER_BLOCK, BLOCK) / HALF * HALF
    }

    #[inline(always)]
    fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex], samples: usize) {
        let RbmTables { theta, delta, units, .. } = self.rbm.tables;
        self.changed.set(indices, samples);
        for table in [&mut self.theta, &mut self.tanh] {
            table.resize(P * samples * units, T::default());
        }
        let sums = planes_mut::<T, P>(&mut self.theta).into_iter();
        for ((sums, first), delta) in sums.zip(planes::<T, P>(theta)).zip(planes::<T, P>(delta)) {
            sum_rows(simd, first, delta, &self.changed, sums);
        }
        A::tanh_of(planes(&self.theta), planes_mut(&mut self.tanh));
    }

    #[inline(always)]
    fn prepare<S: Simd>(&self, simd: S, change: &mut Row<T, A, P>, sites: &[usize], opposite: &[bool]) {
        change.compose(simd, self.rbm, sites, opposite);
    }

    #[inline(always)]
    fn ratios<S: Simd>(
        &self,
        simd: S,
        row: &Row<T, A, P>,
        n: usize,
        samples: [usize; RATIOS_PER_BLOCK],
        reversed: [bool; RATIOS_PER_BLOCK],
    ) -> [A::Factor; RATIOS_PER_BLOCK] {
        let mut ratios = [A::Factor::default(); RATIOS_PER_BLOCK];
        // Of complex numbers never all at once: a processor hasn't more registers.
        if P == 1 && n > HALF {
            self.at_samples::<S, RATIOS_PER_BLOCK>(simd, row, &samples, &reversed, &mut ratios);
        } else {
            self.at_samples::<S, HALF>(simd, row, &samples[..HALF], &reversed[..HALF], &mut ratios[..HALF]);
            if n > HALF {
                self.at_samples::<S, HALF>(simd, row, &samples[HALF..], &reversed[HALF..], &mut ratios[HALF..]);
            }
        }
        ratios
    }
}

impl<T: Real, A: Algebra<P>, const P: usize> Amplitudes<'_, T, A, P> {
    /// ln |ψ| of one of the samples, whose local indices these are, up to a constant.
    #[inline(always)]
    pub(crate) fn log_modulus(&self, sample: usize, indices: &[LocalIndex]) -> f64 {
        let units = self.rbm.tables.units;
        self.rbm.log_modulus(planes::<T, P>(&self.theta).map(|plane| &plane[sample * units..][..units]), indices)
    }

    #[inline(always)]
    fn at_samples<S: Simd, const Q: usize>(
        &self,
        simd: S,
        row: &Row<T, A, P>,
        samples: &[usize],
        reversed: &[bool],
        ratios: &mut [A::Factor],
    ) {
        let products = row.products::<S, Q>(simd, self.rbm, planes(&self.tanh), samples, reversed);
        if row.overflowing || row.in_doubles || !row.wide.is_empty() {
            for place in 0..Q {
                ratios[place] = self.careful_ratio::<S>(row, products[place], samples[place], reversed[place]);
            }
        } else {
            for place in 0..Q {
                let product = A::factor(A::product_of_lanes::<T, S>(simd, products[place]));
                ratios[place] = product * row.of_bias[usize::from(reversed[place])];
            }
        }
    }

    /// The ratio at a sample, where some of its factors may be large, and given the product of the others.
    #[cold]
    fn careful_ratio<S: Simd>(
        &self,
        row: &Row<T, A, P>,
        product: Planes<T, S, P>,
        sample: usize,
        reversed: bool,
    ) -> A::Factor {
        let of_lanes = Row::<T, A, P>::lanes::<S>(product).into_iter();
        let log_of_wide = row.log_of_wide(planes(&self.theta), sample, reversed);
        if row.overflowing {
            let of_bias = if reversed { -row.log_of_bias } else { row.log_of_bias };
            A::exponential(of_lanes.map(A::log).sum::<Complex<f64>>() + of_bias + log_of_wide)
        } else {
            let product = A::factor(of_lanes.reduce(A::times).expect("a vector has lanes"));
            product * row.of_bias[usize::from(reversed)] * A::exponential(log_of_wide)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::testing::{RandomRbm, flipped, log_cosh_of_complex, log_cosh_of_pair, log_cosh_of_real};
    use crate::numbers::{Complexes, RealPairs, Reals, each_level};
    use crate::sites::Sites;
    use crate::sites::testing::{SPIN, random_samples};
    use proptest::prelude::*;
    use pulp::WithSimd;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    /// The ratios of `RATIOS_PER_BLOCK` samples, with some sites flipped.
    struct Flips<'a, 'm, T, A, const P: usize> {
        rbm: &'a Rbm<'m, T, A, P>,
        samples: &'a [Vec<LocalIndex>],
        sites: &'a [usize],
        opposite: &'a [bool],
        reversed: [bool; RATIOS_PER_BLOCK],
    }

    impl<T: Real, A: Algebra<P>, const P: usize> WithSimd for Flips<'_, '_, T, A, P> {
        type Output = [A::Factor; RATIOS_PER_BLOCK];

        fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
            let Self { rbm, samples, sites, opposite, reversed } = self;
            let mut amplitudes = Amplitudes::new(rbm);
            amplitudes.visit(simd, &samples.concat(), samples.len());
            let mut row = Row::default();
            amplitudes.prepare(simd, &mut row, sites, opposite);
            amplitudes.ratios(simd, &row, RATIOS_PER_BLOCK, std::array::from_fn(|sample| sample), reversed)
        }
    }

    /// Compares the ratios of amplitudes with those of two evaluations of ψ.
    fn compare<T: Real, A: Algebra<P>, const P: usize>(
        rng: &mut StdRng,
        [sites, units]: [usize; 2],
        scale: f64,
        tolerance: f64,
        log_cosh: impl Fn([f64; P]) -> Complex<f64>,
    ) {
        let random = RandomRbm::<T, P>::new(rng, sites, units, scale);
        let rbm = Rbm::<T, A, P>::new(random.tables(), sites).expect("tables");
        let spins = Sites::new(sites, vec![SPIN], &[]).expect("spins");
        let flips: Vec<usize> = (0..sites).filter(|_| rng.random()).collect();
        let Some((first, others)) = flips.split_first() else { return };
        let mut samples = random_samples(rng, &spins, RATIOS_PER_BLOCK);
        // All of them agree with the first sample on the flipped sites, or are the other way on all.
        let reversed: [bool; RATIOS_PER_BLOCK] = std::array::from_fn(|sample| samples[sample][*first] == 1);
        let pattern: Vec<LocalIndex> = flips.iter().map(|_| rng.random_range(0..2)).collect();
        for (sample, &reversed) in samples.iter_mut().zip(&reversed) {
            for (&site, &index) in flips.iter().zip(&pattern) {
                sample[site] = index ^ pattern[0] ^ LocalIndex::from(reversed);
            }
        }
        let opposite: Vec<bool> = others.iter().enumerate().map(|(i, _)| pattern[i + 1] != pattern[0]).collect();
        for level in each_level() {
            let (samples, sites, opposite) = (&samples, &flips, &opposite);
            let ratios = dispatch(Flips { rbm: &rbm, samples, sites, opposite, reversed });
            for (sample, ratio) in samples.iter().zip(ratios) {
                let there = flipped(sample, flips.iter().copied());
                let expected = (random.log_psi(&there, &log_cosh) - random.log_psi(sample, &log_cosh)).exp();
                let (found, allowed): (Complex<f64>, _) = (ratio.into(), tolerance * (1.0 + expected.norm()));
                assert!((found - expected).norm() <= allowed, "{found} instead of {expected} with {}", level.name);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn ratios_are_those_of_two_evaluations(
            shape in [1_usize..=10, 0_usize..=40],
            scale in prop_oneof![Just(0.1_f64), Just(0.7), Just(2.0), Just(6.0)], seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let large = (1 + shape[1]) as f64 * scale.max(1.0);
            compare::<f64, Reals, 1>(rng, shape, scale, 2e-12 * large, log_cosh_of_real);
            compare::<f32, Reals, 1>(rng, shape, scale.min(2.0), 2e-5 * large, log_cosh_of_real);
            compare::<f64, RealPairs, 2>(rng, shape, scale, 2e-12 * large, log_cosh_of_pair);
            // cosh of a complex number may be near zero.
            compare::<f64, Complexes, 2>(rng, shape, scale.min(0.7), 4e-10 * large, log_cosh_of_complex);
        }
    }

    #[test]
    fn extents_are_sums_of_moduli() {
        let deltas: Vec<f64> = (0..32).map(|unit| if unit % 2 == 0 { f64::from(unit) } else { -1.0 }).collect();
        let mut extent = Extent::of(&deltas);
        assert_eq!((extent.largest, extent.sum()), (30.0, 256.0));
        // Of vectors with two numbers, each number meets every other unit.
        assert_eq!(extent.largest_sum(2), 240.0);
        extent.add(&Extent::of(&[5.0; 16]));
        assert_eq!((extent.largest, extent.sum()), (35.0, 336.0));
        assert_eq!(extent.max(&Extent::of(&[40.0; 16])).largest, 40.0);
    }

    /// One site, and no unit that matters.
    #[test]
    fn tables_of_the_wrong_length() {
        let (right, one) = ([0.0; 16], [0.0; 1]);
        let tables = RbmTables { theta: &right, delta: &right, bias: &one, units: 16 };
        let message = |tables| Rbm::<f64, Reals, 1>::new(tables, 1).expect_err("wrong tables").to_string();
        assert!(Rbm::<f64, Reals, 1>::new(tables, 1).is_ok());
        assert!(message(RbmTables { units: 15, ..tables }).contains("15 hidden units"));
        assert!(message(RbmTables { theta: &right[1..], ..tables }).contains("`theta` has 15 numbers"));
        assert!(message(RbmTables { delta: &right[1..], ..tables }).contains("`delta` has 15 numbers"));
        assert!(message(RbmTables { bias: &right, ..tables }).contains("`bias` has 16 numbers"));
    }
}
