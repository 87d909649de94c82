//! Connected elements in the compact form: those that are not zero, one after the other, as many as there is room for.

use crate::blocks::{block_len, min_evaluated, min_written};
use crate::configurations::{Configurations, Connected, configurations};
use crate::dtypes::with_number_type;
use crate::errors::FirstError;
use crate::operators::{FormTables, MatricesOf, Operator, TermsOf};
use ferroket_kernels::connected::{Elements, Form, Part};
use ferroket_kernels::numbers::MatrixElement;
use ferroket_kernels::sites::LocalIndex;
use ferroket_xla_ffi::{Element, Error, Frame, Pool, RaggedRows, Rows, handler};
use std::ops::Range;

handler! {
    /// Arguments `x (Ns, N)`, `kind`, the tables of the form, `values` and `cursor (2,)` of int32; attributes `starts`,
    /// `steps`, `sizes`, `diagonal` and `off_diagonal_only`; results `xp (C, N)`, `mels (C,)`, and of int32
    /// `sample (C,)` and `cursor (2,)`.
    ///
    /// The cursor, a sample and an element among those of the sample that are not zero, says where to begin, and then
    /// which element comes next: sample Ns if there is none. Rows that are not used have the first local states,
    /// matrix element 0 and sample Ns.
    pub(crate) fn terms = call::<TermsOf>
}

handler! {
    /// As [`terms`], with the tables of the other form.
    pub(crate) fn matrices = call::<MatricesOf>
}

fn call<F: FormTables>(frame: &Frame) -> Result<(), Error> {
    let part = if frame.attr_bool("off_diagonal_only")? { Part::OffDiagonal } else { Part::All };
    let (mut args, mut results) = (frame.arguments(), frame.results());
    let (x, Operator { sites, form, values }) = Operator::<F>::read(frame, &mut args)?;
    x.expect_rank(2)?;
    let (samples, n_sites) = (x.dims()[0], x.dims()[1]);
    let &[start_sample, start_element] = args.vector::<i32>("cursor")? else {
        return Err(Error::invalid("the cursor must be two numbers, a sample and an element"));
    };
    args.finish()?;
    let (xp, mels) = (results.any("xp")?, results.any("mels")?);
    let sample_of = results.typed::<i32>("sample")?;
    let cursor = results.typed::<i32>("cursor")?;
    results.finish()?;
    mels.expect_rank(1)?;
    let room = mels.len();
    xp.expect_dims(&[room, n_sites])?;
    sample_of.expect_dims(&[room])?;
    cursor.expect_dims(&[2])?;

    let (configurations, xp) = configurations(&sites, x, Some(xp))?;
    let sweep = Sweep { form: &form, samples, part, configurations };
    let start = Cursor::new(start_sample, start_element, samples)?;
    let sample_of = sample_of.into_mut_slice();
    let next = with_number_type!(mels.dtype(), "the matrix elements", T => {
        let values = values.typed::<T>()?.as_slice();
        sweep.run(frame.pool(), start, values, xp, mels.typed::<T>()?.into_mut_slice(), sample_of)
    })?;
    cursor.into_mut_slice().copy_from_slice(&[next.sample as i32, next.element as i32]);
    Ok(())
}

/// A place in the elements of all samples.
#[derive(Clone, Copy)]
struct Cursor {
    sample: usize,
    /// Among the elements of the sample that are not zero.
    element: usize,
}

impl Cursor {
    fn new(sample: i32, element: i32, samples: usize) -> Result<Self, Error> {
        match (usize::try_from(sample), usize::try_from(element)) {
            (Ok(s), Ok(e)) if s < samples || (s == samples && e == 0) => Ok(Self { sample: s, element: e }),
            _ => Err(Error::invalid(format!(
                "the cursor is at element {element} of sample {sample}, but there are {samples} samples"
            ))),
        }
    }
}

/// The least samples that are worth the trouble of a block.
const MIN_BLOCK: usize = 16;

struct Sweep<'a, F: Form> {
    form: &'a F,
    samples: usize,
    part: Part,
    configurations: Box<dyn Configurations<F> + 'a>,
}

/// Which elements of a block of samples there is room for.
struct Selection {
    /// Of each sample, which of its places in the scratch.
    of_sample: Vec<Range<usize>>,
    /// The rows of sample s are `first_row[s]..first_row[s + 1]`.
    first_row: Vec<usize>,
    /// The first element that there is no room for, if there is one in this block.
    next: Option<Cursor>,
}

impl Selection {
    /// The elements from `start` on. Sample `start.sample` is the first one of the block, which has `counts` elements in
    /// rows of `width` places; `rows` are those of the result that are free.
    fn new(start: Cursor, counts: &[u32], width: usize, rows: Range<usize>) -> Result<Self, Error> {
        let mut selection =
            Self { of_sample: Vec::with_capacity(counts.len()), first_row: vec![rows.start], next: None };
        let (mut row, mut first) = (rows.start, start.element);
        let count = counts.first().copied().unwrap_or_default() as usize;
        if first > count {
            return Err(Error::invalid(format!(
                "the cursor is at element {first} of sample {}, which has {count} elements that are not zero",
                start.sample
            )));
        }
        for (sample, &count) in counts.iter().enumerate() {
            let count = count as usize;
            let last = count.min(first + rows.end - row);
            selection.of_sample.push(sample * width + first..sample * width + last);
            row += last - first;
            selection.first_row.push(row);
            if last < count {
                selection.next = Some(Cursor { sample: start.sample + sample, element: last });
                break;
            }
            first = 0;
        }
        Ok(selection)
    }
}

impl<F: Form> Sweep<'_, F> {
    /// Writes the elements from `start` on, and gives the place of the first one that there is no room for.
    fn run<T: MatrixElement + Element>(
        &self,
        pool: Pool,
        start: Cursor,
        values: &[T],
        xp: &mut [u8],
        mels: &mut [T],
        sample_of: &mut [i32],
    ) -> Result<Cursor, Error> {
        let Self { form, samples, .. } = *self;
        let (room, width) = (mels.len(), form.max_elements());
        let row_bytes = xp.len().checked_div(room).unwrap_or_default();
        let max_len = block_len(form, width, size_of::<T>()).saturating_mul(pool.threads());
        let mut found = Found { indices: Vec::new(), counts: Vec::new(), changes: Vec::new(), mels: Vec::new() };
        let (mut cursor, mut row) = (start, 0_usize);
        while cursor.sample < samples {
            // As many samples as will fill the room, judging by those before.
            let mean = row.checked_div(cursor.sample - start.sample).unwrap_or(width).max(1);
            let len = (room - row).div_ceil(mean).max(MIN_BLOCK).min(max_len).min(samples - cursor.sample);
            self.find(pool, cursor.sample..cursor.sample + len, values, &mut found)?;
            let Selection { of_sample, first_row, next } = Selection::new(cursor, &found.counts, width, row..room)?;
            let rows = row..first_row[of_sample.len()];
            let parts = (
                RaggedRows::new(&mut mels[rows.clone()], &first_row, 1),
                RaggedRows::new(&mut sample_of[rows.clone()], &first_row, 1),
                RaggedRows::new(&mut xp[rows.start * row_bytes..rows.end * row_bytes], &first_row, row_bytes),
            );
            let min = min_written(form, rows.len() * form.sites() / len);
            pool.for_each_part(of_sample.len(), min, parts, |range, (mels, sample_of, xp)| {
                let (mut mels, mut sample_of) = (mels.into_slice(), sample_of.into_slice());
                let mut connected = Vec::with_capacity(range.len());
                for sample in range {
                    let places = of_sample[sample].clone();
                    let (of_one, number);
                    (of_one, mels) = mels.split_at_mut(places.len());
                    (number, sample_of) = sample_of.split_at_mut(places.len());
                    of_one.copy_from_slice(&found.mels[places.clone()]);
                    number.fill((cursor.sample + sample) as i32);
                    let indices = &found.indices[sample * form.sites()..][..form.sites()];
                    connected.push(Connected { indices, rows: places.len(), changes: &found.changes[places] });
                }
                self.configurations.write(form, &connected, xp.into_slice());
            })?;
            row = rows.end;
            cursor = next.unwrap_or(Cursor { sample: cursor.sample + len, element: 0 });
            if next.is_some() {
                break;
            }
        }
        mels[row..].fill(T::default());
        sample_of[row..].fill(samples as i32);
        let unused = Connected { indices: &vec![0; form.sites()], changes: &[], rows: room - row };
        self.configurations.write(form, &[unused], &mut xp[row * row_bytes..]);
        Ok(cursor)
    }

    /// Finds the elements of some samples that are not zero.
    fn find<T: MatrixElement>(
        &self,
        pool: Pool,
        samples: Range<usize>,
        values: &[T],
        found: &mut Found<F::ElementChange, T>,
    ) -> Result<(), Error> {
        let (len, sites, width) = (samples.len(), self.form.sites(), self.form.max_elements());
        found.indices.resize(len * sites, 0);
        found.counts.resize(len, 0);
        found.changes.resize(len * width, F::ElementChange::default());
        found.mels.resize(len * width, T::default());
        let parts = (
            Rows::new(&mut found.indices, sites),
            Rows::new(&mut found.counts, 1),
            Rows::new(&mut found.changes, width),
            Rows::new(&mut found.mels, width),
        );
        let first_error = FirstError::default();
        let min = min_evaluated(self.form, len, pool.threads());
        pool.for_each_part(len, min, parts, |range, (indices, counts, changes, mels)| {
            let indices = indices.into_slice();
            let read = self.configurations.read(samples.start + range.start..samples.start + range.end, indices);
            if read.is_ok() {
                let (counts, mels, changes) = (counts.into_slice(), mels.into_slice(), changes.into_slice());
                let elements = Elements { counts, mels, changes };
                elements.write_nonzero(self.form, values, indices, self.part);
            }
            first_error.keep(range.start, read);
        })?;
        first_error.into_result(self.samples)
    }
}

/// The elements of a block of samples, as rows for each sample.
struct Found<C, T> {
    indices: Vec<LocalIndex>,
    counts: Vec<u32>,
    changes: Vec<C>,
    mels: Vec<T>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, POOLS, arguments};
    use ferroket_xla_ffi::testing::{TestFrame, Threads};

    fn at(sample: usize, element: usize) -> Cursor {
        Cursor { sample, element }
    }

    fn place(cursor: Cursor) -> (usize, usize) {
        (cursor.sample, cursor.element)
    }

    #[test]
    fn cursors_are_at_samples_or_at_the_end() {
        assert_eq!(Cursor::new(2, 5, 3).map(place), Ok((2, 5)));
        assert_eq!(Cursor::new(3, 0, 3).map(place), Ok((3, 0)));
        for (sample, element) in [(3, 1), (4, 0), (-1, 0), (0, -1)] {
            let error = Cursor::new(sample, element, 3).err().expect("no place").to_string();
            assert_eq!(
                error,
                format!("the cursor is at element {element} of sample {sample}, but there are 3 samples")
            );
        }
    }

    #[test]
    fn what_there_is_room_for() {
        // Samples 7, 8 and 9 with 2, 0 and 3 elements, in rows of 4 places.
        let select = |start, rows| Selection::new(start, &[2, 0, 3], 4, rows);
        let all = select(at(7, 0), 10..15).expect("a place");
        assert_eq!((all.of_sample, all.first_row), (vec![0..2, 4..4, 8..11], vec![10, 12, 12, 15]));
        assert!(all.next.is_none());
        let some = select(at(7, 1), 0..3).expect("a place");
        assert_eq!((some.of_sample, some.first_row), (vec![1..2, 4..4, 8..10], vec![0, 1, 1, 3]));
        assert_eq!(some.next.map(place), Some((9, 2)));
        // Sample 8 has nothing that there could be no room for.
        let full = select(at(7, 0), 0..2).expect("a place");
        assert_eq!((full.of_sample, full.next.map(place)), (vec![0..2, 4..4, 8..8], Some((9, 0))));
        let none = select(at(7, 0), 5..5).expect("a place");
        assert_eq!((&none.of_sample[..], none.next.map(place)), (&[Range { start: 0, end: 0 }][..], Some((7, 0))));
        let beyond = select(at(7, 3), 0..9).err().expect("no place").to_string();
        assert_eq!(beyond, "the cursor is at element 3 of sample 7, which has 2 elements that are not zero");
    }

    fn with_results(frame: TestFrame, cursor: [i32; 2], room: usize, off_diagonal_only: bool) -> TestFrame {
        let frame = frame.arg(&cursor, &[2]).attr_bool("off_diagonal_only", off_diagonal_only);
        frame.result::<i8>(&[room, 2]).result::<f32>(&[room]).result::<i32>(&[room]).result::<i32>(&[2])
    }

    #[test]
    fn elements_from_a_cursor_on() {
        for threads in POOLS {
            let mut frames = [
                (terms as ferroket_xla_ffi::raw::Handler, with_results(arguments().frame(threads), [1, 1], 4, false)),
                (matrices, with_results(testing::matrices(threads), [1, 1], 4, false)),
            ];
            for (handler, frame) in &mut frames {
                assert_eq!(frame.execute(*handler), Ok(()));
                assert_eq!(frame.read::<i8>(0), [1, 1, 1, 1, 1, 0, 0, 0]);
                assert_eq!(frame.read::<f32>(1), [2.0, -0.5, 2.0, 0.0]);
                assert_eq!(frame.read::<i32>(2), [1, 2, 2, 3]);
                assert_eq!(frame.read::<i32>(3), [3, 0]);
            }
        }
    }

    /// However much room there is, page after page gives what one page with room for all does.
    #[test]
    fn pages_follow_each_other() {
        let mut many = arguments();
        many.x = (0..500).flat_map(|sample| [i8::from(sample % 3 != 1), i8::from(sample % 7 < 3)]).collect();
        for (off_diagonal_only, total) in [(false, 833), (true, 333)] {
            let page = |cursor: [i32; 2], room: usize| {
                let mut frame = with_results(many.frame(Threads::Real(3)), cursor, room, off_diagonal_only);
                assert_eq!(frame.execute(terms), Ok(()));
                let used = frame.read::<i32>(2).iter().filter(|&&sample| sample < 500).count();
                let rows: Vec<_> = frame.read::<i8>(0).chunks(2).map(<[i8]>::to_vec).take(used).collect();
                let numbers = frame.read::<f32>(1).into_iter().zip(frame.read::<i32>(2)).take(used);
                let elements: Vec<_> = rows.into_iter().zip(numbers).collect();
                let next = frame.read::<i32>(3);
                (elements, [next[0], next[1]])
            };
            let (all, end) = page([0, 0], 1000);
            assert_eq!((all.len(), end), (total, [500, 0]));
            for room in [1, 2, 37, 400, total] {
                let (mut elements, mut cursor, mut pages) = (Vec::new(), [0, 0], 0);
                while cursor != [500, 0] {
                    let (more, next) = page(cursor, room);
                    assert!(more.len() == room || next == [500, 0], "a page that isn't full is the last one");
                    elements.extend(more);
                    (cursor, pages) = (next, pages + 1);
                }
                assert_eq!(elements, all, "pages of {room}");
                assert!(pages <= total.div_ceil(room) + 1, "{pages} pages of {room}");
            }
        }
    }

    #[test]
    fn wrong_calls_are_named() {
        let message = |frame: TestFrame| { frame }.execute(terms).expect_err("a wrong call").message;
        let frame = || arguments().frame(Threads::None);
        assert_eq!(
            message(with_results(frame(), [3, 1], 4, false)),
            "the cursor is at element 1 of sample 3, but there are 3 samples"
        );
        assert_eq!(
            message(with_results(frame(), [1, 3], 4, false)),
            "the cursor is at element 3 of sample 1, which has 2 elements that are not zero"
        );
        let missing = frame().attr_bool("off_diagonal_only", false);
        assert_eq!(message(missing), "argument 8 'cursor' is missing: the call has 8");
        let long = frame().attr_bool("off_diagonal_only", false).arg(&[0, 0, 0], &[3]);
        assert_eq!(message(long), "the cursor must be two numbers, a sample and an element");
        let more = with_results(frame(), [0, 0], 4, false).result::<i8>(&[]);
        assert_eq!(message(more), "the call has 5 results, but the handler takes 4");
    }
}
