//! Losses over classes: of logits, and of the last layer that makes them.

use baracuda_ops::{AnyDescriptor, CrossEntropyDescriptor, DType, LinearCrossEntropyDescriptor, Result, TensorDesc};

use super::Cell;

/// Labels of the cells.
pub(super) const OPS: [&str; 2] = ["cross_entropy", "linear_cross_entropy"];

/// Lines and classes.
const LOGITS: [[u64; 2]; 4] = [[8192, 32_000], [8192, 128_256], [65_536, 1000], [4096, 1000]];

/// Rows, elements of a row, and classes.
const LAYERS: [[u64; 3]; 2] = [[8192, 4096, 128_256], [2048, 768, 50_257]];

/// The cells of a label. Forward saves the logsumexp of each line, and backward reads it.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str) -> Result<()> {
    if op == "linear_cross_entropy" {
        return layers(cells, op);
    }
    for shape in LOGITS {
        for dtype in [DType::BF16, DType::F32] {
            let x = TensorDesc::contiguous(dtype, &shape)?;
            let forward = CrossEntropyDescriptor::new(x, 1, DType::I64)?.stats()?;
            let backward = AnyDescriptor::new(forward.backward()?);
            let bytes = x.span_bytes();
            for (pass, descriptor, moved) in [("fw", AnyDescriptor::new(forward), bytes), ("bw", backward, 2 * bytes)] {
                cells.push(Cell::new((op, pass), shape.to_vec(), dtype, descriptor, moved, bytes));
            }
        }
    }
    Ok(())
}

fn layers(cells: &mut Vec<Cell>, op: &'static str) -> Result<()> {
    for shape @ [rows, depth, classes] in LAYERS {
        let dtype = DType::BF16;
        let x = TensorDesc::contiguous(dtype, &[rows, depth])?;
        let weight = TensorDesc::contiguous(dtype, &[classes, depth])?;
        let forward = LinearCrossEntropyDescriptor::new(x, weight, DType::I64)?;
        let backward = AnyDescriptor::new(forward.backward_all()?);
        let bytes = x.span_bytes() + weight.span_bytes();
        for (pass, descriptor, moved) in [("fw", AnyDescriptor::new(forward), bytes), ("bw", backward, 2 * bytes)] {
            cells.push(Cell::new((op, pass), shape.to_vec(), dtype, descriptor, moved, weight.span_bytes()));
        }
    }
    Ok(())
}
