//! The texts of the kernels, for the tests that validate them.

use super::super::{GatherDescriptor, IndexSelectDescriptor, Valid};
use super::strided;
use crate::backend::wgpu::{Props, Variants};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::Ask;
use crate::tensor::TensorDesc;

fn add(variants: &mut Variants, name: &str, valid: &Valid, props: &Props) {
    variants.add_work(name, strided(valid, props, Ask::Pinned), props);
}

/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    for props in &Variants::devices() {
        for dtype in [DType::F64, DType::F32, DType::BF16, DType::U8] {
            for of_index in [DType::I64, DType::I32, DType::U32] {
                let indices = |dims: &[u64]| TensorDesc::contiguous(of_index, dims);
                let name = format!("lookup in {dtype} by {of_index}");
                let gaps = TensorDesc::strided(dtype, &[9, 48], &[200, 3])?;
                for x in [TensorDesc::contiguous(dtype, &[9, 48])?, TensorDesc::contiguous(dtype, &[9, 5])?, gaps] {
                    for axis in [0, 1] {
                        let select = IndexSelectDescriptor::new(x, axis, indices(&[16])?)?;
                        add(variants, &name, &select.0, props);
                        let laid = TensorDesc::strided(
                            dtype,
                            select.0.slots.always(super::forward::Y).desc.dims(),
                            &[2, 100],
                        )?;
                        add(variants, &name, &select.clone().layout("y", laid)?.0, props);
                        add(variants, &name, &select.from_end()?.count_missing()?.0, props);
                    }
                    let gather = GatherDescriptor::new(x, 0, indices(&[7, 5])?)?;
                    add(variants, &name, &gather.0, props);
                }
                let none = TensorDesc::contiguous(dtype, &[0, 4])?;
                add(variants, &name, &IndexSelectDescriptor::new(none, 0, indices(&[3, 3, 3])?)?.0, props);
            }
        }
    }
    Ok(())
}
