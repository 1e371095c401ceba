//! wgpu: Vulkan, Metal and DX12.
//!
//! A plan is a [`Program`]: a few dispatches with their pipelines, uniforms and bindings. Its runs record into the caller's pass or
//! into the one recorder that all owned queues of a device share.

mod device;
mod lines;
mod program;
mod queue;
mod recent;
pub(crate) mod team;
mod text;
mod variants;
mod work;

pub use device::Props;
pub(crate) use device::{Device, LEAST_WORKGROUP_BYTES, Memory};
pub(crate) use lines::{elements_in, has_whole_lines, lines_in, lines_out, prelude};
pub(crate) use program::{Binding, BoundStep, NO_GROUPS, Place, Program, StepBuilder, bind, enqueue, params, record};
pub(crate) use queue::Queue;
#[cfg(test)]
pub(crate) use text::OperandText;
pub(crate) use text::file;
pub(crate) use variants::Variants;
pub(crate) use work::{
    Binder, ShaderType, Work, check_bindings, check_reach, check_workspace, groups, most_bytes, padded,
};
