//! What keeps the marker of a program: a gather whose result nobody uses, which XLA would leave out.

use ferroket_xla_ffi::{Error, Frame, handler};

handler! {
    /// Takes the marker, and does nothing.
    pub(crate) fn marker = call
}

#[allow(clippy::unnecessary_wraps)] // as handlers are
fn call(_: &Frame) -> Result<(), Error> {
    Ok(())
}
