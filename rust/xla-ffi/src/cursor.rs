//! The arguments and the results of a call, one after the other: nobody counts them by hand, and each has a name.

use crate::{AnyBuffer, AnyBufferMut, Buffer, BufferMut, Element, Error, Frame};

/// The arguments of a call that have not been taken yet.
#[must_use = "arguments that are left over are an error of `finish`"]
pub struct Arguments<'f, 'a> {
    frame: &'f Frame<'a>,
    taken: usize,
}

impl<'f, 'a> Arguments<'f, 'a> {
    pub(crate) fn new(frame: &'f Frame<'a>) -> Self {
        Self { frame, taken: 0 }
    }

    /// The next argument, which messages will call `name`.
    pub fn any(&mut self, name: &'static str) -> Result<AnyBuffer<'a>, Error> {
        let argument = self.frame.arg(self.taken, name)?;
        self.taken += 1;
        Ok(argument)
    }

    /// The next argument, with elements of one type.
    pub fn typed<T: Element>(&mut self, name: &'static str) -> Result<Buffer<'a, T>, Error> {
        self.any(name)?.typed()
    }

    /// The next argument, with elements of one type and one dimension.
    pub fn vector<T: Element>(&mut self, name: &'static str) -> Result<&'a [T], Error> {
        let argument = self.typed(name)?;
        argument.expect_rank(1)?;
        Ok(argument.as_slice())
    }

    /// The next argument, a number without dimensions.
    pub fn scalar<T: Element>(&mut self, name: &'static str) -> Result<T, Error> {
        let argument = self.typed(name)?;
        argument.expect_dims(&[])?;
        Ok(argument.as_slice()[0])
    }

    /// An error if there is an argument that was not taken.
    pub fn finish(self) -> Result<(), Error> {
        all_taken("argument", self.frame.arguments_len(), self.taken)
    }
}

/// The results of a call that have not been taken yet.
#[must_use = "results that are left over are an error of `finish`"]
pub struct Results<'f, 'a> {
    frame: &'f Frame<'a>,
    taken: usize,
}

impl<'f, 'a> Results<'f, 'a> {
    pub(crate) fn new(frame: &'f Frame<'a>) -> Self {
        Self { frame, taken: 0 }
    }

    /// The next result, which messages will call `name`. Each result can be had once.
    pub fn any(&mut self, name: &'static str) -> Result<AnyBufferMut<'a>, Error> {
        let result = self.frame.result(self.taken, name)?;
        self.taken += 1;
        Ok(result)
    }

    /// The next result, with elements of one type.
    pub fn typed<T: Element>(&mut self, name: &'static str) -> Result<BufferMut<'a, T>, Error> {
        self.any(name)?.typed()
    }

    /// The next result, which begins as the next argument: in its memory where the call says so, or as a copy.
    pub fn updated<T: Element>(
        &mut self,
        args: &mut Arguments<'_, 'a>,
        name: &'static str,
    ) -> Result<BufferMut<'a, T>, Error> {
        let result = self.frame.updated(args.taken, self.taken, name)?;
        args.taken += 1;
        self.taken += 1;
        Ok(result)
    }

    /// An error if there is a result that was not taken.
    pub fn finish(self) -> Result<(), Error> {
        all_taken("result", self.frame.results_len(), self.taken)
    }
}

fn all_taken(kind: &'static str, count: usize, taken: usize) -> Result<(), Error> {
    if count == taken { Ok(()) } else { Err(Error::LeftOver { kind, count, taken }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestFrame, Threads};

    fn frame() -> TestFrame {
        TestFrame::new(Threads::None)
            .arg(&[1.0, 2.0, 3.0], &[3])
            .arg(&[7_i32], &[])
            .arg(&[1_u8; 6], &[2, 3])
            .result::<f64>(&[3])
            .result::<i32>(&[])
    }

    fn message(body: impl FnOnce(&Frame) -> Result<(), Error>) -> String {
        frame().run(body).unwrap_err().message
    }

    #[test]
    fn buffers_come_in_order() {
        let mut frame = frame();
        let outcome = frame.run(|frame| {
            let (mut args, mut results) = (frame.arguments(), frame.results());
            let x: &[f64] = args.vector("x")?;
            let factor = args.scalar::<i32>("factor")?;
            let table = args.any("table")?;
            assert_eq!((table.name(), table.dims()), ("table", &[2, 3][..]));
            let mut y = results.typed::<f64>("y")?;
            let count = results.any("count")?.typed::<i32>()?.into_mut_slice();
            args.finish()?;
            results.finish()?;
            y.as_mut_slice().copy_from_slice(&[x[0] * f64::from(factor), x[1], x[2]]);
            count[0] = factor;
            Ok(())
        });
        assert_eq!(outcome, Ok(()));
        assert_eq!(frame.read::<f64>(0), [7.0, 2.0, 3.0]);
        assert_eq!(frame.read::<i32>(1), [7]);
    }

    #[test]
    fn results_begin_as_arguments() {
        let mut frame = TestFrame::new(Threads::None).arg(&[1_i32, 2], &[2]).arg(&[5.0], &[]).arg(&[3_i32], &[]);
        frame = frame.aliased_result(0).result::<f64>(&[]);
        let outcome = frame.run(|frame| {
            let (mut args, mut results) = (frame.arguments(), frame.results());
            let counts = results.updated::<i32>(&mut args, "counts")?.into_mut_slice();
            results.updated::<f64>(&mut args, "sum")?.as_mut_slice()[0] += 1.0;
            counts[1] += args.scalar::<i32>("more")?;
            args.finish()?;
            results.finish()
        });
        assert_eq!(outcome, Ok(()));
        assert_eq!((frame.read::<i32>(0), frame.read::<f64>(1)), (vec![1, 5], vec![6.0]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(
            message(|frame| frame.arguments().typed::<f32>("x").map(drop)),
            "'x' has dtype float64, expected float32"
        );
        assert_eq!(message(|frame| frame.arguments().scalar::<f64>("x").map(drop)), "'x' has shape [3], expected []");
        let second = |frame: &Frame| {
            let mut args = frame.arguments();
            args.any("x")?;
            args.vector::<i32>("factor").map(drop)
        };
        assert_eq!(message(second), "'factor' has shape [], expected 1 dimensions");
    }

    #[test]
    fn what_is_missing_is_named() {
        let too_many = |frame: &Frame| {
            let mut args = frame.arguments();
            for name in ["x", "factor", "table", "values"] {
                args.any(name)?;
            }
            Ok(())
        };
        assert_eq!(message(too_many), "argument 3 'values' is missing: the call has 3");
        let too_many = |frame: &Frame| {
            let mut results = frame.results();
            for name in ["y", "count", "mels"] {
                results.any(name)?;
            }
            Ok(())
        };
        assert_eq!(message(too_many), "result 2 'mels' is missing: the call has 2");
    }

    #[test]
    fn what_is_left_over_is_refused() {
        let left_over = |frame: &Frame| {
            let mut args = frame.arguments();
            args.any("x")?;
            args.finish()
        };
        assert_eq!(message(left_over), "the call has 3 arguments, but the handler takes 1");
        assert_eq!(message(|frame| frame.results().finish()), "the call has 2 results, but the handler takes 0");
    }

    #[test]
    fn a_result_is_had_once_however_many_cursors_there_are() {
        let twice = |frame: &Frame| {
            let _first = frame.results().any("y")?;
            frame.results().any("y").map(drop)
        };
        assert_eq!(message(twice), "result 0 'y' was handed out before");
    }
}
