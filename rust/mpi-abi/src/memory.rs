//! Memory of results, and how the operating system maps it.

use std::ffi::c_void;

/// Smaller results come from memory that the allocator has had before; the call would cost more than it saves.
#[cfg(target_os = "linux")]
const WORTHWHILE: usize = 4 << 20;

/// Asks for huge pages behind a large result that is about to be written in full. Then it costs fewer page faults, and
/// the kernel has fewer pages to look up when it copies between processes. It is a hint, which may do nothing.
///
/// # Safety
/// The `bytes` from `start` on are one buffer.
pub(crate) unsafe fn advise_huge_pages(start: *mut c_void, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        if bytes < WORTHWHILE {
            return;
        }
        // SAFETY: `sysconf` only reads.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let start = start.cast::<u8>();
        let skip = start.align_offset(page);
        if skip < bytes {
            // SAFETY: the range lies within the buffer, and the advice changes no byte of it. An error means that there
            // are no huge pages.
            unsafe { libc::madvise(start.add(skip).cast(), bytes - skip, libc::MADV_HUGEPAGE) };
        }
    }
}
