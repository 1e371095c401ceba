//! Depthwise convolutions of f32, f16 and bf16 on the CPU, whose groups have one channel and one filter: direct loops along what lies side by side in memory.
//!
//! - If channels do, a vector has some of them, at one position and one element of the kernel.
//! - Else a vector has neighbouring positions, of which an element of the kernel sees neighbouring elements of x or dy.
//!
//! Accumulation: in f32, in chains of [`CHAIN`] products, chains of as many of these, and one more. The gradient of the weight has eight or more such sums,
//! which are added up last.

use std::ops::Range;

use super::cpu::At;
use super::geometry::{Contracting, Contraction, Indices};
use super::packed::finish_of;
use super::pass::Pass;
use super::walk::Phases;
use super::windows::{Inside, Run, Windows};
use crate::backend::cpu::{Operands, Tensor, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::{signed, single, to_usize};
use crate::ops::gemm::chains::CHAIN;
use crate::ops::gemm::packed::{COLS, Finish, Line, Pack, Places};

/// Most elements of a kernel, which are two levels of chains.
const MOST_TAPS: u64 = (CHAIN * CHAIN) as u64;
/// Fewest neighbouring channels that are a vector.
const LEAST_CHANNELS: u64 = 8;
/// Most channels of a vector, whose sums the first cache holds.
const MOST_CHANNELS: u64 = 512;
/// Most positions of a line: so many that each of eight sums of a dot product is one chain.
const MOST_POSITIONS: usize = 8 * CHAIN;

/// Positions of a task along them, at most.
const POSITIONS_OF_TASK: u64 = 4096;
/// Most elements beside a line, or lines beside others, that a copy of what windows see has.
const MOST_SPAN: u64 = 64;

/// The kernel of the three contractions.
pub(super) fn contracting<D: Contracting>(descriptor: &D) -> Accepted<'_> {
    let contraction = descriptor.contraction();
    let shape = &contraction.shape;
    let (channels, filters) = (shape.channels_in, shape.channels_out);
    Reason::unless(channels == 1 && filters == 1, || {
        format!("it serves groups of one channel and one filter, got {channels} and {filters}")
    })?;
    let taps = if contraction.pass == Pass::Weight { contraction.rows.count() } else { contraction.terms.count() };
    Reason::unless(taps <= MOST_TAPS, || format!("it serves kernels of up to {MOST_TAPS} elements, got {taps}"))?;
    let dtype = contraction.gathered.dtype;
    Reason::unless(dtype != DType::F64, || format!("it multiplies f32, f16 and bf16, got {dtype}"))?;
    Ok(Candidate::on_cpu(move || move |operands: &Operands<'_>| contract(&contraction, operands)))
}

/// Computes one contraction.
fn contract(contraction: &Contraction, operands: &Operands<'_>) {
    let Some(finish) = finish_of(contraction, operands).filter(|_| !contraction.is_empty()) else { return };
    let factors = operands.get(contraction.gathered.position).zip(operands.get(contraction.plain.position));
    let Contraction { gathered, plain, groups, .. } = contraction;
    let is_across = gathered.group == 1 && *groups >= LEAST_CHANNELS;
    let run = Depthwise { contraction, finish: &finish, factors, pack: Pack::detect() };
    match contraction.pass {
        Pass::Weight if is_across && plain.group == 1 => run.weight_across_channels(),
        Pass::Weight => run.weight_along_positions(),
        _ if is_across => run.across_channels(),
        _ => run.along_positions(),
    }
}

/// A contraction with its operands.
struct Depthwise<'a> {
    contraction: &'a Contraction,
    finish: &'a Finish<'a>,
    /// The gathered and the plain one; without elements there are no terms.
    factors: Option<(Tensor<'a>, Tensor<'a>)>,
    pack: Pack,
}

/// Sums that grow by short chains: of products, of the sums of those, and of the sums of these.
struct Levels {
    sums: [Vec<f32>; 3],
    counts: [usize; 2],
    /// Whether the first level is not all.
    is_high: bool,
}

impl Levels {
    fn new(count: usize) -> Self {
        Self { sums: std::array::from_fn(|_| vec![0.0; count]), counts: [0; 2], is_high: false }
    }

    fn clear(&mut self) {
        let used = if self.is_high { 3 } else { 1 };
        self.sums[..used].iter_mut().for_each(|sums| sums.fill(0.0));
        (self.counts, self.is_high) = ([0; 2], false);
    }

    /// The sums to add up to `additions` to, at most [`CHAIN`].
    fn chain(&mut self, additions: usize) -> &mut [f32] {
        if self.counts[0] + additions > CHAIN {
            self.carry(0);
            self.counts[1] += 1;
            if self.counts[1] == CHAIN {
                self.carry(1);
            }
        }
        self.counts[0] += additions;
        &mut self.sums[0]
    }

    fn carry(&mut self, level: usize) {
        let [low, high] = &mut self.sums[level..level + 2] else { return };
        high.iter_mut().zip(low.iter()).for_each(|(high, low)| *high += low);
        low.fill(0.0);
        (self.counts[level], self.is_high) = (0, true);
    }

    fn total(&mut self) -> &[f32] {
        if !self.is_high {
            return &self.sums[0];
        }
        self.carry(0);
        self.carry(1);
        &self.sums[2]
    }
}

/// What the windows of neighbouring lines see, if they move by one element along a line and from line to line.
struct Grid {
    /// The lowest coordinates that the kernel's elements add, along lines and from line to line, and the distance to the highest ones.
    lowest: [i64; 2],
    span: [u64; 2],
    /// What a step of a term adds to the coordinates.
    steps: [i64; 2],
    /// Elements of a line with those beside it.
    pitch: u64,
}

impl Grid {
    /// `None` if windows move otherwise, along three axes, or see little more than what is beside the tensor.
    fn of(contraction: &Contraction) -> Option<Self> {
        let Contraction { rows, terms, gathered, .. } = contraction;
        let axes = [&gathered.axes[1], &gathered.axes[2]];
        let has_two =
            rows.axes[0] == 1 && terms.axes[0] == 1 && gathered.axes[0].extent == 1 && gathered.axes[0].offset == 0;
        if !has_two || rows.lead_last || rows.axes[2] > POSITIONS_OF_TASK || axes.iter().any(|axis| axis.of_row != 1) {
            return None;
        }
        let steps = axes.map(|axis| axis.of_term);
        let reach = [0, 1].map(|axis| steps[axis] * signed(terms.axes[axis + 1].saturating_sub(1)));
        let span = reach.map(i64::unsigned_abs);
        let is_small = span[0] <= MOST_SPAN && span[1] <= MOST_SPAN;
        let lowest = [0, 1].map(|axis| axes[axis].offset + reach[axis].min(0));
        is_small.then_some(Self { lowest, span, steps, pitch: rows.axes[2] + span[1] })
    }

    /// Where a term's element lies, from that of the lowest coordinates.
    fn offset(&self, term: At) -> usize {
        let along = |axis: usize| {
            let step = self.steps[axis];
            // A step down begins at the highest coordinate.
            let from = if step < 0 { signed(self.span[axis]) } else { 0 };
            (from + step * signed(term.axes[axis + 1])).unsigned_abs()
        };
        to_usize(along(0) * self.pitch + along(1))
    }

    /// Copies what the windows of some lines from a first row on see, and returns the distance of lines.
    fn copy(
        &self,
        (pack, from): (Pack, &Tensor<'_>),
        of: &Contraction,
        group: u64,
        first: At,
        lines: u64,
        to: &mut Vec<f32>,
    ) -> usize {
        let Contraction { gathered, .. } = of;
        let [rows, cols] = [&gathered.axes[1], &gathered.axes[2]];
        let (pitch, start) = (to_usize(self.pitch), group * gathered.group + first.lead * gathered.row_lead);
        to.clear();
        to.resize((to_usize(lines + self.span[0]) + 1) * pitch + 2 * COLS, 0.0);
        // The elements of a line that are inside the tensor.
        let left = signed(first.axes[2]) + self.lowest[1];
        let skipped = left.min(0).unsigned_abs();
        let column = left.max(0).unsigned_abs();
        let count = (self.pitch.saturating_sub(skipped)).min(cols.extent.saturating_sub(column));
        for (line, to) in (0..lines + self.span[0]).zip(to.chunks_exact_mut(pitch)) {
            let row = signed(first.axes[1] + line) + self.lowest[0];
            let Some(row) = u64::try_from(row).ok().filter(|&row| row < rows.extent) else { continue };
            if count > 0 {
                let to = &mut to[to_usize(skipped)..];
                let offset = start + row * rows.stride + column * cols.stride;
                pack.copy(from, offset, [1, to_usize(count)], [0, cols.stride], to, to_usize(count));
            }
        }
        pitch
    }
}

/// Runs whose lines have at most [`MOST_POSITIONS`].
fn short(runs: Vec<Run>) -> Vec<Run> {
    let parts = |run: Run| {
        (0..run.length).step_by(MOST_POSITIONS).map(move |start| {
            let mut first = run.first;
            first.axes[super::MAX_AXES - 1] += start as u64;
            Run { first, length: (run.length - start).min(MOST_POSITIONS) }
        })
    };
    runs.into_iter().flat_map(parts).collect()
}

impl Depthwise<'_> {
    /// Channels of a task: each thread has some if there are enough.
    fn channels(&self, of_thread: bool) -> u64 {
        let groups = self.contraction.groups;
        let most = if of_thread { groups.div_ceil(2 * threads::count()).next_multiple_of(16) } else { groups };
        most.min(MOST_CHANNELS)
    }

    /// y or dx, vectors of channels.
    fn across_channels(&self) {
        let phases = Phases::of(self.contraction);
        let channels = self.channels(false);
        let chunks = self.contraction.groups.div_ceil(channels);
        let lines = phases.largest().rows.count().div_ceil(COLS as u64);
        let work = self.contraction.products_inside();
        threads::for_each(phases.count * lines * chunks, work, |task| {
            let phase = phases.at(task / (lines * chunks));
            let first = task % chunks * channels;
            let groups = first..self.contraction.groups.min(first + channels);
            let count = phase.contraction.rows.count();
            let first_row = task / chunks % lines * COLS as u64;
            let rows = first_row.min(count)..count.min(first_row + COLS as u64);
            self.rows_across(&phase.contraction, [phase.plain_start, phase.out_start], groups, rows);
        });
    }

    fn rows_across(&self, of: &Contraction, [plain_start, out_start]: [u64; 2], groups: Range<u64>, rows: Range<u64>) {
        let windows = Windows { contraction: of, group: groups.start };
        let (of_rows, of_terms) = (windows.rows(), windows.terms());
        let count = to_usize(groups.end - groups.start);
        let terms = if self.factors.is_some() { of.terms.count() } else { 0 };
        let mut weights = vec![0.0; count * to_usize(terms)];
        for (term, weights) in weights.chunks_exact_mut(count).enumerate() {
            let Some((_, plain)) = &self.factors else { break };
            let offset = plain_start + of.plain.offset(groups.start, of.terms.at(term as u64), 0);
            self.pack.copy(plain, offset, [1, count], [0, of.plain.group], weights, count);
        }
        let bases: Vec<_> = (0..terms).map(|term| windows.base(&of_terms, of.terms.at(term))).collect();
        let mut levels = Levels::new(count);
        for row in rows {
            let run = Run { first: of.rows.at(row), length: 1 };
            levels.clear();
            for (base, weights) in bases.iter().zip(weights.chunks_exact(count)) {
                let Inside { offset, range, .. } = windows.inside(&of_rows, &run, base);
                if let (Some((gathered, _)), false) = (&self.factors, range.is_empty()) {
                    self.pack.add_multiplied(levels.chain(1), weights, gathered, offset);
                }
            }
            self.finish_across(of, groups.start, out_start, run.first, levels.total());
        }
    }

    /// The epilogue of the sums of neighbouring channels at one place of a phase.
    fn finish_across(&self, of: &Contraction, first_group: u64, out_start: u64, at: At, sums: &[f32]) {
        for (panel, sums) in sums.chunks(COLS).enumerate() {
            let group = first_group + (panel * COLS) as u64;
            let bias = of.epilogue.bias.map(|bias| Line { offset: group * bias.group, stride: bias.group });
            let beside = of.epilogue.beside.as_ref();
            let places = Places {
                out: Line { offset: out_start + of.out.offset(group, at, 0), stride: of.out.group },
                bias: bias.unwrap_or_default(),
                beside: beside
                    .map(|pre| Line { offset: pre.offset(group, at, 0), stride: pre.group })
                    .unwrap_or_default(),
            };
            // SAFETY: each place of a channel is of one task.
            unsafe { self.finish.line(sums, &places) };
        }
    }

    /// y or dx, vectors of positions.
    fn along_positions(&self) {
        let phases = Phases::of(self.contraction);
        let (groups, largest) = (self.contraction.groups, phases.largest().rows);
        // Whole lines, unless one is more.
        let width = |rows: &Indices| rows.axes[super::MAX_AXES - 1].max(1);
        let lines = (POSITIONS_OF_TASK / width(&largest)).max(1);
        let of_task = |rows: &Indices| (lines * width(rows)).min(POSITIONS_OF_TASK);
        let blocks = largest.count().div_ceil(of_task(&largest));
        threads::for_each(phases.count * groups * blocks, self.contraction.products_inside(), |task| {
            let phase = phases.at(task / (groups * blocks));
            let (count, of_task) = (phase.contraction.rows.count(), of_task(&phase.contraction.rows));
            let first = task % blocks * of_task;
            let rows = first.min(count)..count.min(first + of_task);
            let (of, starts, group) =
                (&phase.contraction, [phase.plain_start, phase.out_start], task / blocks % groups);
            match Grid::of(of) {
                Some(grid) => self.rows_of_grid(of, &grid, starts, group, &rows),
                None => self.rows_along(of, starts, group, &rows),
            }
        });
    }

    /// The sums of whole lines by a copy of what their windows see, with zeros beside the tensor: every element of the kernel is an offset in it.
    fn rows_of_grid(
        &self,
        of: &Contraction,
        grid: &Grid,
        [plain_start, out_start]: [u64; 2],
        group: u64,
        rows: &Range<u64>,
    ) {
        let Some((gathered, plain)) = &self.factors else {
            return self.rows_along(of, [plain_start, out_start], group, rows);
        };
        let terms = (0..of.terms.count()).map(|term| of.terms.at(term));
        let (offsets, weights): (Vec<_>, Vec<_>) =
            terms.map(|at| (grid.offset(at), single(plain.load(plain_start + of.plain.offset(group, at, 0))))).unzip();
        let [_, height, width] = of.rows.axes;
        let (mut copy, mut sums) = (Vec::new(), Vec::new());
        let mut row = rows.start;
        while row < rows.end {
            // The lines of one sample.
            let lines = (rows.end - row).div_ceil(width).min(height - row / width % height);
            let first = of.rows.at(row);
            let pitch = grid.copy((self.pack, gathered), of, group, first, lines, &mut copy);
            sums.resize((to_usize(lines) * pitch).next_multiple_of(COLS), 0.0);
            self.pack.of_grid(&copy, &offsets, &weights, &mut sums);
            for (line, sums) in sums.chunks(pitch).take(to_usize(lines)).enumerate() {
                let mut at = first;
                at.axes[1] += line as u64;
                self.finish_along(of, group, out_start, at, &sums[..to_usize(width)]);
            }
            row += lines * width;
        }
    }

    fn rows_along(&self, of: &Contraction, [plain_start, out_start]: [u64; 2], group: u64, rows: &Range<u64>) {
        let windows = Windows { contraction: of, group };
        let (of_rows, of_terms) = (windows.rows(), windows.terms());
        let weight = |plain: &Tensor<'_>, at: At| single(plain.load(plain_start + of.plain.offset(group, at, 0)));
        let tap = |plain: &Tensor<'_>, at: At| (windows.base(&of_terms, at), weight(plain, at));
        let terms = (0..of.terms.count()).map(|term| of.terms.at(term));
        let taps: Vec<_> = terms.filter_map(|at| self.factors.as_ref().map(|(_, plain)| tap(plain, at))).collect();
        let mut line = vec![0.0; MOST_POSITIONS];
        let mut levels = Levels::new(MOST_POSITIONS);
        for run in short(of_rows.runs(rows)) {
            levels.clear();
            for (base, weight) in &taps {
                let Inside { offset, stride, range } = windows.inside(&of_rows, &run, base);
                if let (Some((gathered, _)), false) = (&self.factors, range.is_empty()) {
                    let sums = &mut levels.chain(1)[..run.length][range];
                    self.add_scaled(sums, *weight, gathered, offset, stride, &mut line);
                }
            }
            self.finish_along(of, group, out_start, run.first, &levels.total()[..run.length]);
        }
    }

    fn add_scaled(&self, sums: &mut [f32], factor: f32, from: &Tensor<'_>, offset: u64, stride: u64, line: &mut [f32]) {
        if stride == 1 {
            return self.pack.add_scaled(sums, factor, from, offset);
        }
        let line = &mut line[..sums.len()];
        self.pack.copy(from, offset, [1, line.len()], [0, stride], line, line.len());
        sums.iter_mut().zip(line).for_each(|(sum, element)| *sum += factor * *element);
    }

    /// The epilogue of the sums of neighbouring positions of one channel, in a phase.
    fn finish_along(&self, of: &Contraction, group: u64, out_start: u64, first: At, sums: &[f32]) {
        let last = super::MAX_AXES - 1;
        for (panel, sums) in sums.chunks(COLS).enumerate() {
            let mut at = first;
            at.axes[last] += (panel * COLS) as u64;
            let bias = of.epilogue.bias.map(|bias| Line { offset: group * bias.group, stride: 0 });
            let beside = of.epilogue.beside.as_ref();
            let places = Places {
                out: Line { offset: out_start + of.out.offset(group, at, 0), stride: of.out.axes[last] },
                bias: bias.unwrap_or_default(),
                beside: beside
                    .map(|pre| Line { offset: pre.offset(group, at, 0), stride: pre.axes[last] })
                    .unwrap_or_default(),
            };
            // SAFETY: each place of a channel is of one task.
            unsafe { self.finish.line(sums, &places) };
        }
    }

    /// dweight, vectors of channels.
    fn weight_across_channels(&self) {
        let of = self.contraction;
        let channels = self.channels(true);
        threads::for_each(of.groups.div_ceil(channels), of.products_inside(), |task| {
            let groups = task * channels..of.groups.min((task + 1) * channels);
            let windows = Windows { contraction: of, group: groups.start };
            let (of_rows, of_terms) = (windows.rows(), windows.terms());
            let taps: Vec<At> = (0..of.rows.count()).map(|row| of.rows.at(row)).collect();
            let bases: Vec<_> = taps.iter().map(|&at| windows.base(&of_rows, at)).collect();
            let count = to_usize(groups.end - groups.start);
            let mut levels: Vec<_> = taps.iter().map(|_| Levels::new(count)).collect();
            let mut dy = vec![0.0; count];
            if let Some((gathered, plain)) = &self.factors {
                for term in 0..of.terms.count() {
                    let run = Run { first: of.terms.at(term), length: 1 };
                    let offset = of.plain.offset(groups.start, run.first, 0);
                    self.pack.copy(plain, offset, [1, count], [0, 1], &mut dy, count);
                    for (base, levels) in bases.iter().zip(&mut levels) {
                        let Inside { offset, range, .. } = windows.inside(&of_terms, &run, base);
                        if !range.is_empty() {
                            self.pack.add_multiplied(levels.chain(1), &dy, gathered, offset);
                        }
                    }
                }
            }
            for (&at, levels) in taps.iter().zip(&mut levels) {
                self.finish_across(of, groups.start, 0, at, levels.total());
            }
        });
    }

    /// dweight, vectors of positions.
    fn weight_along_positions(&self) {
        let of = self.contraction;
        threads::for_each(of.groups, of.products_inside(), |group| {
            let windows = Windows { contraction: of, group };
            let (of_rows, of_terms) = (windows.rows(), windows.terms());
            let taps: Vec<At> = (0..of.rows.count()).map(|row| of.rows.at(row)).collect();
            let bases: Vec<_> = taps.iter().map(|&at| windows.base(&of_rows, at)).collect();
            let mut levels: Vec<_> = taps.iter().map(|_| Levels::new(8)).collect();
            let (mut dy, mut x) = (vec![0.0; MOST_POSITIONS], vec![0.0; MOST_POSITIONS]);
            let runs = if self.factors.is_some() { short(of_terms.runs(&(0..of.terms.count()))) } else { Vec::new() };
            for (run, (gathered, plain)) in runs.iter().flat_map(|run| self.factors.iter().map(move |both| (run, both)))
            {
                let dy = &mut dy[..run.length];
                let stride = of.plain.axes[super::MAX_AXES - 1];
                let offset = of.plain.offset(group, run.first, 0);
                self.pack.copy(plain, offset, [1, run.length], [0, stride], dy, run.length);
                for (base, levels) in bases.iter().zip(&mut levels) {
                    let Inside { offset, stride, range } = windows.inside(&of_terms, run, base);
                    let dy = &dy[range];
                    let sums = levels.chain(dy.len().div_ceil(8));
                    let Ok(sums) = sums.try_into() else { continue };
                    if stride == 1 {
                        self.pack.add_dot(sums, dy, gathered, offset);
                    } else {
                        let x = &mut x[..dy.len()];
                        self.pack.copy(gathered, offset, [1, dy.len()], [0, stride], x, dy.len());
                        dot(sums, dy, x);
                    }
                }
            }
            for (&at, levels) in taps.iter().zip(&mut levels) {
                let [a, b, c, d, e, f, g, h] = *levels.total() else { continue };
                let sum = ((a + b) + (c + d)) + ((e + f) + (g + h));
                self.finish_across(of, group, 0, at, &[sum]);
            }
        });
    }
}

/// Adds the products of two lines to eight sums, each of which takes every eighth one.
fn dot(sums: &mut [f32; 8], left: &[f32], right: &[f32]) {
    for (left, right) in left.chunks(8).zip(right.chunks(8)) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum += left * right;
        }
    }
}
