//! The CUDA kernels: how many elements are read at once, and how many blocks share x.

use baracuda_ops_sys as sys;

use super::{Valid, forward};
use crate::backend::Located;
use crate::backend::cuda::Props;
use crate::kernel::{Accepted, Candidate};
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::index::lookup::cuda::divisors;
use crate::ops::pointwise::map::cuda::Lying;
use crate::options::WorkspaceReq;

/// Threads of a block, as in the kernels.
const THREADS: u64 = 256;
/// Bytes of a vector.
const VEC_BYTES: u64 = 16;
/// The most blocks: as many as the largest device runs at once. Each block of the second launch adds up the counts of all.
const MOST_BLOCKS: u64 = 1024;
/// Operands of the walk.
const X: usize = 1;

pub(super) fn accept<'d>(valid: &'d Valid, _: &Props) -> Accepted<'d> {
    let (nonzero, per_axis) = (&valid.derived, valid.fields.per_axis);
    let (x, walk) = (&nonzero.x, nonzero.walk());
    let (elements, bytes) = (walk.elements(), x.dtype().size_bytes());
    let is_run = matches!((&walk.dims[..], &walk.strides[X][..]), ([_], [1]));
    let width = if is_run && x.align_bytes() >= VEC_BYTES { VEC_BYTES / bytes } else { 1 };
    // As nonzero_items of the kernels.
    let items = if width >= 4 { 32 } else { 16 };
    let tiles = elements.div_ceil(THREADS * items);
    let blocks = tiles.clamp(1, MOST_BLOCKS);
    let lying = Lying { operands: vec![nonzero.row_major, *x], walk };
    let is_long = elements > 1 << 31;
    let mut params = sys::bops_nonzero_params {
        walk: lying.c_walk(1)?,
        x: lying.c_walked(X, 1)?,
        mask: nonzero.mask,
        tiles,
        rows: nonzero.rows,
        row: nonzero.row,
        column: nonzero.column,
        fill: nonzero.fill,
        blocks: word(blocks),
        index_bytes: word(valid.slots.always(forward::INDICES).desc.dtype().size_bytes()),
        count_bytes: valid.fields.count.map_or(0, |dtype| word(dtype.size_bytes())),
        columns: if per_axis { word(x.rank() as u64) } else { 0 },
        is_long: is_long.into(),
        ..Default::default()
    };
    if per_axis && elements > 0 {
        divisors(x.dims().iter().skip(1).rev().copied(), is_long, &mut params.inner)?;
    }
    let choice = sys::bops_nonzero_choice { bytes: word(bytes), width: word(width) };
    let has_work = nonzero.rows > 0 || valid.fields.count.is_some();
    let operands = |located: &Located<'_>| sys::bops_nonzero_operands {
        x: located.pointer(forward::X).cast_const(),
        indices: located.pointer(forward::INDICES),
        count: located.pointer(forward::COUNT),
    };
    let candidate = calls!(bops_nonzero).candidate(has_work, (0, params, choice, ()), operands);
    if !has_work {
        return Ok(candidate);
    }
    Ok(Candidate { workspace: WorkspaceReq::new(8 * blocks, VEC_BYTES), launches: 2, ..candidate })
}
