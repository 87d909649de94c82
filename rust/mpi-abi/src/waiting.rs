//! How a rank waits for the others.
//!
//! MPI libraries wait in a loop that never sleeps: the fastest way where each rank has a core of its own, and the
//! worst where ranks share one, since who waits takes the core from who computes. There a rank starts the operation
//! without blocking, and gives its core away until it is complete.

use std::ffi::c_int;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::abi::{REQUEST_NULL, SUCCESS};
use crate::library::api::{Api, RealHandle};

static YIELDING: AtomicBool = AtomicBool::new(false);

/// Chooses between spinning, which is the default, and giving the core away.
pub fn set_yielding(yielding: bool) {
    YIELDING.store(yielding, Ordering::Relaxed);
}

/// Whether a rank that waits gives its core away.
#[must_use]
pub fn is_yielding() -> bool {
    YIELDING.load(Ordering::Relaxed)
}

/// How long a rank only lets others go first, before it sleeps: what the others compute may be done by then.
const PATIENCE: Duration = Duration::from_micros(100);
/// A nap is long beside a switch between processes, and short beside the time waited so far, so that it delays little.
const NAPS: RangeInclusive<Duration> = Duration::from_micros(50)..=Duration::from_millis(1);
const SHARE_OF_THE_WAIT: u32 = 20;

/// Completes a request without keeping the core.
///
/// # Safety
/// `request` has to be a valid request of the library, and `status` what its `MPI_Test` takes.
pub(crate) unsafe fn complete<H: RealHandle>(api: &Api<H>, request: &mut H, status: *mut std::ffi::c_void) -> c_int {
    let start = Instant::now();
    loop {
        let mut done = 0;
        // SAFETY: the caller answers for the request and the status.
        let code = unsafe { (api.functions.test)(request, &raw mut done, status) };
        if code != SUCCESS || done != 0 {
            return code;
        }
        let waited = start.elapsed();
        if waited < PATIENCE {
            std::thread::yield_now();
        } else {
            std::thread::sleep((waited / SHARE_OF_THE_WAIT).clamp(*NAPS.start(), *NAPS.end()));
        }
    }
}

/// Runs an operation in the way that ranks wait now: `blocking`, or `starting` and completed here.
///
/// # Safety
/// `starting` has to write a valid request if it succeeds.
pub(crate) unsafe fn run<H: RealHandle>(
    api: &Api<H>,
    blocking: impl FnOnce() -> c_int,
    starting: impl FnOnce(*mut H) -> c_int,
) -> c_int {
    if !is_yielding() {
        return blocking();
    }
    let mut request = api.request(REQUEST_NULL);
    let code = starting(&raw mut request);
    if code != SUCCESS {
        return code;
    }
    // SAFETY: `starting` wrote the request; nobody wants its status.
    unsafe { complete(api, &mut request, api.no_status()) }
}
