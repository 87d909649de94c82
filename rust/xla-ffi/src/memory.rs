//! Memory of results, and how the operating system maps it.

use crate::{BufferMut, Element};

/// Smaller buffers come from memory that the allocator has had before; the call would cost more than it saves.
#[cfg(all(target_os = "linux", not(miri)))]
const WORTHWHILE: usize = 4 << 20;

impl<T: Element> BufferMut<'_, T> {
    /// Asks for huge pages behind a large result that is about to be written in full.
    ///
    /// The runtime allocates large results anew in each call, so that writing them is mostly a matter of page faults:
    /// one in 4 KiB, or with huge pages one in 2 MiB. It is a hint: where the system has no huge pages, it does nothing.
    pub fn advise_huge_pages(&mut self) {
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            let bytes = size_of_val(self.as_mut_slice());
            // SAFETY: `sysconf` only reads.
            let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
            let start = self.as_mut_slice().as_mut_ptr().cast::<u8>();
            let skip = start.align_offset(page);
            if bytes >= WORTHWHILE.max(skip) {
                // SAFETY: the range lies within the buffer, and the advice changes no byte of it. An error means that
                // there are no huge pages.
                unsafe { libc::madvise(start.add(skip).cast(), bytes - skip, libc::MADV_HUGEPAGE) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestFrame, Threads};

    #[test]
    fn advice_leaves_the_elements_alone() {
        for len in [0, 10, 1 << 20] {
            let mut call = TestFrame::new(Threads::None).result::<f64>(&[len]);
            let outcome = call.run(|frame| {
                let mut result = frame.result(0, "result")?.typed::<f64>()?;
                result.as_mut_slice().fill(1.5);
                result.advise_huge_pages();
                Ok(())
            });
            assert_eq!(outcome, Ok(()));
            assert_eq!(call.read::<f64>(0), vec![1.5; len]);
        }
    }
}
