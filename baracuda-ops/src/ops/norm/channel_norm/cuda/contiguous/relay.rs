//! Groups that some warps add up while others write the one before.

use baracuda_ops_sys as sys;

use super::walk::{ARRIVING, MESSAGES, READ_TWICE, SLOTS, TEAM};
use super::{Problem, RESERVED_SHARED, Tuned, running_launches};
use crate::narrow::{grid, to_usize, word};
use crate::ops::activation::Activation;

/// Threads that write, beside which a block has as many that add up: the fewest that keep up and the most.
const THREADS: [u64; 2] = [224, 416];
/// Where they compute exponentials, forward, half as many add up. In long segments they are a multiple of the third number, so that all parts of a
/// multiprocessor have as many.
const EXPONENTIAL_THREADS: [u64; 3] = [256, 512, 4 * 32];
/// Vectors of a thread in a step.
pub(super) const VECTORS: u64 = 2;
/// The least bytes of a block in a group with which it is faster than teams that take one group each, there clusters; with a residual, any.
const LEAST: [u64; 2] = [64 << 10, 48 << 10];
/// Bytes of places for a residual, and the most threads that write beside its warp.
const RESIDUAL: u64 = 32 << 10;
const RESIDUAL_THREADS: u64 = 384;
/// The blocks that share a group backward in the variant that holds groups in registers, from which it is faster than that.
pub(super) const BACKWARD_CLUSTER: u32 = 4;
/// Bytes under way beyond the group that hide the exchange; what a group costs beyond its bytes; what a step costs in instructions, by tensor and
/// element of a vector. All as bytes of a multiprocessor's share of the memory's speed.
pub(super) const AHEAD: u64 = 96 << 10;
const GROUP: u64 = 12 << 10;
pub(super) const STEP: u64 = 1 << 10;
/// Backward, of teams that are no clusters: threads that are tried, and bytes of dy and x in a group from which a cluster's blocks have no room for the
/// following one. Bytes under way beyond the group that hide the exchange, and how many may be missing; what a group costs beyond its bytes. The last
/// as bytes of a multiprocessor's share of the memory's speed.
const GRID_THREADS: [u64; 4] = [160, 224, 256, 320];
const GRID_GROUP: u64 = 2 << 20;
const GRID_AHEAD: [u64; 2] = [136 << 10, 48 << 10];
const GRID_TURN: u64 = 8 << 10;

/// A choice, the bytes of a block in a group, and the groups that a cluster takes one after another.
pub(super) struct Relay {
    pub(super) tuned: Tuned,
    pub(super) bytes: u64,
    pub(super) rounds: u64,
}

impl Relay {
    /// Whether it is faster than teams that take one group each.
    pub(super) fn is_faster_than(&self, one: &Tuned, p: &Problem) -> bool {
        match p.adds_residual() {
            true => self.bytes >= LEAST[1] && self.tuned.grid >= p.multiprocessors / 4 * 3,
            false => one.cluster > 1 && one.stagger_cycles == 0 && self.bytes >= LEAST[0] && self.rounds > 1,
        }
    }
}

/// How blocks with two teams of threads, one that adds up and one that writes, take a group.
pub(super) struct Steps {
    threads: u64,
    /// Segments in a step, or steps of a segment.
    multi: u64,
    chunks: u64,
    /// Steps of a group.
    pub(super) all: u64,
    /// Places for a residual.
    pub(super) windows: u64,
}

/// What one of the blocks that share a group takes of it. All but the first two as bytes of a multiprocessor's share of the memory's speed.
pub(super) struct Share {
    pub(super) steps: u64,
    /// Places for them.
    pub(super) slots: u64,
    /// What it reads and writes, averaged over the multiprocessors, or its instructions where those take longer.
    pub(super) time: u64,
    /// What is missing to places that hide the exchange.
    pub(super) missing: u64,
    pub(super) bytes: u64,
}

impl Steps {
    pub(super) fn new(p: &Problem, threads: u64, arrays: u64) -> Self {
        let (vectors, places) = (p.segment_vectors(), threads * VECTORS);
        let (multi, chunks) = ((places / vectors).max(1), vectors.div_ceil(places));
        let windows = if arrays == 1 && p.has_extra { RESIDUAL.div_ceil(places * 16) } else { 0 };
        Self { threads, multi, chunks, all: p.shape.group_segments().div_ceil(multi) * chunks, windows }
    }

    /// Of `blocks` blocks in all, `cluster` a group. step: what one costs in instructions.
    pub(super) fn share(&self, p: &Problem, arrays: u64, cluster: u64, blocks: u64, step: u64) -> Option<Share> {
        let steps = self.all.div_ceil(cluster);
        let parameters = if p.shape.groups == 0 { 1 } else { ((steps - 1) / self.chunks + 2) * self.multi };
        let room = u64::from(p.shared_bytes).saturating_sub(RESERVED_SHARED + parameters * 16);
        let slot = self.threads * VECTORS * 16 * arrays;
        let slots = (room / slot).min(SLOTS).saturating_sub(self.windows);
        if steps >= slots {
            return None;
        }
        let bytes = p.group_vectors()? * 16 * arrays * steps / self.all;
        let passes = arrays + 1 + u64::from(self.windows > 0);
        let moved = bytes * passes / arrays * blocks / u64::from(p.multiprocessors);
        let instructions = steps * (arrays + 1) * step * u64::from(16 / p.element_bytes);
        let missing = AHEAD.saturating_sub((slots - steps + self.windows) * slot);
        Some(Share { steps, slots, time: moved.max(instructions), missing, bytes })
    }

    pub(super) fn tuned(&self, p: &Problem, arrays: u64, share: &Share, cluster: u64, teams: u64) -> Option<Tuned> {
        Some(Tuned {
            variant: sys::BOPS_CHANNEL_NORM_RELAY,
            vec_bytes: 16,
            vectors: word(share.steps),
            threads: word(self.threads),
            cluster: word(cluster),
            grid: grid(teams * cluster)?,
            stages: word(share.slots + self.windows),
            chunks: word(self.windows),
            workspace_bytes: if arrays == 1 && p.shape.groups > 0 && p.has_running {
                p.shape.group_count() * 16
            } else {
                0
            },
            launches: 1 + if arrays == 1 { running_launches(p) } else { 0 },
            ..Tuned::default()
        })
    }
}

/// Threads that write, most first.
fn relay_threads(p: &Problem, arrays: u64) -> impl Iterator<Item = u64> {
    let [fewest, most, step] = match arrays == 1 && p.activation == Activation::Silu {
        false if arrays == 1 && p.has_extra => [THREADS[0], RESIDUAL_THREADS, 32],
        false => [THREADS[0], THREADS[1], 32],
        true if is_long(p) => EXPONENTIAL_THREADS,
        true => [EXPONENTIAL_THREADS[0], EXPONENTIAL_THREADS[1], 64],
    };
    (fewest..=most).rev().step_by(to_usize(step))
}

/// Whether a segment has work for a step of all threads.
fn is_long(p: &Problem) -> bool {
    p.segment_vectors() >= THREADS[1] * VECTORS
}

/// Whether all parts of a multiprocessor have as many threads, which matters where they compute exponentials.
pub(super) fn evenly_spread(p: &Problem, threads: u64) -> bool {
    p.activation != Activation::Silu || !is_long(p) || threads.is_multiple_of(EXPONENTIAL_THREADS[2])
}

/// Groups in shared memory while the following ones are fetched: the team and cluster that take the least time by what blocks move. `arrays`: x, or
/// dy and x, of a channel then.
pub(super) fn choose(p: &Problem, arrays: u64) -> Option<Relay> {
    let serves = !p.is_general() || arrays == 1 && p.adds_residual();
    p.group_vectors().filter(|_| p.capability >= 90 && serves)?;
    if arrays == 2 && p.shape.groups > 0 {
        return None;
    }
    let groups = p.shape.group_count();
    let mut best: Option<(u64, Relay)> = None;
    for threads in relay_threads(p, arrays) {
        let steps = Steps::new(p, threads, arrays);
        let most = u64::from(p.max_cluster).min(steps.all);
        for cluster in [1, 2, 4, 8, 16].into_iter().filter(|&cluster| cluster <= most) {
            let teams = p.teams(cluster, 1).min(groups);
            let Some(share) = steps.share(p, arrays, cluster, teams * cluster, STEP) else { continue };
            let rounds = groups.div_ceil(teams);
            let cost = rounds * (share.time + share.missing + GROUP);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                let tuned = steps.tuned(p, arrays, &share, cluster, teams)?;
                let tuned = Tuned { overlaps: u32::from(rounds == 1), ..tuned };
                best = Some((cost, Relay { tuned, bytes: share.bytes, rounds }));
            }
        }
    }
    best.map(|(_, relay)| relay)
}

/// Backward, the same of channels that any number of blocks share, wherever they lie.
pub(super) fn of_grid_backward(p: &Problem) -> Option<Tuned> {
    let serves = p.capability >= 90 && p.shape.groups == 0 && p.is_at_most_relu() && !p.has_extra;
    let group_bytes = p.group_vectors().filter(|_| serves)? * 32;
    let (groups, multiprocessors) = (p.shape.group_count(), u64::from(p.multiprocessors));
    if group_bytes < GRID_GROUP || groups * group_bytes < READ_TWICE {
        return None;
    }
    let mut best: Option<(u64, Tuned)> = None;
    for threads in GRID_THREADS {
        let steps = Steps::new(p, threads, 2);
        for teams in 1..=multiprocessors.min(groups) {
            let most = (multiprocessors / teams).min(TEAM).min(steps.all);
            let team = steps.all.div_ceil(steps.all.div_ceil(most));
            let Some(share) = steps.share(p, 2, team, teams * team, 0) else {
                break; // Nor do smaller teams hold their groups.
            };
            let ahead = (share.slots - share.steps) * (share.bytes / share.steps);
            let missing = GRID_AHEAD[0].saturating_sub(ahead);
            // The first group is not written while it is read, nor is one read while the last is written.
            let cost = groups.div_ceil(teams) * (share.time + missing / 2 + GRID_TURN) + 2 * share.bytes;
            if missing > GRID_AHEAD[1] || best.is_some_and(|(least, _)| least <= cost) {
                continue;
            }
            let tuned = steps.tuned(p, 2, &share, team, teams)?;
            let tuned = Tuned {
                tensors: word(ARRIVING[0] / (threads * VECTORS * 32)),
                overlaps: 1,
                workspace_bytes: teams * team * MESSAGES * 16,
                ..tuned
            };
            best = Some((cost, tuned));
        }
    }
    best.map(|(_, tuned)| tuned)
}
