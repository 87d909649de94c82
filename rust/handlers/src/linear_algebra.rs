//! Gram matrices of log-derivatives, and linear systems of large matrices.

use bytemuck::Pod;
use ferroket_kernels::linear_algebra::{
    Deal, Rows, Shape, Sides, Term, gram as write_gram, solve_gram as solve_of_gram, solve_positive as solve,
};
use ferroket_kernels::numbers::Real;
use ferroket_xla_ffi::{AnyBuffer, AnyBufferMut, Arguments, BufferMut, DataType, Element, Error, Frame, handler};
use num_complex::Complex;

handler! {
    /// Arguments `matrix (N, N)`, of real or complex floats, of which the elements on and behind the diagonal of each row are
    /// read, and `right (N,)`; result `solution (N,)`, no numbers where the matrix isn't positive definite.
    pub(crate) fn solve_positive = call
}

handler! {
    /// Arguments `device ()` of int32, the place of the device that has the rows among those that have columns, and of each
    /// term those of its kind: of `factors` `x` of samples with rows and with columns, `(n, B, P, I)` and `(N, B, P, I)`, and
    /// `delta` of both, `(n, C, B, P, O)` and `(N, C, B, P, O)`; of `nested` the same without positions, where a part has the x of
    /// all parts before it, too; of `rows` those of both, `(n, C, K)` and `(N, C, K)`, and a
    /// `mean (C, K)` that is subtracted from them. All are real or complex floats of the result's precision. Attributes
    /// `terms`, the kinds of all, one after the other, and `side`, how many samples a tile has. Result `matrix (n, C, N, C)`,
    /// real or complex floats; see [`write_gram`] for which part of it is written.
    pub(crate) fn gram = call_gram
}

handler! {
    /// Arguments `right (n, C)`, of real or complex floats, `shift ()`, real, and of each term those that `gram` has, of samples that
    /// all have rows and columns. Attribute `terms` as there. Result `solution (n, C)`, no numbers where the Gram matrix with the
    /// shift isn't positive definite; see [`solve_of_gram`].
    pub(crate) fn solve_gram = call_solve_gram
}

fn call(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let matrix = args.any("matrix")?;
    match matrix.dtype() {
        DataType::F32 | DataType::C64 => run::<f32>(frame, args, matrix, f32::NAN),
        DataType::F64 | DataType::C128 => run::<f64>(frame, args, matrix, f64::NAN),
        other => Err(Error::invalid(format!("the matrix has dtype {other}, but must be real or complex floats"))),
    }
}

fn run<T: Real + Element>(frame: &Frame, mut args: Arguments, matrix: AnyBuffer, none: T) -> Result<(), Error>
where
    Complex<T>: Element + Pod,
{
    let right = args.any("right")?;
    args.finish()?;
    right.expect_rank(1)?;
    let &[n] = right.dims() else { unreachable!("there is one dimension") };
    matrix.expect_dims(&[n, n])?;
    let mut results = frame.results();
    let solution = results.any("solution")?;
    solution.expect_dims(&[n])?;
    results.finish()?;
    let (matrix, is_complex) = real_numbers::<T>(matrix)?;
    let (right, solution) = (real_numbers::<T>(right)?, real_numbers_mut::<T>(solution)?);
    if right.1 != is_complex || solution.1 != is_complex {
        return Err(Error::invalid("the matrix, the right-hand side and the solution have other dtypes".to_owned()));
    }
    let solution = solution.0;
    solution.copy_from_slice(right.0);
    if !solve(matrix, solution, is_complex, &OnPool(frame))? {
        solution.fill(none);
    }
    Ok(())
}

fn call_gram(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let device = args.scalar::<i32>("device")?;
    let mut results = frame.results();
    let matrix = results.any("matrix")?;
    results.finish()?;
    match matrix.dtype() {
        DataType::F32 | DataType::C64 => run_gram::<f32>(frame, args, device, matrix),
        DataType::F64 | DataType::C128 => run_gram::<f64>(frame, args, device, matrix),
        other => Err(Error::invalid(format!("the matrix has dtype {other}, but must be real or complex floats"))),
    }
}

fn run_gram<T: Real + Element>(
    frame: &Frame,
    mut args: Arguments,
    device: i32,
    matrix: AnyBufferMut,
) -> Result<(), Error>
where
    Complex<T>: Element + Pod,
{
    matrix.expect_rank(4)?;
    let &[rows, components, columns, _] = matrix.dims() else { unreachable!("there are four dimensions") };
    matrix.expect_dims(&[rows, components, columns, components])?;
    if !(1..=2).contains(&components) {
        return Err(Error::invalid(format!("{components} rows of each sample, but there must be one or two")));
    }
    let is_complex = matrix.dtype() != T::DTYPE;
    let device = usize::try_from(device).ok().filter(|&device| (device + 1) * rows <= columns);
    let device = device.ok_or_else(|| Error::invalid("the device has no rows among the columns".to_owned()))?;
    if rows > 0 && columns % rows != 0 {
        return Err(Error::invalid(format!("{columns} columns aren't a multiple of {rows} rows")));
    }
    let side = usize::try_from(frame.attr_i64("side")?).ok().filter(|&side| side > 0);
    let side = side.ok_or_else(|| Error::invalid("a tile has no side".to_owned()))?;
    let shape = Shape { rows, columns, components, device, side, is_complex, is_transposed: false };
    let terms = terms::<T>(frame, &mut args, shape)?;
    args.finish()?;
    let (matrix, _) = real_numbers_mut(matrix)?;
    write_gram(&terms, shape, matrix, &OnPool(frame))
}

fn call_solve_gram(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let right = args.any("right")?;
    match right.dtype() {
        DataType::F32 | DataType::C64 => run_solve_gram::<f32>(frame, args, right, f32::NAN),
        DataType::F64 | DataType::C128 => run_solve_gram::<f64>(frame, args, right, f64::NAN),
        other => {
            Err(Error::invalid(format!("the right-hand side has dtype {other}, but must be real or complex floats")))
        }
    }
}

fn run_solve_gram<T: Real + Element>(frame: &Frame, mut args: Arguments, right: AnyBuffer, none: T) -> Result<(), Error>
where
    Complex<T>: Element + Pod,
{
    right.expect_rank(2)?;
    let &[samples, components] = right.dims() else { unreachable!("there are two dimensions") };
    let shift = args.scalar::<T>("shift")?;
    let is_complex = right.dtype() != T::DTYPE;
    if components != 1 && (components != 2 || is_complex) {
        return Err(Error::invalid(format!(
            "{components} rows of each sample, but there must be one, or two of real numbers"
        )));
    }
    let shape = Shape {
        rows: samples,
        columns: samples,
        components,
        device: 0,
        side: samples.max(1),
        is_complex,
        is_transposed: false,
    };
    let terms = terms::<T>(frame, &mut args, shape)?;
    args.finish()?;
    let mut results = frame.results();
    let solution = results.any("solution")?;
    solution.expect_dims(&[samples, components])?;
    results.finish()?;
    let (solution, of_solution) = real_numbers_mut::<T>(solution)?;
    if of_solution != is_complex {
        return Err(Error::invalid("the right-hand side and the solution have other dtypes".to_owned()));
    }
    solution.copy_from_slice(real_numbers::<T>(right)?.0);
    if !solve_of_gram(&terms, Rows { samples, components, is_complex }, shift, solution, &OnPool(frame))? {
        solution.fill(none);
    }
    Ok(())
}

/// The terms of a Gram matrix, in the order of the attribute `terms`.
pub(crate) fn terms<'a, T: Real + Element>(
    frame: &Frame,
    args: &mut Arguments<'_, 'a>,
    shape: Shape,
) -> Result<Vec<Term<'a, T>>, Error>
where
    Complex<T>: Element + Pod,
{
    let mut terms = Vec::new();
    for kind in frame.attr_str("terms")?.split_whitespace() {
        terms.push(match kind {
            "factors" => {
                let (x, [parts, positions, _]) = sides::<T, 3>(args, "x", &[], shape)?;
                let (delta, [of_delta, at_delta, _]) = sides::<T, 3>(args, "delta", &[shape.components], shape)?;
                if [parts, positions] != [of_delta, at_delta] {
                    return Err(Error::invalid("x and delta have other parts or positions".to_owned()));
                }
                Term::Factors { x, delta, parts, positions, is_nested: false }
            }
            "nested" => {
                let (x, [parts, _]) = sides::<T, 2>(args, "x", &[], shape)?;
                let (delta, [of_delta, _]) = sides::<T, 2>(args, "delta", &[shape.components], shape)?;
                if parts != of_delta {
                    return Err(Error::invalid("x and delta have other parts".to_owned()));
                }
                Term::Factors { x, delta, parts, positions: 1, is_nested: true }
            }
            "rows" => {
                let (numbers, [len]) = sides::<T, 1>(args, "rows", &[shape.components], shape)?;
                let mean = args.any("mean")?;
                mean.expect_dims(&[shape.components, len])?;
                let (mean, is_complex) = real_numbers::<T>(mean)?;
                if is_complex != numbers.is_complex {
                    return Err(Error::invalid("rows and their mean aren't both real or both complex".to_owned()));
                }
                Term::Rows { numbers, mean }
            }
            _ => return Err(Error::invalid(format!("there is no term '{kind}', but 'factors', 'nested' and 'rows'"))),
        });
    }
    Ok(terms)
}

/// Arrays of samples with rows and with columns, `(samples, *before, *after)`, and what is after.
fn sides<'a, T: Real + Element, const AFTER: usize>(
    args: &mut Arguments<'_, 'a>,
    name: &'static str,
    before: &[usize],
    shape: Shape,
) -> Result<(Sides<'a, T>, [usize; AFTER]), Error>
where
    Complex<T>: Element + Pod,
{
    let [rows, columns] = [args.any(name)?, args.any(name)?];
    rows.expect_rank(1 + before.len() + AFTER)?;
    let after: [usize; AFTER] = rows.dims()[1 + before.len()..].try_into().expect("as many");
    for (array, samples) in [(&rows, shape.rows), (&columns, shape.columns)] {
        array.expect_dims(&[&[samples], before, &after].concat())?;
    }
    let (rows, is_complex) = real_numbers(rows)?;
    let (columns, other) = real_numbers(columns)?;
    if is_complex != other {
        return Err(Error::invalid(format!("{name} isn't real or complex on both sides")));
    }
    Ok((Sides { rows, columns, is_complex }, after))
}

/// Numbers, or the real and imaginary parts of complex ones; and whether they are these.
pub(crate) fn real_numbers<T: Real + Element>(array: AnyBuffer<'_>) -> Result<(&[T], bool), Error>
where
    Complex<T>: Element + Pod,
{
    if array.dtype() == T::DTYPE {
        return Ok((array.typed::<T>()?.as_slice(), false));
    }
    Ok((bytemuck::cast_slice(array.typed::<Complex<T>>()?.as_slice()), true))
}

/// The same of a result, which is advised to be in huge pages.
pub(crate) fn real_numbers_mut<T: Real + Element>(array: AnyBufferMut<'_>) -> Result<(&mut [T], bool), Error>
where
    Complex<T>: Element + Pod,
{
    fn in_huge_pages<T: Element>(mut array: BufferMut<'_, T>) -> &mut [T] {
        array.advise_huge_pages();
        array.into_mut_slice()
    }
    if array.dtype() == T::DTYPE {
        return Ok((in_huge_pages(array.typed::<T>()?), false));
    }
    Ok((bytemuck::cast_slice_mut(in_huge_pages(array.typed::<Complex<T>>()?)), true))
}

/// The threads of XLA.
pub(crate) struct OnPool<'f, 'a>(pub(crate) &'f Frame<'a>);

impl Deal for OnPool<'_, '_> {
    type Error = Error;

    fn deal(&self, n: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), Error> {
        self.0.pool().for_each_chunk(n, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::POOLS;
    use ferroket_xla_ffi::testing::{Failure, TestFrame, Threads};

    #[test]
    fn systems_are_solved_on_all_pools() {
        let n = 300;
        let number = |place: usize| {
            if place.is_multiple_of(n + 1) { 2.0 * n as f64 } else { ((place % n + place / n) as f64).sin() }
        };
        let matrix: Vec<f64> = (0..n * n).map(number).collect();
        let right: Vec<f64> = (0..n).map(|place| (place as f64).cos()).collect();
        let solved = POOLS.map(|threads| {
            let mut call = TestFrame::new(threads).arg(&matrix, &[n, n]).arg(&right, &[n]).result::<f64>(&[n]);
            assert_eq!(call.execute(solve_positive), Ok(()));
            call.read::<f64>(0)
        });
        for (row, right) in matrix.chunks_exact(n).zip(&right) {
            let product: f64 = row.iter().zip(&solved[0]).map(|(a, x)| a * x).sum();
            assert!((product - right).abs() < 1e-13);
        }
        assert!(solved.iter().all(|solution| solution == &solved[0]));
    }

    #[test]
    fn what_is_no_system_is_named() {
        let mut call = TestFrame::new(POOLS[0]).arg(&[-1.0_f32], &[1, 1]).arg(&[1.0_f32], &[1]).result::<f32>(&[1]);
        assert_eq!(call.execute(solve_positive), Ok(()));
        assert!(call.read::<f32>(0)[0].is_nan());
        let mut call = TestFrame::new(POOLS[0]).arg(&[1_i32], &[1, 1]).arg(&[1_i32], &[1]).result::<i32>(&[1]);
        let failure = call.execute(solve_positive).expect_err("integers");
        assert_eq!(failure.message, "the matrix has dtype int32, but must be real or complex floats");
        let mut call = TestFrame::new(POOLS[0]).arg(&[1.0, 2.0], &[2, 1]).arg(&[1.0], &[1]).result::<f64>(&[1]);
        assert!(call.execute(solve_positive).is_err());
    }

    /// A Gram matrix of three samples: of x `(3, 1, 1, 2)` and δ `(3, C, 1, 1, 1)`, and of rows `(3, C, 2)`.
    fn gram_of(threads: Threads, components: usize, terms: &str, device: i32) -> (Result<(), Failure>, Vec<f64>) {
        let x = [1.0, 2.0, -1.0, 0.5, 3.0, 1.0];
        let delta: Vec<f64> = (0..3 * components).map(|place| place as f64 - 1.5).collect();
        let rows: Vec<f64> = (0..6 * components).map(|place| (place as f64).cos()).collect();
        let mean = vec![0.25; 2 * components];
        let mut call = TestFrame::new(threads).arg(&[device], &[]);
        for _ in 0..2 {
            call = call.arg(&x, &[3, 1, 1, 2]);
        }
        for _ in 0..2 {
            call = call.arg(&delta, &[3, components, 1, 1, 1]);
        }
        for _ in 0..2 {
            call = call.arg(&rows, &[3, components, 2]);
        }
        call = call.arg(&mean, &[components, 2]).result::<f64>(&[3, components, 3, components]);
        let mut call = call.attr_str("terms", terms).attr_i64("side", 2);
        (call.execute(gram), call.read::<f64>(0))
    }

    #[test]
    fn gram_matrices_are_written_on_all_pools() {
        for components in [1, 2] {
            let written = POOLS.map(|threads| {
                let (done, matrix) = gram_of(threads, components, "factors rows", 0);
                assert_eq!(done, Ok(()));
                matrix
            });
            // x·x' δδ' + (r - r̄)·(r' - r̄), of the first samples' first components.
            let row = |place: usize| (place as f64).cos() - 0.25;
            let (place, second) = (2 * components, components as f64);
            let expected = 0.0 * -1.5 * (second - 1.5) + row(0) * row(place) + row(1) * row(place + 1);
            assert!((written[0][components] - expected).abs() < 1e-15);
            assert!(written.iter().all(|matrix| matrix == &written[0]));
        }
    }

    #[test]
    fn systems_of_gram_matrices_are_solved_on_all_pools() {
        // Of rows 1, 2, 4, less their mean: (r - r̄) (r' - r̄) + λ, for b - b̄.
        let solved = |threads: Threads, components: usize, terms: &str| {
            let rows = [1.0, 2.0, 4.0].repeat(components);
            let right: Vec<f64> = [3.0, 0.0, 0.0].repeat(components);
            let mut call = TestFrame::new(threads)
                .arg(&right, &[3, components])
                .arg(&[2.0], &[])
                .arg(&rows, &[3, components, 1])
                .arg(&rows, &[3, components, 1])
                .arg(&vec![0.0; components], &[components, 1])
                .result::<f64>(&[3, components])
                .attr_str("terms", terms);
            (call.execute(solve_gram), call.read::<f64>(0))
        };
        for threads in POOLS {
            let (done, solution) = solved(threads, 1, "rows");
            assert_eq!(done, Ok(()));
            let (right, rows) = ([2.0, -1.0, -1.0], [1.0, 2.0, 4.0].map(|row| row - 7.0 / 3.0));
            let along = rows.iter().zip(right).map(|(a, b)| a * b).sum::<f64>()
                / (2.0 + rows.iter().map(|row| row * row).sum::<f64>());
            for ((found, right), row) in solution.iter().zip(right).zip(rows) {
                assert!((found - (right - row * along) / 2.0).abs() < 1e-14);
            }
        }
        let message = |components, terms| solved(POOLS[0], components, terms).0.expect_err("bad").message;
        assert_eq!(message(3, "rows"), "3 rows of each sample, but there must be one, or two of real numbers");
        assert_eq!(message(1, "columns"), "there is no term 'columns', but 'factors', 'nested' and 'rows'");
    }

    #[test]
    fn what_makes_no_gram_matrix_is_named() {
        let message =
            |components, terms, device| gram_of(POOLS[0], components, terms, device).0.expect_err("bad").message;
        assert_eq!(message(3, "factors rows", 0), "3 rows of each sample, but there must be one or two");
        assert_eq!(message(1, "factors columns", 0), "there is no term 'columns', but 'factors', 'nested' and 'rows'");
        assert_eq!(message(1, "factors rows", 1), "the device has no rows among the columns");
    }
}
