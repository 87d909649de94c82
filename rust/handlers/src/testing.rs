//! Calls for the tests: two sites of two states, with a σᶻ on the first one, and a flip of the second one where the first
//! one has index 1.

use ferroket_xla_ffi::Element;
use ferroket_xla_ffi::testing::{TestFrame, Threads};

/// The arguments of the form of terms, from the samples on, with the values in the type of `half` (½).
pub(crate) struct Arguments<T> {
    pub(crate) x: Vec<i8>,
    pub(crate) kind: Vec<i32>,
    pub(crate) flip: Vec<u32>,
    pub(crate) first: Vec<i32>,
    pub(crate) mask: Vec<u32>,
    pub(crate) pattern: Vec<u32>,
    pub(crate) sign: Vec<u32>,
    pub(crate) values: Vec<T>,
}

/// Samples 00, 10 and 11, whose elements are: ½; -½ and 2; -½ and 2.
pub(crate) fn arguments() -> Arguments<f32> {
    Arguments {
        x: vec![0, 0, 1, 0, 1, 1],
        kind: vec![],
        flip: vec![0, 2],
        first: vec![0, 1, 2],
        mask: vec![0, 1],
        pattern: vec![0, 1],
        sign: vec![1, 0],
        values: vec![0.5, 2.0],
    }
}

impl<T: Element> Arguments<T> {
    /// A frame with them, and the attributes of the form.
    pub(crate) fn frame(&self, threads: Threads) -> TestFrame {
        attributes(TestFrame::new(threads))
            .arg(&self.x, &[self.x.len() / 2, 2])
            .arg(&self.kind, &[self.kind.len()])
            .arg(&self.flip, &[self.flip.len(), 1])
            .arg(&self.first, &[self.first.len()])
            .arg(&self.mask, &[self.mask.len(), 1])
            .arg(&self.pattern, &[self.pattern.len(), 1])
            .arg(&self.sign, &[self.sign.len(), 1])
            .arg(&self.values, &[self.values.len()])
    }
}

/// As [`Arguments::frame`], with the same operator as matrices.
pub(crate) fn matrices(threads: Threads) -> TestFrame {
    attributes(TestFrame::new(threads))
        .arg(&[0_i8, 0, 1, 0, 1, 1], &[3, 2])
        .arg::<i32>(&[], &[0])
        .arg(&[0, 1, 3], &[3])
        .arg(&[0, 0, 1], &[3])
        .arg(&[0, 1], &[2])
        .arg(&[0, 2, 6], &[3])
        .arg(&[0, 1, 2, 2, 2, 3, 4], &[7])
        .arg(&[0, 1, 3, 2], &[4])
        .arg(&[0.5_f32, -0.5, 2.0, 2.0], &[4])
}

fn attributes(frame: TestFrame) -> TestFrame {
    frame
        .attr_array("starts", &[0.0])
        .attr_array("steps", &[1.0])
        .attr_array("sizes", &[2_i64])
        .attr_bool("diagonal", true)
}

/// Pools that tasks come from in every way.
pub(crate) const POOLS: [Threads; 4] = [Threads::None, Threads::Inline(3), Threads::Real(3), Threads::Late(2)];
