//! The MPI of this process: started or joined once, and shared by XLA and Python.
//!
//! What is mended here, because XLA doesn't do it: MPI that somebody else initialised is only joined; the level
//! of thread support is `MPI_THREAD_MULTIPLE` or the program doesn't start; XLA gets a private duplicate of
//! `MPI_COMM_WORLD`, so that a user's own collectives never meet XLA's; only who initialised MPI finalizes it.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use crate::abi::{self, Handle, SUCCESS, ThreadLevel};
use crate::calls::{self, Call, Over};
use crate::ending::{exit, tell};
use crate::groups::{self, Group};
use crate::library::api::{Api, RealHandle, Unknown};
use crate::library::{Attempt, Candidate, Library, find};
use crate::packets::Packets;
use crate::reductions::Reductions;
use crate::{Error, launcher, waiting, with_api};

/// The MPI that this process runs on.
#[derive(Debug)]
pub struct Runtime {
    library: Library,
    found: Candidate,
    attempts: Vec<Attempt>,
    /// XLA's own duplicate of `MPI_COMM_WORLD`, by our number.
    world: Handle,
    /// Another, for what the ranks agree on among themselves.
    control: Handle,
    /// What the library itself gets wrong.
    reductions: Reductions,
    /// With which ranks compare where they are.
    packets: Packets,
    rank: c_int,
    size: c_int,
    level: ThreadLevel,
    /// We initialised MPI, so we finalize it.
    ours: bool,
    /// XLA said that it is done.
    done: AtomicBool,
    /// A fork of this process has no MPI.
    process: u32,
}

static RUNTIME: OnceLock<Runtime> = OnceLock::new();
/// Held while MPI is being started, so that it is started once. A failure isn't kept: the next call tries again.
static STARTING: Mutex<()> = Mutex::new(());
static TRAMPOLINE: AtomicBool = AtomicBool::new(false);
/// The running MPI, if it was started or joined.
#[must_use]
pub fn running() -> Option<&'static Runtime> {
    RUNTIME.get()
}

/// Whether MPItrampoline has loaded this library as its wrapper.
#[must_use]
pub fn is_trampoline_attached() -> bool {
    TRAMPOLINE.load(Ordering::Relaxed)
}

/// MPItrampoline calls this while it loads a wrapper.
pub(crate) fn trampoline_attached() {
    TRAMPOLINE.store(true, Ordering::Relaxed);
}

/// Starts MPI, or joins the one that runs in this process already. All ranks have to call it: duplicating
/// `MPI_COMM_WORLD` is a collective operation. Later calls return the same.
///
/// `prefixes` are environments in whose `lib` the library may be, best first. What [`Library::variable`] says is to be set
/// beforehand.
pub fn attach(prefixes: &[PathBuf]) -> Result<&'static Runtime, Error> {
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let _guard = STARTING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let runtime = start(prefixes)?;
    groups::set_world_size(runtime.size);
    Ok(RUNTIME.get_or_init(|| runtime))
}

fn start(prefixes: &[PathBuf]) -> Result<Runtime, Error> {
    let discovery = find(prefixes)?;
    let library = discovery.library;
    // SAFETY: these are the functions of MPI with their arguments as the standard has them; `Initialized` and
    // `Finalized` may be called at any time, the others once MPI is initialised, which is made sure of.
    let (world, control, reductions, packets, rank, size, level, ours) = with_api!(library, api => unsafe {
        let (mut initialized, mut finalized) = (0, 0);
        library.check("MPI_Initialized", (api.functions.initialized)(&raw mut initialized))?;
        library.check("MPI_Finalized", (api.functions.finalized)(&raw mut finalized))?;
        if finalized != 0 {
            return Err(Error::Finalized);
        }
        let mut provided = 0;
        let ours = initialized == 0;
        if ours {
            library.open_fabric();
            let null = std::ptr::null_mut();
            let _watched = launcher::explain_exit(&library.version());
            let code = (api.functions.init_thread)(null, null.cast(), api.thread_multiple(), &raw mut provided);
            library.check("MPI_Init_thread", code)?;
        } else {
            library.check("MPI_Query_thread", (api.functions.query_thread)(&raw mut provided))?;
        }
        let level = library.thread_level(provided);
        if level < ThreadLevel::Multiple {
            return Err(Error::ThreadLevel { path: library.path().to_path_buf(), level });
        }
        let (mut world, mut control) = (api.comm(abi::COMM_NULL), api.comm(abi::COMM_NULL));
        let (mut rank, mut size) = (0, 0);
        for copy in [&mut world, &mut control] {
            library.check("MPI_Comm_dup", (api.functions.comm_dup)(api.comm(abi::COMM_WORLD), copy))?;
            // An error in XLA's communicators becomes a status of XLA's, with a Python traceback.
            let code = (api.functions.comm_set_errhandler)(*copy, api.errors_return());
            library.check("MPI_Comm_set_errhandler", code)?;
        }
        library.check("MPI_Comm_rank", (api.functions.comm_rank)(world, &raw mut rank))?;
        library.check("MPI_Comm_size", (api.functions.comm_size)(world, &raw mut size))?;
        let examined = Reductions::examine(api, control);
        library.check("MPI_Reduce_local", examined.as_ref().err().copied().unwrap_or(SUCCESS))?;
        let packets = Packets::new(api);
        library.check("MPI_Op_create", packets.as_ref().err().copied().unwrap_or(SUCCESS))?;
        let handles = (api.comm_back(world), api.comm_back(control));
        (handles.0, handles.1, examined.unwrap_or_default(), packets.unwrap_or_default(), rank, size, level, ours)
    });
    Ok(Runtime {
        library,
        found: discovery.candidate,
        attempts: discovery.attempts,
        world,
        control,
        reductions,
        packets,
        rank,
        size,
        level,
        ours,
        done: AtomicBool::new(false),
        process: std::process::id(),
    })
}

impl Runtime {
    /// The library.
    #[must_use]
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Where the library was found.
    #[must_use]
    pub fn found(&self) -> &Candidate {
        &self.found
    }

    /// The places that were tried, this one last.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// This process's rank in `MPI_COMM_WORLD`.
    #[must_use]
    pub fn rank(&self) -> c_int {
        self.rank
    }

    /// The number of processes in `MPI_COMM_WORLD`.
    #[must_use]
    pub fn size(&self) -> c_int {
        self.size
    }

    /// The level of thread support, `MPI_THREAD_MULTIPLE`.
    #[must_use]
    pub fn thread_level(&self) -> ThreadLevel {
        self.level
    }

    /// The communicator that XLA means: its private duplicate where it says `MPI_COMM_WORLD`.
    pub(crate) fn comm(&self, ours: Handle) -> Handle {
        if ours == abi::COMM_WORLD { self.world } else { ours }
    }

    /// The operation that reduces values of a datatype as XLA means it, by the library's number.
    pub(crate) fn operation<H: RealHandle>(
        &self,
        api: &Api<H>,
        datatype: Handle,
        operation: Handle,
    ) -> Result<H, Unknown> {
        self.reductions.own(datatype, operation).map_or_else(|| api.operation(operation), Ok)
    }

    /// With which ranks compare where they are.
    pub(crate) fn packets(&self) -> &Packets {
        &self.packets
    }

    /// Makes the communicator of some ranks; they alone take part. Returns it by our number, or MPI's error code.
    pub(crate) fn make_group(&self, group: &Group) -> Result<Handle, c_int> {
        // Only this function uses point-to-point tags on `world`.
        let tag = groups::tag(&group.ranks);
        let over = Over::Ranks(group.ranks.clone());
        let _inside = calls::enter(Call { function: "MPI_Comm_create_group", message: None, over });
        let checked = |code| if code == SUCCESS { Ok(()) } else { Err(code) };
        let length = c_int::try_from(group.ranks.len()).map_err(|_| abi::ERR_OTHER)?;
        // SAFETY: these are the functions of MPI with their arguments as the standard has them.
        let made = with_api!(self.library, api => unsafe {
            let (world, functions) = (api.comm(self.world), &api.functions);
            let (mut all, mut some) = (api.no_group(), api.no_group());
            let mut made = api.comm(abi::COMM_NULL);
            checked((functions.comm_group)(world, &raw mut all))?;
            checked((functions.group_incl)(all, length, group.ranks.as_ptr(), &raw mut some))?;
            checked((functions.comm_create_group)(world, some, tag, &raw mut made))?;
            checked((functions.group_free)(&raw mut some))?;
            checked((functions.group_free)(&raw mut all))?;
            api.comm_back(made)
        });
        groups::made(made, Some(group.ranks.clone()));
        Ok(made)
    }

    /// Gathers bytes, of any length on each rank, from all ranks, by rank. A collective of all ranks.
    pub fn allgather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let size = self.size.unsigned_abs() as usize;
        let mut lengths = vec![0_u64; size];
        // SAFETY: there is room for one number of each rank.
        unsafe { self.gather_bytes(&(own.len() as u64).to_ne_bytes(), lengths.as_mut_ptr().cast()) }?;
        let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
        let mut padded = own.to_vec();
        padded.resize(longest, 0);
        let mut all = vec![0_u8; longest * size];
        // SAFETY: there is room for the longest part of each rank.
        unsafe { self.gather_bytes(&padded, all.as_mut_ptr()) }?;
        let parts = lengths.iter().enumerate();
        Ok(parts.map(|(rank, &length)| all[rank * longest..][..length as usize].to_vec()).collect())
    }

    /// Gathers equally many bytes from each rank.
    ///
    /// # Safety
    /// At `all` there has to be room for those of every rank.
    unsafe fn gather_bytes(&self, own: &[u8], all: *mut u8) -> Result<(), Error> {
        const NAME: &str = "MPI_Allgather";
        let too_long = |_| Error::TooLong { bytes: own.len() };
        let count = c_int::try_from(own.len()).map_err(too_long)?;
        let message = Some((own.len(), abi::datatype::BYTE));
        let _inside = calls::enter(Call { function: NAME, message, over: Over::Comm(abi::COMM_WORLD) });
        // SAFETY: the arguments are those of the standard; the caller answers for the room.
        let code = with_api!(self.library, api => unsafe {
            // Every library has the type of bytes.
            let Ok(byte) = api.datatype(abi::datatype::BYTE) else { return Ok(()) };
            let comm = api.comm(self.control);
            waiting::run(
                api,
                || (api.functions.allgather)(own.as_ptr().cast(), count, byte, all.cast(), count, byte, comm),
                |request| {
                    let start = api.functions.iallgather;
                    start(own.as_ptr().cast(), count, byte, all.cast(), count, byte, comm, request)
                },
            )
        });
        self.library.check(NAME, code)
    }

    /// Waits, asleep, until all ranks are here: they may take long, and need the cores. A collective of all ranks.
    /// Returns whether they are; false, at once, where MPI is over.
    pub fn wait_for_all(&self) -> Result<bool, Error> {
        if self.is_over() {
            return Ok(false);
        }
        // SAFETY: the arguments are those of the standard; the request is completed before it is dropped.
        let code = with_api!(self.library, api => unsafe {
            let mut request = api.request(abi::REQUEST_NULL);
            let code = (api.functions.ibarrier)(api.comm(self.control), &raw mut request);
            if code == SUCCESS { waiting::complete(api, &mut request, api.no_status()) } else { code }
        });
        self.library.check("MPI_Ibarrier", code).map(|()| true)
    }

    /// Ends the whole job with an exit code; messages have to be on their way already.
    pub fn abort(&self, code: c_int) {
        if !self.is_over() {
            // SAFETY: MPI runs; `MPI_Abort` is made for this.
            with_api!(self.library, api => unsafe {
                (api.functions.abort)(api.comm(abi::COMM_WORLD), code);
            });
        }
    }

    /// Whether MPI is over, for XLA or for everybody, or doesn't run in this process.
    pub(crate) fn is_over(&self) -> bool {
        if self.process != std::process::id() {
            return true;
        }
        let mut finalized = 0;
        // SAFETY: `MPI_Finalized` may be called at any time.
        let code = with_api!(self.library, api => unsafe { (api.functions.finalized)(&raw mut finalized) });
        self.done.load(Ordering::Acquire) || code != SUCCESS || finalized != 0
    }

    /// XLA is done, or the process is: finalizes MPI if we initialised it. What XLA frees later is over already.
    pub fn finish(&self) -> c_int {
        let was_over = self.is_over();
        if self.done.swap(true, Ordering::AcqRel) || was_over || !self.ours {
            return SUCCESS;
        }
        let _inside = calls::enter(Call { function: "MPI_Finalize", message: None, over: Over::Comm(abi::COMM_WORLD) });
        with_api!(self.library, api => {
            self.packets.free(api);
            // SAFETY: MPI is initialised and not finalized, by us; XLA promises not to use it any more.
            unsafe { (api.functions.finalize)() }
        })
    }
}

/// How long a launcher may take to forward a message: at an abort it ends without looking for more.
const FORWARDING: Duration = Duration::from_millis(200);

/// Ends the whole job with a message, or this process alone where MPI doesn't run: for what can't be reported in another
/// way, and would hang the others.
pub fn stop(message: &str) -> ! {
    let rank = running().map(|runtime| format!(" rank {}:", runtime.rank)).unwrap_or_default();
    tell(&format!("ferroket:{rank} {message}"));
    std::thread::sleep(FORWARDING);
    if let Some(runtime) = running() {
        runtime.abort(1);
    }
    exit(1)
}
