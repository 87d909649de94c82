//! Determinants, and W = M A⁻¹: by LU decompositions with partial pivoting, or from fermions on modes whose rows of M are a diagonal
//! matrix, which have W as it is, by as many pivots of W as fermions are elsewhere.

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
    tableau: Tableau<E>,
}

/// W while pivots change it, and which modes its rows and columns belong to.
struct Tableau<E> {
    /// `(empty, fermions)`.
    w: Vec<E>,
    empty: Vec<usize>,
    occupied: Vec<usize>,
    /// For each mode its row or column.
    place: Vec<usize>,
    is_occupied: Vec<bool>,
    row: Vec<E>,
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
            tableau: Tableau {
                w: Vec::new(),
                empty: Vec::new(),
                occupied: Vec::new(),
                place: Vec::new(),
                is_occupied: Vec::new(),
                row: Vec::new(),
            },
        }
    }

    /// As [`Solver::solve`], where the rows of M of the last n modes are a diagonal matrix without zeros, and with all empty modes.
    #[inline(always)]
    pub(super) fn solve_from_diagonal(
        &mut self,
        orbitals: &[E],
        occupied: &[u32],
        empty: &[u32],
        w: &mut [E],
    ) -> SignedLog<E> {
        let n = occupied.len();
        let Tableau { w: own, empty: rows, occupied: columns, place, is_occupied, row: scratch } = &mut self.tableau;
        // At first the last modes are occupied.
        let first = empty.len();
        own.clear();
        own.extend_from_slice(&orbitals[..first * n]);
        rows.clear();
        rows.extend(0..first);
        columns.clear();
        columns.extend(first..first + n);
        is_occupied.clear();
        is_occupied.resize(first + n, false);
        for &mode in occupied {
            is_occupied[mode as usize] = true;
        }
        let mut determinant = SignedLog::ONE;
        for (column, &mode) in columns.iter().enumerate() {
            let diagonal = orbitals[mode * n + column];
            determinant = determinant.times(SignedLog::of(diagonal));
            let inverse = E::ONE / diagonal;
            for row in 0..first {
                own[row * n + column] *= inverse;
            }
        }
        for row in 0..first {
            if !is_occupied[rows[row]] {
                continue;
            }
            // The largest number of the row, of those whose fermions have to leave.
            let (mut pivot, mut largest) = (None, 0.0);
            for column in 0..n {
                let modulus = own[row * n + column].modulus();
                if !is_occupied[columns[column]] && (pivot.is_none() || modulus > largest || modulus.is_nan()) {
                    (pivot, largest) = (Some(column), modulus);
                }
            }
            let Some(column) = pivot else { continue };
            determinant = determinant.times(SignedLog::of(own[row * n + column]));
            if largest == 0.0 {
                return SignedLog::ZERO;
            }
            pivot_at(own, n, row, column, scratch);
            std::mem::swap(&mut rows[row], &mut columns[column]);
        }
        place.clear();
        place.resize(first + n, 0);
        for (row, &mode) in rows.iter().enumerate() {
            place[mode] = row;
        }
        for (column, &mode) in columns.iter().enumerate() {
            place[mode] = column;
        }
        for (row, &mode) in w.chunks_exact_mut(n).zip(empty) {
            let own = &own[place[mode as usize] * n..][..n];
            for (number, &mode) in row.iter_mut().zip(occupied) {
                *number = own[place[mode as usize]];
            }
        }
        // The columns as they are wanted, exchanged one after the other, each of which changes the sign.
        for column in 0..n {
            let wanted = occupied[column] as usize;
            if columns[column] != wanted {
                let other = place[wanted];
                place[columns[column]] = other;
                columns.swap(column, other);
                determinant.phase = -determinant.phase;
            }
        }
        determinant
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

/// Makes W, with rows of n numbers, that of A with this row in the place of its row `column`.
#[inline(always)]
pub(super) fn pivot_at<E: Orbital>(w: &mut [E], n: usize, row: usize, column: usize, scratch: &mut Vec<E>) {
    let inverse = E::ONE / w[row * n + column];
    scratch.clear();
    scratch.extend(w[row * n..][..n].iter().map(|&number| -(number * inverse)));
    scratch[column] = inverse;
    for other in w.chunks_exact_mut(n) {
        let factor = std::mem::take(&mut other[column]);
        for (number, &of_row) in other.iter_mut().zip(&*scratch) {
            *number += factor * of_row;
        }
    }
    w[row * n..][..n].copy_from_slice(scratch);
}

/// The determinant of a small matrix, given by rows.
#[cold]
pub(super) fn determinant<E: Orbital>(n: usize, number: impl Fn(usize, usize) -> E) -> E {
    let rows: Vec<E> = (0..n * n).map(|place| number(place / n, place % n)).collect();
    let found = Solver::new(n, 0).solve(&rows, 0..n, std::iter::empty(), &mut []);
    found.over(SignedLog::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_complex::Complex;
    use rand::rngs::StdRng;
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};

    /// From fermions on modes of a diagonal matrix it is what LU decompositions give, in any order of the modes.
    fn compare<E: Orbital>(rng: &mut StdRng, modes: usize, fermions: usize, number: impl Fn(&mut StdRng) -> E) {
        let first = modes - fermions;
        let mut orbitals: Vec<E> = (0..modes * fermions).map(|_| number(rng)).collect();
        for place in 0..fermions * fermions {
            if !place.is_multiple_of(fermions + 1) {
                orbitals[first * fermions + place] = E::default();
            }
        }
        let mut order: Vec<u32> = (0..modes as u32).collect();
        order.shuffle(rng);
        let (occupied, empty) = order.split_at(fermions);
        let mut solver = Solver::new(fermions, first);
        let [mut expected, mut found] = [(); 2].map(|()| vec![E::default(); first * fermions]);
        let [of_occupied, of_empty] = [occupied, empty].map(|modes| modes.iter().map(|&mode| mode as usize));
        let determinant = solver.solve(&orbitals, of_occupied, of_empty, &mut expected);
        let from_diagonal = solver.solve_from_diagonal(&orbitals, occupied, empty, &mut found);
        assert!((from_diagonal.over(determinant) - E::ONE).modulus() < 1e-9, "{from_diagonal:?} {determinant:?}");
        let largest = expected.iter().fold(1.0_f64, |largest, number| largest.max(number.modulus()));
        for (&found, &expected) in found.iter().zip(&expected) {
            assert!((found - expected).modulus() < 1e-11 * largest * largest, "{found:?} {expected:?}");
        }
    }

    #[test]
    fn from_a_diagonal() {
        let rng = &mut StdRng::seed_from_u64(1);
        let real = |rng: &mut StdRng| rng.random_range(-1.0..1.0);
        for modes in 1..=12 {
            for fermions in 1..=modes {
                compare::<f64>(rng, modes, fermions, real);
                compare::<Complex<f64>>(rng, modes, fermions, |rng| Complex::new(real(rng), real(rng)));
            }
        }
        compare::<f64>(rng, 72, 36, real);
    }

    #[test]
    fn a_singular_one_is_zero() {
        // The first two modes have the same orbitals, and both are occupied.
        let orbitals = [0.5, 2.0, 0.5, 2.0, 3.0, 0.0, 0.0, 1.0];
        let mut solver = Solver::<f64>::new(2, 2);
        assert!(solver.solve_from_diagonal(&orbitals, &[0, 1], &[2, 3], &mut [0.0; 4]).is_zero());
    }
}
