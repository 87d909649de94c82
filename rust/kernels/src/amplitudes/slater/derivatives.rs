//! The logarithms of determinants, and their derivatives by the orbitals.

use super::Slater;
use super::solver::Solver;
use crate::amplitudes::fermions::{Fermions, Orbital};
use crate::sites::LocalIndex;
use num_complex::Complex;

/// Evaluates ln ψ of each determinant, configuration by configuration.
pub struct LogDerivatives<'a, E> {
    slater: &'a Slater<E>,
    solver: Solver<E>,
    occupied: Vec<usize>,
    inverse: Vec<E>,
}

impl<'a, E: Orbital> LogDerivatives<'a, E> {
    /// Of these determinants.
    #[must_use]
    pub fn new(slater: &'a Slater<E>) -> Self {
        Self { slater, solver: Solver::of(slater), occupied: Vec::new(), inverse: Vec::new() }
    }

    /// `Σ_s ln det A_s` of one determinant, at a configuration of local indices. With `rows` given, which are as long as the
    /// determinant's orbitals of all sectors, its derivatives by them are written there: A⁻ᵀ for the occupied modes, and
    /// 0 for the empty ones. With another number of fermions in a sector ψ is 0, and so are the derivatives.
    pub fn evaluate(&mut self, determinant: usize, indices: &[LocalIndex], mut rows: Option<&mut [E]>) -> Complex<f64> {
        let slater = self.slater;
        if slater.check(indices).is_err() {
            if let Some(rows) = rows {
                rows.fill(E::default());
            }
            return Complex::new(f64::NEG_INFINITY, 0.0);
        }
        let mut log_psi = Complex::default();
        for sector in &slater.sectors {
            let n = sector.fermions.len();
            let here = slater.occupations(sector, indices).enumerate();
            self.occupied.clear();
            self.occupied.extend(here.filter_map(|(mode, is_occupied)| is_occupied.then_some(mode)));
            let (orbitals, occupied) = (slater.orbitals(determinant, sector), self.occupied.iter().copied());
            let found = if let Some(rows) = rows.as_deref_mut() {
                self.inverse.resize(n * n, E::default());
                let found = self.solver.inverse(orbitals, occupied, &mut self.inverse);
                let rows = &mut rows[sector.orbitals.clone()];
                rows.fill(E::default());
                for (of_mode, &mode) in self.inverse.chunks_exact(n.max(1)).zip(&self.occupied) {
                    rows[mode * n..][..n].copy_from_slice(of_mode);
                }
                found
            } else {
                self.solver.solve(orbitals, occupied, std::iter::empty(), &mut [])
            };
            log_psi += found.logarithm();
        }
        log_psi
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::testing::RandomSlater;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    /// ψ by definition, and A⁻ᵀ Aᵀ = 1 for the occupied modes.
    fn compare<E: Orbital, const P: usize>(modes: usize, fermions: &[usize]) {
        let rng = &mut StdRng::seed_from_u64(1);
        let random = RandomSlater::<P>::new(rng, modes, 2, fermions);
        let slater = Slater::<E>::new::<f64, P>(random.tables(), modes * fermions.len()).expect("tables");
        let len = modes * fermions.iter().sum::<usize>();
        let mut derivatives = LogDerivatives::new(&slater);
        for _ in 0..20 {
            let sample = random.sample(rng);
            let mut psi = Complex::<f64>::default();
            for determinant in 0..2 {
                let mut rows = vec![E::ONE; len];
                let log = derivatives.evaluate(determinant, &sample, Some(&mut rows));
                assert!((derivatives.evaluate(determinant, &sample, None) - log).norm() < 1e-14);
                psi = log.exp() + psi;
                for (sector, &n) in slater.sectors.iter().zip(fermions) {
                    let (rows, orbitals) = (&rows[sector.orbitals.clone()], slater.orbitals(determinant, sector));
                    for (mode, &index) in sample[sector.modes.clone()].iter().enumerate() {
                        for other in (0..modes).filter(|&other| sample[sector.modes.start + other] == 1) {
                            let products = (0..n).map(|column| rows[mode * n + column] * orbitals[other * n + column]);
                            let sum = products.fold(E::default(), |mut sum, product| {
                                sum += product;
                                sum
                            });
                            let expected = if mode == other && index == 1 { E::ONE } else { E::default() };
                            assert!((sum - expected).modulus() < 1e-10, "{mode} {other}: {sum:?}");
                        }
                    }
                }
            }
            let expected = random.psi(&sample);
            assert!((psi - expected).norm() < 1e-12 * (1.0 + expected.norm()), "{psi} {expected}");
        }
    }

    #[test]
    fn rows_are_those_of_the_inverse() {
        for fermions in [&[3][..], &[2, 3], &[0, 4], &[5, 0, 1]] {
            compare::<f64, 1>(5, fermions);
            compare::<Complex<f64>, 2>(5, fermions);
        }
        compare::<f64, 1>(40, &[20, 17]);
    }

    /// Of any rank; but a number that is none stays one.
    #[test]
    fn a_singular_matrix_has_no_logarithm() {
        for (n, rank) in [(2, 1), (2, 0), (3, 1), (40, 0), (40, 17)] {
            let number = |row: usize, column: usize| if row < rank { ((row * n + column) as f64).sin() } else { 0.0 };
            let mut rows: Vec<_> = (0..n * n).map(|place| [number(place / n, place % n)]).collect();
            for (expected, changed) in [(f64::NEG_INFINITY, rows[0]), (f64::NAN, [f64::NAN])] {
                rows[0] = changed;
                let random = RandomSlater::<1>::of(rows.clone(), n, 1, &[n]);
                let slater = Slater::<f64>::new::<f64, 1>(random.tables(), n).expect("tables");
                let found = LogDerivatives::new(&slater).evaluate(0, &vec![1; n], None).re;
                assert!(found == expected || (found.is_nan() && expected.is_nan()), "{found} for rank {rank} of {n}");
            }
        }
    }

    #[test]
    fn psi_is_zero_with_another_number_of_fermions() {
        let random = RandomSlater::<1>::new(&mut StdRng::seed_from_u64(1), 3, 1, &[2]);
        let slater = Slater::<f64>::new::<f64, 1>(random.tables(), 3).expect("tables");
        let mut rows = vec![1.0; 6];
        for sample in [[1, 1, 1], [0, 1, 0]] {
            let log = LogDerivatives::new(&slater).evaluate(0, &sample, Some(&mut rows));
            assert_eq!((log.re, &rows), (f64::NEG_INFINITY, &vec![0.0; 6]));
        }
    }
}
