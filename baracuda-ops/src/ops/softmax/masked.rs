//! How the kernels of masks see their operands: lines along the axis, in any layout.

use crate::error::Result;
use crate::ops::walk::Walk;
use crate::tensor::TensorDesc;

/// Lines along an axis of operands of equal extents, which may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lines {
    /// The number of lines; 0 without elements.
    pub(crate) count: u64,
    /// Elements of a line.
    pub(crate) dim: u64,
    /// Extents of the lines, outermost first. Under a causal mask the innermost one is that of the queries.
    pub(crate) extents: Vec<u64>,
    /// Of each operand the strides of these extents, in elements.
    pub(crate) strides: Vec<Vec<u64>>,
    /// Of each operand the elements from one of a line to the next.
    pub(crate) steps: Vec<u64>,
    is_causal: bool,
}

impl Lines {
    /// `operands`: one or more.
    ///
    /// # Errors
    /// None: removing extents of a tensor leaves one.
    pub(crate) fn new(operands: &[TensorDesc], axis: usize, is_causal: bool) -> Result<Self> {
        let first = operands[0];
        let dim = first.dims().get(axis).copied().unwrap_or(1);
        let queries = if is_causal { axis.checked_sub(1) } else { None };
        let others: Vec<usize> = (0..first.rank()).filter(|&other| other != axis && Some(other) != queries).collect();
        let without = |operand: &TensorDesc| {
            let of = |values: &[u64]| others.iter().map(|&other| values[other]).collect::<Vec<_>>();
            TensorDesc::strided(operand.dtype(), &of(operand.dims()), &of(operand.strides()))
        };
        let walk = Walk::new(&operands.iter().map(without).collect::<Result<Vec<_>>>()?);
        let Walk { dims: mut extents, mut strides } = walk;
        if let Some(queries) = queries {
            extents.push(first.dims()[queries]);
            strides.iter_mut().zip(operands).for_each(|(own, operand)| own.push(operand.strides()[queries]));
        }
        let count = if first.is_empty() { 0 } else { extents.iter().product() };
        let steps = operands.iter().map(|operand| operand.strides().get(axis).copied().unwrap_or(0)).collect();
        Ok(Self { count, dim, extents, strides, steps, is_causal })
    }

    /// The extent of the queries of a causal mask.
    pub(crate) fn queries(&self) -> Option<u64> {
        self.extents.last().copied().filter(|_| self.is_causal)
    }

    /// The elements of a line that a causal mask leaves: those at the end are masked.
    pub(crate) fn visible(&self, line: u64) -> u64 {
        match self.queries() {
            None => self.dim,
            Some(queries) => (line % queries + 1 + self.dim).saturating_sub(queries),
        }
    }

    /// Where a line of an operand begins, in elements after the first.
    pub(crate) fn offset(&self, operand: usize, line: u64) -> u64 {
        let (mut rest, mut offset) = (line, 0);
        for (&extent, &stride) in self.extents.iter().zip(&self.strides[operand]).rev() {
            offset += rest % extent * stride;
            rest /= extent;
        }
        offset
    }

    /// Whether a line of an operand is whole accesses of so many neighbours.
    #[cfg(feature = "cuda")]
    pub(crate) fn has_neighbours(&self, operand: usize, width: u64) -> bool {
        let of_extents = self.strides[operand].iter().zip(&self.extents);
        self.steps[operand] == 1
            && self.dim.is_multiple_of(width)
            && of_extents.into_iter().all(|(stride, &extent)| extent == 1 || stride.is_multiple_of(width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    fn dense(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    #[test]
    fn queries_stay_an_extent_of_their_own() {
        let x = dense(&[2, 3, 4, 5]);
        let bias = dense(&[4, 5]).broadcast_to(&[2, 3, 4, 5]).unwrap();
        let lines = Lines::new(&[x, bias], 3, true).unwrap();
        assert_eq!((lines.count, lines.dim, &lines.extents[..]), (24, 5, &[6, 4][..]));
        assert_eq!((&lines.strides[0][..], &lines.strides[1][..]), (&[20, 5][..], &[0, 5][..]));
        assert_eq!((lines.offset(0, 7), lines.offset(1, 7)), (35, 15));
        assert_eq!([0, 1, 2, 3, 4].map(|line| lines.visible(line)), [2, 3, 4, 5, 2]);
        let plain = Lines::new(&[x, x], 3, false).unwrap();
        assert_eq!((&plain.extents[..], plain.visible(0), plain.queries()), (&[24][..], 5, None));
    }

    #[test]
    fn queries_beyond_the_keys_see_none_and_empty_tensors_have_no_lines() {
        let lines = Lines::new(&[dense(&[5, 2])], 1, true).unwrap();
        assert_eq!([0, 1, 2, 3, 4].map(|line| lines.visible(line)), [0, 0, 0, 1, 2]);
        for dims in [[0, 3], [3, 0]] {
            assert_eq!(Lines::new(&[dense(&dims)], 1, true).unwrap().count, 0);
        }
        let scalar = Lines::new(&[dense(&[])], 0, false).unwrap();
        assert_eq!((scalar.count, scalar.dim, scalar.extents.len()), (1, 1, 0));
    }
}
