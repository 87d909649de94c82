//! Where the active elements of samples go: into rows, all of them or those that are not zero, or into counts.

use crate::Error;
use crate::connected::{Form, Part, Sink, SinkRow};
use crate::numbers::MatrixElement;
use crate::sites::LocalIndex;

/// Elements of some samples, as rows of equal width.
#[derive(Debug)]
pub struct Elements<'a, C, T> {
    /// How many elements each sample has.
    pub counts: &'a mut [u32],
    /// The matrix elements.
    pub mels: &'a mut [T],
    /// The changes, or nothing if no configurations are wanted.
    pub changes: &'a mut [C],
}

impl<C: Copy, T: MatrixElement> Elements<'_, C, T> {
    /// Writes the active elements, and zeros as the matrix elements of the remaining room. `first` is the number of the
    /// first sample, for the error's sake.
    pub fn write_active<F: Form<ElementChange = C>>(
        self,
        form: &F,
        values: &[T],
        indices: &[LocalIndex],
        part: Part,
        first: usize,
    ) -> Result<(), Error> {
        let samples = self.counts.len();
        let room = self.mels.len().checked_div(samples).unwrap_or_default();
        let mut active = Active { room, elements: self };
        active.elements.counts.fill(0);
        form.for_each_active(values, indices, samples, part, &mut active);
        let Self { counts, mels, .. } = active.elements;
        for (sample, &mut count) in counts.iter_mut().enumerate() {
            let (count, room_of_sample) = (count as usize, sample * room..(sample + 1) * room);
            let Some(padding) = mels[room_of_sample].get_mut(count..) else {
                return Err(Error::TooManyElements { sample: first + sample, count, room });
            };
            padding.fill(T::default());
        }
        Ok(())
    }

    /// Writes the elements that are not zero. Each sample must have room for as many elements as the form may have.
    pub fn write_nonzero<F: Form<ElementChange = C>>(self, form: &F, values: &[T], indices: &[LocalIndex], part: Part) {
        let samples = self.counts.len();
        let mut non_zero = NonZero { room: form.max_elements(), elements: self };
        non_zero.elements.counts.fill(0);
        form.for_each_active(values, indices, samples, part, &mut non_zero);
    }
}

/// Keeps all elements that there is room for, and counts the others too.
struct Active<'a, C, T> {
    room: usize,
    elements: Elements<'a, C, T>,
}

impl<C: Copy, T: Copy> Sink<C, T> for Active<'_, C, T> {
    type Row<'b>
        = ActiveRow<'b, C, T>
    where
        Self: 'b;

    #[inline(always)]
    fn push(&mut self, sample: usize, change: C, mel: T) {
        let Elements { counts, mels, changes } = &mut self.elements;
        let count = counts[sample] as usize;
        counts[sample] += 1;
        if count < self.room {
            mels[sample * self.room + count] = mel;
            if !changes.is_empty() {
                changes[sample * self.room + count] = change;
            }
        }
    }

    #[inline(always)]
    fn extend<const N: usize>(&mut self, sample: usize, changes: [C; N], mels: [T; N]) {
        let Elements { counts, mels: all_mels, changes: all_changes } = &mut self.elements;
        let count = counts[sample] as usize;
        if count + N <= self.room {
            counts[sample] += N as u32;
            let start = sample * self.room + count;
            all_mels[start..start + N].copy_from_slice(&mels);
            if !all_changes.is_empty() {
                all_changes[start..start + N].copy_from_slice(&changes);
            }
        } else {
            for (change, mel) in changes.into_iter().zip(mels) {
                self.push(sample, change, mel);
            }
        }
    }

    #[inline(always)]
    fn row(&mut self, sample: usize) -> ActiveRow<'_, C, T> {
        let Elements { counts, mels, changes } = &mut self.elements;
        let row = sample * self.room..(sample + 1) * self.room;
        let changes = if changes.is_empty() { &mut [] } else { &mut changes[row.clone()] };
        ActiveRow { of_sample: &mut counts[sample], count: 0, mels: &mut mels[row], changes }
    }
}

/// The room for the elements of one sample.
struct ActiveRow<'a, C, T> {
    of_sample: &'a mut u32,
    /// A register; `of_sample` would be memory.
    count: usize,
    mels: &'a mut [T],
    changes: &'a mut [C],
}

impl<C: Copy, T: Copy> SinkRow<C, T> for ActiveRow<'_, C, T> {
    #[inline(always)]
    fn push(&mut self, active: bool, change: C, mel: T) {
        // What isn't active is overwritten by the next element, which spares a branch that can't be predicted.
        if let Some(to) = self.mels.get_mut(self.count) {
            *to = mel;
        }
        if let Some(to) = self.changes.get_mut(self.count) {
            *to = change;
        }
        self.count += usize::from(active);
    }

    #[inline(always)]
    fn end(self) {
        *self.of_sample = self.count as u32;
    }
}

/// Keeps the elements that are not zero.
struct NonZero<'a, C, T> {
    room: usize,
    elements: Elements<'a, C, T>,
}

impl<C: Copy, T: MatrixElement> Sink<C, T> for NonZero<'_, C, T> {
    type Row<'b>
        = NonZeroRow<'b, C, T>
    where
        Self: 'b;

    #[inline(always)]
    fn push(&mut self, sample: usize, change: C, mel: T) {
        let Elements { counts, mels, changes } = &mut self.elements;
        let place = sample * self.room + counts[sample] as usize;
        // A zero is overwritten by the next element, which spares a branch that can't be predicted.
        if let (Some(to), Some(changed)) = (mels.get_mut(place), changes.get_mut(place)) {
            (*to, *changed) = (mel, change);
        }
        counts[sample] += u32::from(mel != T::default());
    }

    #[inline(always)]
    fn extend<const N: usize>(&mut self, sample: usize, changes: [C; N], mels: [T; N]) {
        let Elements { counts, mels: all_mels, changes: all_changes } = &mut self.elements;
        if mels.iter().all(|&mel| mel != T::default()) {
            let start = sample * self.room + counts[sample] as usize;
            counts[sample] += N as u32;
            all_mels[start..start + N].copy_from_slice(&mels);
            all_changes[start..start + N].copy_from_slice(&changes);
        } else {
            for (change, mel) in changes.into_iter().zip(mels) {
                self.push(sample, change, mel);
            }
        }
    }

    #[inline(always)]
    fn row(&mut self, sample: usize) -> NonZeroRow<'_, C, T> {
        let Elements { counts, mels, changes } = &mut self.elements;
        let row = sample * self.room..(sample + 1) * self.room;
        NonZeroRow(ActiveRow {
            of_sample: &mut counts[sample],
            count: 0,
            mels: &mut mels[row.clone()],
            changes: &mut changes[row],
        })
    }
}

/// The room for the elements of one sample that are not zero.
struct NonZeroRow<'a, C, T>(ActiveRow<'a, C, T>);

impl<C: Copy, T: MatrixElement> SinkRow<C, T> for NonZeroRow<'_, C, T> {
    #[inline(always)]
    fn push(&mut self, active: bool, change: C, mel: T) {
        self.0.push(active & (mel != T::default()), change, mel);
    }

    #[inline(always)]
    fn end(self) {
        self.0.end();
    }
}

/// Counts the elements that are not zero.
struct Count<'a>(&'a mut [i32]);

impl<C: Copy, T: MatrixElement> Sink<C, T> for Count<'_> {
    type Row<'b>
        = CountRow<'b>
    where
        Self: 'b;

    #[inline(always)]
    fn push(&mut self, sample: usize, _: C, mel: T) {
        self.0[sample] += i32::from(mel != T::default());
    }

    #[inline(always)]
    fn extend<const N: usize>(&mut self, sample: usize, _: [C; N], mels: [T; N]) {
        self.0[sample] += mels.into_iter().map(|mel| i32::from(mel != T::default())).sum::<i32>();
    }

    #[inline(always)]
    fn row(&mut self, sample: usize) -> CountRow<'_> {
        CountRow { of_sample: &mut self.0[sample], count: 0 }
    }
}

/// The count of one sample.
struct CountRow<'a> {
    of_sample: &'a mut i32,
    count: i32,
}

impl<C, T: MatrixElement> SinkRow<C, T> for CountRow<'_> {
    #[inline(always)]
    fn push(&mut self, active: bool, _: C, mel: T) {
        self.count += i32::from(active & (mel != T::default()));
    }

    #[inline(always)]
    fn end(self) {
        *self.of_sample = self.count;
    }
}

/// Counts the elements of each sample that are not zero.
pub fn count_nonzero<F: Form, T: MatrixElement>(
    form: &F,
    values: &[T],
    indices: &[LocalIndex],
    part: Part,
    counts: &mut [i32],
) {
    counts.fill(0);
    form.for_each_active(values, indices, counts.len(), part, &mut Count(counts));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connected::write_configurations;
    use crate::numbers::Sample;
    use crate::sites::testing::SPIN;
    use crate::sites::{Configuration, LocalStates, Sites};

    /// How elements are handed over.
    #[derive(Clone, Copy)]
    enum By {
        One,
        Two,
        Row,
    }

    /// An operator on two spins, given as a list of elements for each sample: the site that is flipped, and the value.
    struct List(&'static [&'static [(u32, i64)]], By);

    impl Form for List {
        const GRAIN: usize = 1;

        const LANES: usize = 1;

        type ElementChange = u32;

        fn sites(&self) -> usize {
            2
        }

        fn max_elements(&self) -> usize {
            self.0.iter().map(|elements| elements.len()).max().unwrap_or_default()
        }

        fn for_each_active<T: MatrixElement>(
            &self,
            values: &[T],
            _: &[LocalIndex],
            samples: usize,
            _: Part,
            sink: &mut impl Sink<u32, T>,
        ) {
            let element = |&(change, value): &(u32, i64)| (change, values[0].times(value));
            for (sample, elements) in self.0[..samples].iter().enumerate() {
                match self.1 {
                    By::One => elements.iter().map(element).for_each(|(change, mel)| sink.push(sample, change, mel)),
                    By::Row => {
                        let mut row = sink.row(sample);
                        for (change, mel) in elements.iter().map(element) {
                            row.push(false, 9, T::default());
                            row.push(true, change, mel);
                        }
                        row.end();
                    }
                    By::Two => {
                        let (pairs, rest) = elements.as_chunks::<2>();
                        for pair in pairs {
                            sink.extend(sample, pair.map(|(change, _)| change), pair.map(|pair| element(&pair).1));
                        }
                        rest.iter().map(element).for_each(|(change, mel)| sink.push(sample, change, mel));
                    }
                }
            }
        }

        fn write<S: Sample>(&self, _: &LocalStates<S>, sample: &Configuration<S>, site: u32, row: &mut [S]) {
            row.copy_from_slice(&sample.values);
            row[site as usize] = sample.flipped[site as usize];
        }
    }

    const ELEMENTS: &[&[(u32, i64)]] = &[&[(0, 5), (1, 0), (1, 7)], &[], &[(1, 3), (0, -3), (0, 0)]];

    #[test]
    fn active_elements_and_padding() {
        for by in [By::One, By::Two, By::Row] {
            let (mut counts, mut mels, mut changes) = ([9; 3], [9.0; 12], [9; 12]);
            let elements = Elements { counts: &mut counts, mels: &mut mels, changes: &mut changes };
            elements.write_active(&List(ELEMENTS, by), &[2.0], &[0; 6], Part::All, 0).expect("enough room");
            assert_eq!(counts, [3, 0, 3]);
            assert_eq!(mels, [10.0, 0.0, 14.0, 0.0, 0.0, 0.0, 0.0, 0.0, 6.0, -6.0, 0.0, 0.0]);
            assert_eq!((&changes[..3], &changes[8..11]), (&[0, 1, 1][..], &[1, 0, 0][..]));
        }
    }

    #[test]
    fn too_many_elements() {
        for by in [By::One, By::Two, By::Row] {
            for room in 0..3 {
                let (mut counts, mut mels, mut changes) = ([9; 3], vec![9; 3 * room], vec![9; 3 * room]);
                let elements = Elements { counts: &mut counts, mels: &mut mels, changes: &mut changes };
                let error =
                    elements.write_active(&List(ELEMENTS, by), &[1], &[0; 6], Part::All, 40).expect_err("little room");
                assert_eq!(
                    error.to_string(),
                    format!("sample 40 has 3 connected elements, but there is room for {room} (max_conn_size)")
                );
            }
        }
    }

    #[test]
    fn elements_that_are_not_zero() {
        for by in [By::One, By::Two, By::Row] {
            let (mut counts, mut counted, mut mels, mut changes) = ([9; 3], [9; 3], [9; 9], [9; 9]);
            let elements = Elements { counts: &mut counts, mels: &mut mels, changes: &mut changes };
            elements.write_nonzero(&List(ELEMENTS, by), &[2], &[0; 6], Part::All);
            assert_eq!(counts, [2, 0, 2]);
            assert_eq!((&mels[..2], &mels[6..8]), (&[10, 14][..], &[6, -6][..]));
            assert_eq!((&changes[..2], &changes[6..8]), (&[0, 1][..], &[1, 0][..]));
            count_nonzero(&List(ELEMENTS, by), &[2], &[0; 6], Part::All, &mut counted);
            assert_eq!(counted, [2, 0, 2]);
        }
    }

    #[test]
    fn configurations_and_padding() {
        let sites = Sites::new(2, vec![SPIN], &[]).expect("two spins");
        let states = LocalStates::<i8>::new(&sites).expect("int8 holds both");
        let mut rows = [9; 8];
        write_configurations(&List(ELEMENTS, By::One), &states, &states.first(), &[1, 0], &mut rows);
        assert_eq!(rows, [1, -1, -1, 1, 1, 1, 1, 1]);
    }
}
