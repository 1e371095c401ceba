//! The reference: the formulas in f64, any strides, one rounding to the output.

use std::ops::Range;

use super::Pass;
use crate::backend::cpu::threads;
use crate::backend::{Backend, Device, DeviceProps};
use crate::error::Reason;
use crate::ops::activation::Activation;
use crate::ops::lines::{Line, line_count, line_length};
use crate::options::PlanOptions;
use crate::plan::{BuildError, Built, Choice, Exec, Kernel};
use crate::tensor::TensorDesc;

/// The reference kernel of both passes.
pub(super) struct Reference;

impl<D: Pass> Kernel<D> for Reference {
    fn name(&self) -> &'static str {
        if D::IS_BACKWARD { "activation_backward_reference" } else { "activation_reference" }
    }

    fn backend(&self) -> Backend {
        Backend::Cpu
    }

    fn accept(&self, _: &D, _: &PlanOptions, _: &DeviceProps) -> Result<Choice, Reason> {
        Ok(Choice::PLAIN)
    }

    fn build(&self, descriptor: &D, _: Choice, _: &Device) -> Result<Built, BuildError> {
        let valid = descriptor.valid().clone();
        let position = |name: &str| valid.slots.named(name).map(|slot| slot.index);
        let (input, output) = if D::IS_BACKWARD { ("dy", "dx") } else { ("x", "y") };
        let (input, output) = (position(input), position(output));
        let saved = if D::IS_BACKWARD { valid.saved() } else { None };
        Ok(Built(Exec::Cpu(Box::new(move |operands| {
            let operand = |position: Option<usize>| position.and_then(|position| operands.get(position));
            let (Some(input), Some(output)) = (operand(input), operand(output)) else { return };
            let fields = &valid.fields;
            let last = fields.x.rank().saturating_sub(1);
            each_piece(&fields.x, |line, elements| {
                let [input, output] = [input, output].map(|tensor| Line::new(tensor, last, line));
                let saved = operand(saved).map(|tensor| Line::new(tensor, last, line));
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
        }))))
    }
}

/// Elements of a task.
const PIECE: u64 = 4096;

/// Calls `work` for pieces of the lines along the last extent: with the line, and which of its elements, from several threads.
fn each_piece(x: &TensorDesc, work: impl Fn(u64, Range<u64>) + Sync) {
    let last = x.rank().saturating_sub(1);
    let length = line_length(x, last);
    let pieces = length.div_ceil(PIECE);
    threads::for_each(line_count(x, last) * pieces, x.elements(), |task| {
        let first = task % pieces * PIECE;
        work(task / pieces, first..length.min(first + PIECE));
    });
}
