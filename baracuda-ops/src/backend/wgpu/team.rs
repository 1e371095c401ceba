//! How rows are spread over threads: a row, or a slice of one, has a team of threads, each of which holds some of its chunks in registers.
//!
//! The numbers are those that were fastest on an H200 through Vulkan; docs/rejected.md has what was slower there.

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

/// Teams in the order in which they are tried: what threads keep, and for each team (threads, chunks of a thread).
pub(crate) type Teams = [(Keep, &'static [(u32, u32)])];

/// Teams of at most 32 threads, several of which share a workgroup.
pub(crate) const SMALL_TEAMS: &[(u32, u32)] = &[(8, 1), (16, 1), (32, 1), (32, 2), (32, 4)];
/// Teams that hold a row of 32-bit elements, and of 16-bit elements. Drivers keep more than 4 chunks of 8 values in memory instead of registers,
/// so that larger teams of 16-bit elements keep words. The last teams of each are for devices whose workgroups have at most 256 threads.
pub(crate) const ROW_TEAMS: [&Teams; 2] = [
    &[
        (Keep::Values, SMALL_TEAMS),
        (Keep::Values, &[(32, 8), (128, 4), (256, 4), (512, 4), (512, 8), (256, 8)]),
        (Keep::Words, &[(256, 16)]),
    ],
    &[
        (Keep::Values, SMALL_TEAMS),
        (Keep::Values, &[(64, 4), (128, 4), (256, 4)]),
        (Keep::ValuesAhead, &[(512, 4)]),
        (Keep::Words, &[(512, 8), (256, 8), (256, 16)]),
    ],
];

/// The teams of a table, as (threads, chunks of a thread, what it keeps).
pub(crate) fn each_team(table: &Teams) -> impl Iterator<Item = (u32, u32, Keep)> {
    table.iter().flat_map(|&(keep, teams)| teams.iter().map(move |&(threads, chunks)| (threads, chunks, keep)))
}

/// The first team of a table with at most `most_threads` threads that holds `chunks` chunks.
pub(crate) fn first_that_holds(table: &Teams, chunks: u64, most_threads: u32) -> Option<(u32, u32, Keep)> {
    each_team(table)
        .find(|&(threads, each, _)| threads <= most_threads && u64::from(threads) * u64::from(each) >= chunks)
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
/// Rows below which long ones are split, although a workgroup could hold one: so few workgroups leave more than a quarter of the 132 multiprocessors of an
/// H200 idle.
pub(crate) const FEW_ROWS: u64 = 96;
/// Chunks from which on a row counts as long.
const LONG_ROW: u64 = 2048;

/// Multiprocessors of an H200. If rows are no more, a row has a multiprocessor to itself, and as many threads as it has chunks.
const THIN_ROWS: u64 = 132;
/// Workgroups of a launch whose teams read the next row ahead and therefore take several: two for each multiprocessor of an H200.
pub(crate) const AHEAD_GROUPS: u64 = 2 * 132;

/// Partial sums of a column above which up to 64 threads share them, not up to 32. A workgroup of 256 threads that has a quad for each thread reads 128
/// bytes of a partial sum at once with 32 threads to a column, and 64 bytes with 64.
const MANY_PARTIALS: u64 = 256;
/// Fewest threads that share the partial sums of a column. With fewer, a workgroup would have more columns, and there would be fewer workgroups.
const FEWEST_LANES: u64 = 4;

/// Threads that share the `partials` sums of a column where a further dispatch adds them up: so many that each adds up about two, within limits.
pub(crate) fn lanes_of_partials(partials: u64) -> u32 {
    let most = if partials > MANY_PARTIALS { 64 } else { 32 };
    word((partials / 2).next_power_of_two().clamp(FEWEST_LANES, most))
}

impl Team {
    pub(crate) fn new((threads, chunks, keep): (u32, u32, Keep), workgroup: u32, props: &Props) -> Self {
        let (threads, workgroup) = (threads.min(props.max_threads), workgroup.max(threads).min(props.max_threads));
        let reduce = match props.subgroup_sizes {
            Some((narrowest, _)) if threads <= narrowest => Reduce::Lanes,
            Some((narrowest, widest)) if narrowest >= 2 && widest <= threads => Reduce::Subgroups(narrowest),
            _ => Reduce::Tree,
        };
        Self { threads, chunks, workgroup, reduce, keep }
    }

    /// A team that is a whole workgroup and holds a slice of a row.
    pub(crate) fn of_slices(numbers: (u32, u32, Keep), props: &Props) -> Self {
        Self::new(numbers, numbers.0, props)
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
        let is_thin = rows <= THIN_ROWS && row_chunks > 32 && row_chunks <= u64::from(props.max_threads.min(1024));
        if is_thin && numbers.1 > 1 {
            numbers = (word(row_chunks).next_power_of_two(), 1, Keep::Values);
        }
        let workgroup = if numbers.0 <= 32 { SHARED_WORKGROUP } else { numbers.0 };
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
