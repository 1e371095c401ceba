//! Functions and programs of each element, with broadcasting.

use baracuda_ops::{AnyDescriptor, DType, Descriptor, Function, PointwiseDescriptor, Program, Result, TensorDesc};

use super::Cell;

/// Labels of the cells.
pub(super) const OPS: [&str; 21] = [
    "unary_exp",
    "unary_log",
    "unary_log1p",
    "unary_erf",
    "unary_sin",
    "unary_sqrt",
    "unary_neg",
    "unary_sigmoid",
    "unary_tanh",
    "binary_add",
    "binary_div",
    "binary_pow",
    "compare_lt",
    "where",
    "clamp_scale",
    "add_row",
    "add_column",
    "add_channel",
    "add_transposed",
    "cast",
    "swiglu",
];

/// Elements of a large tensor, and of a small one.
const LARGE: u64 = 1 << 26;
const SMALL: u64 = 1 << 12;
const MATRIX: [u64; 2] = [16384, 4096];
const IMAGE: [u64; 4] = [64, 256, 64, 64];

/// The cells of one label.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str) -> Result<()> {
    for dtype in [DType::BF16, DType::F32] {
        let dense = |dims: &[u64]| TensorDesc::contiguous(dtype, dims);
        let large = dense(&[LARGE])?;
        let bytes = large.span_bytes();
        let unary = |function| PointwiseDescriptor::unary(function, large);
        let binary = |function| PointwiseDescriptor::binary(function, large, large);
        let add = |x: TensorDesc, y: TensorDesc| PointwiseDescriptor::binary(Function::Add, x, y);
        let (label, shape, descriptor, moved) = match op {
            "unary_exp" => (op, vec![LARGE], unary(Function::Exp)?, 2 * bytes),
            "unary_log" => (op, vec![LARGE], unary(Function::Log)?, 2 * bytes),
            "unary_log1p" => (op, vec![LARGE], unary(Function::Log1p)?, 2 * bytes),
            "unary_erf" => (op, vec![LARGE], unary(Function::Erf)?, 2 * bytes),
            "unary_sin" => (op, vec![LARGE], unary(Function::Sin)?, 2 * bytes),
            "unary_sqrt" => (op, vec![LARGE], unary(Function::Sqrt)?, 2 * bytes),
            "unary_neg" => (op, vec![LARGE], unary(Function::Neg)?, 2 * bytes),
            "unary_sigmoid" => (op, vec![LARGE], unary(Function::Sigmoid)?, 2 * bytes),
            "unary_tanh" => (op, vec![LARGE], unary(Function::Tanh)?, 2 * bytes),
            "binary_add" => (op, vec![LARGE], add(large, large)?, 3 * bytes),
            "binary_div" => (op, vec![LARGE], binary(Function::Div)?, 3 * bytes),
            "binary_pow" => (op, vec![LARGE], binary(Function::Pow)?, 3 * bytes),
            "compare_lt" => (op, vec![LARGE], binary(Function::Lt)?, 2 * bytes + LARGE),
            "where" => {
                let condition = TensorDesc::contiguous(DType::Bool, &[LARGE])?;
                let chosen = PointwiseDescriptor::new(Program::of(Function::Where), vec![condition, large, large])?;
                (op, vec![LARGE], chosen, 3 * bytes + LARGE)
            }
            "clamp_scale" => {
                let mut b = Program::builder();
                let x = b.input("x");
                let scaled = b.call(Function::Mul, [x, 0.5.into()]);
                let moved = b.call(Function::Add, [scaled, 1.0.into()]);
                let clamped = b.call(Function::Clamp, [moved, (-1.0).into(), 2.0.into()]);
                (op, vec![LARGE], PointwiseDescriptor::new(b.finish([clamped])?, vec![large])?, 2 * bytes)
            }
            "add_row" => (op, MATRIX.to_vec(), add(dense(&MATRIX)?, dense(&MATRIX[1..])?)?, 2 * bytes),
            "add_column" => (op, MATRIX.to_vec(), add(dense(&MATRIX)?, dense(&[MATRIX[0], 1])?)?, 2 * bytes),
            "add_channel" => (op, IMAGE.to_vec(), add(dense(&IMAGE)?, dense(&[1, IMAGE[1], 1, 1])?)?, 2 * bytes),
            "add_transposed" => {
                let square = dense(&[8192, 8192])?;
                (op, vec![8192, 8192], add(square, square.permute(&[1, 0])?)?, 3 * bytes)
            }
            "cast" => {
                let (label, to) = match dtype {
                    DType::BF16 => ("cast_to_f32", DType::F32),
                    _ => ("cast_to_bf16", DType::BF16),
                };
                let mut b = Program::builder();
                let x = b.input("x");
                let cast = PointwiseDescriptor::new(b.finish([x])?, vec![large])?.outputs(vec![to])?;
                (label, vec![LARGE], cast, 6 * LARGE)
            }
            _ => {
                let x = dense(&MATRIX)?;
                let forward = PointwiseDescriptor::new(swiglu()?, vec![x, x])?;
                for step in forward.gradients_all()? {
                    cells.push(Cell::new((op, "bw"), MATRIX.to_vec(), dtype, step.descriptor, 5 * bytes, bytes));
                }
                (op, MATRIX.to_vec(), forward, 3 * bytes)
            }
        };
        cells.push(Cell::new((label, "fw"), shape, dtype, AnyDescriptor::new(descriptor), moved, bytes));
    }
    if op == "binary_add" {
        let small = TensorDesc::contiguous(DType::F32, &[SMALL])?;
        let add = PointwiseDescriptor::binary(Function::Add, small, small)?;
        let bytes = small.span_bytes();
        cells.push(Cell::new((op, "fw"), vec![SMALL], DType::F32, AnyDescriptor::new(add), 3 * bytes, bytes));
    }
    Ok(())
}

/// `silu(x) y`
fn swiglu() -> Result<Program> {
    let mut b = Program::builder();
    let [x, y] = ["x", "y"].map(|name| b.input(name));
    let silu = b.call(Function::Silu, [x]);
    let product = b.call(Function::Mul, [silu, y]);
    b.finish([product])
}
