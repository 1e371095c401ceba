//! Systems side by side, as panels of as many as vectors have lanes, and rows of the triangle in blocks, so that what is solved is read once for several rows. How a
//! system is computed depends on neither its neighbours nor the number of threads.

use super::{A, B, Solve, Valid, X, forward};
use crate::backend::cpu::{Operands, Outcome, Tensor, room, threads};
use crate::dtype::DType;
use crate::kernel::Accepted;
use crate::narrow::{single, to_usize};
use crate::ops::linalg::Number;
use crate::ops::walk::Walk;

/// Rows of a block.
const ROWS: usize = 4;
/// Systems of a panel. With fewer than half as many, each is solved by itself: its vectors are then rows of a block.
const SYSTEMS: usize = 8;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    Ok(valid.on_cpu(|valid, operands| match valid.fields.a.dtype() {
        DType::F32 => compute(valid, operands, single(valid.fields.alpha.get())),
        _ => compute(valid, operands, valid.fields.alpha.get()),
    }))
}

fn compute<T: Number>(valid: &Valid, operands: &Operands<'_>, alpha: T) -> Outcome {
    let solve = &valid.derived;
    let (Some(a), Some(b), Some(x)) = (operands.get(forward::A), operands.get(forward::B), operands.get(forward::X))
    else {
        return Ok(());
    };
    let walk = Walk::new(&solve.batches);
    let systems = if solve.columns < SYSTEMS as u64 / 2 { 1 } else { SYSTEMS as u64 };
    let panels = solve.columns.div_ceil(systems);
    threads::try_for_each(walk.elements().saturating_mul(panels), solve.products(), |task| {
        let (batch, first) = (task / panels, task % panels * systems);
        let starts = [X, B, A].map(|operand| walk.offset(operand, batch));
        let is_unit = valid.fields.unit_diagonal;
        let panel = Panel { solve, a, b, x, starts, first, alpha, is_unit };
        if systems == 1 { panel.solve::<1>() } else { panel.solve::<SYSTEMS>() }
    })
}

/// Systems side by side, from the `first` column on.
struct Panel<'p, T> {
    solve: &'p Solve,
    a: Tensor<'p>,
    b: Tensor<'p>,
    x: Tensor<'p>,
    /// Where the matrices of the operands begin.
    starts: [u64; 3],
    first: u64,
    alpha: T,
    is_unit: bool,
}

impl<T: Number> Panel<'_, T> {
    fn solve<const N: usize>(&self) -> Outcome {
        let solve = self.solve;
        let count = (solve.columns - self.first).min(N as u64);
        let mut solved: Vec<[T; N]> = room(solve.n)?;
        let mut coefficients: Vec<[T; ROWS]> = room(solve.n)?;
        while (solved.len() as u64) < solve.n {
            let from = solved.len() as u64;
            let rows = to_usize((solve.n - from).min(ROWS as u64));
            // 1. The right-hand sides.
            let mut sums = [[T::default(); N]; ROWS];
            for (i, sums) in (from..).zip(&mut sums[..rows]) {
                for (column, sum) in (0..count).zip(sums) {
                    *sum = self.alpha * self.load(&self.b, self.at(B, i, self.first + column));
                }
            }
            // 2. Without the rows that are solved.
            coefficients.clear();
            coefficients.extend((0..from).map(|j| {
                let mut of_rows = [T::default(); ROWS];
                (from..).zip(&mut of_rows[..rows]).for_each(|(i, to)| *to = self.triangle(i, j));
                of_rows
            }));
            for (of_rows, values) in coefficients.iter().zip(&solved) {
                for (sums, &coefficient) in sums.iter_mut().zip(of_rows) {
                    sums.iter_mut().zip(values).for_each(|(sum, &value)| *sum = *sum - coefficient * value);
                }
            }
            // 3. The rows of the block.
            for at in 0..rows {
                let i = from + at as u64;
                let mut row = sums[at];
                for (j, values) in (from..).zip(&sums[..at]) {
                    let coefficient = self.triangle(i, j);
                    row.iter_mut().zip(values).for_each(|(sum, &value)| *sum = *sum - coefficient * value);
                }
                if !self.is_unit {
                    let diagonal = self.triangle(i, i);
                    row.iter_mut().for_each(|sum| *sum = *sum / diagonal);
                }
                sums[at] = row;
                solved.push(row);
                for (column, value) in (0..count).zip(row) {
                    let to = self.x.element::<T>(self.at(X, i, self.first + column));
                    // SAFETY: `element` has checked that it lies in x, and the system is of one task.
                    unsafe { *to = value };
                }
            }
        }
        Ok(())
    }

    fn at(&self, operand: usize, i: u64, column: u64) -> u64 {
        let [row, step] = self.solve.steps[operand];
        self.starts[operand] + self.solve.place(i) * row + column * step
    }

    fn triangle(&self, i: u64, j: u64) -> T {
        self.load(&self.a, self.at(A, i, self.solve.place(j)))
    }

    fn load(&self, tensor: &Tensor<'_>, at: u64) -> T {
        // SAFETY: `element` has checked that it lies in the tensor, which nothing writes meanwhile but, where x lies in its place, this task.
        unsafe { *tensor.element::<T>(at) }
    }
}
