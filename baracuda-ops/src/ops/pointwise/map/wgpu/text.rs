//! The part of a shader's text that follows from the program and its operands: its functions, what is loaded and stored, and the instructions, one a line.

use std::fmt::Write;

use super::definitions::{definitions, definitions_with};
use crate::backend::wgpu::{ShaderType, file};
use crate::narrow::single;
use crate::ops::pointwise::program::{Argument, Instruction, Program};

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
    pub(in crate::ops) dtype: ShaderType,
    pub(in crate::ops) lie: Lie,
    pub(in crate::ops) is_output: bool,
}

impl Tensor {
    /// What functions of its type end in.
    fn suffix(&self) -> &'static str {
        match self.dtype {
            ShaderType::F32 => "f32",
            ShaderType::F16 => "f16",
            ShaderType::BF16 => "bf16",
        }
    }

    /// The value of one element, from its bits.
    fn value(&self, bits: &str) -> String {
        match self.dtype {
            ShaderType::F32 => format!("vec4<f32>(bitcast<f32>({bits}))"),
            _ => format!("vec4<f32>(unpack_{}({bits}).x)", self.suffix()),
        }
    }

    /// Four values of a chunk.
    fn quad(&self, chunk: &str) -> String {
        match self.dtype {
            ShaderType::F32 => format!("bitcast<vec4<f32>>({chunk})"),
            _ => format!("quad_{}({chunk}, part)", self.suffix()),
        }
    }

    /// A chunk of the results `at` of all quads.
    fn chunk(&self, at: usize, per_chunk: u64) -> String {
        match (self.dtype, per_chunk) {
            (ShaderType::F32, _) => format!("bitcast<vec4<u32>>(y[0].y{at})"),
            (_, 4) => format!("pack_quads_{}(y[0].y{at}, vec4<f32>())", self.suffix()),
            _ => format!("pack_quads_{}(y[0].y{at}, y[1].y{at})", self.suffix()),
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

/// The text for operands in the order of the walk, outputs first, and chunks of so many elements. `rank`: the number of extents, or none if all operands are
/// dense or repeated.
pub(super) fn of(program: &Program, tensors: &[Tensor], rank: Option<usize>, per_chunk: u64) -> String {
    let (outputs, inputs) = tensors.split_at(program.outputs());
    let mut text = Text(String::with_capacity(8 << 10));
    text.0.push_str(&definitions(program));
    conversions(&mut text, tensors);
    if let Some(rank) = rank {
        places(&mut text, tensors, rank);
    }
    loads(&mut text, inputs, &|tensor| place_of(tensor, tensors, rank));
    evaluation(&mut text, program, [outputs, inputs], false);
    text.line("fn store(at: Places, y: array<Results, QUADS>) {");
    for (at, tensor) in outputs.iter().enumerate() {
        let (name, chunk) = (tensor.name, tensor.chunk(at, per_chunk));
        let Place { first, step } = place_of(tensor, tensors, rank);
        match tensor.lie {
            Lie::Scattered => text.line(format_args!("    {name}_scatter({first}, {step}, at.count, {chunk});")),
            _ => text.line(format_args!("    {name}_store({first}, at.count, {chunk});")),
        }
    }
    text.line("}");
    text.0
}

/// The text for the inputs of a reduction in chunks that lie along the innermost of `rank` extents, if there is a program to compute, and for the output, whose
/// elements along `output_rank` extents are stored one at a time, if it is stored.
pub(in crate::ops) fn of_reduction(
    program: Option<&Program>,
    inputs: &[Tensor],
    output: Option<Tensor>,
    (rank, output_rank): (usize, usize),
) -> String {
    let mut text = Text(String::with_capacity(4 << 10));
    // What `reduce.wgsl` calls besides.
    text.0.push_str(&definitions_with(program, &["f_div", "f_sqrt", "literal", "rounded"]));
    conversions(&mut text, &inputs.iter().copied().chain(output).collect::<Vec<_>>());
    if let Some(program) = program {
        places(&mut text, inputs, rank);
        loads(&mut text, inputs, &|tensor| place_of(tensor, inputs, Some(rank)));
        evaluation(&mut text, program, [&[], inputs], true);
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
    if let Some(output) = output {
        let (name, suffix) = (output.name, output.suffix());
        let bits = match output.dtype {
            ShaderType::F32 => "bitcast<vec4<u32>>(value)".to_string(),
            _ => format!("vec4<u32>(round_to_half_{suffix}(value.x), 0u, 0u, 0u)"),
        };
        text.line("fn store_result(position: u32, total: f32) {\n    let value = finished(total);");
        text.line(format_args!("    {name}_scatter(place_of_output(position), 1u, 1u, {bits});\n}}"));
    }
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
    for dtype in [ShaderType::F16, ShaderType::BF16] {
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
fn loads(text: &mut Text, inputs: &[Tensor], place: &dyn Fn(&Tensor) -> Place) {
    let repeated = || inputs.iter().filter(|input| input.lie == Lie::Repeated);
    for Tensor { name, .. } in repeated() {
        text.line(format_args!("var<private> {name}_everywhere: vec4<f32>;"));
    }
    text.line("\nfn load_repeated() {");
    for input @ Tensor { name, .. } in repeated() {
        text.line(format_args!("    {name}_everywhere = {};", input.value(&format!("{name}_bits(0u)"))));
    }
    text.line("}\n\nstruct Loaded {\n    count: u32,");
    let moved = || inputs.iter().filter(|input| input.lie != Lie::Repeated);
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
    text.line("    return x;\n}\n");
}

/// The instructions. `is_used_further`: something is made of the results.
fn evaluation(text: &mut Text, program: &Program, [outputs, inputs]: [&[Tensor]; 2], is_used_further: bool) {
    text.line("struct Results {");
    for at in 0..program.outputs() {
        text.line(format_args!("    y{at}: vec4<f32>,"));
    }
    text.line("}\n\nfn evaluate(x: Loaded, part: u32) -> Results {");
    for (at, input @ Tensor { name, lie, .. }) in inputs.iter().enumerate() {
        let value = match lie {
            Lie::Repeated => format!("{name}_everywhere"),
            Lie::Splat => input.value(&format!("x.{name}")),
            Lie::Run | Lie::Scattered => input.quad(&format!("x.{name}")),
        };
        text.line(format_args!("    let x{at} = {value};"));
    }
    let instructions = program.instructions();
    for (at, Instruction { function, arguments }) in instructions.iter().enumerate() {
        let name = function.name();
        let arguments: Vec<String> = arguments.iter().map(|&argument| value(argument)).collect();
        let call = format!("f_{name}({})", arguments.join(", "));
        // Compilers may merge an operation with those that follow, also with the sums by which a chunk of bf16 is tested for NaN.
        let result = Argument::Result(at);
        let is_used = is_used_further
            || instructions.iter().any(|later| later.arguments.contains(&result))
            || program
                .results()
                .iter()
                .zip(outputs)
                .any(|(&output, tensor)| output == result && tensor.dtype == ShaderType::BF16);
        let call = if is_used { format!("rounded({call})") } else { call };
        text.line(format_args!("    let t{at} = {call};"));
    }
    let outputs: Vec<String> = program.results().iter().map(|&output| value(output)).collect();
    text.line(format_args!("    return Results({});\n}}\n", outputs.join(", ")));
}

fn value(argument: Argument) -> String {
    match argument {
        Argument::Input(at) => format!("x{at}"),
        Argument::Result(at) => format!("t{at}"),
        Argument::Literal(literal) => format!("literal({:#010x}u)", single(literal.get()).to_bits()),
    }
}
