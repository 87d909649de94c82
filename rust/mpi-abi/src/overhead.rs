//! What a call through this wrapper costs beside the same call of the library.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use crate::abi::{self, SUCCESS, datatype};
use crate::exports::functions::MPIABI_Allreduce;
use crate::runtime::Runtime;
use crate::{Error, with_api};

/// The time of a call, through the wrapper and not.
#[derive(Clone, Copy, Debug)]
pub struct Overhead {
    /// Through the wrapper.
    pub wrapped: Duration,
    /// Of the library.
    pub direct: Duration,
}

/// Times the sum of one number over this rank alone, which sends nothing: the medians of `blocks` of `calls` each, in
/// turns.
pub fn measure(runtime: &Runtime, blocks: usize, calls: u32) -> Result<Overhead, Error> {
    let (one, mut sum) = (1.0_f32, 0.0_f32);
    let (send, receive) = ((&raw const one).cast(), (&raw mut sum).cast());
    let mut wrapped = || {
        // SAFETY: one number is read and one written, on a communicator of this process alone.
        unsafe { MPIABI_Allreduce(send, receive, 1, datatype::FLOAT, abi::SUM, abi::COMM_SELF) }
    };
    let mut direct = || {
        with_api!(runtime.library(), api => {
            match (api.datatype(datatype::FLOAT), api.operation(abi::SUM)) {
                (Ok(float), Ok(sum)) => {
                    // SAFETY: as above.
                    unsafe { (api.functions.allreduce)(send, receive, 1, float, sum, api.comm(abi::COMM_SELF)) }
                }
                _ => abi::ERR_OTHER,
            }
        })
    };
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..blocks.max(1) {
        times[0].push(time(&mut wrapped, calls));
        times[1].push(time(&mut direct, calls));
    }
    runtime.library().check("MPI_Allreduce", wrapped())?;
    runtime.library().check("MPI_Allreduce", direct())?;
    let [wrapped, direct] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2] / calls.max(1)
    });
    Ok(Overhead { wrapped, direct })
}

fn time(call: &mut dyn FnMut() -> c_int, calls: u32) -> Duration {
    let start = Instant::now();
    for _ in 0..calls {
        if call() != SUCCESS {
            break; // `measure` looks at the code
        }
    }
    start.elapsed()
}
