//! The forms of forward: what they take, and their choices. The numbers were measured on an H200 (132 multiprocessors, CUDA 13.0) over rows of
//! 128 to 262144 columns.

use std::ops::RangeInclusive;

use baracuda_ops_sys as sys;

use super::super::forward::{BIAS, H, MEAN, RESIDUAL, RSTD, WEIGHT, X, Y};
use super::super::{ForwardFields, Valid, forward};
use super::{ByKind, MAX_THREADS, RowProblem, Rows, Task, grid};
use crate::backend::Located;
use crate::backend::cuda::Props;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask};
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::rows::threads_for;
use crate::ops::samples::are_packed;

type Params = sys::bops_row_norm_params;
type Operands = sys::bops_row_norm_operands;

/// LayerNorm alone: a row in the registers of a block as 16-bit elements.
pub(in crate::ops::norm) fn packed<'d>(norm: &Valid<ForwardFields>, props: &Props, ask: Ask) -> Accepted<'d> {
    let task = task(norm, props, ask)?;
    let candidate = task.candidate(calls!(bops_row_norm_packed), packed_choice(&task.problem, ask)?);
    Ok(candidate.batch_invariant_if(promises(norm, ask)))
}

/// LayerNorm alone: a row in the registers of a warp as 16-bit elements.
pub(in crate::ops::norm) fn packed_warp<'d>(norm: &Valid<ForwardFields>, props: &Props, ask: Ask) -> Accepted<'d> {
    let task = task(norm, props, ask)?;
    let candidate = task.candidate(calls!(bops_row_norm_packed_warp), packed_warp_choice(&task.problem, ask)?);
    Ok(candidate.batch_invariant_if(promises(norm, ask)))
}

/// Teams walk over rows and read ahead through rings of vectors in shared memory.
pub(in crate::ops::norm) fn ring<'d>(norm: &Valid<ForwardFields>, props: &Props, ask: Ask) -> Accepted<'d> {
    let task = task(norm, props, ask)?;
    Ok(task.candidate(calls!(bops_row_norm_ring), ring_choice(&task.problem, ask)?))
}

/// A row in the shared memory of a block or a cluster.
pub(in crate::ops::norm) fn shared<'d>(norm: &Valid<ForwardFields>, props: &Props, ask: Ask) -> Accepted<'d> {
    let task = task(norm, props, ask)?;
    let candidate = task.candidate(calls!(bops_row_norm_shared), shared_choice(&task.problem, ask)?);
    Ok(candidate.batch_invariant_if(promises(norm, ask)))
}

/// A row in the registers of part of a block, of a block or of a cluster.
pub(in crate::ops::norm) fn resident<'d>(norm: &Valid<ForwardFields>, props: &Props, ask: Ask) -> Accepted<'d> {
    let task = task(norm, props, ask)?;
    let candidate = task.candidate(calls!(bops_row_norm_resident), resident_choice(&task.problem)?);
    Ok(candidate.batch_invariant_if(promises(norm, ask)))
}

/// Three launches over chunks of rows: moments, merge, apply. Rows without columns have statistics all the same.
pub(in crate::ops::norm) fn split<'d>(norm: &Valid<ForwardFields>, props: &Props, ask: Ask) -> Accepted<'d> {
    let task = task(norm, props, ask)?;
    let (choice, workspace_bytes) = split_choice(&task.problem)?;
    let has_work = task.problem.rows > 0 && (task.problem.cols > 0 || norm.fields.stats);
    let launches = if has_work { 3 } else { 0 };
    let candidate = task.candidate_of(calls!(bops_row_norm_split), choice, launches, workspace_bytes, None);
    Ok(candidate.batch_invariant_if(promises(norm, ask)))
}

/// Whether a form whose choice follows from the columns and `samples` chooses the same for any number of rows: where rows follow one another, every one of
/// them allows the widest access that the columns and the promised alignment do.
fn promises(norm: &Valid<ForwardFields>, ask: Ask) -> bool {
    let batch = norm.fields.x.rank() - norm.fields.normalized_dims;
    ask.is_invariant() && norm.slots.all_at(&[X, RESIDUAL, Y, H]).all(|slot| are_packed(&slot.desc, batch))
}

fn task(norm: &Valid<ForwardFields>, props: &Props, ask: Ask) -> Result<Task<Params, Operands>, Reason> {
    let fields = &norm.fields;
    let parameter = fields.weight.or(fields.bias);
    let x = (&fields.x, fields.normalized_dims);
    let rows = Rows::new(x, &norm.slots, [X, RESIDUAL, Y, H], &[WEIGHT, BIAS, MEAN, RSTD], parameter)?;
    let problem = RowProblem::new(norm, &rows, &[WEIGHT, BIAS], props);
    let samples = ask.samples(problem.rows);
    let problem = RowProblem { has_residual: fields.residual, samples, ..problem };
    let ([extent1, extent2], [x, residual, y, h]) = rows.c();
    let (eps, weight_offset) = (fields.eps.get(), fields.weight_offset.get());
    let RowProblem { rows: row_count, cols, .. } = problem;
    let params = Params { rows: row_count, cols, extent1, extent2, x, residual, y, h, eps, weight_offset };
    Ok(Task { problem, of: rows.specialisation(norm.op.kind, false)?, params, operands })
}

fn operands(located: &Located<'_>) -> Operands {
    forward::memory!(pointers Operands, located)
}

// ---- packed -----------------------------------------------------------------------------------------------------------------

/// Vectors of a thread.
const PACKED_VECTORS: u64 = 4;
/// Threads of a block, for which there are kernels.
const PACKED_THREADS: RangeInclusive<u64> = 64..=512;
/// Threads of the smallest blocks that are faster than `resident`.
const PACKED_THREADS_FROM: u64 = 128;

/// Checks what both packed forms ask for, and returns the vectors of a row.
fn check_packed(p: &RowProblem, ask: Ask) -> Result<u64, Reason> {
    if p.element_bytes != 2 || ![0, 2].contains(&p.parameter_bytes) {
        return Err("it has kernels of 16-bit elements alone, with parameters of the same type".into());
    }
    let vectors = p.check_vectors()?;
    ask.leave_if(p.is_thin(vectors), "resident spreads few rows over more threads")?;
    Ok(vectors)
}

pub(super) fn packed_choice(p: &RowProblem, ask: Ask) -> Result<sys::bops_row_norm_packed_choice, Reason> {
    let vectors = check_packed(p, ask)?;
    let threads = vectors / PACKED_VECTORS;
    if !vectors.is_multiple_of(32 * PACKED_VECTORS) || !PACKED_THREADS.contains(&threads) {
        return Err("a row has to fill a block of 64 to 512 threads, four vectors of 16 bytes each".into());
    }
    if !ask.is_pinned() && threads < PACKED_THREADS_FROM {
        return Err("packed_warp and resident are faster for rows of fewer than 4096 columns".into());
    }
    Ok(sys::bops_row_norm_packed_choice { threads: word(threads), grid: grid(p.rows)?, overlaps: p.overlaps() })
}

// ---- packed_warp ------------------------------------------------------------------------------------------------------------

/// Vectors of a lane, for which there are kernels.
const WARP_VECTORS: RangeInclusive<u64> = 3..=8;
/// Register budget of a multiprocessor, in vectors of a lane, over all rows that it holds at once.
const WARP_BUDGET_VECTORS: u64 = 96;
/// Waves in which `resident` is faster if rows fill its threads of four vectors, too. A wave is the rows that fill the register budget.
const RESIDENT_WAVES: RangeInclusive<u64> = 2..=8;
/// Rows for each multiprocessor up to which `resident` is faster: a launch of few blocks lets the next one begin early.
const RESIDENT_ROWS_UP_TO: u64 = 8;

pub(super) fn packed_warp_choice(p: &RowProblem, ask: Ask) -> Result<sys::bops_row_norm_packed_warp_choice, Reason> {
    let all = check_packed(p, ask)?;
    let (vectors, multiprocessors) = (all / 32, u64::from(p.multiprocessors));
    if !all.is_multiple_of(32) || !WARP_VECTORS.contains(&vectors) {
        return Err("a row has to fill a warp, three to eight vectors of 16 bytes a lane".into());
    }
    Reason::unless(!p.has_residual, || "it adds no residual")?;
    p.check_one_stride()?;
    let waves = (p.samples * vectors).div_ceil(WARP_BUDGET_VECTORS * multiprocessors);
    let fills_resident = all.is_multiple_of(32 * PACKED_VECTORS);
    let are_few =
        p.samples <= RESIDENT_ROWS_UP_TO * multiprocessors || (fills_resident && RESIDENT_WAVES.contains(&waves));
    ask.leave_if(are_few, "resident is faster for so few rows")?;
    let grid = grid(p.rows.div_ceil(2))?;
    Ok(sys::bops_row_norm_packed_warp_choice { vectors: word(vectors), grid, overlaps: p.overlaps() })
}

// ---- ring -------------------------------------------------------------------------------------------------------------------

/// A kernel of the ring form, and how it is launched.
#[derive(Clone, Copy, Debug)]
struct Ring {
    /// Vectors of a row and a thread.
    vectors: u64,
    /// Vectors of a thread's ring: those of the row that is read, those of the row before, which is finished, and five more: `lookahead` of
    /// `row_norm_ring.cu`. Eleven more were slower (docs/rejected.md).
    slots: u64,
    /// Threads of a block.
    threads: u64,
    /// Blocks that share a row, at most.
    most_blocks: u64,
    /// Blocks that share an SM: as many as its shared memory has room for.
    blocks_per_sm: u64,
}

/// The kernels with 8 vectors a thread, which every kind of norm has.
const WIDE_RINGS: [Ring; 2] = [
    Ring { vectors: 8, slots: 21, threads: 256, most_blocks: 16, blocks_per_sm: 2 },
    Ring { vectors: 8, slots: 21, threads: 512, most_blocks: 16, blocks_per_sm: 1 },
];
/// The kernels of each kind of norm, the shortest rows first: the first kernel that holds a row is taken.
const RINGS: ByKind<&[Ring]> = ByKind {
    layer_norm_16: &WIDE_RINGS,
    rms_norm_16: &[
        Ring { vectors: 4, slots: 13, threads: 256, most_blocks: 8, blocks_per_sm: 4 },
        Ring { vectors: 4, slots: 13, threads: 512, most_blocks: 8, blocks_per_sm: 2 },
        WIDE_RINGS[0],
        WIDE_RINGS[1],
    ],
    layer_norm_32: &WIDE_RINGS,
    rms_norm_32: &WIDE_RINGS,
};
/// Vectors of the longest rows that other forms serve faster.
const RING_ABOVE_VECTORS: u64 = 4096;

pub(super) fn ring_choice(p: &RowProblem, ask: Ask) -> Result<sys::bops_row_norm_ring_choice, Reason> {
    let all = p.check_ring(ask)?;
    ask.leave_if(all <= RING_ABOVE_VECTORS, "forms that hold a row on chip are faster for rows of up to 64 KiB")?;
    ask.leave_if(slices(p).is_some(), "resident is faster: clusters exchange one sum a row")?;
    let held = |ring: &Ring| {
        let cluster = all.div_ceil(ring.threads * ring.vectors).next_power_of_two();
        (cluster <= ring.most_blocks.min(u64::from(p.max_cluster))).then_some((*ring, cluster))
    };
    let Some((ring, cluster)) = RINGS.of(p).iter().find_map(held) else {
        return Err(format!("a row has {all} vectors of 16 bytes, more than clusters of the device hold").into());
    };
    let Ring { vectors, slots, threads, blocks_per_sm, .. } = ring;
    let shared_bytes = slots * threads * 16;
    Reason::unless(p.has_shared(shared_bytes, blocks_per_sm), || {
        format!("a multiprocessor has no shared memory for {blocks_per_sm} rings of {shared_bytes} bytes")
    })?;
    let teams = p.resident_teams(cluster, blocks_per_sm).min(p.rows);
    Ok(sys::bops_row_norm_ring_choice {
        vectors: word(vectors),
        slots: word(slots),
        threads: word(threads),
        cluster: word(cluster),
        is_whole: u32::from(threads * vectors * cluster == all),
        grid: word(teams * cluster),
        overlaps: p.overlaps(),
    })
}

// ---- shared -----------------------------------------------------------------------------------------------------------------

/// Vectors of the longest rows of LayerNorm, 16-bit elements, that `resident` serves faster.
const LAYER_NORM_SHARED_ABOVE: u64 = 1280;
/// Vectors of the longest rows of RMSNorm, 16-bit elements, that `resident` serves faster.
const RMS_NORM_SHARED_ABOVE: u64 = 2048;
/// Vectors of the longest row that a block takes alone.
const SHARED_BLOCK_VECTORS: u64 = 4096;
/// Vectors of the longest part of a row that a block of a cluster takes.
const SHARED_CLUSTER_BLOCK_VECTORS: u64 = 2048;

pub(super) fn shared_choice(p: &RowProblem, ask: Ask) -> Result<sys::bops_row_norm_shared_choice, Reason> {
    Reason::unless(p.element_bytes == 2, || "it has kernels of 16-bit elements alone")?;
    let all = p.check_vectors()?;
    let above = if p.is_centered { LAYER_NORM_SHARED_ABOVE } else { RMS_NORM_SHARED_ABOVE };
    ask.leave_if(all <= above, "resident is faster for rows that registers hold well")?;
    let fits = |vectors: u64, most: u64| vectors <= most && p.has_shared(vectors * 16, 1);
    let in_cluster = |cluster: &u64| fits(all.div_ceil(*cluster), SHARED_CLUSTER_BLOCK_VECTORS);
    let cluster = if fits(all, SHARED_BLOCK_VECTORS) { Some(1) } else { p.clusters().find(in_cluster) };
    let Some(cluster) = cluster else {
        return Err(format!("a row has {all} vectors of 16 bytes, more than shared memory holds").into());
    };
    let grid = grid(p.rows * cluster)?;
    Ok(sys::bops_row_norm_shared_choice { cluster: word(cluster), grid, overlaps: p.overlaps() })
}

// ---- resident ---------------------------------------------------------------------------------------------------------------

/// Most threads of a block with whole rows of RMSNorm of 4-byte elements.
const MANY_THREADS: u64 = 1024;
/// Threads of a block of several short rows.
const SHORT_ROWS_THREADS: u64 = 128;
/// The fewest threads of a block that shares a row with other blocks, so that each has several warps.
const FEWEST_CLUSTER_THREADS: u64 = 64;
/// The longest rows of 4-byte elements, in vectors, whose threads have two vectors; and four vectors. Threads of longer rows have eight.
#[derive(Clone, Copy, Debug)]
struct Spread {
    two: u64,
    four: u64,
}
/// For LayerNorm.
const LAYER_NORM_SPREAD: Spread = Spread { two: 192, four: 1024 };
/// For RMSNorm.
const RMS_NORM_SPREAD: Spread = Spread { two: 256, four: 2048 };
/// Vectors of the longest rows of RMSNorm, 16-bit elements, whose threads have two vectors; threads of longer rows have four.
const RMS_NORM_16_TWO_VECTORS: u64 = 128;
/// Vectors of the longest rows of RMSNorm of 4-byte elements that 256 threads of one block hold.
const SLICES_ABOVE_VECTORS: u64 = 2048;

pub(super) fn resident_choice(p: &RowProblem) -> Result<sys::bops_row_norm_resident_choice, Reason> {
    Reason::unless(p.element_bytes < 8, || "it has no kernels of f64")?;
    Reason::unless(p.rows > 0 && p.cols > 0, || "there are no rows, or they have no columns")?;
    p.check_row_count()?;
    let chosen = many_threads(p).or_else(|| slices(p)).or_else(|| resident_in(p, 1));
    // The smallest cluster whose blocks have at most 256 threads, or else 512.
    let chosen = chosen.or_else(|| resident_in_blocks_of(p, 256)).or_else(|| resident_in_blocks_of(p, 512));
    chosen.ok_or_else(|| {
        let (cols, bytes) = (p.cols, p.vec_bytes());
        format!("rows of {cols} columns, in vectors of {bytes} bytes, exceed the registers of a block or a cluster")
            .into()
    })
}

/// A row in the registers of a block or a part of it, or of a cluster of `cluster` blocks.
fn resident_in(p: &RowProblem, cluster: u64) -> Option<sys::bops_row_norm_resident_choice> {
    let vec_bytes = p.vec_bytes();
    if cluster > 1 && (vec_bytes != 16 || p.element_bytes != 4) {
        return None;
    }
    let spread = if p.is_centered { LAYER_NORM_SPREAD } else { RMS_NORM_SPREAD };
    let slice = (p.cols / p.elements(vec_bytes)).div_ceil(cluster);
    // Few rows are spread over many threads. Otherwise a row has as few threads as keep it in registers.
    let vectors = match (vec_bytes, p.element_bytes) {
        (16, 4) if p.is_thin(slice) && !p.is_centered => 4,
        (16, _) if p.is_thin(slice) => 2,
        (16, 2) if !p.is_centered && slice <= RMS_NORM_16_TWO_VECTORS => 2,
        (16, 2) => 4,
        (16, _) if slice <= spread.two => 2,
        (16, _) if slice <= spread.four && cluster == 1 => 4,
        (16, _) => 8,
        _ => 16,
    };
    let per_row = threads_for(slice.div_ceil(vectors)).max(if cluster > 1 { FEWEST_CLUSTER_THREADS } else { 1 });
    if per_row > MAX_THREADS {
        return None;
    }
    let block_rows = if per_row <= 32 { SHORT_ROWS_THREADS / per_row } else { 1 };
    let blocks = p.rows.div_ceil(block_rows) * cluster;
    // A grid of at most two blocks for each SM lets the next launch begin at once. A larger grid does not: the next launch's waiting blocks would take
    // the places of its own.
    let is_small = blocks <= 2 * u64::from(p.multiprocessors);
    Some(sys::bops_row_norm_resident_choice {
        vec_bytes,
        vectors: word(vectors),
        threads_per_row: word(per_row),
        threads: word(per_row * block_rows),
        cluster: word(cluster),
        is_whole: u32::from(per_row * vectors * cluster * p.elements(vec_bytes) == p.cols),
        grid: grid(blocks).ok()?,
        overlaps: p.overlaps(),
        lets_next_overlap: p.overlaps() * u32::from(is_small),
    })
}

/// The smallest cluster whose blocks hold a row with at most `threads` threads each.
fn resident_in_blocks_of(p: &RowProblem, threads: u32) -> Option<sys::bops_row_norm_resident_choice> {
    p.clusters().filter_map(|cluster| resident_in(p, cluster)).find(|choice| choice.threads <= threads)
}

/// RMSNorm of 4-byte elements if rows fill up to 1024 threads of 4 vectors, and there are more rows than such blocks are resident.
fn many_threads(p: &RowProblem) -> Option<sys::bops_row_norm_resident_choice> {
    if p.is_centered || p.element_bytes != 4 || p.vec_bytes() != 16 || p.samples <= 2 * u64::from(p.multiprocessors) {
        return None;
    }
    let all = p.cols / p.elements(16);
    let (is_long, threads) = (all > SLICES_ABOVE_VECTORS, all / 4);
    if !is_long || threads > MANY_THREADS || !all.is_multiple_of(4 * 32) {
        return None;
    }
    Some(sys::bops_row_norm_resident_choice {
        vec_bytes: 16,
        vectors: 4,
        threads_per_row: word(threads),
        threads: word(threads),
        cluster: 1,
        is_whole: 1,
        grid: grid(p.rows).ok()?,
        overlaps: p.overlaps(),
        lets_next_overlap: 0,
    })
}

/// RMSNorm of 4-byte elements if 256 threads of one block do not hold a row: clusters of such blocks.
fn slices(p: &RowProblem) -> Option<sys::bops_row_norm_resident_choice> {
    let is_long = p.cols / p.elements(p.vec_bytes()) > SLICES_ABOVE_VECTORS;
    (!p.is_centered && p.element_bytes == 4 && is_long).then(|| resident_in_blocks_of(p, 256)).flatten()
}

// ---- split ------------------------------------------------------------------------------------------------------------------

/// The choice, and the bytes of workspace for the moments.
pub(super) fn split_choice(p: &RowProblem) -> Result<(sys::bops_row_norm_split_choice, u64), Reason> {
    let vec_bytes = p.vec_bytes();
    let (chunks, grid) = p.split_grid(vec_bytes)?;
    let moments = p.split_bytes(chunks, 3).ok_or("the workspace exceeds 2^64 bytes")?;
    Ok((sys::bops_row_norm_split_choice { vec_bytes, chunks, grid }, moments))
}
