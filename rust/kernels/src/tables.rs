//! Operators on sites with any number of local states, as sums of terms that are small matrices on a few sites.
//!
//! A row of a term's matrix is numbered by the local indices of the term's sites, as digits of a number, the first site
//! the most significant; so is a column. The entries of a row are sparse: the diagonal one first, if there is one, then
//! the others in the order of columns. Each entry off the diagonal is a connected element of its own.

use crate::Error;
use crate::element::{MatrixElement, Sample};
use crate::elements::Form;
use crate::error::{check, check_offsets};
use crate::local_states::{LocalIndex, LocalStates, Sites};

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
    tables: MatrixTables<'a>,
    sites: usize,
    diagonal: bool,
    max_elements: usize,
    /// What each site of a term contributes to the number of the row.
    digits: Vec<Digit>,
}

/// A site as a digit of a row's or a column's number.
#[derive(Debug, Clone, Copy)]
struct Digit {
    site: u32,
    /// The number of local states of the site.
    size: u32,
    /// What the digit is multiplied by.
    weight: u32,
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
    /// Checks the tables. There are `values` entries; `diagonal` says that there are such on the diagonal.
    pub fn new(sites: &Sites, tables: MatrixTables<'a>, values: usize, diagonal: bool) -> Result<Self, Error> {
        let MatrixTables { first_site, sites: of_terms, table, first_row, first_entry, columns } = tables;
        let terms = table.len();
        check(first_site.len() == terms + 1, || {
            format!("`first_site` has {} numbers, but there are {terms} terms, so it needs one more", first_site.len())
        })?;
        check(columns.len() == values, || format!("there are {} columns, but {values} values", columns.len()))?;
        check_offsets("first_site", first_site, of_terms.len())?;
        check_offsets("first_row", first_row, first_entry.len().saturating_sub(1))?;
        check_offsets("first_entry", first_entry, columns.len())?;
        let longest = longest_rows(&tables, diagonal)?;
        let digits = digits(sites, &tables)?;
        let max_elements = table.iter().map(|&matrix| longest[matrix as usize]).sum::<usize>() + usize::from(diagonal);
        Ok(Self { tables, sites: sites.len(), diagonal, max_elements, digits })
    }

    fn digits(&self, term: usize) -> &[Digit] {
        &self.digits[self.tables.first_site[term] as usize..self.tables.first_site[term + 1] as usize]
    }
}

/// For each matrix, the most entries off the diagonal that a row has; an error if an entry is out of place.
fn longest_rows(tables: &MatrixTables, diagonal: bool) -> Result<Vec<usize>, Error> {
    let mut longest = Vec::with_capacity(tables.first_row.len() - 1);
    for (matrix, rows) in tables.first_row.windows(2).enumerate() {
        let mut most = 0;
        for (row, entries) in tables.first_entry[rows[0] as usize..=rows[1] as usize].windows(2).enumerate() {
            let place = || format!("row {row} of matrix {matrix}");
            let entries = &tables.columns[entries[0] as usize..entries[1] as usize];
            let dim = rows[1] - rows[0];
            let outside = entries.iter().find(|&column| !(0..dim).contains(column));
            check(outside.is_none(), || {
                format!("{} has column {}, but there are {dim}", place(), outside.copied().unwrap_or_default())
            })?;
            let on_diagonal = entries.first().is_some_and(|&column| column as usize == row);
            check(diagonal || !on_diagonal, || format!("{} has a diagonal entry, but there are none", place()))?;
            let others = &entries[usize::from(on_diagonal)..];
            check(others.windows(2).all(|pair| pair[0] < pair[1]), || {
                format!("the columns off the diagonal don't ascend in {}", place())
            })?;
            check(others.iter().all(|&column| column as usize != row), || {
                format!("the diagonal entry is not the first one of {}", place())
            })?;
            most = most.max(others.len());
        }
        longest.push(most);
    }
    Ok(longest)
}

/// The sites of all terms as digits; an error if a term's matrix is not of the size that its sites make.
fn digits(sites: &Sites, tables: &MatrixTables) -> Result<Vec<Digit>, Error> {
    let mut digits = vec![Digit { site: 0, size: 0, weight: 0 }; tables.sites.len()];
    let mut last_term = vec![usize::MAX; sites.len()];
    for (term, (range, &matrix)) in tables.first_site.windows(2).zip(tables.table).enumerate() {
        let mut dim = 1_usize;
        for place in (range[0] as usize..range[1] as usize).rev() {
            let site = usize::try_from(tables.sites[place]).ok().filter(|&site| site < sites.len());
            let Some(site) = site else {
                let (site, sites) = (tables.sites[place], sites.len());
                return check(false, || {
                    format!("term {term} acts on site {site}, but there are {sites} sites, counted from 0")
                })
                .map(|()| digits);
            };
            check(last_term[site] != term, || format!("term {term} acts twice on site {site}"))?;
            last_term[site] = term;
            let size = sites.states(site).size;
            digits[place] = Digit { site: site as u32, size: size as u32, weight: dim as u32 };
            dim = dim.checked_mul(size).filter(|&dim| dim <= i32::MAX as usize).unwrap_or(usize::MAX >> 1);
        }
        let rows = usize::try_from(matrix).ok().and_then(|matrix| tables.first_row.get(matrix..matrix + 2));
        let Some(rows) = rows else {
            let matrices = tables.first_row.len() - 1;
            return check(false, || {
                format!("term {term} has matrix {matrix}, but there are {matrices}, counted from 0")
            })
            .map(|()| digits);
        };
        let rows = (rows[1] - rows[0]) as usize;
        check(rows == dim, || {
            format!("matrix {matrix} has {rows} rows, but the sites of term {term} have {dim} configurations")
        })?;
    }
    Ok(digits)
}

impl Form for Tables<'_> {
    const GRAIN: usize = 1;

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
        off_diagonal_only: bool,
        emit: &mut impl FnMut(usize, Entry, T),
    ) {
        let MatrixTables { table, first_row, first_entry, columns, .. } = self.tables;
        // The entries off the diagonal of each term.
        let mut entries = vec![0..0; table.len()];
        for sample in 0..samples {
            let indices = &indices[sample * self.sites..][..self.sites];
            let mut diagonal = T::default();
            for (term, (&matrix, entries)) in table.iter().zip(&mut entries).enumerate() {
                let row: u32 =
                    self.digits(term).iter().map(|digit| u32::from(indices[digit.site as usize]) * digit.weight).sum();
                let place = first_row[matrix as usize] as usize + row as usize;
                let (mut start, end) = (first_entry[place] as usize, first_entry[place + 1] as usize);
                if start < end && columns[start] as u32 == row {
                    diagonal = diagonal.plus(values[start]);
                    start += 1;
                }
                *entries = start..end;
            }
            if self.diagonal && !off_diagonal_only {
                emit(sample, Entry::default(), diagonal);
            }
            for (term, entries) in entries.iter().enumerate() {
                for entry in entries.clone() {
                    emit(sample, Entry { term: term as u32, column: columns[entry] as u32 }, values[entry]);
                }
            }
        }
    }

    fn apply<S: Sample>(&self, states: &LocalStates<S>, _: &[LocalIndex], entry: Entry, row: &mut [S]) {
        if entry != Entry::default() {
            for digit in self.digits(entry.term as usize) {
                let index = entry.column / digit.weight % digit.size;
                row[digit.site as usize] = states.value(digit.site as usize, index as LocalIndex);
            }
        }
    }
}
