//! What LayerNorm and RMSNorm share: fields, operands, and their kernels.
//!
//! Both normalise rows, the last k extents of `x`. LayerNorm is RMSNorm of the centred row, so that one set of kernels serves both.

use super::{LayerNormBackwardDescriptor, RmsNormBackwardDescriptor};
#[cfg(feature = "wgpu")]
use super::{LayerNormDescriptor, RmsNormDescriptor};
use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::gradients::{Derivation, Role};
use crate::operands::operands;
use crate::ops::activation::Activation;
use crate::ops::fields::{beside, default_eps, demand, float, in_range, is_zero, parameters, require};
use crate::ops::pointwise::ActivationDescriptor;
use crate::ops::valid::{Accumulate, Described, Op, Valid, fields};
use crate::plan::Descriptor;
use crate::slots::{Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;

pub(super) mod cpu;
#[cfg(feature = "cuda")]
pub(super) mod cuda;
pub(super) mod fast;
#[cfg(feature = "wgpu")]
pub(crate) mod wgpu;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;

/// Which of the two norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RowNorm {
    /// LayerNorm: subtracts the mean.
    Layer,
    /// RMSNorm.
    Rms,
}

impl RowNorm {
    /// The forward op.
    #[cfg(feature = "wgpu")]
    pub(crate) const fn forward(self) -> Op<Self> {
        match self {
            Self::Layer => LayerNormDescriptor::OP,
            Self::Rms => RmsNormDescriptor::OP,
        }
    }

    /// The backward op.
    pub(crate) const fn backward(self) -> Op<Self> {
        match self {
            Self::Layer => LayerNormBackwardDescriptor::OP,
            Self::Rms => RmsNormBackwardDescriptor::OP,
        }
    }
}

/// The kernels of a forward, in the order in which they are tried; the first are those that the op has alone.
macro_rules! forward_kernels {
    ($($form:literal => $accept:path),*) => {
        kernels!(
            cuda: {
                $($form => $accept,)*
                "ring" => row_norm::cuda::forward::ring, "shared" => row_norm::cuda::forward::shared,
                "resident" => row_norm::cuda::forward::resident, "split" => row_norm::cuda::forward::split
            };
            wgpu: { "resident" => row_norm::wgpu::forward::resident, "split" => row_norm::wgpu::forward::split };
            cpu: |norm| Ok(Valid::on_cpu(norm, row_norm::cpu::forward).batch_invariant());
            before: {"fast" => row_norm::fast::forward}
        )
    };
}
pub(super) use forward_kernels;

/// The kernels of a backward, in the order in which they are tried.
macro_rules! backward_kernels {
    () => {
        kernels!(
            cuda: {
                "few_rows" => row_norm::cuda::backward::few_rows,
                "cooperative" => row_norm::cuda::backward::cooperative, "ring" => row_norm::cuda::backward::ring,
                "persistent" => row_norm::cuda::backward::persistent, "split" => row_norm::cuda::backward::split
            };
            wgpu: {
                "few_rows" => row_norm::wgpu::backward::few_rows, "resident" => row_norm::wgpu::backward::resident,
                "split" => row_norm::wgpu::backward::split
            };
            cpu: |norm| row_norm::cpu::accept_backward(norm);
            before: {"fast" => row_norm::fast::backward}
        )
    };
}
pub(super) use backward_kernels;

operands! { $
    /// Operands of the forward ops.
    mod forward {
        X x: In, always, in place y => "Input.";
        RESIDUAL residual: In, if residual, in place h => "Added to x, if declared.",
            step "The residual, and where the sum goes.";
        WEIGHT weight: In, if weight => "Scale, if declared.", step "The weight.";
        BIAS bias: In, if bias => "Shift, if declared.", step "The bias.";
        Y y: Out, always => "Output.";
        H h: Out, if residual => "x + residual, if declared.";
        MEAN mean: Out, if stats => "Mean of each row, if declared.", step "Where the statistics go.";
        RSTD rstd: Out, if stats => "1 / sqrt(var + eps) of each row, if declared.", step "Where rstd goes.";
    }
}

operands! { $
    /// Operands of the backward ops.
    mod backward {
        DY dy: In, always, in place dx => "Gradient of y.";
        X x: In, always => "Forward's input: x, or h if it had a residual.";
        WEIGHT weight: In, if weight => "Scale, if declared.", step "The weight.";
        MEAN mean: In, always => "Mean that forward wrote.";
        RSTD rstd: In, always => "rstd that forward wrote.";
        DH dh: In, if dh => "Gradient of h from elsewhere, if declared.",
            step "The gradient that reaches h from elsewhere.";
        DX dx: Out, if dx => "Gradient of x, if declared.", step "Where the gradient of x goes.";
        DWEIGHT dweight: Out, if dweight => "Gradient of weight, if declared.",
            step "Where the gradient of the weight goes.";
        DBIAS dbias: Out, if dbias => "Gradient of bias, if declared.", step "Where the gradient of the bias goes.";
    }
}

fields! {
    /// The fields of a forward descriptor.
    ForwardFields: Fields<Kind = RowNorm, Derived = ()> lacks lacks {
        x: TensorDesc,
        normalized_dims: usize,
        weight: Option<DType> = default,
        bias: Option<DType> = default,
        eps: Real,
        weight_offset: Real = default,
        stats: bool = default,
        residual: bool = default,
    }
}

fields! {
    /// The fields of a backward descriptor.
    BackwardFields: Fields<Kind = RowNorm, Derived = ()> lacks lacks {
        x: TensorDesc,
        normalized_dims: usize,
        weight: Option<DType> = default,
        weight_offset: Real = default,
        dx: bool = default,
        dweight: bool = default,
        dbias: Option<DType> = default,
        dh: bool = default,
    }
}

/// The fields that the other norm alone has.
fn lacks(kind: RowNorm) -> &'static [&'static str] {
    match kind {
        RowNorm::Layer => &["weight_offset"],
        RowNorm::Rms => &["bias", "dbias"],
    }
}

/// Checks x and the types of the parameters, and returns the extents of the statistics and of the parameters.
fn shape<'x>(
    op: &'static str,
    x: &'x TensorDesc,
    normalized_dims: usize,
    types: [(&'static str, Option<DType>); 2],
) -> Result<(&'x [u64], &'x [u64])> {
    float(op, "x", x)?;
    require(op, "normalized_dims", (1..=x.rank()).contains(&normalized_dims), || {
        format!("must be from 1 to the rank of x, {}; got {normalized_dims}", x.rank())
    })?;
    parameters(op, x, types)?;
    Ok(x.dims().split_at(x.rank() - normalized_dims))
}

/// Checks the number that is added to the weight, which RMSNorm alone has.
fn check_offset(kind: RowNorm, op: &'static str, offset: Real, weight: Option<DType>) -> Result<()> {
    let is_known = kind == RowNorm::Rms || is_zero(&offset);
    demand(op, "weight_offset", is_known, "layer_norm has none")?;
    require(op, "weight_offset", is_zero(&offset) || weight.is_some(), || {
        format!("needs a weight to be added to; got {}", offset.get())
    })
}

impl ForwardFields {
    /// The plainest forward of `x`: no parameters, no statistics, eps 1e-5.
    pub(crate) fn plain(x: TensorDesc, normalized_dims: usize) -> Self {
        Self::minimal(x, normalized_dims, default_eps())
    }

    fn declare(&self, &Op { name: op, kind, .. }: &Op<RowNorm>, slots: &mut SlotsBuilder<'_>) -> Result<()> {
        use forward::{BIAS, H, MEAN, RESIDUAL, RSTD, WEIGHT, X, Y};
        let x = self.x;
        let types = [("weight", self.weight), ("bias", self.bias)];
        let (outer, inner) = shape(op, &x, self.normalized_dims, types)?;
        require(op, "eps", self.eps.get() >= 0.0, || format!("must be >= 0, got {}", self.eps.get()))?;
        demand(op, "bias", kind == RowNorm::Layer || self.bias.is_none(), "rms_norm has none")?;
        check_offset(kind, op, self.weight_offset, self.weight)?;
        in_range(op, "eps", self.eps, &x)?;
        in_range(op, "weight_offset", self.weight_offset, &x)?;

        let output = slots.derived(Y, beside(&x))?;
        let stats = slots.derived(RSTD, TensorDesc::contiguous(x.dtype().accumulator(), outer))?;
        slots.declare(X, x)?;
        slots.declare_if(self.residual, RESIDUAL, x)?;
        slots.declare_if(self.residual, H, output)?;
        slots.declare_dense(inner, [(WEIGHT, self.weight), (BIAS, self.bias)])?;
        slots.declare(Y, output)?;
        slots.declare_if(self.stats && kind == RowNorm::Layer, MEAN, stats)?;
        slots.declare_if(self.stats, RSTD, stats)
    }
}

impl Valid<ForwardFields> {
    /// The backward with the same types, layouts and options, for the gradients of some inputs, of which forward may have others: `dy` lies as
    /// `y`, `x` (or `h`) as in forward. `dh`: whether a gradient arrives at h, which reaches dx alone.
    pub(crate) fn backward(&self, wanted: &[&str], dh: bool) -> Result<Valid<BackwardFields>> {
        let wants = |input: &str| wanted.contains(&input);
        let dx = wants("x") || wants("residual");
        let forward = &self.fields;
        let desc = |operand| self.slots.at(operand).map_or(forward.x, |slot| slot.desc);
        let x = desc(if forward.residual { forward::H } else { forward::X });
        let mut layouts = Layouts::from([("dy".into(), desc(forward::Y))]);
        let kept = self.slots.all_at(&[forward::MEAN, forward::RSTD, forward::WEIGHT]);
        layouts.extend(kept.map(|slot| (slot.name.to_string(), slot.desc)));
        let fields = BackwardFields {
            x,
            normalized_dims: forward.normalized_dims,
            weight: forward.weight,
            weight_offset: forward.weight_offset,
            dx,
            dweight: wants("weight") && forward.weight.is_some(),
            dbias: forward.bias.filter(|_| wants("bias")),
            dh: dh && dx && forward.residual,
            accumulate: Accumulate::new(),
            layouts,
        };
        Valid::new(self.op.kind.backward(), fields)
    }

    /// Derives the gradients. What is normalised is x, or h where there is a residual; dx is the gradient of both summands.
    pub(super) fn gradients<F: Descriptor, B: Descriptor>(
        &self,
        derivation: &mut Derivation,
        forward: fn(Self) -> F,
        backward: fn(Valid<BackwardFields>) -> B,
    ) -> Result<()> {
        let dx = derivation.gradient_for(&["x", "residual"]);
        if !derivation.arrives("y") {
            // Of h alone: what arrives is the gradient.
            if let Some(parameter) = derivation.wanted().iter().find(|name| ["weight", "bias"].contains(name)) {
                return Err(Error::independent(self.op.name, parameter, vec!["y"]));
            }
            let copy = ActivationDescriptor::new(self.slots.always(forward::H).desc, Activation::Identity)?;
            derivation.push(copy, &[("x", Role::GradientOf("h")), ("y", dx)]);
            return Ok(());
        }
        let (normalised, x) = if self.fields.residual { (forward::H, "h") } else { (forward::X, "x") };
        let mut roles = vec![("x", Role::Forward(x)), ("dx", dx)];
        if !self.fields.stats {
            derivation.explain("forward writes its statistics only with `stats`");
            let plain = ForwardFields::plain(self.slots.always(normalised).desc, self.fields.normalized_dims);
            let fields = ForwardFields { eps: self.fields.eps, stats: true, ..plain };
            let again = derivation.push(forward(Self::new(self.op, fields)?), &roles);
            roles.extend(["mean", "rstd"].into_iter().filter_map(|name| Some((name, again.role(name)?.clone()))));
        }
        let descriptor = self.backward(derivation.wanted(), derivation.arrives("h"))?;
        derivation.push(backward(descriptor), &roles);
        Ok(())
    }
}

impl BackwardFields {
    /// Whether every gradient is of rows: none adds them up.
    fn is_of_rows(&self) -> bool {
        !self.dweight && self.dbias.is_none()
    }

    /// The plainest backward of `x`: `dx` alone, without a weight.
    pub(crate) fn plain(x: TensorDesc, normalized_dims: usize) -> Self {
        Self { dx: true, ..Self::minimal(x, normalized_dims) }
    }

    fn declare(&self, &Op { name: op, kind, .. }: &Op<RowNorm>, slots: &mut SlotsBuilder<'_>) -> Result<()> {
        use backward::{DBIAS, DH, DWEIGHT, DX, DY, MEAN, RSTD, WEIGHT, X};
        let x = self.x;
        let types = [("weight", self.weight), ("dbias", self.dbias)];
        let (outer, inner) = shape(op, &x, self.normalized_dims, types)?;
        demand(op, "dbias", kind == RowNorm::Layer || self.dbias.is_none(), "rms_norm has no bias")?;
        check_offset(kind, op, self.weight_offset, self.weight)?;
        in_range(op, "weight_offset", self.weight_offset, &x)?;
        demand(op, "dweight", self.weight.is_some() || !self.dweight, "needs a weight")?;
        demand(op, "dh", self.dx || !self.dh, "adds to dx, which is not asked for")?;
        let rule = "must be asked for, or another gradient: none is";
        demand(op, "dx", self.dx || self.dweight || self.dbias.is_some(), rule)?;

        let output = slots.derived(DY, beside(&x))?;
        let stats = slots.derived(RSTD, TensorDesc::contiguous(x.dtype().accumulator(), outer))?;
        slots.declare(DY, output)?;
        slots.declare(X, x)?;
        slots.declare_dense(inner, [(WEIGHT, self.weight)])?;
        slots.declare_if(kind == RowNorm::Layer, MEAN, stats)?;
        slots.declare(RSTD, stats)?;
        slots.declare_if(self.dh, DH, output)?;
        slots.declare_if(self.dx, DX, output)?;
        slots.declare_dense(inner, [(DWEIGHT, self.weight.filter(|_| self.dweight)), (DBIAS, self.dbias)])
    }
}
