//! LayerNorm, forward and backward.

use baracuda_ops::{
    AnyDescriptor, Device, Error, LayerNormArgs, LayerNormBackwardArgs, LayerNormBackwardDescriptor,
    LayerNormDescriptor, Plan, PlanOptions, Queue, Workspace,
};

use super::row_norm::{self, Family, Form, GradientForm};
use super::{Named, Subject};

pub(super) const FORWARD: Subject = row_norm::forward_subject::<LayerNorm>("layer_norm", run_forward);
pub(super) const BACKWARD: Subject = row_norm::backward_subject::<LayerNorm>("layer_norm_backward", run_backward);

struct LayerNorm;

fn forward(form: &Form) -> Result<LayerNormDescriptor, Error> {
    let mut descriptor = LayerNormDescriptor::new(form.x, form.normalized_dims)?.eps(form.eps)?;
    if let Some(dtype) = form.weight {
        descriptor = descriptor.weight(dtype)?;
    }
    if let Some(dtype) = form.bias {
        descriptor = descriptor.bias(dtype)?;
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

impl Family for LayerNorm {
    const HAS_BIAS: bool = true;

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
    let descriptor: &LayerNormDescriptor = descriptor.downcast().expect("a layer_norm");
    let mut args = LayerNormArgs::new(named.mem("x").expect("x"), named.mem_mut("y").expect("y"));
    (args.residual, args.h) = (named.mem("residual"), named.mem_mut("h"));
    (args.weight, args.bias) = (named.mem("weight"), named.mem("bias"));
    (args.mean, args.rstd) = (named.mem_mut("mean"), named.mem_mut("rstd"));
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
    let descriptor: &LayerNormBackwardDescriptor = descriptor.downcast().expect("a layer_norm_backward");
    let of = |name| named.mem(name).expect("an operand that every backward has");
    let mut args = LayerNormBackwardArgs::new(of("dy"), of("x"), of("mean"), of("rstd"));
    (args.weight, args.dh) = (named.mem("weight"), named.mem("dh"));
    (args.dx, args.dweight, args.dbias) = (named.mem_mut("dx"), named.mem_mut("dweight"), named.mem_mut("dbias"));
    Plan::new(device, descriptor.clone(), options)?.run(queue, args, workspace)
}
