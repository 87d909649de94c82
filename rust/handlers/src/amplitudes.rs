//! Amplitudes whose ratios are known, as handlers take them: the last ones of their arguments.

use crate::errors::invalid;
use ferroket_kernels::amplitudes::fermions::Orbital;
use ferroket_kernels::amplitudes::jastrow::JastrowTables;
use ferroket_kernels::amplitudes::pfaffian::{PfaffianTables, Pfaffians};
use ferroket_kernels::amplitudes::rbm::{Rbm, RbmTables};
use ferroket_kernels::amplitudes::slater::{Slater, SlaterTables};
use ferroket_kernels::numbers::{Algebra, Real};
use ferroket_xla_ffi::{AnyBuffer, Arguments, DataType, Element, Error, Frame};

/// A table as it is read.
pub(crate) trait Table<'a>: Sized {
    /// Reads the next argument, which has so many dimensions.
    fn read(args: &mut Arguments<'_, 'a>, name: &'static str, rank: usize) -> Result<Self, Error>;
}

impl<'a> Table<'a> for AnyBuffer<'a> {
    fn read(args: &mut Arguments<'_, 'a>, name: &'static str, rank: usize) -> Result<Self, Error> {
        let table = args.any(name)?;
        table.expect_rank(rank)?;
        Ok(table)
    }
}

/// The tables `theta (P, M)`, `delta (P, N, M)` and `bias (P, N)` of a restricted Boltzmann machine.
pub(crate) struct RbmArguments<B> {
    pub(crate) theta: B,
    pub(crate) delta: B,
    pub(crate) bias: B,
}

impl<'a, B: Table<'a>> RbmArguments<B> {
    pub(crate) fn read(args: &mut Arguments<'_, 'a>) -> Result<Self, Error> {
        Ok(Self {
            theta: B::read(args, "theta", 2)?,
            delta: B::read(args, "delta", 3)?,
            bias: B::read(args, "bias", 2)?,
        })
    }
}

impl<'a> RbmArguments<AnyBuffer<'a>> {
    /// The type of the numbers, and how many planes they have.
    pub(crate) fn planes(&self) -> (DataType, usize) {
        planes(&self.theta)
    }

    /// The restricted Boltzmann machine, on so many sites.
    pub(crate) fn rbm<T, A, const P: usize>(self, sites: usize) -> Result<Rbm<'a, T, A, P>, Error>
    where
        T: Real + Element,
        A: Algebra<P>,
    {
        let units = self.delta.dims()[2];
        let tables = RbmTables {
            theta: table(self.theta, &[P, units])?,
            delta: table(self.delta, &[P, sites, units])?,
            bias: table(self.bias, &[P, sites])?,
            units,
        };
        Rbm::new(tables, sites).map_err(|error| invalid(&error))
    }
}

/// The tables `fields (P, M)` and `pairs (P, N, M)` of a Jastrow amplitude.
pub(crate) struct JastrowArguments<B> {
    pub(crate) fields: B,
    pub(crate) pairs: B,
}

impl<'a, B: Table<'a>> JastrowArguments<B> {
    pub(crate) fn read(args: &mut Arguments<'_, 'a>) -> Result<Self, Error> {
        Ok(Self { fields: B::read(args, "fields", 2)?, pairs: B::read(args, "pairs", 3)? })
    }
}

impl<'a> JastrowArguments<AnyBuffer<'a>> {
    /// The type of the numbers, and how many planes they have.
    pub(crate) fn planes(&self) -> (DataType, usize) {
        planes(&self.fields)
    }

    /// The tables, of so many planes, on so many sites.
    pub(crate) fn tables<T: Element>(self, planes: usize, sites: usize) -> Result<JastrowTables<'a, T>, Error> {
        let columns = self.pairs.dims()[2];
        Ok(JastrowTables {
            fields: table(self.fields, &[planes, columns])?,
            pairs: table(self.pairs, &[planes, sites, columns])?,
            columns,
        })
    }
}

/// The table `alpha (P, K)` of a factor of doublons and holons, and an attribute: for each shell how many neighbours a site has,
/// and then those of each site.
pub(crate) struct DoublonHolonArguments<B> {
    pub(crate) alpha: B,
    shells: Vec<usize>,
}

impl<'a, B: Table<'a>> DoublonHolonArguments<B> {
    /// With names of attributes that begin alike.
    pub(crate) fn read(frame: &Frame, args: &mut Arguments<'_, 'a>, prefix: &str) -> Result<Self, Error> {
        let alpha = B::read(args, "alpha", 2)?;
        // No site has a negative number; too large ones are an error further on.
        let number = |n| usize::try_from(n).unwrap_or(usize::MAX);
        let shells = frame.attr_i64s(&format!("{prefix}shells"))?.into_iter().map(number).collect();
        Ok(Self { alpha, shells })
    }

    /// For each shell the neighbours of each of so many sites.
    pub(crate) fn shells(&self, sites: usize) -> Result<Vec<Vec<usize>>, Error> {
        let (mut shells, mut rest) = (Vec::new(), &self.shells[..]);
        while let Some((&of_site, others)) = rest.split_first() {
            let neighbours = others.split_at_checked(of_site.saturating_mul(sites)).ok_or_else(|| {
                Error::invalid(format!("the shells end before {of_site} neighbours of each of {sites} sites"))
            })?;
            shells.push(neighbours.0.to_vec());
            rest = neighbours.1;
        }
        Ok(shells)
    }
}

/// The orbitals `(P, D, K)` of D determinants, and attributes: how many fermions each sector has, and from which site on holes
/// take their place, -1 for none.
pub(crate) struct SlaterArguments<B> {
    pub(crate) orbitals: B,
    pub(crate) fermions: Vec<usize>,
    pub(crate) holes: usize,
}

impl<'a, B: Table<'a>> SlaterArguments<B> {
    /// With names of attributes that begin alike.
    pub(crate) fn read(frame: &Frame, args: &mut Arguments<'_, 'a>, prefix: &str) -> Result<Self, Error> {
        let orbitals = B::read(args, "orbitals", 3)?;
        // No sector has a negative number of fermions; too many are an error further on.
        let number = |n| usize::try_from(n).unwrap_or(usize::MAX);
        let fermions = frame.attr_i64s(&format!("{prefix}fermions"))?.into_iter().map(number).collect();
        let holes = number(frame.attr_i64(&format!("{prefix}holes"))?);
        Ok(Self { orbitals, fermions, holes })
    }
}

impl SlaterArguments<AnyBuffer<'_>> {
    /// Whether the orbitals are complex.
    pub(crate) fn are_complex(&self) -> bool {
        self.orbitals.dims()[0] == 2
    }

    /// The determinants, of real orbitals or of complex ones with two planes, on so many sites.
    pub(crate) fn sum<E: Orbital, const P: usize>(self, sites: usize) -> Result<Slater<E>, Error> {
        match self.orbitals.dtype() {
            DataType::F32 => self.of::<f32, E, P>(sites),
            _ => self.of::<f64, E, P>(sites),
        }
    }

    fn of<T: Real + Element, E: Orbital, const P: usize>(self, sites: usize) -> Result<Slater<E>, Error> {
        let Self { orbitals, fermions, holes } = self;
        let (determinants, len) = (orbitals.dims()[1], orbitals.dims()[2]);
        let orbitals = table::<T>(orbitals, &[P, determinants, len])?;
        let tables = SlaterTables { orbitals, determinants, fermions: &fermions, holes };
        Slater::new::<T, P>(tables, sites).map_err(|error| invalid(&error))
    }
}

/// Determinants, each times a restricted Boltzmann machine of real numbers at a configuration whose sites are moved: the tables of
/// [`SlaterArguments`] and [`RbmArguments`], and an attribute: for each determinant where each site goes.
pub(crate) struct CorrelatedArguments<B> {
    pub(crate) slater: SlaterArguments<B>,
    pub(crate) rbm: RbmArguments<B>,
    pub(crate) permutations: Vec<usize>,
}

impl<'a, B: Table<'a>> CorrelatedArguments<B> {
    /// With names of attributes that begin alike.
    pub(crate) fn read(frame: &Frame, args: &mut Arguments<'_, 'a>, prefix: &str) -> Result<Self, Error> {
        let (slater, rbm) = (SlaterArguments::read(frame, args, prefix)?, RbmArguments::read(args)?);
        // No site has a negative number; too large ones are an error further on.
        let number = |n| usize::try_from(n).unwrap_or(usize::MAX);
        let permutations = frame.attr_i64s(&format!("{prefix}permutations"))?.into_iter().map(number).collect();
        Ok(Self { slater, rbm, permutations })
    }
}

/// The tables `pairs (P, D, N, N)` and `weights (P, D)` of D Pfaffians, and an attribute: how many fermions there are.
pub(crate) struct PfaffianArguments<B> {
    pub(crate) pairs: B,
    pub(crate) weights: B,
    pub(crate) fermions: usize,
}

impl<'a, B: Table<'a>> PfaffianArguments<B> {
    /// With names of attributes that begin alike.
    pub(crate) fn read(frame: &Frame, args: &mut Arguments<'_, 'a>, prefix: &str) -> Result<Self, Error> {
        let (pairs, weights) = (B::read(args, "pairs", 4)?, B::read(args, "weights", 2)?);
        // A negative number is none that pairs are made of.
        let fermions = usize::try_from(frame.attr_i64(&format!("{prefix}fermions"))?).unwrap_or(usize::MAX);
        Ok(Self { pairs, weights, fermions })
    }
}

impl PfaffianArguments<AnyBuffer<'_>> {
    /// Whether the pairs are complex.
    pub(crate) fn are_complex(&self) -> bool {
        self.pairs.dims()[0] == 2
    }

    /// The Pfaffians, of real pairs or of complex ones with two planes, on so many sites.
    pub(crate) fn sum<E: Orbital, const P: usize>(self, sites: usize) -> Result<Pfaffians<E>, Error> {
        match self.pairs.dtype() {
            DataType::F32 => self.of::<f32, E, P>(sites),
            _ => self.of::<f64, E, P>(sites),
        }
    }

    fn of<T: Real + Element, E: Orbital, const P: usize>(self, sites: usize) -> Result<Pfaffians<E>, Error> {
        let Self { pairs, weights, fermions } = self;
        let summands = weights.dims()[1];
        let (pairs, weights) = (table::<T>(pairs, &[P, summands, sites, sites])?, table::<T>(weights, &[P, summands])?);
        Pfaffians::new::<T, P>(PfaffianTables { pairs, weights, fermions }, sites).map_err(|error| invalid(&error))
    }
}

/// Evaluates `$body` with `$sum` for the determinants or Pfaffians on `$sites` that `$arguments` are, real or complex ones.
macro_rules! with_fermions {
    ($arguments:expr, $sites:expr, $sum:ident => $body:expr) => {{
        let (arguments, sites) = ($arguments, $sites);
        if arguments.are_complex() {
            let $sum = arguments.sum::<num_complex::Complex<f64>, 2>(sites)?;
            $body
        } else {
            let $sum = arguments.sum::<f64, 1>(sites)?;
            $body
        }
    }};
}

pub(crate) use with_fermions;

/// Evaluates `$body` with the types of the amplitudes' tables and of their numbers, and how many planes these have.
/// `$amplitudes` are the arguments, and `$pairs` says whether they are [`RealPairs`](ferroket_kernels::numbers::RealPairs).
macro_rules! with_types {
    ($amplitudes:expr, $pairs:expr, ($T:ident, $A:ident, $P:ident) => $body:expr) => {{
        macro_rules! with {
            ($tables:ty, $algebra:ty, $planes:literal) => {{
                type $T = $tables;
                type $A = $algebra;
                const $P: usize = $planes;
                $body
            }};
        }
        use ferroket_kernels::numbers::{Complexes, RealPairs, Reals};
        use ferroket_xla_ffi::DataType;
        let (dtype, planes) = $amplitudes.planes();
        match (dtype, planes, $pairs) {
            (DataType::F32, 1, false) => with!(f32, Reals, 1),
            (DataType::F64, 1, false) => with!(f64, Reals, 1),
            (DataType::F32, 2, false) => with!(f32, Complexes, 2),
            (DataType::F64, 2, false) => with!(f64, Complexes, 2),
            (DataType::F32, 2, true) => with!(f32, RealPairs, 2),
            (DataType::F64, 2, true) => with!(f64, RealPairs, 2),
            _ => Err(ferroket_xla_ffi::Error::invalid(format!(
                "the tables have {planes} planes of {dtype}, but must have 1 or 2 (if pairs: 2) of float32 or float64"
            ))),
        }
    }};
}

pub(crate) use with_types;

/// The type and the first dimension of the first table.
fn planes(table: &AnyBuffer) -> (DataType, usize) {
    (table.dtype(), table.dims()[0])
}

fn table<'a, T: Element>(table: AnyBuffer<'a>, dims: &[usize]) -> Result<&'a [T], Error> {
    let table = table.typed::<T>()?;
    table.expect_dims(dims)?;
    Ok(table.as_slice())
}
