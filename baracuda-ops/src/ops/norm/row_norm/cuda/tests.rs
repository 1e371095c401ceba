use super::backward::{self, LONGEST_CHAIN, PARTIAL_ROWS_OF_ONE_LEVEL, column_sum_chain, teams_for};
use super::*;
use crate::backend::Backend;
use crate::list::OPS;

fn h200(rows: u64, cols: u64, element_bytes: u32) -> RowProblem {
    RowProblem {
        rows,
        samples: rows,
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
fn problems() -> impl Iterator<Item = RowProblem> {
    let cols =
        (1..600).chain([768, 1000, 1024, 2048, 3072, 4096, 4097, 5120, 6144, 8192, 9216, 12288, 16384, 24576, 32768]);
    let cols = cols.chain([49152, 65536, 98304, 131_072, 262_144, 1 << 24]);
    let devices = [(16, 232_448, 90), (8, 232_448, 103), (8, 101_376, 120), (1, 166_912, 80), (1, 101_376, 89)];
    cols.flat_map(move |cols| {
        devices.into_iter().flat_map(move |(max_cluster, shared_bytes, capability)| {
            [2, 4, 8].into_iter().flat_map(move |element_bytes| {
                [1, 5, 300, 100_000].into_iter().flat_map(move |rows| {
                    (0..16).map(move |bits| RowProblem {
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

/// The choice of a form of forward.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OfForward {
    Packed(sys::bops_row_norm_packed_choice),
    PackedWarp(sys::bops_row_norm_packed_warp_choice),
    Ring(sys::bops_row_norm_ring_choice),
    Shared(sys::bops_row_norm_shared_choice),
    Resident(sys::bops_row_norm_resident_choice),
    Split(sys::bops_row_norm_split_choice),
}

/// What the forms of forward answer, in the order in which they are tried; RMSNorm has no packed ones.
fn forwards(p: &RowProblem, ask: Ask) -> Vec<OfForward> {
    let mut served = Vec::new();
    if p.is_centered {
        served.extend(forward::packed_choice(p, ask).map(OfForward::Packed));
        served.extend(forward::packed_warp_choice(p, ask).map(OfForward::PackedWarp));
    }
    served.extend(forward::ring_choice(p, ask).map(OfForward::Ring));
    served.extend(forward::shared_choice(p, ask).map(OfForward::Shared));
    served.extend(forward::resident_choice(p).map(OfForward::Resident));
    served.extend(forward::split_choice(p).map(|(choice, _)| OfForward::Split(choice)));
    served
}

fn forward(p: &RowProblem) -> OfForward {
    forwards(p, Ask::Chosen)[0]
}

/// The choice of a form of backward.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OfBackward {
    FewRows(sys::bops_row_norm_backward_few_rows_choice),
    Cooperative(sys::bops_row_norm_backward_cooperative_choice),
    Ring(sys::bops_row_norm_backward_ring_choice),
    Persistent(sys::bops_row_norm_backward_persistent_choice),
    Split(sys::bops_row_norm_backward_split_choice),
}

/// What the forms of backward answer, in the order in which they are tried.
fn backwards(p: &RowProblem, ask: Ask) -> Vec<OfBackward> {
    let mut served = Vec::new();
    served.extend(backward::few_rows_choice(p, ask).map(OfBackward::FewRows));
    served.extend(backward::cooperative_choice(p, ask).map(|(choice, _)| OfBackward::Cooperative(choice)));
    served.extend(backward::ring_choice(p, ask).map(|(choice, _)| OfBackward::Ring(choice)));
    served.extend(backward::persistent_choice(p).map(|(choice, _)| OfBackward::Persistent(choice)));
    served.extend(backward::split_choice(p).map(|(choice, _)| OfBackward::Split(choice)));
    served
}

fn backward(p: &RowProblem) -> OfBackward {
    backwards(p, Ask::Chosen)[0]
}

#[test]
fn forms_are_tried_in_one_order() {
    let of = |op: &str| {
        let op = OPS.iter().find(|of| of.name == op).unwrap();
        let on_cuda = op.kernels().into_iter().filter(|(backend, _)| *backend == Backend::Cuda);
        on_cuda.map(|(_, name)| name.strip_prefix(op.name).unwrap().to_string()).collect::<Vec<_>>().concat()
    };
    assert_eq!(of("layer_norm"), "_packed_packed_warp_ring_shared_resident_split");
    assert_eq!(of("rms_norm"), "_ring_shared_resident_split");
    for op in ["layer_norm_backward", "rms_norm_backward"] {
        assert_eq!(of(op), "_few_rows_cooperative_ring_persistent_split");
    }
}

/// That a form of forward has a thread for every element of every row, and a kernel.
fn check_forward(p: &RowProblem, chosen: OfForward) {
    let what = || format!("{p:?} {chosen:?}");
    let all = p.cols / p.elements(p.vec_bytes());
    match chosen {
        OfForward::Resident(c) => {
            let most = if !p.is_centered && p.element_bytes == 4 && c.vectors == 4 { 1024 } else { 512 };
            assert!(c.threads <= most && c.threads.is_multiple_of(32) && c.cluster <= p.max_cluster, "{}", what());
            let widths: &[u32] = match (c.vec_bytes, p.element_bytes) {
                (16, 2) => &[2, 4],
                (16, _) => &[2, 4, 8],
                _ => &[16],
            };
            let held = u64::from(c.cluster * c.threads_per_row * c.vectors);
            assert!(widths.contains(&c.vectors) && held >= all, "{}", what());
            assert!(c.cluster == 1 || c.vectors == 8, "{}", what());
            assert!(u64::from(c.grid / c.cluster * c.threads / c.threads_per_row) >= p.rows, "{}", what());
            assert!(c.is_whole == u32::from(held * p.elements(c.vec_bytes) == p.cols), "{}", what());
            assert!(c.threads <= 512 || c.is_whole == 1, "{}", what());
            assert!(c.lets_next_overlap <= c.overlaps, "{}", what());
        }
        OfForward::Ring(c) => {
            assert!(u64::from(c.cluster * c.threads * c.vectors) >= all && p.vec_bytes() == 16, "{}", what());
            assert!(c.threads <= 512 && c.threads.is_multiple_of(32) && c.cluster <= p.max_cluster, "{}", what());
            assert!(matches!((c.vectors, c.slots), (8, 21) | (4, 13)) && p.capability >= 90, "{}", what());
            assert!(c.vectors == 8 || (!p.is_centered && p.element_bytes == 2), "{}", what());
            assert!([0, p.element_bytes].contains(&p.parameter_bytes), "{}", what());
        }
        OfForward::Shared(c) => {
            let slice = all.div_ceil(c.cluster.into());
            assert!(p.element_bytes == 2 && slice * 16 + 4096 <= u64::from(p.shared_bytes), "{}", what());
            assert!(c.cluster <= p.max_cluster && u64::from(c.grid) == p.rows * u64::from(c.cluster), "{}", what());
        }
        OfForward::Packed(c) => {
            assert!(u64::from(c.threads) * 4 == all && u64::from(c.grid) == p.rows, "{}", what());
            assert!((64..=512).contains(&c.threads) && c.threads.is_multiple_of(32), "{}", what());
            assert!(p.element_bytes == 2 && p.parameter_bytes == 2, "{}", what());
        }
        OfForward::PackedWarp(c) => {
            assert!(u64::from(c.vectors) * 32 == all && u64::from(c.grid) * 2 >= p.rows, "{}", what());
            assert!((3..=8).contains(&c.vectors) && p.has_one_stride && !p.has_residual, "{}", what());
            assert!(p.element_bytes == 2 && p.parameter_bytes == 2, "{}", what());
        }
        OfForward::Split(c) => assert!(u64::from(c.chunks) * 1024 >= all, "{}", what()),
    }
}

#[test]
fn every_element_of_every_row_has_a_thread_in_forward() {
    for p in problems() {
        for chosen in [forward(&p)].into_iter().chain(forwards(&p, Ask::Pinned)) {
            check_forward(&p, chosen);
        }
    }
}

#[test]
fn blocks_of_many_threads_have_whole_rows() {
    let resident = |p: &RowProblem| match forward(p) {
        OfForward::Resident(choice) => choice,
        other => panic!("{other:?}"),
    };
    let many = RowProblem { is_centered: false, ..h200(4096, 16384, 4) };
    assert_eq!(resident(&many).threads, 1024);
    assert_eq!(resident(&RowProblem { rows: 264, samples: 264, ..many }).cluster, 2);
}

#[test]
fn whole_rows_of_two_bytes_stay_as_they_came() {
    let p = h200(4096, 16384, 2);
    let threads = |p: &RowProblem| match forward(p) {
        OfForward::Packed(choice) => Some(choice.threads),
        _ => None,
    };
    assert_eq!(threads(&p), Some(512));
    assert_eq!(threads(&RowProblem { rows: 1, samples: 1, ..p }), Some(512));
    for other in [
        RowProblem { parameter_bytes: 4, ..p },
        RowProblem { is_centered: false, ..p },
        h200(4096, 16384 + 8, 2),
        h200(64, 8192, 2),
    ] {
        assert_eq!(threads(&other), None, "{other:?}");
    }
}

#[test]
fn a_warp_holds_short_rows_that_fill_it() {
    let vectors = |p: &RowProblem| match forward(p) {
        OfForward::PackedWarp(choice) => Some(choice.vectors),
        _ => None,
    };
    for (cols, held) in
        [(512, None), (768, Some(3)), (1024, Some(4)), (1280, Some(5)), (1536, Some(6)), (2048, Some(8))]
    {
        assert_eq!(vectors(&h200(32768, cols, 2)), held, "{cols}");
        assert_eq!(vectors(&h200(1200, cols, 2)), held, "{cols}");
        assert_eq!(vectors(&h200(1000, cols, 2)), None, "{cols}");
    }
    // Few waves: `resident` is faster for rows that fill its threads, too.
    assert_eq!(vectors(&h200(4096, 1024, 2)), None);
    assert_eq!(vectors(&h200(4096, 768, 2)), Some(3));
    let p = h200(32768, 1024, 2);
    for other in [
        RowProblem { parameter_bytes: 4, ..p },
        RowProblem { is_centered: false, ..p },
        RowProblem { has_residual: true, ..p },
        RowProblem { has_one_stride: false, ..p },
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
    let grid = |p: RowProblem| match backward(&p) {
        OfBackward::Persistent(choice) => choice.grid,
        OfBackward::Ring(choice) => choice.grid,
        other => panic!("{other:?}"),
    };
    assert_eq!(grid(h200(32768, 1024, 2)), 256);
    assert_eq!(grid(RowProblem { is_centered: false, ..h200(4096, 16384, 2) }), 128);
    assert_eq!(grid(h200(4096, 16384, 2)), 128);
}

/// That a form of backward has a thread for every element of every row, a kernel, and partial rows for all rows.
fn check_backward(p: &RowProblem, chosen: OfBackward) {
    let what = || format!("{p:?} {chosen:?}");
    let all = p.cols / p.elements(p.vec_bytes());
    match chosen {
        OfBackward::Persistent(c) => {
            let columns = u64::from(c.vectors) * p.elements(16);
            let held = u64::from(c.cluster * c.threads_per_row * c.vectors);
            assert!(held >= all && p.has_one_stride && p.vec_bytes() == 16, "{}", what());
            assert!(c.threads == 256 || (c.threads == 512 && columns > 8), "{}", what());
            assert!(columns <= if p.has_residual { 16 } else { 32 }, "{}", what());
            assert!(c.cluster == 1 || (columns > 8 && c.threads_per_row > 32), "{}", what());
            let has_kernel = match (p.element_bytes, p.is_centered, c.cluster) {
                (2, false, 1) => (columns, c.threads) != (16, 256),
                (_, _, 1) => true,
                (2, true, _) => columns == 16 || c.threads == 512,
                _ => columns == 32,
            };
            assert!(has_kernel || p.has_residual, "{}", what());
            assert!(c.grid.is_multiple_of(c.cluster) && (1..=4).contains(&c.stages), "{}", what());
            let block_rows = u64::from(c.threads / c.threads_per_row);
            let early_rows = u64::from((c.grid - c.late_blocks) * c.early_turns) * block_rows;
            let turns = (p.rows - early_rows).div_ceil(u64::from(c.late_blocks).max(1) * block_rows);
            assert!(c.late_blocks == 0 || (1..=u64::from(c.early_turns)).contains(&turns), "{}", what());
            assert!(c.late_blocks == 0 || !p.is_centered, "{}", what());
        }
        OfBackward::Ring(c) => {
            let slots: &[u32] = match (p.element_bytes, p.is_centered) {
                (2, _) => &[13],
                (_, true) => &[11],
                (_, false) => &[11, 13],
            };
            assert!([0, p.element_bytes].contains(&p.parameter_bytes), "{}", what());
            assert!(c.vectors == 4 && slots.contains(&c.slots) && p.capability >= 90, "{}", what());
            assert!(u64::from(c.cluster * c.threads * 4) >= all && c.cluster <= p.max_cluster, "{}", what());
            assert!(u64::from(c.partial_rows * c.flush_rows) >= p.rows, "{}", what());
        }
        OfBackward::Cooperative(c) => {
            let held = u64::from(c.team_blocks * c.readers * c.vectors);
            assert!(held >= all && p.has_one_stride && !p.has_residual, "{}", what());
            assert!(c.grid.is_multiple_of(c.team_blocks) && c.team_blocks <= 160, "{}", what());
            assert!(c.grid * c.readers <= p.multiprocessors * 512, "{}", what());
            assert!(u64::from(c.partial_rows * c.flush_rows * c.flushes) >= p.rows, "{}", what());
            let kernel = match (p.element_bytes, p.is_centered) {
                (2, true) => (512, 1),
                (2, false) => (256, 1),
                _ => (256, 2),
            };
            assert_eq!((c.readers, c.vectors), kernel, "{}", what());
        }
        OfBackward::FewRows(_) => assert!(p.cols <= 8192 && p.vec_bytes() == 16, "{}", what()),
        OfBackward::Split(c) => {
            assert!(u64::from(c.partial_rows * c.flush_rows * c.flushes) >= p.rows, "{}", what());
        }
    }
}

#[test]
fn every_element_of_every_row_has_a_thread_in_backward() {
    for p in problems() {
        for chosen in [backward(&p)].into_iter().chain(backwards(&p, Ask::Pinned)) {
            check_backward(&p, chosen);
        }
    }
}

/// Additions between an element and its sum over rows.
fn longest_chain(p: &RowProblem, chosen: OfBackward) -> u64 {
    let of_columns = |partial_rows: u32| column_sum_chain(partial_rows.into());
    match chosen {
        OfBackward::FewRows(_) => p.rows.div_ceil(64) + 2 + 16,
        OfBackward::Persistent(c) => {
            let block_rows = if c.cluster == 1 { c.threads / c.threads_per_row } else { 1 };
            u64::from(c.flush_rows + c.flushes + block_rows + 2) + of_columns(c.partial_rows)
        }
        OfBackward::Ring(c) => u64::from(c.flush_rows + 3) + of_columns(c.partial_rows),
        OfBackward::Cooperative(c) => u64::from(c.flush_rows + c.flushes + 3) + of_columns(c.partial_rows),
        OfBackward::Split(c) => u64::from(c.flush_rows + c.flushes + 3) + of_columns(c.partial_rows),
    }
}

#[test]
fn chains_of_additions_stay_short() {
    // docs/numerics.md: up to 150000 rows, and up to a million if accumulators have a second level.
    let many = problems().filter(|p| p.rows == 300);
    let many = many.flat_map(|p| [150_000, 1 << 19, 1_000_000].map(|rows| RowProblem { rows, samples: rows, ..p }));
    let mut has_more = 0;
    for p in problems().filter(|p| p.rows > 1).chain(many) {
        for chosen in [backward(&p)].into_iter().chain(backwards(&p, Ask::Pinned)) {
            let partial_rows = match chosen {
                OfBackward::Ring(c) => c.partial_rows,
                OfBackward::Persistent(c) if c.flushes == 0 => c.partial_rows,
                _ => 0,
            };
            if u64::from(partial_rows) > PARTIAL_ROWS_OF_ONE_LEVEL {
                assert!(p.rows > 150_000, "{p:?} {chosen:?}");
                has_more += 1;
                continue;
            }
            let chain = longest_chain(&p, chosen);
            assert!(chain <= LONGEST_CHAIN, "{p:?} {chosen:?}: {chain}");
        }
    }
    assert!(has_more > 0);
    let most = RowProblem { rows: 30 * 64, samples: 30 * 64, ..h200(1, 4096, 2) };
    let choice = backward::few_rows_choice(&most, Ask::Pinned).unwrap();
    assert_eq!(longest_chain(&most, OfBackward::FewRows(choice)), LONGEST_CHAIN);
    assert!(
        backward::few_rows_choice(&RowProblem { rows: most.rows + 1, samples: most.rows + 1, ..most }, Ask::Pinned)
            .is_err()
    );
}

#[test]
fn teams_of_many_blocks_take_long_rows() {
    let team = |rows, cols, element_bytes, is_centered| match backward(&RowProblem {
        is_centered,
        ..h200(rows, cols, element_bytes)
    }) {
        OfBackward::Cooperative(c) => Some((c.team_blocks, c.grid / c.team_blocks, c.partial_rows)),
        _ => None,
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
    assert!(matches!(backward(&full), OfBackward::Ring(_)));
    assert!(matches!(backward(&RowProblem { parameter_bytes: 4, ..full }), OfBackward::Cooperative(_)));
    assert_eq!(team(19, 270_400, 2, true), Some((67, 1, 1)));
    assert_eq!(team(130, 49_200, 2, true), Some((13, 10, 10)));
    assert_eq!(team(256, 262_144, 2, false), Some((128, 2, 2)));
    assert_eq!(team(19, 270_400, 2, false), Some((133, 1, 1)));
    assert_eq!(team(1024, 65_536, 2, false), None);
    // Fewer multiprocessors than a row takes, and dh: by its name, too, it does not serve.
    let few = RowProblem { multiprocessors: 60, ..h200(256, 262_144, 4) };
    let residual = RowProblem { has_residual: true, ..h200(256, 262_144, 4) };
    for p in [few, residual] {
        assert!(backward::cooperative_choice(&p, Ask::Chosen).is_err(), "{p:?}");
        assert!(backward::cooperative_choice(&p, Ask::Pinned).is_err(), "{p:?}");
    }
}

#[test]
fn forms_that_are_asked_for_serve_what_others_serve_better() {
    let served = |p: &RowProblem| {
        let forward = forwards(p, Ask::Pinned).iter().map(|form| format!("{form:?}")).collect::<Vec<_>>();
        let backward = backwards(p, Ask::Pinned).iter().map(|form| format!("{form:?}")).collect::<Vec<_>>();
        let names = |forms: Vec<String>| {
            forms
                .iter()
                .map(|form| form.split('(').next().unwrap_or_default().to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        [names(forward), names(backward)]
    };
    let all_backward = "FewRows Cooperative Ring Persistent Split";
    assert_eq!(served(&h200(3, 2048, 2)), ["Packed PackedWarp Ring Shared Resident Split", all_backward]);
    assert_eq!(served(&h200(3, 2048, 4)), ["Ring Resident Split", all_backward]);
    let rms = RowProblem { is_centered: false, ..h200(3, 264, 2) };
    assert_eq!(served(&rms), ["Ring Shared Resident Split", all_backward]);
    let heads = RowProblem { has_one_stride: false, ..h200(6, 64, 2) };
    assert_eq!(served(&heads), ["Ring Shared Resident Split", "FewRows Ring Split"]);
    assert_eq!(served(&h200(3, 17, 2)), ["Resident Split", "Split"]);
    assert_eq!(served(&h200(3, 17, 8)), ["Split", "Split"]);
    assert_eq!(served(&h200(0, 16, 4)), ["Split", "Split"]);
}

#[test]
fn one_block_holds_long_rows_of_two_bytes_without_dh() {
    let p = h200(4096, 16384, 2);
    assert!(matches!(backward(&p), OfBackward::Persistent(_)));
    for other in [
        RowProblem { has_residual: true, ..p },
        RowProblem { is_centered: false, ..p },
        h200(4096, 16384 + 8, 2),
        h200(4096, 16384, 4),
    ] {
        assert!(matches!(backward(&other), OfBackward::Ring(_)), "{other:?}");
    }
}

#[test]
fn grids_that_leave_multiprocessors_idle_alone_let_the_next_begin() {
    let overlaps = |p: &RowProblem| match forward(p) {
        OfForward::Resident(c) => (c.overlaps, c.lets_next_overlap),
        OfForward::Packed(sys::bops_row_norm_packed_choice { overlaps, .. })
        | OfForward::PackedWarp(sys::bops_row_norm_packed_warp_choice { overlaps, .. })
        | OfForward::Shared(sys::bops_row_norm_shared_choice { overlaps, .. })
        | OfForward::Ring(sys::bops_row_norm_ring_choice { overlaps, .. }) => (overlaps, 0),
        OfForward::Split(_) => (0, 0),
    };
    for element_bytes in [2, 4] {
        assert_eq!(overlaps(&h200(64, 4096, element_bytes)), (1, 1));
        for cols in [1024, 4096, 16384, 65536] {
            assert_eq!(overlaps(&h200(4096, cols, element_bytes)), (1, 0), "{cols}");
            let older = RowProblem { capability: 89, max_cluster: 1, ..h200(4096, cols, element_bytes) };
            assert_eq!(overlaps(&older), (0, 0));
        }
    }
}

#[test]
fn the_law_of_late_blocks_reaches_them() {
    for (rows, cols, element_bytes) in [(97 * 127, 4096, 4), (97 * 65, 8192, 4)] {
        for multiprocessors in [132, 148] {
            let p = RowProblem { multiprocessors, is_centered: false, ..h200(rows, cols, element_bytes) };
            let has_late = matches!(backward(&p), OfBackward::Persistent(choice) if choice.late_blocks > 0);
            assert!(has_late, "{p:?}");
        }
    }
}

#[test]
fn odd_rows_and_lowered_promises_use_narrow_accesses() {
    assert_eq!(h200(8, 7, 2).vec_bytes(), 2);
    assert_eq!(h200(8, 6, 2).vec_bytes(), 4);
    assert_eq!(h200(8, 8, 2).vec_bytes(), 16);
    assert_eq!(RowProblem { parameter_align_bytes: 4, ..h200(8, 8, 2) }.vec_bytes(), 4);
    assert_eq!(h200(8, 8, 8).vec_bytes(), 8);
}

#[test]
fn older_devices_have_no_clusters() {
    let p = RowProblem { capability: 80, max_cluster: 1, shared_bytes: 166_912, ..h200(256, 262_144, 2) };
    assert!(matches!(forward(&p), OfForward::Split(_)));
    assert!(matches!(backward(&p), OfBackward::Split(_)));
}

#[test]
fn absurd_sizes_are_refused_not_wrapped() {
    for p in [h200(1 << 40, 8, 2), h200(1 << 31, 1 << 62, 8)] {
        for ask in [Ask::Chosen, Ask::Pinned] {
            assert!(forwards(&p, ask).is_empty() && backwards(&p, ask).is_empty(), "{p:?}");
        }
    }
}

#[test]
fn persistent_says_which_limit_a_row_exceeds() {
    let p = |cols| RowProblem { max_cluster: 1, shared_bytes: 101_376, capability: 89, ..h200(300, cols, 4) };
    let refusal = |cols| backward::persistent_choice(&p(cols)).unwrap_err().to_string();
    let bytes = "rows of 8192 columns need 135168 bytes of a multiprocessor's shared memory, the limit is 101376";
    assert_eq!(refusal(8192), bytes);
    assert_eq!(refusal(20_000), "rows of 20000 columns, the limit of the device is 16384");
    assert!(backward::persistent_choice(&h200(300, 8192, 4)).is_ok());
}
