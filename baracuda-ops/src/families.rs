//! The families of ops whose CUDA kernels this build has, by its features.

use crate::error::Reason;

/// The features, by the folders of `ops` and of `csrc`, and whether they are on.
const FAMILIES: &[(&str, bool)] = &[
    ("attention", cfg!(feature = "attention")),
    ("conv", cfg!(feature = "conv")),
    ("fft", cfg!(feature = "fft")),
    ("gemm", cfg!(feature = "gemm")),
    ("index", cfg!(feature = "index")),
    ("linalg", cfg!(feature = "linalg")),
    ("movement", cfg!(feature = "movement")),
    ("norm", cfg!(feature = "norm")),
    ("order", cfg!(feature = "order")),
    ("pointwise", cfg!(feature = "pointwise")),
    ("reduce", cfg!(feature = "reduce")),
    ("scan", cfg!(feature = "scan")),
    ("softmax", cfg!(feature = "softmax")),
    ("window", cfg!(feature = "window")),
];

/// # Errors
/// The family of the op that this module declares is not compiled.
pub(crate) fn compiled(module: &'static str) -> Result<(), Reason> {
    let family = family(module);
    let is_compiled = FAMILIES.iter().any(|&(name, is_on)| name == family && is_on);
    Reason::unless(is_compiled, || format!("this build has no CUDA kernels of it: its feature `{family}` is off"))
}

/// The folder of `ops` that a module lies in.
fn family(module: &str) -> &str {
    let below = module.split_once("::ops::").map_or(module, |(_, below)| below);
    below.split_once("::").map_or(below, |(family, _)| family)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Descriptor;

    #[test]
    #[cfg(not(feature = "norm"))]
    fn an_op_of_a_family_that_is_off_says_so() {
        use crate::backend::DeviceProps;
        use crate::backend::cuda::Props;
        use crate::{DType, Function, LayerNormDescriptor, PlanOptions, PointwiseDescriptor, TensorDesc};
        let x = TensorDesc::contiguous(DType::F32, &[8, 64]).unwrap();
        let props = DeviceProps::Cuda(Props::examples().next().unwrap());
        let options = PlanOptions::default();
        let refused = props.supports(&LayerNormDescriptor::new(x, 1).unwrap(), &options).unwrap_err().to_string();
        assert!(refused.contains("its feature `norm` is off"), "{refused}");
        let add = PointwiseDescriptor::binary(Function::Add, x, x).unwrap();
        assert_eq!(props.supports(&add, &options).is_ok(), cfg!(feature = "pointwise"));
    }

    #[test]
    fn every_op_has_a_family() {
        let known = |module| FAMILIES.iter().any(|&(name, _)| name == family(module));
        for module in [
            crate::LayerNormDescriptor::MODULE,
            crate::SoftmaxDescriptor::MODULE,
            crate::AttentionDescriptor::MODULE,
            crate::GemmDescriptor::MODULE,
            crate::ConvDescriptor::MODULE,
            crate::ActivationDescriptor::MODULE,
            crate::PointwiseDescriptor::MODULE,
            crate::ReduceDescriptor::MODULE,
            crate::ScanDescriptor::MODULE,
            crate::FftDescriptor::MODULE,
            crate::IrfftDescriptor::MODULE,
            crate::CopyDescriptor::MODULE,
            crate::GatherDescriptor::MODULE,
            crate::SortDescriptor::MODULE,
            crate::TopKDescriptor::MODULE,
            crate::SearchSortedDescriptor::MODULE,
            crate::NonzeroDescriptor::MODULE,
            crate::PoolDescriptor::MODULE,
            crate::ResizeDescriptor::MODULE,
            crate::TriangularSolveDescriptor::MODULE,
            crate::CholeskyDescriptor::MODULE,
        ] {
            assert!(known(module), "{module}");
        }
        assert!(!known("baracuda_ops::ops::other"));
    }
}
