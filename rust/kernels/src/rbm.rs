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
//! Where |δ| is large the two terms of a factor may cancel, and the product may overflow though the ratio doesn't: such
//! factors are taken from differences of ln cosh.
//!
//! Complex numbers are planes: all real parts, then all imaginary parts.

use crate::Error;
use crate::element::MatrixElement;
use crate::error::check;
use crate::local_states::LocalIndex;
use crate::simd::fused;
use crate::terms::{BLOCK, Column, Terms, WORDS, bits};
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

    /// `self * a + b`, in one instruction where `fused`.
    #[must_use]
    fn times_plus(self, a: Self, b: Self, fused: bool) -> Self;

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

            #[inline(always)]
            fn times_plus(self, a: Self, b: Self, fused: bool) -> Self {
                // Without the instruction, `mul_add` would be a slow function.
                if fused { self.mul_add(a, b) } else { self * a + b }
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
    /// The largest |Re δ| of each site, and their sum.
    extents: Vec<[f64; 2]>,
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
            let parts = delta[site * units..][..units].iter().map(|&delta| delta.into().abs());
            parts.fold([0.0, 0.0], |[most, sum]: [f64; 2], part| [most.max(part), sum + part])
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
    fn compose(&self, sites: &[usize], opposite: &[bool], row: &mut Row<T, P>, fused: bool) {
        let Rbm { delta, cosh, sinh, bias, .. } = self.tables;
        let (&first, others) = sites.split_first().expect("a group off the diagonal flips a site");
        for plane in 0..P {
            row.delta[plane].copy_from_slice(self.of_site(delta, plane, first));
            row.cosh[plane].copy_from_slice(self.of_site(cosh, plane, first));
            row.sinh[plane].copy_from_slice(self.of_site(sinh, plane, first));
            row.bias[plane] = bias[plane * self.sites + first].into();
        }
        let [mut most, mut sum] = self.extents[first];
        for (&site, &opposite) in others.iter().zip(opposite) {
            most += self.extents[site][0];
            sum += self.extents[site][1];
            for plane in 0..P {
                let change = bias[plane * self.sites + site].into();
                row.bias[plane] += if opposite { -change } else { change };
            }
            let of_site = |table| std::array::from_fn(|plane| self.of_site(table, plane, site));
            row.add(of_site(delta), of_site(cosh), of_site(sinh), opposite, fused);
        }
        row.wide.clear();
        if most > T::NARROW || sum > T::RANGE {
            row.widen(sum > T::RANGE);
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
}

impl<T: Real, const P: usize> Row<T, P> {
    fn new(units: usize) -> Self {
        let zeros = || std::array::from_fn(|_| vec![T::default(); units]);
        Self { delta: zeros(), cosh: zeros(), sinh: zeros(), bias: [0.0; P], wide: Vec::new() }
    }

    /// One site more.
    #[inline(always)]
    fn add(&mut self, delta: [&[T]; P], cosh: [&[T]; P], sinh: [&[T]; P], opposite: bool, fused: bool) {
        let signed = |number: T| if opposite { number.negated() } else { number };
        for plane in 0..P {
            for (to, &delta) in self.delta[plane].iter_mut().zip(delta[plane]) {
                *to = signed(delta).times_plus(T::ONE, *to, fused);
            }
        }
        let units = self.delta[0].len();
        for unit in 0..units {
            let at = |table: &[Vec<T>; P]| std::array::from_fn::<T, P, _>(|plane| table[plane][unit]);
            let (c, s) = (at(&self.cosh), at(&self.sinh));
            let of_site = |table: [&[T]; P]| std::array::from_fn::<T, P, _>(|plane| table[plane][unit]);
            let (c2, s2) = (of_site(cosh), of_site(sinh).map(signed));
            let (new_cosh, new_sinh) = (sum_of_products(c, c2, s, s2, fused), sum_of_products(s, c2, c, s2, fused));
            for plane in 0..P {
                self.cosh[plane][unit] = new_cosh[plane];
                self.sinh[plane][unit] = new_sinh[plane];
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

    /// Sets the units apart whose factors could cancel, or all.
    fn widen(&mut self, all: bool) {
        for unit in 0..self.delta[0].len() {
            let delta: f64 = self.delta[0][unit].into();
            if all || delta.abs() > T::NARROW {
                self.wide.push(unit);
                for plane in 0..P {
                    self.cosh[plane][unit] = if plane == 0 { T::ONE } else { T::default() };
                    self.sinh[plane][unit] = T::default();
                }
            }
        }
    }

    /// The products of the factors of all units that aren't set apart, for the tanh θ of some samples.
    #[inline(always)]
    fn products<const Q: usize>(&self, tanh: [[&[T]; P]; Q], fused: bool) -> [[T; P]; Q] {
        let mut products = [[[T::default(); UNITS]; P]; Q];
        for product in &mut products {
            product[0] = [T::ONE; UNITS];
        }
        let cosh: [&[[T; UNITS]]; P] = std::array::from_fn(|plane| self.cosh[plane].as_chunks().0);
        let len = cosh[0].len();
        let sinh: [&[[T; UNITS]]; P] = std::array::from_fn(|plane| &self.sinh[plane].as_chunks().0[..len]);
        let tanh = tanh.map(|planes| planes.map(|numbers| &numbers.as_chunks::<UNITS>().0[..len]));
        for part in 0..len {
            for (product, tanh) in products.iter_mut().zip(&tanh) {
                for unit in 0..UNITS {
                    let c = std::array::from_fn(|plane| cosh[plane][part][unit]);
                    let s = std::array::from_fn(|plane| sinh[plane][part][unit]);
                    let t = std::array::from_fn(|plane| tanh[plane][part][unit]);
                    let so_far = std::array::from_fn(|plane| product[plane][unit]);
                    let next = product_of(so_far, product_plus(t, s, c, fused), fused);
                    for plane in 0..P {
                        product[plane][unit] = next[plane];
                    }
                }
            }
        }
        products.map(|product| {
            let mut total: [T; P] = std::array::from_fn(|plane| product[plane][0]);
            for unit in 1..UNITS {
                total = product_of(total, std::array::from_fn(|plane| product[plane][unit]), fused);
            }
            total
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

/// `a * b`.
#[inline(always)]
fn product_of<T: Real, const P: usize>(a: [T; P], b: [T; P], fused: bool) -> [T; P] {
    product_plus(a, b, [T::default(); P], fused)
}

/// `a * b + c`.
#[inline(always)]
fn product_plus<T: Real, const P: usize>(a: [T; P], b: [T; P], c: [T; P], fused: bool) -> [T; P] {
    std::array::from_fn(|plane| {
        if P == 1 {
            a[0].times_plus(b[0], c[0], fused)
        } else if plane == 0 {
            a[0].times_plus(b[0], a[1].negated().times_plus(b[1], c[0], fused), fused)
        } else {
            a[0].times_plus(b[1], a[1].times_plus(b[0], c[1], fused), fused)
        }
    })
}

/// `a * b + c * d`.
#[inline(always)]
fn sum_of_products<T: Real, const P: usize>(a: [T; P], b: [T; P], c: [T; P], d: [T; P], fused: bool) -> [T; P] {
    product_plus(a, b, product_of(c, d, fused), fused)
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

/// The local values of up to [`BLOCK`] samples, given as local indices. `first` is the place of the first one among those
/// of `hidden`.
pub fn local_values<V: MatrixElement + Into<Complex<f64>>, T: Real, const P: usize>(
    terms: &Terms,
    values: &[V],
    indices: &[LocalIndex],
    machine: &Machine<'_, T, P>,
    hidden: Hidden<'_, T>,
    first: usize,
    local: &mut [Complex<f64>],
) {
    fused(
        #[inline(always)]
        |fused| {
            let units = machine.tables.units;
            let mut row = Row::new(units);
            let mut opposite = Vec::new();
            local.fill(Complex::default());
            terms.for_each_group(values, indices, local.len(), |sites, columns, mut rest, mels: &[[V; 64]]| {
                let Some(&first_site) = sites.first() else {
                    for lane in lanes(&rest) {
                        local[lane] += mels[lane / 64][lane % 64].into();
                    }
                    return;
                };
                while let Some(lane) = lanes(&rest).next() {
                    // Those whose flipped sites are all as this one's, or all the other way.
                    let mut alike = rest;
                    opposite.clear();
                    for &site in &sites[1..] {
                        let is_opposite = (columns[site][lane / 64] ^ columns[first_site][lane / 64]) >> (lane % 64) & 1;
                        opposite.push(is_opposite == 1);
                        for word in 0..WORDS {
                            let differs = columns[site][word] ^ columns[first_site][word];
                            alike[word] &= differs ^ is_opposite.wrapping_sub(1);
                        }
                    }
                    machine.compose(sites, &opposite, &mut row, fused);
                    for second in [false, true] {
                        let state = |word: usize| columns[first_site][word] ^ u64::from(second).wrapping_sub(1);
                        let these: Column = std::array::from_fn(|word| alike[word] & state(word));
                        if second {
                            row.negate();
                        }
                        let of_bias = complex(row.bias).exp();
                        let mut these = lanes(&these);
                        while let Some(lane) = these.next() {
                            let group: [usize; TOGETHER] =
                                std::array::from_fn(|place| if place == 0 { Some(lane) } else { these.next() })
                                    .map(|next| next.unwrap_or(usize::MAX));
                            // What is missing at the end is evaluated in vain.
                            let tanh = group.map(|next| {
                                let sample = first + if next == usize::MAX { lane } else { next };
                                Hidden::of_sample(hidden.tanh, units, sample)
                            });
                            let products = row.products(tanh, fused);
                            for (lane, product) in group.into_iter().zip(products) {
                                if lane == usize::MAX {
                                    break;
                                }
                                let mut ratio = complex(product.map(Into::into)) * of_bias;
                                if !row.wide.is_empty() {
                                    let theta = Hidden::of_sample(hidden.theta, units, first + lane);
                                    ratio *= row.log_of_wide(theta).exp();
                                }
                                local[lane] += mels[lane / 64][lane % 64].into() * ratio;
                            }
                        }
                    }
                    for (rest, alike) in rest.iter_mut().zip(alike) {
                        *rest &= !alike;
                    }
                }
            });
        },
    );
}

/// The number with these planes.
#[inline(always)]
fn complex<const P: usize>(planes: [f64; P]) -> Complex<f64> {
    Complex::new(planes[0], planes.get(1).copied().unwrap_or_default())
}

/// The samples of a block that are set in a column.
#[inline(always)]
fn lanes(column: &Column) -> impl Iterator<Item = usize> {
    let column = *column;
    (0..WORDS).flat_map(move |word| bits(column[word]).map(move |lane| 64 * word + lane))
}
