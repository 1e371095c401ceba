//! The CUDA kernels of the family: parameters, preparation and launch. `choice` says which variant serves which rows.

mod choice;

use std::ffi::c_void;

use baracuda_ops_sys as sys;

use choice::{Problem, Tuned};

use super::{BackwardFields, ForwardFields, RowNorm, Valid, backward, forward};
use crate::backend::cuda::{self, Props, c_dtype};
use crate::backend::{Device, Located};
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::{halves, word};
use crate::ops::rows::RowGeometry;
use crate::options::WorkspaceReq;
use crate::plan::{Accepted, BuildError, Built, Candidate, Slot};
use crate::slots::Slots;
use crate::tensor::TensorDesc;

/// `bops_<op>_prepare`.
type Prepare<P> = unsafe extern "C" fn(
    *const P,
    *const sys::bops_row_norm_choice,
    sys::bops_dtype,
    sys::bops_dtype,
) -> sys::bops_status;

/// The same of the gradients: whether dh comes in decides between kernels.
type PrepareBackward<P> = unsafe extern "C" fn(
    *const P,
    *const sys::bops_row_norm_choice,
    sys::bops_dtype,
    sys::bops_dtype,
    u32,
) -> sys::bops_status;

/// `bops_<op>_launch`.
type Start<P, O> = unsafe extern "C" fn(
    *const P,
    *const sys::bops_row_norm_choice,
    sys::bops_dtype,
    sys::bops_dtype,
    *const O,
    *mut c_void,
    sys::bops_stream,
) -> sys::bops_status;

/// The forward kernels.
pub(super) fn forward<'d>(norm: &'d Valid<ForwardFields>, props: &Props) -> Accepted<'d> {
    let geometry = forward_geometry(norm)?;
    let weight = norm.fields.weight.or(norm.fields.bias);
    let types = c_dtypes(&norm.fields.x, weight)?;
    let parameters = norm.slots.all_at(&[forward::WEIGHT, forward::BIAS]);
    let problem = problem(norm.op.kind, &geometry, parameters, &norm.fields.x, weight, props);
    let tuned = choice::forward(&Problem { has_residual: norm.fields.residual, ..problem })?;
    Ok(candidate(tuned, move |device| build_forward(norm, geometry, tuned, types, device)))
}

fn build_forward(
    norm: &Valid<ForwardFields>,
    geometry: RowGeometry,
    tuned: Tuned,
    (dtype, weight_dtype): (sys::bops_dtype, sys::bops_dtype),
    device: &Device,
) -> Result<Built, BuildError> {
    let (extent1, extent2, [x, residual, y, h]) = c_geometry(&geometry);
    let params = sys::bops_row_norm_params {
        rows: geometry.rows,
        cols: geometry.cols,
        extent1,
        extent2,
        x,
        residual,
        y,
        h,
        eps: norm.fields.eps.get(),
        weight_offset: norm.fields.weight_offset.get(),
    };
    type Params = sys::bops_row_norm_params;
    let (prepare, launch, call): (Prepare<Params>, Start<Params, sys::bops_row_norm_operands>, _) = match norm.op.kind {
        RowNorm::Layer => (sys::bops_layer_norm_prepare, sys::bops_layer_norm_launch, "bops_layer_norm"),
        RowNorm::Rms => (sys::bops_rms_norm_prepare, sys::bops_rms_norm_launch, "bops_rms_norm"),
    };
    let choice = tuned.c();
    // SAFETY: the structs live across the call and hold what `choice` allows.
    let prepare = || unsafe { prepare(&params, &choice, dtype, weight_dtype) };
    let run = move |located: &Located<'_>, stream| {
        let operands = sys::bops_row_norm_operands {
            x: located.pointer(forward::X),
            residual: located.pointer(forward::RESIDUAL),
            weight: located.pointer(forward::WEIGHT),
            bias: located.pointer(forward::BIAS),
            y: located.pointer(forward::Y),
            h: located.pointer(forward::H),
            mean: located.pointer(forward::MEAN),
            rstd: located.pointer(forward::RSTD),
        };
        // SAFETY: the generic check proved every operand's span, alignment and device, and the workspace's.
        unsafe { launch(&params, &choice, dtype, weight_dtype, &operands, located.workspace_pointer(), stream) }
    };
    let has_work = geometry.rows > 0 && (geometry.cols > 0 || norm.fields.stats);
    cuda::build(device, call, has_work, key(&tuned, geometry.cols, [dtype, weight_dtype, 0]), prepare, run)
}

/// The kernels of the gradients.
pub(super) fn backward<'d>(norm: &'d Valid<BackwardFields>, props: &Props) -> Accepted<'d> {
    let geometry = backward_geometry(norm)?;
    let weight = norm.fields.weight.or(norm.fields.dbias);
    let types = c_dtypes(&norm.fields.x, weight)?;
    let parameters = norm.slots.all_at(&[backward::WEIGHT, backward::DWEIGHT, backward::DBIAS]);
    let problem = Problem {
        has_residual: norm.fields.dh,
        has_parameter_gradients: norm.fields.dweight || norm.fields.dbias.is_some(),
        ..problem(norm.op.kind, &geometry, parameters, &norm.fields.x, weight, props)
    };
    let tuned = choice::backward(&problem)?;
    Ok(candidate(tuned, move |device| build_backward(norm, geometry, tuned, types, device)))
}

fn build_backward(
    norm: &Valid<BackwardFields>,
    geometry: RowGeometry,
    tuned: Tuned,
    (dtype, weight_dtype): (sys::bops_dtype, sys::bops_dtype),
    device: &Device,
) -> Result<Built, BuildError> {
    let (extent1, extent2, [dy, x, dh, dx]) = c_geometry(&geometry);
    let params = sys::bops_row_norm_backward_params {
        rows: geometry.rows,
        cols: geometry.cols,
        extent1,
        extent2,
        dy,
        x,
        dh,
        dx,
        weight_offset: norm.fields.weight_offset.get(),
    };
    type Params = sys::bops_row_norm_backward_params;
    type Operands = sys::bops_row_norm_backward_operands;
    let (prepare, launch, call): (PrepareBackward<Params>, Start<Params, Operands>, _) = match norm.op.kind {
        RowNorm::Layer => {
            (sys::bops_layer_norm_backward_prepare, sys::bops_layer_norm_backward_launch, "bops_layer_norm_backward")
        }
        RowNorm::Rms => {
            (sys::bops_rms_norm_backward_prepare, sys::bops_rms_norm_backward_launch, "bops_rms_norm_backward")
        }
    };
    let (choice, has_dh) = (tuned.c(), u32::from(norm.fields.dh));
    // SAFETY: the structs live across the call and hold what `choice` allows.
    let prepare = || unsafe { prepare(&params, &choice, dtype, weight_dtype, has_dh) };
    let run = move |located: &Located<'_>, stream| {
        let operands = sys::bops_row_norm_backward_operands {
            dy: located.pointer(backward::DY),
            x: located.pointer(backward::X),
            weight: located.pointer(backward::WEIGHT),
            mean: located.pointer(backward::MEAN),
            rstd: located.pointer(backward::RSTD),
            dh: located.pointer(backward::DH),
            dx: located.pointer(backward::DX),
            dweight: located.pointer(backward::DWEIGHT),
            dbias: located.pointer(backward::DBIAS),
        };
        // SAFETY: the generic check proved every operand's span, alignment and device, and the workspace's.
        unsafe { launch(&params, &choice, dtype, weight_dtype, &operands, located.workspace_pointer(), stream) }
    };
    let has_parameters = norm.fields.dweight || norm.fields.dbias.is_some();
    let has_work = geometry.cols > 0 && (geometry.rows > 0 || has_parameters);
    cuda::build(device, call, has_work, key(&tuned, geometry.cols, [dtype, weight_dtype, has_dh]), prepare, run)
}

/// The layouts of operands; an absent one takes that of the first, which addresses nothing.
fn layouts<'s>(slots: &'s Slots, operands: [usize; 4], x: &'s TensorDesc) -> [&'s TensorDesc; 4] {
    operands.map(|operand| slots.at(operand).map_or(x, |slot| &slot.desc))
}

fn forward_geometry(norm: &Valid<ForwardFields>) -> Result<RowGeometry, Reason> {
    use forward::{BIAS, H, MEAN, RESIDUAL, RSTD, WEIGHT, X, Y};
    norm.slots.check_dense(&[WEIGHT, BIAS, MEAN, RSTD])?;
    let tensors = layouts(&norm.slots, [X, RESIDUAL, Y, H], &norm.fields.x);
    RowGeometry::new(&tensors, norm.fields.normalized_dims)
}

fn backward_geometry(norm: &Valid<BackwardFields>) -> Result<RowGeometry, Reason> {
    use backward::{DBIAS, DH, DWEIGHT, DX, DY, MEAN, RSTD, WEIGHT, X};
    norm.slots.check_dense(&[WEIGHT, MEAN, RSTD, DWEIGHT, DBIAS])?;
    let tensors = layouts(&norm.slots, [DY, X, DH, DX], &norm.fields.x);
    RowGeometry::new(&tensors, norm.fields.normalized_dims)
}

fn problem<'s>(
    kind: RowNorm,
    geometry: &RowGeometry,
    parameters: impl Iterator<Item = &'s Slot>,
    x: &TensorDesc,
    parameter: Option<DType>,
    props: &Props,
) -> Problem {
    let parameter_align = parameters.map(|slot| slot.desc.align_bytes().min(16)).min().unwrap_or(16);
    Problem {
        rows: geometry.rows,
        cols: geometry.cols,
        element_bytes: word(x.dtype().size_bytes()),
        accumulator_bytes: word(x.dtype().accumulator().size_bytes()),
        parameter_bytes: parameter.map_or(0, |dtype| word(dtype.size_bytes())),
        vector_bytes: word(geometry.vector_bytes),
        parameter_align_bytes: word(parameter_align),
        has_one_stride: has_one_stride(geometry),
        is_centered: kind == RowNorm::Layer,
        has_residual: false,
        has_parameter_gradients: false,
        capability: props.capability,
        multiprocessors: props.multiprocessors,
        shared_bytes: props.shared_bytes,
        max_cluster: props.cluster,
    }
}

fn candidate<'d>(tuned: Tuned, build: impl FnOnce(&Device) -> Result<Built, BuildError> + Send + 'd) -> Candidate<'d> {
    let workspace = WorkspaceReq::new(tuned.workspace_bytes, 128);
    Candidate { workspace, launches: tuned.launches, ..Candidate::new(tuned.c(), build) }
}

/// What tells prepared kernels apart; the columns too, since rows that fill every thread have kernels of their own.
fn key(tuned: &Tuned, cols: u64, types: [u32; 3]) -> impl Iterator<Item = u32> {
    tuned.words().chain(halves(cols)).chain(types)
}

fn c_dtypes(x: &TensorDesc, weight: Option<DType>) -> Result<(sys::bops_dtype, sys::bops_dtype), Reason> {
    Ok((c_dtype(x.dtype())?, c_dtype(weight.unwrap_or(x.dtype()))?))
}

/// Whether the rows of every tensor lie at one stride, below 2^32 elements.
fn has_one_stride(geometry: &RowGeometry) -> bool {
    let (extent1, extent2, strides) = c_geometry(geometry);
    extent1 * extent2 == 1 && strides.iter().all(|stride| u32::try_from(stride.s0).is_ok())
}

/// Extents and strides with the lone row extent, if there is but one, outermost: the kernels' short path.
fn c_geometry(geometry: &RowGeometry) -> (u64, u64, [sys::bops_row_strides; 4]) {
    let is_lone = geometry.extents == [1, geometry.rows];
    let strides = std::array::from_fn(|tensor| match geometry.strides[tensor] {
        [_, _, s2] if is_lone => sys::bops_row_strides { s0: s2, s1: 0, s2: 0 },
        [s0, s1, s2] => sys::bops_row_strides { s0, s1, s2 },
    });
    let [extent1, extent2] = if is_lone { [1, 1] } else { geometry.extents };
    (extent1, extent2, strides)
}
