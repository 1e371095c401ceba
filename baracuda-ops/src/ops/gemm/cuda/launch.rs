//! Launches that several kernels of products have: each is prepared on a device, and then called with the addresses of a run.

use std::ffi::c_void;

use baracuda_ops_sys as sys;

use super::product::{Planned, Source};
use crate::backend::cuda::calls::Numbers;
use crate::backend::cuda::{self, c_dtype};
use crate::dtype::DType;
use crate::error::BuildError;

/// A launch of a product: `parts` of the operands is where the product's region of the workspace begins.
pub(in crate::ops) type ProductLaunch = dyn Fn(&sys::bops_gemm_operands, *mut c_void) -> i32 + Send + Sync;

/// `bops_<form>_prepare` of a form with these parameters and this choice.
type Prepare<P, C> = unsafe extern "C" fn(*const P, *const C, sys::bops_dtype) -> sys::bops_status;
/// `bops_<form>_launch` of the same form.
type Launch<P, C> = unsafe extern "C" fn(
    *const P,
    *const C,
    sys::bops_dtype,
    *const sys::bops_gemm_operands,
    sys::bops_stream,
) -> sys::bops_status;

/// What the forms of a product are prepared with.
pub(in crate::ops) struct Forms<'d, P> {
    pub(in crate::ops) device: &'d cuda::Device,
    pub(in crate::ops) params: P,
    pub(in crate::ops) dtype: sys::bops_dtype,
}

impl<P: Copy + Send + Sync + 'static> Forms<'_, P> {
    /// The launch of a form, prepared once for each choice and type.
    ///
    /// # Safety
    /// - The functions are those of one form, and the choice is one that it makes of these parameters and this type.
    /// - Runs call the launch with operands that the generic check has accepted, and with a workspace as large as was planned.
    pub(in crate::ops) unsafe fn prepare<C: Numbers>(
        &self,
        call: &'static str,
        choice: C,
        prepare: Prepare<P, C>,
        launch: Launch<P, C>,
    ) -> Result<Box<ProductLaunch>, BuildError> {
        let Self { device, params, dtype } = *self;
        // SAFETY: the structs live across the call; the caller promises the rest.
        device.prepare(call, (choice, dtype), || unsafe { prepare(&params, &choice, dtype) })?;
        // SAFETY: as for prepare.
        Ok(Box::new(move |operands, stream| unsafe { launch(&params, &choice, dtype, operands, stream) }))
    }
}

impl Forms<'_, sys::bops_gemm_params> {
    /// As [`prepare`](Self::prepare), of `gemm_wgmma_words`, which has one type.
    ///
    /// # Safety
    /// As [`prepare`](Self::prepare).
    pub(super) unsafe fn prepare_words(
        &self,
        choice: sys::bops_gemm_wgmma_words_choice,
    ) -> Result<Box<ProductLaunch>, BuildError> {
        let params = self.params;
        self.device.prepare("bops_gemm_wgmma_words", choice, || {
            // SAFETY: as for the other forms.
            unsafe { sys::bops_gemm_wgmma_words_prepare(&params, &choice) }
        })?;
        // SAFETY: as for the other forms.
        Ok(Box::new(move |operands, stream| unsafe {
            sys::bops_gemm_wgmma_words_launch(&params, &choice, operands, stream)
        }))
    }
}

impl Planned {
    /// The launch of `gemm_finish`, if the product has it.
    pub(in crate::ops) fn prepare_finish(
        &self,
        device: &cuda::Device,
    ) -> Result<Option<Box<ProductLaunch>>, BuildError> {
        let Some((choice, source)) = self.finish else { return Ok(None) };
        let (params, dtype) = (self.finish_params, c_dtype(self.dtype)?);
        device.prepare("bops_gemm_finish", [dtype], || {
            // SAFETY: the structs live across the call and hold what the choice allows.
            unsafe { sys::bops_gemm_finish_prepare(&params, &choice, dtype) }
        })?;
        Ok(Some(Box::new(move |operands, stream| {
            let sums = match source {
                Source::Scratch => operands.parts,
                Source::Out => operands.out,
                Source::Other => operands.other,
            };
            // SAFETY: the generic check proved every operand's span and alignment, and that the workspace holds every region.
            unsafe { sys::bops_gemm_finish_launch(&params, &choice, dtype, sums, operands, stream) }
        })))
    }
}

/// The launch that adds up partial sums of columns, given where these lie and where the totals go.
pub(in crate::ops) fn prepare_dbias(
    device: &cuda::Device,
    params: sys::bops_gemm_dbias_params,
    dtype: DType,
) -> Result<impl Fn(*const c_void, *mut c_void, *mut c_void) -> i32 + Send + Sync + use<>, BuildError> {
    let dtype = c_dtype(dtype)?;
    device.prepare("bops_gemm_dbias", [dtype], || {
        // SAFETY: the params live across the call.
        unsafe { sys::bops_gemm_dbias_prepare(&params, dtype) }
    })?;
    // SAFETY: the generic check proved the operand's span and alignment, and that the workspace holds the sums.
    Ok(move |sums, dbias, stream| unsafe { sys::bops_gemm_dbias_launch(&params, dtype, sums, dbias, stream) })
}
