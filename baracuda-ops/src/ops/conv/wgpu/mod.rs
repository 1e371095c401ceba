//! The WGSL kernels: what they bind, and their dispatches.

mod bias;
mod contraction;
mod digits;
mod variants;

use super::geometry::{ChannelSums, Contraction};
use super::{ConvBackwardBiasDescriptor, ConvBackwardDataDescriptor, ConvBackwardWeightDescriptor, ConvDescriptor};
use crate::backend::wgpu::{Props, StepBuilder, Work, check_bindings, check_reach, check_workspace};
use crate::backend::{Backend, DeviceProps};
use crate::dtype::DType;
use crate::error::Reason;
use crate::options::PlanOptions;
use crate::plan::{Ask, Candidate, Descriptor, Kernel, Slot};

pub(in crate::ops) use variants::wgsl_variants;

/// The kernels of the convolution and of its gradients.
pub(super) struct Wgsl;

/// What a kernel computes.
trait Computes: Descriptor {
    const KERNEL: &'static str;

    fn work(&self, props: &Props) -> Result<Work<()>, Reason>;
}

impl Computes for ConvDescriptor {
    const KERNEL: &'static str = "conv_tiled";

    fn work(&self, props: &Props) -> Result<Work<()>, Reason> {
        contracting(self.slots(), || self.contraction(), props)
    }
}

impl Computes for ConvBackwardDataDescriptor {
    const KERNEL: &'static str = "conv_backward_data_tiled";

    fn work(&self, props: &Props) -> Result<Work<()>, Reason> {
        contracting(self.slots(), || self.contraction(), props)
    }
}

impl Computes for ConvBackwardWeightDescriptor {
    const KERNEL: &'static str = "conv_backward_weight_tiled";

    fn work(&self, props: &Props) -> Result<Work<()>, Reason> {
        contracting(self.slots(), || self.contraction(), props)
    }
}

impl Computes for ConvBackwardBiasDescriptor {
    const KERNEL: &'static str = "conv_backward_bias_reduce";

    fn work(&self, props: &Props) -> Result<Work<()>, Reason> {
        summing(self.slots(), &self.channel_sums(), props)
    }
}

impl<D: Computes> Kernel<D> for Wgsl {
    fn name(&self) -> &'static str {
        D::KERNEL
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
        Ok(descriptor.work(Props::of(props)?)?.candidate())
    }
}

fn contracting(slots: &[Slot], contraction: impl FnOnce() -> Contraction, props: &Props) -> Result<Work<()>, Reason> {
    check_operands(slots, props)?;
    let (steps, workspace_bytes) = contraction::steps(&contraction(), props)?;
    finished(steps, workspace_bytes, props)
}

fn summing(slots: &[Slot], sums: &ChannelSums, props: &Props) -> Result<Work<()>, Reason> {
    check_operands(slots, props)?;
    let (steps, workspace_bytes) = bias::steps(sums, props)?;
    finished(steps, workspace_bytes, props)
}

fn check_operands(slots: &[Slot], props: &Props) -> Result<(), Reason> {
    if slots.iter().any(|slot| slot.desc.dtype() == DType::F64) {
        return Err("WGSL has no arithmetic of f64 to rely on".into());
    }
    check_reach(slots, &[], props)
}

fn finished(steps: Vec<StepBuilder>, workspace_bytes: u64, props: &Props) -> Result<Work<()>, Reason> {
    check_workspace(workspace_bytes, props)?;
    check_bindings(&steps, props)?;
    Ok(Work { steps, workspace_bytes, ..Work::none((), props) })
}
