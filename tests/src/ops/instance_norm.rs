//! InstanceNorm, forward and backward.

use baracuda_ops::{
    AnyDescriptor, Error, InstanceNormArgs, InstanceNormBackwardArgs, InstanceNormBackwardDescriptor,
    InstanceNormDescriptor,
};

use super::channel_norm::{self, Family, Form, GradientForm, Running};
use super::{Subject, TypedRun, existing};

pub(super) const FORWARD: Subject = channel_norm::forward_subject::<InstanceNorm>("instance_norm", run_forward);
pub(super) const BACKWARD: Subject =
    channel_norm::backward_subject::<InstanceNorm>("instance_norm_backward", run_backward);

struct InstanceNorm;

fn forward(form: &Form) -> Result<InstanceNormDescriptor, Error> {
    let mut descriptor = match form.running {
        Running::None | Running::Cumulative => InstanceNormDescriptor::new(form.x)?,
        Running::Momentum(momentum) => InstanceNormDescriptor::new(form.x)?.momentum(momentum)?,
        Running::Inference => InstanceNormDescriptor::inference(form.x)?,
    };
    descriptor = descriptor.eps(form.eps)?.activation(form.activation)?;
    if let Some(dtype) = form.weight {
        descriptor = descriptor.weight(dtype)?;
    }
    if let Some(dtype) = form.bias {
        descriptor = descriptor.bias(dtype)?;
    }
    if form.stats {
        descriptor = descriptor.stats()?;
    }
    for (name, desc) in &form.layouts {
        descriptor = descriptor.layout(name, *desc)?;
    }
    Ok(descriptor)
}

impl Family for InstanceNorm {
    const HAS_RUNNING: bool = true;
    const HAS_RESIDUAL: bool = false;
    const SHAPES: &'static [(&'static [u64], u64, bool)] = &[
        (&[2, 5, 5, 7], 0, true),
        (&[1, 4, 31], 0, true),
        (&[2, 2, 3, 4, 5], 0, true),
        (&[4, 16, 7, 7], 0, true),
        (&[3, 1, 2], 0, false),
        (&[2, 24, 9, 9], 0, false),
        (&[1, 3, 64, 64], 0, true),
        (&[2, 3, 101, 103], 0, false),
        (&[1, 2, 300, 333], 0, false),
        (&[1, 1, 262_144], 0, false),
        (&[3, 21_846, 2], 0, false),
        (&[9, 33, 4, 4], 0, false),
        (&[0, 3, 4], 0, true),
        (&[2, 0, 4, 4], 0, false),
        (&[2, 3, 0], 0, false),
    ];

    fn groups(_: u64) -> u64 {
        0
    }

    fn forward(form: &Form) -> Result<AnyDescriptor, Error> {
        forward(form).map(AnyDescriptor::new)
    }

    fn backward(form: &GradientForm) -> Result<AnyDescriptor, Error> {
        let forward = forward(&form.form)?;
        let forward = if form.form.running == Running::Inference { forward } else { forward.stats()? };
        let mut descriptor = forward.backward(&existing(&forward, &form.wanted))?;
        for (name, desc) in &form.layouts {
            descriptor = descriptor.layout(name, *desc)?;
        }
        Ok(AnyDescriptor::new(descriptor))
    }
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = InstanceNormArgs::new(run.input("x"), run.output("y"));
    (args.weight, args.bias) = (run.named.mem("weight"), run.named.mem("bias"));
    (args.mean, args.rstd) = (run.named.mem_mut("mean"), run.named.mem_mut("rstd"));
    let is_read = |slot: &&baracuda_ops::Slot| slot.access == baracuda_ops::Access::In;
    if run.descriptor.slots().iter().filter(is_read).any(|slot| slot.name == "running_mean") {
        args = args.inference(run.input("running_mean"), run.input("running_var"));
    } else if let (Some(mean), Some(var)) = (run.named.mem_mut("running_mean"), run.named.mem_mut("running_var")) {
        args = args.running(mean, var);
    }
    run.plan::<InstanceNormDescriptor>(args)
}

fn run_backward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = InstanceNormBackwardArgs::new(run.input("dy"), run.input("x"));
    (args.weight, args.bias) = (run.named.mem("weight"), run.named.mem("bias"));
    (args.mean, args.rstd) = (run.named.mem("mean"), run.named.mem("rstd"));
    (args.running_mean, args.running_var) = (run.named.mem("running_mean"), run.named.mem("running_var"));
    args.dx = run.named.mem_mut("dx");
    (args.dweight, args.dbias) = (run.named.mem_mut("dweight"), run.named.mem_mut("dbias"));
    run.plan::<InstanceNormBackwardDescriptor>(args)
}
