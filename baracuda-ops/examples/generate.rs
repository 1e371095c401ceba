//! Writes text, letter by letter, with the transformer that the example `transformer` has trained. Keys and values of the letters before lie in caches, so that
//! a letter costs the products of one row. Its position, what it sees and what is drawn are known to the device alone: the host reads the letter, and nothing
//! goes the other way but the prompt. On CUDA the plans of a letter are one captured graph.
//!
//! `cargo run --release --example generate -- [LETTERS] [cpu|cuda|wgpu] [PROMPT]`, by default 500 on the best device. Of 0 letters it compares the logits of a
//! held-out piece with those that the model has for the piece as a whole.

use std::io::{Write, stdout};
use std::time::Instant;

use baracuda_ops::{
    AnyDescriptor, DType, Device, Distribution, Function, PointwiseDescriptor, Program, ReduceDescriptor, Reduction,
    TensorDesc,
};

#[allow(dead_code, reason = "other examples use more of it")]
mod graph;
#[allow(dead_code, reason = "the example transformer uses more of it")]
mod letters;
use graph::{Graph, Result, Tensor, arguments};
use letters::{Context, Model, SMALL, Text, saved_path};

/// Likely letters are drawn more often than the model says where it is below 1.
const TEMPERATURE: f64 = 0.7;
const LENGTH: u64 = SMALL.length;

/// The number of a letter that follows, and what it means for the caches: their row, which is used again after [`LENGTH`] letters, how many rows have
/// something, and the position.
fn clock() -> Result<Program> {
    let mut b = Program::builder();
    let number = b.input("number");
    let next = b.call(Function::Add, [number, 1.0.into()]);
    let row = b.call(Function::Remainder, [next, (LENGTH as f64).into()]);
    let length = b.call(Function::Add, [next, 1.0.into()]);
    let length = b.call(Function::Minimum, [length, (LENGTH as f64).into()]);
    Ok(b.finish([next, row, length, next])?)
}

/// Logits with noise, the greatest of which is a letter drawn by the model's probabilities (Gumbel, "Statistical Theory of Extreme Values", 1954).
fn noisy() -> Result<Program> {
    let mut b = Program::builder();
    let [logits, seed, number] = ["logits", "seed", "number"].map(|name| b.input(name));
    let noise = b.random(Distribution::Exponential, seed, number, 0);
    let noise = b.call(Function::Log, [noise]);
    let sharp = b.call(Function::Mul, [logits, (1.0 / TEMPERATURE).into()]);
    let sum = b.call(Function::Sub, [sharp, noise]);
    Ok(b.finish([sum])?)
}

/// The plans of a letter.
struct Writer {
    graph: Graph,
    /// The letter that is looked at, which becomes the one that follows.
    letter: Tensor,
    logits: Tensor,
}

impl Writer {
    fn new(device: &Device, file: Vec<u8>, letters: u64) -> Result<Self> {
        let mut model = Model::new(device, SMALL, DType::F32, Some(file));
        let graph = &mut model.graph;
        let letter = graph.tensor(&[0i32], &[1, 1], false)?;
        let [number, row] = [graph.tensor(&[0u32], &[1], false)?, graph.tensor(&[0u32], &[1], false)?];
        let (length, position) = (graph.tensor(&[1u32], &[1], false)?, graph.tensor(&[0f32], &[1], false)?);
        let frequencies = SMALL.frequencies();
        let frequency = graph.tensor(&frequencies, &[frequencies.len() as u64], false)?;
        let seed = graph.tensor(&[20u32, 25], &[2], false)?;
        let logits = model.logits(letter, letters, Context::Caches { position, frequency, row, length })?;

        let graph = &mut model.graph;
        let scalar = TensorDesc::contiguous(DType::U32, &[])?;
        let noisy = PointwiseDescriptor::new(noisy()?, vec![logits.desc, seed.desc, scalar])?;
        let noisy = graph.op(noisy, &[("in0", logits), ("in1", seed), ("in2", number)], "out0")?;
        let drawn = ReduceDescriptor::of(noisy.desc, &[1], Reduction::ArgMax)?.output(DType::I32)?;
        graph.plan(&AnyDescriptor::new(drawn), vec![noisy.memory, letter.memory])?;
        let [u32, f32] = [DType::U32, DType::F32];
        let clock = PointwiseDescriptor::new(clock()?, vec![number.desc])?.outputs(vec![u32, u32, u32, f32])?;
        let operands = [number, number, row, length, position].map(|tensor| tensor.memory);
        graph.plan(&AnyDescriptor::new(clock), operands.to_vec())?;
        Ok(Self { graph: model.graph, letter, logits })
    }

    fn look_at(&self, device: &Device, letter: u32) -> Result<()> {
        Ok(device.write(&self.graph.memory[self.letter.memory], 0, &letter.to_ne_bytes())?)
    }

    /// What runs the plans of a letter.
    fn step(&self) -> Result<Box<dyn FnMut() -> Result<()> + '_>> {
        self.graph.step(0..self.graph.plans.len())
    }
}

/// Compares logits letter by letter with those of a whole piece, of two times as many letters as caches have rows.
fn compare(device: &Device, file: Vec<u8>, text: &Text) -> Result<()> {
    let piece = &text.parts().1[..2 * LENGTH as usize];
    let mut whole = Model::new(device, SMALL, DType::F32, Some(file.clone()));
    let x = whole.graph.tensor(piece, &[1, piece.len() as u64], false)?;
    let logits = whole.logits_of_pieces(x, text.count())?;
    let (scratch, mut queue) = (whole.graph.scratch()?, device.queue());
    whole.graph.run(&mut queue, 0..whole.graph.plans.len(), &scratch)?;
    let expected: Vec<f32> = queue.download(&whole.graph.memory[logits.memory])?;

    let writer = Writer::new(device, file, text.count())?;
    let mut step = writer.step()?;
    let (mut worst, mut greatest) = (0f32, 0f32);
    for (&letter, expected) in piece.iter().zip(expected.chunks(text.count() as usize)) {
        writer.look_at(device, letter)?;
        step()?;
        let logits: Vec<f32> = queue.download(&writer.graph.memory[writer.logits.memory])?;
        for (logit, expected) in logits.iter().zip(expected) {
            worst = worst.max((logit - expected).abs());
            greatest = greatest.max(expected.abs());
        }
        if !logits.iter().all(|logit| logit.is_finite()) {
            return Err("a logit is not finite".into());
        }
    }
    println!("{device}: {} letters, logits of up to {greatest:.2}, apart by at most {worst:.1e}", piece.len());
    if worst <= 1e-4 * greatest { Ok(()) } else { Err("the caches change what the model says".into()) }
}

fn main() -> Result<()> {
    let (count, device) = arguments(500)?;
    let prompt = std::env::args().nth(3).unwrap_or_else(|| ":hacker: n.".into());
    let (path, text) = (saved_path()?, Text::read());
    let file = std::fs::read(&path).map_err(|error| {
        format!(
            "{}: {error}; `cargo run --release --example transformer` trains the model and saves it there",
            path.display()
        )
    })?;
    if count == 0 {
        return compare(&device, file, &text);
    }
    let prompt = text.numbers(&prompt);
    if prompt.is_empty() {
        return Err("the prompt has no letter of the text that the model has learned from".into());
    }
    let writer = Writer::new(&device, file, text.count())?;
    let (mut step, mut queue) = (writer.step()?, device.queue());
    println!("{device}: {} plans a letter\n", writer.graph.plans.len());
    for &letter in &prompt {
        writer.look_at(&device, letter)?;
        step()?;
    }
    print!("{}", text.written(&prompt));
    let start = Instant::now();
    for _ in 0..count {
        let drawn = queue.download::<i32>(&writer.graph.memory[writer.letter.memory])?[0];
        print!("{}", text.written(&[drawn as u32]));
        stdout().flush()?;
        step()?;
    }
    queue.finish()?;
    let seconds = start.elapsed().as_secs_f64();
    println!("\n\n{count} letters in {seconds:.2} s, {:.0} a second", count as f64 / seconds);
    Ok(())
}
