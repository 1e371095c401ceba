//! How rows lie in memory, as GPU kernels are told.

#[cfg(feature = "cuda")]
use baracuda_ops_sys::bops_row_strides;

use crate::error::Reason;
use crate::tensor::{MAX_RANK, TensorDesc};

/// Rows as the GPU kernels see them: `rows` rows of `cols` contiguous elements; row `(i0, i1, i2)` of a tensor starts
/// `i0 * s0 + i1 * s1 + i2 * s2` elements after its first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "only GPU kernels need it"))]
pub(crate) struct RowGeometry {
    pub(crate) rows: u64,
    pub(crate) cols: u64,
    /// The two inner ones of the three row extents; the outer one is `rows` divided by both.
    pub(crate) extents: [u64; 2],
    /// Strides of each tensor, in the order given.
    pub(crate) strides: Vec<[u64; 3]>,
    /// The widest vector in bytes, at most 16, in which every row of every tensor can be moved.
    pub(crate) vector_bytes: u64,
}

#[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "only GPU kernels need it"))]
impl RowGeometry {
    /// The rows of tensors of equal extents, of which the last `normalized_dims` make a row.
    ///
    /// # Errors
    /// A row is not dense, or more than three strides tell where rows start.
    pub(crate) fn new(tensors: &[&TensorDesc], normalized_dims: usize) -> Result<Self, Reason> {
        let dims = tensors[0].dims();
        let (outer, inner) = dims.split_at(dims.len() - normalized_dims);
        let cols: u64 = inner.iter().product();
        let rows: u64 = outer.iter().product();
        for tensor in tensors {
            let mut dense = 1;
            for (&dim, &stride) in inner.iter().zip(&tensor.strides()[outer.len()..]).rev() {
                Reason::unless(dim <= 1 || stride == dense, || {
                    format!(
                        "the normalized extents {inner:?} are not dense: stride {stride}, not {dense}; copy that operand to a dense tensor"
                    )
                })?;
                dense *= dim.max(1);
            }
        }
        // Row extents that one stride of every tensor walks through are one axis. Outermost first.
        let mut axes = [(1, 0); MAX_RANK]; // extent, and the axis of the tensors whose strides it has
        let mut count = 0;
        // Extents between which there are no rows may be too large for kernels.
        for (axis, &dim) in outer.iter().enumerate().filter(|(_, dim)| **dim != 1 && rows > 0) {
            let continues = |(_, before): (u64, usize)| {
                tensors.iter().all(|t| t.strides()[axis].checked_mul(dim) == Some(t.strides()[before]))
            };
            if count > 0 && continues(axes[count - 1]) {
                axes[count - 1] = (axes[count - 1].0 * dim, axis);
            } else {
                axes[count] = (dim, axis);
                count += 1;
            }
        }
        Reason::unless(count <= 3, || {
            format!(
                "the row extents {outer:?} collapse to {count} strided ones, the limit is 3; copy the operands to one dense layout, or permute the extents of all alike"
            )
        })?;
        let axes = &axes[..count];
        let strides_of = |tensor: &&TensorDesc| {
            let mut strides = [0; 3];
            for (stride, (_, axis)) in strides[3 - count..].iter_mut().zip(axes) {
                *stride = tensor.strides()[*axis];
            }
            strides
        };
        let strides: Vec<[u64; 3]> = tensors.iter().map(strides_of).collect();
        let extent = |from_last: usize| count.checked_sub(from_last).map_or(1, |at| axes[at].0);
        let mut multiple = 16 | (cols * tensors[0].dtype().size_bytes());
        for tensor in tensors {
            multiple |= tensor.align_bytes();
            for (_, axis) in axes.iter().filter(|(extent, _)| *extent > 1) {
                multiple |= tensor.strides()[*axis] * tensor.dtype().size_bytes();
            }
        }
        let vector_bytes = 1 << multiple.trailing_zeros();
        Ok(Self { rows, cols, extents: [extent(2), extent(1)], strides, vector_bytes })
    }
}

/// Extents and strides of `N` tensors for the CUDA kernels. If there is one row extent only, it is outermost, for which kernels have a short path.
#[cfg(feature = "cuda")]
pub(crate) fn c_rows<const N: usize>(
    rows: u64,
    extents: [u64; 2],
    strides: &[[u64; 3]],
) -> ([u64; 2], [bops_row_strides; N]) {
    let is_lone = extents == [1, rows];
    let of_tensor = |tensor: usize| match strides.get(tensor) {
        Some(&[_, _, s2]) if is_lone => bops_row_strides { s0: s2, s1: 0, s2: 0 },
        Some(&[s0, s1, s2]) => bops_row_strides { s0, s1, s2 },
        None => bops_row_strides::default(),
    };
    (if is_lone { [1, 1] } else { extents }, std::array::from_fn(of_tensor))
}

/// Threads of a CUDA block that hold a row of so many vectors, one each: a power of two up to 32, or a multiple of 32.
#[cfg(feature = "cuda")]
pub(crate) fn threads_for(vectors: u64) -> u64 {
    if vectors <= 32 { vectors.max(1).next_power_of_two() } else { vectors.next_multiple_of(32) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::error::Result;

    fn geometry(descs: &[TensorDesc], normalized_dims: usize) -> Result<RowGeometry, Reason> {
        RowGeometry::new(&descs.iter().collect::<Vec<_>>(), normalized_dims)
    }

    #[test]
    fn dense_rows_collapse_to_one_stride() {
        let x = TensorDesc::contiguous(DType::BF16, &[4, 1, 8, 3, 64]).unwrap();
        let rows = geometry(&[x, x], 2).unwrap();
        assert_eq!((rows.rows, rows.cols, rows.extents), (32, 192, [1, 32]));
        assert_eq!((rows.strides[1], rows.vector_bytes), ([0, 0, 192], 16));
    }

    #[test]
    fn transposed_heads_keep_three_strides() {
        let (b, s, h, d) = (2, 5, 3, 8);
        let x = TensorDesc::strided(DType::F16, &[b, h, s, d], &[s * h * d, d, h * d, 1]).unwrap();
        let y = TensorDesc::contiguous(DType::F16, &[b, h, s, d]).unwrap();
        let rows = geometry(&[x, y], 1).unwrap();
        assert_eq!(rows.extents, [3, 5]);
        assert_eq!(rows.strides, [[120, 8, 24], [120, 40, 8]]);
    }

    #[test]
    fn odd_rows_move_in_narrow_vectors() {
        let x = TensorDesc::contiguous(DType::F16, &[4, 7]).unwrap();
        assert_eq!(geometry(&[x], 1).unwrap().vector_bytes, 2);
        let padded = TensorDesc::strided(DType::F16, &[4, 12], &[16, 1]).unwrap();
        assert_eq!(geometry(&[padded], 1).unwrap().vector_bytes, 8);
        let shifted = TensorDesc::contiguous(DType::F32, &[4, 8]).unwrap().for_offset(4).unwrap();
        assert_eq!(geometry(&[shifted], 1).unwrap().vector_bytes, 4);
    }

    #[test]
    fn says_why_a_layout_does_not_collapse() {
        let columns = TensorDesc::strided(DType::F32, &[4, 8], &[1, 4]).unwrap();
        assert!(geometry(&[columns], 1).unwrap_err().to_string().contains("not dense"));
        let scattered = TensorDesc::strided(DType::F32, &[2, 2, 2, 2, 4], &[1000, 300, 90, 20, 1]).unwrap();
        assert!(geometry(&[scattered], 1).unwrap_err().to_string().contains("limit is 3"));
    }
}
