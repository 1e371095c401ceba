//! What each form of the CUDA kernels takes, and with which numbers: pure functions of shapes, types and device properties.
//!
//! The tables were measured on an H200 (132 multiprocessors, CUDA 13.0) over rows of 1024 to 262144 elements and over 21 to 1000
//! channels. The choices are the structs of `csrc/bops_softmax.h`.

use baracuda_ops_sys as sys;

use crate::backend::cuda::{MOST_STRIDING_BLOCKS, Props};
use crate::narrow::{grid, word};
use crate::ops::rows::threads_for;

pub(super) type RowsResident = sys::bops_softmax_rows_resident_choice;
pub(super) type RowsShared = sys::bops_softmax_rows_shared_choice;
pub(super) type ChannelsResident = sys::bops_softmax_channels_resident_choice;
pub(super) type ChannelsShared = sys::bops_softmax_backward_channels_shared_choice;
pub(super) type Split = sys::bops_softmax_split_choice;

/// What a choice depends on besides the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) is_backward: bool,
    /// Whether x, or dx, is of 16 bits and y is f32.
    pub(super) is_widening: bool,
    /// Blocks of `inner` lines side by side; 0 without elements.
    pub(super) outer: u64,
    /// The number of blocks by which numbers are chosen.
    pub(super) samples: u64,
    /// Elements of a line.
    pub(super) dim: u64,
    /// 1 where the axis is dense: each line is a row.
    pub(super) inner: u64,
    /// Bytes of an element of y.
    pub(super) element_bytes: u32,
    /// Bytes of a sum.
    pub(super) accumulator_bytes: u32,
    /// The widest vector in bytes that every row or run starts at a multiple of and is a whole number of.
    pub(super) vector_bytes: u32,
}

/// Threads of a warp.
const WARP: u64 = 32;
/// Threads of the largest block of rows.
const MAX_THREADS: u64 = 512;
/// Threads of a block of several short rows. In smaller blocks the 32 blocks that an SM runs at most would have fewer than its 2048 threads.
const SHORT_THREADS: u64 = 64;
/// Rows of 64 to this many vectors are spread thin if there are at most two for each multiprocessor: a thread has two vectors.
const MOST_THIN_VECTORS: u64 = 1024;
/// Fewest threads of a block that shares a row with others, so that each has several warps.
const FEWEST_CLUSTER_THREADS: u64 = 64;
/// Threads of a block of `rows_shared`, forward: with up to `SHARED_VECTORS` vectors of x, and with more.
const SHARED_THREADS: [u64; 2] = [256, 512];
/// Vectors of x up to which a block of `rows_shared` has the first of `SHARED_THREADS`.
const SHARED_VECTORS: u64 = 2048;
/// Bytes of shared memory that kernels declare themselves and that the device keeps for itself.
const RESERVED_SHARED_BYTES: u64 = 4096;
/// Vectors of a thread, backward, if a cluster's shared memory holds a row.
const SHARED_ROW_VECTORS: u64 = 8;
/// Vectors of each tensor of a thread in `channels_shared`.
const SHARED_CHANNEL_VECTORS: u64 = 16;
/// Accesses in a chunk of a row: `softmax_split_threads * softmax_split_vectors` of `softmax.cuh`.
const ROW_CHUNK: u64 = 1024;
/// Elements in a chunk of a line whose elements are not neighbours: `softmax_split_elements` of `softmax.cuh`.
const CHANNEL_CHUNK: u64 = 32;
/// Threads of a block of `split`.
const SPLIT_THREADS: u64 = 256;

/// How rows are held.
#[derive(Clone, Copy, Debug)]
struct RowHolding {
    /// Vectors of a row, at most.
    up_to: u64,
    /// Vectors of a thread. `rows_shared` forward does not read it: the number of its threads follows from `SHARED_THREADS`.
    vectors: u64,
    /// Blocks of a cluster.
    cluster: u64,
}

/// Rows in registers, forward. Of each table the first entry that suffices is taken.
const ROWS: &[RowHolding] = &[
    RowHolding { up_to: 64, vectors: 2, cluster: 1 },
    RowHolding { up_to: 2048, vectors: 4, cluster: 1 },
    RowHolding { up_to: 4096, vectors: 8, cluster: 1 },
];
/// Rows in registers, backward, of 2 and of 4 bytes an element.
const BACKWARD_ROWS: [&[RowHolding]; 2] = [
    &[
        RowHolding { up_to: 512, vectors: 1, cluster: 1 },
        RowHolding { up_to: 1024, vectors: 4, cluster: 1 },
        RowHolding { up_to: 2048, vectors: 8, cluster: 1 },
        RowHolding { up_to: 8192, vectors: 8, cluster: 4 },
        RowHolding { up_to: 16384, vectors: 8, cluster: 8 },
        RowHolding { up_to: 65536, vectors: 8, cluster: 16 },
    ],
    &[
        RowHolding { up_to: 256, vectors: 1, cluster: 1 },
        RowHolding { up_to: 1024, vectors: 2, cluster: 1 },
        RowHolding { up_to: 2048, vectors: 4, cluster: 1 },
        RowHolding { up_to: 4096, vectors: 8, cluster: 4 },
        RowHolding { up_to: 8192, vectors: 8, cluster: 8 },
        RowHolding { up_to: 16384, vectors: 8, cluster: 16 },
    ],
];
/// As `ROWS`, for rows that are spread thin.
const THIN_ROWS: &[RowHolding] = &[RowHolding { up_to: MOST_THIN_VECTORS, vectors: 2, cluster: 1 }];
/// As `ROWS`, for accesses below 16 bytes.
const NARROW_ROWS: &[RowHolding] = &[RowHolding { up_to: 16 * MAX_THREADS, vectors: 16, cluster: 1 }];
/// Rows in the shared memory of clusters, forward.
const SHARED_ROWS: &[RowHolding] = &[
    RowHolding { up_to: 8192, vectors: 8, cluster: 4 },
    RowHolding { up_to: 16384, vectors: 8, cluster: 8 },
    RowHolding { up_to: 65536, vectors: 8, cluster: 16 },
];
/// Rows in the shared memory of clusters, backward of f32, whose y lies there.
const BACKWARD_SHARED_ROWS: &[RowHolding] = &[RowHolding { up_to: 65536, vectors: SHARED_ROW_VECTORS, cluster: 16 }];

/// How lines over channels are held.
#[derive(Clone, Copy, Debug)]
struct ChannelHolding {
    /// Elements of a line, at most.
    up_to: u64,
    /// Vectors of a thread.
    vectors: u64,
    /// Vectors side by side.
    across: u64,
}

/// Lines in registers, of which the first entry that suffices is taken: forward of 2 bytes, with four elements to an access, and of 4 bytes.
const CHANNELS: [&[ChannelHolding]; 2] = [
    &[
        ChannelHolding { up_to: 4, vectors: 4, across: 32 },
        ChannelHolding { up_to: 8, vectors: 8, across: 32 },
        ChannelHolding { up_to: 16, vectors: 16, across: 32 },
        ChannelHolding { up_to: 24, vectors: 24, across: 32 },
        ChannelHolding { up_to: 64, vectors: 16, across: 16 },
        ChannelHolding { up_to: 256, vectors: 16, across: 8 },
        ChannelHolding { up_to: 1024, vectors: 32, across: 8 },
        ChannelHolding { up_to: 2048, vectors: 32, across: 8 },
        ChannelHolding { up_to: 4096, vectors: 32, across: 4 },
    ],
    &[
        ChannelHolding { up_to: 4, vectors: 4, across: 32 },
        ChannelHolding { up_to: 8, vectors: 8, across: 32 },
        ChannelHolding { up_to: 16, vectors: 8, across: 16 },
        ChannelHolding { up_to: 24, vectors: 12, across: 16 },
        ChannelHolding { up_to: 128, vectors: 8, across: 16 },
        ChannelHolding { up_to: 256, vectors: 8, across: 8 },
        ChannelHolding { up_to: 1024, vectors: 8, across: 4 },
        ChannelHolding { up_to: 2048, vectors: 16, across: 4 },
    ],
];
/// Forward of 2 bytes if every vector of every thread exists.
const WHOLE_CHANNELS: ChannelHolding = ChannelHolding { up_to: 256, vectors: 32, across: 16 };
/// Backward in accesses of 16 bytes.
const BACKWARD_CHANNELS: &[ChannelHolding] = &[
    ChannelHolding { up_to: 4, vectors: 4, across: 32 },
    ChannelHolding { up_to: 64, vectors: 4, across: 16 },
    ChannelHolding { up_to: 512, vectors: 8, across: 8 },
];
/// For accesses of two elements and, forward, for accesses of one. Backward takes the first table for both.
const NARROW_CHANNELS: [&[ChannelHolding]; 2] = [
    &[ChannelHolding { up_to: 128, vectors: 16, across: 32 }, ChannelHolding { up_to: 512, vectors: 16, across: 8 }],
    &[ChannelHolding { up_to: 512, vectors: 16, across: 32 }],
];
/// Backward with y in shared memory, of 2 and of 4 bytes. Of 4 bytes, blocks that take whole cache lines come first, if shared memory has room for
/// them.
const SHARED_CHANNELS: [&[ChannelHolding]; 2] = [
    &[ChannelHolding { up_to: 1024, vectors: SHARED_CHANNEL_VECTORS, across: 4 }],
    &[
        ChannelHolding { up_to: 1024, vectors: SHARED_CHANNEL_VECTORS, across: 8 },
        ChannelHolding { up_to: 1024, vectors: SHARED_CHANNEL_VECTORS, across: 4 },
    ],
];
/// How many vectors of a thread lie in shared memory in `channels_shared`, of 2 and of 4 bytes: those of y and, of 2 bytes, 10 of dy.
const STAGED_VECTORS: [u64; 2] = [26, 16];
/// Of 2 bytes, forward with 32 vectors of a thread and in `channels_shared`: if there are more tiles than multiprocessors and at most twice as many,
/// a block takes two tiles, whose halves ask for memory one after the other. Tiles have to have more threads than this, and at most half of
/// `MAX_THREADS`; smaller tiles ask for little, forward for 32 KB, and have blocks of their own.
const ALONE_THREADS: u64 = 128;

impl Lines {
    fn is_rows(&self) -> bool {
        self.inner == 1
    }

    /// Elements of an access.
    fn elements(&self, vec_bytes: u32) -> u64 {
        u64::from(vec_bytes / self.element_bytes)
    }

    /// The widest of some accesses that the layouts allow; of f64 one element.
    fn widest(&self, of: &[u32]) -> u32 {
        let fits = |&&bytes: &&u32| bytes >= self.element_bytes && self.vector_bytes.is_multiple_of(bytes);
        of.iter().filter(|_| self.element_bytes < 8).find(fits).copied().unwrap_or(self.element_bytes)
    }

    /// The index of the tables that have an entry for 2 and one for 4 bytes.
    fn of_4_bytes(&self) -> usize {
        usize::from(self.element_bytes == 4)
    }

    /// Refuses what no form that holds lines on chip takes.
    fn check_on_chip(&self, takes_rows: bool) -> Result<(), String> {
        match (self.is_rows(), takes_rows) {
            (true, false) => return Err("it takes lines that lie side by side, and the axis is dense".into()),
            (false, true) => return Err("it takes rows, and lines lie side by side".into()),
            _ => {}
        }
        if self.element_bytes == 8 {
            return Err("it holds elements of at most 4 bytes, these have 8".into());
        }
        self.check_blocks()
    }

    fn check_blocks(&self) -> Result<(), String> {
        let most = u32::MAX;
        let outer = self.outer;
        if outer > u64::from(most) { Err(format!("{outer} rows or blocks, the limit is {most}")) } else { Ok(()) }
    }

    /// Refuses accesses below 16 bytes.
    fn check_wide(&self) -> Result<(), String> {
        match self.vector_bytes {
            16 => Ok(()),
            bytes => Err(format!("it needs accesses of 16 bytes, the layouts allow {bytes}")),
        }
    }
}

/// Whether the launch may begin while the previous kernel ends. A grid of at most two blocks for each SM gains by that; the waiting blocks of a larger one
/// would take the places of running blocks.
fn overlaps(props: &Props, blocks: u64) -> u32 {
    u32::from(props.capability >= 90 && blocks <= 2 * u64::from(props.multiprocessors))
}

/// Why none of some holdings takes rows of so many accesses.
fn too_long(lines: &Lines, all: u64, holdings: &[RowHolding], props: &Props) -> String {
    let blocks = u64::from(props.cluster);
    let Some(most) = holdings.iter().filter(|holding| holding.cluster <= blocks).map(|holding| holding.up_to).max()
    else {
        let least = holdings.iter().map(|holding| holding.cluster).min().unwrap_or_default();
        return format!("it needs clusters of {least} blocks, the limit of the device is {blocks}");
    };
    if all > most {
        return format!("a row has {all} accesses, it holds at most {most} on this device");
    }
    format!("{} rows make more than {} blocks, the limit of a grid", lines.outer, i32::MAX)
}

/// A row in the registers of a part of a block, a block or a cluster.
pub(super) fn rows_resident(lines: &Lines, props: &Props) -> Result<RowsResident, String> {
    lines.check_on_chip(true)?;
    let vec_bytes = lines.widest(&[16, 4, 2]);
    let all = lines.dim / lines.elements(vec_bytes);
    // Few rows leave the chip to latency, so they are spread thin.
    let is_thin = lines.samples <= 2 * u64::from(props.multiprocessors) && (64..=MOST_THIN_VECTORS).contains(&all);
    let holdings = match lines.is_backward {
        _ if vec_bytes < 16 => NARROW_ROWS,
        _ if is_thin => THIN_ROWS,
        false => ROWS,
        true => BACKWARD_ROWS[lines.of_4_bytes()],
    };
    let choice = |holding: &RowHolding| {
        let &RowHolding { up_to, vectors, cluster } = holding;
        if all > up_to || cluster > u64::from(props.cluster) {
            return None;
        }
        let fewest = if cluster > 1 { FEWEST_CLUSTER_THREADS } else { 1 };
        let threads_per_row = threads_for(all.div_ceil(cluster).div_ceil(vectors)).max(fewest);
        let rows = if threads_per_row <= WARP { SHORT_THREADS / threads_per_row } else { 1 };
        let blocks = lines.outer.div_ceil(rows) * cluster;
        Some(RowsResident {
            vec_bytes,
            vectors: word(vectors),
            threads_per_row: word(threads_per_row),
            threads: word(threads_per_row * rows),
            cluster: word(cluster),
            grid: grid(blocks)?,
            overlaps: overlaps(props, blocks),
        })
    };
    holdings.iter().find_map(choice).ok_or_else(|| too_long(lines, all, holdings, props))
}

/// A row in the shared memory of a cluster.
pub(super) fn rows_shared(lines: &Lines, props: &Props) -> Result<RowsShared, String> {
    lines.check_on_chip(true)?;
    lines.check_wide()?;
    let holdings = match lines.is_backward {
        // x is copied to shared memory as it is, without making its elements wider.
        false if lines.is_widening => return Err("it stages x as it is, and x is to become wider".into()),
        true if lines.element_bytes != 4 => return Err("of gradients it takes those of f32".into()),
        false => SHARED_ROWS,
        true => BACKWARD_SHARED_ROWS,
    };
    let all = lines.dim / lines.elements(16);
    let bytes_of_slice = |vectors: u64| vectors * 16 + RESERVED_SHARED_BYTES;
    let choice = |holding: &RowHolding| {
        let &RowHolding { up_to, vectors, cluster } = holding;
        let slice = all.div_ceil(cluster);
        let has_room = bytes_of_slice(slice) <= u64::from(props.shared_bytes);
        if all > up_to || cluster > u64::from(props.cluster) || !has_room {
            return None;
        }
        let threads = match lines.is_backward {
            true => threads_for(slice.div_ceil(vectors)).max(FEWEST_CLUSTER_THREADS),
            false => SHARED_THREADS[usize::from(slice > SHARED_VECTORS)],
        };
        Some(RowsShared { threads: word(threads), cluster: word(cluster), grid: grid(lines.outer * cluster)? })
    };
    holdings.iter().find_map(choice).ok_or_else(|| {
        let is_usable = |holding: &&RowHolding| all <= holding.up_to && holding.cluster <= u64::from(props.cluster);
        let largest = holdings.iter().filter(is_usable).map(|holding| holding.cluster).max();
        match largest.map(|cluster| (cluster, bytes_of_slice(all.div_ceil(cluster)))) {
            Some((cluster, needed)) if needed > u64::from(props.shared_bytes) => {
                let limit = props.shared_bytes;
                format!("each of {cluster} blocks needs {needed} bytes of shared memory for its part of a row, the limit is {limit}")
            }
            _ => too_long(lines, all, holdings, props),
        }
    })
}

/// Lines in the registers of a block.
pub(super) fn channels_resident(lines: &Lines, props: &Props) -> Result<ChannelsResident, String> {
    lines.check_on_chip(false)?;
    let is_forward_of_2_bytes = lines.element_bytes == 2 && !lines.is_backward;
    let vec_bytes = lines.widest(if is_forward_of_2_bytes { &[8, 4, 2] } else { &[16, 4, 2] });
    let holdings = match (vec_bytes, lines.elements(vec_bytes)) {
        (16, _) if lines.is_backward => BACKWARD_CHANNELS,
        (_, 4) => CHANNELS[lines.of_4_bytes()],
        (_, width) => NARROW_CHANNELS[usize::from(width == 1 && !lines.is_backward)],
    };
    let columns = lines.outer.saturating_mul(lines.inner / lines.elements(vec_bytes));
    let whole = &WHOLE_CHANNELS;
    let is_whole = !lines.is_backward
        && vec_bytes == 8
        && lines.dim <= whole.up_to
        && lines.dim.is_multiple_of(whole.vectors * (WARP / whole.across))
        && columns.is_multiple_of(whole.across);
    let holding = if is_whole { Some(whole) } else { holdings.iter().find(|holding| lines.dim <= holding.up_to) };
    let holding = holding.ok_or_else(|| {
        let most = holdings.iter().map(|holding| holding.up_to).max().unwrap_or(0);
        format!("lines of {} elements, it holds at most {most}", lines.dim)
    })?;
    let tiled = Tiled::new(lines, props, vec_bytes, holding, !lines.is_backward && holding.vectors == 32)?;
    let Tiled { threads, tiles, grid, overlaps } = tiled;
    let [vectors, across] = [holding.vectors, holding.across].map(word);
    Ok(ChannelsResident { vec_bytes, vectors, threads, across, tiles, grid, overlaps })
}

/// Gradients of lines in registers and the shared memory of a block.
pub(super) fn channels_shared(lines: &Lines, props: &Props) -> Result<ChannelsShared, String> {
    lines.check_on_chip(false)?;
    lines.check_wide()?;
    let (holdings, staged) = (SHARED_CHANNELS[lines.of_4_bytes()], STAGED_VECTORS[lines.of_4_bytes()]);
    let mut refusal = format!("lines of {} elements, it holds at most {}", lines.dim, holdings[0].up_to);
    for holding in holdings.iter().filter(|holding| lines.dim <= holding.up_to) {
        let one = Tiled::new(lines, props, 16, holding, false)?;
        // Vectors, and the sums of its warps.
        let warps = u64::from(one.threads) / WARP;
        let tile_bytes = u64::from(one.threads) * staged * 16 + warps * holding.across * 32;
        let has_room = |tiles: u64| tiles * tile_bytes <= u64::from(props.shared_bytes);
        if has_room(1) {
            let may_pair = lines.element_bytes == 2 && has_room(2);
            let Tiled { threads, tiles, grid, overlaps } = Tiled::new(lines, props, 16, holding, may_pair)?;
            return Ok(ChannelsShared { threads, across: word(holding.across), tiles, grid, overlaps });
        }
        refusal = format!("a tile takes {tile_bytes} bytes of shared memory, a block has {}", props.shared_bytes);
    }
    Err(refusal)
}

/// The numbers of a launch of blocks that take tiles of lines.
struct Tiled {
    threads: u32,
    tiles: u32,
    grid: u32,
    overlaps: u32,
}

impl Tiled {
    /// `may_pair`: blocks may take two tiles.
    fn new(
        lines: &Lines,
        props: &Props,
        vec_bytes: u32,
        holding: &ChannelHolding,
        may_pair: bool,
    ) -> Result<Self, String> {
        // Whole warps: where fewer than 32 vectors lie side by side, several threads along the axis share one.
        let along = lines.dim.div_ceil(holding.vectors).next_multiple_of(WARP / holding.across);
        let threads = along * holding.across;
        let columns = lines.outer.checked_mul(lines.inner / lines.elements(vec_bytes));
        let columns = columns.filter(|&n| n <= i32::MAX as u64);
        let columns = columns.ok_or_else(|| {
            format!("{} blocks of {} lines, it counts at most {} vectors of them", lines.outer, lines.inner, i32::MAX)
        })?;
        let (all, multiprocessors) = (columns.div_ceil(holding.across), u64::from(props.multiprocessors));
        let is_one_wave = all > multiprocessors && all <= 2 * multiprocessors;
        let is_pair = may_pair && is_one_wave && threads > ALONE_THREADS && threads <= MAX_THREADS / 2;
        let tiles = if is_pair { 2 } else { 1 };
        let blocks = all.div_ceil(tiles);
        Ok(Self {
            threads: word(threads * tiles),
            tiles: word(tiles),
            grid: word(blocks),
            overlaps: overlaps(props, blocks),
        })
    }
}

/// Three launches over chunks of lines: parts, merge, apply. Returns also the bytes of workspace.
pub(super) fn split(lines: &Lines) -> Result<(Split, u64), String> {
    lines.check_blocks()?;
    let vec_bytes = lines.widest(&[16, 4, 2]);
    let elements = lines.elements(vec_bytes);
    let (chunks, tiles) = match lines.is_rows() {
        true => (lines.dim.div_ceil(elements).div_ceil(ROW_CHUNK), 1),
        false => (lines.dim.div_ceil(CHANNEL_CHUNK), lines.inner.div_ceil(elements).div_ceil(SPLIT_THREADS)),
    };
    let chunks = chunks.max(1);
    let blocks = lines.outer.saturating_mul(chunks).saturating_mul(tiles).clamp(1, MOST_STRIDING_BLOCKS);
    let too_many = |_| format!("lines of {} elements make {chunks} chunks", lines.dim);
    let choice = Split { vec_bytes, chunks: u32::try_from(chunks).map_err(too_many)?, grid: word(blocks) };
    // Each part and each line has a sum and, forward, a maximum.
    let values = if lines.is_backward { 1 } else { 2 };
    let count = lines.outer.checked_mul(lines.inner).and_then(|n| n.checked_mul(chunks + 1));
    let bytes = count.and_then(|n| n.checked_mul(values * u64::from(lines.accumulator_bytes)));
    Ok((choice, bytes.ok_or("the workspace exceeds 2^64 bytes")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device like an H200.
    fn h200() -> Props {
        Props::examples().find(|props| props.capability == 90).unwrap()
    }

    fn lines(is_backward: bool, outer: u64, dim: u64, inner: u64, element_bytes: u32) -> Lines {
        let run = if inner == 1 { dim } else { inner };
        Lines {
            is_backward,
            is_widening: false,
            outer,
            samples: outer,
            dim,
            inner,
            element_bytes,
            accumulator_bytes: element_bytes.max(4),
            vector_bytes: 1 << (16 | run.wrapping_mul(u64::from(element_bytes))).trailing_zeros(),
        }
    }

    /// What serves lines, by the order of the forms.
    #[derive(Debug)]
    enum Chosen {
        RowsResident(RowsResident),
        RowsShared(RowsShared),
        ChannelsResident(ChannelsResident),
        ChannelsShared(ChannelsShared),
        Split(Split),
    }

    fn choose(lines: &Lines, props: &Props) -> Result<Chosen, String> {
        let resident = rows_resident(lines, props).map(Chosen::RowsResident);
        let resident = resident.or_else(|_| rows_shared(lines, props).map(Chosen::RowsShared));
        let resident = resident.or_else(|_| channels_resident(lines, props).map(Chosen::ChannelsResident));
        let shared = || channels_shared(lines, props).map(Chosen::ChannelsShared);
        let on_chip = resident.or_else(|refusal| if lines.is_backward { shared() } else { Err(refusal) });
        on_chip.or_else(|_| split(lines).map(|(choice, _)| Chosen::Split(choice)))
    }

    /// Every device and shape that a test walks over.
    fn problems() -> impl Iterator<Item = (Lines, Props)> {
        let dims =
            (1..300).chain([333, 512, 768, 1000, 1024, 4096, 4097, 5120, 8192, 16384, 32768, 65536, 262_144, 1 << 24]);
        let devices = [(16, 232_448, 90), (8, 232_448, 90), (1, 166_912, 80)];
        let devices =
            devices.map(|(cluster, shared_bytes, capability)| Props { cluster, shared_bytes, capability, ..h200() });
        dims.flat_map(move |dim| {
            devices.clone().into_iter().flat_map(move |props| {
                [2, 4, 8].into_iter().flat_map(move |element_bytes| {
                    let props = props.clone();
                    [1, 5, 300, 100_000].into_iter().flat_map(move |outer| {
                        let props = props.clone();
                        [1, 3, 50, 3136].into_iter().flat_map(move |inner| {
                            let props = props.clone();
                            [false, true].map(|is_backward| {
                                (lines(is_backward, outer, dim, inner, element_bytes), props.clone())
                            })
                        })
                    })
                })
            })
        })
    }

    /// Threads of the largest block, by `channel_bounds` of `softmax.cu` and of `softmax_backward.cu`.
    fn channel_threads(lines: &Lines, choice: &ChannelsResident) -> u32 {
        let width = choice.vec_bytes / lines.element_bytes;
        if lines.is_backward {
            return if choice.vec_bytes < 16 || choice.vectors == 8 { 512 } else { 256 };
        }
        let is_held = lines.element_bytes == 4 || choice.vectors * width <= 32;
        match if is_held { choice.vectors * width } else { choice.vectors * choice.vec_bytes / 4 } {
            ..=16 => 1024,
            32 if lines.element_bytes == 4 => 512,
            17..=48 => 256,
            _ => 512,
        }
    }

    /// Whether the kernels have so many vectors a thread, rows by clusters or not.
    fn has_rows_kernel(lines: &Lines, choice: &RowsResident) -> bool {
        let has_cluster = lines.is_backward && choice.vectors == 8 && choice.vec_bytes == 16;
        match choice.vectors {
            _ if choice.cluster > 1 => has_cluster,
            16 => choice.vec_bytes < 16,
            1 => lines.is_backward,
            8 => !lines.is_backward || lines.element_bytes == 2,
            vectors => matches!(vectors, 2 | 4),
        }
    }

    fn has_channels_kernel(lines: &Lines, choice: &ChannelsResident) -> bool {
        match (choice.vectors, lines.is_backward) {
            (16, true) => choice.vec_bytes < 16,
            (vectors, true) => choice.vec_bytes == 16 && matches!(vectors, 4 | 8),
            (16, false) => choice.vec_bytes / lines.element_bytes <= 4,
            (vectors, false) => {
                let has_more = if lines.element_bytes == 4 { vectors == 12 } else { matches!(vectors, 24 | 32) };
                choice.vec_bytes / lines.element_bytes == 4 && (matches!(vectors, 4 | 8) || has_more)
            }
        }
    }

    /// Whether every element of every line has a thread.
    fn holds(lines: &Lines, [threads, tiles, across, grid]: [u32; 4], vectors: u32, vec_bytes: u32) -> bool {
        let along = threads / tiles / across;
        let columns = u64::from(grid * tiles * across) * lines.elements(vec_bytes);
        u64::from(along * vectors) >= lines.dim && columns >= lines.outer * lines.inner
    }

    #[test]
    fn tiles_of_one_wave_are_taken_in_pairs() {
        let props = h200();
        let of = |lines: &Lines| match choose(lines, &props).unwrap() {
            Chosen::ChannelsResident(choice) if !lines.is_backward => (choice.tiles, choice.grid),
            Chosen::ChannelsShared(choice) => (choice.tiles, choice.grid),
            other => panic!("{other:?}"),
        };
        for is_backward in [false, true] {
            let two = lines(is_backward, 2, 1000, 4096, 2);
            assert_eq!(of(&two), (2, 128));
            assert_eq!(of(&Lines { outer: 1, ..two }), (1, 128));
            assert_eq!(of(&Lines { outer: 3, ..two }), (1, 384));
            assert_eq!(of(&Lines { inner: 2144, ..two }), (2, 67));
            assert_eq!(of(&lines(is_backward, 2, 1000, 4096, 4)).0, 1);
        }
        assert_eq!(of(&lines(false, 2, 300, 4096, 2)).0, 1);
    }

    #[test]
    fn lines_that_fill_their_threads_take_more_vectors() {
        let of = |outer, dim, inner| {
            let choice = channels_resident(&lines(false, outer, dim, inner, 2), &h200()).unwrap();
            (choice.vectors, choice.across)
        };
        assert_eq!(of(8, 64, 65536), (32, 16));
        assert_eq!(of(8, 128, 65536), (32, 16));
        assert_eq!(of(32, 256, 3136), (32, 16));
        assert_eq!(of(1, 64, 72), (16, 16));
        assert_eq!(of(8, 63, 65536), (16, 16));
        assert_eq!(of(8, 255, 65536), (16, 8));
        assert_eq!(of(8, 96, 65536), (16, 8));
    }

    #[test]
    fn gradients_take_less_shared_memory_where_there_is_less() {
        let lines = lines(true, 2, 1000, 4096, 4);
        let across =
            |shared_bytes| channels_shared(&lines, &Props { shared_bytes, ..h200() }).map(|choice| choice.across);
        assert_eq!(across(h200().shared_bytes), Ok(8));
        assert_eq!(across(101_376), Ok(4));
        assert!(across(65_536).unwrap_err().contains("65536"));
    }

    #[test]
    fn every_element_of_every_line_has_a_thread() {
        for (lines, props) in problems() {
            let chosen = choose(&lines, &props).unwrap();
            let message = format!("{lines:?} {chosen:?}");
            match &chosen {
                Chosen::RowsResident(choice) => {
                    assert!(choice.threads.is_multiple_of(32) && (32..=512).contains(&choice.threads), "{message}");
                    assert!(choice.cluster <= props.cluster && has_rows_kernel(&lines, choice), "{message}");
                    let of_block = u64::from(choice.threads_per_row * choice.vectors);
                    let held = of_block * u64::from(choice.cluster) * lines.elements(choice.vec_bytes);
                    let rows = choice.grid / choice.cluster * choice.threads / choice.threads_per_row;
                    assert!(held >= lines.dim && u64::from(rows) >= lines.outer, "{message}");
                }
                Chosen::RowsShared(choice) => {
                    assert!((2..=props.cluster).contains(&choice.cluster), "{message}");
                    assert_eq!(u64::from(choice.grid), lines.outer * u64::from(choice.cluster));
                    let slice = lines.dim.div_ceil(lines.elements(16)).div_ceil(u64::from(choice.cluster));
                    if lines.is_backward {
                        assert!(u64::from(choice.threads) * SHARED_ROW_VECTORS >= slice, "{message}");
                        assert!(lines.element_bytes == 4 && choice.threads <= 512, "{message}");
                    } else {
                        assert_eq!(choice.threads, if slice > 2048 { 512 } else { 256 });
                    }
                }
                Chosen::ChannelsResident(choice) => {
                    assert!(has_channels_kernel(&lines, choice), "{message}");
                    assert!(choice.threads <= channel_threads(&lines, choice), "{message}");
                    let &ChannelsResident { vec_bytes, vectors, threads, across, tiles, grid, .. } = choice;
                    assert!(threads.is_multiple_of(32) && threads > 0, "{message}");
                    assert!(holds(&lines, [threads, tiles, across, grid], vectors, vec_bytes), "{message}");
                    let may_pair = !lines.is_backward && vectors == 32 && threads > 256;
                    assert!(tiles == 1 || (tiles == 2 && may_pair), "{message}");
                }
                Chosen::ChannelsShared(choice) => {
                    let &ChannelsShared { threads, across, tiles, grid, .. } = choice;
                    let most = if lines.element_bytes == 2 { 256 * tiles } else { 512 };
                    assert!(threads.is_multiple_of(32) && threads > 0 && threads <= most.min(512), "{message}");
                    assert!(holds(&lines, [threads, tiles, across, grid], 16, 16), "{message}");
                }
                Chosen::Split(choice) if lines.is_rows() => {
                    assert!(u64::from(choice.chunks) * ROW_CHUNK * lines.elements(choice.vec_bytes) >= lines.dim);
                }
                Chosen::Split(choice) => assert!(u64::from(choice.chunks) * CHANNEL_CHUNK >= lines.dim),
            }
        }
    }

    #[test]
    fn odd_runs_and_lowered_promises_use_narrow_accesses() {
        let props = h200();
        let rows = |lines: &Lines| rows_resident(lines, &props).unwrap().vec_bytes;
        let channels = |lines: &Lines| channels_resident(lines, &props).unwrap().vec_bytes;
        assert_eq!(rows(&lines(false, 8, 7, 1, 2)), 2);
        assert_eq!(channels(&lines(false, 8, 7, 6, 2)), 4);
        assert_eq!(channels(&lines(false, 8, 7, 8, 2)), 8);
        assert_eq!(channels(&lines(true, 8, 7, 8, 2)), 16);
        assert_eq!(split(&lines(true, 8, 8, 1, 8)).unwrap().0.vec_bytes, 8);
    }

    #[test]
    fn older_devices_have_no_clusters() {
        let props = Props { capability: 80, cluster: 1, ..h200() };
        for is_backward in [false, true] {
            let lines = lines(is_backward, 256, 262_144, 1, 2);
            assert!(matches!(choose(&lines, &props), Ok(Chosen::Split(_))));
            assert!(matches!(choose(&lines, &h200()), Ok(Chosen::RowsResident(_) | Chosen::RowsShared(_))));
        }
    }

    #[test]
    fn a_form_says_what_it_does_not_take() {
        let props = h200();
        let short = lines(false, 6, 40, 1, 4);
        assert!(channels_resident(&short, &props).unwrap_err().contains("the axis is dense"));
        assert!(rows_resident(&lines(false, 6, 8, 40, 4), &props).unwrap_err().contains("side by side"));
        assert!(rows_resident(&lines(false, 6, 40, 1, 8), &props).unwrap_err().contains("these have 8"));
        assert!(rows_resident(&lines(false, 600, 65536, 1, 4), &props).unwrap_err().contains("at most 4096"));
        assert!(rows_shared(&lines(false, 6, 7, 1, 4), &props).unwrap_err().contains("allow 4"));
        assert!(rows_shared(&lines(true, 6, 40, 1, 2), &props).unwrap_err().contains("f32"));
        let refusal = |lines: &Lines, props: &Props| rows_shared(lines, props).unwrap_err();
        assert!(
            refusal(&short, &Props { cluster: 2, ..h200() })
                .contains("clusters of 4 blocks, the limit of the device is 2")
        );
        let (long, little) = (lines(true, 6, 200_000, 1, 4), Props { shared_bytes: 32 << 10, ..h200() });
        assert!(
            refusal(&long, &little)
                .contains("needs 54096 bytes of shared memory for its part of a row, the limit is 32768")
        );
        assert!(
            refusal(&lines(true, 6, 400_000, 1, 4), &props)
                .contains("a row has 100000 accesses, it holds at most 65536")
        );
        assert_eq!(rows_shared(&short, &props).map(|choice| choice.cluster), Ok(4));
        assert!(channels_shared(&lines(true, 2, 2000, 40, 4), &props).unwrap_err().contains("at most 1024"));
    }

    #[test]
    fn absurd_sizes_are_refused_not_wrapped() {
        let props = h200();
        assert!(choose(&lines(false, 1 << 40, 8, 1, 2), &props).is_err());
        assert!(choose(&lines(false, 1 << 31, 1 << 62, 1, 8), &props).is_err());
        assert!(choose(&lines(true, 1 << 31, 1 << 30, 1 << 40, 8), &props).is_err());
    }

    #[test]
    fn elements_that_become_wider_pass_through_registers() {
        let of = |is_backward, cols| {
            let lines = Lines { is_widening: true, ..lines(is_backward, 300, cols, 1, 4) };
            choose(&lines, &h200()).unwrap()
        };
        assert!(matches!(of(false, 16384), Chosen::RowsResident(_)));
        assert!(matches!(of(false, 16388), Chosen::Split(_)));
        assert!(matches!(of(true, 262_144), Chosen::RowsShared(_)));
    }
}
