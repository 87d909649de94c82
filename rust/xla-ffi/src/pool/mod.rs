//! Work on XLA's own thread pool.
//!
//! A pool of our own would fight with XLA's for the cores. But a task queued on XLA's pool may start late, or only
//! after the handler has returned, or on the handler's own thread: the handler may itself run on the last free thread
//! of the pool. So nobody here waits for a task to *start*. Work is cut into chunks, and a shared counter says which is
//! the next. The caller and the tasks claim chunks until none is left, and then the caller waits only for chunks that
//! a running task has claimed. A task that starts after that finds no chunk and goes away.

use crate::placement;
use crate::{Error, Parts, raw};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};

/// How many chunks a thread gets on average: more of them even out differences in speed.
const CHUNKS_PER_THREAD: usize = 4;

/// How often the caller looks for the last chunks before it goes to sleep; some ten microseconds.
const SPINS: usize = 1000;

/// XLA's thread pool, as the running call may use it. Without a pool, all work is done by the caller.
#[derive(Clone, Copy)]
pub struct Pool<'a> {
    api: *const raw::Api,
    ctx: *mut raw::ExecutionContext,
    _call: PhantomData<&'a ()>,
}

impl Pool<'_> {
    /// # Safety
    /// `api` is null or points to the table of a runtime, and `ctx` is the context of a call that lasts for the
    /// lifetime of the pool.
    pub(crate) unsafe fn new(api: *const raw::Api, ctx: *mut raw::ExecutionContext) -> Self {
        Self { api, ctx, _call: PhantomData }
    }

    /// How many threads the pool has; 1 if there is no pool.
    #[must_use]
    pub fn threads(&self) -> usize {
        let mut threads = 1;
        let mut args = raw::ThreadPoolNumThreadsArgs {
            struct_size: size_of::<raw::ThreadPoolNumThreadsArgs>(),
            extension_start: std::ptr::null_mut(),
            ctx: self.ctx,
            num_threads: &raw mut threads,
        };
        // SAFETY: table and context are those of the running call, see `new`.
        let done = unsafe {
            raw::Api::thread_pool_num_threads(self.api).is_some_and(|count| self.is_success(count(&raw mut args)))
        };
        if done { usize::try_from(threads).map_or(1, |threads| threads.max(1)) } else { 1 }
    }

    /// Calls `work(chunk)` exactly once for each chunk in `0..chunks`, on the calling thread and on those of the pool,
    /// in any order. After a panic in one chunk the remaining ones are skipped, and the panic is the error.
    pub fn for_each_chunk(&self, chunks: usize, work: impl Fn(usize) + Sync) -> Result<(), Error> {
        self.run(chunks, &work)
    }

    /// What [`Pool::for_each_chunk`] does, compiled once for all closures.
    fn run(&self, chunks: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), Error> {
        let helpers = if chunks > 1 { self.threads().min(chunks) - 1 } else { 0 };
        // SAFETY: `finish` is called below, whatever happens: nothing in between can panic.
        let job = Arc::new(unsafe { Job::new(chunks, &work) });
        for _ in 0..helpers {
            // On a pool that runs tasks at once, the first one has done everything.
            if job.is_all_claimed() || !self.schedule(Arc::clone(&job)) {
                break;
            }
        }
        if helpers > 0 {
            // A helper that was put on this processor can leave it only if it runs.
            placement::give_way();
        }
        job.finish()
    }

    /// Cuts `0..len` into ranges of at least `min_len` (one range, if `len` is less) and calls `work(range)` for each,
    /// as [`Pool::for_each_chunk`] does.
    pub fn for_each_range(&self, len: usize, min_len: usize, work: impl Fn(Range<usize>) + Sync) -> Result<(), Error> {
        let ranges = Ranges::new(len, min_len, self.threads());
        self.for_each_chunk(ranges.count, |chunk| work(ranges.get(chunk)))
    }

    /// As [`Pool::for_each_range`], and cuts `parts`, such as the rows of a result, at the same places: `work` gets
    /// each range with the rows that belong to it, to write to.
    ///
    /// ```
    /// # use ferroket_xla_ffi::{Error, Frame, Rows};
    /// fn norms(frame: &Frame) -> Result<(), Error> {
    ///     let x = frame.arguments().typed::<f64>("x")?;
    ///     x.expect_rank(2)?;
    ///     let &[rows, columns] = x.dims() else { unreachable!("the rank is 2") };
    ///     let mut norms = frame.results().typed::<f64>("norms")?;
    ///     norms.expect_dims(&[rows])?;
    ///     frame.pool().for_each_part(rows, 64, Rows::new(norms.as_mut_slice(), 1), |range, norms| {
    ///         for (row, norm) in range.zip(norms.into_slice()) {
    ///             *norm = x.as_slice()[row * columns..][..columns].iter().map(|x| x * x).sum();
    ///         }
    ///     })
    /// }
    /// ```
    pub fn for_each_part<P: Parts>(
        &self,
        len: usize,
        min_len: usize,
        parts: P,
        work: impl Fn(Range<usize>, P) + Sync,
    ) -> Result<(), Error> {
        self.deal(len, min_len, parts, &work)
    }

    /// What [`Pool::for_each_part`] does, compiled once for all closures on such parts.
    fn deal<P: Parts>(
        &self,
        len: usize,
        min_len: usize,
        parts: P,
        work: &(dyn Fn(Range<usize>, P) + Sync),
    ) -> Result<(), Error> {
        let ranges = Ranges::new(len, min_len, self.threads());
        let mut cells = Vec::with_capacity(ranges.count);
        let mut rest = parts;
        for chunk in 0..ranges.count {
            let (first, others) = rest.split_at(ranges.get(chunk).len());
            // Each lock is taken once, by the one who claimed the chunk: it is how a shared closure hands out what
            // can't be shared.
            cells.push(Mutex::new(Some(first)));
            rest = others;
        }
        self.run(ranges.count, &|chunk| {
            let part = cells[chunk].lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(part) = part {
                work(ranges.get(chunk), part);
            }
        })
    }

    /// Queues a task that helps with `job`; false if the runtime won't have it.
    fn schedule(&self, job: Arc<Job>) -> bool {
        // SAFETY: the table is that of the running call, see `new`.
        let Some(schedule) = (unsafe { raw::Api::thread_pool_schedule(self.api) }) else { return false };
        let data = Arc::into_raw(job);
        let mut args = raw::ThreadPoolScheduleArgs {
            struct_size: size_of::<raw::ThreadPoolScheduleArgs>(),
            extension_start: std::ptr::null_mut(),
            ctx: self.ctx,
            task: Some(run_task),
            data: data.cast_mut().cast(),
        };
        // SAFETY: the context is that of the running call. The data belongs to the task, wherever and whenever it runs.
        let scheduled = unsafe { self.is_success(schedule(&raw mut args)) };
        if !scheduled {
            // SAFETY: the runtime refused the task and won't run it, so the data is still ours.
            drop(unsafe { Arc::from_raw(data) });
        }
        scheduled
    }

    /// Whether a function of the runtime succeeded; if it failed, its error is freed.
    ///
    /// # Safety
    /// `error` is null or an error of the runtime, and belongs to us.
    unsafe fn is_success(&self, error: *mut raw::Error) -> bool {
        if error.is_null() {
            return true;
        }
        let mut args = raw::ErrorDestroyArgs {
            struct_size: size_of::<raw::ErrorDestroyArgs>(),
            extension_start: std::ptr::null_mut(),
            error,
        };
        // SAFETY: the table is that of the running call, see `new`; the caller vouches for the error.
        unsafe {
            if let Some(destroy) = raw::Api::error_destroy(self.api) {
                destroy(&raw mut args);
            }
        }
        false
    }
}

/// What the pool runs: helps with one job.
///
/// # Safety
/// `data` is an `Arc<Job>` given up by [`Pool::schedule`], and is handed over once.
unsafe extern "C" fn run_task(data: *mut c_void) {
    // SAFETY: the caller vouches for it.
    let job = unsafe { Arc::from_raw(data.cast_const().cast::<Job>()) };
    if let Some(processor) = job.processor
        && placement::processor() == Some(processor)
    {
        placement::leave(processor);
    }
    job.work_on_chunks();
}

/// The state that the caller shares with its tasks. It lives until the last task has gone; the closure doesn't.
struct Job {
    /// How many chunks there are.
    chunks: usize,
    /// The next chunk that nobody has claimed.
    next: AtomicUsize,
    /// How many chunks are done.
    done: AtomicUsize,
    /// Whether a chunk panicked.
    failed: AtomicBool,
    /// What it said.
    failure: Mutex<Option<Error>>,
    /// Who waits for the last chunk.
    caller: Thread,
    /// Where it runs.
    processor: Option<usize>,
    /// The closure, of a type that only `call` knows, on the stack of the caller.
    work: *const (),
    /// Calls the closure.
    call: unsafe fn(work: *const (), chunk: usize),
}

// SAFETY: all fields but `work` are made to be shared. `work` points to a closure that is `Sync`, so that any thread
// may call it; when it is alive is the business of `Job::work_on_chunks`.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    /// # Safety
    /// The caller calls [`Job::finish`] before `work` goes out of scope.
    unsafe fn new<F: Fn(usize) + Sync>(chunks: usize, work: &F) -> Self {
        /// # Safety
        /// `work` points to a live `F`.
        unsafe fn call<F: Fn(usize)>(work: *const (), chunk: usize) {
            // SAFETY: the caller vouches for it.
            unsafe { (*work.cast::<F>())(chunk) }
        }
        Self {
            chunks,
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            caller: thread::current(),
            processor: placement::processor(),
            work: std::ptr::from_ref(work).cast(),
            call: call::<F>,
        }
    }

    fn is_all_claimed(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.chunks
    }

    /// Claims chunks and works on them, until all are claimed.
    fn work_on_chunks(&self) {
        loop {
            // Relaxed is enough: the counter only tells the claims apart. What a chunk reads was there before the
            // task was queued, and what it writes is published by `done`.
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.chunks {
                return;
            }
            if !self.failed.load(Ordering::Relaxed) {
                // SAFETY: this chunk is claimed and not done, so `finish` hasn't returned, and the closure is alive.
                let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (self.call)(self.work, chunk) }));
                if let Err(payload) = outcome {
                    self.failed.store(true, Ordering::Relaxed);
                    let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                    failure.get_or_insert_with(|| Error::from_panic(payload));
                }
            }
            // Release: whoever sees this chunk as done sees what it wrote. From here on the closure may be gone.
            if self.done.fetch_add(1, Ordering::Release) + 1 == self.chunks {
                self.caller.unpark();
            }
        }
    }

    /// Helps until all chunks are claimed, and waits for those that others have claimed. After that, nobody touches
    /// the closure any more: a task can get to it only by claiming a chunk.
    fn finish(&self) -> Result<(), Error> {
        self.work_on_chunks();
        let mut spins = 0;
        while self.done.load(Ordering::Acquire) < self.chunks {
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                // Returns at once if the last chunk was done in between, and now and then for no reason.
                thread::park();
            }
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}

/// `0..len` cut into ranges whose lengths differ by one at most.
struct Ranges {
    len: usize,
    count: usize,
}

impl Ranges {
    fn new(len: usize, min_len: usize, threads: usize) -> Self {
        let most = if threads > 1 { threads.saturating_mul(CHUNKS_PER_THREAD) } else { 1 };
        let count = (len / min_len.max(1)).clamp(len.min(1), most);
        Self { len, count }
    }

    fn get(&self, index: usize) -> Range<usize> {
        let (quotient, remainder) = (self.len / self.count, self.len % self.count);
        let start = |index: usize| index * quotient + index.min(remainder);
        start(index)..start(index + 1)
    }
}

#[cfg(test)]
mod tests;
