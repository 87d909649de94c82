//! The MPI library that is in the process already, put there by mpi4py, h5py or the program itself.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use libloading::os::unix as dl;

const SYMBOL: &[u8] = b"MPI_Init_thread\0";

/// The file that defines `MPI_Init_thread` for this object: itself, or a library that it depends on.
pub(super) fn file_of(object: &dl::Library) -> Option<PathBuf> {
    // SAFETY: the symbol's address is only asked for its file, never called.
    let symbol = unsafe { object.get::<*const c_void>(SYMBOL) }.ok()?;
    file_defining(symbol.as_raw_ptr())
}

/// The file of the loaded object that holds `address`.
pub(super) fn file_defining(address: *const c_void) -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: `info` is valid for writing; any address may be asked for.
    let found = unsafe { libc::dladdr(address, &raw mut info) } != 0;
    if !found || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader keeps the name as long as the object is loaded; it is copied at once.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    Some(path.canonicalize().unwrap_or(path))
}

/// Files of MPI libraries in this process, those that came with mpi4py's own module first.
pub(super) fn libraries() -> Vec<(PathBuf, bool)> {
    let (mut with_mpi4py, mut others) = (Vec::new(), Vec::new());
    for object in objects() {
        // SAFETY: `RTLD_NOLOAD` opens only what is loaded already, so no constructor runs.
        let Ok(library) = (unsafe { dl::Library::open(Some(&object), dl::RTLD_LAZY | libc::RTLD_NOLOAD) }) else {
            continue;
        };
        let Some(file) = file_of(&library) else { continue };
        let is_mpi4py = object.to_string_lossy().contains("/mpi4py/MPI.");
        let group = if is_mpi4py { &mut with_mpi4py } else { &mut others };
        if !group.contains(&(file.clone(), is_mpi4py)) {
            group.push((file, is_mpi4py));
        }
    }
    with_mpi4py.extend(others);
    with_mpi4py
}

/// The files of all shared objects in the process.
#[cfg(target_os = "linux")]
fn objects() -> Vec<PathBuf> {
    unsafe extern "C" fn push(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> libc::c_int {
        // SAFETY: the loader passes a valid `info`, and `data` is the vector below; names are C strings.
        let (name, paths) = unsafe { (CStr::from_ptr((*info).dlpi_name), &mut *data.cast::<Vec<PathBuf>>()) };
        if name.to_bytes().starts_with(b"/") {
            paths.push(PathBuf::from(OsStr::from_bytes(name.to_bytes())));
        }
        0
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    // SAFETY: the callback doesn't keep `paths` and doesn't unwind (pushing can only abort, out of memory).
    unsafe { libc::dl_iterate_phdr(Some(push), (&raw mut paths).cast()) };
    paths
}

/// The files of all shared objects in the process.
#[cfg(target_os = "macos")]
fn objects() -> Vec<PathBuf> {
    // SAFETY: an index past the end gives null, which is skipped; names live as long as their image.
    unsafe {
        (0..libc::_dyld_image_count())
            .map(|index| libc::_dyld_get_image_name(index))
            .filter(|name| !name.is_null())
            .map(|name| PathBuf::from(OsStr::from_bytes(CStr::from_ptr(name).to_bytes())))
            .collect()
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn objects() -> Vec<PathBuf> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_tells_its_file() {
        let here = file_defining(file_defining as *const c_void).expect("this function is in a file");
        assert_eq!(here, std::env::current_exe().expect("a running test").canonicalize().expect("its file"));
    }

    #[test]
    fn the_loaded_objects_are_listed() {
        assert!(objects().iter().any(|path| path.to_string_lossy().contains("libc")));
    }

    #[test]
    fn no_mpi_is_in_a_test_process() {
        assert_eq!(libraries(), []);
    }
}
