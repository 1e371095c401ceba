//! Pooling of f32, f16 and bf16 on the CPU, line by line: of neighbouring channels where these are neighbours in memory, else of neighbouring windows. Sums are f64,
//! in which those of one window lose nothing that f32 would see.

use std::ops::Range;

use super::cpu::{Placed, quotient, row, sign};
use super::geometry::{Axis, MAX_AXES, Span};
use super::{Fields, Pooling, Valid, Windows, backward as rows_of_backward, forward as rows_of_forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, held, room, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::{signed, single, to_usize};
use crate::ops::conv::is_channels_last;
use crate::ops::pointwise::map::fast::{Converted, Widest, widest};

/// Forward.
pub(super) fn forward(valid: &Valid) -> Accepted<'_> {
    accept(valid, run_forward)
}

/// Backward.
pub(super) fn backward(valid: &Valid) -> Accepted<'_> {
    accept(valid, run_backward)
}

fn accept(valid: &Valid, run: fn(&Pool, &Operands<'_>) -> Outcome) -> Accepted<'_> {
    let dtype = valid.fields.x.dtype();
    Reason::unless(dtype != DType::F64, || "sums of f64 need what rounding loses; the reference has it")?;
    let most = i32::MAX.unsigned_abs().into();
    Reason::unless(valid.derived.places() <= most, || {
        format!("it counts at most {most} places of a window, the longest has {}", valid.derived.places())
    })?;
    Ok(Candidate::on_cpu(move || {
        let is_last = is_channels_last(&valid.fields.x);
        let pool = Pool { fields: valid.fields.clone(), windows: valid.derived, is_last };
        move |operands: &Operands<'_>| run(&pool, operands)
    }))
}

struct Pool {
    fields: Fields,
    windows: Windows,
    /// Lines are of channels.
    is_last: bool,
}

impl Pool {
    /// What is divided by along an axis.
    fn count(&self, span: &Span) -> f64 {
        if self.fields.exclude_padding { span.elements() as f64 } else { span.padded as f64 }
    }

    /// What an average divides by, of what is divided by along each axis.
    fn divisor(&self, counts: [f64; MAX_AXES]) -> f64 {
        self.fields.divisor.map_or_else(|| counts.iter().product::<f64>().max(1.0), |divisor| divisor as f64)
    }

    /// The term of an element in the sum of its window.
    #[inline(always)]
    fn term(pooling: Pooling, value: f32) -> f64 {
        let value = f64::from(value);
        match pooling {
            Pooling::Norm1 => value.abs(),
            Pooling::Norm2 => value * value,
            Pooling::Max | Pooling::Average => value,
        }
    }
}

/// Zeros.
fn zeros<T: Clone + Default>(count: u64) -> Result<Vec<T>, Shortage> {
    let mut values: Vec<T> = room(count)?;
    values.resize(to_usize(count), T::default());
    Ok(values)
}

/// The windows along an axis that have an element at a place, of windows that are not adaptive, and the element of the first.
fn with_place(axis: &Axis, place: u64) -> (Range<usize>, usize) {
    let first_element = signed(place * axis.dilation) - signed(axis.before);
    let stride = signed(axis.stride);
    let until = |bound: i64| (bound - first_element).max(0).unsigned_abs().div_ceil(stride.unsigned_abs());
    let range = until(0).min(axis.output)..until(signed(axis.input)).min(axis.output);
    let element = first_element + signed(range.start) * stride;
    (to_usize(range.start)..to_usize(range.end.max(range.start)), to_usize(element.max(0).unsigned_abs()))
}

/// What is known of the windows of a line.
struct Line {
    best: Vec<f32>,
    /// The places of these.
    at: Vec<i32>,
    sums: Vec<f64>,
}

impl Line {
    fn new(pooling: Pooling, count: u64) -> Result<Self, Shortage> {
        let is_max = pooling == Pooling::Max;
        let [of_max, of_sums] = if is_max { [count, 0] } else { [0, count] };
        Ok(Self { best: zeros(count)?, at: zeros(of_max)?, sums: zeros(of_sums)? })
    }

    /// Takes in an element of some windows, at a place of theirs.
    #[inline(always)]
    fn take(&mut self, pooling: Pooling, lanes: Range<usize>, values: impl Iterator<Item = f32>, place: i32) {
        match pooling {
            Pooling::Max => {
                for ((best, at), value) in self.best[lanes.clone()].iter_mut().zip(&mut self.at[lanes]).zip(values) {
                    let is_greater = (value > *best) | (value.is_nan() & !best.is_nan());
                    *best = if is_greater { value } else { *best };
                    *at = if is_greater { place } else { *at };
                }
            }
            Pooling::Average => {
                self.sums[lanes].iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(value));
            }
            pooling => {
                let terms = values.map(|value| Pool::term(pooling, value));
                self.sums[lanes].iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
            }
        }
    }
}

/// The place of a window in row-major order.
fn place_of(place: [u64; MAX_AXES], [h, w]: [u64; 2]) -> i32 {
    i32::try_from((place[0] * h + place[1]) * w + place[2]).unwrap_or(i32::MAX)
}

/// The operands of forward.
struct Forward<'p> {
    pool: &'p Pool,
    x: Placed<'p>,
    y: Placed<'p>,
    offsets: Option<Placed<'p>>,
    indices: Option<Placed<'p>>,
    /// The windows along the last axis.
    columns: Vec<Span>,
}

/// A row of windows: the sample and, of lines of windows, the channel; the first two spatial positions.
struct ForwardRow<'f> {
    forward: &'f Forward<'f>,
    plane: [u64; 2],
    at: [u64; 2],
}

fn run_forward(pool: &Pool, operands: &Operands<'_>) -> Outcome {
    let (Some(x), Some(y)) = (operands.get(rows_of_forward::X), operands.get(rows_of_forward::Y)) else {
        return Ok(());
    };
    let windows = &pool.windows;
    let outputs = windows.axes.map(|axis| axis.output);
    let columns = held(outputs[2], (0..outputs[2]).map(|output| windows.axes[2].window(output)))?;
    let [offsets, indices] =
        [rows_of_forward::OFFSETS, rows_of_forward::INDICES].map(|row| operands.get(row).map(Placed::new));
    let forward = Forward { pool, x: Placed::new(x), y: Placed::new(y), offsets, indices, columns };
    let planes = if pool.is_last { windows.samples } else { windows.samples * windows.channels };
    let work = y.desc().elements().saturating_mul(windows.places());
    threads::try_for_each(planes * outputs[0] * outputs[1], work, |number| {
        let (plane, at) = place_of_row(pool, outputs, number);
        widest(ForwardRow { forward: &forward, plane, at })
    })
}

/// The plane and the first two spatial positions of a row.
fn place_of_row(pool: &Pool, extents: [u64; MAX_AXES], number: u64) -> ([u64; 2], [u64; 2]) {
    if pool.is_last {
        let (sample, at) = (number / (extents[0] * extents[1]), number % (extents[0] * extents[1]));
        return ([sample, 0], [at / extents[1], at % extents[1]]);
    }
    row(&pool.windows, extents, number)
}

impl Widest for ForwardRow<'_> {
    type Output = Result<(), Shortage>;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> Self::Output {
        let Self { forward, plane, at } = self;
        let windows = &forward.pool.windows;
        let [d, h] = [windows.axes[0].window(at[0]), windows.axes[1].window(at[1])];
        if forward.pool.is_last { forward.channels(plane, at, &d, &h) } else { forward.windows(plane, at, &d, &h) }
    }
}

impl Forward<'_> {
    /// A row of windows of one channel.
    #[inline(always)]
    fn windows(&self, plane: [u64; 2], [od, oh]: [u64; 2], d: &Span, h: &Span) -> Result<(), Shortage> {
        let Self { pool, x, .. } = self;
        let (axis, pooling) = (&pool.windows.axes[2], pool.fields.pooling);
        let mut line = Line::new(pooling, axis.output)?;
        let mut values: Vec<f32> = zeros(axis.input)?;
        line.best.fill(f32::NEG_INFINITY);
        // A window of which every element is -infinity has the first.
        for (at, span) in line.at.iter_mut().zip(&self.columns) {
            *at = place_of([d.inside.start, h.inside.start, span.inside.start], [h.places, span.places]);
        }
        for rd in d.inside.clone() {
            for rh in h.inside.clone() {
                let first = x.at(plane, [d.element(rd), h.element(rh), 0]);
                f32::read(&x.tensor, first, x.strides[4], &mut values);
                if axis.is_adaptive {
                    for (lane, span) in self.columns.iter().enumerate() {
                        let elements = to_usize(span.element(0))..to_usize(span.element(span.places));
                        for (value, rw) in values[elements].iter().zip(0..) {
                            let place = place_of([rd, rh, rw], [h.places, span.places]);
                            line.take(pooling, lane..lane + 1, std::iter::once(*value), place);
                        }
                    }
                    continue;
                }
                for rw in 0..axis.kernel {
                    let (lanes, element) = with_place(axis, rw);
                    if lanes.is_empty() {
                        continue;
                    }
                    let (place, values) = (place_of([rd, rh, rw], [h.places, axis.kernel]), &values[element..]);
                    if axis.stride == 1 {
                        line.take(pooling, lanes, values.iter().copied(), place);
                    } else {
                        line.take(pooling, lanes, values.iter().copied().step_by(to_usize(axis.stride)), place);
                    }
                }
            }
        }
        let counts = [pool.count(d), pool.count(h)];
        let result = |(sum, span): (&f64, &Span)| {
            single(match pooling {
                Pooling::Average => sum / pool.divisor([counts[0], counts[1], pool.count(span)]),
                Pooling::Norm2 => sum.sqrt(),
                Pooling::Norm1 | Pooling::Max => *sum,
            })
        };
        for (best, of_sum) in line.best.iter_mut().zip(line.sums.iter().zip(&self.columns)) {
            *best = result(of_sum);
        }
        f32::write(&self.y.tensor, self.y.at(plane, [od, oh, 0]), self.y.strides[4], &line.best);
        let spans = |lane: usize| [d, h, &self.columns[lane]];
        self.store_places(&mut line.at, plane, [od, oh, 0], 4, spans)
    }

    /// The channels of a row of positions.
    #[inline(always)]
    fn channels(&self, plane: [u64; 2], [od, oh]: [u64; 2], d: &Span, h: &Span) -> Result<(), Shortage> {
        let Self { pool, x, .. } = self;
        let (channels, pooling) = (pool.windows.channels, pool.fields.pooling);
        let mut line = Line::new(pooling, channels)?;
        let mut values: Vec<f32> = zeros(channels)?;
        for (ow, w) in (0..).zip(&self.columns) {
            let shape = [h.places, w.places];
            line.best.fill(f32::NEG_INFINITY);
            line.at.fill(place_of([d.inside.start, h.inside.start, w.inside.start], shape));
            line.sums.fill(0.0);
            for rd in d.inside.clone() {
                for rh in h.inside.clone() {
                    for rw in w.inside.clone() {
                        let first = x.at(plane, [d.element(rd), h.element(rh), w.element(rw)]);
                        f32::read(&x.tensor, first, x.strides[1], &mut values);
                        let lanes = 0..values.len();
                        line.take(pooling, lanes, values.iter().copied(), place_of([rd, rh, rw], shape));
                    }
                }
            }
            let divisor = pool.divisor([d, h, w].map(|span| pool.count(span)));
            for (best, sum) in line.best.iter_mut().zip(&line.sums) {
                *best = single(match pooling {
                    Pooling::Average => sum / divisor,
                    Pooling::Norm2 => sum.sqrt(),
                    Pooling::Norm1 | Pooling::Max => *sum,
                });
            }
            f32::write(&self.y.tensor, self.y.at(plane, [od, oh, ow]), self.y.strides[1], &line.best);
            self.store_places(&mut line.at, plane, [od, oh, ow], 1, |_| [d, h, w])?;
        }
        Ok(())
    }

    /// Where the greatest elements of a line are, along the extent with a stride of that number. Of windows without elements these are nowhere.
    #[inline(always)]
    fn store_places<'s>(
        &self,
        places: &mut [i32],
        plane: [u64; 2],
        at: [u64; MAX_AXES],
        stride: usize,
        spans: impl Fn(usize) -> [&'s Span; MAX_AXES],
    ) -> Result<(), Shortage> {
        if places.is_empty() || (self.offsets.is_none() && self.indices.is_none()) {
            return Ok(());
        }
        let is_empty = |lane: usize| spans(lane).iter().any(|span| span.inside.is_empty());
        if let Some(indices) = &self.indices {
            let axes = &self.pool.windows.axes;
            let mut found: Vec<i64> = zeros(places.len() as u64)?;
            for (lane, (index, &place)) in found.iter_mut().zip(&*places).enumerate() {
                let [d, h, w] = spans(lane);
                let place = u64::from(place.unsigned_abs());
                let (row, rw) = (place / w.places, place % w.places);
                let [id, ih, iw] = [d.element(row / h.places), h.element(row % h.places), w.element(rw)];
                let in_plane = (id * axes[1].input + ih) * axes[2].input + iw;
                *index = if is_empty(lane) { -1 } else { signed(in_plane) };
            }
            i64::write(&indices.tensor, indices.at(plane, at), indices.strides[stride], &found);
        }
        if let Some(offsets) = &self.offsets {
            for (lane, place) in places.iter_mut().enumerate() {
                *place = if is_empty(lane) { 0 } else { *place };
            }
            i32::write(&offsets.tensor, offsets.at(plane, at), offsets.strides[stride], places);
        }
        Ok(())
    }
}

/// The operands of backward.
struct Backward<'p> {
    pool: &'p Pool,
    dy: Placed<'p>,
    dx: Placed<'p>,
    offsets: Option<Placed<'p>>,
    x: Option<Placed<'p>>,
    y: Option<Placed<'p>>,
    /// The windows along the last axis.
    columns: Vec<Span>,
}

/// A row of elements of dx, as [`ForwardRow`].
struct BackwardRow<'b> {
    backward: &'b Backward<'b>,
    plane: [u64; 2],
    at: [u64; 2],
}

fn run_backward(pool: &Pool, operands: &Operands<'_>) -> Outcome {
    use rows_of_backward::{DX, DY, OFFSETS, X, Y};
    let (Some(dy), Some(dx)) = (operands.get(DY), operands.get(DX)) else { return Ok(()) };
    let windows = &pool.windows;
    let [inputs, outputs] = [windows.axes.map(|axis| axis.input), windows.axes.map(|axis| axis.output)];
    let columns = held(outputs[2], (0..outputs[2]).map(|output| windows.axes[2].window(output)))?;
    let [offsets, x, y] = [OFFSETS, X, Y].map(|row| operands.get(row).map(Placed::new));
    let backward = Backward { pool, dy: Placed::new(dy), dx: Placed::new(dx), offsets, x, y, columns };
    let planes = if pool.is_last { windows.samples } else { windows.samples * windows.channels };
    threads::try_for_each(planes * inputs[0] * inputs[1], dx.desc().elements(), |number| {
        let (plane, at) = place_of_row(pool, inputs, number);
        widest(BackwardRow { backward: &backward, plane, at })
    })
}

/// Reads offsets, as numbers of places.
#[inline(always)]
fn read_offsets(offsets: Option<&Placed<'_>>, plane: [u64; 2], at: [u64; MAX_AXES], stride: usize, to: &mut [i32]) {
    if let Some(offsets) = offsets {
        i32::read(&offsets.tensor, offsets.at(plane, at), offsets.strides[stride], to);
    }
}

impl Widest for BackwardRow<'_> {
    type Output = Result<(), Shortage>;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> Self::Output {
        let Self { backward, plane, at } = self;
        if backward.pool.is_last { backward.channels(plane, at) } else { backward.row(plane, at) }
    }
}

impl Backward<'_> {
    /// The windows along an axis that see an element, with its place in each.
    fn seen(axis: &Axis, element: u64) -> impl Iterator<Item = (u64, Span, u64)> + use<> {
        let axis = *axis;
        axis.seen_by(element).filter_map(move |output| {
            let span = axis.window(output);
            let place = span.place(element)?;
            Some((output, span, place))
        })
    }

    /// A row of dx of one channel.
    #[inline(always)]
    fn row(&self, plane: [u64; 2], [id, ih]: [u64; 2]) -> Result<(), Shortage> {
        let Self { pool, dy, .. } = self;
        let (axes, pooling) = (&pool.windows.axes, pool.fields.pooling);
        let axis = &axes[2];
        let mut sums: Vec<f64> = zeros(axis.input)?;
        let mut values: Vec<f32> = zeros(axis.output)?;
        let mut given: Vec<f64> = zeros(axis.output)?;
        let mut chosen: Vec<i32> = zeros(if pooling == Pooling::Max { axis.output } else { 0 })?;
        for (od, d, place_d) in Self::seen(&axes[0], id) {
            for (oh, h, place_h) in Self::seen(&axes[1], ih) {
                let at = [od, oh, 0];
                f32::read(&dy.tensor, dy.at(plane, at), dy.strides[4], &mut values);
                read_offsets(self.offsets.as_ref(), plane, at, 4, &mut chosen);
                if pooling == Pooling::Max {
                    // What lies in offsets may be any numbers: those of other rows, and none.
                    for ((&value, &chosen), span) in values.iter().zip(&chosen).zip(&self.columns) {
                        let before = signed((place_d * h.places + place_h) * span.places);
                        let Ok(place) = u64::try_from(i64::from(chosen) - before) else { continue };
                        if span.inside.contains(&place) {
                            sums[to_usize(span.element(place))] += f64::from(value);
                        }
                    }
                    continue;
                }
                for (given, &value) in given.iter_mut().zip(&values) {
                    *given = f64::from(value);
                }
                match (pooling, &self.y) {
                    (Pooling::Norm2, Some(y)) => {
                        f32::read(&y.tensor, y.at(plane, at), y.strides[4], &mut values);
                        given.iter_mut().zip(&values).for_each(|(given, &y)| *given = quotient(*given, y.into()));
                    }
                    (Pooling::Average, _) => {
                        let counts = [pool.count(&d), pool.count(&h)];
                        for (given, span) in given.iter_mut().zip(&self.columns) {
                            *given /= pool.divisor([counts[0], counts[1], pool.count(span)]);
                        }
                    }
                    _ => {}
                }
                if axis.is_adaptive {
                    for (&given, span) in given.iter().zip(&self.columns) {
                        let elements = to_usize(span.element(0))..to_usize(span.element(span.places));
                        sums[elements].iter_mut().for_each(|sum| *sum += given);
                    }
                    continue;
                }
                for rw in 0..axis.kernel {
                    let (lanes, element) = with_place(axis, rw);
                    let sums = sums.iter_mut().skip(element).step_by(to_usize(axis.stride));
                    sums.zip(&given[lanes]).for_each(|(sum, &given)| *sum += given);
                }
            }
        }
        self.store(&sums, plane, [id, ih, 0], 4)
    }

    /// The channels of a row of positions.
    #[inline(always)]
    fn channels(&self, plane: [u64; 2], [id, ih]: [u64; 2]) -> Result<(), Shortage> {
        let Self { pool, dy, .. } = self;
        let (axes, pooling, channels) = (&pool.windows.axes, pool.fields.pooling, pool.windows.channels);
        let mut sums: Vec<f64> = zeros(channels)?;
        let mut values: Vec<f32> = zeros(channels)?;
        let mut others: Vec<f32> = zeros(if pooling == Pooling::Norm2 { channels } else { 0 })?;
        let mut chosen: Vec<i32> = zeros(if pooling == Pooling::Max { channels } else { 0 })?;
        for iw in 0..axes[2].input {
            sums.fill(0.0);
            for (od, d, place_d) in Self::seen(&axes[0], id) {
                for (oh, h, place_h) in Self::seen(&axes[1], ih) {
                    for (ow, w, place_w) in Self::seen(&axes[2], iw) {
                        let at = [od, oh, ow];
                        f32::read(&dy.tensor, dy.at(plane, at), dy.strides[1], &mut values);
                        read_offsets(self.offsets.as_ref(), plane, at, 1, &mut chosen);
                        let sums = sums.iter_mut().zip(&values);
                        match (pooling, &self.y) {
                            (Pooling::Max, _) => {
                                let own = place_of([place_d, place_h, place_w], [h.places, w.places]);
                                for ((sum, &value), &chosen) in sums.zip(&chosen) {
                                    *sum += if chosen == own { f64::from(value) } else { 0.0 };
                                }
                            }
                            (Pooling::Norm2, Some(y)) => {
                                f32::read(&y.tensor, y.at(plane, at), y.strides[1], &mut others);
                                for ((sum, &value), &y) in sums.zip(&others) {
                                    *sum += quotient(value.into(), y.into());
                                }
                            }
                            (Pooling::Average, _) => {
                                let divisor = pool.divisor([&d, &h, &w].map(|span| pool.count(span)));
                                sums.for_each(|(sum, &value)| *sum += f64::from(value) / divisor);
                            }
                            _ => sums.for_each(|(sum, &value)| *sum += f64::from(value)),
                        }
                    }
                }
            }
            self.store(&sums, plane, [id, ih, iw], 1)?;
        }
        Ok(())
    }

    /// A line of dx, along the extent with a stride of that number.
    #[inline(always)]
    fn store(&self, sums: &[f64], plane: [u64; 2], at: [u64; MAX_AXES], stride: usize) -> Result<(), Shortage> {
        let mut results: Vec<f32> = zeros(sums.len() as u64)?;
        match (self.pool.fields.pooling, &self.x) {
            (pooling @ (Pooling::Norm1 | Pooling::Norm2), Some(x)) => {
                f32::read(&x.tensor, x.at(plane, at), x.strides[stride], &mut results);
                for (result, &sum) in results.iter_mut().zip(sums) {
                    let own = f64::from(*result);
                    *result = single(if pooling == Pooling::Norm1 { sign(own) * sum } else { own * sum });
                }
            }
            _ => results.iter_mut().zip(sums).for_each(|(result, &sum)| *result = single(sum)),
        }
        f32::write(&self.dx.tensor, self.dx.at(plane, at), self.dx.strides[stride], &results);
        Ok(())
    }
}
