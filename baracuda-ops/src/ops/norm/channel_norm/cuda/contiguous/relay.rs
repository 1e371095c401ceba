//! Groups on chip that some warps add up while others write the one before.

use baracuda_ops_sys as sys;

use super::walk::{
    ARRIVING_BYTES, ARRIVING_BYTES_IN_LITTLE_ROOM, MESSAGE_BYTES, MOST_PLACES, MOST_TEAM_BLOCKS, READ_TWICE_BYTES,
    message_bytes,
};
use super::{Answer, ChannelProblem, Chosen, NO_ROOM, NO_ROOM_OR_SPLIT, RESERVED_SHARED, held, least, needs, single};
use crate::error::Reason;
use crate::narrow::{to_usize, word};
use crate::ops::activation::Activation;

pub(in super::super) type Choice = sys::bops_channel_norm_relay_choice;
pub(in super::super) type BackwardChoice = sys::bops_channel_norm_backward_relay_choice;

/// The fewest threads that write: fewer do not keep up with memory. A block has as many more that add up.
const LEAST_THREADS: u64 = 224;
/// The most threads that write. With as many that add up and 64 that fetch and merge they are 896, `relay_threads` of `channel_norm_relay.cuh`.
const MOST_THREADS: u64 = 416;
/// The most threads that write, if a further warp fetches a residual: the next multiple of 32 would make more than `relay_threads`.
const MOST_RESIDUAL_THREADS: u64 = 384;
/// The fewest threads that write if they compute exponentials, forward. Half as many add up.
const LEAST_EXPONENTIAL_THREADS: u64 = 256;
/// The most threads that write if they compute exponentials, forward. With half as many that add up and 64 that fetch and merge they are 832: the
/// next multiple of 64 would make more than `relay_threads`.
const MOST_EXPONENTIAL_THREADS: u64 = 512;
/// In long segments the threads that compute exponentials are a multiple of this, so that each of the four SM sub-partitions gets as many warps.
const EVEN_THREADS: u64 = 4 * 32;
/// Vectors of a thread in a step.
const VECTORS: u64 = 2;
/// Bytes of the places for a residual.
const RESIDUAL_BYTES: u64 = 32 << 10;
/// Bytes of a group in one block from which on clusters that walk over groups are faster than those of `single`, which take one group each.
const LEAST_BYTES: u64 = 64 << 10;
/// As `LEAST_BYTES`, with a residual.
const LEAST_RESIDUAL_BYTES: u64 = 48 << 10;
/// Backward: blocks of a cluster of `held` from which on clusters of this form are faster.
const HELD_CLUSTER: u32 = 4;
/// Bytes under way beyond the group that hide the exchange of a team's sums.
const AHEAD_BYTES: u64 = 96 << 10;
/// In a grid: how many of `AHEAD_BYTES` may be missing.
const MISSING_BYTES: u64 = AHEAD_BYTES / 2;
/// What a group costs in a cluster beyond its bytes. In bytes.
const GROUP_COST: u64 = 12 << 10;
/// What the instructions of a step cost for each tensor and each element of a vector. In bytes.
const STEP_COST: u64 = 1 << 10;
/// As `STEP_COST`, forward through an activation with exponentials.
const STEP_COST_OF_EXPONENTIALS: u64 = 2 * STEP_COST;

/// Forward in a grid.
struct Grid {
    /// Threads that write, of which all numbers are tried.
    threads: &'static [u64],
    /// Blocks of the largest clusters that are faster.
    clusters: u64,
}
/// Clusters of 16 leave an eighth of the SMs without work.
const GRID: Grid = Grid { threads: &[224, 256, 320, 352, 384], clusters: 8 };
/// With a residual. Clusters of 4 and 8 leave some SMs without work.
const RESIDUAL_GRID: Grid = Grid { threads: &[224, 256, 288, 320, 352, 384], clusters: 2 };
/// Bytes of x from which a grid is faster than reading x twice, and than clusters that leave SMs without work.
const GRID_BYTES: u64 = 32 << 20;
/// If no cluster holds a group, a grid takes groups of up to this many bytes even if x has fewer than `GRID_BYTES`. Larger ones were not measured.
const LONE_GROUP_BYTES: u64 = 4608 << 10;
/// Bytes of a group from which a grid is faster in any case: a cluster of 8 has no room for them.
const GRID_GROUP_BYTES: u64 = 1792 << 10;
/// A grid takes groups of fewer than `GRID_GROUP_BYTES` bytes only if a cluster takes at most so many of them one after another, and a team of the
/// grid no more of them than a cluster.
const GRID_ROUNDS: u64 = 5;
/// What a group of 4-byte elements costs in a grid beyond its bytes. In bytes.
const TURN_OF_4_BYTES: u64 = 4 << 10;
/// What a group of 2-byte elements costs in a grid beyond its bytes. In bytes.
const TURN_OF_2_BYTES: u64 = 12 << 10;
/// What a group of 2-byte elements with a residual costs in a grid beyond its bytes. In bytes.
const TURN_OF_RESIDUAL: u64 = 32 << 10;
/// What a group costs in a grid beyond its bytes through an activation with exponentials. In bytes.
const TURN_OF_EXPONENTIALS: u64 = 32 << 10;
/// What a step costs in a grid beyond its bytes. In bytes.
const GRID_STEP: u64 = 1 << 10;

/// Forward in a grid whose SMs do not hold a group, so that some steps are fetched twice: threads that write, the preferred number first.
const OVERFLOWING_THREADS: [u64; 3] = [320, 256, 224];
/// Places for each of the two readings of the steps that are fetched twice.
const OVERFLOWING_PLACES: u64 = 2;
/// The most bytes of the steps of a group that are fetched twice, on all SMs. The L2, of which an H200 has 50 MB, has to keep them from the sums to
/// the output. Those of the next group arrive meanwhile, and those that are fetched for the output leave it (`evict_first`). With more, more of them
/// would be read from memory again; with fewer, fewer groups would be read once.
const OVERFLOWING_BYTES: u64 = 28 << 20;

/// Backward in a grid: threads that write.
const BACKWARD_GRID_THREADS: [u64; 4] = [160, 224, 256, 320];
/// Backward: bytes of dy and x in a group from which a cluster's blocks have no room for the following one.
const BACKWARD_GRID_GROUP_BYTES: u64 = 2 << 20;
/// Backward: bytes under way beyond the group that hide the exchange of a team's sums.
const BACKWARD_AHEAD_BYTES: u64 = 136 << 10;
/// How many of `BACKWARD_AHEAD_BYTES` may be missing.
const BACKWARD_MISSING_BYTES: u64 = 48 << 10;
/// What a group costs beyond its bytes. In bytes.
const BACKWARD_TURN: u64 = 8 << 10;

/// How blocks with two teams of threads, one that adds up and one that writes, take a group.
#[derive(Clone, Copy)]
struct Steps<'p> {
    p: &'p ChannelProblem,
    /// Tensors on chip: x, or dy and x.
    arrays: u64,
    /// Threads that write.
    threads: u64,
    /// Segments in a step, or steps of a segment.
    segments: u64,
    of_segment: u64,
    /// Steps of a group.
    all: u64,
    /// Places for a residual.
    residual_places: u64,
}

/// Teams, and what one of their blocks takes of a group.
#[derive(Clone, Copy)]
struct Teams<'p> {
    of: Steps<'p>,
    /// Blocks of a team, teams, and groups that one takes one after another.
    blocks: u64,
    teams: u64,
    rounds: u64,
    /// Steps, and places for them.
    steps: u64,
    places: u64,
    /// Bytes that the block reads and writes, averaged over the SMs, or its instructions if those take longer. In bytes.
    time: u64,
    /// Bytes of the group.
    bytes: u64,
}

impl<'p> Steps<'p> {
    fn new(p: &'p ChannelProblem, threads: u64, arrays: u64) -> Self {
        let (vectors, places) = (p.segment_vectors(), threads * VECTORS);
        let (segments, of_segment) = ((places / vectors).max(1), vectors.div_ceil(places));
        let residual_places = if arrays == 1 && p.has_extra { RESIDUAL_BYTES.div_ceil(places * 16) } else { 0 };
        let all = p.shape.group_segments().div_ceil(segments) * of_segment;
        Self { p, arrays, threads, segments, of_segment, all, residual_places }
    }

    fn place_bytes(&self) -> u64 {
        self.threads * VECTORS * 16 * self.arrays
    }

    /// Places of a block that keeps the parameters of so many segments.
    fn places(&self, segments: u64) -> u64 {
        let parameters = if self.p.shape.groups == 0 { 1 } else { segments };
        let room = self.p.shared_bytes.saturating_sub(RESERVED_SHARED + parameters * 16);
        (room / self.place_bytes()).min(MOST_PLACES)
    }

    /// So many teams of `blocks` blocks, if these hold a group and a part of the next. step: what the instructions of one step cost.
    fn teams(self, blocks: u64, teams: u64, step: u64) -> Option<Teams<'p>> {
        let Self { p, arrays, .. } = self;
        let steps = self.all.div_ceil(blocks);
        let touched = ((steps - 1) / self.of_segment + 2) * self.segments;
        let places = self.places(touched).saturating_sub(self.residual_places);
        let bytes = p.shape.group_segments() * p.segment_vectors() * 16 * arrays * steps / self.all;
        let passes = arrays + 1 + u64::from(self.residual_places > 0);
        let moved = bytes * passes / arrays * (teams * blocks) / p.multiprocessors;
        let time = moved.max(steps * (arrays + 1) * step * (16 / p.element_bytes));
        let rounds = p.shape.group_count().div_ceil(teams);
        (steps < places).then_some(Teams { of: self, blocks, teams, rounds, steps, places, time, bytes })
    }

    /// The smallest team that takes a group in as few steps as a team with its share of the SMs does. step: as in [`teams`](Self::teams).
    fn grid_teams(self, teams: u64, step: u64) -> Option<Teams<'p>> {
        self.teams(self.grid_team(teams), teams, step)
    }

    /// Blocks of a team of [`grid_teams`](Self::grid_teams).
    fn grid_team(&self, teams: u64) -> u64 {
        let most = (self.p.multiprocessors / teams).min(MOST_TEAM_BLOCKS).min(self.all);
        self.all.div_ceil(self.all.div_ceil(most))
    }
}

impl Teams<'_> {
    /// Places for the next group, and for a residual.
    fn places_ahead(&self) -> u64 {
        self.places - self.steps + self.of.residual_places
    }

    /// How many bytes are missing under way of `wanted` ones, in a grid.
    fn missing_bytes(&self, wanted: u64) -> u64 {
        wanted.saturating_sub(self.places_ahead() * (self.bytes / self.steps))
    }

    /// The time in a grid if each group takes so long. The first group is not written while it is read, and while the last one is written no group is
    /// read.
    fn grid_time(&self, of_group: u64) -> u64 {
        self.rounds * of_group + 2 * self.bytes
    }

    /// Whether they are faster than teams that take one group each.
    fn are_faster_than(&self, one: &single::Choice) -> bool {
        let p = self.of.p;
        if p.adds_residual() {
            // Three quarters of the SMs have work.
            let is_busy = self.teams * self.blocks >= p.multiprocessors / 4 * 3;
            return is_busy && self.bytes >= LEAST_RESIDUAL_BYTES;
        }
        let are_clusters = one.cluster_blocks > 1 && one.stagger_cycles == 0;
        are_clusters && self.bytes >= LEAST_BYTES && self.rounds > 1
    }

    /// arriving_bytes: that a block of a grid has on the way to shared memory at once; of a cluster 0.
    fn choice(&self, team: sys::bops_norm_team, arriving_bytes: u64) -> Choice {
        Choice {
            team,
            team_blocks: word(self.blocks),
            steps: word(self.steps),
            places: word(self.places + self.of.residual_places),
            residual_places: word(self.of.residual_places),
            arriving_places: word(arriving_bytes / self.of.place_bytes()),
            threads: word(self.of.threads),
            blocks: word(self.teams * self.blocks),
            overlaps: u32::from(team == sys::BOPS_NORM_GRID || self.rounds == 1),
            ..Choice::default()
        }
    }

    fn backward_choice(&self, team: sys::bops_norm_team, arriving_bytes: u64) -> BackwardChoice {
        let Choice { team_blocks, steps, places, arriving_places, threads, blocks, overlaps, .. } =
            self.choice(team, arriving_bytes);
        BackwardChoice { team, team_blocks, steps, places, arriving_places, threads, blocks, overlaps }
    }
}

impl ChannelProblem {
    /// Whether a segment has work for a step of all threads.
    fn has_long_segments(&self) -> bool {
        self.segment_vectors() >= MOST_THREADS * VECTORS
    }

    /// Whether the SM sub-partitions have as many threads each, which matters where these compute exponentials.
    fn is_even(&self, threads: u64) -> bool {
        self.activation != Activation::Silu || !self.has_long_segments() || threads.is_multiple_of(EVEN_THREADS)
    }
}

/// Threads that write, most first.
fn cluster_threads(p: &ChannelProblem, arrays: u64) -> impl Iterator<Item = u64> {
    let (fewest, most, step) = match arrays == 1 && p.activation == Activation::Silu {
        false if arrays == 1 && p.has_extra => (LEAST_THREADS, MOST_RESIDUAL_THREADS, 32),
        false => (LEAST_THREADS, MOST_THREADS, 32),
        true if p.has_long_segments() => (LEAST_EXPONENTIAL_THREADS, MOST_EXPONENTIAL_THREADS, EVEN_THREADS),
        // Half as many threads add up, which have to be whole warps.
        true => (LEAST_EXPONENTIAL_THREADS, MOST_EXPONENTIAL_THREADS, 2 * 32),
    };
    (fewest..=most).rev().step_by(to_usize(step))
}

/// The clusters with the least predicted time, if any hold a group.
fn in_clusters(p: &ChannelProblem, arrays: u64) -> Option<Teams<'_>> {
    let candidates = cluster_threads(p, arrays).flat_map(|threads| {
        let of = Steps::new(p, threads, arrays);
        p.clusters().filter(move |&blocks| blocks <= of.all).filter_map(move |blocks| {
            of.teams(blocks, p.resident_clusters(blocks, 1).min(p.shape.group_count()), STEP_COST)
        })
    });
    let cost = |teams: &Teams<'_>| {
        let missing = AHEAD_BYTES.saturating_sub(teams.places_ahead() * teams.of.place_bytes());
        teams.rounds * (teams.time + missing + GROUP_COST)
    };
    least(candidates.map(|teams| (cost(&teams), teams))).map(|(_, teams)| teams)
}

/// Teams of any blocks that hold a group. step: what the instructions of one step cost.
fn in_grid<'p>(p: &'p ChannelProblem, arrays: u64, threads: &[u64], step: u64) -> impl Iterator<Item = Teams<'p>> {
    let most_teams = p.multiprocessors.min(p.shape.group_count());
    threads.iter().flat_map(move |&threads| {
        let of = Steps::new(p, threads, arrays);
        // Smaller teams hold no group that larger ones do not hold.
        (1..=most_teams).map_while(move |teams| of.grid_teams(teams, step))
    })
}

pub(in super::super) fn forward(p: &ChannelProblem) -> Answer<Choice> {
    p.group_vectors()?;
    p.needs_capability(90)?;
    let serves = !p.is_general() || p.adds_residual();
    needs(serves, "it takes no activation but relu and silu, and a residual of BatchNorm with at most relu")?;
    let clusters = in_clusters(p, 1);
    if let (false, Ok(one)) = (p.is_pinned, single::forward(p)) {
        let are_faster = clusters.is_some_and(|many| many.are_faster_than(&one.choice));
        needs(are_faster, "the form single is faster")?;
    }
    let grid = if p.has_extra { &RESIDUAL_GRID } else { &GRID };
    let by_grid = match clusters {
        Some(clusters) if clusters.blocks <= grid.clusters => None,
        clusters => forward_in_grid(p, grid, clusters.map(|clusters| clusters.rounds), false),
    };
    let by_clusters = || clusters.map(|clusters| clusters.choice(sys::BOPS_NORM_CLUSTER, 0));
    let always = || p.is_pinned.then(|| forward_in_grid(p, grid, None, true)).flatten();
    let choice = by_grid.or_else(by_clusters).or_else(always).ok_or_else(|| p.no_room(NO_ROOM_OR_SPLIT))?;
    let workspace_bytes = p.running_bytes() + message_bytes(choice.team, choice.blocks, MESSAGE_BYTES);
    Ok(Chosen { choice, workspace_bytes, launches: 1 + p.running_launches() })
}

/// Groups that any number of blocks share, if that is predicted to be faster; if `always`, whenever they hold a group. cluster_rounds: the groups
/// that a cluster takes one after another, if clusters hold a group.
fn forward_in_grid(p: &ChannelProblem, grid: &Grid, cluster_rounds: Option<u64>, always: bool) -> Option<Choice> {
    let bytes = p.shape.group_segments() * p.segment_vectors() * 16;
    // The rounds of clusters, if those may be faster.
    let rival_rounds = cluster_rounds.filter(|_| bytes < GRID_GROUP_BYTES && !p.has_extra);
    let is_lone = cluster_rounds.is_none() && bytes <= LONE_GROUP_BYTES && !p.has_extra;
    let is_little = p.shape.group_count() * bytes < GRID_BYTES && !is_lone;
    if (is_little || rival_rounds.is_some_and(|rounds| rounds > GRID_ROUNDS)) && !always {
        return None;
    }
    let is_exponential = p.activation == Activation::Silu;
    let turn = match p.element_bytes {
        2 if p.has_extra => TURN_OF_RESIDUAL,
        _ if is_exponential => TURN_OF_EXPONENTIALS,
        2 => TURN_OF_2_BYTES,
        _ => TURN_OF_4_BYTES,
    };
    let instructions = if is_exponential { STEP_COST_OF_EXPONENTIALS } else { STEP_COST };
    let candidates = in_grid(p, 1, grid.threads, instructions).filter(|teams| p.is_even(teams.of.threads));
    let costs = candidates.filter_map(|teams| {
        let missing = teams.missing_bytes(AHEAD_BYTES);
        let is_starved = missing > MISSING_BYTES && !always;
        let has_rival = rival_rounds.is_some_and(|rounds| teams.rounds > rounds);
        let of_group = teams.time + missing + turn + teams.steps * GRID_STEP;
        (!is_starved && !has_rival).then_some((teams.grid_time(of_group), teams))
    });
    let Some((_, teams)) = least(costs) else { return overflowing_forward(p, always) };
    let has_little_room = 2 * teams.steps > teams.places && !is_exponential && !p.has_extra;
    let arriving_bytes = if has_little_room { ARRIVING_BYTES_IN_LITTLE_ROOM } else { ARRIVING_BYTES };
    Some(teams.choice(sys::BOPS_NORM_GRID, arriving_bytes))
}

/// Groups that are more than all SMs hold, if that is predicted to be faster than other forms; if `always`, whenever it serves.
fn overflowing_forward(p: &ChannelProblem, always: bool) -> Option<Choice> {
    if p.has_extra {
        return None;
    }
    let candidates = OVERFLOWING_THREADS.into_iter().filter(|&threads| p.is_even(threads)).filter_map(|threads| {
        let of = Steps::new(p, threads, 1);
        let blocks = of.grid_team(1);
        let (steps, places) = (of.all.div_ceil(blocks), of.places(p.shape.group_segments()));
        // One place more than there are steps that stay.
        let staying = places.checked_sub(2 * OVERFLOWING_PLACES + 1).filter(|&staying| staying > 0)?;
        let repeated = steps.checked_sub(staying).filter(|&repeated| repeated > 0)?;
        let all_bytes = repeated * of.place_bytes() * p.multiprocessors;
        let arriving_bytes = ARRIVING_BYTES.min((staying + 1) * of.place_bytes());
        let teams = Teams { of, blocks, teams: 1, rounds: p.shape.group_count(), steps, places, time: 0, bytes: 0 };
        let choice = Choice {
            repeated_steps: word(repeated),
            repeated_places: word(OVERFLOWING_PLACES),
            ..teams.choice(sys::BOPS_NORM_GRID, arriving_bytes)
        };
        (all_bytes <= OVERFLOWING_BYTES || always).then_some((steps * of.place_bytes(), choice))
    });
    least(candidates).map(|(_, choice)| choice)
}

/// The gradients of BatchNorm.
pub(in super::super) fn backward(p: &ChannelProblem) -> Answer<BackwardChoice> {
    p.group_vectors()?;
    p.needs_capability(90)?;
    needs(p.shape.groups == 0, "every sample has statistics of its own")?;
    needs(!p.is_general(), "it takes no activation but relu and silu, and no residual or y")?;
    let by_clusters = || -> Result<BackwardChoice, Reason> {
        let held = held::in_clusters(p).filter(|_| !p.is_pinned);
        needs(held.is_none_or(|(_, held)| held.team_blocks >= HELD_CLUSTER), "the form held is faster")?;
        let clusters = in_clusters(p, 2).ok_or_else(|| p.no_room(NO_ROOM))?;
        Ok(clusters.backward_choice(sys::BOPS_NORM_CLUSTER, 0))
    };
    let always = |why: Reason| p.is_pinned.then(|| backward_in_grid(p, true)).flatten().ok_or(why);
    let choice = backward_in_grid(p, false).map_or_else(|| by_clusters().or_else(always), Ok)?;
    let workspace_bytes = message_bytes(choice.team, choice.blocks, MESSAGE_BYTES);
    Ok(Chosen { workspace_bytes, ..Chosen::alone(choice) })
}

/// Channels that any number of blocks share, if that is predicted to be faster than clusters; if `always`, whenever they hold a channel.
fn backward_in_grid(p: &ChannelProblem, always: bool) -> Option<BackwardChoice> {
    let bytes = p.shape.group_segments() * p.segment_vectors() * 32;
    let is_large = bytes >= BACKWARD_GRID_GROUP_BYTES && p.shape.group_count() * bytes >= READ_TWICE_BYTES;
    if !p.is_at_most_relu() || !is_large && !always {
        return None;
    }
    // Instructions of a step are not counted: with at most a ReLU memory takes longer. Bytes that are missing under way count half.
    let costs = in_grid(p, 2, &BACKWARD_GRID_THREADS, 0).filter_map(|teams| {
        let missing = teams.missing_bytes(BACKWARD_AHEAD_BYTES);
        let is_starved = missing > BACKWARD_MISSING_BYTES && !always;
        (!is_starved).then_some((teams.grid_time(teams.time + missing / 2 + BACKWARD_TURN), teams))
    });
    least(costs).map(|(_, teams)| teams.backward_choice(sys::BOPS_NORM_GRID, ARRIVING_BYTES))
}
