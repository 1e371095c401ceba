//! Forward of one sample in the shared memory and the registers of all SMs: a block for every tile and chunk.

use baracuda_ops_sys as sys;

use super::{Answer, CHAIN_ROWS, ChannelProblem, Chosen, OWN_SHARED_BYTES, Rows, THREADS, needs};
use crate::narrow::{grid, word};

pub(in super::super) type Choice = sys::bops_channels_last_norm_resident_choice;

/// Channels of the widest tile.
const MOST_CHANNELS: u64 = 128;
/// Vectors of the widest tile.
const MOST_VECTORS: u64 = 32;
/// Bytes of the narrowest tile that is not a whole row: the rest of its cache lines would be read at another time.
const TILE_BYTES: u64 = 128;
/// Batches of the ring, as in the kernel: what the shared memory of a block holds.
const BATCHES: u64 = 6;
/// Batches of the ring before compute capability 9.0.
const BATCHES_BEFORE_90: u64 = 4;
/// Bytes of x that the L2 is asked to keep between the two walks over the rows, measured: a third of the 50 MB of an H200. With fewer, more rows come from
/// memory again; with more, lines leave the L2 before the second walk reads them.
const CACHED_BYTES: u64 = 17_000_000;

pub(in super::super) fn forward(p: &ChannelProblem) -> Answer<Choice> {
    let rows = Rows::forward(p)?.on_chip()?;
    needs(rows.samples == 1, "there is more than one sample, or their rows do not lie at one stride")?;
    p.needs_capability(80)?;
    rows.in_one_turn().ok_or_else(|| rows.too_large())
}

impl Rows<'_> {
    fn in_one_turn(&self) -> Option<Chosen<Choice>> {
        let p = self.p;
        let most = MOST_VECTORS.min(MOST_CHANNELS / self.width);
        let tile = most.min(1 << self.vectors.trailing_zeros());
        let tiles = self.vectors / tile;
        let lanes = THREADS / tile;
        let chunks = (p.multiprocessors / tiles).min(self.rows.div_ceil(lanes));
        let is_narrow = tiles > 1 && tile * 16 < TILE_BYTES && !p.is_pinned;
        if chunks == 0 || is_narrow {
            return None;
        }
        let batches = if p.capability >= 90 { BATCHES } else { BATCHES_BEFORE_90 };
        let shared_bytes = batches * self.batch_bytes(THREADS) + OWN_SHARED_BYTES;
        if self.rows.div_ceil(lanes * chunks) > CHAIN_ROWS || shared_bytes > p.shared_bytes {
            return None;
        }
        let blocks = tiles * chunks;
        // A batch of all blocks; the number of cached batches is rounded to whole ones.
        let batch = blocks * self.batch_bytes(THREADS);
        let choice = Choice {
            tile_vectors: word(tile),
            chunks: self.chunks(chunks)?,
            is_merged: self.merged(),
            threads: word(THREADS),
            blocks: grid(blocks)?,
            ring_batches: word(batches),
            cached_batches: word((CACHED_BYTES + batch / 2) / batch),
        };
        let workspace_bytes = self.workspace_bytes(chunks, self.group_numbers()).ok()?;
        Some(Chosen { workspace_bytes, ..Chosen::alone(choice) })
    }
}
