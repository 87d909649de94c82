//! Element types: as XLA numbers them, as `numpy` names them, and as Rust holds them.

use half::{bf16, f16};
use num_complex::Complex;
use std::fmt;

/// Writes the enum and its conversions from one table.
macro_rules! data_types {
    ($($variant:ident = $number:literal, $name:literal;)+) => {
        /// The type of a buffer's or a scalar's elements. `Display` gives the name in `numpy`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum DataType {
            $(#[doc = concat!("`", $name, "`")] $variant,)+
            /// A type that this crate doesn't know, by its number in XLA.
            Other(i32),
        }

        impl DataType {
            /// The type that has this number in XLA.
            #[must_use]
            pub fn from_raw(number: i32) -> Self {
                match number {
                    $($number => Self::$variant,)+
                    other => Self::Other(other),
                }
            }

            /// The number of this type in XLA.
            #[must_use]
            pub fn to_raw(self) -> i32 {
                match self {
                    $(Self::$variant => $number,)+
                    Self::Other(number) => number,
                }
            }
        }

        impl fmt::Display for DataType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($name),)+
                    Self::Other(number) => write!(f, "XLA type {number}"),
                }
            }
        }

        #[cfg(test)]
        const ALL: &[(DataType, i32, &str)] = &[$((DataType::$variant, $number, $name),)+];
    };
}

data_types! {
    Pred = 1, "bool";
    I1 = 30, "int1";
    I2 = 26, "int2";
    I4 = 21, "int4";
    I8 = 2, "int8";
    I16 = 3, "int16";
    I32 = 4, "int32";
    I64 = 5, "int64";
    U1 = 31, "uint1";
    U2 = 27, "uint2";
    U4 = 22, "uint4";
    U8 = 6, "uint8";
    U16 = 7, "uint16";
    U32 = 8, "uint32";
    U64 = 9, "uint64";
    F16 = 10, "float16";
    F32 = 11, "float32";
    F64 = 12, "float64";
    Bf16 = 16, "bfloat16";
    C64 = 15, "complex64";
    C128 = 18, "complex128";
    Token = 17, "token";
    F8E5M2 = 19, "float8_e5m2";
    F8E3M4 = 29, "float8_e3m4";
    F8E4M3 = 28, "float8_e4m3";
    F8E4M3Fn = 20, "float8_e4m3fn";
    F8E4M3B11Fnuz = 23, "float8_e4m3b11fnuz";
    F8E5M2Fnuz = 24, "float8_e5m2fnuz";
    F8E4M3Fnuz = 25, "float8_e4m3fnuz";
    F4E2M1Fn = 32, "float4_e2m1fn";
    F8E8M0Fnu = 33, "float8_e8m0fnu";
}

/// A Rust type that elements of a buffer can be read and written as.
///
/// # Safety
/// The type has the size and the meaning that XLA gives to [`Element::DTYPE`], and every bit pattern is a value of it.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The type of buffers with such elements.
    const DTYPE: DataType;
}

/// XLA's `bool`. A type of its own since a Rust `bool` may hold nothing but 0 and 1, which nobody promises here.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Pred(u8);

impl Pred {
    /// Whether it is true: any byte but 0.
    #[must_use]
    pub fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Pred {
    fn from(value: bool) -> Self {
        Self(u8::from(value))
    }
}

impl From<Pred> for bool {
    fn from(value: Pred) -> Self {
        value.get()
    }
}

impl PartialEq for Pred {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Pred {}

impl fmt::Debug for Pred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

macro_rules! elements {
    ($($type:ty: $variant:ident),+ $(,)?) => {
        $(
            // SAFETY: the type is as wide as XLA's, laid out as C has it, and free of invalid bit patterns.
            unsafe impl Element for $type {
                const DTYPE: DataType = DataType::$variant;
            }
        )+
    };
}

elements! {
    Pred: Pred,
    i8: I8, i16: I16, i32: I32, i64: I64,
    u8: U8, u16: U16, u32: U32, u64: U64,
    f16: F16, bf16: Bf16, f32: F32, f64: F64,
    Complex<f32>: C64, Complex<f64>: C128,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_leads_back_to_its_type() {
        for &(dtype, number, name) in ALL {
            assert_eq!(DataType::from_raw(number), dtype);
            assert_eq!(dtype.to_raw(), number);
            assert_eq!(dtype.to_string(), name);
        }
        assert_eq!(ALL.len(), 31);
    }

    #[test]
    fn unknown_numbers_are_kept() {
        for number in [-1, 0, 13, 1000] {
            assert_eq!(DataType::from_raw(number), DataType::Other(number));
            assert_eq!(DataType::from_raw(number).to_raw(), number);
        }
        assert_eq!(DataType::Other(1000).to_string(), "XLA type 1000");
    }

    #[test]
    fn elements_have_the_numbers_and_sizes_of_xla() {
        fn of<T: Element>() -> (i32, usize) {
            (T::DTYPE.to_raw(), size_of::<T>())
        }
        assert_eq!(of::<Pred>(), (1, 1));
        assert_eq!([of::<i8>(), of::<i16>(), of::<i32>(), of::<i64>()], [(2, 1), (3, 2), (4, 4), (5, 8)]);
        assert_eq!([of::<u8>(), of::<u16>(), of::<u32>(), of::<u64>()], [(6, 1), (7, 2), (8, 4), (9, 8)]);
        assert_eq!([of::<f16>(), of::<bf16>(), of::<f32>(), of::<f64>()], [(10, 2), (16, 2), (11, 4), (12, 8)]);
        assert_eq!([of::<Complex<f32>>(), of::<Complex<f64>>()], [(15, 8), (18, 16)]);
    }

    #[test]
    fn preds_are_true_for_any_byte_but_zero() {
        assert!(!Pred(0).get());
        assert!(Pred(1).get() && Pred(255).get());
        assert_eq!(Pred(1), Pred(2));
        assert_eq!(Pred::from(true), Pred(1));
        assert!(bool::from(Pred(7)));
    }
}
