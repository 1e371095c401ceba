//! The reference: the formulas in f64, any strides, one rounding to the output.

use super::Valid;
use crate::backend::cpu::Operands;
use crate::kernel::{Accepted, Candidate};
use crate::ops::activation::Activation;
use crate::ops::lines::{Line, each_piece};
use crate::ops::valid::Direction;

/// The reference kernel of both passes.
pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(Candidate::on_cpu(|| run(valid.clone())).batch_invariant())
}

/// What computes every element on its own.
fn run(valid: Valid) -> impl Fn(&Operands<'_>) + Send + Sync {
    let [input, saved, output] = valid.operands();
    let (fields, is_forward) = (valid.fields, valid.op.kind == Direction::Forward);
    move |operands| {
        let [input, saved, output] = [input, saved, output].map(|operand| operands.get(operand));
        let (Some(input), Some(output)) = (input, output) else { return };
        each_piece(&fields.x, |axis, line, elements| {
            let [input, output] = [input, output].map(|tensor| Line::new(tensor, axis, line));
            let saved = saved.map(|tensor| Line::new(tensor, axis, line));
            for i in elements {
                let value = input.load(i);
                let value = match &saved {
                    _ if is_forward => fields.activation.apply(value),
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
