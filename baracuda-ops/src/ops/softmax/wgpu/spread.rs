//! How lines are spread over threads.

use super::super::geometry::ChannelGeometry;
use crate::backend::wgpu::Props;
use crate::backend::wgpu::team::{FEW_ROWS, Keep, ROW_TEAMS, SMALL_TEAMS, Team, Teams};
use crate::dtype::DType;
use crate::narrow::{stride, word};
use crate::ops::rows::RowGeometry;

/// (threads, chunks each) and what a thread keeps of them.
type TeamNumbers = (u32, u32, Keep);

/// The numbers that a pass is tuned by, measured on an H200.
pub(super) struct Tables {
    /// Teams that hold a row of 32-bit and of 16-bit elements, the first that suffices.
    resident: [&'static Teams; 2],
    /// The workgroup that reads a longer row twice, slice after slice, where rows are many.
    twice: Option<TeamNumbers>,
    /// The workgroup that holds a slice of a row.
    slice: [TeamNumbers; 2],
    /// Most chunks that a thread holds of the lines of one column.
    column_chunks: [u64; 2],
    /// Quads of a split line's part: in rows of one line, in channels for each quad of a chunk.
    part_quads: u64,
}

pub(super) const FORWARD: Tables = Tables {
    resident: ROW_TEAMS,
    twice: Some((1024, 2, Keep::Words)),
    slice: [(256, 4, Keep::Values); 2],
    column_chunks: [8, 8],
    part_quads: 2,
};

pub(super) const BACKWARD: Tables = Tables {
    resident: [&[
        (Keep::Words, SMALL_TEAMS),
        (Keep::Words, &[(64, 4), (128, 4), (256, 4), (512, 4), (1024, 4), (512, 8), (256, 8)]),
    ]; 2],
    twice: None,
    slice: [(256, 4, Keep::Words), (256, 2, Keep::Words)],
    column_chunks: [8, 4],
    part_quads: 1,
};

/// Slices of a row that one workgroup takes, at most: a thread adds their sums up, one after the other, and wherever a larger element comes
/// the sum before is rounded twice.
const MOST_TURNS: u64 = 16;
/// Workgroups that take the rows one after the other where they read ahead.
const AHEAD_GROUPS: u64 = 2 * 132;
/// Threads of a workgroup over channels, unless one needs more to hold its lines.
const COLUMN_THREADS: u64 = 256;
/// Most threads of one that holds its lines.
const MOST_COLUMN_THREADS: u64 = 512;
/// Chunks side by side: at least a sector's width, at most a subgroup's.
const ACROSS: (u64, u64) = (4, 32);
/// Workgroups below which long lines are split although a workgroup could hold them, and what counts as long.
const FEW_GROUPS: u64 = 96;
const LONG_LINE: u64 = 512;

/// Lines as the shaders take them.
pub(super) struct View {
    pub(super) is_rows: bool,
    rows: u64,
    dim: u64,
    inner: u64,
    extents: [u64; 2],
    strides: Vec<[u64; 3]>,
    /// Between the elements of a line, of each tensor.
    pub(super) steps: Vec<u64>,
    /// Elements of a chunk of 16 bytes.
    elements: u64,
    /// Whether no chunk is cut and all start at chunks.
    pub(super) can_chunk: bool,
}

impl View {
    pub(super) fn of_rows(rows: RowGeometry, dtype: DType) -> Self {
        let steps = vec![1; rows.strides.len()];
        let RowGeometry { rows, cols, extents, strides, .. } = rows;
        let whole = cols;
        Self::new(true, rows, cols, 1, extents, strides, steps, whole, dtype)
    }

    pub(super) fn of_channels(channels: ChannelGeometry, dtype: DType) -> Self {
        let ChannelGeometry { outer, dim, inner, extents, strides, dim_strides, .. } = channels;
        let whole = dim_strides.iter().fold(inner, |all, step| all | step);
        Self::new(false, outer, dim, inner, extents, strides, dim_strides, whole, dtype)
    }

    /// `whole`: numbers that are multiples of a chunk's elements if chunks are whole, or-ed together.
    #[allow(clippy::too_many_arguments, reason = "the fields, from two geometries")]
    fn new(
        is_rows: bool,
        rows: u64,
        dim: u64,
        inner: u64,
        extents: [u64; 2],
        strides: Vec<[u64; 3]>,
        steps: Vec<u64>,
        whole: u64,
        dtype: DType,
    ) -> Self {
        let elements = 16 / dtype.size_bytes();
        let whole = strides.iter().flatten().fold(whole, |all, stride| all | stride);
        let can_chunk = whole.is_multiple_of(elements);
        Self { is_rows, rows, dim, inner, extents, strides, steps, elements, can_chunk }
    }

    /// What the params of both passes begin with: rows, dim, inner, extents and padding.
    pub(super) fn words(&self) -> [u32; 8] {
        let [outer, middle] = self.extents;
        [self.rows, self.dim, self.inner, outer, middle, 0, 0, 0].map(word)
    }

    pub(super) fn is_half(&self) -> bool {
        self.elements == 8
    }

    pub(super) fn strides(&self, tensor: usize) -> [u32; 3] {
        self.strides[tensor].map(stride)
    }
}

/// A workgroup over channels: `across` chunks side by side, each of `deep` threads that hold `chunks` elements of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Columns {
    across: u64,
    deep: u64,
    chunks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    Team(Team),
    Columns(Columns),
}

/// How a plan's lines are spread.
pub(super) struct Spread {
    threads: Threads,
    /// Parts of a line, each one workgroup's.
    pub(super) slices: u64,
    /// Chunks side by side in a block.
    pub(super) columns: u64,
    /// Rows that a team takes.
    pub(super) rounds: u64,
    pub(super) groups: u64,
    /// Quads of workspace.
    pub(super) part_quads: u64,
}

impl Spread {
    pub(super) fn new(view: &View, tables: &Tables, props: &Props) -> Self {
        if view.is_rows { Self::of_rows(view, tables, props) } else { Self::of_channels(view, tables, props) }
    }

    fn of_rows(view: &View, tables: &Tables, props: &Props) -> Self {
        let kind = usize::from(view.is_half());
        let row_chunks = view.dim.div_ceil(view.elements);
        let resident = Team::resident(tables.resident[kind], view.rows, row_chunks, props);
        let is_worth = |team: &Team| view.rows >= FEW_ROWS && row_chunks <= MOST_TURNS * team.slice_chunks();
        let twice = tables.twice.filter(|numbers| numbers.0 <= props.max_threads);
        let twice = twice.map(|numbers| Team::of_slices(numbers, props)).filter(is_worth);
        let team = resident.or(twice).unwrap_or_else(|| Team::of_slices(tables.slice[kind], props));
        let slices = if resident.is_some() { 1 } else { row_chunks.div_ceil(team.slice_chunks()) };
        let turns = view.rows.div_ceil(team.rows());
        let rounds = if team.keep == Keep::ValuesAhead { turns.div_ceil(AHEAD_GROUPS).max(1) } else { 1 };
        let is_split = resident.or(twice).is_none();
        let part_quads = if is_split { view.rows * slices } else { 0 };
        let groups = turns.div_ceil(rounds) * if is_split { slices } else { 1 };
        Self { threads: Threads::Team(team), slices, columns: 1, rounds, groups, part_quads }
    }

    fn of_channels(view: &View, tables: &Tables, props: &Props) -> Self {
        let columns = view.inner.div_ceil(view.elements);
        let quads = view.elements / 4;
        let most_chunks = tables.column_chunks[usize::from(view.is_half())];
        let bytes = u64::from(props.max_workgroup_bytes);
        let most_threads = MOST_COLUMN_THREADS.min(u64::from(props.max_threads)).min(bytes / (16 * quads));
        let widest = columns.next_power_of_two().min(ACROSS.1);
        let narrowest = widest.min(ACROSS.0);
        let deep = view.dim.div_ceil(most_chunks).next_power_of_two();
        let across = (COLUMN_THREADS / deep.min(COLUMN_THREADS)).clamp(narrowest, widest);
        let groups = view.rows * columns.div_ceil(across);
        let is_resident = deep * across <= most_threads && (groups >= FEW_GROUPS || view.dim < LONG_LINE);
        if is_resident {
            let chunks = view.dim.div_ceil(deep);
            let threads = Threads::Columns(Columns { across, deep, chunks });
            return Self { threads, slices: 1, columns, rounds: 1, groups, part_quads: 0 };
        }
        let across = widest.min(2 * ACROSS.0);
        let deep = COLUMN_THREADS.min(most_threads) / across;
        let slices = view.dim.div_ceil(deep * most_chunks);
        let threads = Threads::Columns(Columns { across, deep, chunks: most_chunks });
        let groups = view.rows * slices * columns.div_ceil(across);
        let part_quads = view.rows * slices * columns * quads * tables.part_quads;
        Self { threads, slices, columns, rounds: 1, groups, part_quads }
    }

    pub(super) fn is_split(&self) -> bool {
        self.part_quads > 0
    }

    /// Whether a workgroup takes all slices of its line.
    pub(super) fn is_twice(&self) -> bool {
        self.slices > 1 && !self.is_split()
    }

    /// The file with which the threads of a line meet.
    pub(super) fn file(&self) -> &'static str {
        match self.threads {
            Threads::Team(team) => team.reduce.file(),
            Threads::Columns(_) => "common/column",
        }
    }

    pub(super) fn constants(&self) -> Vec<(&'static str, u32)> {
        match self.threads {
            Threads::Team(team) => team.constants(),
            Threads::Columns(columns) => vec![
                ("WORKGROUP", self.workgroup()),
                ("THREADS", self.workgroup()),
                ("ACROSS", word(columns.across)),
                ("CHUNKS", word(columns.chunks)),
            ],
        }
    }

    /// `keeps`: elements are needed more than once.
    pub(super) fn flags(&self, keeps: bool) -> [(&'static str, bool); 2] {
        match self.threads {
            Threads::Team(team) if keeps => team.keep.flags(self.rounds > 1),
            // Elements stay in registers as f32.
            Threads::Columns(_) => [("UNPACKED", keeps), ("PREFETCH", false)],
            Threads::Team(_) => Keep::Words.flags(false),
        }
    }

    pub(super) fn workgroup(&self) -> u32 {
        match self.threads {
            Threads::Team(team) => team.workgroup,
            Threads::Columns(columns) => word(columns.across * columns.deep),
        }
    }

    /// Threads that share a line.
    pub(super) fn depth(&self) -> u32 {
        match self.threads {
            Threads::Team(team) => team.threads,
            Threads::Columns(columns) => word(columns.deep),
        }
    }

    /// Chunks of a thread.
    pub(super) fn chunks(&self) -> u32 {
        match self.threads {
            Threads::Team(team) => team.chunks,
            Threads::Columns(columns) => word(columns.chunks),
        }
    }
}
