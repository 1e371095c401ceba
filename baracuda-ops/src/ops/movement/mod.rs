//! Ops that move elements and compute nothing: copies between layouts, slices, padding and concatenation.
//!
//! | what a framework calls it | what to use |
//! |---|---|
//! | transpose, permute, expand, a view with strides | a [`TensorDesc`](crate::TensorDesc) of the same memory; [`CopyDescriptor`] where its elements have to lie densely |
//! | narrow, split, chunk, select, unbind | [`TensorDesc::narrow`](crate::TensorDesc::narrow), which gives the offset for [`Mem::buffer`](crate::Mem::buffer); no op |
//! | slice with steps, flip | [`CopyDescriptor::slice`], with steps below 0 |
//! | repeat, tile | [`CopyDescriptor`] of a tensor with strides of 0 |
//! | cat, stack | [`ConcatDescriptor`]; for a stack each input has a further extent of 1 |
//! | pad, crop, dilation by zeros | [`PadDescriptor`] |
//! | cast | [`PointwiseDescriptor`](crate::PointwiseDescriptor) of a program without instructions |
//!
//! Elements move as bits, so that every type of a size is moved by the same kernels, and each NaN keeps its payload.

pub mod concat;
pub mod copy;
pub(super) mod cpu;
#[cfg(feature = "cuda")]
pub(super) mod cuda;
pub(super) mod geometry;
pub mod pad;
#[cfg(feature = "wgpu")]
pub(super) mod wgpu;

pub use concat::{ConcatArgs, ConcatDescriptor, ConcatPlan};
pub use copy::{CopyArgs, CopyDescriptor, CopyPlan};
pub use pad::{PadArgs, PadDescriptor, PadMode, PadPlan};
#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;
