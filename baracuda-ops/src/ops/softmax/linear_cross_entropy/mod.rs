//! Cross-entropy of the logits `x weight^T`, forward and backward, without a tensor of all logits: the loss of a language model with its last layer.
//!
//! With `logits[n, v] = sum over d of x[n, d] * weight[v, d]`, and the target `t` of row `n`:
//!
//! - `logsumexp[n] = log(sum over v of exp(logits[n, v]))`, and the loss of a row is `logsumexp[n] - logits[n, t]`, 0 if the row is ignored;
//! - `none`: `loss` has that of each row; `sum`: their sum; `mean`: their sum by `divisor`, the number of rows that count;
//! - backward: `dlogits[n, v] = (exp(logits[n, v] - logsumexp[n]) - (1 if v = t, else 0)) * g[n]`, where `g` is `dloss` of the row, for `mean`
//!   `dloss / divisor`, and 0 of a row that does not count; where `g[n]` is 0, `dlogits[n, v]` is;
//! - `dx = dlogits weight` and `dweight = dlogits^T x`.
//!
//! A row counts unless its target is the [ignored index](LinearCrossEntropyDescriptor::ignore_index) or out of range.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | `[N, D]`, D of 1 or more | T: f64, f32, f16 or bf16 | in | always |
//! | `weight` | `[V, D]`, V of 1 to 2^31 - 1 | T | in | always |
//! | `targets` | `[N]` | i64, i32, u32 | in | always |
//! | `loss` | `[N]` for `none`, else rank 0 | f64 where T is f64, else f32 | out | always |
//! | `logsumexp` | `[N]` | of loss | out | always |
//! | `divisor` | rank 0 | of loss | out | `reduction` mean |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | `[N, D]` | T: f64, f32, f16 or bf16 | in | always |
//! | `weight` | `[V, D]` | T | in | always |
//! | `targets` | `[N]` | i64, i32, u32 | in | always |
//! | `dloss` | `[N]` for `none`, else rank 0 | f64 where T is f64, else f32 | in | always |
//! | `divisor` | rank 0 | of dloss | in | `reduction` mean; what forward wrote |
//! | `logsumexp` | `[N]` | of dloss | in | always; what forward wrote |
//! | `dx` | of x | T | out; accumulated in and out | `dx` |
//! | `dweight` | of weight | T | out; accumulated in and out | `dweight` |
//!
//! Units: logits and losses are natural logarithms; targets are positions among the rows of the weight, from 0 on.
//!
//! Layout and aliasing: any strides, 0 for inputs. `dx` lies as x does and `dweight` as the weight, densely where that addresses an element twice; the others are
//! dense; unless [`layout`](LinearCrossEntropyDescriptor::layout) says otherwise. No operand may lie at another.
//!
//! Workspace: classes are taken 1024 at a time, or of more than 2^17 classes the least multiple of 128 of which there are at most 128. Forward has the logits of so
//! many classes in the type of the loss, later the rows of the weight that targets name; backward has those logits, gradients in T of twice as many, and for f16 and
//! bf16 `dx` in f32.
//!
//! Accumulation: products as [`gemm`](crate::ops::gemm) computes them, from 16-bit factors to logits in f32; sums as [`reduce`](crate::ops::reduce) does, those of
//! all classes of the sums of each time; `dx` is added up in f32, for f64 in f64, and rounded once. For f16 and bf16 `dlogits` is rounded to T before its products.
//! The same bits on the same device every time; [`Determinism::BatchInvariant`](crate::Determinism::BatchInvariant) is refused. Backward computes the logits again, and takes `logsumexp` for what forward wrote.
//!
//! NaN, infinity, empty: a target out of range is never used as an index: the row's loss is NaN, and so is a sum or a mean that it is part of. A row that does not
//! count has `dlogits = 0`; beside a NaN or an infinity its products are NaN as any are. A NaN among the logits makes logsumexp and the loss NaN; infinity makes them
//! infinite, or the loss NaN if it is that of the target; with -infinity alone logsumexp is -infinity, and the loss is NaN. Without rows a sum is 0, a mean is NaN,
//! as it is where no row counts, and `dweight` is 0.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which part refused which type or extent.
//!
//! Source: E. Wijmans et al., "Cut Your Losses in Large-Vocabulary Language Models", 2024, for logits that no memory holds; names and rules are those of
//! [`cross_entropy`](crate::ops::softmax::cross_entropy) and of PyTorch's `linear_cross_entropy`.
//!
//! Kernels: of its own it has the CPU's reference in `cpu.rs` alone. Everywhere else it is a sequence of other ops (`parts.rs`): `gemm`, `reduce`, `pointwise` and
//! `index_select`, each by the kernel that serves it.

use crate::dtype::DType;
use crate::error::{Error, Reason, Result};
use crate::gradients::{Derivation, one_step, wanted_among};
use crate::operands::{args, operands};
use crate::ops::fields::{beside, demand, float, relay, require};
use crate::ops::softmax::cross_entropy::{LossReduction, check_ignored, is_index};
use crate::ops::valid::{self, Described, Direction, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::plan::Function;
use crate::sequence::{Kernel, Lazy, Sequence, Sequenced};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

mod cpu;
mod parts;

operands! { $
    /// Operands of the forward op.
    mod forward {
        X x: In, always => "What the last layer reads.";
        WEIGHT weight: In, always => "A row for each class.";
        TARGETS targets: In, always => "The class of each row of x.";
        LOSS loss: Out, always => "The loss of each row, their sum or their mean.";
        LOGSUMEXP logsumexp: Out, always => "Logarithm of the sum of exponentials of each row of logits, for backward.";
        DIVISOR divisor: Out, if mean => "What the mean divides by, if declared.", step "Where the divisor goes.";
    }
}

operands! { $
    /// Operands of the backward op.
    mod backward {
        X x: In, always => "Forward's x.";
        WEIGHT weight: In, always => "Forward's weight.";
        TARGETS targets: In, always => "Forward's targets.";
        DLOSS dloss: In, always => "Gradient of loss.";
        DIVISOR divisor: In, if mean => "What forward divided by, if declared.", step "The divisor that forward wrote.";
        LOGSUMEXP logsumexp: In, always => "What forward wrote.";
        DX dx: Out, if dx => "Gradient of x, if declared.", step "Where the gradient of x goes.";
        DWEIGHT dweight: Out, if dweight => "Gradient of the weight, if declared.", step "Where the gradient of the weight goes.";
    }
}

fields! {
    /// The fields of both descriptors. `dx` and `dweight` ask for gradients.
    Fields: Fields<Kind = Direction, Derived = Lazy> + normalise lacks lacks {
        x: TensorDesc,
        weight: TensorDesc,
        targets: DType,
        ignore_index: Option<i64> = default,
        reduction: LossReduction = default,
        dx: bool = default,
        dweight: bool = default,
    }
}

type Valid = valid::Valid<Fields>;

/// The most classes, so that positions are numbers of i32 and those within a chunk numbers of f32.
const MOST_CLASSES: u64 = (1 << 31) - 1;

fn lacks(kind: Direction) -> &'static [&'static str] {
    match kind {
        Direction::Forward => &["dx", "dweight"],
        Direction::Backward => &[],
    }
}

impl Fields {
    fn normalise(&mut self, &Op { name: op, .. }: &Op<Direction>) -> Result<()> {
        relay(op, &mut self.layouts, [("x", &mut self.x), ("weight", &mut self.weight)])
    }

    fn check(&self, op: &'static str, kind: Direction) -> Result<()> {
        let Self { x, weight, targets, .. } = self;
        float(op, "x", x)?;
        for (field, desc, extents) in [("x", x, "[N, D]"), ("weight", weight, "[V, D]")] {
            require(op, field, desc.rank() == 2, || format!("must be {extents} of rank 2, got rank {}", desc.rank()))?;
        }
        let (of_x, of_weight) = (x.dtype(), weight.dtype());
        require(op, "weight", of_x == of_weight, || format!("must be {of_x}, the type of x; got {of_weight}"))?;
        let [width, of_weight] = [x, weight].map(|desc| desc.dims()[1]);
        require(op, "x", width > 0, || format!("must have columns, got {:?}", x.dims()))?;
        require(op, "weight", of_weight == width, || {
            format!("must have as many columns as x, {width}; got {:?}", weight.dims())
        })?;
        let classes = weight.dims()[0];
        require(op, "weight", (1..=MOST_CLASSES).contains(&classes), || {
            format!("must have 1 to {MOST_CLASSES} rows, one for each class; got {classes}")
        })?;
        require(op, "targets", is_index(*targets), || {
            format!("must be i64, i32 or u32, the class of each row of x; got {targets}")
        })?;
        for (field, is_asked) in [("dx", self.dx), ("dweight", self.dweight)] {
            let is_backward = kind == Direction::Backward;
            demand(op, field, is_backward || !is_asked, "is backward's, which computes gradients")?;
        }
        let is_asked = kind == Direction::Forward || self.dx || self.dweight;
        demand(op, "dx", is_asked, "must be asked for, or dweight: neither is")?;
        check_ignored(op, *targets, self.ignore_index)
    }

    fn declare(&self, &Op { name: op, kind, .. }: &Op<Direction>, slots: &mut SlotsBuilder<'_>) -> Result<Lazy> {
        self.check(op, kind)?;
        let (rows, dtype) = (&self.x.dims()[..1], self.x.dtype().accumulator());
        let is_mean = self.reduction == LossReduction::Mean;
        let of_loss = if self.reduction == LossReduction::None { rows } else { &[] };
        let [x, weight, targets, loss, logsumexp, divisor] = match kind {
            Direction::Forward => {
                [forward::X, forward::WEIGHT, forward::TARGETS, forward::LOSS, forward::LOGSUMEXP, forward::DIVISOR]
            }
            Direction::Backward => [
                backward::X,
                backward::WEIGHT,
                backward::TARGETS,
                backward::DLOSS,
                backward::LOGSUMEXP,
                backward::DIVISOR,
            ],
        };
        slots.declare(x, self.x)?;
        slots.declare(weight, self.weight)?;
        slots.declare_dense(rows, [(targets, Some(self.targets)), (logsumexp, Some(dtype))])?;
        slots.declare_dense(of_loss, [(loss, Some(dtype))])?;
        slots.declare_dense(&[], [(divisor, is_mean.then_some(dtype))])?;
        for (is_asked, row, of) in [(self.dx, backward::DX, &self.x), (self.dweight, backward::DWEIGHT, &self.weight)] {
            if is_asked {
                slots.declare(row, slots.derived(row, beside(of))?)?;
            }
        }
        Ok(Lazy::default())
    }

    /// Operations of so many products of the extents.
    fn flops(&self, products: u64) -> u64 {
        let [rows, width] = [self.x.dims()[0], self.x.dims()[1]];
        [rows, width, self.weight.dims()[0], products].into_iter().fold(2, u64::saturating_mul)
    }
}

descriptor! {
    /// The cross-entropy of the logits `x weight^T` with class indices. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, LinearCrossEntropyArgs, LinearCrossEntropyDescriptor, Mem, MemMut, Plan, PlanOptions, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let of = |dims| TensorDesc::contiguous(DType::F32, dims);
    /// let descriptor = LinearCrossEntropyDescriptor::new(of(&[2, 1])?, of(&[3, 1])?, DType::I64)?.ignore_index(-100)?;
    /// let plan = Plan::new(&device, descriptor, &PlanOptions::default())?;
    /// let (x, weight, targets) = ([1f32, 5.0], [2f32, 2.0, 2.0], [2i64, -100]);
    /// let (mut loss, mut logsumexp, mut divisor) = ([0f32], [0f32; 2], [0f32]);
    /// let scratch = device.alloc(plan.workspace().bytes)?;
    /// let outputs = (MemMut::host(&mut loss), MemMut::host(&mut logsumexp));
    /// let args = LinearCrossEntropyArgs::new(Mem::host(&x), Mem::host(&weight), Mem::host(&targets), outputs.0, outputs.1);
    /// plan.run(&mut device.queue(), args.divisor(MemMut::host(&mut divisor)), Workspace::new(&scratch))?;
    /// assert!((loss[0] - 3f32.ln()).abs() < 1e-6); // of the first row alone
    /// assert_eq!(divisor, [1.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    LinearCrossEntropyDescriptor(Fields): "linear_cross_entropy", Direction::Forward;
    args: LinearCrossEntropyArgs of forward;
    plan: LinearCrossEntropyPlan;
    kernels: const {
        kernels!(
            cuda: [Kernel::Cuda];
            wgpu: [Kernel::Wgpu];
            cpu: [Kernel::Cpu, Function::<Self>::Cpu(|it| cpu::forward(&it.0))]
        )
    };
    gradients: ["loss"] => ["x", "weight"], Self::derive_gradients;
    flops: |valid: &Valid| valid.fields.flops(1);
    /// The mean of the cross-entropy of each row of the logits `x weight^T` with a class: `targets` is the type of their indices.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not a matrix of a floating-point type with columns, if the weight is not one of this type with as many columns
    /// and 1 to 2^31 - 1 rows, or if `targets` is not i64, i32 or u32.
    fn new(x: TensorDesc, weight: TensorDesc, targets: DType) = Fields::minimal(x, weight, targets);
}

impl LinearCrossEntropyDescriptor {
    /// The backward with the same types, layouts and options, for the gradients of the `wanted` among `x` and `weight`: `dloss` lies as forward's `loss`.
    ///
    /// # Errors
    /// [`Error::NoGradient`] for another name; [`Error::InvalidDescriptor`] if none is wanted.
    pub fn backward(&self, wanted: &[&str]) -> Result<LinearCrossEntropyBackwardDescriptor> {
        one_step(self, Some(wanted))
    }

    /// As [`backward`](Self::backward), for the gradients of both.
    ///
    /// # Errors
    /// None; the type is that of [`backward`](Self::backward).
    pub fn backward_all(&self) -> Result<LinearCrossEntropyBackwardDescriptor> {
        one_step(self, None)
    }

    fn derive_gradients(&self, derivation: &mut Derivation) -> Result<()> {
        let (dx, dweight) = (derivation.wants("x"), derivation.wants("weight"));
        let kept = self.0.slots.all_at(&[forward::TARGETS, forward::LOSS, forward::LOGSUMEXP, forward::DIVISOR]);
        let mut fields = Fields { dx, dweight, ..self.0.fields.clone() };
        fields.layouts = Default::default();
        fields.layouts.extend(kept.map(|slot| {
            let name = if slot.name == "loss" { "dloss" } else { slot.name };
            (name.to_string(), slot.desc)
        }));
        let step = Valid::new(LinearCrossEntropyBackwardDescriptor::OP, fields)?;
        derivation.push(LinearCrossEntropyBackwardDescriptor(step), &[]);
        Ok(())
    }
}

impl Sequenced for LinearCrossEntropyDescriptor {
    fn sequence(&self) -> Result<&Sequence, Reason> {
        self.0.derived.get(|| parts::forward(&self.0))
    }
}

shared_steps! { LinearCrossEntropyDescriptor: layout }

steps! { LinearCrossEntropyDescriptor
    /// Leaves out rows whose target is this number, which need not be a class: PyTorch's default is -100, here there is none.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type of targets has no such number.
    ignore_index(index: i64) = |it| it.with(|f| f.ignore_index = Some(index));
    /// What becomes of the losses of rows; their mean, unless told otherwise.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if `layout` has given loss or divisor a layout that does not fit the shape it then has.
    reduction(reduction: LossReduction) = |it| it.with(|f| f.reduction = reduction);
}

descriptor! {
    /// The gradients of [`LinearCrossEntropyDescriptor`]. See the [formulas and operands](self).
    LinearCrossEntropyBackwardDescriptor(Fields): "linear_cross_entropy_backward", Direction::Backward;
    args: LinearCrossEntropyBackwardArgs of backward;
    plan: LinearCrossEntropyBackwardPlan;
    kernels: const {
        kernels!(
            cuda: [Kernel::Cuda];
            wgpu: [Kernel::Wgpu];
            cpu: [Kernel::Cpu, Function::<Self>::Cpu(|it| cpu::backward(&it.0))]
        )
    };
    flops: |valid: &Valid| valid.fields.flops(1 + u64::from(valid.fields.dx) + u64::from(valid.fields.dweight));
}

impl LinearCrossEntropyBackwardDescriptor {
    /// The gradients of the `wanted` among `x` and `weight` of the mean of the cross-entropy.
    ///
    /// # Errors
    /// As [`LinearCrossEntropyDescriptor::new`], and [`Error::InvalidDescriptor`] if no gradient is wanted; [`Error::NoGradient`] for another name.
    pub fn new(x: TensorDesc, weight: TensorDesc, targets: DType, wanted: &[&str]) -> Result<Self> {
        let wanted = wanted_among(Self::OP.name, wanted, &["x", "weight"])?;
        let (dx, dweight) = (wanted.contains(&"x"), wanted.contains(&"weight"));
        Valid::new(Self::OP, Fields { dx, dweight, ..Fields::minimal(x, weight, targets) }).map(Self)
    }
}

impl Sequenced for LinearCrossEntropyBackwardDescriptor {
    fn sequence(&self) -> Result<&Sequence, Reason> {
        self.0.derived.get(|| parts::backward(&self.0))
    }
}

shared_steps! { LinearCrossEntropyBackwardDescriptor: accumulate, layout }

steps! { LinearCrossEntropyBackwardDescriptor
    /// As [`LinearCrossEntropyDescriptor::ignore_index`].
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type of targets has no such number.
    ignore_index(index: i64) = |it| it.with(|f| f.ignore_index = Some(index));
    /// As [`LinearCrossEntropyDescriptor::reduction`].
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if `layout` has given dloss or divisor a layout that does not fit the shape it then has.
    reduction(reduction: LossReduction) = |it| it.with(|f| f.reduction = reduction);
}

args! {
    /// Operands of [`LinearCrossEntropyDescriptor`]; their shapes and types are in the [tables](self).
    LinearCrossEntropyArgs of forward {
        /// The operands that are always there.
        new(x, weight, targets, loss, logsumexp);
        divisor(divisor);
    }
}

args! {
    /// Operands of [`LinearCrossEntropyBackwardDescriptor`]; their shapes and types are in the [tables](self).
    LinearCrossEntropyBackwardArgs of backward {
        /// The operands that are always there.
        new(x, weight, targets, dloss, logsumexp);
        divisor(divisor); dx(dx); dweight(dweight);
    }
}
