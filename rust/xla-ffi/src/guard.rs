//! The one way from the runtime into our code, and back without a panic.

use crate::{Error, Frame, raw};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// Runs `body` for a call, and returns null or the error that it gave.
///
/// The body runs in the execute stage only. A question for the handler's metadata is answered here, and the stages
/// before execution succeed without doing anything. A panic becomes an error.
///
/// # Safety
/// `frame` is what the runtime called a handler with: a valid frame whose buffers, unless aliased as arguments, nobody
/// else writes to before this returns.
pub unsafe fn guard(
    frame: *mut raw::CallFrame,
    body: impl for<'a> FnOnce(&Frame<'a>) -> Result<(), Error>,
) -> *mut raw::Error {
    // SAFETY: handed on to the caller. What is left half-done by a panic is the results, and a failed call has none.
    let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { respond(frame, body) }));
    match outcome.unwrap_or_else(|payload| Err(Error::from_panic(payload))) {
        Ok(()) => ptr::null_mut(),
        // SAFETY: the table comes second in every frame.
        Err(error) => unsafe { error.into_raw((*frame).api) },
    }
}

/// # Safety
/// As for [`guard()`].
unsafe fn respond(
    frame: *mut raw::CallFrame,
    body: impl for<'a> FnOnce(&Frame<'a>) -> Result<(), Error>,
) -> Result<(), Error> {
    // First the extensions: in a probe there is no context, and the rest of the frame may be empty.
    // SAFETY: the caller vouches for the frame, and the runtime for its list of extensions.
    unsafe {
        let mut extension = (*frame).extension_start;
        while !extension.is_null() {
            if (*extension).kind == raw::EXTENSION_METADATA {
                return answer(extension.cast());
            }
            extension = (*extension).next;
        }
        if (*frame).struct_size < size_of::<raw::CallFrame>() {
            return Err(Error::Malformed("the call frame is too short".into()));
        }
        if (*frame).stage != raw::STAGE_EXECUTE {
            return Ok(());
        }
        body(&Frame::new(frame)?)
    }
}

/// Tells the runtime for which version of the API handlers are made.
///
/// # Safety
/// `extension` points to an extension of that kind.
unsafe fn answer(extension: *mut raw::MetadataExtension) -> Result<(), Error> {
    let end_of_traits = offset_of!(raw::Metadata, traits) + size_of::<u32>();
    // SAFETY: each struct starts with its size, and is touched only as far as that says.
    unsafe {
        if (*extension).base.struct_size < size_of::<raw::MetadataExtension>()
            || (*extension).metadata.is_null()
            || (*(*extension).metadata).struct_size < end_of_traits
        {
            return Err(Error::Malformed("the question for metadata is too short".into()));
        }
        let metadata = (*extension).metadata;
        (*metadata).api_version = raw::ApiVersion {
            struct_size: size_of::<raw::ApiVersion>(),
            extension_start: ptr::null_mut(),
            major: raw::API_MAJOR,
            minor: raw::API_MINOR,
        };
        (*metadata).traits = 0;
    }
    Ok(())
}

/// Declares a handler that XLA can call around a function `fn(&Frame) -> Result<(), Error>`.
///
/// See the [crate's documentation](crate) for an example.
#[macro_export]
macro_rules! handler {
    ($(#[$meta:meta])* $vis:vis fn $name:ident = $body:path $(;)?) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// For the XLA runtime to call, with a valid call frame.
        $vis unsafe extern "C" fn $name(frame: *mut $crate::raw::CallFrame) -> *mut $crate::raw::Error {
            // SAFETY: the caller is the runtime, and vouches for the frame.
            unsafe { $crate::guard(frame, $body) }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Failure, TestFrame, Threads, destroyed_errors};

    fn double(frame: &Frame) -> Result<(), Error> {
        let x = frame.arguments().typed::<i32>("x")?;
        let mut y = frame.results().typed::<i32>("y")?;
        y.expect_dims(x.dims())?;
        for (y, x) in y.as_mut_slice().iter_mut().zip(x.as_slice()) {
            *y = 2 * x;
        }
        Ok(())
    }

    handler! {
        /// Twice the argument.
        fn double_handler = double;
    }

    fn probe(handler: raw::Handler, struct_size: usize) -> (raw::Metadata, Result<(), Failure>) {
        let mut metadata = raw::Metadata {
            struct_size,
            api_version: raw::ApiVersion { struct_size: 0, extension_start: ptr::null_mut(), major: -1, minor: -1 },
            traits: 77,
        };
        let mut extension = raw::MetadataExtension {
            base: raw::ExtensionBase {
                struct_size: size_of::<raw::MetadataExtension>(),
                kind: raw::EXTENSION_METADATA,
                next: ptr::null_mut(),
            },
            metadata: &raw mut metadata,
        };
        // The runtime may put others before it.
        let mut other = raw::ExtensionBase {
            struct_size: size_of::<raw::ExtensionBase>(),
            kind: 99,
            next: (&raw mut extension).cast(),
        };
        let mut call = TestFrame::new(Threads::None);
        call.frame_mut().extension_start = &raw mut other;
        call.frame_mut().ctx = ptr::null_mut();
        let outcome = call.execute(handler);
        (metadata, outcome)
    }

    #[test]
    fn a_probe_learns_the_version() {
        // 36 is the end of `traits`, all that the runtime of version 0.1 knows.
        for struct_size in [36, 40, 48] {
            let (metadata, outcome) = probe(double_handler, struct_size);
            assert_eq!(outcome, Ok(()));
            let version = metadata.api_version;
            assert_eq!((version.struct_size, version.major, version.minor), (24, 0, 1));
            assert_eq!(metadata.traits, 0);
            assert_eq!(metadata.struct_size, struct_size);
        }
    }

    #[test]
    fn too_short_a_probe_is_left_alone() {
        let (metadata, outcome) = probe(double_handler, 32);
        assert_eq!(outcome.unwrap_err().message, "malformed call: the question for metadata is too short");
        assert_eq!((metadata.api_version.minor, metadata.traits), (-1, 77));
    }

    #[test]
    fn success_is_null_and_the_results_are_there() {
        let mut call = TestFrame::new(Threads::None).arg(&[1, 2, 3], &[3]).result::<i32>(&[3]);
        assert_eq!(call.execute(double_handler), Ok(()));
        assert_eq!(call.read::<i32>(0), [2, 4, 6]);
    }

    #[test]
    fn a_frame_of_the_oldest_size_is_enough_and_a_shorter_one_is_refused() {
        let mut call = TestFrame::new(Threads::None).arg(&[21], &[]).result::<i32>(&[]);
        call.frame_mut().struct_size = 168;
        assert_eq!(call.execute(double_handler), Ok(()));
        assert_eq!(call.read::<i32>(0), [42]);
        call.frame_mut().struct_size = 160;
        let failure = call.execute(double_handler).unwrap_err();
        assert_eq!(failure, Failure { code: 13, message: "malformed call: the call frame is too short".into() });
    }

    #[test]
    fn earlier_stages_do_nothing() {
        for stage in 0..3 {
            let mut call = TestFrame::new(Threads::None);
            call.frame_mut().stage = stage;
            assert_eq!(call.run(|_| panic!("must not run in stage {stage}")), Ok(()));
        }
    }

    #[test]
    fn errors_carry_code_and_message() {
        let mut call = TestFrame::new(Threads::None).arg(&[1.0_f32], &[1]).result::<i32>(&[1]);
        let failure = call.execute(double_handler).unwrap_err();
        assert_eq!(failure, Failure { code: 3, message: "'x' has dtype float32, expected int32".into() });
        let before = destroyed_errors();
        assert_eq!(call.run(|_| Err("own words".into())).unwrap_err().message, "own words");
        // The runtime destroys what it was given.
        assert_eq!(destroyed_errors(), before + 1);
    }

    #[test]
    fn panics_do_not_unwind_into_the_runtime() {
        let failure = TestFrame::new(Threads::None).run(|_| panic!("site {} of {}", 5, 4)).unwrap_err();
        assert_eq!(failure, Failure { code: 13, message: "the handler panicked: site 5 of 4".into() });
        let failure = TestFrame::new(Threads::None).run(|_| std::panic::panic_any(3)).unwrap_err();
        assert_eq!(failure.message, "the handler panicked: unknown reason");
    }
}
