//! Rows in the registers of clusters, or of all SMs.

use std::cmp::Reverse;

use baracuda_ops_sys as sys;

use super::{Answer, BUSY, ChannelProblem, Chosen, Clustered, Rows, gcd, least, needs};
use crate::narrow::{to_usize, word};

pub(in super::super) type Choice = sys::bops_channels_last_norm_rows_choice;

/// How many rows of a thread the registers hold if a block has so many threads: 640 leave a thread 96 registers, 480 leave it 136, and 320 leave it 200. A
/// row takes 4 of them, backward 8.
struct Registers {
    threads: u64,
    rows: u64,
}
/// Of the kernels that run in clusters.
const IN_CLUSTERS: [Registers; 2] = [Registers { threads: 640, rows: 4 }, Registers { threads: 480, rows: 8 }];
/// Of the kernels that run in a grid.
const IN_GRID: [Registers; 2] = [Registers { threads: 640, rows: 4 }, Registers { threads: 320, rows: 8 }];
/// The number of rows that a block reads side by side is a multiple of this: backward, a thread adds up its columns in four chains (`sum_lanes`).
const LANE_STEP: u64 = 4;
/// Above this many rows side by side, their number is a multiple of it: `rows_part`, the values of a column that one thread adds up backward. Of a
/// multiple, all threads that add up have as many.
const WHOLE_LANES: u64 = 16;
/// Vectors that the channels of a group may lie in, forward. One warp merges a group, vector after vector, so that more would take longer; with
/// fewer, other forms would serve more groups.
const GROUP_VECTORS: u64 = 16;
/// Channels of a tile, at most.
const MOST_CHANNELS: u64 = 512;
/// Rows of a thread that serve best.
const WANTED_ROWS: u64 = 4;
/// Samples of a grid, which are its last dimension.
const MOST_SAMPLES: u64 = 65_535;
/// The share of the SMs that at least have a block.
const LEAST_BUSY: f64 = 0.6;
/// In a grid: threads of a block, at least.
const LEAST_THREADS: u64 = 128;
/// In a grid: rows that a block reads side by side, at most.
const MOST_LANES: u64 = 32;
/// In a grid: bytes of the narrowest tile that is not a whole row.
const TILE_BYTES: u64 = 128;
/// Quads of columns of sums that one block of a grid merges, at most: one for each lane of a warp.
const QUADS: u64 = 32;
/// Channels whose sums one block of a grid merges, at most: a channel has two sums.
const MERGED_CHANNELS: u64 = QUADS * 4 / 2;

pub(in super::super) fn forward(p: &ChannelProblem) -> Answer<Choice> {
    let rows = Rows::forward(p)?.on_chip()?;
    rows.check_groups()?;
    rows.check_clusters()?;
    let (group_channels, _) = rows.tile_unit();
    needs(group_channels <= (GROUP_VECTORS - 1) * rows.width, "a group lies in more than 16 vectors")?;
    rows.in_clusters(1).map(|(_, chosen)| chosen).ok_or_else(|| rows.too_large())
}

/// The gradients from dy and x alone: in clusters of the blocks of all samples or, if these would leave many SMs without work, in a grid.
pub(in super::super) fn backward(p: &ChannelProblem) -> Answer<Choice> {
    let rows = Rows::backward(p)?.on_chip()?;
    rows.check_groups()?;
    needs(p.is_plain(), "it writes dx, and takes no activation and no residual")?;
    p.needs_capability(80)?;
    let clusters = rows.check_clusters().ok().and_then(|()| rows.in_clusters(rows.samples));
    let is_fast = |(blocks, found): &(u64, Chosen<Choice>)| {
        let is_busy = *blocks as f64 >= LEAST_BUSY * p.multiprocessors as f64;
        is_busy && u64::from(found.choice.thread_rows) <= WANTED_ROWS
    };
    let found = match clusters {
        Some(clusters) if is_fast(&clusters) => Some(clusters.1),
        clusters => rows.in_grid().or(clusters.map(|(_, chosen)| chosen)),
    };
    found.ok_or_else(|| rows.too_large())
}

impl Rows<'_> {
    fn check_groups(&self) -> Result<(), crate::error::Reason> {
        needs(self.has_long_groups(), "it serves groups of channels, of which no three have channels in one vector")
    }

    /// Rows that the blocks of a cluster share; a cluster has the blocks of `together` samples. Of the clusters that are all resident at once, no two
    /// blocks on one SM, takes those with the most blocks, and of these those with the widest tile. Returns the number of blocks, too.
    fn in_clusters(&self, together: u64) -> Option<(u64, Chosen<Choice>)> {
        let best = self.best(|may_take_turns| {
            let may_take_turns = may_take_turns && self.samples <= MOST_SAMPLES;
            self.clustered(MOST_CHANNELS, together).filter_map(move |tile| {
                let Clustered { channels, cluster, chunk_rows, clusters, .. } = tile;
                let vectors = channels / self.width;
                let step = LANE_STEP.max(32 / gcd(vectors, 32));
                let in_registers = |registers: &Registers| {
                    let lanes = chunk_rows.div_ceil(registers.rows).next_multiple_of(step);
                    let whole = if lanes > WHOLE_LANES { WHOLE_LANES } else { 1 };
                    let threads = lanes.next_multiple_of(whole) * vectors;
                    (threads <= registers.threads).then_some((threads, registers.rows))
                };
                let found = IN_CLUSTERS.iter().find_map(in_registers)?;
                let are_resident = clusters <= self.p.resident_clusters(cluster, 1);
                (are_resident || may_take_turns).then_some((Reverse((clusters * cluster, vectors)), (tile, found)))
            })
        });
        let ((blocks, vectors), (tile, (threads, rows))) = best?;
        let choice = Choice {
            tile_vectors: word(vectors),
            chunks: self.chunks(tile.chunks)?,
            cluster_blocks: word(tile.cluster),
            threads: word(threads),
            thread_rows: word(rows),
            overlaps: 1,
        };
        Some((blocks, Chosen::alone(choice)))
    }

    /// A block for every tile and chunk, all resident at once. Of the numbers of blocks that suffice, takes the one with the narrowest tile, for
    /// which sums of the fewest channels are exchanged.
    fn in_grid(&self) -> Option<Chosen<Choice>> {
        let (p, shape) = (self.p, &self.p.shape);
        let blocks = p.multiprocessors;
        let candidates = self.tiles(MOST_CHANNELS, TILE_BYTES).flat_map(|channels| {
            let (tile, tiles) = (channels / self.width, shape.channels / channels);
            let units = self.samples * tiles;
            (LANE_STEP..=MOST_LANES).step_by(to_usize(LANE_STEP)).filter_map(move |lanes| {
                let threads = tile * lanes;
                if units > blocks || threads < LEAST_THREADS || !threads.is_multiple_of(32) {
                    return None;
                }
                let chunks = self.even_chunks((blocks / units).min(self.rows.div_ceil(lanes)));
                let rows = self.rows.div_ceil(chunks).div_ceil(lanes).next_power_of_two();
                let all = units * chunks;
                let fits = IN_GRID.iter().any(|registers| threads <= registers.threads && rows <= registers.rows);
                let is_busy = p.is_pinned || (all as f64) >= LEAST_BUSY * blocks as f64;
                let has_mergers = all / tiles * MERGED_CHANNELS >= channels;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a part of the blocks of a device"
                )]
                let enough = all.min((BUSY * blocks as f64) as u64);
                let rank = (Reverse(enough), tile, rows.abs_diff(WANTED_ROWS), threads);
                (fits && is_busy && has_mergers).then_some((rank, (tile, chunks, threads, rows)))
            })
        });
        let (_, (tile, chunks, threads, rows)) = least(candidates)?;
        let choice = Choice {
            tile_vectors: word(tile),
            chunks: self.chunks(chunks)?,
            cluster_blocks: 0,
            threads: word(threads),
            thread_rows: word(rows),
            overlaps: u32::from(p.capability >= 90),
        };
        // Two sums of a group for each chunk, which are read in quads: `message_pitch` of channels_last_norm_backward_rows.cuh.
        let workspace_bytes = self.workspace_bytes(chunks, 2 * chunks.next_multiple_of(4)).ok()?;
        Some(Chosen { workspace_bytes, ..Chosen::alone(choice) })
    }
}
