//! Systems of several devices, one after the other and each on other vector instructions, beside their matrices.

use super::super::Term;
use super::super::terms::{Shape, Sides};
use super::super::tests::Order;
use super::*;
use crate::numbers::{SimdLevel, each_level};
use num_complex::Complex;
use proptest::prelude::*;
use std::convert::Infallible;

fn numbers(seed: usize, count: usize) -> Vec<f64> {
    (0..count).map(|i| ((seed + 1) as f64 * 0.7 + i as f64 * 1.3).sin()).collect()
}

fn complex(numbers: &[f64], planes: usize) -> Vec<Complex<f64>> {
    numbers.chunks_exact(planes).map(|part| Complex::new(part[0], part.get(1).copied().unwrap_or(0.0))).collect()
}

fn parts(numbers: &[Complex<f64>], planes: usize) -> Vec<f64> {
    numbers.iter().flat_map(|number| [number.re, number.im].into_iter().take(planes)).collect()
}

/// What a device has.
struct Device {
    share: Share,
    panels: AVec<f64>,
    vectors: Vec<f64>,
    sums: Vec<f64>,
    diagonals: AVec<f64>,
}

impl Device {
    fn new(share: Share) -> Self {
        let vectors = vec![0.0; share.vectors() * share.side()];
        let [panels, diagonals] = [share.of_rows::<f64>(), share.steps * share.of_diagonal::<f64>()].map(zeros);
        Self { share, panels, sums: vectors.clone(), vectors, diagonals }
    }

    /// Calls something on the vector instructions of this device.
    fn on<R>(&mut self, work: impl FnOnce(&mut Self) -> Result<R, Infallible>) -> R {
        let mut levels = each_level();
        levels.nth(self.share.device % SimdLevel::all().len());
        let Ok(result) = work(self);
        result
    }
}

/// Solves what devices have started, as they do.
fn solve(devices: &mut [Device], order: &Order) {
    let Share { steps, length, .. } = devices[0].share;
    let (planes, width, vectors) = (devices[0].share.planes(), devices[0].share.width(), devices[0].share.vectors());
    for step in 0..steps {
        // Devices may send more columns than are known.
        let columns = planes * (step * width + 1);
        let mut gathered = Vec::new();
        for device in &mut *devices {
            let mut sent = vec![0.0; columns * length];
            device.on(|device| {
                rows_of_panel(device.share, step, &device.panels, &mut sent);
                Ok(())
            });
            gathered.extend(sent);
        }
        let mut left = Vec::new();
        for device in &mut *devices {
            let mut own = vec![f64::NAN; device.share.of_panel()];
            device.on(|Device { share, panels, vectors, .. }| {
                update(*share, step, panels, vectors, &gathered, &mut own, order)
            });
            left.extend(own);
        }
        for device in &mut *devices {
            device.on(|Device { share, panels, vectors, diagonals, .. }| {
                factor(*share, step, panels, vectors, diagonals, &left, order)
            });
        }
    }
    for step in (0..steps).rev() {
        let of_panel = vectors * step * width..vectors * (step + 1) * width;
        let mut total = vec![0.0; of_panel.len()];
        for device in &*devices {
            total.iter_mut().zip(&device.sums[of_panel.clone()]).for_each(|(total, sum)| *total += sum);
        }
        for device in &mut *devices {
            device.on(|Device { share, panels, vectors, diagonals, sums }| {
                solve_back(*share, step, vectors, sums, panels, diagonals, &total, order)
            });
        }
    }
}

/// A Hermitian matrix with this diagonal, and numbers of modulus 2 and less elsewhere.
fn matrix(side: usize, seed: usize, diagonal: f64, is_complex: bool) -> Vec<Complex<f64>> {
    let number = |i: usize, j: usize| {
        let phase = 0.7 * (seed + 1) as f64 * (i * side + j) as f64;
        Complex::new(phase.sin(), if is_complex { (1.7 * phase).cos() } else { 0.0 })
    };
    let element = |i: usize, j: usize| match i.cmp(&j) {
        std::cmp::Ordering::Less => number(i, j),
        std::cmp::Ordering::Equal => diagonal.into(),
        std::cmp::Ordering::Greater => number(j, i).conj(),
    };
    (0..side * side).map(|place| element(place / side, place % side)).collect()
}

/// The devices for so many rows, `of_device` each, and blocks of so many.
fn shares(devices: usize, of_device: usize, length: usize, is_complex: bool) -> Vec<Share> {
    let length = length * if devices.is_multiple_of(4) { 2 } else { BLOCK / (1 + (devices + 1) % 2) };
    let steps = of_device.div_ceil(length);
    (0..devices).map(|device| Share { devices, device, steps, length, is_complex }).collect()
}

/// The solution of rows that are written, of which some are padding.
fn solution_of_rows(
    shares: &[Share],
    rows: &[Complex<f64>],
    right: &[Complex<f64>],
    count: usize,
    order: &Order,
) -> Vec<Complex<f64>> {
    let planes = shares[0].planes();
    let of_device = right.len() / shares.len();
    let mut devices: Vec<_> = shares.iter().map(|&share| Device::new(share)).collect();
    let right = parts(right, planes);
    for (device, rows) in devices.iter_mut().zip(rows.chunks_exact(of_device * right.len() / planes)) {
        let rows = parts(rows, planes);
        device.on(|Device { share, panels, vectors, .. }| {
            start_rows(*share, count, [&rows, &right], panels, vectors, order)
        });
    }
    solve(&mut devices, order);
    let of_device = |device: &Device| {
        let mut out = vec![f64::NAN; of_device * planes];
        put_solution(device.share, &device.vectors, &mut out);
        complex(&out, planes)
    };
    devices.iter().flat_map(of_device).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn what_solves_rows(
        devices in 1_usize..5, of_device in 1_usize..70, length in 1_usize..4, padding in 0_usize..3, is_complex: bool, seed in 0_usize..99,
    ) {
        let side = devices * of_device;
        let count = side - padding.min(of_device - 1);
        let mut matrix = matrix(side, seed, 4.0 * side as f64, is_complex);
        let mut right = complex(&numbers(seed, side * 2), 2);
        for number in right.iter_mut().filter(|_| !is_complex) {
            number.im = 0.0;
        }
        right[count..].fill(0.0.into());
        let shares = shares(devices, of_device, length, is_complex);
        let found = solution_of_rows(&shares, &matrix, &right, count, &Order::Backward);
        prop_assert_eq!(&found, &solution_of_rows(&shares, &matrix, &right, count, &Order::Forward));
        for row in 0..count {
            let product: Complex<f64> = matrix[row * side..][..count].iter().zip(&found).map(|(a, x)| a * x).sum();
            prop_assert!((product - right[row]).norm() < 1e-12, "{row} {product} {}", right[row]);
        }
        // What isn't positive definite, or has no number, leaves none.
        matrix[(count - 1) * (side + 1)] = (-1.0).into();
        let found = solution_of_rows(&shares, &matrix, &right, count, &Order::Forward);
        prop_assert!(found[..count].iter().all(|number| number.re.is_nan()));
    }

    /// Beside one device, which is tested beside its matrix.
    #[test]
    fn what_solves_a_gram_matrix(
        devices in 1_usize..5, of_device in 1_usize..120, length in 1_usize..5, kind in 0_usize..3,
        sizes in [1_usize..5, 1_usize..5, 0_usize..1100], seed in 0_usize..99,
    ) {
        let (components, is_complex) = [(1, false), (1, true), (2, false)][kind];
        let planes = 1 + usize::from(is_complex);
        let samples = devices * of_device;
        let x = numbers(seed, samples * sizes[0]);
        let delta = numbers(seed + 1, samples * components * sizes[1] * planes);
        let rows = numbers(seed + 2, samples * components * sizes[2] * planes);
        let mean = numbers(seed + 3, components * sizes[2] * planes);
        let right = numbers(seed + 4, samples * components * planes);
        let shift = 2.0;
        let terms_of = |device: usize, devices: usize| {
            let sides = |numbers: &[f64], is_complex| {
                let len = numbers.len() / devices;
                // They live as long as the test does.
                let numbers: &'static [f64] = numbers.to_vec().leak();
                Sides { rows: &numbers[device * len..][..len], columns: numbers, is_complex }
            };
            let (x, delta) = (sides(&x, false), sides(&delta, is_complex));
            [
                Term::Factors { x, delta, parts: 1, positions: 1, is_nested: false },
                Term::Rows { numbers: sides(&rows, is_complex), mean: mean.clone().leak() },
            ]
        };
        let mut expected = right.clone();
        let of_one = super::super::Rows { samples, components, is_complex };
        let Ok(is_positive) = super::super::solve_gram(&terms_of(0, 1), of_one, shift, &mut expected, &Order::Forward);
        prop_assert!(is_positive);
        let all_rows = components * of_device.next_multiple_of(unit::<f64>());
        let mut all: Vec<_> = shares(devices, all_rows, length, is_complex).into_iter().map(Device::new).collect();
        let shape = |device| {
            Shape { rows: of_device, columns: samples, components, device, side: 48, is_complex, is_transposed: true }
        };
        for device in &mut all {
            device.on(|Device { share, panels, vectors, .. }| {
                let Share { device, devices, .. } = *share;
                let order = &Order::Backward;
                start_gram(*share, &terms_of(device, devices), shape(device), shift, &right, panels, vectors, order)
            });
        }
        solve(&mut all, &Order::Forward);
        let mut found = Vec::new();
        for device in &all {
            let mut out = vec![f64::NAN; right.len() / devices];
            put_solution_of_gram(device.share, shape(device.share.device), &device.vectors, &mut out);
            found.extend(out);
        }
        let scale = expected.iter().fold(0.0, |most: f64, number| most.max(number.abs()));
        for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
            prop_assert!((found - expected).abs() < 1e-9 * scale.max(1.0), "{place} {found} {expected}");
        }
    }
}
