//! The part of a shader's text that follows from the program and its operands: its functions, what is loaded and stored, and the instructions, one a line.

use std::fmt::Write;

use super::definitions::{definitions, name_of};
use crate::backend::wgpu::file;
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::{single, whole};
use crate::ops::pointwise::program::{Argument, Draw, Instruction, Kind, Literal, Program, Source, range, threshold};

/// The type in which a program computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Computing {
    F32,
    I32,
    U32,
}

impl Computing {
    /// # Errors
    /// Shaders do not compute in it.
    pub(in crate::ops) fn of(dtype: DType) -> Result<Self, Reason> {
        match dtype {
            DType::F32 => Ok(Self::F32),
            DType::I32 => Ok(Self::I32),
            DType::U32 => Ok(Self::U32),
            _ => Err(format!("its shaders do not compute in {dtype}").into()),
        }
    }

    /// The type in WGSL.
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::U32 => "u32",
        }
    }
}

/// An element type that programs have in shaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Element {
    F32,
    F16,
    BF16,
    I32,
    U32,
    Bool,
    U8,
    I8,
}

impl Element {
    /// # Errors
    /// Shaders have no such elements.
    pub(in crate::ops) fn of(dtype: DType) -> Result<Self, Reason> {
        match dtype {
            DType::F32 => Ok(Self::F32),
            DType::F16 => Ok(Self::F16),
            DType::BF16 => Ok(Self::BF16),
            DType::I32 => Ok(Self::I32),
            DType::U32 => Ok(Self::U32),
            DType::Bool => Ok(Self::Bool),
            DType::U8 => Ok(Self::U8),
            DType::I8 => Ok(Self::I8),
            DType::F64 => Err("WGSL has no arithmetic of f64 to rely on".into()),
            DType::I64 => Err("WGSL has no integers of 64 bits".into()),
            DType::F8E4M3 | DType::F8E5M2 => Err(format!("its shaders have no elements of {dtype}").into()),
        }
    }

    pub(in crate::ops) fn bytes(self) -> u32 {
        match self {
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Bool | Self::U8 | Self::I8 => 1,
        }
    }

    /// The file of a 16-bit type.
    fn file(self) -> &'static str {
        if self == Self::F16 { "common/f16" } else { "common/bf16" }
    }
}

/// How an operand's elements lie along the innermost extent of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Lie {
    /// It is one element everywhere, which a thread reads once.
    Repeated,
    /// One element stands for the whole line.
    Splat,
    /// They are neighbours.
    Run,
    /// They are a step apart.
    Scattered,
}

/// An operand as shaders see it.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Tensor {
    pub(in crate::ops) name: &'static str,
    /// Its row in the table of operands.
    pub(in crate::ops) index: usize,
    pub(in crate::ops) dtype: Element,
    pub(in crate::ops) lie: Lie,
    pub(in crate::ops) is_output: bool,
}

impl Tensor {
    /// What functions of its type end in.
    fn suffix(&self) -> &'static str {
        match self.dtype {
            Element::F32 => "f32",
            Element::F16 => "f16",
            Element::BF16 => "bf16",
            Element::I32 => "i32",
            Element::U32 => "u32",
            Element::Bool => "bool",
            Element::U8 => "u8",
            Element::I8 => "i8",
        }
    }

    /// The value of one element, from its bits.
    fn value(&self, bits: &str) -> String {
        match self.dtype {
            Element::F32 => format!("vec4<f32>(bitcast<f32>({bits}))"),
            Element::F16 | Element::BF16 => format!("vec4<f32>(unpack_{}({bits}).x)", self.suffix()),
            Element::I32 => format!("vec4<i32>(bitcast<i32>({bits}))"),
            Element::U32 => format!("vec4<u32>({bits})"),
            Element::Bool | Element::U8 | Element::I8 => format!("bytes_{}({bits} * 0x01010101u)", self.suffix()),
        }
    }

    /// Four values of a chunk.
    fn quad(&self, chunk: &str) -> String {
        match self.dtype {
            Element::F32 => format!("bitcast<vec4<f32>>({chunk})"),
            Element::F16 | Element::BF16 => format!("quad_{}({chunk}, part)", self.suffix()),
            Element::I32 => format!("bitcast<vec4<i32>>({chunk})"),
            Element::U32 => chunk.into(),
            Element::Bool | Element::U8 | Element::I8 => {
                format!("bytes_{}(select({chunk}.x, {chunk}.y, part == 1u))", self.suffix())
            }
        }
    }

    /// A chunk of the results `at` of all quads.
    fn chunk(&self, at: usize, computing: Computing, per_chunk: u64) -> String {
        let suffix = self.suffix();
        let quads = if per_chunk == 4 { 1 } else { 2 };
        let quad = |part: u64| format!("y[{part}].y{at}");
        // Values as they are packed: floating-point numbers, or the bits of integers.
        let cast = |part: u64| match (computing, self.dtype) {
            _ if part >= quads => match self.dtype.bytes() {
                2 => "vec4<f32>()".into(),
                _ => "vec4<u32>()".into(),
            },
            (Computing::F32, Element::F32 | Element::F16 | Element::BF16) => quad(part),
            (_, Element::F32) => format!("nearest_float({})", quad(part)),
            (_, Element::F16 | Element::BF16) => format!("float_for_rounding({})", quad(part)),
            (Computing::F32, _) => format!("cast_to_{suffix}({})", quad(part)),
            (_, Element::Bool) => format!("integers_to_bool({})", quad(part)),
            (_, _) => format!("bitcast<vec4<u32>>({})", quad(part)),
        };
        match self.dtype {
            Element::F32 => format!("bitcast<vec4<u32>>({})", cast(0)),
            Element::F16 | Element::BF16 => format!("pack_quads_{suffix}({}, {})", cast(0), cast(1)),
            Element::I32 | Element::U32 => cast(0),
            Element::Bool | Element::U8 | Element::I8 => {
                format!("vec4<u32>(packed_bytes({}), packed_bytes({}), 0u, 0u)", cast(0), cast(1))
            }
        }
    }
}

/// Lines of text.
struct Text(String);

impl Text {
    fn line(&mut self, line: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

/// What a text is made of.
pub(super) struct Generator<'g> {
    pub(super) program: &'g Program,
    pub(super) computing: Computing,
    /// In the order of the walk, outputs first.
    pub(super) tensors: &'g [Tensor],
    pub(super) sources: &'g [Tensor],
    /// Of each source how far apart the words of its seed are.
    pub(super) seed_strides: Vec<u32>,
    /// The number of extents, or none if all operands are dense or repeated.
    pub(super) rank: Option<usize>,
}

/// The text for chunks of so many elements.
pub(super) fn of(generator: &Generator<'_>, per_chunk: u64) -> String {
    let &Generator { program, computing, tensors: operands, sources, rank, .. } = generator;
    let (outputs, inputs) = operands.split_at(program.outputs());
    let tensors = &[operands, sources].concat()[..];
    let mut text = Text(String::with_capacity(8 << 10));
    text.line(format_args!("alias Values = vec4<{}>;", computing.name()));
    conversions(&mut text, operands);
    if let Some(rank) = rank {
        places(&mut text, tensors, rank);
    }
    let place = |tensor: &Tensor| place_of(tensor, tensors, rank);
    loads(&mut text, program, [inputs, sources], &place, &generator.seed_strides);
    evaluation(&mut text, (program, computing), [outputs, inputs], &sources_of(generator, &place), false);
    text.line("fn store(at: Places, y: array<Results, QUADS>) {");
    for (at, tensor) in outputs.iter().enumerate() {
        let (name, chunk) = (tensor.name, tensor.chunk(at, computing, per_chunk));
        let Place { first, step } = place_of(tensor, tensors, rank);
        match tensor.lie {
            Lie::Scattered => text.line(format_args!("    {name}_scatter({first}, {step}, at.count, {chunk});")),
            _ => text.line(format_args!("    {name}_store({first}, at.count, {chunk});")),
        }
    }
    text.line("}");
    // Declarations may come in any order.
    text.0.insert_str(0, &definitions(&text.0, &[]));
    text.0
}

/// The output of a reduction.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Output {
    /// Of an integer of 64 bits it has words.
    pub(in crate::ops) tensor: Tensor,
    /// Whether results are integers of two words, not floating-point numbers.
    pub(in crate::ops) is_whole: bool,
    /// Whether elements have two words.
    pub(in crate::ops) is_long: bool,
}

/// The text for the inputs of a reduction in chunks that lie along the innermost of `rank` extents, if there is a program to compute, and for the output, whose
/// elements along `output_rank` extents are stored one at a time, with what becomes of them before, if it is stored. `further`: functions that the files of the
/// reduction call.
pub(in crate::ops) fn of_reduction(
    computing: Computing,
    program: Option<&Program>,
    inputs: &[Tensor],
    output: Option<(Output, Option<&Program>)>,
    (rank, output_rank): (usize, usize),
    further: &[&'static str],
) -> String {
    let mut text = Text(String::with_capacity(4 << 10));
    text.line(format_args!("alias Values = vec4<{}>;", computing.name()));
    conversions(&mut text, &inputs.iter().copied().chain(output.map(|(output, _)| output.tensor)).collect::<Vec<_>>());
    if let Some(program) = program {
        places(&mut text, inputs, rank);
        loads(&mut text, program, [inputs, &[]], &|tensor| place_of(tensor, inputs, Some(rank)), &[]);
        evaluation(&mut text, (program, computing), [&[], inputs], &[], true);
    }
    text.line("fn place_of_output(position: u32) -> u32 {\n    var rest = position;\n    var at = 0u;");
    for axis in 0..output_rank {
        let at = format!("[{}].{}", axis / 4, ["x", "y", "z", "w"][axis % 4]);
        if axis + 1 == output_rank {
            text.line(format_args!("    at += rest * params.output_strides{at};"));
        } else {
            text.line(format_args!("    let outer{axis} = rest / params.output_extents{at};"));
            text.line(format_args!(
                "    at += (rest - outer{axis} * params.output_extents{at}) * params.output_strides{at};"
            ));
            text.line(format_args!("    rest = outer{axis};"));
        }
    }
    text.line("    return at;\n}\n");
    if let Some((Output { tensor, is_whole, is_long }, finish)) = output {
        let (name, suffix) = (tensor.name, tensor.suffix());
        if let Some(finish) = finish {
            text.line("fn finish(x0: Values) -> Values {");
            instructions(&mut text, (finish, computing), |_| true);
            text.line(format_args!("    return {};\n}}\n", value(computing, finish.results()[0])));
        }
        text.line("fn store_result(position: u32, held: Held, lane: u32) {");
        text.line("    let at = place_of_output(position);\n    let value = finished(held, lane);");
        let is_float = matches!(tensor.dtype, Element::F32 | Element::F16 | Element::BF16);
        if is_whole && is_float {
            // Both products are exact, so that the sum is the nearest number.
            text.line("    let number = f32(value.x >> 16u) * 65536.0 + f32(value.x & 0xffffu);");
        } else if finish.is_some() {
            // Compilers may merge the last operation of the result with those that follow.
            text.line("    let number = finish(rounded(value)).x;");
        } else if is_float {
            text.line("    let number = value.x;");
        }
        let bits = match tensor.dtype {
            Element::F32 => "bitcast<u32>(number)".to_string(),
            Element::F16 | Element::BF16 => format!("round_to_half_{suffix}(number)"),
            Element::I32 | Element::U32 => "value.x".into(),
            Element::Bool if finish.is_some() => "select(0u, 1u, number != 0.0)".into(),
            Element::Bool => "select(0u, 1u, (value.x | value.y) != 0u)".into(),
            Element::U8 | Element::I8 => "value.x & 0xffu".into(),
        };
        text.line(if is_long {
            format!("    {name}_scatter(2u * at, 1u, 2u, vec4<u32>(value, 0u, 0u));\n}}")
        } else {
            format!("    {name}_scatter(at, 1u, 1u, vec4<u32>({bits}, 0u, 0u, 0u));\n}}")
        });
    }
    text.0.insert_str(0, &definitions(&text.0, further));
    text.0
}

/// Expressions of where a chunk of an operand begins, and of the step from one element to the next.
struct Place {
    first: String,
    step: String,
}

fn place_of(tensor: &Tensor, tensors: &[Tensor], rank: Option<usize>) -> Place {
    if rank.is_none() {
        return Place { first: "at.first".into(), step: "1u".into() };
    }
    let moved = || tensors.iter().filter(|other| other.lie != Lie::Repeated);
    let at = moved().position(|other| other.name == tensor.name).unwrap_or_default();
    Place { first: format!("at.{}", tensor.name), step: format!("params.strides[VECTORS * {at}u].x") }
}

/// Functions of the 16-bit types that operands have: those of a type's file, under names that end in the type's, since a program may have both.
fn conversions(text: &mut Text, tensors: &[Tensor]) {
    for dtype in [Element::F16, Element::BF16] {
        let Some(tensor) = tensors.iter().find(|tensor| tensor.dtype == dtype) else { continue };
        let suffix = tensor.suffix();
        // "pack(" is also the end of "unpack(".
        let names = ["pack", "pack_quads", "round_to_half"];
        let renamed = names.iter().fold(file(dtype.file()).to_string(), |text, name| {
            text.replace(&format!("{name}("), &format!("{name}_{suffix}("))
        });
        text.line(renamed);
        text.line(format_args!("fn quad_{suffix}(chunk: vec4<u32>, part: u32) -> vec4<f32> {{"));
        text.line("    let words = select(chunk.xy, chunk.zw, part == 1u);");
        text.line(format_args!("    return vec4<f32>(unpack_{suffix}(words.x), unpack_{suffix}(words.y));"));
        text.line("}");
    }
}

/// Where chunks of operands with strides begin.
fn places(text: &mut Text, tensors: &[Tensor], rank: usize) {
    let moved = || tensors.iter().filter(|tensor| tensor.lie != Lie::Repeated).enumerate();
    text.line("struct Places {\n    count: u32,");
    for (_, tensor) in moved() {
        text.line(format_args!("    {}: u32,", tensor.name));
    }
    text.line("}\n\nfn places_of(chunk: u32) -> Places {\n    var at: Places;");
    let component = |axis: usize| ["x", "y", "z", "w"][axis % 4];
    for axis in 0..rank {
        let (vector, component) = (axis / 4, component(axis));
        let rest = if axis == 0 { "chunk".into() } else { format!("outer{}", axis - 1) };
        if axis + 1 == rank {
            text.line(format_args!("    let i{axis} = {rest};"));
        } else {
            let extent = format!("params.extents[{vector}].{component}");
            text.line(format_args!("    let outer{axis} = {rest} / {extent};"));
            text.line(format_args!("    let i{axis} = {rest} - outer{axis} * {extent};"));
        }
        if axis == 0 {
            text.line("    let first = i0 * ELEMENTS;\n    at.count = count_before(params.line, first);");
        }
        for (at, Tensor { name, lie, .. }) in moved() {
            match (axis, lie) {
                (0, Lie::Splat | Lie::Repeated) => {}
                (0, Lie::Run) => text.line(format_args!("    at.{name} = first;")),
                (0, Lie::Scattered) => {
                    text.line(format_args!("    at.{name} = first * params.strides[VECTORS * {at}u].x;"))
                }
                _ => text.line(format_args!(
                    "    at.{name} += i{axis} * params.strides[VECTORS * {at}u + {vector}u].{component};"
                )),
            }
        }
    }
    text.line("    return at;\n}\n");
}

/// The bits that inputs have in a chunk, and what loads them.
fn loads(
    text: &mut Text,
    program: &Program,
    [inputs, sources]: [&[Tensor]; 2],
    place: &dyn Fn(&Tensor) -> Place,
    seed_strides: &[u32],
) {
    let values = || inputs.iter().enumerate().filter(|(at, _)| !program.is_key(*at)).map(|(_, input)| input);
    let repeated = || values().filter(|input| input.lie == Lie::Repeated);
    let draws = || program.sources().iter().map(Source::draw).zip(sources).zip(seed_strides);
    let draws = || draws().filter_map(|((draw, source), stride)| Some((draw?, source.name, stride)));
    for Tensor { name, .. } in repeated() {
        text.line(format_args!("var<private> {name}_everywhere: Values;"));
    }
    for (_, name, _) in draws() {
        text.line(format_args!("var<private> {name}_key: vec4<u32>;"));
    }
    text.line("\nfn load_repeated() {");
    for input @ Tensor { name, .. } in repeated() {
        text.line(format_args!("    {name}_everywhere = {};", input.value(&format!("{name}_bits(0u)"))));
    }
    for (&Draw { seed, offset, stream, .. }, name, stride) in draws() {
        let (seed, offset) = (inputs[seed].name, inputs[offset].name);
        let words = format!("{seed}_bits(0u), {seed}_bits({stride}u), {offset}_bits(0u), {stream}u");
        text.line(format_args!("    {name}_key = vec4<u32>({words});"));
    }
    text.line("}\n\nstruct Loaded {\n    count: u32,");
    let moved = || values().filter(|input| input.lie != Lie::Repeated);
    let at_places = || sources.iter().filter(|source| source.lie != Lie::Repeated);
    for Tensor { name, .. } in at_places() {
        text.line(format_args!("    {name}: u32,"));
    }
    for Tensor { name, lie, .. } in moved() {
        let bits = if *lie == Lie::Splat { "u32" } else { "vec4<u32>" };
        text.line(format_args!("    {name}: {bits},"));
    }
    text.line("}\n\nfn load(at: Places) -> Loaded {\n    var x: Loaded;\n    x.count = at.count;");
    for input @ Tensor { name, lie, .. } in moved() {
        let Place { first, step } = place(input);
        text.line(match lie {
            Lie::Splat => format!("    x.{name} = {name}_bits({first});"),
            Lie::Scattered => format!("    x.{name} = {name}_gather({first}, {step}, at.count);"),
            Lie::Run | Lie::Repeated => format!("    x.{name} = {name}_load({first}, at.count);"),
        });
    }
    for source in at_places() {
        text.line(format_args!("    x.{} = {};", source.name, place(source).first));
    }
    text.line("    return x;\n}\n");
}

/// Lines of text for the positions of each source, called by its name, and its values.
fn sources_of(generator: &Generator<'_>, place: &dyn Fn(&Tensor) -> Place) -> Vec<[String; 2]> {
    let Generator { program, computing, sources, .. } = generator;
    let of = |(source, tensor): (&Source, &Tensor)| {
        let (name, step) = (tensor.name, place(tensor).step);
        let positions = match tensor.lie {
            Lie::Repeated => "vec4<u32>()".into(),
            Lie::Splat => format!("vec4<u32>(x.{name})"),
            Lie::Run => format!("vec4<u32>(x.{name} + 4u * part) + vec4<u32>(0u, 1u, 2u, 3u)"),
            Lie::Scattered => {
                format!("vec4<u32>(x.{name}) + (vec4<u32>(4u * part) + vec4<u32>(0u, 1u, 2u, 3u)) * {step}")
            }
        };
        let words = format!("random_words({name}, {name}_key)");
        let values = match source {
            Source::Index { .. } | Source::Count => format!("Values({name})"),
            Source::Random(Draw { kind, numbers, digits, .. }) => {
                let numbers = numbers.map(Literal::get);
                match kind {
                    Kind::Uniform => format!("random_uniform({words}, {digits}u)"),
                    Kind::Bernoulli => match threshold(numbers[0]).checked_sub(1) {
                        Some(last) => format!("random_bernoulli({words}, {last}u)"),
                        None => "Values()".into(),
                    },
                    Kind::RandInt => {
                        let below = match u32::try_from(range(numbers)) {
                            Ok(range) => format!("random_below({words}, {range}u)"),
                            // All words.
                            Err(_) => words,
                        };
                        format!("Values({below}) + {}", value(*computing, Argument::Literal(Literal::new(numbers[0]))))
                    }
                    Kind::Exponential => format!("random_exponential({words})"),
                    Kind::Normal => {
                        let [even, odd] = ["& vec4<u32>(~1u)", "| vec4<u32>(1u)"]
                            .map(|of| format!("random_words({name} {of}, {name}_key)"));
                        format!("random_normal({even}, {odd}, {name})")
                    }
                }
            }
        };
        [positions, values]
    };
    program.sources().iter().zip(*sources).map(of).collect()
}

/// The instructions. `is_used_further`: something is made of the results.
fn evaluation(
    text: &mut Text,
    (program, computing): (&Program, Computing),
    [outputs, inputs]: [&[Tensor]; 2],
    sources: &[[String; 2]],
    is_used_further: bool,
) {
    text.line("struct Results {");
    for at in 0..program.outputs() {
        text.line(format_args!("    y{at}: Values,"));
    }
    text.line("}\n\nfn evaluate(x: Loaded, part: u32) -> Results {");
    for (at, [positions, values]) in sources.iter().enumerate() {
        text.line(format_args!("    let s{at} = {positions};"));
        // Compilers may merge the last operation with those that follow.
        let values = if computing == Computing::F32 { format!("rounded({values})") } else { values.clone() };
        text.line(format_args!("    let s{at}_values = {values};"));
    }
    for (at, input @ Tensor { name, lie, .. }) in inputs.iter().enumerate().filter(|(at, _)| !program.is_key(*at)) {
        let value = match lie {
            Lie::Repeated => format!("{name}_everywhere"),
            Lie::Splat => input.value(&format!("x.{name}")),
            Lie::Run | Lie::Scattered => input.quad(&format!("x.{name}")),
        };
        text.line(format_args!("    let x{at} = {value};"));
    }
    // The sums by which a chunk of bf16 is tested for NaN are further operations as well.
    let is_summed = |result: Argument| {
        let mut all = program.results().iter().zip(outputs);
        all.any(|(&output, tensor)| output == result && tensor.dtype == Element::BF16)
    };
    instructions(text, (program, computing), |result| is_used_further || is_summed(result));
    let outputs: Vec<String> = program.results().iter().map(|&output| value(computing, output)).collect();
    text.line(format_args!("    return Results({});\n}}\n", outputs.join(", ")));
}

/// The instructions, one a line. `is_used`: whether something is made of a result besides what later instructions make of it.
fn instructions(text: &mut Text, (program, computing): (&Program, Computing), is_used: impl Fn(Argument) -> bool) {
    let instructions = program.instructions();
    for (at, Instruction { function, arguments }) in instructions.iter().enumerate() {
        let name = name_of(*function, computing);
        let arguments: Vec<String> = arguments.iter().map(|&argument| value(computing, argument)).collect();
        let call = format!("{name}({})", arguments.join(", "));
        // Compilers may merge an operation with those that follow.
        let result = Argument::Result(at);
        // Functions that say what is true compute no number that could be merged.
        let is_number = computing == Computing::F32 && !function.gives_bool();
        let is_used = is_used(result) || instructions.iter().any(|later| later.arguments.contains(&result));
        let call = if is_used && is_number { format!("rounded({call})") } else { call };
        text.line(format_args!("    let t{at} = {call};"));
    }
}

fn value(computing: Computing, argument: Argument) -> String {
    match argument {
        Argument::Input(at) => format!("x{at}"),
        Argument::Source(at) => format!("s{at}_values"),
        Argument::Result(at) => format!("t{at}"),
        Argument::Literal(literal) => match computing {
            Computing::F32 => format!("literal({:#010x}u)", single(literal.get()).to_bits()),
            // In two's complement.
            Computing::I32 | Computing::U32 => {
                let bits = whole(literal.get()).rem_euclid(1 << 32);
                format!("bitcast<Values>(vec4<u32>({bits:#010x}u))")
            }
        },
    }
}
