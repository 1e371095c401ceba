//! The CUDA kernels: the width of an access, preparation and launch.

use baracuda_ops_sys as sys;

use super::Pass;
use super::dense::Run;
use crate::backend::cuda::{self, Props, c_activation, c_dtype};
use crate::backend::{Backend, Device, DeviceProps, Located};
use crate::error::Reason;
use crate::narrow::word;
use crate::options::PlanOptions;
use crate::plan::{Ask, BuildError, Built, Candidate, Kernel, KernelName};

/// `bops_<op>_prepare`.
type Prepare = unsafe extern "C" fn(
    *const sys::bops_activation_params,
    *const sys::bops_activation_choice,
    sys::bops_dtype,
) -> sys::bops_status;

/// The kernels of both passes.
pub(super) struct Cuda;

/// Threads of a block, as in the kernels.
const THREADS: u64 = 256;
/// Blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;

impl<D: Pass> Kernel<D> for Cuda {
    fn name(&self) -> &'static str {
        KernelName::<D>::CUDA
    }

    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn accept<'d>(
        &self,
        descriptor: &'d D,
        _: &PlanOptions,
        props: &DeviceProps,
        _: Ask,
    ) -> Result<Candidate<'d>, Reason> {
        Props::of(props)?;
        let valid = descriptor.valid();
        let (run, dtype) = (Run::of(valid)?, c_dtype(valid.fields.x.dtype())?);
        let element_bytes = valid.fields.x.dtype().size_bytes();
        let vec_bytes = if run.align_bytes >= 16 { 16 } else { element_bytes };
        let blocks = run.elements.div_ceil(THREADS * (vec_bytes / element_bytes));
        if blocks > MOST_BLOCKS {
            return Err(format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}").into());
        }
        let has_work = run.elements > 0;
        let tuned = sys::bops_activation_choice { vec_bytes: word(vec_bytes) };
        let build = move |device: &Device| build(device, descriptor, run, tuned, dtype);
        Ok(Candidate { launches: u32::from(has_work), ..Candidate::new(tuned, build) })
    }
}

fn build<D: Pass>(
    device: &Device,
    descriptor: &D,
    run: Run,
    tuned: sys::bops_activation_choice,
    dtype: sys::bops_dtype,
) -> Result<Built, BuildError> {
    let valid = descriptor.valid();
    let params = sys::bops_activation_params {
        elements: run.elements,
        activation: c_activation(valid.fields.activation),
        from_y: u32::from(valid.fields.from_y),
    };
    let (call, prepare): (_, Prepare) = if D::IS_BACKWARD {
        ("bops_activation_backward", sys::bops_activation_backward_prepare)
    } else {
        ("bops_activation", sys::bops_activation_prepare)
    };
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
    // SAFETY: the structs live across the call and hold what `accept` allows.
    let prepare = || unsafe { prepare(&params, &tuned, dtype) };
    cuda::build(device, call, run.elements > 0, [tuned.vec_bytes, dtype], prepare, start)
}
