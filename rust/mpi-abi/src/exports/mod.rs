//! The symbols that MPItrampoline looks up.

pub mod constants;
pub mod functions;
pub mod point_to_point;
pub mod unprovided;
