//! The attributes of a call: numbers and strings that were known when the program was compiled.

use crate::buffer::raw_slice;
use crate::{DataType, Error, Frame, raw};
use std::ffi::c_void;

/// The attributes, in three arrays of one length.
pub(crate) struct Attributes<'a> {
    pub(crate) types: &'a [i32],
    pub(crate) names: &'a [*mut raw::ByteSpan],
    pub(crate) values: &'a [*mut c_void],
}

impl<'a> Frame<'a> {
    /// The attribute `name`, an integer of 32 or 64 bits.
    pub fn attr_i64(&self, name: &str) -> Result<i64, Error> {
        let expected = "an int64 or int32 scalar";
        self.attrs.scalar(name, expected, |dtype, value| match dtype {
            // SAFETY: the value of a scalar is of the type that it says.
            DataType::I64 => Some(unsafe { value.cast::<i64>().read_unaligned() }),
            // SAFETY: as above.
            DataType::I32 => Some(i64::from(unsafe { value.cast::<i32>().read_unaligned() })),
            _ => None,
        })
    }

    /// The attribute `name`, a boolean.
    pub fn attr_bool(&self, name: &str) -> Result<bool, Error> {
        self.attrs.scalar(name, "a bool scalar", |dtype, value| match dtype {
            // SAFETY: the value of a scalar is of the type that it says; a bool is one byte.
            DataType::Pred => Some(unsafe { value.cast::<u8>().read() } != 0),
            _ => None,
        })
    }

    /// The attribute `name`, a real number of 32 or 64 bits.
    pub fn attr_f64(&self, name: &str) -> Result<f64, Error> {
        let expected = "a float64 or float32 scalar";
        self.attrs.scalar(name, expected, |dtype, value| match dtype {
            // SAFETY: the value of a scalar is of the type that it says.
            DataType::F64 => Some(unsafe { value.cast::<f64>().read_unaligned() }),
            // SAFETY: as above.
            DataType::F32 => Some(f64::from(unsafe { value.cast::<f32>().read_unaligned() })),
            _ => None,
        })
    }

    /// The attribute `name`, an array of integers of 32 or 64 bits.
    pub fn attr_i64s(&self, name: &str) -> Result<Vec<i64>, Error> {
        let expected = "an array of int64 or int32";
        self.attrs.array(name, expected, |dtype, data, len| match dtype {
            // SAFETY: an array has as many numbers as it says, of the type that it says.
            DataType::I64 => Some(unsafe { read_numbers::<i64>(data, len) }.collect()),
            // SAFETY: as above.
            DataType::I32 => Some(unsafe { read_numbers::<i32>(data, len) }.map(i64::from).collect()),
            _ => None,
        })
    }

    /// The attribute `name`, an array of real numbers of 32 or 64 bits.
    pub fn attr_f64s(&self, name: &str) -> Result<Vec<f64>, Error> {
        let expected = "an array of float64 or float32";
        self.attrs.array(name, expected, |dtype, data, len| match dtype {
            // SAFETY: an array has as many numbers as it says, of the type that it says.
            DataType::F64 => Some(unsafe { read_numbers::<f64>(data, len) }.collect()),
            // SAFETY: as above.
            DataType::F32 => Some(unsafe { read_numbers::<f32>(data, len) }.map(f64::from).collect()),
            _ => None,
        })
    }

    /// The attribute `name`, a string.
    pub fn attr_str(&self, name: &str) -> Result<&'a str, Error> {
        let expected = "a string";
        let (kind, value) = self.attrs.find(name)?;
        if kind != raw::ATTR_STRING {
            return Err(wrong_attribute(name, describe_attribute(kind), expected));
        }
        // SAFETY: the value of such an attribute is a byte span.
        let bytes = unsafe { span_bytes(value.cast()) };
        std::str::from_utf8(bytes).map_err(|_| wrong_attribute(name, "a string that is not UTF-8".into(), expected))
    }
}

impl<'a> Attributes<'a> {
    /// The type and the value of an attribute.
    fn find(&self, name: &str) -> Result<(i32, *mut c_void), Error> {
        // They are sorted, but handlers have a handful of them: looking at each is as fast.
        match self.names().position(|bytes| bytes == name.as_bytes()) {
            Some(index) => Ok((self.types[index], self.values[index])),
            None => Err(Error::MissingAttribute {
                name: name.into(),
                present: self.names().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect(),
            }),
        }
    }

    fn names(&self) -> impl Iterator<Item = &'a [u8]> {
        // SAFETY: the names are byte spans of the runtime.
        self.names.iter().map(|&name| unsafe { span_bytes(name) })
    }

    /// The value of a scalar attribute, read by `read`, which gives `None` for types that it doesn't take.
    fn scalar<T>(
        &self,
        name: &str,
        expected: &'static str,
        read: impl Fn(DataType, *const c_void) -> Option<T>,
    ) -> Result<T, Error> {
        let (kind, value) = self.find(name)?;
        if kind != raw::ATTR_SCALAR || value.is_null() {
            return Err(wrong_attribute(name, describe_attribute(kind), expected));
        }
        // SAFETY: the value of such an attribute is a scalar.
        let scalar = unsafe { &*value.cast::<raw::Scalar>() };
        let dtype = DataType::from_raw(scalar.dtype);
        if scalar.value.is_null() {
            return Err(Error::Malformed(format!("the value of attribute '{name}' is null")));
        }
        read(dtype, scalar.value).ok_or_else(|| wrong_attribute(name, format!("a scalar of type {dtype}"), expected))
    }

    /// The numbers of an array attribute, read by `read`, which gives `None` for types that it doesn't take.
    fn array<T>(
        &self,
        name: &str,
        expected: &'static str,
        read: impl Fn(DataType, *const c_void, usize) -> Option<Vec<T>>,
    ) -> Result<Vec<T>, Error> {
        let (kind, value) = self.find(name)?;
        if kind != raw::ATTR_ARRAY || value.is_null() {
            return Err(wrong_attribute(name, describe_attribute(kind), expected));
        }
        // SAFETY: the value of such an attribute is an array.
        let array = unsafe { &*value.cast::<raw::Array>() };
        let dtype = DataType::from_raw(array.dtype);
        if array.size > 0 && array.data.is_null() {
            return Err(Error::Malformed(format!("the numbers of attribute '{name}' are null")));
        }
        read(dtype, array.data, array.size)
            .ok_or_else(|| wrong_attribute(name, format!("an array of type {dtype}"), expected))
    }
}

/// The numbers of an array, which the runtime may have put anywhere.
///
/// # Safety
/// `data` points to `len` numbers of type `T`, aligned or not, that stay there as long as the iterator is used.
unsafe fn read_numbers<T: Copy>(data: *const c_void, len: usize) -> impl Iterator<Item = T> {
    // SAFETY: the caller vouches for the numbers.
    (0..len).map(move |index| unsafe { data.cast::<T>().add(index).read_unaligned() })
}

fn wrong_attribute(name: &str, found: String, expected: &'static str) -> Error {
    Error::Attribute { name: name.into(), found, expected }
}

fn describe_attribute(kind: i32) -> String {
    match kind {
        raw::ATTR_ARRAY => "an array".into(),
        raw::ATTR_DICTIONARY => "a dictionary".into(),
        raw::ATTR_SCALAR => "a scalar".into(),
        raw::ATTR_STRING => "a string".into(),
        other => format!("of the unknown kind {other}"),
    }
}

/// The bytes of a span; none if it is null.
///
/// # Safety
/// `span` is null or points to a span whose bytes live as long as `'a`.
unsafe fn span_bytes<'a>(span: *const raw::ByteSpan) -> &'a [u8] {
    // SAFETY: the caller vouches for the span, and a span for its bytes.
    unsafe { span.as_ref().and_then(|span| raw_slice(span.ptr.cast::<u8>(), i64::try_from(span.len).ok()?)) }
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestFrame, Threads};

    fn ok(frame: &mut TestFrame, body: impl FnOnce(&Frame) -> Result<(), Error>) {
        assert_eq!(frame.run(body), Ok(()));
    }

    fn message(frame: &mut TestFrame, body: impl FnOnce(&Frame) -> Result<(), Error>) -> String {
        frame.run(body).unwrap_err().message
    }

    #[test]
    fn attributes_are_found_by_name() {
        let mut call = TestFrame::new(Threads::None)
            .attr_i64("sites", -7)
            .attr_i32("chunk", 1 << 20)
            .attr_bool("hermitian", true)
            .attr_f64("beta", 0.25)
            .attr_f32("gamma", 1.5)
            .attr_str("model", "J₁-J₂");
        ok(&mut call, |frame| {
            assert_eq!(frame.attr_i64("sites")?, -7);
            assert_eq!(frame.attr_i64("chunk")?, 1 << 20);
            assert!(frame.attr_bool("hermitian")?);
            assert!((frame.attr_f64("beta")? - 0.25).abs() < f64::EPSILON);
            assert!((frame.attr_f64("gamma")? - 1.5).abs() < f64::EPSILON);
            assert_eq!(frame.attr_str("model")?, "J₁-J₂");
            Ok(())
        });
    }

    #[test]
    fn attributes_may_be_arrays() {
        let mut call = TestFrame::new(Threads::None)
            .attr_array("sizes", &[2_i64, -3, 4])
            .attr_array("kinds", &[1_i32, -1])
            .attr_array("starts", &[0.25, -1.0])
            .attr_array("steps", &[0.5_f32])
            .attr_array::<f64>("none", &[]);
        ok(&mut call, |frame| {
            assert_eq!(frame.attr_i64s("sizes")?, [2, -3, 4]);
            assert_eq!(frame.attr_i64s("kinds")?, [1, -1]);
            assert_eq!(frame.attr_f64s("starts")?, [0.25, -1.0]);
            assert_eq!(frame.attr_f64s("steps")?, [0.5]);
            assert!(frame.attr_f64s("none")?.is_empty());
            Ok(())
        });
    }

    #[test]
    fn wrong_arrays_are_named() {
        let mut call = TestFrame::new(Threads::None).attr_array("sizes", &[2_i64]).attr_f64("start", 1.0);
        assert_eq!(
            message(&mut call, |frame| frame.attr_f64s("sizes").map(drop)),
            "attribute 'sizes' is an array of type int64, expected an array of float64 or float32"
        );
        assert_eq!(
            message(&mut call, |frame| frame.attr_i64s("start").map(drop)),
            "attribute 'start' is a scalar, expected an array of int64 or int32"
        );
        assert_eq!(
            message(&mut call, |frame| frame.attr_i64("sizes").map(drop)),
            "attribute 'sizes' is an array, expected an int64 or int32 scalar"
        );
        assert_eq!(
            message(&mut call, |frame| frame.attr_i64s("kinds").map(drop)),
            r#"attribute 'kinds' is missing: the call has ["sizes", "start"]"#
        );
    }

    #[test]
    fn wrong_attributes_are_named() {
        let mut call = TestFrame::new(Threads::None).attr_i64("sites", 3).attr_str("model", "x");
        assert_eq!(
            message(&mut call, |frame| frame.attr_i64("site").map(drop)),
            r#"attribute 'site' is missing: the call has ["model", "sites"]"#
        );
        assert_eq!(
            message(&mut call, |frame| frame.attr_f64("sites").map(drop)),
            "attribute 'sites' is a scalar of type int64, expected a float64 or float32 scalar"
        );
        assert_eq!(
            message(&mut call, |frame| frame.attr_bool("model").map(drop)),
            "attribute 'model' is a string, expected a bool scalar"
        );
        assert_eq!(
            message(&mut call, |frame| frame.attr_str("sites").map(drop)),
            "attribute 'sites' is a scalar, expected a string"
        );
        let mut call = TestFrame::new(Threads::None);
        assert_eq!(
            message(&mut call, |frame| frame.attr_bool("sites").map(drop)),
            "attribute 'sites' is missing: the call has []"
        );
    }
}
