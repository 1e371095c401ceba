//! BatchNorm, GroupNorm and InstanceNorm.

use baracuda_ops::{
    Activation, AnyDescriptor, BatchNormDescriptor, DType, GroupNormDescriptor, InstanceNormDescriptor, Result,
    TensorDesc,
};

use super::Cell;

/// Labels of the cells.
pub(super) const OPS: [&str; 8] = [
    "group_norm",
    "group_norm_silu",
    "group_norm_nhwc",
    "batch_norm_train",
    "batch_norm_train_nhwc",
    "batch_norm_eval",
    "batch_norm_train_add_relu",
    "instance_norm",
];

/// Samples, channels, height, width, groups: of diffusion models and a residual network.
const GROUPED: [[u64; 5]; 7] = [
    [2, 320, 64, 64, 32],
    [2, 640, 32, 32, 32],
    [2, 1280, 16, 16, 32],
    [1, 128, 512, 512, 32],
    [1, 512, 128, 128, 32],
    [1, 256, 1024, 1024, 32],
    [32, 256, 56, 56, 32],
];
/// Samples, channels, height, width: of a residual network and a segmentation network.
const BATCHES: [[u64; 4]; 6] =
    [[64, 64, 112, 112], [64, 256, 56, 56], [64, 512, 28, 28], [64, 2048, 7, 7], [256, 64, 56, 56], [2, 64, 512, 512]];
/// The same, of style transfer and image translation.
const INSTANCES: [[u64; 4]; 4] = [[8, 32, 256, 256], [8, 64, 128, 128], [8, 128, 64, 64], [1, 256, 128, 128]];

/// The cells of one label; `is_quick` keeps the first three shapes.
pub(super) fn cells(cells: &mut Vec<Cell>, op: &'static str, is_quick: bool) -> Result<()> {
    let shapes: Vec<&[u64]> = match op {
        _ if op.starts_with("group") => GROUPED.iter().map(|shape| &shape[..]).collect(),
        "instance_norm" => INSTANCES.iter().map(|shape| &shape[..]).collect(),
        _ => BATCHES.iter().map(|shape| &shape[..]).collect(),
    };
    for shape in shapes.into_iter().take(if is_quick { 3 } else { usize::MAX }) {
        for dtype in [DType::BF16, DType::F32] {
            if dtype == DType::F32 && matches!(op, "group_norm_silu" | "group_norm_nhwc") {
                continue;
            }
            let dims = &shape[..4];
            let x = match op.ends_with("nhwc") {
                true => TensorDesc::channels_last(dtype, dims)?,
                false => TensorDesc::contiguous(dtype, dims)?,
            };
            let (forward, backward) = descriptors(op, x, shape)?;
            // x and y, with a residual that too; dy, x and dx, with a residual also y, which tells where relu is 0, and dresidual.
            let (tensors, gradient_tensors) = if op == "batch_norm_train_add_relu" { (3, 5) } else { (2, 3) };
            let in_bytes = x.span_bytes();
            let shape = shape.to_vec();
            let (dtype, bytes) = (x.dtype(), tensors * in_bytes);
            if let Some(descriptor) = backward {
                let (shape, bytes) = (shape.clone(), gradient_tensors * in_bytes);
                cells.push(Cell::new((op, "bw"), shape, dtype, descriptor, bytes, in_bytes));
            }
            cells.push(Cell::new((op, "fw"), shape, dtype, forward, bytes, in_bytes));
        }
    }
    Ok(())
}

/// Forward, and backward where it is measured. Parameters are of x's type for GroupNorm, else f32, as the other libraries have them.
fn descriptors(op: &str, x: TensorDesc, shape: &[u64]) -> Result<(AnyDescriptor, Option<AnyDescriptor>)> {
    if let [.., groups] = shape[..]
        && op.starts_with("group")
    {
        let dtype = x.dtype();
        let activation = if op.ends_with("silu") { Activation::Silu } else { Activation::Identity };
        let forward = GroupNormDescriptor::new(x, groups)?.weight(dtype)?.bias(dtype)?.eps(1e-6)?;
        let forward = forward.activation(activation)?;
        let backward = forward.clone().stats()?.backward_all()?;
        return Ok((AnyDescriptor::new(forward), Some(AnyDescriptor::new(backward))));
    }
    match op {
        "instance_norm" => {
            let forward = InstanceNormDescriptor::new(x)?.weight(DType::F32)?.bias(DType::F32)?.eps(1e-5)?;
            let backward = forward.clone().stats()?.backward_all()?;
            Ok((AnyDescriptor::new(forward), Some(AnyDescriptor::new(backward))))
        }
        "batch_norm_eval" => {
            let forward = BatchNormDescriptor::inference(x)?.weight(DType::F32)?.bias(DType::F32)?.eps(1e-5)?;
            Ok((AnyDescriptor::new(forward), None))
        }
        _ => {
            let forward =
                BatchNormDescriptor::new(x)?.weight(DType::F32)?.bias(DType::F32)?.eps(1e-5)?.momentum(0.1)?;
            if op != "batch_norm_train_add_relu" {
                let backward = forward.clone().stats()?.backward_all()?;
                return Ok((AnyDescriptor::new(forward), Some(AnyDescriptor::new(backward))));
            }
            let forward = forward.residual()?.activation(Activation::Relu)?;
            let backward = forward.clone().stats()?.backward_all()?.from_y()?;
            Ok((AnyDescriptor::new(forward), Some(AnyDescriptor::new(backward))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_tensors() {
        let mut all = Vec::new();
        for op in OPS {
            cells(&mut all, op, false).unwrap();
        }
        assert_eq!(all.len(), 2 * (14 + 7 + 7 + 12 + 12 + 12 + 8) + 12);
        for cell in &all {
            let tensor = |slot: &&baracuda_ops::Slot| slot.desc.rank() == 4;
            let bytes: u64 = cell.descriptor.slots().iter().filter(tensor).map(|slot| slot.span_bytes).sum();
            assert_eq!(cell.bytes, bytes, "{} {} {:?}", cell.op, cell.pass, cell.shape);
        }
    }
}
