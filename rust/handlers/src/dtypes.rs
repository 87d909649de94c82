//! From the element types of a call to the types of Rust.

use ferroket_kernels::amplitudes::fermions::Orbital;
use ferroket_xla_ffi::{AnyBuffer, AnyBufferMut, DataType, Element, Error};
use num_complex::Complex;
use std::borrow::Cow;

/// The nearest number in single precision.
#[allow(clippy::cast_possible_truncation, reason = "the nearest number is wanted")]
pub(crate) fn narrow(number: Complex<f64>) -> Complex<f32> {
    Complex::new(number.re as f32, number.im as f32)
}

fn widen(number: Complex<f32>) -> Complex<f64> {
    Complex::new(number.re.into(), number.im.into())
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

/// The values of an operator, in double precision.
pub(crate) enum Weights<'a> {
    Real(Cow<'a, [f64]>),
    Complex(Cow<'a, [Complex<f64>]>),
}

impl<'a> Weights<'a> {
    pub(crate) fn read(values: AnyBuffer<'a>) -> Result<Self, Error> {
        match values.dtype() {
            DataType::F32 => {
                let values = values.typed::<f32>()?.as_slice();
                Ok(Self::Real(values.iter().map(|&value| value.into()).collect()))
            }
            DataType::F64 => Ok(Self::Real(values.typed()?.as_slice().into())),
            DataType::C64 => {
                let values = values.typed::<Complex<f32>>()?.as_slice();
                Ok(Self::Complex(values.iter().map(|&value| widen(value)).collect()))
            }
            DataType::C128 => Ok(Self::Complex(values.typed()?.as_slice().into())),
            other => Err(Error::invalid(format!("the values have dtype {other}, but must be real or complex floats"))),
        }
    }

    /// For what is so seldom used, or so slow in any case, that it isn't compiled for real numbers too.
    pub(crate) fn into_complex(self) -> Cow<'a, [Complex<f64>]> {
        match self {
            Self::Real(values) => values.iter().map(|&value| value.into()).collect(),
            Self::Complex(values) => values,
        }
    }
}

/// Numbers of matrices in double precision, and what they are in single precision.
pub(crate) trait Numbers: Orbital + Element {
    /// In single precision.
    type Single: Element;

    /// The nearest one there.
    fn single(self) -> Self::Single;
}

impl Numbers for f64 {
    type Single = f32;

    #[allow(clippy::cast_possible_truncation, reason = "the nearest number is wanted")]
    fn single(self) -> f32 {
        self as f32
    }
}

impl Numbers for Complex<f64> {
    type Single = Complex<f32>;

    fn single(self) -> Complex<f32> {
        narrow(self)
    }
}

/// The numbers of a large result of these dimensions; none if it isn't wanted.
pub(crate) fn numbers_of<'a, T: Element>(
    result: Option<AnyBufferMut<'a>>,
    dims: &[usize],
) -> Result<&'a mut [T], Error> {
    let Some(result) = result else { return Ok(&mut []) };
    let mut result = result.typed::<T>()?;
    result.expect_dims(dims)?;
    result.advise_huge_pages();
    Ok(result.into_mut_slice())
}
