//! What the allocator of the process does with large blocks.

use pyo3::prelude::*;

/// Blocks up to this size come from the heap, where freed ones are kept; larger ones from the system. The most that
/// glibc takes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FROM_HEAP: i32 = 32 << 20;

/// So much free memory stays with the process.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT: i32 = 256 << 20;

/// Variables by which a user sets the same.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const SETTINGS: [&str; 3] = ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"];

/// Lets the process keep up to 256 MiB that it has freed.
///
/// XLA allocates each result anew. glibc gives large blocks back to the system as soon as they are free, so that most
/// of the time of a collective of some MiB is spent on page faults of its result. Where the user has tuned the
/// allocator by variables, or has another one, nothing happens.
#[pyfunction]
pub(crate) fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let tuned = std::env::var("GLIBC_TUNABLES").is_ok_and(|tunables| tunables.contains("glibc.malloc."));
        if !tuned && SETTINGS.iter().all(|name| std::env::var_os(name).is_none()) {
            // SAFETY: glibc sets two of its numbers, under its own lock.
            unsafe {
                libc::mallopt(libc::M_MMAP_THRESHOLD, FROM_HEAP);
                libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
            }
        }
    }
}
