//! The WGSL kernels: which operands they take, what they bind, and their dispatches.
//!
//! A thread takes a few chunks, all of whose loads come before the first store, so that an output may lie in the place of an input. A chunk is eight
//! neighbours where every operand but repeated ones has elements of 8 or 16 bits, else four, so that the chunks of all types have the same elements.

mod definitions;
mod text;
mod variants;

pub(in crate::ops) use self::definitions::definitions;
pub(in crate::ops) use self::text::{Computing, Element, Lie, Output, Tensor, of_reduction as reduced_text};
use super::Valid;
use crate::backend::wgpu::{Binder, Binding, Props, StepBuilder, Work, check_bindings, check_reach, groups, params};
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{stride, word};
use crate::ops::pointwise::program::Program;
use crate::ops::walk::Walk;

pub(in crate::ops::pointwise) use variants::add_variants;

/// Threads of a workgroup: the most that WebGPU promises.
const WORKGROUP: u32 = 256;
/// Chunks of a thread, all of whose elements are loaded before the first store: as many as the copy kernel of the benchmarks moves (`csrc/copy.wgsl`).
const MAX_CHUNKS: usize = 4;
/// Chunks that a thread holds of all inputs together: 32 registers, which with the results leave room for 8 warps in each SM sub-partition.
const HELD_CHUNKS: usize = 8;

/// One run of elements in every operand, or one element that is repeated everywhere.
pub(super) fn dense(valid: &Valid, props: &Props, _: Ask) -> Result<Work<()>, Reason> {
    let task = Task::new(valid, props)?;
    let (walk, elements) = (&task.walk, task.walk.elements());
    for (at, tensor) in task.walked().enumerate() {
        let is_in_order = walk.is_dense(at) || elements == 0 || (!tensor.is_output && walk.is_repeated(at));
        Reason::unless(is_in_order, || {
            let Tensor { name, .. } = tensor;
            let (extents, strides) = (&walk.dims, &walk.strides[at]);
            format!(
                "{name} is neither dense nor one element: along the extents {extents:?} its strides are {strides:?}"
            )
        })?;
    }
    if elements == 0 {
        return Ok(Work::none((), props).batch_invariant_if(true));
    }
    let per_chunk = if task.has_words() { 4 } else { 8 };
    let chunks = elements.div_ceil(per_chunk);
    let grid = groups(chunks.div_ceil(task.chunks_of_group()), props)?;
    let params = params! {
        elements: u32 = word(elements),
        groups_x: u32 = grid[0],
        all_bits: u32 = u32::MAX,
        end: u32 = 0,
    };
    task.work(StepBuilder {
        entry: "pointwise_dense",
        files: vec!["pointwise/pointwise", "common/chunk", "pointwise/pointwise_dense"],
        generated: text::of(&task.generator(None), per_chunk),
        constants: task.constants(per_chunk),
        can_chunk: elements.is_multiple_of(per_chunk),
        params,
        grid,
        ..StepBuilder::default()
    })
}

/// Any strides.
pub(super) fn strided(valid: &Valid, props: &Props, _: Ask) -> Result<Work<()>, Reason> {
    let task = Task::new(valid, props)?;
    if task.walk.elements() == 0 {
        return Ok(Work::none((), props).batch_invariant_if(true));
    }
    // Innermost first.
    let extents: Vec<u64> = task.walk.dims.iter().rev().copied().collect();
    let line = extents.first().copied().unwrap_or(1);
    let strides = |at: usize| task.walk.strides[at].iter().rev().copied();
    let moved = || task.walked().enumerate().filter(|(_, tensor)| tensor.lie != Lie::Repeated);
    let are_whole = |per_chunk: u64| {
        let begins_chunks = |at| strides(at).skip(1).all(|stride| stride.is_multiple_of(per_chunk));
        let is_memory = |at| at < task.tensors.len();
        let are_chunks = |(at, tensor): (usize, &Tensor)| tensor.lie != Lie::Run || !is_memory(at) || begins_chunks(at);
        line.is_multiple_of(per_chunk) && moved().all(are_chunks)
    };
    // Lines of whole chunks of four are better than cut chunks of eight.
    let per_chunk = if task.has_words() || (are_whole(4) && !are_whole(8)) { 4 } else { 8 };
    let chunks_of_line = line.div_ceil(per_chunk);
    let chunks = task.walk.elements() / line * chunks_of_line;
    let grid = groups(chunks.div_ceil(task.chunks_of_group()), props)?;
    let rank = extents.len().max(1);
    let quads = |words: &mut dyn Iterator<Item = u32>| {
        let mut words: Vec<u32> = words.collect();
        words.resize(rank.next_multiple_of(4), 0);
        words
    };
    let mut params = vec![word(chunks), grid[0], u32::MAX, word(line)];
    let outer = extents.iter().skip(1).map(|&extent| word(extent));
    params.extend(quads(&mut [word(chunks_of_line)].into_iter().chain(outer)));
    for (at, _) in moved() {
        params.extend(quads(&mut strides(at).map(stride)));
    }
    let sizes = [("VECTORS", word(rank.div_ceil(4) as u64)), ("TENSORS", word(moved().count() as u64))];
    task.work(StepBuilder {
        entry: "pointwise_strided",
        files: vec!["pointwise/pointwise_strided", "common/chunk"],
        generated: text::of(&task.generator(Some(rank)), per_chunk),
        constants: [task.constants(per_chunk), sizes.to_vec()].concat(),
        can_chunk: are_whole(per_chunk),
        params: bytemuck::cast_slice(&params).to_vec(),
        grid,
        ..StepBuilder::default()
    })
}

/// A program with its operands as shaders see them.
struct Task<'v> {
    valid: &'v Valid,
    props: &'v Props,
    computing: Computing,
    walk: Walk,
    program: Program,
    /// In the order of the walk: outputs first, then inputs.
    tensors: Vec<Tensor>,
    /// The program's sources, as operands whose elements would be their positions.
    sources: Vec<Tensor>,
}

/// What the sources are called in a text.
const SOURCES: [&str; Program::MAX_SOURCES] = ["s0", "s1", "s2", "s3"];

impl<'v> Task<'v> {
    /// # Errors
    /// Shaders have no elements of a type, or do not reach those of an operand.
    fn new(valid: &'v Valid, props: &'v Props) -> Result<Self, Reason> {
        valid.derived.one_set()?;
        let outputs = valid.fields.program.outputs();
        let (of_inputs, of_outputs) = valid.slots.split_at(valid.slots.len() - outputs);
        let walk = valid.derived.walk(outputs);
        let lie_of = |at: usize| match walk.strides[at].last() {
            _ if walk.dims.is_empty() => Lie::Run,
            _ if walk.is_repeated(at) => Lie::Repeated,
            Some(0) => Lie::Splat,
            Some(1) => Lie::Run,
            _ => Lie::Scattered,
        };
        let program = valid.program();
        let tensor = |(at, slot): (usize, &crate::slots::Slot)| {
            let is_key = at >= outputs && program.is_key(at - outputs);
            let lie = if is_key { Lie::Repeated } else { lie_of(at) };
            let dtype = Element::of(slot.desc.dtype())?;
            Ok(Tensor { name: slot.name, index: slot.index, dtype, lie, is_output: at < outputs })
        };
        let tensors = of_outputs.iter().chain(of_inputs).enumerate().map(tensor).collect::<Result<_, Reason>>()?;
        check_reach(valid.slots.iter(), &[], props)?;
        let source = |(at, name)| {
            let lie = lie_of(valid.slots.len() + at);
            Tensor { name, index: usize::MAX, dtype: Element::U32, lie, is_output: false }
        };
        let sources = SOURCES.into_iter().take(program.sources().len()).enumerate().map(source).collect();
        let computing = Computing::of(valid.derived.computing)?;
        Ok(Self { valid, props, computing, walk, program, tensors, sources })
    }

    /// What lies in the walk, in its order.
    fn walked(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().chain(&self.sources)
    }

    /// What a text is made of. `rank`: the number of extents, or none if all operands are dense or repeated.
    fn generator(&self, rank: Option<usize>) -> text::Generator<'_> {
        let seed_strides = self.program.sources().iter().map(|source| match source.draw() {
            Some(draw) => self.valid.fields.inputs[draw.seed].strides().first().copied().map_or(0, stride),
            None => 0,
        });
        text::Generator {
            program: &self.program,
            computing: self.computing,
            tensors: &self.tensors,
            sources: &self.sources,
            seed_strides: seed_strides.collect(),
            rank,
        }
    }

    /// Whether chunks of an operand are of 32-bit elements.
    fn has_words(&self) -> bool {
        let has_chunks = |tensor: &Tensor| matches!(tensor.lie, Lie::Run | Lie::Scattered);
        self.tensors.iter().any(|tensor| has_chunks(tensor) && tensor.dtype.bytes() == 4)
    }

    fn workgroup(&self) -> u32 {
        WORKGROUP.min(self.props.max_threads)
    }

    /// Chunks of a thread.
    fn chunks(&self) -> usize {
        let inputs = self.tensors.iter().filter(|tensor| !tensor.is_output && tensor.lie != Lie::Repeated).count();
        (HELD_CHUNKS / inputs.max(1)).clamp(1, MAX_CHUNKS)
    }

    fn chunks_of_group(&self) -> u64 {
        u64::from(self.workgroup()) * self.chunks() as u64
    }

    fn constants(&self, per_chunk: u64) -> Vec<(&'static str, u32)> {
        vec![
            ("WORKGROUP", self.workgroup()),
            ("CHUNKS", word(self.chunks() as u64)),
            ("ELEMENTS", word(per_chunk)),
            ("QUADS", word(per_chunk / 4)),
        ]
    }

    /// The one dispatch: a step with the bindings.
    ///
    /// # Errors
    /// It binds more than the device does.
    fn work(&self, mut step: StepBuilder) -> Result<Work<()>, Reason> {
        let is_wide = step.constants.contains(&("QUADS", 2));
        step.bindings = self.tensors.iter().map(|tensor| self.binding(tensor, is_wide)).collect();
        let mut work = Work::none((), self.props).batch_invariant_if(self.valid.is_batch_invariant());
        work.steps.push(step);
        check_bindings(&work.steps, self.props)?;
        Ok(work)
    }

    /// `is_wide`: chunks have eight elements.
    fn binding(&self, tensor: &Tensor, is_wide: bool) -> Binding {
        Binder { slots: &self.valid.slots }.operand(tensor.index, accessors(tensor, is_wide), "absent_in")
    }
}

/// How an operand is read or written: where chunks are aligned, and where they begin at any element. `is_wide`: chunks have eight elements.
pub(in crate::ops) fn accessors(tensor: &Tensor, is_wide: bool) -> [&'static str; 2] {
    match (tensor.dtype.bytes(), tensor.lie, tensor.is_output) {
        (1, Lie::Run, false) => [if is_wide { "byte_pairs_in" } else { "byte_words_in" }, "bytes_in"],
        (1, Lie::Run, true) => [if is_wide { "byte_pairs_out" } else { "byte_words_out" }, "bytes_out"],
        (1, _, false) => ["scattered_byte_in"; 2],
        (1, _, true) => ["scattered_byte_out"; 2],
        (2, Lie::Run, false) => [if is_wide { "chunks_in" } else { "pairs_in" }, "halves_in"],
        (2, Lie::Run, true) => [if is_wide { "chunks_out" } else { "pairs_out" }, "halves_out"],
        (2, _, false) => ["scattered_half_in"; 2],
        (2, _, true) => ["scattered_half_out"; 2],
        (_, Lie::Run, false) => ["chunks_in", "words_in"],
        (_, Lie::Run, true) => ["chunks_out", "words_out"],
        (_, _, false) => ["scattered_f32_in"; 2],
        (_, _, true) => ["scattered_f32_out"; 2],
    }
}

#[cfg(test)]
mod tests;
