//! Pfaffians at one configuration.

use super::Pfaffians;
use super::skew::{add_pair, dot, invert, pfaffian};
use crate::amplitudes::fermions::accuracy::{LARGEST, MOVES, Pivots, RESIDUAL};
use crate::amplitudes::fermions::moves::{Move, Moves};
use crate::amplitudes::fermions::{Orbital, SignedLog};
use crate::sites::LocalIndex;
use pulp::Simd;
use smallvec::SmallVec;

/// Pfaffians at a configuration, and what it takes to go on.
#[derive(Debug, Clone)]
pub struct State<E> {
    /// The place of each occupied mode among rows of X. Where the state was set it is how many occupied modes are below, and
    /// the same holds for empty ones there.
    place: Vec<u32>,
    /// The mode of each row of X.
    occupied: Vec<u32>,
    /// X for each summand, `(fermions, stride)`.
    x: Vec<E>,
    /// `ψ_d` relative to `psi`.
    shares: Vec<E>,
    /// Whether X of a summand is used.
    is_regular: Vec<bool>,
    /// ψ, or where it is 0 the largest summand.
    psi: SignedLog<E>,
    /// Whether ψ is 0, or no number.
    is_zero: bool,
    /// The pivots since X was computed, for each summand.
    pivots: Vec<Pivots>,
    /// Memory for rows, and for which of them were used.
    rows: Vec<E>,
    used: Vec<bool>,
    /// How many moves it has made.
    moves: usize,
}

impl<E: Orbital> Default for State<E> {
    fn default() -> Self {
        Self {
            place: Vec::new(),
            occupied: Vec::new(),
            x: Vec::new(),
            shares: Vec::new(),
            is_regular: Vec::new(),
            psi: SignedLog::ZERO,
            is_zero: true,
            pivots: Vec::new(),
            rows: Vec::new(),
            used: Vec::new(),
            moves: 0,
        }
    }
}

impl<E: Orbital> State<E> {
    /// Goes to a configuration of local indices. With another number of fermions ψ is 0.
    pub(crate) fn set<S: Simd>(&mut self, simd: S, pfaffians: &Pfaffians<E>, indices: &[LocalIndex]) {
        self.place.clear();
        self.occupied.clear();
        for (mode, &index) in indices.iter().enumerate() {
            self.place.push(self.occupied.len() as u32);
            if index != 0 {
                self.occupied.push(mode as u32);
            }
        }
        if self.occupied.len() == pfaffians.fermions {
            self.solve(simd, pfaffians);
        } else {
            self.clear(pfaffians.weights.len());
        }
    }

    /// Makes ψ and all summands 0.
    #[cold]
    fn clear(&mut self, summands: usize) {
        (self.psi, self.is_zero) = (SignedLog::ZERO, true);
        self.shares.clear();
        self.shares.resize(summands, E::default());
        self.is_regular.clear();
        self.is_regular.resize(summands, true);
    }

    /// Computes all numbers from the pairs.
    fn solve<S: Simd>(&mut self, simd: S, pfaffians: &Pfaffians<E>) {
        let n = pfaffians.weights.len();
        self.x.resize(n * pfaffians.fermions * pfaffians.stride(), E::default());
        self.is_regular.clear();
        self.pivots.clear();
        self.pivots.resize(n, Pivots::default());
        let mut psi = SmallVec::<[_; 4]>::new();
        for summand in 0..n {
            let (found, is_regular) = self.solve_summand(simd, pfaffians, summand);
            psi.push(found.times(SignedLog::of(pfaffians.weights[summand])));
            self.is_regular.push(is_regular);
        }
        (self.psi, self.is_zero) = SignedLog::scale(&psi);
        self.is_zero |= n == 1 && !self.is_regular[0];
        self.shares.clear();
        self.shares.extend(psi.iter().map(|&of| if n == 1 { E::ONE } else { of.over(self.psi) }));
    }

    /// Computes X of one summand, its Pfaffian, and whether X may be used.
    fn solve_summand<S: Simd>(&mut self, simd: S, pfaffians: &Pfaffians<E>, summand: usize) -> (SignedLog<E>, bool) {
        let (n, stride) = (pfaffians.fermions, pfaffians.stride());
        let Self { occupied, x, rows, used, .. } = self;
        let x = &mut x[summand * n * stride..][..n * stride];
        for (row, &mode) in x.chunks_exact_mut(stride.max(1)).zip(&*occupied) {
            let pairs = pfaffians.row(summand, mode);
            row.fill(E::default());
            row.iter_mut().zip(&*occupied).for_each(|(number, &other)| *number = pairs[other as usize]);
        }
        let found = invert(simd, x, n, used, rows, || None);
        // With one Pfaffian the errors of X are those of ψ.
        let most = LARGEST / pfaffians.largest[summand];
        let are_small = pfaffians.weights.len() == 1 || x.iter().all(|number| number.modulus() <= most);
        (found, found.log.is_finite() && are_small)
    }

    /// Whether ψ is 0, or no number.
    #[inline(always)]
    pub(crate) fn is_zero(&self) -> bool {
        self.is_zero
    }

    /// The ratio of ψ with the fermions moved to that here, where the state was set; no number where ψ is 0 here. The moves
    /// keep the number of fermions, and name modes in order.
    #[inline(always)]
    pub(crate) fn ratio(&self, pfaffians: &Pfaffians<E>, moves: &Moves) -> E {
        if self.is_zero {
            return E::real(f64::NAN);
        }
        let mut ratio = E::default();
        for summand in 0..pfaffians.weights.len() {
            ratio += self.summand(pfaffians, summand, moves);
        }
        if self.is_even(moves) { ratio } else { -ratio }
    }

    /// Whether moving the fermions takes an even permutation of the occupied modes.
    #[inline(always)]
    pub(crate) fn is_even(&self, moves: &Moves) -> bool {
        let mut swaps = 0;
        for there in moves.iter() {
            // So many fermions below the emptied modes, and below the filled ones, stay where they are.
            for (below, &mode) in there.emptied.iter().enumerate() {
                swaps += self.place[mode as usize] as usize + below;
            }
            for &mode in &there.filled {
                let below = there.emptied.iter().filter(|&&emptied| emptied < mode).count();
                swaps += self.place[mode as usize] as usize + below;
            }
        }
        swaps.is_multiple_of(2)
    }

    /// What one of the Pfaffians adds to the ratio, with each fermion in the place of the one that has left.
    #[inline(always)]
    pub(crate) fn summand(&self, pfaffians: &Pfaffians<E>, summand: usize, moves: &Moves) -> E {
        if !self.is_regular[summand] {
            return self.there(pfaffians, summand, moves).over(self.psi);
        }
        let ratio = moves.iter().next().map_or(E::ONE, |there| self.ratio_of(pfaffians, summand, there));
        self.shares[summand] * ratio
    }

    /// The ratio of one of the Pfaffians: that of the tableau between the modes.
    #[inline(always)]
    fn ratio_of(&self, pfaffians: &Pfaffians<E>, summand: usize, there: &Move) -> E {
        match (&*there.emptied, &*there.filled) {
            ([from], [to]) => self.hop(pfaffians, summand, *from, *to),
            ([r, s], [e, f]) => {
                let hop = |from: u32, to: u32| self.hop(pfaffians, summand, from, to);
                let between = self.between_empty(pfaffians, summand, *e, *f);
                let straight = hop(*r, *e) * hop(*s, *f) - hop(*s, *e) * hop(*r, *f);
                straight - between * self.x_of(pfaffians, summand, *r)[self.place[*s as usize] as usize]
            }
            _ => self.ratio_of_many(pfaffians, summand, there),
        }
    }

    /// The number of the tableau for an empty mode and an occupied one.
    #[inline(always)]
    fn hop(&self, pfaffians: &Pfaffians<E>, summand: usize, from: u32, to: u32) -> E {
        -dot(pfaffians.row(summand, to), &self.occupied, self.x_of(pfaffians, summand, from))
    }

    /// That of two empty modes.
    #[inline(always)]
    fn between_empty(&self, pfaffians: &Pfaffians<E>, summand: usize, e: u32, f: u32) -> E {
        let mut of_e = SmallVec::<[E; 64]>::from_elem(E::default(), pfaffians.stride());
        self.row_of_empty(pfaffians, summand, e, &mut of_e);
        let pairs = pfaffians.row(summand, f);
        dot(pairs, &self.occupied, &of_e) - pairs[e as usize]
    }

    /// The numbers of the tableau for an empty mode, with all that are occupied: its row of F, times X.
    #[inline(always)]
    fn row_of_empty(&self, pfaffians: &Pfaffians<E>, summand: usize, mode: u32, row: &mut [E]) {
        let pairs = pfaffians.row(summand, mode);
        let stride = row.len();
        row.fill(E::default());
        let (twos, x) = (self.occupied.chunks_exact(2), self.x_of_all(pfaffians, summand));
        for (modes, x) in twos.zip(x.chunks_exact((2 * stride).max(1))) {
            let (first, second) = x.split_at(stride);
            add_pair(row, pairs[modes[0] as usize], first, pairs[modes[1] as usize], second);
        }
    }

    /// For three hops and more.
    #[cold]
    fn ratio_of_many(&self, pfaffians: &Pfaffians<E>, summand: usize, there: &Move) -> E {
        let number = |a: usize, b: usize| {
            let (of_a, of_b) = (there.filled[a / 2], there.filled[b / 2]);
            let (from_a, from_b) = (there.emptied[a / 2], there.emptied[b / 2]);
            match (a % 2, b % 2) {
                (0, 0) => self.between_empty(pfaffians, summand, of_a, of_b),
                (0, _) => self.hop(pfaffians, summand, from_b, of_a),
                (_, 0) => -self.hop(pfaffians, summand, from_a, of_b),
                _ => self.x_of(pfaffians, summand, from_a)[self.place[from_b as usize] as usize],
            }
        };
        pfaffian(2 * there.filled.len(), number).over(SignedLog::ONE)
    }

    /// X of a summand.
    #[inline(always)]
    fn x_of_all(&self, pfaffians: &Pfaffians<E>, summand: usize) -> &[E] {
        let len = pfaffians.fermions * pfaffians.stride();
        &self.x[summand * len..][..len]
    }

    /// The row of X of an occupied mode.
    #[inline(always)]
    fn x_of(&self, pfaffians: &Pfaffians<E>, summand: usize, mode: u32) -> &[E] {
        let stride = pfaffians.stride();
        &self.x[(summand * pfaffians.fermions + self.place[mode as usize] as usize) * stride..][..stride]
    }

    /// One of the summands with the fermions moved, from its pairs.
    #[cold]
    pub(crate) fn there(&self, pfaffians: &Pfaffians<E>, summand: usize, moves: &Moves) -> SignedLog<E> {
        let mut occupied = self.occupied.clone();
        for there in moves.iter() {
            for (&from, &to) in there.emptied.iter().zip(&there.filled) {
                occupied[self.place[from as usize] as usize] = to;
            }
        }
        let of_pair = |a: usize, b: usize| pfaffians.row(summand, occupied[a])[occupied[b] as usize];
        pfaffian(occupied.len(), of_pair).times(SignedLog::of(pfaffians.weights[summand]))
    }

    /// Moves the fermions. `summands` are what the Pfaffians add to the ratio.
    #[inline(always)]
    pub(crate) fn go<S: Simd>(&mut self, simd: S, pfaffians: &Pfaffians<E>, moves: &Moves, summands: &[E]) {
        let mut is_exact = !self.is_zero() && self.is_regular.iter().all(|&is_regular| is_regular);
        self.moves += 1;
        is_exact &= !self.moves.is_multiple_of(MOVES);
        let mut is_odd = false;
        for there in moves.iter() {
            is_odd ^= self.hop_all(pfaffians, there, is_exact);
        }
        let (n, ratio) = (pfaffians.weights.len(), E::sum(summands));
        // Nothing has a share of 0.
        is_exact &= n == 1 || ratio.modulus() > 0.0;
        if is_exact && n > 1 {
            self.psi = self.psi.times(SignedLog::of(if is_odd { -ratio } else { ratio }));
            self.shares.iter_mut().zip(summands).for_each(|(share, &summand)| *share = summand / ratio);
        }
        for summand in 0..n {
            is_exact &= self.amend(simd, pfaffians, summand, is_exact);
        }
        if !is_exact {
            self.solve(simd, pfaffians);
        }
    }

    /// Moves fermions one by one: modes change their places, and if X is `exact`, it changes with them. Says whether the modes
    /// that are filled took the places of those that are emptied in an odd permutation.
    #[inline(always)]
    fn hop_all(&mut self, pfaffians: &Pfaffians<E>, there: &Move, exact: bool) -> bool {
        let (mut emptied, mut filled) = (there.emptied.clone(), there.filled.clone());
        let mut is_odd = false;
        while !emptied.is_empty() {
            let (a, b) =
                if emptied.len() > 1 && exact { self.largest_hop(pfaffians, &emptied, &filled) } else { (0, 0) };
            filled.swap(a, b);
            is_odd ^= a != b;
            let (from, to) = (emptied.swap_remove(a), filled.swap_remove(a));
            let place = self.place[from as usize];
            for summand in (0..pfaffians.weights.len()).filter(|_| exact) {
                let pivot = self.replace(pfaffians, summand, place as usize, to);
                self.pivots[summand].note(pivot.modulus());
            }
            self.occupied[place as usize] = to;
            self.place[to as usize] = place;
        }
        is_odd
    }

    /// Which of the emptied and filled modes have the largest number of the first tableau.
    #[cold]
    fn largest_hop(&self, pfaffians: &Pfaffians<E>, emptied: &[u32], filled: &[u32]) -> (usize, usize) {
        let (mut found, mut largest) = ((0, 0), 0.0);
        for (a, &from) in emptied.iter().enumerate() {
            for (b, &to) in filled.iter().enumerate() {
                let modulus = self.hop(pfaffians, 0, from, to).modulus();
                if modulus > largest {
                    (found, largest) = ((a, b), modulus);
                }
            }
        }
        found
    }

    /// Makes X that with a mode in the place of another one, and gives the ratio of the Pfaffians.
    #[inline(always)]
    fn replace(&mut self, pfaffians: &Pfaffians<E>, summand: usize, place: usize, to: u32) -> E {
        let (n, stride) = (pfaffians.fermions, pfaffians.stride());
        let mut rows = std::mem::take(&mut self.rows);
        rows.resize(2 * stride, E::default());
        let (of_empty, of_place) = rows.split_at_mut(stride);
        self.row_of_empty(pfaffians, summand, to, of_empty);
        let x = &mut self.x[summand * n * stride..][..n * stride];
        let pivot = of_empty[place];
        let inverse = E::ONE / pivot;
        for (number, &of_row) in of_place.iter_mut().zip(&x[place * stride..][..stride]) {
            *number = of_row * inverse;
        }
        // Rounding leaves X skew-symmetric, since a sum of two products is that of the same two with the other sign: what is not
        // would grow with each small pivot.
        for (j, row) in x.chunks_exact_mut(stride).enumerate() {
            add_pair(row, of_place[j], of_empty, -of_empty[j], of_place);
            row[place] = -of_place[j];
        }
        x[place * stride..][..stride].copy_from_slice(of_place);
        self.rows = rows;
        pivot
    }

    /// Computes X of one summand anew if it may be inexact, and its share: what was small may have become large, with all
    /// errors that it had. Says whether it is exact now.
    #[inline(always)]
    fn amend<S: Simd>(&mut self, simd: S, pfaffians: &Pfaffians<E>, summand: usize, exact: bool) -> bool {
        if !exact || (self.pivots[summand].are_moderate && self.residual(pfaffians, summand) < RESIDUAL) {
            return exact;
        }
        self.pivots[summand] = Pivots::default();
        let (found, is_exact) = self.solve_summand(simd, pfaffians, summand);
        if self.shares.len() > 1 {
            let found = found.times(SignedLog::of(pfaffians.weights[summand]));
            self.shares[summand] = found.over(self.psi);
            let total = E::sum(&self.shares);
            self.psi = self.psi.times(SignedLog::of(total));
            self.shares.iter_mut().for_each(|share| *share /= total);
        }
        is_exact
    }

    /// How wrong a number of A X = 1 is, another one each time. Ratios are wrong by a few times as much, so that what counts is
    /// its size; but where X is so large that one can't do better, relative to the summands.
    #[inline(always)]
    fn residual(&self, pfaffians: &Pfaffians<E>, summand: usize) -> f64 {
        let n = pfaffians.fermions;
        if n == 0 {
            return 0.0;
        }
        let (a, b) = (self.moves % n, self.moves / n % n);
        let pairs = pfaffians.row(summand, self.occupied[a]);
        let (mut found, mut size) = (E::real(if a == b { 1.0 } else { 0.0 }), 0.0);
        for (&mode, &x) in self.occupied.iter().zip(self.x_of(pfaffians, summand, self.occupied[b])) {
            let summand = pairs[mode as usize] * x;
            found += summand;
            size += summand.modulus();
        }
        found.modulus() / (4.0 + 0.01 * size)
    }
}
