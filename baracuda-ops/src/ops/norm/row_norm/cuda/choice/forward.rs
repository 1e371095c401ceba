//! Forward: its tables, and its variants in the order in which they are tried.

use baracuda_ops_sys as sys;

use super::{MAX_THREADS, Problem, RESERVED_SHARED, Ring, Tuned, ring, team};
use crate::narrow::{grid, word};

/// Threads of the largest block that holds rows of 4 bytes, not centered, that fill it.
const MANY_THREADS: u64 = 1024;
/// Threads of a block of several short rows.
const SHORT_THREADS: u64 = 128;
/// Vectors of the widest rows, and of the widest slices of a cluster's blocks, that shared memory holds; elements of 2 bytes alone.
const SHARED_ROW: (u64, u64) = (4096, 2048);
/// Vectors of the shortest and the widest rows of 2 bytes, centered, that stay in registers as they came.
const PACKED_ROW: (u64, u64) = (512, 2048);
/// Vectors a lane of the shortest and the widest rows of 2 bytes, centered, that stay in the registers of a warp.
const WARP_VECTORS: (u64, u64) = (3, 8);
/// Vectors a lane of all such rows together that a multiprocessor holds at once: registers limit them.
const WARP_ROOM: u64 = 96;
/// How often rows fill that room where blocks of 4 vectors a thread serve those better that fill such threads, too.
const WARP_WAVES: std::ops::RangeInclusive<u64> = 2..=8;
/// Vectors of the widest rows of 2 bytes that stay in registers otherwise: centered, and not.
const RESIDENT_ROW: [u64; 2] = [1280, 2048];
/// Vectors of the widest rows of 4 bytes whose threads hold 4 vectors: centered, and not.
const FOUR_VECTORS: [u64; 2] = [1024, 2048];
/// Vectors of the widest rows of 4 bytes, not centered, that one block holds.
const SLICES_FROM: u64 = 2048;
/// Vectors of the widest rows that other forward kernels serve.
const FORWARD_RING_FROM: u64 = 4096;
const FORWARD_RING: &[Ring] = &[ring(256, 8, 5, 16, 2), ring(512, 8, 5, 16, 1)];
/// The same of 2 bytes, not centered.
const FORWARD_RING_LIGHT: &[Ring] =
    &[ring(256, 4, 5, 8, 4), ring(512, 4, 5, 8, 2), ring(256, 8, 5, 16, 2), ring(512, 8, 5, 16, 1)];

/// The variant that serves a forward.
pub(crate) fn forward(p: &Problem) -> Result<Tuned, String> {
    let chosen = many_threads(p)
        .or_else(|| packed(p))
        .or_else(|| packed_in_warps(p))
        .or_else(|| slices(p))
        .or_else(|| forward_ring(p))
        .or_else(|| shared(p))
        .or_else(|| resident(p, 1))
        .or_else(|| resident_cluster(p));
    chosen.map_or_else(|| split(p), Ok)
}

/// Long rows: teams stage vectors through rings in shared memory.
fn forward_ring(p: &Problem) -> Option<Tuned> {
    let mut tuned = p.start_ring(sys::BOPS_ROW_NORM_RING)?;
    let all = p.cols / p.elements(16);
    if all <= FORWARD_RING_FROM {
        return None;
    }
    let forms = if p.kind() == 1 { FORWARD_RING_LIGHT } else { FORWARD_RING };
    let (ring, cluster) = forms.iter().find_map(|ring| {
        let most = ring.cluster.min(u64::from(p.max_cluster));
        let cluster = all.div_ceil(ring.threads * ring.vectors).next_power_of_two();
        (cluster <= most).then_some((ring, cluster))
    })?;
    let shared = ring.stages * ring.threads * 16;
    if shared + RESERVED_SHARED > u64::from(p.shared_bytes) / ring.blocks {
        return None;
    }
    let teams = p.teams(cluster, ring.blocks).min(p.rows);
    tuned.set_ring(ring, cluster, teams);
    Some(tuned)
}

/// A row in the shared memory of a block or a cluster.
fn shared(p: &Problem) -> Option<Tuned> {
    let mut tuned = p.start(sys::BOPS_ROW_NORM_SHARED).ok()?;
    let all = p.cols / p.elements(tuned.vec_bytes);
    if p.element_bytes != 2 || tuned.vec_bytes != 16 || p.rows == 0 || all <= RESIDENT_ROW[p.kind()] {
        return None;
    }
    let fits = |vectors: u64| vectors * 16 + RESERVED_SHARED <= u64::from(p.shared_bytes);
    let cluster = if all <= SHARED_ROW.0 && fits(all) {
        1
    } else {
        p.clusters().find(|&cluster| all.div_ceil(cluster) <= SHARED_ROW.1 && fits(all.div_ceil(cluster)))?
    };
    tuned.vectors = word(all.div_ceil(cluster).div_ceil(256));
    tuned.threads = 256;
    tuned.threads_per_row = 256;
    tuned.cluster = word(cluster);
    tuned.grid = grid(p.rows * cluster)?;
    Some(tuned)
}

/// A row in the registers of a part of a block, a block or a cluster.
fn resident(p: &Problem, cluster: u64) -> Option<Tuned> {
    let mut tuned = p.start(sys::BOPS_ROW_NORM_RESIDENT).ok()?;
    if p.element_bytes == 8 || p.rows == 0 || p.cols == 0 || (cluster > 1 && tuned.vec_bytes != 16) {
        return None;
    }
    let slice = (p.cols / p.elements(tuned.vec_bytes)).div_ceil(cluster);
    // Few rows are spread thin. Else as few threads as keep a row in registers.
    let vectors = match (tuned.vec_bytes, p.element_bytes) {
        (16, 4) if p.is_thin(slice) && !p.is_centered => 4,
        (16, _) if p.is_thin(slice) => 2,
        (16, 2) if !p.is_centered && slice <= 128 => 2,
        (16, 2) => 4,
        (16, _) if slice <= if p.is_centered { 192 } else { 256 } => 2,
        (16, _) if slice <= FOUR_VECTORS[usize::from(!p.is_centered)] && cluster == 1 => 4,
        (16, _) => 8,
        _ => 16,
    };
    let per_row = team(slice.div_ceil(vectors)).max(if cluster > 1 { 64 } else { 1 });
    if per_row > MAX_THREADS {
        return None;
    }
    let rows = if per_row <= 32 { SHORT_THREADS / per_row } else { 1 };
    tuned.vectors = word(vectors);
    tuned.threads_per_row = word(per_row);
    tuned.threads = word(per_row * rows);
    tuned.cluster = word(cluster);
    // A grid that leaves multiprocessors idle lets the next begin at once; the waiting blocks of one that does not would take its places.
    let is_small = p.rows.div_ceil(rows) * cluster <= 2 * u64::from(p.multiprocessors);
    tuned.overlaps *= 1 + u32::from(is_small);
    tuned.grid = grid(p.rows.div_ceil(rows) * cluster)?;
    Some(tuned)
}

/// A block for every row, in which each thread has 4 of the row's `all` vectors.
fn block_a_row(p: &Problem, tuned: Tuned, all: u64) -> Option<Tuned> {
    let threads = word(all / 4);
    let grid = grid(p.rows)?;
    Some(Tuned { vectors: 4, threads, threads_per_row: threads, grid, ..tuned })
}

/// What rows of 2 bytes, centered, that stay in registers as they came start from, and their vectors.
fn start_packed(p: &Problem) -> Option<(Tuned, u64)> {
    let tuned = p.start(sys::BOPS_ROW_NORM_PACKED).ok()?;
    let all = p.cols / p.elements(tuned.vec_bytes);
    let has_kernel =
        p.element_bytes == 2 && p.is_centered && tuned.vec_bytes == 16 && [0, 2].contains(&p.parameter_bytes);
    (has_kernel && p.rows > 0 && !p.is_thin(all)).then_some((tuned, all))
}

/// Such rows that fill the threads of a block.
fn packed(p: &Problem) -> Option<Tuned> {
    let (tuned, all) = start_packed(p)?;
    let is_served = all.is_multiple_of(4 * 32) && (PACKED_ROW.0..=PACKED_ROW.1).contains(&all);
    is_served.then(|| block_a_row(p, tuned, all)).flatten()
}

/// Such rows that fill the lanes of a warp, two in a block.
fn packed_in_warps(p: &Problem) -> Option<Tuned> {
    let (tuned, all) = start_packed(p)?;
    let (vectors, multiprocessors) = (all / 32, u64::from(p.multiprocessors));
    let is_served = all.is_multiple_of(32) && (WARP_VECTORS.0..=WARP_VECTORS.1).contains(&vectors);
    // Launches that begin early serve few rows better.
    if !is_served || p.rows <= 8 * multiprocessors || p.has_residual || !p.has_one_stride {
        return None;
    }
    let waves = (p.rows * vectors).div_ceil(WARP_ROOM * multiprocessors);
    if all.is_multiple_of(4 * 32) && WARP_WAVES.contains(&waves) {
        return None;
    }
    let grid = grid(p.rows.div_ceil(2))?;
    Some(Tuned { vectors: word(vectors), threads: 64, threads_per_row: 32, grid, ..tuned })
}

/// The smallest cluster whose blocks hold a row with at most so many threads each.
fn resident_in_blocks_of(p: &Problem, threads: u32) -> Option<Tuned> {
    p.clusters().filter_map(|cluster| resident(p, cluster)).find(|tuned| tuned.threads <= threads)
}

/// The smallest cluster whose blocks have 256 threads, or else 512.
fn resident_cluster(p: &Problem) -> Option<Tuned> {
    resident_in_blocks_of(p, 256).or_else(|| resident_in_blocks_of(p, 512))
}

/// Rows of 4 bytes, not centered, that fill up to 1024 threads of 4 vectors, where there are more rows than such blocks are resident.
fn many_threads(p: &Problem) -> Option<Tuned> {
    let tuned = p.start(sys::BOPS_ROW_NORM_RESIDENT).ok()?;
    let all = p.cols / p.elements(tuned.vec_bytes);
    let is_served = p.kind() == 3 && tuned.vec_bytes == 16 && all.is_multiple_of(4 * 32);
    if !is_served || !(SLICES_FROM + 1..=4 * MANY_THREADS).contains(&all) || p.rows <= 2 * u64::from(p.multiprocessors)
    {
        return None;
    }
    block_a_row(p, tuned, all)
}

/// Rows of 4 bytes, not centered, that 256 threads do not hold: one sum to exchange costs clusters of such blocks less than a ring does.
fn slices(p: &Problem) -> Option<Tuned> {
    let is_long = p.cols / p.elements(p.vec_bytes()) > SLICES_FROM;
    (p.kind() == 3 && p.element_bytes == 4 && is_long).then(|| resident_in_blocks_of(p, 256)).flatten()
}

/// Chunks of rows: moments, merge, apply.
fn split(p: &Problem) -> Result<Tuned, String> {
    let tuned = p.start_split(sys::BOPS_ROW_NORM_SPLIT)?;
    let moments = p.split_bytes(&tuned, 3).ok_or("the workspace exceeds 2^64 bytes")?;
    Ok(Tuned { launches: 3, workspace_bytes: moments, ..tuned })
}
