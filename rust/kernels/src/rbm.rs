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
use std::marker::PhantomData;

/// Hidden units come in a multiple of this, which is one or two vectors.
pub const UNITS: usize = 8;

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
    /// The sums over the units that are multiplied with each other, see [`Row::products`].
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

    fn largest_sum(&self) -> f64 {
        self.sums.iter().fold(0.0, |largest, &sum| largest.max(sum))
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
    fn compose<const FUSED: bool>(&self, sites: &[usize], opposite: &[bool], row: &mut Row<T, A, P>) {
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
            row.add::<FUSED>(of_site(delta), of_site(cosh), of_site(sinh), opposite);
        }
        row.overflowing = extent.sum() > f64::RANGE;
        row.wide.clear();
        if extent.largest > T::NARROW {
            row.mend(|unit, plane| sites.iter().map(|&site| self.of_site(delta, plane, site)[unit].into().abs()).sum());
        }
        if extent.largest_sum() > T::RANGE {
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
    fn add<const FUSED: bool>(&mut self, delta: [&[T]; P], cosh: [&[T]; P], sinh: [&[T]; P], opposite: bool) {
        let sign = if opposite { T::ONE.negated() } else { T::ONE };
        for (plane, delta) in self.delta.iter_mut().zip(delta) {
            for (to, &delta) in plane.iter_mut().zip(delta) {
                *to = sign.times_plus::<FUSED>(delta, *to);
            }
        }
        let signed = |numbers: Units<T, P>| -> Units<T, P> {
            std::array::from_fn(|plane| std::array::from_fn(|unit| sign.times(numbers[plane][unit])))
        };
        let (cosh, sinh) = (parts(cosh), parts(sinh));
        for part in 0..cosh[0].len() {
            let own = |table: &[Vec<T>; P]| -> Units<T, P> { part_of(&parts(slices(table)), part) };
            let (c, s) = (own(&self.cosh), own(&self.sinh));
            let (c2, s2) = (part_of(&cosh, part), signed(part_of(&sinh, part)));
            let new_cosh = A::product_plus::<T, UNITS, FUSED>(c, c2, A::product::<T, UNITS, FUSED>(s, s2));
            let new_sinh = A::product_plus::<T, UNITS, FUSED>(s, c2, A::product::<T, UNITS, FUSED>(c, s2));
            for plane in 0..P {
                self.cosh[plane].as_chunks_mut().0[part] = new_cosh[plane];
                self.sinh[plane].as_chunks_mut().0[part] = new_sinh[plane];
            }
        }
    }

    /// Changes the signs of all changes.
    #[inline(always)]
    fn negate(&mut self) {
        for numbers in self.delta.iter_mut().chain(&mut self.sinh) {
            for number in numbers {
                *number = number.negated();
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
    fn products<'s, const Q: usize, const FUSED: bool>(&'s self, tanh: [[&'s [T]; P]; Q]) -> [Complex<f64>; Q] {
        let one: Units<T, P> = std::array::from_fn(|plane| [if A::ONE[plane] { T::ONE } else { T::default() }; UNITS]);
        let mut products = [one; Q];
        let cosh = parts(slices(&self.cosh));
        let len = cosh[0].len();
        let shortened = |table: [&'s [T]; P]| -> [&'s [[T; UNITS]]; P] {
            std::array::from_fn(|plane| &table[plane].as_chunks().0[..len])
        };
        let sinh = shortened(slices(&self.sinh));
        let tanh: [[&[[T; UNITS]]; P]; Q] = std::array::from_fn(|sample| shortened(tanh[sample]));
        for part in 0..len {
            let (c, s) = (part_of(&cosh, part), part_of(&sinh, part));
            for (so_far, tanh) in products.iter_mut().zip(&tanh) {
                let factor = A::product_plus::<T, UNITS, FUSED>(part_of(tanh, part), s, c);
                *so_far = A::product::<T, UNITS, FUSED>(*so_far, factor);
            }
        }
        let mut ratios = [Complex::default(); Q];
        for (ratio, of_units) in ratios.iter_mut().zip(&products) {
            *ratio = self.product_of_units::<FUSED>(of_units);
        }
        ratios
    }

    /// The factor of ψ that the products of some units make together.
    #[inline(always)]
    fn product_of_units<const FUSED: bool>(&self, products: &Units<T, P>) -> Complex<f64> {
        if self.overflowing {
            let logs = (0..UNITS).map(|unit| A::log(std::array::from_fn(|plane| products[plane][unit].into())));
            return logs.sum::<Complex<f64>>().exp();
        }
        let mut halves: Planes<f64, P, 4> = std::array::from_fn(|plane| std::array::from_fn(|unit| products[plane][unit].into()));
        let others: Planes<f64, P, 4> = std::array::from_fn(|plane| std::array::from_fn(|unit| products[plane][4 + unit].into()));
        halves = A::product::<f64, 4, FUSED>(halves, others);
        let at = |unit: usize| -> Planes<f64, P, 1> { std::array::from_fn(|plane| [halves[plane][unit]]) };
        let (a, b) = (A::product::<f64, 1, FUSED>(at(0), at(1)), A::product::<f64, 1, FUSED>(at(2), at(3)));
        let all = A::product::<f64, 1, FUSED>(a, b);
        A::factor(std::array::from_fn(|plane| all[plane][0]))
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

/// A number of each of some units.
type Units<T, const P: usize> = Planes<T, P, UNITS>;

/// Tables in parts of so many units as are evaluated together.
#[inline(always)]
fn parts<T, const P: usize>(table: [&[T]; P]) -> [&[[T; UNITS]]; P] {
    std::array::from_fn(|plane| table[plane].as_chunks().0)
}

/// Vectors as slices.
#[inline(always)]
fn slices<T, const P: usize>(table: &[Vec<T>; P]) -> [&[T]; P] {
    std::array::from_fn(|plane| &table[plane][..])
}

/// One of the parts.
#[inline(always)]
fn part_of<T: Copy, const P: usize>(table: &[&[[T; UNITS]]; P], part: usize) -> Units<T, P> {
    std::array::from_fn(|plane| table[plane][part])
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
    fn change<const FUSED: bool>(&mut self, sites: &[usize], opposite: &[bool]) {
        self.machine.compose::<FUSED>(sites, opposite, &mut self.row);
        self.of_bias = complex(self.row.bias).exp();
    }

    #[inline(always)]
    fn reverse(&mut self) {
        self.row.negate();
        self.of_bias = complex(self.row.bias).exp();
    }

    #[inline(always)]
    fn ratios<const FUSED: bool>(&self, samples: [usize; TOGETHER]) -> [Complex<f64>; TOGETHER] {
        let mut ratios = self.row.products::<TOGETHER, FUSED>(std::array::from_fn(|place| self.of_sample(self.hidden.tanh, samples[place])));
        for (ratio, sample) in ratios.iter_mut().zip(samples) {
            *ratio *= self.of_bias;
            if !self.row.wide.is_empty() {
                *ratio *= self.row.log_of_wide(self.of_sample(self.hidden.theta, sample)).exp();
            }
        }
        ratios
    }
}
