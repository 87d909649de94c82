//! Sets to draw from.

use rand::{Rng, RngExt};
use std::hint::select_unpredictable;

/// Some of the numbers below a bound, of which each can be had by its place.
#[derive(Debug, Clone, Default)]
pub(super) struct Members {
    pub(super) len: u32,
    /// Those that belong, and then others.
    list: Vec<u32>,
    /// Where in the list each number is that belongs.
    place: Vec<u32>,
}

impl Members {
    const ABSENT: u32 = u32::MAX;

    /// Makes it those that `belongs` says.
    pub(super) fn set(&mut self, bound: usize, belongs: impl Fn(usize) -> bool) {
        self.len = 0;
        self.list.clear();
        self.list.resize(bound, 0);
        self.place.clear();
        self.place.resize(bound, Self::ABSENT);
        for number in (0..bound).filter(|&number| belongs(number)) {
            self.toggle(number as u32);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.list[..self.len as usize].iter().copied()
    }

    #[inline(always)]
    pub(super) fn contains(&self, number: u32) -> bool {
        self.place[number as usize] != Self::ABSENT
    }

    /// Adds a number that isn't there, or takes it away: the last one of the list takes its place. Both are the same
    /// instructions, since a branch would be guessed wrong half of the time.
    #[inline(always)]
    pub(super) fn toggle(&mut self, number: u32) {
        let present = self.contains(number);
        let len = self.len - u32::from(present);
        let place = select_unpredictable(present, self.place[number as usize], len);
        let last = self.list[len as usize];
        let moved = select_unpredictable(present, last, number);
        self.list[place as usize] = moved;
        self.place[moved as usize] = place;
        self.place[number as usize] = select_unpredictable(present, Self::ABSENT, place);
        self.len = len + u32::from(!present);
    }

    /// One of them, all being as likely; `None` if there is none.
    #[inline(always)]
    pub(super) fn any(&self, rng: &mut impl Rng) -> Option<u32> {
        (self.len > 0).then(|| self.list[rng.random_range(0..self.len) as usize])
    }
}
