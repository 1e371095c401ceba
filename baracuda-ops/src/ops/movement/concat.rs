//! Concatenation: tensors one after the other along an axis.
//!
//! `out[.., i, ..] = in_k[.., i - s_k, ..]` for the input `k` with `s_k <= i < s_k + n_k`, where `n_k` is its extent along the axis and `s_k` the sum of
//! those before it.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `in0` | any, rank 1 to 8 | any | in | always |
//! | `in1`, `in2`, `in3`, `in4`, `in5`, `in6`, `in7`, `in8`, `in9`, `in10`, `in11`, `in12`, `in13`, `in14`, `in15`, `in16`, `in17`, `in18`, `in19`, `in20`, `in21`, `in22`, `in23`, `in24`, `in25`, `in26`, `in27`, `in28`, `in29`, `in30`, `in31`, `in32`, `in33`, `in34`, `in35`, `in36`, `in37`, `in38`, `in39`, `in40`, `in41`, `in42`, `in43`, `in44`, `in45`, `in46`, `in47`, `in48`, `in49`, `in50`, `in51`, `in52`, `in53`, `in54`, `in55`, `in56`, `in57`, `in58`, `in59`, `in60`, `in61`, `in62`, `in63` | that of in0 but for the axis | that of in0 | in | the inputs |
//! | `out` | that of in0 but for the axis, along which it has the sum | that of in0 | out | always |
//!
//! Units: elements are bits, of which nothing is computed.
//!
//! Layout and aliasing: any strides, 0 for inputs. out is dense unless [`layout`](ConcatDescriptor::layout) says otherwise. It overlaps no input; inputs may
//! be one tensor.
//!
//! Accumulation: none. NaN, infinity, empty: each NaN keeps its payload; inputs without elements add none.
//!
//! Gradients: of each input one step, a [copy](super::copy) of its slice of out's gradient. A `split` is no op: its parts are
//! [`narrow`](TensorDesc::narrow)ed tensors in the memory of the whole.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: `torch.cat`.
//!
//! Kernel files: those of [copies](super::copy), which a run launches once for each input.

use crate::backend::cpu::Operands as CpuOperands;
use crate::error::{Error, Result};
use crate::gradients::{Derivation, Role};
use crate::kernel::{Accepted, Candidate};
use crate::memory::{Mem, MemMut, Operand, Operands};
use crate::ops::fields::{beside, relay, require};
use crate::ops::movement::copy::CopyDescriptor;
use crate::ops::movement::cpu;
use crate::ops::movement::geometry::{Moves, Outside, axis as moved};
use crate::ops::valid::{self, Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::{Access, MAX_SLOTS, OperandEntry, SlotsBuilder};
use crate::tensor::TensorDesc;

/// The most inputs.
const MAX_INPUTS: usize = 64;
/// Inputs that a run finds by their index; those behind come in a list.
const INDEXED: usize = MAX_SLOTS - 1;
/// Names of inputs.
const INPUTS: [&str; MAX_INPUTS] = [
    "in0", "in1", "in2", "in3", "in4", "in5", "in6", "in7", "in8", "in9", "in10", "in11", "in12", "in13", "in14",
    "in15", "in16", "in17", "in18", "in19", "in20", "in21", "in22", "in23", "in24", "in25", "in26", "in27", "in28",
    "in29", "in30", "in31", "in32", "in33", "in34", "in35", "in36", "in37", "in38", "in39", "in40", "in41", "in42",
    "in43", "in44", "in45", "in46", "in47", "in48", "in49", "in50", "in51", "in52", "in53", "in54", "in55", "in56",
    "in57", "in58", "in59", "in60", "in61", "in62", "in63",
];
/// The index of the output.
pub(super) const OUT: usize = INDEXED;

/// The index of an input.
const fn row_of(input: usize) -> usize {
    if input < INDEXED { input } else { input + 1 }
}

/// The table of operands. The output has a row among those that are found by their index, though its place is behind all inputs.
mod forward {
    use super::{Access, INPUTS, MAX_INPUTS, OperandEntry, row_of};

    pub(super) const NAMES: [&str; MAX_INPUTS + 1] = {
        let (mut names, mut at) = (["out"; MAX_INPUTS + 1], 0);
        while at < MAX_INPUTS {
            names[at] = INPUTS[at];
            at += 1;
        }
        names
    };

    pub(crate) const TABLE: &[OperandEntry] = &{
        let out = OperandEntry { name: "out", access: Access::Out, declared: "always", in_place: None };
        let (mut rows, mut at) = ([out; MAX_INPUTS + 1], 0);
        while at < MAX_INPUTS {
            let declared = if at == 0 { "always" } else { "if inputs" };
            rows[row_of(at)] = OperandEntry { name: INPUTS[at], access: Access::In, declared, in_place: None };
            at += 1;
        }
        rows
    };
}

fields! {
    /// The fields.
    Fields: Fields<Kind = (), Derived = ()> + normalise {
        inputs: Vec<TensorDesc>,
        axis: usize,
    }
}

pub(super) type Valid = valid::Valid<Fields>;

impl Fields {
    fn normalise(&mut self, &Op { name: op, .. }: &Op<()>) -> Result<()> {
        for (name, input) in INPUTS.iter().zip(&mut self.inputs) {
            relay(op, &mut self.layouts, [(name, input)])?;
        }
        Ok(())
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<()> {
        let (inputs, axis) = (&self.inputs, self.axis);
        require(op, "inputs", (1..=MAX_INPUTS).contains(&inputs.len()), || {
            format!("must be 1 to {MAX_INPUTS}, got {}; longer lists are concatenated in parts", inputs.len())
        })?;
        let first = &inputs[0];
        require(op, "axis", axis < first.rank(), || {
            format!("must be below the rank of in0, {}; got {axis}", first.rank())
        })?;
        let mut dims = first.dims().to_vec();
        for (name, input) in INPUTS.into_iter().zip(inputs).skip(1) {
            let (dtype, of_first) = (input.dtype(), first.dtype());
            require(op, name, dtype == of_first, || format!("must be of in0's type, {of_first}; got {dtype}"))?;
            let is_alike = |at: usize| at == axis || input.dims()[at] == first.dims()[at];
            let fits = input.rank() == first.rank() && (0..first.rank()).all(is_alike);
            require(op, name, fits, || {
                format!("must have in0's extents, {:?}, but for axis {axis}; got {:?}", first.dims(), input.dims())
            })?;
            let sum = dims[axis].checked_add(input.dims()[axis]);
            dims[axis] = sum.ok_or_else(|| Error::InvalidDescriptor {
                op,
                field: "inputs",
                rule: format!("must have fewer than 2^64 elements along axis {axis} together"),
            })?;
        }
        for (at, input) in inputs.iter().enumerate() {
            slots.declare(row_of(at), *input)?;
        }
        slots.declare(OUT, slots.derived(OUT, TensorDesc::contiguous(first.dtype(), &dims))?)?;
        Ok(())
    }
}

/// What moves from each input that has elements, with its index and the alignment that both sides promise.
pub(super) fn moves(valid: &Valid) -> impl Iterator<Item = (usize, Moves, u64)> {
    let (axis, out) = (valid.fields.axis, valid.slots.always(OUT).desc);
    let mut start = 0;
    valid.fields.inputs.iter().enumerate().filter_map(move |(index, input)| {
        let first = start;
        start += input.dims()[axis];
        if input.is_empty() {
            return None;
        }
        let to = first * out.strides()[axis];
        let axes = (0..input.rank())
            .map(|at| moved(input.dims()[at], out.strides()[at], crate::narrow::signed(input.strides()[at])));
        let align = input.align_bytes().min(out.align_bytes());
        Some((row_of(index), Moves::new(axes, [0, to], out.dtype().size_bytes()), align))
    })
}

/// Each input's slice of out's gradient.
fn derive(forward: &ConcatDescriptor, derivation: &mut Derivation) -> Result<()> {
    let Fields { inputs, axis, .. } = &forward.0.fields;
    let out = forward.0.slots.always(OUT).desc;
    let mut start = 0;
    for (name, input) in INPUTS.into_iter().zip(inputs) {
        let mut starts = vec![0; out.rank()];
        starts[*axis] = start;
        start += input.dims()[*axis];
        if derivation.wants(name) {
            let slice = CopyDescriptor::slice(out, starts, input.dims().to_vec(), Vec::new())?;
            let slice = slice.layout("y", beside(input)?)?;
            derivation.push(slice, &[("x", Role::GradientOf("out")), ("y", Role::GradientFor(vec![name]))]);
        }
    }
    Ok(())
}

/// Concatenates on the CPU.
fn on_cpu(valid: &Valid) -> Accepted<'_> {
    let moves: Vec<(usize, Moves, u64)> = moves(valid).collect();
    Ok(Candidate::on_cpu(move || {
        move |operands: &CpuOperands<'_>| {
            let Some(out) = operands.get(OUT) else { return };
            for (input, moves, _) in &moves {
                if let Some(input) = operands.get(*input) {
                    cpu::run(moves, Outside::Nothing, &input, &out);
                }
            }
        }
    })
    .batch_invariant())
}

descriptor! {
    /// Tensors one after the other along an axis. See the [formula and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{ConcatArgs, ConcatDescriptor, DType, Device, Mem, MemMut, Plan, PlanOptions, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let [x, y] = [[2, 2], [2, 1]].map(|dims| TensorDesc::contiguous(DType::F32, &dims));
    /// let plan = Plan::new(&device, ConcatDescriptor::new(vec![x?, y?], 1)?, &PlanOptions::default())?;
    /// let (x, y, mut out) = ([1f32, 2.0, 3.0, 4.0], [5f32, 6.0], [0f32; 6]);
    /// let args = ConcatArgs::new([Mem::host(&x), Mem::host(&y)], MemMut::host(&mut out));
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!(out, [1.0, 2.0, 5.0, 3.0, 4.0, 6.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ConcatDescriptor(Fields): "concat", ();
    args: ConcatArgs of forward;
    plan: ConcatPlan;
    kernels: kernels!(cuda: super::cuda::concat; wgpu: super::wgpu::concat; cpu: on_cpu);
    gradients: ["out"] => [
        "in0", "in1", "in2", "in3", "in4", "in5", "in6", "in7", "in8", "in9", "in10", "in11", "in12", "in13", "in14", "in15", "in16", "in17", "in18",
        "in19", "in20", "in21", "in22", "in23", "in24", "in25", "in26", "in27", "in28", "in29", "in30", "in31", "in32", "in33", "in34", "in35",
        "in36", "in37", "in38", "in39", "in40", "in41", "in42", "in43", "in44", "in45", "in46", "in47", "in48", "in49", "in50", "in51", "in52",
        "in53", "in54", "in55", "in56", "in57", "in58", "in59", "in60", "in61", "in62", "in63"
    ], derive;
    /// Tensors of one type and of equal extents but for those along `axis`.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no input or more than 64, if types or other extents differ, if there is no such axis, or if the result would
    /// exceed `i64::MAX` bytes.
    fn new(inputs: Vec<TensorDesc>, axis: usize) = Fields::minimal(inputs, axis);
}

shared_steps! { ConcatDescriptor: layout }

/// Operands of [`ConcatDescriptor`]; their shapes and types are in the [table](self).
#[derive(Debug)]
pub struct ConcatArgs<'a> {
    operands: Operands<'a>,
    /// The inputs behind those that have an index; behind the last of them nothing counts.
    further: [Operand<'a>; MAX_INPUTS - INDEXED],
    count: usize,
}

impl<'a> ConcatArgs<'a> {
    pub(crate) const OPERANDS: &'static [&'static str] = &forward::NAMES;

    /// The inputs, in their order, and the output. A run reports inputs that are missing or too many.
    pub fn new(inputs: impl IntoIterator<Item = impl Into<Mem<'a>>>, out: impl Into<MemMut<'a>>) -> Self {
        let mut operands = Operands::none();
        let mut inputs = inputs.into_iter();
        for (at, input) in (0..INDEXED).zip(&mut inputs) {
            operands.put(at, input.into().0);
        }
        operands.put(OUT, out.into().0);
        let mut further: [Operand<'a>; MAX_INPUTS - INDEXED] = std::array::from_fn(|_| Mem::in_place().into());
        let mut count = 0;
        for (to, input) in further.iter_mut().zip(&mut inputs) {
            let input: Mem<'a> = input.into();
            *to = input.into();
            count += 1;
        }
        if inputs.next().is_some() {
            operands.put_too_many();
        }
        Self { operands, further, count }
    }
}

impl crate::plan::sealed::Sealed for ConcatArgs<'_> {}

impl<'a> crate::plan::Args<'a> for ConcatArgs<'a> {
    #[inline]
    fn lend<R>(self, to: impl FnOnce(&Operands<'_>) -> R) -> R {
        let Self { operands, further, count } = self;
        to(&Operands { further: &further[..count], ..operands })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::AnyDescriptor;
    use crate::backend::Device;
    use crate::dtype::DType;
    use crate::memory::Workspace;
    use crate::options::PlanOptions;
    use crate::plan::Plan;

    fn of(count: usize) -> Result<ConcatDescriptor> {
        ConcatDescriptor::new(vec![TensorDesc::contiguous(DType::F32, &[2])?; count], 0)
    }

    /// Runs with so many inputs, of which input `i` holds `i` and `-i`.
    fn run(plan: &ConcatPlan, count: usize, out: &mut [f32]) -> Result<()> {
        let inputs: Vec<[f32; 2]> = (0..count).map(|i| [i as f32, -(i as f32)]).collect();
        let args = ConcatArgs::new(inputs.iter().map(Mem::from), MemMut::host(out));
        plan.run(&mut Device::cpu().queue(), args, Workspace::none())
    }

    #[test]
    fn as_many_inputs_as_there_are_rows_follow_one_another_and_others_are_refused_by_name() {
        for count in [1, 22, 23, 24, 25, 63, 64] {
            let (descriptor, mut out) = (of(count).unwrap(), vec![0f32; 2 * count]);
            let plan = ConcatPlan::new(&Device::cpu(), descriptor, &PlanOptions::default()).unwrap();
            run(&plan, count, &mut out).unwrap();
            let expected: Vec<f32> = (0..count).flat_map(|i| [i as f32, -(i as f32)]).collect();
            assert_eq!(out, expected, "{count} inputs");
            let refused = |got| run(&plan, got, &mut vec![0f32; 2 * count]).unwrap_err();
            if count > 1 {
                let missing = Error::MissingOperand { op: "concat", operand: INPUTS[count - 1] };
                assert_eq!(refused(count - 1), missing, "{count} inputs");
            }
            let operand = INPUTS.get(count).copied().unwrap_or("beyond the last");
            assert_eq!(refused(count + 1), Error::UnexpectedOperand { op: "concat", operand }, "{count} inputs");
            let operand = if count < INDEXED { operand } else { "beyond the last" };
            assert_eq!(refused(80), Error::UnexpectedOperand { op: "concat", operand }, "{count} inputs");
        }
        let error = of(65).unwrap_err().to_string();
        assert!(error.contains("inputs: must be 1 to 64, got 65; longer lists are concatenated in parts"), "{error}");
    }

    #[test]
    fn slots_and_operands_of_any_plan_have_the_output_behind_every_input() {
        for count in [23, 24, 64] {
            let descriptor = AnyDescriptor::new(of(count).unwrap());
            let names: Vec<&str> = descriptor.slots().iter().map(|slot| slot.name).collect();
            assert_eq!(names, [&INPUTS[..count], &["out"]].concat());
            let plan = descriptor.plan(&Device::cpu(), &PlanOptions::default()).unwrap();
            let inputs: Vec<[f32; 2]> = (0..count).map(|i| [i as f32; 2]).collect();
            let mut out = vec![0f32; 2 * count];
            let mut operands: Vec<Operand<'_>> = inputs.iter().map(|input| Mem::host(input).into()).collect();
            operands.push(MemMut::host(&mut out).into());
            plan.run(&mut Device::cpu().queue(), &mut operands, Workspace::none()).unwrap();
            let last = [count - 1, count - 1].map(|value| value as f32);
            assert_eq!((&out[..4], &out[2 * count - 2..]), (&[0.0, 0.0, 1.0, 1.0][..], &last[..]));
        }
    }

    #[test]
    fn an_input_of_a_list_that_overlaps_the_output_or_is_in_place_is_refused() {
        let device = Device::cpu();
        let plan = Plan::new(&device, of(40).unwrap(), &PlanOptions::default()).unwrap();
        let memory = device.alloc(16 + 8 * 40).unwrap();
        let refused = |at: usize, operand: Mem<'_>| {
            let inputs = (0..40).map(|i| if i == at { operand } else { Mem::buffer(&memory, 0, 8) });
            let args = ConcatArgs::new(inputs, MemMut::buffer(&memory, 16, 8 * 40));
            plan.run(&mut device.queue(), args, Workspace::none()).unwrap_err()
        };
        for at in [3, 22, 23, 39] {
            let error = refused(at, Mem::buffer(&memory, 32, 8)).to_string();
            assert!(error.contains(INPUTS[at]) && error.contains("out"), "{error}");
            let in_place = refused(at, Mem::in_place());
            assert!(matches!(in_place, Error::NotInPlace { operand, .. } if operand == INPUTS[at]), "{in_place}");
            let small = refused(at, Mem::buffer(&memory, 0, 4));
            assert!(matches!(small, Error::TooSmall { operand, .. } if operand == INPUTS[at]), "{small}");
        }
    }
}
