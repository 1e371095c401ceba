//! LayerNorm, forward and backward.

use baracuda_ops::{
    AnyDescriptor, Error, LayerNormArgs, LayerNormBackwardArgs, LayerNormBackwardDescriptor, LayerNormDescriptor,
};

use super::row_norm::{self, Family, Form, GradientForm};
use super::{Subject, TypedRun, existing};

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
        let forward = forward(&form.form)?.stats()?;
        let mut descriptor = forward.backward(&existing(&forward, &form.wanted))?.dh(form.dh)?;
        for (name, desc) in &form.layouts {
            descriptor = descriptor.layout(name, *desc)?;
        }
        Ok(AnyDescriptor::new(descriptor))
    }
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = LayerNormArgs::new(run.input("x"), run.output("y"));
    (args.residual, args.h) = (run.named.mem("residual"), run.named.mem_mut("h"));
    (args.weight, args.bias) = (run.named.mem("weight"), run.named.mem("bias"));
    (args.mean, args.rstd) = (run.named.mem_mut("mean"), run.named.mem_mut("rstd"));
    run.plan::<LayerNormDescriptor>(args)
}

fn run_backward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = LayerNormBackwardArgs::new(run.input("dy"), run.input("x"), run.input("mean"), run.input("rstd"));
    (args.weight, args.dh) = (run.named.mem("weight"), run.named.mem("dh"));
    (args.dx, args.dweight, args.dbias) =
        (run.named.mem_mut("dx"), run.named.mem_mut("dweight"), run.named.mem_mut("dbias"));
    run.plan::<LayerNormBackwardDescriptor>(args)
}
