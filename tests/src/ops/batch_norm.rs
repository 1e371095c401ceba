//! BatchNorm, forward and backward.

use baracuda_ops::{
    AnyDescriptor, BatchNormArgs, BatchNormBackwardArgs, BatchNormBackwardDescriptor, BatchNormDescriptor, Error,
};

use super::channel_norm::{self, Family, Form, GradientForm, Running};
use super::{Subject, TypedRun, existing};

pub(super) const FORWARD: Subject = channel_norm::forward_subject::<BatchNorm>("batch_norm", run_forward);
pub(super) const BACKWARD: Subject = channel_norm::backward_subject::<BatchNorm>("batch_norm_backward", run_backward);

struct BatchNorm;

fn forward(form: &Form) -> Result<BatchNormDescriptor, Error> {
    let mut descriptor = match form.running {
        Running::None => BatchNormDescriptor::new(form.x)?,
        Running::Momentum(momentum) => BatchNormDescriptor::new(form.x)?.momentum(momentum)?,
        Running::Cumulative => BatchNormDescriptor::new(form.x)?.cumulative()?,
        Running::Inference => BatchNormDescriptor::inference(form.x)?,
    };
    descriptor = descriptor.eps(form.eps)?.activation(form.activation)?;
    if let Some(dtype) = form.weight {
        descriptor = descriptor.weight(dtype)?;
    }
    if let Some(dtype) = form.bias {
        descriptor = descriptor.bias(dtype)?;
    }
    if form.residual {
        descriptor = descriptor.residual()?;
    }
    if form.stats {
        descriptor = descriptor.stats()?;
    }
    for (name, desc) in &form.layouts {
        descriptor = descriptor.layout(name, *desc)?;
    }
    Ok(descriptor)
}

impl Family for BatchNorm {
    const HAS_RUNNING: bool = true;
    const HAS_RESIDUAL: bool = true;
    const SHAPES: &'static [(&'static [u64], u64, bool)] = &[
        (&[8, 3, 5, 7], 0, true),
        (&[2, 16, 14, 14], 0, true),
        (&[1, 5, 9, 9], 0, true),
        (&[1, 8, 1031], 0, false),
        (&[33, 7, 1, 1], 0, true),
        (&[64, 10], 0, true),
        (&[2, 1], 0, false),
        (&[129, 1000], 0, false),
        (&[5, 1, 17], 0, true),
        (&[4, 6, 31], 0, false),
        (&[2, 3, 3, 4, 5], 0, true),
        (&[6, 20, 7, 7], 0, true),
        (&[3, 33, 2, 129], 0, false),
        (&[70, 9, 4, 4], 0, false),
        (&[80, 8, 7, 9], 0, false),
        (&[500, 3, 2, 2], 0, false),
        (&[4, 64, 16, 16], 0, false),
        (&[6, 40, 13, 11], 0, false),
        (&[80, 60, 17, 19], 0, false),
        (&[2, 2, 64, 64], 0, true),
        (&[3, 2, 101, 103], 0, false),
        (&[1, 2, 300, 333], 0, false),
        (&[1, 1, 262_144], 0, false),
        (&[4, 1, 512, 520], 0, false),
        (&[2, 65_537, 2], 0, false),
        (&[65_537, 2, 2], 0, false),
        (&[0, 4, 5, 5], 0, true),
        (&[2, 0, 5, 5], 0, false),
        (&[2, 4, 0, 5], 0, false),
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
        if form.from_y {
            descriptor = descriptor.from_y()?;
        }
        for (name, desc) in &form.layouts {
            descriptor = descriptor.layout(name, *desc)?;
        }
        Ok(AnyDescriptor::new(descriptor))
    }
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = BatchNormArgs::new(run.input("x"), run.output("y"));
    (args.weight, args.bias, args.residual) =
        (run.named.mem("weight"), run.named.mem("bias"), run.named.mem("residual"));
    (args.mean, args.rstd, args.num_batches) =
        (run.named.mem_mut("mean"), run.named.mem_mut("rstd"), run.named.mem_mut("num_batches"));
    let is_read = |slot: &&baracuda_ops::Slot| slot.access == baracuda_ops::Access::In;
    if run.descriptor.slots().iter().filter(is_read).any(|slot| slot.name == "running_mean") {
        args = args.inference(run.input("running_mean"), run.input("running_var"));
    } else if let (Some(mean), Some(var)) = (run.named.mem_mut("running_mean"), run.named.mem_mut("running_var")) {
        args = args.running(mean, var);
    }
    run.plan::<BatchNormDescriptor>(args)
}

fn run_backward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = BatchNormBackwardArgs::new(run.input("dy"), run.input("x"));
    (args.residual, args.y) = (run.named.mem("residual"), run.named.mem("y"));
    (args.weight, args.bias) = (run.named.mem("weight"), run.named.mem("bias"));
    (args.mean, args.rstd) = (run.named.mem("mean"), run.named.mem("rstd"));
    (args.running_mean, args.running_var) = (run.named.mem("running_mean"), run.named.mem("running_var"));
    (args.dx, args.dresidual) = (run.named.mem_mut("dx"), run.named.mem_mut("dresidual"));
    (args.dweight, args.dbias) = (run.named.mem_mut("dweight"), run.named.mem_mut("dbias"));
    run.plan::<BatchNormBackwardDescriptor>(args)
}
