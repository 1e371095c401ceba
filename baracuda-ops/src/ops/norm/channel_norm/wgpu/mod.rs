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
//! | `split_merge`, `channels_last_split_merge` | nowhere; a dispatch in between merges the parts | up to 4 |
//! | `apply`, `channels_last_apply` | inference: no statistics are taken | 1 |
//!
//! [`WgslForm::ALL`] is the order in which they are tried, and the first that accepts runs. A form that is one of several to choose from also
//! refuses what a later one does faster; pinned by its name it refuses only what it cannot do. `team` has both kinds of limits.

mod backward;
mod forward;
mod team;
mod variants;

use super::{ChannelGeometry, ChannelNorm, ChannelOrder};
use crate::backend::wgpu::team::Team;
use crate::backend::wgpu::{Binder, Binding, Props, ShaderType, StepBuilder, check_reach, most_bytes};
use crate::backend::{Backend, DeviceProps};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, Build, Kernel};
use crate::narrow::{stride, word};
use crate::ops::valid::{Described, Fields, Valid};
use crate::options::PlanOptions;
use crate::plan::form_name;
use crate::slots::Slot;
use crate::slots::Slots;

use team::{GaplessTile, PersistentTeam, Spread, Tile};
pub(in super::super) use variants::wgsl_variants;

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

    /// The order of elements that it takes.
    fn order(self) -> ChannelOrder {
        match self {
            Self::GaplessResident
            | Self::Persistent
            | Self::Resident
            | Self::SplitFused
            | Self::SplitMerge
            | Self::Apply => ChannelOrder::Contiguous,
            Self::ChannelsLastTile
            | Self::ChannelsLastSplitFused
            | Self::ChannelsLastSplitMerge
            | Self::ChannelsLastApply => ChannelOrder::ChannelsLast,
        }
    }

    /// Refuses tensors of another order.
    fn check_order(self, order: ChannelOrder) -> Result<(), Reason> {
        match self.order() {
            own if own == order => Ok(()),
            ChannelOrder::Contiguous => Err("its spatial extents are contiguous, here channels are last".into()),
            ChannelOrder::ChannelsLast => Err("its channels are last, here the spatial extents are contiguous".into()),
        }
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

/// The dispatches of a form.
fn steps_of<F: Pass>(form: WgslForm, norm: &Valid<F>, props: &Props, ask: Ask) -> Result<Vec<StepBuilder>, Reason> {
    match F::accept(form, norm, props, ask)?.build {
        Build::Dispatches(steps) => Ok(steps),
        Build::With(_) => Ok(Vec::new()),
    }
}

/// What `gapless_resident` chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GaplessResident {
    workgroup_threads: u32,
    /// Chunks of each sample in a workgroup.
    columns: u32,
    thread_chunks: u32,
}

impl GaplessResident {
    fn of(tile: GaplessTile) -> Self {
        let GaplessTile { workgroup, thread_chunks, columns, .. } = tile;
        Self { workgroup_threads: workgroup, columns: word(columns), thread_chunks }
    }
}

/// What `persistent` chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Persistent {
    workgroup_threads: u32,
    workgroups: u32,
    thread_chunks: u32,
}

impl Persistent {
    fn of(PersistentTeam { team, workgroups }: PersistentTeam) -> Self {
        Self { workgroup_threads: team.workgroup, workgroups, thread_chunks: team.chunks }
    }
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
    fn of(spread: Spread, segments: &Segments, group_parts: u64) -> Self {
        let slices = if segments.is_empty() { 0 } else { word(spread.slices(segments)) };
        Self { group_parts: word(group_parts), slices }
    }
}

/// The tensors of a call as the kernels see them.
#[derive(Clone)]
struct Segments {
    batch: u64,
    channels: u64,
    /// Elements of a segment; channels last, rows of a sample.
    spatial: u64,
    /// Whether a group is a channel of all samples.
    groups_are_channels: bool,
    /// Groups of a sample; if they are channels of all samples, the channels.
    groups: u64,
    group_channels: u64,
    group_segments: u64,
    group_count: u64,
    order: ChannelOrder,
    /// Strides of batch, channel and spatial by the operand's index.
    strides: Vec<(usize, [u64; 3])>,
    /// Elements of a chunk: of 16 bytes, or of 8 where chunks are narrow.
    elements: u64,
    /// Whether all chunks are whole and start at multiples of their size.
    can_chunk: bool,
    /// Whether segments are no whole chunks, but samples are: segments follow each other without a gap, and some chunks span two of them.
    is_gapless: bool,
    dtype: ShaderType,
}

impl Segments {
    fn new(geometry: &ChannelGeometry, dtype: ShaderType, operands: &[usize]) -> Self {
        let shape = geometry.shape;
        let groups_are_channels = shape.groups == 0;
        let group_channels = if groups_are_channels { 1 } else { shape.channels / shape.groups };
        let strides = |index| {
            let strides = geometry.strides(index);
            [strides.batch, strides.channel, strides.spatial]
        };
        let mut segments = Self {
            batch: shape.batch,
            channels: shape.channels,
            spatial: shape.spatial,
            groups_are_channels,
            groups: if groups_are_channels { shape.channels } else { shape.groups },
            group_channels: group_channels.max(1),
            group_segments: shape.group_segments(),
            group_count: shape.group_count(),
            order: geometry.order,
            strides: operands.iter().map(|&index| (index, strides(index))).collect(),
            elements: if dtype.is_half() { 8 } else { 4 },
            can_chunk: false,
            is_gapless: false,
            dtype,
        };
        segments.join_samples();
        segments.can_chunk = segments.has_whole_chunks();
        segments.is_gapless = !segments.can_chunk && segments.has_whole_samples();
        segments
    }

    /// Takes all samples for one where their rows of channels lie at one stride and share statistics.
    fn join_samples(&mut self) {
        let continues =
            |[batch, _, spatial]: [u64; 3]| self.spatial <= 1 || self.spatial.checked_mul(spatial) == Some(batch);
        if self.order == ChannelOrder::Contiguous || !self.groups_are_channels || self.batch <= 1 {
            return;
        }
        if !self.strides.iter().all(|(_, strides)| continues(*strides)) {
            return;
        }
        for (_, strides) in &mut self.strides {
            if self.spatial <= 1 {
                strides[2] = strides[0];
            }
        }
        (self.spatial, self.batch, self.group_segments) = (self.batch * self.spatial, 1, 1);
    }

    fn has_whole_chunks(&self) -> bool {
        let (run, run_axis) = match self.order {
            ChannelOrder::Contiguous => (self.spatial, 2),
            ChannelOrder::ChannelsLast => (self.channels, 1),
        };
        let extents = [self.batch, self.channels, self.spatial];
        let is_step = |axis: usize| axis != run_axis && extents[axis] > 1;
        let is_whole = |strides: &[u64; 3]| {
            (0..3).filter(|axis| is_step(*axis)).all(|axis| strides[axis].is_multiple_of(self.elements))
        };
        run.is_multiple_of(self.elements) && self.strides.iter().all(|(_, strides)| is_whole(strides))
    }

    fn has_whole_samples(&self) -> bool {
        // The strides of an absent tensor are 0.
        let is_whole = |[batch, channel, spatial]: [u64; 3]| {
            spatial == 0
                || (channel == self.spatial || self.channels == 1)
                    && (batch.is_multiple_of(self.elements) || self.batch == 1)
        };
        self.order == ChannelOrder::Contiguous
            && self.spatial >= self.elements
            && (self.channels * self.spatial).is_multiple_of(self.elements)
            && self.strides.iter().all(|(_, strides)| is_whole(*strides))
    }

    fn is_empty(&self) -> bool {
        self.batch == 0 || self.channels == 0 || self.spatial == 0
    }

    /// Elements of a group.
    fn group_elements(&self) -> u64 {
        self.group_segments * self.spatial
    }

    /// Chunks of a segment, the last perhaps cut.
    fn segment_chunks(&self) -> u64 {
        self.spatial.div_ceil(self.elements)
    }

    fn segment_count(&self) -> u64 {
        self.batch * self.channels
    }

    /// Chunks of a group.
    fn group_chunks(&self) -> u64 {
        self.group_segments * self.segment_chunks()
    }

    /// Strides of a tensor as the shader reads them; `check_reach` says why they fit.
    fn strides(&self, index: usize) -> [u32; 3] {
        let found = self.strides.iter().find(|(known, _)| *known == index);
        found.map_or([0; 3], |(_, strides)| strides.map(stride))
    }

    fn is_half(&self) -> bool {
        self.dtype.is_half()
    }

    /// These tensors in narrow chunks, of four elements; none if the elements are not of 16 bits.
    fn narrow(&self) -> Option<Self> {
        let mut narrow = Self { elements: 4, ..self.clone() };
        narrow.can_chunk = narrow.has_whole_chunks();
        narrow.is_gapless = !narrow.can_chunk && narrow.has_whole_samples();
        self.is_half().then_some(narrow)
    }

    fn is_narrow(&self) -> bool {
        self.is_half() && self.elements == 4
    }

    /// The files that say how chunks are read and written.
    fn prelude(&self) -> Vec<&'static str> {
        let mut files = self.dtype.prelude();
        if self.is_narrow() {
            files.retain(|file| *file != "common/half");
            files.push("common/half_fours");
        }
        files
    }

    /// A dispatch of a pass, of the files that all its dispatches have and of `files`, the last of which is named after its entry point.
    fn step(
        &self,
        kind: ChannelNorm,
        pass: &'static str,
        files: &[&'static str],
        params: Vec<u8>,
        grid: [u32; 2],
    ) -> StepBuilder {
        let entry = files.last().and_then(|file| file.rsplit('/').next()).unwrap_or_default();
        let shared = ["common/number", "common/activation", "common/chunk", self.kind(kind), pass];
        let files = [&self.prelude(), &shared[..], files].concat();
        StepBuilder { can_chunk: self.can_chunk, ..StepBuilder::new(entry, files, params, grid) }
    }

    /// Chunks of 16 bytes in a tensor.
    fn all_chunks(&self) -> u64 {
        let run = match self.order {
            ChannelOrder::Contiguous => self.segment_chunks() * self.channels,
            ChannelOrder::ChannelsLast => self.channels.div_ceil(self.elements) * self.spatial,
        };
        self.batch * run * self.elements / if self.is_half() { 8 } else { 4 }
    }

    /// The file that says what a group is.
    fn kind(&self, kind: ChannelNorm) -> &'static str {
        match kind {
            _ if self.groups_are_channels => "norm/channel/batch_norm",
            ChannelNorm::Batch => "norm/channel/batch_norm",
            ChannelNorm::Instance => "norm/channel/instance_norm",
            ChannelNorm::Group => "norm/channel/group_norm",
        }
    }
}

/// Refuses what no form serves. Returns the type of x.
fn check(slots: &[Slot], dense: &[usize], dtype: DType, props: &Props) -> Result<ShaderType, Reason> {
    let shader_type = ShaderType::of(dtype)?;
    check_reach(slots, dense, props)?;
    Ok(shader_type)
}

/// What the params of a dispatch say of its own share of the work.
#[derive(Clone, Copy)]
struct Share {
    /// Parts of a segment.
    slices: u32,
    /// Channels last: workgroups beside each other.
    column_blocks: u32,
    /// Channels last: rows of a slice, but for the last.
    slice_rows: u32,
    /// Where chunks span channels: chunks of a sample that a workgroup holds.
    columns: u32,
    /// The number of the first workgroup.
    first_group: u32,
}

impl Share {
    /// Whole segments, from the first workgroup on.
    const WHOLE: Self = Self { slices: 1, column_blocks: 1, slice_rows: 0, columns: 0, first_group: 0 };
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

    /// Any operand, with the accessor that is given.
    fn other(&self, index: usize, accessor: &'static str, absent: &'static str) -> Binding {
        self.binder.operand(index, [accessor; 2], absent)
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
    /// No quads.
    const fn none(name: &'static str) -> Self {
        Self { name, offset: 0, bytes: 0 }
    }

    /// `count` quads after the first `bytes` bytes, to which they are added.
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

#[cfg(test)]
mod tests {
    use super::super::forward::{RESIDUAL, X, Y};
    use std::collections::HashSet;

    use super::super::{BackwardFields, ForwardFields};
    use super::*;
    use crate::backend::wgpu::{OperandText, Place, Variants};
    use crate::ops::activation::Activation;
    use crate::ops::norm::{
        BatchNormBackwardDescriptor, BatchNormDescriptor, Gradients, GroupNormBackwardDescriptor, GroupNormDescriptor,
        InstanceNormBackwardDescriptor, InstanceNormDescriptor,
    };
    use crate::plan::Descriptor;
    use crate::tensor::TensorDesc;

    fn plain(kind: ChannelNorm, x: TensorDesc) -> Valid<ForwardFields> {
        Valid::new(kind.forward(), ForwardFields::plain(x, (kind == ChannelNorm::Group).then_some(4))).unwrap()
    }

    fn dense(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::BF16, dims).unwrap()
    }

    /// BatchNorm with every operand that the two have.
    fn whole(is_inference: bool) -> Valid<ForwardFields> {
        plain(ChannelNorm::Batch, dense(&[8, 16, 8, 8]))
            .with(|fields| {
                (fields.weight, fields.bias, fields.residual) = (Some(DType::F32), Some(DType::F32), true);
                fields.activation = Activation::Silu;
                (fields.inference, fields.stats) = (is_inference, !is_inference);
                fields.cumulative = !is_inference;
            })
            .unwrap()
    }

    /// The form that is chosen, and its dispatches.
    fn chosen<F: Pass>(norm: &Valid<F>, props: &Props) -> (WgslForm, Vec<StepBuilder>) {
        let serving = |form: &WgslForm| steps_of(*form, norm, props, Ask::Chosen).ok().map(|steps| (*form, steps));
        WgslForm::ALL.iter().find_map(serving).unwrap()
    }

    fn constant(step: &StepBuilder, name: &str) -> u32 {
        step.constants.iter().find(|known| known.0 == name).unwrap().1
    }

    #[test]
    fn a_group_stays_on_chip_while_it_fits() {
        let launches =
            |kind, dims: &[u64]| chosen(&plain(kind, dense(dims)), &Variants::device(Some((32, 32)))).1.len();
        assert_eq!(launches(ChannelNorm::Group, &[32, 32, 28, 28]), 1);
        assert_eq!(launches(ChannelNorm::Group, &[2, 40, 64, 64]), 2);
        assert_eq!(launches(ChannelNorm::Group, &[12, 40, 64, 64]), 1);
        assert_eq!(launches(ChannelNorm::Group, &[40, 40, 64, 64]), 2);
        assert_eq!(launches(ChannelNorm::Group, &[80, 32, 56, 56]), 1);
        assert_eq!(launches(ChannelNorm::Group, &[32, 32, 512, 512]), 3);
        assert_eq!(launches(ChannelNorm::Batch, &[4, 64, 8, 8]), 1);
        assert_eq!(launches(ChannelNorm::Batch, &[128, 64, 56, 56]), 3);
        assert_eq!(launches(ChannelNorm::Batch, &[4, 64, 0, 8]), 0);
    }

    #[test]
    fn gradients_stay_on_chip_where_channels_share_chunks_and_where_tensors_are_small() {
        let form = |kind, dims: &[u64], activation, props: &Props| {
            let forward = plain(kind, dense(dims)).with(|fields| fields.activation = activation).unwrap();
            chosen(&forward.backward(Gradients::ALL).unwrap(), props).0
        };
        let props = Variants::device(Some((32, 32)));
        let of = |kind, dims: &[u64]| form(kind, dims, Activation::Identity, &props);
        assert_eq!(of(ChannelNorm::Batch, &[64, 2048, 7, 7]), WgslForm::GaplessResident);
        assert_eq!(of(ChannelNorm::Group, &[2, 160, 16, 16]), WgslForm::Resident);
        assert_eq!(of(ChannelNorm::Group, &[2, 80, 32, 32]), WgslForm::Resident);
        assert_eq!(of(ChannelNorm::Group, &[2, 80, 64, 64]), WgslForm::SplitFused);
        assert_eq!(of(ChannelNorm::Group, &[256, 160, 16, 16]), WgslForm::SplitMerge);
        assert_eq!(form(ChannelNorm::Group, &[2, 80, 32, 32], Activation::Silu, &props), WgslForm::SplitFused);
        let narrow = Props { max_threads: 256, ..props.clone() };
        let of_narrow = form(ChannelNorm::Group, &[2, 160, 16, 16], Activation::Identity, &narrow);
        assert_ne!(of_narrow, WgslForm::Resident);
    }

    #[test]
    fn slices_are_short_where_few_go_through_an_activation_and_long_where_many_are_summed() {
        let props = Variants::device(Some((32, 32)));
        let spread =
            |steps: &[StepBuilder], at: usize| (constant(&steps[at], "THREADS"), constant(&steps[at], "CHUNKS"));
        for (activation, expected) in [(Activation::Identity, (128, 4)), (Activation::Silu, (256, 2))] {
            let forward = plain(ChannelNorm::Group, dense(&[2, 40, 64, 64]));
            let forward = forward.with(|fields| fields.activation = activation).unwrap();
            let (_, backward) = chosen(&forward.backward(Gradients::ALL).unwrap(), &props);
            let (_, forward) = chosen(&forward, &props);
            assert_eq!((spread(&forward, 0), spread(&forward, 1)), ((128, 4), expected));
            assert_eq!((spread(&backward, 0), spread(&backward, 1)), (expected, expected));
        }
        let (_, many) = chosen(&plain(ChannelNorm::Group, dense(&[32, 256, 56, 56])), &props);
        assert_eq!((spread(&many, 0), spread(&many, 2)), ((64, 7), (128, 4)));
    }

    #[test]
    fn channels_last_takes_fewer_dispatches_where_groups_are_small() {
        let launches = |kind, dims: &[u64]| {
            let forward = plain(kind, TensorDesc::channels_last(DType::BF16, dims).unwrap());
            let backward = forward.backward(Gradients::ALL).unwrap();
            let props = Variants::device(Some((32, 32)));
            (chosen(&forward, &props).1.len(), chosen(&backward, &props).1.len())
        };
        assert_eq!(launches(ChannelNorm::Group, &[2, 160, 16, 16]), (1, 1));
        assert_eq!(launches(ChannelNorm::Group, &[40, 160, 16, 16]), (1, 2));
        assert_eq!(launches(ChannelNorm::Group, &[2, 64, 32, 32]), (1, 1));
        assert_eq!(launches(ChannelNorm::Group, &[2, 64, 40, 40]), (2, 2));
        assert_eq!(launches(ChannelNorm::Group, &[2, 64, 256, 256]), (3, 3));
        assert_eq!(launches(ChannelNorm::Instance, &[2, 64, 16, 16]), (3, 3));
    }

    #[test]
    fn groups_that_are_long_are_held_one_after_the_other() {
        let props = Variants::device(Some((32, 32)));
        let numbers = |dims: &[u64], dtype| {
            let x = TensorDesc::contiguous(dtype, dims).unwrap();
            let (form, steps) = chosen(&plain(ChannelNorm::Group, x), &props);
            let prefetch = steps[0].flags.iter().find(|flag| flag.0 == "PREFETCH").map(|flag| flag.1);
            (form, prefetch, steps[0].grid[0], constant(&steps[0], "WORKGROUP"))
        };
        let persistent = WgslForm::Persistent;
        assert_eq!(numbers(&[80, 32, 56, 56], DType::BF16), (persistent, Some(true), 132, 832));
        assert_eq!(numbers(&[12, 40, 64, 64], DType::F16), (persistent, Some(false), 48, 1024));
        assert_ne!(numbers(&[50, 32, 56, 56], DType::BF16).0, persistent);
        assert_ne!(numbers(&[80, 32, 56, 56], DType::F32).0, persistent);
        assert_ne!(numbers(&[80, 32, 28, 28], DType::BF16).0, persistent);
    }

    #[test]
    fn chunks_are_narrow_where_a_group_fills_no_wider_ones() {
        let props = Variants::device(Some((32, 32)));
        let elements = |dims: &[u64], dtype| {
            let x = TensorDesc::channels_last(dtype, dims).unwrap();
            let dtype = ShaderType::of(dtype).unwrap();
            let segments = Segments::new(&plain(ChannelNorm::Group, x).geometry().unwrap(), dtype, &[X, Y]);
            let forward = Tile::best(&segments, |segments| Tile::new(segments, &props));
            let backward = Tile::best(&segments, |segments| Tile::of_gradients(segments, &props, Ask::Chosen));
            [forward, backward].map(|found| found.ok().map(|(segments, tile)| (segments.elements, tile.groups)))
        };
        assert_eq!(elements(&[2, 80, 32, 32], DType::BF16), [Some((4, 1)); 2]);
        assert_eq!(elements(&[2, 160, 16, 16], DType::F16), [Some((8, 1)); 2]);
        assert_eq!(elements(&[2, 80, 16, 16], DType::F32), [Some((4, 1)); 2]);
        assert_eq!(elements(&[256, 80, 16, 16], DType::BF16), [Some((8, 2)), None]);
    }

    /// Some devices read what lies past the last whole chunk of a binding as 0.
    #[test]
    fn what_is_read_in_chunks_ends_with_a_whole_one() {
        let props = Variants::device(Some((32, 32)));
        let whole = |slots: &[Slot], steps: &[StepBuilder]| {
            for step in steps.iter().filter(|step| step.can_chunk) {
                for binding in &step.bindings {
                    let Some(Place::Operand(at)) = binding.place else { continue };
                    let desc = slots.iter().find(|slot| slot.index == at).unwrap().desc;
                    let bytes = desc.span_bytes().next_multiple_of(4);
                    let text = OperandText { name: binding.name, accessor: binding.accessors[0] };
                    assert_eq!(bytes % text.element_bytes(), 0, "{} {binding:?} {desc:?}", step.entry);
                }
            }
        };
        let layouts = [TensorDesc::contiguous, TensorDesc::channels_last];
        for (channels, spatial) in (4..=200).step_by(4).flat_map(|c| [3, 4, 64, 143].map(|s| (c, s))) {
            for (layout, dtype) in layouts.into_iter().flat_map(|l| [DType::F32, DType::F16].map(|d| (l, d))) {
                for parameters in [dtype, DType::F32] {
                    for kind in [ChannelNorm::Batch, ChannelNorm::Group, ChannelNorm::Instance] {
                        let x = layout(dtype, &[3, channels, spatial]).unwrap();
                        let parameters = Some(parameters);
                        let forward = plain(kind, x).with(|f| (f.weight, f.bias) = (parameters, parameters)).unwrap();
                        let backward = forward.backward(Gradients::ALL).unwrap();
                        whole(&forward.slots, &chosen(&forward, &props).1);
                        whole(&backward.slots, &chosen(&backward, &props).1);
                    }
                }
            }
        }
    }

    #[test]
    fn slices_of_channels_last_fill_a_gpu_at_once() {
        let props = Variants::device(Some((32, 32)));
        let grids = |dims: &[u64]| {
            let forward = plain(ChannelNorm::Batch, TensorDesc::channels_last(DType::BF16, dims).unwrap());
            let (_, backward) = chosen(&forward.backward(Gradients::ALL).unwrap(), &props);
            let (_, forward) = chosen(&forward, &props);
            [forward[0].grid[0], forward[2].grid[0], backward[0].grid[0], backward[2].grid[0]]
        };
        for (dims, all) in [([64, 256, 56, 56], [660, 1056, 792, 528]), ([64, 512, 28, 28], [660, 1056, 396, 528])] {
            for (grid, most) in grids(&dims).into_iter().zip(all) {
                assert!(grid <= most && grid > most - most / 8, "{grid} of {most}");
            }
        }
    }

    /// The names of an op's forms, in the order in which they are tried.
    fn listed<D: Descriptor>() -> Vec<&'static str> {
        D::kernels().iter().filter(|kernel| kernel.backend() == Backend::Wgpu).map(|kernel| kernel.name()).collect()
    }

    /// The names of the forms of all that serve some tensors when they are chosen, the first of them, or pinned, each of them.
    fn serving<D: Descriptor + Described<Fields: Pass>>(ask: Ask, norms: &[Valid<D::Fields>]) -> HashSet<&'static str> {
        let props = &Variants::device(Some((32, 32)));
        let limit = if ask == Ask::Chosen { 1 } else { WgslForm::ALL.len() };
        let serving = |norm| WgslForm::ALL.iter().filter(move |form| steps_of(**form, norm, props, ask).is_ok());
        norms.iter().flat_map(|norm| serving(norm).take(limit)).map(Kernel::<D>::name).collect()
    }

    /// Both passes over tensors of each kind: short, long and many groups, odd extents, both orders, inference.
    fn both_passes(kind: ChannelNorm) -> (Vec<Valid<ForwardFields>>, Vec<Valid<BackwardFields>>) {
        let (mut forwards, mut backwards) = (Vec::new(), Vec::new());
        for dims in [
            [4, 16, 8, 8],
            [64, 32, 7, 7],
            [80, 32, 56, 56],
            [64, 300, 20, 16],
            [8, 8, 160, 160],
            [4, 8, 128, 128],
            [2, 40, 64, 64],
            [32, 32, 512, 512],
            [2, 8, 1000, 1],
        ] {
            for x in [dense(&dims), TensorDesc::channels_last(DType::BF16, &dims).unwrap()] {
                for inference in [false, true].into_iter().filter(|is| !is || kind != ChannelNorm::Group) {
                    let forward = plain(kind, x).with(|fields| fields.inference = inference).unwrap();
                    backwards.push(forward.backward(Gradients::ALL).unwrap());
                    forwards.push(forward);
                }
            }
        }
        (forwards, backwards)
    }

    #[test]
    fn an_op_lists_the_forms_that_can_serve_it_and_each_is_chosen_for_some_tensors() {
        fn check<D: Descriptor + Described<Fields: Pass>>(norms: &[Valid<D::Fields>]) {
            let listed: HashSet<_> = listed::<D>().into_iter().collect();
            assert_eq!(serving::<D>(Ask::Pinned, norms), listed);
            assert_eq!(serving::<D>(Ask::Chosen, norms), listed);
        }
        let (forwards, backwards) = both_passes(ChannelNorm::Batch);
        check::<BatchNormDescriptor>(&forwards);
        check::<BatchNormBackwardDescriptor>(&backwards);
        let (forwards, backwards) = both_passes(ChannelNorm::Group);
        check::<GroupNormDescriptor>(&forwards);
        check::<GroupNormBackwardDescriptor>(&backwards);
        let (forwards, backwards) = both_passes(ChannelNorm::Instance);
        check::<InstanceNormDescriptor>(&forwards);
        check::<InstanceNormBackwardDescriptor>(&backwards);
    }

    #[test]
    fn samples_are_joined_where_they_share_statistics_and_a_stride() {
        let segments = |kind, x| Segments::new(&plain(kind, x).geometry().unwrap(), ShaderType::BF16, &[X, Y]);
        let x = TensorDesc::channels_last(DType::BF16, &[4, 16, 6, 5]).unwrap();
        let joined = segments(ChannelNorm::Batch, x);
        assert_eq!((joined.batch, joined.spatial, joined.group_segments, joined.can_chunk), (1, 120, 1, true));
        assert_eq!(segments(ChannelNorm::Group, x).batch, 4);
        let padded = TensorDesc::strided(DType::BF16, &[4, 16, 30], &[1000, 1, 16]).unwrap();
        let apart = segments(ChannelNorm::Batch, padded);
        assert_eq!((apart.batch, apart.spatial, apart.can_chunk), (4, 30, true));
        let flat = segments(ChannelNorm::Batch, dense(&[40, 16]));
        assert_eq!((flat.batch, flat.spatial, flat.strides(X)[2]), (1, 40, 16));
        assert!(!segments(ChannelNorm::Batch, dense(&[2, 4, 7, 7])).can_chunk);
    }

    #[test]
    fn chunks_span_channels_where_only_samples_have_whole_ones() {
        let is_gapless = |x| {
            let names = [X, RESIDUAL, Y];
            Segments::new(&plain(ChannelNorm::Batch, x).geometry().unwrap(), ShaderType::BF16, &names).is_gapless
        };
        assert!(is_gapless(dense(&[2, 16, 7, 7])));
        assert!(!is_gapless(dense(&[2, 16, 8, 8])));
        assert!(!is_gapless(dense(&[2, 12, 7, 7])));
        assert!(!is_gapless(dense(&[2, 16, 5, 1])));
        assert!(!is_gapless(TensorDesc::strided(DType::BF16, &[2, 16, 49], &[16 * 56, 56, 1]).unwrap()));
        let entries = |dims: &[u64], is_inference: bool| {
            let forward =
                plain(ChannelNorm::Batch, dense(dims)).with(|fields| fields.inference = is_inference).unwrap();
            let (_, steps) = chosen(&forward, &Variants::device(Some((32, 32))));
            steps.iter().map(|step| step.entry).collect::<Vec<_>>()
        };
        assert_eq!(entries(&[64, 2048, 7, 7], false), ["channel_norm_gapless_resident"]);
        assert_eq!(entries(&[64, 2048, 7, 7], true), ["channel_norm_apply_gapless"]);
        assert_eq!(entries(&[16, 16, 255, 257], false).last(), Some(&"channel_norm_apply_gapless"));
    }

    #[test]
    fn eight_bindings_suffice() {
        let props = Props { max_storage_buffers: 8, ..Variants::device(Some((32, 32))) };
        for is_inference in [false, true] {
            let forward = whole(is_inference);
            chosen(&forward, &props);
            chosen(&forward.backward(Gradients::ALL).unwrap(), &props);
        }
    }

    #[test]
    fn refuses_f64_and_small_operands_with_gaps() {
        let props = Variants::device(None);
        let x = TensorDesc::contiguous(DType::F64, &[4, 8, 4]).unwrap();
        let refused =
            |forward: &Valid<ForwardFields>, form| steps_of(form, forward, &props, Ask::Pinned).err().unwrap();
        for form in WgslForm::ALL {
            refused(&plain(ChannelNorm::Batch, x), form);
        }
        let weight = TensorDesc::strided(DType::F32, &[16], &[2]).unwrap();
        let forward = whole(true).layout("weight", weight).unwrap();
        let reason = refused(&forward, WgslForm::Apply).to_string();
        assert!(reason.contains("weight is not contiguous"), "{reason}");
    }
}
