//! The transverse-field Ising Hamiltonian, H = -h Σᵢ σˣᵢ + J Σ₍ᵢⱼ₎ σᶻᵢ σᶻⱼ.
//!
//! The diagonal is J times the number of edges whose ends agree less the number whose ends differ. Each site's σˣ
//! leads to the configuration with that site flipped, with matrix element -h. The elements of a sample are ordered as
//! NetKet orders them: the diagonal first, then the flips by site.

use crate::Error;
use crate::error::index;
use crate::numbers::{MatrixElement, Sample};
use crate::sites::TwoStates;

/// The edges of the interaction on a lattice of some number of sites.
#[derive(Debug, Clone, Copy)]
pub struct Lattice<'a> {
    sites: usize,
    edges: &'a [[i32; 2]],
}

impl<'a> Lattice<'a> {
    /// Checks that each edge joins sites of the lattice. An edge may occur twice, and may join a site to itself.
    pub fn new(sites: usize, edges: &'a [[i32; 2]]) -> Result<Self, Error> {
        let outside = |&end: &i32| index(end, sites).is_none();
        match edges.iter().position(|ends| ends.iter().any(outside)) {
            None => Ok(Self { sites, edges }),
            Some(edge) => Err(Error::EdgeOutOfRange { edge, ends: edges[edge], sites }),
        }
    }

    /// Σ₍ᵢⱼ₎ σᶻᵢ σᶻⱼ of the configuration with these indices of local states.
    fn correlation(&self, indices: &[u8]) -> i64 {
        let differ: usize =
            self.edges.iter().map(|&[i, j]| usize::from(indices[i as usize] != indices[j as usize])).sum();
        self.edges.len() as i64 - 2 * differ as i64
    }

    /// Writes Σ₍ᵢⱼ₎ σᶻᵢ σᶻⱼ of each sample, and the connected configurations if they are wanted.
    ///
    /// `samples` has shape `(Ns, N)`, `correlations` `(Ns,)` and `connected`, if given, `(Ns, K, N)` with K = N + 1, or
    /// K = 1 for the diagonal alone. `first` is the number of the first sample, for the error's sake.
    pub fn connected<S: Sample>(
        &self,
        states: &TwoStates<S>,
        first: usize,
        samples: &[S],
        correlations: &mut [i64],
        connected: Option<&mut [S]>,
    ) -> Result<(), Error> {
        let sites = self.sites;
        let mut indices = vec![0; sites];
        let mut rows = connected.map(|all| {
            let block = all.len().checked_div(correlations.len()).unwrap_or_default();
            all.chunks_exact_mut(block.max(1))
        });
        let samples = samples.chunks_exact(sites.max(1));
        for (sample, (values, correlation)) in samples.zip(correlations).enumerate() {
            states.read(first + sample, values, &mut indices)?;
            *correlation = self.correlation(&indices);
            if let Some(block) = rows.as_mut().and_then(Iterator::next) {
                write_flips(states, &indices, block);
            }
        }
        Ok(())
    }
}

/// Writes the configuration itself, then, as far as there are rows, the configurations with one site flipped.
fn write_flips<S: Sample>(states: &TwoStates<S>, indices: &[u8], block: &mut [S]) {
    let sites = indices.len();
    let Some((diagonal, flips)) = block.split_at_mut_checked(sites) else { return };
    for (value, &index) in diagonal.iter_mut().zip(indices) {
        *value = states.value(index);
    }
    for (site, row) in flips.chunks_exact_mut(sites.max(1)).enumerate() {
        row.copy_from_slice(diagonal);
        row[site] = states.value(1 - indices[site]);
    }
}

/// Writes the matrix elements of samples whose Σ₍ᵢⱼ₎ σᶻᵢ σᶻⱼ are known.
///
/// `matrix_elements` has shape `(Ns, K)`: the diagonal first, then -h as far as there is room.
pub fn matrix_elements<T: MatrixElement>(h: T, j: T, correlations: &[i64], matrix_elements: &mut [T]) {
    let connections = matrix_elements.len().checked_div(correlations.len()).unwrap_or_default();
    for (row, &correlation) in matrix_elements.chunks_exact_mut(connections.max(1)).zip(correlations) {
        row.fill(h.negated());
        row[0] = j.times(correlation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_chain_of_three() {
        let lattice = Lattice::new(3, &[[0, 1], [1, 2]]).expect("edges of the chain");
        let states = TwoStates::<i8>::new(1.0, -1.0).expect("int8 holds both");
        let (mut correlations, mut connected, mut mels) = ([0; 2], [0; 24], [0.0; 8]);
        lattice
            .connected(&states, 0, &[1, 1, -1, -1, -1, -1], &mut correlations, Some(&mut connected))
            .expect("samples of spins");
        matrix_elements(0.5, 2.0, &correlations, &mut mels);
        assert_eq!(correlations, [0, 2]);
        assert_eq!(connected[..12], [1, 1, -1, -1, 1, -1, 1, -1, -1, 1, 1, 1]);
        assert_eq!(connected[12..], [-1, -1, -1, 1, -1, -1, -1, 1, -1, -1, -1, 1]);
        assert_eq!(mels, [0.0, -0.5, -0.5, -0.5, 4.0, -0.5, -0.5, -0.5]);
    }

    #[test]
    fn the_diagonal_alone() {
        let lattice = Lattice::new(2, &[[0, 1], [1, 1]]).expect("edges within two sites");
        let states = TwoStates::<f32>::new(0.0, 1.0).expect("float32 holds both");
        let (mut correlations, mut connected, mut mels) = ([0; 1], [9.0; 2], [0; 1]);
        lattice.connected(&states, 0, &[0.0, 1.0], &mut correlations, Some(&mut connected)).expect("samples");
        matrix_elements(1, 3, &correlations, &mut mels);
        assert_eq!((connected, mels), ([0.0, 1.0], [0])); // the edge of a site with itself counts +1
    }

    #[test]
    fn edges_stay_on_the_lattice() {
        for ends in [[0, 3], [-1, 0]] {
            let error = Lattice::new(3, &[[0, 1], ends]).expect_err("off the lattice");
            assert_eq!(error, Error::EdgeOutOfRange { edge: 1, ends, sites: 3 });
        }
    }

    proptest! {
        /// The number of flips by definition: row k + 1 differs from the sample at site k and nowhere else.
        #[test]
        fn flips_by_definition(bits in prop::collection::vec(0_u8..2, 1..40)) {
            let sites = bits.len();
            let states = TwoStates::<u8>::new(0.0, 1.0).expect("uint8 holds both");
            let lattice = Lattice::new(sites, &[]).expect("no edges");
            let mut connected = vec![9; (sites + 1) * sites];
            lattice.connected(&states, 0, &bits, &mut [0], Some(&mut connected)).expect("samples");
            for (k, row) in connected.chunks_exact(sites).enumerate() {
                for (site, (&new, &old)) in row.iter().zip(&bits).enumerate() {
                    prop_assert_eq!(new != old, k == site + 1);
                }
            }
        }
    }
}
