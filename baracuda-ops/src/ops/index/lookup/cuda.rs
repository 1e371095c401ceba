//! The CUDA kernels: in which units elements move, and how threads share them.

use std::ffi::c_void;
use std::fmt::Debug;

use baracuda_ops_sys as sys;

use super::geometry::{Axis, Lookups};
use super::{Valid, forward};
use crate::backend::Located;
use crate::backend::cuda::{Device, Launch, Numbers, Props};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, Candidate};
use crate::narrow::word;
use crate::ops::calls::{Calls, calls};
use crate::ops::pointwise::map::cuda::divisor;
use crate::ops::walk::Walk;
use crate::tensor::TensorDesc;

/// Threads of a block, as in the kernels.
const THREADS: u64 = 256;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
/// Bytes of a vector.
const VEC_BYTES: u64 = 16;
/// Vectors of a line that are worth a warp of its own: with fewer, half of its threads and more would have one vector or none.
const LEAST_LINE: u64 = 64;
/// Blocks that count: as many as fill the largest device several times over.
const MOST_COUNTING: u64 = 1024;
const VECTORS: u64 = sys::BOPS_LOOKUP_VECTORS as u64;

/// Refuses grids of more blocks than a launch has.
pub(in crate::ops::index) fn check_blocks(blocks: u64) -> Result<(), Reason> {
    Reason::unless(blocks <= MOST_BLOCKS, || format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}"))
}

/// What numbers of parts are divided by, if kernels can.
pub(in crate::ops::index) fn divisors(
    extents: impl Iterator<Item = u64>,
    is_long: bool,
    to: &mut [sys::bops_divisor],
) -> Result<(), Reason> {
    for (to, extent) in to.iter_mut().zip(extents) {
        Reason::unless(extent <= u32::MAX.into(), || {
            format!("an extent within others has {extent} parts, its kernels divide by at most {}", u32::MAX)
        })?;
        *to = divisor(extent, is_long);
    }
    Ok(())
}

/// How indices of a type name positions, which are `apart` from each other.
pub(in crate::ops::index) fn axis(indices: DType, from_end: bool, extent: u64, apart: u64) -> sys::bops_lookup_axis {
    let dtype = match indices {
        DType::I64 => sys::BOPS_I64,
        DType::U32 => sys::BOPS_U32,
        _ => sys::BOPS_I32,
    };
    sys::bops_lookup_axis { extent, apart, dtype, from_end: from_end.into() }
}

fn axis_of(valid: &Valid, lookups: &Lookups) -> sys::bops_lookup_axis {
    axis(valid.fields.indices.dtype(), valid.fields.from_end, lookups.extent, lookups.apart)
}

/// What kernels are told of lines that are taken in parts of `width` units.
fn params(valid: &Valid, lookups: &Lookups, width: u64) -> Result<sys::bops_lookup_params, Reason> {
    let (line, rank) = (lookups.line(), lookups.axes.len());
    let outer = || lookups.axes.iter().rev().skip(1);
    let parts_of_line = line.extent.div_ceil(width);
    let parts = lookups.units() / line.extent.max(1) * parts_of_line;
    let is_long = parts >= 1 << 31;
    let mut params = sys::bops_lookup_params {
        axis: axis_of(valid, lookups),
        parts,
        line: line.extent,
        fill: lookups.fill,
        rank: word(rank.max(1) as u64),
        is_long: is_long.into(),
        ..Default::default()
    };
    let extents = std::iter::once(parts_of_line).chain(outer().map(|axis| axis.extent));
    divisors(extents.take(rank.saturating_sub(1)), is_long, &mut params.inner)?;
    for (to, &Axis { y, x, index, .. }) in params.strides.iter_mut().zip(std::iter::once(&line).chain(outer())) {
        *to = sys::bops_lookup_strides { y, x, index };
    }
    Ok(params)
}

/// In units that are as wide as they can be.
fn widened(valid: &Valid) -> Lookups {
    let align = |index| valid.slots.always(index).desc.align_bytes();
    valid.derived.clone().widened(VEC_BYTES, align(forward::X).min(align(forward::Y)))
}

/// Long lines of vectors.
pub(super) fn rows<'d>(valid: &'d Valid, _: &Props, ask: Ask) -> Accepted<'d> {
    let lookups = widened(valid);
    let line = lookups.line();
    Reason::unless(lookups.unit_bytes == VEC_BYTES && lookups.has_runs(), || {
        format!(
            "it moves lines of neighbouring vectors of {VEC_BYTES} bytes that one index names, here {} bytes are moved as one",
            lookups.unit_bytes
        )
    })?;
    ask.leave_if(line.extent < LEAST_LINE, "lines are shorter than what a warp takes at once")?;
    let lanes = line.extent.div_ceil(VECTORS).next_power_of_two().clamp(32, THREADS);
    let moved = params(valid, &lookups, lanes * VECTORS)?;
    check_blocks(moved.parts.div_ceil(THREADS / lanes))?;
    let choice = sys::bops_lookup_rows_choice { lanes: word(lanes) };
    candidate(valid, calls!(bops_lookup_rows), sys::bops_lookup_rows_params { moved }, choice)
}

/// Any strides.
pub(super) fn strided<'d>(valid: &'d Valid, _: &Props, _: Ask) -> Accepted<'d> {
    let lookups = widened(valid);
    let (unit, line) = (lookups.unit_bytes, lookups.line());
    let is_aligned = |axis: &Axis| (axis.y * unit).is_multiple_of(VEC_BYTES);
    let has_vectors = unit < VEC_BYTES
        && line.y == 1
        && valid.slots.always(forward::Y).desc.align_bytes() >= VEC_BYTES
        && lookups.axes.iter().rev().skip(1).all(is_aligned);
    let width = if has_vectors { VEC_BYTES / unit } else { 1 };
    let params = params(valid, &lookups, width)?;
    check_blocks(params.parts.div_ceil(THREADS))?;
    let choice = sys::bops_copy_strided_choice { unit_bytes: word(unit), width: word(width) };
    candidate(valid, calls!(bops_lookup), params, choice)
}

/// What counts indices that are out of range, for kernels.
pub(in crate::ops::index) fn missing(
    indices: &TensorDesc,
    axis: sys::bops_lookup_axis,
) -> Result<sys::bops_lookup_missing_params, Reason> {
    let walk = Walk::new(&[*indices]);
    let (elements, rank) = (walk.elements(), walk.dims.len());
    let is_long = elements >= 1 << 31;
    // Numbers of elements that are divided have at most 40 bits.
    check_blocks(elements.div_ceil(THREADS))?;
    let mut params = sys::bops_lookup_missing_params {
        axis,
        elements,
        rank: word(rank.max(1) as u64),
        is_long: is_long.into(),
        blocks: word(elements.div_ceil(THREADS).clamp(1, MOST_COUNTING)),
        ..Default::default()
    };
    divisors(walk.dims.iter().rev().copied().take(rank.saturating_sub(1)), is_long, &mut params.inner)?;
    for (to, stride) in params.strides.iter_mut().zip(walk.strides[0].iter().rev()) {
        *to = *stride;
    }
    Ok(params)
}

fn operands(located: &Located<'_>) -> sys::bops_lookup_operands {
    sys::bops_lookup_operands {
        x: located.pointer(forward::X).cast_const(),
        indices: located.pointer(forward::INDICES).cast_const(),
        y: located.pointer(forward::Y),
        missing: located.pointer(forward::MISSING).cast(),
    }
}

/// What looks elements up with this form, and counts.
fn candidate<P: Copy + Send + Sync + 'static, C: Numbers + Debug>(
    valid: &Valid,
    calls: Calls<u32, P, C, sys::bops_lookup_operands>,
    params: P,
    choice: C,
) -> Accepted<'static> {
    let has_work = valid.derived.units() > 0;
    if !valid.fields.missing {
        return Ok(calls.candidate(has_work, (0, params, choice, ()), operands).batch_invariant());
    }
    let missing = missing(&valid.fields.indices, axis_of(valid, &valid.derived))?;
    let launches = u32::from(has_work) + 1 + u32::from(missing.elements > 0);
    let build = move |device: &crate::backend::Device| {
        let device = Device::of(device)?;
        let name = calls.name;
        let look_up = if has_work { Some(calls.prepare(device, 0, params, choice, ())?) } else { None };
        let count = calls!(bops_lookup_missing).prepare(device, 0, missing, 0, missing.elements.min(1))?;
        let start = move |located: &Located<'_>, stream: *mut c_void| {
            let (operands, workspace) = (operands(located), located.workspace_pointer());
            match look_up.as_ref().map_or(0, |look_up| look_up(&operands, workspace, stream)) {
                0 => count(&operands, workspace, stream),
                status => status,
            }
        };
        Ok(Launch::new(name, start).into())
    };
    Ok(Candidate { launches, ..Candidate::new(choice, build) }.batch_invariant())
}
