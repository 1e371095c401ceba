//! Elements move as bits of their size, line by line where an index names a line of them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Lookups, Valid, forward};
use crate::backend::cpu::{Tensor, threads};
use crate::kernel::Accepted;
use crate::narrow::signed;
use crate::ops::movement::cpu::{Bits, fill, strided};
use crate::ops::movement::geometry::Outside;
use crate::ops::walk::Walk;

/// Elements of a task.
const PIECE: u64 = 16 * 1024;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid
        .on_cpu(|valid, operands| {
            let from_end = valid.fields.from_end;
            if let (Some(indices), Some(y)) = (operands.get(forward::INDICES), operands.get(forward::Y)) {
                let lookup = Lookup { lookups: &valid.derived, indices, from_end, x: operands.get(forward::X), y };
                match valid.derived.unit_bytes {
                    1 => lookup.run::<u8>(),
                    2 => lookup.run::<u16>(),
                    4 => lookup.run::<u32>(),
                    _ => lookup.run::<u64>(),
                }
            }
            let (missing, indices) = (operands.get(forward::MISSING), operands.get(forward::INDICES));
            count(missing, indices, valid.derived.extent, from_end);
        })
        .batch_invariant())
}

/// The position that an index names, if there is one.
pub(in crate::ops::index) fn position(indices: &Tensor<'_>, at: u64, extent: u64, from_end: bool) -> Option<u64> {
    let index = i128::from(indices.load_integer(at));
    let from_start = if index < 0 && from_end { index + i128::from(extent) } else { index };
    u64::try_from(from_start).ok().filter(|&position| position < extent)
}

struct Lookup<'v> {
    lookups: &'v Lookups,
    indices: Tensor<'v>,
    from_end: bool,
    /// There is none without elements.
    x: Option<Tensor<'v>>,
    y: Tensor<'v>,
}

impl Lookup<'_> {
    fn run<T: Bits>(&self) {
        let (units, line) = (self.lookups.units(), self.lookups.line());
        threads::for_each(units.div_ceil(PIECE), units, |piece| {
            let (mut at, end) = (piece * PIECE, units.min((piece + 1) * PIECE));
            while at < end {
                let (number, first) = (at / line.extent, at % line.extent);
                let count = (line.extent - first).min(end - at);
                let [mut to, mut from, mut index] = self.start(number);
                (to, from, index) = (to + first * line.y, from + first * line.x, index + first * line.index);
                if line.index == 0 {
                    self.segment::<T>(index, (from, line.x), (to, line.y), count);
                } else {
                    for i in 0..count {
                        self.segment::<T>(index + i * line.index, (from + i * line.x, 0), (to + i * line.y, 0), 1);
                    }
                }
                at += count;
            }
        });
    }

    /// Where a line begins in y, and its places in x and among the indices.
    fn start(&self, mut number: u64) -> [u64; 3] {
        let outer = self.lookups.axes.split_last().map_or(&[][..], |(_, outer)| outer);
        let mut places = [0; 3];
        for axis in outer.iter().rev() {
            let position = number % axis.extent;
            number /= axis.extent;
            for (place, stride) in places.iter_mut().zip([axis.y, axis.x, axis.index]) {
                *place += position * stride;
            }
        }
        places
    }

    /// Elements that one index names.
    fn segment<T: Bits>(&self, index: u64, (from, from_step): (u64, u64), (to, to_step): (u64, u64), count: u64) {
        let Lookups { extent, apart, fill: bits, .. } = *self.lookups;
        match (position(&self.indices, index, extent, self.from_end), &self.x) {
            (Some(position), Some(x)) => {
                let from = signed(from + position * apart);
                strided::<T>([x, &self.y], (from, signed(from_step)), (to, to_step), count);
            }
            _ => fill::<T>(&self.y, to, to_step, count, Outside::Constant(bits)),
        }
    }
}

/// Writes how many indices are out of range, if that is asked for.
pub(in crate::ops::index) fn count(
    missing: Option<Tensor<'_>>,
    indices: Option<Tensor<'_>>,
    extent: u64,
    from_end: bool,
) {
    let Some(missing) = missing else { return };
    let found = AtomicU64::new(0);
    if let Some(indices) = indices {
        let walk = Walk::new(&[*indices.desc()]);
        let elements = walk.elements();
        threads::for_each(elements.div_ceil(PIECE), elements, |piece| {
            let elements = piece * PIECE..elements.min((piece + 1) * PIECE);
            let is_missing = |at: &u64| position(&indices, walk.offset(0, *at), extent, from_end).is_none();
            found.fetch_add(elements.filter(is_missing).count() as u64, Ordering::Relaxed);
        });
    }
    // SAFETY: the threads that counted have ended, and this one alone writes.
    unsafe { missing.store_integer(0, found.into_inner().cast_signed()) };
}
