//! How the GPU kernels see a tensor: `[outer, dim, inner]` about the axis.

use crate::dtype::DType;
use crate::error::Reason;
use crate::ops::rows::RowGeometry;
use crate::slots::Slot;
use crate::tensor::TensorDesc;

/// The operands of a pass as GPU kernels compute with them.
pub(crate) struct Tensors {
    /// The type of y, in which kernels count elements, accesses and chunks.
    pub(crate) dtype: DType,
    /// The type of x, or of dx.
    pub(crate) other: DType,
    /// All of `dtype`, in the order of the operands.
    pub(crate) descs: Vec<TensorDesc>,
}

impl Tensors {
    /// Where x, or dx, is of 16 bits and y is f32, kernels move it in accesses of half as many bytes, as many elements: it counts as f32
    /// elements of twice its promised alignment.
    ///
    /// # Errors
    /// It has too many elements to be counted so.
    pub(crate) fn of(slots: &[Slot]) -> Result<Self, Reason> {
        let dtype = slots.iter().find(|slot| slot.name == "y").map_or(DType::F32, |y| y.desc.dtype());
        let other = slots.iter().find(|slot| slot.name.ends_with('x')).map_or(dtype, |x| x.desc.dtype());
        let times = dtype.size_bytes() / other.size_bytes();
        let read = |desc: &TensorDesc| {
            if desc.dtype() == dtype {
                return Ok(*desc);
            }
            let wide = TensorDesc::strided(dtype, desc.dims(), desc.strides());
            // At most 4096 is promised, and 16 is all that kernels use.
            wide.and_then(|wide| wide.align((times * desc.align_bytes()).min(4096)))
        };
        let descs = slots.iter().map(|slot| read(&slot.desc)).collect::<Result<_, _>>();
        Ok(Self { dtype, other, descs: descs.map_err(|error| Reason::from(error.to_string()))? })
    }

    pub(crate) fn geometry(&self, axis: usize) -> Result<Geometry, Reason> {
        Geometry::new(&self.descs.iter().collect::<Vec<_>>(), axis)
    }
}

/// Lines along the axis as GPU kernels take them: `outer` blocks of `dim` runs of `inner` contiguous elements; a line takes one element of each run of
/// a block. Block `(i0, i1, i2)` of a tensor starts `i0 * s0 + i1 * s1 + i2 * s2` elements after its first. If the axis is dense, each line is a row:
/// `inner` is 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// 0 without elements.
    pub(crate) outer: u64,
    pub(crate) dim: u64,
    pub(crate) inner: u64,
    /// The two inner of the three outer extents; the outermost one is `outer` divided by both.
    pub(crate) extents: [u64; 2],
    /// Strides of the blocks of each tensor, in the order given.
    pub(crate) strides: Vec<[u64; 3]>,
    /// Elements of each tensor between the elements of a line.
    pub(crate) steps: Vec<u64>,
    /// The widest vector in bytes, at most 16, in which every row or run of every tensor can be moved.
    pub(crate) vector_bytes: u64,
}

impl Geometry {
    const EMPTY: Self =
        Self { outer: 0, dim: 0, inner: 1, extents: [1, 1], strides: Vec::new(), steps: Vec::new(), vector_bytes: 16 };

    fn of_rows(RowGeometry { rows, cols, extents, strides, vector_bytes }: RowGeometry) -> Self {
        Self { outer: rows, dim: cols, inner: 1, extents, steps: vec![1; strides.len()], strides, vector_bytes }
    }

    #[cfg(any(feature = "wgpu", test))]
    pub(crate) fn is_rows(&self) -> bool {
        self.inner == 1
    }

    /// The lines along `axis` of tensors of equal extents and types, of which the last is written. A tensor of rank 0 is one element.
    ///
    /// # Errors
    /// Why the layouts are neither.
    pub(crate) fn new(tensors: &[&TensorDesc], axis: usize) -> Result<Self, Reason> {
        let Some(output) = tensors.last().filter(|output| !output.is_empty()) else { return Ok(Self::EMPTY) };
        let dims = output.dims();
        if dims.is_empty() {
            return rows(tensors, &[], 1).map(Self::of_rows);
        }
        let strides_of = |axis: usize| tensors.iter().map(move |t| t.strides()[axis]);
        // From the outermost to the innermost in memory: the order in which lines are taken is free.
        let mut others: Vec<usize> = (0..dims.len()).filter(|&other| other != axis && dims[other] > 1).collect();
        others.sort_by_key(|&other| std::cmp::Reverse(output.strides()[other]));
        let mut inner = 1;
        let mut blocks = others.as_slice();
        while let Some((&other, rest)) = blocks.split_last()
            && strides_of(other).all(|stride| stride == inner)
        {
            inner *= dims[other];
            blocks = rest;
        }
        if strides_of(axis).all(|stride| stride == 1) || (dims[axis] == 1 && inner == 1) {
            return rows(tensors, &others, dims[axis]).map(Self::of_rows);
        }
        Reason::unless(inner > 1, || {
            let strides: Vec<_> = tensors.iter().map(|t| t.strides()).collect();
            format!(
                "neither axis {axis} nor what it strides over is dense in every operand: strides {strides:?}; give all the layout of one, by a copy or by the field layouts"
            )
        })?;
        let RowGeometry { rows: outer, extents, strides, .. } = rows(tensors, blocks, 1)?;
        let steps: Vec<u64> = strides_of(axis).collect();
        let bytes = output.dtype().size_bytes();
        let mut multiple = 16 | (inner * bytes);
        for ((tensor, strides), step) in tensors.iter().zip(&strides).zip(&steps) {
            multiple |= tensor.align_bytes();
            multiple |= strides.iter().fold(step * bytes, |all, stride| all | (stride * bytes));
        }
        let vector_bytes = 1 << multiple.trailing_zeros();
        Ok(Self { outer, dim: dims[axis], inner, extents, strides, steps, vector_bytes })
    }
}

/// Whether lines along an axis are certain to be rows: it is dense in every operand.
fn is_dense(slots: &[Slot], axis: usize) -> bool {
    slots.iter().all(|slot| slot.desc.strides().get(axis).is_none_or(|&stride| stride == 1))
}

/// Refuses lines that are no rows, where that is known before anything is computed.
pub(super) fn check_rows(slots: &[Slot], axis: usize) -> Result<(), Reason> {
    let is_long = slots[0].desc.dims().get(axis).is_some_and(|&dim| dim > 1);
    Reason::unless(!is_long || is_dense(slots, axis), || "it takes rows, and the axis is not dense")
}

/// Refuses lines that are rows, where that is known before anything is computed.
pub(super) fn check_channels(slots: &[Slot], axis: usize) -> Result<(), Reason> {
    Reason::unless(!is_dense(slots, axis), || "it takes lines that lie side by side, and the axis is dense")
}

/// Rows of `cols` elements over the extents `axes`.
fn rows(tensors: &[&TensorDesc], axes: &[usize], cols: u64) -> Result<RowGeometry, Reason> {
    let view = |tensor: &&TensorDesc| {
        let of = |values: &[u64], last| axes.iter().map(|&axis| values[axis]).chain([last]).collect::<Vec<_>>();
        let view = TensorDesc::strided(tensor.dtype(), &of(tensor.dims(), cols), &of(tensor.strides(), 1));
        view.and_then(|view| view.align(tensor.align_bytes())).map_err(|error| Reason::from(error.to_string()))
    };
    let views = tensors.iter().map(view).collect::<Result<Vec<_>, _>>()?;
    RowGeometry::new(&views.iter().collect::<Vec<_>>(), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    fn geometry(descs: &[TensorDesc], axis: usize) -> Result<Geometry, Reason> {
        Geometry::new(&descs.iter().collect::<Vec<_>>(), axis)
    }

    fn rows(descs: &[TensorDesc], axis: usize) -> Geometry {
        let geometry = geometry(descs, axis).unwrap();
        assert!(geometry.is_rows() && geometry.outer > 0, "{geometry:?}");
        geometry
    }

    fn channels(descs: &[TensorDesc], axis: usize) -> Geometry {
        let geometry = geometry(descs, axis).unwrap();
        assert!(!geometry.is_rows(), "{geometry:?}");
        geometry
    }

    #[test]
    fn the_last_axis_and_channels_last_are_rows() {
        let dense = TensorDesc::contiguous(DType::F16, &[4, 3, 40]).unwrap();
        let last = TensorDesc::channels_last(DType::F16, &[2, 40, 3, 2]).unwrap();
        for (desc, axis) in [(dense, 2), (last, 1)] {
            let of = rows(&[desc, desc], axis);
            assert_eq!((of.outer, of.dim, of.strides[1], of.vector_bytes), (12, 40, [0, 0, 40], 16));
            assert_eq!(of.steps, [1, 1]);
        }
    }

    #[test]
    fn a_tensor_of_rank_0_is_a_row_of_one_element() {
        let x = TensorDesc::contiguous(DType::BF16, &[]).unwrap();
        let of = rows(&[x, x], 0);
        assert_eq!((of.outer, of.dim, of.vector_bytes), (1, 1, 2));
    }

    #[test]
    fn channels_stride_over_what_collapses() {
        let x = TensorDesc::contiguous(DType::BF16, &[8, 21, 16, 2]).unwrap();
        let of = channels(&[x, x], 1);
        assert_eq!((of.outer, of.dim, of.inner, of.vector_bytes), (8, 21, 32, 16));
        assert_eq!((&of.steps[..], of.strides[0]), (&[32, 32][..], [0, 0, 672]));
        let first = channels(&[x, x], 0);
        assert_eq!((first.outer, first.dim, first.inner), (1, 8, 672));
        let padded = TensorDesc::strided(DType::BF16, &[8, 21, 16, 2], &[1344, 64, 4, 1]).unwrap();
        let of = channels(&[x, padded], 1);
        assert_eq!((of.outer, of.dim, of.inner, of.extents, of.vector_bytes), (128, 21, 2, [8, 16], 4));
        assert_eq!((of.strides[0], of.strides[1]), ([0, 672, 2], [0, 1344, 4]));
    }

    #[test]
    fn one_channel_is_moved_along_what_is_dense() {
        let x = TensorDesc::contiguous(DType::F32, &[3, 1, 20]).unwrap();
        assert_eq!(channels(&[x, x], 1).inner, 60);
    }

    #[test]
    fn says_why_a_layout_is_neither() {
        let x = TensorDesc::contiguous(DType::F32, &[4, 5]).unwrap();
        let transposed = TensorDesc::strided(DType::F32, &[4, 5], &[1, 4]).unwrap();
        assert!(geometry(&[x, transposed], 1).unwrap_err().to_string().contains("dense"));
        assert_eq!(geometry(&[TensorDesc::contiguous(DType::F32, &[0, 3]).unwrap()], 0), Ok(Geometry::EMPTY));
    }
}
