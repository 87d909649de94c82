use super::*;
use crate::connected::testing::{Element, Mistake, Operator, check_mistakes, compare, compare_as, damage, odd_number};
use crate::sites::StateRange;
use crate::sites::testing::{SPIN, boson, random_samples};
use proptest::collection::vec;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

#[derive(Debug, Clone)]
struct Owned {
    sites: Sites,
    first_site: Vec<i32>,
    sites_of_terms: Vec<i32>,
    table: Vec<i32>,
    first_row: Vec<i32>,
    first_entry: Vec<i32>,
    columns: Vec<i32>,
    values: Vec<i8>,
    diagonal: bool,
}

impl Operator for Owned {
    fn form(&self) -> Result<impl Form, Error> {
        let Self { first_site, sites_of_terms: sites, table, first_row, first_entry, columns, .. } = self;
        let tables = MatrixTables { first_site, sites, table, first_row, first_entry, columns };
        Matrices::new(&self.sites, tables, self.values.len(), self.diagonal)
    }

    fn sites(&self) -> &Sites {
        &self.sites
    }

    fn values(&self) -> &[i8] {
        &self.values
    }

    fn elements<T: MatrixElement>(&self, values: &[T], sample: &[LocalIndex]) -> Vec<Element<T>> {
        let (mut on_diagonal, mut others) = (T::default(), Vec::new());
        for (range, &matrix) in self.first_site.windows(2).zip(&self.table) {
            let sites = &self.sites_of_terms[range[0] as usize..range[1] as usize];
            let size = |site: i32| self.sites.states(site as usize).size;
            let row = sites.iter().fold(0, |row, &site| row * size(site) + usize::from(sample[site as usize]));
            let row_of_all = self.first_row[matrix as usize] as usize + row;
            for entry in self.first_entry[row_of_all]..self.first_entry[row_of_all + 1] {
                let value = values[entry as usize];
                let mut column = self.columns[entry as usize] as usize;
                if column == row {
                    on_diagonal = on_diagonal.plus(value);
                    continue;
                }
                let mut indices = sample.to_vec();
                for &site in sites.iter().rev() {
                    indices[site as usize] = (column % size(site)) as LocalIndex;
                    column /= size(site);
                }
                others.push(Element { mel: value, indices });
            }
        }
        let on_diagonal = self.diagonal.then(|| Element { mel: on_diagonal, indices: sample.to_vec() });
        on_diagonal.into_iter().chain(others).collect()
    }
}

impl Owned {
    /// No terms.
    fn empty(sites: Sites, diagonal: bool) -> Self {
        let [sites_of_terms, table, columns] = [const { Vec::new() }; 3];
        let [first_site, first_row, first_entry] = [(); 3].map(|()| vec![0]);
        let values = Vec::new();
        Self { sites, first_site, sites_of_terms, table, first_row, first_entry, columns, values, diagonal }
    }

    fn push_term(&mut self, sites: &[i32], matrix: usize) {
        self.sites_of_terms.extend(sites);
        self.first_site.push(self.sites_of_terms.len() as i32);
        self.table.push(matrix as i32);
    }

    /// A matrix, given as the columns and the values of each row.
    fn push_matrix(&mut self, rows: &[Vec<(i32, i8)>]) {
        for row in rows {
            self.columns.extend(row.iter().map(|&(column, _)| column));
            self.values.extend(row.iter().map(|&(_, value)| value));
            self.first_entry.push(self.columns.len() as i32);
        }
        self.first_row.push(self.first_entry.len() as i32 - 1);
    }

    /// The numbers of the matrices with so many rows.
    fn matrices(&self, rows: usize) -> Vec<usize> {
        let height = |matrix: &usize| (self.first_row[matrix + 1] - self.first_row[*matrix]) as usize;
        (0..self.first_row.len() - 1).filter(|matrix| height(matrix) == rows).collect()
    }
}

/// Sites of 1 to 5 states.
fn random_sites(rng: &mut StdRng, sites: usize) -> Sites {
    let kinds = vec![boson(1), SPIN, boson(3), boson(4), StateRange { start: 2.0, step: -1.0, size: 5 }];
    let kind: Vec<_> = (0..sites).map(|_| rng.random_range(0..5)).collect();
    Sites::new(sites, kinds, &kind).expect("sites of five kinds")
}

fn random_matrix(rng: &mut StdRng, dim: usize, diagonal: bool) -> Vec<Vec<(i32, i8)>> {
    let sparse = (2.5 / dim as f64).min(0.6);
    let mut row = |row| {
        let on_diagonal = (diagonal && rng.random()).then_some(row);
        let others: Vec<_> = (0..dim).filter(|&column| column != row && rng.random_bool(sparse)).collect();
        on_diagonal.into_iter().chain(others).map(|column| (column as i32, rng.random_range(-2..=2))).collect()
    };
    (0..dim).map(&mut row).collect()
}

/// Terms on up to three sites, half of them with matrices that others have too.
fn random_tables(rng: &mut StdRng, sites: Sites, terms: usize) -> Owned {
    let mut tables = Owned::empty(sites, rng.random());
    let mut all_sites: Vec<_> = (0..tables.sites.len() as i32).collect();
    for _ in 0..terms {
        all_sites.shuffle(rng);
        let sites = &all_sites[..rng.random_range(0..=all_sites.len().min(3))];
        let dim = sites.iter().map(|&site| tables.sites.states(site as usize).size).product();
        let mut same = tables.matrices(dim);
        if same.is_empty() || rng.random() {
            same = vec![tables.first_row.len() - 1];
            tables.push_matrix(&random_matrix(rng, dim, tables.diagonal));
        }
        tables.push_term(sites, same[rng.random_range(0..same.len())]);
    }
    tables
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn elements_by_definition(sites in 1_usize..=6, samples in 1_usize..=100, terms in 0_usize..=8, seed: u64) {
        let rng = &mut StdRng::seed_from_u64(seed);
        let sites = random_sites(rng, sites);
        let samples = random_samples(rng, &sites, samples);
        compare(&random_tables(rng, sites, terms), &samples).expect("valid tables");
    }
}

proptest! {
    /// Tables with a few wrong numbers are an error, or else still an operator.
    #[test]
    fn damaged_tables(sites in 1_usize..=4, terms in 0_usize..=4, damages in 1..=2, seed: u64) {
        let rng = &mut StdRng::seed_from_u64(seed);
        let sites = random_sites(rng, sites);
        let samples = random_samples(rng, &sites, 5);
        let mut tables = random_tables(rng, sites, terms);
        for _ in 0..damages {
            let number = odd_number(rng);
            match rng.random_range(0..8) {
                0 => damage(rng, &mut tables.first_site, number),
                1 => damage(rng, &mut tables.sites_of_terms, number),
                2 => damage(rng, &mut tables.table, number),
                3 => damage(rng, &mut tables.first_row, number),
                4 => damage(rng, &mut tables.first_entry, number),
                5 => damage(rng, &mut tables.columns, number),
                6 => damage(rng, &mut tables.values, 1),
                _ => tables.diagonal ^= true,
            }
        }
        let _ = compare(&tables, &samples);
    }

    /// As above, with tables that were never those of an operator.
    #[test]
    fn arbitrary_tables(
        sites in 0_usize..4,
        [first_site, sites_of_terms, table] in [(); 3].map(|()| vec(-1_i32..4, 0..4)),
        [first_row, first_entry, columns] in [(); 3].map(|()| vec(-1_i32..4, 0..4)),
        values in vec(-2_i8..=2, 0..4), diagonal: bool, seed: u64
    ) {
        let rng = &mut StdRng::seed_from_u64(seed);
        let sites = random_sites(rng, sites);
        let samples = random_samples(rng, &sites, 5);
        let tables =
            Owned { sites, first_site, sites_of_terms, table, first_row, first_entry, columns, values, diagonal };
        let _ = compare(&tables, &samples);
    }
}

/// A spin 1 and a spin ½, where one matrix of 6 rows acts on both in either order, and a constant.
fn example() -> Owned {
    let sites = Sites::new(2, vec![SPIN, boson(3)], &[1, 0]).expect("sites of two kinds");
    let mut tables = Owned::empty(sites, true);
    let none = Vec::new;
    tables.push_matrix(&[none(), none(), vec![(2, 3), (0, 7), (5, 0)], none(), none(), none()]);
    tables.push_matrix(&[vec![(0, 2)]]);
    tables.push_term(&[0, 1], 0);
    tables.push_term(&[], 1);
    tables.push_term(&[1, 0], 0);
    tables
}

#[test]
fn an_example() {
    let elements = |sample: [LocalIndex; 2]| {
        let elements = example().elements(&[3, 7, 0, 2], &sample);
        elements.into_iter().map(|element| (element.mel, element.indices)).collect::<Vec<_>>()
    };
    assert_eq!(elements([0, 0]), [(2, vec![0, 0])]);
    assert_eq!(elements([1, 0]), [(5, vec![1, 0]), (7, vec![0, 0]), (0, vec![2, 1])]); // row 2 of site 0, 1
    assert_eq!(elements([2, 0]), [(5, vec![2, 0]), (7, vec![0, 0]), (0, vec![2, 1])]); // row 2 of site 1, 0
    let samples: Vec<_> = (0..6).map(|number| vec![number / 2, number % 2]).collect();
    compare(&example(), &samples).expect("valid tables");
    compare(&example(), &[]).expect("valid tables");
}

#[test]
fn no_sites() {
    let mut constant = Owned::empty(Sites::new(0, vec![SPIN], &[]).expect("no sites"), true);
    constant.push_matrix(&[vec![(0, 2)]]);
    constant.push_term(&[], 0);
    compare(&constant, &[vec![], vec![]]).expect("valid tables");
}

#[test]
fn sites_with_the_most_states() {
    let sites = Sites::new(4, vec![boson(1 << 16)], &[]).expect("sites of one kind");
    let mut tables = Owned::empty(sites, true);
    let last = (1 << 16) - 1;
    let mut rows = vec![Vec::new(); 1 << 16];
    rows[0] = vec![(last, 1)];
    rows[last as usize] = vec![(last, 2), (0, 3)];
    tables.push_matrix(&rows);
    tables.push_term(&[2], 0);
    let sample = |index| vec![7, 0, index, 9];
    compare_as::<f64, f64, _>(&tables, &[0, 1, LocalIndex::MAX].map(sample), f64::from).expect("valid tables");
}

#[test]
fn wrong_tables() {
    let mistakes: &[Mistake<Owned>] = &[
        (|tables| tables.first_site.clear(), "`first_site` has 0 numbers, but there are 3 terms, so it needs one more"),
        (|tables| tables.values.push(1), "there are 4 columns, but 5 values"),
        (|tables| tables.first_site[0] = 1, "`first_site` begins with 1, not with 0"),
        (|tables| tables.first_site[1] = 3, "`first_site` falls after index 1"),
        (|tables| tables.first_entry.clear(), "`first_entry` is empty, but has one number more than it has ranges"),
        (|tables| tables.first_entry[7] = 3, "`first_entry` ends with 3, not with 4"),
        (|tables| tables.first_row[2] = 6, "`first_row` ends with 6, not with 7"),
        (|tables| tables.table[1] = 2, "term 1 has matrix 2, but there are 2, counted from 0"),
        (|tables| tables.table[0] = -1, "term 0 has matrix -1, but there are 2, counted from 0"),
        (|tables| tables.sites_of_terms[1] = 2, "term 0 acts on site 2, but there are 2 sites, counted from 0"),
        (|tables| tables.sites_of_terms[3] = -1, "term 2 acts on site -1, but there are 2 sites, counted from 0"),
        (|tables| tables.sites_of_terms[3] = 1, "term 2 acts twice on site 1"),
        (|tables| tables.table[1] = 0, "matrix 0 has 6 rows, but the sites of term 1 have 1 configurations"),
        (
            |tables| {
                tables.sites = Sites::new(4, vec![boson(1 << 16)], &[]).expect("sites of one kind");
                tables.sites_of_terms = vec![0, 1, 2, 3];
                tables.first_site = vec![0, 4, 4, 4];
            },
            "matrix 0 has 6 rows, but the sites of term 0 have too many configurations",
        ),
        (|tables| tables.columns[1] = -1, "row 2 of matrix 0 has column -1, but there are 6"),
        (|tables| tables.columns[3] = 1, "row 0 of matrix 1 has column 1, but there are 1"),
        (
            |tables| tables.diagonal = false,
            "row 2 of matrix 0 has an entry on the diagonal, but `diagonal` says that there are none",
        ),
        (|tables| tables.columns[0] = 0, "the columns off the diagonal don't ascend in row 2 of matrix 0"),
        (|tables| tables.columns.swap(0, 1), "the entry on the diagonal is not the first of row 2 of matrix 0"),
    ];
    check_mistakes(example, mistakes);
}
