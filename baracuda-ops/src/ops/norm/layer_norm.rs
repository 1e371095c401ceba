//! LayerNorm over the last k extents, forward and backward.
//!
//! With `n` elements in a row, `mean = sum(x) / n`, `var = sum((x - mean)^2) / n`, `rstd = 1 / sqrt(var + eps)`,
//! `xhat = (x - mean) * rstd`:
//!
//! - forward: `y = xhat * weight + bias`;
//! - backward, with `g = dy * weight`: `dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dh`,
//!   `dweight = sum(dy * xhat)`, `dbias = sum(dy)`, the sums over all rows.
//!
//! With a residual, `h = x + residual`, rounded to its type, takes the place of `x`; one `dx` is the gradient of both.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank >= k | f64, f32, f16, bf16 | in | always |
//! | `residual` | of x | of x | in | `residual` |
//! | `weight`, `bias` | the last k extents of x | of x, or f32 | in | `weight`, `bias` |
//! | `y` | of x | of x | out | always |
//! | `h` | of x | of x | out | `residual` |
//! | `mean`, `rstd` | the other extents of x | f32, or f64 for f64 | out | `stats` |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `dy`, `x` | of x | of x | in | always; `x` is forward's `h` if it had a residual |
//! | `weight` | the last k extents | of x, or f32 | in | `weight` |
//! | `mean`, `rstd` | the other extents | f32, or f64 for f64 | in | always |
//! | `dh` | of x | of x | in | `dh`: the gradient that reaches `h` from elsewhere |
//! | `dx` | of x | of x | out | `dx` |
//! | `dweight`, `dbias` | the last k extents | of the parameter | out | `dweight`, `dbias` |
//!
//! Units: all values are plain numbers.
//!
//! Layout and aliasing: any strides on the CPU; on GPUs the normalized extents are dense, the others collapse to at most three
//! strides, parameters and statistics are dense. `y` may lie at `x`, `h` at `residual`, `dx` at `dy`, where the layouts agree.
//!
//! Accumulation: f32, for f64 operands f64, in two passes with correction (a constant row gives 0
//! within the budget, a large mean costs nothing), statistics merged in a fixed order; the same bits on the same device every time.
//!
//! NaN, infinity, empty: a NaN or an infinity makes mean, rstd and y of its row NaN throughout; the mean is NaN beside an infinity, too, as
//! its correction is `inf - inf`. No rows: nothing is written but the
//! parameters' gradients, which are 0. No columns: mean 0, rstd NaN.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", 2016; T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for
//! Computing the Sample Variance", The American Statistician 37 (1983), for the corrected two-pass variance.
//!
//! Kernels: `csrc/norm/layer_norm.cu`, `csrc/norm/layer_norm.wgsl`, and the reference in `row_norm/cpu.rs`.

use serde::{Deserialize, Serialize};

use super::row_norm::{
    self, Backward, BackwardFields, Forward, ForwardFields, Gradients, RowNorm, Valid, backward, forward,
};
use crate::any::AnyDescriptor;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::json::{self, Object};
use crate::memory::{Mem, MemMut, Operands};
use crate::ops::fields::real;
use crate::plan::{Args, Descriptor, Kernel, Plan, Slot, sealed};
use crate::tensor::TensorDesc;

const NAME: &str = "layer_norm";
const BACKWARD_NAME: &str = "layer_norm_backward";

/// LayerNorm over the last extents of a tensor. See the [formulas and operands](self).
///
/// ```
/// use baracuda_ops::{DType, LayerNormDescriptor, TensorDesc};
/// let x = TensorDesc::contiguous(DType::BF16, &[32, 128, 768])?;
/// let forward = LayerNormDescriptor::new(x, 1)?.weight(DType::F32)?.bias(DType::F32)?.eps(1e-6)?.stats()?;
/// # let _ = forward;
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<ForwardFields>", into = "ForwardFields")]
pub struct LayerNormDescriptor(Valid<ForwardFields>);

impl LayerNormDescriptor {
    /// LayerNorm of `x` over its last `normalized_dims` extents, without parameters, with eps 1e-5.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type, or `normalized_dims` is 0 or above its rank.
    pub fn new(x: TensorDesc, normalized_dims: usize) -> Result<Self> {
        Valid::<ForwardFields>::plain(RowNorm::Layer, NAME, x, normalized_dims).map(Self)
    }

    /// Multiplies by a weight of the given type.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32, or is not the bias's.
    pub fn weight(self, dtype: DType) -> Result<Self> {
        self.0.with(NAME, |f| f.weight = Some(dtype)).map(Self)
    }

    /// Adds a bias of the given type.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32, or is not the weight's.
    pub fn bias(self, dtype: DType) -> Result<Self> {
        self.0.with(NAME, |f| f.bias = Some(dtype)).map(Self)
    }

    /// The number added to the variance.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is negative, or not in the range of f32 (of f64 for f64 operands).
    pub fn eps(self, eps: f64) -> Result<Self> {
        let eps = real(NAME, "eps", eps)?;
        self.0.with(NAME, |f| f.eps = eps).map(Self)
    }

    /// Writes mean and rstd of each row, which backward needs.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    pub fn stats(self) -> Result<Self> {
        self.0.with(NAME, |f| f.stats = true).map(Self)
    }

    /// Adds a residual first, and writes the sum as `h`.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    pub fn residual(self) -> Result<Self> {
        self.0.with(NAME, |f| f.residual = true).map(Self)
    }

    /// Gives a declared operand other strides or another alignment than its default.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if no such operand is declared, if shape or type differ, or if an output would write an element
    /// twice.
    pub fn layout(self, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.0.layout(NAME, operand, desc).map(Self)
    }

    /// Gives `y` other strides than x's.
    ///
    /// # Errors
    /// As [`layout`](Self::layout).
    pub fn y(self, desc: TensorDesc) -> Result<Self> {
        self.layout("y", desc)
    }

    /// The backward with the same types, layouts and options. Its mean and rstd are what a forward with [`stats`](Self::stats) writes.
    /// With a residual it takes `dh`.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if no gradient is left to compute.
    pub fn backward(&self, wanted: Gradients) -> Result<LayerNormBackwardDescriptor> {
        self.0.backward(BACKWARD_NAME, wanted).map(LayerNormBackwardDescriptor)
    }
}

/// The gradients of [`LayerNormDescriptor`]. See the [formulas and operands](self).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<BackwardFields>", into = "BackwardFields")]
pub struct LayerNormBackwardDescriptor(Valid<BackwardFields>);

impl LayerNormBackwardDescriptor {
    /// The gradient of `x` for LayerNorm over its last `normalized_dims` extents, without parameters.
    ///
    /// # Errors
    /// As [`LayerNormDescriptor::new`].
    pub fn new(x: TensorDesc, normalized_dims: usize) -> Result<Self> {
        Valid::<BackwardFields>::plain(RowNorm::Layer, BACKWARD_NAME, x, normalized_dims).map(Self)
    }

    /// Forward had a weight of the given type; `gradient` asks for its gradient.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32, or is not the bias's.
    pub fn weight(self, dtype: DType, gradient: bool) -> Result<Self> {
        let change = |f: &mut BackwardFields| (f.weight, f.dweight) = (Some(dtype), gradient);
        self.0.with(BACKWARD_NAME, change).map(Self)
    }

    /// Asks for the gradient of a bias of the given type.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32, or is not the weight's.
    pub fn bias(self, dtype: DType) -> Result<Self> {
        self.0.with(BACKWARD_NAME, |f| f.dbias = Some(dtype)).map(Self)
    }

    /// Adds to dx the gradient `dh` that reaches forward's `h` from elsewhere.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] without `dx`.
    pub fn dh(self, is_added: bool) -> Result<Self> {
        self.0.with(BACKWARD_NAME, |f| f.dh = is_added).map(Self)
    }

    /// As [`LayerNormDescriptor::layout`].
    ///
    /// # Errors
    /// As [`LayerNormDescriptor::layout`].
    pub fn layout(self, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.0.layout(BACKWARD_NAME, operand, desc).map(Self)
    }
}

/// Operands of [`LayerNormDescriptor`]; their shapes and types are in the [tables](self).
#[non_exhaustive]
#[derive(Debug)]
pub struct LayerNormArgs<'a> {
    /// Input.
    pub x: Mem<'a>,
    /// Output.
    pub y: MemMut<'a>,
    /// Added to x, if declared.
    pub residual: Option<Mem<'a>>,
    /// Scale, if declared.
    pub weight: Option<Mem<'a>>,
    /// Shift, if declared.
    pub bias: Option<Mem<'a>>,
    /// x + residual, if declared.
    pub h: Option<MemMut<'a>>,
    /// Mean of each row, if declared.
    pub mean: Option<MemMut<'a>>,
    /// 1 / sqrt(var + eps) of each row, if declared.
    pub rstd: Option<MemMut<'a>>,
}

impl<'a> LayerNormArgs<'a> {
    /// The operands that every forward has.
    pub fn new(x: impl Into<Mem<'a>>, y: impl Into<MemMut<'a>>) -> Self {
        let (x, y) = (x.into(), y.into());
        Self { x, y, residual: None, weight: None, bias: None, h: None, mean: None, rstd: None }
    }

    /// The weight.
    pub fn weight(self, weight: impl Into<Mem<'a>>) -> Self {
        Self { weight: Some(weight.into()), ..self }
    }

    /// The bias.
    pub fn bias(self, bias: impl Into<Mem<'a>>) -> Self {
        Self { bias: Some(bias.into()), ..self }
    }

    /// The residual, and where the sum goes.
    pub fn residual(self, residual: impl Into<Mem<'a>>, h: impl Into<MemMut<'a>>) -> Self {
        Self { residual: Some(residual.into()), h: Some(h.into()), ..self }
    }

    /// Where the statistics go.
    pub fn stats(self, mean: impl Into<MemMut<'a>>, rstd: impl Into<MemMut<'a>>) -> Self {
        Self { mean: Some(mean.into()), rstd: Some(rstd.into()), ..self }
    }
}

/// Operands of [`LayerNormBackwardDescriptor`]; their shapes and types are in the [tables](self).
#[non_exhaustive]
#[derive(Debug)]
pub struct LayerNormBackwardArgs<'a> {
    /// Gradient of y.
    pub dy: Mem<'a>,
    /// Forward's input: x, or h if it had a residual.
    pub x: Mem<'a>,
    /// Mean that forward wrote.
    pub mean: Mem<'a>,
    /// rstd that forward wrote.
    pub rstd: Mem<'a>,
    /// Scale, if declared.
    pub weight: Option<Mem<'a>>,
    /// Gradient of h from elsewhere, if declared.
    pub dh: Option<Mem<'a>>,
    /// Gradient of x, if declared.
    pub dx: Option<MemMut<'a>>,
    /// Gradient of weight, if declared.
    pub dweight: Option<MemMut<'a>>,
    /// Gradient of bias, if declared.
    pub dbias: Option<MemMut<'a>>,
}

impl<'a> LayerNormBackwardArgs<'a> {
    /// The operands that every backward has.
    pub fn new(
        dy: impl Into<Mem<'a>>,
        x: impl Into<Mem<'a>>,
        mean: impl Into<Mem<'a>>,
        rstd: impl Into<Mem<'a>>,
    ) -> Self {
        let (dy, x, mean, rstd) = (dy.into(), x.into(), mean.into(), rstd.into());
        Self { dy, x, mean, rstd, weight: None, dh: None, dx: None, dweight: None, dbias: None }
    }

    /// The weight.
    pub fn weight(self, weight: impl Into<Mem<'a>>) -> Self {
        Self { weight: Some(weight.into()), ..self }
    }

    /// The gradient that reaches h from elsewhere.
    pub fn dh(self, dh: impl Into<Mem<'a>>) -> Self {
        Self { dh: Some(dh.into()), ..self }
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

/// A plan of [`LayerNormDescriptor`].
pub type LayerNormPlan = Plan<LayerNormDescriptor>;

/// A plan of [`LayerNormBackwardDescriptor`].
pub type LayerNormBackwardPlan = Plan<LayerNormBackwardDescriptor>;

impl TryFrom<Object<ForwardFields>> for LayerNormDescriptor {
    type Error = Error;

    fn try_from(Object(fields): Object<ForwardFields>) -> Result<Self> {
        Valid::<ForwardFields>::new(RowNorm::Layer, NAME, fields).map(Self)
    }
}

impl From<LayerNormDescriptor> for ForwardFields {
    fn from(descriptor: LayerNormDescriptor) -> Self {
        descriptor.0.fields
    }
}

impl TryFrom<Object<BackwardFields>> for LayerNormBackwardDescriptor {
    type Error = Error;

    fn try_from(Object(fields): Object<BackwardFields>) -> Result<Self> {
        Valid::<BackwardFields>::new(RowNorm::Layer, BACKWARD_NAME, fields).map(Self)
    }
}

impl From<LayerNormBackwardDescriptor> for BackwardFields {
    fn from(descriptor: LayerNormBackwardDescriptor) -> Self {
        descriptor.0.fields
    }
}

impl sealed::Sealed for LayerNormDescriptor {}

impl Descriptor for LayerNormDescriptor {
    const NAME: &'static str = NAME;
    const OPERANDS: &'static [&'static str] = forward::OPERANDS;
    type Args<'a> = LayerNormArgs<'a>;

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
        row_norm::forward_kernels()
    }
}

impl Forward for LayerNormDescriptor {
    fn valid(&self) -> &Valid<ForwardFields> {
        &self.0
    }
}

impl sealed::Sealed for LayerNormBackwardDescriptor {}

impl Descriptor for LayerNormBackwardDescriptor {
    const NAME: &'static str = BACKWARD_NAME;
    const OPERANDS: &'static [&'static str] = backward::OPERANDS;
    type Args<'a> = LayerNormBackwardArgs<'a>;

    fn slots(&self) -> &[Slot] {
        &self.0.slots
    }

    fn from_json(json: &str) -> Result<Self> {
        json::parse::<Self, BackwardFields>(json)
    }

    fn kernels() -> &'static [&'static dyn Kernel<Self>] {
        row_norm::backward_kernels()
    }
}

impl Backward for LayerNormBackwardDescriptor {
    fn valid(&self) -> &Valid<BackwardFields> {
        &self.0
    }
}

impl sealed::Sealed for LayerNormArgs<'_> {}

impl<'a> Args<'a> for LayerNormArgs<'a> {
    #[inline]
    fn flatten(self) -> Operands<'a> {
        let (read, write) = (|m: Mem<'a>| m.0, |m: MemMut<'a>| m.0);
        Operands::new([
            Some(self.x.0),
            self.residual.map(read),
            self.weight.map(read),
            self.bias.map(read),
            Some(self.y.0),
            self.h.map(write),
            self.mean.map(write),
            self.rstd.map(write),
        ])
    }
}

impl sealed::Sealed for LayerNormBackwardArgs<'_> {}

impl<'a> Args<'a> for LayerNormBackwardArgs<'a> {
    #[inline]
    fn flatten(self) -> Operands<'a> {
        let (read, write) = (|m: Mem<'a>| m.0, |m: MemMut<'a>| m.0);
        Operands::new([
            Some(self.dy.0),
            Some(self.x.0),
            self.weight.map(read),
            Some(self.mean.0),
            Some(self.rstd.0),
            self.dh.map(read),
            self.dx.map(write),
            self.dweight.map(write),
            self.dbias.map(write),
        ])
    }
}
