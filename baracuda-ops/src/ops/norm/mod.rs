//! Normalization: LayerNorm and RMSNorm.

pub mod layer_norm;
pub mod rms_norm;
mod row_norm;

pub use layer_norm::{
    LayerNormArgs, LayerNormBackwardArgs, LayerNormBackwardDescriptor, LayerNormBackwardPlan, LayerNormDescriptor,
    LayerNormPlan,
};
pub use rms_norm::{
    RmsNormArgs, RmsNormBackwardArgs, RmsNormBackwardDescriptor, RmsNormBackwardPlan, RmsNormDescriptor, RmsNormPlan,
};
pub use row_norm::Gradients;
#[cfg(feature = "wgpu")]
#[doc(hidden)]
pub use row_norm::wgsl_variants;
