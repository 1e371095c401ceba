use super::super::tests::{Found, asked, on_h200};
use super::super::{BackwardFields, Form, ForwardFields};
use super::*;
use crate::ops::activation::Activation;

/// What is chosen where the rows of all samples lie at one stride, or do not.
fn forward(p: &ChannelProblem, is_merged: bool) -> Option<Found> {
    super::super::tests::forward(&ChannelProblem { is_merged, ..*p })
}

fn backward(p: &ChannelProblem, is_merged: bool) -> Option<Found> {
    super::super::tests::backward(&ChannelProblem { is_merged, ..*p })
}

fn h200([batch, channels, spatial]: [u64; 3], groups: u64, element_bytes: u64) -> ChannelProblem {
    on_h200(ChannelOrder::ChannelsLast, [batch, channels, spatial, groups], element_bytes)
}

#[test]
fn large_tensors_are_kept_on_chip_as_far_as_they_fit() {
    let p = ChannelProblem { activation: Activation::Relu, ..h200([64, 256, 56 * 56], 0, 2) };
    let tuned = forward(&p, true).unwrap();
    assert_eq!(tuned.form, Form::ChannelsLastResident);
    assert_eq!(
        (
            tuned.at("tile_vectors"),
            tuned.at("chunks"),
            tuned.at("blocks"),
            tuned.at("ring_batches"),
            tuned.at("is_merged")
        ),
        (16, 66, 132, 6, 1)
    );
    let p = ChannelProblem { cumulative: true, ..h200([256, 256, 112 * 112], 0, 2) };
    let tuned = forward(&p, true).unwrap();
    assert_eq!((tuned.form, tuned.at("tile_vectors")), (Form::ChannelsLastCooperative, 32));
    let tuned = backward(&h200([64, 256, 56 * 56], 0, 2), true).unwrap();
    assert_eq!((tuned.at("ring_batches"), tuned.at("tensors")), (3, 2));
}

#[test]
fn forward_takes_slabs_of_which_most_stays_on_chip() {
    let form = |dims, groups, bytes| {
        let tuned = forward(&h200(dims, groups, bytes), groups == 0).unwrap();
        assert_eq!((tuned.form, tuned.at("threads"), tuned.launches), (Form::ChannelsLastSlabs, 256, 1));
        (tuned.at("tile_vectors"), tuned.at("chunks"), tuned.at("blocks"), tuned.at("cached_batches"))
    };
    // Two tiles of 256 bytes, one after another; four of them; as many at once.
    assert_eq!(form([64, 256, 56 * 56], 0, 2), (16, 132, 132, 1));
    assert_eq!(form([64, 256, 56 * 56], 0, 4), (16, 132, 132, 1));
    assert_eq!(form([64, 512, 28 * 28], 0, 2), (16, 33, 132, 1));
    assert_eq!(form([64, 512, 28 * 28], 0, 4), (16, 33, 132, 1));
    // Rows of 128 bytes, and halves of rows of 256.
    assert_eq!(form([64, 64, 112 * 112], 0, 2), (8, 132, 132, 16));
    assert_eq!(form([256, 64, 56 * 56], 0, 4), (8, 132, 132, 16));
    assert_eq!(form([2, 64, 512 * 512], 0, 2), (8, 132, 132, 9));
    assert_eq!(form([2, 64, 512 * 512], 0, 4), (8, 132, 132, 9));
    // Groups: all samples at once, whole rows, half of them.
    assert_eq!(form([32, 256, 56 * 56], 32, 2), (16, 2, 128, 2));
    assert_eq!(form([1, 512, 128 * 128], 32, 2), (16, 33, 132, 0));
    assert_eq!(form([1, 128, 512 * 512], 32, 2), (16, 132, 132, 9));
    assert_eq!(form([1, 256, 1024 * 1024], 32, 2), (16, 132, 132, 16));
    // Samples that are more than there are blocks.
    assert_eq!(form([264, 32, 1450], 32, 4), (8, 1, 132, 0));
    assert_eq!(form([264, 64, 520], 64, 2), (8, 1, 132, 0));
    // Rows that are read again.
    assert_eq!(form([8, 64, 26_000], 0, 4), (16, 132, 132, 2));
    // What their blocks would have to wait for: the count of batches, running statistics of samples.
    let p = ChannelProblem { cumulative: true, ..h200([64, 256, 56 * 56], 0, 2) };
    assert_eq!(forward(&p, true).unwrap().form, Form::ChannelsLastResident);
    let p = ChannelProblem { has_running: true, ..h200([32, 256, 56 * 56], 256, 2) };
    assert_eq!(forward(&p, false).unwrap().form, Form::ChannelsLastCooperative);
}

#[test]
fn gradients_take_slabs_that_fit_on_chip() {
    let form = |dims, groups, bytes| {
        let p = ChannelProblem { has_dx: true, ..h200(dims, groups, bytes) };
        let tuned = backward(&p, groups == 0).unwrap();
        assert_eq!((tuned.form, tuned.at("threads"), tuned.launches), (Form::ChannelsLastSlabs, 256, 1));
        (tuned.at("tile_vectors"), tuned.at("chunks"), tuned.at("blocks"), tuned.at("cached_batches"))
    };
    // Tiles of 128 bytes, one after another.
    assert_eq!(form([64, 256, 56 * 56], 0, 2), (8, 132, 132, 1));
    assert_eq!(form([64, 256, 56 * 56], 0, 4), (8, 132, 132, 0));
    assert_eq!(form([1, 128, 512 * 512], 32, 2), (8, 132, 132, 9));
    // Whole rows, of which most are read again.
    assert_eq!(form([64, 64, 112 * 112], 0, 2), (8, 132, 132, 9));
    assert_eq!(form([64, 64, 112 * 112], 0, 4), (16, 132, 132, 0));
    assert_eq!(form([2, 64, 512 * 512], 0, 4), (16, 132, 132, 0));
    assert_eq!(form([1, 256, 1024 * 1024], 32, 2), (16, 66, 132, 9));
    // Two tiles of 256 bytes at a time; all at once; half of the samples.
    assert_eq!(form([64, 512, 28 * 28], 0, 4), (16, 66, 132, 0));
    assert_eq!(form([1, 512, 128 * 128], 32, 2), (16, 33, 132, 0));
    assert_eq!(form([64, 2048, 49], 0, 4), (16, 4, 128, 1));
    assert_eq!(form([32, 256, 56 * 56], 32, 2), (16, 4, 128, 2));
    // A group that no tile holds.
    let p = ChannelProblem { has_dx: true, ..h200([1, 512, 128 * 128], 2, 2) };
    assert_eq!(backward(&p, false).unwrap().form, Form::ChannelsLastCooperative);
}

#[test]
fn slabs_are_whole() {
    for channels in [64, 192, 320, 512, 1024, 4096] {
        for (samples, rows, groups) in
            [(1, 16384, 32), (2, 16384, 32), (6, 5000, 16), (32, 3136, 32), (300, 784, 0), (1, 70_001, 0)]
        {
            for (element_bytes, capability, shared_bytes) in
                [(2, 90, 227 << 10), (4, 90, 227 << 10), (2, 80, 163 << 10)]
            {
                let dims = [samples, channels, rows];
                let p = ChannelProblem { has_dx: true, capability, shared_bytes, ..h200(dims, groups, element_bytes) };
                let both = [forward(&p, groups == 0).unwrap(), backward(&p, groups == 0).unwrap()];
                for tuned in both.into_iter().filter(|tuned| tuned.form == Form::ChannelsLastSlabs) {
                    let width = 16 / element_bytes;
                    let tiles = channels / width / tuned.at("tile_vectors");
                    let (chunks, grid) = (tuned.at("chunks"), tuned.at("blocks"));
                    let samples = if groups == 0 { 1 } else { samples };
                    if grid >= chunks * tiles {
                        assert!(
                            grid.is_multiple_of(chunks * tiles) && samples.is_multiple_of(grid / chunks / tiles),
                            "{p:?}: {tuned:?}"
                        );
                    } else {
                        assert!(grid.is_multiple_of(chunks) && tiles.is_multiple_of(grid / chunks), "{p:?}: {tuned:?}");
                    }
                    assert!(
                        grid <= 132 && tuned.at("tile_vectors") * width <= 128 && tuned.at("tile_vectors") >= 8,
                        "{p:?}: {tuned:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn many_small_samples_take_a_block_each() {
    let form = |dims, groups, bytes| {
        let tuned = forward(&h200(dims, groups, bytes), false).unwrap();
        assert_eq!(tuned.form, Form::ChannelsLastCluster, "{dims:?}: {tuned:?}");
        assert_eq!(
            (tuned.at("cluster_blocks"), tuned.at("chunks"), tuned.launches, tuned.workspace_bytes),
            (1, 1, 1, 0)
        );
        (tuned.at("tile_vectors"), tuned.at("threads"), tuned.at("thread_rows"), tuned.at("blocks"))
    };
    assert_eq!(form([4096, 64, 8 * 8], 32, 2), (8, 128, 4, 4096));
    assert_eq!(form([512, 128, 16 * 16], 32, 2), (8, 256, 8, 1024));
    assert_eq!(form([512, 128, 16 * 16], 32, 4), (8, 256, 8, 2048));
    assert_eq!(form([1000, 24, 7 * 7], 24, 2).0, 3);
    assert_eq!(form([264, 64, 131], 64, 2).3, 264);
    // Samples that no two blocks of an SM hold, and fewer blocks than are resident.
    let variant = |dims| forward(&h200(dims, 32, 2), false).unwrap();
    assert_eq!(variant([64, 256, 32 * 32]).form, Form::ChannelsLastSlabs);
    assert!(variant([2, 640, 32 * 32]).at("cluster_blocks") > 1);
}

#[test]
fn gradients_of_few_rows_stay_in_registers() {
    let form = |dims, bytes| {
        let p = ChannelProblem { has_dx: true, ..h200(dims, 32, bytes) };
        let both = [p, ChannelProblem { max_cluster: 1, ..p }].map(|p| backward(&p, false).unwrap());
        both.map(|tuned| {
            assert_eq!((tuned.form, tuned.launches, tuned.at("overlaps")), (Form::ChannelsLastRows, 1, 1));
            (
                tuned.at("tile_vectors"),
                tuned.at("threads"),
                tuned.at("thread_rows"),
                tuned.at("chunks"),
                tuned.at("cluster_blocks"),
            )
        })
    };
    let alone = |tuned| [tuned, tuned];
    // What clusters have the most blocks for, and the same without.
    assert_eq!(form([2, 640, 32 * 32], 2), [(5, 480, 4, 3, 6), (10, 320, 4, 8, 0)]);
    assert_eq!(form([2, 1280, 16 * 16], 2), [(10, 320, 4, 3, 6), (10, 160, 4, 4, 0)]);
    assert_eq!(form([2, 320, 64 * 64], 2), alone((10, 320, 8, 16, 0)));
    assert_eq!(form([2, 1280, 16 * 16], 4)[1], (10, 320, 4, 2, 0));
    assert_eq!(form([1, 640, 64 * 64], 2), alone((10, 320, 8, 16, 0)));
    // Few blocks, short groups, and rows that no registers hold.
    let variant = |dims| backward(&ChannelProblem { has_dx: true, ..h200(dims, 32, 2) }, false).unwrap().form;
    assert_eq!(variant([1, 320, 64]), Form::ChannelsLastRows);
    assert_eq!(variant([1, 64, 64]), Form::ChannelsLastCluster);
    assert_eq!(variant([1, 512, 128 * 128]), Form::ChannelsLastSlabs);
}

#[test]
fn forward_of_few_rows_stays_in_registers() {
    let form = |dims, bytes| {
        let plain = h200(dims, 32, bytes);
        let tuned = forward(&plain, false).unwrap();
        assert_eq!((tuned.form, tuned.launches, tuned.workspace_bytes), (Form::ChannelsLastRows, 1, 0));
        assert_eq!(
            forward(&ChannelProblem { has_extra: true, activation: Activation::Silu, ..plain }, false).as_ref(),
            Some(&tuned)
        );
        assert_eq!(tuned.at("cluster_blocks"), tuned.at("chunks"));
        (tuned.at("tile_vectors"), tuned.at("threads"), tuned.at("thread_rows"), tuned.at("chunks"))
    };
    assert_eq!(form([2, 320, 64 * 64], 2), (5, 480, 8, 6));
    assert_eq!(form([2, 640, 32 * 32], 2), (10, 480, 4, 6));
    assert_eq!(form([2, 1280, 16 * 16], 2), (5, 160, 4, 2));
    assert_eq!(form([2, 1280, 16 * 16], 4), (10, 320, 4, 2));
    // Running statistics of samples, vectors with channels of three groups, more samples than blocks.
    let variant = |p: ChannelProblem| forward(&p, false).unwrap().form;
    let p = ChannelProblem { has_running: true, ..h200([2, 640, 32 * 32], 32, 2) };
    assert_eq!(variant(p), Form::ChannelsLastCooperative);
    assert_eq!(variant(h200([2, 96, 32 * 32], 32, 2)), Form::ChannelsLastCluster);
    assert_eq!(variant(h200([4096, 64, 8 * 8], 8, 2)), Form::ChannelsLastCluster);
}

#[test]
fn registers_hold_all_rows() {
    for (channels, groups) in [(64, 8), (96, 4), (320, 32), (1280, 32), (1280, 1), (136, 17), (24, 8), (2048, 512)] {
        for (samples, rows) in [(1, 1), (2, 49), (3, 333), (16, 1000), (2, 4097), (64, 64), (132, 640), (200, 9)] {
            for element_bytes in [2, 4] {
                let p = ChannelProblem { has_dx: true, ..h200([samples, channels, rows], groups, element_bytes) };
                let rows_of = |p: &ChannelProblem| {
                    let form = Form::ChannelsLastRows;
                    [(1, asked::<ForwardFields>(form, p)), (2, asked::<BackwardFields>(form, p))]
                };
                let pinned = ChannelProblem { is_pinned: true, ..p };
                let alone = ChannelProblem { max_cluster: 1, ..p };
                let all = [p, pinned, alone].iter().flat_map(rows_of).collect::<Vec<_>>();
                for (pass, tuned) in all.into_iter().filter_map(|(pass, found)| Some((pass, found.ok()?))) {
                    let (vectors, threads, thread_rows) =
                        (tuned.at("tile_vectors"), tuned.at("threads"), tuned.at("thread_rows"));
                    let (chunks, lanes, cluster) = (tuned.at("chunks"), threads / vectors, tuned.at("cluster_blocks"));
                    let of_tile = vectors * 16 / element_bytes;
                    assert!(thread_rows * lanes * chunks >= rows, "{p:?}: {tuned:?}");
                    assert!(threads.is_multiple_of(32) && threads.is_multiple_of(4 * vectors), "{p:?}: {tuned:?}");
                    let most = [640, if cluster > 0 { 480 } else { 320 }][usize::from(thread_rows > 4)];
                    assert!(threads <= most && thread_rows <= 8, "{p:?}: {tuned:?}");
                    assert!(channels.is_multiple_of(of_tile) && of_tile.is_multiple_of(channels / groups));
                    assert!(of_tile <= 512, "{p:?}: {tuned:?}");
                    if pass == 1 {
                        assert!((channels / groups).div_ceil(16 / element_bytes) < 16);
                    }
                    if cluster > 0 {
                        let together = if pass == 2 { samples } else { 1 };
                        assert_eq!(cluster, together * chunks);
                        assert!(cluster <= 16 && thread_rows >= 4, "{p:?}: {tuned:?}");
                        assert!(lanes < 16 || lanes.is_multiple_of(16), "{p:?}: {tuned:?}");
                    } else {
                        assert!(samples * chunks * 64 >= of_tile, "{p:?}: {tuned:?}");
                        assert!(samples * channels / of_tile * chunks <= 132, "{p:?}: {tuned:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn small_tensors_are_held_by_clusters_of_whole_groups() {
    for dims in [[2, 320, 64 * 64], [2, 640, 32 * 32], [2, 1280, 16 * 16]] {
        let p = ChannelProblem { activation: Activation::Silu, ..h200(dims, 32, 2) };
        let tuned = backward(&p, false).unwrap();
        assert_eq!(tuned.form, Form::ChannelsLastCluster);
        assert_eq!((tuned.launches, tuned.workspace_bytes), (1, 0));
        let channels = tuned.at("tile_vectors") * 8;
        assert!(channels.is_multiple_of(dims[1] / 32) && dims[1].is_multiple_of(channels));
        assert_eq!(tuned.at("blocks"), 2 * dims[1] / channels * tuned.at("chunks"));
    }
    let tuned = backward(&h200([64, 2048, 49], 0, 2), true).unwrap();
    assert_eq!((tuned.form, tuned.at("threads"), tuned.at("thread_rows")), (Form::ChannelsLastCluster, 448, 14));
    let tuned = forward(&h200([64, 2048, 49], 0, 4), true).unwrap();
    assert_eq!(
        (tuned.at("tile_vectors"), tuned.at("threads"), tuned.at("thread_rows"), tuned.at("chunks")),
        (8, 448, 28, 2)
    );
}

#[test]
fn clusters_hold_all_rows_in_what_shared_memory_they_have() {
    for (channels, groups) in [(8, 0), (24, 3), (320, 32), (96, 4), (1280, 32), (2048, 0), (136, 17), (256, 1)] {
        for (samples, rows) in [(1, 1), (2, 49), (3, 333), (16, 1000), (2, 4096), (64, 64)] {
            for element_bytes in [2, 4] {
                let p = h200([samples, channels, rows], groups, element_bytes);
                let is_merged = groups == 0;
                for p in [false, true].map(|is_pinned| ChannelProblem { is_merged, is_pinned, ..p }) {
                    let form = Form::ChannelsLastCluster;
                    let both = [asked::<ForwardFields>(form, &p), asked::<BackwardFields>(form, &p)];
                    for tuned in both.into_iter().flatten() {
                        let rows = if is_merged { samples * rows } else { rows };
                        let (vectors, threads, cluster) =
                            (tuned.at("tile_vectors"), tuned.at("threads"), tuned.at("cluster_blocks"));
                        assert!(
                            tuned.at("chunks") * tuned.at("thread_rows") * (threads / vectors) >= rows,
                            "{p:?}: {tuned:?}"
                        );
                        assert!(threads <= 512 && threads.is_multiple_of(32), "{p:?}: {tuned:?}");
                        assert!(vectors * 16 / element_bytes <= threads.min(256), "{p:?}: {tuned:?}");
                        assert!(cluster <= 16 && cluster.is_multiple_of(tuned.at("chunks")));
                        assert!(tuned.at("blocks").is_multiple_of(cluster));
                        let room = tuned.at("thread_rows") * threads * 16 * tuned.at("tensors");
                        assert!(room < p.shared_bytes, "{p:?}: {tuned:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_has_no_vectors_is_split() {
    let odd = forward(&h200([3, 17, 300], 0, 2), true).unwrap();
    assert_eq!((odd.form, odd.at("access_bytes"), odd.at("tile_vectors")), (Form::ChannelsLastSplit, 2, 17));
    let wide = forward(&h200([3, 64, 300], 0, 8), true).unwrap();
    assert_eq!((wide.form, wide.at("access_bytes"), wide.launches), (Form::ChannelsLastSplit, 8, 3));
}

#[test]
fn running_statistics_leave_nothing_to_merge() {
    let p = ChannelProblem { inference: true, ..h200([64, 256, 56 * 56], 0, 2) };
    let tuned = forward(&p, true).unwrap();
    assert_eq!((tuned.launches, tuned.workspace_bytes), (1, 0));
    assert_eq!(backward(&p, true).unwrap().launches, 2);
}

#[test]
fn every_chunk_has_rows() {
    for rows in [1, 2, 49, 131, 133, 1000, 262_144] {
        for groups in [0, 1, 8] {
            for samples in [1, 3, 200] {
                let p = h200([samples, 64, rows], groups, 4);
                for tuned in [forward(&p, groups == 0).unwrap(), backward(&p, false).unwrap()] {
                    let is_merged = tuned.or_zero("is_merged") == 1;
                    let all = if is_merged { rows * samples } else { rows };
                    let each = all.div_ceil(tuned.at("chunks"));
                    assert!((tuned.at("chunks") - 1) * each < all, "{p:?}: {tuned:?}");
                    assert!(tuned.at("threads") / tuned.at("tile_vectors") > 0);
                }
            }
        }
    }
}
