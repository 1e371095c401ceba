//! The forms that read rows twice: `cooperative` in one launch, which keeps the last rows on chip, and `split` in three.

use baracuda_ops_sys as sys;

use super::{Answer, BATCH_ROWS, BUSY, CHAIN_ROWS, ChannelProblem, Chosen, Rows, THREADS};
use crate::backend::cuda::MOST_STRIDING_BLOCKS;
use crate::error::Reason;
use crate::narrow::{grid, word};

pub(in super::super) type Choice = sys::bops_channels_last_norm_cooperative_choice;
pub(in super::super) type SplitChoice = sys::bops_channels_last_norm_split_choice;

/// Vectors of the widest tile, forward.
const FORWARD_TILE_VECTORS: u64 = 32;
/// Vectors of the widest tile, backward.
const BACKWARD_TILE_VECTORS: u64 = 16;
/// Channels of the widest tile, if an access is one channel.
const TILE_CHANNELS: u64 = 64;
/// Shared memory that `cooperative` declares for each channel of a thread's vector, in bytes.
const SUM_BYTES: u64 = 640 * 4;
/// What `cooperative` declares besides, with what the device keeps of a block's shared memory, in bytes.
const OWN_BYTES: u64 = 1024;
/// How many numbers of turns are tried, from the least number on.
const TURNS: u64 = 4;
/// The share of the SMs to which a further turn has to give work to be worth it: it costs a walk over more, shorter chunks.
const WORTH_A_TURN: f64 = 0.02;

/// Blocks of `split`.
struct SplitBlock {
    threads: u64,
    /// Rows of a thread in a chunk.
    rows: u64,
}
/// Of the launch that adds up rows.
const WITH_SUMS: SplitBlock = SplitBlock { threads: 512, rows: 32 };
/// Of the launch that only writes.
const WITHOUT_SUMS: SplitBlock = SplitBlock { threads: 256, rows: 4 };

pub(in super::super) fn cooperative_forward(p: &ChannelProblem) -> Answer<Choice> {
    cooperative(Rows::forward(p)?.on_chip()?)
}

pub(in super::super) fn cooperative_backward(p: &ChannelProblem) -> Answer<Choice> {
    cooperative(Rows::backward(p)?.on_chip()?)
}

fn cooperative(rows: Rows<'_>) -> Answer<Choice> {
    rows.cooperative().ok_or_else(|| rows.too_large())
}

pub(in super::super) fn split_forward(p: &ChannelProblem) -> Answer<SplitChoice> {
    let rows = Rows::forward(p)?;
    if p.inference {
        return Ok(Chosen::alone(rows.split(&WITHOUT_SUMS, 0)?));
    }
    rows.split_with_sums(3)
}

pub(in super::super) fn split_backward(p: &ChannelProblem) -> Answer<SplitChoice> {
    let applies = !p.inference && p.has_element_gradients;
    Rows::backward(p)?.split_with_sums(2 + u32::from(applies))
}

impl Rows<'_> {
    fn tile_vectors(&self) -> u64 {
        if self.tensors == 1 { FORWARD_TILE_VECTORS } else { BACKWARD_TILE_VECTORS }
    }

    /// One block an SM, with the fewest turns that give all or nearly all of them work.
    fn cooperative(&self) -> Option<Chosen<Choice>> {
        let p = self.p;
        let blocks = p.multiprocessors;
        let tile = self.tile(self.tile_vectors());
        let own = SUM_BYTES * self.width + OWN_BYTES;
        let batches = p.shared_bytes.checked_sub(own)? / self.batch_bytes(THREADS);
        if batches == 0 {
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
            if chunks >= least && best.is_none_or(|(most, _)| busy > most + WORTH_A_TURN) {
                best = Some((busy, chunks));
            }
            if busy >= BUSY {
                break;
            }
        }
        let (_, chunks) = best?;
        let of_chunk = self.rows.div_ceil(chunks).div_ceil(THREADS / tile).div_ceil(BATCH_ROWS);
        let choice = Choice {
            tile_vectors: word(tile),
            chunks: self.chunks(chunks)?,
            is_merged: self.merged(),
            threads: word(THREADS),
            blocks: grid((units * chunks).min(blocks))?,
            ring_batches: word(batches.min(of_chunk * TURNS)),
            tensors: word(self.tensors),
        };
        let workspace_bytes = self.workspace_bytes(chunks, self.group_numbers()).ok()?;
        Some(Chosen { workspace_bytes, ..Chosen::alone(choice) })
    }

    fn split(&self, block: &SplitBlock, overlaps: u32) -> Result<SplitChoice, Reason> {
        let tile = self.tile(if self.is_wide() { self.tile_vectors() } else { TILE_CHANNELS });
        let chunks = self.even_chunks(self.rows.div_ceil(block.threads / tile * block.rows));
        let items = (self.samples * chunks).saturating_mul(self.vectors.div_ceil(tile));
        Ok(SplitChoice {
            access_bytes: word(self.width * self.p.element_bytes),
            tile_vectors: word(tile),
            chunks: self.chunks(chunks).ok_or_else(|| format!("{} samples of {chunks} chunks", self.samples))?,
            is_merged: self.merged(),
            threads: word(block.threads),
            blocks: word(items.min(MOST_STRIDING_BLOCKS)),
            overlaps,
        })
    }

    fn split_with_sums(&self, launches: u32) -> Answer<SplitChoice> {
        let choice = self.split(&WITH_SUMS, u32::from(self.p.capability >= 90))?;
        let workspace_bytes = self.workspace_bytes(u64::from(choice.chunks), self.group_numbers())?;
        Ok(Chosen { choice, workspace_bytes, launches })
    }
}
