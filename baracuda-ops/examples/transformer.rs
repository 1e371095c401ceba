//! Trains a transformer on the Jargon File, character by character, writes a few lines of its own, and saves its parameters for the example `generate`. The
//! forward ops are written down once, in `letters`; their gradients are the steps that the ops derive, and AdamW is one plan over all parameters. Every plan is
//! made before the first step, and a step is a list of them that never waits for the host.
//!
//! `cargo run --release --example transformer -- [STEPS] [cpu|cuda|wgpu]`, by default 1000 on the best device.

use std::time::Instant;

use baracuda_ops::stock::Adam;
use baracuda_ops::{CrossEntropyDescriptor, DType, Device};

mod graph;
#[allow(dead_code, reason = "the example generate uses more of it")]
mod letters;
use graph::{Graph, Random, Result, Tensor, arguments};
use letters::{Model, SMALL, Text};

/// Pieces of text in a step.
const BATCH: u64 = 16;
const LENGTH: u64 = SMALL.length;

/// Writes the letters of each piece, and those that follow them, by their numbers.
fn show(graph: &Graph, device: &Device, pieces: &[&[u32]], tensors: [Tensor; 2]) -> Result<()> {
    for (at, tensor) in tensors.into_iter().enumerate() {
        let letters = pieces.iter().flat_map(|piece| &piece[at..][..LENGTH as usize]);
        let bytes: Vec<u8> = letters.flat_map(|letter| letter.to_ne_bytes()).collect();
        device.write(&graph.memory[tensor.memory], 0, &bytes)?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let (steps, device) = arguments(1000)?;
    let text = Text::read();
    let (training, held_out) = text.parts();
    let (letters, rows) = (text.count(), BATCH * LENGTH);

    let mut model = Model::new(&device, SMALL, DType::F32, None);
    let nothing = vec![0u32; rows as usize];
    let [x, next] = [[BATCH, LENGTH].as_slice(), &[rows]].map(|dims| model.graph.tensor(&nothing, dims, false));
    let (x, next) = (x?, next?);
    let logits = model.logits_of_pieces(x, letters)?;
    let loss = CrossEntropyDescriptor::new(logits.desc, 1, DType::U32)?.stats()?;
    let loss = model.graph.op(loss, &[("x", logits), ("targets", next)], "loss")?;
    let (parameters, mut random) = (model.parameters.clone(), Random(model.random.0));
    let graph = &mut model.graph;
    let forward = graph.plans.len();

    let arriving = graph.tensor(&[1f32], &[], false)?;
    let gradients = graph.backward(loss, arriving)?;
    let learning_rate = graph.tensor(&[0.003f32], &[], false)?;
    graph.adam_w(Adam { beta2: 0.99, ..Adam::w(0.1) }, learning_rate, &parameters, &gradients)?;

    let graph = &model.graph;
    let count: u64 = parameters.iter().map(|p| p.desc.elements()).sum();
    println!("{device}: {count} parameters, {} plans of which {forward} are forward's", graph.plans.len());
    let (mut queue, start) = (device.queue(), Instant::now());
    let (mut look, mut learn) = (graph.step(0..forward)?, graph.step(0..graph.plans.len())?);
    let read = |text: &[u32], random: &mut Random| -> Result<()> {
        let starts = (0..BATCH).map(|_| (random.next() * (text.len() - LENGTH as usize) as f32) as usize);
        let pieces: Vec<&[u32]> = starts.map(|start| &text[start..=start + LENGTH as usize]).collect();
        show(graph, &device, &pieces, [x, next])
    };
    let mut tested = Vec::new();
    for step in 0..=steps {
        if step % (steps / 10).max(1) == 0 || step == steps {
            let (mut same, mut held) = (Random(7), 0.0);
            for _ in 0..4 {
                read(held_out, &mut same)?;
                look()?;
                held += queue.download::<f32>(&graph.memory[loss.memory])?[0] / 4.0;
            }
            let bar = "=".repeat(20 * step / steps.max(1));
            println!(
                "[{bar:<20}] step {step:>4}: loss {held:.3} on held-out text, {:.0} s",
                start.elapsed().as_secs_f32()
            );
            tested.push(held);
        }
        if step < steps {
            read(training, &mut random)?;
            // Nothing waits for a step that is not looked at.
            learn()?;
        }
    }

    println!("saved {}, from which the example generate writes on", model.save(&mut queue)?.display());

    // The model writes on from a held-out line: each letter is drawn by what the model gives to it behind the ones before.
    let mut written: Vec<u32> = held_out[..LENGTH as usize].to_vec();
    for _ in 0..300 {
        let mut seen = written[written.len() - LENGTH as usize..].to_vec();
        seen.push(0);
        show(graph, &device, &[&seen], [x, next])?;
        look()?;
        let logits = queue.download::<f32>(&graph.memory[logits.memory])?;
        let last = &logits[((LENGTH - 1) * letters) as usize..][..letters as usize];
        let most = last.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let shares = last.iter().map(|logit| (logit - most).exp());
        let mut rest = random.next() * shares.clone().sum::<f32>();
        let drawn = shares.into_iter().position(|share| {
            rest -= share;
            rest < 0.0
        });
        written.push(drawn.unwrap_or(0) as u32);
    }
    println!("\n{}", text.written(&written));

    let [first, .., last] = tested[..] else { return Ok(()) };
    if last < first && (steps < 1000 || last < 2.2) { Ok(()) } else { Err("it has not learned to write".into()) }
}
