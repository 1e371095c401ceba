//! A transformer reads handwritten digits, row by row: with candle-nn's fused ops, with what training code composes of single ops in their place, and with
//! this crate. All three start from the same parameters and see the same images. At the end a table: how many parameters get a gradient, the loss, how many
//! images of the test are read right, and the time of a step.
//!
//! `cargo run --release --example digits_transformer -- [STEPS] [cpu|cuda]`, by default 150 on the CPU, which takes less than a minute on two cores. CUDA needs
//! `--features cuda`.

use std::time::Instant;

use baracuda_candle as ours;
use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::{Activation, AdamW, Module, Optimizer, ParamsAdamW};

const SIDE: usize = 8;
const WIDTH: usize = 32;
const HEADS: usize = 4;
const HIDDEN: usize = 64;
const BLOCKS: usize = 2;
const DIGITS: usize = 10;
const BATCH: usize = 128;
const EPS: f32 = 1e-5;

/// The ops of the model that are to compare.
struct Ops {
    name: &'static str,
    norm: fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
    softmax: fn(&Tensor) -> Result<Tensor>,
    linear: fn(&Tensor, &Tensor, &Tensor, Option<Activation>) -> Result<Tensor>,
    loss: fn(&Tensor, &Tensor) -> Result<Tensor>,
}

fn stock_linear(x: &Tensor, weight: &Tensor, bias: &Tensor, act: Option<Activation>) -> Result<Tensor> {
    let y = candle_nn::Linear::new(weight.clone(), Some(bias.clone())).forward(x)?;
    act.map_or(Ok(y.clone()), |act| act.forward(&y))
}

const STOCK: Ops = Ops {
    name: "candle-nn, fused",
    norm: |x, weight, bias| candle_nn::ops::layer_norm(x, weight, bias, EPS),
    softmax: candle_nn::ops::softmax_last_dim,
    linear: stock_linear,
    loss: candle_nn::loss::cross_entropy,
};

const COMPOSED: Ops = Ops {
    name: "candle-nn, composed",
    norm: |x, weight, bias| candle_nn::ops::layer_norm_slow(x, weight, bias, EPS),
    softmax: |x| candle_nn::ops::softmax(x, D::Minus1),
    ..STOCK
};

const OURS: Ops = Ops {
    name: "baracuda-candle",
    norm: |x, weight, bias| ours::ops::layer_norm(x, weight, bias, EPS),
    softmax: ours::ops::softmax_last_dim,
    linear: |x, weight, bias, act| ours::ops::linear(x, weight, Some(bias), act),
    loss: ours::loss::cross_entropy,
};

/// Parameters on a device, of numbers that a seed gives.
struct Random<'d>(u64, &'d Device);

impl Random<'_> {
    fn var(&mut self, shape: (usize, usize), bound: f32) -> Result<Var> {
        let numbers = (0..shape.0 * shape.1).map(|_| {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * bound
        });
        Var::from_vec(numbers.collect::<Vec<_>>(), shape, self.1)
    }
}

struct Linear {
    weight: Var,
    bias: Var,
}

impl Linear {
    fn new(random: &mut Random, inputs: usize, outputs: usize) -> Result<Self> {
        let weight = random.var((outputs, inputs), (3.0 / inputs as f32).sqrt())?;
        Ok(Self { weight, bias: Var::zeros(outputs, DType::F32, random.1)? })
    }

    fn forward(&self, ops: &Ops, x: &Tensor, act: Option<Activation>) -> Result<Tensor> {
        (ops.linear)(x, &self.weight, &self.bias, act)
    }
}

struct Norm {
    weight: Var,
    bias: Var,
}

impl Norm {
    fn new(device: &Device) -> Result<Self> {
        Ok(Self { weight: Var::ones(WIDTH, DType::F32, device)?, bias: Var::zeros(WIDTH, DType::F32, device)? })
    }

    fn forward(&self, ops: &Ops, x: &Tensor) -> Result<Tensor> {
        (ops.norm)(x, &self.weight, &self.bias)
    }
}

struct Block {
    norms: [Norm; 2],
    qkv: Linear,
    out: Linear,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(random: &mut Random) -> Result<Self> {
        Ok(Self {
            norms: [Norm::new(random.1)?, Norm::new(random.1)?],
            qkv: Linear::new(random, WIDTH, 3 * WIDTH)?,
            out: Linear::new(random, WIDTH, WIDTH)?,
            up: Linear::new(random, WIDTH, HIDDEN)?,
            down: Linear::new(random, HIDDEN, WIDTH)?,
        })
    }

    fn forward(&self, ops: &Ops, x: &Tensor) -> Result<Tensor> {
        let (batch, rows, _) = x.dims3()?;
        let qkv = self.qkv.forward(ops, &self.norms[0].forward(ops, x)?, None)?;
        let qkv = qkv.reshape((batch, rows, 3, HEADS, WIDTH / HEADS))?.permute((2, 0, 3, 1, 4))?;
        let [q, k, v] = [0, 1, 2].map(|part| qkv.get(part)?.contiguous());
        let scores = (q?.matmul(&k?.t()?)? * (HEADS as f64 / WIDTH as f64).sqrt())?;
        let seen = (ops.softmax)(&scores)?.matmul(&v?)?.transpose(1, 2)?.reshape((batch, rows, WIDTH))?;
        let x = (x + self.out.forward(ops, &seen, None)?)?;
        let hidden = self.up.forward(ops, &self.norms[1].forward(ops, &x)?, Some(Activation::NewGelu))?;
        x + self.down.forward(ops, &hidden, None)?
    }
}

struct Model {
    rows: Linear,
    places: Var,
    blocks: Vec<Block>,
    norm: Norm,
    digits: Linear,
}

impl Model {
    fn new(device: &Device) -> Result<Self> {
        let mut random = Random(1, device);
        let places = random.var((SIDE, WIDTH), 0.1)?;
        Ok(Self {
            rows: Linear::new(&mut random, SIDE, WIDTH)?,
            places,
            blocks: (0..BLOCKS).map(|_| Block::new(&mut random)).collect::<Result<_>>()?,
            norm: Norm::new(device)?,
            digits: Linear::new(&mut random, WIDTH, DIGITS)?,
        })
    }

    fn parameters(&self) -> Vec<Var> {
        let mut norms = vec![&self.norm];
        let mut linears = vec![&self.rows, &self.digits];
        for Block { norms: of_block, qkv, out, up, down } in &self.blocks {
            norms.extend(of_block);
            linears.extend([qkv, out, up, down]);
        }
        let norms = norms.into_iter().flat_map(|Norm { weight, bias }| [weight, bias]);
        let linears = linears.into_iter().flat_map(|Linear { weight, bias }| [weight, bias]);
        norms.chain(linears).chain([&self.places]).cloned().collect()
    }

    /// Logits of images of rows of pixels.
    fn forward(&self, ops: &Ops, images: &Tensor) -> Result<Tensor> {
        let mut x = self.rows.forward(ops, images, None)?.broadcast_add(&self.places)?;
        for block in &self.blocks {
            x = block.forward(ops, &x)?;
        }
        self.digits.forward(ops, &self.norm.forward(ops, &x)?.mean(1)?, None)
    }
}

struct Outcome {
    with_gradient: usize,
    parameters: usize,
    loss: f32,
    right: f64,
    step_ms: f64,
}

/// Trains a model; every fifth image is for the test.
fn train(ops: &Ops, images: &Tensor, labels: &Tensor, steps: usize) -> Result<Outcome> {
    let model = Model::new(images.device())?;
    let parameters = model.parameters();
    let mut optimizer = AdamW::new(parameters.clone(), ParamsAdamW { lr: 5e-3, ..Default::default() })?;
    let count = labels.elem_count() as u32;
    let (tests, training): (Vec<u32>, Vec<u32>) = (0..count).partition(|image| image % 5 == 4);
    let of = |indices: &[u32]| -> Result<[Tensor; 2]> {
        let indices = Tensor::new(indices, images.device())?;
        Ok([images.index_select(&indices, 0)?, labels.index_select(&indices, 0)?])
    };
    let (mut with_gradient, mut last, mut seconds) = (0, 0.0, 0.0);
    for step in 0..steps {
        let batch: Vec<u32> = (0..BATCH).map(|at| training[(step * BATCH + at) % training.len()]).collect();
        let [x, labels] = of(&batch)?;
        let start = Instant::now();
        let loss = (ops.loss)(&model.forward(ops, &x)?, &labels)?;
        let gradients = loss.backward()?;
        optimizer.step(&gradients)?;
        images.device().synchronize()?;
        // The first step makes the plans.
        seconds += if step == 0 { 0.0 } else { start.elapsed().as_secs_f64() };
        with_gradient = parameters.iter().filter(|parameter| gradients.get(parameter).is_some()).count();
        last = loss.to_scalar()?;
        let bar = "#".repeat((step + 1) * 30 / steps);
        eprint!("\r{:20} [{bar:30}] step {} of {steps}, loss {last:.3} ", ops.name, step + 1);
    }
    eprintln!();
    let [x, labels] = of(&tests)?;
    let read = model.forward(ops, &x)?.argmax(D::Minus1)?.eq(&labels)?;
    let right = read.to_dtype(DType::F64)?.mean_all()?.to_scalar()?;
    let step_ms = 1e3 * seconds / steps.saturating_sub(1).max(1) as f64;
    Ok(Outcome { with_gradient, parameters: parameters.len(), loss: last, right, step_ms })
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let steps = match arguments.first().map(|steps| steps.parse()) {
        None => 150,
        Some(Ok(steps)) if steps > 0 => steps,
        _ => candle_core::bail!("usage: digits_transformer [STEPS] [cpu|cuda]"),
    };
    let device = match arguments.get(1).map(String::as_str) {
        None | Some("cpu") => Device::Cpu,
        Some("cuda") => Device::new_cuda(0)?,
        Some(other) => candle_core::bail!("the device is cpu or cuda, got {other}"),
    };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../baracuda-ops/examples/handwritten_digits.safetensors");
    let data = candle_core::safetensors::load(file, &device)?;
    let (Some(images), Some(labels)) = (data.get("images"), data.get("labels")) else { candle_core::bail!("{file}") };
    let (images, labels) = ((images.to_dtype(DType::F32)? / 16.0)?, labels.to_dtype(DType::U32)?);

    let mut outcomes = Vec::new();
    for ops in [STOCK, COMPOSED, OURS] {
        outcomes.push((ops.name, train(&ops, &images, &labels, steps)?));
    }
    println!("{:20} {:>15} {:>7} {:>11} {:>8}", "", "with a gradient", "loss", "read right", "step");
    for (name, Outcome { with_gradient, parameters, loss, right, step_ms }) in &outcomes {
        let share = format!("{with_gradient} of {parameters}");
        println!("{name:20} {share:>15} {loss:>7.3} {:>9.1} % {step_ms:>5.1} ms", 100.0 * right);
    }
    let [_, (_, composed), (_, ours)] = &outcomes[..] else { candle_core::bail!("three were trained") };
    let is_close = (composed.loss - ours.loss).abs() < 0.05 * composed.loss.max(1.0);
    if ours.with_gradient != ours.parameters || (steps <= 20 && !is_close) || (steps >= 150 && ours.right < 0.9) {
        candle_core::bail!("this crate has not trained as it should");
    }
    Ok(())
}
