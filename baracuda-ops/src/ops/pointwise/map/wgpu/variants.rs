//! The texts of the kernels, for the tests that validate them.

use super::super::{PointwiseDescriptor, Valid};
use super::{dense, strided};
use crate::backend::wgpu::{Props, Variants};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::Ask;
use crate::ops::pointwise::program::{Distribution, Function, Program};
use crate::tensor::TensorDesc;

/// Both forms of a program.
fn add(variants: &mut Variants, name: &str, valid: &Valid, props: &Props) {
    variants.add_work(name, dense(valid, props, Ask::Pinned), props);
    variants.add_work(name, strided(valid, props, Ask::Pinned), props);
}

/// Inputs of a function, numbers as this one, if it is computed of such numbers.
pub(super) fn inputs_of(function: Function, x: TensorDesc) -> Result<Option<Vec<TensorDesc>>> {
    let of = |argument| match function.takes_bool(argument) {
        true => TensorDesc::contiguous(DType::Bool, x.dims()),
        false => Ok(x),
    };
    let computing = if x.dtype().size_bytes() == 1 { DType::I32 } else { x.dtype().accumulator() };
    function.computes_in(computing).then(|| (0..function.arity()).map(of).collect()).transpose()
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

/// Every function that is computed in a type, in as few programs as can hold them.
fn all(computing: DType) -> Result<Vec<Program>> {
    let of = |functions: &[Function]| {
        let mut b = Program::builder();
        let inputs = ["x", "y", "z"].map(|name| b.input(name));
        let (mut last, mut condition) = (inputs[0], b.call(Function::Ne, [inputs[0], inputs[1]]));
        for &function in functions {
            let arguments = [last, inputs[1], inputs[2]].into_iter().enumerate();
            let arguments = arguments.map(|(at, number)| if function.takes_bool(at) { condition } else { number });
            let result = b.call(function, arguments.take(function.arity()));
            *(if function.gives_bool() { &mut condition } else { &mut last }) = result;
        }
        b.finish([last, condition])
    };
    let functions: Vec<Function> =
        Function::ALL.into_iter().filter(|function| function.computes_in(computing)).collect();
    functions.chunks(Program::MAX_INSTRUCTIONS - 1).map(of).collect()
}

/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops::pointwise) fn add_variants(variants: &mut Variants) -> Result<()> {
    const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
    const CASTS: [DType; 8] =
        [DType::F32, DType::F16, DType::BF16, DType::I32, DType::U32, DType::U8, DType::I8, DType::Bool];
    let [several, numbers] = programs()?;
    for props in &Variants::devices() {
        for dtype in TYPES {
            let x = TensorDesc::contiguous(dtype, &[16, 64])?;
            let (row, column) = (TensorDesc::contiguous(dtype, &[64])?, TensorDesc::contiguous(dtype, &[16, 1])?);
            let (one, odd) = (TensorDesc::contiguous(dtype, &[])?, TensorDesc::contiguous(dtype, &[16, 63])?);
            let turned = TensorDesc::strided(dtype, &[16, 64], &[1, 16])?;
            for function in Function::ALL {
                let name = format!("{} of {dtype}", function.name());
                if let Some(inputs) = inputs_of(function, x)? {
                    add(variants, &name, &PointwiseDescriptor::new(Program::of(function), inputs)?.0, props);
                }
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
        for computing in [DType::F32, DType::I32, DType::U32] {
            let x = TensorDesc::contiguous(computing, &[1024])?;
            for program in all(computing)? {
                add(
                    variants,
                    &format!("all functions of {computing}"),
                    &PointwiseDescriptor::new(program, vec![x; 3])?.0,
                    props,
                );
            }
        }
        for dtype in [DType::I32, DType::U32, DType::U8, DType::I8, DType::Bool] {
            let name = format!("program of {dtype}");
            for dims in [&[16, 64][..], &[16, 63], &[]] {
                let x = TensorDesc::contiguous(dtype, dims)?;
                for function in Function::ALL.into_iter().filter(|_| dtype != DType::Bool && dims.len() == 2) {
                    if let Some(inputs) = inputs_of(function, x)? {
                        let name = format!("{} of {dtype}", function.name());
                        add(variants, &name, &PointwiseDescriptor::new(Program::of(function), inputs)?.0, props);
                    }
                }
                let mut b = Program::builder();
                let same = b.input("x");
                let casts = PointwiseDescriptor::new(b.finish([same; 4])?, vec![x])?;
                for outputs in CASTS.as_chunks::<4>().0 {
                    add(variants, &name, &casts.clone().outputs(outputs.to_vec())?.0, props);
                }
            }
            let turned = TensorDesc::strided(dtype, &[16, 64], &[1, 16])?;
            let gaps = TensorDesc::strided(dtype, &[16, 64], &[128, 2])?;
            let mut b = Program::builder();
            let [x, y] = ["x", "y"].map(|name| b.input(name));
            let spread = PointwiseDescriptor::new(b.finish([x, y])?, vec![turned, gaps])?.layout("out0", gaps)?;
            add(variants, &name, &spread.0, props);
        }
        for distribution in [
            Distribution::Uniform,
            Distribution::Normal,
            Distribution::Exponential,
            Distribution::Bernoulli { p: 0.5 },
            Distribution::RandInt { low: 3, high: 1000 },
        ] {
            let mut b = Program::builder();
            let [x, seed, offset] = ["x", "seed", "offset"].map(|name| b.input(name));
            let (drawn, index) = (b.random(distribution, seed, offset, 0), b.index(1));
            let condition = match distribution {
                Distribution::Bernoulli { .. } => drawn,
                _ => b.call(Function::Lt, [drawn, index]),
            };
            let y = b.call(Function::Where, [condition, x, index]);
            let program = b.finish([y])?;
            let keys = [TensorDesc::contiguous(DType::U32, &[2])?, TensorDesc::contiguous(DType::U32, &[])?];
            for dims in [[16, 64], [16, 63]] {
                let inputs = vec![TensorDesc::contiguous(DType::F32, &dims)?, keys[0], keys[1]];
                add(variants, "program with sources", &PointwiseDescriptor::new(program.clone(), inputs)?.0, props);
            }
        }
        let mixed: Vec<_> = TYPES.iter().map(|&dtype| TensorDesc::contiguous(dtype, &[1024])).collect::<Result<_>>()?;
        let halves = vec![mixed[1], mixed[2], mixed[1]];
        add(variants, "program of mixed types", &PointwiseDescriptor::new(several.clone(), mixed)?.0, props);
        let halves = PointwiseDescriptor::new(several.clone(), halves)?.outputs(vec![TYPES[1], TYPES[2], TYPES[2]])?;
        add(variants, "program of mixed types", &halves.0, props);
    }
    Ok(())
}
