//! GroupNorm: groups of channels of each sample, forward and backward.
//!
//! With `n` elements in a group (`C / groups` channels of one sample), `mean = sum(x) / n`, `var = sum((x - mean)^2) / n`,
//! `rstd = 1 / sqrt(var + eps)`, `xhat = (x - mean) * rstd`:
//!
//! - forward: `y = act(xhat * weight + bias)`;
//! - backward, with `dpre = dy * act'(pre)`, `pre` the argument of the activation, which is computed again, and `g = dpre * weight`:
//!   `dx = rstd * (g - mean(g) - xhat * mean(g * xhat))`, the means over the group; `dweight = sum(dpre * xhat)`,
//!   `dbias = sum(dpre)`, the sums over samples and spatial extents.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | `[N, C, spatial..]`, rank 2 to 5 | f64, f32, f16, bf16 | in | always |
//! | `weight`, `bias` | `[C]` | of x, or f32 | in | `weight`, `bias` |
//! | `y` | of x | of x | out | always |
//! | `mean`, `rstd` | `[N, groups]` | f32, or f64 for f64 | out | `stats` |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `dy`, `x` | of x | of x | in | always |
//! | `weight` | `[C]` | of x, or f32 | in | `weight` |
//! | `bias` | `[C]` | of x, or f32 | in | `bias` with an activation |
//! | `mean`, `rstd` | `[N, groups]` | f32, or f64 for f64 | in | always |
//! | `dx` | of x | of x | out | `dx` |
//! | `dweight`, `dbias` | `[C]` | of the parameter | out | `dweight`, `dbias` |
//!
//! Units: all values are plain numbers.
//!
//! Layout and aliasing: any strides on the CPU; on GPUs the spatial extents collapse to one stride, which is 1 in every tensor
//! (contiguous), or the channels' stride is 1 in every tensor (channels last); parameters and statistics are dense. `y` may lie at `x`,
//! `dx` at `dy`, where the layouts agree.
//!
//! Accumulation: f32, for f64 operands f64, in two passes with correction (a constant group gives `bias`
//! within the budget, a large mean costs nothing), statistics merged in a fixed order; the same bits on the same device every time.
//!
//! NaN, infinity, empty: a NaN or an infinity makes mean, rstd and y of its group NaN throughout; the mean is NaN beside an infinity, too,
//! as its correction is `inf - inf`. One finite element in a group: `act(bias)`, dx 0. No elements in a group: mean 0, rstd NaN; the gradients of parameters over nothing are 0.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: Y. Wu, K. He, "Group Normalization", 2018; T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for Computing the Sample
//! Variance", The American Statistician 37 (1983), for the corrected two-pass variance.
//!
//! Kernels: `csrc/norm/group_norm.cu`, `csrc/norm/group_norm.wgsl`, and the reference in `channel_norm/cpu.rs`.

use serde::{Deserialize, Serialize};

use super::Gradients;
use super::channel_norm::{self, Backward, BackwardFields, ChannelNorm, Forward, ForwardFields, Valid};
use crate::any::AnyDescriptor;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::json::{self, Object};
use crate::memory::{Mem, MemMut, Operands};
use crate::ops::activation::Activation;
use crate::plan::{Args, Descriptor, Kernel, Plan, Slot, sealed};
use crate::tensor::TensorDesc;

const KIND: ChannelNorm = ChannelNorm::Group;

/// GroupNorm of a tensor `[N, C, spatial..]`. See the [formulas and operands](self).
///
/// ```
/// use baracuda_ops::{Activation, DType, Gradients, GroupNormDescriptor, TensorDesc};
/// let x = TensorDesc::contiguous(DType::BF16, &[2, 320, 64, 64])?;
/// let forward = GroupNormDescriptor::new(x, 32)?
///     .weight(DType::BF16)?
///     .bias(DType::BF16)?
///     .activation(Activation::Silu)?
///     .stats()?;
/// let backward = forward.backward(Gradients::ALL)?;
/// # let _ = backward;
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<ForwardFields>", into = "ForwardFields")]
pub struct GroupNormDescriptor(Valid<ForwardFields>);

impl GroupNormDescriptor {
    /// GroupNorm of `x` with that many groups of channels, without parameters, with eps 1e-5.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type or not of rank 2 to 5, or if `groups` is 0 or does not divide the
    /// channels.
    pub fn new(x: TensorDesc, groups: u64) -> Result<Self> {
        Valid::<ForwardFields>::plain(KIND, x, Some(groups)).map(Self)
    }

    /// Multiplies by a weight of the given type, one number a channel.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32, or is not the bias's.
    pub fn weight(self, dtype: DType) -> Result<Self> {
        self.0.with(|f| f.weight = Some(dtype)).map(Self)
    }

    /// Adds a bias of the given type, one number a channel.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32, or is not the weight's.
    pub fn bias(self, dtype: DType) -> Result<Self> {
        self.0.with(|f| f.bias = Some(dtype)).map(Self)
    }

    /// The number added to the variance.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is negative, or not in the range of f32 (of f64 for f64 operands).
    pub fn eps(self, eps: f64) -> Result<Self> {
        let eps = self.0.real("eps", eps)?;
        self.0.with(|f| f.eps = eps).map(Self)
    }

    /// Applies a function before the result is rounded.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    pub fn activation(self, activation: Activation) -> Result<Self> {
        self.0.with(|f| f.activation = activation).map(Self)
    }

    /// Writes mean and rstd, which backward needs.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    pub fn stats(self) -> Result<Self> {
        self.0.with(|f| f.stats = true).map(Self)
    }

    /// Gives a declared operand other strides or another alignment than its default.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if no such operand is declared, if shape or type differ, or if an output would write an element
    /// twice.
    pub fn layout(self, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.0.layout(operand, desc).map(Self)
    }

    /// Gives `y` other strides than x's.
    ///
    /// # Errors
    /// As [`layout`](Self::layout).
    pub fn y(self, desc: TensorDesc) -> Result<Self> {
        self.layout("y", desc)
    }

    /// The backward with the same types, layouts and options. Its mean and rstd are what a forward with [`stats`](Self::stats) writes.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if no gradient is left to compute.
    pub fn backward(&self, wanted: Gradients) -> Result<GroupNormBackwardDescriptor> {
        self.0.backward(wanted).map(GroupNormBackwardDescriptor)
    }
}

/// The gradients of [`GroupNormDescriptor`]. See the [formulas and operands](self).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<BackwardFields>", into = "BackwardFields")]
pub struct GroupNormBackwardDescriptor(Valid<BackwardFields>);

impl GroupNormBackwardDescriptor {
    /// The gradient of `x` with that many groups, without parameters.
    ///
    /// # Errors
    /// As [`GroupNormDescriptor::new`].
    pub fn new(x: TensorDesc, groups: u64) -> Result<Self> {
        Valid::<BackwardFields>::plain(KIND, x, Some(groups)).map(Self)
    }

    /// Forward had a weight of the given type; `gradient` asks for its gradient.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32, or is not the bias's.
    pub fn weight(self, dtype: DType, gradient: bool) -> Result<Self> {
        let change = |f: &mut BackwardFields| (f.weight, f.dweight) = (Some(dtype), gradient);
        self.0.with(change).map(Self)
    }

    /// Forward had a bias of the given type; `gradient` asks for its gradient. The bias itself is an operand with an activation.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32, or is not the weight's.
    pub fn bias(self, dtype: DType, gradient: bool) -> Result<Self> {
        let change = |f: &mut BackwardFields| (f.bias, f.dbias) = (Some(dtype), gradient);
        self.0.with(change).map(Self)
    }

    /// Forward had an activation.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    pub fn activation(self, activation: Activation) -> Result<Self> {
        self.0.with(|f| f.activation = activation).map(Self)
    }

    /// As [`GroupNormDescriptor::layout`].
    ///
    /// # Errors
    /// As [`GroupNormDescriptor::layout`].
    pub fn layout(self, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.0.layout(operand, desc).map(Self)
    }
}

/// Operands of [`GroupNormDescriptor`]; their shapes and types are in the [tables](self).
#[non_exhaustive]
#[derive(Debug)]
pub struct GroupNormArgs<'a> {
    /// Input.
    pub x: Mem<'a>,
    /// Output.
    pub y: MemMut<'a>,
    /// Scale, if declared.
    pub weight: Option<Mem<'a>>,
    /// Shift, if declared.
    pub bias: Option<Mem<'a>>,
    /// Mean of each group, if declared.
    pub mean: Option<MemMut<'a>>,
    /// 1 / sqrt(var + eps), likewise.
    pub rstd: Option<MemMut<'a>>,
}

impl<'a> GroupNormArgs<'a> {
    /// The operands that every forward has.
    pub fn new(x: impl Into<Mem<'a>>, y: impl Into<MemMut<'a>>) -> Self {
        let (x, y) = (x.into(), y.into());
        Self { x, y, weight: None, bias: None, mean: None, rstd: None }
    }

    /// The weight.
    pub fn weight(self, weight: impl Into<Mem<'a>>) -> Self {
        Self { weight: Some(weight.into()), ..self }
    }

    /// The bias.
    pub fn bias(self, bias: impl Into<Mem<'a>>) -> Self {
        Self { bias: Some(bias.into()), ..self }
    }

    /// Where mean and rstd go.
    pub fn stats(self, mean: impl Into<MemMut<'a>>, rstd: impl Into<MemMut<'a>>) -> Self {
        Self { mean: Some(mean.into()), rstd: Some(rstd.into()), ..self }
    }
}

/// Operands of [`GroupNormBackwardDescriptor`]; their shapes and types are in the [tables](self).
#[non_exhaustive]
#[derive(Debug)]
pub struct GroupNormBackwardArgs<'a> {
    /// Gradient of y.
    pub dy: Mem<'a>,
    /// Forward's input.
    pub x: Mem<'a>,
    /// Scale, if declared.
    pub weight: Option<Mem<'a>>,
    /// Shift, if declared.
    pub bias: Option<Mem<'a>>,
    /// Mean that forward wrote, if declared.
    pub mean: Option<Mem<'a>>,
    /// rstd that forward wrote, if declared.
    pub rstd: Option<Mem<'a>>,
    /// Gradient of x, if declared.
    pub dx: Option<MemMut<'a>>,
    /// Gradient of weight, if declared.
    pub dweight: Option<MemMut<'a>>,
    /// Gradient of bias, if declared.
    pub dbias: Option<MemMut<'a>>,
}

impl<'a> GroupNormBackwardArgs<'a> {
    /// The operands that every backward has.
    pub fn new(dy: impl Into<Mem<'a>>, x: impl Into<Mem<'a>>) -> Self {
        Self {
            dy: dy.into(),
            x: x.into(),
            weight: None,
            bias: None,
            mean: None,
            rstd: None,
            dx: None,
            dweight: None,
            dbias: None,
        }
    }

    /// Mean and rstd that forward wrote.
    pub fn stats(self, mean: impl Into<Mem<'a>>, rstd: impl Into<Mem<'a>>) -> Self {
        Self { mean: Some(mean.into()), rstd: Some(rstd.into()), ..self }
    }

    /// The weight.
    pub fn weight(self, weight: impl Into<Mem<'a>>) -> Self {
        Self { weight: Some(weight.into()), ..self }
    }

    /// The bias.
    pub fn bias(self, bias: impl Into<Mem<'a>>) -> Self {
        Self { bias: Some(bias.into()), ..self }
    }

    /// Where the gradient of x goes.
    pub fn dx(self, dx: impl Into<MemMut<'a>>) -> Self {
        Self { dx: Some(dx.into()), ..self }
    }

    /// Where the gradient of the weight goes.
    pub fn dweight(self, dweight: impl Into<MemMut<'a>>) -> Self {
        Self { dweight: Some(dweight.into()), ..self }
    }

    /// Where the gradient of the bias goes.
    pub fn dbias(self, dbias: impl Into<MemMut<'a>>) -> Self {
        Self { dbias: Some(dbias.into()), ..self }
    }
}

/// A plan of [`GroupNormDescriptor`].
pub type GroupNormPlan = Plan<GroupNormDescriptor>;

/// A plan of [`GroupNormBackwardDescriptor`].
pub type GroupNormBackwardPlan = Plan<GroupNormBackwardDescriptor>;

impl TryFrom<Object<ForwardFields>> for GroupNormDescriptor {
    type Error = Error;

    fn try_from(Object(fields): Object<ForwardFields>) -> Result<Self> {
        Valid::<ForwardFields>::new(KIND, fields).map(Self)
    }
}

impl From<GroupNormDescriptor> for ForwardFields {
    fn from(descriptor: GroupNormDescriptor) -> Self {
        descriptor.0.fields
    }
}

impl TryFrom<Object<BackwardFields>> for GroupNormBackwardDescriptor {
    type Error = Error;

    fn try_from(Object(fields): Object<BackwardFields>) -> Result<Self> {
        Valid::<BackwardFields>::new(KIND, fields).map(Self)
    }
}

impl From<GroupNormBackwardDescriptor> for BackwardFields {
    fn from(descriptor: GroupNormBackwardDescriptor) -> Self {
        descriptor.0.fields
    }
}

impl sealed::Sealed for GroupNormDescriptor {}

impl Descriptor for GroupNormDescriptor {
    const NAME: &'static str = KIND.name();
    const OPERANDS: &'static [&'static str] = KIND.forward_operands();
    type Args<'a> = GroupNormArgs<'a>;

    fn slots(&self) -> &[Slot] {
        &self.0.slots
    }

    fn from_json(json: &str) -> Result<Self> {
        json::parse::<Self, ForwardFields>(json)
    }

    fn any_backward(&self, wanted: Gradients) -> Result<Vec<AnyDescriptor>> {
        self.backward(wanted).map(|backward| vec![AnyDescriptor::new(backward)])
    }

    fn kernels() -> &'static [&'static dyn Kernel<Self>] {
        channel_norm::forward_kernels()
    }
}

impl Forward for GroupNormDescriptor {
    fn valid(&self) -> &Valid<ForwardFields> {
        &self.0
    }
}

impl sealed::Sealed for GroupNormBackwardDescriptor {}

impl Descriptor for GroupNormBackwardDescriptor {
    const NAME: &'static str = KIND.backward_name();
    const OPERANDS: &'static [&'static str] = KIND.backward_operands();
    type Args<'a> = GroupNormBackwardArgs<'a>;

    fn slots(&self) -> &[Slot] {
        &self.0.slots
    }

    fn from_json(json: &str) -> Result<Self> {
        json::parse::<Self, BackwardFields>(json)
    }

    fn kernels() -> &'static [&'static dyn Kernel<Self>] {
        channel_norm::backward_kernels()
    }
}

impl Backward for GroupNormBackwardDescriptor {
    fn valid(&self) -> &Valid<BackwardFields> {
        &self.0
    }
}

impl sealed::Sealed for GroupNormArgs<'_> {}

impl<'a> Args<'a> for GroupNormArgs<'a> {
    #[inline]
    fn flatten(self) -> Operands<'a> {
        let (read, write) = (|m: Mem<'a>| m.0, |m: MemMut<'a>| m.0);
        Operands::new([
            Some(self.x.0),
            self.weight.map(read),
            self.bias.map(read),
            Some(self.y.0),
            self.mean.map(write),
            self.rstd.map(write),
        ])
    }
}

impl sealed::Sealed for GroupNormBackwardArgs<'_> {}

impl<'a> Args<'a> for GroupNormBackwardArgs<'a> {
    #[inline]
    fn flatten(self) -> Operands<'a> {
        let (read, write) = (|m: Mem<'a>| m.0, |m: MemMut<'a>| m.0);
        Operands::new([
            Some(self.dy.0),
            Some(self.x.0),
            self.weight.map(read),
            self.bias.map(read),
            self.mean.map(read),
            self.rstd.map(read),
            self.dx.map(write),
            self.dweight.map(write),
            self.dbias.map(write),
        ])
    }
}
