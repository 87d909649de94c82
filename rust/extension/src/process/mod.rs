//! The policies of this process: that it says why it ends, that the ranks of a node are watched, how long it waits, and
//! what memory it keeps.

pub(crate) mod beacon;
#[cfg(target_os = "linux")]
mod children;
pub(crate) mod crash;
pub(crate) mod deadline;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod peers;
#[cfg(target_os = "linux")]
mod relay;
