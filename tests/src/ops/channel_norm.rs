//! What BatchNorm, GroupNorm and InstanceNorm share: cases, inputs and the accuracy contract.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use baracuda_ops::{Activation, AnyDescriptor, Backend, DType, Error, PlanOptions, Slot, TensorDesc};
use serde_json::Value;

use super::{
    CHAIN, Contract, FLOATS, RunTyped, Subject, accumulating, channels_last as last, dense, features, huge_of_norm,
    json_of, run_in_f64, strided,
};
use crate::case::{Case, Data, Huge, Random, distinct};
use crate::judge::{By, Expected, budget, finite};
use crate::values::Tensors;

mod wgpu;

/// Where the statistics come from, and what becomes of the running ones.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Running {
    /// There are none.
    None,
    /// Updated with a momentum.
    Momentum(f64),
    /// Updated to the mean over all batches.
    Cumulative,
    /// They are the statistics.
    Inference,
}

/// A forward before it is a descriptor.
#[derive(Clone)]
pub(super) struct Form {
    pub(super) x: TensorDesc,
    pub(super) groups: u64,
    pub(super) weight: Option<DType>,
    pub(super) bias: Option<DType>,
    pub(super) eps: f64,
    pub(super) activation: Activation,
    pub(super) residual: bool,
    pub(super) running: Running,
    pub(super) stats: bool,
    pub(super) layouts: Vec<(&'static str, TensorDesc)>,
}

impl Form {
    fn plain(x: TensorDesc, groups: u64) -> Self {
        Self {
            x,
            groups,
            weight: None,
            bias: None,
            eps: 1e-5,
            activation: Activation::Identity,
            residual: false,
            running: Running::None,
            stats: false,
            layouts: Vec::new(),
        }
    }

    /// With both parameters in one type, and the statistics.
    fn affine(x: TensorDesc, groups: u64, dtype: DType) -> Self {
        Self { weight: Some(dtype), bias: Some(dtype), stats: true, ..Self::plain(x, groups) }
    }

    fn act(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    fn running(self, running: Running) -> Self {
        Self { running, stats: self.stats && running != Running::Inference, ..self }
    }
}

/// Every input that may have a gradient.
const INPUTS: [&str; 4] = ["x", "residual", "weight", "bias"];

/// A backward before it is a descriptor.
#[derive(Clone)]
pub(super) struct GradientForm {
    pub(super) form: Form,
    /// Inputs of which forward may have others.
    pub(super) wanted: Vec<&'static str>,
    pub(super) from_y: bool,
    pub(super) layouts: Vec<(&'static str, TensorDesc)>,
}

impl GradientForm {
    fn all(form: Form) -> Self {
        Self { form, wanted: INPUTS.into(), from_y: false, layouts: Vec::new() }
    }
}

/// One of the three ops.
pub(super) trait Family {
    /// Running statistics and inference.
    const HAS_RUNNING: bool;
    /// A residual, gradients from y, the cumulative mode.
    const HAS_RESIDUAL: bool;
    /// Extents, number of groups, and whether the case runs in every mode.
    const SHAPES: &'static [(&'static [u64], u64, bool)];
    /// Number of groups for a number of channels, where it does not matter.
    fn groups(channels: u64) -> u64;
    fn forward(form: &Form) -> Result<AnyDescriptor, Error>;
    fn backward(form: &GradientForm) -> Result<AnyDescriptor, Error>;
}

/// What the harness knows of a forward.
pub(super) const fn forward_subject<F: Family>(name: &'static str, run_typed: RunTyped) -> Subject {
    Subject {
        name,
        cases: forward_cases::<F>,
        is_cpu_only,
        may_be_constant,
        input: forward_input,
        expect: expect_forward,
        contracts: FORWARD_CONTRACTS,
        run_typed,
        features: forward_features::<F>,
    }
}

/// What the harness knows of a backward.
pub(super) const fn backward_subject<F: Family>(name: &'static str, run_typed: RunTyped) -> Subject {
    Subject {
        name,
        cases: || accumulating(backward_cases::<F>()),
        is_cpu_only,
        may_be_constant,
        input: backward_input,
        expect: expect_backward,
        contracts: BACKWARD_CONTRACTS,
        run_typed,
        features: backward_features::<F>,
    }
}

/// Groups that clusters of a large device take one after another, several times around their rings.
const MANY_ROUNDS: [u64; 3] = [4, 36, 65_600];

/// Groups that no cluster holds, or that leave SMs of a large device without one.
const LARGE_GROUPS: [u64; 3] = [1, 16, 525_004];

/// A group of 16-bit elements of more parts than its workgroups merge themselves on wgpu.
const MANY_PARTS: [u64; 3] = [1, 1, 266_248];

/// Two groups of channels, or two channels of both samples, each more than a large device holds on chip.
const OVERFLOWING_GROUPS: [u64; 3] = [2, 2, 4_400_004];

/// Channels whose gradients any number of blocks share, of 16-bit elements; and such that clusters share, several rounds of them.
const SHARED_CHANNELS: [u64; 3] = [4, 12, 131_200];
const CLUSTERED_CHANNELS: [u64; 3] = [4, 24, 32_800];
/// More groups of two segments than a large device holds two an SM.
const MANY_PAIRS: [u64; 3] = [266, 2, 9704];

/// Long groups of 16-bit elements that all find a place at once on a large device.
const LONG_PAIRS: [u64; 3] = [50, 2, 12_300];

/// More long segments than keep a large device busy with short teams.
const MANY_SEGMENTS: [u64; 3] = [64, 64, 1032];

/// More channels than SMs of a large device, which shared memory holds with a residual.
const RESIDUAL_CHANNELS: [u64; 3] = [32, 140, 784];
/// Few channels, of which clusters of 8 or 16 blocks hold the gradient and x.
const FEW_CHANNELS: [u64; 3] = [4, 3, 25_000];
/// Groups of f32 that clusters of 7 blocks fill a large device with.
const SEVENTHS: [u64; 3] = [2, 64, 19_208];

/// More contiguous segments of f32 than SMs of a large device, each of which half of the largest workgroup holds.
const HELD_SEGMENTS: [u64; 3] = [4, 36, 8300];

/// Segments of whole vectors: shaders read them as such at some addresses.
const VECTORS: [u64; 4] = [8, 16, 16, 16];

/// Odd spatial extents, of which a few channels of all samples stay on chip.
const ODD_EXTENTS: [u64; 4] = [5, 8, 7, 7];

/// Channels-last rows that are more than a large device holds on chip at once: gradients take slabs, here of channels or samples.
const SLABS: [u64; 3] = [8, 64, 19_500];
/// Of which forward reads some again; two slabs of samples that fit, and two that registers nearly hold; samples that a block each holds.
const SLAB_READ_AGAIN: [u64; 3] = [8, 64, 26_000];
const SAMPLE_SLABS: [u64; 3] = [264, 32, 1450];
const SMALL_SAMPLE_SLABS: [u64; 3] = [264, 64, 520];
const SMALL_SAMPLES: [u64; 3] = [264, 64, 131];
/// Contiguous groups that few blocks take into their registers, whole or the first part.
const IN_REGISTERS: [u64; 3] = [2, 16, 4000];
const PARTLY_IN_REGISTERS: [u64; 3] = [1, 1, 262_144];

/// More groups than blocks are launched while the previous kernel ends: the kernel of `single` is then the one that can start its blocks
/// one after another.
const MANY_SMALL_GROUPS: [u64; 3] = [32, 33, 8];

/// Channels last, the parameters of which are four elements.
const FOUR_CHANNELS: [u64; 3] = [2, 4, 35];

/// A form of the CUDA kernels, and small shapes that it serves, whether or not it would be chosen for them.
struct Pinned {
    form: &'static str,
    is_channels_last: bool,
    /// The ops and passes that have it for such shapes.
    of: fn(Groups, Pass) -> bool,
    /// Whether it takes an activation, a residual beside it, or neither.
    extras: Extras,
}

/// What shares statistics: a channel of all samples, some channels of one sample, one channel of one sample.
#[derive(Clone, Copy, PartialEq)]
enum Groups {
    Batch,
    Group,
    Instance,
}

#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Forward,
    Backward,
}

/// What a form takes beside x, or dy and x.
#[derive(Clone, Copy, PartialEq)]
enum Extras {
    Nothing,
    /// Relu and silu.
    Short,
    /// Relu, silu, and in BatchNorm a residual through relu.
    ShortAndResidual,
    /// Every activation, and in BatchNorm every residual.
    All,
    /// A residual through relu, always.
    MaskAlone,
}

const PINNED: [Pinned; 13] = {
    const fn contiguous(form: &'static str, of: fn(Groups, Pass) -> bool, extras: Extras) -> Pinned {
        Pinned { form, is_channels_last: false, of, extras }
    }
    const fn channels_last(form: &'static str, of: fn(Groups, Pass) -> bool, extras: Extras) -> Pinned {
        Pinned { form, is_channels_last: true, of, extras }
    }
    [
        contiguous("stripe", |groups, _| matches!(groups, Groups::Batch), Extras::ShortAndResidual),
        contiguous("segment", |groups, _| matches!(groups, Groups::Instance), Extras::Short),
        contiguous(
            "relay",
            |groups, pass| matches!((groups, pass), (Groups::Batch, _) | (_, Pass::Forward)),
            Extras::Short,
        ),
        contiguous(
            "single",
            |groups, pass| matches!((groups, pass), (Groups::Group | Groups::Instance, _) | (_, Pass::Forward)),
            Extras::All,
        ),
        contiguous(
            "single_masked",
            |groups, pass| matches!((groups, pass), (Groups::Batch, Pass::Backward)),
            Extras::MaskAlone,
        ),
        contiguous("held", |_, pass| pass == Pass::Backward, Extras::Short),
        contiguous("split", |_, _| true, Extras::All),
        channels_last("channels_last_rows", |groups, _| matches!(groups, Groups::Group), Extras::Nothing),
        channels_last("channels_last_cluster", |_, _| true, Extras::All),
        channels_last("channels_last_slabs", |_, _| true, Extras::Nothing),
        channels_last(
            "channels_last_resident",
            |groups, pass| matches!((groups, pass), (Groups::Batch, Pass::Forward)),
            Extras::All,
        ),
        channels_last("channels_last_cooperative", |_, _| true, Extras::All),
        channels_last("channels_last_split", |_, _| true, Extras::All),
    ]
};

/// The cases of each form by its name: a small one that runs in every mode, and some that show what else it takes.
fn pinned<F: Family>(pass: Pass, describe: impl Fn(Form) -> Result<AnyDescriptor, Error>) -> Vec<Case> {
    let groups = match (F::HAS_RESIDUAL, F::HAS_RUNNING) {
        (true, _) => Groups::Batch,
        (false, true) => Groups::Instance,
        (false, false) => Groups::Group,
    };
    let mut cases = Vec::new();
    for pinned in PINNED.iter().filter(|pinned| (pinned.of)(groups, pass)) {
        let mut add = |form: Form, data: Data, core: bool| {
            let descriptor = describe(form).expect("the case lists hold valid descriptors");
            let kernel = format!("{}_{}", descriptor.name(), pinned.form);
            cases.push(Case::new(descriptor, data).with(PlanOptions::default().kernel(kernel)).core(core));
        };
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let x = match pinned.is_channels_last {
                true => last(dtype, &[2, 64, 8, 6]),
                // `stripe` is for odd extents, others for whole vectors.
                false if pinned.form == "stripe" => dense(dtype, &ODD_EXTENTS),
                false => dense(dtype, &[3, 16, 16, 24]),
            };
            let groups = if groups == Groups::Group { 8 } else { F::groups(x.dims()[1]) };
            let plain = Form::affine(x, groups, DType::F32);
            let masked = Form { residual: true, ..plain.clone() }.act(Activation::Relu);
            let is_first = dtype == DType::F32;
            let extras = pinned.extras;
            let start = if extras == Extras::MaskAlone { masked.clone() } else { plain.clone() };
            add(start.clone(), Data::Normal, is_first);
            if dtype == DType::F16 {
                continue;
            }
            for data in [Data::LargeMean, Data::Nan, Data::Inf] {
                add(start.clone(), data, false);
            }
            if matches!(extras, Extras::Short | Extras::ShortAndResidual | Extras::All) {
                for activation in [Activation::Relu, Activation::Silu] {
                    add(plain.clone().act(activation), Data::Normal, false);
                }
            }
            if extras == Extras::All {
                add(plain.act(Activation::GeluTanh), Data::Normal, false);
            }
            if F::HAS_RESIDUAL && matches!(extras, Extras::ShortAndResidual | Extras::All) {
                add(masked, Data::Normal, false);
            }
        }
    }
    cases
}

const ACTIVATIONS: [Activation; 6] = [
    Activation::Relu,
    Activation::GeluErf,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Sigmoid,
    Activation::Tanh,
];

/// Whether a type takes a shape. f64 and f16 differ from f32 and bf16 only in how elements are read and written.
fn is_kept(dtype: DType, dims: &[u64], core: bool) -> bool {
    let elements: u64 = dims.iter().product();
    match dtype {
        // As many groups or samples as no dimension of a grid has are alike in every type.
        _ if dims.iter().any(|dim| *dim > 20_000 && *dim < 70_000) => dtype == DType::F32,
        DType::F64 => core || elements < 2000,
        DType::F16 => core || elements < 1500,
        _ => true,
    }
}

/// The options of forward over one x: every one in f32, f64 and contiguous bf16, else one of each kind. A GPU compiles a shader for
/// nearly each.
fn options<F: Family>(x: TensorDesc) -> Vec<(Form, bool)> {
    let is_whole = match x.dtype() {
        DType::F16 => false,
        DType::BF16 => x.is_contiguous(),
        _ => true,
    };
    every_option::<F>(x).into_iter().filter(|(form, core)| is_whole || *core || is_of_a_kind(form)).collect()
}

/// Whether a form without the others like it will do.
fn is_of_a_kind(form: &Form) -> bool {
    let is_affine = form.weight.is_some() && form.bias.is_some() && form.stats && form.eps == 1e-5;
    match form.activation {
        Activation::Identity => is_affine && !form.residual,
        Activation::Relu => is_affine && form.running == Running::Momentum(0.1),
        _ => false,
    }
}

fn every_option<F: Family>(x: TensorDesc) -> Vec<(Form, bool)> {
    let (dtype, groups) = (x.dtype(), F::groups(x.dims()[1]));
    let plain = Form::plain(x, groups);
    let affine = Form::affine(x, groups, DType::F32);
    let mut forms = vec![
        (plain.clone(), false),
        (Form { stats: true, ..plain.clone() }, false),
        (Form { weight: Some(dtype), ..plain.clone() }, false),
        (Form { bias: Some(dtype), stats: true, ..plain.clone() }, false),
        (Form { weight: Some(DType::F32), ..plain.clone() }, false),
        (Form::affine(x, groups, dtype), true),
        (affine.clone(), true),
        (Form { stats: false, ..affine.clone() }, false),
    ];
    for eps in [1e-12, 1.0] {
        forms.push((Form { eps, ..affine.clone() }, false));
    }
    for activation in ACTIVATIONS {
        forms.push((affine.clone().act(activation), matches!(activation, Activation::Silu | Activation::GeluErf)));
    }
    forms.push((plain.clone().act(Activation::Silu), false));
    if F::HAS_RUNNING {
        for momentum in [0.0, 0.1, 1.0, 0.99, 0.999] {
            forms.push((affine.clone().running(Running::Momentum(momentum)), momentum == 0.1));
        }
        forms.push((plain.clone().running(Running::Momentum(0.3)), false));
        forms.push((plain.clone().running(Running::Inference), false));
        forms.push((affine.clone().running(Running::Inference), true));
        forms.push((Form { eps: 1e-3, ..affine.clone() }.running(Running::Inference).act(Activation::Silu), false));
        forms.push((affine.clone().running(Running::Inference).act(Activation::Relu), false));
    }
    if F::HAS_RESIDUAL {
        let residual = Form { residual: true, ..affine.clone() };
        forms.push((residual.clone(), false));
        forms.push((Form { residual: true, ..plain.clone() }.act(Activation::Relu), false));
        for activation in [Activation::Relu, Activation::Silu, Activation::GeluTanh] {
            forms.push((residual.clone().act(activation), activation == Activation::Relu));
        }
        forms.push((residual.clone().act(Activation::Relu).running(Running::Momentum(0.1)), false));
        forms.push((residual.clone().act(Activation::Relu).running(Running::Inference), true));
        forms.push((affine.clone().running(Running::Cumulative), true));
        forms.push((plain.running(Running::Cumulative), false));
    }
    forms
}

/// Strides, ranks and alignment promises.
fn layouts<F: Family>(dtype: DType) -> Vec<(Form, bool)> {
    let element = dtype.size_bytes();
    let dims = [2, 6, 4, 6];
    let (contiguous, channels_last) = (dense(dtype, &dims), last(dtype, &dims));
    let affine = |x: TensorDesc| Form::affine(x, F::groups(x.dims()[1]), dtype);
    let mut forms = Vec::new();
    let mut add = |form: Form, core: bool| forms.push((form, core));
    // Some channels of more, some samples of more, in x, in y and in both, in steps that keep and that break the vector width.
    for (step, core) in [(24 * 10, true), (24 * 9 + 1, false)] {
        let slice = strided(dtype, &dims, &[step, 24, 6, 1]);
        add(affine(slice), core);
        add(Form { layouts: vec![("y", slice)], ..affine(contiguous) }, false);
        add(Form { layouts: vec![("y", contiguous)], ..affine(slice) }, false);
    }
    for (pixel, core) in [(8, true), (7, false)] {
        let slice = strided(dtype, &dims, &[24 * pixel + 40, 1, 6 * pixel, pixel]);
        add(affine(slice), core);
        add(Form { layouts: vec![("y", slice)], ..affine(channels_last) }, false);
        add(Form { layouts: vec![("y", channels_last)], ..affine(slice) }, false);
    }
    // Channels further apart than they are long.
    add(affine(strided(dtype, &dims, &[6 * 32, 32, 6, 1])), false);
    // One sample read by all.
    add(affine(strided(dtype, &dims, &[0, 24, 6, 1])), false);
    // Lower promises.
    for align in [element, 4.max(element)] {
        let low = |desc: TensorDesc| desc.align(align).expect("an alignment the type has");
        add(affine(low(contiguous)), align == element);
        add(affine(low(channels_last)), false);
        let parameters = vec![("weight", low(dense(dtype, &[6]))), ("bias", low(dense(dtype, &[6])))];
        add(Form { layouts: parameters, ..affine(contiguous) }, false);
    }
    if F::HAS_RESIDUAL {
        let residual = |x: TensorDesc| Form { residual: true, ..affine(x) }.act(Activation::Relu);
        let slice = strided(dtype, &dims, &[24 * 10, 24, 6, 1]);
        add(Form { layouts: vec![("residual", slice), ("y", contiguous)], ..residual(contiguous) }, false);
        add(residual(channels_last), true);
        add(Form { layouts: vec![("residual", contiguous)], ..residual(channels_last) }, false);
    }
    // For the CPU: both orders at once, spatial extents that do not collapse, parameters with gaps.
    add(Form { layouts: vec![("y", channels_last)], ..affine(contiguous) }, true);
    add(affine(strided(dtype, &dims, &[144, 24, 1, 4])), false);
    add(affine(strided(dtype, &dims, &[6 * 48, 48, 12, 2])), false);
    add(Form { layouts: vec![("weight", strided(dtype, &[6], &[2]))], ..affine(contiguous) }, false);
    forms
}

/// Shapes for hard data: one group for a block, and more than fits one.
fn hard<F: Family>(dtype: DType) -> Vec<TensorDesc> {
    vec![
        dense(dtype, &[3, 4, 9, 11]),
        last(dtype, &[3, 4, 9, 11]),
        dense(dtype, &[2, 4, 2001]),
        last(dtype, &[2, 4, 2001]),
    ]
}

/// Shapes for structured data: long sums over a group, over positions and over samples.
fn long(dtype: DType) -> [TensorDesc; 4] {
    [
        dense(dtype, &[2, 4, 8000]),
        last(dtype, &[2, 4, 48, 44]),
        last(dtype, &[512, 4, 3]),
        dense(dtype, &[1, 2, 40, 128]),
    ]
}

fn forward_cases<F: Family>() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |form: Form, data: Data, core: bool| {
        let descriptor = F::forward(&form).expect("the case lists hold valid descriptors");
        cases.push(Case::new(descriptor, data).core(core));
    };
    for dtype in FLOATS {
        for x in [dense(dtype, &[3, 6, 5, 7]), last(dtype, &[3, 6, 5, 7])] {
            for (form, core) in options::<F>(x) {
                add(form, Data::Normal, core && dtype != DType::F16);
            }
            // The greatest magnitudes, a channel or more of each kind; infinities that an activation bounds.
            let affine = Form::affine(x, F::groups(6), dtype);
            add(affine.clone(), Data::Huge, true);
            if F::HAS_RUNNING {
                let inference = affine.running(Running::Inference);
                add(inference.clone(), Data::Huge, true);
                for (activation, data) in [(Activation::Sigmoid, Data::Inf), (Activation::Tanh, Data::NegInf)] {
                    add(inference.clone().act(activation), data, false);
                }
            }
        }
        for (dims, groups, core) in F::SHAPES.iter().filter(|s| is_kept(dtype, s.0, s.2)) {
            for x in [dense(dtype, dims), last(dtype, dims)] {
                let affine = Form::affine(x, *groups, dtype);
                add(affine.clone(), Data::Normal, *core && dtype != DType::F16);
                if matches!(dtype, DType::F32 | DType::BF16) {
                    let form = Form { weight: Some(DType::F32), bias: Some(DType::F32), ..affine };
                    let form = form.act(Activation::Silu);
                    let running = if F::HAS_RUNNING { Running::Momentum(0.1) } else { Running::None };
                    add(form.running(running), Data::Normal, false);
                }
            }
        }
        if F::HAS_RUNNING && !F::HAS_RESIDUAL && dtype == DType::BF16 {
            let form = Form::affine(dense(dtype, &MANY_SMALL_GROUPS), 0, DType::F32);
            add(form.running(Running::Momentum(0.1)), Data::Normal, true);
        }
        // Channels last with statistics that the blocks of a cluster do not make: for the cooperative kernels.
        for dims in [[4, 64, 16, 16], [2, 24, 9, 13], [1, 8, 1, 37], [3, 256, 3, 3]] {
            let affine = Form::affine(last(dtype, &dims), F::groups(dims[1]), DType::F32);
            if F::HAS_RESIDUAL {
                let cumulative = affine.running(Running::Cumulative);
                add(cumulative.clone(), Data::Normal, false);
                add(Form { residual: true, ..cumulative }.act(Activation::Silu), Data::Normal, false);
            } else if F::HAS_RUNNING {
                add(affine.running(Running::Momentum(0.1)), Data::Normal, false);
            }
        }
        if dtype.size_bytes() == 2 {
            // Parameters of as many bytes as one load of four 16-bit elements takes.
            add(Form::affine(last(dtype, &FOUR_CHANNELS), 1, dtype), Data::Normal, true);
        }
        if dtype != DType::F64 {
            for data in [Data::LargeMean, Data::Step] {
                add(Form::affine(dense(dtype, &IN_REGISTERS), F::groups(IN_REGISTERS[1]), DType::F32), data, false);
            }
        }
        if dtype.size_bytes() == 2 && !F::HAS_RUNNING {
            for dims in [MANY_PAIRS, LONG_PAIRS] {
                let form = Form::affine(dense(dtype, &dims), 1, DType::F32);
                add(form.clone(), Data::LargeMean, false);
                add(form.act(Activation::Silu), Data::Normal, false);
            }
        }
        if dtype == DType::F32 {
            for data in [Data::LargeMean, Data::Step] {
                add(
                    Form::affine(dense(dtype, &PARTLY_IN_REGISTERS), F::groups(PARTLY_IN_REGISTERS[1]), DType::F32),
                    data,
                    false,
                );
            }
        }
        if dtype == DType::F32 {
            add(
                Form::affine(dense(dtype, &HELD_SEGMENTS), F::groups(HELD_SEGMENTS[1]), DType::F32),
                Data::LargeMean,
                false,
            );
            for dims in [SLAB_READ_AGAIN, SAMPLE_SLABS] {
                add(Form::affine(last(dtype, &dims), F::groups(dims[1]), DType::F32), Data::Normal, false);
            }
        }
        if dtype != DType::F64 {
            for (dims, all) in [
                (SMALL_SAMPLE_SLABS, &[Data::Normal, Data::LargeMean, Data::Step][..]),
                (SMALL_SAMPLES, &[Data::Normal, Data::LargeMean]),
            ] {
                let form = Form::affine(last(dtype, &dims), F::groups(dims[1]), DType::F32);
                for &data in all {
                    add(form.clone(), data, false);
                }
            }
        }
        for (form, core) in layouts::<F>(dtype) {
            add(form, Data::Normal, core && dtype != DType::F64);
        }
        if F::HAS_RESIDUAL {
            let form = Form { residual: true, ..Form::affine(dense(dtype, &ODD_EXTENTS), 0, DType::F32) };
            add(form.clone(), Data::Normal, false);
            add(form.clone().running(Running::Inference), Data::Normal, false);
            add(form.act(Activation::Relu).running(Running::Momentum(0.1)), Data::Normal, dtype == DType::BF16);
            if dtype == DType::BF16 {
                add(Form::affine(dense(dtype, &MANY_SEGMENTS), 0, DType::F32), Data::Normal, false);
            }
            if dtype != DType::F64 {
                // Clusters, and teams of any blocks.
                let x = dense(dtype, &RESIDUAL_CHANNELS);
                let form = Form { residual: true, ..Form::affine(x, 0, DType::F32) };
                add(form.clone(), Data::LargeMean, false);
                add(form.act(Activation::Relu).running(Running::Momentum(0.1)), Data::Normal, false);
                let x = dense(dtype, if dtype == DType::F32 { &MANY_ROUNDS } else { &OVERFLOWING_GROUPS });
                let form = Form { residual: true, ..Form::affine(x, 0, DType::F32) };
                add(form.act(Activation::Relu), Data::Normal, false);
            }
        }
        for (i, (x, data)) in long(dtype).into_iter().zip(Data::STRUCTURED).enumerate() {
            let form = Form::affine(x, F::groups(x.dims()[1]), DType::F32);
            add(if i % 2 == 0 { form } else { form.act(Activation::Relu) }, data, false);
        }
        for data in Data::ALL.into_iter().filter(|d| *d != Data::Normal) {
            if F::HAS_RESIDUAL {
                let x = last(dtype, &[3, 8, 9, 11]);
                add(Form::affine(x, 0, DType::F32).running(Running::Cumulative), data, false);
            }
            for x in hard::<F>(dtype) {
                let form = Form::affine(x, F::groups(x.dims()[1]), DType::F32);
                add(form.clone(), data, false);
                if x.rank() == 4 {
                    // Beside an outlier nearly everything lies on one side of 0.
                    let act = match data {
                        Data::Tiny => Activation::Tanh,
                        Data::Outlier => Activation::Silu,
                        _ => Activation::Relu,
                    };
                    add(form.clone().act(act), data, false);
                    if F::HAS_RUNNING {
                        add(form.clone().running(Running::Momentum(0.1)), data, false);
                        add(form.clone().running(Running::Inference), data, false);
                    }
                    if F::HAS_RESIDUAL {
                        add(Form { residual: true, ..form }.act(Activation::Relu), data, false);
                    }
                }
            }
        }
        if dtype != DType::F16 {
            // Tiles of several channels that a cluster holds.
            add(Form::affine(last(dtype, &[2, 64, 1000]), F::groups(64), DType::F32), Data::Step, false);
            for data in [Data::Constant, Data::LargeMean, Data::Outlier, Data::Step] {
                add(Form::affine(dense(dtype, &[1, 2, 70_000]), F::groups(2), DType::F32), data, false);
                // More than a cluster holds at once.
                if dtype != DType::F64 {
                    add(Form::affine(dense(dtype, &[1, 2, 500_000]), F::groups(2), DType::F32), data, false);
                }
            }
        }
        // Long segments, and enough of their parts to fill a large device.
        if dtype == DType::F32 {
            let form = Form::affine(dense(dtype, &[1, 2, 4_400_000]), F::groups(2), DType::F32);
            for data in [Data::LargeMean, Data::Step] {
                add(form.clone(), data, false);
            }
            add(form.act(Activation::GeluTanh), Data::LargeMean, false);
            let form = Form::affine(dense(dtype, &LARGE_GROUPS), F::groups(LARGE_GROUPS[1]), DType::F32);
            for data in [Data::Normal, Data::Step] {
                add(form.clone().act(Activation::Silu), data, false);
            }
            add(if F::HAS_RUNNING { form.running(Running::Momentum(0.1)) } else { form }, Data::LargeMean, false);
            let x = dense(dtype, &MANY_ROUNDS);
            add(Form::affine(x, F::groups(MANY_ROUNDS[1]), DType::F32), Data::LargeMean, false);
            let form = Form::affine(dense(dtype, &OVERFLOWING_GROUPS), F::groups(OVERFLOWING_GROUPS[1]), DType::F32);
            add(form.clone(), Data::Step, false);
            add(form.act(Activation::Silu), Data::LargeMean, false);
        }
        if dtype == DType::BF16 {
            let x = dense(dtype, &MANY_ROUNDS);
            add(Form::affine(x, F::groups(6), DType::F32).act(Activation::Silu), Data::Normal, false);
        }
    }
    // Statistics of one element: allowed where they come from elsewhere.
    if F::HAS_RUNNING {
        for dims in [&[1, 5][..], &[4, 5, 1, 1], &[0, 3, 2]] {
            add(Form::affine(dense(DType::F32, dims), 0, DType::F32).running(Running::Inference), Data::Normal, false);
        }
    }
    cases.extend(wgpu::forward_cases::<F>());
    cases.extend(pinned::<F>(Pass::Forward, |form| F::forward(&form)));
    distinct(cases)
}

fn backward_cases<F: Family>() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |form: GradientForm, data: Data, core: bool| {
        let descriptor = F::backward(&form).expect("the case lists hold valid descriptors");
        cases.push(Case::new(descriptor, data).core(core));
    };
    for dtype in FLOATS {
        for x in [dense(dtype, &[3, 6, 5, 7]), last(dtype, &[3, 6, 5, 7])] {
            for (form, core) in options::<F>(x) {
                let core = core && dtype != DType::F16;
                add(GradientForm::all(form.clone()), Data::Normal, core);
                if form.residual && form.activation == Activation::Relu {
                    add(GradientForm { from_y: true, ..GradientForm::all(form.clone()) }, Data::Normal, core);
                }
            }
            let affine = Form::affine(x, F::groups(6), dtype);
            add(GradientForm::all(affine.clone()), Data::Huge, true);
            let activations = match (dtype, x.is_contiguous()) {
                (DType::F32, true) | (DType::BF16, false) => {
                    &[Activation::Identity, Activation::Silu, Activation::Relu][..]
                }
                _ => &[],
            };
            for &activation in activations {
                for subset in 1..16 {
                    let [dx, dweight, dbias, dresidual] = std::array::from_fn(|bit| subset >> bit & 1 == 1);
                    let residual = F::HAS_RESIDUAL && activation != Activation::Silu;
                    let has_place = dresidual || !dx || activation == Activation::Identity;
                    if (dresidual && !residual) || (residual && !has_place) {
                        continue;
                    }
                    let wanted = [("x", dx), ("residual", dresidual), ("weight", dweight), ("bias", dbias)].into_iter();
                    let wanted: Vec<_> = wanted.filter_map(|(input, is_wanted)| is_wanted.then_some(input)).collect();
                    let form = Form { residual, ..affine.clone() }.act(activation);
                    let plain = GradientForm { wanted: wanted.clone(), ..GradientForm::all(form.clone()) };
                    add(plain, Data::Normal, false);
                    if residual && activation == Activation::Relu {
                        let from_y = GradientForm { wanted, from_y: true, ..GradientForm::all(form) };
                        add(from_y, Data::Normal, false);
                    }
                }
            }
        }
        // Read as vectors or one by one, as addresses have it.
        if matches!(dtype, DType::F32 | DType::BF16) {
            for activation in [Activation::Silu, Activation::Sigmoid] {
                let form = Form::affine(dense(dtype, &VECTORS), F::groups(VECTORS[1]), dtype);
                add(GradientForm::all(form.act(activation)), Data::Normal, true);
            }
            for activation in [Activation::GeluErf, Activation::Tanh] {
                let form = Form::affine(last(dtype, &VECTORS), F::groups(VECTORS[1]), dtype);
                add(GradientForm::all(form.act(activation)), Data::Normal, dtype == DType::F32);
            }
        }
        for (dims, groups, core) in F::SHAPES.iter().filter(|s| is_kept(dtype, s.0, s.2)) {
            for x in [dense(dtype, dims), last(dtype, dims)] {
                let affine = Form::affine(x, *groups, dtype);
                add(GradientForm::all(affine.clone()), Data::Normal, *core && dtype != DType::F16);
                if matches!(dtype, DType::F32 | DType::BF16) {
                    let form = Form { weight: Some(DType::F32), bias: Some(DType::F32), ..affine };
                    add(GradientForm::all(form.clone().act(Activation::Silu)), Data::Normal, false);
                    let input = GradientForm { wanted: vec!["x", "residual"], ..GradientForm::all(form) };
                    add(input, Data::Normal, false);
                }
            }
        }
        if F::HAS_RESIDUAL {
            let form = Form { residual: true, ..Form::affine(dense(dtype, &ODD_EXTENTS), 0, DType::F32) };
            add(GradientForm::all(form.clone()), Data::Normal, false);
            let relu = GradientForm::all(form.act(Activation::Relu));
            let wanted = vec!["residual", "weight", "bias"];
            add(GradientForm { wanted, ..relu.clone() }, Data::Normal, false);
            add(GradientForm { from_y: true, ..relu.clone() }, Data::Normal, false);
            add(relu, Data::Normal, dtype == DType::BF16);
            if dtype != DType::F64 {
                // Clusters whose blocks hold a channel, and many blocks, whose registers hold its first steps.
                for dims in [RESIDUAL_CHANNELS, FEW_CHANNELS, MANY_ROUNDS] {
                    let form = Form { residual: true, ..Form::affine(dense(dtype, &dims), 0, DType::F32) };
                    let relu = GradientForm::all(form.act(Activation::Relu));
                    add(GradientForm { from_y: true, ..relu.clone() }, Data::Normal, false);
                    add(relu, Data::Normal, false);
                }
            }
            if dtype.size_bytes() == 2 {
                let form = Form::affine(dense(dtype, &SHARED_CHANNELS), 0, DType::F32);
                add(GradientForm::all(form.clone()), Data::LargeMean, false);
                add(GradientForm::all(form.act(Activation::Relu)), Data::Normal, false);
            }
            if dtype == DType::F32 {
                let form = Form::affine(dense(dtype, &CLUSTERED_CHANNELS), 0, DType::F32);
                add(GradientForm::all(form), Data::Normal, false);
            }
        }
        if dtype == DType::F32 {
            let x = dense(dtype, &MANY_ROUNDS);
            let form = Form::affine(x, F::groups(MANY_ROUNDS[1]), DType::F32);
            add(GradientForm::all(form), Data::Normal, false);
            let form = Form::affine(dense(dtype, &SEVENTHS), F::groups(SEVENTHS[1]), DType::F32);
            add(GradientForm::all(form), Data::Normal, false);
            let form = Form::affine(last(dtype, &SLABS), F::groups(SLABS[1]), DType::F32);
            add(GradientForm::all(form), Data::Normal, false);
        }
        if dtype == DType::BF16 {
            let form = Form::affine(dense(dtype, &MANY_ROUNDS), F::groups(6), DType::F32);
            add(GradientForm::all(form.act(Activation::Silu)), Data::Normal, false);
            let form = Form::affine(dense(dtype, &MANY_PARTS), F::groups(1), DType::F32);
            add(GradientForm::all(form), Data::Normal, false);
        }
        if dtype.size_bytes() == 2 {
            let form = Form::affine(dense(dtype, &MANY_PAIRS), F::groups(MANY_PAIRS[1]), DType::F32);
            add(GradientForm::all(form.clone()), Data::Normal, false);
            add(GradientForm::all(form.act(Activation::Silu)), Data::Normal, false);
        }
        if dtype != DType::F64 {
            let form = Form::affine(dense(dtype, &IN_REGISTERS), F::groups(IN_REGISTERS[1]), DType::F32);
            for activation in [Activation::Identity, Activation::Relu, Activation::Silu] {
                add(GradientForm::all(form.clone().act(activation)), Data::LargeMean, false);
            }
            // One slab, on chip.
            let form = Form::affine(last(dtype, &[3, 64, 61, 47]), F::groups(64), DType::F32);
            add(GradientForm::all(form.clone()), Data::Normal, false);
            add(GradientForm { wanted: vec!["x", "residual"], ..GradientForm::all(form) }, Data::LargeMean, false);
        }
        for (form, core) in layouts::<F>(dtype) {
            let of = |name: &str| form.layouts.iter().find(|l| l.0 == name).map(|l| l.1);
            // dx lies as x does, dresidual as the residual.
            let mut layouts = vec![("dx", form.x)];
            layouts.extend(of("residual").map(|desc| ("dresidual", desc)));
            layouts.retain(|l| l.1.is_injective());
            add(GradientForm { layouts, ..GradientForm::all(form.clone()) }, Data::Normal, core && dtype != DType::F64);
        }
        for (x, data) in long(dtype).into_iter().zip(Data::STRUCTURED) {
            let form = Form::affine(x, F::groups(x.dims()[1]), DType::F32);
            add(GradientForm::all(form), data, false);
        }
        for data in Data::ALL.into_iter().filter(|d| *d != Data::Normal) {
            for x in hard::<F>(dtype) {
                let form = Form::affine(x, F::groups(x.dims()[1]), DType::F32);
                add(GradientForm::all(form.clone()), data, false);
                if x.rank() == 4 {
                    add(GradientForm::all(form.clone().act(Activation::Relu)), data, false);
                    if F::HAS_RUNNING {
                        let inference = form.clone().running(Running::Inference);
                        add(GradientForm::all(inference.clone()), data, false);
                        if matches!(data, Data::Inf | Data::NegInf) {
                            for activation in ACTIVATIONS {
                                add(GradientForm::all(inference.clone().act(activation)), data, false);
                            }
                        }
                    }
                    if F::HAS_RESIDUAL {
                        let form = Form { residual: true, ..form }.act(Activation::Relu);
                        add(GradientForm { from_y: true, ..GradientForm::all(form.clone()) }, data, false);
                        add(GradientForm::all(form), data, false);
                    }
                }
            }
        }
    }
    if F::HAS_RUNNING {
        for dims in [&[1, 5][..], &[4, 5, 1, 1], &[0, 3, 2]] {
            let form = Form::affine(dense(DType::F32, dims), 0, DType::F32).running(Running::Inference);
            add(GradientForm::all(form.clone()), Data::Normal, false);
            add(GradientForm::all(form.act(Activation::Silu)), Data::Normal, false);
        }
    }
    cases.extend(wgpu::backward_cases::<F>());
    cases.extend(pinned::<F>(Pass::Backward, |form| F::backward(&GradientForm::all(form))));
    distinct(cases)
}

/// What the harness reads back from a descriptor.
struct Fields {
    json: Value,
    batch: usize,
    channels: usize,
    spatial: usize,
    /// Groups of a sample; 0 where a channel of all samples shares statistics.
    groups: usize,
    eps: f64,
    activation: Activation,
    is_inference: bool,
}

impl Fields {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json = json_of(descriptor)?;
        let dims: Vec<usize> = descriptor.slots()[0].desc.dims().iter().map(|d| *d as usize).collect();
        let is_inference = json["inference"].as_bool().unwrap_or(false);
        let groups = match descriptor.name().trim_end_matches("_backward") {
            "group_norm" => json["groups"].as_u64().context("groups")? as usize,
            "instance_norm" if !is_inference => dims[1],
            _ => 0,
        };
        let activation = match &json["activation"] {
            Value::Null => Activation::Identity,
            name => serde_json::from_value(name.clone())?,
        };
        Ok(Self {
            batch: dims[0],
            channels: dims[1],
            spatial: dims[2..].iter().product(),
            groups,
            eps: json["eps"].as_f64().unwrap_or(1e-5),
            activation,
            is_inference,
            json,
        })
    }

    /// Elements of a tensor.
    fn elements(&self) -> usize {
        self.batch * self.channels * self.spatial
    }

    fn channel(&self, i: usize) -> usize {
        i / self.spatial % self.channels
    }

    /// Index of the statistics of an element.
    fn group(&self, i: usize) -> usize {
        match self.groups {
            0 => self.channel(i),
            groups => {
                let sample = i / self.spatial / self.channels;
                sample * groups + self.channel(i) / (self.channels / groups)
            }
        }
    }

    fn group_count(&self) -> usize {
        if self.groups == 0 { self.channels } else { self.batch * self.groups }
    }

    /// Elements of a group.
    fn group_elements(&self) -> usize {
        match self.groups {
            0 => self.batch * self.spatial,
            groups => self.channels / groups * self.spatial,
        }
    }

    /// The JSON of the same op, forward or backward, over dense f64 operands.
    fn in_f64(&self) -> Result<Value> {
        let mut json = self.json.clone();
        json["x"] = serde_json::json!({"dtype": "f64", "dims": self.json["x"]["dims"]});
        let object = json.as_object_mut().context("the JSON of a descriptor is an object")?;
        object.remove("layouts");
        for name in ["weight", "bias"] {
            if object.contains_key(name) {
                object.insert(name.into(), "f64".into());
            }
        }
        Ok(json)
    }

    /// The JSON of the plain forward that the statistics of a backward come from.
    fn forward_json(&self) -> Value {
        let mut json = serde_json::json!({
            "x": {"dtype": "f64", "dims": self.json["x"]["dims"]}, "eps": 1e-5, "stats": true,
        });
        if let Some(groups) = self.json.get("groups") {
            json["groups"] = groups.clone();
        }
        json
    }
}

fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    // Groups of one or two elements have only a few values; the gradients of nothing are zeros; ReLU may cut most of a few channels.
    Fields::of(descriptor).is_ok_and(|f| {
        f.group_elements() <= 2 || f.elements() == 0 || (f.activation == Activation::Relu && f.channels < 4)
    })
}

/// GPUs take tensors whose spatial extents are one, all contiguous or all channels last, and dense parameters.
fn is_cpu_only(descriptor: &AnyDescriptor) -> bool {
    let Ok(fields) = Fields::of(descriptor) else { return false };
    let (mut has_segments, mut has_rows) = (true, true);
    let rank = descriptor.slots()[0].desc.rank();
    let is_tensor = |slot: &Slot| ["x", "y", "residual", "dy", "dx", "dresidual"].contains(&slot.name);
    for slot in descriptor.slots() {
        let (dims, strides) = (slot.desc.dims(), slot.desc.strides());
        if !is_tensor(slot) {
            if !slot.desc.is_contiguous() {
                return true;
            }
            continue;
        }
        let axes: Vec<usize> = (2..rank).filter(|axis| dims[*axis] != 1).collect();
        if axes.windows(2).any(|pair| strides[pair[0]] != strides[pair[1]] * dims[pair[1]]) {
            return true;
        }
        has_segments &= axes.last().is_none_or(|axis| strides[*axis] == 1);
        has_rows &= strides[1] == 1 || fields.channels <= 1;
    }
    !has_segments && !has_rows
}

fn forward_input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let fields = Fields::of(&case.descriptor)?;
    Ok(input(case.data, false, slot, &fields, random))
}

fn backward_input(case: &Case, slot: &Slot, random: &mut Random, before: &Tensors) -> Result<Vec<f64>> {
    let fields = Fields::of(&case.descriptor)?;
    // A NaN comes in through dy, and through y where that is an operand; infinities through x.
    let data = match (case.data, slot.name) {
        (Data::Nan, "dy" | "y") => Data::Nan,
        (data, "dy" | "y") if data.is_structured() => data,
        (Data::Nan, "x") | (_, "dy" | "y") => Data::Normal,
        (data, _) => data,
    };
    if !matches!(slot.name, "mean" | "rstd") {
        return Ok(input(data, true, slot, &fields, random));
    }
    let x = before.values("x").context("x comes before the statistics")?;
    let op = case.descriptor.name().trim_end_matches("_backward");
    let statistics = run_in_f64(op, &fields.forward_json(), &BTreeMap::from([("x", x)]))?;
    Ok(statistics[slot.name].clone())
}

fn input(data: Data, is_backward: bool, slot: &Slot, fields: &Fields, random: &mut Random) -> Vec<f64> {
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements());
    let huge = match fields.is_inference {
        true => Huge::of(dtype).at_most(2f64.powi(100), f64::MAX),
        false => huge_of_norm(dtype, fields.group_elements() as u64, is_backward, true),
    };
    let rows = |data: Data, random: &mut Random| {
        data.rows_within(huge, dtype, (fields.batch * fields.channels) as u64, fields.spatial as u64, random)
    };
    match slot.name {
        "x" | "dy" => rows(data, random),
        // Of ReLU.
        "y" => rows(data, random).into_iter().map(|y| if y <= 0.0 { 0.0 } else { y }).collect(),
        "weight" => (0..elements).map(|_| 1.0 + 0.5 * random.normal()).collect(),
        "running_mean" if matches!(data, Data::LargeMean | Data::Constant) => {
            (0..elements).map(|_| 1000.0 + 0.1 * random.normal()).collect()
        }
        "running_var" => (0..elements).map(|_| 0.05 + random.normal().powi(2)).collect(),
        "num_batches" => vec![(random.normal().abs() * 4.0).floor(); elements as usize],
        _ => (0..elements).map(|_| random.normal()).collect(),
    }
}

const FORWARD_CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["y"],
        budget: "u_o |y| + u_A |act'| (|weight| (16 |xhat| + 4) + 2 |bias| + 2 |residual|) + 8 u_A |y| with an activation; on wgpu 24 for \
                 16, 16 for 8; |act'| of relu is 1",
        why: "The 16 (24 where WGSL's square root and division are looser) bound a mean and a variance whose roundings all have one \
              sign; in practice they cancel.",
    },
    Contract {
        outputs: &["mean", "rstd"],
        budget: "u_o |mean| + 4 u_A / rstd; u_o rstd + 16 u_A rstd, on wgpu 24 for 16",
        why: "What the budget of y leaves its parts; their roundings cancel as those of y do.",
    },
    Contract {
        outputs: &["running_mean", "running_var"],
        budget: "u_o |running| + u_A (2 (1 - m) |before| + m (2 |mean| + 4 / rstd)); u_o |running| + u_A (2 (1 - m) |before| + m n / (n - 1) \
                 40 (var + eps)), on wgpu 56 for 40",
        why: "What the budgets of mean and rstd leave them; the roundings of the sums cancel.",
    },
    Contract { outputs: &["num_batches"], budget: "0", why: "A count." },
];

const BACKWARD_CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["dx"],
        budget: "u_o |dx| + u_A 8 rstd (|g| + mean|g| + |xhat| mean|g xhat|) + rstd (|weight| e + mean(|weight| e) + |xhat| mean(|weight xhat| e)), \
                 in inference without the means; e is the error of dpre",
        why: "The bound adds the absolute values of terms that cancel, and lets all roundings have one sign.",
    },
    Contract {
        outputs: &["dresidual"],
        budget: "u_o |dpre| + 2 u_A |dpre| + e; e = |dy| (max|act''| p + 8 u_A), p = u_A (|weight| (16 |xhat| + 4) + 2 |bias| + 2 |residual|) the \
                 error of pre; for relu e = |dy| where |pre| <= p, else 0; on wgpu 24 for 16, 16 for 8",
        why: "act'' is far below its maximum nearly everywhere.",
    },
    Contract {
        outputs: &["dweight", "dbias"],
        budget: "u_o |sum| + u_A (8 + 48/4) sum|terms| + sum(e |xhat|), for dbias sum(e)",
        why: "It allows for 48 additions one after the other, which only the longest sums have, with roundings of one sign.",
    },
];

/// The greatest value of the second derivative.
pub(super) fn curvature(activation: Activation) -> f64 {
    match activation {
        Activation::GeluErf => 0.8,
        Activation::GeluTanh => 0.81,
        Activation::Silu => 0.5,
        Activation::Sigmoid => 0.0963,
        Activation::Tanh => 0.77,
        _ => 0.0,
    }
}

/// The factor of |xhat| in what the pre-activation may be off by, and what an activation may add, in units of `u_A`.
fn factors(backend: Backend) -> (f64, f64) {
    if backend == Backend::Wgpu { (24.0, 16.0) } else { (16.0, 8.0) }
}

/// The parameters, and what an element's pre-activation may be off by, in units of `u_A`.
struct Affine<'t> {
    fields: &'t Fields,
    weight: Option<&'t [f64]>,
    bias: Option<&'t [f64]>,
    residual: Option<&'t [f64]>,
    relative: f64,
}

impl Affine<'_> {
    fn weight(&self, i: usize) -> f64 {
        self.weight.map_or(1.0, |w| w[self.fields.channel(i)])
    }

    fn bias(&self, i: usize) -> f64 {
        self.bias.map_or(0.0, |b| b[self.fields.channel(i)])
    }

    fn pre(&self, i: usize, xhat: f64) -> f64 {
        xhat * self.weight(i) + self.bias(i) + self.residual.map_or(0.0, |r| r[i])
    }

    /// What the pre-activation may be off by, in units of `u_A`; an infinite one is exact.
    fn error(&self, i: usize, xhat: f64) -> f64 {
        let residual = self.residual.map_or(0.0, |r| r[i].abs());
        finite(self.weight(i).abs() * (self.relative * xhat.abs() + 4.0) + 2.0 * self.bias(i).abs() + 2.0 * residual)
    }
}

/// Expected values and budgets of forward: docs/numerics.md, Budgets, "norm, forward": `|weight| (16 |xhat| + 4) + 2 |bias|`, 24 in place
/// of 16 for WGSL, through the activation. The statistics are given what this leaves them: rstd the relative error of xhat, mean the 4 in
/// units of 1 / rstd; the running ones what these leave them.
fn expect_forward(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, by: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let x = inputs.get("x").context("no x")?;
    let (dtype, accumulator) = (x.dtype, x.dtype.accumulator());
    let mut json = fields.in_f64()?;
    if !fields.is_inference {
        json["stats"] = true.into();
    }
    let operands = inputs.0.iter().map(|t| (t.name.as_str(), t.values.as_slice())).collect();
    let mut reference = run_in_f64(descriptor.name(), &json, &operands)?;
    let (mean, rstd) = match (inputs.values("running_mean"), inputs.values("running_var")) {
        (Some(mean), Some(var)) if fields.is_inference => {
            (mean.to_vec(), var.iter().map(|v| 1.0 / (v + fields.eps).sqrt()).collect::<Vec<f64>>())
        }
        _ => (reference["mean"].clone(), reference["rstd"].clone()),
    };
    let (relative, own) = factors(by.backend);
    let affine = Affine {
        fields: &fields,
        weight: inputs.values("weight"),
        bias: inputs.values("bias"),
        residual: inputs.values("residual"),
        relative,
    };

    let mut expected = Vec::new();
    let y = reference.remove("y").context("no y")?;
    let budgets = y.iter().enumerate().map(|(i, &y)| {
        let group = fields.group(i);
        let xhat = (x.values[i] - mean[group]) * rstd[group];
        let error = affine.error(i, xhat);
        let error = match fields.activation {
            Activation::Identity | Activation::Relu => error,
            activation => activation.gradient(affine.pre(i, xhat), 1.0).abs() * error + own * y.abs(),
        };
        budget(dtype, accumulator, y, error)
    });
    expected.push(Expected { name: "y".into(), budgets: budgets.collect(), values: y });
    // Groups of nothing have a mean of 0 and no rstd.
    let left = |rstd: f64| finite(4.0 / rstd);
    if !fields.is_inference {
        let budgets = mean.iter().zip(&rstd).map(|(&m, &r)| budget(accumulator, accumulator, m, left(r))).collect();
        expected.push(Expected { name: "mean".into(), values: mean.clone(), budgets });
        let budgets = rstd.iter().map(|&r| budget(accumulator, accumulator, r, relative * r)).collect();
        expected.push(Expected { name: "rstd".into(), values: rstd.clone(), budgets });
    }
    let momentum = match inputs.values("num_batches") {
        Some(batches) => 1.0 / (batches[0] + 1.0),
        None => fields.json["momentum"].as_f64().unwrap_or(0.0),
    };
    // Of the statistics that enter one running number, the largest of what the formula makes of each.
    let largest = |c: usize, of: &dyn Fn(f64, f64) -> f64| {
        let groups = (c..fields.group_count()).step_by(fields.channels.max(1));
        groups.map(|group| of(mean[group], rstd[group])).fold(0.0, f64::max)
    };
    let n = fields.group_elements() as f64;
    let unbiased = n / (n - 1.0);
    for (name, values) in reference {
        let before = match (name.as_str(), inputs.values(&name)) {
            ("running_mean" | "running_var" | "num_batches", Some(before)) => before,
            _ => continue,
        };
        let budgets = values.iter().enumerate().map(|(c, &value)| {
            let kept = 2.0 * (1.0 - momentum) * before[c].abs();
            match name.as_str() {
                "num_batches" => f64::MIN_POSITIVE,
                "running_mean" => {
                    let added = largest(c, &|mean, rstd| 2.0 * mean.abs() + left(rstd));
                    budget(accumulator, accumulator, value, kept + momentum * added)
                }
                _ => {
                    let added = largest(c, &|_, rstd| (8.0 + 2.0 * relative) * unbiased / (rstd * rstd));
                    budget(accumulator, accumulator, value, kept + momentum * added)
                }
            }
        });
        expected.push(Expected { budgets: budgets.collect(), name, values });
    }
    Ok(expected)
}

/// Expected values and budgets of backward, given the saved statistics: docs/numerics.md, Budgets, "norm, dx":
/// `8 rstd (|g| + mean|g| + |xhat| mean|g xhat|)`, and "dweight, dbias": `(8 + L/4) sum|terms|`; to each comes what the error of the
/// pre-activation makes of it.
fn expect_backward(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, by: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let of = |name: &'static str| inputs.values(name).with_context(|| format!("no {name}"));
    let (dy, x) = (of("dy")?, of("x")?);
    let dtype = inputs.get("x").context("no x")?.dtype;
    let accumulator = dtype.accumulator();
    let unit = accumulator.unit_roundoff();
    let operands = inputs.0.iter().map(|t| (t.name.as_str(), t.values.as_slice())).collect();
    let reference = run_in_f64(descriptor.name(), &fields.in_f64()?, &operands)?;

    let (mean, rstd) = match fields.is_inference {
        true => {
            let rstd = of("running_var")?.iter().map(|v| 1.0 / (v + fields.eps).sqrt()).collect();
            (of("running_mean")?, rstd)
        }
        false => (of("mean")?, of("rstd")?.to_vec()),
    };
    let (relative, own) = factors(by.backend);
    let affine = Affine {
        fields: &fields,
        weight: inputs.values("weight"),
        bias: inputs.values("bias"),
        residual: inputs.values("residual"),
        relative,
    };
    let elements = fields.elements();
    let xhat: Vec<f64> = (0..elements).map(|i| (x[i] - mean[fields.group(i)]) * rstd[fields.group(i)]).collect();
    let y = inputs.values("y");
    // Of each element, dpre and what it may be off by, in units of u_A.
    let (dpre, error): (Vec<f64>, Vec<f64>) = (0..elements)
        .map(|i| {
            let pre = y.map_or_else(|| affine.pre(i, xhat[i]), |y| y[i]);
            let off = affine.error(i, xhat[i]);
            let error = match fields.activation {
                Activation::Identity => 0.0,
                Activation::Relu if y.is_none() && pre.is_finite() && pre.abs() <= unit * off => dy[i].abs() / unit,
                Activation::Relu => 0.0,
                activation => dy[i].abs() * (curvature(activation) * off + own),
            };
            (fields.activation.gradient(pre, dy[i]), error)
        })
        .unzip();

    // Sums over each group of |g|, |g xhat|, |weight| e, |weight xhat| e.
    let mut sums = vec![[0.0; 4]; fields.group_count()];
    for i in 0..elements {
        let (g, e) = ((dpre[i] * affine.weight(i)).abs(), affine.weight(i).abs() * error[i]);
        for (sum, term) in sums[fields.group(i)].iter_mut().zip([g, g * xhat[i].abs(), e, e * xhat[i].abs()]) {
            *sum += term;
        }
    }
    let n = fields.group_elements() as f64;
    let mut expected = Vec::new();
    for (name, values) in reference {
        let output = outputs.get(&name).map_or(dtype, |t| t.dtype);
        let budgets = match name.as_str() {
            "dx" => (0..elements)
                .map(|i| {
                    let group = fields.group(i);
                    let [g, gx, e, ex] = sums[group].map(|sum| sum / n);
                    let (mut own, mut through) =
                        ((dpre[i] * affine.weight(i)).abs(), affine.weight(i).abs() * error[i]);
                    if !fields.is_inference {
                        own += g + xhat[i].abs() * gx;
                        through += e + xhat[i].abs() * ex;
                    }
                    budget(output, accumulator, values[i], rstd[group] * (8.0 * own + through))
                })
                .collect(),
            "dresidual" => {
                (0..elements).map(|i| budget(output, accumulator, values[i], 2.0 * dpre[i].abs() + error[i])).collect()
            }
            _ => {
                let mut terms = vec![0.0; fields.channels];
                for i in 0..elements {
                    let factor = if name == "dweight" { xhat[i].abs() } else { 1.0 };
                    terms[fields.channel(i)] += factor * ((8.0 + CHAIN / 4.0) * dpre[i].abs() + error[i]);
                }
                values.iter().zip(&terms).map(|(value, terms)| budget(output, accumulator, *value, *terms)).collect()
            }
        };
        expected.push(Expected { name, values, budgets });
    }
    Ok(expected)
}

/// Rows of the support table of forward.
fn forward_features<F: Family>() -> Vec<(String, AnyDescriptor)> {
    features(feature_forms::<F>, F::forward)
}

/// Rows of the support table of backward.
fn backward_features<F: Family>() -> Vec<(String, AnyDescriptor)> {
    let mut features = Vec::new();
    for dtype in FLOATS {
        let mut add = |what: &str, form: GradientForm| {
            if let Ok(descriptor) = F::backward(&form) {
                features.push((format!("{dtype}: {what}"), descriptor));
            }
        };
        for (what, form) in feature_forms::<F>(dtype) {
            if !what.starts_with("running") && !what.starts_with("cumulative") {
                add(&what, GradientForm::all(form));
            }
        }
        let x = dense(dtype, &[8, 64, 14, 14]);
        let affine = Form::affine(x, F::groups(64), dtype);
        add(
            "parameter gradients alone",
            GradientForm { wanted: vec!["weight", "bias"], ..GradientForm::all(affine.clone()) },
        );
        if F::HAS_RESIDUAL {
            let residual = Form { residual: true, ..affine }.act(Activation::Relu);
            add("residual, relu, from y", GradientForm { from_y: true, ..GradientForm::all(residual) });
        }
    }
    features
}

fn feature_forms<F: Family>(dtype: DType) -> Vec<(String, Form)> {
    let x = dense(dtype, &[8, 64, 14, 14]);
    let affine = |x: TensorDesc, dtype| Form::affine(x, F::groups(x.dims()[1]), dtype);
    let mut forms = vec![
        ("no parameters".into(), Form::plain(x, F::groups(64))),
        ("parameters of x's type".into(), affine(x, dtype)),
        ("parameters in f32".into(), affine(x, DType::F32)),
    ];
    for activation in ACTIVATIONS {
        let name = serde_json::to_value(activation).unwrap_or_default();
        forms.push((name.as_str().unwrap_or_default().to_string(), affine(x, dtype).act(activation)));
    }
    if F::HAS_RUNNING {
        forms.push(("running statistics".into(), affine(x, dtype).running(Running::Momentum(0.1))));
        forms.push(("inference".into(), affine(x, dtype).running(Running::Inference)));
    }
    if F::HAS_RESIDUAL {
        forms.push(("cumulative statistics".into(), affine(x, dtype).running(Running::Cumulative)));
        forms.push(("residual, relu".into(), Form { residual: true, ..affine(x, dtype) }.act(Activation::Relu)));
    }
    let shapes: [(&str, TensorDesc); 7] = [
        ("channels last", last(dtype, &[8, 64, 14, 14])),
        ("samples apart", strided(dtype, &[8, 64, 14, 14], &[20_000, 196, 14, 1])),
        ("some channels of channels last", strided(dtype, &[8, 64, 14, 14], &[196 * 96, 1, 14 * 96, 96])),
        ("rank 5", dense(dtype, &[2, 8, 4, 5, 6])),
        ("two channels of 262144", dense(dtype, &[1, 2, 512, 512])),
        ("100000 samples of 8 x 4", dense(dtype, &[100_000, 8, 4])),
        ("spatial extents transposed", strided(dtype, &[8, 64, 14, 14], &[64 * 196, 196, 1, 14])),
    ];
    forms.extend(shapes.map(|(what, x)| (what.into(), affine(x, dtype))));
    forms
}
