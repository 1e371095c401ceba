//! The CUDA forms on tensor cores: which problems they take, and how wide their tiles are.

use baracuda_ops_sys as sys;

use super::cuda::{has_chunks, operands_of_forward, params_of_forward};
use super::geometry::{Geometry, Mask};
use super::{ForwardFields, Valid, forward as rows_of_forward};
use crate::backend::cuda::Props;
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask};
use crate::ops::calls::calls;
use crate::slots::Slots;

/// The smallest scale whose products with scores are computed in one instruction with the exponential: so small a factor is a normal number.
const LEAST_SCALE: f64 = 1.0 / (1_u128 << 100) as f64;

/// The columns of a tile, for the widest rows.
fn padded(geometry: &Geometry) -> u32 {
    let depth = geometry.depth.max(geometry.value_depth);
    [32, 64, 128].into_iter().find(|&padded| depth <= u64::from(padded)).unwrap_or(256)
}

/// Whether scores are products times a scale and nothing more.
fn is_plain(geometry: &Geometry) -> bool {
    geometry.soft_cap.is_none() && geometry.mask == Mask::None && geometry.scale.get() >= LEAST_SCALE
}

/// Whether the type is one that is multiplied, and the operands can be copied in chunks of 16 bytes.
fn check(dtype: DType, slots: &Slots, operands: &[(usize, &str)]) -> Result<(), Reason> {
    Reason::unless(matches!(dtype, DType::F16 | DType::BF16), || format!("it has no instruction for {dtype}"))?;
    for &(row, name) in operands {
        Reason::unless(slots.at(row).is_none_or(|slot| has_chunks(&slot.desc)), || {
            format!("the rows of {name} are not whole vectors of 16 bytes that start at multiples of one")
        })?;
    }
    Ok(())
}

/// A tile of queries to a block.
pub(super) fn forward<'d>(valid: &'d Valid<ForwardFields>, _: &Props, _: Ask) -> Accepted<'d> {
    use rows_of_forward::{K, Q, V, Y};
    let (geometry, slots) = (&valid.derived, &valid.slots);
    Reason::unless(geometry.pages.is_none(), || "it has no pages")?;
    check(valid.fields.q.dtype(), slots, &[(Q, "q"), (K, "k"), (V, "v"), (Y, "y")])?;
    let (params, _) = params_of_forward(valid)?;
    let choice = sys::bops_attention_mma_choice { padded: padded(geometry), is_plain: is_plain(geometry).into() };
    let has_work = !slots.always(Y).desc.is_empty();
    let kernels = (params.dtype, params, choice, ());
    Ok(calls!(bops_attention_mma).candidate(has_work, kernels, operands_of_forward).batch_invariant())
}
