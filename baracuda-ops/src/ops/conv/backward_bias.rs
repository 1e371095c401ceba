//! The descriptor and the operands of the gradient of the bias.

use super::geometry::ChannelSums;
use super::{MAX_AXES, access, backward_bias_kernels, table};
use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::operands::args;
use crate::ops::accumulation::by_beta;
use crate::ops::fields::{float, in_range, relay, require};
use crate::ops::valid::{Described, Op, descriptor, fields, shared_steps, steps};
use crate::slots::SlotsBuilder;
use crate::tensor::TensorDesc;

fields! {
    /// The fields of the gradient of the bias.
    BiasFields: Fields<Kind = (), Derived = ()> + normalise {
        dy: TensorDesc,
        /// None is the type of dy.
        dbias: Option<DType> = default,
        beta: Real = default,
    }
}

impl BiasFields {
    fn normalise(&mut self, op: &Op<()>) -> Result<()> {
        relay(op.name, &mut self.layouts, [("dy", &mut self.dy)])?;
        self.dbias = self.dbias.filter(|&dtype| dtype != self.dy.dtype());
        by_beta(op.name, &mut self.accumulate, "dbias", &mut self.beta)
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
    /// The gradient `dbias` of the bias of a convolution whose output has the gradient `dy`, in the type of dy.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if dy is not of a floating-point type, or its rank not 3 to 5.
    fn new(dy: TensorDesc) = BiasFields::minimal(dy);
}

impl ConvBackwardBiasDescriptor {
    /// What the kernels compute.
    pub(super) fn channel_sums(&self) -> ChannelSums {
        ChannelSums::new(&self.0.fields.dy, &self.0.slots, self.0.fields.beta.get())
    }
}

shared_steps! { ConvBackwardBiasDescriptor: beta, accumulate_by_beta, layout }

steps! { ConvBackwardBiasDescriptor
    /// The type of the gradient, dy's unless told otherwise.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if the type is neither dy's nor f32, nor f16 or bf16 for a dy of f32; for f64, if it is not f64.
    dbias(dtype: DType) = |it| it.with(|f| f.dbias = Some(dtype));
}

args! {
    /// Operands of [`ConvBackwardBiasDescriptor`]; their shapes and types are in the [tables](super).
    ConvBackwardBiasArgs of table {
        /// The operands that every gradient of the bias has.
        new(dy, dbias);
    }
}
