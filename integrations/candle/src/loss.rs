//! candle-nn's `loss`, of which cross-entropy is one op.

use candle_core::{Result, Tensor};

pub use candle_nn::loss::*;

use crate::ops::{self, LossReduction};

/// The mean cross-entropy of logits `[N, C]` with classes `[N]`, of the type of the logits, as candle-nn has it. A class out of range makes it NaN.
///
/// # Errors
/// Other ranks; as [`ops::cross_entropy`].
pub fn cross_entropy(inp: &Tensor, target: &Tensor) -> Result<Tensor> {
    if inp.rank() != 2 {
        candle_core::bail!("cross_entropy expects an input tensor of rank 2")
    }
    ops::cross_entropy(inp, target, 1, LossReduction::Mean, None)?.to_dtype(inp.dtype())
}
