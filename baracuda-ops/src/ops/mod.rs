//! The ops, by family.

mod accumulation;
pub mod activation;
#[cfg(test)]
mod agreement;
pub mod attention;
mod blocks;
#[cfg(feature = "cuda")]
mod calls;
pub mod conv;
pub mod fft;
mod fields;
pub mod gemm;
pub mod index;
pub mod linalg;
mod lines;
pub mod movement;
pub mod norm;
pub mod order;
pub mod pointwise;
pub mod reduce;
mod rows;
mod samples;
pub mod scan;
pub mod softmax;
mod valid;
mod walk;
pub mod window;

/// Every shader that a plan can ask for, with what it is for, made without a device: for checks of the text. Each family adds its own.
///
/// # Errors
/// A family asks for the shaders of a descriptor that is not valid.
#[cfg(feature = "wgpu")]
#[doc(hidden)]
pub fn wgsl_variants() -> crate::error::Result<Vec<(String, String)>> {
    let mut variants = crate::backend::wgpu::Variants::default();
    norm::add_variants(&mut variants)?;
    softmax::add_variants(&mut variants)?;
    attention::add_variants(&mut variants)?;
    pointwise::add_variants(&mut variants)?;
    reduce::add_variants(&mut variants)?;
    scan::add_variants(&mut variants)?;
    fft::add_variants(&mut variants)?;
    movement::add_variants(&mut variants)?;
    index::add_variants(&mut variants)?;
    order::add_variants(&mut variants)?;
    window::add_variants(&mut variants)?;
    gemm::add_variants(&mut variants)?;
    conv::add_variants(&mut variants)?;
    linalg::add_variants(&mut variants)?;
    Ok(variants.texts)
}
