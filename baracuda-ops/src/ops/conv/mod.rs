//! Convolution with bias and activation in one, two or three spatial extents, and its gradients.
//!
//! With groups g, each of which has `Ci / groups` channels c of x and `Co / groups` channels k of y, spatial indices o of y, i of x and r of
//! the kernel, and one stride, dilation and padding per axis:
//!
//! - forward: `acc[n, g, k, o] = sum over c and r of x[n, g, c, stride * o + dilation * r - before] * weight[g, k, c, r]`,
//!   `pre = acc + bias`, `y = act(pre)`. The sum has no term where the index of x lies outside of x, in the padding. The kernel is not
//!   mirrored: this is cross-correlation, as in all deep-learning frameworks;
//! - backward data: `dx[n, g, c, i] = sum over k, r and o with stride * o + dilation * r - before = i of dy[n, g, k, o] * weight[g, k, c, r]`,
//!   which is the transposed convolution of dy;
//! - backward weight: `dweight[g, k, c, r] = sum over n and o of x[n, g, c, stride * o + dilation * r - before] * dy[n, g, k, o]`;
//! - backward bias: `dbias[k] = sum over n and o of dy[n, k, o]`.
//!
//! Each gradient can be added to what is there: `grad = beta * grad + ..`, rounded once. All of them take `dy` as the gradient of the
//! pre-activation: of a convolution with an activation, [`ActivationBackwardDescriptor`] makes it from the gradient of y, as
//! [`gradients`](crate::Descriptor::gradients) has it. The functions are in the table of [`Activation`].
//!
//! Along each axis the padded extent must hold the dilated kernel once: `in + before + after >= dilation * (kernel - 1) + 1`. The extent of
//! y is `floor((in + before + after - dilation * (kernel - 1) - 1) / stride) + 1`.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | `[N, Ci, spatial..]`, 1 to 3 spatial extents | T: f64, f32, f16 or bf16 | in | always |
//! | `weight` | `[Co, Ci / groups, kernel..]` | T | in | always |
//! | `bias` | `[Co]` | T or f32 | in | `bias` |
//! | `y` | `[N, Co, out..]` | T or f32 | out | always |
//! | `pre` | of y | T or f32 | out | `pre` |
//!
//! | backward data operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `weight` | as in forward | T | in | always |
//! | `dy` | `[N, Co, out..]` | T or f32 | in | always |
//! | `dx` | `[N, Ci, spatial..]` | T or f32 | out; with a beta other than 0 in and out | always |
//!
//! | backward weight operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `x` | as in forward | T | in | always |
//! | `dy` | `[N, Co, out..]` | T or f32 | in | always |
//! | `dweight` | `[Co, Ci / groups, kernel..]` | T or f32 | out; with a beta other than 0 in and out | always |
//!
//! | backward bias operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `dy` | `[N, Co, out..]` | f64, f32, f16 or bf16 | in | always |
//! | `dbias` | `[Co]` | of dy, or f32; where dy is f32, also f16 or bf16 | out; with a beta other than 0 in and out | always |
//!
//! Of f64 every operand is f64.
//!
//! Units: all values are plain numbers; strides, dilations and padding count elements along their axis.
//!
//! Layout and aliasing: extents are in this order in every layout, with any strides. Tensors that are contiguous or channels-last
//! ([`TensorDesc::channels_last`]; in the weight, channels are then faster than the kernel's positions) are loaded in whole vectors, whatever the
//! layouts of the others; cuDNN serves no other layouts. A tensor with one channel, or with spatial extents of 1 only, is both. By default `y` and `pre`
//! are channels-last if the channels of x are closer to each other in memory than its spatial neighbours, else contiguous. Operands may not overlap.
//!
//! Accumulation: f32, for f64 operands f64, in a fixed order, so that a device computes equal bits every time. Products of f32 are f32
//! throughout, unless the options let them be [`Tf32`](crate::Math::Tf32). A dy of f32 beside factors of f16 or bf16 may be rounded once to their
//! type before it is multiplied; the gradient of the bias sums the unrounded one.
//!
//! NaN, infinity, empty: NaN and infinity propagate as the formula says. If a weight is not finite, outputs whose window touches the padding may be NaN
//! where the formula is not: kernels may multiply the weight by a zero of the padding. If N, Co or an extent of y is 0, forward writes nothing; if Ci
//! is 0, y is `act(bias)`. A gradient that is a sum over nothing, such as that of the weight if N is 0, is `beta * grad`.
//!
//! The transposed convolution with a bias, an activation and output padding is an op of its own, [`conv_transpose`].
//!
//! Out of scope: negative padding, padding with values other than 0, 8-bit types, complex numbers.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field and the numbers that do not fit: groups that do not divide the channels, a padded extent
//! smaller than the dilated kernel, extents of dx from which no convolution makes dy. Paddings, strides and reaches of the dilated kernel are
//! below 2^31. [`Error::Unsupported`] says why each kernel refused.
//!
//! Source: V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", 2016, for the extents and the transposed convolution;
//! S. Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014, for the convolution as a product of matrices; as for
//! [`Activation`] for the rest.
//!
//! Kernels, in the order in which they are tried. Each serves forward and the gradients of the data and of the weight, unless it says otherwise.
//!
//! On CUDA:
//! - `conv_depthwise` (`csrc/conv/conv_depthwise.cu`, `conv_depthwise_weight.cu`): groups of one channel of x, in f32, f16 and bf16, with kernels of 3 x 3,
//!   5 x 5 and, except for the gradient of the weight, 7 x 7, without stride and dilation;
//! - `conv_few_channels` (`conv_few_channels.cu`, `conv_few_channels_weight.cu`, `conv_few_channels_data.cu`): one group of at most 8 channels of x without
//!   dilation, preferred up to 4 channels; f16 and bf16, and forward of f32 rounded to tf32;
//! - `conv_cudnn` (`cuda/vendor.rs`): cuDNN, if it is installed, with a bias of y's type and without `pre`. Of the activations it applies ReLU, if the kernel is
//!   asked for by name;
//! - `conv_gemm_cublaslt`, `conv_gemm_wgmma`, `conv_gemm_mma` and `conv_gemm_simt`: gemm's kernels, for convolutions that are products of matrices
//!   (`product.rs`), such as those with a kernel of one element and a stride of 1. `conv_cudnn` leaves these in f32 to gemm unless tf32 is allowed;
//! - `conv_wgmma` (`conv_wgmma.cu`), tried before `conv_gemm_mma`: tensor cores of compute capability 9.0, f16, bf16 and f32 rounded to tf32;
//! - `conv_mma` (`conv_mma.cu`), tried before `conv_gemm_simt`: tensor cores of compute capability 8.0, f16, bf16 and f32 rounded to tf32;
//! - `conv_simt` (`conv_simt.cu`): any type and strides.
//!
//! The gradient of the bias is `csrc/conv/conv_backward_bias.cu` with the column sums of gemm.
//!
//! Through wgpu:
//! - `conv_depthwise` (`csrc/conv/conv_depthwise.wgsl`, `conv_depthwise_weight.wgsl`): groups of one channel of x with kernels of up to 7 x 7 without stride
//!   and dilation;
//! - `conv_walk` (`conv_walk.wgsl`): large strides of the gradient of the data, and kernels that are much longer than x, where nearly all places that a
//!   window sees are outside of x or dy or between elements of dy: it visits the others alone; and coordinates that do not fit into 32 bits with a
//!   sign, which the forms below count;
//! - `conv_direct` (`conv_direct.wgsl`): groups whose outputs have at most 4 channels;
//! - `conv_gemm_tiled`: products of matrices that fill gemm's tiles as well as those of `conv_tiled`;
//! - `conv_tiled` (`conv.wgsl`): everything else.
//!
//! On the CPU: `conv_depthwise` (`channelwise.rs`) for groups of one channel and one filter of f32, f16 or bf16; `conv_fast` (`fast.rs`, with
//! `packed.rs` for all types but f64) unless windows see mostly padding; the reference (`cpu.rs`).
//!
//! [`Activation`]: crate::ops::activation
//! [`ActivationBackwardDescriptor`]: crate::ActivationBackwardDescriptor
//! [`Error::InvalidDescriptor`]: crate::Error::InvalidDescriptor
//! [`Error::Unsupported`]: crate::Error::Unsupported

use crate::dtype::{DType, Real};
use crate::error::Result;
use crate::gradients::{Derivation, Role};
use crate::kernel::Kernel;
use crate::operands::operands;
use crate::ops::activation::Activation;
use crate::ops::fields::{beside_factors, float, in_range, require};
use crate::ops::pointwise::ActivationBackwardDescriptor;
use crate::ops::valid::{Op, kernels};
use crate::plan::{Descriptor, Function, form_name};
use crate::slots::{Access, SlotsBuilder};
use crate::tensor::TensorDesc;

mod backward_bias;
mod backward_data;
mod backward_weight;
mod channelwise;
pub mod conv_transpose;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod depthwise;
mod fast;
mod forward;
mod geometry;
mod packed;
pub(crate) mod pass;
mod product;
mod walk;
#[cfg(feature = "wgpu")]
mod wgpu;
mod windows;

pub use backward_bias::{ConvBackwardBiasArgs, ConvBackwardBiasDescriptor, ConvBackwardBiasPlan};
pub use backward_data::{ConvBackwardDataArgs, ConvBackwardDataDescriptor, ConvBackwardDataPlan};
pub use backward_weight::{ConvBackwardWeightArgs, ConvBackwardWeightDescriptor, ConvBackwardWeightPlan};
pub use forward::{ConvArgs, ConvDescriptor, ConvPlan};

#[cfg(feature = "cuda")]
use cuda::{ConvForm, GemmForm, OwnForm};
use geometry::Contracting;
use pass::Pass;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;

operands! { $
    /// Operands of the ops of a convolution.
    mod table {
        X x: In, always => "Input.";
        WEIGHT weight: In, always => "Weight.";
        BIAS bias: In, if bias => "Added to each channel of y, if declared.", step "The bias.";
        DY dy: In, always => "Gradient of y.";
        Y y: Out, always => "Output.";
        PRE pre: Out, if pre => "What the activation is applied to, if declared.",
            step "Where the pre-activation goes.";
        DX dx: Out, always => "Gradient of x.";
        DWEIGHT dweight: Out, always => "Gradient of the weight.";
        DBIAS dbias: Out, always => "Gradient of the bias.";
    }
}

impl Pass {
    /// The rows in the table of the tensors with the extents of x, of the weight and of y.
    fn tensors(self) -> [usize; 3] {
        match self {
            Self::Forward => [table::X, table::WEIGHT, table::Y],
            Self::Data => [table::DX, table::WEIGHT, table::DY],
            Self::Weight => [table::X, table::DWEIGHT, table::DY],
        }
    }
}

/// The most spatial extents.
pub(crate) const MAX_AXES: usize = 3;

/// Paddings, strides and reaches of the dilated kernel are below this, so that they fit into 32 bits with a sign.
const LIMIT: u64 = 1 << 31;

/// Which elements of x and of the kernel are multiplied: strides, dilations, paddings and groups, equal in all ops of a convolution.
///
/// ```
/// use baracuda_ops::{ConvDescriptor, ConvWindow, DType, TensorDesc};
/// // One extent, causal: y at a time depends on x at that time and before.
/// let x = TensorDesc::contiguous(DType::F32, &[8, 64, 500])?;
/// let weight = TensorDesc::contiguous(DType::F32, &[64, 1, 5])?;
/// let depthwise = ConvWindow::new().padding_per_side(&[[4, 0]]).groups(64);
/// let conv = ConvDescriptor::new(x, weight, depthwise)?;
/// # let _ = conv;
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvWindow {
    stride: Vec<u64>,
    dilation: Vec<u64>,
    padding: Vec<[u64; 2]>,
    groups: u64,
}

/// Strides and dilations of 1, no padding, one group.
impl Default for ConvWindow {
    fn default() -> Self {
        Self { stride: Vec::new(), dilation: Vec::new(), padding: Vec::new(), groups: 1 }
    }
}

/// Each descriptor says whether the numbers fit its operands.
impl ConvWindow {
    /// Strides and dilations of 1, no padding, one group, for any number of spatial extents.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many elements of x lie between two outputs, for each spatial extent.
    #[must_use]
    pub fn stride(self, stride: &[u64]) -> Self {
        Self { stride: stride.to_vec(), ..self }
    }

    /// How many elements of x lie between two of the kernel, for each spatial extent.
    #[must_use]
    pub fn dilation(self, dilation: &[u64]) -> Self {
        Self { dilation: dilation.to_vec(), ..self }
    }

    /// How far outputs reach beyond x on both sides of each spatial extent.
    #[must_use]
    pub fn padding(self, padding: &[u64]) -> Self {
        Self { padding: padding.iter().map(|&padding| [padding; 2]).collect(), ..self }
    }

    /// How far outputs reach beyond x before and after each spatial extent.
    #[must_use]
    pub fn padding_per_side(self, padding: &[[u64; 2]]) -> Self {
        Self { padding: padding.to_vec(), ..self }
    }

    /// Into how many groups the channels are divided, each of which is a convolution of its own; as many as x has channels is depthwise.
    #[must_use]
    pub fn groups(self, groups: u64) -> Self {
        Self { groups, ..self }
    }
}

/// The numbers of a window along one axis.
#[derive(Clone, Copy)]
struct WindowAxis {
    stride: u64,
    dilation: u64,
    before: u64,
    after: u64,
    /// Elements of x from the first of a window to the last.
    reach: u64,
}

impl ConvWindow {
    /// Refuses lists that have not one entry for each of so many spatial extents.
    fn check_counts(&self, op: &'static str, count: usize) -> Result<()> {
        let Self { stride, dilation, padding, .. } = self;
        for (field, given) in [("stride", stride.len()), ("dilation", dilation.len()), ("padding", padding.len())] {
            require(op, field, given == 0 || given == count, || {
                format!("must have one entry for each of the {count} spatial extents, got {given}")
            })?;
        }
        Ok(())
    }

    /// The numbers along axis `at`, each below the limit, for a kernel of the weight that has this name.
    fn axis(&self, op: &'static str, weight: &'static str, kernel: u64, at: usize) -> Result<WindowAxis> {
        let of_axis = |list: &[u64]| list.get(at).copied().unwrap_or(1);
        let (stride, dilation) = (of_axis(&self.stride), of_axis(&self.dilation));
        let [before, after] = self.padding.get(at).copied().unwrap_or([0; 2]);
        require(op, weight, kernel > 0, || format!("must have a kernel of at least 1 along axis {at}, got 0"))?;
        require(op, "stride", (1..LIMIT).contains(&stride), || {
            format!("must be from 1 to {} along axis {at}, got {stride}", LIMIT - 1)
        })?;
        require(op, "dilation", dilation > 0, || format!("must be at least 1 along axis {at}, got 0"))?;
        let steps = kernel - 1;
        let reach = dilation.saturating_mul(steps);
        require(op, "dilation", reach < LIMIT, || {
            format!("times (kernel - 1) must be below {LIMIT} along axis {at}, got {dilation} times {steps}")
        })?;
        require(op, "padding", before.max(after) < LIMIT, || {
            format!("must be below {LIMIT} along axis {at}, got [{before}, {after}]")
        })?;
        Ok(WindowAxis { stride, dilation, before, after, reach })
    }
}

/// The fields of an op of windows: its tensors, the fields of a [`ConvWindow`], then the others.
macro_rules! window_fields {
    ($(#[$doc:meta])* $Fields:ident<$Kind:ty, $Derived:ty>: $($tensor:ident),*; $($other:tt)*) => {
        fields! {
            $(#[$doc])*
            $Fields: Fields<Kind = $Kind, Derived = $Derived> + normalise {
                $($tensor: TensorDesc,)*
                /// One for each spatial extent; none where each is 1.
                stride: Vec<u64> = default,
                /// As stride.
                dilation: Vec<u64> = default,
                /// Before and after each spatial extent; none where all are 0.
                padding: Vec<[u64; 2]> = default,
                #[serde(default = "super::one_group", skip_serializing_if = "super::is_one_group")]
                groups: u64,
                $($other)*
            }
        }

        impl $Fields {
            /// With the default of every other field.
            fn with_window($($tensor: TensorDesc,)* window: ConvWindow) -> Self {
                let ConvWindow { stride, dilation, padding, groups } = window;
                Self { stride, dilation, padding, ..Self::minimal($($tensor,)* groups) }
            }

            fn window(&self) -> ConvWindow {
                let Self { stride, dilation, padding, groups, .. } = self.clone();
                ConvWindow { stride, dilation, padding, groups }
            }

            /// Empties the lists that have only defaults. `rank`: of the tensors.
            fn normalise_window(&mut self, rank: usize) {
                leave_out(rank, &mut self.stride, 1);
                leave_out(rank, &mut self.dilation, 1);
                leave_out(rank, &mut self.padding, [0; 2]);
            }
        }
    };
}
use window_fields;

fn one_group() -> u64 {
    1
}

fn is_one_group(groups: &u64) -> bool {
    *groups == 1
}

/// Empties a list with one entry for each spatial extent, if each is the default.
fn leave_out<T: PartialEq>(rank: usize, list: &mut Vec<T>, default: T) {
    if list.len() + 2 == rank && list.iter().all(|entry| *entry == default) {
        list.clear();
    }
}

/// The extents of a convolution, which its three products share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    samples: u64,
    groups: u64,
    /// Channels of x in each group.
    channels_in: u64,
    /// Channels of y in each group.
    channels_out: u64,
    /// The spatial axes. If there are fewer than three, axes of extent 1 come first.
    axes: [SpatialAxis; MAX_AXES],
    /// How many of these axes the tensors have: the last ones.
    rank: usize,
}

/// One spatial axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SpatialAxis {
    input: u64,
    kernel: u64,
    output: u64,
    stride: u64,
    dilation: u64,
    before: u64,
}

impl SpatialAxis {
    /// In place of an axis that the tensors do not have.
    const NONE: Self = Self { input: 1, kernel: 1, output: 1, stride: 1, dilation: 1, before: 0 };

    /// With one kernel element the dilation has no effect, and may be any number.
    fn new([input, kernel, output]: [u64; 3], stride: u64, dilation: u64, before: u64) -> Self {
        Self { input, kernel, output, stride, dilation: if kernel == 1 { 1 } else { dilation }, before }
    }
}

impl Shape {
    /// The extents of a convolution of `x` with `weight`. Errors name the fields that these two are.
    fn new(
        op: &'static str,
        (x_name, x): (&'static str, &TensorDesc),
        (weight_name, weight): (&'static str, &TensorDesc),
        window: &ConvWindow,
    ) -> Result<Self> {
        let (groups, rank) = (window.groups, x.rank());
        require(op, x_name, (3..=2 + MAX_AXES).contains(&rank), || {
            format!("must be [N, C, spatial..] of rank 3 to {}, got rank {rank}", 2 + MAX_AXES)
        })?;
        require(op, x_name, weight.rank() != rank + 1, || {
            let of_weight = weight.rank();
            format!(
                "must be [N, C, spatial..] of the rank of {weight_name}, {of_weight}; got rank {rank}: one sample has N = 1"
            )
        })?;
        require(op, weight_name, weight.rank() == rank, || {
            format!("must be [Co, Ci / groups, kernel..] of the rank of {x_name}, {rank}; got rank {}", weight.rank())
        })?;
        require(op, "groups", groups > 0, || "must be at least 1, got 0".into())?;
        let (channels, filters) = (x.dims()[1], weight.dims()[0]);
        for (number, what) in [(channels, "Ci"), (filters, "Co")] {
            require(op, "groups", number.is_multiple_of(groups), || {
                format!("must divide {what} = {number}, got {groups}")
            })?;
        }
        require(op, weight_name, weight.dims()[1] == channels / groups, || {
            let of_group = channels / groups;
            let of_filter = weight.dims()[1];
            let is_last = of_filter.checked_mul(groups) == Some(x.dims()[rank - 1]);
            let help = if is_last {
                "; extents of channels-last tensors are [N, C, spatial..], too, as permute gives them"
            } else {
                ""
            };
            format!("must have Ci / groups = {channels} / {groups} = {of_group} channels, got {of_filter}{help}")
        })?;
        let count = rank - 2;
        window.check_counts(op, count)?;
        let mut axes = [SpatialAxis::NONE; MAX_AXES];
        for at in 0..count {
            let (input, kernel) = (x.dims()[2 + at], weight.dims()[2 + at]);
            let WindowAxis { stride, dilation, before, after, reach } = window.axis(op, weight_name, kernel, at)?;
            // Kernels count coordinates in numbers with a sign.
            let padded = input.saturating_add(before + after);
            require(op, "padding", padded <= i64::MAX as u64, || {
                format!("must leave axis {at} an extent below 2^63, got {input} with [{before}, {after}]")
            })?;
            require(op, weight_name, padded > reach, || {
                format!(
                    "must not reach over the padded extent along axis {at}: {input} + {before} + {after} < {dilation} * ({kernel} - 1) + 1"
                )
            })?;
            let output = (padded - reach - 1) / stride + 1;
            axes[MAX_AXES - count + at] = SpatialAxis::new([input, kernel, output], stride, dilation, before);
        }
        let (channels_in, channels_out) = (channels / groups, filters / groups);
        Ok(Self { samples: x.dims()[0], groups, channels_in, channels_out, axes, rank: count })
    }

    /// The extents of x.
    fn input(&self) -> Vec<u64> {
        let spatial = self.axes[MAX_AXES - self.rank..].iter().map(|axis| axis.input);
        [self.samples, self.groups * self.channels_in].into_iter().chain(spatial).collect()
    }

    /// The extents of y.
    fn output(&self) -> Vec<u64> {
        let spatial = self.axes[MAX_AXES - self.rank..].iter().map(|axis| axis.output);
        [self.samples, self.groups * self.channels_out].into_iter().chain(spatial).collect()
    }

    /// Floating-point operations of each of the three products.
    fn flops(&self) -> u64 {
        let of_axes = self.axes.iter().flat_map(|axis| [axis.kernel, axis.output]);
        let extents = [self.samples, self.groups, self.channels_in, self.channels_out];
        extents.into_iter().chain(of_axes).fold(2, u64::saturating_mul)
    }
}

/// Declares the operands of the gradient of the data or of the weight. Of x and the weight, given with their rows of the table, one is the gradient that is
/// written.
fn declare_gradient(
    op: &Op<Pass>,
    slots: &mut SlotsBuilder<'_>,
    [x, weight]: [(usize, &TensorDesc); 2],
    dy: &TensorDesc,
    window: &ConvWindow,
    beta: Real,
) -> Result<Shape> {
    let name = |index: usize| table::TABLE[index].name;
    let (factor, written) = if op.kind == Pass::Data { (weight, x) } else { (x, weight) };
    let of = (name(factor.0), factor.1.dtype());
    float(op.name, of.0, factor.1)?;
    for (index, desc) in [(table::DY, dy), written] {
        beside_factors(op.name, name(index), desc.dtype(), of)?;
    }
    let [x_name, weight_name] = [x, weight].map(|(index, _)| name(index));
    let shape = Shape::new(op.name, (x_name, x.1), (weight_name, weight.1), window)?;
    let output = shape.output();
    require(op.name, "dy", dy.dims() == output, || {
        format!("must be {output:?}, the output of a convolution of {x_name} with {weight_name}; got {:?}", dy.dims())
    })?;
    in_range(op.name, "beta", beta, factor.1)?;
    slots.declare(factor.0, *factor.1)?;
    slots.declare(table::DY, *dy)?;
    slots.declare_as(access(beta), written.0, *written.1)?;
    Ok(shape)
}

/// Whether channels are closer to each other in memory than spatial neighbours; false with one channel or one spatial position.
pub(crate) fn is_channels_last(desc: &TensorDesc) -> bool {
    let (dims, strides) = (desc.dims(), desc.strides());
    let mut spatial = (2..desc.rank()).filter(|&axis| dims[axis] > 1).peekable();
    dims[1] > 1 && spatial.peek().is_some() && spatial.all(|axis| strides[axis] > strides[1])
}

/// A dense tensor with these extents, channels-last if x is.
fn lying_as(x: &TensorDesc, dtype: DType, dims: &[u64]) -> Result<TensorDesc> {
    if is_channels_last(x) { TensorDesc::channels_last(dtype, dims) } else { TensorDesc::contiguous(dtype, dims) }
}

/// The default layout of a factor's gradient, operand `name` of an op: the factor's own, or a dense one if the factor addresses an element twice.
fn gradient_of(op: &'static str, name: &'static str, factor: &TensorDesc) -> Result<TensorDesc> {
    let desc = if factor.is_injective() { Ok(*factor) } else { lying_as(factor, factor.dtype(), factor.dims()) };
    desc.map_err(|error| error.of_operand(op, name))
}

/// The layout of operand `name` of an op, with elements of another type.
fn retyped(op: &'static str, name: &'static str, desc: &TensorDesc, dtype: DType) -> Result<TensorDesc> {
    let laid = TensorDesc::strided(dtype, desc.dims(), desc.strides());
    let laid = laid.and_then(|laid| laid.align(desc.align_bytes().max(dtype.size_bytes())));
    laid.map_err(|error| error.of_operand(op, name))
}

/// The role of the gradient of the pre-activation, which is computed in the type and layout of y from what forward writes in these: `pre`, or y where its
/// function has a derivative of the output. Else forward without its activation, `linear`, computes the pre-activation again.
fn gradient_of_pre<D: Descriptor>(
    derivation: &mut Derivation,
    activation: Activation,
    y: TensorDesc,
    saves_pre: bool,
    linear: impl FnOnce() -> Result<D>,
) -> Result<Role> {
    if activation.is_identity() {
        return Ok(Role::GradientOf("y"));
    }
    let backward = ActivationBackwardDescriptor::new(y, activation)?;
    let (backward, saved) = if saves_pre {
        (backward, ("x", Role::Forward("pre")))
    } else if activation.has_gradient_from_output() {
        (backward.from_y()?, ("y", Role::Forward("y")))
    } else {
        let pre = derivation.intermediate();
        derivation.push(linear()?, &[("y", pre.clone())]);
        (backward, ("x", pre))
    };
    let dpre = derivation.intermediate();
    derivation.push(backward, &[saved, ("dx", dpre.clone())]);
    Ok(dpre)
}

/// The access of a gradient that is added to `beta` times its previous value.
fn access(beta: Real) -> Access {
    if beta.get() == 0.0 { Access::Out } else { Access::InOut }
}

/// The kernels of one of the three products, in the order in which they are tried.
fn product_kernels<D: Contracting>() -> &'static [&'static dyn Kernel<D>] {
    const {
        kernels!(
            cuda: [
                ConvForm::Depthwise, ConvForm::FewChannels, ConvForm::Cudnn, ConvForm::Gemm(GemmForm::CublasLt),
                ConvForm::Gemm(GemmForm::Wgmma), ConvForm::Own(OwnForm::Wgmma), ConvForm::Gemm(GemmForm::Mma),
                ConvForm::Own(OwnForm::Mma), ConvForm::Gemm(GemmForm::Simt), ConvForm::Own(OwnForm::Simt)
            ];
            wgpu: [
                Function::WgpuForm(form_name!(D, "depthwise"), wgpu::depthwise),
                Function::WgpuForm(form_name!(D, "walk"), wgpu::walk),
                Function::WgpuForm(form_name!(D, "direct"), wgpu::direct),
                Function::WgpuForm(form_name!(D, "gemm_tiled"), wgpu::gemm),
                Function::WgpuForm(form_name!(D, "tiled"), wgpu::tiled)
            ];
            cpu: [
                Function::CpuForm(form_name!(D, "depthwise"), channelwise::contracting),
                Function::CpuForm(form_name!(D, "fast"), fast::contracting),
                Function::Cpu(cpu::contracting)
            ]
        )
    }
}

/// The kernels of the gradient of the bias, in the order in which they are tried.
fn backward_bias_kernels() -> &'static [&'static dyn Kernel<ConvBackwardBiasDescriptor>] {
    kernels!(
        cuda: [Function::CudaForm("conv_backward_bias_reduce", cuda::backward_bias)];
        wgpu: [Function::WgpuForm("conv_backward_bias_reduce", wgpu::backward_bias)];
        cpu: [Function::Cpu(cpu::backward_bias)]
    )
}
