//! The functions of MPI that XLA calls, and a few that say what runs: all but those that [send and
//! receive](super::point_to_point).
//!
//! Three of them differ from plain forwarding, to mend what XLA does: [`MPIABI_Is_thread_main`],
//! [`MPIABI_Comm_split`] and [`MPIABI_Comm_free`]. How MPI is started and ended is [`crate::runtime`]'s.

#![allow(clippy::missing_safety_doc)] // the MPI standard says what each function requires

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;

use crate::abi::{self, Handle, ThreadLevel, datatype};
use crate::calls::{self, Call, Over};
use crate::checks::Rest;
use crate::library::api::Unknown;
use crate::runtime::{self, Runtime, attach, running, stop};
use crate::{checks, groups, memory, programs, traffic, waiting, with_api};

/// The running MPI; a call before `MPI_Init_thread` is an error that only the message can tell.
pub(super) fn mpi(function: &str) -> &'static Runtime {
    running().unwrap_or_else(|| stop(&format!("{function} was called before MPI_Init_thread")))
}

/// A datatype or operation that has no translation: XLA began to use something that this wrapper doesn't know.
pub(super) fn known<H>(function: &str, handle: Result<H, Unknown>) -> H {
    handle.unwrap_or_else(|Unknown { what, number }| {
        stop(&format!(
            "{function} was called with a {what} that this wrapper doesn't know (number {number:#x} of the MPI-5 \
             ABI). This jaxlib is newer than this ferroket knows: please update ferroket"
        ))
    })
}

/// The environments to look for MPI in when no Python code said so: the one this file is installed in, and the
/// active one.
fn prefixes() -> Vec<PathBuf> {
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    crate::library::own_prefix().into_iter().chain(active).collect()
}

/// MPItrampoline calls it while loading the wrapper; there is no Fortran here, but it shows that we were loaded.
#[unsafe(no_mangle)]
pub extern "C" fn mpiwrapper_export_fortran_constants_() {
    runtime::trampoline_attached();
}

/// Starts MPI, or joins it if it runs already. XLA asks for `MPI_THREAD_FUNNELED` and never looks at what it got;
/// it needs, and gets, `MPI_THREAD_MULTIPLE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Init_thread(
    _argc: *mut c_int,
    _argv: *mut *mut *mut c_char,
    _required: c_int,
    provided: *mut c_int,
) -> c_int {
    // XLA doesn't look at the outcome, and would go on with a communicator that doesn't exist.
    if let Err(error) = attach(&prefixes()) {
        stop(&error.to_string());
    }
    // SAFETY: the standard lets the caller pass a valid pointer only.
    unsafe { *provided = ThreadLevel::Multiple as c_int };
    abi::SUCCESS
}

/// Finalizes MPI if XLA's call of `MPI_Init_thread` initialised it; else its owner will.
#[unsafe(no_mangle)]
pub extern "C" fn MPIABI_Finalize() -> c_int {
    running().map_or(abi::SUCCESS, Runtime::finish)
}

/// Whether MPI was initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Initialized(flag: *mut c_int) -> c_int {
    // SAFETY: the standard lets the caller pass a valid pointer only.
    unsafe { *flag = c_int::from(running().is_some()) };
    abi::SUCCESS
}

/// Whether MPI was finalized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Finalized(flag: *mut c_int) -> c_int {
    // SAFETY: the standard lets the caller pass a valid pointer only.
    unsafe { *flag = c_int::from(running().is_some_and(Runtime::is_over)) };
    abi::SUCCESS
}

/// The level of thread support.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Query_thread(provided: *mut c_int) -> c_int {
    // SAFETY: the standard lets the caller pass a valid pointer only.
    unsafe { *provided = mpi("MPI_Query_thread").thread_level() as c_int };
    abi::SUCCESS
}

/// Always true. XLA creates communicators only on "the main thread", but runs large programs on its pool; there
/// the guard would end the program, though with `MPI_THREAD_MULTIPLE` any thread may call MPI.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Is_thread_main(flag: *mut c_int) -> c_int {
    // SAFETY: the standard lets the caller pass a valid pointer only.
    unsafe { *flag = 1 };
    abi::SUCCESS
}

/// The rank in a communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Comm_rank(comm: Handle, rank: *mut c_int) -> c_int {
    let mpi = mpi("MPI_Comm_rank");
    // SAFETY: the arguments are those of the standard, translated.
    with_api!(mpi.library(), api => unsafe { (api.functions.comm_rank)(api.comm(mpi.comm(comm)), rank) })
}

/// The size of a communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Comm_size(comm: Handle, size: *mut c_int) -> c_int {
    let mpi = mpi("MPI_Comm_size");
    // SAFETY: the arguments are those of the standard, translated.
    with_api!(mpi.library(), api => unsafe { (api.functions.comm_size)(api.comm(mpi.comm(comm)), size) })
}

/// Makes the communicator of a group of ranks. Where the group was announced, its ranks alone take part; else this is
/// what XLA asks for, a split of the world by all ranks.
///
/// XLA's key is the rank that the caller will have in the new group; another rank means that the ranks are creating
/// different groups at the same time, and a hang or a wrong sum would follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Comm_split(comm: Handle, color: c_int, key: c_int, new: *mut Handle) -> c_int {
    let mpi = mpi("MPI_Comm_split");
    if comm == abi::COMM_WORLD
        && let Some(group) = groups::asked_for(color, key, mpi.rank())
    {
        let made = mpi.make_group(&group).unwrap_or_else(|code| no_communicator(mpi, code));
        // SAFETY: the standard lets the caller pass a valid pointer only.
        unsafe { *new = made };
        return abi::SUCCESS;
    }
    let _inside = calls::enter(Call { function: "MPI_Comm_split", message: None, over: Over::Comm(comm) });
    // SAFETY: the arguments are those of the standard, translated; `new` is valid for writing.
    let (code, rank) = with_api!(mpi.library(), api => unsafe {
        let mut real = api.comm(abi::COMM_NULL);
        let mut rank = key;
        let mut code = (api.functions.comm_split)(api.comm(mpi.comm(comm)), color, key, &raw mut real);
        if code == abi::SUCCESS {
            *new = api.comm_back(real);
            if *new != abi::COMM_NULL {
                groups::made(*new, None);
                code = (api.functions.comm_rank)(real, &raw mut rank);
            }
        }
        (code, rank)
    });
    if rank != key {
        stop(&format!(
            "asked for place {key} in the group of processes that starts with device {color}, and got place \
             {rank}: the ranks are creating different groups at the same time. Every rank has to run the same \
             JAX programs in the same order; look for a computation under `if jax.process_index() == 0:`"
        ));
    }
    if code != abi::SUCCESS {
        no_communicator(mpi, code);
    }
    code
}

/// Stops the job: XLA doesn't look whether it got a communicator, and would go on with a handle that is none.
fn no_communicator(mpi: &Runtime, code: c_int) -> ! {
    let reason = mpi.library().check("making a communicator", code).err().map_or_else(String::new, |e| e.to_string());
    stop(&format!(
        "{reason}. There is one for each group of ranks that a program computes over, and MPI libraries have room for \
         some thousands. Use fewer groups: meshes of the same axes and devices in all programs"
    ))
}

/// Frees a communicator. XLA also frees after `MPI_Finalize`, which MPICH punishes with exit code 1; there is
/// nothing left to free then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Comm_free(comm: *mut Handle) -> c_int {
    // SAFETY: the standard lets the caller pass a valid pointer only.
    let ours = unsafe { std::ptr::replace(comm, abi::COMM_NULL) };
    let Some(mpi) = running().filter(|mpi| !mpi.is_over()) else { return abi::SUCCESS };
    // SAFETY: the communicator is one that XLA made, and MPI still runs.
    with_api!(mpi.library(), api => unsafe {
        let mut real = api.comm(ours);
        (api.functions.comm_free)(&raw mut real)
    })
}

/// The text of an error code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Error_string(code: c_int, text: *mut c_char, length: *mut c_int) -> c_int {
    // SAFETY: the arguments are those of the standard; MPItrampoline's buffers fit any library's messages.
    with_api!(mpi("MPI_Error_string").library(), api => unsafe { (api.functions.error_string)(code, text, length) })
}

/// The version of the MPI standard: the running library's, or the one that MPItrampoline itself speaks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Get_version(version: *mut c_int, subversion: *mut c_int) -> c_int {
    let Some(mpi) = running() else {
        // SAFETY: the standard lets the caller pass valid pointers only.
        unsafe { (*version, *subversion) = (3, 1) };
        return abi::SUCCESS;
    };
    // SAFETY: the arguments are those of the standard.
    with_api!(mpi.library(), api => unsafe { (api.functions.get_version)(version, subversion) })
}

/// The version of the library. With `MPITRAMPOLINE_VERBOSE` it is asked for at `import jax`, before there is any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Get_library_version(text: *mut c_char, length: *mut c_int) -> c_int {
    const NOT_STARTED: &std::ffi::CStr = c"Ferroket's MPI wrapper; the MPI library is opened when MPI is started";
    let Some(mpi) = running() else {
        let bytes = NOT_STARTED.to_bytes_with_nul();
        // SAFETY: MPItrampoline's buffer has 8192 bytes, and both pointers are valid.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), text, bytes.len());
            *length = bytes.len() as c_int - 1;
        }
        return abi::SUCCESS;
    };
    // SAFETY: the arguments are those of the standard; MPItrampoline's buffer fits any library's text.
    with_api!(mpi.library(), api => unsafe { (api.functions.get_library_version)(text, length) })
}

/// Ends the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Abort(comm: Handle, code: c_int) -> c_int {
    let mpi = mpi("MPI_Abort");
    // SAFETY: the arguments are those of the standard, translated.
    with_api!(mpi.library(), api => unsafe { (api.functions.abort)(api.comm(mpi.comm(comm)), code) })
}

/// A collective, as ranks compare it and as messages describe it.
fn collective(
    function: &'static str,
    count: c_int,
    datatype: Handle,
    operation: Handle,
    comm: Handle,
) -> (programs::Call, Call) {
    let count = count.unsigned_abs() as usize;
    let described = Call { function, message: Some((count, datatype)), over: Over::Comm(comm) };
    (programs::Call { function, count, datatype, operation }, described)
}

/// Reduces over all ranks, the result on each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Allreduce(
    send: *const c_void,
    receive: *mut c_void,
    count: c_int,
    datatype: Handle,
    operation: Handle,
    comm: Handle,
) -> c_int {
    const NAME: &str = "MPI_Allreduce";
    let mpi = mpi(NAME);
    traffic::note(NAME, count, datatype, comm);
    let (call, described) = collective(NAME, count, datatype, operation, comm);
    let _inside = calls::enter(described.clone());
    // SAFETY: the standard lets the caller pass such buffers only.
    if let Rest::Nothing(code) = unsafe { checks::compare(mpi, &call, &described, comm, Some((send, receive))) } {
        return code;
    }
    let (_, size) = datatype::describe(datatype).unwrap_or_default();
    // SAFETY: the standard lets the caller pass a buffer of that many elements only.
    unsafe { memory::advise_huge_pages(receive, count.unsigned_abs() as usize * size) };
    // SAFETY: the arguments are those of the standard, translated.
    with_api!(mpi.library(), api => unsafe {
        let (send, comm) = (api.buffer(send), api.comm(mpi.comm(comm)));
        let operation = known(NAME, mpi.operation(api, datatype, operation));
        let datatype = known(NAME, api.datatype(datatype));
        waiting::run(
            api,
            || (api.functions.allreduce)(send, receive, count, datatype, operation, comm),
            |request| (api.functions.iallreduce)(send, receive, count, datatype, operation, comm, request),
        )
    })
}

/// The marker with which a program begins, if a message is one. It goes nowhere but to this rank.
///
/// # Safety
/// There has to be a message as `count` and `datatype` say, and as much room at `receive`.
unsafe fn marker(
    send: *const c_void,
    count: c_int,
    datatype: Handle,
    receive: *mut c_void,
) -> Option<[u64; programs::MARKER_LENGTH]> {
    const BYTES: usize = size_of::<u64>() * programs::MARKER_LENGTH;
    let size = datatype::describe(datatype).map_or(0, |(_, size)| size);
    if count.unsigned_abs() as usize * size != BYTES || send.addr() == abi::IN_PLACE {
        return None;
    }
    let mut message = [0; programs::MARKER_LENGTH];
    // SAFETY: the caller answers for the bytes, of which there are as many at each place.
    unsafe { std::ptr::copy_nonoverlapping(send.cast::<u8>(), message.as_mut_ptr().cast(), BYTES) };
    if !programs::begin(&message) {
        return None;
    }
    // SAFETY: as above.
    unsafe { std::ptr::copy(send.cast::<u8>(), receive.cast(), BYTES) };
    Some(message)
}

/// Gathers from all ranks, the result on each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Allgather(
    send: *const c_void,
    send_count: c_int,
    send_type: Handle,
    receive: *mut c_void,
    receive_count: c_int,
    receive_type: Handle,
    comm: Handle,
) -> c_int {
    const NAME: &str = "MPI_Allgather";
    const MARKER: &str = "the marker of a program";
    let mpi = mpi(NAME);
    // SAFETY: the standard lets the caller pass such buffers only.
    if let Some(message) = unsafe { marker(send, send_count, send_type, receive) } {
        let Some(comm) = programs::late_comm(&message) else { return abi::SUCCESS };
        let (call, described) = collective(MARKER, 0, send_type, 0, comm);
        let _inside = calls::enter(described.clone());
        // SAFETY: no buffer is given.
        return match unsafe { checks::compare(mpi, &call, &described, comm, None) } {
            Rest::All => abi::SUCCESS,
            Rest::Nothing(code) => code,
        };
    }
    traffic::note(NAME, send_count, send_type, comm);
    let (call, described) = collective(NAME, send_count, send_type, 0, comm);
    let _inside = calls::enter(described.clone());
    // SAFETY: no buffer is given.
    if let Rest::Nothing(code) = unsafe { checks::compare(mpi, &call, &described, comm, None) } {
        return code;
    }
    // SAFETY: the arguments are those of the standard, translated.
    with_api!(mpi.library(), api => unsafe {
        let (send, comm) = (api.buffer(send), api.comm(mpi.comm(comm)));
        let send_type = known(NAME, api.datatype(send_type));
        let receive_type = known(NAME, api.datatype(receive_type));
        waiting::run(
            api,
            || (api.functions.allgather)(send, send_count, send_type, receive, receive_count, receive_type, comm),
            |request| {
                let start = api.functions.iallgather;
                start(send, send_count, send_type, receive, receive_count, receive_type, comm, request)
            },
        )
    })
}

/// Reduces over all ranks, a part of the result on each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Reduce_scatter(
    send: *const c_void,
    receive: *mut c_void,
    receive_counts: *const c_int,
    datatype: Handle,
    operation: Handle,
    comm: Handle,
) -> c_int {
    const NAME: &str = "MPI_Reduce_scatter";
    let mpi = mpi(NAME);
    // SAFETY: there is a count for each rank, and at least one rank. XLA's parts have equal lengths.
    let count = unsafe { *receive_counts };
    traffic::note(NAME, count, datatype, comm);
    let (call, described) = collective(NAME, count, datatype, operation, comm);
    let _inside = calls::enter(described.clone());
    // SAFETY: no buffer is given.
    if let Rest::Nothing(code) = unsafe { checks::compare(mpi, &call, &described, comm, None) } {
        return code;
    }
    // SAFETY: the arguments are those of the standard, translated.
    with_api!(mpi.library(), api => unsafe {
        let (send, comm) = (api.buffer(send), api.comm(mpi.comm(comm)));
        let operation = known(NAME, mpi.operation(api, datatype, operation));
        let datatype = known(NAME, api.datatype(datatype));
        waiting::run(
            api,
            || (api.functions.reduce_scatter)(send, receive, receive_counts, datatype, operation, comm),
            |request| {
                (api.functions.ireduce_scatter)(send, receive, receive_counts, datatype, operation, comm, request)
            },
        )
    })
}
