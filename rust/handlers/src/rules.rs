//! What proposes the moves of chains, and what all chains are told.

use crate::errors::invalid;
use crate::operators::{Operator, TermsOf};
use ferroket_kernels::sampling::rules::{ClusterTables, Clusters, SwapTables, Swaps};
use ferroket_kernels::sampling::{KEY_WORDS, Key};
use ferroket_kernels::sites::{LocalIndex, Sites, StateRange};
use ferroket_xla_ffi::{AnyBuffer, Arguments, DataType, Error, Frame};

/// Evaluates `$body` with `$rule` for a function that makes a chain's rule on sites with `$sizes` local states, whose
/// arguments are taken from `$args`. They are checked where chains begin.
macro_rules! with_rule {
    ($frame:expr, $args:expr, $sizes:expr, $begins:expr, $rule:ident => $body:expr) => {{
        use ferroket_kernels::sampling::rules::{Exchange, Hamiltonian, Local, Swap};
        let (frame, sizes): (&Frame, &[LocalIndex]) = ($frame, $sizes);
        match frame.attr_str("rule")? {
            "local" => {
                let $rule = || Local::new(sizes);
                $body
            }
            "exchange" => {
                let tables = $crate::rules::ClustersOf::read(&mut $args)?;
                let clusters = tables.clusters(sizes.len(), $begins)?;
                let $rule = || Exchange::new(clusters);
                $body
            }
            "swap" => {
                let swaps = $crate::rules::read_swaps(frame, &mut $args, sizes.len(), $begins)?;
                let $rule = || Swap::new(swaps);
                $body
            }
            "hamiltonian" => {
                let operator = $crate::rules::read_operator(frame, &mut $args, sizes)?;
                let (form, values) = (operator.form, $crate::dtypes::Weights::read(operator.values)?.into_complex());
                let sparse = ferroket_kernels::connected::terms::SparseTerms::new(&form, &values);
                let $rule = || Hamiltonian::new(&sparse);
                $body
            }
            other => Err(Error::invalid(format!(
                "there is no rule '{other}', but 'local', 'exchange', 'swap' and 'hamiltonian'"
            ))),
        }
    }};
}

pub(crate) use with_rule;

/// What the random numbers of all chains depend on.
pub(crate) fn read_key(args: &mut Arguments) -> Result<Key, Error> {
    let words = args.typed::<u32>("key")?;
    words.expect_dims(&[KEY_WORDS])?;
    let mut key = [0; KEY_WORDS];
    key.copy_from_slice(words.as_slice());
    Ok(key)
}

/// How many moves are proposed between samples.
pub(crate) fn read_sweep(frame: &Frame) -> Result<usize, Error> {
    let sweep = usize::try_from(frame.attr_i64("sweep")?);
    sweep.map_err(|_| Error::invalid("`sweep` is negative"))
}

/// The tables of the rule `exchange`.
pub(crate) struct ClustersOf<'a> {
    pairs: &'a [i32],
    weights: Vec<f64>,
    first: &'a [i32],
    of_site: &'a [i32],
}

impl<'a> ClustersOf<'a> {
    /// Reads `clusters (E, 2)`, `weights (E,)` or `(0,)`, `first (N + 1,)` and `of_site (2 E, 2)`.
    pub(crate) fn read(args: &mut Arguments<'_, 'a>) -> Result<Self, Error> {
        let pairs = args.typed::<i32>("clusters")?;
        pairs.expect_dims(&[pairs.len() / 2, 2])?;
        let weights = args.any("weights")?;
        weights.expect_rank(1)?;
        let weights = real_numbers(weights)?;
        let first = args.vector("first")?;
        let of_site = args.typed::<i32>("of_site")?;
        of_site.expect_dims(&[of_site.len() / 2, 2])?;
        Ok(Self { pairs: pairs.as_slice(), weights, first, of_site: of_site.as_slice() })
    }

    /// Checks them, for so many sites, if it is the first call that has them.
    pub(crate) fn clusters(&self, sites: usize, begins: bool) -> Result<Clusters<'_>, Error> {
        let (pairs, of_site) = (self.pairs.as_chunks().0, self.of_site.as_chunks().0);
        let tables = ClusterTables { pairs, weights: &self.weights, first: self.first, of_site };
        if begins { Clusters::new(sites, tables).map_err(|error| invalid(&error)) } else { Ok(Clusters::again(tables)) }
    }
}

/// Reads the tables of the rule `swap`, see [`SwapTables`]: `pairs (P, 2)`, `first_pair (S + 1,)`, `first (N + 1,)`,
/// `of_site (K,)`, `group (N,)` and `limits (G, 2)`, all of int32, and the attributes `first_kind` and `probability`.
/// They are checked, for so many sites, if it is the first call that has them.
pub(crate) fn read_swaps<'a>(
    frame: &Frame<'a>,
    args: &mut Arguments<'_, 'a>,
    sites: usize,
    begins: bool,
) -> Result<Swaps<'a>, Error> {
    let pairs = args.typed::<i32>("pairs")?;
    pairs.expect_dims(&[pairs.len() / 2, 2])?;
    let first_pair = args.vector("first_pair")?;
    let first = args.vector("first")?;
    let of_site = args.vector("of_site")?;
    let group = args.vector("group")?;
    let limits = args.typed::<i32>("limits")?;
    limits.expect_dims(&[limits.len() / 2, 2])?;
    let first_kind = usize::try_from(frame.attr_i64("first_kind")?);
    let first_kind = first_kind.map_err(|_| Error::invalid("`first_kind` is negative"))?;
    let probability = frame.attr_f64("probability")?;
    let (pairs, limits) = (pairs.as_slice().as_chunks().0, limits.as_slice().as_chunks().0);
    let tables = SwapTables { pairs, first_pair, first, of_site, group, limits, first_kind, probability };
    if begins { Swaps::new(sites, tables).map_err(|error| invalid(&error)) } else { Ok(Swaps::again(tables)) }
}

/// The operator of the rule `hamiltonian`.
pub(crate) fn read_operator<'a>(
    frame: &Frame<'a>,
    args: &mut Arguments<'_, 'a>,
    sizes: &[LocalIndex],
) -> Result<Operator<'a, TermsOf>, Error> {
    if let Some(site) = sizes.iter().position(|&size| size != 2) {
        return Err(Error::invalid(format!("site {site} doesn't have two local states, as the rule wants")));
    }
    // What the states are doesn't matter, only that there are two.
    let kind = StateRange { start: 0.0, step: 1.0, size: 2 };
    let sites = Sites::new(sizes.len(), vec![kind], &[]).map_err(|error| invalid(&error))?;
    Operator::on_sites(frame, args, sites)
}

/// Real numbers of 32 or 64 bits.
pub(crate) fn real_numbers(buffer: AnyBuffer) -> Result<Vec<f64>, Error> {
    if buffer.dtype() == DataType::F32 {
        return Ok(buffer.typed::<f32>()?.as_slice().iter().map(|&number| number.into()).collect());
    }
    Ok(buffer.typed::<f64>()?.as_slice().to_vec())
}

/// An error where a chain holds what no site has.
pub(crate) fn check_indices(indices: &[LocalIndex], sizes: &[LocalIndex], numbers: &[u32]) -> Result<(), Error> {
    let chains = indices.chunks(sizes.len().max(1)).zip(numbers);
    for (indices, number) in chains {
        if let Some(site) = indices.iter().zip(sizes).position(|(index, size)| index >= size) {
            return Err(Error::invalid(format!(
                "chain {number} holds something else than one of the local states on site {site}: start it with a \
                 sample of its Hilbert space"
            )));
        }
    }
    Ok(())
}
