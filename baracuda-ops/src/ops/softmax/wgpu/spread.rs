//! How lines are spread over threads.

use super::super::geometry::Geometry;
use crate::backend::wgpu::Props;
use crate::backend::wgpu::team::{AHEAD_GROUPS, FEW_ROWS, Keep, ROW_TEAMS, Team, TeamNumbers, Teams, teams};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{stride, word};

/// The numbers that a pass is tuned by, measured on an H200.
pub(super) struct Tables {
    /// Teams that hold a row of 32-bit and of 16-bit elements, of which the first that suffices is taken.
    resident: [&'static Teams; 2],
    /// The workgroup that reads a longer row twice, slice after slice, where rows are many.
    twice: Option<TeamNumbers>,
    /// The workgroup that holds a slice of a row.
    slice: [TeamNumbers; 2],
    /// Most chunks that a thread holds of the lines of one column.
    column_chunks: [u64; 2],
    /// Quads of workspace for a part of split lines side by side, for each quad of a chunk. A part of a split row takes one.
    quads_of_part: u64,
}

pub(super) const FORWARD: Tables = Tables {
    resident: ROW_TEAMS,
    twice: Some(TeamNumbers { threads: 1024, chunks: 2, keep: Keep::Words }),
    slice: teams![Values: 256 x 4, 256 x 4],
    column_chunks: [8, 8],
    quads_of_part: 2,
};

pub(super) const BACKWARD: Tables = Tables {
    resident: [&teams![
        Words: 8 x 1, 16 x 1, 32 x 1, 32 x 2, 32 x 4, 64 x 4, 128 x 4, 256 x 4, 512 x 4, 1024 x 4, 512 x 8, 256 x 8
    ]; 2],
    twice: None,
    slice: teams![Words: 256 x 4, 256 x 2],
    column_chunks: [8, 4],
    quads_of_part: 1,
};

/// Most slices of a row that one workgroup takes. A thread adds up their sums one after the other, and each slice with a larger element than those
/// before rounds the sum twice. With 16 these are 32 roundings in a row; 5 in a slice of two chunks of eight elements, one of the last shift and 10 across
/// 1024 threads make them the 48 that docs/numerics.md allows.
const MOST_TURNS: u64 = 16;
/// Threads of a workgroup over lines side by side, the most that WebGPU promises. A workgroup has fewer if lines are short or few, since at most
/// `MOST_ACROSS` chunks lie side by side, and more if lines are so long that `FEWEST_ACROSS` chunks side by side need more threads.
const COLUMN_THREADS: u64 = 256;
/// Most threads of a workgroup that holds its lines: with chunks of eight elements, their sums take the 16 KiB of workgroup memory that every device has.
const MOST_COLUMN_THREADS: u64 = 512;
/// Fewest chunks of 16 bytes side by side, if there are as many: together they are 64 bytes, two sectors of the cache. With fewer, a workgroup would read
/// less of each row at once; with more, fewer threads would share a line, so that a workgroup would hold only shorter lines.
const FEWEST_ACROSS: u64 = 4;
/// Most chunks side by side: one for each thread of a subgroup of 32.
const MOST_ACROSS: u64 = 32;
/// Most chunks side by side of slices of lines: 128 bytes, a line of the cache. With fewer, a workgroup would read less of each row at once; with more,
/// fewer threads would share a line, so that slices would be shorter and leave more parts to merge.
const MOST_ACROSS_OF_SLICES: u64 = 8;
/// Lines of at least `LONG_LINE` elements are split if fewer workgroups than this would hold them: more than a quarter of the 132 SMs of an H200
/// would be idle.
const FEWEST_WORKGROUPS: u64 = 96;
/// Elements from which on a line is split if fewer than `FEWEST_WORKGROUPS` workgroups would hold the lines. Split lines are read twice and take a second
/// dispatch: a smaller number would add both to work that is short, a larger one would leave SMs idle for longer.
const LONG_LINE: u64 = 512;

/// Lines as the shaders take them.
pub(super) struct ShaderLines {
    pub(super) lines: Geometry,
    /// Elements of a chunk of 16 bytes.
    elements: u64,
    /// Whether no chunk is cut and all start at chunks.
    pub(super) can_chunk: bool,
}

impl ShaderLines {
    pub(super) fn new(lines: Geometry, dtype: DType) -> Self {
        let elements = 16 / dtype.size_bytes();
        // Numbers, or-ed together, that are multiples of a chunk's elements if chunks are whole.
        let of_line =
            if lines.is_rows() { lines.dim } else { lines.steps.iter().fold(lines.inner, |all, step| all | step) };
        let whole = lines.strides.iter().flatten().fold(of_line, |all, stride| all | stride);
        Self { lines, elements, can_chunk: whole.is_multiple_of(elements) }
    }

    /// What the params of both passes begin with: rows, dim, inner, extents and padding.
    pub(super) fn words(&self) -> [u32; 8] {
        let Geometry { outer, dim, inner, extents: [extent1, extent2], .. } = self.lines;
        [outer, dim, inner, extent1, extent2, 0, 0, 0].map(word)
    }

    fn check_rows(&self) -> Result<(), Reason> {
        Reason::unless(self.lines.is_rows(), || "it takes rows, and lines lie side by side")
    }

    fn check_channels(&self) -> Result<(), Reason> {
        Reason::unless(!self.lines.is_rows(), || "it takes lines that lie side by side, and the axis is dense")
    }

    /// Chunks of a row.
    fn row_chunks(&self) -> u64 {
        self.lines.dim.div_ceil(self.elements)
    }

    /// Chunks side by side.
    fn columns(&self) -> u64 {
        self.lines.inner.div_ceil(self.elements)
    }

    /// Fewest and most chunks side by side of a workgroup.
    fn across(&self) -> [u64; 2] {
        let widest = self.columns().next_power_of_two().min(MOST_ACROSS);
        [widest.min(FEWEST_ACROSS), widest]
    }

    /// Most threads of a workgroup over channels: all quads of each thread's lines lie in its memory at once.
    fn most_column_threads(&self, props: &Props) -> u64 {
        let bytes = u64::from(props.max_workgroup_bytes);
        MOST_COLUMN_THREADS.min(u64::from(props.max_threads)).min(bytes / (4 * self.elements))
    }

    pub(super) fn is_half(&self) -> bool {
        self.elements == 8
    }

    pub(super) fn strides(&self, tensor: usize) -> [u32; 3] {
        self.lines.strides[tensor].map(stride)
    }
}

/// A workgroup over channels: `across` chunks side by side, each of `deep` threads that hold `chunks` elements of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ColumnTeam {
    across: u64,
    deep: u64,
    chunks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    Team(Team),
    Columns(ColumnTeam),
}

/// How a plan's lines are spread.
pub(super) struct Spread {
    threads: Threads,
    /// Parts of a line: each is one workgroup's, but in `rows_twice` one workgroup takes all of them, one after the other.
    pub(super) slices: u64,
    /// Chunks side by side in a block.
    pub(super) columns: u64,
    /// Rows that a team takes.
    pub(super) rounds: u64,
    pub(super) groups: u64,
    /// Quads of workspace.
    pub(super) workspace_quads: u64,
}

impl Spread {
    /// Teams that hold whole rows.
    pub(super) fn rows_resident(view: &ShaderLines, tables: &Tables, props: &Props, ask: Ask) -> Result<Self, Reason> {
        view.check_rows()?;
        let (table, row_chunks) = (tables.resident[usize::from(view.is_half())], view.row_chunks());
        let team = |rows| Team::resident(table, rows, row_chunks, props);
        let Some(held) = team(ask.samples(view.lines.outer).max(FEW_ROWS)) else {
            let fitting = table.iter().copied().filter(|team| team.threads <= props.max_threads);
            let most = fitting.map(TeamNumbers::team_chunks).max().unwrap_or(0);
            return Err(format!("rows of {row_chunks} chunks of 16 bytes, it holds at most {most} here").into());
        };
        ask.leave_if(
            ask.samples(view.lines.outer) < FEW_ROWS && team(view.lines.outer).is_none(),
            "so few long rows leave multiprocessors of a large GPU idle: split is faster",
        )?;
        let turns = view.lines.outer.div_ceil(held.rows());
        // Teams that read ahead have shaders of their own where they take several rows.
        let is_ahead = held.keep == Keep::ValuesAhead && !ask.is_invariant();
        let rounds = if is_ahead { turns.div_ceil(AHEAD_GROUPS).max(1) } else { 1 };
        let groups = turns.div_ceil(rounds);
        Ok(Self { threads: Threads::Team(held), slices: 1, columns: 1, rounds, groups, workspace_quads: 0 })
    }

    /// Workgroups that read a row twice, slice after slice.
    pub(super) fn rows_twice(view: &ShaderLines, tables: &Tables, props: &Props, ask: Ask) -> Result<Self, Reason> {
        view.check_rows()?;
        let numbers = tables.twice.ok_or("it computes no gradients")?;
        let (threads, most_threads) = (numbers.threads, props.max_threads);
        Reason::unless(threads <= most_threads, || {
            format!("it needs workgroups of {threads} threads, this device has at most {most_threads}")
        })?;
        let (team, row_chunks) = (Team::of_slices(numbers, props), view.row_chunks());
        let most = MOST_TURNS * team.slice_chunks();
        if row_chunks > most {
            return Err(format!("rows of {row_chunks} chunks of 16 bytes, it takes at most {most}").into());
        }
        if !ask.is_pinned() && ask.samples(view.lines.outer) < FEW_ROWS {
            return Err("so few rows leave multiprocessors of a large GPU idle: split is faster".into());
        }
        let (slices, groups) = (row_chunks.div_ceil(team.slice_chunks()), view.lines.outer.div_ceil(team.rows()));
        Ok(Self { threads: Threads::Team(team), slices, columns: 1, rounds: 1, groups, workspace_quads: 0 })
    }

    /// Workgroups that hold whole lines side by side.
    pub(super) fn channels_resident(
        view: &ShaderLines,
        tables: &Tables,
        props: &Props,
        ask: Ask,
    ) -> Result<Self, Reason> {
        view.check_channels()?;
        let columns = view.columns();
        let most_threads = view.most_column_threads(props);
        let [narrowest, widest] = view.across();
        let deep = view.lines.dim.div_ceil(tables.column_chunks[usize::from(view.is_half())]).next_power_of_two();
        let across = (COLUMN_THREADS / deep.min(COLUMN_THREADS)).clamp(narrowest, widest);
        let groups = view.lines.outer * columns.div_ceil(across);
        let (dim, all_threads) = (view.lines.dim, deep * across);
        Reason::unless(all_threads <= most_threads, || {
            format!("lines of {dim} elements take {all_threads} threads, the limit is {most_threads}")
        })?;
        let few_groups = !ask.is_invariant() && groups < FEWEST_WORKGROUPS;
        if !ask.is_pinned() && few_groups && view.lines.dim >= LONG_LINE {
            let why = format!("{groups} workgroups leave multiprocessors of a large GPU idle");
            return Err(format!("{why}: split is faster").into());
        }
        let threads = Threads::Columns(ColumnTeam { across, deep, chunks: view.lines.dim.div_ceil(deep) });
        Ok(Self { threads, slices: 1, columns, rounds: 1, groups, workspace_quads: 0 })
    }

    /// Workgroups that hold slices of lines.
    pub(super) fn split(view: &ShaderLines, tables: &Tables, props: &Props) -> Self {
        let kind = usize::from(view.is_half());
        if view.lines.is_rows() {
            let team = Team::of_slices(tables.slice[kind], props);
            let slices = view.row_chunks().div_ceil(team.slice_chunks());
            let groups = view.lines.outer.div_ceil(team.rows()) * slices;
            let workspace_quads = view.lines.outer * slices;
            return Self { threads: Threads::Team(team), slices, columns: 1, rounds: 1, groups, workspace_quads };
        }
        let (columns, chunks) = (view.columns(), tables.column_chunks[kind]);
        let across = view.across()[1].min(MOST_ACROSS_OF_SLICES);
        let deep = COLUMN_THREADS.min(view.most_column_threads(props)) / across;
        let slices = view.lines.dim.div_ceil(deep * chunks);
        let groups = view.lines.outer * slices * columns.div_ceil(across);
        let workspace_quads = view.lines.outer * slices * columns * (view.elements / 4) * tables.quads_of_part;
        let threads = Threads::Columns(ColumnTeam { across, deep, chunks });
        Self { threads, slices, columns, rounds: 1, groups, workspace_quads }
    }

    /// The files that share a line among threads, and with which these meet.
    pub(super) fn files(&self) -> Vec<&'static str> {
        match self.threads {
            Threads::Team(team) => vec!["common/row_part", team.reduce.file()],
            Threads::Columns(_) => vec!["common/column"],
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

    /// `keeps`: whether elements are needed more than once.
    pub(super) fn flags(&self, keeps: bool) -> [(&'static str, bool); 2] {
        match self.threads {
            Threads::Team(team) if keeps => team.keep.flags(self.rounds > 1),
            // Forward keeps elements that it needs more than once as f32; backward keeps words and does not read the flag.
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
