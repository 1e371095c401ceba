//! Pieces of x are counted, and then each writes its positions where those of the pieces before it end.

use std::ops::{BitAnd, Range};

use super::{Nonzero, Positions, Valid, forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, Tensor, room, threads};
use crate::dtype::DType;
use crate::kernel::Accepted;
use crate::narrow::{signed, to_usize};
use crate::ops::movement::cpu::Bits;
use crate::ops::walk::Walk;

/// Elements of a task.
const PIECE: u64 = 16 * 1024;
/// Elements whose positions are found before the first of them is written.
const BLOCK: usize = 512;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(|valid, operands| {
        let nonzero = &valid.derived;
        match nonzero.x.dtype().size_bytes() {
            1 => run::<u8>(nonzero, valid.fields.per_axis, operands),
            2 => run::<u16>(nonzero, valid.fields.per_axis, operands),
            4 => run::<u32>(nonzero, valid.fields.per_axis, operands),
            _ => run::<u64>(nonzero, valid.fields.per_axis, operands),
        }
    }))
}

/// Elements as bits.
trait Masked: Bits + PartialEq + BitAnd<Output = Self> {}

impl<T: Bits + PartialEq + BitAnd<Output = T>> Masked for T {}

fn run<T: Masked>(nonzero: &Nonzero, per_axis: bool, operands: &Operands<'_>) -> Outcome {
    let walk = nonzero.walk();
    let elements = walk.elements();
    let x = operands.get(forward::X).filter(|x| !x.desc().is_empty());
    let source = x.map(|x| Source::<T> { x, walk: &walk, mask: T::low(nonzero.mask) });
    let pieces = if source.is_some() { elements.div_ceil(PIECE) } else { 0 };
    let of_piece = |piece: u64| piece * PIECE..elements.min((piece + 1) * PIECE);
    // 1. How many positions each piece has, and how many those before it.
    let counts = threads::map(pieces, elements, |piece| {
        Ok::<_, Shortage>(source.as_ref().map_or(0, |source| source.count(of_piece(piece))))
    })?;
    let mut befores = room(pieces)?;
    let mut total = 0;
    for count in counts {
        befores.push(total);
        total += count;
    }
    // 2. The positions, and what is behind them.
    if let Some(indices) = operands.get(forward::INDICES).filter(|indices| !indices.desc().is_empty()) {
        let target = Target { nonzero, columns: per_axis.then(|| nonzero.x.dims()), indices };
        if let Some(source) = &source {
            threads::for_each(pieces, elements, |piece| {
                let before = befores[to_usize(piece)];
                if before < nonzero.rows {
                    target.write(source, of_piece(piece), before);
                }
            });
        }
        let (filled, rows) = (total.min(nonzero.rows), nonzero.rows);
        threads::for_each((rows - filled).div_ceil(PIECE), rows - filled, |piece| {
            let first = filled + piece * PIECE;
            target.fill(first..rows.min(first + PIECE));
        });
    }
    if let Some(count) = operands.get(forward::COUNT) {
        // SAFETY: the threads that counted have ended, and this one alone writes.
        unsafe { count.store_integer(0, signed(total)) };
    }
    Ok(())
}

/// Elements of x.
struct Source<'x, T> {
    x: Tensor<'x>,
    walk: &'x Walk,
    mask: T,
}

impl<T: Masked> Source<'_, T> {
    /// Calls `block` with the numbers of the elements that are not 0, block by block of at most [`BLOCK`] elements: the number of its first element, and how
    /// many elements behind that each is.
    fn for_blocks(&self, elements: Range<u64>, mut block: impl FnMut(u64, &[u16])) {
        let inner = self.walk.dims.last().copied().unwrap_or(1);
        let step = self.walk.strides[1].last().copied().unwrap_or(0);
        let mut at = elements.start;
        let mut found = [0; BLOCK];
        while at < elements.end {
            let count = (inner - at % inner).min(elements.end - at).min(BLOCK as u64);
            let from = self.walk.offset(1, at);
            let mut end = 0;
            for (number, place) in (0u16..).zip((0..count).map(|i| from + i * step)) {
                found[end] = number;
                end += usize::from(self.is_there(place));
            }
            block(at, &found[..end]);
            at += count;
        }
    }

    fn is_there(&self, place: u64) -> bool {
        // SAFETY: the generic check proved that the element lies in x, and nothing writes x meanwhile.
        let bits = unsafe { *self.x.bits::<T>(place) };
        bits & self.mask != T::low(0)
    }

    fn count(&self, elements: Range<u64>) -> u64 {
        let mut count = 0;
        if let ([_], [1]) = (&self.walk.dims[..], &self.walk.strides[1][..]) {
            let (first, last) = (self.x.bits::<T>(elements.start), self.x.bits::<T>(elements.end - 1));
            // SAFETY: the first and the last element lie in x, as `bits` checked, hence all between them; nothing writes x meanwhile.
            let own = unsafe { std::slice::from_raw_parts(first, last.offset_from_unsigned(first) + 1) };
            return own.iter().filter(|&&bits| bits & self.mask != T::low(0)).count() as u64;
        }
        self.for_blocks(elements, |_, found| count += found.len() as u64);
        count
    }
}

/// Where positions go.
struct Target<'n> {
    nonzero: &'n Nonzero,
    /// The extents of x, if the positions along them are written.
    columns: Option<&'n [u64]>,
    indices: Tensor<'n>,
}

impl Target<'_> {
    /// Writes the positions of a piece from row `before` on, and no more than there are rows.
    fn write<T: Masked>(&self, source: &Source<'_, T>, elements: Range<u64>, before: u64) {
        let (mut row, mut positions) = (before, Positions::NONE);
        source.for_blocks(elements, |first, found| {
            let rows = self.nonzero.rows - row.min(self.nonzero.rows);
            for &number in found.iter().take(usize::try_from(rows).unwrap_or(usize::MAX)) {
                let number = first + u64::from(number);
                match self.columns {
                    None => self.put(row, 0, number),
                    Some(dims) => {
                        positions.go_to(dims, number);
                        for (column, &position) in (0..).zip(&positions.along[..dims.len()]) {
                            self.put(row, column, position);
                        }
                    }
                }
                row += 1;
            }
        });
    }

    fn fill(&self, rows: Range<u64>) {
        let columns = self.columns.map_or(1, |dims| dims.len() as u64);
        for row in rows {
            (0..columns).for_each(|column| self.put(row, column, self.nonzero.fill));
        }
    }

    fn put(&self, row: u64, column: u64, bits: u64) {
        let at = row * self.nonzero.row + column * self.nonzero.column;
        // SAFETY: each element of the indices is of one task.
        unsafe {
            match self.indices.desc().dtype() {
                DType::I64 => *self.indices.bits(at) = bits,
                _ => *self.indices.bits(at) = u32::low(bits),
            }
        }
    }
}
