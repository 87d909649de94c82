//! The functions between a network's layers.

use crate::Error;
use crate::numbers::Real;
use pulp::Simd;

/// A function of one number, as JAX and NetKet define it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `jax.nn.gelu`, by tanh.
    Gelu,
    /// `jax.nn.silu`, x / (1 + e^-x).
    Silu,
    /// `jax.nn.sigmoid`, 1 / (1 + e^-x).
    Sigmoid,
    /// tanh x.
    Tanh,
    /// `jax.nn.relu`, the greater one of x and 0.
    Relu,
    /// `jax.nn.elu`, x or, if that is negative, e^x - 1.
    Elu,
    /// `jax.nn.selu`.
    Selu,
    /// `jax.nn.softplus`, ln (1 + e^x).
    Softplus,
    /// `netket.nn.log_cosh`.
    LogCosh,
}

/// A function in single precision is off by no more than so much of itself, or of 1 if that is more.
pub(super) const ROUNDING: f64 = 1e-6;

impl Activation {
    /// All there are.
    #[cfg(test)]
    pub(super) const ALL: [Self; 9] = [
        Self::Gelu,
        Self::Silu,
        Self::Sigmoid,
        Self::Tanh,
        Self::Relu,
        Self::Elu,
        Self::Selu,
        Self::Softplus,
        Self::LogCosh,
    ];

    /// The greatest modulus of its derivative, rounded up.
    pub(super) fn slope(self) -> f64 {
        match self {
            Self::Gelu => 1.13,
            Self::Silu => 1.1,
            Self::Sigmoid => 0.25,
            Self::Tanh | Self::Relu | Self::Elu | Self::Softplus | Self::LogCosh => 1.0,
            Self::Selu => SELU_SCALE * SELU_ALPHA,
        }
    }

    /// The function with a name.
    pub fn named(name: &str) -> Result<Self, Error> {
        Ok(match name {
            "gelu" => Self::Gelu,
            "silu" => Self::Silu,
            "sigmoid" => Self::Sigmoid,
            "tanh" => Self::Tanh,
            "relu" => Self::Relu,
            "elu" => Self::Elu,
            "selu" => Self::Selu,
            "softplus" => Self::Softplus,
            "log_cosh" => Self::LogCosh,
            _ => return Err(Error::Tables(format!("there is no activation function '{name}'"))),
        })
    }

    /// Puts f(x) in the place of each x.
    #[inline(always)]
    pub(crate) fn apply<T: Real, S: Simd>(self, _: S, numbers: &mut [T]) {
        // Processors with such vectors have the instructions.
        const LONG: usize = 32;
        if size_of::<S::f64s>() >= LONG {
            self.apply_by::<T, true>(numbers);
        } else {
            self.apply_by::<T, false>(numbers);
        }
    }

    #[inline(always)]
    fn apply_by<T: Real, const FUSED: bool>(self, numbers: &mut [T]) {
        let sigmoid = T::sigmoid::<FUSED>;
        let constant = T::nearest;
        match self {
            Self::Gelu => {
                // x (1 + tanh y) / 2 = x sigmoid 2y
                let (linear, cubic) = (constant(GELU), constant(GELU * 0.044_715));
                replace(
                    numbers,
                    #[inline(always)]
                    |x| x * sigmoid(x * (linear + cubic * (x * x))),
                );
            }
            Self::Silu => replace(
                numbers,
                #[inline(always)]
                |x| x * sigmoid(x),
            ),
            Self::Sigmoid => replace(numbers, sigmoid),
            Self::Tanh => {
                let two = constant(2.0);
                replace(
                    numbers,
                    #[inline(always)]
                    |x| two * sigmoid(two * x) - T::ONE,
                );
            }
            Self::Relu => replace(numbers, T::relu),
            Self::Elu => replace(numbers, elu),
            Self::Selu => {
                let (scale, alpha) = (constant(SELU_SCALE), constant(SELU_ALPHA));
                replace(
                    numbers,
                    #[inline(always)]
                    |x| {
                        let positive = T::relu(x);
                        scale * (positive + alpha * elu(x - positive))
                    },
                );
            }
            Self::Softplus => replace(numbers, T::softplus),
            Self::LogCosh => {
                let (two, ln_2) = (constant(2.0), constant(std::f64::consts::LN_2));
                replace(
                    numbers,
                    #[inline(always)]
                    |x| x + T::softplus(-two * x) - ln_2,
                );
            }
        }
    }
}

/// 2 √(2/π).
const GELU: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::SQRT_2;

/// Klambauer, Unterthiner, Mayr, Hochreiter, arXiv:1706.02515.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

#[inline(always)]
fn elu<T: Real>(x: T) -> T {
    let positive = T::relu(x);
    positive + (T::exp(x - positive) - T::ONE)
}

#[inline(always)]
fn replace<T: Real>(numbers: &mut [T], function: impl Fn(T) -> T) {
    for number in numbers {
        *number = function(*number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_those_of_their_definitions() {
        let gelu =
            |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh());
        let elu = |x: f64| if x > 0.0 { x } else { x.exp_m1() };
        let all: [(&str, &dyn Fn(f64) -> f64); 9] = [
            ("gelu", &gelu),
            ("silu", &|x| x / (1.0 + (-x).exp())),
            ("sigmoid", &|x| 1.0 / (1.0 + (-x).exp())),
            ("tanh", &f64::tanh),
            ("relu", &|x| x.max(0.0)),
            ("elu", &elu),
            ("selu", &|x| SELU_SCALE * if x > 0.0 { x } else { SELU_ALPHA * elu(x) }),
            ("softplus", &|x| x.exp().ln_1p()),
            ("log_cosh", &|x| x.cosh().ln()),
        ];
        for (name, expected) in all {
            let activation = Activation::named(name).expect("a function");
            let numbers: Vec<f64> = (-300..=300).map(|x| f64::from(x) / 20.0).collect();
            let (mut double, mut single) = (numbers.clone(), numbers.iter().map(|&x| x as f32).collect::<Vec<_>>());
            activation.apply_by::<_, true>(&mut double);
            activation.apply_by::<_, false>(&mut single);
            for ((x, found), single) in numbers.into_iter().zip(double).zip(single) {
                let size = expected(x).abs().max(1.0);
                assert!((found - expected(x)).abs() < 1e-15 * size, "{name} {x}: {found}");
                assert!((f64::from(single) - expected(x)).abs() < ROUNDING * size, "{name} {x}: {single}");
            }
            let slope = |x: f64| (expected(x + 1e-6) - expected(x - 1e-6)).abs() / 2e-6;
            let steepest = (-3000..=3000).map(|x| slope(f64::from(x) / 200.0)).fold(0.0, f64::max);
            let bound = activation.slope();
            assert!(steepest < bound + 1e-8 && steepest > 0.99 * bound, "{name}: {steepest}");
        }
        let message = Activation::named("sine").expect_err("unknown").to_string();
        assert_eq!(message, "the operator's tables are wrong: there is no activation function 'sine'");
    }
}
