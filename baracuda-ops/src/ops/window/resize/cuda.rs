//! The CUDA kernel of both passes: what it is told of the extents.

use baracuda_ops_sys as sys;

use super::geometry::Sampling;
use super::{Valid, backward, forward};
use crate::backend::cuda::{Props, c_dtype};
use crate::error::Reason;
use crate::kernel::Accepted;
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::pointwise::map::cuda::divisor;
use crate::ops::valid::Direction;

/// Threads of a block, as in the kernel.
const THREADS: u64 = 256;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;

pub(super) fn accept<'d>(valid: &'d Valid, _: &Props) -> Accepted<'d> {
    let resizing = &valid.derived;
    let elements = resizing.elements();
    let blocks = elements.div_ceil(THREADS);
    Reason::unless(blocks <= MOST_BLOCKS, || format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}"))?;
    let is_long = elements >= 1 << 31;
    let rank = resizing.axes.len().max(1);
    let mut params = sys::bops_resize_params {
        elements,
        rank: word(rank as u64),
        is_long: is_long.into(),
        samplings: word(resizing.samplings.len() as u64),
        has_long: (!resizing.samplings.iter().all(Sampling::is_short)).into(),
        ..Default::default()
    };
    params.sampling.fill(sys::BOPS_RESIZE_SAMPLINGS);
    let axes = || resizing.axes.iter().rev();
    for (to, axis) in params.inner.iter_mut().zip(axes().take(rank - 1)) {
        Reason::unless(axis.extent <= u32::MAX.into(), || {
            format!("an extent within others has {} elements, its kernel divides by at most {}", axis.extent, u32::MAX)
        })?;
        *to = divisor(axis.extent, is_long);
    }
    for (at, axis) in axes().enumerate() {
        params.strides[at] = sys::bops_movement_strides { to: axis.to, from: crate::narrow::signed(axis.from) };
        params.sampling[at] = axis.sampling.map_or(sys::BOPS_RESIZE_SAMPLINGS, |number| word(number as u64));
    }
    for (to, sampling) in params.of.iter_mut().zip(&resizing.samplings) {
        let &Sampling { slope, start, unit, from, to: of_y, step } = sampling;
        *to = sys::bops_resize_sampling { slope, start, unit, from, to: of_y, step };
    }
    let (taps, _) = resizing.mode.taps();
    let choice = sys::bops_resize_choice { taps, is_backward: resizing.is_backward.into() };
    let [source, target] = match valid.op.kind {
        Direction::Forward => [forward::X, forward::Y],
        Direction::Backward => [backward::DY, backward::DX],
    };
    let kernels = (c_dtype(valid.fields.x.dtype())?, params, choice, ());
    Ok(calls!(bops_resize).candidate(elements > 0, kernels, move |located| sys::bops_resize_operands {
        source: located.pointer(source).cast_const(),
        target: located.pointer(target),
    }))
}
