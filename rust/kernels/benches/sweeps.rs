//! The time of one thread for the steps of a sweep: `cargo bench -p ferroket-kernels [-- NAME]`.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use ferroket_kernels::connected::matrices::{Matrices, MatrixTables};
use ferroket_kernels::connected::terms::{TermTables, Terms, words};
use ferroket_kernels::connected::{Elements, Form, Part, count_nonzero, write_configurations};
use ferroket_kernels::numbers::Sample;
use ferroket_kernels::sites::{LocalStates, Sites, StateRange};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::hint::black_box;
use std::time::Duration;

/// A divisor of this many samples fits the second-level cache, as the blocks of the handlers do.
const SAMPLES: usize = 256;

/// The tables of [`Terms`], as they grow.
struct Builder {
    words: usize,
    flip: Vec<u32>,
    first: Vec<i32>,
    mask: Vec<u32>,
    pattern: Vec<u32>,
    sign: Vec<u32>,
    values: Vec<f64>,
}

impl Builder {
    fn new(sites: usize) -> Self {
        let [flip, mask, pattern, sign] = [const { Vec::new() }; 4];
        Self { words: words(sites), flip, first: vec![0], mask, pattern, sign, values: Vec::new() }
    }

    fn bits(&self, sites: &[usize]) -> Vec<u32> {
        let mut row = vec![0; self.words];
        for site in sites {
            row[site / 32] |= 1 << (site % 32);
        }
        row
    }

    fn term(&mut self, mask: &[usize], pattern: &[usize], sign: &[usize], value: f64) {
        let (mask, pattern, sign) = (self.bits(mask), self.bits(pattern), self.bits(sign));
        self.mask.extend(mask);
        self.pattern.extend(pattern);
        self.sign.extend(sign);
        self.values.push(value);
    }

    /// Ends the group of the terms since the last one.
    fn group(&mut self, flip: &[usize]) {
        self.flip.extend(self.bits(flip));
        self.first.push(self.values.len() as i32);
    }

    fn tables(&self) -> TermTables<'_> {
        let Self { flip, first, mask, pattern, sign, .. } = self;
        TermTables { flip, first, mask, pattern, sign }
    }
}

/// The edges of a square lattice with periodic boundaries.
fn square(length: usize) -> Vec<[usize; 2]> {
    let site = |x: usize, y: usize| (x % length) * length + y % length;
    (0..length)
        .flat_map(|x| (0..length).flat_map(move |y| [[site(x, y), site(x + 1, y)], [site(x, y), site(x, y + 1)]]))
        .collect()
}

fn ising_chain(sites: usize) -> Builder {
    let mut terms = Builder::new(sites);
    (0..sites).for_each(|i| terms.term(&[], &[], &[i, (i + 1) % sites], 1.0));
    terms.group(&[]);
    for i in 0..sites {
        terms.term(&[], &[], &[], -1.0);
        terms.group(&[i]);
    }
    terms
}

fn heisenberg(length: usize) -> Builder {
    let mut terms = Builder::new(length * length);
    let edges = square(length);
    for edge in &edges {
        terms.term(&[], &[], edge, 1.0);
    }
    terms.group(&[]);
    for edge in &edges {
        terms.term(edge, &edge[..1], &[], 2.0);
        terms.term(edge, &edge[1..], &[], 2.0);
        terms.group(edge);
    }
    terms
}

/// Spin up on the first half of the sites, spin down on the second.
fn fermi_hubbard(length: usize) -> Builder {
    let orbitals = length * length;
    let mut terms = Builder::new(2 * orbitals);
    (0..orbitals).for_each(|i| terms.term(&[i, i + orbitals], &[i, i + orbitals], &[], 4.0));
    terms.group(&[]);
    for spin in [0, orbitals] {
        for edge in square(length) {
            let [i, j] = edge.map(|site| site + spin);
            let between: Vec<usize> = (i.min(j) + 1..i.max(j)).collect();
            terms.term(&[i, j], &[i], &between, -1.0);
            terms.term(&[i, j], &[j], &between, -1.0);
            terms.group(&[i, j]);
        }
    }
    terms
}

fn paulis(sites: usize, flips: usize, strings: usize, rng: &mut StdRng) -> Builder {
    let mut terms = Builder::new(sites);
    let subset = |rng: &mut StdRng| (0..sites).filter(|_| rng.random()).collect::<Vec<_>>();
    for group in 0..flips {
        for _ in 0..strings / flips {
            let sign = subset(rng);
            terms.term(&[], &[], &sign, rng.random());
        }
        let flip = if group == 0 { Vec::new() } else { subset(rng) };
        terms.group(&flip);
    }
    terms
}

fn indices(sites: usize, states: u16, rng: &mut impl Rng) -> Vec<u16> {
    (0..SAMPLES * sites).map(|_| rng.random_range(0..states)).collect()
}

fn steps<F: Form>(criterion: &mut Criterion, case: &str, form: &F, sites: &Sites, values: &[f64], indices: &[u16]) {
    let mut group = criterion.benchmark_group(case);
    group.throughput(Throughput::Elements(SAMPLES as u64));
    let room = form.max_elements();
    let mut counts = vec![0; SAMPLES];
    let mut mels = vec![0.0; SAMPLES * room];
    let mut changes = vec![F::ElementChange::default(); SAMPLES * room];
    let mut write_active = || {
        let elements = Elements { counts: &mut counts, mels: &mut mels, changes: &mut changes };
        elements.write_active(form, black_box(values), black_box(indices), Part::All, 0).expect("room for all");
    };
    write_active(); // for those below, whichever are chosen
    group.bench_function("active", |bencher| bencher.iter(&mut write_active));
    let mut nonzero = vec![0; SAMPLES];
    group.bench_function("count", |bencher| {
        bencher.iter(|| count_nonzero(form, black_box(values), black_box(indices), Part::All, &mut nonzero));
    });
    rows::<F, i8>(&mut group, "int8", form, sites, indices, &counts, &changes);
    rows::<F, f64>(&mut group, "float64", form, sites, indices, &counts, &changes);
    group.finish();
}

fn rows<F: Form, S: Sample>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    dtype: &str,
    form: &F,
    sites: &Sites,
    indices: &[u16],
    counts: &[u32],
    changes: &[F::ElementChange],
) {
    let states = LocalStates::<S>::new(sites).expect("local states of this dtype");
    let (n, room) = (sites.len(), form.max_elements());
    let mut sample = states.first();
    let mut samples = Vec::new();
    for indices in indices.chunks_exact(n) {
        states.write(indices, &mut sample);
        samples.extend_from_slice(&sample.values);
    }
    let mut read = indices.to_vec();
    group.bench_function(format!("read {dtype}"), |bencher| {
        bencher.iter(|| {
            for (sample, (values, indices)) in samples.chunks_exact(n).zip(read.chunks_exact_mut(n)).enumerate() {
                states.read(sample, black_box(values), indices).expect("local states");
            }
        });
    });
    group.bench_function(format!("write {dtype}"), |bencher| {
        bencher.iter(|| {
            for indices in indices.chunks_exact(n) {
                states.write(black_box(indices), &mut sample);
            }
        });
    });
    // The rows of each sample over those of the one before: the time of the work, not of the memory.
    let mut rows = states.first().values.repeat(room);
    group.bench_function(format!("rows {dtype}"), |bencher| {
        bencher.iter(|| {
            for (number, indices) in indices.chunks_exact(n).enumerate() {
                let changes = &changes[number * room..][..counts[number] as usize];
                states.write(indices, &mut sample);
                write_configurations(form, &states, &sample, changes, black_box(&mut rows));
            }
        });
    });
}

fn terms(criterion: &mut Criterion) {
    let mut rng = StdRng::seed_from_u64(1);
    for (name, sites, tables) in [
        ("ising 128", 128, ising_chain(128)),
        ("heisenberg 10x10", 100, heisenberg(10)),
        ("fermi-hubbard 8x8", 128, fermi_hubbard(8)),
        ("4000 paulis on 200 flips", 40, paulis(40, 200, 4000, &mut rng)),
        ("1000 paulis", 40, paulis(40, 1000, 1000, &mut rng)),
    ] {
        let spins = Sites::new(sites, vec![StateRange { start: 1.0, step: -2.0, size: 2 }], &[]).expect("spins");
        let form = Terms::new(&spins, tables.tables(), tables.values.len(), true).expect("valid tables");
        let indices = indices(sites, 2, &mut rng);
        steps(criterion, name, &form, &spins, &tables.values, &indices);
    }
}

/// Bosons with up to 3 a site on a square lattice.
fn bose_hubbard(criterion: &mut Criterion) {
    let (length, states) = (6, 4_usize);
    let bosons = vec![StateRange { start: 0.0, step: 1.0, size: states }];
    let sites = Sites::new(length * length, bosons, &[]).expect("bosons");
    let (mut first_site, mut of_terms, mut table) = (vec![0], Vec::new(), Vec::new());
    let mut term = |sites: &[usize], matrix: i32| {
        of_terms.extend(sites.iter().map(|&site| site as i32));
        first_site.push(of_terms.len() as i32);
        table.push(matrix);
    };
    (0..sites.len()).for_each(|site| term(&[site], 0));
    for edge in &square(length) {
        term(edge, 1);
    }
    let (mut first_entry, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    for n in 0..states {
        columns.push(n as i32);
        values.push((n * n) as f64);
        first_entry.push(columns.len() as i32);
    }
    for (n, m) in (0..states).flat_map(|n| (0..states).map(move |m| (n, m))) {
        if n > 0 && m + 1 < states {
            columns.push(((n - 1) * states + m + 1) as i32);
            values.push(-((n * (m + 1)) as f64).sqrt());
        }
        if m > 0 && n + 1 < states {
            columns.push(((n + 1) * states + m - 1) as i32);
            values.push(-((m * (n + 1)) as f64).sqrt());
        }
        first_entry.push(columns.len() as i32);
    }
    let tables = MatrixTables {
        first_site: &first_site,
        sites: &of_terms,
        table: &table,
        first_row: &[0, states as i32, (states + states * states) as i32],
        first_entry: &first_entry,
        columns: &columns,
    };
    let form = Matrices::new(&sites, tables, values.len(), true).expect("valid tables");
    let indices = indices(sites.len(), states as u16, &mut StdRng::seed_from_u64(2));
    steps(criterion, "bose-hubbard 6x6", &form, &sites, &values, &indices);
}

/// Three-site terms on a chain of spins 1, each a dense random matrix.
fn local_operator(criterion: &mut Criterion) {
    let (n, dim) = (60, 27_i32);
    let spins = vec![StateRange { start: 2.0, step: -2.0, size: 3 }];
    let sites = Sites::new(n as usize, spins, &[]).expect("spins 1");
    let of_terms: Vec<i32> = (0..n).flat_map(|i| [i, (i + 1) % n, (i + 2) % n]).collect();
    let order = |row: i32| std::iter::once(row).chain((0..dim).filter(move |&column| column != row));
    let tables = MatrixTables {
        first_site: &(0..=n).map(|term| 3 * term).collect::<Vec<_>>(),
        sites: &of_terms,
        table: &vec![0; n as usize],
        first_row: &[0, dim],
        first_entry: &(0..=dim).map(|row| dim * row).collect::<Vec<_>>(),
        columns: &(0..dim).flat_map(order).collect::<Vec<_>>(),
    };
    let mut rng = StdRng::seed_from_u64(3);
    let values: Vec<f64> = (0..dim * dim).map(|_| rng.random()).collect();
    let form = Matrices::new(&sites, tables, values.len(), true).expect("valid tables");
    let indices = indices(sites.len(), 3, &mut rng);
    steps(criterion, "local operator 60", &form, &sites, &values, &indices);
}

criterion_group! {
    name = sweeps;
    // Half a minute for all of them.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .without_plots();
    targets = terms, bose_hubbard, local_operator
}
criterion_main!(sweeps);
