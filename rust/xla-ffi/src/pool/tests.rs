use super::*;
use crate::Rows;
use crate::testing::{Failure, TestFrame, Threads, destroyed_errors};
use std::time::Duration;

/// Every way in which a pool may treat tasks.
const ALL: [Threads; 7] = [
    Threads::None,
    Threads::Inline(4),
    Threads::Real(1),
    Threads::Real(2),
    Threads::Real(8),
    Threads::Late(4),
    Threads::Refused(4),
];

/// How often each chunk runs.
fn count_runs(threads: Threads, chunks: usize) -> Vec<usize> {
    let counts: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
    let mut call = TestFrame::new(threads);
    let outcome = call.run(|frame| {
        frame.pool().for_each_chunk(chunks, |chunk| {
            counts[chunk].fetch_add(1, Ordering::Relaxed);
        })
    });
    assert_eq!(outcome, Ok(()));
    let counts = counts.into_iter().map(AtomicUsize::into_inner).collect();
    // Tasks that come late find the counts gone, and must not care.
    call.run_late_tasks();
    counts
}

#[test]
fn each_chunk_runs_once_on_every_pool() {
    for threads in ALL {
        for chunks in [0, 1, 2, 3, 7, 100] {
            assert_eq!(count_runs(threads, chunks), vec![1; chunks], "{threads:?}");
        }
    }
}

#[test]
fn threads_are_those_of_the_pool_or_one() {
    let threads = |threads| {
        let mut found = 0;
        let outcome = TestFrame::new(threads).run(|frame| {
            found = frame.pool().threads();
            Ok(())
        });
        assert_eq!(outcome, Ok(()));
        found
    };
    assert_eq!(threads(Threads::None), 1);
    assert_eq!(threads(Threads::Real(6)), 6);
    assert_eq!(threads(Threads::Inline(0)), 1);
    assert_eq!(threads(Threads::Inline(-3)), 1);
}

#[test]
fn a_runtime_without_these_functions_has_no_pool() {
    let mut call = TestFrame::new(Threads::Real(4));
    // The table ends before the two functions of the pool.
    call.api_mut().struct_size = 136;
    let outcome = call.run(|frame| {
        assert_eq!(frame.pool().threads(), 1);
        frame.pool().for_each_chunk(3, |_| ())
    });
    assert_eq!((outcome, call.scheduled()), (Ok(()), 0));
}

#[test]
fn no_more_tasks_than_threads_or_chunks_can_use() {
    let scheduled = |threads, chunks| {
        let mut call = TestFrame::new(threads);
        assert_eq!(call.run(|frame| frame.pool().for_each_chunk(chunks, |_| ())), Ok(()));
        call.scheduled()
    };
    assert_eq!(scheduled(Threads::Late(4), 100), 3);
    assert_eq!(scheduled(Threads::Late(4), 2), 1);
    assert_eq!(scheduled(Threads::Late(4), 1), 0);
    assert_eq!(scheduled(Threads::Late(1), 100), 0);
    // The first task does it all at once, and no second one is queued.
    assert_eq!(scheduled(Threads::Inline(4), 100), 1);
    assert_eq!(scheduled(Threads::None, 100), 0);
}

#[test]
fn errors_of_the_pool_are_freed_and_the_caller_does_the_work() {
    let before = destroyed_errors();
    assert_eq!(count_runs(Threads::Refused(4), 10), vec![1; 10]);
    assert_eq!(destroyed_errors(), before + 1);
    assert_eq!(count_runs(Threads::None, 10), vec![1; 10]);
    assert_eq!(destroyed_errors(), before + 2);
}

#[test]
fn late_tasks_free_what_they_share_and_nothing_else() {
    let mut call = TestFrame::new(Threads::Late(3));
    {
        let freed_before_the_tasks_run = vec![1_u64; 100];
        let outcome =
            call.run(|frame| frame.pool().for_each_chunk(50, |chunk| assert_eq!(freed_before_the_tasks_run[chunk], 1)));
        assert_eq!(outcome, Ok(()));
    }
    assert_eq!(call.scheduled(), 2);
    assert_eq!(call.run_late_tasks(), 2);
}

#[test]
fn the_caller_waits_for_chunks_that_others_run() {
    let here = thread::current().id();
    let elsewhere = AtomicUsize::new(0);
    let finished = AtomicUsize::new(0);
    // Every chunk waits until a second thread has one, so that the helper is sure to be in the middle of its own
    // when the caller has run out of chunks.
    let outcome = TestFrame::new(Threads::Real(2)).run(|frame| {
        frame.pool().for_each_chunk(2, |_| {
            if thread::current().id() == here {
                while elsewhere.load(Ordering::Acquire) == 0 {
                    thread::yield_now();
                }
            } else {
                elsewhere.store(1, Ordering::Release);
                // Long enough for the caller to go to sleep.
                thread::sleep(Duration::from_millis(20));
            }
            finished.fetch_add(1, Ordering::Relaxed);
        })?;
        assert_eq!(finished.load(Ordering::Relaxed), 2);
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
}

#[test]
fn a_panic_in_a_chunk_is_an_error_and_skips_the_rest() {
    for threads in ALL {
        let after = AtomicUsize::new(0);
        let mut call = TestFrame::new(threads);
        let failure = call
            .run(|frame| {
                frame.pool().for_each_chunk(1000, |chunk| {
                    assert!(chunk != 3, "chunk {chunk} is bad");
                    if chunk > 500 {
                        thread::sleep(Duration::from_millis(1));
                        after.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .unwrap_err();
        assert_eq!(
            failure,
            Failure { code: 13, message: "the handler panicked: chunk 3 is bad".into() },
            "{threads:?}"
        );
        assert!(after.load(Ordering::Relaxed) < 499, "{threads:?}");
        call.run_late_tasks();
    }
}

#[test]
fn what_chunks_write_is_seen_after_the_call() {
    let rounds = if cfg!(miri) { 20 } else { 2000 };
    for round in 0..rounds {
        let mut values = vec![0_usize; 64];
        let outcome = TestFrame::new(Threads::Real(3)).run(|frame| {
            frame.pool().for_each_part(64, 3, Rows::new(&mut values, 1), |range, rows| {
                for (index, value) in range.zip(rows.into_slice()) {
                    *value = round + index;
                }
            })
        });
        assert_eq!(outcome, Ok(()));
        assert!(values.iter().enumerate().all(|(index, &value)| value == round + index));
    }
}

#[test]
fn calls_from_many_threads_do_not_disturb_each_other() {
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(count_runs(Threads::Real(4), 33), vec![1; 33]);
                }
            });
        }
    });
}

#[test]
fn ranges_cover_everything_once_and_keep_the_least_length() {
    let cut = |len, min_len, threads| {
        let ranges = Ranges::new(len, min_len, threads);
        (0..ranges.count).map(|index| ranges.get(index)).map(|range| (range.start, range.end)).collect::<Vec<_>>()
    };
    assert_eq!(cut(0, 4, 2), []);
    assert_eq!(cut(3, 4, 2), [(0, 3)]);
    assert_eq!(cut(8, 4, 2), [(0, 4), (4, 8)]);
    assert_eq!(cut(11, 4, 2), [(0, 6), (6, 11)]);
    assert_eq!(cut(100, 1, 1), [(0, 100)]);
    assert_eq!(cut(100, 0, 2).len(), 8);
    for (len, min_len, threads) in [(17, 5, 3), (1000, 7, 16), (64, 64, 4), (63, 64, 4), (1, 0, 9)] {
        let ranges = cut(len, min_len, threads);
        assert_eq!(
            ranges.iter().flat_map(|&(start, end)| start..end).collect::<Vec<_>>(),
            (0..len).collect::<Vec<_>>()
        );
        assert!(ranges.iter().all(|(start, end)| end - start >= min_len.min(len)));
    }
}

#[test]
fn ranges_and_parts_reach_the_work() {
    for threads in ALL {
        let sum = AtomicUsize::new(0);
        let mut rows = vec![0; 30];
        let mut counts = vec![0; 10];
        let mut call = TestFrame::new(threads);
        let outcome = call.run(|frame| {
            let pool = frame.pool();
            pool.for_each_range(10, 2, |range| {
                sum.fetch_add(range.sum(), Ordering::Relaxed);
            })?;
            let parts = (Rows::new(&mut rows, 3), Rows::new(&mut counts, 1));
            pool.for_each_part(10, 2, parts, |range, (rows, counts)| {
                let (rows, counts) = (rows.into_slice(), counts.into_slice());
                for ((index, row), count) in range.zip(rows.chunks_exact_mut(3)).zip(counts) {
                    row.fill(index);
                    *count += 1;
                }
            })
        });
        assert_eq!(outcome, Ok(()));
        call.run_late_tasks();
        assert_eq!(sum.into_inner(), 45);
        assert_eq!(rows, (0..30).map(|i| i / 3).collect::<Vec<_>>());
        assert_eq!(counts, [1; 10]);
    }
}
