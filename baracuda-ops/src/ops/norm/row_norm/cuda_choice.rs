//! Which CUDA variant serves which rows: a pure function of shapes, types and device properties.
//!
//! The tables were measured on an H200 (132 multiprocessors, CUDA 13.0) over rows of 128 to 262144 columns. The fields of a
//! choice are those of `bops_row_norm_choice` in `csrc/bops.h`.

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
    /// Whether every tensor's rows lie at one stride, below 2^32 elements.
    pub(crate) has_one_stride: bool,
    /// Whether the mean is subtracted.
    pub(crate) is_centered: bool,
    /// Whether there is a residual, or dh.
    pub(crate) has_residual: bool,
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
    pub(crate) overlaps: u32,
    pub(crate) late_blocks: u32,
    pub(crate) partial_rows: u32,
    pub(crate) workspace_bytes: u64,
    pub(crate) launches: u32,
}

impl Tuned {
    /// The fields of the C struct, in its order.
    pub(crate) fn words(&self) -> [u32; 14] {
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
            self.overlaps,
            self.late_blocks,
            self.partial_rows,
        ]
    }
}

/// Threads of the largest block.
const MAX_THREADS: u64 = 512;
/// Threads of the largest block that holds rows of 4 bytes, not centered, that fill it.
const MANY_THREADS: u64 = 1024;
/// Threads of a block of several short rows.
const SHORT_THREADS: u64 = 128;
/// Accesses of a chunk of the split variants.
const CHUNK: u64 = 1024;
/// Blocks of a launch that strides over its work.
const MAX_GRID: u64 = 1 << 19;
/// Shared memory that kernels declare themselves and what the device keeps for itself, in bytes.
const RESERVED_SHARED: u64 = 4096;
/// Additions between an element and its sum over rows, at most (docs/numerics.md).
const LONGEST_CHAIN: u64 = 48;
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

/// The numbers of a kernel whose teams stage vectors through rings: threads of a block, vectors of a thread, blocks of a cluster (the
/// most of them, forward), blocks of a multiprocessor. A thread's ring has a few more places than two rows take.
#[derive(Clone, Copy, Debug)]
struct Ring {
    threads: u64,
    vectors: u64,
    cluster: u64,
    blocks: u64,
    stages: u64,
    /// Whether there are no more teams than the turns that they take need; backward.
    is_even: bool,
}

const fn ring(threads: u64, vectors: u64, lookahead: u64, cluster: u64, blocks: u64) -> Ring {
    Ring { threads, vectors, cluster, blocks, stages: 2 * vectors + lookahead, is_even: false }
}

impl Ring {
    const fn even(self) -> Self {
        Self { is_even: true, ..self }
    }
}

/// Vectors of the widest rows that other forward kernels serve.
const FORWARD_RING_FROM: u64 = 4096;
const FORWARD_RING: &[Ring] = &[ring(256, 8, 5, 16, 2), ring(512, 8, 5, 16, 1)];
/// The same of 2 bytes, not centered.
const FORWARD_RING_LIGHT: &[Ring] =
    &[ring(256, 4, 5, 8, 4), ring(512, 4, 5, 8, 2), ring(256, 8, 5, 16, 2), ring(512, 8, 5, 16, 1)];
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

impl Tuned {
    fn set_ring(&mut self, ring: &Ring, cluster: u64, teams: u64) {
        self.vectors = ring.vectors as u32;
        self.threads = ring.threads as u32;
        self.threads_per_row = ring.threads as u32;
        self.cluster = cluster as u32;
        self.stages = ring.stages as u32;
        self.grid = (teams * cluster) as u32;
    }
}

impl Problem {
    /// What a ring kernel starts from, where one serves: parameters of x's type stay packed in registers.
    fn start_ring(&self, variant: u32) -> Option<Tuned> {
        let tuned = self.start_persistent(variant)?;
        let is_packed = self.parameter_bytes == 0 || self.parameter_bytes == self.element_bytes;
        (is_packed && self.capability >= 90).then_some(tuned)
    }

    /// The row of a table by 2 bytes centered, 2 bytes, 4 bytes centered, 4 bytes.
    fn kind(&self) -> usize {
        2 * usize::from(self.element_bytes != 2) + usize::from(!self.is_centered)
    }

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
        let overlaps = u32::from(self.capability >= 90);
        Ok(Tuned { variant, vec_bytes: self.vec_bytes(), cluster: 1, launches: 1, overlaps, ..Tuned::default() })
    }

    /// The same, where a persistent kernel serves: it counts rows in 32 bits past the last.
    fn start_persistent(&self, variant: u32) -> Option<Tuned> {
        let tuned = self.start(variant).ok()?;
        let serves = tuned.vec_bytes == 16 && self.element_bytes < 8 && self.has_one_stride && self.rows > 0;
        (serves && self.cols > 0 && self.rows < 1 << 31).then_some(tuned)
    }

    /// Whether rows of so many vectors are so few that they leave the chip to latency.
    fn is_thin(&self, vectors: u64) -> bool {
        self.rows <= 2 * u64::from(self.multiprocessors) && (64..=2 * MAX_THREADS).contains(&vectors)
    }

    fn clusters(&self) -> impl Iterator<Item = u64> + use<> {
        let max = u64::from(self.max_cluster);
        [2, 4, 8, 16].into_iter().filter(move |&cluster| cluster <= max)
    }

    /// Clusters that are resident at once: those of 4 and more leave some multiprocessors of a GPC out.
    fn teams(&self, cluster: u64, blocks: u64) -> u64 {
        let all = u64::from(self.multiprocessors);
        let usable = match cluster {
            1 | 2 => all,
            4 | 8 => all * 10 / 11,
            _ => all * 7 / 8,
        };
        (usable / cluster * blocks).max(1)
    }
}

/// Threads that hold `vectors` vectors: a power of two up to 32, or a multiple of 32.
fn team(vectors: u64) -> u64 {
    if vectors <= 32 { vectors.max(1).next_power_of_two() } else { vectors.next_multiple_of(32) }
}

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
    tuned.vectors = all.div_ceil(cluster).div_ceil(256) as u32;
    tuned.threads = 256;
    tuned.threads_per_row = 256;
    tuned.cluster = cluster as u32;
    tuned.grid = u32::try_from(p.rows * cluster).ok().filter(|&grid| grid <= i32::MAX as u32)?;
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
    tuned.vectors = vectors as u32;
    tuned.threads_per_row = per_row as u32;
    tuned.threads = (per_row * rows) as u32;
    tuned.cluster = cluster as u32;
    // A grid that leaves multiprocessors idle lets the next begin at once; the waiting blocks of one that does not would take its places.
    let is_small = p.rows.div_ceil(rows) * cluster <= 2 * u64::from(p.multiprocessors);
    tuned.overlaps *= 1 + u32::from(is_small);
    tuned.grid = u32::try_from(p.rows.div_ceil(rows) * cluster).ok().filter(|&grid| grid <= i32::MAX as u32)?;
    Some(tuned)
}

/// A block for every row, in which each thread has 4 of the row's `all` vectors.
fn block_a_row(p: &Problem, tuned: Tuned, all: u64) -> Option<Tuned> {
    let threads = (all / 4) as u32;
    let grid = u32::try_from(p.rows).ok().filter(|&grid| grid <= i32::MAX as u32)?;
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
    let grid = u32::try_from(p.rows.div_ceil(2)).ok().filter(|&grid| grid <= i32::MAX as u32)?;
    Some(Tuned { vectors: vectors as u32, threads: 64, threads_per_row: 32, grid, ..tuned })
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
    tuned.vectors = wide.vectors as u32;
    tuned.threads = wide.threads as u32;
    tuned.threads_per_row = wide.threads as u32;
    tuned.cluster = cluster as u32;
    tuned.stages = stages as u32;
    tuned.grid = (teams * cluster) as u32;
    tuned.flush_rows = flush_rows as u32;
    tuned.flushes = flushes as u32;
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
    tuned.flush_rows = flush_rows as u32;
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
    tuned.vectors = (16 / elements) as u32;
    tuned.threads = MAX_THREADS as u32;
    tuned.threads_per_row = MAX_THREADS as u32;
    tuned.grid = (p.rows + (p.cols / elements).div_ceil(8)) as u32;
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
    tuned.vectors = vectors as u32;
    tuned.threads = threads as u32;
    tuned.threads_per_row = per_row as u32;
    tuned.cluster = cluster as u32;
    tuned.stages = stages as u32;
    tuned.grid = (teams * cluster + late) as u32;
    tuned.flush_rows = flush_rows as u32;
    tuned.flushes = flushes as u32;
    tuned.late_blocks = late as u32;
    tuned.chunks = if has_late { turns as u32 } else { 0 };
    tuned.partial_rows = u32::try_from(partial_rows).ok()?;
    tuned.launches = 1 + u32::from(p.has_parameter_gradients);
    tuned.workspace_bytes = partials(p, partial_rows)?;
    Some(tuned)
}

/// How many of the `resident` teams take `items` in turn.
fn teams_for(items: u64, resident: u64, is_even: bool) -> u64 {
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
fn column_sum_chain(partial_rows: u64) -> u64 {
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
    let mut tuned = p.start(sys::BOPS_ROW_NORM_BACKWARD_SPLIT)?;
    let vectors = p.cols.div_ceil(p.elements(tuned.vec_bytes));
    let chunks = vectors.div_ceil(CHUNK).max(1);
    tuned.chunks = u32::try_from(chunks).map_err(|_| format!("rows of {} elements make {chunks} chunks", p.cols))?;
    tuned.vectors = 4;
    tuned.threads = 256;
    tuned.threads_per_row = 256;
    tuned.grid = p.rows.saturating_mul(chunks).clamp(1, MAX_GRID) as u32;
    // Partial rows of as many rows as still leave every multiprocessor four blocks.
    tuned.flush_rows = 16;
    let tiles = vectors.div_ceil(256).saturating_mul(16);
    let enough = |&flushes: &u64| p.rows / flushes * tiles / 256 >= 4 * u64::from(p.multiprocessors);
    tuned.flushes = [16, 8, 4, 2].into_iter().find(enough).unwrap_or(1) as u32;
    let partial_rows = p.rows.div_ceil(u64::from(tuned.flush_rows * tuned.flushes));
    tuned.partial_rows = partial_rows as u32;
    tuned.launches = 3 + u32::from(p.has_parameter_gradients);
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
            has_one_stride: true,
            is_centered: true,
            has_residual: false,
            has_parameter_gradients: true,
            capability: 90,
            multiprocessors: 132,
            shared_bytes: 232_448,
            max_cluster: 16,
        }
    }

    /// Every device, option and shape that a test walks over.
    fn problems() -> impl Iterator<Item = Problem> {
        let cols = (1..600)
            .chain([768, 1000, 1024, 2048, 3072, 4096, 4097, 5120, 6144, 8192, 9216, 12288, 16384, 24576, 32768]);
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
}
