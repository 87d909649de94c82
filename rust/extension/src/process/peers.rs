//! The ranks of a node are watched: one that is killed can't say so itself, and a launcher that says it names a process,
//! not a rank.
//!
//! When all of them have ended, so does what they have started ([`super::children`]).
//!
//! A process of its own on each node, which the launcher doesn't know and so doesn't kill, holds the other ends of the
//! ranks' [beacons](super::beacon) and sleeps until something comes ([`watch_ranks`]). All that happens is queued in its
//! order from the time on at which the ranks were found ([`find_ranks`]), so it may be late, as on a node without memory: by
//! then the launcher has killed the other ranks, too.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Ranks as one of them has found them, in file descriptors that [`watch_ranks`] takes over.
#[pyclass(frozen, get_all, module = "ferroket._lib")]
#[derive(Debug)]
pub(crate) struct Found {
    /// What happens to them, in its order.
    events: i32,
    /// By rank: how messages name it, its process, the file descriptors of that and of its beacon.
    ranks: Vec<(String, i32, i32, i32)>,
    /// As [`oom_kills`] was.
    oom_kills: Option<u64>,
}

/// Finds ranks of this node by what messages call each, and its beacon's address. Those that can't be found (in another
/// container, say) can't be watched either.
#[pyfunction]
pub(crate) fn find_ranks(ranks: Vec<(String, (i32, i32))>) -> PyResult<Found> {
    let found = imp::find(ranks).map_err(|error| PyOSError::new_err(error.to_string()))?;
    Ok(Found { events: found.0, ranks: found.1, oom_kills: oom_kills() })
}

/// Watches ranks of this node until they have all ended, and then ends what they have started. If one ends before its work
/// is done and without a word of its own, says so on stderr; if the launcher doesn't end the others then, does it.
///
/// `events`, `ranks` and `oom_kills` are those of [`Found`]. The watchers of several nodes meet where `listener` is, a file
/// descriptor that is taken over, or at `address`, and know each other by the password.
#[pyfunction]
#[pyo3(signature = (events, ranks, oom_kills, listener, address, password))]
pub(crate) fn watch_ranks(
    py: Python<'_>,
    events: i32,
    ranks: Vec<(String, i32, i32, i32)>,
    oom_kills: Option<u64>,
    listener: Option<i32>,
    address: Option<&str>,
    password: &str,
) {
    py.detach(|| imp::watch(events, ranks, oom_kills, listener, address, password));
}

/// How many processes of this node the kernel has killed for lack of memory, where it tells.
#[pyfunction]
pub(crate) fn oom_kills() -> Option<u64> {
    let counters = std::fs::read_to_string("/proc/vmstat").ok()?;
    counters.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// Who killed a process by SIGKILL, as far as can be told, if [`oom_kills`] was `before` some time ago.
#[pyfunction]
#[pyo3(signature = (before))]
pub(crate) fn who_killed(before: Option<u64>) -> String {
    match before.and_then(|before| oom_kills()?.checked_sub(before)) {
        Some(0) => "by a person, a job system or a program that guards the memory, but not by the kernel".into(),
        Some(killed) => format!(
            "probably by the kernel for lack of memory: it has killed {killed} process{} of this node since the job began",
            if killed == 1 { "" } else { "es" }
        ),
        None => "by the kernel for lack of memory or by a person or a job system".into(),
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::collections::HashSet;
    use std::ffi::c_int;
    use std::fs::{File, OpenOptions};
    use std::io::{self, Read, Write};
    use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    use ferroket_mpi_abi::launcher::stat;

    use super::who_killed;
    use crate::process::beacon::State;
    use crate::process::children::{self, Descendants};
    use crate::process::crash::{ABORT, CRASHES, announcement};
    use crate::process::relay::{Meeting, News, Relay};

    /// How long a launcher may take to end the other ranks of a job that has lost one.
    const LAUNCHERS_TURN: Duration = Duration::from_secs(3);
    /// How long rank 0's watcher waits for what another one may have seen before, and each other one for its word.
    const ORDERING: Duration = Duration::from_millis(300);
    const FIRST_WORD: Duration = Duration::from_millis(1500);
    /// Milliseconds from the end of a process's beacon to its own.
    const DYING: c_int = 1000;
    /// By how much an abort counts as later than it was, so that clocks of nodes which differ don't make it the cause of
    /// what it came of. What comes of it comes later than that, since the rank waits before it dies. Meanwhile the launcher
    /// forwards what the rank has written, so that the message doesn't cut a line of it in two.
    const AFTER_ITS_CAUSE: Duration = Duration::from_millis(100);

    fn checked(code: c_int) -> io::Result<c_int> {
        if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code) }
    }

    type Descriptors = Vec<(String, i32, RawFd, RawFd)>;

    pub(super) fn find(ranks: Vec<(String, (i32, i32))>) -> io::Result<(RawFd, Descriptors)> {
        // SAFETY: the call has no preconditions; the new descriptor is ours alone.
        let events = unsafe { OwnedFd::from_raw_fd(checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        let mut found = Vec::new();
        for (name, address) in ranks {
            if let Ok((process, beacon)) = open(address) {
                let number = found.len() as u64;
                add(&events, &process, Event::End(number))?;
                add(&events, &beacon, Event::Beacon(number))?;
                found.push((name, address.0, process, beacon));
            }
        }
        // From here on nothing fails, so the descriptors' owner may change.
        let given = |(name, pid, process, beacon): (String, i32, OwnedFd, OwnedFd)| {
            (name, pid, process.into_raw_fd(), beacon.into_raw_fd())
        };
        Ok((events.into_raw_fd(), found.into_iter().map(given).collect()))
    }

    /// The process of a rank, as `pidfd_open` gives it, and its beacon.
    fn open((pid, beacon): (i32, i32)) -> io::Result<(OwnedFd, OwnedFd)> {
        // SAFETY: the arguments are those of the system call; the new descriptor, a C int, is ours alone.
        let process = unsafe { OwnedFd::from_raw_fd(checked(libc::syscall(libc::SYS_pidfd_open, pid, 0) as c_int)?) };
        let path = format!("/proc/{pid}/fd/{beacon}");
        let beacon = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        Ok((process, beacon.into()))
    }

    /// What happens to the rank of this number.
    #[derive(Clone, Copy)]
    enum Event {
        /// Its process has ended.
        End(u64),
        /// Its beacon says something, or was closed.
        Beacon(u64),
        /// Another watcher says something, at this descriptor.
        Other(RawFd),
    }

    /// The numbers of events from other watchers: those of ranks are below.
    const OTHERS: u64 = 1 << 32;

    fn add(events: &OwnedFd, source: &impl AsRawFd, event: Event) -> io::Result<()> {
        let (once, number) = match event {
            Event::End(rank) => (libc::EPOLLONESHOT, 2 * rank),
            Event::Beacon(rank) => (0, 2 * rank + 1),
            Event::Other(descriptor) => (0, OTHERS + u64::from(descriptor.unsigned_abs())),
        };
        let mut entry = libc::epoll_event { events: (libc::EPOLLIN | once) as u32, u64: number };
        // SAFETY: both descriptors are open, and the entry is valid for reading.
        let code =
            unsafe { libc::epoll_ctl(events.as_raw_fd(), libc::EPOLL_CTL_ADD, source.as_raw_fd(), &raw mut entry) };
        checked(code).map(|_| ())
    }

    /// The next event; None if there is none for so many milliseconds (-1: for ever).
    fn next(events: &OwnedFd, patience: c_int) -> Option<Event> {
        loop {
            let mut entry = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: there is room for one event: they come in their order.
            let count = unsafe { libc::epoll_wait(events.as_raw_fd(), &raw mut entry, 1, patience) };
            if count >= 0 {
                let number = entry.u64;
                return (count > 0).then_some(match number {
                    OTHERS.. => Event::Other((number - OTHERS) as RawFd),
                    _ if number % 2 == 1 => Event::Beacon(number / 2),
                    _ => Event::End(number / 2),
                });
            }
        }
    }

    struct Rank {
        name: String,
        pid: i32,
        process: OwnedFd,
        beacon: Option<File>,
        is_finished: bool,
        is_lost: bool,
    }

    impl Rank {
        /// What its beacon says now, if anything. One that was closed is put out.
        fn says(&mut self) -> Option<State> {
            let mut byte = [0];
            match self.beacon.as_mut()?.read(&mut byte) {
                Ok(1) => [State::Finished, State::Aborts]
                    .into_iter()
                    .find(|state| byte[0] == *state as u8)
                    .or(Some(State::Reported)),
                Ok(_) => {
                    self.beacon = None;
                    None
                }
                Err(_) => None,
            }
        }

        /// Whether its process ends within so many milliseconds.
        fn ends_within(&self, patience: c_int) -> bool {
            let mut end = libc::pollfd { fd: self.process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: the entry is valid, and the only one.
            unsafe { libc::poll(&raw mut end, 1, patience) > 0 }
        }

        /// How it ended. Its parent may have taken the answer away already.
        fn end(&self) -> Option<c_int> {
            let fields = stat(self.pid.unsigned_abs())?; // the state is the third of all, the exit code the 52nd
            if fields.first().is_some_and(|state| state == "Z") { fields.get(49)?.parse().ok() } else { None }
        }

        /// What it starts, if it hasn't ended.
        fn descendants(&self) -> Option<Descendants> {
            Descendants::of(self.pid.unsigned_abs(), self.beacon.as_ref()?.metadata().ok()?.ino())
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

    /// What is to be said about the rank that was lost first, as far as is known: when, what, and until when another
    /// watcher may know better.
    struct Cause {
        at: u64,
        message: String,
        until: Instant,
    }

    /// A job as a watcher sees it.
    struct Watch {
        ranks: Vec<Rank>,
        relay: Relay,
        oom_kills: Option<u64>,
        /// Why the job ends has been said, by a rank or a watcher.
        has_reported: bool,
        /// Since when it ends, and whether the launcher has had its turn.
        ending: Option<Instant>,
        has_killed: bool,
        cause: Option<Cause>,
    }

    pub(super) fn watch(
        events: RawFd,
        ranks: Descriptors,
        oom_kills: Option<u64>,
        listener: Option<RawFd>,
        address: Option<&str>,
        password: &str,
    ) {
        // SAFETY: the caller hands open descriptors over.
        let owned = |descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) };
        let events = owned(events);
        let start = |(name, pid, process, beacon)| Rank {
            name,
            pid,
            process: owned(process),
            beacon: Some(owned(beacon).into()),
            is_finished: false,
            is_lost: false,
        };
        let ranks: Vec<Rank> = ranks.into_iter().map(start).collect();
        let descendants: Vec<Descendants> = ranks.iter().filter_map(Rank::descendants).collect();
        let pids: HashSet<u32> = ranks.iter().map(|rank| rank.pid.unsigned_abs()).collect();
        let at = || Some(Meeting::At(address?.parse().ok()?));
        let relay = Relay::new(listener.map(|socket| Meeting::Here(owned(socket))).or_else(at), password);
        for descriptor in relay.descriptors() {
            let _ = add(&events, &descriptor, Event::Other(descriptor.as_raw_fd())); // else it is never heard
        }
        let job = Watch { ranks, relay, oom_kills, has_reported: false, ending: None, has_killed: false, cause: None };
        job.run(&events);
        children::end(&descendants, &pids);
    }

    impl Watch {
        fn run(mut self, events: &OwnedFd) {
            let mut running = self.ranks.len();
            while running > 0 || self.cause.is_some() {
                match next(events, self.patience()) {
                    None => self.act(),
                    Some(Event::End(number)) => {
                        running -= 1;
                        self.lose(number as usize, Duration::ZERO, describe);
                    }
                    Some(Event::Beacon(number)) => {
                        let rank = &mut self.ranks[number as usize];
                        match rank.says() {
                            Some(State::Finished) => rank.is_finished = true,
                            Some(State::Reported) => self.reported(),
                            Some(State::Aborts) => {
                                self.lose(number as usize, AFTER_ITS_CAUSE, |rank, _| announcement(&rank.name, ABORT));
                            }
                            None => {}
                        }
                        let rank = &self.ranks[number as usize];
                        // The kernel closes a beacon with the other files of a dying rank, by which a launcher sees it die,
                        // and so before that ends others. But a program may close all its files, and live.
                        if rank.beacon.is_none() && rank.ends_within(DYING) {
                            self.lose(number as usize, Duration::ZERO, describe);
                        }
                    }
                    Some(Event::Other(descriptor)) => {
                        let (news, new) = self.relay.take(descriptor);
                        if let Some(new) = new {
                            let _ = add(events, &new, Event::Other(new)); // else it is never heard
                        }
                        for news in news {
                            self.hear(news);
                        }
                    }
                }
            }
        }

        /// Milliseconds until something is to be done, -1 for none.
        fn patience(&self) -> c_int {
            let turn = self.ending.filter(|_| !self.has_killed).map(|since| since + LAUNCHERS_TURN);
            let soonest = [turn, self.cause.as_ref().map(|cause| cause.until)].into_iter().flatten().min();
            soonest.map_or(-1, |until| {
                let left = until.saturating_duration_since(Instant::now());
                c_int::try_from(left.as_millis() + 1).unwrap_or(c_int::MAX)
            })
        }

        /// Does what is to be done by now.
        fn act(&mut self) {
            let now = Instant::now();
            if let Some(cause) = self.cause.take_if(|cause| cause.until <= now) {
                // Nothing is left to do where even stderr is gone.
                let _ = io::stderr().write_all(format!("{}\n", cause.message).as_bytes());
                self.reported();
            }
            if !self.has_killed && self.ending.is_some_and(|since| since.elapsed() >= LAUNCHERS_TURN) {
                self.has_killed = true;
                self.ranks.iter().for_each(Rank::kill);
            }
        }

        /// Why the job ends has been said here.
        fn reported(&mut self) {
            self.has_reported = true;
            self.cause = None;
            self.relay.tell(&News::Reported);
        }

        /// A rank of this node has ended. The first one that is lost is the cause, unless one has reported another: a launcher
        /// that ends a job may begin with any rank.
        fn lose(&mut self, number: usize, later: Duration, describe: impl Fn(&Rank, Option<u64>) -> String) {
            let rank = &mut self.ranks[number];
            if rank.is_finished || std::mem::replace(&mut rank.is_lost, true) {
                return;
            }
            if !self.has_reported && self.ending.is_none() {
                let message = describe(rank, self.oom_kills);
                let at = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + later).as_millis() as u64;
                self.suspect(at, message, Some(later));
            }
            self.ending.get_or_insert_with(Instant::now);
            self.act();
        }

        /// What is known of the first rank that was lost, unless something earlier is known. One of this node is said after
        /// the pause at the soonest.
        fn suspect(&mut self, at: u64, message: String, pause: Option<Duration>) {
            if self.cause.as_ref().is_some_and(|known| known.at <= at) {
                return;
            }
            let patience = if self.relay.is_center() {
                ORDERING
            } else if pause.is_some() && self.relay.tell(&News::Lost(at, message.clone())) {
                FIRST_WORD
            } else {
                pause.unwrap_or_default()
            };
            let until = self.cause.take().map_or_else(|| Instant::now() + patience, |known| known.until);
            self.cause = Some(Cause { at, message, until });
        }

        /// Another watcher has said something.
        fn hear(&mut self, news: News) {
            match news {
                News::Reported if self.relay.is_center() => self.reported(), // the others, too
                News::Reported => (self.has_reported, self.cause) = (true, None),
                News::Lost(at, message) if self.relay.is_center() && !self.has_reported => {
                    self.suspect(at, message, None);
                }
                News::Lost(..) => {}
            }
            self.ending.get_or_insert_with(Instant::now);
        }
    }

    /// What is to be said of a rank that was lost.
    fn describe(rank: &Rank, oom_kills: Option<u64>) -> String {
        let cause = match rank.end() {
            Some(status) if libc::WIFSIGNALED(status) => {
                let signal = libc::WTERMSIG(status);
                if CRASHES.iter().any(|(crash, _)| *crash == signal) {
                    format!("crashed (signal {signal})")
                } else if signal == libc::SIGKILL {
                    format!("was killed (SIGKILL), {}", who_killed(oom_kills))
                } else {
                    format!("was ended by signal {signal}")
                }
            }
            Some(status) => format!("left with code {} before the end of its script", libc::WEXITSTATUS(status)),
            None => format!("ended without a word: left by os._exit, or killed (SIGKILL), {}", who_killed(oom_kills)),
        };
        format!("ferroket: {} {cause}, so the whole job ends", rank.name)
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    type Ranks = Vec<(String, i32, i32, i32)>;

    pub(super) fn find(_ranks: Vec<(String, (i32, i32))>) -> std::io::Result<(i32, Ranks)> {
        Err(std::io::ErrorKind::Unsupported.into()) // no rank has a beacon
    }

    pub(super) fn watch(
        _events: i32,
        _ranks: Ranks,
        _oom_kills: Option<u64>,
        _listener: Option<i32>,
        _address: Option<&str>,
        _password: &str,
    ) {
    }
}
