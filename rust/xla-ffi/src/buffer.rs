//! Buffers: first of any type, as the runtime hands them over, then typed, as slices.

use crate::{DataType, Element, Error, raw};
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

/// The dimensions of a buffer; a call has many buffers, and most of them few dimensions.
type Dims = SmallVec<[usize; 4]>;

/// Name, element type and dimensions of a buffer; every kind of buffer derefs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    name: &'static str,
    dtype: DataType,
    dims: Dims,
    len: usize,
}

impl Shape {
    /// What the handler calls the buffer.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// The dimensions; the last one runs fastest in memory.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// How many elements there are: the product of the dimensions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// An error unless there are that many dimensions.
    pub fn expect_rank(&self, rank: usize) -> Result<(), Error> {
        if self.dims.len() == rank {
            return Ok(());
        }
        Err(Error::Rank { name: self.name, found: self.dims.to_vec(), expected: rank })
    }

    /// An error unless these are the dimensions.
    pub fn expect_dims(&self, dims: &[usize]) -> Result<(), Error> {
        if *self.dims == *dims {
            return Ok(());
        }
        Err(Error::Dims { name: self.name, found: self.dims.to_vec(), expected: dims.to_vec() })
    }

    /// An error unless these are the elements.
    fn expect_dtype(&self, expected: DataType) -> Result<(), Error> {
        if self.dtype == expected {
            return Ok(());
        }
        Err(Error::Dtype { name: self.name, found: self.dtype, expected })
    }
}

/// Reads a buffer's description. The data is not touched.
///
/// # Safety
/// `buffer` is null or points to a buffer of the runtime.
unsafe fn describe(buffer: *const raw::Buffer, name: &'static str) -> Result<(Shape, *mut u8), Error> {
    let malformed = |what: &str| Error::Malformed(format!("{what} of '{name}'"));
    // SAFETY: `struct_size` is the first field; the others are read only if it covers them.
    if buffer.is_null() || unsafe { (*buffer).struct_size } < size_of::<raw::Buffer>() {
        return Err(Error::Malformed(format!("the description of '{name}' is missing or too short")));
    }
    // SAFETY: as just checked.
    let buffer = unsafe { &*buffer };
    // SAFETY: `dims` points to `rank` numbers.
    let dims = unsafe { raw_slice(buffer.dims, buffer.rank) }.ok_or_else(|| malformed("the rank"))?;
    let dims: Dims = dims
        .iter()
        .map(|&dim| usize::try_from(dim))
        .collect::<Result<_, _>>()
        .map_err(|_| malformed("a negative dimension"))?;
    let len = element_count(&dims).ok_or_else(|| malformed("the size"))?;
    Ok((Shape { name, dtype: DataType::from_raw(buffer.dtype), dims, len }, buffer.data.cast()))
}

/// Where the elements of a buffer are, if it has any.
///
/// # Safety
/// As for [`describe`].
pub(crate) unsafe fn address(buffer: *const raw::Buffer) -> Option<usize> {
    // SAFETY: as in `describe`.
    if buffer.is_null() || unsafe { (*buffer).struct_size } < size_of::<raw::Buffer>() {
        return None;
    }
    // SAFETY: as just checked; `dims` points to `rank` numbers.
    let (dims, data) = unsafe { (raw_slice((*buffer).dims, (*buffer).rank)?, (*buffer).data) };
    (!dims.contains(&0) && !data.is_null()).then(|| data.addr())
}

/// The product of the dimensions, if it is a number at all.
pub(crate) fn element_count(dims: &[usize]) -> Option<usize> {
    // With a zero anywhere the product is zero, whatever the others multiply to.
    if dims.contains(&0) { Some(0) } else { dims.iter().try_fold(1_usize, |len, &dim| len.checked_mul(dim)) }
}

/// An array of the C API as a slice; `None` if its length is negative or its pointer null without need.
///
/// # Safety
/// `data` is null or points to `len` values that live as long as `'a`.
pub(crate) unsafe fn raw_slice<'a, T>(data: *const T, len: i64) -> Option<&'a [T]> {
    match usize::try_from(len) {
        Ok(0) => Some(&[]),
        // SAFETY: the caller vouches for pointer and length.
        Ok(len) if !data.is_null() => Some(unsafe { std::slice::from_raw_parts(data, len) }),
        _ => None,
    }
}

/// Checks that a slice of `shape.len()` elements `T` may start at `data`.
fn typed_pointer<T: Element>(shape: &Shape, data: *mut u8) -> Result<NonNull<T>, Error> {
    shape.expect_dtype(T::DTYPE)?;
    if shape.is_empty() {
        // The runtime may have no memory for it, but a slice needs a pointer.
        return Ok(NonNull::dangling());
    }
    let name = shape.name;
    let bytes = shape.len.checked_mul(size_of::<T>()).and_then(|bytes| isize::try_from(bytes).ok());
    let Some(data) = NonNull::new(data.cast::<T>()).filter(|_| bytes.is_some()) else {
        return Err(Error::Malformed(format!("the data of '{name}' is null or larger than memory")));
    };
    if !data.is_aligned() {
        return Err(Error::Misaligned { name, align: align_of::<T>() });
    }
    Ok(data)
}

/// An argument whose element type is not settled yet.
#[derive(Debug)]
pub struct AnyBuffer<'a> {
    shape: Shape,
    data: *mut u8,
    _call: PhantomData<&'a [u8]>,
}

impl<'a> AnyBuffer<'a> {
    /// # Safety
    /// `buffer` is null or points to a buffer of the runtime; nobody writes to its elements during `'a`.
    pub(crate) unsafe fn new(buffer: *const raw::Buffer, name: &'static str) -> Result<Self, Error> {
        // SAFETY: handed on to the caller.
        let (shape, data) = unsafe { describe(buffer, name) }?;
        Ok(Self { shape, data, _call: PhantomData })
    }

    /// The buffer as one of `T`; an error if its elements are of another type.
    pub fn typed<T: Element>(self) -> Result<Buffer<'a, T>, Error> {
        let data = typed_pointer::<T>(&self.shape, self.data)?;
        // SAFETY: pointer, type, alignment and size are checked, and nobody writes there, see `new`.
        let data = unsafe { std::slice::from_raw_parts(data.as_ptr(), self.shape.len) };
        Ok(Buffer { shape: self.shape, data })
    }
}

impl Deref for AnyBuffer<'_> {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

/// A result whose element type is not settled yet.
#[derive(Debug)]
pub struct AnyBufferMut<'a> {
    shape: Shape,
    data: *mut u8,
    _call: PhantomData<&'a mut [u8]>,
}

impl<'a> AnyBufferMut<'a> {
    /// # Safety
    /// `buffer` is null or points to a buffer of the runtime; nobody else touches its elements during `'a`.
    pub(crate) unsafe fn new(buffer: *const raw::Buffer, name: &'static str) -> Result<Self, Error> {
        // SAFETY: handed on to the caller.
        let (shape, data) = unsafe { describe(buffer, name) }?;
        Ok(Self { shape, data, _call: PhantomData })
    }

    /// The buffer as one of `T`; an error if its elements are of another type.
    pub fn typed<T: Element>(self) -> Result<BufferMut<'a, T>, Error> {
        let data = typed_pointer::<T>(&self.shape, self.data)?;
        // SAFETY: pointer, type, alignment and size are checked, and nobody else is there, see `new`. Any bytes are
        // a `T`, so it doesn't matter that nothing has been written yet.
        let data = unsafe { std::slice::from_raw_parts_mut(data.as_ptr(), self.shape.len) };
        Ok(BufferMut { shape: self.shape, data })
    }
}

impl Deref for AnyBufferMut<'_> {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

/// An argument.
#[derive(Debug, Clone)]
pub struct Buffer<'a, T> {
    shape: Shape,
    data: &'a [T],
}

impl<'a, T: Element> Buffer<'a, T> {
    /// The elements, row by row.
    #[must_use]
    pub fn as_slice(&self) -> &'a [T] {
        self.data
    }
}

impl<T> Deref for Buffer<'_, T> {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

/// A result. What its elements hold before they are written is arbitrary.
#[derive(Debug)]
pub struct BufferMut<'a, T> {
    shape: Shape,
    data: &'a mut [T],
}

impl<'a, T: Element> BufferMut<'a, T> {
    /// The elements, row by row.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self.data
    }

    /// The elements, row by row, for as long as the call runs.
    #[must_use]
    pub fn into_mut_slice(self) -> &'a mut [T] {
        self.data
    }
}

impl<T> Deref for BufferMut<'_, T> {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}
