//! The CUDA kernel of both passes: what it is told of the extents.

use baracuda_ops_sys as sys;

use super::geometry::{Axis, Resizing, Sampling};
use super::{ResizeMode, Valid, backward, forward};
use crate::backend::cuda::{Props, c_dtype};
use crate::error::Reason;
use crate::kernel::Accepted;
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::pointwise::map::cuda::divisor;
use crate::ops::valid::Direction;
use crate::tensor::TensorDesc;

/// Threads of a block, as in the kernel.
const THREADS: u64 = 256;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;

/// Bytes of a vector.
const VEC_BYTES: u64 = 16;

/// How many neighbours a thread makes, and whether of as many neighbours of the source.
fn width(resizing: &Resizing, [source, target]: [&TensorDesc; 2]) -> (u64, bool) {
    let full = VEC_BYTES / target.dtype().size_bytes();
    let line = resizing.line();
    let outer = || resizing.axes.iter().rev().skip(1);
    let is_wide = line.to == 1
        && line.extent.is_multiple_of(full)
        && target.align_bytes() >= VEC_BYTES
        && outer().all(|axis| axis.to.is_multiple_of(full));
    let are_vectors = line.sampling.is_none()
        && line.from == 1
        && source.align_bytes() >= VEC_BYTES
        && outer().all(|axis| axis.sampling.is_some() || axis.from.is_multiple_of(full))
        && resizing.samplings.iter().all(|sampling| sampling.step.is_multiple_of(full));
    let are_positions = line.sampling == Some(0) && !resizing.is_backward && resizing.mode != ResizeMode::Cubic;
    match is_wide && (are_vectors || are_positions) {
        true => (full, are_vectors),
        false => (1, false),
    }
}

/// Whether planes have twice as many columns and rows, as the kernel of such planes takes them, for what `width` says.
fn is_doubled(resizing: &Resizing, [source, target]: [&TensorDesc; 2], is_vector: bool) -> bool {
    let vector = VEC_BYTES / target.dtype().size_bytes();
    let is_half = |sampling: &Sampling| {
        let place = (sampling.slope, sampling.start, sampling.unit);
        let is_place = match resizing.mode {
            ResizeMode::Nearest => matches!(place, (1, 0, 2) | (2, 1, 4)),
            ResizeMode::Linear => place == (2, -1, 4),
            ResizeMode::Cubic => false,
        };
        is_place && sampling.to == 2 * sampling.from
    };
    let has_planes = resizing.samplings.len() == 2 && resizing.samplings.iter().all(is_half) && vector >= 4;
    // Neighbours of rows: whole vectors of those of y and dy, and half vectors of those of x and dx.
    let of = |is_target: bool| if is_target == resizing.is_backward { vector / 2 } else { vector };
    let has_rows = || {
        let (line, columns) = (resizing.line(), &resizing.samplings[0]);
        let outer = || resizing.axes.iter().rev().skip(1);
        line.sampling == Some(0)
            && (line.to, columns.step) == (1, 1)
            && columns.to.is_multiple_of(vector)
            && outer().all(|axis| axis.to.is_multiple_of(of(true)))
            && outer().all(|axis| axis.sampling.is_some() || axis.from.is_multiple_of(of(false)))
            && resizing.samplings[1].step.is_multiple_of(of(false))
            && target.align_bytes() >= of(true) * target.dtype().size_bytes()
            && source.align_bytes() >= of(false) * source.dtype().size_bytes()
    };
    has_planes && (is_vector || has_rows())
}

pub(super) fn accept<'d>(valid: &'d Valid, _: &Props) -> Accepted<'d> {
    let resizing = &valid.derived;
    let operands = match valid.op.kind {
        Direction::Forward => [forward::X, forward::Y],
        Direction::Backward => [backward::DY, backward::DX],
    };
    let tensors = operands.map(|operand| &valid.slots.always(operand).desc);
    let (mut width, is_vector) = width(resizing, tensors);
    let is_doubled = is_doubled(resizing, tensors, is_vector);
    // Elements of a thread's part along the innermost extent.
    let mut along = width;
    if is_doubled {
        width = VEC_BYTES / valid.fields.x.dtype().size_bytes();
        along = if is_vector { width } else { width / 2 };
    }
    let extent = |axis: &Axis| match axis.sampling {
        Some(number) if is_doubled => resizing.samplings[number].from,
        _ => axis.extent,
    };
    let parts = resizing.axes.iter().map(extent).product::<u64>() / along;
    let blocks = parts.div_ceil(THREADS);
    Reason::unless(blocks <= MOST_BLOCKS, || format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}"))?;
    let is_long = parts >= 1 << 31;
    let rank = resizing.axes.len().max(1);
    let has_long = !resizing.samplings.iter().all(Sampling::is_short);
    let mut params = sys::bops_resize_params {
        parts,
        rank: word(rank as u64),
        is_long: is_long.into(),
        samplings: word(resizing.samplings.len() as u64),
        has_long: has_long.into(),
        ..Default::default()
    };
    params.sampling.fill(sys::BOPS_RESIZE_SAMPLINGS);
    let axes = || resizing.axes.iter().rev();
    let extents = std::iter::once(extent(&resizing.line()) / along).chain(axes().skip(1).map(extent));
    for (to, extent) in params.inner.iter_mut().zip(extents.take(rank - 1)) {
        Reason::unless(extent <= u32::MAX.into(), || {
            format!("an extent within others has {extent} parts, its kernel divides by at most {}", u32::MAX)
        })?;
        *to = divisor(extent, is_long);
    }
    for (at, axis) in axes().enumerate() {
        params.strides[at] = sys::bops_movement_strides { to: axis.to, from: crate::narrow::signed(axis.from) };
        params.sampling[at] = axis.sampling.map_or(sys::BOPS_RESIZE_SAMPLINGS, |number| word(number as u64));
    }
    for (to, sampling) in params.of.iter_mut().zip(&resizing.samplings) {
        let &Sampling { slope, start, unit, from, to: of_y, step } = sampling;
        // Kernels divide by these where numbers are short; nothing is divided by a slope of 0.
        let by = |number: i64| divisor(if has_long { 1 } else { number.unsigned_abs().max(1) }, false);
        let [by_unit, by_slope] = [unit, slope].map(by);
        let inverse = 1.0 / unit as f64;
        *to = sys::bops_resize_sampling { slope, start, unit, from, to: of_y, step, inverse, by_unit, by_slope };
    }
    let (taps, _) = resizing.mode.taps();
    let choice = sys::bops_resize_choice {
        taps,
        is_backward: resizing.is_backward.into(),
        width: word(width),
        is_vector: is_vector.into(),
        is_doubled: is_doubled.into(),
    };
    let [source, target] = operands;
    let kernels = (c_dtype(valid.fields.x.dtype())?, params, choice, ());
    Ok(calls!(bops_resize).candidate(parts > 0, kernels, move |located| sys::bops_resize_operands {
        source: located.pointer(source).cast_const(),
        target: located.pointer(target),
    }))
}
