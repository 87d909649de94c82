//! Pfaffians of pairs of fermions, and sums of them.
//!
//! `ψ(n) = Σ_d w_d Pf F_d[R, R]`, where R are the occupied modes, in order, and `F_d` is skew-symmetric: T. Misawa et al.,
//! Comput. Phys. Commun. 235, 447 (2019).
//!
//! With A = F\[R, R\] and X = A⁻¹, consider the tableau that pivoting F on R gives, with the empty modes E:
//! T\[R, R\] = X, T\[E, R\] = F\[E, R\] X and T\[E, E\] = F\[E, E\] − F\[E, R\] X F\[R, E\]. If fermions go from modes r to as many modes e,
//! each to the place of one of r, the Pfaffian is multiplied by that of T between (e₁, r₁, e₂, r₂, …). A hop is a single number,
//! the product of a row of F and one of X. So X is all that is kept.

use crate::Error;
use crate::amplitudes::fermions::moves::Moves;
use crate::amplitudes::fermions::{Fermions, Orbital, SignedLog};
use crate::error::check;
use crate::numbers::{Real, complex};
use crate::sites::LocalIndex;
use pulp::Simd;
use state::State;

mod derivatives;
mod skew;
mod state;

pub use derivatives::{PairSums, PairTables};

/// The pairs that Pfaffians are made of.
#[derive(Debug, Clone, Copy)]
pub struct PfaffianTables<'a, T> {
    /// F for each plane and summand, `(modes, modes)` each: what is above the diagonal counts.
    pub pairs: &'a [T],
    /// The factor of each summand, for each plane.
    pub weights: &'a [T],
    /// How many fermions there are.
    pub fermions: usize,
}

/// Pfaffians whose tables were checked.
#[derive(Debug, Clone)]
pub struct Pfaffians<E> {
    /// F of each summand, `(modes, modes)`.
    pairs: Vec<E>,
    weights: Vec<E>,
    /// The largest modulus of each F.
    largest: Vec<f64>,
    modes: usize,
    fermions: usize,
}

/// So many numbers are summed up side by side; rows of X are as long as a multiple of it, with zeros at the end.
const LANES: usize = 8;

impl<E: Orbital> Pfaffians<E> {
    /// Checks the tables, of `P` planes: real numbers, or real and imaginary parts. There is a mode for each site.
    pub fn new<T: Real, const P: usize>(tables: PfaffianTables<T>, sites: usize) -> Result<Self, Error> {
        let PfaffianTables { pairs, weights, fermions } = tables;
        let summands = weights.len() / P;
        check(summands > 0 && weights.len() == P * summands, || {
            format!("there are {} weights in {P} planes, but must be one for each Pfaffian", weights.len())
        })?;
        check(fermions.is_multiple_of(2), || format!("there are {fermions} fermions, but pairs have an even number"))?;
        check(fermions <= sites, || format!("there are {fermions} fermions on {sites} modes"))?;
        let len = summands * sites * sites;
        check(pairs.len() == P * len, || {
            format!("`pairs` has {} numbers, but must have {P} for each of {len}", pairs.len())
        })?;
        let number = |of: &[T], len: usize, place: usize| {
            E::of(complex::<P>(std::array::from_fn(|plane| of[plane * len + place].into())))
        };
        let mut both = vec![E::default(); len];
        for (summand, both) in both.chunks_exact_mut((sites * sites).max(1)).enumerate() {
            for a in 0..sites {
                for b in a + 1..sites {
                    let of_pair = number(pairs, len, (summand * sites + a) * sites + b);
                    both[a * sites + b] = of_pair;
                    both[b * sites + a] = -of_pair;
                }
            }
        }
        let largest = both.chunks(if sites == 0 { 1 } else { sites * sites });
        let largest = largest.map(|of| of.iter().fold(0.0_f64, |most, number| most.max(number.modulus()))).collect();
        let weights = (0..summands).map(|place| number(weights, summands, place)).collect();
        Ok(Self { pairs: both, weights, largest, modes: sites, fermions })
    }

    /// How long the rows of X are.
    #[inline(always)]
    fn stride(&self) -> usize {
        self.fermions.next_multiple_of(LANES)
    }

    /// The row of F of a mode.
    #[inline(always)]
    fn row(&self, summand: usize, mode: u32) -> &[E] {
        &self.pairs[(summand * self.modes + mode as usize) * self.modes..][..self.modes]
    }
}

impl<E: Orbital> Fermions for Pfaffians<E> {
    type Number = E;
    type State = State<E>;
    type Memory = ();

    const READS_MANY: bool = true;

    fn memory(&self) {}

    #[inline(always)]
    fn modes(&self) -> usize {
        self.modes
    }

    #[inline(always)]
    fn summands(&self) -> usize {
        self.weights.len()
    }

    fn numbers(&self) -> usize {
        self.weights.len() * self.fermions * self.stride() * size_of::<E>() / size_of::<f64>()
    }

    #[inline(always)]
    fn is_occupied(&self, _: usize, index: LocalIndex) -> bool {
        index != 0
    }

    fn check(&self, indices: &[LocalIndex]) -> Result<(), Error> {
        let (found, expected) = (indices.iter().filter(|&&index| index != 0).count(), self.fermions);
        if found == expected { Ok(()) } else { Err(Error::PairedFermions { found, expected }) }
    }

    fn set<S: Simd>(&self, simd: S, (): &mut (), state: &mut State<E>, indices: &[LocalIndex]) {
        state.set(simd, self, indices);
    }

    #[inline(always)]
    fn is_zero(&self, state: &State<E>) -> bool {
        state.is_zero()
    }

    #[inline(always)]
    fn ratio(&self, state: &State<E>, moves: &Moves) -> E {
        state.ratio(self, moves)
    }

    #[inline(always)]
    fn is_even(&self, state: &State<E>, moves: &Moves) -> bool {
        state.is_even(moves)
    }

    #[inline(always)]
    fn summand(&self, state: &State<E>, index: usize, moves: &Moves) -> E {
        state.summand(self, index, moves)
    }

    fn there(&self, state: &State<E>, index: usize, moves: &Moves) -> SignedLog<E> {
        state.there(self, index, moves)
    }

    #[inline(always)]
    fn go<S: Simd>(&self, simd: S, (): &mut (), state: &mut State<E>, moves: &Moves, summands: &[E]) {
        state.go(simd, self, moves, summands);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_tables_are_named() {
        let error = |pairs: &[f64], weights: &[f64], fermions| {
            let tables = PfaffianTables { pairs, weights, fermions };
            Pfaffians::<f64>::new::<f64, 1>(tables, 3).expect_err("wrong tables").to_string()
        };
        assert!(error(&[0.0; 9], &[], 2).contains("there are 0 weights in 1 planes"));
        assert!(error(&[0.0; 9], &[1.0], 1).contains("there are 1 fermions, but pairs have an even number"));
        assert!(error(&[0.0; 9], &[1.0], 4).contains("there are 4 fermions on 3 modes"));
        assert!(error(&[0.0; 9], &[1.0, 1.0], 2).contains("`pairs` has 9 numbers, but must have 1 for each of 18"));
        let tables = PfaffianTables { pairs: &[0.0; 9], weights: &[1.0], fermions: 2 };
        let pfaffians = Pfaffians::<f64>::new::<f64, 1>(tables, 3).expect("tables");
        let message = pfaffians.check(&[1, 1, 1]).expect_err("too many").to_string();
        assert!(message.starts_with("a sample has 3 fermions, but pairs are made of 2"), "{message}");
    }
}
