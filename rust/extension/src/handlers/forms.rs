//! The operators of a call: the tables of a form, and the values of its terms.

use super::dispatch::invalid;
use ferroket_kernels::connected::Form;
use ferroket_kernels::connected::matrices::{Matrices, MatrixTables};
use ferroket_kernels::connected::terms::{TermTables, Terms, words};
use ferroket_kernels::sites::{Sites, StateRange};
use ferroket_xla_ffi::{AnyBuffer, Element, Error, Frame};

/// A form as a handler takes it.
pub(super) trait FormArguments {
    type Form<'a>: Form;

    /// How many arguments are its tables, between `kind` and `values`.
    const TABLES: usize;

    /// Reads the tables, for so many values.
    fn parse<'a>(frame: &Frame<'a>, sites: &Sites, values: usize, diagonal: bool) -> Result<Self::Form<'a>, Error>;
}

/// The operator of a call.
pub(super) struct Operator<'a, F: FormArguments> {
    pub(super) sites: Sites,
    pub(super) form: F::Form<'a>,
    pub(super) values: AnyBuffer<'a>,
}

impl<'a, F: FormArguments> Operator<'a, F> {
    /// How many arguments there are: the samples, and those of the operator.
    pub(super) const ARGUMENTS: usize = 3 + F::TABLES;

    /// Reads the operator of a call on so many sites. Argument 0 are the samples; attributes `starts`, `steps`, `sizes`
    /// and `diagonal`.
    pub(super) fn parse(frame: &Frame<'a>, sites: usize) -> Result<Self, Error> {
        let (starts, steps, sizes) = (frame.attr_f64s("starts")?, frame.attr_f64s("steps")?, frame.attr_i64s("sizes")?);
        if starts.len() != sizes.len() || steps.len() != sizes.len() {
            return Err(Error::invalid(format!(
                "there are {} starts, {} steps and {} sizes of local states, but each kind of sites has one of each",
                starts.len(),
                steps.len(),
                sizes.len()
            )));
        }
        let ranges = starts.into_iter().zip(steps).zip(sizes);
        // No site has a negative number of states; none at all is an error further on.
        let kinds =
            ranges.map(|((start, step), size)| StateRange { start, step, size: size.max(0) as usize }).collect();
        let kind = vector::<i32>(frame, 1, "kind")?;
        let sites = Sites::new(sites, kinds, kind).map_err(|error| invalid(&error))?;
        let values = frame.arg(Self::ARGUMENTS - 1, "values")?;
        values.expect_rank(1)?;
        let form = F::parse(frame, &sites, values.len(), frame.attr_bool("diagonal")?)?;
        Ok(Self { sites, form, values })
    }
}

/// The form `terms`: tables `flip (G, W)`, `first (G + 1,)`, `mask`, `pattern` and `sign (T, W)`.
pub(super) struct TermArguments;

impl FormArguments for TermArguments {
    type Form<'a> = Terms<'a>;

    const TABLES: usize = 5;

    fn parse<'a>(frame: &Frame<'a>, sites: &Sites, values: usize, diagonal: bool) -> Result<Terms<'a>, Error> {
        terms(frame, 2, sites, values, diagonal)
    }
}

/// The tables `flip`, `first`, `mask`, `pattern` and `sign` of [`TermArguments`], which begin at an argument.
pub(super) fn terms<'a>(
    frame: &Frame<'a>,
    argument: usize,
    sites: &Sites,
    values: usize,
    diagonal: bool,
) -> Result<Terms<'a>, Error> {
    let first = vector::<i32>(frame, argument + 1, "first")?;
    let words = words(sites.len());
    let rows = |index, name, rows: usize| -> Result<&'a [u32], Error> {
        let table = frame.arg(argument + index, name)?.typed::<u32>()?;
        table.expect_dims(&[rows, words])?;
        Ok(table.as_slice())
    };
    let tables = TermTables {
        flip: rows(0, "flip", first.len().saturating_sub(1))?,
        first,
        mask: rows(2, "mask", values)?,
        pattern: rows(3, "pattern", values)?,
        sign: rows(4, "sign", values)?,
    };
    Terms::new(sites, tables, values, diagonal).map_err(|error| invalid(&error))
}

/// The form `tables`: tables `first_site (T + 1,)`, `sites (S,)`, `table (T,)`, `first_row (M + 1,)`,
/// `first_entry (R + 1,)` and `columns (V,)`.
pub(super) struct MatrixArguments;

impl FormArguments for MatrixArguments {
    type Form<'a> = Matrices<'a>;

    const TABLES: usize = 6;

    fn parse<'a>(frame: &Frame<'a>, sites: &Sites, values: usize, diagonal: bool) -> Result<Matrices<'a>, Error> {
        let tables = MatrixTables {
            first_site: vector(frame, 2, "first_site")?,
            sites: vector(frame, 3, "sites")?,
            table: vector(frame, 4, "table")?,
            first_row: vector(frame, 5, "first_row")?,
            first_entry: vector(frame, 6, "first_entry")?,
            columns: vector(frame, 7, "columns")?,
        };
        Matrices::new(sites, tables, values, diagonal).map_err(|error| invalid(&error))
    }
}

/// An argument of one dimension.
pub(super) fn vector<'a, T: Element>(frame: &Frame<'a>, index: usize, name: &'static str) -> Result<&'a [T], Error> {
    let argument = frame.arg(index, name)?.typed::<T>()?;
    argument.expect_rank(1)?;
    Ok(argument.as_slice())
}
