//! How much this process has sent: for benchmarks, which count what a step costs on a network.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use crate::abi::{Handle, datatype};
use crate::groups;

/// Calls of one function over groups of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// How often it was called.
    pub calls: u64,
    /// The bytes that this rank put into its messages: its part of what is gathered, its values of what is reduced.
    pub bytes: u64,
}

/// By the function of MPI and the number of ranks that take part; 0 for all ranks.
pub type Totals = BTreeMap<(&'static str, usize), Total>;

static TOTALS: Mutex<Totals> = Mutex::new(Totals::new());

/// Notes a call.
pub(crate) fn note(function: &'static str, count: c_int, datatype: Handle, comm: Handle) {
    let size = datatype::describe(datatype).map_or(0, |(_, size)| size);
    let mut totals = TOTALS.lock().unwrap_or_else(PoisonError::into_inner);
    let total = totals.entry((function, groups::size(comm))).or_default();
    total.calls += 1;
    total.bytes += u64::from(count.unsigned_abs()) * size as u64;
}

/// What this process has sent so far.
#[must_use]
pub fn totals() -> Totals {
    TOTALS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_bytes_are_added_by_function_and_group() {
        groups::made(0x6001, Some(vec![0, 2, 3]));
        note("a test", 3, datatype::DOUBLE, 0x6001);
        note("a test", 1, datatype::FLOAT, 0x6001);
        note("a test", 1, datatype::FLOAT, crate::abi::COMM_WORLD);
        assert_eq!(totals()[&("a test", 3)], Total { calls: 2, bytes: 28 });
        assert_eq!(totals()[&("a test", 0)], Total { calls: 1, bytes: 4 });
    }
}
