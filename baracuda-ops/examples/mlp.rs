//! Trains a classifier of two layers on 1438 images of handwritten digits, from `gemm` and `softmax` plans alone, and tells how many of 359
//! others it reads.
//!
//! `cargo run --release --example mlp -- [STEPS] [cpu|cuda|wgpu]`, by default 300 on the best device.

use std::error::Error;

use baracuda_ops::{
    Activation, DType, Device, GemmArgs, GemmBackwardArgs, GemmDescriptor, Plan, PlanOptions, SoftmaxArgs,
    SoftmaxBackwardArgs, SoftmaxDescriptor, TensorDesc, Workspace,
};
use safetensors::SafeTensors;

const PIXELS: u64 = 64;
const HIDDEN: u64 = 128;
const DIGITS: u64 = 10;
const LEARNING_RATE: f32 = 0.5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let steps: u32 = arguments.next().map_or(Ok(300), |steps| steps.parse())?;
    let device = match arguments.next() {
        None => Device::best(),
        Some(name) => Device::all().into_iter().find(|d| d.backend().to_string() == name).ok_or("no such device")?,
    };

    // The images, 8 by 8 pixels of 0 to 16; every fifth is for the test. All go through the network, but test images have no loss: where
    // the gradient of log-softmax is 0, so is that of its input.
    let file = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/handwritten_digits.safetensors"))?;
    let tensors = SafeTensors::deserialize(&file)?;
    let (images, labels) = (tensors.tensor("images")?.data(), tensors.tensor("labels")?.data());
    let count = labels.len() as u64;
    let is_test = |image: usize| image % 5 == 4;
    let training = (0..labels.len()).filter(|&image| !is_test(image)).count() as f32;
    let x: Vec<f32> = images.iter().map(|&pixel| f32::from(pixel) / 16.0).collect();
    // dy = rate * onehot / N: the rate instead of -1 makes every gradient the step that its parameter takes.
    let mut dy = vec![0f32; (count * DIGITS) as usize];
    for (image, &label) in labels.iter().enumerate().filter(|(image, _)| !is_test(*image)) {
        dy[image * DIGITS as usize + usize::from(label)] = LEARNING_RATE / training;
    }

    // The plans. Gradients of weights and biases are added to the parameters themselves: beta is 1.
    let desc = |dims: &[u64]| TensorDesc::contiguous(DType::F32, dims);
    let (f32, options) = (DType::F32, PlanOptions::default());
    let first = GemmDescriptor::new(desc(&[count, PIXELS])?, desc(&[PIXELS, HIDDEN])?)?;
    let first = first.bias(f32)?.activation(Activation::Relu)?;
    let second = GemmDescriptor::new(desc(&[count, HIDDEN])?, desc(&[HIDDEN, DIGITS])?)?.bias(f32)?;
    let softmax = SoftmaxDescriptor::new(desc(&[count, DIGITS])?, 1)?.log()?;
    let parameters = ["b", "bias"];
    let first_step = first.backward(&parameters)?.db(f32, 1.0)?.dbias(f32, 1.0)?;
    let second_step = second.backward(&parameters)?.db(f32, 1.0)?.dbias(f32, 1.0)?;
    let to_hidden = second.backward(&["a"])?;
    let softmax_backward = Plan::new(&device, softmax.backward()?, &options)?;
    let softmax = Plan::new(&device, softmax, &options)?;
    let (first, second) = (Plan::new(&device, first, &options)?, Plan::new(&device, second, &options)?);
    let first_step = Plan::new(&device, first_step, &options)?;
    let second_step = Plan::new(&device, second_step, &options)?;
    let to_hidden = Plan::new(&device, to_hidden, &options)?;
    println!("{device}: {}, {}", first.info().kernel, first_step.info().kernel);

    let mut state = 1u64;
    let mut weight = |rows: u64, cols: u64| {
        let uniform = (0..rows * cols).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * (6.0 / rows as f32).sqrt()
        });
        device.upload(&uniform.collect::<Vec<f32>>())
    };
    let (weight1, weight2) = (weight(PIXELS, HIDDEN)?, weight(HIDDEN, DIGITS)?);
    let (bias1, bias2) = (device.upload(&[0f32; HIDDEN as usize])?, device.upload(&[0f32; DIGITS as usize])?);
    let (x, dy) = (device.upload(&x)?, device.upload(&dy)?);
    let [hidden, dhidden] = [device.alloc(count * HIDDEN * 4)?, device.alloc(count * HIDDEN * 4)?];
    let [logits, logs, dlogits] = [0; 3].map(|_| device.alloc(count * DIGITS * 4));
    let (logits, logs, dlogits) = (logits?, logs?, dlogits?);
    let needs = [first.workspace(), second.workspace(), softmax.workspace(), softmax_backward.workspace()];
    let needs_backward = [first_step.workspace(), second_step.workspace(), to_hidden.workspace()];
    let most = needs.into_iter().chain(needs_backward).map(|workspace| workspace.bytes).max().unwrap_or(0);
    let scratch = device.alloc(most)?;
    let workspace = || Workspace::new(&scratch);

    let mut queue = device.queue();
    let (mut losses, mut read) = (Vec::new(), 0.0);
    for step in 0..=steps {
        first.run(&mut queue, GemmArgs::new(&x, &weight1, &hidden).bias(&bias1), workspace())?;
        second.run(&mut queue, GemmArgs::new(&hidden, &weight2, &logits).bias(&bias2), workspace())?;
        softmax.run(&mut queue, SoftmaxArgs::new(&logits, &logs), workspace())?;
        if step % (steps / 10).max(1) == 0 || step == steps {
            let logs = queue.download::<f32>(&logs)?;
            let rows = logs.chunks_exact(DIGITS as usize).zip(labels).enumerate();
            let (mut loss, mut right) = (0.0, 0);
            for (image, (logs, &label)) in rows {
                let log = logs[usize::from(label)];
                if is_test(image) {
                    right += u32::from(logs.iter().all(|&other| other <= log));
                } else {
                    loss -= log / training;
                }
            }
            read = f64::from(right) / f64::from(count as u32 - training as u32);
            println!("step {step:>4}: loss {loss:.4}, {:.1} % of the test images", 100.0 * read);
            losses.push(loss);
        }
        softmax_backward.run(&mut queue, SoftmaxBackwardArgs::new(&logs, &dy, &dlogits), workspace())?;
        // Before the weight takes its step.
        to_hidden.run(&mut queue, GemmBackwardArgs::new(&dlogits).b(&weight2).da(&dhidden), workspace())?;
        let args = GemmBackwardArgs::new(&dlogits).a(&hidden).db(&weight2).dbias(&bias2);
        second_step.run(&mut queue, args, workspace())?;
        let args = GemmBackwardArgs::new(&dhidden).a(&x).out(&hidden).db(&weight1).dbias(&bias1);
        first_step.run(&mut queue, args, workspace())?;
    }
    let falls = losses.is_sorted_by(|before, after| after < before);
    if falls && (steps < 100 || read >= 0.93) { Ok(()) } else { Err("it has not learned to read".into()) }
}
