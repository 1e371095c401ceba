//! GroupNorm, forward and backward.

use baracuda_ops::{
    AnyDescriptor, Error, GroupNormArgs, GroupNormBackwardArgs, GroupNormBackwardDescriptor, GroupNormDescriptor,
};

use super::channel_norm::{self, Family, Form, GradientForm};
use super::{Subject, TypedRun, existing};

pub(super) const FORWARD: Subject = channel_norm::forward_subject::<GroupNorm>("group_norm", run_forward);
pub(super) const BACKWARD: Subject = channel_norm::backward_subject::<GroupNorm>("group_norm_backward", run_backward);

struct GroupNorm;

fn forward(form: &Form) -> Result<GroupNormDescriptor, Error> {
    let mut descriptor = GroupNormDescriptor::new(form.x, form.groups)?;
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

impl Family for GroupNorm {
    const HAS_RUNNING: bool = false;
    const HAS_RESIDUAL: bool = false;
    const SHAPES: &'static [(&'static [u64], u64, bool)] = &[
        (&[2, 6, 5, 7], 1, true),
        (&[2, 6, 5, 7], 2, true),
        (&[2, 6, 5, 7], 3, false),
        (&[2, 6, 5, 7], 6, true),
        (&[2, 32, 8, 8], 8, true),
        (&[1, 12, 1, 1], 4, true),
        (&[1, 4, 1, 1], 4, false),
        (&[3, 4], 2, true),
        (&[7, 128], 4, false),
        (&[2, 1, 19], 1, true),
        (&[3, 6, 31], 3, false),
        (&[2, 4, 3, 4, 5], 2, true),
        (&[2, 40, 7, 7], 8, true),
        (&[1, 320, 16, 16], 32, false),
        (&[2, 96, 3, 129], 32, false),
        (&[1, 8, 64, 64], 1, true),
        (&[1, 8, 64, 64], 4, false),
        (&[1, 8, 2000], 1, false),
        (&[2, 8, 1500], 1, false),
        (&[1, 2, 300, 333], 2, false),
        (&[1, 2, 300, 333], 1, false),
        (&[1, 1, 262_144], 1, false),
        (&[2, 4, 512, 520], 1, false),
        (&[3, 64, 33, 17], 16, false),
        (&[2, 80, 24, 23], 8, false),
        (&[2, 80, 47, 53], 8, false),
        (&[2, 80, 31, 33], 4, false),
        (&[2, 80, 73, 71], 8, false),
        (&[2, 80, 97, 89], 8, false),
        (&[1, 64, 5, 7], 16, false),
        (&[20, 32, 9, 9], 4, false),
        (&[3, 100, 11, 13], 5, false),
        (&[2, 96, 9, 7], 2, false),
        (&[2, 60, 71, 33], 6, false),
        (&[3, 16, 101, 173], 16, false),
        (&[65_537, 2, 2], 1, false),
        (&[65_537, 4], 2, false),
        (&[2, 65_537, 2], 65_537, false),
        (&[300, 8, 4, 4], 4, false),
        (&[0, 4, 5, 5], 2, true),
        (&[2, 0, 5, 5], 2, false),
        (&[2, 4, 0, 5], 2, false),
    ];

    fn groups(channels: u64) -> u64 {
        channels.div_ceil(2)
    }

    fn forward(form: &Form) -> Result<AnyDescriptor, Error> {
        forward(form).map(AnyDescriptor::new)
    }

    fn backward(form: &GradientForm) -> Result<AnyDescriptor, Error> {
        let forward = forward(&form.form)?.stats()?;
        let mut descriptor = forward.backward(&existing(&forward, &form.wanted))?;
        for (name, desc) in &form.layouts {
            descriptor = descriptor.layout(name, *desc)?;
        }
        Ok(AnyDescriptor::new(descriptor))
    }
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = GroupNormArgs::new(run.input("x"), run.output("y"));
    (args.weight, args.bias) = (run.named.mem("weight"), run.named.mem("bias"));
    (args.mean, args.rstd) = (run.named.mem_mut("mean"), run.named.mem_mut("rstd"));
    run.plan::<GroupNormDescriptor>(args)
}

fn run_backward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = GroupNormBackwardArgs::new(run.input("dy"), run.input("x"));
    (args.weight, args.bias) = (run.named.mem("weight"), run.named.mem("bias"));
    (args.mean, args.rstd) = (run.named.mem("mean"), run.named.mem("rstd"));
    args.dx = run.named.mem_mut("dx");
    (args.dweight, args.dbias) = (run.named.mem_mut("dweight"), run.named.mem_mut("dbias"));
    run.plan::<GroupNormBackwardDescriptor>(args)
}
