//! How the spatial extents of `[N, C, spatial..]` lie, as kernels see them, but for the references.

use crate::tensor::TensorDesc;

/// The one stride to which the spatial extents collapse; 1 where none is longer than 1, or where there are no elements.
///
/// # Errors
/// Why they do not.
pub(crate) fn spatial_stride(desc: &TensorDesc) -> Result<u64, String> {
    if desc.is_empty() {
        return Ok(1);
    }
    let mut stride: Option<(u64, u64)> = None;
    for (&dim, &step) in desc.dims()[2..].iter().zip(&desc.strides()[2..]).rev().filter(|(dim, _)| **dim != 1) {
        match &mut stride {
            None => stride = Some((step, dim)),
            // An extent further out continues where the inner ones end.
            Some((inner, extent)) if inner.checked_mul(*extent) == Some(step) => *extent *= dim,
            Some(_) => {
                return Err(format!(
                    "the spatial extents {:?} with strides {:?} do not collapse to one; copy it to a contiguous or channels-last tensor",
                    &desc.dims()[2..],
                    &desc.strides()[2..]
                ));
            }
        }
    }
    Ok(stride.map_or(1, |(step, _)| step))
}
