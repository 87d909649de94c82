//! First layers of networks, which are sums over the sites: they are updated where a few sites change.

use crate::Error;
use crate::error::check;
use crate::numbers::Real;
use crate::sampling::rows::EqualRows;
use crate::sampling::rules::Change;
use crate::sites::LocalIndex;

/// What a network's first layer makes of a configuration: a constant vector, and one for each site and its local state.
#[derive(Debug, Clone, Copy)]
pub struct FirstLayer<'a, T> {
    constant: &'a [T],
    /// One row for each site and local state.
    table: &'a [T],
    states: usize,
}

impl<'a, T: Real> FirstLayer<'a, T> {
    /// Of so many sites with at most so many local states. Without a first layer all vectors are empty.
    pub fn new(sites: usize, states: usize, constant: &'a [T], table: &'a [T]) -> Result<Self, Error> {
        check(table.len() == sites * states * constant.len(), || {
            format!(
                "the table of the first layer has {} numbers, but {sites} sites with {states} local states and {} sums \
                 take {}",
                table.len(),
                constant.len(),
                sites * states * constant.len()
            )
        })?;
        Ok(Self { constant, table, states })
    }

    /// The vector of a local state of a site.
    #[inline(always)]
    fn row(&self, site: usize, state: LocalIndex) -> &'a [T] {
        let width = self.constant.len();
        &self.table[(site * self.states + usize::from(state)) * width..][..width]
    }

    /// Sums up all sites of a configuration.
    #[inline(always)]
    pub(super) fn evaluate(&self, indices: &[LocalIndex], sums: &mut [T]) {
        sums.copy_from_slice(self.constant);
        for (site, &index) in indices.iter().enumerate() {
            for (sum, &part) in sums.iter_mut().zip(self.row(site, index)) {
                *sum = *sum + part;
            }
        }
    }

    /// Changes the sums of a configuration, which is as it was before.
    #[inline(always)]
    pub(super) fn move_by(&self, indices: &[LocalIndex], change: &Change, sums: &mut [T]) {
        for (&site, &to) in change.sites.iter().zip(&change.to) {
            let site = site as usize;
            let (from, to) = (self.row(site, indices[site]), self.row(site, to));
            for ((sum, &from), &to) in sums.iter_mut().zip(from).zip(to) {
                *sum = *sum + (to - from);
            }
        }
    }

    /// As [`FirstLayer::move_by`], to another place.
    #[inline(always)]
    pub(super) fn change(&self, indices: &[LocalIndex], change: &Change, sums: &[T], changed: &mut [T]) {
        changed.copy_from_slice(sums);
        self.move_by(indices, change, changed);
    }

    /// The sums of one configuration after the other.
    #[inline(always)]
    pub(super) fn rows<'s>(&self, sums: &'s mut [T]) -> EqualRows<'s, T> {
        EqualRows::new(sums, self.constant.len())
    }
}
