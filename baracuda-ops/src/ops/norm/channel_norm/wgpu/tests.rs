//! Which form serves which tensors, and how it spreads them.

use std::collections::HashSet;

use super::super::forward::{RESIDUAL, X, Y};
use super::super::{BackwardFields, ChannelNorm, ForwardFields};
use super::*;
use crate::backend::wgpu::{OperandText, Place, Variants};
use crate::ops::activation::Activation;
use crate::ops::norm::{
    BatchNormBackwardDescriptor, BatchNormDescriptor, GroupNormBackwardDescriptor, GroupNormDescriptor, INPUTS,
    InstanceNormBackwardDescriptor, InstanceNormDescriptor,
};
use crate::plan::Descriptor;
use crate::slots::Slot;
use crate::tensor::TensorDesc;

fn plain(kind: ChannelNorm, x: TensorDesc) -> Valid<ForwardFields> {
    Valid::new(kind.forward(), ForwardFields::plain(x, (kind == ChannelNorm::Group).then_some(4))).unwrap()
}

fn dense(dims: &[u64]) -> TensorDesc {
    TensorDesc::contiguous(DType::BF16, dims).unwrap()
}

/// BatchNorm with every operand that the two have.
fn whole(is_inference: bool) -> Valid<ForwardFields> {
    plain(ChannelNorm::Batch, dense(&[8, 16, 8, 8]))
        .with(|fields| {
            (fields.weight, fields.bias, fields.residual) = (Some(DType::F32), Some(DType::F32), true);
            fields.activation = Activation::Silu;
            (fields.inference, fields.stats) = (is_inference, !is_inference);
            fields.cumulative = !is_inference;
        })
        .unwrap()
}

/// The form that is chosen, and its dispatches.
fn chosen<F: Pass>(norm: &Valid<F>, props: &Props) -> (WgslForm, Vec<StepBuilder>) {
    let serving = |form: &WgslForm| steps_of(*form, norm, props, Ask::Chosen).ok().map(|steps| (*form, steps));
    WgslForm::ALL.iter().find_map(serving).unwrap()
}

fn constant(step: &StepBuilder, name: &str) -> u32 {
    step.constants.iter().find(|known| known.0 == name).unwrap().1
}

#[test]
fn a_group_stays_on_chip_while_it_fits() {
    let launches = |kind, dims: &[u64]| chosen(&plain(kind, dense(dims)), &Variants::device(Some((32, 32)))).1.len();
    assert_eq!(launches(ChannelNorm::Group, &[32, 32, 28, 28]), 1);
    assert_eq!(launches(ChannelNorm::Group, &[2, 40, 64, 64]), 2);
    assert_eq!(launches(ChannelNorm::Group, &[12, 40, 64, 64]), 1);
    assert_eq!(launches(ChannelNorm::Group, &[40, 40, 64, 64]), 2);
    assert_eq!(launches(ChannelNorm::Group, &[80, 32, 56, 56]), 1);
    assert_eq!(launches(ChannelNorm::Group, &[32, 32, 512, 512]), 3);
    assert_eq!(launches(ChannelNorm::Batch, &[4, 64, 8, 8]), 1);
    assert_eq!(launches(ChannelNorm::Batch, &[128, 64, 56, 56]), 3);
    assert_eq!(launches(ChannelNorm::Batch, &[4, 64, 0, 8]), 0);
}

#[test]
fn gradients_stay_on_chip_where_channels_share_chunks_and_where_tensors_are_small() {
    let form = |kind, dims: &[u64], activation, props: &Props| {
        let forward = plain(kind, dense(dims)).with(|fields| fields.activation = activation).unwrap();
        chosen(&forward.backward(&INPUTS).unwrap(), props).0
    };
    let props = Variants::device(Some((32, 32)));
    let of = |kind, dims: &[u64]| form(kind, dims, Activation::Identity, &props);
    assert_eq!(of(ChannelNorm::Batch, &[64, 2048, 7, 7]), WgslForm::GaplessResident);
    assert_eq!(of(ChannelNorm::Group, &[2, 160, 16, 16]), WgslForm::Resident);
    assert_eq!(of(ChannelNorm::Group, &[2, 80, 32, 32]), WgslForm::Resident);
    assert_eq!(of(ChannelNorm::Group, &[2, 80, 64, 64]), WgslForm::SplitFused);
    assert_eq!(of(ChannelNorm::Group, &[256, 160, 16, 16]), WgslForm::SplitMerge);
    assert_eq!(form(ChannelNorm::Group, &[2, 80, 32, 32], Activation::Silu, &props), WgslForm::SplitFused);
    let narrow = Props { max_threads: 256, ..props.clone() };
    let of_narrow = form(ChannelNorm::Group, &[2, 160, 16, 16], Activation::Identity, &narrow);
    assert_ne!(of_narrow, WgslForm::Resident);
}

#[test]
fn slices_are_short_where_few_go_through_an_activation_and_long_where_many_are_summed() {
    let props = Variants::device(Some((32, 32)));
    let spread = |steps: &[StepBuilder], at: usize| (constant(&steps[at], "THREADS"), constant(&steps[at], "CHUNKS"));
    for (activation, expected) in [(Activation::Identity, (128, 4)), (Activation::Silu, (256, 2))] {
        let forward = plain(ChannelNorm::Group, dense(&[2, 40, 64, 64]));
        let forward = forward.with(|fields| fields.activation = activation).unwrap();
        let (_, backward) = chosen(&forward.backward(&INPUTS).unwrap(), &props);
        let (_, forward) = chosen(&forward, &props);
        assert_eq!((spread(&forward, 0), spread(&forward, 1)), ((128, 4), expected));
        assert_eq!((spread(&backward, 0), spread(&backward, 1)), (expected, expected));
    }
    let (_, many) = chosen(&plain(ChannelNorm::Group, dense(&[32, 256, 56, 56])), &props);
    assert_eq!((spread(&many, 0), spread(&many, 2)), ((64, 7), (128, 4)));
}

#[test]
fn channels_last_takes_fewer_dispatches_where_groups_are_small() {
    let launches = |kind, dims: &[u64]| {
        let forward = plain(kind, TensorDesc::channels_last(DType::BF16, dims).unwrap());
        let backward = forward.backward(&INPUTS).unwrap();
        let props = Variants::device(Some((32, 32)));
        (chosen(&forward, &props).1.len(), chosen(&backward, &props).1.len())
    };
    assert_eq!(launches(ChannelNorm::Group, &[2, 160, 16, 16]), (1, 1));
    assert_eq!(launches(ChannelNorm::Group, &[40, 160, 16, 16]), (1, 2));
    assert_eq!(launches(ChannelNorm::Group, &[2, 64, 32, 32]), (1, 1));
    assert_eq!(launches(ChannelNorm::Group, &[2, 64, 40, 40]), (2, 2));
    assert_eq!(launches(ChannelNorm::Group, &[2, 64, 256, 256]), (3, 3));
    assert_eq!(launches(ChannelNorm::Instance, &[2, 64, 16, 16]), (3, 3));
}

#[test]
fn groups_that_are_long_are_held_one_after_the_other() {
    let props = Variants::device(Some((32, 32)));
    let numbers = |dims: &[u64], dtype| {
        let x = TensorDesc::contiguous(dtype, dims).unwrap();
        let (form, steps) = chosen(&plain(ChannelNorm::Group, x), &props);
        let prefetch = steps[0].flags.iter().find(|flag| flag.0 == "PREFETCH").map(|flag| flag.1);
        (form, prefetch, steps[0].grid[0], constant(&steps[0], "WORKGROUP"))
    };
    let persistent = WgslForm::Persistent;
    assert_eq!(numbers(&[80, 32, 56, 56], DType::BF16), (persistent, Some(true), 132, 832));
    assert_eq!(numbers(&[12, 40, 64, 64], DType::F16), (persistent, Some(false), 48, 1024));
    assert_ne!(numbers(&[50, 32, 56, 56], DType::BF16).0, persistent);
    assert_ne!(numbers(&[80, 32, 56, 56], DType::F32).0, persistent);
    assert_ne!(numbers(&[80, 32, 28, 28], DType::BF16).0, persistent);
}

#[test]
fn chunks_are_narrow_where_a_group_fills_no_wider_ones() {
    let props = Variants::device(Some((32, 32)));
    let elements = |dims: &[u64], dtype| {
        let x = TensorDesc::channels_last(dtype, dims).unwrap();
        let dtype = ShaderType::of(dtype).unwrap();
        let segments = Segments::new(&plain(ChannelNorm::Group, x).geometry().unwrap(), dtype, &[X, Y]);
        let forward = Tile::best(&segments, |segments| Tile::new(segments, &props));
        let backward = Tile::best(&segments, |segments| Tile::of_gradients(segments, &props, Ask::Chosen));
        [forward, backward].map(|found| found.ok().map(|(segments, tile)| (segments.elements, tile.groups)))
    };
    assert_eq!(elements(&[2, 80, 32, 32], DType::BF16), [Some((4, 1)); 2]);
    assert_eq!(elements(&[2, 160, 16, 16], DType::F16), [Some((8, 1)); 2]);
    assert_eq!(elements(&[2, 80, 16, 16], DType::F32), [Some((4, 1)); 2]);
    assert_eq!(elements(&[256, 80, 16, 16], DType::BF16), [Some((8, 2)), None]);
}

/// Some devices read what lies past the last whole chunk of a binding as 0.
#[test]
fn what_is_read_in_chunks_ends_with_a_whole_one() {
    let props = Variants::device(Some((32, 32)));
    let whole = |slots: &[Slot], steps: &[StepBuilder]| {
        for step in steps.iter().filter(|step| step.can_chunk) {
            for binding in &step.bindings {
                let Some(Place::Operand(at)) = binding.place else { continue };
                let desc = slots.iter().find(|slot| slot.index == at).unwrap().desc;
                let bytes = desc.span_bytes().next_multiple_of(4);
                let text = OperandText { name: binding.name, accessor: binding.accessors[0] };
                assert_eq!(bytes % text.element_bytes(), 0, "{} {binding:?} {desc:?}", step.entry);
            }
        }
    };
    let layouts = [TensorDesc::contiguous, TensorDesc::channels_last];
    for (channels, spatial) in (4..=200).step_by(4).flat_map(|c| [3, 4, 64, 143].map(|s| (c, s))) {
        for (layout, dtype) in layouts.into_iter().flat_map(|l| [DType::F32, DType::F16].map(|d| (l, d))) {
            for parameters in [dtype, DType::F32] {
                for kind in [ChannelNorm::Batch, ChannelNorm::Group, ChannelNorm::Instance] {
                    let x = layout(dtype, &[3, channels, spatial]).unwrap();
                    let parameters = Some(parameters);
                    let forward = plain(kind, x).with(|f| (f.weight, f.bias) = (parameters, parameters)).unwrap();
                    let backward = forward.backward(&INPUTS).unwrap();
                    whole(&forward.slots, &chosen(&forward, &props).1);
                    whole(&backward.slots, &chosen(&backward, &props).1);
                }
            }
        }
    }
}

#[test]
fn slices_of_channels_last_fill_a_gpu_at_once() {
    let props = Variants::device(Some((32, 32)));
    let grids = |dims: &[u64]| {
        let forward = plain(ChannelNorm::Batch, TensorDesc::channels_last(DType::BF16, dims).unwrap());
        let (_, backward) = chosen(&forward.backward(&INPUTS).unwrap(), &props);
        let (_, forward) = chosen(&forward, &props);
        [forward[0].grid[0], forward[2].grid[0], backward[0].grid[0], backward[2].grid[0]]
    };
    for (dims, all) in [([64, 256, 56, 56], [660, 1056, 792, 528]), ([64, 512, 28, 28], [660, 1056, 396, 528])] {
        for (grid, most) in grids(&dims).into_iter().zip(all) {
            assert!(grid <= most && grid > most - most / 8, "{grid} of {most}");
        }
    }
}

/// The names of an op's forms, in the order in which they are tried.
fn listed<D: Descriptor>() -> Vec<&'static str> {
    D::kernels().iter().filter(|kernel| kernel.backend() == Backend::Wgpu).map(|kernel| kernel.name()).collect()
}

/// The names of the forms of all that serve some tensors when they are chosen, the first of them, or pinned, each of them.
fn serving<D: Descriptor + Described<Fields: Pass>>(ask: Ask, norms: &[Valid<D::Fields>]) -> HashSet<&'static str> {
    let props = &Variants::device(Some((32, 32)));
    let limit = if ask == Ask::Chosen { 1 } else { WgslForm::ALL.len() };
    let serving = |norm| WgslForm::ALL.iter().filter(move |form| steps_of(**form, norm, props, ask).is_ok());
    norms.iter().flat_map(|norm| serving(norm).take(limit)).map(Kernel::<D>::name).collect()
}

/// Both passes over tensors of each kind: short, long and many groups, odd extents, both orders, inference.
fn both_passes(kind: ChannelNorm) -> (Vec<Valid<ForwardFields>>, Vec<Valid<BackwardFields>>) {
    let (mut forwards, mut backwards) = (Vec::new(), Vec::new());
    for dims in [
        [4, 16, 8, 8],
        [64, 32, 7, 7],
        [80, 32, 56, 56],
        [64, 300, 20, 16],
        [8, 8, 160, 160],
        [4, 8, 128, 128],
        [2, 40, 64, 64],
        [32, 32, 512, 512],
        [2, 8, 1000, 1],
    ] {
        for x in [dense(&dims), TensorDesc::channels_last(DType::BF16, &dims).unwrap()] {
            for inference in [false, true].into_iter().filter(|is| !is || kind != ChannelNorm::Group) {
                let forward = plain(kind, x).with(|fields| fields.inference = inference).unwrap();
                backwards.push(forward.backward(&INPUTS).unwrap());
                forwards.push(forward);
            }
        }
    }
    (forwards, backwards)
}

#[test]
fn an_op_lists_the_forms_that_can_serve_it_and_each_is_chosen_for_some_tensors() {
    fn check<D: Descriptor + Described<Fields: Pass>>(norms: &[Valid<D::Fields>]) {
        let listed: HashSet<_> = listed::<D>().into_iter().collect();
        assert_eq!(serving::<D>(Ask::Pinned, norms), listed);
        assert_eq!(serving::<D>(Ask::Chosen, norms), listed);
    }
    let (forwards, backwards) = both_passes(ChannelNorm::Batch);
    check::<BatchNormDescriptor>(&forwards);
    check::<BatchNormBackwardDescriptor>(&backwards);
    let (forwards, backwards) = both_passes(ChannelNorm::Group);
    check::<GroupNormDescriptor>(&forwards);
    check::<GroupNormBackwardDescriptor>(&backwards);
    let (forwards, backwards) = both_passes(ChannelNorm::Instance);
    check::<InstanceNormDescriptor>(&forwards);
    check::<InstanceNormBackwardDescriptor>(&backwards);
}

#[test]
fn teams_of_large_groups_do_not_merge_many_channels_of_few_parts() {
    let merging = |channels: u64| {
        let x = TensorDesc::contiguous(DType::F32, &[4, channels, 2]).unwrap();
        let parameters =
            |fields: &mut ForwardFields| (fields.weight, fields.bias) = (Some(DType::F32), Some(DType::F32));
        let norm = plain(ChannelNorm::Group, x).with(parameters).unwrap().backward(&INPUTS).unwrap();
        let steps = steps_of(WgslForm::SplitMerge, &norm, &Variants::device(Some((32, 32))), Ask::Pinned).unwrap();
        let is_merging = |step: &&StepBuilder| step.entry == "channel_norm_backward_split_merge";
        steps.iter().filter(is_merging).map(|step| constant(step, "THREADS")).collect::<Vec<_>>()
    };
    // Of a channel there are four parts, of a group thousands.
    assert_eq!(merging(1 << 16)[1..], [8]);
    assert!(merging(1 << 16)[0] >= 256);
    // Few of them cost less than a dispatch.
    assert_eq!(merging(16).len(), 1);
}

#[test]
fn samples_are_joined_where_they_share_statistics_and_a_stride() {
    let segments = |kind, x| Segments::new(&plain(kind, x).geometry().unwrap(), ShaderType::BF16, &[X, Y]);
    let x = TensorDesc::channels_last(DType::BF16, &[4, 16, 6, 5]).unwrap();
    let joined = segments(ChannelNorm::Batch, x);
    assert_eq!((joined.batch, joined.spatial, joined.group_segments, joined.can_chunk), (1, 120, 1, true));
    assert_eq!(segments(ChannelNorm::Group, x).batch, 4);
    let padded = TensorDesc::strided(DType::BF16, &[4, 16, 30], &[1000, 1, 16]).unwrap();
    let apart = segments(ChannelNorm::Batch, padded);
    assert_eq!((apart.batch, apart.spatial, apart.can_chunk), (4, 30, true));
    let flat = segments(ChannelNorm::Batch, dense(&[40, 16]));
    assert_eq!((flat.batch, flat.spatial, flat.strides(X)[2]), (1, 40, 16));
    assert!(!segments(ChannelNorm::Batch, dense(&[2, 4, 7, 7])).can_chunk);
}

#[test]
fn chunks_span_channels_where_only_samples_have_whole_ones() {
    let is_gapless = |x| {
        let names = [X, RESIDUAL, Y];
        Segments::new(&plain(ChannelNorm::Batch, x).geometry().unwrap(), ShaderType::BF16, &names).is_gapless
    };
    assert!(is_gapless(dense(&[2, 16, 7, 7])));
    assert!(!is_gapless(dense(&[2, 16, 8, 8])));
    assert!(!is_gapless(dense(&[2, 12, 7, 7])));
    assert!(!is_gapless(dense(&[2, 16, 5, 1])));
    assert!(!is_gapless(TensorDesc::strided(DType::BF16, &[2, 16, 49], &[16 * 56, 56, 1]).unwrap()));
    let entries = |dims: &[u64], is_inference: bool| {
        let forward = plain(ChannelNorm::Batch, dense(dims)).with(|fields| fields.inference = is_inference).unwrap();
        let (_, steps) = chosen(&forward, &Variants::device(Some((32, 32))));
        steps.iter().map(|step| step.entry).collect::<Vec<_>>()
    };
    assert_eq!(entries(&[64, 2048, 7, 7], false), ["channel_norm_gapless_resident"]);
    assert_eq!(entries(&[64, 2048, 7, 7], true), ["channel_norm_apply_gapless"]);
    assert_eq!(entries(&[16, 16, 255, 257], false).last(), Some(&"channel_norm_apply_gapless"));
}

#[test]
fn eight_bindings_suffice() {
    let props = Props { max_storage_buffers: 8, ..Variants::device(Some((32, 32))) };
    for is_inference in [false, true] {
        let forward = whole(is_inference);
        chosen(&forward, &props);
        chosen(&forward.backward(&INPUTS).unwrap(), &props);
    }
}

#[test]
fn refuses_f64_and_small_operands_with_gaps() {
    let props = Variants::device(None);
    let x = TensorDesc::contiguous(DType::F64, &[4, 8, 4]).unwrap();
    let refused = |forward: &Valid<ForwardFields>, form| steps_of(form, forward, &props, Ask::Pinned).err().unwrap();
    for form in WgslForm::ALL {
        refused(&plain(ChannelNorm::Batch, x), form);
    }
    let weight = TensorDesc::strided(DType::F32, &[16], &[2]).unwrap();
    let forward = whole(true).layout("weight", weight).unwrap();
    let reason = refused(&forward, WgslForm::Apply).to_string();
    assert!(reason.contains("weight is not contiguous"), "{reason}");
}
