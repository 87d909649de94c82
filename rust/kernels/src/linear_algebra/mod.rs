//! Gram matrices of log-derivatives and the linear systems of updates, which several threads share.

mod cholesky;
mod gram;
mod ntk;
mod panels;
mod shared;
mod substitution;
mod sums;
mod terms;

pub use cholesky::solve_positive;
pub use gram::gram;
pub use ntk::{Rows, solve_gram};
pub use shared::{
    BLOCK, Share, factor, put_solution, put_solution_of_gram, rows_of_panel, solve_back, start_gram, start_rows, update,
};
pub use terms::{Shape, Sides, Term};

use std::sync::{Mutex, PoisonError};

/// Who calls work for `0..n`, once for each number, in any order and on as many threads as there are; or why it didn't.
pub trait Deal {
    /// Why.
    type Error;

    /// Calls `work` for each.
    fn deal(&self, n: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), Self::Error>;
}

/// Calls `work` once with each of some things, which no two calls have.
fn each<I: Send, D: Deal>(
    deal: &D,
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) + Sync,
) -> Result<(), D::Error> {
    let cells: Vec<_> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    deal.deal(cells.len(), &|number| {
        let item = cells[number].lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(item) = item {
            work(item);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::Deal;
    use std::convert::Infallible;

    /// In this order on one thread, or each on a thread of its own.
    pub(super) enum Order {
        Forward,
        Backward,
        AtOnce,
    }

    impl Deal for Order {
        type Error = Infallible;

        fn deal(&self, n: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), Infallible> {
            match self {
                Self::Forward => (0..n).for_each(work),
                Self::Backward => (0..n).rev().for_each(work),
                Self::AtOnce => std::thread::scope(|scope| {
                    for number in 0..n {
                        scope.spawn(move || work(number));
                    }
                }),
            }
            Ok(())
        }
    }
}
