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
use crate::amplitudes::{Ratios, TOGETHER};
use crate::connected::terms::BLOCK;
use crate::error::check;
use crate::numbers::{Algebra, MULTIPLE, Planes, Real, complex, planes, planes_mut, sign};
use crate::sites::LocalIndex;
use aligned_vec::AVec;
use num_complex::Complex;
use pulp::{Arch, Simd};
use std::marker::PhantomData;

mod walker;

pub use walker::Walker;

/// A machine on sites with two local states each.
#[derive(Debug, Clone, Copy)]
pub struct Rbm<'a, T> {
    /// θ where all sites have their first local state, `(planes, units)`.
    pub theta: &'a [T],
    /// How much θ changes if a site goes from its first to its second local state, `(planes, sites, units)`.
    pub delta: &'a [T],
    /// How much Σ a σ changes, `(planes, sites)`.
    pub bias: &'a [T],
    /// How many hidden units there are, a [`MULTIPLE`]: those that are too many have δ = 0.
    pub units: usize,
}

/// A [`Rbm`] that was checked, whose numbers are those of `A`, of `P` planes.
#[derive(Debug, Clone)]
pub struct Machine<'a, T, A, const P: usize> {
    tables: Rbm<'a, T>,
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

impl<'a, T: Real, A: Algebra<P>, const P: usize> Machine<'a, T, A, P> {
    /// Checks the tables.
    pub fn new(tables: Rbm<'a, T>, sites: usize) -> Result<Self, Error> {
        let Rbm { theta, delta, bias, units } = tables;
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
        Arch::new().dispatch(
            #[inline(always)]
            || {
                let [cosh, sinh] = cosh_sinh.each_mut().map(|table| planes_mut::<T, P>(table));
                A::cosh_sinh_of(planes(delta), cosh, sinh);
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

    /// The numbers of a site in one plane of a table.
    #[inline(always)]
    fn of_site<'t>(&self, table: &'t [T], plane: usize, site: usize) -> &'t [T] {
        let units = self.tables.units;
        &table[(plane * self.sites + site) * units..][..units]
    }

    /// cosh δ and sinh δ of a site.
    #[inline(always)]
    fn rows(&self, site: usize) -> [[&[T]; P]; 2] {
        self.cosh_sinh.each_ref().map(|table| std::array::from_fn(|plane| self.of_site(table, plane, site)))
    }
}

/// Numbers that vectors are aligned with.
fn zeros<T: Real>(len: usize) -> AVec<T> {
    AVec::from_iter(CACHE_LINE, std::iter::repeat_n(T::default(), len))
}

/// The alignment of tables: no vector is part of two lines of the cache.
const CACHE_LINE: usize = 64;

/// What multiplies the amplitude if some sites change: cosh δ and sinh δ of each unit.
#[derive(Debug)]
pub struct Row<T, A: Algebra<P>, const P: usize> {
    /// The sites, and whether they change the other way than from their first to their second local state.
    changes: Vec<(usize, bool)>,
    /// The site whose tables these are as they stand.
    alone: Option<usize>,
    cosh: [AVec<T>; P],
    sinh: [AVec<T>; P],
    /// How much Σ a σ changes.
    log_of_bias: Complex<f64>,
    /// The factor that this is, and that of the other way.
    of_bias: [A::Factor; 2],
    /// The units whose factors are taken from ln cosh, and their δ.
    wide: Vec<(usize, [f64; P])>,
    /// Whether the product of all factors may overflow where the ratio doesn't.
    overflowing: bool,
    /// Whether that of the numbers of a vector may, as one of `T`.
    in_doubles: bool,
    algebra: PhantomData<A>,
}

impl<T, A: Algebra<P>, const P: usize> Default for Row<T, A, P> {
    fn default() -> Self {
        let none = || std::array::from_fn(|_| AVec::new(CACHE_LINE));
        Self {
            changes: Vec::new(),
            alone: None,
            cosh: none(),
            sinh: none(),
            log_of_bias: Complex::default(),
            of_bias: [A::Factor::default(); 2],
            wide: Vec::new(),
            overflowing: false,
            in_doubles: false,
            algebra: PhantomData,
        }
    }
}

impl<T: Real, A: Algebra<P>, const P: usize> Row<T, A, P> {
    /// Makes it that of a change of `sites`, of which `opposite` says whether they change the other way than the first one
    /// does, which goes from its first to its second state.
    #[inline(always)]
    fn compose<S: Simd>(&mut self, simd: S, machine: &Machine<'_, T, A, P>, sites: &[usize], opposite: &[bool]) {
        let (&first, others) = sites.split_first().expect("a group off the diagonal flips a site");
        self.changes.clear();
        self.changes.push((first, false));
        self.changes.extend(others.iter().copied().zip(opposite.iter().copied()));
        self.wide.clear();
        let mut bias = [0.0; P];
        let mut extent = Extent::default();
        for &(site, opposite) in &self.changes {
            extent.add(&machine.extents[site]);
            for (plane, bias) in bias.iter_mut().enumerate() {
                let change = machine.tables.bias[plane * machine.sites + site].into();
                *bias += if opposite { -change } else { change };
            }
        }
        self.log_of_bias = complex(bias);
        self.of_bias = [self.log_of_bias, -self.log_of_bias].map(A::exponential);
        self.overflowing = extent.sum() + self.log_of_bias.re.abs() > f64::RANGE;
        self.in_doubles = extent.sum() > T::RANGE;
        let all_wide = extent.largest_sum(lanes::<T, S>()) > T::RANGE;
        self.alone = (others.is_empty() && extent.largest <= T::NARROW && !all_wide).then_some(first);
        if self.alone.is_some() {
            return;
        }
        let of_first = machine.rows(first);
        for (own, of_first) in [&mut self.cosh, &mut self.sinh].into_iter().zip(of_first) {
            for (own, of_first) in own.iter_mut().zip(of_first) {
                own.clear();
                own.extend_from_slice(of_first);
            }
        }
        for (&site, &opposite) in others.iter().zip(opposite) {
            self.add(simd, machine, site, opposite);
        }
        if extent.largest > T::NARROW || all_wide {
            self.mend(machine, all_wide);
        }
    }

    /// One site more, by the addition theorems.
    #[inline(always)]
    fn add<S: Simd>(&mut self, simd: S, machine: &Machine<'_, T, A, P>, site: usize, opposite: bool) {
        let [cosh, sinh] = machine.rows(site).map(vectors::<T, S, P>);
        let own_cosh = self.cosh.each_mut().map(|plane| vectors_mut::<T, S>(plane));
        let own_sinh = self.sinh.each_mut().map(|plane| vectors_mut::<T, S>(plane));
        for place in 0..cosh[0].len() {
            let (c, s) = (at(&own_cosh, place), at(&own_sinh, place));
            let (c2, mut s2) = (at(&cosh, place), at(&sinh, place));
            if opposite {
                s2 = s2.map(|plane| T::negated(simd, plane));
            }
            let new_cosh = A::product_plus::<T, S>(simd, c, c2, A::product::<T, S>(simd, s, s2));
            let new_sinh = A::product_plus::<T, S>(simd, s, c2, A::product::<T, S>(simd, c, s2));
            for plane in 0..P {
                own_cosh[plane][place] = new_cosh[plane];
                own_sinh[plane][place] = new_sinh[plane];
            }
        }
    }

    /// Sets the units apart whose factors could cancel, or all, and mends those in which the addition theorems did.
    #[cold]
    fn mend(&mut self, machine: &Machine<'_, T, A, P>, all: bool) {
        for unit in 0..machine.tables.units {
            let (mut delta, mut reach) = ([0.0; P], [0.0; P]);
            for &(site, opposite) in &self.changes {
                for plane in 0..P {
                    let change: f64 = machine.of_site(machine.tables.delta, plane, site)[unit].into();
                    delta[plane] += if opposite { -change } else { change };
                    reach[plane] += change.abs();
                }
            }
            let exceeds = |numbers: [f64; P]| numbers[..A::MAGNITUDES].iter().any(|part| part.abs() > T::NARROW);
            if all || exceeds(delta) {
                self.wide.push((unit, delta));
                self.set(unit, [A::ONE.map(|one| if one { 1.0 } else { 0.0 }), [0.0; P]]);
            } else if exceeds(reach) {
                self.set(unit, A::cosh_sinh(delta));
            }
        }
    }

    fn set(&mut self, unit: usize, [cosh, sinh]: [[f64; P]; 2]) {
        for plane in 0..P {
            self.cosh[plane][unit] = T::nearest(cosh[plane]);
            self.sinh[plane][unit] = T::nearest(sinh[plane]);
        }
    }

    /// The products of the factors of all units that aren't set apart, at some samples.
    #[inline(always)]
    fn products<S: Simd, const Q: usize>(
        &self,
        simd: S,
        machine: &Machine<'_, T, A, P>,
        tanh: [&[T]; P],
        samples: &[usize],
        reversed: &[bool],
    ) -> [Planes<T, S, P>; Q] {
        let [cosh, sinh] =
            self.alone.map_or_else(|| [slices(&self.cosh), slices(&self.sinh)], |site| machine.rows(site));
        let (cosh, mut sinh) = (vectors::<T, S, P>(cosh), vectors::<T, S, P>(sinh));
        let tanh = vectors::<T, S, P>(tanh);
        let len = cosh[0].len();
        // All of the same length, so that the compiler knows that no place is outside. Loops, since closures in `from_fn`
        // may lose the instructions for vectors.
        let mut of_samples = [tanh; Q];
        for plane in 0..P {
            sinh[plane] = &sinh[plane][..len];
            for (of_sample, &sample) in of_samples.iter_mut().zip(samples) {
                of_sample[plane] = &tanh[plane][sample * len..][..len];
            }
        }
        // The sign of sinh δ goes to tanh θ.
        let zero = T::splat(simd, T::default());
        let mut signs = [zero; Q];
        for (signs, &reversed) in signs.iter_mut().zip(reversed) {
            *signs = sign::<T, S>(simd, reversed);
        }
        let mut one = [zero; P];
        for (one, is_one) in one.iter_mut().zip(A::ONE) {
            if is_one {
                *one = T::splat(simd, T::ONE);
            }
        }
        let mut products = [one; Q];
        for place in 0..len {
            let (c, s) = (at(&cosh, place), at(&sinh, place));
            for sample in 0..Q {
                let mut t = at(&of_samples[sample], place);
                for t in &mut t {
                    *t = T::signed(simd, *t, signs[sample]);
                }
                let factor = A::product_plus::<T, S>(simd, t, s, c);
                products[sample] = A::product::<T, S>(simd, products[sample], factor);
            }
        }
        products
    }

    /// The numbers of a vector.
    #[cold]
    fn lanes<S: Simd>(vector: Planes<T, S, P>) -> Vec<[f64; P]> {
        let lanes: [&[T]; P] = std::array::from_fn(|plane| bytemuck::cast_slice(std::slice::from_ref(&vector[plane])));
        (0..lanes[0].len()).map(|lane| std::array::from_fn(|plane| lanes[plane][lane].into())).collect()
    }

    /// The logarithm of the factors that are set apart, for the θ of a sample.
    #[cold]
    fn log_of_wide(&self, theta: [&[T]; P], sample: usize, reversed: bool) -> Complex<f64> {
        let units = self.cosh[0].len();
        let differences =
            self.wide.iter().map(|&(unit, delta)| {
                let theta = theta.map(|plane| plane[sample * units + unit].into());
                let changed = std::array::from_fn(|plane| {
                    if reversed { theta[plane] - delta[plane] } else { theta[plane] + delta[plane] }
                });
                A::log_cosh(changed) - A::log_cosh(theta)
            });
        differences.sum()
    }
}

/// How many numbers a vector has.
const fn lanes<T: Real, S: Simd>() -> usize {
    size_of::<T::Vector<S>>() / size_of::<T>()
}

/// Tables as vectors.
#[inline(always)]
fn vectors<T: Real, S: Simd, const P: usize>(table: [&[T]; P]) -> [&[T::Vector<S>]; P] {
    std::array::from_fn(|plane| bytemuck::cast_slice(table[plane]))
}

/// A plane as vectors.
#[inline(always)]
fn vectors_mut<T: Real, S: Simd>(plane: &mut [T]) -> &mut [T::Vector<S>] {
    bytemuck::cast_slice_mut(plane)
}

/// Vectors as slices.
#[inline(always)]
fn slices<T, const P: usize>(table: &[AVec<T>; P]) -> [&[T]; P] {
    std::array::from_fn(|plane| &table[plane][..])
}

/// One of the vectors of each plane.
#[inline(always)]
fn at<V: Copy, R: std::ops::Deref<Target = [V]>, const P: usize>(planes: &[R; P], place: usize) -> [V; P] {
    std::array::from_fn(|plane| planes[plane][place])
}

/// The machine at some samples, as [`Ratios`].
#[derive(Debug)]
pub struct Amplitudes<'a, T, A, const P: usize> {
    machine: &'a Machine<'a, T, A, P>,
    changed: Changed,
    /// θ of the samples, `(planes, samples, units)`.
    theta: AVec<T>,
    /// tanh θ, alike.
    tanh: AVec<T>,
}

impl<'a, T: Real, A: Algebra<P>, const P: usize> Amplitudes<'a, T, A, P> {
    /// At no samples.
    #[must_use]
    pub fn new(machine: &'a Machine<'a, T, A, P>) -> Self {
        Self { machine, changed: Changed::default(), theta: zeros(0), tanh: zeros(0) }
    }
}

/// The bytes of tanh θ that are in the first-level cache, beside a row.
const CACHED: usize = 40 << 10;

/// Ratios are evaluated by so many or twice as many.
const HALF: usize = TOGETHER / 2;

impl<T: Real, A: Algebra<P>, const P: usize> Ratios for Amplitudes<'_, T, A, P> {
    type Ratio = A::Factor;
    type Change = Row<T, A, P>;

    fn cached(&self) -> usize {
        let of_sample = P * self.machine.tables.units * size_of::<T>();
        (CACHED / of_sample.max(1)).clamp(TOGETHER, BLOCK) / HALF * HALF
    }

    #[inline(always)]
    fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex], samples: usize) {
        let Rbm { theta, delta, units, .. } = self.machine.tables;
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
        change.compose(simd, self.machine, sites, opposite);
    }

    #[inline(always)]
    fn ratios<S: Simd>(
        &self,
        simd: S,
        row: &Row<T, A, P>,
        n: usize,
        samples: [usize; TOGETHER],
        reversed: [bool; TOGETHER],
    ) -> [A::Factor; TOGETHER] {
        let mut ratios = [A::Factor::default(); TOGETHER];
        // Of complex numbers never all at once: a processor hasn't more registers.
        if P == 1 && n > HALF {
            self.at_samples::<S, TOGETHER>(simd, row, &samples, &reversed, &mut ratios);
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
    #[inline(always)]
    fn at_samples<S: Simd, const Q: usize>(
        &self,
        simd: S,
        row: &Row<T, A, P>,
        samples: &[usize],
        reversed: &[bool],
        ratios: &mut [A::Factor],
    ) {
        let products = row.products::<S, Q>(simd, self.machine, planes(&self.tanh), samples, reversed);
        if row.overflowing || row.in_doubles || !row.wide.is_empty() {
            for (((ratio, product), &sample), &reversed) in ratios.iter_mut().zip(products).zip(samples).zip(reversed) {
                *ratio = self.careful_ratio::<S>(row, product, sample, reversed);
            }
        } else {
            for ((ratio, product), &reversed) in ratios.iter_mut().zip(products).zip(reversed) {
                *ratio = A::factor(A::product_of_lanes::<T, S>(simd, product)) * row.of_bias[usize::from(reversed)];
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
