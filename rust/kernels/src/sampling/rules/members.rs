//! Sets to draw from.

use rand::{Rng, RngExt};

/// Some of the numbers below a bound. Which one is drawn depends on them and on the random numbers alone, not on the
/// order in which they came.
#[derive(Debug, Clone, Default)]
pub(super) struct Members {
    pub(super) len: u32,
    /// A bit for each number.
    words: Vec<u32>,
}

impl Members {
    /// How many words keep the numbers below a bound.
    pub(super) fn words(bound: usize) -> usize {
        bound.div_ceil(u32::BITS as usize)
    }

    /// Makes it those that `belongs` says.
    pub(super) fn set(&mut self, bound: usize, mut belongs: impl FnMut(usize) -> bool) {
        self.words.clear();
        self.words.resize(Self::words(bound), 0);
        self.len = 0;
        for number in 0..bound {
            if belongs(number) {
                self.toggle(number as u32);
            }
        }
    }

    /// The words that keep it.
    pub(super) fn kept(&self) -> &[u32] {
        &self.words
    }

    /// Makes it what was kept.
    pub(super) fn restore(&mut self, words: &[u32]) {
        self.words.clear();
        self.words.extend_from_slice(words);
        self.len = words.iter().map(|word| word.count_ones()).sum();
    }

    /// The numbers, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let words = self.words.iter().enumerate();
        words.flat_map(|(place, &word)| {
            let rest = std::iter::successors(Some(word), |&rest| Some(rest & rest.wrapping_sub(1)));
            let bits = rest.take_while(|&rest| rest != 0);
            bits.map(move |rest| place as u32 * u32::BITS + rest.trailing_zeros())
        })
    }

    #[inline(always)]
    pub(super) fn contains(&self, number: u32) -> bool {
        self.words[(number / u32::BITS) as usize] >> (number % u32::BITS) & 1 == 1
    }

    /// Adds a number that isn't there, or takes it away.
    #[inline(always)]
    pub(super) fn toggle(&mut self, number: u32) {
        let word = &mut self.words[(number / u32::BITS) as usize];
        *word ^= 1 << (number % u32::BITS);
        let is_there = *word >> (number % u32::BITS) & 1;
        self.len = self.len + 2 * is_there - 1;
    }

    /// One of them, all being as likely; `None` if there is none.
    #[inline(always)]
    pub(super) fn any(&self, rng: &mut impl Rng) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mut rest = rng.random_range(0..self.len);
        for (place, &word) in self.words.iter().enumerate() {
            let ones = word.count_ones();
            if rest < ones {
                return Some(place as u32 * u32::BITS + nth_one(word, rest));
            }
            rest -= ones;
        }
        None
    }
}

/// Where a word has its bit number `n` of those that are set.
#[inline(always)]
fn nth_one(mut word: u32, mut n: u32) -> u32 {
    let mut place = 0;
    for width in [16, 8, 4, 2, 1] {
        let below = (word & ((1 << width) - 1)).count_ones();
        let is_above = n >= below;
        n -= if is_above { below } else { 0 };
        let shift = if is_above { width } else { 0 };
        word >>= shift;
        place += shift;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_of_numbers(bound in 1_usize..=100, toggled in prop::collection::vec(0_usize..100, 0..60), seed: u64) {
            let mut expected = BTreeSet::new();
            let mut members = Members::default();
            members.set(bound, |_| false);
            for number in toggled.into_iter().map(|number| (number % bound) as u32) {
                if !expected.remove(&number) {
                    expected.insert(number);
                }
                members.toggle(number);
            }
            prop_assert_eq!(members.len as usize, expected.len());
            prop_assert_eq!(members.iter().collect::<Vec<_>>(), expected.iter().copied().collect::<Vec<_>>());
            let mut again = Members::default();
            again.restore(members.kept());
            let rngs = &mut [StdRng::seed_from_u64(seed), StdRng::seed_from_u64(seed)];
            for _ in 0..10 {
                let [drawn, drawn_again] = [members.any(&mut rngs[0]), again.any(&mut rngs[1])];
                prop_assert_eq!(drawn, drawn_again);
                prop_assert_eq!(drawn.is_some(), !expected.is_empty());
                prop_assert!(drawn.is_none_or(|number| expected.contains(&number) && members.contains(number)));
            }
        }

        #[test]
        fn ones_of_a_word(word: u32) {
            let ones = (0..u32::BITS).filter(|bit| word >> bit & 1 == 1);
            for (n, bit) in ones.enumerate() {
                prop_assert_eq!(nth_one(word, n as u32), bit);
            }
        }
    }
}
