//! Sums, products, minima and maxima of integers as XLA means them, where the MPI library has them wrong.
//!
//! Open MPI's vectorised sums of 8 and 16 bits stop at the largest value, where XLA's wrap around; MPICH 4.0.2
//! compares unsigned integers as signed ones. Each library is asked at the start, by reductions within this process;
//! what it gets wrong is then done by functions of our own.

use std::ffi::{c_int, c_void};

use crate::abi::{self, Handle, SUCCESS, datatype as dt};
use crate::library::api::{Api, RealHandle, Reduction as Function};

const OPERATIONS: [Handle; 4] = [abi::SUM, abi::PROD, abi::MIN, abi::MAX];
const DATATYPES: [Handle; 8] =
    [dt::INT8, dt::INT16, dt::INT32, dt::INT64, dt::UINT8, dt::UINT16, dt::UINT32, dt::UINT64];
/// Enough for the widest vectors, and a rest that doesn't fill one.
const LENGTH: usize = 143;
const WIDEST: usize = 8;

/// Operations of our own, by the library's handle widened; none where the library's is right.
#[derive(Debug, Default)]
pub(crate) struct Reductions([[Option<Handle>; OPERATIONS.len()]; DATATYPES.len()]);

macro_rules! functions {
    ($($integer:ty),*) => {
        [$({
            unsafe extern "C" fn sum(from: *mut c_void, to: *mut c_void, length: *mut c_int, _: *mut c_void) {
                // SAFETY: MPI calls it with as many values of this type as it says.
                unsafe { combine(from, to, length, <$integer>::wrapping_add) }
            }
            unsafe extern "C" fn product(from: *mut c_void, to: *mut c_void, length: *mut c_int, _: *mut c_void) {
                // SAFETY: as above.
                unsafe { combine(from, to, length, <$integer>::wrapping_mul) }
            }
            unsafe extern "C" fn minimum(from: *mut c_void, to: *mut c_void, length: *mut c_int, _: *mut c_void) {
                // SAFETY: as above.
                unsafe { combine(from, to, length, <$integer as Ord>::min) }
            }
            unsafe extern "C" fn maximum(from: *mut c_void, to: *mut c_void, length: *mut c_int, _: *mut c_void) {
                // SAFETY: as above.
                unsafe { combine(from, to, length, <$integer as Ord>::max) }
            }
            [sum as Function, product, minimum, maximum]
        }),*]
    };
}

/// In the orders of the two tables above.
const FUNCTIONS: [[Function; OPERATIONS.len()]; DATATYPES.len()] = functions!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Combines values with those at `to`, in place.
///
/// # Safety
/// There have to be `*length` values of `T` at both places, which don't overlap.
unsafe fn combine<T: Copy>(from: *mut c_void, to: *mut c_void, length: *mut c_int, f: impl Fn(T, T) -> T) {
    // SAFETY: the caller answers for the values.
    let (from, to) = unsafe {
        let length = (*length).unsigned_abs() as usize;
        (std::slice::from_raw_parts(from.cast::<T>(), length), std::slice::from_raw_parts_mut(to.cast::<T>(), length))
    };
    for (value, result) in from.iter().zip(to) {
        *result = f(*value, *result);
    }
}

macro_rules! function {
    ($number:ty, $combination:expr) => {{
        unsafe extern "C" fn function(from: *mut c_void, to: *mut c_void, length: *mut c_int, _: *mut c_void) {
            // SAFETY: MPI calls it with as many values of this type as it says.
            unsafe { combine::<$number>(from, to, length, $combination) }
        }
        function as Function
    }};
}

macro_rules! of_float {
    ($float:ty, $operation:expr) => {
        match $operation {
            abi::SUM => function!($float, |a, b| a + b),
            abi::PROD => function!($float, |a, b| a * b),
            // XLA hands on what isn't a number.
            abi::MIN => function!($float, |a, b| if a.is_nan() || a < b { a } else { b }),
            abi::MAX => function!($float, |a, b| if a.is_nan() || a > b { a } else { b }),
            _ => return None,
        }
    };
}

macro_rules! of_complex {
    ($float:ty, $operation:expr) => {
        match $operation {
            abi::SUM => function!([$float; 2], |a, b| [a[0] + b[0], a[1] + b[1]]),
            abi::PROD => function!([$float; 2], |a, b| [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]),
            _ => return None,
        }
    };
}

/// The function of our own that reduces values of a datatype, if there is one: it combines values with those at its
/// second argument, in place.
pub(crate) fn function(datatype: Handle, operation: Handle) -> Option<Function> {
    Some(match datatype {
        dt::FLOAT => of_float!(f32, operation),
        dt::DOUBLE => of_float!(f64, operation),
        dt::C_COMPLEX => of_complex!(f32, operation),
        dt::C_DOUBLE_COMPLEX => of_complex!(f64, operation),
        _ => {
            let row = DATATYPES.iter().position(|&known| known == datatype)?;
            let column = OPERATIONS.iter().position(|&known| known == operation)?;
            FUNCTIONS[row][column]
        }
    })
}

impl Reductions {
    /// Finds out which of the library's operations are wrong, on any rank, and makes our own for these. MPI has to
    /// run; a collective of all ranks over `comm`. An error is MPI's code.
    pub(crate) fn examine<H: RealHandle>(api: &Api<H>, comm: H) -> Result<Self, c_int> {
        let checked = |code| if code == SUCCESS { Ok(()) } else { Err(code) };
        let mut wrong = [[0_i32; OPERATIONS.len()]; DATATYPES.len()];
        for (row, (&datatype, functions)) in wrong.iter_mut().zip(DATATYPES.iter().zip(&FUNCTIONS)) {
            for (flag, (&operation, &function)) in row.iter_mut().zip(OPERATIONS.iter().zip(functions)) {
                *flag = i32::from(!is_right(api, datatype, operation, function)?);
            }
        }
        // The same operations on all ranks: the nodes may have different processors.
        let mut anywhere = wrong;
        let (Ok(int32), Ok(max)) = (api.datatype(dt::INT32), api.operation(abi::MAX)) else {
            return Ok(Self::default());
        };
        let (from, to) = (wrong.as_ptr().cast(), anywhere.as_mut_ptr().cast());
        let length = (OPERATIONS.len() * DATATYPES.len()) as c_int;
        // SAFETY: there is as much room as the length says.
        checked(unsafe { (api.functions.allreduce)(from, to, length, int32, max, comm) })?;
        let mut own = Self::default();
        for (row, (flags, functions)) in own.0.iter_mut().zip(anywhere.iter().zip(&FUNCTIONS)) {
            for (entry, (&flag, &function)) in row.iter_mut().zip(flags.iter().zip(functions)) {
                if flag != 0 {
                    let mut made = api.no_group();
                    // SAFETY: the function is as the standard has it; all of ours commute.
                    checked(unsafe { (api.functions.op_create)(function, 1, &raw mut made) })?;
                    *entry = Some(made.widen());
                }
            }
        }
        Ok(own)
    }

    /// Our own operation for a datatype, by the library's handle, where the library's isn't right.
    pub(crate) fn own<H: RealHandle>(&self, datatype: Handle, operation: Handle) -> Option<H> {
        let row = DATATYPES.iter().position(|&known| known == datatype)?;
        let column = OPERATIONS.iter().position(|&known| known == operation)?;
        self.0[row][column].map(H::narrow)
    }
}

/// Whether the library reduces values of all sizes, and of both signs, as our function does.
fn is_right<H: RealHandle>(
    api: &Api<H>,
    datatype: Handle,
    operation: Handle,
    function: Function,
) -> Result<bool, c_int> {
    let (Ok(real_datatype), Ok(real_operation)) = (api.datatype(datatype), api.operation(operation)) else {
        return Ok(true);
    };
    // Bytes of all values; as 64-bit integers they are aligned for each type.
    let mix =
        |seed: u64| std::array::from_fn::<u64, LENGTH, _>(|i| (i as u64 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (mut from, start) = (mix(1), mix(1000));
    let (mut ours, mut theirs) = (start, start);
    let mut length = (LENGTH * WIDEST / dt::describe(datatype).map_or(WIDEST, |(_, size)| size)) as c_int;
    // SAFETY: the three arrays have room for so many values of the datatype.
    let code = unsafe {
        function(from.as_mut_ptr().cast(), ours.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut());
        (api.functions.reduce_local)(
            from.as_ptr().cast(),
            theirs.as_mut_ptr().cast(),
            length,
            real_datatype,
            real_operation,
        )
    };
    if code == SUCCESS { Ok(ours == theirs) } else { Err(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced<T>(datatype: Handle, operation: Handle, mut from: [T; 2], mut to: [T; 2]) -> [T; 2] {
        let row = DATATYPES.iter().position(|&known| known == datatype).expect("an integer");
        let column = OPERATIONS.iter().position(|&known| known == operation).expect("an operation");
        let mut length = 2;
        let (from, at) = (from.as_mut_ptr().cast(), to.as_mut_ptr().cast());
        // SAFETY: there are two values of the datatype at both places.
        unsafe { FUNCTIONS[row][column](from, at, &raw mut length, std::ptr::null_mut()) };
        to
    }

    #[test]
    fn sums_and_products_wrap_around() {
        assert_eq!(reduced(dt::INT8, abi::SUM, [100_i8, -100], [100, -100]), [-56, 56]);
        assert_eq!(reduced(dt::UINT16, abi::SUM, [65535_u16, 1], [2, 3]), [1, 4]);
        assert_eq!(reduced(dt::INT64, abi::PROD, [i64::MAX, 3], [2, 4]), [-2, 12]);
    }

    #[test]
    fn floats_hand_on_what_is_not_a_number() {
        let reduced = |operation, mut from: [f64; 2], mut to: [f64; 2]| {
            let mut length = 2;
            let function = function(dt::DOUBLE, operation).expect("there is one");
            // SAFETY: there are two values at both places.
            unsafe {
                function(from.as_mut_ptr().cast(), to.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut());
            };
            to
        };
        let of_bits = |values: [f64; 2]| values.map(f64::to_bits);
        assert_eq!(of_bits(reduced(abi::MIN, [1., 4.], [2., 3.])), of_bits([1., 3.]));
        assert!(reduced(abi::MIN, [f64::NAN, 4.], [2., f64::NAN]).iter().all(|value| value.is_nan()));
        assert!(reduced(abi::MAX, [f64::NAN, 4.], [2., f64::NAN]).iter().all(|value| value.is_nan()));
        assert_eq!(of_bits(reduced(abi::PROD, [2., 4.], [3., -1.])), of_bits([6., -4.]));
    }

    #[test]
    fn complex_numbers_are_multiplied_as_such() {
        let (mut from, mut to, mut length) = ([1_f32, 2.], [3_f32, -1.], 1);
        let function = function(dt::C_COMPLEX, abi::PROD).expect("there is one");
        // SAFETY: there is a complex number at both places.
        unsafe { function(from.as_mut_ptr().cast(), to.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut()) };
        assert_eq!(to.map(f32::to_bits), [5_f32; 2].map(f32::to_bits));
        assert!(super::function(dt::C_COMPLEX, abi::MAX).is_none());
    }

    #[test]
    fn unsigned_values_are_compared_as_such() {
        assert_eq!(reduced(dt::UINT8, abi::MAX, [200_u8, 1], [100, 2]), [200, 2]);
        assert_eq!(reduced(dt::INT8, abi::MAX, [-56_i8, 1], [100, 2]), [100, 2]);
        assert_eq!(reduced(dt::UINT64, abi::MIN, [u64::MAX, 1], [7, 2]), [7, 1]);
    }
}
