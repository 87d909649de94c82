//! What the machine could do at most, to read a kernel's time against.

use crate::numbers::dispatch;
use pulp::{Simd, WithSimd};
use std::hint::black_box;
use std::time::Instant;

/// Independent sums, enough to hide the latency of an addition.
const SUMS: usize = 12;
const STEPS: u32 = 1 << 20;

/// The rate at which one core multiplies and adds numbers of 64 bits that are in registers, in operations a second.
#[must_use]
pub fn fma_rate() -> f64 {
    dispatch(Fma)
}

struct Fma;

impl WithSimd for Fma {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let factor = simd.splat_f64s(black_box(0.5));
        let mut sums = [factor; SUMS];
        let start = Instant::now();
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = simd.mul_add_e_f64s(*sum, factor, factor);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        black_box(sums);
        2.0 * f64::from(STEPS) * (SUMS * S::F64_LANES) as f64 / seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_does_between_ten_million_and_ten_trillion_operations_a_second() {
        assert!((1e7..1e13).contains(&fma_rate()));
    }
}
