//! The CUDA kernels: the width of an access, preparation and launch.

use baracuda_ops_sys as sys;

use super::Valid;
use crate::backend::cuda::{Props, c_activation, c_dtype};
use crate::error::Reason;
use crate::kernel::Accepted;
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::pointwise::dense::DenseRun;
use crate::ops::valid::Direction;

/// Threads of a block, as in the kernels.
const THREADS: u64 = 256;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;

/// The kernels of both passes.
pub(super) fn accept<'d>(valid: &'d Valid, _: &Props) -> Accepted<'d> {
    let (run, dtype) = (DenseRun::of(&valid.slots)?, c_dtype(valid.fields.x.dtype())?);
    let element_bytes = valid.fields.x.dtype().size_bytes();
    let vec_bytes = if run.align_bytes >= 16 { 16 } else { element_bytes };
    let blocks = run.elements.div_ceil(THREADS * (vec_bytes / element_bytes));
    Reason::unless(blocks <= MOST_BLOCKS, || format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}"))?;
    let params = sys::bops_activation_params {
        elements: run.elements,
        activation: c_activation(valid.fields.activation),
        from_y: u32::from(valid.fields.from_y),
    };
    let choice = sys::bops_activation_choice { vec_bytes: word(vec_bytes) };
    let (has_work, kernels, [input, saved, output]) = (run.elements > 0, (dtype, params, choice, ()), valid.operands());
    let candidate = match valid.op.kind {
        Direction::Forward => calls!(bops_activation).candidate(has_work, kernels, move |located| {
            sys::bops_activation_operands { x: located.pointer(input), y: located.pointer(output) }
        }),
        Direction::Backward => calls!(bops_activation_backward).candidate(has_work, kernels, move |located| {
            let (dy, saved, dx) = (located.pointer(input), located.pointer(saved), located.pointer(output));
            sys::bops_activation_backward_operands { dy, saved, dx }
        }),
    };
    // The width of an access, by which kernels differ, follows from the promised alignment.
    Ok(candidate.batch_invariant())
}
