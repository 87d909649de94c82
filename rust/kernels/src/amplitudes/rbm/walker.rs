//! A restricted Boltzmann machine at a configuration that moves.

use super::{Extent, Rbm, RbmTables, zeros};
use crate::amplitudes::sums::{Changed, sum_rows};
use crate::amplitudes::{self, AmplitudeRatio};
use crate::numbers::{Algebra, Planes, Real, add_signed, at, lanes, planes, planes_mut, sign, vectors, vectors_mut};
use crate::sites::LocalIndex;
use aligned_vec::AVec;
use pulp::Simd;

/// After so many moves θ is summed up anew, since each adds a rounding error.
const MOVES: usize = 256;

/// A [`Rbm`] at a configuration, as a [`amplitudes::Walker`].
///
/// To flip a site is to go from tanh θ to tanh(θ + δ) = B / A, with A = cosh δ + tanh θ sinh δ and
/// B = sinh δ + tanh θ cosh δ. The product of all |A| is the ratio of the amplitudes, but for the visible biases. Of several sites
/// one after the other is flipped. So neither a proposal nor a move takes any transcendental function, but the errors of
/// tanh θ grow by 1 / |A|² with each move: where that has become too much it is computed anew.
///
/// Where δ is so large that the terms of A could cancel, or that the product could overflow, a proposal sums ln cosh of all
/// units up, at three to five times the cost.
#[derive(Debug)]
pub struct Walker<'a, T, A, const P: usize> {
    rbm: &'a Rbm<'a, T, A, P>,
    changed: Changed,
    /// θ of a configuration before the latest moves, `(planes, units)`.
    theta: AVec<T>,
    /// The flips since then, as a [`Proposal`] has them. θ is seldom asked for.
    behind: Vec<(usize, bool)>,
    /// tanh θ, alike, of the configuration.
    tanh: AVec<T>,
    /// Whether tanh θ is still that of an earlier configuration.
    tanh_is_behind: bool,
    /// The sum of ln |cosh θ|, once it was asked for.
    log_cosh: Option<f64>,
    /// θ of the proposed configuration, where ln cosh is summed up.
    proposed: AVec<T>,
    proposal: Proposal,
    /// How many moves there were since θ was summed up.
    moves: usize,
    /// How much larger the errors of tanh θ may be than when it was computed.
    growth: f64,
}

/// Evaluates `$body` with `$flips` standing for the tables of the proposed flips. Of one and of two their number is known to
/// the compiler.
macro_rules! with_flips {
    ($self:expr, $simd:expr, $flips:ident => $body:expr) => {{
        let rbm = $self.rbm;
        match $self.proposal.flips[..] {
            [flip] => {
                let $flips = &[Flip::new($simd, rbm, flip)];
                $body
            }
            [flip, other] => {
                let $flips = &[Flip::new($simd, rbm, flip), Flip::new($simd, rbm, other)];
                $body
            }
            ref flips => {
                let mut all = Vec::with_capacity(flips.len());
                for &flip in flips {
                    all.push(Flip::new($simd, rbm, flip));
                }
                let $flips = &all[..];
                $body
            }
        }
    }};
}

/// Some sites that are to be flipped.
#[derive(Debug, Default)]
struct Proposal {
    /// The sites, and whether they go from their second to their first state.
    flips: Vec<(usize, bool)>,
    /// The sum of ln |cosh θ| there, if the amplitude ratio was found by it.
    log_cosh: Option<f64>,
}

/// cosh δ and sinh δ of a flip.
struct Flip<'a, T: Real, S: Simd, const P: usize> {
    cosh: [&'a [T::Vector<S>]; P],
    sinh: [&'a [T::Vector<S>]; P],
    /// The sign of sinh δ.
    sign: T::Vector<S>,
}

impl<'a, T: Real, S: Simd, const P: usize> Flip<'a, T, S, P> {
    #[inline(always)]
    fn new<A: Algebra<P>>(simd: S, rbm: &'a Rbm<'_, T, A, P>, (site, back): (usize, bool)) -> Self {
        let [cosh, sinh] = rbm.rows(site);
        let (mut cosh, mut sinh) = (vectors::<T, S, P>(cosh), vectors::<T, S, P>(sinh));
        // All of the same length, so that the compiler knows that no place is outside.
        let len = cosh[0].len();
        for plane in 0..P {
            (cosh[plane], sinh[plane]) = (&cosh[plane][..len], &sinh[plane][..len]);
        }
        Self { cosh, sinh, sign: sign::<T, S>(simd, back) }
    }

    /// Of one vector of units.
    #[inline(always)]
    fn at(&self, simd: S, place: usize) -> [Planes<T, S, P>; 2] {
        let mut sinh = at(&self.sinh, place);
        for plane in &mut sinh {
            *plane = T::signed(simd, *plane, self.sign);
        }
        [at(&self.cosh, place), sinh]
    }
}

impl<'a, T: Real, A: Algebra<P>, const P: usize> Walker<'a, T, A, P> {
    /// At no configuration.
    #[must_use]
    pub fn new(rbm: &'a Rbm<'a, T, A, P>) -> Self {
        let [theta, tanh, proposed] = [(); 3].map(|()| zeros(P * rbm.tables.units));
        let proposal = Proposal::default();
        let (changed, behind) = (Changed::default(), Vec::new());
        Self {
            rbm,
            changed,
            theta,
            behind,
            tanh,
            tanh_is_behind: false,
            log_cosh: None,
            proposed,
            proposal,
            moves: 0,
            growth: 1.0,
        }
    }

    /// ln |ψ| at the configuration, whose local indices these are, up to a constant.
    #[inline(always)]
    pub(crate) fn log_modulus<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]) -> f64 {
        self.renew_theta(simd);
        self.rbm.log_modulus(planes(&self.theta), indices)
    }

    /// Makes θ that of the configuration.
    #[inline(always)]
    fn renew_theta<S: Simd>(&mut self, simd: S) {
        let rbm = self.rbm;
        for (plane, theta) in planes_mut::<T, P>(&mut self.theta).into_iter().enumerate() {
            for &(site, back) in &self.behind {
                add_signed(simd, theta, rbm.of_site(rbm.tables.delta, plane, site), back);
            }
        }
        self.behind.clear();
    }

    /// tanh θ from θ.
    #[inline(always)]
    fn renew_tanh<S: Simd>(&mut self, simd: S) {
        self.renew_theta(simd);
        A::tanh_of(planes(&self.theta), planes_mut(&mut self.tanh));
        self.growth = 1.0;
        self.tanh_is_behind = false;
    }

    /// A and B of the first flip.
    #[inline(always)]
    fn first<S: Simd>(simd: S, tanh: Planes<T, S, P>, [c, s]: [Planes<T, S, P>; 2]) -> [Planes<T, S, P>; 2] {
        [A::product_plus::<T, S>(simd, tanh, s, c), A::product_plus::<T, S>(simd, tanh, c, s)]
    }

    /// A and B with one flip more.
    #[inline(always)]
    fn next<S: Simd>(simd: S, [a, b]: [Planes<T, S, P>; 2], [c, s]: [Planes<T, S, P>; 2]) -> [Planes<T, S, P>; 2] {
        let (of_a, of_b) = (A::product::<T, S>(simd, a, c), A::product::<T, S>(simd, b, c));
        [A::product_plus::<T, S>(simd, b, s, of_a), A::product_plus::<T, S>(simd, a, s, of_b)]
    }

    /// A and B of one vector of units.
    #[inline(always)]
    fn at<S: Simd>(simd: S, tanh: Planes<T, S, P>, flips: &[Flip<'a, T, S, P>], place: usize) -> [Planes<T, S, P>; 2] {
        let mut numbers = Self::first(simd, tanh, flips[0].at(simd, place));
        for flip in &flips[1..] {
            numbers = Self::next(simd, numbers, flip.at(simd, place));
        }
        numbers
    }

    /// The product of the magnitudes of A, lane by lane.
    #[inline(always)]
    fn product<S: Simd>(&self, simd: S, flips: &[Flip<'a, T, S, P>]) -> T::Vector<S> {
        let tanh = vectors::<T, S, P>(planes(&self.tanh));
        // Two products, neither of which has to wait for the other.
        let mut products = [T::splat(simd, T::ONE); 2];
        for place in 0..tanh[0].len() {
            let [a, _] = Self::at(simd, at(&tanh, place), flips, place);
            let [product, other] = products;
            products = [other, T::times(simd, product, A::magnitude::<T, S>(simd, a))];
        }
        T::times(simd, products[0], products[1])
    }

    /// Makes tanh θ that of the new configuration, B / A, and gives the least |A|².
    #[inline(always)]
    fn go<S: Simd>(&mut self, simd: S, flips: &[Flip<'a, T, S, P>]) -> f64 {
        let tanh = vectors_mut::<T, S, P>(planes_mut(&mut self.tanh));
        let mut least = T::splat(simd, T::ONE);
        for place in 0..tanh[0].len() {
            let [a, b] = Self::at(simd, at(&tanh, place), flips, place);
            let (quotient, square) = A::quotient::<T, S>(simd, b, a);
            for plane in 0..P {
                tanh[plane][place] = quotient[plane];
            }
            least = T::lesser(simd, least, square);
        }
        T::least_of_lanes(simd, least).into()
    }

    /// The amplitude ratio by sums of ln cosh, where A could cancel or its product overflow.
    #[inline(always)]
    fn amplitude_ratio_by_log_cosh<S: Simd>(&mut self, simd: S) -> AmplitudeRatio {
        self.renew_theta(simd);
        let RbmTables { delta, bias, .. } = self.rbm.tables;
        let before = match self.log_cosh {
            Some(sum) => sum,
            None => A::sum_of_log_cosh(planes(&self.theta)),
        };
        self.proposed.copy_from_slice(&self.theta);
        let mut of_bias = 0.0;
        for &(site, back) in &self.proposal.flips {
            for (plane, theta) in planes_mut::<T, P>(&mut self.proposed).into_iter().enumerate() {
                add_signed(simd, theta, self.rbm.of_site(delta, plane, site), back);
            }
            // The real part is the first plane.
            let change: f64 = bias[site].into();
            of_bias += if back { -change } else { change };
        }
        let after = A::sum_of_log_cosh(planes(&self.proposed));
        (self.log_cosh, self.proposal.log_cosh) = (Some(before), Some(after));
        AmplitudeRatio::Log(after - before + of_bias)
    }
}

impl<T: Real, A: Algebra<P>, const P: usize> amplitudes::Walker for Walker<'_, T, A, P> {
    #[inline(always)]
    fn visit<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]) {
        let tables = self.rbm.tables;
        self.changed.set(indices, 1);
        let sums = planes_mut::<T, P>(&mut self.theta).into_iter();
        for ((sums, first), delta) in sums.zip(planes::<T, P>(tables.theta)).zip(planes::<T, P>(tables.delta)) {
            sum_rows(simd, first, delta, &self.changed, sums);
        }
        self.behind.clear();
        self.moves = 0;
        self.log_cosh = None;
        self.renew_tanh(simd);
    }

    #[inline(always)]
    fn amplitude_ratio<S: Simd>(&mut self, simd: S, indices: &[LocalIndex], sites: &[u32]) -> AmplitudeRatio {
        let rbm = self.rbm;
        let (mut of_bias, mut largest, mut reach, mut reach_of_units) = (1.0, 0.0, 0.0, 0.0);
        self.proposal.flips.clear();
        for &site in sites {
            let site = site as usize;
            let back = indices[site] == 1;
            self.proposal.flips.push((site, back));
            of_bias *= rbm.of_bias[site][usize::from(back)];
            largest += rbm.extents[site].largest;
            reach += rbm.reaches[site][0];
            reach_of_units += rbm.reaches[site][1];
        }
        let scale = if A::SQUARED { 2.0 } else { 1.0 };
        let in_doubles = scale * reach_of_units > T::RANGE;
        self.proposal.log_cosh = None;
        if sites.is_empty() {
            return AmplitudeRatio::Squared(1.0);
        }
        if largest > T::NARROW
            || 2.0 * reach > f64::RANGE
            || (in_doubles && scale * self.largest_sum(lanes::<T, S>()) > T::RANGE)
        {
            return self.amplitude_ratio_by_log_cosh(simd);
        }
        if self.tanh_is_behind {
            self.renew_tanh(simd);
        }
        let product = with_flips!(self, simd, flips => self.product(simd, flips));
        let product: f64 = if in_doubles {
            let of_lanes: &[T] = bytemuck::cast_slice(std::slice::from_ref(&product));
            of_lanes.iter().map(|&lane| lane.into()).product()
        } else {
            T::product_of_lanes(simd, product).into()
        };
        AmplitudeRatio::Squared(if A::SQUARED { product } else { product * product } * of_bias)
    }

    #[inline(always)]
    fn accept<S: Simd>(&mut self, simd: S, indices: &[LocalIndex]) {
        if self.proposal.flips.is_empty() {
            return;
        }
        self.moves += 1;
        if self.moves == MOVES {
            self.visit(simd, indices);
            return;
        }
        self.behind.extend_from_slice(&self.proposal.flips);
        self.log_cosh = self.proposal.log_cosh;
        if self.log_cosh.is_some() {
            // The next proposal may not ask for it.
            self.tanh_is_behind = true;
            return;
        }
        self.growth /= with_flips!(self, simd, flips => self.go(simd, flips));
        if self.growth > T::GROWTH {
            self.renew_tanh(simd);
        }
    }
}

impl<T: Real, A: Algebra<P>, const P: usize> Walker<'_, T, A, P> {
    /// The largest sum of |Re δ| over the units that are multiplied with each other in vectors of so many numbers.
    #[cold]
    fn largest_sum(&self, lanes: usize) -> f64 {
        let mut extent = Extent::default();
        for &(site, _) in &self.proposal.flips {
            extent.add(&self.rbm.extents[site]);
        }
        extent.largest_sum(lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::Walker as _;
    use crate::amplitudes::testing::{
        RandomRbm, check_amplitude_ratio, compare_steps, flipped, log_cosh_of_complex, log_cosh_of_pair,
        log_cosh_of_real,
    };
    use crate::numbers::{Complexes, RealPairs, Reals, dispatch, each_level};
    use proptest::prelude::*;
    use pulp::WithSimd;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Along a chain, past the move at which θ is summed up anew.
        #[test]
        fn amplitude_ratios_are_those_of_two_evaluations(
            sites in 1_usize..=12, units in 0_usize..=40,
            scale in prop_oneof![Just(0.1_f64), Just(0.7), Just(2.0), Just(6.0)], seed: u64
        ) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let start: Vec<_> = (0..sites).map(|_| rng.random_range(0..2)).collect();
            let large = (1 + units) as f64 * scale.max(1.0);
            // The terms of a factor may cancel: a move at which A = 1 / sqrt(GROWTH) leaves an error of cosh(NARROW) / A ε in
            // tanh θ, and the next one makes it larger by sinh(NARROW) / exp(-NARROW): 9e-10 and 5e-5.
            let (single, double) = (1e-4 * large, 1e-9 * large);
            macro_rules! compare {
                ($T:ty, $A:ty, $P:literal, $scale:expr, $tolerance:expr, $log_cosh:ident) => {{
                    let random = RandomRbm::<$T, $P>::new(rng, sites, units, $scale);
                    let rbm = Rbm::<$T, $A, $P>::new(random.tables(), sites).expect("tables");
                    let log_psi = |sample: &[LocalIndex]| random.log_psi(sample, $log_cosh);
                    compare_steps(rng, &start, $tolerance, log_psi, || Walker::new(&rbm));
                }};
            }
            compare!(f64, Reals, 1, scale, double, log_cosh_of_real);
            compare!(f32, Reals, 1, scale.min(2.0), single, log_cosh_of_real);
            compare!(f64, RealPairs, 2, scale, double, log_cosh_of_pair);
            compare!(f32, RealPairs, 2, scale.min(2.0), single, log_cosh_of_pair);
            // cosh of a complex number may be near zero.
            compare!(f64, Complexes, 2, scale.min(0.7), 2.0 * double, log_cosh_of_complex);
            compare!(f32, Complexes, 2, 0.1, 2.0 * single, log_cosh_of_complex);
        }
    }

    /// Flips a site of each number in turn; gives θ and tanh θ then, and when they are computed anew.
    struct Sequence<'a, 'm> {
        rbm: &'a Rbm<'m, f64, Reals, 1>,
        start: Vec<LocalIndex>,
        flips: usize,
    }

    impl WithSimd for Sequence<'_, '_> {
        type Output = ([Vec<f64>; 2], [Vec<f64>; 2], usize);

        fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
            let Self { rbm, start: mut indices, flips } = self;
            let mut walker = Walker::new(rbm);
            walker.visit(simd, &indices);
            for flip in 0..flips {
                let site = flip % indices.len();
                walker.amplitude_ratio(simd, &indices, &[site as u32]);
                indices = flipped(&indices, [site]);
                walker.accept(simd, &indices);
            }
            let mut fresh = Walker::new(rbm);
            fresh.visit(simd, &indices);
            walker.renew_theta(simd);
            let numbers = |walker: &Walker<'_, f64, Reals, 1>| [walker.theta.to_vec(), walker.tanh.to_vec()];
            (numbers(&walker), numbers(&fresh), walker.moves)
        }
    }

    #[test]
    fn after_flips_it_is_where_a_fresh_one_is() {
        let rng = &mut StdRng::seed_from_u64(3);
        let random = RandomRbm::<f64, 1>::new(rng, 7, 20, 0.3);
        let rbm = Rbm::<f64, Reals, 1>::new(random.tables(), 7).expect("tables");
        for (flips, moves) in [(0, 0), (1, 1), (6, 6), (255, 255), (256, 0), (300, 44)] {
            for _ in each_level() {
                let start = vec![0, 1, 1, 0, 1, 0, 0];
                let (walked, fresh, counted) = dispatch(Sequence { rbm: &rbm, start, flips });
                assert_eq!(counted, moves, "moves since θ was summed up");
                for (walked, fresh) in walked.iter().flatten().zip(fresh.iter().flatten()) {
                    assert!((walked - fresh).abs() < 1e-12, "{walked} instead of {fresh} after {flips} flips");
                }
            }
        }
    }

    /// Proposes moves from one configuration without accepting any.
    struct Proposals<'a, 'm, F> {
        rbm: &'a Rbm<'m, f64, Reals, 1>,
        start: Vec<LocalIndex>,
        log_psi: F,
    }

    impl<F: Fn(&[LocalIndex]) -> f64> WithSimd for Proposals<'_, '_, F> {
        type Output = ();

        fn with_simd<S: Simd>(self, simd: S) {
            let Self { rbm, start, log_psi } = self;
            let mut walker = Walker::new(rbm);
            walker.visit(simd, &start);
            for number in 0..1_usize << start.len() {
                let sites = (0..start.len()).filter(|site| number >> site & 1 == 1);
                let there = flipped(&start, sites.clone());
                let amplitude_ratio =
                    walker.amplitude_ratio(simd, &start, &sites.map(|site| site as u32).collect::<Vec<_>>());
                check_amplitude_ratio(amplitude_ratio, log_psi(&there) - log_psi(&start), 1e-12);
            }
        }
    }

    #[test]
    fn proposals_that_are_not_accepted_leave_no_trace() {
        let random = RandomRbm::<f64, 1>::new(&mut StdRng::seed_from_u64(4), 5, 9, 0.5);
        let rbm = Rbm::<f64, Reals, 1>::new(random.tables(), 5).expect("tables");
        let log_psi = |sample: &[LocalIndex]| random.log_psi(sample, log_cosh_of_real).re;
        for _ in each_level() {
            dispatch(Proposals { rbm: &rbm, start: vec![0, 1, 1, 0, 1], log_psi });
        }
    }
}
