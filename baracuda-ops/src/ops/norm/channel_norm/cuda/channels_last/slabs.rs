//! Slabs, some tiles or some samples, in the shared memory and the registers of all multiprocessors.

use baracuda_ops_sys as sys;

use super::{BUSY, CHAIN_ROWS, Rows, STAGE_ROWS, THREADS, Tuned};
use crate::narrow::{grid, word};
use crate::ops::activation::Activation;

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

/// Channels and vectors of the widest tile of the resident variant, its stages from compute capability 9.0 on and before, and shared memory
/// that it declares itself, with what the device keeps of a block.
const RESIDENT_CHANNELS: u64 = 128;
const RESIDENT_VECTORS: u64 = 32;
const RESIDENT_STAGES: (u64, u64) = (6, 4);
const RESIDENT_OWN_BYTES: u64 = 11 * 1024;
/// Bytes of the narrowest tile of it that is not a whole row: neighbours of a narrower one are read at another time.
const RESIDENT_TILE_BYTES: u64 = 128;
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

impl Rows<'_> {
    /// Forward of one sample: a block for every tile and chunk.
    pub(super) fn one_turn(&self) -> Option<Tuned> {
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
        tuned.grid = grid(tiles * chunks)?;
        tuned.stages = word(stages);
        // Rounded: whole stages of all blocks.
        let stage = u64::from(tuned.grid) * self.stage_bytes(THREADS);
        tuned.cached = word((CACHED_BYTES + stage / 2) / stage);
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
    pub(super) fn slabs_forward(&self) -> Option<Tuned> {
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
            grid: grid(form.grid)?,
            stages: word(stages),
            workspace_bytes: self.workspace_bytes(form.chunks, numbers.0, numbers.1)?,
            launches: 1,
            overlaps: u32::from(self.p.capability >= 90),
            ..self.start(variant, form.tile, SLAB_THREADS, form.chunks)?
        })
    }

    /// Backward from dy and x alone: slabs of tiles or samples, of which most stays on chip. The form whose blocks move the fewest bytes.
    pub(super) fn slabs(&self) -> Option<Tuned> {
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
            best = Some((cost, Tuned { cached: word(cached), ..tuned }));
        }
        best.map(|(_, tuned)| tuned)
    }
}
