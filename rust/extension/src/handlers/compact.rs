//! Connected elements in the compact form: those that are not zero, one after the other, as many as there is room for.

use super::configurations::{Changes, Configurations, configurations};
use super::dispatch::with_number_type;
use super::forms::{FormArguments, Operator, TablesArguments, TermsArguments, vector};
use super::scratch::{max_block, min_samples, sample_bytes};
use ferroket_kernels::element::MatrixElement;
use ferroket_kernels::elements::{Elements, Form};
use ferroket_xla_ffi::{AnyBuffer, AnyBufferMut, Element, Error, Frame, Pool, RaggedRows, Rows, handler};
use std::ops::Range;

handler! {
    /// Arguments `x (Ns, N)`, `kind`, the tables of the form, `values` and `cursor (2,)` of int32; attributes `starts`,
    /// `steps`, `sizes`, `diagonal` and `off_diagonal_only`; results `xp (C, N)`, `mels (C,)`, and of int32
    /// `sample (C,)` and `cursor (2,)`.
    ///
    /// The cursor, a sample and an element among those of the sample that are not zero, says where to begin, and then
    /// which element comes next: sample Ns if there is none. Rows that are not used have the first local states,
    /// matrix element 0 and sample Ns.
    pub(super) fn terms = call::<TermsArguments>
}

handler! {
    /// As [`terms`], with the tables of the other form.
    pub(super) fn tables = call::<TablesArguments>
}

fn call<F: FormArguments>(frame: &Frame) -> Result<(), Error> {
    frame.expect_counts(Operator::<F>::ARGUMENTS + 1, 4)?;
    let x = frame.arg(0, "x")?;
    let &[start_sample, start_element] = vector::<i32>(frame, Operator::<F>::ARGUMENTS, "cursor")? else {
        return Err(Error::invalid("the cursor must be two numbers, a sample and an element"));
    };
    let (xp, mels) = (frame.result(0, "xp")?, frame.result(1, "mels")?);
    let sample_of = frame.result(2, "sample")?.typed::<i32>()?;
    let cursor = frame.result(3, "cursor")?.typed::<i32>()?;
    x.expect_rank(2)?;
    let (samples, sites) = (x.dims()[0], x.dims()[1]);
    mels.expect_rank(1)?;
    let room = mels.len();
    xp.expect_dims(&[room, sites])?;
    sample_of.expect_dims(&[room])?;
    cursor.expect_dims(&[2])?;

    let off_diagonal_only = frame.attr_bool("off_diagonal_only")?;
    let Operator { sites, form, values } = Operator::<F>::parse(frame, sites)?;
    let configurations = configurations(&sites, x, Some(xp))?;
    let sweep = Sweep { pool: frame.pool(), form: &form, samples, off_diagonal_only, configurations };
    let start = Cursor::new(start_sample, start_element, samples)?;
    let sample_of = sample_of.into_mut_slice();
    let next =
        with_number_type!(mels.dtype(), "the matrix elements", T => sweep.run::<T>(start, values, mels, sample_of))?;
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
    pool: Pool<'a>,
    form: &'a F,
    samples: usize,
    off_diagonal_only: bool,
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
    fn run<T: MatrixElement + Element>(
        mut self,
        start: Cursor,
        values: AnyBuffer,
        mels: AnyBufferMut,
        sample_of: &mut [i32],
    ) -> Result<Cursor, Error> {
        let Self { pool, form, samples, off_diagonal_only, .. } = self;
        let values = values.typed::<T>()?.as_slice();
        let results = mels.typed::<T>()?.into_mut_slice();
        let (room, sites, width) = (results.len(), form.sites(), form.max_elements());
        let max_len = max_block(form, pool.threads(), samples, sample_bytes(form, width, size_of::<T>()));
        let (mut indices, mut counts) = (Vec::new(), Vec::new());
        let (mut changes, mut mels) = (Vec::new(), Vec::new());
        let (mut cursor, mut row) = (start, 0_usize);
        while cursor.sample < samples {
            // As many samples as will fill the room, judging by those before.
            let mean = row.checked_div(cursor.sample - start.sample).unwrap_or(width).max(1);
            let len = (room - row).div_ceil(mean).max(MIN_BLOCK).min(max_len).min(samples - cursor.sample);
            let block = cursor.sample..cursor.sample + len;
            indices.resize(len * sites, 0);
            counts.resize(len, 0);
            changes.resize(len * width, F::Change::default());
            mels.resize(len * width, T::default());
            self.configurations.read(pool, block.clone(), &mut indices)?;
            let parts = (Rows::new(&mut counts, 1), Rows::new(&mut mels, width), Rows::new(&mut changes, width));
            pool.for_each_part(len, min_samples(form, width), parts, |range, (counts, mels, changes)| {
                let indices = &indices[range.start * sites..range.end * sites];
                let (counts, mels, changes) = (counts.into_slice(), mels.into_slice(), changes.into_slice());
                Elements { counts, mels, changes }.write_nonzero(form, values, indices, off_diagonal_only);
            })?;

            let Selection { of_sample, first_row, next } = Selection::new(cursor, &counts, width, row..room)?;
            let end = first_row[of_sample.len()];
            let parts = (
                RaggedRows::new(&mut results[row..end], &first_row, 1),
                RaggedRows::new(&mut sample_of[row..end], &first_row, 1),
            );
            pool.for_each_part(of_sample.len(), min_samples(form, mean), parts, |range, (results, sample_of)| {
                let (mut results, mut sample_of) = (results.into_slice().iter_mut(), sample_of.into_slice().iter_mut());
                for number in range {
                    for (place, result) in of_sample[number].clone().zip(&mut results) {
                        *result = mels[place];
                    }
                    for sample in sample_of.by_ref().take(of_sample[number].len()) {
                        *sample = (block.start + number) as i32;
                    }
                }
            })?;
            let elements =
                Changes { indices: &indices, changes: &changes, of_sample: &of_sample, first_row: &first_row };
            self.configurations.write(pool, form, &elements)?;
            row = end;
            match next {
                Some(next) => {
                    cursor = next;
                    break;
                }
                None => cursor = Cursor { sample: block.end, element: 0 },
            }
        }
        results[row..].fill(T::default());
        sample_of[row..].fill(samples as i32);
        self.configurations.fill(row..room);
        Ok(cursor)
    }
}
