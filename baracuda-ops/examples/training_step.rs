//! Times a training step of a transformer of 10.7 million parameters: 6 layers of width 384, 6 heads, pieces of 256 letters, in bf16 with masters of f32, which
//! AdamW moves. A step is one list of plans; on CUDA one captured graph. `benches/peers/training_step_bench.py` times the same step in PyTorch.
//!
//! `cargo run --release --example training_step -- [STEPS] [cpu|cuda|wgpu] [PIECES] [composed]`, by default 20 steps of 64 pieces on the best device. With
//! `composed` attention is two products and a softmax, and not one op.

use std::time::Instant;

use baracuda_ops::stock::Adam;
use baracuda_ops::{CrossEntropyDescriptor, DType};

mod graph;
#[allow(dead_code, reason = "other examples use more of it")]
mod letters;
use graph::{Result, arguments};
use letters::{Model, Size, Text};

const SIZE: Size = Size { length: 256, width: 384, heads: 6, hidden: 1024, layers: 6 };

fn main() -> Result<()> {
    let (steps, device) = arguments(20)?;
    let pieces: u64 = std::env::args().nth(3).map_or(Ok(64), |pieces| pieces.parse())?;
    let (text, rows) = (Text::read(), pieces * SIZE.length);

    let mut model = Model::new(&device, SIZE, DType::BF16, None);
    model.is_composed = std::env::args().nth(4).is_some_and(|word| word == "composed");
    let read = |from: usize| text.letters.iter().cycle().skip(from).take(rows as usize).copied().collect::<Vec<u32>>();
    let x = model.graph.tensor(&read(0), &[pieces, SIZE.length], false)?;
    let next = model.graph.tensor(&read(1), &[rows], false)?;
    let logits = model.logits_of_pieces(x, text.count())?;
    let loss = CrossEntropyDescriptor::new(logits.desc, 1, DType::U32)?.stats()?;
    let loss = model.graph.op(loss, &[("x", logits), ("targets", next)], "loss")?;
    let parameters = model.parameters.clone();
    let graph = &mut model.graph;
    let arriving = graph.tensor(&[1f32], &[], false)?;
    let gradients = graph.backward(loss, arriving)?;
    let learning_rate = graph.tensor(&[0.001f32], &[], false)?;
    graph.adam_w(Adam { beta2: 0.99, ..Adam::w(0.1) }, learning_rate, &parameters, &gradients)?;

    let graph = &model.graph;
    let count: u64 = parameters.iter().map(|p| p.desc.elements()).sum();
    let attention = if model.is_composed { "composed" } else { "one op" };
    println!("{device}: {count} parameters, {rows} letters a step, {} plans, attention {attention}", graph.plans.len());
    let (mut queue, mut step) = (device.queue(), graph.step(0..graph.plans.len())?);
    let (mut losses, mut times) = (Vec::new(), Vec::new());
    let steps = steps.div_ceil(5);
    for part in 0..=5 {
        let (start, steps) = (Instant::now(), if part == 0 { 1 } else { steps });
        for _ in 0..steps {
            step()?;
        }
        losses.push(queue.download::<f32>(&graph.memory[loss.memory])?[0]);
        let time = start.elapsed().as_secs_f64() / steps as f64;
        println!("[{:<20}] loss {:.3}, {:.2} ms a step", "=".repeat(4 * part), losses[part], time * 1e3);
        times.push(time);
    }
    // The first step is none of them.
    let times = &mut times[1..];
    times.sort_by(f64::total_cmp);
    println!("median {:.3} ms a step, {:.0} letters a second", times[2] * 1e3, rows as f64 / times[2]);
    if losses[5] < losses[0] { Ok(()) } else { Err("it has not learned".into()) }
}
