//! The CUDA kernels: how threads share windows, and which neighbours they take at once.

use std::fmt::Debug;

use baracuda_ops_sys as sys;

use super::geometry::{Axis, MAX_AXES, strides};
use super::{Pooling, Valid, Windows, backward, forward};
use crate::backend::Located;
use crate::backend::cuda::{Numbers, Props, c_dtype};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask};
use crate::narrow::word;
use crate::ops::calls::{Calls, calls};
use crate::ops::pointwise::map::cuda::divisor;
use crate::tensor::TensorDesc;

/// Threads of a block, as in the kernels.
const THREADS: u64 = 256;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
/// Bytes of a vector.
const VEC_BYTES: u64 = 16;
/// Places of a window that are worth several threads.
const LEAST_WIDE: u64 = 128;
/// Accesses that each thread of a shared window has at least, and those that it has if there are windows enough.
const LEAST_OF_LANE: u64 = 8;
const MOST_OF_LANE: u64 = 32;
/// Threads that keep the memory of the largest devices busy.
const MOST_USEFUL_THREADS: u64 = 1 << 18;
/// Threads of a warp.
const WARP: u64 = 32;
/// The most neighbouring parts of a block with shared windows: vectors of 128 bytes, a line of the cache.
const ACROSS: u64 = 8;
/// Windows whose blocks keep the device busy if each of them has a warp.
const MANY_WINDOWS: u64 = 2048;
/// Chains of a thread's sums that are added up in two further levels of as many.
const MOST_CHAINS: u64 = (sys::BOPS_POOL_CHAIN * sys::BOPS_POOL_CHAIN) as u64;
const CHAIN: u64 = sys::BOPS_POOL_CHAIN as u64;

/// What numbers of 32 bits with a sign count.
const MOST: u64 = (1 << 31) - 1;

fn check_blocks(blocks: u64) -> Result<(), Reason> {
    Reason::unless(blocks <= MOST_BLOCKS, || format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}"))
}

/// Whether channels are neighbours in every tensor, in whole vectors that start at multiples of one.
fn has_channel_vectors(windows: &Windows, tensors: &[TensorDesc], width: u64) -> bool {
    let fits = |desc: &TensorDesc| {
        let [of_n, of_c, spatial @ ..] = strides(desc);
        let others = || [of_n].into_iter().chain(spatial);
        of_c == 1 && others().all(|stride| stride.is_multiple_of(width)) && desc.align_bytes() >= VEC_BYTES
    };
    windows.channels.is_multiple_of(width) && tensors.iter().all(fits)
}

/// Whether a tensor has whole accesses to `width` neighbours along its last axis.
fn has_row_vectors(desc: &TensorDesc, width: u64) -> bool {
    let [rest @ .., of_w] = strides(desc);
    let last = desc.dims().last().copied().unwrap_or(1);
    of_w == 1
        && last.is_multiple_of(width)
        && rest.iter().all(|stride| stride.is_multiple_of(width))
        && desc.align_bytes() >= width * desc.dtype().size_bytes()
}

/// The windows without adaptive ones that divide each axis evenly: these lie side by side.
fn regular(windows: &Windows) -> Windows {
    let mut regular = *windows;
    // A stride behind longer axes is no number that kernels count in.
    let is_even = |axis: &Axis| axis.output == 1 || (axis.input.is_multiple_of(axis.output) && axis.input <= MOST / 2);
    if windows.axes.iter().all(|axis| !axis.is_adaptive || (axis.input > 0 && is_even(axis))) {
        for axis in regular.axes.iter_mut().filter(|axis| axis.is_adaptive) {
            let stride = if axis.output == 1 { 1 } else { axis.kernel };
            *axis = Axis { stride, is_adaptive: false, ..*axis };
        }
    }
    regular
}

/// Elements of the windows of tiles along each of the last two axes, or 0 if windows do not lie as those of tiles do.
fn kernel_of_tiles(windows: &Windows, pooling: Pooling, dtype: DType) -> u64 {
    let [d, h, w] = windows.axes;
    let is_alone = (d.kernel, d.stride, d.before, d.output) == (1, 1, 0, d.input) && !d.is_adaptive;
    let has_halves = |axis: &Axis| {
        matches!((axis.kernel, axis.before), (2, 0) | (3, 1))
            && (axis.kernel, axis.stride, axis.dilation) == (w.kernel, 2, 1)
            && !axis.is_adaptive
    };
    let fits = is_alone && has_halves(&h) && has_halves(&w) && !pooling.is_norm() && dtype.size_bytes() <= 4;
    if fits { w.kernel } else { 0 }
}

/// Whether neighbours of the coarse tensors of tiles lie as the kernels access them beside vectors of the fine one.
fn has_halved_rows(windows: &Windows, fine: &TensorDesc, coarse: &[TensorDesc], vector: u64) -> bool {
    let w = windows.axes[2];
    w.input == 2 * w.output
        && has_row_vectors(fine, vector)
        && coarse.iter().all(|desc| has_row_vectors(desc, vector / 2))
}

/// How parts lie.
struct Parts {
    /// The extents of the tensor whose elements they are.
    extents: [u64; MAX_AXES],
    width: u64,
    is_channels_last: bool,
}

/// `slots`: of x, y, dy, dx, offsets and indices, as far as there are some.
fn params(valid: &Valid, parts: &Parts, slots: [Option<usize>; 6]) -> Result<sys::bops_pool_params, Reason> {
    let (windows, fields) = (&regular(&valid.derived), &valid.fields);
    if windows.samples == 0 || windows.channels == 0 {
        return Ok(sys::bops_pool_params::default());
    }
    for axis in &windows.axes {
        let longest = axis.input.saturating_add(axis.before + axis.after + axis.stride);
        Reason::unless(longest <= MOST && axis.output <= MOST, || {
            format!(
                "it counts along an axis in 32 bits, which has {} elements and a stride of {}",
                axis.input, axis.stride
            )
        })?;
    }
    Reason::unless(windows.places() <= MOST, || {
        format!("it counts the places of a window in 32 bits, the longest has {}", windows.places())
    })?;
    let along = if parts.is_channels_last { 1 } else { parts.width };
    let [d, h, w] = parts.extents;
    let across = if parts.is_channels_last { parts.width } else { 1 };
    let channels = windows.channels / across;
    let w = w / along;
    let inner = if parts.is_channels_last { [channels, w, h, d] } else { [w, h, d, channels] };
    let count = inner.iter().product::<u64>() * windows.samples;
    let is_long = count >= 1 << 31;
    let mut params = sys::bops_pool_params {
        parts: count,
        is_long: is_long.into(),
        is_adaptive: windows.axes.iter().any(|axis| axis.is_adaptive).into(),
        pooling: match fields.pooling {
            Pooling::Max => sys::BOPS_POOLING_MAX,
            Pooling::Average => sys::BOPS_POOLING_AVERAGE,
            Pooling::Norm1 => sys::BOPS_POOLING_NORM1,
            Pooling::Norm2 => sys::BOPS_POOLING_NORM2,
        },
        excludes_padding: fields.exclude_padding.into(),
        factor: valid.common_divisor().map_or(0.0, |divisor| 1.0 / divisor as f64),
        has_int_offsets: (windows.places() > super::MOST_OF_U8).into(),
        ..Default::default()
    };
    for (to, axis) in params.axes.iter_mut().zip(&windows.axes) {
        *to = sys::bops_pool_axis {
            input: word(axis.input),
            output: word(axis.output),
            kernel: word(axis.kernel),
            dilation: word(axis.dilation),
            before: word(axis.before),
            after: word(axis.after),
            stride: divisor(axis.stride, false),
        };
    }
    for (to, extent) in params.inner.iter_mut().zip(inner) {
        Reason::unless(extent <= u32::MAX.into(), || {
            format!("an extent has {extent} parts, its kernels divide by at most {}", u32::MAX)
        })?;
        *to = divisor(extent, is_long);
    }
    let lying =
        [&mut params.x, &mut params.y, &mut params.dy, &mut params.dx, &mut params.offsets, &mut params.indices];
    for (to, row) in lying.into_iter().zip(slots) {
        let Some(slot) = row.and_then(|row| valid.slots.at(row)) else { continue };
        let [sample, channel, spatial @ ..] = strides(&slot.desc);
        *to = sys::bops_pool_strides { sample, channel, spatial };
    }
    Ok(params)
}

/// Forward's tensors, those that are there.
fn tensors(valid: &Valid) -> Vec<TensorDesc> {
    let rows = [forward::X, forward::Y, forward::OFFSETS];
    valid.slots.all_at(&rows).map(|slot| slot.desc).collect()
}

const OF_FORWARD: [Option<usize>; 6] =
    [Some(forward::X), Some(forward::Y), None, None, Some(forward::OFFSETS), Some(forward::INDICES)];

fn operands(located: &Located<'_>) -> sys::bops_pool_operands {
    sys::bops_pool_operands {
        x: located.pointer(forward::X).cast_const(),
        y: located.pointer(forward::Y),
        offsets: located.pointer(forward::OFFSETS),
        indices: located.pointer(forward::INDICES),
    }
}

fn candidate<C: Numbers + Debug>(
    valid: &Valid,
    calls: Calls<u32, sys::bops_pool_params, C, sys::bops_pool_operands>,
    params: sys::bops_pool_params,
    choice: C,
) -> Accepted<'static> {
    let dtype = c_dtype(valid.fields.x.dtype())?;
    Ok(calls.candidate(params.parts > 0, (dtype, params, choice, params.pooling), operands))
}

/// A thread to a window.
pub(super) fn windows<'d>(valid: &'d Valid, _: &Props, _: Ask) -> Accepted<'d> {
    let windows = &regular(&valid.derived);
    let [d, h, w] = windows.axes;
    let chains = d.kernel.saturating_mul(h.kernel).saturating_mul(w.kernel.div_ceil(CHAIN));
    let (x, pooling) = (valid.slots.always(forward::X).desc, valid.fields.pooling);
    Reason::unless(pooling == Pooling::Max || chains <= MOST_CHAINS, || {
        format!("a thread adds up at most {MOST_CHAINS} chains of {CHAIN} terms, the longest window has {chains}")
    })?;
    let vector = VEC_BYTES / x.dtype().size_bytes();
    let tensors = tensors(valid);
    let is_channels_last = has_channel_vectors(windows, &tensors, vector);
    let of_tiles = kernel_of_tiles(windows, pooling, x.dtype());
    let has_tiles = of_tiles > 0
        && valid.slots.at(forward::INDICES).is_none()
        && (is_channels_last || has_halved_rows(windows, &x, &tensors[1..], vector));
    let parts = if has_tiles {
        let extents = [
            d.output,
            h.output.div_ceil(tile_rows(w.kernel, is_channels_last)),
            if is_channels_last { w.output } else { w.input },
        ];
        Parts { extents, width: vector, is_channels_last }
    } else {
        let width = if is_channels_last { vector } else { 1 };
        Parts { extents: windows.axes.map(|axis| axis.output), width, is_channels_last }
    };
    let params = params(valid, &parts, OF_FORWARD)?;
    check_blocks(params.parts.div_ceil(THREADS))?;
    let is_square = h.kernel == w.kernel
        && matches!(w.kernel, 2 | 3)
        && (h.dilation, w.dilation) == (1, 1)
        && !w.is_adaptive
        && !is_channels_last
        && !pooling.is_norm();
    let kernel = if has_tiles || is_square { w.kernel } else { 0 };
    let choice = sys::bops_pool_choice {
        width: word(parts.width),
        is_channels_last: is_channels_last.into(),
        kernel: word(kernel),
        has_tiles: has_tiles.into(),
        has_planes: 0,
    };
    candidate(valid, calls!(bops_pool), params, choice)
}

/// Rows of windows of a tile. With channels last those of 2 elements, which share no row of x, are faster alone.
fn tile_rows(kernel: u64, is_channels_last: bool) -> u64 {
    if is_channels_last && kernel == 2 { 1 } else { sys::BOPS_POOL_TILE_ROWS.into() }
}

/// Threads that share a window, of so many windows with so many accesses each: enough threads for the device, and with as many accesses each as they can have.
fn lanes(windows: u64, accesses: u64, most: u64) -> u64 {
    let wanted = |of_lane: u64| accesses.div_ceil(of_lane).next_power_of_two();
    let filling = MOST_USEFUL_THREADS.div_ceil(windows.max(1)).next_power_of_two();
    filling.clamp(wanted(MOST_OF_LANE), wanted(LEAST_OF_LANE)).clamp(WARP.min(most), most)
}

/// Several threads to a window.
pub(super) fn wide<'d>(valid: &'d Valid, _: &Props, ask: Ask) -> Accepted<'d> {
    let windows = &regular(&valid.derived);
    let places = windows.places();
    ask.leave_if(places < LEAST_WIDE, "windows are small enough for a thread each")?;
    let [x, y] = [forward::X, forward::Y].map(|row| valid.slots.always(row).desc);
    let vector = VEC_BYTES / x.dtype().size_bytes();
    let is_channels_last = has_channel_vectors(windows, &tensors(valid), vector);
    let width = if is_channels_last { vector } else { 1 };
    let is_flat = !is_channels_last && is_flat(windows, &x, vector);
    let each = if is_flat { vector } else { 1 };
    let windows_there = y.elements() / width;
    // Fewer windows have more threads each.
    let across = if windows_there < MANY_WINDOWS { ACROSS / 2 } else { ACROSS };
    let across = if is_channels_last { (windows.channels / width).next_power_of_two().min(across) } else { 1 };
    let lanes = lanes(windows_there, places.div_ceil(each), THREADS / across);
    // A thread adds up chains in two further levels.
    let of_lane = places.div_ceil(lanes * each).div_ceil(CHAIN);
    Reason::unless(valid.fields.pooling == Pooling::Max || of_lane <= MOST_CHAINS * CHAIN, || {
        format!(
            "its {lanes} threads would add up chains of chains that are longer than the contract allows, of {places} terms"
        )
    })?;
    let extents = windows.axes.map(|axis| axis.output);
    let params = params(valid, &Parts { extents, width, is_channels_last }, OF_FORWARD)?;
    check_blocks(params.parts.div_ceil(THREADS / lanes))?;
    let choice = sys::bops_pool_wide_choice {
        width: word(width),
        is_channels_last: is_channels_last.into(),
        lanes: word(lanes),
        across: word(across),
        is_flat: is_flat.into(),
    };
    candidate(valid, calls!(bops_pool_wide), params, choice)
}

/// Whether dx has no gaps, and whole vectors of one gradient each; and planes of dy are one distance apart.
fn has_dense_planes(windows: &Windows, [dy, dx]: [&TensorDesc; 2], is_channels_last: bool, vector: u64) -> bool {
    let Windows { samples, channels, axes, .. } = *windows;
    let [of_n, of_c, of_d, of_h, of_w] = strides(dx);
    let [d, h, w] = [(axes[0].input, of_d), (axes[1].input, of_h), (axes[2].input, of_w)];
    let order = if is_channels_last {
        [(channels, of_c), w, h, d, (samples, of_n)]
    } else {
        [w, h, d, (channels, of_c), (samples, of_n)]
    };
    let mut next = 1;
    for (extent, stride) in order {
        if extent > 1 && stride != next {
            return false;
        }
        next *= extent;
    }
    let [of_n, of_c, ..] = strides(dy);
    let are_even = channels == 1 || samples == 1 || of_n == channels * of_c;
    let has_vectors = (d.0 * h.0 * w.0).is_multiple_of(vector) && dx.align_bytes() >= VEC_BYTES;
    is_channels_last || (are_even && has_vectors)
}

/// Whether the only window along an axis has each of its elements.
fn is_whole(axis: &Axis) -> bool {
    axis.output == 1 && axis.kernel == axis.input && axis.before == 0 && axis.dilation == 1
}

/// Whether the elements of each window follow one another, in whole vectors.
fn is_flat(windows: &Windows, x: &TensorDesc, vector: u64) -> bool {
    let [of_n, of_c, spatial @ ..] = strides(x);
    let mut next = 1;
    // Extents from the last on; windows have the whole of each.
    for (axis, stride) in windows.axes.iter().zip(spatial).rev() {
        if !is_whole(axis) || (axis.input > 1 && stride != next) {
            return false;
        }
        next *= axis.input;
    }
    let starts = [of_n, of_c].iter().all(|stride| stride.is_multiple_of(vector));
    starts && next.is_multiple_of(vector) && x.align_bytes() >= VEC_BYTES
}

/// Backward.
pub(super) fn backward<'d>(valid: &'d Valid, _: &Props, _: Ask) -> Accepted<'d> {
    let (windows, pooling) = (&regular(&valid.derived), valid.fields.pooling);
    let dx = valid.slots.always(backward::DX).desc;
    let vector = VEC_BYTES / dx.dtype().size_bytes();
    let rows = [backward::DY, backward::OFFSETS, backward::X, backward::Y, backward::DX];
    let all: Vec<TensorDesc> = valid.slots.all_at(&rows).map(|slot| slot.desc).collect();
    let is_channels_last = has_channel_vectors(windows, &all, vector);
    let of_tiles = kernel_of_tiles(windows, pooling, dx.dtype());
    let has_tiles = of_tiles > 0 && (is_channels_last || has_halved_rows(windows, &dx, &all[..all.len() - 1], vector));
    let has_planes = pooling == Pooling::Average
        && windows.axes.iter().all(is_whole)
        && has_dense_planes(windows, [&all[0], &dx], is_channels_last, vector);
    let is_wide = is_channels_last || has_planes || has_row_vectors(&dx, vector);
    let width = if is_wide { vector } else { 1 };
    let [of_d, of_h, of_w] = windows.axes.map(|axis| axis.input);
    let extents = if has_tiles {
        let rows = of_h.div_ceil(2).div_ceil(tile_rows(of_tiles, is_channels_last));
        [of_d, rows, if is_channels_last { of_w.div_ceil(2) } else { of_w }]
    } else if has_planes {
        [1, 1, of_d * of_h * of_w]
    } else {
        [of_d, of_h, of_w]
    };
    let slots =
        [Some(backward::X), Some(backward::Y), Some(backward::DY), Some(backward::DX), Some(backward::OFFSETS), None];
    let mut params = params(valid, &Parts { extents, width, is_channels_last }, slots)?;
    if windows.channels == 1 {
        // Planes are as far apart as samples.
        params.dy.channel = params.dy.sample;
    }
    check_blocks(params.parts.div_ceil(THREADS))?;
    let choice = sys::bops_pool_choice {
        width: word(width),
        is_channels_last: is_channels_last.into(),
        kernel: word(if has_tiles { of_tiles } else { 0 }),
        has_tiles: has_tiles.into(),
        has_planes: has_planes.into(),
    };
    let kernels = (c_dtype(dx.dtype())?, params, choice, params.pooling);
    Ok(calls!(bops_pool_backward).candidate(params.parts > 0, kernels, |located: &Located<'_>| {
        sys::bops_pool_backward_operands {
            dy: located.pointer(backward::DY).cast_const(),
            offsets: located.pointer(backward::OFFSETS).cast_const(),
            x: located.pointer(backward::X).cast_const(),
            y: located.pointer(backward::Y).cast_const(),
            dx: located.pointer(backward::DX),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::window::{PoolDescriptor, PoolWindow};

    fn pool(x: TensorDesc, pooling: Pooling, window: PoolWindow) -> Valid {
        PoolDescriptor::new(x, pooling, window).unwrap().0
    }

    #[test]
    fn windows_of_whole_planes_are_flat_where_vectors_fit() {
        let flat = |dtype, dims: &[u64]| {
            let x = TensorDesc::contiguous(dtype, dims).unwrap();
            is_flat(&pool(x, Pooling::Average, PoolWindow::global()).derived, &x, VEC_BYTES / dtype.size_bytes())
        };
        assert!(flat(DType::F32, &[2, 3, 56, 56]) && flat(DType::BF16, &[2, 3, 4, 4, 16]));
        assert!(!flat(DType::F32, &[2, 3, 7, 7]) && !flat(DType::BF16, &[2, 3, 2, 2]));
        let x = TensorDesc::channels_last(DType::F32, &[2, 8, 4, 4]).unwrap();
        assert!(!is_flat(&pool(x, Pooling::Average, PoolWindow::global()).derived, &x, 4));
        let x = TensorDesc::contiguous(DType::F32, &[2, 8, 4, 4]).unwrap();
        assert!(!is_flat(&pool(x, Pooling::Average, PoolWindow::new(&[2, 4])).derived, &x, 4));
    }

    #[test]
    fn lanes_are_more_where_windows_are_few() {
        assert_eq!(lanes(1 << 14, 784, 256), 32);
        assert_eq!([lanes(1 << 8, 784, 256), lanes(1, 784, 256), lanes(0, 784, 256)], [128; 3]);
        assert_eq!([lanes(1 << 14, 1 << 20, 256), lanes(1, 1 << 20, 32), lanes(1, 10, 256)], [256, 32, 32]);
    }

    #[test]
    fn planes_without_gaps_have_vectors() {
        let dense = |dims: &[u64], is_last: bool| {
            let of = if is_last { TensorDesc::channels_last } else { TensorDesc::contiguous };
            let x = of(DType::BF16, dims).unwrap();
            let windows = regular(&pool(x, Pooling::Average, PoolWindow::global()).derived);
            let dy = of(DType::BF16, &[dims[0], dims[1], 1, 1]).unwrap();
            has_dense_planes(&windows, [&dy, &x], is_last, 8)
        };
        assert!(dense(&[2, 3, 4, 6], false) && dense(&[2, 8, 3, 3], true) && dense(&[2, 1, 4, 4], false));
        assert!(!dense(&[2, 3, 3, 3], false));
    }

    /// The windows of forward, by their kernel, stride and padding.
    fn of(dims: &[u64], window: PoolWindow) -> Windows {
        regular(&pool(TensorDesc::contiguous(DType::BF16, dims).unwrap(), Pooling::Max, window).derived)
    }

    #[test]
    fn tiles_have_windows_two_elements_apart() {
        let kernel = |window| kernel_of_tiles(&of(&[2, 3, 16, 16], window), Pooling::Max, DType::BF16);
        let window =
            |kernel, stride, padding| PoolWindow::new(&[kernel; 2]).stride(&[stride; 2]).padding(&[padding; 2]);
        assert_eq!((kernel(window(3, 2, 1)), kernel(window(2, 2, 0))), (3, 2));
        assert_eq!([window(3, 2, 0), window(3, 1, 1), window(2, 2, 1), window(4, 2, 1)].map(kernel), [0; 4]);
        assert_eq!(kernel(PoolWindow::new(&[2, 3]).stride(&[2, 2]).padding(&[0, 1])), 0);
        assert_eq!(kernel(PoolWindow::adaptive(&[8, 8])), 2);
        let norm = of(&[2, 3, 16, 16], window(2, 2, 0));
        assert_eq!(kernel_of_tiles(&norm, Pooling::Norm2, DType::BF16), 0);
        assert_eq!(kernel_of_tiles(&norm, Pooling::Max, DType::F64), 0);
        let volumes = |window| kernel_of_tiles(&of(&[2, 3, 4, 16, 16], window), Pooling::Max, DType::BF16);
        assert_eq!(volumes(PoolWindow::new(&[1, 2, 2])), 2);
        assert_eq!(volumes(PoolWindow::new(&[2, 2, 2])), 0);
    }

    #[test]
    fn tiles_of_rows_need_half_as_many_windows_as_elements() {
        let rows = |columns: u64, kernel: u64, padding: u64| {
            let window = PoolWindow::new(&[kernel; 2]).stride(&[2; 2]).padding(&[padding; 2]);
            let windows = of(&[2, 3, 16, columns], window);
            let [x, y] = [columns, windows.axes[2].output]
                .map(|columns| TensorDesc::contiguous(DType::BF16, &[2, 3, 16, columns]).unwrap());
            has_halved_rows(&windows, &x, &[y], 8)
        };
        assert!(rows(16, 3, 1) && rows(24, 2, 0));
        assert!(!rows(20, 3, 1) && !rows(17, 3, 1));
    }

    #[test]
    fn adaptive_windows_that_divide_evenly_lie_side_by_side() {
        let [_, h, w] = of(&[2, 3, 16, 15], PoolWindow::adaptive(&[4, 5])).axes;
        assert_eq!(
            [(h.kernel, h.stride, h.is_adaptive), (w.kernel, w.stride, w.is_adaptive)],
            [(4, 4, false), (3, 3, false)]
        );
        let [_, h, w] = of(&[2, 3, 16, 15], PoolWindow::adaptive(&[4, 4])).axes;
        assert!(h.is_adaptive && w.is_adaptive);
        assert!(of(&[2, 3, 16, 15], PoolWindow::global()).axes.iter().all(|axis| !axis.is_adaptive));
    }
}
