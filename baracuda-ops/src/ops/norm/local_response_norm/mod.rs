//! LocalResponseNorm over neighbouring channels, forward and backward.
//!
//! The window of channel c are the channels `c - size / 2 ..= c + size - size / 2 - 1`, cut off at the first and the last channel; of
//! an even size, one more lies before c than after it. With the sum over the window of c, `d = k + alpha / size * sum(x^2)`:
//!
//! - forward: `y = x * d^-beta`;
//! - backward: `dx = dy * d^-beta - 2 * alpha * beta / size * x * sum(dy * x * d^(-beta - 1))`, the sum over the channels whose windows
//!   hold c: `c - (size - size / 2 - 1) ..= c + size / 2`.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | `[N, C, spatial..]`, rank 2 to 5 | f64, f32, f16, bf16 | in | always |
//! | `y` | of x | of x | out | always |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `dy`, `x` | of x | of x | in | always |
//! | `dx` | of x | of x | out | always |
//!
//! Units: all values are plain numbers; `size` counts channels.
//!
//! Layout and aliasing: any strides on the CPU; on GPUs the spatial extents of each operand collapse to one stride. Contiguous and
//! channels-last operands take the fast paths. Outputs never lie where inputs do: a window outlives the place of its first element.
//!
//! Accumulation: f32, for f64 operands f64, each window summed anew, in a fixed order; the same bits on the same device every time.
//!
//! NaN, infinity, empty: as the formula says, also where d is 0, which only k = 0 allows: `0 * inf` is NaN. Without elements nothing
//! is written.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: A. Krizhevsky, I. Sutskever, G. Hinton, "ImageNet Classification with Deep Convolutional Neural Networks", NeurIPS 2012,
//! section 3.3, with alpha divided by the size as `torch.nn.functional.local_response_norm` has it. ONNX mirrors the window of an even size.
//!
//! Kernels: `csrc/norm/local_response_norm.cu`, `csrc/norm/local_response_norm_backward.cu`, `csrc/norm/local_response_norm.wgsl`, and
//! the reference in `cpu.rs`.

use serde::{Deserialize, Serialize};

use crate::any::AnyDescriptor;
use crate::dtype::Real;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::error::Reason;
use crate::error::{Error, Result};
use crate::json::{self, Object};
use crate::memory::{Mem, MemMut, Operands};
use crate::ops::fields::{batch_of_channels, beside, float, in_range, only_dx, real, require};
use crate::ops::norm::Gradients;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::ops::norm::spatial::spatial_stride;
use crate::plan::{Access, Args, Descriptor, Kernel, Plan, Slot, sealed};
use crate::slots::{Layouts, Slots, SlotsBuilder};
use crate::tensor::TensorDesc;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "wgpu")]
mod wgpu;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::wgsl_variants;

const NAME: &str = "local_response_norm";
const BACKWARD_NAME: &str = "local_response_norm_backward";

/// Positions of the forward operands.
mod forward {
    pub(super) const OPERANDS: &[&str] = &["x", "y"];
    pub(super) const X: usize = 0;
    pub(super) const Y: usize = 1;
}

/// Positions of the backward operands.
mod backward {
    pub(super) const OPERANDS: &[&str] = &["dy", "x", "dx"];
    pub(super) const DY: usize = 0;
    pub(super) const X: usize = 1;
    pub(super) const DX: usize = 2;
}

/// The fields of both descriptors, in the order of their JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(expecting = "an object with the fields of the descriptor", deny_unknown_fields)]
struct Fields {
    x: TensorDesc,
    size: u64,
    #[serde(default = "default_alpha")]
    alpha: Real,
    #[serde(default = "default_beta")]
    beta: Real,
    #[serde(default = "default_k")]
    k: Real,
    #[serde(default, skip_serializing_if = "Layouts::is_empty")]
    layouts: Layouts,
}

fn default_alpha() -> Real {
    Real::new(1e-4).unwrap_or_default()
}

fn default_beta() -> Real {
    Real::new(0.75).unwrap_or_default()
}

fn default_k() -> Real {
    Real::new(1.0).unwrap_or_default()
}

/// Validated fields, with the slots that follow from them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Valid {
    op: &'static str,
    fields: Fields,
    slots: Slots,
}

impl Valid {
    /// The op of `op` with PyTorch's defaults.
    fn plain(op: &'static str, x: TensorDesc, size: u64) -> Result<Self> {
        let (alpha, beta, k) = (default_alpha(), default_beta(), default_k());
        Self::new(op, Fields { x, size, alpha, beta, k, layouts: Layouts::new() })
    }

    fn new(op: &'static str, mut fields: Fields) -> Result<Self> {
        let x = fields.x;
        float(op, "x", &x)?;
        batch_of_channels(op, &x)?;
        require(op, "size", fields.size > 0, || "must be at least 1 channel, got 0".into())?;
        // d is then a sum of what is not negative, in which nothing cancels.
        for (field, value) in [("alpha", fields.alpha), ("beta", fields.beta), ("k", fields.k)] {
            require(op, field, value.get() >= 0.0, || format!("must be >= 0, got {}", value.get()))?;
            in_range(op, field, value, &x)?;
        }
        let output = beside(&x)?;
        let names = if op == NAME { forward::OPERANDS } else { backward::OPERANDS };
        let mut slots = SlotsBuilder::new(op, names, &mut fields.layouts);
        slots.declare("x", Access::In, x)?;
        if op == NAME {
            slots.declare("y", Access::Out, output)?;
        } else {
            slots.declare("dy", Access::In, output)?;
            slots.declare("dx", Access::Out, output)?;
        }
        let slots = slots.finish()?;
        Ok(Self { op, fields, slots })
    }

    /// Changes fields and validates again.
    fn with(&self, change: impl FnOnce(&mut Fields)) -> Result<Self> {
        let mut fields = self.fields.clone();
        change(&mut fields);
        Self::new(self.op, fields)
    }

    /// Replaces a number.
    fn real(&self, field: &'static str, value: f64, change: impl FnOnce(&mut Fields, Real)) -> Result<Self> {
        let value = real(self.op, field, value)?;
        self.with(|fields| change(fields, value))
    }

    /// Gives an operand another layout.
    fn layout(&self, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.with(|fields| {
            fields.layouts.insert(operand.into(), desc);
        })
    }
}

/// LocalResponseNorm over neighbouring channels. See the [formulas and operands](self).
///
/// ```
/// use baracuda_ops::{DType, LocalResponseNormDescriptor, TensorDesc};
/// let x = TensorDesc::contiguous(DType::F32, &[64, 96, 55, 55])?;
/// let forward = LocalResponseNormDescriptor::new(x, 5)?.alpha(1e-4)?.beta(0.75)?.k(2.0)?;
/// # let _ = forward;
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<Fields>", into = "Fields")]
pub struct LocalResponseNormDescriptor(Valid);

impl LocalResponseNormDescriptor {
    /// LocalResponseNorm of `x`, `[N, C, spatial..]`, over windows of `size` channels, with alpha 1e-4, beta 0.75 and k 1.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type or not of rank 2 to 5, or if `size` is 0.
    pub fn new(x: TensorDesc, size: u64) -> Result<Self> {
        Valid::plain(NAME, x, size).map(Self)
    }

    /// What the mean of squares over a window is multiplied by (over a window that is cut off, the sum divided by `size`).
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is negative, or not in the range of f32 (of f64 for f64 operands).
    pub fn alpha(self, alpha: f64) -> Result<Self> {
        self.0.real("alpha", alpha, |f, value| f.alpha = value).map(Self)
    }

    /// The power of d that x is divided by.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is negative, or not in the range of f32 (of f64 for f64 operands).
    pub fn beta(self, beta: f64) -> Result<Self> {
        self.0.real("beta", beta, |f, value| f.beta = value).map(Self)
    }

    /// The number that is added to the scaled sum of squares.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is negative, or not in the range of f32 (of f64 for f64 operands).
    pub fn k(self, k: f64) -> Result<Self> {
        self.0.real("k", k, |f, value| f.k = value).map(Self)
    }

    /// Gives an operand other strides or another alignment than its default.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no such operand, if shape or type differ, or if an output would write an element twice.
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

    /// The backward with the same type, layouts and numbers: `dy` lies as `y`, `dx` as `x`.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    pub fn backward(&self) -> Result<LocalResponseNormBackwardDescriptor> {
        let mut fields = self.0.fields.clone();
        fields.layouts = Layouts::new();
        if let Some(y) = self.0.slots.named("y") {
            fields.layouts.insert("dy".into(), y.desc);
        }
        Valid::new(BACKWARD_NAME, fields).map(LocalResponseNormBackwardDescriptor)
    }
}

/// The gradient of [`LocalResponseNormDescriptor`]. See the [formulas and operands](self).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<Fields>", into = "Fields")]
pub struct LocalResponseNormBackwardDescriptor(Valid);

impl LocalResponseNormBackwardDescriptor {
    /// The gradient of `x` for windows of `size` channels, with alpha 1e-4, beta 0.75 and k 1.
    ///
    /// # Errors
    /// As [`LocalResponseNormDescriptor::new`].
    pub fn new(x: TensorDesc, size: u64) -> Result<Self> {
        Valid::plain(BACKWARD_NAME, x, size).map(Self)
    }

    /// As [`LocalResponseNormDescriptor::alpha`].
    ///
    /// # Errors
    /// As [`LocalResponseNormDescriptor::alpha`].
    pub fn alpha(self, alpha: f64) -> Result<Self> {
        self.0.real("alpha", alpha, |f, value| f.alpha = value).map(Self)
    }

    /// As [`LocalResponseNormDescriptor::beta`].
    ///
    /// # Errors
    /// As [`LocalResponseNormDescriptor::beta`].
    pub fn beta(self, beta: f64) -> Result<Self> {
        self.0.real("beta", beta, |f, value| f.beta = value).map(Self)
    }

    /// As [`LocalResponseNormDescriptor::k`].
    ///
    /// # Errors
    /// As [`LocalResponseNormDescriptor::k`].
    pub fn k(self, k: f64) -> Result<Self> {
        self.0.real("k", k, |f, value| f.k = value).map(Self)
    }

    /// As [`LocalResponseNormDescriptor::layout`].
    ///
    /// # Errors
    /// As [`LocalResponseNormDescriptor::layout`].
    pub fn layout(self, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.0.layout(operand, desc).map(Self)
    }
}

/// Operands of [`LocalResponseNormDescriptor`]; their shapes and types are in the [tables](self).
#[non_exhaustive]
#[derive(Debug)]
pub struct LocalResponseNormArgs<'a> {
    /// Input.
    pub x: Mem<'a>,
    /// Output.
    pub y: MemMut<'a>,
}

impl<'a> LocalResponseNormArgs<'a> {
    /// The operands.
    pub fn new(x: impl Into<Mem<'a>>, y: impl Into<MemMut<'a>>) -> Self {
        Self { x: x.into(), y: y.into() }
    }
}

/// Operands of [`LocalResponseNormBackwardDescriptor`]; their shapes and types are in the [tables](self).
#[non_exhaustive]
#[derive(Debug)]
pub struct LocalResponseNormBackwardArgs<'a> {
    /// Gradient of y.
    pub dy: Mem<'a>,
    /// Forward's input.
    pub x: Mem<'a>,
    /// Gradient of x.
    pub dx: MemMut<'a>,
}

impl<'a> LocalResponseNormBackwardArgs<'a> {
    /// The operands.
    pub fn new(dy: impl Into<Mem<'a>>, x: impl Into<Mem<'a>>, dx: impl Into<MemMut<'a>>) -> Self {
        Self { dy: dy.into(), x: x.into(), dx: dx.into() }
    }
}

/// A plan of [`LocalResponseNormDescriptor`].
pub type LocalResponseNormPlan = Plan<LocalResponseNormDescriptor>;

/// A plan of [`LocalResponseNormBackwardDescriptor`].
pub type LocalResponseNormBackwardPlan = Plan<LocalResponseNormBackwardDescriptor>;

impl TryFrom<Object<Fields>> for LocalResponseNormDescriptor {
    type Error = Error;

    fn try_from(Object(fields): Object<Fields>) -> Result<Self> {
        Valid::new(NAME, fields).map(Self)
    }
}

impl From<LocalResponseNormDescriptor> for Fields {
    fn from(descriptor: LocalResponseNormDescriptor) -> Self {
        descriptor.0.fields
    }
}

impl TryFrom<Object<Fields>> for LocalResponseNormBackwardDescriptor {
    type Error = Error;

    fn try_from(Object(fields): Object<Fields>) -> Result<Self> {
        Valid::new(BACKWARD_NAME, fields).map(Self)
    }
}

impl From<LocalResponseNormBackwardDescriptor> for Fields {
    fn from(descriptor: LocalResponseNormBackwardDescriptor) -> Self {
        descriptor.0.fields
    }
}

impl sealed::Sealed for LocalResponseNormDescriptor {}

impl Descriptor for LocalResponseNormDescriptor {
    const NAME: &'static str = NAME;
    const OPERANDS: &'static [&'static str] = forward::OPERANDS;
    type Args<'a> = LocalResponseNormArgs<'a>;

    fn slots(&self) -> &[Slot] {
        &self.0.slots
    }

    fn from_json(json: &str) -> Result<Self> {
        json::parse::<Self, Fields>(json)
    }

    fn any_backward(&self, wanted: Gradients) -> Result<Vec<AnyDescriptor>> {
        only_dx(BACKWARD_NAME, wanted)?;
        self.backward().map(|backward| vec![AnyDescriptor::new(backward)])
    }

    fn kernels() -> &'static [&'static dyn Kernel<Self>] {
        &[
            #[cfg(feature = "cuda")]
            &cuda::Cuda,
            #[cfg(feature = "wgpu")]
            &wgpu::Wgpu,
            &cpu::Reference,
        ]
    }
}

impl sealed::Sealed for LocalResponseNormBackwardDescriptor {}

impl Descriptor for LocalResponseNormBackwardDescriptor {
    const NAME: &'static str = BACKWARD_NAME;
    const OPERANDS: &'static [&'static str] = backward::OPERANDS;
    type Args<'a> = LocalResponseNormBackwardArgs<'a>;

    fn slots(&self) -> &[Slot] {
        &self.0.slots
    }

    fn from_json(json: &str) -> Result<Self> {
        json::parse::<Self, Fields>(json)
    }

    fn kernels() -> &'static [&'static dyn Kernel<Self>] {
        &[
            #[cfg(feature = "cuda")]
            &cuda::CudaBackward,
            #[cfg(feature = "wgpu")]
            &wgpu::WgpuBackward,
            &cpu::BackwardReference,
        ]
    }
}

impl sealed::Sealed for LocalResponseNormArgs<'_> {}

impl<'a> Args<'a> for LocalResponseNormArgs<'a> {
    #[inline]
    fn flatten(self) -> Operands<'a> {
        Operands::new([Some(self.x.0), Some(self.y.0)])
    }
}

impl sealed::Sealed for LocalResponseNormBackwardArgs<'_> {}

impl<'a> Args<'a> for LocalResponseNormBackwardArgs<'a> {
    #[inline]
    fn flatten(self) -> Operands<'a> {
        Operands::new([Some(self.dy.0), Some(self.x.0), Some(self.dx.0)])
    }
}

/// Tensors of equal extents as the GPU kernels walk them: element (n, c, s) of a tensor lies at `n * batch + c * channel + s * spatial`.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
#[derive(Clone, Debug, PartialEq)]
struct Geometry {
    batch: u64,
    channels: u64,
    spatial: u64,
    /// Strides of batch, channel and spatial of each tensor, in the order of the operands.
    strides: Vec<[u64; 3]>,
    /// The widest access in bytes, at most 16, that moves neighbouring positions; 0 where they are not neighbours in memory.
    position_bytes: u64,
    /// The same for neighbouring channels.
    channel_bytes: u64,
    /// Channels of a window; at most what makes every window hold all channels.
    size: u64,
    /// alpha / size.
    scale: f64,
    element_bytes: u64,
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl Geometry {
    /// # Errors
    /// Why the spatial extents of a tensor do not collapse.
    fn new(norm: &Valid) -> Result<Self, Reason> {
        let x = &norm.fields.x;
        let dims = x.dims();
        let (batch, channels) = (dims[0], dims[1]);
        let spatial: u64 = dims[2..].iter().product();
        let element_bytes = x.dtype().size_bytes();
        let mut strides = Vec::with_capacity(3);
        // Alignment is what the lowest set bit of everything tells.
        let bytes = |elements: u64| elements.wrapping_mul(element_bytes);
        let (mut position_bits, mut channel_bits) = (16 | bytes(spatial), 16 | bytes(channels));
        let (mut has_positions, mut has_channels) = (true, true);
        for slot in norm.slots.iter() {
            let all = slot.desc.strides();
            let step = spatial_stride(&slot.desc).map_err(|why| format!("{}: {why}", slot.name))?;
            let of = |dim: u64, stride: u64| if dim > 1 { stride } else { 0 };
            let (across, along) = (of(batch, all[0]), of(channels, all[1]));
            let step = of(spatial, step);
            has_positions &= step == 1 || spatial <= 1;
            has_channels &= along == 1 || channels <= 1;
            position_bits |= slot.desc.align_bytes() | bytes(across) | bytes(along);
            channel_bits |= slot.desc.align_bytes() | bytes(across) | bytes(step);
            strides.push([across, along, step]);
        }
        let widest = |bits: u64, has: bool| if has { 1 << bits.trailing_zeros() } else { 0 };
        let most = channels.saturating_mul(2).saturating_add(2);
        Ok(Self {
            batch,
            channels,
            spatial,
            strides,
            position_bytes: widest(position_bits, has_positions),
            channel_bytes: widest(channel_bits, has_channels),
            size: norm.fields.size.min(most),
            scale: norm.fields.alpha.get() / norm.fields.size as f64,
            element_bytes,
        })
    }

    fn elements(&self) -> u64 {
        self.batch * self.channels * self.spatial
    }
}
