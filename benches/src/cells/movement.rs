//! Copies between layouts, concatenation and padding.

use baracuda_ops::{
    AnyDescriptor, ConcatDescriptor, CopyDescriptor, DType, PadDescriptor, PadMode, Result, TensorDesc,
};

use super::Cell;

/// Labels of the cells.
pub(super) const OPS: [&str; 9] = [
    "copy_transpose",
    "copy_heads",
    "copy_nchw_to_nhwc",
    "copy_nhwc_to_nchw",
    "copy_reverse4",
    "concat_last",
    "pad_2d",
    "flip",
    "repeat",
];

/// The cells of one label.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str) -> Result<()> {
    for dtype in [DType::BF16, DType::F32] {
        let dense = |dims: &[u64]| TensorDesc::contiguous(dtype, dims);
        let permuted = |dims: &[u64], axes: &[usize]| -> Result<(Vec<u64>, AnyDescriptor)> {
            let copy = CopyDescriptor::new(dense(dims)?.permute(axes)?)?;
            Ok((dims.to_vec(), AnyDescriptor::new(copy)))
        };
        let (shape, descriptor) = match op {
            "copy_transpose" => permuted(&[8192, 8192], &[1, 0])?,
            "copy_heads" => permuted(&[8, 2048, 32, 128], &[0, 2, 1, 3])?,
            "copy_nchw_to_nhwc" => permuted(&[64, 256, 64, 64], &[0, 2, 3, 1])?,
            "copy_nhwc_to_nchw" => permuted(&[64, 64, 64, 256], &[0, 3, 1, 2])?,
            "copy_reverse4" => permuted(&[64, 128, 128, 64], &[3, 2, 1, 0])?,
            "concat_last" => {
                let x = dense(&[16384, 2048])?;
                (vec![16384, 2048, 2048], AnyDescriptor::new(ConcatDescriptor::new(vec![x; 2], 1)?))
            }
            "pad_2d" => {
                let dims = [64, 256, 62, 62];
                let around = vec![0, 0, 1, 1];
                let pad = PadDescriptor::new(dense(&dims)?, around.clone(), around, PadMode::Constant(0.0))?;
                (dims.to_vec(), AnyDescriptor::new(pad))
            }
            "flip" => {
                let dims = [16384, 4096];
                let flip = CopyDescriptor::slice(dense(&dims)?, vec![0, dims[1] - 1], dims.to_vec(), vec![1, -1])?;
                (dims.to_vec(), AnyDescriptor::new(flip))
            }
            _ => {
                let repeated = TensorDesc::strided(dtype, &[16384, 8, 512], &[512, 0, 1])?;
                (vec![16384, 512], AnyDescriptor::new(CopyDescriptor::new(repeated)?))
            }
        };
        let moved = descriptor.slots().iter().map(|slot| slot.desc.distinct_bytes()).sum();
        let bytes = descriptor.slots().iter().map(|slot| slot.span_bytes).max().unwrap_or(0);
        cells.push(Cell::new((op, "fw"), shape, dtype, descriptor, moved, bytes));
    }
    Ok(())
}
