//! Moves to connected configurations on sites with any number of local states.

use super::{ProposedChange, TransitionRule};
use crate::connected::{Elements, Form, Part};
use crate::numbers::MatrixElement;
use crate::sites::{Configuration, LocalIndex, LocalStates};
use rand::{Rng, RngExt};

/// As [`super::Hamiltonian`], for an operator in any form: all its elements are evaluated at each proposal.
#[derive(Debug, Clone)]
pub struct Connected<'a, F: Form, V> {
    form: &'a F,
    values: &'a [V],
    /// The local indices as values.
    states: &'a LocalStates<'a, LocalIndex>,
    /// What leads to the connected configurations from where the chain is, and from where it is to go.
    here: Vec<F::ElementChange>,
    there: Vec<F::ElementChange>,
    mels: Vec<V>,
    from: Configuration<LocalIndex>,
    to: Vec<LocalIndex>,
}

impl<'a, F: Form, V: MatrixElement> Connected<'a, F, V> {
    /// Of the operator with this form and these values, on sites whose values are their local indices.
    #[must_use]
    pub fn new(form: &'a F, values: &'a [V], states: &'a LocalStates<'a, LocalIndex>) -> Self {
        let (from, to) = (states.first(), vec![0; form.sites()]);
        Self { form, values, states, here: Vec::new(), there: Vec::new(), mels: Vec::new(), from, to }
    }

    /// The elements of a configuration that aren't zero.
    fn find(&mut self, indices: &[LocalIndex]) -> Vec<F::ElementChange> {
        let (mut changes, mut count) = (std::mem::take(&mut self.there), [0]);
        self.mels.resize(self.form.max_elements(), V::default());
        changes.resize(self.form.max_elements(), F::ElementChange::default());
        let elements = Elements { counts: &mut count, mels: &mut self.mels, changes: &mut changes };
        elements.write_nonzero(self.form, self.values, indices, Part::All);
        changes.truncate(count[0] as usize);
        changes
    }
}

impl<F: Form, V: MatrixElement> TransitionRule for Connected<'_, F, V> {
    fn visit(&mut self, indices: &[LocalIndex]) {
        let found = self.find(indices);
        self.there = std::mem::replace(&mut self.here, found);
    }

    fn propose(&mut self, rng: &mut impl Rng, indices: &[LocalIndex], change: &mut ProposedChange) -> Option<f64> {
        if self.here.is_empty() {
            return None;
        }
        let chosen = self.here[rng.random_range(0..self.here.len() as u32) as usize];
        self.states.write(indices, &mut self.from);
        let mut to = std::mem::take(&mut self.to);
        self.form.write(self.states, &self.from, chosen, &mut to);
        for (site, (_, &to)) in indices.iter().zip(&to).enumerate().filter(|(_, (from, to))| from != to) {
            change.push(site as u32, to);
        }
        // The diagonal leads nowhere.
        let ratio = if change.is_empty() {
            1.0
        } else {
            self.there = self.find(&to);
            self.here.len() as f64 / self.there.len() as f64
        };
        self.to = to;
        Some(ratio)
    }

    fn accept(&mut self) {
        std::mem::swap(&mut self.here, &mut self.there);
    }

    fn reject(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::super::testing::compare;
    use super::*;
    use crate::connected::matrices::{Matrices, MatrixTables};
    use crate::sites::Sites;
    use crate::sites::testing::boson;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    /// Hops between neighbours on a ring of sites with so many states, as matrices on two sites; and a diagonal.
    struct Hops {
        states: usize,
        sites: usize,
        on_diagonal: [i32; 2],
    }

    impl Hops {
        /// The columns of each row of the matrix on two sites.
        fn columns(&self, row: usize) -> Vec<usize> {
            let (a, b) = (row / self.states, row % self.states);
            let diagonal = (self.on_diagonal[usize::from(a == b)] != 0).then_some(row);
            let right = (a > 0 && b + 1 < self.states).then(|| row - self.states + 1);
            let left = (b > 0 && a + 1 < self.states).then(|| row + self.states - 1);
            [diagonal, right, left].into_iter().flatten().collect()
        }
    }

    proptest! {
        #[test]
        fn connected_configurations(states in 2_usize..5, sites in 3_usize..6, on_diagonal: [bool; 2], seed: u64) {
            let rng = &mut StdRng::seed_from_u64(seed);
            let hops = Hops { states, sites, on_diagonal: on_diagonal.map(i32::from) };
            let first_site: Vec<i32> = (0..=sites as i32).map(|term| 2 * term).collect();
            let of_terms: Vec<i32> = (0..sites as i32).flat_map(|site| [site, (site + 1) % sites as i32]).collect();
            let (mut first_entry, mut columns) = (vec![0], Vec::new());
            for row in 0..states * states {
                columns.extend(hops.columns(row).into_iter().map(|column| column as i32));
                first_entry.push(columns.len() as i32);
            }
            let tables = MatrixTables {
                first_site: &first_site,
                sites: &of_terms,
                table: &vec![0; sites],
                first_row: &[0, (states * states) as i32],
                first_entry: &first_entry,
                columns: &columns,
            };
            let of_sites = Sites::new(sites, vec![boson(states)], &[]).expect("bosons");
            let values = vec![1.0; columns.len()];
            let form = Matrices::new(&of_sites, tables, values.len(), true).expect("tables");
            let indices: Vec<_> = (0..sites).map(|_| rng.random_range(0..states) as LocalIndex).collect();
            let of_indices = LocalStates::new(&of_sites).expect("local indices");
            compare(&mut Connected::new(&form, &values, &of_indices), rng, indices, |indices| {
                let mut moves = Vec::new();
                let mut diagonal = 0.0;
                for site in 0..hops.sites {
                    let next = (site + 1) % sites;
                    let row = usize::from(indices[site]) * states + usize::from(indices[next]);
                    for column in hops.columns(row) {
                        if column == row {
                            diagonal += 1.0;
                            continue;
                        }
                        let mut to = vec![(site as u32, (column / states) as LocalIndex), (next as u32, (column % states) as LocalIndex)];
                        to.sort_unstable();
                        moves.push((to, 1.0));
                    }
                }
                if diagonal != 0.0 {
                    moves.push((Vec::new(), 1.0));
                }
                moves
            });
        }
    }
}
