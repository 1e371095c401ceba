//! Slabs, some tiles or some samples, one after another in the shared memory and the registers of all multiprocessors.

use baracuda_ops_sys as sys;

use super::{Answer, BATCH_ROWS, BUSY, ChannelProblem, Chosen, Numbers, OWN_SHARED_BYTES, Rows, needs};
use crate::narrow::{grid, word};
use crate::ops::activation::Activation;

pub(super) type Choice = sys::bops_channels_last_norm_slabs_choice;

/// Threads of a block.
const THREADS: u64 = 256;
/// Bytes of the tiles that are tried, and of the narrow one.
const TILE_BYTES: [u64; 2] = [256, NARROW_TILE_BYTES];
const NARROW_TILE_BYTES: u64 = 128;
/// Batches of the ring, on devices of compute capability 9.0 and later, and on earlier ones.
const BATCHES: u64 = 13;
const BATCHES_BEFORE_90: u64 = 9;
/// The most rows of a thread. Its chains of additions take 40 rows, backward 32, and then the sums of those.
const MOST_ROWS: u64 = 1024;
/// Bytes that a block could move while its slab exchanges sums.
const EXCHANGE_BYTES: u64 = 120_000;

/// Forward: batches in registers, and the most batches of a slab that the L2 is asked to keep.
const FORWARD_REGISTER_BATCHES: u64 = 10;
const FORWARD_CACHED_BATCHES: u64 = 16;
/// A launch begins while the previous one ends if at most so many batches of a slab are read again.
const OVERLAPPING_BATCHES: u64 = 2;
/// What a narrow tile costs beside a wide one, in percent.
const NARROW_TILE_PERCENT: u64 = 108;

/// Backward: rows of a thread in a batch, and batches in registers by the bytes of an element.
const BACKWARD_BATCH_ROWS: u64 = 2;
const REGISTER_BATCHES_OF_2_BYTES: u64 = 10;
const REGISTER_BATCHES_OF_4_BYTES: u64 = 11;
/// Batches of a slab that the L2 is asked to keep between the two walks, by the bytes of an element. With 4 bytes it is asked only if fewer batches
/// are read again than shared memory holds.
const CACHED_BATCHES_OF_2_BYTES: u64 = 9;
const CACHED_BATCHES_OF_4_BYTES: u64 = 6;
/// What a byte costs if a slab does not have whole rows, relative to a slab of whole rows: the other parts of a row are read at another time.
const PART_OF_ROW_COST: f64 = 1.08;

/// How slabs are taken.
struct Slabs {
    /// Vectors of a tile, chunks of a sample, and blocks.
    tile: u64,
    chunks: u64,
    blocks: u64,
    /// Rows of a thread.
    rows: u64,
    slabs: u64,
    has_whole_rows: bool,
}

/// Forward from x alone: the slabs whose blocks move the fewest bytes. Bytes that the L2 keeps count half.
pub(in super::super) fn forward(p: &ChannelProblem) -> Answer<Choice> {
    let rows = Rows::forward(p)?.on_chip()?;
    needs(!p.has_extra && p.activation == Activation::Identity, "it takes no activation and no residual")?;
    rows.check_statistics()?;
    p.needs_capability(80)?;
    rows.forward_slabs().ok_or_else(|| rows.too_large())
}

/// Backward from dy and x alone: the slabs whose blocks move the fewest bytes.
pub(in super::super) fn backward(p: &ChannelProblem) -> Answer<Choice> {
    let rows = Rows::backward(p)?.on_chip()?;
    needs(p.is_plain(), "it writes dx, and takes no activation, no residual and no y")?;
    rows.check_statistics()?;
    p.needs_capability(80)?;
    rows.backward_slabs().ok_or_else(|| rows.too_large())
}

impl Rows<'_> {
    /// The slabs whose blocks keep the multiprocessors busy, or any slabs if the form is pinned. A slab is all tiles of some samples, or some tiles
    /// of one sample.
    fn slabs(&self) -> impl Iterator<Item = Slabs> {
        let (p, shape, samples) = (self.p, &self.p.shape, self.samples);
        let group_channels = shape.channels.checked_div(shape.groups).unwrap_or(1);
        let multiprocessors = u64::from(p.multiprocessors);
        let is_whole =
            move |tile: &u64| self.vectors.is_multiple_of(*tile) && (tile * self.width).is_multiple_of(group_channels);
        TILE_BYTES.map(|bytes| bytes / 16).into_iter().filter(is_whole).flat_map(move |tile| {
            let (tiles, lanes) = (self.vectors / tile, THREADS / tile);
            (1..=multiprocessors).filter_map(move |units| {
                let of_samples = units.is_multiple_of(tiles) && samples.is_multiple_of(units / tiles);
                let chunks = (multiprocessors / units).min(self.rows.div_ceil(lanes));
                let is_busy = p.is_pinned || (units * chunks) as f64 >= BUSY * multiprocessors as f64;
                (is_busy && (of_samples || tiles.is_multiple_of(units))).then(|| Slabs {
                    tile,
                    chunks,
                    blocks: units * chunks,
                    rows: self.rows.div_ceil(lanes * chunks),
                    slabs: samples * tiles / units,
                    has_whole_rows: units.is_multiple_of(tiles),
                })
            })
        })
    }

    fn ring_batches(&self) -> u64 {
        if self.p.capability >= 90 { BATCHES } else { BATCHES_BEFORE_90 }
    }

    fn slabs_choice(&self, slabs: &Slabs, numbers: Numbers, cached: u64, overlaps: bool) -> Option<Chosen<Choice>> {
        let choice = Choice {
            tile_vectors: word(slabs.tile),
            chunks: self.chunks(slabs.chunks)?,
            is_merged: self.merged(),
            threads: word(THREADS),
            blocks: grid(slabs.blocks)?,
            ring_batches: word(self.ring_batches()),
            cached_batches: word(cached),
            overlaps: u32::from(overlaps && self.p.capability >= 90),
        };
        Some(Chosen { choice, workspace_bytes: self.workspace_bytes(slabs.chunks, numbers)?, launches: 1 })
    }

    fn forward_slabs(&self) -> Option<Chosen<Choice>> {
        let batches = self.ring_batches();
        // The rings, and one row of each thread.
        let shared_bytes = batches * self.batch_bytes(THREADS) + THREADS * 16 + OWN_SHARED_BYTES;
        if shared_bytes > u64::from(self.p.shared_bytes) {
            return None;
        }
        let mut best: Option<(u64, Chosen<Choice>)> = None;
        for slabs in self.slabs().filter(|slabs| slabs.rows <= MOST_ROWS) {
            let of_slab = slabs.rows.div_ceil(BATCH_ROWS);
            let again = of_slab.saturating_sub(batches + FORWARD_REGISTER_BATCHES);
            let cached = again.min(FORWARD_CACHED_BATCHES);
            let walks = slabs.rows * THREADS * 16 * (4 * of_slab + 2 * again - cached) / (2 * of_slab);
            let percent = if slabs.tile * 16 == NARROW_TILE_BYTES { NARROW_TILE_PERCENT } else { 100 };
            let cost = slabs.slabs * (walks + EXCHANGE_BYTES) * percent;
            if best.is_some_and(|(least, _)| least <= cost) {
                continue;
            }
            let overlaps = again <= OVERLAPPING_BATCHES;
            best = Some((cost, self.slabs_choice(&slabs, self.partial_numbers(), cached, overlaps)?));
        }
        best.map(|(_, chosen)| chosen)
    }

    fn backward_slabs(&self) -> Option<Chosen<Choice>> {
        let p = self.p;
        let batches = self.ring_batches();
        let fit =
            batches + if p.element_bytes == 2 { REGISTER_BATCHES_OF_2_BYTES } else { REGISTER_BATCHES_OF_4_BYTES };
        let ring_bytes = batches * BACKWARD_BATCH_ROWS * THREADS * 16 * self.tensors;
        if ring_bytes + OWN_SHARED_BYTES > u64::from(p.shared_bytes) {
            return None;
        }
        let mut best: Option<(f64, Chosen<Choice>)> = None;
        for slabs in self.slabs().filter(|slabs| slabs.rows <= MOST_ROWS) {
            let of_slab = slabs.rows.div_ceil(BACKWARD_BATCH_ROWS);
            if slabs.slabs > 1 && of_slab < batches {
                continue;
            }
            let again = of_slab.saturating_sub(fit);
            let walks = slabs.rows * THREADS * 16 * (3 * of_slab + 2 * again) / of_slab;
            let part = if slabs.has_whole_rows { 1.0 } else { PART_OF_ROW_COST };
            let cost = (slabs.slabs * (walks + EXCHANGE_BYTES)) as f64 * part;
            if best.is_some_and(|(least, _)| least <= cost) {
                continue;
            }
            let cached = match p.element_bytes {
                2 => CACHED_BATCHES_OF_2_BYTES.min(again),
                _ if again < batches => CACHED_BATCHES_OF_4_BYTES.min(again),
                _ => 0,
            };
            let numbers = Numbers { of_group: 0, ..self.partial_numbers() };
            best = Some((cost, self.slabs_choice(&slabs, numbers, cached, true)?));
        }
        best.map(|(_, chosen)| chosen)
    }
}
