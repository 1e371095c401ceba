//! The CUDA kernels: the width of an access, preparation and launch.

use baracuda_ops_sys as sys;

use super::Pass;
use super::dense::Run;
use crate::backend::cuda::{self, Launch, c_activation, c_dtype};
use crate::backend::{Backend, Device, DeviceProps, Located};
use crate::error::Reason;
use crate::options::PlanOptions;
use crate::plan::{BuildError, Built, Choice, Exec, Kernel};

/// The kernels of both passes.
pub(super) struct Cuda;

/// Threads of a block, as in the kernels.
const THREADS: u64 = 256;
/// Blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;

impl<D: Pass> Kernel<D> for Cuda {
    fn name(&self) -> &'static str {
        if D::IS_BACKWARD { "activation_backward_cuda" } else { "activation_cuda" }
    }

    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn accept(&self, descriptor: &D, _: &PlanOptions, props: &DeviceProps) -> Result<Choice, Reason> {
        let DeviceProps::Cuda(_) = props else { return Err("it runs on CUDA".into()) };
        let run = Run::of(descriptor.valid())?;
        let element_bytes = descriptor.valid().fields.x.dtype().size_bytes();
        let vec_bytes = if run.align_bytes >= 16 { 16 } else { element_bytes };
        let blocks = run.elements.div_ceil(THREADS * (vec_bytes / element_bytes));
        if blocks > MOST_BLOCKS {
            return Err(format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}").into());
        }
        let mut choice = Choice { launches: u32::from(run.elements > 0), ..Choice::PLAIN };
        choice.tuning[0] = vec_bytes as u32;
        Ok(choice)
    }

    fn build(&self, descriptor: &D, choice: Choice, device: &Device) -> Result<Built, BuildError> {
        let device = cuda::Device::of(device)?;
        let valid = descriptor.valid();
        let run = Run::of(valid).map_err(BuildError::Refused)?;
        let params = sys::bops_activation_params {
            elements: run.elements,
            activation: c_activation(valid.fields.activation),
            from_y: u32::from(valid.fields.from_y),
        };
        let tuned = sys::bops_activation_choice { vec_bytes: choice.tuning[0] };
        let dtype = c_dtype(valid.fields.x.dtype());
        let call = if D::IS_BACKWARD { "bops_activation_backward" } else { "bops_activation" };
        if run.elements > 0 {
            let key = call.bytes().map(u32::from).chain([tuned.vec_bytes, dtype]).collect();
            device.prepare(call, key, || {
                let prepare =
                    if D::IS_BACKWARD { sys::bops_activation_backward_prepare } else { sys::bops_activation_prepare };
                // SAFETY: the structs live across the call and hold what `accept` allows.
                unsafe { prepare(&params, &tuned, dtype) }
            })?;
        }
        let position = |name: &str| valid.slots.named(name).map(|slot| slot.index);
        let (input, output) = if D::IS_BACKWARD { ("dy", "dx") } else { ("x", "y") };
        let (input, output, saved) = (position(input), position(output), valid.saved());
        let start = move |located: &Located<'_>, stream| {
            let address = |position: Option<usize>| {
                position.map_or(std::ptr::null_mut(), |position| located.operands[position].address() as *mut _)
            };
            if D::IS_BACKWARD {
                let operands = sys::bops_activation_backward_operands {
                    dy: address(input),
                    saved: address(saved),
                    dx: address(output),
                };
                // SAFETY: the generic check proved every operand's span, alignment and device.
                unsafe { sys::bops_activation_backward_launch(&params, &tuned, dtype, &operands, stream) }
            } else {
                let operands = sys::bops_activation_operands { x: address(input), y: address(output) };
                // SAFETY: as above.
                unsafe { sys::bops_activation_launch(&params, &tuned, dtype, &operands, stream) }
            }
        };
        let has_work = run.elements > 0;
        Ok(Built(Exec::Cuda(Launch { call, launch: if has_work { Box::new(start) } else { Box::new(|_, _| 0) } })))
    }
}
