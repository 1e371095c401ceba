//! The ops, by family.

pub mod activation;
#[cfg(feature = "cuda")]
mod calls;
pub mod conv;
mod fields;
pub mod gemm;
mod lines;
pub mod norm;
pub mod pointwise;
mod rows;
pub mod softmax;
mod valid;

/// Every shader that a plan can ask for, with what it is for, made without a device: for checks of the text. Each family adds its own.
#[cfg(feature = "wgpu")]
#[doc(hidden)]
pub fn wgsl_variants() -> impl Iterator<Item = (String, String)> {
    norm::wgsl_variants()
        .chain(softmax::wgsl_variants())
        .chain(pointwise::wgsl_variants())
        .chain(gemm::wgsl_variants())
        .chain(conv::wgsl_variants())
}
