//! The CUDA kernels: which variant serves what, parameters, preparation and launch.

use baracuda_ops_sys as sys;
use sys::bops_local_response_norm_choice as Tuned;

use super::{Geometry, Valid, backward, forward};
use crate::backend::cuda::{self, Props, c_dtype};
use crate::backend::{Device, Located};
use crate::error::Reason;
use crate::narrow::{halves, word};
use crate::options::WorkspaceReq;
use crate::plan::{Accepted, BuildError, Built, Candidate};

/// The forward kernels.
pub(super) fn forward<'d>(norm: &'d Valid, props: &Props) -> Accepted<'d> {
    accept(norm, Pass::Forward, props, |geometry, tuned, dtype, device| {
        let params = sys::bops_local_response_norm_params {
            batch: geometry.batch,
            channels: geometry.channels,
            spatial: geometry.spatial,
            x: strides(&geometry, forward::X),
            y: strides(&geometry, forward::Y),
            size: geometry.size,
            scale: geometry.scale,
            beta: norm.fields.beta.get(),
            k: norm.fields.k.get(),
        };
        // SAFETY: the structs live across the call and hold what `choose` allows.
        let prepare = || unsafe { sys::bops_local_response_norm_prepare(&params, &tuned, dtype) };
        let run = move |located: &Located<'_>, stream| {
            let operands = sys::bops_local_response_norm_operands {
                x: located.pointer(forward::X),
                y: located.pointer(forward::Y),
            };
            // SAFETY: the generic check proved every operand's span, alignment and device.
            unsafe { sys::bops_local_response_norm_launch(&params, &tuned, dtype, &operands, stream) }
        };
        let key = key(norm, &geometry, &tuned, dtype);
        cuda::build(device, "bops_local_response_norm", geometry.elements() > 0, key, prepare, run)
    })
}

/// The kernels of the gradient.
pub(super) fn backward<'d>(norm: &'d Valid, props: &Props) -> Accepted<'d> {
    accept(norm, Pass::Backward, props, |geometry, tuned, dtype, device| {
        let params = sys::bops_local_response_norm_backward_params {
            batch: geometry.batch,
            channels: geometry.channels,
            spatial: geometry.spatial,
            dy: strides(&geometry, backward::DY),
            x: strides(&geometry, backward::X),
            dx: strides(&geometry, backward::DX),
            size: geometry.size,
            scale: geometry.scale,
            beta: norm.fields.beta.get(),
            k: norm.fields.k.get(),
        };
        // SAFETY: the structs live across the call and hold what `choose` allows.
        let prepare = || unsafe { sys::bops_local_response_norm_backward_prepare(&params, &tuned, dtype) };
        let run = move |located: &Located<'_>, stream| {
            let operands = sys::bops_local_response_norm_backward_operands {
                dy: located.pointer(backward::DY),
                x: located.pointer(backward::X),
                dx: located.pointer(backward::DX),
            };
            let workspace = located.workspace_pointer();
            // SAFETY: the generic check proved every operand's span, alignment and device, and the workspace's.
            unsafe {
                sys::bops_local_response_norm_backward_launch(&params, &tuned, dtype, &operands, workspace, stream)
            }
        };
        let key = key(norm, &geometry, &tuned, dtype);
        cuda::build(device, "bops_local_response_norm_backward", geometry.elements() > 0, key, prepare, run)
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Forward,
    Backward,
}

/// Windows that kernels hold in registers.
const UNROLLED: [u64; 4] = [3, 5, 7, 9];
/// Threads of a block of a walk, as in the kernels.
const WALK_THREADS: u64 = 128;
/// Threads of a warp.
const WARP: u64 = 32;
/// Threads of the other blocks.
const THREADS: u64 = 256;
/// Most bytes of shared memory that a tile takes.
const TILE_BYTES: u64 = 40 << 10;
/// Fewest positions of a sample for which a walk over channels-last data of one position would be the better read; below it, data that
/// is both goes to the kernels of channels-last data.
const FEW_POSITIONS: u64 = 2;

/// What forward and backward share: the geometry, and what serves it. `build` takes both, and the type.
fn accept<'d>(
    norm: &Valid,
    pass: Pass,
    props: &Props,
    build: impl FnOnce(Geometry, Tuned, sys::bops_dtype, &Device) -> Result<Built, BuildError> + Send + 'd,
) -> Accepted<'d> {
    let geometry = Geometry::new(norm)?;
    let tuned = choose(&geometry, pass, props)?;
    let dtype = c_dtype(norm.fields.x.dtype())?;
    let (mut workspace, mut launches) = (WorkspaceReq::NONE, 1);
    if tuned.variant == sys::BOPS_LOCAL_RESPONSE_NORM_DIRECT && pass == Pass::Backward {
        let accumulator_bytes = norm.fields.x.dtype().accumulator().size_bytes();
        let bytes = geometry.elements().checked_mul(accumulator_bytes);
        let bytes = bytes.ok_or("its workspace would exceed 2^64 bytes")?;
        (workspace, launches) = (WorkspaceReq::new(bytes, 16), 2);
    }
    if geometry.elements() == 0 {
        launches = 0;
    }
    let build = move |device: &Device| build(geometry, tuned, dtype, device);
    Ok(Candidate { workspace, launches, ..Candidate::new(tuned, build) })
}

/// The variant for some operands: neighbouring positions walk, neighbouring channels stay together.
fn choose(geometry: &Geometry, pass: Pass, props: &Props) -> Result<Tuned, Reason> {
    let Geometry { batch, channels, spatial, size, element_bytes, .. } = *geometry;
    let is_narrow = element_bytes < 8;
    let is_unrolled = is_narrow && UNROLLED.contains(&size) && channels < 1 << 30;
    let most_blocks = (1u64 << 31) - 1;
    let within = |blocks: u64| {
        if blocks <= most_blocks {
            Ok(())
        } else {
            Err(Reason::from(format!("it needs {blocks} blocks, a launch has at most {most_blocks}")))
        }
    };
    let prefers_channels = geometry.channel_bytes > 0 && (geometry.position_bytes == 0 || spatial < FEW_POSITIONS);
    if is_unrolled && geometry.position_bytes > 0 && !prefers_channels {
        let quad = 4 * element_bytes;
        let walk = if geometry.position_bytes >= quad { None } else { walk_of(batch, spatial, pass) };
        let (vec_bytes, parts) = match walk {
            Some(walk) => (element_bytes, walk.parts),
            None => (if geometry.position_bytes >= quad { quad } else { element_bytes }, 1),
        };
        let vectors = spatial * element_bytes / vec_bytes;
        let threads = if parts == 1 { batch * vectors } else { batch * vectors.next_multiple_of(WARP * parts) / parts };
        let (chunk, chunks) = match walk {
            Some(walk) => walk.chunks(channels, size, threads.div_ceil(WALK_THREADS), pass, props),
            None => walk_chunks(channels, size, threads * vec_bytes / element_bytes, pass, props),
        };
        within(threads.div_ceil(WALK_THREADS))?;
        return Ok(Tuned {
            variant: sys::BOPS_LOCAL_RESPONSE_NORM_WALK,
            vec_bytes: word(vec_bytes),
            parts: word(parts),
            chunk: word(chunk),
            chunks: word(chunks),
            ..Tuned::default()
        });
    }
    let positions = batch * spatial;
    if is_narrow && geometry.channel_bytes > 0 && positions > 0 {
        let vectors = channels * element_bytes / 16;
        if is_unrolled && geometry.channel_bytes == 16 && vectors <= THREADS {
            within(positions)?;
            let threads = ROWS_THREADS.max(vectors);
            let variant = sys::BOPS_LOCAL_RESPONSE_NORM_ROWS;
            return Ok(Tuned { variant, vec_bytes: 16, threads: word(threads), ..Tuned::default() });
        }
        // Of a tile with its halo, forward keeps x, backward x and two more.
        let (arrays, halo) = if pass == Pass::Forward { (1, size - 1) } else { (3, 2 * (size - 1)) };
        let width = if geometry.channel_bytes == 16 { 16 / element_bytes } else { 1 };
        let columns = channels.div_ceil(width).next_power_of_two().clamp(8, THREADS);
        let threads = columns.max(128);
        let room = (TILE_BYTES.min(u64::from(props.shared_bytes)) / 4 / arrays / (threads / columns)) * 32 / 33 - 64;
        let chunk = if channels <= room { channels } else { room.saturating_sub(halo + width) / width * width };
        let chunk = chunk.next_multiple_of(width);
        if chunk >= channels.min(halo) && chunk > 0 && channels.div_ceil(chunk) <= 65535 {
            within(positions)?;
            return Ok(Tuned {
                variant: sys::BOPS_LOCAL_RESPONSE_NORM_TILE,
                vec_bytes: word(width * element_bytes),
                threads: threads as u32,
                columns: columns as u32,
                chunk: word(chunk),
                chunks: word(channels.div_ceil(chunk)),
                ..Tuned::default()
            });
        }
    }
    within(geometry.elements().div_ceil(THREADS))?;
    Ok(Tuned {
        variant: sys::BOPS_LOCAL_RESPONSE_NORM_DIRECT,
        threads: word(THREADS),
        is_last: u32::from(prefers_channels),
        ..Tuned::default()
    })
}

/// Threads of a block of rows, unless one row needs more. Measured on an H200.
const ROWS_THREADS: u64 = 128;

/// A walk whose threads own several single elements, and how it fills a large GPU. Measured on an H200.
struct Walk {
    /// Elements of a thread.
    parts: u64,
    /// Fewest positions of the batch for which it is the better one.
    positions: u64,
    /// Blocks of a multiprocessor that keep its share of the memory busy.
    busy: u64,
    /// Blocks that a multiprocessor has registers for, by the windows of `UNROLLED`.
    places: [u64; 4],
}

const FORWARD_WALKS: [Walk; 2] = [
    Walk { parts: 4, positions: 32 << 10, busy: 4, places: [9, 6, 4, 4] },
    Walk { parts: 2, positions: 32 << 10, busy: 6, places: [12, 9, 8, 7] },
];
const BACKWARD_WALKS: [Walk; 2] = [
    Walk { parts: 4, positions: 64 << 10, busy: 3, places: [4, 3, 2, 2] },
    Walk { parts: 2, positions: 16 << 10, busy: 5, places: [6, 5, 3, 3] },
];

/// The walk of as many elements a thread as leave few threads without work.
fn walk_of(batch: u64, spatial: u64, pass: Pass) -> Option<&'static Walk> {
    let walks = if pass == Pass::Forward { &FORWARD_WALKS } else { &BACKWARD_WALKS };
    let wasted = |parts: u64| {
        let whole = spatial.next_multiple_of(WARP * parts);
        (whole - spatial) * 8 > whole
    };
    walks.iter().find(|walk| batch * spatial >= walk.positions && !wasted(walk.parts))
}

impl Walk {
    /// Channels of a block and how many such parts there are, for `blocks` blocks a part: what takes least time where the blocks of a
    /// multiprocessor come in waves, and a last wave of few blocks takes as long as one that keeps the memory busy.
    fn chunks(&self, channels: u64, size: u64, blocks: u64, pass: Pass, props: &Props) -> (u64, u64) {
        let places = UNROLLED.iter().position(|&unrolled| unrolled == size).map_or(1, |window| self.places[window]);
        let time = |chunks: u64| {
            let of_multiprocessor = (blocks * chunks).div_ceil(u64::from(props.multiprocessors).max(1));
            let (waves, rest) = (of_multiprocessor / places, of_multiprocessor % places);
            let last = if rest == 0 { 0 } else { rest.max(self.busy.min(places)) };
            // Its first loads take a chunk as long as a window of channels does.
            (channels.div_ceil(chunks) + halo(size, pass) + size) * (waves * places + last)
        };
        let chunks = (1..=most_chunks(channels, size, pass)).min_by_key(|&chunks| time(chunks)).unwrap_or(1);
        cut(channels, chunks)
    }
}

/// The same for a walk of one vector or element a thread: enough to keep the device busy.
fn walk_chunks(channels: u64, size: u64, positions: u64, pass: Pass, props: &Props) -> (u64, u64) {
    let wanted_positions = u64::from(props.multiprocessors) * if pass == Pass::Forward { 4096 } else { 2048 };
    cut(channels, wanted_positions.div_ceil(positions.max(1)).clamp(1, most_chunks(channels, size, pass)))
}

/// Channels that a chunk reads beyond its own.
fn halo(size: u64, pass: Pass) -> u64 {
    if pass == Pass::Forward { size - 1 } else { 2 * (size - 1) }
}

/// Chunks that are each many times as long as their halo.
fn most_chunks(channels: u64, size: u64, pass: Pass) -> u64 {
    (channels / (4 * halo(size, pass))).clamp(1, 65535)
}

/// About `chunks` chunks of the same length, and how many there are.
fn cut(channels: u64, chunks: u64) -> (u64, u64) {
    let chunk = channels.div_ceil(chunks).max(1);
    (chunk, channels.div_ceil(chunk).max(1))
}

fn strides(geometry: &Geometry, position: usize) -> sys::bops_channel_strides {
    let [batch, channel, spatial] = geometry.strides[position];
    sys::bops_channel_strides { batch, channel, spatial }
}

/// What tells prepared kernels apart: also the window, the channels, which shared memory follows from, and what decides on roots.
fn key(norm: &Valid, geometry: &Geometry, tuned: &Tuned, dtype: sys::bops_dtype) -> Vec<u32> {
    let Tuned { variant, vec_bytes, parts, threads, columns, chunk, chunks, is_last } = *tuned;
    let fields = &norm.fields;
    let numbers = [geometry.size, geometry.channels, fields.beta.get().to_bits(), fields.k.get().to_bits()];
    let words = numbers.into_iter().flat_map(halves);
    let choice = [variant, vec_bytes, parts, threads, columns, chunk, chunks, is_last];
    choice.into_iter().chain(words).chain([dtype]).collect()
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

    fn chosen(x: TensorDesc, size: u64, pass: Pass) -> Tuned {
        let norm = LocalResponseNormDescriptor::new(x, size).map(|norm| norm.0).unwrap();
        choose(&Geometry::new(&norm).unwrap(), pass, &h200()).unwrap()
    }

    #[test]
    fn contiguous_data_walks_and_channels_last_data_stays_in_rows() {
        let dims = [8, 64, 16, 16];
        let x = TensorDesc::contiguous(DType::F32, &dims).unwrap();
        let walk = chosen(x, 5, Pass::Forward);
        assert_eq!((walk.variant, walk.vec_bytes), (sys::BOPS_LOCAL_RESPONSE_NORM_WALK, 16));
        let x = TensorDesc::channels_last(DType::BF16, &dims).unwrap();
        assert_eq!(chosen(x, 5, Pass::Backward).variant, sys::BOPS_LOCAL_RESPONSE_NORM_ROWS);
        assert_eq!(chosen(x, 4, Pass::Backward).variant, sys::BOPS_LOCAL_RESPONSE_NORM_TILE);
        let x = TensorDesc::contiguous(DType::F32, &[64, 4096]).unwrap();
        assert_eq!(chosen(x, 5, Pass::Backward).variant, sys::BOPS_LOCAL_RESPONSE_NORM_TILE);
        let x = TensorDesc::contiguous(DType::F64, &dims).unwrap();
        assert_eq!(chosen(x, 5, Pass::Forward).variant, sys::BOPS_LOCAL_RESPONSE_NORM_DIRECT);
    }

    #[test]
    fn odd_positions_move_one_by_one_and_several_a_thread() {
        let x = TensorDesc::contiguous(DType::F32, &[64, 96, 55, 55]).unwrap();
        let walk = chosen(x, 5, Pass::Backward);
        assert_eq!((walk.variant, walk.vec_bytes), (sys::BOPS_LOCAL_RESPONSE_NORM_WALK, 4));
        assert!(walk.parts > 1);
        assert!(u64::from(walk.chunk) * u64::from(walk.chunks) >= 96);
    }

    #[test]
    fn chunks_fill_waves() {
        let chunks = |dims: [u64; 4], pass| {
            let walk = chosen(TensorDesc::contiguous(DType::F32, &dims).unwrap(), 5, pass);
            (walk.parts, walk.chunk, walk.chunks)
        };
        assert_eq!(chunks([64, 96, 55, 55], Pass::Forward), (4, 48, 2));
        assert_eq!(chunks([64, 256, 27, 27], Pass::Forward), (4, 52, 5));
        assert_eq!(chunks([64, 96, 55, 55], Pass::Backward), (4, 96, 1));
        assert_eq!(chunks([64, 256, 27, 27], Pass::Backward), (2, 86, 3));
        assert_eq!(chunks([128, 384, 13, 13], Pass::Backward), (2, 64, 6));
    }

    #[test]
    fn every_walk_covers_all_channels() {
        for channels in [1, 2, 15, 16, 17, 96, 1000] {
            for (batch, side) in [(1, 255), (64, 27), (200, 55), (3000, 13)] {
                for pass in [Pass::Forward, Pass::Backward] {
                    for size in UNROLLED {
                        let dims = [batch, channels, side, side];
                        let walk = chosen(TensorDesc::contiguous(DType::F32, &dims).unwrap(), size, pass);
                        if walk.variant != sys::BOPS_LOCAL_RESPONSE_NORM_WALK {
                            continue; // The window holds all channels.
                        }
                        let (chunk, chunks) = (u64::from(walk.chunk), u64::from(walk.chunks));
                        assert!(chunk * chunks >= channels && chunk * (chunks - 1) < channels, "{dims:?} {walk:?}");
                    }
                }
            }
        }
    }
}
