//! Softmax and log-softmax along any one axis, forward and backward.
//!
//! With `t = scale * x`, and sums and maxima over the axis:
//!
//! - softmax: `y = exp(t - max(t)) / sum(exp(t - max(t)))`; backward: `dx = scale * y * (dy - sum(dy * y))`;
//! - log-softmax: `y = t - max(t) - log(sum(exp(t - max(t))))`; backward: `dx = scale * (dy - exp(y) * sum(dy))`.
//!
//! With a `bias`, `t = scale * x + bias`, with its extents repeated as NumPy's rules of broadcasting say. [`causal`](SoftmaxDescriptor::causal) masks
//! all places but those of keys `j <= i + keys - queries` for query `i`, where the last two extents are queries and keys: the last query sees every key.
//!
//! A tensor of rank 0 is a line of one element along axis 0.
//!
//! Without bias and mask the largest element is subtracted before the scale multiplies, the smallest if the scale is negative.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any | f64, f32, f16, bf16 | in | always |
//! | `bias` | broadcasts to x | of x, or f32 where x is f16 or bf16 | in | the field |
//! | `y` | of x | of x, or f32 where x is f16 or bf16 | out | always |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `y` | any | f64, f32, f16, bf16 | in | always; what forward wrote |
//! | `dy` | of y | of y | in | always |
//! | `dx` | of y | of y, or f16 or bf16 where y is f32 | out; accumulated in and out | always |
//!
//! Units: all values are plain numbers.
//!
//! Layout and aliasing: any strides on the CPU. On GPUs either the axis is dense in every operand (rows: the last axis of a contiguous
//! tensor, the channels of a channels-last one), or the same other axes are, in the same order (channels of a contiguous tensor); what
//! remains collapses to at most three strides. With a bias or a mask every backend takes any strides, of the bias also 0, and so it does for the gradient of
//! softmax, which does not depend on whether there were masks. `y` may lie at `x`, `dx` at `dy`, where the layouts and the types agree.
//!
//! Accumulation: f32, for f64 operands f64; sums and maxima meet in a fixed order; the same bits on the same device every time.
//!
//! NaN, infinity, empty: where a line along the axis has a NaN, where scaled it has +infinity, or only -infinity, its `y` is NaN
//! throughout; another -infinity gives `y = 0`, of log-softmax -infinity. Backward is what the formula says. With a zero extent nothing
//! is written.
//!
//! Masked places: with a bias or a mask a place is masked where `t` is -infinity, or where the causal mask says so, whatever x is there, which is then not
//! read. Its `y` is 0, of log-softmax -infinity, and a line of masked places alone is no exception: 0 or -infinity throughout, no NaN. A NaN
//! or a `t` of +infinity at a place that is not masked makes the line NaN but for what the causal mask hides. `t` is
//! computed in the accumulator's type, where it has to be finite for a result.
//!
//! Gradients: of x, the backward. Softmax has `y = 0` at masked places, so that its gradient there is 0 by the formula; of log-softmax, whose `y` is
//! -infinity there, [`masked`](SoftmaxBackwardDescriptor::masked) makes it 0 and leaves `dy` at these places out of the sum, as JAX does with `where`.
//! Of the bias, the gradient of `t`, which is dx where the scale is 1, summed over what is repeated, by the op [`reduce`](crate::ops::reduce). It has y's type
//! before it is summed.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: J. S. Bridle, "Probabilistic Interpretation of Feedforward Classification Network Outputs", 1990; P. Blanchard, D. J. Higham,
//! N. J. Higham, "Accurately computing the log-sum-exp and softmax functions", IMA Journal of Numerical Analysis 41 (2021), for the shift;
//! M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018, for the merge of parts of a line.
//!
//! Kernels, in the order in which they are tried. On CUDA (`csrc/softmax/softmax.cu`, `softmax_backward.cu`) `softmax_rows_resident` and
//! `softmax_rows_shared` for rows that registers, or the shared memory of a cluster, hold; `softmax_channels_resident` for lines side by side that
//! registers hold, of gradients `softmax_backward_channels_shared` for those that shared memory holds beside them; `softmax_split` for all others,
//! which it reads twice. Through wgpu (`csrc/softmax/*.wgsl`) `softmax_rows_resident`; `softmax_rows_twice` for many longer rows, forward alone;
//! `softmax_channels_resident`; `softmax_split`. Bias and masks are for `softmax_masked` (`csrc/softmax/softmax_masked.cu`, `softmax_masked.wgsl`) alone.
//! Backward, names begin with `softmax_backward`, and `softmax_backward_masked` also serves layouts of softmax that the others do not take. On the CPU `softmax_fast` and
//! `softmax_backward_fast` (`fast.rs`) for types other than f64 and lines whose elements lie side by side, `softmax_fast_columns` and
//! `softmax_backward_fast_columns` (`columns.rs`) for those of which at least 8 lie side by side, and the reference in `cpu.rs`.

use crate::dtype::{DType, Real};
use crate::error::{Error, Reason, Result};
use crate::gradients::{Derivation, Role};
use crate::operands::{args, operands};
use crate::ops::fields::{below_rank, beside, float, in_range, relay, require};
use crate::ops::pointwise::map::PointwiseDescriptor;
use crate::ops::pointwise::program::Program;
use crate::ops::reduce::{ReduceDescriptor, Reduction};
use crate::ops::valid::{Accumulate, Described, Op, Valid, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::{Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;
use masked::Lines;

mod columns;
mod cpu;
pub mod cross_entropy;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;
#[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "only GPU kernels need it"))]
mod geometry;
pub mod linear_cross_entropy;
mod masked;
#[cfg(feature = "wgpu")]
mod wgpu;

/// Every kind of shader of the family, without a device.
#[cfg(feature = "wgpu")]
pub(super) fn add_variants(variants: &mut crate::backend::wgpu::Variants) -> Result<()> {
    wgpu::add_variants(variants)?;
    cross_entropy::add_variants(variants)
}

operands! { $
    /// Operands of the forward op.
    mod forward {
        X x: In, always, in place y => "Input.";
        BIAS bias: In, if bias => "Added to the scaled input.", step "Where the bias lies.";
        Y y: Out, always => "Output.";
    }
}

operands! { $
    /// Operands of the backward op.
    mod backward {
        Y y: In, always => "What forward wrote.";
        DY dy: In, always, in place dx => "Gradient of y.";
        DX dx: Out, always => "Gradient of x.";
    }
}

fields! {
    /// The fields of a forward descriptor.
    ForwardFields: Fields<Kind = (), Derived = Option<Lines>> + normalise {
        x: TensorDesc,
        axis: usize,
        log: bool = default,
        scale: Real = one,
        /// The type of y where it is not that of x.
        output: Option<DType> = default,
        causal: bool = default,
        bias: Option<TensorDesc> = default,
    }
}

fields! {
    /// The fields of a backward descriptor.
    BackwardFields: Fields<Kind = (), Derived = Option<Lines>> + normalise {
        y: TensorDesc,
        axis: usize,
        log: bool = default,
        scale: Real = one,
        /// The type of dx, which is that of forward's input, where it is not that of y.
        input: Option<DType> = default,
        masked: bool = default,
    }
}

/// Whether results computed in f32 from inputs of a type may be kept as f32.
fn widens(input: DType, output: DType) -> bool {
    matches!(input, DType::F16 | DType::BF16) && output == DType::F32
}

/// The layout of a tensor beside another, of a type of its own; promises are bytes and stay.
fn beside_of(desc: &TensorDesc, dtype: Option<DType>) -> Result<TensorDesc> {
    let beside = beside(desc)?;
    let Some(dtype) = dtype else { return Ok(beside) };
    TensorDesc::strided(dtype, beside.dims(), beside.strides())?.align(beside.align_bytes().max(dtype.size_bytes()))
}

/// Requires a floating-point dtype, and an axis below the rank.
fn check_axis(op: &'static str, operand: &'static str, desc: &TensorDesc, axis: usize) -> Result<()> {
    float(op, operand, desc)?;
    below_rank(op, operand, desc, axis)
}

impl ForwardFields {
    fn normalise(&mut self, _: &Op<()>) -> Result<()> {
        self.output = self.output.filter(|output| *output != self.x.dtype());
        match &mut self.bias {
            Some(bias) => relay(SoftmaxDescriptor::OP.name, &mut self.layouts, [("bias", bias)]),
            None => Ok(()),
        }
    }

    /// Requires a bias that broadcasts to x, of its type or f32, and of a causal mask that the axis is the last of two or more.
    fn check_masks(&self, op: &'static str) -> Result<()> {
        let Self { x, axis, .. } = self;
        require(op, "causal", !self.causal || (x.rank() >= 2 && axis + 1 == x.rank()), || {
            format!(
                "needs x as [.., queries, keys] and the last axis; x has rank {}, the axis is {axis}: permute x, or add the mask as a bias",
                x.rank()
            )
        })?;
        let Some(bias) = &self.bias else { return Ok(()) };
        float(op, "bias", bias)?;
        let (of_x, of_bias) = (x.dtype(), bias.dtype());
        let fits = of_bias == of_x || (of_bias == DType::F32 && of_x.size_bytes() == 2);
        require(op, "bias", fits, || match of_x {
            DType::F16 | DType::BF16 => format!("must be {of_x}, the type of x, or f32; got {of_bias}"),
            _ => format!("must be {of_x}, the type of x; got {of_bias}"),
        })?;
        require(op, "bias", bias.broadcast_to(x.dims()).is_ok(), || {
            format!(
                "must broadcast to x, {:?}: counted from the last, extents must be equal or 1; got {:?}",
                x.dims(),
                bias.dims()
            )
        })
    }

    fn is_masked(&self) -> bool {
        self.causal || self.bias.is_some()
    }

    /// With a bias or a mask the lines of y, x and the bias, in this order.
    fn declare(&self, op: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Option<Lines>> {
        let x = self.x;
        check_axis(op.name, "x", &x, self.axis)?;
        in_range(op.name, "scale", self.scale, &x)?;
        slots.declare(forward::X, x)?;
        if let Some(output) = self.output {
            require(op.name, "output", widens(x.dtype(), output), || match x.dtype() {
                of_x @ (DType::F16 | DType::BF16) => format!("must be {of_x}, the type of x, or f32; got {output}"),
                of_x => format!("must be {of_x}, the type of x; got {output}"),
            })?;
        }
        self.check_masks(op.name)?;
        if let Some(bias) = self.bias {
            slots.declare(forward::BIAS, bias)?;
        }
        let y = slots.declare(forward::Y, slots.derived(forward::Y, beside_of(&x, self.output))?)?;
        let mut operands = vec![y, x];
        if let Some(bias) = self.bias {
            operands.push(bias.broadcast_to(x.dims())?);
        }
        self.is_masked().then(|| Lines::new(&operands, self.axis, self.causal)).transpose()
    }
}

impl BackwardFields {
    /// Whether masked places have a rule of their own. Of softmax their y of 0 is all that the formula needs.
    fn is_masked(&self) -> bool {
        self.masked && self.log
    }

    fn normalise(&mut self, _: &Op<()>) -> Result<()> {
        self.input = self.input.filter(|input| *input != self.y.dtype());
        Ok(())
    }

    /// The lines of dx, y and dy, in this order, but of log-softmax without a mask.
    fn declare(&self, op: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Option<Lines>> {
        let y = self.y;
        check_axis(op.name, "y", &y, self.axis)?;
        in_range(op.name, "scale", self.scale, &y)?;
        if let Some(input) = self.input {
            require(op.name, "input", widens(input, y.dtype()), || match y.dtype() {
                DType::F32 => format!("must be f32, the type of y, f16 or bf16; got {input}"),
                of_y => format!("must be {of_y}, the type of y; got {input}"),
            })?;
        }
        slots.declare(backward::Y, y)?;
        let dy = slots.declare(backward::DY, slots.derived(backward::DY, beside(&y))?)?;
        let dx = slots.declare(backward::DX, slots.derived(backward::DX, beside_of(&y, self.input))?)?;
        (self.is_masked() || !self.log).then(|| Lines::new(&[dx, y, dy], self.axis, false)).transpose()
    }
}

/// The lines of kernels of masks.
#[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "only GPU kernels need it"))]
fn check_masked(lines: Option<&Lines>) -> Result<&Lines, Reason> {
    lines.ok_or_else(|| "it serves masks, and there is none: other forms are faster".into())
}

/// Refuses what kernels of masks alone serve.
#[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "only GPU kernels need it"))]
fn check_unmasked(is_masked: bool) -> Result<(), Reason> {
    Reason::unless(!is_masked, || "it has no masks")
}

/// The steps of the gradients of x and of the bias.
fn derive(forward: &SoftmaxDescriptor, derivation: &mut Derivation) -> Result<()> {
    let ForwardFields { x, scale, bias, .. } = &forward.0.fields;
    let backward = forward.backward()?;
    let Some(bias) = bias.filter(|_| derivation.wants("bias")) else {
        derivation.push(backward, &[]);
        return Ok(());
    };
    let is_whole = bias.dims() == x.dims();
    if is_whole && bias.dtype() == x.dtype() && scale.get() == 1.0 {
        let role = derivation.gradient_for(&["x", "bias"]);
        derivation.push(backward, &[("dx", role)]);
        return Ok(());
    }
    if derivation.wants("x") {
        derivation.push(backward, &[]);
    }
    // The gradient of t, in y's type.
    let BackwardFields { y, axis, log, masked, .. } = forward.backward()?.0.fields;
    let fields = BackwardFields { log, masked, ..BackwardFields::minimal(y, axis) };
    let of_t = SoftmaxBackwardDescriptor(Valid::new(SoftmaxBackwardDescriptor::OP, fields)?);
    let dt = of_t.0.slots.at(backward::DX).map_or(y, |slot| slot.desc);
    let wanted = Role::GradientFor(vec!["bias"]);
    if is_whole && bias.dtype() == dt.dtype() {
        derivation.push(of_t, &[("dx", wanted)]);
        return Ok(());
    }
    let between = derivation.intermediate();
    derivation.push(of_t, &[("dx", between.clone())]);
    let roles = [("in0", between), ("out0", wanted)];
    if is_whole {
        let cast = PointwiseDescriptor::new(Program::identity(), vec![dt])?.outputs(vec![bias.dtype()])?;
        derivation.push(cast, &roles);
        return Ok(());
    }
    // Extents in front that the bias does not have are removed, its own of 1 stay.
    let front = x.rank() - bias.rank();
    let is_repeated = |&axis: &usize| axis >= front && bias.dims()[axis - front] != x.dims()[axis];
    let kept: Vec<usize> = (0..x.rank()).filter(is_repeated).collect();
    let axes: Vec<usize> = (0..front).chain(kept.iter().copied()).collect();
    let sum = ReduceDescriptor::of(dt, &axes, Reduction::Sum)?.keep(kept)?.output(bias.dtype())?;
    derivation.push(sum, &roles);
    Ok(())
}

descriptor! {
    /// Softmax along one axis of a tensor. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, SoftmaxDescriptor, TensorDesc};
    /// let scores = TensorDesc::contiguous(DType::BF16, &[32, 12, 128, 128])?;
    /// let attention = SoftmaxDescriptor::new(scores, 3)?.scale(0.125)?;
    /// let logits = TensorDesc::contiguous(DType::F32, &[8, 21, 512, 512])?;
    /// let classes = SoftmaxDescriptor::new(logits, 1)?.log()?;
    /// // PyTorch's `softmax(scores, 3, dtype=torch.float32)`.
    /// let exact = SoftmaxDescriptor::new(scores, 3)?.output(DType::F32)?;
    /// // Attention to what came before, with a bias for each head, and to no padding: -infinity masks a place.
    /// let bias = TensorDesc::contiguous(DType::F32, &[12, 1, 128])?;
    /// let masked = SoftmaxDescriptor::new(scores, 3)?.scale(0.125)?.causal()?.bias(bias)?;
    /// # let _ = (attention, classes, exact, masked);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    SoftmaxDescriptor(ForwardFields): "softmax", ();
    args: SoftmaxArgs of forward;
    plan: SoftmaxPlan;
    kernels: kernels!(
        cuda: {
            "rows_resident" => cuda::rows_resident, "rows_shared" => cuda::rows_shared,
            "channels_resident" => cuda::channels_resident, "split" => cuda::split, "masked" => cuda::masked
        };
        wgpu: {
            "rows_resident" => wgpu::rows_resident, "rows_twice" => wgpu::rows_twice,
            "channels_resident" => wgpu::channels_resident, "split" => wgpu::split, "masked" => wgpu::masked
        };
        cpu: cpu::forward;
        before: {"fast" => fast::forward, "fast_columns" => columns::forward}
    );
    gradients: ["y"] => ["x", "bias"], derive;
    /// Softmax of `x` along `axis`, counted from 0.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type, or `axis` is not below its rank; of rank 0, if
    /// `axis` is not 0.
    fn new(x: TensorDesc, axis: usize) = ForwardFields::minimal(x, axis);
}

impl SoftmaxDescriptor {
    /// The backward with the same types, layouts and options: `y` and `dy` are as forward's `y`, `dx` as `x`. Masks of log-softmax are its
    /// [`masked`](SoftmaxBackwardDescriptor::masked); of softmax they show in `y`. The gradient of a bias is one of [`gradients`](crate::Descriptor::gradients).
    ///
    /// # Errors
    /// None that a valid forward leads to.
    pub fn backward(&self) -> Result<SoftmaxBackwardDescriptor> {
        let ForwardFields { axis, log, scale, output, .. } = self.0.fields;
        let x = self.0.slots.always(forward::X).desc;
        let masked = log && self.0.fields.is_masked();
        let y = self.0.slots.always(forward::Y).desc;
        let (input, layouts) = (output.map(|_| x.dtype()), Layouts::from([("dx".into(), beside(&x)?)]));
        let accumulate = Accumulate::new();
        let fields = BackwardFields { y, axis, log, scale, input, masked, accumulate, layouts };
        Valid::new(SoftmaxBackwardDescriptor::OP, fields).map(SoftmaxBackwardDescriptor)
    }
}

shared_steps! { SoftmaxDescriptor: layout, y }

steps! { SoftmaxDescriptor
    /// The logarithm of softmax.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    log() = |it| it.with(|f| f.log = true);
    /// Multiplies x by a number first, 1 by default; it may be negative or 0.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is, unless operands are f64, neither 0 nor a normal number of f32.
    scale(scale: f64) = |it| it.real("scale", scale, |f, scale| f.scale = scale);
    /// The type of y: x's, which is the default, or f32 where x is of 16 bits. Its values are then those before they would be rounded to x's type.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is another one, or if `layout` has given y one of another type.
    output(dtype: DType) = |it| it.with(|f| f.output = Some(dtype));
    /// Lets query `i` see the keys `j <= i + keys - queries` alone, where the last two extents are queries and keys.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x has fewer than two extents, or if the axis is not the last.
    causal() = |it| it.with(|f| f.causal = true);
    /// Adds a tensor to the scaled x, of which extents of 1 and missing ones in front are repeated; -infinity masks a place.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it does not broadcast to x, or if its type is neither x's nor, where x is of 16 bits, f32.
    bias(bias: TensorDesc) = |it| it.with(|f| f.bias = Some(bias));
}

descriptor! {
    /// The gradient of [`SoftmaxDescriptor`] from its output. See the [formulas and operands](self).
    SoftmaxBackwardDescriptor(BackwardFields): "softmax_backward", ();
    args: SoftmaxBackwardArgs of backward;
    plan: SoftmaxBackwardPlan;
    kernels: kernels!(
        cuda: {
            "rows_resident" => cuda::rows_resident, "rows_shared" => cuda::rows_shared,
            "channels_resident" => cuda::channels_resident, "channels_shared" => cuda::channels_shared,
            "split" => cuda::split, "masked" => cuda::masked
        };
        wgpu: {
            "rows_resident" => wgpu::rows_resident, "channels_resident" => wgpu::channels_resident,
            "split" => wgpu::split, "masked" => wgpu::masked
        };
        cpu: cpu::backward;
        before: {"fast" => fast::backward, "fast_columns" => columns::backward}
    );
    /// The gradient of softmax along `axis`, counted from 0, whose output was `y`.
    ///
    /// # Errors
    /// As [`SoftmaxDescriptor::new`].
    fn new(y: TensorDesc, axis: usize) = BackwardFields::minimal(y, axis);
}

shared_steps! { SoftmaxBackwardDescriptor: accumulate, layout }

steps! { SoftmaxBackwardDescriptor
    /// As [`SoftmaxDescriptor::log`]: `y` is the logarithm of softmax.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    log() = |it| it.with(|f| f.log = true);
    /// As [`SoftmaxDescriptor::scale`].
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is, unless operands are f64, neither 0 nor a normal number of f32.
    scale(scale: f64) = |it| it.real("scale", scale, |f, scale| f.scale = scale);
    /// The type of forward's input, which is that of dx: y's, which is the default, or f16 or bf16 where y is f32.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is another one, or if `layout` has given dx one of another type.
    input(dtype: DType) = |it| it.with(|f| f.input = Some(dtype));
    /// Of log-softmax, takes places where `y` is -infinity for masked: their `dx` is 0, and their `dy` does not count. Softmax needs no such rule, and
    /// this changes nothing there.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    masked() = |it| it.with(|f| f.masked = true);
}

args! {
    /// Operands of [`SoftmaxDescriptor`]; their shapes and types are in the [tables](self).
    SoftmaxArgs of forward {
        /// The operands that are always there.
        new(x, y);
        bias(bias);
    }
}

args! {
    /// Operands of [`SoftmaxBackwardDescriptor`]; their shapes and types are in the [tables](self).
    SoftmaxBackwardArgs of backward {
        /// The operands.
        new(y, dy, dx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Descriptor;
    use crate::slots::Slot;

    fn desc(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    #[test]
    fn refuses_an_axis_past_the_rank_and_a_scale_that_is_not_finite() {
        let refused = |result: Result<SoftmaxDescriptor>| match result {
            Err(Error::InvalidDescriptor { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(SoftmaxDescriptor::new(desc(&[2, 3]), 2)), "axis");
        assert_eq!(refused(SoftmaxDescriptor::new(desc(&[]), 1)), "axis");
        assert_eq!(refused(SoftmaxDescriptor::new(desc(&[3]), 0).unwrap().scale(f64::NAN)), "scale");
        let integers = TensorDesc::contiguous(DType::I32, &[3]).unwrap();
        assert_eq!(refused(SoftmaxDescriptor::new(integers, 0)), "x");
    }

    #[test]
    fn refuses_masks_that_do_not_fit_x() {
        let refused = |result: Result<SoftmaxDescriptor>, field: &str, rule: &str| match result {
            Err(Error::InvalidDescriptor { field: got, rule: found, .. }) => {
                assert!(got == field && found.contains(rule), "{got}: {found}");
            }
            other => panic!("{other:?}"),
        };
        let softmax = |dims: &[u64], axis| SoftmaxDescriptor::new(desc(dims), axis).unwrap();
        let rule = "must broadcast to x, [2, 3]: counted from the last, extents must be equal or 1; got [2]";
        refused(softmax(&[2, 3], 1).bias(desc(&[2])), "bias", rule);
        refused(softmax(&[2, 3], 1).bias(desc(&[1, 2, 3])), "bias", "got [1, 2, 3]");
        let half = TensorDesc::contiguous(DType::F16, &[3]).unwrap();
        refused(softmax(&[2, 3], 1).bias(half), "bias", "must be f32, the type of x; got f16");
        let brain = TensorDesc::contiguous(DType::BF16, &[2, 3]).unwrap();
        let of_brain = SoftmaxDescriptor::new(brain, 1).unwrap();
        refused(of_brain.clone().bias(half), "bias", "must be bf16, the type of x, or f32; got f16");
        assert!(of_brain.bias(desc(&[3])).is_ok());
    }

    #[test]
    fn refuses_causal_masks_without_queries_or_along_another_axis() {
        for (dims, axis, rule) in [
            (&[3][..], 0, "needs x as [.., queries, keys] and the last axis; x has rank 1, the axis is 0"),
            (&[], 0, "x has rank 0, the axis is 0"),
            (&[4, 2, 3], 1, "x has rank 3, the axis is 1: permute x, or add the mask as a bias"),
        ] {
            let refused = SoftmaxDescriptor::new(desc(dims), axis).unwrap().causal().unwrap_err().to_string();
            assert!(refused.contains("causal") && refused.contains(rule), "{refused}");
        }
        assert!(SoftmaxDescriptor::new(desc(&[2, 3]), 1).unwrap().causal().is_ok());
    }

    #[test]
    fn results_of_16_bits_may_stay_in_f32_and_no_others() {
        let x = |dtype| TensorDesc::contiguous(dtype, &[2, 3]).unwrap();
        let forward = |of_x, output| SoftmaxDescriptor::new(x(of_x), 1).unwrap().output(output);
        let backward = |of_y, input| SoftmaxBackwardDescriptor::new(x(of_y), 1).unwrap().input(input);
        let all = [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I32];
        for (narrow, wide) in all.into_iter().flat_map(|narrow| all.map(|wide| (narrow, wide))) {
            if !narrow.is_float() || !wide.is_float() {
                continue;
            }
            let is_taken = narrow == wide || (narrow.size_bytes() == 2 && wide == DType::F32);
            for (field, refused) in [("output", forward(narrow, wide).err()), ("input", backward(wide, narrow).err())] {
                assert_eq!(refused.is_none(), is_taken, "{narrow} {wide}");
                assert!(
                    refused.is_none_or(|e| matches!(e, Error::InvalidDescriptor { field: got, .. } if got == field))
                );
            }
        }
        assert!(forward(DType::F16, DType::I32).is_err() && backward(DType::F32, DType::I32).is_err());
        // What says what the default says is the default.
        assert_eq!(forward(DType::F16, DType::F16).unwrap(), SoftmaxDescriptor::new(x(DType::F16), 1).unwrap());
        let forward = forward(DType::BF16, DType::F32).unwrap();
        let backward = forward.backward().unwrap();
        let types = |slots: &[Slot]| slots.iter().map(|slot| slot.desc.dtype()).collect::<Vec<_>>();
        assert_eq!(types(forward.slots()), [DType::BF16, DType::F32]);
        assert_eq!(types(backward.slots()), [DType::F32, DType::F32, DType::BF16]);
        assert!(forward.slots().iter().chain(backward.slots()).all(|slot| slot.in_place.is_none()));
        let json = r#"{"y":{"dtype":"f32","dims":[2,3]},"axis":1,"input":"bf16"}"#;
        assert_eq!(serde_json::to_string(&backward).unwrap(), json);
        assert_eq!(serde_json::from_str::<SoftmaxBackwardDescriptor>(json).unwrap(), backward);
    }

    #[test]
    fn backward_carries_options_and_layouts_over() {
        let x = TensorDesc::strided(DType::F32, &[2, 3], &[4, 1]).unwrap();
        let forward = SoftmaxDescriptor::new(x, 1).unwrap().log().unwrap().scale(-2.0).unwrap();
        let backward = forward.y(desc(&[2, 3])).unwrap().backward().unwrap();
        let json = serde_json::to_string(&backward).unwrap();
        let layouts = r#"{"dx":{"dtype":"f32","dims":[2,3],"strides":[4,1]}}"#;
        let expected = r#"{"y":{"dtype":"f32","dims":[2,3]},"axis":1,"log":true,"scale":-2.0,"layouts":"#;
        assert_eq!(json, format!("{expected}{layouts}}}"));
        assert_eq!(serde_json::from_str::<SoftmaxBackwardDescriptor>(&json).unwrap(), backward);
    }
}
