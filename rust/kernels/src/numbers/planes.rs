//! Numbers as planes of vectors: of complex numbers all real parts, and then all imaginary parts.

use crate::numbers::Real;
use num_complex::Complex;
use pulp::Simd;
use std::array::from_fn;

/// A table plane by plane.
#[inline(always)]
pub(crate) fn planes<T, const P: usize>(table: &[T]) -> [&[T]; P] {
    let len = table.len() / P;
    from_fn(|plane| &table[plane * len..][..len])
}

/// Alike, to write.
#[inline(always)]
pub(crate) fn planes_mut<T, const P: usize>(mut table: &mut [T]) -> [&mut [T]; P] {
    let len = table.len() / P;
    from_fn(|_| table.split_off_mut(..len).expect("a plane of the table"))
}

/// The complex number with these planes.
#[inline(always)]
pub(crate) fn complex<const P: usize>(planes: [f64; P]) -> Complex<f64> {
    Complex::new(planes[0], planes.get(1).copied().unwrap_or_default())
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
    from_fn(|plane| bytemuck::cast_slice(table[plane]))
}

/// A plane as vectors.
#[inline(always)]
pub(crate) fn vectors_mut<T: Real, S: Simd>(plane: &mut [T]) -> &mut [T::Vector<S>] {
    bytemuck::cast_slice_mut(plane)
}

/// One of the vectors of each plane.
#[inline(always)]
pub(crate) fn at<V: Copy, R: std::ops::Deref<Target = [V]>, const P: usize>(planes: &[R; P], place: usize) -> [V; P] {
    from_fn(|plane| planes[plane][place])
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulp::{Arch, WithSimd};

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
        let mut sums = vec![1.0; 32];
        Arch::new().dispatch(Add(&mut sums, &row, false));
        assert_eq!((sums[0], sums[31]), (1.0, 32.0));
        Arch::new().dispatch(Add(&mut sums, &row, true));
        Arch::new().dispatch(Add(&mut sums, &row, true));
        assert_eq!((sums[0], sums[31]), (1.0, -30.0));
    }

    struct Vectors<'a>(&'a mut [f64]);

    impl WithSimd for Vectors<'_> {
        type Output = (usize, usize);

        fn with_simd<S: Simd>(self, simd: S) -> (usize, usize) {
            vectors_mut::<f64, S>(self.0)[0] = f64::splat(simd, 3.0);
            let [table] = vectors::<f64, S, 1>([self.0]);
            let [first] = at(&[table], 0);
            let first: &[f64] = bytemuck::cast_slice(std::slice::from_ref(&first));
            assert!(first.iter().all(|&number| number == 3.0));
            (table.len(), lanes::<f64, S>())
        }
    }

    #[test]
    fn vectors_hold_all_numbers() {
        let (vectors, lanes) = Arch::new().dispatch(Vectors(&mut [0.0; 48]));
        assert_eq!(vectors * lanes, 48);
    }
}
