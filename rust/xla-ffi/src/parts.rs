//! Results cut into parts that several threads write to at once.

/// What can be cut at a row, each side then belonging to another thread: [`Rows`], [`RaggedRows`], and tuples of such.
pub trait Parts: Sized + Send {
    /// The first `rows` rows, and the rest.
    fn split_at(self, rows: usize) -> (Self, Self);
}

/// A mutable slice as rows of equal width.
#[derive(Debug)]
pub struct Rows<'a, T> {
    data: &'a mut [T],
    width: usize,
}

impl<'a, T> Rows<'a, T> {
    /// The slice as rows of `width` elements.
    #[must_use]
    pub fn new(data: &'a mut [T], width: usize) -> Self {
        Self { data, width }
    }

    /// The elements, row by row.
    #[must_use]
    pub fn into_slice(self) -> &'a mut [T] {
        self.data
    }
}

impl<T: Send> Parts for Rows<'_, T> {
    fn split_at(self, rows: usize) -> (Self, Self) {
        let (first, rest) = self.data.split_at_mut(rows * self.width);
        (Self { data: first, ..self }, Self { data: rest, ..self })
    }
}

/// A mutable slice as rows that are not equally long.
#[derive(Debug)]
pub struct RaggedRows<'a, T> {
    data: &'a mut [T],
    ends: &'a [usize],
    width: usize,
}

impl<'a, T> RaggedRows<'a, T> {
    /// The slice as rows: row r are elements `ends[r]..ends[r + 1]`, each of `width` values, counted from `ends[0]`.
    #[must_use]
    pub fn new(data: &'a mut [T], ends: &'a [usize], width: usize) -> Self {
        Self { data, ends, width }
    }

    /// The values, row by row.
    #[must_use]
    pub fn into_slice(self) -> &'a mut [T] {
        self.data
    }
}

impl<T: Send> Parts for RaggedRows<'_, T> {
    fn split_at(self, rows: usize) -> (Self, Self) {
        let (first, rest) = self.data.split_at_mut((self.ends[rows] - self.ends[0]) * self.width);
        (Self { data: first, ends: &self.ends[..=rows], ..self }, Self { data: rest, ends: &self.ends[rows..], ..self })
    }
}

/// Each of several.
impl<P: Parts> Parts for Vec<P> {
    fn split_at(self, rows: usize) -> (Self, Self) {
        self.into_iter().map(|part| part.split_at(rows)).unzip()
    }
}

macro_rules! tuples {
    ($(($($part:ident),+))+) => {
        $(
            impl<$($part: Parts),+> Parts for ($($part,)+) {
                #[allow(non_snake_case)] // the macro has one name for the type and the variable
                fn split_at(self, rows: usize) -> (Self, Self) {
                    let ($($part,)+) = self;
                    $(let $part = $part.split_at(rows);)+
                    (($($part.0,)+), ($($part.1,)+))
                }
            }
        )+
    };
}

tuples! { (A, B) (A, B, C) (A, B, C, D) }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_at_their_width() {
        let mut data = [0, 1, 2, 3, 4, 5];
        let (first, rest) = Rows::new(&mut data, 2).split_at(1);
        assert_eq!((first.into_slice(), rest.into_slice()), (&mut [0, 1][..], &mut [2, 3, 4, 5][..]));
    }

    #[test]
    fn ragged_rows_are_cut_where_they_end() {
        let mut data = [0, 1, 2, 3, 4, 5];
        let (first, rest) = RaggedRows::new(&mut data, &[7, 9, 9, 10], 2).split_at(1);
        assert_eq!(first.into_slice(), [0, 1, 2, 3]);
        let (empty, last) = rest.split_at(1);
        assert_eq!((empty.into_slice(), last.into_slice()), (&mut [][..], &mut [4, 5][..]));
    }

    #[test]
    fn all_of_a_tuple_is_cut_at_the_same_row() {
        let (mut a, mut b) = ([0, 1, 2], [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        let ((a, b), (_, rest)) = (Rows::new(&mut a, 1), Rows::new(&mut b, 2)).split_at(2);
        assert_eq!(a.into_slice(), [0, 1]);
        assert_eq!(b.into_slice(), [0.0, 0.5, 1.0, 1.5]);
        assert_eq!(rest.into_slice(), [2.0, 2.5]);
    }

    #[test]
    #[should_panic(expected = "mid > len")]
    fn too_short_a_slice_is_a_panic() {
        let _ = Rows::new(&mut [0; 5], 2).split_at(3);
    }
}
