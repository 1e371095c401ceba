//! Sums, means, products, extremes, norms, variances, counts and positions along any axes, of elements or of what a program makes of them.
//!
//! `out0[k] = finish(reduce over r of program(in0[k, r], in1[k, r], ..))`, where `k` is a position of the axes that stay and `r` one of those that
//! are reduced; how many values become one, [`Reduction`] says. Without a program it is `in0[k, r]` that is reduced, and without a finish the result is as it is.
//!
//! Finish: a [program](ReduceDescriptor::finish) of one input and one output, of floating-point results: `sqrt` of a mean of squares is the root mean square,
//! `pow` with 1/p of a sum of `|x|^p` the p-norm. It may take the number of elements that became one (`["n", "count"]`).
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `in0` | any, rank 0 to 8 | f64; f32, f16, bf16 in any mixture; i64; i32, u8, i8 in any mixture; u32; and bool beside any of these | in | always |
//! | `in1`, `in2`, `in3`, `in4`, `in5`, `in6`, `in7`, `in8`, `in9`, `in10`, `in11`, `in12`, `in13`, `in14`, `in15` | that of in0, where extents of 1 and missing ones in front are repeated, as in NumPy | as in0 | in | the program's inputs |
//! | `out0` | the inputs', broadcast, without the reduced axes; those that are [kept](ReduceDescriptor::keep) have an extent of 1 | as below | out | always |
//!
//! Sets: [`sets`](ReduceDescriptor::sets) has the same program over further groups of inputs, each with extents, types and layouts of its own, in one plan; all
//! elements of all sets become one result, set after set. Inputs of set 17 are `in0.17` and so on; those of the first, set 0, have the names of the table. Such a
//! descriptor has no gradients.
//!
//! Units: all values are plain numbers.
//!
//! Types: a program computes as in [`pointwise`](crate::ops::pointwise::map): f64 in f64, other floating-point inputs in f32, integers in their own type.
//! Floating-point values are combined in f64 or f32, in which a finish computes as well, and the output has the type that all inputs share, or f32 if they differ, unless
//! [`output`](ReduceDescriptor::output) says otherwise. Integers are combined in 64 bits and wrap: sums and products are i64, or on request i32 or u32, of
//! which they have the low bits; extremes have the values' type. Means, norms, variances and logsumexp are of floating-point numbers alone. Of bools, which a
//! comparison gives, the sum is the number of those that are true, the greatest whether any is, and the product and the least whether all are. Counts and
//! positions are i64, or i32 or u32 if all that are possible fit; a count may be of a floating-point type, too. `any` and `all` are bool.
//!
//! Layout and aliasing: any strides, 0 for inputs. The output is dense unless it is laid otherwise. No operand may overlap it. Axes count from 0 on;
//! without any, each element is reduced by itself. Positions count along the reduced axes in row-major order, however the elements lie.
//!
//! Accumulation: values are combined in short chains, whose results are combined in trees and further chains, in an order that follows from the descriptor
//! alone: results repeat bit for bit, on any number of threads. On GPUs the order follows from the extents that are reduced and the layout, so that
//! an element's bits do not depend on how many there are beside it. The result is rounded once to the output's type; f32 results beyond the
//! range of a 16-bit type become infinite.
//!
//! NaN, infinity, empty: as [`Reduction`] says. Infinities of both signs add up to NaN. Without output elements nothing is written.
//!
//! Gradients: by the steps that [`pointwise`](crate::ops::pointwise::map) has; the gradient that arrives is read repeated along the reduced axes. If the output
//! is of a type that computes otherwise than the inputs, a step casts that gradient to the inputs' computing type where others are read beside it. Where none is,
//! as of a sum or a mean of the inputs themselves, it is computed as it arrives: the gradient of f64 inputs of a sum in f32 has the digits of f32. What they need
//! besides is forward's output if that is of the computing type and has no finish, or steps reduce it: the mean of a variance; of products that of the factors that are not 0
//! and the number of zeros, so that one factor that is 0 has a gradient; of extremes the number of values that are equal to them, which share the gradient
//! evenly. Norms and standard deviations of 0 have gradients of 0, and so has a logsumexp of minus infinity, of which every term is 0. Counts and positions have none. A step of its own computes what reaches the reduced values
//! through a finish.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: the names and formulas are those of PyTorch's reductions; pairwise sums: N. J. Higham, "The Accuracy of Floating Point Summation", 1993; variances of
//! parts: T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
//!
//! Kernels, in the order in which they are tried. On CUDA `reduce_rows` and `reduce_columns` (`csrc/reduce/reduce_rows.cu`,
//! `csrc/reduce/reduce_columns.cu`) for floating-point elements of one input, and `reduce_program` (`csrc/reduce/reduce_program.cu`), with an interpreter,
//! for any program and type; what is held of values says `csrc/reduce/fold.cuh`; a finish is a launch of `pointwise` over results in the workspace. Through wgpu `reduce_rows` and `reduce_columns` (`csrc/reduce/reduce_rows.wgsl`, `csrc/reduce/reduce_columns.wgsl`), both of any layout,
//! with `csrc/reduce/reduce_partials.wgsl` where an output is divided into pieces and one of the files `csrc/reduce/held_*.wgsl`; these read no i64, and have no
//! products of 64 bits. On the CPU `reduce_fast`, in blocks (`fast.rs`), and the reference
//! in `cpu.rs`. Of several sets `reduce_sets`, which on GPUs reduces each set by the others, and then what these gave.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::{Mem, MemMut, Operand, Operands};
use crate::ops::fields::require;
use crate::ops::pointwise::map::sets::relay_sets;
use crate::ops::pointwise::map::{INPUTS, OUTPUTS, Spread, check_count, shared_type};
use crate::ops::pointwise::program::{Program, Source};
use crate::ops::samples::are_packed;
use crate::ops::valid::{self, Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::{Access, Layouts, OperandEntry, SlotsBuilder};
use crate::tensor::TensorDesc;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;
mod geometry;
mod gradients;
mod norm;
mod reduction;
mod sets;
#[cfg(feature = "wgpu")]
mod wgpu;

pub(crate) use geometry::Geometry;
use reduction::Combine;
pub use reduction::Reduction;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;

/// The index of the output, behind those of the inputs.
const OUTPUT: usize = INPUTS.len();

/// The table of operands.
mod forward {
    use super::{Access, INPUTS, OUTPUT, OUTPUTS, OperandEntry};

    pub(super) const COUNT: usize = OUTPUT + 1;

    pub(super) const NAMES: [&str; COUNT] = {
        let (mut names, mut at) = ([OUTPUTS[0]; COUNT], 0);
        while at < OUTPUT {
            names[at] = INPUTS[at];
            at += 1;
        }
        names
    };

    pub(crate) const TABLE: &[OperandEntry] = &{
        let out = OperandEntry { name: OUTPUTS[0], access: Access::Out, declared: "always", in_place: None };
        let (mut rows, mut at) = ([out; COUNT], 0);
        while at < OUTPUT {
            let declared = if at == 0 { "always" } else { "if program" };
            rows[at] = OperandEntry { name: INPUTS[at], access: Access::In, declared, in_place: None };
            at += 1;
        }
        rows
    };
}

fields! {
    /// The fields. Without a program the input itself is reduced; without `output` its type is the default.
    Fields: Fields<Kind = (), Derived = Geometry> + normalise {
        program: Option<Program> = default,
        inputs: Vec<TensorDesc>,
        axes: Vec<usize>,
        reduce: Reduction,
        /// Those of the axes that stay, with an extent of 1.
        keep: Vec<usize> = default,
        output: Option<DType> = default,
        /// Of a variance or standard deviation, if it is not 1.
        correction: Option<u64> = default,
        /// What becomes of a result.
        finish: Option<Program> = default,
        sets: Vec<Vec<TensorDesc>> = default,
    }
}

type Valid = valid::Valid<Fields>;

impl Valid {
    /// The extents that number samples: those before the first that is reduced.
    fn batch(&self) -> usize {
        self.fields.axes.iter().copied().min().unwrap_or_else(|| self.derived.dims().len())
    }

    /// Whether there is a batch, of which nothing is reduced.
    fn keeps_first(&self) -> bool {
        self.derived.sets.is_empty() && self.batch() > 0
    }

    /// Whether, besides, a sample has elements side by side that stay, so that columns are those of one sample.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    fn has_packed_columns(&self) -> bool {
        let (batch, axes) = (self.batch(), &self.fields.axes);
        let stay = (0..).zip(self.derived.dims()).filter(|(axis, _)| *axis >= batch && !axes.contains(axis));
        self.has_packed_samples() && stay.map(|(_, &dim)| dim).product::<u64>() > 1
    }

    /// Whether there is a batch whose samples follow one another in every input, so that the walk of a sample depends on no other; if one element is reduced,
    /// extents on both sides of it are joined.
    fn has_packed_samples(&self) -> bool {
        self.keeps_first()
            && self.derived.count > 1
            && self.derived.inputs.iter().all(|input| are_packed(input, self.batch()))
    }
}

impl Fields {
    fn of(program: Option<Program>, inputs: Vec<TensorDesc>, axes: Vec<usize>, reduce: Reduction) -> Self {
        Self { program, ..Self::minimal(inputs, axes, reduce) }
    }

    /// Axes are in order; a program that returns its input, and a type that is the default, are left out.
    fn normalise(&mut self, &Op { name: op, .. }: &Op<()>) -> Result<()> {
        for (name, input) in INPUTS.iter().zip(&mut self.inputs) {
            crate::ops::fields::relay(op, &mut self.layouts, [(name, input)])?;
        }
        relay_sets(op, &mut self.layouts, &mut self.sets)?;
        self.axes.sort_unstable();
        self.keep.sort_unstable();
        self.program = self.program.take().filter(|program| !program.is_identity()).map(|program| program.untyped());
        self.finish = self.finish.take().filter(|finish| !finish.is_identity()).map(|finish| finish.untyped());
        let default = self.outputs().first().copied();
        self.output = self.output.filter(|&output| Some(output) != default);
        self.correction = self.correction.filter(|&correction| correction != 1 || !self.has_correction());
        Ok(())
    }

    /// The reduction without its finish, whose results are of the computing type and dense.
    fn unfinished(&self, computing: DType) -> Result<Valid> {
        let fields = Self { finish: None, output: Some(computing), ..self.clone() };
        Valid::new(ReduceDescriptor::OP, Self { layouts: Layouts::new(), ..fields })
    }

    /// Whether what is reduced is of type Bool.
    fn is_bool(&self) -> bool {
        let is_bool: Vec<bool> = self.inputs.iter().map(|input| input.dtype() == DType::Bool).collect();
        match &self.program {
            Some(program) => program.bools(&is_bool).first() == Some(&true),
            None => is_bool.first() == Some(&true),
        }
    }

    /// The types that the output may have, the default first.
    fn outputs(&self) -> Vec<DType> {
        let shared = shared_type(&self.all_inputs());
        let values = if self.is_bool() { DType::Bool } else { shared };
        match &self.finish {
            Some(finish) if finish.bools(&[false]).first() == Some(&true) => vec![DType::Bool],
            _ => self.reduce.row().outputs(shared, values),
        }
    }

    fn has_correction(&self) -> bool {
        self.reduce.row().combine == Combine::Moments
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Geometry> {
        let program = self.program.clone().unwrap_or_else(Program::identity);
        check_count(op, &program, &self.inputs)?;
        require(op, "program", program.outputs() == 1, || {
            format!("must have one output, what is reduced; got {}", program.outputs())
        })?;
        require(op, "program", program.sources().is_empty(), || {
            "must have no sources (positions and random numbers); a pointwise program before this op may have them"
                .into()
        })?;
        let (name, row, outputs) = (self.reduce.name(), *self.reduce.row(), self.outputs());
        for (input, desc) in INPUTS.into_iter().zip(&self.inputs) {
            let dtype = desc.dtype();
            let is_known = dtype.is_computed() || dtype.is_integer() || dtype == DType::Bool;
            require(op, input, is_known, || {
                format!("must be f64, f32, f16, bf16, an integer or bool, got {dtype}; cast it first")
            })?;
        }
        let values = if self.is_bool() { DType::Bool } else { shared_type(&self.inputs) };
        require(op, "reduce", values.is_float() || !row.is_of_floats(), || {
            format!("{name} is of floating-point numbers, what is reduced is {values}; cast it first")
        })?;
        let output = self.output.unwrap_or(outputs[0]);
        require(op, "output", outputs.contains(&output), || {
            let names: Vec<_> = outputs.iter().map(|dtype| dtype.name()).collect();
            format!("{name} must have one of the types {}, got {output}", names.join(", "))
        })?;
        require(op, "correction", self.correction.is_none() || self.has_correction(), || {
            format!("is of var and std, {name} has none")
        })?;
        let Spread { dims, operands, computing } = Spread::new(op, &program, &self.inputs, (None, None))?;
        let types: Vec<DType> = self.inputs.iter().map(TensorDesc::dtype).collect();
        let program = program.typed(&types, computing);
        if let Some(finish) = &self.finish {
            let gives_float = values.is_float() && row.gives_values_of_floats();
            check_finish(op, finish, computing, || (!gives_float).then(|| format!("{name} of {values}")))?;
        }
        let is_kept = self.kept(op, dims.len())?;
        let count = |axes: &[usize]| axes.iter().map(|&axis| dims[axis]).product::<u64>();
        // Of several sets another one may have elements.
        let is_none = count(&self.axes) == 0 && self.sets.is_empty();
        let extents: Vec<u64> = (0..dims.len())
            .filter(|&axis| is_kept[axis] || !self.axes.contains(&axis))
            .map(|axis| if is_kept[axis] { 1 } else { dims[axis] })
            .collect();
        require(op, "reduce", row.combine.is_of_none() || !is_none || extents.contains(&0), || {
            format!("{name} has no result without elements, and there are none along axes {:?} of {dims:?}", self.axes)
        })?;
        let most = if row.combine.is_position() { count(&self.axes).saturating_sub(1) } else { count(&self.axes) };
        let greatest = match output {
            DType::I32 => Some(u64::from(i32::MAX.unsigned_abs())),
            DType::U32 => Some(u64::from(u32::MAX)),
            _ => None,
        };
        let fits = !row.is_counted() || greatest.is_none_or(|greatest| most <= greatest);
        require(op, "output", fits, || {
            format!("{name} may be {most}, which {output} does not hold; i64, the default, does")
        })?;
        for (at, input) in self.inputs.iter().enumerate() {
            slots.declare(at, *input)?;
        }
        let default = slots.derived(OUTPUT, TensorDesc::contiguous(output, &extents))?;
        let output = slots.declare(OUTPUT, default)?;
        let row = if self.is_bool() { row.of_bools() } else { row };
        let correction = if self.has_correction() { self.correction.unwrap_or(1) } else { 0 };
        let sets = self.declare_sets(op, slots, dims.len(), (computing, values))?;
        let mut geometry =
            Geometry::new(program, operands, (output, &is_kept), &self.axes, computing, (row, correction))?;
        if !sets.is_empty() {
            geometry.count = sets.iter().map(|set| set.valid.derived.count).fold(0, u64::saturating_add);
            geometry.divisor = geometry.count;
        }
        let count = geometry.count;
        let finish = self.finish.as_ref().map(|finish| finish.with_count(count)).transpose()?;
        geometry.finish = finish.map(|finish| finish.typed(&[computing], computing));
        geometry.sets = sets;
        Ok(geometry)
    }

    /// Of each axis, whether it is reduced and kept.
    ///
    /// # Errors
    /// An axis that does not exist, is named twice, or is kept but not reduced.
    fn kept(&self, op: &'static str, rank: usize) -> Result<Vec<bool>> {
        for (field, axes) in [("axes", &self.axes), ("keep", &self.keep)] {
            if let Some(axis) = axes.iter().find(|&&axis| axis >= rank) {
                let rule = format!("must be below the rank of the inputs, {rank}; got {axis}");
                return Err(Error::InvalidDescriptor { op, field, rule });
            }
            let twice = axes.windows(2).find(|pair| pair[0] == pair[1]);
            require(op, field, twice.is_none(), || format!("must name each axis once, got {axes:?}"))?;
        }
        let (axes, keep) = (&self.axes, &self.keep);
        require(op, "keep", keep.iter().all(|axis| axes.contains(axis)), || {
            format!("must be among the axes that are reduced, {axes:?}; got {keep:?}")
        })?;
        Ok((0..rank).map(|axis| keep.contains(&axis)).collect())
    }
}

/// Refuses a finish that is no function of one number of the computing type. `others`: the results that are to be finished, if they are no floating-point
/// numbers.
fn check_finish(
    op: &'static str,
    finish: &Program,
    computing: DType,
    others: impl FnOnce() -> Option<String>,
) -> Result<()> {
    let field = "finish";
    if let Some(results) = others() {
        let rule =
            format!("is of floating-point results, those are of {results}; use a pointwise program after this op");
        return Err(Error::InvalidDescriptor { op, field, rule });
    }
    let (inputs, outputs) = (finish.inputs(), finish.outputs());
    require(op, field, (inputs, outputs) == (1, 1), || {
        format!("must have one input, the result, and one output; got {inputs} and {outputs}")
    })?;
    let other = finish.sources().iter().find(|&&source| source != Source::Count);
    require(op, field, other.is_none(), || {
        let name = other.map_or("", Source::name);
        format!("must have no sources but count; {name} is one of pointwise programs")
    })?;
    // These name the field of a program that is the map.
    let types = finish.check_types(op, &[computing], computing).and_then(|()| finish.check_literals(op, computing));
    types.map_err(|error| match error {
        Error::InvalidDescriptor { op, rule, .. } => Error::InvalidDescriptor { op, field, rule },
        other => other,
    })
}

descriptor! {
    /// A reduction along some axes. See the [operands and rules](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Mem, MemMut, Plan, PlanOptions, ReduceArgs, ReduceDescriptor, Reduction, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[2, 3])?;
    /// let plan = Plan::new(&device, ReduceDescriptor::of(x, &[1], Reduction::Sum)?, &PlanOptions::default())?;
    /// let (x, mut sums) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [0f32; 2]);
    /// let scratch = device.alloc(plan.workspace().bytes)?;
    /// let args = ReduceArgs::new([Mem::host(&x)], MemMut::host(&mut sums));
    /// plan.run(&mut device.queue(), args, Workspace::new(&scratch))?;
    /// assert_eq!(sums, [6.0, 15.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ReduceDescriptor(Fields): "reduce", ();
    args: ReduceArgs of forward;
    plan: ReducePlan;
    kernels: kernels!(
        cuda: {
            "rows" => cuda::rows, "columns" => cuda::columns, "lines" => cuda::lines, "program" => cuda::program, "sets" => sets::on_cuda
        };
        wgpu: {"rows" => wgpu::rows, "columns" => wgpu::columns, "sets" => sets::through_wgpu};
        cpu: cpu::accept;
        before: {"fast" => fast::accept}
    );
    gradients: ["out0"] => [
        "in0", "in1", "in2", "in3", "in4", "in5", "in6", "in7", "in8", "in9", "in10", "in11", "in12", "in13", "in14", "in15"
    ], gradients::derive;
    /// A reduction of what a program of one output makes of inputs of these shapes and types, which broadcast to each other. The axes are those of the
    /// extents that they broadcast to.
    ///
    /// ```
    /// use baracuda_ops::{DType, Descriptor, ReduceDescriptor, Reduction, TensorDesc};
    /// // The mean square error of each row.
    /// let program = r#"{"inputs": ["x", "y"], "let": [["d", "sub", "x", "y"], ["e", "mul", "d", "d"]], "outputs": ["e"]}"#;
    /// let x = TensorDesc::contiguous(DType::F32, &[8, 64])?;
    /// let error = ReduceDescriptor::new(serde_json::from_str(program).unwrap(), vec![x, x], vec![1], Reduction::Mean)?;
    /// assert_eq!(error.slots()[2].desc.dims(), [8]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there are not as many inputs as the program has, if they do not broadcast, if a type is no floating-point type, if f64
    /// is mixed with others, if the program has several outputs, if an axis does not exist or is named twice, or if the reduction has no
    /// result without elements and there are none.
    fn new(program: Program, inputs: Vec<TensorDesc>, axes: Vec<usize>, reduce: Reduction) =
        Fields::of(Some(program), inputs, axes, reduce);
    /// A reduction of the elements of a tensor.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    fn of(x: TensorDesc, axes: &[usize], reduce: Reduction) = Fields::of(None, vec![x], axes.to_vec(), reduce);
}

shared_steps! { ReduceDescriptor: layout }

steps! { ReduceDescriptor
    /// Leaves every reduced axis in place, with an extent of 1.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    keep_axes() = |it| it.with(|fields| fields.keep = fields.axes.clone());
    /// Leaves some of the reduced axes in place, with an extent of 1.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if one is not reduced or is named twice.
    keep(axes: Vec<usize>) = |it| it.with(|fields| fields.keep = axes);
    /// The type of the output. By default it is, of floating-point numbers, the type that all inputs share, or f32; of a sum or product of integers or bools
    /// i64; of a count or a position i64; else the type of the values, or bool.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the reduction has no results of that type, or if a count or a position may be too large for it.
    output(dtype: DType) = |it| it.with(|fields| fields.output = Some(dtype));
    /// What the number of values is lessened by, of a variance or standard deviation: 1 unless this says otherwise, as in PyTorch, which estimates the variance
    /// of what the values are a sample of; 0 for the variance of the values themselves. It is at most their number: it then divides by 0.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] of other reductions.
    correction(correction: u64) = |it| it.with(|fields| fields.correction = Some(correction));
    /// What becomes of each result before it is rounded to the output's type: a program of one input, the result, and one output. Of a comparison the output
    /// is bool. [`ProgramBuilder::count`](crate::ProgramBuilder::count) is the number of elements that were reduced to one.
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Function, Mem, MemMut, Plan, PlanOptions, Program, ReduceArgs, ReduceDescriptor, Reduction, TensorDesc, Workspace};
    /// // The root mean square of each row.
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[2, 2])?;
    /// let mean = ReduceDescriptor::new(Program::of(Function::Square), vec![x], vec![1], Reduction::Mean)?;
    /// let plan = Plan::new(&device, mean.finish(Program::of(Function::Sqrt))?, &PlanOptions::default())?;
    /// let (x, mut y) = ([1f32, 7.0, -2.0, 2.0], [0f32; 2]);
    /// let scratch = device.alloc(plan.workspace().bytes)?;
    /// plan.run(&mut device.queue(), ReduceArgs::new([Mem::host(&x)], MemMut::host(&mut y)), Workspace::new(&scratch))?;
    /// assert_eq!(y, [5.0, 2.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if results are no floating-point numbers, if there is another number of inputs or outputs, if a function takes other
    /// arguments than numbers of the computing type, if it does not hold a number of the program, or if there are sources other than the count.
    finish(program: Program) = |it| it.with(|fields| fields.finish = Some(program));
    /// Further sets of inputs of the same program, all of whose elements become one result together with those of the first, whatever their extents: as the norm
    /// of all gradients, by which they are clipped. The axes are all of those of the first set. Each set has as many inputs: all of the program, or the first of
    /// them, the rest of which are scalars that all sets share.
    ///
    /// ```
    /// use baracuda_ops::{
    ///     DType, Device, Function, Mem, MemMut, Operand, Plan, PlanOptions, Program, ReduceArgs, ReduceDescriptor, Reduction, TensorDesc, Workspace,
    /// };
    /// // The sum of the squares of all gradients, which `stock::clip_factor` takes.
    /// let device = Device::cpu();
    /// let [weight, bias] = [[2, 2].as_slice(), &[3]].map(|dims| TensorDesc::contiguous(DType::F32, dims));
    /// let squares = ReduceDescriptor::new(Program::of(Function::Square), vec![weight?], vec![0, 1], Reduction::Sum)?;
    /// let plan = Plan::new(&device, squares.sets(vec![vec![bias?]])?, &PlanOptions::default())?;
    /// let (weight, bias, mut sum) = ([1f32, 2.0, 3.0, 4.0], [0f32, 1.0, -2.0], [0f32]);
    /// let scratch = device.alloc(plan.workspace().bytes)?;
    /// let mut further: [Operand<'_>; 1] = [Mem::host(&bias).into()];
    /// let args = ReduceArgs::new([Mem::host(&weight)], MemMut::host(&mut sum)).sets(&mut further);
    /// plan.run(&mut device.queue(), args, Workspace::new(&scratch))?;
    /// assert_eq!(sum, [35.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] of other reductions than sums, means, products, extremes and norms of floating-point numbers, if not all axes are reduced or
    /// one is kept, if sets have different numbers of inputs, none or more than the program, if an input that they share is no scalar, if sets compute in
    /// different types, if there are more than 4096 sets with the first, or as [`new`](Self::new) says of any of them.
    sets(further: Vec<Vec<TensorDesc>>) = |it| it.with(|fields| fields.sets = further);
}

/// Operands of [`ReduceDescriptor`]; their shapes and types are in the [table](self).
#[derive(Debug)]
pub struct ReduceArgs<'a> {
    operands: Operands<'a>,
}

impl<'a> ReduceArgs<'a> {
    pub(crate) const OPERANDS: &'static [&'static str] = &forward::NAMES;

    /// The inputs, in the order of the program's, and the output. A run reports inputs that are missing or too many.
    pub fn new(inputs: impl IntoIterator<Item = impl Into<Mem<'a>>>, output: impl Into<MemMut<'a>>) -> Self {
        let mut operands = Operands::none();
        let mut inputs = inputs.into_iter();
        for (at, input) in (0..OUTPUT).zip(&mut inputs) {
            operands.put(at, input.into().0);
        }
        operands.put(OUTPUT, output.into().0);
        if inputs.next().is_some() {
            operands.put_too_many();
        }
        Self { operands }
    }

    /// The inputs of the sets after the first, set by set, without those that all sets share, as the slots of the descriptor have them.
    pub fn sets<'s>(self, inputs: &'s mut [Operand<'_>]) -> ReduceArgs<'s>
    where
        'a: 's,
    {
        ReduceArgs { operands: Operands { further: inputs, ..self.operands } }
    }
}

impl crate::plan::sealed::Sealed for ReduceArgs<'_> {}

impl<'a> crate::plan::Args<'a> for ReduceArgs<'a> {
    #[inline]
    fn lend<R>(self, to: impl FnOnce(&Operands<'_>) -> R) -> R {
        to(&self.operands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    fn rule(made: Result<ReduceDescriptor>) -> String {
        made.expect_err("a refusal").to_string()
    }

    #[test]
    fn equal_requests_are_equal_and_short() {
        let x = dense(&[2, 3, 4]);
        let identity: Program = serde_json::from_str(r#"{"inputs":["v"],"outputs":["v"]}"#).unwrap();
        let made = ReduceDescriptor::new(identity, vec![x], vec![2, 0], Reduction::Max).unwrap();
        assert_eq!(made, ReduceDescriptor::of(x, &[0, 2], Reduction::Max).unwrap().output(DType::F32).unwrap());
        let kept = made.keep_axes().unwrap();
        assert_eq!(kept.0.slots[1].desc.dims(), [1, 3, 1]);
        let json = r#"{"inputs":[{"dtype":"f32","dims":[2,3,4]}],"axes":[0,2],"reduce":"max","keep":[0,2]}"#;
        assert_eq!(serde_json::to_string(&kept).unwrap(), json);
        assert_eq!(serde_json::from_str::<ReduceDescriptor>(json).unwrap(), kept);
        assert_eq!(kept.keep(vec![2]).unwrap().0.slots[1].desc.dims(), [3, 1]);
    }

    #[test]
    fn types_of_outputs_follow_from_the_reduction_and_the_values() {
        use DType::{BF16, Bool, F16, F32, I8, I32, I64, U8, U32};
        use Reduction::{All, ArgMax, CountNonzero, Max, Prod, Sum, Var};
        for (reduce, dtype, output) in [
            (Sum, F16, F16),
            (Sum, U8, I64),
            (Sum, Bool, I64),
            (Prod, I32, I64),
            (Max, I8, I8),
            (Max, U32, U32),
            (Max, Bool, Bool),
            (ArgMax, BF16, I64),
            (CountNonzero, F32, I64),
            (All, I64, Bool),
            (Var, F32, F32),
        ] {
            let x = TensorDesc::contiguous(dtype, &[2, 3]).unwrap();
            let made = ReduceDescriptor::of(x, &[1], reduce).unwrap();
            assert_eq!(made.0.slots[1].desc.dtype(), output, "{reduce:?} of {dtype}");
            assert_eq!(made.clone().output(output).unwrap(), made);
        }
        let variance = ReduceDescriptor::of(dense(&[3]), &[0], Var).unwrap();
        assert_eq!(variance.clone().correction(1).unwrap(), variance);
        assert_ne!(variance.clone().correction(0).unwrap(), variance);
    }

    #[test]
    fn finishes_are_of_one_floating_point_number() {
        let read = |json: &str| serde_json::from_str::<Program>(json).unwrap();
        let of = |dtype, reduce, json: &str| {
            let x = TensorDesc::contiguous(dtype, &[2, 3])?;
            ReduceDescriptor::of(x, &[1], reduce)?.finish(read(json))
        };
        let root = r#"{"inputs":["v"],"let":[["y","sqrt","v"]],"outputs":["y"]}"#;
        let by_count = r#"{"inputs":["v"],"let":[["n","count"],["y","div","v","n"]],"outputs":["y"]}"#;
        let made = of(DType::BF16, Reduction::Sum, by_count).unwrap();
        let json = serde_json::to_string(&made).unwrap();
        assert!(json.contains(by_count), "{json}");
        assert_eq!(serde_json::from_str::<ReduceDescriptor>(&json).unwrap(), made);
        assert_eq!(
            made.0.derived.finish,
            Some(read(&by_count.replace(r#"["n","count"],"#, "").replace(r#""n"]"#, "3]")))
        );
        let count = read(r#"{"inputs":["v"],"let":[["n","count"]],"outputs":["n"]}"#);
        let counted = count.with_count(7).unwrap();
        let mut output = [0.0];
        counted.evaluate(&[1.0], |number| number, &mut output);
        assert_eq!(output, [7.0]);
        // What returns the result is none, and what compares it gives a bool.
        let same = of(DType::F32, Reduction::Max, r#"{"inputs":["v"],"outputs":["v"]}"#).unwrap();
        assert_eq!(same, ReduceDescriptor::of(dense(&[2, 3]), &[1], Reduction::Max).unwrap());
        let is_finite = r#"{"inputs":["v"],"let":[["y","isfinite","v"]],"outputs":["y"]}"#;
        let output = of(DType::F16, Reduction::Sum, is_finite).unwrap().0.slots[1].desc.dtype();
        assert_eq!(output, DType::Bool);
        let index = r#"{"inputs":["v"],"let":[["i","index",0],["y","add","v","i"]],"outputs":["y"]}"#;
        let two = r#"{"inputs":["v","w"],"let":[["y","add","v","w"]],"outputs":["y"]}"#;
        for (refused, expected) in [
            (
                of(DType::F32, Reduction::ArgMax, root),
                "finish: is of floating-point results, those are of argmax of f32",
            ),
            (of(DType::F32, Reduction::CountNonzero, root), "those are of count_nonzero of f32"),
            (of(DType::I32, Reduction::Sum, root), "finish: is of floating-point results, those are of sum of i32"),
            (of(DType::Bool, Reduction::Max, root), "those are of max of bool"),
            (
                of(DType::F32, Reduction::Sum, two),
                "finish: must have one input, the result, and one output; got 2 and 1",
            ),
            (
                of(DType::F32, Reduction::Sum, index),
                "finish: must have no sources but count; index is one of pointwise",
            ),
            (
                of(DType::F32, Reduction::Sum, &root.replace("sqrt", "logical_not")),
                "finish: instruction 0, logical_not, argument 0: must be bool",
            ),
            (
                of(DType::F32, Reduction::Sum, &root.replace("sqrt", "popcount")),
                "finish: instruction 0, popcount, is a function of integers; the program computes in f32",
            ),
            (
                of(
                    DType::F32,
                    Reduction::Sum,
                    &two.replace(r#""v","w"],"let""#, r#""v"],"let""#).replace(r#","w"]"#, ",1e39]"),
                ),
                "finish: the number 1e39 is beyond the range of f32",
            ),
        ] {
            let refused = rule(refused);
            assert!(refused.contains(expected), "{refused}");
        }
        let pointwise = crate::PointwiseDescriptor::new(count, vec![dense(&[3])]).unwrap_err().to_string();
        assert!(pointwise.contains("count: is known where a reduction ends"), "{pointwise}");
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let x = dense(&[2, 0, 4]);
        let of = |axes: &[usize], reduce| ReduceDescriptor::of(x, axes, reduce);
        for (refusal, expected) in [
            (rule(of(&[3], Reduction::Sum)), "axes: must be below the rank of the inputs, 3; got 3"),
            (rule(of(&[1, 0, 1], Reduction::Sum)), "axes: must name each axis once, got [0, 1, 1]"),
            (rule(of(&[1], Reduction::Max)), "max has no result without elements, and there are none along axes [1]"),
            (rule(of(&[1], Reduction::Sum).unwrap().keep(vec![0])), "keep: must be among the axes"),
            (
                rule(of(&[1], Reduction::Sum).unwrap().output(DType::I32)),
                "output: sum must have one of the types f32, f64, f16, bf16, got i32",
            ),
            (
                rule(ReduceDescriptor::of(TensorDesc::contiguous(DType::Bool, &[3]).unwrap(), &[0], Reduction::Mean)),
                "reduce: mean is of floating-point numbers, what is reduced is bool; cast it first",
            ),
            (
                rule(ReduceDescriptor::of(TensorDesc::contiguous(DType::F8E5M2, &[3]).unwrap(), &[0], Reduction::Sum)),
                "in0: must be f64, f32, f16, bf16, an integer or bool, got f8e5m2; cast it first",
            ),
            (rule(of(&[0], Reduction::Sum).unwrap().correction(0)), "correction: is of var and std, sum has none"),
            (
                rule(
                    ReduceDescriptor::of(dense(&[1 << 16, 1 << 16]), &[0, 1], Reduction::ArgMax)
                        .unwrap()
                        .output(DType::I32),
                ),
                "output: argmax may be 4294967295, which i32 does not hold; i64, the default, does",
            ),
        ] {
            assert!(refusal.contains(expected), "{refusal}");
        }
        // Nothing is written.
        assert!(of(&[0], Reduction::Max).is_ok());
        // Positions from 0 to 2^32 - 1 are numbers of u32, counts up to 2^32 are not.
        let large = |reduce| ReduceDescriptor::of(dense(&[1 << 16, 1 << 16]), &[0, 1], reduce).unwrap();
        assert!(large(Reduction::ArgMin).output(DType::U32).is_ok());
        assert!(large(Reduction::CountNonzero).output(DType::U32).is_err());
        let several = Program::builder();
        let mut b = several;
        let x = b.input("x");
        let two = b.finish([x, x]).unwrap();
        let refused = rule(ReduceDescriptor::new(two, vec![dense(&[2])], vec![0], Reduction::Sum));
        assert!(refused.contains("program: must have one output"), "{refused}");
    }
}
