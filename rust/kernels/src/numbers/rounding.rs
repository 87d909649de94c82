//! What the processor makes of numbers below the smallest normal one.

use std::arch::asm;

/// Results that are so small become zero, and arguments count as zero.
const FLUSH: u32 = 0x8040;

/// Calls `work` as the threads of XLA call the kernels: such numbers are zero.
pub(crate) fn without_subnormals<R>(work: impl FnOnce() -> R) -> R {
    let before = read();
    let _restored = Restored(before);
    write(before | FLUSH);
    apart(work)
}

/// Calls `work` as a function of its own, so that the compiler moves no operation out of it.
#[inline(never)]
fn apart<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Sets the processor back when it is dropped.
struct Restored(u32);

impl Drop for Restored {
    fn drop(&mut self) {
        write(self.0);
    }
}

fn read() -> u32 {
    let mut settings = 0;
    // SAFETY: the instruction writes this number, and no other memory.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut settings, options(nostack, preserves_flags)) };
    settings
}

fn write(settings: u32) {
    // SAFETY: the instruction reads this number. It is what `read` gave, up to bits that code compiled by Rust has the
    // right to find unset, or that were set before it was called.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const settings, options(nostack, preserves_flags)) };
}

#[test]
fn tiny_numbers_are_zero_there() {
    use std::hint::black_box;
    let are_kept = || apart(|| black_box(f64::MIN_POSITIVE) / black_box(2.0) > 0.0);
    assert!(are_kept());
    without_subnormals(|| assert!(!are_kept()));
    assert!(are_kept());
}
