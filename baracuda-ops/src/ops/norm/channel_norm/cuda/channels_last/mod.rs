//! What the channels-last forms choose: pure functions of shapes, types and device properties, a file for each form, `passes.rs` for the two that may
//! read twice.
//!
//! The tuning numbers were measured on an H200 (132 SMs, CUDA 13.0).

pub(super) mod cluster;
pub(super) mod passes;
pub(super) mod resident;
pub(super) mod rows;
pub(super) mod slabs;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use super::{Answer, ChannelOrder, ChannelProblem, Chosen, least, needs};
use crate::error::Reason;
use crate::narrow::to_usize;

/// Threads of the largest block.
const THREADS: u64 = 512;
/// Cluster sizes that are tried, in blocks. 3 and 6 are there for groups and tiles with which powers of two would leave SMs idle: `resident_clusters`
/// counts 19 clusters of 6 on an H200, but only 15 of 8, so that 16 tiles are all resident in clusters of 6 and not in those of 8.
const CLUSTERS: [u64; 7] = [1, 2, 3, 4, 6, 8, 16];
/// Bytes of the channels of a tile in a cluster, at least, unless it has whole rows: narrower tiles load memory badly.
const LEAST_TILE_BYTES: u64 = 64;
/// Vectors of x in a block of a cluster, at least, if there could be fewer blocks.
const LEAST_VECTORS: u64 = 512;
/// The most rows of a thread in a chunk: they bound its chains of additions.
const CHAIN_ROWS: u64 = 256;
/// Rows of a thread in one batch of a ring.
const BATCH_ROWS: u64 = 4;
/// The share of the SMs with work that is enough: `passes` stops its search at it, `slabs` takes no fewer unless it is pinned, and to `rows` more
/// blocks are not better.
const BUSY: f64 = 0.9;
/// Shared memory that `resident` and `slabs` declare themselves, with what the device keeps of a block, in bytes.
const OWN_SHARED_BYTES: u64 = 11 * 1024;

/// A problem as rows of vectors of channels.
#[derive(Clone, Copy, Debug)]
struct Rows<'p> {
    p: &'p ChannelProblem,
    /// Whether the rows of all samples count as those of one.
    is_merged: bool,
    samples: u64,
    /// Rows of a sample.
    rows: u64,
    /// Channels of a vector.
    width: u64,
    /// Vectors of a row.
    vectors: u64,
    /// Tensors that pass through shared memory: forward x, backward dy, x and what tells the activation.
    tensors: u64,
}

/// A tile whose chunks are the blocks of clusters.
#[derive(Clone, Copy)]
struct Clustered {
    /// Channels of the tile.
    channels: u64,
    /// Blocks of a cluster.
    cluster: u64,
    /// Chunks of a sample, and rows of a chunk.
    chunks: u64,
    chunk_rows: u64,
    /// Clusters in all.
    clusters: u64,
}

impl<'p> Rows<'p> {
    fn forward(p: &'p ChannelProblem) -> Result<Self, Reason> {
        Self::new(p, 1)
    }

    fn backward(p: &'p ChannelProblem) -> Result<Self, Reason> {
        Self::new(p, if p.has_extra { 3 } else { 2 })
    }

    fn new(p: &'p ChannelProblem, tensors: u64) -> Result<Self, Reason> {
        let shape = &p.shape;
        needs(p.order == ChannelOrder::ChannelsLast, "the channels do not have stride 1 in every tensor")?;
        needs(p.has_elements(), "there are no elements")?;
        let is_merged = p.is_merged && shape.groups == 0;
        let (samples, rows) = if is_merged { (1, shape.batch * shape.spatial) } else { (shape.batch, shape.spatial) };
        let limit = u64::from(u32::MAX);
        if samples >= limit || rows >= limit || shape.channels >= limit {
            let channels = shape.channels;
            return Err(format!("{samples} samples of {rows} rows of {channels} channels, the limit is {limit}").into());
        }
        let is_wide = p.element_bytes < 8 && p.vector_bytes.is_multiple_of(16);
        let width = if is_wide { 16 / p.element_bytes } else { 1 };
        Ok(Self { p, is_merged, samples, rows, width, vectors: shape.channels / width, tensors })
    }

    /// Refuses what the forms that keep rows on chip do not serve.
    fn on_chip(self) -> Result<Self, Reason> {
        needs(self.p.element_bytes < 8, "it has no f64")?;
        needs(self.is_wide(), "its rows have to be whole vectors of 16 bytes, at multiples of 16 bytes")?;
        needs(!self.p.inference, "it takes its statistics from the batch, not the running ones")?;
        Ok(self)
    }

    fn is_wide(&self) -> bool {
        self.width > 1
    }

    /// Vectors of a tile: as many as `most`, or fewer so that all tiles are as wide.
    fn tile(&self, most: u64) -> u64 {
        self.vectors.div_ceil(self.vectors.div_ceil(most))
    }

    /// As many chunks as asked for, or fewer so that all have as many rows and none is without a row.
    fn even_chunks(&self, chunks: u64) -> u64 {
        self.rows.div_ceil(self.rows.div_ceil(chunks.clamp(1, self.rows)))
    }

    /// The number of chunks of a sample, if kernels can number the chunks of all samples.
    fn chunks(&self, chunks: u64) -> Option<u32> {
        u32::try_from(chunks).ok().filter(|_| self.samples * chunks < u64::from(u32::MAX))
    }

    /// Numbers that a workspace has for each channel of a chunk: forward the shift, the sum and the square, backward two sums.
    fn part_numbers(&self) -> u64 {
        if self.tensors == 1 { 3 } else { 2 }
    }

    /// Numbers that a workspace has for each group: forward its statistics, backward two means.
    fn group_numbers(&self) -> u64 {
        if self.tensors == 1 { 4 } else { 2 }
    }

    /// A workspace with the parts of so many chunks of a sample, and with `group_numbers` numbers for each group.
    fn workspace_bytes(&self, chunks: u64, group_numbers: u64) -> Result<u64, Reason> {
        let parts = &[self.samples, chunks, self.p.shape.channels, self.part_numbers()];
        self.p.number_bytes(&[parts, &[self.p.shape.group_count(), group_numbers]])
    }

    /// Bytes of shared memory that a batch of a ring takes in a block.
    fn batch_bytes(&self, threads: u64) -> u64 {
        BATCH_ROWS * threads * 16 * self.tensors
    }

    /// Whether a vector has channels of at most two groups.
    fn has_long_groups(&self) -> bool {
        let (group_channels, _) = self.tile_unit();
        self.p.shape.groups > 0 && (group_channels + 1 >= self.width || 2 * group_channels == self.width)
    }

    /// Refuses what the forms whose blocks exchange statistics in clusters do not serve.
    fn check_clusters(&self) -> Result<(), Reason> {
        self.p.needs_capability(90)?;
        self.check_statistics()
    }

    /// Refuses what the forms of one launch do not serve whose blocks compute the statistics themselves.
    fn check_statistics(&self) -> Result<(), Reason> {
        let (p, is_apart) = (self.p, self.p.shape.groups > 0);
        needs(!p.cumulative, "it does not count batches")?;
        needs(!(is_apart && p.has_running), "it does not update running statistics of samples")?;
        needs(self.is_merged || is_apart || self.samples == 1, "the rows of all samples have to lie at one stride")
    }

    /// The tiles of whole groups and vectors that divide the channels, as numbers of channels up to `most_channels`; without those that have fewer than
    /// `least_bytes` bytes of a row and are not whole rows.
    fn tiles(&self, most_channels: u64, least_bytes: u64) -> impl Iterator<Item = u64> + use<> {
        let (all, element_bytes) = (self.p.shape.channels, self.p.element_bytes);
        let (_, unit) = self.tile_unit();
        let is_wide = move |channels: u64| channels * element_bytes >= least_bytes || channels == all;
        let tiles = (unit..=most_channels.min(all)).step_by(to_usize(unit));
        tiles.filter(move |&channels| all.is_multiple_of(channels) && is_wide(channels))
    }

    /// The tiles with at most so many channels in clusters that each have the blocks of `together` samples. Leaves out narrow tiles and small blocks.
    fn clustered(&self, most_channels: u64, together: u64) -> impl Iterator<Item = Clustered> {
        let (p, all) = (self.p, self.p.shape.channels);
        self.tiles(most_channels, LEAST_TILE_BYTES).flat_map(move |channels| {
            CLUSTERS.into_iter().filter_map(move |cluster| {
                let chunks = cluster / together;
                let chunk_rows = self.rows.div_ceil(chunks.max(1));
                let is_small = chunks > 1 && chunk_rows * channels < LEAST_VECTORS * self.width;
                let exists = cluster <= p.max_cluster && cluster.is_multiple_of(together);
                let clusters = self.samples / together * (all / channels);
                (exists && self.even_chunks(chunks) == chunks && !is_small).then_some(Clustered {
                    channels,
                    cluster,
                    chunks,
                    chunk_rows,
                    clusters,
                })
            })
        })
    }

    /// The first of the highest rank of what a search finds: of clusters that are all resident at once or, if the form is pinned and there are none, of
    /// clusters that may take turns.
    fn best<R: Ord, T, I: Iterator<Item = (Reverse<R>, T)>>(&self, search: impl Fn(bool) -> I) -> Option<(R, T)> {
        let found = least(search(false)).or_else(|| self.p.is_pinned.then(|| least(search(true))).flatten());
        found.map(|(Reverse(rank), found)| (rank, found))
    }

    /// Channels of a group, and of the narrowest tile of whole groups and whole vectors.
    fn tile_unit(&self) -> (u64, u64) {
        let group_channels = self.p.shape.channels.checked_div(self.p.shape.groups).unwrap_or(1);
        (group_channels, group_channels * self.width / gcd(group_channels, self.width))
    }

    fn merged(&self) -> u32 {
        u32::from(self.is_merged)
    }

    /// Why nothing fits on chip.
    fn too_large(&self) -> Reason {
        if !self.p.is_pinned {
            return "its rows have no room on chip, or would leave multiprocessors without work".into();
        }
        let (rows, channels, shared, blocks) =
            (self.rows, self.p.shape.channels, self.p.shared_bytes, self.p.max_cluster);
        format!("{rows} rows of {channels} channels a sample have no tiles of whole groups that fit into {shared} bytes of shared memory a block, clusters of {blocks} blocks and {} multiprocessors", self.p.multiprocessors).into()
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
