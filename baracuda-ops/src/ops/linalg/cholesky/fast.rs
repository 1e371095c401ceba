//! Row by row in the type of the operands: each element is a sum of products of neighbours, in as many sums as vectors have lanes, which are added up in a fixed
//! order. How a matrix is computed depends on neither its neighbours nor the number of threads.

use super::{A, FACTOR, INFO, Valid, forward};
use crate::backend::cpu::{Operands, Outcome, room, threads};
use crate::dtype::DType;
use crate::kernel::Accepted;
use crate::narrow::{signed, to_usize};
use crate::ops::linalg::Number;
use crate::ops::walk::Walk;

/// Sums of an element.
const LANES: usize = 8;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(|valid, operands| match valid.fields.a.dtype() {
        DType::F32 => compute::<f32>(valid, operands),
        _ => compute::<f64>(valid, operands),
    }))
}

fn compute<T: Number>(valid: &Valid, operands: &Operands<'_>) -> Outcome {
    let task = &valid.derived;
    let walk = Walk::new(&task.batches);
    let (n, [of_factor, of_a]) = (task.n, task.steps);
    let info = operands.get(forward::INFO);
    threads::try_for_each(walk.elements(), task.products(), |matrix| {
        let [to, from, at_info] = [FACTOR, A, INFO].map(|operand| walk.offset(operand, matrix));
        let mut failed = 0;
        if let (Some(a), Some(factor)) = (operands.get(forward::A), operands.get(forward::FACTOR)) {
            let width = to_usize(n);
            let mut rows: Vec<T> = room(n.saturating_mul(n))?;
            rows.resize(width * width, T::default());
            for i in 0..width {
                let (above, rest) = rows.split_at_mut(i * width);
                let row = &mut rest[..width];
                for j in 0..i {
                    let other = &above[j * width..][..width];
                    // SAFETY: `element` has checked that it lies in a, which nothing writes meanwhile.
                    let value = unsafe { *a.element::<T>(from + i as u64 * of_a[0] + j as u64 * of_a[1]) };
                    row[j] = (value - dot(&row[..j], &other[..j])) / other[j];
                }
                // SAFETY: as above.
                let value = unsafe { *a.element::<T>(from + i as u64 * (of_a[0] + of_a[1])) };
                let pivot = value - dot(&row[..i], &row[..i]);
                if pivot > T::default() {
                    row[i] = pivot.root();
                } else {
                    failed = if failed == 0 { signed(i as u64) + 1 } else { failed };
                    row[i] = T::NAN;
                }
            }
            for (i, row) in (0..n).zip(rows.chunks(width.max(1))) {
                for (j, &value) in (0..n).zip(row) {
                    let to = factor.element::<T>(to + i * of_factor[0] + j * of_factor[1]);
                    // SAFETY: `element` has checked that it lies in the factor, and the matrix is of one task.
                    unsafe { *to = value };
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

/// The sum of the products of two rows.
fn dot<T: Number>(x: &[T], y: &[T]) -> T {
    let mut sums = [T::default(); LANES];
    let (whole_x, rest_x) = x.as_chunks::<LANES>();
    let (whole_y, rest_y) = y.as_chunks::<LANES>();
    for (x, y) in whole_x.iter().zip(whole_y) {
        sums.iter_mut().zip(x.iter().zip(y)).for_each(|(sum, (&x, &y))| *sum = *sum + x * y);
    }
    sums.iter_mut().zip(rest_x.iter().zip(rest_y)).for_each(|(sum, (&x, &y))| *sum = *sum + x * y);
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}
