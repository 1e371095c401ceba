//! Ops over windows of the spatial extents of a tensor.
//!
//! | what a framework calls it | what to use |
//! |---|---|
//! | max_pool, avg_pool, lp_pool of order 1 and 2, in one to three extents | [`PoolDescriptor`] |
//! | adaptive and global pooling | [`PoolDescriptor`] with [`PoolWindow::adaptive`] and [`PoolWindow::global`] |
//! | interpolate, upsample: nearest, nearest-exact, (bi-, tri-)linear, bicubic | [`ResizeDescriptor`] |

pub mod pool;
pub mod resize;

#[cfg(feature = "wgpu")]
use crate::backend::wgpu::Variants;

pub use pool::{
    PoolArgs, PoolBackwardArgs, PoolBackwardDescriptor, PoolBackwardPlan, PoolDescriptor, PoolPlan, PoolWindow, Pooling,
};
pub use resize::{
    Coordinates, ResizeArgs, ResizeBackwardArgs, ResizeBackwardDescriptor, ResizeBackwardPlan, ResizeDescriptor,
    ResizeMode, ResizePlan,
};

/// The texts of the kernels, for the tests that validate them.
///
/// # Errors
/// A descriptor that is not valid.
#[cfg(feature = "wgpu")]
pub(super) fn add_variants(variants: &mut Variants) -> crate::error::Result<()> {
    pool::add_variants(variants)?;
    resize::add_variants(variants)
}
