//! The WGSL kernels: in which units elements move, and the dispatches.
//!
//! Shaders move words of 4 bytes, and of elements of 1 or 2 bytes single ones where words do not do. Elements of 8 bytes are two words.

use std::fmt::Write;

use super::geometry::{Axis, Moves, Outside};
use super::{concat, copy, pad as padding};
use crate::backend::wgpu::{Binding, Place, Props, StepBuilder, Work, check_bindings, check_reach, groups};
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{signed, word};
use crate::slots::Slots;
use crate::tensor::TensorDesc;

/// Threads of a workgroup: the most that WebGPU promises.
const WORKGROUP: u32 = 256;
/// Chunks of a thread, all of which are loaded before the first is stored: as many as the copy kernel of the benchmarks moves (`csrc/copy.wgsl`).
const CHUNKS: u32 = 4;
/// What shaders address, and what every operand starts at a multiple of.
pub(in crate::ops) const WORD_BYTES: u64 = 4;
/// Units on the side of a tile, in words: 8 lanes of a quarter of a line of 128 bytes each, with room for two workgroups in the least memory.
const SIDE: u64 = 32;

/// A number of 31 bits with a sign, as a stride is, which wraps where it is below 0.
pub(in crate::ops) fn wrapped(stride: i64) -> u32 {
    let magnitude = word(stride.unsigned_abs());
    if stride < 0 { magnitude.wrapping_neg() } else { magnitude }
}

/// Moves in units that shaders have.
fn in_words(moves: Moves) -> Moves {
    moves.narrowed(WORD_BYTES).widened(WORD_BYTES, WORD_BYTES)
}

/// Units of a chunk: those of 16 bytes, but of single bytes no more than their accessors take.
pub(in crate::ops) fn units_of_chunk(unit_bytes: u64) -> u64 {
    (16 / unit_bytes).min(8)
}

/// How one side's units lie along a line.
pub(in crate::ops) struct Side {
    pub(in crate::ops) is_run: bool,
    /// Whether each chunk of a line starts at a multiple of a chunk.
    pub(in crate::ops) is_aligned: bool,
    pub(in crate::ops) unit_bytes: u64,
}

impl Side {
    fn new(moves: &Moves, per_chunk: u64, start: u64, stride: impl Fn(&Axis) -> u64) -> Self {
        let line = moves.line();
        let outer = moves.axes.iter().rev().skip(1);
        Self {
            is_run: line.edge.is_none() && stride(&line) == 1 && line.from >= 0,
            is_aligned: start.is_multiple_of(per_chunk)
                && outer.map(stride).all(|stride| stride.is_multiple_of(per_chunk)),
            unit_bytes: moves.unit_bytes,
        }
    }

    pub(in crate::ops) fn accessors_in(&self) -> [&'static str; 2] {
        let (aligned, any, scattered) = match self.unit_bytes {
            1 => ("byte_pairs_in", "bytes_in", "scattered_byte_in"),
            2 => ("chunks_in", "halves_in", "scattered_half_in"),
            _ => ("chunks_in", "words_in", "scattered_f32_in"),
        };
        match self.is_run {
            true => [if self.is_aligned { aligned } else { any }, any],
            false => [scattered; 2],
        }
    }

    pub(in crate::ops) fn accessors_out(&self) -> [&'static str; 2] {
        let (aligned, any, scattered) = match self.unit_bytes {
            1 => ("byte_pairs_out", "bytes_out", "scattered_byte_out"),
            2 => ("chunks_out", "halves_out", "scattered_half_out"),
            _ => ("chunks_out", "words_out", "scattered_f32_out"),
        };
        match self.is_run {
            true => [if self.is_aligned { aligned } else { any }, any],
            false => [scattered; 2],
        }
    }

    /// The function that stores a chunk.
    pub(in crate::ops) fn store(&self, step: &str) -> String {
        let call = if self.is_run {
            "y_store(place.y_at, place.count, chunk)".to_string()
        } else {
            format!("y_scatter(place.y_at, {step}, place.count, chunk)")
        };
        format!("fn store(place: Place, chunk: vec4<u32>) {{\n    {call};\n}}\n")
    }
}

/// The operand of a row, under the name that it has in the shader.
pub(in crate::ops) fn binding(name: &'static str, index: usize, accessors: [&'static str; 2]) -> Binding {
    Binding { name, place: Some(Place::Operand(index)), accessors }
}

pub(in crate::ops) fn workgroup(props: &Props) -> u32 {
    WORKGROUP.min(props.max_threads)
}

/// Vectors of four words, as bytes.
pub(in crate::ops) fn bytes(words: &[[u32; 4]]) -> Vec<u8> {
    bytemuck::cast_slice(words).to_vec()
}

/// A dispatch for any strides.
fn strided(moves: Moves, operands: [usize; 2], props: &Props) -> Result<StepBuilder, Reason> {
    let moves = in_words(moves);
    let per_chunk = units_of_chunk(moves.unit_bytes);
    let line = moves.line();
    let chunks_of_line = line.extent.div_ceil(per_chunk);
    let chunks = moves.units() / line.extent * chunks_of_line;
    let workgroup = workgroup(props);
    let grid = groups(chunks.div_ceil(u64::from(workgroup * CHUNKS)), props)?;
    let x = Side::new(&moves, per_chunk, moves.from, |axis| axis.from.unsigned_abs());
    let y = Side::new(&moves, per_chunk, moves.to, |axis| axis.to);
    let y = Side { is_run: line.to == 1, ..y };
    let mut words = vec![
        [word(chunks), grid[0], word(line.extent), word(chunks_of_line)],
        [word(moves.from), word(moves.to), wrapped(line.from), word(line.to)],
    ];
    let outer = moves.axes.iter().rev().skip(1);
    words.extend(outer.map(|axis| [word(axis.extent), word(axis.to), wrapped(axis.from), 0]));
    if words.len() == 2 {
        words.push([1, 0, 0, 0]);
    }
    let load =
        if x.is_run { "x_load(place.x_at, place.count)" } else { "x_gather(place.x_at, params.x_step, place.count)" };
    let mut generated = format!("fn load(place: Place) -> vec4<u32> {{\n    return {load};\n}}\n");
    generated.push_str(&y.store("params.y_step"));
    let is_whole = line.extent.is_multiple_of(per_chunk);
    Ok(StepBuilder {
        entry: "copy_strided",
        files: vec!["movement/movement", "movement/copy", "common/chunk"],
        generated,
        constants: vec![
            ("WORKGROUP", workgroup),
            ("CHUNKS", CHUNKS),
            ("ELEMENTS", word(per_chunk)),
            ("AXES", word(words.len() as u64 - 2)),
        ],
        bindings: vec![binding("x", operands[0], x.accessors_in()), binding("y", operands[1], y.accessors_out())],
        can_chunk: is_whole,
        params: bytes(&words),
        grid,
        ..StepBuilder::default()
    })
}

/// Copies between any layouts.
pub(super) fn copy_strided(valid: &copy::Valid, props: &Props, _: Ask) -> Result<Work<()>, Reason> {
    let mut work = reached(&valid.slots, props)?;
    let moves = copy::moves(valid);
    if moves.units() > 0 {
        work.steps.push(strided(moves, copy::OPERANDS, props)?);
    }
    checked(work.batch_invariant_if(true), props)
}

/// Copies of which neighbours on one side are far apart on the other.
pub(super) fn copy_tiles(valid: &copy::Valid, props: &Props, ask: Ask) -> Result<Work<()>, Reason> {
    let mut work = reached(&valid.slots, props)?;
    let moves = copy::moves(valid);
    if moves.units() > 0 {
        work.steps.push(tiles(moves, copy::OPERANDS, props, ask)?);
    }
    checked(work.batch_invariant_if(true), props)
}

/// A dispatch for tiles.
fn tiles(moves: Moves, operands: [usize; 2], props: &Props, ask: Ask) -> Result<StepBuilder, Reason> {
    let Some(across) = moves.across() else {
        return Err("neighbours of the output are as near to each other in the input as any are".into());
    };
    let (unit, rows, columns) = (moves.unit_bytes, moves.axes[across], moves.line());
    let are_neighbours = rows.from == 1 && columns.to == 1;
    Reason::unless(are_neighbours, || {
        format!("it moves neighbours on both sides, these are {} and {} apart", rows.from, columns.to)
    })?;
    // Of 2 bytes, words have two of the same line.
    let per_word = (WORD_BYTES / unit.min(WORD_BYTES)).max(1);
    let outer = || {
        moves
            .axes
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != across && *at + 1 != moves.axes.len())
            .map(|(_, axis)| axis)
    };
    let is_whole = |n: u64| n.is_multiple_of(per_word);
    let has_words = is_whole(rows.extent)
        && is_whole(columns.extent)
        && is_whole(moves.from)
        && is_whole(moves.to)
        && is_whole(rows.to)
        && is_whole(columns.from.unsigned_abs())
        && outer().all(|axis| is_whole(axis.to) && is_whole(axis.from.unsigned_abs()));
    Reason::unless(unit == 4 || (unit == 2 && has_words), || {
        format!(
            "it moves words, and pairs of 2 bytes in words, the units are {unit} bytes and lines have {} and {}",
            rows.extent, columns.extent
        )
    })?;
    ask.leave_if(rows.extent.min(columns.extent) < SIDE / 2, "tiles would be mostly empty")?;
    let side = SIDE * per_word;
    let (row_tiles, column_tiles) = (rows.extent.div_ceil(side), columns.extent.div_ceil(side));
    let batch: u64 = outer().map(|axis| axis.extent).product();
    let count = batch * row_tiles * column_tiles;
    let grid = groups(count, props)?;
    let mut words = vec![
        [word(count), grid[0], word(row_tiles), word(column_tiles)],
        [word(rows.extent), word(columns.extent), word(rows.to), wrapped(columns.from)],
        [word(moves.from), word(moves.to), 0, 0],
    ];
    words.extend(outer().map(|axis| [word(axis.extent), word(axis.to), wrapped(axis.from), 0]));
    if words.len() == 3 {
        words.push([1, 0, 0, 0]);
    }
    Ok(StepBuilder {
        entry: "copy_tiles",
        files: vec!["movement/movement", "movement/copy_tiles"],
        constants: vec![
            ("WORKGROUP", workgroup(props)),
            ("PER_WORD", word(per_word)),
            ("AXES", word(words.len() as u64 - 3)),
        ],
        bindings: vec![
            binding("x", operands[0], ["scattered_f32_in"; 2]),
            binding("y", operands[1], ["scattered_f32_out"; 2]),
        ],
        ignores_layouts: true,
        params: bytes(&words),
        grid,
        ..StepBuilder::default()
    })
}

/// One dispatch for each input.
pub(super) fn concat(valid: &concat::Valid, props: &Props) -> Result<Work<()>, Reason> {
    let mut work = reached(&valid.slots, props)?;
    for (index, moves, _) in concat::moves(valid) {
        let operands = [index, concat::OUT];
        let step = match tiles(moves.clone(), operands, props, Ask::Chosen) {
            Ok(step) => step,
            Err(_) => strided(moves, operands, props)?,
        };
        work.steps.push(step);
    }
    checked(work.batch_invariant_if(true), props)
}

/// Padding.
pub(super) fn pad(valid: &padding::Valid, props: &Props) -> Result<Work<()>, Reason> {
    let mut work = reached(&valid.slots, props)?;
    let (moves, outside) = padding::moves(valid);
    if moves.units() > 0 {
        let has_x = valid.slots.at(padding::OPERANDS[0]).is_some_and(|slot| !slot.desc.is_empty());
        work.steps.push(padded(moves, outside, has_x.then_some(padding::OPERANDS[0]), padding::OPERANDS[1], props)?);
    }
    checked(work.batch_invariant_if(true), props)
}

/// All elements of a tensor go to those of another one. Both come with their rows.
pub(in crate::ops) fn between(
    (x, of_x): (&TensorDesc, usize),
    (y, of_y): (&TensorDesc, usize),
    props: &Props,
) -> Result<StepBuilder, Reason> {
    let moves = Moves::between(x, y);
    tiles(moves.clone(), [of_x, of_y], props, Ask::Chosen).or_else(|_| strided(moves, [of_x, of_y], props))
}

/// All elements of a tensor, which comes with its row, become 0.
pub(in crate::ops) fn zeros((y, row): (&TensorDesc, usize), props: &Props) -> Result<StepBuilder, Reason> {
    padded(Moves::into(y), Outside::Constant(0), None, row, props)
}

/// A dispatch for padding. `of_x`: the row of what is padded, if that has elements.
fn padded(
    moves: Moves,
    outside: Outside,
    of_x: Option<usize>,
    of_y: usize,
    props: &Props,
) -> Result<StepBuilder, Reason> {
    let element_bytes = moves.unit_bytes;
    let moves = in_words(moves);
    let per_chunk = units_of_chunk(moves.unit_bytes);
    let line = moves.line();
    let chunks_of_line = line.extent.div_ceil(per_chunk);
    let chunks = moves.units() / line.extent * chunks_of_line;
    let workgroup = workgroup(props);
    let grid = groups(chunks.div_ceil(workgroup.into()), props)?;
    let y = Side::new(&moves, per_chunk, moves.to, |axis| axis.to);
    let y = Side { is_run: line.to == 1, ..y };
    let (mode, value) = match outside {
        Outside::Nothing | Outside::Constant(_) => (0, halves(outside.repeated(element_bytes))),
        Outside::Reflect => (1, [0; 2]),
        Outside::Replicate => (2, [0; 2]),
        Outside::Circular => (3, [0; 2]),
    };
    let mut words =
        vec![[word(chunks), grid[0], word(chunks_of_line), word(moves.to)], [value[0], value[1], word(moves.from), 0]];
    let single = [line];
    let axes = if moves.axes.is_empty() { &single[..] } else { &moves.axes };
    for axis in axes.iter().rev() {
        let edge = axis.edge.unwrap_or(super::geometry::Edge { extent: axis.extent, before: 0, dilation: 1 });
        // Positions are counted from the first element of x, which may lie before the first of y.
        let past = signed(axis.extent).saturating_sub(edge.before);
        let fits = [edge.before, past].into_iter().all(|at| i32::try_from(at).is_ok());
        Reason::unless(fits && u32::try_from(edge.dilation).is_ok(), || {
            format!(
                "it counts in 32 bits, of {} positions {} are before the first element, and elements are {} apart",
                axis.extent, edge.before, edge.dilation
            )
        })?;
        words.push([word(axis.extent), word(axis.to), wrapped(axis.from), word(edge.extent)]);
        words.push([wrapped(edge.before), word(edge.dilation), axis.edge.is_some().into(), 0]);
    }
    let x = Binding {
        accessors: Side { is_run: false, is_aligned: false, unit_bytes: y.unit_bytes }.accessors_in(),
        ..binding("x", of_x.unwrap_or(of_y), ["absent_in"; 2])
    };
    let has_x = of_x.is_some();
    let mut generated = y.store("params.axes[0][0].y");
    let _ = writeln!(generated, "const HAS_X: bool = {has_x};");
    let read = if has_x { "x_bits(at)" } else { "0u" };
    let _ = writeln!(generated, "fn read_unit(at: u32) -> u32 {{\n    return {read};\n}}");
    generated.push_str(&pack_units(y.unit_bytes));
    Ok(StepBuilder {
        entry: "pad",
        files: vec!["movement/movement", "movement/pad", "common/chunk"],
        generated,
        constants: vec![
            ("WORKGROUP", workgroup),
            ("ELEMENTS", word(per_chunk)),
            ("AXES", word(axes.len() as u64)),
            ("MODE", mode),
        ],
        bindings: vec![x.bound_if(has_x, "absent_in"), binding("y", of_y, y.accessors_out())],
        can_chunk: line.extent.is_multiple_of(per_chunk),
        params: bytes(&words),
        grid,
        ..StepBuilder::default()
    })
}

/// The function that packs the units of a chunk into words.
pub(in crate::ops) fn pack_units(unit_bytes: u64) -> String {
    let units: Vec<String> = match unit_bytes {
        1 => {
            let byte = |at: u32| format!("((units[{at}] & 0xffu) << {}u)", 8 * (at % 4));
            let word = |first: u32| (first..first + 4).map(byte).collect::<Vec<_>>().join(" | ");
            vec![word(0), word(4), "0u".into(), "0u".into()]
        }
        2 => (0..4).map(|at| format!("(units[{}] & 0xffffu) | (units[{}] << 16u)", 2 * at, 2 * at + 1)).collect(),
        _ => (0..4).map(|at| format!("units[{at}]")).collect(),
    };
    format!(
        "fn pack_units(units: array<u32, ELEMENTS>) -> vec4<u32> {{\n    return vec4<u32>({});\n}}\n",
        units.join(", ")
    )
}

/// The words of 8 bytes.
pub(in crate::ops) fn halves(bits: u64) -> [u32; 2] {
    let words: [[u8; 4]; 2] = bytemuck::cast(bits.to_le_bytes());
    words.map(u32::from_le_bytes)
}

/// No dispatch yet, where shaders reach every operand.
fn reached(slots: &Slots, props: &Props) -> Result<Work<()>, Reason> {
    check_reach(slots.iter(), &[], props)?;
    Ok(Work::none((), props))
}

fn checked(work: Work<()>, props: &Props) -> Result<Work<()>, Reason> {
    check_bindings(&work.steps, props)?;
    Ok(work)
}

mod variants;
pub(in crate::ops) use variants::add_variants;
