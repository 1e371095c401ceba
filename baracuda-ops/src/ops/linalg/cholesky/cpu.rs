//! The reference: row by row in f64 with compensated sums, and one rounding to the output.

use super::{A, FACTOR, INFO, Valid, forward};
use crate::backend::cpu::{Operands, Outcome, Sum, room, threads};
use crate::kernel::Accepted;
use crate::narrow::{signed, to_usize};
use crate::ops::walk::Walk;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(compute))
}

fn compute(valid: &Valid, operands: &Operands<'_>) -> Outcome {
    let task = &valid.derived;
    let walk = Walk::new(&task.batches);
    let (n, [of_factor, of_a]) = (task.n, task.steps);
    let info = operands.get(forward::INFO);
    threads::try_for_each(walk.elements(), task.products(), |matrix| {
        let [to, from, at_info] = [FACTOR, A, INFO].map(|operand| walk.offset(operand, matrix));
        let mut failed = 0;
        if let (Some(a), Some(factor)) = (operands.get(forward::A), operands.get(forward::FACTOR)) {
            // Rows of the lower triangle, one behind the other.
            let mut rows: Vec<f64> = room(n * (n + 1) / 2)?;
            for i in 0..n {
                let start = rows.len();
                for j in 0..=i {
                    let (row, other) = (&rows[start..], &rows[to_usize(j * (j + 1) / 2)..]);
                    let mut sum = Sum::default();
                    sum.add(a.load(from + i * of_a[0] + j * of_a[1]));
                    row.iter().zip(other).take(to_usize(j)).for_each(|(x, y)| sum.add(-x * y));
                    let (value, is_positive) = (sum.total(), sum.total() > 0.0);
                    rows.push(if i != j {
                        value / other[to_usize(j)]
                    } else if is_positive {
                        value.sqrt()
                    } else {
                        failed = if failed == 0 { signed(i) + 1 } else { failed };
                        f64::NAN
                    });
                }
            }
            let mut values = rows.into_iter();
            for i in 0..n {
                for j in 0..n {
                    let value = if j <= i { values.next().unwrap_or_default() } else { 0.0 };
                    // SAFETY: the matrix is of one task, and each of its elements is another one of the factor.
                    unsafe { factor.store(to + i * of_factor[0] + j * of_factor[1], value) };
                }
            }
        }
        if let Some(info) = &info {
            // SAFETY: there is an element for each matrix.
            unsafe { info.store_integer(at_info, failed) };
        }
        Ok(())
    })
}
