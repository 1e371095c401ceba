//! Which CUDA variant serves which channels-last problem: a pure function of shapes, types and device properties. A file for
//! each variant or two.
//!
//! The numbers were measured on an H200 (132 multiprocessors, CUDA 13.0).

mod cluster;
mod passes;
mod registers;
mod slabs;
#[cfg(test)]
mod tests;

use super::{Problem, Tuned, contiguous};
use crate::narrow::word;
use registers::{ROWS_BUSY, ROWS_WANTED};

/// Threads of the largest block.
const THREADS: u64 = 512;
/// The most rows of a thread in a chunk: they bound its chains of additions.
const CHAIN_ROWS: u64 = 256;
/// Rows of a thread in one stage of a ring.
const STAGE_ROWS: u64 = 4;
/// The share of the multiprocessors that has work, below which another form is tried.
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

    /// Chunks of as many rows, none without a row.
    fn even_chunks(&self, chunks: u64) -> u64 {
        self.rows.div_ceil(self.rows.div_ceil(chunks.clamp(1, self.rows)))
    }

    fn start(&self, variant: u32, tile: u64, threads: u64, chunks: u64) -> Option<Tuned> {
        let backward = u32::from(self.tensors > 1);
        Some(Tuned {
            variant,
            vec_bytes: word(self.width * u64::from(self.p.element_bytes)),
            vectors: word(tile),
            threads: word(threads),
            chunks: u32::try_from(chunks).ok().filter(|_| self.samples * chunks < u64::from(u32::MAX))?,
            is_merged: u32::from(self.is_merged),
            tensors: backward * word(self.tensors),
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
