//! How the elements of several operands lie towards each other.

use crate::tensor::TensorDesc;

/// The elements of operands of equal extents, in an order that all of them share: extents that one stride of every operand walks through are joined,
/// and the one along which the first operand's elements are nearest to each other is innermost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// Extents, outermost first. None is 1; a tensor of one element has none.
    pub(crate) dims: Vec<u64>,
    /// Of each operand the strides in elements, one for each extent; 0 where its elements are repeated.
    pub(crate) strides: Vec<Vec<u64>>,
}

impl Walk {
    /// The walk of operands of equal extents. Extents beside one of 0 do not count.
    pub(crate) fn new(operands: &[TensorDesc]) -> Self {
        let Some(first) = operands.first() else { return Self { dims: Vec::new(), strides: Vec::new() } };
        if first.is_empty() {
            return Self { dims: vec![0], strides: vec![vec![0]; operands.len()] };
        }
        let mut axes: Vec<usize> = (0..first.rank()).filter(|&axis| first.dims()[axis] != 1).collect();
        // The sort is stable: extents that the first operand repeats keep their order.
        axes.sort_by_key(|&axis| std::cmp::Reverse(first.strides()[axis]));
        let mut joined: Vec<(u64, usize)> = Vec::with_capacity(axes.len()); // extent, and the axis whose strides it has
        for axis in axes {
            let dim = first.dims()[axis];
            match joined.last_mut() {
                Some((extent, before)) if operands.iter().all(|operand| continues(operand, *before, axis)) => {
                    (*extent, *before) = (*extent * dim, axis);
                }
                _ => joined.push((dim, axis)),
            }
        }
        let strides = |operand: &TensorDesc| joined.iter().map(|&(_, axis)| operand.strides()[axis]).collect();
        Self { dims: joined.iter().map(|&(dim, _)| dim).collect(), strides: operands.iter().map(strides).collect() }
    }

    /// The number of elements.
    pub(crate) fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Where an operand's element at a position of the walk lies, in elements after its first.
    pub(crate) fn offset(&self, operand: usize, mut position: u64) -> u64 {
        let mut offset = 0;
        for (&dim, &stride) in self.dims.iter().zip(&self.strides[operand]).rev() {
            offset += position % dim * stride;
            position /= dim;
        }
        offset
    }

    /// Whether an operand's elements lie next to each other in the order of the walk.
    #[cfg(any(feature = "wgpu", test))]
    pub(crate) fn is_dense(&self, operand: usize) -> bool {
        matches!((&self.dims[..], &self.strides[operand][..]), ([], []) | ([_], [1]))
    }

    /// Whether an operand is one element that is repeated everywhere.
    pub(crate) fn is_repeated(&self, operand: usize) -> bool {
        self.strides[operand].iter().all(|&stride| stride == 0)
    }
}

/// Whether stepping over the extent of `axis` is a step along `before`.
fn continues(operand: &TensorDesc, before: usize, axis: usize) -> bool {
    operand.strides()[axis].checked_mul(operand.dims()[axis]) == Some(operand.strides()[before])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    fn strided(dims: &[u64], strides: &[u64]) -> TensorDesc {
        TensorDesc::strided(DType::F32, dims, strides).unwrap()
    }

    #[test]
    fn dense_operands_are_one_run_in_any_order_of_their_extents() {
        for x in [
            TensorDesc::contiguous(DType::F32, &[2, 3, 1, 4]).unwrap(),
            TensorDesc::channels_last(DType::F32, &[2, 3, 1, 4]).unwrap(),
            strided(&[2, 3, 4], &[1, 2, 6]),
        ] {
            let walk = Walk::new(&[x, x]);
            assert_eq!((&walk.dims[..], walk.is_dense(1)), (&[24][..], true), "{x:?}");
        }
        let one = TensorDesc::contiguous(DType::F32, &[1, 1]).unwrap();
        assert_eq!((Walk::new(&[one]).elements(), Walk::new(&[one]).is_dense(0)), (1, true));
        assert_eq!(Walk::new(&[strided(&[3, 0, 7], &[0, 1, 1])]).elements(), 0);
    }

    #[test]
    fn repeated_and_transposed_extents_stay_apart() {
        let (y, row, column) = (strided(&[2, 3, 4], &[12, 4, 1]), [0, 0, 1], [0, 1, 0]);
        let walk =
            Walk::new(&[y, strided(&[2, 3, 4], &row), strided(&[2, 3, 4], &column), strided(&[2, 3, 4], &[0; 3])]);
        assert_eq!(walk.dims, [2, 3, 4]);
        let walk = Walk::new(&[y, strided(&[2, 3, 4], &row), strided(&[2, 3, 4], &[0; 3])]);
        assert_eq!((&walk.dims[..], &walk.strides[1][..]), (&[6, 4][..], &[0, 1][..]));
        assert!(walk.is_repeated(2) && !walk.is_repeated(1) && !walk.is_dense(0));
        let transposed = Walk::new(&[y, strided(&[2, 3, 4], &[1, 2, 6])]);
        assert_eq!((&transposed.dims[..], &transposed.strides[1][..]), (&[2, 3, 4][..], &[1, 2, 6][..]));
    }
}
