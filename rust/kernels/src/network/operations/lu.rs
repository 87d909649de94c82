//! Matrices as products of triangular ones, P A = L U: each configuration's in a lane of its own, with the largest element of a
//! column as its pivot, which is in another row in each lane.
//!
//! G. H. Golub, C. F. Van Loan, Matrix Computations, section 3.4: panels of some columns, each of which takes the products of
//! those before it, and then what is right of the panel, which takes all its products at once.

use super::Numbers;
use crate::Error;
use crate::network::words::{Words, wrong};
use crate::numbers::{Algebra, Complexes, Planes, Real, Reals, lanes};
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
            (_, false) => self.by::<S, V, 2, Complexes, 2, 1>(simd, places, memory),
        }
    }

    /// By panels of `K` columns, and `W` of the other columns at once.
    #[inline(always)]
    fn by<S: Simd, const V: usize, const P: usize, A: Algebra<P>, const K: usize, const W: usize>(
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
                simd.vectorize(Decomposition::<T, S, P, A, K, W>(matrix));
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

/// Up to so many rows for each lane are few.
const FEW: usize = 2;

/// What [`Decompose`] does with the matrices of a vector of lanes.
struct Decomposition<'m, T: Real, S: Simd, const P: usize, A, const K: usize, const W: usize>(Matrix<'m, T, S, P, A>);

impl<T: Real, S: Simd, const P: usize, A: Algebra<P>, const K: usize, const W: usize> NullaryFnOnce
    for Decomposition<'_, T, S, P, A, K, W>
{
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        self.0.decompose::<K, W>();
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
    fn decompose<const K: usize, const W: usize>(&mut self) {
        let n = self.n;
        let mut first = 0;
        while first < n {
            match K.min(n - first) {
                1 => self.panel::<1, W>(first),
                2 => self.panel::<2, W>(first),
                3 => self.panel::<3, W>(first),
                _ => self.panel::<4, W>(first),
            }
            for column in (first + K..n).step_by(W) {
                match W.min(n - column) {
                    1 => self.update::<K, 1>(first, column),
                    2 => self.update::<K, 2>(first, column),
                    3 => self.update::<K, 3>(first, column),
                    _ => self.update::<K, 4>(first, column),
                }
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

    /// So many columns from `first` on. Those before them are exchanged alike, `W` at once, if they are needed.
    #[inline(always)]
    fn panel<const K: usize, const W: usize>(&mut self, first: usize) {
        let factor = self.column::<0, K>(first, [T::splat(self.simd, T::default()); P]);
        let factor = if K > 1 { self.column::<1, K>(first, factor) } else { factor };
        let factor = if K > 2 { self.column::<2, K>(first, factor) } else { factor };
        let factor = if K > 3 { self.column::<3, K>(first, factor) } else { factor };
        let (simd, n, column) = (self.simd, self.n, first + K - 1);
        for row in self.numbers[(column + 1) * n..].chunks_exact_mut(n) {
            row[column] = A::product::<T, S>(simd, row[column], factor);
        }
        if self.has_triangles && self.has_few_rows(first) {
            // Those of panels that are done, each of which is some times so many.
            for column in (0..first).step_by(W) {
                let rows = self.exchange::<K, W>(first, column);
                self.put(first, column, &rows);
            }
            self.exchange_order::<K>(first);
        }
    }

    /// The column behind `C` others of a panel of `K`: it takes their products, and its pivot comes to the diagonal. The column
    /// before it is still to be multiplied by `factor`; what itself is to be multiplied by is returned, −1 / pivot.
    #[inline(always)]
    fn column<const C: usize, const K: usize>(&mut self, first: usize, factor: Planes<T, S, P>) -> Planes<T, S, P> {
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
        if self.has_few_rows(first) {
            // The other columns follow when the panel is done.
            let row = self.exchange::<1, K>(column, first);
            self.put(column, first, &row);
        } else {
            self.exchange_by_lanes(column, if self.has_triangles { 0 } else { first });
        }
        factor_of_pivot::<T, S, P, A>(simd, self.numbers[column * n + column])
    }

    /// Whether the rows from `first` on are so few that it takes less time to look which of them are pivots than to exchange those
    /// lane by lane.
    #[inline(always)]
    fn has_few_rows(&self, first: usize) -> bool {
        self.n - first <= FEW * lanes::<T, S>()
    }

    /// Exchanges a row with that of the pivot, in each lane another one, from a column on.
    #[inline(always)]
    fn exchange_by_lanes(&mut self, row: usize, from: usize) {
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

    /// Exchanges `K` rows from `first` on, one after the other, with those of their pivots, in each lane other ones, in `W` columns.
    /// The `K` rows are returned, and not written.
    #[inline(always)]
    fn exchange<const K: usize, const W: usize>(&mut self, first: usize, column: usize) -> [[Planes<T, S, P>; W]; K] {
        let (simd, n) = (self.simd, self.n);
        let pivots: [T::Vector<S>; K] = self.pivots[first..first + K].try_into().expect("as many");
        let mut above = self.rows::<K, W>(first, column);
        // Among themselves first: what a later one of them does to rows below isn't changed by that.
        for t in 0..K {
            let (own, others) = above[t..].split_at_mut(1);
            for (other, row) in others.iter_mut().zip(first + t + 1..) {
                let is_pivot = T::equal(simd, pivots[t], T::splat(simd, T::nearest(row as f64)));
                exchange_where::<T, S, P, W>(simd, is_pivot, &mut own[0], other);
            }
        }
        for (row, numbers) in self.numbers.chunks_exact_mut(n).enumerate().skip(first + K) {
            let row = T::splat(simd, T::nearest(row as f64));
            let mut is_pivot = [T::equal(simd, pivots[0], row); K];
            let mut is_any = T::any(simd, is_pivot[0]);
            for t in 1..K {
                is_pivot[t] = T::equal(simd, pivots[t], row);
                is_any |= T::any(simd, is_pivot[t]);
            }
            if is_any {
                let numbers: &mut [Planes<T, S, P>; W] =
                    (&mut numbers[column..column + W]).try_into().expect("as many");
                let mut below = *numbers;
                for t in 0..K {
                    exchange_where::<T, S, P, W>(simd, is_pivot[t], &mut above[t], &mut below);
                }
                *numbers = below;
            }
        }
        above
    }

    /// `W` columns of `K` rows.
    #[inline(always)]
    fn rows<const K: usize, const W: usize>(&self, first: usize, column: usize) -> [[Planes<T, S, P>; W]; K] {
        let mut rows = [[[T::splat(self.simd, T::default()); P]; W]; K];
        for (row, numbers) in rows.iter_mut().zip(self.numbers[first * self.n..].chunks_exact(self.n)) {
            row.copy_from_slice(&numbers[column..column + W]);
        }
        rows
    }

    /// Writes them.
    #[inline(always)]
    fn put<const K: usize, const W: usize>(&mut self, first: usize, column: usize, rows: &[[Planes<T, S, P>; W]; K]) {
        for (numbers, row) in self.numbers[first * self.n..].chunks_exact_mut(self.n).zip(rows) {
            numbers[column..column + W].copy_from_slice(row);
        }
    }

    /// Exchanges the numbers of the rows, as the rows of `K` columns.
    #[inline(always)]
    fn exchange_order<const K: usize>(&mut self, first: usize) {
        for row in first..first + K {
            let (done, below) = self.order.split_at_mut(row + 1);
            for (other, number) in below.iter_mut().zip(row + 1..) {
                let is_pivot = T::equal(self.simd, self.pivots[row], T::splat(self.simd, T::nearest(number as f64)));
                let (a, b) = (done[row], *other);
                done[row] = T::choose(self.simd, is_pivot, b, a);
                *other = T::choose(self.simd, is_pivot, a, b);
            }
        }
    }

    /// `W` columns right of a panel of `K`: U above, and below it the products of the panel.
    #[inline(always)]
    fn update<const K: usize, const W: usize>(&mut self, first: usize, column: usize) {
        let (simd, n) = (self.simd, self.n);
        let mut above: [[Planes<T, S, P>; W]; K] =
            if self.has_few_rows(first) { self.exchange(first, column) } else { self.rows(first, column) };
        for t in 1..K {
            let (done, open) = above.split_at_mut(t);
            for (s, others) in done.iter().enumerate() {
                let factor = self.numbers[(first + t) * n + first + s];
                for (number, &other) in open[0].iter_mut().zip(others) {
                    *number = A::product_plus::<T, S>(simd, factor, other, *number);
                }
            }
        }
        self.put(first, column, &above);
        for row in self.numbers[(first + K) * n..].chunks_exact_mut(n) {
            let (done, open) = row.split_at_mut(column);
            let factors: [Planes<T, S, P>; K] = done[first..first + K].try_into().expect("as many");
            let numbers: &mut [Planes<T, S, P>; W] = (&mut open[..W]).try_into().expect("as many");
            let mut sums = *numbers;
            for (factor, others) in factors.iter().zip(&above) {
                for (sum, &other) in sums.iter_mut().zip(others) {
                    *sum = A::product_plus::<T, S>(simd, *factor, other, *sum);
                }
            }
            *numbers = sums;
        }
    }
}

/// Exchanges numbers where a mask is.
#[inline(always)]
fn exchange_where<T: Real, S: Simd, const P: usize, const W: usize>(
    simd: S,
    mask: T::Mask<S>,
    first: &mut [Planes<T, S, P>; W],
    second: &mut [Planes<T, S, P>; W],
) {
    for (first, second) in first.iter_mut().zip(second) {
        for (a, b) in first.iter_mut().zip(second) {
            (*a, *b) = (T::choose(simd, mask, *b, *a), T::choose(simd, mask, *a, *b));
        }
    }
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
