//! How groups, segments and columns of channels are spread over threads.

use super::super::ChannelOrder;
use super::Segments;
use crate::backend::wgpu::team::{Keep, Team};
use crate::backend::wgpu::{Props, groups};
use crate::error::Reason;

/// (threads, chunks each) that hold a slice of a segment, the first that suffices or the last.
const SLICES: &[(u32, u32, Keep)] = &[
    (8, 1, Keep::Values),
    (16, 1, Keep::Values),
    (32, 1, Keep::Values),
    (64, 1, Keep::Values),
    (128, 1, Keep::Values),
    (128, 2, Keep::Values),
    (128, 4, Keep::Values),
    (256, 4, Keep::Values),
];
/// As `SLICES`, where a thread reads several tensors.
const SLICES_OF_SEVERAL: &[(u32, u32, Keep)] = &[
    (8, 1, Keep::Words),
    (16, 1, Keep::Words),
    (32, 1, Keep::Words),
    (64, 1, Keep::Words),
    (128, 1, Keep::Words),
    (128, 2, Keep::Words),
    (128, 4, Keep::Words),
];
/// (threads, chunks each) that hold a group of 32-bit elements, the first that suffices.
const RESIDENT: &[(u32, u32, Keep)] = &[
    (8, 1, Keep::Values),
    (16, 1, Keep::Values),
    (32, 1, Keep::Values),
    (32, 2, Keep::Values),
    (32, 4, Keep::Values),
    (32, 8, Keep::Values),
    (128, 4, Keep::Values),
    (256, 4, Keep::Values),
    (512, 4, Keep::Values),
];
/// As `RESIDENT`, for 16-bit elements: more than 4 chunks of 8 values do not stay in registers. Groups beyond are faster in parts.
const RESIDENT_HALF: &[(u32, u32, Keep)] = &[
    (8, 1, Keep::Values),
    (16, 1, Keep::Values),
    (32, 1, Keep::Values),
    (32, 2, Keep::Values),
    (32, 4, Keep::Values),
    (64, 4, Keep::Values),
    (128, 4, Keep::Values),
    (256, 4, Keep::Values),
    (512, 4, Keep::Words),
];
/// Parts of a group up to which every team that needs them may merge them itself, and workgroups up to which that is faster than a dispatch
/// in between.
pub(super) const FEW_PARTS: u64 = 64;
const FEW_WORKGROUPS: u64 = 2048;
/// Threads of the workgroups that share small teams.
const SHARED_WORKGROUP: u32 = 128;
/// Most threads that merge the parts of one group.
const MOST_MERGERS: u32 = 1024;

/// Threads and most chunk columns of a workgroup where channels are last.
const COLUMNS_WORKGROUP: u32 = 256;
const MOST_COLUMNS: u64 = 32;
/// Columns from which on a row of a workgroup fills whole segments of memory.
const FEWEST_COLUMNS: u64 = 8;

fn first_that_holds(table: &[(u32, u32, Keep)], chunks: u64, props: &Props) -> Option<(u32, u32, Keep)> {
    let fits = |&&(threads, each, _): &&(u32, u32, Keep)| {
        threads <= props.max_threads && u64::from(threads) * u64::from(each) >= chunks
    };
    table.iter().find(fits).copied()
}

fn team(numbers: (u32, u32, Keep), props: &Props) -> Team {
    Team::new(numbers, numbers.0.max(SHARED_WORKGROUP.min(props.max_threads)), props)
}

/// The team of a slice of a segment of `chunks` chunks.
fn slice_team(chunks: u64, tensors: usize, props: &Props) -> Team {
    let table = if tensors > 1 { SLICES_OF_SEVERAL } else { SLICES };
    team(first_that_holds(table, chunks, props).unwrap_or(table[table.len() - 1]), props)
}

/// The team that holds a group of `chunks` chunks.
pub(super) fn resident_team(chunks: u64, is_half: bool, props: &Props) -> Option<Team> {
    first_that_holds(if is_half { RESIDENT_HALF } else { RESIDENT }, chunks, props).map(|numbers| team(numbers, props))
}

/// The team that merges `parts` parts of a group.
pub(super) fn merge_team(parts: u64, props: &Props) -> Team {
    let most = MOST_MERGERS.min(props.max_threads);
    let threads = parts.clamp(8, u64::from(most)).next_power_of_two() as u32;
    team((threads.min(most), 1, Keep::Words), props)
}

/// A workgroup where channels are last: `columns` chunks beside each other, `lanes` rows below each other, `chunks` rows a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) workgroup: u32,
    pub(super) columns: u32,
    pub(super) chunks: u32,
    pub(super) ahead: u32,
    /// Workgroups beside each other.
    pub(super) blocks: u64,
}

impl Columns {
    /// For rows of `chunks` chunks of channels, of which a thread takes `rows`, `ahead` at a time.
    pub(super) fn new(chunks: u64, (rows, ahead): (u32, u32), props: &Props) -> Self {
        let workgroup = COLUMNS_WORKGROUP.min(props.max_threads);
        let waste = |columns: u64| chunks.next_multiple_of(columns);
        let mut columns = chunks.next_power_of_two().min(MOST_COLUMNS);
        while columns > FEWEST_COLUMNS && waste(columns / 2) < waste(columns) {
            columns /= 2;
        }
        Self { workgroup, columns: columns as u32, chunks: rows, ahead, blocks: chunks.div_ceil(columns).max(1) }
    }

    /// Rows of a workgroup.
    pub(super) fn rows(self) -> u64 {
        u64::from(self.workgroup / self.columns) * u64::from(self.chunks)
    }

    pub(super) fn constants(self) -> Vec<(&'static str, u32)> {
        vec![("WORKGROUP", self.workgroup), ("COLUMNS", self.columns), ("CHUNKS", self.chunks), ("AHEAD", self.ahead)]
    }
}

/// How segments are spread over workgroups.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Slices(Team),
    Columns(Columns),
}

impl Form {
    pub(super) fn new(segments: &Segments, rows: (u32, u32), tensors: usize, props: &Props) -> Self {
        match segments.order {
            ChannelOrder::Contiguous => Self::Slices(slice_team(segments.segment_chunks(), tensors, props)),
            ChannelOrder::ChannelsLast => {
                Self::Columns(Columns::new(segments.channels.div_ceil(segments.elements), rows, props))
            }
        }
    }

    /// Parts of a segment.
    pub(super) fn slices(self, segments: &Segments) -> u64 {
        match self {
            Self::Slices(team) => segments.segment_chunks().div_ceil(team.slice_chunks()).max(1),
            Self::Columns(columns) => segments.spatial.div_ceil(columns.rows()).max(1),
        }
    }

    /// Workgroups beside each other.
    pub(super) fn column_blocks(self) -> u64 {
        match self {
            Self::Slices(_) => 1,
            Self::Columns(columns) => columns.blocks,
        }
    }

    /// Whether it is worth while that every workgroup merges the few parts of its groups.
    pub(super) fn merges(self, segments: &Segments) -> bool {
        matches!(self, Self::Slices(_)) && self.group_count(segments) <= FEW_WORKGROUPS
    }

    /// The workgroups of a dispatch over all segments.
    pub(super) fn group_count(self, segments: &Segments) -> u64 {
        let slices = self.slices(segments);
        match self {
            Self::Slices(team) => (segments.segment_count() * slices).div_ceil(team.rows()),
            Self::Columns(columns) => segments.batch * slices * columns.blocks,
        }
    }

    /// The same, spread over two dimensions.
    pub(super) fn grid(self, segments: &Segments, props: &Props) -> Result<[u32; 2], Reason> {
        groups(self.group_count(segments), props)
    }
}
