//! The reference: the formulas in f64, or of integers in i64; any strides, one rounding to the output.

use super::{Geometry, OUTPUT, Valid};
use crate::backend::cpu::{Operands, Tensor, rounded, threads};
use crate::dtype::DType;
use crate::kernel::Accepted;
use crate::ops::pointwise::program::Program;
use crate::ops::walk::Walk;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(run))
}

/// What is reduced to one element.
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
        &self,
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

fn run(valid: &Valid, operands: &Operands<'_>) {
    let geometry = &valid.derived;
    let outputs = Geometry::outputs(&valid.slots);
    let Some(out) = operands.get(OUTPUT).filter(|_| outputs > 0) else { return };
    let (kept, reduced) = (geometry.kept(), geometry.reduced());
    let inputs: Vec<Tensor<'_>> = (0..geometry.inputs.len()).filter_map(|at| operands.get(at)).collect();
    let Geometry { row, program, computing, divisor, finish, .. } = geometry;
    let number: Option<fn(f64) -> f64> = match computing {
        DType::F64 => Some(|number| number),
        DType::F32 => Some(|number| rounded(DType::F32, number)),
        _ => None,
    };
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
            let mut result = [row.value(values, *divisor)];
            if let Some(finish) = finish {
                finish.evaluate(&result.clone(), number, &mut result);
            }
            // SAFETY: each position is of one task, and the output addresses every element once.
            unsafe { out.store(place, result[0]) };
        } else {
            let compute = |given: &[i64], results: &mut [i64]| program.evaluate_integers(given, *computing, results);
            let result = row.integer(line.values(|tensor, offset| tensor.load_integer(offset), compute));
            // SAFETY: as above.
            unsafe { out.store_integer(place, result) };
        }
    });
}
