//! The ranks of a node are watched: one that is killed can't say so itself, and a launcher that says it names a process,
//! not a rank.
//!
//! Each rank has a *beacon*, a page of memory that shows its [`State`]. A process of its own on each node, which the
//! launcher doesn't know and so doesn't kill, maps the beacons and sleeps until a rank ends ([`watch_ranks`]).

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// What a rank's beacon shows to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// It runs: if it ends now, it was killed.
    Running = 0,
    /// It has said itself why it ends.
    Told = 1,
    /// It has done its work, as all have.
    Finished = 2,
}

/// Changes what this rank's beacon shows, if it has one and this is its process, not a fork. Async-signal-safe.
/// Returns whether it did.
pub(crate) fn mark(state: State) -> bool {
    imp::mark(state)
}

/// This rank's beacon: how the others of the node find it, and what it shows.
#[pyclass(frozen, module = "ferroket._lib")]
#[derive(Debug)]
pub(crate) struct Beacon {
    /// Process and file descriptor, for [`watch_ranks`]; None where the system has no such thing.
    #[pyo3(get)]
    address: Option<(i32, i32)>,
}

#[pymethods]
impl Beacon {
    #[new]
    fn new() -> PyResult<Self> {
        ferroket_mpi_abi::runtime::when_told(Self::told);
        imp::light().map(|address| Self { address }).map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// This rank has said why it ends.
    #[staticmethod]
    fn told() {
        mark(State::Told);
    }

    /// This rank has done its work, as all have.
    #[staticmethod]
    fn finished() {
        mark(State::Finished);
    }
}

/// Watches the ranks of this node until they have all ended. If one ends before its work is done and without a word of
/// its own, says so on stderr; if the launcher doesn't end the others then, does it.
///
/// `ranks` are how messages name each, and its beacon's address.
#[pyfunction]
pub(crate) fn watch_ranks(py: Python<'_>, ranks: Vec<(String, (i32, i32))>) {
    py.detach(|| imp::watch(ranks));
}

#[cfg(target_os = "linux")]
mod imp {
    use std::ffi::c_int;
    use std::fs::{File, OpenOptions};
    use std::io::{self, Write};
    use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
    use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, Ordering};
    use std::time::{Duration, Instant};

    use super::State;
    use crate::crash::CRASHES;

    const PAGE: usize = 4096;
    /// How long a launcher may take to end the other ranks of a job that has lost one.
    const LAUNCHERS_TURN: Duration = Duration::from_secs(3);

    /// The state that this rank shows.
    static OWN: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());
    /// The process that it is the state of; a fork shares the page.
    static PROCESS: AtomicI32 = AtomicI32::new(0);

    pub(super) fn mark(state: State) -> bool {
        let own = OWN.load(Ordering::Acquire);
        // SAFETY: getpid has no preconditions.
        let is_rank = !own.is_null() && unsafe { libc::getpid() } == PROCESS.load(Ordering::Acquire);
        if is_rank {
            // SAFETY: the page is mapped as long as the process lives.
            unsafe { &*own }.store(state as u8, Ordering::Release);
        }
        is_rank
    }

    /// A page of a file, shared with whoever maps it too, as long as the process lives.
    fn map(file: &impl AsRawFd) -> io::Result<&'static AtomicU8> {
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping anywhere; the file has this length.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, access, shared, file.as_raw_fd(), 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the page is mapped for ever, and only ever used as this atomic.
        Ok(unsafe { &*page.cast::<AtomicU8>() })
    }

    pub(super) fn light() -> io::Result<Option<(i32, i32)>> {
        // SAFETY: the name is a C string; the new descriptor is ours alone.
        let memory = unsafe { libc::memfd_create(c"ferroket".as_ptr(), libc::MFD_CLOEXEC) };
        if memory < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as said.
        let memory = unsafe { File::from_raw_fd(memory) };
        memory.set_len(PAGE as u64)?;
        let page = map(&memory)?;
        OWN.store(std::ptr::from_ref(page).cast_mut(), Ordering::Release);
        PROCESS.store(std::process::id().cast_signed(), Ordering::Release);
        mark(State::Running);
        // It stays open as long as the process lives: the others open it by its number.
        Ok(Some((std::process::id().cast_signed(), memory.into_raw_fd())))
    }

    struct Rank {
        name: String,
        pid: i32,
        process: OwnedFd,
        shown: &'static AtomicU8,
    }

    impl Rank {
        fn find(name: String, (pid, memory): (i32, i32)) -> io::Result<Self> {
            // SAFETY: the arguments are those of the system call; the new descriptor is ours alone.
            let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
            if process < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: as said; descriptors are C ints.
            let process = unsafe { OwnedFd::from_raw_fd(process as c_int) };
            let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{memory}"))?;
            Ok(Self { name, pid, process, shown: map(&file)? })
        }

        fn shows(&self, state: State) -> bool {
            self.shown.load(Ordering::Acquire) == state as u8
        }

        /// How it ended. Its parent may have taken the answer away already.
        fn end(&self) -> Option<c_int> {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
            // The fields after the name in parentheses; the state is the third of all, the exit code the 52nd.
            let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            if fields.first() == Some(&"Z") { fields.get(49)?.parse().ok() } else { None }
        }

        fn kill(&self) {
            // SAFETY: the descriptor names this process and no later one of the same number.
            unsafe {
                libc::syscall(
                    libc::SYS_pidfd_send_signal,
                    self.process.as_raw_fd(),
                    libc::SIGKILL,
                    std::ptr::null::<libc::siginfo_t>(),
                    0,
                )
            };
        }
    }

    pub(super) fn watch(ranks: Vec<(String, (i32, i32))>) {
        // A rank that can't be found (in another container, say) can't be watched either.
        let ranks: Vec<Rank> = ranks.into_iter().filter_map(|(name, address)| Rank::find(name, address).ok()).collect();
        let mut ends: Vec<libc::pollfd> = ranks
            .iter()
            .map(|rank| libc::pollfd { fd: rank.process.as_raw_fd(), events: libc::POLLIN, revents: 0 })
            .collect();
        let mut lost: Option<Instant> = None;
        // Those that have ended are not looked at again.
        while ends.iter().any(|end| end.fd >= 0) {
            let patience = lost.map_or(-1, |since| {
                c_int::try_from(LAUNCHERS_TURN.saturating_sub(since.elapsed()).as_millis()).unwrap_or(0)
            });
            // SAFETY: the array is valid and has this length.
            let count = unsafe { libc::poll(ends.as_mut_ptr(), ends.len() as libc::nfds_t, patience) };
            if count == 0 {
                ranks.iter().for_each(Rank::kill);
                return;
            }
            for (end, rank) in ends.iter_mut().zip(&ranks).filter(|(end, _)| count > 0 && end.revents != 0) {
                end.fd = -1;
                if !rank.shows(State::Finished) {
                    // The first one that is lost is the cause, unless one has told another: a launcher that ends a job
                    // may begin with any rank.
                    if lost.is_none() && !ranks.iter().any(|rank| rank.shows(State::Told)) {
                        say(rank);
                    }
                    lost.get_or_insert_with(Instant::now);
                }
            }
        }
    }

    fn say(rank: &Rank) {
        let cause = match rank.end() {
            Some(status) if libc::WIFSIGNALED(status) => {
                let signal = libc::WTERMSIG(status);
                if CRASHES.iter().any(|(crash, _)| *crash == signal) {
                    format!("crashed (signal {signal})")
                } else if signal == libc::SIGKILL {
                    "was killed (SIGKILL), by the kernel for lack of memory or by a person or a job system".into()
                } else {
                    format!("was ended by signal {signal}")
                }
            }
            Some(status) => format!("left with code {} before the end of its script", libc::WEXITSTATUS(status)),
            None => "ended without a word: killed (SIGKILL), for lack of memory perhaps, or left by os._exit".into(),
        };
        // Nothing is left to do where even stderr is gone.
        let _ = io::stderr().write_all(format!("ferroket: {} {cause}, so the whole job ends\n", rank.name).as_bytes());
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use super::State;

    pub(super) fn mark(_state: State) -> bool {
        true
    }

    pub(super) fn light() -> std::io::Result<Option<(i32, i32)>> {
        Ok(None)
    }

    pub(super) fn watch(_ranks: Vec<(String, (i32, i32))>) {}
}
