//! Where threads run. The scheduler of Linux may put a thread that is woken on the processor of the one that wakes it,
//! though others are idle, and leave both there for milliseconds: longer than a kernel takes.
//!
//! Miri has no processors: there, as on systems that don't tell, threads stay where they are.

/// The processor that this thread runs on, if the system tells.
pub(crate) fn processor() -> Option<usize> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: it takes nothing, and changes nothing.
        usize::try_from(unsafe { libc::sched_getcpu() }).ok()
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    None
}

/// Lets others have this processor, if they wait for it.
pub(crate) fn give_way() {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: it takes nothing; that others run is always possible.
    unsafe {
        libc::sched_yield();
    }
}

/// Moves this thread to another processor than this one, if it is allowed another.
pub(crate) fn leave(processor: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: a set of processors is plain numbers, for which zeros are the empty set; `processor` is one of those that the
    // system has told, and the system gets the set's own size.
    unsafe {
        let size = size_of::<libc::cpu_set_t>();
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        if processor >= 8 * size || libc::sched_getaffinity(0, size, &raw mut allowed) != 0 {
            return;
        }
        let mut others = allowed;
        libc::CPU_CLR(processor, &mut others);
        // An empty set is refused, and then nothing has changed.
        if libc::sched_setaffinity(0, size, &raw const others) == 0 {
            libc::sched_setaffinity(0, size, &raw const allowed);
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = processor;
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    fn allowed() -> Vec<bool> {
        // SAFETY: as in `leave`; the processors that are asked for are of the set.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            let size = size_of::<libc::cpu_set_t>();
            assert_eq!(libc::sched_getaffinity(0, size, &raw mut set), 0);
            (0..8 * size).map(|processor| libc::CPU_ISSET(processor, &set)).collect()
        }
    }

    #[test]
    fn a_thread_leaves_for_another_processor_and_may_come_back() {
        let before = allowed();
        let others = before.iter().filter(|&&allowed| allowed).count() > 1;
        let left = (0..100).any(|_| {
            let start = processor().expect("Linux tells");
            leave(start);
            processor() != Some(start)
        });
        assert_eq!(left, others);
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_processor_that_there_is_not_is_left_already() {
        let before = allowed();
        leave(usize::MAX);
        assert_eq!(allowed(), before);
    }
}
