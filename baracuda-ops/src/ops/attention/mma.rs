//! The CUDA forms on tensor cores: which problems they take, and how wide their tiles are.

use baracuda_ops_sys as sys;

use super::cuda::{Form, has_chunks, in_turn, operands_of_forward, params_of_backward, params_of_forward};
use super::geometry::{Geometry, Mask};
use super::{BackwardFields, ForwardFields, Valid, backward as rows_of_backward, forward as rows_of_forward};
use crate::backend::cuda::Props;
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask};
use crate::ops::calls::calls;
use crate::slots::Slots;

/// The smallest scale that kernels merge with the change to powers of two. Their factor is then a normal number of f32 and greater than 0, so that hidden
/// scores stay -infinity.
pub(super) const LEAST_SCALE: f64 = 1.0 / (1_u128 << 100) as f64;

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
pub(super) fn check(dtype: DType, slots: &Slots, operands: &[(usize, &str)]) -> Result<(), Reason> {
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

/// The widest rows that backward takes: a thread holds two sums for each column of a row.
const WIDEST_OF_BACKWARD: u64 = 128;
/// The bytes of what the first launch of backward writes for a query.
const BYTES_OF_QUERY: u64 = 8;

/// The launches of a backward, all with the same choice.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Choice {
    delta: bool,
    queries: bool,
    keys: bool,
    tile: sys::bops_attention_mma_choice,
}

/// The sums of dy and y of queries, then a tile of queries or of keys to a block.
pub(super) fn backward<'d>(valid: &'d Valid<BackwardFields>, _: &Props, _: Ask) -> Accepted<'d> {
    use rows_of_backward::{DK, DQ, DV, DY, K, Q, V, Y};
    let (fields, geometry, slots) = (&valid.fields, &valid.derived, &valid.slots);
    Reason::unless(fields.dbias.is_none(), || "it has no gradient of the bias")?;
    let rows = [(Q, "q"), (K, "k"), (V, "v"), (Y, "y"), (DY, "dy"), (DQ, "dq"), (DK, "dk"), (DV, "dv")];
    check(fields.q.dtype(), slots, &rows)?;
    let widest = geometry.depth.max(geometry.value_depth);
    Reason::unless(widest <= WIDEST_OF_BACKWARD, || {
        format!("rows have {widest} columns, it takes at most {WIDEST_OF_BACKWARD}")
    })?;
    let params = params_of_backward(valid)?;
    let has_elements = |rows: &[usize]| slots.all_at(rows).any(|slot| !slot.desc.is_empty());
    let queries = [geometry.samples, geometry.heads, geometry.queries].into_iter().product::<u64>();
    let choice = Choice {
        delta: queries > 0,
        queries: has_elements(&[DQ]),
        keys: has_elements(&[DK, DV]),
        tile: sys::bops_attention_mma_choice { padded: padded(geometry), is_plain: is_plain(geometry).into() },
    };
    let forms: [(Form<_>, bool); 3] = [
        (calls!(bops_attention_backward_mma_delta), choice.delta),
        (calls!(bops_attention_backward_mma_queries), choice.queries),
        (calls!(bops_attention_backward_mma_keys), choice.keys),
    ];
    let forms = forms.into_iter().filter(|&(_, has_work)| has_work).map(|(form, _)| (form, choice.tile)).collect();
    Ok(in_turn(choice, forms, params, queries * BYTES_OF_QUERY).batch_invariant())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ops::attention::AttentionDescriptor;
    use crate::tensor::TensorDesc;

    fn geometry(depth: u64, value_depth: u64, change: impl Fn(AttentionDescriptor) -> AttentionDescriptor) -> Geometry {
        let of = |depth| TensorDesc::contiguous(DType::BF16, &[1, 2, 5, depth]).unwrap();
        change(AttentionDescriptor::new(of(depth), of(depth), of(value_depth)).unwrap()).0.derived
    }

    #[test]
    fn tiles_hold_the_widest_rows() {
        for (depth, value_depth, expected) in [(8, 32, 32), (32, 40, 64), (64, 64, 64), (96, 8, 128), (128, 136, 256)] {
            assert_eq!(padded(&geometry(depth, value_depth, |it| it)), expected, "{depth}, {value_depth}");
        }
    }

    #[test]
    fn scores_are_plain_without_caps_and_with_positive_scales() {
        assert!(is_plain(&geometry(64, 64, |it| it)) && is_plain(&geometry(64, 64, |it| it.scale(0.3).unwrap())));
        for scale in [0.0, -0.3, 1e-31] {
            assert!(!is_plain(&geometry(64, 64, |it| it.scale(scale).unwrap())), "{scale}");
        }
        assert!(!is_plain(&geometry(64, 64, |it| it.soft_cap(20.0).unwrap())));
    }
}
