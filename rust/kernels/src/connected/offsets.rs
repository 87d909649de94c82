//! Tables cut into ranges: range i is `offsets[i]..offsets[i + 1]`.

use crate::Error;
use crate::error::check;
use std::ops::Range;

/// A range, of offsets that were checked.
#[inline(always)]
pub(crate) fn range(offsets: &[i32], index: usize) -> Range<usize> {
    offsets[index] as usize..offsets[index + 1] as usize
}

/// All ranges, of offsets that were checked.
pub(crate) fn ranges(offsets: &[i32]) -> impl Iterator<Item = Range<usize>> {
    offsets.windows(2).map(|ends| ends[0] as usize..ends[1] as usize)
}

/// An error unless `offsets` begin at 0, don't fall and end at `end`.
pub(crate) fn check_offsets(name: &str, offsets: &[i32], end: usize) -> Result<(), Error> {
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
        return check(false, || format!("`{name}` is empty, but has one number more than it has ranges"));
    };
    check(first == 0, || format!("`{name}` begins with {first}, not with 0"))?;
    check(usize::try_from(last) == Ok(end), || format!("`{name}` ends with {last}, not with {end}"))?;
    let falls = offsets.windows(2).position(|pair| pair[0] > pair[1]);
    check(falls.is_none(), || format!("`{name}` falls after index {}", falls.unwrap_or_default()))
}
