//! Cross-entropy of logits with the classes of indices or with probabilities of all classes, forward and backward.
//!
//! For each line of `x` along the axis of the classes, with its target `t`:
//!
//! - `logsumexp = max(x) + log(sum(exp(x - max(x))))`, and the line's loss is `logsumexp - x[t]`, 0 if the line is ignored;
//! - `none`: `loss` has each line's; `sum`: their sum; `mean`: their sum by `divisor`, the number of lines that count;
//! - backward: `dx[i] = (exp(x[i] - logsumexp) - (1 if i = t, else 0)) * g`, where `g` is `dloss` of the line, for `mean` `dloss / divisor`; 0 throughout a line
//!   that does not count.
//!
//! A line counts unless its target is the [ignored index](CrossEntropyDescriptor::ignore_index) or out of range.
//!
//! With a `weight` of each class, [label smoothing](CrossEntropyDescriptor::label_smoothing) `e` or a [z-loss](CrossEntropyDescriptor::z_loss) `z`, of `C` classes:
//!
//! - the loss of a line that counts is `(1 - e) * w[t] * (logsumexp - x[t]) + e / C * sum(w * (logsumexp - x)) + z * logsumexp^2`;
//! - `divisor` is the sum of `w[t]` over the lines that count, by which the mean divides all three parts, the z-loss too;
//! - backward, with `p = exp(x[i] - logsumexp)`: `dx[i] = ((1 - e) * w[t] * (p - (1 if i = t, else 0)) + e / C * (sum(w) * p - w[i]) + 2 * z * logsumexp * p) * g`.
//!
//! Without a weight every `w` is 1. A part whose number is 0 is left out.
//!
//! Targets of a floating-point type are probabilities `q` of the classes, any numbers, in place of indices. With `r = (1 - e) * q + e / C`:
//!
//! - the loss of a line is `sum(w * r * (logsumexp - x)) + z * logsumexp^2`; every line counts, and `divisor` is the number of lines, whatever the weights are;
//! - backward: `dx[i] = (sum(w * r) * p - w[i] * r[i] + 2 * z * logsumexp * p) * g`. The probabilities have no gradient.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank 0 to 8; one class or more | f64, f32, f16, bf16 | in | always |
//! | `targets` | of x without the axis; of x for probabilities | i64, i32, u32; of x, or f32, for probabilities | in | always |
//! | `weight` | the classes | of x, or f32 | in | `weight` |
//! | `loss` | that of targets for `none`, else rank 0 | f64 where x is f64, else f32 | out | always |
//! | `logsumexp` | that of targets | of loss | out | `stats` |
//! | `divisor` | rank 0 | of loss | out | `reduction` mean |
//! | `missing` | one element, of rank 0 | u32 | out | `missing` |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank 0 to 8; one class or more | f64, f32, f16, bf16 | in | always |
//! | `targets` | of x without the axis; of x for probabilities | i64, i32, u32; of x, or f32, for probabilities | in | always |
//! | `weight` | the classes | of x, or f32 | in | `weight`; forward's |
//! | `dloss` | that of targets for `none`, else rank 0 | f64 where x is f64, else f32 | in | always |
//! | `divisor` | rank 0 | of dloss | in | `reduction` mean; what forward wrote |
//! | `logsumexp` | that of targets | of dloss | in | `stats`; what forward wrote |
//! | `dx` | of x | of x | out; accumulated in and out | always |
//!
//! Units: logits and losses are natural logarithms; targets are positions along the axis, from 0 on.
//!
//! Layout and aliasing: any strides, 0 for inputs. Operands other than x and dx are dense unless `layout` says otherwise; dx lies as x does. `dx` may lie at
//! `x`, where the layouts agree. Without `stats` backward reads x twice, once for logsumexp, and with label smoothing forward does. The weight has no gradient.
//!
//! Accumulation: f32, for f64 operands f64; sums meet in a fixed order; the same bits on the same device every time.
//!
//! NaN, infinity, empty: a target out of range is never used as an index: the line's loss is NaN, and so is a sum or a mean that it is part of; its dx is 0.
//! `missing` is the number of elements of the targets that are out of range, modulo 2^32, ignored ones not among them. Each run writes it, whatever was there
//! before.
//! Whatever x is in a line that does not count, its loss and its dx follow from the target alone. Of other lines, with a NaN or +infinity logsumexp, loss and
//! dx are NaN; with -infinity alone logsumexp is -infinity, and loss and dx are NaN; another -infinity has `dx = 0`, of the target `-g`, and there the loss is
//! infinite. Without lines a sum is 0, and a mean is NaN, as it is where no line counts: 0 / 0. With label smoothing, -infinity of any class makes the loss
//! infinite, with a weight of 0 NaN; probabilities do, too, with a weight or a probability of 0 NaN, as in PyTorch. Weights and
//! probabilities are finite, and may be 0 or negative; where weights make the divisor 0, a loss and a dx are infinite or NaN.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which type or extent.
//!
//! Source: names and rules are those of PyTorch's `cross_entropy`, which raises an error for targets out of range; the z-loss is that of A. Chowdhery et al., "PaLM:
//! Scaling Language Modeling with Pathways", 2022, section 5; M. Milakov, N. Gimelshein, "Online
//! normalizer calculation for softmax", 2018, for the sum in one pass.
//!
//! Kernels: on CUDA `csrc/softmax/cross_entropy.cu` and `cross_entropy_backward.cu`, through wgpu the `.wgsl` files of the same names. A team of threads takes a line,
//! one thread where the classes do not lie side by side, and sums of lines follow in launches of their own (`cross_entropy_total`). The CPU's form for f32, f16 and bf16 is
//! in `fast.rs`, the reference in `cpu.rs`.

use super::masked::Lines;
use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::gradients::Derivation;
use crate::json;
use crate::operands::{args, operands};
use crate::ops::fields::{below_rank, beside, demand, float, in_range, parameters, relay, require};
use crate::ops::valid::{self, Described, Direction, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::{Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;

pub(super) mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;
#[cfg(feature = "wgpu")]
mod wgpu;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;

operands! { $
    /// Operands of the forward op.
    mod forward {
        X x: In, always => "Logits.";
        TARGETS targets: In, always => "The class of each line, or the probability of each class.";
        WEIGHT weight: In, if weight => "The weight of each class, if declared.", step "The weight of each class.";
        LOSS loss: Out, always => "The loss of each line, their sum or their mean.";
        LOGSUMEXP logsumexp: Out, if stats => "Logarithm of the sum of exponentials of each line, if declared.",
            step "Where logsumexp goes.";
        DIVISOR divisor: Out, if mean => "What the mean divides by, if declared.", step "Where the divisor goes.";
        MISSING missing: Out, if missing => "How many targets are out of range.", step "Where the number of targets out of range goes, one u32.";
    }
}

operands! { $
    /// Operands of the backward op.
    mod backward {
        X x: In, always, in place dx => "Forward's logits.";
        TARGETS targets: In, always => "Forward's targets.";
        WEIGHT weight: In, if weight => "Forward's weight, if declared.", step "Forward's weight.";
        DLOSS dloss: In, always => "Gradient of loss.";
        DIVISOR divisor: In, if mean => "What forward divided by, if declared.", step "The divisor that forward wrote.";
        LOGSUMEXP logsumexp: In, if stats => "What forward wrote, if declared.", step "The logsumexp that forward wrote.";
        DX dx: Out, always => "Gradient of x.";
    }
}

/// What becomes of the losses of lines.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LossReduction {
    /// Their sum, by the number of lines that count, or by the sum of the weights of their targets.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// They stay as they are.
    None,
}

impl LossReduction {
    /// Every reduction.
    pub const ALL: [Self; 3] = [Self::Mean, Self::Sum, Self::None];

    /// The name used in JSON and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Sum => "sum",
            Self::None => "none",
        }
    }
}

json::named!(LossReduction);

fields! {
    /// The fields of both descriptors.
    Fields: Fields<Kind = Direction, Derived = Lines> + normalise {
        x: TensorDesc,
        axis: usize,
        targets: DType,
        ignore_index: Option<i64> = default,
        reduction: LossReduction = default,
        stats: bool = default,
        weight: Option<DType> = default,
        label_smoothing: Real = default,
        z_loss: Real = default,
        missing: bool = default,
    }
}

type Valid = valid::Valid<Fields>;

/// The places of operands in the lines of a descriptor.
#[derive(Clone, Copy)]
enum At {
    X,
    Targets,
    /// Backward dloss.
    Loss,
    /// All 0 where it is not declared.
    LogSumExp,
    /// Backward alone.
    Dx,
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl Valid {
    /// Elements from the weight of a class to that of the next.
    fn weight_step(&self) -> u64 {
        let row = match self.op.kind {
            Direction::Forward => forward::WEIGHT,
            Direction::Backward => backward::WEIGHT,
        };
        self.slots.at(row).map_or(0, |weight| weight.desc.strides()[0])
    }

    /// Whether losses are other than those of one class of each line, all alike.
    fn has_options(&self) -> bool {
        let Fields { weight, label_smoothing, z_loss, .. } = &self.fields;
        self.fields.has_probabilities() || weight.is_some() || label_smoothing.get() > 0.0 || z_loss.get() > 0.0
    }
}

/// Extents or strides without those of the axis.
fn without(axis: usize, values: &[u64]) -> Vec<u64> {
    let others = values.iter().enumerate().filter(|(at, _)| *at != axis);
    others.map(|(_, &value)| value).collect()
}

/// Whether targets of a type are classes.
pub(super) fn is_index(targets: DType) -> bool {
    matches!(targets, DType::I64 | DType::I32 | DType::U32)
}

/// Refuses to ignore what no target is.
pub(super) fn check_ignored(op: &'static str, targets: DType, ignored: Option<i64>) -> Result<()> {
    let range = match targets {
        DType::I32 => i32::MIN.into()..=i32::MAX.into(),
        DType::U32 => 0..=u32::MAX.into(),
        _ => i64::MIN..=i64::MAX,
    };
    let Some(ignored) = ignored else { return Ok(()) };
    require(op, "ignore_index", range.contains(&ignored), || {
        format!("must be a number of {targets}, the type of targets; got {ignored}")
    })
}

impl Fields {
    fn normalise(&mut self, &Op { name: op, .. }: &Op<Direction>) -> Result<()> {
        relay(op, &mut self.layouts, [("x", &mut self.x)])
    }

    fn check(&self, op: &'static str) -> Result<()> {
        let Self { x, axis, targets, weight, label_smoothing, z_loss, .. } = self;
        float(op, "x", x)?;
        below_rank(op, "x", x, *axis)?;
        require(op, "x", x.dims().get(*axis) != Some(&0), || {
            format!("must have a class or more along axis {axis}; got {:?}", x.dims())
        })?;
        parameters(op, x, [("weight", *weight), ("bias", None)])?;
        require(op, "label_smoothing", (0.0..1.0).contains(&label_smoothing.get()), || {
            format!("must be at least 0 and below 1; got {}", label_smoothing.get())
        })?;
        require(op, "z_loss", z_loss.get() >= 0.0, || format!("must be at least 0; got {}", z_loss.get()))?;
        in_range(op, "label_smoothing", *label_smoothing, x)?;
        in_range(op, "z_loss", *z_loss, x)?;
        if is_index(*targets) {
            return check_ignored(op, *targets, self.ignore_index);
        }
        let of_x = x.dtype();
        require(op, "targets", [of_x, DType::F32].contains(targets), || {
            let beside = if of_x == DType::F32 { String::new() } else { format!("{of_x} or ") };
            format!(
                "must be i64, i32 or u32, the class of each line, or {beside}f32, the probability of each class; got {targets}"
            )
        })?;
        demand(op, "missing", !self.missing, "counts targets that are no classes; these are probabilities")?;
        require(op, "ignore_index", self.ignore_index.is_none(), || {
            format!("is for targets that are classes; those of {targets} are probabilities, and every line counts")
        })
    }

    /// A tensor of the lines, or of all together, as one of x's extents.
    fn along_x(&self, desc: &TensorDesc) -> Result<TensorDesc> {
        let mut strides = vec![0; self.x.rank()];
        if desc.rank() + 1 == self.x.rank() {
            strides.clone_from_slice(&[&desc.strides()[..self.axis], &[0], &desc.strides()[self.axis..]].concat());
        }
        TensorDesc::strided(desc.dtype(), self.x.dims(), &strides)
    }

    /// Extent of the axis.
    fn classes(&self) -> u64 {
        self.x.dims().get(self.axis).copied().unwrap_or(1)
    }

    /// Whether targets are probabilities of all classes, not one class.
    const fn has_probabilities(&self) -> bool {
        self.targets.is_float()
    }

    /// What the loss of the target counts and what that of each class beside it.
    fn smoothing(&self) -> [f64; 2] {
        let of_all = self.label_smoothing.get();
        [1.0 - of_all, of_all / self.classes() as f64]
    }

    /// The lines, each operand in the order of [`At`].
    fn declare(&self, &Op { name: op, kind, .. }: &Op<Direction>, slots: &mut SlotsBuilder<'_>) -> Result<Lines> {
        self.check(op)?;
        let counts = kind == Direction::Forward || !self.missing;
        demand(op, "missing", counts, "is forward's, which counts the targets that are out of range")?;
        let (x, dtype) = (self.x, self.x.dtype().accumulator());
        let dims = without(self.axis, x.dims());
        let (is_mean, is_each) = (self.reduction == LossReduction::Mean, self.reduction == LossReduction::None);
        let of_loss = if is_each { &dims[..] } else { &[] };
        let dense = |dtype, dims: &[u64]| TensorDesc::contiguous(dtype, dims);
        let [row_x, row_targets, row_weight] = match kind {
            Direction::Forward => [forward::X, forward::TARGETS, forward::WEIGHT],
            Direction::Backward => [backward::X, backward::TARGETS, backward::WEIGHT],
        };
        let [row_loss, row_logsumexp, row_divisor] = match kind {
            Direction::Forward => [forward::LOSS, forward::LOGSUMEXP, forward::DIVISOR],
            Direction::Backward => [backward::DLOSS, backward::LOGSUMEXP, backward::DIVISOR],
        };
        slots.declare(row_x, x)?;
        let of_targets = if self.has_probabilities() { x.dims() } else { &dims[..] };
        let targets = slots.declare(row_targets, slots.derived(row_targets, dense(self.targets, of_targets))?)?;
        if let Some(weight) = self.weight {
            slots.declare(row_weight, slots.derived(row_weight, dense(weight, &[self.classes()]))?)?;
        }
        let loss = slots.declare(row_loss, slots.derived(row_loss, dense(dtype, of_loss))?)?;
        let logsumexp = match self.stats {
            true => slots.declare(row_logsumexp, slots.derived(row_logsumexp, dense(dtype, &dims))?)?,
            false => dense(dtype, &[])?,
        };
        slots.declare_if(is_mean, row_divisor, dense(dtype, &[])?)?;
        slots.declare_if(self.missing, forward::MISSING, dense(DType::U32, &[])?)?;
        let targets = if self.has_probabilities() { targets } else { self.along_x(&targets)? };
        let mut operands = vec![x, targets, self.along_x(&loss)?, self.along_x(&logsumexp)?];
        if kind == Direction::Backward {
            operands.push(slots.declare(backward::DX, slots.derived(backward::DX, beside(&x))?)?);
        }
        Lines::new(&operands, self.axis, false)
    }
}

descriptor! {
    /// The cross-entropy of logits with class indices. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{CrossEntropyArgs, CrossEntropyDescriptor, DType, Device, Mem, MemMut, Plan, PlanOptions, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let logits = TensorDesc::contiguous(DType::F32, &[2, 3])?;
    /// let descriptor = CrossEntropyDescriptor::new(logits, 1, DType::I64)?.ignore_index(-100)?;
    /// let plan = Plan::new(&device, descriptor, &PlanOptions::default())?;
    /// let (x, targets) = ([0f32, 0.0, 0.0, 1.0, 2.0, 3.0], [2i64, -100]);
    /// let (mut loss, mut divisor) = ([0f32], [0f32]);
    /// let args = CrossEntropyArgs::new(Mem::host(&x), Mem::host(&targets), MemMut::host(&mut loss)).divisor(MemMut::host(&mut divisor));
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!((loss, divisor), ([3f32.ln()], [1.0])); // of the first line alone
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    CrossEntropyDescriptor(Fields): "cross_entropy", Direction::Forward;
    args: CrossEntropyArgs of forward;
    plan: CrossEntropyPlan;
    kernels: kernels!(cuda: cuda::accept; wgpu: wgpu::work; cpu: cpu::forward; before: {"fast" => fast::forward});
    gradients: ["loss"] => ["x"], |forward, derivation: &mut Derivation| {
        derivation.push(forward.backward()?, &[]);
        Ok(())
    };
    /// The mean of the cross-entropy of each line of logits `x` along `axis`, counted from 0, with a class: `targets` is the type of their indices. If it is x's
    /// or f32, the targets have the extents of x and are the probability of each class.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type or has no classes, if `axis` is not below its rank, of rank 0 if it is not 0, or if
    /// `targets` is neither i64, i32 or u32 nor x's type or f32.
    fn new(x: TensorDesc, axis: usize, targets: DType) = Fields::minimal(x, axis, targets);
}

impl CrossEntropyDescriptor {
    /// The backward with the same types, layouts and options: `dloss` lies as forward's `loss`, `dx` as `x`.
    ///
    /// # Errors
    /// As [`layout`](Self::layout).
    pub fn backward(&self) -> Result<CrossEntropyBackwardDescriptor> {
        let mut fields = Fields { missing: false, ..self.0.fields.clone() };
        let kept = [forward::TARGETS, forward::WEIGHT, forward::LOSS, forward::LOGSUMEXP, forward::DIVISOR];
        let kept = self.0.slots.all_at(&kept);
        fields.layouts = Layouts::new();
        fields.layouts.extend(kept.map(|slot| {
            let name = if slot.name == "loss" { "dloss" } else { slot.name };
            (name.to_string(), slot.desc)
        }));
        Valid::new(CrossEntropyBackwardDescriptor::OP, fields).map(CrossEntropyBackwardDescriptor)
    }
}

shared_steps! { CrossEntropyDescriptor: layout }

steps! { CrossEntropyDescriptor
    /// Leaves out lines whose target is this number, which need not be a class: PyTorch's default is -100, here there is none.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type of targets has no such number, or if targets are probabilities.
    ignore_index(index: i64) = |it| it.with(|f| f.ignore_index = Some(index));
    /// What becomes of the losses of lines; their mean, unless told otherwise.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if `layout` has given loss or divisor a layout that does not fit the shape it then has.
    reduction(reduction: LossReduction) = |it| it.with(|f| f.reduction = reduction);
    /// Writes the logsumexp of each line, with which backward reads x once.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    stats() = |it| it.with(|f| f.stats = true);
    /// Multiplies the loss of each class by its weight, of the given type; the mean divides by the sum of the weights of the targets.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32.
    weight(dtype: DType) = |it| it.with(|f| f.weight = Some(dtype));
    /// Takes this share of the loss from all classes alike, and what is left of 1 from the target: 0, unless told otherwise.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is below 0, or 1 or more, or if it is, unless x is f64, neither 0 nor a normal number of f32.
    label_smoothing(share: f64) = |it| it.real("label_smoothing", share, |f, share| f.label_smoothing = share);
    /// Adds the square of logsumexp times this factor to the loss of each line that counts: 0, unless told otherwise. No weight multiplies it, and the mean divides
    /// it by the divisor as all of the loss.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is below 0 or not finite, or if it is, unless x is f64, neither 0 nor a normal number of f32.
    z_loss(factor: f64) = |it| it.real("z_loss", factor, |f, factor| f.z_loss = factor);
    /// Writes how many targets are out of range to the operand `missing`.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if targets are probabilities.
    count_missing() = |it| it.with(|f| f.missing = true);
}

descriptor! {
    /// The gradient of the logits of [`CrossEntropyDescriptor`]. See the [formulas and operands](self).
    CrossEntropyBackwardDescriptor(Fields): "cross_entropy_backward", Direction::Backward;
    args: CrossEntropyBackwardArgs of backward;
    plan: CrossEntropyBackwardPlan;
    kernels: kernels!(cuda: cuda::accept_backward; wgpu: wgpu::work; cpu: cpu::backward; before: {"fast" => fast::backward});
    /// The gradient of the logits `x` whose mean cross-entropy along `axis`, counted from 0, was the loss.
    ///
    /// # Errors
    /// As [`CrossEntropyDescriptor::new`].
    fn new(x: TensorDesc, axis: usize, targets: DType) = Fields::minimal(x, axis, targets);
}

shared_steps! { CrossEntropyBackwardDescriptor: accumulate, layout }

steps! { CrossEntropyBackwardDescriptor
    /// As [`CrossEntropyDescriptor::ignore_index`].
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type of targets has no such number, or if targets are probabilities.
    ignore_index(index: i64) = |it| it.with(|f| f.ignore_index = Some(index));
    /// As [`CrossEntropyDescriptor::reduction`].
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if `layout` has given dloss or divisor a layout that does not fit the shape it then has.
    reduction(reduction: LossReduction) = |it| it.with(|f| f.reduction = reduction);
    /// Reads the logsumexp that forward wrote with [`stats`](CrossEntropyDescriptor::stats).
    ///
    /// # Errors
    /// None; the type is that of every other step.
    stats() = |it| it.with(|f| f.stats = true);
    /// As [`CrossEntropyDescriptor::weight`].
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32.
    weight(dtype: DType) = |it| it.with(|f| f.weight = Some(dtype));
    /// As [`CrossEntropyDescriptor::label_smoothing`].
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is below 0, or 1 or more, or if it is, unless x is f64, neither 0 nor a normal number of f32.
    label_smoothing(share: f64) = |it| it.real("label_smoothing", share, |f, share| f.label_smoothing = share);
    /// As [`CrossEntropyDescriptor::z_loss`].
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is below 0 or not finite, or if it is, unless x is f64, neither 0 nor a normal number of f32.
    z_loss(factor: f64) = |it| it.real("z_loss", factor, |f, factor| f.z_loss = factor);
}

args! {
    /// Operands of [`CrossEntropyDescriptor`]; their shapes and types are in the [tables](self).
    CrossEntropyArgs of forward {
        /// The operands that are always there.
        new(x, targets, loss);
        weight(weight); logsumexp(logsumexp); divisor(divisor); missing(missing);
    }
}

args! {
    /// Operands of [`CrossEntropyBackwardDescriptor`]; their shapes and types are in the [tables](self).
    CrossEntropyBackwardArgs of backward {
        /// The operands that are always there.
        new(x, targets, dloss, dx);
        weight(weight); divisor(divisor); logsumexp(logsumexp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::PlanOptions;
    use crate::plan::{Descriptor, Plan};
    use crate::{Device, Workspace};

    fn desc(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    #[test]
    fn refusals_name_the_field_and_the_numbers() {
        let of = |dims: &[u64], axis, targets| CrossEntropyDescriptor::new(desc(dims), axis, targets);
        let rule = |made: Result<CrossEntropyDescriptor>| made.expect_err("a refusal").to_string();
        let fine = || of(&[2, 3], 1, DType::I32).unwrap();
        let integers = TensorDesc::contiguous(DType::I32, &[3]).unwrap();
        for (refusal, expected) in [
            (rule(of(&[2, 3], 2, DType::I64)), "axis: must be below the rank of x, 2; got 2"),
            (rule(of(&[], 1, DType::I64)), "axis: must be 0 where x has rank 0; got 1"),
            (rule(of(&[2, 0], 1, DType::I64)), "x: must have a class or more along axis 1; got [2, 0]"),
            (
                rule(of(&[2, 3], 1, DType::F16)),
                "targets: must be i64, i32 or u32, the class of each line, or f32, the probability of each class; got f16",
            ),
            (
                rule(of(&[2, 3], 1, DType::F32).unwrap().ignore_index(1)),
                "ignore_index: is for targets that are classes; those of f32 are probabilities, and every line counts",
            ),
            (
                rule(of(&[2, 3], 1, DType::F32).unwrap().count_missing()),
                "missing: counts targets that are no classes; these are probabilities",
            ),
            (
                rule(CrossEntropyDescriptor::new(integers, 0, DType::I64)),
                "x: must be of a floating-point type, got i32",
            ),
            (
                rule(fine().ignore_index(1 << 31)),
                "ignore_index: must be a number of i32, the type of targets; got 2147483648",
            ),
            (rule(of(&[2, 3], 1, DType::U32).unwrap().ignore_index(-100)), "must be a number of u32"),
            (
                rule(fine().layout("divisor", desc(&[2]))),
                "divisor: must be f32 [], as the other fields say; got f32 [2]",
            ),
            (rule(fine().layout("logsumexp", desc(&[2]))), "logsumexp"),
            (rule(fine().weight(DType::F16)), "weight: must be f32, the type of x; got f16"),
            (
                rule(fine().weight(DType::F32).unwrap().layout("weight", desc(&[4]))),
                "weight: must be f32 [3], as the other fields say; got f32 [4]",
            ),
            (rule(fine().label_smoothing(1.0)), "label_smoothing: must be at least 0 and below 1; got 1"),
            (rule(fine().label_smoothing(-0.5)), "label_smoothing: must be at least 0 and below 1; got -0.5"),
            (rule(fine().label_smoothing(f64::NAN)), "label_smoothing: must be a finite number, got NaN"),
            (rule(fine().z_loss(-1.0)), "z_loss: must be at least 0; got -1"),
            (rule(fine().z_loss(f64::INFINITY)), "z_loss: must be a finite number, got inf"),
            (rule(fine().z_loss(1e-50)), "z_loss: must be 0 or a normal number of f32"),
        ] {
            assert!(refusal.contains(expected), "{refusal}");
        }
        assert!(fine().ignore_index(-100).is_ok() && of(&[0, 3], 1, DType::U32).is_ok());
    }

    #[test]
    fn equal_requests_are_equal_and_short() {
        let mean = CrossEntropyDescriptor::new(desc(&[2, 3]), 1, DType::I64).unwrap();
        assert_eq!(mean, mean.clone().reduction(LossReduction::Mean).unwrap());
        let json = r#"{"x":{"dtype":"f32","dims":[2,3]},"axis":1,"targets":"i64"}"#;
        assert_eq!(serde_json::to_string(&mean).unwrap(), json);
        let json = r#"{"x":{"dtype":"bf16","dims":[2,5,3]},"axis":1,"targets":"i32","ignore_index":-100,"reduction":"none","stats":true}"#;
        let each: CrossEntropyDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&each).unwrap(), json);
        let shapes = each.slots().iter().map(|slot| (slot.name, slot.desc.dtype(), slot.desc.dims().to_vec()));
        let shapes: Vec<_> = shapes.collect();
        let of = |name, dtype, dims: &[u64]| (name, dtype, dims.to_vec());
        assert_eq!(
            shapes,
            [
                of("x", DType::BF16, &[2, 5, 3]),
                of("targets", DType::I32, &[2, 3]),
                of("loss", DType::F32, &[2, 3]),
                of("logsumexp", DType::F32, &[2, 3])
            ]
        );
        assert_eq!(serde_json::to_string(&each.backward().unwrap()).unwrap(), json);
        let plain = mean.clone().label_smoothing(0.0).unwrap().z_loss(-0.0).unwrap();
        assert_eq!(mean, plain);
        let json = r#"{"x":{"dtype":"bf16","dims":[2,3]},"axis":1,"targets":"i64","weight":"f32","label_smoothing":0.1,"z_loss":0.001,"missing":true}"#;
        let all: CrossEntropyDescriptor = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&all).unwrap(), json);
        let names: Vec<_> = all.slots().iter().map(|slot| slot.name).collect();
        assert_eq!(names, ["x", "targets", "weight", "loss", "divisor", "missing"]);
        let backward = serde_json::to_string(&all.backward().unwrap()).unwrap();
        assert_eq!(backward, json.replace(r#","missing":true"#, ""));
    }

    #[test]
    fn losses_and_gradients_are_those_of_pytorch() {
        let x = TensorDesc::contiguous(DType::F64, &[3, 4]).unwrap();
        let logits = [0.5, -1.25, 2.0, 0.125, 3.0, -0.5, 0.25, 1.5, -2.0, 0.75, 1.0, -0.375];
        let (targets, weight) = ([2i64, -100, 1], [0.5f64, 1.5, 2.0, 0.25]);
        let device = Device::cpu();
        let options = PlanOptions::default();
        for (mean, has_weight, smoothing, z, expected, gradient) in PYTORCH {
            let reduction = if mean { LossReduction::Mean } else { LossReduction::Sum };
            let forward = CrossEntropyDescriptor::new(x, 1, DType::I64).unwrap().ignore_index(-100).unwrap();
            let forward = forward.reduction(reduction).unwrap().label_smoothing(smoothing).unwrap().z_loss(z).unwrap();
            let forward = if has_weight { forward.weight(DType::F64).unwrap() } else { forward };
            let (mut loss, mut divisor, mut dx) = ([0f64], [0f64], [0f64; 12]);
            let plan = Plan::new(&device, forward.clone(), &options).unwrap();
            let mut args = CrossEntropyArgs::new(&logits[..], &targets[..], &mut loss[..]);
            args.divisor = mean.then_some((&mut divisor[..]).into());
            args.weight = has_weight.then_some((&weight[..]).into());
            plan.run(&mut device.queue(), args, Workspace::none()).unwrap();
            let plan = Plan::new(&device, forward.backward().unwrap(), &options).unwrap();
            let mut args = CrossEntropyBackwardArgs::new(&logits[..], &targets[..], &[1f64][..], &mut dx[..]);
            args.divisor = mean.then_some((&divisor[..]).into());
            args.weight = has_weight.then_some((&weight[..]).into());
            plan.run(&mut device.queue(), args, Workspace::none()).unwrap();
            let near = |ours: f64, theirs: f64| (ours - theirs).abs() < 1e-14;
            assert!(near(loss[0], expected), "{loss:?} should be {expected}");
            assert!(dx.iter().zip(gradient).all(|(&ours, theirs)| near(ours, theirs)), "{dx:?} should be {gradient:?}");
        }
    }

    /// Losses and gradients of PyTorch 2 on the CPU in f64: whether they are the mean, else the sum, whether there is a weight, label smoothing, z-loss.
    const PYTORCH: [(bool, bool, f64, f64, f64, [f64; 12]); 4] = [
        (
            true,
            true,
            0.0,
            0.0,
            0.619773278905143,
            [
                0.09009157934436403,
                0.015655569014348805,
                -0.1676661249514405,
                0.06191897659272761,
                0.0,
                0.0,
                0.0,
                0.0,
                0.010251289346189428,
                -0.2682142829906873,
                0.20590265067316812,
                0.05206034297132974,
            ],
        ),
        (
            true,
            true,
            0.1,
            0.0,
            0.6499677978974633,
            [
                0.08229710799116839,
                0.00420742850251549,
                -0.14373534677291322,
                0.057230810279229216,
                0.0,
                0.0,
                0.0,
                0.0,
                0.0063808648354970006,
                -0.24074850926060185,
                0.1856114424094865,
                0.048756202015618345,
            ],
        ),
        (
            false,
            false,
            0.3,
            0.0,
            2.099116720846315,
            [
                0.08266026385263706,
                -0.04760275422488959,
                -0.06841571866502091,
                0.03335820903727331,
                0.0,
                0.0,
                0.0,
                0.0,
                -0.051080324858891336,
                -0.40083332697827034,
                0.4054395182373922,
                0.046474133599769374,
            ],
        ),
        (
            true,
            true,
            0.1,
            0.01,
            0.6742916643576636,
            [
                0.08441183915564882,
                0.004574913676304805,
                -0.13425777922635804,
                0.058684242336101755,
                0.0,
                0.0,
                0.0,
                0.0,
                0.006617745332826827,
                -0.23704307484032794,
                0.19036931438498778,
                0.04995918044279482,
            ],
        ),
    ];

    #[test]
    fn backward_carries_layouts_over_and_takes_the_place_of_x() {
        let x = TensorDesc::strided(DType::F32, &[2, 3], &[4, 1]).unwrap();
        let apart = TensorDesc::strided(DType::I64, &[2], &[3]).unwrap();
        let forward = CrossEntropyDescriptor::new(x, 1, DType::I64).unwrap().layout("targets", apart).unwrap();
        let backward = forward.backward().unwrap();
        let slots = backward.slots();
        let names: Vec<_> = slots.iter().map(|slot| slot.name).collect();
        assert_eq!(names, ["x", "targets", "dloss", "divisor", "dx"]);
        assert_eq!((slots[1].desc, slots[4].desc), (apart, x));
        assert_eq!(slots[0].in_place, Some(slots[4].position));
        let again = CrossEntropyBackwardDescriptor::new(x, 1, DType::I64).unwrap().layout("targets", apart).unwrap();
        assert_eq!(backward, again);
    }

    #[test]
    fn lines_follow_every_operand() {
        let x = TensorDesc::contiguous(DType::F32, &[2, 5, 3]).unwrap();
        let of = CrossEntropyDescriptor::new(x, 1, DType::I32).unwrap().reduction(LossReduction::None).unwrap();
        let turned = TensorDesc::strided(DType::I32, &[2, 3], &[1, 2]).unwrap();
        let lines = of.layout("targets", turned).unwrap().0.derived;
        assert_eq!((lines.count, lines.dim, &lines.steps[..2]), (6, 5, &[3, 0][..]));
        // Line 4 is the second of the second sample.
        let at = |operand: At| lines.offset(operand as usize, 4);
        assert_eq!([at(At::X), at(At::Targets), at(At::Loss), at(At::LogSumExp)], [16, 3, 4, 0]);
    }
}
