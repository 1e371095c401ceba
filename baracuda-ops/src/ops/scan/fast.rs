//! Scans of f32, f16 and bf16 on the CPU, block by block: of a line, or of neighbouring lines position by position. Values are combined in f64, one after
//! another, of which no error is seen in results of f32.

use super::scans::Combine;
use super::{Geometry, Valid, forward};
use crate::backend::cpu::{Operands, Outcome, Shortage, Tensor, room, threads};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::{single, to_usize};
use crate::ops::pointwise::map::fast::{BLOCK, Converted, Segment, Segments, Widest, widest};
use crate::ops::walk::Walk;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    let (combine, fields) = (valid.fields.scan.combine(), &valid.fields);
    let is_f32 = valid.derived.computing == DType::F32;
    Reason::unless(is_f32, || "sums of f64 need what rounding loses, and integers more bits; the reference has both")?;
    let has_loop = combine != Combine::LogAddExp && fields.indices.is_none();
    Reason::unless(has_loop, || "it has no exponentials and no indices; the reference has")?;
    Ok(Candidate::on_cpu(move || {
        let geometry = valid.derived.clone();
        let (walk, is_columns) = (geometry.lines(), geometry.has_columns());
        let scanned =
            Scanned { walk, geometry, combine, is_columns, is_reverse: fields.reverse, is_exclusive: fields.exclusive };
        move |operands: &Operands<'_>| run(&scanned, operands)
    })
    .batch_invariant())
}

/// A scan with the walk of its lines, in which y comes first, then x.
struct Scanned {
    geometry: Geometry,
    walk: Walk,
    combine: Combine,
    is_columns: bool,
    is_reverse: bool,
    is_exclusive: bool,
}

fn run(scanned: &Scanned, operands: &Operands<'_>) -> Outcome {
    let (Some(x), Some(y)) = (operands.get(forward::X), operands.get(forward::Y)) else { return Ok(()) };
    let lines = scanned.walk.elements();
    let of_task = if scanned.is_columns { BLOCK as u64 } else { 1 };
    threads::try_for_each(lines.div_ceil(of_task), lines.saturating_mul(scanned.geometry.length), |task| {
        let first = task * of_task;
        widest(Task { scanned, x: &x, y: &y, first, count: of_task.min(lines - first) })
    })
}

/// Some lines: one, or neighbours.
struct Task<'t> {
    scanned: &'t Scanned,
    x: &'t Tensor<'t>,
    y: &'t Tensor<'t>,
    first: u64,
    count: u64,
}

impl Widest for Task<'_> {
    type Output = Result<(), Shortage>;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> Self::Output {
        if self.scanned.is_columns { self.columns() } else { self.row() }
    }
}

impl Task<'_> {
    #[inline(always)]
    fn row(&self) -> Result<(), Shortage> {
        let Scanned { geometry, walk, combine, is_reverse, is_exclusive, .. } = self.scanned;
        let (length, [to, from]) = (geometry.length, [0, 1].map(|operand| walk.offset(operand, self.first)));
        let mut values: Vec<f32> = room(BLOCK as u64)?;
        let (mut state, mut done) = (combine.none(), 0);
        while done < length {
            let count = (BLOCK as u64).min(length - done);
            let start = if *is_reverse { length - done - count } else { done };
            values.resize(to_usize(count), 0.0);
            f32::read(self.x, from + start * geometry.steps[1], geometry.steps[1], &mut values);
            if *is_reverse {
                values.reverse();
            }
            state = scan(*combine, *is_exclusive, state, &mut values);
            if *is_reverse {
                values.reverse();
            }
            f32::write(self.y, to + start * geometry.steps[0], geometry.steps[0], &values);
            done += count;
        }
        Ok(())
    }

    #[inline(always)]
    fn columns(&self) -> Result<(), Shortage> {
        let Scanned { geometry, walk, combine, is_reverse, is_exclusive, .. } = self.scanned;
        let lines = self.first..self.first + self.count;
        let mut values: Vec<f32> = room(self.count)?;
        values.resize(to_usize(self.count), 0.0);
        let mut states: Vec<f64> = room(self.count)?;
        states.resize(to_usize(self.count), combine.none());
        for done in 0..geometry.length {
            let position = if *is_reverse { geometry.length - 1 - done } else { done };
            for Segment { first, step, places } in Segments::new(walk, 1, lines.clone()) {
                f32::read(self.x, first + position * geometry.steps[1], step, &mut values[places]);
            }
            step_of(*combine, *is_exclusive, &mut states, &mut values);
            for Segment { first, step, places } in Segments::new(walk, 0, lines.clone()) {
                f32::write(self.y, first + position * geometry.steps[0], step, &values[places]);
            }
        }
        Ok(())
    }
}

/// Two values become one.
#[inline(always)]
fn both(combine: Combine, before: f64, value: f64) -> f64 {
    match combine {
        Combine::Add | Combine::LogAddExp => before + value,
        Combine::Multiply => before * value,
        // A NaN stays; of equal values it is the later.
        Combine::Greatest => {
            if value < before || before.is_nan() {
                before
            } else {
                value
            }
        }
        Combine::Least => {
            if value > before || before.is_nan() {
                before
            } else {
                value
            }
        }
    }
}

/// Values of a line become results, of which the first follows a state; returns that behind the last.
#[inline(always)]
fn scan(combine: Combine, is_exclusive: bool, state: f64, values: &mut [f32]) -> f64 {
    #[inline(always)]
    fn each(is_exclusive: bool, mut state: f64, values: &mut [f32], of: impl Fn(f64, f64) -> f64) -> f64 {
        for value in values {
            let after = of(state, f64::from(*value));
            *value = single(if is_exclusive { state } else { after });
            state = after;
        }
        state
    }
    match combine {
        Combine::Add => each(is_exclusive, state, values, |x, y| both(Combine::Add, x, y)),
        Combine::Multiply => each(is_exclusive, state, values, |x, y| both(Combine::Multiply, x, y)),
        Combine::Greatest => each(is_exclusive, state, values, |x, y| both(Combine::Greatest, x, y)),
        Combine::Least => each(is_exclusive, state, values, |x, y| both(Combine::Least, x, y)),
        // Refused.
        Combine::LogAddExp => state,
    }
}

/// Values at one position of neighbouring lines become results, each of which follows a state.
#[inline(always)]
fn step_of(combine: Combine, is_exclusive: bool, states: &mut [f64], values: &mut [f32]) {
    #[inline(always)]
    fn each(is_exclusive: bool, states: &mut [f64], values: &mut [f32], of: impl Fn(f64, f64) -> f64) {
        for (state, value) in states.iter_mut().zip(values) {
            let after = of(*state, f64::from(*value));
            *value = single(if is_exclusive { *state } else { after });
            *state = after;
        }
    }
    match combine {
        Combine::Add => each(is_exclusive, states, values, |x, y| both(Combine::Add, x, y)),
        Combine::Multiply => each(is_exclusive, states, values, |x, y| both(Combine::Multiply, x, y)),
        Combine::Greatest => each(is_exclusive, states, values, |x, y| both(Combine::Greatest, x, y)),
        Combine::Least => each(is_exclusive, states, values, |x, y| both(Combine::Least, x, y)),
        // Refused.
        Combine::LogAddExp => {}
    }
}
