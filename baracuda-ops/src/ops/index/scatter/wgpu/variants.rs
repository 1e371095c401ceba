//! The texts of the kernels, for the tests that validate them.

use super::super::{Combine, IndexAddDescriptor, ScatterDescriptor, Valid};
use super::work;
use crate::backend::wgpu::{Props, Variants};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::TensorDesc;

fn add(variants: &mut Variants, name: &str, valid: &Valid, props: &Props) {
    variants.add_work(name, work(valid, props), props);
}

/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    let types = [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I32, DType::U32, DType::U8, DType::I8];
    for props in &Variants::devices() {
        for dtype in types {
            for combine in Combine::ALL {
                if dtype == DType::F64 && combine != Combine::Set {
                    continue;
                }
                let of_index = if dtype == DType::F32 { DType::I64 } else { DType::U32 };
                let indices = |dims: &[u64]| TensorDesc::contiguous(of_index, dims);
                let name = format!("{} of {dtype} by {of_index}", combine.name());
                let y = TensorDesc::contiguous(dtype, &[9, 48])?;
                let few = IndexAddDescriptor::new(y, 0, indices(&[16])?, combine)?;
                add(variants, &name, &few.0, props);
                add(variants, &name, &few.base()?.from_end()?.count_missing()?.0, props);
                let many = IndexAddDescriptor::new(y, 0, indices(&[50, 100])?, combine)?;
                add(variants, &name, &many.0, props);
                let gaps = TensorDesc::strided(dtype, &[9, 48], &[200, 3])?;
                let each = ScatterDescriptor::new(gaps, 1, indices(&[7, 100])?, combine)?;
                add(variants, &name, &each.base()?.0, props);
            }
        }
    }
    Ok(())
}
