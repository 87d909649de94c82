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
use crate::element::MatrixElement;
use crate::error::check;
use crate::local_states::LocalIndex;
use crate::simd::{Arithmetic, fused};
use crate::terms::{Column, Terms, WORDS, bits};
use num_complex::Complex;

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

/// Real numbers that the tables consist of.
pub trait Real: Copy + Default + PartialEq + Into<f64> + Send + Sync {
    /// 1.
    const ONE: Self;

    /// Up to this |Re δ| the terms of a factor cancel by no more than the tolerance allows.
    const NARROW: f64;

    /// Up to this Σ |Re δ| no product overflows.
    const RANGE: f64;

    /// The nearest number.
    #[must_use]
    fn nearest(number: f64) -> Self;

    /// `self * a + b`, in one instruction where it is `FUSED`.
    #[must_use]
    fn times_plus<const FUSED: bool>(self, a: Self, b: Self) -> Self;

    /// `self * other`.
    #[must_use]
    fn times(self, other: Self) -> Self;

    /// `-self`.
    #[must_use]
    fn negated(self) -> Self;
}

macro_rules! reals {
    ($($t:ty: $narrow:literal, $range:literal);+) => {$(
        impl Real for $t {
            const ONE: Self = 1.0;
            const NARROW: f64 = $narrow;
            const RANGE: f64 = $range;

            #[allow(clippy::cast_possible_truncation, reason = "it is the nearest number that is wanted")]
            fn nearest(number: f64) -> Self {
                number as Self
            }

            #[inline(always)]
            fn times_plus<const FUSED: bool>(self, a: Self, b: Self) -> Self {
                // Without the instruction, `mul_add` would be a slow function.
                if FUSED { self.mul_add(a, b) } else { self * a + b }
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn negated(self) -> Self {
                -self
            }
        }
    )+};
}

reals!(f32: 2.5, 70.0; f64: 5.0, 600.0);

/// A [`Rbm`] of `P` planes, 1 for real numbers and 2 for complex ones, that was checked.
#[derive(Debug, Clone)]
pub struct Machine<'a, T, const P: usize> {
    tables: Rbm<'a, T>,
    sites: usize,
    /// The |Re δ| of each site.
    extents: Vec<Extent>,
}

/// How large the |Re δ| of a site, or of some, can be.
#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    largest: f64,
    /// The sums over the units that are multiplied with each other, see [`Row::products`].
    sums: [f64; UNITS],
}

impl Extent {
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

impl<'a, T: Real, const P: usize> Machine<'a, T, P> {
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
            let mut extent = Extent::default();
            for (unit, &delta) in delta[site * units..][..units].iter().enumerate() {
                let part = delta.into().abs();
                extent.largest = extent.largest.max(part);
                extent.sums[unit % UNITS] += part;
            }
            extent
        });
        Ok(Self { extents: extents.collect(), tables, sites })
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
    fn compose<const FUSED: bool>(&self, sites: &[usize], opposite: &[bool], row: &mut Row<T, P>) {
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
            row.mend(|unit| sites.iter().map(|&site| self.of_site(delta, 0, site)[unit].into().abs()).sum());
        }
        if extent.largest_sum() > T::RANGE {
            row.wide.clear();
            row.wide.extend(0..self.tables.units);
        }
        for &unit in &row.wide {
            for plane in 0..P {
                row.cosh[plane][unit] = if plane == 0 { T::ONE } else { T::default() };
                row.sinh[plane][unit] = T::default();
            }
        }
    }
}

/// What multiplies the amplitude if some sites change.
#[derive(Debug)]
struct Row<T, const P: usize> {
    delta: [Vec<T>; P],
    cosh: [Vec<T>; P],
    sinh: [Vec<T>; P],
    bias: [f64; P],
    /// The units whose factors are taken from ln cosh.
    wide: Vec<usize>,
    /// Whether the product of all factors may overflow where the ratio doesn't.
    overflowing: bool,
}

impl<T: Real, const P: usize> Row<T, P> {
    fn new(units: usize) -> Self {
        let zeros = || std::array::from_fn(|_| vec![T::default(); units]);
        Self { delta: zeros(), cosh: zeros(), sinh: zeros(), bias: [0.0; P], wide: Vec::new(), overflowing: false }
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
        let (cosh, sinh) = (parts(cosh), parts(sinh));
        for part in 0..cosh[0].len() {
            let own = |table: &[Vec<T>; P]| -> Units<T, P> { part_of(&parts(table.each_ref().map(Vec::as_slice)), part) };
            let (c, s) = (own(&self.cosh), own(&self.sinh));
            let (c2, s2) = (part_of(&cosh, part), part_of(&sinh, part).map(|plane| plane.map(|number| T::times(sign, number))));
            let new_cosh = product_plus::<T, P, UNITS, FUSED>(c, c2, product::<T, P, UNITS, FUSED>(s, s2));
            let new_sinh = product_plus::<T, P, UNITS, FUSED>(s, c2, product::<T, P, UNITS, FUSED>(c, s2));
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
    /// how large the |Re δ| of all sites are together, for a unit.
    fn mend(&mut self, reach: impl Fn(usize) -> f64) {
        for unit in 0..self.delta[0].len() {
            let delta: Complex<f64> = complex(std::array::from_fn::<f64, P, _>(|plane| self.delta[plane][unit].into()));
            if delta.re.abs() > T::NARROW {
                self.wide.push(unit);
            } else if reach(unit) > T::NARROW {
                for (table, number) in [(&mut self.cosh, delta.cosh()), (&mut self.sinh, delta.sinh())] {
                    for (plane, part) in table.iter_mut().zip([number.re, number.im]) {
                        plane[unit] = T::nearest(part);
                    }
                }
            }
        }
    }

    /// The products of the factors of all units that aren't set apart, for the tanh θ of some samples.
    #[inline(always)]
    fn products<const Q: usize, const FUSED: bool>(&self, tanh: [[&[T]; P]; Q]) -> [Complex<f64>; Q] {
        let one: Units<T, P> = std::array::from_fn(|plane| [if plane == 0 { T::ONE } else { T::default() }; UNITS]);
        let mut products = [one; Q];
        let cosh = parts(self.cosh.each_ref().map(Vec::as_slice));
        let len = cosh[0].len();
        let shortened = |table| parts(table).map(|plane| &plane[..len]);
        let sinh = shortened(self.sinh.each_ref().map(Vec::as_slice));
        let tanh = tanh.map(shortened);
        for part in 0..len {
            let (c, s) = (part_of(&cosh, part), part_of(&sinh, part));
            for (so_far, tanh) in products.iter_mut().zip(&tanh) {
                let factor = product_plus::<T, P, UNITS, FUSED>(part_of(tanh, part), s, c);
                *so_far = product::<T, P, UNITS, FUSED>(*so_far, factor);
            }
        }
        products.map(|of_units| {
            if self.overflowing {
                let units = (0..UNITS).map(|unit| complex(of_units.map(|plane| plane[unit].into())));
                return units.map(Complex::ln).sum::<Complex<f64>>().exp();
            }
            let [a, b, c, d, e, f, g, h]: [[[f64; 1]; P]; UNITS] =
                std::array::from_fn(|unit| of_units.map(|plane| [plane[unit].into()]));
            let times = product::<f64, P, 1, FUSED>;
            complex(times(times(times(a, e), times(b, f)), times(times(c, g), times(d, h))).map(|[number]| number))
        })
    }

    /// The logarithm of the other factors, for the θ of a sample.
    fn log_of_wide(&self, theta: [&[T]; P]) -> Complex<f64> {
        let of_planes = |unit: usize, planes: [&[T]; P]| complex(planes.map(|plane| plane[unit].into()));
        let delta = std::array::from_fn(|plane| &self.delta[plane][..]);
        let differences = self.wide.iter().map(|&unit| {
            let theta = of_planes(unit, theta);
            log_cosh(theta + of_planes(unit, delta)) - log_cosh(theta)
        });
        differences.sum()
    }
}

/// ln cosh z, up to a multiple of 2πi.
fn log_cosh(z: Complex<f64>) -> Complex<f64> {
    let z = if z.re < 0.0 { -z } else { z };
    // 1 + e^(-2z) loses nothing: where it is small, so is cosh z.
    let correction = if z.im == 0.0 { (-2.0 * z.re).exp().ln_1p().into() } else { (1.0 + (-2.0 * z).exp()).ln() };
    z + correction - std::f64::consts::LN_2
}

/// A number of each of some units.
type Units<T, const P: usize> = [[T; UNITS]; P];

/// Tables in parts of so many units as are evaluated together.
#[inline(always)]
fn parts<T, const P: usize>(table: [&[T]; P]) -> [&[[T; UNITS]]; P] {
    table.map(|plane| plane.as_chunks().0)
}

/// One of the parts.
#[inline(always)]
fn part_of<T: Copy, const P: usize>(table: &[&[[T; UNITS]]; P], part: usize) -> Units<T, P> {
    table.map(|plane| plane[part])
}

/// `a * b + c`.
#[inline(always)]
fn product_plus<T: Real, const P: usize, const N: usize, const FUSED: bool>(
    a: [[T; N]; P],
    b: [[T; N]; P],
    c: [[T; N]; P],
) -> [[T; N]; P] {
    let times_plus = |a: [T; N], b: [T; N], c: [T; N]| -> [T; N] {
        std::array::from_fn(|unit| a[unit].times_plus::<FUSED>(b[unit], c[unit]))
    };
    std::array::from_fn(|plane| {
        if P == 1 {
            times_plus(a[0], b[0], c[0])
        } else if plane == 0 {
            times_plus(a[0], b[0], times_plus(a[1].map(T::negated), b[1], c[0]))
        } else {
            times_plus(a[0], b[1], times_plus(a[1], b[0], c[1]))
        }
    })
}

/// `a * b`.
#[inline(always)]
fn product<T: Real, const P: usize, const N: usize, const FUSED: bool>(a: [[T; N]; P], b: [[T; N]; P]) -> [[T; N]; P] {
    let times = |a: [T; N], b: [T; N]| -> [T; N] { std::array::from_fn(|unit| a[unit].times(b[unit])) };
    if P == 1 {
        return std::array::from_fn(|_| times(a[0], b[0]));
    }
    let (re, im) = (times(a[1], b[1]).map(T::negated), times(a[1], b[0]));
    let times_plus = |a: [T; N], b: [T; N], c: [T; N]| -> [T; N] {
        std::array::from_fn(|unit| a[unit].times_plus::<FUSED>(b[unit], c[unit]))
    };
    std::array::from_fn(|plane| times_plus(a[0], b[plane], if plane == 0 { re } else { im }))
}

/// Samples that are evaluated together, for which a row is read once.
const TOGETHER: usize = 4;

impl<'a, T> Hidden<'a, T> {
    /// The numbers of one sample.
    #[inline(always)]
    fn of_sample<const P: usize>(table: &'a [T], units: usize, sample: usize) -> [&'a [T]; P] {
        let plane_len = table.len() / P;
        std::array::from_fn(|plane| &table[plane * plane_len + sample * units..][..units])
    }
}

/// The local values of up to [`crate::terms::BLOCK`] samples, given as local indices. `first` is the place of the first
/// one among those of `hidden`.
pub fn local_values<V: MatrixElement + Into<Complex<f64>>, T: Real, const P: usize>(
    terms: &Terms,
    values: &[V],
    indices: &[LocalIndex],
    machine: &Machine<'_, T, P>,
    hidden: Hidden<'_, T>,
    first: usize,
    local: &mut [Complex<f64>],
) {
    local.fill(Complex::default());
    let row = Row::new(machine.tables.units);
    let sums = Sums { machine, hidden, first, local, row, opposite: Vec::new() };
    fused(Work { terms, values, indices, sums });
}

/// What [`local_values`] does.
struct Work<'a, V, T, const P: usize> {
    terms: &'a Terms<'a>,
    values: &'a [V],
    indices: &'a [LocalIndex],
    sums: Sums<'a, T, P>,
}

impl<V: MatrixElement + Into<Complex<f64>>, T: Real, const P: usize> Arithmetic for Work<'_, V, T, P> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { terms, values, indices, mut sums } = self;
        let samples = sums.local.len();
        terms.for_each_group(
            values,
            indices,
            samples,
            #[inline(always)]
            |sites, columns, active, mels| sums.add_group::<V, FUSED>(sites, columns, active, mels),
        );
    }
}

/// The local values of some samples, in the making.
struct Sums<'a, T, const P: usize> {
    machine: &'a Machine<'a, T, P>,
    hidden: Hidden<'a, T>,
    first: usize,
    local: &'a mut [Complex<f64>],
    row: Row<T, P>,
    opposite: Vec<bool>,
}

impl<T: Real, const P: usize> Sums<'_, T, P> {
    /// Adds what one flip gives to the samples that are `active`.
    #[inline(always)]
    fn add_group<V: MatrixElement + Into<Complex<f64>>, const FUSED: bool>(
        &mut self,
        sites: &[usize],
        columns: &[Column],
        active: Column,
        mels: &[[V; 64]],
    ) {
        let mel = |lane: usize| -> Complex<f64> { mels[lane / 64][lane % 64].into() };
        let Some((&first, others)) = sites.split_first() else {
            for lane in lanes(active) {
                self.local[lane] += mel(lane);
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
            self.machine.compose::<FUSED>(sites, &self.opposite, &mut self.row);
            self.add_alike::<FUSED>(std::array::from_fn(|word| alike[word] & !columns[first][word]), mel);
            self.row.negate();
            self.add_alike::<FUSED>(std::array::from_fn(|word| alike[word] & columns[first][word]), mel);
            for (rest, alike) in rest.iter_mut().zip(alike) {
                *rest &= !alike;
            }
        }
    }

    /// Adds what the present row gives to some samples.
    #[inline(always)]
    fn add_alike<const FUSED: bool>(&mut self, samples: Column, mel: impl Fn(usize) -> Complex<f64>) {
        let units = self.machine.tables.units;
        let of_bias = complex(self.row.bias).exp();
        let mut lanes = lanes(samples);
        while let Some(lane) = lanes.next() {
            // What is missing at the end is evaluated in vain.
            let mut together = [lane; TOGETHER];
            let mut n = 1;
            for (place, lane) in together[1..].iter_mut().zip(&mut lanes) {
                *place = lane;
                n += 1;
            }
            let tanh = together.map(|lane| Hidden::of_sample(self.hidden.tanh, units, self.first + lane));
            let products = self.row.products::<TOGETHER, FUSED>(tanh);
            for (&lane, product) in together[..n].iter().zip(products) {
                let mut ratio = product * of_bias;
                if !self.row.wide.is_empty() {
                    let theta = Hidden::of_sample(self.hidden.theta, units, self.first + lane);
                    ratio *= self.row.log_of_wide(theta).exp();
                }
                self.local[lane] += mel(lane) * ratio;
            }
        }
    }
}

/// The number with these planes.
#[inline(always)]
fn complex<const P: usize>(planes: [f64; P]) -> Complex<f64> {
    Complex::new(planes[0], planes.get(1).copied().unwrap_or_default())
}

/// The samples of a block that are set in a column.
#[inline(always)]
fn lanes(column: Column) -> impl Iterator<Item = usize> {
    (0..WORDS).flat_map(move |word| bits(column[word]).map(move |lane| 64 * word + lane))
}
