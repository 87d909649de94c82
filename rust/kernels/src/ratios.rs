//! Local values of amplitudes whose ratios are known, so that no connected configuration is ever built.

use crate::element::MatrixElement;
use crate::local_states::LocalIndex;
use crate::terms::{BLOCK, Column, Terms, WORDS, bits};
use num_complex::Complex;
use pulp::{Arch, Simd, WithSimd};
use std::array::from_fn;
use std::ops::Mul;

/// So many ratios are evaluated together.
pub const TOGETHER: usize = 8;

/// What ratios are: real or complex numbers. Both are multiplied by matrix elements of either kind.
pub trait Ratio:
    Copy
    + Default
    + Into<Complex<f64>>
    + Mul<Output = Self>
    + Mul<f64, Output: Into<Complex<f64>>>
    + Mul<Complex<f64>, Output: Into<Complex<f64>>>
{
}

impl Ratio for f64 {}
impl Ratio for Complex<f64> {}

/// Matrix elements that ratios are multiplied by.
pub trait Weight: MatrixElement + Into<Complex<f64>> {
    /// The product with a ratio.
    fn times_ratio<R: Ratio>(self, ratio: R) -> Complex<f64>;
}

impl Weight for f64 {
    #[inline(always)]
    fn times_ratio<R: Ratio>(self, ratio: R) -> Complex<f64> {
        Mul::<Self>::mul(ratio, self).into()
    }
}

impl Weight for Complex<f64> {
    #[inline(always)]
    fn times_ratio<R: Ratio>(self, ratio: R) -> Self {
        Mul::<Self>::mul(ratio, self).into()
    }
}

/// ψ(σ') / ψ(σ) for samples σ, and σ' that differ from them on the same sites, in the same ways.
///
/// Each site has two local states.
pub trait Ratios {
    /// Real or complex numbers.
    type Ratio: Ratio;

    /// Sets how σ' differs: the first one of `sites` goes from its first to its second state, and those of the others that
    /// are `opposite` go the other way.
    fn change<S: Simd>(&mut self, simd: S, sites: &[usize], opposite: &[bool]);

    /// Has all sites go the other way.
    fn reverse(&mut self);

    /// The ratios of some samples.
    fn ratios<S: Simd>(&self, simd: S, samples: [usize; TOGETHER]) -> [Self::Ratio; TOGETHER];
}

/// The local values Σ ⟨σ|O|σ'⟩ ψ(σ') / ψ(σ) of up to [`crate::terms::BLOCK`] samples σ, given as local indices. `first` is
/// the number that the first one has for `ratios`.
pub fn local_values<V: Weight, R: Ratios>(
    terms: &Terms,
    values: &[V],
    indices: &[LocalIndex],
    ratios: R,
    first: usize,
    local: &mut [Complex<f64>],
) {
    local.fill(Complex::default());
    Arch::new().dispatch(Work { terms, values, indices, sums: Sums { ratios, first, local, opposite: Vec::new() } });
}

/// What [`local_values`] does.
struct Work<'a, V, R> {
    terms: &'a Terms<'a>,
    values: &'a [V],
    indices: &'a [LocalIndex],
    sums: Sums<'a, R>,
}

impl<V: Weight, R: Ratios> WithSimd for Work<'_, V, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { terms, values, indices, mut sums } = self;
        let samples = sums.local.len();
        terms.for_each_group(
            values,
            indices,
            samples,
            #[inline(always)]
            |sites, columns, active, mels| sums.add_group(simd, sites, columns, active, mels),
        );
    }
}

/// The local values of some samples, in the making.
struct Sums<'a, R> {
    ratios: R,
    first: usize,
    local: &'a mut [Complex<f64>],
    opposite: Vec<bool>,
}

impl<R: Ratios> Sums<'_, R> {
    /// Adds what one flip gives to the samples that are `active`.
    #[inline(always)]
    fn add_group<V: Weight, S: Simd>(
        &mut self,
        simd: S,
        sites: &[usize],
        columns: &[Column],
        active: Column,
        mels: &[[V; 64]],
    ) {
        let mels = mels.as_flattened();
        let Some((&first, others)) = sites.split_first() else {
            for lane in lanes(active) {
                self.local[lane] += mels[lane].into();
            }
            return;
        };
        let mut rest = active;
        while let Some(lane) = lanes(rest).next() {
            // Those whose flipped sites are all as this one's, or all the other way.
            let mut alike = rest;
            self.opposite.clear();
            for &site in others {
                let opposite = (columns[site][lane / 64] ^ columns[first][lane / 64]) >> (lane % 64) & 1;
                self.opposite.push(opposite == 1);
                for word in 0..WORDS {
                    alike[word] &= columns[site][word] ^ columns[first][word] ^ opposite.wrapping_sub(1);
                }
            }
            self.ratios.change(simd, sites, &self.opposite);
            self.add_alike(simd, from_fn(|word| alike[word] & !columns[first][word]), mels);
            self.ratios.reverse();
            self.add_alike(simd, from_fn(|word| alike[word] & columns[first][word]), mels);
            for (rest, alike) in rest.iter_mut().zip(alike) {
                *rest &= !alike;
            }
        }
    }

    /// Adds what the present change gives to some samples.
    #[inline(always)]
    fn add_alike<V: Weight, S: Simd>(&mut self, simd: S, samples: Column, mels: &[V]) {
        // What is missing at the end is evaluated in vain.
        let mut list = [0; BLOCK];
        let mut n = 0;
        for (word, &samples) in samples.iter().enumerate() {
            for lane in bits(samples) {
                list[n % BLOCK] = 64 * word + lane;
                n += 1;
            }
        }
        let last = list[n.saturating_sub(1)];
        list[n..n.next_multiple_of(TOGETHER)].fill(last);
        let mut together = [0; TOGETHER];
        for start in (0..n).step_by(TOGETHER) {
            let lanes = &list[start..][..TOGETHER];
            for (sample, lane) in together.iter_mut().zip(lanes) {
                *sample = self.first + lane;
            }
            let ratios = self.ratios.ratios(simd, together);
            for (&lane, ratio) in lanes.iter().zip(ratios).take(n - start) {
                self.local[lane] += mels[lane].times_ratio(ratio);
            }
        }
    }
}

/// The samples of a block that are set in a column.
#[inline(always)]
fn lanes(column: Column) -> impl Iterator<Item = usize> {
    (0..WORDS).flat_map(move |word| bits(column[word]).map(move |lane| 64 * word + lane))
}
