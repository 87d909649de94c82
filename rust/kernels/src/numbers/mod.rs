//! The numbers: scalar types, their transcendental functions, and vectors of them.

mod algebra;
mod functions;
mod limits;
mod planes;
mod real;
mod rounding;
mod scalars;
mod simd;
mod weights;

pub use algebra::{Algebra, Complexes, Planes, RealPairs, Reals};
pub use functions::Functions;
pub use limits::fma_rate;
pub use real::{MULTIPLE, Real};
pub use scalars::{MatrixElement, Sample};
pub use simd::SimdLevel;
pub use weights::{Ratio, Weight};

pub(crate) use planes::{add_signed, at, complex, lanes, none, number, planes, planes_mut, sign, vectors, vectors_mut};
pub(crate) use real::CACHE_LINE;
pub(crate) use rounding::with_subnormals;
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) use rounding::without_subnormals;
#[cfg(test)]
pub(crate) use simd::tests::each_level;
pub(crate) use simd::{copy, dispatch, dispatch_for, vectorized};
