//! Systems of linear equations with triangular matrices, which each configuration has in a lane of its own.

use super::Numbers;
use super::lu::{gather, inverse, products};
use crate::Error;
use crate::network::words::{Words, wrong};
use crate::numbers::{Algebra, Complexes, Planes, Real, Reals, none};
use pulp::{NullaryFnOnce, Simd};
use std::marker::PhantomData;

/// Matrices `(n, n)`, of which what is above the diagonal isn't read, and right sides `(n, columns)`.
#[derive(Debug)]
pub(crate) struct Triangular {
    n: usize,
    columns: usize,
    planes: usize,
    /// Whether the diagonal isn't read either, but is 1.
    has_ones: bool,
    /// The solutions, `(n, columns, planes)` of each.
    out: usize,
    /// Where the numbers of each matrix are, `(n, n, planes)`.
    matrix: Vec<u32>,
    right: Vec<u32>,
}

impl Triangular {
    pub(super) fn read(words: &mut Words) -> Result<Self, Error> {
        let (batch, n, columns, planes) = (words.number()?, words.number()?, words.number()?, words.number()?);
        let has_ones = words.number()? > 0;
        if batch == 0 || n == 0 || columns == 0 || !(1..=2).contains(&planes) {
            return Err(wrong(&format!(
                "there are no systems of {n} rows and {columns} right sides of {planes} parts"
            )));
        }
        let rows = batch.saturating_mul(n).saturating_mul(planes);
        let out = words.run(rows.saturating_mul(columns))?;
        let (matrix, right) = (words.runs(rows.saturating_mul(n), 1)?, words.runs(rows.saturating_mul(columns), 1)?);
        Ok(Self { n, columns, planes, has_ones, out, matrix, right })
    }

    pub(super) fn work(&self) -> usize {
        self.matrix.len() * self.columns * self.planes / 2
    }

    /// How many vectors of memory it takes.
    pub(super) fn vectors(&self) -> usize {
        self.n * (self.n + self.columns) * self.planes
    }
}

/// Solves systems of numbers of this type.
pub(super) struct Solve<'a, T>(pub(super) &'a Triangular, pub(super) PhantomData<T>);

impl<T: Real> Solve<'_, T> {
    /// With memory for [`Triangular::vectors`].
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
        let &Triangular { n, columns, has_ones, out, ref matrix, ref right, .. } = self.0;
        let (of_matrix, solution) = memory[..self.0.vectors()].split_at_mut(n * n * P);
        let systems = matrix.chunks_exact(n * n * P).zip(right.chunks_exact(n * columns * P));
        for (number, (matrix, right)) in systems.enumerate() {
            for v in 0..V {
                gather(of_matrix, places, matrix, v);
                gather(solution, places, right, v);
                let numbers = of_matrix.as_chunks_mut::<P>().0;
                let solution = solution.as_chunks_mut::<P>().0;
                // A function of its own, or there would be a copy for each number of vectors.
                simd.vectorize(System::<T, S, P, A, K, R> {
                    simd,
                    n,
                    columns,
                    has_ones,
                    numbers,
                    solution,
                    of: PhantomData,
                });
                for (out, &part) in places[out + number * n * columns * P..].iter_mut().zip(solution.as_flattened()) {
                    out[v] = part;
                }
            }
        }
    }
}

/// The systems of a vector of lanes.
struct System<'m, T: Real, S: Simd, const P: usize, A, const K: usize, const R: usize> {
    simd: S,
    n: usize,
    columns: usize,
    has_ones: bool,
    /// By rows.
    numbers: &'m mut [Planes<T, S, P>],
    /// The right sides, in the place of which come the solutions.
    solution: &'m mut [Planes<T, S, P>],
    of: PhantomData<A>,
}

impl<T: Real, S: Simd, const P: usize, A: Algebra<P>, const K: usize, const R: usize> NullaryFnOnce
    for System<'_, T, S, P, A, K, R>
{
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { simd, n, columns, has_ones, numbers, solution, .. } = self;
        // All products are subtracted.
        for row in 1..n {
            for part in numbers[row * n..][..row].as_flattened_mut() {
                *part = T::negated(simd, *part);
            }
        }
        for first in (0..n).step_by(K) {
            let end = n.min(first + K);
            let (panel, below) = solution[first * columns..].split_at_mut((end - first) * columns);
            for t in 0..end - first {
                let (solved, row) = panel.split_at_mut(t * columns);
                let (factors, row) = (&numbers[(first + t) * n..][..n], &mut row[..columns]);
                for (&factor, other) in factors[first..first + t].iter().zip(solved.chunks_exact(columns)) {
                    for (number, &other) in row.iter_mut().zip(other) {
                        *number = A::product_plus::<T, S>(simd, factor, other, *number);
                    }
                }
                if !has_ones {
                    let factor = inverse::<T, S, P, A>(simd, factors[first + t]);
                    for number in row {
                        *number = A::product::<T, S>(simd, *number, factor);
                    }
                }
            }
            if end == n {
                break;
            }
            let mut others = [&panel[..0]; K];
            for (other, row) in others.iter_mut().zip(panel.chunks_exact(columns)) {
                *other = row;
            }
            let mut row = end;
            for block in below.chunks_mut(R * columns) {
                if block.len() == R * columns {
                    subtract::<T, S, P, A, K, R>(simd, &numbers[row * n..], n, first, &others, block);
                } else {
                    for (next, target) in block.chunks_exact_mut(columns).enumerate() {
                        subtract::<T, S, P, A, K, 1>(simd, &numbers[(row + next) * n..], n, first, &others, target);
                    }
                }
                row += R;
            }
        }
    }
}

/// Adds the products of `K` numbers of each of `R` rows with the solution so far to as many rows of the right side.
#[inline(always)]
fn subtract<T: Real, S: Simd, const P: usize, A: Algebra<P>, const K: usize, const R: usize>(
    simd: S,
    rows: &[Planes<T, S, P>],
    n: usize,
    first: usize,
    others: &[&[Planes<T, S, P>]; K],
    block: &mut [Planes<T, S, P>],
) {
    let mut factors = [[[T::splat(simd, T::default()); P]; K]; R];
    let mut targets = [const { none() }; R];
    let columns = others[0].len();
    for ((row, factors), (target, of_block)) in
        rows.chunks(n).zip(&mut factors).zip(targets.iter_mut().zip(block.chunks_exact_mut(columns)))
    {
        factors.copy_from_slice(&row[first..first + K]);
        *target = of_block;
    }
    products::<T, S, P, A, K, R>(simd, &factors, others, &mut targets);
}
