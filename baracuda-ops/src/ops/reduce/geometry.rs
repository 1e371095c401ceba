//! How the operands of a reduction lie towards each other along the axes that stay and along those that are reduced.

use super::OUTPUT;
use super::reduction::Row;
use super::sets::Set;
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::pointwise::program::Program;
use crate::ops::walk::Walk;
use crate::slots::Slots;
use crate::tensor::TensorDesc;

/// What follows from the fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Geometry {
    pub(crate) program: Program,
    /// The inputs, each with the extents that they broadcast to.
    pub(crate) inputs: Vec<TensorDesc>,
    /// The type in which the program computes: f32, f64, i32, u32 or i64.
    pub(crate) computing: DType,
    /// What becomes of the values; of bools it is not what the descriptor's reduction has.
    pub(crate) row: Row,
    /// The values that are reduced to one.
    pub(crate) count: u64,
    /// What a mean of them is divided by.
    pub(crate) divisor: u64,
    /// What becomes of a result, in which the count is a number.
    pub(crate) finish: Option<Program>,
    /// Where there are several sets, each of them; the count is then that of all.
    pub(super) sets: Vec<Set>,
    /// The output and the inputs along the axes that stay.
    kept: Vec<TensorDesc>,
    /// The inputs along the axes that are reduced.
    reduced: Vec<TensorDesc>,
    /// The output with the extents of the inputs: repeated along the reduced axes.
    repeated: Vec<u64>,
}

impl Geometry {
    /// `is_kept`: of each axis whether it is reduced and stays in the output with an extent of 1. `correction`: what a count is lessened by.
    pub(super) fn new(
        program: Program,
        inputs: Vec<TensorDesc>,
        (output, is_kept): (TensorDesc, &[bool]),
        axes: &[usize],
        computing: DType,
        (row, correction): (Row, u64),
    ) -> Result<Self> {
        let dims: Vec<u64> = inputs.first().map(|input| input.dims().to_vec()).unwrap_or_default();
        let (reduced, stay): (Vec<usize>, Vec<usize>) = (0..dims.len()).partition(|axis| axes.contains(axis));
        let part = |desc: &TensorDesc, axes: &[usize], strides: &[u64]| {
            let of_axes = |of: &[u64]| axes.iter().map(|&axis| of[axis]).collect::<Vec<_>>();
            TensorDesc::strided(desc.dtype(), &of_axes(&dims), &of_axes(strides))?.align(desc.align_bytes())
        };
        let mut own = output.strides().iter();
        let repeated: Vec<u64> = (0..dims.len())
            .map(|axis| {
                let is_reduced = axes.contains(&axis);
                let stride = if is_reduced && !is_kept[axis] { 0 } else { own.next().copied().unwrap_or_default() };
                if is_reduced { 0 } else { stride }
            })
            .collect();
        let mut kept = vec![part(&output, &stay, &repeated)?];
        for input in &inputs {
            kept.push(part(input, &stay, input.strides())?);
        }
        let of_reduced = inputs.iter().map(|input| part(input, &reduced, input.strides())).collect::<Result<_>>()?;
        let count = reduced.iter().map(|&axis| dims[axis]).product::<u64>();
        let divisor = count.saturating_sub(correction);
        Ok(Self {
            program,
            inputs,
            computing,
            row,
            count,
            divisor,
            finish: None,
            sets: Vec::new(),
            kept,
            reduced: of_reduced,
            repeated,
        })
    }

    /// The extents that the inputs broadcast to.
    pub(crate) fn dims(&self) -> &[u64] {
        self.inputs.first().map_or(&[], TensorDesc::dims)
    }

    /// The output, and what has its type and layout, as it is read along the inputs' extents.
    pub(super) fn repeated_output(&self) -> Result<TensorDesc> {
        TensorDesc::strided(self.kept[0].dtype(), self.dims(), &self.repeated)?.align(self.kept[0].align_bytes())
    }

    /// The first of the inputs that hold most elements, in whose order all are read.
    pub(super) fn largest(&self) -> usize {
        let elements = |input: &TensorDesc| input.distinct_bytes() / input.dtype().size_bytes();
        let most = self.inputs.iter().map(elements).max();
        self.inputs.iter().position(|input| Some(elements(input)) == most).unwrap_or_default()
    }

    /// The output, then the inputs, along the axes that stay.
    pub(super) fn kept(&self) -> Walk {
        led(&self.kept, 1 + self.largest())
    }

    /// The inputs along the axes that are reduced: in the order in which the largest lies or, where positions count, in row-major order.
    pub(super) fn reduced(&self) -> Walk {
        match self.reduced.first() {
            Some(first) if self.row.combine.is_position() => match TensorDesc::contiguous(DType::U8, first.dims()) {
                Ok(positions) => led_by(positions, &self.reduced),
                Err(_) => led(&self.reduced, self.largest()),
            },
            _ => led(&self.reduced, self.largest()),
        }
    }

    /// Elements of the output.
    pub(super) fn outputs(slots: &Slots) -> u64 {
        slots.always(OUTPUT).desc.elements()
    }
}

/// The walk of operands in the order in which one of them lies.
fn led(operands: &[TensorDesc], leader: usize) -> Walk {
    operands.get(leader).map_or_else(|| Walk::new(operands), |&leader| led_by(leader, operands))
}

/// The walk of operands in the order of another tensor of their extents.
fn led_by(leader: TensorDesc, operands: &[TensorDesc]) -> Walk {
    let mut walk = Walk::new(&[&[leader], operands].concat());
    walk.strides.remove(0);
    walk
}
