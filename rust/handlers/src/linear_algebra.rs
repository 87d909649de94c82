//! Gram matrices of log-derivatives, and linear systems of large matrices.

use bytemuck::Pod;
use ferroket_kernels::linear_algebra::{
    Deal, Number, Scalar, Shape, Sides, Term, gram as write_gram, solve_positive as solve,
};
use ferroket_xla_ffi::{AnyBuffer, AnyBufferMut, Arguments, DataType, Element, Error, Frame, handler};
use num_complex::Complex;

handler! {
    /// Arguments `matrix (N, N)`, of real or complex floats, of which the elements on and behind the diagonal of each row are
    /// read, and `right (N,)`; result `solution (N,)`, no numbers where the matrix isn't positive definite.
    pub(crate) fn solve_positive = call
}

handler! {
    /// Arguments `device ()` of int32, the place of the device that has the rows among those that have columns, and of each
    /// term those of its kind: of `factors` `x` of samples with rows and with columns, `(n, B, P, I)` and `(N, B, P, I)`, and
    /// `delta` of both, `(n, C, B, P, O)` and `(N, C, B, P, O)`; of `rows` those of both, `(n, C, K)` and `(N, C, K)`, and a
    /// `mean (C, K)` that is subtracted from them. All are real or complex floats of the result's precision. Attributes
    /// `terms`, the kinds of all, one after the other, and `side`, how many samples a tile has. Result `matrix (n, C, N, C)`,
    /// real or complex floats; see [`write_gram`] for which part of it is written.
    pub(crate) fn gram = call_gram
}

fn call(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let matrix = args.any("matrix")?;
    match matrix.dtype() {
        DataType::F32 => run(frame, args, matrix, f32::NAN),
        DataType::F64 => run(frame, args, matrix, f64::NAN),
        DataType::C64 => run(frame, args, matrix, Complex::<f32>::from(f32::NAN)),
        DataType::C128 => run(frame, args, matrix, Complex::<f64>::from(f64::NAN)),
        other => Err(Error::invalid(format!("the matrix has dtype {other}, but must be real or complex floats"))),
    }
}

fn run<T: Number + Element>(frame: &Frame, mut args: Arguments, matrix: AnyBuffer, none: T) -> Result<(), Error> {
    let right = args.typed::<T>("right")?;
    args.finish()?;
    right.expect_rank(1)?;
    let &[n] = right.dims() else { unreachable!("there is one dimension") };
    matrix.expect_dims(&[n, n])?;
    let mut results = frame.results();
    let solution = results.typed::<T>("solution")?;
    solution.expect_dims(&[n])?;
    results.finish()?;
    let solution = solution.into_mut_slice();
    solution.copy_from_slice(right.as_slice());
    if !solve(matrix.typed::<T>()?.as_slice(), solution, &OnPool(frame))? {
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

fn run_gram<T: Scalar + Element + Pod>(
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
    let shape = Shape { rows, columns, components, device, side, is_complex };
    let mut terms = Vec::new();
    for kind in frame.attr_str("terms")?.split_whitespace() {
        terms.push(match kind {
            "factors" => {
                let (x, [parts, positions, _]) = sides::<T, 3>(&mut args, "x", &[], shape)?;
                let (delta, [of_delta, at_delta, _]) = sides::<T, 3>(&mut args, "delta", &[components], shape)?;
                if [parts, positions] != [of_delta, at_delta] {
                    return Err(Error::invalid("x and delta have other parts or positions".to_owned()));
                }
                Term::Factors { x, delta, parts, positions }
            }
            "rows" => {
                let (numbers, [len]) = sides::<T, 1>(&mut args, "rows", &[components], shape)?;
                let mean = args.any("mean")?;
                mean.expect_dims(&[components, len])?;
                let (mean, is_complex) = real_numbers::<T>(mean)?;
                if is_complex != numbers.is_complex {
                    return Err(Error::invalid("rows and their mean aren't both real or both complex".to_owned()));
                }
                Term::Rows { numbers, mean }
            }
            _ => return Err(Error::invalid(format!("there is no term '{kind}', but 'factors' and 'rows'"))),
        });
    }
    args.finish()?;
    let matrix = if is_complex {
        bytemuck::cast_slice_mut(matrix.typed::<Complex<T>>()?.into_mut_slice())
    } else {
        matrix.typed::<T>()?.into_mut_slice()
    };
    write_gram(&terms, shape, matrix, &OnPool(frame))
}

/// Arrays of samples with rows and with columns, `(samples, *before, *after)`, and what is after.
fn sides<'a, T: Scalar + Element + Pod, const AFTER: usize>(
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
fn real_numbers<T: Scalar + Element + Pod>(array: AnyBuffer<'_>) -> Result<(&[T], bool), Error>
where
    Complex<T>: Element + Pod,
{
    if array.dtype() == T::DTYPE {
        return Ok((array.typed::<T>()?.as_slice(), false));
    }
    Ok((bytemuck::cast_slice(array.typed::<Complex<T>>()?.as_slice()), true))
}

/// The threads of XLA.
struct OnPool<'f, 'a>(&'f Frame<'a>);

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
    fn what_makes_no_gram_matrix_is_named() {
        let message =
            |components, terms, device| gram_of(POOLS[0], components, terms, device).0.expect_err("bad").message;
        assert_eq!(message(3, "factors rows", 0), "3 rows of each sample, but there must be one or two");
        assert_eq!(message(1, "factors columns", 0), "there is no term 'columns', but 'factors' and 'rows'");
        assert_eq!(message(1, "factors rows", 1), "the device has no rows among the columns");
    }
}
