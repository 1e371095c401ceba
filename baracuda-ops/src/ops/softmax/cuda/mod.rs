//! The CUDA kernels: parameters, preparation and launch. `choice` says which variant serves which lines.

mod choice;

use baracuda_ops_sys as sys;

use choice::{Problem, Tuned};

use super::geometry::{ChannelGeometry, Geometry, Tensors};
use super::{BackwardFields, ForwardFields, Valid, backward, forward};
use crate::backend::cuda::{self, Props, c_dtype};
use crate::backend::{Device, Located};
use crate::error::Reason;
use crate::narrow::{halves, word};
use crate::ops::rows::RowGeometry;
use crate::options::WorkspaceReq;
use crate::plan::{Accepted, BuildError, Built, Candidate};
use crate::slots::Slots;

/// The forward kernels.
pub(super) fn forward<'d>(softmax: &'d Valid<ForwardFields>, props: &Props) -> Accepted<'d> {
    accept(&softmax.slots, softmax.fields.axis, false, props, |lines, tuned, device| {
        let ([x, y, _], [x_step, y_step, _]) = (lines.strides, lines.steps);
        let params = sys::bops_softmax_params {
            outer: lines.outer,
            dim: lines.dim,
            inner: lines.inner,
            extent1: lines.extents[0],
            extent2: lines.extents[1],
            x,
            y,
            x_step,
            y_step,
            scale: softmax.fields.scale.get(),
            is_log: u32::from(softmax.fields.log),
            x_dtype: lines.other,
        };
        let (choice, dtype) = (tuned.c(), lines.dtype);
        // SAFETY: the structs live across the call and hold what `choice` allows.
        let prepare = || unsafe { sys::bops_softmax_prepare(&params, &choice, dtype) };
        let run = move |located: &Located<'_>, stream| {
            let operands =
                sys::bops_softmax_operands { x: located.pointer(forward::X), y: located.pointer(forward::Y) };
            // SAFETY: the generic check proved every operand's span, alignment and device, and the workspace's.
            unsafe { sys::bops_softmax_launch(&params, &choice, dtype, &operands, located.workspace_pointer(), stream) }
        };
        cuda::build(device, "bops_softmax", lines.outer > 0, key(&tuned, &lines, params.is_log), prepare, run)
    })
}

/// The kernels of the gradient.
pub(super) fn backward<'d>(softmax: &'d Valid<BackwardFields>, props: &Props) -> Accepted<'d> {
    accept(&softmax.slots, softmax.fields.axis, true, props, |lines, tuned, device| {
        let ([y, dy, dx], [y_step, dy_step, dx_step]) = (lines.strides, lines.steps);
        let params = sys::bops_softmax_backward_params {
            outer: lines.outer,
            dim: lines.dim,
            inner: lines.inner,
            extent1: lines.extents[0],
            extent2: lines.extents[1],
            y,
            dy,
            dx,
            y_step,
            dy_step,
            dx_step,
            scale: softmax.fields.scale.get(),
            is_log: u32::from(softmax.fields.log),
            dx_dtype: lines.other,
        };
        let (choice, dtype) = (tuned.c(), lines.dtype);
        // SAFETY: the structs live across the call and hold what `choice` allows.
        let prepare = || unsafe { sys::bops_softmax_backward_prepare(&params, &choice, dtype) };
        let run = move |located: &Located<'_>, stream| {
            let operands = sys::bops_softmax_backward_operands {
                y: located.pointer(backward::Y),
                dy: located.pointer(backward::DY),
                dx: located.pointer(backward::DX),
            };
            let workspace = located.workspace_pointer();
            // SAFETY: the generic check proved every operand's span, alignment and device, and the workspace's.
            unsafe { sys::bops_softmax_backward_launch(&params, &choice, dtype, &operands, workspace, stream) }
        };
        let key = key(&tuned, &lines, params.is_log);
        cuda::build(device, "bops_softmax_backward", lines.outer > 0, key, prepare, run)
    })
}

/// The lines of a descriptor's operands as the C structs take them; strides and steps in the order of the operands.
struct Lines {
    /// The type of y, and that of x or dx.
    dtype: sys::bops_dtype,
    other: sys::bops_dtype,
    element_bytes: u32,
    accumulator_bytes: u32,
    is_rows: bool,
    /// 0 without elements.
    outer: u64,
    dim: u64,
    inner: u64,
    extents: [u64; 2],
    strides: [sys::bops_row_strides; 3],
    steps: [u64; 3],
    vector_bytes: u64,
}

impl Lines {
    fn of(slots: &Slots, axis: usize) -> Result<Self, Reason> {
        let tensors = Tensors::of(slots)?;
        let (dtype, other) = (tensors.dtype, tensors.other);
        let (is_rows, lines) = match tensors.geometry(axis)? {
            Geometry::Empty => (true, None),
            Geometry::Rows(RowGeometry { rows, cols, extents, strides, vector_bytes }) => {
                let dim_strides = vec![1; strides.len()];
                let rows =
                    ChannelGeometry { outer: rows, dim: cols, inner: 1, extents, strides, dim_strides, vector_bytes };
                (true, Some(rows))
            }
            Geometry::Channels(channels) => (false, Some(channels)),
        };
        let none = ChannelGeometry {
            outer: 0,
            dim: 0,
            inner: 1,
            extents: [1, 1],
            strides: Vec::new(),
            dim_strides: Vec::new(),
            vector_bytes: 16,
        };
        let ChannelGeometry { outer, dim, inner, extents, strides, dim_strides, vector_bytes } = lines.unwrap_or(none);
        // The lone outer extent, if there is but one, is outermost: the kernels' short path.
        let is_lone = extents == [1, outer];
        let strides = std::array::from_fn(|tensor| match strides.get(tensor) {
            Some(&[_, _, s2]) if is_lone => sys::bops_row_strides { s0: s2, s1: 0, s2: 0 },
            Some(&[s0, s1, s2]) => sys::bops_row_strides { s0, s1, s2 },
            None => sys::bops_row_strides { s0: 0, s1: 0, s2: 0 },
        });
        let steps = std::array::from_fn(|tensor| dim_strides.get(tensor).copied().unwrap_or(0));
        let extents = if is_lone { [1, 1] } else { extents };
        let [element_bytes, accumulator_bytes] = [dtype, dtype.accumulator()].map(|dtype| word(dtype.size_bytes()));
        let (dtype, other) = (c_dtype(dtype)?, c_dtype(other)?);
        Ok(Self {
            dtype,
            other,
            element_bytes,
            accumulator_bytes,
            is_rows,
            outer,
            dim,
            inner,
            extents,
            strides,
            steps,
            vector_bytes,
        })
    }
}

/// What forward and backward share: the lines, and what serves them. `build` takes both.
fn accept<'d>(
    slots: &Slots,
    axis: usize,
    is_backward: bool,
    props: &Props,
    build: impl FnOnce(Lines, Tuned, &Device) -> Result<Built, BuildError> + Send + 'd,
) -> Accepted<'d> {
    let lines = Lines::of(slots, axis)?;
    let tuned = choice::choose(&Problem {
        is_backward,
        is_rows: lines.is_rows,
        is_widening: lines.other != lines.dtype,
        outer: lines.outer,
        dim: lines.dim,
        inner: lines.inner,
        element_bytes: lines.element_bytes,
        accumulator_bytes: lines.accumulator_bytes,
        vector_bytes: word(lines.vector_bytes),
        capability: props.capability,
        multiprocessors: props.multiprocessors,
        shared_bytes: props.shared_bytes,
        max_cluster: props.cluster,
    })?;
    let workspace = WorkspaceReq::new(tuned.workspace_bytes, 16);
    let build = move |device: &Device| build(lines, tuned, device);
    Ok(Candidate { workspace, launches: tuned.launches, ..Candidate::new(tuned.c(), build) })
}

/// What tells prepared kernels apart; extents too, since lines that fill every thread have kernels of their own, and so has log-softmax.
fn key(tuned: &Tuned, lines: &Lines, is_log: u32) -> Vec<u32> {
    let numbers = [lines.dim, lines.outer, lines.inner].into_iter().flat_map(halves);
    tuned.words().chain(numbers).chain([is_log, lines.dtype, lines.other]).collect()
}
