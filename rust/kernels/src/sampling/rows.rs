//! Slices as rows.

/// Rows of equal lengths, also of none, one after the other.
#[derive(Debug)]
pub struct EqualRows<'a, T> {
    rest: &'a mut [T],
    width: usize,
}

impl<'a, T> EqualRows<'a, T> {
    /// The slice as rows of `width` elements.
    #[must_use]
    pub fn new(slice: &'a mut [T], width: usize) -> Self {
        Self { rest: slice, width }
    }

    /// The next row; an empty one behind the last.
    #[inline(always)]
    pub fn take(&mut self) -> &'a mut [T] {
        self.rest.split_off_mut(..self.width).unwrap_or_default()
    }
}
