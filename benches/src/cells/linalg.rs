//! Systems of equations.

use baracuda_ops::{AnyDescriptor, CholeskyDescriptor, DType, Result, TensorDesc, TriangularSolveDescriptor};

use super::Cell;

/// Labels of the cells.
pub(super) const OPS: [&str; 2] = ["solve_triangular", "cholesky"];

/// Matrices of a batch, rows, and right-hand sides.
const SYSTEMS: [[u64; 3]; 5] = [[1, 1024, 1024], [1, 4096, 512], [1, 4096, 1], [256, 64, 64], [4096, 32, 1]];

/// Matrices of a batch, and rows.
const FACTORS: [[u64; 2]; 3] = [[1, 1024], [256, 64], [4096, 32]];

/// The cells of one label: lower triangles of f32.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str) -> Result<()> {
    let dtype = DType::F32;
    for [batch, n] in FACTORS.into_iter().filter(|_| op == "cholesky") {
        let a = TensorDesc::contiguous(dtype, &[batch, n, n])?;
        let cholesky = AnyDescriptor::new(CholeskyDescriptor::new(a)?);
        cells.push(Cell::new((op, "fw"), vec![batch, n], dtype, cholesky, a.span_bytes() / 2 * 3, a.span_bytes()));
    }
    for [batch, n, systems] in SYSTEMS.into_iter().filter(|_| op == "solve_triangular") {
        let a = TensorDesc::contiguous(dtype, &[batch, n, n])?;
        let b = TensorDesc::contiguous(dtype, &[batch, n, systems])?;
        let solve = AnyDescriptor::new(TriangularSolveDescriptor::new(a, b)?);
        let bytes = a.span_bytes() / 2 + 2 * b.span_bytes();
        cells.push(Cell::new((op, "fw"), vec![batch, n, systems], dtype, solve, bytes, a.span_bytes()));
    }
    Ok(())
}
