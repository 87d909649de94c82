//! Determinants, and W = M A⁻¹, by Gaussian elimination.

use super::elimination::Elimination;
use super::{Orbital, Sector, Slater};
use num_complex::Complex;
use pulp::Arch;

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

    /// Its logarithm.
    pub(super) fn logarithm(self) -> Complex<f64> {
        Complex::new(self.log, self.phase.argument())
    }

    pub(super) fn is_zero(self) -> bool {
        self.log == f64::NEG_INFINITY
    }
}

/// The memory that elimination takes.
pub(super) struct Solver<E> {
    rows: Vec<E>,
}

impl<E: Orbital> Solver<E> {
    /// For any sector of these determinants.
    pub(super) fn of(slater: &Slater<E>) -> Self {
        let most = |of: fn(&Sector) -> usize| slater.sectors.iter().map(of).max().unwrap_or(0);
        Self::new(most(|sector| sector.fermions.len()), most(|sector| sector.empty.len()))
    }

    /// For up to so many fermions, and empty modes.
    pub(super) fn new(fermions: usize, empty: usize) -> Self {
        Self { rows: vec![E::default(); fermions * row_len(fermions, empty.max(fermions))] }
    }

    /// det A of the rows of M `(modes, n)` that are occupied, n of them. With `empty` modes given, their rows of W
    /// are written, `(empty, n)`; where A is singular they are no numbers.
    pub(super) fn solve(
        &mut self,
        orbitals: &[E],
        occupied: impl ExactSizeIterator<Item = usize> + Clone,
        empty: impl Iterator<Item = usize>,
        w: &mut [E],
    ) -> Determinant<E> {
        let n = occupied.len();
        if n == 0 {
            return Determinant::ONE;
        }
        let width = row_len(n, w.len() / n);
        // The transposes: Aᵀ Wᵀ = Mᵀ.
        let rows = &mut self.rows[..n * width];
        let row = |mode: usize| &orbitals[mode * n..][..n];
        for (column, mode) in occupied.clone().chain(empty).enumerate() {
            for (to, &number) in rows.chunks_exact_mut(width).zip(row(mode)) {
                to[column] = number;
            }
        }
        let determinant = eliminate(n, rows, || occupied.flat_map(row));
        for (column, of_mode) in w.chunks_exact_mut(n).enumerate() {
            for (number, from) in of_mode.iter_mut().zip(rows.chunks_exact(width)) {
                *number = from[n + column];
            }
        }
        determinant
    }

    /// det A of the rows of M `(modes, n)` that are occupied, n of them, and `A⁻ᵀ (n, n)`; where A is singular these are no
    /// numbers.
    pub(super) fn inverse(
        &mut self,
        orbitals: &[E],
        occupied: impl ExactSizeIterator<Item = usize> + Clone,
        inverse: &mut [E],
    ) -> Determinant<E> {
        let n = occupied.len();
        if n == 0 {
            return Determinant::ONE;
        }
        let row = |mode: usize| &orbitals[mode * n..][..n];
        let width = row_len(n, n);
        let rows = &mut self.rows[..n * width];
        rows.fill(E::default());
        for (place, mode) in occupied.clone().enumerate() {
            rows[place * width + n + place] = E::ONE;
            for (to, &number) in rows.chunks_exact_mut(width).zip(row(mode)) {
                to[place] = number;
            }
        }
        let determinant = eliminate(n, rows, || occupied.flat_map(row));
        for (to, from) in inverse.chunks_exact_mut(n).zip(rows.chunks_exact(width)) {
            to.copy_from_slice(&from[n..][..n]);
        }
        determinant
    }
}

/// How many numbers the rows of \[A | B\] take. Where their number is a multiple of a large power of two, there are some
/// more: else the numbers of a column would have the same few places in the cache.
fn row_len(n: usize, columns: usize) -> usize {
    let len = n + columns;
    if len.is_multiple_of(64) { len + 8 } else { len }
}

/// Solves `Aᵀ X = B`, see [`Elimination`], and says what det A is. `numbers` are those of A.
fn eliminate<'a, E: Orbital, N: Iterator<Item = &'a E>>(
    n: usize,
    rows: &mut [E],
    numbers: impl FnOnce() -> N,
) -> Determinant<E> {
    let width = rows.len() / n;
    let is_even = Arch::new().dispatch(Elimination { n, rows: &mut *rows });
    let pivots = rows.iter().step_by(width + 1).take(n);
    // Behind a pivot of 0, the largest there was, come no numbers.
    if pivots.clone().any(|pivot| pivot.modulus() == 0.0) && numbers().all(|number| number.modulus().is_finite()) {
        return Determinant::ZERO;
    }
    let sign = if is_even { E::ONE } else { -E::ONE };
    pivots.fold(Determinant { log: 0.0, phase: sign }, |so_far, &pivot| so_far.times(Determinant::of(pivot)))
}

/// The determinant of a small matrix, given by rows.
#[cold]
pub(super) fn determinant<E: Orbital>(n: usize, number: impl Fn(usize, usize) -> E) -> E {
    let rows: Vec<E> = (0..n * n).map(|place| number(place / n, place % n)).collect();
    let found = Solver::new(n, 0).solve(&rows, 0..n, std::iter::empty(), &mut []);
    found.over(Determinant::ONE)
}
