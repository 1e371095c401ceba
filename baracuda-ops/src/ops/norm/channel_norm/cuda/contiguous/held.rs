//! Backward: groups that stay on chip, partly in registers, while the following ones are fetched.

use baracuda_ops_sys as sys;

use super::walk::{MOST_PLACES, MOST_STEPS, READ_TWICE_BYTES, Steps};
use super::{Answer, ChannelProblem, Chosen, RESERVED_SHARED, needs};
use crate::narrow::{grid, word};
use crate::ops::activation::Activation;

pub(super) type Choice = sys::bops_channel_norm_backward_held_choice;

/// Blocks that hold groups in registers.
struct Blocks {
    /// Threads that hold vectors, at most; the block has a further warp, which fetches.
    threads: u64,
    /// How many such blocks share a multiprocessor: registers suffice for 16 warps.
    residents: u64,
    /// Groups that a team takes one after another, at most.
    rounds: u64,
}
const BLOCKS: [Blocks; 3] = [
    Blocks { threads: 480, residents: 1, rounds: u64::MAX },
    Blocks { threads: 224, residents: 2, rounds: u64::MAX },
    // For groups of which a team takes few.
    Blocks { threads: 128, residents: 3, rounds: 2 },
];
/// Steps of a group that stay in registers. With an activation that takes many instructions none do.
const REGISTER_STEPS: u64 = 4;
/// The most places beyond those of the steps that wait for a group's statistics; and the places that are enough in all, since more are slower.
const PLACES_AHEAD: u64 = 12;
const PLACES_ENOUGH: u64 = 16;
/// What a group costs beyond its bytes in one block, in a cluster, and in a cluster of 16; blocks that share a multiprocessor hide this cost from
/// each other. In bytes.
const BLOCK_GROUP_COST: u64 = 88 << 10;
const CLUSTER_GROUP_COST: u64 = 96 << 10;
const LARGE_CLUSTER_GROUP_COST: u64 = 120 << 10;

/// Backward in a grid: blocks by what activation they compute.
struct GridBlocks {
    /// Threads that are tried, most first.
    threads: &'static [u64],
    /// Steps of a group that stay in registers.
    register_steps: u64,
    /// What a group costs beyond its bytes. In bytes.
    group_cost: u64,
    /// Bytes of what is read, from which on reading it twice is slower.
    read_twice_bytes: u64,
}
const GRID_IDENTITY: GridBlocks =
    GridBlocks { threads: &[352, 320], register_steps: 10, group_cost: 112 << 10, read_twice_bytes: READ_TWICE_BYTES };
/// With 384 threads each SM sub-partition has as many warps, which matters if they compute an activation.
const GRID_ACTIVE: GridBlocks = GridBlocks { threads: &[384, 352], register_steps: 6, ..GRID_IDENTITY };
/// For a residual or y that tells where a ReLU passes the gradient.
const GRID_MASKED: GridBlocks =
    GridBlocks { threads: &[352, 320, 288, 256], register_steps: 10, group_cost: 48 << 10, read_twice_bytes: 12 << 20 };
/// Bytes of the places for the next group that hide an exchange if a residual or y passes through them, too.
const MASKED_AHEAD_BYTES: u64 = 200 << 10;
/// Shared memory that the kernel declares itself in a grid, in bytes.
const GRID_SHARED_BYTES: u64 = 2 << 10;
/// What the three launches of `split` cost beyond their bytes. In bytes.
const SPLIT_LAUNCH_COST: u64 = 192 << 10;
/// If clusters of at least so many blocks take more than one group each, teams of a grid that take at most so many groups are faster.
const SLOW_CLUSTER: u32 = 8;
const FASTER_ROUNDS: u64 = 3;

/// Tensors that are read.
const ARRAYS: u64 = 2;

/// The threads and the cluster with the least predicted time, if any cluster holds a group; and that time.
pub(super) fn in_clusters(p: &ChannelProblem) -> Option<(u64, Choice)> {
    let shape = &p.shape;
    let (segments, groups) = (shape.group_segments(), shape.group_count());
    let vectors = p.segment_vectors();
    let by_segment = shape.groups > 0;
    let register_steps = if p.is_general() { 0 } else { REGISTER_STEPS };
    let mut best: Option<(u64, Choice)> = None;
    for Blocks { threads, residents, rounds: most_rounds } in BLOCKS {
        let steps = Steps::new(segments, vectors, threads, by_segment);
        for cluster in p.clusters() {
            let own = steps.all.div_ceil(cluster);
            let sums = if by_segment { (own + 1) * steps.threads / 2 } else { 0 };
            let room = (u64::from(p.shared_bytes) / residents).saturating_sub(RESERVED_SHARED + sums);
            let places = (room / (steps.threads * 16 * ARRAYS)).min(MOST_PLACES);
            // Steps that keep their places until the group's statistics are there.
            let waiting = own.saturating_sub(register_steps);
            if waiting + 1 >= places || own > MOST_STEPS || cluster > steps.all {
                continue;
            }
            let places = places.min(PLACES_ENOUGH.max(waiting + PLACES_AHEAD));
            let teams = p.resident_clusters(cluster, residents).min(groups);
            let rounds = groups.div_ceil(teams);
            if rounds > most_rounds {
                continue;
            }
            let together = (teams * cluster).div_ceil(u64::from(p.multiprocessors)).min(residents);
            let bytes = own * steps.threads * 16 * (ARRAYS + 1) * together;
            let group_cost = match cluster {
                1 => BLOCK_GROUP_COST,
                2..=8 => CLUSTER_GROUP_COST,
                _ => LARGE_CLUSTER_GROUP_COST,
            };
            // The cost of having fewer places ahead than hide the time in which the group is finished.
            let missing = (PLACES_AHEAD + waiting).saturating_sub(places) * steps.threads * 8 * (ARRAYS + 1) * together;
            let cost = rounds * (bytes + missing + group_cost / together);
            if best.is_some_and(|(least, _)| least <= cost) {
                continue;
            }
            let choice = Choice {
                team: sys::BOPS_NORM_CLUSTER,
                team_blocks: word(cluster),
                steps: word(own),
                places: word(places),
                threads: word(steps.threads),
                blocks: grid(teams * cluster)?,
                reads_extra: 0,
                overlaps: u32::from(rounds == 1),
            };
            best = Some((cost, choice));
        }
    }
    best
}

pub(in super::super) fn backward(p: &ChannelProblem) -> Answer<Choice> {
    let group = p.group_vectors()?;
    p.needs_capability(90)?;
    needs(!p.has_extra || p.is_masked(), "it takes a residual or y of BatchNorm through relu alone")?;
    let clusters = in_clusters(p).filter(|_| !p.has_extra);
    if let (Some((cost, _)), false) = (clusters, p.is_pinned || p.shape.groups > 0 || p.is_general()) {
        // Of thousands of small channels, what each costs beyond its bytes exceeds the cost of reading twice.
        let bytes = p.shape.group_count().saturating_mul(group * 32);
        let most = split_time(p, bytes, ARRAYS + 1).saturating_mul(4) / 3;
        needs(cost <= most, "the form split is faster")?;
    }
    let clusters = clusters.map(|(_, choice)| choice);
    let in_grid = match clusters {
        Some(clusters) if !may_be_slow(&clusters, p) => None,
        Some(_) => backward_in_grid(p, group, false).filter(|(rounds, _)| *rounds <= FASTER_ROUNDS),
        None => backward_in_grid(p, group, p.is_pinned),
    };
    let choice = in_grid.map(|(_, choice)| choice).or(clusters);
    let choice = choice.ok_or_else(|| {
        if p.is_pinned { p.too_large() } else { "a group has no room on chip, or the form split is faster".into() }
    })?;
    let messages = if choice.team == sys::BOPS_NORM_GRID { u64::from(choice.blocks) * 32 } else { 0 };
    let sums = p.segment_sum_bytes(u64::from(choice.team_blocks));
    Ok(Chosen { choice, workspace_bytes: messages + sums, launches: 1 + u32::from(sums > 0) })
}

/// The predicted time of `split`, which reads `bytes` bytes of dy and x twice; so many tensors are read or written.
fn split_time(p: &ChannelProblem, bytes: u64, passes: u64) -> u64 {
    (bytes / u64::from(p.multiprocessors)).saturating_mul(passes + 2) / 2 + SPLIT_LAUNCH_COST
}

/// Whether teams of a grid may be faster than these clusters.
fn may_be_slow(clusters: &Choice, p: &ChannelProblem) -> bool {
    let teams = u64::from(clusters.blocks / clusters.team_blocks);
    p.shape.groups > 0 && clusters.team_blocks >= SLOW_CLUSTER && teams < p.shape.group_count()
}

/// Groups that the multiprocessors hold together: the teams with the least predicted time, if it is less than that of reading the groups twice; if
/// `always`, whatever it is. Returns also how many groups a team takes one after another.
fn backward_in_grid(p: &ChannelProblem, group: u64, always: bool) -> Option<(u64, Choice)> {
    let is_masked = p.is_masked();
    if p.is_general() && !is_masked {
        return None;
    }
    let shape = &p.shape;
    let (segments, groups, vectors) = (shape.group_segments(), shape.group_count(), p.segment_vectors());
    // Tensors that are read, and tensors that are read or written.
    let (arrays, passes) = if is_masked { (3, 5) } else { (2, 3) };
    let form = match p.activation {
        _ if is_masked => &GRID_MASKED,
        Activation::Identity => &GRID_IDENTITY,
        _ => &GRID_ACTIVE,
    };
    let bytes = groups.checked_mul(group * 32).filter(|&bytes| bytes >= form.read_twice_bytes || always)?;
    let (multiprocessors, by_segment) = (u64::from(p.multiprocessors), shape.groups > 0);
    let split = split_time(p, bytes, passes);
    // With a mask, predicted times compare teams well, but are too long beside that of reading twice.
    let mut least = match () {
        () if always => u64::MAX,
        () if is_masked => split.saturating_mul(4) / 3,
        () => split,
    };
    let mut best = None;
    for &threads in form.threads {
        let steps = Steps::new(segments, vectors, threads, by_segment);
        for teams in 1..=multiprocessors.min(groups) {
            let (team, rounds) = (multiprocessors / teams, groups.div_ceil(teams));
            let own = steps.all.div_ceil(team);
            let sums = if by_segment { (own + 1) * steps.threads / 2 } else { 0 };
            let room = u64::from(p.shared_bytes).saturating_sub(GRID_SHARED_BYTES + sums);
            let place_bytes = steps.threads * 16 * arrays;
            let places = (room / place_bytes).min(MOST_PLACES);
            let waiting = own.saturating_sub(form.register_steps);
            if waiting + 1 >= places || own > MOST_STEPS {
                break; // nor do smaller teams hold their groups
            }
            let ahead_bytes = (places - waiting) * place_bytes;
            let missing = if is_masked { MASKED_AHEAD_BYTES.saturating_sub(ahead_bytes) / 2 } else { 0 };
            let cost = rounds * (own * steps.threads * 16 * passes + form.group_cost + missing);
            if team > steps.all || cost >= least {
                continue;
            }
            least = cost;
            // A team has no block without a step.
            let team = if is_masked { steps.all.div_ceil(own) } else { team };
            let choice = Choice {
                team: sys::BOPS_NORM_GRID,
                team_blocks: word(team),
                steps: word(own),
                places: word(places),
                threads: word(steps.threads),
                blocks: grid(teams * team)?,
                reads_extra: u32::from(is_masked),
                overlaps: 0,
            };
            best = Some((rounds, choice));
        }
    }
    best
}
