//! Which CUDA variant serves which lines: a pure function of shapes, types and device properties.
//!
//! The tables were measured on an H200 (132 multiprocessors, CUDA 13.0) over rows of 1024 to 262144 elements and over 21 to 1000
//! channels. The fields of a choice are those of `bops_softmax_choice` in `csrc/bops_softmax.h`.

use crate::backend::cuda::tuned;
use crate::narrow::{grid, word};
use baracuda_ops_sys as sys;

/// What the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) is_backward: bool,
    /// Whether lines are dense; else `inner` of them lie side by side.
    pub(crate) is_rows: bool,
    /// Whether x, or dx, is of 16 bits and y is f32.
    pub(crate) is_widening: bool,
    pub(crate) outer: u64,
    pub(crate) dim: u64,
    /// 1 for rows.
    pub(crate) inner: u64,
    /// Bytes of an element of y.
    pub(crate) element_bytes: u32,
    /// Bytes of a sum.
    pub(crate) accumulator_bytes: u32,
    /// The widest vector that every row or run starts at a multiple of and is a whole number of.
    pub(crate) vector_bytes: u32,
    /// Major times 10 plus minor.
    pub(crate) capability: u32,
    pub(crate) multiprocessors: u32,
    /// Shared memory that one block may have.
    pub(crate) shared_bytes: u32,
    /// Blocks of the largest cluster; 1 without clusters.
    pub(crate) max_cluster: u32,
}

tuned! {
    /// A choice, with what a run needs for it.
    pub(crate) struct Tuned of bops_softmax_choice {
        variant, vec_bytes, vectors, threads, across, cluster, grid, chunks, overlaps, tiles,
    }
}

/// Threads of a warp.
const WARP: u64 = 32;
/// Threads of the largest block of rows.
const MAX_THREADS: u64 = 512;
/// Threads of a block of several short rows.
const SHORT_THREADS: u64 = 64;
/// Threads of a block that stages up to so many vectors of x in shared memory, and of one that stages more.
const SHARED_THREADS: [u64; 2] = [256, 512];
const SHARED_VECTORS: u64 = 2048;
/// What kernels declare themselves and the device keeps for itself, in bytes.
const RESERVED_SHARED: u64 = 4096;
/// Accesses of a chunk of a row, elements of a chunk of a line that strides.
const ROW_CHUNK: u64 = 1024;
const CHANNEL_CHUNK: u64 = 32;
/// Threads of a block of the split variants.
const SPLIT_THREADS: u64 = 256;
/// Blocks of a launch that strides over its work.
const MAX_GRID: u64 = 1 << 19;

/// Where a row is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In registers.
    Registers,
    /// In the shared memory of a cluster, y of backward.
    Shared,
}

/// How rows of up to `up_to` vectors are held: place, vectors of a thread, blocks of a cluster.
#[derive(Clone, Copy, Debug)]
struct RowForm {
    up_to: u64,
    place: Place,
    vectors: u64,
    cluster: u64,
}

const fn row(up_to: u64, vectors: u64, cluster: u64) -> RowForm {
    RowForm { up_to, place: Place::Registers, vectors, cluster }
}

const fn shared(up_to: u64, vectors: u64, cluster: u64) -> RowForm {
    RowForm { up_to, place: Place::Shared, vectors, cluster }
}

/// Forward of 2 and 4 bytes, backward of 2 and 4 bytes; the first that serves wins.
const ROWS: [&[RowForm]; 4] = [
    &[row(64, 2, 1), row(2048, 4, 1), row(4096, 8, 1), shared(8192, 8, 4), shared(16384, 8, 8), shared(65536, 8, 16)],
    &[row(64, 2, 1), row(2048, 4, 1), row(4096, 8, 1), shared(8192, 8, 4), shared(16384, 8, 8), shared(65536, 8, 16)],
    &[row(512, 1, 1), row(1024, 4, 1), row(2048, 8, 1), row(8192, 8, 4), row(16384, 8, 8), row(65536, 8, 16)],
    &[
        row(256, 1, 1),
        row(1024, 2, 1),
        row(2048, 4, 1),
        row(4096, 8, 4),
        row(8192, 8, 8),
        row(16384, 8, 16),
        shared(65536, 8, 16),
    ],
];

/// How lines of up to `up_to` elements are held: vectors of a thread, vectors side by side.
#[derive(Clone, Copy, Debug)]
struct ChannelForm {
    up_to: u64,
    vectors: u64,
    across: u64,
}

const fn channel(up_to: u64, vectors: u64, across: u64) -> ChannelForm {
    ChannelForm { up_to, vectors, across }
}

/// Forward of 2 bytes, four to an access, and of 4 bytes.
const CHANNELS: [&[ChannelForm]; 2] = [
    &[
        channel(4, 4, 32),
        channel(8, 8, 32),
        channel(16, 16, 32),
        channel(24, 24, 32),
        channel(64, 16, 16),
        channel(256, 16, 8),
        channel(1024, 32, 8),
        channel(2048, 32, 8),
        channel(4096, 32, 4),
    ],
    &[
        channel(4, 4, 32),
        channel(8, 8, 32),
        channel(16, 8, 16),
        channel(24, 12, 16),
        channel(128, 8, 16),
        channel(256, 8, 8),
        channel(1024, 8, 4),
        channel(2048, 16, 4),
    ],
];
/// Forward of 2 bytes where every vector of every thread exists.
const WHOLE_CHANNELS: ChannelForm = channel(256, 32, 16);
/// Backward, accesses of 16 bytes.
const BACKWARD_CHANNELS: &[ChannelForm] = &[channel(4, 4, 32), channel(64, 4, 16), channel(512, 8, 8)];
/// Backward with y in shared memory, of 2 and of 4 bytes, and how many vectors of a thread lie there. Of 4 bytes, a block that takes a whole
/// line of the cache comes first, where shared memory has room.
const SHARED_CHANNELS: [(&[ChannelForm], u64); 2] =
    [(&[channel(1024, 16, 4)], 26), (&[channel(1024, 16, 8), channel(1024, 16, 4)], 16)];
/// Lines of 2 bytes whose tiles all find a place at once, one or two on a multiprocessor, are taken by blocks of two where a tile has more
/// threads than this.
const ALONE_THREADS: u64 = 128;
/// Accesses of 2 elements, and of one; backward both as the last.
const NARROW_CHANNELS: [&[ChannelForm]; 2] = [&[channel(128, 16, 32), channel(512, 16, 8)], &[channel(512, 16, 32)]];

impl Problem {
    fn elements(&self, vec_bytes: u32) -> u64 {
        u64::from(vec_bytes / self.element_bytes)
    }

    /// The widest access that the layouts allow.
    fn vec_bytes(&self, variant: u32) -> u32 {
        let widths: &[u32] = match (variant, self.element_bytes) {
            (_, 8) => &[8],
            (sys::BOPS_SOFTMAX_CHANNELS_RESIDENT, 2) if !self.is_backward => &[8, 4, 2],
            _ => &[16, 4, 2],
        };
        let fits = |&&bytes: &&u32| bytes >= self.element_bytes && self.vector_bytes.is_multiple_of(bytes);
        widths.iter().find(fits).copied().unwrap_or(self.element_bytes)
    }

    /// What every choice shares, or why none serves.
    fn start(&self, variant: u32) -> Result<Tuned, String> {
        if self.outer > u64::from(u32::MAX) {
            return Err(format!("{} rows or blocks, the limit is {}", self.outer, u32::MAX));
        }
        Ok(Tuned { variant, vec_bytes: self.vec_bytes(variant), cluster: 1, launches: 1, ..Tuned::default() })
    }

    /// A grid that leaves multiprocessors idle gains from its launch beginning early; a larger one only pays for waiting blocks.
    fn overlaps(&self, blocks: u64) -> u32 {
        u32::from(self.capability >= 90 && blocks <= 2 * u64::from(self.multiprocessors))
    }

    /// Values of a line that the parts of split variants hold.
    fn sums(&self) -> u64 {
        if self.is_backward { 1 } else { 2 }
    }
}

/// Threads that hold `vectors` vectors of a row: a power of two up to 32, or a multiple of 32.
fn team(vectors: u64) -> u64 {
    if vectors <= 32 { vectors.max(1).next_power_of_two() } else { vectors.next_multiple_of(32) }
}

/// The variant that serves.
pub(crate) fn choose(p: &Problem) -> Result<Tuned, String> {
    if p.is_rows {
        rows_resident(p).map_or_else(|| rows_split(p), Ok)
    } else {
        channels_resident(p).or_else(|| channels_shared(p)).map_or_else(|| channels_split(p), Ok)
    }
}

/// A row in the registers of a part of a block, a block or a cluster.
fn rows_resident(p: &Problem) -> Option<Tuned> {
    let start = p.start(sys::BOPS_SOFTMAX_ROWS_RESIDENT).ok()?;
    if p.element_bytes == 8 || p.outer == 0 || p.dim == 0 {
        return None;
    }
    let all = p.dim / p.elements(start.vec_bytes);
    if start.vec_bytes < 16 {
        return rows_form(p, start, all, &row(u64::MAX, 16, 1));
    }
    // Few rows leave the chip to latency: spread them thin.
    let is_thin = p.outer <= 2 * u64::from(p.multiprocessors) && (64..=2 * MAX_THREADS).contains(&all);
    if is_thin {
        return rows_form(p, start, all, &row(2 * MAX_THREADS, 2, 1));
    }
    let forms = ROWS[2 * usize::from(p.is_backward) + usize::from(p.element_bytes == 4)];
    // x is copied to shared memory as it is, which elements that become wider are not.
    let serves =
        |form: &&RowForm| all <= form.up_to && !(p.is_widening && !p.is_backward && form.place == Place::Shared);
    forms.iter().filter(serves).find_map(|form| rows_form(p, start, all, form))
}

fn rows_form(p: &Problem, mut tuned: Tuned, all: u64, form: &RowForm) -> Option<Tuned> {
    let slice = all.div_ceil(form.cluster);
    let held = team(slice.div_ceil(form.vectors)).max(if form.cluster > 1 { 64 } else { 1 });
    let (variant, across, shared_bytes) = match form.place {
        Place::Registers => (sys::BOPS_SOFTMAX_ROWS_RESIDENT, held, 0),
        Place::Shared if p.is_backward => (sys::BOPS_SOFTMAX_ROWS_SHARED, held, slice * 16),
        Place::Shared => {
            (sys::BOPS_SOFTMAX_ROWS_SHARED, SHARED_THREADS[usize::from(slice > SHARED_VECTORS)], slice * 16)
        }
    };
    let reserved = if shared_bytes > 0 { RESERVED_SHARED } else { 0 };
    if across > MAX_THREADS
        || form.cluster > u64::from(p.max_cluster)
        || shared_bytes + reserved > u64::from(p.shared_bytes)
    {
        return None;
    }
    let rows = if across <= 32 { SHORT_THREADS / across } else { 1 };
    let blocks = p.outer.div_ceil(rows) * form.cluster;
    tuned.variant = variant;
    tuned.vectors = word(form.vectors);
    tuned.threads = word(across * rows);
    tuned.across = word(across);
    tuned.cluster = word(form.cluster);
    tuned.grid = grid(blocks)?;
    tuned.overlaps = if form.place == Place::Registers { p.overlaps(blocks) } else { 0 };
    Some(tuned)
}

/// Lines in the registers of a block.
fn channels_resident(p: &Problem) -> Option<Tuned> {
    let start = p.start(sys::BOPS_SOFTMAX_CHANNELS_RESIDENT).ok()?;
    let forms = match (start.vec_bytes, p.elements(start.vec_bytes)) {
        (16, _) if p.is_backward => BACKWARD_CHANNELS,
        (_, 4) => CHANNELS[usize::from(p.element_bytes == 4)],
        (_, width) => NARROW_CHANNELS[usize::from(width == 1 && !p.is_backward)],
    };
    let columns = p.outer.saturating_mul(p.inner / p.elements(start.vec_bytes));
    let whole = &WHOLE_CHANNELS;
    let is_whole = !p.is_backward
        && start.vec_bytes == 8
        && p.dim <= whole.up_to
        && p.dim.is_multiple_of(whole.vectors * (WARP / whole.across))
        && columns.is_multiple_of(whole.across);
    let form = if is_whole { whole } else { forms.iter().find(|form| p.dim <= form.up_to)? };
    channels_form(p, start, form, !p.is_backward && form.vectors == 32)
}

/// Gradients of lines in registers and the shared memory of a block.
fn channels_shared(p: &Problem) -> Option<Tuned> {
    let start =
        p.start(sys::BOPS_SOFTMAX_CHANNELS_SHARED).ok().filter(|start| p.is_backward && start.vec_bytes == 16)?;
    let (forms, staged) = SHARED_CHANNELS[usize::from(p.element_bytes == 4)];
    forms.iter().filter(|form| p.dim <= form.up_to).find_map(|form| {
        let one = channels_form(p, start, form, false)?;
        // Vectors, and the sums of its warps.
        let tile_bytes = u64::from(one.threads) * staged * 16 + u64::from(one.threads / 32 * one.across) * 32;
        let has_room = |tiles: u64| tiles * tile_bytes <= u64::from(p.shared_bytes);
        let two = channels_form(p, start, form, p.element_bytes == 2 && has_room(2))?;
        has_room(1).then_some(two)
    })
}

/// Lines by a form; `may_pair`: blocks may take two tiles.
fn channels_form(p: &Problem, mut tuned: Tuned, form: &ChannelForm, may_pair: bool) -> Option<Tuned> {
    if p.element_bytes == 8 || p.outer == 0 || p.dim == 0 || p.inner == 0 {
        return None;
    }
    // Whole warps: where fewer than 32 vectors lie side by side, several threads along the axis share one.
    let along = p.dim.div_ceil(form.vectors).next_multiple_of(WARP / form.across);
    let threads = along * form.across;
    let columns = p.outer.checked_mul(p.inner / p.elements(tuned.vec_bytes)).filter(|&n| n <= i32::MAX as u64)?;
    let (all, multiprocessors) = (columns.div_ceil(form.across), u64::from(p.multiprocessors));
    let is_one_wave = all > multiprocessors && all <= 2 * multiprocessors;
    let tiles = if may_pair && is_one_wave && threads > ALONE_THREADS && threads <= MAX_THREADS / 2 { 2 } else { 1 };
    let blocks = all.div_ceil(tiles);
    tuned.vectors = word(form.vectors);
    tuned.threads = word(threads * tiles);
    tuned.across = word(form.across);
    tuned.grid = grid(blocks)?;
    tuned.tiles = word(tiles);
    tuned.overlaps = p.overlaps(blocks);
    Some(tuned)
}

/// Chunks of rows: parts, merge, apply.
fn rows_split(p: &Problem) -> Result<Tuned, String> {
    let mut tuned = p.start(sys::BOPS_SOFTMAX_ROWS_SPLIT)?;
    tuned.vectors = word(ROW_CHUNK / SPLIT_THREADS);
    split(p, tuned, p.dim.div_ceil(p.elements(tuned.vec_bytes)).div_ceil(ROW_CHUNK), 1)
}

/// Chunks of lines side by side: the same.
fn channels_split(p: &Problem) -> Result<Tuned, String> {
    let tuned = p.start(sys::BOPS_SOFTMAX_CHANNELS_SPLIT)?;
    let tiles = p.inner.div_ceil(p.elements(tuned.vec_bytes)).div_ceil(SPLIT_THREADS);
    split(p, tuned, p.dim.div_ceil(CHANNEL_CHUNK), tiles)
}

fn split(p: &Problem, mut tuned: Tuned, chunks: u64, tiles: u64) -> Result<Tuned, String> {
    let chunks = chunks.max(1);
    tuned.chunks = u32::try_from(chunks).map_err(|_| format!("lines of {} elements make {chunks} chunks", p.dim))?;
    tuned.threads = word(SPLIT_THREADS);
    tuned.grid = word(p.outer.saturating_mul(chunks).saturating_mul(tiles).clamp(1, MAX_GRID));
    tuned.launches = 3;
    let lines = p.outer.checked_mul(p.inner);
    let bytes = lines.and_then(|n| n.checked_mul(chunks + 1)?.checked_mul(p.sums() * u64::from(p.accumulator_bytes)));
    tuned.workspace_bytes = bytes.ok_or("the workspace exceeds 2^64 bytes")?;
    Ok(tuned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200(is_backward: bool, outer: u64, dim: u64, inner: u64, element_bytes: u32) -> Problem {
        let run = if inner == 1 { dim } else { inner };
        Problem {
            is_backward,
            is_rows: inner == 1,
            is_widening: false,
            outer,
            dim,
            inner,
            element_bytes,
            accumulator_bytes: element_bytes.max(4),
            vector_bytes: 1 << (16 | run.wrapping_mul(u64::from(element_bytes))).trailing_zeros(),
            capability: 90,
            multiprocessors: 132,
            shared_bytes: 232_448,
            max_cluster: 16,
        }
    }

    /// Every device, option and shape that a test walks over.
    fn problems() -> impl Iterator<Item = Problem> {
        let dims =
            (1..300).chain([333, 512, 768, 1000, 1024, 4096, 4097, 5120, 8192, 16384, 32768, 65536, 262_144, 1 << 24]);
        let devices = [(16, 232_448, 90), (8, 232_448, 90), (1, 166_912, 80)];
        dims.flat_map(move |dim| {
            devices.into_iter().flat_map(move |(max_cluster, shared_bytes, capability)| {
                [2, 4, 8].into_iter().flat_map(move |element_bytes| {
                    [1, 5, 300, 100_000].into_iter().flat_map(move |outer| {
                        [1, 3, 50, 3136].into_iter().flat_map(move |inner| {
                            [false, true].map(|is_backward| Problem {
                                max_cluster,
                                shared_bytes,
                                capability,
                                ..h200(is_backward, outer, dim, inner, element_bytes)
                            })
                        })
                    })
                })
            })
        })
    }

    /// Whether `softmax.cu` or `softmax_backward.cu` has a kernel of so many vectors a thread.
    fn has_kernel(p: &Problem, tuned: &Tuned) -> bool {
        match (tuned.variant, tuned.vec_bytes / p.element_bytes) {
            (sys::BOPS_SOFTMAX_ROWS_RESIDENT, 4 | 8) => {
                let has_cluster = p.is_backward && tuned.vectors == 8;
                let has_block = match tuned.vectors {
                    1 => p.is_backward,
                    8 => !p.is_backward || p.element_bytes == 2,
                    vectors => matches!(vectors, 2 | 4),
                };
                if tuned.cluster > 1 { has_cluster } else { has_block }
            }
            (sys::BOPS_SOFTMAX_CHANNELS_RESIDENT, 4 | 8) => {
                matches!(tuned.vectors, 4 | 8)
                    || (tuned.vectors == 16 && !p.is_backward)
                    || (tuned.vectors == 12 && !p.is_backward && p.element_bytes == 4)
                    || (matches!(tuned.vectors, 24 | 32) && !p.is_backward && p.element_bytes == 2)
            }
            _ => tuned.vectors == 16 && tuned.cluster == 1,
        }
    }

    /// Threads of the largest block, by `channel_bounds` of `softmax.cu` and of `softmax_backward.cu`.
    fn channel_threads(p: &Problem, tuned: &Tuned) -> u32 {
        let width = tuned.vec_bytes / p.element_bytes;
        if p.is_backward {
            return match tuned.vectors {
                _ if tuned.vec_bytes < 16 => 512,
                8 => 512,
                _ => 256,
            };
        }
        let is_held = p.element_bytes == 4 || tuned.vectors * width <= 32;
        match if is_held { tuned.vectors * width } else { tuned.vectors * tuned.vec_bytes / 4 } {
            ..=16 => 1024,
            32 if p.element_bytes == 4 => 512,
            17..=48 => 256,
            _ => 512,
        }
    }

    /// Whether every element of every line has a thread.
    fn holds_lines(p: &Problem, tuned: &Tuned) -> bool {
        let along = tuned.threads / tuned.tiles / tuned.across;
        let columns = u64::from(tuned.grid * tuned.tiles * tuned.across) * p.elements(tuned.vec_bytes);
        u64::from(along * tuned.vectors) >= p.dim && columns >= p.outer * p.inner
    }

    #[test]
    fn tiles_of_one_wave_are_taken_in_pairs() {
        for (is_backward, variant) in
            [(false, sys::BOPS_SOFTMAX_CHANNELS_RESIDENT), (true, sys::BOPS_SOFTMAX_CHANNELS_SHARED)]
        {
            let tiles = |p: &Problem| choose(p).map(|tuned| (tuned.variant, tuned.tiles, tuned.grid)).unwrap();
            let p = h200(is_backward, 2, 1000, 4096, 2);
            assert_eq!(tiles(&p), (variant, 2, 128));
            assert_eq!(tiles(&Problem { outer: 1, ..p }), (variant, 1, 128));
            assert_eq!(tiles(&Problem { outer: 3, ..p }), (variant, 1, 384));
            assert_eq!(tiles(&Problem { inner: 2144, ..p }), (variant, 2, 67));
            assert_eq!(choose(&h200(is_backward, 2, 1000, 4096, 4)).unwrap().tiles, 1);
        }
        assert_eq!(choose(&h200(false, 2, 300, 4096, 2)).unwrap().tiles, 1);
    }

    #[test]
    fn lines_that_fill_their_threads_take_more_vectors() {
        let form = |outer, dim, inner| {
            let tuned = choose(&h200(false, outer, dim, inner, 2)).unwrap();
            (tuned.vectors, tuned.across)
        };
        assert_eq!(form(8, 64, 65536), (32, 16));
        assert_eq!(form(8, 128, 65536), (32, 16));
        assert_eq!(form(32, 256, 3136), (32, 16));
        assert_eq!(form(1, 64, 72), (16, 16));
        assert_eq!(form(8, 63, 65536), (16, 16));
        assert_eq!(form(8, 255, 65536), (16, 8));
        assert_eq!(form(8, 96, 65536), (16, 8));
    }

    #[test]
    fn gradients_take_less_shared_memory_where_there_is_less() {
        let p = h200(true, 2, 1000, 4096, 4);
        assert_eq!(choose(&p).unwrap().across, 8);
        assert_eq!(choose(&Problem { shared_bytes: 101_376, ..p }).unwrap().across, 4);
        assert_eq!(choose(&Problem { shared_bytes: 65_536, ..p }).unwrap().variant, sys::BOPS_SOFTMAX_CHANNELS_SPLIT);
    }

    #[test]
    fn every_element_of_every_line_has_a_thread() {
        for p in problems() {
            let tuned = choose(&p).unwrap();
            assert!(tuned.threads.is_multiple_of(32) && tuned.threads > 0, "{p:?} {tuned:?}");
            let held = u64::from(tuned.across) * u64::from(tuned.vectors);
            match tuned.variant {
                sys::BOPS_SOFTMAX_ROWS_RESIDENT => {
                    assert!(tuned.threads <= 512 && tuned.cluster <= p.max_cluster, "{p:?} {tuned:?}");
                    assert!(has_kernel(&p, &tuned), "{p:?} {tuned:?}");
                    let held = held * u64::from(tuned.cluster) * p.elements(tuned.vec_bytes);
                    let rows = u64::from(tuned.grid / tuned.cluster * tuned.threads / tuned.across);
                    assert!(held >= p.dim && rows >= p.outer, "{p:?} {tuned:?}");
                }
                sys::BOPS_SOFTMAX_ROWS_SHARED => {
                    assert!((2..=p.max_cluster).contains(&tuned.cluster), "{p:?} {tuned:?}");
                    assert_eq!(u64::from(tuned.grid), p.outer * u64::from(tuned.cluster));
                    if p.is_backward {
                        let held = held * u64::from(tuned.cluster) * p.elements(tuned.vec_bytes);
                        assert!(held >= p.dim && tuned.vectors == 8 && p.element_bytes == 4, "{p:?} {tuned:?}");
                    } else {
                        let slice = p.dim.div_ceil(p.elements(tuned.vec_bytes)).div_ceil(u64::from(tuned.cluster));
                        assert_eq!(tuned.threads, if slice > 2048 { 512 } else { 256 });
                    }
                }
                sys::BOPS_SOFTMAX_CHANNELS_RESIDENT => {
                    assert!(has_kernel(&p, &tuned) && tuned.threads <= channel_threads(&p, &tuned), "{p:?} {tuned:?}");
                    assert!(holds_lines(&p, &tuned), "{p:?} {tuned:?}");
                    let may_pair = !p.is_backward && tuned.vectors == 32 && tuned.threads > 256;
                    assert!(tuned.tiles == 1 || (tuned.tiles == 2 && may_pair), "{p:?} {tuned:?}");
                }
                sys::BOPS_SOFTMAX_CHANNELS_SHARED => {
                    assert!(p.is_backward && tuned.vectors == 16 && tuned.vec_bytes == 16, "{p:?} {tuned:?}");
                    let most = if p.element_bytes == 2 { 256 * tuned.tiles } else { 512 };
                    assert!(tuned.threads <= most && tuned.threads <= 512, "{p:?} {tuned:?}");
                    assert!(holds_lines(&p, &tuned), "{p:?} {tuned:?}");
                }
                sys::BOPS_SOFTMAX_ROWS_SPLIT => {
                    assert!(u64::from(tuned.chunks) * ROW_CHUNK * p.elements(tuned.vec_bytes) >= p.dim)
                }
                _ => assert!(u64::from(tuned.chunks) * CHANNEL_CHUNK >= p.dim),
            }
        }
    }

    #[test]
    fn odd_runs_and_lowered_promises_use_narrow_accesses() {
        assert_eq!(choose(&h200(false, 8, 7, 1, 2)).unwrap().vec_bytes, 2);
        assert_eq!(choose(&h200(false, 8, 7, 6, 2)).unwrap().vec_bytes, 4);
        assert_eq!(choose(&h200(false, 8, 7, 8, 2)).unwrap().vec_bytes, 8);
        assert_eq!(choose(&h200(true, 8, 7, 8, 2)).unwrap().vec_bytes, 16);
        assert_eq!(choose(&h200(true, 8, 8, 1, 8)).unwrap().vec_bytes, 8);
    }

    #[test]
    fn older_devices_have_no_clusters() {
        let p = Problem { capability: 80, max_cluster: 1, ..h200(false, 256, 262_144, 1, 2) };
        assert_eq!(choose(&p).unwrap().variant, sys::BOPS_SOFTMAX_ROWS_SPLIT);
        assert_eq!(choose(&Problem { is_backward: true, ..p }).unwrap().variant, sys::BOPS_SOFTMAX_ROWS_SPLIT);
    }

    #[test]
    fn absurd_sizes_are_refused_not_wrapped() {
        assert!(choose(&h200(false, 1 << 40, 8, 1, 2)).is_err());
        assert!(choose(&h200(false, 1 << 31, 1 << 62, 1, 8)).is_err());
        assert!(choose(&h200(true, 1 << 31, 1 << 30, 1 << 40, 8)).is_err());
    }

    #[test]
    fn elements_that_become_wider_pass_through_registers() {
        let variant = |is_backward, cols| {
            let p = Problem { is_widening: true, ..h200(is_backward, 300, cols, 1, 4) };
            choose(&p).unwrap().variant
        };
        assert_eq!(variant(false, 16384), sys::BOPS_SOFTMAX_ROWS_RESIDENT);
        assert_eq!(variant(false, 16388), sys::BOPS_SOFTMAX_ROWS_SPLIT);
        assert_eq!(variant(true, 262_144), sys::BOPS_SOFTMAX_ROWS_SHARED);
    }
}
