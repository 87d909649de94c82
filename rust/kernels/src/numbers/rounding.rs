//! What the processor makes of numbers below the smallest normal one.

/// Calls `work` with such numbers as they are, which the threads of XLA take for zero. Complex numbers have reciprocals in
/// `faer` that need them.
pub(crate) fn with_subnormals<R>(work: impl FnOnce() -> R) -> R {
    let before = settings::read();
    let _restored = Restored(before);
    settings::write(settings::with_subnormals(before));
    apart(work)
}

/// Calls `work` as a function of its own, so that the compiler moves no operation out of it.
#[inline(never)]
fn apart<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Sets the processor back when it is dropped.
struct Restored(settings::Settings);

impl Drop for Restored {
    fn drop(&mut self) {
        settings::write(self.0);
    }
}

#[cfg(target_arch = "x86_64")]
mod settings {
    use std::arch::asm;

    pub(super) type Settings = u32;

    /// Results that are so small become zero, and arguments count as zero.
    pub(super) const FLUSH: Settings = 0x8040;

    pub(super) fn with_subnormals(settings: Settings) -> Settings {
        settings & !FLUSH
    }

    pub(super) fn read() -> Settings {
        let mut settings: Settings = 0;
        // SAFETY: the instruction writes this number, and no other memory.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut settings, options(nostack, preserves_flags)) };
        settings
    }

    pub(super) fn write(settings: Settings) {
        // SAFETY: the instruction reads this number. It is what `read` gave, up to bits that code compiled by Rust has the
        // right to find unset, or that were set before it was called.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const settings, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod settings {
    use std::arch::asm;

    pub(super) type Settings = u64;

    /// Numbers that are so small become zero.
    const FLUSH: Settings = 1 << 24;

    pub(super) fn with_subnormals(settings: Settings) -> Settings {
        settings & !FLUSH
    }

    pub(super) fn read() -> Settings {
        let settings;
        // SAFETY: the instruction reads a register.
        unsafe { asm!("mrs {}, fpcr", out(reg) settings, options(nostack, preserves_flags)) };
        settings
    }

    pub(super) fn write(settings: Settings) {
        // SAFETY: as for x86.
        unsafe { asm!("msr fpcr, {}", in(reg) settings, options(nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod settings {
    pub(super) type Settings = ();

    pub(super) fn with_subnormals((): Settings) -> Settings {}

    pub(super) fn read() -> Settings {}

    pub(super) fn write((): Settings) {}
}

/// Calls `work` as the threads of XLA call the kernels.
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) fn without_subnormals<R>(work: impl FnOnce() -> R) -> R {
    let before = settings::read();
    let _restored = Restored(before);
    settings::write(before | settings::FLUSH);
    apart(work)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn tiny_numbers_are_kept_where_they_should_be() {
        let are_kept = || apart(|| black_box(f64::MIN_POSITIVE) / black_box(2.0) > 0.0);
        assert!(are_kept());
        without_subnormals(|| {
            assert!(!are_kept());
            assert!(with_subnormals(are_kept));
            assert!(!are_kept());
        });
        assert!(are_kept());
    }
}
