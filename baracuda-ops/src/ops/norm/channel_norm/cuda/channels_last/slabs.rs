//! Slabs, some tiles or some samples, one after another in the shared memory and the registers of all SMs.

use baracuda_ops_sys as sys;

use super::{Answer, BATCH_ROWS, BUSY, ChannelProblem, Chosen, OWN_SHARED_BYTES, Rows, least, needs};
use crate::error::Reason;
use crate::narrow::word;
use crate::ops::activation::Activation;

pub(in super::super) type Choice = sys::bops_channels_last_norm_slabs_choice;

/// Threads of a block.
const THREADS: u64 = 256;
/// Bytes of the tiles that are tried.
const TILE_BYTES: [u64; 2] = [256, NARROW_TILE_BYTES];
/// Bytes of the narrow tile.
const NARROW_TILE_BYTES: u64 = 128;
/// Batches of the ring, as in the kernels: what the shared memory of a block holds.
const BATCHES: u64 = 13;
/// Batches of the ring before compute capability 9.0.
const BATCHES_BEFORE_90: u64 = 9;
/// The most rows of a thread. Its chains of additions take 40 rows, backward 32, and then the sums of those.
const MOST_ROWS: u64 = 1024;
/// Bytes that a block could move while its slab exchanges sums.
const EXCHANGE_BYTES: u64 = 120_000;

/// Forward: batches in registers.
const FORWARD_REGISTER_BATCHES: u64 = 10;
/// Forward: batches of a slab that the L2 is asked to keep, at most.
const FORWARD_CACHED_BATCHES: u64 = 16;
/// A launch begins while the previous one ends if at most so many batches of a slab are read again.
const OVERLAPPING_BATCHES: u64 = 2;
/// What a narrow tile costs beside a wide one, in percent.
const NARROW_TILE_PERCENT: u64 = 108;

/// Backward: rows of a thread in a batch.
const BACKWARD_BATCH_ROWS: u64 = 2;
/// Backward: batches in registers, of 16-bit elements.
const REGISTER_BATCHES_OF_2_BYTES: u64 = 10;
/// Backward: batches in registers, of 32-bit elements.
const REGISTER_BATCHES_OF_4_BYTES: u64 = 11;
/// Backward: batches of a slab that the L2 is asked to keep between the two walks, of 16-bit elements.
const CACHED_BATCHES_OF_2_BYTES: u64 = 9;
/// Backward: batches of a slab that the L2 is asked to keep between the two walks, of 32-bit elements. It is asked only if fewer batches are read
/// again than shared memory holds.
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

/// What a form of a pass keeps of its slabs.
struct Kept {
    /// Rows of a thread in a batch, batches in registers, and batches in the ring.
    batch_rows: u64,
    register_batches: u64,
    ring_batches: u64,
}

impl Kept {
    /// Batches of a thread in a slab; of these, those that are read again.
    fn batches(&self, slabs: &Slabs) -> u64 {
        slabs.rows.div_ceil(self.batch_rows)
    }

    fn again(&self, slabs: &Slabs) -> u64 {
        self.batches(slabs).saturating_sub(self.ring_batches + self.register_batches)
    }
}

/// Forward from x alone: the slabs whose blocks move the fewest bytes. Bytes that the L2 keeps count half.
pub(in super::super) fn forward(p: &ChannelProblem) -> Answer<Choice> {
    let rows = Rows::forward(p)?.on_chip()?;
    needs(!p.has_extra && p.activation == Activation::Identity, "it takes no activation and no residual")?;
    let kept = rows.kept(BATCH_ROWS, FORWARD_REGISTER_BATCHES);
    let cached = |slabs: &Slabs| kept.again(slabs).min(FORWARD_CACHED_BATCHES);
    let cost = |slabs: &Slabs| {
        let (of_slab, again) = (kept.batches(slabs), kept.again(slabs));
        let walks = slabs.rows * THREADS * 16 * (4 * of_slab + 2 * again - cached(slabs)) / (2 * of_slab);
        let percent = if slabs.tile * 16 == NARROW_TILE_BYTES { NARROW_TILE_PERCENT } else { 100 };
        Some(slabs.slabs * (walks + EXCHANGE_BYTES) * percent)
    };
    // Beside the ring, one row of each thread.
    let slabs = rows.cheapest(&kept, THREADS * 16, cost)?;
    let overlaps = kept.again(&slabs) <= OVERLAPPING_BATCHES;
    rows.slabs_choice(&slabs, rows.group_numbers(), cached(&slabs), overlaps)
}

/// Backward from dy and x alone: the slabs whose blocks move the fewest bytes.
pub(in super::super) fn backward(p: &ChannelProblem) -> Answer<Choice> {
    let rows = Rows::backward(p)?.on_chip()?;
    needs(p.is_plain(), "it writes dx, and takes no activation, no residual and no y")?;
    let is_short = p.element_bytes == 2;
    let registers = if is_short { REGISTER_BATCHES_OF_2_BYTES } else { REGISTER_BATCHES_OF_4_BYTES };
    let kept = rows.kept(BACKWARD_BATCH_ROWS, registers);
    let cost = |slabs: &Slabs| {
        let of_slab = kept.batches(slabs);
        let walks = slabs.rows * THREADS * 16 * (3 * of_slab + 2 * kept.again(slabs)) / of_slab;
        let part = if slabs.has_whole_rows { 1.0 } else { PART_OF_ROW_COST };
        let serves = slabs.slabs == 1 || of_slab >= kept.ring_batches;
        serves.then_some((slabs.slabs * (walks + EXCHANGE_BYTES)) as f64 * part)
    };
    let slabs = rows.cheapest(&kept, 0, cost)?;
    let cached = match kept.again(&slabs) {
        again if is_short => CACHED_BATCHES_OF_2_BYTES.min(again),
        again if again < kept.ring_batches => CACHED_BATCHES_OF_4_BYTES.min(again),
        _ => 0,
    };
    rows.slabs_choice(&slabs, 0, cached, true)
}

impl Rows<'_> {
    /// The slabs whose blocks keep the SMs busy, or any slabs if the form is pinned. A slab is all tiles of some samples, or some tiles
    /// of one sample.
    fn slabs(&self) -> impl Iterator<Item = Slabs> {
        let (p, shape, samples) = (self.p, &self.p.shape, self.samples);
        let group_channels = shape.channels.checked_div(shape.groups).unwrap_or(1);
        let multiprocessors = p.multiprocessors;
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

    fn kept(&self, batch_rows: u64, register_batches: u64) -> Kept {
        Kept { batch_rows, register_batches, ring_batches: self.ring_batches() }
    }

    /// The slabs with the least cost. more_bytes: of shared memory beside the ring; cost: of slabs that the kernel serves.
    fn cheapest<K: PartialOrd>(
        &self,
        kept: &Kept,
        more_bytes: u64,
        cost: impl Fn(&Slabs) -> Option<K>,
    ) -> Result<Slabs, Reason> {
        self.check_statistics()?;
        self.p.needs_capability(80)?;
        let ring_bytes = kept.ring_batches * kept.batch_rows * THREADS * 16 * self.tensors;
        let has_room = ring_bytes + more_bytes + OWN_SHARED_BYTES <= self.p.shared_bytes;
        let slabs = self.slabs().filter(|slabs| has_room && slabs.rows <= MOST_ROWS);
        let found = least(slabs.filter_map(|slabs| Some((cost(&slabs)?, slabs))));
        found.map(|(_, slabs)| slabs).ok_or_else(|| self.too_large())
    }

    fn slabs_choice(&self, slabs: &Slabs, group_numbers: u64, cached: u64, overlaps: bool) -> Answer<Choice> {
        let choice = Choice {
            tile_vectors: word(slabs.tile),
            chunks: self.chunks(slabs.chunks).ok_or_else(|| self.too_large())?,
            is_merged: self.merged(),
            threads: word(THREADS),
            blocks: word(slabs.blocks),
            ring_batches: word(self.ring_batches()),
            cached_batches: word(cached),
            overlaps: u32::from(overlaps && self.p.capability >= 90),
        };
        let workspace_bytes = self.workspace_bytes(slabs.chunks, group_numbers)?;
        Ok(Chosen { workspace_bytes, ..Chosen::alone(choice) })
    }
}
