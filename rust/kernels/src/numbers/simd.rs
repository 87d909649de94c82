//! The vector instructions of the processor: kernels are compiled once for each level of them, and run on one.
//!
//! What runs within [`dispatch`] or [`vectorized`] has to be inlined into it, or it is compiled for the oldest processors, and
//! each vector instruction in it becomes a call. So functions there are `#[inline(always)]`, and loops take the place of closures
//! that the standard library calls from functions of its own, as `map` of an array and `from_fn` do.

use crate::Error;
use pulp::{Arch, Simd, WithSimd};
use std::env;
use std::hint::black_box;
use std::sync::OnceLock;

/// The variable that fixes the level, for benchmarks and tests, and what leaves it to us.
const VARIABLE: &str = "FERROKET_SIMD";
const BEST: &str = "auto";

/// A level of vector instructions that this processor has.
#[derive(Debug, Clone, Copy)]
pub struct SimdLevel {
    /// `avx512`, `avx2`, `neon` or `scalar`.
    pub name: &'static str,
    arch: Arch,
}

impl SimdLevel {
    /// All of them, the best one first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            found.extend(pulp::x86::V4::try_new().map(|simd| Self { name: "avx512", arch: Arch::V4(simd) }));
            found.extend(pulp::x86::V3::try_new().map(|simd| Self { name: "avx2", arch: Arch::V3(simd) }));
        }
        #[cfg(target_arch = "aarch64")]
        found.extend(pulp::aarch64::Neon::try_new().map(|simd| Self { name: "neon", arch: Arch::Neon(simd) }));
        found.push(Self { name: "scalar", arch: Arch::Scalar });
        found
    }

    /// The one that kernels run on: the best one, unless `FERROKET_SIMD` names another.
    pub fn current() -> Result<Self, &'static Error> {
        static LEVEL: OnceLock<Result<SimdLevel, Error>> = OnceLock::new();
        let named = || SimdLevel::named(&env::var_os(VARIABLE).unwrap_or_else(|| BEST.into()).to_string_lossy());
        LEVEL.get_or_init(named).as_ref().copied()
    }

    fn named(name: &str) -> Result<Self, Error> {
        let levels = Self::all();
        let found = levels.iter().find(|level| name == level.name || name == BEST);
        found.copied().ok_or_else(|| {
            let names: Vec<_> = levels.iter().map(|level| level.name).collect();
            Error::SimdLevel { variable: VARIABLE, value: name.into(), names: names.join(", "), best: BEST }
        })
    }
}

/// The instructions that kernels of this thread run on.
///
/// # Panics
///
/// If `FERROKET_SIMD` names none, which whoever loads the kernels has asked [`SimdLevel::current`] before.
#[inline]
fn instructions() -> Arch {
    #[cfg(test)]
    if let Some(level) = tests::LEVEL.get() {
        return level.arch;
    }
    SimdLevel::current().unwrap_or_else(|error| panic!("{error}")).arch
}

/// Runs a kernel on the processor's vector instructions.
#[inline(always)]
pub(crate) fn dispatch<K: WithSimd>(kernel: K) -> K::Output {
    instructions().dispatch(OnAlignedStack(kernel))
}

/// As [`dispatch`], for a kernel that has so many bytes side by side: vectors are half as long where these fill no more, which
/// many processors compute with twice as often.
#[inline(always)]
pub(crate) fn dispatch_for<K: WithSimd>(bytes: usize, kernel: K) -> K::Output {
    let arch = match instructions() {
        #[cfg(target_arch = "x86_64")]
        Arch::V4(simd) if bytes <= 32 => Arch::V3(*simd),
        arch => arch,
    };
    arch.dispatch(OnAlignedStack(kernel))
}

/// A kernel whose stack begins with a line of the cache.
///
/// The compiler aligns a function's stack only if it knows of something there that has to be aligned, before it finds out for which
/// vectors no register is left. Those it would put where they are parts of two lines, which takes several times as long.
struct OnAlignedStack<K>(K);

/// What has to be aligned.
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "it is there to be aligned")] u8);

impl<K: WithSimd> WithSimd for OnAlignedStack<K> {
    type Output = K::Output;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> K::Output {
        let line = Line(black_box(0));
        black_box(&line);
        self.0.with_simd(simd)
    }
}

/// Calls `work`, which has no vectors of its own: it is compiled once more for processors with AVX2 and the bit instructions of
/// its time.
#[inline(always)]
pub(crate) fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    match instructions() {
        #[cfg(target_arch = "x86_64")]
        Arch::V3(simd) => Simd::vectorize(simd, work),
        // Longer vectors gain nothing here.
        #[cfg(target_arch = "x86_64")]
        Arch::V4(simd) => Simd::vectorize(*simd, work),
        _ => work(),
    }
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
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;
    use std::fmt::Debug;

    thread_local! {
        pub(super) static LEVEL: Cell<Option<SimdLevel>> = const { Cell::new(None) };
    }

    /// Each level of this processor: up to the next one, kernels of this thread run on it.
    pub(crate) fn each_level() -> impl Iterator<Item = SimdLevel> {
        /// Leaves the thread as it was.
        struct Levels(std::vec::IntoIter<SimdLevel>);

        impl Iterator for Levels {
            type Item = SimdLevel;

            fn next(&mut self) -> Option<SimdLevel> {
                LEVEL.set(self.0.next());
                LEVEL.get()
            }
        }

        impl Drop for Levels {
            fn drop(&mut self) {
                LEVEL.set(None);
            }
        }

        Levels(SimdLevel::all().into_iter())
    }

    struct Lanes;

    impl WithSimd for Lanes {
        type Output = usize;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> usize {
            S::F64_LANES
        }
    }

    #[test]
    fn kernels_run_on_each_level() {
        let found: Vec<_> = each_level().map(|level| (level.name, dispatch(Lanes))).collect();
        let all = [("avx512", 8), ("avx2", 4), ("neon", 2), ("scalar", 1)];
        assert!(!found.is_empty() && found.iter().all(|level| all.contains(level)), "{found:?}");
        let best = found[0].1;
        assert_eq!(SimdLevel::named(BEST).map(|level| level.name), Ok(found[0].0));
        assert!(found.iter().all(|&(_, lanes)| lanes <= best));
        for (name, lanes) in found {
            let level = SimdLevel::named(name).expect("one of this processor's");
            assert_eq!(level.arch.dispatch(Lanes), lanes);
        }
    }

    #[test]
    fn a_level_that_is_not_there_is_an_error() {
        for value in ["sse2", "", "AVX2", "wasm"] {
            let names: Vec<_> = SimdLevel::all().iter().map(|level| level.name).collect();
            let message = SimdLevel::named(value).expect_err("no level").to_string();
            let names = names.join(", ");
            assert_eq!(
                message,
                format!(
                    "FERROKET_SIMD is '{value}', but this processor has the levels {names}: set it to one of \
                         these, or to auto for the best one"
                )
            );
        }
    }

    fn check_copy<S: Copy + Default + PartialEq + Debug>(value: impl Fn(u8) -> S) {
        for len in 0..=200_u8 {
            let from: Vec<S> = (1..=len).map(&value).collect();
            let mut to = vec![S::default(); from.len()];
            copy(&from, &mut to);
            assert_eq!(to, from);
            for _ in each_level() {
                to.fill(S::default());
                vectorized(
                    #[inline(always)]
                    || copy(&from, &mut to),
                );
                assert_eq!(to, from);
            }
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
