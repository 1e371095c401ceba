//! The CUDA kernels: the forms in their order of preference, and the parameters, preparation and launch of each.
//!
//! Rows that registers hold, else rows that the shared memory of a cluster holds; lines side by side that registers hold, else, backward, those
//! that registers and shared memory hold; else `split`, which takes everything. A form takes what it takes whether it is asked among others or by
//! its name; `choice` has the limits and the numbers.

mod choice;

use std::fmt::Debug;

use baracuda_ops_sys as sys;

use choice::{ChannelsResident, ChannelsShared, Lines, RowsResident, RowsShared, Split};

use super::geometry::{ChannelGeometry, Geometry, Tensors, check_channels, check_rows};
use super::{SoftmaxBackwardDescriptor, SoftmaxDescriptor, backward, forward};
use crate::backend::cuda::calls::{self, Numbers, calls};
use crate::backend::cuda::{Props, c_dtype};
use crate::backend::{Backend, Device, DeviceProps, Located};
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, BuildError, Built, Candidate, Kernel};
use crate::narrow::word;
use crate::ops::rows::RowGeometry;
use crate::ops::valid::Described;
use crate::options::{PlanOptions, WorkspaceReq};
use crate::plan::{Descriptor, form_name};
use crate::slots::Slots;

/// A form of both passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    RowsResident,
    RowsShared,
    ChannelsResident,
    /// Backward alone.
    ChannelsShared,
    Split,
}

/// The C functions of a form with the choice `C` and the operands `O`.
type Calls<C, O> = calls::Calls<sys::bops_softmax_specialisation, sys::bops_softmax_params, C, O>;

/// What differs between the two passes.
trait SoftmaxPass: Described {
    type Operands: 'static;
    const IS_BACKWARD: bool;
    const ROWS_RESIDENT: Calls<RowsResident, Self::Operands>;
    const ROWS_SHARED: Calls<RowsShared, Self::Operands>;
    const CHANNELS_RESIDENT: Calls<ChannelsResident, Self::Operands>;
    const CHANNELS_SHARED: Option<Calls<ChannelsShared, Self::Operands>>;
    const SPLIT: Calls<Split, Self::Operands>;
    fn along(&self) -> Along<'_>;
    fn operands(located: &Located<'_>) -> Self::Operands;
}

/// The operands of a pass, and what it computes along which axis of them.
struct Along<'d> {
    slots: &'d Slots,
    axis: usize,
    is_log: bool,
    scale: f64,
}

impl SoftmaxPass for SoftmaxDescriptor {
    type Operands = sys::bops_softmax_operands;
    const IS_BACKWARD: bool = false;
    const ROWS_RESIDENT: Calls<RowsResident, Self::Operands> =
        calls!(bops_softmax_rows_resident_prepare, bops_softmax_rows_resident_launch);
    const ROWS_SHARED: Calls<RowsShared, Self::Operands> =
        calls!(bops_softmax_rows_shared_prepare, bops_softmax_rows_shared_launch);
    const CHANNELS_RESIDENT: Calls<ChannelsResident, Self::Operands> =
        calls!(bops_softmax_channels_resident_prepare, bops_softmax_channels_resident_launch);
    const CHANNELS_SHARED: Option<Calls<ChannelsShared, Self::Operands>> = None;
    const SPLIT: Calls<Split, Self::Operands> = calls!(bops_softmax_split_prepare, bops_softmax_split_launch);

    fn along(&self) -> Along<'_> {
        let (slots, fields) = (&self.0.slots, &self.0.fields);
        Along { slots, axis: fields.axis, is_log: fields.log, scale: fields.scale.get() }
    }

    fn operands(located: &Located<'_>) -> Self::Operands {
        Self::Operands { x: located.pointer(forward::X), y: located.pointer(forward::Y) }
    }
}

impl SoftmaxPass for SoftmaxBackwardDescriptor {
    type Operands = sys::bops_softmax_backward_operands;
    const IS_BACKWARD: bool = true;
    const ROWS_RESIDENT: Calls<RowsResident, Self::Operands> =
        calls!(bops_softmax_backward_rows_resident_prepare, bops_softmax_backward_rows_resident_launch);
    const ROWS_SHARED: Calls<RowsShared, Self::Operands> =
        calls!(bops_softmax_backward_rows_shared_prepare, bops_softmax_backward_rows_shared_launch);
    const CHANNELS_RESIDENT: Calls<ChannelsResident, Self::Operands> =
        calls!(bops_softmax_backward_channels_resident_prepare, bops_softmax_backward_channels_resident_launch);
    const CHANNELS_SHARED: Option<Calls<ChannelsShared, Self::Operands>> =
        Some(calls!(bops_softmax_backward_channels_shared_prepare, bops_softmax_backward_channels_shared_launch));
    const SPLIT: Calls<Split, Self::Operands> =
        calls!(bops_softmax_backward_split_prepare, bops_softmax_backward_split_launch);

    fn along(&self) -> Along<'_> {
        let (slots, fields) = (&self.0.slots, &self.0.fields);
        Along { slots, axis: fields.axis, is_log: fields.log, scale: fields.scale.get() }
    }

    fn operands(located: &Located<'_>) -> Self::Operands {
        let (y, dy, dx) = (backward::Y, backward::DY, backward::DX);
        Self::Operands { y: located.pointer(y), dy: located.pointer(dy), dx: located.pointer(dx) }
    }
}

impl<D: SoftmaxPass> Kernel<D> for Form {
    fn name(&self) -> &'static str {
        match self {
            Self::RowsResident => form_name!(D, "rows_resident"),
            Self::RowsShared => form_name!(D, "rows_shared"),
            Self::ChannelsResident => form_name!(D, "channels_resident"),
            Self::ChannelsShared => form_name!(D, "channels_shared"),
            Self::Split => form_name!(D, "split"),
        }
    }

    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn accept<'d>(&self, descriptor: &'d D, _: &PlanOptions, props: &DeviceProps, _: Ask) -> Accepted<'d> {
        let (props, along) = (Props::of(props)?, descriptor.along());
        match self {
            Self::RowsResident | Self::RowsShared => check_rows(along.slots, along.axis)?,
            Self::ChannelsResident | Self::ChannelsShared => check_channels(along.slots, along.axis)?,
            Self::Split => {}
        }
        let task = Task::new(&along, D::IS_BACKWARD)?;
        let (lines, by) = (task.lines, D::operands);
        Ok(match self {
            _ if lines.outer == 0 => {
                let build = move |device: &Device| task.build(&D::SPLIT, Split::default(), by, device);
                Candidate { launches: 0, ..Candidate::new((), build) }
            }
            Self::RowsResident => task.candidate(D::ROWS_RESIDENT, choice::rows_resident(&lines, props)?, by),
            Self::RowsShared => task.candidate(D::ROWS_SHARED, choice::rows_shared(&lines, props)?, by),
            Self::ChannelsResident => {
                task.candidate(D::CHANNELS_RESIDENT, choice::channels_resident(&lines, props)?, by)
            }
            Self::ChannelsShared => {
                let calls = D::CHANNELS_SHARED.ok_or("it computes gradients")?;
                task.candidate(calls, choice::channels_shared(&lines, props)?, by)
            }
            Self::Split => {
                let (choice, workspace_bytes) = choice::split(&lines)?;
                let workspace = WorkspaceReq::new(workspace_bytes, 16);
                Candidate { workspace, launches: 3, ..task.candidate(D::SPLIT, choice, by) }
            }
        })
    }
}

/// The lines along an axis as forms are told of them; without an element, no block of them.
struct Task {
    lines: Lines,
    of: sys::bops_softmax_specialisation,
    params: sys::bops_softmax_params,
}

impl Task {
    fn new(along: &Along<'_>, is_backward: bool) -> Result<Self, Reason> {
        let tensors = Tensors::of(along.slots)?;
        let geometry = match tensors.geometry(along.axis)? {
            Geometry::Empty => ChannelGeometry {
                outer: 0,
                dim: 0,
                inner: 1,
                extents: [1, 1],
                strides: Vec::new(),
                dim_strides: Vec::new(),
                vector_bytes: 16,
            },
            Geometry::Rows(RowGeometry { rows, cols, extents, strides, vector_bytes }) => {
                let dim_strides = vec![1; strides.len()];
                ChannelGeometry { outer: rows, dim: cols, inner: 1, extents, strides, dim_strides, vector_bytes }
            }
            Geometry::Channels(channels) => channels,
        };
        let ChannelGeometry { outer, dim, inner, extents, strides, dim_strides, vector_bytes } = geometry;
        // The lone outer extent, if there is but one, is outermost: the kernels' short path.
        let is_lone = extents == [1, outer];
        let [extent1, extent2] = if is_lone { [1, 1] } else { extents };
        let strides = std::array::from_fn(|tensor| match strides.get(tensor) {
            Some(&[_, _, s2]) if is_lone => sys::bops_row_strides { s0: s2, s1: 0, s2: 0 },
            Some(&[s0, s1, s2]) => sys::bops_row_strides { s0, s1, s2 },
            None => sys::bops_row_strides::default(),
        });
        let steps = std::array::from_fn(|tensor| dim_strides.get(tensor).copied().unwrap_or(0));
        let (dtype, other) = (tensors.dtype, tensors.other);
        let [element_bytes, accumulator_bytes] = [dtype, dtype.accumulator()].map(|dtype| word(dtype.size_bytes()));
        let (is_widening, vector_bytes) = (other != dtype, word(vector_bytes));
        let (dtype, x_dtype, is_log) = (c_dtype(dtype)?, c_dtype(other)?, u32::from(along.is_log));
        let scale = along.scale;
        Ok(Self {
            lines: Lines {
                is_backward,
                is_widening,
                outer,
                dim,
                inner,
                element_bytes,
                accumulator_bytes,
                vector_bytes,
            },
            of: sys::bops_softmax_specialisation { dtype, x_dtype, is_log },
            params: sys::bops_softmax_params { outer, dim, inner, extent1, extent2, strides, steps, scale },
        })
    }

    /// In one launch, without workspace.
    fn candidate<'d, C: Numbers + Debug, O: 'static>(
        self,
        calls: Calls<C, O>,
        choice: C,
        operands: fn(&Located<'_>) -> O,
    ) -> Candidate<'d> {
        Candidate::new(choice, move |device| self.build(&calls, choice, operands, device))
    }

    fn build<C: Numbers, O: 'static>(
        &self,
        calls: &Calls<C, O>,
        choice: C,
        operands: fn(&Located<'_>) -> O,
        device: &Device,
    ) -> Result<Built, BuildError> {
        let Self { of, params, .. } = *self;
        // Lines that fill every thread have kernels of their own.
        let extents = [params.dim, params.outer, params.inner];
        calls.build(device, params.outer > 0, (of, params, choice, extents), operands)
    }
}
