//! Which CUDA variant serves which rows: a pure function of shapes, types and device properties.
//!
//! The tables hold, per element size, the widest rows that a form serves and its numbers; they were measured on an H200
//! (`bops bench`, docs/data). The fields of a choice are those of `bops_row_norm_choice` in `csrc/bops.h`.

use baracuda_ops_sys as sys;

/// What the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) rows: u64,
    pub(crate) cols: u64,
    /// Bytes of an element of x.
    pub(crate) element_bytes: u32,
    /// Bytes of a statistic.
    pub(crate) accumulator_bytes: u32,
    /// Bytes of an element of weight or bias; 0 without.
    pub(crate) parameter_bytes: u32,
    /// The widest vector that every row starts at a multiple of and is a whole number of.
    pub(crate) vector_bytes: u32,
    /// What the parameters start at a multiple of.
    pub(crate) parameter_align_bytes: u32,
    /// Whether the mean is subtracted.
    pub(crate) is_centered: bool,
    /// Whether there is a residual, or dh.
    pub(crate) has_residual: bool,
    pub(crate) has_dx: bool,
    pub(crate) has_parameter_gradients: bool,
    /// Major times 10 plus minor.
    pub(crate) capability: u32,
    pub(crate) multiprocessors: u32,
    /// Shared memory that one block may have.
    pub(crate) shared_bytes: u32,
    /// Blocks of the largest cluster; 1 without clusters.
    pub(crate) max_cluster: u32,
}

/// A choice, with what a run needs for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tuned {
    pub(crate) variant: u32,
    pub(crate) vec_bytes: u32,
    pub(crate) vectors: u32,
    pub(crate) threads: u32,
    pub(crate) threads_per_row: u32,
    pub(crate) cluster: u32,
    pub(crate) stages: u32,
    pub(crate) grid: u32,
    pub(crate) flush_rows: u32,
    pub(crate) flushes: u32,
    pub(crate) chunks: u32,
    pub(crate) partial_rows: u32,
    pub(crate) workspace_bytes: u64,
    pub(crate) launches: u32,
}

impl Tuned {
    /// The fields of the C struct, in its order.
    pub(crate) fn words(&self) -> [u32; 12] {
        [
            self.variant,
            self.vec_bytes,
            self.vectors,
            self.threads,
            self.threads_per_row,
            self.cluster,
            self.stages,
            self.grid,
            self.flush_rows,
            self.flushes,
            self.chunks,
            self.partial_rows,
        ]
    }
}

/// Threads of the largest block.
const MAX_THREADS: u64 = 512;
/// Accesses of a chunk of the split variants.
const CHUNK: u64 = 1024;
/// Blocks of a launch that strides over its work.
const MAX_GRID: u64 = 1 << 19;
/// Shared memory that kernels declare themselves, in bytes.
const STATIC_SHARED: u64 = 4096;
/// Rows up to which the blocks of one launch share out rows and columns.
const FEW_ROWS: u64 = 128;

impl Problem {
    fn elements(&self, vec_bytes: u32) -> u64 {
        u64::from(vec_bytes / self.element_bytes)
    }

    /// The widest access that rows and parameters allow.
    fn vec_bytes(&self) -> u32 {
        let widths: &[u32] = if self.element_bytes == 8 { &[8] } else { &[16, 4, 2] };
        let fits = |&&bytes: &&u32| {
            let parameter = (bytes / self.element_bytes * self.parameter_bytes).clamp(1, 16);
            bytes >= self.element_bytes
                && self.vector_bytes.is_multiple_of(bytes)
                && self.parameter_align_bytes.is_multiple_of(parameter)
        };
        widths.iter().find(fits).copied().unwrap_or(self.element_bytes)
    }

    /// What every choice shares, or why none serves.
    fn start(&self, variant: u32) -> Result<Tuned, String> {
        if self.rows > u64::from(u32::MAX) {
            return Err(format!("{} rows, the limit is {}", self.rows, u32::MAX));
        }
        Ok(Tuned { variant, vec_bytes: self.vec_bytes(), cluster: 1, launches: 1, ..Tuned::default() })
    }
}

/// Threads that hold `vectors` vectors: a power of two up to 32, or a multiple of 32.
fn team(vectors: u64) -> u64 {
    if vectors <= 32 { vectors.max(1).next_power_of_two() } else { vectors.next_multiple_of(32) }
}

/// The variant that serves a forward.
pub(crate) fn forward(p: &Problem) -> Result<Tuned, String> {
    resident(p).map_or_else(|| split(p), Ok)
}

/// A row in the registers of a part of a block, a block or a cluster.
fn resident(p: &Problem) -> Option<Tuned> {
    let mut tuned = p.start(sys::BOPS_ROW_NORM_RESIDENT).ok()?;
    if p.element_bytes == 8 || p.rows == 0 || p.cols == 0 {
        return None;
    }
    let all = p.cols / p.elements(tuned.vec_bytes);
    // Vectors of a thread, the widest last.
    let widths: &[u64] = match (tuned.vec_bytes, p.element_bytes) {
        (16, 2) => &[1, 2, 4],
        (16, _) => &[1, 2, 4, 8],
        _ => &[16],
    };
    let widest = *widths.last()?;
    let clusters =
        [1, 2, 4, 8, 16].into_iter().filter(|&c| c == 1 || (c <= u64::from(p.max_cluster) && tuned.vec_bytes == 16));
    let cluster = clusters.into_iter().find(|&cluster| all.div_ceil(cluster) <= MAX_THREADS * widest)?;
    let slice = all.div_ceil(cluster);
    // Few rows leave the chip to latency: spread them thin. Else as few threads as keep a row in registers.
    let is_thin = p.rows <= u64::from(p.multiprocessors) && slice <= MAX_THREADS * 2 && widths.contains(&2);
    let vectors =
        if is_thin && slice > 64 { 2 } else { widths.iter().copied().find(|&v| slice <= 32 * v).unwrap_or(widest) };
    let per_row = team(slice.div_ceil(vectors)).max(if cluster > 1 { 64 } else { 1 });
    let rows = if per_row < 32 { 128 / per_row } else { 1 };
    tuned.vectors = vectors as u32;
    tuned.threads_per_row = per_row as u32;
    tuned.threads = (per_row * rows) as u32;
    tuned.cluster = cluster as u32;
    tuned.grid = u32::try_from(p.rows.div_ceil(rows) * cluster).ok().filter(|&grid| grid <= i32::MAX as u32)?;
    Some(tuned)
}

/// Chunks of rows: moments, merge, apply.
fn split(p: &Problem) -> Result<Tuned, String> {
    let mut tuned = p.start(sys::BOPS_ROW_NORM_SPLIT)?;
    let chunks = p.cols.div_ceil(p.elements(tuned.vec_bytes)).div_ceil(CHUNK).max(1);
    tuned.chunks = u32::try_from(chunks).map_err(|_| format!("rows of {} elements make {chunks} chunks", p.cols))?;
    tuned.vectors = 4;
    tuned.threads = 256;
    tuned.threads_per_row = 256;
    tuned.grid = p.rows.saturating_mul(chunks).clamp(1, MAX_GRID) as u32;
    tuned.launches = 3;
    let moments = p.rows.checked_mul(chunks + 1).and_then(|n| n.checked_mul(3 * u64::from(p.accumulator_bytes)));
    tuned.workspace_bytes = moments.ok_or("the workspace exceeds 2^64 bytes")?;
    Ok(tuned)
}

/// The variant that serves a backward.
pub(crate) fn backward(p: &Problem) -> Result<Tuned, String> {
    if p.rows == 0 || p.cols == 0 {
        let mut tuned = p.start(sys::BOPS_ROW_NORM_BACKWARD_ZERO)?;
        tuned.launches = u32::from(p.cols > 0 && p.has_parameter_gradients);
        return Ok(tuned);
    }
    few_rows(p).or_else(|| persistent(p)).map_or_else(|| backward_split(p), Ok)
}

/// One launch whose blocks own a row of dx or a strip of columns of the parameters' gradients.
fn few_rows(p: &Problem) -> Option<Tuned> {
    let mut tuned = p.start(sys::BOPS_ROW_NORM_BACKWARD_FEW_ROWS).ok()?;
    let elements = p.elements(16.max(p.element_bytes));
    if p.rows > FEW_ROWS || tuned.vec_bytes != 16 || p.element_bytes == 8 || p.cols > MAX_THREADS * 16 {
        return None;
    }
    let vectors = 16 / elements;
    tuned.vectors = vectors as u32;
    tuned.threads = MAX_THREADS as u32;
    tuned.threads_per_row = MAX_THREADS as u32;
    tuned.grid = (p.rows + (p.cols / elements).div_ceil(8)) as u32;
    Some(tuned)
}

/// (Columns of a thread, threads of a block, blocks of a multiprocessor, stages), for the widest slice that a block takes, by the bytes of an element.
const PERSISTENT: [&[(u64, u64, u64, u64)]; 2] = [
    // 2 bytes
    &[(8, 256, 2, 2), (16, 256, 2, 2), (16, 512, 1, 3), (32, 512, 1, 2)],
    // 4 bytes
    &[(8, 256, 2, 2), (16, 256, 2, 2), (16, 512, 1, 2), (32, 512, 1, 1)],
];
/// Rows that one accumulator takes before it is added to the next level.
const FLUSH_ROWS: u64 = 16;

/// Teams walk over rows with fixed columns.
fn persistent(p: &Problem) -> Option<Tuned> {
    let start = p.start(sys::BOPS_ROW_NORM_BACKWARD_PERSISTENT).ok()?;
    if start.vec_bytes != 16 || p.element_bytes == 8 {
        return None;
    }
    let clusters = [1, 2, 4, 8, 16].into_iter().filter(|&c| c == 1 || c <= u64::from(p.max_cluster));
    let forms = PERSISTENT[usize::from(p.element_bytes == 4)];
    clusters.into_iter().find_map(|cluster| forms.iter().find_map(|form| persistent_form(p, start, cluster, *form)))
}

fn persistent_form(
    p: &Problem,
    mut tuned: Tuned,
    cluster: u64,
    (columns, threads, per_multiprocessor, stages): (u64, u64, u64, u64),
) -> Option<Tuned> {
    let elements = p.elements(16);
    let vectors = columns / elements;
    let slice = (p.cols / elements).div_ceil(cluster);
    let per_row = team(slice.div_ceil(vectors));
    if cluster > 1 && (columns < 16 || stages < 2) || (columns == 32 && p.has_residual) || per_row > threads {
        return None;
    }
    let per_row = if cluster > 1 { threads } else { per_row };
    let rows = threads / per_row;
    let has_levels = columns < 32;
    if !has_levels && rows > 1 {
        return None;
    }
    let sums = if p.is_centered { 2 } else { 1 };
    let tensors = if p.has_residual { 3 } else { 2 };
    let shared = stages * tensors * vectors * threads * 16
        + if columns > 16 { columns * threads * 4 } else { 0 }
        + if has_levels { sums * columns * threads * 4 } else { 0 };
    if shared + STATIC_SHARED > u64::from(p.shared_bytes) / per_multiprocessor {
        return None;
    }
    let teams = (u64::from(p.multiprocessors) * per_multiprocessor / cluster).clamp(1, p.rows.div_ceil(rows));
    let turns = p.rows.div_ceil(teams * rows);
    let (flush_rows, flushes) = if has_levels { (FLUSH_ROWS, FLUSH_ROWS) } else { (2 * FLUSH_ROWS, 0) };
    let partial_rows = teams * turns.div_ceil(flush_rows * flushes.max(1));
    tuned.vectors = vectors as u32;
    tuned.threads = threads as u32;
    tuned.threads_per_row = per_row as u32;
    tuned.cluster = cluster as u32;
    tuned.stages = stages as u32;
    tuned.grid = (teams * cluster) as u32;
    tuned.flush_rows = flush_rows as u32;
    tuned.flushes = flushes as u32;
    tuned.partial_rows = u32::try_from(partial_rows).ok()?;
    tuned.launches = 1 + u32::from(p.has_parameter_gradients);
    tuned.workspace_bytes = partials(p, partial_rows)?;
    Some(tuned)
}

/// Bytes of partial parameter gradients.
fn partials(p: &Problem, partial_rows: u64) -> Option<u64> {
    let sums = if p.is_centered { 2 } else { 1 };
    let cols = p.cols.checked_next_multiple_of(4)?;
    partial_rows.checked_mul(cols)?.checked_mul(sums * u64::from(p.accumulator_bytes))
}

/// Chunks of rows: sums, merge, apply, then the parameters' gradients.
fn backward_split(p: &Problem) -> Result<Tuned, String> {
    let mut tuned = p.start(sys::BOPS_ROW_NORM_BACKWARD_SPLIT)?;
    let chunks = p.cols.div_ceil(p.elements(tuned.vec_bytes)).div_ceil(CHUNK).max(1);
    tuned.chunks = u32::try_from(chunks).map_err(|_| format!("rows of {} elements make {chunks} chunks", p.cols))?;
    tuned.vectors = 4;
    tuned.threads = 256;
    tuned.threads_per_row = 256;
    tuned.grid = p.rows.saturating_mul(chunks).clamp(1, MAX_GRID) as u32;
    tuned.flush_rows = FLUSH_ROWS as u32;
    tuned.flushes = 4;
    tuned.launches = 3 + u32::from(p.has_parameter_gradients);
    let partial_rows = p.rows.div_ceil(FLUSH_ROWS * 4);
    tuned.partial_rows = partial_rows as u32;
    let sums = p.rows.checked_mul(chunks + 1).and_then(|n| n.checked_mul(2 * u64::from(p.accumulator_bytes)));
    let bytes = partials(p, partial_rows).zip(sums).and_then(|(a, b)| a.checked_add(b));
    tuned.workspace_bytes = bytes.ok_or("the workspace exceeds 2^64 bytes")?;
    Ok(tuned)
}

#[cfg(test)]
mod tests {
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
            is_centered: true,
            has_residual: false,
            has_dx: true,
            has_parameter_gradients: true,
            capability: 90,
            multiprocessors: 132,
            shared_bytes: 232_448,
            max_cluster: 16,
        }
    }

    #[test]
    fn every_row_has_a_thread_that_owns_it() {
        for cols in (1..600).chain([1000, 1024, 4096, 4097, 8192, 12288, 16384, 65536, 262_144, 1 << 24]) {
            for element_bytes in [2, 4, 8] {
                for max_cluster in [1, 8, 16] {
                    for rows in [5, 1000] {
                        let p = Problem { max_cluster, ..h200(rows, cols, element_bytes) };
                        let tuned = forward(&p).unwrap();
                        assert!(
                            tuned.threads <= 512 && tuned.threads.is_multiple_of(32) && tuned.cluster <= max_cluster,
                            "{tuned:?}"
                        );
                        if tuned.variant == sys::BOPS_ROW_NORM_RESIDENT {
                            let widths: &[u32] = match (tuned.vec_bytes, element_bytes) {
                                (16, 2) => &[1, 2, 4],
                                (16, _) => &[1, 2, 4, 8],
                                _ => &[16],
                            };
                            assert!(widths.contains(&tuned.vectors), "{cols}: {tuned:?}");
                            let held = u64::from(tuned.cluster * tuned.threads_per_row * tuned.vectors);
                            assert!(held * p.elements(tuned.vec_bytes) >= cols, "{cols}: {tuned:?}");
                            assert!(
                                u64::from(tuned.grid / tuned.cluster * tuned.threads / tuned.threads_per_row) >= p.rows
                            );
                        }
                        let tuned = backward(&p).unwrap();
                        if tuned.variant == sys::BOPS_ROW_NORM_BACKWARD_PERSISTENT {
                            let held = u64::from(tuned.cluster * tuned.threads_per_row * tuned.vectors);
                            assert!(held * p.elements(16) >= cols, "{cols}: {tuned:?}");
                        }
                    }
                }
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
    }
}
