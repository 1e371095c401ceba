//! candle-nn's `linear`: product and bias are one op.

use candle_core::{Module, Result, Tensor};
use candle_nn::{Activation, Init, VarBuilder};

use crate::ops;

/// `x weight^T + bias`, with the constructor of candle-nn's.
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    /// With a weight `[outputs, inputs]` and a bias `[outputs]`.
    pub fn new(weight: Tensor, bias: Option<Tensor>) -> Self {
        Self { weight, bias }
    }

    /// The weight.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias, if there is one.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// As `forward`, with an activation in the same op.
    ///
    /// # Errors
    /// As [`ops::linear`].
    pub fn forward_act(&self, xs: &Tensor, act: Activation) -> Result<Tensor> {
        ops::linear(xs, &self.weight, self.bias.as_ref(), Some(act))
    }
}

impl Module for Linear {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        ops::linear(xs, &self.weight, self.bias.as_ref(), None)
    }
}

/// A linear layer with the variables `weight` and `bias`.
///
/// # Errors
/// The builder lacks a variable of this shape.
pub fn linear(in_dim: usize, out_dim: usize, vb: VarBuilder) -> Result<Linear> {
    let weight = vb.get_with_hints((out_dim, in_dim), "weight", candle_nn::init::DEFAULT_KAIMING_NORMAL)?;
    let bound = 1.0 / (in_dim as f64).sqrt();
    let bias = vb.get_with_hints(out_dim, "bias", Init::Uniform { lo: -bound, up: bound })?;
    Ok(Linear::new(weight, Some(bias)))
}

/// A linear layer without a bias.
///
/// # Errors
/// As [`linear`].
pub fn linear_no_bias(in_dim: usize, out_dim: usize, vb: VarBuilder) -> Result<Linear> {
    let weight = vb.get_with_hints((out_dim, in_dim), "weight", candle_nn::init::DEFAULT_KAIMING_NORMAL)?;
    Ok(Linear::new(weight, None))
}

/// A linear layer with or without a bias.
///
/// # Errors
/// As [`linear`].
pub fn linear_b(in_dim: usize, out_dim: usize, bias: bool, vb: VarBuilder) -> Result<Linear> {
    if bias { linear(in_dim, out_dim, vb) } else { linear_no_bias(in_dim, out_dim, vb) }
}
