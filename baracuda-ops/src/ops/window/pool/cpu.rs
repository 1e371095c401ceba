//! The reference: the formulas in f64 with compensated sums, any strides, one rounding to the output. A thread takes a row.

use super::geometry::{Axis, MAX_AXES, Span, strides};
use super::{Fields, Pooling, Valid, Windows, backward, forward};
use crate::backend::cpu::{Operands, Sum, Tensor, threads};
use crate::kernel::Accepted;
use crate::narrow::signed;

/// The reference of forward.
pub(super) fn forward(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(compute_forward))
}

/// The reference of backward.
pub(super) fn backward(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(compute_backward))
}

/// A tensor with where its elements lie.
#[derive(Clone, Copy)]
pub(super) struct Placed<'t> {
    pub(super) tensor: Tensor<'t>,
    pub(super) strides: [u64; 2 + MAX_AXES],
}

impl<'t> Placed<'t> {
    pub(super) fn new(tensor: Tensor<'t>) -> Self {
        Self { tensor, strides: strides(tensor.desc()) }
    }

    /// Of a sample, a channel and spatial positions.
    pub(super) fn at(&self, [n, c]: [u64; 2], spatial: [u64; MAX_AXES]) -> u64 {
        let [of_n, of_c, d, h, w] = self.strides;
        n * of_n + c * of_c + spatial[0] * d + spatial[1] * h + spatial[2] * w
    }
}

/// The sample and channel, and the first two spatial positions, of a row.
pub(super) fn row(windows: &Windows, extents: [u64; MAX_AXES], number: u64) -> ([u64; 2], [u64; 2]) {
    let (plane, at) = (number / (extents[0] * extents[1]), number % (extents[0] * extents[1]));
    ([plane / windows.channels, plane % windows.channels], [at / extents[1], at % extents[1]])
}

/// What an average divides by.
pub(super) fn divisor(fields: &Fields, spans: [&Span; MAX_AXES]) -> f64 {
    let product = |of: fn(&Span) -> u64| spans.into_iter().map(of).product::<u64>();
    let places = match fields.divisor {
        Some(divisor) => divisor,
        None if fields.exclude_padding => product(Span::elements),
        None => product(|span| span.padded),
    };
    // A window without elements has none to divide either.
    places.max(1) as f64
}

/// The places of a window that lie in x, with the elements there, in row-major order.
fn places<'s>(spans: [&'s Span; MAX_AXES]) -> impl Iterator<Item = ([u64; MAX_AXES], [u64; MAX_AXES])> + 's {
    let [d, h, w] = spans;
    let of = move |place: [u64; MAX_AXES]| (place, [0, 1, 2].map(|axis: usize| spans[axis].element(place[axis])));
    d.inside
        .clone()
        .flat_map(move |d| h.inside.clone().flat_map(move |h| w.inside.clone().map(move |w| [d, h, w])))
        .map(of)
}

fn compute_forward(valid: &Valid, operands: &Operands<'_>) {
    let (fields, windows) = (&valid.fields, &valid.derived);
    let (Some(x), Some(y)) = (operands.get(forward::X), operands.get(forward::Y)) else { return };
    let [offsets, indices] = [forward::OFFSETS, forward::INDICES].map(|operand| operands.get(operand).map(Placed::new));
    let (x, y) = (Placed::new(x), Placed::new(y));
    let axes = &windows.axes;
    let outputs = axes.map(|axis| axis.output);
    let rows = windows.samples * windows.channels * outputs[0] * outputs[1];
    threads::for_each(rows, y.tensor.desc().elements().saturating_mul(windows.places()), |number| {
        let (plane, [od, oh]) = row(windows, outputs, number);
        let [d, h] = [axes[0].window(od), axes[1].window(oh)];
        for ow in 0..outputs[2] {
            let w = axes[2].window(ow);
            let spans = [&d, &h, &w];
            let values = || places(spans).map(|(place, at)| (place, at, x.tensor.load(x.at(plane, at))));
            let result = match fields.pooling {
                Pooling::Max => {
                    let later = |best: Option<([u64; MAX_AXES], [u64; MAX_AXES], f64)>, next: (_, _, f64)| match best {
                        Some((.., value)) if value.is_nan() || !(next.2 > value || next.2.is_nan()) => best,
                        _ => Some(next),
                    };
                    let best = values().fold(None, later);
                    let offset = best.map_or(0, |(place, ..)| (place[0] * h.places + place[1]) * w.places + place[2]);
                    let in_plane =
                        |at: [u64; MAX_AXES]| signed((at[0] * axes[1].input + at[1]) * axes[2].input + at[2]);
                    let index = best.map_or(-1, |(_, at, _)| in_plane(at));
                    for (output, number) in [(offsets, signed(offset)), (indices, index)] {
                        if let Some(output) = output {
                            // SAFETY: each row is of one task, and outputs address every element once.
                            unsafe { output.tensor.store_integer(output.at(plane, [od, oh, ow]), number) };
                        }
                    }
                    best.map_or(f64::NEG_INFINITY, |(.., value)| value)
                }
                Pooling::Average => values().map(|(.., x)| x).collect::<Sum>().total() / divisor(fields, spans),
                Pooling::Norm1 => values().map(|(.., x)| x.abs()).collect::<Sum>().total(),
                Pooling::Norm2 => values().map(|(.., x)| x * x).collect::<Sum>().total().sqrt(),
            };
            // SAFETY: as above.
            unsafe { y.tensor.store(y.at(plane, [od, oh, ow]), result) };
        }
    });
}

/// The windows along an axis that see an element, with its place in each.
fn seen(axis: &Axis, element: u64) -> impl Iterator<Item = (u64, Span, u64)> + Clone + use<> {
    let axis = *axis;
    axis.seen_by(element).filter_map(move |output| {
        let span = axis.window(output);
        let place = span.place(element)?;
        Some((output, span, place))
    })
}

fn compute_backward(valid: &Valid, operands: &Operands<'_>) {
    let (fields, windows) = (&valid.fields, &valid.derived);
    let Some(dx) = operands.get(backward::DX).map(Placed::new) else { return };
    // A window has elements, and so have outputs.
    let Some(dy) = operands.get(backward::DY).map(Placed::new) else { return };
    let [offsets, x, y] = [backward::OFFSETS, backward::X, backward::Y].map(|row| operands.get(row).map(Placed::new));
    let axes = &windows.axes;
    let inputs = axes.map(|axis| axis.input);
    let rows = windows.samples * windows.channels * inputs[0] * inputs[1];
    threads::for_each(rows, dx.tensor.desc().elements(), |number| {
        let (plane, [id, ih]) = row(windows, inputs, number);
        for iw in 0..inputs[2] {
            let mut sum = Sum::default();
            for (od, d, place_d) in seen(&axes[0], id) {
                for (oh, h, place_h) in seen(&axes[1], ih) {
                    for (ow, w, place_w) in seen(&axes[2], iw) {
                        let at = [od, oh, ow];
                        let dy = dy.tensor.load(dy.at(plane, at));
                        sum.add(match fields.pooling {
                            Pooling::Max => {
                                let own = (place_d * h.places + place_h) * w.places + place_w;
                                let chosen = offsets.map(|offsets| offsets.tensor.load_integer(offsets.at(plane, at)));
                                if chosen == Some(signed(own)) { dy } else { 0.0 }
                            }
                            Pooling::Average => dy / divisor(fields, [&d, &h, &w]),
                            Pooling::Norm1 => dy,
                            Pooling::Norm2 => quotient(dy, y.map_or(0.0, |y| y.tensor.load(y.at(plane, at)))),
                        });
                    }
                }
            }
            let at = dx.at(plane, [id, ih, iw]);
            let own = || x.map_or(0.0, |x| x.tensor.load(x.at(plane, [id, ih, iw])));
            let result = match fields.pooling {
                Pooling::Max | Pooling::Average => sum.total(),
                Pooling::Norm1 => sign(own()) * sum.total(),
                Pooling::Norm2 => own() * sum.total(),
            };
            // SAFETY: each row is of one task, and outputs address every element once.
            unsafe { dx.tensor.store(at, result) };
        }
    });
}

/// `dy / y`, of a norm of 0 nothing.
pub(super) fn quotient(dy: f64, y: f64) -> f64 {
    if y == 0.0 { 0.0 } else { dy / y }
}

/// -1, 0 or 1; NaN stays.
pub(super) fn sign(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x * 0.0
    }
}
