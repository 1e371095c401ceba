//! What the WGSL kernels of ops on each element alone share: one dispatch, in which a thread takes some chunks of every operand.

use super::dense::DenseRun;
use crate::backend::wgpu::{Binder, Binding, Props, ShaderType, StepBuilder, Work, check_reach, groups, params};
use crate::error::Reason;
use crate::narrow::word;
use crate::slots::Slots;

/// Threads of a workgroup: the most that WebGPU promises.
const WORKGROUP: u32 = 256;
/// Chunks of 16 bytes of a thread: as many as the copy kernel of the benchmarks moves (`csrc/copy.wgsl`). All are loaded before the first is stored: with
/// fewer, a thread has fewer loads in flight; with more, their words take more registers until they are stored, and small tensors have fewer workgroups.
const CHUNKS: u32 = 4;

/// Bindings of the operands of one op.
pub(super) struct OperandBindings<'s> {
    binder: Binder<'s>,
    dtype: ShaderType,
}

impl OperandBindings<'_> {
    pub(super) fn input(&self, index: usize) -> Binding {
        self.binder.operand(index, self.dtype.chunks_in(), "absent_in")
    }

    pub(super) fn output(&self, index: usize) -> Binding {
        self.binder.operand(index, self.dtype.chunks_out(), "absent_out")
    }
}

/// The dispatch of an op, if there are elements. `step` gives its entry, files, bindings, constants and flags.
pub(super) fn work(
    slots: &Slots,
    props: &Props,
    step: impl FnOnce(&OperandBindings<'_>) -> StepBuilder,
) -> Result<Work<()>, Reason> {
    let dtype = slots[0].desc.dtype();
    let shader_type = ShaderType::of(dtype)?;
    let run = DenseRun::of(slots)?;
    check_reach(slots.iter(), &[], props)?;
    let mut work = Work::none((), props).batch_invariant_if(true);
    if run.elements == 0 {
        return Ok(work);
    }
    let workgroup = WORKGROUP.min(props.max_threads);
    let chunk_elements = 16 / dtype.size_bytes();
    let of_group = u64::from(workgroup * CHUNKS) * chunk_elements;
    let grid = groups(run.elements.div_ceil(of_group), props)?;
    // `check_reach` lets no operand have 2^32 bytes or more, so that the number of elements fits into u32.
    let params = params! {
        elements: u32 = word(run.elements),
        groups_x: u32 = grid[0],
        all_bits: u32 = u32::MAX,
        end: u32 = 0,
    };
    let step = step(&OperandBindings { binder: Binder { slots }, dtype: shader_type });
    work.steps.push(StepBuilder {
        files: [shader_type.prelude(), vec!["common/chunk", "pointwise/pointwise"], step.files].concat(),
        constants: [vec![("WORKGROUP", workgroup), ("CHUNKS", CHUNKS)], step.constants].concat(),
        can_chunk: run.elements.is_multiple_of(chunk_elements),
        params,
        grid,
        ..step
    });
    Ok(work)
}
