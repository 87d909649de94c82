//! Determinants, and W = M A⁻¹, by LU decompositions with partial pivoting.

use super::{Orbital, Sector, Slater};
use crate::numbers::with_subnormals;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::lu::partial_pivoting::{factor, solve};
use faer::{MatMut, Par, Spec};

/// A number, as the logarithm of its modulus, and its sign or phase.
#[derive(Debug, Clone, Copy)]
pub(super) struct Determinant<E> {
    pub(super) log: f64,
    pub(super) phase: E,
}

impl<E: Orbital> Determinant<E> {
    pub(super) const ONE: Self = Self { log: 0.0, phase: E::ONE };
    pub(super) const ZERO: Self = Self { log: f64::NEG_INFINITY, phase: E::ONE };

    /// The sum of some.
    pub(super) fn sum(all: &[Self]) -> Self {
        let largest = all.iter().fold(Self::ZERO, |largest, &one| if one.log > largest.log { one } else { largest });
        if largest.is_zero() || all.len() == 1 {
            return all.first().copied().unwrap_or(Self::ZERO);
        }
        let scale = Self { log: largest.log, phase: E::ONE };
        let mut sum = E::default();
        for one in all {
            sum += one.over(scale);
        }
        scale.times(Self::of(sum))
    }

    /// A number.
    fn of(value: E) -> Self {
        let modulus = value.modulus();
        Self { log: modulus.ln(), phase: if modulus == 0.0 { E::ONE } else { value / E::real(modulus) } }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self { log: self.log + other.log, phase: self.phase * other.phase }
    }

    /// `self / other`, a number.
    pub(super) fn over(self, other: Self) -> E {
        if self.is_zero() { E::default() } else { self.phase / other.phase * E::real((self.log - other.log).exp()) }
    }

    pub(super) fn is_zero(self) -> bool {
        self.log == f64::NEG_INFINITY
    }
}

/// The memory that decompositions take.
pub(super) struct Solver<E> {
    matrix: Vec<E>,
    order: Vec<usize>,
    inverse_order: Vec<usize>,
    memory: MemBuffer,
}

impl<E: Orbital> Solver<E> {
    /// For any sector of these determinants.
    pub(super) fn of(slater: &Slater<E>) -> Self {
        let most = |of: fn(&Sector) -> usize| slater.sectors.iter().map(of).max().unwrap_or(0);
        Self::new(most(|sector| sector.fermions.len()), most(|sector| sector.empty.len()))
    }

    /// For up to so many fermions, and empty modes.
    pub(super) fn new(fermions: usize, empty: usize) -> Self {
        let factor = factor::lu_in_place_scratch::<usize, E>(fermions, fermions, Par::Seq, Spec::default());
        let memory = factor.or(solve::solve_in_place_scratch::<usize, E>(fermions, empty, Par::Seq));
        Self {
            matrix: vec![E::default(); fermions * fermions],
            order: vec![0; fermions],
            inverse_order: vec![0; fermions],
            memory: MemBuffer::new(memory),
        }
    }

    /// det A of the rows of M `(modes, n)` that are occupied, n of them. With `empty` modes given, their rows of W
    /// are written, `(empty, n)`; where A is singular they are no numbers.
    pub(super) fn solve(
        &mut self,
        orbitals: &[E],
        occupied: impl ExactSizeIterator<Item = usize>,
        empty: impl Iterator<Item = usize>,
        w: &mut [E],
    ) -> Determinant<E> {
        with_subnormals(|| self.solve_at_all(orbitals, occupied, empty, w))
    }

    fn solve_at_all(
        &mut self,
        orbitals: &[E],
        occupied: impl ExactSizeIterator<Item = usize>,
        empty: impl Iterator<Item = usize>,
        w: &mut [E],
    ) -> Determinant<E> {
        let n = occupied.len();
        if n == 0 {
            return Determinant::ONE;
        }
        // The transposes are stored by columns: Aᵀ Wᵀ = Mᵀ.
        let matrix = &mut self.matrix[..n * n];
        for (column, mode) in matrix.chunks_exact_mut(n).zip(occupied) {
            column.copy_from_slice(&orbitals[mode * n..][..n]);
        }
        for (row, mode) in w.chunks_exact_mut(n).zip(empty) {
            row.copy_from_slice(&orbitals[mode * n..][..n]);
        }
        let mut matrix = MatMut::from_column_major_slice_mut(matrix, n, n);
        let memory = MemStack::new(&mut self.memory);
        let (order, inverse) = (&mut self.order[..n], &mut self.inverse_order[..n]);
        let (info, order) = factor::lu_in_place(matrix.as_mut(), order, inverse, Par::Seq, memory, Spec::default());
        let lu = matrix.as_ref();
        if !w.is_empty() {
            let columns = w.len() / n;
            let w = MatMut::from_column_major_slice_mut(w, n, columns);
            solve::solve_in_place(lu, lu, order, w, Par::Seq, MemStack::new(&mut self.memory));
        }
        let sign = if info.transposition_count % 2 == 1 { -E::ONE } else { E::ONE };
        (0..n).fold(Determinant { log: 0.0, phase: sign }, |so_far, place| {
            so_far.times(Determinant::of(lu[(place, place)]))
        })
    }
}

/// The determinant of a small matrix, given by rows.
#[cold]
pub(super) fn determinant<E: Orbital>(n: usize, number: impl Fn(usize, usize) -> E) -> E {
    let rows: Vec<E> = (0..n * n).map(|place| number(place / n, place % n)).collect();
    let found = Solver::new(n, 0).solve(&rows, 0..n, std::iter::empty(), &mut []);
    found.over(Determinant::ONE)
}
