//! The texts of the kernels, for the tests that validate them.

use super::super::sets::through_wgpu;
use super::super::{ReduceDescriptor, Reduction, Valid};
use super::{columns, rows};
use crate::backend::wgpu::{Props, Variants};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::Ask;
use crate::ops::pointwise::program::{Function, Program};
use crate::tensor::TensorDesc;

/// Both forms of a reduction.
fn add(variants: &mut Variants, name: &str, valid: &Valid, props: &Props) {
    variants.add_work(name, rows(valid, props, Ask::Pinned), props);
    variants.add_work(name, columns(valid, props, Ask::Pinned), props);
}

/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    let mut b = Program::builder();
    let [x, y] = ["x", "y"].map(|name| b.input(name));
    let product = b.call(Function::Mul, [x, y]);
    let gated = b.call(Function::Sigmoid, [product]);
    let program = b.finish([gated])?;
    for props in &Variants::devices() {
        for dtype in [DType::I32, DType::U32, DType::U8, DType::I8, DType::Bool] {
            let dense = |dims: &[u64]| TensorDesc::contiguous(dtype, dims);
            let whole = Reduction::ALL.into_iter().filter(|reduce| !reduce.row().is_of_floats());
            for reduce in whole {
                let name = format!("{} of {dtype}", reduce.name());
                for (x, axes) in [(dense(&[16, 64])?, [0]), (dense(&[3, 40_000])?, [1]), (dense(&[7, 33])?, [0])] {
                    let made = ReduceDescriptor::of(x, &axes, reduce)?;
                    // Products of 64 bits have no shader.
                    let is_product = reduce == Reduction::Prod && dtype != DType::Bool;
                    let made = if is_product { made.output(DType::I32)? } else { made };
                    add(variants, &name, &made.0, props);
                }
            }
        }
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let dense = |dims: &[u64]| TensorDesc::contiguous(dtype, dims);
            let (x, long, odd) = (dense(&[16, 64])?, dense(&[3, 40_000])?, dense(&[7, 33])?);
            let higher = TensorDesc::strided(dtype, &[2, 3, 5, 2, 8], &[1000, 2, 7, 500, 50])?;
            for reduce in Reduction::ALL {
                let name = format!("{} of {dtype}", reduce.name());
                for (x, axes) in [(x, [0]), (x, [1]), (long, [1]), (odd, [0])] {
                    add(variants, &name, &ReduceDescriptor::of(x, &axes, reduce)?.0, props);
                }
            }
            let name = format!("sum of {dtype}");
            for (x, axes) in [
                (higher, &[1, 3][..]),
                (higher, &[0, 1, 2, 3, 4]),
                (x, &[0, 1]),
                (dense(&[])?, &[]),
                (dense(&[5, 0])?, &[1]),
            ] {
                add(variants, &name, &ReduceDescriptor::of(x, axes, Reduction::Mean)?.0, props);
            }
            let x_long = dense(&[40_000, 3])?;
            for reduce in [Reduction::CountNonzero, Reduction::ArgMax] {
                add(variants, &name, &ReduceDescriptor::of(x_long, &[0], reduce)?.output(DType::U32)?.0, props);
            }
            let counted = ReduceDescriptor::of(x, &[1], Reduction::CountNonzero)?.output(dtype)?;
            add(variants, &name, &counted.0, props);
            // What becomes of results, and several sets.
            let root = ReduceDescriptor::of(x, &[1], Reduction::Mean)?.finish(Program::of(Function::Sqrt))?;
            let compared = ReduceDescriptor::of(long, &[1], Reduction::Var)?.finish(Program::of(Function::IsFinite))?;
            for made in [root, compared] {
                add(variants, "finish", &made.0, props);
            }
            let sets = vec![vec![dense(&[])?], vec![long], vec![dense(&[0])?]];
            for reduce in [Reduction::Norm2, Reduction::Max] {
                let made = ReduceDescriptor::of(x, &[0, 1], reduce)?.sets(sets.clone())?;
                variants.add_work("sets", through_wgpu(&made.0, props, Ask::Pinned), props);
            }
            let narrowed = if dtype == DType::F32 { DType::BF16 } else { DType::F32 };
            for axes in [vec![0], vec![1]] {
                for other in [x, dense(&[64])?, dense(&[16, 1])?, dense(&[])?] {
                    let sum = ReduceDescriptor::new(program.clone(), vec![x, other], axes.clone(), Reduction::Sum)?;
                    add(variants, &name, &sum.0, props);
                    add(variants, &name, &sum.output(narrowed)?.0, props);
                }
            }
        }
    }
    Ok(())
}
