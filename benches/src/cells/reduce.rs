//! Reductions of rows, columns, channels and everything.

use baracuda_ops::{AnyDescriptor, DType, Function, Program, ReduceDescriptor, Reduction, Result, TensorDesc};

use super::Cell;

/// Labels of the cells: the reduction and the axes.
pub(super) const OPS: [&str; 18] = [
    "reduce_sum_0",
    "reduce_sum_1",
    "reduce_sum_0x2x3",
    "reduce_sum_0x1x2",
    "reduce_amax_0",
    "reduce_amax_1",
    "reduce_amax_0x2x3",
    "reduce_amax_0x1x2",
    "reduce_var_0",
    "reduce_var_1",
    "reduce_var_0x2x3",
    "reduce_var_0x1x2",
    "reduce_mean_1",
    "argmax_1",
    "logsumexp_1",
    "reduce_norm_0",
    "sum_squares_0",
    "mse_0",
];

/// Elements of a long vector.
const LARGE: u64 = 1 << 26;
const MATRIX: [u64; 2] = [16384, 4096];

/// The shapes and axes of a label.
fn shapes(op: &str) -> Vec<(Vec<u64>, Vec<usize>)> {
    let all = |shapes: &[&[u64]], axes: &[usize]| shapes.iter().map(|shape| (shape.to_vec(), axes.to_vec())).collect();
    match op.rsplit('_').next() {
        _ if ["sum_squares_0", "mse_0", "reduce_norm_0"].contains(&op) => all(&[&[LARGE]], &[0]),
        _ if ["reduce_mean_1", "logsumexp_1"].contains(&op) => all(&[&MATRIX], &[1]),
        _ if op == "argmax_1" => all(&[&MATRIX, &[64, 128_256]], &[1]),
        Some("0") => all(&[&[LARGE], &MATRIX, &[64, 1_048_576]], &[0]),
        Some("1") => all(&[&MATRIX, &[4, 8_388_608], &[1_048_576, 64]], &[1]),
        Some("0x2x3") => all(&[&[64, 256, 64, 64]], &[0, 2, 3]),
        _ => all(&[&[64, 64, 64, 256]], &[0, 1, 2]),
    }
}

/// The cells of one label.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str) -> Result<()> {
    for dtype in [DType::BF16, DType::F32] {
        for (shape, axes) in shapes(op) {
            let x = TensorDesc::contiguous(dtype, &shape)?;
            let bytes = x.span_bytes();
            let of = |reduce| ReduceDescriptor::of(x, &axes, reduce);
            let (descriptor, moved) = match op {
                "sum_squares_0" => (ReduceDescriptor::new(squares(false)?, vec![x], axes, Reduction::Sum)?, bytes),
                "mse_0" => (ReduceDescriptor::new(squares(true)?, vec![x, x], axes, Reduction::Mean)?, 2 * bytes),
                "reduce_mean_1" => (of(Reduction::Mean)?, bytes),
                "reduce_norm_0" => (of(Reduction::Norm2)?, bytes),
                "argmax_1" => (of(Reduction::ArgMax)?, bytes),
                "logsumexp_1" => (of(Reduction::LogSumExp)?, bytes),
                _ if op.contains("var") => (of(Reduction::Var)?, bytes),
                _ if op.contains("amax") => (of(Reduction::Max)?, bytes),
                _ => (of(Reduction::Sum)?, bytes),
            };
            cells.push(Cell::new((op, "fw"), shape, dtype, AnyDescriptor::new(descriptor), moved, bytes));
        }
    }
    Ok(())
}

/// `x x`, or `(x - y) (x - y)`.
fn squares(are_of_differences: bool) -> Result<Program> {
    let mut b = Program::builder();
    let mut x = b.input("x");
    if are_of_differences {
        let y = b.input("y");
        x = b.call(Function::Sub, [x, y]);
    }
    let square = b.call(Function::Mul, [x, x]);
    b.finish([square])
}
