//! Tiles in the shared memory of clusters.

use std::cmp::Reverse;

use baracuda_ops_sys as sys;

use super::{Answer, ChannelProblem, Chosen, Clustered, Rows, THREADS, gcd, needs, slabs};
use crate::narrow::{grid, signed, word};

pub(in super::super) type Choice = sys::bops_channels_last_norm_cluster_choice;

/// Channels of the widest tile.
const MOST_CHANNELS: u64 = 256;
/// Bytes of the channels of a tile, at most, unless a group is wider.
const MOST_TILE_BYTES: u64 = 256;
/// Rows of a thread that the threads of a block are chosen for.
const WANTED_ROWS: u64 = 8;
/// Blocks of fewer threads have half of `WANTED_ROWS` a thread.
const FEW_THREADS: u64 = 160;
/// The most rows of a thread: forward, the copies of all of them are asked for at once, and while the first four rows are added up those of 24 are in
/// flight. `copy_wait_groups` leaves at most 27 in flight; it would wait for all copies if a thread had 32 rows.
const MOST_ROWS: u64 = 28;
/// Rows of a thread up to which forward with groups prefers clusters to slabs.
const SLAB_ROWS: u64 = 16;
/// Bytes of x in a block of a cluster up to which two of them share an SM.
const PAIR_BYTES: u64 = 12 << 10;
/// The most bytes of x in a block that takes a tile alone, if there are more such blocks than are resident at once: then two share an SM.
const TURN_BYTES: u64 = 64 << 10;
/// Bytes of the narrowest tile that is not a whole row, if there are more blocks than are resident at once.
const TURN_TILE_BYTES: u64 = 128;
/// Shared memory that the forward kernels declare themselves, in bytes.
const FORWARD_SHARED_BYTES: u64 = 3584;
/// Shared memory that the backward kernels declare themselves, in bytes.
const BACKWARD_SHARED_BYTES: u64 = 7680;

/// A block of a cluster.
struct Block {
    threads: u64,
    /// Rows of a thread.
    rows: u64,
    shared_bytes: u64,
}

pub(in super::super) fn forward(p: &ChannelProblem) -> Answer<Choice> {
    let rows = Rows::forward(p)?.on_chip()?;
    rows.check_clusters()?;
    let clusters = rows.of_samples(1);
    // Clusters leave some SMs without work. With so many rows of a thread they are slower than slabs, if slabs serve.
    let may_take_slabs =
        |found: &Chosen<Choice>| !p.is_pinned && p.shape.groups > 0 && u64::from(found.choice.thread_rows) > SLAB_ROWS;
    if let Some(found) = clusters.filter(|found| !may_take_slabs(found)).or_else(|| rows.in_turns()) {
        return Ok(found);
    }
    needs(p.is_pinned || slabs::forward(p).is_err(), "the form channels_last_slabs is faster")?;
    clusters.ok_or_else(|| rows.too_large())
}

/// A cluster of the blocks of all samples needs no other launch for the gradients of parameters.
pub(in super::super) fn backward(p: &ChannelProblem) -> Answer<Choice> {
    let rows = Rows::backward(p)?.on_chip()?;
    rows.check_clusters()?;
    let has_sums = rows.samples > 1 && p.has_parameter_gradients;
    let together = has_sums.then(|| rows.of_samples(rows.samples)).flatten();
    together.or_else(|| rows.of_samples(1)).ok_or_else(|| rows.too_large())
}

impl Rows<'_> {
    /// Forward of small tiles, of which there are more than are resident at once: each lies in the shared memory of one block. Takes the narrowest
    /// tile that memory serves well.
    fn in_turns(&self) -> Option<Chosen<Choice>> {
        let (p, shape) = (self.p, &self.p.shape);
        let channels = self.tiles(MOST_CHANNELS, TURN_TILE_BYTES).next()?;
        let block = self.block(channels, 1, 1)?;
        let bytes = self.rows * channels * p.element_bytes;
        if bytes > TURN_BYTES || 2 * block.shared_bytes > p.shared_bytes {
            return None;
        }
        let choice = self.choice(channels, 1, 1, &block, self.samples * (shape.channels / channels))?;
        Some(Chosen::alone(choice))
    }

    fn choice(&self, channels: u64, chunks: u64, cluster: u64, block: &Block, blocks: u64) -> Option<Choice> {
        Some(Choice {
            tile_vectors: word(channels / self.width),
            chunks: self.chunks(chunks)?,
            is_merged: self.merged(),
            cluster_blocks: word(cluster),
            threads: word(block.threads),
            thread_rows: word(block.rows),
            tensors: word(self.tensors),
            blocks: grid(blocks)?,
            overlaps: 1,
        })
    }

    /// The clusters with the most blocks among those that are all resident at once. A cluster has the blocks of `together` samples.
    fn of_samples(&self, together: u64) -> Option<Chosen<Choice>> {
        let (p, shape) = (self.p, &self.p.shape);
        let (_, unit) = self.tile_unit();
        let is_wide = move |tile: &Clustered| tile.channels * p.element_bytes > MOST_TILE_BYTES;
        let tiles =
            || self.clustered(MOST_CHANNELS, together).filter(move |tile| !is_wide(tile) || tile.channels == unit);
        let best = self.best(|may_take_turns| {
            tiles().filter_map(move |tile| {
                let Clustered { channels, cluster, chunks, chunk_rows, clusters } = tile;
                let block = self.block(channels, cluster, chunks)?;
                let is_small =
                    chunk_rows * channels * p.element_bytes <= PAIR_BYTES && block.shared_bytes <= p.shared_bytes / 2;
                let are_resident = clusters <= p.resident_clusters(cluster, 1 + u64::from(is_small));
                // Prefers as many blocks as there are SMs, or few more. Small blocks have small clusters, others wide tiles.
                let all = clusters * cluster;
                let fill = if all <= p.multiprocessors { signed(all) } else { -signed(all) };
                let rank = (fill, if is_small { -signed(channels) } else { signed(channels) });
                (are_resident || may_take_turns).then_some((Reverse(rank), (tile, block)))
            })
        });
        let (_, (Clustered { channels, cluster, chunks, clusters, .. }, block)) = best?;
        let sums = self.tensors > 1 && shape.groups > 0 && self.samples > together && p.has_parameter_gradients;
        let workspace_bytes = if sums { self.workspace_bytes(1, 0).ok()? } else { 0 };
        let choice = self.choice(channels, chunks, cluster, &block, clusters * cluster)?;
        Some(Chosen { choice, workspace_bytes, launches: 1 + u32::from(sums) })
    }

    /// A block of a cluster, with the shared memory as in `csrc/norm/channels_last/channels_last_norm_cluster.cuh`.
    fn block(&self, channels: u64, cluster: u64, chunks: u64) -> Option<Block> {
        let (group_channels, _) = self.tile_unit();
        let (tile, of_chunk) = (channels / self.width, self.rows.div_ceil(chunks));
        let whole = tile * 32 / gcd(tile, 32); // the threads of whole rows and whole warps
        let step = if whole <= THREADS { whole } else { 32 };
        let with_rows = |rows: u64| of_chunk.div_ceil(rows) * tile;
        let wanted = with_rows(WANTED_ROWS).max(with_rows(WANTED_ROWS / 2).min(FEW_THREADS));
        let wanted = wanted.max(channels).next_multiple_of(step);
        let mut threads = wanted.min(THREADS / step * step);
        while threads >= channels {
            // Partial results have the pitch of `lane_parts`: whole warps of lanes, and a gap that spreads neighbouring vectors over banks.
            let (lanes, gap) = (threads / tile, 32_u64.div_ceil(tile));
            let rows = of_chunk.div_ceil(lanes);
            let sums = if self.tensors == 1 {
                let folds = group_channels + 1 >= self.width || 2 * group_channels == self.width;
                let parts = if folds { 2 } else { self.width };
                let room = parts * tile * (lanes.next_multiple_of(32) + gap);
                // 12 bytes of a part are two sums and a shift; 16 bytes are the moments of a group in a block, as float4.
                room * 12 + channels / group_channels * cluster * 16 + FORWARD_SHARED_BYTES
            } else {
                // If both halves of a warp have the same vectors, two lanes leave their sums together.
                let lanes = if 16_u64.is_multiple_of(tile) { lanes / 2 } else { lanes };
                let room = self.width * tile * (lanes.next_multiple_of(32) + gap);
                // 8 bytes are two sums: of a part, and of a channel in a block.
                room * 8 + channels * cluster * 8 + BACKWARD_SHARED_BYTES
            };
            let shared_bytes = rows * threads * 16 * self.tensors + sums;
            if rows > MOST_ROWS {
                return None;
            }
            if shared_bytes <= self.p.shared_bytes {
                return Some(Block { threads, rows, shared_bytes });
            }
            threads -= step;
        }
        None
    }
}
