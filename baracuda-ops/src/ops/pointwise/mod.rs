//! Ops that compute each element on its own.

pub mod activation;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod dense;
pub mod map;
pub mod program;
pub mod stock;
#[cfg(feature = "wgpu")]
mod wgpu;

pub use activation::{
    ActivationArgs, ActivationBackwardArgs, ActivationBackwardDescriptor, ActivationBackwardPlan, ActivationDescriptor,
    ActivationPlan,
};
pub use map::{PointwiseArgs, PointwiseDescriptor, PointwisePlan};
pub use program::{Distribution, Function, Program, ProgramBuilder, Term};

/// # Errors
/// A descriptor that is not valid.
#[cfg(feature = "wgpu")]
pub(super) fn add_variants(variants: &mut crate::backend::wgpu::Variants) -> crate::error::Result<()> {
    activation::add_variants(variants)?;
    map::add_variants(variants)
}
