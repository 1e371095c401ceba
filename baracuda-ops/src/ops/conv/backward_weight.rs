//! The descriptor and the operands of the gradient of the weight.

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
    /// The fields of the gradient of the weight.
    WeightFields<Pass, Shape>: x, dy, dweight;
    beta: Real = default,
}

impl WeightFields {
    fn normalise(&mut self, op: &Op<Pass>) -> Result<()> {
        let Self { x, dy, dweight, layouts, .. } = self;
        relay(op.name, layouts, [("x", x), ("dy", dy), ("dweight", dweight)])?;
        self.normalise_window(self.x.rank());
        by_beta(op.name, &mut self.accumulate, "dweight", &mut self.beta)
    }

    fn declare(&self, op: &Op<Pass>, slots: &mut SlotsBuilder<'_>) -> Result<Shape> {
        let [x, weight] = [(table::X, &self.x), (table::DWEIGHT, &self.dweight)];
        declare_gradient(op, slots, [x, weight], &self.dy, &self.window(), self.beta)
    }
}

descriptor! {
    /// The gradient of the weight of a [`ConvDescriptor`](super::ConvDescriptor). See the [formulas and operands](super).
    ConvBackwardWeightDescriptor(WeightFields): "conv_backward_weight", Pass::Weight;
    args: ConvBackwardWeightArgs of table;
    plan: ConvBackwardWeightPlan;
    kernels: product_kernels();
    flops: |valid: &Valid<WeightFields>| valid.derived.flops();
    /// The gradient `dweight` of the weight of a convolution of `x` whose output has the gradient `dy`.
    ///
    /// # Errors
    /// As [`ConvDescriptor::new`](super::ConvDescriptor::new) with dweight as weight, and [`Error::InvalidDescriptor`] if dy has not the
    /// extents of its output; if dy or dweight is neither of x's type nor f32; if dweight addresses an element twice.
    fn new(x: TensorDesc, dy: TensorDesc, dweight: TensorDesc, window: ConvWindow) =
        WeightFields::with_window(x, dy, dweight, window);
}

impl Contracting for ConvBackwardWeightDescriptor {
    fn contraction(&self) -> Contraction {
        Contraction::gradient(&self.0, self.0.fields.beta)
    }
}

shared_steps! { ConvBackwardWeightDescriptor: beta, accumulate_by_beta, layout }

steps! { ConvBackwardWeightDescriptor
    /// The type of the gradient, whose layout does not change.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32; for f64, if it is not f64.
    dweight(dtype: DType) = |it| {
        let dweight = retyped(it.op.name, "dweight", &it.fields.dweight, dtype)?;
        it.with(|f| f.dweight = dweight)
    };
}

args! {
    /// Operands of [`ConvBackwardWeightDescriptor`]; their shapes and types are in the [tables](super).
    ConvBackwardWeightArgs of table {
        /// The operands that every gradient of the weight has.
        new(x, dy, dweight);
    }
}
