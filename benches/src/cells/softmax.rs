//! Softmax and log-softmax of rows, softmax over channels, and softmax of attention's scores under a causal mask and with a bias.

use baracuda_ops::{AnyDescriptor, DType, Result, SoftmaxDescriptor, TensorDesc};

use super::{Cell, ROWS};

/// Labels of the cells.
pub(super) const OPS: [&str; 5] = ["softmax", "log_softmax", "softmax_channel", "softmax_causal", "softmax_bias"];

const IMAGES: [[u64; 4]; 4] = [[8, 21, 512, 512], [8, 64, 256, 256], [2, 1000, 64, 64], [32, 256, 56, 56]];

/// Batch, heads, queries and keys.
const SCORES: [[u64; 4]; 3] = [[8, 16, 1024, 1024], [2, 16, 4096, 4096], [1, 32, 512, 8192]];

/// The cells of one label; `is_quick` keeps the first shapes.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str, is_quick: bool) -> Result<()> {
    let shapes: Vec<Vec<u64>> = match op {
        "softmax_channel" => IMAGES.iter().take(if is_quick { 2 } else { 4 }).map(|image| image.to_vec()).collect(),
        "softmax_causal" | "softmax_bias" => {
            SCORES.iter().take(if is_quick { 1 } else { 3 }).map(|scores| scores.to_vec()).collect()
        }
        _ => ROWS.iter().take(if is_quick { 3 } else { 7 }).map(|&(rows, cols)| vec![rows, cols]).collect(),
    };
    for shape in shapes {
        for dtype in [DType::BF16, DType::F32] {
            let x = TensorDesc::contiguous(dtype, &shape)?;
            // The channels of an image, the columns of rows, the keys of scores.
            let axis = if shape.len() == 4 && op != "softmax_channel" { 3 } else { 1 };
            let mut forward = SoftmaxDescriptor::new(x, axis)?;
            match op {
                "log_softmax" => forward = forward.log()?,
                "softmax_causal" => forward = forward.causal()?,
                // Padding, of each sequence.
                "softmax_bias" => {
                    forward = forward.bias(TensorDesc::contiguous(dtype, &[shape[0], 1, 1, shape[3]])?)?;
                }
                _ => {}
            }
            let backward = AnyDescriptor::new(forward.backward()?);
            let in_bytes = x.span_bytes();
            for (pass, descriptor, bytes) in
                [("fw", AnyDescriptor::new(forward), 2 * in_bytes), ("bw", backward, 3 * in_bytes)]
            {
                cells.push(Cell::new((op, pass), shape.clone(), dtype, descriptor, bytes, in_bytes));
            }
        }
    }
    Ok(())
}
