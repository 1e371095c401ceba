//! Device code of `baracuda-ops`: the WGSL text and the C parameter structs of its kernels and, with the feature `cuda`, the compiled
//! CUDA kernels behind C functions.
//!
//! Everything here is raw: the structs and functions are those of the headers `csrc/bops*.h`, which document them, and nothing is checked.

#![no_std]

#[cfg(not(feature = "bindgen"))]
#[allow(
    missing_docs,
    non_camel_case_types,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    reason = "generated; the headers in csrc hold names and documentation"
)]
mod bindings;
#[cfg(feature = "bindgen")]
#[allow(
    missing_docs,
    non_camel_case_types,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    reason = "generated; the headers in csrc hold names and documentation"
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
pub use bindings::*;

pub mod wgsl;

/// The compute capabilities compiled in, as 10 * major + minor, ascending. There is machine code for each and PTX for the first and, where its code
/// differs, the last, so every device from the first on is served, and none below it. Kernels with instructions of 9.0 alone are compiled for `sm_90a` in place of
/// 90, and are empty elsewhere.
#[cfg(feature = "cuda")]
pub const CUDA_ARCHS: &[u32] = include!(concat!(env!("OUT_DIR"), "/archs.rs"));
