//! Groups that stay on chip while the following ones are fetched.

use baracuda_ops_sys as sys;

use super::walk::{SLOTS, Steps, WALK_STEPS};
use super::{Problem, RESERVED_SHARED, Tuned, running_launches};
use crate::narrow::{grid, to_usize, word};

/// Threads of the blocks that hold groups in registers, beside the warp that fetches, and how many such blocks share a multiprocessor: 16 warps
/// of their registers fit.
const FORMS: [(u64, u64); 3] = [(480, 1), (224, 2), (128, 3)];
/// Rounds up to which blocks of 128 threads serve: they are for few groups.
const FEW_ROUNDS: u64 = 2;
/// Steps of a group that stay in registers: forward, backward; none with an activation that takes many instructions.
const STEPS: [u64; 2] = [12, 4];
/// The most places beyond those that wait for a group's statistics, and how many are enough in all: more are slower.
const SLOTS_AHEAD: u64 = 12;
const SLOTS_ENOUGH: u64 = 16;
/// What a group costs beyond its bytes, in bytes of a multiprocessor's share of the memory's speed: of one block, of a cluster, of a cluster of 16.
/// Blocks that share a multiprocessor hide it from each other.
const GROUP_COST: [u64; 3] = [88 << 10, 96 << 10, 120 << 10];

/// Groups on chip while the following ones are fetched: the form and cluster that take the least time by what blocks move. `arrays`: x, or dy and x.
pub(super) fn choose(p: &Problem, arrays: u64) -> Option<Tuned> {
    let serves = p.capability >= 90 && !p.has_extra;
    p.group_vectors().filter(|_| serves)?;
    let shape = &p.shape;
    let (segments, groups) = (shape.group_segments(), shape.group_count());
    let vectors = p.segment_vectors();
    let by_segment = arrays == 2 && shape.groups > 0;
    let held = if p.is_general() { 0 } else { STEPS[to_usize(arrays) - 1] };
    let mut best: Option<(u64, Tuned)> = None;
    for (most, blocks) in FORMS {
        let steps = Steps::new(segments, vectors, most, by_segment);
        for cluster in [1, 2, 4, 8, 16].into_iter().filter(|&cluster| cluster <= u64::from(p.max_cluster)) {
            let own = steps.all.div_ceil(cluster);
            let sums = if by_segment { (own + 1) * steps.threads / 2 } else { 0 };
            let room = (u64::from(p.shared_bytes) / blocks).saturating_sub(RESERVED_SHARED + sums);
            let slot = steps.threads * 16 * arrays;
            let slots = (room / slot).min(SLOTS);
            // Steps that keep their places until the group's statistics are there.
            let waiting = own.saturating_sub(held);
            if waiting + 1 >= slots || own > WALK_STEPS || cluster > steps.all {
                continue;
            }
            let slots = slots.min(SLOTS_ENOUGH.max(waiting + SLOTS_AHEAD));
            let teams = p.teams(cluster, blocks).min(groups);
            let rounds = groups.div_ceil(teams);
            if blocks > 2 && rounds > FEW_ROUNDS {
                continue;
            }
            let together = (teams * cluster).div_ceil(u64::from(p.multiprocessors)).min(blocks);
            let bytes = own * steps.threads * 16 * (arrays + 1) * together;
            let extra = GROUP_COST[usize::from(cluster > 1) + usize::from(cluster > 8)];
            // Fewer places than that ahead, and memory waits for the group to be finished.
            let missing = (SLOTS_AHEAD + waiting).saturating_sub(slots) * steps.threads * 8 * (arrays + 1) * together;
            let cost = rounds * (bytes + missing + extra / together);
            if best.is_some_and(|(least, _)| least <= cost) {
                continue;
            }
            let workspace_bytes = match arrays {
                1 if shape.groups > 0 && p.has_running => groups * 16,
                2 if by_segment && p.has_parameter_gradients => shape.batch * shape.channels * cluster * 8,
                _ => 0,
            };
            let after = if arrays == 1 { running_launches(p) } else { u32::from(workspace_bytes > 0) };
            let tuned = Tuned {
                variant: sys::BOPS_CHANNEL_NORM_HELD,
                vec_bytes: 16,
                vectors: word(own),
                threads: word(steps.threads),
                cluster: word(cluster),
                grid: grid(teams * cluster)?,
                stages: slots as u32,
                overlaps: u32::from(p.capability >= 90 && rounds == 1),
                workspace_bytes,
                launches: 1 + after,
                ..Tuned::default()
            };
            best = Some((cost, tuned));
        }
    }
    best.map(|(_, tuned)| tuned)
}
