//! The gradient of the pre-activation and the sums of its columns, line by line in f32; sums in f64.

use super::super::cpu::{At, Values, accumulated};
use super::super::geometry::{ColumnSums, DprePass, Extents, Matrix};
use super::finish::{Line, load, store};
use crate::backend::cpu::threads;
use crate::narrow::to_usize;
use crate::ops::pointwise::program::activations::{Saved, gradient};

/// Elements of a line that are computed at once.
const WIDTH: usize = 256;

/// Computes the gradient of the pre-activation where it is stored, and the sums of its columns if they are wanted.
pub(in crate::ops::gemm) fn elementwise(pass: &DprePass, sums: Option<&ColumnSums>, values: Values<'_>) {
    let Some(stored) = &pass.dpre else {
        return column_sums(sums, values, [pass.batch.count(), pass.m, pass.n], |first, line| {
            fill(pass, values, first, line);
        });
    };
    let out = values.tensor(stored);
    let rows = pass.batch.count() * pass.m;
    threads::for_each(rows, rows * pass.n, |row| {
        let Some(out) = &out else { return };
        for n in (0..pass.n).step_by(WIDTH) {
            let first = At { z: row / pass.m, m: row % pass.m, n };
            let mut line = [0.0; WIDTH];
            let line = &mut line[..to_usize((pass.n - n).min(WIDTH as u64))];
            fill(pass, values, first, line);
            // SAFETY: each row is one task.
            unsafe { store(out, line_at(stored, &pass.batch, first), line) };
        }
    });
    stored_column_sums(sums, values, stored, &pass.batch, [pass.m, pass.n]);
}

/// The sums of the columns of a gradient of the pre-activation that is stored.
pub(in crate::ops::gemm) fn stored_column_sums(
    sums: Option<&ColumnSums>,
    values: Values<'_>,
    stored: &Matrix,
    batch: &Extents,
    [rows, cols]: [u64; 2],
) {
    // Without rows there is no memory, and the sums are 0.
    let dpre = values.tensor(stored);
    column_sums(sums, values, [batch.count(), rows, cols], |first, line| {
        if let Some(dpre) = &dpre {
            load(dpre, line_at(stored, batch, first), line);
        }
    });
}

fn line_at(matrix: &Matrix, batch: &Extents, first: At) -> Line {
    Line { offset: matrix.at(batch, first), stride: matrix.cols }
}

/// Computes some elements of a row of the gradient of the pre-activation, from the first on.
fn fill(pass: &DprePass, values: Values<'_>, first: At, line: &mut [f32]) {
    let read = |matrix: &Matrix, to: &mut [f32]| match values.tensor(matrix) {
        Some(tensor) => load(&tensor, line_at(matrix, &pass.batch, first), to),
        None => to.fill(0.0),
    };
    read(&pass.dout, line);
    if let Some(matrix) = &pass.saved {
        let mut saved = [0.0; WIDTH];
        let saved = &mut saved[..line.len()];
        read(matrix, saved);
        gradient(pass.activation, if pass.from_out { Saved::Output(saved) } else { Saved::Input(saved) }, line);
    }
}

/// Adds up columns, whose lines `read` gives.
fn column_sums(
    sums: Option<&ColumnSums>,
    values: Values<'_>,
    [batch, rows, cols]: [u64; 3],
    read: impl Fn(At, &mut [f32]) + Sync,
) {
    let Some(sums) = sums else { return };
    let Some(grad) = values.operand(sums.sums.position) else { return };
    threads::for_each(cols.div_ceil(WIDTH as u64), batch.saturating_mul(rows).saturating_mul(cols), |task| {
        let first = task * WIDTH as u64;
        let width = to_usize((cols - first).min(WIDTH as u64));
        let (mut totals, mut line) = ([0.0f64; WIDTH], [0.0f32; WIDTH]);
        let line = &mut line[..width];
        // If its matrices have no rows, a batch may have any number of them.
        for row in 0..batch * rows {
            read(At { z: row / rows, m: row % rows, n: first }, line);
            for (total, &value) in totals.iter_mut().zip(&*line) {
                *total += f64::from(value);
            }
        }
        for (n, total) in (first..).zip(&totals[..width]) {
            let offset = n * sums.sums.stride;
            // SAFETY: each column is of one task.
            unsafe { grad.store(offset, accumulated(*total, sums.beta, || grad.load(offset))) };
        }
    });
}
