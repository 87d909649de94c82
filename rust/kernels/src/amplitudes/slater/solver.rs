//! Determinants, and W = M A⁻¹, by LU decompositions with partial pivoting.

use super::{Sector, Slater};
use crate::amplitudes::fermions::{Orbital, SignedLog};
use crate::numbers::with_subnormals;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::lu::partial_pivoting::{factor, solve};
use faer::perm::PermRef;
use faer::{MatMut, MatRef, Par, Spec};

/// The memory that decompositions take.
pub struct Solver<E> {
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
        let solve = solve::solve_in_place_scratch::<usize, E>(fermions, empty, Par::Seq);
        let inverse = solve::solve_transpose_in_place_scratch::<usize, E>(fermions, fermions, Par::Seq);
        let memory = factor.or(solve).or(inverse);
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
        occupied: impl ExactSizeIterator<Item = usize> + Clone,
        empty: impl Iterator<Item = usize>,
        w: &mut [E],
    ) -> SignedLog<E> {
        with_subnormals(|| self.solve_at_all(orbitals, occupied, empty, w))
    }

    fn solve_at_all(
        &mut self,
        orbitals: &[E],
        occupied: impl ExactSizeIterator<Item = usize> + Clone,
        empty: impl Iterator<Item = usize>,
        w: &mut [E],
    ) -> SignedLog<E> {
        let n = occupied.len();
        let determinant = self.decompose(orbitals, occupied);
        if n == 0 || w.is_empty() {
            return determinant;
        }
        // The transposes are stored by columns: Aᵀ Wᵀ = Mᵀ.
        for (row, mode) in w.chunks_exact_mut(n).zip(empty) {
            row.copy_from_slice(&orbitals[mode * n..][..n]);
        }
        let columns = w.len() / n;
        let w = MatMut::from_column_major_slice_mut(w, n, columns);
        let (lu, order, memory) = self.decomposed(n);
        solve::solve_in_place(lu, lu, order, w, Par::Seq, memory);
        determinant
    }

    /// det A of the rows of M `(modes, n)` that are occupied, n of them, and `A⁻ᵀ (n, n)`; where A is singular these are no
    /// numbers.
    pub(super) fn inverse(
        &mut self,
        orbitals: &[E],
        occupied: impl ExactSizeIterator<Item = usize> + Clone,
        inverse: &mut [E],
    ) -> SignedLog<E> {
        with_subnormals(|| {
            let n = occupied.len();
            let determinant = self.decompose(orbitals, occupied);
            if n > 0 {
                inverse.fill(E::default());
                inverse.iter_mut().step_by(n + 1).for_each(|diagonal| *diagonal = E::ONE);
                // By columns it is A⁻¹, and what was decomposed is Aᵀ.
                let inverse = MatMut::from_column_major_slice_mut(inverse, n, n);
                let (lu, order, memory) = self.decomposed(n);
                solve::solve_transpose_in_place(lu, lu, order, inverse, Par::Seq, memory);
            }
            determinant
        })
    }

    /// Decomposes Aᵀ, with the rows of M `(modes, n)` that are occupied in A.
    fn decompose(&mut self, orbitals: &[E], occupied: impl ExactSizeIterator<Item = usize> + Clone) -> SignedLog<E> {
        let n = occupied.len();
        if n == 0 {
            return SignedLog::ONE;
        }
        let row = |mode: usize| &orbitals[mode * n..][..n];
        let matrix = &mut self.matrix[..n * n];
        for (column, mode) in matrix.chunks_exact_mut(n).zip(occupied.clone()) {
            column.copy_from_slice(row(mode));
        }
        let mut matrix = MatMut::from_column_major_slice_mut(matrix, n, n);
        let memory = MemStack::new(&mut self.memory);
        let (order, inverse) = (&mut self.order[..n], &mut self.inverse_order[..n]);
        let (info, _) = factor::lu_in_place(matrix.as_mut(), order, inverse, Par::Seq, memory, Spec::default());
        // Behind a pivot of 0, the largest there was, come no numbers.
        if (0..n).any(|place| matrix[(place, place)].modulus() == 0.0)
            && occupied.flat_map(row).all(|number| number.modulus().is_finite())
        {
            return SignedLog::ZERO;
        }
        let sign = if info.transposition_count % 2 == 1 { -E::ONE } else { E::ONE };
        (0..n).fold(SignedLog { log: 0.0, phase: sign }, |so_far, place| {
            so_far.times(SignedLog::of(matrix[(place, place)]))
        })
    }

    /// What [`Solver::decompose`] has left, and memory to go on.
    fn decomposed(&mut self, n: usize) -> (MatRef<'_, E>, PermRef<'_, usize>, &mut MemStack) {
        let lu = MatRef::from_column_major_slice(&self.matrix[..n * n], n, n);
        let order = PermRef::new_checked(&self.order[..n], &self.inverse_order[..n], n);
        (lu, order, MemStack::new(&mut self.memory))
    }
}

/// The determinant of a small matrix, given by rows.
#[cold]
pub(super) fn determinant<E: Orbital>(n: usize, number: impl Fn(usize, usize) -> E) -> E {
    let rows: Vec<E> = (0..n * n).map(|place| number(place / n, place % n)).collect();
    let found = Solver::new(n, 0).solve(&rows, 0..n, std::iter::empty(), &mut []);
    found.over(SignedLog::ONE)
}
