//! The CUDA kernels: which form serves a contraction, in which tiles, and the launches of a run.
//!
//! A contraction is one launch. If several blocks share sums, a second launch, `gemm_finish`, adds up the parts; `conv_wgmma` may first copy operands
//! whose channels are not contiguous; and without terms there is `gemm_finish` alone. The gradient of the bias is a launch that computes partial sums
//! ([`sums`]), and gemm's launch that adds them up.
//!
//! Order of preference: groups of one channel of x ([`depthwise`]) and one group of few channels ([`few_channels`]) have kernels of their own. Then comes
//! cuDNN ([`vendor`]) wherever it serves, then wgmma and the other tensor-core forms; products of matrices go to gemm's forms before our own. In f32 without
//! tensor cores such products come before cuDNN. [`product`] and [`wgmma`] say what each of our forms serves, with the limits that refusals name.

use std::ffi::c_void;

use baracuda_ops_sys as sys;

use super::geometry::{Contracting, Contraction};
use super::{ConvBackwardBiasDescriptor, Pass};
use crate::backend::cuda::{self, Launch, Numbers, Props, c_dtype};
use crate::backend::{Backend, Device, DeviceProps, Located};
use crate::dtype::DType;
use crate::kernel::{Accepted, Ask, BuildError, Built, Candidate, Exec, Kernel};
use crate::ops::calls::{Calls, calls};
pub(super) use crate::ops::gemm::cuda::GemmForm;
use crate::ops::gemm::cuda::launch::{Forms, prepare_dbias};
use crate::ops::gemm::cuda::product::Limits;
use crate::ops::gemm::cuda::{self as gemm_forms, Regions, workspace};
use crate::options::{Math, PlanOptions};
use crate::plan::form_name;

mod depthwise;
mod few_channels;
mod product;
mod sums;
mod vendor;
mod wgmma;

pub(super) use product::OwnForm;
use product::{First, Planned};
use sums::PlannedSums;

/// A kernel of forward and of the gradients of the data and the weight.
pub(super) enum ConvForm {
    Depthwise,
    FewChannels,
    Cudnn,
    /// A product of matrices, through a form of gemm.
    Gemm(GemmForm),
    Own(OwnForm),
}

impl<D: Contracting> Kernel<D> for ConvForm {
    fn name(&self) -> &'static str {
        match self {
            Self::Depthwise => form_name!(D, "depthwise"),
            Self::FewChannels => form_name!(D, "few_channels"),
            Self::Cudnn => form_name!(D, "cudnn"),
            Self::Gemm(GemmForm::CublasLt) => form_name!(D, "gemm_cublaslt"),
            Self::Gemm(GemmForm::Wgmma) => form_name!(D, "gemm_wgmma"),
            Self::Gemm(GemmForm::Mma) => form_name!(D, "gemm_mma"),
            Self::Gemm(_) => form_name!(D, "gemm_simt"),
            Self::Own(OwnForm::Wgmma) => form_name!(D, "wgmma"),
            Self::Own(OwnForm::Mma) => form_name!(D, "mma"),
            Self::Own(OwnForm::Simt) => form_name!(D, "simt"),
        }
    }

    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn library(&self, device: &Device) -> Option<String> {
        match self {
            Self::Cudnn => vendor::library(device),
            Self::Gemm(form) => gemm_forms::library(*form, device),
            Self::Depthwise | Self::FewChannels | Self::Own(_) => None,
        }
    }

    fn accept<'d>(&self, descriptor: &'d D, options: &PlanOptions, props: &DeviceProps, ask: Ask) -> Accepted<'d> {
        let contraction = descriptor.contraction();
        match self {
            Self::Depthwise => depthwise::candidate(&contraction, &Limits::new(options, props, ask)?),
            Self::FewChannels => few_channels::candidate(&contraction, &Limits::new(options, props, ask)?),
            Self::Cudnn => vendor::candidate(descriptor, options, props, ask),
            Self::Gemm(form) => gemm_forms::product_candidate(*form, contraction.product()?, options, props, ask),
            Self::Own(form) => candidate(*form, &contraction, &Limits::new(options, props, ask)?),
        }
    }
}

/// The candidate of one of our own forms.
fn candidate<'d>(form: OwnForm, contraction: &Contraction, limits: &Limits<'_>) -> Accepted<'d> {
    let planned = Planned::new(form, contraction, limits)?;
    let choice = Choice {
        turns: planned.turns.map(|turn| turn.map(|turn| turn.params)),
        first: planned.choice,
        finish: planned.product.finish.map(|(choice, _)| choice),
    };
    Ok(Candidate {
        workspace: workspace(planned.product.scratch_bytes),
        launches: planned.launches(),
        math: if planned.rounds_to_tf32 { Math::Tf32 } else { Math::Strict },
        ..Candidate::new(choice, move |device| build(planned, device))
    })
}

/// Whether cuDNN leaves a product of matrices to gemm's forms: in f32 without tensor cores it reaches 8 to 38 TFLOP/s on an H200, and gemm's forms 50. Gradients
/// also go to `gemm_simt`, forward only to cuBLASLt.
fn is_left_to_gemm(contraction: &Contraction, options: &PlanOptions, props: &DeviceProps) -> bool {
    if contraction.out.dtype != DType::F32 || contraction.gathered.dtype != DType::F32 || options.math != Math::Strict {
        return false;
    }
    let forms: &[GemmForm] = match contraction.pass {
        Pass::Forward => &[GemmForm::CublasLt],
        Pass::Data | Pass::Weight => &[GemmForm::CublasLt, GemmForm::Simt],
    };
    let serves = |form: &GemmForm| {
        let product = contraction.product()?;
        gemm_forms::product_candidate(*form, product, options, props, Ask::Chosen)
    };
    Props::of(props).is_ok() && forms.iter().any(|form| serves(form).is_ok())
}

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Choice {
    turns: [Option<sys::bops_conv_turn_params>; 2],
    first: Option<First>,
    finish: Option<sys::bops_gemm_finish_choice>,
}

/// Makes the launches ready to run.
fn build(planned: Planned, device: &Device) -> Result<Built, BuildError> {
    let device = cuda::Device::of(device)?;
    let Planned { product, params, choice, turns, .. } = planned;
    let dtype = c_dtype(product.dtype)?;
    let forms = Forms { device, params, dtype };
    let prepared = choice.map(|first| match first {
        First::Wgmma(choice) => forms.prepare(&calls!(bops_conv_wgmma), choice),
        First::Mma(choice) => forms.prepare(&calls!(bops_conv_mma), choice),
        First::Simt(choice) => forms.prepare(&calls!(bops_conv_simt), choice),
    });
    let first = prepared.transpose()?;
    for turn in turns.iter().flatten() {
        device.prepare("bops_conv_turn", [turn.params.element_bytes, turn.params.vector], || {
            // SAFETY: the params live across the call.
            unsafe { sys::bops_conv_turn_prepare(&turn.params) }
        })?;
    }
    let finish = product.prepare_finish(device)?;
    let start = move |located: &Located<'_>, stream: *mut c_void| {
        // 1. Copies of the factors.
        let mut operands = product.operands(located, Regions::default());
        for (factor, turn) in [&mut operands.left, &mut operands.right].into_iter().zip(&turns) {
            let Some(turn) = turn else { continue };
            let copy = (located.workspace.address() + turn.at) as *mut c_void;
            // SAFETY: the generic check proved the operand's span, and that the workspace holds the copy.
            let status = unsafe { sys::bops_conv_turn_launch(&turn.params, *factor, copy, stream) };
            if status != 0 {
                return status;
            }
            *factor = copy;
        }
        // 2. The product.
        let launches = first.iter().chain(&finish);
        launches.map(|launch| launch(&operands, stream)).find(|&status| status != 0).unwrap_or(0)
    };
    Ok(Built(Exec::Cuda(Launch::new("bops_conv", start))))
}

/// What adds up the parts of the gradient of a weight, and writes it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct AddUp {
    sums: sys::bops_gemm_dbias_params,
    dtype: DType,
    dweight: usize,
}

impl AddUp {
    /// Bytes of the parts, which are f32.
    fn part_bytes(&self) -> u64 {
        4 * self.sums.rows * self.sums.n
    }

    /// Builds two launches: that of a form which leaves the parts in the workspace, and that which adds them up.
    fn build<P: Copy + Send + Sync + 'static, C: Numbers, O: 'static>(
        self,
        device: &Device,
        form: &Calls<sys::bops_dtype, P, C, O>,
        (dtype, params, choice): (sys::bops_dtype, P, C),
        operands: impl Fn(&Located<'_>) -> O + Send + Sync + 'static,
    ) -> Result<Built, BuildError> {
        let device = cuda::Device::of(device)?;
        let sum_up = form.prepare(device, dtype, params, choice, ())?;
        let add_up = prepare_dbias(device, self.sums, self.dtype)?;
        let start = move |located: &Located<'_>, stream: *mut c_void| {
            let parts = located.workspace_pointer();
            let status = sum_up(&operands(located), parts, stream);
            if status == 0 { add_up(parts, located.pointer(self.dweight), stream) } else { status }
        };
        Ok(Launch::new(form.name, start).into())
    }
}

/// The kernel of the gradient of the bias.
pub(super) fn backward_bias<'d>(descriptor: &'d ConvBackwardBiasDescriptor, props: &Props, _: Ask) -> Accepted<'d> {
    let planned = PlannedSums::new(&descriptor.channel_sums(), props)?;
    Ok(Candidate {
        workspace: workspace(planned.part_bytes),
        launches: planned.launches(),
        ..Candidate::new(planned.first, move |device| planned.build(device))
    })
}

#[cfg(test)]
mod tests;
