//! The CUDA kernels: the width of an access, preparation and launch.

use baracuda_ops_sys as sys;

use super::Valid;
use crate::backend::cuda::{self, Props, c_activation, c_dtype};
use crate::backend::{Device, Located};
use crate::kernel::{Accepted, BuildError, Built, Candidate};
use crate::narrow::word;
use crate::ops::pointwise::dense::DenseRun;
use crate::ops::valid::Direction;

/// Threads of a block, as in the kernels.
const THREADS: u64 = 256;
/// Blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;

/// The kernels of both passes.
pub(super) fn accept<'d>(valid: &'d Valid, _: &Props) -> Accepted<'d> {
    let (run, dtype) = (DenseRun::of(&valid.slots)?, c_dtype(valid.fields.x.dtype())?);
    let element_bytes = valid.fields.x.dtype().size_bytes();
    let vec_bytes = if run.align_bytes >= 16 { 16 } else { element_bytes };
    let blocks = run.elements.div_ceil(THREADS * (vec_bytes / element_bytes));
    if blocks > MOST_BLOCKS {
        return Err(format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}").into());
    }
    let params = sys::bops_activation_params {
        elements: run.elements,
        activation: c_activation(valid.fields.activation),
        from_y: u32::from(valid.fields.from_y),
    };
    let choice = sys::bops_activation_choice { vec_bytes: word(vec_bytes) };
    let build = move |device: &Device| build(device, valid, params, choice, dtype);
    Ok(Candidate { launches: u32::from(run.elements > 0), ..Candidate::new(choice, build) })
}

fn build(
    device: &Device,
    valid: &Valid,
    params: sys::bops_activation_params,
    choice: sys::bops_activation_choice,
    dtype: sys::bops_dtype,
) -> Result<Built, BuildError> {
    let (has_work, key) = (params.elements > 0, [choice.vec_bytes, dtype]);
    let [input, saved, output] = valid.operands();
    match valid.op.kind {
        Direction::Forward => {
            let run = move |located: &Located<'_>, stream| {
                let operands = sys::bops_activation_operands { x: located.pointer(input), y: located.pointer(output) };
                // SAFETY: the generic check proved every operand's span, alignment and device.
                unsafe { sys::bops_activation_launch(&params, &choice, dtype, &operands, stream) }
            };
            // SAFETY: the structs live across the call and hold what `accept` allows.
            let prepare = || unsafe { sys::bops_activation_prepare(&params, &choice, dtype) };
            cuda::build(device, "bops_activation", has_work, key, prepare, run)
        }
        Direction::Backward => {
            let run = move |located: &Located<'_>, stream| {
                let (dy, saved, dx) = (located.pointer(input), located.pointer(saved), located.pointer(output));
                let operands = sys::bops_activation_backward_operands { dy, saved, dx };
                // SAFETY: the generic check proved every operand's span, alignment and device.
                unsafe { sys::bops_activation_backward_launch(&params, &choice, dtype, &operands, stream) }
            };
            // SAFETY: the structs live across the call and hold what `accept` allows.
            let prepare = || unsafe { sys::bops_activation_backward_prepare(&params, &choice, dtype) };
            cuda::build(device, "bops_activation_backward", has_work, key, prepare, run)
        }
    }
}
