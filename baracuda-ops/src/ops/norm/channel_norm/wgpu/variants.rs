//! Every kind of shader of the family, without a device.

use super::super::{BackwardFields, ChannelNorm, ForwardFields, Valid};
use super::{Pass, WgslForm, steps_of};
use crate::backend::wgpu::{Props, Variants};
use crate::dtype::{DType, Real};
use crate::error::Result;
use crate::kernel::Ask;
use crate::ops::activation::Activation;
use crate::ops::norm::INPUTS;
use crate::tensor::TensorDesc;

/// What a variant asks for.
#[derive(Clone, Copy, Debug)]
struct Options {
    is_pinned: bool,
    kind: ChannelNorm,
    dtype: DType,
    spatial: u64,
    is_channels_last: bool,
    parameters: Option<DType>,
    activation: Activation,
    inference: bool,
    from_y: bool,
}

pub(in crate::ops) fn add_variants(variants: &mut Variants) {
    for props in &Variants::devices() {
        for options in every_option() {
            let Ok((forward, backward)) = variant(options) else { continue };
            let name = format!("channel norm of {options:?}");
            add(variants, &name, &forward, options.is_pinned, props);
            add(variants, &name, &backward, options.is_pinned, props);
        }
    }
}

/// Adds the texts of the form that is chosen, or of every form that serves if it is pinned.
fn add<F: Pass>(variants: &mut Variants, name: &str, norm: &Valid<F>, is_pinned: bool, props: &Props) {
    let ask = if is_pinned { Ask::Pinned } else { Ask::Chosen };
    let serving = WgslForm::ALL.iter().filter_map(|form| steps_of(*form, norm, props, ask).ok());
    for steps in serving.take(if is_pinned { usize::MAX } else { 1 }) {
        variants.add_steps(name, &steps, props);
    }
}

/// Long groups, of which there are many.
const LONG: u64 = 2056;

/// A selection that has every accessor, every reduction and every flag with each type.
fn every_option() -> Vec<Options> {
    let plain = Options {
        is_pinned: false,
        kind: ChannelNorm::Batch,
        dtype: DType::F32,
        spatial: 64,
        is_channels_last: false,
        parameters: Some(DType::F32),
        activation: Activation::Identity,
        inference: false,
        from_y: false,
    };
    let mut all = Vec::new();
    for kind in [ChannelNorm::Batch, ChannelNorm::Group, ChannelNorm::Instance] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for (spatial, is_channels_last) in [
                (1024, false),
                (49, false),
                (64, true),
                (512, true),
                (8192, true),
                (8, false),
                (LONG, false),
                (100_000, false),
            ] {
                // A type changes the accessors, the size of a segment the reductions; InstanceNorm is a GroupNorm with running statistics.
                let is_first = dtype == DType::F32 && kind != ChannelNorm::Instance;
                if !is_first && ![1024, 49, LONG].contains(&spatial) && !is_channels_last {
                    continue;
                }
                let options = Options { kind, dtype, spatial, is_channels_last, ..plain };
                all.extend([
                    Options { parameters: None, ..options },
                    Options { parameters: Some(dtype), activation: Activation::Relu, from_y: true, ..options },
                    Options { activation: Activation::Silu, inference: true, ..options },
                ]);
            }
        }
    }
    all.extend(Activation::ALL.map(|activation| Options { activation, ..plain }));
    // Forms that are not chosen for such small tensors.
    for kind in [ChannelNorm::Batch, ChannelNorm::Group, ChannelNorm::Instance] {
        for (spatial, is_channels_last) in [(49, false), (64, false), (64, true)] {
            for dtype in [DType::F32, DType::BF16] {
                all.push(Options { is_pinned: true, kind, dtype, spatial, is_channels_last, ..plain });
            }
        }
    }
    all
}

/// A forward and its backward with the options.
fn variant(options: Options) -> Result<(Valid<ForwardFields>, Valid<BackwardFields>)> {
    let Options { kind, dtype, inference, .. } = options;
    let dims = [if options.spatial == LONG { 80 } else { 8 }, 32, options.spatial, 1];
    let x = if options.is_channels_last {
        TensorDesc::channels_last(dtype, &dims)?
    } else {
        TensorDesc::contiguous(dtype, &dims)?
    };
    let inference = inference && kind != ChannelNorm::Group;
    let forward = Valid::new(kind.forward(), ForwardFields::plain(x, (kind == ChannelNorm::Group).then_some(4)))?
        .with(|fields| {
            let has_all = options.parameters.is_some();
            fields.weight = options.parameters;
            fields.bias = options.parameters;
            fields.activation = options.activation;
            fields.residual = has_all && kind == ChannelNorm::Batch;
            fields.inference = inference;
            fields.stats = has_all && !inference;
            fields.cumulative = has_all && !inference && kind == ChannelNorm::Batch && dtype == DType::F16;
            let has_momentum = has_all && !inference && !fields.cumulative && kind != ChannelNorm::Group;
            fields.momentum = Real::new(0.1).filter(|_| has_momentum);
        })?;
    let backward = forward.backward(&INPUTS)?;
    let backward = if options.from_y && kind == ChannelNorm::Batch { backward.from_y()? } else { backward };
    Ok((forward, backward))
}
