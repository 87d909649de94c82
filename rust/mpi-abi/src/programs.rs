//! Which program of XLA's runs, and which programs have run: what ranks compare before they trust each other's numbers.
//!
//! XLA tells MPI nothing but a buffer, a datatype and an operation. So each program that Python compiles for several
//! ranks begins with a marker, a gather over this rank alone whose "message" says which program it is. XLA runs the
//! programs of a thread, and the collectives of a program, one after the other; so what was marked last is what calls.
//!
//! A program of which a rank alone runs an extra one *before* could compute with other numbers under the same name. So
//! ranks compare the history of the programs of their devices, too. Programs that only work on values which every rank
//! has whole, as a rank does that prints something, aren't in it unless they communicate.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::abi::Handle;

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
}

impl TryFrom<u64> for Kind {
    type Error = ();

    fn try_from(number: u64) -> Result<Self, ()> {
        Ok(match number {
            0 => Self::Spread,
            1 => Self::Whole,
            2 => Self::Own,
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

#[derive(Default)]
struct Programs {
    /// By fingerprint, as messages call them.
    names: HashMap<u64, String>,
    /// Those of whose collectives some come before the marker.
    late: HashSet<u64>,
    /// Over which ranks the last collective was.
    comm: Option<Handle>,
    /// By devices.
    history: HashMap<u64, History>,
    program: u64,
    devices: u64,
    /// The running program isn't in the history yet.
    is_pending: bool,
    is_own: bool,
    /// How many collectives the running program has begun.
    calls: u64,
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

/// Notes over which ranks a collective is.
pub(crate) fn over(comm: Handle) {
    programs().comm = Some(comm);
}

/// Over which ranks to compare at the marker of the program that has just begun, if that is to be done.
pub(crate) fn late_comm() -> Option<Handle> {
    let programs = programs();
    programs.comm.filter(|_| programs.late.contains(&programs.program))
}

/// The name of the program that runs, and that of the one before it.
#[must_use]
pub fn running() -> String {
    let programs = programs();
    let name = |program| programs.names.get(program).map_or("a program that isn't known", String::as_str);
    let history = programs.history.get(&programs.devices).copied().unwrap_or_default();
    let before = history.last.iter().find(|last| **last != programs.program && **last != 0);
    let before = before.map(|before| format!(", after {}", name(before)));
    format!("{}{}", name(&programs.program), before.unwrap_or_default())
}

/// The program of a marker begins. False if the message isn't one.
pub(crate) fn begin(message: &[u64; MARKER_LENGTH]) -> bool {
    let &[MARKER, program, devices, kind] = message else { return false };
    let Ok(kind) = Kind::try_from(kind) else { return false };
    let mut programs = programs();
    (programs.program, programs.devices, programs.calls) = (program, devices, 0);
    programs.is_own = kind == Kind::Own;
    programs.is_pending = kind != Kind::Own;
    if kind == Kind::Spread {
        programs.commit();
    }
    true
}

impl Programs {
    /// Puts the running program into the history of its devices.
    fn commit(&mut self) {
        if std::mem::take(&mut self.is_pending) {
            let history = self.history.entry(self.devices).or_default();
            history.number = mix(history.number, self.program);
            history.last = [self.program, history.last[0]];
        }
    }
}

/// A number for where this rank is: its history, its program, the place in it, and the call. It is never 0.
pub(crate) fn digest(call: &Call) -> u64 {
    let mut programs = programs();
    programs.commit();
    programs.calls += 1;
    let place = programs.calls;
    programs.digest_at(place, call)
}

/// [`digest`] for messages between two ranks, of which a program may send more from some ranks than from others.
pub(crate) fn digest_between_two(call: &Call) -> u64 {
    let mut programs = programs();
    programs.commit();
    let place = programs.calls;
    programs.digest_at(place, call)
}

impl Programs {
    fn digest_at(&self, place: u64, call: &Call) -> u64 {
        let history = if self.is_own { 0 } else { self.history.get(&self.devices).map_or(0, |history| history.number) };
        let name = call.function.bytes().fold(0, |sum, byte| mix(sum, u64::from(byte)));
        [self.program, place, name, call.count as u64, call.datatype as u64, call.operation as u64]
            .into_iter()
            .fold(history, mix)
            .max(1)
    }
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
        digest(call)
    }

    // One test, since there is one state of the process.
    #[test]
    fn digests_tell_programs_histories_places_and_calls_apart() {
        use Kind::{Own, Spread, Whole};
        let plain = after(&[(1, Spread)], 100, &CALL);
        assert_eq!(after(&[(1, Spread)], 101, &CALL), plain, "the same on the other rank");
        assert_ne!(digest(&CALL), plain, "the second call of the program");
        assert_eq!(after(&[(5, Whole), (1, Spread)], 102, &CALL), plain, "what a rank does alone to print a value");
        assert_ne!(after(&[(5, Spread), (1, Spread)], 103, &CALL), plain, "a program before it");
        assert_eq!(after(&[(5, Own), (1, Spread)], 104, &CALL), plain);
        assert_eq!(after(&[(1, Whole)], 105, &CALL), plain, "it communicates, so it counts");
        assert_ne!(after(&[(2, Spread)], 106, &CALL), plain);
        assert_ne!(after(&[(1, Spread)], 107, &Call { count: 2, ..CALL }), plain);
        assert_ne!(after(&[(1, Spread)], 108, &Call { datatype: datatype::INT32, ..CALL }), plain);
        assert_ne!(after(&[(1, Spread)], 109, &Call { function: "MPI_Allgather", ..CALL }), plain);
        assert_ne!(after(&[(1, Spread), (1, Spread)], 110, &CALL), plain, "twice");
        let own = after(&[(7, Own)], 111, &CALL);
        assert_eq!(after(&[(1, Spread), (7, Own)], 112, &CALL), own);
        let orders = [[(1, Spread), (2, Spread)], [(2, Spread), (1, Spread)]];
        let [one, other] = orders.map(|order| after(&[order[0], order[1], (3, Spread)], 113 + order[0].0, &CALL));
        assert_ne!(one, other);
        assert!(begin(&[MARKER, 1, 120, Spread as u64]));
        let sent = digest_between_two(&CALL);
        assert_eq!(digest_between_two(&CALL), sent);
    }

    #[test]
    fn other_messages_are_no_markers() {
        assert!(!begin(&[MARKER + 1, 1, 1, 0]));
        assert!(!begin(&[MARKER, 1, 1, 3]));
    }
}
