//! Networks of dense layers, from the sums of the first one to ln ψ, all of real numbers.

mod activation;
mod bounds;
mod products;

pub use activation::Activation;

use crate::Error;
use crate::error::check;
use crate::numbers::{CACHE_LINE, MULTIPLE, Real, dispatch};
use aligned_vec::AVec;
use bounds::Bound;
use pulp::{Simd, WithSimd};

/// What comes behind the sums of a [`super::FirstLayer`]: functions of single numbers and, after each, products with a
/// matrix, the last of which gives one number.
#[derive(Debug)]
pub struct Layers<T> {
    stages: Vec<Stage<T>>,
    /// How many numbers there are between them, and the most of one place.
    numbers: usize,
    widest: usize,
}

/// A function, and a product: `y = bias + f(x) matrix`.
#[derive(Debug)]
struct Stage<T> {
    function: Activation,
    depth: usize,
    /// With columns of zeros up to a multiple of [`MULTIPLE`], but for the last one.
    matrix: AVec<T>,
    bias: AVec<T>,
    /// What it makes of errors, if it is rounded.
    bound: Option<Bound>,
}

/// So many rows are evaluated layer by layer, in memory that is near.
const BLOCK: usize = 4 * products::TOGETHER;

#[cfg(test)]
impl Layers<f32> {
    /// Makes what is [`Layers::rounded`] wrong by so much, as its bounds say then.
    pub(crate) fn be_off_by(&mut self, error: f64) {
        if let Some(Stage { bias, bound: Some(bound), .. }) = self.stages.last_mut() {
            bias[0] += error as f32;
            bound.add(1.01 * error);
        }
    }
}

impl<T: Real> Layers<T> {
    /// Of a function for each matrix `(depth, columns)`, with the depth of the next one, and bias `(columns,)`.
    ///
    /// The first depth is `width`, and at last there is one column.
    pub fn new<'a>(
        width: usize,
        stages: impl IntoIterator<Item = (Activation, &'a [T], &'a [T])>,
    ) -> Result<Self, Error> {
        let mut depth = width;
        let mut found = Self { stages: Vec::new(), numbers: 0, widest: width };
        let mut stages = stages.into_iter().peekable();
        while let Some((function, matrix, bias)) = stages.next() {
            let columns = bias.len();
            check(depth > 0 && columns > 0 && matrix.len() == depth * columns, || {
                format!("a layer of {depth} numbers has a matrix of {} and a bias of {columns}", matrix.len())
            })?;
            let is_last = stages.peek().is_none();
            let padded = if is_last { columns } else { columns.next_multiple_of(MULTIPLE) };
            let rows = matrix.chunks_exact(columns).chain([bias]);
            let fill = std::iter::repeat_n(T::default(), padded - columns);
            let mut matrix: AVec<T> =
                AVec::from_iter(CACHE_LINE, rows.flat_map(|row| row.iter().copied().chain(fill.clone())));
            let bias = AVec::from_slice(CACHE_LINE, &matrix[depth * padded..]);
            matrix.truncate(depth * padded);
            found.numbers += padded;
            found.widest = found.widest.max(padded);
            found.stages.push(Stage { function, depth, matrix, bias, bound: None });
            depth = columns;
        }
        check(found.stages.is_empty() || depth == 1, || format!("the last layer gives {depth} numbers, not one"))?;
        Ok(found)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// How many products of two numbers a configuration takes.
    #[must_use]
    pub fn work(&self) -> usize {
        self.stages.iter().map(|stage| stage.matrix.len()).sum()
    }

    /// The same in single precision, which tell by how much they are off at most.
    #[must_use]
    pub fn rounded(&self) -> Layers<f32> {
        let round = |numbers: &[T]| AVec::from_iter(CACHE_LINE, numbers.iter().map(|&x| f32::nearest(x.into())));
        let stages = self.stages.iter().map(|stage| {
            let Stage { function, depth, ref matrix, ref bias, .. } = *stage;
            Stage { function, depth, matrix: round(matrix), bias: round(bias), bound: Some(Bound::of(stage)) }
        });
        Layers { stages: stages.collect(), numbers: self.numbers, widest: self.widest }
    }

    /// How many products of two numbers [`Layers::rounded`] takes for its bounds.
    #[must_use]
    pub fn work_of_bounds(&self) -> usize {
        self.stages.iter().map(|stage| stage.matrix.len() * stage.bias.len()).sum()
    }
}

/// Memory to evaluate [`Layers`], and the rows that it is done for.
#[derive(Debug)]
pub struct Rows<T> {
    /// The first layer's sums, as many as there are rows. They are overwritten.
    pub sums: Vec<T>,
    /// ln ψ of each.
    pub log_psi: Vec<T>,
    /// By how much each is off at most, if the layers are rounded: then the errors of the sums have to be here before.
    pub errors: Vec<f64>,
    between: AVec<T>,
    turned: AVec<T>,
}

impl<T: Real> Default for Rows<T> {
    fn default() -> Self {
        let none = || AVec::new(CACHE_LINE);
        Self { sums: Vec::new(), log_psi: Vec::new(), errors: Vec::new(), between: none(), turned: none() }
    }
}

impl Rows<f32> {
    /// Adds a row for [`Layers::rounded`].
    pub fn push_rounded<T: Real>(&mut self, sums: &[T]) {
        self.sums.extend(sums.iter().map(|&sum| f32::nearest(sum.into())));
        self.errors.push(bounds::of_rounding(sums));
    }
}

impl<T: Real> Rows<T> {
    /// Takes all rows away.
    pub fn clear(&mut self) {
        self.sums.clear();
        self.errors.clear();
    }

    /// Evaluates the layers for all sums.
    pub fn evaluate(&mut self, layers: &Layers<T>) {
        if let Some(first) = layers.stages.first() {
            let Self { sums, log_psi, errors, between, turned } = self;
            log_psi.resize(sums.len() / first.depth, T::default());
            between.resize(BLOCK * layers.numbers, T::default());
            turned.resize(products::TOGETHER * layers.widest, T::default());
            let width = first.depth;
            dispatch(Evaluate { layers, width, sums, log_psi, errors, between, turned });
        }
    }
}

/// What [`Rows::evaluate`] does.
struct Evaluate<'r, T> {
    layers: &'r Layers<T>,
    width: usize,
    sums: &'r mut [T],
    log_psi: &'r mut [T],
    errors: &'r mut [f64],
    between: &'r mut [T],
    turned: &'r mut [T],
}

impl<T: Real> WithSimd for Evaluate<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { layers, width, sums, log_psi, errors, between, turned } = self;
        let mut errors = errors.chunks_mut(BLOCK);
        for (sums, log_psi) in sums.chunks_mut(BLOCK * width).zip(log_psi.chunks_mut(BLOCK)) {
            let rows = log_psi.len();
            let (mut x, mut stride) = (&mut *sums, width);
            let mut memory = &mut *between;
            let errors = errors.next().unwrap_or_default();
            for Stage { function, matrix, bias, depth, bound } in &layers.stages {
                function.apply(simd, x);
                if let Some(bound) = bound {
                    bound.spread(stride, x, errors);
                }
                if bias.len() == 1 {
                    // Only the last one isn't padded.
                    products::sum_up(stride, x, (&matrix[..*depth], bias[0]), log_psi);
                    break;
                }
                let (y, rest) = memory.split_at_mut(rows * bias.len());
                products::multiply(simd, stride, x, (matrix, bias), turned, y);
                (x, stride, memory) = (y, bias.len(), rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::each_level;
    use proptest::prelude::*;

    pub(super) fn numbers(seed: usize, len: usize) -> Vec<f64> {
        (0..len).map(|i| ((seed + 1) as f64 * (i + 1) as f64).sin()).collect()
    }

    /// A layer of these functions and random numbers.
    pub(super) fn stages(functions: &[Activation], widths: &[usize]) -> Vec<(Activation, Vec<f64>, Vec<f64>)> {
        let of_one = |(place, &function): (usize, &Activation)| {
            let (depth, columns) = (widths[place], widths[place + 1]);
            (function, numbers(place, depth * columns), numbers(place + 9, columns))
        };
        functions.iter().enumerate().map(of_one).collect()
    }

    struct Apply<'a>(Activation, &'a mut [f64]);

    impl WithSimd for Apply<'_> {
        type Output = ();

        fn with_simd<S: Simd>(self, simd: S) {
            self.0.apply(simd, self.1);
        }
    }

    /// The readable twin.
    fn log_psi(stages: &[(Activation, Vec<f64>, Vec<f64>)], sums: &[f64]) -> f64 {
        let mut x = sums.to_vec();
        for (function, matrix, bias) in stages {
            dispatch(Apply(*function, &mut x));
            let mut y = bias.clone();
            for (x, row) in x.iter().zip(matrix.chunks(bias.len())) {
                y.iter_mut().zip(row).for_each(|(y, weight)| *y += x * weight);
            }
            x = y;
        }
        x[0]
    }

    fn evaluate(layers: &Layers<f64>, sums: &[f64]) -> Vec<f64> {
        let mut rows = Rows { sums: sums.to_vec(), ..Rows::default() };
        rows.evaluate(layers);
        rows.log_psi
    }

    proptest! {
        #[test]
        fn networks_of_any_width(
            rows in 1_usize..80, width in 1_usize..70, hidden in prop::collection::vec(1_usize..70, 0..3)
        ) {
            let functions = &[Activation::Tanh, Activation::Gelu, Activation::Relu][..=hidden.len()];
            let widths: Vec<_> = [width].into_iter().chain(hidden).chain([1]).collect();
            let stages = stages(functions, &widths);
            let layers = Layers::new(width, stages.iter().map(|(f, matrix, bias)| (*f, &matrix[..], &bias[..]))).expect("layers");
            let sums: Vec<f64> = (0..rows * width).map(|i| 2.0 * ((i * i) as f64).cos()).collect();
            for _ in each_level() {
                let found = evaluate(&layers, &sums);
                for (place, sums) in sums.chunks(width).enumerate() {
                    let expected = log_psi(&stages, sums);
                    prop_assert!((found[place] - expected).abs() < 1e-11, "{} instead of {expected}", found[place]);
                    // A row is the same to the bit beside any others.
                    prop_assert_eq!(evaluate(&layers, sums), &found[place..=place]);
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |stages: &[(Activation, &[f64], &[f64])]| {
            let error = Layers::new(2, stages.iter().copied()).expect_err("wrong tables").to_string();
            error.trim_start_matches("the operator's tables are wrong: ").to_string()
        };
        let tanh = Activation::Tanh;
        assert_eq!(message(&[(tanh, &[0.0; 3], &[0.0])]), "a layer of 2 numbers has a matrix of 3 and a bias of 1");
        assert_eq!(message(&[(tanh, &[0.0; 4], &[0.0; 2])]), "the last layer gives 2 numbers, not one");
    }
}
