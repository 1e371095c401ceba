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
//! | `weight`, `bias` | the last k extents of x | of x, or f32; both have one type | in | `weight`, `bias` |
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
//! | `dx` | of x | of x | out; accumulated in and out | `dx` |
//! | `dweight`, `dbias` | the last k extents | of the parameter | out; accumulated in and out | `dweight`, `dbias` |
//!
//! Units: all values are plain numbers.
//!
//! Layout and aliasing: any strides on the CPU; on GPUs the normalized extents are dense, the others collapse to at most three
//! strides, parameters and statistics are dense. `y` may lie at `x`, `h` at `residual`, `dx` at `dy`, where the layouts agree.
//!
//! Accumulation: in f32, for f64 operands in f64. The variance is summed about a value near the mean and corrected, so that a constant row
//! gives 0 within the budget and a large mean costs no accuracy. Sums are added up in a fixed order: a device gives the same bits every time.
//!
//! NaN, infinity, empty: a NaN or an infinity makes mean, rstd and the whole y of its row NaN; the mean, too, of a row with an infinity, since
//! its correction is `inf - inf`. rstd and y are NaN as well where the squares of finite elements have no sum in the accumulator's type. Without rows nothing is written but the parameters' gradients, which are 0. Without columns the mean is 0 and
//! rstd NaN.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", 2016; T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for
//! Computing the Sample Variance", The American Statistician 37 (1983), for the corrected two-pass variance.
//!
//! Kernels: `csrc/norm/row`, a CUDA file `row_norm_<form>.cu` for each form, beside it the WGSL of the form of that name; on the CPU the form
//! `fast` (`row_norm/fast.rs`) of types other than f64, and the reference in `row_norm/cpu.rs`.

use super::row_norm::{
    self, BackwardFields, ForwardFields, RowNorm, backward, backward_kernels, forward, forward_kernels,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gradients::one_step;
use crate::operands::args;
use crate::ops::valid::{Described, Valid, descriptor, kernels, shared_steps, steps};
use crate::tensor::TensorDesc;

descriptor! {
    /// LayerNorm over the last extents of a tensor. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, LayerNormDescriptor, TensorDesc};
    /// let x = TensorDesc::contiguous(DType::BF16, &[32, 128, 768])?;
    /// let forward = LayerNormDescriptor::new(x, 1)?.weight(DType::F32)?.bias(DType::F32)?.eps(1e-6)?.stats()?;
    /// # let _ = forward;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    LayerNormDescriptor(ForwardFields): "layer_norm", RowNorm::Layer;
    args: LayerNormArgs of forward;
    plan: LayerNormPlan;
    kernels: forward_kernels!(
        "packed" => row_norm::cuda::forward::packed, "packed_warp" => row_norm::cuda::forward::packed_warp
    );
    gradients: ["y", "h"] => ["x", "residual", "weight", "bias"],
        |forward, derivation| forward.0.gradients(derivation, Self, LayerNormBackwardDescriptor);
    /// LayerNorm of `x` over its last `normalized_dims` extents, without parameters, with eps 1e-5.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type, or `normalized_dims` is 0 or above its rank.
    fn new(x: TensorDesc, normalized_dims: usize) = ForwardFields::plain(x, normalized_dims);
}

impl LayerNormDescriptor {
    /// The backward with the same types, layouts and options, for the gradients of these inputs. With a residual `dx` is the gradient of both
    /// summands, and takes `dh`.
    ///
    /// # Errors
    /// [`Error::SeveralSteps`] without [`stats`](Self::stats): [`gradients`](crate::Descriptor::gradients) has the step that computes them;
    /// [`Error::NoGradient`] of an input that forward does not have; [`Error::InvalidDescriptor`] if none is wanted.
    pub fn backward(&self, wanted: &[&str]) -> Result<LayerNormBackwardDescriptor> {
        one_step(self, Some(wanted))
    }

    /// As [`backward`](Self::backward), for the gradients of every input.
    ///
    /// # Errors
    /// As [`backward`](Self::backward).
    pub fn backward_all(&self) -> Result<LayerNormBackwardDescriptor> {
        one_step(self, None)
    }
}

shared_steps! { LayerNormDescriptor: weight, bias, eps, stats, residual_sum, layout, y }

descriptor! {
    /// The gradients of [`LayerNormDescriptor`]. See the [formulas and operands](self).
    LayerNormBackwardDescriptor(BackwardFields): "layer_norm_backward", RowNorm::Layer;
    args: LayerNormBackwardArgs of backward;
    plan: LayerNormBackwardPlan;
    kernels: backward_kernels!();
    /// The gradient of `x` for LayerNorm over its last `normalized_dims` extents, without parameters.
    ///
    /// # Errors
    /// As [`LayerNormDescriptor::new`].
    fn new(x: TensorDesc, normalized_dims: usize) = BackwardFields::plain(x, normalized_dims);
}

shared_steps! { LayerNormBackwardDescriptor: gradient_weight, dh, accumulate, layout }

steps! { LayerNormBackwardDescriptor
    /// Asks for the gradient of a bias of the given type.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32, or is not the weight's.
    bias(dtype: DType) = |it| it.with(|f| f.dbias = Some(dtype));
}

args! {
    /// Operands of [`LayerNormDescriptor`]; their shapes and types are in the [tables](self).
    LayerNormArgs of forward {
        /// The operands that every forward has.
        new(x, y);
        residual(residual, h); weight(weight); bias(bias); stats(mean, rstd);
    }
}

args! {
    /// Operands of [`LayerNormBackwardDescriptor`]; their shapes and types are in the [tables](self).
    LayerNormBackwardArgs of backward {
        /// The operands that every backward has.
        new(dy, x, mean, rstd);
        weight(weight); dh(dh); dx(dx); dweight(dweight); dbias(dbias);
    }
}
