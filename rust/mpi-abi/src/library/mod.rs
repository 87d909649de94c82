//! The MPI library: where it is, what family it is of, and how to call it.

pub mod api;
mod loaded;
pub mod search;

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::os::unix as dl;

use crate::Error;
use crate::abi::{SUCCESS, ThreadLevel};
use api::Api;

pub use search::{Attempt, Candidate, Discovery, find};

/// Libraries of one family share an ABI: the numbers of their constants and the width of their handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpiFamily {
    /// MPICH, Intel MPI, MVAPICH, Cray MPICH: handles are 32-bit numbers.
    Mpich,
    /// Open MPI: handles are addresses of the library's objects.
    OpenMpi,
    /// The MPI-5 standard ABI (`libmpi_abi`): the numbers that this crate exports itself.
    Standard,
}

impl fmt::Display for MpiFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mpich => "MPICH",
            Self::OpenMpi => "Open MPI",
            Self::Standard => "MPI-5 ABI",
        })
    }
}

/// The functions and numbers of an opened library, by the width of its handles.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // there is one in a process, and a pointer would cost a load in each call
pub enum AnyApi {
    /// 32-bit handles: the MPICH family.
    Narrow(Api<c_int>),
    /// Pointers as handles: Open MPI and the standard ABI.
    Wide(Api<usize>),
}

/// Evaluates an expression for the API of a library, whatever the width of its handles.
#[macro_export]
#[doc(hidden)]
macro_rules! with_api {
    ($library:expr, $api:ident => $body:expr) => {
        match $library.api() {
            $crate::library::AnyApi::Narrow($api) => $body,
            $crate::library::AnyApi::Wide($api) => $body,
        }
    };
}

/// An opened MPI library. It stays open as long as the process lives.
#[derive(Debug)]
pub struct Library {
    path: PathBuf,
    family: MpiFamily,
    api: AnyApi,
    object: dl::Library,
}

impl Library {
    /// Opens `path` (a file, or a name for the loader) and looks up all that is ever called.
    ///
    /// It is opened with local scope, as mpi4py opens it: nothing else in the process binds to its symbols. The loader
    /// never closes it: what it brought along may have started threads, and left handlers.
    pub fn open(path: &OsStr) -> Result<Self, Error> {
        let unusable = |reason: String| Error::Unusable { path: PathBuf::from(path), reason };
        // SAFETY: opening a library runs its constructors; those of MPI libraries have no preconditions.
        let object = unsafe { dl::Library::open(Some(path), dl::RTLD_LAZY | dl::RTLD_LOCAL | libc::RTLD_NODELETE) }
            .map_err(|error| unusable(loader_says(&error)))?;
        let family = if exports(&object, c"ompi_mpi_comm_world") {
            MpiFamily::OpenMpi
        } else if is_standard(&object) {
            MpiFamily::Standard
        } else {
            MpiFamily::Mpich
        };
        // SAFETY: the family was just read off the library, so the types of `Api` are those of its functions.
        let api = unsafe {
            match family {
                MpiFamily::Mpich => Api::mpich(&object).map(AnyApi::Narrow),
                MpiFamily::OpenMpi => Api::open_mpi(&object).map(AnyApi::Wide),
                MpiFamily::Standard => Api::standard(&object).map(AnyApi::Wide),
            }
        }
        .map_err(|error| unusable(loader_says(&error)))?;
        let path = loaded::file_of(&object).ok_or_else(|| unusable("it has no MPI_Init_thread".into()))?;
        Ok(Self { path, family, api, object })
    }

    /// The file that defines `MPI_Init_thread`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its family.
    #[must_use]
    pub fn family(&self) -> MpiFamily {
        self.family
    }

    /// Its functions and numbers.
    #[must_use]
    pub fn api(&self) -> &AnyApi {
        &self.api
    }

    /// A variable that MPI reads when it starts, and what it has to be if it isn't set: where the providers of Intel's
    /// libfabric are. It isn't set here, since other threads may be reading the environment.
    #[must_use]
    pub fn variable(&self) -> Option<(&'static str, PathBuf)> {
        let fabric = self.fabric()?;
        let home = fabric.parent()?;
        Some(("FI_PROVIDER_PATH", [home.join("prov"), home.to_path_buf()].into_iter().find(|path| path.is_dir())?))
    }

    /// Intel MPI opens its own libfabric by name, which the loader can't find where it came from a Python package: opens it
    /// first. It stays open.
    pub(crate) fn open_fabric(&self) {
        if let Some(fabric) = self.fabric() {
            // SAFETY: opening libfabric runs its constructors, which have no preconditions.
            if let Ok(object) = unsafe { libloading::Library::new(fabric) } {
                std::mem::forget(object);
            }
        }
    }

    /// The libfabric beside an Intel MPI; None for a system installation, whose own scripts set the paths.
    fn fabric(&self) -> Option<PathBuf> {
        let is_intel = exports(&self.object, c"I_MPI_Check_image_status");
        let folder = self.path.parent().filter(|_| is_intel)?;
        let prefix = folder.parent().unwrap_or(folder);
        let places = [prefix.join("opt/mpi/libfabric/lib"), prefix.join("libfabric/lib"), folder.to_path_buf()];
        places.iter().map(|place| place.join("libfabric.so.1")).find(|file| file.exists())
    }

    /// What `MPI_Get_library_version` says, in one line; it may be called before MPI is initialised.
    #[must_use]
    pub fn version(&self) -> String {
        const MAX_LIBRARY_VERSION_STRING: usize = 8192;
        let mut text = [0; MAX_LIBRARY_VERSION_STRING];
        let mut length = 0;
        // SAFETY: the buffer is as long as the longest version of any MPI.
        let code = with_api!(self, api => unsafe {
            (api.functions.get_library_version)(text.as_mut_ptr(), &raw mut length)
        });
        if code != SUCCESS {
            return self.family.to_string();
        }
        one_line(&string(&text))
    }

    /// The text of an error code.
    #[must_use]
    pub fn error_string(&self, code: c_int) -> String {
        const MAX_ERROR_STRING: usize = 1024;
        let mut text = [0; MAX_ERROR_STRING];
        let mut length = 0;
        // SAFETY: the buffer is as long as the longest message of any MPI.
        let outcome = with_api!(self, api => unsafe {
            (api.functions.error_string)(code, text.as_mut_ptr(), &raw mut length)
        });
        if outcome == SUCCESS { string(&text) } else { format!("error code {code}") }
    }

    /// Turns the code that a function returned into a result.
    pub fn check(&self, function: &'static str, code: c_int) -> Result<(), Error> {
        if code == SUCCESS {
            return Ok(());
        }
        Err(Error::Failed { function, path: self.path.clone(), message: self.error_string(code) })
    }

    /// The level of thread support that `number` means in this library.
    #[must_use]
    pub fn thread_level(&self, number: c_int) -> ThreadLevel {
        thread_level(self.family, number)
    }
}

/// The standard ABI has numbers of its own for the levels, which are ours; the other families count from 0.
fn thread_level(family: MpiFamily, number: c_int) -> ThreadLevel {
    const LEVELS: [ThreadLevel; 4] =
        [ThreadLevel::Single, ThreadLevel::Funneled, ThreadLevel::Serialized, ThreadLevel::Multiple];
    let numbered = |(place, &level): (usize, &ThreadLevel)| {
        let theirs = if family == MpiFamily::Standard { level as c_int } else { place as c_int };
        (theirs == number).then_some(level)
    };
    LEVELS.iter().enumerate().find_map(numbered).unwrap_or(ThreadLevel::Single)
}

/// The system loader's own message, which names the file or symbol; libloading keeps it as the error's source.
fn loader_says(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// The environment that the file of this code is installed in: `<prefix>` of `<prefix>/lib/python3.x/...`.
#[must_use]
pub fn own_prefix() -> Option<PathBuf> {
    let file = loaded::file_defining(own_prefix as *const std::ffi::c_void)?;
    let lib = file.ancestors().find(|folder| folder.file_name() == Some(OsStr::new("lib")))?;
    lib.parent().map(Path::to_path_buf)
}

fn exports(object: &dl::Library, symbol: &CStr) -> bool {
    // SAFETY: only the presence of the symbol is looked at, never what it is.
    unsafe { object.get::<*const ()>(symbol.to_bytes_with_nul()) }.is_ok()
}

/// Whether a library with `MPI_Abi_get_version` says that its own ABI is the standard one: MPICH 5's `libmpi` has
/// the function too, and answers that it isn't.
fn is_standard(object: &dl::Library) -> bool {
    type AbiGetVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    // SAFETY: the type is that of the MPI standard.
    let Ok(function) = (unsafe { object.get::<AbiGetVersion>(b"MPI_Abi_get_version\0") }) else {
        return false;
    };
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: both are valid for writing; the standard lets it be called before MPI is initialised.
    let code = unsafe { function(&raw mut major, &raw mut minor) };
    code == SUCCESS && major > 0
}

fn string(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().map(|&c| c.cast_unsigned()).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_string()
}

/// The first line of a version text, shortened where it goes on with the build's date or identity.
///
/// MPICH says "MPICH Version:      5.0.2\nMPICH Release date: ...", Open MPI "Open MPI v5.0.11, package: ...".
fn one_line(version: &str) -> String {
    let line = version.lines().next().unwrap_or_default();
    let line = line.split(", package").next().unwrap_or(line);
    let line = line.replace(" Version:", "");
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_become_one_short_line() {
        assert_eq!(one_line("MPICH Version:      5.0.2\nMPICH Release date: unreleased"), "MPICH 5.0.2");
        assert_eq!(one_line("Open MPI v5.0.11, package: Open MPI x@y Distribution"), "Open MPI v5.0.11");
        assert_eq!(
            one_line("Intel(R) MPI Library 2021.18 for Linux* OS\n"),
            "Intel(R) MPI Library 2021.18 for Linux* OS"
        );
        assert_eq!(one_line(""), "");
    }

    #[test]
    fn thread_levels_by_their_numbers_in_each_family() {
        for family in [MpiFamily::Mpich, MpiFamily::OpenMpi] {
            assert_eq!(thread_level(family, 1), ThreadLevel::Funneled);
            assert_eq!(thread_level(family, 3), ThreadLevel::Multiple);
            assert_eq!(thread_level(family, 4096), ThreadLevel::Single);
        }
        assert_eq!(thread_level(MpiFamily::Standard, 2048), ThreadLevel::Serialized);
        assert_eq!(thread_level(MpiFamily::Standard, 4096), ThreadLevel::Multiple);
        assert_eq!(thread_level(MpiFamily::Standard, 3), ThreadLevel::Single);
    }

    #[test]
    fn a_library_without_mpi_is_unusable() {
        let error = Library::open(OsStr::new("libc.so.6")).expect_err("libc isn't MPI").to_string();
        assert!(error.contains("libc.so.6 isn't a usable MPI library"), "{error}");
        assert!(error.contains("MPI_"), "{error}");
    }

    #[test]
    fn a_missing_file_is_unusable() {
        let error = Library::open(OsStr::new("/nowhere/libmpi.so")).expect_err("no such file").to_string();
        assert!(error.contains("/nowhere/libmpi.so"), "{error}");
    }
}
