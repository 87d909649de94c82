//! The functions between a network's layers, as JAX and NetKet define them.
//!
//! By instructions for a b + c if they are `FUSED`: see [`crate::numbers::Functions`].

use crate::numbers::Real;

/// `jax.nn.gelu`, by tanh: x (1 + tanh y) / 2 = x sigmoid 2y.
#[inline(always)]
pub(super) fn gelu<T: Real, const FUSED: bool>(x: T) -> T {
    /// 2 √(2/π).
    const GELU: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::SQRT_2;
    let (linear, cubic) = (T::nearest(GELU), T::nearest(GELU * 0.044_715));
    x * T::sigmoid::<FUSED>(x * (linear + cubic * (x * x)))
}

#[inline(always)]
pub(super) fn cosh<T: Real, const FUSED: bool>(x: T) -> T {
    let large = T::exp::<FUSED>(T::abs(x));
    T::nearest(0.5) * (large + T::ONE / large)
}

#[inline(always)]
pub(super) fn sinh<T: Real, const FUSED: bool>(x: T) -> T {
    // 1 - e^-x is m / (1 + m) with m = e^x - 1, and 1 where m is infinite.
    let m = T::exp_m1::<FUSED>(T::abs(x));
    let behind = if T::is_finite(m) { m / (T::ONE + m) } else { T::ONE };
    let value = T::nearest(0.5) * (m + behind);
    if T::is_negative(x) { -value } else { value }
}

/// `netket.nn.log_cosh`.
#[inline(always)]
pub(super) fn log_cosh<T: Real, const FUSED: bool>(x: T) -> T {
    let x = T::abs(x);
    x + T::softplus::<FUSED>(-(x + x)) - T::nearest(std::f64::consts::LN_2)
}

/// `jax.nn.elu`.
#[inline(always)]
pub(super) fn elu<T: Real, const FUSED: bool>(x: T) -> T {
    T::relu(x) + T::exp_m1::<FUSED>(-T::relu(-x))
}

/// `jax.nn.selu`: Klambauer, Unterthiner, Mayr, Hochreiter, arXiv:1706.02515.
#[inline(always)]
pub(super) fn selu<T: Real, const FUSED: bool>(x: T) -> T {
    let (scale, alpha) = (T::nearest(SELU_SCALE), T::nearest(SELU_ALPHA));
    scale * (T::relu(x) + alpha * T::exp_m1::<FUSED>(-T::relu(-x)))
}

const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

#[cfg(test)]
mod tests {
    use super::super::Instruction;
    use super::*;
    use crate::network::bounds::{OF_FUNCTIONS, slope};
    use crate::numbers::Functions;

    /// What a function is, in double and in single precision, and what it has to be.
    type Case = (Instruction, fn(f64) -> f64, fn(f32) -> f32, fn(f64) -> f64);

    const CASES: [Case; 9] = [
        (Instruction::Gelu, gelu::<f64, true>, gelu::<f32, false>, |x| {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
        }),
        (
            Instruction::Silu,
            |x| x * f64::sigmoid::<true>(x),
            |x| x * f32::sigmoid::<false>(x),
            |x| x / (1.0 + (-x).exp()),
        ),
        (Instruction::Sigmoid, f64::sigmoid::<true>, f32::sigmoid::<false>, |x| 1.0 / (1.0 + (-x).exp())),
        (Instruction::Tanh, <f64 as Functions>::tanh::<true>, <f32 as Functions>::tanh::<false>, f64::tanh),
        (Instruction::Relu, Functions::relu, Functions::relu, |x| x.max(0.0)),
        (Instruction::Elu, elu::<f64, true>, elu::<f32, false>, |x| if x > 0.0 { x } else { x.exp_m1() }),
        (Instruction::Selu, selu::<f64, true>, selu::<f32, false>, |x| {
            SELU_SCALE * if x > 0.0 { x } else { SELU_ALPHA * x.exp_m1() }
        }),
        (Instruction::Softplus, f64::softplus::<true>, f32::softplus::<false>, |x| x.exp().ln_1p()),
        (Instruction::LogCosh, log_cosh::<f64, true>, log_cosh::<f32, false>, |x| x.cosh().ln()),
    ];

    #[test]
    fn functions_are_those_of_their_definitions() {
        for (name, double, single, expected) in CASES {
            for x in (-300..=300).map(|x| f64::from(x) / 20.0) {
                let size = expected(x).abs().max(1.0);
                let (double, single) = (double(x), f64::from(single(x as f32)));
                assert!((double - expected(x)).abs() < 1e-15 * size, "{name:?} {x}: {double}");
                // What rounds x is an error of its own.
                let rounded = expected(f64::from(x as f32));
                assert!((single - rounded).abs() < OF_FUNCTIONS * size, "{name:?} {x}: {single}");
            }
            let steepness = |x: f64| (expected(x + 1e-6) - expected(x - 1e-6)).abs() / 2e-6;
            let steepest = (-3000..=3000).map(|x| steepness(f64::from(x) / 200.0)).fold(0.0, f64::max);
            let bound = slope(name).expect("it has one");
            assert!(steepest < bound + 1e-8 && steepest > 0.99 * bound, "{name:?}: {steepest}");
        }
    }

    #[test]
    fn hyperbolic_functions_are_exact_to_their_last_places() {
        for x in [0.0, 1e-300, -1e-9, 0.3, -0.5, 2.0, -30.0, 700.0, 1e4, f64::NEG_INFINITY] {
            let found = [sinh::<f64, true>(x), sinh::<f64, false>(x), cosh::<f64, true>(x), cosh::<f64, false>(x)];
            for (found, expected) in found.into_iter().zip([x.sinh(), x.sinh(), x.cosh(), x.cosh()]) {
                let is_close = (found - expected).abs() <= 2e-15 * expected.abs();
                assert!(found == expected || is_close, "{found} instead of {expected} at {x}");
            }
        }
        assert!((f64::from(sinh::<f32, true>(88.5)) / 88.5_f64.sinh() - 1.0).abs() < 1e-5);
        assert!(cosh::<f32, false>(f32::NAN).is_nan());
    }
}
