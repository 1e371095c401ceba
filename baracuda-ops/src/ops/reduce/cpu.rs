//! The reference: the formulas in f64, or of integers in i64; any strides, one rounding to the output.

use super::{Geometry, OUTPUT, Valid};
use crate::backend::cpu::{Operands, Tensor, rounded, threads};
use crate::dtype::DType;
use crate::kernel::Accepted;
use crate::ops::pointwise::program::Program;
use crate::ops::walk::Walk;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(run).batch_invariant_if(valid.keeps_first()))
}

/// What is reduced to one element.
#[derive(Clone, Copy)]
struct Line<'l> {
    geometry: &'l Geometry,
    inputs: &'l [Tensor<'l>],
    reduced: &'l Walk,
    /// Of each input the offset of the first element.
    starts: [u64; Program::MAX_INPUTS],
}

impl Line<'_> {
    /// The values, which the program makes of those that `load` reads.
    fn values<T: Copy + Default>(
        self,
        load: impl Fn(&Tensor<'_>, u64) -> T,
        compute: impl Fn(&[T], &mut [T]),
    ) -> impl Iterator<Item = T> {
        let mut given = [T::default(); Program::MAX_INPUTS];
        (0..self.geometry.count).map(move |position| {
            for (at, input) in self.inputs.iter().enumerate() {
                given[at] = load(input, self.starts[at] + self.reduced.offset(at, position));
            }
            let mut result = [T::default()];
            compute(&given[..self.inputs.len()], &mut result);
            result[0]
        })
    }
}

/// All elements of several sets become one.
fn run_sets(valid: &Valid, operands: &Operands<'_>) {
    let Geometry { row, program, divisor, finish, sets, .. } = &valid.derived;
    let Some(out) = operands.get(OUTPUT) else { return };
    let number = number(valid.derived.computing);
    // Where there are elements, all operands have memory.
    let with_elements = sets.iter().filter(|set| set.has_elements());
    let sets: Vec<(&Geometry, Walk, Vec<Tensor<'_>>)> = with_elements
        .map(|set| {
            let inputs = set.places.iter().filter_map(|&(index, _)| operands.get(index)).collect();
            (&set.valid.derived, set.valid.derived.reduced(), inputs)
        })
        .collect();
    let values = || {
        sets.iter().flat_map(|(geometry, reduced, inputs)| {
            let line = Line { geometry, inputs, reduced, starts: [0; Program::MAX_INPUTS] };
            let compute = move |given: &[f64], results: &mut [f64]| program.evaluate(given, number, results);
            line.values(|tensor, offset| tensor.load(offset), compute)
        })
    };
    let result = finished(row.value(values, *divisor), finish.as_ref(), number);
    // SAFETY: nothing else runs, and the output has one element.
    unsafe { out.store(0, result) };
}

/// What brings a literal into a floating-point computing type.
fn number(computing: DType) -> fn(f64) -> f64 {
    match computing {
        DType::F64 => |number| number,
        _ => |number| rounded(DType::F32, number),
    }
}

/// What a finish makes of a result.
fn finished(result: f64, finish: Option<&Program>, number: fn(f64) -> f64) -> f64 {
    let mut finished = [result];
    if let Some(finish) = finish {
        finish.evaluate(&[result], number, &mut finished);
    }
    finished[0]
}

fn run(valid: &Valid, operands: &Operands<'_>) {
    if !valid.derived.sets.is_empty() {
        return run_sets(valid, operands);
    }
    let geometry = &valid.derived;
    let outputs = Geometry::outputs(&valid.slots);
    let Some(out) = operands.get(OUTPUT).filter(|_| outputs > 0) else { return };
    let (kept, reduced) = (geometry.kept(), geometry.reduced());
    let inputs: Vec<Tensor<'_>> = (0..geometry.inputs.len()).filter_map(|at| operands.get(at)).collect();
    let Geometry { row, program, computing, divisor, finish, .. } = geometry;
    let number = computing.is_float().then(|| number(*computing));
    threads::for_each(outputs, outputs.saturating_mul(geometry.count.max(1)), |position| {
        let mut starts = [0; Program::MAX_INPUTS];
        for (at, start) in starts.iter_mut().enumerate().take(inputs.len()) {
            *start = kept.offset(1 + at, position);
        }
        let line = Line { geometry, inputs: &inputs, reduced: &reduced, starts };
        let place = kept.offset(0, position);
        if let Some(number) = number {
            let values = || {
                let compute = move |given: &[f64], results: &mut [f64]| program.evaluate(given, number, results);
                line.values(|tensor, offset| tensor.load(offset), compute)
            };
            let result = finished(row.value(values, *divisor), finish.as_ref(), number);
            // SAFETY: each position is of one task, and the output addresses every element once.
            unsafe { out.store(place, result) };
        } else {
            let compute = |given: &[i64], results: &mut [i64]| program.evaluate_integers(given, *computing, results);
            let result = row.integer(line.values(|tensor, offset| tensor.load_integer(offset), compute));
            // SAFETY: as above.
            unsafe { out.store_integer(place, result) };
        }
    });
}
