//! Which ranks a communicator of XLA's has.
//!
//! XLA makes a communicator for each group of devices that a program reduces over, by `MPI_Comm_split` of the whole
//! world: with the group's first device as colour, and the place in the group as key. That is a collective of *all*
//! ranks, so it waits for ever where the group isn't one of several that the world falls into, or where some of
//! those exist already. Colour and key don't tell the members. Python, which sees XLA's programs, announces them
//! before XLA asks ([`announce`]); then only they take part (`MPI_Comm_create_group`).

use std::ffi::c_int;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use foldhash::{HashMap, HashSet};

use crate::abi::{COMM_WORLD, Handle};

/// The ranks of a communicator, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// XLA's number of the first one's device: the colour that it asks with.
    pub color: c_int,
    /// The ranks in the world.
    pub ranks: Vec<c_int>,
}

#[derive(Default)]
struct Groups {
    announced: Option<Group>,
    /// By communicator: the ranks of the announced ones; None for those that XLA split off by itself.
    made: HashMap<Handle, Option<Vec<c_int>>>,
}

static GROUPS: LazyLock<Mutex<Groups>> = LazyLock::new(Mutex::default);
/// Signalled when no group is announced any more.
static ANSWERED: Condvar = Condvar::new();

/// How many ranks the job has.
static WORLD_SIZE: OnceLock<c_int> = OnceLock::new();

/// Notes how many ranks the job has, once MPI runs.
pub(crate) fn set_world_size(size: c_int) {
    let _ = WORLD_SIZE.set(size); // it never changes
}

fn groups() -> MutexGuard<'static, Groups> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says which group XLA will ask for next. Waits for the answer to an earlier announcement, of another thread: what XLA
/// asks with may fit both.
pub fn announce(group: Group) {
    let mut groups =
        ANSWERED.wait_while(groups(), |groups| groups.announced.is_some()).unwrap_or_else(PoisonError::into_inner);
    groups.announced = Some(group);
}

/// Takes an announcement back, if XLA hasn't asked.
pub fn withdraw(group: &Group) {
    if groups().announced.take_if(|announced| announced == group).is_some() {
        ANSWERED.notify_all();
    }
}

/// The announced group, if XLA asks for that one: with its colour, and for the caller's place in it.
pub(crate) fn asked_for(color: c_int, key: c_int, own: c_int) -> Option<Group> {
    let place = usize::try_from(key).ok()?;
    let found = groups().announced.take_if(|group| group.color == color && group.ranks.get(place) == Some(&own));
    if found.is_some() {
        ANSWERED.notify_all();
    }
    found
}

/// A tag for the messages that make a group's communicator: two threads may make two of them at once.
pub(crate) fn tag(ranks: &[c_int]) -> c_int {
    /// The highest tag that each library has.
    const TAGS: u64 = 32767;
    let mixed = ranks.iter().fold(1_u64, |sum, &rank| {
        (sum ^ u64::from(rank.unsigned_abs())).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    (mixed % TAGS) as c_int
}

/// Notes the ranks of a new communicator, if they are known.
pub(crate) fn made(comm: Handle, ranks: Option<Vec<c_int>>) {
    groups().made.insert(comm, ranks);
}

/// How many communicators XLA has split off the world without an announcement.
#[must_use]
pub fn unannounced() -> usize {
    groups().made.values().filter(|ranks| ranks.is_none()).count()
}

/// Whether the ranks of a communicator are among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Within {
    /// Not all of them, or it isn't known which they are.
    No,
    /// They are.
    Yes,
    /// They are, and in the same order.
    InOrder,
}

/// Whether the ranks of a communicator are among some.
pub(crate) fn is_within(comm: Handle, ranks: &[c_int]) -> Within {
    let groups = groups();
    let Some(Some(own)) = groups.made.get(&comm) else { return Within::No };
    let mut later = ranks.iter();
    if own.iter().all(|rank| later.any(|other| other == rank)) {
        return Within::InOrder;
    }
    let ranks: HashSet<c_int> = ranks.iter().copied().collect();
    if own.iter().all(|rank| ranks.contains(rank)) { Within::Yes } else { Within::No }
}

/// How many ranks a communicator has; 0 where it isn't one that was announced.
pub(crate) fn size(comm: Handle) -> usize {
    groups().made.get(&comm).and_then(Option::as_ref).map_or(0, Vec::len)
}

/// The ranks of a communicator, for a message.
#[must_use]
pub fn describe(comm: Handle) -> String {
    if comm == COMM_WORLD {
        return "all ranks".into();
    }
    match groups().made.get(&comm) {
        Some(Some(ranks)) => describe_ranks(ranks),
        _ => "a group of ranks that only XLA knows".into(),
    }
}

/// Ranks for a message: `ranks 0, 2, 4`, `ranks 0-63, 128`, or `all ranks` in their order.
#[must_use]
pub fn describe_ranks(ranks: &[c_int]) -> String {
    if WORLD_SIZE.get().is_some_and(|&size| ranks.iter().copied().eq(0..size)) {
        return "all ranks".into();
    }
    let parts: Vec<String> = ranks
        .chunk_by(|before, after| before + 1 == *after)
        .flat_map(|run| match run {
            [first, _, .., last] => vec![format!("{first}-{last}")],
            few => few.iter().map(ToString::to_string).collect(),
        })
        .collect();
    format!("ranks {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_group_that_was_announced_is_handed_out_and_once() {
        let group = Group { color: 2048, ranks: vec![1, 3] };
        announce(group.clone());
        assert_eq!(asked_for(0, 1, 3), None); // another colour
        assert_eq!(asked_for(2048, 0, 3), None); // another place
        assert_eq!(asked_for(2048, -1, 3), None);
        assert_eq!(asked_for(2048, 1, 3), Some(group.clone()));
        assert_eq!(asked_for(2048, 1, 3), None);
        announce(group.clone());
        withdraw(&Group { color: 2048, ranks: vec![1, 2] });
        let other = Group { color: 0, ranks: vec![0, 3] };
        std::thread::scope(|scope| {
            scope.spawn(|| announce(other.clone()));
            withdraw(&group);
        });
        assert_eq!(asked_for(2048, 1, 3), None);
        assert_eq!(asked_for(0, 1, 3), Some(other));
    }

    #[test]
    fn ranks_are_described_in_short() {
        assert_eq!(describe_ranks(&[0, 1, 2, 3, 7, 9, 10]), "ranks 0-3, 7, 9, 10");
        assert_eq!(describe_ranks(&[1, 0]), "ranks 1, 0");
        assert_ne!(tag(&[0, 1]), tag(&[1, 0]));
    }

    #[test]
    fn communicators_are_described_by_their_ranks() {
        made(0x5001, Some(vec![0, 2]));
        made(0x5002, None);
        assert_eq!(describe(0x5001), "ranks 0, 2");
        assert_eq!(describe(0x5002), "a group of ranks that only XLA knows");
        assert_eq!(describe(COMM_WORLD), "all ranks");
        let found = [&[0, 2][..], &[0, 1, 2, 3], &[2, 1, 0], &[0, 1]].map(|ranks| is_within(0x5001, ranks));
        assert_eq!(found, [Within::InOrder, Within::InOrder, Within::Yes, Within::No]);
        assert_eq!(is_within(0x5002, &[0, 1, 2, 3]), Within::No);
    }
}
