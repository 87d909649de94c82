//! What this process does in MPI right now: for the watchdog, which has to say what a rank waits in.

use std::ffi::c_int;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::{Handle, datatype};
use crate::groups;

/// Whom a call waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// Whoever the request is with.
    Unknown,
    /// The members of a communicator, by our number.
    Comm(Handle),
    /// These ranks, which have no communicator yet.
    Ranks(Vec<c_int>),
}

/// A call of MPI that can wait for other ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function of MPI.
    pub function: &'static str,
    /// How many elements of which type it moves, by our numbers, where it moves any.
    pub message: Option<(usize, Handle)>,
    /// Whom it waits for.
    pub over: Over,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function)?;
        if let Some((count, ours)) = self.message {
            let (name, size) = datatype::describe(ours).unwrap_or(("elements", 0));
            write!(f, " of {count} {name} ({} bytes)", count * size)?;
        }
        match &self.over {
            Over::Unknown => Ok(()),
            Over::Comm(comm) => write!(f, " over {}", groups::describe(*comm)),
            Over::Ranks(ranks) => write!(f, " over {}", groups::describe_ranks(ranks)),
        }
    }
}

/// The calls that are under way, oldest first, and the number of those that came back.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Calls that have come back.
    pub done: u64,
    /// Calls that haven't, each with the number that it got when it began, and the thread that it is of.
    pub inside: Vec<(u64, Call, i32)>,
    begun: u64,
}

static CALLS: Mutex<Calls> = Mutex::new(Calls { done: 0, inside: Vec::new(), begun: 0 });

fn calls() -> MutexGuard<'static, Calls> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calls of this moment.
#[must_use]
pub fn now() -> Calls {
    calls().clone()
}

/// Notes a call, until the value is dropped.
pub fn enter(call: Call) -> Inside {
    let mut calls = calls();
    calls.begun += 1;
    let number = calls.begun;
    calls.inside.push((number, call, THREAD.with(|thread| *thread)));
    Inside(number)
}

thread_local! {
    static THREAD: i32 = number_of_thread();
}

/// The system's number of this thread; 0 where it has none.
fn number_of_thread() -> i32 {
    #[cfg(target_os = "linux")]
    // SAFETY: gettid has no preconditions.
    unsafe {
        libc::gettid()
    }
    #[cfg(not(target_os = "linux"))]
    0
}

/// A call that is under way.
#[derive(Debug)]
#[must_use]
pub struct Inside(u64);

impl Drop for Inside {
    fn drop(&mut self) {
        let mut calls = calls();
        calls.inside.retain(|(number, ..)| *number != self.0);
        calls.done += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::COMM_WORLD;

    #[test]
    fn a_call_is_seen_until_it_comes_back() {
        let over = Over::Comm(COMM_WORLD);
        let call = Call { function: "MPI_Allreduce", message: Some((3, datatype::DOUBLE)), over };
        let before = now().done;
        let inside = enter(call.clone());
        assert!(now().inside.iter().any(|(_, seen, _)| *seen == call));
        assert_eq!(call.to_string(), "MPI_Allreduce of 3 float64 (24 bytes) over all ranks");
        let making = Call { function: "MPI_Comm_create_group", message: None, over: Over::Ranks(vec![0, 2]) };
        assert_eq!(making.to_string(), "MPI_Comm_create_group over ranks 0, 2");
        drop(inside);
        assert!(!now().inside.iter().any(|(_, seen, _)| *seen == call));
        assert!(now().done > before);
    }
}
