//! The descriptor and the operands of the gradient of the weight.

use serde::{Deserialize, Serialize};

use super::geometry::Contraction;
use super::{ConvWindow, Shape, Window, access, backward_weight_kernels, is_one_group, normalise, one_group, retyped};
use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::operands::{args, operands};
use crate::ops::fields::{beside_factors, float, in_range, is_zero, relaid};
use crate::ops::valid::{Described, Fields, Op, Valid, descriptor, steps};
use crate::slots::{Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;

operands! { $
    /// Operands of the gradient of the weight.
    mod table {
        X x: In, always => "Input.";
        DY dy: In, always => "Gradient of y.";
        DWEIGHT dweight: Out, always => "Gradient of the weight.";
    }
}

/// The fields of the descriptor, in the order of its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(expecting = "an object with the fields of the descriptor", deny_unknown_fields)]
pub(crate) struct WeightFields {
    pub(super) x: TensorDesc,
    pub(super) dy: TensorDesc,
    pub(super) dweight: TensorDesc,
    /// One for each spatial extent; none where each is 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) stride: Vec<u64>,
    /// As stride.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) dilation: Vec<u64>,
    /// Before and after each spatial extent; none where all are 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) padding: Vec<[u64; 2]>,
    #[serde(default = "one_group", skip_serializing_if = "is_one_group")]
    pub(super) groups: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) beta: Real,
    #[serde(default, skip_serializing_if = "Layouts::is_empty")]
    pub(super) layouts: Layouts,
}

impl Fields for WeightFields {
    type Kind = ();
    type Derived = Shape;

    fn layouts(&mut self) -> &mut Layouts {
        &mut self.layouts
    }

    fn normalise(&mut self, op: &Op<()>) -> Result<()> {
        for (field, desc) in [("x", &mut self.x), ("dy", &mut self.dy), ("dweight", &mut self.dweight)] {
            *desc = relaid(op.name, field, &mut self.layouts, *desc)?;
        }
        normalise(self.x.rank(), &mut self.stride, &mut self.dilation, &mut self.padding);
        Ok(())
    }

    fn declare(&self, op: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Shape> {
        let (x, dy, dweight) = (self.x, self.dy, self.dweight);
        float(op.name, "x", &x)?;
        for (field, desc) in [("dy", &dy), ("dweight", &dweight)] {
            beside_factors(op.name, field, desc.dtype(), ("x", x.dtype()))?;
        }
        let window =
            Window { stride: &self.stride, dilation: &self.dilation, padding: &self.padding, groups: self.groups };
        let shape = Shape::new(op.name, ("x", &x), ("dweight", &dweight), window)?;
        shape.check_dy(op.name, &dy, "x with dweight")?;
        in_range(op.name, "beta", self.beta, &x)?;
        slots.declare(table::X, x)?;
        slots.declare(table::DY, dy)?;
        slots.declare_as(access(self.beta), table::DWEIGHT, dweight)?;
        Ok(shape)
    }
}

descriptor! {
    /// The gradient of the weight of a [`ConvDescriptor`](super::ConvDescriptor). See the [formulas and operands](super).
    ConvBackwardWeightDescriptor(WeightFields): "conv_backward_weight", ();
    args: ConvBackwardWeightArgs of table;
    plan: ConvBackwardWeightPlan;
    kernels: backward_weight_kernels();
    flops: |valid: &Valid<WeightFields>| valid.derived.flops();
}

impl ConvBackwardWeightDescriptor {
    /// The gradient `dweight` of the weight of a convolution of `x` whose output has the gradient `dy`.
    ///
    /// # Errors
    /// As [`ConvDescriptor::new`](super::ConvDescriptor::new) with dweight as weight, and [`Error::InvalidDescriptor`] if dy has not the
    /// extents of its output; if dy or dweight is neither of x's type nor f32; if dweight addresses an element twice.
    pub fn new(x: TensorDesc, dy: TensorDesc, dweight: TensorDesc, window: ConvWindow) -> Result<Self> {
        let ConvWindow { stride, dilation, padding, groups } = window;
        let (beta, layouts) = (Real::default(), Layouts::new());
        Self::of(WeightFields { x, dy, dweight, stride, dilation, padding, groups, beta, layouts })
    }

    pub(super) fn of(fields: WeightFields) -> Result<Self> {
        Valid::new(Self::OP, fields).map(Self)
    }

    /// What the kernels compute.
    pub(super) fn contraction(&self) -> Contraction {
        let Valid { fields, derived, slots, .. } = &self.0;
        Contraction::backward_weight(derived, slots, fields.beta.get())
    }
}

steps! { ConvBackwardWeightDescriptor
    /// The type of the gradient, which lies as before.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32; for f64, if it is not f64.
    dweight(dtype: DType) = |it| {
        let dweight = retyped(&it.fields.dweight, dtype).map_err(|error| error.of_operand(it.op.name, "dweight"))?;
        it.with(|f| f.dweight = dweight)
    };
    /// Adds the gradient to `beta` times what is there; a beta of 0, the default, reads nothing.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if beta is not in the range of f32 (of f64 for f64 operands).
    beta(beta: f64) = |it| it.real("beta", beta, |f, beta| f.beta = beta);
    /// As [`ConvDescriptor::layout`](super::ConvDescriptor::layout).
    ///
    /// # Errors
    /// As [`ConvDescriptor::layout`](super::ConvDescriptor::layout).
    layout(operand: &str, desc: TensorDesc) = |it| it.layout(operand, desc);
}

args! {
    /// Operands of [`ConvBackwardWeightDescriptor`]; their shapes and types are in the [tables](super).
    ConvBackwardWeightArgs of table {
        /// The operands that every gradient of the weight has.
        new(x, dy, dweight);
    }
}
