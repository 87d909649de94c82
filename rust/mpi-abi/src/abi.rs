//! The types and numbers of our side of the ABI: MPItrampoline's types, the MPI-5 standard ABI's numbers.

use std::ffi::c_int;

/// A value that the C side declares as a pointer or as a handle (`uintptr_t`): never dereferenced here.
pub type Pointer = usize;

/// A handle of MPI: communicator, datatype, operation or request.
pub type Handle = usize;

/// `MPI_SUCCESS`, the same number in every MPI.
pub const SUCCESS: c_int = 0;
/// `MPI_ERR_OTHER`.
pub const ERR_OTHER: c_int = 16;
/// `MPI_UNDEFINED`, the same number in MPICH, Open MPI and the standard ABI.
pub const UNDEFINED: c_int = -32766;

/// `MPI_ANY_SOURCE`.
pub const ANY_SOURCE: c_int = -1;
/// `MPI_ANY_TAG`.
pub const ANY_TAG: c_int = -2;
/// `MPI_PROC_NULL`.
pub const PROC_NULL: c_int = -3;

/// `MPI_COMM_NULL`.
pub const COMM_NULL: Handle = 0x100;
/// `MPI_COMM_WORLD`.
pub const COMM_WORLD: Handle = 0x101;
/// `MPI_COMM_SELF`.
pub const COMM_SELF: Handle = 0x102;
/// `MPI_REQUEST_NULL`.
pub const REQUEST_NULL: Handle = 0x180;
/// `MPI_IN_PLACE`.
pub const IN_PLACE: Pointer = 1;

/// `MPI_SUM`.
pub const SUM: Handle = 0x21;
/// `MPI_MIN`.
pub const MIN: Handle = 0x22;
/// `MPI_MAX`.
pub const MAX: Handle = 0x23;
/// `MPI_PROD`.
pub const PROD: Handle = 0x24;

/// The datatypes that XLA uses.
pub mod datatype {
    #![allow(missing_docs)] // each is the MPI datatype by that name
    use super::Handle;

    pub const FLOAT: Handle = 0x210;
    pub const C_COMPLEX: Handle = 0x212;
    pub const DOUBLE: Handle = 0x214;
    pub const C_DOUBLE_COMPLEX: Handle = 0x216;
    pub const INT8: Handle = 0x240;
    pub const UINT8: Handle = 0x241;
    pub const BYTE: Handle = 0x247;
    pub const INT16: Handle = 0x248;
    pub const UINT16: Handle = 0x249;
    pub const INT32: Handle = 0x250;
    pub const UINT32: Handle = 0x251;
    pub const INT64: Handle = 0x258;
    pub const UINT64: Handle = 0x259;

    /// Its name and its size in bytes, for messages.
    #[must_use]
    pub fn describe(datatype: Handle) -> Option<(&'static str, usize)> {
        Some(match datatype {
            FLOAT => ("float32", 4),
            C_COMPLEX => ("complex64", 8),
            DOUBLE => ("float64", 8),
            C_DOUBLE_COMPLEX => ("complex128", 16),
            INT8 => ("int8", 1),
            UINT8 => ("uint8", 1),
            BYTE => ("byte", 1),
            INT16 => ("int16", 2),
            UINT16 => ("uint16", 2),
            INT32 => ("int32", 4),
            UINT32 => ("uint32", 4),
            INT64 => ("int64", 8),
            UINT64 => ("uint64", 8),
            _ => return None,
        })
    }
}

/// The levels of thread support; their order is that of the MPI standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum ThreadLevel {
    /// Only one thread.
    Single = 0,
    /// Only the main thread calls MPI.
    Funneled = 1024,
    /// One thread calls MPI at a time.
    Serialized = 2048,
    /// Any thread calls MPI at any time.
    Multiple = 4096,
}

impl ThreadLevel {
    /// The name that the MPI standard gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "MPI_THREAD_SINGLE",
            Self::Funneled => "MPI_THREAD_FUNNELED",
            Self::Serialized => "MPI_THREAD_SERIALIZED",
            Self::Multiple => "MPI_THREAD_MULTIPLE",
        }
    }
}

/// `MPI_Status` as MPItrampoline declares it: room for any library's own fields, then the three public ones.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Status {
    reserved: [u64; 3],
    /// `MPI_SOURCE`
    pub source: c_int,
    /// `MPI_TAG`
    pub tag: c_int,
    /// `MPI_ERROR`
    pub error: c_int,
}

impl Status {
    /// A status with these public fields.
    #[must_use]
    pub fn new(source: c_int, tag: c_int, error: c_int) -> Self {
        Self { reserved: [0; 3], source, tag, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn status_has_the_layout_of_mpitrampoline() {
        assert_eq!(size_of::<Status>(), 40);
        assert_eq!(offset_of!(Status, source), 24);
        assert_eq!(offset_of!(Status, tag), 28);
        assert_eq!(offset_of!(Status, error), 32);
    }

    #[test]
    fn thread_levels_are_ordered_as_in_the_standard() {
        assert!(ThreadLevel::Single < ThreadLevel::Funneled);
        assert!(ThreadLevel::Serialized < ThreadLevel::Multiple);
        assert_eq!(ThreadLevel::Multiple.name(), "MPI_THREAD_MULTIPLE");
    }
}
