//! Ops that are told by a tensor of indices where elements lie, and one that makes such a tensor.
//!
//! | what a framework calls it | what to use |
//! |---|---|
//! | embedding, index_select, take along an axis, `x[:, indices]` | [`IndexSelectDescriptor`] |
//! | gather, take_along_axis, take_along_dim | [`GatherDescriptor`] |
//! | take of a flat tensor | [`IndexSelectDescriptor`] of the tensor as one extent |
//! | index_add, index_copy, index_reduce, the gradient of an embedding | [`IndexAddDescriptor`] |
//! | scatter, scatter_add, scatter_reduce, put_along_axis | [`ScatterDescriptor`] |
//! | put, index_put of a flat tensor, a sum of segments, bincount with weights | [`IndexAddDescriptor`] of the tensor as one extent |
//!
//! | nonzero, argwhere, nonzero_static, where of a condition alone | [`NonzeroDescriptor`] |
//! | masked_select, a boolean mask as an index | [`NonzeroDescriptor`] of the mask, then [`IndexSelectDescriptor`] of the tensor as one extent |
//!
//! An index is a number of i64, i32 or u32. One that names no element is never an access to memory: what it would read is a constant of the descriptor, and
//! what it would write is left out.

pub mod lookup;
pub mod nonzero;
pub mod scatter;

pub use lookup::{GatherArgs, GatherDescriptor, GatherPlan, IndexSelectArgs, IndexSelectDescriptor, IndexSelectPlan};
pub use nonzero::{NonzeroArgs, NonzeroDescriptor, NonzeroPlan};
pub use scatter::{
    Combine, IndexAddArgs, IndexAddDescriptor, IndexAddPlan, ScatterArgs, ScatterDescriptor, ScatterPlan,
};

#[cfg(feature = "wgpu")]
pub(super) fn add_variants(variants: &mut crate::backend::wgpu::Variants) -> crate::error::Result<()> {
    lookup::add_variants(variants)?;
    nonzero::wgpu::add_variants(variants)?;
    scatter::add_variants(variants)
}
