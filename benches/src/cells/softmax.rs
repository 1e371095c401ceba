//! Softmax and log-softmax of rows, and softmax over channels.

use baracuda_ops::{AnyDescriptor, DType, Result, SoftmaxDescriptor, TensorDesc};

use super::{Cell, ROWS};

/// Labels of the cells.
pub(super) const OPS: [&str; 3] = ["softmax", "log_softmax", "softmax_channel"];

const IMAGES: [[u64; 4]; 4] = [[8, 21, 512, 512], [8, 64, 256, 256], [2, 1000, 64, 64], [32, 256, 56, 56]];

/// The cells of one label; `is_quick` keeps the first shapes.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str, is_quick: bool) -> Result<()> {
    let shapes: Vec<Vec<u64>> = match op {
        "softmax_channel" => IMAGES.iter().take(if is_quick { 2 } else { 4 }).map(|image| image.to_vec()).collect(),
        _ => ROWS.iter().take(if is_quick { 3 } else { 7 }).map(|&(rows, cols)| vec![rows, cols]).collect(),
    };
    for shape in shapes {
        for dtype in [DType::BF16, DType::F32] {
            let x = TensorDesc::contiguous(dtype, &shape)?;
            // The channels of an image, the columns of rows.
            let mut forward = SoftmaxDescriptor::new(x, 1)?;
            if op == "log_softmax" {
                forward = forward.log()?;
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
