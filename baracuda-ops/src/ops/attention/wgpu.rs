//! How shaders compute attention.

use super::{BackwardFields, ForwardFields, Valid};
use crate::backend::wgpu::{Props, Variants, Work};
use crate::error::{Reason, Result};
use crate::kernel::Ask;

/// Every kind of shader of the family, without a device.
pub(in crate::ops) fn add_variants(_: &mut Variants) -> Result<()> {
    Ok(())
}

/// The form of forward.
pub(super) fn forward(_: &Valid<ForwardFields>, _: &Props, _: Ask) -> Result<Work<()>, Reason> {
    Err("not yet".into())
}

/// The form of backward.
pub(super) fn backward(_: &Valid<BackwardFields>, _: &Props, _: Ask) -> Result<Work<()>, Reason> {
    Err("not yet".into())
}
