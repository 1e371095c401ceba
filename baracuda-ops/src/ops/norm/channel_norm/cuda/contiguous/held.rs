//! Backward: groups that stay on chip, partly in registers, while the following ones are fetched.

use baracuda_ops_sys as sys;

use super::walk::{MOST_PLACES, MOST_STEPS, READ_TWICE_BYTES, Steps, message_bytes};
use super::{Answer, ChannelProblem, Chosen, NO_ROOM_OR_SPLIT, RESERVED_SHARED, least, needs};
use crate::narrow::word;
use crate::ops::activation::Activation;

pub(in super::super) type Choice = sys::bops_channel_norm_backward_held_choice;

/// Blocks of a cluster.
struct Blocks {
    /// Threads that hold vectors, at most; the block has a further warp, which fetches.
    threads: u64,
    /// How many such blocks share an SM: registers suffice for 16 warps.
    residents: u64,
    /// Groups that a cluster takes one after another, at most.
    rounds: u64,
}
/// The blocks that are tried.
const BLOCKS: [Blocks; 3] = [
    Blocks { threads: 480, residents: 1, rounds: u64::MAX },
    Blocks { threads: 224, residents: 2, rounds: u64::MAX },
    // For groups of which a cluster takes few.
    Blocks { threads: 128, residents: 3, rounds: 2 },
];
/// Steps of a group that stay in registers in a cluster. With an activation that takes many instructions none do.
const REGISTER_STEPS: u64 = 4;
/// The most places beyond those of the steps that wait for a group's statistics.
const PLACES_AHEAD: u64 = 12;
/// Places of the ring that are enough in all: more are slower.
const PLACES_ENOUGH: u64 = 16;
/// What a group costs beyond its bytes in one block. Blocks that share an SM hide the costs of groups from each other. In bytes.
const BLOCK_GROUP_COST: u64 = 88 << 10;
/// What a group costs beyond its bytes in a cluster. In bytes.
const CLUSTER_GROUP_COST: u64 = 96 << 10;
/// What a group costs beyond its bytes in a cluster of 16. In bytes.
const LARGE_CLUSTER_GROUP_COST: u64 = 120 << 10;

/// Blocks of a grid, by what they compute.
struct GridBlocks {
    /// Threads that are tried, most first.
    threads: &'static [u64],
    /// Steps of a group that stay in registers.
    register_steps: u64,
    /// What a group costs beyond its bytes. In bytes.
    group_cost: u64,
    /// Bytes of dy and x in all, from which on reading them twice is slower.
    read_twice_bytes: u64,
    /// Tensors that are read, and tensors that are read or written.
    arrays: u64,
    passes: u64,
}
/// Without an activation.
const GRID_IDENTITY: GridBlocks = GridBlocks {
    threads: &[352, 320],
    register_steps: 10,
    group_cost: 112 << 10,
    read_twice_bytes: READ_TWICE_BYTES,
    arrays: ARRAYS,
    passes: ARRAYS + 1,
};
/// With 384 threads each SM sub-partition has as many warps, which matters if they compute an activation.
const GRID_ACTIVE: GridBlocks = GridBlocks { threads: &[384, 352], register_steps: 6, ..GRID_IDENTITY };
/// For a residual or y that tells where a ReLU passes the gradient.
const GRID_MASKED: GridBlocks = GridBlocks {
    threads: &[352, 320, 288, 256],
    group_cost: 48 << 10,
    read_twice_bytes: 12 << 20,
    arrays: 3,
    passes: 5,
    ..GRID_IDENTITY
};
/// Bytes of the places for the next group that hide an exchange if a residual or y passes through them, too.
const MASKED_AHEAD_BYTES: u64 = 200 << 10;
/// Shared memory that the kernel declares itself in a grid, in bytes.
const GRID_SHARED_BYTES: u64 = 2 << 10;
/// What the three launches of `split` cost beyond their bytes. In bytes.
const SPLIT_LAUNCH_COST: u64 = 192 << 10;
/// If clusters of at least so many blocks take more than one group each, teams of a grid that take few groups are faster.
const SLOW_CLUSTER: u32 = 8;
/// Groups that each team of a grid takes, at most, for the grid to be faster than clusters of `SLOW_CLUSTER` blocks or more.
const FASTER_ROUNDS: u64 = 3;
/// Bytes of the message that a block of a grid sends in each of two turns, which the workspace has room for.
const MESSAGE_BYTES: u64 = 2 * 16;

/// Tensors that are read if neither a residual nor y is.
const ARRAYS: u64 = 2;

/// How the blocks of teams hold groups.
#[derive(Clone, Copy)]
struct Holding {
    /// Blocks of a team, and teams.
    team: u64,
    teams: u64,
    /// Groups that a team takes one after another.
    rounds: u64,
    /// Steps of a group in one block; of these, those that keep their places until the group's statistics are there.
    steps: u64,
    waiting: u64,
    places: u64,
    /// Threads that hold vectors.
    threads: u64,
}

impl Holding {
    /// If a block has room for more than its part of a group. shared_bytes: of a block, for places and sums; arrays: tensors that are read;
    /// register_steps: steps of a group that stay in registers.
    fn new(
        p: &ChannelProblem,
        of: Steps,
        team: u64,
        teams: u64,
        shared_bytes: u64,
        arrays: u64,
        register_steps: u64,
    ) -> Option<Self> {
        let steps = of.all.div_ceil(team);
        let sums = if p.shape.groups > 0 { (steps + 1) * of.threads / 2 } else { 0 };
        let places = (shared_bytes.saturating_sub(sums) / (of.threads * 16 * arrays)).min(MOST_PLACES);
        let waiting = steps.saturating_sub(register_steps);
        let rounds = p.shape.group_count().div_ceil(teams);
        let holds = waiting + 1 < places && steps <= MOST_STEPS;
        holds.then_some(Self { team, teams, rounds, steps, waiting, places, threads: of.threads })
    }

    /// Bytes of one tensor that a block takes of a group.
    fn bytes(&self) -> u64 {
        self.steps * self.threads * 16
    }

    fn choice(&self, team: sys::bops_norm_team) -> Choice {
        Choice {
            team,
            team_blocks: word(self.team),
            steps: word(self.steps),
            places: word(self.places),
            threads: word(self.threads),
            blocks: word(self.teams * self.team),
            ..Choice::default()
        }
    }
}

/// The threads and the cluster with the least predicted time, if any cluster holds a group; and that time.
pub(super) fn in_clusters(p: &ChannelProblem) -> Option<(u64, Choice)> {
    let register_steps = if p.is_general() { 0 } else { REGISTER_STEPS };
    let candidates = BLOCKS.iter().flat_map(|&Blocks { threads, residents, rounds }| {
        let of = Steps::new(p, threads);
        let shared_bytes = (p.shared_bytes / residents).saturating_sub(RESERVED_SHARED);
        p.clusters().filter(move |&cluster| cluster <= of.all).filter_map(move |cluster| {
            let teams = p.resident_clusters(cluster, residents).min(p.shape.group_count());
            let held = Holding::new(p, of, cluster, teams, shared_bytes, ARRAYS, register_steps)?;
            let places = held.places.min(PLACES_ENOUGH.max(held.waiting + PLACES_AHEAD));
            let held = Holding { places, ..held };
            let together = (teams * cluster).div_ceil(p.multiprocessors).min(residents);
            let group_cost = match cluster {
                1 => BLOCK_GROUP_COST,
                2..=8 => CLUSTER_GROUP_COST,
                _ => LARGE_CLUSTER_GROUP_COST,
            };
            // The cost of having fewer places ahead than hide the time in which the group is finished.
            let missing = (PLACES_AHEAD + held.waiting).saturating_sub(places) * held.threads * 8;
            let moved = (held.bytes() + missing) * (ARRAYS + 1) * together;
            (held.rounds <= rounds).then_some((held.rounds * (moved + group_cost / together), held))
        })
    });
    let (cost, held) = least(candidates)?;
    Some((cost, Choice { overlaps: u32::from(held.rounds == 1), ..held.choice(sys::BOPS_NORM_CLUSTER) }))
}

pub(in super::super) fn backward(p: &ChannelProblem) -> Answer<Choice> {
    let bytes = p.shape.group_count().saturating_mul(p.group_vectors()? * 32);
    p.needs_capability(90)?;
    needs(!p.has_extra || p.is_masked(), "it takes a residual or y of BatchNorm through relu alone")?;
    let clusters = in_clusters(p).filter(|_| !p.has_extra);
    if let (Some((cost, _)), false) = (clusters, p.is_pinned || p.shape.groups > 0 || p.is_general()) {
        // Of thousands of small channels, what each costs beyond its bytes exceeds the cost of reading twice.
        let most = split_time(p, bytes, ARRAYS + 1).saturating_mul(4) / 3;
        needs(cost <= most, "the form split is faster")?;
    }
    let clusters = clusters.map(|(_, choice)| choice);
    let by_grid = match clusters {
        Some(clusters) if !may_be_slow(&clusters, p) => None,
        Some(_) => in_grid(p, bytes, false).filter(|held| held.rounds <= FASTER_ROUNDS),
        None => in_grid(p, bytes, p.is_pinned),
    };
    let grid_choice =
        |held: Holding| Choice { reads_extra: u32::from(p.is_masked()), ..held.choice(sys::BOPS_NORM_GRID) };
    let choice = by_grid.map(grid_choice).or(clusters).ok_or_else(|| p.no_room(NO_ROOM_OR_SPLIT))?;
    let sums = p.segment_sum_bytes(u64::from(choice.team_blocks));
    let workspace_bytes = message_bytes(choice.team, choice.blocks, MESSAGE_BYTES) + sums;
    Ok(Chosen { choice, workspace_bytes, launches: 1 + u32::from(sums > 0) })
}

/// The predicted time of `split`, which reads `bytes` bytes of dy and x twice; so many tensors are read or written.
fn split_time(p: &ChannelProblem, bytes: u64, passes: u64) -> u64 {
    (bytes / p.multiprocessors).saturating_mul(passes + 2) / 2 + SPLIT_LAUNCH_COST
}

/// Whether teams of a grid may be faster than these clusters.
fn may_be_slow(clusters: &Choice, p: &ChannelProblem) -> bool {
    let teams = u64::from(clusters.blocks / clusters.team_blocks);
    p.shape.groups > 0 && clusters.team_blocks >= SLOW_CLUSTER && teams < p.shape.group_count()
}

/// Groups that the SMs hold together: the teams with the least predicted time, if it is less than that of reading the groups, of `bytes` bytes of dy
/// and x in all, twice; if `always`, whatever it is.
fn in_grid(p: &ChannelProblem, bytes: u64, always: bool) -> Option<Holding> {
    let is_masked = p.is_masked();
    let blocks = match p.activation {
        _ if is_masked => &GRID_MASKED,
        _ if p.is_general() => return None,
        Activation::Identity => &GRID_IDENTITY,
        _ => &GRID_ACTIVE,
    };
    if bytes < blocks.read_twice_bytes && !always {
        return None;
    }
    let multiprocessors = p.multiprocessors;
    let most_teams = multiprocessors.min(p.shape.group_count());
    let shared_bytes = p.shared_bytes.saturating_sub(GRID_SHARED_BYTES);
    let candidates = blocks.threads.iter().flat_map(|&threads| {
        let of = Steps::new(p, threads);
        let held = move |teams| {
            Holding::new(p, of, multiprocessors / teams, teams, shared_bytes, blocks.arrays, blocks.register_steps)
        };
        // A team of a grid with a mask has no block without a step.
        let team = move |held: &Holding| if is_masked { of.all.div_ceil(held.steps) } else { held.team };
        // Smaller teams hold no group that larger ones do not hold.
        let all = (1..=most_teams).map_while(held).filter(move |held| held.team <= of.all);
        all.map(move |held| Holding { team: team(&held), ..held })
    });
    let cost = |held: &Holding| {
        let ahead_bytes = (held.places - held.waiting) * held.threads * 16 * blocks.arrays;
        let missing = if is_masked { MASKED_AHEAD_BYTES.saturating_sub(ahead_bytes) / 2 } else { 0 };
        held.rounds * (held.bytes() * blocks.passes + blocks.group_cost + missing)
    };
    let (cost, held) = least(candidates.map(|held| (cost(&held), held)))?;
    // With a mask, predicted times compare teams well, but are too long beside that of reading twice.
    let split = split_time(p, bytes, blocks.passes);
    let most = if is_masked { split.saturating_mul(4) / 3 } else { split };
    (always || cost < most).then_some(held)
}
