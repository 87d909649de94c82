//! From the element types of a call to the types of Rust.

use ferroket_xla_ffi::{AnyBuffer, DataType, Error};
use num_complex::Complex;
use std::borrow::Cow;

/// The nearest number in single precision.
#[allow(clippy::cast_possible_truncation, reason = "the nearest number is wanted")]
pub(crate) fn narrow(number: Complex<f64>) -> Complex<f32> {
    Complex::new(number.re as f32, number.im as f32)
}

/// Evaluates `$body` with `$type` standing for the Rust type of `$dtype`, one of the number types.
macro_rules! with_number_type {
    ($dtype:expr, $name:literal, $type:ident => $body:expr) => {{
        use ferroket_xla_ffi::DataType;
        macro_rules! with {
            ($concrete:ty) => {{
                type $type = $concrete;
                $body
            }};
        }
        match $dtype {
            DataType::I8 => with!(i8),
            DataType::I16 => with!(i16),
            DataType::I32 => with!(i32),
            DataType::I64 => with!(i64),
            DataType::U8 => with!(u8),
            DataType::U16 => with!(u16),
            DataType::U32 => with!(u32),
            DataType::U64 => with!(u64),
            DataType::F16 => with!(half::f16),
            DataType::Bf16 => with!(half::bf16),
            DataType::F32 => with!(f32),
            DataType::F64 => with!(f64),
            DataType::C64 => with!(num_complex::Complex<f32>),
            DataType::C128 => with!(num_complex::Complex<f64>),
            other => Err(ferroket_xla_ffi::Error::invalid(format!(
                "{} have dtype {other}, but must be integers of 8 to 64 bits, real or complex floats",
                $name
            ))),
        }
    }};
}

pub(crate) use with_number_type;

/// The values of an operator in double precision.
pub(crate) enum Weights<'a> {
    Real(Cow<'a, [f64]>),
    Complex(Cow<'a, [Complex<f64>]>),
}

impl<'a> Weights<'a> {
    pub(crate) fn of(values: AnyBuffer<'a>) -> Result<Self, Error> {
        Ok(match values.dtype() {
            DataType::F32 => Self::Real(values.typed::<f32>()?.as_slice().iter().map(|&v| v.into()).collect()),
            DataType::F64 => Self::Real(values.typed()?.as_slice().into()),
            DataType::C64 => {
                let wide = |v: &Complex<f32>| Complex::new(v.re.into(), v.im.into());
                Self::Complex(values.typed()?.as_slice().iter().map(wide).collect())
            }
            DataType::C128 => Self::Complex(values.typed()?.as_slice().into()),
            other => {
                return Err(Error::invalid(format!(
                    "the values have dtype {other}, but must be real or complex floats"
                )));
            }
        })
    }
}

/// Evaluates `$body` with `$weights` standing for the values of an operator, as a slice of f64 or of complex f64.
macro_rules! with_weights {
    ($values:expr, $weights:ident => $body:expr) => {{
        match $crate::dtypes::Weights::of($values)? {
            $crate::dtypes::Weights::Real(values) => {
                let $weights = &*values;
                $body
            }
            $crate::dtypes::Weights::Complex(values) => {
                let $weights = &*values;
                $body
            }
        }
    }};
}

pub(crate) use with_weights;
