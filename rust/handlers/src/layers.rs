//! Networks of dense layers, behind the first one.

use crate::errors::invalid;
use ferroket_kernels::amplitudes::{Activation, LayerRows, Layers};
use ferroket_kernels::numbers::Real;
use ferroket_xla_ffi::{AnyBuffer, Arguments, Buffer, BufferMut, DataType, Element, Error, Frame, Rows, handler};

/// So many products of two numbers are worth a thread's while.
const MIN_WORK: usize = 1 << 16;

handler! {
    /// Arguments `sums (C, H)`, float32 or float64, of a first layer, and those of [`read_layers`], whose attribute it
    /// has; result `log_psi (C,)`, what the layers make of them.
    pub(crate) fn log_psi = call
}

fn call(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let sums = args.any("sums")?;
    if sums.dtype() == DataType::F32 { run::<f32>(frame, args, sums) } else { run::<f64>(frame, args, sums) }
}

fn run<'a, T: Real + Element>(
    frame: &Frame<'a>,
    mut args: Arguments<'_, 'a>,
    sums: AnyBuffer<'a>,
) -> Result<(), Error> {
    let sums: Buffer<T> = sums.typed()?;
    sums.expect_rank(2)?;
    let &[rows, width] = sums.dims() else { unreachable!("there are two dimensions") };
    let layers = read_layers::<T>(frame, &mut args, width)?;
    args.finish()?;
    if layers.is_empty() {
        return Err(Error::invalid("there are no layers"));
    }
    let mut results = frame.results();
    let log_psi: BufferMut<T> = results.typed("log_psi")?;
    log_psi.expect_dims(&[rows])?;
    results.finish()?;
    let sums = sums.as_slice();
    let min = MIN_WORK / layers.work();
    frame.pool().for_each_part(rows, min, Rows::new(log_psi.into_mut_slice(), 1), |range, log_psi| {
        let mut memory = LayerRows::default();
        memory.sums.extend_from_slice(&sums[range.start * width..range.end * width]);
        memory.evaluate(&layers);
        log_psi.into_slice().copy_from_slice(&memory.log_psi);
    })
}

/// Reads [`Layers`] behind `width` sums: the attribute `activations`, the names of their functions with commas in
/// between, and for each two arguments, `matrix (depth, columns)` and `bias (columns,)`.
pub(crate) fn read_layers<T: Real + Element>(
    frame: &Frame,
    args: &mut Arguments,
    width: usize,
) -> Result<Layers<T>, Error> {
    let names = frame.attr_str("activations")?;
    let mut stages = Vec::new();
    let mut depth = width;
    for name in names.split(',').filter(|name| !name.is_empty()) {
        let matrix = args.typed::<T>("matrix")?;
        let bias = args.vector::<T>("bias")?;
        matrix.expect_dims(&[depth, bias.len()])?;
        depth = bias.len();
        stages.push((Activation::named(name).map_err(|error| invalid(&error))?, matrix, bias));
    }
    let stages = stages.iter().map(|(function, matrix, bias)| (*function, matrix.as_slice(), *bias));
    Layers::new(width, stages).map_err(|error| invalid(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::POOLS;
    use ferroket_xla_ffi::testing::{TestFrame, Threads};

    /// ln ψ = 3 relu(a - b) + 1, of sums a and b.
    fn frame(threads: Threads, activations: &str, sums: &[f32]) -> TestFrame {
        TestFrame::new(threads)
            .attr_str("activations", activations)
            .arg(sums, &[sums.len() / 2, 2])
            .arg(&[1.0_f32, 0.0, -1.0, 0.0], &[2, 2])
            .arg(&[0.0_f32, 0.5], &[2])
            .arg(&[3.0_f32, 0.0], &[2, 1])
            .arg(&[1.0_f32], &[1])
            .result::<f32>(&[sums.len() / 2])
    }

    #[test]
    fn layers_of_many_rows() {
        for threads in POOLS {
            let sums: Vec<f32> = (0..40_000_u16).flat_map(|row| [f32::from(row % 7), f32::from(row % 3)]).collect();
            let mut frame = frame(threads, "relu,relu", &sums);
            assert_eq!(frame.execute(log_psi), Ok(()));
            let expected = sums.chunks(2).map(|sums| 3.0 * (sums[0] - sums[1]).max(0.0) + 1.0);
            assert!(frame.read::<f32>(0).into_iter().eq(expected));
        }
    }

    #[test]
    fn wrong_calls_are_named() {
        let message =
            |activations| frame(Threads::None, activations, &[1.0; 4]).execute(log_psi).expect_err("wrong").message;
        assert_eq!(message(""), "the call has 5 arguments, but the handler takes 1");
        assert!(message("relu,sine").ends_with("there is no activation function 'sine'"));
        assert!(message("relu").contains("the last layer gives 2 numbers, not one"), "{}", message("relu"));
        let one =
            TestFrame::new(Threads::None).attr_str("activations", "").arg(&[1.0, 2.0], &[1, 2]).result::<f64>(&[1]);
        assert_eq!({ one }.execute(log_psi).expect_err("wrong").message, "there are no layers");
    }
}
