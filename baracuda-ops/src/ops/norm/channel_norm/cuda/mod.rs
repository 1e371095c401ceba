//! The CUDA kernels of the family: parameters, preparation and launch. `contiguous` and `channels_last` say which variant serves what.

use baracuda_ops_sys as sys;

use super::{BackwardFields, ChannelGeometry, ChannelNorm, ChannelOrder, ChannelShape, ForwardFields, Valid};
use crate::backend::cuda::{self, Props, c_activation, c_dtype, tuned};
use crate::backend::{Device, Located};
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::{halves, word};
use crate::ops::activation::Activation;
use crate::options::WorkspaceReq;
use crate::plan::{Accepted, BuildError, Built, Candidate};
use crate::slots::Slots;

mod channels_last;
mod contiguous;

/// What a choice depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Problem {
    shape: ChannelShape,
    /// Bytes of an element of x.
    element_bytes: u32,
    /// Bytes of a statistic.
    accumulator_bytes: u32,
    /// The widest vector that every run starts at a multiple of and is a whole number of; up to 16.
    vector_bytes: u32,
    /// Contiguous, where the channels of a sample follow each other without a gap in every tensor: the same for the runs of whole samples;
    /// else 0.
    sample_vector_bytes: u32,
    /// Whether the running statistics are the statistics.
    inference: bool,
    /// Whether running statistics are updated.
    has_running: bool,
    /// Whether the batches are counted.
    cumulative: bool,
    activation: Activation,
    /// Whether a residual, or in backward y or the residual, is read beside x, or the residual's gradient written.
    has_extra: bool,
    /// Backward: whether the gradient of x is wanted.
    has_dx: bool,
    /// Backward: whether gradients of elements are wanted.
    has_element_gradients: bool,
    /// Backward: whether gradients of parameters are wanted.
    has_parameter_gradients: bool,
    /// Major times 10 plus minor.
    capability: u32,
    multiprocessors: u32,
    /// Shared memory that one block may have.
    shared_bytes: u32,
    /// Blocks of the largest cluster; 1 without clusters.
    max_cluster: u32,
}

impl Problem {
    /// `is_unrolled` of `csrc/common/activation.cuh`: whether loops that are unrolled many times may have the activation.
    fn is_unrolled(&self) -> bool {
        matches!(self.activation, Activation::Identity | Activation::Relu | Activation::Silu)
    }

    /// Whether an operand is read beside x, or the activation would multiply the code of unrolled loops.
    fn is_general(&self) -> bool {
        self.has_extra || !self.is_unrolled()
    }

    /// Whether there is no activation, or a ReLU: dpre is then dy or 0, which no rounding changes.
    fn is_at_most_relu(&self) -> bool {
        matches!(self.activation, Activation::Identity | Activation::Relu)
    }

    /// Backward: whether all that is wanted follows from dy and x alone, dx among it.
    fn is_plain(&self) -> bool {
        self.has_dx && !self.has_extra && self.activation == Activation::Identity
    }
}

tuned! {
    /// A choice, with what a run needs for it.
    pub(crate) struct Tuned of bops_channel_norm_choice {
        variant, vec_bytes, vectors, threads, cluster, grid, stages, chunks, overlaps, is_merged, tensors, cached,
        stagger_cycles, multiprocessors, residents,
    }
}

impl Tuned {
    fn candidate<'d>(self, build: impl FnOnce(&Device) -> Result<Built, BuildError> + Send + 'd) -> Candidate<'d> {
        let workspace = WorkspaceReq::new(self.workspace_bytes, 16);
        Candidate { workspace, launches: self.launches, ..Candidate::new(self.c(), build) }
    }
}

/// The forward kernels.
pub(super) fn forward<'d>(norm: &'d Valid<ForwardFields>, props: &Props) -> Accepted<'d> {
    let geometry = forward_geometry(norm)?;
    let problem = forward_problem(norm, &geometry, props);
    let tuned = match geometry.order {
        ChannelOrder::Contiguous => contiguous::forward(&problem)?,
        ChannelOrder::ChannelsLast => channels_last::forward(&problem, geometry.is_merged())?,
    };
    let types = c_dtypes(norm.fields.x.dtype(), norm.fields.weight, norm.fields.bias)?;
    Ok(tuned.candidate(move |device| build_forward(norm, &geometry, tuned, types, device)))
}

fn build_forward(
    norm: &Valid<ForwardFields>,
    geometry: &ChannelGeometry,
    tuned: Tuned,
    (dtype, weight_dtype): (sys::bops_dtype, sys::bops_dtype),
    device: &Device,
) -> Result<Built, BuildError> {
    use super::forward::{BIAS, MEAN, NUM_BATCHES, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y};
    let fields = &norm.fields;
    let shape = geometry.shape;
    let strides = |index| c_strides(geometry, index);
    let params = sys::bops_channel_norm_params {
        batch: shape.batch,
        channels: shape.channels,
        spatial: shape.spatial,
        groups: shape.groups,
        x: strides(X),
        residual: strides(RESIDUAL),
        y: strides(Y),
        eps: fields.eps.get(),
        momentum: fields.momentum.map_or(0.0, |momentum| momentum.get()),
        activation: c_activation(fields.activation),
        uses_running: u32::from(fields.inference),
        is_cumulative: u32::from(fields.cumulative),
    };
    let choice = tuned.c();
    let is_batch = norm.op.kind == ChannelNorm::Batch;
    let residual = u32::from(fields.residual);
    let call = if is_batch { "bops_batch_norm" } else { "bops_group_norm" };
    let kinds = [dtype, weight_dtype, residual, params.activation, u32::from(shape.groups == 0), params.uses_running];
    let prepare = || {
        // SAFETY: the structs live across the call and hold what the choice allows.
        unsafe {
            if is_batch {
                sys::bops_batch_norm_prepare(&params, &choice, dtype, weight_dtype, residual)
            } else {
                sys::bops_group_norm_prepare(&params, &choice, dtype, weight_dtype)
            }
        }
    };
    let launch = if is_batch { sys::bops_batch_norm_launch } else { sys::bops_group_norm_launch };
    let run = move |located: &Located<'_>, stream| {
        let operands = sys::bops_channel_norm_operands {
            x: located.pointer(X),
            residual: located.pointer(RESIDUAL),
            weight: located.pointer(WEIGHT),
            bias: located.pointer(BIAS),
            running_mean: located.pointer(RUNNING_MEAN),
            running_var: located.pointer(RUNNING_VAR),
            num_batches: located.pointer(NUM_BATCHES),
            y: located.pointer(Y),
            mean: located.pointer(MEAN),
            rstd: located.pointer(RSTD),
        };
        // SAFETY: the generic check proved every operand's span, alignment and device, and the workspace's.
        unsafe { launch(&params, &choice, dtype, weight_dtype, &operands, located.workspace_pointer(), stream) }
    };
    let has_elements = shape.batch > 0 && shape.channels > 0 && shape.spatial > 0;
    let has_work = has_elements || fields.stats && shape.group_count() > 0;
    cuda::build(device, call, has_work, key(&tuned, &shape, &kinds), prepare, run)
}

/// The kernels of the gradients.
pub(super) fn backward<'d>(norm: &'d Valid<BackwardFields>, props: &Props) -> Accepted<'d> {
    let geometry = backward_geometry(norm)?;
    let problem = backward_problem(norm, &geometry, props);
    let tuned = match geometry.order {
        ChannelOrder::Contiguous => contiguous::backward(&problem)?,
        ChannelOrder::ChannelsLast => channels_last::backward(&problem, geometry.is_merged())?,
    };
    let types = c_dtypes(norm.fields.x.dtype(), norm.fields.weight, norm.fields.bias)?;
    Ok(tuned.candidate(move |device| build_backward(norm, &geometry, tuned, types, device)))
}

fn build_backward(
    norm: &Valid<BackwardFields>,
    geometry: &ChannelGeometry,
    tuned: Tuned,
    (dtype, weight_dtype): (sys::bops_dtype, sys::bops_dtype),
    device: &Device,
) -> Result<Built, BuildError> {
    use super::backward::{
        BIAS, DBIAS, DRESIDUAL, DWEIGHT, DX, DY, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y,
    };
    let fields = &norm.fields;
    let shape = geometry.shape;
    let strides = |index| c_strides(geometry, index);
    let params = sys::bops_channel_norm_backward_params {
        batch: shape.batch,
        channels: shape.channels,
        spatial: shape.spatial,
        groups: shape.groups,
        dy: strides(DY),
        x: strides(X),
        residual: strides(RESIDUAL),
        y: strides(Y),
        dx: strides(DX),
        dresidual: strides(DRESIDUAL),
        eps: fields.eps.map_or(0.0, |eps| eps.get()),
        activation: c_activation(fields.activation),
        uses_running: u32::from(fields.inference),
    };
    let choice = tuned.c();
    let is_batch = norm.op.kind == ChannelNorm::Batch;
    let residual = u32::from(fields.dresidual);
    let call = if is_batch { "bops_batch_norm_backward" } else { "bops_group_norm_backward" };
    let kinds = [dtype, weight_dtype, residual, params.activation, u32::from(shape.groups == 0), params.uses_running];
    let prepare = || {
        // SAFETY: the structs live across the call and hold what the choice allows.
        unsafe {
            if is_batch {
                sys::bops_batch_norm_backward_prepare(&params, &choice, dtype, weight_dtype, residual)
            } else {
                sys::bops_group_norm_backward_prepare(&params, &choice, dtype, weight_dtype)
            }
        }
    };
    let launch = if is_batch { sys::bops_batch_norm_backward_launch } else { sys::bops_group_norm_backward_launch };
    let run = move |located: &Located<'_>, stream| {
        let operands = sys::bops_channel_norm_backward_operands {
            dy: located.pointer(DY),
            x: located.pointer(X),
            residual: located.pointer(RESIDUAL),
            y: located.pointer(Y),
            weight: located.pointer(WEIGHT),
            bias: located.pointer(BIAS),
            mean: located.pointer(MEAN),
            rstd: located.pointer(RSTD),
            running_mean: located.pointer(RUNNING_MEAN),
            running_var: located.pointer(RUNNING_VAR),
            dx: located.pointer(DX),
            dresidual: located.pointer(DRESIDUAL),
            dweight: located.pointer(DWEIGHT),
            dbias: located.pointer(DBIAS),
        };
        // SAFETY: the generic check proved every operand's span, alignment and device, and the workspace's.
        unsafe { launch(&params, &choice, dtype, weight_dtype, &operands, located.workspace_pointer(), stream) }
    };
    let has_parameters = fields.dweight || fields.dbias;
    let has_elements = shape.batch > 0 && shape.channels > 0 && shape.spatial > 0;
    let has_work = has_elements || has_parameters && shape.channels > 0;
    cuda::build(device, call, has_work, key(&tuned, &shape, &kinds), prepare, run)
}

fn forward_geometry(norm: &Valid<ForwardFields>) -> Result<ChannelGeometry, Reason> {
    use super::forward::{BIAS, MEAN, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT};
    norm.slots.check_dense(&[WEIGHT, BIAS, MEAN, RSTD, RUNNING_MEAN, RUNNING_VAR])?;
    norm.geometry()
}

fn backward_geometry(norm: &Valid<BackwardFields>) -> Result<ChannelGeometry, Reason> {
    use super::backward::{BIAS, DBIAS, DWEIGHT, MEAN, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT};
    norm.slots.check_dense(&[WEIGHT, BIAS, MEAN, RSTD, RUNNING_MEAN, RUNNING_VAR, DWEIGHT, DBIAS])?;
    norm.geometry()
}

fn forward_problem(norm: &Valid<ForwardFields>, geometry: &ChannelGeometry, props: &Props) -> Problem {
    let fields = &norm.fields;
    Problem {
        inference: fields.inference,
        has_running: fields.momentum.is_some() || fields.cumulative,
        cumulative: fields.cumulative,
        activation: fields.activation,
        has_extra: fields.residual,
        ..plain_problem(fields.x.dtype(), geometry, &norm.slots, props)
    }
}

fn backward_problem(norm: &Valid<BackwardFields>, geometry: &ChannelGeometry, props: &Props) -> Problem {
    let fields = &norm.fields;
    let has_extra = norm.slots.all_at(&[super::backward::RESIDUAL, super::backward::Y]).next().is_some();
    Problem {
        inference: fields.inference,
        activation: fields.activation,
        has_extra: has_extra || fields.dresidual,
        has_dx: fields.dx,
        has_element_gradients: fields.dx || fields.dresidual,
        has_parameter_gradients: fields.dweight || fields.dbias,
        ..plain_problem(fields.x.dtype(), geometry, &norm.slots, props)
    }
}

/// See [`Problem::sample_vector_bytes`].
fn sample_vector_bytes(geometry: &ChannelGeometry, slots: &Slots, element_bytes: u64) -> u32 {
    let shape = &geometry.shape;
    let mut common = 16 | shape.channels.wrapping_mul(shape.spatial).wrapping_mul(element_bytes);
    for (slot, strides) in slots.iter().filter_map(|slot| Some((slot, geometry.declared_strides(slot.index)?))) {
        if shape.channels > 1 && strides.channel != shape.spatial {
            return 0;
        }
        common |= slot.desc.align_bytes();
        if shape.batch > 1 {
            common |= strides.batch.wrapping_mul(element_bytes);
        }
    }
    if geometry.order == ChannelOrder::Contiguous { 1 << common.trailing_zeros() } else { 0 }
}

fn plain_problem(dtype: DType, geometry: &ChannelGeometry, slots: &Slots, props: &Props) -> Problem {
    Problem {
        sample_vector_bytes: sample_vector_bytes(geometry, slots, dtype.size_bytes()),
        shape: geometry.shape,
        element_bytes: word(dtype.size_bytes()),
        accumulator_bytes: word(dtype.accumulator().size_bytes()),
        vector_bytes: word(geometry.vector_bytes),
        capability: props.capability,
        multiprocessors: props.multiprocessors,
        shared_bytes: props.shared_bytes,
        max_cluster: props.cluster,
        ..Problem::default()
    }
}

/// What tells prepared kernels apart.
fn key(tuned: &Tuned, shape: &ChannelShape, kinds: &[u32]) -> Vec<u32> {
    let extents = [shape.batch, shape.channels, shape.spatial, shape.groups];
    let extents = extents.into_iter().flat_map(halves);
    tuned.words().chain(extents).chain(kinds.iter().copied()).collect()
}

/// Of x and of the parameters.
fn c_dtypes(
    x: DType,
    weight: Option<DType>,
    bias: Option<DType>,
) -> Result<(sys::bops_dtype, sys::bops_dtype), Reason> {
    Ok((c_dtype(x)?, c_dtype(weight.or(bias).unwrap_or(x))?))
}

fn c_strides(geometry: &ChannelGeometry, index: usize) -> sys::bops_channel_strides {
    let strides = geometry.strides(index);
    sys::bops_channel_strides { batch: strides.batch, channel: strides.channel, spatial: strides.spatial }
}
