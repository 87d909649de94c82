//! Which program of XLA's runs, and which programs have run: what ranks compare before they trust each other's numbers.
//!
//! XLA tells MPI nothing but a buffer, a datatype and an operation. So each program that Python compiles for several
//! ranks begins with a marker, a gather over this rank alone whose "message" says which program it is. XLA runs the
//! programs of a thread, and the collectives of a program, one after the other; so what was marked last is what calls.
//!
//! A program of which a rank alone runs an extra one *before* could compute with other numbers under the same name. So
//! ranks compare the history of the programs of their devices, too. Programs that only work on values which every rank
//! has whole, as a rank does that prints something, aren't in it unless they communicate. Others are, even if they don't
//! communicate: `(10 * x).sum()` on one rank is two programs, of which the second is also that of another's `x.sum()`.
//!
//! In a program, branches and loops with collectives have markers as well, which say where in it a rank is.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use foldhash::{HashMap, HashSet};

use crate::abi::Handle;
use crate::groups::{self, Within};

/// How many numbers a marker has: [`MARKER`], the program, its devices, and its [`Kind`].
pub const MARKER_LENGTH: usize = 4;

/// The first number of a marker. No message of a program is as long as a marker and begins with it by chance.
pub const MARKER: u64 = 0x6665_7272_6f6b_6574;

/// What a program is to the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// It works on values that are spread over ranks: all of them have to run it.
    Spread = 0,
    /// It works on values that each rank has whole: it counts once it communicates.
    Whole = 1,
    /// It belongs to the runtime itself: it isn't in the history, nor compared with it.
    Own = 2,
    /// No program, but a branch or a round of a loop of the one that runs.
    Place = 3,
}

impl TryFrom<u64> for Kind {
    type Error = ();

    fn try_from(number: u64) -> Result<Self, ()> {
        Ok(match number {
            0 => Self::Spread,
            1 => Self::Whole,
            2 => Self::Own,
            3 => Self::Place,
            _ => return Err(()),
        })
    }
}

/// A call of MPI that ranks compare: what has to be the same on all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub function: &'static str,
    pub count: usize,
    pub datatype: Handle,
    pub operation: Handle,
}

/// What some devices have run.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    /// A number for their programs in their order.
    number: u64,
    /// The last two programs, the latest first; 0 for none.
    last: [u64; 2],
}

/// The program that some devices run now, or have run last.
#[derive(Clone, Copy, Debug, Default)]
struct Running {
    program: u64,
    /// Later programs have larger numbers.
    begun: u64,
    /// It isn't in the history yet.
    is_pending: bool,
    is_own: bool,
    /// A number for the branches and rounds of loops that it has come through.
    place: u64,
    /// How many collectives it has begun.
    calls: u64,
    /// Over which ranks the last collective of these devices was.
    comm: Option<Handle>,
}

#[derive(Default)]
struct Programs {
    /// By fingerprint, as messages call them.
    names: HashMap<u64, String>,
    /// Those of whose collectives some come before the marker.
    late: HashSet<u64>,
    /// By devices, as all that follows: their ranks, in their order.
    ranks: HashMap<u64, Vec<c_int>>,
    history: HashMap<u64, History>,
    running: HashMap<u64, Running>,
    /// Whether the ranks of a communicator are among those of devices.
    within: HashMap<(Handle, u64), Within>,
    /// How many programs have begun.
    begun: u64,
    /// The devices whose program has begun last.
    latest: u64,
    /// The devices whose program called last.
    called: u64,
}

static PROGRAMS: LazyLock<Mutex<Programs>> = LazyLock::new(Mutex::default);
static COMPARING: AtomicBool = AtomicBool::new(false);

fn programs() -> MutexGuard<'static, Programs> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Chooses whether ranks compare their programs: all of them do, or none.
pub fn set_comparing(comparing: bool) {
    COMPARING.store(comparing, Ordering::Relaxed);
}

/// Whether ranks compare their programs.
#[must_use]
pub fn is_comparing() -> bool {
    COMPARING.load(Ordering::Relaxed)
}

/// Gives a program its name in messages.
pub fn name(program: u64, name: String) {
    programs().names.insert(program, name);
}

/// Has ranks compare what they run at a program's marker, too: some of its collectives come before it.
pub fn compare_at_marker(program: u64) {
    programs().late.insert(program);
}

/// A number for the devices of a program, by their ranks, whose order matters.
#[must_use]
pub fn devices_of(ranks: &[c_int]) -> u64 {
    let devices = ranks.iter().fold(0, |sum, &rank| mix(sum, u64::from(rank.unsigned_abs()) + 1));
    programs().ranks.insert(devices, ranks.to_vec());
    devices
}

/// Over which ranks to compare at the marker of a program that begins, if that is to be done.
pub(crate) fn late_comm(&[_, program, devices, _]: &[u64; MARKER_LENGTH]) -> Option<Handle> {
    let programs = programs();
    programs.running.get(&devices)?.comm.filter(|_| programs.late.contains(&program))
}

/// The name of the program that runs, and that of the one before it.
#[must_use]
pub fn running() -> String {
    let programs = programs();
    // Programs of the same name and line may differ: their numbers tell them apart.
    let name = |program: &u64| {
        let name = programs.names.get(program).map_or("a program that isn't known", String::as_str);
        format!("program {:06x} ({name})", program & 0xff_ffff)
    };
    let program = programs.running.get(&programs.called).copied().unwrap_or_default().program;
    let history = programs.history.get(&programs.called).copied().unwrap_or_default();
    let before = history.last.iter().find(|last| **last != program && **last != 0);
    let before = before.map(|before| format!(", after {}", name(before)));
    format!("{}{}", name(&program), before.unwrap_or_default())
}

/// The program of a marker begins. False if the message isn't one.
pub(crate) fn begin(message: &[u64; MARKER_LENGTH]) -> bool {
    let &[MARKER, program, devices, kind] = message else { return false };
    let Ok(kind) = Kind::try_from(kind) else { return false };
    let mut programs = programs();
    programs.latest = devices;
    if kind == Kind::Place {
        let running = programs.running.entry(devices).or_default();
        running.place = mix(running.place, program);
        return true;
    }
    programs.begun += 1;
    let begun = programs.begun;
    let before = programs.running.entry(devices).or_default();
    let (is_own, is_pending) = (kind == Kind::Own, kind != Kind::Own);
    *before = Running { program, begun, is_pending, is_own, place: 0, calls: 0, comm: before.comm };
    if kind == Kind::Spread {
        programs.commit(devices);
    }
    true
}

impl Programs {
    /// Puts the program that devices run into their history.
    fn commit(&mut self, devices: u64) {
        let Some(running) = self.running.get_mut(&devices) else { return };
        if std::mem::take(&mut running.is_pending) {
            let history = self.history.entry(devices).or_default();
            history.number = mix(history.number, running.program);
            history.last = [running.program, history.last[0]];
        }
    }

    /// The devices whose program calls: those that have begun one last, of all that have these ranks among theirs, in this
    /// order if there are any. Threads of Python may run programs of several meshes at once.
    fn caller(&mut self, comm: Handle) -> u64 {
        let Self { running, ranks, within, latest, .. } = self;
        let mut find = |devices: u64| {
            let find = || ranks.get(&devices).map_or(Within::No, |ranks| groups::is_within(comm, ranks));
            *within.entry((comm, devices)).or_insert_with(find)
        };
        if find(*latest) == Within::InOrder {
            return *latest;
        }
        let others = running.iter().filter_map(|(devices, running)| {
            let within = find(*devices);
            (within > Within::No).then_some((within, running.begun, *devices))
        });
        others.max().map_or(*latest, |(.., devices)| devices)
    }

    /// A number for the next call of the program that calls.
    fn digest(&mut self, call: &Call, comm: Handle, is_collective: bool) -> u64 {
        let devices = self.caller(comm);
        self.called = devices;
        self.commit(devices);
        let history = self.history.get(&devices).map_or(0, |history| history.number);
        let running = self.running.entry(devices).or_default();
        running.calls += u64::from(is_collective);
        if is_collective {
            running.comm = Some(comm);
        }
        let name = call.function.as_bytes().chunks(size_of::<u64>()).fold(0, |sum, part| mix(sum, word(part)));
        let place = [running.program, running.place, running.calls];
        let call = [name, call.count as u64, call.datatype as u64, call.operation as u64];
        place.into_iter().chain(call).fold(if running.is_own { 0 } else { history }, mix).max(1)
    }
}

/// A number for where this rank is: its history, its program, the place in it, and the call. It is never 0.
pub(crate) fn digest(call: &Call, comm: Handle) -> u64 {
    programs().digest(call, comm, true)
}

/// [`digest`] for messages between two ranks, of which a program may send more from some ranks than from others.
pub(crate) fn digest_between_two(call: &Call, comm: Handle) -> u64 {
    programs().digest(call, comm, false)
}

/// At most eight bytes as a number.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; size_of::<u64>()];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// One number for two, in their order; each bit of the result depends on all of theirs.
fn mix(first: u64, second: u64) -> u64 {
    let mixed = (first.rotate_left(23) ^ second).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{SUM, datatype};

    const CALL: Call = Call { function: "MPI_Allreduce", count: 1, datatype: datatype::FLOAT, operation: SUM };

    /// The digest of a first call after these programs, on devices that no other test has.
    fn after(programs: &[(u64, Kind)], devices: u64, call: &Call) -> u64 {
        for &(program, kind) in programs {
            assert!(begin(&[MARKER, program, devices, kind as u64]));
        }
        digest(call, comm_of(devices))
    }

    /// A communicator of ranks that are in these devices alone.
    fn comm_of(devices: u64) -> Handle {
        let comm = 0x7000 + devices as Handle;
        groups::made(comm, Some(vec![devices as c_int]));
        programs().ranks.insert(devices, vec![devices as c_int]);
        comm
    }

    // One test, since there is one state of the process.
    #[test]
    fn digests_tell_programs_histories_places_and_calls_apart() {
        use Kind::{Own, Place, Spread, Whole};
        let plain = after(&[(1, Spread)], 100, &CALL);
        assert_eq!(after(&[(1, Spread)], 101, &CALL), plain, "the same on the other rank");
        assert_ne!(digest(&CALL, comm_of(101)), plain, "the second call of the program");
        assert_eq!(after(&[(5, Whole), (1, Spread)], 102, &CALL), plain, "what a rank does alone to print a value");
        assert_ne!(after(&[(5, Spread), (1, Spread)], 103, &CALL), plain, "a program before it");
        assert_eq!(after(&[(5, Own), (1, Spread)], 104, &CALL), plain);
        assert_eq!(after(&[(1, Whole)], 105, &CALL), plain, "it communicates, so it counts");
        assert_ne!(after(&[(2, Spread)], 106, &CALL), plain);
        assert_ne!(after(&[(1, Spread)], 107, &Call { count: 2, ..CALL }), plain);
        assert_ne!(after(&[(1, Spread)], 108, &Call { datatype: datatype::INT32, ..CALL }), plain);
        assert_ne!(after(&[(1, Spread)], 109, &Call { function: "MPI_Allgather", ..CALL }), plain);
        assert_ne!(after(&[(1, Spread), (1, Spread)], 110, &CALL), plain, "twice");
        let [branch, other, rounds] = [&[(8, Place)][..], &[(9, Place)], &[(8, Place), (8, Place)]]
            .map(|places| after(&[&[(1, Spread)], places].concat(), 140 + places[0].0 * places.len() as u64, &CALL));
        assert_ne!(branch, plain, "in a branch");
        assert_ne!(branch, other, "in another one");
        assert_ne!(branch, rounds, "in another round of a loop");
        let own = after(&[(7, Own)], 111, &CALL);
        assert_eq!(after(&[(1, Spread), (7, Own)], 112, &CALL), own);
        let orders = [[(1, Spread), (2, Spread)], [(2, Spread), (1, Spread)]];
        let [one, other] = orders.map(|order| after(&[order[0], order[1], (3, Spread)], 113 + order[0].0, &CALL));
        assert_ne!(one, other);
        assert!(begin(&[MARKER, 1, 120, Spread as u64]));
        let sent = digest_between_two(&CALL, comm_of(120));
        assert_eq!(digest_between_two(&CALL, comm_of(120)), sent);
        // Two threads, each with devices of its own, or with the same in another order.
        assert!(begin(&[MARKER, 1, 130, Spread as u64]) && begin(&[MARKER, 2, 131, Spread as u64]));
        assert_eq!(digest(&CALL, comm_of(130)), plain);
        for (devices, ranks) in [(132, vec![900, 901]), (133, vec![901, 900])] {
            groups::made(0x7000 + devices as Handle, Some(ranks.clone()));
            programs().ranks.insert(devices, ranks);
        }
        assert!(begin(&[MARKER, 1, 132, Spread as u64]) && begin(&[MARKER, 2, 133, Spread as u64]));
        assert_eq!(digest(&CALL, 0x7000 + 132), plain);
    }

    #[test]
    fn other_messages_are_no_markers() {
        assert!(!begin(&[MARKER + 1, 1, 1, 0]));
        assert!(!begin(&[MARKER, 1, 1, 4]));
    }
}
