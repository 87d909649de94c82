//! The random numbers of a chain.

use crate::sampling::Key;
use chacha20::ChaCha8Rng;
use rand::rand_core::Infallible;
use rand::{Rng, SeedableRng, TryRng};

/// `ChaCha8` makes so many words at once, fastest.
const WINDOW: usize = 64;

/// How many words keep a [`Stream`].
pub const STREAM_WORDS: usize = 2 + WINDOW;

/// The random numbers of a chain, from any place on: the same words as those of [`random_numbers`]. What was made lately
/// is kept, so that chains can be left and resumed at little cost.
pub(super) struct Stream<'a> {
    key: &'a Key,
    chain: u64,
    /// How many words are drawn.
    pub(super) drawn: u64,
    /// One more than the number of the window that is kept, as two words, and its words. Zeros if there is none.
    kept: &'a mut [u32; STREAM_WORDS],
}

impl<'a> Stream<'a> {
    pub(super) fn new(key: &'a Key, chain: u64, drawn: u64, kept: &'a mut [u32; STREAM_WORDS]) -> Self {
        Self { key, chain, drawn, kept }
    }

    #[cold]
    fn make(&mut self, window: u64) {
        let mut rng = random_numbers(self.key, self.chain);
        rng.set_word_pos(u128::from(window) * WINDOW as u128);
        let [low, high, words @ ..] = &mut *self.kept;
        (*low, *high) = ((window + 1) as u32, ((window + 1) >> 32) as u32);
        words.fill_with(|| rng.next_u32());
    }
}

impl TryRng for Stream<'_> {
    type Error = Infallible;

    #[inline(always)]
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let (window, place) = (self.drawn / WINDOW as u64, self.drawn as usize % WINDOW);
        if (window + 1) as u32 != self.kept[0] || ((window + 1) >> 32) as u32 != self.kept[1] {
            self.make(window);
        }
        self.drawn += 1;
        Ok(self.kept[2 + place])
    }

    #[inline(always)]
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let low = u64::from(self.next_u32());
        Ok(low | u64::from(self.next_u32()) << 32)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for bytes in bytes.chunks_mut(size_of::<u32>()) {
            bytes.copy_from_slice(&self.next_u32().to_le_bytes()[..bytes.len()]);
        }
        Ok(())
    }
}

/// The random numbers of a chain, from the first one on.
pub(super) fn random_numbers(key: &Key, chain: u64) -> ChaCha8Rng {
    let mut seed = [0; size_of::<Key>()];
    for (bytes, word) in seed.chunks_exact_mut(4).zip(key) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let mut rng = ChaCha8Rng::from_seed(seed);
    rng.set_stream(chain);
    rng
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::Rng;

    proptest! {
        #[test]
        fn a_stream_is_that_of_the_generator(key: u32, chain: u64, draws in prop::collection::vec(0_u8..4, 1..200)) {
            let key = [key; 8];
            let mut expected = random_numbers(&key, chain);
            let mut kept = [0; STREAM_WORDS];
            let (mut drawn, mut before) = (0, 0);
            for draw in draws {
                let mut stream = Stream::new(&key, chain, drawn, &mut kept);
                match draw {
                    0 => prop_assert_eq!(stream.next_u32(), expected.next_u32()),
                    1 => prop_assert_eq!(stream.next_u64(), expected.next_u64()),
                    2 => {
                        let [mut ours, mut theirs] = [[0; 12]; 2];
                        stream.fill_bytes(&mut ours);
                        expected.fill_bytes(&mut theirs);
                        prop_assert_eq!(ours, theirs);
                    }
                    _ => {
                        // Back to where it was.
                        stream.drawn = before;
                        expected.set_word_pos(before.into());
                    }
                }
                before = drawn;
                drawn = stream.drawn;
            }
        }
    }
}
