//! Ops that are told by a tensor of indices where elements lie.
//!
//! | what a framework calls it | what to use |
//! |---|---|
//! | embedding, index_select, take along an axis, `x[:, indices]` | [`IndexSelectDescriptor`] |
//! | gather, take_along_axis, take_along_dim | [`GatherDescriptor`] |
//! | take of a flat tensor | [`IndexSelectDescriptor`] of the tensor as one extent |
//!
//! An index is a number of i64, i32 or u32. One that names no element is never an access to memory: what it would read is a constant of the descriptor.

pub mod lookup;

#[cfg(feature = "wgpu")]
pub(super) use lookup::add_variants;
pub use lookup::{GatherArgs, GatherDescriptor, GatherPlan, IndexSelectArgs, IndexSelectDescriptor, IndexSelectPlan};
