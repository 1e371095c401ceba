//! What the ops share that move elements: types, values of inputs, and that outputs are exact.

use anyhow::Result;
use baracuda_ops::{DType, Slot, TensorDesc};

use crate::case::{Case, Data, Random};
use crate::judge::Expected;
use crate::values::Tensors;

/// Types of every size. Those of one size move alike, so that the others have fewer cases.
pub(super) const TYPES: [DType; 8] =
    [DType::F32, DType::BF16, DType::F64, DType::U8, DType::F16, DType::I64, DType::I32, DType::U32];

/// Whether a type stands for all of its size.
pub(super) fn stands_for_size(dtype: DType) -> bool {
    [DType::F32, DType::BF16, DType::F64, DType::U8].contains(&dtype)
}

/// Values that are exact in every type of their kind, no two neighbours of which agree.
pub(super) fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let dtype = slot.desc.dtype();
    let elements = slot.desc.elements();
    if dtype.is_float() {
        let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
        return Ok(case.data.rows(dtype, elements / cols, cols, random));
    }
    let (least, most) = match dtype {
        DType::I64 => (-(2f64.powi(53)), 2f64.powi(53)),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U8 => (0.0, u8::MAX.into()),
        _ => (0.0, u32::MAX.into()),
    };
    Ok((0..elements).map(|_| (least + (most - least) * random.uniform()).trunc()).collect())
}

/// Values that an output has exactly.
pub(super) fn exact(name: &str, values: Vec<f64>) -> Expected {
    Expected { name: name.into(), budgets: vec![0.0; values.len()], values }
}

/// The data of cases of a type: elements move whatever they are.
pub(super) fn data(dtype: DType) -> &'static [Data] {
    if dtype.is_float() { &[Data::Normal, Data::Nan, Data::Wide] } else { &[Data::Normal] }
}

/// The index along each extent of an element, by its number in row-major order.
pub(super) fn index(dims: &[u64], mut number: u64) -> Vec<u64> {
    let mut index = vec![0; dims.len()];
    for (at, &dim) in index.iter_mut().zip(dims).rev() {
        (*at, number) = (number % dim, number / dim);
    }
    index
}

/// The number in row-major order of an index.
pub(super) fn number(dims: &[u64], index: &[u64]) -> usize {
    dims.iter().zip(index).fold(0, |number, (dim, at)| number * dim + at) as usize
}

/// Outputs of few elements may agree by chance, and repeated ones do.
pub(super) fn is_few(desc: &TensorDesc) -> bool {
    desc.elements() < 64
}
