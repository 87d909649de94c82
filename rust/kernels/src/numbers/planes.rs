//! Numbers as planes of vectors: of complex numbers all real parts, and then all imaginary parts.

use crate::numbers::Real;
use num_complex::Complex;
use pulp::Simd;

// Loops, since `from_fn` and `map` of arrays are calls where they aren't inlined: see `simd`.

/// A table plane by plane.
#[inline(always)]
pub(crate) fn planes<T, const P: usize>(table: &[T]) -> [&[T]; P] {
    let len = table.len() / P;
    let mut found = [table; P];
    for (place, plane) in found.iter_mut().enumerate() {
        *plane = &plane[place * len..][..len];
    }
    found
}

pub(crate) const fn none<'a, T>() -> &'a mut [T] {
    &mut []
}

/// Alike, to write.
#[inline(always)]
pub(crate) fn planes_mut<T, const P: usize>(mut table: &mut [T]) -> [&mut [T]; P] {
    let len = table.len() / P;
    let mut found = [const { none() }; P];
    for plane in &mut found {
        *plane = table.split_off_mut(..len).expect("a plane of the table");
    }
    found
}

/// The complex number with these planes.
#[inline(always)]
pub(crate) fn complex<const P: usize>(planes: [f64; P]) -> Complex<f64> {
    Complex::new(planes[0], planes.get(1).copied().unwrap_or_default())
}

/// One of the numbers of vectors.
#[inline(always)]
pub(crate) fn number<T: Real, S: Simd, const P: usize>(vectors: &[T::Vector<S>; P], lane: usize) -> [f64; P] {
    let mut number = [0.0; P];
    for (part, vector) in number.iter_mut().zip(vectors) {
        let lanes: &[T] = bytemuck::cast_slice(std::slice::from_ref(vector));
        *part = lanes[lane].into();
    }
    number
}

/// A number that makes vectors those of the other sign if it is given to [`Real::signed`], or leaves them.
#[inline(always)]
pub(crate) fn sign<T: Real, S: Simd>(simd: S, negative: bool) -> T::Vector<S> {
    // Looked up: a branch would be guessed wrong half of the time.
    T::splat(simd, [T::default(), -T::default()][usize::from(negative)])
}

/// Adds a row of a table, or subtracts it.
#[inline(always)]
pub(crate) fn add_signed<T: Real, S: Simd>(simd: S, sums: &mut [T], row: &[T], negative: bool) {
    let sign = sign::<T, S>(simd, negative);
    let sums: &mut [T::Vector<S>] = bytemuck::cast_slice_mut(sums);
    let row: &[T::Vector<S>] = bytemuck::cast_slice(row);
    for (sum, &number) in sums.iter_mut().zip(row) {
        *sum = T::plus(simd, *sum, T::signed(simd, number, sign));
    }
}
/// How many numbers a vector has.
pub(crate) const fn lanes<T: Real, S: Simd>() -> usize {
    size_of::<T::Vector<S>>() / size_of::<T>()
}

/// Tables as vectors.
#[inline(always)]
pub(crate) fn vectors<T: Real, S: Simd, const P: usize>(table: [&[T]; P]) -> [&[T::Vector<S>]; P] {
    let mut found = [&[] as &[T::Vector<S>]; P];
    for (vectors, plane) in found.iter_mut().zip(table) {
        *vectors = bytemuck::cast_slice(plane);
    }
    found
}

/// Alike, to write.
#[inline(always)]
pub(crate) fn vectors_mut<T: Real, S: Simd, const P: usize>(table: [&mut [T]; P]) -> [&mut [T::Vector<S>]; P] {
    let mut found = [const { none() }; P];
    for (vectors, plane) in found.iter_mut().zip(table) {
        *vectors = bytemuck::cast_slice_mut(plane);
    }
    found
}

/// One of the vectors of each plane.
#[inline(always)]
pub(crate) fn at<V: Copy, R: std::ops::Deref<Target = [V]>, const P: usize>(planes: &[R; P], place: usize) -> [V; P] {
    let mut found = [planes[0][place]; P];
    for plane in 1..P {
        found[plane] = planes[plane][place];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::{dispatch, each_level};
    use pulp::WithSimd;

    #[test]
    fn tables_are_cut_into_planes() {
        let mut table = [0, 1, 2, 3, 4, 5];
        assert_eq!(planes::<_, 2>(&table), [&[0, 1, 2], &[3, 4, 5]]);
        let [_, imaginary] = planes_mut::<_, 2>(&mut table);
        imaginary[0] = 9;
        assert_eq!(table, [0, 1, 2, 9, 4, 5]);
        assert_eq!(complex([2.0]), Complex::new(2.0, 0.0));
        assert_eq!(complex([2.0, -1.0]), Complex::new(2.0, -1.0));
    }

    struct Add<'a>(&'a mut [f32], &'a [f32], bool);

    impl WithSimd for Add<'_> {
        type Output = ();

        fn with_simd<S: Simd>(self, simd: S) {
            add_signed(simd, self.0, self.1, self.2);
        }
    }

    #[test]
    fn rows_are_added_or_subtracted() {
        let row: Vec<f32> = (0..32_u8).map(f32::from).collect();
        for _ in each_level() {
            let mut sums = vec![1.0; 32];
            dispatch(Add(&mut sums, &row, false));
            assert_eq!((sums[0], sums[31]), (1.0, 32.0));
            dispatch(Add(&mut sums, &row, true));
            dispatch(Add(&mut sums, &row, true));
            assert_eq!((sums[0], sums[31]), (1.0, -30.0));
        }
    }

    struct Vectors<'a>(&'a mut [f64]);

    impl WithSimd for Vectors<'_> {
        type Output = (usize, usize);

        fn with_simd<S: Simd>(self, simd: S) -> (usize, usize) {
            let [numbers] = vectors_mut::<f64, S, 1>([&mut *self.0]);
            numbers[0] = f64::splat(simd, 3.0);
            let [table] = vectors::<f64, S, 1>([self.0]);
            let [first] = at(&[table], 0);
            let first: &[f64] = bytemuck::cast_slice(std::slice::from_ref(&first));
            assert!(first.iter().all(|&number| number == 3.0));
            (table.len(), lanes::<f64, S>())
        }
    }

    #[test]
    fn vectors_hold_all_numbers() {
        for _ in each_level() {
            let (vectors, lanes) = dispatch(Vectors(&mut [0.0; 48]));
            assert_eq!(vectors * lanes, 48);
        }
    }
}
