use baracuda_ops_sys as sys;

use super::super::ChannelShape;
use super::*;
use crate::ops::activation::Activation;

fn h200(dims: [u64; 3], groups: u64, element_bytes: u32) -> Problem {
    let [batch, channels, spatial] = dims;
    let row = channels * u64::from(element_bytes);
    Problem {
        shape: ChannelShape { batch, channels, spatial, groups },
        element_bytes,
        accumulator_bytes: element_bytes.max(4),
        vector_bytes: 1 << (row | 16).trailing_zeros(),
        capability: 90,
        multiprocessors: 132,
        shared_bytes: 227 << 10,
        max_cluster: 16,
        has_element_gradients: true,
        has_parameter_gradients: true,
        ..PLAIN
    }
}

const PLAIN: Problem = Problem {
    shape: ChannelShape { batch: 0, channels: 0, spatial: 0, groups: 0 },
    element_bytes: 4,
    accumulator_bytes: 4,
    vector_bytes: 16,
    sample_vector_bytes: 0,
    inference: false,
    has_running: false,
    cumulative: false,
    activation: Activation::Identity,
    has_extra: false,
    has_dx: false,
    has_element_gradients: false,
    has_parameter_gradients: false,
    capability: 80,
    multiprocessors: 108,
    shared_bytes: 163 << 10,
    max_cluster: 1,
};

#[test]
fn large_tensors_are_kept_on_chip_as_far_as_they_fit() {
    let p = Problem { activation: Activation::Relu, ..h200([64, 256, 56 * 56], 0, 2) };
    let tuned = forward(&p, true).unwrap();
    assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_LAST_RESIDENT);
    assert_eq!((tuned.vectors, tuned.chunks, tuned.grid, tuned.stages, tuned.is_merged), (16, 66, 132, 6, 1));
    let p = Problem { cumulative: true, ..h200([256, 256, 112 * 112], 0, 2) };
    let tuned = forward(&p, true).unwrap();
    assert_eq!((tuned.variant, tuned.vectors), (sys::BOPS_CHANNEL_NORM_LAST_COOPERATIVE, 32));
    let tuned = backward(&h200([64, 256, 56 * 56], 0, 2), true).unwrap();
    assert_eq!((tuned.stages, tuned.tensors), (3, 2));
}

#[test]
fn forward_takes_slabs_of_which_most_stays_on_chip() {
    let form = |dims, groups, bytes| {
        let tuned = forward(&h200(dims, groups, bytes), groups == 0).unwrap();
        assert_eq!((tuned.variant, tuned.threads, tuned.launches), (sys::BOPS_CHANNEL_NORM_LAST_SLABS, 256, 1));
        (tuned.vectors, tuned.chunks, tuned.grid, tuned.cached)
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
    let p = Problem { cumulative: true, ..h200([64, 256, 56 * 56], 0, 2) };
    assert_eq!(forward(&p, true).unwrap().variant, sys::BOPS_CHANNEL_NORM_LAST_RESIDENT);
    let p = Problem { has_running: true, ..h200([32, 256, 56 * 56], 256, 2) };
    assert_eq!(forward(&p, false).unwrap().variant, sys::BOPS_CHANNEL_NORM_LAST_COOPERATIVE);
}

#[test]
fn gradients_take_slabs_that_fit_on_chip() {
    let form = |dims, groups, bytes| {
        let p = Problem { has_dx: true, ..h200(dims, groups, bytes) };
        let tuned = backward(&p, groups == 0).unwrap();
        assert_eq!((tuned.variant, tuned.threads, tuned.launches), (sys::BOPS_CHANNEL_NORM_LAST_RESIDENT, 256, 1));
        (tuned.vectors, tuned.chunks, tuned.grid, tuned.cached)
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
    let p = Problem { has_dx: true, ..h200([1, 512, 128 * 128], 2, 2) };
    assert_eq!(backward(&p, false).unwrap().variant, sys::BOPS_CHANNEL_NORM_LAST_COOPERATIVE);
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
                let p = Problem { has_dx: true, capability, shared_bytes, ..h200(dims, groups, element_bytes) };
                let both = [forward(&p, groups == 0).unwrap(), backward(&p, groups == 0).unwrap()];
                let slabs = [sys::BOPS_CHANNEL_NORM_LAST_SLABS, sys::BOPS_CHANNEL_NORM_LAST_RESIDENT];
                for (tuned, _) in both.into_iter().zip(slabs).filter(|(tuned, slabs)| tuned.variant == *slabs) {
                    let width = 16 / u64::from(element_bytes);
                    let tiles = channels / width / u64::from(tuned.vectors);
                    let (chunks, grid) = (u64::from(tuned.chunks), u64::from(tuned.grid));
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
                        grid <= 132 && u64::from(tuned.vectors) * width <= 128 && tuned.vectors >= 8,
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
        assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_LAST_CLUSTER, "{dims:?}: {tuned:?}");
        assert_eq!((tuned.cluster, tuned.chunks, tuned.launches, tuned.workspace_bytes), (1, 1, 1, 0));
        (tuned.vectors, tuned.threads, tuned.stages, tuned.grid)
    };
    assert_eq!(form([4096, 64, 8 * 8], 32, 2), (8, 128, 4, 4096));
    assert_eq!(form([512, 128, 16 * 16], 32, 2), (8, 256, 8, 1024));
    assert_eq!(form([512, 128, 16 * 16], 32, 4), (8, 256, 8, 2048));
    assert_eq!(form([1000, 24, 7 * 7], 24, 2).0, 3);
    assert_eq!(form([264, 64, 131], 64, 2).3, 264);
    // Samples that no two blocks of a multiprocessor hold, and fewer blocks than are resident.
    let variant = |dims| forward(&h200(dims, 32, 2), false).unwrap();
    assert_eq!(variant([64, 256, 32 * 32]).variant, sys::BOPS_CHANNEL_NORM_LAST_SLABS);
    assert!(variant([2, 640, 32 * 32]).cluster > 1);
}

#[test]
fn gradients_of_few_rows_stay_in_registers() {
    let form = |dims, bytes| {
        let p = Problem { has_dx: true, ..h200(dims, 32, bytes) };
        let both = [p, Problem { max_cluster: 1, ..p }].map(|p| backward(&p, false).unwrap());
        both.map(|tuned| {
            assert_eq!((tuned.variant, tuned.launches, tuned.overlaps), (sys::BOPS_CHANNEL_NORM_LAST_ROWS, 1, 1));
            (tuned.vectors, tuned.threads, tuned.stages, tuned.chunks, tuned.cluster, tuned.grid)
        })
    };
    let alone = |tuned| [tuned, tuned];
    // What clusters have the most blocks for, and the same without.
    assert_eq!(form([2, 640, 32 * 32], 2), [(5, 480, 4, 3, 6, 96), (10, 320, 4, 8, 0, 128)]);
    assert_eq!(form([2, 1280, 16 * 16], 2), [(10, 320, 4, 3, 6, 96), (10, 160, 4, 4, 0, 128)]);
    assert_eq!(form([2, 320, 64 * 64], 2), alone((10, 320, 8, 16, 0, 128)));
    assert_eq!(form([2, 1280, 16 * 16], 4)[1], (10, 320, 4, 2, 0, 128));
    assert_eq!(form([1, 640, 64 * 64], 2), alone((10, 320, 8, 16, 0, 128)));
    // Few blocks, short groups, and rows that no registers hold.
    let variant = |dims| backward(&Problem { has_dx: true, ..h200(dims, 32, 2) }, false).unwrap().variant;
    assert_eq!(variant([1, 320, 64]), sys::BOPS_CHANNEL_NORM_LAST_ROWS);
    assert_eq!(variant([1, 64, 64]), sys::BOPS_CHANNEL_NORM_LAST_CLUSTER);
    assert_eq!(variant([1, 512, 128 * 128]), sys::BOPS_CHANNEL_NORM_LAST_RESIDENT);
}

#[test]
fn forward_of_few_rows_stays_in_registers() {
    let form = |dims, bytes| {
        let plain = h200(dims, 32, bytes);
        let tuned = forward(&plain, false).unwrap();
        assert_eq!((tuned.variant, tuned.launches, tuned.workspace_bytes), (sys::BOPS_CHANNEL_NORM_LAST_ROWS, 1, 0));
        assert_eq!(forward(&Problem { has_extra: true, activation: Activation::Silu, ..plain }, false), Ok(tuned));
        assert_eq!(tuned.cluster, tuned.chunks);
        (tuned.vectors, tuned.threads, tuned.stages, tuned.chunks, tuned.grid)
    };
    assert_eq!(form([2, 320, 64 * 64], 2), (5, 480, 8, 6, 96));
    assert_eq!(form([2, 640, 32 * 32], 2), (10, 480, 4, 6, 96));
    assert_eq!(form([2, 1280, 16 * 16], 2), (5, 160, 4, 2, 128));
    assert_eq!(form([2, 1280, 16 * 16], 4), (10, 320, 4, 2, 128));
    // Running statistics of samples, vectors with channels of three groups, more samples than blocks.
    let variant = |p: Problem| forward(&p, false).unwrap().variant;
    let p = Problem { has_running: true, ..h200([2, 640, 32 * 32], 32, 2) };
    assert_eq!(variant(p), sys::BOPS_CHANNEL_NORM_LAST_COOPERATIVE);
    assert_eq!(variant(h200([2, 96, 32 * 32], 32, 2)), sys::BOPS_CHANNEL_NORM_LAST_CLUSTER);
    assert_eq!(variant(h200([4096, 64, 8 * 8], 8, 2)), sys::BOPS_CHANNEL_NORM_LAST_CLUSTER);
}

#[test]
fn registers_hold_all_rows() {
    for (channels, groups) in [(64, 8), (96, 4), (320, 32), (1280, 32), (1280, 1), (136, 17), (24, 8), (2048, 512)] {
        for (samples, rows) in [(1, 1), (2, 49), (3, 333), (16, 1000), (2, 4097), (64, 64), (132, 640), (200, 9)] {
            for element_bytes in [2, 4] {
                let p = Problem { has_dx: true, ..h200([samples, channels, rows], groups, element_bytes) };
                let alone = Problem { max_cluster: 1, ..p };
                let all = [forward(&p, false), backward(&p, false), backward(&alone, false)].map(Result::unwrap);
                for tuned in all.into_iter().filter(|tuned| tuned.variant == sys::BOPS_CHANNEL_NORM_LAST_ROWS) {
                    let (vectors, threads) = (u64::from(tuned.vectors), u64::from(tuned.threads));
                    let (chunks, lanes) = (u64::from(tuned.chunks), threads / vectors);
                    let of_tile = vectors * 16 / u64::from(element_bytes);
                    assert!(u64::from(tuned.stages) * lanes * chunks >= rows, "{p:?}: {tuned:?}");
                    assert!(threads.is_multiple_of(32) && threads.is_multiple_of(4 * vectors), "{p:?}: {tuned:?}");
                    let most = [640, if tuned.cluster > 0 { 480 } else { 320 }][usize::from(tuned.stages > 4)];
                    assert!(threads <= most && tuned.stages <= 8, "{p:?}: {tuned:?}");
                    assert!(channels.is_multiple_of(of_tile) && of_tile.is_multiple_of(channels / groups));
                    assert!(of_tile <= 512 && tuned.grid <= 132, "{p:?}: {tuned:?}");
                    assert_eq!(u64::from(tuned.grid), samples * channels / of_tile * chunks);
                    if tuned.tensors == 0 {
                        assert!((channels / groups).div_ceil(16 / u64::from(element_bytes)) < 16);
                    }
                    if tuned.cluster > 0 {
                        let together = if tuned.tensors > 0 { samples } else { 1 };
                        assert_eq!(u64::from(tuned.cluster), together * chunks);
                        assert!(tuned.cluster <= 16 && tuned.stages >= 4, "{p:?}: {tuned:?}");
                        assert!(lanes < 16 || lanes.is_multiple_of(16), "{p:?}: {tuned:?}");
                    } else {
                        assert!(samples * chunks * 64 >= of_tile, "{p:?}: {tuned:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn small_tensors_are_held_by_clusters_of_whole_groups() {
    for dims in [[2, 320, 64 * 64], [2, 640, 32 * 32], [2, 1280, 16 * 16]] {
        let p = Problem { activation: Activation::Silu, ..h200(dims, 32, 2) };
        let tuned = backward(&p, false).unwrap();
        assert_eq!(tuned.variant, sys::BOPS_CHANNEL_NORM_LAST_CLUSTER);
        assert_eq!((tuned.launches, tuned.workspace_bytes), (1, 0));
        let channels = u64::from(tuned.vectors) * 8;
        assert!(channels.is_multiple_of(dims[1] / 32) && dims[1].is_multiple_of(channels));
        assert_eq!(u64::from(tuned.grid), 2 * dims[1] / channels * u64::from(tuned.chunks));
    }
    let tuned = backward(&h200([64, 2048, 49], 0, 2), true).unwrap();
    assert_eq!((tuned.variant, tuned.threads, tuned.stages), (sys::BOPS_CHANNEL_NORM_LAST_CLUSTER, 448, 14));
    let tuned = forward(&h200([64, 2048, 49], 0, 4), true).unwrap();
    assert_eq!((tuned.vectors, tuned.threads, tuned.stages, tuned.chunks), (8, 448, 28, 2));
}

#[test]
fn clusters_hold_all_rows_in_what_shared_memory_they_have() {
    for (channels, groups) in [(8, 0), (24, 3), (320, 32), (96, 4), (1280, 32), (2048, 0), (136, 17), (256, 1)] {
        for (samples, rows) in [(1, 1), (2, 49), (3, 333), (16, 1000), (2, 4096), (64, 64)] {
            for element_bytes in [2, 4] {
                let p = h200([samples, channels, rows], groups, element_bytes);
                for tuned in [forward(&p, groups == 0).unwrap(), backward(&p, groups == 0).unwrap()] {
                    if tuned.variant != sys::BOPS_CHANNEL_NORM_LAST_CLUSTER {
                        continue;
                    }
                    let rows = if groups == 0 { samples * rows } else { rows };
                    let lanes = u64::from(tuned.threads / tuned.vectors);
                    assert!(u64::from(tuned.chunks * tuned.stages) * lanes >= rows, "{p:?}: {tuned:?}");
                    assert!(tuned.threads <= 512 && tuned.threads.is_multiple_of(32), "{p:?}: {tuned:?}");
                    assert!(tuned.vectors * (16 / element_bytes) <= tuned.threads.min(256), "{p:?}: {tuned:?}");
                    assert!(tuned.cluster <= 16 && tuned.cluster.is_multiple_of(tuned.chunks));
                    assert!(tuned.grid.is_multiple_of(tuned.cluster));
                    let room = tuned.stages * tuned.threads * 16 * tuned.tensors.max(1);
                    assert!(room < p.shared_bytes, "{p:?}: {tuned:?}");
                }
            }
        }
    }
}

#[test]
fn what_has_no_vectors_is_split() {
    let odd = forward(&h200([3, 17, 300], 0, 2), true).unwrap();
    assert_eq!((odd.variant, odd.vec_bytes, odd.vectors), (sys::BOPS_CHANNEL_NORM_LAST_SPLIT, 2, 17));
    let wide = forward(&h200([3, 64, 300], 0, 8), true).unwrap();
    assert_eq!((wide.variant, wide.vec_bytes, wide.launches), (sys::BOPS_CHANNEL_NORM_LAST_SPLIT, 8, 3));
}

#[test]
fn running_statistics_leave_nothing_to_merge() {
    let p = Problem { inference: true, ..h200([64, 256, 56 * 56], 0, 2) };
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
                    let all = if tuned.is_merged == 1 { rows * samples } else { rows };
                    let each = all.div_ceil(u64::from(tuned.chunks));
                    assert!((u64::from(tuned.chunks) - 1) * each < all, "{p:?}: {tuned:?}");
                    assert!(tuned.grid > 0 && tuned.threads / tuned.vectors > 0);
                }
            }
        }
    }
}
