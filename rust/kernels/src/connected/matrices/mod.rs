//! Operators on sites with any number of local states, as sums of terms that are small matrices on a few sites.
//!
//! A row of a term's matrix is numbered by the local indices of the term's sites, as digits of a number, the first site
//! the most significant; so is a column. The entries of a row are sparse: the diagonal one first, if there is one, then
//! the others in the order of columns. Each entry off the diagonal is a connected element of its own.

use crate::Error;
use crate::connected::{Form, Part, Sink, SinkRow};
use crate::error::{check, check_offsets};
use crate::numbers::{MatrixElement, Sample, copy, vectorized};
use crate::sites::{Configuration, LocalIndex, LocalStates, Sites};
use std::collections::HashMap;

/// The tables of [`Tables`].
#[derive(Debug, Clone, Copy)]
pub struct MatrixTables<'a> {
    /// The sites of term t are `first_site[t]..first_site[t + 1]` of `sites`.
    pub first_site: &'a [i32],
    /// The sites of all terms.
    pub sites: &'a [i32],
    /// The matrix of each term.
    pub table: &'a [i32],
    /// The rows of matrix m are `first_row[m]..first_row[m + 1]`.
    pub first_row: &'a [i32],
    /// The entries of row r are `first_entry[r]..first_entry[r + 1]`.
    pub first_entry: &'a [i32],
    /// The column of each entry.
    pub columns: &'a [i32],
}

/// The terms of an operator, without their values.
#[derive(Debug, Clone)]
pub struct Tables<'a> {
    columns: &'a [i32],
    terms: Vec<Term>,
    /// The terms that have any entries on the diagonal.
    on_diagonal: Vec<u32>,
    /// The terms that have any others.
    off_diagonal: Vec<u32>,
    /// The rows of all matrices.
    rows: Vec<Row>,
    /// The most entries off the diagonal of a row, if those are few and not of all rows as many; else 0.
    few: usize,
    /// The digits of all terms.
    digits: Vec<Digit>,
    /// The local indices of all columns: those of a term have as many for each column as the term has digits.
    local_indices: Vec<LocalIndex>,
    sites: usize,
    diagonal: bool,
    max_elements: usize,
}

/// A matrix on some sites.
#[derive(Debug, Clone, Copy)]
struct Term {
    /// The first row of the matrix.
    row: u32,
    /// Where in the digits of all terms the ones of this term begin and end.
    digits: [u32; 2],
    /// Where in the local indices of all columns the ones of this term begin.
    local_indices: usize,
}

/// Of rows with at most so many entries off the diagonal, that many places are visited, whether they are entries of the
/// row or not: it takes less time than a branch that can't be predicted.
const FEW: usize = 4;

/// The entries of a row of a matrix.
#[derive(Debug, Clone, Copy)]
struct Row {
    /// The one on the diagonal, if there is one.
    on_diagonal: Option<u32>,
    /// Where the others start and end.
    others: [u32; 2],
}

/// A site as a digit of a row's or a column's number.
#[derive(Debug, Clone, Copy)]
struct Digit {
    site: u32,
    /// The number of local states of the site, 2 at least: a site with one needs no digit.
    size: u32,
    /// Where in the values of all kinds of sites the ones of this site begin.
    values: u32,
}

/// An entry of the matrix of a term; of no term, if the configuration is the sample itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    term: u32,
    column: u32,
}

impl Default for Entry {
    fn default() -> Self {
        Self { term: u32::MAX, column: 0 }
    }
}

impl<'a> Tables<'a> {
    /// Checks the tables. There are `values` entries; `diagonal` says whether there are such on the diagonal.
    pub fn new(sites: &Sites, tables: MatrixTables<'a>, values: usize, diagonal: bool) -> Result<Self, Error> {
        let MatrixTables { first_site, sites: of_terms, table, first_row, first_entry, columns } = tables;
        check(first_site.len() == table.len() + 1, || {
            let terms = table.len();
            format!("`first_site` has {} numbers, but there are {terms} terms, so it needs one more", first_site.len())
        })?;
        check(columns.len() == values, || format!("there are {} columns, but {values} values", columns.len()))?;
        check_offsets("first_site", first_site, of_terms.len())?;
        check_offsets("first_entry", first_entry, columns.len())?;
        check_offsets("first_row", first_row, first_entry.len() - 1)?;
        let (rows, longest) = rows_of_matrices(&tables, diagonal)?;
        let mut max_elements = usize::from(diagonal);
        let mut terms = Vec::with_capacity(table.len());
        let mut digits = Vec::with_capacity(of_terms.len());
        let mut last_term = vec![usize::MAX; sites.len()];
        let mut local_indices = Vec::new();
        let mut columns_of = HashMap::new();
        for (term, (range, &matrix)) in first_site.windows(2).zip(table).enumerate() {
            let matrix = index(matrix, longest.len()).ok_or_else(|| {
                Error::Tables(format!(
                    "term {term} has matrix {matrix}, but there are {}, counted from 0",
                    longest.len()
                ))
            })?;
            let first_digit = digits.len();
            let mut dim = Some(1_usize);
            for &site in &of_terms[range[0] as usize..range[1] as usize] {
                let site = index(site, sites.len()).ok_or_else(|| {
                    Error::Tables(format!(
                        "term {term} acts on site {site}, but there are {} sites, counted from 0",
                        sites.len()
                    ))
                })?;
                check(last_term[site] != term, || format!("term {term} acts twice on site {site}"))?;
                last_term[site] = term;
                let size = sites.states(site).size;
                dim = dim.and_then(|dim| dim.checked_mul(size));
                if size > 1 {
                    digits.push(Digit { site: site as u32, size: size as u32, values: sites.first_value(site) });
                }
            }
            let height = (first_row[matrix + 1] - first_row[matrix]) as usize;
            check(dim == Some(height), || {
                let dim = dim.map_or("too many".into(), |dim| dim.to_string());
                format!("matrix {matrix} has {height} rows, but the sites of term {term} have {dim} configurations")
            })?;
            let sizes: Vec<_> = digits[first_digit..].iter().map(|digit| digit.size).collect();
            let local_indices = columns_of.entry((sizes, height)).or_insert_with_key(|(sizes, height)| {
                let start = local_indices.len();
                push_local_indices(sizes, *height, &mut local_indices);
                start
            });
            terms.push(Term {
                row: first_row[matrix] as u32,
                digits: [first_digit as u32, digits.len() as u32],
                local_indices: *local_indices,
            });
            max_elements += longest[matrix];
        }
        let with = |has: fn(&Row) -> bool| -> Vec<u32> {
            let any: Vec<_> =
                first_row.windows(2).map(|row| rows[row[0] as usize..row[1] as usize].iter().any(has)).collect();
            (0..).zip(table).filter(|&(_, &matrix)| any[matrix as usize]).map(|(term, _)| term).collect()
        };
        let (on_diagonal, off_diagonal) =
            (with(|row| row.on_diagonal.is_some()), with(|row| row.others[0] < row.others[1]));
        let others = || rows.iter().map(|row| (row.others[1] - row.others[0]) as usize);
        let few = others().max().filter(|&most| most <= FEW && others().any(|count| count < most)).unwrap_or_default();
        let sites = sites.len();
        Ok(Self {
            columns,
            terms,
            on_diagonal,
            off_diagonal,
            rows,
            few,
            digits,
            local_indices,
            sites,
            diagonal,
            max_elements,
        })
    }

    #[inline(always)]
    fn digits(&self, term: Term) -> &[Digit] {
        &self.digits[term.digits[0] as usize..term.digits[1] as usize]
    }

    /// Which one of all rows a term has.
    #[inline(always)]
    fn row(&self, term: Term, indices: &[LocalIndex]) -> u32 {
        let digits = self.digits(term).iter();
        term.row + digits.fold(0, |row, digit| row * digit.size + u32::from(indices[digit.site as usize]))
    }

    /// As [`Form::for_each_active`].
    #[inline(always)]
    fn sweep<T: MatrixElement>(
        &self,
        values: &[T],
        indices: &[LocalIndex],
        samples: usize,
        part: Part,
        sink: &mut impl Sink<Entry, T>,
    ) {
        // A number for each row, which spares a branch that can't be predicted.
        let on_diagonal: Vec<T> =
            self.rows.iter().map(|row| row.on_diagonal.map_or(T::default(), |entry| values[entry as usize])).collect();
        let mut rows = vec![0; self.terms.len()];
        for sample in 0..samples {
            let indices = &indices[sample * self.sites..][..self.sites];
            for (row, &term) in rows.iter_mut().zip(&self.terms) {
                *row = self.row(term, indices);
            }
            let mut to = sink.row(sample);
            if self.diagonal && part.has_diagonal() {
                let terms = self.on_diagonal.iter();
                let sum = terms.fold(T::default(), |sum, &term| sum.plus(on_diagonal[rows[term as usize] as usize]));
                to.push(true, Entry::default(), sum);
            }
            for &term in if part.has_others() { &self.off_diagonal[..] } else { &[] } {
                let [start, end] = self.rows[rows[term as usize] as usize].others;
                let (start, end) = (start as usize, end as usize);
                let visited = start..if self.few == 0 { end } else { (start + self.few).min(values.len()) };
                let entries = self.columns[visited.clone()].iter().zip(&values[visited]);
                for (place, (&column, &value)) in entries.enumerate() {
                    to.push(start + place < end, Entry { term, column: column as u32 }, value);
                }
            }
            to.end();
        }
    }
}

/// The local indices of the columns `0..columns`, whose digits have these sizes.
fn push_local_indices(sizes: &[u32], columns: usize, local_indices: &mut Vec<LocalIndex>) {
    for column in 0..columns as u32 {
        let (start, mut rest) = (local_indices.len(), column);
        for &size in sizes.iter().rev() {
            local_indices.push((rest % size) as LocalIndex);
            rest /= size;
        }
        local_indices[start..].reverse();
    }
}

/// A number that counts things of which there are so many.
fn index(number: i32, count: usize) -> Option<usize> {
    usize::try_from(number).ok().filter(|&number| number < count)
}

/// All rows, and for each matrix the most entries off the diagonal that one has; an error if an entry is out of place.
fn rows_of_matrices(tables: &MatrixTables, diagonal: bool) -> Result<(Vec<Row>, Vec<usize>), Error> {
    let mut all = Vec::with_capacity(tables.first_entry.len() - 1);
    let mut longest = Vec::with_capacity(tables.first_row.len() - 1);
    for (matrix, rows) in tables.first_row.windows(2).enumerate() {
        let dim = rows[1] - rows[0];
        let mut most = 0;
        for (row, range) in tables.first_entry[rows[0] as usize..=rows[1] as usize].windows(2).enumerate() {
            let place = || format!("row {row} of matrix {matrix}");
            let columns = &tables.columns[range[0] as usize..range[1] as usize];
            if let Some(outside) = columns.iter().find(|column| !(0..dim).contains(*column)) {
                return Err(Error::Tables(format!("{} has column {outside}, but there are {dim}", place())));
            }
            let row = row as i32;
            let has_diagonal = columns.first() == Some(&row);
            check(diagonal || !has_diagonal, || {
                format!("{} has an entry on the diagonal, but `diagonal` says that there are none", place())
            })?;
            let others = &columns[usize::from(has_diagonal)..];
            check(!others.contains(&row), || format!("the entry on the diagonal is not the first of {}", place()))?;
            check(others.is_sorted_by(|a, b| a < b), || {
                format!("the columns off the diagonal don't ascend in {}", place())
            })?;
            most = most.max(others.len());
            let (start, end) = (range[0] as u32, range[1] as u32);
            all.push(Row {
                on_diagonal: has_diagonal.then_some(start),
                others: [start + u32::from(has_diagonal), end],
            });
        }
        longest.push(most);
    }
    Ok((all, longest))
}

impl Form for Tables<'_> {
    const GRAIN: usize = 1;

    const LANES: usize = 1;

    type Change = Entry;

    fn sites(&self) -> usize {
        self.sites
    }

    fn max_elements(&self) -> usize {
        self.max_elements
    }

    fn for_each_active<T: MatrixElement>(
        &self,
        values: &[T],
        indices: &[LocalIndex],
        samples: usize,
        part: Part,
        sink: &mut impl Sink<Entry, T>,
    ) {
        vectorized(
            #[inline(always)]
            || self.sweep(values, indices, samples, part, sink),
        );
    }

    #[inline(always)]
    fn write<S: Sample>(&self, states: &LocalStates<S>, sample: &Configuration<S>, entry: Entry, row: &mut [S]) {
        copy(&sample.values, row);
        let Some(&term) = self.terms.get(entry.term as usize) else { return };
        let digits = self.digits(term);
        let indices = &self.local_indices[term.local_indices + entry.column as usize * digits.len()..];
        for (digit, &index) in digits.iter().zip(indices) {
            row[digit.site as usize] = states.values()[digit.values as usize + usize::from(index)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connected::testing::{
        Element, Mistake, Operator, SPIN, boson, check_mistakes, compare, compare_as, damage, odd_number,
        random_samples,
    };
    use crate::sites::StateRange;
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
            Tables::new(&self.sites, tables, self.values.len(), self.diagonal)
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
            (
                |tables| tables.first_site.clear(),
                "`first_site` has 0 numbers, but there are 3 terms, so it needs one more",
            ),
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
}
