//! Programs of each element: add, multiply, divide, exponentials and what is made of them, with broadcasting.
//!
//! For each position `p` of the extents that the inputs broadcast to: `(out0[p], out1[p], ..) = program(in0[p], in1[p], ..)`. The functions, with
//! their formulas, are those of [`Function`]; a [`Program`] is made of them.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `in0` | any, rank 0 to 8; of a seed `[2]`, of an offset `[]` | f64; f32, f16, bf16, f8e4m3, f8e5m2 in any mixture; i64; i32, u8, i8 in any mixture; u32; and bool beside any of these; u32 of a seed and of an offset | in | the program's inputs |
//! | `in1`, `in2`, `in3`, `in4`, `in5`, `in6`, `in7`, `in8`, `in9`, `in10`, `in11`, `in12`, `in13`, `in14`, `in15` | that of in0, where extents of 1 and missing ones in front are repeated, as in NumPy | as in0 | in | the program's inputs |
//! | `out0` | the inputs', broadcast | any | out | always |
//! | `out1`, `out2`, `out3`, `out4`, `out5`, `out6`, `out7` | of out0 | any | out | the program's outputs |
//!
//! Sources: a program may take the position along an axis of the outputs (`["i", "index", 0]`) and random numbers (`["u", "uniform", "seed", "offset", 0]`,
//! by a seed and an offset that are inputs, and by a stream that is a number of the program; with the numbers of the [`Distribution`] behind it). They are
//! the same for every layout. [`dims`](PointwiseDescriptor::generated) are the extents of the outputs where no input says them.
//!
//! Units: all values are plain numbers.
//!
//! Types: the inputs that are not bool say in which type the program computes: f64 in f64; f32, f16, bf16, f8e4m3 and f8e5m2 in f32; i64 in i64; u32 in u32;
//! i32, u8 and i8 in i32. Those that compute in different types do not mix. If all are bool, numbers are of f32; if there is none but seeds and offsets, they
//! are of the type in which the first output that is not bool computes, as `outputs` has it. Each function takes numbers of the
//! computing type, or bool, as [`Function`] says, which is checked when a descriptor is made; a bool is a byte, of which all but 0 are true, and 1 is written.
//! An output has type bool if its value is one; a number has the type that all inputs but bools share, or if they differ the computing type; unless
//! [`outputs`](PointwiseDescriptor::outputs) says otherwise: a program without instructions casts.
//!
//! Casts: of a floating-point number to an integer type its fraction is cut off, beyond the range it is the nearest number of it, and NaN is 0; to bool
//! everything but 0 is true, also NaN; to f8e4m3, which has no infinities, it is at most the greatest, and of infinities NaN. Integers are cast to others by
//! their low bits, and rounded once to floating-point types. True is 1.
//!
//! Sets: [`sets`](PointwiseDescriptor::sets) has the same program over further groups of operands, each with extents, types and layouts of its own, in one
//! plan, as optimizers update all parameters. Operands of set 17 are `in0.17`, `out0.17`; those of the first, set 0, have the names of the table. The last
//! inputs of the program may be scalars that all sets share, in the first alone. Such a descriptor has no gradients.
//!
//! Layout and aliasing: any strides, 0 for inputs. An output lies as the first input of its extents does, or dense where that repeats elements.
//! It may lie in the place of any input of an identical descriptor of its own set that is no seed and no offset, but of none that sets share.
//!
//! Accumulation: nothing is added up. Each function is computed in the computing type, its result is not rounded further, and an output is cast once
//! to its type, so that its bits depend on nothing but its inputs at the position. f32 results beyond the range of a 16-bit type become infinite.
//!
//! NaN, infinity, empty: as each function says; no comparison but `ne` holds of a NaN. Integers wrap. Without elements nothing is written.
//!
//! Random numbers: those of Philox 4x32-10, of which an element takes the word of its row-major position; of uniform numbers, bools and integers the bits are
//! equal on all backends.
//!
//! Gradients: one step, a program of its own, for all inputs of floating-point types that are not repeated; for each that is, a sum over the positions that
//! read one element of it, by the op [`reduce`](crate::ops::reduce), whose map is the program of the gradient. None passes through comparisons; `where`
//! passes it to the argument that it took. Gradients draw the same random numbers again; an input that is repeated has a step of its own before the sum then, and
//! so it has beside operands of 8 bits, which sums do not read. If an output is of a type that computes otherwise than the inputs, a step casts the gradient
//! that arrives there to the inputs' computing type where others are read beside it: of f64 inputs and an f32 output it has the digits of f32, of f32 inputs and
//! an f64 output those beyond f32 are rounded away.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: of the functions, [`Function`] says; the rules of broadcasting are those of NumPy's user guide.
//!
//! Kernels, in the order in which they are tried. On CUDA `pointwise_function` (`csrc/pointwise/pointwise_function.cu`) for one function of operands of
//! one type, and `pointwise_program` (`csrc/pointwise/pointwise_program.cu`), an interpreter, for any program without sources; with sources it is `pointwise_source`
//! (`csrc/pointwise/pointwise_source.cu`). Through wgpu `pointwise_dense` and
//! `pointwise_strided` (`csrc/pointwise/pointwise_dense.wgsl`, `csrc/pointwise/pointwise_strided.wgsl`, with the functions of `csrc/pointwise/functions`).
//! On the CPU `pointwise_fast`, in blocks (`fast.rs`), and the reference in `cpu.rs`. Of several sets `pointwise_sets` (on CUDA
//! `csrc/pointwise/pointwise_sets.cu`, which updates many sets in a launch), and what sets it does not serve are launches of the others.
//!
//! [`Distribution`]: super::program::Distribution
//! [`Function`]: super::program::Function
//! [`Program`]: super::program::Program

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gradients::{Derivation, Role};
use crate::memory::{Mem, MemMut, Operand, Operands};
use crate::ops::fields::require;
use crate::ops::pointwise::program::{Function, Origin, Program, Refused, Source, Through};
use crate::ops::reduce::{ReduceDescriptor, Reduction};
use crate::ops::valid::{self, Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::ops::walk::Walk;
use crate::plan::Descriptor;
use crate::slots::{Access, OperandEntry, SlotsBuilder};
use crate::tensor::{MAX_RANK, TensorDesc};

mod cpu;
#[cfg(feature = "cuda")]
pub(in crate::ops) mod cuda;
pub(in crate::ops) mod fast;
pub(in crate::ops) mod sets;
#[cfg(feature = "wgpu")]
pub(in crate::ops) mod wgpu;

#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;

/// Names of inputs.
pub(in crate::ops) const INPUTS: [&str; Program::MAX_INPUTS] = [
    "in0", "in1", "in2", "in3", "in4", "in5", "in6", "in7", "in8", "in9", "in10", "in11", "in12", "in13", "in14",
    "in15",
];
/// Names of outputs.
pub(in crate::ops) const OUTPUTS: [&str; Program::MAX_OUTPUTS] =
    ["out0", "out1", "out2", "out3", "out4", "out5", "out6", "out7"];
/// The index of the first output.
pub(in crate::ops) const FIRST_OUTPUT: usize = INPUTS.len();

/// The table of operands.
mod forward {
    use super::{Access, FIRST_OUTPUT, INPUTS, OUTPUTS, OperandEntry};

    pub(super) const COUNT: usize = INPUTS.len() + OUTPUTS.len();

    pub(super) const NAMES: [&str; COUNT] = {
        let (mut names, mut at) = ([""; COUNT], 0);
        while at < COUNT {
            names[at] = if at < FIRST_OUTPUT { INPUTS[at] } else { OUTPUTS[at - FIRST_OUTPUT] };
            at += 1;
        }
        names
    };

    pub(crate) const TABLE: &[OperandEntry] = &{
        let row = OperandEntry { name: "", access: Access::In, declared: "if program", in_place: None };
        let (mut rows, mut at) = ([row; COUNT], 0);
        while at < COUNT {
            let access = if at < FIRST_OUTPUT { Access::In } else { Access::Out };
            let declared = if at == FIRST_OUTPUT { "always" } else { "if program" };
            rows[at] = OperandEntry { name: NAMES[at], access, declared, in_place: None };
            at += 1;
        }
        rows
    };
}

fields! {
    /// The fields. `outputs` is empty where the types of the outputs are the default.
    Fields: Fields<Kind = (), Derived = Geometry> + normalise {
        program: Program,
        inputs: Vec<TensorDesc>,
        outputs: Vec<DType> = default,
        /// The extents of the outputs, if they are not those that the inputs broadcast to.
        dims: Option<Vec<u64>> = default,
        sets: Vec<Vec<TensorDesc>> = default,
    }
}

/// What follows from the fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Geometry {
    /// The operands, inputs first, each with the extents of the outputs.
    pub(crate) operands: Vec<TensorDesc>,
    /// The program's sources, each as an operand that lies so that the number of an element is the value, or the position by which it is drawn.
    pub(crate) sources: Vec<TensorDesc>,
    /// The type in which the program computes: f32, f64, i32, u32 or i64.
    pub(crate) computing: DType,
    /// Where there are several sets, each of them.
    sets: Vec<sets::Set>,
}

impl Geometry {
    /// How the operands lie towards each other: outputs, which come first in its order, inputs, sources.
    pub(crate) fn walk(&self, outputs: usize) -> Walk {
        let (inputs, of_outputs) = self.operands.split_at(self.operands.len() - outputs);
        Walk::new(&[of_outputs, inputs, &self.sources].concat())
    }
}

impl Geometry {
    /// The program with all that outputs of these types say of its sources.
    pub(crate) fn program_of(&self, program: &Program, outputs: &[TensorDesc]) -> Program {
        let types: Vec<DType> = outputs.iter().map(TensorDesc::dtype).collect();
        program.with_digits(&types, self.computing)
    }
}

pub(in crate::ops) type Valid = valid::Valid<Fields>;

/// A program of one input and one output, whose operands lie so.
///
/// # Errors
/// The operands are none of the program.
#[cfg(feature = "cuda")]
pub(in crate::ops) fn of_one(program: Program, x: TensorDesc, y: TensorDesc) -> Result<Valid> {
    let layouts = [(OUTPUTS[0].to_string(), y)].into();
    let fields = Fields { outputs: vec![y.dtype()], layouts, ..Fields::minimal(program, vec![x]) };
    Valid::new(PointwiseDescriptor::OP, fields)
}

impl Valid {
    /// Whether no element depends on where it lies: sources do.
    fn is_batch_invariant(&self) -> bool {
        self.fields.program.sources().is_empty()
    }

    /// The program with all that its outputs say of its sources, and what the types of its inputs say of its functions.
    fn program(&self) -> Program {
        let (inputs, outputs) = self.derived.operands.split_at(self.fields.inputs.len());
        let types: Vec<DType> = inputs.iter().map(TensorDesc::dtype).collect();
        self.derived.program_of(&self.fields.program, outputs).typed(&types, self.derived.computing)
    }
}

impl Fields {
    /// Layouts of inputs are those of their descriptors; types of outputs that are the default are left out, and so are extents.
    fn normalise(&mut self, &Op { name: op, .. }: &Op<()>) -> Result<()> {
        self.program = self.program.untyped();
        for (name, input) in INPUTS.iter().zip(&mut self.inputs) {
            crate::ops::fields::relay(op, &mut self.layouts, [(name, input)])?;
        }
        sets::relay_sets(op, &mut self.layouts, &mut self.sets)?;
        // Without a value among the inputs the types of the outputs say in what is computed.
        let is_default = |inputs: &[TensorDesc]| self.outputs == self.default_outputs(inputs);
        if !self.outputs.is_empty()
            && !self.values(&self.inputs).is_empty()
            && is_default(&self.inputs)
            && self.sets.iter().all(|own| is_default(&sets::inputs_of(own, &self.inputs)))
        {
            self.outputs.clear();
        }
        let values = self.inputs.iter().enumerate().filter(|(at, _)| !self.program.is_key(*at));
        if self.dims.is_some() && self.dims == broadcast(op, values).ok() {
            self.dims = None;
        }
        Ok(())
    }

    fn default_outputs(&self, inputs: &[TensorDesc]) -> Vec<DType> {
        let is_bool: Vec<bool> = inputs.iter().map(|input| input.dtype() == DType::Bool).collect();
        let shared = shared_type(&self.values(inputs));
        let of = |is_bool| if is_bool { DType::Bool } else { shared };
        self.program.bools(&is_bool).into_iter().map(of).collect()
    }

    /// Of these inputs those with a value at each position.
    fn values(&self, inputs: &[TensorDesc]) -> Vec<TensorDesc> {
        let values = inputs.iter().enumerate().filter(|(at, _)| !self.program.is_key(*at));
        values.map(|(_, input)| *input).collect()
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Geometry> {
        let Self { program, inputs, .. } = self;
        check_count(op, program, inputs)?;
        let outputs = if self.outputs.is_empty() { self.default_outputs(inputs) } else { self.outputs.clone() };
        require(op, "outputs", outputs.len() == program.outputs(), || {
            format!("must be {} types, one for each output of the program; got {}", program.outputs(), outputs.len())
        })?;
        // Without a value among the inputs the outputs say in what is computed.
        let asked = self.outputs.iter().copied().find(|&dtype| dtype != DType::Bool);
        let asked = if self.values(inputs).is_empty() { asked } else { None };
        let Spread { dims, operands, computing } = Spread::new(op, program, inputs, (self.dims.as_deref(), asked))?;
        program.check_positions(op, computing, &dims, inputs)?;
        let source = |source: &Source| {
            let strides: Vec<u64> = match source {
                Source::Index { axis } => (0..dims.len()).map(|at| u64::from(at == *axis)).collect(),
                Source::Random(_) => TensorDesc::contiguous(DType::U8, &dims)?.strides().to_vec(),
                // It is refused above.
                Source::Count => vec![0; dims.len()],
            };
            TensorDesc::strided(DType::U8, &dims, &strides)
        };
        let sources = program.sources().iter().map(source).collect::<Result<_>>()?;
        let mut geometry = Geometry { operands, sources, computing, sets: Vec::new() };
        for (at, input) in inputs.iter().enumerate() {
            slots.declare(at, *input)?;
        }
        let values = self.values(inputs);
        let like = values.iter().find(|input| input.dims() == dims && input.is_injective());
        for (at, dtype) in outputs.into_iter().enumerate() {
            let default = match like {
                Some(input) => TensorDesc::strided(dtype, &dims, input.strides()),
                None => TensorDesc::contiguous(dtype, &dims),
            };
            let index = FIRST_OUTPUT + at;
            let output = slots.declare(index, slots.derived(index, default)?)?;
            geometry.operands.push(output);
        }
        slots.share_places(|input| !program.is_key(input));
        geometry.sets = self.declare_sets(op, slots)?;
        Ok(geometry)
    }
}

/// The type that all inputs that are not bool share, or the one in which they compute.
pub(in crate::ops) fn shared_type(inputs: &[TensorDesc]) -> DType {
    let mut types = inputs.iter().map(TensorDesc::dtype).filter(|&dtype| dtype != DType::Bool);
    let first = types.next().unwrap_or(DType::F32);
    if types.all(|dtype| dtype == first) { first } else { computing(first) }
}

/// Refuses another number of inputs than the program's.
pub(in crate::ops) fn check_count(op: &'static str, program: &Program, inputs: &[TensorDesc]) -> Result<()> {
    require(op, "inputs", inputs.len() == program.inputs(), || {
        format!("must be {}, one for each input of the program; got {}", program.inputs(), inputs.len())
    })
}

/// The inputs of a program at its positions.
pub(in crate::ops) struct Spread {
    /// The extents that those of the inputs broadcast to.
    pub(in crate::ops) dims: Vec<u64>,
    /// The inputs with these extents.
    pub(in crate::ops) operands: Vec<TensorDesc>,
    /// The type in which the program computes.
    pub(in crate::ops) computing: DType,
}

impl Spread {
    /// `asked`: the extents to which inputs broadcast, if they do not follow from these; and the type whose elements are computed where there is no input.
    ///
    /// # Errors
    /// Types that do not mix, an instruction that does not take its arguments, a number that the computing type does not hold, or extents that do not
    /// broadcast.
    pub(in crate::ops) fn new(
        op: &'static str,
        program: &Program,
        inputs: &[TensorDesc],
        asked: (Option<&[u64]>, Option<DType>),
    ) -> Result<Self> {
        let computing = match asked.1 {
            Some(dtype) => computing(dtype),
            None => computing_of(op, values(program, inputs))?,
        };
        let types: Vec<DType> = inputs.iter().map(TensorDesc::dtype).collect();
        program.check_types(op, &types, computing)?;
        program.check_literals(op, computing)?;
        let own = broadcast(op, values(program, inputs))?;
        let dims = match asked.0 {
            None => own,
            Some(dims) => {
                let fits = |(&own, &dim): (&u64, &u64)| own == dim || own == 1;
                let are_fitting = own.len() <= dims.len() && own.iter().rev().zip(dims.iter().rev()).all(fits);
                require(op, "dims", are_fitting, || {
                    format!("must be the extents that those of the inputs, {own:?}, broadcast to; got {dims:?}")
                })?;
                dims.to_vec()
            }
        };
        // A seed and an offset are one element at every position.
        let repeated = |(at, input): (usize, &TensorDesc)| match program.is_key(at) {
            true => TensorDesc::strided(input.dtype(), &dims, &vec![0; dims.len()]),
            false => input.broadcast_to(&dims).map_err(|error| error.of_operand(op, INPUTS[at])),
        };
        let operands = inputs.iter().enumerate().map(repeated).collect::<Result<_>>()?;
        Ok(Self { dims, operands, computing })
    }
}

/// The type in which numbers of a type compute.
fn computing(dtype: DType) -> DType {
    match dtype {
        DType::U8 | DType::I8 => DType::I32,
        other => other.accumulator(),
    }
}

/// The inputs of a program, by their places, without its seeds and offsets.
fn values<'i>(program: &Program, inputs: &'i [TensorDesc]) -> impl Iterator<Item = (usize, &'i TensorDesc)> {
    inputs.iter().enumerate().filter(|(at, _)| !program.is_key(*at))
}

/// The type in which a program of these inputs computes.
fn computing_of<'i>(op: &'static str, inputs: impl Iterator<Item = (usize, &'i TensorDesc)>) -> Result<DType> {
    let named = inputs.map(|(at, input)| (INPUTS[at], input));
    let mut numbers = named.filter(|(_, input)| input.dtype() != DType::Bool);
    let Some((first, of_first)) = numbers.next() else { return Ok(DType::F32) };
    let computed = computing(of_first.dtype());
    match numbers.find(|(_, input)| computing(input.dtype()) != computed) {
        None => Ok(computed),
        Some((name, other)) => {
            let [one, another] = [of_first, other].map(|input| {
                let dtype = input.dtype();
                format!("{dtype}, which computes in {}", computing(dtype))
            });
            let rule =
                format!("does not mix with {first}: {first} is {one}, {name} is {another}; cast one of them first");
            Err(Error::InvalidDescriptor { op, field: name, rule })
        }
    }
}

/// The extents that those of the inputs broadcast to.
fn broadcast<'i>(op: &'static str, inputs: impl Iterator<Item = (usize, &'i TensorDesc)>) -> Result<Vec<u64>> {
    let inputs: Vec<(usize, &TensorDesc)> = inputs.collect();
    let rank = inputs.iter().map(|(_, input)| input.rank()).max().unwrap_or(0).min(MAX_RANK);
    let mut dims = vec![1; rank];
    let mut named = vec![0; rank];
    for (place, &(at, input)) in inputs.iter().enumerate() {
        let own = &mut dims[rank - input.rank()..];
        for (axis, (dim, &extent)) in own.iter_mut().zip(input.dims()).enumerate() {
            let named = &mut named[rank - input.rank() + axis];
            if extent != 1 {
                require(op, INPUTS[at], *dim == 1 || *dim == extent, || {
                    let (other, of_other) = (INPUTS[inputs[*named].0], inputs[*named].1.dims());
                    let own = input.dims();
                    format!(
                        "{own:?} does not broadcast with {of_other:?} of {other}: counted from the last, extents must be equal or 1; {extent} is beside {dim}"
                    )
                })?;
                (*dim, *named) = (extent, place);
            }
        }
    }
    Ok(dims)
}

/// A program whose gradients are wanted, with its operands.
pub(in crate::ops) struct Forward<'f> {
    pub(in crate::ops) op: &'static str,
    pub(in crate::ops) program: &'f Program,
    pub(in crate::ops) inputs: &'f [TensorDesc],
    /// The extents that they broadcast to.
    pub(in crate::ops) dims: &'f [u64],
    /// The gradients that arrive, each with these extents, in the order of the outputs' places in `arriving`.
    pub(in crate::ops) dys: Vec<(TensorDesc, Role)>,
    /// The outputs at which they arrive.
    pub(in crate::ops) arriving: Vec<usize>,
    /// What reaches the output, if they arrive at what is made of it, with the further operands that this reads.
    pub(in crate::ops) through: Option<(Through<'f>, Vec<(TensorDesc, Role)>)>,
}

/// The program of gradients, with its operands and their roles.
type Gradient = (Program, Vec<TensorDesc>, Vec<(&'static str, Role)>);

impl Forward<'_> {
    /// Adds the steps of all inputs that are wanted: one program for those that have the extents of the outputs, and a sum for each that is repeated.
    /// Before them a step for each gradient whose type does not mix with what they read besides.
    pub(in crate::ops) fn derive(mut self, derivation: &mut Derivation) -> Result<()> {
        let wanted: Vec<usize> = (0..self.inputs.len()).filter(|&at| derivation.wants(INPUTS[at])).collect();
        let (whole, repeated): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|&at| self.inputs[at].dims() == self.dims);
        let groups = || [&whole[..]].into_iter().filter(|whole| !whole.is_empty()).chain(repeated.chunks(1));
        let mut all_mix = true;
        for group in groups() {
            let (program, descs, _) = self.gradient(group)?;
            all_mix &= computing_of(self.op, values(&program, &descs)).is_ok();
        }
        if !all_mix {
            let computing = computing_of(self.op, values(self.program, self.inputs))?;
            for (dy, role) in &mut self.dys {
                (*dy, *role) = cast(derivation, (*dy, role.clone()), computing)?;
            }
        }
        if !whole.is_empty() {
            self.derive_whole(derivation, &whole)?;
        }
        repeated.iter().try_for_each(|&at| self.derive_repeated(derivation, at))
    }

    /// The program of the gradients of some inputs, with its operands and their roles.
    fn gradient(&self, wanted: &[usize]) -> Result<Gradient> {
        let Self { op, program, inputs, dys, arriving, .. } = self;
        let outputs = || arriving.iter().map(|&at| OUTPUTS[at]).collect();
        let refused = |refused| match refused {
            Refused::Independent(at) => Error::independent(op, INPUTS[at], outputs()),
            Refused::Underivable(at, function) => {
                let why = function.why_no_gradient().unwrap_or_default();
                Error::NoGradient { op, operand: INPUTS[at].into(), why, known: Vec::new() }
            }
        };
        let through = self.through.as_ref();
        let too_long = |error| match error {
            Error::InvalidDescriptor { op: "program", field, rule } => {
                let names: Vec<_> = wanted.iter().map(|&at| INPUTS[at]).collect();
                let fewer = if names.len() > 1 { " ask for the gradients of fewer inputs at once, or" } else { "" };
                let rule = format!(
                    "the program of the gradients of {} would be too long: {field} {rule};{fewer} split the program into several descriptors, each with \
                     gradients of its own",
                    names.join(", ")
                );
                Error::InvalidDescriptor { op, field: names[0], rule }
            }
            other => other,
        };
        let gradient = program.gradient(arriving, wanted, through.map(|(through, _)| through)).map_err(refused)?;
        let gradient = gradient.map_err(too_long)?;
        let further = through.map_or(&[][..], |(_, operands)| operands);
        let slot = |origin: &Origin| match *origin {
            Origin::Further(at) => further[at].clone(),
            Origin::Input(at) => (inputs[at], Role::Forward(INPUTS[at])),
            Origin::GradientOf(output) => {
                dys[arriving.iter().position(|&known| known == output).unwrap_or_default()].clone()
            }
        };
        let (descs, origins): (Vec<_>, Vec<_>) = gradient.inputs.iter().map(slot).unzip();
        Ok((gradient.program, descs, INPUTS.into_iter().zip(origins).collect()))
    }

    fn derive_whole(&self, derivation: &mut Derivation, wanted: &[usize]) -> Result<()> {
        let (program, descs, mut roles) = self.gradient(wanted)?;
        let types = wanted.iter().map(|&at| self.inputs[at].dtype()).collect();
        let mut backward = PointwiseDescriptor::new(program, descs)?.outputs(types)?;
        for (output, &input) in OUTPUTS.into_iter().zip(wanted) {
            if self.inputs[input].is_injective() {
                backward = backward.layout(output, self.inputs[input])?;
            }
            roles.push((output, Role::GradientFor(vec![INPUTS[input]])));
        }
        derivation.push(backward, &roles);
        Ok(())
    }

    fn derive_repeated(&self, derivation: &mut Derivation, wanted: usize) -> Result<()> {
        let (mut program, mut descs, mut roles) = self.gradient(&[wanted])?;
        let input = self.inputs[wanted];
        let is_of_8_bits = |dtype: DType| dtype.is_float() && !dtype.is_computed();
        if !program.sources().is_empty() || descs.iter().any(|desc| is_of_8_bits(desc.dtype())) {
            // Sums read what has been drawn, and no floating-point numbers of 8 bits.
            let drawn = PointwiseDescriptor::new(program, descs)?.outputs(vec![input.dtype().accumulator()])?;
            let at_each = derivation.intermediate();
            roles.push((OUTPUTS[0], at_each.clone()));
            (program, descs) = (Program::identity(), vec![drawn.0.slots[drawn.0.slots.len() - 1].desc]);
            derivation.push(drawn, &roles);
            roles = vec![(INPUTS[0], at_each)];
        }
        // Extents in front that the input does not have are removed, its own of 1 stay.
        let front = self.dims.len() - input.rank();
        let is_repeated = |&axis: &usize| axis >= front && input.dims()[axis - front] != self.dims[axis];
        let kept: Vec<usize> = (0..self.dims.len()).filter(is_repeated).collect();
        let axes = (0..front).chain(kept.iter().copied()).collect();
        let sum = ReduceDescriptor::new(program, descs, axes, Reduction::Sum)?.keep(kept)?;
        let gradient = Role::GradientFor(vec![INPUTS[wanted]]);
        if is_of_8_bits(input.dtype()) {
            let (sum, between) = (sum.output(input.dtype().accumulator())?, derivation.intermediate());
            let desc = sum.slots()[sum.slots().len() - 1].desc;
            roles.push((OUTPUTS[0], between.clone()));
            derivation.push(sum, &roles);
            let mut cast = PointwiseDescriptor::new(Program::identity(), vec![desc])?.outputs(vec![input.dtype()])?;
            if input.is_injective() {
                cast = cast.layout(OUTPUTS[0], input)?;
            }
            derivation.push(cast, &[(INPUTS[0], between), (OUTPUTS[0], gradient)]);
            return Ok(());
        }
        let mut sum = sum.output(input.dtype())?;
        if input.is_injective() {
            sum = sum.layout(OUTPUTS[0], input)?;
        }
        roles.push((OUTPUTS[0], gradient));
        derivation.push(sum, &roles);
        Ok(())
    }
}

/// A tensor in a type in which gradients compute, which a step casts it to if its own computes in another one. Elements that are repeated are cast once.
pub(in crate::ops) fn cast(
    derivation: &mut Derivation,
    (desc, role): (TensorDesc, Role),
    to: DType,
) -> Result<(TensorDesc, Role)> {
    if computing(desc.dtype()) == to {
        return Ok((desc, role));
    }
    let mut own = desc;
    for axis in (0..desc.rank()).filter(|&axis| desc.strides()[axis] == 0 && desc.dims()[axis] > 1) {
        own = own.narrow(axis, 0, 1)?.0;
    }
    let step = PointwiseDescriptor::new(Program::identity(), vec![own])?.outputs(vec![to])?;
    let (result, between) = (step.slots()[1].desc, derivation.intermediate());
    derivation.push(step, &[(INPUTS[0], role), (OUTPUTS[0], between.clone())]);
    Ok((result.broadcast_to(desc.dims())?, between))
}

fn derive(forward: &PointwiseDescriptor, derivation: &mut Derivation) -> Result<()> {
    let Fields { program, inputs, sets, .. } = &forward.0.fields;
    if !sets.is_empty() {
        let operand = derivation.wanted().first().copied().unwrap_or(INPUTS[0]).into();
        let why = "has no gradient in a descriptor of several sets; one of each set alone, made by `new` of its inputs, has gradients, and that of a \
                   scalar which sets share is the sum of theirs";
        return Err(Error::NoGradient { op: PointwiseDescriptor::OP.name, operand, why, known: Vec::new() });
    }
    let of_outputs = &forward.0.derived.operands[inputs.len()..];
    // The gradients have other outputs, which would say otherwise how many digits random numbers have.
    let program = &forward.0.derived.program_of(program, of_outputs);
    let arriving: Vec<usize> = (0..OUTPUTS.len()).filter(|&at| derivation.arrives(OUTPUTS[at])).collect();
    let dys = arriving.iter().map(|&at| (of_outputs[at], Role::GradientOf(OUTPUTS[at]))).collect();
    let dims = of_outputs[0].dims();
    Forward { op: PointwiseDescriptor::OP.name, program, inputs, dims, dys, arriving, through: None }.derive(derivation)
}

descriptor! {
    /// A program of each element. See the [operands and rules](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Function, Mem, MemMut, Plan, PlanOptions, PointwiseArgs, PointwiseDescriptor, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[2, 3])?;
    /// let bias = TensorDesc::contiguous(DType::F32, &[3])?;
    /// let plan = Plan::new(&device, PointwiseDescriptor::binary(Function::Add, x, bias)?, &PlanOptions::default())?;
    /// let (x, bias, mut y) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [0.5f32, 0.0, -0.5], [0f32; 6]);
    /// let args = PointwiseArgs::new([Mem::host(&x), Mem::host(&bias)], [MemMut::host(&mut y)]);
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!(y, [1.5, 2.0, 2.5, 4.5, 5.0, 5.5]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    PointwiseDescriptor(Fields): "pointwise", ();
    args: PointwiseArgs of forward;
    plan: PointwisePlan;
    kernels: kernels!(
        cuda: {"function" => cuda::function, "program" => cuda::program, "source" => cuda::source, "sets" => sets::on_cuda};
        wgpu: {"sets" => sets::through_wgpu, "dense" => wgpu::dense, "strided" => wgpu::strided};
        cpu: cpu::accept;
        before: {"fast" => fast::accept}
    );
    gradients: ["out0", "out1", "out2", "out3", "out4", "out5", "out6", "out7"] => [
        "in0", "in1", "in2", "in3", "in4", "in5", "in6", "in7", "in8", "in9", "in10", "in11", "in12", "in13", "in14", "in15"
    ], derive;
    /// A program of inputs of these shapes and types, which broadcast to each other.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there are not as many as the program has inputs, if they do not broadcast, if their types compute in different ones,
    /// if a function takes others, or if a number of the program is none of the computing type.
    fn new(program: Program, inputs: Vec<TensorDesc>) = Fields::minimal(program, inputs);
    /// A program whose outputs have these extents, to which inputs broadcast, and these types, in the first of which that is not bool it computes where no
    /// input but seeds and offsets says otherwise.
    ///
    /// ```
    /// use baracuda_ops::{DType, PointwiseDescriptor, stock};
    /// let positions = PointwiseDescriptor::generated(stock::arange(0, 0.0, 1.0)?, vec![], vec![5], vec![DType::I64])?;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new) and [`outputs`](Self::outputs); and if the extents are not those that the inputs broadcast to, or have no axis that a source names.
    fn generated(program: Program, inputs: Vec<TensorDesc>, dims: Vec<u64>, outputs: Vec<DType>) =
        Fields { outputs, dims: Some(dims), ..Fields::minimal(program, inputs) };
    /// A function of one argument.
    ///
    /// # Errors
    /// As [`new`](Self::new); the function must have one argument.
    fn unary(function: Function, x: TensorDesc) = Fields::minimal(Program::of(function), vec![x]);
    /// A function of two arguments.
    ///
    /// # Errors
    /// As [`new`](Self::new); the function must have two arguments.
    fn binary(function: Function, x: TensorDesc, y: TensorDesc) = Fields::minimal(Program::of(function), vec![x, y]);
    /// A tensor in another type: a program without instructions.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    fn cast(x: TensorDesc, to: DType) = Fields { outputs: vec![to], ..Fields::minimal(Program::identity(), vec![x]) };
}

shared_steps! { PointwiseDescriptor: layout }

steps! { PointwiseDescriptor
    /// The types of the outputs, one for each. By default bools have type bool, and numbers the type that all inputs but bools share, or the computing type.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there are not as many as the program has outputs.
    outputs(types: Vec<DType>) = |it| it.with(|fields| fields.outputs = types);
    /// The same program over further sets of inputs, in one plan; the inputs of the descriptor are those of the first. Each set has as many: all inputs of the
    /// program, or the first of them, the rest of which are scalars that all sets share. The types of outputs follow for each set from its inputs, unless
    /// [`outputs`](Self::outputs) gives those of all.
    ///
    /// ```
    /// use baracuda_ops::{
    ///     DType, Device, Function, Mem, MemMut, Plan, PlanOptions, PointwiseArgs, PointwiseDescriptor, TensorDesc, Workspace,
    /// };
    /// let device = Device::cpu();
    /// let [x, z] = [[3].as_slice(), &[2]].map(|dims| TensorDesc::contiguous(DType::F32, dims));
    /// let by = TensorDesc::contiguous(DType::F32, &[])?;
    /// let scaled = PointwiseDescriptor::binary(Function::Mul, x?, by)?.sets(vec![vec![z?]])?;
    /// let plan = Plan::new(&device, scaled, &PlanOptions::default())?;
    /// let (mut x, mut z, by) = (vec![1f32, 2.0, 3.0], vec![4f32, 5.0], [0.5f32]);
    /// let mut second = [Mem::in_place().into(), MemMut::from(&mut z).into()];
    /// let args = PointwiseArgs::new([Mem::in_place(), Mem::from(&by)], [MemMut::from(&mut x)]).sets(&mut second);
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!((x, z), (vec![0.5, 1.0, 1.5], vec![2.0, 2.5]));
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if sets have different numbers of inputs, none or more than the program, if an input that they share is no scalar, if there
    /// are more than 4096 sets with the first, if the program has sources, or as [`new`](Self::new) says of any of them.
    sets(further: Vec<Vec<TensorDesc>>) = |it| it.with(|fields| fields.sets = further);
}

/// Operands of [`PointwiseDescriptor`]; their shapes and types are in the [table](self).
#[derive(Debug)]
pub struct PointwiseArgs<'a> {
    operands: Operands<'a>,
}

impl<'a> PointwiseArgs<'a> {
    pub(crate) const OPERANDS: &'static [&'static str] = &forward::NAMES;

    /// The inputs and the outputs, in the order of the program's. A run reports those that are missing or too many.
    pub fn new(
        inputs: impl IntoIterator<Item = impl Into<Mem<'a>>>,
        outputs: impl IntoIterator<Item = impl Into<MemMut<'a>>>,
    ) -> Self {
        let mut operands = Operands::none();
        let (mut inputs, mut outputs) = (inputs.into_iter(), outputs.into_iter());
        for (at, input) in (0..FIRST_OUTPUT).zip(&mut inputs) {
            operands.put(at, input.into().0);
        }
        for (at, output) in (FIRST_OUTPUT..forward::COUNT).zip(&mut outputs) {
            operands.put(at, output.into().0);
        }
        if inputs.next().is_some() || outputs.next().is_some() {
            operands.put_too_many();
        }
        Self { operands }
    }

    /// The operands of the sets after the first: of each its inputs without those that all sets share, then its outputs, set by set, as the slots of the
    /// descriptor have them.
    pub fn sets<'s>(self, operands: &'s mut [Operand<'_>]) -> PointwiseArgs<'s>
    where
        'a: 's,
    {
        PointwiseArgs { operands: Operands { further: operands, ..self.operands } }
    }
}

impl crate::plan::sealed::Sealed for PointwiseArgs<'_> {}

impl<'a> crate::plan::Args<'a> for PointwiseArgs<'a> {
    #[inline]
    fn lend<R>(self, to: impl FnOnce(&Operands<'_>) -> R) -> R {
        to(&self.operands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Device;
    use crate::memory::Workspace;
    use crate::options::PlanOptions;

    fn contiguous(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    #[test]
    fn operands_beyond_the_last_are_reported() {
        let device = Device::cpu();
        let mut b = Program::builder();
        let inputs: Vec<_> = (0..Program::MAX_INPUTS).map(|at| b.input(format!("x{at}"))).collect();
        let program = b.finish(inputs.into_iter().take(Program::MAX_OUTPUTS)).unwrap();
        let descriptor = PointwiseDescriptor::new(program, vec![contiguous(&[2]); Program::MAX_INPUTS]).unwrap();
        let plan = PointwisePlan::new(&device, descriptor, &PlanOptions::default()).unwrap();
        let x = [1f32, 2.0];
        for (inputs, outputs, operand) in
            [(16, 8, None), (17, 8, Some("beyond the last")), (16, 9, Some("beyond the last"))]
        {
            let mut y = vec![[0f32; 2]; outputs];
            let args = PointwiseArgs::new((0..inputs).map(|_| Mem::host(&x)), y.iter_mut().map(|y| MemMut::host(y)));
            let ran = plan.run(&mut device.queue(), args, Workspace::none());
            let refused = operand.map(|operand| Error::UnexpectedOperand { op: "pointwise", operand });
            assert_eq!(ran.err(), refused, "{inputs} inputs, {outputs} outputs");
        }
    }

    #[test]
    fn types_follow_from_the_inputs_and_are_checked() {
        use DType::{BF16, Bool, F8E4M3, F16, F32, F64, I8, I32, I64, U8, U32};
        let of = |json: &str, types: &[DType]| {
            let inputs = types.iter().map(|&dtype| TensorDesc::contiguous(dtype, &[2]).unwrap()).collect();
            PointwiseDescriptor::new(serde_json::from_str(json).unwrap(), inputs)
        };
        let add = r#"{"inputs":["x","y"],"let":[["z","add","x","y"]],"outputs":["z"]}"#;
        let lt = add.replace("add", "lt");
        let select = r#"{"inputs":["c","x"],"let":[["z","where","c","x",1]],"outputs":["z","c"]}"#;
        for (json, types, computing, outputs) in [
            (add, [F16, BF16], F32, &[F32][..]),
            (add, [F8E4M3, F8E4M3], F32, &[F8E4M3]),
            (add, [U8, U8], I32, &[U8]),
            (add, [U8, I8], I32, &[I32]),
            (add, [I64, I64], I64, &[I64]),
            (&lt, [F64, F64], F64, &[Bool]),
            (&lt, [U32, U32], U32, &[Bool]),
            (select, [Bool, U32], U32, &[U32, Bool]),
            (select, [Bool, F16], F32, &[F16, Bool]),
        ] {
            let descriptor = of(json, &types).unwrap();
            assert_eq!(descriptor.0.derived.computing, computing, "{json} {types:?}");
            let own: Vec<DType> = descriptor.0.derived.operands[2..].iter().map(TensorDesc::dtype).collect();
            assert_eq!(own, outputs, "{json} {types:?}");
        }
        let exp = r#"{"inputs":["x"],"let":[["z","exp","x"]],"outputs":["z"]}"#;
        for (json, types, expected) in [
            (add, &[F32, I32][..], "in0 is f32, which computes in f32, in1 is i32, which computes in i32"),
            (add, &[F64, F32], "in1 is f32, which computes in f32; cast one of them first"),
            (add, &[Bool, F32], "instruction 0, add, argument 0: must be a number of f32, x is bool"),
            (select, &[F32, F32], "instruction 0, where, argument 0: must be bool, c is a number of f32"),
            (exp, &[I32], "instruction 0, exp, is a function of floating-point numbers; the program computes in i32"),
            (&exp.replace("exp", "popcount"), &[F32], "instruction 0, popcount, is a function of integers"),
            (&select.replace(",1]", ",0.5]"), &[Bool, I32], "the number 0.5 is none of i32"),
            (
                &select.replace(",1]", ",9007199254740993]"),
                &[Bool, I64],
                "the number 9007199254740993 is none of a program, which holds numbers as f64",
            ),
            (
                &select.replace(",1]", ",9223372036854775808]"),
                &[Bool, I64],
                "the number 9223372036854775808 is none of i64, in which the program computes: whole, from \
                 -9223372036854775808 to 9223372036854774784",
            ),
            (
                &select.replace("\"c\",\"x\",1", "2,\"x\",1"),
                &[Bool, F32],
                "a number that stands for a bool is 0 or 1, got 2",
            ),
        ] {
            let error = of(json, types).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        // Whole numbers that f64 has, of any size, and those of floating-point types, which are rounded.
        for (number, dtype) in [("-9223372036854775808", I64), ("4611686018427387904", I64), ("9007199254740993", F32)]
        {
            of(&select.replace(",1]", &format!(",{number}]")), &[Bool, dtype]).unwrap();
        }
    }

    #[test]
    fn errors_name_the_operand_and_the_way_out() {
        // A product of powers, of which each factor adds to the gradient.
        let mut b = Program::builder();
        let inputs = ["x", "y", "z"].map(|name| b.input(name));
        let mut product = inputs[0];
        for at in 0..25 {
            product = b.call(Function::Pow, [product, inputs[1 + at % 2]]);
        }
        let program = b.finish([product]).unwrap();
        let forward = PointwiseDescriptor::new(program, vec![contiguous(&[2]); 3]).unwrap();
        let error = crate::AnyDescriptor::new(forward).gradients(&["out0"], &["in1", "in2"]).unwrap_err().to_string();
        for part in
            ["pointwise", "the gradients of in1, in2", "must be 0 to 64, got", "fewer inputs", "split the program"]
        {
            assert!(error.contains(part), "{error}");
        }
        let wide = [&[1u64 << 40, 1][..], &[1, 1 << 40]].map(contiguous);
        let error = PointwiseDescriptor::binary(Function::Add, wide[0], wide[1]).unwrap_err().to_string();
        assert!(error.starts_with("pointwise") && error.contains("in0"), "{error}");
    }

    #[test]
    fn another_alignment_is_the_reason_why_operands_do_not_share_a_place() {
        let device = Device::cpu();
        let x = contiguous(&[16]);
        let forward = PointwiseDescriptor::unary(Function::Neg, x).unwrap();
        let forward = forward.layout("out0", x.align(4).unwrap()).unwrap();
        let plan = PointwisePlan::new(&device, forward, &PlanOptions::default()).unwrap();
        let mut y = [1f32; 16];
        let args = PointwiseArgs::new([Mem::in_place()], [MemMut::host(&mut y)]);
        let error = plan.run(&mut device.queue(), args, Workspace::none()).unwrap_err().to_string();
        assert!(error.contains("another alignment; give both layouts the same `align`"), "{error}");
    }

    #[test]
    fn extents_broadcast_as_in_numpy() {
        for (dims, expected) in [
            (vec![vec![2, 3], vec![3]], Some(vec![2, 3])),
            (vec![vec![], vec![4]], Some(vec![4])),
            (vec![vec![2, 1], vec![1, 3], vec![1]], Some(vec![2, 3])),
            (vec![vec![0, 1], vec![3]], Some(vec![0, 3])),
            (vec![vec![2, 3], vec![2]], None),
            (vec![vec![0], vec![2]], None),
        ] {
            let inputs: Vec<_> = dims.iter().map(|dims: &Vec<u64>| contiguous(dims)).collect();
            assert_eq!(broadcast("pointwise", inputs.iter().enumerate()).ok(), expected, "{dims:?}");
        }
    }
}
