//! Matrices as products of triangular ones, P A = L U: each configuration's in a lane of its own, with the largest element of a
//! column as its pivot, which is in another row in each lane.
//!
//! G. H. Golub, C. F. Van Loan, Matrix Computations, section 3.4: panels of some columns, each of which takes the products of
//! those before it, and then what is right of the panel, which takes all its products at once.

use super::Numbers;
use crate::Error;
use crate::network::words::{Words, wrong};
use crate::numbers::{Algebra, Complexes, Planes, Real, Reals, lanes, none};
use pulp::{NullaryFnOnce, Simd};
use std::marker::PhantomData;

/// Matrices `(n, n)`, whose numbers have so many planes.
#[derive(Debug)]
pub(crate) struct Lu {
    n: usize,
    planes: usize,
    /// Of each matrix which row was exchanged with each, `(n,)`, the order of the rows, `(n,)`, and the diagonal of U,
    /// `(n, planes)`.
    diagonals: usize,
    /// L below the diagonal, and U, `(n, n, planes)`; None if nobody reads them.
    triangles: Option<usize>,
    /// Where their numbers are, `(n, n, planes)` of each.
    places: Vec<u32>,
}

impl Lu {
    pub(super) fn read(words: &mut Words) -> Result<Self, Error> {
        let (batch, n, planes) = (words.number()?, words.number()?, words.number()?);
        if batch == 0 || n == 0 || !(1..=2).contains(&planes) {
            return Err(wrong(&format!("there are no matrices of {n} rows whose numbers have {planes} parts")));
        }
        let all = batch.saturating_mul(n).saturating_mul(n).saturating_mul(planes);
        let diagonals = words.run(batch.saturating_mul(n).saturating_mul(2 + planes))?;
        let triangles = if words.number()? > 0 { Some(words.run(all)?) } else { None };
        Ok(Self { n, planes, diagonals, triangles, places: words.runs(all, 1)? })
    }

    pub(super) fn work(&self) -> usize {
        self.places.len() * self.n * self.planes
    }

    /// How many vectors of memory it takes.
    pub(super) fn vectors(&self) -> usize {
        self.n * (self.n * self.planes + 2)
    }
}

/// Decomposes matrices of numbers of this type.
pub(super) struct Decompose<'a, T>(pub(super) &'a Lu, pub(super) PhantomData<T>);

impl<T: Real> Decompose<'_, T> {
    /// With memory for [`Lu::vectors`].
    #[inline(always)]
    pub(super) fn run<S: Simd, const V: usize>(
        &self,
        simd: S,
        places: &mut [Numbers<T, S, V>],
        memory: &mut [T::Vector<S>],
    ) {
        // As many sums as there are registers for, beside the factors that they have in common.
        match (self.0.planes, S::REGISTER_COUNT >= 32) {
            (1, true) => self.by::<S, V, 1, Reals, 4, 4>(simd, places, memory),
            (1, false) => self.by::<S, V, 1, Reals, 4, 2>(simd, places, memory),
            (_, true) => self.by::<S, V, 2, Complexes, 4, 2>(simd, places, memory),
            (_, false) => self.by::<S, V, 2, Complexes, 2, 2>(simd, places, memory),
        }
    }

    /// By panels of `K` columns, and `R` rows at once.
    #[inline(always)]
    fn by<S: Simd, const V: usize, const P: usize, A: Algebra<P>, const K: usize, const R: usize>(
        &self,
        simd: S,
        places: &mut [Numbers<T, S, V>],
        memory: &mut [T::Vector<S>],
    ) {
        let &Lu { n, diagonals, triangles, places: ref from, .. } = self.0;
        let (rows, of_rows) = memory[..self.0.vectors()].split_at_mut(n * n * P);
        let (pivots, order) = of_rows.split_at_mut(n);
        for (number, from) in from.chunks_exact(n * n * P).enumerate() {
            for v in 0..V {
                gather(rows, places, from, v);
                for (row, place) in order.iter_mut().enumerate() {
                    *place = T::splat(simd, T::nearest(row as f64));
                }
                let has_triangles = triangles.is_some();
                let numbers = rows.as_chunks_mut::<P>().0;
                let matrix = Matrix::<T, S, P, A> { simd, n, has_triangles, numbers, pivots, order, of: PhantomData };
                // A function of its own, or there would be a copy for each number of vectors.
                simd.vectorize(Decomposition::<T, S, P, A, K, R>(matrix));
                let out = &mut places[diagonals + number * n * (2 + P)..][..n * (2 + P)];
                for (row, (&pivot, &order)) in pivots.iter().zip(&*order).enumerate() {
                    (out[row][v], out[n + row][v]) = (pivot, order);
                    for plane in 0..P {
                        out[2 * n + row * P + plane][v] = rows[row * (n + 1) * P + plane];
                    }
                }
                if let Some(first) = triangles {
                    for (out, &number) in places[first + number * n * n * P..].iter_mut().zip(&*rows) {
                        out[v] = number;
                    }
                }
            }
        }
    }
}

/// The numbers of one of the vectors of lanes at some places.
#[inline(always)]
pub(super) fn gather<X: Copy, const V: usize>(numbers: &mut [X], places: &[[X; V]], from: &[u32], v: usize) {
    let is_run = from.iter().zip(from[0]..).all(|(&place, expected)| place == expected);
    if is_run {
        for (number, place) in numbers.iter_mut().zip(&places[from[0] as usize..][..from.len()]) {
            *number = place[v];
        }
    } else {
        for (number, &place) in numbers.iter_mut().zip(from) {
            *number = places[place as usize][v];
        }
    }
}

/// What [`Decompose`] does with the matrices of a vector of lanes.
struct Decomposition<'m, T: Real, S: Simd, const P: usize, A, const K: usize, const R: usize>(Matrix<'m, T, S, P, A>);

impl<T: Real, S: Simd, const P: usize, A: Algebra<P>, const K: usize, const R: usize> NullaryFnOnce
    for Decomposition<'_, T, S, P, A, K, R>
{
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        self.0.decompose::<K, R>();
    }
}

/// The matrices of a vector of lanes. Below the diagonal of the columns that are done they have −L.
struct Matrix<'m, T: Real, S: Simd, const P: usize, A> {
    simd: S,
    n: usize,
    /// Whether columns that are done are needed.
    has_triangles: bool,
    /// By rows.
    numbers: &'m mut [Planes<T, S, P>],
    pivots: &'m mut [T::Vector<S>],
    order: &'m mut [T::Vector<S>],
    of: PhantomData<A>,
}

impl<T: Real, S: Simd, const P: usize, A: Algebra<P>> Matrix<'_, T, S, P, A> {
    #[inline(always)]
    fn decompose<const K: usize, const R: usize>(&mut self) {
        let n = self.n;
        let mut first = 0;
        while first < n {
            match K.min(n - first) {
                1 => self.panel::<1>(first),
                2 => self.panel::<2>(first),
                3 => self.panel::<3>(first),
                _ => self.panel::<4>(first),
            }
            if first + K < n {
                self.update::<K, R>(first);
            }
            first += K;
        }
        if self.has_triangles {
            for row in 1..n {
                for number in &mut self.numbers[row * n..row * n + row] {
                    for plane in number {
                        *plane = T::negated(self.simd, *plane);
                    }
                }
            }
        }
    }

    /// So many columns from `first` on.
    #[inline(always)]
    fn panel<const K: usize>(&mut self, first: usize) {
        let factor = self.column::<0>(first, [T::splat(self.simd, T::default()); P]);
        let factor = if K > 1 { self.column::<1>(first, factor) } else { factor };
        let factor = if K > 2 { self.column::<2>(first, factor) } else { factor };
        let factor = if K > 3 { self.column::<3>(first, factor) } else { factor };
        let (simd, column) = (self.simd, first + K - 1);
        for row in self.numbers[(column + 1) * self.n..].chunks_exact_mut(self.n) {
            row[column] = A::product::<T, S>(simd, row[column], factor);
        }
    }

    /// The column behind `C` others of a panel: it takes their products, and its pivot comes to the diagonal. The column before it
    /// is still to be multiplied by `factor`; what itself is to be multiplied by is returned, −1 / pivot.
    #[inline(always)]
    fn column<const C: usize>(&mut self, first: usize, factor: Planes<T, S, P>) -> Planes<T, S, P> {
        let (simd, n, column) = (self.simd, self.n, first + C);
        let (done, open) = self.numbers.split_at_mut(column * n);
        let mut above = [[T::splat(simd, T::default()); P]; C];
        for (t, row) in done[first * n..].chunks_exact_mut(n).enumerate() {
            let mut sum = row[column];
            for s in 0..t {
                sum = A::product_plus::<T, S>(simd, row[first + s], above[s], sum);
            }
            (row[column], above[t]) = (sum, sum);
        }
        let mut pivot = T::splat(simd, T::nearest(column as f64));
        let mut largest = T::splat(simd, -T::ONE);
        for (number, row) in open.chunks_exact_mut(n).enumerate() {
            let row = &mut row[first..=column];
            let mut sum = row[C];
            for s in 0..C {
                if s + 1 == C {
                    row[s] = A::product::<T, S>(simd, row[s], factor);
                }
                sum = A::product_plus::<T, S>(simd, row[s], above[s], sum);
            }
            row[C] = sum;
            let size = size::<T, S, P>(simd, sum);
            let number = T::splat(simd, T::nearest((column + number) as f64));
            pivot = T::where_less::<S>(simd, largest, size, number, pivot);
            largest = T::where_less::<S>(simd, largest, size, size, largest);
        }
        self.pivots[column] = pivot;
        self.exchange(column, if self.has_triangles { 0 } else { first });
        factor_of_pivot::<T, S, P, A>(simd, self.numbers[column * n + column])
    }

    /// Exchanges a row with that of the pivot, in each lane another one, from a column on.
    #[inline(always)]
    fn exchange(&mut self, row: usize, from: usize) {
        let (n, width) = (self.n, lanes::<T, S>());
        let pivots: &[T] = bytemuck::cast_slice(&self.pivots[row..=row]);
        let order: &mut [T] = bytemuck::cast_slice_mut(self.order);
        let numbers: &mut [T] = bytemuck::cast_slice_mut(self.numbers.as_flattened_mut());
        for (lane, &pivot) in pivots.iter().enumerate() {
            let pivot: f64 = pivot.into();
            let pivot = pivot as usize;
            if pivot != row {
                if self.has_triangles {
                    order.swap(row * width + lane, pivot * width + lane);
                }
                let (above, below) = numbers.split_at_mut(pivot * n * P * width);
                let above = above[(row * n + from) * P * width + lane..][..=((n - from) * P - 1) * width].iter_mut();
                let below = below[from * P * width + lane..].iter_mut();
                for (a, b) in above.step_by(width).zip(below.step_by(width)) {
                    (*a, *b) = (*b, *a);
                }
            }
        }
    }

    /// What is right of a panel of `K` columns: U above, and below it the products of the panel, `R` rows at once.
    #[inline(always)]
    fn update<const K: usize, const R: usize>(&mut self, first: usize) {
        let (simd, n) = (self.simd, self.n);
        let (above, below) = self.numbers[first * n..].split_at_mut(K * n);
        for t in 1..K {
            let (rows, row) = above.split_at_mut(t * n);
            let (factors, row) = row[first..n].split_at_mut(K);
            for (s, of_row) in rows.chunks_exact(n).enumerate() {
                for (number, &other) in row.iter_mut().zip(&of_row[first + K..]) {
                    *number = A::product_plus::<T, S>(simd, factors[s], other, *number);
                }
            }
        }
        let mut of_panel = [&above[..0]; K];
        for (row, of_row) in above.chunks_exact(n).zip(&mut of_panel) {
            *of_row = &row[first + K..];
        }
        let mut blocks = below.chunks_exact_mut(R * n);
        for block in blocks.by_ref() {
            let mut rows = [const { none() }; R];
            for (row, of_block) in rows.iter_mut().zip(block.chunks_exact_mut(n)) {
                *row = of_block;
            }
            add_products::<T, S, P, A, K, R>(simd, first, &of_panel, rows);
        }
        for row in blocks.into_remainder().chunks_exact_mut(n) {
            add_products::<T, S, P, A, K, 1>(simd, first, &of_panel, [row]);
        }
    }
}

/// Adds products of `K` numbers of each of `R` rows, those from `first` on, with as many other rows, to what is behind them.
#[inline(always)]
fn add_products<T: Real, S: Simd, const P: usize, A: Algebra<P>, const K: usize, const R: usize>(
    simd: S,
    first: usize,
    others: &[&[Planes<T, S, P>]; K],
    rows: [&mut [Planes<T, S, P>]; R],
) {
    let mut factors = [[[T::splat(simd, T::default()); P]; K]; R];
    let mut targets = [const { none() }; R];
    for ((row, factors), target) in rows.into_iter().zip(&mut factors).zip(&mut targets) {
        let (before, behind) = row.split_at_mut(first + K);
        factors.copy_from_slice(&before[first..]);
        *target = behind;
    }
    products::<T, S, P, A, K, R>(simd, &factors, others, &mut targets);
}

/// Adds products of `R` rows of `K` numbers and `K` rows to `R` rows.
#[inline(always)]
pub(super) fn products<T: Real, S: Simd, const P: usize, A: Algebra<P>, const K: usize, const R: usize>(
    simd: S,
    factors: &[[Planes<T, S, P>; K]; R],
    others: &[&[Planes<T, S, P>]; K],
    targets: &mut [&mut [Planes<T, S, P>]; R],
) {
    for column in 0..others[0].len() {
        let mut of_column = [[T::splat(simd, T::default()); P]; K];
        for (number, other) in of_column.iter_mut().zip(others) {
            *number = other[column];
        }
        for (target, factors) in targets.iter_mut().zip(factors) {
            let mut sum = target[column];
            for (&factor, &number) in factors.iter().zip(&of_column) {
                sum = A::product_plus::<T, S>(simd, factor, number, sum);
            }
            target[column] = sum;
        }
    }
}

/// How large a number is, as pivots are compared: the sum of the moduli of its parts, as in LAPACK.
#[inline(always)]
pub(super) fn size<T: Real, S: Simd, const P: usize>(simd: S, number: Planes<T, S, P>) -> T::Vector<S> {
    let mut size = T::modulus::<S>(simd, number[0]);
    for &part in &number[1..] {
        size = T::plus(simd, size, T::modulus::<S>(simd, part));
    }
    size
}

/// −1 / x, and 0 of 0: all that such a pivot would divide is 0.
#[inline(always)]
pub(super) fn factor_of_pivot<T: Real, S: Simd, const P: usize, A: Algebra<P>>(
    simd: S,
    x: Planes<T, S, P>,
) -> Planes<T, S, P> {
    let size = size::<T, S, P>(simd, x);
    let mut inverse = inverse::<T, S, P, A>(simd, x);
    for (inverse, &part) in inverse.iter_mut().zip(&x) {
        // A number that is none remains so.
        *inverse = T::where_less::<S>(simd, T::splat(simd, T::default()), size, T::negated(simd, *inverse), part);
    }
    inverse
}

/// 1 / x.
#[inline(always)]
pub(super) fn inverse<T: Real, S: Simd, const P: usize, A: Algebra<P>>(simd: S, x: Planes<T, S, P>) -> Planes<T, S, P> {
    let mut numerator = [T::splat(simd, T::default()); P];
    let scale = T::over(simd, T::splat(simd, T::ONE), size::<T, S, P>(simd, x));
    // Of moderate size, so that its square is, too.
    let mut scaled = x;
    for part in &mut scaled {
        *part = T::times(simd, *part, scale);
    }
    numerator[0] = scale;
    A::quotient::<T, S>(simd, numerator, scaled).0
}
