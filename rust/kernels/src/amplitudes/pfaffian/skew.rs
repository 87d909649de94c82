//! Skew-symmetric matrices: Pfaffians and inverses, by pivots on pairs of rows.

use super::LANES;
use crate::amplitudes::fermions::{Orbital, SignedLog};
use crate::numbers::with_subnormals;
use pulp::{NullaryFnOnce, Scalar, Simd};

/// Makes a skew-symmetric matrix of n rows, as long as a multiple of [`LANES`], its inverse, and gives its Pfaffian. If that is 0, or no
/// number, the matrix is left without meaning; but `instead` may give a number that takes the place of a pivot that is 0.
///
/// It is Gauss's and Jordan's elimination: A tableau is pivoted on a row p that is left and on the other one q with the largest
/// number `a_pq`, as B. N. Parlett and J. K. Reid do it, BIT 10, 386 (1970), until all have been. `used` and `rows` are memory.
pub(super) fn invert<E: Orbital, S: Simd>(
    simd: S,
    matrix: &mut [E],
    n: usize,
    used: &mut Vec<bool>,
    rows: &mut Vec<E>,
    instead: impl FnMut() -> Option<E>,
) -> SignedLog<E> {
    with_subnormals(|| simd.vectorize(Invert { matrix, n, used, rows, instead }))
}

/// What [`invert`] does, for one level of vector instructions.
struct Invert<'a, E, Z> {
    matrix: &'a mut [E],
    n: usize,
    used: &'a mut Vec<bool>,
    rows: &'a mut Vec<E>,
    instead: Z,
}

impl<E: Orbital, Z: FnMut() -> Option<E>> NullaryFnOnce for Invert<'_, E, Z> {
    type Output = SignedLog<E>;

    #[inline(always)]
    fn call(self) -> SignedLog<E> {
        invert_at_all(self.matrix, self.n, self.used, self.rows, self.instead)
    }
}

#[inline(always)]
fn invert_at_all<E: Orbital>(
    matrix: &mut [E],
    n: usize,
    used: &mut Vec<bool>,
    rows: &mut Vec<E>,
    mut instead: impl FnMut() -> Option<E>,
) -> SignedLog<E> {
    let mut pfaffian = SignedLog::ONE;
    if n == 0 {
        return pfaffian;
    }
    let stride = matrix.len() / n;
    used.clear();
    used.resize(n, false);
    rows.clear();
    rows.resize(2 * stride, E::default());
    for p in 0..n {
        if used[p] {
            continue;
        }
        let (mut q, mut largest, mut between, mut is_odd) = (n, 0.0, 0, false);
        for other in (p + 1..n).filter(|&other| !used[other]) {
            let modulus = matrix[p * stride + other].modulus();
            if q == n || modulus > largest {
                (q, largest, is_odd) = (other, modulus, between % 2 == 1);
            }
            if modulus.is_nan() {
                return SignedLog { log: f64::NAN, phase: E::ONE };
            }
            between += 1;
        }
        let a = if largest > 0.0 {
            matrix[p * stride + q]
        } else {
            let Some(instead) = instead() else { return SignedLog::ZERO };
            instead
        };
        (used[p], used[q]) = (true, true);
        pfaffian = pfaffian.times(SignedLog::of(if is_odd { -a } else { a }));
        pivot(matrix, stride, p, q, E::ONE / a, rows);
    }
    for row in 0..n {
        let (above, below) = matrix.split_at_mut((row + 1) * stride);
        let above = &mut above[row * stride..];
        above[row] = E::default();
        for (below, &number) in below.chunks_exact_mut(stride).zip(&above[row + 1..n]) {
            below[row] = -number;
        }
    }
    pfaffian
}

/// Pivots on rows p and q > p, with 1/a of the number `a_pq`. What is above the diagonal is kept up.
#[inline(always)]
fn pivot<E: Orbital>(matrix: &mut [E], stride: usize, p: usize, q: usize, inverse: E, rows: &mut [E]) {
    let (of_p, of_q) = rows.split_at_mut(stride);
    for (row, which) in [(&mut *of_p, p), (&mut *of_q, q)] {
        row.copy_from_slice(&matrix[which * stride..][..stride]);
        for (number, above) in row[..which].iter_mut().zip(matrix.chunks_exact(stride)) {
            *number = -above[which];
        }
        (row[p], row[q]) = (E::default(), E::default());
    }
    for (j, row) in matrix.chunks_exact_mut(stride).enumerate() {
        let (of_j_p, of_j_q) = (-(of_p[j] * inverse), -(of_q[j] * inverse));
        let first = (j + 1) / LANES * LANES;
        add_pair(&mut row[first..], of_j_p, &of_q[first..], -of_j_q, &of_p[first..]);
        // Where the column is below the diagonal, it is the row that counts.
        (row[p], row[q]) = (of_j_q, -of_j_p);
    }
    for (number, &q) in matrix[p * stride..][..stride].iter_mut().zip(&*of_q) {
        *number = q * inverse;
    }
    for (number, &p) in matrix[q * stride..][..stride].iter_mut().zip(&*of_p) {
        *number = -(p * inverse);
    }
    matrix[p * stride + q] = -inverse;
}

/// Adds `a x + b y` to a row, as long as a multiple of [`LANES`].
#[inline(always)]
pub(super) fn add_pair<E: Orbital>(row: &mut [E], a: E, x: &[E], b: E, y: &[E]) {
    let (row, x, y) = (row.as_chunks_mut::<LANES>().0, x.as_chunks::<LANES>().0, y.as_chunks::<LANES>().0);
    for ((row, &x), &y) in row.iter_mut().zip(x).zip(y) {
        // Arrays of its own, which nothing else may change, are vectors to the compiler.
        let mut sums = *row;
        for lane in 0..LANES {
            sums[lane] += a * x[lane] + b * y[lane];
        }
        *row = sums;
    }
}

/// The Pfaffian of a matrix given by what is above its diagonal.
pub(super) fn pfaffian<E: Orbital>(n: usize, number: impl Fn(usize, usize) -> E) -> SignedLog<E> {
    let stride = n.next_multiple_of(LANES);
    let mut matrix = vec![E::default(); n * stride];
    for a in 0..n {
        for b in a + 1..n {
            (matrix[a * stride + b], matrix[b * stride + a]) = (number(a, b), -number(a, b));
        }
    }
    invert(Scalar::new(), &mut matrix, n, &mut Vec::new(), &mut Vec::new(), || None)
}

/// `Σ_k row[at_k] x_k`, of which x may be longer.
#[inline(always)]
pub(super) fn dot<E: Orbital>(row: &[E], at: &[u32], x: &[E]) -> E {
    let mut sums = [E::default(); LANES];
    let (places, numbers) = (at.chunks_exact(LANES), x.chunks_exact(LANES));
    for (places, numbers) in places.clone().zip(numbers) {
        for ((sum, &place), &number) in sums.iter_mut().zip(places).zip(numbers) {
            *sum += row[place as usize] * number;
        }
    }
    let rest = places.remainder();
    for ((sum, &place), &number) in sums.iter_mut().zip(rest).zip(&x[at.len() - rest.len()..]) {
        *sum += row[place as usize] * number;
    }
    let first = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    let second = (sums[4] + sums[5]) + (sums[6] + sums[7]);
    first + second
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_complex::Complex;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    /// By expansion along the first row.
    fn by_expansion(matrix: &[Vec<Complex<f64>>]) -> Complex<f64> {
        let n = matrix.len();
        if n == 0 {
            return 1.0.into();
        }
        (1..n)
            .map(|column| {
                let rest: Vec<usize> = (1..n).filter(|&other| other != column).collect();
                let minor: Vec<Vec<_>> = rest.iter().map(|&a| rest.iter().map(|&b| matrix[a][b]).collect()).collect();
                let sign = if column % 2 == 1 { 1.0 } else { -1.0 };
                sign * matrix[0][column] * by_expansion(&minor)
            })
            .sum()
    }

    fn random(rng: &mut StdRng, n: usize) -> Vec<Vec<Complex<f64>>> {
        let mut matrix = vec![vec![Complex::default(); n]; n];
        for (a, b) in (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b))) {
            matrix[a][b] = Complex::new(rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0));
            matrix[b][a] = -matrix[a][b];
        }
        matrix
    }

    #[test]
    fn pfaffians_and_inverses() {
        let rng = &mut StdRng::seed_from_u64(1);
        for n in [0, 2, 4, 6, 8] {
            let matrix = random(rng, n);
            let stride = n.next_multiple_of(LANES).max(1);
            let mut inverse = vec![Complex::default(); n * stride];
            for (row, of) in inverse.chunks_exact_mut(stride).zip(&matrix) {
                row[..n].copy_from_slice(of);
            }
            let found =
                invert(Scalar::new(), &mut inverse, n, &mut Vec::new(), &mut Vec::new(), || None).over(SignedLog::ONE);
            let expected = by_expansion(&matrix);
            assert!((found - expected).norm() < 1e-12 * (1.0 + expected.norm()), "{found} {expected}");
            let of_pair = pfaffian(n, |a, b| matrix[a][b]).over(SignedLog::ONE);
            assert!((of_pair - expected).norm() < 1e-12 * (1.0 + expected.norm()), "{of_pair} {expected}");
            for (a, row) in matrix.iter().enumerate() {
                for b in 0..n {
                    let sum: Complex<f64> = row.iter().enumerate().map(|(c, x)| x * inverse[c * stride + b]).sum();
                    assert!((sum - f64::from(u8::from(a == b))).norm() < 1e-11, "{a} {b}: {sum}");
                }
            }
        }
    }

    #[test]
    fn singular_matrices_and_no_numbers() {
        let matrix = |number: f64| pfaffian(4, |a, b| if a == 0 || b == 3 { 0.0 } else { number });
        assert!(matrix(1.0).is_zero());
        assert!(pfaffian(4, |_, _| f64::NAN).log.is_nan());
        assert!(pfaffian(4, |a, b| f64::from(u8::from(a + b == 3)) * 1e-200).log.is_finite());
    }

    #[test]
    fn products_with_chosen_numbers() {
        let row: Vec<f64> = (0..40).map(f64::from).collect();
        for n in [0, 3, 8, 21] {
            let at: Vec<u32> = (0..n).map(|place| (7 * place) % 40).collect();
            let x: Vec<f64> = (0..n.next_multiple_of(8)).map(|place| f64::from(place) - 2.0).collect();
            let expected: f64 = at.iter().zip(&x).map(|(&place, x)| f64::from(place) * x).sum();
            assert!((dot(&row, &at, &x) - expected).abs() < 1e-12);
        }
    }
}
