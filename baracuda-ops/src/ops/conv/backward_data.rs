//! The descriptor and the operands of the gradient of the data.

use super::geometry::{Contracting, Contraction};
use super::{ConvWindow, Pass, Shape, declare_gradient, leave_out, product_kernels, retyped, table, window_fields};
use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::operands::args;
use crate::ops::accumulation::by_beta;
use crate::ops::fields::relay;
use crate::ops::valid::{Described, Op, Valid, descriptor, fields, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

window_fields! {
    /// The fields of the gradient of the data.
    DataFields<Pass, Shape>: dy, weight, dx;
    beta: Real = default,
}

impl DataFields {
    fn normalise(&mut self, op: &Op<Pass>) -> Result<()> {
        let Self { dy, weight, dx, layouts, .. } = self;
        relay(op.name, layouts, [("dy", dy), ("weight", weight), ("dx", dx)])?;
        self.normalise_window(self.dx.rank());
        by_beta(op.name, &mut self.accumulate, "dx", &mut self.beta)
    }

    fn declare(&self, op: &Op<Pass>, slots: &mut SlotsBuilder<'_>) -> Result<Shape> {
        let [x, weight] = [(table::DX, &self.dx), (table::WEIGHT, &self.weight)];
        declare_gradient(op, slots, [x, weight], &self.dy, &self.window(), self.beta)
    }
}

descriptor! {
    /// The gradient of x of a [`ConvDescriptor`](super::ConvDescriptor). See the [formulas and operands](super).
    ///
    /// It is the transposed convolution of dy, which with a bias, an activation and output padding is
    /// [`ConvTransposeDescriptor`](super::conv_transpose::ConvTransposeDescriptor). With a stride above 1 several extents have a convolution of the extents of
    /// dy, so that those of dx are given:
    ///
    /// ```
    /// use baracuda_ops::{ConvBackwardDataDescriptor, ConvWindow, DType, TensorDesc};
    /// let small = TensorDesc::contiguous(DType::F32, &[8, 64, 14, 14])?;
    /// let weight = TensorDesc::contiguous(DType::F32, &[64, 32, 3, 3])?;
    /// let large = TensorDesc::contiguous(DType::F32, &[8, 32, 28, 28])?;
    /// let window = ConvWindow::new().stride(&[2, 2]).padding(&[1, 1]);
    /// let upsampling = ConvBackwardDataDescriptor::new(small, weight, large, window)?;
    /// # let _ = upsampling;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ConvBackwardDataDescriptor(DataFields): "conv_backward_data", Pass::Data;
    args: ConvBackwardDataArgs of table;
    plan: ConvBackwardDataPlan;
    kernels: product_kernels();
    flops: |valid: &Valid<DataFields>| valid.derived.flops();
    /// The gradient `dx` of the input of a convolution with `weight` whose output has the gradient `dy`.
    ///
    /// # Errors
    /// As [`ConvDescriptor::new`](super::ConvDescriptor::new) with dx as x, and [`Error::InvalidDescriptor`] if dy has not the extents of
    /// its output; if dy or dx is neither of weight's type nor f32; if dx addresses an element twice.
    fn new(dy: TensorDesc, weight: TensorDesc, dx: TensorDesc, window: ConvWindow) =
        DataFields::with_window(dy, weight, dx, window);
}

impl Contracting for ConvBackwardDataDescriptor {
    fn contraction(&self) -> Contraction {
        Contraction::gradient(&self.0, self.0.fields.beta)
    }
}

shared_steps! { ConvBackwardDataDescriptor: beta, accumulate_by_beta, layout }

steps! { ConvBackwardDataDescriptor
    /// The type of the gradient, whose layout does not change.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither weight's nor f32; for f64, if it is not f64.
    dx(dtype: DType) = |it| {
        let dx = retyped(it.op.name, "dx", &it.fields.dx, dtype)?;
        it.with(|f| f.dx = dx)
    };
}

args! {
    /// Operands of [`ConvBackwardDataDescriptor`]; their shapes and types are in the [tables](super).
    ConvBackwardDataArgs of table {
        /// The operands that every gradient of the data has.
        new(weight, dy, dx);
    }
}
