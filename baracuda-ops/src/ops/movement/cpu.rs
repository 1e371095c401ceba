//! Elements move as bits of their size: line by line, in tiles where lines of one side lie across those of the other, or in one piece.

use super::geometry::{Axis, Moves, Outside};
use crate::backend::cpu::{Tensor, threads};
use crate::narrow::{signed, to_usize};
use crate::tensor::MAX_RANK;

/// Elements of a task.
const PIECE: u64 = 16 * 1024;
/// The least extents on both sides of a tile: with fewer, lines alone reuse what the first cache holds.
const LEAST_TILE: u64 = 4;

/// Bits of an element.
pub(in crate::ops) trait Bits: Copy + Default + Send + Sync {
    /// The low bits of a number.
    fn low(bits: u64) -> Self;
}

macro_rules! bits {
    ($($Type:ty),*) => {$(impl Bits for $Type {
        #[allow(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
        fn low(bits: u64) -> Self {
            bits as Self
        }
    })*};
}
bits!(u8, u16, u32, u64);

/// Moves elements of `x` to `y`, which share no memory.
pub(in crate::ops) fn run(moves: &Moves, outside: Outside, x: &Tensor<'_>, y: &Tensor<'_>) {
    match moves.unit_bytes {
        1 => run_as::<u8>(moves, outside, x, y),
        2 => run_as::<u16>(moves, outside, x, y),
        4 => run_as::<u32>(moves, outside, x, y),
        _ => run_as::<u64>(moves, outside, x, y),
    }
}

fn run_as<T: Bits>(moves: &Moves, outside: Outside, x: &Tensor<'_>, y: &Tensor<'_>) {
    let is_tile = |&at: &usize| moves.axes[at].extent.min(moves.line().extent) >= LEAST_TILE;
    if let Some(across) = moves.across().filter(is_tile) {
        // The sides of a tile: lines of at least 64 bytes on both sides, and 8 KiB in all.
        match size_of::<T>() {
            1 => tiles::<T, 64>(moves, across, x, y),
            2 => tiles::<T, 64>(moves, across, x, y),
            4 => tiles::<T, 32>(moves, across, x, y),
            _ => tiles::<T, 16>(moves, across, x, y),
        }
        return;
    }
    let (units, line) = (moves.units(), moves.line());
    threads::for_each(units.div_ceil(PIECE), units, |piece| {
        let (mut at, end) = (piece * PIECE, units.min((piece + 1) * PIECE));
        let mut outer = Outer::new(moves, at / line.extent);
        while at < end {
            let first = at % line.extent;
            let count = (line.extent - first).min(end - at);
            let to = outer.to + first * line.to;
            match outer.from(moves, outside) {
                Some(from) => segment::<T>(&line, outside, [x, y], (from, to), first, count),
                None => fill::<T>(y, to, line.to, count, outside),
            }
            at += count;
            outer.step(moves);
        }
    });
}

/// The place of a line among the outer axes.
struct Outer {
    position: [u64; MAX_RANK],
    /// Where the line is written.
    to: u64,
}

impl Outer {
    fn new(moves: &Moves, mut line: u64) -> Self {
        let mut outer = Self { position: [0; MAX_RANK], to: moves.to };
        for (at, axis) in outer_axes(moves).iter().enumerate().rev() {
            outer.position[at] = line % axis.extent;
            outer.to += outer.position[at] * axis.to;
            line /= axis.extent;
        }
        outer
    }

    /// The next line; after the last one the first.
    fn step(&mut self, moves: &Moves) {
        for (at, axis) in outer_axes(moves).iter().enumerate().rev() {
            self.position[at] += 1;
            self.to += axis.to;
            if self.position[at] < axis.extent {
                return;
            }
            self.to -= axis.extent * axis.to;
            self.position[at] = 0;
        }
    }

    /// Where the line is read, unless it lies outside.
    fn from(&self, moves: &Moves, outside: Outside) -> Option<i64> {
        let mut from = signed(moves.from);
        for (axis, &position) in outer_axes(moves).iter().zip(&self.position) {
            let element = match &axis.edge {
                Some(edge) => edge.source(position, outside)?,
                None => position,
            };
            from += signed(element) * axis.from;
        }
        Some(from)
    }
}

fn outer_axes(moves: &Moves) -> &[Axis] {
    moves.axes.split_last().map_or(&[], |(_, outer)| outer)
}

/// The element at a place that is known to be one.
fn place(at: i64) -> u64 {
    u64::try_from(at).unwrap_or(u64::MAX)
}

/// Moves positions `first` to before `first + count` of a line, of which those before it are read from `from` on and the first is written at `to`.
fn segment<T: Bits>(
    line: &Axis,
    outside: Outside,
    [x, y]: [&Tensor<'_>; 2],
    (from, to): (i64, u64),
    first: u64,
    count: u64,
) {
    let Some(edge) = &line.edge else {
        return strided::<T>([x, y], (from + signed(first) * line.from, line.from), (to, line.to), count);
    };
    let at = |position: u64| to + (position - first) * line.to;
    let (start, end) = match edge.dilation {
        1 => edge.inside(first + count),
        _ => (0, 0),
    };
    let (start, end) = (start.clamp(first, first + count), end.clamp(first, first + count));
    let (start, end) = if start < end { (start, end) } else { (first, first) };
    for position in (first..start).chain(end..first + count) {
        match edge.source(position, outside) {
            Some(element) => strided::<T>([x, y], (from + signed(element) * line.from, 0), (at(position), 0), 1),
            None => fill::<T>(y, at(position), 0, 1, outside),
        }
    }
    if start < end {
        let element = signed(start) - edge.before;
        strided::<T>([x, y], (from + element * line.from, line.from), (at(start), line.to), end - start);
    }
}

/// Moves elements that are steps apart.
#[inline(always)]
pub(in crate::ops) fn strided<T: Bits>(
    [x, y]: [&Tensor<'_>; 2],
    (from, from_step): (i64, i64),
    (to, to_step): (u64, u64),
    count: u64,
) {
    // All others lie between the first and the last.
    let _: *mut T = x.bits(place(from + signed(count - 1) * from_step));
    let _: *mut T = y.bits(to + (count - 1) * to_step);
    let (from, to): (*const T, *mut T) = (x.bits::<T>(place(from)).cast_const(), y.bits(to));
    if (from_step, to_step) == (1, 1) {
        // SAFETY: both ranges lie in their tensors, which do not overlap; the output's are of this task alone.
        unsafe { std::ptr::copy_nonoverlapping(from, to, to_usize(count)) };
        return;
    }
    let to_step = to_usize(to_step);
    let from_step = isize::try_from(from_step).unwrap_or(0);
    let (mut from, mut to) = (from, to);
    for _ in 0..count {
        // SAFETY: as above; behind the last element the pointers are not used.
        unsafe { *to = *from };
        (from, to) = (from.wrapping_offset(from_step), to.wrapping_add(to_step));
    }
}

/// Writes the constant.
pub(in crate::ops) fn fill<T: Bits>(y: &Tensor<'_>, to: u64, step: u64, count: u64, outside: Outside) {
    let Outside::Constant(bits) = outside else { return };
    let _: *mut T = y.bits(to + (count - 1) * step);
    let (mut at, step): (*mut T, usize) = (y.bits(to), to_usize(step));
    for _ in 0..count {
        // SAFETY: the elements lie in the output and are of this task alone; behind the last one the pointer is not used.
        unsafe { *at = T::low(bits) };
        at = at.wrapping_add(step);
    }
}

/// Moves tiles of `SIDE` by `SIDE` elements, whose rows are lines of x, along the axis `across`, and whose columns are those of y.
fn tiles<T: Bits, const SIDE: usize>(moves: &Moves, across: usize, x: &Tensor<'_>, y: &Tensor<'_>) {
    let side = SIDE as u64;
    let (line, rows) = (moves.line(), moves.axes[across]);
    let tiles = |axis: &Axis| axis.extent.div_ceil(side);
    let others = || outer_axes(moves).iter().enumerate().filter(|(at, _)| *at != across).map(|(_, axis)| axis);
    let count = others().map(|axis| axis.extent).product::<u64>() * tiles(&line) * tiles(&rows);
    threads::for_each(count, moves.units(), |tile| {
        let (column, rest) = (tile % tiles(&line) * side, tile / tiles(&line));
        let (row, mut rest) = (rest % tiles(&rows) * side, rest / tiles(&rows));
        let (mut from, mut to) = (signed(moves.from), moves.to);
        for (axis, position) in [(&line, column), (&rows, row)] {
            (from, to) = (from + signed(position) * axis.from, to + position * axis.to);
        }
        for axis in others() {
            let position = rest % axis.extent;
            rest /= axis.extent;
            (from, to) = (from + signed(position) * axis.from, to + position * axis.to);
        }
        let columns = to_usize(side.min(line.extent - column));
        let rows_here = to_usize(side.min(rows.extent - row));
        let mut held = [[T::default(); SIDE]; SIDE];
        let rows_from = isize::try_from(rows.from).unwrap_or(0);
        for (at, held) in held[..columns].iter_mut().enumerate() {
            let first = from + signed(at as u64) * line.from;
            let _: *mut T = x.bits(place(first + signed(rows_here as u64 - 1) * rows.from));
            let mut next: *const T = x.bits::<T>(place(first)).cast_const();
            for held in &mut held[..rows_here] {
                // SAFETY: the elements lie between the first and the last, in the tensor; behind the last the pointer is not used.
                *held = unsafe { *next };
                next = next.wrapping_offset(rows_from);
            }
        }
        for at in 0..rows_here {
            let first = to + at as u64 * rows.to;
            let _: *mut T = y.bits(first + (columns as u64 - 1) * line.to);
            let (mut next, step): (*mut T, usize) = (y.bits(first), to_usize(line.to));
            for held in &held[..columns] {
                // SAFETY: the elements lie in the output and are of this task alone; behind the last the pointer is not used.
                unsafe { *next = held[at] };
                next = next.wrapping_add(step);
            }
        }
    });
}
