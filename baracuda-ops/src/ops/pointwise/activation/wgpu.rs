//! The WGSL kernels: what they bind, and what tells them apart.

use super::{ActivationBackwardDescriptor, ActivationDescriptor, Valid};
use crate::backend::wgpu::{Binding, Props, StepBuilder, Variants, Work};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::ops::activation::Activation;
use crate::ops::pointwise::wgpu;
use crate::ops::valid::Direction;
use crate::tensor::TensorDesc;

/// The dispatch of both passes.
pub(super) fn work(valid: &Valid, props: &Props) -> Result<Work<()>, Reason> {
    let [input, saved, output] = valid.operands();
    wgpu::work(&valid.slots, props, |operands| {
        let [entry, file] = match valid.op.kind {
            Direction::Forward => ["activation", "pointwise/activation"],
            Direction::Backward => ["activation_backward", "pointwise/activation_backward"],
        };
        let mut bindings = vec![operands.input(input), operands.output(output)];
        if valid.op.kind == Direction::Backward {
            bindings.insert(1, Binding { name: "saved", ..operands.input(saved) });
        }
        StepBuilder {
            entry,
            files: vec!["common/activation", file],
            constants: vec![("ACTIVATION", valid.fields.activation as u32)],
            flags: vec![("FROM_Y", valid.fields.from_y)],
            bindings,
            ..StepBuilder::default()
        }
    })
}

/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    for props in &Variants::devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let x = TensorDesc::contiguous(dtype, &[1024])?;
            for activation in Activation::ALL {
                let name = format!("{} of {dtype}", activation.name());
                let mut add = |valid: &Valid| variants.add_work(&name, work(valid, props), props);
                add(&ActivationDescriptor::new(x, activation)?.0);
                let backward = ActivationBackwardDescriptor::new(x, activation)?;
                add(&backward.0);
                if activation.has_gradient_from_output() {
                    add(&backward.from_y()?.0);
                }
            }
        }
    }
    Ok(())
}
