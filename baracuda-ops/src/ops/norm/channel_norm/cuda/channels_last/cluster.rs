//! Tiles in the shared memory of clusters.

use baracuda_ops_sys as sys;

use super::{Answer, Chosen, Numbers, Problem, Rows, THREADS, gcd, needs, slabs};
use crate::narrow::{grid, signed, to_usize, word};

pub(super) type Choice = sys::bops_channels_last_norm_cluster_choice;

/// Channels of the widest tile.
const MOST_CHANNELS: u64 = 256;
/// Bytes of the channels of a tile, at least and at most, unless groups are wider: narrower ones load memory badly.
pub(super) const LEAST_TILE_BYTES: u64 = 64;
const MOST_TILE_BYTES: u64 = 256;
/// Blocks of a cluster.
pub(super) const CLUSTERS: [u64; 7] = [1, 2, 3, 4, 6, 8, 16];
/// Rows of a thread that the threads of a block are chosen for; the half of them in blocks of fewer threads than these.
const WANTED_ROWS: u64 = 8;
const FEW_THREADS: u64 = 160;
/// The most rows of a thread.
const MOST_ROWS: u64 = 28;
/// Rows of a thread up to which forward with groups does not take slabs instead.
const SLAB_ROWS: u64 = 16;
/// Vectors of x in a block, at least, where there could be fewer blocks.
pub(super) const LEAST_VECTORS: u64 = 512;
/// Bytes of x in a block of a cluster up to which two of them share a multiprocessor.
const PAIR_BYTES: u64 = 12 << 10;
/// Blocks that are clusters alone and more than are resident at once: the most bytes of x, so that two share a multiprocessor, and the bytes of the
/// narrowest tile that is not a whole row.
const TURN_BYTES: u64 = 64 << 10;
const TURN_TILE_BYTES: u64 = 128;
/// Shared memory that the kernels declare themselves, in bytes.
const FORWARD_SHARED_BYTES: u64 = 3584;
const BACKWARD_SHARED_BYTES: u64 = 7680;

/// A block of a cluster.
struct Block {
    threads: u64,
    /// Rows of a thread.
    rows: u64,
    shared_bytes: u64,
}

pub(in super::super) fn forward(p: &Problem) -> Answer<Choice> {
    let rows = Rows::forward(p)?.on_chip()?;
    rows.check_clusters()?;
    let clusters = rows.of_samples(1);
    // In clusters, which leave multiprocessors out, so many rows of a thread are slower than slabs, if these serve.
    let may_take_slabs =
        |found: &Chosen<Choice>| !p.is_pinned && p.shape.groups > 0 && u64::from(found.choice.thread_rows) > SLAB_ROWS;
    if let Some(found) = clusters.filter(|found| !may_take_slabs(found)).or_else(|| rows.in_turns()) {
        return Ok(found);
    }
    needs(p.is_pinned || slabs::forward(p).is_err(), "the form channels_last_slabs is faster")?;
    clusters.ok_or_else(|| rows.too_large())
}

/// A cluster of the blocks of all samples needs no other launch for the gradients of parameters.
pub(in super::super) fn backward(p: &Problem) -> Answer<Choice> {
    let rows = Rows::backward(p)?.on_chip()?;
    rows.check_clusters()?;
    let has_sums = rows.samples > 1 && p.has_parameter_gradients;
    let together = has_sums.then(|| rows.of_samples(rows.samples)).flatten();
    together.or_else(|| rows.of_samples(1)).ok_or_else(|| rows.too_large())
}

impl Rows<'_> {
    /// Forward of tiles that are small and more than are resident at once: each in the shared memory of a block. The narrowest that memory
    /// serves well.
    fn in_turns(&self) -> Option<Chosen<Choice>> {
        let (p, shape) = (self.p, &self.p.shape);
        let (group_channels, unit) = self.tile_unit();
        let channels = (unit..=MOST_CHANNELS.min(shape.channels)).step_by(to_usize(unit)).find(|channels| {
            let is_wide = channels * u64::from(p.element_bytes) >= TURN_TILE_BYTES || *channels == shape.channels;
            shape.channels.is_multiple_of(*channels) && is_wide
        })?;
        let block = self.block(channels, group_channels, 1, 1)?;
        let bytes = self.rows * channels * u64::from(p.element_bytes);
        if bytes > TURN_BYTES || 2 * block.shared_bytes > u64::from(p.shared_bytes) {
            return None;
        }
        let choice = self.choice(channels, 1, 1, &block, self.samples * (shape.channels / channels))?;
        Some(Chosen { choice, workspace_bytes: 0, launches: 1 })
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

    /// Clusters, each of the blocks of `together` samples, that are all resident at once: those with the most blocks.
    fn of_samples(&self, together: u64) -> Option<Chosen<Choice>> {
        let resident = self.find(together, false);
        resident.or_else(|| self.p.is_pinned.then(|| self.find(together, true)).flatten())
    }

    fn find(&self, together: u64, may_take_turns: bool) -> Option<Chosen<Choice>> {
        let (p, shape) = (self.p, &self.p.shape);
        let is_apart = shape.groups > 0;
        let (group_channels, unit) = self.tile_unit();
        let mut best: Option<((i64, i64), Chosen<Choice>)> = None;
        for times in 1..=(MOST_CHANNELS / unit).min(shape.channels.div_ceil(unit)) {
            let channels = unit * times;
            let bytes = channels * u64::from(p.element_bytes);
            if !shape.channels.is_multiple_of(channels)
                || (bytes < LEAST_TILE_BYTES && channels < shape.channels)
                || (bytes > MOST_TILE_BYTES && times > 1)
            {
                continue;
            }
            let units = self.samples / together * (shape.channels / channels);
            for cluster in CLUSTERS {
                let chunks = cluster / together;
                if cluster > u64::from(p.max_cluster)
                    || !cluster.is_multiple_of(together)
                    || self.even_chunks(chunks) != chunks
                    || (chunks > 1 && self.rows.div_ceil(chunks) * channels < LEAST_VECTORS * self.width)
                {
                    continue;
                }
                let Some(block) = self.block(channels, group_channels, cluster, chunks) else { continue };
                let is_small = self.rows.div_ceil(chunks) * bytes <= PAIR_BYTES
                    && block.shared_bytes <= u64::from(p.shared_bytes) / 2;
                let all = units * cluster;
                // As many as there are multiprocessors, or few more; small ones in small clusters, others with wide tiles.
                let fill = if all <= u64::from(p.multiprocessors) { signed(all) } else { -signed(all) };
                let rank = (fill, if is_small { -signed(times) } else { signed(times) });
                let are_resident = units <= p.resident_clusters(cluster, 1 + u64::from(is_small));
                if !(are_resident || may_take_turns) || best.is_some_and(|(most, _)| most >= rank) {
                    continue;
                }
                let sums = self.tensors > 1 && is_apart && self.samples > together && p.has_parameter_gradients;
                let numbers = Numbers { of_chunk_channel: 2, of_group: 0 };
                let workspace_bytes = if sums { self.workspace_bytes(1, numbers)? } else { 0 };
                let choice = self.choice(channels, chunks, cluster, &block, all)?;
                best = Some((rank, Chosen { choice, workspace_bytes, launches: 1 + u32::from(sums) }));
            }
        }
        best.map(|(_, chosen)| chosen)
    }

    /// A block of a cluster, with the shared memory as in `csrc/norm/channels_last/channels_last_norm_cluster.cuh`.
    fn block(&self, channels: u64, group_channels: u64, cluster: u64, chunks: u64) -> Option<Block> {
        let (tile, of_chunk) = (channels / self.width, self.rows.div_ceil(chunks));
        let whole = tile * 32 / gcd(tile, 32); // the threads of whole rows and whole warps
        let step = if whole <= THREADS { whole } else { 32 };
        let with_rows = |rows: u64| of_chunk.div_ceil(rows) * tile;
        let wanted = with_rows(WANTED_ROWS).max(with_rows(WANTED_ROWS / 2).min(FEW_THREADS));
        let wanted = wanted.max(channels).next_multiple_of(step);
        let mut threads = wanted.min(THREADS / step * step);
        while threads >= channels {
            let (lanes, step_lanes) = (threads / tile, 32_u64.div_ceil(tile));
            let rows = of_chunk.div_ceil(lanes);
            let sums = if self.tensors == 1 {
                let folds = group_channels + 1 >= self.width || 2 * group_channels == self.width;
                let parts = if folds { 2 } else { self.width };
                let room = parts * tile * (lanes.next_multiple_of(32) + step_lanes);
                room * 12 + channels / group_channels * cluster * 16 + FORWARD_SHARED_BYTES
            } else {
                let lanes = if 16_u64.is_multiple_of(tile) { lanes / 2 } else { lanes };
                let room = self.width * tile * (lanes.next_multiple_of(32) + step_lanes);
                room * 8 + channels * cluster * 8 + BACKWARD_SHARED_BYTES
            };
            let shared_bytes = rows * threads * 16 * self.tensors + sums;
            if rows > MOST_ROWS {
                return None;
            }
            if shared_bytes <= u64::from(self.p.shared_bytes) {
                return Some(Block { threads, rows, shared_bytes });
            }
            threads -= step;
        }
        None
    }
}
