//! What the allocator of the process does with memory that is free again.

use pyo3::prelude::*;

/// Lets the process keep some of the memory that it has freed, and gives the rest back every ten seconds.
///
/// XLA allocates each result anew. glibc gives large blocks back to the system as soon as they are free, so that most
/// of the time of a collective of some MiB is spent on page faults of its result. What stays for longer than ten
/// seconds is at the end of a heap: 256 MiB of the first, and less than 64 MiB of each of four more, for threads. Where
/// the user has tuned the allocator by variables, or has another one, nothing happens.
#[pyfunction]
pub(crate) fn keep_freed_memory() -> PyResult<()> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::keep()?;
    Ok(())
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::ffi::c_int;
    use std::sync::Once;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};
    use std::{io, thread};

    /// Blocks up to this size come from a heap, where freed ones are kept; larger ones from the system. The most that
    /// glibc takes.
    const FROM_HEAP: c_int = 32 << 20;

    /// So much free memory stays at the end of the first heap.
    const KEPT: c_int = 256 << 20;

    /// glibc makes a heap for each thread; from this number on, threads share them. What is free at the end of one is
    /// given back by nobody, but a heap is never larger than 64 MiB: then follows the next one of the same threads.
    const HEAPS: c_int = 5;

    /// How often the rest is given back.
    const MILLISECONDS: u64 = 10_000;

    /// Variables by which a user sets the same.
    const SETTINGS: [&str; 4] =
        ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_ARENA_MAX"];

    static STARTED: Once = Once::new();

    pub(super) fn keep() -> io::Result<()> {
        let tuned = std::env::var("GLIBC_TUNABLES").is_ok_and(|tunables| tunables.contains("glibc.malloc."));
        if tuned || SETTINGS.iter().any(|name| std::env::var_os(name).is_some()) {
            return Ok(());
        }
        let mut outcome = Ok(());
        STARTED.call_once(|| {
            // SAFETY: glibc sets its numbers, under its own lock.
            unsafe {
                libc::mallopt(libc::M_MMAP_THRESHOLD, FROM_HEAP);
                libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
                libc::mallopt(libc::M_ARENA_MAX, HEAPS);
            }
            let thread = thread::Builder::new().name("ferroket memory".into());
            outcome = thread.spawn(give_back).map(|_| ());
        });
        outcome
    }

    /// glibc itself only ever gives back the end of a heap, not what is free below a block that lives on.
    fn give_back() {
        loop {
            // By the clock of the wall: ranks that have to wait for each other do it at the same time.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
            thread::sleep(Duration::from_millis(MILLISECONDS - now % MILLISECONDS));
            // SAFETY: it has no preconditions, and waits for other threads that are in the allocator.
            unsafe { libc::malloc_trim(KEPT as usize) };
        }
    }
}
