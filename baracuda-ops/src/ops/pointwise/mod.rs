//! Ops that compute each element on its own.

pub mod activation;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod dense;
pub mod map;
pub mod program;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "wgpu")]
pub(super) use activation::add_variants;
pub use activation::{
    ActivationArgs, ActivationBackwardArgs, ActivationBackwardDescriptor, ActivationBackwardPlan, ActivationDescriptor,
    ActivationPlan,
};
pub use map::{PointwiseArgs, PointwiseDescriptor, PointwisePlan};
pub use program::{Function, Program};
