//! Code compiled for the vector units of newer processors, beside that for the oldest ones.

/// Calls `work`, which is compiled once more for processors with AVX2, and once for those with AVX-512: everything that is
/// inlined into it profits.
#[inline(always)]
pub(crate) fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            // SAFETY: this processor has the features; whichever has AVX2 and BMI2 has the older ones.
            return unsafe { with_avx2(work) };
        }
    }
    work()
}
