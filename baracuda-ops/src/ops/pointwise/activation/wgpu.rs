//! The WGSL kernels: what they bind, and their one dispatch.

use bytemuck::{Pod, Zeroable};

use super::dense::Run;
use super::{ActivationBackwardDescriptor, ActivationDescriptor, Pass};
use crate::backend::wgpu::{Binding, Place, Props, ShaderType, StepBuilder, Variants, Work, check_reach, groups};
use crate::backend::{Backend, DeviceProps};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::narrow::word;
use crate::ops::activation::Activation;
use crate::options::PlanOptions;
use crate::plan::{Ask, Candidate, Kernel, KernelName};
use crate::tensor::TensorDesc;

/// The kernels of both passes.
pub(super) struct Wgpu;

impl<D: Pass> Kernel<D> for Wgpu {
    fn name(&self) -> &'static str {
        KernelName::<D>::WGSL
    }

    fn backend(&self) -> Backend {
        Backend::Wgpu
    }

    fn accept<'d>(
        &self,
        descriptor: &'d D,
        _: &PlanOptions,
        props: &DeviceProps,
        _: Ask,
    ) -> Result<Candidate<'d>, Reason> {
        Ok(work(descriptor, Props::of(props)?)?.candidate())
    }
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Params {
    elements: u32,
    groups_x: u32,
    end: [u32; 2],
}

/// Invocations of a workgroup.
const WORKGROUP: u32 = 256;
/// Chunks of 16 bytes of an invocation, as the yardstick's copy has them.
const CHUNKS: u32 = 4;

fn work<D: Pass>(descriptor: &D, props: &Props) -> Result<Work<()>, Reason> {
    let valid = descriptor.valid();
    let dtype = ShaderType::of(valid.fields.x.dtype())?;
    let run = Run::of(valid)?;
    check_reach(&valid.slots, &[], props)?;
    let mut work = Work::none((), props);
    if run.elements == 0 {
        return Ok(work);
    }
    let workgroup = WORKGROUP.min(props.max_threads);
    let chunk_elements = 16 / valid.fields.x.dtype().size_bytes();
    let of_group = u64::from(workgroup * CHUNKS) * chunk_elements;
    let grid = groups(run.elements.div_ceil(of_group), props)?;
    // Below 2^32 bytes by `check_reach`.
    let params = Params { elements: word(run.elements), groups_x: grid[0], end: [0; 2] };

    let is_half = dtype.is_half();
    let input = ["chunks_in", if is_half { "halves_in" } else { "words_in" }];
    let output = ["chunks_out", if is_half { "halves_out" } else { "words_out" }];
    let bind = |name: &'static str, position: Option<usize>, accessors: [&'static str; 2]| match position {
        Some(position) => Binding { name, place: Some(Place::Operand(position)), accessors },
        None => Binding::absent(name, "absent_in"),
    };
    let position = |name: &str| valid.slots.named(name).map(|slot| slot.index);
    let (entry, file, bindings) = if D::IS_BACKWARD {
        let bindings = vec![
            bind("dy", position("dy"), input),
            bind("saved", valid.saved(), input),
            bind("dx", position("dx"), output),
        ];
        ("activation_backward", "pointwise/activation_backward", bindings)
    } else {
        let bindings = vec![bind("x", position("x"), input), bind("y", position("y"), output)];
        ("activation", "pointwise/activation", bindings)
    };
    let mut files = dtype.prelude();
    files.extend(["common/chunk", "common/activation", file]);
    work.steps.push(StepBuilder {
        entry,
        files,
        constants: vec![("WORKGROUP", workgroup), ("CHUNKS", CHUNKS), ("ACTIVATION", valid.fields.activation as u32)],
        flags: vec![("FROM_Y", valid.fields.from_y)],
        bindings,
        can_chunk: run.elements.is_multiple_of(chunk_elements),
        params: bytemuck::bytes_of(&params).to_vec(),
        grid,
        ..StepBuilder::default()
    });
    Ok(work)
}

pub(in super::super) fn wgsl_variants() -> impl Iterator<Item = (String, String)> {
    let mut variants = Variants::default();
    let _ = add_variants(&mut variants);
    variants.into_texts()
}

/// # Errors
/// A descriptor that is not valid.
fn add_variants(variants: &mut Variants) -> Result<()> {
    for props in &Variants::devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let x = TensorDesc::contiguous(dtype, &[1024])?;
            for activation in Activation::ALL {
                let name = format!("{} of {dtype}", activation.name());
                let mut add = |work| variants.add_work(&name, work, props);
                add(work(&ActivationDescriptor::new(x, activation)?, props));
                let backward = ActivationBackwardDescriptor::new(x, activation)?;
                add(work(&backward, props));
                if activation.has_gradient_from_output() {
                    add(work(&backward.from_y()?, props));
                }
            }
        }
    }
    Ok(())
}
