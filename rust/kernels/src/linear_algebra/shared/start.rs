//! Systems as devices share them: of rows that are written, or of the terms of a Gram matrix, which isn't.

use super::super::cholesky::conjugate;
use super::super::ntk::{Order, TileOfRows, put_centred};
use super::super::panels::Format;
use super::super::sums::Stage;
use super::super::terms::{Shape, Term, stages};
use super::super::{Deal, each};
use super::{Share, unit};
use crate::numbers::Real;

/// Puts the rows of a device `(n, N)` into panels of lanes, and b `(N,)` into vectors.
///
/// What is behind the first `count` of all rows is padding: a unit matrix, as are rows that a device has besides its n.
///
/// # Panics
///
/// If the arrays aren't of their shapes, or a device has more rows than it has room for.
pub fn start_rows<T: Real, D: Deal>(
    share: Share,
    count: usize,
    [rows, right]: [&[T]; 2],
    panels: &mut [T],
    vectors: &mut [T],
    deal: &D,
) -> Result<(), D::Error> {
    let (planes, of_all) = (share.planes(), right.len() / share.planes());
    let of_device = of_all / share.devices;
    assert_eq!([rows.len(), panels.len()], [of_device * right.len(), share.of_rows::<T>()]);
    assert!(of_device <= share.steps * share.length);
    let (height, width) = (Format::of::<T>().height, planes * share.side());
    each(deal, panels.chunks_exact_mut(width * height).enumerate(), |(panel, lanes): (_, &mut [T])| {
        lanes.fill(T::default());
        for (lane, row) in (panel * height..(panel + 1) * height).enumerate() {
            if row >= of_device || share.device * of_device + row >= count {
                put_one(share, row, lanes, lane);
                continue;
            }
            let numbers = &rows[row * right.len()..][..right.len()];
            // Those behind the row's own panel aren't read, and those of padding are zero.
            let end = of_device.min((row / share.length + 1) * share.length);
            for (device, numbers) in numbers.chunks_exact(planes * of_device).enumerate() {
                let end = end.min(count.saturating_sub(device * of_device));
                for (column, number) in numbers.chunks_exact(planes).take(end).enumerate() {
                    let place = planes * share.place(device, column);
                    for (plane, &number) in number.iter().enumerate() {
                        lanes[(place + plane) * height + lane] = number;
                    }
                }
            }
        }
    })?;
    vectors.fill(T::default());
    for (place, number) in right.chunks_exact(planes).enumerate() {
        let row = share.place(place / of_device, place % of_device);
        vectors[share.vectors() * row..][..planes].copy_from_slice(number);
    }
    Ok(())
}

/// 1 on the diagonal, if there is one.
fn put_one<T: Real>(share: Share, row: usize, lanes: &mut [T], lane: usize) {
    if row < share.steps * share.length {
        let height = Format::of::<T>().height;
        lanes[share.planes() * share.place(share.device, row) * height + lane] = T::ONE;
    }
}

/// The solution for the rows of a device, `(n,)`.
pub fn put_solution<T: Real>(share: Share, vectors: &[T], out: &mut [T]) {
    let planes = share.planes();
    for (row, out) in out.chunks_exact_mut(planes).enumerate() {
        out.copy_from_slice(&vectors[share.vectors() * share.place(share.device, row)..][..planes]);
    }
}

/// The order of a device's rows: that of tiles, see [`Order`].
fn order_of<T>(shape: Shape) -> Order {
    Order { side: shape.side, samples: shape.rows, components: shape.components, unit: unit::<T>() }
}

/// Puts a device's rows of a Gram matrix with a number on its diagonal into panels of lanes, and b `(columns, components)` into
/// vectors, beside those without which its means aren't zero: see [`super::super::ntk`].
///
/// The shape is transposed, and the side of its tiles a multiple of 48.
///
/// # Panics
///
/// If the arrays aren't of their shapes, the shape isn't such a one, or a device has more rows than it has room for.
#[allow(clippy::too_many_arguments)]
pub fn start_gram<T: Real, D: Deal>(
    share: Share,
    terms: &[Term<T>],
    shape: Shape,
    shift: T,
    right: &[T],
    panels: &mut [T],
    vectors: &mut [T],
    deal: &D,
) -> Result<(), D::Error> {
    let (planes, components) = (share.planes(), shape.components);
    assert!(shape.is_transposed && shape.side.is_multiple_of(unit::<T>()) && shape.is_complex == share.is_complex);
    assert!(components == 1 || components == 2 && !shape.is_complex);
    assert_eq!([shape.devices(), shape.device], [share.devices, share.device]);
    assert_eq!([right.len(), panels.len()], [planes * components * shape.columns, share.of_rows::<T>()]);
    let order = order_of::<T>(shape);
    assert!(order.side() <= share.steps * share.length);
    let (height, width) = (Format::of::<T>().height, planes * share.side());
    // Of the samples of each tile of all devices, and both components, their places.
    let columns: Vec<Vec<usize>> = (0..shape.all_tiles())
        .map(|tile| {
            let (device, samples) = (tile / shape.tiles(), shape.samples(tile % shape.tiles()));
            let place = |component| move |sample| share.place(device, order.row(sample, component));
            (0..components).flat_map(|component| samples.clone().map(place(component))).collect()
        })
        .collect();
    each(deal, panels.chunks_mut(width * height), |lanes| lanes.fill(T::default()))?;
    let stages = stages(terms, shape);
    for number in 0..stages.len() {
        let stage = Stage::new(&stages, number, shape, deal)?;
        let mut rest = &mut *panels;
        let rows = (0..shape.tiles()).map(|tile| {
            let count = components * order.rows(tile) * width;
            (tile, rest.split_off_mut(..count).expect("as many"))
        });
        each(deal, rows.collect::<Vec<_>>().into_iter().rev(), |(tile, lanes): (usize, &mut [T])| {
            let last = order.row(shape.samples(tile).end - 1, components - 1);
            for (column, places) in columns.iter().enumerate() {
                let first = order.row(shape.samples(column % shape.tiles()).start, 0);
                // Others have no number that is read.
                if first / share.length <= last / share.length {
                    let panels = order.rows(tile) / height;
                    stage.compute(TileOfRows {
                        tile,
                        column,
                        places,
                        lanes: &mut *lanes,
                        width,
                        panels,
                        is_whole: components > 1,
                    });
                }
            }
        })?;
    }
    let mut is_sample = vec![false; share.steps * share.length];
    for sample in 0..shape.rows {
        for component in 0..components {
            let row = order.row(sample, component);
            is_sample[row] = true;
            let place = planes * share.place(share.device, row);
            let number = &mut panels[(row / height * width + place) * height + row % height];
            *number = *number + shift;
        }
    }
    for (row, _) in is_sample.iter().enumerate().filter(|&(_, is_sample)| !is_sample) {
        put_one(share, row, &mut panels[row / height * width * height..][..width * height], row % height);
    }
    // By columns it is the conjugate of G + λ.
    vectors.fill(T::default());
    for (place, number) in right.chunks_exact(planes).enumerate() {
        let (sample, component) = (place / components, place % components);
        let row = share.place(sample / shape.rows, order.row(sample % shape.rows, component));
        let numbers = &mut vectors[share.vectors() * row..][..share.vectors()];
        match *number {
            [re] => numbers[0] = re,
            [re, im] => numbers[..2].copy_from_slice(&conjugate::<T, 2>([re, im])),
            _ => unreachable!("a number has one part or two"),
        }
        numbers[planes * (1 + component)] = T::ONE;
    }
    Ok(())
}

/// The solution for a device's samples, `(rows, components)`, less what it has along the means.
///
/// # Panics
///
/// If the components aren't one or two, or are two of complex numbers.
pub fn put_solution_of_gram<T: Real>(share: Share, shape: Shape, vectors: &[T], out: &mut [T]) {
    match (shape.components, share.is_complex) {
        (1, false) => put_of_gram::<T, 1, 1, 3>(share, shape, vectors, out),
        (1, true) => put_of_gram::<T, 2, 1, 4>(share, shape, vectors, out),
        (2, false) => put_of_gram::<T, 1, 2, 3>(share, shape, vectors, out),
        other => panic!("rows of a sample and whether they are complex: {other:?}"),
    }
}

fn put_of_gram<T: Real, const P: usize, const C: usize, const Q: usize>(
    share: Share,
    shape: Shape,
    vectors: &[T],
    out: &mut [T],
) {
    let order = order_of::<T>(shape);
    let solutions: Vec<_> = (0..shape.columns * C)
        .map(|place| {
            let (sample, component) = (place / C, place % C);
            let row = share.place(sample / shape.rows, order.row(sample % shape.rows, component));
            (place, component, *vectors[Q * row..].first_chunk::<Q>().expect("as many"))
        })
        .collect();
    let mut all = vec![T::default(); shape.columns * C * P];
    put_centred::<T, P, C, Q>(&solutions, &mut all);
    out.copy_from_slice(&all[shape.device * out.len()..][..out.len()]);
}
