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
//! | `weight`, `bias` | `[C]` | of x, or f32; both have one type | in | `weight`, `bias` |
//! | `y` | of x | of x | out | always |
//! | `mean`, `rstd` | `[N, groups]` | f32, or f64 for f64 | out | `stats` |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `dy`, `x` | of x | of x | in | always |
//! | `weight` | `[C]` | of x, or f32 | in | `weight` |
//! | `bias` | `[C]` | of x, or f32; weight's, if there is one | in | `bias` with an activation |
//! | `mean`, `rstd` | `[N, groups]` | f32, or f64 for f64 | in | always |
//! | `dx` | of x | of x | out; accumulated in and out | `dx` |
//! | `dweight`, `dbias` | `[C]` | of the parameter | out; accumulated in and out | `dweight`, `dbias` |
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
//! as its correction is `inf - inf`. rstd and y are NaN as well where the squares of finite elements have no sum in the accumulator's type. One finite element in a group: `act(bias)`, dx 0. No elements in a group: mean 0, rstd NaN; the gradients of parameters over nothing are 0.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field; [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: Y. Wu, K. He, "Group Normalization", 2018; T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for Computing the Sample
//! Variance", The American Statistician 37 (1983), for the corrected two-pass variance.
//!
//! Kernels: `csrc/norm/channel` and `csrc/norm/channels_last`, where CUDA files begin with `channel_norm` and `channels_last_norm`; on the CPU the form
//! `fast` (`channel_norm/fast`) of types other than f64 and layouts that GPUs take, and the reference in `channel_norm/cpu.rs`.

use super::channel_norm::{self, BackwardFields, ChannelNorm, ForwardFields, backward, forward};
use crate::error::{Error, Result};
use crate::gradients::one_step;
use crate::operands::args;
use crate::ops::valid::{Described, descriptor, shared_steps, steps};
use crate::tensor::TensorDesc;

descriptor! {
    /// GroupNorm of a tensor `[N, C, spatial..]`. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{Activation, DType, GroupNormDescriptor, TensorDesc};
    /// let x = TensorDesc::contiguous(DType::BF16, &[2, 320, 64, 64])?;
    /// let forward = GroupNormDescriptor::new(x, 32)?
    ///     .weight(DType::BF16)?
    ///     .bias(DType::BF16)?
    ///     .activation(Activation::Silu)?
    ///     .stats()?;
    /// let backward = forward.backward_all()?;
    /// # let _ = backward;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    GroupNormDescriptor(ForwardFields): "group_norm", ChannelNorm::Group;
    args: GroupNormArgs of forward;
    plan: GroupNormPlan;
    kernels: channel_norm::forward_kernels();
    gradients: ["y"] => ["x", "weight", "bias"],
        |forward, derivation| forward.0.gradients(derivation, Self, GroupNormBackwardDescriptor);
    /// GroupNorm of `x` with that many groups of channels, without parameters, with eps 1e-5.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type or not of rank 2 to 5, or if `groups` is 0 or does not divide the
    /// channels.
    fn new(x: TensorDesc, groups: u64) = ForwardFields::plain(x, Some(groups));
}

impl GroupNormDescriptor {
    /// The backward with the same types, layouts and options, for the gradients of these inputs.
    ///
    /// # Errors
    /// [`Error::SeveralSteps`] without [`stats`](Self::stats): [`gradients`](crate::Descriptor::gradients) has the step that computes them;
    /// [`Error::NoGradient`] of an input that forward does not have; [`Error::InvalidDescriptor`] if none is wanted.
    pub fn backward(&self, wanted: &[&str]) -> Result<GroupNormBackwardDescriptor> {
        one_step(self, Some(wanted))
    }

    /// As [`backward`](Self::backward), for the gradients of every input.
    ///
    /// # Errors
    /// As [`backward`](Self::backward).
    pub fn backward_all(&self) -> Result<GroupNormBackwardDescriptor> {
        one_step(self, None)
    }
}

shared_steps! { GroupNormDescriptor: weight, bias, eps, activation, stats, layout, y }

descriptor! {
    /// The gradients of [`GroupNormDescriptor`]. See the [formulas and operands](self).
    GroupNormBackwardDescriptor(BackwardFields): "group_norm_backward", ChannelNorm::Group;
    args: GroupNormBackwardArgs of backward;
    plan: GroupNormBackwardPlan;
    kernels: channel_norm::backward_kernels();
    /// The gradient of `x` with that many groups, without parameters.
    ///
    /// # Errors
    /// As [`GroupNormDescriptor::new`].
    fn new(x: TensorDesc, groups: u64) = BackwardFields::plain(x, Some(groups));
}

shared_steps! { GroupNormBackwardDescriptor: gradient_weight, gradient_bias, gradient_activation, accumulate, layout }

args! {
    /// Operands of [`GroupNormDescriptor`]; their shapes and types are in the [tables](self).
    GroupNormArgs of forward {
        /// The operands that every forward has.
        new(x, y);
        weight(weight); bias(bias); stats(mean = "Mean of each group, if declared.", rstd);
    }
}

args! {
    /// Operands of [`GroupNormBackwardDescriptor`]; their shapes and types are in the [tables](self).
    GroupNormBackwardArgs of backward {
        /// The operands that every backward has.
        new(dy, x);
        weight(weight); bias(bias); stats(mean, rstd); dx(dx); dweight(dweight); dbias(dbias);
    }
}
