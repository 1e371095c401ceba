//! Keys of values and of sorted elements are compared. Some values are sought side by side, step by step, so that their elements come from memory at once.

use super::{INDICES, LINES, Search, VALUES, Valid, forward};
use crate::backend::cpu::{Tensor, threads};
use crate::kernel::Accepted;
use crate::narrow::signed;
use crate::ops::movement::cpu::Bits;
use crate::ops::order::geometry::Keys;
use crate::ops::walk::Walk;

/// Values of a task.
const PIECE: u64 = 4096;
/// Values that are sought side by side.
const LANES: usize = 8;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(|valid, operands| {
        let (Some(values), Some(indices)) = (operands.get(forward::VALUES), operands.get(forward::INDICES)) else {
            return;
        };
        let search = &valid.derived;
        let sorted = operands.get(forward::SORTED).filter(|sorted| !sorted.desc().is_empty());
        let walk = Walk::new(&search.operands);
        let searches = Searches { search, keys: search.keys(), walk, sorted, values, indices };
        match values.desc().dtype().size_bytes() {
            1 => searches.run::<u8>(),
            2 => searches.run::<u16>(),
            4 => searches.run::<u32>(),
            _ => searches.run::<u64>(),
        }
    }))
}

struct Searches<'s> {
    search: &'s Search,
    keys: Keys,
    walk: Walk,
    /// There is none without elements.
    sorted: Option<Tensor<'s>>,
    values: Tensor<'s>,
    indices: Tensor<'s>,
}

/// What one operand has along a run: its first element, and the step to the next.
type Run = (u64, u64);

impl Searches<'_> {
    fn run<T: Bits + Into<u64>>(&self) {
        let elements = self.walk.elements();
        let inner = self.walk.dims.last().copied().unwrap_or(1);
        // A search takes as long as some elements of other ops.
        let work = elements.saturating_mul(1 + u64::from(self.search.length.checked_ilog2().unwrap_or(0)) / 4);
        threads::for_each(elements.div_ceil(PIECE), work, |piece| {
            let (mut at, end) = (piece * PIECE, elements.min((piece + 1) * PIECE));
            while at < end {
                let count = (inner - at % inner).min(end - at);
                let run = |operand: usize| {
                    (self.walk.offset(operand, at), self.walk.strides[operand].last().copied().unwrap_or(0))
                };
                self.seek::<T>([INDICES, VALUES, LINES].map(run), count);
                at += count;
            }
        });
    }

    /// Seeks `count` values of a run.
    fn seek<T: Bits + Into<u64>>(&self, [to, from, line]: [Run; 3], count: u64) {
        let (mut lines, mut wanted) = ([0; LANES], [0; LANES]);
        let mut first = 0;
        while first < count {
            let lanes = (first..count).zip(lines.iter_mut().zip(&mut wanted));
            let mut present = 0;
            for (number, (line_at, key)) in lanes {
                // SAFETY: the generic check proved that the element lies in values, and nothing writes values meanwhile.
                let bits = unsafe { *self.values.bits::<T>(from.0 + number * from.1) };
                (*line_at, *key) = (line.0 + number * line.1, self.keys.key(bits.into()));
                present += 1;
            }
            let found = match &self.sorted {
                Some(sorted) if self.search.is_right => {
                    self.find::<T>(sorted, &lines[..present], |at, key| key <= wanted[at])
                }
                Some(sorted) => self.find::<T>(sorted, &lines[..present], |at, key| key < wanted[at]),
                None => [0; LANES],
            };
            for (number, position) in (first..count).zip(found) {
                // SAFETY: each element of the indices is of one task.
                unsafe { self.indices.store_integer(to.0 + number * to.1, signed(position)) };
            }
            first += LANES as u64;
        }
    }

    /// Of lines that begin at `lines` how many elements are before what is sought in each; `is_before` is told which line it is, and an element's key.
    fn find<T: Bits + Into<u64>>(
        &self,
        sorted: &Tensor<'_>,
        lines: &[u64],
        is_before: impl Fn(usize, u64) -> bool,
    ) -> [u64; LANES] {
        let mut found = [0; LANES];
        // The position is one of `left` behind what was found, or the one behind these.
        let mut left = self.search.length;
        while left > 0 {
            let half = (left / 2).max(1);
            for (at, (found, &line)) in found.iter_mut().zip(lines).enumerate() {
                // SAFETY: `found + half` is at most the length of a line, all of which lies in sorted, as the generic check proved; nothing writes sorted meanwhile.
                let bits = unsafe { *sorted.bits::<T>(line + (*found + half - 1) * self.search.step) };
                *found += if is_before(at, self.keys.key(bits.into())) { half } else { 0 };
            }
            left -= half;
        }
        found
    }
}
