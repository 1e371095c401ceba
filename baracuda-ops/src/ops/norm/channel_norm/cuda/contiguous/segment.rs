//! Groups of one segment in the registers of a block.

use baracuda_ops_sys as sys;

use super::{Problem, Tuned, running_launches};
use crate::narrow::{grid, word};
use crate::ops::activation::Activation;

/// Vectors of a thread that has part of a segment in registers, forward and backward, and threads of its block, at most.
const VECTORS: [u64; 2] = [8, 4];
const THREADS: u64 = 512;
/// Forward, bytes of x beyond which the shared memory of blocks that start one after another is faster, but not through SiLU of 16-bit elements, whose
/// instructions it does not make fewer.
const BYTES: u64 = 96 << 20;

/// Groups of one segment, which a block has in registers. `arrays`: x, or dy and x.
pub(super) fn choose(p: &Problem, arrays: usize) -> Option<Tuned> {
    let all = p.group_vectors()?;
    let groups = p.shape.group_count();
    let is_costly = p.activation == Activation::Silu && p.element_bytes == 2;
    let wins = if arrays == 1 { is_costly || groups.saturating_mul(all * 16) <= BYTES } else { p.has_dx };
    if p.shape.groups == 0 || p.shape.group_segments() != 1 || p.is_general() || !wins {
        return None;
    }
    let threads = all.div_ceil(VECTORS[arrays - 1]).next_multiple_of(32);
    let (workspace_bytes, after) = match arrays {
        1 => (if p.has_running { groups * 16 } else { 0 }, running_launches(p)),
        _ => (if p.has_parameter_gradients { groups * 8 } else { 0 }, u32::from(p.has_parameter_gradients)),
    };
    let tuned = Tuned {
        variant: sys::BOPS_CHANNEL_NORM_SEGMENT,
        vec_bytes: 16,
        vectors: word(all.div_ceil(threads)),
        threads: word(threads),
        cluster: 1,
        // Below 2^31 by `group_vectors`.
        grid: grid(groups)?,
        overlaps: u32::from(p.capability >= 90),
        workspace_bytes,
        launches: 1 + after,
        ..Tuned::default()
    };
    (threads <= THREADS).then_some(tuned)
}
