//! Small tensors for each form through wgpu by its name, among them such as the form is not chosen for. Every device serves them: no workgroup
//! has more than 256 threads, no dispatch binds more than 8 buffers.

use baracuda_ops::{AnyDescriptor, DType, PlanOptions, TensorDesc};

use super::{Family, Form, GradientForm, Running, dense, last};
use crate::case::{Case, Data};

const TYPES: [DType; 2] = [DType::F32, DType::BF16];

/// Segments that are no whole chunks, whose samples are.
const GAPLESS: [u64; 4] = [5, 8, 7, 7];
/// A few groups, and more groups than persistent workgroups.
const FEW: [u64; 4] = [3, 6, 5, 7];
const MANY: [u64; 4] = [24, 140, 3, 3];
/// Segments of several slices.
const SLICES: [u64; 3] = [2, 4, 8300];
/// Channels last: groups of 16 channels, which a workgroup holds; of as many samples that gradients are not chosen to be held.
const TILES: [u64; 4] = [40, 64, 5, 7];

/// A descriptor by a form.
fn pinned(descriptor: AnyDescriptor, form: &str) -> Case {
    let kernel = format!("{}_{form}", descriptor.name());
    Case::new(descriptor, Data::Normal).core(true).with(PlanOptions::default().kernel(kernel))
}

/// What an op has forms for.
struct Forms {
    /// Groups that are channels of all samples, of which several may share chunks.
    has_channels: bool,
    /// Groups of several channels.
    has_tiles: bool,
}

impl Forms {
    fn of<F: Family>() -> Self {
        Self { has_channels: F::HAS_RESIDUAL, has_tiles: !F::HAS_RUNNING }
    }
}

pub(super) fn forward_cases<F: Family>() -> Vec<Case> {
    let Forms { has_channels, has_tiles } = Forms::of::<F>();
    let mut cases = Vec::new();
    for dtype in TYPES {
        let affine = |x: TensorDesc| Form::affine(x, 4, DType::F32);
        let mut add = |form: &str, norm: Form| {
            cases.push(pinned(F::forward(&norm).expect("the case lists hold valid descriptors"), form));
        };
        let updated = |norm: Form| if has_channels { norm.running(Running::Momentum(0.1)) } else { norm };
        for dims in [FEW, MANY] {
            let norm = Form { groups: F::groups(dims[1]), ..affine(dense(dtype, &dims)) };
            add("persistent", updated(norm));
        }
        add("resident", updated(Form { groups: 3, ..affine(dense(dtype, &FEW)) }));
        for dims in [&FEW[..], &SLICES] {
            let norm = |x: TensorDesc| Form { groups: 2, ..affine(x) };
            add("split_fused", norm(dense(dtype, dims)));
            let running = |norm: Form| if has_tiles { norm } else { norm.running(Running::Momentum(0.1)) };
            add("split_merge", running(norm(dense(dtype, dims))));
            add("channels_last_split_merge", running(norm(last(dtype, dims))));
            if !has_channels {
                add("channels_last_split_fused", norm(last(dtype, dims)));
            }
        }
        if has_channels {
            add("gapless_resident", updated(affine(dense(dtype, &GAPLESS))));
        }
        if has_tiles {
            add("channels_last_tile", affine(last(dtype, &TILES)));
        } else {
            let inference = |x: TensorDesc| affine(x).running(Running::Inference);
            add("apply", inference(dense(dtype, &FEW)));
            add("apply", inference(dense(dtype, &GAPLESS)));
            add("channels_last_apply", inference(last(dtype, &FEW)));
        }
    }
    cases
}

pub(super) fn backward_cases<F: Family>() -> Vec<Case> {
    let Forms { has_channels, has_tiles } = Forms::of::<F>();
    let mut cases = Vec::new();
    for dtype in TYPES {
        let weighted = |x: TensorDesc, groups: u64| Form { bias: None, ..Form::affine(x, groups, DType::F32) };
        let mut add = |form: &str, norm: Form| {
            let gradients = F::backward(&GradientForm::all(norm)).expect("the case lists hold valid descriptors");
            cases.push(pinned(gradients, form));
        };
        for dims in [FEW, MANY] {
            add("resident", weighted(dense(dtype, &dims), 2));
        }
        for dims in [&FEW[..], &SLICES] {
            add("split_fused", weighted(dense(dtype, dims), 2));
            add("split_merge", weighted(dense(dtype, dims), 2));
            add("channels_last_split_merge", weighted(last(dtype, dims), 2));
            if !has_channels {
                add("channels_last_split_fused", weighted(last(dtype, dims), 2));
            }
        }
        if has_channels {
            add("gapless_resident", weighted(dense(dtype, &GAPLESS), 0));
        }
        if has_tiles {
            add("channels_last_tile", weighted(last(dtype, &TILES), 4));
        }
    }
    cases
}
