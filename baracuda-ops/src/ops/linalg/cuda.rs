//! What the CUDA kernels of matrices share: how batches lie, and the limits of a launch.

use baracuda_ops_sys as sys;

use crate::dtype::DType;
use crate::error::Reason;
use crate::ops::pointwise::map::cuda::Lying;

/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;

/// A type in which systems are solved, at the C ABI.
pub(super) fn dtype(dtype: DType) -> sys::bops_dtype {
    if dtype == DType::F64 { sys::BOPS_F64 } else { sys::BOPS_F32 }
}

/// How the matrices of an operand lie.
pub(super) fn side(lying: &Lying, operand: usize, [row, column]: [u64; 2]) -> Result<sys::bops_linalg_side, Reason> {
    Ok(sys::bops_linalg_side { matrices: lying.c_walked(operand, 1)?, row, column })
}

/// Refuses more blocks than a launch has.
pub(super) fn blocks(blocks: u64) -> Result<u64, Reason> {
    Reason::unless(blocks <= MOST_BLOCKS, || format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}"))?;
    Ok(blocks)
}
