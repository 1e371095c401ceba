//! The reference: the functions in f64, any strides, one rounding to the output.

use super::{FIRST_OUTPUT, Valid};
use crate::backend::cpu::{Operands, Tensor, rounded, threads};
use crate::dtype::DType;
use crate::kernel::Accepted;
use crate::ops::pointwise::program::Program;

/// Positions of a task.
const PIECE: u64 = 1024;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(run))
}

fn run(valid: &Valid, operands: &Operands<'_>) {
    let program = &valid.fields.program;
    let (inputs, outputs) = (program.inputs(), program.outputs());
    let walk = valid.derived.walk(outputs);
    let number: fn(f64) -> f64 = match valid.derived.computing {
        DType::F64 => |number| number,
        _ => |number| rounded(DType::F32, number),
    };
    // In the order of the walk.
    let tensors: Vec<Tensor<'_>> =
        (FIRST_OUTPUT..FIRST_OUTPUT + outputs).chain(0..inputs).filter_map(|at| operands.get(at)).collect();
    let elements = walk.elements();
    threads::for_each(elements.div_ceil(PIECE), elements, |piece| {
        let mut given = [0.0; Program::MAX_INPUTS];
        let mut results = [0.0; Program::MAX_OUTPUTS];
        for position in piece * PIECE..elements.min((piece + 1) * PIECE) {
            let offset = |operand: usize| walk.offset(operand, position);
            for (at, value) in given[..inputs].iter_mut().enumerate() {
                *value = tensors[outputs + at].load(offset(outputs + at));
            }
            program.evaluate(&given[..inputs], number, &mut results[..outputs]);
            for (at, &value) in results[..outputs].iter().enumerate() {
                // SAFETY: each position is of one task, outputs address every element once, and an input in the same place is this element alone.
                unsafe { tensors[at].store(offset(at), value) };
            }
        }
    });
}
