//! Linear systems of large matrices.

use ferroket_kernels::linear_algebra::{Deal, Number, solve_positive as solve};
use ferroket_xla_ffi::{AnyBuffer, Arguments, DataType, Element, Error, Frame, handler};
use num_complex::Complex;

handler! {
    /// Arguments `matrix (N, N)`, of real or complex floats, of which the elements on and behind the diagonal of each row are
    /// read, and `right (N,)`; result `solution (N,)`, no numbers where the matrix isn't positive definite.
    pub(crate) fn solve_positive = call
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
    use ferroket_xla_ffi::testing::TestFrame;

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
}
