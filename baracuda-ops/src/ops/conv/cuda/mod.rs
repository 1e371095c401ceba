//! The CUDA kernels. [`vendor`] comes first wherever it serves.

mod vendor;

pub(super) const CUDNN: vendor::Cudnn = vendor::Cudnn;
