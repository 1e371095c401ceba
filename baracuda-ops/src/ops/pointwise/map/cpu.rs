//! The reference: the functions in f64, or of integers in i64; any strides, one cast to the output.

use super::Valid;
use super::fast::streams;
use super::sets::Tensors;
use crate::backend::cpu::{Operands, Tensor, rounded, threads};
use crate::dtype::DType;
use crate::kernel::Accepted;
use crate::narrow::whole;
use crate::ops::pointwise::program::Program;

/// Positions of a task.
const PIECE: u64 = 1024;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(run).batch_invariant_if(valid.is_batch_invariant()))
}

fn run(valid: &Valid, operands: &Operands<'_>) {
    for Tensors { valid, indices } in valid.tensors() {
        run_set(valid, &indices, operands);
    }
}

/// `indices`: of the operands, in the order of the walk.
fn run_set(valid: &Valid, indices: &[usize], operands: &Operands<'_>) {
    let program = &valid.program();
    let number: fn(f64) -> f64 = match valid.derived.computing {
        DType::F64 => |number| number,
        DType::F32 => |number| rounded(DType::F32, number),
        computing => {
            let compute = |given: &[i64], results: &mut [i64]| program.evaluate_integers(given, computing, results);
            // SAFETY: the caller is alone at the element.
            let store = |tensor: &Tensor<'_>, offset: u64, value: i64| unsafe { tensor.store_integer(offset, value) };
            let load = |tensor: &Tensor<'_>, offset: u64| tensor.load_integer(offset);
            return each((valid, program, indices), operands, load, whole, compute, store);
        }
    };
    let compute = |given: &[f64], results: &mut [f64]| program.evaluate(given, number, results);
    // SAFETY: the caller is alone at the element.
    let store = |tensor: &Tensor<'_>, offset: u64, value: f64| unsafe { tensor.store(offset, value) };
    let load = |tensor: &Tensor<'_>, offset: u64| tensor.load(offset);
    each((valid, program, indices), operands, load, number, compute, store);
}

/// Computes each position: inputs are loaded and sources drawn, all of them before the outputs are stored. Each position is of one task, outputs address every element once,
/// and an input in the same place is this element alone, so that no other thread is at an element that is stored.
fn each<T: Copy + Default>(
    (valid, program, indices): (&Valid, &Program, &[usize]),
    operands: &Operands<'_>,
    load: impl Fn(&Tensor<'_>, u64) -> T + Sync,
    number: impl Fn(f64) -> T + Sync,
    compute: impl Fn(&[T], &mut [T]) + Sync,
    store: impl Fn(&Tensor<'_>, u64, T) + Sync,
) {
    let (inputs, outputs) = (program.inputs(), program.outputs());
    let walk = valid.derived.walk(outputs);
    // In the order of the walk.
    let tensors: Vec<Tensor<'_>> = indices.iter().filter_map(|&at| operands.get(at)).collect();
    let elements = walk.elements();
    threads::for_each(elements.div_ceil(PIECE), elements, |piece| {
        let mut streams = streams(program, valid.derived.computing, &tensors[outputs..]);
        let mut given = [T::default(); Program::MAX_INPUTS + Program::MAX_SOURCES];
        let mut results = [T::default(); Program::MAX_OUTPUTS];
        for position in piece * PIECE..elements.min((piece + 1) * PIECE) {
            let offset = |operand: usize| walk.offset(operand, position);
            for (at, value) in given[..inputs].iter_mut().enumerate().filter(|(at, _)| !program.is_key(*at)) {
                *value = load(&tensors[outputs + at], offset(outputs + at));
            }
            for (at, stream) in streams.iter_mut().enumerate() {
                given[inputs + at] = number(stream.value(offset(outputs + inputs + at)));
            }
            compute(&given, &mut results[..outputs]);
            for (at, &value) in results[..outputs].iter().enumerate() {
                store(&tensors[at], offset(at), value);
            }
        }
    });
}
