//! The WGSL kernels of the family: which serves which layout, and what they bind.

mod backward;
mod forward;
mod team;
mod variants;

use super::{ChannelGeometry, ChannelNorm, ChannelOrder};
use crate::backend::wgpu::team::Team;
use crate::backend::wgpu::{Binder, Binding, Props, ShaderType, StepBuilder, check_reach, most_bytes};
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::stride;
use crate::plan::Slot;
use crate::slots::Slots;

pub(super) use backward::backward_work;
pub(super) use forward::forward_work;
pub(in super::super) use variants::wgsl_variants;

/// Where groups lie between reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// In workgroups that have several channels, which share chunks.
    Gapless { workgroup: u32, columns: u32, chunks: u32 },
    /// In workgroups that take one after the other.
    Ahead { workgroup: u32, workgroups: u32, chunks: u32 },
    /// In so many threads of a workgroup.
    Resident { workgroup: u32, threads: u32, chunks: u32 },
    /// In workgroups that have several channels, which are last.
    Columns { workgroup: u32, columns: u32, chunks: u32 },
    /// Nowhere: they have parts, and segments slices.
    Split { group_parts: u32, slices: u32 },
    /// Nowhere: what is written depends on no statistic of theirs.
    Apart,
}

impl Held {
    fn of(Team { workgroup, threads, chunks, .. }: Team) -> Self {
        Self::Resident { workgroup, threads, chunks }
    }
}

/// The tensors of a call as the kernels see them.
#[derive(Clone)]
struct Segments {
    batch: u64,
    channels: u64,
    spatial: u64,
    /// Whether a group is a channel of all samples.
    groups_are_channels: bool,
    /// Groups of a sample, or all channels.
    groups: u64,
    group_channels: u64,
    group_segments: u64,
    group_count: u64,
    order: ChannelOrder,
    strides: Vec<(usize, [u64; 3])>,
    /// Elements of a chunk of 16 bytes, or of 8.
    elements: u64,
    /// Whether no chunk is cut and every run of chunks starts at one.
    can_chunk: bool,
    /// Whether chunks are whole only where they span two segments, which follow each other in a sample without a gap.
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

    /// Where the rows of channels of all samples lie at one stride and share statistics, they are those of one sample.
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
        // A tensor that is absent has no strides.
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

    /// Strides of a tensor as the shader reads them; `check_reach` says why they fit.
    fn strides(&self, index: usize) -> [u32; 3] {
        let found = self.strides.iter().find(|(known, _)| *known == index);
        found.map_or([0; 3], |(_, strides)| strides.map(stride))
    }

    fn is_half(&self) -> bool {
        self.dtype.is_half()
    }

    /// The same in chunks of four 16-bit elements.
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

    /// A dispatch of a pass. The last of `files`, which come after those that all dispatches of the pass have, is named after the entry.
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

    /// Chunks of 16 bytes in all.
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

/// Refuses what no kernel of the family serves. Returns the type of x.
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
    /// Workgroups beside each other.
    column_blocks: u32,
    /// Rows of a slice where channels are last.
    slice_rows: u32,
    /// Chunks of a sample that a workgroup holds where chunks span channels.
    columns: u32,
    /// The number of the first workgroup.
    first_group: u32,
}

impl Share {
    /// Whole segments, by the first workgroup and those after it.
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

    /// Any operand with an accessor of its own.
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
    /// `count` quads after `bytes` bytes, which grow.
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

    /// Absent where a dispatch has no accessor for it.
    fn binding(self, accessor: Option<&'static str>) -> Binding {
        let absent = Binding::absent(self.name, "absent_partials");
        accessor.map_or(absent, |accessor| Binding::partials(self.name, self.offset, self.bytes, accessor))
    }
}

#[cfg(test)]
mod tests {
    use super::super::forward::{RESIDUAL, X, Y};
    use super::super::{ForwardFields, Valid};
    use super::team::Tile;
    use super::*;
    use crate::backend::wgpu::{OperandText, Place, Variants, Work};
    use crate::ops::activation::Activation;
    use crate::ops::norm::Gradients;
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

    #[test]
    fn a_group_stays_on_chip_while_it_fits() {
        let launches = |kind, dims: &[u64]| {
            forward_work(&plain(kind, dense(dims)), &Variants::device(Some((32, 32)))).unwrap().steps.len()
        };
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
        let entries = |kind, dims: &[u64], activation, props: &Props| {
            let forward = plain(kind, dense(dims)).with(|fields| fields.activation = activation).unwrap();
            let work = backward_work(&forward.backward(Gradients::ALL).unwrap(), props).unwrap();
            work.steps.iter().map(|step| step.entry).collect::<Vec<_>>()
        };
        let props = Variants::device(Some((32, 32)));
        let of = |kind, dims: &[u64]| entries(kind, dims, Activation::Identity, &props);
        let resident = ["channel_norm_backward_resident"];
        assert_eq!(of(ChannelNorm::Batch, &[64, 2048, 7, 7]), ["channel_norm_backward_gapless_resident"]);
        assert_eq!(of(ChannelNorm::Group, &[2, 160, 16, 16]), resident);
        assert_eq!(of(ChannelNorm::Group, &[2, 80, 32, 32]), resident);
        assert_eq!(of(ChannelNorm::Group, &[2, 80, 64, 64]).len(), 2);
        assert_eq!(of(ChannelNorm::Group, &[256, 160, 16, 16]).len(), 3);
        assert_eq!(entries(ChannelNorm::Group, &[2, 80, 32, 32], Activation::Silu, &props).len(), 2);
        let narrow = Props { max_threads: 256, ..props.clone() };
        assert_ne!(entries(ChannelNorm::Group, &[2, 160, 16, 16], Activation::Identity, &narrow), resident);
    }

    #[test]
    fn slices_are_short_where_few_go_through_an_activation_and_long_where_many_are_summed() {
        let props = Variants::device(Some((32, 32)));
        let spread = |work: &Work<Held>, step: usize| {
            let constant = |name| work.steps[step].constants.iter().find(|known| known.0 == name).unwrap().1;
            (constant("THREADS"), constant("CHUNKS"))
        };
        for (activation, expected) in [(Activation::Identity, (128, 4)), (Activation::Silu, (256, 2))] {
            let forward = plain(ChannelNorm::Group, dense(&[2, 40, 64, 64]));
            let forward = forward.with(|fields| fields.activation = activation).unwrap();
            let backward = backward_work(&forward.backward(Gradients::ALL).unwrap(), &props).unwrap();
            let forward = forward_work(&forward, &props).unwrap();
            assert_eq!((spread(&forward, 0), spread(&forward, 1)), ((128, 4), expected));
            assert_eq!((spread(&backward, 0), spread(&backward, 1)), (expected, expected));
        }
        let many = forward_work(&plain(ChannelNorm::Group, dense(&[32, 256, 56, 56])), &props).unwrap();
        assert_eq!((spread(&many, 0), spread(&many, 2)), ((64, 7), (128, 4)));
    }

    #[test]
    fn channels_last_takes_fewer_dispatches_where_groups_are_small() {
        let launches = |kind, dims: &[u64]| {
            let forward = plain(kind, TensorDesc::channels_last(DType::BF16, dims).unwrap());
            let backward = forward.backward(Gradients::ALL).unwrap();
            let props = Variants::device(Some((32, 32)));
            let backward = backward_work(&backward, &props).unwrap().steps.len();
            (forward_work(&forward, &props).unwrap().steps.len(), backward)
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
            let work = forward_work(&plain(ChannelNorm::Group, x), &props).unwrap();
            let step = &work.steps[0];
            let prefetch = step.flags.iter().find(|flag| flag.0 == "PREFETCH").map(|flag| flag.1);
            let workgroup = step.constants.iter().find(|known| known.0 == "WORKGROUP").unwrap().1;
            (step.entry, prefetch, step.grid[0], workgroup)
        };
        let ahead = "channel_norm_resident_ahead";
        assert_eq!(numbers(&[80, 32, 56, 56], DType::BF16), (ahead, Some(true), 132, 832));
        assert_eq!(numbers(&[12, 40, 64, 64], DType::F16), (ahead, Some(false), 48, 1024));
        assert_ne!(numbers(&[50, 32, 56, 56], DType::BF16).0, ahead);
        assert_ne!(numbers(&[80, 32, 56, 56], DType::F32).0, ahead);
        assert_ne!(numbers(&[80, 32, 28, 28], DType::BF16).0, ahead);
    }

    #[test]
    fn chunks_are_narrow_where_a_group_fills_no_wider_ones() {
        let props = Variants::device(Some((32, 32)));
        let elements = |dims: &[u64], dtype| {
            let x = TensorDesc::channels_last(dtype, dims).unwrap();
            let dtype = ShaderType::of(dtype).unwrap();
            let segments = Segments::new(&plain(ChannelNorm::Group, x).geometry().unwrap(), dtype, &[X, Y]);
            let forward = Tile::best(&segments, |segments| Tile::new(segments, &props));
            let backward = Tile::best(&segments, |segments| Tile::of_gradients(segments, &props));
            [forward, backward].map(|found| found.map(|(segments, tile)| (segments.elements, tile.groups)))
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
        let whole = |slots: &[Slot], work: &Work<Held>| {
            for step in work.steps.iter().filter(|step| step.can_chunk) {
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
                        whole(&forward.slots, &forward_work(&forward, &props).unwrap());
                        whole(&backward.slots, &backward_work(&backward, &props).unwrap());
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
            let backward = backward_work(&forward.backward(Gradients::ALL).unwrap(), &props).unwrap();
            let forward = forward_work(&forward, &props).unwrap();
            [forward.steps[0].grid[0], forward.steps[2].grid[0], backward.steps[0].grid[0], backward.steps[2].grid[0]]
        };
        for (dims, all) in [([64, 256, 56, 56], [660, 1056, 792, 528]), ([64, 512, 28, 28], [660, 1056, 396, 528])] {
            for (grid, most) in grids(&dims).into_iter().zip(all) {
                assert!(grid <= most && grid > most - most / 8, "{grid} of {most}");
            }
        }
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
            let work = forward_work(&forward, &Variants::device(Some((32, 32)))).unwrap();
            work.steps.iter().map(|step| step.entry).collect::<Vec<_>>()
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
            forward_work(&forward, &props).unwrap();
            backward_work(&forward.backward(Gradients::ALL).unwrap(), &props).unwrap();
        }
    }

    #[test]
    fn refuses_f64_and_small_operands_with_gaps() {
        let props = Variants::device(None);
        let x = TensorDesc::contiguous(DType::F64, &[4, 8, 4]).unwrap();
        assert!(forward_work(&plain(ChannelNorm::Batch, x), &props).is_err());
        let weight = TensorDesc::strided(DType::F32, &[16], &[2]).unwrap();
        let forward = whole(true).layout("weight", weight).unwrap();
        let reason = forward_work(&forward, &props).err().unwrap().to_string();
        assert!(reason.contains("weight is not contiguous"), "{reason}");
    }
}
