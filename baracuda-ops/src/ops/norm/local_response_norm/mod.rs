//! LocalResponseNorm over neighbouring channels, forward and backward.
//!
//! The window of channel c is the channels `c - before ..= c + size - before - 1`, cut off at the first and the last channel. `before` is `size / 2`,
//! so that of an even size one more channel lies before c than after it; with `longer_after` it is `(size - 1) / 2`, and one more lies after c. Odd
//! sizes have as many before as after. With `d = k + alpha / size * sum(x^2)`, the sum over the window of c:
//!
//! - forward: `y = x * d^-beta`;
//! - backward: `dx = dy * d^-beta - 2 * alpha * beta / size * x * sum(dy * x * d^(-beta - 1))`, the sum over the channels whose windows
//!   have c in them: `c - (size - before - 1) ..= c + before`.
//!
//! | who has even sizes | window |
//! |---|---|
//! | PyTorch (`torch.nn.functional.local_response_norm`) | the default |
//! | ONNX (`LRN`), cuDNN (`cudnnSetLRNDescriptor`) | `longer_after` |
//! | Caffe, TensorFlow | none: their sizes are odd |
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | `[N, C, spatial..]`, rank 2 to 5 | f64, f32, f16, bf16 | in | always |
//! | `y` | of x | of x | out | always |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `dy`, `x` | of x | of x | in | always |
//! | `dx` | of x | of x | out; accumulated in and out | always |
//!
//! Units: all values are plain numbers; `size` counts channels.
//!
//! Layout and aliasing: any strides on the CPU; on GPUs the spatial extents of each operand collapse to one stride. Contiguous and
//! channels-last operands take the fast paths. Outputs may not lie in the place of inputs, since an element is read for several windows.
//!
//! Accumulation: f32, for f64 operands f64; no sum has a term from outside its window, and each is added up in a fixed order; the same bits on the
//! same device every time.
//!
//! Time: on the CPU it does not depend on `size` if that is above 16. GPUs read windows of other sizes than 3, 5, 7 and 9 again for each element, in a time that grows
//! with `min(size, C)`; with thousands of channels in a window the CPU may be faster. GPUs refuse more than 2^48 such terms.
//!
//! NaN, infinity, empty: as the formula says, also where d is 0, which it can be only if k is 0: `0 * inf` is NaN. An infinite d counts as NaN, be it
//! that of an infinite x, or of finite x whose squares have no sum in the accumulator's type; then y of its channel is NaN (unless beta is 0), and so is
//! dx of each channel whose gradient has a term of it. Without elements nothing is written.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: A. Krizhevsky, I. Sutskever, G. Hinton, "ImageNet Classification with Deep Convolutional Neural Networks", NeurIPS 2012,
//! section 3.3, with alpha divided by the size as `torch.nn.functional.local_response_norm` has it.
//!
//! Kernels: `csrc/norm/local_response/local_response_norm.cu`, `csrc/norm/local_response/local_response_norm_backward.cu`, `csrc/norm/local_response/local_response_norm.wgsl`, on the
//! CPU `local_response_norm_fast` and `local_response_norm_backward_fast` (`fast.rs`) for types other than f64 and windows of up to 16 channels, and the
//! reference in `cpu.rs`.

use crate::dtype::Real;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::error::Reason;
use crate::error::{Error, Result};
use crate::operands::{args, operands};
use crate::ops::fields::{batch_of_channels, beside, demand, float, in_range, require};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::ops::norm::spatial::spatial_stride;
use crate::ops::valid::{self, Described, Direction, Op, descriptor, fields, kernels, shared_steps, steps};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::plan::MAX_WORK;
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

mod cpu;
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
        X x: In, always => "Input.";
        Y y: Out, always => "Output.";
    }
}

operands! { $
    /// Operands of the backward op.
    mod backward {
        DY dy: In, always => "Gradient of y.";
        X x: In, always => "Forward's input.";
        DX dx: Out, always => "Gradient of x.";
    }
}

fields! {
    /// The fields of both descriptors.
    Fields: Fields<Kind = Direction, Derived = ()> + normalise {
        x: TensorDesc,
        size: u64,
        #[serde(default = "default_alpha")]
        alpha: Real,
        #[serde(default = "default_beta")]
        beta: Real,
        #[serde(default = "default_k")]
        k: Real,
        longer_after: bool = default,
    }
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

type Valid = valid::Valid<Fields>;

/// The kernels of a pass, in the order in which they are tried, with the reference that computes it and the fast form before that.
macro_rules! forms {
    ($reference:path, $fast:path) => {
        kernels!(
            cuda: { "walk" => cuda::walk, "rows" => cuda::rows, "tile" => cuda::tile, "direct" => cuda::direct };
            wgpu: { "walk" => wgpu::walk, "rows" => wgpu::rows, "direct" => wgpu::direct };
            cpu: |norm| Ok(Valid::on_cpu(norm, $reference));
            before: {"fast" => $fast}
        )
    };
}

impl Fields {
    /// PyTorch's defaults.
    fn plain(x: TensorDesc, size: u64) -> Self {
        Self::minimal(x, size, default_alpha(), default_beta(), default_k())
    }

    fn normalise(&mut self, _: &Op<Direction>) -> Result<()> {
        self.longer_after &= self.size.is_multiple_of(2);
        Ok(())
    }

    /// Channels of a window before its own, as far as they exist.
    fn before(&self) -> u64 {
        if self.longer_after { (self.size - 1) / 2 } else { self.size / 2 }
    }

    fn declare(&self, &Op { name: op, kind, .. }: &Op<Direction>, slots: &mut SlotsBuilder<'_>) -> Result<()> {
        let x = self.x;
        float(op, "x", &x)?;
        batch_of_channels(op, &x)?;
        demand(op, "size", self.size > 0, "must be at least 1 channel, got 0")?;
        // So that d is a sum of terms that are not negative, of which none cancel.
        for (field, value) in [("alpha", self.alpha), ("beta", self.beta), ("k", self.k)] {
            require(op, field, value.get() >= 0.0, || format!("must be >= 0, got {}", value.get()))?;
            in_range(op, field, value, &x)?;
        }
        let operand = if kind == Direction::Forward { forward::Y } else { backward::DY };
        let output = slots.derived(operand, beside(&x))?;
        match kind {
            Direction::Forward => {
                slots.declare(forward::X, x)?;
                slots.declare(forward::Y, output)?;
            }
            Direction::Backward => {
                slots.declare(backward::X, x)?;
                slots.declare(backward::DY, output)?;
                slots.declare(backward::DX, output)?;
            }
        }
        Ok(())
    }
}

descriptor! {
    /// LocalResponseNorm over neighbouring channels. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, LocalResponseNormDescriptor, TensorDesc};
    /// let x = TensorDesc::contiguous(DType::F32, &[64, 96, 55, 55])?;
    /// let forward = LocalResponseNormDescriptor::new(x, 5)?.alpha(1e-4)?.beta(0.75)?.k(2.0)?;
    /// # let _ = forward;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    LocalResponseNormDescriptor(Fields): "local_response_norm", Direction::Forward;
    args: LocalResponseNormArgs of forward;
    plan: LocalResponseNormPlan;
    kernels: forms!(cpu::forward, fast::forward);
    gradients: ["y"] => ["x"], |forward, derivation| {
        derivation.push(forward.backward()?, &[]);
        Ok(())
    };
    /// LocalResponseNorm of `x`, `[N, C, spatial..]`, over windows of `size` channels, with alpha 1e-4, beta 0.75 and k 1.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type or not of rank 2 to 5, or if `size` is 0.
    fn new(x: TensorDesc, size: u64) = Fields::plain(x, size);
}

impl LocalResponseNormDescriptor {
    /// The backward with the same type, layouts and numbers: `dy` lies as `y`, `dx` as `x`.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    pub fn backward(&self) -> Result<LocalResponseNormBackwardDescriptor> {
        let x = self.0.slots.always(forward::X).desc;
        self.0
            .backward_of(LocalResponseNormBackwardDescriptor::OP, forward::Y, |fields| fields.x = x)
            .map(LocalResponseNormBackwardDescriptor)
    }
}

shared_steps! { LocalResponseNormDescriptor: layout, y }

steps! { LocalResponseNormDescriptor
    /// What the mean of squares over a window is multiplied by (over a window that is cut off, the sum divided by `size`).
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is negative or, unless operands are f64, neither 0 nor a normal number of f32.
    alpha(alpha: f64) = |it| it.real("alpha", alpha, |f, value| f.alpha = value);
    /// The power of d that x is divided by.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is negative or, unless operands are f64, neither 0 nor a normal number of f32.
    beta(beta: f64) = |it| it.real("beta", beta, |f, value| f.beta = value);
    /// The number that is added to the scaled sum of squares.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if it is negative or, unless operands are f64, neither 0 nor a normal number of f32.
    k(k: f64) = |it| it.real("k", k, |f, value| f.k = value);
    /// Of a window of an even size, one more channel lies after its own than before it, as ONNX and cuDNN have it; otherwise it is the other way
    /// round, as PyTorch has it. Windows of odd sizes do not differ.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    longer_after(longer_after: bool) = |it| it.with(|f| f.longer_after = longer_after);
}

descriptor! {
    /// The gradient of [`LocalResponseNormDescriptor`]. See the [formulas and operands](self).
    LocalResponseNormBackwardDescriptor(Fields): "local_response_norm_backward", Direction::Backward;
    args: LocalResponseNormBackwardArgs of backward;
    plan: LocalResponseNormBackwardPlan;
    kernels: forms!(cpu::backward, fast::backward);
    /// The gradient of `x` for windows of `size` channels, with alpha 1e-4, beta 0.75 and k 1.
    ///
    /// # Errors
    /// As [`LocalResponseNormDescriptor::new`].
    fn new(x: TensorDesc, size: u64) = Fields::plain(x, size);
}

shared_steps! { LocalResponseNormBackwardDescriptor: accumulate, layout }

steps! { LocalResponseNormBackwardDescriptor
    /// As [`LocalResponseNormDescriptor::alpha`].
    ///
    /// # Errors
    /// As [`LocalResponseNormDescriptor::alpha`].
    alpha(alpha: f64) = |it| it.real("alpha", alpha, |f, value| f.alpha = value);
    /// As [`LocalResponseNormDescriptor::beta`].
    ///
    /// # Errors
    /// As [`LocalResponseNormDescriptor::beta`].
    beta(beta: f64) = |it| it.real("beta", beta, |f, value| f.beta = value);
    /// As [`LocalResponseNormDescriptor::k`].
    ///
    /// # Errors
    /// As [`LocalResponseNormDescriptor::k`].
    k(k: f64) = |it| it.real("k", k, |f, value| f.k = value);
    /// As [`LocalResponseNormDescriptor::longer_after`].
    ///
    /// # Errors
    /// As [`LocalResponseNormDescriptor::longer_after`].
    longer_after(longer_after: bool) = |it| it.with(|f| f.longer_after = longer_after);
}

args! {
    /// Operands of [`LocalResponseNormDescriptor`]; their shapes and types are in the [tables](self).
    LocalResponseNormArgs of forward {
        /// The operands.
        new(x, y);
    }
}

args! {
    /// Operands of [`LocalResponseNormBackwardDescriptor`]; their shapes and types are in the [tables](self).
    LocalResponseNormBackwardArgs of backward {
        /// The operands.
        new(dy, x, dx);
    }
}

/// Sizes of windows that GPU kernels hold in registers.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
const UNROLLED: [u64; 4] = [3, 5, 7, 9];
/// Positions of a sample from which on `walk` serves tensors whose positions and channels are both neighbours, as extents of 1 make them.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
const FEW_POSITIONS: u64 = 2;

/// Tensors of equal extents as the GPU kernels walk them: element (n, c, s) of a tensor lies at `n * batch + c * channel + s * spatial`.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
#[derive(Clone, Debug, PartialEq)]
struct Geometry {
    batch: u64,
    channels: u64,
    spatial: u64,
    /// Strides of batch, channel and spatial of each tensor, in the order of the operands.
    strides: Vec<[u64; 3]>,
    /// The widest access in bytes, at most 16, that moves neighbouring positions of every tensor; 0 if positions are not neighbours in memory.
    position_bytes: u64,
    /// The widest access in bytes, at most 16, that moves neighbouring channels of every tensor; 0 if channels are not neighbours in memory.
    channel_bytes: u64,
    /// Channels of a window; a size for which every window holds all channels stands for all larger ones.
    size: u64,
    /// Those of them before their own.
    before: u64,
    /// alpha / size.
    scale: f64,
    /// Which roots of d give its power: 1 for a beta of 0.5, 2 for 1, 3 for 0.75; 0 for other numbers, and if d may be subnormal.
    half_powers: u32,
    element_bytes: u64,
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn half_powers(beta: f64, k: f64) -> u32 {
    match beta {
        _ if !(2f64.powi(-126)..=2f64.powi(127)).contains(&k) => 0,
        0.5 => 1,
        1.0 => 2,
        0.75 => 3,
        _ => 0,
    }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl Geometry {
    /// # Errors
    /// Why the spatial extents of a tensor do not collapse; windows of more terms than a run can end with.
    fn new(norm: &Valid) -> Result<Self, Reason> {
        let x = &norm.fields.x;
        let dims = x.dims();
        let (batch, channels) = (dims[0], dims[1]);
        let spatial: u64 = dims[2..].iter().product();
        let (size, most) = (norm.fields.size, channels.saturating_mul(2).saturating_add(2));
        let terms = x.elements().saturating_mul(size.min(channels));
        Reason::unless(terms <= MAX_WORK, || {
            format!("windows of {size} over x have {terms} terms, the limit is {MAX_WORK}")
        })?;
        let element_bytes = x.dtype().size_bytes();
        let mut strides = Vec::with_capacity(3);
        // The alignment of all tensors is the lowest bit that is set in any of their numbers.
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
        Ok(Self {
            batch,
            channels,
            spatial,
            strides,
            position_bytes: widest(position_bits, has_positions),
            channel_bytes: widest(channel_bits, has_channels),
            size: size.min(most),
            before: norm.fields.before().min(most / 2),
            scale: norm.fields.alpha.get() / norm.fields.size as f64,
            half_powers: half_powers(norm.fields.beta.get(), norm.fields.k.get()),
            element_bytes,
        })
    }

    fn elements(&self) -> u64 {
        self.batch * self.channels * self.spatial
    }

    /// Refuses windows that kernels do not hold in registers.
    fn check_unrolled(&self) -> Result<(), Reason> {
        let size = self.size;
        Reason::unless(UNROLLED.contains(&size), || format!("its windows have 3, 5, 7 or 9 channels, here {size}"))
    }

    /// Whether threads beside each other should take neighbouring channels, not neighbouring positions.
    fn prefers_channels(&self) -> bool {
        self.channel_bytes > 0 && (self.position_bytes == 0 || self.spatial < FEW_POSITIONS)
    }
}
