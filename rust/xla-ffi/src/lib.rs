//! XLA calls custom code through a C API of its own, the XLA FFI. This crate has that API as `repr(C)` types ([`raw`])
//! and a safe side, so that a handler is an ordinary function from a [`Frame`] to a `Result`:
//!
//! ```
//! use ferroket_xla_ffi::{Error, Frame, handler};
//!
//! /// Multiplies a vector by the attribute `factor`.
//! fn scale(frame: &Frame) -> Result<(), Error> {
//!     let factor = frame.attr_f64("factor")?;
//!     let (mut args, mut results) = (frame.arguments(), frame.results());
//!     let x = args.typed::<f64>("x")?;
//!     args.finish()?;
//!     let mut y = results.typed::<f64>("y")?;
//!     results.finish()?;
//!     y.expect_dims(x.dims())?;
//!     for (y, x) in y.as_mut_slice().iter_mut().zip(x.as_slice()) {
//!         *y = factor * x;
//!     }
//!     Ok(())
//! }
//!
//! handler! {
//!     /// [`scale`] as XLA calls it.
//!     pub fn scale_handler = scale;
//! }
//! ```
//!
//! The rest is in the fence around such a function: [`guard()`] answers the runtime's questions about the handler, and
//! turns errors and panics into XLA's errors; [`Pool`] spreads work over XLA's own threads.
//!
//! Handlers announce version 0.1 of the API, and work with every runtime from jaxlib 0.8 on.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod raw;

mod attributes;
mod buffer;
mod cursor;
mod dtype;
mod error;
mod frame;
mod guard;
mod memory;
mod parts;
mod placement;
mod pool;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use buffer::{AnyBuffer, AnyBufferMut, Buffer, BufferMut, Shape};
pub use cursor::{Arguments, Results};
pub use dtype::{DataType, Element, Pred};
pub use error::Error;
pub use frame::Frame;
pub use guard::guard;
pub use parts::{Parts, RaggedRows, Rows};
pub use pool::Pool;
