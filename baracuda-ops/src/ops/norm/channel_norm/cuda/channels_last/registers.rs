//! Rows in registers: of clusters, or of all multiprocessors.

use baracuda_ops_sys as sys;

use super::cluster::{CLUSTER_LEAST, CLUSTER_TILE_BYTES, CLUSTERS};
use super::{BUSY, Rows, Tuned, gcd};
use crate::narrow::{grid, signed, to_usize, word};

/// Threads of a block of the rows variant and rows of a thread, where they are many and where they are few.
const ROWS_FORMS: [(u64, u64); 2] = [(640, 4), (320, 8)];
/// The same of its clusters, whose lanes from the second number on are a multiple of it, and below it one of the first.
const ROWS_CLUSTER_FORMS: [(u64, u64); 2] = [(640, 4), (480, 8)];
const ROWS_CLUSTER_LANES: (u64, u64) = (4, 16);
/// Vectors that the channels of a group may lie in, forward: one warp goes through them.
const ROWS_GROUP_VECTORS: u64 = 16;
/// Its threads without clusters, at least; lanes of a block, at most; channels of a tile, at most; bytes of its narrowest tile that is not a whole row.
const ROWS_THREADS: u64 = 128;
const ROWS_LANES: u64 = 32;
const ROWS_CHANNELS: u64 = 512;
const ROWS_TILE_BYTES: u64 = 128;
/// Rows of a thread that serve best, and the multiple that lanes are.
pub(super) const ROWS_WANTED: u64 = 4;
const ROWS_LANE_STEP: usize = 4;
/// Quads of columns of sums that one of its blocks merges, at most.
const ROWS_QUADS: u64 = 32;
/// The share of the multiprocessors that it has blocks for, at least.
pub(super) const ROWS_BUSY: f64 = 0.6;

impl Rows<'_> {
    /// With groups, rows in registers that the blocks of a cluster share: those of a sample, backward, from dy and x alone, those of all. Of the forms
    /// whose clusters are all resident at once, no two blocks on one multiprocessor, the one with the most blocks, and of those the one with
    /// the widest tile.
    pub(super) fn in_clusters_registers(&self) -> Option<Tuned> {
        let (p, shape) = (self.p, &self.p.shape);
        let is_backward = self.tensors > 1;
        if !self.has_long_groups() || !self.has_clusters() || (is_backward && !p.is_plain()) {
            return None;
        }
        let together = if is_backward { self.samples } else { 1 };
        let (group_channels, unit) = self.cluster_unit();
        if !is_backward && group_channels > (ROWS_GROUP_VECTORS - 1) * self.width {
            return None;
        }
        let mut best: Option<((u64, u64), Tuned)> = None;
        for channels in (unit..=ROWS_CHANNELS.min(shape.channels)).step_by(to_usize(unit)) {
            let is_narrow = channels * u64::from(p.element_bytes) < CLUSTER_TILE_BYTES.0 && channels < shape.channels;
            if !shape.channels.is_multiple_of(channels) || is_narrow {
                continue;
            }
            let (tile, units) = (channels / self.width, self.samples / together * (shape.channels / channels));
            let step = ROWS_CLUSTER_LANES.0.max(32 / gcd(tile, 32));
            for cluster in CLUSTERS {
                let chunks = cluster / together;
                let of_chunk = self.rows.div_ceil(chunks.max(1));
                if cluster > u64::from(p.max_cluster)
                    || !cluster.is_multiple_of(together)
                    || self.even_chunks(chunks) != chunks
                    || (chunks > 1 && of_chunk * tile < CLUSTER_LEAST)
                    || units > p.resident_clusters(cluster, 1)
                {
                    continue;
                }
                let form = |&(most, rows): &(u64, u64)| {
                    let lanes = of_chunk.div_ceil(rows).next_multiple_of(step);
                    let whole = if lanes > ROWS_CLUSTER_LANES.1 { ROWS_CLUSTER_LANES.1 } else { 1 };
                    let threads = lanes.next_multiple_of(whole) * tile;
                    (threads <= most).then_some((threads, rows))
                };
                let Some((threads, rows)) = ROWS_CLUSTER_FORMS.iter().find_map(form) else { continue };
                let rank = (units * cluster, tile);
                if best.is_some_and(|(most, _)| most >= rank) {
                    continue;
                }
                let mut tuned = self.start(sys::BOPS_CHANNEL_NORM_LAST_ROWS, tile, threads, chunks)?;
                tuned.cluster = word(cluster);
                tuned.grid = grid(units * cluster)?;
                tuned.stages = word(rows);
                tuned.overlaps = 1;
                tuned.launches = 1;
                best = Some((rank, tuned));
            }
        }
        best.map(|(_, tuned)| tuned)
    }

    /// Backward with groups from dy and x alone: a block for every tile and chunk, all at once, with its rows in registers. Of the forms with enough
    /// blocks the one with the narrowest tile, in which sums of the fewest channels are exchanged.
    pub(super) fn in_registers(&self) -> Option<Tuned> {
        let (p, shape) = (self.p, &self.p.shape);
        if self.tensors == 1 || !self.has_long_groups() || !p.is_plain() || p.capability < 80 {
            return None;
        }
        let blocks = u64::from(p.multiprocessors);
        let (_, unit) = self.cluster_unit();
        let mut best: Option<([i64; 4], Tuned)> = None;
        for channels in (unit..=ROWS_CHANNELS.min(shape.channels)).step_by(to_usize(unit)) {
            let is_narrow = channels * u64::from(p.element_bytes) < ROWS_TILE_BYTES && channels < shape.channels;
            if !shape.channels.is_multiple_of(channels) || is_narrow {
                continue;
            }
            let (tile, units) = (channels / self.width, self.samples * (shape.channels / channels));
            for lanes in (4..=ROWS_LANES).step_by(ROWS_LANE_STEP) {
                let threads = tile * lanes;
                if units > blocks || threads < ROWS_THREADS || !threads.is_multiple_of(32) {
                    continue;
                }
                let chunks = self.even_chunks((blocks / units).min(self.rows.div_ceil(lanes)));
                let rows = self.rows.div_ceil(chunks).div_ceil(lanes).next_power_of_two();
                let all = units * chunks;
                let fits = ROWS_FORMS.iter().any(|&(most, most_rows)| threads <= most && rows <= most_rows);
                if !fits
                    || (all as f64) < ROWS_BUSY * blocks as f64
                    || all / (units / self.samples) * ROWS_QUADS * 2 < channels
                {
                    continue;
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a part of the blocks of a device"
                )]
                let enough = signed(all.min((BUSY * blocks as f64) as u64));
                let rank = [enough, -signed(tile), -signed(rows.abs_diff(ROWS_WANTED)), -signed(threads)];
                if best.is_some_and(|(most, _)| most >= rank) {
                    continue;
                }
                let mut tuned = self.start(sys::BOPS_CHANNEL_NORM_LAST_ROWS, tile, threads, chunks)?;
                tuned.grid = grid(all)?;
                tuned.stages = word(rows);
                tuned.overlaps = u32::from(p.capability >= 90);
                tuned.workspace_bytes = self.workspace_bytes(chunks, 2, 2 * chunks.next_multiple_of(4))?;
                tuned.launches = 1;
                best = Some((rank, tuned));
            }
        }
        best.map(|(_, tuned)| tuned)
    }
}
