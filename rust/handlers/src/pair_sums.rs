//! Sums of Pfaffians whose pairs have parameters in common: their logarithms with derivatives.

use crate::blocks::MIN_NUMBERS;
use crate::dtypes::{Numbers, narrow, numbers_of};
use crate::errors::invalid;
use ferroket_kernels::amplitudes::pfaffian::{PairSums, PairTables};
use ferroket_kernels::numbers::Real;
use ferroket_xla_ffi::{AnyBuffer, AnyBufferMut, Arguments, DataType, Element, Error, Frame, Rows, handler};
use num_complex::Complex;

handler! {
    /// Arguments `n (Ns, N)` of uint8, 0 for an empty mode; `parameters (P, K)` and `weights (P, D)` of float32 or float64,
    /// with P = 1 if they are real and 2 if they are complex; `index (N, N, T)` of int32, `factors (R, N, N, T)` of float64,
    /// `permutations (G, N)` of int32 and `signs (G, N)` of float64, see `PairTables`; attributes `fermions` and `rows`;
    /// results `log_psi (Ns,)` of complex64 or complex128, and with `rows` its derivatives by the parameters,
    /// `rows (Ns, K)`, real or complex numbers of that precision.
    pub(crate) fn logarithms = call
}

fn call(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let n = args.typed::<u8>("n")?;
    n.expect_rank(2)?;
    let parameters = args.any("parameters")?;
    parameters.expect_rank(2)?;
    match (parameters.dtype(), parameters.dims()[0]) {
        (DataType::F32, 1) => evaluate::<f32, f64, 1>(frame, args, n.as_slice(), n.dims(), parameters),
        (DataType::F32, 2) => evaluate::<f32, Complex<f64>, 2>(frame, args, n.as_slice(), n.dims(), parameters),
        (_, 1) => evaluate::<f64, f64, 1>(frame, args, n.as_slice(), n.dims(), parameters),
        (_, 2) => evaluate::<f64, Complex<f64>, 2>(frame, args, n.as_slice(), n.dims(), parameters),
        (_, planes) => Err(Error::invalid(format!("the parameters have {planes} planes, but must have 1 or 2"))),
    }
}

/// Of the parameters' type, and what matrices have.
fn evaluate<T: Real + Element, E: Numbers, const P: usize>(
    frame: &Frame,
    mut args: Arguments,
    n: &[u8],
    dims: &[usize],
    parameters: AnyBuffer,
) -> Result<(), Error> {
    let (samples, modes, count) = (dims[0], dims[1], parameters.dims()[1]);
    let weights = args.typed::<T>("weights")?;
    let (index, factors) = (args.typed::<i32>("index")?, args.typed::<f64>("factors")?);
    let (permutations, signs) = (args.typed::<i32>("permutations")?, args.typed::<f64>("signs")?);
    args.finish()?;
    index.expect_rank(3)?;
    let terms = index.dims()[2];
    index.expect_dims(&[modes, modes, terms])?;
    // No sum has a negative number of fermions.
    let fermions = usize::try_from(frame.attr_i64("fermions")?).unwrap_or(usize::MAX);
    let tables = PairTables {
        parameters: parameters.typed::<T>()?.as_slice(),
        weights: weights.as_slice(),
        index: index.as_slice(),
        factors: factors.as_slice(),
        permutations: permutations.as_slice(),
        signs: signs.as_slice(),
        terms,
        modes,
        fermions,
    };
    let sums = PairSums::<E>::new::<T, P>(tables).map_err(|error| invalid(&error))?;
    let mut results = frame.results();
    let log_psi = results.any("log_psi")?;
    let rows = frame.attr_bool("rows")?.then(|| results.any("rows")).transpose()?;
    results.finish()?;
    log_psi.expect_dims(&[samples])?;
    // An inverse takes about as long as so many numbers.
    let min = MIN_NUMBERS / (weights.as_slice().len() * fermions.pow(3)).max(1);
    let call = Call { frame, n, modes, samples, count, min, sums: &sums };
    if log_psi.dtype() == DataType::C64 {
        call.write::<Complex<f32>, E::Single>(log_psi, rows, narrow, E::single)
    } else {
        call.write::<Complex<f64>, E>(log_psi, rows, |number| number, |number| number)
    }
}

/// What all types of results have in common.
struct Call<'f, 'a, E> {
    frame: &'f Frame<'a>,
    n: &'f [u8],
    modes: usize,
    samples: usize,
    count: usize,
    /// The least samples that a thread gets.
    min: usize,
    sums: &'f PairSums<'f, E>,
}

/// So many samples are evaluated at once.
const BLOCK: usize = 16;

impl<E: Numbers> Call<'_, '_, E> {
    fn write<C: Element, O: Element>(
        self,
        log_psi: AnyBufferMut,
        rows: Option<AnyBufferMut>,
        logarithm: fn(Complex<f64>) -> C,
        number: fn(E) -> O,
    ) -> Result<(), Error> {
        let Self { frame, n, modes, samples, count, min, sums } = self;
        let has_rows = rows.is_some();
        let rows = numbers_of::<O>(rows, &[samples, count])?;
        let parts =
            (Rows::new(log_psi.typed::<C>()?.into_mut_slice(), 1), Rows::new(rows, if has_rows { count } else { 0 }));
        frame.pool().for_each_part(samples, min, parts, |range, (log_psi, rows)| {
            let (mut wide, mut numbers) = ([Complex::default(); BLOCK], vec![E::default(); BLOCK * count]);
            let mut rows = rows.into_slice().chunks_mut((BLOCK * count).max(1));
            for (block, log_psi) in log_psi.into_slice().chunks_mut(BLOCK).enumerate() {
                let len = log_psi.len();
                let n = &n[(range.start + block * BLOCK) * modes..][..len * modes];
                let wanted = has_rows.then_some(&mut numbers[..len * count]);
                sums.evaluate(n, &mut wide[..len], wanted);
                log_psi.iter_mut().zip(wide).for_each(|(to, from)| *to = logarithm(from));
                if let Some(rows) = rows.next() {
                    rows.iter_mut().zip(&numbers).for_each(|(to, &from)| *to = number(from));
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::POOLS;
    use ferroket_xla_ffi::testing::{TestFrame, Threads};

    /// Two of three modes, with pairs (0, 1), (0, 2) and (1, 2) of parameters 0, 1 and 0.
    fn frame(threads: Threads, n: &[u8], rows: bool) -> TestFrame {
        let frame = TestFrame::new(threads).attr_i64("fermions", 2).attr_bool("rows", rows).arg(n, &[n.len() / 3, 3]);
        let frame = frame.arg(&[2.0, -3.0], &[1, 2]).arg(&[1.0], &[1, 1]);
        let frame = frame.arg(&[0, 0, 1, 0, 0, 0, 0, 0, 0], &[3, 3, 1]).arg(&[1.0; 9], &[1, 3, 3, 1]);
        frame.arg(&[0, 1, 2], &[1, 3]).arg(&[1.0; 3], &[1, 3])
    }

    #[test]
    fn logarithms_of_an_example() {
        let samples = 9000;
        let n: Vec<u8> = (0..samples).flat_map(|sample| [[1, 1, 0], [1, 0, 1], [0, 1, 1]][sample % 3]).collect();
        let expected: [(f64, [f64; 2]); 3] = [(2.0, [0.5, 0.0]), (-3.0, [0.0, -1.0 / 3.0]), (2.0, [0.5, 0.0])];
        for threads in POOLS {
            let frame = frame(threads, &n, true).result::<Complex<f64>>(&[samples]);
            let mut frame = frame.result::<f64>(&[samples, 2]);
            assert_eq!(frame.execute(logarithms), Ok(()));
            let rows = frame.read::<f64>(1);
            for (sample, found) in frame.read::<Complex<f64>>(0).into_iter().enumerate() {
                let (psi, derivatives) = expected[sample % 3];
                assert!((found.exp() - psi).norm() < 1e-14, "{sample}: {found} {psi}");
                let rows = &rows[2 * sample..][..2];
                assert!(rows.iter().zip(derivatives).all(|(row, other)| (row - other).abs() < 1e-14), "{rows:?}");
            }
        }
    }

    #[test]
    fn wrong_calls_are_named() {
        let message = |frame: TestFrame| { frame }.execute(logarithms).expect_err("a wrong call").message;
        let of = |samples: &[usize], rows: &[usize]| {
            let frame = frame(Threads::None, &[1; 6], true).result::<Complex<f32>>(samples);
            message(frame.result::<f32>(rows))
        };
        assert!(of(&[3], &[2, 2]).contains("'log_psi' has shape [3], expected [2]"), "{}", of(&[3], &[2, 2]));
        assert!(of(&[2], &[2, 3]).contains("'rows' has shape [2, 3], expected [2, 2]"), "{}", of(&[2], &[2, 3]));
        let planes = TestFrame::new(Threads::None).arg(&[1_u8; 3], &[1, 3]).arg(&[0.0; 3], &[3, 1]);
        assert!(message(planes).contains("the parameters have 3 planes"));
    }
}
