//! Convolution with bias and activation, and its gradients.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use baracuda_ops::{
    Activation, AnyDescriptor, ConvArgs, ConvBackwardBiasArgs, ConvBackwardBiasDescriptor, ConvBackwardDataArgs,
    ConvBackwardDataDescriptor, ConvBackwardWeightArgs, ConvBackwardWeightDescriptor, ConvDescriptor, ConvWindow,
    DType, Descriptor, Error, Math, PlanOptions, Slot, TensorDesc,
};
use serde_json::{Value, json};

use super::gemm::{activated, chain, flushed, magnitudes};
use super::{CHAIN, Contract, FLOATS, Subject, TypedRun, channels_last, dense, features, json_of, run_in_f64, strided};
use crate::case::{Case, Data, Huge, Random, Wide, distinct, equal_factor};
use crate::judge::{By, Expected, is_random};
use crate::values::Tensors;

pub(super) const FORWARD: Subject = Subject {
    name: "conv",
    cases: || cases(forward),
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect: expect_forward,
    contracts: FORWARD_CONTRACTS,
    run_typed: run_forward,
    features: || features(asked_for, forward),
};

pub(super) const BACKWARD_DATA: Subject = Subject {
    name: "conv_backward_data",
    cases: || cases(backward_data),
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect: expect_data,
    contracts: DATA_CONTRACTS,
    run_typed: run_backward_data,
    features: || features(asked_for, backward_data),
};

pub(super) const BACKWARD_WEIGHT: Subject = Subject {
    name: "conv_backward_weight",
    cases: || cases(backward_weight),
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect: expect_weight,
    contracts: WEIGHT_CONTRACTS,
    run_typed: run_backward_weight,
    features: || features(asked_for, backward_weight),
};

pub(super) const BACKWARD_BIAS: Subject = Subject {
    name: "conv_backward_bias",
    cases: || cases(backward_bias),
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect: expect_bias,
    contracts: BIAS_CONTRACTS,
    run_typed: run_backward_bias,
    features: || features(asked_for, backward_bias),
};

/// A forward, and how its gradients are made.
#[derive(Clone)]
struct Form {
    forward: ConvDescriptor,
    /// The type of the gradients, if not that of what they belong to.
    dtype: Option<DType>,
    beta: f64,
    /// Layouts of the operands that a gradient declares.
    layouts: Vec<(&'static str, TensorDesc)>,
}

impl From<ConvDescriptor> for Form {
    fn from(forward: ConvDescriptor) -> Self {
        Self { forward, dtype: None, beta: 0.0, layouts: Vec::new() }
    }
}

impl Form {
    /// The layouts of those operands that a gradient declares.
    fn of<'f>(&'f self, gradient: &impl Descriptor) -> impl Iterator<Item = &'f (&'static str, TensorDesc)> {
        let names: Vec<&str> = gradient.slots().iter().map(|slot| slot.name).collect();
        self.layouts.iter().filter(move |(name, _)| names.contains(name))
    }
}

fn forward(form: &Form) -> Result<AnyDescriptor, Error> {
    Ok(AnyDescriptor::new(form.forward.clone()))
}

/// The forward whose output is the pre-activation, of which the gradients are.
fn linear(form: &Form) -> Result<ConvDescriptor, Error> {
    form.forward.clone().activation(Activation::Identity)
}

fn backward_data(form: &Form) -> Result<AnyDescriptor, Error> {
    let plain = linear(form)?.backward_data()?.beta(form.beta)?;
    let typed = form.dtype.map_or(Ok(plain.clone()), |dtype| plain.dx(dtype))?;
    let laid = form.of(&typed).try_fold(typed.clone(), |d, (name, desc)| d.layout(name, *desc));
    laid.map(AnyDescriptor::new)
}

fn backward_weight(form: &Form) -> Result<AnyDescriptor, Error> {
    let plain = linear(form)?.backward_weight()?.beta(form.beta)?;
    let typed = form.dtype.map_or(Ok(plain.clone()), |dtype| plain.dweight(dtype))?;
    let laid = form.of(&typed).try_fold(typed.clone(), |d, (name, desc)| d.layout(name, *desc));
    laid.map(AnyDescriptor::new)
}

/// Of a convolution without a bias, too.
fn backward_bias(form: &Form) -> Result<AnyDescriptor, Error> {
    let y = form.forward.slots().iter().find(|slot| slot.name == "y").expect("always declared").desc;
    let plain = linear(form)?.backward_bias().or_else(|_| ConvBackwardBiasDescriptor::new(y))?.beta(form.beta)?;
    let typed = form.dtype.map_or(Ok(plain.clone()), |dtype| plain.dbias(dtype))?;
    let laid = form.of(&typed).try_fold(typed.clone(), |d, (name, desc)| d.layout(name, *desc));
    laid.map(AnyDescriptor::new)
}

/// A kind of convolution.
#[derive(Clone, Copy)]
struct Kind {
    samples: u64,
    /// Of x and of y.
    channels: [u64; 2],
    spatial: &'static [u64],
    kernel: &'static [u64],
    stride: &'static [u64],
    dilation: &'static [u64],
    padding: &'static [[u64; 2]],
    groups: u64,
}

/// A kind whose windows lie side by side, within x.
const fn kind(samples: u64, channels: [u64; 2], spatial: &'static [u64], kernel: &'static [u64]) -> Kind {
    Kind { samples, channels, spatial, kernel, stride: &[], dilation: &[], padding: &[], groups: 1 }
}

/// Padding that keeps extents of kernels of 3, in 1 to 3 extents.
const SAME: [&[[u64; 2]]; 4] = [&[], &[[1; 2]; 1], &[[1; 2]; 2], &[[1; 2]; 3]];

/// Two groups, another stride, dilation and padding along each axis.
const GROUPED: Kind = Kind {
    stride: &[2, 1],
    dilation: &[1, 3],
    padding: &[[1, 0], [4, 5]],
    groups: 2,
    ..kind(2, [6, 10], &[7, 8], &[2, 3])
};

/// Image of odd extents, 3 by 3.
const PLAIN: Kind = Kind { padding: SAME[2], ..kind(2, [6, 8], &[7, 9], &[3, 3]) };

/// Of one pixel.
const POINT: Kind = kind(3, [20, 12], &[5, 7], &[1, 1]);

/// Kinds, and whether they run in every mode.
const KINDS: &[(Kind, bool)] = &[
    // One extent.
    (Kind { padding: SAME[1], ..kind(2, [5, 7], &[41], &[3]) }, true),
    // Causal.
    (Kind { dilation: &[2], padding: &[[8, 0]], ..kind(2, [4, 6], &[47], &[5]) }, true),
    (Kind { padding: &[[3, 0]], groups: 6, ..kind(2, [6, 6], &[30], &[4]) }, false),
    // Strides larger than the kernel.
    (Kind { stride: &[5], ..kind(3, [4, 9], &[55], &[2]) }, false),
    // Kernels larger than the image.
    (Kind { padding: &[[7, 6]], ..kind(3, [3, 4], &[4], &[11]) }, false),
    (Kind { padding: &[[2, 2], [3, 1]], ..kind(2, [3, 8], &[2, 3], &[5, 6]) }, false),
    // Stems: few channels, large kernels, strides.
    (Kind { stride: &[2, 2], padding: &[[3, 3], [3, 3]], ..kind(1, [3, 8], &[19, 41], &[7, 7]) }, false),
    (Kind { stride: &[4, 4], padding: &[[2, 2], [2, 2]], ..kind(1, [3, 5], &[23, 19], &[11, 11]) }, false),
    // Of one pixel: products of matrices.
    (kind(2, [16, 24], &[7, 9], &[1, 1]), true),
    (kind(3, [20, 33], &[45], &[1]), false),
    (kind(6, [24, 40], &[1, 1], &[1, 1]), false),
    (kind(1, [8, 12], &[3, 4, 5], &[1, 1, 1]), false),
    (Kind { stride: &[2, 2], ..kind(2, [12, 20], &[9, 7], &[1, 1]) }, false),
    (Kind { groups: 4, ..kind(1, [16, 8], &[5, 5], &[1, 1]) }, false),
    // Blocks of residual networks, and halves of their extents.
    (Kind { padding: SAME[2], ..kind(2, [16, 16], &[6, 8], &[3, 3]) }, true),
    (Kind { stride: &[2, 2], padding: SAME[2], ..kind(2, [8, 12], &[11, 12], &[3, 3]) }, true),
    (Kind { padding: SAME[2], ..kind(1, [64, 64], &[5, 6], &[3, 3]) }, false),
    // Upsampling: extents that the stride leaves over.
    (Kind { stride: &[2, 3], padding: SAME[2], ..kind(2, [5, 6], &[8, 10], &[3, 4]) }, false),
    // Grouped, and depthwise.
    (GROUPED, true),
    (Kind { padding: SAME[2], groups: 12, ..kind(2, [12, 12], &[9, 13], &[3, 3]) }, true),
    (Kind { stride: &[2, 2], padding: &[[2, 2], [2, 2]], groups: 5, ..kind(2, [5, 10], &[9, 11], &[5, 5]) }, false),
    (Kind { padding: SAME[2], groups: 3, ..kind(1, [24, 48], &[5, 6], &[3, 3]) }, false),
    // Dilated, of one row, of one column.
    (Kind { dilation: &[2, 3], padding: &[[2, 2], [3, 3]], ..kind(1, [6, 9], &[10, 12], &[3, 3]) }, false),
    (Kind { padding: &[[0, 0], [3, 3]], ..kind(2, [6, 5], &[6, 9], &[1, 7]) }, false),
    (Kind { padding: &[[3, 3], [0, 0]], ..kind(2, [6, 5], &[9, 6], &[7, 1]) }, false),
    // Many columns over few rows, many rows of few columns, long sums of the weight's gradient.
    (Kind { padding: SAME[2], ..kind(1, [40, 131], &[2, 3], &[3, 3]) }, false),
    (Kind { padding: SAME[2], ..kind(2, [1, 3], &[33, 55], &[3, 3]) }, false),
    (kind(33, [2, 3], &[4, 5], &[2, 2]), false),
    (Kind { padding: SAME[1], ..kind(5, [3, 4], &[409], &[3]) }, false),
    (kind(1, [9, 130], &[12, 11], &[1, 1]), false),
    // Strides and dilations with padding on one side more than on the other, windows that lie wholly in the padding.
    (
        Kind { stride: &[2, 1], dilation: &[3, 2], padding: &[[5, 1], [0, 4]], ..kind(2, [4, 6], &[9, 11], &[3, 3]) },
        false,
    ),
    (Kind { stride: &[2, 1], padding: &[[6, 6], [5, 7]], ..kind(1, [3, 4], &[3, 4], &[2, 2]) }, false),
    (Kind { stride: &[65536], dilation: &[65536], padding: &[[65536, 131_072]], ..kind(2, [3, 4], &[5], &[3]) }, false),
    // Strides and paddings near the end of 32 bits with a sign: sums and products of them exceed it.
    (Kind { stride: &[2_147_483_640], padding: &[[2_147_483_640; 2]], ..kind(2, [2, 5], &[3], &[1]) }, false),
    (
        Kind {
            stride: &[1 << 30],
            dilation: &[1 << 30],
            padding: &[[1 << 30; 2]],
            groups: 2,
            ..kind(2, [4, 6], &[3], &[2])
        },
        false,
    ),
    // Windows of which few places have an element: strides of the gradient of the data, also beside dilations that have a divisor in common with them,
    // and kernels that are longer than x.
    (Kind { stride: &[37], ..kind(2, [3, 4], &[228], &[80]) }, true),
    (
        Kind {
            stride: &[18, 8],
            dilation: &[12, 1],
            padding: &[[7, 2], [3, 3]],
            ..kind(1, [2, 5], &[60, 30], &[4, 16])
        },
        false,
    ),
    (Kind { stride: &[8, 8], padding: &[[4, 4], [4, 4]], groups: 3, ..kind(1, [6, 3], &[32, 40], &[16, 16]) }, true),
    (Kind { padding: &[[90, 70]], ..kind(2, [3, 5], &[6], &[100]) }, true),
    (Kind { padding: &[[9, 9], [9, 9]], dilation: &[1, 2], groups: 2, ..kind(2, [4, 4], &[1, 2], &[15, 9]) }, false),
    (
        Kind { stride: &[9, 7, 5], padding: &[[0, 2], [1, 0], [3, 3]], ..kind(1, [2, 3], &[19, 15, 11], &[7, 8, 9]) },
        false,
    ),
    // Elements of x that no window reads, by groups, too.
    (Kind { stride: &[3, 4], groups: 6, ..kind(2, [6, 6], &[13, 11], &[2, 2]) }, false),
    (Kind { stride: &[6], dilation: &[3], padding: &[[1, 0]], groups: 2, ..kind(2, [4, 6], &[23], &[2]) }, false),
    (Kind { stride: &[2, 3, 4], ..kind(1, [2, 3], &[5, 6, 7], &[1, 2, 1]) }, false),
    // Several channels of y for each of x.
    (Kind { padding: &[[1, 1], [1, 1]], groups: 4, ..kind(2, [4, 12], &[7, 9], &[3, 3]) }, false),
    (Kind { stride: &[2], padding: &[[2, 1]], groups: 5, ..kind(3, [10, 15], &[19], &[4]) }, false),
    // Extents of 1.
    (Kind { padding: &[[2, 1], [0, 0]], ..kind(2, [3, 5], &[1, 6], &[3, 1]) }, false),
    (Kind { padding: &[[0, 0], [4, 4]], stride: &[1, 3], ..kind(1, [1, 2], &[9, 1], &[1, 5]) }, false),
    // Transposed, dx has the most extents that dy leaves open, and the fewest.
    (Kind { stride: &[4, 4], ..kind(2, [3, 5], &[12, 13], &[2, 2]) }, false),
    (Kind { stride: &[4, 4], padding: &[[1, 1], [1, 0]], ..kind(2, [3, 5], &[9, 10], &[3, 3]) }, false),
    // The whole image in one window.
    (kind(4, [7, 33], &[3, 5], &[3, 5]), false),
    // Three extents.
    (Kind { padding: SAME[3], ..kind(1, [3, 4], &[5, 6, 7], &[3, 3, 3]) }, true),
    (
        Kind {
            stride: &[1, 2, 3],
            dilation: &[2, 1, 1],
            padding: &[[1, 0], [0, 0], [0, 2]],
            groups: 3,
            ..kind(2, [3, 6], &[4, 5, 7], &[2, 1, 3])
        },
        false,
    ),
    (kind(1, [1, 1], &[1], &[1]), false),
    // Depthwise, of whole fours of columns and of channels, and of neither; longer than threads walk.
    (Kind { padding: SAME[2], groups: 8, ..kind(2, [8, 8], &[9, 12], &[3, 3]) }, true),
    (Kind { padding: &[[0, 2], [2, 0]], groups: 7, ..kind(2, [7, 7], &[61, 6], &[3, 3]) }, false),
    (Kind { padding: SAME[2], groups: 36, ..kind(1, [36, 36], &[59, 5], &[3, 3]) }, false),
    (Kind { padding: SAME[2], groups: 5, ..kind(3, [5, 10], &[7, 10], &[3, 3]) }, false),
    (Kind { padding: &[[2, 2], [2, 2]], groups: 12, ..kind(2, [12, 12], &[9, 12], &[5, 5]) }, false),
    (Kind { padding: &[[3, 3], [3, 3]], groups: 8, ..kind(2, [8, 8], &[31, 8], &[7, 7]) }, false),
    (Kind { stride: &[2, 2], padding: SAME[2], groups: 16, ..kind(2, [16, 16], &[11, 12], &[3, 3]) }, true),
    (
        Kind {
            stride: &[1, 3],
            dilation: &[3, 2],
            padding: &[[3, 2], [1, 4]],
            groups: 6,
            ..kind(2, [6, 6], &[9, 17], &[3, 4])
        },
        false,
    ),
    (Kind { padding: &[[0, 0], [3, 3]], groups: 4, ..kind(2, [4, 4], &[5, 9], &[1, 7]) }, false),
    (Kind { dilation: &[4], padding: &[[12, 0]], groups: 16, ..kind(2, [16, 16], &[37], &[4]) }, false),
    (Kind { groups: 4, ..kind(2, [4, 4], &[6, 5], &[1, 1]) }, false),
    // Windows that lie wholly in the padding, and images that are wider than their outputs.
    (Kind { padding: &[[4, 5], [6, 3]], groups: 8, ..kind(2, [8, 8], &[3, 4], &[3, 3]) }, false),
    (Kind { padding: &[[0, 0], [4, 2]], groups: 6, ..kind(1, [6, 6], &[8, 9], &[5, 7]) }, false),
    (VALID, false),
];

/// Long sums: over channels, by one group and by several; over filters; over samples and positions, of a channel each, too; of one pixel.
const LONG: [Kind; 6] = [
    Kind { padding: SAME[2], ..kind(1, [512, 4], &[2, 3], &[3, 3]) },
    Kind { padding: SAME[2], groups: 2, ..kind(1, [512, 4], &[2, 2], &[3, 3]) },
    Kind { padding: SAME[2], ..kind(1, [3, 512], &[2, 2], &[3, 3]) },
    Kind { padding: SAME[2], ..kind(4, [2, 2], &[48, 44], &[3, 3]) },
    Kind { padding: SAME[2], groups: 4, ..kind(4, [4, 4], &[48, 44], &[3, 3]) },
    kind(2, [3, 2], &[8192], &[1]),
];

/// Long sums of so many outputs that wgpu's kernels do not divide them over workgroups: by tiles, and by threads of a quad each.
const LONG_OF_MANY: [Kind; 2] = [
    Kind { groups: 300, ..kind(1, [19_200, 1500], &[3, 3], &[3, 3]) },
    Kind { groups: 2, ..kind(1, [2, 2], &[140_000], &[300]) },
];

/// Depthwise without padding: the last columns of x meet only the last taps.
const VALID: Kind = Kind { groups: 8, ..kind(2, [8, 8], &[6, 15], &[3, 3]) };

/// Kinds of which some operand has no elements.
const EMPTY: [(Kind, bool); 5] = [
    (Kind { padding: SAME[2], ..kind(0, [4, 6], &[5, 7], &[3, 3]) }, true),
    (Kind { padding: SAME[1], ..kind(2, [4, 0], &[5], &[3]) }, false),
    (Kind { padding: SAME[2], ..kind(2, [0, 6], &[5, 7], &[3, 3]) }, true),
    (Kind { padding: &[[2, 2], [0, 1]], ..kind(2, [3, 5], &[0, 4], &[3, 2]) }, false),
    (Kind { groups: 3, ..kind(0, [0, 3], &[4], &[2]) }, false),
];

/// How operands lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Contiguous,
    ChannelsLast,
    /// x channels-last, the weight contiguous.
    MixedIn,
    /// x contiguous, y, pre and the weight channels-last.
    MixedOut,
}

use Layout::{ChannelsLast, Contiguous, MixedIn, MixedOut};

impl Kind {
    fn conv(self, dtype: DType, layout: Layout) -> ConvDescriptor {
        let Self { samples, channels: [channels, filters], spatial, kernel, stride, dilation, padding, groups } = self;
        let x = [&[samples, channels], spatial].concat();
        let weight = [&[filters, channels / groups], kernel].concat();
        let lie = |is_last: bool, dims: &[u64]| if is_last { channels_last(dtype, dims) } else { dense(dtype, dims) };
        let x = lie(matches!(layout, ChannelsLast | MixedIn), &x);
        let weight = lie(matches!(layout, ChannelsLast | MixedOut), &weight);
        let window = ConvWindow::new().stride(stride).dilation(dilation).padding_per_side(padding).groups(groups);
        ConvDescriptor::new(x, weight, window).expect("a valid convolution")
    }
}

/// Outputs that lie otherwise than x.
fn laid(forward: ConvDescriptor, layout: Layout) -> ConvDescriptor {
    if layout != MixedOut {
        return forward;
    }
    let outputs: Vec<Slot> = forward.slots().iter().filter(|s| matches!(s.name, "y" | "pre")).cloned().collect();
    outputs.iter().fold(forward, |d, slot| {
        d.layout(slot.name, channels_last(slot.desc.dtype(), slot.desc.dims())).expect("a layout")
    })
}

/// The `at`th of the combinations of bias, activation, types and betas: any two values of two of them meet in some form.
fn form(kind: Kind, dtype: DType, layout: Layout, at: usize) -> Form {
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let types = [None, Some(dtype), Some(wide)];
    let forward = kind.conv(dtype, layout).activation(Activation::ALL[at % 7]);
    let forward = forward.and_then(|d| types[(at / 2) % 3].map_or(Ok(d.clone()), |dtype| d.bias(dtype)));
    let forward = forward.and_then(|d| d.y([dtype, wide][(at / 3) % 2]));
    let forward = forward.and_then(|d| types[(at / 4 + at) % 3].map_or(Ok(d.clone()), |dtype| d.pre(dtype)));
    let forward = laid(forward.expect("a form"), layout);
    let beta = [0.0, 0.5, 0.0, -1.0, 0.0][at % 5];
    Form { dtype: [None, Some(dtype), Some(wide)][(at / 5) % 3], beta, ..forward.into() }
}

/// Every form with the data it runs on, and whether it runs in every mode.
fn forms() -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    for (d, dtype) in FLOATS.into_iter().enumerate() {
        let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
        for (i, (kind, core)) in KINDS.iter().chain(&EMPTY).enumerate() {
            // Of f32 both layouts, of the others each kind in one of them.
            let both = [Contiguous, ChannelsLast];
            let layouts = if dtype == DType::F32 { &both[..] } else { &both[(i + d) % 2..][..1] };
            for layout in layouts {
                let at = 2 * i + 3 * d + usize::from(*layout == ChannelsLast);
                add(form(*kind, dtype, *layout, at), Data::Normal, *core);
            }
        }
        for at in 0..28 {
            let layout = [Contiguous, ChannelsLast, MixedIn, MixedOut][(at + at / 4) % 4];
            let kind = if at % 2 == 0 { GROUPED } else { PLAIN };
            add(form(kind, dtype, layout, at), Data::Normal, at % 9 == d);
        }
        for at in 0..12 {
            let layout = [MixedIn, Contiguous, MixedOut, ChannelsLast][at % 4];
            add(form(POINT, dtype, layout, 5 * at + 1), Data::Normal, false);
        }
        for (at, data) in Data::ALL.into_iter().filter(|data| *data != Data::Normal).enumerate() {
            let layout = [Contiguous, ChannelsLast][at % 2];
            if matches!(data, Data::Nan | Data::Inf | Data::NegInf) {
                let repeated = Kind { padding: SAME[2], groups: 6, ..kind(2, [6, 12], &[7, 9], &[3, 3]) };
                for kind in [GROUPED, repeated, VALID] {
                    add(kind.conv(dtype, layout).into(), data, false);
                }
            }
            let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let forward = PLAIN.conv(dtype, layout).bias(wide).and_then(|d| d.y(wide)).expect("a form");
            add(Form { dtype: Some(wide), ..forward.into() }, data, false);
            // Without padding no term of forward is left out, so that the weight may be anything.
            let inner = Kind { padding: &[], ..PLAIN }.conv(dtype, layout).activation(Activation::ALL[1 + at % 6]);
            add(inner.and_then(|d| d.pre(dtype)).expect("a form").into(), data, false);
            let depthwise = Kind { padding: SAME[2], groups: 4, ..kind(2, [4, 4], &[5, 7], &[3, 3]) };
            add(depthwise.conv(dtype, layout).bias(wide).expect("a form").into(), data, false);
        }
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        for (i, kind) in LONG.into_iter().enumerate() {
            let mut add_long = |layout, data| {
                let forward = kind.conv(dtype, layout).y(wide).expect("a form");
                add(Form { dtype: Some(wide), ..forward.into() }, data, false);
            };
            add_long([Contiguous, ChannelsLast][(i + d) % 2], Data::STRUCTURED[(i + d) % 4]);
            if dtype == DType::F32 {
                add_long(Contiguous, Data::STRUCTURED[(i + 2) % 4]);
            }
        }
        if dtype == DType::F32 {
            for kind in LONG_OF_MANY {
                add(kind.conv(dtype, Contiguous).into(), Data::Halves, false);
            }
        }
        hard_factors(dtype, &mut add);
        layouts(dtype, &mut add);
        views(dtype, &mut add);
    }
    forms
}

/// Factors that are mostly 0, factors whose neighbours are far apart, and factors that are small beside the bias.
fn hard_factors(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let depthwise = Kind { padding: SAME[2], groups: 4, ..kind(2, [4, 4], &[5, 7], &[3, 3]) };
    for (d, data) in Data::OF_FACTORS.into_iter().enumerate() {
        for (i, kind) in [PLAIN, GROUPED, POINT, depthwise].into_iter().enumerate() {
            for (l, layout) in [Contiguous, ChannelsLast].into_iter().enumerate() {
                let plain = kind.conv(dtype, layout).y(wide);
                let plain = if data == Data::LargeBias { plain.and_then(|d| d.bias(wide)) } else { plain };
                add(Form { dtype: Some(wide), ..plain.expect("a form").into() }, data, (i, l) == (0, d % 2));
                let activated = kind.conv(dtype, layout).activation(Activation::ALL[1 + i + l]);
                let activated = activated.and_then(|d| d.bias(dtype)).and_then(|d| d.pre(dtype)).expect("a form");
                add(Form { beta: 0.5, ..activated.into() }, data, false);
            }
        }
    }
}

/// Operands that are parts or rearrangements of a larger tensor: images whose channels lie between those of another sample, images cut out on
/// every side, extents in an order of their own.
fn views(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    // Channels of one sample between those of the other; only inputs may lie so.
    let between = |[samples, channels, rows, cols]: [u64; 4]| {
        let image = rows * cols;
        strided(dtype, &[samples, channels, rows, cols], &[3 * image, 2 * image, cols, 1])
    };
    // Cut out of the middle of images that are larger by one row and one column on either side, and have two further channels.
    let cut = |[samples, channels, rows, cols]: [u64; 4], is_last: bool| {
        let dims = [samples, channels + 2, rows + 2, cols + 2];
        let whole = if is_last { channels_last(dtype, &dims) } else { dense(dtype, &dims) };
        let part = [(1, channels), (2, rows), (3, cols)]
            .into_iter()
            .try_fold(whole, |part, (axis, extent)| Ok::<_, Error>(part.narrow(axis, 1, extent)?.0));
        part.expect("a part")
    };
    // Samples are neighbours, then columns, channels and rows.
    let turned = |[samples, channels, rows, cols]: [u64; 4]| {
        dense(dtype, &[rows, channels, cols, samples]).permute(&[3, 1, 0, 2]).expect("axes")
    };
    let [x, y] = [[2, 6, 6, 8], [2, 8, 6, 8]];
    let kinds: [(&[u64], ConvWindow); 4] = [
        (&[8, 6, 3, 3], ConvWindow::new().padding(&[1, 1])),
        (&[8, 6, 1, 1], ConvWindow::new()),
        (&[8, 3, 3, 3], ConvWindow::new().padding(&[1, 1]).groups(2)),
        (&[8, 1, 3, 3], ConvWindow::new().padding(&[1, 1]).groups(8)),
    ];
    for (i, (weight, window)) in kinds.into_iter().enumerate() {
        let x = if i == 3 { y } else { x };
        let weight = dense(dtype, weight);
        let forms = [
            (between(x), dense(dtype, &y), between(y)),
            (cut(x, false), cut(y, false), cut(y, false)),
            (cut(x, true), cut(y, true), cut(y, true)),
            (turned(x), turned(y), turned(y)),
        ];
        for (at, (x, y, dy)) in forms.into_iter().enumerate() {
            let forward = ConvDescriptor::new(x, weight, window.clone()).and_then(|d| d.bias(dtype));
            let forward = forward.and_then(|d| d.activation(Activation::ALL[(i + at) % 7])).and_then(|d| d.pre(dtype));
            let forward = forward.and_then(|d| d.layout("y", y)).and_then(|d| d.layout("pre", y));
            let mut layouts = vec![("dy", dy)];
            if at > 0 {
                layouts.push(("dx", x));
            }
            let form = Form { layouts, beta: [0.0, 0.5][at % 2], ..forward.expect("a form").into() };
            add(form, Data::Normal, i == 0 && at != 3);
        }
    }
}

/// Rows with gaps, low promises, repeated elements, outputs that lie otherwise.
fn layouts(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    let [x, weight, y] = [[2, 5, 6, 7], [8, 5, 3, 3], [2, 8, 6, 7]];
    let conv = |x: TensorDesc, weight: TensorDesc| {
        let forward = ConvDescriptor::new(x, weight, ConvWindow::new().padding(&[1, 1]));
        forward.and_then(|d| d.bias(dtype)).and_then(|d| d.pre(dtype)).expect("a form")
    };
    let narrow = |desc: TensorDesc| desc.align(dtype.size_bytes()).expect("a promise");
    // The channels of a wider tensor, in both orders.
    let part = conv(strided(dtype, &x, &[9 * 42, 42, 7, 1]), dense(dtype, &weight));
    add(part.into(), Data::Normal, false);
    let part = conv(strided(dtype, &x, &[42 * 8, 1, 56, 8]), channels_last(dtype, &weight));
    let part = part.layout("y", strided(dtype, &y, &[42 * 12, 1, 84, 12])).expect("a layout");
    let gradients = vec![("dx", strided(dtype, &x, &[42 * 6, 1, 42, 6]))];
    add(Form { layouts: gradients, ..part.into() }, Data::Normal, false);
    // The same of one pixel, rows with gaps, and one image for all.
    let point = |x: TensorDesc| {
        ConvDescriptor::new(x, dense(dtype, &[8, 5, 1, 1]), ConvWindow::new())
            .and_then(|d| d.bias(dtype))
            .expect("a form")
    };
    let part = point(strided(dtype, &x, &[42 * 8, 1, 56, 8]));
    let part = part.layout("y", strided(dtype, &y, &[42 * 12, 1, 84, 12])).expect("a layout");
    let gradients = vec![("dx", strided(dtype, &x, &[42 * 6, 1, 42, 6])), ("dy", strided(dtype, &y, &[400, 50, 8, 1]))];
    add(Form { layouts: gradients, beta: 0.5, ..part.into() }, Data::Normal, false);
    let gaps = point(strided(dtype, &x, &[600, 100, 9, 1])).layout("y", strided(dtype, &y, &[1000, 110, 15, 2]));
    add(gaps.expect("a layout").into(), Data::Normal, false);
    let expanded = vec![("dy", strided(dtype, &y, &[0; 4]))];
    add(Form { layouts: expanded, ..point(strided(dtype, &x, &[0, 42, 7, 1])).into() }, Data::Normal, false);
    // Addresses that promise an element.
    let promise = conv(narrow(channels_last(dtype, &x)), narrow(channels_last(dtype, &weight)));
    let promise = promise.layout("y", narrow(channels_last(dtype, &y))).expect("a layout");
    add(promise.into(), Data::Normal, true);
    add(conv(narrow(dense(dtype, &x)), narrow(dense(dtype, &weight))).into(), Data::Normal, false);
    // The same of a channel each.
    let same = [2, 8, 6, 8];
    let depthwise = |x: TensorDesc| {
        let window = ConvWindow::new().padding(&[1, 1]).groups(8);
        let forward = ConvDescriptor::new(x, dense(dtype, &[8, 1, 3, 3]), window);
        forward.and_then(|d| d.bias(dtype)).and_then(|d| d.pre(dtype)).expect("a form")
    };
    for lie in [dense, channels_last] {
        add(
            depthwise(narrow(lie(dtype, &same))).layout("y", narrow(lie(dtype, &same))).expect("a layout").into(),
            Data::Normal,
            false,
        );
    }
    let gaps = depthwise(strided(dtype, &same, &[8 * 60, 60, 9, 1]));
    let gaps = gaps.layout("pre", strided(dtype, &same, &[8 * 100, 100, 16, 2])).expect("a layout");
    add(Form { beta: 0.5, ..gaps.into() }, Data::Normal, false);
    let part = depthwise(strided(dtype, &same, &[48 * 12, 1, 96, 12]));
    let part = part.layout("y", strided(dtype, &same, &[48 * 20, 1, 160, 20])).expect("a layout");
    add(Form { beta: -1.0, ..part.into() }, Data::Normal, false);
    // Rows with gaps, and every other element.
    let gaps = conv(strided(dtype, &x, &[600, 100, 9, 1]), strided(dtype, &weight, &[60, 10, 3, 1]));
    let gaps = gaps.layout("pre", strided(dtype, &y, &[1000, 110, 15, 2])).expect("a layout");
    let gaps = gaps.layout("bias", strided(dtype, &[8], &[2])).expect("a layout");
    let gradients = vec![("dweight", strided(dtype, &weight, &[100, 11, 3, 1])), ("dbias", strided(dtype, &[8], &[3]))];
    add(Form { layouts: gradients, beta: 1.0, ..gaps.into() }, Data::Normal, false);
    // One image, one bias and one gradient for all.
    let repeated = conv(strided(dtype, &x, &[0, 42, 7, 1]), dense(dtype, &weight));
    let repeated = repeated.layout("bias", strided(dtype, &[8], &[0])).expect("a layout");
    let expanded = vec![("dy", strided(dtype, &y, &[0; 4]))];
    add(Form { layouts: expanded, ..repeated.into() }, Data::Normal, false);
}

/// The cases of a pass over every form.
fn cases(pass: fn(&Form) -> Result<AnyDescriptor, Error>) -> Vec<Case> {
    let of = |(form, data, core): &(Form, Data, bool)| {
        let descriptor = pass(form).expect("the case lists hold valid descriptors");
        Case::new(descriptor, *data).core(*core)
    };
    let mut cases: Vec<Case> = forms().iter().map(of).collect();
    let is_pinned = |case: &&Case| case.is_core || is_product(&case.descriptor);
    let pinned: Vec<Case> = cases.iter().filter(is_pinned).flat_map(pinned).collect();
    cases.extend(pinned);
    cases.extend(windows().iter().map(of).filter_map(|case| by_wgmma(&case)).flatten());
    cases.extend(stems().iter().map(of).filter_map(|case| by_few_channels(&case)).flatten());
    distinct(cases)
}

/// What the copy engine gathers: several tiles, channels that fill no step, strides, dilations, padding on one side, one and two extents.
const WINDOWS: &[(Kind, bool)] = &[
    (Kind { padding: SAME[2], ..kind(2, [64, 72], &[7, 9], &[3, 3]) }, true),
    (
        Kind {
            stride: &[2, 1],
            dilation: &[1, 2],
            padding: &[[1, 0], [2, 3]],
            ..kind(3, [128, 40], &[13, 11], &[3, 2])
        },
        false,
    ),
    (Kind { dilation: &[2], padding: &[[8, 0]], ..kind(3, [64, 24], &[47], &[5]) }, false),
    (Kind { padding: SAME[2], ..kind(2, [16, 200], &[10, 12], &[3, 3]) }, true),
    (kind(3, [192, 136], &[5, 7], &[1, 1]), false),
    (Kind { padding: &[[4, 0], [0, 6]], dilation: &[3, 1], ..kind(2, [72, 64], &[6, 5], &[2, 5]) }, false),
    (Kind { padding: SAME[2], ..kind(2, [20, 33], &[9, 11], &[3, 3]) }, false),
    (Kind { padding: SAME[2], ..kind(1, [64, 3], &[9, 8], &[3, 3]) }, false),
    (Kind { padding: SAME[2], ..kind(2, [128, 8], &[7, 5], &[3, 3]) }, false),
    (Kind { padding: SAME[2], ..kind(2, [64, 65], &[6, 7], &[3, 3]) }, false),
    (Kind { stride: &[1, 2], ..kind(2, [40, 128], &[9, 11], &[1, 3]) }, false),
];

/// Forms whose channels the copy engine gathers, or copies of them.
fn windows() -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    for (d, dtype) in [DType::F16, DType::BF16, DType::F32].into_iter().enumerate() {
        for (i, (kind, core)) in WINDOWS.iter().enumerate() {
            let are_whole = kind.channels.iter().all(|channels| channels % 8 == 0);
            let all = [Contiguous, ChannelsLast, MixedIn, MixedOut];
            let layouts = if dtype == DType::F32 { &all[..2] } else { &all };
            for (l, &layout) in layouts.iter().enumerate() {
                // Copies are made of contiguous operands.
                if are_whole || layout == Contiguous {
                    let is_core = *core && l < 2 && (i + l + d) % 2 == 0;
                    forms.push((form(*kind, dtype, layout, 3 * i + 2 * l + d), Data::Normal, is_core));
                    forms.push((kind.conv(dtype, layout).into(), Data::Normal, false));
                }
            }
        }
        for (at, data) in Data::every().filter(|data| *data != Data::Normal).enumerate() {
            let forward = WINDOWS[0].0.conv(dtype, [Contiguous, ChannelsLast][at % 2]);
            forms.push((forward.bias(dtype).expect("a form").into(), data, false));
        }
    }
    forms
}

/// The case by `conv_wgmma`, where it serves it; without copies also with no workspace, so that no blocks share sums, and as a product of matrices.
fn by_wgmma(case: &Case) -> Option<Vec<Case>> {
    let name = case.descriptor.name();
    let slots = case.slots();
    let of = |name: &str| slots.iter().find(|slot| slot.name == name).map(|slot| slot.desc);
    let mut factors = ["x", "weight", "dy"].into_iter().filter_map(of);
    let first = factors.next()?.dtype();
    let json = json_of(&case.descriptor).ok()?;
    let serves = match name {
        "conv" => true,
        "conv_backward_data" => json.get("stride").is_none(),
        "conv_backward_weight" => of("x")?.dims()[1] % 64 == 0,
        _ => false,
    };
    // Factors of f32 are rounded to tf32, which is multiplied along the terms alone.
    let is_tf32 = first == DType::F32;
    if !serves || factors.any(|desc| desc.dtype() != first) || (is_tf32 && name == "conv_backward_weight") {
        return None;
    }
    let math = if is_tf32 { Math::Tf32 } else { Math::Strict };
    let options = PlanOptions::default().kernel(format!("{name}_wgmma")).math(math);
    let lies_as_read = slots.iter().all(|slot| slot.desc.rank() < 3 || slot.desc.strides()[1] == 1);
    let is_turned = is_tf32 && name == "conv_backward_data"; // The weight, whatever its layout.
    let alone = (lies_as_read && !is_turned).then(|| options.clone().workspace_limit(0));
    let is_product = lies_as_read && !is_tf32 && is_product(&case.descriptor);
    let product = is_product.then(|| PlanOptions::default().kernel(format!("{name}_gemm_wgmma")));
    let others = alone.into_iter().chain(product).map(|options| case.clone().core(false).with(options));
    Some([case.clone().with(options)].into_iter().chain(others).collect())
}

/// Few channels of x: pixels of four and of eight elements, windows that end within 16 bytes, tiles that are wider than rows, as wide and narrower, and of
/// several rows; tiles below one another that share rows of x and that share none; filters of several blocks, and chunks of several blocks.
const STEMS: &[(Kind, bool)] = &[
    (Kind { stride: &[2, 2], padding: &[[3, 3], [3, 3]], ..kind(2, [3, 64], &[23, 41], &[7, 7]) }, true),
    (Kind { padding: SAME[2], ..kind(2, [1, 7], &[9, 12], &[3, 3]) }, false),
    (Kind { padding: &[[2, 2], [1, 1]], ..kind(1, [2, 65], &[6, 150], &[5, 3]) }, false),
    (Kind { stride: &[1, 2], padding: SAME[2], ..kind(1, [4, 130], &[5, 275], &[3, 3]) }, false),
    (Kind { stride: &[2, 2], padding: SAME[2], ..kind(1, [8, 48], &[19, 32], &[3, 3]) }, false),
    (Kind { padding: &[[1, 0], [4, 2]], ..kind(3, [5, 33], &[7, 20], &[3, 5]) }, false),
    (Kind { stride: &[4, 4], padding: &[[2, 2], [2, 2]], ..kind(1, [3, 40], &[35, 67], &[9, 9]) }, false),
    (Kind { stride: &[3, 3], ..kind(2, [3, 24], &[12, 14], &[2, 2]) }, false),
    (kind(1, [3, 1], &[4, 131], &[1, 1]), false),
    (Kind { stride: &[2], padding: &[[4, 3]], ..kind(2, [3, 32], &[150], &[9]) }, true),
    (Kind { stride: &[4, 4], ..kind(2, [3, 32], &[16, 64], &[4, 4]) }, false),
    (Kind { stride: &[2, 2], padding: &[[6, 6], [7, 5]], ..kind(1, [2, 16], &[5, 9], &[3, 3]) }, false),
];

/// Forms of few channels, with values that no position beside a window may see.
fn stems() -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    for (d, dtype) in [DType::F16, DType::BF16, DType::F32].into_iter().enumerate() {
        for (i, (kind, core)) in STEMS.iter().enumerate() {
            for (l, layout) in [Contiguous, ChannelsLast, MixedIn, MixedOut].into_iter().enumerate() {
                if l < 2 {
                    let relu = kind.conv(dtype, layout).bias(dtype).and_then(|d| d.activation(Activation::Relu));
                    let is_core = *core && (i + l + d) % 2 == 0;
                    forms.push((relu.expect("a form").into(), Data::Normal, is_core));
                }
                if l < 2 || (i + l + d) % 3 == 0 {
                    forms.push((form(*kind, dtype, layout, 5 * i + 2 * l + d), Data::Normal, false));
                }
            }
        }
        for (at, data) in Data::every().filter(|data| *data != Data::Normal).enumerate() {
            for i in [0, 2, 9] {
                let plain = STEMS[i].0.conv(dtype, [Contiguous, ChannelsLast][(at + i) % 2]);
                let biased = plain.clone().y(DType::F32).and_then(|d| d.bias(DType::F32)).expect("a form");
                let form = if data == Data::LargeBias { biased } else { plain };
                forms.push((form.into(), data, false));
            }
        }
    }
    forms
}

/// The case by `conv_few_channels`, where it serves it; of the gradient of the weight also with workspace for one part.
fn by_few_channels(case: &Case) -> Option<Vec<Case>> {
    let name = case.descriptor.name();
    let slots = case.slots();
    let mut factors =
        slots.iter().filter(|slot| matches!(slot.name, "x" | "weight" | "dy")).map(|slot| slot.desc.dtype());
    let dtype = factors.next()?;
    let of = |name: &str| slots.iter().find(|slot| slot.name == name).map(|slot| slot.desc);
    let serves = match name {
        "conv" => true,
        "conv_backward_weight" => dtype != DType::F32,
        "conv_backward_data" => dtype != DType::F32 && has_few_columns(&case.descriptor),
        _ => false,
    };
    if !serves || factors.any(|other| other != dtype) {
        return None;
    }
    let math = if dtype == DType::F32 { Math::Tf32 } else { Math::Strict };
    let options = PlanOptions::default().kernel(format!("{name}_few_channels")).math(math);
    let alone = of("dweight").map(|desc| options.clone().workspace_limit(4 * desc.dims().iter().product::<u64>()));
    let alone = alone.map(|options| case.clone().core(false).with(options));
    Some([case.clone().with(options)].into_iter().chain(alone).collect())
}

/// Whether a row of what the strides lay over the same positions of dy has as few products as `conv_few_channels` takes.
fn has_few_columns(descriptor: &AnyDescriptor) -> bool {
    let json = json_of(descriptor).expect("a descriptor has a JSON");
    let slots = descriptor.slots();
    let Some(weight) = slots.iter().find(|slot| slot.name == "weight").map(|slot| slot.desc) else { return false };
    let last = weight.rank() - 3;
    let number = |field: &str, at: usize| json[field][at].as_u64().unwrap_or(1);
    let (down, across) = (if last == 0 { 1 } else { number("stride", 0) }, number("stride", last));
    let of_padding = json["padding"][last][0].as_i64().unwrap_or(0);
    let (step, kernel) = (across.cast_signed(), weight.dims()[2 + last].cast_signed());
    let taps = (step - 1 + of_padding).div_euclid(step) - (of_padding + step - kernel).div_euclid(step) + 1;
    down * (taps.unsigned_abs() * across * weight.dims()[1]).next_multiple_of(8) <= 64
}

/// The case by each kernel that serves it whatever else is installed, or that another one may come before.
fn pinned(case: &Case) -> Vec<Case> {
    let name = case.descriptor.name();
    if name == "conv_backward_bias" {
        return Vec::new();
    }
    let named = |form: &str| PlanOptions::default().kernel(format!("{name}_{form}"));
    let of = |options| case.clone().core(false).with(options);
    let fields = Fields::of(&case.descriptor).expect("a convolution");
    let mut cases = vec![of(named("simt"))];
    if matches!(fields.dtype, DType::F32 | DType::F64) {
        cases.push(of(named("reference")));
    }
    if fields.json.get("groups").is_some() && fields.dtype != DType::F64 {
        cases.push(of(named("tiled")));
    }
    if fields.dtype != DType::F64 {
        cases.push(of(named("walk")));
    }
    if is_depthwise(case) {
        cases.push(of(named("depthwise")));
    }
    let of_factors = |name: &str| case.descriptor.slots().iter().find(|slot| slot.name == name).map(|s| s.desc.dtype());
    let mut factors = ["x", "weight", "dy"].into_iter().filter_map(of_factors);
    let first = factors.next();
    if factors.any(|dtype| Some(dtype) != first) {
        return cases; // No instruction of tensor cores multiplies two types.
    }
    match fields.dtype {
        DType::F16 | DType::BF16 => cases.push(of(named("mma"))),
        DType::F32 => cases.push(of(named("mma").math(Math::Tf32))),
        _ => {}
    }
    if is_product(&case.descriptor) {
        cases.push(of(named("gemm_simt")));
        match fields.dtype {
            DType::F16 | DType::BF16 => cases.extend(["gemm_mma", "gemm_tiled"].map(|form| of(named(form)))),
            DType::F32 => cases.extend([of(named("gemm_mma").math(Math::Tf32)), of(named("gemm_tiled"))]),
            _ => {}
        }
    }
    // Tensor cores multiply factors of one type.
    let factors = case.slots().iter().filter(|slot| matches!(slot.name, "x" | "weight" | "dy"));
    if factors.into_iter().any(|slot| slot.desc.dtype() != fields.dtype) {
        let is_of_cores = |case: &Case| case.options.kernel.as_ref().is_some_and(|kernel| kernel.ends_with("_mma"));
        cases.retain(|case| !is_of_cores(case));
    }
    cases
}

/// Whether the depthwise kernels of every backend serve it: as many filters as channels, square kernels of 3, 5 or 7 whose windows slide
/// without stride and dilation, and factors of one type; for the gradient of the weight not of 7.
fn is_depthwise(case: &Case) -> bool {
    let json = json_of(&case.descriptor).expect("a descriptor has a JSON");
    let slots = case.descriptor.slots();
    let of = |name: &str| slots.iter().find(|slot| slot.name == name).map(|slot| slot.desc);
    let Some(weight) = of("weight").or(of("dweight")) else { return false };
    let factors: Vec<DType> = ["x", "weight", "dy"].into_iter().filter_map(of).map(|desc| desc.dtype()).collect();
    let groups = json["groups"].as_u64().unwrap_or(1);
    let most = if of("dweight").is_some() { 5 } else { 7 };
    let is_square = |kernel: &[u64]| matches!(kernel, [a @ (3 | 5 | 7), b] if a == b && *a <= most);
    ["stride", "dilation"].iter().all(|name| json.get(*name).is_none())
        && weight.dims()[..2] == [groups, 1]
        && is_square(&weight.dims()[2..])
        && factors.iter().all(|dtype| *dtype == factors[0] && *dtype != DType::F64)
        && slots.iter().all(|slot| !slot.desc.is_empty())
}

/// Whether kernels of products of matrices serve it: it has one group and kernels of one element, one after the other.
fn is_product(descriptor: &AnyDescriptor) -> bool {
    let json = json_of(descriptor).expect("a descriptor has a JSON");
    let kernel = descriptor.slots().iter().find(|slot| matches!(slot.name, "weight" | "dweight"));
    let is_one = kernel.is_some_and(|slot| slot.desc.dims()[2..].iter().all(|&extent| extent == 1));
    is_one && ["stride", "padding", "groups"].iter().all(|name| json.get(*name).is_none())
}

/// What the harness reads back from a descriptor.
struct Fields {
    name: &'static str,
    json: Value,
    /// Of the factors.
    dtype: DType,
    activation: Activation,
    /// Terms of each sum, those in the padding among them.
    terms: u64,
    /// Whether windows stay within x.
    has_padding: bool,
}

/// The fields that say which element meets which.
const WINDOW: [&str; 4] = ["stride", "dilation", "padding", "groups"];

impl Fields {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json = json_of(descriptor)?;
        let tensor = |name: &str| serde_json::from_value::<TensorDesc>(json[name].clone());
        let count = |desc: TensorDesc, from: usize| desc.dims()[from..].iter().product::<u64>();
        let groups = json["groups"].as_u64().unwrap_or(1);
        let name = descriptor.name();
        let (dtype, terms) = match name {
            "conv" => (tensor("x")?.dtype(), count(tensor("weight")?, 1)),
            "conv_backward_data" => {
                let weight = tensor("weight")?;
                (weight.dtype(), weight.dims()[0] / groups * count(weight, 2))
            }
            "conv_backward_weight" => (tensor("x")?.dtype(), tensor("dy")?.dims()[0] * count(tensor("dy")?, 2)),
            _ => (tensor("dy")?.dtype(), tensor("dy")?.dims()[0] * count(tensor("dy")?, 2)),
        };
        let activation =
            json.get("activation").map_or(Ok(Activation::Identity), |v| serde_json::from_value(v.clone()))?;
        let has_padding = json.get("padding").is_some();
        Ok(Self { name, dtype, activation, terms, has_padding, json })
    }

    /// The JSON of the same products over dense f64 operands, without what is added or applied.
    fn product(&self) -> Value {
        let mut json = json!({});
        for name in ["x", "dy", "weight", "dx", "dweight"] {
            if let Some(tensor) = self.json.get(name) {
                json[name] = json!({"dtype": "f64", "dims": tensor["dims"]});
            }
        }
        for name in WINDOW {
            if let Some(value) = self.json.get(name) {
                json[name] = value.clone();
            }
        }
        json
    }

    /// The JSON of the same op over dense f64 operands.
    fn in_f64(&self) -> Value {
        let mut json = self.product();
        for name in ["activation", "beta"] {
            if let Some(value) = self.json.get(name) {
                json[name] = value.clone();
            }
        }
        if self.json.get("bias").is_some() {
            json["bias"] = json!("f64");
        }
        json
    }
}

fn inputs(inputs: &Tensors) -> BTreeMap<&str, &[f64]> {
    inputs.0.iter().map(|t| (t.name.as_str(), t.values.as_slice())).collect()
}

/// Few elements may all lie on one side of a ReLU; sums over nothing are equal; a stride above the kernel leaves elements of x unseen.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let slots = descriptor.slots();
    let is_small = slots.last().is_some_and(|slot| slot.desc.elements() < 64);
    let is_empty = slots.iter().any(|slot| slot.desc.is_empty());
    let is_repeated = slots.iter().any(|slot| slot.desc.elements() > 1 && slot.desc.strides().iter().all(|s| *s == 0));
    is_small || is_empty || is_repeated
}

fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let fields = Fields::of(&case.descriptor)?;
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements());
    let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
    // Sums of that many products of such a number and one that a normal distribution has; of f64, budgets in units of u_A are finite, too.
    let terms = fields.terms.max(1) as f64;
    let largest = if dtype == DType::F64 { 2f64.powi(940) } else { 2f64.powi(118) };
    // A dy of f32 may be rounded to the type of the factors.
    let ranged = if fields.dtype == DType::F16 { DType::F16 } else { dtype };
    let huge = Huge::of(ranged);
    let huge = huge.at_most(largest / terms, largest / terms);
    let rows = |data: Data, random: &mut Random| data.rows_within(huge, dtype, elements / cols, cols, random);
    let is_finite = !matches!(case.data, Data::Nan | Data::Inf | Data::NegInf);
    // What is gathered by windows, and what it is multiplied by: of that, kernels may multiply any element by a zero in the padding.
    let (gathered, plain) = match fields.name {
        "conv" => ("x", "weight"),
        "conv_backward_data" => ("dy", "weight"),
        "conv_backward_weight" => ("x", "dy"),
        _ => ("dy", ""),
    };
    let is_inside = fields.name == "conv" && !fields.has_padding;
    let values = match (slot.name, case.data) {
        (_, Data::Sparse) => rows(Data::Sparse, random),
        ("bias", Data::LargeBias) => (0..elements).map(|_| 1000.0 * random.normal()).collect(),
        (_, Data::LargeBias) => rows(Data::LargeBias, random),
        ("weight", data) if data.is_structured() => vec![equal_factor(dtype); elements as usize],
        ("x" | "dy", data) if data.is_structured() => structured(data, slot, random),
        (name, Data::Wide) if name == gathered => Wide::first(ranged).rows(elements / cols, cols, random),
        (name, Data::Wide) if name == plain => Wide::second(ranged).rows(elements / cols, cols, random),
        (name, data) if name == gathered && !is_finite => {
            // In the first group alone: nothing of it goes to others.
            let [channels, groups] = [slot.desc.dims()[1], fields.json["groups"].as_u64().unwrap_or(1)];
            let spatial: u64 = slot.desc.dims()[2..].iter().product();
            let others = rows(Data::Normal, random);
            let is_first = |i: usize| (i as u64 / spatial % channels) * groups < channels;
            let choose = |(i, (value, other))| if is_first(i) { value } else { other };
            rows(data, random).into_iter().zip(others).enumerate().map(choose).collect()
        }
        (name, data) if name == gathered => rows(data, random),
        // Sums of terms whose signs alternate, all of one magnitude.
        (name, Data::Constant) if name == plain => {
            let first = slot.desc.dims()[0].max(1);
            let row = (elements / first).max(1);
            (0..elements).map(|i| if (i / row + i % row).is_multiple_of(2) { 1000.1 } else { -1000.1 }).collect()
        }
        (name, data @ (Data::LargeMean | Data::Large)) if name == plain => rows(data, random),
        (name, data) if name == plain && is_inside && !is_finite => rows(data, random),
        _ => rows(Data::Normal, random),
    };
    Ok(values)
}

/// Structured images: a row is a sample, and a column, where signs alternate along them, is a channel.
fn structured(data: Data, slot: &Slot, random: &mut Random) -> Vec<f64> {
    let (dims, dtype) = (slot.desc.dims(), slot.desc.dtype());
    let spatial: u64 = dims[2..].iter().product();
    if data != Data::Stripes {
        return data.rows(dtype, dims[0], dims[1] * spatial, random);
    }
    let of_channels = data.rows(dtype, dims[0], dims[1], random);
    of_channels.into_iter().flat_map(|value| vec![value; spatial as usize]).collect()
}

const FORWARD_CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["pre"],
        budget: "u_o |pre| + u_A p, p = (8 + K/4) sum|x weight| + 2 |bias|, K terms a sum with those in the padding; where the elements of a factor \
                 have no common sign, 2 sqrt(K) for K/4 if that is less",
        why: "It lets the roundings of a plain running sum have one sign.",
    },
    Contract {
        outputs: &["y"],
        budget: "u_o |y| + u_A (|act'| p + u_A max|act''| p^2 / 2 + 8 |y|), with p as for pre; on wgpu 16 for 8; u_o |y| + u_A p for identity and \
                 relu",
        why: "As for pre; far out an activation has less error than its bound.",
    },
];

const DATA_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["dx"],
    budget: "u_o |dx| + sum((u_A (8 + K/4) |dy| + r) |weight|) + 2 u_A |beta dx|, K terms a sum (2 sqrt(K) for K/4 as for pre of conv); of f16 \
             and bf16 with a dy of f32 r = u |dy| + half the least subnormal, the rounding of dy",
    why: "It lets the roundings of a plain running sum have one sign, and counts terms that lie in the padding or between strides.",
}];

const WEIGHT_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["dweight"],
    budget: "u_o |dweight| + sum(|x| (u_A (8 + K/4) |dy| + r)) + 2 u_A |beta dweight|, K and r as for dx of conv_backward_data",
    why: "It lets the roundings of a plain running sum have one sign, and counts terms that lie in the padding.",
}];

const BIAS_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["dbias"],
    budget: "u_o |dbias| + u_A (8 + 48/4) sum|dy| + 2 u_A |beta dbias|",
    why: "It allows for 48 additions one after the other, with roundings of one sign.",
}];

/// Expected values and budgets of forward: docs/numerics.md, Budgets, "conv, pre" and "conv, y".
fn expect_forward(descriptor: &AnyDescriptor, given: &Tensors, outputs: &Tensors, by: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let accumulator = fields.dtype.accumulator();
    let mut json = fields.in_f64();
    json["pre"] = json!("f64");
    let mut found = run_in_f64("conv", &json, &inputs(given))?;
    let (pre, values) = (found.remove("pre").context("pre")?, found.remove("y").context("y")?);

    let [x, weight] = ["x", "weight"].map(|name| given.values(name).context("a factor"));
    let (x, weight) = (x?, weight?);
    let factor = chain(fields.terms as f64, is_random(x) || is_random(weight), by);
    let (x, weight) = (magnitudes(x, fields.dtype, by), magnitudes(weight, fields.dtype, by));
    let sums = run_in_f64("conv", &fields.product(), &BTreeMap::from([("x", &x[..]), ("weight", &weight[..])]))?;
    let y = outputs.get("y").context("y")?;
    let (filters, spatial) = (y.dims[1] as usize, y.dims[2..].iter().product::<u64>() as usize);
    let bias = |i: usize| given.values("bias").map_or(0.0, |bias| bias[i / spatial % filters].abs());
    let flushed = flushed(fields.terms as f64, fields.dtype, by);
    let errors: Vec<f64> =
        sums["y"].iter().enumerate().map(|(i, sum)| factor * sum + 2.0 * bias(i) + flushed).collect();

    Ok(activated(fields.activation, accumulator, by, [("pre", pre), ("y", values)], &errors, outputs))
}

fn expect_data(descriptor: &AnyDescriptor, given: &Tensors, outputs: &Tensors, by: By) -> Result<Vec<Expected>> {
    expect_product(descriptor, given, outputs, by, ["dx", "weight"])
}

fn expect_weight(descriptor: &AnyDescriptor, given: &Tensors, outputs: &Tensors, by: By) -> Result<Vec<Expected>> {
    expect_product(descriptor, given, outputs, by, ["dweight", "x"])
}

/// Expected values and budgets of a gradient that is a product of dy and a factor: docs/numerics.md, Budgets, "conv, dx, dweight".
fn expect_product(
    descriptor: &AnyDescriptor,
    given: &Tensors,
    outputs: &Tensors,
    by: By,
    [output, factor]: [&str; 2],
) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let accumulator = fields.dtype.accumulator();
    let unit = accumulator.unit_roundoff();
    let values = run_in_f64(fields.name, &fields.in_f64(), &inputs(given))?.remove(output).context("a gradient")?;

    let dy = given.get("dy").context("no dy")?;
    let other = given.values(factor).context("no factor")?;
    let is_rounded = dy.dtype != fields.dtype;
    let rounding = |v: f64| match is_rounded {
        true => (fields.dtype.unit_roundoff() * v.abs() + fields.dtype.smallest_subnormal() / 2.0) / unit,
        false => 0.0,
    };
    let sum = chain(fields.terms as f64, is_random(&dy.values) || is_random(other), by);
    let counted = magnitudes(&dy.values, fields.dtype, by);
    let left: Vec<f64> = counted.iter().zip(&dy.values).map(|(size, v)| sum * size + rounding(*v)).collect();
    let right = magnitudes(other, fields.dtype, by);
    let off = run_in_f64(fields.name, &fields.product(), &BTreeMap::from([("dy", &left[..]), (factor, &right[..])]))?;
    let beta = fields.json["beta"].as_f64().unwrap_or(0.0);
    let before = |i: usize| given.values(output).map_or(0.0, |values| 2.0 * (beta * values[i]).abs());
    let dtype = outputs.get(output).context("a gradient")?.dtype;
    let flushed = flushed(fields.terms as f64, fields.dtype, by);
    Ok(vec![Expected::within(output, dtype, accumulator, values, |i| off[output][i] + before(i) + flushed)])
}

/// Expected values and budgets of the bias's gradient: docs/numerics.md, Budgets, "conv, dbias".
fn expect_bias(descriptor: &AnyDescriptor, given: &Tensors, outputs: &Tensors, _: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let accumulator = fields.dtype.accumulator();
    let values = run_in_f64(fields.name, &fields.in_f64(), &inputs(given))?.remove("dbias").context("dbias")?;
    let dy = given.values("dy").context("no dy")?;
    let magnitude: Vec<f64> = dy.iter().map(|v| v.abs()).collect();
    let sums = run_in_f64(fields.name, &fields.product(), &BTreeMap::from([("dy", &magnitude[..])]))?;
    let beta = fields.json["beta"].as_f64().unwrap_or(0.0);
    let before = |i: usize| given.values("dbias").map_or(0.0, |values| 2.0 * (beta * values[i]).abs());
    let dtype = outputs.get("dbias").context("dbias")?.dtype;
    let own = |i: usize| (8.0 + CHAIN / 4.0) * sums["dbias"][i] + before(i);
    Ok(vec![Expected::within("dbias", dtype, accumulator, values, own)])
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = ConvArgs::new(run.input("x"), run.input("weight"), run.output("y"));
    if let Some(bias) = run.named.mem("bias") {
        args = args.bias(bias);
    }
    if let Some(pre) = run.named.mem_mut("pre") {
        args = args.pre(pre);
    }
    run.plan::<ConvDescriptor>(args)
}

fn run_backward_data(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let args = ConvBackwardDataArgs::new(run.input("weight"), run.input("dy"), run.output("dx"));
    run.plan::<ConvBackwardDataDescriptor>(args)
}

fn run_backward_weight(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let args = ConvBackwardWeightArgs::new(run.input("x"), run.input("dy"), run.output("dweight"));
    run.plan::<ConvBackwardWeightDescriptor>(args)
}

fn run_backward_bias(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let args = ConvBackwardBiasArgs::new(run.input("dy"), run.output("dbias"));
    run.plan::<ConvBackwardBiasDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Form)> {
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let same = SAME[2];
    let block = Kind { padding: same, ..kind(4, [32, 32], &[14, 14], &[3, 3]) };
    let fused = |layout| block.conv(dtype, layout).bias(dtype).and_then(|d| d.activation(Activation::Relu));
    let pre = fused(Contiguous).and_then(|d| d.activation(Activation::Silu)?.pre(dtype)).expect("a form");
    let mixed = Form { dtype: Some(wide), beta: 1.0, ..block.conv(dtype, MixedIn).y(wide).expect("a type").into() };
    let of = |kind: Kind, layout| Form::from(kind.conv(dtype, layout));
    let stem = Kind { stride: &[2, 2], padding: &[[3, 3], [3, 3]], ..kind(2, [3, 32], &[28, 28], &[7, 7]) };
    let strided = Kind { stride: &[2, 2], padding: same, ..kind(4, [32, 64], &[14, 14], &[3, 3]) };
    let depthwise = Kind { padding: same, groups: 32, ..block };
    let causal = Kind { padding: &[[4, 0]], dilation: &[2], ..kind(4, [32, 32], &[200], &[3]) };
    let solid = Kind { padding: SAME[3], ..kind(1, [16, 16], &[4, 8, 8], &[3, 3, 3]) };
    vec![
        ("3x3 with bias and relu", fused(Contiguous).expect("a form").into()),
        ("3x3 with bias and relu, channels-last", fused(ChannelsLast).expect("a form").into()),
        ("silu, pre-activation saved", pre.into()),
        ("mixed layouts, outputs of f32, gradients added up", mixed),
        ("1x1", of(kind(4, [32, 64], &[14, 14], &[1, 1]), Contiguous)),
        ("1x1, channels-last", of(kind(4, [32, 64], &[14, 14], &[1, 1]), ChannelsLast)),
        ("stride 2", of(strided, Contiguous)),
        ("stem of 3 channels", of(stem, ChannelsLast)),
        ("depthwise", of(depthwise, Contiguous)),
        ("depthwise, channels-last", of(depthwise, ChannelsLast)),
        ("groups, dilation, padding on one side", of(GROUPED, Contiguous)),
        ("one extent, causal", of(causal, Contiguous)),
        ("three extents", of(solid, Contiguous)),
    ]
}
