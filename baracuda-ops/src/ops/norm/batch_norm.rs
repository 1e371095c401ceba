//! BatchNorm over all extents but the channels', in training and inference, forward and backward.
//!
//! With `n` elements in a channel (of all samples), `mean = sum(x) / n`, `var = sum((x - mean)^2) / n`, `rstd = 1 / sqrt(var + eps)`,
//! `xhat = (x - mean) * rstd`:
//!
//! - forward: `y = act(xhat * weight + bias + residual)`;
//! - running statistics: `running_mean = (1 - m) running_mean + m mean`, `running_var = (1 - m) running_var + m var n / (n - 1)`, where
//!   `m` is `momentum`, or in cumulative mode `1 / (t + 1)` with `t = num_batches`, which becomes `t + 1`;
//! - inference: `running_mean` and `running_var` are `mean` and `var`;
//! - backward, with `dpre = dy * act'(pre)`, `pre` the argument of the activation, and `g = dpre * weight`:
//!   `dx = rstd * (g - mean(g) - xhat * mean(g * xhat))`, in inference `dx = rstd * g`; `dresidual = dpre`,
//!   `dweight = sum(dpre * xhat)`, `dbias = sum(dpre)`, means and sums over the channel. `pre` is computed again, or for ReLU `y` tells
//!   its sign.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | `[N, C, spatial..]`, rank 2 to 5 | f64, f32, f16, bf16 | in | always |
//! | `residual` | of x | of x | in | `residual` |
//! | `weight`, `bias` | `[C]` | of x, or f32; both have one type | in | `weight`, `bias` |
//! | `running_mean`, `running_var` | `[C]` | f32, or f64 for f64 | in, out; in inference in | `momentum`, `cumulative`, `inference` |
//! | `num_batches` | `[1]` | i64 | in, out | `cumulative` |
//! | `y` | of x | of x | out | always |
//! | `mean`, `rstd` | `[C]` | f32, or f64 for f64 | out | `stats` |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `dy`, `x` | of x | of x | in | always |
//! | `residual` | of x | of x | in | `residual` with an activation, unless `from_y` |
//! | `y` | of x | of x | in | `from_y` |
//! | `weight` | `[C]` | of x, or f32 | in | `weight` |
//! | `bias` | `[C]` | of x, or f32; weight's, if there is one | in | `bias` with an activation, unless `from_y` |
//! | `mean`, `rstd` | `[C]` | f32, or f64 for f64 | in | in training |
//! | `running_mean`, `running_var` | `[C]` | f32, or f64 for f64 | in | in inference |
//! | `dx`, `dresidual` | of x | of x | out; accumulated in and out | `dx`, `dresidual` |
//! | `dweight`, `dbias` | `[C]` | of the parameter | out; accumulated in and out | `dweight`, `dbias` |
//!
//! Units: all values are plain numbers.
//!
//! Layout and aliasing: any strides on the CPU; on GPUs the spatial extents collapse to one stride, which is 1 in every tensor
//! (contiguous), or the channels' stride is 1 in every tensor (channels last); parameters and statistics are dense. `y` may lie at `x`,
//! or with a residual at `residual` instead, `dx` at `dy`, where the layouts agree.
//!
//! Accumulation: f32, for f64 operands f64, in two passes with correction (a constant channel gives `bias`
//! within the budget, a large mean costs nothing), statistics merged in a fixed order; the same bits on the same device every time.
//!
//! NaN, infinity, empty: in training, a NaN or an infinity makes mean, rstd and y of its channel NaN throughout; the mean is NaN beside an
//! infinity, too, as its correction is `inf - inf`. rstd and y are NaN as well where the squares of finite elements have no sum in the accumulator's
//! type. In inference the formula holds element by element. No elements in a channel, or no channels: mean 0,
//! rstd NaN, running statistics and count stay as they are, the gradients of the parameters are 0.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field, also where training would take statistics of one element;
//! [`Error::Unsupported`] says which kernel refused which layout.
//!
//! Source: S. Ioffe, C. Szegedy, "Batch Normalization", 2015; T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for Computing the
//! Sample Variance", The American Statistician 37 (1983), for the corrected two-pass variance.
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
    /// BatchNorm of a tensor `[N, C, spatial..]`. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{Activation, BatchNormDescriptor, DType, TensorDesc};
    /// let x = TensorDesc::channels_last(DType::BF16, &[32, 64, 56, 56])?;
    /// let forward = BatchNormDescriptor::new(x)?
    ///     .weight(DType::F32)?
    ///     .bias(DType::F32)?
    ///     .momentum(0.1)?
    ///     .residual()?
    ///     .activation(Activation::Relu)?
    ///     .stats()?;
    /// let backward = forward.backward_all()?.from_y()?;
    /// # let _ = backward;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    BatchNormDescriptor(ForwardFields): "batch_norm", ChannelNorm::Batch;
    args: BatchNormArgs of forward;
    plan: BatchNormPlan;
    kernels: channel_norm::forward_kernels();
    gradients: ["y"] => ["x", "residual", "weight", "bias"],
        |forward, derivation| forward.0.gradients(derivation, Self, BatchNormBackwardDescriptor);
    /// BatchNorm of `x` with the statistics of the batch, without parameters, with eps 1e-5.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type or not of rank 2 to 5, or if it has one element in a channel:
    /// for inference there is [`inference`](Self::inference).
    fn new(x: TensorDesc) = ForwardFields::plain(x, None);
    /// As [`new`](Self::new), with the running statistics in place of those of x, which may have one element.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if x is not of a floating-point type or not of rank 2 to 5.
    fn inference(x: TensorDesc) = ForwardFields::inference(x);
}

impl BatchNormDescriptor {
    /// The backward with the same types, layouts and options, for the gradients of these inputs. In inference it takes the running statistics.
    /// With an activation it computes the pre-activation again, unless told to look at `y`: [`from_y`](BatchNormBackwardDescriptor::from_y).
    ///
    /// # Errors
    /// [`Error::SeveralSteps`] in training without [`stats`](Self::stats), and if through an activation x's gradient is wanted without the
    /// residual's: [`gradients`](crate::Descriptor::gradients) has what is missing; [`Error::NoGradient`] of an input that forward does not have;
    /// [`Error::InvalidDescriptor`] if none is wanted.
    pub fn backward(&self, wanted: &[&str]) -> Result<BatchNormBackwardDescriptor> {
        one_step(self, Some(wanted))
    }

    /// As [`backward`](Self::backward), for the gradients of every input.
    ///
    /// # Errors
    /// As [`backward`](Self::backward).
    pub fn backward_all(&self) -> Result<BatchNormBackwardDescriptor> {
        one_step(self, None)
    }
}

shared_steps! { BatchNormDescriptor: weight, bias, eps, activation, momentum, stats, layout, y }

steps! { BatchNormDescriptor
    /// Adds a residual before the activation.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    residual() = |it| it.with(|f| f.residual = true);
    /// Updates running statistics that are the mean over all batches, and counts these in `num_batches`.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] in inference or with a momentum.
    cumulative() = |it| it.with(|f| f.cumulative = true);
}

descriptor! {
    /// The gradients of [`BatchNormDescriptor`]. See the [formulas and operands](self).
    BatchNormBackwardDescriptor(BackwardFields): "batch_norm_backward", ChannelNorm::Batch;
    args: BatchNormBackwardArgs of backward;
    plan: BatchNormBackwardPlan;
    kernels: channel_norm::backward_kernels();
    /// The gradient of `x` with the statistics of the batch, without parameters.
    ///
    /// # Errors
    /// As [`BatchNormDescriptor::new`].
    fn new(x: TensorDesc) = BackwardFields::plain(x, None);
    /// As [`new`](Self::new), with the running statistics and the eps of forward.
    ///
    /// # Errors
    /// As [`BatchNormDescriptor::inference`] and [`BatchNormDescriptor::eps`].
    fn inference(x: TensorDesc, eps: f64) = BackwardFields::inference(x, real(Self::OP.name, "eps", eps)?);
}

shared_steps! { BatchNormBackwardDescriptor: gradient_weight, gradient_bias, gradient_activation, accumulate, layout }

steps! { BatchNormBackwardDescriptor
    /// Forward had a residual; `gradient` asks for its gradient. The residual itself is an operand with an activation.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] without its gradient, where x's is computed through an activation.
    residual(gradient: bool) = |it| it.with(|f| (f.residual, f.dresidual) = (true, gradient));
    /// Takes forward's `y` in place of bias and residual: for ReLU it tells where the gradient is 0.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] for another activation than ReLU.
    from_y() = |it| it.from_y();
}

args! {
    /// Operands of [`BatchNormDescriptor`]; their shapes and types are in the [tables](self).
    ///
    /// ```
    /// use baracuda_ops::{BatchNormArgs, BatchNormDescriptor, DType, Device, Plan, PlanOptions, TensorDesc, Workspace};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[2, 3, 4])?;
    /// let plan = Plan::new(&device, BatchNormDescriptor::new(x)?.momentum(0.1)?, &PlanOptions::default())?;
    /// let (input, mut output) = (vec![1f32; 24], vec![0f32; 24]);
    /// let (mut running_mean, mut running_var) = (vec![0f32; 3], vec![1f32; 3]);
    /// let args = BatchNormArgs::new(&input, &mut output).running(&mut running_mean, &mut running_var);
    /// plan.run(&mut device.queue(), args, Workspace::none())?;
    /// assert_eq!((running_mean, running_var), (vec![0.1; 3], vec![0.9; 3]));
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    BatchNormArgs of forward {
        /// The operands that every forward has.
        new(x, y) private(running_mean, running_var);
        residual(residual); weight(weight); bias(bias); num_batches(num_batches);
        stats(mean = "Mean of each channel, if declared.", rstd);
    }
}

running_statistics! { BatchNormArgs }

args! {
    /// Operands of [`BatchNormBackwardDescriptor`]; their shapes and types are in the [tables](self).
    BatchNormBackwardArgs of backward {
        /// The operands that every backward has.
        new(dy, x);
        residual(residual); y(y); weight(weight); bias(bias); stats(mean, rstd); inference(running_mean, running_var);
        dx(dx); dresidual(dresidual); dweight(dweight); dbias(dbias);
    }
}
