//! RMSNorm over the last k extents, forward and backward.
//!
//! With `n` elements in a row, `rstd = 1 / sqrt(sum(x^2) / n + eps)`, `xhat = x * rstd`:
//!
//! - forward: `y = xhat * (weight + weight_offset)`;
//! - backward, with `g = dy * (weight + weight_offset)`: `dx = rstd * (g - xhat * mean(g * xhat)) + dh`,
//!   `dweight = sum(dy * xhat)`, the sum over all rows.
//!
//! With a residual, `h = x + residual`, rounded to its type, takes the place of `x`; one `dx` is the gradient of both.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | any, rank >= k | f64, f32, f16, bf16 | in | always |
//! | `residual` | of x | of x | in | `residual` |
//! | `weight` | the last k extents of x | of x, or f32 | in | `weight` |
//! | `y` | of x | of x | out | always |
//! | `h` | of x | of x | out | `residual` |
//! | `rstd` | the other extents of x | f32, or f64 for f64 | out | `stats` |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `dy`, `x` | of x | of x | in | always; `x` is forward's `h` if it had a residual |
//! | `weight` | the last k extents | of x, or f32 | in | `weight` |
//! | `rstd` | the other extents | f32, or f64 for f64 | in | always |
//! | `dh` | of x | of x | in | `dh`: the gradient that reaches `h` from elsewhere |
//! | `dx` | of x | of x | out; accumulated in and out | `dx` |
//! | `dweight` | the last k extents | of the weight | out; accumulated in and out | `dweight` |
//!
//! Units: all values are plain numbers.
//!
//! Layout and aliasing: any strides on the CPU; on GPUs the normalized extents are dense, the others collapse to at most three
//! strides, weight and rstd are dense. `y` may lie at `x`, `h` at `residual`, `dx` at `dy`, where the layouts agree.
//!
//! Accumulation: in f32, for f64 operands in f64. Sums are added up in a fixed order: a device gives the same bits every time.
//!
//! NaN, infinity, empty: a NaN or an infinity makes rstd and the whole y of its row NaN, and so do finite elements whose squares have no sum in the
//! accumulator's type. Without rows nothing is written but the weight's gradient, which is 0. Without columns rstd is NaN.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: B. Zhang, R. Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019.
//!
//! Kernels: `csrc/norm/row`, a CUDA file `row_norm_<form>.cu` for each form, beside it the WGSL of the form of that name; on the CPU the form
//! `fast` (`row_norm/fast.rs`) of types other than f64, and the reference in `row_norm/cpu.rs`.

use super::row_norm::{
    self, BackwardFields, ForwardFields, RowNorm, backward, backward_kernels, forward, forward_kernels,
};
use crate::error::{Error, Result};
use crate::gradients::one_step;
use crate::operands::args;
use crate::ops::valid::{Described, Valid, descriptor, kernels, shared_steps, steps};
use crate::tensor::TensorDesc;

descriptor! {
    /// RMSNorm over the last extents of a tensor. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, RmsNormDescriptor, TensorDesc};
    /// let x = TensorDesc::contiguous(DType::BF16, &[32, 128, 768])?;
    /// let forward = RmsNormDescriptor::new(x, 1)?.weight(DType::F32)?.eps(1e-6)?.stats()?;
    /// # let _ = forward;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    RmsNormDescriptor(ForwardFields): "rms_norm", RowNorm::Rms;
    args: RmsNormArgs of forward;
    plan: RmsNormPlan;
    kernels: forward_kernels!();
    gradients: ["y", "h"] => ["x", "residual", "weight"],
        |forward, derivation| forward.0.gradients(derivation, Self, RmsNormBackwardDescriptor);
    /// RMSNorm of `x` over its last `normalized_dims` extents, without parameters, with eps 1e-5.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type, or `normalized_dims` is 0 or above its rank.
    fn new(x: TensorDesc, normalized_dims: usize) = ForwardFields::plain(x, normalized_dims);
}

impl RmsNormDescriptor {
    /// The backward with the same types, layouts and options, for the gradients of these inputs. With a residual `dx` is the gradient of both
    /// summands, and takes `dh`.
    ///
    /// # Errors
    /// [`Error::SeveralSteps`] without [`stats`](Self::stats): [`gradients`](crate::Descriptor::gradients) has the step that computes them;
    /// [`Error::NoGradient`] of an input that forward does not have; [`Error::InvalidDescriptor`] if none is wanted.
    pub fn backward(&self, wanted: &[&str]) -> Result<RmsNormBackwardDescriptor> {
        one_step(self, Some(wanted))
    }

    /// As [`backward`](Self::backward), for the gradients of every input.
    ///
    /// # Errors
    /// As [`backward`](Self::backward).
    pub fn backward_all(&self) -> Result<RmsNormBackwardDescriptor> {
        one_step(self, None)
    }
}

shared_steps! { RmsNormDescriptor: weight, weight_offset, eps, stats, residual_sum, layout, y }

descriptor! {
    /// The gradients of [`RmsNormDescriptor`]. See the [formulas and operands](self).
    RmsNormBackwardDescriptor(BackwardFields): "rms_norm_backward", RowNorm::Rms;
    args: RmsNormBackwardArgs of backward;
    plan: RmsNormBackwardPlan;
    kernels: backward_kernels!();
    /// The gradient of `x` for RMSNorm over its last `normalized_dims` extents, without parameters.
    ///
    /// # Errors
    /// As [`RmsNormDescriptor::new`].
    fn new(x: TensorDesc, normalized_dims: usize) = BackwardFields::plain(x, normalized_dims);
}

shared_steps! { RmsNormBackwardDescriptor: gradient_weight, weight_offset, dh, accumulate, layout }

args! {
    /// Operands of [`RmsNormDescriptor`]; their shapes and types are in the [tables](self).
    RmsNormArgs of forward {
        /// The operands that every forward has.
        new(x, y);
        residual(residual, h); weight(weight); stats(rstd = "1 / sqrt(mean(x^2) + eps) of each row, if declared.");
    }
}

args! {
    /// Operands of [`RmsNormBackwardDescriptor`]; their shapes and types are in the [tables](self).
    RmsNormBackwardArgs of backward {
        /// The operands that every backward has.
        new(dy, x, rstd);
        weight(weight); dh(dh); dx(dx); dweight(dweight);
    }
}
