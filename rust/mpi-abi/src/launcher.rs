//! Which launcher started this process, if any: what it says of ranks, and which MPI it belongs to.

use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ending;

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
    /// PRRTE's `prterun` and others that speak `PMIx`.
    Prrte,
    /// Cray's `mpiexec` (PALS).
    Pals,
    /// Flux' `flux run`.
    Flux,
    /// MVAPICH's `mpirun_rsh`.
    Mvapich,
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
            Self::Prrte => "a launcher with PMIx",
            Self::Pals => "Cray's mpiexec (PALS)",
            Self::Flux => "flux run",
            Self::Mvapich => "MVAPICH's mpirun_rsh",
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
            Self::Prrte => "prrte",
            Self::Pals => "pals",
            Self::Flux => "flux",
            Self::Mvapich => "mvapich",
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
    /// The number of processes, where it says so.
    pub size: Option<usize>,
}

/// Reads the launcher's variables from the environment of the process. What a rank has started is no rank, though it
/// inherits them.
#[must_use]
pub fn detect() -> Option<Launcher> {
    if is_child() { None } else { detect_in(&variable) }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Reads the launcher's variables with `var`. A pair of variables that isn't a rank below a size is no launcher.
///
/// The order matters: an `mpirun` inside an allocation of SLURM, Flux or PALS sees the variables of that, too. Only `srun`
/// sets `SLURM_STEP_NUM_TASKS`; a batch script's own process, which has `SLURM_NTASKS`, is not a rank, and neither is a
/// shell that was opened as a step of one task. Those managers set hydra's variables as well, but none that tell a rank
/// of those on its node.
fn detect_in(var: &dyn Fn(&str) -> Option<String>) -> Option<Launcher> {
    let number = |name: &str| var(name)?.trim().parse::<usize>().ok();
    let hydra =
        if var("I_MPI_HYDRA_UUID").is_some() || var("I_MPI_MPIRUN").is_some() { Kind::IntelMpi } else { Kind::Hydra };
    let find = |(kind, rank, size): (Kind, &str, &str)| {
        let (rank, size) = (number(rank)?, number(size)?);
        (rank < size).then_some(Launcher { kind, rank, size: Some(size) })
    };
    let by_itself = [
        (Kind::Ferroket, "FERROKET_RANK", "FERROKET_SIZE"),
        (Kind::OpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ];
    let managers = [
        (Kind::Flux, "FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
        (Kind::Pals, "PALS_RANKID", "PALS_SIZE"),
        (Kind::Pals, "PALS_RANKID", "PMI_SIZE"),
        (Kind::Slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ];
    let by_pmi = [
        (hydra, "PMI_RANK", "PMI_SIZE"),
        (Kind::Mvapich, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
        (Kind::Mvapich, "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE"),
    ];
    let pmi = (number("PMI_RANK"), number("PMI_SIZE"));
    let is_hydras = hydra == Kind::IntelMpi || var("MPI_LOCALNRANKS").is_some();
    // Hydra's variables, if there are any, are the manager's own.
    let is_managed = |one: &Launcher| pmi.0.is_none() || (!is_hydras && pmi == (Some(one.rank), one.size));
    by_itself.into_iter().find_map(find).or_else(|| match managers.into_iter().filter_map(find).find(is_managed) {
        Some(one) => (one.size > Some(1)).then_some(one),
        None => by_pmi.into_iter().find_map(find).or_else(|| with_pmix(var)),
    })
}

/// A rank whose launcher says no more than `PMIx` does. SLURM's has more variables, or is a step of one task.
fn with_pmix(var: &dyn Fn(&str) -> Option<String>) -> Option<Launcher> {
    let rank = var("PMIX_RANK")?.trim().parse().ok()?;
    let is_slurms = var("PMIX_NAMESPACE")?.starts_with("slurm.");
    (!is_slurms).then_some(Launcher { kind: Kind::Prrte, rank, size: None })
}

/// The variables of launchers that aren't known by more: by each, a process that it has started can be told.
const UNKNOWN: [&str; 6] = ["ALPS_APP_PE", "JSM_NAMESPACE_RANK", "MP_CHILD", "MPIRUN_RANK", "PMI_ID", "PMI_RANK"];

/// The variable by which a launcher that isn't known has told this process its number, with its value.
#[must_use]
pub fn unknown() -> Option<String> {
    if is_child() { None } else { unknown_in(&variable) }
}

fn unknown_in(var: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let is_number = |value: &String| value.trim().parse::<usize>().is_ok();
    let (name, value) = UNKNOWN
        .iter()
        .find_map(|name| Some((name, var(name).filter(is_number).filter(|_| detect_in(var).is_none())?)))?;
    // A step of one task: its manager is known.
    let is_single = *name == "PMI_RANK" && var("PMI_SIZE").is_some_and(|size| size.trim() == "1");
    (!is_single).then(|| format!("{name}={value}"))
}

/// What a rank puts into the environment of its children: its process, and when that began.
pub const RANK_PROCESS: &str = "FERROKET_RANK_PROCESS";

/// The value of [`RANK_PROCESS`] for the children of a rank's process. No other process ever has the same.
#[must_use]
pub fn mark_of_children(rank: u32) -> String {
    format!("{rank}.{}", stat(rank).and_then(|fields| fields.get(19).cloned()).unwrap_or_default())
}

/// The fields of a process's `stat` from the third on, its state: those that follow its name.
#[must_use]
pub fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may itself hold spaces and parentheses.
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// Whether a rank has started this process, however long ago. A launcher between the two has started another rank.
#[must_use]
pub fn is_child() -> bool {
    let mark = variable(RANK_PROCESS);
    let Some(rank) = mark.and_then(|mark| mark.split('.').next()?.parse::<u32>().ok()) else { return false };
    if rank == std::process::id() {
        return false;
    }
    ancestor_pids()
        .find_map(|pid| if pid == rank { Some(true) } else { starts_ranks(pid).then_some(false) })
        .unwrap_or(true)
}

/// Whether a process is a launcher or a daemon of one. The daemons of other users hide all but their names' first
/// fifteen letters.
fn starts_ranks(pid: u32) -> bool {
    const MANAGERS: [&str; 3] = ["slurmstepd", "palsd", "flux-shell"];
    let name = name(pid);
    is_launcher(&name) || MANAGERS.contains(&name.as_str())
}

/// The first fifteen letters of a process's name; empty if it has ended.
pub(crate) fn name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Why the variables of a launcher can't be those of this process, if so.
#[must_use]
pub fn left_over() -> Option<String> {
    let descriptor: i32 = variable("PMI_FD")?.trim().parse().ok()?;
    // SAFETY: the call has no preconditions.
    let is_open = unsafe { libc::fcntl(descriptor, libc::F_GETFD) } >= 0;
    (!is_open).then(|| format!("PMI_FD={descriptor}, which isn't an open file of this process"))
}

/// The variables with which MPI libraries start.
const OF_LIBRARIES: [&str; 10] = [
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_FD",
    "PMI_PORT",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
];

static IS_STARTING: AtomicBool = AtomicBool::new(false);

/// Until it is dropped, MPI starts.
#[derive(Debug)]
#[must_use]
pub(crate) struct Starting;

impl Drop for Starting {
    fn drop(&mut self) {
        IS_STARTING.store(false, Ordering::Release);
    }
}

/// MPI libraries that don't get along with a launcher end the process with words of their own: adds ours, if one does so
/// while it starts.
pub(crate) fn explain_exit(library: &str) -> Starting {
    static ONCE: Once = Once::new();
    static LIBRARY: std::sync::OnceLock<String> = std::sync::OnceLock::new();

    extern "C" fn explain() {
        if !IS_STARTING.load(Ordering::Acquire) {
            return;
        }
        let set: Vec<_> = OF_LIBRARIES.iter().filter_map(|name| Some(format!("{name}={}", variable(name)?))).collect();
        let library = LIBRARY.get().map_or("", String::as_str);
        ending::tell(&format!(
            "ferroket: {library} has ended this process while it started, as it says above. A launcher seems to have \
             started the process: {}. If none has, and another job or a container has left these variables, unset them. \
             Otherwise launcher and library don't belong together: FERROKET_LIBMPI names the library",
            set.join(", ")
        ));
    }

    let _ = LIBRARY.set(library.to_owned());
    ONCE.call_once(|| {
        // SAFETY: the handler is a plain function that lives as long as the process: this library is never closed.
        unsafe { libc::atexit(explain) };
    });
    IS_STARTING.store(true, Ordering::Release);
    Starting
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
    const DAEMONS: [&str; 6] = ["hydra_pmi_proxy", "hydra_bstrap_pr", "prted", "orted", "orte", "pmi_proxy"];
    is_command(name) || DAEMONS.iter().any(|start| name.starts_with(start))
}

/// Whether it is what a user starts, not one of its helpers on each node.
fn is_command(name: &str) -> bool {
    const COMMANDS: [&str; 5] = ["mpiexec", "mpirun", "prte", "prun", "orterun"];
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
pub(crate) fn ancestor_pids() -> impl Iterator<Item = u32> {
    /// `mpirun` → proxy → shell → environment manager → python is five; much deeper nesting is somebody else's.
    const DEPTH: usize = 16;
    let parent = |pid: u32| -> Option<u32> { stat(pid)?.get(1)?.parse().ok() };
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

#[cfg(not(target_os = "linux"))]
pub(crate) fn ancestor_pids() -> impl Iterator<Item = u32> {
    std::iter::empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect_with(vars: &[(&str, &str)]) -> Option<Launcher> {
        detect_in(&|name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_string()))
    }

    #[test]
    fn each_launcher_is_known_by_its_variables() {
        let launcher = |kind, rank, size| Some(Launcher { kind, rank, size: Some(size) });
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
        assert_eq!(detect_with(&[("PALS_RANKID", "1"), ("PALS_SIZE", "2")]), launcher(Kind::Pals, 1, 2));
        let cray = [("PALS_RANKID", "1"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
        assert_eq!(detect_with(&cray), launcher(Kind::Pals, 1, 4));
        let flux = [("FLUX_TASK_RANK", "3"), ("FLUX_JOB_SIZE", "4"), ("PMI_RANK", "3"), ("PMI_SIZE", "4")];
        assert_eq!(detect_with(&flux), launcher(Kind::Flux, 3, 4));
        assert_eq!(
            detect_with(&[("MV2_COMM_WORLD_RANK", "1"), ("MV2_COMM_WORLD_SIZE", "2"), ("PMI_ID", "1")]),
            launcher(Kind::Mvapich, 1, 2)
        );
        let pmix = Launcher { kind: Kind::Prrte, rank: 1, size: None };
        assert_eq!(detect_with(&[("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "prterun-1")]), Some(pmix));
        assert_eq!(detect_with(&[("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "slurm.pmix.7.0")]), None);
    }

    #[test]
    fn launchers_that_are_not_known_are_named() {
        let unknown = |vars: &[(&str, &str)]| {
            unknown_in(&|name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_string()))
        };
        assert_eq!(unknown(&[("ALPS_APP_PE", "3")]).as_deref(), Some("ALPS_APP_PE=3"));
        assert_eq!(unknown(&[("PMI_RANK", "1")]).as_deref(), Some("PMI_RANK=1"));
        assert_eq!(unknown(&[("PMI_ID", "1"), ("MV2_COMM_WORLD_RANK", "1"), ("MV2_COMM_WORLD_SIZE", "2")]), None);
        assert_eq!(unknown(&[("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("SLURM_PROCID", "0")]), None);
        assert_eq!(unknown(&[("PMI_RANK", "x")]), None);
        assert_eq!(unknown(&[]), None);
    }

    #[test]
    fn a_process_that_no_rank_has_started_is_no_child() {
        assert!(!is_child());
        let mark = mark_of_children(std::process::id());
        assert!(mark.starts_with(&format!("{}.", std::process::id())) && !mark.ends_with('.'), "{mark}");
    }

    #[test]
    fn mpirun_inside_a_slurm_step_is_mpirun() {
        let vars = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1"), ("PMI_RANK", "2"), ("PMI_SIZE", "4")];
        assert_eq!(detect_with(&vars), Some(Launcher { kind: Kind::Hydra, rank: 2, size: Some(4) }));
    }

    #[test]
    fn a_batch_script_and_a_plain_shell_are_no_launcher() {
        assert_eq!(detect_with(&[]), None);
        assert_eq!(detect_with(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), None);
    }

    #[test]
    fn srun_with_pmi_is_srun() {
        let task = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        assert_eq!(detect_with(&task), Some(Launcher { kind: Kind::Slurm, rank: 1, size: Some(2) }));
        // One rank a node, whose proxies mpirun starts by srun: all numbers are the same.
        let rank = [task.as_slice(), &[("MPI_LOCALNRANKS", "1")]].concat();
        assert_eq!(detect_with(&rank), Some(Launcher { kind: Kind::Hydra, rank: 1, size: Some(2) }));
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
