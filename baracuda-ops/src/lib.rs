// Of two definitions of a link the first counts: those of the README lead to files beside it, which the documentation has not.
#![doc = "[numerics]: https://github.com/baracuda-ops/baracuda-ops/blob/main/docs/numerics.md"]
#![doc = "[support]: https://github.com/baracuda-ops/baracuda-ops/blob/main/docs/SUPPORT.md"]
#![doc = "[accuracy]: https://github.com/baracuda-ops/baracuda-ops/blob/main/docs/ACCURACY.md"]
#![doc = "[performance]: https://github.com/baracuda-ops/baracuda-ops/blob/main/docs/performance.md"]
#![doc = "[coverage]: https://github.com/baracuda-ops/baracuda-ops/blob/main/docs/coverage.md"]
#![doc = "[case-files]: https://github.com/baracuda-ops/baracuda-ops/blob/main/docs/case-files.md"]
#![doc = "[frameworks]: https://github.com/baracuda-ops/baracuda-ops/blob/main/docs/frameworks.md"]
#![doc = "[figure]: https://raw.githubusercontent.com/baracuda-ops/baracuda-ops/main/docs/bench-h200-baracuda-cuda.svg"]
#![doc = "[architecture]: https://github.com/baracuda-ops/baracuda-ops/blob/main/ARCHITECTURE.md"]
#![doc = "[contributing]: https://github.com/baracuda-ops/baracuda-ops/blob/main/CONTRIBUTING.md"]
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Numbers are cut off nowhere: `narrow.rs` converts them.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]

mod any;
mod backend;
mod cache;
mod check;
mod dtype;
mod error;
#[cfg(feature = "cuda")]
mod families;
mod gradients;
mod json;
mod kernel;
mod list;
mod lru;
mod memory;
mod narrow;
mod operands;
pub mod ops;
mod options;
mod overlap;
mod plan;
mod ready;
mod sequence;
mod slots;
mod tensor;

pub use any::AnyDescriptor;
pub use backend::{Backend, Buffer, Device, DeviceProps, Queue};
pub use cache::{CacheStats, PlanCache};
pub use dtype::{Bool, DType, Element, F8E4M3, F8E5M2, Real};
pub use error::{Cause, Error, Reason, Rejection, Result, Start};
pub use gradients::{Role, Step};
pub use list::{OPS, OpEntry};
#[cfg(feature = "cuda")]
pub use memory::Lent;
pub use memory::{Mem, MemMut, Operand, Workspace};
pub use ops::activation::Activation;
pub use ops::attention::{
    AttentionArgs, AttentionBackwardArgs, AttentionBackwardDescriptor, AttentionBackwardPlan, AttentionDescriptor,
    AttentionPlan, CausalMask,
};
pub use ops::conv::conv_transpose::{ConvTransposeArgs, ConvTransposeDescriptor, ConvTransposePlan};
pub use ops::conv::{
    ConvArgs, ConvBackwardBiasArgs, ConvBackwardBiasDescriptor, ConvBackwardBiasPlan, ConvBackwardDataArgs,
    ConvBackwardDataDescriptor, ConvBackwardDataPlan, ConvBackwardWeightArgs, ConvBackwardWeightDescriptor,
    ConvBackwardWeightPlan, ConvDescriptor, ConvPlan, ConvWindow,
};
pub use ops::fft::{
    FftArgs, FftDescriptor, FftDirection, FftPlan, IrfftArgs, IrfftDescriptor, IrfftPlan, RfftArgs, RfftDescriptor,
    RfftPlan,
};
pub use ops::gemm::{
    GemmArgs, GemmBackwardArgs, GemmBackwardDescriptor, GemmBackwardPlan, GemmDescriptor, GemmFactor, GemmPlan,
    GemmSaved,
};
pub use ops::index::{
    Combine, GatherArgs, GatherDescriptor, GatherPlan, IndexAddArgs, IndexAddDescriptor, IndexAddPlan, IndexSelectArgs,
    IndexSelectDescriptor, IndexSelectPlan, NonzeroArgs, NonzeroDescriptor, NonzeroPlan, ScatterArgs,
    ScatterDescriptor, ScatterPlan,
};
pub use ops::linalg::{
    CholeskyArgs, CholeskyDescriptor, CholeskyPlan, TriangularSolveArgs, TriangularSolveDescriptor, TriangularSolvePlan,
};
pub use ops::movement::{
    ConcatArgs, ConcatDescriptor, ConcatPlan, CopyArgs, CopyDescriptor, CopyPlan, PadArgs, PadDescriptor, PadMode,
    PadPlan,
};
pub use ops::norm::{
    BatchNormArgs, BatchNormBackwardArgs, BatchNormBackwardDescriptor, BatchNormBackwardPlan, BatchNormDescriptor,
    BatchNormPlan, GroupNormArgs, GroupNormBackwardArgs, GroupNormBackwardDescriptor, GroupNormBackwardPlan,
    GroupNormDescriptor, GroupNormPlan, InstanceNormArgs, InstanceNormBackwardArgs, InstanceNormBackwardDescriptor,
    InstanceNormBackwardPlan, InstanceNormDescriptor, InstanceNormPlan, LayerNormArgs, LayerNormBackwardArgs,
    LayerNormBackwardDescriptor, LayerNormBackwardPlan, LayerNormDescriptor, LayerNormPlan, LocalResponseNormArgs,
    LocalResponseNormBackwardArgs, LocalResponseNormBackwardDescriptor, LocalResponseNormBackwardPlan,
    LocalResponseNormDescriptor, LocalResponseNormPlan, RmsNormArgs, RmsNormBackwardArgs, RmsNormBackwardDescriptor,
    RmsNormBackwardPlan, RmsNormDescriptor, RmsNormPlan,
};
pub use ops::order::{
    SearchSortedArgs, SearchSortedDescriptor, SearchSortedPlan, SortArgs, SortDescriptor, SortPlan, TopKArgs,
    TopKDescriptor, TopKPlan,
};
pub use ops::pointwise::stock;
pub use ops::pointwise::{
    ActivationArgs, ActivationBackwardArgs, ActivationBackwardDescriptor, ActivationBackwardPlan, ActivationDescriptor,
    ActivationPlan, Distribution, Function, PointwiseArgs, PointwiseDescriptor, PointwisePlan, Program, ProgramBuilder,
    Term,
};
pub use ops::reduce::{ReduceArgs, ReduceDescriptor, ReducePlan, Reduction};
pub use ops::scan::{Scan, ScanArgs, ScanDescriptor, ScanPlan};
pub use ops::softmax::cross_entropy::{
    CrossEntropyArgs, CrossEntropyBackwardArgs, CrossEntropyBackwardDescriptor, CrossEntropyBackwardPlan,
    CrossEntropyDescriptor, CrossEntropyPlan, LossReduction,
};
pub use ops::softmax::linear_cross_entropy::{
    LinearCrossEntropyArgs, LinearCrossEntropyBackwardArgs, LinearCrossEntropyBackwardDescriptor,
    LinearCrossEntropyBackwardPlan, LinearCrossEntropyDescriptor, LinearCrossEntropyPlan,
};
pub use ops::softmax::{
    SoftmaxArgs, SoftmaxBackwardArgs, SoftmaxBackwardDescriptor, SoftmaxBackwardPlan, SoftmaxDescriptor, SoftmaxPlan,
};
pub use ops::window::{
    Coordinates, PoolArgs, PoolBackwardArgs, PoolBackwardDescriptor, PoolBackwardPlan, PoolDescriptor, PoolPlan,
    PoolWindow, Pooling, ResizeArgs, ResizeBackwardArgs, ResizeBackwardDescriptor, ResizeBackwardPlan,
    ResizeDescriptor, ResizeMode, ResizePlan,
};
pub use options::{Determinism, Math, PlanInfo, PlanOptions, WorkspaceReq};
pub use plan::{AnyPlan, Args, Bound, Descriptor, Plan};
pub use ready::Ready;
pub use slots::{Access, Slot};
pub use tensor::{DEFAULT_ALIGN_BYTES, MAX_RANK, TensorDesc};

#[cfg(feature = "cuda")]
pub use ::cudarc;
#[cfg(feature = "wgpu")]
pub use ::wgpu;
#[cfg(feature = "cuda")]
pub use backend::cuda::Props as CudaProps;
#[cfg(feature = "wgpu")]
pub use backend::wgpu::Props as WgpuProps;
#[cfg(feature = "wgpu")]
#[doc(hidden)]
pub use ops::wgsl_variants;

/// The code of the page for authors of frameworks.
#[cfg(doctest)]
#[doc = include_str!("../../docs/frameworks.md")]
mod frameworks {}
