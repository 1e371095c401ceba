//! wgpu: Vulkan, Metal and DX12.
//!
//! A plan is a [`Program`]: a few dispatches with their pipelines, uniforms and bindings. Its runs record into the caller's pass or
//! into the one recorder that all owned queues of a device share.

mod device;
mod program;
mod queue;
mod text;

pub(crate) use device::{Device, Memory, Props};
pub(crate) use program::{Binding, BoundProgram, Place, Program, StepBuilder, bind, enqueue, grid, replay};
pub(crate) use queue::Queue;
