//! What BatchNorm, GroupNorm and InstanceNorm share: fields, operands, geometry, and the glue of their kernels.
//!
//! `x` is `[N, C, spatial..]`, seen as `[batch, channels, spatial]`. What shares statistics is a *group*: a channel of all samples for
//! BatchNorm, some channels of one sample for GroupNorm, one channel of one sample for InstanceNorm. A group is one or more *segments*,
//! the spatial extents of one channel of one sample, in which every parameter is one number.

use serde::{Deserialize, Serialize};

use super::Gradients;
use crate::dtype::{DType, Real};
use crate::error::{Reason, Result};
use crate::ops::activation::Activation;
use crate::ops::fields::{
    batch_of_channels, beside, float, in_range, is_false, parameter, real, require, same_parameter_type,
};
use crate::plan::{Access, Descriptor, Kernel};
use crate::slots::{Layouts, Slots, SlotsBuilder};
use crate::tensor::TensorDesc;

pub(super) mod cpu;
#[cfg(feature = "cuda")]
pub(super) mod cuda;
mod geometry;
#[cfg(feature = "wgpu")]
pub(super) mod wgpu;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::wgsl_variants;

#[cfg_attr(
    not(any(feature = "cuda", feature = "wgpu")),
    allow(unused_imports, reason = "only GPU kernels need it")
)]
pub(crate) use geometry::{ChannelGeometry, ChannelOrder};

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ChannelNorm {
    /// BatchNorm: a group is a channel of all samples.
    Batch,
    /// GroupNorm: a group is some channels of one sample.
    Group,
    /// InstanceNorm: a group is a channel of one sample.
    Instance,
}

impl ChannelNorm {
    /// The forward's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch_norm",
            Self::Group => "group_norm",
            Self::Instance => "instance_norm",
        }
    }

    /// The backward's name.
    pub(crate) const fn backward_name(self) -> &'static str {
        match self {
            Self::Batch => "batch_norm_backward",
            Self::Group => "group_norm_backward",
            Self::Instance => "instance_norm_backward",
        }
    }

    /// Names of the forward operands, in the order of their positions.
    pub(crate) const fn forward_operands(self) -> &'static [&'static str] {
        match self {
            Self::Batch => {
                &["x", "residual", "weight", "bias", "running_mean", "running_var", "num_batches", "y", "mean", "rstd"]
            }
            Self::Group => &["x", "weight", "bias", "y", "mean", "rstd"],
            Self::Instance => &["x", "weight", "bias", "running_mean", "running_var", "y", "mean", "rstd"],
        }
    }

    /// Names of the backward operands, in the order of their positions.
    pub(crate) const fn backward_operands(self) -> &'static [&'static str] {
        match self {
            Self::Batch => &[
                "dy",
                "x",
                "residual",
                "y",
                "weight",
                "bias",
                "mean",
                "rstd",
                "running_mean",
                "running_var",
                "dx",
                "dresidual",
                "dweight",
                "dbias",
            ],
            Self::Group => &["dy", "x", "weight", "bias", "mean", "rstd", "dx", "dweight", "dbias"],
            Self::Instance => {
                &["dy", "x", "weight", "bias", "mean", "rstd", "running_mean", "running_var", "dx", "dweight", "dbias"]
            }
        }
    }
}

/// Positions of the forward operands; those that an op lacks have none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardPositions {
    pub(crate) x: usize,
    pub(crate) residual: Option<usize>,
    pub(crate) weight: Option<usize>,
    pub(crate) bias: Option<usize>,
    pub(crate) running_mean: Option<usize>,
    pub(crate) running_var: Option<usize>,
    pub(crate) num_batches: Option<usize>,
    pub(crate) y: usize,
    pub(crate) mean: Option<usize>,
    pub(crate) rstd: Option<usize>,
}

/// Positions of the backward operands; those that an op lacks have none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackwardPositions {
    pub(crate) dy: usize,
    pub(crate) x: usize,
    pub(crate) residual: Option<usize>,
    pub(crate) y: Option<usize>,
    pub(crate) weight: Option<usize>,
    pub(crate) bias: Option<usize>,
    pub(crate) mean: Option<usize>,
    pub(crate) rstd: Option<usize>,
    pub(crate) running_mean: Option<usize>,
    pub(crate) running_var: Option<usize>,
    pub(crate) dx: Option<usize>,
    pub(crate) dresidual: Option<usize>,
    pub(crate) dweight: Option<usize>,
    pub(crate) dbias: Option<usize>,
}

fn position(slots: &Slots, name: &str) -> Option<usize> {
    slots.named(name).map(|slot| slot.position)
}

/// The extents of `x` as `[batch, channels, spatial]`, and what shares statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelShape {
    pub(crate) batch: u64,
    pub(crate) channels: u64,
    /// Product of the spatial extents: the elements of a segment.
    pub(crate) spatial: u64,
    /// Groups of one sample; 0 where one channel of all samples shares statistics.
    pub(crate) groups: u64,
}

impl ChannelShape {
    /// Of an `x` of rank 2 or more.
    fn new(kind: ChannelNorm, x: &TensorDesc, groups: Option<u64>, inference: bool) -> Self {
        let (batch, channels) = (x.dims()[0], x.dims()[1]);
        let groups = match kind {
            ChannelNorm::Batch => 0,
            // The running statistics are those of a channel.
            ChannelNorm::Instance if inference => 0,
            ChannelNorm::Instance => channels,
            ChannelNorm::Group => groups.unwrap_or_default(),
        };
        Self { batch, channels, spatial: x.dims()[2..].iter().product(), groups }
    }

    /// Number of groups in all: of elements of `mean` and `rstd`.
    pub(crate) fn group_count(&self) -> u64 {
        if self.groups == 0 { self.channels } else { self.batch.saturating_mul(self.groups) }
    }

    /// Segments of a group.
    pub(crate) fn group_segments(&self) -> u64 {
        self.channels.checked_div(self.groups).unwrap_or(self.batch)
    }
}

/// The fields of a forward descriptor, in the order of its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(expecting = "an object with the fields of the descriptor", deny_unknown_fields)]
pub(crate) struct ForwardFields {
    pub(crate) x: TensorDesc,
    /// GroupNorm's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) groups: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<DType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bias: Option<DType>,
    pub(crate) eps: Real,
    #[serde(default, skip_serializing_if = "is_identity")]
    pub(crate) activation: Activation,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) residual: bool,
    /// Weight of this batch in the running statistics, which it declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) momentum: Option<Real>,
    /// The running statistics are the mean over all batches, counted in `num_batches`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) cumulative: bool,
    /// The running statistics are the statistics.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) inference: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) stats: bool,
    #[serde(default, skip_serializing_if = "Layouts::is_empty")]
    pub(crate) layouts: Layouts,
}

/// The fields of a backward descriptor, in the order of its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(expecting = "an object with the fields of the descriptor", deny_unknown_fields)]
pub(crate) struct BackwardFields {
    pub(crate) x: TensorDesc,
    /// GroupNorm's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) groups: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<DType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bias: Option<DType>,
    /// Needed in inference, where backward derives rstd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) eps: Option<Real>,
    #[serde(default, skip_serializing_if = "is_identity")]
    pub(crate) activation: Activation,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) residual: bool,
    /// ReLU's gradient comes from the sign of `y`, not from the pre-activation.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) from_y: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) inference: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) dx: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) dresidual: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) dweight: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) dbias: bool,
    #[serde(default, skip_serializing_if = "Layouts::is_empty")]
    pub(crate) layouts: Layouts,
}

fn is_identity(activation: &Activation) -> bool {
    activation.is_identity()
}

/// A forward or backward whose fields have been validated, with the slots that follow from them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Valid<F> {
    pub(crate) kind: ChannelNorm,
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

/// Checks x, the parameters' types and what the ops' groups have to be, which forward and backward share.
fn shape(
    kind: ChannelNorm,
    op: &'static str,
    x: &TensorDesc,
    groups: Option<u64>,
    inference: bool,
    parameters: [Option<DType>; 2],
) -> Result<ChannelShape> {
    float(op, "x", x)?;
    batch_of_channels(op, x)?;
    for (field, dtype) in [("weight", parameters[0]), ("bias", parameters[1])] {
        dtype.map_or(Ok(()), |dtype| parameter(op, field, x, dtype))?;
    }
    same_parameter_type(op, parameters[0], parameters[1])?;
    let shape = ChannelShape::new(kind, x, groups, inference);
    let channels = shape.channels;
    require(op, "groups", (kind == ChannelNorm::Group) == groups.is_some(), || {
        if kind == ChannelNorm::Group { "group_norm needs a number of groups".into() } else { format!("{op} has none") }
    })?;
    if let Some(groups) = groups {
        require(op, "groups", groups > 0 && channels.is_multiple_of(groups), || {
            format!("must be at least 1 and divide the {channels} channels; got {groups}")
        })?;
    }
    require(op, "inference", !inference || kind != ChannelNorm::Group, || {
        "group_norm has no running statistics".into()
    })?;
    if !inference {
        // Without extents the product may not fit, but then it is not 1.
        let values = shape.batch.saturating_mul(shape.spatial);
        require(op, "x", kind != ChannelNorm::Batch || values != 1, || {
            format!("must have more than one value in each channel to take statistics of, got {:?}", x.dims())
        })?;
        require(op, "x", kind != ChannelNorm::Instance || shape.spatial != 1, || {
            format!("must have more than one spatial element to take statistics of, got {:?}", x.dims())
        })?;
    }
    Ok(shape)
}

/// `eps` where the statistics come with a variance.
fn check_eps(kind: ChannelNorm, op: &'static str, eps: Real) -> Result<()> {
    let eps = eps.get();
    match kind {
        ChannelNorm::Batch => require(op, "eps", eps > 0.0, || format!("must be > 0, got {eps}")),
        _ => require(op, "eps", eps >= 0.0, || format!("must be >= 0, got {eps}")),
    }
}

/// The default layout of `mean` and `rstd`.
fn statistics(kind: ChannelNorm, x: &TensorDesc, shape: &ChannelShape) -> Result<TensorDesc> {
    let dtype = x.dtype().accumulator();
    match kind {
        ChannelNorm::Batch => TensorDesc::contiguous(dtype, &[shape.channels]),
        ChannelNorm::Group => TensorDesc::contiguous(dtype, &[shape.batch, shape.groups]),
        ChannelNorm::Instance => TensorDesc::contiguous(dtype, &[shape.batch, shape.channels]),
    }
}

impl Valid<ForwardFields> {
    /// The plainest forward of `x`: no parameters, no statistics written, eps 1e-5.
    pub(crate) fn plain(kind: ChannelNorm, x: TensorDesc, groups: Option<u64>) -> Result<Self> {
        Self::new(kind, Self::plain_fields(x, groups))
    }

    /// As [`plain`](Self::plain), with the running statistics.
    pub(crate) fn inference(kind: ChannelNorm, x: TensorDesc) -> Result<Self> {
        Self::new(kind, ForwardFields { inference: true, ..Self::plain_fields(x, None) })
    }

    fn plain_fields(x: TensorDesc, groups: Option<u64>) -> ForwardFields {
        ForwardFields {
            x,
            groups,
            weight: None,
            bias: None,
            eps: Real::new(1e-5).unwrap_or_default(),
            activation: Activation::Identity,
            residual: false,
            momentum: None,
            cumulative: false,
            inference: false,
            stats: false,
            layouts: Layouts::new(),
        }
    }

    pub(crate) fn new(kind: ChannelNorm, mut fields: ForwardFields) -> Result<Self> {
        let (op, x) = (kind.name(), fields.x);
        let shape = shape(kind, op, &x, fields.groups, fields.inference, [fields.weight, fields.bias])?;
        check_eps(kind, op, fields.eps)?;
        in_range(op, "eps", fields.eps, &x)?;
        require(op, "residual", kind == ChannelNorm::Batch || !fields.residual, || format!("{op} has none"))?;
        require(op, "cumulative", kind == ChannelNorm::Batch || !fields.cumulative, || {
            format!("{op} has no such mode")
        })?;
        if let Some(momentum) = fields.momentum {
            let momentum = momentum.get();
            require(op, "momentum", kind != ChannelNorm::Group, || "group_norm has no running statistics".into())?;
            require(op, "momentum", (0.0..=1.0).contains(&momentum), || {
                format!("must be from 0 to 1, got {momentum}")
            })?;
            require(op, "cumulative", !fields.cumulative, || {
                "must not be combined with a momentum, whose place the count of batches takes".into()
            })?;
        }
        let has_running = fields.momentum.is_some() || fields.cumulative;
        require(op, "inference", !fields.inference || !has_running, || {
            "reads the running statistics, which no momentum and no count can update then".into()
        })?;
        require(op, "stats", !fields.inference || !fields.stats, || {
            "in inference the statistics are the running ones, which backward takes".into()
        })?;

        let output = beside(&x)?;
        let saved = statistics(kind, &x, &shape)?;
        let running = TensorDesc::contiguous(x.dtype().accumulator(), &[shape.channels])?;
        let mut slots = SlotsBuilder::new(op, kind.forward_operands(), &mut fields.layouts);
        slots.declare("x", Access::In, x)?;
        if fields.residual {
            slots.declare("residual", Access::In, x)?;
        }
        for (name, dtype) in [("weight", fields.weight), ("bias", fields.bias)] {
            if let Some(dtype) = dtype {
                slots.declare(name, Access::In, TensorDesc::contiguous(dtype, &[shape.channels])?)?;
            }
        }
        if has_running || fields.inference {
            let access = if fields.inference { Access::In } else { Access::InOut };
            slots.declare("running_mean", access, running)?;
            slots.declare("running_var", access, running)?;
        }
        if fields.cumulative {
            slots.declare("num_batches", Access::InOut, TensorDesc::contiguous(DType::I64, &[1])?)?;
        }
        slots.declare("y", Access::Out, output)?;
        if fields.stats {
            slots.declare("mean", Access::Out, saved)?;
            slots.declare("rstd", Access::Out, saved)?;
        }
        slots.in_place(if fields.residual { "residual" } else { "x" }, "y");
        let slots = slots.finish()?;
        Ok(Self { kind, fields, slots })
    }

    /// Changes fields and validates again.
    pub(crate) fn with(&self, change: impl FnOnce(&mut ForwardFields)) -> Result<Self> {
        let mut fields = self.fields.clone();
        change(&mut fields);
        Self::new(self.kind, fields)
    }

    /// A finite number for a field.
    pub(crate) fn real(&self, field: &'static str, value: f64) -> Result<Real> {
        real(self.kind.name(), field, value)
    }

    /// Gives an operand another layout.
    pub(crate) fn layout(&self, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.with(|fields| {
            fields.layouts.insert(operand.into(), desc);
        })
    }

    /// The extents, and how many groups share them.
    pub(crate) fn shape(&self) -> ChannelShape {
        ChannelShape::new(self.kind, &self.fields.x, self.fields.groups, self.fields.inference)
    }

    /// Where the operands lie among those of a run; those not declared have none.
    pub(crate) fn positions(&self) -> ForwardPositions {
        let at = |name| position(&self.slots, name);
        ForwardPositions {
            x: at("x").unwrap_or_default(),
            residual: at("residual"),
            weight: at("weight"),
            bias: at("bias"),
            running_mean: at("running_mean"),
            running_var: at("running_var"),
            num_batches: at("num_batches"),
            y: at("y").unwrap_or_default(),
            mean: at("mean"),
            rstd: at("rstd"),
        }
    }

    /// How the tensors lie: `x`, `y`, `residual`.
    ///
    /// # Errors
    /// Why the layouts are none that GPU kernels serve.
    #[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "only GPU kernels need it"))]
    pub(crate) fn geometry(&self) -> Result<ChannelGeometry, Reason> {
        ChannelGeometry::new(self.shape(), &self.slots, &["x", "y", "residual"])
    }

    /// The backward with the same types, layouts and options: `dy` lies as `y`, the others as in forward.
    pub(crate) fn backward(&self, wanted: Gradients) -> Result<Valid<BackwardFields>> {
        let forward = &self.fields;
        let recomputes = !forward.activation.is_identity();
        let (dbias, dresidual) = (wanted.dbias && forward.bias.is_some(), wanted.dresidual && forward.residual);
        let mut layouts = Layouts::new();
        let statistics = if forward.inference { ["running_mean", "running_var"] } else { ["mean", "rstd"] };
        for name in ["weight", statistics[0], statistics[1]] {
            layouts.extend(self.slots.named(name).map(|slot| (name.to_string(), slot.desc)));
        }
        for name in ["bias", "residual"].into_iter().filter(|_| recomputes) {
            layouts.extend(self.slots.named(name).map(|slot| (name.to_string(), slot.desc)));
        }
        layouts.extend(self.slots.named("y").map(|slot| ("dy".to_string(), slot.desc)));
        let fields = BackwardFields {
            x: forward.x,
            groups: forward.groups,
            weight: forward.weight,
            bias: forward.bias.filter(|_| recomputes || dbias),
            eps: forward.inference.then_some(forward.eps),
            activation: forward.activation,
            residual: forward.residual && (recomputes || dresidual),
            from_y: false,
            inference: forward.inference,
            dx: wanted.dx,
            dresidual,
            dweight: wanted.dweight && forward.weight.is_some(),
            dbias,
            layouts,
        };
        Valid::<BackwardFields>::new(self.kind, fields)
    }
}

impl BackwardFields {
    /// Whether the pre-activation is computed again.
    pub(crate) fn recomputes(&self) -> bool {
        !self.activation.is_identity() && !self.from_y
    }
}

impl Valid<BackwardFields> {
    /// The plainest backward of `x`: `dx` alone, without parameters.
    pub(crate) fn plain(kind: ChannelNorm, x: TensorDesc, groups: Option<u64>) -> Result<Self> {
        Self::new(kind, Self::plain_fields(x, groups))
    }

    /// As [`plain`](Self::plain), with the running statistics.
    pub(crate) fn inference(kind: ChannelNorm, x: TensorDesc, eps: f64) -> Result<Self> {
        let eps = Some(real(kind.backward_name(), "eps", eps)?);
        Self::new(kind, BackwardFields { inference: true, eps, ..Self::plain_fields(x, None) })
    }

    fn plain_fields(x: TensorDesc, groups: Option<u64>) -> BackwardFields {
        BackwardFields {
            x,
            groups,
            weight: None,
            bias: None,
            eps: None,
            activation: Activation::Identity,
            residual: false,
            from_y: false,
            inference: false,
            dx: true,
            dresidual: false,
            dweight: false,
            dbias: false,
            layouts: Layouts::new(),
        }
    }

    pub(crate) fn new(kind: ChannelNorm, mut fields: BackwardFields) -> Result<Self> {
        let (op, x) = (kind.backward_name(), fields.x);
        let shape = shape(kind, op, &x, fields.groups, fields.inference, [fields.weight, fields.bias])?;
        require(op, "eps", fields.inference == fields.eps.is_some(), || {
            if fields.inference {
                "is needed with running statistics"
            } else {
                "must be absent: the saved rstd holds it"
            }
            .into()
        })?;
        fields.eps.map_or(Ok(()), |eps| check_eps(kind, op, eps).and_then(|()| in_range(op, "eps", eps, &x)))?;
        require(op, "residual", kind == ChannelNorm::Batch || !fields.residual, || format!("{op} has none"))?;
        require(op, "from_y", kind == ChannelNorm::Batch || !fields.from_y, || format!("{op} has no such mode"))?;
        require(op, "from_y", !fields.from_y || fields.activation == Activation::Relu, || {
            format!("y tells the gradient of relu alone, not of {}", fields.activation.name())
        })?;
        require(op, "dweight", fields.weight.is_some() || !fields.dweight, || "needs a weight".into())?;
        require(op, "dbias", fields.bias.is_some() || !fields.dbias, || "needs a bias".into())?;
        require(op, "dresidual", fields.residual || !fields.dresidual, || "needs a residual".into())?;
        let has_place = fields.dresidual || !fields.residual || !fields.dx || fields.activation.is_identity();
        require(op, "dresidual", has_place, || {
            "must be asked for where dx is: through an activation it is not dy".into()
        })?;
        let has_any = fields.dx || fields.dresidual || fields.dweight || fields.dbias;
        require(op, "dx", has_any, || "must be asked for, or another gradient: none is".into())?;

        let output = beside(&x)?;
        let parameter = |dtype| TensorDesc::contiguous(dtype, &[shape.channels]);
        let recomputes = fields.recomputes();
        let mut slots = SlotsBuilder::new(op, kind.backward_operands(), &mut fields.layouts);
        slots.declare("dy", Access::In, output)?;
        slots.declare("x", Access::In, x)?;
        if fields.residual && recomputes {
            slots.declare("residual", Access::In, x)?;
        }
        if fields.from_y {
            slots.declare("y", Access::In, output)?;
        }
        if let Some(dtype) = fields.weight {
            slots.declare("weight", Access::In, parameter(dtype)?)?;
        }
        if let Some(dtype) = fields.bias.filter(|_| recomputes) {
            slots.declare("bias", Access::In, parameter(dtype)?)?;
        }
        if fields.inference {
            let running = TensorDesc::contiguous(x.dtype().accumulator(), &[shape.channels])?;
            slots.declare("running_mean", Access::In, running)?;
            slots.declare("running_var", Access::In, running)?;
        } else {
            let saved = statistics(kind, &x, &shape)?;
            slots.declare("mean", Access::In, saved)?;
            slots.declare("rstd", Access::In, saved)?;
        }
        if fields.dx {
            slots.declare("dx", Access::Out, output)?;
        }
        if fields.dresidual {
            slots.declare("dresidual", Access::Out, output)?;
        }
        if let Some(dtype) = fields.weight.filter(|_| fields.dweight) {
            slots.declare("dweight", Access::Out, parameter(dtype)?)?;
        }
        if let Some(dtype) = fields.bias.filter(|_| fields.dbias) {
            slots.declare("dbias", Access::Out, parameter(dtype)?)?;
        }
        slots.in_place("dy", "dx");
        let slots = slots.finish()?;
        Ok(Self { kind, fields, slots })
    }

    /// Changes fields and validates again.
    pub(crate) fn with(&self, change: impl FnOnce(&mut BackwardFields)) -> Result<Self> {
        let mut fields = self.fields.clone();
        change(&mut fields);
        Self::new(self.kind, fields)
    }

    /// Takes `y`, laid out as `dy`, in place of what the pre-activation is computed from.
    #[allow(clippy::wrong_self_convention, reason = "the name is the field's")]
    pub(crate) fn from_y(&self) -> Result<Self> {
        let dy = self.slots.named("dy").map(|slot| slot.desc);
        self.with(|fields| {
            fields.from_y = true;
            fields.layouts.retain(|name, _| !["bias", "residual"].contains(&name.as_str()));
            fields.layouts.extend(dy.map(|desc| ("y".to_string(), desc)));
        })
    }

    /// Gives an operand another layout.
    pub(crate) fn layout(&self, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.with(|fields| {
            fields.layouts.insert(operand.into(), desc);
        })
    }

    /// The extents, and how many groups share them.
    pub(crate) fn shape(&self) -> ChannelShape {
        ChannelShape::new(self.kind, &self.fields.x, self.fields.groups, self.fields.inference)
    }

    /// Where the operands lie among those of a run; those not declared have none.
    pub(crate) fn positions(&self) -> BackwardPositions {
        let at = |name| position(&self.slots, name);
        BackwardPositions {
            dy: at("dy").unwrap_or_default(),
            x: at("x").unwrap_or_default(),
            residual: at("residual"),
            y: at("y"),
            weight: at("weight"),
            bias: at("bias"),
            mean: at("mean"),
            rstd: at("rstd"),
            running_mean: at("running_mean"),
            running_var: at("running_var"),
            dx: at("dx"),
            dresidual: at("dresidual"),
            dweight: at("dweight"),
            dbias: at("dbias"),
        }
    }

    /// How the tensors lie: `dy`, `x`, `residual`, `y`, `dx`, `dresidual`.
    ///
    /// # Errors
    /// Why the layouts are none that GPU kernels serve.
    #[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "only GPU kernels need it"))]
    pub(crate) fn geometry(&self) -> Result<ChannelGeometry, Reason> {
        ChannelGeometry::new(self.shape(), &self.slots, &["dy", "x", "residual", "y", "dx", "dresidual"])
    }
}
