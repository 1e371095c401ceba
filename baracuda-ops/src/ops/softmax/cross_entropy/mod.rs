//! Cross-entropy of logits with the classes of indices, forward and backward.
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
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank 0 to 8; one class or more | f64, f32, f16, bf16 | in | always |
//! | `targets` | of x without the axis | i64, i32, u32 | in | always |
//! | `loss` | that of targets for `none`, else rank 0 | f64 where x is f64, else f32 | out | always |
//! | `logsumexp` | that of targets | of loss | out | `stats` |
//! | `divisor` | rank 0 | of loss | out | `reduction` mean |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank 0 to 8; one class or more | f64, f32, f16, bf16 | in | always |
//! | `targets` | of x without the axis | i64, i32, u32 | in | always |
//! | `dloss` | that of targets for `none`, else rank 0 | f64 where x is f64, else f32 | in | always |
//! | `divisor` | rank 0 | of dloss | in | `reduction` mean; what forward wrote |
//! | `logsumexp` | that of targets | of dloss | in | `stats`; what forward wrote |
//! | `dx` | of x | of x | out | always |
//!
//! Units: logits and losses are natural logarithms; targets are positions along the axis, from 0 on.
//!
//! Layout and aliasing: any strides, 0 for inputs. Operands other than x and dx are dense unless `layout` says otherwise; dx lies as x does. `dx` may lie at
//! `x`, where the layouts agree. Without `stats` backward reads x twice, once for logsumexp.
//!
//! Accumulation: f32, for f64 operands f64; sums meet in a fixed order; the same bits on the same device every time.
//!
//! NaN, infinity, empty: a target out of range is never used as an index: the line's loss is NaN, and so is a sum or a mean that it is part of; its dx is 0.
//! Whatever x is in a line that does not count, its loss and its dx follow from the target alone. Of other lines, with a NaN or +infinity logsumexp, loss and
//! dx are NaN; with -infinity alone logsumexp is -infinity, and loss and dx are NaN; another -infinity has `dx = 0`, of the target `-g`, and there the loss is
//! infinite. Without lines a sum is 0, and a mean is NaN, as it is where no line counts: 0 / 0.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which type or extent.
//!
//! Source: names and rules are those of PyTorch's `cross_entropy`, which raises an error for targets out of range; M. Milakov, N. Gimelshein, "Online
//! normalizer calculation for softmax", 2018, for the sum in one pass.
//!
//! Kernels: on CUDA `csrc/softmax/cross_entropy.cu` and `cross_entropy_backward.cu`, through wgpu the `.wgsl` files of the same names. A team of threads takes a line,
//! one thread where the classes do not lie side by side, and sums of lines follow in launches of their own (`cross_entropy_total`). The reference is in `cpu.rs`.

use super::masked::Lines;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gradients::Derivation;
use crate::json;
use crate::operands::{args, operands};
use crate::ops::fields::{below_rank, beside, float, relay, require};
use crate::ops::valid::{self, Described, Direction, Op, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::{Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "wgpu")]
mod wgpu;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;

operands! { $
    /// Operands of the forward op.
    mod forward {
        X x: In, always => "Logits.";
        TARGETS targets: In, always => "The class of each line.";
        LOSS loss: Out, always => "The loss of each line, their sum or their mean.";
        LOGSUMEXP logsumexp: Out, if stats => "Logarithm of the sum of exponentials of each line, if declared.",
            step "Where logsumexp goes.";
        DIVISOR divisor: Out, if mean => "What the mean divides by, if declared.", step "Where the divisor goes.";
    }
}

operands! { $
    /// Operands of the backward op.
    mod backward {
        X x: In, always, in place dx => "Forward's logits.";
        TARGETS targets: In, always => "Forward's targets.";
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
    /// Their sum, by the number of lines that count.
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

/// Extents or strides without those of the axis.
fn without(axis: usize, values: &[u64]) -> Vec<u64> {
    let others = values.iter().enumerate().filter(|(at, _)| *at != axis);
    others.map(|(_, &value)| value).collect()
}

impl Fields {
    fn normalise(&mut self, &Op { name: op, .. }: &Op<Direction>) -> Result<()> {
        relay(op, &mut self.layouts, [("x", &mut self.x)])
    }

    fn check(&self, op: &'static str) -> Result<()> {
        let Self { x, axis, targets, .. } = self;
        float(op, "x", x)?;
        below_rank(op, "x", x, *axis)?;
        require(op, "x", x.dims().get(*axis) != Some(&0), || {
            format!("must have a class or more along axis {axis}; got {:?}", x.dims())
        })?;
        let range = match targets {
            DType::I64 => i64::MIN..=i64::MAX,
            DType::I32 => i32::MIN.into()..=i32::MAX.into(),
            DType::U32 => 0..=u32::MAX.into(),
            _ => {
                let rule = format!("must be i64, i32 or u32, the class of each line; got {targets}");
                return Err(Error::InvalidDescriptor { op, field: "targets", rule });
            }
        };
        let Some(ignored) = self.ignore_index else { return Ok(()) };
        require(op, "ignore_index", range.contains(&ignored), || {
            format!("must be a number of {targets}, the type of targets; got {ignored}")
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

    /// The lines, each operand in the order of [`At`].
    fn declare(&self, &Op { name: op, kind, .. }: &Op<Direction>, slots: &mut SlotsBuilder<'_>) -> Result<Lines> {
        self.check(op)?;
        let (x, dtype) = (self.x, self.x.dtype().accumulator());
        let dims = without(self.axis, x.dims());
        let (is_mean, is_each) = (self.reduction == LossReduction::Mean, self.reduction == LossReduction::None);
        let of_loss = if is_each { &dims[..] } else { &[] };
        let dense = |dtype, dims: &[u64]| TensorDesc::contiguous(dtype, dims);
        let [row_x, row_targets, row_loss, row_logsumexp, row_divisor] = match kind {
            Direction::Forward => [forward::X, forward::TARGETS, forward::LOSS, forward::LOGSUMEXP, forward::DIVISOR],
            Direction::Backward => {
                [backward::X, backward::TARGETS, backward::DLOSS, backward::LOGSUMEXP, backward::DIVISOR]
            }
        };
        slots.declare(row_x, x)?;
        let targets = slots.declare(row_targets, slots.derived(row_targets, dense(self.targets, &dims))?)?;
        let loss = slots.declare(row_loss, slots.derived(row_loss, dense(dtype, of_loss))?)?;
        let logsumexp = match self.stats {
            true => slots.declare(row_logsumexp, slots.derived(row_logsumexp, dense(dtype, &dims))?)?,
            false => dense(dtype, &[])?,
        };
        slots.declare_if(is_mean, row_divisor, dense(dtype, &[])?)?;
        let mut operands = vec![x, self.along_x(&targets)?, self.along_x(&loss)?, self.along_x(&logsumexp)?];
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
    kernels: kernels!(cuda: cuda::accept; wgpu: wgpu::work; cpu: cpu::forward);
    gradients: ["loss"] => ["x"], |forward, derivation: &mut Derivation| {
        derivation.push(forward.backward()?, &[]);
        Ok(())
    };
    /// The mean of the cross-entropy of each line of logits `x` along `axis`, counted from 0, with a class: `targets` is the type of their indices.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type or has no classes, if `axis` is not below its rank, of rank 0 if it is not 0, or if
    /// `targets` is not i64, i32 or u32.
    fn new(x: TensorDesc, axis: usize, targets: DType) = Fields::minimal(x, axis, targets);
}

impl CrossEntropyDescriptor {
    /// The backward with the same types, layouts and options: `dloss` lies as forward's `loss`, `dx` as `x`.
    ///
    /// # Errors
    /// As [`layout`](Self::layout).
    pub fn backward(&self) -> Result<CrossEntropyBackwardDescriptor> {
        let mut fields = self.0.fields.clone();
        let kept = self.0.slots.all_at(&[forward::TARGETS, forward::LOSS, forward::LOGSUMEXP, forward::DIVISOR]);
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
    /// [`Error::InvalidDescriptor`] if the type of targets has no such number.
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
}

descriptor! {
    /// The gradient of the logits of [`CrossEntropyDescriptor`]. See the [formulas and operands](self).
    CrossEntropyBackwardDescriptor(Fields): "cross_entropy_backward", Direction::Backward;
    args: CrossEntropyBackwardArgs of backward;
    plan: CrossEntropyBackwardPlan;
    kernels: kernels!(cuda: cuda::accept_backward; wgpu: wgpu::work; cpu: cpu::backward);
    /// The gradient of the logits `x` whose mean cross-entropy along `axis`, counted from 0, was the loss.
    ///
    /// # Errors
    /// As [`CrossEntropyDescriptor::new`].
    fn new(x: TensorDesc, axis: usize, targets: DType) = Fields::minimal(x, axis, targets);
}

shared_steps! { CrossEntropyBackwardDescriptor: layout }

steps! { CrossEntropyBackwardDescriptor
    /// As [`CrossEntropyDescriptor::ignore_index`].
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type of targets has no such number.
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
}

args! {
    /// Operands of [`CrossEntropyDescriptor`]; their shapes and types are in the [tables](self).
    CrossEntropyArgs of forward {
        /// The operands that are always there.
        new(x, targets, loss);
        logsumexp(logsumexp); divisor(divisor);
    }
}

args! {
    /// Operands of [`CrossEntropyBackwardDescriptor`]; their shapes and types are in the [tables](self).
    CrossEntropyBackwardArgs of backward {
        /// The operands that are always there.
        new(x, targets, dloss, dx);
        divisor(divisor); logsumexp(logsumexp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Descriptor;

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
            (rule(of(&[2, 3], 1, DType::F32)), "targets: must be i64, i32 or u32, the class of each line; got f32"),
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
    }

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
