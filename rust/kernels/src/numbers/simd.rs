//! Code compiled for the vector units of newer processors, beside that for the oldest ones.

/// Calls `work`, which is compiled once more for processors with AVX2 and the bit instructions of its time: everything
/// that is inlined into it profits.
#[inline(always)]
pub(crate) fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    /// One list for both: what is enabled and what this processor is asked for.
    #[cfg(target_arch = "x86_64")]
    macro_rules! with_features {
        ($($feature:tt),+) => {
            $(#[target_feature(enable = $feature)])+
            fn newer<R>(work: impl FnOnce() -> R) -> R {
                work()
            }
            if $(is_x86_feature_detected!($feature))&&+ {
                // SAFETY: this processor has each feature that is enabled.
                return unsafe { newer(work) };
            }
        };
    }
    #[cfg(target_arch = "x86_64")]
    with_features!("avx2", "bmi1", "bmi2", "lzcnt", "popcnt");
    work()
}

/// Copies a row. Short rows are copied by vector code in place, which is faster than to call the system's function.
#[inline(always)]
pub(crate) fn copy<S: Copy>(from: &[S], to: &mut [S]) {
    // As many values as make 64 bytes, a number that the compiler knows, or else 32 or 16 bytes.
    let copied = match size_of::<S>() {
        1 => copy_parts::<S, 64>(from, to) || copy_parts::<S, 32>(from, to) || copy_parts::<S, 16>(from, to),
        2 => copy_parts::<S, 32>(from, to) || copy_parts::<S, 16>(from, to) || copy_parts::<S, 8>(from, to),
        4 => copy_parts::<S, 16>(from, to) || copy_parts::<S, 8>(from, to) || copy_parts::<S, 4>(from, to),
        8 => copy_parts::<S, 8>(from, to) || copy_parts::<S, 4>(from, to) || copy_parts::<S, 2>(from, to),
        _ => false,
    };
    if !copied {
        to.copy_from_slice(from);
    }
}

/// Copies a row in parts of `N`, the last one of which overlaps with the one before, unless that is too long or too
/// short for it.
#[inline(always)]
fn copy_parts<S: Copy, const N: usize>(from: &[S], to: &mut [S]) -> bool {
    if let (Some(last), Some(last_to)) = (from.last_chunk::<N>(), to.last_chunk_mut::<N>())
        && from.len() <= 8 * N
    {
        *last_to = *last;
        for (to, from) in to.as_chunks_mut::<N>().0.iter_mut().zip(from.as_chunks::<N>().0) {
            *to = *from;
        }
        true
    } else {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn check_copy<S: Copy + Default + PartialEq + Debug>(value: impl Fn(u8) -> S) {
        for len in 0..=200_u8 {
            let from: Vec<S> = (1..=len).map(&value).collect();
            let mut to = vec![S::default(); from.len()];
            copy(&from, &mut to);
            assert_eq!(to, from);
            to.fill(S::default());
            vectorized(
                #[inline(always)]
                || copy(&from, &mut to),
            );
            assert_eq!(to, from);
        }
    }

    #[test]
    fn rows_of_any_length_are_copied() {
        check_copy(|value| value);
        check_copy(u16::from);
        check_copy(u32::from);
        check_copy(u64::from);
        check_copy(u128::from);
    }
}
