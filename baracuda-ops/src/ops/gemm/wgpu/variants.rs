//! Every kind of shader of the op, without a device.

use super::{backward_work, forward_work};
use crate::backend::wgpu::{Props, Variants};
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::activation::Activation;
use crate::ops::gemm::{GemmBackwardDescriptor, GemmDescriptor, GemmSaved};
use crate::tensor::TensorDesc;

/// M, N and K: of each tile, and with lines that are not whole.
const SHAPES: [[u64; 3]; 6] =
    [[2048, 2048, 64], [1024, 1024, 64], [64, 64, 64], [2047, 2049, 33], [1023, 1025, 33], [63, 65, 33]];

/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    // Nothing depends on subgroups; the largest tile takes more workgroup memory than every device has.
    let able = Variants::device(Some((32, 32)));
    let devices = [Props { max_workgroup_bytes: 48 << 10, ..able }, Variants::device(None)];
    for props in &devices {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for shape in SHAPES {
                for other in [dtype, DType::F32] {
                    let name = format!("gemm of {dtype} {shape:?}, others of {other}");
                    let mut add = |work| variants.add_work(&name, work, props);
                    let [m, n, k] = shape;
                    let a = TensorDesc::contiguous(dtype, &[m, k])?;
                    let b = TensorDesc::contiguous(dtype, &[k, n])?;
                    let plain = GemmDescriptor::new(a, b)?.out(other)?;
                    add(forward_work(&plain, props));
                    let forward = plain.bias(other)?.activation(Activation::Silu)?.pre(other)?;
                    add(forward_work(&forward, props));
                    let backward = |saved| {
                        let wanted = GemmBackwardDescriptor::new(a, b, &["a", "b", "bias"])?;
                        let wanted = wanted.out(other)?.pre(other)?.bias(other)?.activation(Activation::Relu, saved)?;
                        wanted.da(other, 1.0)?.db(other, 0.0)?.dbias(other, 1.0)
                    };
                    for saved in [GemmSaved::Pre, GemmSaved::Out, GemmSaved::Recompute] {
                        add(backward_work(&backward(saved)?, props));
                    }
                }
            }
            // Sums over nothing.
            let [a, b] = [[0, 8], [8, 8]].map(|dims| TensorDesc::contiguous(dtype, &dims));
            let empty = GemmBackwardDescriptor::new(a?, b?, &["a", "b", "bias"])?;
            variants.add_work(&format!("gemm of {dtype} over nothing"), backward_work(&empty, props), props);
        }
    }
    Ok(())
}
