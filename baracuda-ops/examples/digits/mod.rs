//! Images of handwritten digits, and how a network learns to read them: its loss, SGD, and how many images it reads.

use baracuda_ops::stock::Sgd;
use baracuda_ops::{DType, Device, Function, Program, ReduceDescriptor, Reduction, SoftmaxDescriptor};
use safetensors::SafeTensors;

use crate::graph::{Graph, Random, Result, Tensor};

pub(crate) const DIGITS: u64 = 10;
/// Pixels along each side of an image.
pub(crate) const SIDE: u64 = 8;
const LEARNING_RATE: f32 = 0.5;

/// A network as it is written down.
pub(crate) struct Network {
    pub(crate) graph: Graph,
    device: Device,
    random: Random,
    pub(crate) parameters: Vec<Tensor>,
    /// The parameter that comes next.
    next: usize,
}

impl Network {
    pub(crate) fn new(device: Device) -> Self {
        Self { graph: Graph::new(&device), device, random: Random(1), parameters: vec![], next: 0 }
    }

    /// What is written down from here on has the parameters that there are, in their order.
    pub(crate) fn again(&mut self) {
        self.next = 0;
    }

    /// A weight of which a result sums `terms` products.
    pub(crate) fn weight(&mut self, dims: &[u64], terms: u64) -> Result<Tensor> {
        let values = self.random.around(dims, (6.0 / terms as f32).sqrt());
        self.parameter(&values, dims)
    }

    pub(crate) fn parameter(&mut self, values: &[f32], dims: &[u64]) -> Result<Tensor> {
        if self.next == self.parameters.len() {
            let tensor = self.graph.tensor(values, dims, true)?;
            self.parameters.push(tensor);
        }
        self.next += 1;
        Ok(self.parameters[self.next - 1])
    }
}

/// The images, of which every fifth is for the test: it has no part in the loss.
pub(crate) struct Digits {
    /// Pixels from 0 to 1, image by image.
    pub(crate) images: Vec<f32>,
    pub(crate) count: u64,
    pub(crate) labels: Vec<u8>,
}

/// Whether an image is for the test.
pub(crate) fn is_test(image: usize) -> bool {
    image % 5 == 4
}

impl Digits {
    pub(crate) fn read() -> Result<Self> {
        let file = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/handwritten_digits.safetensors"))?;
        let tensors = SafeTensors::deserialize(&file)?;
        let (images, labels) = (tensors.tensor("images")?.data(), tensors.tensor("labels")?.data());
        let images = images.iter().map(|&pixel| f32::from(pixel) / 16.0).collect();
        Ok(Self { images, count: labels.len() as u64, labels: labels.to_vec() })
    }

    /// Takes steps and prints what comes of them. The host reads two numbers: the loss, and how many images of the test were read right, of which
    /// the least share is expected after `enough` steps.
    pub(crate) fn train(
        &self,
        network: Network,
        logits: Tensor,
        steps: usize,
        (enough, least): (usize, f64),
    ) -> Result<()> {
        let Network { mut graph, device, parameters, .. } = network;
        let tests = (0..self.labels.len()).filter(|&image| is_test(image)).count();
        let training = (self.labels.len() - tests) as f32;
        let mut shares = vec![0f32; (self.count * DIGITS) as usize];
        let mut asked = vec![-1i32; self.labels.len()];
        for (image, &label) in self.labels.iter().enumerate() {
            if is_test(image) {
                asked[image] = i32::from(label);
            } else {
                shares[image * DIGITS as usize + usize::from(label)] = 1.0 / training;
            }
        }
        let shares = graph.tensor(&shares, &[self.count, DIGITS], false)?;
        let asked = graph.tensor(&asked, &[self.count], false)?;

        let logs = graph.op(SoftmaxDescriptor::new(logits.desc, 1)?.log()?, &[("x", logits)], "y")?;
        let loss = ReduceDescriptor::new(
            Program::of(Function::Mul),
            vec![logs.desc, shares.desc],
            vec![0, 1],
            Reduction::Sum,
        )?;
        let loss = graph.op(loss, &[("in0", logs), ("in1", shares)], "out0")?;
        let read = ReduceDescriptor::of(logs.desc, &[1], Reduction::ArgMax)?.output(DType::I32)?;
        let read = graph.op(read, &[("in0", logs)], "out0")?;
        let right = ReduceDescriptor::new(
            Program::of(Function::Eq),
            vec![read.desc, asked.desc],
            vec![0],
            Reduction::CountNonzero,
        )?;
        let right = graph.op(right.output(DType::I32)?, &[("in0", read), ("in1", asked)], "out0")?;
        let forward = graph.plans.len();

        let arriving = graph.tensor(&[-1f32], &[], false)?;
        let gradients = graph.backward(loss, arriving)?;
        let rate = graph.tensor(&[LEARNING_RATE], &[], false)?;
        graph.update(Sgd::default().program()?, &parameters, &gradients, 0, &[rate])?;
        println!("{device}: {} plans, of which {forward} are forward's", graph.plans.len());

        let (scratch, mut queue, mut losses, mut share) = (graph.scratch()?, device.queue(), Vec::new(), 0.0);
        for step in 0..=steps {
            graph.run(&mut queue, 0..forward, &scratch)?;
            if step % (steps / 10).max(1) == 0 || step == steps {
                let loss = -queue.download::<f32>(&graph.memory[loss.memory])?[0];
                let right = queue.download::<i32>(&graph.memory[right.memory])?[0];
                share = f64::from(right) / tests as f64;
                println!("step {step:>4}: loss {loss:.4}, {:.1} % of the test images", 100.0 * share);
                losses.push(loss);
            }
            graph.run(&mut queue, forward..graph.plans.len(), &scratch)?;
        }
        let falls = losses.is_sorted_by(|before, after| after < before);
        if falls && (steps < enough || share >= least) { Ok(()) } else { Err("it has not learned to read".into()) }
    }
}
