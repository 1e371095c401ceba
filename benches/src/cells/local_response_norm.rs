//! LocalResponseNorm of images.

use baracuda_ops::{AnyDescriptor, DType, LocalResponseNormDescriptor, Result, TensorDesc};

use super::Cell;

/// The label of the cells.
pub(super) const OP: &str = "local_response_norm";

const IMAGES: [[u64; 4]; 3] = [[64, 96, 55, 55], [64, 256, 27, 27], [8, 64, 256, 256]];

/// The cells.
pub(super) fn cells(cells: &mut Vec<Cell>) -> Result<()> {
    for shape in IMAGES {
        let dtype = DType::F32;
        let x = TensorDesc::contiguous(dtype, &shape)?;
        let forward = LocalResponseNormDescriptor::new(x, 5)?;
        let backward = AnyDescriptor::new(forward.backward()?);
        let in_bytes = x.span_bytes();
        for (pass, descriptor, bytes) in
            [("fw", AnyDescriptor::new(forward), 2 * in_bytes), ("bw", backward, 3 * in_bytes)]
        {
            cells.push(Cell::new((OP, pass), shape.to_vec(), dtype, descriptor, bytes, in_bytes));
        }
    }
    Ok(())
}
