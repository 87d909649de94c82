//! What the machine could do at most, to read a kernel's time against.

use crate::planes::Real;
use crate::simd::{Arithmetic, fused};
use std::hint::black_box;
use std::time::Instant;

/// Independent sums, enough to hide the latency of an addition.
const SUMS: usize = 12;
const LANES: usize = 8;
const STEPS: u32 = 1 << 20;

/// The rate at which one core multiplies and adds numbers of 64 bits that are in registers, in operations a second.
#[must_use]
pub fn fma_rate() -> f64 {
    let start = Instant::now();
    black_box(fused(Fma(black_box([[0.5; LANES]; SUMS]))));
    let operations = 2.0 * f64::from(STEPS) * (SUMS * LANES) as f64;
    operations / start.elapsed().as_secs_f64()
}

struct Fma([[f64; LANES]; SUMS]);

impl Arithmetic for Fma {
    type Output = [[f64; LANES]; SUMS];

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> Self::Output {
        let Self(mut sums) = self;
        let factor = black_box([0.5; LANES]);
        for _ in 0..STEPS {
            for sum in &mut sums {
                for (number, factor) in sum.iter_mut().zip(factor) {
                    *number = number.times_plus::<FUSED>(factor, factor);
                }
            }
        }
        sums
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
