//! Every kind of shader of the ops, without a device.

use super::{bias_work, depthwise_work, direct_work, tiled_work, walk_work};
use crate::backend::wgpu::{Props, Variants};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::Ask;
use crate::ops::activation::Activation;
use crate::ops::conv::{
    ConvBackwardBiasDescriptor, ConvBackwardDataDescriptor, ConvBackwardWeightDescriptor, ConvDescriptor, ConvWindow,
};
use crate::tensor::TensorDesc;

/// Extents of x, and channels of y: of each tile of forward, and with lines that are not whole.
const SHAPES: [([u64; 4], u64); 6] = [
    ([32, 64, 64, 64], 128),
    ([4, 64, 64, 64], 128),
    ([1, 64, 8, 8], 64),
    ([32, 63, 63, 65], 127),
    ([4, 63, 63, 65], 127),
    ([1, 63, 7, 9], 63),
];

/// Kernels of depthwise convolutions, each of which has shaders of its own.
const DEPTHWISE: [[u64; 2]; 5] = [[3, 3], [5, 5], [7, 7], [1, 4], [1, 1]];

/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    // Nothing depends on subgroups; the largest tile takes more workgroup memory than every device has.
    let able = Variants::device(Some((32, 32)));
    let devices = [Props { max_workgroup_bytes: 48 << 10, ..able }, Variants::device(None)];
    for props in &devices {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for (extents, filters) in SHAPES {
                for lie in [TensorDesc::contiguous, TensorDesc::channels_last] {
                    for other in [dtype, DType::F32] {
                        let name = format!("conv of {dtype} {extents:?}, others of {other}");
                        let window = ConvWindow::new().padding(&[1, 1]);
                        let x = lie(dtype, &extents)?;
                        let weight = lie(dtype, &[filters, extents[1], 3, 3])?;
                        let plain = ConvDescriptor::new(x, weight, window.clone())?.y(other)?;
                        variants.add_work(&name, tiled_work(&plain, props), props);
                        let forward = plain.bias(other)?.activation(Activation::Silu)?.pre(other)?;
                        variants.add_work(&name, tiled_work(&forward, props), props);
                        let dy = lie(other, &[extents[0], filters, extents[2], extents[3]])?;
                        let [dx, dweight] = [lie(other, &extents)?, lie(other, weight.dims())?];
                        let data = ConvBackwardDataDescriptor::new(dy, weight, dx, window.clone())?.beta(1.0)?;
                        variants.add_work(&name, tiled_work(&data, props), props);
                        let of_weight = ConvBackwardWeightDescriptor::new(x, dy, dweight, window)?;
                        variants.add_work(&name, tiled_work(&of_weight, props), props);
                        let bias = ConvBackwardBiasDescriptor::new(dy)?.dbias(dtype)?.beta(1.0)?;
                        variants.add_work(&name, bias_work(&bias, props), props);
                    }
                }
            }
            // Depthwise, with quads along the columns and along the channels, and with lines that are not whole.
            for (lie, extents) in [TensorDesc::contiguous, TensorDesc::channels_last]
                .into_iter()
                .flat_map(|lie| [[4, 8, 9, 8], [4, 9, 9, 9], [4, 7, 9, 3]].map(|extents| (lie, extents)))
            {
                for (kernel, other) in DEPTHWISE.into_iter().flat_map(|kernel| [(kernel, dtype), (kernel, DType::F32)])
                {
                    let name = format!("depthwise conv of {dtype} {extents:?}, {kernel:?}, others of {other}");
                    let padding = kernel.map(|extent| extent / 2);
                    let window = ConvWindow::new().padding(&padding).groups(extents[1]);
                    let weight = TensorDesc::contiguous(dtype, &[extents[1], 1, kernel[0], kernel[1]])?;
                    let forward = ConvDescriptor::new(lie(dtype, &extents)?, weight, window)?;
                    let forward = forward.bias(other)?.y(other)?.pre(other)?;
                    let (data, of_weight) = (forward.backward_data()?.dx(other)?, forward.backward_weight()?);
                    variants.add_work(&name, depthwise_work(&forward, props, Ask::Pinned), props);
                    variants.add_work(&name, depthwise_work(&data, props, Ask::Pinned), props);
                    variants.add_work(&name, depthwise_work(&of_weight.dweight(other)?, props, Ask::Pinned), props);
                }
            }
            // Of groups with few channels, and with a stride.
            for other in [dtype, DType::F32] {
                let name = format!("direct conv of {dtype}, others of {other}");
                let window = ConvWindow::new().padding(&[1, 1]).stride(&[2, 2]).groups(8);
                let x = TensorDesc::contiguous(dtype, &[4, 8, 9, 9])?;
                let weight = TensorDesc::contiguous(dtype, &[8, 1, 3, 3])?;
                let forward = ConvDescriptor::new(x, weight, window)?.bias(other)?.y(other)?.pre(other)?;
                variants.add_work(&name, direct_work(&forward, props), props);
                variants.add_work(&name, direct_work(&forward.backward_data()?.dx(other)?, props), props);
                variants.add_work(&name, direct_work(&forward.backward_weight()?.dweight(other)?, props), props);
                let name = format!("walk of conv of {dtype}, others of {other}");
                variants.add_work(&name, walk_work(&forward, props, Ask::Pinned), props);
                variants.add_work(&name, walk_work(&forward.backward_data()?.dx(other)?, props, Ask::Pinned), props);
                let of_weight = forward.backward_weight()?.dweight(other)?;
                variants.add_work(&name, walk_work(&of_weight, props, Ask::Pinned), props);
            }
        }
    }
    Ok(())
}
