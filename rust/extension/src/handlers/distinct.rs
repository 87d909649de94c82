//! Configurations without those that occur again.

use super::dispatch::with_number_type;
use ferroket_kernels::connected::distinct::{find_distinct, hash_rows};
use ferroket_xla_ffi::{Error, Frame, Rows, handler};

handler! {
    /// Arguments `x (C, N)` of numbers and `used ()` of int32, of which the first ones count; results `distinct (C, N)`,
    /// those of them that differ and then the first row again, and of int32 `place (C,)`, where each of them is there, 0 for
    /// the others, and `count ()`, how many there are. Floats are the same if their bits are.
    pub(super) fn distinct_rows = call
}

/// The least rows that are worth a thread.
const MIN_ROWS: usize = 512;

fn call(frame: &Frame) -> Result<(), Error> {
    frame.expect_counts(2, 3)?;
    let (x, distinct) = (frame.arg(0, "x")?, frame.result(0, "distinct")?);
    x.expect_rank(2)?;
    distinct.expect_dims(x.dims())?;
    let (rows, sites) = (x.dims()[0], x.dims()[1]);
    let used = frame.arg(1, "used")?.typed::<i32>()?;
    used.expect_dims(&[])?;
    let used = usize::try_from(used.as_slice()[0]).unwrap_or_default().min(rows);
    let place = frame.result(1, "place")?.typed::<i32>()?;
    place.expect_dims(&[rows])?;
    let count = frame.result(2, "count")?.typed::<i32>()?;
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
