//! The symbols that MPItrampoline looks up.

pub mod constants;
pub mod functions;
pub mod unprovided;
