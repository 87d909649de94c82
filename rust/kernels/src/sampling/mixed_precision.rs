//! Chains whose moves a network decides.
//!
//! Dense layers in single precision decide most moves: they take half as long, and say by how much they are off at most. Where
//! that leaves a move open, double precision decides. So each move is decided as double precision alone would.

use crate::Error;
use crate::network::{Lanes, Program, Rounded, of_rounding};
use crate::numbers::Real;
use crate::sampling::rules::TransitionRule;
use crate::sampling::{Estimate, EvaluationRequest, Pending, Proposer};

/// A network that gives chains the logarithm of |ψ|^p.
#[derive(Debug)]
pub struct MixedPrecision<T> {
    /// From a first layer's sums to ln ψ, in two results if that is complex.
    program: Program<T>,
    rounded: Option<Rounded>,
    power: T,
}

/// A thread's moves take more than so many times what the bounds of single precision take.
const MOVES: usize = 4;

/// Single precision leaves off if it leaves more than one of so many moves open, after so many at least.
const OPEN: usize = 8;
const AT_LEAST: usize = 256;

/// So many samples are evaluated at once.
const SAMPLES_PER_BLOCK: usize = 64;

/// Sums of a first layer, as many as there are rows, and what the network makes of them.
#[derive(Debug)]
struct Rows<T> {
    sums: Vec<T>,
    log_psi: Vec<T>,
    lanes: Lanes<T>,
}

impl<T: Real> Default for Rows<T> {
    fn default() -> Self {
        Self { sums: Vec::new(), log_psi: Vec::new(), lanes: Lanes::default() }
    }
}

impl<T: Real> Rows<T> {
    /// Evaluates a program for all rows: phases don't matter.
    fn evaluate(&mut self, program: &Program<T>) {
        let (inputs, parts) = (program.inputs().max(1), program.results());
        self.log_psi.resize(self.sums.len() / inputs * parts, T::default());
        self.lanes.evaluate(program, &self.sums, &mut self.log_psi);
        if parts > 1 {
            let mut place = 0;
            self.log_psi.retain(|_| {
                place += 1;
                place % parts == 1
            });
        }
    }
}

impl<T: Real> MixedPrecision<T> {
    /// Of the program with these words and tables and this power p, for threads that make so many moves each.
    pub fn new(words: &[i32], tables: &[T], power: T, moves: usize) -> Result<Self, Error> {
        let program = Program::new(words, tables)?;
        let pays = |of_bounds: usize| moves.saturating_mul(program.work()) > MOVES * of_bounds;
        let rounded = (size_of::<T>() > size_of::<f32>() && Rounded::work(&program).is_some_and(pays))
            .then(|| Rounded::new(&program, words, tables));
        Ok(Self { rounded: rounded.flatten(), program, power })
    }

    /// How many sums it takes.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.program.inputs()
    }

    /// Has chains make all moves.
    pub fn run_chains<R: TransitionRule>(&self, proposer: &mut Proposer<T, R>, requests: &mut [EvaluationRequest<T>]) {
        let width = proposer.layer().width();
        let (mut exact, mut quick, mut errors) = (Rows::default(), Rows::<f32>::default(), Vec::new());
        // Fewer fill no vector in single precision.
        let proposals: usize = requests.iter().map(|request| request.estimates.len()).sum();
        let mut rounded = self.rounded.as_ref().filter(|_| proposals > Lanes::<T>::of_vector());
        let was_rounded = rounded.is_some();
        let (mut asked, mut open) = (0, 0);
        loop {
            exact.sums.clear();
            quick.sums.clear();
            errors.clear();
            for request in waiting(requests) {
                proposer.proceed(request);
                let EvaluationRequest { chain, sums, pending, .. } = request;
                match pending {
                    Pending::Proposals if rounded.is_some() => {
                        quick.sums.extend(sums.iter().map(|&sum| f32::nearest(sum.into())));
                        errors.extend(sums.chunks_exact(width).map(of_rounding));
                    }
                    Pending::Proposals => exact.sums.extend_from_slice(sums),
                    Pending::Exactly => {
                        exact.sums.extend_from_slice(chain.sums);
                        exact.sums.extend_from_slice(&sums[..width]);
                        open += 1;
                    }
                    Pending::Nothing => {}
                }
            }
            asked += errors.len();
            if let Some(rounded) = rounded {
                quick.log_psi.resize(errors.len(), 0.0);
                rounded.evaluate(&mut quick.lanes, &quick.sums, &mut quick.log_psi, &mut errors);
            }
            exact.evaluate(&self.program);
            let of_quick = quick.log_psi.iter().zip(&errors);
            let mut from_rounded = of_quick.map(|(&log_psi, &error)| self.estimate(log_psi, error));
            let mut numbers = exact.log_psi.iter().map(|&log_psi| self.exact(log_psi));
            let mut is_waiting = false;
            for EvaluationRequest { chain, estimates, pending, .. } in waiting(requests) {
                is_waiting = true;
                match pending {
                    Pending::Proposals if rounded.is_some() => fill(estimates, &mut from_rounded),
                    Pending::Exactly => fill([&mut chain.log_prob, &mut estimates[0]], &mut numbers),
                    _ => fill(estimates, &mut numbers),
                }
            }
            if !is_waiting {
                break;
            }
            if asked >= AT_LEAST && OPEN * open > asked {
                rounded = None;
            }
        }
        if was_rounded {
            for request in requests {
                self.log_probs(proposer, &mut exact, request);
            }
        }
    }

    /// Writes the numbers of a chain's last samples, in double precision.
    fn log_probs<R: TransitionRule>(
        &self,
        proposer: &Proposer<T, R>,
        rows: &mut Rows<T>,
        request: &mut EvaluationRequest<T>,
    ) {
        let layer = proposer.layer();
        let chain = &mut request.chain;
        let sites = chain.indices.len().max(1);
        let others = chain.samples.len().saturating_sub(chain.log_probs.len() * sites);
        for (samples, log_probs) in
            chain.samples[others..].chunks(SAMPLES_PER_BLOCK * sites).zip(chain.log_probs.chunks_mut(SAMPLES_PER_BLOCK))
        {
            rows.sums.resize(log_probs.len() * layer.width(), T::default());
            for (sample, sums) in samples.chunks_exact(sites).zip(rows.sums.chunks_exact_mut(layer.width())) {
                layer.write(sample, sums);
            }
            rows.evaluate(&self.program);
            for (log_prob, &log_psi) in log_probs.iter_mut().zip(&rows.log_psi) {
                *log_prob = self.power * log_psi;
            }
        }
        if let Some(&last) = chain.log_probs.last() {
            chain.log_prob = Estimate::exact(last.into());
        }
    }

    fn exact(&self, log_psi: T) -> Estimate {
        Estimate::exact((self.power * log_psi).into())
    }

    fn estimate(&self, log_psi: f32, error: f64) -> Estimate {
        let power: f64 = self.power.into();
        Estimate { value: power * f64::from(log_psi), error: power.abs() * error }
    }
}

fn fill<'e>(places: impl IntoIterator<Item = &'e mut Estimate>, numbers: &mut impl Iterator<Item = Estimate>) {
    for (place, number) in places.into_iter().zip(numbers) {
        *place = number;
    }
}

/// The chains that haven't made all moves.
fn waiting<'c, 'a, T>(
    requests: &'c mut [EvaluationRequest<'a, T>],
) -> impl Iterator<Item = &'c mut EvaluationRequest<'a, T>> {
    requests.iter_mut().filter(|request| request.pending != Pending::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::FirstLayer;
    use crate::network::testing::dense_layers;
    use crate::numbers::each_level;
    use crate::sampling::proposals::tests::Kept;
    use crate::sampling::rules::Local;
    use crate::sampling::{KEY_WORDS, Sampling};
    use proptest::prelude::*;

    const SITES: usize = 6;
    const WIDTH: usize = 5;
    const HIDDEN: usize = 20;
    /// More than a vector has numbers.
    const CHAINS: u64 = 9;

    fn numbers(seed: f64, scale: f64, len: usize) -> Vec<f64> {
        (0..len).map(|i| scale * ((seed + 1.3) * (i + 1) as f64).sin()).collect()
    }

    /// Samples, the logarithms of their probabilities, and how many moves were accepted, of all chains.
    type Found = Vec<(Vec<u16>, Vec<f64>, u32)>;

    struct Numbers {
        constant: Vec<f64>,
        table: Vec<f64>,
        words: Vec<i32>,
        tables: Vec<f64>,
    }

    impl Numbers {
        /// With larger weights single precision leaves more moves open.
        fn new(seed: f64, scale: f64) -> Self {
            let (words, mut tables) = dense_layers("gelu", &[WIDTH, HIDDEN, 1]);
            let (hidden, last) = tables.split_at_mut((WIDTH + 1) * HIDDEN);
            for (weights, factor) in [(hidden, 2.0 * scale), (last, 2.0 / scale)] {
                for weight in weights {
                    *weight *= factor;
                }
            }
            Self {
                constant: numbers(seed, 1.0, WIDTH),
                table: numbers(seed + 1.0, 1.0, SITES * 2 * WIDTH),
                words,
                tables,
            }
        }

        fn mixed_precision(&self, power: f64, moves: usize) -> MixedPrecision<f64> {
            MixedPrecision::new(&self.words, &self.tables, power, moves).expect("a program")
        }

        fn layer(&self) -> FirstLayer<'_, f64> {
            FirstLayer::new(SITES, 3, &self.constant, &self.table).expect("a table")
        }

        fn run(
            &self,
            mixed_precision: &MixedPrecision<f64>,
            sampling: &Sampling,
            length: usize,
            n_speculative: usize,
        ) -> Found {
            let start = [0, 2, 1, 0, 1, 2];
            let mut rows = Rows::default();
            rows.sums.resize(WIDTH, 0.0);
            self.layer().write(&start, &mut rows.sums);
            rows.evaluate(&mixed_precision.program);
            let log_prob = mixed_precision.power * rows.log_psi[0];
            let mut kept: Vec<_> = (0..CHAINS).map(|_| Kept::at(&start, log_prob, 0, WIDTH, length)).collect();
            let mut room: Vec<_> =
                (0..CHAINS).map(|_| (vec![9; SITES * n_speculative], vec![9.0; WIDTH * n_speculative])).collect();
            let numbered = kept.iter_mut().zip(&mut room).zip(0..);
            let mut requests: Vec<_> =
                numbered.map(|((kept, (proposals, sums)), number)| kept.request(number, proposals, sums)).collect();
            mixed_precision
                .run_chains(&mut Proposer::new(sampling, Local::new(&[3; SITES]), self.layer()), &mut requests);
            drop(requests);
            kept.into_iter().map(|kept| (kept.samples, kept.log_probs, kept.progress[2])).collect()
        }
    }

    proptest! {
        /// Also where single precision leaves off, and with errors that leave most moves open.
        #[test]
        fn single_precision_changes_nothing(
            seed in 0.0..9.0, scale in 0.1..3.0, power in 0.5..3.0, key: u32, sweep in 1_usize..7,
            length in 1_usize..40, n_speculative in 1_usize..3, log_open in -8.0_f64..1.0,
        ) {
            let network = Numbers::new(seed, scale);
            let sampling = Sampling { key: [key; KEY_WORDS], sweep };
            let expected = network.run(&network.mixed_precision(power, 0), &sampling, length, n_speculative);
            // Numbers that are off, as errors allow it.
            for off in [0.0, 10.0_f64.powf(log_open)] {
                let mut mixed_precision = network.mixed_precision(power, usize::MAX);
                let mut tables = network.tables.clone();
                *tables.last_mut().expect("a bias") += off;
                let mut rounded = Rounded::new(&mixed_precision.program, &network.words, &tables).expect("dense layers");
                rounded.add_error(1.01 * off);
                mixed_precision.rounded = Some(rounded);
                for _ in each_level() {
                    let found = network.run(&mixed_precision, &sampling, length, n_speculative);
                    for ((samples, log_probs, accepted), expected) in found.into_iter().zip(&expected) {
                        prop_assert_eq!((&samples, accepted), (&expected.0, expected.2));
                        for (log_prob, expected) in log_probs.iter().zip(&expected.1) {
                            prop_assert!((log_prob - expected).abs() < 1e-12);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn single_precision_has_to_pay() {
        let network = Numbers::new(0.0, 1.0);
        let program = network.mixed_precision(2.0, 0).program;
        let least = MOVES * Rounded::work(&program).expect("dense layers") / program.work();
        let is_rounded = |moves| network.mixed_precision(2.0, moves).rounded.is_some();
        assert!(!is_rounded(1) && !is_rounded(least) && is_rounded(least + 1) && is_rounded(usize::MAX));
        let tables: Vec<_> = network.tables.iter().map(|&x| x as f32).collect();
        assert!(MixedPrecision::new(&network.words, &tables, 2.0, usize::MAX).expect("a program").rounded.is_none());
    }
}
