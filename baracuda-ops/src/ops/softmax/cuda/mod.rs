//! The CUDA kernels: the forms in their order of preference, and the parameters, preparation and launch of each.
//!
//! Rows that registers hold, else rows that the shared memory of a cluster holds; lines side by side that registers hold, else, backward, those
//! that registers and shared memory hold; else `split`, which takes everything. A form takes what it takes whether it is asked among others or by
//! its name; `choice` has the limits and the numbers.

mod choice;

use std::ffi::c_void;
use std::fmt::Debug;

use baracuda_ops_sys as sys;

use choice::{ChannelsResident, ChannelsShared, Lines, RowsResident, RowsShared, Split};

use super::geometry::{ChannelGeometry, Geometry, Tensors, check_channels, check_rows};
use super::{SoftmaxBackwardDescriptor, SoftmaxDescriptor, backward, forward};
use crate::backend::cuda::calls::Numbers;
use crate::backend::cuda::{self, Props, c_dtype};
use crate::backend::{Backend, Device, DeviceProps, Located};
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, Candidate, Kernel};
use crate::narrow::word;
use crate::ops::rows::RowGeometry;
use crate::ops::valid::Described;
use crate::options::{PlanOptions, WorkspaceReq};
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

/// The C functions of a form.
struct Calls<P: SoftmaxPass, C> {
    /// The names of both without `_prepare` and `_launch`; the kernel's, behind `bops_`.
    name: &'static str,
    prepare: unsafe extern "C" fn(*const P::Params, *const C, sys::bops_dtype) -> sys::bops_status,
    launch: unsafe extern "C" fn(
        *const P::Params,
        *const C,
        sys::bops_dtype,
        *const P::Operands,
        *mut c_void,
        sys::bops_stream,
    ) -> sys::bops_status,
}

/// What differs between the two passes.
trait SoftmaxPass: Described {
    type Params: Copy + Send + Sync + 'static;
    type Operands;
    const IS_BACKWARD: bool;
    const ROWS_RESIDENT: Calls<Self, RowsResident>;
    const ROWS_SHARED: Calls<Self, RowsShared>;
    const CHANNELS_RESIDENT: Calls<Self, ChannelsResident>;
    const CHANNELS_SHARED: Option<Calls<Self, ChannelsShared>>;
    const SPLIT: Calls<Self, Split>;
    /// The operands, the axis, and whether it is log-softmax.
    fn lines(&self) -> (&Slots, usize, bool);
    fn params(&self, lines: &Lines, layout: &OperandLayout) -> Self::Params;
    fn operands(located: &Located<'_>) -> Self::Operands;
}

impl SoftmaxPass for SoftmaxDescriptor {
    type Params = sys::bops_softmax_params;
    type Operands = sys::bops_softmax_operands;
    const IS_BACKWARD: bool = false;
    const ROWS_RESIDENT: Calls<Self, RowsResident> = Calls {
        name: "bops_softmax_rows_resident",
        prepare: sys::bops_softmax_rows_resident_prepare,
        launch: sys::bops_softmax_rows_resident_launch,
    };
    const ROWS_SHARED: Calls<Self, RowsShared> = Calls {
        name: "bops_softmax_rows_shared",
        prepare: sys::bops_softmax_rows_shared_prepare,
        launch: sys::bops_softmax_rows_shared_launch,
    };
    const CHANNELS_RESIDENT: Calls<Self, ChannelsResident> = Calls {
        name: "bops_softmax_channels_resident",
        prepare: sys::bops_softmax_channels_resident_prepare,
        launch: sys::bops_softmax_channels_resident_launch,
    };
    const CHANNELS_SHARED: Option<Calls<Self, ChannelsShared>> = None;
    const SPLIT: Calls<Self, Split> = Calls {
        name: "bops_softmax_split",
        prepare: sys::bops_softmax_split_prepare,
        launch: sys::bops_softmax_split_launch,
    };

    fn lines(&self) -> (&Slots, usize, bool) {
        (&self.0.slots, self.0.fields.axis, self.0.fields.log)
    }

    fn params(&self, lines: &Lines, layout: &OperandLayout) -> Self::Params {
        let ([x, y, _], [x_step, y_step, _]) = (layout.strides, layout.steps);
        Self::Params {
            outer: lines.outer,
            dim: lines.dim,
            inner: lines.inner,
            extent1: layout.extents[0],
            extent2: layout.extents[1],
            x,
            y,
            x_step,
            y_step,
            scale: self.0.fields.scale.get(),
            is_log: u32::from(self.0.fields.log),
            x_dtype: layout.other,
        }
    }

    fn operands(located: &Located<'_>) -> Self::Operands {
        Self::Operands { x: located.pointer(forward::X), y: located.pointer(forward::Y) }
    }
}

impl SoftmaxPass for SoftmaxBackwardDescriptor {
    type Params = sys::bops_softmax_backward_params;
    type Operands = sys::bops_softmax_backward_operands;
    const IS_BACKWARD: bool = true;
    const ROWS_RESIDENT: Calls<Self, RowsResident> = Calls {
        name: "bops_softmax_backward_rows_resident",
        prepare: sys::bops_softmax_backward_rows_resident_prepare,
        launch: sys::bops_softmax_backward_rows_resident_launch,
    };
    const ROWS_SHARED: Calls<Self, RowsShared> = Calls {
        name: "bops_softmax_backward_rows_shared",
        prepare: sys::bops_softmax_backward_rows_shared_prepare,
        launch: sys::bops_softmax_backward_rows_shared_launch,
    };
    const CHANNELS_RESIDENT: Calls<Self, ChannelsResident> = Calls {
        name: "bops_softmax_backward_channels_resident",
        prepare: sys::bops_softmax_backward_channels_resident_prepare,
        launch: sys::bops_softmax_backward_channels_resident_launch,
    };
    const CHANNELS_SHARED: Option<Calls<Self, ChannelsShared>> = Some(Calls {
        name: "bops_softmax_backward_channels_shared",
        prepare: sys::bops_softmax_backward_channels_shared_prepare,
        launch: sys::bops_softmax_backward_channels_shared_launch,
    });
    const SPLIT: Calls<Self, Split> = Calls {
        name: "bops_softmax_backward_split",
        prepare: sys::bops_softmax_backward_split_prepare,
        launch: sys::bops_softmax_backward_split_launch,
    };

    fn lines(&self) -> (&Slots, usize, bool) {
        (&self.0.slots, self.0.fields.axis, self.0.fields.log)
    }

    fn params(&self, lines: &Lines, layout: &OperandLayout) -> Self::Params {
        let ([y, dy, dx], [y_step, dy_step, dx_step]) = (layout.strides, layout.steps);
        Self::Params {
            outer: lines.outer,
            dim: lines.dim,
            inner: lines.inner,
            extent1: layout.extents[0],
            extent2: layout.extents[1],
            y,
            dy,
            dx,
            y_step,
            dy_step,
            dx_step,
            scale: self.0.fields.scale.get(),
            is_log: u32::from(self.0.fields.log),
            dx_dtype: layout.other,
        }
    }

    fn operands(located: &Located<'_>) -> Self::Operands {
        Self::Operands {
            y: located.pointer(backward::Y),
            dy: located.pointer(backward::DY),
            dx: located.pointer(backward::DX),
        }
    }
}

/// What the C structs say of the operands besides their lines; strides and steps in the order of the operands.
struct OperandLayout {
    /// The type of y, and that of x or dx.
    dtype: sys::bops_dtype,
    other: sys::bops_dtype,
    extents: [u64; 2],
    strides: [sys::bops_row_strides; 3],
    steps: [u64; 3],
}

/// The lines along an axis; without an element, no block of them.
fn lines_of(slots: &Slots, axis: usize, is_backward: bool) -> Result<(Lines, OperandLayout), Reason> {
    let tensors = Tensors::of(slots)?;
    let geometry = match tensors.geometry(axis)? {
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
    let strides = std::array::from_fn(|tensor| match strides.get(tensor) {
        Some(&[_, _, s2]) if is_lone => sys::bops_row_strides { s0: s2, s1: 0, s2: 0 },
        Some(&[s0, s1, s2]) => sys::bops_row_strides { s0, s1, s2 },
        None => sys::bops_row_strides { s0: 0, s1: 0, s2: 0 },
    });
    let steps = std::array::from_fn(|tensor| dim_strides.get(tensor).copied().unwrap_or(0));
    let extents = if is_lone { [1, 1] } else { extents };
    let (dtype, other) = (tensors.dtype, tensors.other);
    let [element_bytes, accumulator_bytes] = [dtype, dtype.accumulator()].map(|dtype| word(dtype.size_bytes()));
    let (is_widening, vector_bytes) = (other != dtype, word(vector_bytes));
    let lines = Lines { is_backward, is_widening, outer, dim, inner, element_bytes, accumulator_bytes, vector_bytes };
    Ok((lines, OperandLayout { dtype: c_dtype(dtype)?, other: c_dtype(other)?, extents, strides, steps }))
}

impl<D: SoftmaxPass> Kernel<D> for Form {
    fn name(&self) -> &'static str {
        let name = match self {
            Self::RowsResident => D::ROWS_RESIDENT.name,
            Self::RowsShared => D::ROWS_SHARED.name,
            Self::ChannelsResident => D::CHANNELS_RESIDENT.name,
            Self::ChannelsShared => D::CHANNELS_SHARED.map_or("", |calls| calls.name),
            Self::Split => D::SPLIT.name,
        };
        name.trim_start_matches("bops_")
    }

    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn accept<'d>(&self, descriptor: &'d D, _: &PlanOptions, props: &DeviceProps, _: Ask) -> Accepted<'d> {
        let props = Props::of(props)?;
        let (slots, axis, _) = descriptor.lines();
        match self {
            Self::RowsResident | Self::RowsShared => check_rows(slots, axis)?,
            Self::ChannelsResident | Self::ChannelsShared => check_channels(slots, axis)?,
            Self::Split => {}
        }
        let (lines, layout) = lines_of(slots, axis, D::IS_BACKWARD)?;
        let served = Served { descriptor, lines, layout };
        match self {
            _ if lines.outer == 0 => Ok(served.without_launch()),
            Self::RowsResident => {
                let choice = choice::rows_resident(&lines, props)?;
                Ok(served.by(D::ROWS_RESIDENT, choice))
            }
            Self::RowsShared => {
                let choice = choice::rows_shared(&lines, props)?;
                Ok(served.by(D::ROWS_SHARED, choice))
            }
            Self::ChannelsResident => {
                let choice = choice::channels_resident(&lines, props)?;
                Ok(served.by(D::CHANNELS_RESIDENT, choice))
            }
            Self::ChannelsShared => {
                let calls = D::CHANNELS_SHARED.ok_or("it computes gradients")?;
                let choice = choice::channels_shared(&lines, props)?;
                Ok(served.by(calls, choice))
            }
            Self::Split => {
                let (choice, workspace_bytes) = choice::split(&lines)?;
                let candidate = served.by(D::SPLIT, choice);
                Ok(Candidate { workspace: WorkspaceReq::new(workspace_bytes, 16), launches: 3, ..candidate })
            }
        }
    }
}

/// The lines of a descriptor, for a form.
struct Served<'d, D> {
    descriptor: &'d D,
    lines: Lines,
    layout: OperandLayout,
}

impl<'d, D: SoftmaxPass> Served<'d, D> {
    fn without_launch(self) -> Candidate<'d> {
        let name = D::SPLIT.name;
        let build = move |device: &Device| cuda::build(device, name, false, (), || 0, |_, _| 0);
        Candidate { launches: 0, ..Candidate::new((), build) }
    }

    /// In one launch, without workspace.
    fn by<C: Numbers + Debug>(self, calls: Calls<D, C>, choice: C) -> Candidate<'d> {
        let build = move |device: &Device| {
            let Self { descriptor, lines, layout } = self;
            let (params, dtype) = (descriptor.params(&lines, &layout), layout.dtype);
            // Extents, too, since lines that fill every thread have kernels of their own, and so has log-softmax.
            let extents = [lines.dim, lines.outer, lines.inner];
            let key = (choice, extents, descriptor.lines().2, [dtype, layout.other]);
            let Calls { name, prepare, launch } = calls;
            // SAFETY: the structs live across the call and hold what `choice` allows.
            let prepare = || unsafe { prepare(&params, &choice, dtype) };
            let run = move |located: &Located<'_>, stream| {
                let (operands, workspace) = (D::operands(located), located.workspace_pointer());
                // SAFETY: the generic check proved every operand's span, alignment and device, and the workspace's.
                unsafe { launch(&params, &choice, dtype, &operands, workspace, stream) }
            };
            cuda::build(device, name, true, key, prepare, run)
        };
        Candidate::new(choice, build)
    }
}
