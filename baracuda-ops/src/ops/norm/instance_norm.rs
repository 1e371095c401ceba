//! InstanceNorm: each channel of each sample, forward and backward.
//!
//! With `n` spatial elements, `mean = sum(x) / n`, `var = sum((x - mean)^2) / n`, `rstd = 1 / sqrt(var + eps)`,
//! `xhat = (x - mean) * rstd`:
//!
//! - forward: `y = act(xhat * weight + bias)`;
//! - running statistics: `running_mean = (1 - m) running_mean + m M`, `running_var = (1 - m) running_var + m V`, `m` the momentum, `M` and
//!   `V` the means over the samples of `mean` and of `var n / (n - 1)`;
//! - inference: `running_mean` and `running_var` are `mean` and `var` of every sample;
//! - backward, with `dpre = dy * act'(pre)`, `pre` the argument of the activation, which is computed again, and `g = dpre * weight`:
//!   `dx = rstd * (g - mean(g) - xhat * mean(g * xhat))`, in inference `dx = rstd * g`, the means over the spatial extents;
//!   `dweight = sum(dpre * xhat)`, `dbias = sum(dpre)`, the sums over samples and spatial extents.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | `[N, C, spatial..]`, rank 2 to 5 | f64, f32, f16, bf16 | in | always |
//! | `weight`, `bias` | `[C]` | of x, or f32; both have one type | in | `weight`, `bias` |
//! | `running_mean`, `running_var` | `[C]` | f32, or f64 for f64 | in, out; in inference in | `momentum`, `inference` |
//! | `y` | of x | of x | out | always |
//! | `mean`, `rstd` | `[N, C]` | f32, or f64 for f64 | out | `stats` |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `dy`, `x` | of x | of x | in | always |
//! | `weight` | `[C]` | of x, or f32 | in | `weight` |
//! | `bias` | `[C]` | of x, or f32; weight's, if there is one | in | `bias` with an activation |
//! | `mean`, `rstd` | `[N, C]` | f32, or f64 for f64 | in | with the statistics of the input |
//! | `running_mean`, `running_var` | `[C]` | f32, or f64 for f64 | in | in inference |
//! | `dx` | of x | of x | out; accumulated in and out | `dx` |
//! | `dweight`, `dbias` | `[C]` | of the parameter | out; accumulated in and out | `dweight`, `dbias` |
//!
//! Units: all values are plain numbers.
//!
//! Layout and aliasing: any strides on the CPU; on GPUs the spatial extents collapse to one stride, which is 1 in every tensor
//! (contiguous), or the channels' stride is 1 in every tensor (channels last); parameters and statistics are dense. `y` may lie at `x`,
//! `dx` at `dy`, where the layouts agree.
//!
//! Accumulation: f32, for f64 operands f64, in two passes with correction (a constant channel gives `bias`
//! within the budget, a large mean costs nothing), statistics merged in a fixed order; the same bits on the same device every time.
//!
//! NaN, infinity, empty: a NaN or an infinity makes mean, rstd and y of its channel and sample NaN throughout; the mean is NaN beside an
//! infinity, too, as its correction is `inf - inf`. rstd and y are NaN as well where the squares of finite elements have no sum in the accumulator's
//! type. In inference the formula holds element by element. No spatial elements: mean 0, rstd NaN; no
//! elements at all: running statistics stay as they are, the gradients of the parameters are 0.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field, also where statistics would be those of one spatial element;
//! [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: D. Ulyanov, A. Vedaldi, V. Lempitsky, "Instance Normalization: The Missing Ingredient for Fast Stylization", 2016; T. F. Chan,
//! G. H. Golub, R. J. LeVeque, "Algorithms for Computing the Sample Variance", The American Statistician 37 (1983), for the corrected
//! two-pass variance.
//!
//! Kernels: `csrc/norm/channel` and `csrc/norm/channels_last`, where CUDA files begin with `channel_norm` and `channels_last_norm`; on the CPU the form
//! `fast` (`channel_norm/fast`) of types other than f64 and layouts that GPUs take, and the reference in `channel_norm/cpu.rs`.

use super::channel_norm::{self, BackwardFields, ChannelNorm, ForwardFields, backward, forward, running_statistics};
use crate::error::{Error, Result};
use crate::gradients::one_step;
use crate::memory::{Mem, MemMut};
use crate::operands::args;
use crate::ops::fields::real;
use crate::ops::valid::{Described, descriptor, shared_steps, steps};
use crate::tensor::TensorDesc;

descriptor! {
    /// InstanceNorm of a tensor `[N, C, spatial..]`. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{DType, InstanceNormDescriptor, TensorDesc};
    /// let x = TensorDesc::contiguous(DType::F32, &[8, 64, 128, 128])?;
    /// let forward = InstanceNormDescriptor::new(x)?.weight(DType::F32)?.bias(DType::F32)?.stats()?;
    /// let backward = forward.backward_all()?;
    /// # let _ = backward;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    InstanceNormDescriptor(ForwardFields): "instance_norm", ChannelNorm::Instance;
    args: InstanceNormArgs of forward;
    plan: InstanceNormPlan;
    kernels: channel_norm::forward_kernels();
    gradients: ["y"] => ["x", "weight", "bias"],
        |forward, derivation| forward.0.gradients(derivation, Self, InstanceNormBackwardDescriptor);
    /// InstanceNorm of `x` with the statistics of each channel of each sample, without parameters, with eps 1e-5.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type or not of rank 2 to 5, or if it has one spatial element: with
    /// running statistics there is [`inference`](Self::inference).
    fn new(x: TensorDesc) = ForwardFields::plain(x, None);
    /// As [`new`](Self::new), with the running statistics in place of those of x, which may have one element.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type or not of rank 2 to 5.
    fn inference(x: TensorDesc) = ForwardFields::inference(x);
}

impl InstanceNormDescriptor {
    /// The backward with the same types, layouts and options, for the gradients of these inputs. In inference it takes the running statistics.
    ///
    /// # Errors
    /// [`Error::SeveralSteps`] without [`stats`](Self::stats), except in inference: [`gradients`](crate::Descriptor::gradients) has the step that
    /// computes them; [`Error::NoGradient`] of an input that forward does not have; [`Error::InvalidDescriptor`] if none is wanted.
    pub fn backward(&self, wanted: &[&str]) -> Result<InstanceNormBackwardDescriptor> {
        one_step(self, Some(wanted))
    }

    /// As [`backward`](Self::backward), for the gradients of every input.
    ///
    /// # Errors
    /// As [`backward`](Self::backward).
    pub fn backward_all(&self) -> Result<InstanceNormBackwardDescriptor> {
        one_step(self, None)
    }
}

shared_steps! { InstanceNormDescriptor: weight, bias, eps, activation, momentum, stats, layout, y }

descriptor! {
    /// The gradients of [`InstanceNormDescriptor`]. See the [formulas and operands](self).
    InstanceNormBackwardDescriptor(BackwardFields): "instance_norm_backward", ChannelNorm::Instance;
    args: InstanceNormBackwardArgs of backward;
    plan: InstanceNormBackwardPlan;
    kernels: channel_norm::backward_kernels();
    /// The gradient of `x` with the statistics of each channel of each sample, without parameters.
    ///
    /// # Errors
    /// As [`InstanceNormDescriptor::new`].
    fn new(x: TensorDesc) = BackwardFields::plain(x, None);
    /// As [`new`](Self::new), with the running statistics and the eps of forward.
    ///
    /// # Errors
    /// As [`InstanceNormDescriptor::inference`] and [`InstanceNormDescriptor::eps`].
    fn inference(x: TensorDesc, eps: f64) = BackwardFields::inference(x, real(Self::OP.name, "eps", eps)?);
}

shared_steps! { InstanceNormBackwardDescriptor: gradient_weight, gradient_bias, gradient_activation, accumulate, layout }

args! {
    /// Operands of [`InstanceNormDescriptor`]; their shapes and types are in the [tables](self).
    InstanceNormArgs of forward {
        /// The operands that every forward has.
        new(x, y) private(running_mean, running_var);
        weight(weight); bias(bias); stats(mean = "Mean of each channel of each sample, if declared.", rstd);
    }
}

running_statistics! { InstanceNormArgs }

args! {
    /// Operands of [`InstanceNormBackwardDescriptor`]; their shapes and types are in the [tables](self).
    InstanceNormBackwardArgs of backward {
        /// The operands that every backward has.
        new(dy, x);
        weight(weight); bias(bias); stats(mean, rstd); inference(running_mean, running_var); dx(dx); dweight(dweight);
        dbias(dbias);
    }
}
