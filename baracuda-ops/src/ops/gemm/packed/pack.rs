//! Copies that pack factors: elements of f32, f16 or bf16 widened to f32, or pairs of bf16.

use std::ops::Range;

use half::{bf16, f16};

use super::super::chains::CHAIN;
use super::isa::{Isa, add_dot, add_multiplied, add_scaled, padded, widen};
use super::{COLS, isa, tiles};
use crate::backend::cpu::Tensor;
use crate::dtype::{DType, Element};
use crate::narrow::to_usize;

/// What factors are packed as: f32, or bf16, of whose terms two that follow one another lie side by side.
pub(in crate::ops) trait Word: Element + Default {
    /// Terms that are packed at once: the memory of [`super::BLOCK`] numbers of f32.
    const BLOCK: usize = super::BLOCK * size_of::<f32>() / size_of::<Self>();
    /// Distance of the rows of the packed left factor.
    const PITCH: usize = isa::PITCH * size_of::<f32>() / size_of::<Self>();

    /// As [`Pack::copy`], of what was checked.
    ///
    /// # Safety
    /// - `from` has the elements from `offset` to `last`, to which the strides lead within the extents, and nobody writes them.
    /// - `to` has room for `length` words every `to_pitch`, which this thread alone uses.
    /// - The processor has the instructions.
    unsafe fn copy(
        pack: Pack,
        from: &Tensor<'_>,
        ends: [u64; 2],
        extents: [usize; 2],
        strides: [usize; 2],
        to: *mut Self,
        to_pitch: usize,
    );

    /// As [`Pack::padded`], of elements that are neighbours, where the processor has vectors for it.
    fn padded(pack: Pack, from: &Tensor<'_>, offset: u64, range: &Range<usize>, line: &mut [Self]) -> bool;

    /// As [`Pack::panels`], of one panel.
    fn panel(
        pack: Pack,
        from: &Tensor<'_>,
        offset: u64,
        extents: [usize; 2],
        strides: [u64; 2],
        first_term: usize,
        to: &mut [Self],
    );
}

impl Word for f32 {
    unsafe fn copy(
        pack: Pack,
        from: &Tensor<'_>,
        [offset, last]: [u64; 2],
        extents: [usize; 2],
        strides: [usize; 2],
        to: *mut Self,
        to_pitch: usize,
    ) {
        // SAFETY: by the contract; `element` finds both ends in the tensor.
        unsafe {
            match from.desc().dtype() {
                DType::F16 => {
                    from.element::<f16>(last);
                    widen(pack.0, extents, from.element::<f16>(offset), strides, to, to_pitch);
                }
                DType::BF16 => {
                    from.element::<bf16>(last);
                    widen(pack.0, extents, from.element::<bf16>(offset), strides, to, to_pitch);
                }
                _ => {
                    from.element::<f32>(last);
                    widen(pack.0, extents, from.element::<f32>(offset), strides, to, to_pitch);
                }
            }
        }
    }

    fn padded(pack: Pack, from: &Tensor<'_>, offset: u64, range: &Range<usize>, line: &mut [Self]) -> bool {
        let last = offset + range.len() as u64 - 1;
        // SAFETY: `element` finds the first and the last element of the range in the tensor, which nobody writes to.
        unsafe {
            match from.desc().dtype() {
                DType::F16 => {
                    from.element::<f16>(last);
                    padded(pack.0, from.element::<f16>(offset), range, line)
                }
                DType::BF16 => {
                    from.element::<bf16>(last);
                    padded(pack.0, from.element::<bf16>(offset), range, line)
                }
                _ => {
                    from.element::<f32>(last);
                    padded(pack.0, from.element::<f32>(offset), range, line)
                }
            }
        }
    }

    fn panel(
        pack: Pack,
        from: &Tensor<'_>,
        offset: u64,
        [terms, cols]: [usize; 2],
        strides: [u64; 2],
        first_term: usize,
        to: &mut [Self],
    ) {
        let to = &mut to[first_term * COLS..];
        if cols < COLS {
            to[..terms * COLS].fill(0.0);
        }
        pack.copy(from, offset, [terms, cols], strides, to, COLS);
    }
}

/// Two rows of a panel lie interleaved, so that the terms of a pair are side by side.
impl Word for bf16 {
    unsafe fn copy(
        _: Pack,
        from: &Tensor<'_>,
        [offset, last]: [u64; 2],
        extents: [usize; 2],
        strides: [usize; 2],
        to: *mut Self,
        to_pitch: usize,
    ) {
        from.element::<bf16>(last);
        // SAFETY: by the contract; `element` finds both ends in the tensor.
        unsafe { tiles::copy(extents, from.element::<bf16>(offset), strides, to, to_pitch) };
    }

    fn padded(_: Pack, from: &Tensor<'_>, offset: u64, range: &Range<usize>, line: &mut [Self]) -> bool {
        from.element::<bf16>(offset + range.len() as u64 - 1);
        // SAFETY: `element` finds the first and the last element of the range in the tensor, which nobody writes to.
        unsafe { tiles::padded(from.element::<bf16>(offset), range, line) }
    }

    fn panel(
        _: Pack,
        from: &Tensor<'_>,
        offset: u64,
        extents: [usize; 2],
        strides: [u64; 2],
        first_term: usize,
        to: &mut [Self],
    ) {
        let Some((last, strides)) = reach(offset, extents, strides) else { return };
        from.element::<bf16>(last);
        assert!((first_term + extents[0]).next_multiple_of(2) * COLS <= to.len());
        // SAFETY: strides are not negative, so that all elements lie between the first and the last, which `element` finds in the tensor; nobody writes to
        // inputs; the panel has room for all terms.
        unsafe { tiles::copy_panel(extents, from.element::<bf16>(offset), strides, first_term, to.as_mut_ptr()) };
    }
}

/// The offset of the last of some lines of elements, and the strides with 1 for that of an extent of 1, unless there are none.
fn reach(offset: u64, [lines, length]: [usize; 2], strides: [u64; 2]) -> Option<(u64, [usize; 2])> {
    let last = offset + (lines as u64).checked_sub(1)? * strides[0] + (length as u64).checked_sub(1)? * strides[1];
    let along = |extent: usize, stride: u64| if extent == 1 { 1 } else { to_usize(stride) };
    Some((last, [along(lines, strides[0]), along(length, strides[1])]))
}

/// Calls a function with a pointer to some neighbouring elements of a tensor.
macro_rules! by_type {
    ($from:expr, $offset:expr, $count:expr, |$first:ident| $call:expr) => {{
        let (from, offset): (&Tensor<'_>, u64) = ($from, $offset);
        let Some(last) = ($count as u64).checked_sub(1) else { return };
        // SAFETY: `element` checks that the first and the last element are inside the tensor, which nobody writes to; `detect` has found the instructions.
        unsafe {
            match from.desc().dtype() {
                DType::F16 => {
                    from.element::<f16>(offset + last);
                    let $first = from.element::<f16>(offset).cast_const();
                    $call
                }
                DType::BF16 => {
                    from.element::<bf16>(offset + last);
                    let $first = from.element::<bf16>(offset).cast_const();
                    $call
                }
                _ => {
                    from.element::<f32>(offset + last);
                    let $first = from.element::<f32>(offset).cast_const();
                    $call
                }
            }
        }
    }};
}

/// Elements of f32, f16 or bf16, widened to f32.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Pack(pub(super) Isa);

impl Pack {
    pub(in crate::ops) fn detect() -> Self {
        Self(Isa::detect())
    }

    /// Copies `lines` by `length` elements of a tensor from an offset on, with the strides of lines and of elements.
    pub(in crate::ops) fn copy<W: Word>(
        self,
        from: &Tensor<'_>,
        offset: u64,
        extents: [usize; 2],
        strides: [u64; 2],
        to: &mut [W],
        to_pitch: usize,
    ) {
        let Some((last, strides)) = reach(offset, extents, strides) else { return };
        let [lines, length] = extents;
        assert!((lines - 1) * to_pitch + length <= to.len());
        // SAFETY: strides are not negative, so that all elements lie between the first and the last; nobody writes to inputs; `to` is long enough, and
        // `detect` has found the instructions.
        unsafe { W::copy(self, from, [offset, last], extents, strides, to.as_mut_ptr(), to_pitch) };
    }

    /// Copies elements of a tensor, from an offset on, to the words of a range of a line, and zeros to the others.
    #[inline]
    pub(in crate::ops) fn padded<W: Word>(
        self,
        from: &Tensor<'_>,
        offset: u64,
        stride: u64,
        range: Range<usize>,
        line: &mut [W],
    ) {
        if range.is_empty() {
            return line.fill(W::default());
        }
        assert!(range.end <= line.len());
        if stride == 1 && W::padded(self, from, offset, &range, line) {
            return;
        }
        line[..range.start].fill(W::default());
        line[range.end..].fill(W::default());
        let line = &mut line[range];
        self.copy(from, offset, [1, line.len()], [0, stride], line, line.len());
    }

    /// Adds `factor` times neighbouring elements of a tensor, from an offset on, to as many sums.
    pub(in crate::ops) fn add_scaled(self, sums: &mut [f32], factor: f32, from: &Tensor<'_>, offset: u64) {
        by_type!(from, offset, sums.len(), |first| add_scaled(self.0, sums, factor, first));
    }

    /// Adds the products of factors and of neighbouring elements of a tensor, from an offset on, to as many sums.
    pub(in crate::ops) fn add_multiplied(self, sums: &mut [f32], factors: &[f32], from: &Tensor<'_>, offset: u64) {
        by_type!(from, offset, sums.len(), |first| add_multiplied(self.0, sums, factors, first));
    }

    /// Adds the products of factors and of as many neighbouring elements of a tensor, from an offset on, to eight sums, each of which takes every eighth one.
    pub(in crate::ops) fn add_dot(self, sums: &mut [f32; 8], factors: &[f32], from: &Tensor<'_>, offset: u64) {
        by_type!(from, offset, factors.len(), |first| add_dot(self.0, sums, factors, first));
    }

    /// One sum for each place of a grid: of the products of factors and of the elements at offsets from the place, in chains. Sums of the last [`COLS`]
    /// places may be of anything.
    pub(in crate::ops) fn of_grid(self, grid: &[f32], offsets: &[usize], factors: &[f32], sums: &mut [f32]) {
        let last = offsets.iter().max().map_or(0, |&offset| offset + sums.len());
        assert!(last <= grid.len() && offsets.len() == factors.len() && sums.len().is_multiple_of(COLS));
        if offsets.is_empty() {
            sums.fill(0.0);
        }
        for (panel, sums) in sums.chunks_exact_mut(COLS).enumerate() {
            for (chain, (offsets, factors)) in offsets.chunks(CHAIN).zip(factors.chunks(CHAIN)).enumerate() {
                // SAFETY: there is a factor for each offset, and from each offset on as many elements as there are sums, of which a panel has `COLS`.
                unsafe {
                    let from = grid.as_ptr().add(panel * COLS);
                    self.0.add_products(1, factors.as_ptr(), (from, offsets), sums.as_mut_ptr(), chain == 0);
                }
            }
        }
    }

    /// As [`copy`](Self::copy), of `terms` by `cols` elements of a right factor, in panels from a term of the block on. Words of terms before it stay as
    /// they are.
    pub(in crate::ops) fn panels<W: Word>(
        self,
        from: &Tensor<'_>,
        offset: u64,
        [terms, cols]: [usize; 2],
        strides: [u64; 2],
        first_term: usize,
        to: &mut [W],
    ) {
        for (panel, to) in (0..cols.div_ceil(COLS)).zip(to.chunks_exact_mut(COLS * W::BLOCK)) {
            let first = panel * COLS;
            let extents = [terms, COLS.min(cols - first)];
            W::panel(self, from, offset + first as u64 * strides[1], extents, strides, first_term, to);
        }
    }
}
