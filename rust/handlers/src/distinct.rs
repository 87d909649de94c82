//! Configurations without those that occur again.

use crate::dtypes::with_number_type;
use ferroket_kernels::connected::distinct::{find_distinct, hash_rows};
use ferroket_xla_ffi::{Error, Frame, Rows, handler};

handler! {
    /// Arguments `x (C, N)` of numbers and `used ()` of int32, of which the first ones count; results `distinct (C, N)`,
    /// those of them that differ and then the first row again, and of int32 `place (C,)`, where each of them is there, 0 for
    /// the others, and `count ()`, how many there are. Floats are the same if their bits are.
    pub(crate) fn distinct_rows = call
}

/// The least rows that are worth a thread.
const MIN_ROWS: usize = 512;

fn call(frame: &Frame) -> Result<(), Error> {
    let (mut args, mut results) = (frame.arguments(), frame.results());
    let x = args.any("x")?;
    let used = args.scalar::<i32>("used")?;
    args.finish()?;
    let distinct = results.any("distinct")?;
    let place = results.typed::<i32>("place")?;
    let count = results.typed::<i32>("count")?;
    results.finish()?;
    x.expect_rank(2)?;
    distinct.expect_dims(x.dims())?;
    let (rows, sites) = (x.dims()[0], x.dims()[1]);
    let used = usize::try_from(used).unwrap_or_default().min(rows);
    place.expect_dims(&[rows])?;
    count.expect_dims(&[])?;

    let place = place.into_mut_slice();
    place[used..].fill(0);
    let pool = frame.pool();
    let found = with_number_type!(x.dtype(), "the configurations", T => {
        let x: &[u8] = bytemuck::cast_slice(x.typed::<T>()?.as_slice());
        let distinct: &mut [u8] = bytemuck::cast_slice_mut(distinct.typed::<T>()?.into_mut_slice());
        let width = sites * size_of::<T>();
        let mut hashes = vec![0; used];
        pool.for_each_part(used, MIN_ROWS, Rows::new(&mut hashes, 1), |range, hashes| {
            hash_rows(&x[range.start * width..], width, hashes.into_slice());
        })?;
        let first = find_distinct(x, width, &hashes, &mut place[..used]);
        pool.for_each_part(rows, MIN_ROWS, Rows::new(distinct, width), |range, distinct| {
            for (kind, to) in range.zip(distinct.into_slice().chunks_exact_mut(width.max(1))) {
                let row = first.get(kind).copied().unwrap_or_default();
                to.copy_from_slice(&x[row * width..][..width]);
            }
        })?;
        Ok(first.len())
    })?;
    count.into_mut_slice()[0] = found as i32;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::POOLS;
    use ferroket_xla_ffi::testing::{TestFrame, Threads};

    #[test]
    fn rows_that_differ() {
        for threads in POOLS {
            let frame = TestFrame::new(threads).arg(&[1.5, 2.0, 0.5, 2.0, 1.5, 2.0, 9.0, 9.0], &[4, 2]).arg(&[3], &[]);
            let mut frame = frame.result::<f64>(&[4, 2]).result::<i32>(&[4]).result::<i32>(&[]);
            assert_eq!(frame.execute(distinct_rows), Ok(()));
            assert_eq!(frame.read::<f64>(0), [1.5, 2.0, 0.5, 2.0, 1.5, 2.0, 1.5, 2.0]);
            assert_eq!((frame.read::<i32>(1), frame.read::<i32>(2)), (vec![0, 1, 0, 0], vec![2]));
        }
    }

    #[test]
    fn wrong_calls_are_named() {
        let frame = || TestFrame::new(Threads::None).arg(&[1_u8, 2], &[2, 1]);
        let message = |frame: TestFrame| { frame }.execute(distinct_rows).expect_err("a wrong call").message;
        assert_eq!(message(frame()), "argument 1 'used' is missing: the call has 1");
        assert_eq!(message(frame().arg(&[1_i64], &[])), "'used' has dtype int64, expected int32");
        assert_eq!(message(frame().arg(&[1, 1], &[2])), "'used' has shape [2], expected []");
        let results = frame().arg(&[1], &[]).result::<u8>(&[2, 1]).result::<i32>(&[3]).result::<i32>(&[]);
        assert_eq!(message(results), "'place' has shape [3], expected [2]");
    }
}
