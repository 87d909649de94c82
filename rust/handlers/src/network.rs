//! Networks as programs of operations.

use crate::errors::invalid;
use bytemuck::Pod;
use ferroket_kernels::network::{Lanes, Program};
use ferroket_kernels::numbers::Real;
use ferroket_xla_ffi::{AnyBuffer, Arguments, Buffer, BufferMut, DataType, Element, Error, Frame, Rows, handler};
use num_complex::Complex;

/// So many products of two numbers are worth a thread's while.
const MIN_WORK: usize = 1 << 16;

/// A part of so many configurations fills the lanes of the longest vectors, twice.
const LANES: usize = 32;

handler! {
    /// Arguments `inputs (C, H)`, float32 or float64, or complex ones, each of which is two numbers, and those of [`read_program`];
    /// attribute `widths`; for each of these a result `values (C, width)`: together what the program makes of each row.
    pub(crate) fn values = call
}

fn call(frame: &Frame) -> Result<(), Error> {
    let mut args = frame.arguments();
    let inputs = args.any("inputs")?;
    match inputs.dtype() {
        DataType::F32 => run::<f32, f32>(frame, args, inputs),
        DataType::C64 => run::<f32, Complex<f32>>(frame, args, inputs),
        DataType::C128 => run::<f64, Complex<f64>>(frame, args, inputs),
        _ => run::<f64, f64>(frame, args, inputs),
    }
}

/// Evaluates a program of numbers T, of inputs each of which is one or two of them.
fn run<'a, T: Real + Element, I: Element + Pod>(
    frame: &Frame<'a>,
    mut args: Arguments<'_, 'a>,
    inputs: AnyBuffer<'a>,
) -> Result<(), Error> {
    let inputs: Buffer<I> = inputs.typed()?;
    inputs.expect_rank(2)?;
    let &[rows, width] = inputs.dims() else { unreachable!("there are two dimensions") };
    let width = width * (size_of::<I>() / size_of::<T>());
    let program = read_program::<T>(&mut args, width)?;
    args.finish()?;
    let all: usize = widths(frame)?.iter().sum();
    if all != program.results() {
        return Err(Error::invalid(format!("the program gives {} numbers, not {all}", program.results())));
    }
    let mut results = frame.results();
    let mut values = Vec::new();
    for width in widths(frame)? {
        let part: BufferMut<T> = results.typed("values")?;
        part.expect_dims(&[rows, width])?;
        values.push(Rows::new(part.into_mut_slice(), width));
    }
    results.finish()?;
    let inputs: &[T] = bytemuck::cast_slice(inputs.as_slice());
    let share = rows.div_ceil(frame.pool().threads()).next_multiple_of(LANES);
    let min = (MIN_WORK / program.work().max(1)).max(share.min(LANES));
    frame.pool().for_each_part(rows, min, values, |range, values| {
        let inputs = &inputs[range.start * width..range.end * width];
        let mut values: Vec<_> = values.into_iter().map(Rows::into_slice).collect();
        Lanes::default().evaluate_into(&program, inputs, range.len(), &mut values);
    })
}

/// How many numbers each result has of a row.
fn widths(frame: &Frame) -> Result<Vec<usize>, Error> {
    let widths = frame.attr_i64s("widths")?;
    let number =
        |&width: &i64| usize::try_from(width).map_err(|_| Error::invalid(format!("a result has the width {width}")));
    widths.iter().map(number).collect()
}

/// The seconds that each operation of a program takes for inputs, in float32 if it `is_single`.
pub fn profile(
    words: &[i32],
    tables: &[f64],
    inputs: &[f64],
    is_single: bool,
) -> Result<Vec<f64>, ferroket_kernels::Error> {
    let profile = if is_single { profile_of::<f32> } else { profile_of::<f64> };
    profile(words, tables, inputs)
}

fn profile_of<T: Real>(words: &[i32], tables: &[f64], inputs: &[f64]) -> Result<Vec<f64>, ferroket_kernels::Error> {
    let numbers = |numbers: &[f64]| numbers.iter().map(|&number| T::nearest(number)).collect::<Vec<_>>();
    let program = Program::new(words, &numbers(tables))?;
    let mut results = vec![T::default(); inputs.len() / program.inputs().max(1) * program.results()];
    Ok(Lanes::default().profile(&program, &numbers(inputs), &mut results))
}

/// Reads a [`Program`] of `width` inputs: arguments `words`, int32, and `tables`.
pub(crate) fn read_program<T: Real + Element>(args: &mut Arguments, width: usize) -> Result<Program<T>, Error> {
    let words = args.vector::<i32>("words")?;
    let tables = args.vector::<T>("tables")?;
    let program = Program::new(words, tables).map_err(|error| invalid(&error))?;
    if program.inputs() != width {
        return Err(Error::invalid(format!("the program takes {} numbers, not {width}", program.inputs())));
    }
    Ok(program)
}
