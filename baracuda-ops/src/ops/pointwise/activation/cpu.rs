//! The reference: the formulas in f64, any strides, one rounding to the output.

use std::ops::Range;

use super::{Pass, Valid};
use crate::backend::cpu::{Operands, Tensor, threads};
use crate::backend::{Backend, DeviceProps};
use crate::error::Reason;
use crate::ops::activation::Activation;
use crate::options::PlanOptions;
use crate::plan::{Ask, Candidate, Kernel, KernelName};
use crate::tensor::TensorDesc;

/// The reference kernel of both passes.
pub(super) struct Reference;

impl<D: Pass> Kernel<D> for Reference {
    fn name(&self) -> &'static str {
        KernelName::<D>::REFERENCE
    }

    fn backend(&self) -> Backend {
        Backend::Cpu
    }

    fn accept<'d>(&self, descriptor: &'d D, _: &PlanOptions, _: &DeviceProps, _: Ask) -> Result<Candidate<'d>, Reason> {
        Ok(Candidate::on_cpu(|| run::<D>(descriptor.valid().clone())))
    }
}

/// What computes every element on its own.
fn run<D: Pass>(valid: Valid) -> impl Fn(&Operands<'_>) + Send + Sync {
    let position = |name: &str| valid.slots.named(name).map(|slot| slot.position);
    let (input, output) = if D::IS_BACKWARD { ("dy", "dx") } else { ("x", "y") };
    let (input, output) = (position(input), position(output));
    let saved = if D::IS_BACKWARD { valid.saved() } else { None };
    move |operands| {
        let operand = |position: Option<usize>| position.and_then(|position| operands.get(position));
        let (Some(input), Some(output)) = (operand(input), operand(output)) else { return };
        each_piece(&valid.fields.x, |line, elements| {
            let [input, output] = [input, output].map(|tensor| Line::new(tensor, line));
            let saved = operand(saved).map(|tensor| Line::new(tensor, line));
            let fields = &valid.fields;
            for i in elements {
                let value = input.load(i);
                let value = match &saved {
                    _ if !D::IS_BACKWARD => fields.activation.apply(value),
                    Some(y) if fields.from_y => fields.activation.gradient_from_output(y.load(i), value),
                    Some(x) => fields.activation.gradient(x.load(i), value),
                    None => Activation::Identity.gradient(0.0, value),
                };
                // SAFETY: each piece is one task, outputs address every element once, and an input in the same place is this element alone.
                unsafe { output.store(i, value) };
            }
        });
    }
}

/// Elements of a task.
const PIECE: u64 = 4096;

/// Calls `work` for pieces of the lines along the last extent: with the line, and which of its elements, from several threads.
fn each_piece(x: &TensorDesc, work: impl Fn(u64, Range<u64>) + Sync) {
    if x.is_empty() {
        return;
    }
    let length = x.dims().last().copied().unwrap_or(1);
    let pieces = length.div_ceil(PIECE);
    threads::for_each(x.elements() / length * pieces, x.elements(), |task| {
        let first = task % pieces * PIECE;
        work(task / pieces, first..length.min(first + PIECE));
    });
}

/// The elements of one tensor along its last extent.
struct Line<'a> {
    tensor: Tensor<'a>,
    start: u64,
    step: u64,
}

impl<'a> Line<'a> {
    /// Line number `index` in row-major order of the other extents.
    fn new(tensor: Tensor<'a>, index: u64) -> Self {
        let desc = tensor.desc();
        let last = desc.rank().saturating_sub(1);
        let (mut rest, mut start) = (index, 0);
        for axis in (0..last).rev() {
            start += rest % desc.dims()[axis] * desc.strides()[axis];
            rest /= desc.dims()[axis];
        }
        Self { tensor, start, step: desc.strides().last().copied().unwrap_or(1) }
    }

    fn load(&self, i: u64) -> f64 {
        self.tensor.load(self.start + i * self.step)
    }

    /// # Safety
    /// No other thread uses that element meanwhile.
    unsafe fn store(&self, i: u64, value: f64) {
        // SAFETY: the caller is alone at this element.
        unsafe { self.tensor.store(self.start + i * self.step, value) };
    }
}
