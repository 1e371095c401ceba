//! The texts of the kernels, for the tests that validate them.

use super::super::{Scan, ScanDescriptor, Valid};
use super::{columns, rows};
use crate::backend::wgpu::{Props, Variants};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::Ask;
use crate::tensor::TensorDesc;

/// Both forms of a scan.
fn add(variants: &mut Variants, name: &str, valid: &Valid, props: &Props) {
    variants.add_work(name, rows(valid, props, Ask::Pinned), props);
    variants.add_work(name, columns(valid, props, Ask::Pinned), props);
}

/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    let integers = [DType::I32, DType::U32, DType::Bool, DType::U8, DType::I8];
    for props in &Variants::devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16].into_iter().chain(integers) {
            let dense = |dims: &[u64]| TensorDesc::contiguous(dtype, dims);
            let higher = TensorDesc::strided(dtype, &[2, 3, 5, 2, 8], &[1000, 2, 7, 500, 50])?;
            for scan in Scan::ALL {
                if scan == Scan::LogSumExp && integers.contains(&dtype) {
                    continue;
                }
                let is_choice = scan.combine().is_choice();
                let name = format!("{} of {dtype}", scan.name());
                for (x, axis) in [(dense(&[16, 64])?, 1), (dense(&[64, 7])?, 0), (dense(&[40_000])?, 0), (higher, 3)] {
                    let mut of = ScanDescriptor::of(x, axis, scan)?;
                    if integers.contains(&dtype) && !is_choice {
                        of = of.output(DType::I32)?;
                    }
                    add(variants, &name, &of.0, props);
                    add(variants, &name, &of.clone().reverse()?.exclusive()?.0, props);
                    if is_choice {
                        add(variants, &name, &of.clone().with_indices()?.0, props);
                        add(variants, &name, &of.indices(DType::U32)?.0, props);
                    } else if dtype == DType::F16 {
                        add(variants, &name, &of.output(DType::BF16)?.0, props);
                    }
                }
            }
        }
    }
    Ok(())
}
