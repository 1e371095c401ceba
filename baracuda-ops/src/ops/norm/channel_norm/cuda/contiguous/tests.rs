use baracuda_ops_sys as sys;

use super::super::tests::{FORMS, Found, asked, backward, forward, on_h200};
use super::super::{BackwardFields, Form, ForwardFields};
use super::*;

const CLUSTER: u64 = sys::BOPS_NORM_CLUSTER as u64;
const GRID: u64 = sys::BOPS_NORM_GRID as u64;

fn h200(shape: [u64; 4], element_bytes: u64) -> ChannelProblem {
    ChannelProblem { has_dx: true, ..on_h200(ChannelOrder::Contiguous, shape, element_bytes) }
}

/// Every device, option and shape that a test walks over.
fn problems() -> impl Iterator<Item = ChannelProblem> {
    let spatial = (1..130).chain([196, 256, 392, 512, 784, 1024, 3136, 4096, 12544, 65536, 262_144, 1 << 20]);
    let devices = [(16, 232_448, 90), (8, 232_448, 90), (1, 166_912, 80), (1, 101_376, 89)];
    spatial.flat_map(move |spatial| {
        devices.into_iter().flat_map(move |(max_cluster, shared_bytes, capability)| {
            [2, 4, 8].into_iter().flat_map(move |element_bytes| {
                [(1, 6, 0), (64, 256, 0), (2, 320, 32), (3, 40, 40), (1, 2048, 1), (1, 8, 1)].into_iter().flat_map(
                    move |(batch, channels, groups)| {
                        [0, 1, 2, 3, 4, 6, 7].map(|bits| ChannelProblem {
                            max_cluster,
                            shared_bytes,
                            capability,
                            activation: match bits & 3 {
                                0 => Activation::GeluErf,
                                1 => Activation::Silu,
                                2 => Activation::Relu,
                                _ => Activation::Identity,
                            },
                            inference: bits & 2 == 0 && groups == 0,
                            has_extra: bits & 4 != 0,
                            ..h200([batch, channels, spatial, groups], element_bytes)
                        })
                    },
                )
            })
        })
    })
}

/// Checks what a form chose against what `csrc/bops_channel_norm.h` says of it.
fn check(arrays: u64, p: &ChannelProblem, found: &Found) {
    let vectors = p.segment_vectors();
    let (segments, groups) = (p.shape.group_segments(), p.shape.group_count());
    let (threads, blocks) = (found.at("threads"), found.or_zero("blocks"));
    let shared_bytes = p.shared_bytes;
    let is_grid = found.or_zero("team") == u64::from(sys::BOPS_NORM_GRID);
    let team = found.or_zero("team_blocks") + found.or_zero("cluster_blocks");
    let (steps, places) = (found.or_zero("steps"), found.or_zero("places"));
    if team > 0 {
        assert!(blocks.is_multiple_of(team) && blocks > 0, "{p:?} {found:?}");
        assert!(is_grid || team <= p.max_cluster, "{p:?} {found:?}");
        assert!(!is_grid || blocks <= p.multiprocessors && team <= 160, "{p:?} {found:?}");
    }
    if [Form::Relay, Form::Held].contains(&found.form) {
        assert!(p.capability >= 90 && places <= 32, "{p:?} {found:?}");
    }
    if found.form != Form::Split {
        assert!(!p.inference && p.element_bytes < 8 && threads.is_multiple_of(32), "{p:?} {found:?}");
    }
    match found.form {
        Form::Split => {
            let vectors = p.shape.spatial / (found.at("access_bytes") / p.element_bytes);
            assert!(found.at("parts") * threads * found.at("accesses") >= vectors, "{p:?} {found:?}");
            assert!(threads == 256 || threads <= 32 && threads.is_power_of_two(), "{found:?}");
        }
        Form::Stripe => {
            let channels = found.at("channels");
            assert!(p.shape.channels.is_multiple_of(channels), "{p:?} {found:?}");
            assert_eq!(blocks * channels, p.shape.channels);
            let run = channels * p.shape.spatial;
            let (run_vectors, at_once) = (run * p.element_bytes / 16, found.at("samples_at_once"));
            assert!(at_once > 0 && at_once * run_vectors <= threads && threads <= 512, "{p:?} {found:?}");
            if found.at("in_registers") == 1 {
                assert!(arrays == 1 && p.element_bytes == 2 && p.is_at_most_relu(), "{p:?} {found:?}");
                assert!(threads <= 256 && p.shape.batch.div_ceil(at_once) <= 13, "{p:?} {found:?}");
            } else {
                let bytes = arrays * p.shape.batch * run_vectors * 16 + at_once * run * 8;
                assert!(bytes + 512 <= shared_bytes, "{p:?} {found:?}");
            }
        }
        Form::Single if arrays == 1 => {
            let (own, held) = (found.at("vectors") * threads, found.at("register_vectors"));
            assert!([0, 2, 4].contains(&held) && held <= found.at("vectors"), "{p:?} {found:?}");
            assert!(held == 0 || found.at("overlaps") == 1 && !p.is_general(), "{p:?} {found:?}");
            assert!(own * team >= segments * vectors && threads <= 1024, "{p:?} {found:?}");
            assert!(own * 16 + 4096 <= shared_bytes, "{p:?} {found:?}");
            assert_eq!(blocks, groups * team, "{found:?}");
        }
        Form::Single => {
            let own = found.at("vectors") * threads;
            assert!(own * team >= segments * vectors.next_multiple_of(32), "{p:?} {found:?}");
            let keeps = found.at("keeps_dpre") == 1;
            assert!(own * if keeps { 48 } else { 32 } + 4096 <= shared_bytes, "{p:?} {found:?}");
            assert!(!keeps || p.activation == Activation::Silu && p.element_bytes == 2, "{p:?} {found:?}");
            let samples = if found.at("merges_samples") == 1 { p.shape.batch } else { 1 };
            assert!(team * samples <= p.max_cluster, "{p:?} {found:?}");
            assert_eq!(blocks, groups * team, "{found:?}");
            assert!(found.at("vectors") <= 27 && threads <= 640 && p.shape.groups > 0, "{p:?} {found:?}");
        }
        Form::SingleMasked => {
            let own = found.at("vectors") * threads;
            assert!(own * team >= segments * vectors && own * 32 + 4096 <= shared_bytes, "{p:?} {found:?}");
            assert!(found.at("vectors") <= 8 && threads <= 448 && p.is_masked(), "{p:?} {found:?}");
            assert_eq!(blocks, groups * team, "{found:?}");
        }
        Form::Segment => {
            assert_eq!((segments, blocks), (1, groups), "{p:?}");
            let most = if arrays == 1 { 8 } else { 4 };
            assert!(found.at("vectors") * threads >= vectors && found.at("vectors") <= most, "{p:?} {found:?}");
            assert!(threads <= 512 && p.shape.groups > 0 && !p.is_general(), "{p:?} {found:?}");
            let sums = if arrays == 2 { p.shape.batch * p.shape.channels * 8 } else { 0 };
            assert!(found.workspace_bytes >= sums, "{p:?} {found:?}");
        }
        Form::Relay => {
            let step = threads * 2;
            let (multi, chunks) = ((step / vectors).max(1), vectors.div_ceil(step));
            assert!(steps * team >= segments.div_ceil(multi) * chunks, "{p:?} {found:?}");
            let is_exponential = arrays == 1 && p.activation == Activation::Silu && !is_grid;
            let (most, multiple) = match is_exponential {
                true => (512, 64),
                false => (if p.has_extra || is_grid { 384 } else { 416 }, 32),
            };
            assert!(threads.is_multiple_of(multiple) && threads <= most, "{p:?} {found:?}");
            let (repeated, residual) = (found.or_zero("repeated_steps"), found.or_zero("residual_places"));
            let touched = if repeated > 0 { segments } else { ((steps - 1) / chunks + 2) * multi };
            let parameters = if p.shape.groups == 0 { 1 } else { touched };
            let bytes = places * arrays * step * 16 + parameters * 16;
            assert!(bytes + 4096 <= shared_bytes, "{p:?} {found:?}");
            let room = places - residual - 2 * found.or_zero("repeated_places");
            assert!(steps > repeated && steps - repeated < room, "{p:?} {found:?}");
            assert_eq!(residual > 0, arrays == 1 && p.has_extra, "{p:?} {found:?}");
            assert!(repeated == 0 || is_grid && !p.has_extra, "{p:?} {found:?}");
            assert_eq!(is_grid, found.at("arriving_places") > 0, "{p:?} {found:?}");
            assert!(found.at("arriving_places") <= room, "{p:?} {found:?}");
            assert!(!is_grid || found.workspace_bytes >= blocks * 128, "{found:?}");
            assert!(!p.is_general() || arrays == 1 && p.adds_residual(), "{p:?} {found:?}");
            assert!(arrays == 1 || p.shape.groups == 0, "{p:?} {found:?}");
            assert!(arrays == 1 || !is_grid || p.is_at_most_relu(), "{p:?} {found:?}");
        }
        _ => {
            assert_eq!(found.form, Form::Held);
            let by_segment = p.shape.groups > 0;
            let pitch = if by_segment { vectors.next_multiple_of(32) } else { vectors };
            let multi = (threads / pitch).max(1);
            let chunks = if multi > 1 { 1 } else { vectors.div_ceil(threads) };
            assert!(steps * team >= segments.div_ceil(multi) * chunks && steps <= 36, "{p:?} {found:?}");
            let reads_extra = found.or_zero("reads_extra") == 1;
            assert_eq!(reads_extra, p.is_masked(), "{p:?} {found:?}");
            assert!(!p.has_extra || reads_extra && is_grid, "{p:?} {found:?}");
            let (most, held) = match (is_grid, p.activation) {
                _ if reads_extra => (352, 10),
                (true, Activation::Identity) => (352, 10),
                (true, _) => (384, 6),
                (false, _) if p.is_general() => (480, 0),
                (false, _) => (480, 4),
            };
            assert!(threads <= most && places + held > steps && places >= 2, "{p:?} {found:?}");
            let sums = if by_segment { (steps + 1) * threads / 2 } else { 0 };
            let bytes = places * threads * 16 * if reads_extra { 3 } else { arrays } + sums;
            assert!(bytes + 2048 <= shared_bytes, "{p:?} {found:?}");
            assert!(!is_grid || !p.is_general() || reads_extra, "{p:?} {found:?}");
            assert!(!is_grid || found.workspace_bytes >= blocks * 32, "{found:?}");
        }
    }
}

#[test]
fn every_element_of_every_group_has_a_thread() {
    for p in problems() {
        assert!(forward(&p).is_some() && backward(&p).is_some(), "{p:?}");
        for p in [p, ChannelProblem { is_pinned: true, ..p }] {
            for form in FORMS {
                let both = [asked::<ForwardFields>(form, &p), asked::<BackwardFields>(form, &p)];
                for (arrays, found) in (1..).zip(both) {
                    if let Ok(found) = found {
                        check(arrays, &p, &found);
                    }
                }
            }
        }
    }
}

#[test]
fn groups_that_fit_stay_on_chip() {
    for (shape, bytes) in [([256, 64, 3136, 0], 2), ([64, 64, 12544, 0], 2), ([64, 256, 3136, 0], 4)] {
        assert_eq!(forward(&h200(shape, bytes)).unwrap().form, Form::Relay, "{shape:?}");
    }
    // Groups that no cluster holds, few of them: a grid, unless they leave no room to fetch ahead or were not measured.
    for (shape, bytes, form) in [
        ([32, 2, 240 * 240, 0], 2, Form::Relay),
        ([1, 32, 360 * 360, 2], 2, Form::Relay),
        ([2, 1, 670 * 670, 0], 4, Form::Relay),
        ([64, 1, 320 * 320, 0], 2, Form::Split),
    ] {
        let found = forward(&h200(shape, bytes)).unwrap();
        assert_eq!((found.form, found.or_zero("team") == GRID), (form, form == Form::Relay), "{shape:?}");
    }
    for (shape, variant) in
        [([64, 256, 3136, 0], Form::Relay), ([64, 512, 784, 0], Form::Held), ([16, 64, 12544, 0], Form::Relay)]
    {
        assert_eq!(backward(&h200(shape, 2)).unwrap().form, variant, "{shape:?}");
    }
    for (shape, bytes) in [([2, 320, 4096, 32], 2), ([1, 512, 16384, 32], 2), ([32, 256, 3136, 32], 2)] {
        assert_eq!(forward(&h200(shape, bytes)).unwrap().form, Form::Single, "{shape:?}");
    }
    for (shape, bytes) in [([256, 64, 12544, 0], 4), ([1, 128, 1 << 18, 32], 2), ([1, 256, 1 << 20, 32], 2)] {
        let found = backward(&h200(shape, bytes)).unwrap();
        assert_eq!((found.form, found.at("team")), (Form::Held, GRID), "{shape:?}");
    }
    // The whole device does not hold such a group.
    assert_eq!(backward(&h200([1, 256, 1 << 20, 32], 4)).unwrap().form, Form::Split);
    let extra = |shape, bytes| ChannelProblem { has_extra: true, activation: Activation::Silu, ..h200(shape, bytes) };
    for (shape, threads, vectors, chunks) in
        [([64, 512, 784, 0], 32, 8, 1), ([64, 256, 3136, 0], 32, 8, 4), ([64, 64, 12544, 0], 256, 4, 4)]
    {
        let tuned = backward(&extra(shape, 4)).unwrap();
        assert_eq!(
            (tuned.at("threads"), tuned.at("accesses"), tuned.at("parts")),
            (threads, vectors, chunks),
            "{shape:?}"
        );
    }
    let merged = backward(&h200([2, 1280, 256, 32], 2)).unwrap();
    assert_eq!((merged.form, merged.at("merges_samples"), merged.at("cluster_blocks")), (Form::Single, 1, 4));
    assert_eq!(
        (merged.launches, merged.workspace_bytes, merged.at("threads"), merged.at("keeps_dpre")),
        (1, 0, 160, 0)
    );
    let silu = |shape, bytes| ChannelProblem { activation: Activation::Silu, ..h200(shape, bytes) };
    for (shape, bytes, threads, stages) in [
        ([2, 1280, 256, 32], 2, 160, 1),
        ([2, 320, 4096, 32], 2, 640, 1),
        ([32, 256, 3136, 32], 2, 480, 0), // two blocks share an SM
        ([2, 1280, 256, 32], 4, 160, 0),
    ] {
        let tuned = backward(&silu(shape, bytes)).unwrap();
        let seen = (tuned.form, tuned.at("threads"), tuned.at("keeps_dpre"));
        assert_eq!(seen, (Form::Single, threads, stages), "{shape:?}");
    }
    for (p, stagger_cycles) in
        [(h200([32, 256, 3136, 32], 2), 5040), (silu([32, 256, 3136, 32], 2), 8400), (h200([2, 320, 4096, 32], 2), 0)]
    {
        let tuned = backward(&p).unwrap();
        assert_eq!((tuned.form, tuned.at("stagger_cycles")), (Form::Single, stagger_cycles), "{p:?}");
    }
    for (shape, expected) in [
        ([32, 256, 3136, 32], (2, 480, 7, 0)),
        ([8, 32, 1 << 16, 32], (8, 320, 7, 0)),
        ([8, 64, 1 << 14, 64], (4, 256, 4, 1)),
        ([1, 256, 1 << 14, 256], (8, 128, 4, 1)),
        ([2, 320, 4096, 32], (7, 256, 6, 1)), // four blocks an SM
        ([2, 256, 4096, 16], (4, 608, 7, 1)), // one
        ([2, 640, 1024, 32], (4, 160, 8, 1)), // a cluster for both samples
    ] {
        let tuned = backward(&h200(shape, 4)).unwrap();
        assert_eq!(tuned.form, Form::Single, "{shape:?}");
        assert_eq!(
            (tuned.at("cluster_blocks"), tuned.at("threads"), tuned.at("vectors"), tuned.at("overlaps")),
            expected,
            "{shape:?}"
        );
    }
    let active = backward(&silu([1, 128, 1 << 18, 32], 2)).unwrap();
    assert_eq!((active.form, active.at("team"), active.at("threads")), (Form::Held, GRID, 384));
    for (bytes, ahead, back) in [(2, (256, 5, 1), (224, 4, 0)), (4, (224, 4, 0), (256, 5, 0))] {
        let small = h200([64, 2048, 49, 0], bytes);
        for (tuned, expected) in [(forward(&small).unwrap(), ahead), (backward(&small).unwrap(), back)] {
            assert_eq!(tuned.form, Form::Stripe);
            assert_eq!(
                (tuned.at("threads"), tuned.at("samples_at_once"), tuned.at("in_registers")),
                expected,
                "{bytes}"
            );
        }
    }
    let with_residual = extra([64, 2048, 49, 0], 2);
    let relu = ChannelProblem { activation: Activation::Relu, ..with_residual };
    for (p, variant) in [(with_residual, Form::Split), (relu, Form::Stripe)] {
        assert_eq!((forward(&p).unwrap().form, backward(&p).unwrap().form), (variant, variant));
    }
    for (shape, bytes, expected) in [
        ([2, 320, 4096, 32], 2, (2, 640, 4)),
        ([2, 320, 4096, 32], 4, (2, 640, 4)),
        ([2, 640, 1024, 32], 2, (2, 320, 4)),
        ([2, 1280, 256, 32], 2, (2, 320, 2)),
        ([2, 1280, 256, 32], 4, (2, 320, 4)),
        ([1, 512, 16384, 32], 2, (7, 480, 4)),
        ([32, 256, 3136, 32], 2, (1, 224, 0)),
    ] {
        let tuned = forward(&h200(shape, bytes)).unwrap();
        assert_eq!(tuned.form, Form::Single, "{shape:?} {bytes}");
        assert_eq!(
            (tuned.at("cluster_blocks"), tuned.at("threads"), tuned.at("register_vectors")),
            expected,
            "{shape:?} {bytes}"
        );
    }
    // Registers have no room for a residual or a long activation.
    let with_residual = extra([2, 320, 4096, 32], 2);
    let gelu = ChannelProblem { activation: Activation::GeluErf, ..h200([2, 320, 4096, 32], 2) };
    for p in [with_residual, gelu] {
        assert_eq!(forward(&p).unwrap().at("register_vectors"), 0, "{p:?}");
    }
    let apart = forward(&h200([32, 256, 3136, 32], 2)).unwrap();
    assert_eq!((apart.at("stagger_cycles"), apart.at("multiprocessors"), apart.at("residents")), (4014, 132, 4));
    for (shape, bytes, cluster, overlaps) in
        [([64, 512, 784, 0], 2, 2, 0), ([64, 512, 784, 0], 4, 4, 1), ([32, 256, 3136, 32], 4, 2, 1)]
    {
        let halved = forward(&h200(shape, bytes)).unwrap();
        assert_eq!((halved.form, halved.at("cluster_blocks")), (Form::Single, cluster), "{shape:?}");
        assert_eq!(
            (halved.at("threads"), halved.at("vectors"), halved.at("overlaps")),
            (224, 14, overlaps),
            "{shape:?}"
        );
        assert_eq!((halved.at("stagger_cycles"), halved.at("residents")), (4014, 4), "{shape:?}");
    }
}

#[test]
fn a_block_has_a_short_segment_in_registers() {
    let (identity, silu) = (Activation::Identity, Activation::Silu);
    let variants = |shape, bytes, activation| {
        let p = ChannelProblem { activation, ..h200(shape, bytes) };
        (forward(&p).unwrap().form, backward(&p).unwrap().form)
    };
    let (segment, single) = (Form::Segment, Form::Single);
    for (shape, bytes, activation, expected) in [
        ([8, 64, 16384, 64], 2, identity, (segment, segment)),
        ([8, 128, 4096, 128], 2, silu, (segment, segment)),
        ([8, 128, 4096, 128], 4, identity, (segment, segment)),
        ([64, 64, 12544, 64], 2, identity, (single, segment)), // more than blocks without shared memory serve well
        ([64, 64, 12544, 64], 2, silu, (segment, segment)),
        ([1, 256, 16384, 256], 2, Activation::GeluErf, (single, single)),
        ([8, 128, 4096, 64], 2, identity, (single, single)), // two segments a group
    ] {
        assert_eq!(variants(shape, bytes, activation), expected, "{shape:?} {bytes} {activation:?}");
    }
    let ahead = forward(&h200([8, 64, 16384, 64], 2)).unwrap();
    assert_eq!((ahead.at("threads"), ahead.at("vectors"), ahead.at("blocks"), ahead.at("overlaps")), (256, 8, 512, 1));
    let back = backward(&h200([8, 64, 16384, 64], 2)).unwrap();
    assert_eq!((back.at("threads"), back.at("vectors"), back.launches, back.workspace_bytes), (512, 4, 2, 512 * 8));
}

/// Of a choice of `relay` in a grid: threads, steps, blocks of a team, blocks, and places that are being filled at once.
fn of_grid(tuned: &Found) -> (u64, u64, u64, u64, u64) {
    let at = |name| tuned.at(name);
    (at("threads"), at("steps"), at("team_blocks"), at("blocks"), at("arriving_places"))
}

#[test]
fn groups_that_clusters_hold_badly_are_shared_by_all_multiprocessors() {
    let (identity, silu) = (Activation::Identity, Activation::Silu);
    for (shape, bytes, activation, expected) in [
        ([1, 256, 1 << 20, 32], 2, identity, (320, 13, 127, 127, 3)),
        ([1, 256, 1 << 20, 32], 2, silu, (384, 11, 125, 125, 5)),
        ([1, 128, 1 << 18, 32], 4, identity, (352, 3, 126, 126, 5)),
        ([1, 128, 1 << 18, 32], 2, identity, (352, 6, 32, 128, 5)),
        ([1, 128, 1 << 18, 32], 2, silu, (384, 11, 16, 128, 5)),
        ([64, 64, 12544, 0], 4, identity, (320, 5, 64, 128, 6)),
        ([1, 512, 16384, 32], 4, identity, (352, 6, 16, 128, 5)),
        ([256, 64, 3136, 0], 4, identity, (224, 8, 64, 128, 9)),
        ([2, 64, 1 << 18, 0], 4, identity, (352, 3, 63, 126, 5)),
    ] {
        let tuned = forward(&ChannelProblem { activation, ..h200(shape, bytes) }).unwrap();
        assert_eq!((tuned.form, tuned.at("team")), (Form::Relay, GRID), "{shape:?}");
        let found = of_grid(&tuned);
        assert_eq!(found, expected, "{shape:?} {activation:?}");
    }
    // Through SiLU a residual is not fetched.
    let with_residual = ChannelProblem { has_extra: true, activation: silu, ..h200([2, 64, 1 << 18, 0], 4) };
    assert_eq!(forward(&with_residual).unwrap().form, Form::Split);
}

#[test]
fn gradients_of_channels_that_a_cluster_has_no_room_for_two_of_relay_through_all_multiprocessors() {
    for (shape, bytes, expected) in [
        ([64, 64, 12544, 0], 2, (160, 5, 64, 128, 6)),
        ([64, 64, 12544, 0], 4, (160, 5, 128, 128, 6)),
        ([256, 64, 3136, 0], 2, (224, 4, 64, 128, 4)),
        ([256, 64, 3136, 0], 4, (224, 4, 128, 128, 4)),
        ([2, 64, 1 << 18, 0], 2, (256, 4, 32, 128, 4)),
        ([2, 64, 1 << 18, 0], 4, (256, 4, 64, 128, 4)),
        ([32, 64, 12544, 0], 4, (160, 5, 64, 128, 6)),
    ] {
        for activation in [Activation::Identity, Activation::Relu] {
            let tuned = backward(&ChannelProblem { activation, ..h200(shape, bytes) }).unwrap();
            assert_eq!(
                (tuned.form, tuned.at("team"), tuned.at("overlaps")),
                (Form::Relay, GRID, 1),
                "{shape:?} {bytes}"
            );
            let found = of_grid(&tuned);
            assert_eq!(found, expected, "{shape:?} {bytes}");
        }
    }
    let silu = ChannelProblem { activation: Activation::Silu, ..h200([64, 64, 12544, 0], 2) };
    for (p, why) in [
        (silu, "its gradient takes registers"),
        (h200([64, 256, 3136, 0], 4), "a cluster's blocks have room for two groups"),
        (h200([64, 2, 12544, 0], 2), "little data"),
        (h200([256, 64, 12544, 0], 4), "nothing else has room on chip"),
    ] {
        let tuned = backward(&p).unwrap();
        assert!(tuned.form != Form::Relay || tuned.at("team") == CLUSTER, "{why}: {tuned:?}");
    }
}

#[test]
fn residuals_through_a_relu_stay_on_chip() {
    let relu = |shape, bytes| ChannelProblem { has_extra: true, activation: Activation::Relu, ..h200(shape, bytes) };
    let (relay, masked) = ((Form::Relay, CLUSTER), Form::SingleMasked);
    let (cooperative, held) = ((Form::Relay, GRID), Form::Held);
    for (shape, bytes, ahead, back) in [
        ([64, 512, 784, 0], 2, (relay, 384, 10, 1, 3), (masked, 224, 7, 4)),
        ([64, 512, 784, 0], 4, (relay, 352, 11, 2, 3), (masked, 224, 7, 8)),
        ([64, 256, 3136, 0], 2, (cooperative, 224, 16, 4, 5), (masked, 224, 7, 16)),
        ([64, 256, 3136, 0], 4, (cooperative, 224, 8, 16, 5), (held, 288, 12, 16)),
        ([2, 64, 1 << 18, 0], 2, (cooperative, 256, 8, 16, 4), (held, 320, 13, 16)),
        ([64, 64, 12544, 0], 2, (cooperative, 288, 12, 16, 4), (held, 320, 10, 32)),
        ([64, 64, 12544, 0], 4, (cooperative, 320, 5, 64, 4), (held, 352, 9, 64)),
        ([2, 64, 1 << 18, 0], 4, (cooperative, 352, 3, 63, 3), (held, 288, 14, 33)),
        ([32, 128, 784, 0], 4, (relay, 352, 11, 1, 3), (masked, 224, 7, 4)),
        ([32, 128, 784, 0], 2, (relay, 384, 5, 1, 3), (masked, 416, 4, 2)), // two blocks an SM
    ] {
        let tuned = forward(&relu(shape, bytes)).unwrap();
        let form = (tuned.form, tuned.at("team"));
        let found =
            (form, tuned.at("threads"), tuned.at("steps"), tuned.at("team_blocks"), tuned.at("residual_places"));
        assert_eq!(found, ahead, "{shape:?} {bytes}");
        let tuned = backward(&relu(shape, bytes)).unwrap();
        let (share, team) = match tuned.form {
            Form::Held => (tuned.at("steps"), tuned.at("team_blocks")),
            _ => (tuned.at("vectors"), tuned.at("cluster_blocks")),
        };
        assert_eq!(tuned.form == held, tuned.or_zero("reads_extra") == 1, "{shape:?} {bytes}");
        let found = (tuned.form, tuned.at("threads"), share, team);
        assert_eq!(found, back, "{shape:?} {bytes}");
    }
    // Few channels leave SMs out; of little data a block holds a channel.
    assert_eq!(forward(&relu([80, 12, 1024, 0], 4)).unwrap().form, Form::Single);
    let small = backward(&relu([32, 256, 256, 0], 2)).unwrap();
    assert_eq!((small.form, small.at("cluster_blocks"), small.at("overlaps")), (masked, 1, 1));
    let identity = ChannelProblem { activation: Activation::Identity, ..relu([64, 512, 784, 0], 4) };
    assert_eq!(forward(&identity).unwrap().form, Form::Relay);
    assert_eq!(backward(&identity).unwrap().form, Form::Split);
}

#[test]
fn what_the_whole_device_does_not_hold_passes_twice() {
    for (shape, bytes, activation, expected) in [
        ([1, 256, 1 << 20, 32], 4, Activation::Identity, (320, 25, 132, 8)),
        ([1, 256, 1 << 20, 32], 4, Activation::Silu, (256, 32, 128, 10)),
        ([1, 96, 1 << 20, 8], 4, Activation::Identity, (256, 47, 131, 25)),
        ([1, 80, 1 << 21, 8], 2, Activation::Identity, (256, 39, 132, 17)),
    ] {
        let tuned = forward(&ChannelProblem { activation, ..h200(shape, bytes) }).unwrap();
        assert_eq!((tuned.form, tuned.at("team")), (Form::Relay, GRID), "{shape:?}");
        let found = (tuned.at("threads"), tuned.at("steps"), tuned.at("blocks"), tuned.at("repeated_steps"));
        assert_eq!(found, expected, "{shape:?} {activation:?}");
    }
    // The L2 does not keep so much of two groups.
    let larger = h200([1, 64, 3 << 20, 8], 4);
    assert_eq!(forward(&larger).unwrap().form, Form::Split);
}

#[test]
fn absurd_sizes_are_refused_not_wrapped() {
    assert!(forward(&h200([1 << 20, 1 << 20, 8, 0], 2)).is_none());
    assert!(backward(&h200([1 << 20, 1 << 20, 8, 0], 2)).is_none());
}
