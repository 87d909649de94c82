//! The numbers: scalar types, their transcendental functions, and vectors of them.

mod functions;
mod limits;
mod planes;
mod scalars;
mod simd;
mod weights;

pub use functions::Functions;
pub use limits::fma_rate;
pub use planes::{Algebra, Complexes, MULTIPLE, Pairs, Planes, Real, Reals};
pub use scalars::{MatrixElement, Sample};
pub use weights::{Ratio, Weight};

pub(crate) use planes::{add_signed, complex, planes, planes_mut, sign};
pub(crate) use simd::{copy, vectorized};
