//! The texts of the kernels, for the tests that validate them.

use super::super::{PointwiseDescriptor, Valid};
use super::{dense, strided};
use crate::backend::wgpu::{Props, Variants};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::Ask;
use crate::ops::pointwise::program::{Function, Program};
use crate::tensor::TensorDesc;

/// Both forms of a program.
fn add(variants: &mut Variants, name: &str, valid: &Valid, props: &Props) {
    variants.add_work(name, dense(valid, props, Ask::Pinned), props);
    variants.add_work(name, strided(valid, props, Ask::Pinned), props);
}

/// Programs of several outputs, and of numbers of every kind.
pub(super) fn programs() -> Result<[Program; 2]> {
    let mut b = Program::builder();
    let [x, y, z] = ["x", "y", "z"].map(|name| b.input(name));
    let product = b.call(Function::Mul, [x, y]);
    let sum = b.call(Function::Add, [product, z]);
    let several = b.finish([sum, x, product])?;
    let mut b = Program::builder();
    let x = b.input("x");
    let numbers = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, 1e-45, 0.1];
    let results = numbers.map(|number| b.call(Function::Mul, [x, number.into()]));
    Ok([several, b.finish(results)?])
}

/// Every function, in as few programs as can hold them.
fn all() -> Result<Vec<Program>> {
    let of = |functions: &[Function]| {
        let mut b = Program::builder();
        let inputs = ["x", "y", "z"].map(|name| b.input(name));
        let mut last = inputs[0];
        for &function in functions {
            let arguments = [last, inputs[1], inputs[2]];
            last = b.call(function, arguments.into_iter().take(function.arity()));
        }
        b.finish([last])
    };
    Function::ALL.chunks(Program::MAX_INSTRUCTIONS).map(of).collect()
}

/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops::pointwise) fn add_variants(variants: &mut Variants) -> Result<()> {
    const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
    let [several, numbers] = programs()?;
    for props in &Variants::devices() {
        for dtype in TYPES {
            let x = TensorDesc::contiguous(dtype, &[16, 64])?;
            let (row, column) = (TensorDesc::contiguous(dtype, &[64])?, TensorDesc::contiguous(dtype, &[16, 1])?);
            let (one, odd) = (TensorDesc::contiguous(dtype, &[])?, TensorDesc::contiguous(dtype, &[16, 63])?);
            let turned = TensorDesc::strided(dtype, &[16, 64], &[1, 16])?;
            for function in Function::ALL {
                let name = format!("{} of {dtype}", function.name());
                let inputs = vec![x; function.arity()];
                add(variants, &name, &PointwiseDescriptor::new(Program::of(function), inputs)?.0, props);
            }
            let name = format!("program of {dtype}");
            add(variants, &name, &PointwiseDescriptor::new(numbers.clone(), vec![x])?.0, props);
            for inputs in [[x, x, x], [x, one, x], [x, row, column], [x, turned, one], [odd, odd, one]] {
                add(variants, &name, &PointwiseDescriptor::new(several.clone(), inputs.to_vec())?.0, props);
            }
            // Outputs with gaps.
            let gaps = TensorDesc::strided(dtype, &[16, 64], &[128, 2])?;
            let spread = PointwiseDescriptor::unary(Function::Neg, x)?.layout("out0", gaps)?;
            add(variants, &name, &spread.0, props);
            let higher = TensorDesc::strided(dtype, &[2, 3, 5, 2, 8], &[1000, 2, 7, 500, 50])?;
            add(variants, &name, &PointwiseDescriptor::unary(Function::Neg, higher)?.0, props);
        }
        let x = TensorDesc::contiguous(DType::F32, &[1024])?;
        for program in all()? {
            add(variants, "all functions", &PointwiseDescriptor::new(program, vec![x; 3])?.0, props);
        }
        let mixed: Vec<_> = TYPES.iter().map(|&dtype| TensorDesc::contiguous(dtype, &[1024])).collect::<Result<_>>()?;
        let halves = vec![mixed[1], mixed[2], mixed[1]];
        add(variants, "program of mixed types", &PointwiseDescriptor::new(several.clone(), mixed)?.0, props);
        let halves = PointwiseDescriptor::new(several.clone(), halves)?.outputs(vec![TYPES[1], TYPES[2], TYPES[2]])?;
        add(variants, "program of mixed types", &halves.0, props);
    }
    Ok(())
}
