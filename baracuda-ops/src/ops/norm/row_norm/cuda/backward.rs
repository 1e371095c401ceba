//! The forms of backward: what they take, and their choices. The numbers were measured on an H200 (132 multiprocessors, CUDA 13.0) over rows of
//! 128 to 262144 columns.
//!
//! All forms but [`few_rows`] leave partial rows of the parameters' gradients in the workspace, sums over some rows each. A launch
//! behind them, `row_norm_backward_parameters`, adds these up.

use baracuda_ops_sys as sys;

use super::super::backward::{DBIAS, DH, DWEIGHT, DX, DY, MEAN, RSTD, WEIGHT, X};
use super::super::{BackwardFields, Valid, backward};
use super::{ByKind, MAX_THREADS, RowProblem, Rows, Sums, Task, Then, grid};
use crate::backend::Located;
use crate::backend::cuda::Props;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask};
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::rows::threads_for;

type Params = sys::bops_row_norm_backward_params;
type Operands = sys::bops_row_norm_backward_operands;
type FewRowsChoice = sys::bops_row_norm_backward_few_rows_choice;
type CooperativeChoice = sys::bops_row_norm_backward_cooperative_choice;
type RingChoice = sys::bops_row_norm_backward_ring_choice;
type PersistentChoice = sys::bops_row_norm_backward_persistent_choice;
type SplitChoice = sys::bops_row_norm_backward_split_choice;

/// One launch whose blocks own a row of dx or a strip of columns of the parameters' gradients.
pub(in crate::ops::norm) fn few_rows<'d>(norm: &Valid<BackwardFields>, props: &Props, ask: Ask) -> Accepted<'d> {
    let task = task(norm, props)?;
    Ok(task.candidate(calls!(bops_row_norm_backward_few_rows), few_rows_choice(&task.problem, ask)?))
}

/// Teams of blocks, on whichever SMs they run, walk over rows and exchange sums through the workspace.
pub(in crate::ops::norm) fn cooperative<'d>(norm: &Valid<BackwardFields>, props: &Props, ask: Ask) -> Accepted<'d> {
    let task = task(norm, props)?;
    let (choice, bytes) = cooperative_choice(&task.problem, ask)?;
    let sums = task.sums(choice.partial_rows, choice.overlaps);
    Ok(task.candidate_of(calls!(bops_row_norm_backward_cooperative), choice, 1, bytes, sums))
}

/// Teams, blocks or clusters, walk over rows and read ahead through rings of vectors in shared memory.
pub(in crate::ops::norm) fn ring<'d>(norm: &Valid<BackwardFields>, props: &Props, ask: Ask) -> Accepted<'d> {
    let task = task(norm, props)?;
    let (choice, bytes) = ring_choice(&task.problem, ask)?;
    let sums = task.sums(choice.partial_rows, choice.overlaps);
    Ok(task.candidate_of(calls!(bops_row_norm_backward_ring), choice, 1, bytes, sums))
}

/// Teams, each a part of a block, a block or a cluster, walk over rows with fixed columns and stage whole rows in shared memory.
pub(in crate::ops::norm) fn persistent<'d>(norm: &Valid<BackwardFields>, props: &Props, _: Ask) -> Accepted<'d> {
    let task = task(norm, props)?;
    let (choice, bytes) = persistent_choice(&task.problem)?;
    let sums = task.sums(choice.partial_rows, choice.overlaps);
    Ok(task.candidate_of(calls!(bops_row_norm_backward_persistent), choice, 1, bytes, sums))
}

/// Three launches over chunks of rows: sums, merge, apply. Without rows there is only the launch for the parameters' gradients, which are zeros.
pub(in crate::ops::norm) fn split<'d>(norm: &Valid<BackwardFields>, props: &Props, _: Ask) -> Accepted<'d> {
    let task = task(norm, props)?;
    let (choice, bytes) = split_choice(&task.problem)?;
    let launches = if task.problem.rows > 0 && task.problem.cols > 0 { 3 } else { 0 };
    let sums = task.sums(choice.partial_rows, 0);
    Ok(task.candidate_of(calls!(bops_row_norm_backward_split), choice, launches, bytes, sums))
}

impl Task<Params, Operands> {
    /// The launch that adds up so many partial rows, if there are any.
    fn sums(&self, partial_rows: u32, overlaps: u32) -> Option<Then<Params, Operands>> {
        let has_sums = self.problem.has_parameter_gradients && self.problem.cols > 0;
        has_sums.then_some((calls!(bops_row_norm_backward_parameters), Sums { partial_rows, overlaps }))
    }
}

fn task(norm: &Valid<BackwardFields>, props: &Props) -> Result<Task<Params, Operands>, Reason> {
    let fields = &norm.fields;
    let parameter = fields.weight.or(fields.dbias);
    let (x, dense) = ((&fields.x, fields.normalized_dims), [WEIGHT, MEAN, RSTD, DWEIGHT, DBIAS]);
    let rows = Rows::new(x, &norm.slots, [DY, X, DH, DX], &dense, parameter)?;
    let problem = RowProblem {
        has_residual: fields.dh,
        has_parameter_gradients: fields.dweight || fields.dbias.is_some(),
        ..RowProblem::new(norm, &rows, &[WEIGHT, DWEIGHT, DBIAS], props)
    };
    let ([extent1, extent2], [dy, x, dh, dx]) = rows.c();
    let weight_offset = fields.weight_offset.get();
    let params = Params { rows: problem.rows, cols: problem.cols, extent1, extent2, dy, x, dh, dx, weight_offset };
    Ok(Task { problem, of: rows.specialisation(norm.op.kind, fields.dh)?, params, operands })
}

fn operands(located: &Located<'_>) -> Operands {
    backward::memory!(pointers Operands, located)
}

/// The most additions between an element and its sum over rows; docs/numerics.md says up to how many rows.
pub(super) const LONGEST_CHAIN: u64 = 48;
/// Additions that join the levels of a thread's `cascade` of partial rows.
const CASCADE_JOINS: u64 = 2;
/// What forms leave of `LONGEST_CHAIN` that have no sums over the rows of a block: the joins, and one addition as a reserve.
const SPARE_ADDITIONS: u64 = CASCADE_JOINS + 1;

/// Bytes of partial rows.
fn partial_bytes(p: &RowProblem, partial_rows: u64) -> Result<u64, Reason> {
    if !p.has_parameter_gradients {
        return Ok(0);
    }
    let sums = if p.is_centered { 2 } else { 1 };
    let bytes = |cols: u64| partial_rows.checked_mul(cols)?.checked_mul(sums * u64::from(p.accumulator_bytes));
    p.cols.checked_next_multiple_of(32).and_then(bytes).ok_or_else(|| "the workspace exceeds 2^64 bytes".into())
}

/// The number of partial rows, as kernels are told of it.
fn partial_row_count(partial_rows: u64) -> Result<u32, Reason> {
    let words = || format!("it makes {partial_rows} partial rows, the limit is {}", u32::MAX).into();
    u32::try_from(partial_rows).map_err(|_| words())
}

/// Additions between one of so many partial rows and their sum, as `row_norm_backward_parameters` adds them up: four rows at once, in chains of eight
/// on each of three levels and any number on the fourth (`cascade`), and in a tree of the threads that share a column.
pub(super) fn column_sum_chain(partial_rows: u64) -> u64 {
    let threads = partial_rows.div_ceil(4).next_power_of_two().min(32);
    let blocks = partial_rows.div_ceil(threads * 4);
    let levels = match blocks {
        0..=8 => blocks,
        9..=64 => 8 + blocks.div_ceil(8),
        65..=512 => 16 + blocks.div_ceil(64),
        _ => 24 + blocks.div_ceil(512),
    };
    // Two additions join four rows.
    levels + 2 + u64::from(threads.ilog2())
}

/// Turns of a team from which on there may be fewer teams than are resident: then fewer than one team in 16 is left out.
const EVEN_FROM_TURNS: u64 = 16;

/// How many of the `resident` teams take `items` in turn. `is_even`: the fewest teams that need no more turns than all resident ones.
pub(super) fn teams_for(items: u64, resident: u64, is_even: bool) -> u64 {
    let turns = items.div_ceil(resident);
    if is_even && turns >= EVEN_FROM_TURNS { items.div_ceil(turns) } else { items.min(resident) }
}

/// Partial rows up to which `rows_of_one_level` keeps chains short. There an accumulator takes 22 rows; for more partial rows it would take fewer, which
/// makes still more of them: LayerNorm of 16-bit elements moves 6 bytes of an element, and 16 bytes of a column of each partial row, which is a fifth as
/// much if it has 12 rows.
pub(super) const PARTIAL_ROWS_OF_ONE_LEVEL: u64 = 8192;

/// Rows whose gradients an accumulator takes before it becomes a partial row, in each of `teams` teams that take `turns` rows: as many as the
/// longest chain of additions allows, since partial rows are traffic.
fn rows_of_one_level(turns: u64, teams: u64) -> u64 {
    let partial_rows = |rows| (teams * turns.div_ceil(rows)).min(PARTIAL_ROWS_OF_ONE_LEVEL);
    let fits = |&rows: &u64| rows + SPARE_ADDITIONS + column_sum_chain(partial_rows(rows)) <= LONGEST_CHAIN;
    let most = (1..LONGEST_CHAIN).rev().find(fits).unwrap_or(1);
    turns.div_ceil(turns.div_ceil(most))
}

// ---- few_rows ---------------------------------------------------------------------------------------------------------------

/// Rows up to which reading dy and x twice costs less than another launch.
const FEW_ROWS_UP_TO: u64 = 256;
/// Columns of the longest row: 16 elements for each of 512 threads.
const FEW_ROWS_COLS: u64 = 16 * MAX_THREADS;
/// Threads of a block that share a column, each of which adds up every 64th row.
const FEW_ROWS_COLUMN_THREADS: u64 = MAX_THREADS / 8;
/// Additions between a thread's sum and the sum of the column: two in a warp, and one for each of 16 warps.
const FEW_ROWS_CHAIN: u64 = 2 + 16;

pub(super) fn few_rows_choice(p: &RowProblem, ask: Ask) -> Result<FewRowsChoice, Reason> {
    let vectors = p.check_vectors()?;
    let most_rows = match ask {
        Ask::Chosen | Ask::ChosenInvariant => FEW_ROWS_UP_TO,
        Ask::Pinned | Ask::PinnedInvariant => (LONGEST_CHAIN - FEW_ROWS_CHAIN) * FEW_ROWS_COLUMN_THREADS,
    };
    if p.rows > most_rows || p.cols > FEW_ROWS_COLS {
        let (rows, cols) = (p.rows, p.cols);
        return Err(format!("{rows} rows of {cols} columns, the limits are {most_rows} and {FEW_ROWS_COLS}").into());
    }
    // A strip of columns has eight vectors.
    let grid = grid(p.rows + vectors.div_ceil(8))?;
    Ok(FewRowsChoice { grid, overlaps: p.overlaps() })
}

// ---- cooperative ------------------------------------------------------------------------------------------------------------

/// The kernel of the cooperative form for a kind of norm and element.
#[derive(Clone, Copy, Debug)]
struct Cooperative {
    /// Vectors of the longest rows that other forms serve faster.
    above_vectors: u64,
    /// Threads of a block that read rows.
    readers: u64,
    /// Vectors of a row and a thread.
    vectors: u64,
}

/// The kernels of each kind of norm.
const COOPERATIVE_KERNELS: ByKind<Cooperative> = ByKind {
    layer_norm_16: Cooperative { above_vectors: 6144, readers: 512, vectors: 1 },
    rms_norm_16: Cooperative { above_vectors: 16384, readers: 256, vectors: 1 },
    layer_norm_32: Cooperative { above_vectors: 12288, readers: 256, vectors: 2 },
    rms_norm_32: Cooperative { above_vectors: 12288, readers: 256, vectors: 2 },
};
/// Vectors that a thread has in a turn; the turn has as many rows as make so many.
const COOPERATIVE_TURN_VECTORS: u64 = 2;
/// Threads of a multiprocessor that read rows.
const COOPERATIVE_READERS: u64 = 512;
/// Vectors of a row of LayerNorm, 16-bit elements, for which clusters are faster: such a row fills their rings.
const FULL_RING_VECTORS: u64 = 8192;

/// Serves rows so long that a team of many blocks is faster than a cluster: it takes every multiprocessor, holds more rows, and leaves fewer partial
/// rows. Returns the bytes of workspace, too.
pub(super) fn cooperative_choice(p: &RowProblem, ask: Ask) -> Result<(CooperativeChoice, u64), Reason> {
    p.check_capability(90)?;
    let all = p.check_walk()?;
    p.check_one_stride()?;
    Reason::unless(!p.has_residual, || "it takes no dh")?;
    let Cooperative { above_vectors, readers, vectors } = COOPERATIVE_KERNELS.of(p);
    ask.leave_if(all <= above_vectors, "forms whose teams are blocks or clusters are faster for rows of this length")?;
    if ask == Ask::Chosen
        && p.element_bytes == 2
        && p.is_centered
        && all == FULL_RING_VECTORS
        && ring_choice(p, ask).is_ok()
    {
        return Err("ring is faster for rows of 65536 columns, which fill its clusters".into());
    }
    let stages = u64::from(sys::BOPS_ROW_NORM_COOPERATIVE_STAGES);
    let blocks_per_sm = COOPERATIVE_READERS / readers;
    let resident = u64::from(p.multiprocessors) * blocks_per_sm;
    let team_blocks = all.div_ceil(readers * vectors);
    let most = resident.min(u64::from(sys::BOPS_ROW_NORM_COOPERATIVE_TEAM));
    Reason::unless(team_blocks <= most, || format!("a row takes {team_blocks} blocks, the limit is {most}"))?;
    // Sums that are on their way take up to `RESERVED_SHARED` bytes more.
    let shared_bytes = stages * COOPERATIVE_TURN_VECTORS * readers * 32;
    Reason::unless(p.has_shared(shared_bytes + super::RESERVED_SHARED, blocks_per_sm), || {
        format!("a multiprocessor has no shared memory for {blocks_per_sm} rings of {shared_bytes} bytes")
    })?;
    let turn_rows = COOPERATIVE_TURN_VECTORS / vectors;
    let most_teams = resident / team_blocks;
    if ask == Ask::Chosen && p.rows < most_teams * turn_rows * stages {
        return Err("the grid has to meet once, which pays for more rows than the rings hold".into());
    }
    let teams = most_teams.min(p.rows.div_ceil(turn_rows));
    // 16 additions on each of two levels leave 13 of the longest chain for the column sums.
    let (flush_rows, flushes) = (16, 16);
    let partial_rows = teams * p.rows.div_ceil(teams * turn_rows).div_ceil(flush_rows * flushes / turn_rows);
    let chain = flush_rows + flushes + SPARE_ADDITIONS + column_sum_chain(partial_rows);
    if chain > LONGEST_CHAIN {
        return Err(format!("{} rows make chains of {chain} additions, the limit is {LONGEST_CHAIN}", p.rows).into());
    }
    let choice = CooperativeChoice {
        vectors: word(vectors),
        readers: word(readers),
        team_blocks: word(team_blocks),
        grid: grid(teams * team_blocks)?,
        overlaps: p.overlaps(),
        flush_rows: word(flush_rows),
        flushes: word(flushes),
        partial_rows: partial_row_count(partial_rows)?,
    };
    let message_count = teams * team_blocks * turn_rows * u64::from(sys::BOPS_ROW_NORM_COOPERATIVE_TURNS);
    let messages = message_count * u64::from(sys::BOPS_ROW_NORM_COOPERATIVE_MESSAGE);
    let bytes = partial_bytes(p, partial_rows)?.checked_add(messages);
    Ok((choice, bytes.ok_or("the workspace exceeds 2^64 bytes")?))
}

// ---- ring -------------------------------------------------------------------------------------------------------------------

/// A kernel of the ring form, and how it is launched. A thread has four vectors of a row.
#[derive(Clone, Copy, Debug)]
struct Ring {
    /// Threads of a block.
    threads: u64,
    /// Vectors of dy and of x in a thread's ring: those of the row that is read, those of the row before, which is finished, and three or five more.
    /// With five more, the rings of 512 threads take 208 KiB of an SM's 227, which has no room for a sixth.
    slots: u64,
    /// Blocks that share a row.
    cluster: u64,
    /// Blocks that share an SM: as many as its shared memory has room for.
    blocks_per_sm: u64,
    /// Whether the grid is reduced to the fewest teams that need no more turns (`teams_for`).
    is_even: bool,
}

/// Vectors of a row and a thread.
const RING_VECTORS: u64 = 4;
/// What the entries of `RINGS` leave out.
const UNEVEN: Ring = Ring { threads: 0, slots: 0, cluster: 0, blocks_per_sm: 0, is_even: false };
/// The kernels of each kind of norm, the shortest rows first: the first kernel that holds a row is taken.
const RINGS: ByKind<&[Ring]> = ByKind {
    layer_norm_16: &[
        Ring { threads: 256, slots: 13, cluster: 2, blocks_per_sm: 2, ..UNEVEN },
        Ring { threads: 512, slots: 13, cluster: 2, blocks_per_sm: 1, ..UNEVEN },
        Ring { threads: 256, slots: 13, cluster: 8, blocks_per_sm: 2, ..UNEVEN },
        Ring { threads: 512, slots: 13, cluster: 8, blocks_per_sm: 1, ..UNEVEN },
        Ring { threads: 512, slots: 13, cluster: 16, blocks_per_sm: 1, ..UNEVEN },
    ],
    rms_norm_16: &[
        Ring { threads: 512, slots: 13, cluster: 1, blocks_per_sm: 1, is_even: true },
        Ring { threads: 512, slots: 13, cluster: 2, blocks_per_sm: 1, ..UNEVEN },
        Ring { threads: 256, slots: 13, cluster: 8, blocks_per_sm: 2, ..UNEVEN },
        Ring { threads: 512, slots: 13, cluster: 8, blocks_per_sm: 1, ..UNEVEN },
        Ring { threads: 512, slots: 13, cluster: 16, blocks_per_sm: 1, ..UNEVEN },
    ],
    layer_norm_32: &[
        Ring { threads: 256, slots: 11, cluster: 4, blocks_per_sm: 2, ..UNEVEN },
        Ring { threads: 256, slots: 11, cluster: 8, blocks_per_sm: 2, ..UNEVEN },
        Ring { threads: 512, slots: 11, cluster: 8, blocks_per_sm: 1, ..UNEVEN },
        Ring { threads: 512, slots: 11, cluster: 16, blocks_per_sm: 1, ..UNEVEN },
    ],
    rms_norm_32: &[
        Ring { threads: 256, slots: 11, cluster: 4, blocks_per_sm: 2, ..UNEVEN },
        Ring { threads: 256, slots: 11, cluster: 8, blocks_per_sm: 2, ..UNEVEN },
        Ring { threads: 256, slots: 13, cluster: 16, blocks_per_sm: 2, ..UNEVEN },
        Ring { threads: 512, slots: 13, cluster: 16, blocks_per_sm: 1, ..UNEVEN },
    ],
};
/// Vectors of the longest rows that `persistent` serves faster.
const RING_ABOVE_VECTORS: ByKind<u64> =
    ByKind { layer_norm_16: 1024, rms_norm_16: 1024, layer_norm_32: 2048, rms_norm_32: 2560 };
/// Vectors of the longest rows of LayerNorm, 16-bit elements and no dh, that `persistent` serves faster: its threads then have 32 columns each, which
/// leaves no room for dh.
const RING_ABOVE_VECTORS_WITHOUT_DH: u64 = 2048;

/// Long rows, with the parameters' gradients in registers. Returns the bytes of workspace, too.
pub(super) fn ring_choice(p: &RowProblem, ask: Ask) -> Result<(RingChoice, u64), Reason> {
    let all = p.check_ring(ask)?;
    let is_held = p.element_bytes == 2 && p.is_centered && !p.has_residual && all <= RING_ABOVE_VECTORS_WITHOUT_DH;
    ask.leave_if(is_held || all <= RING_ABOVE_VECTORS.of(p), "persistent is faster for rows that it holds on chip")?;
    let holds = |ring: &&Ring| all <= ring.threads * RING_VECTORS * ring.cluster;
    let found = RINGS.of(p).iter().find(holds).filter(|ring| ring.cluster <= u64::from(p.max_cluster));
    let Some(&Ring { threads, slots, cluster, blocks_per_sm, is_even }) = found else {
        return Err(format!("a row has {all} vectors of 16 bytes, more than clusters of the device hold").into());
    };
    let shared_bytes = slots * threads * 32;
    Reason::unless(p.has_shared(shared_bytes, blocks_per_sm), || {
        format!("a multiprocessor has no shared memory for {blocks_per_sm} rings of {shared_bytes} bytes")
    })?;
    let teams = teams_for(p.rows, p.resident_teams(cluster, blocks_per_sm), is_even);
    let turns = p.rows.div_ceil(teams);
    let flush_rows = rows_of_one_level(turns, teams);
    let partial_rows = teams * turns.div_ceil(flush_rows);
    let choice = RingChoice {
        vectors: word(RING_VECTORS),
        slots: word(slots),
        threads: word(threads),
        cluster: word(cluster),
        is_whole: u32::from(threads * RING_VECTORS * cluster == all),
        grid: word(teams * cluster),
        overlaps: p.overlaps(),
        flush_rows: word(flush_rows),
        partial_rows: partial_row_count(partial_rows)?,
    };
    Ok((choice, partial_bytes(p, partial_rows)?))
}

// ---- persistent -------------------------------------------------------------------------------------------------------------

/// A kernel of the persistent form, and how it is launched.
#[derive(Clone, Copy, Debug)]
struct Persistent {
    /// Columns of a row that a block has, at most.
    most_cols: u64,
    /// Columns of a thread.
    columns: u64,
    /// Threads of a block.
    threads: u64,
    /// Blocks that share an SM.
    blocks_per_sm: u64,
    /// Rows of a team in flight.
    stages: u64,
    /// Whether the last rows are left to late blocks: memory does not serve multiprocessors evenly, and those that are ahead take more.
    /// RMSNorm alone.
    has_late: bool,
    /// Whether the grid is reduced to the fewest teams that need no more turns (`teams_for`).
    is_even: bool,
}

/// What the entries of the tables of persistent kernels leave out.
const PLAIN: Persistent =
    Persistent { most_cols: 0, columns: 0, threads: 0, blocks_per_sm: 0, stages: 0, has_late: false, is_even: false };

/// Kernels whose blocks have a row, or several: the first that serves is taken.
const IN_BLOCK: ByKind<&[Persistent]> = ByKind {
    layer_norm_16: &[
        Persistent { most_cols: 256, columns: 8, threads: 256, blocks_per_sm: 3, stages: 2, ..PLAIN },
        Persistent { most_cols: 1024, columns: 16, threads: 256, blocks_per_sm: 2, stages: 2, is_even: true, ..PLAIN },
        Persistent { most_cols: 4096, columns: 16, threads: 512, blocks_per_sm: 1, stages: 2, ..PLAIN },
        Persistent { most_cols: 6144, columns: 32, threads: 256, blocks_per_sm: 2, stages: 2, ..PLAIN },
        Persistent { most_cols: 8192, columns: 16, threads: 512, blocks_per_sm: 1, stages: 2, ..PLAIN },
        Persistent { most_cols: 16384, columns: 32, threads: 512, blocks_per_sm: 1, stages: 2, is_even: true, ..PLAIN },
    ],
    rms_norm_16: &[
        Persistent { most_cols: 1024, columns: 8, threads: 256, blocks_per_sm: 3, stages: 2, ..PLAIN },
        Persistent { most_cols: 2048, columns: 16, threads: 512, blocks_per_sm: 1, stages: 2, ..PLAIN },
        Persistent { most_cols: 3072, columns: 16, threads: 512, blocks_per_sm: 1, stages: 3, ..PLAIN },
        Persistent { most_cols: 4096, columns: 16, threads: 512, blocks_per_sm: 1, stages: 2, ..PLAIN },
        Persistent { most_cols: 6144, columns: 32, threads: 256, blocks_per_sm: 2, stages: 2, ..PLAIN },
        Persistent { most_cols: 8192, columns: 16, threads: 512, blocks_per_sm: 1, stages: 2, ..PLAIN },
        Persistent { most_cols: 16384, columns: 32, threads: 512, blocks_per_sm: 1, stages: 3, ..PLAIN },
    ],
    layer_norm_32: &[
        Persistent { most_cols: 384, columns: 8, threads: 256, blocks_per_sm: 2, stages: 2, ..PLAIN },
        Persistent { most_cols: 640, columns: 16, threads: 256, blocks_per_sm: 1, stages: 2, ..PLAIN },
        Persistent { most_cols: 1024, columns: 8, threads: 256, blocks_per_sm: 2, stages: 2, ..PLAIN },
        Persistent { most_cols: 4096, columns: 16, threads: 256, blocks_per_sm: 1, stages: 2, ..PLAIN },
        Persistent { most_cols: 6144, columns: 32, threads: 256, blocks_per_sm: 1, stages: 2, ..PLAIN },
        Persistent { most_cols: 8192, columns: 16, threads: 512, blocks_per_sm: 1, stages: 1, ..PLAIN },
        Persistent { most_cols: 16384, columns: 32, threads: 512, blocks_per_sm: 1, stages: 1, ..PLAIN },
    ],
    rms_norm_32: &[
        Persistent { most_cols: 384, columns: 8, threads: 256, blocks_per_sm: 2, stages: 2, ..PLAIN },
        Persistent { most_cols: 640, columns: 16, threads: 256, blocks_per_sm: 1, stages: 2, ..PLAIN },
        Persistent { most_cols: 768, columns: 8, threads: 256, blocks_per_sm: 2, stages: 2, ..PLAIN },
        Persistent { most_cols: 1024, columns: 8, threads: 256, blocks_per_sm: 2, stages: 2, ..PLAIN },
        Persistent { most_cols: 2048, columns: 16, threads: 256, blocks_per_sm: 1, stages: 2, ..PLAIN },
        Persistent { most_cols: 4096, columns: 16, threads: 512, blocks_per_sm: 1, stages: 1, has_late: true, ..PLAIN },
        Persistent { most_cols: 6144, columns: 32, threads: 256, blocks_per_sm: 1, stages: 2, ..PLAIN },
        Persistent { most_cols: 8192, columns: 16, threads: 512, blocks_per_sm: 1, stages: 1, has_late: true, ..PLAIN },
        Persistent { most_cols: 16384, columns: 32, threads: 512, blocks_per_sm: 1, stages: 1, ..PLAIN },
    ],
};
/// Kernels whose clusters have a row: the first that serves is taken, with the fewest blocks.
const IN_CLUSTER: ByKind<&[Persistent]> = ByKind {
    layer_norm_16: &[
        Persistent { most_cols: 4096, columns: 16, threads: 256, blocks_per_sm: 2, stages: 3, ..PLAIN },
        Persistent { most_cols: 8192, columns: 16, threads: 512, blocks_per_sm: 1, stages: 3, ..PLAIN },
        Persistent { most_cols: 16384, columns: 32, threads: 512, blocks_per_sm: 1, stages: 2, ..PLAIN },
    ],
    rms_norm_16: &[
        Persistent { most_cols: 8192, columns: 32, threads: 256, blocks_per_sm: 2, stages: 3, ..PLAIN },
        Persistent { most_cols: 16384, columns: 32, threads: 512, blocks_per_sm: 1, stages: 3, ..PLAIN },
    ],
    layer_norm_32: &[
        Persistent { most_cols: 8192, columns: 32, threads: 256, blocks_per_sm: 2, stages: 1, ..PLAIN },
        Persistent { most_cols: 16384, columns: 32, threads: 512, blocks_per_sm: 1, stages: 1, ..PLAIN },
    ],
    rms_norm_32: &[
        Persistent { most_cols: 8192, columns: 32, threads: 256, blocks_per_sm: 2, stages: 1, ..PLAIN },
        Persistent { most_cols: 16384, columns: 32, threads: 512, blocks_per_sm: 1, stages: 1, ..PLAIN },
    ],
};
/// Kernels for any kind of norm that read dh, whose blocks have a row or several.
const IN_BLOCK_WITH_DH: &[Persistent] = &[
    Persistent { most_cols: 256, columns: 8, threads: 256, blocks_per_sm: 2, stages: 2, ..PLAIN },
    Persistent { most_cols: 4096, columns: 16, threads: 256, blocks_per_sm: 1, stages: 2, ..PLAIN },
    Persistent { most_cols: 8192, columns: 16, threads: 512, blocks_per_sm: 1, stages: 2, ..PLAIN },
    Persistent { most_cols: 8192, columns: 16, threads: 512, blocks_per_sm: 1, stages: 1, ..PLAIN },
];
/// Kernels for any kind of norm that read dh, whose clusters have a row.
const IN_CLUSTER_WITH_DH: &[Persistent] = &[
    Persistent { most_cols: 4096, columns: 16, threads: 256, blocks_per_sm: 2, stages: 2, ..PLAIN },
    Persistent { most_cols: 4096, columns: 16, threads: 256, blocks_per_sm: 1, stages: 2, ..PLAIN },
    Persistent { most_cols: 8192, columns: 16, threads: 512, blocks_per_sm: 1, stages: 1, ..PLAIN },
];
/// The two levels on which a thread adds up gradients before they become a partial row.
#[derive(Clone, Copy, Debug)]
struct Levels {
    /// Rows that an accumulator takes.
    flush_rows: u64,
    /// Accumulators that one of the next level takes.
    flushes: u64,
}
const fn levels(flush_rows: u64, flushes: u64) -> Levels {
    Levels { flush_rows, flushes }
}
/// Levels of blocks of up to eight rows: the first whose chains of additions are short enough. The first entry leaves 12 additions for the partial rows,
/// which is enough for 640 of them; the others leave more for those, and make more of them.
const LEVELS: &[Levels] = &[levels(16, 10), levels(11, 10), levels(10, 9), levels(9, 8), levels(8, 7)];
/// The same for blocks of up to 16 rows.
const LEVELS_OF_MANY_ROWS: &[Levels] = &[levels(10, 8), levels(7, 6), levels(6, 5), levels(5, 5)];
/// Turns of a block from which on some rows are left to late blocks.
const LATE_FROM_TURNS: u64 = 40;
/// Late blocks take one row in this many.
const LATE_ROWS: u64 = 20;
/// Turns of another block for each turn of a late block.
const LATE_TURNS: u64 = 16;

/// Returns the bytes of workspace, too.
pub(super) fn persistent_choice(p: &RowProblem) -> Result<(PersistentChoice, u64), Reason> {
    p.check_walk()?;
    p.check_one_stride()?;
    let (in_block, in_cluster) =
        if p.has_residual { (IN_BLOCK_WITH_DH, IN_CLUSTER_WITH_DH) } else { (IN_BLOCK.of(p), IN_CLUSTER.of(p)) };
    // A wider kernel is better than none, and a larger cluster is better than a wider kernel.
    let of_clusters = |kernel| p.clusters().find_map(|cluster| persistent_in(p, kernel, cluster));
    let found = in_block.iter().find_map(|kernel| persistent_in(p, kernel, 1));
    let (choice, partial_rows) = found
        .or_else(|| in_cluster.iter().find_map(of_clusters))
        .ok_or_else(|| no_persistent(p, in_block, in_cluster))?;
    let choice = PersistentChoice { partial_rows: partial_row_count(partial_rows)?, ..choice };
    Ok((choice, partial_bytes(p, partial_rows)?))
}

/// Why no persistent kernel serves: the rows are too long for all of them, or those that are not too short for their rows need more shared memory.
fn no_persistent(p: &RowProblem, in_block: &[Persistent], in_cluster: &[Persistent]) -> Reason {
    let clusters = || p.clusters().flat_map(|cluster| in_cluster.iter().map(move |kernel| (kernel, cluster)));
    let all = || in_block.iter().map(|kernel| (kernel, 1)).chain(clusters());
    let needed = all().filter_map(|(kernel, cluster)| {
        let of_block = Placed::new(p, kernel, cluster)?.shared_bytes + super::RESERVED_SHARED;
        Some(of_block * kernel.blocks_per_sm)
    });
    match needed.min() {
        Some(bytes) => {
            let (cols, limit) = (p.cols, p.shared_bytes);
            format!(
                "rows of {cols} columns need {bytes} bytes of a multiprocessor's shared memory, the limit is {limit}"
            )
        }
        None => {
            let most = all().map(|(kernel, cluster)| kernel.most_cols * cluster).max().unwrap_or_default();
            format!("rows of {} columns, the limit of the device is {most}", p.cols)
        }
    }
    .into()
}

/// How the rows lie in the blocks of a persistent kernel.
struct Placed {
    /// Vectors of a row and a thread.
    vectors: u64,
    /// Threads of a row in one block.
    threads_per_row: u64,
    block_rows: u64,
    /// Whether the parameters' gradients have a second level of accumulators.
    has_levels: bool,
    /// Shared memory of a block.
    shared_bytes: u64,
}

impl Placed {
    /// In teams of so many blocks, if rows are not too long for that, nor so short that a block would take several and cannot.
    fn new(p: &RowProblem, kernel: &Persistent, cluster: u64) -> Option<Self> {
        let Persistent { most_cols, columns, threads, stages, .. } = *kernel;
        if p.cols.div_ceil(cluster) > most_cols {
            return None;
        }
        // 1. Threads of a row, and rows of a block.
        let vectors = columns / p.elements(16);
        let slice = (p.cols / p.elements(16)).div_ceil(cluster);
        let least_threads = match (cluster, columns) {
            (2.., _) => 64,
            (_, 9..) => 32,
            _ => 16,
        };
        let threads_per_row = threads_for(slice.div_ceil(vectors)).max(least_threads);
        let block_rows = if cluster > 1 { 1 } else { threads / threads_per_row };
        // With 32 columns a thread has no room for a second level, nor a block for several rows.
        let has_levels = columns <= 16;
        if threads_per_row > threads || (!has_levels && block_rows > 1) {
            return None;
        }
        // 2. Shared memory: the stages; then weights, or the second level of the parameters' gradients.
        let sums = if p.is_centered { 2 } else { 1 };
        let tensors = if p.has_residual { 3 } else { 2 };
        let column_bytes = columns * threads * 4;
        let weights = if !has_levels && p.is_centered { column_bytes } else { 0 };
        let levels = if has_levels { sums * column_bytes } else { 0 };
        let shared_bytes = stages * tensors * vectors * threads * 16 + weights + levels;
        Some(Self { vectors, threads_per_row, block_rows, has_levels, shared_bytes })
    }
}

/// The choice of a kernel whose teams are so many blocks, if it serves, and the partial rows.
fn persistent_in(p: &RowProblem, kernel: &Persistent, cluster: u64) -> Option<(PersistentChoice, u64)> {
    let Persistent { threads, blocks_per_sm, stages, has_late, is_even, .. } = *kernel;
    // Where rows lie, and the shared memory: steps 1 and 2 of `Placed::new`.
    let placed = Placed::new(p, kernel, cluster).filter(|placed| p.has_shared(placed.shared_bytes, blocks_per_sm))?;
    let Placed { vectors, threads_per_row, block_rows, has_levels, .. } = placed;
    // 3. Teams. Late blocks are fewer than the others, so that none of them follows the slowest of those.
    let resident = p.resident_teams(cluster, blocks_per_sm);
    let teams = teams_for(p.rows.div_ceil(block_rows), resident, is_even);
    let all_turns = p.rows.div_ceil(teams * block_rows);
    let has_late = has_late && cluster == 1 && p.capability >= 90 && all_turns >= LATE_FROM_TURNS;
    let (turns, late_blocks) = if has_late {
        let turns = p.rows * (LATE_ROWS - 1) / (LATE_ROWS * teams * block_rows);
        (turns, (p.rows - turns * teams * block_rows).div_ceil(all_turns.div_ceil(LATE_TURNS) * block_rows))
    } else {
        (all_turns, 0)
    };
    // 4. Chains of additions: of one accumulator, of the next level, of the block's rows, and of the partial rows.
    let partial_rows_of = |rows: u64| (teams + late_blocks) * turns.div_ceil(rows);
    let chain = |of: &&Levels| {
        let partial_rows = partial_rows_of(of.flush_rows * of.flushes);
        of.flush_rows + of.flushes + block_rows + CASCADE_JOINS + column_sum_chain(partial_rows)
    };
    let Levels { flush_rows, flushes } = if has_levels {
        let table = if block_rows <= 8 { LEVELS } else { LEVELS_OF_MANY_ROWS };
        *table.iter().find(|of| chain(of) <= LONGEST_CHAIN).or(table.iter().min_by_key(chain))?
    } else {
        Levels { flush_rows: rows_of_one_level(turns, teams), flushes: 0 }
    };
    let partial_rows = partial_rows_of(flush_rows * flushes.max(1));
    let choice = PersistentChoice {
        vectors: word(vectors),
        threads_per_row: word(threads_per_row),
        threads: word(threads),
        cluster: word(cluster),
        stages: word(stages),
        grid: grid(teams * cluster + late_blocks).ok()?,
        overlaps: p.overlaps(),
        flush_rows: word(flush_rows),
        flushes: word(flushes),
        late_blocks: word(late_blocks),
        early_turns: if has_late { word(turns) } else { 0 },
        partial_rows: 0,
    };
    Some((choice, partial_rows))
}

// ---- split ------------------------------------------------------------------------------------------------------------------

/// Blocks that there should be at least for each multiprocessor when partial rows are made longer.
const SPLIT_BLOCKS: u64 = 4;
/// Threads of a block of the last launch.
const SPLIT_THREADS: u64 = 256;

/// Returns the bytes of workspace, too.
pub(super) fn split_choice(p: &RowProblem) -> Result<(SplitChoice, u64), Reason> {
    let vec_bytes = p.vec_bytes();
    let (chunks, grid) = p.split_grid(vec_bytes)?;
    let flush_rows = 16;
    if p.rows == 0 || p.cols == 0 {
        let choice = SplitChoice { vec_bytes, ..Default::default() };
        return Ok((choice, 0));
    }
    // The partial rows of the most rows that still keep every multiprocessor busy and chains of additions short.
    let vectors = p.cols.div_ceil(p.elements(vec_bytes));
    let threads_of_16_rows = vectors.div_ceil(SPLIT_THREADS).saturating_mul(16);
    let is_busy = |&flushes: &u64| {
        p.rows / flushes * threads_of_16_rows / SPLIT_THREADS >= SPLIT_BLOCKS * u64::from(p.multiprocessors)
    };
    let partial_rows_of = |flushes: u64| p.rows.div_ceil(flush_rows * flushes);
    let is_short = |&flushes: &u64| {
        flush_rows + flushes + SPARE_ADDITIONS + column_sum_chain(partial_rows_of(flushes)) <= LONGEST_CHAIN
    };
    let flushes = [16, 8, 4, 2].into_iter().find(|flushes| is_busy(flushes) && is_short(flushes)).unwrap_or(1);
    let partial_rows = partial_rows_of(flushes);
    let bytes = p.split_bytes(chunks, 2).and_then(|sums| partial_bytes(p, partial_rows).ok()?.checked_add(sums));
    let choice = SplitChoice {
        vec_bytes,
        chunks,
        grid,
        flush_rows: word(flush_rows),
        flushes: word(flushes),
        partial_rows: partial_row_count(partial_rows)?,
    };
    Ok((choice, bytes.ok_or("the workspace exceeds 2^64 bytes")?))
}
