//! The WGSL forms of the family, and what they share.
//!
//! A form is a sequence of dispatches and a kernel of its own name, `batch_norm_resident`; backward `batch_norm_backward_resident`:
//!
//! | form | where a group lies between reading and writing | dispatches |
//! |---|---|---|
//! | `gapless_resident` | registers of a workgroup with a few whole channels of all samples, which share chunks | 1 |
//! | `persistent` | registers of a workgroup that takes groups one after the other and reads the next one ahead | 1 |
//! | `resident` | registers of a team of threads | 1 |
//! | `channels_last_tile` | registers of a workgroup, channels last | 1 |
//! | `split_fused`, `channels_last_split_fused` | nowhere: what it is made from is read twice. Parts of groups are reduced, then the dispatch that writes merges them | 2 |
//! | `split_merge`, `channels_last_split_merge` | nowhere; a dispatch of its own merges the parts | up to 4 |
//! | `apply`, `channels_last_apply` | inference: no statistics are taken | 1 |
//!
//! [`WgslForm::ALL`] is the order in which they are tried, and the first that accepts runs. A form that is one of several to choose from also
//! refuses what a later one does faster; pinned by its name it refuses only what it cannot do. `team` has both kinds of limits.

mod backward;
mod forward;
mod segments;
mod team;
#[cfg(test)]
mod tests;
mod variants;

use super::ChannelOrder;
use crate::backend::wgpu::team::Team;
use crate::backend::wgpu::{Binder, Binding, Props, ShaderType, StepBuilder, Work, check_bindings, most_bytes};
use crate::backend::{Backend, DeviceProps};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, Build, Choice, Kernel};
use crate::narrow::word;
use crate::ops::valid::{Described, Fields, Valid};
use crate::options::PlanOptions;
use crate::plan::form_name;
use crate::slots::Slots;

use segments::Segments;
use team::Tile;
pub(in super::super) use variants::add_variants;

/// A form of either pass. Ops list those that can serve them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WgslForm {
    GaplessResident,
    /// Forward alone.
    Persistent,
    Resident,
    ChannelsLastTile,
    SplitFused,
    ChannelsLastSplitFused,
    SplitMerge,
    ChannelsLastSplitMerge,
    /// Forward alone.
    Apply,
    /// Forward alone.
    ChannelsLastApply,
}

impl WgslForm {
    /// Every form, in the order in which they are tried.
    const ALL: [Self; 10] = [
        Self::GaplessResident,
        Self::Persistent,
        Self::Resident,
        Self::ChannelsLastTile,
        Self::SplitFused,
        Self::ChannelsLastSplitFused,
        Self::SplitMerge,
        Self::ChannelsLastSplitMerge,
        Self::Apply,
        Self::ChannelsLastApply,
    ];

    /// Refuses tensors whose channels or positions lie in another order.
    fn check_order(self, order: ChannelOrder) -> Result<(), Reason> {
        let is_last = matches!(
            self,
            Self::ChannelsLastTile
                | Self::ChannelsLastSplitFused
                | Self::ChannelsLastSplitMerge
                | Self::ChannelsLastApply
        );
        let lies_last = order == ChannelOrder::ChannelsLast;
        Reason::unless(!is_last || lies_last, || "its channels are last, here the spatial extents are contiguous")?;
        Reason::unless(is_last || !lies_last, || "its spatial extents are contiguous, here channels are last")
    }
}

/// One of the two passes: how its forms serve a descriptor.
pub(super) trait Pass: Fields {
    /// # Errors
    /// Why the form does not.
    fn accept(form: WgslForm, norm: &Valid<Self>, props: &Props, ask: Ask) -> Accepted<'static>;
}

impl<D: Described<Fields: Pass>> Kernel<D> for WgslForm {
    fn name(&self) -> &'static str {
        match self {
            Self::GaplessResident => form_name!(D, "gapless_resident"),
            Self::Persistent => form_name!(D, "persistent"),
            Self::Resident => form_name!(D, "resident"),
            Self::ChannelsLastTile => form_name!(D, "channels_last_tile"),
            Self::SplitFused => form_name!(D, "split_fused"),
            Self::ChannelsLastSplitFused => form_name!(D, "channels_last_split_fused"),
            Self::SplitMerge => form_name!(D, "split_merge"),
            Self::ChannelsLastSplitMerge => form_name!(D, "channels_last_split_merge"),
            Self::Apply => form_name!(D, "apply"),
            Self::ChannelsLastApply => form_name!(D, "channels_last_apply"),
        }
    }

    fn backend(&self) -> Backend {
        Backend::Wgpu
    }

    fn accept<'d>(&self, descriptor: &'d D, _: &PlanOptions, props: &DeviceProps, ask: Ask) -> Accepted<'d> {
        D::Fields::accept(*self, descriptor.valid(), Props::of(props)?, ask)
    }
}

/// A descriptor as the forms of its pass take it.
struct Task<'d, F: Fields> {
    norm: &'d Valid<F>,
    props: &'d Props,
    ask: Ask,
    segments: Segments,
    operands: Operands<'d>,
    parts: Parts,
}

/// The results that the dispatches of a split form hand on; the ranges of other forms are empty.
#[derive(Clone, Copy)]
struct Parts {
    /// Slices of a segment that have results; 0 if there are no elements.
    slices: u64,
    of_slices: Quads,
    of_groups: Quads,
    bytes: u64,
}

impl Parts {
    /// What a pass calls its results of slices and of groups.
    const fn of(slices: u64, [of_slices, of_groups]: [&'static str; 2]) -> Self {
        Self { slices, of_slices: Quads::none(of_slices), of_groups: Quads::none(of_groups), bytes: 0 }
    }
}

impl<'d, F: Fields> Task<'d, F> {
    fn new(norm: &'d Valid<F>, segments: Segments, parts: Parts, props: &'d Props, ask: Ask) -> Self {
        let operands = Operands::new(&norm.slots, &segments);
        Self { norm, props, ask, segments, operands, parts }
    }

    /// Parts that the results of a group are merged from.
    fn group_parts(&self) -> u64 {
        self.segments.group_segments * self.parts.slices
    }

    /// With ranges of the workspace for so many results of slices and of groups.
    fn with_parts(mut self, [of_slices, of_groups]: [u64; 2]) -> Result<Self, Reason> {
        let parts = &mut self.parts;
        for (quads, count) in [(&mut parts.of_slices, of_slices), (&mut parts.of_groups, of_groups)] {
            *quads = Quads::after(&mut parts.bytes, quads.name, count, self.props)?;
        }
        Ok(self)
    }

    /// Of the segments for which `find` has the best tile, in whole or in narrow chunks.
    ///
    /// # Errors
    /// There is no tile.
    fn tiled(self, find: impl Fn(&Segments) -> Result<Tile, Reason>) -> Result<(Self, Tile), Reason> {
        let (segments, tile) = Tile::best(&self.segments, find)?;
        Ok((Self::new(self.norm, segments, self.parts, self.props, self.ask), tile))
    }

    /// What a form answers with its choice, dispatches and workspace.
    ///
    /// # Errors
    /// A dispatch binds more than the device does.
    fn candidate(
        &self,
        choice: impl Choice + 'static,
        steps: Vec<StepBuilder>,
        workspace_bytes: u64,
    ) -> Accepted<'static> {
        check_bindings(&steps, self.props)?;
        Ok(Work { steps, workspace_bytes, ..Work::none(choice, self.props) }.candidate())
    }
}

/// What `persistent` chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Persistent {
    workgroup_threads: u32,
    workgroups: u32,
    thread_chunks: u32,
}

/// What `resident` chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resident {
    workgroup_threads: u32,
    team_threads: u32,
    thread_chunks: u32,
}

impl Resident {
    fn of(team: Team) -> Self {
        Self { workgroup_threads: team.workgroup, team_threads: team.threads, thread_chunks: team.chunks }
    }
}

/// What `channels_last_tile` chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChannelsLastTile {
    workgroup_threads: u32,
    /// Chunks of each row in a workgroup.
    columns: u32,
    thread_rows: u32,
}

impl ChannelsLastTile {
    fn of(Tile { team, columns, .. }: Tile) -> Self {
        Self { workgroup_threads: team.workgroup, columns: word(columns), thread_rows: team.chunks }
    }
}

/// What a split form chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split {
    /// Parts that are merged to a group.
    group_parts: u32,
    /// Parts of a segment.
    slices: u32,
}

impl Split {
    fn of<F: Fields>(task: &Task<'_, F>) -> Self {
        Self { group_parts: word(task.group_parts()), slices: word(task.parts.slices) }
    }
}

/// What the params of a dispatch say of its own share of the work.
#[derive(Clone, Copy)]
struct Share {
    /// Parts of a segment.
    slices: u32,
    /// Channels last: workgroups beside each other.
    column_blocks: u32,
    /// Channels last: rows of every slice but the last.
    slice_rows: u32,
    /// Where chunks span channels: chunks of a sample that a workgroup holds.
    columns: u32,
    /// The number of the first workgroup.
    first_workgroup: u32,
}

impl Share {
    /// Whole segments, from the first workgroup on.
    const WHOLE: Self = Self { slices: 1, column_blocks: 1, slice_rows: 0, columns: 0, first_workgroup: 0 };
}

/// Accessors of the operands of one op, present or absent.
struct Operands<'s> {
    binder: Binder<'s>,
    dtype: ShaderType,
    is_narrow: bool,
}

impl<'s> Operands<'s> {
    fn new(slots: &'s Slots, segments: &Segments) -> Self {
        Self { binder: Binder { slots }, dtype: segments.dtype, is_narrow: segments.is_narrow() }
    }

    /// Whether a parameter is of 16 bits. Its type is x's, or f32.
    fn is_half(&self, index: usize) -> bool {
        self.binder.slots.at(index).is_some_and(|slot| matches!(slot.desc.dtype(), DType::F16 | DType::BF16))
    }

    /// A tensor that is read in chunks.
    fn input(&self, index: usize) -> Binding {
        let accessors = if self.is_narrow { ["pairs_in", "halves_in"] } else { self.dtype.chunks_in() };
        self.binder.operand(index, accessors, "absent_in")
    }

    /// A tensor that is written in chunks.
    fn output(&self, index: usize) -> Binding {
        let accessors = if self.is_narrow { ["pairs_out", "halves_out"] } else { self.dtype.chunks_out() };
        self.binder.operand(index, accessors, "absent_out")
    }

    /// A parameter that is read by channel.
    fn parameter(&self, index: usize) -> Binding {
        let accessor = if self.is_half(index) { "elements_half_in" } else { "elements_f32_in" };
        self.binder.operand(index, [accessor; 2], "absent_elements")
    }

    /// A parameter that is read by neighbouring channels.
    fn parameter_quads(&self, index: usize) -> Binding {
        let accessors = match (self.is_half(index), self.is_narrow) {
            (false, _) => ["quads_f32_in", "values_f32_in"],
            (true, true) => ["quads_of_pairs_in", "values_half_in"],
            (true, false) => ["quads_half_in", "values_half_in"],
        };
        self.binder.operand(index, accessors, "absent_quads")
    }

    /// A parameter's gradient.
    fn gradient(&self, index: usize) -> Binding {
        let accessor = if self.is_half(index) { "elements_half_out" } else { "elements_f32_out" };
        self.binder.operand(index, [accessor; 2], "absent_elements")
    }

    /// Any operand, with an accessor if the dispatch uses it.
    fn other(&self, index: usize, accessor: Option<&'static str>, absent: &'static str) -> Binding {
        let unused = self.binder.absent(index, absent);
        accessor.map_or(unused, |accessor| self.binder.operand(index, [accessor; 2], absent))
    }
}

/// A range of the workspace that holds quads.
#[derive(Clone, Copy)]
struct Quads {
    name: &'static str,
    offset: u64,
    bytes: u64,
}

impl Quads {
    /// An empty range of quads.
    const fn none(name: &'static str) -> Self {
        Self { name, offset: 0, bytes: 0 }
    }

    /// A range of `count` quads that begins after the first `bytes` bytes, to which its own bytes are added.
    fn after(bytes: &mut u64, name: &'static str, count: u64, props: &Props) -> Result<Self, Reason> {
        let offset = bytes.next_multiple_of(props.workspace_align());
        let limit = most_bytes(props);
        let size = count.checked_mul(16).filter(|size| *size <= limit);
        let size = size.ok_or_else(|| {
            format!("it needs {count} times 16 bytes of workspace, this device binds at most {limit}")
        })?;
        if size > 0 {
            *bytes = offset + size;
        }
        Ok(Self { name, offset, bytes: size })
    }

    /// The binding of a dispatch; absent if it has no accessor for the quads.
    fn binding(self, accessor: Option<&'static str>) -> Binding {
        let absent = Binding::absent(self.name, "absent_partials");
        accessor.map_or(absent, |accessor| Binding::partials(self.name, self.offset, self.bytes, accessor))
    }
}

/// The dispatches of a form.
fn steps_of<F: Pass>(form: WgslForm, norm: &Valid<F>, props: &Props, ask: Ask) -> Result<Vec<StepBuilder>, Reason> {
    match F::accept(form, norm, props, ask)?.build {
        Build::Dispatches(steps) => Ok(steps),
        Build::With(_) => Ok(Vec::new()),
    }
}
