//! The texts of the kernels, for the tests that validate them.

use super::super::{Ordered, SortDescriptor, TopKDescriptor, Valid};
use super::{merge, tiles};
use crate::backend::wgpu::{Props, Variants};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::Ask;
use crate::ops::valid::Described;
use crate::tensor::TensorDesc;

/// Both forms of an op.
fn add<F: Ordered>(variants: &mut Variants, name: &str, valid: &Valid<F>, props: &Props) {
    variants.add_work(name, tiles(valid, props, Ask::Pinned), props);
    variants.add_work(name, merge(valid, props, Ask::Pinned), props);
}

/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    let types =
        [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::U32, DType::Bool, DType::I8];
    for props in &Variants::devices() {
        for dtype in types {
            let dense = |dims: &[u64]| TensorDesc::contiguous(dtype, dims);
            let higher = TensorDesc::strided(dtype, &[2, 3, 5, 2, 8], &[1000, 2, 7, 500, 50])?;
            for (x, axis) in [(dense(&[16, 64])?, 1), (dense(&[64, 7])?, 0), (dense(&[5000])?, 0), (higher, 3)] {
                let sort = SortDescriptor::new(x, axis)?;
                add(variants, &format!("sort of {dtype}"), sort.valid(), props);
                add(variants, &format!("sort of {dtype}"), sort.clone().descending()?.with_indices()?.valid(), props);
                add(variants, &format!("argsort of {dtype}"), SortDescriptor::argsort(x, axis)?.valid(), props);
                for k in [1, 2, 0] {
                    let top = TopKDescriptor::new(x, axis, k)?;
                    add(variants, &format!("top_k of {dtype}"), top.valid(), props);
                    add(variants, &format!("top_k of {dtype}"), top.least()?.indices(DType::U32)?.valid(), props);
                }
            }
            let top = TopKDescriptor::new(dense(&[3, 5000])?, 1, 100)?.with_indices()?;
            add(variants, &format!("top_k of {dtype}"), top.valid(), props);
        }
    }
    Ok(())
}
