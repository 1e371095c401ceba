//! Rows that are read twice: in one launch or in three.

use baracuda_ops_sys as sys;

use super::{BUSY, CHAIN_ROWS, Rows, STAGE_ROWS, THREADS, Tuned};
use crate::narrow::{grid, word};

/// Vectors of the widest tile of the cooperative and split variants, forward and backward, and channels of it where a vector is one channel.
const TILE_VECTORS: [u64; 2] = [32, 16];
const TILE_CHANNELS: u64 = 64;
/// Threads of a block of the split variant and rows of a thread in a chunk; the same where there are no sums to make.
const SPLIT_FORM: (u64, u64) = (512, 32);
const APPLY_FORM: (u64, u64) = (256, 4);
/// Shared memory that kernels declare themselves for one channel of a thread's vector, beyond that for all, and what the device keeps of a block.
const SUM_BYTES: u64 = 640 * 4;
const OWN_BYTES: u64 = 1024;
/// Turns that blocks of the cooperative variant may take.
const TURNS: u64 = 4;

impl Rows<'_> {
    fn tile_vectors(&self) -> u64 {
        TILE_VECTORS[usize::from(self.tensors > 1)]
    }

    /// One block a multiprocessor.
    pub(super) fn cooperative(&self) -> Option<Tuned> {
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
        tuned.grid = grid((units * chunks).min(blocks))?;
        tuned.stages =
            word(stages.min(self.rows.div_ceil(chunks).div_ceil(THREADS / tile).div_ceil(STAGE_ROWS) * TURNS));
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

    pub(super) fn split_forward(&self) -> Result<Tuned, String> {
        if self.p.inference {
            return Ok(Tuned { launches: 1, ..self.split(APPLY_FORM)? });
        }
        let tuned = self.split(SPLIT_FORM)?;
        self.with_partials(Tuned { launches: 3, ..tuned })
    }

    pub(super) fn split_backward(&self) -> Result<Tuned, String> {
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
