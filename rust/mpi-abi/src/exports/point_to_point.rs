//! The functions of MPI that XLA calls to send messages from one rank to another.

#![allow(clippy::missing_safety_doc)] // the MPI standard says what each function requires

use std::ffi::{c_int, c_void};

use super::functions::{known, mpi};
use crate::abi::{self, Handle, Status};
use crate::calls::{self, Call, Over};
use crate::library::api::RealStatus;
use crate::runtime::stop;
use crate::{checks, traffic, waiting, with_api};

/// What both sides of a message call it.
const MESSAGE: &str = "a message";

/// Sends to one rank while receiving from another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Sendrecv(
    send: *const c_void,
    send_count: c_int,
    send_type: Handle,
    destination: c_int,
    send_tag: c_int,
    receive: *mut c_void,
    receive_count: c_int,
    receive_type: Handle,
    source: c_int,
    receive_tag: c_int,
    comm: Handle,
    status: *mut Status,
) -> c_int {
    const NAME: &str = "MPI_Sendrecv";
    let mpi = mpi(NAME);
    traffic::note(NAME, send_count, send_type, comm);
    // It is over when its two partners have come, whatever the others of the communicator do.
    let message = Some((send_count.unsigned_abs() as usize, send_type));
    let _inside = calls::enter(Call { function: NAME, message, over: Over::Unknown });
    let mut real = RealStatus::default();
    let mut own_status = Status::default();
    // Partners that run the same program have the same tag.
    let compared = checks::tag(NAME, send_count, send_type, comm);
    let (send_tag, receive_tag) = compared.map_or((send_tag, receive_tag), |tag| (tag, abi::ANY_TAG));
    let comes = compared.filter(|_| source != abi::PROC_NULL);
    let status = if comes.is_some() && status.is_null() { &raw mut own_status } else { status };
    // SAFETY: the arguments are those of the standard, translated; requests are completed before they are dropped.
    let code = with_api!(mpi.library(), api => unsafe {
        let (destination, source, receive_tag) = (api.peer(destination), api.peer(source), api.tag(receive_tag));
        let send_type = known(NAME, api.datatype(send_type));
        let receive_type = known(NAME, api.datatype(receive_type));
        let comm = api.comm(mpi.comm(comm));
        let real_status = api.status(status, &mut real);
        let functions = &api.functions;
        let code = if waiting::is_yielding() {
            let mut coming = api.request(abi::REQUEST_NULL);
            let mut code =
                (functions.irecv)(receive, receive_count, receive_type, source, receive_tag, comm, &raw mut coming);
            if code == abi::SUCCESS {
                code = waiting::run(
                    api,
                    || (functions.send)(send, send_count, send_type, destination, send_tag, comm),
                    |going| (functions.isend)(send, send_count, send_type, destination, send_tag, comm, going),
                );
            }
            if code == abi::SUCCESS {
                code = waiting::complete(api, &mut coming, real_status);
            } else if coming != api.request(abi::REQUEST_NULL) {
                stop(&format!("{NAME} failed while it was receiving, with MPI's error {code}"));
            }
            code
        } else {
            (functions.sendrecv)(
                send,
                send_count,
                send_type,
                destination,
                send_tag,
                receive,
                receive_count,
                receive_type,
                source,
                receive_tag,
                comm,
                real_status,
            )
        };
        if !status.is_null() {
            *status = api.status_back(&real);
        }
        code
    });
    if let (abi::SUCCESS, Some(tag)) = (code, comes) {
        // SAFETY: it was made sure that there is one.
        checks::check_tag(tag, unsafe { &*status }, NAME);
    }
    code
}

/// Starts to send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Isend(
    buffer: *const c_void,
    count: c_int,
    datatype: Handle,
    destination: c_int,
    tag: c_int,
    comm: Handle,
    request: *mut Handle,
) -> c_int {
    const NAME: &str = "MPI_Isend";
    let mpi = mpi(NAME);
    traffic::note(NAME, count, datatype, comm);
    let tag = checks::tag(MESSAGE, count, datatype, comm).unwrap_or(tag);
    // SAFETY: the arguments are those of the standard, translated; `request` is valid for writing.
    with_api!(mpi.library(), api => unsafe {
        let mut real = api.request(abi::REQUEST_NULL);
        let datatype = known(NAME, api.datatype(datatype));
        let comm = api.comm(mpi.comm(comm));
        let code = (api.functions.isend)(buffer, count, datatype, api.peer(destination), tag, comm, &raw mut real);
        *request = api.request_back(real);
        code
    })
}

/// Starts to receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Irecv(
    buffer: *mut c_void,
    count: c_int,
    datatype: Handle,
    source: c_int,
    tag: c_int,
    comm: Handle,
    request: *mut Handle,
) -> c_int {
    const NAME: &str = "MPI_Irecv";
    let mpi = mpi(NAME);
    let compared = checks::tag(MESSAGE, count, datatype, comm).filter(|_| source != abi::PROC_NULL);
    let tag = compared.map_or(tag, |_| abi::ANY_TAG);
    // SAFETY: the arguments are those of the standard, translated; `request` is valid for writing.
    with_api!(mpi.library(), api => unsafe {
        let mut real = api.request(abi::REQUEST_NULL);
        let datatype = known(NAME, api.datatype(datatype));
        let comm = api.comm(mpi.comm(comm));
        let code =
            (api.functions.irecv)(buffer, count, datatype, api.peer(source), api.tag(tag), comm, &raw mut real);
        *request = api.request_back(real);
        if let (abi::SUCCESS, Some(tag)) = (code, compared) {
            checks::expect(*request, tag);
        }
        code
    })
}

/// Waits until a request is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIABI_Wait(request: *mut Handle, status: *mut Status) -> c_int {
    const NAME: &str = "MPI_Wait";
    let mpi = mpi(NAME);
    let _inside = calls::enter(Call { function: NAME, message: None, over: Over::Unknown });
    let mut real_status = RealStatus::default();
    let mut own_status = Status::default();
    // SAFETY: the standard lets the caller pass a valid pointer only.
    let expected = checks::expected(unsafe { *request });
    let status = if expected.is_some() && status.is_null() { &raw mut own_status } else { status };
    // SAFETY: the arguments are those of the standard, translated; `request` is valid for reading and writing.
    let code = with_api!(mpi.library(), api => unsafe {
        let mut real = api.request(*request);
        let to = api.status(status, &mut real_status);
        let code = if waiting::is_yielding() {
            waiting::complete(api, &mut real, to)
        } else {
            (api.functions.wait)(&raw mut real, to)
        };
        *request = api.request_back(real);
        if !status.is_null() {
            *status = api.status_back(&real_status);
        }
        code
    });
    if let (abi::SUCCESS, Some(tag)) = (code, expected) {
        // SAFETY: it was made sure that there is one.
        checks::check_tag(tag, unsafe { &*status }, NAME);
    }
    code
}
