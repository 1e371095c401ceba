//! Concatenation: tensors one after the other along an axis.
//!
//! `out[.., i, ..] = in_k[.., i - s_k, ..]` for the input `k` with `s_k <= i < s_k + n_k`, where `n_k` is its extent along the axis and `s_k` the sum of
//! those before it.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `in0` | any, rank 1 to 8 | any | in | always |
//! | `in1`, `in2`, `in3`, `in4`, `in5`, `in6`, `in7`, `in8`, `in9`, `in10`, `in11`, `in12`, `in13`, `in14`, `in15`, `in16`, `in17`, `in18`, `in19`, `in20`, `in21`, `in22` | that of in0 but for the axis | that of in0 | in | the inputs |
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
use crate::memory::{Mem, MemMut, Operands};
use crate::ops::fields::{beside, relay, require};
use crate::ops::movement::copy::CopyDescriptor;
use crate::ops::movement::cpu;
use crate::ops::movement::geometry::{Moves, Outside, axis as moved};
use crate::ops::valid::{self, Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::{Access, MAX_SLOTS, OperandEntry, SlotsBuilder};
use crate::tensor::TensorDesc;

/// The most inputs.
const MAX_INPUTS: usize = MAX_SLOTS - 1;
/// Names of inputs.
const INPUTS: [&str; MAX_INPUTS] = [
    "in0", "in1", "in2", "in3", "in4", "in5", "in6", "in7", "in8", "in9", "in10", "in11", "in12", "in13", "in14",
    "in15", "in16", "in17", "in18", "in19", "in20", "in21", "in22",
];
/// The index of the output.
pub(super) const OUT: usize = MAX_INPUTS;

/// The table of operands.
mod forward {
    use super::{Access, INPUTS, MAX_INPUTS, OUT, OperandEntry};

    pub(super) const NAMES: [&str; MAX_INPUTS + 1] = {
        let (mut names, mut at) = (["out"; MAX_INPUTS + 1], 0);
        while at < MAX_INPUTS {
            names[at] = INPUTS[at];
            at += 1;
        }
        names
    };

    pub(crate) const TABLE: &[OperandEntry] = &{
        let row = OperandEntry { name: "", access: Access::In, declared: "if inputs", in_place: None };
        let (mut rows, mut at) = ([row; MAX_INPUTS + 1], 0);
        while at <= MAX_INPUTS {
            let access = if at == OUT { Access::Out } else { Access::In };
            let declared = if at == 0 || at == OUT { "always" } else { "if inputs" };
            rows[at] = OperandEntry { name: NAMES[at], access, declared, in_place: None };
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
            slots.declare(at, *input)?;
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
        Some((index, Moves::new(axes, [0, to], out.dtype().size_bytes()), align))
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
    }))
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
        "in0", "in1", "in2", "in3", "in4", "in5", "in6", "in7", "in8", "in9", "in10", "in11", "in12", "in13", "in14", "in15", "in16", "in17",
        "in18", "in19", "in20", "in21", "in22"
    ], derive;
    /// Tensors of one type and of equal extents but for those along `axis`.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no input or more than 23, if types or other extents differ, if there is no such axis, or if the result would
    /// exceed `i64::MAX` bytes.
    fn new(inputs: Vec<TensorDesc>, axis: usize) = Fields::minimal(inputs, axis);
}

shared_steps! { ConcatDescriptor: layout }

/// Operands of [`ConcatDescriptor`]; their shapes and types are in the [table](self).
#[derive(Debug)]
pub struct ConcatArgs<'a> {
    operands: Operands<'a>,
}

impl<'a> ConcatArgs<'a> {
    pub(crate) const OPERANDS: &'static [&'static str] = &forward::NAMES;

    /// The inputs, in their order, and the output. A run reports inputs that are missing or too many.
    pub fn new(inputs: impl IntoIterator<Item = impl Into<Mem<'a>>>, out: impl Into<MemMut<'a>>) -> Self {
        let mut operands = Operands::none();
        let mut inputs = inputs.into_iter();
        for (at, input) in (0..MAX_INPUTS).zip(&mut inputs) {
            operands.put(at, input.into().0);
        }
        operands.put(OUT, out.into().0);
        if inputs.next().is_some() {
            operands.put_too_many();
        }
        Self { operands }
    }
}

impl crate::plan::sealed::Sealed for ConcatArgs<'_> {}

impl<'a> crate::plan::Args<'a> for ConcatArgs<'a> {
    #[inline]
    fn flatten(self) -> Operands<'a> {
        self.operands
    }
}
