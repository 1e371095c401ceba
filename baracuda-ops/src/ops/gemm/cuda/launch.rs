//! Launches that several kernels of products have: each is prepared on a device, and then called with the addresses of a run.

use std::ffi::c_void;

use baracuda_ops_sys as sys;

use super::product::{Planned, Source};
use crate::backend::cuda::{self, Numbers, c_dtype};
use crate::dtype::DType;
use crate::error::BuildError;
use crate::ops::calls::Calls;

/// A launch of a product: `parts` of the operands is where the product's region of the workspace begins.
pub(in crate::ops) type ProductLaunch = dyn Fn(&sys::bops_gemm_operands, *mut c_void) -> i32 + Send + Sync;

/// What the forms of a product are prepared with.
pub(in crate::ops) struct Forms<'d, P> {
    pub(in crate::ops) device: &'d cuda::Device,
    pub(in crate::ops) params: P,
    pub(in crate::ops) dtype: sys::bops_dtype,
}

impl<P: Copy + Send + Sync + 'static> Forms<'_, P> {
    /// The launch of a form, prepared once for each choice and type.
    pub(in crate::ops) fn prepare<C: Numbers>(
        &self,
        calls: &Calls<sys::bops_dtype, P, C, sys::bops_gemm_operands>,
        choice: C,
    ) -> Result<Box<ProductLaunch>, BuildError> {
        let launch = calls.prepare(self.device, self.dtype, self.params, choice, ())?;
        Ok(Box::new(move |operands, stream| launch(operands, std::ptr::null_mut(), stream)))
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

/// Columns of a block of the launch that adds up partial sums: `dbias_columns` of `csrc/gemm/gemm_backward.cu`.
pub(in crate::ops) const DBIAS_COLUMNS: u64 = 32;

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
