//! A training step of a GPT, with the fastest ops of candle's own that have gradients, and with this crate. Both start from the same parameters and see the
//! same tokens. At the end a table: the times of forward, backward and optimizer, of the whole step, the peak of memory, and the loss, which must be the same.
//!
//! `cargo run --release --example gpt_step -- [STEPS] [cpu|cuda] [small|gpt2] [both|composed|ours]`, by default 10 steps of a small model on the CPU, with both.
//! CUDA needs `--features cuda`.
//!
//! Parameters are f32, which AdamW of candle-nn updates for both; on CUDA the model computes with them rounded to bf16, on the CPU in f32. Times are medians of
//! the steps behind the first two, which make plans and load kernels; the device is waited for after each part. Memory is what candle had allocated at most
//! during all steps, as the driver counts it in the pool that candle allocates from (`CU_MEMPOOL_ATTR_USED_MEM_HIGH`).
//!
//! A profiler that waits for `cuProfilerStart` sees forward and backward of the last step alone, so that one of `composed` and `ours` gives its launches:
//! `ncu --profile-from-start off --metrics gpu__time_duration.sum --csv gpt_step 2 cuda gpt2 ours` prints a line for each kernel launched.

use std::time::Instant;

use baracuda_candle as ours;
use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::{Activation, AdamW, Module, Optimizer, ParamsAdamW};

const EPS: f32 = 1e-5;

/// The extents of a model and of its batch.
#[derive(Clone, Copy)]
struct Size {
    layers: usize,
    width: usize,
    heads: usize,
    batch: usize,
    tokens: usize,
    vocabulary: usize,
}

const SMALL: Size = Size { layers: 2, width: 64, heads: 4, batch: 4, tokens: 64, vocabulary: 512 };
const GPT2: Size = Size { layers: 12, width: 768, heads: 12, batch: 8, tokens: 1024, vocabulary: 50257 };

/// The ops of the model that are to compare. Attention is causal, of `[batch, tokens, heads, extent]`; the last argument masks scores of those that need it.
struct Ops {
    name: &'static str,
    embedding: fn(&Tensor, &Tensor) -> Result<Tensor>,
    norm: fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
    linear: fn(&Tensor, &Tensor, Option<&Tensor>, Option<Activation>) -> Result<Tensor>,
    attention: fn([&Tensor; 3], f64, &Tensor) -> Result<Tensor>,
    loss: fn(&Tensor, &Tensor) -> Result<Tensor>,
}

const STOCK: Ops = Ops {
    name: "candle-nn, composed",
    embedding: |table, tokens| candle_nn::Embedding::new(table.clone(), table.dim(1)?).forward(tokens),
    norm: |x, weight, bias| candle_nn::ops::layer_norm_slow(x, weight, bias, EPS),
    linear: |x, weight, bias, act| {
        let y = candle_nn::Linear::new(weight.clone(), bias.cloned()).forward(x)?;
        act.map_or(Ok(y.clone()), |act| act.forward(&y))
    },
    attention: |qkv, scale, mask| {
        let [q, k, v] = qkv.map(|x| x.transpose(1, 2)?.contiguous());
        let scores = (q? * scale)?.matmul(&k?.t()?)?.broadcast_add(mask)?;
        candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&v?)?.transpose(1, 2)
    },
    loss: |logits, targets| candle_nn::loss::cross_entropy(&logits.to_dtype(DType::F32)?, targets),
};

const OURS: Ops = Ops {
    name: "baracuda-candle",
    embedding: ours::ops::embedding,
    norm: |x, weight, bias| ours::ops::layer_norm(x, weight, bias, EPS),
    linear: ours::ops::linear,
    attention: |[q, k, v], scale, _| ours::ops::attention(q, k, v, scale, true),
    loss: |logits, targets| ours::ops::cross_entropy(logits, targets, 1, ours::ops::LossReduction::Mean, None),
};

/// Numbers of a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 32) as u32
    }

    /// A parameter of numbers from -bound to bound, whose standard deviation is 0.02.
    fn var(&mut self, shape: (usize, usize), device: &Device) -> Result<Var> {
        let bound = 0.02 * 3f32.sqrt();
        let numbers = (0..shape.0 * shape.1).map(|_| (self.next() as f32 / (1u64 << 31) as f32 - 1.0) * bound);
        Var::from_vec(numbers.collect::<Vec<f32>>(), shape, device)
    }

    fn tokens(&mut self, Size { batch, tokens, vocabulary, .. }: Size, device: &Device) -> Result<Tensor> {
        let tokens: Vec<u32> = (0..batch * tokens).map(|_| self.next() % vocabulary as u32).collect();
        Tensor::from_vec(tokens, (batch, ()), device)
    }
}

struct Gpt {
    size: Size,
    /// The table of tokens, by which logits are made as well, and that of places; then weights and biases of the layers.
    parameters: Vec<Var>,
}

impl Gpt {
    fn new(size: Size, device: &Device) -> Result<Self> {
        let (mut random, Size { layers, width, .. }) = (Random(1), size);
        let tables = [size.vocabulary, size.tokens].map(|rows| random.var((rows, width), device));
        let mut parameters = tables.into_iter().collect::<Result<Vec<_>>>()?;
        // The extents of a linear layer's weight, none of a norm.
        let (norm, square) = (None, Some((width, width)));
        let block = [norm, square, square, square, square, norm, Some((4 * width, width)), Some((width, 4 * width))];
        for layer in block.repeat(layers).into_iter().chain([norm]) {
            parameters.push(match layer {
                None => Var::ones(width, DType::F32, device)?,
                Some(extents) => random.var(extents, device)?,
            });
            parameters.push(Var::zeros(layer.map_or(width, |(outputs, _)| outputs), DType::F32, device)?);
        }
        Ok(Self { size, parameters })
    }

    /// The loss of tokens and what follows each, computed in the type of the mask.
    fn loss(&self, ops: &Ops, tokens: &Tensor, targets: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let Size { width, heads, .. } = self.size;
        let parameters = self.parameters.iter().map(|parameter| parameter.to_dtype(mask.dtype()));
        let parameters = parameters.collect::<Result<Vec<_>>>()?;
        let (tables, layers) = parameters.split_at(2);
        let (blocks, last) = layers.as_chunks::<2>().0.as_chunks::<8>();
        let norm = |x: &Tensor, [weight, bias]: &[Tensor; 2]| (ops.norm)(x, weight, bias);
        let linear = |x: &Tensor, [weight, bias]: &[Tensor; 2], act| (ops.linear)(x, weight, Some(bias), act);

        let mut x = (ops.embedding)(&tables[0], tokens)?.broadcast_add(&tables[1])?;
        for [before_attention, q, k, v, out, before_hidden, up, down] in blocks {
            let normed = norm(&x, before_attention)?;
            let part = |layer| linear(&normed, layer, None)?.reshape(((), self.size.tokens, heads, width / heads));
            let scale = (heads as f64 / width as f64).sqrt();
            let seen = (ops.attention)([&part(q)?, &part(k)?, &part(v)?], scale, mask)?.flatten_from(2)?;
            x = (x + linear(&seen, out, None)?)?;
            let hidden = linear(&norm(&x, before_hidden)?, up, Some(Activation::NewGelu))?;
            x = (x + linear(&hidden, down, None)?)?;
        }
        let logits = (ops.linear)(&norm(&x, &last[0])?.flatten_to(1)?, &tables[0], None, None)?;
        (ops.loss)(&logits, &targets.flatten_all()?)
    }
}

/// The most bytes of candle's allocations since the last call that restarts the count, on CUDA. A restart also lets the pool keep what is freed, which it would
/// else give back to the driver each time that the host waits.
#[cfg(feature = "cuda")]
fn peak_bytes(device: &Device, restarts: bool) -> Result<Option<u64>> {
    use candle_core::cuda::cudarc::driver::sys::{self, CUmemPool_attribute as Attribute, CUresult};
    let Device::Cuda(device) = device else { return Ok(None) };
    let (mut pool, mut peak, mut none, mut all) = (std::ptr::null_mut(), 0u64, 0u64, u64::MAX);
    // SAFETY: the device is there, its pool lives as long, and the attributes are numbers of 64 bits.
    let calls = unsafe {
        let found = sys::cuDeviceGetDefaultMemPool(&mut pool, device.cuda_stream().context().cu_device());
        let high = Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        let read = sys::cuMemPoolGetAttribute(pool, high, (&raw mut peak).cast());
        if restarts {
            let threshold = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            let kept = sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut all).cast());
            [found, read, kept, sys::cuMemPoolSetAttribute(pool, high, (&raw mut none).cast())]
        } else {
            [found, read, CUresult::CUDA_SUCCESS, CUresult::CUDA_SUCCESS]
        }
    };
    match calls.iter().find(|status| **status != CUresult::CUDA_SUCCESS) {
        None => Ok(Some(peak)),
        Some(status) => candle_core::bail!("the attributes of the pool: {status:?}"),
    }
}

#[cfg(not(feature = "cuda"))]
fn peak_bytes(_: &Device, _: bool) -> Result<Option<u64>> {
    Ok(None)
}

/// Starts what a profiler records, or ends it; without one it does nothing.
#[cfg(feature = "cuda")]
fn profile(device: &Device, starts: bool) -> Result<()> {
    use candle_core::cuda::cudarc::driver::{profiler_start, profiler_stop};
    let Device::Cuda(_) = device else { return Ok(()) };
    (if starts { profiler_start() } else { profiler_stop() }).map_err(candle_core::Error::wrap)
}

#[cfg(not(feature = "cuda"))]
fn profile(_: &Device, _: bool) -> Result<()> {
    Ok(())
}

struct Outcome {
    /// Milliseconds of forward, backward, optimizer and all of them.
    times_ms: [f64; 4],
    peak_bytes: Option<u64>,
    loss: f32,
}

fn train(ops: &Ops, size: Size, dtype: DType, device: &Device, steps: usize) -> Result<Outcome> {
    let model = Gpt::new(size, device)?;
    let mut optimizer = AdamW::new(model.parameters.clone(), ParamsAdamW { lr: 3e-4, ..Default::default() })?;
    let mut random = Random(2);
    let (tokens, targets) = (random.tokens(size, device)?, random.tokens(size, device)?);
    let hidden = |at: usize| if at % size.tokens > at / size.tokens { f32::NEG_INFINITY } else { 0.0 };
    let mask: Vec<f32> = (0..size.tokens * size.tokens).map(hidden).collect();
    let mask = Tensor::from_vec(mask, (size.tokens, size.tokens), device)?.to_dtype(dtype)?;
    let (mut times, mut last) = ([const { Vec::new() }; 4], 0.0);
    device.synchronize()?;
    peak_bytes(device, true)?;
    for step in 0..steps {
        let is_last = step + 1 == steps;
        if is_last {
            profile(device, true)?;
        }
        let start = Instant::now();
        let loss = model.loss(ops, &tokens, &targets, &mask)?;
        device.synchronize()?;
        let forward = start.elapsed();
        let gradients = loss.backward()?;
        device.synchronize()?;
        let backward = start.elapsed();
        if is_last {
            profile(device, false)?;
        }
        optimizer.step(&gradients)?;
        device.synchronize()?;
        let all = start.elapsed();
        for (times, time) in times.iter_mut().zip([forward, backward - forward, all - backward, all]) {
            times.push(1e3 * time.as_secs_f64());
        }
        last = loss.to_scalar()?;
        let bar = "#".repeat((step + 1) * 30 / steps);
        eprint!("\r{:20} [{bar:30}] step {} of {steps}, loss {last:.3} ", ops.name, step + 1);
    }
    eprintln!();
    let times_ms = times.map(|times| {
        let mut times = times[2.min(times.len() - 1)..].to_vec();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    Ok(Outcome { times_ms, peak_bytes: peak_bytes(device, false)?, loss: last })
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize, default: &'static str| arguments.get(at).map_or(default, String::as_str);
    let (device, dtype) = match argument(1, "cpu") {
        "cpu" => (Device::Cpu, DType::F32),
        "cuda" => (Device::new_cuda(0)?, DType::BF16),
        other => candle_core::bail!("the device is cpu or cuda, got {other}"),
    };
    let size = match argument(2, "small") {
        "small" => SMALL,
        "gpt2" => GPT2,
        other => candle_core::bail!("the size is small or gpt2, got {other}"),
    };
    let steps = match argument(0, "10").parse() {
        Ok(steps) if steps > 0 => steps,
        _ => candle_core::bail!("usage: gpt_step [STEPS] [cpu|cuda] [small|gpt2] [both|composed|ours]"),
    };
    let variants: &[&Ops] = match argument(3, "both") {
        "both" => &[&STOCK, &OURS],
        "composed" => &[&STOCK],
        "ours" => &[&OURS],
        other => candle_core::bail!("what runs is both, composed or ours, got {other}"),
    };

    let outcomes = variants.iter().map(|ops| train(ops, size, dtype, &device, steps)).collect::<Result<Vec<_>>>()?;
    let head = ["forward", "backward", "optimizer", "step"].map(|name| format!("{name:>10} ms")).concat();
    println!("{:20}{head} {:>12} {:>8}", "", "peak MiB", "loss");
    for (Ops { name, .. }, Outcome { times_ms, peak_bytes, loss }) in variants.iter().zip(&outcomes) {
        let times = times_ms.map(|time| format!("{time:>13.2}")).concat();
        let peak = peak_bytes.map_or("-".into(), |bytes| (bytes >> 20).to_string());
        println!("{name:20}{times} {peak:>12} {loss:>8.4}");
    }
    let [stock, ours] = outcomes.as_slice() else { return Ok(()) };
    let apart = (stock.loss - ours.loss).abs() / stock.loss;
    let most = if dtype == DType::F32 { 1e-3 } else { 2e-2 };
    if apart.is_nan() || apart > most {
        candle_core::bail!("the losses are {apart:e} apart, relatively");
    }
    Ok(())
}
