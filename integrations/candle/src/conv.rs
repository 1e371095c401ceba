//! candle-nn's `conv`, where convolutions of one and two spatial extents, with their biases, are one op; transposed ones are candle-nn's.

use candle_core::{Module, Result, Shape, Tensor};
use candle_nn::{BatchNorm, Init, VarBuilder};

pub use candle_nn::conv::*;

use crate::ops;

/// A convolution of `[N, C, length]`, with the constructor of candle-nn's.
#[derive(Clone, Debug)]
pub struct Conv1d {
    weight: Tensor,
    bias: Option<Tensor>,
    config: Conv1dConfig,
}

impl Conv1d {
    /// With a weight `[filters, C / groups, kernel]` and a bias `[filters]`.
    pub fn new(weight: Tensor, bias: Option<Tensor>, config: Conv1dConfig) -> Self {
        Self { weight, bias, config }
    }

    /// Padding, stride, dilation and groups.
    pub fn config(&self) -> &Conv1dConfig {
        &self.config
    }

    /// The weight.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias, if there is one.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }
}

impl Module for Conv1d {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        ops::conv1d(xs, &self.weight, self.bias.as_ref(), &self.config, None)
    }
}

/// A convolution of `[N, C, height, width]`, with the constructor of candle-nn's.
#[derive(Clone, Debug)]
pub struct Conv2d {
    weight: Tensor,
    bias: Option<Tensor>,
    config: Conv2dConfig,
}

impl Conv2d {
    /// With a weight `[filters, C / groups, kernel, kernel]` and a bias `[filters]`.
    pub fn new(weight: Tensor, bias: Option<Tensor>, config: Conv2dConfig) -> Self {
        Self { weight, bias, config }
    }

    /// Padding, stride, dilation and groups.
    pub fn config(&self) -> &Conv2dConfig {
        &self.config
    }

    /// The weight.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias, if there is one.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// This convolution followed by a BatchNorm with its running statistics, as one convolution.
    ///
    /// # Errors
    /// As candle-nn's function of this name.
    pub fn absorb_bn(&self, bn: &BatchNorm) -> Result<Self> {
        let Self { weight, bias, config } = self.clone();
        let absorbed = candle_nn::Conv2d::new(weight, bias, config).absorb_bn(bn)?;
        Ok(Self::new(absorbed.weight().clone(), absorbed.bias().cloned(), config))
    }
}

impl Module for Conv2d {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        ops::conv2d(xs, &self.weight, self.bias.as_ref(), &self.config, None)
    }
}

/// The channels of a group.
fn in_group(in_channels: usize, groups: usize) -> Result<usize> {
    match in_channels.checked_div(groups) {
        Some(channels) => Ok(channels),
        None => candle_core::bail!("a convolution of {in_channels} channels has one group or more, got {groups}"),
    }
}

fn weight(vb: &VarBuilder, shape: impl Into<Shape>) -> Result<Tensor> {
    vb.get_with_hints(shape, "weight", candle_nn::init::DEFAULT_KAIMING_NORMAL)
}

fn bias(vb: &VarBuilder, in_channels: usize, out_channels: usize) -> Result<Tensor> {
    let bound = 1.0 / (in_channels as f64).sqrt();
    vb.get_with_hints(out_channels, "bias", Init::Uniform { lo: -bound, up: bound })
}

/// A convolution of one spatial extent with the variables `weight` and `bias`.
///
/// # Errors
/// The builder lacks a variable of this shape; no groups.
pub fn conv1d(
    in_channels: usize,
    out_channels: usize,
    kernel_size: usize,
    cfg: Conv1dConfig,
    vb: VarBuilder,
) -> Result<Conv1d> {
    let weight = weight(&vb, (out_channels, in_group(in_channels, cfg.groups)?, kernel_size))?;
    Ok(Conv1d::new(weight, Some(bias(&vb, in_channels, out_channels)?), cfg))
}

/// A convolution of one spatial extent without a bias.
///
/// # Errors
/// As [`conv1d`].
pub fn conv1d_no_bias(
    in_channels: usize,
    out_channels: usize,
    kernel_size: usize,
    cfg: Conv1dConfig,
    vb: VarBuilder,
) -> Result<Conv1d> {
    let weight = weight(&vb, (out_channels, in_group(in_channels, cfg.groups)?, kernel_size))?;
    Ok(Conv1d::new(weight, None, cfg))
}

/// A convolution of two spatial extents with the variables `weight` and `bias`.
///
/// # Errors
/// As [`conv1d`].
pub fn conv2d(
    in_channels: usize,
    out_channels: usize,
    kernel_size: usize,
    cfg: Conv2dConfig,
    vb: VarBuilder,
) -> Result<Conv2d> {
    let weight = weight(&vb, (out_channels, in_group(in_channels, cfg.groups)?, kernel_size, kernel_size))?;
    Ok(Conv2d::new(weight, Some(bias(&vb, in_channels, out_channels)?), cfg))
}

/// A convolution of two spatial extents without a bias.
///
/// # Errors
/// As [`conv1d`].
pub fn conv2d_no_bias(
    in_channels: usize,
    out_channels: usize,
    kernel_size: usize,
    cfg: Conv2dConfig,
    vb: VarBuilder,
) -> Result<Conv2d> {
    let weight = weight(&vb, (out_channels, in_group(in_channels, cfg.groups)?, kernel_size, kernel_size))?;
    Ok(Conv2d::new(weight, None, cfg))
}
