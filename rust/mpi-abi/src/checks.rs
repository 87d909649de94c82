//! No number of one program becomes part of another's: ranks that are in different calls are stopped before they use
//! the result.
//!
//! MPI pairs calls by their order, and adds whatever it gets. So ranks send along a number for where they are
//! ([`programs`]): each collective begins with a [packet](crate::packets). A short sum is in the packet itself, so it costs
//! no message more; longer ones and other collectives follow it. Messages between two ranks carry it as their tag.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use crate::abi::{self, Handle, SUCCESS};
use crate::calls::Call as Described;
use crate::library::api::RealHandle;
use crate::packets::{Head, Packet, ROOM, fits};
use crate::programs::{self, Call};
use crate::runtime::{Runtime, stop};
use crate::{waiting, with_api};

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
