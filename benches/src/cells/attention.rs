//! Attention of 16,384 tokens of 2048 elements, in sequences of several lengths: all keys, and those that a causal mask leaves; and of one query of each sample to caches of keys
//! and values of 256 MB together, and some of less.

use baracuda_ops::{AnyDescriptor, AttentionDescriptor, CausalMask, DType, Result, TensorDesc};

use super::Cell;

/// Labels of the cells.
pub(super) const OPS: [&str; 3] = ["sdpa", "sdpa_causal", "sdpa_decode"];

/// Batch, heads, queries and keys, elements of a head.
const SHAPES: [[u64; 4]; 6] = [
    [16, 32, 1024, 64],
    [16, 16, 1024, 128],
    [4, 32, 4096, 64],
    [4, 16, 4096, 128],
    [1, 32, 16384, 64],
    [1, 16, 16384, 128],
];

/// Heads of queries, heads of keys, and elements of a head where each sample has one query.
const DECODE: [u64; 3] = [32, 8, 128];
/// Batches of these, and bytes of the keys and the values together; the small caches are those of bf16 alone.
const DECODE_BATCHES: [(u64, u64); 6] =
    [(1, 256 << 20), (8, 256 << 20), (64, 256 << 20), (1, 16 << 20), (8, 64 << 20), (64, 128 << 20)];
const DECODE_OF_F32: usize = 3;

/// One query of each sample.
fn decode(cells: &mut Vec<Cell>, op: &'static str) -> Result<()> {
    let [heads, kv_heads, depth] = DECODE;
    for (at, (batch, cache_bytes)) in DECODE_BATCHES.into_iter().enumerate() {
        let dtypes: &[DType] = if at < DECODE_OF_F32 { &[DType::BF16, DType::F32] } else { &[DType::BF16] };
        for &dtype in dtypes {
            let keys = cache_bytes / (2 * batch * kv_heads * depth * dtype.size_bytes());
            let q = TensorDesc::contiguous(dtype, &[batch, heads, 1, depth])?;
            let kv = TensorDesc::contiguous(dtype, &[batch, kv_heads, keys, depth])?;
            let descriptor = AnyDescriptor::new(AttentionDescriptor::new(q, kv, kv)?);
            let shape = vec![batch, heads, kv_heads, keys, depth];
            let bytes = 2 * (q.span_bytes() + kv.span_bytes());
            cells.push(Cell::new((op, "fw"), shape, dtype, descriptor, bytes, cache_bytes));
        }
    }
    Ok(())
}

/// The cells of one label; `is_quick` keeps the first shapes.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str, is_quick: bool) -> Result<()> {
    if op == "sdpa_decode" {
        return decode(cells, op);
    }
    for shape in SHAPES.iter().take(if is_quick { 2 } else { SHAPES.len() }) {
        // A step of f32 over 16,384 keys takes a third of a second.
        let dtypes: &[DType] = if shape[2] > 4096 { &[DType::BF16] } else { &[DType::BF16, DType::F32] };
        for &dtype in dtypes {
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
