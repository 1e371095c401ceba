//! Trains a residual network on 1438 images of handwritten digits and tells how many of 359 others it reads. Each step draws a batch of images on the device and
//! moves each by up to one pixel, by random numbers that every device draws alike. The network has convolutions with GroupNorm, two residual blocks and
//! max-pooling; its loss is the cross-entropy of logits and digits; AdamW updates all parameters in one plan. A step never waits for the host.
//!
//! `cargo run --release --example cnn -- [STEPS] [cpu|cuda|wgpu|all]`, by default 600 on the best device. With `all` every device trains from the same seed, and
//! their losses are drawn into one SVG. Those of the first 20 steps are the same on all devices to within 0.001.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;

use baracuda_ops::stock::Adam;
use baracuda_ops::{
    Activation, ActivationDescriptor, AnyDescriptor, ConvDescriptor, ConvWindow, CrossEntropyDescriptor, DType, Device,
    Distribution, Function, GemmDescriptor, GroupNormDescriptor, IndexSelectDescriptor, PointwiseDescriptor,
    PoolDescriptor, PoolWindow, Pooling, Program, ReduceDescriptor, Reduction, TensorDesc,
};

#[allow(dead_code, reason = "other examples use more of it")]
mod digits;
#[allow(dead_code, reason = "other examples use more of it")]
mod graph;
use digits::{DIGITS, Digits, Network, SIDE, is_test};
use graph::{Graph, Result, Tensor, arguments_of_devices};

/// Images of a step.
const BATCH: u64 = 128;
/// Steps after which nearly every image is read.
const ENOUGH: usize = 600;

/// Images of one kind, `[count, SIDE, SIDE]`, and what they show.
struct Images {
    pixels: Tensor,
    labels: Tensor,
}

impl Images {
    /// Those of the test, or the others.
    fn of(digits: &Digits, graph: &mut Graph, are_tests: bool) -> Result<Self> {
        let is_there = |image: &usize| is_test(*image) == are_tests;
        let there: Vec<usize> = (0..digits.labels.len()).filter(is_there).collect();
        let pixels = (SIDE * SIDE) as usize;
        let flat: Vec<f32> =
            there.iter().flat_map(|image| &digits.images[image * pixels..][..pixels]).copied().collect();
        let labels: Vec<i32> = there.iter().map(|&image| i32::from(digits.labels[image])).collect();
        let count = labels.len() as u64;
        Ok(Self {
            pixels: graph.tensor(&flat, &[count, 1, SIDE, SIDE], false)?,
            labels: graph.tensor(&labels, &[count], false)?,
        })
    }

    /// Draws a batch of them, another in every step, and moves each image by up to one pixel along both axes.
    fn drawn(&self, graph: &mut Graph) -> Result<Self> {
        let count = self.labels.desc.elements();
        let (seed, step) = (graph.tensor(&[1u32, 0], &[2], false)?, graph.tensor(&[0u32], &[], false)?);
        let random = |graph: &mut Graph, stream: u32, low: i64, high: i64| {
            let mut b = Program::builder();
            let [seed_of, step_of] = ["seed", "step"].map(|name| b.input(name));
            let number = b.random(Distribution::RandInt { low, high }, seed_of, step_of, stream);
            let inputs = vec![seed.desc, step.desc];
            let numbers =
                PointwiseDescriptor::generated(b.finish([number])?, inputs, vec![BATCH, 1, 1, 1], vec![DType::I32])?;
            graph.op(numbers, &[("in0", seed), ("in1", step)], "out0")
        };
        let image = random(graph, 0, 0, count as i64)?;
        let (down, right) = (random(graph, 1, -1, 2)?, random(graph, 2, -1, 2)?);
        changed(graph, step, Function::Add, 1.0)?;

        let operands = [("in0", image), ("in1", down), ("in2", right)];
        let inputs = operands.iter().map(|(_, tensor)| tensor.desc).collect();
        let pixels = PointwiseDescriptor::generated(moved()?, inputs, vec![BATCH, 1, SIDE, SIDE], vec![DType::I32])?;
        let pixels = graph.op(pixels, &operands, "out0")?;
        let flat = TensorDesc::contiguous(DType::F32, &[self.pixels.desc.elements()])?;
        // Of a pixel that is none of the image, the number is out of range, and the element 0.
        let select = IndexSelectDescriptor::new(flat, 0, pixels.desc)?;
        let moved = graph.op(select, &[("x", Tensor { desc: flat, ..self.pixels }), ("indices", pixels)], "y")?;

        let image = Tensor { desc: TensorDesc::contiguous(DType::I32, &[BATCH])?, ..image };
        let select = IndexSelectDescriptor::new(self.labels.desc, 0, image.desc)?;
        let labels = graph.op(select, &[("x", self.labels), ("indices", image)], "y")?;
        Ok(Self { pixels: moved, labels })
    }
}

/// Plans that a scalar becomes a function of it and a number.
fn changed(graph: &mut Graph, scalar: Tensor, function: Function, number: f64) -> Result<()> {
    let mut b = Program::builder();
    let x = b.input("x");
    let y = b.call(function, [x, number.into()]);
    let change = PointwiseDescriptor::new(b.finish([y])?, vec![scalar.desc])?;
    graph.plan(&AnyDescriptor::new(change), vec![scalar.memory; 2])
}

/// The number, among the pixels of all images, of what a pixel shows of an image that is moved; -1 where that is beside the image.
fn moved() -> Result<Program> {
    let mut b = Program::builder();
    let [image, down, right] = ["image", "down", "right"].map(|name| b.input(name));
    let side = (SIDE as f64).into();
    let mut at = image;
    let mut is_inside = None;
    for (axis, by) in [(2, down), (3, right)] {
        let position = b.index(axis);
        let position = b.call(Function::Sub, [position, by]);
        let is_behind = b.call(Function::Ge, [position, 0.0.into()]);
        let is_before = b.call(Function::Lt, [position, side]);
        let both = b.call(Function::LogicalAnd, [is_behind, is_before]);
        is_inside = Some(is_inside.map_or(both, |other| b.call(Function::LogicalAnd, [other, both])));
        let rows = b.call(Function::Mul, [at, side]);
        at = b.call(Function::Add, [rows, position]);
    }
    let at = is_inside.map_or(at, |is_inside| b.call(Function::Where, [is_inside, at, (-1.0).into()]));
    Ok(b.finish([at])?)
}

/// A convolution of 3 by 3 and GroupNorm with an activation.
fn layer(network: &mut Network, x: Tensor, channels: u64, activation: Activation) -> Result<Tensor> {
    let terms = x.desc.dims()[1] * 9;
    let weight = network.weight(&[channels, x.desc.dims()[1], 3, 3], terms)?;
    let sums = ConvDescriptor::new(x.desc, weight.desc, ConvWindow::new().padding(&[1, 1]))?;
    let sums = network.graph.op(sums, &[("x", x), ("weight", weight)], "y")?;
    let [scale, bias] = [1.0, 0.0].map(|value| network.parameter(&vec![value; channels as usize], &[channels]));
    let (scale, bias) = (scale?, bias?);
    let norm = GroupNormDescriptor::new(sums.desc, 4)?.weight(DType::F32)?.bias(DType::F32)?;
    let norm = norm.activation(activation)?.stats()?;
    network.graph.op(norm, &[("x", sums), ("weight", scale), ("bias", bias)], "y")
}

/// `relu(x + f(x))` with two layers as f.
fn block(network: &mut Network, x: Tensor) -> Result<Tensor> {
    let channels = x.desc.dims()[1];
    let y = layer(network, x, channels, Activation::Relu)?;
    let y = layer(network, y, channels, Activation::Identity)?;
    let sum = PointwiseDescriptor::binary(Function::Add, x.desc, y.desc)?;
    let sum = network.graph.op(sum, &[("in0", x), ("in1", y)], "out0")?;
    let relu = ActivationDescriptor::new(sum.desc, Activation::Relu)?;
    network.graph.op(relu, &[("x", sum)], "y")
}

fn halved(network: &mut Network, x: Tensor) -> Result<Tensor> {
    let pool = PoolDescriptor::new(x.desc, Pooling::Max, PoolWindow::new(&[2, 2]))?.offsets()?;
    network.graph.op(pool, &[("x", x)], "y")
}

/// The logits of images, and their loss.
fn loss(network: &mut Network, images: &Images) -> Result<[Tensor; 2]> {
    let mut maps = images.pixels;
    for channels in [16, 32] {
        maps = layer(network, maps, channels, Activation::Relu)?;
        maps = block(network, maps)?;
        maps = halved(network, maps)?;
    }
    let [count, rest @ ..] = maps.desc.dims() else { return Err("maps have extents".into()) };
    let features = rest.iter().product();
    let maps = maps.viewed(&[*count, features])?;
    let weight = network.weight(&[features, DIGITS], features)?;
    let bias = network.parameter(&[0.0; DIGITS as usize], &[DIGITS])?;
    let product = GemmDescriptor::new(maps.desc, weight.desc)?.bias(DType::F32)?;
    let logits = network.graph.op(product, &[("a", maps), ("b", weight), ("bias", bias)], "out")?;
    let loss = CrossEntropyDescriptor::new(logits.desc, 1, DType::I32)?.stats()?;
    let loss = network.graph.op(loss, &[("x", logits), ("targets", images.labels)], "loss")?;
    Ok([logits, loss])
}

/// How many rows of logits are greatest where the labels say.
fn right(graph: &mut Graph, logits: Tensor, labels: Tensor) -> Result<Tensor> {
    let read = ReduceDescriptor::of(logits.desc, &[1], Reduction::ArgMax)?.output(DType::I32)?;
    let read = graph.op(read, &[("in0", logits)], "out0")?;
    let inputs = vec![read.desc, labels.desc];
    let right = ReduceDescriptor::new(Program::of(Function::Eq), inputs, vec![0], Reduction::CountNonzero)?;
    graph.op(right.output(DType::I32)?, &[("in0", read), ("in1", labels)], "out0")
}

/// Trains on a device, and returns the losses of the test images.
fn train(device: &Device, digits: &Digits, steps: usize) -> Result<Vec<(usize, f32)>> {
    let mut network = Network::new(device.clone());
    let images = Images::of(digits, &mut network.graph, false)?.drawn(&mut network.graph)?;
    let [_, trained] = loss(&mut network, &images)?;
    let arriving = network.graph.tensor(&[1f32], &[], false)?;
    let gradients = network.graph.backward(trained, arriving)?;
    let learning_rate = network.graph.tensor(&[0.004f32], &[], false)?;
    network.graph.adam_w(Adam::w(0.01), learning_rate, &network.parameters, &gradients)?;
    changed(&mut network.graph, learning_rate, Function::Mul, 0.993)?;
    let step = network.graph.plans.len();

    network.again();
    let images = Images::of(digits, &mut network.graph, true)?;
    let [logits, tested] = loss(&mut network, &images)?;
    let right = right(&mut network.graph, logits, images.labels)?;
    let (graph, tests) = (&network.graph, images.labels.desc.elements());
    let count: u64 = network.parameters.iter().map(|parameter| parameter.desc.elements()).sum();
    println!("{device}: {count} parameters, {step} plans a step");

    let (scratch, mut queue, start, mut losses) = (graph.scratch()?, device.queue(), Instant::now(), Vec::new());
    let mut share = 0.0;
    for at in 0..=steps {
        if at % (steps / 10).max(1) == 0 || at == steps {
            graph.run(&mut queue, step..graph.plans.len(), &scratch)?;
            let loss = queue.download::<f32>(&graph.memory[tested.memory])?[0];
            share = f64::from(queue.download::<i32>(&graph.memory[right.memory])?[0]) / tests as f64;
            let bar = "=".repeat(20 * at / steps.max(1));
            let seconds = start.elapsed().as_secs_f32();
            println!(
                "[{bar:<20}] step {at:>4}: loss {loss:.4}, {:.1} % of the test images, {seconds:.0} s",
                100.0 * share
            );
            losses.push((at, loss));
        }
        if at < steps {
            graph.run(&mut queue, 0..step, &scratch)?;
        }
    }
    let falls = losses.last().is_some_and(|last| steps == 0 || last.1 < losses[0].1);
    if falls && (steps < ENOUGH || share >= 0.98) { Ok(losses) } else { Err("it has not learned to read".into()) }
}

/// Draws losses over steps, a line a device, into a file beside the program.
fn draw(curves: &[(String, Vec<(usize, f32)>)]) -> Result<PathBuf> {
    const COLOURS: [&str; 3] = ["#0072b2", "#d55e00", "#009e73"];
    let points = || curves.iter().flat_map(|(_, losses)| losses);
    let last = points().map(|point| point.0).max().unwrap_or(0).max(1) as f32;
    let most = points().map(|point| point.1).fold(0f32, f32::max);
    let mut svg = String::from(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" font-family="sans-serif" font-size="12">"#,
    );
    write!(svg, r#"<path d="M50 20V320H620" fill="none" stroke="black"/>"#)?;
    write!(
        svg,
        r#"<text x="45" y="25" text-anchor="end">{most:.2}</text><text x="45" y="324" text-anchor="end">0</text>"#
    )?;
    write!(
        svg,
        r#"<text x="620" y="340" text-anchor="end">step {last}</text><text x="60" y="15">loss of the test images</text>"#
    )?;
    for (at, ((name, losses), colour)) in curves.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let place = |&(step, loss): &(usize, f32)| {
            format!("{:.1},{:.1} ", 50.0 + 570.0 * step as f32 / last, 320.0 - 300.0 * loss / most)
        };
        let line: String = losses.iter().map(place).collect();
        let width = 2 * (curves.len() - at) - 1;
        write!(svg, r#"<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{width}"/>"#)?;
        write!(svg, r#"<text x="610" y="{}" text-anchor="end" fill="{colour}">{name}</text>"#, 30 + 18 * at)?;
    }
    let path = std::env::current_exe()?.with_file_name("cnn.svg");
    std::fs::write(&path, svg + "</svg>\n")?;
    Ok(path)
}

fn main() -> Result<()> {
    let (steps, devices) = arguments_of_devices(ENOUGH)?;
    let digits = Digits::read()?;
    let mut curves = Vec::new();
    for device in &devices {
        curves.push((device.backend().to_string(), train(device, &digits, steps)?));
    }
    if devices.len() > 1 {
        println!("drawn: {}", draw(&curves)?.display());
    }
    Ok(())
}
