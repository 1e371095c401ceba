//! The WGSL kernels: how many threads share a line, how lines are divided, and the dispatches.
//!
//! The division follows from the extent of the axis alone, so that a line has the same bits whatever else there is beside it.

mod variants;

use std::fmt::Write;

use super::scans::Combine;
use super::{Valid, forward};
use crate::backend::wgpu::{
    Binding, Place, Props, StepBuilder, Work, check_bindings, check_reach, check_workspace, file, groups,
};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{single, stride, word};
use crate::ops::pointwise::map::wgpu::{Element, Lie, Tensor, accessors, definitions};
use crate::ops::walk::Walk;

pub(in crate::ops) use variants::add_variants;

/// Threads of a workgroup: the most that WebGPU promises.
const WORKGROUP: u32 = 256;
/// Neighbouring positions of a thread in a tile.
const STEPS: u64 = 8;
/// Tiles of a piece of rows, and of columns, whose tiles are shorter.
const TILES: u64 = 8;
const TILES_OF_COLUMNS: u64 = 64;
/// The most threads that share a line of columns: with more, fewer than 32 neighbours of a workgroup would lie side by side.
const DEEP: u64 = 8;
/// The most positions of a line: shaders number them in u32, with room for a tile past the last one.
const MOST_POSITIONS: u64 = 1 << 31;

/// Along lines.
pub(super) fn rows(valid: &Valid, props: &Props, _: Ask) -> Result<Work<()>, Reason> {
    Task::new(valid, props)?.work(false)
}

/// Across lines whose elements are neighbours.
pub(super) fn columns(valid: &Valid, props: &Props, ask: Ask) -> Result<Work<()>, Reason> {
    ask.leave_if(!valid.derived.has_columns(), "elements of y are nearest to each other along the axis")?;
    Task::new(valid, props)?.work(true)
}

/// What a dispatch does with the pieces of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Lines have one piece.
    Whole,
    /// Writes the total of each piece.
    Totals,
    /// Makes of totals what lies before each piece.
    Pieces,
    /// Scans pieces, each behind what lies before it.
    Behind,
}

/// A scan as shaders see it.
struct Task<'v> {
    valid: &'v Valid,
    props: &'v Props,
    walk: Walk,
    combine: Combine,
    /// The types of x and y.
    x: Element,
    y: Element,
}

impl<'v> Task<'v> {
    /// # Errors
    /// Shaders have no elements of a type, or do not reach those of an operand.
    fn new(valid: &'v Valid, props: &'v Props) -> Result<Self, Reason> {
        let dtype = |index| valid.slots.always(index).desc.dtype();
        let (x, combine) = (Element::of(dtype(forward::X))?, valid.fields.scan.combine());
        Reason::unless(dtype(forward::Y) != DType::I64, || {
            let name = valid.fields.scan.name();
            format!(
                "WGSL has no integers of 64 bits, in which {name} of integers is by default; ask for i32 or u32 as the output"
            )
        })?;
        let y = Element::of(dtype(forward::Y))?;
        check_reach(valid.slots.iter(), &[], props)?;
        let length = valid.derived.length;
        Reason::unless(length <= MOST_POSITIONS, || {
            format!("the axis has {length} positions, the limit of 32-bit numbers is {MOST_POSITIONS}")
        })?;
        Ok(Self { valid, props, walk: valid.derived.lines(), combine, x, y })
    }

    fn workgroup(&self) -> u32 {
        WORKGROUP.min(self.props.max_threads)
    }

    /// Words of what is known of some positions.
    fn state_words(&self) -> u64 {
        if matches!(self.combine, Combine::Add | Combine::Multiply) { 1 } else { 2 }
    }

    /// The dispatches.
    fn work(&self, is_columns: bool) -> Result<Work<()>, Reason> {
        let (lines, length) = (self.walk.elements(), self.valid.derived.length);
        let mut work = Work::none((), self.props).batch_invariant_if(self.valid.has_packed_samples());
        if lines == 0 || length == 0 {
            return Ok(work);
        }
        let workgroup = u64::from(self.workgroup());
        let most = if is_columns { DEEP.min(workgroup) } else { workgroup };
        let threads = length.div_ceil(STEPS).next_power_of_two().min(most);
        let tiles = length.div_ceil(threads * STEPS);
        let most_tiles = if is_columns { TILES_OF_COLUMNS } else { TILES };
        let pieces = tiles.div_ceil(most_tiles);
        let shape = Shape { is_columns, threads, tiles: tiles.min(most_tiles), pieces };
        if pieces == 1 {
            work.steps.push(self.step(Phase::Whole, shape, 0)?);
        } else {
            // Totals, then what lies before each piece, each from where a binding can start.
            let bytes = (lines * pieces * self.state_words() * 4).next_multiple_of(self.props.workspace_align().max(4));
            check_workspace(2 * bytes, self.props)?;
            work.workspace_bytes = 2 * bytes;
            for phase in [Phase::Totals, Phase::Pieces, Phase::Behind] {
                work.steps.push(self.step(phase, shape, bytes)?);
            }
        }
        check_bindings(&work.steps, self.props)?;
        Ok(work)
    }

    /// `bytes`: of the totals, behind which lies what is before each piece.
    fn step(&self, phase: Phase, shape: Shape, bytes: u64) -> Result<StepBuilder, Reason> {
        let (lines, fields) = (self.walk.elements(), &self.valid.fields);
        let of_pieces = phase == Phase::Pieces;
        let threads = if of_pieces { self.workgroup().into() } else { shape.threads };
        let count = match of_pieces {
            true => lines,
            false => lines.div_ceil(u64::from(self.workgroup()) / threads).saturating_mul(shape.pieces),
        };
        let grid = groups(count, self.props)?;
        let mut generated = self.text(phase);
        generated.insert_str(0, &definitions(&generated, &["literal", "rounded"]));
        let mut files = vec!["scan/scan"];
        if of_pieces {
            files.push("scan/scan_pieces");
        }
        let axes = self.walk.dims.len().max(1);
        let mut step = StepBuilder {
            entry: if of_pieces { "scan_pieces" } else { "scan" },
            files,
            generated,
            constants: vec![
                ("WORKGROUP", self.workgroup()),
                ("THREADS", word(threads)),
                ("STEPS", word(STEPS)),
                ("ELEMENTS", word(self.per_chunk() as u64)),
                ("AXES", word(axes as u64)),
                ("COMBINE", self.combine_number()),
            ],
            flags: vec![
                ("IS_COLUMNS", shape.is_columns && !of_pieces),
                ("IS_FLOAT", self.valid.derived.computing == DType::F32),
                ("IS_SIGNED", self.x != Element::U32),
                ("IS_REVERSE", fields.reverse),
                ("IS_EXCLUSIVE", fields.exclusive),
                ("IS_OF_TOTALS", phase == Phase::Totals),
                ("HAS_CARRY", phase == Phase::Behind),
            ],
            can_chunk: !of_pieces && (self.is_run(0) || self.is_run(1)),
            params: self.params(grid, shape, of_pieces),
            grid,
            ..StepBuilder::default()
        };
        step.bindings = self.bindings(phase, bytes);
        Ok(step)
    }

    fn combine_number(&self) -> u32 {
        match self.combine {
            Combine::Add => 0,
            Combine::Multiply => 1,
            Combine::Greatest => 2,
            Combine::Least => 3,
            Combine::LogAddExp => 4,
        }
    }

    fn bindings(&self, phase: Phase, bytes: u64) -> Vec<Binding> {
        let operand = |name, index, dtype, is_output, is_run| {
            let lie = if is_run { Lie::Run } else { Lie::Scattered };
            let tensor = Tensor { name, index, dtype, lie, is_output };
            Binding { name, place: Some(Place::Operand(index)), accessors: accessors(&tensor, self.per_chunk() == 8) }
        };
        let part = |name, offset, accessor| Binding {
            name,
            place: Some(Place::Workspace { offset, bytes }),
            accessors: [accessor; 2],
        };
        let x = operand("x", forward::X, self.x, false, self.is_run(1));
        let totals = |accessor| part("totals", 0, accessor);
        let carries = |accessor| part("carries", bytes, accessor);
        let mut bindings = match phase {
            Phase::Whole => vec![x],
            Phase::Totals => return vec![x, totals("scattered_f32_out")],
            Phase::Pieces => return vec![totals("scattered_f32_in"), carries("scattered_f32_out")],
            Phase::Behind => vec![x, carries("scattered_f32_in")],
        };
        bindings.push(operand("y", forward::Y, self.y, true, self.is_run(0)));
        if self.valid.fields.indices.is_some() {
            // Words, whatever the type.
            bindings.push(operand("indices", forward::INDICES, Element::U32, true, false));
        }
        bindings
    }

    /// Whether a thread's elements of an operand, 0 of y and 1 of x, are whole chunks wherever they begin.
    fn is_run(&self, operand: usize) -> bool {
        let (geometry, strides) = (&self.valid.derived, &self.walk.strides[operand]);
        geometry.steps[operand] == 1
            && geometry.length.is_multiple_of(STEPS)
            && strides.iter().all(|stride| stride.is_multiple_of(STEPS))
    }

    /// Elements of a chunk: as many of every operand, four if words are among them.
    fn per_chunk(&self) -> usize {
        let is_word = |(operand, dtype): (usize, Element)| dtype.bytes() == 4 && self.is_run(operand);
        if [(0, self.y), (1, self.x)].into_iter().any(is_word) { 4 } else { 8 }
    }

    /// The place in memory of a step of a thread, which has whole chunks.
    fn in_memory(&self, step: usize) -> usize {
        if self.valid.fields.reverse { 7 - step } else { step }
    }

    /// Reads a thread's elements, as bits of the type in which values are combined.
    fn loads(&self) -> String {
        let value = |bits: String| match self.x {
            Element::F32 | Element::I32 | Element::U32 | Element::U8 => bits,
            Element::F16 | Element::BF16 => format!("bitcast<u32>(unpack_{}({bits}).x)", half(self.x).1),
            Element::Bool => format!("select(0u, 1u, {bits} != 0u)"),
            Element::I8 => format!("bitcast<u32>(bitcast<i32>({bits} << 24u) >> 24u)"),
        };
        if !self.is_run(1) {
            let value = value("x_bits(start + element(first + i) * params.x_step)".into());
            return format!(
                "    for (var i = 0u; i < STEPS; i++) {{\n        if (i < left) {{\n            bits[i] = {value};\n        }}\n    }}"
            );
        }
        let mut text = format!("    if (left > 0u) {{\n        let at = start + {};\n", self.first_in_memory());
        let per_chunk = self.per_chunk();
        for chunk in 0..8 / per_chunk {
            let _ = writeln!(text, "        let chunk{chunk} = x_load(at + {}u, {per_chunk}u);", chunk * per_chunk);
        }
        for step in 0..8 {
            let at = self.in_memory(step);
            let (chunk, within) = (at / per_chunk, at % per_chunk);
            let bits = match self.x.bytes() {
                4 => format!("chunk{chunk}.{}", LANES[within]),
                2 => format!("((chunk{chunk}.{} >> {}u) & 0xffffu)", LANES[within / 2], 16 * (within % 2)),
                _ => format!("((chunk{chunk}.{} >> {}u) & 0xffu)", LANES[within / 4], 8 * (within % 4)),
            };
            let _ = writeln!(text, "        bits[{step}] = {};", value(bits));
        }
        text.push_str("    }");
        text
    }

    /// Writes a thread's results.
    fn stores(&self) -> String {
        let stored = |bits: String| match self.y {
            Element::F16 | Element::BF16 => format!("round_to_half_{}(bitcast<f32>({bits}))", half(self.y).1),
            Element::F32 | Element::I32 | Element::U32 => bits,
            Element::Bool | Element::U8 | Element::I8 => format!("({bits} & 0xffu)"),
        };
        if !self.is_run(0) {
            let mut text = String::from(
                "    var results = bits;\n    for (var i = 0u; i < STEPS; i++) {\n        if (i < left) {\n",
            );
            let _ = writeln!(
                text,
                "            y_scatter(start + element(first + i) * params.y_step, 1u, 1u, vec4<u32>({}, 0u, 0u, 0u));\n        }}\n    }}",
                stored("results[i]".into())
            );
            return text;
        }
        let mut text = format!("    if (left > 0u) {{\n        let at = start + {};\n", self.first_in_memory());
        let (per_chunk, per_word) = (self.per_chunk(), 4 / self.y.bytes() as usize);
        for chunk in 0..8 / per_chunk {
            let word = |word: usize| {
                if word * per_word >= per_chunk {
                    return "0u".into();
                }
                let at = |part: usize| {
                    stored(format!("bits[{}]", self.in_memory(chunk * per_chunk + word * per_word + part)))
                };
                let parts: Vec<String> =
                    (0..per_word).map(|part| format!("({} << {}u)", at(part), 32 / per_word * part)).collect();
                parts.join(" | ")
            };
            let words: Vec<String> = (0..4).map(word).collect();
            let (at, words) = (chunk * per_chunk, words.join(", "));
            let _ = writeln!(text, "        y_store(at + {at}u, {per_chunk}u, vec4<u32>({words}));");
        }
        text.push_str("    }");
        text
    }

    /// Where the first of a thread's neighbours lies along the axis.
    fn first_in_memory(&self) -> &'static str {
        if self.valid.fields.reverse { "params.length - first - STEPS" } else { "first" }
    }

    /// The functions that read and write.
    fn text(&self, phase: Phase) -> String {
        let mut text = String::with_capacity(4 << 10);
        let mut line = |line: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
        };
        let has_elements = phase != Phase::Pieces;
        let writes = matches!(phase, Phase::Whole | Phase::Behind);
        if [self.x, self.y].iter().any(|dtype| dtype.bytes() == 2) {
            let halves = [self.x, self.y].into_iter().filter(|dtype| dtype.bytes() == 2);
            for dtype in halves.take(if self.x == self.y { 1 } else { 2 }) {
                let (path, suffix) = half(dtype);
                let renamed =
                    ["pack", "pack_quads", "round_to_half"].iter().fold(file(path).to_string(), |text, name| {
                        text.replace(&format!("{name}("), &format!("{name}_{suffix}("))
                    });
                line(&renamed);
            }
        }
        line(
            "fn load_steps(start: u32, first: u32, left: u32) -> array<u32, STEPS> {\n    var bits: array<u32, STEPS>;",
        );
        if has_elements {
            line(&self.loads());
        }
        line("    return bits;\n}\n");
        line("fn store_steps(start: u32, first: u32, left: u32, bits: array<u32, STEPS>) {");
        if writes {
            line(&self.stores());
        }
        line("}\n\nfn store_index(at: u32, index: u32) {");
        if let Some(dtype) = self.valid.fields.indices.filter(|_| writes) {
            // Of 64 bits two words, of which the upper one is 0.
            let words = dtype.size_bytes() / 4;
            line(&format!("    indices_scatter({words}u * at, 1u, {words}u, vec4<u32>(index, 0u, 0u, 0u));"));
        }
        line("}\n");
        let words = self.state_words();
        for (name, from, is_read) in
            [("total", "totals", phase == Phase::Pieces), ("carried", "carries", phase == Phase::Behind)]
        {
            let other = if words == 2 { format!("{from}_bits({words}u * at + 1u)") } else { "0u".into() };
            let state = format!("State({from}_bits({words}u * at), {other})");
            let state = if is_read { &state } else { "none()" };
            line(&format!("fn {name}(at: u32) -> State {{\n    return {state};\n}}\n"));
        }
        for (name, to, is_written) in
            [("put_total", "totals", phase == Phase::Totals), ("put_carry", "carries", phase == Phase::Pieces)]
        {
            line(&format!("fn {name}(at: u32, state: State) {{"));
            if is_written {
                line(&format!(
                    "    {to}_scatter({words}u * at, 1u, {words}u, vec4<u32>(state.value, state.other, 0u, 0u));"
                ));
            }
            line("}\n");
        }
        line(if self.combine == Combine::LogAddExp { LOGARITHMS } else { NO_LOGARITHMS });
        text
    }

    fn params(&self, grid: [u32; 2], shape: Shape, of_pieces: bool) -> Vec<u8> {
        let geometry = &self.valid.derived;
        let tiles = match of_pieces {
            true => shape.pieces.div_ceil(u64::from(self.workgroup()) * STEPS),
            false => shape.tiles,
        };
        let step = |operand: usize| geometry.steps.get(operand).map_or(0, |&step| stride(step));
        let mut words = vec![
            [word(self.walk.elements()), grid[0], u32::MAX, word(geometry.length)],
            [word(shape.pieces), word(tiles), self.no_values(), step(1)],
            [step(0), step(2), 0, 0],
        ];
        let own = |operand: usize, axis: usize| {
            self.walk.strides.get(operand).map_or(0, |strides: &Vec<u64>| stride(strides[axis]))
        };
        for (axis, &extent) in self.walk.dims.iter().enumerate().rev() {
            words.push([word(extent), own(1, axis), own(0, axis), own(2, axis)]);
        }
        if self.walk.dims.is_empty() {
            words.push([1, 0, 0, 0]);
        }
        bytemuck::cast_slice(&words).to_vec()
    }

    /// The bits of what no values are together.
    fn no_values(&self) -> u32 {
        let fields = &self.valid.fields;
        match self.valid.derived.computing {
            DType::F32 => single(self.combine.none()).to_bits(),
            // In two's complement.
            _ => word(self.combine.none_of(fields.x.dtype()).rem_euclid(1 << 32).unsigned_abs()),
        }
    }
}

/// How lines are divided.
#[derive(Clone, Copy, Debug)]
struct Shape {
    is_columns: bool,
    /// That share a line.
    threads: u64,
    /// Of a piece.
    tiles: u64,
    pieces: u64,
}

/// The components of a vector.
const LANES: [&str; 4] = ["x", "y", "z", "w"];

/// The file of a 16-bit type, and what its functions end in.
fn half(dtype: Element) -> (&'static str, &'static str) {
    if dtype == Element::F16 { ("common/f16", "f16") } else { ("common/bf16", "bf16") }
}

/// Sums of exponentials: `sum * exp(most)` each.
const LOGARITHMS: &str = "\
fn log_add_exp(x: State, y: State) -> State {
    let is_rising = order(y.value) > order(x.value);
    let most = select(x.value, y.value, is_rising);
    let least = select(y.value, x.value, is_rising);
    let sum = bitcast<f32>(select(x.other, y.other, is_rising));
    let lesser = bitcast<f32>(select(y.other, x.other, is_rising));
    var factor = 1.0;
    if (order(least) != order(most)) {
        factor = f_exp(rounded(vec4<f32>(bitcast<f32>(least) - bitcast<f32>(most)))).x;
    }
    return State(most, bitcast<u32>(sum + lesser * factor));
}

fn logarithm_of(state: State) -> u32 {
    let most = vec4<f32>(bitcast<f32>(state.value));
    // Of infinities the sum does not count.
    if ((state.value & 0x7f800000u) == 0x7f800000u) {
        return state.value;
    }
    return bitcast<u32>((most + f_log(vec4<f32>(bitcast<f32>(state.other)))).x);
}
";
/// What no scan without exponentials calls.
const NO_LOGARITHMS: &str = "\
fn log_add_exp(x: State, y: State) -> State {
    return x;
}

fn logarithm_of(state: State) -> u32 {
    return state.value;
}
";
