//! How CUDA computes attention.

use super::{BackwardFields, ForwardFields, Valid};
use crate::backend::cuda::Props;
use crate::kernel::{Accepted, Ask};

/// The form of forward.
pub(super) fn forward<'d>(_: &'d Valid<ForwardFields>, _: &Props, _: Ask) -> Accepted<'d> {
    Err("not yet".into())
}

/// The form of backward.
pub(super) fn backward<'d>(_: &'d Valid<BackwardFields>, _: &Props, _: Ask) -> Accepted<'d> {
    Err("not yet".into())
}
