//! The reference: the formulas in f64, any strides, one rounding to the output.

use super::reduction::{Combine, Each};
use super::{Geometry, OUTPUT, Valid};
use crate::backend::cpu::{Operands, Sum, Tensor, rounded, threads};
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
    /// The values, which the program makes.
    fn values(&self) -> impl Iterator<Item = f64> {
        let number: fn(f64) -> f64 = match self.geometry.computing {
            DType::F64 => |number| number,
            _ => |number| rounded(DType::F32, number),
        };
        let mut given = [0.0; Program::MAX_INPUTS];
        (0..self.geometry.count).map(move |position| {
            for (at, input) in self.inputs.iter().enumerate() {
                given[at] = input.load(self.starts[at] + self.reduced.offset(at, position));
            }
            let mut result = [0.0];
            self.geometry.program.evaluate(&given[..self.inputs.len()], number, &mut result);
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
    let row = valid.fields.reduce.row();
    threads::for_each(outputs, outputs.saturating_mul(geometry.count.max(1)), |position| {
        let mut starts = [0; Program::MAX_INPUTS];
        for (at, start) in starts.iter_mut().enumerate().take(inputs.len()) {
            *start = kept.offset(1 + at, position);
        }
        let line = Line { geometry, inputs: &inputs, reduced: &reduced, starts };
        // Squares that overflow or vanish are those of numbers that a power of two has brought near 1.
        let scale = if row.each == Each::Square { scale(line.values()) } else { 1.0 };
        let values = line.values().map(|value| row.each.of(value / scale));
        let total = match row.combine {
            Combine::Add => values.collect::<Sum>().total(),
            combine => values.fold(combine.identity(), |total, value| combine.of(total, value)),
        };
        let result = row.finish.of(total, geometry.count) * scale;
        // SAFETY: each position is of one task, and the output addresses every element once.
        unsafe { out.store(kept.offset(0, position), result) };
    });
}

/// A power of two near the largest magnitude; 1 where that is 0 or not finite.
fn scale(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.fold(0.0, |most: f64, value| most.max(value.abs()));
    let power = f64::from_bits(most.to_bits() & f64::INFINITY.to_bits());
    if power > 0.0 && power.is_finite() { power } else { 1.0 }
}
