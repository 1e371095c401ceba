//! Which CUDA variant serves which rows: a pure function of shapes, types and device properties.
//!
//! The tables were measured on an H200 (132 multiprocessors, CUDA 13.0) over rows of 128 to 262144 columns. The fields of a
//! choice are those of `bops_row_norm_choice` in `csrc/bops_row_norm.h`.

use crate::backend::cuda::{resident_clusters, tuned};
use crate::narrow::word;

mod backward;
mod forward;
#[cfg(test)]
mod tests;

pub(super) use backward::backward;
pub(super) use forward::forward;

/// What the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) rows: u64,
    pub(super) cols: u64,
    /// Bytes of an element of x.
    pub(super) element_bytes: u32,
    /// Bytes of a statistic.
    pub(super) accumulator_bytes: u32,
    /// Bytes of an element of weight or bias; 0 without.
    pub(super) parameter_bytes: u32,
    /// The widest vector that every row starts at a multiple of and is a whole number of.
    pub(super) vector_bytes: u32,
    /// What the parameters start at a multiple of.
    pub(super) parameter_align_bytes: u32,
    /// Whether every tensor's rows lie at one stride, below 2^32 elements.
    pub(super) has_one_stride: bool,
    /// Whether the mean is subtracted.
    pub(super) is_centered: bool,
    /// Whether there is a residual, or dh.
    pub(super) has_residual: bool,
    pub(super) has_parameter_gradients: bool,
    /// Major times 10 plus minor.
    pub(super) capability: u32,
    pub(super) multiprocessors: u32,
    /// Shared memory that one block may have.
    pub(super) shared_bytes: u32,
    /// Blocks of the largest cluster; 1 without clusters.
    pub(super) max_cluster: u32,
}

tuned! {
    /// A choice, with what a run needs for it.
    pub(super) struct Tuned of bops_row_norm_choice {
        variant, vec_bytes, vectors, threads, threads_per_row, cluster, stages, grid, flush_rows, flushes, chunks,
        overlaps, late_blocks, partial_rows,
    }
}

/// Threads of the largest block.
const MAX_THREADS: u64 = 512;
/// Accesses of a chunk of the split variants.
const CHUNK: u64 = 1024;
/// Blocks of a launch that strides over its work.
const MAX_GRID: u64 = 1 << 19;
/// Shared memory that kernels declare themselves and what the device keeps for itself, in bytes.
const RESERVED_SHARED: u64 = 4096;

/// The numbers of a kernel whose teams stage vectors through rings: threads of a block, vectors of a thread, blocks of a cluster (the
/// most of them, forward), blocks of a multiprocessor. A thread's ring has a few more places than two rows take.
#[derive(Clone, Copy, Debug)]
struct Ring {
    threads: u64,
    vectors: u64,
    cluster: u64,
    blocks: u64,
    stages: u64,
    /// Whether there are no more teams than the turns that they take need; backward.
    is_even: bool,
}

const fn ring(threads: u64, vectors: u64, lookahead: u64, cluster: u64, blocks: u64) -> Ring {
    Ring { threads, vectors, cluster, blocks, stages: 2 * vectors + lookahead, is_even: false }
}

impl Ring {
    const fn even(self) -> Self {
        Self { is_even: true, ..self }
    }
}

impl Tuned {
    fn set_ring(&mut self, ring: &Ring, cluster: u64, teams: u64) {
        self.vectors = word(ring.vectors);
        self.threads = word(ring.threads);
        self.threads_per_row = word(ring.threads);
        self.cluster = word(cluster);
        self.stages = word(ring.stages);
        self.grid = word(teams * cluster);
    }
}

impl Problem {
    /// What a ring kernel starts from, where one serves: parameters of x's type stay packed in registers.
    fn start_ring(&self, variant: u32) -> Option<Tuned> {
        let tuned = self.start_persistent(variant)?;
        let is_packed = self.parameter_bytes == 0 || self.parameter_bytes == self.element_bytes;
        (is_packed && self.capability >= 90).then_some(tuned)
    }

    /// The row of a table by 2 bytes centered, 2 bytes, 4 bytes centered, 4 bytes.
    fn kind(&self) -> usize {
        2 * usize::from(self.element_bytes != 2) + usize::from(!self.is_centered)
    }

    fn elements(&self, vec_bytes: u32) -> u64 {
        u64::from(vec_bytes / self.element_bytes)
    }

    /// The widest access that rows and parameters allow.
    fn vec_bytes(&self) -> u32 {
        let widths: &[u32] = if self.element_bytes == 8 { &[8] } else { &[16, 4, 2] };
        let fits = |&&bytes: &&u32| {
            let parameter = (bytes / self.element_bytes * self.parameter_bytes).clamp(1, 16);
            bytes >= self.element_bytes
                && self.vector_bytes.is_multiple_of(bytes)
                && self.parameter_align_bytes.is_multiple_of(parameter)
        };
        widths.iter().find(fits).copied().unwrap_or(self.element_bytes)
    }

    /// What every choice shares, or why none serves.
    fn start(&self, variant: u32) -> Result<Tuned, String> {
        if self.rows > u64::from(u32::MAX) {
            return Err(format!("{} rows, the limit is {}", self.rows, u32::MAX));
        }
        let overlaps = u32::from(self.capability >= 90);
        Ok(Tuned { variant, vec_bytes: self.vec_bytes(), cluster: 1, launches: 1, overlaps, ..Tuned::default() })
    }

    /// What a variant of chunks of rows starts from.
    fn start_split(&self, variant: u32) -> Result<Tuned, String> {
        let tuned = self.start(variant)?;
        let all = self.cols.div_ceil(self.elements(tuned.vec_bytes)).div_ceil(CHUNK).max(1);
        let chunks = u32::try_from(all).map_err(|_| format!("rows of {} elements make {all} chunks", self.cols))?;
        let grid = word(self.rows.saturating_mul(all).clamp(1, MAX_GRID));
        Ok(Tuned { chunks, vectors: 4, threads: 256, threads_per_row: 256, grid, ..tuned })
    }

    /// Bytes of so many numbers for each chunk of a row, and once more for the row.
    fn split_bytes(&self, tuned: &Tuned, numbers: u64) -> Option<u64> {
        self.rows.checked_mul(u64::from(tuned.chunks) + 1)?.checked_mul(numbers * u64::from(self.accumulator_bytes))
    }

    /// What every choice shares, where a persistent kernel serves: it counts rows in 32 bits past the last.
    fn start_persistent(&self, variant: u32) -> Option<Tuned> {
        let tuned = self.start(variant).ok()?;
        let serves = tuned.vec_bytes == 16 && self.element_bytes < 8 && self.has_one_stride && self.rows > 0;
        (serves && self.cols > 0 && self.rows < 1 << 31).then_some(tuned)
    }

    /// Whether rows of so many vectors are so few that they leave the chip to latency.
    fn is_thin(&self, vectors: u64) -> bool {
        self.rows <= 2 * u64::from(self.multiprocessors) && (64..=2 * MAX_THREADS).contains(&vectors)
    }

    fn clusters(&self) -> impl Iterator<Item = u64> + use<> {
        let max = u64::from(self.max_cluster);
        [2, 4, 8, 16].into_iter().filter(move |&cluster| cluster <= max)
    }

    /// Clusters that are resident at once.
    fn teams(&self, cluster: u64, blocks: u64) -> u64 {
        resident_clusters(self.multiprocessors, cluster, blocks)
    }
}

/// Threads that hold `vectors` vectors: a power of two up to 32, or a multiple of 32.
fn team(vectors: u64) -> u64 {
    if vectors <= 32 { vectors.max(1).next_power_of_two() } else { vectors.next_multiple_of(32) }
}
