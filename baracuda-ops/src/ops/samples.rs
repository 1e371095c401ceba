//! How the samples of a batch lie, for forms whose choice follows from the layout: they promise bits that no other sample has a part in
//! ([`Determinism::BatchInvariant`](crate::Determinism::BatchInvariant)) only where it is the layout of a sample alone.

use crate::tensor::TensorDesc;

/// Whether samples, which the first `batch` extents number, follow one another without gaps in row-major order. If so, no extent of the batch can be
/// joined with one of a sample, the widest access that a sample allows is that of the tensor, and no stride is smaller than those in a sample. The strides of
/// extents of 1 say nothing, so that a sample alone follows, whatever batch it is from.
pub(crate) fn are_packed(desc: &TensorDesc, batch: usize) -> bool {
    let (dims, strides) = (desc.dims(), desc.strides());
    let mut next = dims.iter().skip(batch).product::<u64>();
    let of_batch = dims.iter().zip(strides).take(batch).rev();
    let in_order = of_batch.into_iter().all(|(&dim, &stride)| {
        let is_next = dim == 1 || stride == next;
        next = next.saturating_mul(dim);
        is_next
    });
    in_order && is_dense(&dims[batch.min(dims.len())..], &strides[batch.min(dims.len())..])
}

/// Whether the elements of a sample fill a run, in any order of its extents.
fn is_dense(dims: &[u64], strides: &[u64]) -> bool {
    let last = dims.iter().zip(strides).map(|(&dim, &stride)| dim.saturating_sub(1).saturating_mul(stride));
    let span = last.fold(1u64, u64::saturating_add);
    let mut extents: Vec<(u64, u64)> =
        dims.iter().copied().zip(strides.iter().copied()).filter(|&(dim, _)| dim > 1).collect();
    extents.sort_by_key(|&(_, stride)| stride);
    let mut next = 1;
    let is_run = extents.iter().all(|&(dim, stride)| {
        let is_next = stride == next;
        next = next.saturating_mul(dim);
        is_next
    });
    dims.contains(&0) || (is_run && span == next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    fn packed(dims: &[u64], strides: &[u64], batch: usize) -> bool {
        are_packed(&TensorDesc::strided(DType::F32, dims, strides).unwrap(), batch)
    }

    #[test]
    fn samples_are_packed_or_not_whatever_their_number() {
        for count in [1, 2, 7] {
            assert!(packed(&[count, 3, 4], &[12, 4, 1], 1), "dense");
            assert!(packed(&[count, 3, 4], &[12, 1, 3], 1), "samples that lie transposed");
            assert!(packed(&[count, 5, 3], &[15, 3, 1], 2), "two extents of the batch");
            assert!(packed(&[count, 3, 4], &[16, 4, 1], 1) == (count == 1), "gaps between samples");
            assert!(packed(&[count, 3, 4], &[0, 4, 1], 1) == (count == 1), "one sample that is repeated");
            assert!(packed(&[count, 3], &[1, count], 1) == (count == 1), "samples side by side");
            assert!(!packed(&[count, 3, 4], &[12, 5, 1], 1), "gaps in a sample");
        }
        assert!(packed(&[], &[], 0) && packed(&[0, 3], &[3, 1], 1) && packed(&[4, 0], &[0, 1], 1));
    }
}
