//! Which CUDA variant serves which channels-last problem: a pure function of shapes, types and device properties.
//!
//! The numbers were measured on an H200 (132 multiprocessors, CUDA 13.0).

use baracuda_ops_sys as sys;

use super::{Problem, Tuned, contiguous};
use crate::ops::activation::Activation;

/// Threads of the largest block.
const THREADS: u64 = 512;
/// Vectors of the widest tile of the cooperative and split variants, forward and backward, and channels of it where a vector is one channel.
const TILE_VECTORS: [u64; 2] = [32, 16];
const TILE_CHANNELS: u64 = 64;
/// Threads of a block of the split variant and rows of a thread in a chunk; the same where there are no sums to make.
const SPLIT_FORM: (u64, u64) = (512, 32);
const APPLY_FORM: (u64, u64) = (256, 4);
/// The most rows of a thread in a chunk: they bound its chains of additions.
const CHAIN_ROWS: u64 = 256;
/// Rows of a thread in one stage of a ring.
const STAGE_ROWS: u64 = 4;
/// Channels of the widest tile of a cluster.
const CLUSTER_CHANNELS: u64 = 256;
/// Bytes of the channels of a tile of a cluster, at least and at most, unless groups are wider: narrower ones load memory badly.
const CLUSTER_TILE_BYTES: (u64, u64) = (64, 256);
/// Blocks of a cluster.
const CLUSTERS: [u64; 7] = [1, 2, 3, 4, 6, 8, 16];
/// Rows of a thread of a cluster that its threads are chosen for, in blocks of fewer than so many threads the half of them, and the most.
const CLUSTER_ROWS: (u64, u64) = (8, 28);
const CLUSTER_THREADS: u64 = 160;
/// Rows of a thread of a cluster for which forward with groups does not take slabs instead.
const CLUSTER_FEW_ROWS: u64 = 16;
/// Vectors of x in a block, at least, where there could be fewer blocks.
const CLUSTER_LEAST: u64 = 512;
/// Bytes of x in a block of a cluster up to which two of them share a multiprocessor.
const CLUSTER_SHARED_BYTES: u64 = 12 << 10;
/// Bytes of x that a block holds, at most, where it is a cluster alone and blocks take turns: as many as let two of them share a multiprocessor.
const TURN_BYTES: u64 = 64 << 10;
/// Bytes of the narrowest tile of such blocks that is not a whole row.
const TURN_TILE_BYTES: u64 = 128;
/// Shared memory that the cluster kernels declare themselves, forward and backward.
const CLUSTER_OWN_BYTES: [u64; 2] = [3584, 7680];
/// Shared memory that kernels declare themselves for one channel of a thread's vector, beyond that for all, and what the device keeps of a block.
const SUM_BYTES: u64 = 640 * 4;
const OWN_BYTES: u64 = 1024;
/// Channels and vectors of the widest tile of the resident variant, its stages from compute capability 9.0 on and before, and shared memory
/// that it declares itself, with what the device keeps of a block.
const RESIDENT_CHANNELS: u64 = 128;
const RESIDENT_VECTORS: u64 = 32;
const RESIDENT_STAGES: (u64, u64) = (6, 4);
const RESIDENT_OWN_BYTES: u64 = 11 * 1024;
/// Bytes of the narrowest tile of it that is not a whole row: neighbours of a narrower one are read at another time.
const RESIDENT_TILE_BYTES: u64 = 128;
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
const ROWS_WANTED: u64 = 4;
const ROWS_LANE_STEP: usize = 4;
/// Quads of columns of sums that one of its blocks merges, at most.
const ROWS_QUADS: u64 = 32;
/// The share of the multiprocessors that it has blocks for, at least.
const ROWS_BUSY: f64 = 0.6;
/// Threads of the resident variant backward, rows of a thread in one stage, and stages as above.
const SLAB_THREADS: u64 = 256;
const SLAB_ROWS: u64 = 2;
const SLAB_STAGES: (u64, u64) = (13, 9);
/// Stages in registers: of elements of two bytes and of four.
const SLAB_HELD: (u64, u64) = (10, 11);
/// The most rows of a thread: sums of 32 of them are added up.
const SLAB_CHAIN_ROWS: u64 = 1024;
/// What a byte costs where a slab has not the whole rows: the other parts of a row are read at another time.
const SLAB_PART: f64 = 1.08;
/// Bytes of its tiles.
const SLAB_TILE_BYTES: [u64; 2] = [256, 128];
/// Bytes that a block could move while its slab exchanges sums.
const SLAB_EXCHANGE_BYTES: u64 = 120_000;
/// Stages of a slab that the L2 is asked to keep between the two walks: of elements of two bytes; of four, where fewer than those in shared memory
/// are read again.
const SLAB_CACHED: (u64, u64) = (9, 6);
/// Forward: stages in registers, the most rows of a thread, of which at most 40 are added up one after another, and the most stages of a slab that
/// the L2 is asked to keep.
const FORWARD_SLAB_HELD: u64 = 10;
const FORWARD_SLAB_ROWS: u64 = 1024;
const FORWARD_SLAB_CACHED: u64 = 16;
/// Stages of a slab that are read again, at most, where the launch begins while the previous one ends.
const FORWARD_SLAB_OVERLAPS: u64 = 2;
/// What a tile of 128 bytes costs beside one of 256, in parts of 100.
const NARROW_SLAB_COST: u64 = 108;
/// Bytes that the L2 keeps between the two walks over the rows.
const CACHED_BYTES: u64 = 17_000_000;
/// Turns that blocks of the cooperative variant may take, and the share of them that has work, below which another turn is tried.
const TURNS: u64 = 4;
const BUSY: f64 = 0.9;

/// The variant that serves a forward. is_merged: the rows of all samples lie at one stride in every tensor.
pub(super) fn forward(p: &Problem, is_merged: bool) -> Result<Tuned, String> {
    let Some(rows) = Rows::new(p, is_merged, 1)? else { return contiguous::forward(p) };
    rows.resident().map_or_else(|| rows.split_forward(), Ok)
}

/// The variant that serves a backward.
pub(super) fn backward(p: &Problem, is_merged: bool) -> Result<Tuned, String> {
    let tensors = if p.has_extra { 3 } else { 2 };
    let Some(rows) = Rows::new(p, is_merged, tensors)? else { return contiguous::backward(p) };
    rows.resident().map_or_else(|| rows.split_backward(), Ok)
}

/// A problem as rows of vectors of channels.
#[derive(Clone, Copy, Debug)]
struct Rows<'p> {
    p: &'p Problem,
    is_merged: bool,
    samples: u64,
    /// Of a sample.
    rows: u64,
    /// Channels of a vector.
    width: u64,
    /// Vectors of a row.
    vectors: u64,
    /// Tensors that pass through shared memory.
    tensors: u64,
}

/// How slabs are taken.
struct SlabForm {
    /// Vectors of a tile, chunks of a sample, and blocks.
    tile: u64,
    chunks: u64,
    grid: u64,
    /// Of a thread.
    rows: u64,
    slabs: u64,
    has_whole_rows: bool,
}

impl<'p> Rows<'p> {
    /// None where there are no elements.
    fn new(p: &'p Problem, is_merged: bool, tensors: u64) -> Result<Option<Self>, String> {
        let shape = &p.shape;
        if shape.batch == 0 || shape.channels == 0 || shape.spatial == 0 {
            return Ok(None);
        }
        let is_merged = is_merged && shape.groups == 0;
        let (samples, rows) = if is_merged { (1, shape.batch * shape.spatial) } else { (shape.batch, shape.spatial) };
        let limit = u64::from(u32::MAX);
        if samples >= limit || rows >= limit || shape.channels >= limit {
            return Err(format!(
                "{samples} samples of {rows} rows of {} channels, the limit is {limit}",
                shape.channels
            ));
        }
        let is_wide = p.element_bytes < 8 && p.vector_bytes.is_multiple_of(16);
        let width = if is_wide { 16 / u64::from(p.element_bytes) } else { 1 };
        Ok(Some(Self { p, is_merged, samples, rows, width, vectors: shape.channels / width, tensors }))
    }

    fn is_wide(&self) -> bool {
        self.width > 1
    }

    /// Vectors of a tile: as many as `most`, or fewer so that all tiles are as wide.
    fn tile(&self, most: u64) -> u64 {
        self.vectors.div_ceil(self.vectors.div_ceil(most))
    }

    fn tile_vectors(&self) -> u64 {
        TILE_VECTORS[usize::from(self.tensors > 1)]
    }

    /// Chunks of as many rows, none without a row.
    fn even_chunks(&self, chunks: u64) -> u64 {
        self.rows.div_ceil(self.rows.div_ceil(chunks.clamp(1, self.rows)))
    }

    fn start(&self, variant: u32, tile: u64, threads: u64, chunks: u64) -> Option<Tuned> {
        let backward = u32::from(self.tensors > 1);
        Some(Tuned {
            variant,
            vec_bytes: (self.width * u64::from(self.p.element_bytes)) as u32,
            vectors: tile as u32,
            threads: threads as u32,
            chunks: u32::try_from(chunks).ok().filter(|_| self.samples * chunks < u64::from(u32::MAX))?,
            is_merged: u32::from(self.is_merged),
            tensors: backward * self.tensors as u32,
            ..Tuned::default()
        })
    }

    /// The workspace of partial results: `each` numbers of every channel and chunk, and `of_group` of every group.
    fn workspace_bytes(&self, chunks: u64, each: u64, of_group: u64) -> Option<u64> {
        let parts = self.samples.checked_mul(chunks)?.checked_mul(self.p.shape.channels)?.checked_mul(each)?;
        let groups = self.p.shape.group_count().checked_mul(of_group)?;
        parts.checked_add(groups)?.checked_mul(u64::from(self.p.accumulator_bytes))
    }

    /// Numbers of a channel and chunk, and of a group: shift, sum and square, and statistics; or two sums, and two means.
    fn partial_numbers(&self) -> (u64, u64) {
        if self.tensors == 1 { (3, 4) } else { (2, 2) }
    }

    /// Bytes of shared memory that a stage and a block without any take.
    fn stage_bytes(&self, threads: u64) -> u64 {
        STAGE_ROWS * threads * 16 * self.tensors
    }

    fn resident(&self) -> Option<Tuned> {
        if !self.is_wide() || self.p.inference {
            return None;
        }
        let is_fast = |tuned: &Tuned| {
            let is_busy = f64::from(tuned.grid) >= ROWS_BUSY * f64::from(self.p.multiprocessors);
            is_busy && u64::from(tuned.stages) <= ROWS_WANTED
        };
        let shared = self.in_clusters_registers();
        shared
            .filter(is_fast)
            .or_else(|| self.in_registers())
            .or(shared)
            .or_else(|| self.cluster().filter(|tuned| !self.may_take_slabs(tuned)))
            .or_else(|| self.blocks_forward())
            .or_else(|| self.slabs_forward())
            .or_else(|| self.cluster())
            .or_else(|| self.one_turn())
            .or_else(|| self.slabs())
            .or_else(|| self.cooperative())
    }

    /// Whether a vector has channels of at most two groups.
    fn has_long_groups(&self) -> bool {
        let (group_channels, _) = self.cluster_unit();
        self.p.shape.groups > 0 && (group_channels + 1 >= self.width || 2 * group_channels == self.width)
    }

    /// With groups, rows in registers that the blocks of a cluster share: those of a sample, backward, from dy and x alone, those of all. Of the forms
    /// whose clusters are all resident at once, no two blocks on one multiprocessor, the one with the most blocks, and of those the one with
    /// the widest tile.
    fn in_clusters_registers(&self) -> Option<Tuned> {
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
        for channels in (unit..=ROWS_CHANNELS.min(shape.channels)).step_by(unit as usize) {
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
                tuned.cluster = cluster as u32;
                tuned.grid = (units * cluster) as u32;
                tuned.stages = rows as u32;
                tuned.overlaps = 1;
                tuned.launches = 1;
                best = Some((rank, tuned));
            }
        }
        best.map(|(_, tuned)| tuned)
    }

    /// Backward with groups from dy and x alone: a block for every tile and chunk, all at once, with its rows in registers. Of the forms with enough
    /// blocks the one with the narrowest tile, in which sums of the fewest channels are exchanged.
    fn in_registers(&self) -> Option<Tuned> {
        let (p, shape) = (self.p, &self.p.shape);
        if self.tensors == 1 || !self.has_long_groups() || !p.is_plain() || p.capability < 80 {
            return None;
        }
        let blocks = u64::from(p.multiprocessors);
        let (_, unit) = self.cluster_unit();
        let mut best: Option<([i64; 4], Tuned)> = None;
        for channels in (unit..=ROWS_CHANNELS.min(shape.channels)).step_by(unit as usize) {
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
                let enough = all.min((BUSY * blocks as f64) as u64) as i64;
                let rank = [enough, -(tile as i64), -(rows.abs_diff(ROWS_WANTED) as i64), -(threads as i64)];
                if best.is_some_and(|(most, _)| most >= rank) {
                    continue;
                }
                let mut tuned = self.start(sys::BOPS_CHANNEL_NORM_LAST_ROWS, tile, threads, chunks)?;
                tuned.grid = all as u32;
                tuned.stages = rows as u32;
                tuned.overlaps = u32::from(p.capability >= 90);
                tuned.workspace_bytes = self.workspace_bytes(chunks, 2, 2 * chunks.next_multiple_of(4))?;
                tuned.launches = 1;
                best = Some((rank, tuned));
            }
        }
        best.map(|(_, tuned)| tuned)
    }

    /// Tiles of whole groups in the shared memory of clusters that are all resident at once: the form with the most blocks. Backward, a
    /// cluster of the blocks of all samples needs no other launch for the gradients of parameters.
    fn cluster(&self) -> Option<Tuned> {
        let p = self.p;
        let has_sums = self.tensors > 1 && self.samples > 1 && p.has_parameter_gradients;
        let together = || self.cluster_of(self.samples);
        has_sums.then(together).flatten().or_else(|| self.cluster_of(1))
    }

    /// Forward with groups: whether slabs, if they serve, are faster than so many rows of a thread in clusters, which leave multiprocessors out.
    fn may_take_slabs(&self, tuned: &Tuned) -> bool {
        self.tensors == 1 && self.p.shape.groups > 0 && u64::from(tuned.stages) > CLUSTER_FEW_ROWS
    }

    /// Whether the cluster kernels serve.
    fn has_clusters(&self) -> bool {
        let (p, is_apart) = (self.p, self.p.shape.groups > 0);
        let is_one = self.is_merged || is_apart || self.samples == 1;
        p.capability >= 90 && !p.cumulative && is_one && !(is_apart && p.has_running)
    }

    /// Channels of a group, and of the narrowest tile of whole groups and whole vectors.
    fn cluster_unit(&self) -> (u64, u64) {
        let group_channels = self.p.shape.channels.checked_div(self.p.shape.groups).unwrap_or(1);
        (group_channels, group_channels * self.width / gcd(group_channels, self.width))
    }

    /// Forward of tiles that are small and more than are resident at once: each in the shared memory of a block. The narrowest that memory
    /// serves well.
    fn blocks_forward(&self) -> Option<Tuned> {
        let (p, shape) = (self.p, &self.p.shape);
        if self.tensors > 1 || !self.has_clusters() {
            return None;
        }
        let (group_channels, unit) = self.cluster_unit();
        let channels = (unit..=CLUSTER_CHANNELS.min(shape.channels)).step_by(unit as usize).find(|channels| {
            let is_wide = channels * u64::from(p.element_bytes) >= TURN_TILE_BYTES || *channels == shape.channels;
            shape.channels.is_multiple_of(*channels) && is_wide
        })?;
        let (threads, rows, shared) = self.cluster_block(channels, group_channels, 1, 1)?;
        if self.rows * channels * u64::from(p.element_bytes) > TURN_BYTES || 2 * shared > u64::from(p.shared_bytes) {
            return None;
        }
        let mut tuned = self.start(sys::BOPS_CHANNEL_NORM_LAST_CLUSTER, channels / self.width, threads, 1)?;
        tuned.cluster = 1;
        tuned.grid = i32::try_from(self.samples * (shape.channels / channels)).ok()? as u32;
        tuned.stages = rows as u32;
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
                let fill = if all <= u64::from(p.multiprocessors) { all as i64 } else { -(all as i64) };
                let rank = (fill, if is_small { -(times as i64) } else { times as i64 });
                if units > p.resident_clusters(cluster, 1 + u64::from(is_small))
                    || best.is_some_and(|(most, _)| most >= rank)
                {
                    continue;
                }
                let mut tuned = self.start(sys::BOPS_CHANNEL_NORM_LAST_CLUSTER, tile, threads, chunks)?;
                tuned.cluster = cluster as u32;
                tuned.grid = all as u32;
                tuned.stages = rows as u32;
                tuned.overlaps = 1;
                let sums = self.tensors > 1 && is_apart && self.samples > together && p.has_parameter_gradients;
                tuned.launches = 1 + u32::from(sums);
                tuned.workspace_bytes = if sums { self.workspace_bytes(1, 2, 0)? } else { 0 };
                best = Some((rank, tuned));
            }
        }
        best.map(|(_, tuned)| tuned)
    }

    /// Threads of a block of a cluster, rows of a thread, and bytes of shared memory, as in `csrc/norm/channel_norm_last_cluster.cuh`.
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

    /// Forward of one sample: a block for every tile and chunk.
    fn one_turn(&self) -> Option<Tuned> {
        let p = self.p;
        if self.tensors > 1 || self.samples > 1 || p.capability < 80 {
            return None;
        }
        let most = RESIDENT_VECTORS.min(RESIDENT_CHANNELS / self.width);
        let tile = most.min(1 << self.vectors.trailing_zeros());
        let tiles = self.vectors / tile;
        let blocks = u64::from(p.multiprocessors);
        let lanes = THREADS / tile;
        let chunks = (blocks / tiles).min(self.rows.div_ceil(lanes));
        if chunks == 0 || (tiles > 1 && tile * 16 < RESIDENT_TILE_BYTES) {
            return None;
        }
        let rows = self.rows.div_ceil(lanes * chunks);
        let stages = if p.capability >= 90 { RESIDENT_STAGES.0 } else { RESIDENT_STAGES.1 };
        let shared = stages * self.stage_bytes(THREADS) + RESIDENT_OWN_BYTES;
        if rows > CHAIN_ROWS || shared > u64::from(p.shared_bytes) {
            return None;
        }
        let mut tuned = self.start(sys::BOPS_CHANNEL_NORM_LAST_RESIDENT, tile, THREADS, chunks)?;
        tuned.grid = (tiles * chunks) as u32;
        tuned.stages = stages as u32;
        // Rounded: whole stages of all blocks.
        let stage = u64::from(tuned.grid) * self.stage_bytes(THREADS);
        tuned.cached = ((CACHED_BYTES + stage / 2) / stage) as u32;
        let (each, of_group) = self.partial_numbers();
        tuned.workspace_bytes = self.workspace_bytes(chunks, each, of_group)?;
        tuned.launches = 1;
        Some(tuned)
    }

    /// The slabs whose blocks keep the multiprocessors busy: all tiles of some samples, or some tiles of one.
    fn slab_forms(&self) -> impl Iterator<Item = SlabForm> {
        let (p, shape, samples) = (self.p, &self.p.shape, self.samples);
        let group_channels = shape.channels.checked_div(shape.groups).unwrap_or(1);
        let blocks = u64::from(p.multiprocessors);
        let is_whole =
            move |tile: &u64| self.vectors.is_multiple_of(*tile) && (tile * self.width).is_multiple_of(group_channels);
        SLAB_TILE_BYTES.map(|bytes| bytes / 16).into_iter().filter(is_whole).flat_map(move |tile| {
            let (tiles, lanes) = (self.vectors / tile, SLAB_THREADS / tile);
            (1..=blocks).filter_map(move |units| {
                let of_samples = units.is_multiple_of(tiles) && samples.is_multiple_of(units / tiles);
                let chunks = (blocks / units).min(self.rows.div_ceil(lanes));
                let is_busy = (units * chunks) as f64 >= BUSY * blocks as f64;
                (is_busy && (of_samples || tiles.is_multiple_of(units))).then(|| SlabForm {
                    tile,
                    chunks,
                    grid: units * chunks,
                    rows: self.rows.div_ceil(lanes * chunks),
                    slabs: samples * tiles / units,
                    has_whole_rows: units.is_multiple_of(tiles),
                })
            })
        })
    }

    /// Forward from x alone: slabs of tiles or samples, of which most stays on chip. The form whose blocks move the fewest bytes, where those that the
    /// L2 keeps count half.
    fn slabs_forward(&self) -> Option<Tuned> {
        let (p, shape) = (self.p, &self.p.shape);
        let is_apart = shape.groups > 0;
        let is_plain = !p.has_extra && p.activation == Activation::Identity && !p.cumulative;
        let serves = self.tensors == 1 && is_plain && p.capability >= 80;
        if !serves || (is_apart && p.has_running) || !(self.is_merged || is_apart || self.samples == 1) {
            return None;
        }
        let stages = if p.capability >= 90 { SLAB_STAGES.0 } else { SLAB_STAGES.1 };
        // A row of a thread more.
        if stages * self.stage_bytes(SLAB_THREADS) + SLAB_THREADS * 16 + RESIDENT_OWN_BYTES > u64::from(p.shared_bytes)
        {
            return None;
        }
        let mut best: Option<(u64, Tuned)> = None;
        for form in self.slab_forms().filter(|form| form.rows <= FORWARD_SLAB_ROWS) {
            let batches = form.rows.div_ceil(STAGE_ROWS);
            let again = batches.saturating_sub(stages + FORWARD_SLAB_HELD);
            let cached = again.min(FORWARD_SLAB_CACHED);
            let walks = form.rows * SLAB_THREADS * 16 * (4 * batches + 2 * again - cached) / (2 * batches);
            let each = if form.tile * 16 == SLAB_TILE_BYTES[1] { NARROW_SLAB_COST } else { 100 };
            let cost = form.slabs * (walks + SLAB_EXCHANGE_BYTES) * each;
            if best.is_some_and(|(least, _)| least <= cost) {
                continue;
            }
            let tuned = self.slab_tuned(sys::BOPS_CHANNEL_NORM_LAST_SLABS, &form, stages, self.partial_numbers())?;
            let overlaps = u32::from(again <= FORWARD_SLAB_OVERLAPS) & tuned.overlaps;
            best = Some((cost, Tuned { cached: cached as u32, overlaps, ..tuned }));
        }
        best.map(|(_, tuned)| tuned)
    }

    /// As a choice; `numbers`: that a chunk leaves for a channel, and of a group.
    fn slab_tuned(&self, variant: u32, form: &SlabForm, stages: u64, numbers: (u64, u64)) -> Option<Tuned> {
        Some(Tuned {
            grid: form.grid as u32,
            stages: stages as u32,
            workspace_bytes: self.workspace_bytes(form.chunks, numbers.0, numbers.1)?,
            launches: 1,
            overlaps: u32::from(self.p.capability >= 90),
            ..self.start(variant, form.tile, SLAB_THREADS, form.chunks)?
        })
    }

    /// Backward from dy and x alone: slabs of tiles or samples, of which most stays on chip. The form whose blocks move the fewest bytes.
    fn slabs(&self) -> Option<Tuned> {
        let (p, shape) = (self.p, &self.p.shape);
        let is_apart = shape.groups > 0;
        if !p.is_plain() || p.capability < 80 || !(self.is_merged || is_apart || self.samples == 1) {
            return None;
        }
        let stages = if p.capability >= 90 { SLAB_STAGES.0 } else { SLAB_STAGES.1 };
        let fit = stages + if p.element_bytes == 2 { SLAB_HELD.0 } else { SLAB_HELD.1 };
        if stages * SLAB_ROWS * SLAB_THREADS * 16 * self.tensors + RESIDENT_OWN_BYTES > u64::from(p.shared_bytes) {
            return None;
        }
        let mut best: Option<(f64, Tuned)> = None;
        for form in self.slab_forms().filter(|form| form.rows <= SLAB_CHAIN_ROWS) {
            let batches = form.rows.div_ceil(SLAB_ROWS);
            if form.slabs > 1 && batches < stages {
                continue;
            }
            let again = batches.saturating_sub(fit);
            let walks = form.rows * SLAB_THREADS * 16 * (3 * batches + 2 * again) / batches;
            let part = if form.has_whole_rows { 1.0 } else { SLAB_PART };
            let cost = (form.slabs * (walks + SLAB_EXCHANGE_BYTES)) as f64 * part;
            if best.is_some_and(|(least, _)| least <= cost) {
                continue;
            }
            let cached = match p.element_bytes {
                2 => SLAB_CACHED.0.min(again),
                _ if again < stages => SLAB_CACHED.1.min(again),
                _ => 0,
            };
            let numbers = (self.partial_numbers().0, 0);
            let tuned = self.slab_tuned(sys::BOPS_CHANNEL_NORM_LAST_RESIDENT, &form, stages, numbers)?;
            best = Some((cost, Tuned { cached: cached as u32, ..tuned }));
        }
        best.map(|(_, tuned)| tuned)
    }

    /// One block a multiprocessor.
    fn cooperative(&self) -> Option<Tuned> {
        let p = self.p;
        let blocks = u64::from(p.multiprocessors);
        let tile = self.tile(self.tile_vectors());
        let own = SUM_BYTES * self.width + OWN_BYTES;
        let stages = u64::from(p.shared_bytes).checked_sub(own)? / self.stage_bytes(THREADS);
        if stages == 0 {
            return None;
        }
        let units = self.samples * self.vectors.div_ceil(tile);
        let least = self.rows.div_ceil(THREADS / tile * CHAIN_ROWS);
        let mut best: Option<(f64, u64)> = None;
        let first = (least * units).div_ceil(blocks).max(1);
        for turns in first..first + TURNS {
            let chunks = self.even_chunks((turns * blocks / units).max(1));
            let items = units * chunks;
            let busy = items as f64 / (items.div_ceil(blocks) * blocks) as f64;
            if chunks >= least && best.is_none_or(|(most, _)| busy > most + 0.02) {
                best = Some((busy, chunks));
            }
            if busy >= BUSY {
                break;
            }
        }
        let (_, chunks) = best?;
        let mut tuned = self.start(sys::BOPS_CHANNEL_NORM_LAST_COOPERATIVE, tile, THREADS, chunks)?;
        tuned.grid = (units * chunks).min(blocks) as u32;
        tuned.stages =
            stages.min(self.rows.div_ceil(chunks).div_ceil(THREADS / tile).div_ceil(STAGE_ROWS) * TURNS) as u32;
        let (each, of_group) = self.partial_numbers();
        tuned.workspace_bytes = self.workspace_bytes(chunks, each, of_group)?;
        tuned.launches = 1;
        Some(tuned)
    }

    fn split(&self, (threads, rows): (u64, u64)) -> Result<Tuned, String> {
        let tile = self.tile(if self.is_wide() { self.tile_vectors() } else { TILE_CHANNELS });
        let chunks = self.even_chunks(self.rows.div_ceil(threads / tile * rows));
        let tuned = self.start(sys::BOPS_CHANNEL_NORM_LAST_SPLIT, tile, threads, chunks);
        let mut tuned = tuned.ok_or_else(|| format!("{} samples of {chunks} chunks", self.samples))?;
        let items = (self.samples * chunks).saturating_mul(self.vectors.div_ceil(tile));
        tuned.grid = items.min(1 << 19) as u32;
        Ok(tuned)
    }

    fn split_forward(&self) -> Result<Tuned, String> {
        if self.p.inference {
            return Ok(Tuned { launches: 1, ..self.split(APPLY_FORM)? });
        }
        let tuned = self.split(SPLIT_FORM)?;
        self.with_partials(Tuned { launches: 3, ..tuned })
    }

    fn split_backward(&self) -> Result<Tuned, String> {
        let apply = !self.p.inference && self.p.has_element_gradients;
        let tuned = self.split(SPLIT_FORM)?;
        self.with_partials(Tuned { launches: 2 + u32::from(apply), ..tuned })
    }

    fn with_partials(&self, tuned: Tuned) -> Result<Tuned, String> {
        let (each, of_group) = self.partial_numbers();
        let bytes = self.workspace_bytes(u64::from(tuned.chunks), each, of_group);
        let workspace_bytes = bytes.ok_or("the workspace exceeds 2^64 bytes")?;
        Ok(Tuned { workspace_bytes, overlaps: u32::from(self.p.capability >= 90), ..tuned })
    }
}

impl Problem {
    /// Clusters of which so many are resident: those of 3 and more leave some multiprocessors of a GPC out.
    fn resident_clusters(&self, cluster: u64, blocks: u64) -> u64 {
        let all = u64::from(self.multiprocessors);
        let usable = match cluster {
            1 | 2 => all,
            16 => all * 7 / 8,
            _ => all * 10 / 11,
        };
        usable / cluster * blocks
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::super::ChannelShape;
    use super::*;

    fn h200(dims: [u64; 3], groups: u64, element_bytes: u32) -> Problem {
        let [batch, channels, spatial] = dims;
        let row = channels * u64::from(element_bytes);
        Problem {
            shape: ChannelShape { batch, channels, spatial, groups },
            element_bytes,
            accumulator_bytes: element_bytes.max(4),
            vector_bytes: 1 << (row | 16).trailing_zeros(),
            capability: 90,
            multiprocessors: 132,
            shared_bytes: 227 << 10,
            max_cluster: 16,
            has_element_gradients: true,
            has_parameter_gradients: true,
            ..PLAIN
        }
    }

    const PLAIN: Problem = Problem {
        shape: ChannelShape { batch: 0, channels: 0, spatial: 0, groups: 0 },
        element_bytes: 4,
        accumulator_bytes: 4,
        vector_bytes: 16,
        sample_vector_bytes: 0,
        inference: false,
        has_running: false,
        cumulative: false,
        activation: Activation::Identity,
        has_extra: false,
        has_dx: false,
        has_element_gradients: false,
        has_parameter_gradients: false,
        capability: 80,
        multiprocessors: 108,
        shared_bytes: 163 << 10,
        max_cluster: 1,
    };

    #[test]
    fn large_tensors_are_kept_on_chip_as_far_as_they_fit() {
        let p = Problem { activation: Activation::Relu, ..h200([64, 256, 56 * 56], 0, 2) };
        let tuned = forward(&p, true).unwrap();
        assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_LAST_RESIDENT);
        assert_eq!((tuned.vectors, tuned.chunks, tuned.grid, tuned.stages, tuned.is_merged), (16, 66, 132, 6, 1));
        let p = Problem { cumulative: true, ..h200([256, 256, 112 * 112], 0, 2) };
        let tuned = forward(&p, true).unwrap();
        assert_eq!((tuned.variant, tuned.vectors), (sys::BOPS_CHANNEL_NORM_LAST_COOPERATIVE, 32));
        let tuned = backward(&h200([64, 256, 56 * 56], 0, 2), true).unwrap();
        assert_eq!((tuned.stages, tuned.tensors), (3, 2));
    }

    #[test]
    fn forward_takes_slabs_of_which_most_stays_on_chip() {
        let form = |dims, groups, bytes| {
            let tuned = forward(&h200(dims, groups, bytes), groups == 0).unwrap();
            assert_eq!((tuned.variant, tuned.threads, tuned.launches), (sys::BOPS_CHANNEL_NORM_LAST_SLABS, 256, 1));
            (tuned.vectors, tuned.chunks, tuned.grid, tuned.cached)
        };
        // Two tiles of 256 bytes, one after another; four of them; as many at once.
        assert_eq!(form([64, 256, 56 * 56], 0, 2), (16, 132, 132, 1));
        assert_eq!(form([64, 256, 56 * 56], 0, 4), (16, 132, 132, 1));
        assert_eq!(form([64, 512, 28 * 28], 0, 2), (16, 33, 132, 1));
        assert_eq!(form([64, 512, 28 * 28], 0, 4), (16, 33, 132, 1));
        // Rows of 128 bytes, and halves of rows of 256.
        assert_eq!(form([64, 64, 112 * 112], 0, 2), (8, 132, 132, 16));
        assert_eq!(form([256, 64, 56 * 56], 0, 4), (8, 132, 132, 16));
        assert_eq!(form([2, 64, 512 * 512], 0, 2), (8, 132, 132, 9));
        assert_eq!(form([2, 64, 512 * 512], 0, 4), (8, 132, 132, 9));
        // Groups: all samples at once, whole rows, half of them.
        assert_eq!(form([32, 256, 56 * 56], 32, 2), (16, 2, 128, 2));
        assert_eq!(form([1, 512, 128 * 128], 32, 2), (16, 33, 132, 0));
        assert_eq!(form([1, 128, 512 * 512], 32, 2), (16, 132, 132, 9));
        assert_eq!(form([1, 256, 1024 * 1024], 32, 2), (16, 132, 132, 16));
        // Samples that are more than there are blocks.
        assert_eq!(form([264, 32, 1450], 32, 4), (8, 1, 132, 0));
        assert_eq!(form([264, 64, 520], 64, 2), (8, 1, 132, 0));
        // Rows that are read again.
        assert_eq!(form([8, 64, 26_000], 0, 4), (16, 132, 132, 2));
        // What their blocks would have to wait for: the count of batches, running statistics of samples.
        let p = Problem { cumulative: true, ..h200([64, 256, 56 * 56], 0, 2) };
        assert_eq!(forward(&p, true).unwrap().variant, sys::BOPS_CHANNEL_NORM_LAST_RESIDENT);
        let p = Problem { has_running: true, ..h200([32, 256, 56 * 56], 256, 2) };
        assert_eq!(forward(&p, false).unwrap().variant, sys::BOPS_CHANNEL_NORM_LAST_COOPERATIVE);
    }

    #[test]
    fn gradients_take_slabs_that_fit_on_chip() {
        let form = |dims, groups, bytes| {
            let p = Problem { has_dx: true, ..h200(dims, groups, bytes) };
            let tuned = backward(&p, groups == 0).unwrap();
            assert_eq!((tuned.variant, tuned.threads, tuned.launches), (sys::BOPS_CHANNEL_NORM_LAST_RESIDENT, 256, 1));
            (tuned.vectors, tuned.chunks, tuned.grid, tuned.cached)
        };
        // Tiles of 128 bytes, one after another.
        assert_eq!(form([64, 256, 56 * 56], 0, 2), (8, 132, 132, 1));
        assert_eq!(form([64, 256, 56 * 56], 0, 4), (8, 132, 132, 0));
        assert_eq!(form([1, 128, 512 * 512], 32, 2), (8, 132, 132, 9));
        // Whole rows, of which most are read again.
        assert_eq!(form([64, 64, 112 * 112], 0, 2), (8, 132, 132, 9));
        assert_eq!(form([64, 64, 112 * 112], 0, 4), (16, 132, 132, 0));
        assert_eq!(form([2, 64, 512 * 512], 0, 4), (16, 132, 132, 0));
        assert_eq!(form([1, 256, 1024 * 1024], 32, 2), (16, 66, 132, 9));
        // Two tiles of 256 bytes at a time; all at once; half of the samples.
        assert_eq!(form([64, 512, 28 * 28], 0, 4), (16, 66, 132, 0));
        assert_eq!(form([1, 512, 128 * 128], 32, 2), (16, 33, 132, 0));
        assert_eq!(form([64, 2048, 49], 0, 4), (16, 4, 128, 1));
        assert_eq!(form([32, 256, 56 * 56], 32, 2), (16, 4, 128, 2));
        // A group that no tile holds.
        let p = Problem { has_dx: true, ..h200([1, 512, 128 * 128], 2, 2) };
        assert_eq!(backward(&p, false).unwrap().variant, sys::BOPS_CHANNEL_NORM_LAST_COOPERATIVE);
    }

    #[test]
    fn slabs_are_whole() {
        for channels in [64, 192, 320, 512, 1024, 4096] {
            for (samples, rows, groups) in
                [(1, 16384, 32), (2, 16384, 32), (6, 5000, 16), (32, 3136, 32), (300, 784, 0), (1, 70_001, 0)]
            {
                for (element_bytes, capability, shared_bytes) in
                    [(2, 90, 227 << 10), (4, 90, 227 << 10), (2, 80, 163 << 10)]
                {
                    let dims = [samples, channels, rows];
                    let p = Problem { has_dx: true, capability, shared_bytes, ..h200(dims, groups, element_bytes) };
                    let both = [forward(&p, groups == 0).unwrap(), backward(&p, groups == 0).unwrap()];
                    let slabs = [sys::BOPS_CHANNEL_NORM_LAST_SLABS, sys::BOPS_CHANNEL_NORM_LAST_RESIDENT];
                    for (tuned, _) in both.into_iter().zip(slabs).filter(|(tuned, slabs)| tuned.variant == *slabs) {
                        let width = 16 / u64::from(element_bytes);
                        let tiles = channels / width / u64::from(tuned.vectors);
                        let (chunks, grid) = (u64::from(tuned.chunks), u64::from(tuned.grid));
                        let samples = if groups == 0 { 1 } else { samples };
                        if grid >= chunks * tiles {
                            assert!(
                                grid.is_multiple_of(chunks * tiles) && samples.is_multiple_of(grid / chunks / tiles),
                                "{p:?}: {tuned:?}"
                            );
                        } else {
                            assert!(
                                grid.is_multiple_of(chunks) && tiles.is_multiple_of(grid / chunks),
                                "{p:?}: {tuned:?}"
                            );
                        }
                        assert!(
                            grid <= 132 && u64::from(tuned.vectors) * width <= 128 && tuned.vectors >= 8,
                            "{p:?}: {tuned:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn many_small_samples_take_a_block_each() {
        let form = |dims, groups, bytes| {
            let tuned = forward(&h200(dims, groups, bytes), false).unwrap();
            assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_LAST_CLUSTER, "{dims:?}: {tuned:?}");
            assert_eq!((tuned.cluster, tuned.chunks, tuned.launches, tuned.workspace_bytes), (1, 1, 1, 0));
            (tuned.vectors, tuned.threads, tuned.stages, tuned.grid)
        };
        assert_eq!(form([4096, 64, 8 * 8], 32, 2), (8, 128, 4, 4096));
        assert_eq!(form([512, 128, 16 * 16], 32, 2), (8, 256, 8, 1024));
        assert_eq!(form([512, 128, 16 * 16], 32, 4), (8, 256, 8, 2048));
        assert_eq!(form([1000, 24, 7 * 7], 24, 2).0, 3);
        assert_eq!(form([264, 64, 131], 64, 2).3, 264);
        // Samples that no two blocks of a multiprocessor hold, and fewer blocks than are resident.
        let variant = |dims| forward(&h200(dims, 32, 2), false).unwrap();
        assert_eq!(variant([64, 256, 32 * 32]).variant, sys::BOPS_CHANNEL_NORM_LAST_SLABS);
        assert!(variant([2, 640, 32 * 32]).cluster > 1);
    }

    #[test]
    fn gradients_of_few_rows_stay_in_registers() {
        let form = |dims, bytes| {
            let p = Problem { has_dx: true, ..h200(dims, 32, bytes) };
            let both = [p, Problem { max_cluster: 1, ..p }].map(|p| backward(&p, false).unwrap());
            both.map(|tuned| {
                assert_eq!((tuned.variant, tuned.launches, tuned.overlaps), (sys::BOPS_CHANNEL_NORM_LAST_ROWS, 1, 1));
                (tuned.vectors, tuned.threads, tuned.stages, tuned.chunks, tuned.cluster, tuned.grid)
            })
        };
        let alone = |tuned| [tuned, tuned];
        // What clusters have the most blocks for, and the same without.
        assert_eq!(form([2, 640, 32 * 32], 2), [(5, 480, 4, 3, 6, 96), (10, 320, 4, 8, 0, 128)]);
        assert_eq!(form([2, 1280, 16 * 16], 2), [(10, 320, 4, 3, 6, 96), (10, 160, 4, 4, 0, 128)]);
        assert_eq!(form([2, 320, 64 * 64], 2), alone((10, 320, 8, 16, 0, 128)));
        assert_eq!(form([2, 1280, 16 * 16], 4)[1], (10, 320, 4, 2, 0, 128));
        assert_eq!(form([1, 640, 64 * 64], 2), alone((10, 320, 8, 16, 0, 128)));
        // Few blocks, short groups, and rows that no registers hold.
        let variant = |dims| backward(&Problem { has_dx: true, ..h200(dims, 32, 2) }, false).unwrap().variant;
        assert_eq!(variant([1, 320, 64]), sys::BOPS_CHANNEL_NORM_LAST_ROWS);
        assert_eq!(variant([1, 64, 64]), sys::BOPS_CHANNEL_NORM_LAST_CLUSTER);
        assert_eq!(variant([1, 512, 128 * 128]), sys::BOPS_CHANNEL_NORM_LAST_RESIDENT);
    }

    #[test]
    fn forward_of_few_rows_stays_in_registers() {
        let form = |dims, bytes| {
            let plain = h200(dims, 32, bytes);
            let tuned = forward(&plain, false).unwrap();
            assert_eq!(
                (tuned.variant, tuned.launches, tuned.workspace_bytes),
                (sys::BOPS_CHANNEL_NORM_LAST_ROWS, 1, 0)
            );
            assert_eq!(forward(&Problem { has_extra: true, activation: Activation::Silu, ..plain }, false), Ok(tuned));
            assert_eq!(tuned.cluster, tuned.chunks);
            (tuned.vectors, tuned.threads, tuned.stages, tuned.chunks, tuned.grid)
        };
        assert_eq!(form([2, 320, 64 * 64], 2), (5, 480, 8, 6, 96));
        assert_eq!(form([2, 640, 32 * 32], 2), (10, 480, 4, 6, 96));
        assert_eq!(form([2, 1280, 16 * 16], 2), (5, 160, 4, 2, 128));
        assert_eq!(form([2, 1280, 16 * 16], 4), (10, 320, 4, 2, 128));
        // Running statistics of samples, vectors with channels of three groups, more samples than blocks.
        let variant = |p: Problem| forward(&p, false).unwrap().variant;
        let p = Problem { has_running: true, ..h200([2, 640, 32 * 32], 32, 2) };
        assert_eq!(variant(p), sys::BOPS_CHANNEL_NORM_LAST_COOPERATIVE);
        assert_eq!(variant(h200([2, 96, 32 * 32], 32, 2)), sys::BOPS_CHANNEL_NORM_LAST_CLUSTER);
        assert_eq!(variant(h200([4096, 64, 8 * 8], 8, 2)), sys::BOPS_CHANNEL_NORM_LAST_CLUSTER);
    }

    #[test]
    fn registers_hold_all_rows() {
        for (channels, groups) in [(64, 8), (96, 4), (320, 32), (1280, 32), (1280, 1), (136, 17), (24, 8), (2048, 512)]
        {
            for (samples, rows) in [(1, 1), (2, 49), (3, 333), (16, 1000), (2, 4097), (64, 64), (132, 640), (200, 9)] {
                for element_bytes in [2, 4] {
                    let p = Problem { has_dx: true, ..h200([samples, channels, rows], groups, element_bytes) };
                    let alone = Problem { max_cluster: 1, ..p };
                    let all = [forward(&p, false), backward(&p, false), backward(&alone, false)].map(Result::unwrap);
                    for tuned in all.into_iter().filter(|tuned| tuned.variant == sys::BOPS_CHANNEL_NORM_LAST_ROWS) {
                        let (vectors, threads) = (u64::from(tuned.vectors), u64::from(tuned.threads));
                        let (chunks, lanes) = (u64::from(tuned.chunks), threads / vectors);
                        let of_tile = vectors * 16 / u64::from(element_bytes);
                        assert!(u64::from(tuned.stages) * lanes * chunks >= rows, "{p:?}: {tuned:?}");
                        assert!(threads.is_multiple_of(32) && threads.is_multiple_of(4 * vectors), "{p:?}: {tuned:?}");
                        let most = [640, if tuned.cluster > 0 { 480 } else { 320 }][usize::from(tuned.stages > 4)];
                        assert!(threads <= most && tuned.stages <= 8, "{p:?}: {tuned:?}");
                        assert!(channels.is_multiple_of(of_tile) && of_tile.is_multiple_of(channels / groups));
                        assert!(of_tile <= 512 && tuned.grid <= 132, "{p:?}: {tuned:?}");
                        assert_eq!(u64::from(tuned.grid), samples * channels / of_tile * chunks);
                        if tuned.tensors == 0 {
                            assert!((channels / groups).div_ceil(16 / u64::from(element_bytes)) < 16);
                        }
                        if tuned.cluster > 0 {
                            let together = if tuned.tensors > 0 { samples } else { 1 };
                            assert_eq!(u64::from(tuned.cluster), together * chunks);
                            assert!(tuned.cluster <= 16 && tuned.stages >= 4, "{p:?}: {tuned:?}");
                            assert!(lanes < 16 || lanes.is_multiple_of(16), "{p:?}: {tuned:?}");
                        } else {
                            assert!(samples * chunks * 64 >= of_tile, "{p:?}: {tuned:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn small_tensors_are_held_by_clusters_of_whole_groups() {
        for dims in [[2, 320, 64 * 64], [2, 640, 32 * 32], [2, 1280, 16 * 16]] {
            let p = Problem { activation: Activation::Silu, ..h200(dims, 32, 2) };
            let tuned = backward(&p, false).unwrap();
            assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_LAST_CLUSTER);
            assert_eq!((tuned.launches, tuned.workspace_bytes), (1, 0));
            let channels = u64::from(tuned.vectors) * 8;
            assert!(channels.is_multiple_of(dims[1] / 32) && dims[1].is_multiple_of(channels));
            assert_eq!(u64::from(tuned.grid), 2 * dims[1] / channels * u64::from(tuned.chunks));
        }
        let tuned = backward(&h200([64, 2048, 49], 0, 2), true).unwrap();
        assert_eq!((tuned.variant, tuned.threads, tuned.stages), (sys::BOPS_CHANNEL_NORM_LAST_CLUSTER, 448, 14));
        let tuned = forward(&h200([64, 2048, 49], 0, 4), true).unwrap();
        assert_eq!((tuned.vectors, tuned.threads, tuned.stages, tuned.chunks), (8, 448, 28, 2));
    }

    #[test]
    fn clusters_hold_all_rows_in_what_shared_memory_they_have() {
        for (channels, groups) in [(8, 0), (24, 3), (320, 32), (96, 4), (1280, 32), (2048, 0), (136, 17), (256, 1)] {
            for (samples, rows) in [(1, 1), (2, 49), (3, 333), (16, 1000), (2, 4096), (64, 64)] {
                for element_bytes in [2, 4] {
                    let p = h200([samples, channels, rows], groups, element_bytes);
                    for tuned in [forward(&p, groups == 0).unwrap(), backward(&p, groups == 0).unwrap()] {
                        if tuned.variant != sys::BOPS_CHANNEL_NORM_LAST_CLUSTER {
                            continue;
                        }
                        let rows = if groups == 0 { samples * rows } else { rows };
                        let lanes = u64::from(tuned.threads / tuned.vectors);
                        assert!(u64::from(tuned.chunks * tuned.stages) * lanes >= rows, "{p:?}: {tuned:?}");
                        assert!(tuned.threads <= 512 && tuned.threads.is_multiple_of(32), "{p:?}: {tuned:?}");
                        assert!(tuned.vectors * (16 / element_bytes) <= tuned.threads.min(256), "{p:?}: {tuned:?}");
                        assert!(tuned.cluster <= 16 && tuned.cluster.is_multiple_of(tuned.chunks));
                        assert!(tuned.grid.is_multiple_of(tuned.cluster));
                        let room = tuned.stages * tuned.threads * 16 * tuned.tensors.max(1);
                        assert!(room < p.shared_bytes, "{p:?}: {tuned:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_has_no_vectors_is_split() {
        let odd = forward(&h200([3, 17, 300], 0, 2), true).unwrap();
        assert_eq!((odd.variant, odd.vec_bytes, odd.vectors), (sys::BOPS_CHANNEL_NORM_LAST_SPLIT, 2, 17));
        let wide = forward(&h200([3, 64, 300], 0, 8), true).unwrap();
        assert_eq!((wide.variant, wide.vec_bytes, wide.launches), (sys::BOPS_CHANNEL_NORM_LAST_SPLIT, 8, 3));
    }

    #[test]
    fn running_statistics_leave_nothing_to_merge() {
        let p = Problem { inference: true, ..h200([64, 256, 56 * 56], 0, 2) };
        let tuned = forward(&p, true).unwrap();
        assert_eq!((tuned.launches, tuned.workspace_bytes), (1, 0));
        assert_eq!(backward(&p, true).unwrap().launches, 2);
    }

    #[test]
    fn every_chunk_has_rows() {
        for rows in [1, 2, 49, 131, 133, 1000, 262_144] {
            for groups in [0, 1, 8] {
                for samples in [1, 3, 200] {
                    let p = h200([samples, 64, rows], groups, 4);
                    for tuned in [forward(&p, groups == 0).unwrap(), backward(&p, false).unwrap()] {
                        let all = if tuned.is_merged == 1 { rows * samples } else { rows };
                        let each = all.div_ceil(u64::from(tuned.chunks));
                        assert!((u64::from(tuned.chunks) - 1) * each < all, "{p:?}: {tuned:?}");
                        assert!(tuned.grid > 0 && tuned.threads / tuned.vectors > 0);
                    }
                }
            }
        }
    }
}
