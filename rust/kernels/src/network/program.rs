//! Programs, and how they are evaluated.

use super::operations::{Map, Operation};
use super::words::{Words, wrong};
use crate::Error;
use crate::error::check;
use crate::numbers::{CACHE_LINE, Real, dispatch_for};
use aligned_vec::AVec;
use pulp::{Simd, WithSimd};
use std::marker::PhantomData;
use std::ops::Range;
use std::time::Instant;

/// What a network makes of some numbers of a configuration.
#[derive(Debug)]
pub struct Program<T> {
    inputs: usize,
    /// The first place of the inputs, which are one behind the other.
    first: usize,
    results: Vec<usize>,
    places: usize,
    operations: Vec<Operation<T>>,
}

impl<T: Real> Program<T> {
    /// Reads a program as `python/ferroket/network/program.py` writes it: the number of inputs and the first place of these;
    /// the places of the results, after their number; how many places there are, how many numbers the tables have and how many
    /// operations there are; and these.
    pub fn new(words: &[i32], tables: &[T]) -> Result<Self, Error> {
        let mut words = Words::new(words);
        let (inputs, first, count) = (words.number()?, words.number()?, words.number()?);
        let results = (0..count).map(|_| words.number()).collect::<Result<Vec<_>, _>>()?;
        (words.places, words.numbers) = (words.number()?, words.number()?);
        let places = words.places;
        check(words.numbers == tables.len(), || {
            format!("the program of a network takes {} numbers, but its tables have {}", words.numbers, tables.len())
        })?;
        if first.saturating_add(inputs) > places || results.iter().any(|&place| place >= places) {
            return Err(wrong(&format!("it has {places} places, but names others")));
        }
        let count = words.number()?;
        let operations = (0..count).map(|_| Operation::read(&mut words, tables)).collect::<Result<_, _>>()?;
        if !words.is_empty() {
            return Err(wrong("it goes on behind its end"));
        }
        Ok(Self { inputs, first, results, places, operations })
    }

    /// How many numbers of a configuration it takes.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// How many numbers it gives for each.
    #[must_use]
    pub fn results(&self) -> usize {
        self.results.len()
    }

    pub(super) fn operations(&self) -> &[Operation<T>] {
        &self.operations
    }

    pub(super) fn input_places(&self) -> Range<usize> {
        self.first..self.first + self.inputs
    }

    pub(super) fn result_places(&self) -> &[usize] {
        &self.results
    }

    /// How many products of two numbers a configuration takes, where a function counts as some of them.
    #[must_use]
    pub fn work(&self) -> usize {
        self.operations.iter().map(Operation::work).sum()
    }
}

/// Memory to evaluate programs.
#[derive(Debug)]
pub struct Lanes<T> {
    /// Numbers of all places, and then registers.
    numbers: AVec<T>,
}

impl<T: Real> Default for Lanes<T> {
    fn default() -> Self {
        Self { numbers: AVec::new(CACHE_LINE) }
    }
}

impl<T: Real> Lanes<T> {
    /// How many configurations the shortest vector has: fewer take as long.
    #[must_use]
    pub fn of_vector() -> usize {
        struct Count<T>(PhantomData<T>);

        impl<T: Real> WithSimd for Count<T> {
            type Output = usize;

            #[inline(always)]
            fn with_simd<S: Simd>(self, _: S) -> usize {
                size_of::<T::Vector<S>>() / size_of::<T>()
            }
        }

        dispatch_for(0, Count(PhantomData::<T>))
    }

    /// What a program makes of inputs `(n, inputs)`: results `(n, results)`. Those of a configuration are the same to the bit
    /// beside whichever others it is.
    ///
    /// # Panics
    ///
    /// If these aren't as many rows.
    pub fn evaluate(&mut self, program: &Program<T>, inputs: &[T], results: &mut [T]) {
        self.observe(program, inputs, results, &mut |_| {});
    }

    /// As [`Lanes::evaluate`], for so many rows, whose results go to several arrays: each has some of every row.
    ///
    /// # Panics
    ///
    /// If these aren't as many rows.
    pub fn evaluate_into(&mut self, program: &Program<T>, inputs: &[T], rows: usize, results: &mut [&mut [T]]) {
        let numbers: usize = results.iter().map(|array| array.len()).sum();
        assert!(inputs.len() == rows * program.inputs && numbers == rows * program.results());
        let bytes = rows * size_of::<T>();
        dispatch_for(bytes, Evaluate { program, lanes: self, inputs, rows, results, observer: &mut |_| {} });
    }

    /// As [`Lanes::evaluate`], and somebody sees what there is before and behind each operation.
    pub(super) fn observe(
        &mut self,
        program: &Program<T>,
        inputs: &[T],
        results: &mut [T],
        observer: &mut dyn FnMut(&Seen<T>),
    ) {
        assert_eq!(inputs.len() * program.results(), results.len() * program.inputs);
        let rows = results.len() / program.results().max(1);
        dispatch_for(
            rows * size_of::<T>(),
            Evaluate { program, lanes: self, inputs, rows, results: &mut [results], observer },
        );
    }

    /// As [`Lanes::evaluate`]; how many seconds each operation took.
    ///
    /// # Panics
    ///
    /// As [`Lanes::evaluate`].
    pub fn profile(&mut self, program: &Program<T>, inputs: &[T], results: &mut [T]) -> Vec<f64> {
        let mut seconds = vec![0.0; program.operations.len()];
        let mut last = Instant::now();
        self.observe(program, inputs, results, &mut |seen| {
            let now = Instant::now();
            if let Some(operation) = seen.operation {
                seconds[operation] += (now - last).as_secs_f64();
            }
            last = now;
        });
        seconds
    }
}

/// A tile at some time.
pub(super) struct Seen<'m, T> {
    /// The rows of the inputs.
    pub(super) rows: Range<usize>,
    /// The operation that has ended, if any has.
    pub(super) operation: Option<usize>,
    /// So many for each place.
    pub(super) numbers: &'m [T],
    pub(super) width: usize,
}

/// What [`Lanes::evaluate`] does.
struct Evaluate<'r, 'a, T> {
    program: &'r Program<T>,
    lanes: &'r mut Lanes<T>,
    inputs: &'r [T],
    rows: usize,
    results: &'r mut [&'a mut [T]],
    observer: &'r mut dyn FnMut(&Seen<T>),
}

/// The most vectors of configurations side by side.
const VECTORS: usize = 2;

/// So many inputs of each lane are read before those of the next one: a line of the cache.
const OF_LINE: usize = 8;

/// So many results are written for each lane before those of the next one, so that they are read from the nearest cache.
const AT_ONCE: usize = 64;

impl<T: Real> WithSimd for Evaluate<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { program, lanes, inputs, rows, results, observer } = self;
        let of_vector = size_of::<T::Vector<S>>() / size_of::<T>();
        let n_inputs = program.inputs;
        let registers = program.operations.iter().map(Operation::registers).max().unwrap_or(0);
        let numbers = program.places * VECTORS * of_vector + registers * Map::<T>::BLOCK;
        lanes.numbers.resize(numbers, T::default());
        let memory = &mut lanes.numbers;
        let mut done = 0;
        while done < rows {
            let vectors = if rows - done > of_vector { VECTORS } else { 1 };
            let width = vectors * of_vector;
            let count = width.min(rows - done);
            let tile = &inputs[done * n_inputs..][..count * n_inputs];
            let of_inputs = &mut memory[program.first * width..][..n_inputs * width];
            for (block, numbers) in of_inputs.chunks_mut(OF_LINE * width).enumerate() {
                for lane in 0..width {
                    // Lanes that nobody asks for are those of the last row.
                    let row = &tile[lane.min(count - 1) * n_inputs..][..n_inputs];
                    for (numbers, &input) in numbers.chunks_exact_mut(width).zip(&row[block * OF_LINE..]) {
                        numbers[lane] = input;
                    }
                }
            }
            let of_tile = done..done + count;
            observer(&Seen { rows: of_tile.clone(), operation: None, numbers: memory, width });
            for (number, operation) in program.operations.iter().enumerate() {
                operation.run(simd, vectors, program.places, memory);
                observer(&Seen { rows: of_tile.clone(), operation: Some(number), numbers: memory, width });
            }
            let mut places = &program.results[..];
            for array in results.iter_mut() {
                let n_results = array.len() / rows;
                let (own, others) = places.split_at(n_results);
                let tile = &mut array[done * n_results..][..count * n_results];
                for (block, own) in own.chunks(AT_ONCE).enumerate() {
                    for (lane, row) in tile.chunks_exact_mut(n_results).enumerate() {
                        for (result, &place) in row[block * AT_ONCE..].iter_mut().zip(own) {
                            *result = memory[place * width + lane];
                        }
                    }
                }
                places = others;
            }
            done += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::numbers;
    use super::*;
    use crate::numbers::each_level;
    use proptest::prelude::*;

    /// `relu(x W) · y` with W `(depth, width)` from the tables, where y are the other inputs: in words as Python writes them.
    fn words(depth: usize, width: usize) -> Vec<i32> {
        let [depth, width] = [depth as i32, width as i32];
        let (x, y, products) = (0, depth, depth + width);
        let (made, result) = (products + width, products + 2 * width);
        let mut words = vec![depth + width, 0, 2, result, result + 1, result + 2, depth * width, 4];
        // Each x by itself, so that runs have any length.
        words.extend([0, 1, 1, width, depth, depth, products, 0, 0, x]);
        words.extend([3, width, 1, 2, 0, products, 1, 36, 1, 0, 0, 0, 1, 1, made]);
        words.extend([1, 1, 1, 1, width, 0, 1, result]);
        words.extend((0..width).map(|k| made + k).chain([y]));
        words.extend([2, 1, width, 1, result + 1]);
        words.extend(made..made + width);
        words
    }

    fn evaluate(program: &Program<f64>, inputs: &[f64]) -> Vec<f64> {
        let mut results = vec![0.0; inputs.len() / program.inputs() * program.results()];
        Lanes::default().evaluate(program, inputs, &mut results);
        results
    }

    proptest! {
        #[test]
        fn products_functions_and_sums(rows in 1_usize..40, depth in 1_usize..20, width in 1_usize..20, seed in 0_usize..99) {
            let weights = numbers(seed, depth * width);
            let program = Program::new(&words(depth, width), &weights).expect("a program");
            let inputs = numbers(seed + 1, rows * (depth + width));
            for _ in each_level() {
                let found = evaluate(&program, &inputs);
                for (row, found) in inputs.chunks(depth + width).zip(found.chunks(2)) {
                    let (x, y) = row.split_at(depth);
                    let product = |m: usize| x.iter().zip(weights.chunks(width)).map(|(x, w)| x * w[m]).sum::<f64>().max(0.0);
                    let sum: f64 = y.iter().enumerate().map(|(m, y)| y * product(m)).sum();
                    let greatest = (0..width).map(product).fold(0.0, f64::max);
                    prop_assert!((found[0] - sum).abs() < 1e-13 * (depth * width) as f64);
                    prop_assert!((found[1] - greatest).abs() < 1e-13 * depth as f64);
                    // The same to the bit beside whichever others.
                    prop_assert_eq!(&evaluate(&program, row), found);
                }
            }
        }

        /// Whatever the words are, there is an error or a program whose places exist.
        #[test]
        fn words_that_are_wrong_do_no_harm(place in 0_usize..60, word in -3_i32..60) {
            let mut words = words(3, 2);
            let place = place % words.len();
            words[place] = word;
            let weights = numbers(0, 6);
            if let Ok(program) = Program::new(&words, &weights) && program.inputs() > 0 {
                evaluate(&program, &numbers(1, 5 * program.inputs()));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |words: &[i32]| Program::<f64>::new(words, &[0.0; 6]).expect_err("wrong").to_string();
        let right = words(3, 2);
        assert!(message(&right[..9]).ends_with("it ends too early"));
        let with = |place: usize, word: i32| {
            let mut words = right.clone();
            words[place] = word;
            message(&words)
        };
        assert!(with(6, 7).ends_with("takes 7 numbers, but its tables have 6"), "{}", with(6, 7));
        assert!(with(8, 99).ends_with("there is no operation 99"));
        assert!(with(3, 99).ends_with("it has 11 places, but names others"), "{}", with(3, 99));
        assert!(with(0, -1).ends_with("it has the number -1"));
    }
}
