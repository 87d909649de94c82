//! Positive definite systems, by a Cholesky factorisation tile by tile.
//!
//! Buttari, Langou, Kurzak and Dongarra, Parallel Computing 35, 38 (2009), in the right-looking form. Each tile is an array of
//! its own, so that its columns aren't a power of two apart, which caches can't hold together.

use super::{Deal, each};
use crate::numbers::with_subnormals;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{self, LltRegularization};
use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_lower_triangular_in_place_with_conj, solve_upper_triangular_in_place,
};
use faer::traits::ComplexField;
use faer::traits::ext::ComplexFieldExt;
use faer::{Accum, Conj, MatMut, MatRef, Par, Spec};

/// The rows of a tile. From 96 to 256 it takes as long.
const SIDE: usize = 128;

/// Real or complex numbers.
pub trait Number: ComplexField + Copy + Send + Sync {}

impl<T: ComplexField + Copy + Send + Sync> Number for T {}

/// Solves `A x = b` in the place of b `(n,)` for a Hermitian matrix A `(n, n)`, of which the elements on and behind the diagonal
/// of each row are read. False, and b has no meaning, where it isn't positive definite in its precision.
///
/// The solution doesn't depend on the threads, to the bit.
///
/// # Panics
///
/// If A and b aren't of these shapes.
pub fn solve_positive<T: Number, D: Deal>(matrix: &[T], right: &mut [T], deal: &D) -> Result<bool, D::Error> {
    assert_eq!(matrix.len(), right.len() * right.len());
    // By columns it is A*, and A* x* = b*.
    let mut columns = tiles(matrix, right.len(), deal)?;
    conjugate(right);
    let is_positive = decompose(&mut columns, deal)?;
    if is_positive {
        let mut parts: Vec<_> = right.chunks_mut(SIDE).collect();
        solve_forward(&columns, &mut parts, deal)?;
        solve_backward(&columns, &mut parts, deal)?;
    }
    conjugate(right);
    Ok(is_positive)
}

/// A part of a matrix, by columns.
struct Tile<T> {
    rows: usize,
    columns: usize,
    numbers: Vec<T>,
}

impl<T> Tile<T> {
    fn view(&self) -> MatRef<'_, T> {
        MatRef::from_column_major_slice(&self.numbers, self.rows, self.columns)
    }

    fn view_mut(&mut self) -> MatMut<'_, T> {
        MatMut::from_column_major_slice_mut(&mut self.numbers, self.rows, self.columns)
    }
}

/// Of each column of tiles the one on the diagonal and those below it, of which this is the first.
struct Column<T> {
    diagonal: Tile<T>,
    below: Vec<Tile<T>>,
}

fn tiles<T: Copy + Send + Sync, D: Deal>(matrix: &[T], n: usize, deal: &D) -> Result<Vec<Column<T>>, D::Error> {
    let side = |tile: usize| SIDE.min(n - tile * SIDE);
    let of_column = |column: usize| (column..n.div_ceil(SIDE)).map(move |row| (row, column));
    let empty = |(row, column): (usize, usize)| Tile { rows: side(row), columns: side(column), numbers: Vec::new() };
    let mut columns: Vec<Column<T>> = (0..n.div_ceil(SIDE))
        .map(|column| Column {
            diagonal: empty((column, column)),
            below: of_column(column).skip(1).map(empty).collect(),
        })
        .collect();
    let all = columns.iter_mut().enumerate().flat_map(|(place, column)| {
        std::iter::once(&mut column.diagonal).chain(&mut column.below).zip(of_column(place))
    });
    each(deal, all, |(tile, (row, column)): (&mut Tile<T>, _)| {
        tile.numbers.reserve_exact(tile.rows * tile.columns);
        for number in 0..tile.columns {
            let first = (column * SIDE + number) * n + row * SIDE;
            tile.numbers.extend_from_slice(&matrix[first..first + tile.rows]);
        }
    })?;
    Ok(columns)
}

/// Puts L with `A = L L†` in the place of A. False where there is none.
fn decompose<T: Number, D: Deal>(columns: &mut [Column<T>], deal: &D) -> Result<bool, D::Error> {
    let memory = factor::cholesky_in_place_scratch::<T>(SIDE, Par::Seq, Spec::default());
    let mut memory = MemBuffer::new(memory);
    for place in 0..columns.len() {
        let (column, others) = columns[place..].split_first_mut().expect("it is there");
        let Column { diagonal, below } = column;
        let memory = MemStack::new(&mut memory);
        let factored = with_subnormals(|| {
            factor::cholesky_in_place(
                diagonal.view_mut(),
                LltRegularization::default(),
                Par::Seq,
                memory,
                Spec::default(),
            )
        });
        if factored.is_err() {
            return Ok(false);
        }
        let diagonal = diagonal.view();
        each(deal, below.iter_mut(), |tile| {
            let adjoint = tile.view_mut().transpose_mut();
            with_subnormals(|| solve_lower_triangular_in_place_with_conj(diagonal, Conj::Yes, adjoint, Par::Seq));
        })?;
        let below = &*below;
        let rest = others.iter_mut().zip(below).enumerate().flat_map(|(place, (column, right))| {
            let of_column = std::iter::once(&mut column.diagonal).chain(&mut column.below);
            of_column.zip(&below[place..]).map(move |(tile, left)| (tile, left, right))
        });
        each(deal, rest, |(tile, left, right): (&mut Tile<T>, &Tile<T>, &Tile<T>)| {
            subtract(tile.view_mut(), left.view(), right.view(), std::ptr::eq(left, right));
        })?;
    }
    Ok(true)
}

/// Subtracts `left right†`, of which the part above the diagonal doesn't matter if it is on the diagonal.
fn subtract<T: ComplexField>(tile: MatMut<T>, left: MatRef<T>, right: MatRef<T>, is_diagonal: bool) {
    let minus = -T::one();
    if is_diagonal {
        let [lower, whole] = [BlockStructure::TriangularLower, BlockStructure::Rectangular];
        triangular::matmul(tile, lower, Accum::Add, left, whole, right.adjoint(), whole, minus, Par::Seq);
    } else {
        matmul(tile, Accum::Add, left, right.adjoint(), minus, Par::Seq);
    }
}

/// L⁻¹ b, in the place of b.
fn solve_forward<T: Number, D: Deal>(columns: &[Column<T>], right: &mut [&mut [T]], deal: &D) -> Result<(), D::Error> {
    for (place, column) in columns.iter().enumerate() {
        let (part, others) = right[place..].split_first_mut().expect("as many");
        with_subnormals(|| solve_lower_triangular_in_place(column.diagonal.view(), vector_mut(part), Par::Seq));
        let part = vector(part);
        let others = others.iter_mut().map(|other| &mut **other);
        each(deal, others.zip(&column.below), |(other, tile): (&mut [T], &Tile<T>)| {
            matmul(vector_mut(other), Accum::Add, tile.view(), part, -T::one(), Par::Seq);
        })?;
    }
    Ok(())
}

/// L⁻† b, in the place of b.
fn solve_backward<T: Number, D: Deal>(columns: &[Column<T>], right: &mut [&mut [T]], deal: &D) -> Result<(), D::Error> {
    for place in (0..columns.len()).rev() {
        let (part, others) = right[..=place].split_last_mut().expect("as many");
        let diagonal = columns[place].diagonal.view();
        with_subnormals(|| solve_upper_triangular_in_place(diagonal.adjoint(), vector_mut(part), Par::Seq));
        let part = vector(part);
        each(deal, others.iter_mut().zip(columns).enumerate(), |(row, (other, column))| {
            let tile = &column.below[place - row - 1];
            matmul(vector_mut(other), Accum::Add, tile.view().adjoint(), part, -T::one(), Par::Seq);
        })?;
    }
    Ok(())
}

fn vector<T>(numbers: &[T]) -> MatRef<'_, T> {
    MatRef::from_column_major_slice(numbers, numbers.len(), 1)
}

fn vector_mut<T>(numbers: &mut [T]) -> MatMut<'_, T> {
    let len = numbers.len();
    MatMut::from_column_major_slice_mut(numbers, len, 1)
}

fn conjugate<T: ComplexField>(numbers: &mut [T]) {
    for number in numbers {
        *number = number.conj();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Order;
    use super::*;
    use num_complex::Complex;
    use proptest::prelude::*;

    fn solved<T: Number>(matrix: &[T], right: &[T], order: &Order) -> Option<Vec<T>> {
        let mut solution = right.to_vec();
        let Ok(is_positive) = solve_positive(matrix, &mut solution, order);
        is_positive.then_some(solution)
    }

    /// A matrix `(n, n)` with this diagonal, and Hermitian numbers of modulus 1 and less elsewhere.
    fn matrix(n: usize, seed: f64, diagonal: f64) -> Vec<Complex<f64>> {
        let number = |i: usize, j: usize| {
            let phase = seed * (i * n + j) as f64;
            Complex::new(phase.sin(), (1.7 * phase).cos())
        };
        let place = |i: usize, j: usize| match i.cmp(&j) {
            std::cmp::Ordering::Less => number(i, j),
            std::cmp::Ordering::Equal => diagonal.into(),
            std::cmp::Ordering::Greater => number(j, i).conj(),
        };
        (0..n * n).map(|k| place(k / n, k % n)).collect()
    }

    fn off<T: Number + Into<Complex<f64>>>(matrix: &[T], x: &[T], right: &[T]) -> f64 {
        let rows = matrix.chunks_exact(x.len()).zip(right);
        let of_row = |(row, &right): (&[T], &T)| {
            let product: Complex<f64> = row.iter().zip(x).map(|(&a, &x)| a.into() * x.into()).sum();
            (product - right.into()).norm()
        };
        rows.map(of_row).fold(0.0, f64::max)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn what_solves_a_system(n in 1_usize..300, seed in 0.1..9.0) {
            let matrix = matrix(n, seed, 2.0 * n as f64);
            let right: Vec<_> = (0..n).map(|i| Complex::new((seed + i as f64).cos(), i as f64 / n as f64)).collect();
            let x = solved(&matrix, &right, &Order::Forward).expect("it is positive definite");
            prop_assert!(off(&matrix, &x, &right) < 1e-13);
            for order in [Order::Backward, Order::AtOnce] {
                prop_assert_eq!(solved(&matrix, &right, &order), Some(x.clone()));
            }
            let real: Vec<_> = matrix.iter().map(|number| number.re).collect();
            let right: Vec<_> = right.iter().map(|number| number.re).collect();
            let x = solved(&real, &right, &Order::Backward).expect("it is positive definite");
            prop_assert!(off(&real, &x, &right) < 1e-13);
            // What is before the diagonal isn't read.
            let mut half = matrix;
            for row in 0..n {
                half[row * n..][..row].fill(f64::NAN.into());
            }
            prop_assert!(solved(&half, &vec![Complex::new(1.0, 0.0); n], &Order::Forward).is_some());
        }
    }

    #[test]
    fn what_has_no_solution() {
        for n in [1, 3, SIDE + 2, 2 * SIDE] {
            for number in [-1.0, f64::NAN] {
                for row in [0, n / 2, n - 1] {
                    let mut numbers = matrix(n, 0.3, 2.0 * n as f64);
                    numbers[row * n + n - 1] = number.into();
                    let is_definite = number == -1.0 && row < n - 1;
                    let found = solved(&numbers, &vec![Complex::new(1.0, 0.0); n], &Order::Forward);
                    assert_eq!(found.is_some(), is_definite, "{n} {row} {number}");
                }
            }
        }
        assert_eq!(solved::<f64>(&[], &[], &Order::Forward), Some(Vec::new()));
    }
}
