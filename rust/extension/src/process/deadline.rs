//! A deadline for a call that waits for other ranks inside MPI, where neither Python's signals nor its threads
//! get a turn.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ferroket_mpi_abi::ending;
use ferroket_mpi_abi::siblings::Siblings;
use pyo3::prelude::*;

/// How often it is looked whether the other ranks of the node are there.
const POLL: Duration = Duration::from_secs(1);
/// How long the rank that says that one has ended waits before it ends: the others have to find the same, and not that this
/// one has ended, too.
const BEFORE_ITS_END: Duration = Duration::from_secs(3);
/// How long it is given to end the others.
const OTHERS_TURN: Duration = Duration::from_secs(6);

/// Context manager: if its block takes longer than `seconds`, writes `message` to stderr and ends the process with
/// exit code 1, at which the launcher ends the others. 0 seconds is no deadline. If another rank of the node ends before,
/// the job ends at once, with its number.
#[pyclass(module = "ferroket._lib")]
pub(crate) struct Deadline {
    rank: usize,
    seconds: f64,
    message: String,
    /// Dropped when the block is left, which wakes the watching thread.
    inside: Option<Sender<()>>,
}

#[pymethods]
impl Deadline {
    #[new]
    fn new(rank: usize, seconds: f64, message: String) -> Self {
        Self { rank, seconds, message, inside: None }
    }

    fn __enter__(&mut self) {
        // A duration that isn't one (0, negative, NaN, endless) is no deadline.
        let limit = Duration::try_from_secs_f64(self.seconds).ok().filter(|limit| !limit.is_zero());
        let (inside, left) = channel::<()>();
        let (rank, message) = (self.rank, self.message.clone());
        std::thread::spawn(move || wait(rank, limit, &message, &left));
        self.inside = Some(inside);
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&mut self, _exception: &Bound<'_, PyAny>) {
        self.inside = None;
    }
}

/// Returns when the block is left, which disconnects `left`.
fn wait(rank: usize, limit: Option<Duration>, message: &str, left: &Receiver<()>) {
    let begin = Instant::now();
    let is_inside = |time| left.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
    let mut before: Option<Siblings> = None;
    while is_inside(limit.map_or(POLL, |limit| POLL.min(limit.saturating_sub(begin.elapsed())))) {
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            ending::tell(message);
            ending::exit(1);
        }
        let now = Siblings::find();
        if let Some(siblings) = now.as_ref().filter(|now| before.as_ref() == Some(now))
            && let Some(ended) = siblings.ended()
        {
            if siblings.is_first(rank) {
                ending::tell(&format!(
                    "ferroket: {ended} ended before the ranks had met in fk.initialize(): by an error that is shown \
                     above, killed, or at the end of a script that doesn't call it. So the whole job ends"
                ));
                std::thread::sleep(BEFORE_ITS_END);
            } else if !is_inside(OTHERS_TURN) {
                return;
            }
            ending::exit(1);
        }
        before = now;
    }
}
