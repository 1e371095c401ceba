//! The descriptor and the operands of the gradient of the bias.

use serde::{Deserialize, Serialize};

use super::geometry::ChannelSums;
use super::{MAX_AXES, access, backward_bias_kernels};
use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::operands::{args, operands};
use crate::ops::fields::{float, in_range, is_zero, relaid, require};
use crate::ops::valid::{Described, Fields, Op, Valid, descriptor, steps};
use crate::slots::{Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;

operands! { $
    /// Operands of the gradient of the bias.
    mod table {
        DY dy: In, always => "Gradient of y.";
        DBIAS dbias: Out, always => "Gradient of the bias.";
    }
}

/// The fields of the descriptor, in the order of its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(expecting = "an object with the fields of the descriptor", deny_unknown_fields)]
pub(crate) struct BiasFields {
    pub(super) dy: TensorDesc,
    /// None is the type of dy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dbias: Option<DType>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) beta: Real,
    #[serde(default, skip_serializing_if = "Layouts::is_empty")]
    pub(super) layouts: Layouts,
}

impl Fields for BiasFields {
    type Kind = ();
    type Derived = ();

    fn layouts(&mut self) -> &mut Layouts {
        &mut self.layouts
    }

    fn normalise(&mut self, op: &Op<()>) -> Result<()> {
        self.dy = relaid(op.name, "dy", &mut self.layouts, self.dy)?;
        self.dbias = self.dbias.filter(|&dtype| dtype != self.dy.dtype());
        Ok(())
    }

    fn declare(&self, op: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<()> {
        let dy = self.dy;
        float(op.name, "dy", &dy)?;
        require(op.name, "dy", (3..=2 + MAX_AXES).contains(&dy.rank()), || {
            format!("must be [N, C, spatial..] of rank 3 to {}, got rank {}", 2 + MAX_AXES, dy.rank())
        })?;
        let (of_dy, dtype) = (dy.dtype(), self.dbias.unwrap_or(dy.dtype()));
        // A dy of f32 may be that of a convolution in 16 bits.
        let narrow = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
        let is_mixed = (narrow(of_dy) && dtype == DType::F32) || (of_dy == DType::F32 && narrow(dtype));
        require(op.name, "dbias", dtype == of_dy || is_mixed, || match of_dy {
            DType::F64 => format!("must be f64, the type of dy; got {dtype}"),
            DType::F32 => format!("must be f32, the type of dy, f16 or bf16; got {dtype}"),
            _ => format!("must be {of_dy}, the type of dy, or f32; got {dtype}"),
        })?;
        in_range(op.name, "beta", self.beta, &dy)?;
        slots.declare(table::DY, dy)?;
        let dbias = slots.derived(table::DBIAS, TensorDesc::contiguous(dtype, &dy.dims()[1..2]))?;
        slots.declare_as(access(self.beta), table::DBIAS, dbias)?;
        Ok(())
    }
}

descriptor! {
    /// The gradient of the bias of a [`ConvDescriptor`](super::ConvDescriptor). See the [formulas and operands](super).
    ConvBackwardBiasDescriptor(BiasFields): "conv_backward_bias", ();
    args: ConvBackwardBiasArgs of table;
    plan: ConvBackwardBiasPlan;
    kernels: backward_bias_kernels();
}

impl ConvBackwardBiasDescriptor {
    /// The gradient `dbias` of the bias of a convolution whose output has the gradient `dy`, in the type of dy.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if dy is not of a floating-point type, or its rank not 3 to 5.
    pub fn new(dy: TensorDesc) -> Result<Self> {
        Self::of(BiasFields { dy, dbias: None, beta: Real::default(), layouts: Layouts::new() })
    }

    pub(super) fn of(fields: BiasFields) -> Result<Self> {
        Valid::new(Self::OP, fields).map(Self)
    }

    /// What the kernels compute.
    pub(super) fn channel_sums(&self) -> ChannelSums {
        ChannelSums::new(&self.0.fields.dy, &self.0.slots, self.0.fields.beta.get())
    }
}

steps! { ConvBackwardBiasDescriptor
    /// The type of the gradient, dy's unless told otherwise.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither dy's nor f32, nor f16 or bf16 for a dy of f32; for f64, if it is not f64.
    dbias(dtype: DType) = |it| it.with(|f| f.dbias = Some(dtype));
    /// As [`ConvBackwardDataDescriptor::beta`](super::ConvBackwardDataDescriptor::beta).
    ///
    /// # Errors
    /// As [`ConvBackwardDataDescriptor::beta`](super::ConvBackwardDataDescriptor::beta).
    beta(beta: f64) = |it| it.real("beta", beta, |f, beta| f.beta = beta);
    /// As [`ConvDescriptor::layout`](super::ConvDescriptor::layout).
    ///
    /// # Errors
    /// As [`ConvDescriptor::layout`](super::ConvDescriptor::layout).
    layout(operand: &str, desc: TensorDesc) = |it| it.layout(operand, desc);
}

args! {
    /// Operands of [`ConvBackwardBiasDescriptor`]; their shapes and types are in the [tables](super).
    ConvBackwardBiasArgs of table {
        /// The operands that every gradient of the bias has.
        new(dy, dbias);
    }
}
