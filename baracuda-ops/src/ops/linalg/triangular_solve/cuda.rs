//! The CUDA kernel: how many blocks it has.

use baracuda_ops_sys as sys;

use super::{A, B, Valid, X, forward};
use crate::backend::Located;
use crate::backend::cuda::Props;
use crate::kernel::Accepted;
use crate::ops::calls::calls;
use crate::ops::linalg::cuda::{blocks, dtype, side};
use crate::ops::pointwise::map::cuda::Lying;
use crate::ops::walk::Walk;

const TILE: u64 = sys::BOPS_TRIANGULAR_SOLVE_TILE as u64;

pub(super) fn accept<'d>(valid: &'d Valid, _: &Props) -> Accepted<'d> {
    let solve = &valid.derived;
    let lying = Lying { operands: solve.batches.to_vec(), walk: Walk::new(&solve.batches) };
    let panels = solve.columns.div_ceil(TILE);
    let params = sys::bops_triangular_solve_params {
        walk: lying.c_walk(1)?,
        a: side(&lying, A, solve.steps[A])?,
        b: side(&lying, B, solve.steps[B])?,
        x: side(&lying, X, solve.steps[X])?,
        n: solve.n,
        systems: solve.columns,
        panels,
        groups: blocks(lying.walk.elements().saturating_mul(panels))?,
        alpha: valid.fields.alpha.get(),
        is_reversed: solve.is_reversed.into(),
        is_unit: valid.fields.unit_diagonal.into(),
    };
    let operands = |located: &Located<'_>| sys::bops_triangular_solve_operands {
        a: located.pointer(forward::A).cast_const(),
        b: located.pointer(forward::B).cast_const(),
        x: located.pointer(forward::X),
    };
    let kernels = (dtype(valid.fields.a.dtype()), params, 0, ());
    Ok(calls!(bops_triangular_solve).candidate(solve.has_work(), kernels, operands))
}
