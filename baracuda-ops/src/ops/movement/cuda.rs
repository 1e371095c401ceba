//! The CUDA kernels: in which units elements move, and how threads share them.

use std::ffi::c_void;

use baracuda_ops_sys as sys;

use super::geometry::{Axis, Edge, Moves, Outside};
use super::{concat as concatenation, copy, pad as padding};
use crate::backend::Located;
use crate::backend::cuda::{Device, Launch, Props};
use crate::error::{BuildError, Reason};
use crate::kernel::{Accepted, Ask, Built, Candidate, Exec};
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::pointwise::map::cuda::divisor;
use crate::tensor::TensorDesc;

/// Threads of a block, as in the kernels.
const THREADS: u64 = 256;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
/// Bytes of a vector.
const VEC_BYTES: u64 = 16;
/// Bytes of a row of a tile, as in the kernels.
const TILE_BYTES: u64 = 128;
/// The least extents on both sides that are worth a tile: a quarter of a line of 4 bytes each.
const LEAST_TILE: u64 = 16;
const EXTENTS: usize = sys::BOPS_MOVEMENT_EXTENTS as usize;

const _: () = assert!(EXTENTS == crate::tensor::MAX_RANK);

/// Lines of a row's length in a column of a tile, as in the kernels: with two vectors of a thread in flight on an H200, transposes of 8192 by 8192 f32 move
/// 93 % of what copies do, with one 90 %.
fn lines_of_tile(unit_bytes: u64) -> u64 {
    match unit_bytes {
        8 => 4,
        4 => 2,
        _ => 1,
    }
}

fn c_strides(axis: &Axis) -> sys::bops_movement_strides {
    sys::bops_movement_strides { to: axis.to, from: axis.from }
}

/// Refuses grids of more blocks than a launch has.
fn check_blocks(blocks: u64) -> Result<(), Reason> {
    Reason::unless(blocks <= MOST_BLOCKS, || format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}"))
}

/// Refuses an extent that kernels cannot divide by.
fn check_divisor(extent: u64) -> Result<(), Reason> {
    Reason::unless(extent <= u32::MAX.into(), || {
        format!("an extent within others has {extent} parts, its kernels divide by at most {}", u32::MAX)
    })
}

/// What copies of any strides are told.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Strided {
    choice: sys::bops_copy_strided_choice,
    params: sys::bops_copy_strided_params,
}

impl Strided {
    /// Of moves in units that are as wide as they can be. `has_tail`: the kernel takes bytes behind the last vector.
    fn new(moves: &Moves, align_bytes: u64, has_tail: bool) -> Result<Self, Reason> {
        let (unit, line, rank) = (moves.unit_bytes, moves.line(), moves.axes.len());
        let is_aligned = |units: u64| (units * unit).is_multiple_of(VEC_BYTES);
        let outer = || moves.axes.iter().rev().skip(1);
        let mut params =
            sys::bops_copy_strided_params { from: moves.from, to: moves.to, rank: 1, ..Default::default() };
        params.strides[0] = c_strides(&line);
        let starts_aligned = align_bytes >= VEC_BYTES && is_aligned(moves.to);
        if has_tail && rank <= 1 && moves.has_runs() && unit < VEC_BYTES && starts_aligned && is_aligned(moves.from) {
            // One run of whole vectors and what is behind them.
            let (bytes, per_vector) = (line.extent * unit, VEC_BYTES / unit);
            (params.parts, params.tail_bytes) = (bytes / VEC_BYTES, word(bytes % VEC_BYTES));
            (params.line, params.from, params.to) = (params.parts, params.from / per_vector, params.to / per_vector);
            check_blocks((params.parts + 1).div_ceil(THREADS))?;
            let choice = sys::bops_copy_strided_choice { unit_bytes: word(VEC_BYTES), width: 1 };
            return Ok(Self { choice, params });
        }
        let has_vectors = unit < VEC_BYTES && line.to == 1 && starts_aligned && outer().all(|axis| is_aligned(axis.to));
        let width = if has_vectors { VEC_BYTES / unit } else { 1 };
        let parts_of_line = line.extent.div_ceil(width);
        params.line = line.extent;
        params.parts = moves.units() / line.extent.max(1) * parts_of_line;
        params.rank = word(rank.max(1) as u64);
        check_blocks(params.parts.div_ceil(THREADS))?;
        let is_long = params.parts >= 1 << 31;
        params.is_long = is_long.into();
        let extents = std::iter::once(parts_of_line).chain(outer().map(|axis| axis.extent));
        for (to, extent) in params.inner.iter_mut().zip(extents).take(rank.saturating_sub(1)) {
            check_divisor(extent)?;
            *to = divisor(extent, is_long);
        }
        for (to, axis) in params.strides[1..].iter_mut().zip(outer()) {
            *to = c_strides(axis);
        }
        Ok(Self { choice: sys::bops_copy_strided_choice { unit_bytes: word(unit), width: word(width) }, params })
    }
}

/// What copies in tiles are told.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Tiles {
    choice: sys::bops_copy_tiles_choice,
    params: sys::bops_copy_tiles_params,
}

impl Tiles {
    /// Of moves in units that are as wide as they can be.
    fn new(moves: &Moves, align_bytes: u64, ask: Ask) -> Result<Self, Reason> {
        let Some(across) = moves.across() else {
            return Err("neighbours of the output are as near to each other in the input as any are".into());
        };
        let (unit, rows, columns) = (moves.unit_bytes, moves.axes[across], moves.line());
        Reason::unless(unit < VEC_BYTES, || format!("it moves at most 8 bytes as one, here {unit}"))?;
        ask.leave_if(rows.extent.min(columns.extent) < LEAST_TILE, "tiles would be mostly empty")?;
        let others = moves.axes.iter().enumerate().filter(|(at, _)| *at != across && *at + 1 != moves.axes.len());
        // Innermost first.
        let outer: Vec<&Axis> = others.map(|(_, axis)| axis).rev().collect();
        let is_aligned = |units: u64| (units * unit).is_multiple_of(VEC_BYTES);
        let lengths = [rows.extent, columns.extent, moves.from, moves.to, rows.to, columns.from.unsigned_abs()];
        let has_vectors = rows.from == 1
            && columns.to == 1
            && align_bytes >= VEC_BYTES
            && lengths.into_iter().all(is_aligned)
            && outer.iter().all(|axis| is_aligned(axis.to) && is_aligned(axis.from.unsigned_abs()));
        let of_rows = TILE_BYTES / unit;
        let (row_tiles, column_tiles) =
            (rows.extent.div_ceil(of_rows), columns.extent.div_ceil(of_rows * lines_of_tile(unit)));
        let tiles = outer.iter().map(|axis| axis.extent).product::<u64>() * row_tiles * column_tiles;
        check_blocks(tiles)?;
        let mut params = sys::bops_copy_tiles_params {
            tiles,
            rows: rows.extent,
            columns: columns.extent,
            from: moves.from,
            to: moves.to,
            row: c_strides(&rows),
            column: c_strides(&columns),
            rank: word(outer.len() as u64),
            column_tiles: divisor(column_tiles, false),
            row_tiles: divisor(row_tiles, false),
            ..Default::default()
        };
        for ((by, strides), axis) in params.outer.iter_mut().zip(&mut params.strides).zip(outer) {
            (*by, *strides) = (divisor(axis.extent, false), c_strides(axis));
        }
        let access_bytes = word(if has_vectors { VEC_BYTES } else { unit });
        Ok(Self { choice: sys::bops_copy_tiles_choice { unit_bytes: word(unit), access_bytes }, params })
    }
}

fn operands([x, y]: [*mut c_void; 2]) -> sys::bops_movement_operands {
    sys::bops_movement_operands { x: x.cast_const(), y }
}

/// Copies of which neighbours on one side are far apart on the other.
pub(super) fn copy_tiles<'d>(valid: &'d copy::Valid, _: &Props, ask: Ask) -> Accepted<'d> {
    let align_bytes = copy::align_bytes(valid);
    let Tiles { choice, params } = Tiles::new(&copy::moves(valid).widened(VEC_BYTES, align_bytes), align_bytes, ask)?;
    Ok(calls!(bops_copy_tiles)
        .candidate(true, (0, params, choice, ()), |located| {
            operands(copy::OPERANDS.map(|index| located.pointer(index)))
        })
        .batch_invariant())
}

/// Copies between any layouts.
pub(super) fn copy_strided<'d>(valid: &'d copy::Valid, _: &Props, _: Ask) -> Accepted<'d> {
    let (moves, align_bytes) = (copy::moves(valid), copy::align_bytes(valid));
    let has_work = moves.units() > 0;
    let Strided { choice, params } = Strided::new(&moves.widened(VEC_BYTES, align_bytes), align_bytes, true)?;
    Ok(calls!(bops_copy_strided)
        .candidate(has_work, (0, params, choice, ()), |located| {
            operands(copy::OPERANDS.map(|index| located.pointer(index)))
        })
        .batch_invariant())
}

/// What padding is told.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Padded {
    choice: sys::bops_copy_strided_choice,
    params: sys::bops_pad_params,
}

impl Padded {
    fn new(moves: Moves, outside: Outside, align_bytes: u64) -> Result<Self, Reason> {
        let element_bytes = moves.unit_bytes;
        let moves = moves.widened(VEC_BYTES, align_bytes);
        let Strided { choice, params: moved } = Strided::new(&moves, align_bytes, false)?;
        let mut params = sys::bops_pad_params { moved, ..Default::default() };
        for (to, axis) in params.edges.iter_mut().zip(moves.axes.iter().rev()) {
            let Edge { extent, before, dilation } =
                axis.edge.unwrap_or(Edge { extent: axis.extent, before: 0, dilation: 1 });
            *to = sys::bops_pad_edge { before, extent, dilation, has_edge: axis.edge.is_some().into() };
        }
        params.outside = match outside {
            Outside::Nothing | Outside::Constant(_) => sys::BOPS_OUTSIDE_CONSTANT,
            Outside::Reflect => sys::BOPS_OUTSIDE_REFLECT,
            Outside::Replicate => sys::BOPS_OUTSIDE_REPLICATE,
            Outside::Circular => sys::BOPS_OUTSIDE_CIRCULAR,
        };
        params.value = outside.repeated(element_bytes);
        Ok(Self { choice, params })
    }
}

/// Padding.
pub(super) fn pad<'d>(valid: &'d padding::Valid, _: &Props) -> Accepted<'d> {
    let (moves, outside) = padding::moves(valid);
    let has_work = moves.units() > 0;
    let Padded { choice, params } = Padded::new(moves, outside, padding::align_bytes(valid))?;
    Ok(calls!(bops_pad)
        .candidate(has_work, (0, params, choice, ()), |located| {
            operands(padding::OPERANDS.map(|index| located.pointer(index)))
        })
        .batch_invariant())
}

/// How one tensor moves into another, or a constant into it.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "a part is copied with its numbers, of which a plan has few")]
pub(in crate::ops) enum Part {
    Tiles(Tiles),
    Strided(Strided),
    Padded(Padded),
}

/// Launches of a concatenation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Launches {
    in_tiles: usize,
    strided: usize,
}

/// A part of a run; returns the status of its launch.
pub(in crate::ops) type Start = Box<dyn Fn(&Located<'_>, *mut c_void) -> i32 + Send + Sync>;

impl Part {
    fn of(moves: Moves, align_bytes: u64) -> Result<Self, Reason> {
        let moves = moves.widened(VEC_BYTES, align_bytes);
        Ok(match Tiles::new(&moves, align_bytes, Ask::Chosen) {
            Ok(tiles) => Self::Tiles(tiles),
            Err(_) => Self::Strided(Strided::new(&moves, align_bytes, true)?),
        })
    }

    /// All elements of a tensor go to those of another one.
    pub(in crate::ops) fn between(x: &TensorDesc, y: &TensorDesc) -> Result<Self, Reason> {
        Self::of(Moves::between(x, y), x.align_bytes().min(y.align_bytes()))
    }

    /// All elements of a tensor become 0.
    pub(in crate::ops) fn zeros(y: &TensorDesc) -> Result<Self, Reason> {
        Padded::new(Moves::into(y), Outside::Constant(0), y.align_bytes()).map(Self::Padded)
    }

    /// Prepares it for the operands of these rows.
    pub(in crate::ops) fn prepare(self, device: &Device, rows: [usize; 2]) -> Result<Start, BuildError> {
        let of = move |located: &Located<'_>| operands(rows.map(|at| located.pointer(at)));
        Ok(match self {
            Self::Tiles(Tiles { choice, params }) => {
                let run = calls!(bops_copy_tiles).prepare(device, 0, params, choice, ())?;
                Box::new(move |located, stream| run(&of(located), located.workspace_pointer(), stream))
            }
            Self::Strided(Strided { choice, params }) => {
                let run = calls!(bops_copy_strided).prepare(device, 0, params, choice, ())?;
                Box::new(move |located, stream| run(&of(located), located.workspace_pointer(), stream))
            }
            Self::Padded(Padded { choice, params }) => {
                let run = calls!(bops_pad).prepare(device, 0, params, choice, ())?;
                Box::new(move |located, stream| run(&of(located), located.workspace_pointer(), stream))
            }
        })
    }
}

/// A launch for each input.
pub(super) fn concat<'d>(valid: &'d concatenation::Valid, _: &Props) -> Accepted<'d> {
    let mut parts = Vec::new();
    for (index, moves, align_bytes) in concatenation::moves(valid) {
        parts.push((index, Part::of(moves, align_bytes)?));
    }
    let launches = word(parts.len() as u64);
    let in_tiles = parts.iter().filter(|(_, part)| matches!(part, Part::Tiles(_))).count();
    let choice = Launches { in_tiles, strided: parts.len() - in_tiles };
    let build = move |device: &crate::backend::Device| {
        let device = Device::of(device)?;
        let starts: Vec<Start> = parts
            .into_iter()
            .map(|(index, part)| part.prepare(device, [index, concatenation::OUT]))
            .collect::<Result<_, _>>()?;
        let start = move |located: &Located<'_>, stream: *mut c_void| {
            starts.iter().map(|start| start(located, stream)).find(|&status| status != 0).unwrap_or(0)
        };
        Ok(Built(Exec::Cuda(Launch::new("bops_concat", start))))
    };
    Ok(Candidate { launches, ..Candidate::new(choice, build) }.batch_invariant())
}
