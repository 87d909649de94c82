//! The first layer of a network, of the configurations that an operator connects.

use crate::blocks::MIN_NUMBERS;
use crate::dtypes::with_number_type;
use crate::errors::{FirstError, invalid};
use crate::operators::read_sites;
use ferroket_kernels::amplitudes::{ConnectedSums, FirstLayer};
use ferroket_kernels::numbers::Real;
use ferroket_kernels::sites::{LocalStates, Sites};
use ferroket_xla_ffi::{AnyBuffer, Arguments, BufferMut, DataType, Element, Error, Frame, Rows, handler};

handler! {
    /// Arguments `x (C, N)` and `samples (Ns, N)` of numbers, `sample (C,)` of int32, the sample from which each
    /// configuration differs on a few sites, `kind`, and `constant (H,)` and `table (N, D - 1, H)` of a [`FirstLayer`];
    /// attributes `starts`, `steps` and `sizes`; result `sums (C, H)`, what the first layer makes of the configurations.
    pub(crate) fn sums = call
}

fn call(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let (x, samples) = (args.any("x")?, args.any("samples")?);
    x.expect_rank(2)?;
    samples.expect_rank(2)?;
    let (rows, n_sites) = (x.dims()[0], x.dims()[1]);
    samples.expect_dims(&[samples.dims()[0], n_sites])?;
    let sample = args.typed::<i32>("sample")?;
    sample.expect_dims(&[rows])?;
    let sample = sample.as_slice();
    let sites = read_sites(frame, &mut args, n_sites)?;
    let mut results = frame.results();
    let sums = results.any("sums")?;
    results.finish()?;
    let call = Call { frame, args, x, samples, sample, sites };
    if sums.dtype() == DataType::F32 { call.write::<f32>(sums.typed()?) } else { call.write::<f64>(sums.typed()?) }
}

struct Call<'f, 'a> {
    frame: &'f Frame<'a>,
    args: Arguments<'f, 'a>,
    x: AnyBuffer<'a>,
    samples: AnyBuffer<'a>,
    sample: &'a [i32],
    sites: Sites,
}

impl Call<'_, '_> {
    fn write<T: Real + Element>(self, sums: BufferMut<T>) -> Result<(), Error> {
        let Self { frame, mut args, x, samples, sample, sites } = self;
        let layer = read_layer::<T>(&mut args, (0..sites.len()).map(|site| sites.states(site).size))?;
        args.finish()?;
        let width = layer.width();
        sums.expect_dims(&[sample.len(), width])?;
        let sums = sums.into_mut_slice();
        with_number_type!(x.dtype(), "the configurations", S => {
            let (x, samples) = (x.typed::<S>()?.as_slice(), samples.typed::<S>()?.as_slice());
            let states = LocalStates::<S>::new(&sites).map_err(|error| invalid(&error))?;
            let min = MIN_NUMBERS / width.max(sites.len()).max(1);
            let first_error = FirstError::default();
            frame.pool().for_each_part(sample.len(), min, Rows::new(sums, width), |range, sums| {
                let mut connected = ConnectedSums::new(layer, &states, samples);
                let sums = sums.into_slice().chunks_exact_mut(width.max(1));
                let outcome = range.clone().zip(sums).try_for_each(|(row, sums)| {
                    connected.write(sample[row], &x[row * sites.len()..][..sites.len()], sums)
                });
                first_error.keep(range.start, outcome);
            })?;
            first_error.into_result(samples.len().checked_div(sites.len()).unwrap_or_default())
        })
    }
}

/// Reads `constant` and `table` of a first layer on sites with so many local states each.
pub(crate) fn read_layer<'a, T: Real + Element>(
    args: &mut Arguments<'_, 'a>,
    sizes: impl ExactSizeIterator<Item = usize>,
) -> Result<FirstLayer<'a, T>, Error> {
    let constant = args.vector::<T>("constant")?;
    let table = args.typed::<T>("table")?;
    table.expect_rank(3)?;
    // The first local state of a site adds nothing, and isn't there.
    let (sites, states) = (sizes.len(), table.dims()[1] + 1);
    table.expect_dims(&[sites, states - 1, constant.len()])?;
    if let Some(site) = sizes.enumerate().find_map(|(site, size)| (size > states).then_some(site)) {
        return Err(Error::invalid(format!("the first layer doesn't know all local states of site {site}")));
    }
    FirstLayer::new(sites, states, constant, table.as_slice()).map_err(|error| invalid(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::POOLS;
    use ferroket_xla_ffi::testing::{TestFrame, Threads};

    /// Two sites, and a first layer of two sums: how many sites have index 1, and twice that of the second one less 1.
    fn frame(threads: Threads, x: &[i8], samples: &[i8], sample: &[i32]) -> TestFrame {
        TestFrame::new(threads)
            .attr_array("starts", &[0.0])
            .attr_array("steps", &[1.0])
            .attr_array("sizes", &[2_i64])
            .arg(x, &[x.len() / 2, 2])
            .arg(samples, &[samples.len() / 2, 2])
            .arg(sample, &[sample.len()])
            .arg::<i32>(&[], &[0])
    }

    fn with_layer(frame: TestFrame, rows: usize) -> TestFrame {
        frame.arg(&[0.0_f32, -1.0], &[2]).arg(&[1.0_f32, 0.0, 1.0, 2.0], &[2, 1, 2]).result::<f32>(&[rows, 2])
    }

    #[test]
    fn sums_of_configurations() {
        for threads in POOLS {
            let rows = 40_000;
            let x: Vec<i8> = (0..rows).flat_map(|row| [i8::from(row % 3 == 0), i8::from(row % 2 == 0)]).collect();
            let sample: Vec<i32> = (0..rows as i32).map(|row| row * 3 / rows as i32).collect();
            let mut frame = with_layer(frame(threads, &x, &[0, 0, 1, 0, 1, 1], &sample), rows);
            assert_eq!(frame.execute(sums), Ok(()));
            let expected = x.chunks(2).flat_map(|x| [f32::from(x[0] + x[1]), f32::from(2 * x[1] - 1)]);
            assert!(frame.read::<f32>(0).into_iter().eq(expected));
        }
    }

    #[test]
    fn wrong_calls_are_named() {
        let message = |frame: TestFrame| { frame }.execute(sums).expect_err("a wrong call").message;
        let call = |x: &[i8], sample: &[i32]| frame(Threads::None, x, &[0, 0, 1, 0], sample);
        assert_eq!(
            message(with_layer(call(&[0, 1, 2, 1], &[0, 1]), 2)),
            "sample 1, site 0 has the value 2, but the local states are 0 and 1 (counted among the 2 of this device)"
        );
        for sample in [2, -1] {
            let found = message(with_layer(call(&[0, 1], &[sample]), 1));
            assert!(found.contains(&format!("a configuration is of sample {sample}, but there are 2")), "{found}");
        }
        let few = call(&[0, 1], &[0]).arg(&[0.0_f32], &[1]).arg::<f32>(&[], &[2, 0, 1]).result::<f32>(&[1, 1]);
        assert_eq!(message(few), "the first layer doesn't know all local states of site 0");
        assert_eq!(message(with_layer(call(&[0, 1], &[0, 0]), 1)), "'sample' has shape [2], expected [1]");
        assert_eq!(message(with_layer(call(&[0, 1], &[0]), 3)), "'sums' has shape [3, 2], expected [1, 2]");
    }
}
