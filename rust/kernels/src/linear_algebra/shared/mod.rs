//! Positive definite systems that several devices share, by a left-looking Cholesky factorisation, panel by panel.
//!
//! Each of R devices has some rows of L, cut into K blocks of b. *Panel* k are the k-th blocks of all devices, `w = R b` rows, and
//! rows and columns are in the order of panels. For each a device needs two messages: what all devices have of the panel's
//! rows of L, by which it [updates](update) its own rows, and then what is left of the panel's diagonal part, which each
//! [factors](factor). Going back, [one message](solve_back) a panel is enough. So devices send about half as many numbers each as
//! the matrix has, and keep `1/R` of it.
//!
//! A device has its rows as lanes, `(rows / height, P side, height)` with complex numbers in `P = 2` planes. What it sends are lanes
//! whose height doesn't depend on its vector instructions, which may be others than those of other devices. All rows `(side, Q)` of some vectors are on each device.

mod start;
#[cfg(test)]
mod tests;

pub use start::{put_solution, put_solution_of_gram, start_gram, start_rows};

use super::cholesky::{System, Triangular, subtract};
use super::panels::{Format, OnBlocks, lanes_mut, near, on_blocks, parts_of, product, zeros};
use super::substitution::{Adjoint, Applied, Backward, Forward};
use super::{Deal, each};
use crate::numbers::{Real, vectorized, with_subnormals};
use aligned_vec::AVec;
use pulp::Simd;
use std::ops::Range;

/// Bytes of whole panels of lanes on all processors.
const UNIT: usize = 192;

/// Rows of whole blocks on all processors: those of a panel are a multiple of it.
pub const BLOCK: usize = 8;

/// So many panels of lanes are updated together, so that the numbers they are multiplied with are read once for all of them.
const PANELS_PER_BLOCK: usize = 8;

/// So many columns are one piece of work on the way back.
const COLUMNS: usize = 512;

/// How a system is shared.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// How many devices there are: R.
    pub devices: usize,
    /// Which one this is.
    pub device: usize,
    /// How many panels there are: K.
    pub steps: usize,
    /// The rows of a device in a panel: b. Those of a panel are a multiple of eight.
    pub length: usize,
    /// Whether the numbers are complex.
    pub is_complex: bool,
}

impl Share {
    /// The rows of a panel.
    fn width(&self) -> usize {
        self.devices * self.length
    }

    /// All rows.
    #[must_use]
    pub fn side(&self) -> usize {
        self.steps * self.width()
    }

    /// P.
    fn planes(&self) -> usize {
        1 + usize::from(self.is_complex)
    }

    /// The planes of all columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.planes() * self.side()
    }

    /// Those of the panels before one.
    #[must_use]
    pub fn columns_before(&self, step: usize) -> usize {
        self.planes() * step * self.width()
    }

    /// The planes of a number of all vectors: Q.
    #[must_use]
    pub fn vectors(&self) -> usize {
        if self.is_complex { 4 } else { 3 }
    }

    /// The numbers of a device's rows.
    #[must_use]
    pub fn of_rows<T>(&self) -> usize {
        (self.steps * self.length).next_multiple_of(unit::<T>()) * self.planes() * self.side()
    }

    /// The numbers of the diagonal part of a panel.
    #[must_use]
    pub fn of_diagonal<T>(&self) -> usize {
        self.width().next_multiple_of(unit::<T>()) * self.planes() * self.width()
    }

    /// The numbers that a device sends of a panel: its rows of the diagonal part, and of the vectors.
    #[must_use]
    pub fn of_panel(&self) -> usize {
        (self.planes() * self.width() + self.vectors()) * self.length
    }

    /// The height of lanes that are sent.
    fn sent(&self) -> usize {
        if self.length.is_multiple_of(BLOCK) { BLOCK } else { self.length }
    }

    /// The place of a row of a device among all.
    fn place(&self, device: usize, row: usize) -> usize {
        row / self.length * self.width() + device * self.length + row % self.length
    }

    /// Panels of lanes with the rows of a device in a panel.
    fn panels_of(&self, step: usize, height: usize) -> Range<usize> {
        step * self.length / height..((step + 1) * self.length).div_ceil(height)
    }
}

/// Rows of whole panels of lanes on all processors.
fn unit<T>() -> usize {
    UNIT / size_of::<T>()
}

/// The rows of a device in panel `step`, the planes of their first columns alone, as lanes that are sent.
///
/// # Panics
///
/// If the arrays aren't of their shapes.
pub fn rows_of_panel<T: Real>(share: Share, step: usize, panels: &[T], out: &mut [T]) {
    let planes = out.len() / share.length;
    copy_rows(share, step, panels, 0..planes, out, planes);
}

/// Some planes of them, as the first of so many.
fn copy_rows<T: Real>(share: Share, step: usize, panels: &[T], from: Range<usize>, out: &mut [T], planes: usize) {
    let (height, width, sent) = (Format::of::<T>().height, share.columns(), share.sent());
    for (block, out) in out.chunks_exact_mut(planes * sent).enumerate() {
        let start = step * share.length + block * sent;
        for (out, plane) in out.chunks_exact_mut(sent).zip(from.clone()) {
            for panel in start / height..(start + sent).div_ceil(height) {
                let rows = start.max(panel * height)..(start + sent).min((panel + 1) * height);
                let from = (panel * width + plane) * height + rows.start % height;
                out[rows.start - start..rows.end - start].copy_from_slice(&panels[from..][..rows.len()]);
            }
        }
    }
}

/// Subtracts from the rows of a device what the columns of all panels before this one contribute to this one's.
///
/// * `panels`: the rows;
/// * `vectors`: L⁻¹ b, of which those of the panels before are known;
/// * `gathered`: the [`rows_of_panel`] of all devices, at least those columns;
/// * `own`: to be written, [`Share::of_panel`]: the device's rows of the diagonal part, and of vectors.
///
/// # Panics
///
/// If the arrays aren't of their shapes, or fewer columns were gathered.
#[allow(clippy::too_many_arguments)]
pub fn update<T: Real, D: Deal>(
    share: Share,
    step: usize,
    panels: &mut [T],
    vectors: &[T],
    gathered: &[T],
    own: &mut [T],
    deal: &D,
) -> Result<(), D::Error> {
    if share.is_complex {
        update_by::<T, D, 2, 4>(share, step, panels, vectors, gathered, own, deal)
    } else {
        update_by::<T, D, 1, 3>(share, step, panels, vectors, gathered, own, deal)
    }
}

fn update_by<T: Real, D: Deal, const P: usize, const Q: usize>(
    share: Share,
    step: usize,
    panels: &mut [T],
    vectors: &[T],
    gathered: &[T],
    own: &mut [T],
    deal: &D,
) -> Result<(), D::Error> {
    assert_eq!([panels.len(), vectors.len(), own.len()], [share.of_rows::<T>(), Q * share.side(), share.of_panel()]);
    let Format { height, outputs } = Format::of::<T>();
    let (of_panel, done) = (share.width(), step * share.width());
    let (width, depth) = (P * share.side(), P * done);
    let mut parts: AVec<T> = zeros(share.panels_of(step, height).len() * Q * height);
    if step > 0 {
        let columns = gathered.len() / of_panel;
        assert!(columns >= depth);
        let mut sent = System::<P>::with_tiles::<T>(of_panel, of_panel);
        let of_all_devices = rows_of_all_devices::<T>(share, gathered, columns, depth);
        let (gathered, columns) =
            of_all_devices.as_deref().map_or((gathered, columns), |of_all_devices| (of_all_devices, depth));
        sent.format.height = if of_all_devices.is_some() { of_panel } else { share.sent() };
        let blocks = of_panel / sent.columns_of_block();
        let mut singles = zeros(blocks * depth * outputs);
        let mut rest = &mut singles[..];
        let pieces = parts_of::<T>(depth, height).flat_map(|part| (0..blocks).map(move |block| (part.clone(), block)));
        let pieces: Vec<_> = pieces
            .map(|(part, block)| {
                let singles = rest.split_off_mut(..part.len() * outputs).expect("as many");
                (part, block, singles)
            })
            .collect();
        each(deal, pieces, |(part, block, singles): (Range<usize>, usize, &mut [T])| {
            let rows = sent.rows_of_block(block, of_panel);
            vectorized(
                #[inline(always)]
                || sent.singles_of_block(gathered, columns, rows, part, singles),
            );
        })?;
        let first = share.panels_of(step, height).start * width * height;
        each(deal, panels[first..].chunks_mut(PANELS_PER_BLOCK * width * height), |panels| {
            let subtract = SubtractRows { panels, width, depth, singles: &singles, outputs: P * of_panel };
            with_subnormals(|| on_blocks(subtract));
        })?;
        let numbers = turned::<T, P, Q>(&vectors[..Q * done]);
        for (part, panel) in parts.chunks_exact_mut(Q * height).zip(share.panels_of(step, height)) {
            let lanes = &panels[panel * width * height..][..depth * height];
            with_subnormals(|| on_blocks(Applied { lanes, singles: &numbers, part }));
        }
    }
    let (sent, planes) = (share.sent(), P * of_panel + Q);
    copy_rows(share, step, panels, depth..depth + P * of_panel, own, planes);
    let first = share.panels_of(step, height).start * height;
    for (row, place) in (done + share.device * share.length..).take(share.length).enumerate() {
        let part = step * share.length - first + row;
        for plane in 0..Q {
            let number = parts[(part / height * Q + plane) * height + part % height];
            own[(row / sent * planes + P * of_panel + plane) * sent + row % sent] = vectors[Q * place + plane] + number;
        }
    }
    Ok(())
}

/// The rows of a panel as lanes of its width, `(depth, w)`, where those of one device aren't whole blocks.
fn rows_of_all_devices<T: Real>(share: Share, gathered: &[T], columns: usize, depth: usize) -> Option<Vec<T>> {
    if share.length.is_multiple_of(BLOCK) {
        return None;
    }
    let mut of_all_devices = Vec::with_capacity(depth * share.width());
    for plane in 0..depth {
        for device in 0..share.devices {
            of_all_devices.extend_from_slice(&gathered[(device * columns + plane) * share.length..][..share.length]);
        }
    }
    Some(of_all_devices)
}

/// Numbers of rows `(rows, Q)` as they are multiplied with the planes of columns of L.
fn turned<T: Real, const P: usize, const Q: usize>(numbers: &[T]) -> Vec<[T; Q]> {
    let mut found = Vec::with_capacity(P * numbers.len() / Q);
    for &numbers in numbers.as_chunks::<Q>().0 {
        found.push(numbers);
        if P == 2 {
            let mut turned = numbers;
            for pair in turned.chunks_exact_mut(2) {
                (pair[0], pair[1]) = (-pair[1], pair[0]);
            }
            found.push(turned);
        }
    }
    found
}

/// Subtracts from some columns of rows the product of those before them with the adjoint of singles.
struct SubtractRows<'a, T> {
    /// Whole panels of lanes.
    panels: &'a mut [T],
    /// The planes of their columns.
    width: usize,
    /// Those before.
    depth: usize,
    singles: &'a [T],
    /// Those to be subtracted from.
    outputs: usize,
}

impl<T: Real> OnBlocks<T> for SubtractRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const V: usize, const M: usize>(self, simd: S) {
        let Self { panels, width, depth, singles, outputs } = self;
        let (panels, singles) = (lanes_mut::<T, S, V>(panels), singles.as_chunks::<M>().0);
        let mut rest = singles;
        for part in near::<T, S, V>(depth) {
            let (singles, others) = rest.split_at(outputs / M * part.len());
            rest = others;
            for panel in panels.chunks_exact_mut(width) {
                let (left, outs) = panel.split_at_mut(depth);
                let blocks = outs[..outputs].as_chunks_mut::<M>().0.iter_mut();
                for (out, right) in blocks.zip(singles.chunks_exact(part.len())) {
                    let sums = product::<T, S, V, M>(simd, &left[part.clone()], right);
                    subtract::<T, S, V, M>(simd, out, &sums);
                }
            }
        }
    }
}

/// Puts L in the place of a panel's columns of the rows of a device.
///
/// * `panels`: the rows, [updated](update);
/// * `vectors`: of which those of this panel become those of L⁻¹ b, or all no numbers where the matrix isn't positive definite;
/// * `diagonals`: `(steps, `[`Share::of_diagonal`]`)`, of which this panel's becomes L;
/// * `gathered`: what all devices have [`update`]d.
///
/// # Panics
///
/// If the arrays aren't of their shapes.
#[allow(clippy::too_many_arguments)]
pub fn factor<T: Real, D: Deal>(
    share: Share,
    step: usize,
    panels: &mut [T],
    vectors: &mut [T],
    diagonals: &mut [T],
    gathered: &[T],
    deal: &D,
) -> Result<(), D::Error> {
    if share.is_complex {
        factor_by::<T, D, 2, 4>(share, step, panels, vectors, diagonals, gathered, deal)
    } else {
        factor_by::<T, D, 1, 3>(share, step, panels, vectors, diagonals, gathered, deal)
    }
}

fn factor_by<T: Real, D: Deal, const P: usize, const Q: usize>(
    share: Share,
    step: usize,
    panels: &mut [T],
    vectors: &mut [T],
    diagonals: &mut [T],
    gathered: &[T],
    deal: &D,
) -> Result<(), D::Error> {
    let of_diagonal = share.of_diagonal::<T>();
    assert_eq!([panels.len(), vectors.len()], [share.of_rows::<T>(), Q * share.side()]);
    assert_eq!([diagonals.len(), gathered.len()], [share.steps * of_diagonal, share.devices * share.of_panel()]);
    let (of_panel, done) = (share.width(), step * share.width());
    let columns = P * of_panel;
    let system = System::<P>::with_tiles::<T>(of_panel, of_panel);
    let height = system.format.height;
    let diagonal = &mut diagonals[step * of_diagonal..][..system.rows_of_panels(0) * columns];
    diagonal.fill(T::default());
    let mut part = zeros(Q * system.rows_of_panels(0));
    let sent = share.sent();
    for (block, rows) in gathered.chunks_exact((columns + Q) * sent).enumerate() {
        for (plane, numbers) in rows.chunks_exact(sent).enumerate() {
            for (row, &number) in (block * sent..).zip(numbers) {
                if plane < columns {
                    diagonal[system.place(row, columns) + plane * height] = number;
                } else {
                    part[system.place(row, Q) + (plane - columns) * height] = number;
                }
            }
        }
    }
    let (mut inverse, mut singles) = (vec![T::default(); of_panel], zeros(0));
    if !system.factor_diagonal(0, diagonal, &mut inverse, &mut singles) {
        vectors.fill(T::nearest(f64::NAN));
        return Ok(());
    }
    let mut numbers = vec![[T::default(); Q]; columns];
    let (lanes, inverse, singles) = (&*diagonal, &inverse[..], &singles[..]);
    let forward = Forward::<T, P, Q> { lanes, inverse, width: columns, part: &mut part, singles: &mut numbers };
    with_subnormals(|| on_blocks(forward));
    write_vectors::<T, P, Q>(system, &part, &mut vectors[Q * done..][..Q * of_panel]);
    let width = P * share.side() * height;
    let first = share.panels_of(step, height).start * width;
    each(deal, panels[first..].chunks_mut(PANELS_PER_BLOCK * width), |panels| {
        for panel in panels.chunks_exact_mut(width) {
            let lanes = &mut panel[P * done * height..][..columns * height];
            with_subnormals(|| on_blocks(Triangular::<T, P> { lanes, singles, inverse, depth: columns }));
        }
    })
}

/// Of vectors as lanes.
fn write_vectors<T: Real, const P: usize, const Q: usize>(system: System<P>, part: &[T], vectors: &mut [T]) {
    for (row, numbers) in vectors.chunks_exact_mut(Q).enumerate() {
        for (plane, number) in numbers.iter_mut().enumerate() {
            *number = part[system.place(row, Q) + plane * system.format.height];
        }
    }
}

/// Goes a panel back: L⁻† L⁻¹ b of its rows, and what the device's ones among them contribute to the rows before.
///
/// * `vectors`: those behind this panel are done, and those of this one will be;
/// * `sums`: `(side, Q)`, what the device's rows of the panels behind contribute to each row;
/// * `panels`, `diagonals`: L;
/// * `of_panel`: `(w, Q)`, the sums of all devices for the rows of this panel.
///
/// # Panics
///
/// If the arrays aren't of their shapes.
#[allow(clippy::too_many_arguments)]
pub fn solve_back<T: Real, D: Deal>(
    share: Share,
    step: usize,
    vectors: &mut [T],
    sums: &mut [T],
    panels: &[T],
    diagonals: &[T],
    of_panel: &[T],
    deal: &D,
) -> Result<(), D::Error> {
    if share.is_complex {
        solve_back_by::<T, D, 2, 4>(share, step, vectors, sums, panels, diagonals, of_panel, deal)
    } else {
        solve_back_by::<T, D, 1, 3>(share, step, vectors, sums, panels, diagonals, of_panel, deal)
    }
}

#[allow(clippy::too_many_arguments)]
fn solve_back_by<T: Real, D: Deal, const P: usize, const Q: usize>(
    share: Share,
    step: usize,
    vectors: &mut [T],
    sums: &mut [T],
    panels: &[T],
    diagonals: &[T],
    of_panel: &[T],
    deal: &D,
) -> Result<(), D::Error> {
    let (length, width_of_panel, done) = (share.length, share.width(), step * share.width());
    assert_eq!([panels.len(), vectors.len()], [share.of_rows::<T>(), Q * share.side()]);
    assert_eq!([sums.len(), of_panel.len()], [vectors.len(), Q * width_of_panel]);
    assert_eq!(diagonals.len(), share.steps * share.of_diagonal::<T>());
    let system = System::<P>::with_tiles::<T>(width_of_panel, width_of_panel);
    let (height, width) = (system.format.height, P * width_of_panel);
    let lanes = &diagonals[step * share.of_diagonal::<T>()..][..system.rows_of_panels(0) * width];
    let one_over = |row: usize| T::ONE / lanes[system.place(row, width) + P * row * height];
    let inverse: Vec<_> = (0..width_of_panel).map(one_over).collect();
    let vectors = &mut vectors[Q * done..][..Q * width_of_panel];
    let mut part = zeros(Q * system.rows_of_panels(0));
    for (row, (numbers, sums)) in vectors.chunks_exact(Q).zip(of_panel.chunks_exact(Q)).enumerate() {
        for (plane, (&number, &sum)) in numbers.iter().zip(sums).enumerate() {
            part[system.place(row, Q) + plane * height] = number - sum;
        }
    }
    with_subnormals(|| on_blocks(Backward::<T, P, Q> { lanes, inverse: &inverse, width, part: &mut part }));
    write_vectors::<T, P, Q>(system, &part, vectors);
    if step == 0 {
        return Ok(());
    }
    let (own, of_side) = (share.panels_of(step, height), P * share.side());
    let mut part = zeros(own.len() * Q * height);
    for (row, numbers) in vectors[Q * share.device * length..].chunks_exact(Q).take(length).enumerate() {
        let row = step * length - own.start * height + row;
        for (plane, &number) in numbers.iter().enumerate() {
            part[system.place(row, Q) + plane * height] = number;
        }
    }
    let lanes = &panels[own.start * of_side * height..own.end * of_side * height];
    each(deal, sums[..Q * done].chunks_mut(Q * COLUMNS).enumerate(), |(piece, sums)| {
        let columns = piece * COLUMNS..piece * COLUMNS + sums.len() / Q;
        let adjoint = Adjoint::<T, P, Q> { lanes, width: of_side, part: &part, columns };
        let found = with_subnormals(|| on_blocks(adjoint));
        for (sum, &more) in sums.iter_mut().zip(found.as_flattened()) {
            *sum = *sum + more;
        }
    })
}
