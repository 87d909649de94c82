//! No number of one program becomes part of another's: ranks that are in different calls are stopped before they use
//! the result.
//!
//! MPI pairs calls by their order, and adds whatever it gets. So ranks send along a number for where they are
//! ([`programs`]): each collective begins with a *packet*, an all-reduce of a fixed length whose head has to be the same
//! on all ranks. A short sum is in the packet itself, so it costs no message more; longer ones and other collectives
//! follow it. Messages between two ranks carry it as their tag.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use crate::abi::{self, Handle, SUCCESS, datatype as dt};
use crate::calls::Call as Described;
use crate::library::api::{Api, RealHandle};
use crate::programs::{self, Call};
use crate::runtime::{Runtime, stop};
use crate::{reductions, waiting, with_api};

/// The length of a packet. It is sent as fast as one of 8 bytes.
const PACKET: usize = 256;

/// What is first in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Head {
    /// Where the rank is; 0 if it met one that is elsewhere.
    digest: u64,
    count: u32,
    datatype: u16,
    operation: u16,
}

const ROOM: usize = PACKET - size_of::<Head>();

#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Packet {
    head: Head,
    values: [u8; ROOM],
}

const _: () = assert!(size_of::<Packet>() == PACKET);

/// What a library needs to know of packets, by its own handles widened.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    datatype: Handle,
    operation: Handle,
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
fn fits(call: &Call) -> Option<usize> {
    let (_, size) = dt::describe(call.datatype)?;
    let bytes = call.count.checked_mul(size)?;
    (bytes <= ROOM && reductions::function(call.datatype, call.operation).is_some()).then_some(bytes)
}

/// What remains to be done of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The collective itself.
    All,
    /// Nothing: this is its outcome.
    Nothing(c_int),
}

/// Compares where the ranks are, and stops those that aren't in the same call. An all-reduce whose buffers are given
/// may be done then, too.
///
/// # Safety
/// There have to be values at the first buffer, or with `MPI_IN_PLACE` at the second, and room at the second.
pub(crate) unsafe fn compare(
    mpi: &Runtime,
    call: &Call,
    described: &Described,
    comm: Handle,
    buffers: Option<(*const c_void, *mut c_void)>,
) -> Rest {
    if !programs::is_comparing() {
        return Rest::All;
    }
    let digest = programs::digest(call, comm);
    let short = buffers.zip(fits(call));
    let mut own = Packet {
        head: Head {
            digest,
            count: short.map_or(0, |_| call.count as u32),
            datatype: call.datatype as u16,
            operation: call.operation as u16,
        },
        values: [0; ROOM],
    };
    if let Some(((send, receive), bytes)) = short {
        let from = if send.addr() == abi::IN_PLACE { receive.cast_const() } else { send };
        // SAFETY: the caller answers for the values; the packet has room.
        unsafe { std::ptr::copy_nonoverlapping(from.cast(), own.values.as_mut_ptr(), bytes) };
    }
    let mut all = own;
    let (from, to): (*const c_void, *mut c_void) = ((&raw const own).cast(), (&raw mut all).cast());
    let code = with_api!(mpi.library(), api => {
        let packets = mpi.packets();
        let (datatype, operation) = (RealHandle::narrow(packets.datatype), RealHandle::narrow(packets.operation));
        let comm = api.comm(mpi.comm(comm));
        // SAFETY: one packet is read, and one written; both live until the call has come back.
        unsafe {
            waiting::run(
                api,
                || (api.functions.allreduce)(from, to, 1, datatype, operation, comm),
                |request| (api.functions.iallreduce)(from, to, 1, datatype, operation, comm, request),
            )
        }
    });
    if code != SUCCESS {
        return Rest::Nothing(code);
    }
    if all.head.digest != digest {
        differ(&described.to_string(), digest);
    }
    let Some(((_, receive), bytes)) = short else { return Rest::All };
    // SAFETY: the caller answers for the room.
    unsafe { std::ptr::copy_nonoverlapping(all.values.as_ptr(), receive.cast(), bytes) };
    Rest::Nothing(SUCCESS)
}

/// The highest tag that each library has.
const TAGS: u64 = 32767;

/// The tag of a message between two ranks; None where ranks don't compare their programs.
pub(crate) fn tag(function: &'static str, count: c_int, datatype: Handle, comm: Handle) -> Option<c_int> {
    programs::is_comparing().then(|| {
        let call = Call { function, count: count.unsigned_abs() as usize, datatype, operation: 0 };
        (programs::digest_between_two(&call, comm) % TAGS) as c_int
    })
}

/// The requests of messages that are expected, each with the tag that it should come with.
static EXPECTED: LazyLock<Mutex<HashMap<Handle, c_int>>> = LazyLock::new(Mutex::default);

/// Notes the tag with which a message should come.
pub(crate) fn expect(request: Handle, tag: c_int) {
    EXPECTED.lock().unwrap_or_else(PoisonError::into_inner).insert(request, tag);
}

/// The tag with which the message of a request should come, if it is one that comes.
pub(crate) fn expected(request: Handle) -> Option<c_int> {
    EXPECTED.lock().unwrap_or_else(PoisonError::into_inner).remove(&request)
}

/// Stops a rank whose message was sent by another call.
pub(crate) fn check_tag(expected: c_int, status: &abi::Status, function: &str) {
    if status.tag != expected {
        differ(&format!("{function} from rank {} of its communicator", status.source), 0);
    }
}

/// Where this rank is, while others are in another call.
#[derive(Clone, Debug)]
pub struct Difference {
    /// For a message.
    pub place: String,
    /// What tells it from other places.
    pub digest: u64,
}

static DIFFERENCE: Mutex<Option<Difference>> = Mutex::new(None);
static FOUND: Condvar = Condvar::new();

/// How long Python may take to tell where all ranks are.
const PATIENCE: Duration = Duration::from_secs(30);

/// Other ranks are in another call than this one. Its result is worthless, so this doesn't return: who waits for a
/// difference ([`wait`]) ends the job.
fn differ(call: &str, digest: u64) -> ! {
    let place = format!("{call}, in {}", programs::running());
    *DIFFERENCE.lock().unwrap_or_else(PoisonError::into_inner) = Some(Difference { place: place.clone(), digest });
    FOUND.notify_all();
    std::thread::sleep(PATIENCE);
    stop(&format!("this rank is in {place}, and others are in another call of MPI. {RULE}"))
}

/// What a user has to do.
pub const RULE: &str = "Every rank has to run the same JAX programs in the same order: look for a computation under \
                        `if jax.process_index() == 0:`, or in a loop whose length differs";

/// Waits until this rank finds that others are in another call, and says in which call it is itself.
#[must_use]
pub fn wait() -> Difference {
    let mut found = DIFFERENCE.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(difference) = &*found {
            return difference.clone();
        }
        found = FOUND.wait(found).unwrap_or_else(PoisonError::into_inner);
    }
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
