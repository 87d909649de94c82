//! What programs are written in: whole numbers, one behind the other.

use crate::Error;
use crate::error::check;

/// The words that are left, and what they may name.
pub(super) struct Words<'a> {
    rest: &'a [i32],
    /// How many places there are.
    pub(super) places: usize,
    /// How many numbers the tables have.
    pub(super) numbers: usize,
}

impl<'a> Words<'a> {
    pub(super) fn new(words: &'a [i32]) -> Self {
        Self { rest: words, places: 0, numbers: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next number.
    pub(super) fn number(&mut self) -> Result<usize, Error> {
        let (&word, others) = self.rest.split_first().ok_or_else(|| wrong("it ends too early"))?;
        self.rest = others;
        usize::try_from(word).map_err(|_| wrong(&format!("it has the number {word}")))
    }

    /// The next number, which is below a limit.
    pub(super) fn below(&mut self, limit: usize, what: &str) -> Result<usize, Error> {
        let number = self.number()?;
        check(number < limit, || message(&format!("{what} is {number}, but there are {limit}")))?;
        Ok(number)
    }

    /// So many numbers, which are below a limit.
    pub(super) fn all_below(&mut self, count: usize, limit: usize, what: &str) -> Result<Vec<u32>, Error> {
        check(count <= self.rest.len(), || message("it ends too early"))?;
        (0..count).map(|_| Ok(self.below(limit, what)? as u32)).collect()
    }

    /// The first of so many places one behind the other.
    pub(super) fn run(&mut self, count: usize) -> Result<usize, Error> {
        let first = self.number()?;
        let (end, all) = (first.saturating_add(count), self.places);
        check(end <= all, || message(&format!("places go to {end}, but there are {all}")))?;
        Ok(first)
    }

    /// So many places, each of which begins a run of `length`.
    pub(super) fn runs(&mut self, count: usize, length: usize) -> Result<Vec<u32>, Error> {
        check(count <= self.rest.len(), || message("it ends too early"))?;
        (0..count).map(|_| Ok(self.run(length)? as u32)).collect()
    }

    /// So many numbers of the tables.
    pub(super) fn numbers_at(&mut self, count: usize) -> Result<&'a [i32], Error> {
        check(count <= self.rest.len(), || message("it ends too early"))?;
        let (found, others) = self.rest.split_at(count);
        self.rest = others;
        match found.iter().find(|&&number| usize::try_from(number).is_err() || number as usize >= self.numbers) {
            None => Ok(found),
            Some(number) => Err(wrong(&format!("it names number {number} of {}", self.numbers))),
        }
    }

    /// The first of so many numbers of the tables.
    pub(super) fn numbers(&mut self, count: usize) -> Result<usize, Error> {
        let first = self.number()?;
        let (end, all) = (first.saturating_add(count), self.numbers);
        check(end <= all, || message(&format!("its tables go to {end}, but they have {all} numbers")))?;
        Ok(first)
    }
}

fn message(what: &str) -> String {
    format!("the program of a network is wrong: {what}")
}

pub(super) fn wrong(what: &str) -> Error {
    Error::Tables(message(what))
}
