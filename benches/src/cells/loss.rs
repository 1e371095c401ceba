//! Losses over classes.

use baracuda_ops::{AnyDescriptor, CrossEntropyDescriptor, DType, Result, TensorDesc};

use super::Cell;

/// The label of the cells.
pub(super) const OP: &str = "cross_entropy";

/// Lines and classes.
const LOGITS: [[u64; 2]; 4] = [[8192, 32_000], [8192, 128_256], [65_536, 1000], [4096, 1000]];

/// The cells. Forward saves the logsumexp of each line, and backward reads it.
pub(super) fn cells(cells: &mut Vec<Cell>) -> Result<()> {
    for shape in LOGITS {
        for dtype in [DType::BF16, DType::F32] {
            let x = TensorDesc::contiguous(dtype, &shape)?;
            let forward = CrossEntropyDescriptor::new(x, 1, DType::I64)?.stats()?;
            let backward = AnyDescriptor::new(forward.backward()?);
            let bytes = x.span_bytes();
            for (pass, descriptor, moved) in [("fw", AnyDescriptor::new(forward), bytes), ("bw", backward, 2 * bytes)] {
                cells.push(Cell::new((OP, pass), shape.to_vec(), dtype, descriptor, moved, bytes));
            }
        }
    }
    Ok(())
}
