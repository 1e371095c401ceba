//! The descriptor and the operands of the gradient of the data.

use serde::{Deserialize, Serialize};

use super::geometry::Contraction;
use super::{ConvWindow, Shape, Window, access, backward_data_kernels, is_one_group, normalise, one_group, retyped};
use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::operands::{args, operands};
use crate::ops::fields::{beside_factors, float, in_range, is_zero, relaid};
use crate::ops::valid::{Described, Fields, Op, Valid, descriptor, steps};
use crate::slots::{Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;

operands! { $
    /// Operands of the gradient of the data.
    mod table {
        WEIGHT weight: In, always => "Weight.";
        DY dy: In, always => "Gradient of y.";
        DX dx: Out, always => "Gradient of x.";
    }
}

/// The fields of the descriptor, in the order of its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(expecting = "an object with the fields of the descriptor", deny_unknown_fields)]
pub(crate) struct DataFields {
    pub(super) dy: TensorDesc,
    pub(super) weight: TensorDesc,
    pub(super) dx: TensorDesc,
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

impl Fields for DataFields {
    type Kind = ();
    type Derived = Shape;

    fn layouts(&mut self) -> &mut Layouts {
        &mut self.layouts
    }

    fn normalise(&mut self, op: &Op<()>) -> Result<()> {
        for (field, desc) in [("dy", &mut self.dy), ("weight", &mut self.weight), ("dx", &mut self.dx)] {
            *desc = relaid(op.name, field, &mut self.layouts, *desc)?;
        }
        normalise(self.dx.rank(), &mut self.stride, &mut self.dilation, &mut self.padding);
        Ok(())
    }

    fn declare(&self, op: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Shape> {
        let (dy, weight, dx) = (self.dy, self.weight, self.dx);
        float(op.name, "weight", &weight)?;
        for (field, desc) in [("dy", &dy), ("dx", &dx)] {
            beside_factors(op.name, field, desc.dtype(), ("weight", weight.dtype()))?;
        }
        let window =
            Window { stride: &self.stride, dilation: &self.dilation, padding: &self.padding, groups: self.groups };
        let shape = Shape::new(op.name, ("dx", &dx), ("weight", &weight), window)?;
        shape.check_dy(op.name, &dy, "dx with weight")?;
        in_range(op.name, "beta", self.beta, &weight)?;
        slots.declare(table::WEIGHT, weight)?;
        slots.declare(table::DY, dy)?;
        slots.declare_as(access(self.beta), table::DX, dx)?;
        Ok(shape)
    }
}

descriptor! {
    /// The gradient of x of a [`ConvDescriptor`](super::ConvDescriptor). See the [formulas and operands](super).
    ///
    /// It is the transposed convolution of dy, as decoders use it to make images larger. Its weight `[Co, Ci / groups, kernel..]` has the channels
    /// that come in first, as in PyTorch's `ConvTranspose2d`. With a stride above 1 several extents have a convolution of the extents of dy,
    /// so that those of dx are given, which is what others call output padding:
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
    ConvBackwardDataDescriptor(DataFields): "conv_backward_data", ();
    args: ConvBackwardDataArgs of table;
    plan: ConvBackwardDataPlan;
    kernels: backward_data_kernels();
    flops: |valid: &Valid<DataFields>| valid.derived.flops();
}

impl ConvBackwardDataDescriptor {
    /// The gradient `dx` of the input of a convolution with `weight` whose output has the gradient `dy`.
    ///
    /// # Errors
    /// As [`ConvDescriptor::new`](super::ConvDescriptor::new) with dx as x, and [`Error::InvalidDescriptor`] if dy has not the extents of
    /// its output; if dy or dx is neither of weight's type nor f32; if dx addresses an element twice.
    pub fn new(dy: TensorDesc, weight: TensorDesc, dx: TensorDesc, window: ConvWindow) -> Result<Self> {
        let ConvWindow { stride, dilation, padding, groups } = window;
        let (beta, layouts) = (Real::default(), Layouts::new());
        Self::of(DataFields { dy, weight, dx, stride, dilation, padding, groups, beta, layouts })
    }

    pub(super) fn of(fields: DataFields) -> Result<Self> {
        Valid::new(Self::OP, fields).map(Self)
    }

    /// What the kernels compute.
    pub(super) fn contraction(&self) -> Contraction {
        let Valid { fields, derived, slots, .. } = &self.0;
        Contraction::backward_data(derived, slots, fields.beta.get())
    }
}

steps! { ConvBackwardDataDescriptor
    /// The type of the gradient, which lies as before.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither weight's nor f32; for f64, if it is not f64.
    dx(dtype: DType) = |it| {
        let dx = retyped(&it.fields.dx, dtype).map_err(|error| error.of_operand(it.op.name, "dx"))?;
        it.with(|f| f.dx = dx)
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
    /// Operands of [`ConvBackwardDataDescriptor`]; their shapes and types are in the [tables](super).
    ConvBackwardDataArgs of table {
        /// The operands that every gradient of the data has.
        new(weight, dy, dx);
    }
}
