//! candle-nn's `layer_norm`: LayerNorm and RMSNorm as modules, whose parameters and inputs get their gradients.

use candle_core::{Module, Result, Tensor};
use candle_nn::{Init, VarBuilder};

pub use candle_nn::layer_norm::LayerNormConfig;

use crate::ops;

/// LayerNorm, or RMSNorm, over the last extent, with the constructors of candle-nn's.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Option<Tensor>,
    remove_mean: bool,
    eps: f64,
}

impl LayerNorm {
    /// LayerNorm with these parameters.
    pub fn new(weight: Tensor, bias: Tensor, eps: f64) -> Self {
        Self { weight, bias: Some(bias), remove_mean: true, eps }
    }

    /// LayerNorm without a bias.
    pub fn new_no_bias(weight: Tensor, eps: f64) -> Self {
        Self { weight, bias: None, remove_mean: true, eps }
    }

    /// RMSNorm.
    pub fn rms_norm(weight: Tensor, eps: f64) -> Self {
        Self { weight, bias: None, remove_mean: false, eps }
    }

    /// The weight.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias, if there is one.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// The number added to the variance.
    pub fn eps(&self) -> f64 {
        self.eps
    }

    /// Whether this is LayerNorm, not RMSNorm.
    pub fn remove_mean(&self) -> bool {
        self.remove_mean
    }
}

impl Module for LayerNorm {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        if self.remove_mean {
            return ops::layer_norm_with(xs, 1, Some(&self.weight), self.bias.as_ref(), self.eps);
        }
        let y = ops::rms_norm_with(xs, 1, Some(&self.weight), self.eps)?;
        match &self.bias {
            Some(bias) => y.broadcast_add(bias),
            None => Ok(y),
        }
    }
}

/// LayerNorm of `size` elements with the variables `weight` and `bias`, or `gamma` and `beta` where the builder has these.
///
/// # Errors
/// The builder lacks a variable of this shape.
pub fn layer_norm<C: Into<LayerNormConfig>>(size: usize, config: C, vb: VarBuilder) -> Result<LayerNorm> {
    let LayerNormConfig { eps, remove_mean, affine } = config.into();
    let known = |names: [&'static str; 2]| names.into_iter().find(|name| vb.contains_tensor(name)).unwrap_or(names[0]);
    let weight = vb.get_with_hints(size, known(["weight", "gamma"]), Init::Const(1.0))?;
    let bias = match affine {
        true => Some(vb.get_with_hints(size, known(["bias", "beta"]), Init::Const(0.0))?),
        false => None,
    };
    Ok(LayerNorm { weight, bias, remove_mean, eps })
}

/// LayerNorm without a bias.
///
/// # Errors
/// As [`layer_norm`].
pub fn layer_norm_no_bias(size: usize, eps: f64, vb: VarBuilder) -> Result<LayerNorm> {
    layer_norm(size, LayerNormConfig { eps, remove_mean: true, affine: false }, vb)
}

/// RMSNorm over the last extent.
#[derive(Clone, Debug)]
pub struct RmsNorm(LayerNorm);

impl RmsNorm {
    /// RMSNorm with this weight.
    pub fn new(weight: Tensor, eps: f64) -> Self {
        Self(LayerNorm::rms_norm(weight, eps))
    }

    /// The module that it is made of.
    pub fn into_inner(self) -> LayerNorm {
        self.0
    }

    /// The weight.
    pub fn weight(&self) -> &Tensor {
        self.0.weight()
    }

    /// The number added to the mean square.
    pub fn eps(&self) -> f64 {
        self.0.eps()
    }

    /// As `forward`, which has gradients here.
    ///
    /// # Errors
    /// As [`rms_norm`](ops::rms_norm).
    pub fn forward_diff(&self, xs: &Tensor) -> Result<Tensor> {
        self.0.forward(xs)
    }
}

impl Module for RmsNorm {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        self.0.forward(xs)
    }
}

/// RMSNorm of `size` elements with the variable `weight`.
///
/// # Errors
/// As [`layer_norm`].
pub fn rms_norm(size: usize, eps: f64, vb: VarBuilder) -> Result<RmsNorm> {
    Ok(RmsNorm(layer_norm(size, LayerNormConfig { eps, remove_mean: false, affine: false }, vb)?))
}
