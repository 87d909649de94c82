//! Determinants of fermions beside other factors of a network: their logarithms with derivatives, and their ratios.

use crate::amplitudes::{SlaterArguments, with_fermions};
use crate::blocks::MIN_NUMBERS;
use crate::dtypes::{Numbers, narrow, numbers_of};
use crate::errors::{FirstError, invalid};
use ferroket_kernels::amplitudes::fermions::{ConnectedRatios, Orbital};
use ferroket_kernels::amplitudes::slater::{LogDerivatives, Slater};
use ferroket_kernels::sites::LocalIndex;
use ferroket_xla_ffi::{AnyBufferMut, DataType, Element, Error, Frame, Rows, handler};
use num_complex::Complex;

handler! {
    /// Arguments `n (Ns, D, N)` of uint8, 0 for an empty mode, those of each of D determinants, and their
    /// `orbitals (P, D, K)`; attributes `fermions` and `holes`, see `SlaterArguments`, and `rows`; results `log_psi (Ns, D)` of
    /// complex64 or complex128, the logarithm of each determinant, and with `rows` its derivatives by all its orbitals,
    /// `rows (Ns, D, K)`, real or complex numbers of that precision.
    pub(crate) fn logarithms = call_logarithms
}

handler! {
    /// Arguments `x (C, N)` and `samples (Ns, N)` of uint8, 0 for an empty mode, `sample (C,)` of int32, the sample from
    /// which each configuration differs on a few sites, and the `orbitals (P, D, K)` of determinants that are summed up;
    /// attributes `fermions` and `holes`; result `log_ratio (C,)` of complex64 or complex128, the logarithm of ψ(x) / ψ(σ).
    pub(crate) fn ratios = call_ratios
}

/// To compute a determinant is worth as many numbers of the results as it has orbitals, times this.
const WORK: usize = 8;

fn call_logarithms(frame: &Frame) -> Result<(), Error> {
    let with_rows = frame.attr_bool("rows")?;
    let (mut args, mut results) = (frame.arguments(), frame.results());
    let n = args.typed::<u8>("n")?;
    n.expect_rank(3)?;
    let [samples, determinants, sites] = [n.dims()[0], n.dims()[1], n.dims()[2]];
    let orbitals = SlaterArguments::read(frame, &mut args, "")?;
    args.finish()?;
    let log_psi = results.any("log_psi")?;
    let rows = with_rows.then(|| results.any("rows")).transpose()?;
    results.finish()?;
    log_psi.expect_dims(&[samples, determinants])?;
    with_fermions!(orbitals, sites, slater => {
        slater.expect_determinants(determinants).map_err(|error| invalid(&error))?;
        let call = Logarithms { frame, n: n.as_slice(), sites, slater: &slater };
        call.write(log_psi, rows)
    })
}

/// The determinants of a call.
struct Logarithms<'f, 'a, E> {
    frame: &'f Frame<'a>,
    n: &'a [u8],
    sites: usize,
    slater: &'f Slater<E>,
}

impl<E: Numbers> Logarithms<'_, '_, E> {
    fn write(self, log_psi: AnyBufferMut, rows: Option<AnyBufferMut>) -> Result<(), Error> {
        if log_psi.dtype() == DataType::C64 {
            self.write_as::<Complex<f32>, E::Single>(log_psi, rows, narrow, E::single)
        } else {
            self.write_as::<Complex<f64>, E>(log_psi, rows, |number| number, |number| number)
        }
    }

    fn write_as<C: Element, O: Element>(
        self,
        log_psi: AnyBufferMut,
        rows: Option<AnyBufferMut>,
        logarithm: fn(Complex<f64>) -> C,
        number: fn(E) -> O,
    ) -> Result<(), Error> {
        let Self { frame, n, sites, slater } = self;
        let dims = log_psi.dims().to_vec();
        let (samples, determinants) = (dims[0], dims[1]);
        let (len, has_rows) = (slater.orbitals_len(), rows.is_some());
        let rows = numbers_of::<O>(rows, &[samples, determinants, len])?;
        let width = if has_rows { determinants * len } else { 0 };
        let parts = (Rows::new(log_psi.typed::<C>()?.into_mut_slice(), determinants), Rows::new(rows, width));
        let min = MIN_NUMBERS / (WORK * determinants * len).max(1);
        frame.pool().for_each_part(samples, min, parts, |range, (log_psi, rows)| {
            let mut derivatives = LogDerivatives::new(slater);
            let (mut indices, mut numbers) = (vec![0; sites], vec![E::default(); len]);
            let mut rows = rows.into_slice().chunks_exact_mut(len.max(1));
            for (place, log_psi) in log_psi.into_slice().iter_mut().enumerate() {
                read(&n[(range.start * determinants + place) * sites..], &mut indices);
                let wanted = has_rows.then_some(&mut numbers[..]);
                *log_psi = logarithm(derivatives.evaluate(place % determinants, &indices, wanted));
                if let Some(row) = rows.next() {
                    row.iter_mut().zip(&numbers).for_each(|(to, &from)| *to = number(from));
                }
            }
        })
    }
}

fn call_ratios(frame: &Frame) -> Result<(), Error> {
    let (mut args, mut results) = (frame.arguments(), frame.results());
    let (x, samples) = (args.typed::<u8>("x")?, args.typed::<u8>("samples")?);
    x.expect_rank(2)?;
    let (rows, sites) = (x.dims()[0], x.dims()[1]);
    samples.expect_rank(2)?;
    samples.expect_dims(&[samples.dims()[0], sites])?;
    let sample = args.typed::<i32>("sample")?;
    sample.expect_dims(&[rows])?;
    let orbitals = SlaterArguments::read(frame, &mut args, "")?;
    args.finish()?;
    let log_ratio = results.any("log_ratio")?;
    results.finish()?;
    log_ratio.expect_dims(&[rows])?;
    let (x, samples, sample) = (x.as_slice(), samples.as_slice(), sample.as_slice());
    with_fermions!(orbitals, sites, slater => {
        let first_error = FirstError::default();
        let mut wide = vec![Complex::<f64>::default(); rows];
        frame.pool().for_each_part(rows, MIN_NUMBERS / sites.max(1), Rows::new(&mut wide, 1), |range, log_ratio| {
            let mut ratios = ConnectedRatios::new(&slater, sites, samples);
            let places = range.clone().zip(log_ratio.into_slice());
            let outcome = places.into_iter().try_for_each(|(row, log_ratio)| {
                let ratio = ratios.ratio(sample[row], &x[row * sites..][..sites])?;
                *log_ratio = Complex::new(ratio.modulus().ln(), ratio.argument());
                Ok(())
            });
            first_error.keep(range.start, outcome);
        })?;
        if log_ratio.dtype() == DataType::C64 {
            let narrowed = log_ratio.typed::<Complex<f32>>()?.into_mut_slice();
            narrowed.iter_mut().zip(wide).for_each(|(to, from)| *to = narrow(from));
        } else {
            log_ratio.typed::<Complex<f64>>()?.into_mut_slice().copy_from_slice(&wide);
        }
        first_error.into_result(samples.len().checked_div(sites).unwrap_or_default())
    })
}

/// Occupations as local indices.
fn read(n: &[u8], indices: &mut [LocalIndex]) {
    for (index, &occupation) in indices.iter_mut().zip(n) {
        *index = LocalIndex::from(occupation != 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::POOLS;
    use ferroket_xla_ffi::testing::{TestFrame, Threads};

    /// Two fermions on three modes, with orbitals (1, 0), (0, 2) and (3, 1).
    const ORBITALS: [f64; 6] = [1.0, 0.0, 0.0, 2.0, 3.0, 1.0];

    fn logarithms_of(threads: Threads, n: &[u8], dims: &[usize], fermions: &[i64], rows: bool) -> TestFrame {
        let frame = TestFrame::new(threads)
            .attr_array("fermions", fermions)
            .attr_i64("holes", -1)
            .attr_bool("rows", rows)
            .arg(n, dims);
        frame.arg(&ORBITALS, &[1, 1, 6]).result::<Complex<f64>>(&[dims[0], 1])
    }

    #[test]
    fn logarithms_of_an_example() {
        let samples = 3000;
        let n: Vec<u8> = (0..samples).flat_map(|sample| [[1, 1, 0], [1, 0, 1], [0, 1, 1]][sample % 3]).collect();
        for threads in POOLS {
            let frame = logarithms_of(threads, &n, &[samples, 1, 3], &[2], true);
            let mut frame = frame.result::<f64>(&[samples, 1, 6]);
            assert_eq!(frame.execute(logarithms), Ok(()));
            // The determinants are 2, 1 and -6.
            let expected =
                [Complex::new(2.0_f64.ln(), 0.0), 0.0.into(), Complex::new(6.0_f64.ln(), std::f64::consts::PI)];
            for (found, expected) in frame.read::<Complex<f64>>(0).into_iter().zip(expected.into_iter().cycle()) {
                assert!((found - expected).norm() < 1e-14, "{found} {expected}");
            }
            let rows = frame.read::<f64>(1);
            let expected = [1.0, 0.0, 0.0, 0.5, 0.0, 0.0, 1.0, -3.0, 0.0, 0.0, 0.0, 1.0];
            assert!(rows.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-14), "{rows:?}");
            assert_eq!(rows[..12], rows[rows.len() - 18..][..12]);
        }
    }

    #[test]
    fn ratios_of_an_example() {
        let rows = 40_000;
        let x: Vec<u8> = (0..rows).flat_map(|row| [[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 0, 0]][row % 4]).collect();
        let sample: Vec<i32> = (0..rows as i32).map(|row| row * 2 / rows as i32).collect();
        let psi = [2.0, 1.0, -6.0, 0.0];
        for threads in POOLS {
            let frame =
                TestFrame::new(threads).attr_array("fermions", &[2_i64]).attr_i64("holes", -1).arg(&x, &[rows, 3]);
            let frame = frame.arg(&[1_u8, 1, 0, 0, 1, 1], &[2, 3]).arg(&sample, &[rows]).arg(&ORBITALS, &[1, 1, 6]);
            let mut frame = frame.result::<Complex<f32>>(&[rows]);
            assert_eq!(frame.execute(ratios), Ok(()));
            for (row, found) in frame.read::<Complex<f32>>(0).into_iter().enumerate() {
                let expected = psi[row % 4] as f32 / [2.0, -6.0][sample[row] as usize];
                assert!((found.exp() - expected).norm() < 1e-6, "{row}: {found} {expected}");
            }
        }
    }

    #[test]
    fn wrong_calls_are_named() {
        let message = |frame: TestFrame| { frame }.execute(logarithms).expect_err("a wrong call").message;
        let call = |n: &[u8], dims: &[usize], fermions: &[i64]| logarithms_of(Threads::None, n, dims, fermions, false);
        assert!(message(call(&[1; 3], &[1, 1, 3], &[1])).contains("`orbitals` has 6 numbers"));
        assert!(message(call(&[1; 3], &[1, 1, 3], &[4])).contains("there are 4 fermions on 3 modes"));
        assert!(message(call(&[1; 3], &[1, 1, 3], &[])).contains("there are 0 sectors"));
        let two = TestFrame::new(Threads::None)
            .attr_array("fermions", &[2_i64])
            .attr_i64("holes", -1)
            .attr_bool("rows", false);
        let two = two.arg(&[1_u8; 6], &[1, 2, 3]).arg(&ORBITALS, &[1, 1, 6]).result::<Complex<f64>>(&[1, 2]);
        assert!(message(two).contains("configurations of 2 determinants, but there are 1"));
        let ratio = TestFrame::new(Threads::None)
            .attr_array("fermions", &[2_i64])
            .attr_i64("holes", -1)
            .arg(&[1_u8, 1, 0], &[1, 3]);
        let ratio = ratio.arg(&[1_u8, 1, 1], &[1, 3]).arg(&[0], &[1]).arg(&ORBITALS, &[1, 1, 6]);
        let found = { ratio.result::<Complex<f64>>(&[1]) }.execute(ratios).expect_err("a wrong call").message;
        assert!(found.starts_with("sector 0 has 3 fermions, but the determinant has 2 orbitals there"), "{found}");
    }
}
