//! Products of amplitudes, as handlers take them: the tables of all factors, one after the other.

use crate::amplitudes::{
    CorrelatedArguments, DoublonHolonArguments, JastrowArguments, PfaffianArguments, RbmArguments, SlaterArguments,
    Table,
};
use crate::errors::invalid;
use crate::rules::real_numbers;
use ferroket_kernels::amplitudes::correlated::{self, Correlated};
use ferroket_kernels::amplitudes::doublon_holon::{self, DoublonHolon, DoublonHolonTables};
use ferroket_kernels::amplitudes::fermions::{self, Fermions};
use ferroket_kernels::amplitudes::jastrow::{self, JastrowTables};
use ferroket_kernels::amplitudes::pfaffian::{PfaffianTables, Pfaffians};
use ferroket_kernels::amplitudes::product::{Factor, WalkingFactor};
use ferroket_kernels::amplitudes::rbm::{self, Rbm, RbmTables};
use ferroket_kernels::amplitudes::slater::{Slater, SlaterTables};
use ferroket_kernels::numbers::{Complexes, RealPairs, Reals};
use ferroket_xla_ffi::{AnyBuffer, Arguments, Error, Frame};
use num_complex::Complex;

/// A table in double precision, with its dimensions.
struct Doubles {
    numbers: Vec<f64>,
    dims: Vec<usize>,
}

impl<'a> Table<'a> for Doubles {
    fn read(args: &mut Arguments<'_, 'a>, name: &'static str, rank: usize) -> Result<Self, Error> {
        let table = AnyBuffer::read(args, name, rank)?;
        Ok(Self { dims: table.dims().to_vec(), numbers: real_numbers(table)? })
    }
}

/// The tables of a factor, and whether an RBM is of pairs.
enum FactorArguments {
    Rbm(RbmArguments<Doubles>, bool),
    Jastrow(JastrowArguments<Doubles>),
    DoublonHolon(DoublonHolonArguments<Doubles>),
    Slater(SlaterArguments<Doubles>),
    Pfaffian(PfaffianArguments<Doubles>),
    Correlated(CorrelatedArguments<Doubles>),
}

/// The tables of all factors: those of an RBM, a Jastrow amplitude, determinants or Pfaffians, as the handlers of each have them, and
/// [`DoublonHolonArguments`] and [`CorrelatedArguments`], of float32 or float64. Attributes `factors`, their names, and those of
/// factor i, as `i_pairs`, `i_fermions`, `i_holes`, `i_shells` and `i_permutations`.
pub(crate) struct ProductArguments(Vec<FactorArguments>);

impl ProductArguments {
    pub(crate) fn read(frame: &Frame, args: &mut Arguments) -> Result<Self, Error> {
        let names = frame.attr_str("factors")?.split_whitespace().enumerate();
        let read = |(place, name)| match name {
            "rbm" => Ok(FactorArguments::Rbm(RbmArguments::read(args)?, frame.attr_bool(&format!("{place}_pairs"))?)),
            "jastrow" => Ok(FactorArguments::Jastrow(JastrowArguments::read(args)?)),
            "doublon_holon" => {
                DoublonHolonArguments::read(frame, args, &format!("{place}_")).map(FactorArguments::DoublonHolon)
            }
            "slater" => SlaterArguments::read(frame, args, &format!("{place}_")).map(FactorArguments::Slater),
            "pfaffian" => PfaffianArguments::read(frame, args, &format!("{place}_")).map(FactorArguments::Pfaffian),
            "correlated" => {
                CorrelatedArguments::read(frame, args, &format!("{place}_")).map(FactorArguments::Correlated)
            }
            _ => Err(Error::invalid(format!(
                "there is no factor '{name}', but 'rbm', 'jastrow', 'doublon_holon', 'slater', 'pfaffian' and 'correlated'"
            ))),
        };
        names.map(read).collect::<Result<_, _>>().map(Self)
    }

    /// The factors, checked, on so many sites.
    pub(crate) fn ansatze(&self, sites: usize) -> Result<Vec<Ansatz<'_>>, Error> {
        self.0.iter().map(|factor| Ansatz::of(factor, sites)).collect()
    }
}

/// A factor whose tables were checked.
pub(crate) enum Ansatz<'a> {
    RealRbm(Rbm<'a, f64, Reals, 1>),
    ComplexRbm(Rbm<'a, f64, Complexes, 2>),
    PairOfRbms(Rbm<'a, f64, RealPairs, 2>),
    RealJastrow(jastrow::Amplitudes<'a, f64, Reals, 1>, jastrow::Walker<'a, f64>),
    ComplexJastrow(jastrow::Amplitudes<'a, f64, Complexes, 2>),
    RealDoublonHolon(DoublonHolon<1>),
    ComplexDoublonHolon(DoublonHolon<2>),
    RealSlater(Slater<f64>),
    ComplexSlater(Slater<Complex<f64>>),
    RealPfaffians(Pfaffians<f64>),
    ComplexPfaffians(Pfaffians<Complex<f64>>),
    RealCorrelated(Correlated<'a, Slater<f64>>),
    ComplexCorrelated(Correlated<'a, Slater<Complex<f64>>>),
}

impl<'a> Ansatz<'a> {
    fn of(arguments: &'a FactorArguments, sites: usize) -> Result<Self, Error> {
        let ansatz = match arguments {
            FactorArguments::Rbm(RbmArguments { theta, delta, bias }, are_pairs) => {
                let units = theta.dims[1];
                let tables = RbmTables { theta: &theta.numbers, delta: &delta.numbers, bias: &bias.numbers, units };
                match (theta.dims[0], are_pairs) {
                    (1, false) => Rbm::new(tables, sites).map(Self::RealRbm),
                    (_, false) => Rbm::new(tables, sites).map(Self::ComplexRbm),
                    (_, true) => Rbm::new(tables, sites).map(Self::PairOfRbms),
                }
            }
            FactorArguments::Jastrow(JastrowArguments { fields, pairs }) => {
                let tables = JastrowTables { fields: &fields.numbers, pairs: &pairs.numbers, columns: fields.dims[1] };
                if fields.dims[0] == 1 {
                    jastrow::Amplitudes::new(tables, sites)
                        .and_then(|amplitudes| Ok(Self::RealJastrow(amplitudes, jastrow::Walker::new(tables, sites)?)))
                } else {
                    jastrow::Amplitudes::new(tables, sites).map(Self::ComplexJastrow)
                }
            }
            FactorArguments::DoublonHolon(arguments) => {
                let DoublonHolonArguments { alpha, .. } = arguments;
                let tables = DoublonHolonTables { alpha: &alpha.numbers, shells: &arguments.shells(sites / 2)? };
                if alpha.dims[0] == 1 {
                    DoublonHolon::new(tables, sites).map(Self::RealDoublonHolon)
                } else {
                    DoublonHolon::new(tables, sites).map(Self::ComplexDoublonHolon)
                }
            }
            FactorArguments::Slater(SlaterArguments { orbitals, fermions, holes }) => {
                let (numbers, determinants) = (&orbitals.numbers, orbitals.dims[1]);
                let tables = SlaterTables { orbitals: numbers, determinants, fermions, holes: *holes };
                if orbitals.dims[0] == 1 {
                    Slater::new::<f64, 1>(tables, sites).map(Self::RealSlater)
                } else {
                    Slater::new::<f64, 2>(tables, sites).map(Self::ComplexSlater)
                }
            }
            FactorArguments::Pfaffian(PfaffianArguments { pairs, weights, fermions }) => {
                let tables = PfaffianTables { pairs: &pairs.numbers, weights: &weights.numbers, fermions: *fermions };
                if pairs.dims[0] == 1 {
                    Pfaffians::new::<f64, 1>(tables, sites).map(Self::RealPfaffians)
                } else {
                    Pfaffians::new::<f64, 2>(tables, sites).map(Self::ComplexPfaffians)
                }
            }
            FactorArguments::Correlated(CorrelatedArguments { slater, rbm, permutations }) => {
                let (orbitals, determinants) = (&slater.orbitals.numbers, slater.orbitals.dims[1]);
                let tables = SlaterTables { orbitals, determinants, fermions: &slater.fermions, holes: slater.holes };
                let RbmArguments { theta, delta, bias } = rbm;
                let units = theta.dims[1];
                let rbm = RbmTables { theta: &theta.numbers, delta: &delta.numbers, bias: &bias.numbers, units };
                Rbm::new(rbm, sites).and_then(|rbm| {
                    if slater.orbitals.dims[0] == 1 {
                        let slater = Slater::new::<f64, 1>(tables, sites)?;
                        Correlated::new(slater, rbm, permutations.clone(), sites).map(Self::RealCorrelated)
                    } else {
                        let slater = Slater::new::<f64, 2>(tables, sites)?;
                        Correlated::new(slater, rbm, permutations.clone(), sites).map(Self::ComplexCorrelated)
                    }
                })
            }
        };
        ansatz.map_err(|error| invalid(&error))
    }

    /// How many numbers a sample has.
    pub(crate) fn numbers(&self, sites: usize) -> usize {
        match self {
            Self::RealRbm(rbm) => rbm.numbers(),
            Self::ComplexRbm(rbm) => rbm.numbers(),
            Self::PairOfRbms(rbm) => rbm.numbers(),
            Self::RealJastrow(..) => sites,
            Self::ComplexJastrow(_) => 2 * sites,
            Self::RealDoublonHolon(factor) => factor.numbers(),
            Self::ComplexDoublonHolon(factor) => factor.numbers(),
            Self::RealSlater(slater) => slater.numbers(),
            Self::ComplexSlater(slater) => slater.numbers(),
            Self::RealPfaffians(pfaffians) => pfaffians.numbers(),
            Self::ComplexPfaffians(pfaffians) => pfaffians.numbers(),
            Self::RealCorrelated(correlated) => correlated.numbers(),
            Self::ComplexCorrelated(correlated) => correlated.numbers(),
        }
    }

    /// The factor, at no samples.
    pub(crate) fn amplitudes(&'a self) -> Factor<'a> {
        match self {
            Self::RealRbm(rbm) => Factor::RealRbm(rbm::Amplitudes::new(rbm)),
            Self::ComplexRbm(rbm) => Factor::ComplexRbm(rbm::Amplitudes::new(rbm)),
            Self::PairOfRbms(rbm) => Factor::PairOfRbms(rbm::Amplitudes::new(rbm)),
            Self::RealJastrow(jastrow, _) => Factor::RealJastrow(jastrow.clone()),
            Self::ComplexJastrow(jastrow) => Factor::ComplexJastrow(jastrow.clone()),
            Self::RealDoublonHolon(factor) => Factor::RealDoublonHolon(doublon_holon::Amplitudes::new(factor)),
            Self::ComplexDoublonHolon(factor) => Factor::ComplexDoublonHolon(doublon_holon::Amplitudes::new(factor)),
            Self::RealSlater(slater) => Factor::RealSlater(fermions::Amplitudes::new(slater)),
            Self::ComplexSlater(slater) => Factor::ComplexSlater(fermions::Amplitudes::new(slater)),
            Self::RealPfaffians(pfaffians) => Factor::RealPfaffians(fermions::Amplitudes::new(pfaffians)),
            Self::ComplexPfaffians(pfaffians) => Factor::ComplexPfaffians(fermions::Amplitudes::new(pfaffians)),
            Self::RealCorrelated(sum) => Factor::RealCorrelated(correlated::Amplitudes::new(sum)),
            Self::ComplexCorrelated(sum) => Factor::ComplexCorrelated(correlated::Amplitudes::new(sum)),
        }
    }

    /// The modulus of the factor, at no configuration. An ansatz without one has none.
    pub(crate) fn walker(&'a self) -> Option<WalkingFactor<'a>> {
        match self {
            Self::RealRbm(rbm) => Some(WalkingFactor::RealRbm(rbm::Walker::new(rbm))),
            Self::ComplexRbm(rbm) => Some(WalkingFactor::ComplexRbm(rbm::Walker::new(rbm))),
            Self::RealJastrow(_, walker) => Some(WalkingFactor::Jastrow(walker.clone())),
            Self::RealDoublonHolon(factor) => Some(WalkingFactor::DoublonHolon(doublon_holon::Walker::new(factor))),
            Self::RealSlater(slater) => Some(WalkingFactor::RealSlater(fermions::Walker::new(slater))),
            Self::ComplexSlater(slater) => Some(WalkingFactor::ComplexSlater(fermions::Walker::new(slater))),
            Self::RealPfaffians(pfaffians) => Some(WalkingFactor::RealPfaffians(fermions::Walker::new(pfaffians))),
            Self::ComplexPfaffians(pfaffians) => {
                Some(WalkingFactor::ComplexPfaffians(fermions::Walker::new(pfaffians)))
            }
            Self::RealCorrelated(sum) => Some(WalkingFactor::RealCorrelated(correlated::Walker::new(sum))),
            Self::ComplexCorrelated(sum) => Some(WalkingFactor::ComplexCorrelated(correlated::Walker::new(sum))),
            Self::PairOfRbms(_) | Self::ComplexJastrow(_) | Self::ComplexDoublonHolon(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::chains;
    use crate::local_values;
    use crate::testing::{POOLS, arguments};
    use ferroket_kernels::sampling::KEY_WORDS;
    use ferroket_kernels::sites::LocalIndex;
    use ferroket_xla_ffi::testing::{TestFrame, Threads};
    use num_complex::Complex;

    /// A site whose only neighbour is itself: ln ψ is `alpha[0]` where it is doubly occupied, and `alpha[2]` where it is empty.
    fn with_doublon_holon(frame: TestFrame, alpha: &[f64], planes: usize, shells: &[i64]) -> TestFrame {
        let frame = frame.attr_str("factors", "doublon_holon").attr_array("0_shells", shells);
        frame.arg(alpha, &[planes, alpha.len() / planes])
    }

    #[test]
    fn doublons_and_holons_of_an_example() {
        for threads in POOLS {
            for (alpha, planes) in [(&[0.75, 9.0, 0.5, 9.0][..], 1), (&[0.75, 9.0, 0.5, 9.0, 0.2, 9.0, 0.4, 9.0], 2)] {
                let frame = with_doublon_holon(arguments().frame(threads), alpha, planes, &[1, 0]);
                let mut frame = frame.result::<Complex<f64>>(&[3]);
                assert_eq!(frame.execute(local_values::product), Ok(()));
                // The second mode flips where the first one is occupied: from one fermion to two, and back.
                let ln = Complex::new(0.75, if planes == 2 { 0.2 } else { 0.0 });
                let expected = [Complex::from(0.5), 2.0 * ln.exp() - 0.5, 2.0 * (-ln).exp() - 0.5];
                for (found, expected) in frame.read::<Complex<f64>>(0).into_iter().zip(expected) {
                    assert!((found - expected).norm() < 1e-14, "{found} instead of {expected}");
                }
            }
        }
    }

    #[test]
    fn chains_stay_where_doublons_and_holons_are_likely() {
        let frame =
            TestFrame::new(Threads::None).attr_str("rule", "local").attr_i64("sweep", 2).attr_bool("diagonal", true);
        let frame = frame.arg::<LocalIndex>(&[0, 0, 1, 1], &[2, 2]).arg(&[4_u32, 9], &[2]);
        let frame = frame.arg(&[1_u32; KEY_WORDS], &[KEY_WORDS]).arg(&[2.0], &[]);
        let frame = with_doublon_holon(frame, &[90.0, 0.0, 90.0, 0.0], 1, &[1, 0]);
        let mut frame = frame.result::<LocalIndex>(&[2, 5, 2]).result::<i32>(&[2]);
        assert_eq!(frame.execute(chains::product), Ok(()));
        assert_eq!(frame.read::<i32>(1), [0, 0]);
    }

    #[test]
    fn wrong_shells_are_named() {
        let message = |alpha: &[f64], shells: &[i64]| {
            let frame = with_doublon_holon(arguments().frame(Threads::None), alpha, 1, shells);
            { frame.result::<Complex<f64>>(&[3]) }.execute(local_values::product).expect_err("a wrong call").message
        };
        assert!(message(&[0.0; 4], &[1]).contains("the shells end before 1 neighbours of each of 1 sites"));
        assert!(message(&[0.0; 4], &[-1, 0]).contains("the shells end before"));
        assert!(message(&[0.0; 4], &[1, 1]).contains("shell 0 has a neighbour that isn't one of 1 sites"));
        assert!(message(&[0.0; 4], &[1, -1]).contains("shell 0 has a neighbour that isn't one of 1 sites"));
        assert!(message(&[0.0; 4], &[1, 0, 0]).contains("`alpha` has 4 numbers, but must have 1 for each of 6"));
    }
}
