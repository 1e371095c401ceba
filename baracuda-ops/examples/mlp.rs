//! Trains a classifier of two layers on 1438 images of handwritten digits and tells how many of 359 others it reads. The forward ops are written down
//! once; their gradients are the steps that the ops derive, and SGD is one plan over all parameters.
//!
//! `cargo run --release --example mlp -- [STEPS] [cpu|cuda|wgpu]`, by default 300 on the best device.

use baracuda_ops::{Activation, DType, GemmDescriptor};

#[allow(dead_code, reason = "other examples use more of it")]
mod digits;
#[allow(dead_code, reason = "other examples use more of it")]
mod graph;
use digits::{DIGITS, Digits, Network, SIDE};
use graph::{Result, Tensor, arguments};

const HIDDEN: u64 = 128;

/// `activation(x weight + bias)`
fn layer(network: &mut Network, x: Tensor, columns: u64, activation: Activation) -> Result<Tensor> {
    let rows = x.desc.dims()[1];
    let weight = network.weight(&[rows, columns], rows)?;
    let bias = network.parameter(&vec![0.0; columns as usize], &[columns])?;
    let product = GemmDescriptor::new(x.desc, weight.desc)?.bias(DType::F32)?.activation(activation)?;
    network.graph.op(product, &[("a", x), ("b", weight), ("bias", bias)], "out")
}

fn main() -> Result<()> {
    let (steps, device) = arguments(300)?;
    let digits = Digits::read()?;
    let mut network = Network::new(device);
    let images = network.graph.tensor(&digits.images, &[digits.count, SIDE * SIDE], false)?;
    let hidden = layer(&mut network, images, HIDDEN, Activation::Relu)?;
    let logits = layer(&mut network, hidden, DIGITS, Activation::Identity)?;
    digits.train(network, logits, steps, (100, 0.93))
}
