//! A tape that knows no op: it records what runs and finds by steps and roles what its gradients read and write. A convolution with SiLU, a
//! LayerNorm with a residual and a product of matrices go through it; their gradients are compared with finite differences.
//!
//! `cargo run --release --example tape`

use std::collections::HashMap;

use baracuda_ops::{
    Access, Activation, AnyDescriptor, Buffer, ConvDescriptor, ConvWindow, DType, Descriptor, Device, Function,
    GemmDescriptor, LayerNormDescriptor, Mem, MemMut, Operand, PlanCache, PlanOptions, PointwiseDescriptor, Result,
    Role, Slot, TensorDesc, Workspace,
};

/// Tensors by number, whether their gradients are wanted, and the ops that ran, each with the tensors of its slots.
struct Tape {
    device: Device,
    plans: PlanCache,
    tensors: Vec<Buffer>,
    is_wanted: Vec<bool>,
    ops: Vec<(AnyDescriptor, Vec<usize>)>,
}

impl Tape {
    /// Runs an op on tensors that exist and others that it writes, and records it.
    fn forward(&mut self, op: impl Descriptor, inputs: &[(&str, usize)]) -> Result<Vec<usize>> {
        let (op, mut tensors) = (AnyDescriptor::new(op), Vec::new());
        let is_wanted = inputs.iter().any(|&(_, tensor)| self.is_wanted[tensor]);
        for slot in op.slots() {
            let input = inputs.iter().find(|(name, _)| *name == slot.name);
            tensors.push(input.map_or_else(|| self.alloc(slot, is_wanted), |&(_, tensor)| Ok(tensor))?);
        }
        self.run(&op, &tensors)?;
        self.ops.push((op, tensors.clone()));
        Ok(tensors)
    }

    /// From the gradient of one tensor those of all that it depends on, as far as they are wanted.
    fn backward(&mut self, output: usize, gradient: usize) -> Result<HashMap<usize, usize>> {
        let mut gradients = HashMap::from([(output, gradient)]);
        for (op, tensors) in self.ops.clone().into_iter().rev() {
            let operands = op.slots().iter().zip(&tensors);
            let of: HashMap<&str, usize> = operands.clone().map(|(slot, &tensor)| (slot.name, tensor)).collect();
            let names = |access: Access, has: &dyn Fn(usize) -> bool| -> Vec<&str> {
                let named = operands.clone().filter(|(slot, tensor)| slot.access == access && has(**tensor));
                named.map(|(slot, _)| slot.name).collect()
            };
            let arriving = names(Access::Out, &|tensor| gradients.contains_key(&tensor));
            let wanted = names(Access::In, &|tensor| self.is_wanted[tensor]);
            if arriving.is_empty() {
                continue;
            }
            let mut intermediates = HashMap::new();
            for step in op.gradients(&arriving, &wanted)? {
                let mut tensors = Vec::new();
                for (slot, role) in step.slots() {
                    tensors.push(match role {
                        Role::Forward(name) => of[name],
                        Role::GradientOf(name) => gradients[&of[name]],
                        Role::GradientFor(_) => self.alloc(slot, false)?,
                        Role::Intermediate(id) => match intermediates.get(id) {
                            Some(&tensor) => tensor,
                            None => *intermediates.entry(*id).or_insert(self.alloc(slot, false)?),
                        },
                    });
                }
                self.run(&step.descriptor, &tensors)?;
                for (role, &gradient) in step.roles.iter().zip(&tensors) {
                    let Role::GradientFor(inputs) = role else { continue };
                    for input in inputs {
                        let sum = gradients.get(&of[input]).map(|&other| self.add(gradient, other)).transpose()?;
                        gradients.insert(of[input], sum.unwrap_or(gradient));
                    }
                }
            }
        }
        Ok(gradients)
    }

    /// Runs an op on the tensors of its slots; the plan is made where none has been.
    fn run(&self, op: &AnyDescriptor, tensors: &[usize]) -> Result<()> {
        let plan = op.cached_plan(&self.plans, &self.device, &PlanOptions::default())?;
        let scratch = self.device.alloc(plan.workspace().bytes)?;
        let mut operands = Vec::<Operand<'_>>::new();
        for (slot, &tensor) in plan.slots().iter().zip(tensors) {
            let memory = &self.tensors[tensor];
            operands.push(match slot.access {
                Access::In => Mem::from(memory).into(),
                Access::Out | Access::InOut => MemMut::from(memory).into(),
            });
        }
        plan.run(&mut self.device.queue(), &mut operands, Workspace::new(&scratch))
    }

    /// The memory of a slot.
    fn alloc(&mut self, slot: &Slot, is_wanted: bool) -> Result<usize> {
        let memory = self.device.alloc(slot.span_bytes)?;
        self.tensors.push(memory);
        self.is_wanted.push(is_wanted);
        Ok(self.tensors.len() - 1)
    }

    /// The sum of two tensors.
    fn add(&mut self, a: usize, b: usize) -> Result<usize> {
        let elements = TensorDesc::contiguous(DType::F64, &[self.tensors[a].bytes() / DType::F64.size_bytes()])?;
        let add = AnyDescriptor::new(PointwiseDescriptor::binary(Function::Add, elements, elements)?);
        let sum = self.alloc(&add.slots()[2], false)?;
        self.run(&add, &[a, b, sum])?;
        Ok(sum)
    }

    fn upload(&mut self, values: &[f64], is_wanted: bool) -> Result<usize> {
        self.tensors.push(self.device.upload(values)?);
        self.is_wanted.push(is_wanted);
        Ok(self.tensors.len() - 1)
    }

    fn values(&self, tensor: usize) -> Result<Vec<f64>> {
        self.device.queue().download(&self.tensors[tensor])
    }
}

/// Samples, channels and positions of x, and columns of the output.
const DIMS: [u64; 3] = [2, 4, 6];
const COLUMNS: u64 = 3;

/// Runs the model on the inputs (x, the weight and the bias of the convolution, those of the norm, the second factor), and returns the tape,
/// the tensors of the inputs, and the output.
fn model(inputs: &[Vec<f64>]) -> Result<(Tape, Vec<usize>, usize)> {
    let (device, plans) = (Device::cpu(), PlanCache::with_capacity(64));
    let mut tape = Tape { device, plans, tensors: Vec::new(), is_wanted: Vec::new(), ops: Vec::new() };
    let tensors = inputs.iter().map(|values| tape.upload(values, true)).collect::<Result<Vec<_>>>()?;
    let [x, weight, bias, scale, shift, factor] = tensors[..] else { unreachable!("six inputs") };

    let desc = |dims: &[u64]| TensorDesc::contiguous(DType::F64, dims);
    let window = ConvWindow::new().padding(&[1]);
    let conv = ConvDescriptor::new(desc(&DIMS)?, desc(&[DIMS[1], DIMS[1], 3])?, window)?;
    let conv = conv.bias(DType::F64)?.activation(Activation::Silu)?;
    let norm = LayerNormDescriptor::new(desc(&DIMS)?, 1)?.weight(DType::F64)?.bias(DType::F64)?.residual()?;
    let product = GemmDescriptor::new(desc(&DIMS)?, desc(&[DIMS[2], COLUMNS])?)?;

    // Operands in the order of the slots: x, weight, bias, y; x, residual, weight, bias, y, h; a, b, out.
    let y = tape.forward(conv, &[("x", x), ("weight", weight), ("bias", bias)])?[3];
    let y = tape.forward(norm, &[("x", y), ("residual", x), ("weight", scale), ("bias", shift)])?[4];
    let out = tape.forward(product, &[("a", y), ("b", factor)])?[2];
    Ok((tape, tensors, out))
}

fn main() -> Result<()> {
    let mut state = 1u64;
    let mut random = |count: u64| -> Vec<f64> {
        let uniform = (0..count).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        });
        uniform.collect()
    };
    let [samples, channels, positions] = DIMS;
    let sizes = [samples * channels * positions, channels * channels * 3, channels, positions, positions];
    let inputs: Vec<Vec<f64>> = sizes.into_iter().chain([positions * COLUMNS]).map(&mut random).collect();
    let cotangent = random(samples * channels * COLUMNS);

    let (mut tape, tensors, out) = model(&inputs)?;
    let arriving = tape.upload(&cotangent, false)?;
    let gradients = tape.backward(out, arriving)?;

    let loss = |inputs: &[Vec<f64>]| -> Result<f64> {
        let (tape, _, out) = model(inputs)?;
        Ok(tape.values(out)?.iter().zip(&cotangent).map(|(out, weight)| out * weight).sum())
    };
    let step = 1e-5;
    for (input, tensor) in tensors.iter().enumerate() {
        let gradient = tape.values(gradients[tensor])?;
        let mut worst = 0f64;
        for (at, gradient) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut inputs = inputs.clone();
                inputs[input][at] += by;
                loss(&inputs)
            };
            worst = worst.max(((moved(step)? - moved(-step)?) / (2.0 * step) - gradient).abs());
        }
        println!("input {input}: {} gradients, at most {worst:.1e} from finite differences", gradient.len());
        assert!(worst < 1e-7, "the gradient of input {input} is wrong");
    }
    Ok(())
}
