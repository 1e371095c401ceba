//! The texts of the kernel, for the tests that validate them.

use super::super::{FftDescriptor, IrfftDescriptor, RfftDescriptor};
use super::work;
use crate::backend::wgpu::Variants;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::TensorDesc;

/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    let dense = |dims: &[u64]| TensorDesc::contiguous(DType::F32, dims);
    for props in &Variants::devices() {
        // Every radix, two passes, and a chirp in one pass and in two.
        for points in [1, 2, 840, 1024, 4096, 1009, 2003] {
            let fft = FftDescriptor::new(dense(&[3, points, 2])?, 1)?;
            variants.add_work("fft", work(&fft.0, props), props);
        }
        let higher = TensorDesc::strided(DType::F32, &[2, 3, 5, 2, 8, 2], &[2000, 4, 14, 1000, 100, 1])?;
        variants.add_work("fft", work(&FftDescriptor::new(higher, 3)?.0, props), props);
        variants.add_work("rfft", work(&RfftDescriptor::new(dense(&[30, 5])?, 0)?.0, props), props);
        variants.add_work("irfft", work(&IrfftDescriptor::new(dense(&[16, 5, 2])?, 0, 30)?.0, props), props);
    }
    Ok(())
}
