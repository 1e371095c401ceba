//! Operands that are read and written in lines of four elements.

use super::program::{Binding, Place};
use super::work::ShaderType;
use crate::dtype::DType;
use crate::error::Reason;

fn is_half(dtype: DType) -> bool {
    dtype.size_bytes() == 2
}

/// Accessors of an operand that is read in lines.
pub(crate) fn lines_in(dtype: DType) -> [&'static str; 2] {
    if is_half(dtype) { ["line_pairs_half_in", "line_half_in"] } else { ["line_quads_f32_in", "line_f32_in"] }
}

/// Accessors of an operand that is written in lines.
pub(crate) fn lines_out(dtype: DType) -> [&'static str; 2] {
    if is_half(dtype) { ["line_pairs_half_out", "line_half_out"] } else { ["line_quads_f32_out", "line_f32_out"] }
}

/// An operand whose elements are read one at a time.
pub(crate) fn elements_in(name: &'static str, place: Place, dtype: DType) -> Binding {
    let accessor = if is_half(dtype) { "elements_half_in" } else { "elements_f32_in" };
    Binding { name, place: Some(place), accessors: [accessor; 2] }
}

/// The files that serve operands which are each of one 16-bit type or f32.
pub(crate) fn prelude(dtypes: impl IntoIterator<Item = DType>) -> Result<Vec<&'static str>, Reason> {
    let dtype = dtypes.into_iter().find(|&dtype| is_half(dtype)).unwrap_or(DType::F32);
    Ok(ShaderType::of(dtype)?.prelude())
}

/// Whether every line along an axis, an extent and a stride, is whole and starts at a multiple of four elements, if the operand does.
pub(crate) fn has_whole_lines((extent, stride): (u64, u64), others: impl IntoIterator<Item = (u64, u64)>) -> bool {
    let is_aligned = |(extent, stride): (u64, u64)| extent == 1 || stride.is_multiple_of(4);
    stride == 1 && extent.is_multiple_of(4) && others.into_iter().all(is_aligned)
}
