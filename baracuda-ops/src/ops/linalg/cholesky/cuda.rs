//! The CUDA kernel: a block for each matrix.

use baracuda_ops_sys as sys;

use super::{A, FACTOR, INFO, Valid, forward};
use crate::backend::Located;
use crate::backend::cuda::Props;
use crate::kernel::Accepted;
use crate::ops::calls::calls;
use crate::ops::linalg::cuda::{blocks, dtype, side};
use crate::ops::pointwise::map::cuda::Lying;
use crate::ops::walk::Walk;

pub(super) fn accept<'d>(valid: &'d Valid, _: &Props) -> Accepted<'d> {
    let task = &valid.derived;
    let lying = Lying { operands: task.batches.to_vec(), walk: Walk::new(&task.batches) };
    let params = sys::bops_cholesky_params {
        walk: lying.c_walk(1)?,
        a: side(&lying, A, task.steps[A])?,
        factor: side(&lying, FACTOR, task.steps[FACTOR])?,
        info: lying.c_walked(INFO, 1)?,
        n: task.n,
        groups: blocks(lying.walk.elements())?,
    };
    let operands = |located: &Located<'_>| sys::bops_cholesky_operands {
        a: located.pointer(forward::A).cast_const(),
        factor: located.pointer(forward::FACTOR),
        info: located.pointer(forward::INFO).cast(),
    };
    let kernels = (dtype(valid.fields.a.dtype()), params, 0, ());
    Ok(calls!(bops_cholesky).candidate(task.has_work(valid.fields.info), kernels, operands))
}
