//! Normalization: LayerNorm, RMSNorm, BatchNorm, GroupNorm, InstanceNorm, LocalResponseNorm.

pub mod batch_norm;
mod channel_norm;
pub mod group_norm;
pub mod instance_norm;
pub mod layer_norm;
pub mod local_response_norm;
pub mod rms_norm;
mod row_norm;
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

/// Every input of which a norm may have the gradient.
#[cfg(feature = "wgpu")]
const INPUTS: [&str; 4] = ["x", "residual", "weight", "bias"];

/// Adds the shaders of this family.
///
/// # Errors
/// A descriptor that is not valid.
#[cfg(feature = "wgpu")]
pub(super) fn add_variants(variants: &mut crate::backend::wgpu::Variants) -> crate::error::Result<()> {
    row_norm::add_variants(variants);
    channel_norm::add_variants(variants);
    local_response_norm::add_variants(variants)
}
