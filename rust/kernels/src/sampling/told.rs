//! Chains that are told by a network: its layers, or a program.
//!
//! Layers in single precision decide most moves: they take half as long, and say by how much they are off at most. Where
//! that leaves a move open, double precision decides. So each move is decided as double precision alone would.

use crate::amplitudes::{LayerRows, Layers};
use crate::network::{Lanes, Program};
use crate::numbers::Real;
use crate::sampling::rules::TransitionRule;
use crate::sampling::{Conversation, Estimate, Proposer, Question};

/// What comes behind a first layer's sums.
#[derive(Debug)]
pub enum Network<T> {
    /// Dense layers.
    Layers(Layers<T>),
    /// Anything, with two results where ψ is complex.
    Program(Program<T>),
}

/// A network that tells chains the logarithm of |ψ|^p.
#[derive(Debug)]
pub struct Teller<T> {
    network: Network<T>,
    rounded: Option<Layers<f32>>,
    power: T,
}

/// A thread's moves take more than so many times what the bounds of single precision take.
const MOVES: usize = 4;

/// Single precision leaves off if it leaves more than one of so many moves open, after so many at least.
const OPEN: usize = 8;
const AT_LEAST: usize = 256;

/// So many samples are evaluated at once.
const TOGETHER: usize = 64;

impl<T: Real> Teller<T> {
    /// Of this network and this power p, for threads that make so many moves each.
    pub fn new(network: Network<T>, power: T, moves: usize) -> Self {
        let rounded = match &network {
            Network::Layers(layers) => {
                let pays = moves.saturating_mul(layers.work()) > MOVES * layers.work_of_bounds();
                (size_of::<T>() > size_of::<f32>() && pays).then(|| layers.rounded())
            }
            Network::Program(_) => None,
        };
        Self { network, rounded, power }
    }

    /// Whether there are no layers, so that something else has to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.network, Network::Layers(layers) if layers.is_empty())
    }

    /// Evaluates the network for all rows.
    fn evaluate(&self, rows: &mut LayerRows<T>, lanes: &mut Lanes<T>) {
        match &self.network {
            Network::Layers(layers) => rows.evaluate(layers),
            Network::Program(program) => {
                let (inputs, parts) = (program.inputs().max(1), program.results());
                rows.log_psi.resize(rows.sums.len() / inputs * parts, T::default());
                lanes.evaluate(program, &rows.sums, &mut rows.log_psi);
                if parts > 1 {
                    // Phases don't matter.
                    let mut place = 0;
                    rows.log_psi.retain(|_| {
                        place += 1;
                        place % parts == 1
                    });
                }
            }
        }
    }

    /// Has chains make all moves.
    pub fn tell<R: TransitionRule>(&self, proposer: &mut Proposer<T, R>, conversations: &mut [Conversation<T>]) {
        let width = proposer.layer().width();
        let (mut exact, mut quick) = (LayerRows::default(), LayerRows::default());
        let mut lanes = Lanes::default();
        let mut rounded = self.rounded.as_ref();
        let (mut asked, mut open) = (0, 0);
        loop {
            exact.clear();
            quick.clear();
            for conversation in asking(conversations) {
                proposer.proceed(conversation);
                let Conversation { chain, sums, asks, .. } = conversation;
                match asks {
                    Question::Proposals if rounded.is_some() => {
                        sums.chunks_exact(width).for_each(|sums| quick.push_rounded(sums));
                    }
                    Question::Proposals => exact.sums.extend_from_slice(sums),
                    Question::Exactly => {
                        exact.sums.extend_from_slice(chain.sums);
                        exact.sums.extend_from_slice(&sums[..width]);
                        open += 1;
                    }
                    Question::Nothing => {}
                }
            }
            asked += quick.errors.len();
            if let Some(rounded) = rounded {
                quick.evaluate(rounded);
            }
            self.evaluate(&mut exact, &mut lanes);
            let of_quick = quick.log_psi.iter().zip(&quick.errors);
            let mut estimates = of_quick.map(|(&log_psi, &error)| self.estimate(log_psi, error));
            let mut numbers = exact.log_psi.iter().map(|&log_psi| self.exact(log_psi));
            let mut is_waiting = false;
            for Conversation { chain, answers, asks, .. } in asking(conversations) {
                is_waiting = true;
                match asks {
                    Question::Proposals if rounded.is_some() => fill(answers, &mut estimates),
                    Question::Exactly => fill([&mut chain.log_prob, &mut answers[0]], &mut numbers),
                    _ => fill(answers, &mut numbers),
                }
            }
            if !is_waiting {
                break;
            }
            if asked >= AT_LEAST && OPEN * open > asked {
                rounded = None;
            }
        }
        if self.rounded.is_some() {
            for conversation in conversations {
                self.log_probs(proposer, &mut exact, &mut lanes, conversation);
            }
        }
    }

    /// Writes the numbers of a chain's last samples, in double precision.
    fn log_probs<R: TransitionRule>(
        &self,
        proposer: &Proposer<T, R>,
        rows: &mut LayerRows<T>,
        lanes: &mut Lanes<T>,
        conversation: &mut Conversation<T>,
    ) {
        let layer = proposer.layer();
        let chain = &mut conversation.chain;
        let sites = chain.indices.len().max(1);
        let others = chain.samples.len().saturating_sub(chain.log_probs.len() * sites);
        for (samples, log_probs) in
            chain.samples[others..].chunks(TOGETHER * sites).zip(chain.log_probs.chunks_mut(TOGETHER))
        {
            rows.sums.resize(log_probs.len() * layer.width(), T::default());
            for (sample, sums) in samples.chunks_exact(sites).zip(rows.sums.chunks_exact_mut(layer.width())) {
                layer.write(sample, sums);
            }
            self.evaluate(rows, lanes);
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
fn asking<'c, 'a, T>(
    conversations: &'c mut [Conversation<'a, T>],
) -> impl Iterator<Item = &'c mut Conversation<'a, T>> {
    conversations.iter_mut().filter(|conversation| conversation.asks != Question::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplitudes::{Activation, FirstLayer};
    use crate::numbers::each_level;
    use crate::sampling::proposals::tests::Kept;
    use crate::sampling::rules::Local;
    use crate::sampling::{KEY_WORDS, Sampling};
    use proptest::prelude::*;

    const SITES: usize = 6;
    const WIDTH: usize = 5;
    const HIDDEN: usize = 20;
    const CHAINS: u64 = 3;

    fn numbers(seed: f64, scale: f64, len: usize) -> Vec<f64> {
        (0..len).map(|i| scale * ((seed + 1.3) * (i + 1) as f64).sin()).collect()
    }

    /// Samples, the logarithms of their probabilities, and how many moves were accepted, of all chains.
    type Found = Vec<(Vec<u16>, Vec<f64>, u32)>;

    struct Numbers {
        constant: Vec<f64>,
        table: Vec<f64>,
        hidden: Vec<f64>,
        last: Vec<f64>,
    }

    impl Numbers {
        /// With larger weights single precision leaves more moves open.
        fn new(seed: f64, scale: f64) -> Self {
            Self {
                constant: numbers(seed, 1.0, WIDTH),
                table: numbers(seed + 1.0, 1.0, SITES * 2 * WIDTH),
                hidden: numbers(seed + 2.0, scale, WIDTH * HIDDEN),
                last: numbers(seed + 3.0, 0.5 / scale, HIDDEN),
            }
        }

        fn layers(&self) -> Layers<f64> {
            let stages: [(_, &[f64], &[f64]); 2] =
                [(Activation::Gelu, &self.hidden, &[0.1; HIDDEN]), (Activation::Tanh, &self.last, &[0.3])];
            Layers::new(WIDTH, stages).expect("layers")
        }

        fn layer(&self) -> FirstLayer<'_, f64> {
            FirstLayer::new(SITES, 3, &self.constant, &self.table).expect("a table")
        }

        fn run(&self, teller: &Teller<f64>, sampling: &Sampling, length: usize, together: usize) -> Found {
            let start = [0, 2, 1, 0, 1, 2];
            let mut rows = LayerRows::default();
            rows.sums.resize(WIDTH, 0.0);
            self.layer().write(&start, &mut rows.sums);
            teller.evaluate(&mut rows, &mut Lanes::default());
            let log_prob = teller.power * rows.log_psi[0];
            let mut kept: Vec<_> = (0..CHAINS).map(|_| Kept::at(&start, log_prob, 0, WIDTH, length)).collect();
            let mut room: Vec<_> =
                (0..CHAINS).map(|_| (vec![9; SITES * together], vec![9.0; WIDTH * together])).collect();
            let numbered = kept.iter_mut().zip(&mut room).zip(0..);
            let mut conversations: Vec<_> = numbered
                .map(|((kept, (proposals, sums)), number)| kept.conversation(number, proposals, sums))
                .collect();
            teller.tell(&mut Proposer::new(sampling, Local::new(&[3; SITES]), self.layer()), &mut conversations);
            drop(conversations);
            kept.into_iter().map(|kept| (kept.samples, kept.log_probs, kept.progress[2])).collect()
        }
    }

    proptest! {
        /// Also where single precision leaves off, and with errors that leave most moves open.
        #[test]
        fn single_precision_changes_nothing(
            seed in 0.0..9.0, scale in 0.1..3.0, power in 0.5..3.0, key: u32, sweep in 1_usize..7,
            length in 1_usize..40, together in 1_usize..3, log_open in -8.0_f64..1.0,
        ) {
            let network = Numbers::new(seed, scale);
            let sampling = Sampling { key: [key; KEY_WORDS], sweep };
            let alone = Teller { network: Network::Layers(network.layers()), rounded: None, power };
            let expected = network.run(&alone, &sampling, length, together);
            // Numbers that are off, as errors allow it.
            let mut off = network.layers().rounded();
            off.be_off_by(10.0_f64.powf(log_open));
            for rounded in [network.layers().rounded(), off] {
                let teller = Teller { network: Network::Layers(network.layers()), rounded: Some(rounded), power };
                for _ in each_level() {
                    let found = network.run(&teller, &sampling, length, together);
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
        let layers = || Numbers::new(0.0, 1.0).layers();
        let moves = |moves| Teller::new(Network::Layers(layers()), 2.0, moves).rounded.is_some();
        let least = MOVES * layers().work_of_bounds() / layers().work();
        assert!(!moves(1) && !moves(least) && moves(least + 1) && moves(usize::MAX));
        let single = Layers::new(1, [(Activation::Tanh, &[1.0_f32][..], &[0.0_f32][..])]).expect("a layer");
        assert!(Teller::new(Network::Layers(single), 2.0, usize::MAX).rounded.is_none());
    }
}
