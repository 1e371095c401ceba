//! Normalization: LayerNorm, RMSNorm, BatchNorm, GroupNorm, InstanceNorm, LocalResponseNorm.

pub mod batch_norm;
mod channel_norm;
pub mod group_norm;
pub mod instance_norm;
pub mod layer_norm;
pub mod local_response_norm;
pub mod rms_norm;
mod row_norm;
#[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "only GPU kernels need it"))]
mod spatial;
mod statistics;

pub use batch_norm::{
    BatchNormArgs, BatchNormBackwardArgs, BatchNormBackwardDescriptor, BatchNormBackwardPlan, BatchNormDescriptor,
    BatchNormPlan,
};
pub use group_norm::{
    GroupNormArgs, GroupNormBackwardArgs, GroupNormBackwardDescriptor, GroupNormBackwardPlan, GroupNormDescriptor,
    GroupNormPlan,
};
pub use instance_norm::{
    InstanceNormArgs, InstanceNormBackwardArgs, InstanceNormBackwardDescriptor, InstanceNormBackwardPlan,
    InstanceNormDescriptor, InstanceNormPlan,
};
pub use layer_norm::{
    LayerNormArgs, LayerNormBackwardArgs, LayerNormBackwardDescriptor, LayerNormBackwardPlan, LayerNormDescriptor,
    LayerNormPlan,
};
pub use local_response_norm::{
    LocalResponseNormArgs, LocalResponseNormBackwardArgs, LocalResponseNormBackwardDescriptor,
    LocalResponseNormBackwardPlan, LocalResponseNormDescriptor, LocalResponseNormPlan,
};
pub use rms_norm::{
    RmsNormArgs, RmsNormBackwardArgs, RmsNormBackwardDescriptor, RmsNormBackwardPlan, RmsNormDescriptor, RmsNormPlan,
};
pub use row_norm::Gradients;

/// As [`wgsl_variants`](super::wgsl_variants), of this family.
#[cfg(feature = "wgpu")]
pub(super) fn wgsl_variants() -> impl Iterator<Item = (String, String)> {
    row_norm::wgsl_variants().chain(channel_norm::wgsl_variants()).chain(local_response_norm::wgsl_variants())
}
