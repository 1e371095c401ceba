//! Groups on chip that teams of any number of blocks share.

use baracuda_ops_sys as sys;

use super::walk::{ARRIVING, MESSAGES, READ_TWICE, SLOTS, TEAM, WALK_STEPS};
use super::{Problem, RESERVED_SHARED, Tuned, relay, walk};
use crate::narrow::{grid, word};
use crate::ops::activation::Activation;

/// Of a block of the cooperative variant: the most threads that hold vectors, and their steps of a group that stay in registers; without an
/// activation, and with one, where every quarter of a multiprocessor has as many warps.
const FORMS: [(u64, u64); 2] = [(352, 10), (384, 6)];
/// Shared memory that the kernel declares itself, in bytes.
const SHARED: u64 = 2 << 10;
/// What a group costs beyond its bytes, and what three launches cost beyond theirs, in bytes of a multiprocessor's share of the memory's speed.
const GROUP: u64 = 112 << 10;
const SPLIT_LAUNCHES: u64 = 192 << 10;
/// Where a residual or y tells what passes a ReLU: threads that are tried, what a group costs, [`READ_TWICE`]. The places for the following group that hide an exchange, in
/// bytes of a block.
const MASKED_THREADS: [u64; 4] = [352, 320, 288, 256];
const MASKED_GROUP: u64 = 48 << 10;
const MASKED_TWICE: u64 = 12 << 20;
const MASKED_AHEAD: u64 = 200 << 10;
/// Where clusters of so many blocks take more than one group each, teams that take at most so many are faster.
const CLUSTER: u32 = 8;
const ROUNDS: u64 = 3;

/// A choice, and the groups that a team takes one after another.
pub(super) struct Cooperative {
    pub(super) tuned: Tuned,
    pub(super) rounds: u64,
}

impl Cooperative {
    /// Whether it is faster than a variant whose teams are clusters.
    pub(super) fn is_faster_than(&self, walking: &Tuned, p: &Problem) -> bool {
        let teams = u64::from(walking.grid / walking.cluster);
        p.shape.groups > 0 && walking.cluster >= CLUSTER && teams < p.shape.group_count() && self.rounds <= ROUNDS
    }
}

/// The gradients of groups that the multiprocessors hold together: the number of blocks that share one with the least time by what they move,
/// where that is less than for reading the groups twice.
pub(super) fn backward(p: &Problem) -> Option<Cooperative> {
    let is_masked = p.is_masked();
    let all_vectors = p.group_vectors().filter(|_| p.capability >= 90 && (is_masked || !p.is_general()))?;
    let shape = &p.shape;
    let (segments, groups, vectors) = (shape.group_segments(), shape.group_count(), p.segment_vectors());
    // What is read, and with it what is written.
    let (arrays, passes) = if is_masked { (3, 5) } else { (2, 3) };
    let (group, least_bytes) = if is_masked { (MASKED_GROUP, MASKED_TWICE) } else { (GROUP, READ_TWICE) };
    let bytes = groups.checked_mul(all_vectors * 32).filter(|&bytes| bytes >= least_bytes)?;
    let (multiprocessors, by_segment) = (u64::from(p.multiprocessors), shape.groups > 0);
    let (most, held) = FORMS[usize::from(p.activation != Activation::Identity && !is_masked)];
    let plain_threads = [most, most - 32];
    let split = (bytes / multiprocessors).saturating_mul(passes + 2) / 2 + SPLIT_LAUNCHES;
    // What tells teams apart weighs more there than what they take in all.
    let mut least = if is_masked { split.saturating_mul(4) / 3 } else { split };
    let mut best = None;
    for &threads in if is_masked { &MASKED_THREADS[..] } else { &plain_threads } {
        let steps = walk::Steps::new(segments, vectors, threads, by_segment);
        for teams in 1..=multiprocessors.min(groups) {
            let (team, rounds) = (multiprocessors / teams, groups.div_ceil(teams));
            let own = steps.all.div_ceil(team);
            let sums = if by_segment { (own + 1) * steps.threads / 2 } else { 0 };
            let room = u64::from(p.shared_bytes).saturating_sub(SHARED + sums);
            let slot = steps.threads * 16 * arrays;
            let slots = (room / slot).min(SLOTS);
            let waiting = own.saturating_sub(held);
            if waiting + 1 >= slots || own > WALK_STEPS {
                break; // Nor do smaller teams hold their groups.
            }
            let missing = if is_masked { MASKED_AHEAD.saturating_sub((slots - waiting) * slot) / 2 } else { 0 };
            let cost = rounds * (own * steps.threads * 16 * passes + group + missing);
            if team > steps.all || cost >= least {
                continue;
            }
            least = cost;
            // Blocks without a step have nothing to add.
            let team = if is_masked { steps.all.div_ceil(own) } else { team };
            let parts =
                if by_segment && p.has_parameter_gradients { shape.batch * shape.channels * team * 8 } else { 0 };
            let tuned = Tuned {
                variant: sys::BOPS_CHANNEL_NORM_COOPERATIVE,
                vec_bytes: 16,
                vectors: word(own),
                threads: word(steps.threads),
                cluster: word(team),
                grid: grid(teams * team)?,
                stages: slots as u32,
                tensors: if is_masked { 3 } else { 0 },
                workspace_bytes: teams * team * 32 + parts,
                launches: 1 + u32::from(parts > 0),
                ..Tuned::default()
            };
            best = Some(Cooperative { tuned, rounds });
        }
    }
    best
}

/// Forward: threads of a team, without a residual and with one.
const FORWARD_THREADS: [u64; 5] = [224, 256, 320, 352, 384];
const RESIDUAL_THREADS: [u64; 6] = [224, 256, 288, 320, 352, 384];
/// Bytes of x, and of a group, from which it is faster than reading x twice and than clusters that leave multiprocessors out. Where those take at most
/// so many groups one after another, smaller groups serve, too, if teams take no more.
const FORWARD_LEAST: u64 = 32 << 20;
const FORWARD_GROUP: u64 = 7 << 18;
const FORWARD_ROUNDS: u64 = 5;
/// What a group costs it beyond its bytes, where elements have 4 bytes, 2, or where exponentials take the time; and what a step does. As bytes of a
/// multiprocessor's share of the memory's speed. With a residual, what a group costs where elements have 2 bytes.
const FORWARD_TURN: [u64; 3] = [4 << 10, 12 << 10, 32 << 10];
const RESIDUAL_TURN: u64 = 32 << 10;
const FORWARD_STEP: u64 = 1 << 10;
/// Where a group does not fit: threads that write, most first, places for each reading of the steps that are read twice, and their bytes on all
/// multiprocessors up to which that was measured: the L2 has to keep those of two groups.
const OVERFLOWING_THREADS: [u64; 3] = [320, 256, 224];
const OVERFLOWING_WINDOWS: u64 = 2;
const OVERFLOWING_PASSING: u64 = 28 << 20;

/// The same, of groups that any number of blocks share. cluster_rounds: the groups that clusters take one after another, if they hold one.
pub(super) fn forward(p: &Problem, cluster_rounds: Option<u64>) -> Option<Tuned> {
    let serves = p.capability >= 90 && (!p.is_general() || p.adds_residual());
    let group_bytes = p.group_vectors().filter(|_| serves)? * 16;
    let (groups, multiprocessors) = (p.shape.group_count(), u64::from(p.multiprocessors));
    let few_rounds = cluster_rounds.filter(|&rounds| rounds <= FORWARD_ROUNDS);
    let is_small = group_bytes < FORWARD_GROUP && !p.has_extra;
    if is_small && few_rounds.is_none() || groups * group_bytes < FORWARD_LEAST {
        return None;
    }
    let is_exponential = p.activation == Activation::Silu;
    let turn = match p.has_extra && p.element_bytes == 2 {
        true => RESIDUAL_TURN,
        false => FORWARD_TURN[if is_exponential { 2 } else { usize::from(p.element_bytes == 2) }],
    };
    let instructions = if is_exponential { 2 * relay::STEP } else { relay::STEP };
    let mut best: Option<(u64, Tuned)> = None;
    let threads = if p.has_extra { &RESIDUAL_THREADS[..] } else { &FORWARD_THREADS };
    for &threads in threads.iter().filter(|&&threads| relay::evenly_spread(p, threads)) {
        let steps = relay::Steps::new(p, threads, 1);
        for teams in 1..=multiprocessors.min(groups) {
            let most = (multiprocessors / teams).min(TEAM).min(steps.all);
            let team = steps.all.div_ceil(steps.all.div_ceil(most));
            let Some(share) = steps.share(p, 1, team, teams * team, instructions) else {
                break; // Nor do smaller teams hold their groups.
            };
            let ahead = share.slots - share.steps + steps.windows;
            let missing = relay::AHEAD.saturating_sub(ahead * (share.bytes / share.steps));
            let own = share.time + missing + turn + share.steps * FORWARD_STEP;
            if is_small && few_rounds.is_some_and(|rounds| groups.div_ceil(teams) > rounds) {
                continue;
            }
            // The first group is not written while it is read, nor is one read while the last is written.
            let cost = groups.div_ceil(teams) * own + 2 * share.bytes;
            if missing > relay::AHEAD / 2 || best.is_some_and(|(least, _)| least <= cost) {
                continue;
            }
            let is_full = 2 * share.steps > share.slots && !is_exponential && !p.has_extra;
            let tuned = steps.tuned(p, 1, &share, team, teams)?;
            let tuned = Tuned {
                variant: sys::BOPS_CHANNEL_NORM_COOPERATIVE,
                tensors: word(ARRIVING[usize::from(is_full)] / (threads * relay::VECTORS * 16)),
                overlaps: 1,
                workspace_bytes: tuned.workspace_bytes + teams * team * MESSAGES * 16,
                ..tuned
            };
            best = Some((cost, tuned));
        }
    }
    best.map(|(_, tuned)| tuned).or_else(|| overflowing_forward(p))
}

/// The same of groups that are more than all multiprocessors hold.
fn overflowing_forward(p: &Problem) -> Option<Tuned> {
    if p.has_extra {
        return None;
    }
    let multiprocessors = u64::from(p.multiprocessors);
    let mut best: Option<(u64, Tuned)> = None;
    for threads in OVERFLOWING_THREADS.into_iter().filter(|&threads| relay::evenly_spread(p, threads)) {
        let steps = relay::Steps::new(p, threads, 1);
        let own = steps.all.div_ceil(multiprocessors.min(TEAM));
        let team = steps.all.div_ceil(own);
        let parameters = if p.shape.groups == 0 { 1 } else { p.shape.group_segments() };
        let place = threads * relay::VECTORS * 16;
        let slots = (u64::from(p.shared_bytes).saturating_sub(RESERVED_SHARED + parameters * 16) / place).min(SLOTS);
        // One place more than the steps that stay.
        let Some(staying) = slots.checked_sub(2 * OVERFLOWING_WINDOWS + 1).filter(|&staying| staying > 0) else {
            continue;
        };
        let Some(passing) = own.checked_sub(staying).filter(|&passing| passing > 0) else { continue };
        let cost = own * place;
        if passing * place * multiprocessors > OVERFLOWING_PASSING || best.is_some_and(|(least, _)| least <= cost) {
            continue;
        }
        let share = relay::Share { steps: own, slots, time: 0, missing: 0, bytes: 0 };
        let tuned = steps.tuned(p, 1, &share, team, 1)?;
        let tuned = Tuned {
            variant: sys::BOPS_CHANNEL_NORM_COOPERATIVE,
            chunks: word(OVERFLOWING_WINDOWS),
            cached: word(passing),
            tensors: word((ARRIVING[0] / place).min(staying + 1)),
            overlaps: 1,
            workspace_bytes: tuned.workspace_bytes + team * MESSAGES * 16,
            ..tuned
        };
        best = Some((cost, tuned));
    }
    best.map(|(_, tuned)| tuned)
}
