//! The reference: substitution in f64 with compensated sums, each system by itself, and one rounding to the output.

use super::{A, B, Valid, X, forward};
use crate::backend::cpu::{Operands, Outcome, Sum, room, threads};
use crate::kernel::Accepted;
use crate::ops::walk::Walk;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(compute))
}

fn compute(valid: &Valid, operands: &Operands<'_>) -> Outcome {
    let solve = &valid.derived;
    let (Some(a), Some(b), Some(x)) = (operands.get(forward::A), operands.get(forward::B), operands.get(forward::X))
    else {
        return Ok(());
    };
    let (walk, alpha, is_unit) = (Walk::new(&solve.batches), valid.fields.alpha.get(), valid.fields.unit_diagonal);
    let tasks = walk.elements().saturating_mul(solve.columns);
    threads::try_for_each(tasks, solve.products(), |task| {
        let (batch, column) = (task / solve.columns, task % solve.columns);
        let [to, from, triangle] = [X, B, A].map(|operand| walk.offset(operand, batch));
        let at = |operand: usize, i: u64| solve.place(i) * solve.steps[operand][0] + column * solve.steps[operand][1];
        let of_triangle = |i: u64, j: u64| {
            let place = solve.place(i) * solve.steps[A][0] + solve.place(j) * solve.steps[A][1];
            a.load(triangle + place)
        };
        let mut solved: Vec<f64> = room(solve.n)?;
        for i in 0..solve.n {
            let mut sum = Sum::default();
            sum.add(alpha * b.load(from + at(B, i)));
            (0..).zip(&solved).for_each(|(j, value)| sum.add(-of_triangle(i, j) * value));
            solved.push(if is_unit { sum.total() } else { sum.total() / of_triangle(i, i) });
        }
        for (i, value) in (0..).zip(solved) {
            // SAFETY: the system is of one task, and each of its elements is another one of x.
            unsafe { x.store(to + at(X, i), value) };
        }
        Ok(())
    })
}
