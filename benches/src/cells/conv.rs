//! Convolutions of images, depthwise and others, and the gradient of the bias.

use baracuda_ops::{
    AnyDescriptor, ConvBackwardBiasDescriptor, ConvDescriptor, ConvWindow, DType, Math, Result, TensorDesc,
};

use super::Cell;

/// Labels of convolutions: with as many groups as channels and with one, contiguous and channels-last.
pub(super) const OPS: [&str; 4] = ["conv2d_nchw", "conv2d_nhwc", "depthwise_nchw", "depthwise_nhwc"];

/// The label of the gradient of the bias.
pub(super) const BIAS: &str = "conv_backward_bias";

/// Samples, channels, height, width, filters, height and width of the kernel, stride, padding on each side: of residual networks, their stem and
/// a diffusion model. In this order the scripts of the peers have them in a shape.
const IMAGES: [[u64; 8]; 6] = [
    [64, 64, 56, 56, 64, 3, 1, 1],
    [64, 256, 14, 14, 256, 3, 1, 1],
    [64, 256, 56, 56, 64, 1, 1, 0],
    [64, 3, 224, 224, 64, 7, 2, 3],
    [2, 320, 64, 64, 320, 3, 1, 1],
    [1, 512, 128, 128, 512, 3, 1, 1],
];
/// The same, with a group for each channel.
const DEPTHWISE: [[u64; 8]; 1] = [[64, 256, 56, 56, 256, 3, 1, 1]];
/// Samples, channels, height, width of the gradient of an output.
const OUTPUTS: [[u64; 4]; 4] = [[64, 64, 56, 56], [64, 256, 14, 14], [2, 320, 64, 64], [1, 512, 128, 128]];

/// Forward, and both gradients one after the other; `is_quick` keeps the first three shapes.
pub(super) fn products(cells: &mut Vec<Cell>, op: &'static str, is_quick: bool) -> Result<()> {
    let shapes: &[[u64; 8]] = if op.starts_with("depthwise") { &DEPTHWISE } else { &IMAGES };
    let tensor = if op.ends_with("nhwc") { TensorDesc::channels_last } else { TensorDesc::contiguous };
    for &shape in shapes.iter().take(if is_quick { 3 } else { usize::MAX }) {
        let [samples, channels, height, width, filters, kernel, stride, padding] = shape;
        let groups = if op.starts_with("depthwise") { channels } else { 1 };
        for (dtype, math) in [(DType::BF16, Math::Strict), (DType::F32, Math::Strict), (DType::F32, Math::Tf32)] {
            let x = tensor(dtype, &[samples, channels, height, width])?;
            let weight = tensor(dtype, &[filters, channels / groups, kernel, kernel])?;
            let window = ConvWindow::new().stride(&[stride; 2]).padding(&[padding; 2]).groups(groups);
            let forward = ConvDescriptor::new(x, weight, window)?;
            let data = AnyDescriptor::new(forward.backward_data()?);
            let backward = (AnyDescriptor::new(forward.backward_weight()?), Some(data));
            let forward = AnyDescriptor::new(forward);
            // Each of x, weight and y once; backward reads or writes each of them and of their gradients, but y.
            let bytes: u64 = forward.slots().iter().map(|slot| slot.span_bytes).sum();
            let (shape, in_bytes) = (shape.to_vec(), x.span_bytes());
            for (pass, (descriptor, also), bytes) in [("fw", (forward, None), bytes), ("bw", backward, 2 * bytes)] {
                let shape = shape.clone();
                cells.push(Cell { op, pass, shape, dtype, descriptor, also, math, bytes, in_bytes });
            }
        }
    }
    Ok(())
}

/// The gradient of the bias, contiguous and channels-last, told apart by a last number of the shape: how far channels lie from each other.
pub(super) fn bias(cells: &mut Vec<Cell>, is_quick: bool) -> Result<()> {
    for shape in OUTPUTS.into_iter().take(if is_quick { 3 } else { OUTPUTS.len() }) {
        for dtype in [DType::BF16, DType::F32] {
            for tensor in [TensorDesc::contiguous, TensorDesc::channels_last] {
                let dy = tensor(dtype, &shape)?;
                let descriptor = AnyDescriptor::new(ConvBackwardBiasDescriptor::new(dy)?);
                let (bytes, in_bytes) = (dy.span_bytes(), dy.span_bytes());
                let shape = shape.into_iter().chain([dy.strides()[1]]).collect();
                cells.push(Cell::new((BIAS, "bw"), shape, dtype, descriptor, bytes, in_bytes));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_those_of_the_peers() {
        let mut all = Vec::new();
        for op in OPS {
            products(&mut all, op, false).unwrap();
        }
        assert_eq!(all.len(), 2 * 2 * 3 * (6 + 1));
        let names: Vec<&str> = all[..6].iter().map(Cell::dtype_name).collect();
        assert_eq!(names, ["bfloat16", "bfloat16", "float32", "float32", "tf32", "tf32"]);
        assert!(all.iter().all(|cell| cell.also.is_some() == (cell.pass == "bw")));
        // The stem: x, weight and y of 2 bytes.
        let stem = all.iter().find(|cell| cell.shape[1] == 3 && cell.dtype == DType::BF16).unwrap();
        assert_eq!(stem.bytes, 2 * (64 * 3 * 224 * 224 + 64 * 3 * 7 * 7 + 64 * 64 * 112 * 112));
    }
}
