//! What BatchNorm, GroupNorm and InstanceNorm share: fields, operands, geometry, and the glue of their kernels.
//!
//! `x` is `[N, C, spatial..]`, seen as `[batch, channels, spatial]`. What shares statistics is a *group*: a channel of all samples for
//! BatchNorm, some channels of one sample for GroupNorm, one channel of one sample for InstanceNorm. A group is one or more *segments*,
//! the spatial extents of one channel of one sample, in which every parameter is one number.

use super::{BatchNormBackwardDescriptor, GroupNormBackwardDescriptor, InstanceNormBackwardDescriptor};
#[cfg(feature = "wgpu")]
use super::{BatchNormDescriptor, GroupNormDescriptor, InstanceNormDescriptor};
use crate::dtype::{DType, Real};
use crate::error::{Reason, Result};
use crate::gradients::Derivation;
use crate::kernel::Kernel;
use crate::operands::operands;
use crate::ops::activation::Activation;
use crate::ops::fields::{batch_of_channels, beside, default_eps, demand, float, in_range, parameters, require};
use crate::ops::valid::{Accumulate, Described, Op, Valid, fields, kernels};
use crate::plan::Descriptor;
use crate::slots::Access;
use crate::slots::{Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;

pub(super) mod cpu;
#[cfg(feature = "cuda")]
pub(super) mod cuda;
mod fast;
mod geometry;
#[cfg(feature = "wgpu")]
pub(super) mod wgpu;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;

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
    /// The forward op.
    #[cfg(feature = "wgpu")]
    pub(crate) const fn forward(self) -> Op<Self> {
        match self {
            Self::Batch => BatchNormDescriptor::OP,
            Self::Group => GroupNormDescriptor::OP,
            Self::Instance => InstanceNormDescriptor::OP,
        }
    }

    /// The backward op.
    pub(crate) const fn backward(self) -> Op<Self> {
        match self {
            Self::Batch => BatchNormBackwardDescriptor::OP,
            Self::Group => GroupNormBackwardDescriptor::OP,
            Self::Instance => InstanceNormBackwardDescriptor::OP,
        }
    }
}

operands! { $
    /// Operands of the forward ops.
    mod forward {
        X x: In, always, in place y => "Input.";
        RESIDUAL residual: In, if residual => "Added before the activation, if declared.", step "The residual.";
        WEIGHT weight: In, if weight => "Scale, if declared.", step "The weight.";
        BIAS bias: In, if bias => "Shift, if declared.", step "The bias.";
        RUNNING_MEAN running_mean: InOut or In, if momentum => "Mean of the batches so far, if declared.";
        RUNNING_VAR running_var: InOut or In, if momentum => "Variance of the batches so far, if declared.";
        NUM_BATCHES num_batches: InOut, if cumulative => "Number of batches that the running statistics hold, if declared.",
            step "The number of batches so far, which becomes one more.";
        Y y: Out, always => "Output.";
        MEAN mean: Out, if stats => "Mean of each group, if declared.", step "Where mean and rstd go.";
        RSTD rstd: Out, if stats => "1 / sqrt(var + eps), likewise.";
    }
}

/// The steps by which args get the running statistics, which training updates and inference reads.
macro_rules! running_statistics {
    ($Args:ident) => {
        impl<'a> $Args<'a> {
            /// The running mean and variance that training updates.
            pub fn running(self, mean: impl Into<MemMut<'a>>, var: impl Into<MemMut<'a>>) -> Self {
                let (mean, var): (MemMut<'a>, MemMut<'a>) = (mean.into(), var.into());
                Self { running_mean: Some(mean.into()), running_var: Some(var.into()), ..self }
            }

            /// The running mean and variance that inference reads.
            pub fn inference(self, mean: impl Into<Mem<'a>>, var: impl Into<Mem<'a>>) -> Self {
                let (mean, var): (Mem<'a>, Mem<'a>) = (mean.into(), var.into());
                Self { running_mean: Some(mean.into()), running_var: Some(var.into()), ..self }
            }
        }
    };
}
pub(super) use running_statistics;

operands! { $
    /// Operands of the backward ops.
    mod backward {
        DY dy: In, always, in place dx => "Gradient of y.";
        X x: In, always => "Forward's input.";
        RESIDUAL residual: In, if residual => "Forward's residual, if declared.", step "The residual.";
        Y y: In, if from_y => "Forward's output, if declared.", step "The output.";
        WEIGHT weight: In, if weight => "Scale, if declared.", step "The weight.";
        BIAS bias: In, if bias => "Shift, if declared.", step "The bias.";
        MEAN mean: In, unless inference => "Mean that forward wrote, if declared.",
            step "Mean and rstd that forward wrote.";
        RSTD rstd: In, unless inference => "rstd that forward wrote, if declared.";
        RUNNING_MEAN running_mean: In, if inference => "Running mean that forward read, if declared.",
            step "The running mean and variance that forward read in inference.";
        RUNNING_VAR running_var: In, if inference => "Running variance that forward read, if declared.";
        DX dx: Out, if dx => "Gradient of x, if declared.", step "Where the gradient of x goes.";
        DRESIDUAL dresidual: Out, if dresidual => "Gradient of the residual, if declared.",
            step "Where the gradient of the residual goes.";
        DWEIGHT dweight: Out, if dweight => "Gradient of weight, if declared.",
            step "Where the gradient of the weight goes.";
        DBIAS dbias: Out, if dbias => "Gradient of bias, if declared.", step "Where the gradient of the bias goes.";
    }
}

/// The extents of `x` as `[batch, channels, spatial]`, and what shares statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ChannelShape {
    batch: u64,
    channels: u64,
    /// Product of the spatial extents: the elements of a segment.
    spatial: u64,
    /// Groups of one sample; 0 where one channel of all samples shares statistics.
    groups: u64,
}

impl ChannelShape {
    /// Of an `x` of rank 2 or more.
    fn new(kind: ChannelNorm, x: &TensorDesc, groups: Option<u64>, inference: bool) -> Self {
        let channels = x.dims()[1];
        let groups = match kind {
            ChannelNorm::Batch => 0,
            // The running statistics are those of a channel.
            ChannelNorm::Instance if inference => 0,
            ChannelNorm::Instance => channels,
            ChannelNorm::Group => groups.unwrap_or_default(),
        };
        // Without elements, extents along which nothing is written do not matter beyond whether they are 0, 1 or more. Kernels could not count some.
        let few = |extent: u64, is_written: bool| if x.is_empty() && !is_written { extent.min(2) } else { extent };
        let (batch, spatial) = (few(x.dims()[0], groups > 0), few(x.dims()[2..].iter().product(), false));
        Self { batch, channels, spatial, groups }
    }

    #[cfg(feature = "cuda")]
    fn has_elements(&self) -> bool {
        self.batch > 0 && self.channels > 0 && self.spatial > 0
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

fields! {
    /// The fields of a forward descriptor.
    ForwardFields: Fields<Kind = ChannelNorm, Derived = ()> lacks forward_lacks {
        x: TensorDesc,
        /// GroupNorm's.
        groups: Option<u64> = default,
        weight: Option<DType> = default,
        bias: Option<DType> = default,
        eps: Real,
        activation: Activation = default,
        residual: bool = default,
        /// Weight of this batch in the running statistics, which it declares.
        momentum: Option<Real> = default,
        /// The running statistics are the mean over all batches, counted in `num_batches`.
        cumulative: bool = default,
        /// The running statistics are the statistics.
        inference: bool = default,
        stats: bool = default,
    }
}

fields! {
    /// The fields of a backward descriptor.
    BackwardFields: Fields<Kind = ChannelNorm, Derived = ()> lacks backward_lacks {
        x: TensorDesc,
        /// GroupNorm's.
        groups: Option<u64> = default,
        weight: Option<DType> = default,
        bias: Option<DType> = default,
        /// Needed in inference, where backward derives rstd.
        eps: Option<Real> = default,
        activation: Activation = default,
        residual: bool = default,
        /// ReLU's gradient comes from the sign of `y`, not from the pre-activation.
        from_y: bool = default,
        inference: bool = default,
        dx: bool = default,
        dresidual: bool = default,
        dweight: bool = default,
        dbias: bool = default,
    }
}

/// The fields of a forward that other norms alone have.
fn forward_lacks(kind: ChannelNorm) -> &'static [&'static str] {
    match kind {
        ChannelNorm::Batch => &["groups"],
        ChannelNorm::Group => &["residual", "momentum", "cumulative", "inference"],
        ChannelNorm::Instance => &["groups", "residual", "cumulative"],
    }
}

/// As [`forward_lacks`], of a backward.
fn backward_lacks(kind: ChannelNorm) -> &'static [&'static str] {
    match kind {
        ChannelNorm::Batch => &["groups"],
        ChannelNorm::Group => &["eps", "residual", "from_y", "inference", "dresidual"],
        ChannelNorm::Instance => &["groups", "residual", "from_y", "dresidual"],
    }
}

/// The kernels of a pass, in the order in which they are tried: its CUDA forms, the WGSL forms that can serve the op, and what the CPU runs, the
/// reference and the fast form before it.
macro_rules! kernels_of_pass {
    (cpu: $cpu:path, $fast:path; cuda: $cuda:tt; $($kind:ident: [$($wgsl:ident),*];)*) => {
        const {
            match D::OP.kind {
                $(ChannelNorm::$kind => kernels!(
                    cuda: $cuda;
                    wgpu: [$(wgpu::WgslForm::$wgsl),*];
                    cpu: |norm| Ok(Valid::on_cpu(norm, $cpu));
                    before: {"fast" => $fast}
                ),)*
            }
        }
    };
}

/// The kernels of a forward.
pub(super) fn forward_kernels<D: Described<Fields = ForwardFields>>() -> &'static [&'static dyn Kernel<D>] {
    kernels_of_pass!(
        cpu: cpu::forward, fast::forward;
        cuda: [
            cuda::Form::Stripe, cuda::Form::Segment, cuda::Form::Relay, cuda::Form::Single, cuda::Form::Split,
            cuda::Form::ChannelsLastRows, cuda::Form::ChannelsLastCluster, cuda::Form::ChannelsLastSlabs,
            cuda::Form::ChannelsLastResident, cuda::Form::ChannelsLastCooperative, cuda::Form::ChannelsLastSplit
        ];
        Batch: [
            GaplessResident, Persistent, Resident, SplitFused, SplitMerge, ChannelsLastSplitMerge, Apply, ChannelsLastApply
        ];
        Group: [
            Persistent, Resident, ChannelsLastTile, SplitFused, ChannelsLastSplitFused, SplitMerge, ChannelsLastSplitMerge
        ];
        Instance: [
            Persistent, Resident, SplitFused, ChannelsLastSplitFused, SplitMerge, ChannelsLastSplitMerge, Apply,
            ChannelsLastApply
        ];
    )
}

/// The kernels of a backward.
pub(super) fn backward_kernels<D: Described<Fields = BackwardFields>>() -> &'static [&'static dyn Kernel<D>] {
    kernels_of_pass!(
        cpu: cpu::backward, fast::backward;
        cuda: [
            cuda::Form::Stripe, cuda::Form::Segment, cuda::Form::Relay, cuda::Form::Single,
            cuda::Form::SingleMasked, cuda::Form::Held, cuda::Form::Split, cuda::Form::ChannelsLastRows,
            cuda::Form::ChannelsLastCluster, cuda::Form::ChannelsLastSlabs, cuda::Form::ChannelsLastCooperative,
            cuda::Form::ChannelsLastSplit
        ];
        Batch: [GaplessResident, Resident, SplitFused, SplitMerge, ChannelsLastSplitMerge];
        Group: [Resident, ChannelsLastTile, SplitFused, ChannelsLastSplitFused, SplitMerge, ChannelsLastSplitMerge];
        Instance: [Resident, SplitFused, ChannelsLastSplitFused, SplitMerge, ChannelsLastSplitMerge];
    )
}

/// Checks x, the parameters' types and what the ops' groups have to be, which forward and backward share.
fn shape(
    kind: ChannelNorm,
    op: &'static str,
    x: &TensorDesc,
    groups: Option<u64>,
    inference: bool,
    [weight, bias]: [Option<DType>; 2],
) -> Result<ChannelShape> {
    float(op, "x", x)?;
    batch_of_channels(op, x)?;
    parameters(op, x, [("weight", weight), ("bias", bias)])?;
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
    demand(op, "inference", !inference || kind != ChannelNorm::Group, "group_norm has no running statistics")?;
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

impl ForwardFields {
    /// The plainest forward of `x`: no parameters, no statistics written, eps 1e-5.
    pub(crate) fn plain(x: TensorDesc, groups: Option<u64>) -> Self {
        Self { groups, ..Self::minimal(x, default_eps()) }
    }

    /// As [`plain`](Self::plain), with the running statistics.
    pub(crate) fn inference(x: TensorDesc) -> Self {
        Self { inference: true, ..Self::plain(x, None) }
    }

    fn declare(&self, &Op { name: op, kind, .. }: &Op<ChannelNorm>, slots: &mut SlotsBuilder<'_>) -> Result<()> {
        use forward::{BIAS, MEAN, NUM_BATCHES, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y};
        let x = self.x;
        let shape = shape(kind, op, &x, self.groups, self.inference, [self.weight, self.bias])?;
        check_eps(kind, op, self.eps)?;
        in_range(op, "eps", self.eps, &x)?;
        require(op, "residual", kind == ChannelNorm::Batch || !self.residual, || format!("{op} has none"))?;
        require(op, "cumulative", kind == ChannelNorm::Batch || !self.cumulative, || format!("{op} has no such mode"))?;
        if let Some(momentum) = self.momentum {
            let momentum = momentum.get();
            demand(op, "momentum", kind != ChannelNorm::Group, "group_norm has no running statistics")?;
            require(op, "momentum", (0.0..=1.0).contains(&momentum), || {
                format!("must be from 0 to 1, got {momentum}")
            })?;
            let rule = "must not be combined with a momentum, whose place the count of batches takes";
            demand(op, "cumulative", !self.cumulative, rule)?;
        }
        let has_running = self.momentum.is_some() || self.cumulative;
        let rule = "reads the running statistics, which no momentum and no count can update then";
        demand(op, "inference", !self.inference || !has_running, rule)?;
        let rule = "in inference the statistics are the running ones, which backward takes";
        demand(op, "stats", !self.inference || !self.stats, rule)?;

        let output = slots.derived(Y, beside(&x))?;
        let saved = slots.derived(RSTD, statistics(kind, &x, &shape))?;
        let running = TensorDesc::contiguous(x.dtype().accumulator(), &[shape.channels]);
        let running = slots.derived(RUNNING_MEAN, running)?;
        slots.declare(X, x)?;
        if self.residual {
            slots.declare(RESIDUAL, x)?;
            slots.in_place_instead(RESIDUAL, Y);
        }
        slots.declare_dense(&[shape.channels], [(WEIGHT, self.weight), (BIAS, self.bias)])?;
        if has_running || self.inference {
            let access = if self.inference { Access::In } else { Access::InOut };
            slots.declare_as(access, RUNNING_MEAN, running)?;
            slots.declare_as(access, RUNNING_VAR, running)?;
        }
        slots.declare_dense(&[1], [(NUM_BATCHES, self.cumulative.then_some(DType::I64))])?;
        slots.declare(Y, output)?;
        slots.declare_if(self.stats, MEAN, saved)?;
        slots.declare_if(self.stats, RSTD, saved)
    }
}

impl Valid<ForwardFields> {
    /// The extents, and how many groups share them.
    pub(crate) fn shape(&self) -> ChannelShape {
        ChannelShape::new(self.op.kind, &self.fields.x, self.fields.groups, self.fields.inference)
    }

    /// How the tensors lie: `x`, `y`, `residual`.
    ///
    /// # Errors
    /// Why the layouts are neither contiguous nor channels last.
    pub(crate) fn geometry(&self) -> Result<ChannelGeometry, Reason> {
        ChannelGeometry::new(self.shape(), &self.slots, &[forward::X, forward::Y, forward::RESIDUAL])
    }

    /// The backward with the same types, layouts and options, for the gradients of some inputs, of which forward may have others: `dy` lies as
    /// `y`, the others as in forward. Through an activation, dx has a place for the residual's gradient beside it.
    pub(crate) fn backward(&self, wanted: &[&str]) -> Result<Valid<BackwardFields>> {
        use forward::{BIAS, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT};
        let forward = &self.fields;
        let wants = |input: &str| wanted.contains(&input);
        let recomputes = !forward.activation.is_identity();
        let (dx, dbias) = (wants("x"), wants("bias") && forward.bias.is_some());
        let dresidual = forward.residual && (wants("residual") || (dx && recomputes));
        let [mean, rstd] = if forward.inference { [RUNNING_MEAN, RUNNING_VAR] } else { [MEAN, RSTD] };
        let kept: &[usize] = if recomputes { &[WEIGHT, mean, rstd, BIAS, RESIDUAL] } else { &[WEIGHT, mean, rstd] };
        let mut layouts = Layouts::new();
        layouts.extend(self.slots.all_at(kept).map(|slot| (slot.name.to_string(), slot.desc)));
        layouts.extend(self.slots.at(forward::Y).map(|slot| ("dy".to_string(), slot.desc)));
        let fields = BackwardFields {
            x: self.slots.always(forward::X).desc,
            groups: forward.groups,
            weight: forward.weight,
            bias: forward.bias.filter(|_| recomputes || dbias),
            eps: forward.inference.then_some(forward.eps),
            activation: forward.activation,
            residual: forward.residual && (recomputes || dresidual),
            from_y: false,
            inference: forward.inference,
            dx,
            dresidual,
            dweight: wants("weight") && forward.weight.is_some(),
            dbias,
            accumulate: Accumulate::new(),
            layouts,
        };
        Valid::new(self.op.kind.backward(), fields)
    }

    /// Derives the gradients. Statistics that forward does not write are those of x alone, which change no running statistics.
    pub(super) fn gradients<F: Descriptor, B: Descriptor>(
        &self,
        derivation: &mut Derivation,
        forward: fn(Self) -> F,
        backward: fn(Valid<BackwardFields>) -> B,
    ) -> Result<()> {
        let mut roles = Vec::new();
        if !self.fields.stats && !self.fields.inference {
            derivation.explain("forward writes its statistics only with `stats`");
            let plain = ForwardFields::plain(self.slots.always(forward::X).desc, self.fields.groups);
            let fields = ForwardFields { eps: self.fields.eps, stats: true, ..plain };
            let again = derivation.push(forward(Self::new(self.op, fields)?), &roles);
            roles.extend(["mean", "rstd"].into_iter().filter_map(|name| Some((name, again.role(name)?.clone()))));
        }
        derivation.explain("through an activation x's is written beside the residual's, which has to be wanted too");
        let descriptor = self.backward(derivation.wanted())?;
        derivation.push(backward(descriptor), &roles);
        Ok(())
    }
}

impl BackwardFields {
    /// The plainest backward of `x`: `dx` alone, without parameters.
    pub(crate) fn plain(x: TensorDesc, groups: Option<u64>) -> Self {
        Self { groups, dx: true, ..Self::minimal(x) }
    }

    /// As [`plain`](Self::plain), with the running statistics.
    pub(crate) fn inference(x: TensorDesc, eps: Real) -> Self {
        Self { inference: true, eps: Some(eps), ..Self::plain(x, None) }
    }

    /// Whether the pre-activation is computed again.
    pub(crate) fn recomputes(&self) -> bool {
        !self.activation.is_identity() && !self.from_y
    }

    fn declare(&self, &Op { name: op, kind, .. }: &Op<ChannelNorm>, slots: &mut SlotsBuilder<'_>) -> Result<()> {
        use backward::{
            BIAS, DBIAS, DRESIDUAL, DWEIGHT, DX, DY, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y,
        };
        let x = self.x;
        let shape = shape(kind, op, &x, self.groups, self.inference, [self.weight, self.bias])?;
        require(op, "eps", self.inference == self.eps.is_some(), || {
            if self.inference { "is needed with running statistics" } else { "must be absent: the saved rstd holds it" }
                .into()
        })?;
        self.eps.map_or(Ok(()), |eps| check_eps(kind, op, eps).and_then(|()| in_range(op, "eps", eps, &x)))?;
        require(op, "residual", kind == ChannelNorm::Batch || !self.residual, || format!("{op} has none"))?;
        require(op, "from_y", kind == ChannelNorm::Batch || !self.from_y, || format!("{op} has no such mode"))?;
        require(op, "from_y", !self.from_y || self.activation == Activation::Relu, || {
            format!("y tells the gradient of relu alone, not of {}", self.activation.name())
        })?;
        demand(op, "dweight", self.weight.is_some() || !self.dweight, "needs a weight")?;
        demand(op, "dbias", self.bias.is_some() || !self.dbias, "needs a bias")?;
        demand(op, "dresidual", self.residual || !self.dresidual, "needs a residual")?;
        let has_place = self.dresidual || !self.residual || !self.dx || self.activation.is_identity();
        demand(op, "dresidual", has_place, "must be asked for where dx is: through an activation it is not dy")?;
        let has_any = self.dx || self.dresidual || self.dweight || self.dbias;
        demand(op, "dx", has_any, "must be asked for, or another gradient: none is")?;

        let output = slots.derived(DY, beside(&x))?;
        let (channels, recomputes) = ([shape.channels], self.recomputes());
        slots.declare(DY, output)?;
        slots.declare(X, x)?;
        slots.declare_if(self.residual && recomputes, RESIDUAL, x)?;
        slots.declare_if(self.from_y, Y, output)?;
        slots.declare_dense(&channels, [(WEIGHT, self.weight), (BIAS, self.bias.filter(|_| recomputes))])?;
        if self.inference {
            let running = TensorDesc::contiguous(x.dtype().accumulator(), &channels);
            let running = slots.derived(RUNNING_MEAN, running)?;
            slots.declare(RUNNING_MEAN, running)?;
            slots.declare(RUNNING_VAR, running)?;
        } else {
            let saved = slots.derived(RSTD, statistics(kind, &x, &shape))?;
            slots.declare(MEAN, saved)?;
            slots.declare(RSTD, saved)?;
        }
        slots.declare_if(self.dx, DX, output)?;
        slots.declare_if(self.dresidual, DRESIDUAL, output)?;
        let (dweight, dbias) = (self.weight.filter(|_| self.dweight), self.bias.filter(|_| self.dbias));
        slots.declare_dense(&channels, [(DWEIGHT, dweight), (DBIAS, dbias)])
    }
}

impl Valid<BackwardFields> {
    /// Takes `y`, laid out as `dy`, in place of what the pre-activation is computed from.
    #[allow(clippy::wrong_self_convention, reason = "the name is the field's")]
    pub(crate) fn from_y(self) -> Result<Self> {
        let dy = self.slots.at(backward::DY).map(|slot| slot.desc);
        self.with(|fields| {
            fields.from_y = true;
            fields.layouts.retain(|name, _| !["bias", "residual"].contains(&name.as_str()));
            fields.layouts.extend(dy.map(|desc| ("y".to_string(), desc)));
        })
    }

    /// The extents, and how many groups share them.
    pub(crate) fn shape(&self) -> ChannelShape {
        ChannelShape::new(self.op.kind, &self.fields.x, self.fields.groups, self.fields.inference)
    }

    /// How the tensors lie: `dy`, `x`, `residual`, `y`, `dx`, `dresidual`.
    ///
    /// # Errors
    /// Why the layouts are neither contiguous nor channels last.
    pub(crate) fn geometry(&self) -> Result<ChannelGeometry, Reason> {
        use backward::{DRESIDUAL, DX, DY, RESIDUAL, X, Y};
        ChannelGeometry::new(self.shape(), &self.slots, &[DY, X, RESIDUAL, Y, DX, DRESIDUAL])
    }
}
