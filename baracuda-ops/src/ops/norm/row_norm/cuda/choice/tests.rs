use baracuda_ops_sys as sys;

use super::backward::{LONGEST_CHAIN, column_sum_chain, teams_for};
use super::*;

fn h200(rows: u64, cols: u64, element_bytes: u32) -> Problem {
    Problem {
        rows,
        cols,
        element_bytes,
        accumulator_bytes: element_bytes.max(4),
        parameter_bytes: element_bytes,
        vector_bytes: 1 << (16 | cols.wrapping_mul(u64::from(element_bytes))).trailing_zeros(),
        parameter_align_bytes: 16,
        has_one_stride: true,
        is_centered: true,
        capability: 90,
        multiprocessors: 132,
        shared_bytes: 232_448,
        max_cluster: 16,
        has_residual: false,
        has_parameter_gradients: true,
    }
}

/// Every device, option and shape that a test walks over.
fn problems() -> impl Iterator<Item = Problem> {
    let cols =
        (1..600).chain([768, 1000, 1024, 2048, 3072, 4096, 4097, 5120, 6144, 8192, 9216, 12288, 16384, 24576, 32768]);
    let cols = cols.chain([49152, 65536, 98304, 131_072, 262_144, 1 << 24]);
    let devices = [(16, 232_448, 90), (8, 232_448, 103), (8, 101_376, 120), (1, 166_912, 80), (1, 101_376, 89)];
    cols.flat_map(move |cols| {
        devices.into_iter().flat_map(move |(max_cluster, shared_bytes, capability)| {
            [2, 4, 8].into_iter().flat_map(move |element_bytes| {
                [1, 5, 300, 100_000].into_iter().flat_map(move |rows| {
                    (0..16).map(move |bits| Problem {
                        parameter_bytes: if bits & 8 == 0 { element_bytes } else { element_bytes.max(4) },
                        max_cluster,
                        shared_bytes,
                        capability,
                        is_centered: bits & 1 == 0,
                        has_residual: bits & 2 != 0,
                        has_one_stride: bits & 4 == 0,
                        ..h200(rows, cols, element_bytes)
                    })
                })
            })
        })
    })
}

#[test]
fn every_element_of_every_row_has_a_thread_in_forward() {
    for p in problems() {
        let tuned = forward(&p).unwrap();
        let most = if p.kind() == 3 && tuned.vectors == 4 && tuned.cluster == 1 { 1024 } else { 512 };
        assert!(
            tuned.threads <= most && tuned.threads.is_multiple_of(32) && tuned.cluster <= p.max_cluster,
            "{p:?} {tuned:?}"
        );
        let held = u64::from(tuned.cluster * tuned.threads_per_row * tuned.vectors) * p.elements(tuned.vec_bytes);
        match tuned.variant {
            sys::BOPS_ROW_NORM_RESIDENT => {
                let widths: &[u32] = match (tuned.vec_bytes, p.element_bytes) {
                    (16, 2) => &[2, 4],
                    (16, _) => &[2, 4, 8],
                    _ => &[16],
                };
                assert!(widths.contains(&tuned.vectors) && held >= p.cols, "{p:?} {tuned:?}");
                assert!(tuned.cluster == 1 || tuned.vectors == 8, "{p:?} {tuned:?}");
                assert!(u64::from(tuned.grid / tuned.cluster * tuned.threads / tuned.threads_per_row) >= p.rows);
            }
            sys::BOPS_ROW_NORM_RING => {
                assert!(held >= p.cols && tuned.vec_bytes == 16 && p.max_cluster > 1, "{p:?} {tuned:?}");
                assert!(matches!((tuned.vectors, tuned.stages), (8, 21) | (4, 13)), "{tuned:?}");
                assert!(tuned.vectors == 8 || p.kind() == 1, "{p:?} {tuned:?}");
                assert!([0, p.element_bytes].contains(&p.parameter_bytes), "{p:?} {tuned:?}");
            }
            sys::BOPS_ROW_NORM_SHARED => assert!(held >= p.cols && tuned.threads == 256, "{p:?} {tuned:?}"),
            sys::BOPS_ROW_NORM_PACKED => {
                let block_rows = u64::from(tuned.threads / tuned.threads_per_row);
                assert!(held == p.cols && u64::from(tuned.grid) * block_rows >= p.rows, "{p:?} {tuned:?}");
                assert!(p.element_bytes == 2 && p.is_centered && tuned.overlaps < 2, "{p:?} {tuned:?}");
                if tuned.threads_per_row == 32 {
                    assert!(block_rows == 2 && (3..=8).contains(&tuned.vectors), "{p:?} {tuned:?}");
                    assert!(p.has_one_stride && !p.has_residual, "{p:?} {tuned:?}");
                } else {
                    assert!(block_rows == 1 && tuned.vectors == 4 && tuned.threads >= 64, "{p:?} {tuned:?}");
                }
            }
            _ => assert!(u64::from(tuned.chunks) * CHUNK * p.elements(tuned.vec_bytes) >= p.cols),
        }
    }
}

#[test]
fn blocks_of_many_threads_have_whole_rows() {
    for p in problems() {
        let tuned = forward(&p).unwrap();
        let held = u64::from(tuned.threads * tuned.vectors) * p.elements(tuned.vec_bytes);
        assert!(tuned.threads <= 512 || held == p.cols, "{p:?} {tuned:?}");
    }
    let many = Problem { is_centered: false, ..h200(4096, 16384, 4) };
    assert_eq!(forward(&many).unwrap().threads, 1024);
    assert_eq!(forward(&Problem { rows: 264, ..many }).unwrap().cluster, 2);
}

#[test]
fn whole_rows_of_two_bytes_stay_as_they_came() {
    let p = h200(4096, 16384, 2);
    assert_eq!(forward(&p).unwrap().variant, sys::BOPS_ROW_NORM_PACKED);
    assert_eq!(forward(&p).unwrap().threads, 512);
    assert_eq!(forward(&Problem { rows: 1, ..p }).unwrap().variant, sys::BOPS_ROW_NORM_PACKED);
    for other in [
        Problem { parameter_bytes: 4, ..p },
        Problem { is_centered: false, ..p },
        h200(4096, 16384 + 8, 2),
        h200(64, 8192, 2),
    ] {
        assert_ne!(forward(&other).unwrap().variant, sys::BOPS_ROW_NORM_PACKED, "{other:?}");
    }
}

#[test]
fn a_warp_holds_short_rows_that_fill_it() {
    let vectors = |p: &Problem| {
        let tuned = forward(p).unwrap();
        (tuned.variant == sys::BOPS_ROW_NORM_PACKED && tuned.threads_per_row == 32).then_some(tuned.vectors)
    };
    for (cols, held) in
        [(512, None), (768, Some(3)), (1024, Some(4)), (1280, Some(5)), (1536, Some(6)), (2048, Some(8))]
    {
        assert_eq!(vectors(&h200(32768, cols, 2)), held, "{cols}");
        assert_eq!(vectors(&h200(1200, cols, 2)), held, "{cols}");
        assert_eq!(vectors(&h200(1000, cols, 2)), None, "{cols}");
    }
    // Some waves: other blocks serve rows that they hold without a rest.
    assert_eq!(vectors(&h200(4096, 1024, 2)), None);
    assert_eq!(vectors(&h200(4096, 768, 2)), Some(3));
    let p = h200(32768, 1024, 2);
    for other in [
        Problem { parameter_bytes: 4, ..p },
        Problem { is_centered: false, ..p },
        Problem { has_residual: true, ..p },
        Problem { has_one_stride: false, ..p },
        h200(32768, 1024 + 8, 2),
        h200(32768, 1024, 4),
    ] {
        assert_eq!(vectors(&other), None, "{other:?}");
    }
}

#[test]
fn teams_are_as_many_as_their_turns_need() {
    assert_eq!([teams_for(4096, 132, true), teams_for(4096, 132, false)], [128, 132]);
    assert_eq!([teams_for(133, 132, true), teams_for(100, 132, true)], [132, 100]);
    for items in 1..5000_u64 {
        assert_eq!(items.div_ceil(teams_for(items, 132, true)), items.div_ceil(132), "{items}");
    }
    assert_eq!(backward(&h200(32768, 1024, 2)).unwrap().grid, 256);
    assert_eq!(backward(&Problem { is_centered: false, ..h200(4096, 16384, 2) }).unwrap().grid, 128);
    assert_eq!(backward(&h200(4096, 16384, 2)).unwrap().grid, 128);
}

#[test]
fn every_element_of_every_row_has_a_thread_in_backward() {
    for p in problems() {
        let tuned = backward(&p).unwrap();
        let held = u64::from(tuned.cluster * tuned.threads_per_row * tuned.vectors) * p.elements(tuned.vec_bytes);
        match tuned.variant {
            sys::BOPS_ROW_NORM_BACKWARD_PERSISTENT => {
                let columns = u64::from(tuned.vectors) * p.elements(16);
                assert!(held >= p.cols && p.has_one_stride && tuned.vec_bytes == 16, "{p:?} {tuned:?}");
                assert!(tuned.threads == 256 || (tuned.threads == 512 && columns > 8), "{tuned:?}");
                assert!(columns <= if p.has_residual { 16 } else { 32 }, "{tuned:?}");
                assert!(tuned.cluster == 1 || (columns > 8 && tuned.threads_per_row > 32), "{tuned:?}");
                let has_kernel = match (p.kind(), tuned.cluster) {
                    (1, 1) => (columns, tuned.threads) != (16, 256),
                    (_, 1) => true,
                    (0, _) => columns == 16 || tuned.threads == 512,
                    _ => columns == 32,
                };
                assert!(has_kernel || p.has_residual, "{p:?} {tuned:?}");
                assert!(tuned.grid.is_multiple_of(tuned.cluster) && (1..=4).contains(&tuned.stages), "{tuned:?}");
                let block_rows = u64::from(tuned.threads / tuned.threads_per_row);
                let early_rows = u64::from((tuned.grid - tuned.late_blocks) * tuned.chunks) * block_rows;
                let turns = (p.rows - early_rows).div_ceil(u64::from(tuned.late_blocks).max(1) * block_rows);
                assert!(tuned.late_blocks == 0 || (1..=u64::from(tuned.chunks)).contains(&turns), "{tuned:?}");
                assert!(tuned.late_blocks == 0 || !p.is_centered, "{tuned:?}");
            }
            sys::BOPS_ROW_NORM_BACKWARD_RING => {
                let stages: &[u32] = [&[13][..], &[13], &[11], &[11, 13]][p.kind()];
                assert!([0, p.element_bytes].contains(&p.parameter_bytes), "{p:?} {tuned:?}");
                assert!(held >= p.cols && tuned.vectors == 4 && stages.contains(&tuned.stages), "{p:?} {tuned:?}");
                assert!(u64::from(tuned.partial_rows * tuned.flush_rows) >= p.rows, "{p:?} {tuned:?}");
            }
            sys::BOPS_ROW_NORM_BACKWARD_COOPERATIVE => {
                assert!(held >= p.cols && p.has_one_stride && !p.has_residual, "{p:?} {tuned:?}");
                assert!(tuned.grid.is_multiple_of(tuned.cluster) && tuned.cluster <= 160, "{tuned:?}");
                assert!(tuned.grid * tuned.threads <= p.multiprocessors * 512, "{tuned:?}");
                assert!(u64::from(tuned.partial_rows * tuned.flush_rows * tuned.flushes) >= p.rows);
                let kernel = [(512, 1), (256, 1), (256, 2), (256, 2)][p.kind()];
                assert_eq!((tuned.threads, tuned.vectors), kernel, "{p:?}");
            }
            sys::BOPS_ROW_NORM_BACKWARD_FEW_ROWS => assert!(held >= p.cols, "{p:?} {tuned:?}"),
            _ => assert!(u64::from(tuned.partial_rows * tuned.flush_rows * tuned.flushes) >= p.rows),
        }
    }
}

/// Additions between an element and its sum over rows.
fn longest_chain(p: &Problem, tuned: &Tuned) -> u32 {
    if tuned.variant == sys::BOPS_ROW_NORM_BACKWARD_FEW_ROWS {
        return (p.rows as u32).div_ceil(64) + 2 + 16;
    }
    let block_rows = match tuned.variant {
        sys::BOPS_ROW_NORM_BACKWARD_PERSISTENT if tuned.cluster == 1 => tuned.threads / tuned.threads_per_row,
        _ => 1,
    };
    tuned.flush_rows + tuned.flushes + block_rows + 2 + column_sum_chain(u64::from(tuned.partial_rows)) as u32
}

#[test]
fn chains_of_additions_stay_short() {
    for p in problems().filter(|p| p.rows > 1) {
        let tuned = backward(&p).unwrap();
        assert!(
            u64::from(longest_chain(&p, &tuned)) <= LONGEST_CHAIN,
            "{p:?} {tuned:?}: {}",
            longest_chain(&p, &tuned)
        );
    }
}

#[test]
fn teams_of_many_blocks_take_long_rows() {
    let team = |rows, cols, element_bytes, is_centered| {
        let tuned = backward(&Problem { is_centered, ..h200(rows, cols, element_bytes) }).unwrap();
        let is_wide = tuned.variant == sys::BOPS_ROW_NORM_BACKWARD_COOPERATIVE;
        is_wide.then_some((tuned.cluster, tuned.grid / tuned.cluster, tuned.partial_rows))
    };
    for is_centered in [true, false] {
        assert_eq!(team(256, 262_144, 4, is_centered), Some((128, 2, 2)));
        assert_eq!(team(1024, 65_536, 4, is_centered), Some((32, 8, 8)));
        assert_eq!(team(4096, 16_384, 4, is_centered), None);
        assert_eq!(team(4096, 16_384, 2, is_centered), None);
        assert_eq!(team(11, 262_144, 4, is_centered), None);
        assert_eq!(team(19, 270_400, 4, is_centered), Some((133, 1, 1)));
        assert_eq!(team(90, 49_184, 4, is_centered), Some((25, 10, 10)));
    }
    assert_eq!(team(256, 262_144, 2, true), Some((64, 2, 2)));
    assert_eq!(team(1024, 65_528, 2, true), Some((16, 8, 8)));
    // What fills rings, unless its weights are wider.
    let full = h200(1024, 65_536, 2);
    assert_eq!(backward(&full).unwrap().variant, sys::BOPS_ROW_NORM_BACKWARD_RING);
    let wider = Problem { parameter_bytes: 4, ..full };
    assert_eq!(backward(&wider).unwrap().variant, sys::BOPS_ROW_NORM_BACKWARD_COOPERATIVE);
    assert_eq!(team(19, 270_400, 2, true), Some((67, 1, 1)));
    assert_eq!(team(130, 49_200, 2, true), Some((13, 10, 10)));
    assert_eq!(team(256, 262_144, 2, false), Some((128, 2, 2)));
    assert_eq!(team(19, 270_400, 2, false), Some((133, 1, 1)));
    assert_eq!(team(1024, 65_536, 2, false), None);
    // Fewer multiprocessors than a row takes, and dh.
    let few = Problem { multiprocessors: 60, ..h200(256, 262_144, 4) };
    let residual = Problem { has_residual: true, ..h200(256, 262_144, 4) };
    for p in [few, residual] {
        assert_ne!(backward(&p).unwrap().variant, sys::BOPS_ROW_NORM_BACKWARD_COOPERATIVE, "{p:?}");
    }
}

#[test]
fn one_block_holds_long_rows_of_two_bytes_without_dh() {
    let variant = |p: &Problem| backward(p).unwrap().variant;
    let p = h200(4096, 16384, 2);
    assert_eq!(variant(&p), sys::BOPS_ROW_NORM_BACKWARD_PERSISTENT);
    for other in [
        Problem { has_residual: true, ..p },
        Problem { is_centered: false, ..p },
        h200(4096, 16384 + 8, 2),
        h200(4096, 16384, 4),
    ] {
        assert_eq!(variant(&other), sys::BOPS_ROW_NORM_BACKWARD_RING, "{other:?}");
    }
}

#[test]
fn grids_that_leave_multiprocessors_idle_alone_let_the_next_begin() {
    let overlaps = |p: &Problem| forward(p).unwrap().overlaps;
    for element_bytes in [2, 4] {
        assert_eq!(overlaps(&h200(64, 4096, element_bytes)), 2);
        for cols in [1024, 4096, 16384, 65536] {
            assert_eq!(overlaps(&h200(4096, cols, element_bytes)), 1, "{cols}");
            assert_eq!(overlaps(&Problem { capability: 89, max_cluster: 1, ..h200(4096, cols, element_bytes) }), 0);
        }
    }
}

#[test]
fn the_law_of_late_blocks_reaches_them() {
    for (rows, cols, element_bytes) in [(97 * 127, 4096, 4), (97 * 65, 8192, 4)] {
        for multiprocessors in [132, 148] {
            let p = Problem { multiprocessors, is_centered: false, ..h200(rows, cols, element_bytes) };
            assert!(backward(&p).unwrap().late_blocks > 0, "{p:?}");
        }
    }
}

#[test]
fn odd_rows_and_lowered_promises_use_narrow_accesses() {
    assert_eq!(h200(8, 7, 2).vec_bytes(), 2);
    assert_eq!(h200(8, 6, 2).vec_bytes(), 4);
    assert_eq!(h200(8, 8, 2).vec_bytes(), 16);
    assert_eq!(Problem { parameter_align_bytes: 4, ..h200(8, 8, 2) }.vec_bytes(), 4);
    assert_eq!(h200(8, 8, 8).vec_bytes(), 8);
}

#[test]
fn older_devices_have_no_clusters() {
    let p = Problem { capability: 80, max_cluster: 1, shared_bytes: 166_912, ..h200(256, 262_144, 2) };
    assert_eq!(forward(&p).unwrap().variant, sys::BOPS_ROW_NORM_SPLIT);
    assert_eq!(backward(&p).unwrap().variant, sys::BOPS_ROW_NORM_BACKWARD_SPLIT);
}

#[test]
fn absurd_sizes_are_refused_not_wrapped() {
    assert!(forward(&h200(1 << 40, 8, 2)).is_err());
    assert!(backward(&h200(1 << 40, 8, 2)).is_err());
    assert!(forward(&h200(1 << 31, 1 << 62, 8)).is_err());
    assert!(backward(&h200(1 << 31, 1 << 62, 8)).is_err());
}
