//! How groups, segments and columns of channels are spread over threads.

use super::super::ChannelOrder;
use super::{Held, Segments, Share};
use crate::backend::wgpu::team::{Keep, SMALL_TEAMS, Team, Teams, first_that_holds};
use crate::backend::wgpu::{Props, groups};
use crate::error::Reason;
use crate::narrow::word;
use crate::ops::activation::Activation;

/// Threads, and the chunks of each, that hold a slice of a segment, the first that suffices or the last.
const SLICES: (Keep, &[(u32, u32)]) =
    (Keep::Values, &[(8, 1), (16, 1), (32, 1), (64, 1), (128, 1), (128, 2), (128, 4), (256, 4)]);
/// As `SLICES`, where a thread reads several tensors.
const SLICES_OF_SEVERAL: (Keep, &[(u32, u32)]) =
    (Keep::Words, &[(8, 1), (16, 1), (32, 1), (64, 1), (128, 1), (128, 2), (128, 4)]);
/// Segments from which on 32 threads each keep a large GPU busy, and the chunks of such a thread where they hold the segment: they meet
/// without a barrier, and more of what a thread reads is under way.
const MANY_SEGMENTS: u64 = 4096;
const CHUNKS_OF_MANY: &[u32] = &[2, 4];
/// (threads, chunks each) for the moments of as many longer segments of 16-bit elements.
const MOMENTS_OF_MANY_HALF: (u32, u32, Keep) = (64, 7, Keep::Words);
/// (threads, chunks each) where segments are few and their elements go through an activation: a thread of 4 chunks takes too long over them.
const SLICE_OF_ACTIVATION: (u32, u32, Keep) = (256, 2, Keep::Words);
/// Teams that hold a group of 32-bit elements, the first that suffices.
const RESIDENT: &Teams = &[
    (Keep::Values, SMALL_TEAMS),
    (Keep::Values, &[(32, 8), (128, 4), (256, 4), (512, 4), (1024, 3), (1024, 4), (1024, 5), (512, 8)]),
];
/// As `RESIDENT`, for 16-bit elements: more than 4 chunks of 8 values do not stay in registers. Groups beyond are faster in parts.
const RESIDENT_HALF: &Teams = &[
    (Keep::Values, SMALL_TEAMS),
    (Keep::Values, &[(64, 4), (128, 4), (256, 4)]),
    (Keep::Words, &[(512, 4), (1024, 3)]),
];
/// Teams that hold groups of 16-bit elements one after the other, as many workgroups as a large GPU holds at once.
const RESIDENT_AHEAD_HALF: &Teams = &[(Keep::Words, &[(1024, 2), (832, 4), (1024, 4)])];
/// The same of groups that all find a place at once.
const RESIDENT_ALONE_HALF: &Teams = &[(Keep::Words, &[(1024, 5)])];
/// Chunks from which on groups are held so.
const FEWEST_AHEAD_CHUNKS: u64 = 2048;
const FEWEST_ALONE_CHUNKS: u64 = 3073;
/// Groups from which on the last workgroups to read ahead are few beside all.
const FEWEST_AHEAD_GROUPS: u64 = 2 * MULTIPROCESSORS;
/// Teams that hold a group for its gradients, chunks each of dy and of x, the first that suffices.
const RESIDENT_BACKWARD: &Teams = &[(
    Keep::Words,
    &[(8, 1), (16, 1), (32, 1), (64, 1), (128, 1), (256, 1), (512, 1), (512, 2), (1024, 2), (1024, 3)],
)];
/// Chunks of dy up to which the parameters' gradients are worth a second reading, in the dispatch that holds the groups, and most chunks of a
/// channel that one thread adds up there.
const FEW_CHUNKS: u64 = 1 << 18;
const MOST_CHANNEL_CHUNKS: u64 = 16;
/// Most chunks of such a thread whose elements go through an activation.
const MOST_CHUNKS_OF_ACTIVATION: u32 = 2;
/// (threads, chunks each) that hold channels which share chunks, the first that suffices: of one tensor, and of dy and x. The sums of more
/// threads would need more than the 16 KB of workgroup memory that every device has.
const GAPLESS: &[(u32, u32)] = &[(128, 4), (256, 4), (512, 4), (512, 7)];
const GAPLESS_OF_SEVERAL: &[(u32, u32)] = &[(128, 4), (256, 4), (512, 4), (896, 4)];
/// Most chunks of such a channel in a sample: one thread adds their sums up, one after the other.
const MOST_SHARED_CHUNKS: u64 = 30;
/// Multiprocessors of a large GPU.
pub(super) const MULTIPROCESSORS: u64 = 132;
/// Parts of a group up to which every team that needs them may merge them itself, and workgroups up to which that is faster than a dispatch
/// in between.
const FEW_PARTS: u64 = 64;
const FEW_WORKGROUPS: u64 = 2048;
/// Most parts that a thread of such a team holds.
const MOST_HELD_PARTS: u64 = 8;
/// Parts of a channel that one thread adds up, one after the other.
pub(super) const FEW_CHANNEL_PARTS: u64 = 4;
/// Fewest threads of such a team.
const FEWEST_MERGERS: u64 = 8;
/// Threads of the workgroups that share small teams.
const SHARED_WORKGROUP: u32 = 128;
/// Most threads that merge the parts of one group.
const MOST_MERGERS: u32 = 1024;

/// Threads of a workgroup where channels are last and workgroups few.
const COLUMNS_WORKGROUP: u32 = 256;
/// Rows that a thread reads before it uses the first, where channels are last.
const ROWS_AHEAD: u32 = 4;
/// Most chunk columns of a workgroup there.
const MOST_COLUMNS: u64 = 32;
/// Columns from which on a row of a workgroup fills whole segments of memory.
const FEWEST_COLUMNS: u64 = 8;
/// Rows of a thread below which workgroups that take whole segments of memory are too few, and fewest where they are narrower.
const MANY_ROWS: u64 = 16;
const FEWEST_ROWS: u64 = 4;
/// Fewest rows of a thread where workgroups are many, and rows in whose time one starts.
const FEW_ROWS: u64 = 8;
const ROWS_OF_START: u64 = 6;
/// Most slices of a sample.
const MOST_SLICES: u64 = 1024;

/// Threads and rows of each that hold whole groups where channels are last, the first that suffices.
const TILES: &[(u32, u32)] = &[(128, 4), (256, 4), (512, 4)];
/// The same for their gradients, where a thread holds dy and x.
const TILES_OF_SEVERAL: &[(u32, u32)] = &[(128, 3), (256, 3), (512, 3)];
/// As `TILES`, in chunks of 8 bytes.
const TILES_NARROW: &[(u32, u32)] = &[(128, 4), (256, 4), (512, 4), (512, 11)];
/// As `TILES_OF_SEVERAL`, in chunks of 8 bytes.
const TILES_NARROW_OF_SEVERAL: &[(u32, u32)] = &[(256, 3), (512, 3), (512, 11)];
/// Rows below each other of those workgroups that take the gradients of parameters, and most rows that one thread adds up there.
pub(super) const SUM_LANES: u32 = 64;
const MOST_SUM_ROWS: u64 = 32;
/// Workgroup memory of every device.
const WORKGROUP_BYTES: u64 = 16384;
/// Most groups of such a workgroup, and its chunks beside each other: from so many on they fill segments of memory.
const MOST_TILE_GROUPS: u64 = 4;
const FEWEST_TILE_COLUMNS: u64 = 4;
const MOST_TILE_COLUMNS: u64 = 32;

/// Chunks beside each other in those workgroups, 32 bytes: with SUM_LANES no more threads than the smallest of the tables has.
pub(super) fn sum_columns(segments: &Segments) -> u32 {
    if segments.is_narrow() { 4 } else { 2 }
}

/// Whether an activation takes few instructions.
fn is_short(activation: Activation) -> bool {
    matches!(activation, Activation::Identity | Activation::Relu)
}

fn team(numbers: (u32, u32, Keep), props: &Props) -> Team {
    Team::new(numbers, numbers.0.max(SHARED_WORKGROUP.min(props.max_threads)), props)
}

/// The team of a slice of a segment.
fn slice_team(segments: &Segments, tensors: usize, props: &Props) -> Team {
    let chunks = segments.segment_chunks();
    let (keep, slices) = if tensors > 1 { SLICES_OF_SEVERAL } else { SLICES };
    if segments.segment_count() >= MANY_SEGMENTS
        && let Some(&each) = CHUNKS_OF_MANY.iter().find(|&&each| chunks > 32 && chunks <= 32 * u64::from(each))
    {
        return team((32, each, keep), props);
    }
    let (threads, each) = slices[slices.len() - 1];
    team(first_that_holds(&[(keep, slices)], chunks, props.max_threads).unwrap_or((threads, each, keep)), props)
}

/// The team that holds a group of `chunks` chunks; the largest leave a multiprocessor room for one workgroup, and take their groups at once.
pub(super) fn resident_team(chunks: u64, groups: u64, is_half: bool, props: &Props) -> Option<Team> {
    let table = if is_half { RESIDENT_HALF } else { RESIDENT };
    let most_threads = if groups <= MULTIPROCESSORS { props.max_threads } else { props.max_threads.min(512) };
    first_that_holds(table, chunks, most_threads).map(|numbers| team(numbers, props))
}

/// Workgroups that hold groups one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    pub(super) team: Team,
    pub(super) workgroups: u32,
}

impl Ahead {
    pub(super) fn new(segments: &Segments, props: &Props) -> Option<Self> {
        let (chunks, groups) = (segments.group_segments * segments.segment_chunks(), segments.group_count);
        let (table, fewest) = if groups <= MULTIPROCESSORS {
            (RESIDENT_ALONE_HALF, FEWEST_ALONE_CHUNKS)
        } else {
            (RESIDENT_AHEAD_HALF, FEWEST_AHEAD_CHUNKS)
        };
        let is_apt =
            segments.is_half() && chunks >= fewest && (groups <= MULTIPROCESSORS || groups >= FEWEST_AHEAD_GROUPS);
        let numbers = first_that_holds(table, chunks, props.max_threads).filter(|_| is_apt)?;
        Some(Self { team: team(numbers, props), workgroups: groups.min(MULTIPROCESSORS) as u32 })
    }
}

/// The team that holds a group for its gradients where tensors are small.
pub(super) fn resident_backward_team(segments: &Segments, activation: Activation, props: &Props) -> Option<Team> {
    let chunks = segments.group_segments * segments.segment_chunks();
    if segments.order != ChannelOrder::Contiguous || segments.is_empty() || chunks * segments.group_count > FEW_CHUNKS {
        return None;
    }
    let found = first_that_holds(RESIDENT_BACKWARD, chunks, props.max_threads).map(|numbers| team(numbers, props))?;
    let is_quick = found.chunks <= MOST_CHUNKS_OF_ACTIVATION || is_short(activation);
    let has_short_channels = segments.batch * segments.segment_chunks() <= MOST_CHANNEL_CHUNKS * found.members();
    (is_quick && (segments.groups_are_channels || has_short_channels)).then_some(found)
}

/// The team that merges `parts` parts of a group.
pub(super) fn merge_team(parts: u64, props: &Props) -> Team {
    let most = MOST_MERGERS.min(props.max_threads);
    let threads = word(parts.clamp(8, u64::from(most)).next_power_of_two());
    team((threads.min(most), 1, Keep::Words), props)
}

/// How a dispatch spreads channels that are last over a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    pub(super) workgroup: u32,
    /// Workgroups in one turn of a large GPU: as many as it holds at once, or twice as many.
    pub(super) resident: u64,
    /// Most rows of a thread, which bound the chains of its additions.
    pub(super) rows: u64,
}

/// A workgroup where channels are last: `columns` chunks beside each other, lanes of threads below each other, and a slice of each sample's
/// rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    workgroup: u32,
    columns: u32,
    /// Rows of a slice, but for the last.
    rows: u64,
    /// Those of a thread where workgroups are few.
    pub(super) held: Option<u32>,
    /// Workgroups beside each other.
    blocks: u64,
}

impl Columns {
    /// Where workgroups would be few, they are narrower and their threads take fewer rows.
    fn new(segments: &Segments, spread: Spread, props: &Props) -> Self {
        let chunks = segments.channels.div_ceil(segments.elements);
        let is_busy = |columns: Self| Form::Columns(columns).group_count(segments) >= MULTIPROCESSORS;
        let wide = Self::at_most(MOST_COLUMNS, chunks, spread.workgroup.min(props.max_threads));
        let lanes = wide.lanes();
        if is_busy(Self { rows: MANY_ROWS * lanes, ..wide }) {
            let beside = segments.batch * wide.blocks;
            return Self { rows: slice_rows(segments.spatial, lanes, beside, spread), ..wide };
        }
        let narrow = Self::at_most(FEWEST_COLUMNS, chunks, COLUMNS_WORKGROUP.min(props.max_threads));
        let mut rows = MANY_ROWS;
        while rows > FEWEST_ROWS && !is_busy(Self { rows: rows * narrow.lanes(), ..narrow }) {
            rows /= 2;
        }
        Self { rows: rows * narrow.lanes(), held: Some(word(rows)), ..narrow }
    }

    /// For rows of `chunks` chunks of channels, at most `most` beside each other.
    fn at_most(most: u64, chunks: u64, workgroup: u32) -> Self {
        let waste = |columns: u64| chunks.next_multiple_of(columns);
        let mut columns = chunks.next_power_of_two().min(most);
        while columns > FEWEST_COLUMNS && waste(columns / 2) < waste(columns) {
            columns /= 2;
        }
        Self { workgroup, columns: word(columns), rows: 1, held: None, blocks: chunks.div_ceil(columns).max(1) }
    }

    fn lanes(self) -> u64 {
        u64::from(self.workgroup / self.columns)
    }

    /// Groups that the channels of one workgroup may lie in.
    fn tile_groups(self, segments: &Segments) -> u64 {
        let channels = u64::from(self.columns) * segments.elements;
        ((channels + segments.group_channels - 2) / segments.group_channels + 1).min(segments.groups)
    }

    /// The teams of a workgroup that merges the parts of all groups that its channels lie in.
    fn merge_team(self, segments: &Segments, props: &Props) -> Option<Team> {
        if segments.groups_are_channels {
            return None;
        }
        let threads = u64::from(self.workgroup) / self.tile_groups(segments).next_power_of_two();
        let team = || Team::new((word(threads), 1, Keep::Words), self.workgroup, props);
        (threads >= FEWEST_MERGERS).then(team)
    }

    pub(super) fn constants(self) -> Vec<(&'static str, u32)> {
        vec![("WORKGROUP", self.workgroup), ("COLUMNS", self.columns), ("AHEAD", ROWS_AHEAD)]
    }
}

/// Rows of a slice of a sample of `spatial` rows, of which `lanes` lie below each other in a workgroup and `beside` workgroups beside it:
/// so that all are through soonest.
fn slice_rows(spatial: u64, lanes: u64, beside: u64, spread: Spread) -> u64 {
    let spatial = spatial.max(1);
    let rows = |slices: u64| spatial.div_ceil(slices).next_multiple_of(lanes);
    let turns = |slices: u64| (beside * spatial.div_ceil(rows(slices))).div_ceil(spread.resident);
    let cost = |slices: u64| turns(slices) * (rows(slices) / lanes + ROWS_OF_START);
    let fewest = spatial.div_ceil(lanes * spread.rows);
    let most = spatial.div_ceil(lanes * FEW_ROWS).clamp(fewest, MOST_SLICES.max(fewest));
    rows((fewest..=most).min_by_key(|&slices| cost(slices)).unwrap_or(fewest))
}

/// The first workgroup of a table, of threads and the rows of each, that holds `rows` rows of `columns` chunks.
fn first_workgroup(table: &[(u32, u32)], columns: u64, rows: u64, props: &Props) -> Option<(u32, u32)> {
    let fits = |&&(threads, each): &&(u32, u32)| {
        threads <= props.max_threads && u64::from(threads) / columns * u64::from(each) >= rows
    };
    table.iter().find(fits).copied()
}

/// A workgroup that holds whole groups where channels are last: `columns` chunks beside each other, which hold `groups` groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub(super) team: Team,
    columns: u64,
    pub(super) groups: u64,
    /// Tiles of a sample.
    pub(super) blocks: u64,
}

impl Tile {
    pub(super) fn held(&self) -> Held {
        let Team { workgroup, chunks, .. } = self.team;
        Held::Columns { workgroup, columns: word(self.columns), chunks }
    }

    /// The tile that `find` has for chunks of 16 bytes, or for those of 8 where they hold fewer groups beside each other and all tiles find a
    /// place at once, and the segments in such chunks.
    pub(super) fn best(segments: &Segments, find: impl Fn(&Segments) -> Option<Self>) -> Option<(Segments, Self)> {
        let wide = find(segments);
        let narrow = segments.narrow().and_then(|narrow| find(&narrow).map(|tile| (narrow, tile)));
        let is_better = |(_, tile): &(Segments, Self)| {
            wide.is_none_or(|wide| tile.groups < wide.groups) && segments.batch * tile.blocks <= MULTIPROCESSORS
        };
        narrow.filter(is_better).or_else(|| wide.map(|tile| (segments.clone(), tile)))
    }

    pub(super) fn new(segments: &Segments, props: &Props) -> Option<Self> {
        Self::of_table(if segments.is_narrow() { TILES_NARROW } else { TILES }, segments, props)
    }

    /// For the gradients where tensors are small.
    pub(super) fn of_gradients(segments: &Segments, props: &Props) -> Option<Self> {
        let is_few = segments.all_chunks() <= FEW_CHUNKS
            && segments.batch * segments.spatial.div_ceil(u64::from(SUM_LANES)) <= MOST_SUM_ROWS;
        if !is_few {
            return None;
        }
        let memory = 8 * segments.elements * u64::from(sum_columns(segments) * SUM_LANES);
        let table = if segments.is_narrow() { TILES_NARROW_OF_SEVERAL } else { TILES_OF_SEVERAL };
        Self::of_table(table, segments, props).filter(|tile| memory + tile.team.reduce_bytes() <= WORKGROUP_BYTES)
    }

    fn of_table(table: &[(u32, u32)], segments: &Segments, props: &Props) -> Option<Self> {
        if segments.order == ChannelOrder::Contiguous || segments.groups_are_channels || segments.is_empty() {
            return None;
        }
        let (own, elements) = (segments.group_channels, segments.elements);
        let is_whole =
            |groups: &u64| (groups * own).is_multiple_of(elements) && groups * own / elements >= FEWEST_TILE_COLUMNS;
        let groups = (1..=MOST_TILE_GROUPS).find(is_whole)?;
        let columns = groups * own / elements;
        if columns > MOST_TILE_COLUMNS {
            return None;
        }
        let (threads, rows) = first_workgroup(table, columns, segments.spatial, props)?;
        let blocks = segments.groups.div_ceil(groups);
        Some(Self { team: team((threads, rows, Keep::Words), props), columns, groups, blocks })
    }

    pub(super) fn constants(self) -> Vec<(&'static str, u32)> {
        let mut constants = self.team.constants();
        constants.extend([("COLUMNS", word(self.columns)), ("TILE_GROUPS", word(self.groups))]);
        constants
    }
}

/// A workgroup that holds the fewest whole channels of all samples that chunks divide: `columns` chunks of each sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct GaplessTile {
    workgroup: u32,
    chunks: u32,
    pub(super) columns: u64,
    pub(super) channels: u64,
}

impl GaplessTile {
    pub(super) fn held(&self) -> Held {
        let Self { workgroup, columns, chunks, .. } = *self;
        Held::Gapless { workgroup, columns: word(columns), chunks }
    }

    pub(super) fn new(segments: &Segments, tensors: usize, props: &Props) -> Option<Self> {
        let is_short = segments.segment_chunks() <= MOST_SHARED_CHUNKS;
        if !segments.is_gapless || !segments.groups_are_channels || !is_short || segments.batch == 0 {
            return None;
        }
        let elements = segments.elements;
        // A power of two: the most of it that divides a segment.
        let common = elements.min(1 << segments.spatial.trailing_zeros());
        let (channels, columns) = (elements / common, segments.spatial / common);
        let table = if tensors > 1 { GAPLESS_OF_SEVERAL } else { GAPLESS };
        let (workgroup, chunks) = first_workgroup(table, columns, segments.batch, props)?;
        Some(Self { workgroup, chunks, columns, channels })
    }

    pub(super) fn constants(self) -> Vec<(&'static str, u32)> {
        vec![("WORKGROUP", self.workgroup), ("CHUNKS", self.chunks)]
    }
}

/// Teams that merge the parts of the groups that they need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mergers {
    pub(super) team: Team,
    held_parts: u64,
}

impl Mergers {
    pub(super) fn constant(self) -> (&'static str, u32) {
        ("HELD_PARTS", word(self.held_parts))
    }
}

/// How segments are spread over workgroups.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Slices(Team),
    Columns(Columns),
}

impl Form {
    pub(super) fn new(segments: &Segments, spread: Spread, tensors: usize, props: &Props) -> Self {
        match segments.order {
            ChannelOrder::Contiguous => Self::Slices(slice_team(segments, tensors, props)),
            ChannelOrder::ChannelsLast => Self::Columns(Columns::new(segments, spread, props)),
        }
    }

    /// For the moments.
    pub(super) fn of_moments(segments: &Segments, spread: Spread, props: &Props) -> Self {
        let is_long = segments.segment_chunks() > 32 * u64::from(CHUNKS_OF_MANY[CHUNKS_OF_MANY.len() - 1]);
        let is_many = segments.segment_count() >= MANY_SEGMENTS && segments.order == ChannelOrder::Contiguous;
        if segments.is_half() && is_many && is_long {
            return Self::Slices(team(MOMENTS_OF_MANY_HALF, props));
        }
        Self::new(segments, spread, 1, props)
    }

    /// The same where segments are few and their elements go through an activation.
    pub(super) fn of_activation(self, activation: Activation, props: &Props) -> Self {
        match self {
            Self::Slices(slices) if slices.threads >= 128 && slices.chunks == 4 && !is_short(activation) => {
                Self::Slices(team(SLICE_OF_ACTIVATION, props))
            }
            _ => self,
        }
    }

    /// Parts of a segment.
    pub(super) fn slices(self, segments: &Segments) -> u64 {
        match self {
            Self::Slices(team) => segments.segment_chunks().div_ceil(team.slice_chunks()).max(1),
            Self::Columns(columns) => segments.spatial.div_ceil(columns.rows).max(1),
        }
    }

    /// What a dispatch over all segments says of it.
    pub(super) fn share(self, segments: &Segments) -> Share {
        let slices = word(self.slices(segments));
        match self {
            Self::Slices(_) => Share { slices, ..Share::WHOLE },
            Self::Columns(Columns { rows, blocks, .. }) => {
                Share { slices, column_blocks: word(blocks), slice_rows: word(rows), ..Share::WHOLE }
            }
        }
    }

    /// This form, or that of the activation, and the teams that merge the parts of groups, if it is worth while that every workgroup merges
    /// those of its groups.
    pub(super) fn merging(
        self,
        segments: &Segments,
        group_parts: u64,
        activation: Activation,
        props: &Props,
    ) -> Option<(Self, Mergers)> {
        let with_mergers = |form: Self| Some((form, form.mergers(segments, group_parts, props)?));
        with_mergers(self.of_activation(activation, props)).or_else(|| with_mergers(self))
    }

    fn mergers(self, segments: &Segments, group_parts: u64, props: &Props) -> Option<Mergers> {
        if self.group_count(segments) > FEW_WORKGROUPS {
            return None;
        }
        let team = match self {
            Self::Slices(team) => Some(team).filter(|_| group_parts <= FEW_PARTS),
            Self::Columns(columns) => columns.merge_team(segments, props),
        }?;
        let held_parts = group_parts.div_ceil(team.members());
        (held_parts <= MOST_HELD_PARTS).then_some(Mergers { team, held_parts })
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
