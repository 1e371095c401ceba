//! Trains a transformer on the Jargon File, character by character, and writes a few lines of its own. The forward ops are written down once; their
//! gradients are the steps that the ops derive, and AdamW is one plan over all parameters. Every plan is made before the first step, and a step is a list of
//! them that never waits for the host.
//!
//! `cargo run --release --example transformer -- [STEPS] [cpu|cuda|wgpu]`, by default 1000 on the best device.

use std::error::Error;
use std::time::Instant;

use baracuda_ops::stock::{self, Adam};
use baracuda_ops::{
    AnyDescriptor, CrossEntropyDescriptor, DType, Device, Function, GemmDescriptor, GemmFactor, IndexSelectDescriptor,
    PointwiseDescriptor, RmsNormDescriptor, SoftmaxDescriptor, TensorDesc,
};

mod graph;
use graph::{Graph, Random, Result, Tensor, arguments};

const TEXT: &str = include_str!("jargon.txt");
/// Sequences of a step, and characters of each.
const BATCH: u64 = 16;
const LENGTH: u64 = 64;
const WIDTH: u64 = 128;
const HEADS: u64 = 4;
const HIDDEN: u64 = 256;
const LAYERS: usize = 2;

/// Writes the letters of each piece, and those that follow them, by their numbers.
fn show(graph: &Graph, device: &Device, pieces: &[&[u32]], tensors: [Tensor; 2]) -> Result<()> {
    for (at, tensor) in tensors.into_iter().enumerate() {
        let letters = pieces.iter().flat_map(|piece| &piece[at..][..LENGTH as usize]);
        let bytes: Vec<u8> = letters.flat_map(|letter| letter.to_ne_bytes()).collect();
        device.write(&graph.memory[tensor.memory], 0, &bytes)?;
    }
    Ok(())
}

/// The parameters of a model as they are made, and the ops that read them.
struct Model {
    graph: Graph,
    random: Random,
    parameters: Vec<Tensor>,
}

impl Model {
    fn parameter(&mut self, dims: &[u64], scale: f32) -> Result<Tensor> {
        let tensor = self.graph.tensor(&self.random.around(dims, scale), dims, true)?;
        self.parameters.push(tensor);
        Ok(tensor)
    }

    fn linear(&mut self, x: Tensor, columns: u64) -> Result<Tensor> {
        let rows = x.desc.dims()[1];
        let weight = self.parameter(&[rows, columns], (3.0 / rows as f32).sqrt())?;
        self.graph.op(GemmDescriptor::new(x.desc, weight.desc)?, &[("a", x), ("b", weight)], "out")
    }

    fn norm(&mut self, x: Tensor) -> Result<Tensor> {
        let weight = self.graph.tensor(&[1f32; WIDTH as usize], &[WIDTH], true)?;
        self.parameters.push(weight);
        let norm = RmsNormDescriptor::new(x.desc, 1)?.weight(DType::F32)?.stats()?;
        self.graph.op(norm, &[("x", x), ("weight", weight)], "y")
    }

    fn add(&mut self, x: Tensor, y: Tensor) -> Result<Tensor> {
        let add = PointwiseDescriptor::binary(Function::Add, x.desc, y.desc)?;
        self.graph.op(add, &[("in0", x), ("in1", y)], "out0")
    }

    /// Each head looks at its own character and those before it.
    fn attention(&mut self, x: Tensor) -> Result<Tensor> {
        let size = WIDTH / HEADS;
        let heads = TensorDesc::strided(DType::F32, &[BATCH, HEADS, LENGTH, size], &[LENGTH * WIDTH, size, WIDTH, 1])?;
        let mut project = || Ok::<_, Box<dyn Error>>(Tensor { desc: heads, ..self.linear(x, WIDTH)? });
        let (q, k, v) = (project()?, project()?, project()?);
        let scores = GemmDescriptor::new(q.desc, GemmFactor::transposed(k.desc))?;
        let scores = self.graph.op(scores, &[("a", q), ("b", k)], "out")?;
        let weights = SoftmaxDescriptor::new(scores.desc, 3)?.scale(1.0 / (size as f64).sqrt())?.causal()?;
        let weights = self.graph.op(weights, &[("x", scores)], "y")?;
        let mixed = GemmDescriptor::new(weights.desc, v.desc)?.layout("out", heads)?;
        let mixed = self.graph.op(mixed, &[("a", weights), ("b", v)], "out")?;
        self.linear(mixed.viewed(&[BATCH * LENGTH, WIDTH])?, WIDTH)
    }

    fn feed_forward(&mut self, x: Tensor) -> Result<Tensor> {
        let (gate, up) = (self.linear(x, HIDDEN)?, self.linear(x, HIDDEN)?);
        let gated = PointwiseDescriptor::new(stock::swiglu()?, vec![gate.desc, up.desc])?;
        let gated = self.graph.op(gated, &[("in0", gate), ("in1", up)], "out0")?;
        self.linear(gated, WIDTH)
    }
}

fn main() -> Result<()> {
    let (steps, device) = arguments(1000)?;
    let mut alphabet: Vec<u8> = TEXT.bytes().collect();
    alphabet.sort_unstable();
    alphabet.dedup();
    let text: Vec<u32> = TEXT.bytes().filter_map(|byte| Some(alphabet.binary_search(&byte).ok()? as u32)).collect();
    // The last tenth is held out.
    let (training, held_out) = text.split_at(text.len() / 10 * 9);
    let (letters, rows) = (alphabet.len() as u64, BATCH * LENGTH);

    let mut model = Model { graph: Graph::new(&device), random: Random(1), parameters: vec![] };
    let nothing = vec![0u32; rows as usize];
    let [x, next] = [[BATCH, LENGTH].as_slice(), &[rows]].map(|dims| model.graph.tensor(&nothing, dims, false));
    let (x, next) = (x?, next?);
    let places = model.parameter(&[LENGTH, WIDTH], 0.1)?;
    // A row of the table for each letter.
    let table = model.parameter(&[letters, WIDTH], (3.0 / letters as f32).sqrt())?;
    let embedding = IndexSelectDescriptor::new(table.desc, 0, x.desc)?;
    let embedded = model.graph.op(embedding, &[("x", table), ("indices", x)], "y")?;
    let mut h = model.add(embedded, places)?.viewed(&[rows, WIDTH])?;
    for _ in 0..LAYERS {
        let y = model.norm(h)?;
        let y = model.attention(y)?;
        h = model.add(h, y)?;
        let y = model.norm(h)?;
        let y = model.feed_forward(y)?;
        h = model.add(h, y)?;
    }
    let h = model.norm(h)?;
    let logits = model.linear(h, letters)?;
    let loss = CrossEntropyDescriptor::new(logits.desc, 1, DType::U32)?.stats()?;
    let loss = model.graph.op(loss, &[("x", logits), ("targets", next)], "loss")?;
    let Model { mut graph, mut random, parameters } = model;
    let forward = graph.plans.len();

    let arriving = graph.tensor(&[1f32], &[], false)?;
    let gradients = graph.backward(loss, arriving)?;
    // AdamW of all parameters is one plan. What depends on the step alone is computed once, by a program of scalars.
    let adam = Adam { beta2: 0.99, ..Adam::w(0.1) };
    let scalars = [0f32, 0.003, 0.0, 0.0, 0.0].map(|value| graph.tensor(&[value], &[], false));
    let [step, lr, rate, root, kept] = scalars;
    let (step, lr, shared) = (step?, lr?, [rate?, root?, kept?]);
    let clock = PointwiseDescriptor::new(adam.clock()?, vec![step.desc, lr.desc])?;
    let clocked = [step, lr, step].into_iter().chain(shared).map(|scalar| scalar.memory).collect();
    graph.plan(&AnyDescriptor::new(clock), clocked)?;
    graph.update(adam.program()?, &parameters, &gradients, 2, &shared)?;

    let scratch = graph.scratch()?;
    let count: u64 = parameters.iter().map(|p| p.desc.elements()).sum();
    println!("{device}: {count} parameters, {} plans of which {forward} are forward's", graph.plans.len());
    let (mut queue, start) = (device.queue(), Instant::now());
    let mut loss_of = |text: &[u32], random: &mut Random, plans: usize| -> Result<f32> {
        let starts = (0..BATCH).map(|_| (random.next() * (text.len() - LENGTH as usize) as f32) as usize);
        let pieces: Vec<&[u32]> = starts.map(|start| &text[start..=start + LENGTH as usize]).collect();
        show(&graph, &device, &pieces, [x, next])?;
        graph.run(&mut queue, 0..plans, &scratch)?;
        // Where a step is not looked at, nothing waits for it.
        if plans > forward { Ok(f32::NAN) } else { Ok(queue.download::<f32>(&graph.memory[loss.memory])?[0]) }
    };
    let mut tested = Vec::new();
    for step in 0..=steps {
        if step % (steps / 10).max(1) == 0 || step == steps {
            let mut same = Random(7);
            let loss: f32 = (0..4).map(|_| loss_of(held_out, &mut same, forward)).sum::<Result<f32>>()? / 4.0;
            let bar = "=".repeat(20 * step / steps.max(1));
            println!(
                "[{bar:<20}] step {step:>4}: loss {loss:.3} on held-out text, {:.0} s",
                start.elapsed().as_secs_f32()
            );
            tested.push(loss);
        }
        if step < steps {
            loss_of(training, &mut random, graph.plans.len())?;
        }
    }

    // The model writes on from a held-out line: each letter is drawn by what the model gives to it behind the ones before.
    let mut written: Vec<u32> = held_out[..LENGTH as usize].to_vec();
    for _ in 0..300 {
        let mut seen = written[written.len() - LENGTH as usize..].to_vec();
        seen.push(0);
        show(&graph, &device, &[&seen], [x, next])?;
        graph.run(&mut queue, 0..forward, &scratch)?;
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
    let written: Vec<u8> = written.into_iter().map(|letter| alphabet[letter as usize]).collect();
    println!("\n{}", String::from_utf8_lossy(&written));

    let [first, .., last] = tested[..] else { return Ok(()) };
    if last < first && (steps < 1000 || last < 2.2) { Ok(()) } else { Err("it has not learned to write".into()) }
}
