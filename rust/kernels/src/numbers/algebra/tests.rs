use super::*;
use crate::numbers::{dispatch, each_level};
use proptest::prelude::*;
use pulp::WithSimd;

type C = Complex<f64>;

fn near(found: [f64; 2], expected: C, tolerance: f64) {
    let found = C::new(found[0], found[1]);
    assert!((found - expected).norm() <= tolerance * (1.0 + expected.norm()), "{found} instead of {expected}");
}

fn number([re, im]: [f64; 2]) -> C {
    C::new(re, im)
}

/// ln cosh by definition, for numbers whose cosh doesn't overflow.
fn log_cosh(z: C) -> C {
    ((z.exp() + (-z).exp()) / 2.0).ln()
}

/// The ratio of two products that go through vectors of this machine, lane by lane.
struct Lanes<const P: usize>([f64; P]);

impl WithSimd for Lanes<2> {
    type Output = [[f64; 2]; 2];

    fn with_simd<S: Simd>(self, simd: S) -> [[f64; 2]; 2] {
        let vector = self.0.map(|plane| f64::splat(simd, plane));
        [Complexes::product_of_lanes::<f64, S>(simd, vector), RealPairs::product_of_lanes::<f64, S>(simd, vector)]
    }
}

#[test]
fn the_product_of_the_numbers_of_a_vector() {
    struct Count;
    impl WithSimd for Count {
        type Output = i32;
        fn with_simd<S: Simd>(self, _: S) -> i32 {
            S::F64_LANES as i32
        }
    }
    for _ in each_level() {
        let lanes = dispatch(Count);
        let [complex, pair] = dispatch(Lanes([0.75, -1.25]));
        near(complex, C::new(0.75, -1.25).powi(lanes), 1e-14);
        assert_eq!(pair, [0.75_f64.powi(lanes), (-1.25_f64).powi(lanes)]);
    }
}

proptest! {
    #[test]
    fn arithmetic_is_that_of_the_numbers(a in [-3.0..3.0, -3.0..3.0], b in [-3.0..3.0, -3.0..3.0], c in [-3.0..3.0, -3.0..3.0]) {
        let simd = Scalar::new();
        let (x, y, z) = (number(a), number(b), number(c));
        near(Complexes::product::<f64, _>(simd, a, b), x * y, 1e-15);
        near(Complexes::product_plus::<f64, _>(simd, a, b, c), x * y + z, 4e-15);
        near(Complexes::times(a, b), x * y, 1e-15);
        prop_assert!((Complexes::magnitude::<f64, _>(simd, a) - x.norm_sqr()).abs() < 1e-14);
        if y.norm() > 0.01 {
            let (quotient, square) = Complexes::quotient::<f64, _>(simd, a, b);
            near(quotient, x / y, 1e-13);
            prop_assert!((square - y.norm_sqr()).abs() < 1e-14);
        }
        // Pairs are two real numbers, and the lesser square is what their errors grow by.
        prop_assert_eq!(RealPairs::product::<f64, _>(simd, a, b), [a[0] * b[0], a[1] * b[1]]);
        let (quotient, square) = RealPairs::quotient::<f64, _>(simd, a, b);
        prop_assert_eq!(quotient, [a[0] / b[0], a[1] / b[1]]);
        prop_assert_eq!(square, (b[0] * b[0]).min(b[1] * b[1]));
        prop_assert_eq!(Reals::quotient::<f64, _>(simd, [a[0]], [b[0]]), ([a[0] / b[0]], b[0] * b[0]));
    }

    #[test]
    fn functions_by_definition(x in -20.0..20.0, y in -3.0..3.0, other in -20.0..20.0) {
        let z = C::new(x, y);
        near([Reals::log_cosh([x]).re, Reals::log_cosh([x]).im], log_cosh(x.into()), 1e-12);
        // Where cosh z is near zero its logarithm is as inexact as it is large.
        if z.cosh().norm() > 0.01 {
            let found = Complexes::log_cosh([x, y]);
            // Up to a multiple of 2πi.
            near([found.exp().re, found.exp().im], z.cosh(), 1e-11);
            prop_assert!((found.re - z.cosh().norm().ln()).abs() < 1e-11);
        }
        let [cosh, sinh] = Complexes::cosh_sinh([x, y]);
        near(cosh, (z.exp() + (-z).exp()) / 2.0, 1e-14);
        near(sinh, (z.exp() - (-z).exp()) / 2.0, 1e-14);
        prop_assert_eq!(RealPairs::log_cosh([x, other]), C::new(Reals::log_cosh([x]).re, Reals::log_cosh([other]).re));
        prop_assert_eq!(RealPairs::cosh_sinh([x, other]), [[x.cosh(), other.cosh()], [x.sinh(), other.sinh()]]);
    }

    /// Angles within those that vector code takes, and larger ones.
    #[test]
    fn sums_of_log_cosh(
        re in prop::array::uniform32(-40.0..40.0), im in prop::array::uniform32(-3.0..3.0),
        scale in prop_oneof![Just(1.0), Just(0.01), Just(1e9)]
    ) {
        let im = im.map(|y: f64| scale * y);
        let numbers = || re.into_iter().zip(im);
        let of_complex: f64 = numbers().map(|(x, y)| Complexes::log_cosh([x, y]).re).sum();
        let of_real: f64 = re.into_iter().map(|x| Reals::log_cosh([x]).re).sum();
        let (single, single_im) = (re.map(|x| x as f32), im.map(|y| y as f32));
        for _ in each_level() {
            let found = dispatch(#[inline(always)] || {
                [Reals::sum_of_log_cosh([&re]), RealPairs::sum_of_log_cosh([&re, &im]), Complexes::sum_of_log_cosh([&re, &im])]
            });
            for (found, expected) in found.into_iter().zip([of_real, of_real, of_complex]) {
                prop_assert!((found - expected).abs() < 1e-10, "{} instead of {}", found, expected);
            }
            let found = dispatch(#[inline(always)] || Reals::sum_of_log_cosh([&single]));
            prop_assert!((found - of_real).abs() < 1e-3, "{} instead of {}", found, of_real);
            if scale <= 1.0 {
                let found = dispatch(#[inline(always)] || Complexes::sum_of_log_cosh([&single, &single_im]));
                prop_assert!((found - of_complex).abs() < 1e-3, "{} instead of {}", found, of_complex);
            }
        }
    }

    /// Angles within those that vector code takes, and larger ones.
    #[test]
    fn functions_of_many_numbers(x in -3.0..3.0, angle in prop_oneof![-3.0..3.0, -1e9..1e9]) {
        let (mut cosh, mut sinh, mut tanh) = ([[0.0]; 2], [[0.0]; 2], [[0.0]; 2]);
        let z = C::new(x, angle);
        Complexes::cosh_sinh_of::<f64>([&[x], &[angle]], cosh.each_mut().map(|p| &mut p[..]), sinh.each_mut().map(|p| &mut p[..]));
        near([cosh[0][0], cosh[1][0]], z.cosh(), 1e-14);
        near([sinh[0][0], sinh[1][0]], z.sinh(), 1e-14);
        Complexes::tanh_of::<f64>([&[x], &[angle]], tanh.each_mut().map(|p| &mut p[..]));
        if z.cosh().norm() > 0.1 {
            near([tanh[0][0], tanh[1][0]], z.sinh() / z.cosh(), 1e-12);
        }
        let mut one = [0.0];
        Reals::tanh_of::<f64>([&[x]], [&mut one]);
        prop_assert!((one[0] - x.tanh()).abs() < 1e-15);
    }
}

#[test]
fn large_numbers_have_no_cosh_but_its_logarithm() {
    assert_eq!(Reals::log_cosh([1e6]).re, 1e6 - std::f64::consts::LN_2);
    assert_eq!(Reals::log_cosh([-1e6]).re, 1e6 - std::f64::consts::LN_2);
    assert_eq!(Complexes::log_cosh([-1e6, 1.0]), C::new(1e6 - std::f64::consts::LN_2, -1.0));
}

#[test]
fn numbers_as_factors() {
    assert_eq!(Reals::factor([-2.0]), -2.0);
    assert_eq!(Complexes::factor([1.0, -2.0]), C::new(1.0, -2.0));
    // |ψ| is multiplied by the first number, and the phase grows by the logarithm of the second one.
    let factor = RealPairs::factor([2.0, std::f64::consts::E]);
    near([factor.re, factor.im], 2.0 * C::new(0.0, 1.0).exp(), 1e-15);
    assert_eq!(Reals::exponential(C::new(0.0, 5.0)), 1.0);
}
