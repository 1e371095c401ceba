//! Trains a classifier with two convolutions on 1438 images of handwritten digits and tells how many of 359 others it reads. Each convolution
//! is followed by BatchNorm and ReLU; a product of matrices makes logits of what they find.
//!
//! `cargo run --release --example cnn -- [STEPS] [cpu|cuda|wgpu]`, by default 60 on the best device. The losses of the first 20 steps are the
//! same on all devices to within 0.001.

use std::error::Error;

use baracuda_ops::{
    Activation, ActivationArgs, ActivationBackwardArgs, ActivationBackwardDescriptor, ActivationDescriptor,
    BatchNormArgs, BatchNormBackwardArgs, BatchNormBackwardDescriptor, BatchNormDescriptor, Buffer, ConvArgs,
    ConvBackwardDataArgs, ConvBackwardDataDescriptor, ConvBackwardWeightArgs, ConvBackwardWeightDescriptor,
    ConvDescriptor, ConvWindow, DType, Descriptor, Device, GemmArgs, GemmBackwardArgs, GemmDescriptor, Plan,
    PlanOptions, Queue, SoftmaxArgs, SoftmaxBackwardArgs, SoftmaxDescriptor, TensorDesc, Workspace,
};
use safetensors::SafeTensors;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Channels and extents of the images, and of what each convolution makes of them.
const CHANNELS: [u64; 3] = [1, 8, 16];
const SIDES: [u64; 3] = [8, 8, 4];
const FEATURES: u64 = CHANNELS[2] * SIDES[2] * SIDES[2];
const DIGITS: u64 = 10;
const LEARNING_RATE: f32 = 0.5;

fn desc(dims: &[u64]) -> Result<TensorDesc> {
    Ok(TensorDesc::contiguous(DType::F32, dims)?)
}

/// A plan and the memory that it needs.
struct Op<D: Descriptor>(Plan<D>, Buffer);

impl<D: Descriptor> Op<D> {
    fn new(device: &Device, descriptor: D) -> Result<Self> {
        let plan = Plan::new(device, descriptor, &PlanOptions::default())?;
        let workspace = device.alloc(plan.workspace().bytes)?;
        Ok(Self(plan, workspace))
    }

    fn run(&self, queue: &mut Queue<'_>, args: D::Args<'_>) -> Result<()> {
        Ok(self.0.run(queue, args, Workspace::new(&self.1))?)
    }
}

/// Convolution, BatchNorm and ReLU, their gradients, and where what they compute lies.
struct Layer {
    conv: Op<ConvDescriptor>,
    norm: Op<BatchNormDescriptor>,
    relu: Op<ActivationDescriptor>,
    relu_backward: Op<ActivationBackwardDescriptor>,
    norm_backward: Op<BatchNormBackwardDescriptor>,
    /// Added to the weight itself: beta is 1.
    backward_weight: Op<ConvBackwardWeightDescriptor>,
    backward_data: Op<ConvBackwardDataDescriptor>,
    weight: Buffer,
    sums: Buffer,
    normalized: Buffer,
    stats: [Buffer; 2],
    output: Buffer,
    /// Of the output, later of the sums.
    gradient: Buffer,
    normalized_gradient: Buffer,
}

impl Layer {
    /// The `at`th layer; the second convolution has a stride of 2.
    fn new(device: &Device, images: u64, at: usize, weight: Buffer) -> Result<Self> {
        let maps = |of: usize| desc(&[images, CHANNELS[of], SIDES[of], SIDES[of]]);
        let (input, output) = (maps(at)?, maps(at + 1)?);
        let window = ConvWindow::new().stride(&[SIDES[at] / SIDES[at + 1]; 2]).padding(&[1, 1]);
        let conv = ConvDescriptor::new(input, desc(&[CHANNELS[at + 1], CHANNELS[at], 3, 3])?, window)?;
        let norm = BatchNormDescriptor::new(output)?.stats()?;
        let relu = ActivationDescriptor::new(output, Activation::Relu)?;
        let alloc = || device.alloc(output.span_bytes());
        let stat = || device.alloc(CHANNELS[at + 1] * 4);
        Ok(Self {
            relu_backward: Op::new(device, relu.backward()?.from_y()?)?,
            norm_backward: Op::new(device, norm.backward(&["x"])?)?,
            backward_weight: Op::new(device, conv.backward_weight()?.beta(1.0)?)?,
            backward_data: Op::new(device, conv.backward_data()?)?,
            conv: Op::new(device, conv)?,
            norm: Op::new(device, norm)?,
            relu: Op::new(device, relu)?,
            weight,
            sums: alloc()?,
            normalized: alloc()?,
            stats: [stat()?, stat()?],
            output: alloc()?,
            gradient: alloc()?,
            normalized_gradient: alloc()?,
        })
    }

    fn forward(&self, queue: &mut Queue<'_>, x: &Buffer) -> Result<()> {
        let [mean, rstd] = &self.stats;
        self.conv.run(queue, ConvArgs::new(x, &self.weight, &self.sums))?;
        self.norm.run(queue, BatchNormArgs::new(&self.sums, &self.normalized).stats(mean, rstd))?;
        self.relu.run(queue, ActivationArgs::new(&self.normalized, &self.output))
    }

    /// Takes a step, before which the gradient of x is written if it is wanted.
    fn backward(&self, queue: &mut Queue<'_>, x: &Buffer, dx: Option<&Buffer>) -> Result<()> {
        let ([mean, rstd], gradient, inner) = (&self.stats, &self.gradient, &self.normalized_gradient);
        self.relu_backward.run(queue, ActivationBackwardArgs::new(gradient, inner).y(&self.output))?;
        let args = BatchNormBackwardArgs::new(inner, &self.sums).stats(mean, rstd).dx(gradient);
        self.norm_backward.run(queue, args)?;
        if let Some(dx) = dx {
            self.backward_data.run(queue, ConvBackwardDataArgs::new(&self.weight, gradient, dx))?;
        }
        self.backward_weight.run(queue, ConvBackwardWeightArgs::new(x, gradient, &self.weight))
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let steps: u32 = arguments.next().map_or(Ok(60), |steps| steps.parse())?;
    let device = match arguments.next() {
        None => Device::best(),
        Some(name) => Device::all().into_iter().find(|d| d.backend().to_string() == name).ok_or("no such device")?,
    };

    // The images, 8 by 8 pixels of 0 to 16; every fifth is for the test. All go through the network, and BatchNorm takes the mean and variance
    // of all; but test images have no loss.
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
    let (x, dy) = (device.upload(&x)?, device.upload(&dy)?);

    let mut state = 1u64;
    let mut random = |count: u64, terms: u64| {
        let uniform = (0..count).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * (6.0 / terms as f32).sqrt()
        });
        device.upload(&uniform.collect::<Vec<f32>>())
    };
    let mut layer = |at: usize| {
        let terms = CHANNELS[at] * 9;
        Layer::new(&device, count, at, random(CHANNELS[at + 1] * terms, terms)?)
    };
    let (first, second) = (layer(0)?, layer(1)?);
    let (weight, bias) = (random(FEATURES * DIGITS, FEATURES)?, device.upload(&[0f32; DIGITS as usize])?);
    let product = GemmDescriptor::new(desc(&[count, FEATURES])?, desc(&[FEATURES, DIGITS])?)?.bias(DType::F32)?;
    let parameters = product.backward(&["b", "bias"])?;
    let product_step = Op::new(&device, parameters.db(DType::F32, 1.0)?.dbias(DType::F32, 1.0)?)?;
    let to_features = Op::new(&device, product.backward(&["a"])?)?;
    let product = Op::new(&device, product)?;
    let softmax = SoftmaxDescriptor::new(desc(&[count, DIGITS])?, 1)?.log()?;
    let (softmax_backward, softmax) = (Op::new(&device, softmax.backward()?)?, Op::new(&device, softmax)?);
    let [logits, logs, dlogits] = [0; 3].map(|_| device.alloc(count * DIGITS * 4));
    let (logits, logs, dlogits) = (logits?, logs?, dlogits?);
    println!("{device}: {}, {}", second.conv.0.info().kernel, second.backward_weight.0.info().kernel);

    let mut queue = device.queue();
    let (mut losses, mut read) = (Vec::new(), 0.0);
    for step in 0..=steps {
        first.forward(&mut queue, &x)?;
        second.forward(&mut queue, &first.output)?;
        product.run(&mut queue, GemmArgs::new(&second.output, &weight, &logits).bias(&bias))?;
        softmax.run(&mut queue, SoftmaxArgs::new(&logits, &logs))?;
        if step % (steps / 10).max(1) == 0 || step == steps {
            let logs = queue.download::<f32>(&logs)?;
            let (mut loss, mut right) = (0.0, 0);
            for (image, (logs, &label)) in logs.chunks_exact(DIGITS as usize).zip(labels).enumerate() {
                let log = logs[usize::from(label)];
                match is_test(image) {
                    true => right += u32::from(logs.iter().all(|&other| other <= log)),
                    false => loss -= log / training,
                }
            }
            read = f64::from(right) / f64::from(count as u32 - training as u32);
            println!("step {step:>4}: loss {loss:.4}, {:.1} % of the test images", 100.0 * read);
            losses.push(loss);
        }
        softmax_backward.run(&mut queue, SoftmaxBackwardArgs::new(&logs, &dy, &dlogits))?;
        // Before the weight takes its step.
        to_features.run(&mut queue, GemmBackwardArgs::new(&dlogits).b(&weight).da(&second.gradient))?;
        let args = GemmBackwardArgs::new(&dlogits).a(&second.output).db(&weight).dbias(&bias);
        product_step.run(&mut queue, args)?;
        second.backward(&mut queue, &first.output, Some(&first.gradient))?;
        first.backward(&mut queue, &x, None)?;
    }
    let falls = losses.is_sorted_by(|before, after| after < before);
    if falls && (steps < 60 || read >= 0.95) { Ok(()) } else { Err("it has not learned to read".into()) }
}
