//! What the contiguous forms choose: pure functions of shapes, types and device properties, a file for each form as in `csrc/norm/channel`.
//!
//! The tuning numbers were measured on an H200 (132 SMs, CUDA 13.0).
//!
//! Predicted times are in bytes: the bytes that an SM moves in that time while the memory serves all SMs alike. Costs of other
//! kinds count as the bytes that take as long.

pub(super) mod held;
pub(super) mod relay;
pub(super) mod segment;
pub(super) mod single;
pub(super) mod split;
pub(super) mod stripe;
#[cfg(test)]
mod tests;
mod walk;

use super::{Answer, ChannelOrder, ChannelProblem, Chosen, least, needs};
use crate::error::Reason;
use crate::ops::activation::Activation;

/// Shared memory that kernels declare themselves and what the device keeps for itself, in bytes.
const RESERVED_SHARED: u64 = 4096;

/// Cluster sizes, in blocks, that the forms try.
const CLUSTERS: [u64; 5] = [1, 2, 4, 8, 16];

/// Why a form does not serve if no other form was compared with it, and if `split` was.
const NO_ROOM: &str = "a group has no room on chip";
const NO_ROOM_OR_SPLIT: &str = "a group has no room on chip, or the form split is faster";

impl ChannelProblem {
    /// Forward: whether a residual is all that is added, with no activation or a ReLU behind it.
    fn adds_residual(&self) -> bool {
        self.has_extra && self.is_at_most_relu() && self.shape.groups == 0
    }

    /// Backward: whether a residual or y tells where a ReLU passes the gradient.
    fn is_masked(&self) -> bool {
        self.has_extra && self.activation == Activation::Relu && self.shape.groups == 0
    }

    /// Refuses channels-last tensors, and extents beyond 32 bits: the kernels number samples, channels and segments so.
    fn check_contiguous(&self) -> Result<(), Reason> {
        let limit = u64::from(u32::MAX);
        needs(
            self.order == ChannelOrder::Contiguous || !self.has_elements(),
            "the spatial extents do not have stride 1 in every tensor",
        )?;
        let (batch, channels) = (self.shape.batch, self.shape.channels);
        let are_few = batch < limit && batch.checked_mul(channels).is_some_and(|segments| segments < limit);
        Reason::unless(are_few, || format!("{batch} samples of {channels} channels, the limit is {limit}"))
    }

    /// The widest access that the layouts allow.
    fn access_bytes(&self) -> u64 {
        let widths: &[u64] = if self.element_bytes == 8 { &[8] } else { &[16, 4, 2] };
        let fits = |&&bytes: &&u64| bytes >= self.element_bytes && self.vector_bytes.is_multiple_of(bytes);
        widths.iter().find(fits).copied().unwrap_or(self.element_bytes)
    }

    /// Vectors of 16 bytes of a group, for the forms that keep groups on chip.
    fn group_vectors(&self) -> Result<u64, Reason> {
        self.check_contiguous()?;
        needs(self.element_bytes < 8, "it has no f64")?;
        needs(
            self.access_bytes() == 16,
            "its segments have to be whole vectors of 16 bytes, at multiples of 16 bytes",
        )?;
        needs(!self.inference, "it takes its statistics from the batch, not the running ones")?;
        let all = self.shape.group_segments().checked_mul(self.segment_vectors());
        let groups = self.shape.group_count();
        needs(all != Some(0) && groups > 0, "there are no elements")?;
        // Kernels number vectors in 32 bits, also those that the last threads would have beyond the group; a grid has fewer than 2^31 blocks.
        let limit = 1 << 31;
        all.filter(|&all| all < limit && groups < limit).ok_or_else(|| {
            format!("{groups} groups of {all:?} vectors of 16 bytes, the limit of both is {limit}").into()
        })
    }

    /// Vectors of 16 bytes of a segment.
    fn segment_vectors(&self) -> u64 {
        self.shape.spatial / (16 / self.element_bytes)
    }

    /// Cluster sizes that the device has.
    fn clusters(&self) -> impl DoubleEndedIterator<Item = u64> + use<> {
        let most = self.max_cluster;
        CLUSTERS.into_iter().filter(move |&cluster| cluster <= most)
    }

    /// Why a group has no place on chip: in numbers if the form was asked for by its name, else `brief`.
    fn no_room(&self, brief: &'static str) -> Reason {
        if !self.is_pinned {
            return brief.into();
        }
        let bytes = self.shape.group_segments() * self.shape.spatial * self.element_bytes;
        let (blocks, shared) = (self.max_cluster, self.shared_bytes);
        format!("a group of x has {bytes} bytes, which have no room beside what else it keeps in the {shared} bytes of shared memory of each block (clusters have up to {blocks} blocks, the device {} multiprocessors)", self.multiprocessors).into()
    }

    /// Launches after the main one of forward: for the counter of batches, or for the running statistics if samples have statistics of their own.
    fn running_launches(&self) -> u32 {
        u32::from(if self.shape.groups == 0 { self.cumulative } else { self.has_running })
    }

    /// Workspace for the running statistics if samples have statistics of their own.
    fn running_bytes(&self) -> u64 {
        if self.shape.groups > 0 && self.has_running { self.shape.group_count() * 16 } else { 0 }
    }

    /// Backward with groups > 0: workspace for two sums of each segment in each of so many parts, from which the gradients of parameters follow.
    fn segment_sum_bytes(&self, parts: u64) -> u64 {
        if self.shape.groups > 0 && self.has_parameter_gradients {
            self.shape.batch * self.shape.channels * parts * 8
        } else {
            0
        }
    }
}
