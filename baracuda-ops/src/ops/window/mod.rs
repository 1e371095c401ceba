//! Ops over windows of the spatial extents of a tensor.
//!
//! | what a framework calls it | what to use |
//! |---|---|
//! | max_pool, avg_pool, lp_pool of order 1 and 2, in one to three extents | [`PoolDescriptor`] |
//! | adaptive and global pooling | [`PoolDescriptor`] with [`PoolWindow::adaptive`] and [`PoolWindow::global`] |

pub mod pool;

#[cfg(feature = "wgpu")]
pub(super) use pool::add_variants;
pub use pool::{
    PoolArgs, PoolBackwardArgs, PoolBackwardDescriptor, PoolBackwardPlan, PoolDescriptor, PoolPlan, PoolWindow, Pooling,
};
