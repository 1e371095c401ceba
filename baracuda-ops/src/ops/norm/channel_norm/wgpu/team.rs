//! How groups, segments and columns of channels are spread over threads, and the numbers that decide it.
//!
//! A chunk is 16 bytes of one tensor, or 8 bytes of 16-bit elements where it is called narrow. A team is the threads that add up one group
//! or one slice of a segment; a workgroup has one team or several.
//!
//! The numbers are those that were fastest, of those that were timed, on an H200 through Vulkan; docs/rejected.md has some that were slower.

use super::super::ChannelOrder;
use super::{Segments, Share};
use crate::backend::wgpu::team::{Keep, SHARED_WORKGROUP, Team, TeamNumbers, Teams, first_that_holds, teams};
use crate::backend::wgpu::{LEAST_WORKGROUP_BYTES, Props, groups};
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::word;
use crate::ops::activation::Activation;

/// SMs of an H200: fewer workgroups than this leave some of them idle.
pub(super) const MULTIPROCESSORS: u64 = 132;

/// Teams for a slice of a contiguous segment: the first that holds a whole segment, else the last, of which a
/// segment takes several. A thread holds chunks of one tensor.
const SLICES: &Teams = &teams![Values: 8 x 1, 16 x 1, 32 x 1, 64 x 1, 128 x 1, 128 x 2, 128 x 4, 256 x 4];
/// As `SLICES`, for threads that hold chunks of several tensors.
const SLICES_OF_SEVERAL: &Teams = &teams![Words: 8 x 1, 16 x 1, 32 x 1, 64 x 1, 128 x 1, 128 x 2, 128 x 4];
/// From this many segments on, teams of 32 threads keep a large GPU busy: they add up without a barrier, and each thread has more loads in
/// flight than one of a larger team.
const MANY_SEGMENTS: u64 = 4096;
/// Chunks of a thread of a team of 32 threads, if there are at least `MANY_SEGMENTS` segments: the first that holds a segment of more than 32 chunks.
const CHUNKS_OF_MANY: &[u32] = &[2, 4];
/// The team for the moments of at least `MANY_SEGMENTS` segments of 16-bit elements that teams of 32 threads with `CHUNKS_OF_MANY` do not hold.
const MOMENTS_OF_MANY_HALF: TeamNumbers = TeamNumbers { threads: 64, chunks: 7, keep: Keep::Words };
/// The team that takes the place of 128 or more threads of 4 chunks, if segments are few and an activation takes many instructions: a thread would
/// compute its 4 chunks longer than the loads of others hide.
const SLICE_OF_ACTIVATION: TeamNumbers = TeamNumbers { threads: 256, chunks: 2, keep: Keep::Words };

/// Teams that hold a group of 32-bit elements, the first that suffices.
const RESIDENT: &Teams = &teams![
    Values: 8 x 1, 16 x 1, 32 x 1, 32 x 2, 32 x 4, 32 x 8, 128 x 4, 256 x 4, 512 x 4, 1024 x 3, 1024 x 4, 1024 x 5, 512 x 8
];
/// As `RESIDENT`, for 16-bit elements. Drivers keep more than 4 chunks of 8 values in memory instead of registers, so that longer groups
/// are faster in slices.
const RESIDENT_HALF: &Teams = &teams![
    Values: 8 x 1, 16 x 1, 32 x 1, 32 x 2, 32 x 4, 64 x 4, 128 x 4, 256 x 4;
    Words: 512 x 4, 1024 x 3
];
/// Threads above which an SM has no room for a second workgroup. Where groups are more than SMs, smaller workgroups
/// are faster: one loads while the other stores.
const MOST_THREADS_OF_TWO: u32 = 512;
/// Groups below which groups of at least `LONG_GROUP_CHUNKS` are faster in slices: a workgroup for each group would leave most SMs idle.
const FEW_GROUPS: u64 = 48;
/// Chunks from which on a group is faster in slices if there are fewer than `FEW_GROUPS` groups.
const LONG_GROUP_CHUNKS: u64 = 2048;

/// Teams of persistent workgroups, one on each SM, which take groups one after the other. The kernel handles up to 5 chunks of a
/// thread. The first holds up to 1280 chunks, and groups so short come only if the form is asked for by name; devices whose workgroups have at most 256
/// threads have no other team.
const PERSISTENT: &Teams = &teams![Words: 256 x 5, 1024 x 2, 832 x 4, 1024 x 4, 1024 x 5];
/// As `PERSISTENT`, if every group has a workgroup of its own: a thread of 5 chunks then waits for no group before. The first is there for the reason that
/// it is in `PERSISTENT`.
const PERSISTENT_ALONE: &Teams = &teams![Words: 256 x 5, 1024 x 5];
/// Chunks of a group from which on persistent workgroups are faster than a workgroup for each group, if a workgroup takes several groups.
const FEWEST_PERSISTENT_CHUNKS: u64 = 2048;
/// As `FEWEST_PERSISTENT_CHUNKS`, if a workgroup takes one group: more chunks than the largest team of `RESIDENT_HALF` holds.
const FEWEST_PERSISTENT_ALONE_CHUNKS: u64 = 1024 * 3 + 1;
/// Most chunks of a group for which persistent workgroups are faster, if a workgroup takes several groups: a thread of 5 chunks has no
/// registers to read the next group ahead.
const MOST_PERSISTENT_CHUNKS: u64 = 4096;
/// Groups from which on persistent workgroups are faster, if a workgroup takes several: with fewer groups the last round keeps too few
/// workgroups busy.
const FEWEST_PERSISTENT_GROUPS: u64 = 2 * MULTIPROCESSORS;

/// Teams that hold a group for its gradients, the first that suffices; a thread holds as many chunks of dy and of x.
const RESIDENT_BACKWARD: &Teams =
    &teams![Words: 8 x 1, 16 x 1, 32 x 1, 64 x 1, 128 x 1, 256 x 1, 512 x 1, 512 x 2, 1024 x 2, 1024 x 3];
/// Chunks of dy up to which the forms `resident` and `channels_last_tile` are chosen backward: for the gradients of the parameters they read
/// dy and x a second time, except `resident` where groups are channels. Asked for by name they take more.
const FEW_CHUNKS: u64 = 1 << 18;
/// In the resident backward dispatch: most chunks of a channel for each thread that adds up the gradients of its parameters.
const MOST_CHANNEL_CHUNKS: u64 = 16;
/// In the resident backward dispatch: most chunks of a thread if elements go through an activation that takes many instructions.
const MOST_CHUNKS_OF_ACTIVATION: u32 = 2;

/// A workgroup that holds rows of chunks, and how many of them each thread holds.
#[derive(Clone, Copy)]
struct Holding {
    threads: u32,
    thread_rows: u32,
}

const fn holding(threads: u32, thread_rows: u32) -> Holding {
    Holding { threads, thread_rows }
}

/// Workgroups that hold channels of all samples which share chunks, the first that suffices; a row is a sample. Up to 1016 threads have room for their sums,
/// of 16 bytes each, beside those of eight channels in `LEAST_WORKGROUP_BYTES`. A thread holds chunks of one tensor and has registers for
/// 7 of them, so that 512 threads are enough.
const GAPLESS: &[Holding] = &[holding(128, 4), holding(256, 4), holding(512, 4), holding(512, 7)];
/// As `GAPLESS`, for dy and x: threads that hold chunks of two tensors have registers for fewer of each.
const GAPLESS_OF_SEVERAL: &[Holding] = &[holding(128, 4), holding(256, 4), holding(512, 4), holding(896, 4)];
/// Most chunks of one sample's part of a channel, in the form `gapless_resident`: one thread adds up their sums one after the other, which makes most of the
/// longest chain of additions.
const MOST_SHARED_CHUNKS: u64 = 30;

/// Workgroups that hold whole groups where channels are last, the first that suffices; a row is one spatial element.
const TILES: &[Holding] = &[holding(128, 4), holding(256, 4), holding(512, 4)];
/// As `TILES`, for dy and x.
const TILES_OF_SEVERAL: &[Holding] = &[holding(128, 3), holding(256, 3), holding(512, 3)];
/// As `TILES`, in narrow chunks.
const TILES_NARROW: &[Holding] = &[holding(128, 4), holding(256, 4), holding(512, 4), holding(512, 11)];
/// As `TILES_OF_SEVERAL`, in narrow chunks.
const TILES_NARROW_OF_SEVERAL: &[Holding] = &[holding(256, 3), holding(512, 3), holding(512, 11)];
/// Most groups of a workgroup that holds whole groups where channels are last: each takes sums of its own over all threads.
const MOST_TILE_GROUPS: u64 = 4;
/// Fewest chunks of one row in a workgroup that holds whole groups where channels are last: four narrow ones are a sector of 32 bytes, four of 16 bytes are
/// two.
const FEWEST_TILE_COLUMNS: u64 = 4;
/// Most chunks of one row in a workgroup that holds whole groups where channels are last; more were not timed.
const MOST_TILE_COLUMNS: u64 = 32;
/// Threads below each other that add up the gradients of parameters, in the workgroups of the dispatch that holds whole groups. Their sums take up to half of
/// `LEAST_WORKGROUP_BYTES`.
pub(super) const SUM_LANES: u32 = 64;
/// Most rows that each of `SUM_LANES` threads adds up for the gradients of parameters: a chain of so many additions, which 6 across the threads follow.
const MOST_SUM_ROWS: u64 = 32;

/// Contiguous: parts of a group up to which every workgroup that writes merges the parts of its groups itself, faster than a dispatch that
/// merges parts once. Channels last, `MOST_HELD_PARTS` alone limits the parts.
const FEW_PARTS: u64 = 64;
/// Workgroups of the dispatch that writes up to which each of them merges the parts of its groups itself.
const FEW_WORKGROUPS: u64 = 2048;
/// Most parts that a thread of a merging workgroup holds in registers.
const MOST_HELD_PARTS: u64 = 8;
/// Fewest threads of a team that merges the parts of a group.
const FEWEST_MERGERS: u64 = 8;
/// Most threads that merge the parts of one group in the dispatch that merges parts.
const MOST_MERGERS: u32 = 1024;
/// Parts of a channel up to which one thread adds them up.
pub(super) const FEW_CHANNEL_PARTS: u64 = 4;

/// Threads of a workgroup where channels are last and workgroups few.
const COLUMNS_WORKGROUP: u32 = 256;
/// Rows that a thread loads before it uses the first, where channels are last.
const ROWS_AHEAD: u32 = 4;
/// Most chunks of a row in a workgroup if channels are last: one for each thread of a subgroup of 32.
const MOST_COLUMNS: u64 = 32;
/// Fewest chunks of a row in a workgroup if channels are last and a row has as many: of 16 bytes they are a cache line of 128 bytes.
const FEWEST_COLUMNS: u64 = 8;
/// Rows of a thread with which workgroups are counted. If wide workgroups are at least as many as SMs, `slice_rows` says how many rows a thread
/// takes; else workgroups are narrower, and their threads take so many rows, or fewer if workgroups would still be fewer than SMs.
const MANY_ROWS: u64 = 16;
/// Fewest rows of a thread, if workgroups would otherwise be fewer than SMs.
const FEWEST_ROWS: u64 = 4;
/// Fewest rows of a thread if workgroups are many.
const FEWEST_ROWS_OF_MANY: u64 = 8;
/// The time that a workgroup takes to start, in rows of a thread.
const ROWS_OF_START: u64 = 6;
/// Most slices of a sample: each leaves parts of its groups, which at most `MOST_MERGERS` threads merge.
const MOST_SLICES: u64 = 1024;

/// Chunks of a row in the workgroups that add up the gradients of parameters, 32 bytes: times `SUM_LANES` they are no more threads than the
/// smallest workgroup of `TILES_OF_SEVERAL` and `TILES_NARROW_OF_SEVERAL` has.
pub(super) fn sum_columns(segments: &Segments) -> u32 {
    if segments.is_narrow() { 4 } else { 2 }
}

/// Whether an activation takes few instructions here: identity and ReLU do. SiLU, which is short in the CUDA kernels, takes an exponential.
fn is_short(activation: Activation) -> bool {
    matches!(activation, Activation::Identity | Activation::Relu)
}

fn team(numbers: TeamNumbers, props: &Props) -> Team {
    Team::new(numbers, numbers.threads.max(SHARED_WORKGROUP.min(props.max_threads)), props)
}

/// The team of a slice of a segment; a thread holds chunks of `tensors` tensors.
fn slice_team(segments: &Segments, tensors: usize, props: &Props) -> Team {
    let chunks = segments.segment_chunks();
    let table = if tensors > 1 { SLICES_OF_SEVERAL } else { SLICES };
    let largest = table[table.len() - 1];
    if segments.segment_count() >= MANY_SEGMENTS
        && let Some(&each) = CHUNKS_OF_MANY.iter().find(|&&each| chunks > 32 && chunks <= 32 * u64::from(each))
    {
        return team(TeamNumbers { threads: 32, chunks: each, ..largest }, props);
    }
    team(first_that_holds(table, chunks, props.max_threads).unwrap_or(largest), props)
}

/// The refusal that no team of a table holds a group of `chunks` chunks.
fn too_long(chunks: u64, props: &Props) -> Reason {
    format!("no workgroup of at most {} threads holds the {chunks} chunks of a group in registers", props.max_threads)
        .into()
}

/// The team that holds a contiguous group.
///
/// # Errors
/// None does, or, if the form is chosen, slices are faster.
pub(super) fn resident_team(segments: &Segments, props: &Props, ask: Ask) -> Result<Team, Reason> {
    let (chunks, groups) = (segments.group_chunks(), segments.group_count);
    if ask == Ask::Chosen && groups < FEW_GROUPS && chunks >= LONG_GROUP_CHUNKS {
        return Err(format!("{groups} groups of {chunks} chunks keep more multiprocessors busy in slices").into());
    }
    let table = if segments.is_half() { RESIDENT_HALF } else { RESIDENT };
    let of_two = props.max_threads.min(MOST_THREADS_OF_TWO);
    let most_threads = if groups <= MULTIPROCESSORS { props.max_threads } else { of_two };
    let first = |most_threads| first_that_holds(table, chunks, most_threads);
    let found = first(most_threads).or_else(|| first(props.max_threads).filter(|_| ask == Ask::Pinned));
    found.map(|numbers| team(numbers, props)).ok_or_else(|| too_long(chunks, props))
}

/// Workgroups that take groups one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct PersistentTeam {
    pub(super) team: Team,
    pub(super) workgroups: u32,
}

impl PersistentTeam {
    /// # Errors
    /// No team holds a group, or, if the form is chosen, another is faster.
    pub(super) fn new(segments: &Segments, props: &Props, ask: Ask) -> Result<Self, Reason> {
        let (chunks, groups) = (segments.group_chunks(), segments.group_count);
        let is_alone = groups <= MULTIPROCESSORS;
        let fewest = if is_alone { FEWEST_PERSISTENT_ALONE_CHUNKS } else { FEWEST_PERSISTENT_CHUNKS };
        let is_apt = segments.is_half()
            && chunks >= fewest
            && (is_alone || (groups >= FEWEST_PERSISTENT_GROUPS && chunks <= MOST_PERSISTENT_CHUNKS))
            && (groups >= FEW_GROUPS || chunks < LONG_GROUP_CHUNKS);
        ask.leave_if(!is_apt, "it is faster for long groups of 16-bit elements that fill all multiprocessors evenly")?;
        let table = if is_alone { PERSISTENT_ALONE } else { PERSISTENT };
        let numbers = first_that_holds(table, chunks, props.max_threads).ok_or_else(|| too_long(chunks, props))?;
        Ok(Self {
            team: team(numbers, props),
            workgroups: word(groups.min(MULTIPROCESSORS.min(props.max_groups.into()))),
        })
    }
}

/// The team that holds a contiguous group for its gradients.
///
/// # Errors
/// None does, or, if the form is chosen, slices are faster.
pub(super) fn resident_backward_team(
    segments: &Segments,
    activation: Activation,
    props: &Props,
    ask: Ask,
) -> Result<Team, Reason> {
    let chunks = segments.group_chunks();
    Reason::unless(ask == Ask::Pinned || chunks * segments.group_count <= FEW_CHUNKS, || {
        format!("more than {FEW_CHUNKS} chunks are faster in slices, which read dy and x once for all")
    })?;
    let found = first_that_holds(RESIDENT_BACKWARD, chunks, props.max_threads);
    let found = found.map(|numbers| team(numbers, props)).ok_or_else(|| too_long(chunks, props))?;
    let is_quick = found.chunks <= MOST_CHUNKS_OF_ACTIVATION || is_short(activation);
    let has_short_channels = segments.batch * segments.segment_chunks() <= MOST_CHANNEL_CHUNKS * found.members();
    if ask == Ask::Chosen && !(is_quick && (segments.groups_are_channels || has_short_channels)) {
        return Err("threads would have too much to compute each; slices are faster".into());
    }
    Ok(found)
}

/// The team that merges `parts` parts of a group.
pub(super) fn merge_team(parts: u64, props: &Props) -> Team {
    let most = MOST_MERGERS.min(props.max_threads);
    let threads = word(parts.clamp(FEWEST_MERGERS, u64::from(most)).next_power_of_two());
    team(TeamNumbers { threads: threads.min(most), chunks: 1, keep: Keep::Words }, props)
}

/// How a dispatch spreads channels that are last over a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnSpread {
    pub(super) workgroup_threads: u32,
    /// Workgroups that are counted as one wave of a large GPU: as many as it holds at once, or twice as many. The more they are, the fewer rows a slice
    /// gets.
    pub(super) wave_workgroups: u64,
    /// Most rows of a thread. In a dispatch that adds up they bound the chains of its additions.
    pub(super) most_thread_rows: u64,
}

/// A workgroup where channels are last: `columns` chunks of one row beside each other, rows of threads (lanes) below each other, and a slice
/// of each sample's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    workgroup: u32,
    columns: u32,
    /// Rows of a slice, but for the last.
    slice_rows: u64,
    /// Rows of a thread where workgroups are few, so that it holds them in registers.
    pub(super) held_rows: Option<u32>,
    /// Workgroups beside each other.
    blocks: u64,
}

impl Columns {
    /// If workgroups would be fewer than SMs, they are narrower and their threads take fewer rows.
    fn new(segments: &Segments, spread: ColumnSpread, props: &Props) -> Self {
        let chunks = segments.channels.div_ceil(segments.elements);
        let is_busy = |columns: Self| Spread::Columns(columns).workgroups(segments) >= MULTIPROCESSORS;
        let wide = Self::at_most(MOST_COLUMNS, chunks, spread.workgroup_threads.min(props.max_threads));
        let lanes = wide.lanes();
        if is_busy(Self { slice_rows: MANY_ROWS * lanes, ..wide }) {
            let beside = segments.batch * wide.blocks;
            return Self { slice_rows: slice_rows(segments.spatial, lanes, beside, spread), ..wide };
        }
        let narrow = Self::at_most(FEWEST_COLUMNS, chunks, COLUMNS_WORKGROUP.min(props.max_threads));
        let mut rows = MANY_ROWS;
        while rows > FEWEST_ROWS && !is_busy(Self { slice_rows: rows * narrow.lanes(), ..narrow }) {
            rows /= 2;
        }
        Self { slice_rows: rows * narrow.lanes(), held_rows: Some(word(rows)), ..narrow }
    }

    /// For rows of `chunks` chunks of channels, at most `most` beside each other: the most columns that leave fewest chunks past the last
    /// channel.
    fn at_most(most: u64, chunks: u64, workgroup: u32) -> Self {
        let padded_chunks = |columns: u64| chunks.next_multiple_of(columns);
        let mut columns = chunks.next_power_of_two().min(most);
        while columns > FEWEST_COLUMNS && padded_chunks(columns / 2) < padded_chunks(columns) {
            columns /= 2;
        }
        let blocks = chunks.div_ceil(columns).max(1);
        Self { workgroup, columns: word(columns), slice_rows: 1, held_rows: None, blocks }
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
    ///
    /// # Errors
    /// It has too few threads for them.
    fn merge_team(self, segments: &Segments, props: &Props) -> Result<Team, Reason> {
        Reason::unless(!segments.groups_are_channels, || "it merges groups of channels, here each channel is one")?;
        let groups = self.tile_groups(segments);
        let threads = u64::from(self.workgroup) / groups.next_power_of_two();
        if threads < FEWEST_MERGERS {
            let why =
                format!("a workgroup of {} threads has {threads} to merge each of {groups} groups", self.workgroup);
            return Err(format!("{why}, the limit is {FEWEST_MERGERS}").into());
        }
        let numbers = TeamNumbers { threads: word(threads), chunks: 1, keep: Keep::Words };
        Ok(Team::new(numbers, self.workgroup, props))
    }

    pub(super) fn constants(self) -> Vec<(&'static str, u32)> {
        vec![("WORKGROUP", self.workgroup), ("COLUMNS", self.columns), ("AHEAD", ROWS_AHEAD)]
    }
}

/// Rows of a slice of a sample of `spatial` rows, of which `lanes` lie below each other in a workgroup and `beside` workgroups beside it:
/// those with which the last workgroup ends soonest.
fn slice_rows(spatial: u64, lanes: u64, beside: u64, spread: ColumnSpread) -> u64 {
    let spatial = spatial.max(1);
    let fewest = spatial.div_ceil(lanes * spread.most_thread_rows);
    let most = spatial.div_ceil(lanes * FEWEST_ROWS_OF_MANY).clamp(fewest, MOST_SLICES.max(fewest));
    let (mut slices, mut best) = (fewest, (u64::MAX, lanes));
    while slices <= most {
        let thread_rows = spatial.div_ceil(slices * lanes);
        let waves = (beside * spatial.div_ceil(thread_rows * lanes)).div_ceil(spread.wave_workgroups);
        let time_in_rows = waves * (thread_rows + ROWS_OF_START);
        if time_in_rows < best.0 {
            best = (time_in_rows, thread_rows * lanes);
        }
        if thread_rows == 1 {
            break;
        }
        // The next number of slices that makes them shorter.
        slices = spatial.div_ceil((thread_rows - 1) * lanes);
    }
    best.1
}

/// The first workgroup of a table that holds `rows` rows of `columns` chunks.
fn first_workgroup(table: &[Holding], columns: u64, rows: u64, props: &Props) -> Result<Holding, Reason> {
    let fits = |held: &&Holding| {
        held.threads <= props.max_threads && u64::from(held.threads) / columns * u64::from(held.thread_rows) >= rows
    };
    table.iter().find(fits).copied().ok_or_else(|| {
        let most = props.max_threads;
        format!("no workgroup of at most {most} threads holds {rows} rows of {columns} chunks in registers").into()
    })
}

/// A workgroup that holds whole groups where channels are last: `columns` chunks beside each other, which hold `groups` groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub(super) team: Team,
    pub(super) columns: u64,
    pub(super) groups: u64,
    /// Tiles of a sample.
    pub(super) blocks: u64,
}

impl Tile {
    /// The tile that `find` has for chunks of 16 bytes, or for narrow ones where they hold fewer groups beside each other and all tiles are
    /// resident at once, and the segments in such chunks.
    ///
    /// # Errors
    /// There is neither; then why there is none for chunks of 16 bytes.
    pub(super) fn best(
        segments: &Segments,
        find: impl Fn(&Segments) -> Result<Self, Reason>,
    ) -> Result<(Segments, Self), Reason> {
        let wide = find(segments);
        let narrow = segments.narrow().and_then(|narrow| find(&narrow).ok().map(|tile| (narrow, tile)));
        let is_better = |(_, tile): &(Segments, Self)| {
            wide.as_ref().map_or(true, |wide| tile.groups < wide.groups)
                && segments.batch * tile.blocks <= MULTIPROCESSORS
        };
        match narrow.filter(is_better) {
            Some(narrow) => Ok(narrow),
            None => wide.map(|tile| (segments.clone(), tile)),
        }
    }

    /// # Errors
    /// No workgroup holds whole groups.
    pub(super) fn new(segments: &Segments, props: &Props) -> Result<Self, Reason> {
        Self::of_table(if segments.is_narrow() { TILES_NARROW } else { TILES }, segments, props)
    }

    /// For the gradients.
    ///
    /// # Errors
    /// No workgroup holds whole groups, or, if the form is chosen, slices are faster.
    pub(super) fn of_gradients(segments: &Segments, props: &Props, ask: Ask) -> Result<Self, Reason> {
        let is_few = segments.all_chunks() <= FEW_CHUNKS
            && segments.batch * segments.spatial.div_ceil(u64::from(SUM_LANES)) <= MOST_SUM_ROWS;
        ask.leave_if(!is_few, "it reads dy and x twice for the gradients of parameters; slices are faster")?;
        let table = if segments.is_narrow() { TILES_NARROW_OF_SEVERAL } else { TILES_OF_SEVERAL };
        let tile = Self::of_table(table, segments, props)?;
        let bytes = 8 * segments.elements * u64::from(sum_columns(segments) * SUM_LANES) + tile.team.reduce_bytes();
        if bytes > LEAST_WORKGROUP_BYTES {
            return Err(
                format!("it takes {bytes} bytes of workgroup memory, the limit is {LEAST_WORKGROUP_BYTES}").into()
            );
        }
        Ok(tile)
    }

    fn of_table(table: &[Holding], segments: &Segments, props: &Props) -> Result<Self, Reason> {
        let (own, elements) = (segments.group_channels, segments.elements);
        let is_whole =
            |groups: &u64| (groups * own).is_multiple_of(elements) && groups * own / elements >= FEWEST_TILE_COLUMNS;
        let groups = (1..=MOST_TILE_GROUPS).find(is_whole).ok_or_else(|| {
            format!("no {MOST_TILE_GROUPS} groups of {own} channels or fewer are {FEWEST_TILE_COLUMNS} whole chunks")
        })?;
        let columns = groups * own / elements;
        if columns > MOST_TILE_COLUMNS {
            return Err(format!("a group spans {columns} chunks, the limit is {MOST_TILE_COLUMNS}").into());
        }
        let Holding { threads, thread_rows } = first_workgroup(table, columns, segments.spatial, props)?;
        let blocks = segments.groups.div_ceil(groups);
        let numbers = TeamNumbers { threads, chunks: thread_rows, keep: Keep::Words };
        Ok(Self { team: team(numbers, props), columns, groups, blocks })
    }

    pub(super) fn constants(self) -> Vec<(&'static str, u32)> {
        let mut constants = self.team.constants();
        constants.extend([("COLUMNS", word(self.columns)), ("TILE_GROUPS", word(self.groups))]);
        constants
    }
}

/// A workgroup that holds the fewest whole channels of all samples that are whole chunks together. It is what `gapless_resident` chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GaplessResident {
    workgroup_threads: u32,
    /// Chunks of each sample in a workgroup.
    pub(super) columns: u32,
    thread_chunks: u32,
}

impl GaplessResident {
    /// A thread holds chunks of `tensors` tensors.
    ///
    /// # Errors
    /// The layouts have no such channels, or no workgroup holds them.
    pub(super) fn new(segments: &Segments, tensors: usize, props: &Props) -> Result<Self, Reason> {
        if !segments.is_gapless || !segments.groups_are_channels || segments.batch == 0 {
            return Err("channels of all samples share no chunks: segments are whole chunks, or samples are not".into());
        }
        let chunks = segments.segment_chunks();
        if chunks > MOST_SHARED_CHUNKS {
            return Err(format!("a channel of a sample has {chunks} chunks, the limit is {MOST_SHARED_CHUNKS}").into());
        }
        // A power of two: the largest that divides a segment.
        let common = segments.elements.min(1 << segments.spatial.trailing_zeros());
        let columns = segments.spatial / common;
        let table = if tensors > 1 { GAPLESS_OF_SEVERAL } else { GAPLESS };
        let Holding { threads, thread_rows } = first_workgroup(table, columns, segments.batch, props)?;
        Ok(Self { workgroup_threads: threads, columns: word(columns), thread_chunks: thread_rows })
    }

    /// The grid of workgroups that hold all channels.
    pub(super) fn grid(self, segments: &Segments, props: &Props) -> Result<[u32; 2], Reason> {
        groups(segments.channels * segments.spatial / (u64::from(self.columns) * segments.elements), props)
    }

    pub(super) fn constants(self) -> Vec<(&'static str, u32)> {
        vec![("WORKGROUP", self.workgroup_threads), ("CHUNKS", self.thread_chunks)]
    }
}

/// Teams that merge the parts of the groups that they need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mergers {
    pub(super) team: Team,
    held_parts: u64,
}

/// How the slices of segments are spread over workgroups.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spread {
    /// Contiguous: a slice of one segment for each team.
    Slices(Team),
    /// Channels last: a slice of the rows of some channels for each workgroup.
    Columns(Columns),
}

impl Spread {
    /// A thread holds chunks of `tensors` tensors.
    pub(super) fn new(segments: &Segments, columns: ColumnSpread, tensors: usize, props: &Props) -> Self {
        match segments.order {
            ChannelOrder::Contiguous => Self::Slices(slice_team(segments, tensors, props)),
            ChannelOrder::ChannelsLast => Self::Columns(Columns::new(segments, columns, props)),
        }
    }

    /// The spread for the moments.
    pub(super) fn of_moments(segments: &Segments, columns: ColumnSpread, props: &Props) -> Self {
        let is_long = segments.segment_chunks() > 32 * u64::from(CHUNKS_OF_MANY[CHUNKS_OF_MANY.len() - 1]);
        let is_many = segments.segment_count() >= MANY_SEGMENTS && segments.order == ChannelOrder::Contiguous;
        if segments.is_half() && is_many && is_long {
            return Self::Slices(team(MOMENTS_OF_MANY_HALF, props));
        }
        Self::new(segments, columns, 1, props)
    }

    /// The spread of the same work if segments are few and their elements go through an activation.
    pub(super) fn of_activation(self, activation: Activation, props: &Props) -> Self {
        match self {
            Self::Slices(slices) if slices.threads >= 128 && slices.chunks == 4 && !is_short(activation) => {
                Self::Slices(team(SLICE_OF_ACTIVATION, props))
            }
            _ => self,
        }
    }

    /// The files that a dispatch over all segments begins with, and its constants, with those of the teams by which it merges.
    pub(super) fn files_and_constants(self, mergers: Option<Mergers>) -> (Vec<&'static str>, Vec<(&'static str, u32)>) {
        let (mut files, mut constants) = match self {
            Self::Slices(team) => {
                ([&team.files()[..], &["norm/channel/channel_norm_slice"]].concat(), team.constants())
            }
            Self::Columns(columns) => (vec!["norm/channels_last/channels_last_norm"], columns.constants()),
        };
        if let Some(mergers) = mergers {
            // Each team of a slice merges for itself.
            if let Self::Columns(_) = self {
                files.extend(mergers.team.files());
                constants.extend(mergers.team.team_constants());
            }
            constants.push(("HELD_PARTS", word(mergers.held_parts)));
        }
        (files, constants)
    }

    /// Parts of a segment.
    pub(super) fn slices(self, segments: &Segments) -> u64 {
        match self {
            Self::Slices(team) => segments.segment_chunks().div_ceil(team.slice_chunks()).max(1),
            Self::Columns(columns) => segments.spatial.div_ceil(columns.slice_rows).max(1),
        }
    }

    /// What the params of a dispatch over all segments say of it.
    pub(super) fn share(self, segments: &Segments) -> Share {
        let slices = word(self.slices(segments));
        match self {
            Self::Slices(_) => Share { slices, ..Share::WHOLE },
            Self::Columns(Columns { slice_rows, blocks, .. }) => {
                Share { slices, column_blocks: word(blocks), slice_rows: word(slice_rows), ..Share::WHOLE }
            }
        }
    }

    /// The spread of a dispatch that writes, this one or that of the activation, and the teams by which each of its workgroups merges the
    /// `group_parts` parts of its groups.
    ///
    /// # Errors
    /// Threads do not hold the parts, or, if the form is chosen, the dispatch that merges parts is faster.
    pub(super) fn merging(
        self,
        segments: &Segments,
        group_parts: u64,
        activation: Activation,
        props: &Props,
        ask: Ask,
    ) -> Result<(Self, Mergers), Reason> {
        let with_mergers = |spread: Self| Ok((spread, spread.mergers(segments, group_parts, props, ask)?));
        with_mergers(self.of_activation(activation, props)).or_else(|_: Reason| with_mergers(self))
    }

    fn mergers(self, segments: &Segments, group_parts: u64, props: &Props, ask: Ask) -> Result<Mergers, Reason> {
        if ask == Ask::Chosen && self.workgroups(segments) > FEW_WORKGROUPS {
            let why = format!("more than {FEW_WORKGROUPS} workgroups would merge");
            return Err(format!("{why}; one dispatch that merges the parts is faster").into());
        }
        let team = match self {
            Self::Slices(_) if ask == Ask::Chosen && group_parts > FEW_PARTS => {
                return Err(format!("a group has {group_parts} parts; a dispatch of its own merges them faster").into());
            }
            Self::Slices(team) => team,
            Self::Columns(columns) => columns.merge_team(segments, props)?,
        };
        let held_parts = group_parts.div_ceil(team.members());
        if held_parts > MOST_HELD_PARTS {
            return Err(format!("a thread would hold {held_parts} parts, the limit is {MOST_HELD_PARTS}").into());
        }
        Ok(Mergers { team, held_parts })
    }

    /// The workgroups of a dispatch over all segments.
    pub(super) fn workgroups(self, segments: &Segments) -> u64 {
        let slices = self.slices(segments);
        match self {
            Self::Slices(team) => (segments.segment_count() * slices).div_ceil(team.rows()),
            Self::Columns(columns) => segments.batch * slices * columns.blocks,
        }
    }

    /// As [`workgroups`](Self::workgroups), in the dimensions of a grid.
    pub(super) fn grid(self, segments: &Segments, props: &Props) -> Result<[u32; 2], Reason> {
        groups(self.workgroups(segments), props)
    }
}
