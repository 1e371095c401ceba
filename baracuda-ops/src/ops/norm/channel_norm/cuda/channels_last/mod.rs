//! What the channels-last forms choose: pure functions of shapes, types and device properties, a file for each form, `passes.rs` for the two that may
//! read twice.
//!
//! The tuning numbers were measured on an H200 (132 multiprocessors, CUDA 13.0).

pub(super) mod cluster;
pub(super) mod passes;
pub(super) mod resident;
pub(super) mod rows;
pub(super) mod slabs;
#[cfg(test)]
mod tests;

use super::{Answer, ChannelOrder, Chosen, Problem, needs};
use crate::error::Reason;

/// Threads of the largest block.
const THREADS: u64 = 512;
/// The most rows of a thread in a chunk: they bound its chains of additions.
const CHAIN_ROWS: u64 = 256;
/// Rows of a thread in one batch of a ring.
const BATCH_ROWS: u64 = 4;
/// The share of the multiprocessors that has work, below which other numbers are tried.
const BUSY: f64 = 0.9;
/// Shared memory that `resident` and `slabs` declare themselves, with what the device keeps of a block, in bytes.
const OWN_SHARED_BYTES: u64 = 11 * 1024;

/// A problem as rows of vectors of channels.
#[derive(Clone, Copy, Debug)]
struct Rows<'p> {
    p: &'p Problem,
    /// Whether the rows of all samples count as those of one.
    is_merged: bool,
    samples: u64,
    /// Of a sample.
    rows: u64,
    /// Channels of a vector.
    width: u64,
    /// Vectors of a row.
    vectors: u64,
    /// Tensors that pass through shared memory: forward x, backward dy, x and what tells the activation.
    tensors: u64,
}

/// How many numbers a workspace has for each chunk and channel, and for each group.
#[derive(Clone, Copy)]
struct Numbers {
    of_chunk_channel: u64,
    of_group: u64,
}

impl<'p> Rows<'p> {
    fn forward(p: &'p Problem) -> Result<Self, Reason> {
        Self::new(p, 1)
    }

    fn backward(p: &'p Problem) -> Result<Self, Reason> {
        Self::new(p, if p.has_extra { 3 } else { 2 })
    }

    fn new(p: &'p Problem, tensors: u64) -> Result<Self, Reason> {
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
        let width = if is_wide { 16 / u64::from(p.element_bytes) } else { 1 };
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

    /// Chunks of as many rows, none without a row.
    fn even_chunks(&self, chunks: u64) -> u64 {
        self.rows.div_ceil(self.rows.div_ceil(chunks.clamp(1, self.rows)))
    }

    /// Chunks as kernels number them over all samples.
    fn chunks(&self, chunks: u64) -> Option<u32> {
        u32::try_from(chunks).ok().filter(|_| self.samples * chunks < u64::from(u32::MAX))
    }

    /// The workspace of partial results.
    fn workspace_bytes(&self, chunks: u64, numbers: Numbers) -> Option<u64> {
        let parts = self.samples.checked_mul(chunks)?.checked_mul(self.p.shape.channels)?;
        let parts = parts.checked_mul(numbers.of_chunk_channel)?;
        let groups = self.p.shape.group_count().checked_mul(numbers.of_group)?;
        parts.checked_add(groups)?.checked_mul(u64::from(self.p.accumulator_bytes))
    }

    /// Shift, sum and square of a chunk's channel, and the statistics of a group; backward two sums, and two means.
    fn partial_numbers(&self) -> Numbers {
        if self.tensors == 1 {
            Numbers { of_chunk_channel: 3, of_group: 4 }
        } else {
            Numbers { of_chunk_channel: 2, of_group: 2 }
        }
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

    /// Refuses what the forms of one launch do not serve whose blocks make statistics for themselves.
    fn check_statistics(&self) -> Result<(), Reason> {
        let (p, is_apart) = (self.p, self.p.shape.groups > 0);
        needs(!p.cumulative, "it does not count batches")?;
        needs(!(is_apart && p.has_running), "it does not update running statistics of samples")?;
        needs(self.is_merged || is_apart || self.samples == 1, "the rows of all samples have to lie at one stride")
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
