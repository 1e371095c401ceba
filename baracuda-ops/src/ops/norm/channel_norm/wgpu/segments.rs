//! The tensors of a call as the kernels see them: segments, their order, and the chunks that they are read in.

use super::super::{ChannelGeometry, ChannelNorm, ChannelOrder};
use crate::backend::wgpu::{ShaderType, StepBuilder};
use crate::narrow::stride;

/// The tensors of a call as the kernels see them.
#[derive(Clone)]
pub(super) struct Segments {
    pub(super) batch: u64,
    pub(super) channels: u64,
    /// Elements of a segment; channels last, rows of a sample.
    pub(super) spatial: u64,
    /// Whether a group is a channel of all samples.
    pub(super) groups_are_channels: bool,
    /// Groups of a sample; if they are channels of all samples, the channels.
    pub(super) groups: u64,
    pub(super) group_channels: u64,
    pub(super) group_segments: u64,
    pub(super) group_count: u64,
    pub(super) order: ChannelOrder,
    /// Strides of batch, channel and spatial by the operand's index.
    pub(super) strides: Vec<(usize, [u64; 3])>,
    /// Elements of a chunk: of 16 bytes, or of 8 where chunks are narrow.
    pub(super) elements: u64,
    /// Whether all chunks are whole and start at multiples of their size.
    pub(super) can_chunk: bool,
    /// Whether segments are no whole chunks, but samples are: segments follow each other without a gap, and some chunks span two of them.
    pub(super) is_gapless: bool,
    pub(super) dtype: ShaderType,
}

impl Segments {
    pub(super) fn new(geometry: &ChannelGeometry, dtype: ShaderType, operands: &[usize]) -> Self {
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

    pub(super) fn is_empty(&self) -> bool {
        self.batch == 0 || self.channels == 0 || self.spatial == 0
    }

    /// Elements of a group.
    pub(super) fn group_elements(&self) -> u64 {
        self.group_segments * self.spatial
    }

    /// Chunks of a segment, the last perhaps cut.
    pub(super) fn segment_chunks(&self) -> u64 {
        self.spatial.div_ceil(self.elements)
    }

    pub(super) fn segment_count(&self) -> u64 {
        self.batch * self.channels
    }

    /// Chunks of a group.
    pub(super) fn group_chunks(&self) -> u64 {
        self.group_segments * self.segment_chunks()
    }

    /// Strides of a tensor as the shader reads them; `check_reach` says why they fit.
    pub(super) fn strides(&self, index: usize) -> [u32; 3] {
        let found = self.strides.iter().find(|(known, _)| *known == index);
        found.map_or([0; 3], |(_, strides)| strides.map(stride))
    }

    pub(super) fn is_half(&self) -> bool {
        self.dtype.is_half()
    }

    /// These tensors in narrow chunks, of four elements; none if the elements are not of 16 bits.
    pub(super) fn narrow(&self) -> Option<Self> {
        let mut narrow = Self { elements: 4, ..self.clone() };
        narrow.can_chunk = narrow.has_whole_chunks();
        narrow.is_gapless = !narrow.can_chunk && narrow.has_whole_samples();
        self.is_half().then_some(narrow)
    }

    pub(super) fn is_narrow(&self) -> bool {
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
    pub(super) fn step(
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
    pub(super) fn all_chunks(&self) -> u64 {
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
