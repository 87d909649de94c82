//! What can go wrong in a call, and how the runtime gets to know.

use crate::{DataType, raw};
use std::any::Any;
use std::ffi::{CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call failed. The message reaches the user as a Python exception.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call has no argument or result with that index.
    #[error("{kind} {index} '{name}' is missing: the call has {count}")]
    Missing {
        /// `argument` or `result`.
        kind: &'static str,
        /// Its index.
        index: usize,
        /// What the handler calls it.
        name: &'static str,
        /// How many there are.
        count: usize,
    },
    /// The call has more arguments or results than the handler takes.
    #[error("the call has {count} {kind}s, but the handler takes {taken}")]
    LeftOver {
        /// `argument` or `result`.
        kind: &'static str,
        /// How many the call has.
        count: usize,
        /// How many the handler takes.
        taken: usize,
    },
    /// A result was asked for a second time; two mutable views of it would overlap.
    #[error("result {index} '{name}' was handed out before")]
    ResultTaken {
        /// Its index.
        index: usize,
        /// What the handler calls it.
        name: &'static str,
    },
    /// A result lies in the memory of an argument, as `input_output_aliases` makes it.
    #[error(
        "result {index} '{name}' shares its memory with argument {arg}; call without input_output_aliases for that pair"
    )]
    Aliased {
        /// Index of the result.
        index: usize,
        /// What the handler calls it.
        name: &'static str,
        /// Index of the argument.
        arg: usize,
    },
    /// An argument lies in the memory of a result that the handler has taken to update it.
    #[error("argument {index} '{name}' is in the memory of result {result}, which was handed out before")]
    Updated {
        /// Index of the argument.
        index: usize,
        /// What the handler calls it.
        name: &'static str,
        /// Index of the result.
        result: usize,
    },
    /// A buffer holds elements of another type.
    #[error("'{name}' has dtype {found}, expected {expected}")]
    Dtype {
        /// What the handler calls the buffer.
        name: &'static str,
        /// The type in the call.
        found: DataType,
        /// The type that the handler takes.
        expected: DataType,
    },
    /// A buffer has another number of dimensions.
    #[error("'{name}' has shape {found:?}, expected {expected} dimensions")]
    Rank {
        /// What the handler calls the buffer.
        name: &'static str,
        /// The dimensions in the call.
        found: Vec<usize>,
        /// How many the handler takes.
        expected: usize,
    },
    /// A buffer has other dimensions.
    #[error("'{name}' has shape {found:?}, expected {expected:?}")]
    Dims {
        /// What the handler calls the buffer.
        name: &'static str,
        /// The dimensions in the call.
        found: Vec<usize>,
        /// The dimensions that the handler takes.
        expected: Vec<usize>,
    },
    /// A buffer's memory is not aligned for its elements.
    #[error("the data of '{name}' is not aligned to {align} bytes")]
    Misaligned {
        /// What the handler calls the buffer.
        name: &'static str,
        /// The alignment that the elements need.
        align: usize,
    },
    /// The call has no attribute with that name.
    #[error("attribute '{name}' is missing: the call has {present:?}")]
    MissingAttribute {
        /// The name.
        name: String,
        /// The attributes that there are.
        present: Vec<String>,
    },
    /// An attribute holds something else.
    #[error("attribute '{name}' is {found}, expected {expected}")]
    Attribute {
        /// The name.
        name: String,
        /// What it is.
        found: String,
        /// What the handler takes.
        expected: &'static str,
    },
    /// The runtime handed over something that the C API rules out.
    #[error("malformed call: {0}")]
    Malformed(String),
    /// The handler's own message.
    #[error("{0}")]
    Handler(String),
    /// The handler panicked, which is a bug in it.
    #[error("the handler panicked: {0}")]
    Panicked(String),
}

impl Error {
    /// An error of the handler's own: the arguments are wrong for the reason that `message` gives.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Handler(message.into())
    }

    /// The status code under which the runtime files this error.
    #[must_use]
    pub fn code(&self) -> c_int {
        match self {
            Self::Malformed(_) | Self::Panicked(_) | Self::ResultTaken { .. } | Self::Updated { .. } => {
                raw::CODE_INTERNAL
            }
            _ => raw::CODE_INVALID_ARGUMENT,
        }
    }

    /// The error for what [`std::panic::catch_unwind`] caught.
    pub(crate) fn from_panic(payload: Box<dyn Any + Send>) -> Self {
        let unknown = |payload| {
            // The destructor of a payload of any other type could panic in its turn.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(move || drop::<Box<dyn Any + Send>>(payload))) {
                std::mem::forget(payload);
            }
            "unknown reason".to_owned()
        };
        let message = payload
            .downcast::<String>()
            .map(|message| *message)
            .or_else(|payload| payload.downcast::<&str>().map(|message| (*message).to_owned()))
            .unwrap_or_else(unknown);
        Self::Panicked(message)
    }

    /// Hands the error to the runtime, in a form that the runtime owns.
    ///
    /// # Safety
    /// `api` is null or points to the table of a runtime.
    pub(crate) unsafe fn into_raw(self, api: *const raw::Api) -> *mut raw::Error {
        // A zero byte would end the message early.
        let message = CString::new(self.to_string().replace('\0', "\u{fffd}")).unwrap_or_default();
        let mut args = raw::ErrorCreateArgs {
            struct_size: size_of::<raw::ErrorCreateArgs>(),
            extension_start: std::ptr::null_mut(),
            message: message.as_ptr(),
            code: self.code(),
        };
        // SAFETY: the caller vouches for `api`; the runtime copies the message during the call.
        let error = unsafe { raw::Api::error_create(api).map(|create| create(&raw mut args)) };
        match error {
            Some(error) if !error.is_null() => error,
            // Null means success: the program would go on with results that nobody wrote.
            _ => {
                eprintln!("ferroket: the XLA runtime can't take an error: {self}");
                std::process::abort()
            }
        }
    }
}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Self::Handler(message)
    }
}

impl From<&str> for Error {
    fn from(message: &str) -> Self {
        Self::Handler(message.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestFrame, Threads};

    #[test]
    fn messages_name_what_was_found_and_what_was_expected() {
        let error = Error::LeftOver { kind: "argument", count: 3, taken: 2 };
        assert_eq!(error.to_string(), "the call has 3 arguments, but the handler takes 2");
        let error = Error::Dtype { name: "x", found: DataType::I8, expected: DataType::F64 };
        assert_eq!(error.to_string(), "'x' has dtype int8, expected float64");
        let error = Error::Dims { name: "x", found: vec![2, 3], expected: vec![] };
        assert_eq!(error.to_string(), "'x' has shape [2, 3], expected []");
    }

    #[test]
    fn own_messages_are_passed_on_as_they_are() {
        assert_eq!(Error::invalid("no sites").to_string(), "no sites");
        assert_eq!(Error::from("a"), Error::Handler("a".into()));
        assert_eq!(Error::from("a".to_owned()), Error::Handler("a".into()));
    }

    #[test]
    fn codes_tell_wrong_arguments_from_defects() {
        assert_eq!(Error::invalid("").code(), 3);
        assert_eq!(Error::Misaligned { name: "x", align: 8 }.code(), 3);
        assert_eq!(Error::Panicked(String::new()).code(), 13);
        assert_eq!(Error::Malformed(String::new()).code(), 13);
    }

    #[test]
    fn panics_of_any_payload_become_errors() {
        let caught = |payload: Box<dyn Any + Send>| Error::from_panic(payload).to_string();
        assert_eq!(caught(Box::new("a str")), "the handler panicked: a str");
        assert_eq!(caught(Box::new("a String".to_owned())), "the handler panicked: a String");
        assert_eq!(caught(Box::new(17)), "the handler panicked: unknown reason");
    }

    #[test]
    #[cfg_attr(miri, ignore = "leaks on purpose")]
    fn a_payload_that_panics_in_its_turn_is_caught() {
        struct PanicsAgain;
        impl Drop for PanicsAgain {
            fn drop(&mut self) {
                panic!("again");
            }
        }
        assert_eq!(Error::from_panic(Box::new(PanicsAgain)).to_string(), "the handler panicked: unknown reason");
    }

    #[test]
    fn zero_bytes_do_not_cut_the_message() {
        let failure = TestFrame::new(Threads::None).run(|_| Err(Error::invalid("a\0b"))).unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (3, "a\u{fffd}b"));
    }
}
