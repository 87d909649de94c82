//! The operator of a call: the kinds of sites, the tables of a form, and the values of its terms.

use crate::errors::invalid;
use ferroket_kernels::connected::Form;
use ferroket_kernels::connected::matrices::{Matrices, MatrixTables};
use ferroket_kernels::connected::terms::{TermTables, Terms, words};
use ferroket_kernels::sites::{Sites, StateRange};
use ferroket_xla_ffi::{AnyBuffer, Arguments, Error, Frame};

/// A form as a handler takes it.
pub(crate) trait FormTables {
    type Form<'a>: Form;

    /// Reads the tables and `values`.
    fn read<'a>(
        args: &mut Arguments<'_, 'a>,
        sites: &Sites,
        diagonal: bool,
    ) -> Result<(Self::Form<'a>, AnyBuffer<'a>), Error>;
}

/// The operator of a call.
pub(crate) struct Operator<'a, F: FormTables> {
    pub(crate) sites: Sites,
    pub(crate) form: F::Form<'a>,
    pub(crate) values: AnyBuffer<'a>,
}

impl<'a, F: FormTables> Operator<'a, F> {
    /// Reads the samples `x (..., N)`, `kind`, the tables of the form and `values`; attributes `starts`, `steps`, `sizes`
    /// and `diagonal`.
    pub(crate) fn read(frame: &Frame<'a>, args: &mut Arguments<'_, 'a>) -> Result<(AnyBuffer<'a>, Self), Error> {
        let x = read_samples(args)?;
        let sites = read_sites(frame, args, x.dims()[batch(&x).len()])?;
        Ok((x, Self::on_sites(frame, args, sites)?))
    }

    /// As [`Operator::read`], without samples and the kinds of sites.
    pub(crate) fn on_sites(frame: &Frame<'a>, args: &mut Arguments<'_, 'a>, sites: Sites) -> Result<Self, Error> {
        let (form, values) = F::read(args, &sites, frame.attr_bool("diagonal")?)?;
        Ok(Self { sites, form, values })
    }
}

/// Reads samples `x (..., N)`.
pub(crate) fn read_samples<'a>(args: &mut Arguments<'_, 'a>) -> Result<AnyBuffer<'a>, Error> {
    let x = args.any("x")?;
    if x.dims().is_empty() {
        return Err(Error::invalid("x has no dimension, but its last one must be that of the sites"));
    }
    Ok(x)
}

/// The dimensions of the samples but for that of the sites.
pub(crate) fn batch<'x>(x: &'x AnyBuffer) -> &'x [usize] {
    &x.dims()[..x.dims().len() - 1]
}

/// Reads `kind`, for so many sites; attributes `starts`, `steps` and `sizes`.
pub(crate) fn read_sites(frame: &Frame, args: &mut Arguments, sites: usize) -> Result<Sites, Error> {
    let kind = args.vector::<i32>("kind")?;
    Sites::new(sites, kinds(frame)?, kind).map_err(|error| invalid(&error))
}

/// The values of the terms.
fn read_values<'a>(args: &mut Arguments<'_, 'a>) -> Result<AnyBuffer<'a>, Error> {
    let values = args.any("values")?;
    values.expect_rank(1)?;
    Ok(values)
}

/// The local states of each kind of sites, from the attributes `starts`, `steps` and `sizes`.
fn kinds(frame: &Frame) -> Result<Vec<StateRange>, Error> {
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
    Ok(ranges.map(|((start, step), size)| StateRange { start, step, size: size.max(0) as usize }).collect())
}

/// The form [`Terms`]: tables `flip (G, W)`, `first (G + 1,)`, `mask`, `pattern` and `sign (T, W)`.
pub(crate) struct TermsOf;

impl FormTables for TermsOf {
    type Form<'a> = Terms<'a>;

    fn read<'a>(
        args: &mut Arguments<'_, 'a>,
        sites: &Sites,
        diagonal: bool,
    ) -> Result<(Terms<'a>, AnyBuffer<'a>), Error> {
        let words = words(sites.len());
        let tables = TermTables {
            flip: rows(args, "flip", words)?,
            first: args.vector("first")?,
            mask: rows(args, "mask", words)?,
            pattern: rows(args, "pattern", words)?,
            sign: rows(args, "sign", words)?,
        };
        let values = read_values(args)?;
        let form = Terms::new(sites, tables, values.len(), diagonal).map_err(|error| invalid(&error))?;
        Ok((form, values))
    }
}

/// A table of rows with so many words. How many rows there must be is the form's to know.
fn rows<'a>(args: &mut Arguments<'_, 'a>, name: &'static str, words: usize) -> Result<&'a [u32], Error> {
    let table = args.typed::<u32>(name)?;
    table.expect_rank(2)?;
    table.expect_dims(&[table.dims()[0], words])?;
    Ok(table.as_slice())
}

/// The form [`Matrices`]: tables `first_site (T + 1,)`, `sites (S,)`, `table (T,)`, `first_row (M + 1,)`,
/// `first_entry (R + 1,)` and `columns (V,)`.
pub(crate) struct MatricesOf;

impl FormTables for MatricesOf {
    type Form<'a> = Matrices<'a>;

    fn read<'a>(
        args: &mut Arguments<'_, 'a>,
        sites: &Sites,
        diagonal: bool,
    ) -> Result<(Matrices<'a>, AnyBuffer<'a>), Error> {
        let tables = MatrixTables {
            first_site: args.vector("first_site")?,
            sites: args.vector("sites")?,
            table: args.vector("table")?,
            first_row: args.vector("first_row")?,
            first_entry: args.vector("first_entry")?,
            columns: args.vector("columns")?,
        };
        let values = read_values(args)?;
        let form = Matrices::new(sites, tables, values.len(), diagonal).map_err(|error| invalid(&error))?;
        Ok((form, values))
    }
}
