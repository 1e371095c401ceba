//! Which CUDA variant serves which contiguous problem: a pure function of shapes, types and device properties. A file for each variant, as in
//! `csrc/norm`.
//!
//! The tables were measured on an H200 (132 multiprocessors, CUDA 13.0).

mod cooperative;
mod held;
mod relay;
mod segment;
mod single;
mod split;
mod stripe;
#[cfg(test)]
mod tests;
mod walk;

use baracuda_ops_sys as sys;

use super::{Problem, Tuned};
use crate::backend::cuda::resident_clusters;
use crate::ops::activation::Activation;

/// Shared memory that kernels declare themselves and what the device keeps for itself, in bytes.
const RESERVED_SHARED: u64 = 4096;

/// The variant that serves a forward.
pub(super) fn forward(p: &Problem) -> Result<Tuned, String> {
    p.check_extents()?;
    let chosen = clustered(p);
    // Clusters of 16 leave an eighth of the multiprocessors out, those of 4 and 8 some.
    let most = if p.adds_residual() { 2 } else { 8 };
    let shared = match &chosen {
        Some(tuned) if tuned.cluster <= most || tuned.variant == sys::BOPS_CHANNEL_NORM_SINGLE => None,
        Some(tuned) => {
            cooperative::forward(p, Some(p.shape.group_count().div_ceil(u64::from(tuned.grid / tuned.cluster))))
        }
        None => cooperative::forward(p, None),
    };
    match shared.or(chosen) {
        Some(tuned) => Ok(tuned),
        None => split::forward(p),
    }
}

/// The variant for groups that a block or a cluster holds.
fn clustered(p: &Problem) -> Option<Tuned> {
    let on_chip = || {
        let (single, relay) = (single::forward(p), relay::choose(p, 1));
        match (&single, &relay) {
            (Some(one), Some(many)) if many.is_faster_than(one, p) => Some(many.tuned),
            (None, Some(many)) => Some(many.tuned),
            _ => single.or_else(|| held::choose(p, 1)),
        }
    };
    stripe::choose(p, 1).or_else(|| segment::choose(p, 1)).or_else(on_chip)
}

/// The variant that serves a backward.
pub(super) fn backward(p: &Problem) -> Result<Tuned, String> {
    p.check_extents()?;
    let walking = || match (held::choose(p, 2)?, relay::choose(p, 2)) {
        (held, Some(relay)) if held.cluster >= relay::BACKWARD_CLUSTER => Some(relay.tuned),
        (held, _) => Some(held),
    };
    let large = || match (walking(), cooperative::backward(p)) {
        (Some(walking), Some(cooperative)) if !cooperative.is_faster_than(&walking, p) => Some(walking),
        (walking, cooperative) => cooperative.map(|cooperative| cooperative.tuned).or(walking),
    };
    let alone = || single::backward(p).or_else(|| single::masked_backward(p));
    let on_chip = || alone().or_else(|| relay::of_grid_backward(p)).or_else(large);
    match stripe::choose(p, 2).or_else(|| segment::choose(p, 2)).or_else(on_chip) {
        Some(tuned) => Ok(tuned),
        None => split::backward(p),
    }
}

impl Problem {
    /// Forward: whether a residual is all that is added, with no activation or a ReLU behind it.
    fn adds_residual(&self) -> bool {
        self.has_extra && self.is_at_most_relu() && self.shape.groups == 0
    }

    /// Backward: whether a residual or y tells what passes a ReLU.
    fn is_masked(&self) -> bool {
        self.has_extra && self.activation == Activation::Relu && self.shape.groups == 0
    }

    /// The kernels number samples, channels and segments in 32 bits.
    fn check_extents(&self) -> Result<(), String> {
        let limit = u64::from(u32::MAX);
        match self.shape.batch.checked_mul(self.shape.channels) {
            Some(segments) if segments < limit && self.shape.batch < limit => Ok(()),
            _ => Err(format!("{} samples of {} channels, the limit is {limit}", self.shape.batch, self.shape.channels)),
        }
    }

    /// The widest access that the layouts allow.
    fn vec_bytes(&self) -> u32 {
        let widths: &[u32] = if self.element_bytes == 8 { &[8] } else { &[16, 4, 2] };
        let fits = |&&bytes: &&u32| bytes >= self.element_bytes && self.vector_bytes.is_multiple_of(bytes);
        widths.iter().find(fits).copied().unwrap_or(self.element_bytes)
    }

    /// Vectors of 16 bytes of a group, where the kernels that keep groups on chip serve.
    fn group_vectors(&self) -> Option<u64> {
        let serves = self.vec_bytes() == 16 && self.element_bytes < 8 && !self.inference;
        let all = self.shape.group_segments().checked_mul(self.segment_vectors())?;
        let groups = self.shape.group_count();
        (serves && all > 0 && all < 1 << 31 && groups > 0 && groups < 1 << 31).then_some(all)
    }

    /// Vectors of 16 bytes of a segment.
    fn segment_vectors(&self) -> u64 {
        self.shape.spatial / u64::from(16 / self.element_bytes)
    }

    /// Clusters that are resident at once.
    fn teams(&self, cluster: u64, blocks: u64) -> u64 {
        resident_clusters(self.multiprocessors, cluster, blocks)
    }
}

/// Launches after a forward: the counter of batches, or the running statistics of samples that have their own.
fn running_launches(p: &Problem) -> u32 {
    u32::from(if p.shape.groups == 0 { p.cumulative } else { p.has_running })
}
