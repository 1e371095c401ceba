//! Tiles in the shared memory of clusters.

use baracuda_ops_sys as sys;

use super::{Rows, THREADS, Tuned, gcd};
use crate::narrow::{grid, signed, to_usize, word};

/// Channels of the widest tile of a cluster.
const CLUSTER_CHANNELS: u64 = 256;
/// Bytes of the channels of a tile of a cluster, at least and at most, unless groups are wider: narrower ones load memory badly.
pub(super) const CLUSTER_TILE_BYTES: (u64, u64) = (64, 256);
/// Blocks of a cluster.
pub(super) const CLUSTERS: [u64; 7] = [1, 2, 3, 4, 6, 8, 16];
/// Rows of a thread of a cluster that its threads are chosen for, in blocks of fewer than so many threads the half of them, and the most.
const CLUSTER_ROWS: (u64, u64) = (8, 28);
const CLUSTER_THREADS: u64 = 160;
/// Rows of a thread of a cluster for which forward with groups does not take slabs instead.
const CLUSTER_FEW_ROWS: u64 = 16;
/// Vectors of x in a block, at least, where there could be fewer blocks.
pub(super) const CLUSTER_LEAST: u64 = 512;
/// Bytes of x in a block of a cluster up to which two of them share a multiprocessor.
const CLUSTER_SHARED_BYTES: u64 = 12 << 10;
/// Bytes of x that a block holds, at most, where it is a cluster alone and blocks take turns: as many as let two of them share a multiprocessor.
const TURN_BYTES: u64 = 64 << 10;
/// Bytes of the narrowest tile of such blocks that is not a whole row.
const TURN_TILE_BYTES: u64 = 128;
/// Shared memory that the cluster kernels declare themselves, forward and backward.
const CLUSTER_OWN_BYTES: [u64; 2] = [3584, 7680];

impl Rows<'_> {
    /// Tiles of whole groups in the shared memory of clusters that are all resident at once: the form with the most blocks. Backward, a
    /// cluster of the blocks of all samples needs no other launch for the gradients of parameters.
    pub(super) fn cluster(&self) -> Option<Tuned> {
        let p = self.p;
        let has_sums = self.tensors > 1 && self.samples > 1 && p.has_parameter_gradients;
        let together = || self.cluster_of(self.samples);
        has_sums.then(together).flatten().or_else(|| self.cluster_of(1))
    }

    /// Forward with groups: whether slabs, if they serve, are faster than so many rows of a thread in clusters, which leave multiprocessors out.
    pub(super) fn may_take_slabs(&self, tuned: &Tuned) -> bool {
        self.tensors == 1 && self.p.shape.groups > 0 && u64::from(tuned.stages) > CLUSTER_FEW_ROWS
    }

    /// Forward of tiles that are small and more than are resident at once: each in the shared memory of a block. The narrowest that memory
    /// serves well.
    pub(super) fn blocks_forward(&self) -> Option<Tuned> {
        let (p, shape) = (self.p, &self.p.shape);
        if self.tensors > 1 || !self.has_clusters() {
            return None;
        }
        let (group_channels, unit) = self.cluster_unit();
        let channels = (unit..=CLUSTER_CHANNELS.min(shape.channels)).step_by(to_usize(unit)).find(|channels| {
            let is_wide = channels * u64::from(p.element_bytes) >= TURN_TILE_BYTES || *channels == shape.channels;
            shape.channels.is_multiple_of(*channels) && is_wide
        })?;
        let (threads, rows, shared) = self.cluster_block(channels, group_channels, 1, 1)?;
        if self.rows * channels * u64::from(p.element_bytes) > TURN_BYTES || 2 * shared > u64::from(p.shared_bytes) {
            return None;
        }
        let mut tuned = self.start(sys::BOPS_CHANNEL_NORM_LAST_CLUSTER, channels / self.width, threads, 1)?;
        tuned.cluster = 1;
        tuned.grid = grid(self.samples * (shape.channels / channels))?;
        tuned.stages = word(rows);
        tuned.overlaps = 1;
        tuned.launches = 1;
        Some(tuned)
    }

    /// Of the blocks of `together` samples.
    fn cluster_of(&self, together: u64) -> Option<Tuned> {
        let (p, shape) = (self.p, &self.p.shape);
        let is_apart = shape.groups > 0;
        if !self.has_clusters() {
            return None;
        }
        let (group_channels, unit) = self.cluster_unit();
        let mut best: Option<((i64, i64), Tuned)> = None;
        for times in 1..=(CLUSTER_CHANNELS / unit).min(shape.channels.div_ceil(unit)) {
            let channels = unit * times;
            let bytes = channels * u64::from(p.element_bytes);
            if !shape.channels.is_multiple_of(channels)
                || (bytes < CLUSTER_TILE_BYTES.0 && channels < shape.channels)
                || (bytes > CLUSTER_TILE_BYTES.1 && times > 1)
            {
                continue;
            }
            let units = self.samples / together * (shape.channels / channels);
            for cluster in CLUSTERS {
                let chunks = cluster / together;
                if cluster > u64::from(p.max_cluster)
                    || !cluster.is_multiple_of(together)
                    || self.even_chunks(chunks) != chunks
                    || (chunks > 1 && self.rows.div_ceil(chunks) * channels < CLUSTER_LEAST * self.width)
                {
                    continue;
                }
                let Some((threads, rows, shared)) = self.cluster_block(channels, group_channels, cluster, chunks)
                else {
                    continue;
                };
                let is_small = self.rows.div_ceil(chunks) * bytes <= CLUSTER_SHARED_BYTES
                    && shared <= u64::from(p.shared_bytes) / 2;
                let (all, tile) = (units * cluster, channels / self.width);
                // As many as there are multiprocessors, or few more; small ones in small clusters, others with wide tiles.
                let fill = if all <= u64::from(p.multiprocessors) { signed(all) } else { -signed(all) };
                let rank = (fill, if is_small { -signed(times) } else { signed(times) });
                if units > p.resident_clusters(cluster, 1 + u64::from(is_small))
                    || best.is_some_and(|(most, _)| most >= rank)
                {
                    continue;
                }
                let mut tuned = self.start(sys::BOPS_CHANNEL_NORM_LAST_CLUSTER, tile, threads, chunks)?;
                tuned.cluster = word(cluster);
                tuned.grid = grid(all)?;
                tuned.stages = word(rows);
                tuned.overlaps = 1;
                let sums = self.tensors > 1 && is_apart && self.samples > together && p.has_parameter_gradients;
                tuned.launches = 1 + u32::from(sums);
                tuned.workspace_bytes = if sums { self.workspace_bytes(1, 2, 0)? } else { 0 };
                best = Some((rank, tuned));
            }
        }
        best.map(|(_, tuned)| tuned)
    }

    /// Threads of a block of a cluster, rows of a thread, and bytes of shared memory, as in `csrc/norm/channels_last/channels_last_norm_cluster.cuh`.
    fn cluster_block(&self, channels: u64, group_channels: u64, cluster: u64, chunks: u64) -> Option<(u64, u64, u64)> {
        let (tile, of_chunk) = (channels / self.width, self.rows.div_ceil(chunks));
        let whole = tile * 32 / gcd(tile, 32); // the threads of whole rows and whole warps
        let step = if whole <= THREADS { whole } else { 32 };
        let with_rows = |rows: u64| of_chunk.div_ceil(rows) * tile;
        let wanted = with_rows(CLUSTER_ROWS.0).max(with_rows(CLUSTER_ROWS.0 / 2).min(CLUSTER_THREADS));
        let wanted = wanted.max(channels).next_multiple_of(step);
        let mut threads = wanted.min(THREADS / step * step);
        while threads >= channels {
            let (lanes, step_lanes) = (threads / tile, 32_u64.div_ceil(tile));
            let rows = of_chunk.div_ceil(lanes);
            let shared = if self.tensors == 1 {
                let folds = group_channels + 1 >= self.width || 2 * group_channels == self.width;
                let parts = if folds { 2 } else { self.width };
                let room = parts * tile * (lanes.next_multiple_of(32) + step_lanes);
                room * 12 + channels / group_channels * cluster * 16
            } else {
                let lanes = if 16_u64.is_multiple_of(tile) { lanes / 2 } else { lanes };
                self.width * tile * (lanes.next_multiple_of(32) + step_lanes) * 8 + channels * cluster * 8
            };
            let shared = rows * threads * 16 * self.tensors + shared + CLUSTER_OWN_BYTES[usize::from(self.tensors > 1)];
            if rows > CLUSTER_ROWS.1 {
                return None;
            }
            if shared <= u64::from(self.p.shared_bytes) {
                return Some((threads, rows, shared));
            }
            threads -= step;
        }
        None
    }
}
