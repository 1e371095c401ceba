//! candle-nn's `group_norm` in one op.

use candle_core::{Module, Result, Tensor};
use candle_nn::{Init, VarBuilder};

use crate::ops;

/// GroupNorm of `[N, C, spatial..]`, with the constructor of candle-nn's.
#[derive(Clone, Debug)]
pub struct GroupNorm {
    weight: Tensor,
    bias: Tensor,
    eps: f64,
    num_channels: usize,
    num_groups: usize,
}

impl GroupNorm {
    /// GroupNorm with these parameters.
    ///
    /// # Errors
    /// The groups do not divide the channels.
    pub fn new(weight: Tensor, bias: Tensor, num_channels: usize, num_groups: usize, eps: f64) -> Result<Self> {
        if num_groups == 0 || !num_channels.is_multiple_of(num_groups) {
            candle_core::bail!("GroupNorm: num_groups ({num_groups}) must divide num_channels ({num_channels})")
        }
        Ok(Self { weight, bias, eps, num_channels, num_groups })
    }
}

impl Module for GroupNorm {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        if xs.rank() <= 2 {
            candle_core::bail!("input rank for GroupNorm should be at least 3");
        }
        let channels = xs.dim(1)?;
        if channels != self.num_channels {
            candle_core::bail!("unexpected num-channels in GroupNorm ({channels} <> {})", self.num_channels)
        }
        ops::group_norm(xs, self.num_groups, Some(&self.weight), Some(&self.bias), self.eps)
    }
}

/// GroupNorm with the variables `weight` and `bias`.
///
/// # Errors
/// The builder lacks a variable of this shape; as [`GroupNorm::new`].
pub fn group_norm(num_groups: usize, num_channels: usize, eps: f64, vb: VarBuilder) -> Result<GroupNorm> {
    let weight = vb.get_with_hints(num_channels, "weight", Init::Const(1.0))?;
    let bias = vb.get_with_hints(num_channels, "bias", Init::Const(0.0))?;
    GroupNorm::new(weight, bias, num_channels, num_groups, eps)
}
