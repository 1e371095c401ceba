//! Lines of records, a key and its position as one integer, in which no two are equal: however they are sorted, the result is the same. Short lines are sorted by one
//! thread each, long ones in pieces that are merged along diagonals.

use std::sync::Mutex;

use super::geometry::{INDICES, Keys, VALUES, X};
use super::{Order, Ordered, Valid, forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, Tensor, room, threads};
use crate::kernel::Accepted;
use crate::narrow::{signed, to_usize};
use crate::ops::movement::cpu::Bits;
use crate::ops::walk::Walk;

/// Records of a task.
const PIECE: u64 = 1 << 16;

pub(super) fn accept<F: Ordered>(valid: &Valid<F>) -> Accepted<'_> {
    Ok(valid.on_cpu(|valid, operands| run(&valid.derived, operands)))
}

fn run(order: &Order, operands: &Operands<'_>) -> Outcome {
    let Some(x) = operands.get(forward::X) else { return Ok(()) };
    if order.kept == 0 {
        return Ok(());
    }
    let outputs = [operands.get(forward::VALUES), operands.get(forward::INDICES)];
    let lines = Lines { order, keys: order.keys(), walk: order.lines(), x, outputs };
    match x.desc().dtype().size_bytes() {
        1 => lines.run::<u8>(),
        2 => lines.run::<u16>(),
        4 => lines.run::<u32>(),
        _ => lines.run::<u64>(),
    }
}

/// A key and its position, in the order of keys and then of positions.
trait Record: Copy + Default + Ord + Send + Sync {
    fn new(key: u64, position: u64) -> Self;
    fn position(self) -> u64;
}

impl Record for u64 {
    fn new(key: u64, position: u64) -> Self {
        key << 32 | position
    }

    fn position(self) -> u64 {
        self & u64::from(u32::MAX)
    }
}

impl Record for u128 {
    fn new(key: u64, position: u64) -> Self {
        Self::from(key) << 64 | Self::from(position)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
    fn position(self) -> u64 {
        self as u64
    }
}

struct Lines<'l> {
    order: &'l Order,
    keys: Keys,
    walk: Walk,
    x: Tensor<'l>,
    /// The values and the indices.
    outputs: [Option<Tensor<'l>>; 2],
}

impl Lines<'_> {
    fn run<T: Bits + Into<u64>>(&self) -> Outcome {
        let fits = !self.keys.is_wide && self.order.length <= 1 << 32;
        if fits { self.run_with::<T, u64>() } else { self.run_with::<T, u128>() }
    }

    fn run_with<T: Bits + Into<u64>, R: Record>(&self) -> Outcome {
        let (lines, length) = (self.walk.elements(), self.order.length);
        if length >= 2 * PIECE && lines < threads::count() {
            return (0..lines).try_for_each(|line| self.long_line::<T, R>(line));
        }
        let group = (PIECE / length).max(1);
        threads::try_for_each(lines.div_ceil(group), lines.saturating_mul(length), |task| {
            let mut records = zeros::<R>(length)?;
            for line in task * group..lines.min((task + 1) * group) {
                self.fill::<T, R>(line, 0, &mut records);
                sort_first(&mut records, self.order.kept);
                self.store::<T, R>(line, 0, &records[..to_usize(self.order.kept)]);
            }
            Ok(())
        })
    }

    /// A line that many threads sort together.
    fn long_line<T: Bits + Into<u64>, R: Record>(&self, line: u64) -> Outcome {
        let (length, kept) = (self.order.length, self.order.kept);
        if kept <= PIECE / 4 {
            let parts = threads::map(length.div_ceil(PIECE), length, |piece| {
                let first = piece * PIECE;
                let mut records = zeros::<R>(PIECE.min(length - first))?;
                self.fill::<T, R>(line, first, &mut records);
                sort_first(&mut records, kept);
                records.truncate(to_usize(kept));
                Ok::<_, Shortage>(records)
            })?;
            let mut records = room(parts.iter().map(|part| part.len() as u64).sum())?;
            parts.iter().for_each(|part| records.extend_from_slice(part));
            sort_first(&mut records, kept);
            self.store::<T, R>(line, 0, &records[..to_usize(kept)]);
            return Ok(());
        }
        let (mut from, mut to) = (zeros::<R>(length)?, zeros::<R>(length)?);
        for_pieces(&mut from, |first, records| {
            self.fill::<T, R>(line, first, records);
            records.sort_unstable();
        });
        let mut run = to_usize(PIECE);
        while run < from.len() {
            let sorted = &from;
            for_pieces(&mut to, |first, merged| merge(sorted, run, to_usize(first), merged));
            std::mem::swap(&mut from, &mut to);
            run *= 2;
        }
        for_pieces(&mut from[..to_usize(kept)], |first, records| self.store::<T, R>(line, first, records));
        Ok(())
    }

    /// Where a line begins in an operand, and the step to the next of its elements.
    fn lies(&self, operand: usize, line: u64) -> (u64, u64) {
        (self.walk.offset(operand, line), self.order.steps[operand])
    }

    /// Makes records of the elements of a line from position `first` on.
    fn fill<T: Bits + Into<u64>, R: Record>(&self, line: u64, first: u64, records: &mut [R]) {
        let (start, step) = self.lies(X, line);
        for (position, record) in (first..).zip(records) {
            // SAFETY: the generic check proved that the element lies in x, and nothing writes x meanwhile.
            let bits = unsafe { *self.x.bits::<T>(start + position * step) };
            *record = R::new(self.keys.key(bits.into()), position);
        }
    }

    /// Writes the elements that come first, second and so on in a line, from number `first` on.
    fn store<T: Bits, R: Record>(&self, line: u64, first: u64, records: &[R]) {
        let [values, indices] = self.outputs;
        let (from, from_step) = self.lies(X, line);
        if let Some(values) = values {
            let (to, step) = self.lies(VALUES, line);
            for (at, record) in (first..).zip(records) {
                let position = from + record.position() * from_step;
                // SAFETY: the generic check proved that both elements lie in their operands, of which values overlaps nothing; each of its elements is of one task.
                unsafe { *values.bits::<T>(to + at * step) = *self.x.bits::<T>(position) };
            }
        }
        if let Some(indices) = indices {
            let (to, step) = self.lies(INDICES, line);
            for (at, record) in (first..).zip(records) {
                // SAFETY: each element of the indices is of one task.
                unsafe { indices.store_integer(to + at * step, signed(record.position())) };
            }
        }
    }
}

/// Records to be filled.
fn zeros<R: Record>(count: u64) -> Result<Vec<R>, Shortage> {
    let mut records = room(count)?;
    records.resize(to_usize(count), R::default());
    Ok(records)
}

/// Puts the first `kept` records in order at the front.
fn sort_first<R: Record>(records: &mut [R], kept: u64) {
    let kept = to_usize(kept).min(records.len());
    if kept < records.len() {
        records.select_nth_unstable(kept);
    }
    records[..kept].sort_unstable();
}

/// Does a task for each piece of some records, of which it is told the number of the first.
fn for_pieces<R: Record>(records: &mut [R], task: impl Fn(u64, &mut [R]) + Sync) {
    let count = records.len() as u64;
    let pieces: Vec<Mutex<&mut [R]>> = records.chunks_mut(to_usize(PIECE)).map(Mutex::new).collect();
    threads::for_each(pieces.len() as u64, count, |piece| {
        // No other task has this piece.
        if let Ok(mut records) = pieces[to_usize(piece)].lock() {
            task(piece * PIECE, &mut records);
        }
    });
}

/// Merges pairs of sorted runs of `run` records: those of `merged`, which begin with number `first` and lie in one pair.
fn merge<R: Record>(sorted: &[R], run: usize, first: usize, merged: &mut [R]) {
    let start = first / (2 * run) * (2 * run);
    let (pair, diagonal) = (&sorted[start..sorted.len().min(start + 2 * run)], first - start);
    let (left, right) = pair.split_at(run.min(pair.len()));
    // How many of those before come from the left run.
    let (mut low, mut high) = (diagonal.saturating_sub(right.len()), diagonal.min(left.len()));
    while low < high {
        let middle = low.midpoint(high);
        if left[middle] < right[diagonal - 1 - middle] {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let (mut left, mut right) = (left[low..].iter().peekable(), right[diagonal - low..].iter().peekable());
    for record in merged {
        let is_left = match (left.peek(), right.peek()) {
            (Some(left), Some(right)) => left < right,
            (is_left, _) => is_left.is_some(),
        };
        if let Some(&next) = if is_left { left.next() } else { right.next() } {
            *record = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_are_merged_are_in_order() {
        let mut state = 7u64;
        let mut records: Vec<u64> = (0..300_001)
            .map(|position| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                u64::new(state >> 60, position)
            })
            .collect();
        let mut expected = records.clone();
        expected.sort_unstable();
        for_pieces(&mut records, |_, piece| piece.sort_unstable());
        let (mut merged, mut run) = (vec![0u64; records.len()], to_usize(PIECE));
        while run < records.len() {
            for_pieces(&mut merged, |first, piece| merge(&records, run, to_usize(first), piece));
            std::mem::swap(&mut records, &mut merged);
            run *= 2;
        }
        assert_eq!(records, expected);
    }

    #[test]
    fn the_first_records_come_first() {
        let records = [5u64, 1, 4, 2, 3];
        for kept in 0..=5 {
            let mut sorted = records;
            sort_first(&mut sorted, kept);
            assert_eq!(&sorted[..to_usize(kept)], &[1, 2, 3, 4, 5][..to_usize(kept)]);
        }
    }
}
