//! Pfaffians of skew-symmetric matrices: each configuration's in a lane of its own, with pivots that are in other rows in each.
//!
//! B. N. Parlett, J. K. Reid, BIT 10, 386 (1970), and M. Wimmer, ACM Trans. Math. Softw. 38, 30 (2012): a congruence makes a
//! matrix tridiagonal, two rows and columns at a time.

use super::Numbers;
use super::lu::{factor_of_pivot, gather, size};
use crate::Error;
use crate::network::words::{Words, wrong};
use crate::numbers::{Algebra, Complexes, Planes, Real, Reals, lanes};
use pulp::{NullaryFnOnce, Simd};
use std::marker::PhantomData;

/// Matrices `(n, n)` with an even n, of which what is below the diagonal is read.
#[derive(Debug)]
pub(crate) struct Pfaffian {
    n: usize,
    planes: usize,
    /// The factors of each, `(n / 2, planes)`.
    out: usize,
    /// Where their numbers are, `(n, n, planes)` of each.
    places: Vec<u32>,
}

impl Pfaffian {
    pub(super) fn read(words: &mut Words) -> Result<Self, Error> {
        let (batch, n, planes) = (words.number()?, words.number()?, words.number()?);
        if batch == 0 || n == 0 || n % 2 == 1 || !(1..=2).contains(&planes) {
            return Err(wrong(&format!("there are no Pfaffians of {n} rows whose numbers have {planes} parts")));
        }
        let out = words.run(batch.saturating_mul(n / 2).saturating_mul(planes))?;
        let all = batch.saturating_mul(n).saturating_mul(n).saturating_mul(planes);
        Ok(Self { n, planes, out, places: words.runs(all, 1)? })
    }

    pub(super) fn work(&self) -> usize {
        self.places.len() * self.n * self.planes
    }

    /// How many vectors of memory it takes.
    pub(super) fn vectors(&self) -> usize {
        (self.n * (self.n + 2) + self.n / 2) * self.planes
    }
}

/// Makes matrices tridiagonal, those of numbers of this type.
pub(super) struct Tridiagonalize<'a, T>(pub(super) &'a Pfaffian, pub(super) PhantomData<T>);

impl<T: Real> Tridiagonalize<'_, T> {
    /// With memory for [`Pfaffian::vectors`].
    #[inline(always)]
    pub(super) fn run<S: Simd, const V: usize>(
        &self,
        simd: S,
        places: &mut [Numbers<T, S, V>],
        memory: &mut [T::Vector<S>],
    ) {
        if self.0.planes == 1 {
            self.by::<S, V, 1, Reals>(simd, places, memory);
        } else {
            self.by::<S, V, 2, Complexes>(simd, places, memory);
        }
    }

    #[inline(always)]
    fn by<S: Simd, const V: usize, const P: usize, A: Algebra<P>>(
        &self,
        simd: S,
        places: &mut [Numbers<T, S, V>],
        memory: &mut [T::Vector<S>],
    ) {
        let &Pfaffian { n, out, places: ref from, .. } = self.0;
        let (rows, memory) = memory[..self.0.vectors()].split_at_mut(n * n * P);
        let (columns, factors) = memory.as_chunks_mut::<P>().0.split_at_mut(2 * n);
        for (number, from) in from.chunks_exact(n * n * P).enumerate() {
            for v in 0..V {
                gather(rows, places, from, v);
                let numbers = rows.as_chunks_mut::<P>().0;
                let matrix = Matrix::<T, S, P, A> { simd, n, numbers, columns, factors, of: PhantomData };
                // A function of its own, or there would be a copy for each number of vectors.
                simd.vectorize(matrix);
                for (out, &part) in places[out + number * n / 2 * P..].iter_mut().zip(factors.as_flattened()) {
                    out[v] = part;
                }
            }
        }
    }
}

/// The matrices of a vector of lanes, what is below the diagonal.
struct Matrix<'m, T: Real, S: Simd, const P: usize, A> {
    simd: S,
    n: usize,
    /// By rows.
    numbers: &'m mut [Planes<T, S, P>],
    /// Memory for two columns.
    columns: &'m mut [Planes<T, S, P>],
    /// Those of the Pfaffian.
    factors: &'m mut [Planes<T, S, P>],
    of: PhantomData<A>,
}

impl<T: Real, S: Simd, const P: usize, A: Algebra<P>> NullaryFnOnce for Matrix<'_, T, S, P, A> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        for step in 0..self.n / 2 {
            self.factors[step] = self.step(2 * step);
        }
    }
}

impl<T: Real, S: Simd, const P: usize, A: Algebra<P>> Matrix<'_, T, S, P, A> {
    /// Leaves out two rows and columns, and returns the factor of the Pfaffian that they are.
    #[inline(always)]
    fn step(&mut self, first: usize) -> Planes<T, S, P> {
        let (simd, n, second) = (self.simd, self.n, first + 1);
        let mut pivot = T::splat(simd, T::nearest(second as f64));
        let mut largest = T::splat(simd, -T::ONE);
        for (number, row) in self.numbers.chunks_exact(n).enumerate().skip(second) {
            let size = size::<T, S, P>(simd, row[first]);
            pivot = T::where_less::<S>(simd, largest, size, T::splat(simd, T::nearest(number as f64)), pivot);
            largest = T::where_less::<S>(simd, largest, size, size, largest);
        }
        self.exchange(first, pivot);
        let below = self.numbers[second * n + first];
        let factor = factor_of_pivot::<T, S, P, A>(simd, below);
        // A_ij − τ_i c_j + c_i τ_j with τ_i = −A_i,first / A_second,first and c_i = A_i,second
        let (tau, c) = self.columns.split_at_mut(n);
        for ((row, tau), c) in self.numbers.chunks_exact(n).zip(&mut *tau).zip(&mut *c).skip(second + 1) {
            (*tau, *c) = (A::product::<T, S>(simd, row[first], factor), row[second]);
        }
        for (number, row) in self.numbers.chunks_exact_mut(n).enumerate().skip(second + 1) {
            let (mut minus, of_c) = (tau[number], c[number]);
            for part in &mut minus {
                *part = T::negated(simd, *part);
            }
            let others = tau[second + 1..number].iter().zip(&c[second + 1..number]);
            for (number, (&tau, &c)) in row[second + 1..number].iter_mut().zip(others) {
                let sum = A::product_plus::<T, S>(simd, minus, c, *number);
                *number = A::product_plus::<T, S>(simd, of_c, tau, sum);
            }
        }
        let is_exchanged = T::splat(simd, T::nearest(second as f64));
        let mut result = below;
        for part in &mut result {
            // A_first,second, and the other sign of it where rows and columns were exchanged.
            *part = T::where_less::<S>(simd, is_exchanged, pivot, *part, T::negated(simd, *part));
        }
        result
    }

    /// Exchanges the row and the column behind `first` with those of the pivot, in each lane others.
    #[inline(always)]
    fn exchange(&mut self, first: usize, pivot: T::Vector<S>) {
        let (n, width, second) = (self.n, lanes::<T, S>(), first + 1);
        let pivots: &[T] = bytemuck::cast_slice(std::slice::from_ref(&pivot));
        let numbers: &mut [T] = bytemuck::cast_slice_mut(self.numbers.as_flattened_mut());
        for (lane, &pivot) in pivots.iter().enumerate() {
            let pivot: f64 = pivot.into();
            let pivot = pivot as usize;
            if pivot == second {
                continue;
            }
            for plane in 0..P {
                let at = |row: usize, column: usize| ((row * n + column) * P + plane) * width + lane;
                numbers.swap(at(second, first), at(pivot, first));
                for other in second + 1..pivot {
                    let (a, b) = (at(other, second), at(pivot, other));
                    (numbers[a], numbers[b]) = (-numbers[b], -numbers[a]);
                }
                for other in pivot + 1..n {
                    numbers.swap(at(other, second), at(other, pivot));
                }
                let both = at(pivot, second);
                numbers[both] = -numbers[both];
            }
        }
    }
}
