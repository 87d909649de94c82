//! Decompositions of matrices, and numbers whose places depend on the configuration, as programs of one operation each.

use crate::network::testing::numbers;
use crate::network::{Lanes, Program};
use crate::numbers::each_level;
use num_complex::Complex;
use proptest::prelude::*;

/// The words of a program with these many inputs and tables, of one operation behind which come its results: its code, what is
/// before the place of these, how many there are, and what is behind.
fn program(inputs: usize, tables: usize, code: i32, before: &[usize], results: usize, behind: &[usize]) -> Vec<i32> {
    let of = |numbers: &[usize]| numbers.iter().map(|&number| number as i32).collect::<Vec<_>>();
    let mut words = of(&[inputs, 0, results]);
    words.extend((inputs..inputs + results).map(|place| place as i32));
    words.extend(of(&[inputs + results, tables, 1]));
    words.push(code);
    words.extend(of(before));
    words.push(inputs as i32);
    words.extend(of(behind));
    words
}

fn evaluate(words: &[i32], tables: &[f64], inputs: &[f64]) -> Vec<f64> {
    let program = Program::new(words, tables).expect("a program");
    let mut results = vec![0.0; inputs.len() / program.inputs() * program.results()];
    Lanes::default().evaluate(&program, inputs, &mut results);
    results
}

/// Numbers of one or two parts.
fn complex(numbers: &[f64], parts: usize) -> Vec<Complex<f64>> {
    numbers
        .chunks_exact(parts)
        .map(|number| Complex::new(number[0], number.get(1).copied().unwrap_or_default()))
        .collect()
}

fn close(found: &[Complex<f64>], expected: &[Complex<f64>], tolerance: f64) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.len(), expected.len());
    let largest = expected.iter().map(|number| number.norm()).fold(1e-300, f64::max);
    for (a, b) in found.iter().zip(expected) {
        prop_assert!((a - b).norm() <= tolerance * largest, "{:?} instead of {:?}", a, b);
    }
    Ok(())
}

fn lu(n: usize, parts: usize) -> Vec<i32> {
    let size = n * n * parts;
    let all = n * (2 + parts) + size;
    let places: Vec<usize> = [1, size + n * (2 + parts)].into_iter().chain(0..size).collect();
    program(size, 0, 4, &[1, n, parts], all, &places)
}

fn triangular(n: usize, columns: usize, parts: usize, ones: bool) -> Vec<i32> {
    let (matrix, right) = (n * n * parts, n * columns * parts);
    let places: Vec<usize> = (0..matrix + right).collect();
    program(matrix + right, 0, 5, &[1, n, columns, parts, usize::from(ones)], right, &places)
}

fn pfaffian(n: usize, parts: usize) -> Vec<i32> {
    let places: Vec<usize> = (0..n * n * parts).collect();
    program(n * n * parts, 0, 6, &[1, n, parts], n / 2 * parts, &places)
}

/// Three rows of two numbers each, one of four, the numbers of which come first; or out of bounds NaN.
fn take() -> Vec<i32> {
    let places: Vec<usize> = [8, 9, 10].into_iter().chain([0; 3]).chain(0..8).collect();
    program(11, 0, 7, &[3, 4, 2, 1, 1], 6, &places)
}

/// Three rows of two numbers each, which are added to one of four rows, out of bounds to the nearest one.
fn put() -> Vec<i32> {
    let places: Vec<usize> = [6, 7, 8].into_iter().chain([0; 3]).chain(0..8).chain(0..6).collect();
    program(9, 0, 8, &[3, 4, 2, 0, 1, 8], 8, &places)
}

/// Three of four rows of a matrix, as many columns as these, times two numbers; with a bias.
fn rows(columns: usize) -> Vec<i32> {
    let bias: Vec<usize> = (8 * columns..12 * columns).collect();
    let behind: Vec<usize> = [2, 3, 4, 0, 1, 0, 1].into_iter().chain(bias).collect();
    program(5, 12 * columns, 9, &[3, 4, 2, columns, 0], 3 * columns, &behind)
}

/// The same without products: rows of the bias.
fn rows_of_parameters(columns: usize) -> Vec<i32> {
    let bias: Vec<usize> = (8 * columns..12 * columns).collect();
    let behind: Vec<usize> = [2, 3, 4, 0, 1].into_iter().chain(bias).collect();
    program(5, 12 * columns, 9, &[3, 4, 0, columns, 0], 3 * columns, &behind)
}

/// Pf A, by expansion along the first row.
fn expanded(a: &[Vec<Complex<f64>>]) -> Complex<f64> {
    if a.is_empty() {
        return 1.0.into();
    }
    let term = |place: usize| {
        let others: Vec<usize> = (1..a.len()).filter(|&other| other != place).collect();
        let minor: Vec<Vec<_>> = others.iter().map(|&i| others.iter().map(|&j| a[i][j]).collect()).collect();
        let sign = if place % 2 == 1 { 1.0 } else { -1.0 };
        a[0][place] * expanded(&minor) * sign
    };
    (1..a.len()).map(term).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// P A = L U, with no factor larger than 1 in real matrices.
    #[test]
    fn products_of_triangular_matrices(n in 1_usize..=22, parts in 1_usize..=2, count in 1_usize..=19, seed in 0_usize..99) {
        let (size, words) = (n * n * parts, lu(n, parts));
        let mut inputs = numbers(seed, count * size);
        inputs.iter_mut().step_by(size.max(2)).for_each(|number| *number = 0.0);
        for _ in each_level() {
            let found = evaluate(&words, &[], &inputs);
            for (matrix, found) in inputs.chunks(size).zip(found.chunks(n * (2 + parts) + size)) {
                let (pivots, rest) = found.split_at(n);
                let (order, rest) = rest.split_at(n);
                let (diagonal, triangles) = rest.split_at(n * parts);
                let (a, both) = (complex(matrix, parts), complex(triangles, parts));
                let mut expected: Vec<usize> = (0..n).collect();
                for (row, &pivot) in pivots.iter().enumerate() {
                    expected.swap(row, pivot as usize);
                }
                let moved: Vec<_> = expected.iter().flat_map(|&row| a[row * n..][..n].to_vec()).collect();
                prop_assert!(order.iter().zip(&expected).all(|(&a, &b)| a as usize == b));
                let mut product = vec![Complex::default(); n * n];
                for i in 0..n {
                    for j in 0..n {
                        let factor = |k: usize| if k == i { 1.0.into() } else { both[i * n + k] };
                        product[i * n + j] = (0..=i.min(j)).map(|k| factor(k) * both[k * n + j]).sum();
                    }
                }
                close(&product, &moved, 1e-13)?;
                let of_diagonal: Vec<_> = both.iter().step_by(n + 1).copied().collect();
                prop_assert_eq!(complex(diagonal, parts), of_diagonal);
                let is_small = |i: usize, j: usize| both[i * n + j].norm() <= if parts > 1 { 1.5 } else { 1.0 + 1e-14 };
                prop_assert!((0..n).all(|i| (0..i).all(|j| is_small(i, j))));
            }
        }
    }

    #[test]
    fn solutions_of_triangular_systems(
        n in 1_usize..=9, columns in 1_usize..=7, parts in 1_usize..=2, ones: bool, count in 1_usize..=35, seed in 0_usize..99
    ) {
        let (size, words) = (n * n * parts, triangular(n, columns, parts, ones));
        let mut inputs = numbers(seed, count * (size + n * columns * parts));
        for system in inputs.chunks_mut(size + n * columns * parts) {
            system[..size].iter_mut().step_by((n + 1) * parts).for_each(|number| *number += 3.0);
        }
        for _ in each_level() {
            let found = evaluate(&words, &[], &inputs);
            for (system, found) in inputs.chunks(size + n * columns * parts).zip(found.chunks(n * columns * parts)) {
                let (a, x) = (complex(&system[..size], parts), complex(found, parts));
                let factor = |i: usize, k: usize| if ones && i == k { 1.0.into() } else { a[i * n + k] };
                let product = |place: usize| {
                    let (i, column) = (place / columns, place % columns);
                    (0..=i).map(|k| factor(i, k) * x[k * columns + column]).sum()
                };
                let products: Vec<Complex<f64>> = (0..n * columns).map(product).collect();
                let largest = x.iter().map(|number| number.norm()).fold(1.0, f64::max);
                close(&products, &complex(&system[size..], parts), 1e-13 * largest)?;
            }
        }
    }

    #[test]
    fn factors_of_pfaffians(half in 1_usize..=3, parts in 1_usize..=2, count in 1_usize..=35, seed in 0_usize..99) {
        let n = 2 * half;
        let inputs = numbers(seed, count * n * n * parts);
        for _ in each_level() {
            let found = evaluate(&pfaffian(n, parts), &[], &inputs);
            for (matrix, found) in inputs.chunks(n * n * parts).zip(found.chunks(half * parts)) {
                let below = complex(matrix, parts);
                let number = |i: usize, j: usize| match i.cmp(&j) {
                    std::cmp::Ordering::Less => -below[j * n + i],
                    std::cmp::Ordering::Equal => Complex::default(),
                    std::cmp::Ordering::Greater => below[i * n + j],
                };
                let a: Vec<Vec<_>> = (0..n).map(|i| (0..n).map(|j| number(i, j)).collect()).collect();
                close(&[complex(found, parts).into_iter().product()], &[expanded(&a)], 1e-10)?;
            }
        }
    }

    #[test]
    fn numbers_at_places_of_the_configuration(
        wanted in proptest::collection::vec(-2_i8..6, 3..=96), columns in 1_usize..=19, seed in 0_usize..99
    ) {
        let wanted: Vec<f64> = wanted.chunks_exact(3).flatten().map(|&number| f64::from(number)).collect();
        let count = wanted.len() / 3;
        let (x, tables) = (numbers(seed, count * 8), numbers(seed + 1, 12 * columns));
        let with = |inputs: usize| -> Vec<f64> {
            x.chunks(8).zip(wanted.chunks(3)).flat_map(|(x, wanted)| [&x[..inputs], wanted].concat()).collect()
        };
        let nearest = |wanted: f64| wanted.clamp(0.0, 3.0) as usize;
        for _ in each_level() {
            let taken = evaluate(&take(), &[], &with(8));
            let added = evaluate(&put(), &[], &with(6));
            let products = evaluate(&rows(columns), &tables, &with(2));
            let parameters = evaluate(&rows_of_parameters(columns), &tables, &with(2));
            for (sample, (x, wanted)) in x.chunks(8).zip(wanted.chunks(3)).enumerate() {
                let mut sums = [0.0; 8];
                for (row, &wanted) in wanted.iter().enumerate() {
                    for column in 0..2 {
                        let found = taken[sample * 6 + row * 2 + column];
                        if (0.0..=3.0).contains(&wanted) {
                            prop_assert_eq!(found, x[wanted as usize * 2 + column]);
                        } else {
                            prop_assert!(found.is_nan());
                        }
                        sums[nearest(wanted) * 2 + column] += x[row * 2 + column];
                    }
                    for column in 0..columns {
                        let weight = |j: usize| tables[(nearest(wanted) * 2 + j) * columns + column];
                        let bias = tables[8 * columns + nearest(wanted) * columns + column];
                        let found = products[(sample * 3 + row) * columns + column];
                        prop_assert!((found - (bias + x[0] * weight(0) + x[1] * weight(1))).abs() < 1e-14);
                        prop_assert_eq!(parameters[(sample * 3 + row) * columns + column], bias);
                    }
                }
                prop_assert_eq!(&added[sample * 8..][..8], &sums[..]);
            }
        }
    }

    /// Whatever the words are, there is an error or a program whose places exist.
    #[test]
    fn words_that_are_wrong_do_no_harm(which in 0_usize..6, place in 0_usize..99, word in -3_i32..60) {
        let (mut words, tables) = match which {
            0 => (lu(3, 2), 0),
            1 => (triangular(3, 2, 1, false), 0),
            2 => (pfaffian(4, 1), 0),
            3 => (take(), 0),
            4 => (put(), 0),
            _ => (rows(3), 36),
        };
        let place = place % words.len();
        words[place] = word;
        let tables = numbers(0, tables);
        if let Ok(program) = Program::new(&words, &tables) && program.inputs() > 0 {
            let inputs = numbers(1, 5 * program.inputs());
            let mut results = vec![0.0; 5 * program.results()];
            Lanes::default().evaluate(&program, &inputs, &mut results);
        }
    }
}

#[test]
fn a_singular_matrix_is_one() {
    let mut inputs = numbers(3, 5 * 9);
    inputs[9..18].fill(0.0);
    inputs[27..30].fill(0.0);
    inputs[40] = f64::NAN;
    for _ in each_level() {
        let found = evaluate(&lu(3, 1), &[], &inputs);
        let determinant = |matrix: usize| found[matrix * 18 + 6..][..3].iter().product::<f64>();
        assert!(determinant(1) == 0.0 && determinant(3) == 0.0);
        assert!(determinant(0) != 0.0 && determinant(2) != 0.0);
        assert!(determinant(4).is_nan());
    }
}
