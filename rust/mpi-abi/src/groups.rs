//! Which ranks a communicator of XLA's has.
//!
//! XLA makes a communicator for each group of devices that a program reduces over, by `MPI_Comm_split` of the whole
//! world: with the group's first device as colour, and the place in the group as key. That is a collective of *all*
//! ranks, so it waits for ever where the group isn't one of several that the world falls into, or where some of
//! those exist already. Colour and key don't tell the members. Python, which sees XLA's programs, announces them
//! before XLA asks ([`announce`]); then only they take part (`MPI_Comm_create_group`).

use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;

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

fn groups() -> MutexGuard<'static, Groups> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says which group XLA will ask for next; None takes it back.
pub fn announce(group: Option<Group>) {
    groups().announced = group;
}

/// The announced group, if XLA asks for that one: with its colour, and for the caller's place in it.
pub(crate) fn asked_for(color: c_int, key: c_int, own: c_int) -> Option<Group> {
    let place = usize::try_from(key).ok()?;
    groups().announced.take_if(|group| group.color == color && group.ranks.get(place) == Some(&own))
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

/// Whether all ranks of a communicator are among some, which are ascending; false if it isn't known which they are.
pub(crate) fn is_within(comm: Handle, ranks: &[c_int]) -> bool {
    match groups().made.get(&comm) {
        Some(Some(own)) => own.iter().all(|rank| ranks.binary_search(rank).is_ok()),
        _ => false,
    }
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

/// Ranks for a message: `ranks 0, 2, 4`.
#[must_use]
pub fn describe_ranks(ranks: &[c_int]) -> String {
    let numbers: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    format!("ranks {}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_group_that_was_announced_is_handed_out_and_once() {
        let group = Group { color: 2048, ranks: vec![1, 3] };
        announce(Some(group.clone()));
        assert_eq!(asked_for(0, 1, 3), None); // another colour
        assert_eq!(asked_for(2048, 0, 3), None); // another place
        assert_eq!(asked_for(2048, -1, 3), None);
        assert_eq!(asked_for(2048, 1, 3), Some(group));
        assert_eq!(asked_for(2048, 1, 3), None);
    }

    #[test]
    fn communicators_are_described_by_their_ranks() {
        made(0x5001, Some(vec![0, 2]));
        made(0x5002, None);
        assert_eq!(describe(0x5001), "ranks 0, 2");
        assert_eq!(describe(0x5002), "a group of ranks that only XLA knows");
        assert_eq!(describe(COMM_WORLD), "all ranks");
    }
}
