//! RMSNorm, forward and backward.

use baracuda_ops::{
    AnyDescriptor, Error, RmsNormArgs, RmsNormBackwardArgs, RmsNormBackwardDescriptor, RmsNormDescriptor,
};

use super::row_norm::{self, Family, Form, GradientForm};
use super::{Subject, TypedRun, existing};

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
        let forward = forward(&form.form)?.stats()?;
        let mut descriptor = forward.backward(&existing(&forward, &form.wanted))?.dh(form.dh)?;
        for (name, desc) in &form.layouts {
            descriptor = descriptor.layout(name, *desc)?;
        }
        Ok(AnyDescriptor::new(descriptor))
    }
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = RmsNormArgs::new(run.input("x"), run.output("y"));
    (args.residual, args.h) = (run.named.mem("residual"), run.named.mem_mut("h"));
    (args.weight, args.rstd) = (run.named.mem("weight"), run.named.mem_mut("rstd"));
    run.plan::<RmsNormDescriptor>(args)
}

fn run_backward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = RmsNormBackwardArgs::new(run.input("dy"), run.input("x"), run.input("rstd"));
    (args.weight, args.dh) = (run.named.mem("weight"), run.named.mem("dh"));
    (args.dx, args.dweight) = (run.named.mem_mut("dx"), run.named.mem_mut("dweight"));
    run.plan::<RmsNormBackwardDescriptor>(args)
}
