//! Ops that compute each element on its own.

pub mod activation;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod dense;
#[cfg(feature = "wgpu")]
mod wgpu;

pub use activation::{
    ActivationArgs, ActivationBackwardArgs, ActivationBackwardDescriptor, ActivationBackwardPlan, ActivationDescriptor,
    ActivationPlan,
};

/// As [`wgsl_variants`](super::wgsl_variants), of this family.
#[cfg(feature = "wgpu")]
pub(super) fn wgsl_variants() -> impl Iterator<Item = (String, String)> {
    activation::wgsl_variants()
}
