//! The CUDA forms: what each takes, and their launches.
//!
//! | form | who owns what | taken first for |
//! |---|---|---|
//! | `walk` | a thread some positions, and walks over channels with the window in registers | neighbouring positions, sizes 3, 5, 7 and 9 |
//! | `rows` | a row of threads all channels of a position, in registers | neighbouring channels, sizes 3, 5, 7 and 9 |
//! | `tile` | a row of threads some channels of a position, in shared memory | neighbouring channels |
//! | `direct` | a thread an element, and reads its whole window again | the rest |
//!
//! They are tried in this order. Only `walk` leaves to others what it could do: tensors with a channel stride of 1 whose samples have one position each, of
//! which accesses along channels are wider.

use std::fmt::Debug;

use baracuda_ops_sys as sys;
use sys::{
    bops_local_response_norm_backward_operands as BackwardOperands,
    bops_local_response_norm_backward_params as BackwardParams, bops_local_response_norm_direct_choice as Direct,
    bops_local_response_norm_operands as ForwardOperands, bops_local_response_norm_params as ForwardParams,
    bops_local_response_norm_rows_choice as Rows, bops_local_response_norm_tile_choice as Tile,
    bops_local_response_norm_walk_choice as Walk,
};

use super::{Geometry, UNROLLED, Valid, backward, forward};
use crate::backend::Located;
use crate::backend::cuda::{Numbers, Props, c_dtype};
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, Candidate};
use crate::narrow::word;
use crate::ops::calls::{Calls, calls};
use crate::ops::valid::Direction;
use crate::options::WorkspaceReq;

pub(super) fn walk<'d>(norm: &'d Valid, props: &Props, ask: Ask) -> Accepted<'d> {
    let calls = (calls!(bops_local_response_norm_walk), calls!(bops_local_response_norm_backward_walk));
    candidate(norm, calls, |geometry| walk_choice(geometry, norm.op.kind, props, ask))
}

pub(super) fn rows<'d>(norm: &'d Valid, _: &Props, _: Ask) -> Accepted<'d> {
    let calls = (calls!(bops_local_response_norm_rows), calls!(bops_local_response_norm_backward_rows));
    candidate(norm, calls, rows_choice)
}

pub(super) fn tile<'d>(norm: &'d Valid, props: &Props, _: Ask) -> Accepted<'d> {
    let calls = (calls!(bops_local_response_norm_tile), calls!(bops_local_response_norm_backward_tile));
    candidate(norm, calls, |geometry| tile_choice(geometry, norm.op.kind, props))
}

pub(super) fn direct<'d>(norm: &'d Valid, _: &Props, _: Ask) -> Accepted<'d> {
    let calls = (calls!(bops_local_response_norm_direct), calls!(bops_local_response_norm_backward_direct));
    let candidate = candidate(norm, calls, direct_choice)?;
    // One number of the accumulator type for each element.
    let element_bytes = norm.fields.x.dtype().accumulator().size_bytes();
    let workspace_bytes = norm.fields.x.elements().checked_mul(element_bytes);
    let workspace_bytes = workspace_bytes.ok_or("its workspace would exceed 2^64 bytes")?;
    Ok(match norm.op.kind {
        Direction::Forward => candidate,
        Direction::Backward => {
            let launches = 2 * candidate.launches;
            Candidate { workspace: WorkspaceReq::new(workspace_bytes, 16), launches, ..candidate }
        }
    })
}

/// The C functions of a form with the choice `C`: forward and backward.
type FormCalls<C> = (
    Calls<sys::bops_dtype, ForwardParams, C, ForwardOperands>,
    Calls<sys::bops_dtype, BackwardParams, C, BackwardOperands>,
);

/// How a form serves a descriptor, in one launch if there are elements.
fn candidate<'d, C: Numbers + Debug>(
    norm: &'d Valid,
    (of_forward, of_backward): FormCalls<C>,
    choose: impl FnOnce(&Geometry) -> Result<C, Reason>,
) -> Accepted<'d> {
    let geometry = Geometry::new(norm)?;
    let choice = choose(&geometry)?;
    let dtype = c_dtype(norm.fields.x.dtype())?;
    let (beta, k) = (norm.fields.beta.get(), norm.fields.k.get());
    // The size of the window, the number of channels, from which shared memory follows, and whether roots give the powers.
    let numbers = [geometry.size, geometry.channels, u64::from(geometry.half_powers > 0)];
    let has_work = geometry.elements() > 0;
    let strides = |operand: usize| {
        let [batch, channel, spatial] = geometry.strides[operand];
        sys::bops_channel_strides { batch, channel, spatial }
    };
    let Geometry { batch, channels, spatial, size, before, scale, half_powers, .. } = geometry;
    Ok(match norm.op.kind {
        Direction::Forward => {
            let [x, y] = [forward::X, forward::Y].map(strides);
            let params = ForwardParams { batch, channels, spatial, x, y, size, before, scale, beta, k, half_powers };
            let operands = |located: &Located<'_>| forward::memory!(pointers ForwardOperands, located);
            of_forward.candidate(has_work, (dtype, params, choice, numbers), operands)
        }
        Direction::Backward => {
            let [dy, x, dx] = [backward::DY, backward::X, backward::DX].map(strides);
            let params =
                BackwardParams { batch, channels, spatial, dy, x, dx, size, before, scale, beta, k, half_powers };
            let operands = |located: &Located<'_>| backward::memory!(pointers BackwardOperands, located);
            of_backward.candidate(has_work, (dtype, params, choice, numbers), operands)
        }
    })
}

/// Threads of a block of `walk`, as in the kernels.
const WALK_THREADS: u64 = 128;
/// Threads of a block of `direct`, as in the kernels.
const DIRECT_THREADS: u64 = 256;
/// Threads of a warp.
const WARP: u64 = 32;
/// Threads of a block of `rows`, unless one position needs more. Measured on an H200.
const ROWS_THREADS: u64 = 128;
/// The most threads that a block of `rows` may have.
const MOST_ROWS_THREADS: u64 = 256;
/// Fewest threads of a block of `tile`. An SM has room for five tiles of `TILE_BYTES`, which with 128 threads each are 640 threads. More threads would
/// hide more latency, but the tile would have less room for each of their positions, so that channels are cut into more chunks.
const TILE_THREADS: u64 = 128;
/// Fewest threads that share a position of `tile`: eight vectors of 16 bytes are a line of the L2.
const FEWEST_POSITION_THREADS: u64 = 8;
/// Most threads that share a position of `tile`: all that a block may have.
const MOST_POSITION_THREADS: u64 = 256;
/// Most bytes of shared memory that a tile takes: an SM of an H200 has room for five such tiles, but only for four of 48 KiB, which is what a block has
/// without asking for more.
const TILE_BYTES: u64 = 40 << 10;
/// Most chunks: blocks in the second dimension of a grid.
const MOST_CHUNKS: u64 = 65535;

/// Refuses more blocks than the first dimension of a grid has.
fn within(blocks: u64) -> Result<(), Reason> {
    let most = (1u64 << 31) - 1;
    Reason::unless(blocks <= most, || format!("it needs {blocks} blocks, a launch has at most {most}"))
}

/// Refuses f64, which `direct` alone serves.
fn check_narrow(geometry: &Geometry) -> Result<(), Reason> {
    Reason::unless(geometry.element_bytes <= 4, || "it has no elements of f64")
}

/// Refuses what kernels do not hold in registers.
fn check_unrolled(geometry: &Geometry) -> Result<(), Reason> {
    check_narrow(geometry)?;
    geometry.check_unrolled()?;
    // `walk` numbers channels in signed 32 bits, up to some windows beyond the last.
    let (channels, most) = (geometry.channels, 1 << 30);
    Reason::unless(channels < most, || format!("it takes fewer than {most} channels, here are {channels}"))
}

/// # Errors
/// Why `walk` does not serve, or what it leaves to others.
fn walk_choice(geometry: &Geometry, pass: Direction, props: &Props, ask: Ask) -> Result<Walk, Reason> {
    let Geometry { batch, channels, spatial, size, element_bytes, position_bytes, half_powers, .. } = *geometry;
    check_unrolled(geometry)?;
    Reason::unless(position_bytes > 0, || "it needs a spatial stride of 1 in every tensor")?;
    if ask == Ask::Chosen && geometry.prefers_channels() {
        return Err("channels are neighbours, for which rows and tile read memory in wider accesses".into());
    }
    let quad = 4 * element_bytes;
    // Powers that no roots give take so many instructions that unrolled kernels would be mostly those: a thread owns one element.
    let has_quads = half_powers > 0 && position_bytes >= quad;
    let has_several = half_powers > 0 && !has_quads;
    let several = has_several.then(|| several_of(batch, spatial, pass)).flatten();
    let parts = several.map_or(1, |several| several.parts);
    let vector_bytes = if has_quads { quad } else { element_bytes };
    let vectors = spatial * element_bytes / vector_bytes;
    let threads = if parts == 1 { batch * vectors } else { batch * vectors.next_multiple_of(WARP * parts) / parts };
    let blocks = threads.div_ceil(WALK_THREADS);
    let (chunk, chunks) = match several {
        Some(several) => several.chunks(channels, size, blocks, pass, props),
        None => walk_chunks(channels, size, threads * vector_bytes / element_bytes, pass, props),
    };
    within(blocks)?;
    Ok(Walk {
        vector_bytes: word(vector_bytes),
        thread_vectors: word(parts),
        chunk_channels: word(chunk),
        chunks: word(chunks),
    })
}

/// # Errors
/// Why `rows` does not serve.
fn rows_choice(geometry: &Geometry) -> Result<Rows, Reason> {
    let Geometry { batch, channels, spatial, element_bytes, channel_bytes, .. } = *geometry;
    check_unrolled(geometry)?;
    Reason::unless(channel_bytes >= 16, || {
        format!("it reads 16 bytes of neighbouring channels at a time, here they allow {channel_bytes}")
    })?;
    let vectors = channels * element_bytes / 16;
    Reason::unless((1..=MOST_ROWS_THREADS).contains(&vectors) && batch * spatial > 0, || {
        format!("a position has {vectors} vectors of channels, the limits are 1 and {MOST_ROWS_THREADS}")
    })?;
    within(batch * spatial)?;
    Ok(Rows { block_threads: word(ROWS_THREADS.max(vectors)) })
}

/// # Errors
/// Why `tile` does not serve.
fn tile_choice(geometry: &Geometry, pass: Direction, props: &Props) -> Result<Tile, Reason> {
    let Geometry { batch, channels, spatial, size, element_bytes, channel_bytes, .. } = *geometry;
    check_narrow(geometry)?;
    let positions = batch * spatial;
    if channel_bytes == 0 || positions == 0 {
        return Err("it needs a channel stride of 1 in every tensor, and at least one position".into());
    }
    // Of a tile with its halo, forward keeps x, backward x and two more.
    let arrays = if pass == Direction::Forward { 1 } else { 3 };
    let halo = halo(size, pass);
    let width = if channel_bytes == 16 { 16 / element_bytes } else { 1 };
    let position_threads =
        channels.div_ceil(width).next_power_of_two().clamp(FEWEST_POSITION_THREADS, MOST_POSITION_THREADS);
    let threads = position_threads.max(TILE_THREADS);
    let bytes = TILE_BYTES.min(u64::from(props.shared_bytes));
    let room = tile_room(bytes / 4 / arrays / (threads / position_threads));
    let chunk = if channels <= room { channels } else { room.saturating_sub(halo + width) / width * width };
    let chunk = chunk.next_multiple_of(width);
    if chunk == 0 || chunk < channels.min(halo) || channels.div_ceil(chunk) > MOST_CHUNKS {
        let why = format!("a tile of {bytes} bytes has room for {room} channels of a position");
        return Err(format!("{why}, of which windows of {size} channels make a halo of {halo}").into());
    }
    within(positions)?;
    Ok(Tile {
        vector_bytes: word(width * element_bytes),
        block_threads: word(threads),
        position_threads: word(position_threads),
        chunk_channels: word(chunk),
        chunks: word(channels.div_ceil(chunk)),
    })
}

/// Channels of a position that `floats` floats of shared memory hold in one array. The kernels leave every 33rd float empty, so that neighbouring
/// vectors lie in different banks, and an array has room for 31 channels more than the tile, which its last gap may shift. 64 are those 31 and a
/// reserve for what the division leaves over.
fn tile_room(floats: u64) -> u64 {
    (floats * 32 / 33).saturating_sub(64)
}

/// # Errors
/// Why `direct` does not serve.
fn direct_choice(geometry: &Geometry) -> Result<Direct, Reason> {
    within(geometry.elements().div_ceil(DIRECT_THREADS))?;
    Ok(Direct { channels_first: u32::from(geometry.prefers_channels()) })
}

/// A walk whose threads own several single elements, and how it fills a GPU. Measured on an H200.
struct Several {
    /// Elements of a channel that a thread owns.
    parts: u64,
    /// Fewest positions of the batch for which it is faster than fewer elements a thread.
    fewest_positions: u64,
    /// Blocks of a multiprocessor that keep its share of the memory busy.
    busy_blocks: u64,
    /// Blocks that a multiprocessor has registers for, by the windows of `UNROLLED`.
    resident_blocks: [u64; 4],
}

const FORWARD_WALKS: [Several; 2] = [
    Several { parts: 4, fewest_positions: 32 << 10, busy_blocks: 4, resident_blocks: [9, 6, 4, 4] },
    Several { parts: 2, fewest_positions: 32 << 10, busy_blocks: 6, resident_blocks: [12, 9, 8, 7] },
];
const BACKWARD_WALKS: [Several; 2] = [
    Several { parts: 4, fewest_positions: 64 << 10, busy_blocks: 3, resident_blocks: [4, 3, 2, 2] },
    Several { parts: 2, fewest_positions: 16 << 10, busy_blocks: 5, resident_blocks: [6, 5, 3, 3] },
];

/// The walk of most elements a thread that leaves at most an eighth of the threads without work.
fn several_of(batch: u64, spatial: u64, pass: Direction) -> Option<&'static Several> {
    let walks = if pass == Direction::Forward { &FORWARD_WALKS } else { &BACKWARD_WALKS };
    let is_wasteful = |parts: u64| {
        let whole = spatial.next_multiple_of(WARP * parts);
        (whole - spatial) * 8 > whole
    };
    walks.iter().find(|walk| batch * spatial >= walk.fewest_positions && !is_wasteful(walk.parts))
}

impl Several {
    /// The channels of a chunk and the number of chunks that take least time, for `blocks` blocks a chunk. The blocks of a multiprocessor run in
    /// waves, and a last wave of few blocks takes as long as one that keeps the memory busy.
    fn chunks(&self, channels: u64, size: u64, blocks: u64, pass: Direction, props: &Props) -> (u64, u64) {
        let resident = UNROLLED.iter().position(|&unrolled| unrolled == size).map_or(1, |at| self.resident_blocks[at]);
        let time = |chunks: u64| {
            let of_multiprocessor = (blocks * chunks).div_ceil(u64::from(props.multiprocessors).max(1));
            let (waves, rest) = (of_multiprocessor / resident, of_multiprocessor % resident);
            let last = if rest == 0 { 0 } else { rest.max(self.busy_blocks.min(resident)) };
            // The first loads of a chunk take as long as so many channels as a window has.
            (channels.div_ceil(chunks) + halo(size, pass) + size) * (waves * resident + last)
        };
        let chunks = (1..=most_chunks(channels, size, pass)).min_by_key(|&chunks| time(chunks)).unwrap_or(1);
        cut(channels, chunks)
    }
}

/// Positions for each multiprocessor that are taken to keep its memory busy, where a thread of `walk` owns one vector: 1024 threads of four positions
/// each. With a larger number channels are cut into more chunks, whose halos are read twice; with a smaller one fewer loads are in flight.
const BUSY_POSITIONS_FORWARD: u64 = 4096;
/// As `BUSY_POSITIONS_FORWARD`, backward, where a thread has the loads of two tensors in flight.
const BUSY_POSITIONS_BACKWARD: u64 = 2048;

/// The channels of a chunk and the number of chunks of a walk of one vector a thread: as many as keep the device busy.
fn walk_chunks(channels: u64, size: u64, positions: u64, pass: Direction, props: &Props) -> (u64, u64) {
    let busy = if pass == Direction::Forward { BUSY_POSITIONS_FORWARD } else { BUSY_POSITIONS_BACKWARD };
    let wanted = u64::from(props.multiprocessors) * busy;
    cut(channels, wanted.div_ceil(positions.max(1)).clamp(1, most_chunks(channels, size, pass)))
}

/// Channels that a chunk reads beyond its own.
fn halo(size: u64, pass: Direction) -> u64 {
    if pass == Direction::Forward { size - 1 } else { 2 * (size - 1) }
}

/// The most chunks that are each at least four times as long as their halo.
fn most_chunks(channels: u64, size: u64, pass: Direction) -> u64 {
    (channels / (4 * halo(size, pass))).clamp(1, MOST_CHUNKS)
}

/// About `chunks` chunks of equal length: the length and how many there are.
fn cut(channels: u64, chunks: u64) -> (u64, u64) {
    let chunk = channels.div_ceil(chunks).max(1);
    (chunk, channels.div_ceil(chunk).max(1))
}

#[cfg(test)]
mod tests {
    use super::super::LocalResponseNormDescriptor;
    use super::*;
    use crate::dtype::DType;
    use crate::tensor::TensorDesc;

    fn h200() -> Props {
        Props::examples().find(|props| props.name == "H200").unwrap()
    }

    fn geometry(x: TensorDesc, size: u64) -> Geometry {
        Geometry::new(&LocalResponseNormDescriptor::new(x, size).map(|norm| norm.0).unwrap()).unwrap()
    }

    /// The form that takes a descriptor.
    fn chosen(x: TensorDesc, size: u64, pass: Direction) -> &'static str {
        let geometry = geometry(x, size);
        let props = h200();
        let refusals = [
            ("walk", walk_choice(&geometry, pass, &props, Ask::Chosen).err()),
            ("rows", rows_choice(&geometry).err()),
            ("tile", tile_choice(&geometry, pass, &props).err()),
            ("direct", direct_choice(&geometry).err()),
        ];
        refusals.into_iter().find(|(_, refusal)| refusal.is_none()).unwrap().0
    }

    fn chosen_walk(x: TensorDesc, size: u64, pass: Direction) -> Walk {
        walk_choice(&geometry(x, size), pass, &h200(), Ask::Chosen).unwrap()
    }

    #[test]
    fn contiguous_data_walks_and_channels_last_data_stays_in_rows() {
        let dims = [8, 64, 16, 16];
        let x = TensorDesc::contiguous(DType::F32, &dims).unwrap();
        assert_eq!(chosen(x, 5, Direction::Forward), "walk");
        assert_eq!(chosen_walk(x, 5, Direction::Forward).vector_bytes, 16);
        let x = TensorDesc::channels_last(DType::BF16, &dims).unwrap();
        assert_eq!(chosen(x, 5, Direction::Backward), "rows");
        assert_eq!(chosen(x, 4, Direction::Backward), "tile");
        let x = TensorDesc::contiguous(DType::F32, &[64, 4096]).unwrap();
        assert_eq!(chosen(x, 5, Direction::Backward), "tile");
        let x = TensorDesc::contiguous(DType::F64, &dims).unwrap();
        assert_eq!(chosen(x, 5, Direction::Forward), "direct");
    }

    #[test]
    fn a_pinned_walk_takes_what_lies_both_ways() {
        let x = geometry(TensorDesc::contiguous(DType::F32, &[64, 4096]).unwrap(), 5);
        assert!(walk_choice(&x, Direction::Forward, &h200(), Ask::Chosen).is_err());
        assert!(walk_choice(&x, Direction::Forward, &h200(), Ask::Pinned).is_ok());
    }

    #[test]
    fn odd_positions_move_one_by_one_and_several_a_thread() {
        let x = TensorDesc::contiguous(DType::F32, &[64, 96, 55, 55]).unwrap();
        let walk = chosen_walk(x, 5, Direction::Backward);
        assert_eq!(walk.vector_bytes, 4);
        assert!(walk.thread_vectors > 1);
        assert!(u64::from(walk.chunk_channels) * u64::from(walk.chunks) >= 96);
    }

    #[test]
    fn chunks_fill_waves() {
        let chunks = |dims: [u64; 4], pass| {
            let walk = chosen_walk(TensorDesc::contiguous(DType::F32, &dims).unwrap(), 5, pass);
            (walk.thread_vectors, walk.chunk_channels, walk.chunks)
        };
        assert_eq!(chunks([64, 96, 55, 55], Direction::Forward), (4, 48, 2));
        assert_eq!(chunks([64, 256, 27, 27], Direction::Forward), (4, 52, 5));
        assert_eq!(chunks([64, 96, 55, 55], Direction::Backward), (4, 96, 1));
        assert_eq!(chunks([64, 256, 27, 27], Direction::Backward), (2, 86, 3));
        assert_eq!(chunks([128, 384, 13, 13], Direction::Backward), (2, 64, 6));
    }

    #[test]
    fn every_walk_covers_all_channels() {
        for channels in [1, 2, 15, 16, 17, 96, 1000] {
            for (batch, side) in [(1, 255), (64, 27), (200, 55), (3000, 13)] {
                for pass in [Direction::Forward, Direction::Backward] {
                    for size in UNROLLED {
                        let dims = [batch, channels, side, side];
                        let x = geometry(TensorDesc::contiguous(DType::F32, &dims).unwrap(), size);
                        let Ok(walk) = walk_choice(&x, pass, &h200(), Ask::Chosen) else {
                            continue; // The window is longer than all channels.
                        };
                        let (chunk, chunks) = (u64::from(walk.chunk_channels), u64::from(walk.chunks));
                        assert!(chunk * chunks >= channels && chunk * (chunks - 1) < channels, "{dims:?} {walk:?}");
                    }
                }
            }
        }
    }

    /// The array of a position, with the gaps and the end that the kernels give it, is within what it was given.
    #[test]
    fn a_tile_fits() {
        for floats in 80..20_000 {
            let room = tile_room(floats) + 31;
            assert!(room + room / 32 <= floats, "{floats}");
        }
    }
}
