//! Which launcher started this process, if any: what it says of ranks, and which MPI it belongs to.

use std::path::PathBuf;

use crate::library::Family;

/// The program that starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Hydra, of MPICH and its relatives.
    Hydra,
    /// Hydra as Intel MPI ships it.
    IntelMpi,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// SLURM's `srun`.
    Slurm,
    /// `ferroket launch` without an MPI.
    Ferroket,
}

impl Kind {
    /// The name that users know it by.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hydra => "MPICH's mpirun (hydra)",
            Self::IntelMpi => "Intel MPI's mpirun",
            Self::OpenMpi => "Open MPI's mpirun",
            Self::Slurm => "SLURM's srun",
            Self::Ferroket => "ferroket launch",
        }
    }

    /// A short name, for code.
    #[must_use]
    pub fn tag(self) -> &'static str {
        match self {
            Self::Hydra => "hydra",
            Self::IntelMpi => "intel",
            Self::OpenMpi => "openmpi",
            Self::Slurm => "slurm",
            Self::Ferroket => "ferroket",
        }
    }

    /// The family of MPI libraries that it can start; `srun` starts any, and `ferroket launch` none by itself.
    #[must_use]
    pub fn family(self) -> Option<Family> {
        match self {
            Self::Hydra | Self::IntelMpi => Some(Family::Mpich),
            Self::OpenMpi => Some(Family::OpenMpi),
            Self::Slurm | Self::Ferroket => None,
        }
    }
}

/// What the launcher told this process in its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Which launcher.
    pub kind: Kind,
    /// This process's rank.
    pub rank: usize,
    /// The number of processes.
    pub size: usize,
}

/// Reads the launcher's variables from the environment of the process.
#[must_use]
pub fn detect() -> Option<Launcher> {
    detect_in(&|name| std::env::var(name).ok())
}

/// Reads the launcher's variables with `var`. A pair of variables that isn't a rank below a size is no launcher.
///
/// The order matters: an `mpirun` inside a SLURM allocation sees SLURM's variables too. Only `srun` sets
/// `SLURM_STEP_NUM_TASKS`; a batch script's own process, which has `SLURM_NTASKS`, is not a rank, and neither is a
/// shell that SLURM opened as a step of one task. `srun` with PMI sets hydra's variables, but none that tell a rank
/// of those on its node.
fn detect_in(var: &dyn Fn(&str) -> Option<String>) -> Option<Launcher> {
    let number = |name: &str| var(name)?.trim().parse::<usize>().ok();
    let hydra =
        if var("I_MPI_HYDRA_UUID").is_some() || var("I_MPI_MPIRUN").is_some() { Kind::IntelMpi } else { Kind::Hydra };
    let by_srun = var("MPI_LOCALNRANKS").is_none()
        && number("SLURM_PROCID").is_some_and(|rank| number("PMI_RANK") == Some(rank))
        && number("PMI_SIZE") == number("SLURM_STEP_NUM_TASKS");
    [
        (Kind::Ferroket, "FERROKET_RANK", "FERROKET_SIZE"),
        (Kind::OpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        (hydra, "PMI_RANK", "PMI_SIZE"),
        (Kind::Slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ]
    .into_iter()
    .find_map(|(kind, rank, size)| {
        let (rank, size) = (number(rank)?, number(size)?);
        let is_one = match kind {
            Kind::Hydra => !by_srun,
            Kind::Slurm => size > 1,
            _ => true,
        };
        (is_one && rank < size).then_some(Launcher { kind, rank, size })
    })
}

/// The executables of launchers among this process's ancestors, nearest first.
///
/// A launcher lies in `<prefix>/bin` of the MPI it belongs to, so its library is near.
#[must_use]
pub fn executables() -> Vec<PathBuf> {
    ancestors()
        .into_iter()
        .filter(|exe| exe.file_name().and_then(|name| name.to_str()).is_some_and(is_launcher))
        .collect()
}

fn is_launcher(name: &str) -> bool {
    const DAEMONS: [&str; 6] = ["hydra_pmi_proxy", "hydra_bstrap_proxy", "prted", "orted", "orte", "pmi_proxy"];
    is_command(name) || DAEMONS.iter().any(|start| name.starts_with(start))
}

/// Whether it is what a user starts, not one of its helpers on each node.
fn is_command(name: &str) -> bool {
    const COMMANDS: [&str; 4] = ["mpiexec", "mpirun", "prte", "orterun"];
    COMMANDS.iter().any(|start| name.starts_with(start)) && name != "prted"
}

/// The stderr of the launcher's command, where that runs on this node and its stderr may be opened a second time: a
/// terminal, a pipe, or a file that is appended to. (A second writer at its own place in a file would spoil it.)
#[cfg(target_os = "linux")]
#[must_use]
pub fn console() -> Option<PathBuf> {
    use std::os::unix::fs::FileTypeExt;

    let named = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok()?.file_name()?.to_str().map(is_command);
    let command = ancestor_pids().find(|pid| named(*pid) == Some(true))?;
    let path = PathBuf::from(format!("/proc/{command}/fd/2"));
    let kind = std::fs::metadata(&path).ok()?.file_type();
    let appends = || {
        let info = std::fs::read_to_string(format!("/proc/{command}/fdinfo/2")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?.trim();
        Some(i32::from_str_radix(flags, 8).ok()? & libc::O_APPEND != 0)
    };
    (kind.is_fifo() || kind.is_char_device() || appends() == Some(true)).then_some(path)
}

/// Only Linux shows the files of other processes.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn console() -> Option<PathBuf> {
    None
}

/// The parent, its parent and so on, nearest first.
#[cfg(target_os = "linux")]
fn ancestor_pids() -> impl Iterator<Item = u32> {
    /// `mpirun` → proxy → shell → environment manager → python is five; deeper nesting is somebody else's.
    const DEPTH: usize = 8;
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the name in parentheses, which may itself hold spaces and parentheses.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    std::iter::successors(parent(std::process::id()), move |&pid| parent(pid)).take_while(|&pid| pid > 0).take(DEPTH)
}

/// The executables of the parent, its parent and so on, as far as this user may see them.
#[cfg(target_os = "linux")]
fn ancestors() -> Vec<PathBuf> {
    ancestor_pids().filter_map(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok()).collect()
}

#[cfg(not(target_os = "linux"))]
fn ancestors() -> Vec<PathBuf> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect_with(vars: &[(&str, &str)]) -> Option<Launcher> {
        detect_in(&|name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_string()))
    }

    #[test]
    fn each_launcher_is_known_by_its_variables() {
        let launcher = |kind, rank, size| Some(Launcher { kind, rank, size });
        assert_eq!(detect_with(&[("PMI_RANK", "1"), ("PMI_SIZE", "4")]), launcher(Kind::Hydra, 1, 4));
        assert_eq!(
            detect_with(&[("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("I_MPI_HYDRA_UUID", "x")]),
            launcher(Kind::IntelMpi, 0, 2)
        );
        assert_eq!(
            detect_with(&[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "8")]),
            launcher(Kind::OpenMpi, 3, 8)
        );
        assert_eq!(detect_with(&[("SLURM_PROCID", "5"), ("SLURM_STEP_NUM_TASKS", "6")]), launcher(Kind::Slurm, 5, 6));
        assert_eq!(detect_with(&[("FERROKET_RANK", "2"), ("FERROKET_SIZE", "3")]), launcher(Kind::Ferroket, 2, 3));
    }

    #[test]
    fn mpirun_inside_a_slurm_step_is_mpirun() {
        let vars = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1"), ("PMI_RANK", "2"), ("PMI_SIZE", "4")];
        assert_eq!(detect_with(&vars), Some(Launcher { kind: Kind::Hydra, rank: 2, size: 4 }));
    }

    #[test]
    fn a_batch_script_and_a_plain_shell_are_no_launcher() {
        assert_eq!(detect_with(&[]), None);
        assert_eq!(detect_with(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), None);
    }

    #[test]
    fn srun_with_pmi_is_srun() {
        let task = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        assert_eq!(detect_with(&task), Some(Launcher { kind: Kind::Slurm, rank: 1, size: 2 }));
        // One rank a node, whose proxies mpirun starts by srun: all numbers are the same.
        let rank = [task.as_slice(), &[("MPI_LOCALNRANKS", "1")]].concat();
        assert_eq!(detect_with(&rank), Some(Launcher { kind: Kind::Hydra, rank: 1, size: 2 }));
    }

    #[test]
    fn a_step_of_one_task_is_a_plain_process() {
        let shell = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
        assert_eq!(detect_with(&shell), None);
        let with_pmi = [shell.as_slice(), &[("PMI_RANK", "0"), ("PMI_SIZE", "1")]].concat();
        assert_eq!(detect_with(&with_pmi), None);
    }

    #[test]
    fn nonsense_is_no_launcher() {
        assert_eq!(detect_with(&[("PMI_RANK", "4"), ("PMI_SIZE", "4")]), None);
        assert_eq!(detect_with(&[("PMI_RANK", "-1"), ("PMI_SIZE", "4")]), None);
        assert_eq!(detect_with(&[("PMI_RANK", "x"), ("PMI_SIZE", "")]), None);
    }

    #[test]
    fn launchers_are_known_by_name() {
        for name in ["hydra_pmi_proxy", "mpiexec.hydra", "mpirun", "prterun", "prted", "orted", "orterun"] {
            assert!(is_launcher(name), "{name}");
        }
        for name in ["python3.11", "bash", "srun", "make"] {
            assert!(!is_launcher(name), "{name}");
        }
        for name in ["mpiexec.hydra", "mpirun", "prterun", "orterun", "mpirun.mpich"] {
            assert!(is_command(name), "{name}");
        }
        for name in ["hydra_pmi_proxy", "prted", "orted"] {
            assert!(!is_command(name), "{name}");
        }
    }
}
