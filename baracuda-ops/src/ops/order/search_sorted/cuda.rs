//! The CUDA kernel: how many blocks it has.

use baracuda_ops_sys as sys;

use super::{INDICES, LINES, VALUES, Valid, forward};
use crate::backend::Located;
use crate::backend::cuda::Props;
use crate::kernel::Accepted;
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::pointwise::map::cuda::Lying;
use crate::ops::walk::Walk;

pub(super) fn accept<'d>(valid: &'d Valid, _: &Props) -> Accepted<'d> {
    let search = &valid.derived;
    let keys = search.keys();
    let lying = Lying { operands: search.operands.to_vec(), walk: Walk::new(&search.operands) };
    let params = sys::bops_search_sorted_params {
        walk: lying.c_walk(1)?,
        indices: lying.c_walked(INDICES, 1)?,
        values: lying.c_walked(VALUES, 1)?,
        lines: lying.c_walked(LINES, 1)?,
        keys: sys::bops_order_keys {
            sign: keys.sign,
            infinity: keys.infinity,
            is_bool: keys.is_bool.into(),
            is_descending: keys.is_descending.into(),
        },
        length: search.length,
        step: search.step,
        is_right: search.is_right.into(),
    };
    let element = sys::bops_order_element { bytes: word(search.operands[VALUES].dtype().size_bytes()) };
    let operands = |located: &Located<'_>| sys::bops_search_sorted_operands {
        sorted: located.pointer(forward::SORTED).cast_const(),
        values: located.pointer(forward::VALUES).cast_const(),
        indices: located.pointer(forward::INDICES),
    };
    Ok(calls!(bops_search_sorted).candidate(lying.walk.elements() > 0, (element, params, 0, ()), operands))
}
