//! Trains a classifier with two convolutions on 1438 images of handwritten digits and tells how many of 359 others it reads. Each convolution
//! is followed by BatchNorm, which takes the mean and variance of all images, and ReLU; a product of matrices makes logits of what they find.
//!
//! `cargo run --release --example cnn -- [STEPS] [cpu|cuda|wgpu]`, by default 60 on the best device. The losses of the first 20 steps are the
//! same on all devices to within 0.001.

use baracuda_ops::{
    Activation, ActivationDescriptor, BatchNormDescriptor, ConvDescriptor, ConvWindow, DType, GemmDescriptor,
};

mod digits;
#[allow(dead_code, reason = "other examples use more of it")]
mod graph;
use digits::{DIGITS, Digits, Network, SIDE};
use graph::{Result, Tensor, arguments};

/// A convolution of 3 by 3, BatchNorm and ReLU.
fn layer(network: &mut Network, x: Tensor, channels: u64, stride: u64) -> Result<Tensor> {
    let terms = x.desc.dims()[1] * 9;
    let weight = network.weight(&[channels, x.desc.dims()[1], 3, 3], terms)?;
    let window = ConvWindow::new().stride(&[stride; 2]).padding(&[1, 1]);
    let graph = &mut network.graph;
    let sums = ConvDescriptor::new(x.desc, weight.desc, window)?;
    let sums = graph.op(sums, &[("x", x), ("weight", weight)], "y")?;
    let normalized = BatchNormDescriptor::new(sums.desc)?.stats()?;
    let normalized = graph.op(normalized, &[("x", sums)], "y")?;
    let relu = ActivationDescriptor::new(normalized.desc, Activation::Relu)?;
    graph.op(relu, &[("x", normalized)], "y")
}

fn main() -> Result<()> {
    let (steps, device) = arguments(60)?;
    let digits = Digits::read()?;
    let mut network = Network::new(device);
    let images = network.graph.tensor(&digits.images, &[digits.count, 1, SIDE, SIDE], false)?;
    let maps = layer(&mut network, images, 8, 1)?;
    let maps = layer(&mut network, maps, 16, 2)?;
    let features = 16 * (SIDE / 2) * (SIDE / 2);
    let maps = maps.viewed(&[digits.count, features])?;
    let weight = network.weight(&[features, DIGITS], features)?;
    let bias = network.parameter(&[0.0; DIGITS as usize], &[DIGITS])?;
    let product = GemmDescriptor::new(maps.desc, weight.desc)?.bias(DType::F32)?;
    let logits = network.graph.op(product, &[("a", maps), ("b", weight), ("bias", bias)], "out")?;
    digits.train(network, logits, steps, (60, 0.95))
}
