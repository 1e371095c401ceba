//! Convolutions that are products of matrices, through the forms of gemm.

use crate::backend::cuda::Props;
use crate::backend::{Backend, Device, DeviceProps};
use crate::dtype::DType;
use crate::error::Reason;
use crate::ops::conv::geometry::{Contraction, Epilogue};
use crate::ops::conv::product::Contracting;
use crate::ops::gemm::cuda as gemm;
use crate::ops::gemm::cuda::product::Form;
use crate::options::{Math, PlanOptions};
use crate::plan::{Ask, Candidate, Kernel};

/// A form of gemm, for the three products.
pub(crate) struct Gemm {
    pub(super) form: Form,
    /// Where its name is in `GEMM`.
    pub(super) name: usize,
}

impl<D: Contracting> Kernel<D> for Gemm {
    fn name(&self) -> &'static str {
        D::GEMM[self.name]
    }

    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn library(&self, device: &Device) -> Option<String> {
        gemm::library(self.form, device)
    }

    fn accept<'d>(
        &self,
        descriptor: &'d D,
        options: &PlanOptions,
        props: &DeviceProps,
        ask: Ask,
    ) -> Result<Candidate<'d>, Reason> {
        gemm::product_candidate(self.form, descriptor.contracted().product()?, options, props, ask)
    }
}

/// Whether a product is left to these forms by the vendor's library for convolutions, which of f32 without tensor cores reaches 8 to 38 TFLOP/s
/// on an H200 where a product of matrices reaches 50: gradients always, forward where the vendor's library for products takes it.
pub(super) fn is_better(contraction: &Contraction, options: &PlanOptions, props: &DeviceProps) -> bool {
    if contraction.out.dtype != DType::F32 || contraction.gathered.dtype != DType::F32 || options.math != Math::Strict {
        return false;
    }
    let forms: &[Form] = match contraction.epilogue {
        Epilogue::Gradient { .. } => &[Form::CublasLt, Form::Simt],
        Epilogue::Forward { .. } => &[Form::CublasLt],
    };
    let serves = |form: &Form| {
        let product = contraction.product()?;
        gemm::product_candidate(*form, product, options, props, Ask::Chosen)
    };
    Props::of(props).is_ok() && forms.iter().any(|form| serves(form).is_ok())
}
