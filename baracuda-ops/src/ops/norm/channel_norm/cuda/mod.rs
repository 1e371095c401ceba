//! The CUDA forms of the family: what a choice depends on, and how a form becomes a candidate.
//!
//! **The rule of choice**: forms are asked in the order of [`Form`], and the first that accepts runs. Contiguous forms refuse channels-last
//! tensors and the other way round. A form that could serve still refuses, and names the other form, in these cases:
//!
//! - `segment`, forward over much data, where `single` is faster;
//! - `relay`, forward where `single`, backward where `held` is predicted to take less time ([`contiguous::relay`]);
//! - `held`, in a grid, where reading twice (`split`) is predicted to take less time;
//! - `channels_last_cluster`, forward with groups and many rows a thread, where `channels_last_slabs` serves.
//!
//! A form that was pinned by its name does not compare itself with others: it refuses only what it cannot do.

use std::fmt::Debug;

use baracuda_ops_sys as sys;

use super::{BackwardFields, ChannelGeometry, ChannelNorm, ChannelOrder, ChannelShape, ForwardFields};
use crate::backend::cuda::{self, Numbers, Props, c_dtype};
use crate::backend::{Backend, DeviceProps, Located};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, Candidate, Kernel};
use crate::narrow::word;
use crate::ops::activation::Activation;
use crate::ops::calls;
use crate::ops::valid::{Described, Fields, Valid};
use crate::options::{PlanOptions, WorkspaceReq};
use crate::plan::form_name;
use crate::slots::Slots;

mod backward;
mod channels_last;
mod contiguous;
mod forward;
#[cfg(test)]
mod tests;

/// One way to compute forward or backward, in the order in which forms are asked. `csrc/norm/channel` and `csrc/norm/channels_last` have the kernels,
/// `csrc/bops_channel_norm.h` says what each does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Stripe,
    Segment,
    Relay,
    Single,
    SingleMasked,
    Held,
    Split,
    ChannelsLastRows,
    ChannelsLastCluster,
    ChannelsLastSlabs,
    ChannelsLastResident,
    ChannelsLastCooperative,
    ChannelsLastSplit,
}

impl<D: Described<Fields: Pass>> Kernel<D> for Form {
    fn name(&self) -> &'static str {
        match self {
            Self::Stripe => form_name!(D, "stripe"),
            Self::Segment => form_name!(D, "segment"),
            Self::Relay => form_name!(D, "relay"),
            Self::Single => form_name!(D, "single"),
            Self::SingleMasked => form_name!(D, "single_masked"),
            Self::Held => form_name!(D, "held"),
            Self::Split => form_name!(D, "split"),
            Self::ChannelsLastRows => form_name!(D, "channels_last_rows"),
            Self::ChannelsLastCluster => form_name!(D, "channels_last_cluster"),
            Self::ChannelsLastSlabs => form_name!(D, "channels_last_slabs"),
            Self::ChannelsLastResident => form_name!(D, "channels_last_resident"),
            Self::ChannelsLastCooperative => form_name!(D, "channels_last_cooperative"),
            Self::ChannelsLastSplit => form_name!(D, "channels_last_split"),
        }
    }

    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn accept<'d>(&self, descriptor: &'d D, _: &PlanOptions, props: &DeviceProps, ask: Ask) -> Accepted<'d> {
        let task = D::Fields::task(descriptor.valid(), Props::of(props)?)?;
        let problem = ChannelProblem { is_pinned: ask == Ask::Pinned, ..task.problem };
        D::Fields::choose(*self, &Task { problem, ..task })
    }
}

/// What a form chose for a problem, and what a run needs for it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Chosen<C> {
    choice: C,
    workspace_bytes: u64,
    launches: u32,
}

impl<C> Chosen<C> {
    /// One launch without a workspace.
    fn alone(choice: C) -> Self {
        Self { choice, workspace_bytes: 0, launches: 1 }
    }
}

/// What a form answers to a problem: its choice, or why it has none.
type Answer<C> = Result<Chosen<C>, Reason>;

/// The one search of all forms: the candidate of the least cost with that cost, of equal ones the first.
fn least<K: PartialOrd, T>(candidates: impl IntoIterator<Item = (K, T)>) -> Option<(K, T)> {
    candidates.into_iter().reduce(|least, next| if next.0 < least.0 { next } else { least })
}

/// The C functions of a form of pass `F`, which takes choices `C`.
type Calls<F, C> = calls::Calls<sys::bops_channel_norm_specialisation, <F as Pass>::Params, C, <F as Pass>::Operands>;

/// What differs between forward and backward.
trait Pass: Fields<Kind = ChannelNorm, Derived = ()> + 'static {
    /// The C structs.
    type Params: Copy + Default + Send + Sync + 'static;
    type Operands: 'static;
    /// # Errors
    /// Why no form serves the layouts.
    fn task(norm: &Valid<Self>, props: &Props) -> Result<Task<Self>, Reason>;
    fn operands(located: &Located<'_>) -> Self::Operands;
    /// Has a form choose.
    ///
    /// # Errors
    /// Why it does not serve the problem, or which other form is faster.
    fn choose(form: Form, task: &Task<Self>) -> Accepted<'static>;
}

/// A norm, in the terms in which its forms are asked.
struct Task<F: Pass> {
    problem: ChannelProblem,
    of: sys::bops_channel_norm_specialisation,
    params: F::Params,
    /// Whether a run writes anything.
    has_work: bool,
}

impl<F: Pass> Task<F> {
    /// The candidate of a form that has made its choice.
    fn candidate<C: Numbers + Debug>(&self, calls: Calls<F, C>, chosen: Chosen<C>) -> Candidate<'static> {
        let Self { problem, of, params, has_work } = *self;
        let Chosen { choice, workspace_bytes, launches } = chosen;
        let workspace = WorkspaceReq::new(workspace_bytes, 16);
        // The extents and the activation decide, too, which kernels a form has.
        let candidate = calls.candidate(has_work, (of, params, choice, problem), F::operands);
        Candidate { workspace, launches, ..candidate }
    }
}

/// What kernels are compiled for: the type of x, the type of weight and bias, and whether there is a residual, or backward whether its gradient is
/// wanted.
fn specialisation(
    x: DType,
    parameters: Option<DType>,
    has_residual: bool,
) -> Result<sys::bops_channel_norm_specialisation, Reason> {
    Ok(sys::bops_channel_norm_specialisation {
        dtype: c_dtype(x)?,
        weight_dtype: c_dtype(parameters.unwrap_or(x))?,
        has_residual: u32::from(has_residual),
    })
}

/// What a choice depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct ChannelProblem {
    shape: ChannelShape,
    order: ChannelOrder,
    /// Channels last: whether the rows of all samples lie at one stride in every tensor.
    is_merged: bool,
    /// Whether the form was asked for by its name, so that it does not compare itself with others.
    is_pinned: bool,
    /// Bytes of an element of x.
    element_bytes: u64,
    /// Bytes of a statistic.
    accumulator_bytes: u64,
    /// The widest vector, up to 16 bytes, that every segment (channels last: every row) starts at a multiple of and is a whole number of.
    vector_bytes: u64,
    /// Contiguous: the widest such vector of whole samples, if the channels of a sample follow each other without a gap in every tensor; else 0.
    sample_vector_bytes: u64,
    /// Whether the running statistics are the statistics (inference).
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
    /// Compute capability: major times 10 plus minor.
    capability: u32,
    multiprocessors: u64,
    /// Shared memory that one block may have.
    shared_bytes: u64,
    /// Blocks of the largest cluster; 1 without clusters.
    max_cluster: u64,
}

impl ChannelProblem {
    /// The problem without what only one of the passes has.
    fn of(dtype: DType, geometry: &ChannelGeometry, slots: &Slots, props: &Props) -> Self {
        Self {
            shape: geometry.shape,
            order: geometry.order,
            is_merged: geometry.is_merged(),
            element_bytes: dtype.size_bytes(),
            accumulator_bytes: dtype.accumulator().size_bytes(),
            vector_bytes: geometry.vector_bytes,
            sample_vector_bytes: sample_vector_bytes(geometry, slots, dtype.size_bytes()),
            capability: props.capability,
            multiprocessors: props.multiprocessors.into(),
            shared_bytes: props.shared_bytes.into(),
            max_cluster: props.cluster.into(),
            ..Self::default()
        }
    }

    fn has_elements(&self) -> bool {
        self.shape.has_elements()
    }

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

    /// Clusters that are resident at once, with `blocks` blocks on an SM.
    fn resident_clusters(&self, cluster: u64, blocks: u64) -> u64 {
        cuda::resident_clusters(word(self.multiprocessors), cluster, blocks)
    }

    /// Bytes of numbers of the accumulator's type; each count is a product of extents.
    fn number_bytes(&self, counts: &[&[u64]]) -> Result<u64, Reason> {
        let product = |extents: &&[u64]| extents.iter().try_fold(1u64, |all, &extent| all.checked_mul(extent));
        let numbers = counts.iter().try_fold(0u64, |all, extents| all.checked_add(product(extents)?));
        let bytes = numbers.and_then(|numbers| numbers.checked_mul(self.accumulator_bytes));
        bytes.ok_or_else(|| "the workspace exceeds 2^64 bytes".into())
    }

    /// Refuses devices before a compute capability, 80 or 90.
    fn needs_capability(&self, least: u32) -> Result<(), Reason> {
        let what = if least == 90 { "it needs compute capability 9.0" } else { "it needs compute capability 8.0" };
        needs(self.capability >= least, what)
    }
}

/// Refuses a problem unless a condition is met.
fn needs(is_met: bool, what: &'static str) -> Result<(), Reason> {
    if is_met { Ok(()) } else { Err(what.into()) }
}

/// See [`ChannelProblem::sample_vector_bytes`].
fn sample_vector_bytes(geometry: &ChannelGeometry, slots: &Slots, element_bytes: u64) -> u64 {
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

fn c_strides(geometry: &ChannelGeometry, index: usize) -> sys::bops_channel_strides {
    let strides = geometry.strides(index);
    sys::bops_channel_strides { batch: strides.batch, channel: strides.channel, spatial: strides.spatial }
}
