use super::super::ChannelShape;
use super::*;

fn h200(shape: [u64; 4], element_bytes: u32) -> Problem {
    let [batch, channels, spatial, groups] = shape;
    let width = |bytes: u64| 1 << (16 | bytes).trailing_zeros();
    Problem {
        shape: ChannelShape { batch, channels, spatial, groups },
        element_bytes,
        accumulator_bytes: element_bytes.max(4),
        vector_bytes: width(spatial * u64::from(element_bytes)),
        sample_vector_bytes: width(channels * spatial * u64::from(element_bytes)),
        capability: 90,
        multiprocessors: 132,
        shared_bytes: 232_448,
        max_cluster: 16,
        has_dx: true,
        has_element_gradients: true,
        has_parameter_gradients: true,
        ..Problem::default()
    }
}

/// Every device, option and shape that a test walks over.
fn problems() -> impl Iterator<Item = Problem> {
    let spatial = (1..130).chain([196, 256, 392, 512, 784, 1024, 3136, 4096, 12544, 65536, 262_144, 1 << 20]);
    let devices = [(16, 232_448, 90), (8, 232_448, 90), (1, 166_912, 80), (1, 101_376, 89)];
    spatial.flat_map(move |spatial| {
        devices.into_iter().flat_map(move |(max_cluster, shared_bytes, capability)| {
            [2, 4, 8].into_iter().flat_map(move |element_bytes| {
                [(1, 6, 0), (64, 256, 0), (2, 320, 32), (3, 40, 40), (1, 2048, 1), (1, 8, 1)].into_iter().flat_map(
                    move |(batch, channels, groups)| {
                        [0, 1, 2, 3, 4, 6, 7].map(|bits| Problem {
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

#[test]
fn every_element_of_every_group_has_a_thread() {
    for p in problems() {
        for (arrays, tuned) in [(1, forward(&p).unwrap()), (2, backward(&p).unwrap())] {
            let vectors = p.shape.spatial / u64::from(tuned.vec_bytes / p.element_bytes);
            let threads = u64::from(tuned.threads);
            match tuned.variant {
                sys::BOPS_CHANNEL_NORM_SPLIT => {
                    assert!(u64::from(tuned.chunks) * threads * u64::from(tuned.vectors) >= vectors, "{p:?} {tuned:?}");
                    assert!(threads == 256 || threads <= 32 && threads.is_power_of_two(), "{tuned:?}");
                }
                sys::BOPS_CHANNEL_NORM_STRIPE => {
                    assert!(p.shape.channels.is_multiple_of(u64::from(tuned.vectors)), "{p:?} {tuned:?}");
                    assert_eq!(u64::from(tuned.grid * tuned.vectors), p.shape.channels);
                    let run = u64::from(tuned.vectors) * p.shape.spatial;
                    let (run_vectors, turns) = (run * u64::from(p.element_bytes) / 16, u64::from(tuned.chunks));
                    assert!(turns > 0 && turns * run_vectors <= threads, "{p:?} {tuned:?}");
                    assert!(threads <= 512 && threads.is_multiple_of(32), "{p:?} {tuned:?}");
                    if tuned.stages == 1 {
                        assert!(arrays == 1 && p.element_bytes == 2 && p.is_at_most_relu(), "{p:?} {tuned:?}");
                        assert!(threads <= 256 && p.shape.batch.div_ceil(turns) <= 13, "{p:?} {tuned:?}");
                    } else {
                        let shared_bytes = u64::from(arrays) * p.shape.batch * run_vectors * 16 + turns * run * 8;
                        assert!(shared_bytes + 512 <= u64::from(p.shared_bytes), "{p:?} {tuned:?}");
                    }
                }
                sys::BOPS_CHANNEL_NORM_SINGLE => {
                    let segments = p.shape.group_segments();
                    let own = u64::from(tuned.vectors) * threads;
                    assert!([0, 2, 4].contains(&tuned.cached) && tuned.cached <= tuned.vectors, "{p:?} {tuned:?}");
                    assert!(
                        tuned.cached == 0 || tuned.overlaps == 1 && arrays == 1 && !p.is_general(),
                        "{p:?} {tuned:?}"
                    );
                    let is_masked = arrays == 2 && p.is_masked();
                    let (all, bytes) = match arrays {
                        1 => (segments * vectors, 16),
                        _ if is_masked => (segments * vectors, 32),
                        _ => (segments * vectors.next_multiple_of(32), 32),
                    };
                    assert!(own * u64::from(tuned.cluster) >= all, "{p:?} {tuned:?}");
                    assert!(threads.is_multiple_of(32) && threads <= 1024, "{p:?} {tuned:?}");
                    let keeps = arrays == 2 && tuned.stages == 1;
                    let bytes = if keeps { bytes + 16 } else { bytes };
                    assert!(own * bytes + 4096 <= u64::from(p.shared_bytes), "{p:?} {tuned:?}");
                    assert!(!keeps || p.activation == Activation::Silu && p.element_bytes == 2, "{p:?} {tuned:?}");
                    let samples = if tuned.is_merged == 1 { p.shape.batch } else { 1 };
                    assert!(u64::from(tuned.cluster) * samples <= u64::from(p.max_cluster), "{p:?} {tuned:?}");
                    assert_eq!(u64::from(tuned.grid), p.shape.group_count() * u64::from(tuned.cluster), "{tuned:?}");
                    let (most_vectors, most_threads) = if is_masked { (8, 448) } else { (27, 640) };
                    assert!(arrays == 1 || tuned.vectors <= most_vectors && threads <= most_threads, "{p:?} {tuned:?}");
                    assert!(arrays == 1 || is_masked || p.shape.groups > 0, "{p:?} {tuned:?}");
                }
                sys::BOPS_CHANNEL_NORM_SEGMENT => {
                    assert_eq!((p.shape.group_segments(), tuned.cluster), (1, 1), "{p:?}");
                    assert_eq!(u64::from(tuned.grid), p.shape.group_count(), "{tuned:?}");
                    let most = if arrays == 1 { 8 } else { 4 };
                    assert!(u64::from(tuned.vectors) * threads >= vectors && tuned.vectors <= most, "{p:?} {tuned:?}");
                    assert!(threads.is_multiple_of(32) && threads <= 512, "{p:?} {tuned:?}");
                    assert!(p.shape.groups > 0 && !p.is_general() && !p.inference, "{p:?} {tuned:?}");
                    let sums = if arrays == 2 { p.shape.batch * p.shape.channels * 8 } else { 0 };
                    assert!(tuned.workspace_bytes >= sums, "{p:?} {tuned:?}");
                }
                sys::BOPS_CHANNEL_NORM_RELAY => {
                    let segments = p.shape.group_segments();
                    let places = threads * 2;
                    let chunks = vectors.div_ceil(places);
                    let steps = segments.div_ceil((places / vectors).max(1)) * chunks;
                    assert!(u64::from(tuned.vectors * tuned.cluster) >= steps, "{p:?} {tuned:?}");
                    let exponential = arrays == 1 && p.activation == Activation::Silu;
                    let (most, multiple) = match exponential {
                        true => (512, 64),
                        false => (if p.has_extra { 384 } else { 416 }, 32),
                    };
                    assert!(threads.is_multiple_of(multiple) && threads <= most, "{p:?} {tuned:?}");
                    if tuned.tensors > 0 {
                        assert!(arrays == 2 && p.is_at_most_relu() && !p.has_extra, "{p:?} {tuned:?}");
                        assert!(threads <= 384 && tuned.cluster <= 160, "{p:?} {tuned:?}");
                        assert!(tuned.grid <= p.multiprocessors && tuned.tensors <= tuned.stages, "{p:?} {tuned:?}");
                        assert!(tuned.workspace_bytes >= u64::from(tuned.grid) * 128, "{p:?} {tuned:?}");
                    } else {
                        assert!(tuned.cluster <= p.max_cluster, "{p:?} {tuned:?}");
                    }
                    assert!(tuned.grid.is_multiple_of(tuned.cluster) && tuned.grid > 0, "{p:?} {tuned:?}");
                    let touched = (u64::from(tuned.vectors - 1) / chunks + 2) * (places / vectors).max(1);
                    let parameters = if p.shape.groups == 0 { 1 } else { touched };
                    let shared_bytes = u64::from(tuned.stages * arrays) * places * 16 + parameters * 16;
                    assert!(shared_bytes + 4096 <= u64::from(p.shared_bytes), "{p:?} {tuned:?}");
                    assert!(tuned.stages - tuned.chunks > tuned.vectors && tuned.stages <= 32, "{p:?} {tuned:?}");
                    assert_eq!(tuned.chunks > 0, p.has_extra, "{p:?} {tuned:?}");
                    assert!(p.capability >= 90 && !p.inference, "{p:?} {tuned:?}");
                    assert!(!p.is_general() || arrays == 1 && p.adds_residual(), "{p:?} {tuned:?}");
                    assert!(arrays == 1 || p.shape.groups == 0, "{p:?} {tuned:?}");
                }
                sys::BOPS_CHANNEL_NORM_COOPERATIVE if arrays == 1 => {
                    let places = threads * 2;
                    let (multi, chunks) = ((places / vectors).max(1), vectors.div_ceil(places));
                    let steps = p.shape.group_segments().div_ceil(multi) * chunks;
                    assert!(u64::from(tuned.vectors * tuned.cluster) >= steps, "{p:?} {tuned:?}");
                    assert!(threads.is_multiple_of(32) && threads <= 384 && tuned.cluster <= 160, "{tuned:?}");
                    assert!(tuned.grid.is_multiple_of(tuned.cluster) && tuned.grid > 0, "{p:?} {tuned:?}");
                    assert!(tuned.grid <= p.multiprocessors, "{p:?} {tuned:?}");
                    let touched = match tuned.cached {
                        0 => (u64::from(tuned.vectors - 1) / chunks + 2) * multi,
                        _ => p.shape.group_segments(),
                    };
                    let parameters = if p.shape.groups == 0 { 1 } else { touched };
                    let shared_bytes = u64::from(tuned.stages) * places * 16 + parameters * 16;
                    assert!(shared_bytes + 4096 <= u64::from(p.shared_bytes), "{p:?} {tuned:?}");
                    let windows = if p.has_extra { tuned.chunks } else { 2 * tuned.chunks };
                    let (staying, room) = (tuned.vectors - tuned.cached, tuned.stages - windows);
                    assert!(staying > 0 && staying < room && tuned.stages <= 32, "{p:?} {tuned:?}");
                    assert_eq!(tuned.cached > 0 || p.has_extra, tuned.chunks > 0, "{p:?} {tuned:?}");
                    assert!(tuned.cached == 0 || !p.has_extra, "{p:?} {tuned:?}");
                    assert!((1..=room).contains(&tuned.tensors), "{p:?} {tuned:?}");
                    assert!(p.capability >= 90 && !p.inference, "{p:?} {tuned:?}");
                    assert!(!p.is_general() || p.adds_residual(), "{p:?} {tuned:?}");
                    assert!(tuned.workspace_bytes >= u64::from(tuned.grid) * 128, "{tuned:?}");
                }
                sys::BOPS_CHANNEL_NORM_COOPERATIVE => {
                    let by_segment = p.shape.groups > 0;
                    let pitch = if by_segment { vectors.next_multiple_of(32) } else { vectors };
                    let segments = p.shape.group_segments();
                    let multi = (threads / pitch).max(1);
                    let chunks = if multi > 1 { 1 } else { vectors.div_ceil(threads) };
                    let steps = segments.div_ceil(multi) * chunks;
                    assert!(u64::from(tuned.vectors * tuned.cluster) >= steps, "{p:?} {tuned:?}");
                    assert!(threads.is_multiple_of(32) && tuned.vectors <= 36, "{tuned:?}");
                    let is_masked = p.is_masked();
                    let is_active = p.activation != Activation::Identity && !is_masked;
                    let (most, held) = if is_active { (384, 6) } else { (352, 10) };
                    assert_eq!(tuned.tensors, if is_masked { 3 } else { 0 }, "{p:?} {tuned:?}");
                    assert!(threads <= most && tuned.stages + held > tuned.vectors, "{p:?} {tuned:?}");
                    assert!(tuned.grid.is_multiple_of(tuned.cluster) && tuned.grid > 0, "{p:?} {tuned:?}");
                    assert!(tuned.grid <= p.multiprocessors, "{p:?} {tuned:?}");
                    let sums = if by_segment { (tuned.vectors + 1) * tuned.threads / 2 } else { 0 };
                    let place_bytes = tuned.threads * if is_masked { 48 } else { 32 };
                    assert!(tuned.stages * place_bytes + sums + 2048 <= p.shared_bytes, "{p:?} {tuned:?}");
                    assert!(p.capability >= 90 && !p.inference && arrays == 2, "{p:?} {tuned:?}");
                    assert!(is_masked || !p.is_general(), "{p:?} {tuned:?}");
                    assert!(tuned.workspace_bytes >= u64::from(tuned.grid) * 32, "{tuned:?}");
                }
                _ => {
                    assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_HELD);
                    let pitch = if arrays == 2 && p.shape.groups > 0 { vectors.next_multiple_of(32) } else { vectors };
                    let segments = p.shape.group_segments();
                    let steps = if pitch < threads && threads / pitch > 1 {
                        segments.div_ceil(threads / pitch)
                    } else {
                        segments * vectors.div_ceil(threads)
                    };
                    assert!(u64::from(tuned.vectors * tuned.cluster) >= steps, "{p:?} {tuned:?}");
                    assert!(threads.is_multiple_of(32) && threads <= 512 && tuned.cluster <= p.max_cluster);
                    assert!(tuned.grid.is_multiple_of(tuned.cluster) && tuned.grid > 0, "{p:?} {tuned:?}");
                    assert!(tuned.stages * tuned.threads * 16 * arrays + 4096 <= p.shared_bytes, "{p:?} {tuned:?}");
                    assert!(p.capability >= 90, "{p:?} {tuned:?}");
                    assert!(!p.has_extra, "{p:?} {tuned:?}");
                    assert!(tuned.vectors <= 36 && tuned.stages >= 2, "{p:?} {tuned:?}");
                }
            }
        }
    }
}

#[test]
fn groups_that_fit_stay_on_chip() {
    for (shape, bytes) in [([256, 64, 3136, 0], 2), ([64, 64, 12544, 0], 2), ([64, 256, 3136, 0], 4)] {
        assert_eq!(forward(&h200(shape, bytes)).unwrap().variant, sys::BOPS_CHANNEL_NORM_RELAY, "{shape:?}");
    }
    for (shape, variant) in [
        ([64, 256, 3136, 0], sys::BOPS_CHANNEL_NORM_RELAY),
        ([64, 512, 784, 0], sys::BOPS_CHANNEL_NORM_HELD),
        ([16, 64, 12544, 0], sys::BOPS_CHANNEL_NORM_RELAY),
    ] {
        assert_eq!(backward(&h200(shape, 2)).unwrap().variant, variant, "{shape:?}");
    }
    for (shape, bytes) in [([2, 320, 4096, 32], 2), ([1, 512, 16384, 32], 2), ([32, 256, 3136, 32], 2)] {
        assert_eq!(forward(&h200(shape, bytes)).unwrap().variant, sys::BOPS_CHANNEL_NORM_SINGLE, "{shape:?}");
    }
    for (shape, bytes) in [([256, 64, 12544, 0], 4), ([1, 128, 1 << 18, 32], 2), ([1, 256, 1 << 20, 32], 2)] {
        assert_eq!(backward(&h200(shape, bytes)).unwrap().variant, sys::BOPS_CHANNEL_NORM_COOPERATIVE, "{shape:?}");
    }
    // The whole device does not hold such a group.
    assert_eq!(backward(&h200([1, 256, 1 << 20, 32], 4)).unwrap().variant, sys::BOPS_CHANNEL_NORM_SPLIT);
    let extra = |shape, bytes| Problem { has_extra: true, activation: Activation::Silu, ..h200(shape, bytes) };
    for (shape, threads, vectors, chunks) in
        [([64, 512, 784, 0], 32, 8, 1), ([64, 256, 3136, 0], 32, 8, 4), ([64, 64, 12544, 0], 256, 4, 4)]
    {
        let tuned = backward(&extra(shape, 4)).unwrap();
        assert_eq!((tuned.threads, tuned.vectors, tuned.chunks), (threads, vectors, chunks), "{shape:?}");
    }
    let merged = backward(&h200([2, 1280, 256, 32], 2)).unwrap();
    assert_eq!((merged.variant, merged.is_merged, merged.cluster), (sys::BOPS_CHANNEL_NORM_SINGLE, 1, 4));
    assert_eq!((merged.launches, merged.workspace_bytes, merged.threads, merged.stages), (1, 0, 160, 0));
    let silu = |shape, bytes| Problem { activation: Activation::Silu, ..h200(shape, bytes) };
    for (shape, bytes, threads, stages) in [
        ([2, 1280, 256, 32], 2, 160, 1),
        ([2, 320, 4096, 32], 2, 640, 1),
        ([32, 256, 3136, 32], 2, 480, 0), // two blocks share a multiprocessor
        ([2, 1280, 256, 32], 4, 160, 0),
    ] {
        let tuned = backward(&silu(shape, bytes)).unwrap();
        let seen = (tuned.variant, tuned.threads, tuned.stages);
        assert_eq!(seen, (sys::BOPS_CHANNEL_NORM_SINGLE, threads, stages), "{shape:?}");
    }
    for (p, stagger_cycles) in
        [(h200([32, 256, 3136, 32], 2), 5040), (silu([32, 256, 3136, 32], 2), 8400), (h200([2, 320, 4096, 32], 2), 0)]
    {
        let tuned = backward(&p).unwrap();
        assert_eq!((tuned.variant, tuned.stagger_cycles), (sys::BOPS_CHANNEL_NORM_SINGLE, stagger_cycles), "{p:?}");
    }
    for (shape, expected) in [
        ([32, 256, 3136, 32], (2, 480, 7, 0)),
        ([8, 32, 1 << 16, 32], (8, 320, 7, 0)),
        ([8, 64, 1 << 14, 64], (4, 256, 4, 1)),
        ([1, 256, 1 << 14, 256], (8, 128, 4, 1)),
        ([2, 320, 4096, 32], (7, 256, 6, 1)), // four blocks a multiprocessor
        ([2, 256, 4096, 16], (4, 608, 7, 1)), // one
        ([2, 640, 1024, 32], (4, 160, 8, 1)), // a cluster for both samples
    ] {
        let tuned = backward(&h200(shape, 4)).unwrap();
        assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_SINGLE, "{shape:?}");
        assert_eq!((tuned.cluster, tuned.threads, tuned.vectors, tuned.overlaps), expected, "{shape:?}");
    }
    let active = backward(&silu([1, 128, 1 << 18, 32], 2)).unwrap();
    assert_eq!((active.variant, active.threads), (sys::BOPS_CHANNEL_NORM_COOPERATIVE, 384));
    for (bytes, ahead, back) in [(2, (256, 5, 1), (224, 4, 0)), (4, (224, 4, 0), (256, 5, 0))] {
        let small = h200([64, 2048, 49, 0], bytes);
        for (tuned, expected) in [(forward(&small).unwrap(), ahead), (backward(&small).unwrap(), back)] {
            assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_STRIPE);
            assert_eq!((tuned.threads, tuned.chunks, tuned.stages), expected, "{bytes}");
        }
    }
    let with_residual = extra([64, 2048, 49, 0], 2);
    let relu = Problem { activation: Activation::Relu, ..with_residual };
    for (p, variant) in [(with_residual, sys::BOPS_CHANNEL_NORM_SPLIT), (relu, sys::BOPS_CHANNEL_NORM_STRIPE)] {
        assert_eq!((forward(&p).unwrap().variant, backward(&p).unwrap().variant), (variant, variant));
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
        assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_SINGLE, "{shape:?} {bytes}");
        assert_eq!((tuned.cluster, tuned.threads, tuned.cached), expected, "{shape:?} {bytes}");
    }
    // Registers have no room for a residual or a long activation.
    let with_residual = extra([2, 320, 4096, 32], 2);
    let gelu = Problem { activation: Activation::GeluErf, ..h200([2, 320, 4096, 32], 2) };
    for p in [with_residual, gelu] {
        assert_eq!(forward(&p).unwrap().cached, 0, "{p:?}");
    }
    let apart = forward(&h200([32, 256, 3136, 32], 2)).unwrap();
    assert_eq!((apart.stagger_cycles, apart.multiprocessors, apart.residents), (4014, 132, 4));
    for (shape, bytes, cluster, overlaps) in
        [([64, 512, 784, 0], 2, 2, 0), ([64, 512, 784, 0], 4, 4, 1), ([32, 256, 3136, 32], 4, 2, 1)]
    {
        let halved = forward(&h200(shape, bytes)).unwrap();
        assert_eq!((halved.variant, halved.cluster), (sys::BOPS_CHANNEL_NORM_SINGLE, cluster), "{shape:?}");
        assert_eq!((halved.threads, halved.vectors, halved.overlaps), (224, 14, overlaps), "{shape:?}");
        assert_eq!((halved.stagger_cycles, halved.residents), (4014, 4), "{shape:?}");
    }
}

#[test]
fn a_block_has_a_short_segment_in_registers() {
    let (identity, silu) = (Activation::Identity, Activation::Silu);
    let variants = |shape, bytes, activation| {
        let p = Problem { activation, ..h200(shape, bytes) };
        (forward(&p).unwrap().variant, backward(&p).unwrap().variant)
    };
    let (segment, single) = (sys::BOPS_CHANNEL_NORM_SEGMENT, sys::BOPS_CHANNEL_NORM_SINGLE);
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
    assert_eq!((ahead.threads, ahead.vectors, ahead.grid, ahead.overlaps), (256, 8, 512, 1));
    let back = backward(&h200([8, 64, 16384, 64], 2)).unwrap();
    assert_eq!((back.threads, back.vectors, back.launches, back.workspace_bytes), (512, 4, 2, 512 * 8));
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
        let tuned = forward(&Problem { activation, ..h200(shape, bytes) }).unwrap();
        assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_COOPERATIVE, "{shape:?}");
        let found = (tuned.threads, tuned.vectors, tuned.cluster, tuned.grid, tuned.tensors);
        assert_eq!(found, expected, "{shape:?} {activation:?}");
    }
    // Through SiLU a residual is not fetched.
    let with_residual = Problem { has_extra: true, activation: silu, ..h200([2, 64, 1 << 18, 0], 4) };
    assert_eq!(forward(&with_residual).unwrap().variant, sys::BOPS_CHANNEL_NORM_SPLIT);
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
            let tuned = backward(&Problem { activation, ..h200(shape, bytes) }).unwrap();
            assert_eq!((tuned.variant, tuned.overlaps), (sys::BOPS_CHANNEL_NORM_RELAY, 1), "{shape:?} {bytes}");
            let found = (tuned.threads, tuned.vectors, tuned.cluster, tuned.grid, tuned.tensors);
            assert_eq!(found, expected, "{shape:?} {bytes}");
        }
    }
    let silu = Problem { activation: Activation::Silu, ..h200([64, 64, 12544, 0], 2) };
    for (p, why) in [
        (silu, "its gradient takes registers"),
        (h200([64, 256, 3136, 0], 4), "a cluster's blocks have room for two groups"),
        (h200([64, 2, 12544, 0], 2), "little data"),
        (h200([256, 64, 12544, 0], 4), "nothing else has room on chip"),
    ] {
        let tuned = backward(&p).unwrap();
        assert!(tuned.variant != sys::BOPS_CHANNEL_NORM_RELAY || tuned.tensors == 0, "{why}: {tuned:?}");
    }
}

#[test]
fn residuals_through_a_relu_stay_on_chip() {
    let relu = |shape, bytes| Problem { has_extra: true, activation: Activation::Relu, ..h200(shape, bytes) };
    let (relay, cooperative) = (sys::BOPS_CHANNEL_NORM_RELAY, sys::BOPS_CHANNEL_NORM_COOPERATIVE);
    let single = sys::BOPS_CHANNEL_NORM_SINGLE;
    for (shape, bytes, ahead, back) in [
        ([64, 512, 784, 0], 2, (relay, 384, 10, 1, 3), (single, 224, 7, 4)),
        ([64, 512, 784, 0], 4, (relay, 352, 11, 2, 3), (single, 224, 7, 8)),
        ([64, 256, 3136, 0], 2, (cooperative, 224, 16, 4, 5), (single, 224, 7, 16)),
        ([64, 256, 3136, 0], 4, (cooperative, 224, 8, 16, 5), (cooperative, 288, 12, 16)),
        ([2, 64, 1 << 18, 0], 2, (cooperative, 256, 8, 16, 4), (cooperative, 320, 13, 16)),
        ([64, 64, 12544, 0], 2, (cooperative, 288, 12, 16, 4), (cooperative, 320, 10, 32)),
        ([64, 64, 12544, 0], 4, (cooperative, 320, 5, 64, 4), (cooperative, 352, 9, 64)),
        ([2, 64, 1 << 18, 0], 4, (cooperative, 352, 3, 63, 3), (cooperative, 288, 14, 33)),
        ([32, 128, 784, 0], 4, (relay, 352, 11, 1, 3), (single, 224, 7, 4)),
        ([32, 128, 784, 0], 2, (relay, 384, 5, 1, 3), (single, 416, 4, 2)), // two blocks a multiprocessor
    ] {
        let tuned = forward(&relu(shape, bytes)).unwrap();
        let found = (tuned.variant, tuned.threads, tuned.vectors, tuned.cluster, tuned.chunks);
        assert_eq!(found, ahead, "{shape:?} {bytes}");
        let tuned = backward(&relu(shape, bytes)).unwrap();
        assert_eq!(tuned.tensors, if back.0 == cooperative { 3 } else { 0 }, "{shape:?} {bytes}");
        let found = (tuned.variant, tuned.threads, tuned.vectors, tuned.cluster);
        assert_eq!(found, back, "{shape:?} {bytes}");
    }
    // Few channels leave multiprocessors out; of little data a block holds a channel.
    assert_eq!(forward(&relu([80, 12, 1024, 0], 4)).unwrap().variant, single);
    let small = backward(&relu([32, 256, 256, 0], 2)).unwrap();
    assert_eq!((small.variant, small.cluster, small.overlaps), (single, 1, 1));
    let identity = Problem { activation: Activation::Identity, ..relu([64, 512, 784, 0], 4) };
    assert_eq!(forward(&identity).unwrap().variant, relay);
    assert_eq!(backward(&identity).unwrap().variant, sys::BOPS_CHANNEL_NORM_SPLIT);
}

#[test]
fn what_the_whole_device_does_not_hold_passes_twice() {
    for (shape, bytes, activation, expected) in [
        ([1, 256, 1 << 20, 32], 4, Activation::Identity, (320, 25, 132, 8)),
        ([1, 256, 1 << 20, 32], 4, Activation::Silu, (256, 32, 128, 10)),
        ([1, 96, 1 << 20, 8], 4, Activation::Identity, (256, 47, 131, 25)),
        ([1, 80, 1 << 21, 8], 2, Activation::Identity, (256, 39, 132, 17)),
    ] {
        let tuned = forward(&Problem { activation, ..h200(shape, bytes) }).unwrap();
        assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_COOPERATIVE, "{shape:?}");
        let found = (tuned.threads, tuned.vectors, tuned.grid, tuned.cached);
        assert_eq!(found, expected, "{shape:?} {activation:?}");
    }
    // The L2 does not keep so much of two groups.
    let larger = h200([1, 64, 3 << 20, 8], 4);
    assert_eq!(forward(&larger).unwrap().variant, sys::BOPS_CHANNEL_NORM_SPLIT);
}

#[test]
fn absurd_sizes_are_refused_not_wrapped() {
    assert!(forward(&h200([1 << 20, 1 << 20, 8, 0], 2)).is_err());
    assert!(backward(&h200([1 << 20, 1 << 20, 8, 0], 2)).is_err());
}
