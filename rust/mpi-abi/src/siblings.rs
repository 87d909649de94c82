//! The ranks that a launcher has started on this node, and which of them have ended.
//!
//! Most launchers don't end a job of which a process has left before it called `MPI_Init`, and Intel MPI's not even one of
//! which it was killed: the others would wait there.

use std::collections::BTreeSet;

use crate::launcher::{ancestor_pids, name, stat};

/// The variables of a rank, the number of ranks on its node, and of all: hydra's and Open MPI's.
const LAUNCHERS: [(&str, &str, &str); 2] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALNRANKS", "PMI_SIZE"),
];

/// The names of the processes of those launchers whose children ranks are.
const PARENTS: [&str; 7] = ["hydra_pmi_proxy", "prterun", "prted", "orterun", "orted", "mpirun", "mpiexec"];

/// The ranks of this node, this one among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Siblings {
    /// Those that run.
    pub running: BTreeSet<usize>,
    /// How many were started here.
    pub started: usize,
    /// The job's number of ranks.
    pub size: usize,
}

impl Siblings {
    /// Those of this process; None if no launcher that is known has started it, or something is hidden. A process that is
    /// about to begin or to end may be missed, so that only what is found twice is certain.
    #[must_use]
    pub fn find() -> Option<Self> {
        let number = |name: &str| std::env::var(name).ok()?.trim().parse().ok();
        let (rank, started, size) = LAUNCHERS
            .into_iter()
            .find_map(|(rank, local_size, size)| Some((rank, number(local_size)?, number(size)?)))?;
        let parent = ancestor_pids().find(|pid| PARENTS.contains(&name(*pid).as_str()))?;
        let mut running = BTreeSet::new();
        for pid in children(parent)? {
            if stat(pid).is_some_and(|fields| fields[0] != "Z" && fields[0] != "X") {
                running.extend(rank_in(&std::fs::read(format!("/proc/{pid}/environ")).ok()?, rank));
            }
        }
        Some(Self { running, started, size })
    }

    /// What is to be said of those that have ended; None if there are none.
    #[must_use]
    pub fn ended(&self) -> Option<String> {
        if self.running.is_empty() || self.running.len() >= self.started {
            return None;
        }
        let size = self.size;
        Some(if self.started == size {
            let ended: Vec<_> =
                (0..size).filter(|rank| !self.running.contains(rank)).map(|rank| rank.to_string()).collect();
            format!("rank{} {} of {size}", if ended.len() > 1 { "s" } else { "" }, ended.join(", "))
        } else {
            format!("{} of the {size} ranks", self.started - self.running.len())
        })
    }

    /// Whether a rank is the first of those that run.
    #[must_use]
    pub fn is_first(&self, rank: usize) -> bool {
        self.running.first() == Some(&rank)
    }
}

/// The processes that one has started, whichever thread did it.
fn children(pid: u32) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let children = std::fs::read_to_string(thread.path().join("children")).ok()?;
        found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Some(found)
}

/// The rank in the environment with which a process was started.
fn rank_in(environment: &[u8], name: &str) -> Option<usize> {
    let variables = environment.split(|byte| *byte == 0);
    let mut values = variables.filter_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    let value = values.next()?;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_have_ended_are_named() {
        let with = |running: &[usize], started, size| {
            let siblings = Siblings { running: running.iter().copied().collect(), started, size };
            (siblings.ended(), siblings.is_first(1))
        };
        assert_eq!(with(&[0, 1, 2], 3, 3), (None, false));
        assert_eq!(with(&[1, 2], 3, 3), (Some("rank 0 of 3".into()), true));
        assert_eq!(with(&[1], 3, 3), (Some("ranks 0, 2 of 3".into()), true));
        assert_eq!(with(&[1, 3], 3, 8), (Some("1 of the 8 ranks".into()), true));
        assert_eq!(with(&[], 3, 3), (None, false)); // nothing is known
    }

    #[test]
    fn a_rank_is_in_the_environment() {
        assert_eq!(rank_in(b"A=1\0PMI_RANK=12\0B=2\0", "PMI_RANK"), Some(12));
        assert_eq!(rank_in(b"A=1\0XPMI_RANK=12\0PMI_RANKS=3\0", "PMI_RANK"), None);
        assert_eq!(rank_in(b"", "PMI_RANK"), None);
    }
}
