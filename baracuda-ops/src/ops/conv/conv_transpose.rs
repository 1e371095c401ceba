//! Transposed convolution with bias and activation in one, two or three spatial extents, as PyTorch's `conv_transpose1d`, `2d` and `3d`.
//!
//! With groups g, each of which has `Ci / groups` channels k of x and `Co / groups` channels c of y, spatial indices i of x, o of y and r of the kernel, and
//! one stride, dilation and padding per axis:
//!
//! - `acc[n, g, c, o] = sum over k, r and i with stride * i + dilation * r - before = o of x[n, g, k, i] * weight[g, k, c, r]`, `pre = acc + bias`,
//!   `y = act(pre)`: each element of x is multiplied by the kernel, and the products are added up where they overlap. It is what the gradient of the data of a
//!   [convolution](super) computes, with x in the place of dy;
//! - backward: `dx` is the convolution of dy with the weight, `dweight` the gradient of that convolution's weight if x is what arrives at its output, `dbias`
//!   the sum of dy for each channel. With an activation, dy goes through its derivative first.
//!
//! The extent of y along an axis is `(in - 1) * stride - before - after + dilation * (kernel - 1) + output_padding + 1`. `output_padding` lengthens y behind its
//! last element; it decides between the extents from which a convolution with this stride makes the extent of x.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | `[N, Ci, spatial..]`, 1 to 3 spatial extents | T: f64, f32, f16 or bf16 | in | always |
//! | `weight` | `[Ci, Co / groups, kernel..]` | T | in | always |
//! | `bias` | `[Co]` | T or f32 | in | `bias` |
//! | `y` | `[N, Co, out..]` | T or f32 | out | always |
//! | `pre` | of y | T or f32 | out | `pre` |
//!
//! Of f64 every operand is f64.
//!
//! Units: all values are plain numbers; strides, dilations and padding count elements along their axis.
//!
//! Layout and aliasing: any strides, as of a [convolution](super). By default `y` and `pre` are channels-last if the channels of x are closer to each other in
//! memory than its spatial neighbours, else contiguous. Operands may not overlap.
//!
//! Workspace: none of its own where `y` or `pre` is of the type of the sums, f32 or f64, or without bias, activation and `pre`: else the sums, in f32. If
//! `output_padding` exceeds the padding behind y by the stride or more, also the part of y that x reaches.
//!
//! Accumulation: as [`conv_backward_data`](crate::ConvBackwardDataDescriptor): without bias, activation and `pre`, y has its bits. Sums stay in f32, for f64 in
//! f64, until the bias is added and the activation applied, and are rounded once. The gradients read dy in T: where y is f32 beside factors of 16 bits, dy is
//! rounded to T for dx and dweight, as that of a convolution may be; dbias sums the unrounded one.
//! [`Determinism::BatchInvariant`](crate::Determinism::BatchInvariant) is refused.
//!
//! NaN, infinity, empty: NaN and infinity propagate as the formula says. If a weight is not finite, outputs whose window touches the padding may be NaN where
//! the formula is not. If N or Co is 0, nothing is written; if Ci is 0, y is `act(bias)`.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field and the numbers that do not fit: groups that do not divide Ci, an `output_padding` that is not below the
//! stride or the dilation, padding that leaves y no extent. [`Error::Unsupported`] says which part refused which type or extent.
//!
//! Source: the page of PyTorch's `ConvTranspose2d` for the extents, names and rules; V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep
//! learning", 2016.
//!
//! Kernels: of its own it has the CPU's reference alone, which is that of a convolution (`cpu.rs`). Everywhere else it is a sequence of other ops:
//! `conv_backward_data`, and `pointwise` for bias and activation, in the place of the sums where these lie in `y` or `pre`; `pad` where x does not reach the
//! end of y.

use super::geometry::{Contracting, Contraction};
use super::{
    ConvBackwardBiasDescriptor, ConvBackwardDataDescriptor, ConvBackwardWeightDescriptor, ConvDescriptor, ConvWindow,
    MAX_AXES, Shape, SpatialAxis, WindowAxis, cpu, gradient_of, gradient_of_pre, leave_out, lying_as, table,
    window_fields,
};
use crate::dtype::DType;
use crate::error::{Error, Reason, Result};
use crate::gradients::{Derivation, Role};
use crate::operands::args;
use crate::ops::activation::Activation;
use crate::ops::fields::{beside_factors, float, relay, require};
use crate::ops::movement::{CopyDescriptor, PadDescriptor, PadMode};
use crate::ops::pointwise::map::{INPUTS, OUTPUTS};
use crate::ops::pointwise::{Function, PointwiseDescriptor, Program};
use crate::ops::valid::{self, Described, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::plan;
use crate::sequence::{Kernel, Lazy, Sequence, Sequenced, Tensor};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

window_fields! {
    /// The fields of the transposed convolution.
    TransposeFields<(), Transposed>: x, weight;
    /// One for each spatial extent; none where each is 0.
    output_padding: Vec<u64> = default,
    bias: Option<DType> = default,
    activation: Activation = default,
    /// None is the type of x.
    y: Option<DType> = default,
    pre: Option<DType> = default,
}

pub(super) type Valid = valid::Valid<TransposeFields>;

/// The convolution of y of which a transposed convolution computes the gradient of the data: its x is y, and its y is x.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Transposed {
    pub(super) shape: Shape,
    /// The extents of the part of y from which a convolution makes those of x: all of y, unless there are further places behind it that no element reaches.
    reached: Vec<u64>,
    /// The window of this convolution.
    window: ConvWindow,
    sequence: Lazy,
}

impl Transposed {
    fn new(op: &'static str, fields: &TransposeFields) -> Result<Self> {
        let (TransposeFields { x, weight, output_padding, .. }, window) = (fields, fields.window());
        let (groups, rank) = (window.groups, x.rank());
        require(op, "x", (3..=2 + MAX_AXES).contains(&rank), || {
            format!("must be [N, C, spatial..] of rank 3 to {}, got rank {rank}", 2 + MAX_AXES)
        })?;
        require(op, "x", weight.rank() != rank + 1, || {
            let of_weight = weight.rank();
            format!(
                "must be [N, C, spatial..] of the rank of weight, {of_weight}; got rank {rank}: one sample has N = 1"
            )
        })?;
        require(op, "weight", weight.rank() == rank, || {
            format!("must be [Ci, Co / groups, kernel..] of the rank of x, {rank}; got rank {}", weight.rank())
        })?;
        let (channels, of_weight) = (x.dims()[1], weight.dims());
        require(op, "groups", groups > 0, || "must be at least 1, got 0".into())?;
        require(op, "groups", channels.is_multiple_of(groups), || {
            format!("must divide Ci = {channels}, got {groups}")
        })?;
        require(op, "weight", of_weight[0] == channels, || {
            let is_of_conv = of_weight[1] == channels / groups;
            let help = if is_of_conv {
                "; these are those of a convolution's weight, [Co, Ci / groups, kernel..]"
            } else {
                ""
            };
            format!(
                "must be [Ci, Co / groups, kernel..] with the channels of x, Ci = {channels}; got {of_weight:?}{help}"
            )
        })?;
        let filters = of_weight[1].checked_mul(groups).filter(|&filters| filters <= i64::MAX as u64);
        require(op, "groups", filters.is_some(), || {
            format!("must leave y fewer than 2^63 channels, got {groups} times {}", of_weight[1])
        })?;
        let count = rank - 2;
        window.check_counts(op, count)?;
        require(op, "output_padding", output_padding.is_empty() || output_padding.len() == count, || {
            format!("must have one entry for each of the {count} spatial extents, got {}", output_padding.len())
        })?;
        let (mut axes, mut reached) = ([SpatialAxis::NONE; MAX_AXES], vec![x.dims()[0], filters.unwrap_or(0)]);
        let mut padding = Vec::new();
        for at in 0..count {
            let (input, kernel) = (x.dims()[2 + at], of_weight[2 + at]);
            let of_axis @ WindowAxis { stride, dilation, before, .. } = window.axis(op, "weight", kernel, at)?;
            let further = output_padding.get(at).copied().unwrap_or(0);
            let extent = Extent::new(op, at, input, &of_axis, further)?;
            axes[MAX_AXES - count + at] = SpatialAxis::new([extent.of_y, kernel, input], stride, dilation, before);
            reached.push(extent.reached);
            padding.push(extent.padding);
        }
        let (channels_in, channels_out) = (of_weight[1], channels / groups);
        let shape = Shape { samples: x.dims()[0], groups, channels_in, channels_out, axes, rank: count };
        let window = window.padding_per_side(&padding);
        Ok(Self { shape, reached, window, sequence: Lazy::default() })
    }
}

/// Along one axis, the extent of y and the convolution that makes the extent of x of the part of y that x reaches.
struct Extent {
    of_y: u64,
    reached: u64,
    padding: [u64; 2],
}

impl Extent {
    /// `input`: the extent of x; `further`: the output padding.
    fn new(op: &'static str, at: usize, input: u64, axis: &WindowAxis, further: u64) -> Result<Self> {
        let WindowAxis { stride, dilation, before, after, reach } = *axis;
        require(op, "x", input > 0, || {
            format!("must have at least 1 element along axis {at}, got 0: the extent of y follows from it")
        })?;
        require(op, "output_padding", further < stride.max(dilation), || {
            format!("must be below the stride, {stride}, or the dilation, {dilation}, along axis {at}; got {further}")
        })?;
        // What the products of x cover, from where the padding begins.
        let covered = (input - 1).checked_mul(stride).and_then(|last| last.checked_add(reach + 1));
        let most = covered.and_then(|covered| covered.checked_add(further)).filter(|&most| i64::try_from(most).is_ok());
        let Some((covered, most)) = covered.zip(most) else {
            let rule = format!(
                "must leave y an extent below 2^63 along axis {at}, got ({input} - 1) * {stride} + {reach} + {further} + 1"
            );
            return Err(Error::InvalidDescriptor { op, field: "x", rule });
        };
        let end = most.saturating_sub(after);
        require(op, "padding", end > before, || {
            let sum = format!("({input} - 1) * {stride} - {before} - {after} + {reach} + {further} + 1");
            let extent = most.cast_signed() - before.cast_signed() - after.cast_signed();
            format!("must leave y an extent of at least 1 along axis {at}, got {sum} = {extent}")
        })?;
        // A convolution leaves over less than a stride.
        let last = end.min(covered + stride - 1);
        let padding = [before.min(last), covered.saturating_sub(end)];
        Ok(Self { of_y: end - before, reached: last.saturating_sub(before), padding })
    }
}

impl TransposeFields {
    fn normalise(&mut self, op: &Op<()>) -> Result<()> {
        relay(op.name, &mut self.layouts, [("x", &mut self.x), ("weight", &mut self.weight)])?;
        self.y = self.y.filter(|&dtype| dtype != self.x.dtype());
        self.normalise_window(self.x.rank());
        leave_out(self.x.rank(), &mut self.output_padding, 0);
        Ok(())
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Transposed> {
        let (x, weight) = (self.x, self.weight);
        float(op, "x", &x)?;
        require(op, "weight", weight.dtype() == x.dtype(), || {
            format!("must be of the type of x, {}; got {}", x.dtype(), weight.dtype())
        })?;
        let transposed = Transposed::new(op, self)?;
        for (field, dtype) in [("bias", self.bias), ("y", self.y), ("pre", self.pre)] {
            dtype.map_or(Ok(()), |dtype| beside_factors(op, field, dtype, ("x", x.dtype())))?;
        }
        let dims = transposed.shape.input();
        let output = |dtype| {
            let rule = || format!("must have fewer than 2^64 bytes, its extents are {dims:?}");
            lying_as(&x, dtype, &dims).map_err(|_| Error::InvalidDescriptor { op, field: "y", rule: rule() })
        };
        slots.declare(table::X, x)?;
        slots.declare(table::WEIGHT, weight)?;
        slots.declare_dense(&dims[1..2], [(table::BIAS, self.bias)])?;
        slots.declare(table::Y, output(self.y.unwrap_or(x.dtype()))?)?;
        if let Some(dtype) = self.pre {
            slots.declare(table::PRE, output(dtype)?)?;
        }
        Ok(transposed)
    }
}

descriptor! {
    /// A transposed convolution with bias and activation, as decoders use it to make images larger. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{Activation, ConvTransposeDescriptor, ConvWindow, DType, Descriptor, TensorDesc};
    /// let x = TensorDesc::contiguous(DType::BF16, &[8, 64, 14, 14])?;
    /// let weight = TensorDesc::contiguous(DType::BF16, &[64, 32, 3, 3])?;
    /// let window = ConvWindow::new().stride(&[2, 2]).padding(&[1, 1]);
    /// let upsampling = ConvTransposeDescriptor::with_output_padding(x, weight, window, &[1, 1])?
    ///     .bias(DType::F32)?
    ///     .activation(Activation::Relu)?;
    /// assert_eq!(upsampling.slots()[3].desc.dims(), [8, 32, 28, 28]);
    /// // The derivative of ReLU, then the gradients of x, of the weight and of the bias.
    /// assert_eq!(upsampling.gradients_all()?.len(), 4);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ConvTransposeDescriptor(TransposeFields): "conv_transpose", ();
    args: ConvTransposeArgs of table;
    plan: ConvTransposePlan;
    kernels: const {
        kernels!(
            cuda: [Kernel::Cuda];
            wgpu: [Kernel::Wgpu];
            cpu: [Kernel::Cpu, plan::Function::<Self>::Cpu(cpu::contracting)]
        )
    };
    gradients: ["y"] => ["x", "weight", "bias"], Self::derive_gradients;
    flops: |valid: &Valid| valid.derived.shape.flops();
    /// The transposed convolution of `x` with `weight`, in the type of these two. The stride is that of y.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type or weight not of x's; if the ranks are not 3 to 5 and equal; if groups do not divide
    /// the channels of x, or the weight has not as many as x in front; if strides, dilations or paddings are not one for each spatial extent, 0 (paddings may
    /// be), or 2^31 or more; if x or y would have no element along a spatial axis.
    fn new(x: TensorDesc, weight: TensorDesc, window: ConvWindow) = TransposeFields::with_window(x, weight, window);
    /// As [`new`](Self::new), with a y that is longer behind its last element, by a number for each spatial extent.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if there is not one number for each spatial extent, or one is not below the stride or the dilation.
    fn with_output_padding(x: TensorDesc, weight: TensorDesc, window: ConvWindow, output_padding: &[u64]) =
        TransposeFields {
            output_padding: output_padding.to_vec(),
            ..TransposeFields::with_window(x, weight, window)
        };
}

impl ConvTransposeDescriptor {
    /// The output as it is declared.
    fn output(&self) -> TensorDesc {
        self.0.slots.always(table::Y).desc
    }

    fn derive_gradients(&self, derivation: &mut Derivation) -> Result<()> {
        let (fields, y) = (&self.0.fields, self.output());
        let saves_pre = self.0.slots.at(table::PRE).is_some_and(|pre| pre.desc == y);
        let dy = gradient_of_pre(derivation, fields.activation, y, saves_pre, || {
            let linear = self.0.clone().with(|fields| {
                fields.activation = Activation::Identity;
                fields.pre = None;
                fields.layouts.remove("pre");
            });
            linear.map(Self)
        })?;
        if derivation.wants("bias") {
            let sums = ConvBackwardBiasDescriptor::new(y)?.dbias(fields.bias.unwrap_or(y.dtype()))?;
            derivation.push(sums, &[("dy", dy.clone())]);
        }
        if !derivation.wants("x") && !derivation.wants("weight") {
            return Ok(());
        }
        let (dy, role) = self.factor(derivation, dy)?;
        let window = || self.0.derived.window.clone();
        if derivation.wants("x") {
            let dx = gradient_of(Self::OP.name, "x", &fields.x)?;
            let conv = ConvDescriptor::new(dy, fields.weight, window())?.layout("y", dx)?;
            derivation.push(conv, &[("x", role.clone()), ("y", Role::GradientFor(vec!["x"]))]);
        }
        if derivation.wants("weight") {
            let dweight = gradient_of(Self::OP.name, "weight", &fields.weight)?;
            let products = ConvBackwardWeightDescriptor::new(dy, fields.x, dweight, window())?;
            derivation.push(products, &[("x", role), ("dy", Role::Forward("x"))]);
        }
        Ok(())
    }

    /// The gradient of the pre-activation as a factor of products: in the type of x, and as much of it as x reaches.
    fn factor(&self, derivation: &mut Derivation, role: Role) -> Result<(TensorDesc, Role)> {
        let (Transposed { reached, .. }, mut desc, mut role) = (&self.0.derived, self.output(), role);
        if desc.dims() != reached {
            let rank = desc.rank();
            let part = CopyDescriptor::slice(desc, vec![0; rank], reached.clone(), vec![1; rank])?;
            desc = lying_as(&desc, desc.dtype(), reached)?;
            let copied = derivation.intermediate();
            derivation.push(part.layout("y", desc)?, &[("x", role), ("y", copied.clone())]);
            role = copied;
        }
        let dtype = self.0.fields.x.dtype();
        if desc.dtype() != dtype {
            let cast = PointwiseDescriptor::new(Program::identity(), vec![desc])?.outputs(vec![dtype])?;
            desc = lying_as(&desc, dtype, reached)?;
            let rounded = derivation.intermediate();
            derivation.push(cast.layout(OUTPUTS[0], desc)?, &[(INPUTS[0], role), (OUTPUTS[0], rounded.clone())]);
            role = rounded;
        }
        Ok((desc, role))
    }
}

impl Contracting for ConvTransposeDescriptor {
    fn contraction(&self) -> Contraction {
        Contraction::transposed(&self.0)
    }
}

impl Sequenced for ConvTransposeDescriptor {
    fn sequence(&self) -> Result<&Sequence, Reason> {
        self.0.derived.sequence.get(|| sequence(&self.0))
    }
}

/// The products, then bias and activation of each element.
fn sequence(valid: &Valid) -> Result<Sequence> {
    let always = |row| Tensor::operand(valid.slots.always(row));
    let [x, weight, y] = [table::X, table::WEIGHT, table::Y].map(always);
    let [bias, pre] = [table::BIAS, table::PRE].map(|row| valid.slots.at(row).map(Tensor::operand));
    let (activation, accumulator) = (valid.fields.activation, x.desc.dtype().accumulator());
    let mut sequence = Sequence::default();
    if bias.is_none() && pre.is_none() && activation.is_identity() {
        products(&mut sequence, valid, [x, weight, y])?;
        return Ok(sequence);
    }
    // In the place of an output that does not round them, if there is one.
    let outputs = || [y].into_iter().chain(pre);
    let sums = match outputs().find(|output| output.desc.dtype() == accumulator) {
        Some(output) => output,
        None => sequence.place(lying_as(&y.desc, accumulator, y.desc.dims())?)?,
    };
    products(&mut sequence, valid, [x, weight, sums])?;
    let bias = bias.map(|bias| along_channels(bias, y.desc.rank())).transpose()?;
    let inputs: Vec<Tensor> = [sums].into_iter().chain(bias).collect();
    let program = epilogue(bias.is_some(), activation, pre.is_some())?;
    let types = outputs().map(|output| output.desc.dtype()).collect();
    let mut map = PointwiseDescriptor::new(program, inputs.iter().map(|input| input.desc).collect())?.outputs(types)?;
    for (name, output) in OUTPUTS.iter().zip(outputs()) {
        map = map.layout(name, output.desc)?;
    }
    let named = INPUTS.iter().copied().zip(inputs).chain(OUTPUTS.iter().copied().zip(outputs()));
    sequence.push(map, &named.collect::<Vec<_>>());
    Ok(sequence)
}

/// What the products of x and the weight add up to, in `sums`, which has the extents of y.
fn products(sequence: &mut Sequence, valid: &Valid, [x, weight, sums]: [Tensor; 3]) -> Result<()> {
    let Transposed { reached, window, .. } = &valid.derived;
    let is_whole = sums.desc.dims() == reached;
    let mark = sequence.mark();
    let dx = if is_whole { sums } else { sequence.place(lying_as(&sums.desc, sums.desc.dtype(), reached)?)? };
    let product = ConvBackwardDataDescriptor::new(x.desc, weight.desc, dx.desc, window.clone())?;
    sequence.push(product, &[("dy", x), ("weight", weight), ("dx", dx)]);
    if !is_whole {
        let behind =
            sums.desc.dims().iter().zip(reached).map(|(of_y, reached)| of_y.cast_signed() - reached.cast_signed());
        let pad = PadDescriptor::new(dx.desc, vec![0; reached.len()], behind.collect(), PadMode::Constant(0.0))?;
        sequence.push(pad.layout("y", sums.desc)?, &[("x", dx), ("y", sums)]);
    }
    sequence.release(mark);
    Ok(())
}

/// A vector over channels as one that repeats along the other extents of an image.
fn along_channels(vector: Tensor, rank: usize) -> Result<Tensor> {
    let (channels, stride) = (vector.desc.dims()[0], vector.desc.strides()[0]);
    let [mut dims, mut strides] = [vec![1; rank], vec![0; rank]];
    (dims[1], strides[1]) = (channels, stride);
    vector.view(vector.desc.dtype(), &dims, &strides)
}

/// `y`, and `pre` if it is asked for, of the sums and the bias, if there is one.
fn epilogue(has_bias: bool, activation: Activation, has_pre: bool) -> Result<Program> {
    let mut b = Program::builder();
    let mut pre = b.input("sums");
    if has_bias {
        let bias = b.input("bias");
        pre = b.call(Function::Add, [pre, bias]);
    }
    let function = match activation {
        Activation::Identity => None,
        Activation::Relu => Some(Function::Relu),
        Activation::GeluErf => Some(Function::GeluErf),
        Activation::GeluTanh => Some(Function::GeluTanh),
        Activation::Silu => Some(Function::Silu),
        Activation::Sigmoid => Some(Function::Sigmoid),
        Activation::Tanh => Some(Function::Tanh),
    };
    let y = function.map_or(pre, |function| b.call(function, [pre]));
    b.finish([y].into_iter().chain(has_pre.then_some(pre)))
}

shared_steps! { ConvTransposeDescriptor: activation, layout }

steps! { ConvTransposeDescriptor
    /// Adds a bias of the given type to each channel of y.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32; for f64, if it is not f64.
    bias(dtype: DType) = |it| it.with(|f| f.bias = Some(dtype));
    /// The type of the output, x's unless told otherwise.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    y(dtype: DType) = |it| it.with(|f| f.y = Some(dtype));
    /// Also writes what the activation is applied to, for its backward.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    pre(dtype: DType) = |it| it.with(|f| f.pre = Some(dtype));
}

args! {
    /// Operands of [`ConvTransposeDescriptor`]; their shapes and types are in the [table](self).
    ConvTransposeArgs of table {
        /// The operands that every transposed convolution has.
        new(x, weight, y);
        bias(bias); pre(pre);
    }
}
