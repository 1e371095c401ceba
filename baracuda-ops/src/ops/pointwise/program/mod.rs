//! Programs: pure functions of the elements at one position, as data.
//!
//! A program has inputs, instructions in an order in which each needs only what is before it, and outputs. An instruction is a [`Function`] of
//! inputs, of earlier results, and of numbers. Programs have no types: those of the operands give them. f64 computes in f64, the other floating-point
//! types in f32, mixed freely; i32, u8 and i8 in i32, u32 and i64 in their own. Results of comparisons are of type Bool, as inputs may be beside any of
//! these. Nothing is rounded between instructions but to the computing type; a result is rounded once more, to the type of its
//! output. A number takes the computing type, too.
//!
//! ```
//! use baracuda_ops::Program;
//! // A gated linear unit: z = x sigmoid(x) y.
//! let program: Program = serde_json::from_str(
//!     r#"{"inputs": ["x", "y"], "let": [["s", "sigmoid", "x"], ["t", "mul", "x", "s"], ["z", "mul", "t", "y"]], "outputs": ["z"]}"#,
//! )
//! .unwrap();
//! assert_eq!((program.inputs(), program.outputs()), (2, 1));
//! ```
//!
//! In JSON numbers stand for themselves; `"inf"`, `"-inf"` and `"nan"` are the others, which no value is named. They are held as f64: programs of integers
//! refuse whole numbers that it does not have, beyond 2^53. Names are the program's own: they do
//! not count for equality.

pub(in crate::ops) mod activations;
mod builder;
#[cfg_attr(test, expect(clippy::approx_constant, reason = "expected values are the digits of a table"))]
mod double;
mod functions;
mod gradient;
mod incomplete;
mod integers;
mod lanes;
#[expect(
    clippy::excessive_precision,
    clippy::approx_constant,
    reason = "coefficients of polynomials are as they were fitted"
)]
mod single;
mod source;

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use builder::{ProgramBuilder, Term};
#[cfg(feature = "cuda")]
pub(crate) use functions::Cost;
pub use functions::Function;
pub(crate) use gradient::{Made, Origin, Refused, Through};
pub(crate) use lanes::Lane;
pub(in crate::ops) use lanes::{exp, fma, tanh};
pub(in crate::ops) use single::pow;
pub use source::Distribution;
pub(crate) use source::{Draw, Kind, Source, Stream};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use source::{range, threshold};

use crate::backend::cpu::rounded;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::json::{Object, Whole};
use crate::narrow::whole;
use crate::tensor::TensorDesc;

/// A function of the elements at one position. See the [module](self).
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<Json>", into = "Json")]
pub struct Program(Arc<Parts>);

#[derive(PartialEq, Eq, Hash)]
struct Parts {
    names: Names,
    inputs: usize,
    /// In the order of their places.
    sources: Vec<Source>,
    instructions: Vec<Instruction>,
    outputs: Vec<Argument>,
}

/// One function at work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Instruction {
    pub(crate) function: Function,
    /// As many as the function has.
    pub(crate) arguments: Vec<Argument>,
}

impl Instruction {
    /// The numbers among its arguments.
    fn literals(&self) -> impl Iterator<Item = Literal> {
        self.arguments.iter().filter_map(|argument| match argument {
            Argument::Literal(literal) => Some(*literal),
            _ => None,
        })
    }
}

/// What an instruction takes, and what an output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Argument {
    /// An input, by its place.
    Input(usize),
    /// A source, by its place.
    Source(usize),
    /// The result of an instruction, by its place.
    Result(usize),
    /// A number.
    Literal(Literal),
}

#[cfg(feature = "cuda")]
impl Argument {
    /// The place of the input that it is.
    pub(crate) const fn input(&self) -> Option<usize> {
        match *self {
            Self::Input(at) => Some(at),
            Self::Source(_) | Self::Result(_) | Self::Literal(_) => None,
        }
    }
}

/// A number; there is one NaN, and -0 is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Literal(u64);

impl Literal {
    pub(crate) const ZERO: Self = Self(0);

    pub(crate) fn new(value: f64) -> Self {
        Self(if value.is_nan() { f64::NAN } else { value }.to_bits())
    }

    pub(crate) const fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// What inputs and results are called; results that have no name are numbered.
#[derive(Clone, Debug, Default)]
struct Names {
    inputs: Vec<String>,
    sources: Vec<String>,
    results: Vec<String>,
    /// The first whole number of the JSON that f64 does not have: floating-point types compute with the nearest one, integers cannot.
    inexact: Option<i128>,
}

/// Names do not count.
impl PartialEq for Names {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Names {}

impl Hash for Names {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Names of numbers, which no value has.
const NUMBERS: [(&str, f64); 3] = [("inf", f64::INFINITY), ("-inf", f64::NEG_INFINITY), ("nan", f64::NAN)];

impl Program {
    /// The most inputs.
    pub const MAX_INPUTS: usize = 16;
    /// The most outputs.
    pub const MAX_OUTPUTS: usize = 8;
    /// The most instructions.
    pub const MAX_INSTRUCTIONS: usize = 64;
    /// The most different numbers.
    pub const MAX_NUMBERS: usize = 128;
    /// The most sources: positions and random numbers.
    pub const MAX_SOURCES: usize = 4;
    /// The most different numbers of a program with sources.
    pub const MAX_NUMBERS_BESIDE_SOURCES: usize = 64;

    /// A program in the making.
    pub fn builder() -> ProgramBuilder {
        ProgramBuilder::default()
    }

    /// The program of one function of as many inputs as it has arguments.
    pub fn of(function: Function) -> Self {
        let instruction = Instruction { function, arguments: (0..function.arity()).map(Argument::Input).collect() };
        let names = ["x", "y", "z"].iter().take(function.arity()).map(|name| (*name).to_string()).collect();
        let names = Names { inputs: names, ..Names::default() };
        let (instructions, outputs) = (vec![instruction], vec![Argument::Result(0)]);
        Self(Arc::new(Parts { names, inputs: function.arity(), sources: Vec::new(), instructions, outputs }))
    }

    /// The program that returns its input.
    pub(crate) fn identity() -> Self {
        let names = Names { inputs: vec!["x".into()], ..Names::default() };
        let (sources, instructions) = (Vec::new(), Vec::new());
        Self(Arc::new(Parts { names, inputs: 1, sources, instructions, outputs: vec![Argument::Input(0)] }))
    }

    /// Whether it returns its input and nothing else.
    pub(crate) fn is_identity(&self) -> bool {
        self.inputs() == 1 && *self.results() == [Argument::Input(0)]
    }

    /// With outputs that are divided by a count.
    ///
    /// # Errors
    /// It has too many instructions then.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a literal is rounded to the computing type, which holds fewer digits"
    )]
    pub(crate) fn divided(&self, by: u64) -> Result<Self> {
        let count = Argument::Literal(Literal::new(by as f64));
        let (mut instructions, mut outputs) = (self.instructions().to_vec(), Vec::new());
        for &output in self.results() {
            outputs.push(Argument::Result(instructions.len()));
            instructions.push(Instruction { function: Function::Div, arguments: vec![output, count] });
        }
        let names = Names { results: Vec::new(), ..self.0.names.clone() };
        Self::checked(names, self.sources().to_vec(), instructions, outputs)
    }

    /// The number of inputs.
    pub fn inputs(&self) -> usize {
        self.0.inputs
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.0.outputs.len()
    }

    /// What it has in place of further inputs.
    pub(crate) fn sources(&self) -> &[Source] {
        &self.0.sources
    }

    /// Whether an input is the seed or the offset of a source; the others have a value at each position.
    pub(crate) fn is_key(&self, input: usize) -> bool {
        self.sources().iter().any(|source| source.keys().any(|key| key == input))
    }

    /// The program with as many other sources.
    fn with_sources(&self, sources: Vec<Source>) -> Self {
        let Parts { names, inputs, instructions, outputs, .. } = &*self.0;
        let (names, instructions, outputs) = (names.clone(), instructions.clone(), outputs.clone());
        Self(Arc::new(Parts { names, inputs: *inputs, sources, instructions, outputs }))
    }

    /// The program in which functions that depend on the types of their operands have the numbers that say them as last arguments; its inputs have these
    /// types.
    pub(crate) fn typed(&self, inputs: &[DType], computing: DType) -> Self {
        self.with_instructions(|Instruction { function, arguments }| {
            let mut arguments = arguments.clone();
            let Some(of_type) = function.row().of_type else { return arguments };
            arguments.truncate(function.arity());
            let dtype = self.type_of_operands(&arguments, inputs, computing);
            if *function == Function::NextAfter {
                let round = |argument: &mut Argument| {
                    if let Argument::Literal(literal) = argument {
                        *literal = Literal::new(rounded(dtype, literal.get()));
                    }
                };
                arguments.iter_mut().for_each(round);
            }
            arguments.push(Argument::Literal(Literal::new(of_type(dtype))));
            arguments
        })
    }

    /// The program without the numbers that [`typed`](Self::typed) adds.
    pub(crate) fn untyped(&self) -> Self {
        self.with_instructions(|Instruction { function, arguments }| arguments[..function.arity()].to_vec())
    }

    /// The program with other arguments of those functions that depend on types.
    fn with_instructions(&self, arguments_of: impl Fn(&Instruction) -> Vec<Argument>) -> Self {
        if self.instructions().iter().all(|instruction| instruction.function.row().of_type.is_none()) {
            return self.clone();
        }
        let Parts { names, inputs, sources, outputs, .. } = &*self.0;
        let of = |instruction: &Instruction| Instruction {
            function: instruction.function,
            arguments: arguments_of(instruction),
        };
        let instructions = self.instructions().iter().map(of).collect();
        let (names, sources, outputs) = (names.clone(), sources.clone(), outputs.clone());
        Self(Arc::new(Parts { names, inputs: *inputs, sources, instructions, outputs }))
    }

    /// The type of the first argument that is no number: of an input its own, of others the one in which the program computes.
    fn type_of_operands(&self, arguments: &[Argument], inputs: &[DType], computing: DType) -> DType {
        let operand = arguments.iter().find(|argument| !matches!(argument, Argument::Literal(_)));
        match operand {
            Some(&Argument::Input(at)) => inputs[at],
            _ => computing,
        }
    }

    pub(crate) fn instructions(&self) -> &[Instruction] {
        &self.0.instructions
    }

    /// What the outputs are: inputs or results.
    pub(crate) fn results(&self) -> &[Argument] {
        &self.0.outputs
    }

    /// The outputs of one position, in f64, which the reference computes; `inputs` are followed by the sources, `number` brings a literal into the computing
    /// type.
    pub(crate) fn evaluate(&self, inputs: &[f64], number: fn(f64) -> f64, outputs: &mut [f64]) {
        let mut results = [0.0; Self::MAX_INSTRUCTIONS];
        let value = |results: &[f64], argument: Argument| match argument {
            Argument::Input(at) => inputs[at],
            Argument::Source(at) => inputs[self.inputs() + at],
            Argument::Result(at) => results[at],
            Argument::Literal(literal) => number(literal.get()),
        };
        for (at, Instruction { function, arguments }) in self.instructions().iter().enumerate() {
            let mut given = [0.0; 3];
            for (given, argument) in given.iter_mut().zip(arguments) {
                *given = value(&results, *argument);
            }
            results[at] = function.value(given);
        }
        for (output, argument) in outputs.iter_mut().zip(self.results()) {
            *output = value(&results, *argument);
        }
    }

    /// As [`evaluate`](Self::evaluate), of integers of the computing type, of which a Bool is 0 or 1.
    pub(crate) fn evaluate_integers(&self, inputs: &[i64], computing: DType, outputs: &mut [i64]) {
        let mut results = [0; Self::MAX_INSTRUCTIONS];
        let value = |results: &[i64], argument: Argument| match argument {
            Argument::Input(at) => inputs[at],
            Argument::Source(at) => inputs[self.inputs() + at],
            Argument::Result(at) => results[at],
            Argument::Literal(literal) => whole(literal.get()),
        };
        for (at, Instruction { function, arguments }) in self.instructions().iter().enumerate() {
            let mut given = [0; 3];
            for (given, argument) in given.iter_mut().zip(arguments) {
                *given = value(&results, *argument);
            }
            results[at] = integers::value(*function, computing, given);
        }
        for (output, argument) in outputs.iter_mut().zip(self.results()) {
            *output = value(&results, *argument);
        }
    }

    /// The program that makes something else of the value of its one output and of `further` inputs.
    ///
    /// # Errors
    /// It has too many inputs or instructions.
    pub(crate) fn with(&self, further: usize, of: impl Fn(&mut ProgramBuilder, Term, &[Term]) -> Term) -> Result<Self> {
        let mut b = ProgramBuilder::default();
        let inputs: Vec<Term> = (0..self.inputs()).map(|at| b.input(self.name(Argument::Input(at)))).collect();
        let further: Vec<Term> = (0..further).map(|at| b.input(format!("of{at}"))).collect();
        let mut results: Vec<Term> = Vec::with_capacity(self.instructions().len());
        let sources: Vec<Term> = self.sources().iter().map(|&source| b.source(source)).collect();
        let term = |results: &[Term], argument: &Argument| match *argument {
            Argument::Input(at) => inputs[at],
            Argument::Source(at) => sources[at],
            Argument::Result(at) => results[at],
            literal @ Argument::Literal(_) => Term(literal),
        };
        for Instruction { function, arguments } in self.instructions() {
            let arguments: Vec<Term> = arguments.iter().map(|argument| term(&results, argument)).collect();
            results.push(b.call(*function, arguments));
        }
        let value = term(&results, &self.results()[0]);
        let output = of(&mut b, value, &further);
        b.finish([output])
    }

    /// Whether each output is of type Bool, if each input is or is not.
    pub(crate) fn bools(&self, is_bool: &[bool]) -> Vec<bool> {
        let is_bool = |output: &Argument| match *output {
            Argument::Input(at) => is_bool.get(at).copied().unwrap_or_default(),
            Argument::Source(at) => self.sources()[at].gives_bool(),
            Argument::Result(at) => self.instructions()[at].function.gives_bool(),
            Argument::Literal(_) => false,
        };
        self.results().iter().map(is_bool).collect()
    }

    /// Refuses functions of arguments of another type: of Bool where they take numbers, or the other way round, or of numbers that they are not computed of.
    pub(crate) fn check_types(&self, op: &'static str, inputs: &[DType], computing: DType) -> Result<()> {
        let refused = |rule: String| Err(Error::InvalidDescriptor { op, field: "program", rule });
        for (at, Instruction { function, arguments }) in self.instructions().iter().enumerate() {
            let name = function.name();
            if !function.computes_in(computing) {
                let takes = if computing.is_float() { "integers" } else { "floating-point numbers" };
                return refused(format!(
                    "instruction {at}, {name}, is a function of {takes}; the program computes in {computing}"
                ));
            }
            for (place, argument) in arguments.iter().enumerate() {
                let takes_bool = function.takes_bool(place);
                let is_bool = match *argument {
                    Argument::Input(input) => inputs[input] == DType::Bool,
                    Argument::Source(source) => self.sources()[source].gives_bool(),
                    Argument::Result(result) => self.instructions()[result].function.gives_bool(),
                    Argument::Literal(literal) if takes_bool => {
                        if ![0.0, 1.0].contains(&literal.get()) {
                            let got = literal.get();
                            return refused(format!(
                                "instruction {at}, {name}, argument {place}: a number that stands for a bool is 0 or 1, got {got}"
                            ));
                        }
                        continue;
                    }
                    Argument::Literal(_) => continue,
                };
                if is_bool != takes_bool {
                    let (value, place) = (self.name(*argument), format!("instruction {at}, {name}, argument {place}"));
                    return refused(if takes_bool {
                        format!(
                            "{place}: must be bool, {value} is a number of {computing}; ne with 0 makes a bool of it"
                        )
                    } else {
                        format!(
                            "{place}: must be a number of {computing}, {value} is bool; where with 1 and 0 makes a number of it"
                        )
                    });
                }
            }
            if *function == Function::NextAfter {
                self.check_one_type(arguments, inputs, computing).map_err(|rule| {
                    let rule = format!("instruction {at}, {name}, {rule}");
                    Error::InvalidDescriptor { op, field: "program", rule }
                })?;
            }
        }
        Ok(())
    }

    /// Requires that all arguments that are no numbers are of one type, of which there is a next number.
    fn check_one_type(&self, arguments: &[Argument], inputs: &[DType], computing: DType) -> Result<(), String> {
        let dtype = self.type_of_operands(arguments, inputs, computing);
        if matches!(dtype, DType::F8E4M3 | DType::F8E5M2) {
            return Err(format!("takes f64, f32, f16 and bf16, got {dtype}; cast it first"));
        }
        for argument in arguments.iter().filter(|argument| !matches!(argument, Argument::Literal(_))) {
            let other = self.type_of_operands(&[*argument], inputs, computing);
            if other != dtype {
                let name = self.name(*argument);
                return Err(format!(
                    "takes operands of one type: {name} is {other} beside {dtype}; cast one of them first"
                ));
            }
        }
        Ok(())
    }

    /// A program whose arguments are inputs, earlier results and numbers.
    fn checked(
        names: Names,
        sources: Vec<Source>,
        mut instructions: Vec<Instruction>,
        outputs: Vec<Argument>,
    ) -> Result<Self> {
        let is_typed = |instruction: &&mut Instruction| instruction.function.row().of_type.is_some();
        let mut types = 0;
        for Instruction { function, arguments } in instructions.iter_mut().filter(is_typed) {
            // Instructions of a typed program say the type.
            if arguments.len() == function.arity() + 1 {
                arguments.pop();
            }
            types += 1;
        }
        let inputs = names.inputs.len();
        bounded("inputs", inputs, 0..=Self::MAX_INPUTS)?;
        require("let", sources.len() <= Self::MAX_SOURCES, || {
            format!("must have at most {} sources, got {}", Self::MAX_SOURCES, sources.len())
        })?;
        Self::check_sources(&names, &sources, &instructions, &outputs)?;
        bounded("outputs", outputs.len(), 1..=Self::MAX_OUTPUTS)?;
        bounded("let", instructions.len(), 0..=Self::MAX_INSTRUCTIONS)?;
        for (at, name) in names.inputs.iter().enumerate() {
            let is_number = NUMBERS.iter().any(|(number, _)| number == name);
            require("inputs", !is_number, || format!("{name:?} is a number and names no input"))?;
            require("inputs", !names.inputs[..at].contains(name), || format!("{name:?} names two inputs"))?;
        }
        for (at, Instruction { function, arguments }) in instructions.iter().enumerate() {
            let (name, arity) = (function.name(), function.arity());
            require("let", arguments.len() == arity, || {
                format!("instruction {at}, {name}, takes {arity} arguments, got {}", arguments.len())
            })?;
            for argument in arguments {
                let is_known = match *argument {
                    Argument::Input(input) => input < inputs,
                    Argument::Source(source) => source < sources.len(),
                    Argument::Result(result) => result < at,
                    Argument::Literal(_) => true,
                };
                require("let", is_known, || {
                    format!("instruction {at}, {name}, takes what no input and no earlier one is")
                })?;
            }
        }
        let mut numbers: Vec<Literal> = instructions.iter().flat_map(Instruction::literals).collect();
        numbers.sort_unstable_by_key(|literal| literal.0);
        numbers.dedup();
        let most = if sources.is_empty() { Self::MAX_NUMBERS } else { Self::MAX_NUMBERS_BESIDE_SOURCES };
        let count = numbers.len() + types;
        require("let", count <= most, || {
            let beside = if sources.is_empty() { "" } else { " beside sources" };
            let types = if types == 0 { "" } else { ", with one for each function that depends on a type" };
            format!("has {count} different numbers{types}, at most {most} are possible{beside}")
        })?;
        for (at, output) in outputs.iter().enumerate() {
            let is_known = match *output {
                Argument::Input(input) => input < inputs,
                Argument::Source(source) => source < sources.len(),
                Argument::Result(result) => result < instructions.len(),
                Argument::Literal(_) => false,
            };
            require("outputs", is_known, || format!("output {at} must be an input or a result"))?;
        }
        Ok(Self(Arc::new(Parts { names, inputs, sources, instructions, outputs })))
    }

    /// Refuses sources of numbers that they do not have, and inputs that are a seed or an offset and something else.
    fn check_sources(
        names: &Names,
        sources: &[Source],
        instructions: &[Instruction],
        outputs: &[Argument],
    ) -> Result<()> {
        let used = || instructions.iter().flat_map(|instruction| &instruction.arguments).chain(outputs);
        for (at, source) in sources.iter().enumerate() {
            source.check().map_err(|rule| source::refused("program", "let", at, source, &rule))?;
            let Some(draw) = source.draw() else { continue };
            for (key, is_other, what) in [
                (draw.seed, sources.iter().filter_map(Source::draw).any(|other| other.offset == draw.seed), "seed"),
                (draw.offset, false, "offset"),
            ] {
                let Some(name) = names.inputs.get(key) else {
                    return Err(source::refused("program", "let", at, source, &format!("its {what} is no input")));
                };
                let is_value = used().any(|argument| *argument == Argument::Input(key));
                require("let", !is_value && !is_other, || {
                    format!("source {at}, {}: its {what}, {name:?}, must be nothing else", source.name())
                })?;
            }
        }
        Ok(())
    }

    /// Refuses sources that the computing type does not hold, axes that the outputs do not have, and other seeds and offsets than U32[2] and U32[].
    pub(crate) fn check_positions(
        &self,
        op: &'static str,
        computing: DType,
        dims: &[u64],
        inputs: &[TensorDesc],
    ) -> Result<()> {
        for (at, source) in self.sources().iter().enumerate() {
            let refused = |rule: &str| source::refused(op, "program", at, source, rule);
            source.check_type(computing, dims).map_err(|rule| refused(&rule))?;
            let Some(draw) = source.draw() else { continue };
            for (key, wanted, what) in [(draw.seed, &[2][..], "seed"), (draw.offset, &[], "offset")] {
                let input = &inputs[key];
                if input.dtype() != DType::U32 || input.dims() != wanted {
                    let (name, dtype, dims) = (self.name(Argument::Input(key)), input.dtype(), input.dims());
                    return Err(refused(&format!("its {what}, {name}, must be u32 {wanted:?}, got {dtype} {dims:?}")));
                }
            }
        }
        Ok(())
    }

    /// Refuses numbers that the computing type does not have: they would be infinite, or no integers.
    pub(crate) fn check_literals(&self, op: &'static str, computing: DType) -> Result<()> {
        let literals = self.instructions().iter().flat_map(Instruction::literals).map(Literal::get);
        let range = match computing {
            DType::I32 => Some((f64::from(i32::MIN), f64::from(i32::MAX))),
            DType::U32 => Some((0.0, f64::from(u32::MAX))),
            // The greatest number below 2^63.
            DType::I64 => Some((-(2f64.powi(63)), 2f64.powi(63).next_down())),
            _ => None,
        };
        if let (Some(_), Some(number)) = (range, self.0.names.inexact) {
            let rule = format!(
                "the number {number} is none of a program, which holds numbers as f64: beyond 2^53 not every whole one; pass it as an input"
            );
            return Err(Error::InvalidDescriptor { op, field: "program", rule });
        }
        for literal in literals {
            let rule = match range {
                None if literal.is_finite() && !rounded(computing, literal).is_finite() => {
                    format!("the number {literal:e} is beyond the range of {computing}, in which the program computes")
                }
                Some((least, most)) if literal.fract() != 0.0 || !(least..=most).contains(&literal) => {
                    // All digits of whole numbers: `{}` ends the shortest that tell them from their neighbours in zeros.
                    let number = if literal.fract() == 0.0 { format!("{literal:.0}") } else { literal.to_string() };
                    format!(
                        "the number {number} is none of {computing}, in which the program computes: whole, from {least:.0} to {most:.0}"
                    )
                }
                _ => continue,
            };
            return Err(Error::InvalidDescriptor { op, field: "program", rule });
        }
        Ok(())
    }

    /// What a value is called.
    fn name(&self, argument: Argument) -> String {
        let Names { inputs, sources, results, .. } = &self.0.names;
        match argument {
            Argument::Input(at) => inputs[at].clone(),
            Argument::Source(at) => {
                sources.get(at).cloned().unwrap_or_else(|| format!("{}{at}", free_prefix("s", inputs)))
            }
            Argument::Result(at) => {
                results.get(at).cloned().unwrap_or_else(|| format!("{}{at}", free_prefix("t", inputs)))
            }
            Argument::Literal(literal) => literal.get().to_string(),
        }
    }
}

/// A letter, so often that no input's name begins with it.
fn free_prefix(letter: &str, inputs: &[String]) -> String {
    let mut prefix = letter.to_string();
    while inputs.iter().any(|name| name.starts_with(&prefix)) {
        prefix.push_str(letter);
    }
    prefix
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).unwrap_or_default())
    }
}

fn require(field: &'static str, holds: bool, rule: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::InvalidDescriptor { op: "program", field, rule: rule() }) }
}

fn bounded(field: &'static str, count: usize, allowed: std::ops::RangeInclusive<usize>) -> Result<()> {
    let (least, most) = (allowed.start(), allowed.end());
    require(field, allowed.contains(&count), || format!("must be {least} to {most}, got {count}"))
}

/// What a program is serialised as.
#[derive(Serialize, Deserialize)]
#[serde(
    expecting = "a program such as {\"inputs\": [\"x\"], \"let\": [[\"y\", \"exp\", \"x\"]], \"outputs\": [\"y\"]}",
    deny_unknown_fields
)]
struct Json {
    inputs: Vec<String>,
    /// Of each instruction the name of its result, the function, its arguments.
    #[serde(rename = "let", default)]
    instructions: Vec<Vec<Word>>,
    outputs: Vec<String>,
}

/// A word of an instruction.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "a name or a number")]
enum Word {
    Name(String),
    Whole(Whole),
    Number(f64),
}

impl Word {
    /// The number, of whole numbers the nearest one of f64, or else the name.
    fn number(&self) -> Result<f64, &str> {
        match self {
            Self::Name(name) => Err(name),
            Self::Whole(number) => Ok(number.nearest()),
            Self::Number(number) => Ok(*number),
        }
    }
}

impl TryFrom<Object<Json>> for Program {
    type Error = Error;

    fn try_from(Object(Json { inputs, instructions, outputs }): Object<Json>) -> Result<Self> {
        bounded("inputs", inputs.len(), 0..=Self::MAX_INPUTS)?;
        let is_of_source = |words: &&Vec<Word>| matches!(words.get(1), Some(Word::Name(name)) if is_source(name));
        let count = instructions.iter().filter(|words| !is_of_source(words)).count();
        bounded("let", count, 0..=Self::MAX_INSTRUCTIONS)?;
        require("let", instructions.len() - count <= Self::MAX_SOURCES, || {
            format!("must have at most {} sources, got {}", Self::MAX_SOURCES, instructions.len() - count)
        })?;
        let mut known: HashMap<String, Argument> = HashMap::new();
        let add = |known: &mut HashMap<String, Argument>, field, name: &str, argument| {
            let is_number = NUMBERS.iter().any(|(number, _)| *number == name);
            require(field, !is_number, || format!("{name:?} is a number and names no value"))?;
            let before = known.insert(name.into(), argument);
            require(field, before.is_none(), || format!("{name:?} names two values"))
        };
        for (at, name) in inputs.iter().enumerate() {
            add(&mut known, "inputs", name, Argument::Input(at))?;
        }
        let (mut names, mut sources) = (Names::default(), Vec::new());
        let mut results = Vec::with_capacity(instructions.len());
        let mut checked = Vec::with_capacity(instructions.len());
        for (at, words) in instructions.into_iter().enumerate() {
            let [Word::Name(result), Word::Name(function), given @ ..] = &words[..] else {
                let rule = format!("instruction {at} must be the name of its result, a function, and its arguments");
                return Err(Error::InvalidDescriptor { op: "program", field: "let", rule });
            };
            if is_source(function) {
                add(&mut known, "let", result, Argument::Source(sources.len()))?;
                names.sources.push(result.clone());
                let given: Vec<_> = given.iter().map(Word::number).collect();
                sources.push(read_source(function, &given, &inputs).map_err(|rule| {
                    let rule = format!("instruction {at}, {function}: {rule}");
                    Error::InvalidDescriptor { op: "program", field: "let", rule }
                })?);
                continue;
            }
            let found = Function::ALL.into_iter().find(|known| known.name() == function);
            let unknown = || {
                let known: Vec<_> = Function::ALL.iter().map(|known| known.name()).collect();
                let rule =
                    format!("instruction {at}: no function is named {function:?}; there are {}", known.join(", "));
                Error::InvalidDescriptor { op: "program", field: "let", rule }
            };
            let function = found.ok_or_else(unknown)?;
            let mut argument = |word: &Word| match word {
                Word::Whole(number) => {
                    names.inexact = names.inexact.or_else(|| number.inexact());
                    Ok(Argument::Literal(Literal::new(number.nearest())))
                }
                Word::Number(number) => Ok(Argument::Literal(Literal::new(*number))),
                Word::Name(name) => match NUMBERS.iter().find(|(number, _)| number == name) {
                    Some((_, value)) => Ok(Argument::Literal(Literal::new(*value))),
                    None => known.get(name).copied().ok_or_else(|| unnamed("let", at, name)),
                },
            };
            let arguments = given.iter().map(&mut argument).collect::<Result<_>>()?;
            add(&mut known, "let", result, Argument::Result(checked.len()))?;
            results.push(result.clone());
            checked.push(Instruction { function, arguments });
        }
        let output =
            |(at, name): (usize, &String)| known.get(name).copied().ok_or_else(|| unnamed("outputs", at, name));
        let outputs = outputs.iter().enumerate().map(output).collect::<Result<_>>()?;
        Self::checked(Names { inputs, results, ..names }, sources, checked, outputs)
    }
}

/// Whether an instruction of this name is a source.
fn is_source(name: &str) -> bool {
    [source::INDEX, source::COUNT].contains(&name) || Kind::ALL.iter().any(|kind| kind.name() == name)
}

/// A source from its arguments: of a count none; of an index an axis; of random numbers seed, offset, stream, the distribution's numbers, and of uniform ones their digits.
fn read_source(name: &str, given: &[Result<f64, &str>], inputs: &[String]) -> Result<Source, String> {
    let natural = |word: &Result<f64, &str>, what: &str| match word {
        Ok(number) if number.fract() == 0.0 && (0.0..4_294_967_296.0).contains(number) => {
            Ok(u32::try_from(whole(*number)).unwrap_or_default())
        }
        Ok(number) => Err(format!("{what} must be a whole number from 0 to 2^32 - 1, got {number}")),
        Err(name) => Err(format!("{what} must be a number, got {name:?}")),
    };
    if name == source::COUNT {
        return if given.is_empty() {
            Ok(Source::Count)
        } else {
            Err(format!("takes nothing, got {} arguments", given.len()))
        };
    }
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == name) else {
        let [axis] = given else { return Err(format!("takes an axis, got {} arguments", given.len())) };
        return Ok(Source::Index { axis: crate::narrow::to_usize(natural(axis, "axis")?.into()) });
    };
    let takes = || {
        let numbers = kind.numbers().iter().map(|name| format!(", {name}")).collect::<String>();
        format!("takes seed, offset, stream{numbers}, got {} arguments", given.len())
    };
    let [seed, offset, stream, numbers @ ..] = given else { return Err(takes()) };
    let input = |word: &Result<f64, &str>, what: &str| match word {
        Err(name) => {
            let at = inputs.iter().position(|known| known == name);
            at.ok_or_else(|| format!("its {what}, {name:?}, names no input"))
        }
        Ok(number) => Err(format!("its {what} must be the name of an input, got {number}")),
    };
    let (seed, offset, stream) = (input(seed, "seed")?, input(offset, "offset")?, natural(stream, "stream")?);
    let (numbers, digits) = match (kind, numbers) {
        (Kind::Uniform, [digits]) => (&[][..], natural(digits, "digits")?),
        (_, numbers) => (numbers, 0),
    };
    if numbers.len() != kind.numbers().len() {
        return Err(takes());
    }
    let mut own = [Literal::ZERO; 2];
    for (own, (number, what)) in own.iter_mut().zip(numbers.iter().zip(kind.numbers())) {
        let Ok(number) = number else { return Err(format!("{what} must be a number")) };
        *own = Literal::new(*number);
    }
    Ok(Source::Random(Draw { kind, numbers: own, seed, offset, stream, digits }))
}

/// What a source is serialised as.
fn write_source(program: &Program, at: usize, source: &Source) -> Vec<Word> {
    #[expect(clippy::cast_precision_loss, reason = "axes are few")]
    let number = |number: usize| Word::Number(number as f64);
    let mut words = vec![Word::Name(program.name(Argument::Source(at))), Word::Name(source.name().into())];
    match *source {
        Source::Index { axis } => words.push(number(axis)),
        Source::Count => {}
        Source::Random(Draw { kind, numbers, seed, offset, stream, digits }) => {
            words.extend([seed, offset].map(|key| Word::Name(program.name(Argument::Input(key)))));
            words.push(Word::Number(stream.into()));
            words.extend(numbers.iter().take(kind.numbers().len()).map(|number| Word::Number(number.get())));
            words.extend((digits > 0).then(|| Word::Number(digits.into())));
        }
    }
    words
}

/// A name that no input and no earlier instruction has.
fn unnamed(field: &'static str, at: usize, name: &str) -> Error {
    let place = if field == "let" { "instruction" } else { "output" };
    let rule = format!("{place} {at}: {name:?} names no input and no result of an earlier instruction");
    Error::InvalidDescriptor { op: "program", field, rule }
}

impl From<Program> for Json {
    fn from(program: Program) -> Self {
        let word = |argument: &Argument| match argument {
            Argument::Literal(literal) if literal.get().is_finite() => Word::Number(literal.get()),
            Argument::Literal(literal) => {
                let named = |(_, value): &&(&str, f64)| Literal::new(*value) == *literal;
                Word::Name(NUMBERS.iter().find(named).map_or("nan", |(name, _)| name).into())
            }
            value => Word::Name(program.name(*value)),
        };
        let instruction = |(at, Instruction { function, arguments }): (usize, &Instruction)| {
            let head = [Word::Name(program.name(Argument::Result(at))), Word::Name(function.name().into())];
            head.into_iter().chain(arguments.iter().take(function.arity()).map(word)).collect()
        };
        let sources = program.sources().iter().enumerate().map(|(at, source)| write_source(&program, at, source));
        Self {
            inputs: (0..program.inputs()).map(|at| program.name(Argument::Input(at))).collect(),
            instructions: sources.chain(program.instructions().iter().enumerate().map(instruction)).collect(),
            outputs: program.results().iter().map(|&output| program.name(output)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Program, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn json_is_kept_and_names_do_not_count() {
        let json = r#"{"inputs":["x","y"],"let":[["s","sigmoid","x"],["t","mul","s",-0.0],["z","add","t","inf"]],"outputs":["z","y"]}"#;
        let program = read(json).unwrap();
        assert_eq!(serde_json::to_string(&program).unwrap(), json);
        let renamed = read(&json.replace("\"s\"", "\"sum\"").replace("\"y\"", "\"b\"")).unwrap();
        assert_eq!(renamed, program);
        let mut outputs = [0.0; 2];
        program.evaluate(&[1.0, 2.0], |number| number, &mut outputs);
        assert_eq!(outputs, [f64::INFINITY, 2.0]);
    }

    #[test]
    fn hostile_programs_are_refused_with_what_is_wrong() {
        let program = |instructions: &str, outputs: &str| {
            read(&format!(r#"{{"inputs":["x","y"],"let":[{instructions}],"outputs":[{outputs}]}}"#)).unwrap_err()
        };
        let numbers: Vec<String> = (0..43).map(|at| format!(r#"["t{at}","clamp",{at},{at}.25,{at}.5]"#)).collect();
        let long: Vec<String> = (0..1_000_000).map(|at| format!(r#"["t{at}","neg","x"]"#)).collect();
        for (error, expected) in [
            (program(r#"["t","exp","x","y"]"#, r#""t""#), "instruction 0, exp, takes 1 arguments, got 2"),
            (program(r#"["t","exp","t"]"#, r#""t""#), "instruction 0: \"t\" names no input and no result"),
            (program(r#"["t","nonesuch","x"]"#, r#""t""#), "no function is named \"nonesuch\"; there are neg, sqrt"),
            (program(r#"["x","exp","x"]"#, r#""x""#), "\"x\" names two values"),
            (program(r#"["nan","exp","x"]"#, r#""x""#), "\"nan\" is a number"),
            (program(r#"["t","exp",true]"#, r#""t""#), "a name or a number"),
            (program(r#"["t"]"#, r#""t""#), "instruction 0 must be the name of its result"),
            (program("", ""), "outputs: must be 1 to 8, got 0"),
            (program("", r#""inf""#), "output 0: \"inf\" names no input"),
            (program(&numbers.join(","), r#""t1""#), "let: has 129 different numbers, at most 128 are possible"),
            (program(&long.join(","), r#""t1""#), "let: must be 0 to 64, got 1000000"),
        ] {
            assert!(error.contains(expected), "{error}");
        }
        let inputs: Vec<String> = (0..17).map(|at| format!("\"x{at}\"")).collect();
        let error = read(&format!(r#"{{"inputs":[{}],"outputs":["x0"]}}"#, inputs.join(","))).unwrap_err();
        assert!(error.contains("inputs: must be 0 to 16, got 17"), "{error}");
    }

    #[test]
    fn sources_are_read_where_they_are_written_and_come_first() {
        let json = r#"{"inputs":["x","seed","step"],"let":[["k","bernoulli","seed","step",3,0.25],["i","index",1],["u","uniform","seed","step",0],["n","randint","seed","step",1,-2,7],["t","where","k","x","i"],["r","mul","t","u"]],"outputs":["r","n"]}"#;
        let program = read(json).unwrap();
        assert_eq!(
            serde_json::to_string(&program).unwrap(),
            json.replace("3,0.25", "3.0,0.25")
                .replace("\"index\",1", "\"index\",1.0")
                .replace("\"step\",0]", "\"step\",0.0]")
                .replace("1,-2,7", "1.0,-2.0,7.0")
        );
        assert_eq!((program.sources().len(), program.instructions().len()), (4, 2));
        assert!(!program.is_key(0) && program.is_key(1) && program.is_key(2));
        let source = |words: &str| {
            read(&format!(r#"{{"inputs":["x","seed","step"],"let":[["t","neg","x"],["s",{words}]],"outputs":["s"]}}"#))
                .unwrap_err()
        };
        for (words, expected) in [
            (r#""index""#, "instruction 1, index: takes an axis, got 0 arguments"),
            (r#""index",-1"#, "axis must be a whole number from 0 to 2^32 - 1, got -1"),
            (r#""index","x""#, "axis must be a number, got \"x\""),
            (r#""normal","seed","step""#, "takes seed, offset, stream, got 2 arguments"),
            (r#""normal",1,"step",0"#, "its seed must be the name of an input, got 1"),
            (r#""normal","t","step",0"#, "its seed, \"t\", names no input"),
            (r#""bernoulli","seed","step",0"#, "takes seed, offset, stream, p, got 3 arguments"),
            (r#""bernoulli","seed","step",0,1.5"#, "source 0, bernoulli: p must be from 0 to 1, got 1.5"),
            (r#""bernoulli","x","step",0,0.5"#, "its seed, \"x\", must be nothing else"),
            (r#""uniform","seed","seed",0"#, "its seed, \"seed\", must be nothing else"),
            (r#""randint","seed","step",0,3,3"#, "high must be above low by 1 to 2^32, got 3 and 3"),
            (r#""randint","seed","step",0,0.5,3"#, "low and high must be whole"),
            (r#""uniform","seed","step",0,54"#, "digits must be at most 53, got 54"),
        ] {
            let error = source(words);
            assert!(error.contains(expected), "{words}: {error}");
        }
        let many: Vec<String> = (0..5).map(|at| format!(r#"["i{at}","index",{at}]"#)).collect();
        let error = read(&format!(r#"{{"inputs":[],"let":[{}],"outputs":["i0"]}}"#, many.join(","))).unwrap_err();
        assert!(error.contains("let: must have at most 4 sources, got 5"), "{error}");
    }

    #[test]
    fn builders_share_equal_calls_and_drop_what_is_not_needed() {
        let mut b = Program::builder();
        let [x, y] = ["x", "t0"].map(|name| b.input(name));
        b.call(Function::Exp, [y]);
        let [a, again] = [(); 2].map(|()| b.call(Function::Mul, [x, x]));
        let sum = b.call(Function::Add, [a, again]);
        let program = b.finish([sum, y]).unwrap();
        let json =
            r#"{"inputs":["x","t0"],"let":[["tt0","mul","x","x"],["tt1","add","tt0","tt0"]],"outputs":["tt1","t0"]}"#;
        assert_eq!(serde_json::to_string(&program).unwrap(), json);
        assert_eq!(read(json).unwrap(), program);
    }
}
