//! How rows are spread over threads: a row, or a slice of one, has a team of threads, each of which holds some of its chunks in registers.
//!
//! The numbers are those that were fastest, of those that were timed, on an H200 through Vulkan; docs/rejected.md has some that were slower.

use super::device::{LEAST_THREADS, Props};
use crate::narrow::word;

/// How the threads of a team add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduce {
    /// By shuffles: the team lies within one subgroup.
    Lanes,
    /// By subgroups and workgroup memory: the team is whole subgroups, each with at least this many threads.
    Subgroups(u32),
    /// By a tree in workgroup memory.
    Tree,
}

impl Reduce {
    /// The file with the sums.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Lanes => "common/reduce_lanes",
            Self::Subgroups(_) => "common/reduce_subgroups",
            Self::Tree => "common/reduce_tree",
        }
    }
}

/// What a thread keeps of a row between its sums and its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The words that it loaded.
    Words,
    /// The words that it loaded; those of the next row are loaded into their registers as they are used up.
    WordsAhead,
    /// The elements in f32.
    Values,
    /// The elements in f32; the words of the next row are loaded meanwhile.
    ValuesAhead,
    /// Nothing: it loads the row again, from a cache.
    Nothing,
}

impl Keep {
    /// The flags of the shaders. `has_next`: teams take several rows.
    pub(crate) fn flags(self, has_next: bool) -> [(&'static str, bool); 2] {
        let is_ahead = matches!(self, Self::WordsAhead | Self::ValuesAhead);
        [("UNPACKED", matches!(self, Self::Values | Self::ValuesAhead)), ("PREFETCH", is_ahead && has_next)]
    }
}

/// A team of a table, for any workgroup and any device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TeamNumbers {
    pub(crate) threads: u32,
    /// Chunks that a thread holds.
    pub(crate) chunks: u32,
    pub(crate) keep: Keep,
}

impl TeamNumbers {
    /// Chunks that the team holds.
    pub(crate) fn team_chunks(self) -> u64 {
        u64::from(self.threads) * u64::from(self.chunks)
    }
}

/// A table of teams, in the order in which they are tried.
pub(crate) type Teams = [TeamNumbers];

/// A table: what threads keep, and teams as `threads x chunks` of each thread.
macro_rules! teams {
    ($($keep:ident: $($threads:literal x $chunks:literal),+);+) => {
        [$($($crate::backend::wgpu::team::TeamNumbers {
            threads: $threads,
            chunks: $chunks,
            keep: $crate::backend::wgpu::team::Keep::$keep,
        }),+),+]
    };
}
pub(crate) use teams;

/// Most threads of a team that holds a row and shares a workgroup with other teams: as many as a subgroup of NVIDIA's devices has, in which they
/// add up without a barrier. Teams of channel norms share workgroups with more threads.
const MOST_SHARING_THREADS: u32 = 32;
/// Teams that hold a row of 32-bit elements, and of 16-bit elements. Drivers keep more than 4 chunks of 8 values in memory instead of registers,
/// so that larger teams of 16-bit elements keep words. The last teams of each are for devices whose workgroups have at most 256 threads.
pub(crate) const ROW_TEAMS: [&Teams; 2] = [
    &teams![
        Values: 8 x 1, 16 x 1, 32 x 1, 32 x 2, 32 x 4, 32 x 8, 128 x 4, 256 x 4, 512 x 4, 512 x 8, 256 x 8;
        Words: 256 x 16
    ],
    &teams![
        Values: 8 x 1, 16 x 1, 32 x 1, 32 x 2, 32 x 4, 64 x 4, 128 x 4, 256 x 4;
        ValuesAhead: 512 x 4;
        Words: 512 x 8, 256 x 8, 256 x 16
    ],
];

/// The first team of a table with at most `most_threads` threads that holds `chunks` chunks.
pub(crate) fn first_that_holds(table: &Teams, chunks: u64, most_threads: u32) -> Option<TeamNumbers> {
    table.iter().copied().find(|team| team.threads <= most_threads && team.team_chunks() >= chunks)
}

/// The threads of one row or slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Team {
    pub(crate) threads: u32,
    /// Chunks that a thread holds.
    pub(crate) chunks: u32,
    /// Threads of the workgroup, which has one team or several.
    pub(crate) workgroup: u32,
    pub(crate) reduce: Reduce,
    pub(crate) keep: Keep,
}

/// Threads of a workgroup with several teams: as many as every device offers.
pub(crate) const SHARED_WORKGROUP: u32 = LEAST_THREADS;
/// Rows below which long ones are split, although a workgroup could hold one: so few workgroups leave more than a quarter of the 132 SMs of an H200 idle.
pub(crate) const FEW_ROWS: u64 = 96;
/// Chunks from which on a row counts as long.
const LONG_ROW: u64 = 2048;

/// SMs of an H200. If there are no more rows than that, each has an SM to itself, and rows of more than `MOST_SHARING_THREADS` and up to
/// `MOST_THIN_THREADS` chunks get a thread for each chunk, rounded up to a power of two.
const THIN_ROWS: u64 = 132;
/// Most threads of a row that has a thread for each chunk: as many as a workgroup has on an H200. Longer rows need several chunks a thread, and take
/// their team from the table.
const MOST_THIN_THREADS: u32 = 1024;
/// Workgroups of a launch whose teams read the next row ahead and therefore take several: two for each SM of an H200.
pub(crate) const AHEAD_GROUPS: u64 = 2 * 132;

/// Partial sums of a column above which up to 64 threads share them, not up to 32. A workgroup of 256 threads that has a quad for each thread reads 128
/// bytes of a partial sum at once with 32 threads to a column, and 64 bytes with 64. Up to this number each of 32 threads adds up at most eight, two in
/// each of its `CHAINS`; a smaller number would have narrower reads for shorter chains, a larger one longer chains.
const MANY_PARTIALS: u64 = 256;
/// Most threads that share the partial sums of a column, if these are at most `MANY_PARTIALS`.
const MOST_LANES: u64 = 32;
/// Most threads that share the partial sums of a column, if these are more than `MANY_PARTIALS`.
const MOST_LANES_OF_MANY: u64 = 64;
/// Chains of additions of a thread that adds up partial sums of a column: CHAINS in gemm_backward_sums.wgsl and row_norm_backward_parameters.wgsl. Loads of
/// different chains do not wait for each other's additions, and with four a chain is a quarter as long; with more, a thread needs registers for more sums.
pub(crate) const CHAINS: u64 = 4;
/// Partial sums that a thread adds up in each of its `CHAINS` before it adds up the chains, and sums of these in one more chain: CHAIN in
/// gemm_backward_sums.wgsl and row_norm_backward_parameters.wgsl. With 16, a million partial sums are added up in 54 additions that follow each other.
pub(crate) const PARTIALS_CHAIN: u64 = 16;
/// Most chains of all threads that share the partial sums of a column.
pub(crate) const MOST_COLUMN_CHAINS: u64 = MOST_LANES_OF_MANY * CHAINS;
/// Fewest threads that share the partial sums of a column. With fewer, a workgroup would have more columns, and there would be fewer workgroups.
const FEWEST_LANES: u64 = 4;

/// Threads that share the `partials` sums of a column where a further dispatch adds them up: so many that each adds up about two, within limits.
pub(crate) fn lanes_of_partials(partials: u64) -> u32 {
    let most = if partials > MANY_PARTIALS { MOST_LANES_OF_MANY } else { MOST_LANES };
    word((partials / 2).next_power_of_two().clamp(FEWEST_LANES, most))
}

/// Additions that follow each other where `partials` sums are added up: in one of a thread's `CHAINS`, of the chains, of their sums, and of the threads.
pub(crate) fn chain_of_partials(partials: u64) -> u64 {
    let lanes = lanes_of_partials(partials);
    let of_chain = partials.div_ceil(CHAINS * u64::from(lanes));
    let sums = of_chain.div_ceil(PARTIALS_CHAIN);
    let of_sums = sums.min(PARTIALS_CHAIN) + sums.div_ceil(PARTIALS_CHAIN);
    let in_tree = u64::from(CHAINS.ilog2()) + u64::from(lanes.ilog2());
    of_chain.min(PARTIALS_CHAIN) + of_sums.saturating_sub(2) + in_tree
}

impl Team {
    pub(crate) fn new(numbers: TeamNumbers, workgroup: u32, props: &Props) -> Self {
        let TeamNumbers { threads, chunks, keep } = numbers;
        let (threads, workgroup) = (threads.min(props.max_threads), workgroup.max(threads).min(props.max_threads));
        let reduce = match props.subgroup_sizes {
            Some((narrowest, _)) if threads <= narrowest => Reduce::Lanes,
            Some((narrowest, widest)) if narrowest >= 2 && widest <= threads => Reduce::Subgroups(narrowest),
            _ => Reduce::Tree,
        };
        Self { threads, chunks, workgroup, reduce, keep }
    }

    /// A team that is a whole workgroup and holds a slice of a row.
    pub(crate) fn of_slices(numbers: TeamNumbers, props: &Props) -> Self {
        Self::new(numbers, numbers.threads, props)
    }

    /// Whether rows of `row_chunks` chunks are long and so few that they are split although a workgroup could hold one.
    pub(crate) fn is_better_split(rows: u64, row_chunks: u64) -> bool {
        rows < FEW_ROWS && row_chunks >= LONG_ROW
    }

    /// The first team of `table` that holds a row of `row_chunks` chunks on the device; none if no team does, or if rows are long and so few that
    /// they are split.
    pub(crate) fn resident(table: &Teams, rows: u64, row_chunks: u64, props: &Props) -> Option<Self> {
        if Self::is_better_split(rows, row_chunks) { None } else { Self::holding(table, rows, row_chunks, props) }
    }

    /// The first of `table` that holds a row of `row_chunks` chunks on the device.
    pub(crate) fn holding(table: &Teams, rows: u64, row_chunks: u64, props: &Props) -> Option<Self> {
        let mut numbers = first_that_holds(table, row_chunks, props.max_threads)?;
        let is_thin = rows <= THIN_ROWS
            && row_chunks > u64::from(MOST_SHARING_THREADS)
            && row_chunks <= u64::from(props.max_threads.min(MOST_THIN_THREADS));
        if is_thin && numbers.chunks > 1 {
            let threads = word(row_chunks).next_power_of_two();
            numbers = TeamNumbers { threads, chunks: 1, keep: Keep::Values };
        }
        let workgroup = if numbers.threads <= MOST_SHARING_THREADS { SHARED_WORKGROUP } else { numbers.threads };
        Some(Self::new(numbers, workgroup, props))
    }

    /// Teams of a workgroup, each of which takes one row.
    pub(crate) fn rows(self) -> u64 {
        u64::from(self.workgroup / self.threads)
    }

    /// Chunks that the team holds.
    pub(crate) fn slice_chunks(self) -> u64 {
        u64::from(self.threads) * u64::from(self.chunks)
    }

    /// The constants of a shader whose workgroups have this team or several.
    pub(crate) fn constants(self) -> Vec<(&'static str, u32)> {
        let mut constants = vec![("WORKGROUP", self.workgroup), ("CHUNKS", self.chunks)];
        constants.extend(self.team_constants());
        constants
    }

    /// The fewest threads among which a sum is shared out that every thread of the team needs: `member_count` of the reduce files.
    pub(crate) fn members(self) -> u64 {
        u64::from(match self.reduce {
            Reduce::Subgroups(narrowest) => narrowest,
            Reduce::Lanes | Reduce::Tree => self.threads,
        })
    }

    /// Bytes of workgroup memory of the sums.
    pub(crate) fn reduce_bytes(self) -> u64 {
        u64::from(match self.reduce {
            Reduce::Lanes => 0,
            Reduce::Subgroups(narrowest) => 16 * self.workgroup / narrowest,
            Reduce::Tree => 16 * self.workgroup,
        })
    }

    /// The files with which the threads of a team add up.
    pub(crate) fn files(self) -> [&'static str; 2] {
        ["common/team", self.reduce.file()]
    }

    /// The constants of the team alone, where the workgroup and the chunks are given otherwise.
    pub(crate) fn team_constants(self) -> Vec<(&'static str, u32)> {
        let mut constants = vec![("THREADS", self.threads)];
        if let Reduce::Subgroups(narrowest) = self.reduce {
            constants.push(("NARROWEST", narrowest));
        }
        constants
    }
}
