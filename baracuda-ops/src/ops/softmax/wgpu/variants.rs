//! Every kind of shader of the op, without a device.

use super::{Form, Pass, masked};
use crate::backend::wgpu::{Props, Variants};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::Ask;
use crate::ops::softmax::SoftmaxDescriptor;
use crate::ops::valid::Described;
use crate::tensor::TensorDesc;

/// Extents and the axis: rows and channels, short and long, many and few.
const SHAPES: [(&[u64], usize); 8] = [
    (&[1000, 64], 1),
    (&[1000, 1024], 1),
    (&[1000, 40_000], 1),
    (&[50, 40_000], 1),
    (&[300, 5, 64], 1),
    (&[8, 21, 4096], 1),
    (&[8, 1000, 4096], 1),
    (&[1, 20_000, 64], 1),
];

/// Types of x and of y.
const TYPES: [(DType, DType); 5] = [
    (DType::F32, DType::F32),
    (DType::F16, DType::F16),
    (DType::BF16, DType::BF16),
    (DType::F16, DType::F32),
    (DType::BF16, DType::F32),
];

/// Lines with a bias or a mask: short, of several chunks to a thread, and read twice.
fn add_masked(variants: &mut Variants, props: &Props) -> Result<()> {
    for (dtype, output) in TYPES {
        for dims in [[4, 6, 64], [2, 40, 3000], [1, 2, 100_000]] {
            let plain = descriptor(dtype, &dims, 2, false, 1.0)?.output(output)?;
            let bias = |dtype| TensorDesc::contiguous(dtype, &dims[1..]);
            let forms = [
                plain.clone().causal()?,
                plain.clone().bias(bias(dtype)?)?,
                plain.clone().bias(bias(DType::F32)?)?.causal()?,
                plain.log()?.causal()?,
            ];
            for forward in forms {
                let name = format!("masked softmax of {dtype} {dims:?} to {output}");
                variants.add_work(&name, masked(forward.valid(), props, Ask::Pinned), props);
                variants.add_work(&name, masked(forward.backward()?.valid(), props, Ask::Pinned), props);
            }
        }
    }
    Ok(())
}

pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    for props in &Variants::devices() {
        add_masked(variants, props)?;
        for (dtype, output) in TYPES {
            for (dims, axis) in SHAPES {
                for (is_log, scale) in
                    [(false, 1.0), (true, 1.0), (false, -0.1), (true, -0.1), (true, 0.5), (false, 0.0)]
                {
                    let name = format!("softmax of {dtype} {dims:?} to {output}, log {is_log}, scale {scale}");
                    let forward =
                        descriptor(dtype, dims, axis, is_log, scale).and_then(|forward| forward.output(output));
                    let Ok(forward) = forward else { continue };
                    let Ok(backward) = forward.backward() else { continue };
                    for form in [Form::RowsResident, Form::RowsTwice, Form::ChannelsResident, Form::Split] {
                        variants.add_work(&name, Pass::work(forward.valid(), form, props, Ask::Pinned), props);
                        variants.add_work(&name, Pass::work(backward.valid(), form, props, Ask::Pinned), props);
                    }
                }
            }
        }
    }
    Ok(())
}

fn descriptor(dtype: DType, dims: &[u64], axis: usize, is_log: bool, scale: f64) -> Result<SoftmaxDescriptor> {
    let descriptor = SoftmaxDescriptor::new(TensorDesc::contiguous(dtype, dims)?, axis)?.scale(scale)?;
    if is_log { descriptor.log() } else { Ok(descriptor) }
}
