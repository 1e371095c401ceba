//! Rules that the fields of many descriptors follow.

use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::slots::Layouts;
use crate::tensor::TensorDesc;

/// Refuses a field that breaks a rule.
pub(crate) fn require(op: &'static str, field: &'static str, holds: bool, rule: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::InvalidDescriptor { op, field, rule: rule() }) }
}

/// As [`require`], for a rule without numbers.
pub(crate) fn demand(op: &'static str, field: &'static str, holds: bool, rule: &str) -> Result<()> {
    require(op, field, holds, || rule.into())
}

/// A finite number for a field.
pub(crate) fn real(op: &'static str, field: &'static str, value: f64) -> Result<Real> {
    Real::new(value).ok_or_else(|| Error::InvalidDescriptor {
        op,
        field,
        rule: format!("must be a finite number, got {value}"),
    })
}

/// Refuses numbers that become infinite or, though they are not zero, zero in the type in which ops on `x` compute; GPUs may take
/// subnormal numbers for zero.
pub(crate) fn in_range(op: &'static str, field: &'static str, value: Real, x: &TensorDesc) -> Result<()> {
    let computed_in = x.dtype().accumulator();
    let magnitude = value.get().abs();
    let fits = magnitude == 0.0 || (f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&magnitude);
    require(op, field, fits || computed_in != DType::F32, || {
        format!(
            "must be 0 or a normal number of {computed_in}, in which this op computes, of magnitude 1.2e-38 to 3.4e38; got {:e}",
            value.get()
        )
    })
}

/// Refuses an axis that is not below the rank of an operand; a tensor of rank 0 is a line of one element along axis 0.
pub(crate) fn below_rank(op: &'static str, operand: &'static str, desc: &TensorDesc, axis: usize) -> Result<()> {
    require(op, "axis", axis < desc.rank().max(1), || match desc.rank() {
        0 => format!("must be 0 where {operand} has rank 0; got {axis}"),
        rank => format!("must be below the rank of {operand}, {rank}; got {axis}"),
    })
}

/// Requires a floating-point dtype that ops compute with.
pub(crate) fn float(op: &'static str, field: &'static str, desc: &TensorDesc) -> Result<()> {
    let dtype = desc.dtype();
    require(op, field, dtype.is_float(), || format!("must be of a floating-point type, got {dtype}"))?;
    require(op, field, dtype.is_computed(), || {
        format!(
            "{dtype} is stored and cast only; this op computes with f64, f32, f16 and bf16, to which pointwise casts"
        )
    })
}

/// Refuses tensors that are not a batch of channels.
pub(crate) fn batch_of_channels(op: &'static str, x: &TensorDesc) -> Result<()> {
    require(op, "x", (2..=5).contains(&x.rank()), || {
        format!("must be [N, C, spatial..] of rank 2 to 5, got rank {}", x.rank())
    })
}

/// Refuses weight and bias that are neither of x's type nor f32, or of two types.
pub(crate) fn parameters(
    op: &'static str,
    x: &TensorDesc,
    parameters: [(&'static str, Option<DType>); 2],
) -> Result<()> {
    let of_x = x.dtype();
    for (field, dtype) in parameters {
        let Some(dtype) = dtype else { continue };
        require(op, field, dtype == of_x || dtype == DType::F32, || match of_x {
            DType::F32 => format!("must be f32, the type of x; got {dtype}"),
            _ => format!("must be {of_x}, the type of x, or f32; got {dtype}"),
        })?;
    }
    match parameters.map(|(_, dtype)| dtype) {
        [Some(weight), Some(bias)] => {
            require(op, "bias", weight == bias, || format!("must be of the type of weight, {weight}; got {bias}"))
        }
        _ => Ok(()),
    }
}

/// The layout of a tensor beside x, unless told otherwise: x's, or the dense one where that addresses an element twice.
pub(crate) fn beside(x: &TensorDesc) -> Result<TensorDesc> {
    if x.is_injective() { Ok(*x) } else { TensorDesc::contiguous(x.dtype(), x.dims()) }
}

/// For fields that are left out of the JSON where they have the default of their type.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The eps of PyTorch's norms.
pub(super) fn default_eps() -> Real {
    Real::new(1e-5).unwrap_or_default()
}

/// The default of a factor.
pub(super) fn one() -> Real {
    Real::new(1.0).unwrap_or_default()
}

pub(super) fn is_one(value: &Real) -> bool {
    value.get() == 1.0
}

pub(super) fn is_zero(value: &Real) -> bool {
    value.get() == 0.0
}

/// Refuses types of operands beside factors that are neither T, the type of the factor `of`, nor f32.
pub(super) fn beside_factors(
    op: &'static str,
    field: &'static str,
    dtype: DType,
    (of, of_type): (&'static str, DType),
) -> Result<()> {
    let holds = dtype == of_type || (dtype == DType::F32 && of_type != DType::F64);
    require(op, field, holds, || match of_type {
        DType::F64 | DType::F32 => format!("must be {of_type}, the type of {of}; got {dtype}"),
        _ => format!("must be {of_type}, the type of {of}, or f32; got {dtype}"),
    })
}

/// Gives operands the layout that the caller has chosen, if any, where their strides are fields of the descriptor, not exceptions from a default.
pub(super) fn relay<const N: usize>(
    op: &'static str,
    layouts: &mut Layouts,
    operands: [(&'static str, &mut TensorDesc); N],
) -> Result<()> {
    for (field, desc) in operands {
        let Some(laid) = layouts.remove(field) else { continue };
        let fits = laid.dtype() == desc.dtype() && laid.dims() == desc.dims();
        require(op, field, fits, || {
            let (dtype, dims) = (desc.dtype(), desc.dims());
            format!("must be {dtype} {dims:?}, as the other fields say; got {} {:?}", laid.dtype(), laid.dims())
        })?;
        *desc = laid;
    }
    Ok(())
}
