//! RMSNorm, forward and backward.

use baracuda_ops::{
    AnyDescriptor, Device, Error, Plan, PlanOptions, Queue, RmsNormArgs, RmsNormBackwardArgs,
    RmsNormBackwardDescriptor, RmsNormDescriptor, Workspace,
};

use super::row_norm::{self, Family, Form, GradientForm};
use super::{Named, Subject};

pub(super) const FORWARD: Subject = row_norm::forward_subject::<RmsNorm>("rms_norm", run_forward);
pub(super) const BACKWARD: Subject = row_norm::backward_subject::<RmsNorm>("rms_norm_backward", run_backward);

struct RmsNorm;

fn forward(form: &Form) -> Result<RmsNormDescriptor, Error> {
    let mut descriptor = RmsNormDescriptor::new(form.x, form.normalized_dims)?.eps(form.eps)?;
    if let Some(dtype) = form.weight {
        descriptor = descriptor.weight(dtype)?.weight_offset(form.weight_offset)?;
    }
    if form.stats {
        descriptor = descriptor.stats()?;
    }
    if form.residual {
        descriptor = descriptor.residual()?;
    }
    for (name, desc) in &form.layouts {
        descriptor = descriptor.layout(name, *desc)?;
    }
    Ok(descriptor)
}

impl Family for RmsNorm {
    const HAS_BIAS: bool = false;

    fn forward(form: &Form) -> Result<AnyDescriptor, Error> {
        forward(form).map(AnyDescriptor::new)
    }

    fn backward(form: &GradientForm) -> Result<AnyDescriptor, Error> {
        let mut descriptor = forward(&form.form)?.backward(form.wanted)?.dh(form.dh)?;
        for (name, desc) in &form.layouts {
            descriptor = descriptor.layout(name, *desc)?;
        }
        Ok(AnyDescriptor::new(descriptor))
    }
}

fn run_forward(
    descriptor: &AnyDescriptor,
    device: &Device,
    options: &PlanOptions,
    queue: &mut Queue<'_>,
    named: &dyn Named,
    workspace: Workspace<'_>,
) -> Result<(), Error> {
    let descriptor: &RmsNormDescriptor = descriptor.downcast().expect("an rms_norm");
    let mut args = RmsNormArgs::new(named.mem("x").expect("x"), named.mem_mut("y").expect("y"));
    (args.residual, args.h) = (named.mem("residual"), named.mem_mut("h"));
    (args.weight, args.rstd) = (named.mem("weight"), named.mem_mut("rstd"));
    Plan::new(device, descriptor.clone(), options)?.run(queue, args, workspace)
}

fn run_backward(
    descriptor: &AnyDescriptor,
    device: &Device,
    options: &PlanOptions,
    queue: &mut Queue<'_>,
    named: &dyn Named,
    workspace: Workspace<'_>,
) -> Result<(), Error> {
    let descriptor: &RmsNormBackwardDescriptor = descriptor.downcast().expect("an rms_norm_backward");
    let of = |name| named.mem(name).expect("an operand that every backward has");
    let mut args = RmsNormBackwardArgs::new(of("dy"), of("x"), of("rstd"));
    (args.weight, args.dh) = (named.mem("weight"), named.mem("dh"));
    (args.dx, args.dweight) = (named.mem_mut("dx"), named.mem_mut("dweight"));
    Plan::new(device, descriptor.clone(), options)?.run(queue, args, workspace)
}
