//! The texts of the kernels, for the tests that validate them.

use super::{concat, copy_strided, copy_tiles, pad};
use crate::backend::wgpu::Variants;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::Ask;
use crate::ops::movement::{ConcatDescriptor, CopyDescriptor, PadDescriptor, PadMode};
use crate::ops::valid::Described;
use crate::tensor::TensorDesc;

/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    for props in &Variants::devices() {
        for dtype in [DType::F64, DType::F32, DType::BF16, DType::U8] {
            let dense = TensorDesc::contiguous(dtype, &[64, 48])?;
            let odd = TensorDesc::contiguous(dtype, &[63, 47])?;
            let gaps = TensorDesc::strided(dtype, &[64, 48], &[200, 2])?;
            let higher = TensorDesc::strided(dtype, &[2, 3, 5, 2, 9], &[1000, 2, 7, 500, 50])?;
            let mut copies = Vec::new();
            for x in [dense, odd, gaps, higher] {
                copies.push(CopyDescriptor::new(x)?);
                let axes: Vec<usize> = (0..x.rank()).rev().collect();
                copies.push(CopyDescriptor::new(x.permute(&axes)?)?);
            }
            copies.push(CopyDescriptor::new(dense)?.layout("y", gaps)?);
            copies.push(CopyDescriptor::slice(dense, vec![1, 3], vec![60, 40], Vec::new())?);
            for copy in &copies {
                let name = format!("copy of {dtype}");
                variants.add_work(&name, copy_strided(copy.valid(), props, Ask::Pinned), props);
                variants.add_work(&name, copy_tiles(copy.valid(), props, Ask::Pinned), props);
            }
            let joined = ConcatDescriptor::new(vec![dense, dense.permute(&[0, 1])?], 1)?;
            variants.add_work(&format!("concat of {dtype}"), concat(joined.valid(), props), props);
            let modes = [PadMode::Constant(1.0), PadMode::Reflect, PadMode::Replicate, PadMode::Circular];
            for (x, mode) in [dense, odd, higher].into_iter().flat_map(|x| modes.map(|mode| (x, mode))) {
                let name = format!("pad of {dtype}");
                let mut around = vec![0; x.rank()];
                around[0] = 1;
                variants.add_work(
                    &name,
                    pad(PadDescriptor::new(x, around.clone(), around.clone(), mode)?.valid(), props),
                    props,
                );
                around.fill(1);
                variants.add_work(
                    &name,
                    pad(PadDescriptor::new(x, around.clone(), around, mode)?.valid(), props),
                    props,
                );
            }
            let none = TensorDesc::contiguous(dtype, &[0, 4])?;
            let filled = PadDescriptor::new(none, vec![3, 0], vec![0, 1], PadMode::Constant(1.0))?;
            variants.add_work(&format!("pad of {dtype}"), pad(filled.valid(), props), props);
        }
    }
    Ok(())
}
