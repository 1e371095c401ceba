//! The CUDA kernels: how operands lie for the accesses of threads, which kernel serves, and how it is told a program.

use baracuda_ops_sys as sys;

use super::{FIRST_OUTPUT, Valid};
use crate::backend::cuda::{Props, c_dtype, c_element, number_of};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask};
use crate::narrow::{single, whole, word};
use crate::ops::calls::calls;
use crate::ops::pointwise::program::{
    Argument, Cost, Draw, Function, Instruction, Kind, Literal, Program, range, threshold,
};
use crate::ops::samples::are_packed;
use crate::ops::walk::Walk;
use crate::tensor::TensorDesc;

/// Threads of a block, as in the kernels.
const THREADS: u64 = 256;
/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
/// Bytes of a vector.
const VEC_BYTES: u64 = 16;
/// The most extents of walks in vectors, and those of other walks.
const VECTOR_EXTENTS: usize = 4;
const EXTENTS: usize = sys::BOPS_POINTWISE_EXTENTS as usize;

const _: () = {
    assert!(EXTENTS == crate::tensor::MAX_RANK);
    assert!(sys::BOPS_POINTWISE_INPUTS as usize == Program::MAX_INPUTS);
    assert!(sys::BOPS_POINTWISE_OUTPUTS as usize == Program::MAX_OUTPUTS);
    assert!(sys::BOPS_POINTWISE_INSTRUCTIONS as usize == Program::MAX_INSTRUCTIONS);
    assert!(sys::BOPS_POINTWISE_LITERALS as usize == Program::MAX_NUMBERS);
    assert!(sys::BOPS_POINTWISE_SOURCES as usize == Program::MAX_SOURCES);
    assert!(sys::BOPS_POINTWISE_SOURCE_LITERALS as usize == Program::MAX_NUMBERS_BESIDE_SOURCES);
    // A slot for each input and each result has a number below that of the accumulator.
    assert!(Program::MAX_INPUTS + Program::MAX_SOURCES + Program::MAX_INSTRUCTIONS < sys::BOPS_VALUE_LAST as usize);
};

/// A function at the C ABI, which numbers them in the order of their declaration.
const fn c_function(function: Function) -> sys::bops_function {
    function as sys::bops_function
}

/// The cost of a function at the C ABI, by which its kernels are compiled.
const fn c_cost(function: Function) -> sys::bops_cost {
    match function.row().cost {
        Cost::Light => sys::BOPS_COST_LIGHT,
        Cost::Exponential => sys::BOPS_COST_EXPONENTIAL,
        Cost::Exponentials | Cost::Special => sys::BOPS_COST_SPECIAL,
        Cost::Digits => sys::BOPS_COST_DIGITS,
        Cost::Series => sys::BOPS_COST_SERIES,
        Cost::Integral => sys::BOPS_COST_INTEGRAL,
    }
}

/// Whether a program has functions that leave no registers for values: its kernels hold these in memory and compute elements one by one.
pub(in crate::ops) fn has_integrals(program: &Program) -> bool {
    program.instructions().iter().any(|instruction| instruction.function.row().cost == Cost::Integral)
}

/// The bits of a number in the computing type.
pub(in crate::ops) fn bits(computing: DType, number: f64) -> u64 {
    match computing {
        DType::F64 => number.to_bits(),
        DType::F32 => single(number).to_bits().into(),
        // Of which types of 32 bits take the low half.
        _ => whole(number).cast_unsigned(),
    }
}

/// Operands and how they lie towards each other, outputs first.
pub(in crate::ops) struct Lying {
    pub(in crate::ops) operands: Vec<TensorDesc>,
    pub(in crate::ops) walk: Walk,
}

impl Lying {
    fn new(operands: Vec<TensorDesc>) -> Self {
        Self { walk: Walk::new(&operands), operands }
    }

    fn rank(&self) -> usize {
        self.walk.dims.len()
    }

    /// The type that all operands have.
    pub(in crate::ops) fn dtype(&self) -> Option<DType> {
        let first = self.operands.first()?.dtype();
        self.operands.iter().all(|operand| operand.dtype() == first).then_some(first)
    }

    /// Whether the elements of an operand along the innermost extent are one.
    fn is_repeated(&self, operand: usize) -> bool {
        self.walk.strides[operand].last().is_none_or(|&stride| stride == 0)
    }

    /// The most extents that kernels for accesses to `width` neighbours have, 1 or [`VECTOR_EXTENTS`], if they serve: along the innermost extent each
    /// operand is repeated or has neighbours, in whole accesses that are aligned; the last access of the only extent may be shorter.
    fn vectors(&self, width: u64) -> Option<usize> {
        let fits = self.are_vectors(width, self.operands.len()) && self.rank() <= VECTOR_EXTENTS;
        fits.then_some(if self.rank() <= 1 { 1 } else { VECTOR_EXTENTS })
    }

    /// The same for any extents, if operands from `sources` on lie in no memory.
    fn are_vectors(&self, width: u64, sources: usize) -> bool {
        let Some((inner, outer)) = self.walk.dims.split_last() else { return false };
        let serves = |(at, (operand, strides)): (usize, (&TensorDesc, &Vec<u64>))| match strides.split_last() {
            Some((0, _)) => true,
            Some((1, _)) if at >= sources => true,
            Some((1, outer)) => {
                let bytes = (width * operand.dtype().size_bytes()).min(VEC_BYTES);
                operand.align_bytes() >= bytes && outer.iter().all(|stride| stride.is_multiple_of(width))
            }
            _ => false,
        };
        self.operands.iter().zip(&self.walk.strides).enumerate().all(serves)
            && (outer.is_empty() || (!self.is_long(width) && inner.is_multiple_of(width)))
    }

    /// Whether the number of an access may need more than 31 bits.
    fn is_long(&self, width: u64) -> bool {
        self.walk.elements().div_ceil(width) > 1 << 31
    }

    /// # Errors
    /// An inner extent or the grid is too large.
    pub(in crate::ops) fn c_walk(&self, width: u64) -> Result<sys::bops_walk, Reason> {
        let (elements, is_long) = (self.walk.elements(), self.is_long(width));
        let blocks = elements.div_ceil(THREADS * width);
        Reason::unless(blocks <= MOST_BLOCKS, || {
            format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}")
        })?;
        let mut inner = [sys::bops_divisor::default(); EXTENTS - 1];
        let dims = self.walk.dims.get(1..).unwrap_or_default();
        for (at, (by, &dim)) in inner.iter_mut().zip(dims.iter().rev()).enumerate() {
            Reason::unless(dim <= u32::MAX.into(), || {
                format!("an extent within others has {dim} elements, its kernels divide by at most {}", u32::MAX)
            })?;
            *by = divisor(if at == 0 { dim / width } else { dim }, is_long);
        }
        Ok(sys::bops_walk { elements, rank: word(self.rank() as u64), is_long: is_long.into(), inner })
    }

    pub(in crate::ops) fn c_walked(&self, operand: usize, width: u64) -> Result<sys::bops_walked, Reason> {
        let own = &self.walk.strides[operand];
        let mut strides = [0; EXTENTS];
        // The outermost first, then from the innermost on.
        for (at, &stride) in own.iter().enumerate() {
            let place = if at == 0 { 0 } else { own.len() - at };
            strides[place] = if at + 1 == own.len() { stride * width } else { stride };
        }
        let (mut dense, mut is_dense) = (1, true);
        for (&stride, &dim) in own.iter().zip(&self.walk.dims).rev() {
            is_dense &= stride == dense;
            dense *= dim;
        }
        Ok(sys::bops_walked {
            strides,
            dtype: c_element(self.operands[operand].dtype()),
            is_repeated: self.is_repeated(operand).into(),
            is_dense: is_dense.into(),
        })
    }
}

/// Whether operands, outputs first, lie next to each other in one extent, aligned for accesses to `width` neighbours.
pub(super) fn single_extent(operands: Vec<TensorDesc>, width: u64) -> bool {
    let lying = Lying::new(operands);
    let is_repeated = || (0..lying.operands.len()).any(|at| lying.is_repeated(at));
    lying.walk.dims.is_empty() || (lying.vectors(width) == Some(1) && !is_repeated())
}

/// What the kernels divide by. `is_long`: numbers of up to 40 bits, else of up to 31.
pub(in crate::ops) fn divisor(extent: u64, is_long: bool) -> sys::bops_divisor {
    let shift = extent.next_power_of_two().trailing_zeros();
    let multiplier = (1u128 << (if is_long { 40 } else { 31 } + shift)).div_ceil(extent.into());
    // It has 41 bits at most: 2^shift is less than twice the extent.
    let multiplier = u64::try_from(multiplier).unwrap_or(u64::MAX);
    sys::bops_divisor { extent: word(extent), shift, multiplier }
}

/// The type of the operands of a function, of which the first is its output. The result of a light function of one or two arguments and the first argument
/// of one of three may be Bool beside another type.
fn type_of(function: Function, arguments: usize, lying: &Lying) -> Option<DType> {
    let may_be_bool = match (function.row().cost, arguments) {
        (Cost::Light, 1 | 2) => Some(0),
        (Cost::Light, 3) => Some(1),
        _ => None,
    };
    let has_bool = may_be_bool.filter(|&at| lying.operands.get(at).is_some_and(|x| x.dtype() == DType::Bool));
    let mut types = (0..).zip(&lying.operands).filter(|&(at, _)| Some(at) != has_bool).map(|(_, x)| x.dtype());
    let first = types.next()?;
    types.all(|other| other == first).then_some(first)
}

/// One function of operands of one type.
pub(in crate::ops) fn function(valid: &Valid, _: &Props, _: Ask) -> Accepted<'static> {
    valid.derived.one_set()?;
    let (program, operands) = (&valid.program(), &valid.derived.operands);
    Reason::unless(program.sources().is_empty(), || "it has no positions and no random numbers")?;
    let [Instruction { function, arguments }] = program.instructions() else {
        let count = program.instructions().len();
        return Err(format!("it computes one function, the program has {count} instructions").into());
    };
    Reason::unless(function.row().cost != Cost::Integral, || {
        format!("{} takes as many registers as there are; pointwise_program computes it", function.name())
    })?;
    Reason::unless(
        program.results() == [Argument::Result(0)],
        || "its output is the result of the function, the program has others",
    )?;
    let used: Vec<usize> = arguments.iter().filter_map(Argument::input).collect();
    Reason::unless(!used.is_empty(), || "it computes a function of an input, the program has one of numbers")?;
    let lying = Lying::new(
        std::iter::once(operands[program.inputs()]).chain(used.iter().map(|&input| operands[input])).collect(),
    );
    let Some(dtype) = type_of(*function, arguments.len(), &lying) else {
        let names: Vec<_> = lying.operands.iter().map(|operand| operand.dtype().to_string()).collect();
        return Err(
            format!("its operands have one type, these have {}: the output, then inputs", names.join(", ")).into()
        );
    };
    let c_dtype = c_dtype(dtype)?;
    let full = VEC_BYTES / dtype.size_bytes();
    // The kernels of one argument load no repeated ones in vectors.
    let (width, extents) = match lying.vectors(full).filter(|_| arguments.len() > 1 || !lying.is_repeated(1)) {
        Some(extents) => (full, extents),
        None if lying.dtype().is_none() => return Err("beside Bool its operands lie in vectors, these do not".into()),
        None => (1, EXTENTS),
    };
    let mut params = sys::bops_pointwise_function_params {
        walk: lying.c_walk(width)?,
        out: lying.c_walked(0, width)?,
        function: c_function(*function),
        cost: c_cost(*function),
        arguments: word(arguments.len() as u64),
        ..Default::default()
    };
    let mut slots = [None; 3];
    let mut walked = 1..;
    let params_of_arguments = [&mut params.x, &mut params.y, &mut params.z];
    for ((argument, to), slot) in arguments.iter().zip(params_of_arguments).zip(&mut slots) {
        *slot = argument.input();
        match argument {
            Argument::Literal(literal) => {
                (to.literal, to.is_literal) = (bits(valid.derived.computing, literal.get()), 1);
            }
            _ => to.walked = lying.c_walked(walked.next().unwrap_or_default(), width)?,
        }
    }
    let choice = sys::bops_pointwise_function_choice {
        vec_bytes: word(width * dtype.size_bytes()),
        extents: word(extents as u64),
    };
    let kernels = (c_dtype, params, choice, (params.arguments, params.cost));
    Ok(calls!(bops_pointwise_function)
        .candidate(lying.walk.elements() > 0, kernels, move |located| {
            let [x, y, z] = slots.map(|slot| located.optional(slot).cast_const());
            sys::bops_pointwise_function_operands { x, y, z, out: located.pointer(FIRST_OUTPUT) }
        })
        .batch_invariant_if(is_plain(&lying)))
}

/// An interpreter of any program.
pub(in crate::ops) fn program(valid: &Valid, _: &Props, _: Ask) -> Accepted<'static> {
    valid.derived.one_set()?;
    let (program, operands, computing) = (&valid.program(), &valid.derived.operands, valid.derived.computing);
    Reason::unless(
        program.sources().is_empty(),
        || "it has no positions and no random numbers; pointwise_source does",
    )?;
    let code = Code::new(program, |number| bits(computing, number));
    let (inputs, outputs) = (code.inputs.len(), program.outputs());
    let lying = Lying::new(
        operands[program.inputs()..].iter().copied().chain(code.inputs.iter().map(|&input| operands[input])).collect(),
    );
    let has_registers = code.slots <= 8 && !has_integrals(program);
    let slots = if code.slots <= 4 && computing == DType::F32 { 4 } else { 8 };
    // Two vectors of f32 or one of 16-bit elements, where all operands have this type; an access to as many elements of any type; one element.
    let uniform = lying
        .dtype()
        .filter(|dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16))
        .filter(|dtype| has_registers && lying.vectors(VEC_BYTES / dtype.size_bytes()) == Some(1));
    let mixed = VEC_BYTES / computing.size_bytes();
    let (dtype, width, extents, slots) = match (uniform, lying.vectors(mixed).filter(|_| has_registers)) {
        (Some(dtype), _) => (dtype, VEC_BYTES / dtype.size_bytes(), 1, slots),
        (None, Some(extents)) => (computing, mixed, extents, slots),
        (None, None) => (computing, 1, EXTENTS, if has_registers && computing != DType::F64 { 8 } else { 0 }),
    };
    let choice = sys::bops_pointwise_program_choice {
        dtype: c_element(dtype),
        is_uniform: uniform.is_some().into(),
        extents: word(extents as u64),
        slots,
    };
    let mut params = sys::bops_pointwise_program_params {
        walk: lying.c_walk(width)?,
        inputs: word(inputs as u64),
        outputs: word(outputs as u64),
        instructions: word(code.instructions.len() as u64),
        ..Default::default()
    };
    params.result[..outputs].copy_from_slice(&code.results);
    params.instruction[..code.instructions.len()].copy_from_slice(&code.instructions);
    params.literal[..code.literals.len()].copy_from_slice(&code.literals);
    for (at, output) in params.output[..outputs].iter_mut().enumerate() {
        *output = lying.c_walked(at, width)?;
    }
    for (at, input) in params.input[..inputs].iter_mut().enumerate() {
        *input = lying.c_walked(outputs + at, width)?;
    }
    // Some programs and casts have kernels of their own.
    let types = [params.input[0].dtype, params.output[0].dtype];
    let of_program = number_of(&(params.inputs, params.outputs, params.instruction, params.result, types));
    let kernels = (c_element(computing), params, choice, of_program);
    Ok(calls!(bops_pointwise_program)
        .candidate(lying.walk.elements() > 0, kernels, move |located| {
            let mut operands = sys::bops_pointwise_program_operands::default();
            for (to, &input) in operands.input.iter_mut().zip(&code.inputs) {
                *to = located.pointer(input).cast_const();
            }
            for (to, at) in operands.output[..outputs].iter_mut().zip(FIRST_OUTPUT..) {
                *to = located.pointer(at);
            }
            operands
        })
        .batch_invariant_if(is_plain(&lying)))
}

/// Whether operands are contiguous and have several elements: a single extent, whose accesses are as wide as the promised alignment allows, whatever the
/// number of elements.
fn is_plain(lying: &Lying) -> bool {
    lying.walk.elements() != 1 && lying.operands.iter().all(|operand| are_packed(operand, operand.rank()))
}

/// An interpreter of programs with sources.
pub(super) fn source<'d>(valid: &'d Valid, _: &Props, _: Ask) -> Accepted<'d> {
    let (program, operands, computing) = (valid.program(), &valid.derived.operands, valid.derived.computing);
    let draws: Vec<Option<Draw>> = program.sources().iter().map(|source| source.draw().copied()).collect();
    Reason::unless(!draws.is_empty(), || "it computes positions or random numbers, the program has none")?;
    let code = Code::new(&program, |number| bits(computing, number));
    let (inputs, outputs) = (code.inputs.len(), program.outputs());
    let of_inputs = code.inputs.iter().map(|&input| operands[input]);
    let in_memory = operands[program.inputs()..].iter().copied().chain(of_inputs);
    let lying = Lying::new(in_memory.chain(valid.derived.sources.iter().copied()).collect());
    let has_registers = code.slots <= 8 && !has_integrals(&program);
    let full = VEC_BYTES / computing.size_bytes();
    let is_vector = has_registers && lying.are_vectors(full, outputs + inputs) && !lying.is_long(full);
    let (width, extents) = if is_vector { (full, VECTOR_EXTENTS) } else { (1, EXTENTS) };
    let slots = if is_vector || has_registers && computing != DType::F64 { 8 } else { 0 };
    let choice = sys::bops_pointwise_source_choice { extents: word(extents as u64), slots };
    let mut params = sys::bops_pointwise_source_params {
        walk: lying.c_walk(width)?,
        inputs: word(inputs as u64),
        sources: word(draws.len() as u64),
        outputs: word(outputs as u64),
        instructions: word(code.instructions.len() as u64),
        ..Default::default()
    };
    params.result[..outputs].copy_from_slice(&code.results);
    params.instruction[..code.instructions.len()].copy_from_slice(&code.instructions);
    params.literal[..code.literals.len()].copy_from_slice(&code.literals);
    for (at, output) in params.output[..outputs].iter_mut().enumerate() {
        *output = lying.c_walked(at, width)?;
    }
    for (at, input) in params.input[..inputs].iter_mut().enumerate() {
        *input = lying.c_walked(outputs + at, width)?;
    }
    for (at, (source, draw)) in params.source.iter_mut().zip(&draws).enumerate() {
        source.walked = lying.c_walked(outputs + inputs + at, width)?;
        let Some(draw) = draw else { continue };
        let numbers = draw.numbers.map(Literal::get);
        (source.kind, source.stream, source.digits) = (c_kind(draw.kind), draw.stream, draw.digits);
        let stride = valid.fields.inputs[draw.seed].strides().first().copied().unwrap_or(0);
        Reason::unless(stride <= u32::MAX.into(), || format!("the words of a seed are {stride} elements apart"))?;
        source.seed_stride = word(stride);
        (source.range, source.low) = match draw.kind {
            Kind::Bernoulli => (threshold(numbers[0]), 0),
            Kind::RandInt => (range(numbers), whole(numbers[0])),
            Kind::Uniform | Kind::Normal | Kind::Exponential => (0, 0),
        };
    }
    let kernels = (c_element(computing), params, choice, ());
    Ok(calls!(bops_pointwise_source).candidate(lying.walk.elements() > 0, kernels, move |located| {
        let mut operands = sys::bops_pointwise_source_operands::default();
        for (to, &input) in operands.input.iter_mut().zip(&code.inputs) {
            *to = located.pointer(input).cast_const();
        }
        for ((seed, offset), draw) in operands.seed.iter_mut().zip(&mut operands.offset).zip(&draws) {
            if let Some(draw) = draw {
                (*seed, *offset) = (located.pointer(draw.seed).cast(), located.pointer(draw.offset).cast());
            }
        }
        for (to, at) in operands.output[..outputs].iter_mut().zip(FIRST_OUTPUT..) {
            *to = located.pointer(at);
        }
        operands
    }))
}

/// A distribution at the C ABI.
const fn c_kind(kind: Kind) -> sys::bops_source_kind {
    match kind {
        Kind::Uniform => sys::BOPS_SOURCE_UNIFORM,
        Kind::Bernoulli => sys::BOPS_SOURCE_BERNOULLI,
        Kind::RandInt => sys::BOPS_SOURCE_RANDINT,
        Kind::Normal => sys::BOPS_SOURCE_NORMAL,
        Kind::Exponential => sys::BOPS_SOURCE_EXPONENTIAL,
    }
}

/// A program as the interpreter is told it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::ops) struct Code {
    /// The inputs that count, in the order of their slots.
    pub(in crate::ops) inputs: Vec<usize>,
    pub(in crate::ops) instructions: Vec<u64>,
    /// Places of the outputs.
    pub(in crate::ops) results: Vec<u32>,
    pub(in crate::ops) literals: Vec<u64>,
    /// Values that are live at once outside of the accumulator.
    pub(in crate::ops) slots: usize,
}

/// A value that lasts to the end, since it is an output.
const FOREVER: usize = usize::MAX;

impl Code {
    pub(in crate::ops) fn new(program: &Program, bits: impl Fn(f64) -> u64) -> Self {
        let (needed, ends) = lifetimes(program);
        let inputs: Vec<usize> = (0..program.inputs()).filter(|&input| ends.of_inputs[input].is_some()).collect();
        // Of each slot, where the value that it holds is used last.
        let of_inputs = inputs.iter().filter_map(|&input| ends.of_inputs[input]);
        let mut slots: Vec<usize> = of_inputs.chain(ends.of_sources.iter().copied()).collect();
        let source = |at: usize| index(Some(inputs.len() + at));
        let mut places = vec![sys::BOPS_VALUE_LAST; program.instructions().len()];
        let mut literals: Vec<u64> = Vec::new();
        let mut instructions = Vec::with_capacity(needed.len());
        for (at, &number) in needed.iter().enumerate() {
            let Instruction { function, arguments } = &program.instructions()[number];
            let before = at.checked_sub(1).map(|before| needed[before]);
            let mut place = |argument: &Argument| match *argument {
                Argument::Input(input) => index(inputs.iter().position(|&known| known == input)),
                Argument::Source(at) => source(at),
                Argument::Result(result) if Some(result) == before => sys::BOPS_VALUE_LAST,
                Argument::Result(result) => places[result],
                Argument::Literal(literal) => {
                    let bits = bits(literal.get());
                    let known = literals.iter().position(|&known| known == bits);
                    sys::BOPS_VALUE_LITERAL
                        + index(known.or_else(|| {
                            literals.push(bits);
                            Some(literals.len() - 1)
                        }))
                }
            };
            let [x, y, z] = [0, 1, 2].map(|at| arguments.get(at).map_or(sys::BOPS_VALUE_LAST, &mut place));
            // The accumulator is read in its place as the first argument; as the second it is copied.
            let is_commutative = matches!(
                function,
                Function::Add | Function::Mul | Function::Maximum | Function::Minimum | Function::Hypot
            );
            let (x, y) = if is_commutative && y == sys::BOPS_VALUE_LAST { (y, x) } else { (x, y) };
            // What only the next instruction takes, and the last result, stay in the accumulator.
            let end = ends.of_results[number].unwrap_or(at);
            if at + 1 < needed.len() && end != at + 1 {
                let free = slots.iter().position(|&end| end <= at).unwrap_or_else(|| {
                    slots.push(FOREVER);
                    slots.len() - 1
                });
                (slots[free], places[number]) = (end, index(Some(free)));
            }
            let bytes =
                [c_function(*function), x, y, z, places[number], word(arguments.len() as u64), c_cost(*function)];
            instructions.push(bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)));
        }
        let result = |output: &Argument| match *output {
            Argument::Input(input) => index(inputs.iter().position(|&known| known == input)),
            Argument::Source(at) => source(at),
            Argument::Result(result) => places[result],
            Argument::Literal(_) => sys::BOPS_VALUE_LAST,
        };
        let results = program.results().iter().map(result).collect();
        Self { inputs, instructions, results, literals, slots: slots.len() }
    }
}

/// A place among at most 128.
fn index(place: Option<usize>) -> u32 {
    place.map_or(0, |place| word(place as u64))
}

/// Of each value the place of the instruction, among those that are needed, that uses it last.
struct Ends {
    of_inputs: Vec<Option<usize>>,
    of_sources: Vec<usize>,
    of_results: Vec<Option<usize>>,
}

/// The instructions on which outputs depend, in their order, and the lifetimes of values.
fn lifetimes(program: &Program) -> (Vec<usize>, Ends) {
    let mut is_needed = vec![false; program.instructions().len()];
    let need = |is_needed: &mut Vec<bool>, arguments: &[Argument]| {
        for argument in arguments {
            if let Argument::Result(result) = *argument {
                is_needed[result] = true;
            }
        }
    };
    need(&mut is_needed, program.results());
    for (at, instruction) in program.instructions().iter().enumerate().rev() {
        if is_needed[at] {
            need(&mut is_needed, &instruction.arguments);
        }
    }
    let needed: Vec<usize> = (0..is_needed.len()).filter(|&at| is_needed[at]).collect();
    let mut ends = Ends {
        of_inputs: vec![None; program.inputs()],
        of_sources: vec![0; program.sources().len()],
        of_results: vec![None; is_needed.len()],
    };
    let mut extend = |argument: &Argument, end: usize| match *argument {
        Argument::Input(input) => ends.of_inputs[input] = Some(end),
        Argument::Source(source) => ends.of_sources[source] = end,
        Argument::Result(result) => ends.of_results[result] = Some(end),
        Argument::Literal(_) => {}
    };
    for (at, &number) in needed.iter().enumerate() {
        program.instructions()[number].arguments.iter().for_each(|argument| extend(argument, at));
    }
    program.results().iter().for_each(|output| extend(output, FOREVER));
    (needed, ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::pointwise::map::sets::without_scalars;
    use crate::ops::pointwise::stock;

    #[test]
    fn the_header_numbers_functions_as_they_are_declared() {
        let header = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../csrc/bops_pointwise.h")).unwrap();
        let listed: Vec<&str> =
            header.lines().filter_map(|line| line.trim().strip_prefix("BOPS_FUNCTION_")?.strip_suffix(',')).collect();
        let declared: Vec<String> = Function::ALL.into_iter().map(|function| function.name().to_uppercase()).collect();
        assert_eq!(listed, declared);
        assert_eq!(c_function(Function::Div), sys::BOPS_FUNCTION_DIV);
    }

    #[test]
    fn the_kernels_of_a_cost_name_each_of_its_functions() {
        let read = |file: &str| {
            let path = format!("{}/../csrc/pointwise/{file}", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(path).unwrap()
        };
        let [functions, special, incomplete] = ["functions.cuh", "special.cuh", "incomplete.cuh"].map(read);
        let mut by_default = Vec::new();
        for function in Function::ALL.into_iter().filter(|function| function.computes_in(DType::F32)) {
            let is_special = c_cost(function) >= sys::BOPS_COST_SPECIAL;
            let [own, other] = if is_special { [&special, &functions] } else { [&functions, &special] };
            let case = format!("case BOPS_FUNCTION_{}:", function.name().to_uppercase());
            assert!(!other.contains(&case), "{function:?} is in the file of another cost");
            // Those of integrals are told apart by conditions.
            let constant = format!("BOPS_FUNCTION_{}", function.name().to_uppercase());
            let is_named = match c_cost(function) {
                sys::BOPS_COST_INTEGRAL => {
                    incomplete.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == constant)
                }
                _ => own.contains(&case),
            };
            if !is_named {
                by_default.push(function.name());
            }
        }
        // The last one of each switch is its default.
        assert_eq!(
            by_default,
            ["hardswish", "remainder", "fma", "tanh", "logit", "atan2", "zeta", "igamma", "betainc", "div"]
        );
    }

    #[test]
    fn divisions_by_multipliers_are_exact() {
        let mut state = 1u64;
        let mut random = |most: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 20) % most
        };
        for most in [1 << 31, 1 << 40] {
            let is_long = most > 1 << 31;
            let divided = |n: u64, by: &sys::bops_divisor| match is_long {
                true => ((u128::from(n << 24) * u128::from(by.multiplier)) >> 64 >> by.shift) as u64,
                false => (2 * n * by.multiplier) >> 32 >> by.shift,
            };
            let edges = [1, 2, 3, 5, 7, 641, 65535, 65536, 65537, (1 << 31) - 1];
            let extents: Vec<u64> =
                edges.into_iter().chain((0..200).map(|at| 1 + random(1 << (1 + at % 31)))).collect();
            for extent in extents {
                let by = divisor(extent, is_long);
                assert!(is_long || by.multiplier <= u32::MAX.into());
                for _ in 0..200 {
                    let near = random(most / extent + 1) * extent;
                    for n in [random(most), near, near.saturating_sub(1), most - 1] {
                        if n < most {
                            assert_eq!(divided(n, &by), n / extent, "{n} / {extent}");
                        }
                    }
                }
            }
        }
    }

    /// Programs whose kernels are compiled for them.
    fn programs() -> Vec<(&'static str, Program)> {
        let swiglu = stock::swiglu().unwrap();
        let swiglu_gradient = swiglu.gradient(&[0], &[0, 1], None).unwrap().unwrap().program;
        let mut b = Program::builder();
        let x = b.input("x");
        let scaled = b.call(Function::Mul, [x, 0.5.into()]);
        let moved = b.call(Function::Add, [scaled, 1.0.into()]);
        let clamped = b.call(Function::Clamp, [moved, (-1.0).into(), 2.0.into()]);
        let scale_shift_clamp = b.finish([clamped]).unwrap();
        vec![("swiglu", swiglu), ("swiglu_gradient", swiglu_gradient), ("scale_shift_clamp", scale_shift_clamp)]
    }

    /// Programs that are reduced by kernels that are compiled for them.
    fn reduced() -> Vec<(&'static str, Program)> {
        let mut b = Program::builder();
        let [x, y] = ["x", "y"].map(|name| b.input(name));
        let difference = b.call(Function::Sub, [x, y]);
        let squared = b.call(Function::Mul, [difference, difference]);
        let squared_difference = b.finish([squared]).unwrap();
        let mut b = Program::builder();
        let x = b.input("x");
        let squared = b.call(Function::Mul, [x, x]);
        let square = b.finish([squared]).unwrap();
        vec![
            ("product", Program::of(Function::Mul)),
            ("square", square),
            ("squared_difference", squared_difference),
            ("mse", stock::mse().unwrap()),
        ]
    }

    /// Programs of sets, in which the scalars that they share are numbers.
    fn updates() -> Vec<(&'static str, Program)> {
        let adam = stock::Adam::w(0.01);
        [
            ("adamw", adam),
            ("adamw_scaled", stock::Adam { scaled: true, ..adam }),
            ("adamw_copied", stock::Adam { copy: true, ..adam }),
            ("adamw_scaled_copied", stock::Adam { scaled: true, copy: true, ..adam }),
        ]
        .map(|(name, adam)| (name, without_scalars(&adam.program().unwrap(), 4).unwrap()))
        .to_vec()
    }

    /// A stock program as csrc/pointwise/stock.cuh has it.
    fn stock_text(name: &str, program: &Program) -> String {
        let code = Code::new(program, f64::to_bits);
        let place = |place: u32| match place {
            sys::BOPS_VALUE_LAST => "last".to_string(),
            sys::BOPS_VALUE_LITERAL.. => format!("literal + {}", place - sys::BOPS_VALUE_LITERAL),
            _ => place.to_string(),
        };
        let cost = |cost: u32| match cost {
            sys::BOPS_COST_LIGHT => "LIGHT",
            sys::BOPS_COST_EXPONENTIAL => "EXPONENTIAL",
            sys::BOPS_COST_DIGITS => "DIGITS",
            _ => "SPECIAL",
        };
        let words = code.instructions.iter().map(|word| {
            let [function, x, y, z, to, arguments, class, _] = word.to_le_bytes().map(u32::from);
            let function = Function::ALL[function as usize].name().to_uppercase();
            let places = [x, y, z, to].map(place).join(", ");
            format!("instruction(BOPS_FUNCTION_{function}, {places}, {arguments}, BOPS_COST_{})", cost(class))
        });
        format!(
            "struct {name} {{\n    static constexpr int inputs = {}, outputs = {}, instructions = {}, slots = {};\n    \
             static constexpr uint64_t code[] = {{\n        {},\n    }};\n    \
             static constexpr uint32_t result[] = {{{}}};\n}};\n",
            code.inputs.len(),
            program.outputs(),
            code.instructions.len(),
            code.slots,
            words.collect::<Vec<_>>().join(",\n        "),
            code.results.iter().map(|&at| place(at)).collect::<Vec<_>>().join(", "),
        )
    }

    /// With `BOPS_RENEW_STOCK` they are written.
    #[test]
    fn the_stock_programs_of_kernels_are_these() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../csrc/pointwise/stock.cuh");
        let text = std::fs::read_to_string(path).unwrap();
        let (head, rest) = text.split_once("// clang-format off\n").unwrap();
        let (_, tail) = rest.split_once("// clang-format on\n").unwrap();
        let lists = [("programs", programs()), ("reduced", reduced()), ("updates", updates())];
        let structs: String =
            lists.iter().flat_map(|(_, list)| list).map(|(name, program)| stock_text(name, program)).collect();
        let list = |(of, list): &(&str, Vec<(&str, Program)>)| {
            let names: Vec<_> = list.iter().map(|&(name, _)| name).collect();
            format!("using {of} = list<{}>;\n", names.join(", "))
        };
        let own = format!("{structs}{}", lists.iter().map(list).collect::<String>());
        let renewed = format!("{head}// clang-format off\n{own}// clang-format on\n{tail}");
        if std::env::var_os("BOPS_RENEW_STOCK").is_some() {
            std::fs::write(path, &renewed).unwrap();
            return;
        }
        assert!(text == renewed, "csrc/pointwise/stock.cuh has other programs: BOPS_RENEW_STOCK=1 writes these");
    }

    /// What the interpreter computes.
    fn interpret(code: &Code, inputs: &[f64]) -> Vec<f64> {
        let mut slots = vec![f64::NAN; code.slots];
        for (slot, &input) in slots.iter_mut().zip(&code.inputs) {
            *slot = inputs[input];
        }
        let mut last = f64::NAN;
        let get = |slots: &[f64], last: f64, place: u32| match place {
            sys::BOPS_VALUE_LAST => last,
            sys::BOPS_VALUE_LITERAL.. => f64::from_bits(code.literals[(place - sys::BOPS_VALUE_LITERAL) as usize]),
            _ => slots[place as usize],
        };
        for word in &code.instructions {
            let [function, x, y, z, to, arity, ..] = word.to_le_bytes().map(u32::from);
            let function = Function::ALL[function as usize];
            assert_eq!(arity as usize, function.arity());
            let given = [x, y, z].map(|place| get(&slots, last, place));
            last = function.value(std::array::from_fn(|at| if at < function.arity() { given[at] } else { 0.0 }));
            if to != sys::BOPS_VALUE_LAST {
                slots[to as usize] = last;
            }
        }
        code.results.iter().map(|&place| get(&slots, last, place)).collect()
    }

    #[test]
    fn programs_compute_the_same_in_few_slots() {
        for (json, slots) in [
            (r#"{"inputs":["x"],"outputs":["x"]}"#, 1),
            (r#"{"inputs":["x","y","z"],"let":[["t","mul","x","y"],["u","add","z","t"]],"outputs":["u"]}"#, 3),
            (
                r#"{"inputs":["x","y","z"],"let":[["t","clamp","x","y",1],["u","fma","z","x","t"],["c","le","t",0],["v","where","c","u","y"]],"outputs":["v"]}"#,
                4,
            ),
            (
                r#"{"inputs":["x","y"],"let":[["d","exp","y"],["t","sub","x",1.5],["u","sub",2,"t"]],"outputs":["u","x","u"]}"#,
                1,
            ),
            (
                r#"{"inputs":["x"],"let":[["a","neg","x"],["b","exp","x"],["c","mul","a","b"],["d","div","b","c"],["e","sub","x","d"]],"outputs":["e","a"]}"#,
                3,
            ),
            (
                r#"{"inputs":["x","y"],"let":[["c","lt","x","y"],["n","logical_not","c"],["u","where","n","x",2],["v","where","c","u","y"],["w","where",1,"y","v"]],"outputs":["v","w","c"]}"#,
                3,
            ),
            (
                r#"{"inputs":["x"],"let":[["a","add",1,2],["b","div","x","a"],["c","sigmoid","b"],["d","mul","c","c"],["e","add","d","b"]],"outputs":["d","e"]}"#,
                2,
            ),
        ] {
            let program: Program = serde_json::from_str(json).unwrap();
            let code = Code::new(&program, f64::to_bits);
            assert_eq!(code.slots, slots, "{json}");
            let inputs = [0.75, -1.25, 3.5];
            let mut expected = vec![0.0; program.outputs()];
            program.evaluate(&inputs, |number| number, &mut expected);
            assert_eq!(interpret(&code, &inputs), expected, "{json}");
        }
    }

    #[test]
    fn values_that_are_all_live_have_slots_of_their_own() {
        let mut b = Program::builder();
        let inputs: Vec<_> = (0..Program::MAX_INPUTS).map(|at| b.input(format!("x{at}"))).collect();
        let negated: Vec<_> = inputs.iter().map(|&x| b.call(Function::Neg, [x])).collect();
        let mut sum = negated[0];
        for (&x, &negative) in inputs.iter().zip(&negated) {
            let product = b.call(Function::Mul, [x, negative]);
            sum = b.call(Function::Sub, [product, sum]);
        }
        let program = b.finish([sum]).unwrap();
        let code = Code::new(&program, f64::to_bits);
        let numbers: Vec<f64> = (1..=16).map(f64::from).collect();
        let mut expected = [0.0];
        program.evaluate(&numbers, |number| number, &mut expected);
        assert_eq!(interpret(&code, &numbers), expected);
        assert_eq!(code.slots, 2 * Program::MAX_INPUTS);
    }
}
