//! Linear systems that several devices share, panel by panel.
//!
//! All have the attributes `devices`, `steps`, `length` and `is_complex`, see [`Share`], and where it matters the argument `device ()`
//! of int32, the place of the device, and `step ()` of int32, the panel. Arrays are of real floats of one type, in planes where
//! numbers are complex: `panels`, the rows of a device; `vectors (N', Q)`, those of right-hand sides and solutions, with padding;
//! and `diagonals`, what is on the diagonal of all panels.

use crate::linear_algebra::{OnPool, real_numbers, real_numbers_mut, terms};
use bytemuck::Pod;
use ferroket_kernels::linear_algebra::{
    BLOCK, Shape, Share, factor, put_solution, put_solution_of_gram, rows_of_panel, solve_back, start_gram, start_rows,
    update,
};
use ferroket_kernels::numbers::Real;
use ferroket_xla_ffi::{Arguments, BufferMut, DataType, Element, Error, Frame, Results, handler};
use num_complex::Complex;

handler! {
    /// Arguments `device`, `rows (n, N)` and `right (N,)`, of real or complex floats; attribute `count`: rows from there on are
    /// padding. Results `panels` and `vectors`; see [`start_rows`].
    pub(crate) fn start = call_start
}

handler! {
    /// Arguments `device`, `right (N, C)`, `shift ()`, real, and of each term those that a Gram matrix has. Attributes `terms`
    /// and `side`, as there. Results `panels` and `vectors`; see [`start_gram`].
    pub(crate) fn start_of_gram = call_start_of_gram
}

handler! {
    /// Arguments `step` and `panels`; result `rows (columns, length)`; see [`rows_of_panel`].
    pub(crate) fn rows = call_rows
}

handler! {
    /// Arguments `device`, `step`, `gathered (devices, columns, length)`, the rows of all devices, and `vectors`; result `own`, of
    /// what the device sends; `panels` is updated; see [`update`].
    pub(crate) fn update_panel = call_update
}

handler! {
    /// Arguments `device`, `step` and `gathered`, what devices send; `panels`, `vectors` and `diagonals` are updated; see [`factor`].
    pub(crate) fn factor_panel = call_factor
}

handler! {
    /// Arguments `device`, `step`, `of_panel`, sums of all devices, `panels` and `diagonals`; `vectors` and `sums` are updated; see
    /// [`solve_back`].
    pub(crate) fn solve_panel = call_solve
}

handler! {
    /// Arguments `device` and `vectors`; attribute `components`, of rows of a Gram matrix, or 0; result `solution (n,)` or `(n, C)`.
    pub(crate) fn solution = call_solution
}

/// Takes the first argument, the place of the device.
fn share_of(frame: &Frame, args: &mut Arguments) -> Result<Share, Error> {
    let device = args.scalar::<i32>("device")?;
    share(frame, device)
}

fn share(frame: &Frame, device: i32) -> Result<Share, Error> {
    let attribute = |name| -> Result<usize, Error> {
        let number = frame.attr_i64(name)?;
        usize::try_from(number).map_err(|_| Error::invalid(format!("{name} is {number}, but must not be negative")))
    };
    let [devices, steps, length] = [attribute("devices")?, attribute("steps")?, attribute("length")?];
    let device = usize::try_from(device).ok().filter(|&device| device < devices);
    let device = device.ok_or_else(|| Error::invalid(format!("the device isn't one of {devices}")))?;
    if length == 0 || !(devices * length).is_multiple_of(BLOCK) {
        return Err(Error::invalid(format!(
            "panels have {devices} × {length} rows, but must have a multiple of {BLOCK}"
        )));
    }
    Ok(Share { devices, device, steps, length, is_complex: attribute("is_complex")? != 0 })
}

fn step(args: &mut Arguments, share: Share) -> Result<usize, Error> {
    let step = args.scalar::<i32>("step")?;
    let found = usize::try_from(step).ok().filter(|&step| step < share.steps);
    found.ok_or_else(|| Error::invalid(format!("panel {step} isn't one of {}", share.steps)))
}

/// Calls a function for numbers of the type of an argument that isn't updated, behind some others.
macro_rules! by_type {
    ($frame:expr, $call:ident, $($before:literal),+; $name:literal) => {{
        let mut args = $frame.arguments();
        $(args.any($before)?;)+
        match args.any($name)?.dtype() {
            DataType::F32 | DataType::C64 => $call::<f32>($frame),
            DataType::F64 | DataType::C128 => $call::<f64>($frame),
            other => Err(Error::invalid(format!("{} has dtype {other}, but must have real or complex floats", $name))),
        }
    }};
}

fn call_start(frame: &Frame) -> Result<(), Error> {
    by_type!(frame, start_with, "device"; "rows")
}

fn start_with<T: Real + Element>(frame: &Frame) -> Result<(), Error>
where
    Complex<T>: Element + Pod,
{
    let mut args = frame.arguments();
    let share = share_of(frame, &mut args)?;
    let (rows, right) = (args.any("rows")?, args.any("right")?);
    args.finish()?;
    right.expect_rank(1)?;
    let &[all] = right.dims() else { unreachable!("there is one dimension") };
    let of_device = of_device(share, all)?;
    rows.expect_dims(&[of_device, all])?;
    has_room(share, of_device)?;
    let count = usize::try_from(frame.attr_i64("count")?).ok().filter(|&count| count <= all);
    let count = count.ok_or_else(|| Error::invalid(format!("count isn't one of {all} rows")))?;
    let ((rows, of_rows), (right, of_right)) = (real_numbers::<T>(rows)?, real_numbers::<T>(right)?);
    if [of_rows, of_right] != [share.is_complex; 2] {
        return Err(Error::invalid("the rows and the right-hand side aren't both real or both complex".to_owned()));
    }
    let mut results = frame.results();
    let (panels, vectors) = started::<T>(share, &mut results)?;
    results.finish()?;
    start_rows(share, count, [rows, right], panels, vectors, &OnPool(frame))
}

/// The results that a system starts with.
fn started<'a, T: Real + Element>(
    share: Share,
    results: &mut Results<'_, 'a>,
) -> Result<(&'a mut [T], &'a mut [T]), Error>
where
    Complex<T>: Element + Pod,
{
    let (panels, vectors) = (results.any("panels")?, results.typed::<T>("vectors")?);
    panels.expect_dims(&[share.of_rows::<T>()])?;
    vectors.expect_dims(&[share.side(), share.vectors()])?;
    Ok((real_numbers_mut::<T>(panels)?.0, vectors.into_mut_slice()))
}

/// How many of all each device has.
fn of_device(share: Share, all: usize) -> Result<usize, Error> {
    if !all.is_multiple_of(share.devices) {
        return Err(Error::invalid(format!("{all} rows can't be shared by {} devices", share.devices)));
    }
    Ok(all / share.devices)
}

fn has_room(share: Share, rows: usize) -> Result<(), Error> {
    let room = share.steps * share.length;
    if rows > room {
        return Err(Error::invalid(format!("a device has {rows} rows, but {room} are its blocks'")));
    }
    Ok(())
}

fn call_start_of_gram(frame: &Frame) -> Result<(), Error> {
    by_type!(frame, start_of_gram_with, "device"; "right")
}

fn start_of_gram_with<T: Real + Element>(frame: &Frame) -> Result<(), Error>
where
    Complex<T>: Element + Pod,
{
    let mut args = frame.arguments();
    let share = share_of(frame, &mut args)?;
    let right = args.any("right")?;
    let shift = args.scalar::<T>("shift")?;
    right.expect_rank(2)?;
    let &[samples, components] = right.dims() else { unreachable!("there are two dimensions") };
    let (right, is_complex) = real_numbers::<T>(right)?;
    if is_complex != share.is_complex {
        return Err(Error::invalid("the right-hand side isn't real or complex as the system is".to_owned()));
    }
    let shape = shape(share, samples, components, frame.attr_i64("side")?)?;
    let terms = terms::<T>(frame, &mut args, shape)?;
    args.finish()?;
    let mut results = frame.results();
    let (panels, vectors) = started::<T>(share, &mut results)?;
    results.finish()?;
    start_gram(share, &terms, shape, shift, right, panels, vectors, &OnPool(frame))
}

/// The shape of a Gram matrix of so many samples of all devices.
fn shape(share: Share, samples: usize, components: usize, side: i64) -> Result<Shape, Error> {
    if components != 1 && (components != 2 || share.is_complex) {
        return Err(Error::invalid(format!(
            "{components} rows of each sample, but there must be one, or two of real numbers"
        )));
    }
    let rows = of_device(share, samples)?;
    // Whole panels for all types and vectors.
    let side = usize::try_from(side).ok().filter(|&side| side > 0 && side.is_multiple_of(48));
    let side = side.ok_or_else(|| Error::invalid("the side of tiles isn't a multiple of 48".to_owned()))?;
    has_room(share, components * rows)?;
    let Share { device, is_complex, .. } = share;
    Ok(Shape { rows, columns: samples, components, device, side, is_complex, is_transposed: true })
}

fn call_rows(frame: &Frame) -> Result<(), Error> {
    by_type!(frame, rows_with, "step"; "panels")
}

fn rows_with<T: Real + Element>(frame: &Frame) -> Result<(), Error> {
    let share = share(frame, 0)?;
    let (mut args, mut results) = (frame.arguments(), frame.results());
    let step = step(&mut args, share)?;
    let panels = args.vector::<T>("panels")?;
    args.finish()?;
    let rows = results.typed::<T>("rows")?;
    results.finish()?;
    rows.expect_rank(2)?;
    let &[columns, length] = rows.dims() else { unreachable!("there are two dimensions") };
    expect(panels.len() == share.of_rows::<T>() && length == share.length && columns <= share.columns())?;
    rows_of_panel(share, step, panels, rows.into_mut_slice());
    Ok(())
}

fn expect(is_right: bool) -> Result<(), Error> {
    if is_right { Ok(()) } else { Err(Error::invalid("arrays aren't of the shapes of a shared system".to_owned())) }
}

fn call_update(frame: &Frame) -> Result<(), Error> {
    by_type!(frame, update_with, "device", "step"; "gathered")
}

fn update_with<T: Real + Element>(frame: &Frame) -> Result<(), Error> {
    let (mut args, mut results) = (frame.arguments(), frame.results());
    let share = share_of(frame, &mut args)?;
    let step = step(&mut args, share)?;
    let gathered = args.typed::<T>("gathered")?;
    let vectors = args.typed::<T>("vectors")?;
    let panels = results.updated::<T>(&mut args, "panels")?.into_mut_slice();
    args.finish()?;
    let own = results.typed::<T>("own")?;
    results.finish()?;
    gathered.expect_rank(3)?;
    let &[devices, columns, length] = gathered.dims() else { unreachable!("there are three dimensions") };
    vectors.expect_dims(&[share.side(), share.vectors()])?;
    expect([devices, length] == [share.devices, share.length] && columns >= share.columns_before(step))?;
    expect(own.len() == share.of_panel() && panels.len() == share.of_rows::<T>())?;
    let (vectors, gathered) = (vectors.as_slice(), gathered.as_slice());
    update(share, step, panels, vectors, gathered, own.into_mut_slice(), &OnPool(frame))
}

fn call_factor(frame: &Frame) -> Result<(), Error> {
    by_type!(frame, factor_with, "device", "step"; "gathered")
}

fn factor_with<T: Real + Element>(frame: &Frame) -> Result<(), Error> {
    let (mut args, mut results) = (frame.arguments(), frame.results());
    let share = share_of(frame, &mut args)?;
    let step = step(&mut args, share)?;
    let gathered = args.typed::<T>("gathered")?.as_slice();
    let panels = results.updated::<T>(&mut args, "panels")?.into_mut_slice();
    let vectors = updated_vectors(share, &mut results, &mut args, "vectors")?;
    let diagonals = results.updated::<T>(&mut args, "diagonals")?.into_mut_slice();
    args.finish()?;
    results.finish()?;
    expect(gathered.len() == share.devices * share.of_panel() && panels.len() == share.of_rows::<T>())?;
    expect(diagonals.len() == share.steps * share.of_diagonal::<T>())?;
    factor(share, step, panels, vectors, diagonals, gathered, &OnPool(frame))
}

fn updated_vectors<'a, T: Real + Element>(
    share: Share,
    results: &mut Results<'_, 'a>,
    args: &mut Arguments<'_, 'a>,
    name: &'static str,
) -> Result<&'a mut [T], Error> {
    let vectors: BufferMut<T> = results.updated(args, name)?;
    vectors.expect_dims(&[share.side(), share.vectors()])?;
    Ok(vectors.into_mut_slice())
}

fn call_solve(frame: &Frame) -> Result<(), Error> {
    by_type!(frame, solve_with, "device", "step"; "of_panel")
}

fn solve_with<T: Real + Element>(frame: &Frame) -> Result<(), Error> {
    let (mut args, mut results) = (frame.arguments(), frame.results());
    let share = share_of(frame, &mut args)?;
    let step = step(&mut args, share)?;
    let of_panel = args.typed::<T>("of_panel")?.as_slice();
    let (panels, diagonals) = (args.typed::<T>("panels")?.as_slice(), args.typed::<T>("diagonals")?.as_slice());
    let vectors = updated_vectors(share, &mut results, &mut args, "vectors")?;
    let sums = updated_vectors(share, &mut results, &mut args, "sums")?;
    args.finish()?;
    results.finish()?;
    expect(of_panel.len() * share.steps == sums.len() && panels.len() == share.of_rows::<T>())?;
    expect(diagonals.len() == share.steps * share.of_diagonal::<T>())?;
    solve_back(share, step, vectors, sums, panels, diagonals, of_panel, &OnPool(frame))
}

fn call_solution(frame: &Frame) -> Result<(), Error> {
    by_type!(frame, solution_with, "device"; "vectors")
}

fn solution_with<T: Real + Element>(frame: &Frame) -> Result<(), Error>
where
    Complex<T>: Element + Pod,
{
    let (mut args, mut results) = (frame.arguments(), frame.results());
    let share = share_of(frame, &mut args)?;
    let vectors = args.typed::<T>("vectors")?;
    args.finish()?;
    vectors.expect_dims(&[share.side(), share.vectors()])?;
    let solution = results.any("solution")?;
    results.finish()?;
    let (rows, components) = match *solution.dims() {
        [rows] => (rows, None),
        [rows, components] => (rows, Some(components)),
        _ => return Err(Error::invalid("a solution has one dimension, or two of a Gram matrix".to_owned())),
    };
    let (solution, is_complex) = real_numbers_mut::<T>(solution)?;
    expect(is_complex == share.is_complex)?;
    if let Some(components) = components {
        let shape = shape(share, rows * share.devices, components, frame.attr_i64("side")?)?;
        put_solution_of_gram(share, shape, vectors.as_slice(), solution);
    } else {
        has_room(share, rows)?;
        put_solution(share, vectors.as_slice(), solution);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::POOLS;
    use ferroket_xla_ffi::raw::Handler;
    use ferroket_xla_ffi::testing::{TestFrame, Threads};

    const SIDE: usize = 16;
    const SHARE: Share = Share { devices: 1, device: 0, steps: 2, length: 8, is_complex: false };

    fn frame(threads: Threads) -> TestFrame {
        TestFrame::new(threads)
            .attr_i64("devices", 1)
            .attr_i64("steps", 2)
            .attr_i64("length", 8)
            .attr_i64("is_complex", 0)
    }

    /// The panels and vectors that a handler starts with.
    fn started(mut call: TestFrame, handler: Handler) -> [Vec<f64>; 2] {
        call = call.result::<f64>(&[SHARE.of_rows::<f64>()]).result::<f64>(&[SIDE, 3]);
        assert_eq!(call.execute(handler), Ok(()));
        [call.read(0), call.read(1)]
    }

    /// Solves what one device has started, by all of its calls.
    fn solved(threads: Threads, [mut panels, mut vectors]: [Vec<f64>; 2]) -> Vec<f64> {
        let (of_panels, of_diagonals) = ([panels.len()], [2, SHARE.of_diagonal::<f64>()]);
        let mut diagonals = vec![0.0; 2 * of_diagonals[1]];
        for step in [0, 1] {
            let mut call = frame(threads).arg(&[step], &[]).arg(&panels, &of_panels).result::<f64>(&[8, 8]);
            assert_eq!(call.execute(rows), Ok(()));
            let sent = call.read::<f64>(0);
            let of_step = || frame(threads).arg(&[0_i32], &[]).arg(&[step], &[]);
            let call = of_step().arg(&sent, &[1, 8, 8]).arg(&vectors, &[SIDE, 3]).arg(&panels, &of_panels);
            let mut call = call.aliased_result(4).result::<f64>(&[11, 8]);
            assert_eq!(call.execute(update_panel), Ok(()));
            let (updated, own) = (call.read::<f64>(0), call.read::<f64>(1));
            let call = of_step().arg(&own, &[1, 11, 8]).arg(&updated, &of_panels).arg(&vectors, &[SIDE, 3]);
            let call = call.arg(&diagonals, &of_diagonals);
            let mut call = call.aliased_result(3).aliased_result(4).aliased_result(5);
            assert_eq!(call.execute(factor_panel), Ok(()));
            (panels, vectors, diagonals) = (call.read(0), call.read(1), call.read(2));
        }
        let mut sums = vec![0.0; vectors.len()];
        for step in [1, 0] {
            let call = frame(threads).arg(&[0_i32], &[]).arg(&[step], &[]);
            let call = call.arg(&sums[24 * step as usize..][..24], &[8, 3]).arg(&panels, &of_panels);
            let call = call.arg(&diagonals, &of_diagonals).arg(&vectors, &[SIDE, 3]).arg(&sums, &[SIDE, 3]);
            let mut call = call.aliased_result(5).aliased_result(6);
            assert_eq!(call.execute(solve_panel), Ok(()));
            (vectors, sums) = (call.read(0), call.read(1));
        }
        vectors
    }

    #[test]
    fn systems_are_solved_on_all_pools() {
        let number = |place: usize| {
            if place.is_multiple_of(SIDE + 1) { 20.0 } else { ((place % SIDE + place / SIDE) as f64).sin() }
        };
        let matrix: Vec<f64> = (0..SIDE * SIDE).map(number).collect();
        let right: Vec<f64> = (0..SIDE).map(|place| (place as f64).cos()).collect();
        let found = POOLS.map(|threads| {
            let call = frame(threads).arg(&[0_i32], &[]).arg(&matrix, &[SIDE, SIDE]).arg(&right, &[SIDE]);
            let vectors = solved(threads, started(call.attr_i64("count", SIDE as i64), start));
            let mut call = frame(threads).arg(&[0_i32], &[]).arg(&vectors, &[SIDE, 3]).result::<f64>(&[SIDE]);
            assert_eq!(call.execute(solution), Ok(()));
            call.read::<f64>(0)
        });
        for (row, right) in matrix.chunks_exact(SIDE).zip(&right) {
            let product: f64 = row.iter().zip(&found[0]).map(|(a, x)| a * x).sum();
            assert!((product - right).abs() < 1e-13);
        }
        assert!(found.iter().all(|solution| solution == &found[0]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |call: TestFrame, handler| {
            let mut call = call.result::<f64>(&[SHARE.of_rows::<f64>()]).result::<f64>(&[SIDE, 3]);
            call.execute(handler).expect_err("bad").message
        };
        let square = vec![1.0; SIDE * SIDE];
        let call =
            |device: i32| frame(POOLS[0]).arg(&[device], &[]).arg(&square, &[SIDE, SIDE]).arg(&square[..SIDE], &[SIDE]);
        assert_eq!(message(call(1).attr_i64("count", 16), start), "the device isn't one of 1");
        assert_eq!(message(call(0).attr_i64("count", 17), start), "count isn't one of 16 rows");
        let other = TestFrame::new(POOLS[0]).attr_i64("devices", 3).attr_i64("steps", 1).attr_i64("length", 4);
        let other = other.attr_i64("is_complex", 0).arg(&[0_i32], &[]).arg(&square, &[SIDE, SIDE]);
        let expected = "panels have 3 × 4 rows, but must have a multiple of 8";
        assert_eq!(message(other.arg(&square[..SIDE], &[SIDE]), start), expected);
        let gram = |components: usize, side: i64| {
            let call = frame(POOLS[0]).arg(&[0_i32], &[]).arg(&square[..4 * components], &[4, components]);
            call.arg(&[1.0], &[]).attr_str("terms", "").attr_i64("side", side)
        };
        let expected = "3 rows of each sample, but there must be one, or two of real numbers";
        assert_eq!(message(gram(3, 48), start_of_gram), expected);
        assert_eq!(message(gram(1, 8), start_of_gram), "the side of tiles isn't a multiple of 48");
        let mut call = frame(POOLS[0]).arg(&[2_i32], &[]).arg(&[1.0], &[1]).result::<f64>(&[8, 8]);
        assert_eq!(call.execute(rows).expect_err("bad").message, "panel 2 isn't one of 2");
    }
}
