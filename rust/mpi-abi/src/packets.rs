//! Packets, with which ranks compare where they are: an all-reduce of a fixed length whose head has to be the same on all of
//! them, and the values of a short sum.

use std::ffi::{c_int, c_void};

use crate::abi::{self, Handle, SUCCESS, datatype as dt};
use crate::library::api::{Api, RealHandle};
use crate::programs::Call;
use crate::reductions;

/// The length of a packet. It is sent as fast as one of 8 bytes.
const PACKET: usize = 256;

/// What is first in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Head {
    /// Where the rank is; 0 if it met one that is elsewhere.
    pub(crate) digest: u64,
    pub(crate) count: u32,
    pub(crate) datatype: u16,
    pub(crate) operation: u16,
}

pub(crate) const ROOM: usize = PACKET - size_of::<Head>();

#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Packet {
    pub(crate) head: Head,
    pub(crate) values: [u8; ROOM],
}

const _: () = assert!(size_of::<Packet>() == PACKET);

/// What a library needs to know of packets, by its own handles widened.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    pub(crate) datatype: Handle,
    pub(crate) operation: Handle,
}

impl Packets {
    /// Makes the datatype and the operation. An error is MPI's code.
    pub(crate) fn new<H: RealHandle>(api: &Api<H>) -> Result<Self, c_int> {
        let checked = |code| if code == SUCCESS { Ok(()) } else { Err(code) };
        let byte: H = api.datatype(dt::BYTE).map_err(|_| abi::ERR_OTHER)?;
        let (mut datatype, mut operation) = (api.no_group(), api.no_group());
        // SAFETY: the arguments are those of the standard; the operation commutes.
        unsafe {
            checked((api.functions.type_contiguous)(PACKET as c_int, byte, &raw mut datatype))?;
            checked((api.functions.type_commit)(&raw mut datatype))?;
            checked((api.functions.op_create)(combine, 1, &raw mut operation))?;
        }
        Ok(Self { datatype: datatype.widen(), operation: operation.widen() })
    }

    /// Frees both, which some libraries ask for, with a warning, when MPI ends.
    pub(crate) fn free<H: RealHandle>(&self, api: &Api<H>) {
        let (mut datatype, mut operation) = (H::narrow(self.datatype), H::narrow(self.operation));
        // SAFETY: both are MPI's, of this library, and not used any more.
        unsafe {
            (api.functions.type_free)(&raw mut datatype);
            (api.functions.op_free)(&raw mut operation);
        }
    }
}

/// `MPI_User_function`: reduces the values of packets with the same head.
unsafe extern "C" fn combine(from: *mut c_void, to: *mut c_void, length: *mut c_int, _: *mut c_void) {
    // SAFETY: MPI calls it with as many packets as it says, at any address.
    let packets = unsafe { (*length).unsigned_abs() as usize };
    for place in 0..packets {
        // SAFETY: as above; packets are plain numbers.
        unsafe {
            let (from, to) = (from.cast::<Packet>().add(place), to.cast::<Packet>().add(place));
            let (mut own, mut result) = (from.read_unaligned(), to.read_unaligned());
            result.add(&mut own);
            to.write_unaligned(result);
        }
    }
}

impl Packet {
    fn add(&mut self, other: &mut Self) {
        if self.head != other.head {
            self.head.digest = 0;
        }
        let (datatype, operation) = (Handle::from(self.head.datatype), Handle::from(self.head.operation));
        if self.head.digest == 0 || self.head.count == 0 {
            return;
        }
        if let Some(function) = reductions::function(datatype, operation) {
            let mut count = self.head.count as c_int;
            let (from, to) = (other.values.as_mut_ptr().cast(), self.values.as_mut_ptr().cast());
            // SAFETY: there is room for as many values, aligned for each type.
            unsafe { function(from, to, &raw mut count, std::ptr::null_mut()) };
        }
    }
}

/// Whether a sum is short enough for a packet; its length in bytes then.
pub(crate) fn fits(call: &Call) -> Option<usize> {
    let (_, size) = dt::describe(call.datatype)?;
    let bytes = call.count.checked_mul(size)?;
    (bytes <= ROOM && reductions::function(call.datatype, call.operation).is_some()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(digest: u64, values: &[f32]) -> Packet {
        let head = Head { digest, count: values.len() as u32, datatype: dt::FLOAT as u16, operation: abi::SUM as u16 };
        let mut packet = Packet { head, values: [0; ROOM] };
        for (place, value) in packet.values.chunks_exact_mut(4).zip(values) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
        packet
    }

    fn combined(mut from: [Packet; 2], mut to: [Packet; 2]) -> [Packet; 2] {
        let mut length = 2;
        // SAFETY: there are two packets at both places.
        unsafe {
            combine(from.as_mut_ptr().cast(), to.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut());
        }
        to
    }

    #[test]
    fn packets_of_the_same_call_are_added_and_others_are_void() {
        let result = combined([packet(7, &[1., 2.]), packet(7, &[1.])], [packet(7, &[3., 4.]), packet(8, &[1.])]);
        assert_eq!(result[0].head, packet(7, &[1., 2.]).head);
        assert_eq!(result[0].values, packet(7, &[4., 6.]).values);
        assert_eq!(result[1].head.digest, 0);
        let again = combined([packet(8, &[1.]), result[1]], [result[1], packet(8, &[1.])]);
        assert_eq!(again.map(|packet| packet.head.digest), [0, 0], "void packets stay so");
        let longer = combined([packet(7, &[1., 2.]); 2], [packet(7, &[1.]); 2]);
        assert_eq!(longer[0].head.digest, 0);
    }

    #[test]
    fn only_short_reductions_fit() {
        let call = |count, datatype, operation| Call { function: "MPI_Allreduce", count, datatype, operation };
        assert_eq!(fits(&call(30, dt::DOUBLE, abi::SUM)), Some(240));
        assert_eq!(fits(&call(31, dt::DOUBLE, abi::SUM)), None);
        assert_eq!(fits(&call(15, dt::C_DOUBLE_COMPLEX, abi::PROD)), Some(240));
        assert_eq!(fits(&call(1, dt::C_COMPLEX, abi::MAX)), None);
        assert_eq!(fits(&call(8, dt::BYTE, 0)), None);
        assert_eq!(fits(&call(usize::MAX, dt::DOUBLE, abi::SUM)), None);
    }
}
