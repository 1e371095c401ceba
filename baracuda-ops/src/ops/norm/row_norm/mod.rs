//! What LayerNorm and RMSNorm share: fields, operands, geometry, and the glue of their kernels.
//!
//! Both normalise rows: the last k extents of `x`. LayerNorm is RMSNorm of the centred row, so that one set of kernels serves both.

use serde::{Deserialize, Serialize};

use crate::dtype::{DType, Real};
use crate::error::Result;
use crate::ops::fields::{beside, float, in_range, is_false, parameter, require, same_parameter_type};
use crate::plan::{Access, Descriptor, Kernel};
use crate::slots::{Layouts, Slots, SlotsBuilder};
use crate::tensor::TensorDesc;

pub(super) mod cpu;
#[cfg(feature = "cuda")]
pub(super) mod cuda;
#[cfg(feature = "wgpu")]
pub(crate) mod wgpu;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::wgsl_variants;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RowNorm {
    /// LayerNorm: subtracts the mean.
    Layer,
    /// RMSNorm.
    Rms,
}

/// Positions of the forward operands.
pub(crate) mod forward {
    pub(crate) const OPERANDS: &[&str] = &["x", "residual", "weight", "bias", "y", "h", "mean", "rstd"];
    pub(crate) const X: usize = 0;
    pub(crate) const RESIDUAL: usize = 1;
    pub(crate) const WEIGHT: usize = 2;
    pub(crate) const BIAS: usize = 3;
    pub(crate) const Y: usize = 4;
    pub(crate) const H: usize = 5;
    pub(crate) const MEAN: usize = 6;
    pub(crate) const RSTD: usize = 7;
}

/// Positions of the backward operands.
pub(crate) mod backward {
    pub(crate) const OPERANDS: &[&str] = &["dy", "x", "weight", "mean", "rstd", "dh", "dx", "dweight", "dbias"];
    pub(crate) const DY: usize = 0;
    pub(crate) const X: usize = 1;
    pub(crate) const WEIGHT: usize = 2;
    pub(crate) const MEAN: usize = 3;
    pub(crate) const RSTD: usize = 4;
    pub(crate) const DH: usize = 5;
    pub(crate) const DX: usize = 6;
    pub(crate) const DWEIGHT: usize = 7;
    pub(crate) const DBIAS: usize = 8;
}

/// Gradients that a backward computes.
///
/// ```
/// use baracuda_ops::{DType, Descriptor, Gradients, LayerNormDescriptor, TensorDesc};
/// let x = TensorDesc::contiguous(DType::F32, &[8, 64])?;
/// let forward = LayerNormDescriptor::new(x, 1)?.weight(DType::F32)?.stats()?;
/// let mut wanted = Gradients::ALL;
/// wanted.dx = false; // nothing before this op learns
/// let names: Vec<_> = forward.backward(wanted)?.slots().iter().map(|slot| slot.name).collect();
/// assert_eq!(names, ["dy", "x", "weight", "mean", "rstd", "dweight"]);
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gradients {
    /// That of the input (and of the residual, where it is the same).
    pub dx: bool,
    /// That of the residual, if forward has one whose gradient is not dx.
    pub dresidual: bool,
    /// That of the weight, if forward has one.
    pub dweight: bool,
    /// That of the bias, if forward has one.
    pub dbias: bool,
}

impl Gradients {
    /// Every gradient; a parameter that forward lacks has none.
    pub const ALL: Self = Self { dx: true, dresidual: true, dweight: true, dbias: true };
    /// Those of the input and of the residual alone.
    pub const INPUT: Self = Self { dx: true, dresidual: true, dweight: false, dbias: false };
    /// Those of the parameters alone.
    pub const PARAMETERS: Self = Self { dx: false, dresidual: false, dweight: true, dbias: true };
}

fn is_zero(value: &Real) -> bool {
    value.get() == 0.0
}

fn zero() -> Real {
    Real::default()
}

/// The fields of a forward descriptor, in the order of its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(expecting = "an object with the fields of the descriptor", deny_unknown_fields)]
pub(crate) struct ForwardFields {
    pub(crate) x: TensorDesc,
    pub(crate) normalized_dims: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<DType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bias: Option<DType>,
    pub(crate) eps: Real,
    #[serde(default = "zero", skip_serializing_if = "is_zero")]
    pub(crate) weight_offset: Real,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) stats: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) residual: bool,
    #[serde(default, skip_serializing_if = "Layouts::is_empty")]
    pub(crate) layouts: Layouts,
}

/// The fields of a backward descriptor, in the order of its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(expecting = "an object with the fields of the descriptor", deny_unknown_fields)]
pub(crate) struct BackwardFields {
    pub(crate) x: TensorDesc,
    pub(crate) normalized_dims: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<DType>,
    #[serde(default = "zero", skip_serializing_if = "is_zero")]
    pub(crate) weight_offset: Real,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) dx: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) dweight: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dbias: Option<DType>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) dh: bool,
    #[serde(default, skip_serializing_if = "Layouts::is_empty")]
    pub(crate) layouts: Layouts,
}

/// A forward or backward whose fields have been validated, with the slots that follow from them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Valid<F> {
    pub(crate) kind: RowNorm,
    pub(crate) fields: F,
    pub(crate) slots: Slots,
}

/// A forward descriptor of the family.
pub(crate) trait Forward: Descriptor {
    fn valid(&self) -> &Valid<ForwardFields>;
}

/// A backward descriptor of the family.
pub(crate) trait Backward: Descriptor {
    fn valid(&self) -> &Valid<BackwardFields>;
}

/// The kernels of a forward, in the order in which they are tried.
pub(super) fn forward_kernels<D: Forward>() -> &'static [&'static dyn Kernel<D>] {
    &[
        #[cfg(feature = "cuda")]
        &cuda::Cuda,
        #[cfg(feature = "wgpu")]
        &wgpu::Wgpu,
        &cpu::Reference,
    ]
}

/// The kernels of a backward, in the order in which they are tried.
pub(super) fn backward_kernels<D: Backward>() -> &'static [&'static dyn Kernel<D>] {
    &[
        #[cfg(feature = "cuda")]
        &cuda::CudaBackward,
        #[cfg(feature = "wgpu")]
        &wgpu::WgpuBackward,
        &cpu::BackwardReference,
    ]
}

/// The extents of the statistics and of the parameters.
fn split<'x>(op: &'static str, x: &'x TensorDesc, normalized_dims: usize) -> Result<(&'x [u64], &'x [u64])> {
    require(op, "normalized_dims", (1..=x.rank()).contains(&normalized_dims), || {
        format!("must be from 1 to the rank of x, {}; got {normalized_dims}", x.rank())
    })?;
    Ok(x.dims().split_at(x.rank() - normalized_dims))
}

fn offset_needs_weight(op: &'static str, offset: Real, weight: Option<DType>) -> Result<()> {
    require(op, "weight_offset", is_zero(&offset) || weight.is_some(), || {
        format!("needs a weight to be added to; got {}", offset.get())
    })
}

impl Valid<ForwardFields> {
    /// The plainest forward of `x`: no parameters, no statistics, eps 1e-5.
    pub(crate) fn plain(kind: RowNorm, op: &'static str, x: TensorDesc, normalized_dims: usize) -> Result<Self> {
        let eps = Real::new(1e-5).unwrap_or_default();
        let fields = ForwardFields {
            x,
            normalized_dims,
            weight: None,
            bias: None,
            eps,
            weight_offset: zero(),
            stats: false,
            residual: false,
            layouts: Layouts::new(),
        };
        Self::new(kind, op, fields)
    }

    pub(crate) fn new(kind: RowNorm, op: &'static str, mut fields: ForwardFields) -> Result<Self> {
        let x = fields.x;
        float(op, "x", &x)?;
        let (outer, inner) = split(op, &x, fields.normalized_dims)?;
        for (field, dtype) in [("weight", fields.weight), ("bias", fields.bias)] {
            dtype.map_or(Ok(()), |dtype| parameter(op, field, &x, dtype))?;
        }
        same_parameter_type(op, fields.weight, fields.bias)?;
        let only = |holds: bool, field: &'static str, rule: &str| require(op, field, holds, || rule.into());
        require(op, "eps", fields.eps.get() >= 0.0, || format!("must be >= 0, got {}", fields.eps.get()))?;
        only(kind == RowNorm::Layer || fields.bias.is_none(), "bias", "rms_norm has none")?;
        only(kind == RowNorm::Rms || is_zero(&fields.weight_offset), "weight_offset", "layer_norm has none")?;
        offset_needs_weight(op, fields.weight_offset, fields.weight)?;
        in_range(op, "eps", fields.eps, &x)?;
        in_range(op, "weight_offset", fields.weight_offset, &x)?;

        let output = beside(&x)?;
        let stats = TensorDesc::contiguous(x.dtype().accumulator(), outer)?;
        let mut slots = SlotsBuilder::new(op, forward::OPERANDS, &mut fields.layouts);
        slots.declare("x", Access::In, x)?;
        if fields.residual {
            slots.declare("residual", Access::In, x)?;
            slots.declare("h", Access::Out, output)?;
        }
        for (name, dtype) in [("weight", fields.weight), ("bias", fields.bias)] {
            if let Some(dtype) = dtype {
                slots.declare(name, Access::In, TensorDesc::contiguous(dtype, inner)?)?;
            }
        }
        slots.declare("y", Access::Out, output)?;
        if fields.stats {
            if kind == RowNorm::Layer {
                slots.declare("mean", Access::Out, stats)?;
            }
            slots.declare("rstd", Access::Out, stats)?;
        }
        slots.in_place("x", "y");
        slots.in_place("residual", "h");
        let slots = slots.finish()?;
        Ok(Self { kind, fields, slots })
    }

    /// Changes fields and validates again.
    pub(crate) fn with(&self, op: &'static str, change: impl FnOnce(&mut ForwardFields)) -> Result<Self> {
        let mut fields = self.fields.clone();
        change(&mut fields);
        Self::new(self.kind, op, fields)
    }

    /// Gives an operand another layout.
    pub(crate) fn layout(&self, op: &'static str, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.with(op, |fields| {
            fields.layouts.insert(operand.into(), desc);
        })
    }

    /// The backward with the same types, layouts and options: `dy` lies as `y`, `x` (or `h`) as in forward.
    pub(crate) fn backward(&self, op: &'static str, wanted: Gradients) -> Result<Valid<BackwardFields>> {
        let forward = &self.fields;
        let desc = |name: &str, default| self.slots.named(name).map_or(default, |slot| slot.desc);
        let x = if forward.residual { desc("h", forward.x) } else { forward.x };
        let mut layouts = Layouts::new();
        layouts.insert("dy".into(), desc("y", forward.x));
        for (name, is_declared) in
            [("mean", self.kind == RowNorm::Layer), ("rstd", true), ("weight", forward.weight.is_some())]
        {
            if let Some(slot) = self.slots.named(name).filter(|_| is_declared) {
                layouts.insert(name.into(), slot.desc);
            }
        }
        let fields = BackwardFields {
            x,
            normalized_dims: forward.normalized_dims,
            weight: forward.weight,
            weight_offset: forward.weight_offset,
            dx: wanted.dx,
            dweight: wanted.dweight && forward.weight.is_some(),
            dbias: forward.bias.filter(|_| wanted.dbias),
            dh: wanted.dx && forward.residual,
            layouts,
        };
        Valid::<BackwardFields>::new(self.kind, op, fields)
    }
}

impl Valid<BackwardFields> {
    /// The plainest backward of `x`: `dx` alone, without a weight.
    pub(crate) fn plain(kind: RowNorm, op: &'static str, x: TensorDesc, normalized_dims: usize) -> Result<Self> {
        let fields = BackwardFields {
            x,
            normalized_dims,
            weight: None,
            weight_offset: zero(),
            dx: true,
            dweight: false,
            dbias: None,
            dh: false,
            layouts: Layouts::new(),
        };
        Self::new(kind, op, fields)
    }

    pub(crate) fn new(kind: RowNorm, op: &'static str, mut fields: BackwardFields) -> Result<Self> {
        let x = fields.x;
        float(op, "x", &x)?;
        let (outer, inner) = split(op, &x, fields.normalized_dims)?;
        for (field, dtype) in [("weight", fields.weight), ("dbias", fields.dbias)] {
            dtype.map_or(Ok(()), |dtype| parameter(op, field, &x, dtype))?;
        }
        same_parameter_type(op, fields.weight, fields.dbias)?;
        let only = |holds: bool, field: &'static str, rule: &str| require(op, field, holds, || rule.into());
        only(kind == RowNorm::Layer || fields.dbias.is_none(), "dbias", "rms_norm has no bias")?;
        only(kind == RowNorm::Rms || is_zero(&fields.weight_offset), "weight_offset", "layer_norm has none")?;
        offset_needs_weight(op, fields.weight_offset, fields.weight)?;
        in_range(op, "weight_offset", fields.weight_offset, &x)?;
        only(fields.weight.is_some() || !fields.dweight, "dweight", "needs a weight")?;
        only(fields.dx || !fields.dh, "dh", "adds to dx, which is not asked for")?;
        only(
            fields.dx || fields.dweight || fields.dbias.is_some(),
            "dx",
            "must be asked for, or another gradient: none is",
        )?;

        let output = beside(&x)?;
        let stats = TensorDesc::contiguous(x.dtype().accumulator(), outer)?;
        let parameter = |dtype| TensorDesc::contiguous(dtype, inner);
        let mut slots = SlotsBuilder::new(op, backward::OPERANDS, &mut fields.layouts);
        slots.declare("dy", Access::In, output)?;
        slots.declare("x", Access::In, x)?;
        if let Some(dtype) = fields.weight {
            slots.declare("weight", Access::In, parameter(dtype)?)?;
        }
        if kind == RowNorm::Layer {
            slots.declare("mean", Access::In, stats)?;
        }
        slots.declare("rstd", Access::In, stats)?;
        if fields.dh {
            slots.declare("dh", Access::In, output)?;
        }
        if fields.dx {
            slots.declare("dx", Access::Out, output)?;
        }
        if let Some(dtype) = fields.weight.filter(|_| fields.dweight) {
            slots.declare("dweight", Access::Out, parameter(dtype)?)?;
        }
        if let Some(dtype) = fields.dbias {
            slots.declare("dbias", Access::Out, parameter(dtype)?)?;
        }
        slots.in_place("dy", "dx");
        let slots = slots.finish()?;
        Ok(Self { kind, fields, slots })
    }

    /// Gives an operand another layout.
    pub(crate) fn layout(&self, op: &'static str, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.with(op, |fields| {
            fields.layouts.insert(operand.into(), desc);
        })
    }

    /// Changes fields and validates again.
    pub(crate) fn with(&self, op: &'static str, change: impl FnOnce(&mut BackwardFields)) -> Result<Self> {
        let mut fields = self.fields.clone();
        change(&mut fields);
        Self::new(self.kind, op, fields)
    }
}
