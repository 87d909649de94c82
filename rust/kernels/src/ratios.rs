//! Local values of amplitudes whose ratios are known, so that no connected configuration is ever built.

use crate::element::MatrixElement;
use crate::local_states::LocalIndex;
use crate::terms::{Column, Terms, WORDS, bits};
use num_complex::Complex;
use pulp::{Arch, Simd, WithSimd};

/// So many ratios are evaluated together.
pub const TOGETHER: usize = 8;

/// ψ(σ') / ψ(σ) for samples σ, and σ' that differ from them on the same sites, in the same ways.
///
/// Each site has two local states.
pub trait Ratios {
    /// Sets how σ' differs: the first one of `sites` goes from its first to its second state, and those of the others that
    /// are `opposite` go the other way.
    fn change<S: Simd>(&mut self, simd: S, sites: &[usize], opposite: &[bool]);

    /// Has all sites go the other way.
    fn reverse(&mut self);

    /// The ratios of some samples.
    fn ratios<S: Simd>(&self, simd: S, samples: [usize; TOGETHER]) -> [Complex<f64>; TOGETHER];
}

/// The local values Σ ⟨σ|O|σ'⟩ ψ(σ') / ψ(σ) of up to [`crate::terms::BLOCK`] samples σ, given as local indices. `first` is
/// the number that the first one has for `ratios`.
pub fn local_values<V: MatrixElement + Into<Complex<f64>>, R: Ratios>(
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

impl<V: MatrixElement + Into<Complex<f64>>, R: Ratios> WithSimd for Work<'_, V, R> {
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
    fn add_group<V: MatrixElement + Into<Complex<f64>>, S: Simd>(
        &mut self,
        simd: S,
        sites: &[usize],
        columns: &[Column],
        active: Column,
        mels: &[[V; 64]],
    ) {
        let mel = |lane: usize| -> Complex<f64> { mels[lane / 64][lane % 64].into() };
        let Some((&first, others)) = sites.split_first() else {
            for lane in lanes(active) {
                self.local[lane] += mel(lane);
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
            self.add_alike(simd, std::array::from_fn(|word| alike[word] & !columns[first][word]), mel);
            self.ratios.reverse();
            self.add_alike(simd, std::array::from_fn(|word| alike[word] & columns[first][word]), mel);
            for (rest, alike) in rest.iter_mut().zip(alike) {
                *rest &= !alike;
            }
        }
    }

    /// Adds what the present change gives to some samples.
    #[inline(always)]
    fn add_alike<S: Simd>(&mut self, simd: S, samples: Column, mel: impl Fn(usize) -> Complex<f64>) {
        let mut lanes = lanes(samples);
        while let Some(lane) = lanes.next() {
            // What is missing at the end is evaluated in vain.
            let mut together = [lane; TOGETHER];
            let mut n = 1;
            for (place, lane) in together[1..].iter_mut().zip(&mut lanes) {
                *place = lane;
                n += 1;
            }
            let ratios = self.ratios.ratios(simd, std::array::from_fn(|place| self.first + together[place]));
            for (&lane, ratio) in together[..n].iter().zip(ratios) {
                self.local[lane] += mel(lane) * ratio;
            }
        }
    }
}

/// The samples of a block that are set in a column.
#[inline(always)]
fn lanes(column: Column) -> impl Iterator<Item = usize> {
    (0..WORDS).flat_map(move |word| bits(column[word]).map(move |lane| 64 * word + lane))
}
