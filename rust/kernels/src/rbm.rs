//! Local values with restricted Boltzmann machines, for which no connected configuration is ever built.
//!
//! ln ψ(σ) = Σ_i a_i σ_i + Σ_j ln cosh θ_j with θ_j = b_j + Σ_i σ_i W_ij. To change some sites is to add δ_j to θ_j, and
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
use crate::error::check;
use crate::planes::{Algebra, Planes, Real, complex};
use crate::ratios::{Ratios, TOGETHER};
use num_complex::Complex;
use pulp::Simd;
use std::marker::PhantomData;

/// Hidden units come in a multiple of this, which is as many as there are in the longest vector.
pub const UNITS: usize = 16;

/// A machine on sites with two local states each, as its tables.
#[derive(Debug, Clone, Copy)]
pub struct Rbm<'a, T> {
    /// How much θ changes if a site goes from its first to its second local state, `(planes, sites, units)`.
    pub delta: &'a [T],
    /// The cosh of those, alike.
    pub cosh: &'a [T],
    /// Their sinh.
    pub sinh: &'a [T],
    /// How much Σ a σ changes, `(planes, sites)`.
    pub bias: &'a [T],
    /// How many hidden units there are, a multiple of [`UNITS`]: those that are too many have δ = 0.
    pub units: usize,
}

/// The state of the hidden units for some samples.
#[derive(Debug, Clone, Copy)]
pub struct Hidden<'a, T> {
    /// θ, `(planes, samples, units)`.
    pub theta: &'a [T],
    /// tanh θ, alike.
    pub tanh: &'a [T],
}

/// A [`Rbm`] that was checked, whose numbers are those of `A`, of `P` planes.
#[derive(Debug, Clone)]
pub struct Machine<'a, T, A, const P: usize> {
    tables: Rbm<'a, T>,
    sites: usize,
    /// The |Re δ| of each site.
    extents: Vec<Extent>,
    algebra: PhantomData<A>,
}

/// How large the |Re δ| of a site, or of some, can be.
#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    largest: f64,
    /// The sums over the units whose places in a vector may be the same.
    sums: [f64; UNITS],
}

impl Extent {
    fn of<T: Real>(deltas: &[T]) -> Self {
        let mut extent = Self::default();
        for (unit, &delta) in deltas.iter().enumerate() {
            let part = delta.into().abs();
            extent.largest = extent.largest.max(part);
            extent.sums[unit % UNITS] += part;
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
        let Rbm { delta, cosh, sinh, bias, units } = tables;
        check(units % UNITS == 0, || format!("there are {units} hidden units, but must be a multiple of {UNITS}"))?;
        for (name, table) in [("delta", delta), ("cosh", cosh), ("sinh", sinh)] {
            check(table.len() == P * sites * units, || {
                format!("`{name}` has {} numbers, but must have {P} for each of {sites} sites and {units} units", table.len())
            })?;
        }
        check(bias.len() == P * sites, || format!("`bias` has {} numbers, but there are {sites} sites", bias.len()))?;
        let extents = (0..sites).map(|site| {
            (0..A::MAGNITUDES).fold(Extent::default(), |extent, plane| {
                extent.max(&Extent::of(&delta[(plane * sites + site) * units..][..units]))
            })
        });
        Ok(Self { extents: extents.collect(), tables, sites, algebra: PhantomData })
    }

    /// The numbers of a site in one plane of a table.
    #[inline(always)]
    fn of_site(&self, table: &'a [T], plane: usize, site: usize) -> &'a [T] {
        let units = self.tables.units;
        &table[(plane * self.sites + site) * units..][..units]
    }

    /// Makes `row` that of a change of `sites`, of which `opposite` says whether they change the other way than the
    /// first one does, which goes from its first to its second state.
    #[inline(always)]
    fn compose<S: Simd>(&self, simd: S, sites: &[usize], opposite: &[bool], row: &mut Row<T, A, P>) {
        let Rbm { delta, cosh, sinh, bias, .. } = self.tables;
        let (&first, others) = sites.split_first().expect("a group off the diagonal flips a site");
        for plane in 0..P {
            row.delta[plane].copy_from_slice(self.of_site(delta, plane, first));
            row.cosh[plane].copy_from_slice(self.of_site(cosh, plane, first));
            row.sinh[plane].copy_from_slice(self.of_site(sinh, plane, first));
            row.bias[plane] = bias[plane * self.sites + first].into();
        }
        let mut extent = self.extents[first];
        for (&site, &opposite) in others.iter().zip(opposite) {
            extent.add(&self.extents[site]);
            for plane in 0..P {
                let change = bias[plane * self.sites + site].into();
                row.bias[plane] += if opposite { -change } else { change };
            }
            let of_site = |table| std::array::from_fn(|plane| self.of_site(table, plane, site));
            row.add(simd, of_site(delta), of_site(cosh), of_site(sinh), opposite);
        }
        row.overflowing = extent.sum() > f64::RANGE;
        row.wide.clear();
        if extent.largest > T::NARROW {
            row.mend(|unit, plane| sites.iter().map(|&site| self.of_site(delta, plane, site)[unit].into().abs()).sum());
        }
        if extent.largest_sum(lanes::<T, S>()) > T::RANGE {
            row.wide.clear();
            row.wide.extend(0..self.tables.units);
        }
        for &unit in &row.wide {
            for plane in 0..P {
                row.cosh[plane][unit] = if A::ONE[plane] { T::ONE } else { T::default() };
                row.sinh[plane][unit] = T::default();
            }
        }
    }
}

/// What multiplies the amplitude if some sites change.
#[derive(Debug)]
struct Row<T, A, const P: usize> {
    delta: [Vec<T>; P],
    cosh: [Vec<T>; P],
    sinh: [Vec<T>; P],
    bias: [f64; P],
    /// The units whose factors are taken from ln cosh.
    wide: Vec<usize>,
    /// Whether the product of all factors may overflow where the ratio doesn't.
    overflowing: bool,
    algebra: PhantomData<A>,
}

impl<T: Real, A: Algebra<P>, const P: usize> Row<T, A, P> {
    fn new(units: usize) -> Self {
        let zeros = || std::array::from_fn(|_| vec![T::default(); units]);
        Self {
            delta: zeros(),
            cosh: zeros(),
            sinh: zeros(),
            bias: [0.0; P],
            wide: Vec::new(),
            overflowing: false,
            algebra: PhantomData,
        }
    }

    /// One site more.
    #[inline(always)]
    fn add<S: Simd>(&mut self, simd: S, delta: [&[T]; P], cosh: [&[T]; P], sinh: [&[T]; P], opposite: bool) {
        let signed = |numbers: Planes<T, S, P>| -> Planes<T, S, P> {
            if opposite { std::array::from_fn(|plane| T::negated(simd, numbers[plane])) } else { numbers }
        };
        let one = T::splat(simd, T::ONE);
        let [delta, cosh, sinh] = [delta, cosh, sinh].map(vectors::<T, S, P>);
        let own = [&mut self.delta, &mut self.cosh, &mut self.sinh];
        let [own_delta, own_cosh, own_sinh] = own.map(|table| table.each_mut().map(|plane| vectors_mut::<T, S>(plane)));
        for place in 0..cosh[0].len() {
            let (d, c, s) = (at(&own_delta, place), at(&own_cosh, place), at(&own_sinh, place));
            let (d2, c2, s2) = (signed(at(&delta, place)), at(&cosh, place), signed(at(&sinh, place)));
            let new_cosh = A::product_plus::<T, S>(simd, c, c2, A::product::<T, S>(simd, s, s2));
            let new_sinh = A::product_plus::<T, S>(simd, s, c2, A::product::<T, S>(simd, c, s2));
            for plane in 0..P {
                own_delta[plane][place] = T::times_plus(simd, d2[plane], one, d[plane]);
                own_cosh[plane][place] = new_cosh[plane];
                own_sinh[plane][place] = new_sinh[plane];
            }
        }
    }

    /// Changes the signs of all changes.
    #[inline(always)]
    fn negate(&mut self) {
        for numbers in self.delta.iter_mut().chain(&mut self.sinh) {
            for number in numbers {
                *number = -*number;
            }
        }
        self.bias = self.bias.map(|bias| -bias);
    }

    /// Sets the units apart whose factors could cancel, and mends those in which the addition theorems did: `reach` says
    /// how large the |Re δ| of all sites are together, for a unit and a plane.
    fn mend(&mut self, reach: impl Fn(usize, usize) -> f64) {
        for unit in 0..self.delta[0].len() {
            let delta = self.delta_of(unit);
            if delta[..A::MAGNITUDES].iter().any(|part| part.abs() > T::NARROW) {
                self.wide.push(unit);
            } else if (0..A::MAGNITUDES).any(|plane| reach(unit, plane) > T::NARROW) {
                let [cosh, sinh] = A::cosh_sinh(delta);
                for plane in 0..P {
                    self.cosh[plane][unit] = T::nearest(cosh[plane]);
                    self.sinh[plane][unit] = T::nearest(sinh[plane]);
                }
            }
        }
    }

    fn delta_of(&self, unit: usize) -> [f64; P] {
        self.delta.each_ref().map(|plane| plane[unit].into())
    }

    /// The products of the factors of all units that aren't set apart, for the tanh θ of some samples.
    #[inline(always)]
    fn products<S: Simd, const Q: usize>(&self, simd: S, tanh: [[&[T]; P]; Q]) -> [Complex<f64>; Q] {
        let one: Planes<T, S, P> =
            std::array::from_fn(|plane| T::splat(simd, if A::ONE[plane] { T::ONE } else { T::default() }));
        let mut products = [one; Q];
        let (cosh, sinh) = (vectors::<T, S, P>(slices(&self.cosh)), vectors::<T, S, P>(slices(&self.sinh)));
        let len = cosh[0].len();
        let sinh: [&[T::Vector<S>]; P] = std::array::from_fn(|plane| &sinh[plane][..len]);
        let tanh: [[&[T::Vector<S>]; P]; Q] = std::array::from_fn(|sample| {
            let tanh = vectors::<T, S, P>(tanh[sample]);
            std::array::from_fn(|plane| &tanh[plane][..len])
        });
        for place in 0..len {
            let (c, s) = (at(&cosh, place), at(&sinh, place));
            for sample in 0..Q {
                let factor = A::product_plus::<T, S>(simd, at(&tanh[sample], place), s, c);
                products[sample] = A::product::<T, S>(simd, products[sample], factor);
            }
        }
        let mut ratios = [Complex::default(); Q];
        for (ratio, product) in ratios.iter_mut().zip(&products) {
            *ratio = self.product_of_lanes::<S>(product);
        }
        ratios
    }

    /// The factor of ψ that the numbers of a vector make together.
    #[inline(always)]
    fn product_of_lanes<S: Simd>(&self, vector: &Planes<T, S, P>) -> Complex<f64> {
        let lanes: [&[T]; P] = std::array::from_fn(|plane| bytemuck::cast_slice(std::slice::from_ref(&vector[plane])));
        let numbers = (0..lanes[0].len()).map(|lane| std::array::from_fn(|plane| lanes[plane][lane].into()));
        if self.overflowing {
            return numbers.map(A::log).sum::<Complex<f64>>().exp();
        }
        let one = std::array::from_fn(|plane| if A::ONE[plane] { 1.0 } else { 0.0 });
        A::factor(numbers.fold(one, A::times))
    }

    /// The logarithm of the other factors, for the θ of a sample.
    fn log_of_wide(&self, theta: [&[T]; P]) -> Complex<f64> {
        let differences = self.wide.iter().map(|&unit| {
            let theta = theta.map(|plane| plane[unit].into());
            let delta = self.delta_of(unit);
            let changed = std::array::from_fn(|plane| theta[plane] + delta[plane]);
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
fn slices<T, const P: usize>(table: &[Vec<T>; P]) -> [&[T]; P] {
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
    hidden: Hidden<'a, T>,
    row: Row<T, A, P>,
    of_bias: Complex<f64>,
}

impl<'a, T: Real, A: Algebra<P>, const P: usize> Amplitudes<'a, T, A, P> {
    /// With the hidden units of samples.
    #[must_use]
    pub fn new(machine: &'a Machine<'a, T, A, P>, hidden: Hidden<'a, T>) -> Self {
        Self { machine, hidden, row: Row::new(machine.tables.units), of_bias: Complex::default() }
    }

    /// The numbers of one sample.
    #[inline(always)]
    fn of_sample(&self, table: &'a [T], sample: usize) -> [&'a [T]; P] {
        let units = self.machine.tables.units;
        let plane_len = table.len() / P;
        std::array::from_fn(|plane| &table[plane * plane_len + sample * units..][..units])
    }
}

impl<T: Real, A: Algebra<P>, const P: usize> Ratios for Amplitudes<'_, T, A, P> {
    #[inline(always)]
    fn change<S: Simd>(&mut self, simd: S, sites: &[usize], opposite: &[bool]) {
        self.machine.compose(simd, sites, opposite, &mut self.row);
        self.of_bias = complex(self.row.bias).exp();
    }

    #[inline(always)]
    fn reverse(&mut self) {
        self.row.negate();
        self.of_bias = complex(self.row.bias).exp();
    }

    #[inline(always)]
    fn ratios<S: Simd>(&self, simd: S, samples: [usize; TOGETHER]) -> [Complex<f64>; TOGETHER] {
        let mut ratios = [Complex::default(); TOGETHER];
        // Of complex numbers half as many at once: a processor hasn't more registers.
        for (ratios, samples) in ratios.chunks_exact_mut(TOGETHER / P).zip(samples.chunks_exact(TOGETHER / P)) {
            if P == 1 {
                ratios.copy_from_slice(&self.at_samples::<S, TOGETHER>(simd, samples));
            } else {
                ratios.copy_from_slice(&self.at_samples::<S, { TOGETHER / 2 }>(simd, samples));
            }
        }
        ratios
    }
}

impl<'a, T: Real, A: Algebra<P>, const P: usize> Amplitudes<'a, T, A, P> {
    #[inline(always)]
    fn at_samples<S: Simd, const Q: usize>(&self, simd: S, samples: &[usize]) -> [Complex<f64>; Q] {
        let tanh = std::array::from_fn(|place| self.of_sample(self.hidden.tanh, samples[place]));
        let mut ratios = self.row.products::<S, Q>(simd, tanh);
        for (ratio, &sample) in ratios.iter_mut().zip(samples) {
            *ratio *= self.of_bias;
            if !self.row.wide.is_empty() {
                *ratio *= self.row.log_of_wide(self.of_sample(self.hidden.theta, sample)).exp();
            }
        }
        ratios
    }
}
