//! Which MPI library to use, and why not the others.
//!
//! Two MPI libraries in one process end in an abort, so the one that is loaded already comes first, mpi4py's
//! before any other. After it: what the user says, what the launcher is, and what lies where mpi4py looks.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::{Library, MpiFamily, loaded};
use crate::Error;
use crate::launcher::{self, Kind};

/// A place where an MPI library may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// The library that mpi4py runs on.
    Mpi4py(PathBuf),
    /// A library that something else loaded.
    Loaded(PathBuf),
    /// Named in an environment variable.
    Variable(&'static str, PathBuf),
    /// Beside the launcher that started this process.
    Launcher(PathBuf),
    /// In the `lib` of an environment.
    Prefix(PathBuf),
    /// Found by the system's loader.
    Loader(String),
}

impl Candidate {
    /// The file, or the name for the loader.
    fn file(&self) -> OsString {
        match self {
            Self::Mpi4py(path)
            | Self::Loaded(path)
            | Self::Variable(_, path)
            | Self::Launcher(path)
            | Self::Prefix(path) => path.clone().into_os_string(),
            Self::Loader(name) => name.into(),
        }
    }

    /// How it came to be a candidate.
    #[must_use]
    pub fn origin(&self) -> String {
        match self {
            Self::Mpi4py(_) => "mpi4py uses it".into(),
            Self::Loaded(_) => "loaded in the process".into(),
            Self::Variable(name, _) => format!("named in {name}"),
            Self::Launcher(_) => "beside the launcher".into(),
            Self::Prefix(_) => "in the Python environment".into(),
            Self::Loader(_) => "found by the system's loader".into(),
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.file().display(), self.origin())
    }
}

/// A candidate that was tried, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The place.
    pub candidate: Candidate,
    /// "used", or why not.
    pub outcome: String,
}

/// The library to use, and everything that was tried before it was found.
#[derive(Debug)]
pub struct Discovery {
    /// The library, open.
    pub library: Library,
    /// Where it was.
    pub candidate: Candidate,
    /// All attempts in their order, the successful one last.
    pub attempts: Vec<Attempt>,
}

/// Finds and opens the MPI library; `prefixes` are the environments in whose `lib` it may be, best first.
pub fn find(prefixes: &[PathBuf]) -> Result<Discovery, Error> {
    let mut attempts = Vec::new();
    for candidate in candidates(prefixes) {
        match Library::open(&candidate.file()) {
            Ok(library) => {
                attempts.push(Attempt { candidate: candidate.clone(), outcome: "used".into() });
                return Ok(Discovery { library, candidate, attempts });
            }
            Err(error) => {
                let outcome = reason(error);
                // What the user asked for by name is never replaced by something else.
                if let Candidate::Variable(variable, path) = candidate {
                    return Err(Error::BadVariable { variable, path: path.display().to_string(), reason: outcome });
                }
                attempts.push(Attempt { candidate, outcome });
            }
        }
    }
    Err(Error::NotFound { tried: attempts })
}

fn reason(error: Error) -> String {
    match error {
        Error::Unusable { reason, .. } => reason,
        other => other.to_string(),
    }
}

fn candidates(prefixes: &[PathBuf]) -> Vec<Candidate> {
    let launcher = launcher::detect();
    let (own, others) = names(launcher.and_then(|launcher| family_of(launcher.kind)));
    let names = [own.as_slice(), &others].concat();
    let mut all: Vec<Candidate> = loaded::libraries()
        .into_iter()
        .map(|(path, is_mpi4py)| if is_mpi4py { Candidate::Mpi4py(path) } else { Candidate::Loaded(path) })
        .collect();
    for variable in ["FERROKET_LIBMPI", "MPI4PY_LIBMPI"] {
        if let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
            all.push(Candidate::Variable(variable, named(Path::new(&value), &names)));
        }
    }
    for executable in launcher::executables() {
        let root = executable.parent().and_then(Path::parent).map(Path::to_path_buf);
        all.extend(root.iter().flat_map(|root| in_prefix(root, &own)).map(Candidate::Launcher));
    }
    // A library of another family can't run under this launcher, however near it lies.
    for names in [own, others] {
        let system = |prefix: &&PathBuf| *prefix != Path::new("/usr"); // the loader's business
        all.extend(prefixes.iter().filter(system).flat_map(|prefix| in_prefix(prefix, &names)).map(Candidate::Prefix));
        all.extend(names.iter().map(|name| Candidate::Loader((*name).to_string())));
    }
    let mut seen = HashSet::new();
    all.retain(|candidate| {
        let file = candidate.file();
        seen.insert(std::fs::canonicalize(&file).map_or(file, PathBuf::into_os_string))
    });
    all
}

/// What a variable's value means: a file, or a folder that holds the library.
fn named(value: &Path, names: &[&str]) -> PathBuf {
    let inside = || names.iter().map(|name| value.join(name)).find(|path| path.exists());
    if value.is_dir() { inside().unwrap_or_else(|| value.to_path_buf()) } else { value.to_path_buf() }
}

/// The libraries that exist under a prefix, those of Debian's packages too.
fn in_prefix(prefix: &Path, names: &[&str]) -> Vec<PathBuf> {
    let debian = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    let folders = ["lib", "lib64", "lib/release", &debian].map(|folder| prefix.join(folder));
    let files = folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    files.filter(|path| path.exists()).collect()
}

/// The family of MPI libraries that a launcher starts, where it starts one alone.
fn family_of(launcher: Kind) -> Option<MpiFamily> {
    match launcher {
        Kind::Hydra | Kind::IntelMpi | Kind::Pals | Kind::Mvapich => Some(MpiFamily::Mpich),
        Kind::OpenMpi => Some(MpiFamily::OpenMpi),
        Kind::Slurm | Kind::Ferroket | Kind::Prrte | Kind::Flux => None,
    }
}

/// The file names of MPI libraries, those of the launcher's family first.
///
/// `libmpi.so` alone isn't among them: it may be a linker script, and says nothing of the family. Debian calls
/// MPICH's library `libmpich.so.12`.
fn names(family: Option<MpiFamily>) -> (Vec<&'static str>, Vec<&'static str>) {
    const MPICH: &[&str] = if cfg!(target_os = "macos") {
        &["libmpi.12.dylib", "libmpich.12.dylib"]
    } else {
        &["libmpi.so.12", "libmpich.so.12"]
    };
    const OPEN_MPI: &[&str] = if cfg!(target_os = "macos") { &["libmpi.40.dylib"] } else { &["libmpi.so.40"] };
    const STANDARD: &[&str] = if cfg!(target_os = "macos") {
        &["libmpi_abi.0.dylib", "libmpi_abi.1.dylib"]
    } else {
        &["libmpi_abi.so.0", "libmpi_abi.so.1"]
    };
    match family {
        Some(MpiFamily::OpenMpi) => (OPEN_MPI.to_vec(), [MPICH, STANDARD].concat()),
        Some(_) => ([MPICH, STANDARD].concat(), OPEN_MPI.to_vec()),
        None => ([MPICH, OPEN_MPI, STANDARD].concat(), Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launchers_family_comes_first() {
        if cfg!(target_os = "linux") {
            let (own, others) = names(Some(MpiFamily::OpenMpi));
            assert_eq!((own[0], others[0]), ("libmpi.so.40", "libmpi.so.12"));
            let (own, others) = names(Some(MpiFamily::Mpich));
            assert_eq!((own[..2].to_vec(), others), (vec!["libmpi.so.12", "libmpich.so.12"], vec!["libmpi.so.40"]));
            assert_eq!(names(None).1, Vec::<&str>::new());
        }
    }

    #[test]
    fn only_what_exists_is_a_candidate_in_a_prefix() {
        let prefix = std::env::temp_dir().join(format!("ferroket-search-{}", std::process::id()));
        let names = names(None).0;
        for folder in ["lib".to_string(), format!("lib/{}-linux-gnu", std::env::consts::ARCH)] {
            let folder = prefix.join(folder);
            let file = folder.join(names[0]);
            std::fs::create_dir_all(&folder).expect("a folder for the test");
            assert_eq!(in_prefix(&prefix, &names), Vec::<PathBuf>::new());
            std::fs::write(&file, "").expect("a file for the test");
            assert_eq!(in_prefix(&prefix, &names), vec![file.clone()]);
            assert_eq!(named(&folder, &names), file);
            std::fs::remove_file(&file).expect("the test's own file");
        }
        std::fs::remove_dir_all(prefix).expect("the test's own folder");
    }
}
