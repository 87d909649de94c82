//! What multiplies the amplitude of a restricted Boltzmann machine if some sites change.

use super::{Extent, Rbm};
use crate::numbers::{
    Algebra, CACHE_LINE, Planes, Real, at, complex, lanes, number, planes, planes_mut, sign, vectors, vectors_mut,
};
use aligned_vec::AVec;
use num_complex::Complex;
use pulp::Simd;
use std::marker::PhantomData;

/// What multiplies the amplitude if some sites change: cosh δ and sinh δ of each unit.
#[derive(Debug)]
pub struct Row<T, A: Algebra<P>, const P: usize> {
    /// The sites, and whether they change the other way than from their first to their second local state.
    changes: Vec<(usize, bool)>,
    /// The site whose tables these are as they stand.
    alone: Option<usize>,
    /// `(planes, units)`.
    cosh: AVec<T>,
    sinh: AVec<T>,
    /// How much Σ a σ changes.
    pub(super) log_of_bias: Complex<f64>,
    /// The factor that this is, and that of the other way.
    pub(super) of_bias: [A::Factor; 2],
    /// The units whose factors are taken from ln cosh, and their δ.
    pub(super) wide: Vec<(usize, [f64; P])>,
    /// Whether the product of all factors may overflow where the ratio doesn't.
    pub(super) overflowing: bool,
    /// Whether that of the numbers of a vector may, as one of `T`.
    pub(super) in_doubles: bool,
    algebra: PhantomData<A>,
}

impl<T, A: Algebra<P>, const P: usize> Default for Row<T, A, P> {
    fn default() -> Self {
        Self {
            changes: Vec::new(),
            alone: None,
            cosh: AVec::new(CACHE_LINE),
            sinh: AVec::new(CACHE_LINE),
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
    pub(super) fn compose<S: Simd>(&mut self, simd: S, rbm: &Rbm<'_, T, A, P>, sites: &[usize], opposite: &[bool]) {
        let (&first, others) = sites.split_first().expect("a group off the diagonal flips a site");
        self.changes.clear();
        self.changes.push((first, false));
        self.changes.extend(others.iter().copied().zip(opposite.iter().copied()));
        self.wide.clear();
        let mut bias = [0.0; P];
        let mut extent = Extent::default();
        for &(site, opposite) in &self.changes {
            extent.add(&rbm.extents[site]);
            for (plane, bias) in bias.iter_mut().enumerate() {
                let change = rbm.tables.bias[plane * rbm.sites + site].into();
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
        for (own, of_first) in [&mut self.cosh, &mut self.sinh].into_iter().zip(rbm.rows(first)) {
            own.clear();
            for plane in of_first {
                own.extend_from_slice(plane);
            }
        }
        for (&site, &opposite) in others.iter().zip(opposite) {
            self.add(simd, rbm, site, opposite);
        }
        if extent.largest > T::NARROW || all_wide {
            self.mend(rbm, all_wide);
        }
    }

    /// One site more, by the addition theorems.
    #[inline(always)]
    fn add<S: Simd>(&mut self, simd: S, rbm: &Rbm<'_, T, A, P>, site: usize, opposite: bool) {
        let [cosh, sinh] = rbm.rows(site);
        let (cosh, sinh) = (vectors::<T, S, P>(cosh), vectors::<T, S, P>(sinh));
        let own_cosh = vectors_mut::<T, S, P>(planes_mut(&mut self.cosh));
        let own_sinh = vectors_mut::<T, S, P>(planes_mut(&mut self.sinh));
        let sign = sign::<T, S>(simd, opposite);
        for place in 0..cosh[0].len() {
            let (c, s) = (at(&own_cosh, place), at(&own_sinh, place));
            let (c2, mut s2) = (at(&cosh, place), at(&sinh, place));
            for plane in &mut s2 {
                *plane = T::signed(simd, *plane, sign);
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
    fn mend(&mut self, rbm: &Rbm<'_, T, A, P>, all: bool) {
        for unit in 0..rbm.tables.units {
            let (mut delta, mut reach) = ([0.0; P], [0.0; P]);
            for &(site, opposite) in &self.changes {
                for plane in 0..P {
                    let change: f64 = rbm.of_site(rbm.tables.delta, plane, site)[unit].into();
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
        let units = self.cosh.len() / P;
        for plane in 0..P {
            self.cosh[plane * units + unit] = T::nearest(cosh[plane]);
            self.sinh[plane * units + unit] = T::nearest(sinh[plane]);
        }
    }

    /// The products of the factors of all units that aren't set apart, at some samples.
    #[inline(always)]
    pub(super) fn products<S: Simd, const Q: usize>(
        &self,
        simd: S,
        rbm: &Rbm<'_, T, A, P>,
        tanh: [&[T]; P],
        samples: &[usize],
        reversed: &[bool],
    ) -> [Planes<T, S, P>; Q] {
        let [cosh, sinh] = match self.alone {
            Some(site) => rbm.rows(site),
            None => [planes(&self.cosh), planes(&self.sinh)],
        };
        let (cosh, mut sinh) = (vectors::<T, S, P>(cosh), vectors::<T, S, P>(sinh));
        let tanh = vectors::<T, S, P>(tanh);
        let len = cosh[0].len();
        // All of the same length, so that the compiler knows that no place is outside.
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
    pub(super) fn lanes<S: Simd>(vector: Planes<T, S, P>) -> Vec<[f64; P]> {
        (0..lanes::<T, S>()).map(|lane| number::<T, S, P>(&vector, lane)).collect()
    }

    /// The logarithm of the factors that are set apart, for the θ of a sample.
    #[cold]
    pub(super) fn log_of_wide(&self, theta: [&[T]; P], sample: usize, reversed: bool) -> Complex<f64> {
        let units = self.cosh.len() / P;
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
