//! Lines of a tensor along one axis, as the references walk them.

use std::ops::Range;

use crate::backend::cpu::{Shortage, Tensor, held, threads};
use crate::tensor::TensorDesc;

/// Elements of a task that takes each element on its own. With fewer, handing tasks to threads takes a larger share of the time; with more, a short
/// tensor keeps fewer threads busy.
const PIECE: u64 = 4096;

/// Calls `work` for pieces of the lines along the last axis, from several threads: with the axis, the line, and which of its elements.
pub(crate) fn each_piece(desc: &TensorDesc, work: impl Fn(usize, u64, Range<u64>) + Sync) {
    let axis = desc.rank().saturating_sub(1);
    let length = line_length(desc, axis);
    let pieces = length.div_ceil(PIECE);
    threads::for_each(line_count(desc, axis) * pieces, desc.elements(), |task| {
        let first = task % pieces * PIECE;
        work(axis, task / pieces, first..length.min(first + PIECE));
    });
}

/// Lines along an axis; none where there are no elements.
pub(crate) fn line_count(desc: &TensorDesc, axis: usize) -> u64 {
    desc.elements().checked_div(line_length(desc, axis)).unwrap_or(0)
}

/// Elements of a line; a tensor of rank 0 is one of one element.
pub(crate) fn line_length(desc: &TensorDesc, axis: usize) -> u64 {
    desc.dims().get(axis).copied().unwrap_or(1)
}

/// The elements along an axis at one place of the other extents.
pub(crate) struct Line<'a> {
    tensor: Tensor<'a>,
    first: u64,
    step: u64,
    length: u64,
}

impl<'a> Line<'a> {
    /// Line number `index` in row-major order of the other extents.
    pub(crate) fn new(tensor: Tensor<'a>, axis: usize, index: u64) -> Self {
        let desc = tensor.desc();
        let (mut rest, mut first) = (index, 0);
        for other in (0..desc.rank()).rev().filter(|other| *other != axis) {
            first += rest % desc.dims()[other] * desc.strides()[other];
            rest /= desc.dims()[other];
        }
        let step = desc.strides().get(axis).copied().unwrap_or(0);
        Self { tensor, first, step, length: line_length(desc, axis) }
    }

    pub(crate) fn load(&self, i: u64) -> f64 {
        self.tensor.load(self.first + i * self.step)
    }

    pub(crate) fn load_all(&self) -> Result<Vec<f64>, Shortage> {
        held(self.length, (0..self.length).map(|i| self.load(i)))
    }

    /// # Safety
    /// No other thread uses that element meanwhile.
    pub(crate) unsafe fn store(&self, i: u64, value: f64) {
        // SAFETY: the caller is alone at this element.
        unsafe { self.tensor.store(self.first + i * self.step, value) };
    }

    /// # Safety
    /// No other thread uses that line meanwhile.
    pub(crate) unsafe fn store_all(&self, values: impl Iterator<Item = f64>) {
        for (i, value) in (0..).zip(values) {
            // SAFETY: the caller is alone at this line, and outputs address every element once.
            unsafe { self.store(i, value) };
        }
    }
}
