//! Attention of f32, f16 and bf16 on the CPU: blocks of scores that the second cache holds, whose products are those of packed factors.
//!
//! A task of forward takes a block of queries of a head through the blocks of keys in order, with the largest score so far and the sum of exponentials of the
//! differences from it. Where the queries of all heads that share keys are few, a task takes them together through a part of the keys, so that each key is read
//! once; the parts are then merged in order. Backward computes the weights again from `lse`: a task takes a block of queries through the keys, for dq; a block of keys through the
//! heads that share it and their queries, for dk and dv; or a block of the bias through the places that share it. Blocks depend on the descriptor alone, so
//! results depend on no number of threads.

use std::ops::Range;

use half::bf16;

use super::cpu::{At, Inputs, row, store, values, without_queries};
use super::geometry::{Geometry, Mask};
use super::{BackwardFields, ForwardFields, Gradient, MOST_DEPTH, Valid, backward, forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, Tensor, room, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Accepted;
use crate::narrow::{single, to_usize};
use crate::ops::blocks::{Run, extreme, sums};
use crate::ops::gemm::packed::{COLS, Right, Sums, Word};
use crate::ops::pointwise::map::fast::{Converted as _, Widest, widest};
use crate::ops::pointwise::program::{exp, fma, tanh};

/// Rows of a block of scores, whole panels of the products' rows, and columns, which are the terms of the next product.
const EXTENTS: [usize; 2] = [112, 2 * f32::BLOCK];
const ROWS: u64 = EXTENTS[0] as u64;
const LINE: u64 = EXTENTS[1] as u64;
// A row of queries, keys or values has room in a line.
const _: () = assert!(MOST_DEPTH <= LINE);
/// The most queries of heads that share keys for which a key is not packed: products with a few rows cost less than packing.
const FEW: u64 = 16;
/// The keys of a part.
const PART: u64 = 4 * LINE;
/// Terms of a chain of sums of weighted values.
const CHAIN: usize = 32;

/// The form of forward.
pub(super) fn forward(valid: &Valid<ForwardFields>) -> Accepted<'_> {
    check(valid.fields.q.dtype())?;
    Ok(valid.on_cpu(compute_forward).batch_invariant())
}

/// The form of backward.
pub(super) fn backward(valid: &Valid<BackwardFields>) -> Accepted<'_> {
    check(valid.fields.q.dtype())?;
    Ok(valid.on_cpu(compute_backward).batch_invariant_if(valid.fields.dbias.is_none()))
}

fn check(dtype: DType) -> Result<(), Reason> {
    Reason::unless(dtype != DType::F64, || "it computes in f32; the reference computes f64")
}

/// So many numbers, all 0.
fn zeros(count: u64) -> Result<Vec<f32>, Shortage> {
    let mut numbers = room(count)?;
    numbers.resize(to_usize(count), 0.0);
    Ok(numbers)
}

/// The blocks of a range that begin at multiples of a number.
fn blocks(range: Range<u64>, length: u64) -> impl Iterator<Item = Range<u64>> {
    let first = if range.is_empty() { range.end } else { range.start / length * length };
    (first..range.end).step_by(to_usize(length)).map(move |at| at.max(range.start)..(at + length).min(range.end))
}

/// Rows of a tensor with extents `[.., .., .., depth]`: those of a head from one on.
#[derive(Clone, Copy)]
struct Rows<'a> {
    tensor: Tensor<'a>,
    first: u64,
    depth: u64,
    /// From one row to the next, and from one element of a row to the next.
    strides: [u64; 2],
}

impl<'a> Rows<'a> {
    fn new(tensor: Tensor<'a>, at: [u64; 3]) -> Self {
        let (dims, strides) = (tensor.desc().dims(), tensor.desc().strides());
        Self { depth: dims[3], strides: [strides[2], strides[3]], first: row(&tensor, at), tensor }
    }

    fn dtype(&self) -> DType {
        self.tensor.desc().dtype()
    }
}

/// The products of rows with rows, a row of `to` for each of `left`, at a distance of [`LINE`].
fn scores(left: Rows<'_>, right: Rows<'_>, [rows, cols]: [usize; 2], to: &mut [f32]) {
    let mut sums = Sums::new([rows, cols], [left.dtype(), right.dtype()]);
    match sums.are_tiled() {
        true => add_scores::<bf16>(left, right, [rows, cols], &mut sums),
        false => add_scores::<f32>(left, right, [rows, cols], &mut sums),
    }
    sums.end();
    for (row, to) in to.chunks_mut(to_usize(LINE)).enumerate().take(rows) {
        for (panel, to) in to[..cols].chunks_mut(COLS).enumerate() {
            to.copy_from_slice(sums.line(row, panel));
        }
    }
}

fn add_scores<W: Word>(left: Rows<'_>, right: Rows<'_>, [rows, cols]: [usize; 2], sums: &mut Sums) {
    let pack = sums.pack();
    let [[left_row, left_step], [right_row, right_step]] = [left.strides, right.strides];
    for first in (0..left.depth).step_by(W::BLOCK) {
        let terms = to_usize((left.depth - first).min(W::BLOCK as u64));
        let [of_left, of_right] = sums.packed::<W>(Right::Panels);
        let at = left.first + first * left_step;
        pack.copy(&left.tensor, at, [rows, terms], [left_row, left_step], of_left, W::PITCH);
        let at = right.first + first * right_step;
        pack.panels(&right.tensor, at, [terms, cols], [right_step, right_row], 0, of_right);
        sums.add(terms, Right::Panels);
    }
}

/// Adds to each row of `to` the rows of a tensor with the weights of a row of [`LINE`] numbers.
fn add_weighted(weights: &[f32], right: Rows<'_>, [rows, terms]: [usize; 2], to: &mut [f32]) {
    let depth = to_usize(right.depth);
    let mut sums = Sums::new([rows, depth], [DType::F32, right.dtype()]);
    let pack = sums.pack();
    for first in (0..terms).step_by(f32::BLOCK) {
        let count = (terms - first).min(f32::BLOCK);
        let [of_left, of_right] = sums.packed::<f32>(Right::Panels);
        for (packed, weights) in of_left.chunks_mut(f32::PITCH).zip(weights.chunks(to_usize(LINE))).take(rows) {
            packed[..count].copy_from_slice(&weights[first..first + count]);
        }
        let at = right.first + first as u64 * right.strides[0];
        pack.panels(&right.tensor, at, [count, depth], right.strides, 0, of_right);
        sums.add(count, Right::Panels);
    }
    sums.end();
    for (row, to) in to.chunks_mut(depth).enumerate().take(rows) {
        for (panel, to) in to.chunks_mut(COLS).enumerate() {
            to.iter_mut().zip(sums.line(row, panel)).for_each(|(to, sum)| *to += sum);
        }
    }
}

/// Each product becomes the score that the scale and the soft cap make of it. `slopes` are the derivatives of the soft cap there.
#[inline(never)]
fn scale_and_cap(values: &mut [f32], scale: f32, cap: Option<f32>, slopes: Option<&mut [f32]>) {
    struct Scores<'a> {
        values: &'a mut [f32],
        scale: f32,
        cap: Option<f32>,
        slopes: Option<&'a mut [f32]>,
    }
    impl Widest for Scores<'_> {
        type Output = ();
        #[inline(always)]
        fn run<const FUSED: bool>(self) {
            let Self { values, scale, cap, slopes } = self;
            let Some(cap) = cap else { return values.iter_mut().for_each(|x| *x *= scale) };
            values.iter_mut().for_each(|x| *x = tanh::<FUSED>(*x * scale / cap));
            if let Some(slopes) = slopes {
                slopes.iter_mut().zip(&*values).for_each(|(slope, t)| *slope = 1.0 - t * t);
            }
            values.iter_mut().for_each(|x| *x *= cap);
        }
    }
    widest(Scores { values, scale, cap, slopes });
}

/// Each score becomes the exponential of its difference from a number; their sum, in short chains that meet in f64.
#[inline(never)]
fn exponentials(values: &mut [f32], largest: f32) -> f64 {
    struct Exponentials<'a>(&'a mut [f32], f32);
    impl Widest for Exponentials<'_> {
        type Output = f64;
        #[inline(always)]
        fn run<const FUSED: bool>(self) -> f64 {
            let Self(values, largest) = self;
            values.iter_mut().for_each(|x| *x = exp::<FUSED>(*x - largest));
            sums([&*values], |[e]: [f32; 1]| [e])[0]
        }
    }
    widest(Exponentials(values, largest))
}

/// Each score becomes its weight, `exp(s - lse)`, and each product of dy with a value the gradient of the score, `p (dp - delta)`.
#[inline(never)]
fn weights_and_slopes(values: &mut [f32], products: &mut [f32], lse: &[f32], delta: &[f32]) {
    struct Slopes<'a> {
        values: &'a mut [f32],
        products: &'a mut [f32],
        lse: &'a [f32],
        delta: &'a [f32],
    }
    impl Widest for Slopes<'_> {
        type Output = ();
        #[inline(always)]
        fn run<const FUSED: bool>(self) {
            let Self { values, products, lse, delta } = self;
            values.iter_mut().zip(lse).for_each(|(x, lse)| *x = exp::<FUSED>(*x - lse));
            for ((product, p), delta) in products.iter_mut().zip(&*values).zip(delta) {
                *product = p * (*product - delta);
            }
        }
    }
    widest(Slopes { values, products, lse, delta });
}

impl<'a> Inputs<'a> {
    /// Of a place on a row of queries, or of keys where `is_key`, so many elements of the bias.
    fn bias_run(&self, at: At, is_key: bool, to: &mut [f32]) -> bool {
        let (Some(tensor), Some(desc)) = (self.bias, self.geometry.bias.as_ref()) else { return false };
        let step = desc.strides()[if is_key { 3 } else { 2 }];
        Run { tensor, first: self.bias_offset(at), step }.copy(0, to);
        true
    }

    /// The scores of some queries with some keys that all lie within the length: row by row, as many as the first, those of a bias included; -infinity
    /// where a key is hidden.
    fn finish_scores(&self, at: At, line: &mut [f32], slopes: Option<&mut [f32]>, is_key: bool, room: &mut [f32]) {
        let cap = self.geometry.soft_cap.map(|cap| single(cap.get()));
        scale_and_cap(line, single(self.geometry.scale.get()), cap, slopes);
        let room = &mut room[..line.len()];
        match self.geometry.mask {
            Mask::Bool if self.bias_run(at, is_key, room) => {
                line.iter_mut().zip(room).filter(|(_, seen)| **seen == 0.0).for_each(|(s, _)| *s = f32::NEG_INFINITY);
            }
            Mask::Bias(_) if self.bias_run(at, is_key, room) => {
                line.iter_mut().zip(room).for_each(|(s, bias)| *s += *bias);
            }
            _ => {}
        }
    }

    /// The keys that some queries see together.
    fn visible_together(&self, at: At, queries: &Range<u64>) -> Range<u64> {
        let of = |query: u64| self.visible(At { query, ..at });
        let (first, last) = (of(queries.start), of(queries.end - 1));
        // Both ends grow with the query.
        first.start.min(last.start)..first.end.max(last.end)
    }
}

/// Hides the elements of a line of scores from `first` on that are not in a range.
fn hide(line: &mut [f32], first: u64, seen: &Range<u64>) {
    let end = first + line.len() as u64;
    let of = |at: u64| to_usize(at.clamp(first, end) - first);
    line[..of(seen.start)].fill(f32::NEG_INFINITY);
    line[of(seen.end)..].fill(f32::NEG_INFINITY);
}

/// Writes a row, `beta` times what is there and `factor` times the sums.
fn write_row(tensor: Tensor<'_>, at: [u64; 3], sums: &mut [f32], factor: f32, beta: f64) {
    let run = Run { tensor, first: row(&tensor, at), step: tensor.desc().strides()[3] };
    sums.iter_mut().for_each(|sum| *sum *= factor);
    if beta != 0.0 {
        let (beta, mut before) = (single(beta), [0.0; EXTENTS[1]]);
        let before = &mut before[..sums.len()];
        run.copy(0, before);
        sums.iter_mut().zip(before).for_each(|(sum, before)| *sum += beta * *before);
    }
    run.write(0, sums);
}

/// The runs of keys of a range that lie one after another, and where each lies: in a page, unless that is none.
fn runs<'i>(
    inputs: &'i Inputs<'i>,
    at: At,
    keys: &Range<u64>,
) -> impl Iterator<Item = (Range<u64>, Option<[u64; 3]>)> + use<'i> {
    let length = inputs.geometry.pages.map_or(keys.end, |pages| pages.page).max(1);
    blocks(keys.clone(), length).map(move |run| {
        let place = inputs.place(At { key: run.start, ..at });
        (run, place)
    })
}

/// What the softmax of a row has seen so far.
#[derive(Clone, Copy)]
struct Online {
    largest: f32,
    total: f64,
}

impl Online {
    const NOTHING: Self = Self { largest: f32::NEG_INFINITY, total: 0.0 };

    /// Takes a line of scores, which become weights about the largest one so far, and scales sums of earlier ones.
    fn take(&mut self, line: &mut [f32], sums: &mut [f32]) {
        let (before, here) = (self.largest, extreme(line, false));
        // A NaN stays.
        let now = if here > before || here.is_nan() { here } else { before };
        if now == f32::NEG_INFINITY {
            line.fill(0.0);
            return;
        }
        let sum = exponentials(line, now);
        if now != before {
            let shrink = (before - now).exp();
            self.total *= f64::from(shrink);
            sums.iter_mut().for_each(|sum| *sum *= shrink);
            self.largest = now;
        }
        self.total += sum;
    }

    /// Writes the row that the sums of weighted values are, and its lse.
    fn write(&self, place: [u64; 3], sums: &mut [f32], y: Tensor<'_>, lse: Option<Tensor<'_>>) {
        let is_blank = self.largest == f32::NEG_INFINITY;
        if is_blank {
            sums.fill(0.0);
        }
        write_row(y, place, sums, if is_blank { 1.0 } else { single(1.0 / self.total) }, 0.0);
        if let Some(lse) = lse {
            let of_row = if is_blank { f64::NEG_INFINITY } else { f64::from(self.largest) + self.total.ln() };
            // SAFETY: each query belongs to one task, and outputs address every element once.
            unsafe { lse.store(row(&lse, place), of_row) };
        }
    }
}

/// The product of two rows: in lanes, which are combined in halves.
#[inline(always)]
fn dot<const FUSED: bool>(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; COLS];
    let (whole_a, whole_b) = (a.chunks_exact(COLS), b.chunks_exact(COLS));
    let rest = whole_a.remainder().iter().zip(whole_b.remainder());
    for (a, b) in whole_a.zip(whole_b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane = fma::<FUSED>(*a, *b, *lane);
        }
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, (a, b))| *lane = fma::<FUSED>(*a, *b, *lane));
    let mut half = COLS / 2;
    while half > 0 {
        let (low, high) = lanes.split_at_mut(half);
        low.iter_mut().zip(high).for_each(|(low, high)| *low += *high);
        half /= 2;
    }
    lanes[0]
}

/// The products of a few rows, side by side, with as many keys as there is room for in a line: a line of `to` for each row, at a distance of [`LINE`].
struct FewScores<'a> {
    left: &'a [f32],
    keys: Rows<'a>,
    cols: usize,
    to: &'a mut [f32],
}

impl Widest for FewScores<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { left, keys, cols, to } = self;
        let (depth, mut key) = (to_usize(keys.depth), [0.0; EXTENTS[1]]);
        let key = &mut key[..depth];
        for j in 0..cols {
            f32::read(&keys.tensor, keys.first + j as u64 * keys.strides[0], keys.strides[1], key);
            for (line, left) in to.chunks_mut(to_usize(LINE)).zip(left.chunks(depth)) {
                line[j] = dot::<FUSED>(left, key);
            }
        }
    }
}

/// Adds to a few rows, side by side, values with the weights of a line for each row, at a distance of [`LINE`].
struct FewWeighted<'a> {
    weights: &'a [f32],
    values: Rows<'a>,
    terms: usize,
    to: &'a mut [f32],
    /// Room for as many rows.
    chain: &'a mut [f32],
}

impl Widest for FewWeighted<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { weights, values, terms, to, chain } = self;
        let (depth, mut value) = (to_usize(values.depth), [0.0; EXTENTS[1]]);
        let value = &mut value[..depth];
        for first in (0..terms).step_by(CHAIN) {
            chain.fill(0.0);
            for j in first..terms.min(first + CHAIN) {
                f32::read(&values.tensor, values.first + j as u64 * values.strides[0], values.strides[1], value);
                for (sums, line) in chain.chunks_mut(depth).zip(weights.chunks(to_usize(LINE))) {
                    let weight = line[j];
                    for (sum, value) in sums.iter_mut().zip(&*value) {
                        *sum = fma::<FUSED>(weight, *value, *sum);
                    }
                }
            }
            to.iter_mut().zip(&*chain).for_each(|(to, sum)| *to += sum);
        }
    }
}

/// What a part of the keys gives a few queries.
struct Part {
    rows: Vec<Online>,
    sums: Vec<f32>,
}

/// A forward of few queries: those of all heads that share keys together.
struct Few<'a> {
    inputs: Inputs<'a>,
    rows: u64,
    parts: u64,
}

impl<'a> Few<'a> {
    /// The place of a row of a group, which a sample and a head of keys have.
    fn at(&self, group: u64, row: u64) -> At {
        let geometry = self.inputs.geometry;
        let (sample, kv_head) = (group / geometry.kv_heads, group % geometry.kv_heads);
        At { sample, head: kv_head * geometry.group() + row / geometry.queries, query: row % geometry.queries, key: 0 }
    }

    fn part(&self, task: u64, [q, k, v]: [Tensor<'a>; 3]) -> Result<Part, Shortage> {
        let (inputs, geometry) = (&self.inputs, self.inputs.geometry);
        let (group, first) = (task / self.parts, task % self.parts * PART);
        let count = to_usize(self.rows);
        let [mut values, mut sums] = [zeros(self.rows * LINE)?, zeros(self.rows * geometry.value_depth)?];
        let [mut left, mut chain] = [zeros(self.rows * geometry.depth)?, zeros(self.rows * geometry.value_depth)?];
        let mut rows = room(self.rows)?;
        rows.resize(count, Online::NOTHING);
        let seen = inputs.visible_together(self.at(group, 0), &(0..geometry.queries));
        let seen = seen.start.max(first)..seen.end.min(first.saturating_add(PART));
        if seen.is_empty() {
            return Ok(Part { rows, sums: Vec::new() });
        }
        for (row, to) in (0..).zip(left.chunks_mut(to_usize(geometry.depth))) {
            let at = self.at(group, row);
            let from = Rows::new(q, [at.sample, at.head, at.query]);
            Run { tensor: q, first: from.first, step: from.strides[1] }.copy(0, to);
        }
        let mut of_bias = [0.0; EXTENTS[1]];
        let depth = to_usize(geometry.value_depth);
        let start = self.at(group, 0);
        for keys in blocks(seen, LINE) {
            let cols = to_usize(keys.end - keys.start);
            for (run, place) in runs(inputs, start, &keys) {
                let Some(place) = place else { continue };
                let to = &mut values[to_usize(run.start - keys.start)..];
                widest(FewScores { left: &left, keys: Rows::new(k, place), cols: to_usize(run.end - run.start), to });
            }
            for (i, line) in values.chunks_mut(to_usize(LINE)).enumerate() {
                let (line, at) = (&mut line[..cols], At { key: keys.start, ..self.at(group, i as u64) });
                inputs.finish_scores(at, line, None, true, &mut of_bias);
                hide(line, keys.start, &inputs.visible(at));
                hide_pages(inputs, at, line, &keys);
                rows[i].take(line, &mut sums[i * depth..(i + 1) * depth]);
            }
            for (run, place) in runs(inputs, start, &keys) {
                let Some(place) = place else { continue };
                let weights = &values[to_usize(run.start - keys.start)..];
                let (values, terms) = (Rows::new(v, place), to_usize(run.end - run.start));
                widest(FewWeighted { weights, values, terms, to: &mut sums, chain: &mut chain });
            }
        }
        Ok(Part { rows, sums })
    }

    /// Writes a row of a group: the sum of what its parts gave it, in their order.
    fn merge(&self, parts: &[Part], group: u64, index: u64, y: Tensor<'_>, lse: Option<Tensor<'_>>) -> Outcome {
        let (at, row) = (self.at(group, index), to_usize(index));
        let mut sums = zeros(self.inputs.geometry.value_depth)?;
        let mut whole = Online::NOTHING;
        // A NaN stays.
        let larger = |a: f32, b: f32| if b > a || b.is_nan() { b } else { a };
        whole.largest = parts.iter().map(|part| part.rows[row].largest).fold(whole.largest, larger);
        for part in parts {
            let Online { largest, total } = part.rows[row];
            if largest == f32::NEG_INFINITY {
                continue;
            }
            let factor = (largest - whole.largest).exp();
            whole.total += f64::from(factor) * total;
            let of_part = &part.sums[row * sums.len()..(row + 1) * sums.len()];
            sums.iter_mut().zip(of_part).for_each(|(sum, of_part)| *sum += factor * of_part);
        }
        whole.write([at.sample, at.head, at.query], &mut sums, y, lse);
        Ok(())
    }
}

/// Hides the keys of a line that lie in no page.
fn hide_pages(inputs: &Inputs<'_>, at: At, line: &mut [f32], keys: &Range<u64>) {
    if inputs.geometry.pages.is_some() {
        for (run, _) in runs(inputs, at, keys).filter(|(_, place)| place.is_none()) {
            line[to_usize(run.start - keys.start)..to_usize(run.end - keys.start)].fill(f32::NEG_INFINITY);
        }
    }
}

fn compute_forward(valid: &Valid<ForwardFields>, operands: &Operands<'_>) -> Outcome {
    use forward::{BIAS, K, LENGTHS, LSE, PAGES, Q, V, Y};
    let geometry = &valid.derived;
    let [q, k, v, bias, lengths, pages] = [Q, K, V, BIAS, LENGTHS, PAGES].map(|row| operands.get(row));
    let inputs = Inputs { geometry, q, k, v, bias, lengths, pages };
    let (Some(q), Some(y)) = (q, operands.get(Y)) else { return Ok(()) };
    let lse = operands.get(LSE);
    let rows = geometry.group().saturating_mul(geometry.queries);
    if let (1..=FEW, Some(k), Some(v)) = (rows, k, v) {
        let few = Few { inputs, rows, parts: geometry.keys.div_ceil(PART).max(1) };
        let groups = geometry.samples * geometry.kv_heads;
        let tasks = groups.saturating_mul(few.parts);
        let parts = threads::map(tasks, elements(geometry), |task| few.part(task, [q, k, v]))?;
        let sums = (groups * rows).saturating_mul(few.parts).saturating_mul(geometry.value_depth);
        return threads::try_for_each(groups * rows, sums, |number| {
            let (group, index) = (number / rows, number % rows);
            let first = to_usize(group * few.parts);
            few.merge(&parts[first..first + to_usize(few.parts)], group, index, y, lse)
        });
    }
    let per_head = geometry.queries.div_ceil(ROWS);
    let tasks = geometry.samples * geometry.heads * per_head;
    threads::try_for_each(tasks, elements(geometry), |task| {
        let (head, first) = (task / per_head, task % per_head * ROWS);
        let at = At { sample: head / geometry.heads, head: head % geometry.heads, query: first, key: 0 };
        let queries = first..(first + ROWS).min(geometry.queries);
        let rows = to_usize(queries.end - queries.start);
        let [mut values, mut sums] = [zeros(ROWS * LINE)?, zeros(rows as u64 * geometry.value_depth)?];
        let mut online = [Online::NOTHING; EXTENTS[0]];
        let mut of_bias = [0.0; EXTENTS[1]];
        let depth = to_usize(geometry.value_depth);
        for keys in blocks(inputs.visible_together(at, &queries), LINE) {
            let (Some(k), Some(v)) = (k, v) else { break };
            let cols = to_usize(keys.end - keys.start);
            for (run, place) in runs(&inputs, at, &keys) {
                let Some(kv) = place else { continue };
                let (to, cols) = (&mut values[to_usize(run.start - keys.start)..], to_usize(run.end - run.start));
                scores(Rows::new(q, [at.sample, at.head, first]), Rows::new(k, kv), [rows, cols], to);
            }
            for (i, line) in values.chunks_mut(to_usize(LINE)).enumerate().take(rows) {
                let (line, at) = (&mut line[..cols], At { query: first + i as u64, key: keys.start, ..at });
                inputs.finish_scores(at, line, None, true, &mut of_bias);
                hide(line, keys.start, &inputs.visible(at));
                hide_pages(&inputs, at, line, &keys);
                online[i].take(line, &mut sums[i * depth..(i + 1) * depth]);
            }
            for (run, place) in runs(&inputs, at, &keys) {
                let Some(kv) = place else { continue };
                let (weights, terms) = (&values[to_usize(run.start - keys.start)..], to_usize(run.end - run.start));
                add_weighted(weights, Rows::new(v, kv), [rows, terms], &mut sums);
            }
        }
        for (i, sums) in sums.chunks_mut(depth).enumerate() {
            online[i].write([at.sample, at.head, first + i as u64], sums, y, lse);
        }
        Ok(())
    })
}

/// What threads share out.
fn elements(geometry: &Geometry) -> u64 {
    let Geometry { samples, heads, queries, keys, depth, .. } = *geometry;
    (samples * heads * queries).saturating_mul(keys.max(1)).saturating_mul(depth)
}

/// What the gradients follow from.
struct Backward<'a> {
    inputs: Inputs<'a>,
    q: Tensor<'a>,
    k: Tensor<'a>,
    v: Tensor<'a>,
    dy: Tensor<'a>,
    /// Of each query.
    lse: Vec<f32>,
    delta: Vec<f32>,
}

/// A block of weights and of gradients of scores, and of scores that the soft cap has changed.
struct Block {
    weights: Vec<f32>,
    slopes: Vec<f32>,
    caps: Vec<f32>,
    bias: Vec<f32>,
    lse: Vec<f32>,
    delta: Vec<f32>,
    /// The keys that each query of a row sees.
    seen: Vec<Range<u64>>,
}

impl Block {
    fn new() -> Result<Self, Shortage> {
        let [weights, slopes, caps] = [zeros(ROWS * LINE)?, zeros(ROWS * LINE)?, zeros(ROWS * LINE)?];
        let [bias, lse, delta] = [zeros(LINE)?, zeros(LINE)?, zeros(LINE)?];
        Ok(Self { weights, slopes, caps, bias, lse, delta, seen: room(LINE)? })
    }
}

impl Backward<'_> {
    fn row(&self, at: At, query: u64) -> usize {
        let geometry = self.inputs.geometry;
        to_usize((at.sample * geometry.heads + at.head) * geometry.queries + query)
    }

    /// Those of some queries that see keys, in runs, counted from the first query. The others have no gradients, whatever q and dy hold there.
    fn sighted(&self, at: At, queries: &Range<u64>) -> impl Iterator<Item = Range<usize>> {
        let first = self.row(at, queries.start);
        let lse = &self.lse[first..first + to_usize(queries.end - queries.start)];
        let is_blind = |lse: &f32| *lse == f32::NEG_INFINITY;
        let mut end = 0;
        lse.chunk_by(move |a, b| is_blind(a) == is_blind(b)).filter_map(move |run| {
            end += run.len();
            (!is_blind(&run[0])).then_some(end - run.len()..end)
        })
    }

    /// Weights and gradients of some queries, a row each, with some keys: of scores with their bias, or before the soft cap where `of_products`.
    fn by_query(&self, block: &mut Block, at: At, queries: &Range<u64>, keys: &Range<u64>, of_products: bool) {
        let extents = [queries, keys].map(|range| to_usize(range.end - range.start));
        let at = At { query: queries.start, key: keys.start, ..at };
        let (place, kv) = ([at.sample, at.head, at.query], self.inputs.kv(at));
        scores(Rows::new(self.q, place), Rows::new(self.k, kv), extents, &mut block.weights);
        scores(Rows::new(self.dy, place), Rows::new(self.v, kv), extents, &mut block.slopes);
        for i in 0..extents[0] {
            let query = queries.start + i as u64;
            let (row, of_line) = (self.row(at, query), i * to_usize(LINE)..i * to_usize(LINE) + extents[1]);
            block.lse[..extents[1]].fill(self.lse[row]);
            block.delta[..extents[1]].fill(self.delta[row]);
            let line = &mut block.weights[of_line.clone()];
            let caps = &mut block.caps[of_line.clone()];
            self.inputs.finish_scores(At { query, ..at }, line, Some(&mut *caps), true, &mut block.bias);
            let seen = if self.lse[row] == f32::NEG_INFINITY { 0..0 } else { self.inputs.visible(At { query, ..at }) };
            hide(line, keys.start, &seen);
            self.end_line(block, of_line.clone(), of_products);
            if self.lse[row] == f32::NEG_INFINITY {
                // Not by their weights of 0, which make NaN of a NaN in dy.
                block.slopes[of_line].fill(0.0);
            }
        }
    }

    /// As [`by_query`](Self::by_query), a row for each key.
    fn by_key(&self, block: &mut Block, at: At, keys: &Range<u64>, queries: &Range<u64>) {
        let extents = [keys, queries].map(|range| to_usize(range.end - range.start));
        let at = At { query: queries.start, key: keys.start, ..at };
        let (place, kv) = ([at.sample, at.head, at.query], self.inputs.kv(at));
        scores(Rows::new(self.k, kv), Rows::new(self.q, place), extents, &mut block.weights);
        scores(Rows::new(self.v, kv), Rows::new(self.dy, place), extents, &mut block.slopes);
        let rows = self.row(at, queries.start)..self.row(at, queries.start) + extents[1];
        block.lse[..extents[1]].copy_from_slice(&self.lse[rows.clone()]);
        block.delta[..extents[1]].copy_from_slice(&self.delta[rows.clone()]);
        let sees = |(query, lse): (u64, &f32)| match *lse == f32::NEG_INFINITY {
            true => 0..0,
            false => self.inputs.visible(At { query, ..at }),
        };
        block.seen.clear();
        block.seen.extend(queries.clone().zip(&self.lse[rows]).map(sees));
        let sees_all = |seen: &Range<u64>| seen.start <= keys.start && keys.end <= seen.end;
        let is_whole = block.seen.iter().all(sees_all);
        for j in 0..extents[0] {
            let (key, of_line) = (keys.start + j as u64, j * to_usize(LINE)..j * to_usize(LINE) + extents[1]);
            let line = &mut block.weights[of_line.clone()];
            let caps = &mut block.caps[of_line.clone()];
            self.inputs.finish_scores(At { key, ..at }, line, Some(&mut *caps), false, &mut block.bias);
            if !is_whole {
                let hidden = line.iter_mut().zip(&block.seen).filter(|(_, seen)| !seen.contains(&key));
                hidden.for_each(|(score, _)| *score = f32::NEG_INFINITY);
            }
            self.end_line(block, of_line, true);
        }
    }

    fn end_line(&self, block: &mut Block, of_line: Range<usize>, of_products: bool) {
        let count = of_line.len();
        let (weights, slopes) = (&mut block.weights[of_line.clone()], &mut block.slopes[of_line.clone()]);
        // Where no key is seen lse is -infinity, and any other number does.
        block.lse[..count].iter_mut().filter(|lse| **lse == f32::NEG_INFINITY).for_each(|lse| *lse = 0.0);
        weights_and_slopes(weights, slopes, &block.lse[..count], &block.delta[..count]);
        if of_products && self.inputs.geometry.soft_cap.is_some() {
            slopes.iter_mut().zip(&block.caps[of_line]).for_each(|(slope, cap)| *slope *= cap);
        }
    }

    fn dq(&self, dq: Tensor<'_>, gradient: Gradient) -> Outcome {
        let geometry = self.inputs.geometry;
        let per_head = geometry.queries.div_ceil(ROWS);
        threads::try_for_each(geometry.samples * geometry.heads * per_head, elements(geometry), |task| {
            let (head, first) = (task / per_head, task % per_head * ROWS);
            let at = At { sample: head / geometry.heads, head: head % geometry.heads, query: first, key: 0 };
            let queries = first..(first + ROWS).min(geometry.queries);
            let rows = to_usize(queries.end - queries.start);
            let (mut block, mut sums) = (Block::new()?, zeros(rows as u64 * geometry.depth)?);
            for keys in blocks(self.inputs.visible_together(at, &queries), LINE) {
                self.by_query(&mut block, at, &queries, &keys, true);
                let kv = self.inputs.kv(At { key: keys.start, ..at });
                let terms = to_usize(keys.end - keys.start);
                add_weighted(&block.slopes, Rows::new(self.k, kv), [rows, terms], &mut sums);
            }
            for (query, sums) in queries.zip(sums.chunks_mut(to_usize(geometry.depth))) {
                if self.lse[self.row(at, query)] == f32::NEG_INFINITY {
                    // Infinite keys make NaN of what is 0.
                    sums.fill(0.0);
                }
                write_row(dq, [at.sample, at.head, query], sums, single(geometry.scale.get()), gradient.beta());
            }
            Ok(())
        })
    }

    fn dk_and_dv(&self, dk: Option<(Tensor<'_>, Gradient)>, dv: Option<(Tensor<'_>, Gradient)>) -> Outcome {
        let geometry = self.inputs.geometry;
        let per_head = geometry.keys.div_ceil(ROWS);
        threads::try_for_each(geometry.samples * geometry.kv_heads * per_head, elements(geometry), |task| {
            let (head, first) = (task / per_head, task % per_head * ROWS);
            let (sample, kv_head) = (head / geometry.kv_heads, head % geometry.kv_heads);
            let keys = first..(first + ROWS).min(geometry.keys);
            let rows = to_usize(keys.end - keys.start);
            let mut block = Block::new()?;
            let [mut of_k, mut of_v] =
                [zeros(rows as u64 * geometry.depth)?, zeros(rows as u64 * geometry.value_depth)?];
            for head in kv_head * geometry.group()..(kv_head + 1) * geometry.group() {
                for queries in blocks(0..geometry.queries, LINE) {
                    let at = At { sample, head, query: queries.start, key: first };
                    let seen = self.inputs.visible_together(at, &queries);
                    let keys = keys.start.max(seen.start)..keys.end.min(seen.end);
                    if keys.is_empty() {
                        continue;
                    }
                    self.by_key(&mut block, at, &keys, &queries);
                    let (rows, from) = (to_usize(keys.end - keys.start), to_usize(keys.start - first));
                    for run in self.sighted(at, &queries) {
                        let place = [sample, head, queries.start + run.start as u64];
                        if dk.is_some() {
                            let to = &mut of_k[from * to_usize(geometry.depth)..];
                            add_weighted(&block.slopes[run.start..], Rows::new(self.q, place), [rows, run.len()], to);
                        }
                        if dv.is_some() {
                            let to = &mut of_v[from * to_usize(geometry.value_depth)..];
                            add_weighted(&block.weights[run.start..], Rows::new(self.dy, place), [rows, run.len()], to);
                        }
                    }
                }
            }
            let scale = single(geometry.scale.get());
            for (out, mut sums, depth, factor) in
                [(dk, of_k, geometry.depth, scale), (dv, of_v, geometry.value_depth, 1.0)]
            {
                let Some((tensor, gradient)) = out else { continue };
                for (key, sums) in keys.clone().zip(sums.chunks_mut(to_usize(depth))) {
                    write_row(tensor, [sample, kv_head, key], sums, factor, gradient.beta());
                }
            }
            Ok(())
        })
    }

    fn dbias(&self, dbias: Tensor<'_>, gradient: Gradient) -> Outcome {
        let geometry = self.inputs.geometry;
        let own = geometry.bias_dims;
        let scores = [geometry.samples, geometry.heads, geometry.queries, geometry.keys];
        let is_own = |axis: usize| own[axis] == scores[axis];
        let along = |axis: usize, at: u64| if is_own(axis) { at..at + 1 } else { 0..scores[axis] };
        // A task has a block of the bias, along an extent that is repeated all of it.
        let [query_blocks, key_blocks] = [own[2].div_ceil(ROWS), own[3].div_ceil(LINE)];
        let part = |axis: usize, block: u64, length: u64| match is_own(axis) {
            true => block * length..((block + 1) * length).min(scores[axis]),
            false => 0..scores[axis],
        };
        let strides = dbias.desc().strides();
        let strides: [u64; 4] =
            std::array::from_fn(|axis| (axis + strides.len()).checked_sub(4).map_or(0, |at| strides[at]));
        threads::try_for_each(own[0] * own[1] * query_blocks * key_blocks, elements(geometry), |task| {
            let (rest, key_block) = (task / key_blocks, task % key_blocks);
            let (rest, query_block) = (rest / query_blocks, rest % query_blocks);
            let (own_sample, own_head) = (rest / own[1], rest % own[1]);
            let (of_queries, of_keys) = (part(2, query_block, ROWS), part(3, key_block, LINE));
            let [rows, cols] = [own[2].min(ROWS), own[3].min(LINE)].map(to_usize);
            let mut sums: Vec<f64> = room((rows * cols) as u64)?;
            sums.resize(rows * cols, 0.0);
            let mut block = Block::new()?;
            for (sample, head) in along(0, own_sample).flat_map(|b| along(1, own_head).map(move |h| (b, h))) {
                for queries in blocks(of_queries.clone(), ROWS) {
                    let at = At { sample, head, query: queries.start, key: 0 };
                    let seen = self.inputs.visible_together(at, &queries);
                    for keys in blocks(of_keys.start.max(seen.start)..of_keys.end.min(seen.end), LINE) {
                        self.by_query(&mut block, at, &queries, &keys, false);
                        for (i, query) in queries.clone().enumerate() {
                            let row = if is_own(2) { to_usize(query - of_queries.start) } else { 0 };
                            let line = &block.slopes[i * to_usize(LINE)..];
                            for (slope, key) in line.iter().zip(keys.clone()) {
                                let col = if is_own(3) { to_usize(key - of_keys.start) } else { 0 };
                                sums[row * cols + col] += f64::from(*slope);
                            }
                        }
                    }
                }
            }
            let first = [own_sample, own_head, query_block * ROWS, key_block * LINE];
            let first: u64 = first.iter().zip(strides).map(|(at, stride)| at * stride).sum();
            for (at, sum) in sums.into_iter().enumerate() {
                let (row, col) = ((at / cols) as u64, (at % cols) as u64);
                if query_block * ROWS + row >= own[2] || key_block * LINE + col >= own[3] {
                    continue;
                }
                let offset = first + row * strides[2] + col * strides[3];
                // SAFETY: each element belongs to one task, and outputs address every element once.
                unsafe { store(&dbias, offset, sum, gradient.beta()) };
            }
            Ok(())
        })
    }
}

fn compute_backward(valid: &Valid<BackwardFields>, operands: &Operands<'_>) -> Outcome {
    use backward::{BIAS, DBIAS, DK, DQ, DV, DY, K, LENGTHS, LSE, Q, V, Y};
    let (fields, geometry) = (&valid.fields, &valid.derived);
    let [q, k, v, bias, lengths] = [Q, K, V, BIAS, LENGTHS].map(|row| operands.get(row));
    let inputs = Inputs { geometry, q, k, v, bias, lengths, pages: None };
    let out = |row: usize, gradient: Option<Gradient>| operands.get(row).zip(gradient);
    let [dq, dk, dv] = [out(DQ, fields.dq), out(DK, fields.dk), out(DV, fields.dv)];
    let dbias = out(DBIAS, fields.dbias);
    let read = q.zip(k).zip(v).zip(operands.get(Y)).zip(operands.get(LSE)).zip(operands.get(DY));
    let Some((((((q, k), v), y), lse), dy)) = read else { return without_queries([dq, dk, dv, dbias]) };
    let queries = geometry.samples * geometry.heads * geometry.queries;
    let of_queries: Vec<[f32; 2]> = threads::map(queries, queries.saturating_mul(geometry.value_depth), |number| {
        let at = At::query(geometry, number);
        let place = [at.sample, at.head, at.query];
        let terms = values(&y, place).zip(values(&dy, place));
        let delta = terms.map(|(y, dy)| y * dy).sum::<f64>();
        Ok::<_, Shortage>([single(lse.load(row(&lse, place))), single(delta)])
    })?;
    let [mut lse, mut delta] = [room(queries)?, room(queries)?];
    lse.extend(of_queries.iter().map(|[lse, _]| *lse));
    delta.extend(of_queries.iter().map(|[_, delta]| *delta));
    let of = Backward { inputs, q, k, v, dy, lse, delta };
    if let Some((dq, gradient)) = dq {
        of.dq(dq, gradient)?;
    }
    if dk.is_some() || dv.is_some() {
        of.dk_and_dv(dk, dv)?;
    }
    if let Some((dbias, gradient)) = dbias {
        of.dbias(dbias, gradient)?;
    }
    Ok(())
}
