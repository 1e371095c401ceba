//! Groups on chip that some warps add up while others write the one before.

use baracuda_ops_sys as sys;

use super::walk::{
    ARRIVING_BYTES, ARRIVING_BYTES_IN_LITTLE_ROOM, MESSAGES, MOST_PLACES, MOST_TEAM_BLOCKS, READ_TWICE_BYTES,
};
use super::{Answer, ChannelProblem, Chosen, RESERVED_SHARED, held, needs, single};
use crate::error::Reason;
use crate::narrow::{grid, to_usize, word};
use crate::ops::activation::Activation;

pub(super) type Choice = sys::bops_channel_norm_relay_choice;
pub(super) type BackwardChoice = sys::bops_channel_norm_backward_relay_choice;

/// Threads that write; a block has as many more that add up. The fewest that keep up with memory, the most, and the most if a further warp fetches a
/// residual.
const LEAST_THREADS: u64 = 224;
const MOST_THREADS: u64 = 416;
const MOST_RESIDUAL_THREADS: u64 = 384;
/// Threads that write if they compute exponentials, forward: the fewest and the most. Half as many add up.
const LEAST_EXPONENTIAL_THREADS: u64 = 256;
const MOST_EXPONENTIAL_THREADS: u64 = 512;
/// In long segments the threads that compute exponentials are a multiple of this, so that each of the four SM sub-partitions gets as many warps.
const EVEN_THREADS: u64 = 4 * 32;
/// Vectors of a thread in a step.
const VECTORS: u64 = 2;
/// Bytes of the places for a residual.
const RESIDUAL_BYTES: u64 = 32 << 10;
/// Without a residual: bytes of a group in one block from which on clusters that walk over groups are faster than those of `single`, which take one
/// group each.
const LEAST_BYTES: u64 = 64 << 10;
/// With a residual: bytes of a group in one block from which on clusters that walk over groups are faster than those of `single`.
const LEAST_RESIDUAL_BYTES: u64 = 48 << 10;
/// Backward: blocks of a cluster of `held` from which on clusters of this form are faster.
const HELD_CLUSTER: u32 = 4;
/// Bytes under way beyond the group that hide the exchange of a team's sums.
const AHEAD_BYTES: u64 = 96 << 10;
/// What a group costs in a cluster beyond its bytes. In bytes.
const GROUP_COST: u64 = 12 << 10;
/// What the instructions of a step cost for each tensor and each element of a vector. In bytes.
const STEP_COST: u64 = 1 << 10;

/// Forward in a grid.
struct Grid {
    /// Threads that write, of which all numbers are tried, without a residual.
    threads: &'static [u64],
    /// Threads that write, of which all numbers are tried, with a residual.
    residual_threads: &'static [u64],
    /// Blocks of the largest clusters that are faster, without a residual: clusters of 16 leave an eighth of the multiprocessors without work.
    clusters: u32,
    /// Blocks of the largest clusters that are faster, with a residual: clusters of 4 and 8 leave some multiprocessors without work.
    residual_clusters: u32,
    /// Bytes of x from which a grid is faster than reading x twice, and than clusters that leave multiprocessors without work.
    least_bytes: u64,
    /// Bytes of the largest groups without room in a cluster that a grid takes even if all of them have fewer bytes: of larger ones no figures are known.
    lone_group_bytes: u64,
    /// Bytes of a group from which a grid is faster in any case: a cluster of 8 has no room for them.
    group_bytes: u64,
    /// A grid takes smaller groups if clusters take at most so many of them one after another, and teams of the grid no more than that.
    rounds: u64,
    /// What a group costs beyond its bytes, by the bytes of an element. In bytes.
    turn_of_4_bytes: u64,
    turn_of_2_bytes: u64,
    /// What a group costs beyond its bytes through an activation with exponentials. In bytes.
    turn_of_exponentials: u64,
    /// What a group of 2-byte elements costs beyond its bytes with a residual. In bytes.
    turn_of_residual: u64,
    /// What a step costs beyond its bytes. In bytes.
    step: u64,
}
const GRID: Grid = Grid {
    threads: &[224, 256, 320, 352, 384],
    residual_threads: &[224, 256, 288, 320, 352, 384],
    clusters: 8,
    residual_clusters: 2,
    least_bytes: 32 << 20,
    lone_group_bytes: 4608 << 10,
    group_bytes: 1792 << 10,
    rounds: 5,
    turn_of_4_bytes: 4 << 10,
    turn_of_2_bytes: 12 << 10,
    turn_of_exponentials: 32 << 10,
    turn_of_residual: 32 << 10,
    step: 1 << 10,
};

/// Forward in a grid whose multiprocessors do not hold a group: some steps are fetched twice.
struct Overflowing {
    /// Threads that write, the preferred number first.
    threads: [u64; 3],
    /// Places for each of the two readings of the steps that are fetched twice.
    places: u64,
    /// The most bytes of the steps that are fetched twice, on all multiprocessors: the L2 has to keep them for two groups.
    most_bytes: u64,
}
const OVERFLOWING: Overflowing = Overflowing { threads: [320, 256, 224], places: 2, most_bytes: 28 << 20 };

/// Backward in a grid.
struct BackwardGrid {
    /// Threads that write.
    threads: [u64; 4],
    /// Bytes of dy and x in a group from which a cluster's blocks have no room for the following one.
    group_bytes: u64,
    /// Bytes under way beyond the group that hide the exchange of a team's sums.
    ahead_bytes: u64,
    /// How many of those bytes may be missing.
    most_missing_bytes: u64,
    /// What a group costs beyond its bytes. In bytes.
    turn: u64,
}
const BACKWARD_GRID: BackwardGrid = BackwardGrid {
    threads: [160, 224, 256, 320],
    group_bytes: 2 << 20,
    ahead_bytes: 136 << 10,
    most_missing_bytes: 48 << 10,
    turn: 8 << 10,
};

/// How blocks with two teams of threads, one that adds up and one that writes, take a group.
#[derive(Clone, Copy)]
struct Steps {
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

/// What one of the blocks that share a group takes of it.
struct Share {
    /// Steps, and places for them.
    steps: u64,
    places: u64,
    /// Bytes that the block reads and writes, averaged over the multiprocessors, or its instructions if those take longer. In bytes.
    time: u64,
    /// How many fewer bytes are under way than would hide the exchange of sums.
    missing: u64,
    /// Bytes of the group.
    bytes: u64,
}

impl Steps {
    fn new(p: &ChannelProblem, threads: u64, arrays: u64) -> Self {
        let (vectors, places) = (p.segment_vectors(), threads * VECTORS);
        let (segments, of_segment) = ((places / vectors).max(1), vectors.div_ceil(places));
        let residual_places = if arrays == 1 && p.has_extra { RESIDUAL_BYTES.div_ceil(places * 16) } else { 0 };
        let all = p.shape.group_segments().div_ceil(segments) * of_segment;
        Self { threads, segments, of_segment, all, residual_places }
    }

    /// What a block takes of a group of `group` vectors if there are `blocks` blocks in all, `team` for each group. step: what the instructions of
    /// one step cost.
    fn share(&self, p: &ChannelProblem, group: u64, arrays: u64, team: u64, blocks: u64, step: u64) -> Option<Share> {
        let steps = self.all.div_ceil(team);
        let parameters = if p.shape.groups == 0 { 1 } else { ((steps - 1) / self.of_segment + 2) * self.segments };
        let room = u64::from(p.shared_bytes).saturating_sub(RESERVED_SHARED + parameters * 16);
        let place_bytes = self.threads * VECTORS * 16 * arrays;
        let places = (room / place_bytes).min(MOST_PLACES).saturating_sub(self.residual_places);
        if steps >= places {
            return None;
        }
        let bytes = group * 16 * arrays * steps / self.all;
        let passes = arrays + 1 + u64::from(self.residual_places > 0);
        let moved = bytes * passes / arrays * blocks / u64::from(p.multiprocessors);
        let instructions = steps * (arrays + 1) * step * u64::from(16 / p.element_bytes);
        let missing = AHEAD_BYTES.saturating_sub((places - steps + self.residual_places) * place_bytes);
        Some(Share { steps, places, time: moved.max(instructions), missing, bytes })
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

    /// Blocks of the smallest team that takes a group in as few steps as a team with its share of the multiprocessors does.
    fn grid_team(&self, steps: &Steps, teams: u64) -> u64 {
        let most = (u64::from(self.multiprocessors) / teams).min(MOST_TEAM_BLOCKS).min(steps.all);
        steps.all.div_ceil(steps.all.div_ceil(most))
    }
}

/// Threads that write, most first.
fn cluster_threads(p: &ChannelProblem, arrays: u64) -> impl Iterator<Item = u64> {
    let (fewest, most, step) = match arrays == 1 && p.activation == Activation::Silu {
        false if arrays == 1 && p.has_extra => (LEAST_THREADS, MOST_RESIDUAL_THREADS, 32),
        false => (LEAST_THREADS, MOST_THREADS, 32),
        true if p.has_long_segments() => (LEAST_EXPONENTIAL_THREADS, MOST_EXPONENTIAL_THREADS, EVEN_THREADS),
        true => (LEAST_EXPONENTIAL_THREADS, MOST_EXPONENTIAL_THREADS, 64),
    };
    (fewest..=most).rev().step_by(to_usize(step))
}

/// What clusters of one size would do.
struct Clusters {
    steps: Steps,
    share: Share,
    /// Blocks of a cluster, clusters, and groups that one takes one after another.
    blocks: u64,
    teams: u64,
    rounds: u64,
}

/// The threads and the cluster with the least predicted time, if any cluster holds a group of `group` vectors. `arrays`: tensors on chip, which are x,
/// or dy and x.
fn in_clusters(p: &ChannelProblem, group: u64, arrays: u64) -> Option<Clusters> {
    let groups = p.shape.group_count();
    let mut best: Option<(u64, Clusters)> = None;
    for threads in cluster_threads(p, arrays) {
        let steps = Steps::new(p, threads, arrays);
        for blocks in p.clusters().filter(|&cluster| cluster <= steps.all) {
            let teams = p.resident_clusters(blocks, 1).min(groups);
            let Some(share) = steps.share(p, group, arrays, blocks, teams * blocks, STEP_COST) else { continue };
            let rounds = groups.div_ceil(teams);
            let cost = rounds * (share.time + share.missing + GROUP_COST);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, Clusters { steps, share, blocks, teams, rounds }));
            }
        }
    }
    best.map(|(_, clusters)| clusters)
}

impl Clusters {
    /// Whether they are faster than teams that take one group each.
    fn are_faster_than(&self, one: &single::Choice, p: &ChannelProblem) -> bool {
        match p.adds_residual() {
            true => {
                let blocks = self.teams * self.blocks;
                self.share.bytes >= LEAST_RESIDUAL_BYTES && blocks >= u64::from(p.multiprocessors / 4 * 3)
            }
            false => {
                let are_clusters = one.cluster_blocks > 1 && one.stagger_cycles == 0;
                are_clusters && self.share.bytes >= LEAST_BYTES && self.rounds > 1
            }
        }
    }

    fn choice(&self) -> Option<Choice> {
        Some(Choice {
            overlaps: u32::from(self.rounds == 1),
            ..choice(&self.steps, &self.share, sys::BOPS_NORM_CLUSTER, self.blocks, self.teams)?
        })
    }
}

fn choice(steps: &Steps, share: &Share, team: sys::bops_norm_team, team_blocks: u64, teams: u64) -> Option<Choice> {
    Some(Choice {
        team,
        team_blocks: word(team_blocks),
        steps: word(share.steps),
        places: word(share.places + steps.residual_places),
        residual_places: word(steps.residual_places),
        repeated_steps: 0,
        repeated_places: 0,
        arriving_places: 0,
        threads: word(steps.threads),
        blocks: grid(teams * team_blocks)?,
        overlaps: 1,
    })
}

pub(in super::super) fn forward(p: &ChannelProblem) -> Answer<Choice> {
    let group = p.group_vectors()?;
    p.needs_capability(90)?;
    let serves = !p.is_general() || p.adds_residual();
    needs(serves, "it takes no activation but relu and silu, and a residual of BatchNorm with at most relu")?;
    let clusters = in_clusters(p, group, 1);
    if let (false, Ok(one)) = (p.is_pinned, single::forward(p)) {
        let are_faster = clusters.as_ref().is_some_and(|many| many.are_faster_than(&one.choice, p));
        needs(are_faster, "the form single is faster")?;
    }
    let most = u64::from(if p.adds_residual() { GRID.residual_clusters } else { GRID.clusters });
    let in_grid = match &clusters {
        Some(clusters) if clusters.blocks <= most => None,
        clusters => forward_in_grid(p, group, clusters.as_ref().map(|clusters| clusters.rounds), false),
    };
    let always = || p.is_pinned.then(|| forward_in_grid(p, group, None, true)).flatten();
    let no_room =
        || if p.is_pinned { p.too_large() } else { "a group has no room on chip, or the form split is faster".into() };
    let choice = in_grid.or_else(|| clusters?.choice()).or_else(always).ok_or_else(no_room)?;
    let messages = if choice.team == sys::BOPS_NORM_GRID { u64::from(choice.blocks) * MESSAGES * 16 } else { 0 };
    let workspace_bytes = p.running_bytes() + messages;
    Ok(Chosen { choice, workspace_bytes, launches: 1 + p.running_launches() })
}

/// Groups that any number of blocks share, if that is predicted to be faster; if `always`, whenever they hold a group. cluster_rounds: the groups
/// that a cluster takes one after another, if clusters hold a group.
fn forward_in_grid(p: &ChannelProblem, group: u64, cluster_rounds: Option<u64>, always: bool) -> Option<Choice> {
    let (groups, multiprocessors) = (p.shape.group_count(), u64::from(p.multiprocessors));
    let (bytes, all_bytes) = (group * 16, groups * group * 16);
    // The rounds of clusters, if those may be faster.
    let rival_rounds = cluster_rounds.filter(|_| bytes < GRID.group_bytes && !p.has_extra);
    let is_lone = cluster_rounds.is_none() && bytes <= GRID.lone_group_bytes && !p.has_extra;
    let is_slower = rival_rounds.is_some_and(|rounds| rounds > GRID.rounds) || all_bytes < GRID.least_bytes && !is_lone;
    if is_slower && !always {
        return None;
    }
    let is_exponential = p.activation == Activation::Silu;
    let turn = match p.element_bytes {
        2 if p.has_extra => GRID.turn_of_residual,
        _ if is_exponential => GRID.turn_of_exponentials,
        2 => GRID.turn_of_2_bytes,
        _ => GRID.turn_of_4_bytes,
    };
    let instructions = if is_exponential { 2 * STEP_COST } else { STEP_COST };
    let mut best: Option<(u64, Choice)> = None;
    let threads = if p.has_extra { GRID.residual_threads } else { GRID.threads };
    for &threads in threads.iter().filter(|&&threads| p.is_even(threads)) {
        let steps = Steps::new(p, threads, 1);
        for teams in 1..=multiprocessors.min(groups) {
            let team = p.grid_team(&steps, teams);
            let Some(share) = steps.share(p, group, 1, team, teams * team, instructions) else {
                break; // nor do smaller teams hold their groups
            };
            let ahead = share.places - share.steps + steps.residual_places;
            let missing = AHEAD_BYTES.saturating_sub(ahead * (share.bytes / share.steps));
            let own = share.time + missing + turn + share.steps * GRID.step;
            if rival_rounds.is_some_and(|rounds| groups.div_ceil(teams) > rounds) {
                continue;
            }
            // The first group is not written while it is read, and while the last one is written no group is read.
            let cost = groups.div_ceil(teams) * own + 2 * share.bytes;
            let is_starved = missing > AHEAD_BYTES / 2 && !always;
            if is_starved || best.is_some_and(|(least, _)| least <= cost) {
                continue;
            }
            let has_little_room = 2 * share.steps > share.places && !is_exponential && !p.has_extra;
            let arriving = if has_little_room { ARRIVING_BYTES_IN_LITTLE_ROOM } else { ARRIVING_BYTES };
            let choice = Choice {
                arriving_places: word(arriving / (threads * VECTORS * 16)),
                ..choice(&steps, &share, sys::BOPS_NORM_GRID, team, teams)?
            };
            best = Some((cost, choice));
        }
    }
    best.map(|(_, choice)| choice).or_else(|| overflowing_forward(p, group, always))
}

/// Groups that are more than all multiprocessors hold, if that is predicted to be faster than other forms; if `always`, whenever it serves.
fn overflowing_forward(p: &ChannelProblem, group: u64, always: bool) -> Option<Choice> {
    if p.has_extra {
        return None;
    }
    let multiprocessors = u64::from(p.multiprocessors);
    let mut best: Option<(u64, Choice)> = None;
    for threads in OVERFLOWING.threads.into_iter().filter(|&threads| p.is_even(threads)) {
        let steps = Steps::new(p, threads, 1);
        let team = p.grid_team(&steps, 1);
        let own = steps.all.div_ceil(team);
        let parameters = if p.shape.groups == 0 { 1 } else { p.shape.group_segments() };
        let place_bytes = threads * VECTORS * 16;
        let room = u64::from(p.shared_bytes).saturating_sub(RESERVED_SHARED + parameters * 16);
        let places = (room / place_bytes).min(MOST_PLACES);
        // One place more than there are steps that stay.
        let Some(staying) = places.checked_sub(2 * OVERFLOWING.places + 1).filter(|&staying| staying > 0) else {
            continue;
        };
        let Some(repeated) = own.checked_sub(staying).filter(|&repeated| repeated > 0) else { continue };
        let cost = own * place_bytes;
        let is_too_much = repeated * place_bytes * multiprocessors > OVERFLOWING.most_bytes && !always;
        if is_too_much || best.is_some_and(|(least, _)| least <= cost) {
            continue;
        }
        let share = Share { steps: own, places, time: 0, missing: 0, bytes: group * 16 };
        let choice = Choice {
            repeated_steps: word(repeated),
            repeated_places: word(OVERFLOWING.places),
            arriving_places: word((ARRIVING_BYTES / place_bytes).min(staying + 1)),
            ..choice(&steps, &share, sys::BOPS_NORM_GRID, team, 1)?
        };
        best = Some((cost, choice));
    }
    best.map(|(_, choice)| choice)
}

/// The gradients of BatchNorm.
pub(in super::super) fn backward(p: &ChannelProblem) -> Answer<BackwardChoice> {
    let group = p.group_vectors()?;
    p.needs_capability(90)?;
    needs(p.shape.groups == 0, "every sample has statistics of its own")?;
    needs(!p.is_general(), "it takes no activation but relu and silu, and no residual or y")?;
    let by_clusters = || -> Result<BackwardChoice, Reason> {
        let held = held::in_clusters(p).filter(|_| !p.is_pinned);
        needs(held.is_none_or(|(_, held)| held.team_blocks >= HELD_CLUSTER), "the form held is faster")?;
        let clusters = in_clusters(p, group, 2).ok_or_else(|| p.too_large())?;
        let choice = backward_choice(&clusters.share, &clusters.steps, clusters.blocks, clusters.teams);
        choice
            .map(|choice| BackwardChoice { overlaps: u32::from(clusters.rounds == 1), ..choice })
            .ok_or_else(|| p.too_large())
    };
    let choice = match backward_in_grid(p, group, false) {
        Some(choice) => choice,
        None => match by_clusters() {
            Err(_) if p.is_pinned => backward_in_grid(p, group, true).ok_or_else(|| p.too_large())?,
            by_clusters => by_clusters?,
        },
    };
    let messages = if choice.team == sys::BOPS_NORM_GRID { u64::from(choice.blocks) * MESSAGES * 16 } else { 0 };
    Ok(Chosen { choice, workspace_bytes: messages, launches: 1 })
}

fn backward_choice(share: &Share, steps: &Steps, team_blocks: u64, teams: u64) -> Option<BackwardChoice> {
    Some(BackwardChoice {
        team: sys::BOPS_NORM_CLUSTER,
        team_blocks: word(team_blocks),
        steps: word(share.steps),
        places: word(share.places),
        arriving_places: 0,
        threads: word(steps.threads),
        blocks: grid(teams * team_blocks)?,
        overlaps: 1,
    })
}

/// Channels that any number of blocks share, if that is predicted to be faster than clusters; if `always`, whenever they hold a channel.
fn backward_in_grid(p: &ChannelProblem, group: u64, always: bool) -> Option<BackwardChoice> {
    let (groups, multiprocessors) = (p.shape.group_count(), u64::from(p.multiprocessors));
    let bytes = group * 32;
    let is_large = bytes >= BACKWARD_GRID.group_bytes && groups * bytes >= READ_TWICE_BYTES;
    if !p.is_at_most_relu() || !is_large && !always {
        return None;
    }
    let mut best: Option<(u64, BackwardChoice)> = None;
    for threads in BACKWARD_GRID.threads {
        let steps = Steps::new(p, threads, 2);
        for teams in 1..=multiprocessors.min(groups) {
            let team = p.grid_team(&steps, teams);
            let Some(share) = steps.share(p, group, 2, team, teams * team, 0) else {
                break; // nor do smaller teams hold their groups
            };
            let ahead = (share.places - share.steps) * (share.bytes / share.steps);
            let missing = BACKWARD_GRID.ahead_bytes.saturating_sub(ahead);
            // The first group is not written while it is read, and while the last one is written no group is read.
            let cost = groups.div_ceil(teams) * (share.time + missing / 2 + BACKWARD_GRID.turn) + 2 * share.bytes;
            let is_starved = missing > BACKWARD_GRID.most_missing_bytes && !always;
            if is_starved || best.is_some_and(|(least, _)| least <= cost) {
                continue;
            }
            let choice = BackwardChoice {
                team: sys::BOPS_NORM_GRID,
                arriving_places: word(ARRIVING_BYTES / (threads * VECTORS * 32)),
                ..backward_choice(&share, &steps, team, teams)?
            };
            best = Some((cost, choice));
        }
    }
    best.map(|(_, choice)| choice)
}
