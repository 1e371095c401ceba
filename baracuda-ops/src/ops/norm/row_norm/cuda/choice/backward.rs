//! Backward: its tables, and the variants that take turns to serve.

use baracuda_ops_sys as sys;

use super::{MAX_THREADS, Problem, RESERVED_SHARED, Ring, Tuned, ring, team};
use crate::narrow::{grid, word};

/// Additions between an element and its sum over rows, at most (docs/numerics.md).
pub(super) const LONGEST_CHAIN: u64 = 48;
/// Rows up to which one launch shares out rows and columns; columns that it takes.
const FEW_ROWS: (u64, u64) = (256, 8192);

/// A persistent kernel's numbers, for slices of up to `up_to` columns of a block.
#[derive(Clone, Copy, Debug)]
struct Form {
    up_to: u64,
    /// Columns of a thread.
    columns: u64,
    /// Threads of a block.
    threads: u64,
    /// Blocks of a multiprocessor.
    blocks: u64,
    /// Rows in flight.
    stages: u64,
    /// Whether the last rows are left to late blocks: memory does not serve multiprocessors evenly, and those that are ahead take more.
    /// Not centered alone.
    has_late: bool,
    /// Whether there are no more blocks than the turns that they take need.
    is_even: bool,
}

const fn form(up_to: u64, columns: u64, threads: u64, blocks: u64, stages: u64) -> Form {
    Form { up_to, columns, threads, blocks, stages, has_late: false, is_even: false }
}

impl Form {
    const fn late(self) -> Self {
        Self { has_late: true, ..self }
    }

    const fn even(self) -> Self {
        Self { is_even: true, ..self }
    }
}

/// Backward, one block a row: 2 bytes centered, 2 bytes, 4 bytes centered, 4 bytes.
const BACKWARD_BLOCK: [&[Form]; 4] = [
    &[
        form(256, 8, 256, 3, 2),
        form(1024, 16, 256, 2, 2).even(),
        form(4096, 16, 512, 1, 2),
        form(6144, 32, 256, 2, 2),
        form(8192, 16, 512, 1, 2),
        form(16384, 32, 512, 1, 2).even(),
    ],
    &[
        form(1024, 8, 256, 3, 2),
        form(2048, 16, 512, 1, 2),
        form(3072, 16, 512, 1, 3),
        form(4096, 16, 512, 1, 2),
        form(6144, 32, 256, 2, 2),
        form(8192, 16, 512, 1, 2),
        form(16384, 32, 512, 1, 3),
    ],
    &[
        form(384, 8, 256, 2, 2),
        form(640, 16, 256, 1, 2),
        form(1024, 8, 256, 2, 2),
        form(4096, 16, 256, 1, 2),
        form(6144, 32, 256, 1, 2),
        form(8192, 16, 512, 1, 1),
        form(16384, 32, 512, 1, 1),
    ],
    &[
        form(384, 8, 256, 2, 2),
        form(640, 16, 256, 1, 2),
        form(768, 8, 256, 2, 2),
        form(1024, 8, 256, 2, 2),
        form(2048, 16, 256, 1, 2),
        form(4096, 16, 512, 1, 1).late(),
        form(6144, 32, 256, 1, 2),
        form(8192, 16, 512, 1, 1).late(),
        form(16384, 32, 512, 1, 1),
    ],
];
/// Backward, a cluster a row: the same.
const BACKWARD_CLUSTER: [&[Form]; 4] = [
    &[form(4096, 16, 256, 2, 3), form(8192, 16, 512, 1, 3), form(16384, 32, 512, 1, 2)],
    &[form(8192, 32, 256, 2, 3), form(16384, 32, 512, 1, 3)],
    &[form(8192, 32, 256, 2, 1), form(16384, 32, 512, 1, 1)],
    &[form(8192, 32, 256, 2, 1), form(16384, 32, 512, 1, 1)],
];
/// Backward with dh, one block and a cluster a row.
const BACKWARD_RESIDUAL: &[Form] =
    &[form(256, 8, 256, 2, 2), form(4096, 16, 256, 1, 2), form(8192, 16, 512, 1, 2), form(8192, 16, 512, 1, 1)];
const BACKWARD_RESIDUAL_CLUSTER: &[Form] =
    &[form(4096, 16, 256, 2, 2), form(4096, 16, 256, 1, 2), form(8192, 16, 512, 1, 1)];
/// Turns of a block from which on some rows are left to late blocks.
const LATE_FROM: u64 = 40;
/// Turns of a team from which on there may be fewer teams than are resident.
const EVEN_FROM: u64 = 16;
/// Vectors of the widest rows that other backward kernels serve, and forms: 2 bytes centered, 2 bytes, 4 bytes centered, 4 bytes.
const BACKWARD_RING: [(u64, &[Ring]); 4] = [
    (
        1024,
        &[
            ring(256, 4, 5, 2, 2),
            ring(512, 4, 5, 2, 1),
            ring(256, 4, 5, 8, 2),
            ring(512, 4, 5, 8, 1),
            ring(512, 4, 5, 16, 1),
        ],
    ),
    (
        1024,
        &[
            ring(512, 4, 5, 1, 1).even(),
            ring(512, 4, 5, 2, 1),
            ring(256, 4, 5, 8, 2),
            ring(512, 4, 5, 8, 1),
            ring(512, 4, 5, 16, 1),
        ],
    ),
    (2048, &[ring(256, 4, 3, 4, 2), ring(256, 4, 3, 8, 2), ring(512, 4, 3, 8, 1), ring(512, 4, 3, 16, 1)]),
    (2560, &[ring(256, 4, 3, 4, 2), ring(256, 4, 3, 8, 2), ring(256, 4, 5, 16, 2), ring(512, 4, 5, 16, 1)]),
];
/// Vectors of the widest rows of 2 bytes, centered, that a block of 32 columns a thread serves faster than a ring: it has no room for dh.
const HELD_ROW: u64 = 2048;

/// The numbers of a kernel whose teams are blocks wherever they lie, for rows of more than `from` vectors: threads of a block that read,
/// vectors of a thread.
#[derive(Clone, Copy, Debug)]
struct Wide {
    from: u64,
    threads: u64,
    vectors: u64,
}

/// Vectors that such a thread has of a turn, and turns in its ring.
const WIDE_RING: (u64, u64) = (2, 6);
/// Threads that read on a multiprocessor.
const WIDE_THREADS: u64 = 512;
/// Turns whose sums have places.
const WIDE_TURNS: u64 = 16;
/// The most blocks of such a team.
const WIDE_TEAM: u64 = 160;
/// Backward, rows whose teams are many blocks: 2 bytes centered, 2 bytes, 4 bytes centered, 4 bytes.
const BACKWARD_WIDE: [Wide; 4] = [
    Wide { from: 6144, threads: 512, vectors: 1 },
    Wide { from: 16384, threads: 256, vectors: 1 },
    Wide { from: 12288, threads: 256, vectors: 2 },
    Wide { from: 12288, threads: 256, vectors: 2 },
];
/// Vectors of a row of 2 bytes, centered, whose clusters are faster than such a team: it fills their rings.
const FULL_RING: u64 = 8192;

/// The variant that serves a backward.
pub(crate) fn backward(p: &Problem) -> Result<Tuned, String> {
    if p.rows == 0 || p.cols == 0 {
        let mut tuned = p.start(sys::BOPS_ROW_NORM_BACKWARD_ZERO)?;
        tuned.launches = u32::from(p.cols > 0 && p.has_parameter_gradients);
        return Ok(tuned);
    }
    let chosen = few_rows(p).or_else(|| backward_wide(p)).or_else(|| backward_ring(p)).or_else(|| persistent(p));
    chosen.map_or_else(|| backward_split(p), Ok)
}

/// Rows so long that a team of many blocks serves them faster than a cluster does: it takes every multiprocessor, holds more rows, and leaves
/// fewer partial rows.
fn backward_wide(p: &Problem) -> Option<Tuned> {
    let mut tuned = p.start_persistent(sys::BOPS_ROW_NORM_BACKWARD_COOPERATIVE)?;
    let all = p.cols / p.elements(16);
    let wide = BACKWARD_WIDE[p.kind()];
    if all <= wide.from || (p.kind() == 0 && all == FULL_RING && backward_ring(p).is_some()) {
        return None;
    }
    let (held, stages) = WIDE_RING;
    let blocks = WIDE_THREADS / wide.threads;
    let shared = stages * held * wide.threads * 32;
    let resident = u64::from(p.multiprocessors) * blocks;
    let cluster = all.div_ceil(wide.threads * wide.vectors);
    // Sums under way take as much again as other kernels declare.
    let fits = shared + 2 * RESERVED_SHARED <= u64::from(p.shared_bytes) / blocks;
    if p.has_residual || p.capability < 90 || cluster > resident.min(WIDE_TEAM) || !fits {
        return None;
    }
    let (batch, teams) = (held / wide.vectors, resident / cluster);
    // Fewer rows than the rings hold do not pay for the meeting of the grid.
    if p.rows < teams * batch * stages {
        return None;
    }
    // Chains of additions: rows of one accumulator, of the next level, and at most 12 in the column sums.
    let (flush_rows, flushes) = (16, 16);
    let partial_rows = teams * p.rows.div_ceil(teams * batch).div_ceil(flush_rows * flushes / batch);
    tuned.vectors = word(wide.vectors);
    tuned.threads = word(wide.threads);
    tuned.threads_per_row = word(wide.threads);
    tuned.cluster = word(cluster);
    tuned.stages = word(stages);
    tuned.grid = grid(teams * cluster)?;
    tuned.flush_rows = word(flush_rows);
    tuned.flushes = word(flushes);
    tuned.partial_rows = u32::try_from(partial_rows).ok()?;
    tuned.launches = 1 + u32::from(p.has_parameter_gradients);
    let messages = teams * cluster * batch * WIDE_TURNS * 16;
    tuned.workspace_bytes = partials(p, partial_rows)?.checked_add(messages)?;
    Some(tuned)
}

/// Long rows: as forward, with the parameters' gradients in registers.
fn backward_ring(p: &Problem) -> Option<Tuned> {
    let mut tuned = p.start_ring(sys::BOPS_ROW_NORM_BACKWARD_RING)?;
    let all = p.cols / p.elements(16);
    let (from, forms) = BACKWARD_RING[p.kind()];
    let from = if p.kind() == 0 && !p.has_residual { from.max(HELD_ROW) } else { from };
    let ring = forms.iter().find(|ring| all <= ring.threads * ring.vectors * ring.cluster)?;
    let shared = ring.stages * ring.threads * 32;
    if all <= from
        || ring.cluster > u64::from(p.max_cluster)
        || shared + RESERVED_SHARED > u64::from(p.shared_bytes) / ring.blocks
    {
        return None;
    }
    let teams = teams_for(p.rows, p.teams(ring.cluster, ring.blocks), ring.is_even);
    tuned.set_ring(ring, ring.cluster, teams);
    let turns = p.rows.div_ceil(teams);
    let flush_rows = rows_of_one_level(turns, teams);
    tuned.flush_rows = word(flush_rows);
    let partial_rows = teams * turns.div_ceil(flush_rows);
    tuned.partial_rows = u32::try_from(partial_rows).ok()?;
    tuned.launches = 1 + u32::from(p.has_parameter_gradients);
    tuned.workspace_bytes = partials(p, partial_rows)?;
    Some(tuned)
}

/// One launch whose blocks own a row of dx or a strip of columns of the parameters' gradients.
fn few_rows(p: &Problem) -> Option<Tuned> {
    let mut tuned = p.start(sys::BOPS_ROW_NORM_BACKWARD_FEW_ROWS).ok()?;
    if p.rows > FEW_ROWS.0 || p.cols > FEW_ROWS.1 || tuned.vec_bytes != 16 || p.element_bytes == 8 {
        return None;
    }
    let elements = p.elements(16);
    tuned.vectors = word(16 / elements);
    tuned.threads = word(MAX_THREADS);
    tuned.threads_per_row = word(MAX_THREADS);
    tuned.grid = grid(p.rows + (p.cols / elements).div_ceil(8))?;
    Some(tuned)
}

/// Teams walk over rows with fixed columns.
fn persistent(p: &Problem) -> Option<Tuned> {
    let start = p.start_persistent(sys::BOPS_ROW_NORM_BACKWARD_PERSISTENT)?;
    let kind = p.kind();
    let (block, cluster) = if p.has_residual {
        (BACKWARD_RESIDUAL, BACKWARD_RESIDUAL_CLUSTER)
    } else {
        (BACKWARD_BLOCK[kind], BACKWARD_CLUSTER[kind])
    };
    let with = |forms: &[Form], cluster| forms.iter().find_map(|form| persistent_form(p, start, cluster, form));
    // A wider form rather than none, a larger cluster rather than a wider form.
    with(block, 1)
        .or_else(|| cluster.iter().find_map(|form| p.clusters().find_map(|n| persistent_form(p, start, n, form))))
}

fn persistent_form(p: &Problem, mut tuned: Tuned, cluster: u64, form: &Form) -> Option<Tuned> {
    let Form { columns, threads, blocks, stages, has_late, .. } = *form;
    if p.cols.div_ceil(cluster) > form.up_to {
        return None;
    }
    let vectors = columns / p.elements(16);
    let slice = (p.cols / p.elements(16)).div_ceil(cluster);
    let least = if cluster > 1 {
        64
    } else if columns > 8 {
        32
    } else {
        16
    };
    let per_row = team(slice.div_ceil(vectors)).max(least);
    let rows = if cluster > 1 { 1 } else { threads / per_row };
    let has_levels = columns <= 16;
    if per_row > threads || (!has_levels && rows > 1) {
        return None;
    }
    let sums = if p.is_centered { 2 } else { 1 };
    let tensors = if p.has_residual { 3 } else { 2 };
    let shared = stages * tensors * vectors * threads * 16
        + if columns > 16 && p.is_centered { columns * threads * 4 } else { 0 }
        + if has_levels { sums * columns * threads * 4 } else { 0 };
    if shared + RESERVED_SHARED > u64::from(p.shared_bytes) / blocks {
        return None;
    }
    let teams = teams_for(p.rows.div_ceil(rows), p.teams(cluster, blocks), form.is_even);
    let all_turns = p.rows.div_ceil(teams * rows);
    // Late blocks share a twentieth of the rows and take a sixteenth of what others would: fewer of them than of those, so that the
    // slowest are followed by none.
    let has_late = has_late && cluster == 1 && p.capability >= 90 && all_turns >= LATE_FROM;
    let (turns, late) = if has_late {
        let turns = p.rows * 19 / (20 * teams * rows);
        (turns, (p.rows - turns * teams * rows).div_ceil(all_turns.div_ceil(16) * rows))
    } else {
        (all_turns, 0)
    };
    // Chains of additions: rows of one accumulator, of the next level, the block's rows, and at most 12 in the column sums.
    let (flush_rows, flushes) = match rows {
        _ if !has_levels => (rows_of_one_level(turns, teams), 0),
        1..=8 => (16, 10),
        _ => (10, 8),
    };
    let partial_rows = (teams + late) * turns.div_ceil(flush_rows * flushes.max(1));
    tuned.vectors = word(vectors);
    tuned.threads = word(threads);
    tuned.threads_per_row = word(per_row);
    tuned.cluster = word(cluster);
    tuned.stages = word(stages);
    tuned.grid = grid(teams * cluster + late)?;
    tuned.flush_rows = word(flush_rows);
    tuned.flushes = word(flushes);
    tuned.late_blocks = word(late);
    tuned.chunks = if has_late { u32::try_from(turns).ok()? } else { 0 };
    tuned.partial_rows = u32::try_from(partial_rows).ok()?;
    tuned.launches = 1 + u32::from(p.has_parameter_gradients);
    tuned.workspace_bytes = partials(p, partial_rows)?;
    Some(tuned)
}

/// How many of the `resident` teams take `items` in turn.
pub(super) fn teams_for(items: u64, resident: u64, is_even: bool) -> u64 {
    let turns = items.div_ceil(resident);
    if is_even && turns >= EVEN_FROM { items.div_ceil(turns) } else { items.min(resident) }
}

/// Rows whose gradients an accumulator takes before it goes to the workspace, in each of `teams` teams that take `turns` rows: as many as
/// the longest chain of additions allows, since partial rows are traffic.
fn rows_of_one_level(turns: u64, teams: u64) -> u64 {
    let fits = |&rows: &u64| rows + 3 + column_sum_chain(teams * turns.div_ceil(rows)) <= LONGEST_CHAIN;
    let most = (1..LONGEST_CHAIN).rev().find(fits).unwrap_or(1);
    turns.div_ceil(turns.div_ceil(most))
}

/// Additions between one of so many partial rows and their sum.
pub(super) fn column_sum_chain(partial_rows: u64) -> u64 {
    let threads = partial_rows.div_ceil(4).next_power_of_two().min(32);
    let blocks = partial_rows.div_ceil(threads * 4);
    let cascade = if blocks <= 8 { blocks } else { 8 + blocks.div_ceil(8).min(8) } + 2;
    cascade + u64::from(threads.ilog2())
}

/// Bytes of partial parameter gradients.
fn partials(p: &Problem, partial_rows: u64) -> Option<u64> {
    if !p.has_parameter_gradients {
        return Some(0);
    }
    let sums = if p.is_centered { 2 } else { 1 };
    let cols = p.cols.checked_next_multiple_of(32)?;
    partial_rows.checked_mul(cols)?.checked_mul(sums * u64::from(p.accumulator_bytes))
}

/// Chunks of rows: sums, merge, apply, then the parameters' gradients.
fn backward_split(p: &Problem) -> Result<Tuned, String> {
    let mut tuned = p.start_split(sys::BOPS_ROW_NORM_BACKWARD_SPLIT)?;
    let vectors = p.cols.div_ceil(p.elements(tuned.vec_bytes));
    // Partial rows of as many rows as still leave every multiprocessor four blocks.
    tuned.flush_rows = 16;
    let tiles = vectors.div_ceil(256).saturating_mul(16);
    let enough = |&flushes: &u64| p.rows / flushes * tiles / 256 >= 4 * u64::from(p.multiprocessors);
    tuned.flushes = word([16, 8, 4, 2].into_iter().find(enough).unwrap_or(1));
    let partial_rows = p.rows.div_ceil(u64::from(tuned.flush_rows * tuned.flushes));
    tuned.partial_rows = u32::try_from(partial_rows)
        .map_err(|_| format!("{} rows make {partial_rows} partial ones, the limit is {}", p.rows, u32::MAX))?;
    tuned.launches = 3 + u32::from(p.has_parameter_gradients);
    let bytes = partials(p, partial_rows).zip(p.split_bytes(&tuned, 2)).and_then(|(a, b)| a.checked_add(b));
    tuned.workspace_bytes = bytes.ok_or("the workspace exceeds 2^64 bytes")?;
    Ok(tuned)
}
