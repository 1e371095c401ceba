//! How the operands of a scan lie along the axis and along the others.

use crate::dtype::DType;
use crate::error::Result;
use crate::ops::walk::Walk;
use crate::tensor::TensorDesc;

/// What follows from the fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Geometry {
    /// The type in which values are combined: f32, f64, or i64 of all integers and Bool.
    pub(crate) computing: DType,
    /// Positions of a line.
    pub(crate) length: u64,
    /// Of y, x and the indices, if there are any, the stride along the axis.
    pub(crate) steps: Vec<u64>,
    /// The same operands along the other axes.
    pub(crate) others: Vec<TensorDesc>,
}

impl Geometry {
    /// `operands`: y, x and the indices, if there are any. A tensor of rank 0 is a line of one element.
    pub(super) fn new(operands: &[TensorDesc], axis: usize, computing: DType) -> Result<Self> {
        let (mut steps, mut others, mut length) = (Vec::new(), Vec::new(), 1);
        for desc in operands {
            let stay = || (0..desc.rank()).filter(|&at| at != axis);
            let of = |numbers: &[u64]| stay().map(|at| numbers[at]).collect::<Vec<_>>();
            let (dims, strides) = (of(desc.dims()), of(desc.strides()));
            others.push(TensorDesc::strided(desc.dtype(), &dims, &strides)?.align(desc.align_bytes())?);
            steps.push(desc.strides().get(axis).copied().unwrap_or(1));
            length = desc.dims().get(axis).copied().unwrap_or(1);
        }
        Ok(Self { computing, length, steps, others })
    }

    /// The operands along the other axes, in the order in which y lies.
    pub(super) fn lines(&self) -> Walk {
        Walk::new(&self.others)
    }

    /// Whether elements of y are nearer to each other along another axis.
    pub(super) fn has_columns(&self) -> bool {
        let lines = self.lines();
        let (nearest, line) = (lines.strides[0].last(), lines.dims.last());
        self.length > 1 && nearest.is_some_and(|&stride| stride < self.steps[0]) && line.is_some_and(|&line| line > 1)
    }
}
