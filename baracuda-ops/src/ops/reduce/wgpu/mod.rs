//! The WGSL kernels: along which extent a thread has a chunk of neighbours, how many threads share an output, and the dispatches.
//!
//! What is reduced to an output is divided into pieces, whose size follows from the extents that are reduced alone; so does the order in which values are
//! combined, and an output has the same bits whatever else there is beside it.

mod variants;

use super::reduction::{Combine, Each, Finish, Row};
use super::{Geometry, OUTPUT, Valid};
use crate::backend::wgpu::{
    Binder, Binding, Place, Props, StepBuilder, Work, check_bindings, check_reach, check_workspace, groups,
};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{single, stride, word};
use crate::ops::pointwise::map::wgpu::{Computing, Element, Lie, Output, Tensor, accessors, reduced_text};
use crate::ops::walk::Walk;

pub(in crate::ops) use variants::add_variants;

/// Threads of a workgroup: the most that WebGPU promises.
const WORKGROUP: u32 = 256;
/// Items of a thread in a piece: loads that may be in flight at once, and additions in a chain.
const ROUNDS: u32 = 16;
/// The most threads that share outputs in columns: with more, fewer than eight chunks of a workgroup would lie side by side.
const MOST_DEEP: u64 = 32;
/// The most positions of a program: shaders number them in u32.
const MOST_POSITIONS: u64 = 1 << 31;

/// Along the extents that are reduced, where chunks lie.
pub(super) fn rows(valid: &Valid, props: &Props, ask: Ask) -> Result<Work<()>, Reason> {
    ask.leave_if(has_better_columns(&valid.derived), "elements are nearer to each other along an extent that stays")?;
    valid.derived.one_set()?;
    let (kept, reduced) = (valid.derived.kept(), valid.derived.reduced());
    let has_rows = !reduced.dims.is_empty() || kept.dims.is_empty();
    Reason::unless(has_rows, || "no extent is reduced along which rows could lie")?;
    Task::new(valid, props, row_axes(&valid.derived))?.work("reduce_rows")
}

/// The extents of rows, innermost first.
pub(super) fn row_axes(geometry: &Geometry) -> Vec<Axis> {
    let [kept, reduced] = [geometry.kept(), geometry.reduced()].map(|walk| walk.dims.len());
    (0..reduced).rev().map(Axis::Reduced).chain((0..kept).rev().map(Axis::Kept)).collect()
}

/// Along the innermost of the extents that stay.
pub(super) fn columns(valid: &Valid, props: &Props, _: Ask) -> Result<Work<()>, Reason> {
    valid.derived.one_set()?;
    let (kept, reduced) = (valid.derived.kept(), valid.derived.reduced());
    let Some(line) = kept.dims.len().checked_sub(1) else {
        return Err("no extent stays along which columns could lie".into());
    };
    let axes = std::iter::once(Axis::Kept(line))
        .chain((0..reduced.dims.len()).rev().map(Axis::Reduced))
        .chain((0..line).rev().map(Axis::Kept))
        .collect();
    Task::new(valid, props, axes)?.work("reduce_columns")
}

/// Whether elements of the largest input are nearer to each other along an extent that stays than along those that are reduced.
fn has_better_columns(geometry: &Geometry) -> bool {
    let (kept, reduced, most) = (geometry.kept(), geometry.reduced(), geometry.largest());
    let nearest = |strides: &[u64]| strides.last().copied().filter(|&stride| stride > 0);
    match (nearest(&kept.strides[1 + most]), nearest(&reduced.strides[most])) {
        (Some(of_kept), Some(of_reduced)) => of_kept < of_reduced,
        (of_kept, _) => of_kept.is_some(),
    }
}

/// An extent of one of the two walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Kept(usize),
    Reduced(usize),
}

/// What is held of values while they are combined: a file of `csrc/reduce`, the functions of programs that it calls, and the words that it has in memory.
#[derive(Clone, Copy, Debug)]
struct Held {
    file: &'static str,
    further: &'static [&'static str],
    words: u64,
    /// Whether results are integers of two words.
    is_whole: bool,
}

impl Held {
    /// # Errors
    /// Shaders do not compute it.
    fn of(row: Row, computing: DType, output: DType) -> Result<Self, Reason> {
        let held = |file, further, words| Ok(Self { file, further, words, is_whole: false });
        let whole = |file, words| Ok(Self { file, further: &[], words, is_whole: true });
        match (row.combine, computing) {
            (_, DType::I64) => Err("WGSL has no integers of 64 bits; cast to i32, where the numbers fit".into()),
            (Combine::Count, _) => whole("reduce/held_counts", 1),
            (Combine::FirstGreatest | Combine::FirstLeast, _) => whole("reduce/held_positions", 2),
            (Combine::Exponentials, _) => {
                let further = &["f_log", "literal", "natural_power", "rounded", "unless_nan"];
                held("reduce/held_exponentials", further, 2)
            }
            (Combine::Moments, _) => held("reduce/held_moments", &["f_div", "f_sqrt", "literal", "rounded"], 3),
            (_, DType::F32 | DType::F64) => {
                held("reduce/held_numbers", &["f_div", "f_sqrt", "literal", "rounded", "unless_nan"], 1)
            }
            (Combine::Multiply, _) if output == DType::I64 => {
                Err("WGSL has no products of 64 bits; ask for an output of i32 or u32, whose products wrap".into())
            }
            (Combine::Add, _) if output == DType::I64 => whole("reduce/held_pairs", 2),
            _ => whole("reduce/held_words", 1),
        }
    }
}

/// Where the results of pieces go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// To the output, if there is one piece; else to the workspace.
    OfOutputs,
    /// To the workspace, behind so many of other sets.
    From(u64),
}

/// A reduction as shaders see it.
pub(super) struct Task<'v> {
    valid: &'v Valid,
    props: &'v Props,
    kept: Walk,
    /// Extents and, of each input, strides, innermost first.
    extents: Vec<u64>,
    strides: Vec<Vec<u64>>,
    inputs: Vec<Tensor>,
    output: Output,
    computing: Computing,
    held: Held,
}

impl<'v> Task<'v> {
    /// # Errors
    /// Shaders have no elements of a type, or do not reach those of an operand.
    pub(super) fn new(valid: &'v Valid, props: &'v Props, axes: Vec<Axis>) -> Result<Self, Reason> {
        let geometry = &valid.derived;
        let (kept, reduced) = (geometry.kept(), geometry.reduced());
        let pick = |of_kept: &[u64], of_reduced: &[u64]| -> Vec<u64> {
            let one = |axis: &Axis| match *axis {
                Axis::Kept(at) => of_kept[at],
                Axis::Reduced(at) => of_reduced[at],
            };
            axes.iter().map(one).collect()
        };
        let extents = pick(&kept.dims, &reduced.dims);
        let strides: Vec<Vec<u64>> =
            (0..geometry.inputs.len()).map(|at| pick(&kept.strides[1 + at], &reduced.strides[at])).collect();
        check_reach(valid.slots.iter(), &[], props)?;
        let positions = geometry.dims().iter().map(|&dim| dim.max(1)).product::<u64>();
        Reason::unless(positions <= MOST_POSITIONS, || {
            format!("the inputs have {positions} positions, the limit of 32-bit numbers is {MOST_POSITIONS}")
        })?;
        let out = valid.slots.always(OUTPUT);
        let of_output = out.desc.dtype();
        let held = Held::of(geometry.row, geometry.computing, of_output)?;
        let tensor = |slot: &crate::slots::Slot, lie| {
            let is_output = slot.index == OUTPUT;
            // Integers of 64 bits are written as two words.
            let is_long = is_output && of_output == DType::I64;
            let dtype = if is_long { Element::U32 } else { Element::of(slot.desc.dtype())? };
            Ok::<_, Reason>(Tensor { name: slot.name, index: slot.index, dtype, lie, is_output })
        };
        let lie = |strides: &[u64]| match strides.first() {
            _ if extents.is_empty() => Lie::Run,
            _ if strides.iter().all(|&stride| stride == 0) => Lie::Repeated,
            Some(0) => Lie::Splat,
            Some(1) => Lie::Run,
            _ => Lie::Scattered,
        };
        let inputs = valid.slots.iter().zip(&strides).map(|(slot, strides)| tensor(slot, lie(strides)));
        let inputs = inputs.collect::<Result<_, Reason>>()?;
        let output =
            Output { tensor: tensor(out, Lie::Scattered)?, is_whole: held.is_whole, is_long: of_output == DType::I64 };
        let computing = Computing::of(geometry.computing)?;
        Ok(Self { valid, props, kept, extents, strides, inputs, output, computing, held })
    }

    fn workgroup(&self) -> u32 {
        WORKGROUP.min(self.props.max_threads)
    }

    /// The dispatches of a form.
    fn work(&self, entry: &'static str) -> Result<Work<()>, Reason> {
        let outputs = Geometry::outputs(&self.valid.slots);
        let promises = if entry == "reduce_columns" { Valid::has_packed_columns } else { Valid::has_packed_samples };
        let mut work = Work::none((), self.props).batch_invariant_if(promises(self.valid));
        if outputs == 0 {
            return Ok(work);
        }
        let pieces = if self.valid.derived.count == 0 {
            0
        } else {
            let (step, pieces) = self.step(entry, outputs, Parts::OfOutputs)?;
            work.steps.push(step);
            pieces
        };
        if pieces != 1 {
            let bytes = self.bytes_of_parts(outputs, pieces);
            check_workspace(bytes, self.props)?;
            work.workspace_bytes = bytes;
            for step in &mut work.steps {
                step.bindings.push(Self::parts_out(bytes));
            }
            work.steps.push(self.partials(outputs, pieces, bytes)?);
        }
        check_bindings(&work.steps, self.props)?;
        Ok(work)
    }

    /// Bytes in the workspace of what pieces give.
    pub(super) fn bytes_of_parts(&self, outputs: u64, pieces: u64) -> u64 {
        (pieces * outputs * 4 * self.held.words).next_multiple_of(16).max(16)
    }

    /// The workspace, as what pieces give is written there.
    pub(super) fn parts_out(bytes: u64) -> Binding {
        let place = Some(Place::Workspace { offset: 0, bytes });
        Binding { name: "partials", place, accessors: ["scattered_f32_out"; 2] }
    }

    /// The dispatch that combines what the pieces of each output gave.
    pub(super) fn partials(&self, outputs: u64, pieces: u64, bytes: u64) -> Result<StepBuilder, Reason> {
        let workgroup = u64::from(self.workgroup());
        let threads = pieces.next_power_of_two().clamp(1, workgroup);
        let grid = groups(outputs.div_ceil(workgroup / threads), self.props)?;
        let mut step = StepBuilder {
            entry: "reduce_partials",
            files: self.files("reduce/reduce_partials"),
            generated: self.text(false, true, 1),
            params: self.params(grid, (outputs, 0, pieces), 0, &[], &[]),
            grid,
            ..StepBuilder::default()
        };
        step.constants = self.constants((threads, 4), 1, 1);
        let place = Some(Place::Workspace { offset: 0, bytes });
        step.bindings = vec![
            Binding { name: "partials", place, accessors: ["scattered_f32_in"; 2] },
            self.bound(&self.output.tensor, false),
        ];
        Ok(self.complete(step, false))
    }

    /// The dispatch that reduces the inputs, and the pieces of each output.
    pub(super) fn step(&self, entry: &'static str, outputs: u64, parts: Parts) -> Result<(StepBuilder, u64), Reason> {
        let is_columns = entry == "reduce_columns";
        let line = self.extents.first().copied().unwrap_or(1);
        let are_whole = |per_chunk: u64| {
            let begins_chunks = |strides: &[u64]| strides.iter().skip(1).all(|stride| stride.is_multiple_of(per_chunk));
            let of = |(input, strides): (&Tensor, &Vec<u64>)| input.lie != Lie::Run || begins_chunks(strides);
            line.is_multiple_of(per_chunk) && self.inputs.iter().zip(&self.strides).all(of)
        };
        let has_chunks = |tensor: &&Tensor| matches!(tensor.lie, Lie::Run | Lie::Scattered);
        let has_f32 = self.inputs.iter().filter(has_chunks).any(|tensor| tensor.dtype.bytes() == 4);
        // Lines of whole chunks of four are better than cut chunks of eight. Of what is held in several words a workgroup has no room for eight.
        let per_chunk = if has_f32 || self.held.words > 1 || (are_whole(4) && !are_whole(8)) { 4 } else { 8 };
        let chunks_of_line = line.div_ceil(per_chunk);
        let (workgroup, count) = (u64::from(self.workgroup()), self.valid.derived.count);
        let items = if is_columns { count } else { count / line * chunks_of_line };
        let most = if is_columns { MOST_DEEP.min(workgroup) } else { workgroup };
        let threads = items.next_power_of_two().min(most);
        let pieces = items.div_ceil(threads * u64::from(ROUNDS));
        let rows = if is_columns { outputs / line } else { outputs };
        let count = match is_columns {
            true => rows * chunks_of_line.div_ceil(workgroup / threads) * pieces,
            false => (rows * pieces).div_ceil(workgroup / threads),
        };
        let grid = groups(count, self.props)?;
        let mut extents = self.extents.clone();
        if let Some(first) = extents.first_mut() {
            *first = chunks_of_line;
        } else {
            extents.push(1);
        }
        let (is_split, first_piece) = match parts {
            Parts::OfOutputs => (pieces > 1, 0),
            Parts::From(first) => (true, first),
        };
        let rank = extents.len();
        let moved: Vec<&[u64]> = self
            .inputs
            .iter()
            .zip(&self.strides)
            .filter(|(input, _)| input.lie != Lie::Repeated)
            .map(|(_, strides)| &strides[..])
            .collect();
        let mut step = StepBuilder {
            entry,
            files: self.files(if is_columns { "reduce/reduce_columns" } else { "reduce/reduce_rows" }),
            generated: self.text(true, !is_split, rank),
            can_chunk: are_whole(per_chunk),
            params: self.params(grid, (rows, items, pieces), first_piece, &extents, &moved),
            grid,
            flags: vec![("IS_SPLIT", is_split)],
            ..StepBuilder::default()
        };
        step.files.push("common/chunk");
        step.constants = self.constants((threads, per_chunk), rank.div_ceil(4), moved.len().max(1));
        step.bindings = self.inputs.iter().map(|input| self.bound(input, per_chunk == 8)).collect();
        if !is_split {
            step.bindings.push(self.bound(&self.output.tensor, false));
        }
        Ok((self.complete(step, is_split), pieces))
    }

    /// Files of a kernel's text.
    fn files(&self, kernel: &'static str) -> Vec<&'static str> {
        let is_position = self.valid.derived.row.combine.is_position();
        let keys = if self.computing == Computing::F32 { "reduce/keys_of_floats" } else { "reduce/keys_of_integers" };
        let has_totals = ["reduce/held_numbers", "reduce/held_words"].contains(&self.held.file);
        let further = is_position.then_some(keys).or(has_totals.then_some("reduce/held_totals"));
        let held = [self.held.file].into_iter().chain(further);
        ["reduce/reduce"].into_iter().chain(held).chain([kernel]).collect()
    }

    /// The generated text of a kernel that reads the inputs, stores the output, or both.
    fn text(&self, reads: bool, stores: bool, rank: usize) -> String {
        let program = reads.then_some(&self.valid.derived.program);
        let inputs = if reads { &self.inputs[..] } else { &[] };
        let ranks = (rank, self.kept.dims.len().max(1));
        let finish = self.valid.derived.finish.as_ref();
        reduced_text(self.computing, program, inputs, stores.then_some((self.output, finish)), ranks, self.held.further)
    }

    /// `is_wide`: chunks have eight elements.
    fn bound(&self, tensor: &Tensor, is_wide: bool) -> Binding {
        Binder { slots: &self.valid.slots }.operand(tensor.index, accessors(tensor, is_wide), "absent_in")
    }

    /// With what every step has. `is_split`: the output is not bound.
    fn complete(&self, mut step: StepBuilder, is_split: bool) -> StepBuilder {
        let finish = self.valid.derived.row.finish;
        step.flags.extend([
            ("IS_MEAN", finish == Finish::Mean),
            ("IS_ROOT", matches!(finish, Finish::Root | Finish::RootOfMean)),
            ("IS_NONE", finish == Finish::IsNone),
        ]);
        if is_split {
            step.generated.push_str("fn store_result(position: u32, held: Held, lane: u32) {}\n");
        } else if step.entry != "reduce_partials" {
            step.generated.push_str("fn partials_scatter(first: u32, step: u32, count: u32, chunk: vec4<u32>) {}\n");
        }
        step
    }

    fn constants(&self, (threads, per_chunk): (u64, u64), vectors: usize, tensors: usize) -> Vec<(&'static str, u32)> {
        let Row { each, combine, .. } = self.valid.derived.row;
        let of_each = match each {
            Each::Value | Each::IsNonzero => 0,
            Each::Magnitude => 1,
            Each::Square => 2,
            Each::IsZero => 3,
        };
        let of_combine = match combine {
            Combine::Multiply => 1,
            Combine::Greatest | Combine::FirstGreatest => 2,
            Combine::Least | Combine::FirstLeast => 3,
            _ => 0,
        };
        // Of the greatest of signed integers it is the sign bit, by which keys differ from the numbers.
        let identity = match (self.computing, combine) {
            (Computing::F32, _) => single(combine.identity()).to_bits(),
            (_, Combine::Multiply) => 1,
            (Computing::I32, Combine::Greatest | Combine::FirstGreatest | Combine::FirstLeast) => 1 << 31,
            (Computing::I32, Combine::Least) => i32::MAX.unsigned_abs(),
            (Computing::U32, Combine::Least) => u32::MAX,
            _ => 0,
        };
        vec![
            ("WORKGROUP", self.workgroup()),
            ("THREADS", word(threads)),
            ("ROUNDS", ROUNDS),
            ("ELEMENTS", word(per_chunk)),
            ("QUADS", word(per_chunk / 4)),
            ("VECTORS", word(vectors as u64)),
            ("TENSORS", word(tensors as u64)),
            ("OUTPUT_VECTORS", word(self.kept.dims.len().max(1).div_ceil(4) as u64)),
            ("EACH", of_each),
            ("COMBINE", of_combine),
            ("IDENTITY", identity),
            ("WORDS", word(self.held.words)),
            ("NONZERO_BITS", if self.computing == Computing::F32 { u32::MAX >> 1 } else { u32::MAX }),
        ]
    }

    #[expect(clippy::cast_precision_loss, reason = "a count is rounded to f32, in which it divides")]
    fn params(
        &self,
        grid: [u32; 2],
        (rows, items, pieces): (u64, u64, u64),
        first_piece: u64,
        extents: &[u64],
        strides: &[&[u64]],
    ) -> Vec<u8> {
        let geometry = &self.valid.derived;
        let line = self.extents.first().copied().unwrap_or(1);
        let outputs = Geometry::outputs(&self.valid.slots);
        let mut params = vec![word(outputs), grid[0], u32::MAX, word(line), word(rows), word(items), word(pieces)];
        params.extend([single(geometry.divisor as f64).to_bits(), word(first_piece)]);
        params.resize(params.len().next_multiple_of(4), 0);
        let mut quads = |numbers: &mut dyn Iterator<Item = u32>, rank: usize| {
            let first = params.len();
            params.extend(numbers);
            params.resize(first + rank.max(1).next_multiple_of(4), 0);
        };
        quads(&mut extents.iter().map(|&extent| word(extent)), extents.len());
        for strides in strides {
            quads(&mut strides.iter().map(|&step| stride(step)), extents.len());
        }
        if strides.is_empty() {
            quads(&mut std::iter::empty(), extents.len());
        }
        let rank = self.kept.dims.len();
        quads(&mut self.kept.dims.iter().rev().map(|&extent| word(extent)), rank);
        quads(&mut self.kept.strides[0].iter().rev().map(|&step| stride(step)), rank);
        bytemuck::cast_slice(&params).to_vec()
    }
}
