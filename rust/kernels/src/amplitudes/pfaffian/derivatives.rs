//! The logarithms of sums of Pfaffians whose pairs have parameters in common, and their derivatives by these.

use super::LANES;
use super::skew::invert;
use crate::Error;
use crate::amplitudes::fermions::{Orbital, SignedLog};
use crate::error::{check, index};
use crate::numbers::{Real, complex, dispatch};
use num_complex::Complex;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// So small that its products with other pivots don't matter, and so large that its inverse's do.
const SMALLEST: f64 = 1e-150;

/// So large are derivatives of ln ψ where ψ is 0: a number in single precision, too.
const INFINITE: f64 = 1e30;

/// The pairs `F_gr[a, b] = s_g(a) s_g(b) Σ_t factors_r[g(a), g(b), t] · parameters[index[g(a), g(b), t]]` of modes a and b, for
/// each symmetry g and rotation r.
#[derive(Debug, Clone, Copy)]
pub struct PairTables<'a, T> {
    /// For each plane.
    pub parameters: &'a [T],
    /// The factor of each summand, `(symmetries, rotations)`, for each plane.
    pub weights: &'a [T],
    /// Parameters of each pair of modes, `(modes, modes, terms)`; what is above the diagonal counts.
    pub index: &'a [i32],
    /// What they are multiplied with, `(rotations, modes, modes, terms)`.
    pub factors: &'a [f64],
    /// Where each symmetry takes each mode, `(symmetries, modes)`.
    pub permutations: &'a [i32],
    /// The signs s that it gives them, alike.
    pub signs: &'a [f64],
    /// How many terms there are of a pair.
    pub terms: usize,
    /// How many modes there are.
    pub modes: usize,
    /// How many of them are occupied.
    pub fermions: usize,
}

/// Sums of Pfaffians whose tables were checked.
#[derive(Debug)]
pub struct PairSums<'a, E> {
    /// F of each rotation without a symmetry, `(rotations, modes, modes)`.
    pairs: Vec<E>,
    weights: Vec<E>,
    index: &'a [i32],
    factors: &'a [f64],
    permutations: &'a [i32],
    signs: &'a [f64],
    parameters: usize,
    terms: usize,
    modes: usize,
    fermions: usize,
}

impl<'a, E: Orbital> PairSums<'a, E> {
    /// Checks the tables, of `P` planes: real parameters, or real and imaginary parts.
    pub fn new<T: Real, const P: usize>(tables: PairTables<'a, T>) -> Result<Self, Error> {
        let PairTables { parameters, weights, index: of_pair, factors, permutations, signs, terms, modes, fermions } =
            tables;
        check(fermions.is_multiple_of(2) && fermions <= modes, || {
            format!("there are {fermions} fermions on {modes} modes, but pairs have an even number")
        })?;
        let (count, symmetries) = (parameters.len() / P, permutations.len().checked_div(modes).unwrap_or(0));
        let len = modes * modes * terms;
        let rotations = factors.len().checked_div(len).unwrap_or(0);
        check(permutations.len() == symmetries * modes && signs.len() == permutations.len(), || {
            format!("there are {} permuted modes with {} signs, but {modes} modes", permutations.len(), signs.len())
        })?;
        check(of_pair.len() == len && factors.len() == rotations * len, || {
            format!(
                "there are {} indices and {} factors, but must be {len} of a rotation",
                of_pair.len(),
                factors.len()
            )
        })?;
        check(weights.len() == P * symmetries * rotations && !weights.is_empty(), || {
            format!(
                "there are {} weights in {P} planes for {symmetries} symmetries and {rotations} rotations",
                weights.len()
            )
        })?;
        let exist = |numbers: &[i32], count| numbers.iter().all(|&number| index(number, count).is_some());
        check(exist(of_pair, count), || format!("a pair has a parameter that isn't one of {count}"))?;
        check(exist(permutations, modes), || format!("a mode comes to one that isn't one of {modes}"))?;
        let number = |of: &[T], place: usize| {
            let len = of.len() / P;
            E::of(complex::<P>(std::array::from_fn(|plane| of[plane * len + place].into())))
        };
        let numbers: Vec<E> = (0..count).map(|place| number(parameters, place)).collect();
        let mut pairs = vec![E::default(); rotations * modes * modes];
        for (rotation, pairs) in pairs.chunks_exact_mut((modes * modes).max(1)).enumerate() {
            for a in 0..modes {
                for b in a + 1..modes {
                    let mut pair = E::default();
                    for place in terms_of(a * modes + b, terms) {
                        pair += E::real(factors[rotation * len + place]) * numbers[of_pair[place] as usize];
                    }
                    (pairs[a * modes + b], pairs[b * modes + a]) = (pair, -pair);
                }
            }
        }
        let weights = (0..symmetries * rotations).map(|place| number(weights, place)).collect();
        Ok(Self {
            pairs,
            weights,
            index: of_pair,
            factors,
            permutations,
            signs,
            parameters: count,
            terms,
            modes,
            fermions,
        })
    }

    /// How many parameters there are.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Writes ln ψ of samples `(Ns, modes)`, where a mode is empty where it is 0, and with `rows` given its derivatives by the
    /// parameters, `(Ns, parameters)`. With another number of fermions ψ is 0, and so are the derivatives.
    ///
    /// A Pfaffian that is 0 has derivatives, which count in a sum: a pivot of 0 is taken for one that is very small. If ψ is 0
    /// they are large numbers.
    pub fn evaluate(&self, n: &[u8], log_psi: &mut [Complex<f64>], rows: Option<&mut [E]>) {
        dispatch(Work { sums: self, n, log_psi, rows });
    }
}

/// Where a pair's terms are.
#[inline(always)]
fn terms_of(pair: usize, terms: usize) -> Range<usize> {
    pair * terms..(pair + 1) * terms
}

/// What [`PairSums::evaluate`] does.
struct Work<'w, 'a, E> {
    sums: &'w PairSums<'a, E>,
    n: &'w [u8],
    log_psi: &'w mut [Complex<f64>],
    rows: Option<&'w mut [E]>,
}

impl<E: Orbital> WithSimd for Work<'_, '_, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { sums, n, log_psi, rows } = self;
        let mut sample = Sample {
            sums,
            occupied: Vec::new(),
            images: Vec::new(),
            x: Vec::new(),
            used: Vec::new(),
            memory: Vec::new(),
        };
        let mut rows = rows.map(|rows| rows.chunks_exact_mut(sums.parameters.max(1)));
        for (place, log_psi) in log_psi.iter_mut().enumerate() {
            let row = rows.as_mut().and_then(Iterator::next);
            *log_psi = sample.evaluate(simd, &n[place * sums.modes..][..sums.modes], row);
        }
    }
}

/// A sample, and the memory that it takes.
struct Sample<'w, 'a, E> {
    sums: &'w PairSums<'a, E>,
    occupied: Vec<u32>,
    /// Where the symmetry of a summand takes the occupied modes, and the signs that it gives them.
    images: Vec<(usize, f64)>,
    /// X of one summand.
    x: Vec<E>,
    used: Vec<bool>,
    memory: Vec<E>,
}

impl<E: Orbital> Sample<'_, '_, E> {
    /// ln ψ, and its derivatives. Summands are added up relative to the largest one so far.
    #[inline(always)]
    fn evaluate<S: Simd>(&mut self, simd: S, n: &[u8], mut row: Option<&mut [E]>) -> Complex<f64> {
        if let Some(row) = row.as_deref_mut() {
            row.fill(E::default());
        }
        self.occupied.clear();
        self.occupied.extend(n.iter().enumerate().filter_map(|(mode, &n)| (n != 0).then_some(mode as u32)));
        if self.occupied.len() != self.sums.fermions {
            return Complex::new(f64::NEG_INFINITY, 0.0);
        }
        let (mut scale, mut sum, mut is_zero) = (SignedLog::ZERO, E::default(), true);
        for summand in 0..self.sums.weights.len() {
            let (pfaffian, is_singular) = self.solve(simd, summand);
            let psi = pfaffian.times(SignedLog::of(self.sums.weights[summand]));
            if psi.is_zero() {
                continue;
            }
            is_zero &= is_singular;
            if psi.log > scale.log || psi.log.is_nan() {
                let larger = SignedLog { log: psi.log, phase: E::ONE };
                let before = scale.over(larger);
                scale = larger;
                sum *= before;
                row.iter_mut().flat_map(|row| row.iter_mut()).for_each(|number| *number *= before);
            }
            let psi = psi.over(scale);
            sum += psi;
            if let Some(row) = row.as_deref_mut() {
                self.add_derivatives(summand, psi, row);
            }
        }
        if let Some(row) = row {
            let total = if sum == E::default() { E::ONE } else { sum };
            let total = if is_zero { total * E::real(1.0 / (SMALLEST * INFINITE)) } else { total };
            for number in row {
                *number /= total;
            }
        }
        if is_zero { SignedLog::<E>::ZERO.logarithm() } else { scale.times(SignedLog::of(sum)).logarithm() }
    }

    /// A summand's Pfaffian, of which X is left, and whether it is 0.
    #[inline(always)]
    fn solve<S: Simd>(&mut self, simd: S, summand: usize) -> (SignedLog<E>, bool) {
        let Self { sums, occupied, images, x, used, memory } = self;
        let (symmetry, rotation) = sums.place(summand);
        images.clear();
        images.extend(occupied.iter().map(|&mode| sums.image(symmetry, mode)));
        let stride = sums.fermions.next_multiple_of(LANES);
        x.clear();
        x.resize(sums.fermions * stride, E::default());
        let pairs = &sums.pairs[rotation * sums.modes * sums.modes..];
        for (row, &(a, of_a)) in x.chunks_exact_mut(stride.max(1)).zip(&*images) {
            let pairs = &pairs[a * sums.modes..][..sums.modes];
            for (number, &(b, of_b)) in row.iter_mut().zip(&*images) {
                *number = pairs[b] * E::real(of_a * of_b);
            }
        }
        let mut zeros = 0;
        let found = invert(simd, x, sums.fermions, used, memory, || {
            zeros += 1;
            Some(E::real(SMALLEST))
        });
        (found, zeros > 0)
    }

    /// Adds the derivatives of a summand's logarithm, times a number: d ln Pf A is the sum of `X_ba dA_ab` over a < b.
    #[inline(always)]
    fn add_derivatives(&self, summand: usize, times: E, row: &mut [E]) {
        let Self { sums, images, x, .. } = self;
        let (_, rotation) = sums.place(summand);
        let stride = sums.fermions.next_multiple_of(LANES);
        let factors = &sums.factors[rotation * sums.index.len()..][..sums.index.len()];
        for (i, &(a, of_a)) in images.iter().enumerate() {
            for (&(b, of_b), &x) in images[..i].iter().zip(&x[i * stride..]) {
                // The pair of the smaller mode with the larger one has the parameters.
                let (pair, sign) = if b < a { (b * sums.modes + a, 1.0) } else { (a * sums.modes + b, -1.0) };
                let number = times * x * E::real(sign * of_a * of_b);
                for place in terms_of(pair, sums.terms) {
                    row[sums.index[place] as usize] += number * E::real(factors[place]);
                }
            }
        }
    }
}

impl<E: Orbital> PairSums<'_, E> {
    /// The symmetry and the rotation of a summand.
    #[inline(always)]
    fn place(&self, summand: usize) -> (usize, usize) {
        let rotations = self.pairs.len().checked_div(self.modes * self.modes).unwrap_or(1).max(1);
        (summand / rotations, summand % rotations)
    }

    /// Where a symmetry takes a mode, and the sign that it gives it.
    #[inline(always)]
    fn image(&self, symmetry: usize, mode: u32) -> (usize, f64) {
        let place = symmetry * self.modes + mode as usize;
        (self.permutations[place] as usize, self.signs[place])
    }
}

#[cfg(test)]
mod tests {
    use super::super::skew::pfaffian;
    use super::*;
    use crate::numbers::each_level;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    const MODES: usize = 6;
    const TERMS: usize = 2;
    const PARAMETERS: usize = 9;

    struct Owned {
        parameters: Vec<Complex<f64>>,
        weights: Vec<Complex<f64>>,
        index: Vec<i32>,
        factors: Vec<f64>,
        permutations: Vec<i32>,
        signs: Vec<f64>,
    }

    fn split(numbers: &[Complex<f64>]) -> Vec<f64> {
        numbers.iter().map(|number| number.re).chain(numbers.iter().map(|number| number.im)).collect()
    }

    impl Owned {
        fn new(rng: &mut StdRng, symmetries: usize, rotations: usize) -> Self {
            let mut number = |_| Complex::new(rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0));
            let parameters = (0..PARAMETERS).map(&mut number).collect();
            let weights = (0..symmetries * rotations).map(&mut number).collect();
            let len = MODES * MODES * TERMS;
            let permutations =
                (0..symmetries).flat_map(|shift| (0..MODES).map(move |mode| ((mode + shift) % MODES) as i32));
            Self {
                parameters,
                weights,
                index: (0..len).map(|_| rng.random_range(0..PARAMETERS as i32)).collect(),
                factors: (0..rotations * len).map(|_| rng.random_range(-1.0..1.0)).collect(),
                permutations: permutations.collect(),
                signs: (0..symmetries * MODES).map(|_| f64::from(2 * rng.random_range(0..2) - 1)).collect(),
            }
        }

        fn evaluate(&self, n: &[u8], fermions: usize) -> (Complex<f64>, Vec<Complex<f64>>) {
            let (parameters, weights) = (split(&self.parameters), split(&self.weights));
            let tables = PairTables {
                parameters: &parameters,
                weights: &weights,
                index: &self.index,
                factors: &self.factors,
                permutations: &self.permutations,
                signs: &self.signs,
                terms: TERMS,
                modes: MODES,
                fermions,
            };
            let sums = PairSums::<Complex<f64>>::new::<f64, 2>(tables).expect("right tables");
            let mut found = Vec::new();
            for _ in each_level() {
                let (mut log_psi, mut rows) = ([Complex::default()], vec![Complex::new(7.0, 7.0); PARAMETERS]);
                sums.evaluate(n, &mut log_psi, Some(&mut rows));
                let mut alone = [Complex::default()];
                sums.evaluate(n, &mut alone, None);
                assert_eq!(alone, log_psi);
                found.push((log_psi[0], rows));
            }
            assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
            found.remove(0)
        }

        /// ψ by definition.
        fn psi(&self, n: &[u8]) -> Complex<f64> {
            let occupied: Vec<usize> = (0..MODES).filter(|&mode| n[mode] != 0).collect();
            let rotations = self.factors.len() / self.index.len();
            let of_summand = |(summand, &weight): (usize, &Complex<f64>)| {
                let (symmetry, rotation) = (summand / rotations, summand % rotations);
                let above = |a: usize, b: usize| -> Complex<f64> {
                    let places = (a * MODES + b) * TERMS..(a * MODES + b + 1) * TERMS;
                    let term = |place: usize| {
                        self.factors[rotation * self.index.len() + place] * self.parameters[self.index[place] as usize]
                    };
                    places.map(term).sum()
                };
                let pair = |i: usize, j: usize| {
                    let image = |mode: usize| self.permutations[symmetry * MODES + mode] as usize;
                    let (a, b) = (image(occupied[i]), image(occupied[j]));
                    let sign = self.signs[symmetry * MODES + occupied[i]] * self.signs[symmetry * MODES + occupied[j]];
                    sign * if a < b { above(a, b) } else { -above(b, a) }
                };
                weight * pfaffian(occupied.len(), pair).over(SignedLog::ONE)
            };
            self.weights.iter().enumerate().map(of_summand).sum()
        }
    }

    #[test]
    fn logarithms_and_derivatives_by_definition() {
        let rng = &mut StdRng::seed_from_u64(1);
        for (symmetries, rotations, n) in
            [(1, 1, [1, 1, 0, 0, 0, 0]), (1, 3, [1, 0, 1, 1, 0, 1]), (4, 2, [0, 1, 1, 1, 1, 0])]
        {
            let mut owned = Owned::new(rng, symmetries, rotations);
            let fermions = n.iter().map(|&n| usize::from(n)).sum();
            let (log_psi, rows) = owned.evaluate(&n, fermions);
            let psi = owned.psi(&n);
            assert!((log_psi.exp() - psi).norm() < 1e-12 * psi.norm(), "{log_psi} {psi}");
            for (place, row) in rows.into_iter().enumerate() {
                let (before, step) = (owned.parameters[place], 1e-6);
                let mut shifted = |by: f64| {
                    owned.parameters[place] = before + by;
                    owned.psi(&n)
                };
                let expected = (shifted(step) - shifted(-step)) / (2.0 * step) / psi;
                owned.parameters[place] = before;
                assert!((row - expected).norm() < 1e-8 * (1.0 + expected.norm()), "{row} {expected}");
            }
            let (none, zeros) = owned.evaluate(&n, fermions + if fermions == 6 { 0 } else { 2 });
            assert_eq!((none.re, zeros), (f64::NEG_INFINITY, vec![Complex::default(); PARAMETERS]));
        }
    }

    /// A summand that is 0 at exactly two parameters still has derivatives.
    #[test]
    fn a_singular_summand_counts() {
        let pairs = |first: f64| {
            // ψ is p₀ + p₁, of one pair that two symmetries see as one of two modes.
            let tables = PairTables {
                parameters: &[first, 2.0, 3.0],
                weights: &[1.0, 1.0],
                index: &[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                factors: &[1.0; 16],
                permutations: &[0, 1, 2, 3, 1, 2, 0, 3],
                signs: &[1.0; 8],
                terms: 1,
                modes: 4,
                fermions: 2,
            };
            let sums = PairSums::<f64>::new::<f64, 1>(tables).expect("right tables");
            let (mut log_psi, mut rows) = ([Complex::default()], vec![0.0; 3]);
            sums.evaluate(&[1, 1, 0, 0], &mut log_psi, Some(&mut rows));
            (log_psi[0], rows)
        };
        for first in [0.0, 1e-9, 0.5] {
            let (log_psi, rows) = pairs(first);
            assert!((log_psi - (2.0 + first).ln()).norm() < 1e-14, "{log_psi}");
            let expected = [1.0 / (2.0 + first), 1.0 / (2.0 + first), 0.0];
            assert!(rows.iter().zip(expected).all(|(row, expected)| (row - expected).abs() < 1e-14), "{rows:?}");
        }
    }

    #[test]
    fn wrong_tables_are_named() {
        let right = PairTables {
            parameters: &[1.0],
            weights: &[1.0],
            index: &[0; 4],
            factors: &[1.0; 4],
            permutations: &[0, 1],
            signs: &[1.0; 2],
            terms: 1,
            modes: 2,
            fermions: 2,
        };
        let message = |tables| PairSums::<f64>::new::<f64, 1>(tables).expect_err("wrong tables").to_string();
        assert!(PairSums::<f64>::new::<f64, 1>(right).is_ok());
        assert!(message(PairTables { fermions: 1, ..right }).contains("there are 1 fermions on 2 modes"));
        assert!(message(PairTables { signs: &[1.0], ..right }).contains("there are 2 permuted modes with 1 signs"));
        assert!(message(PairTables { index: &[0; 3], ..right }).contains("there are 3 indices and 4 factors"));
        assert!(message(PairTables { weights: &[1.0; 2], ..right }).contains("there are 2 weights in 1 planes"));
        assert!(message(PairTables { index: &[0, 1, 0, 0], ..right }).contains("a parameter that isn't one of 1"));
        assert!(
            message(PairTables { permutations: &[0, 2], ..right }).contains("a mode comes to one that isn't one of 2")
        );
    }
}
