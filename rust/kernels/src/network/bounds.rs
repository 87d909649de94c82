//! Dense layers in single precision, and by how much they may be off.
//!
//! All norms are Euclidean. A sum whose terms are rounded n times each is off by no more than γ(n) times the sum of
//! their moduli: Higham, Accuracy and Stability of Numerical Algorithms, section 3.1.

use super::operations::{Contract, Instruction, Operation};
use super::{Lanes, Program};
use crate::numbers::{Real, vectorized};
use std::ops::Range;

/// The unit roundoff of single precision.
const ROUNDING: f64 = f32::EPSILON as f64 / 2.0;

/// A function in single precision is off by no more than so much of itself, or of 1 if that is more.
pub(super) const OF_FUNCTIONS: f64 = 1e-6;

/// A bound is computed with errors of its own, of less than so much.
const SLACK: f64 = 1.01;

/// A program in single precision that tells by how much it is off.
#[derive(Debug)]
pub struct Rounded {
    program: Program<f32>,
    bounds: Vec<Bound>,
}

/// How a layer spreads the errors of its inputs, and adds others.
#[derive(Debug)]
struct Bound {
    /// Which operation it is, and the places of its inputs.
    operation: usize,
    inputs: Range<usize>,
    /// How steep the function before it is at most, if there is one.
    slope: Option<f64>,
    /// How much the matrix lengthens a vector at most.
    norm: f64,
    /// The error of the product with a vector of length 1, and that of the bias.
    of_product: f64,
    of_bias: f64,
}

/// The greatest modulus of the derivative of a function, rounded up; None of what isn't known.
pub(super) fn slope(function: Instruction) -> Option<f64> {
    use Instruction as I;
    Some(match function {
        I::Gelu => 1.13,
        I::Silu => 1.1,
        I::Sigmoid => 0.25,
        I::Tanh | I::Relu | I::Elu | I::Softplus | I::LogCosh => 1.0,
        I::Selu => 1.7582,
        _ => return None,
    })
}

impl Rounded {
    /// A program whose words and tables these are; None if it is more than dense layers with functions in between.
    pub(crate) fn new<T: Real>(program: &Program<T>, words: &[i32], tables: &[T]) -> Option<Self> {
        let bounds = layers(program)?.into_iter().map(bound).collect();
        let tables: Vec<_> = tables.iter().map(|&number| f32::nearest(number.into())).collect();
        Some(Self { program: Program::new(words, &tables).ok()?, bounds })
    }

    /// How many products of two numbers the bounds of a program take; None if it has none.
    pub(crate) fn work<T: Real>(program: &Program<T>) -> Option<usize> {
        Some(layers(program)?.iter().map(|layer| layer.contract.work() * layer.outputs).sum())
    }

    /// As [`Lanes::evaluate`]. The errors of the rows of inputs become those of their results.
    pub(crate) fn evaluate(&self, lanes: &mut Lanes<f32>, inputs: &[f32], results: &mut [f32], errors: &mut [f64]) {
        lanes.observe(&self.program, inputs, results, &mut |seen| {
            let is_next = |bound: &&Bound| seen.operation == Some(bound.operation);
            if let Some(bound) = self.bounds.iter().find(is_next) {
                bound.spread(
                    seen.width,
                    &seen.numbers[bound.inputs.start * seen.width..],
                    &mut errors[seen.rows.clone()],
                );
            }
        });
    }

    #[cfg(test)]
    pub(crate) fn add_error(&mut self, error: f64) {
        if let Some(bound) = self.bounds.last_mut() {
            bound.of_bias += error;
        }
    }
}

/// The error of a vector that is rounded.
pub(crate) fn of_rounding<T: Real>(x: &[T]) -> f64 {
    SLACK * ROUNDING * norm(x)
}

/// A dense layer of a program.
struct DenseLayer<'p, T> {
    operation: usize,
    contract: &'p Contract<T>,
    inputs: Range<usize>,
    outputs: usize,
    function: Option<Instruction>,
}

/// The layers that a program consists of, with functions in between; None if there is something else.
fn layers<T: Real>(program: &Program<T>) -> Option<Vec<DenseLayer<'_, T>>> {
    let (mut function, mut layers) = (None, Vec::new());
    let mut numbers = program.input_places();
    for (operation, one) in program.operations().iter().enumerate() {
        match one {
            Operation::Map(map) if function.is_none() => {
                let (instruction, inputs, outs) = map.function().filter(|&(one, ..)| slope(one).is_some())?;
                if inputs != numbers {
                    return None;
                }
                (function, numbers) = (Some(instruction), outs);
            }
            Operation::Contract(contract) => {
                let [inputs, outs] = contract.dense().filter(|[inputs, _]| *inputs == numbers)?;
                layers.push(DenseLayer { operation, contract, inputs, outputs: outs.len(), function: function.take() });
                numbers = outs;
            }
            _ => return None,
        }
    }
    let is_whole = function.is_none() && numbers.len() == 1 && program.result_places() == [numbers.start];
    is_whole.then_some(layers)
}

fn bound<T: Real>(layer: DenseLayer<T>) -> Bound {
    let DenseLayer { operation, contract, inputs, outputs, function } = layer;
    let (matrix, bias) = contract.matrix();
    let frobenius = norm(&matrix);
    // One more for what rounds the numbers themselves, and one where a product is rounded before it is added.
    let rounding = gamma(contract.roundings() + 2);
    Bound {
        operation,
        inputs,
        slope: function.and_then(slope),
        norm: SLACK * spectral_norm(&matrix, outputs, frobenius),
        of_product: SLACK * rounding * frobenius,
        // What underflows is lost as well.
        of_bias: SLACK * rounding * norm(bias) + matrix.len() as f64 * f64::from(f32::MIN_POSITIVE),
    }
}

impl Bound {
    /// Makes the errors of rows behind the layer of those before it; the numbers are its inputs, `width` for each.
    fn spread(&self, width: usize, numbers: &[f32], errors: &mut [f64]) {
        // A tile has a multiple of eight lanes, or on few processors fewer.
        if width.is_multiple_of(8) {
            self.spread_lanes::<8>(width, numbers, errors);
        } else {
            self.spread_lanes::<1>(width, numbers, errors);
        }
    }

    fn spread_lanes<const LANES: usize>(&self, width: usize, numbers: &[f32], errors: &mut [f64]) {
        let of_function = OF_FUNCTIONS * (self.inputs.len() as f64).sqrt();
        for (lanes, errors) in errors.chunks_mut(LANES).enumerate() {
            let numbers = &numbers[lanes * LANES..];
            let squares = vectorized(
                #[inline(always)]
                || {
                    let mut squares = [0.0_f32; LANES];
                    for input in 0..self.inputs.len() {
                        let row: &[f32; LANES] = numbers[input * width..][..LANES].try_into().expect("as many");
                        for (square, x) in squares.iter_mut().zip(row) {
                            *square += x * x;
                        }
                    }
                    squares
                },
            );
            for (error, square) in errors.iter_mut().zip(squares) {
                let length = SLACK * f64::from(square).sqrt();
                if let Some(slope) = self.slope {
                    *error = slope * *error + of_function + OF_FUNCTIONS * length;
                }
                *error = self.norm * *error + self.of_product * length + self.of_bias;
            }
        }
    }
}

fn gamma(count: usize) -> f64 {
    let all = count as f64 * ROUNDING;
    // Behind that many products nothing is known.
    if all < 1.0 { all / (1.0 - all) } else { f64::INFINITY }
}

fn norm<T: Real>(x: &[T]) -> f64 {
    let squares = vectorized(
        #[inline(always)]
        || {
            let mut squares = [0.0; 8];
            let (rows, last) = x.as_chunks::<8>();
            for row in rows {
                for (square, &x) in squares.iter_mut().zip(row) {
                    let x: f64 = x.into();
                    *square += x * x;
                }
            }
            for (square, &x) in squares.iter_mut().zip(last) {
                let x: f64 = x.into();
                *square += x * x;
            }
            squares
        },
    );
    squares.iter().sum::<f64>().sqrt()
}

/// A bound of a matrix's greatest singular value σ: σ⁴ is one of the terms of tr (WᵀW)².
fn spectral_norm<T: Real>(matrix: &[T], columns: usize, frobenius: f64) -> f64 {
    let mut squares = 0.0;
    let mut products = vec![0.0_f64; columns];
    // One row of WᵀW at a time: all would take more memory than the network.
    for column in 0..columns {
        products.fill(0.0);
        vectorized(
            #[inline(always)]
            || {
                for row in matrix.chunks_exact(columns) {
                    let weight: f64 = row[column].into();
                    for (product, &other) in products.iter_mut().zip(row) {
                        *product += weight * Into::<f64>::into(other);
                    }
                }
            },
        );
        squares += norm(&products).powi(2);
    }
    squares.powf(0.25).min(frobenius)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{dense_layers, numbers};
    use super::*;
    use crate::numbers::each_level;
    use proptest::prelude::*;

    const FUNCTIONS: [&str; 9] = ["gelu", "silu", "logistic", "tanh", "relu", "elu", "selu", "softplus", "log_cosh"];

    proptest! {
        /// No number is off by more than its bound, and the bound isn't far away.
        #[test]
        fn errors_are_within_their_bounds(
            seed in 0_usize..1000, scale in 0.01..30.0_f64,
            width in 1_usize..150, hidden in prop::collection::vec(1_usize..150, 0..3),
            function in prop::sample::select(FUNCTIONS.to_vec())
        ) {
            let widths: Vec<_> = [width].into_iter().chain(hidden).chain([1]).collect();
            let (words, tables) = dense_layers(function, &widths);
            let program = Program::new(&words, &tables).expect("a program");
            let rounded = Rounded::new(&program, &words, &tables).expect("dense layers");
            let inputs: Vec<f64> = numbers(seed, 9 * width).into_iter().map(|x| scale * x).collect();
            let single: Vec<_> = inputs.iter().map(|&x| x as f32).collect();
            for _ in each_level() {
                let (mut exact, mut found) = ([0.0; 9], [0.0; 9]);
                Lanes::default().evaluate(&program, &inputs, &mut exact);
                let mut errors: Vec<_> = inputs.chunks(width).map(of_rounding).collect();
                rounded.evaluate(&mut Lanes::default(), &single, &mut found, &mut errors);
                for ((exact, found), error) in exact.into_iter().zip(found).zip(errors) {
                    let off = (exact - f64::from(found)).abs();
                    prop_assert!(off <= error, "{off} is more than {error}");
                    prop_assert!(error < 0.02 * scale.max(1.0) * 50.0_f64.powi(widths.len() as i32 - 2), "{error}");
                }
            }
        }
    }

    #[test]
    fn norms_of_matrices() {
        // Singular values 3 and 1, with a column of zeros.
        let (a, b) = (2.0_f64.sqrt() * 1.5, 0.5_f64.sqrt());
        let matrix = [a, -b, 0.0, a, b, 0.0];
        let found = spectral_norm(&matrix, 3, norm(&matrix));
        assert!((found - 82.0_f64.powf(0.25)).abs() < 1e-14, "{found}");
        assert!((norm(&matrix) - 10.0_f64.sqrt()).abs() < 1e-14);
        assert_eq!(gamma(1 << 25), f64::INFINITY);
    }
}
