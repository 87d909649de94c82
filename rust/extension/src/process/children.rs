//! What the ranks of a job have started, and what is left of it when the job has ended.

use std::collections::HashSet;
use std::ffi::c_int;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ferroket_mpi_abi::launcher::{RANK_PROCESS, mark_of_children, stat};

/// How long a process may take to end by itself, and after a SIGTERM.
const BY_ITSELF: Duration = Duration::from_millis(300);
const AFTER_SIGTERM: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// How the processes that a rank has started are known. Those that have begun a session of their own, as a program does
/// that is to outlive its parent, aren't among them.
pub(super) struct Descendants {
    /// What those that have executed a program have in their environment.
    mark: Vec<u8>,
    /// The pipe that those which are forks of it have open, too.
    pipe: String,
    session: String,
}

impl Descendants {
    /// That of a rank; None if that has ended. `beacon` is the inode of its beacon's pipe.
    pub(super) fn of(rank: u32, beacon: u64) -> Option<Self> {
        Some(Self {
            mark: format!("{RANK_PROCESS}={}\0", mark_of_children(rank)).into_bytes(),
            pipe: format!("pipe:[{beacon}]"),
            session: session(rank)?,
        })
    }

    fn has(&self, pid: u32) -> bool {
        session(pid).as_deref() == Some(&self.session) && (self.is_marked(pid) || self.is_fork(pid))
    }

    fn is_marked(&self, pid: u32) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(self.mark.len()).any(|part| part == self.mark)
    }

    fn is_fork(&self, pid: u32) -> bool {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.into_iter().any(|file| fs::read_link(file.path()).is_ok_and(|target| target == Path::new(&self.pipe)))
    }
}

fn session(pid: u32) -> Option<String> {
    stat(pid)?.get(3).cloned()
}

/// Ends what is left of the descendants of ranks that have ended: it may do so by itself, is asked to, and killed.
pub(super) fn end(descendants: &[Descendants], ranks: &HashSet<u32>) {
    for (patience, signal) in [(BY_ITSELF, libc::SIGTERM), (AFTER_SIGTERM, libc::SIGKILL)] {
        let begin = Instant::now();
        loop {
            let left = members(descendants, ranks);
            if left.is_empty() {
                return;
            }
            if begin.elapsed() > patience {
                send(&left, signal);
                break;
            }
            sleep(POLL);
        }
    }
}

fn members(descendants: &[Descendants], ranks: &HashSet<u32>) -> Vec<u32> {
    let own = std::process::id();
    // SAFETY: geteuid has no preconditions.
    let user = unsafe { libc::geteuid() };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_user = entries.filter(|entry| entry.metadata().is_ok_and(|status| status.uid() == user));
    let numbers = of_user.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let others = numbers.filter(|pid| *pid != own && !ranks.contains(pid));
    others.filter(|pid| !is_dead(*pid) && descendants.iter().any(|descendants| descendants.has(*pid))).collect()
}

/// Whether a process has ended, and only its parent hasn't asked how.
fn is_dead(pid: u32) -> bool {
    stat(pid).is_none_or(|fields| fields.first().is_some_and(|state| state == "Z" || state == "X"))
}

fn send(processes: &[u32], signal: c_int) {
    for pid in processes {
        // SAFETY: kill has no preconditions. These were seen a moment ago, so their numbers aren't others' yet.
        unsafe { libc::kill(pid.cast_signed(), signal) };
    }
}
