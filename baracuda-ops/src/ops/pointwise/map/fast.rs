//! Programs on the CPU, block by block: each instruction is one loop over a block that the first cache holds.

use std::marker::PhantomData;
use std::ops::Range;

use half::slice::HalfFloatSliceExt as _;
use half::{bf16, f16};

use super::Valid;
use super::sets::Tensors;
use crate::backend::cpu::{LINE_BYTES, Operands, Outcome, Shortage, Tensor, odd, room, rounded, threads};
use crate::dtype::{Bool, DType, Element, F8E4M3, F8E5M2};
use crate::kernel::{Accepted, Candidate};
use crate::narrow::{single, to_usize};
use crate::ops::pointwise::program::{Argument, Function, Instruction, Lane, Program, Source, Stream};
use crate::ops::walk::Walk;

/// Positions of a block: those of a few values fit into the first cache together.
pub(in crate::ops) const BLOCK: usize = 512;
/// Positions of a task. With fewer, the memory that a task needs is asked for more often; with more, a short run keeps fewer threads busy.
const PIECE: u64 = 16 * 1024;

pub(super) fn accept(valid: &Valid) -> Accepted<'_> {
    let run = match valid.derived.computing {
        DType::F64 => run::<f64>,
        DType::I64 => run::<i64>,
        DType::I32 => run::<i32>,
        DType::U32 => run::<u32>,
        _ => run::<f32>,
    };
    Ok(Candidate::on_cpu(move || {
        let (program, computing, sets) = (valid.program(), valid.derived.computing, Set::of(valid));
        move |operands: &Operands<'_>| run(&program, computing, &sets, operands)
    })
    .batch_invariant_if(valid.is_batch_invariant()))
}

/// A set of operands that has elements.
struct Set {
    walk: Walk,
    /// Of the operands, in the order of the walk.
    indices: Vec<usize>,
    /// The elements, and the tasks, of the sets before it.
    elements_before: u64,
    pieces_before: u64,
}

impl Set {
    fn of(valid: &Valid) -> Vec<Self> {
        let (mut elements_before, mut pieces_before) = (0, 0);
        let set = |Tensors { valid, indices }: Tensors<'_>| {
            let walk = valid.derived.walk(valid.fields.program.outputs());
            let elements = walk.elements();
            let set = Self { walk, indices, elements_before, pieces_before };
            (elements_before, pieces_before) = (elements_before + elements, pieces_before + elements.div_ceil(PIECE));
            (elements > 0).then_some(set)
        };
        valid.tensors().into_iter().filter_map(set).collect()
    }
}

/// Tasks are pieces of all sets, so that threads share small sets as they share the pieces of a large one.
fn run<T: Lane + Converted>(program: &Program, computing: DType, sets: &[Set], operands: &Operands<'_>) -> Outcome {
    let Some(last) = sets.last() else { return Ok(()) };
    let of_set = program.outputs() + program.inputs();
    // Where there are elements, all operands have memory.
    let mut tensors: Vec<Tensor<'_>> = room((of_set * sets.len()) as u64)?;
    tensors.extend(sets.iter().flat_map(|set| &set.indices).filter_map(|&at| operands.get(at)));
    let elements = last.walk.elements();
    let pieces = last.pieces_before + elements.div_ceil(PIECE);
    threads::try_for_each(pieces, last.elements_before + elements, |piece| {
        let at = sets.partition_point(|set| set.pieces_before <= piece) - 1;
        let Set { walk, pieces_before, .. } = &sets[at];
        let piece = piece - pieces_before;
        let positions = piece * PIECE..walk.elements().min((piece + 1) * PIECE);
        let tensors = &tensors[at * of_set..][..of_set];
        let streams = streams(program, computing, &tensors[program.outputs()..]);
        widest(Task::<T> { program, walk, tensors, streams, positions, of: PhantomData })
    })
}

/// The sources of a program, with what the seeds and offsets among its inputs are.
pub(super) fn streams(program: &Program, computing: DType, inputs: &[Tensor<'_>]) -> Vec<Stream> {
    let word = |input: usize, at: u64| {
        let tensor = &inputs[input];
        let stride = tensor.desc().strides().first().copied().unwrap_or(0);
        u32::try_from(tensor.load_integer(at * stride)).unwrap_or_default()
    };
    let stream = |&source: &Source| {
        let keys = source.draw().map(|draw| ([0, 1].map(|at| word(draw.seed, at)), word(draw.offset, 0)));
        let (seed, offset) = keys.unwrap_or_default();
        Stream::new(source, computing, seed, offset)
    };
    program.sources().iter().map(stream).collect()
}

/// Work that is compiled for several sets of instructions.
pub(in crate::ops) trait Widest {
    type Output;

    /// Does it; inlined into its callers. `FUSED`: a product and a sum are one instruction.
    fn run<const FUSED: bool>(self) -> Self::Output;
}

/// Does work with the widest instructions that this machine has.
pub(in crate::ops) fn widest<W: Widest>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
        fn with_avx512<W: Widest>(work: W) -> W::Output {
            work.run::<true>()
        }

        #[target_feature(enable = "avx2,fma,f16c")]
        fn with_avx2<W: Widest>(work: W) -> W::Output {
            work.run::<true>()
        }

        let has_avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let has_avx512 = has_avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq");
        if has_avx512 {
            // SAFETY: the processor has these instructions.
            return unsafe { with_avx512(work) };
        }
        if has_avx2 {
            // SAFETY: the processor has these instructions.
            return unsafe { with_avx2(work) };
        }
    }
    // Elsewhere than on x86-64 the baseline has fused instructions.
    #[cfg(target_arch = "aarch64")]
    return work.run::<true>();
    #[cfg(not(target_arch = "aarch64"))]
    work.run::<false>()
}

/// The values of a program at the positions of a block: inputs and sources, numbers, results.
pub(in crate::ops) struct Block<'p, T> {
    program: &'p Program,
    inputs: Vec<T>,
    constants: Vec<T>,
    computed: Vec<T>,
}

impl<'p, T: Lane> Block<'p, T> {
    pub(in crate::ops) fn new(program: &'p Program) -> Result<Self, Shortage> {
        let numbers: usize = program.instructions().iter().map(|instruction| instruction.arguments.len()).sum();
        let blocks = |count: usize| -> Result<Vec<T>, Shortage> {
            let mut memory: Vec<T> = room((count * BLOCK) as u64)?;
            memory.resize(count * BLOCK, T::default());
            Ok(memory)
        };
        let [inputs, mut constants, computed] =
            [program.inputs() + program.sources().len(), numbers, program.instructions().len()].map(blocks);
        // What is the same at every position is written once.
        let mut literals = program.instructions().iter().flat_map(|instruction| &instruction.arguments);
        if let Ok(constants) = &mut constants {
            for constant in constants.chunks_exact_mut(BLOCK) {
                if let Some(Argument::Literal(literal)) = literals.next() {
                    constant.fill(T::number(literal.get()));
                }
            }
        }
        Ok(Self { program, inputs: inputs?, constants: constants?, computed: computed? })
    }

    /// The values of an input, or behind them of a source.
    #[inline(always)]
    pub(in crate::ops) fn input(&mut self, at: usize) -> &mut [T] {
        &mut self.inputs[at * BLOCK..][..BLOCK]
    }

    /// Computes the results of the first positions.
    pub(in crate::ops) fn evaluate(&mut self, length: usize) {
        let mut number = 0;
        for (at, Instruction { function, arguments }) in self.program.instructions().iter().enumerate() {
            let (before, results) = self.computed.split_at_mut(at * BLOCK);
            let mut values: [&[T]; 3] = [&[]; 3];
            for (value, argument) in values.iter_mut().zip(arguments) {
                let (memory, place): (&[T], usize) = match *argument {
                    Argument::Input(at) => (&self.inputs, at),
                    Argument::Source(at) => (&self.inputs, self.program.inputs() + at),
                    Argument::Result(at) => (before, at),
                    Argument::Literal(_) => (&self.constants, number),
                };
                *value = &memory[place * BLOCK..][..length];
                number += 1;
            }
            apply(*function, values, &mut results[..length]);
        }
    }

    /// The values of an output.
    #[inline(always)]
    pub(in crate::ops) fn output(&self, at: usize) -> &[T] {
        match self.program.results()[at] {
            Argument::Input(at) => &self.inputs[at * BLOCK..][..BLOCK],
            Argument::Source(at) => &self.inputs[(self.program.inputs() + at) * BLOCK..][..BLOCK],
            Argument::Result(at) => &self.computed[at * BLOCK..][..BLOCK],
            // No output is a number.
            Argument::Literal(_) => &[],
        }
    }
}

/// Computes the results of a function. The loops of all functions are here once for each set of instructions, not in each caller.
#[inline(never)]
fn apply<T: Lane>(function: Function, arguments: [&[T]; 3], results: &mut [T]) {
    struct Apply<'a, T> {
        function: Function,
        arguments: [&'a [T]; 3],
        results: &'a mut [T],
    }

    impl<T: Lane> Widest for Apply<'_, T> {
        type Output = ();

        #[inline(always)]
        fn run<const FUSED: bool>(self) {
            T::apply::<FUSED>(self.function, self.arguments, self.results);
        }
    }

    widest(Apply { function, arguments, results });
}

/// Some positions of a program.
struct Task<'t, T> {
    program: &'t Program,
    walk: &'t Walk,
    tensors: &'t [Tensor<'t>],
    streams: Vec<Stream>,
    positions: Range<u64>,
    of: PhantomData<T>,
}

impl<T: Lane + Converted> Widest for Task<'_, T> {
    type Output = Result<(), Shortage>;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> Self::Output {
        let Self { program, walk, tensors, mut streams, positions, .. } = self;
        let (inputs, outputs) = (program.inputs(), program.outputs());
        let mut values = Block::<T>::new(program)?;
        for at in (0..inputs).filter(|&at| walk.is_repeated(outputs + at) && !program.is_key(at)) {
            let block = values.input(at);
            load(&tensors[outputs + at], walk, outputs + at, positions.start..positions.start + 1, &mut block[..1]);
            let value = block[0];
            block.fill(value);
        }
        let mut first = positions.start;
        while first < positions.end {
            let block = first..positions.end.min(first + BLOCK as u64);
            let length = to_usize(block.end - block.start);
            for at in (0..inputs).filter(|at| !walk.is_repeated(outputs + at)) {
                let given = &mut values.input(at)[..length];
                load(&tensors[outputs + at], walk, outputs + at, block.clone(), given);
            }
            for (at, stream) in streams.iter_mut().enumerate() {
                draw(stream, walk, outputs + inputs + at, block.clone(), &mut values.input(inputs + at)[..length]);
            }
            values.evaluate(length);
            for (at, tensor) in tensors[..outputs].iter().enumerate() {
                store(tensor, walk, at, block.clone(), &values.output(at)[..length]);
            }
            first = block.end;
        }
        Ok(())
    }
}

/// A run of positions along the innermost extent.
pub(in crate::ops) struct Segment {
    /// The element at which it begins.
    pub(in crate::ops) first: u64,
    /// Between elements that follow each other.
    pub(in crate::ops) step: u64,
    /// Which values of the block these are.
    pub(in crate::ops) places: Range<usize>,
}

/// The segments of a block. It is an iterator, for a closure in which the elements are converted would be compiled without the wide instructions.
pub(in crate::ops) struct Segments<'a> {
    walk: &'a Walk,
    operand: usize,
    start: u64,
    rest: Range<u64>,
}

impl<'a> Segments<'a> {
    #[inline(always)]
    pub(in crate::ops) fn new(walk: &'a Walk, operand: usize, block: Range<u64>) -> Self {
        Self { walk, operand, start: block.start, rest: block }
    }
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    #[inline(always)]
    fn next(&mut self) -> Option<Segment> {
        let Self { walk, operand, start, ref mut rest } = *self;
        if rest.is_empty() {
            return None;
        }
        let inner = walk.dims.last().copied().unwrap_or(1);
        let step = walk.strides[operand].last().copied().unwrap_or(0);
        let at = rest.start;
        rest.start = rest.end.min(at - at % inner + inner);
        let places = to_usize(at - start)..to_usize(rest.start - start);
        Some(Segment { first: walk.offset(operand, at), step, places })
    }
}

/// Reads the elements of a block.
#[inline(always)]
pub(in crate::ops) fn load<T: Converted>(
    tensor: &Tensor<'_>,
    walk: &Walk,
    operand: usize,
    block: Range<u64>,
    values: &mut [T],
) {
    for Segment { first, step, places } in Segments::new(walk, operand, block) {
        if step == 1 {
            tensor.prefetch(first + places.len() as u64, places.len());
        }
        T::read(tensor, first, step, &mut values[places]);
    }
}

/// Draws the values of a source at the positions of a block.
fn draw<T: Lane>(stream: &mut Stream, walk: &Walk, operand: usize, block: Range<u64>, values: &mut [T]) {
    for Segment { first, step, places } in Segments::new(walk, operand, block) {
        for (value, at) in values[places].iter_mut().zip(0..) {
            *value = T::number(stream.value(first + at * step));
        }
    }
}

/// Writes the elements of a block, which are of this task alone.
#[inline(always)]
pub(in crate::ops) fn store<T: Converted>(
    tensor: &Tensor<'_>,
    walk: &Walk,
    operand: usize,
    block: Range<u64>,
    values: &[T],
) {
    for Segment { first, step, places } in Segments::new(walk, operand, block) {
        T::write(tensor, first, step, &values[places]);
    }
}

/// The type of the values of a block, with the types of elements that it is converted from and to.
pub(in crate::ops) trait Converted: Sized + Copy {
    /// Reads elements a step apart.
    fn read(tensor: &Tensor<'_>, first: u64, step: u64, values: &mut [Self]);
    /// Writes elements a step apart, each rounded once.
    fn write(tensor: &Tensor<'_>, first: u64, step: u64, values: &[Self]);
}

impl Converted for f32 {
    #[inline(always)]
    fn read(tensor: &Tensor<'_>, first: u64, step: u64, values: &mut [Self]) {
        match tensor.desc().dtype() {
            DType::F16 if step == 1 => elements::<f16>(tensor, first, values.len()).convert_to_f32_slice(values),
            DType::F16 => read(tensor, first, step, values, f16::to_f32),
            DType::BF16 => {
                read(tensor, first, step, values, |element: bf16| f32::from_bits(u32::from(element.to_bits()) << 16))
            }
            DType::Bool => read(tensor, first, step, values, |element: Bool| if element.get() { 1.0 } else { 0.0 }),
            DType::F8E4M3 => read(tensor, first, step, values, F8E4M3::to_f32),
            DType::F8E5M2 => read(tensor, first, step, values, F8E5M2::to_f32),
            _ => read(tensor, first, step, values, |element: f32| element),
        }
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts to integers cut and saturate")]
    fn write(tensor: &Tensor<'_>, first: u64, step: u64, values: &[Self]) {
        match tensor.desc().dtype() {
            DType::F64 => write(tensor, first, step, values, f64::from),
            DType::F16 if step == 1 => {
                write_side_by_side(tensor, first, values, |to: &mut [f16], from| to.convert_from_f32_slice(from));
            }
            DType::F16 => write(tensor, first, step, values, f16::from_f32),
            DType::BF16 if step == 1 => write_side_by_side(tensor, first, values, |to, from| {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = to_bf16(*from));
            }),
            DType::BF16 => write(tensor, first, step, values, to_bf16),
            DType::F32 if step == 1 => write_side_by_side(tensor, first, values, <[f32]>::copy_from_slice),
            DType::F32 => write(tensor, first, step, values, |value: f32| value),
            DType::Bool => write(tensor, first, step, values, |value| Bool::new(value != 0.0)),
            DType::I64 => write(tensor, first, step, values, |value| value as i64),
            DType::I32 => write(tensor, first, step, values, |value| value as i32),
            DType::U32 => write(tensor, first, step, values, |value| value as u32),
            DType::U8 => write(tensor, first, step, values, |value| value as u8),
            DType::I8 => write(tensor, first, step, values, |value| value as i8),
            DType::F8E4M3 => write(tensor, first, step, values, |value| F8E4M3::from_f64(f64::from(value))),
            DType::F8E5M2 => write(tensor, first, step, values, |value| F8E5M2::from_f64(f64::from(value))),
        }
    }
}

impl Converted for f64 {
    #[inline(always)]
    fn read(tensor: &Tensor<'_>, first: u64, step: u64, values: &mut [Self]) {
        match tensor.desc().dtype() {
            DType::Bool => read(tensor, first, step, values, |element: Bool| if element.get() { 1.0 } else { 0.0 }),
            _ => read(tensor, first, step, values, |element: f64| element),
        }
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts to integers cut and saturate")]
    fn write(tensor: &Tensor<'_>, first: u64, step: u64, values: &[Self]) {
        match tensor.desc().dtype() {
            DType::F64 => write(tensor, first, step, values, |value: f64| value),
            DType::F32 => write(tensor, first, step, values, single),
            DType::F16 => write(tensor, first, step, values, |value| f16::from_f64(rounded(DType::F16, value))),
            DType::BF16 => write(tensor, first, step, values, |value| bf16::from_f64(rounded(DType::BF16, value))),
            DType::Bool => write(tensor, first, step, values, |value| Bool::new(value != 0.0)),
            DType::I64 => write(tensor, first, step, values, |value| value as i64),
            DType::I32 => write(tensor, first, step, values, |value| value as i32),
            DType::U32 => write(tensor, first, step, values, |value| value as u32),
            DType::U8 => write(tensor, first, step, values, |value| value as u8),
            DType::I8 => write(tensor, first, step, values, |value| value as i8),
            DType::F8E4M3 => write(tensor, first, step, values, F8E4M3::from_f64),
            DType::F8E5M2 => write(tensor, first, step, values, F8E5M2::from_f64),
        }
    }
}

/// A type of integers, with the types of elements that compute in it beside its own and Bool.
macro_rules! converted {
    ($($Type:ident: $($Narrow:ident of $narrow:ident),*;)*) => {
        $(impl Converted for $Type {
            #[inline(always)]
            fn read(tensor: &Tensor<'_>, first: u64, step: u64, values: &mut [Self]) {
                match tensor.desc().dtype() {
                    DType::Bool => read(tensor, first, step, values, |element: Bool| element.get().into()),
                    $(DType::$Narrow => read(tensor, first, step, values, |element: $narrow| element.into()),)*
                    _ => read(tensor, first, step, values, |element: $Type| element),
                }
            }

            #[inline(always)]
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_possible_wrap,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                clippy::unnecessary_cast,
                reason = "casts between integers keep the low bits, those to f32 and f64 round"
            )]
            fn write(tensor: &Tensor<'_>, first: u64, step: u64, values: &[Self]) {
                let nearest = |dtype, value: $Type| rounded(dtype, odd(value.into()));
                match tensor.desc().dtype() {
                    DType::I64 => write(tensor, first, step, values, |value| value as i64),
                    DType::I32 => write(tensor, first, step, values, |value| value as i32),
                    DType::U32 => write(tensor, first, step, values, |value| value as u32),
                    DType::U8 => write(tensor, first, step, values, |value| value as u8),
                    DType::I8 => write(tensor, first, step, values, |value| value as i8),
                    DType::Bool => write(tensor, first, step, values, |value| Bool::new(value != 0)),
                    DType::F64 => write(tensor, first, step, values, |value| value as f64),
                    DType::F32 => write(tensor, first, step, values, |value| value as f32),
                    DType::F16 => {
                        write(tensor, first, step, values, |value| f16::from_f64(nearest(DType::F16, value)));
                    }
                    DType::BF16 => {
                        write(tensor, first, step, values, |value| bf16::from_f64(nearest(DType::BF16, value)));
                    }
                    DType::F8E4M3 => write(tensor, first, step, values, |value| F8E4M3::from_f64(odd(value.into()))),
                    DType::F8E5M2 => write(tensor, first, step, values, |value| F8E5M2::from_f64(odd(value.into()))),
                }
            }
        })*
    };
}
converted! {
    i64: ;
    i32: U8 of u8, I8 of i8;
    u32: ;
}

/// Where `count` elements, a step apart, begin: all of them lie in the tensor.
#[inline(always)]
fn place<E: Element>(tensor: &Tensor<'_>, first: u64, step: u64, count: usize) -> *mut E {
    let last = first + step * (count as u64 - 1);
    let _: *mut E = tensor.element(last);
    tensor.element(first)
}

/// Elements that lie side by side in an input.
#[inline(always)]
pub(in crate::ops) fn elements<'a, E: Element>(tensor: &Tensor<'a>, first: u64, count: usize) -> &'a [E] {
    // SAFETY: they lie in the tensor, and nobody writes them meanwhile: outputs of this task are written later, others lie elsewhere.
    unsafe { std::slice::from_raw_parts(place(tensor, first, 1, count), count) }
}

/// Elements that lie side by side in an output, all of this task.
#[inline(always)]
fn elements_mut<'a, E: Element>(tensor: &Tensor<'a>, first: u64, count: usize) -> &'a mut [E] {
    // SAFETY: they lie in the tensor and are of this task alone; what was read of them has been read.
    unsafe { std::slice::from_raw_parts_mut(place(tensor, first, 1, count), count) }
}

#[inline(always)]
fn read<E: Element, T>(tensor: &Tensor<'_>, first: u64, step: u64, values: &mut [T], convert: impl Fn(E) -> T) {
    if step == 1 {
        let elements = elements(tensor, first, values.len());
        for (value, &element) in values.iter_mut().zip(elements) {
            *value = convert(element);
        }
    } else {
        let start: *mut E = place(tensor, first, step, values.len());
        let step = to_usize(step);
        for (at, value) in values.iter_mut().enumerate() {
            // SAFETY: as in `elements`.
            *value = convert(unsafe { *start.add(at * step) });
        }
    }
}

#[inline(always)]
fn write<E: Element, T: Copy>(tensor: &Tensor<'_>, first: u64, step: u64, values: &[T], convert: impl Fn(T) -> E) {
    if step == 1 {
        for (element, &value) in elements_mut(tensor, first, values.len()).iter_mut().zip(values) {
            *element = convert(value);
        }
    } else {
        let start: *mut E = place(tensor, first, step, values.len());
        let step = to_usize(step);
        for (at, &value) in values.iter().enumerate() {
            // SAFETY: as in `elements_mut`.
            unsafe { *start.add(at * step) = convert(value) };
        }
    }
}

/// Writes elements side by side, which `fill` makes of values, past the caches if the tensor is of that kind.
#[inline(always)]
fn write_side_by_side<E: Element>(tensor: &Tensor<'_>, first: u64, values: &[f32], fill: impl Fn(&mut [E], &[f32])) {
    let elements = elements_mut::<E>(tensor, first, values.len());
    if !tensor.is_streamed() {
        return fill(elements, values);
    }
    // Lines are written whole.
    let head = elements.as_ptr().align_offset(LINE_BYTES).min(values.len());
    let whole = (values.len() - head) / (LINE_BYTES / size_of::<E>()) * (LINE_BYTES / size_of::<E>());
    let (before, rest) = elements.split_at_mut(head);
    let (lines, after) = rest.split_at_mut(whole);
    let (of_before, rest) = values.split_at(head);
    let (of_lines, of_after) = rest.split_at(whole);
    fill(before, of_before);
    fill(after, of_after);
    let mut room = [E::zeroed(); BLOCK];
    for (lines, values) in lines.chunks_mut(BLOCK).zip(of_lines.chunks(BLOCK)) {
        let filled = &mut room[..lines.len()];
        fill(filled, values);
        stream(lines, filled);
    }
}

/// Copies lines past the caches.
#[inline(always)]
fn stream<E: Element>(lines: &mut [E], from: &[E]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let words = size_of_val(lines).min(size_of_val(from)) / size_of::<__m128i>();
        let (to, from) = (lines.as_mut_ptr().cast::<__m128i>(), from.as_ptr().cast::<__m128i>());
        for word in 0..words {
            // SAFETY: both slices have so many words, and lines begin at multiples of their size. Every x86-64 processor has the instructions.
            unsafe { _mm_stream_si128(to.add(word), _mm_loadu_si128(from.add(word))) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    lines.copy_from_slice(from);
}

/// Rounds to nearest, ties to even.
#[inline(always)]
pub(in crate::ops) fn to_bf16(value: f32) -> bf16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    bf16::from_bits(low_half(if value.is_nan() { bits >> 16 | 0x40 } else { rounded }))
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is 0")]
fn low_half(bits: u32) -> u16 {
    bits as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_is_rounded_as_its_type_does() {
        // Every exponent, around every rounding.
        for high in 0..=u16::MAX {
            for low in [0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let value = f32::from_bits(u32::from(high) << 16 | low);
                let brain = to_bf16(value);
                if value.is_nan() {
                    assert!(brain.is_nan(), "{value}");
                } else {
                    assert_eq!(brain.to_bits(), bf16::from_f32(value).to_bits(), "{value:e}");
                }
            }
        }
    }

    #[test]
    fn large_outputs_are_written_whole_wherever_they_begin() {
        fn check<E: Element + PartialEq + std::fmt::Debug>(number: impl Fn(f32) -> E) {
            use crate::{
                AnyDescriptor, Device, Mem, MemMut, Operand, PlanOptions, PointwiseDescriptor, TensorDesc, Workspace,
            };
            let count = (16 << 20) / size_of::<E>() + 37;
            let x: Vec<E> = (0..count).map(|at| number((at % 251) as f32)).collect();
            let desc = TensorDesc::contiguous(E::DTYPE, &[count as u64]).unwrap();
            let negate = AnyDescriptor::new(PointwiseDescriptor::unary(Function::Neg, desc).unwrap());
            let device = Device::cpu();
            let plan = negate.plan(&device, &PlanOptions::default()).unwrap();
            for skipped in [0, 3, 31] {
                let mut y = vec![number(7.0); count + 64];
                let output = MemMut::host(&mut y[skipped..skipped + count]);
                let mut operands = [Operand::from(Mem::host(&x)), Operand::from(output)];
                plan.run(&mut device.queue(), &mut operands, Workspace::none()).unwrap();
                let is_right = |(at, y): (usize, &E)| match at.checked_sub(skipped) {
                    Some(at) if at < count => *y == number(-((at % 251) as f32)),
                    _ => *y == number(7.0),
                };
                assert!(y.iter().enumerate().all(is_right), "{} skipped {skipped}", E::DTYPE);
            }
        }
        check(|value| value);
        check(f16::from_f32);
        check(bf16::from_f32);
    }
}
