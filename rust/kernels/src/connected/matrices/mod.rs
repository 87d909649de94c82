//! Operators on sites with any number of local states, as sums of terms that are small matrices on a few sites.
//!
//! A row of a term's matrix is numbered by the local indices of the term's sites, as digits of a number, the first site
//! the most significant; so is a column. The entries of a row are sparse: the diagonal one first, if there is one, then
//! the others in the order of columns. Each entry off the diagonal is a connected element of its own.

use crate::Error;
use crate::connected::offsets::{check_offsets, range, ranges};
use crate::connected::{Form, Part, Sink, SinkRow};
use crate::error::{check, index};
use crate::numbers::{MatrixElement, Sample, copy, vectorized};
use crate::sites::{Configuration, LocalIndex, LocalStates, Sites};
use std::collections::HashMap;

/// The tables of [`Matrices`].
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
pub struct Matrices<'a> {
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

impl<'a> Matrices<'a> {
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
        for (term, (places, &matrix)) in ranges(first_site).zip(table).enumerate() {
            let matrix = index(matrix, longest.len()).ok_or_else(|| {
                Error::Tables(format!(
                    "term {term} has matrix {matrix}, but there are {}, counted from 0",
                    longest.len()
                ))
            })?;
            let first_digit = digits.len();
            let mut dim = Some(1_usize);
            for &site in &of_terms[places] {
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
            let height = range(first_row, matrix).len();
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
            let any: Vec<_> = ranges(first_row).map(|matrix| rows[matrix].iter().any(has)).collect();
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

/// All rows, and for each matrix the most entries off the diagonal that one has; an error if an entry is out of place.
fn rows_of_matrices(tables: &MatrixTables, diagonal: bool) -> Result<(Vec<Row>, Vec<usize>), Error> {
    let mut all = Vec::with_capacity(tables.first_entry.len() - 1);
    let mut longest = Vec::with_capacity(tables.first_row.len() - 1);
    for (matrix, rows) in ranges(tables.first_row).enumerate() {
        let dim = rows.len() as i32;
        let mut most = 0;
        for (row, entries) in ranges(&tables.first_entry[rows.start..=rows.end]).enumerate() {
            let place = || format!("row {row} of matrix {matrix}");
            let columns = &tables.columns[entries.clone()];
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
            let (start, end) = (entries.start as u32, entries.end as u32);
            all.push(Row {
                on_diagonal: has_diagonal.then_some(start),
                others: [start + u32::from(has_diagonal), end],
            });
        }
        longest.push(most);
    }
    Ok((all, longest))
}

impl Form for Matrices<'_> {
    const GRAIN: usize = 1;

    const LANES: usize = 1;

    type ElementChange = Entry;

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
mod tests;
