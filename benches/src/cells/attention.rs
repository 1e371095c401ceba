//! Attention of 16,384 tokens of 2048 elements, in sequences of several lengths: all keys, and those that a causal mask leaves.

use baracuda_ops::{AnyDescriptor, AttentionDescriptor, CausalMask, DType, Result, TensorDesc};

use super::Cell;

/// Labels of the cells.
pub(super) const OPS: [&str; 2] = ["sdpa", "sdpa_causal"];

/// Batch, heads, queries and keys, elements of a head.
const SHAPES: [[u64; 4]; 4] = [[16, 32, 1024, 64], [16, 16, 1024, 128], [4, 32, 4096, 64], [4, 16, 4096, 128]];

/// The cells of one label; `is_quick` keeps the first shapes.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str, is_quick: bool) -> Result<()> {
    for shape in SHAPES.iter().take(if is_quick { 2 } else { SHAPES.len() }) {
        for dtype in [DType::BF16, DType::F32] {
            let x = TensorDesc::contiguous(dtype, shape)?;
            let causal = if op == "sdpa_causal" { CausalMask::BottomRight } else { CausalMask::None };
            let forward = AttentionDescriptor::new(x, x, x)?.causal(causal)?.stats()?;
            let backward = AnyDescriptor::new(forward.backward(&["q", "k", "v"])?);
            let in_bytes = x.span_bytes();
            for (pass, descriptor, tensors) in [("fw", AnyDescriptor::new(forward), 4), ("bw", backward, 8)] {
                cells.push(Cell::new((op, pass), shape.to_vec(), dtype, descriptor, tensors * in_bytes, 3 * in_bytes));
            }
        }
    }
    Ok(())
}
