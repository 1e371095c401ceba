//! A graph of ops, written down once, with its gradients: every plan is made before the first run, which is a list of them. It knows no op: slots tell
//! it what an op reads and writes, steps and roles what its gradients do.

use std::collections::HashMap;
use std::error::Error;
use std::ops::Range;

use baracuda_ops::stock::Adam;
use baracuda_ops::{
    Access, AnyDescriptor, AnyPlan, Buffer, DType, Descriptor, Device, Element, Function, Mem, MemMut, Operand,
    PlanOptions, PointwiseDescriptor, Program, Queue, Role, Slot, TensorDesc, Workspace,
};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What the command line says: steps, as many as `steps` by default, and the device, by default the best.
pub(crate) fn arguments(steps: usize) -> Result<(usize, Device)> {
    let (steps, mut devices) = arguments_of_devices(steps)?;
    Ok((steps, devices.swap_remove(0)))
}

/// As [`arguments`], with every device where the word `all` is in the place of one.
pub(crate) fn arguments_of_devices(steps: usize) -> Result<(usize, Vec<Device>)> {
    let mut arguments = std::env::args().skip(1);
    let steps = arguments.next().map_or(Ok(steps), |steps| steps.parse())?;
    let name = arguments.next();
    let mut devices = if name.is_some() { Device::all() } else { vec![Device::best()] };
    devices.retain(|device| name.as_ref().is_none_or(|name| name == "all" || *name == device.backend().to_string()));
    if devices.is_empty() { Err("no such device".into()) } else { Ok((steps, devices)) }
}

/// Pseudo-random numbers below 1.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1 << 24) as f32
    }

    /// As many as a tensor has elements, from `-scale` to `scale`.
    pub(crate) fn around(&mut self, dims: &[u64], scale: f32) -> Vec<f32> {
        (0..dims.iter().product()).map(|_| (2.0 * self.next() - 1.0) * scale).collect()
    }
}

/// Memory by number, and how it is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Tensor {
    pub(crate) memory: usize,
    pub(crate) desc: TensorDesc,
}

impl Tensor {
    /// The same memory, with other extents.
    pub(crate) fn viewed(self, dims: &[u64]) -> Result<Self> {
        Ok(Self { desc: TensorDesc::contiguous(self.desc.dtype(), dims)?, ..self })
    }
}

/// Ops as they are written down, and the plans that they become.
pub(crate) struct Graph {
    device: Device,
    pub(crate) memory: Vec<Buffer>,
    is_wanted: Vec<bool>,
    /// What learns in the place of a tensor, which is its copy in another type.
    masters: HashMap<usize, Tensor>,
    ops: Vec<(AnyDescriptor, Vec<usize>)>,
    pub(crate) plans: Vec<(AnyPlan, Vec<usize>)>,
}

impl Graph {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            memory: vec![],
            is_wanted: vec![],
            masters: HashMap::new(),
            ops: vec![],
            plans: vec![],
        }
    }

    /// A tensor with these elements, densely laid out. `is_wanted`: its gradient is.
    pub(crate) fn tensor<E: Element>(&mut self, values: &[E], dims: &[u64], is_wanted: bool) -> Result<Tensor> {
        let buffer = self.device.upload(values)?;
        Ok(Tensor { memory: self.push(buffer, is_wanted), desc: TensorDesc::contiguous(E::DTYPE, dims)? })
    }

    /// A tensor that learns, in a type. What learns of one of 16 bits is a tensor of f32, of which it is a copy.
    pub(crate) fn parameter(&mut self, values: &[f32], dims: &[u64], dtype: DType) -> Result<Tensor> {
        if dtype == DType::F32 {
            return self.tensor(values, dims, true);
        }
        let master = self.tensor(values, dims, false)?;
        let desc = TensorDesc::contiguous(dtype, dims)?;
        let copy = Tensor { memory: self.push(self.device.alloc_for(&desc)?, true), desc };
        let cast = PointwiseDescriptor::cast(master.desc, dtype)?;
        let at = self.plans.len();
        self.plan(&AnyDescriptor::new(cast), vec![master.memory, copy.memory])?;
        self.run(&mut self.device.queue(), at..at + 1, &self.device.alloc(0)?)?;
        self.plans.truncate(at);
        self.masters.insert(copy.memory, master);
        Ok(copy)
    }

    fn push(&mut self, buffer: Buffer, is_wanted: bool) -> usize {
        self.memory.push(buffer);
        self.is_wanted.push(is_wanted);
        self.memory.len() - 1
    }

    /// Plans an op on tensors by operand; the others are new. Returns what it writes at `output`.
    pub(crate) fn op(&mut self, op: impl Descriptor, inputs: &[(&str, Tensor)], output: &str) -> Result<Tensor> {
        let (op, mut tensors, mut written) = (AnyDescriptor::new(op), Vec::new(), None);
        let is_wanted = inputs.iter().any(|(_, tensor)| self.is_wanted[tensor.memory]);
        for slot in op.slots() {
            let memory = match inputs.iter().find(|(name, _)| *name == slot.name) {
                Some((_, tensor)) => tensor.memory,
                None => self.push(self.device.alloc(slot.span_bytes)?, is_wanted),
            };
            tensors.push(memory);
            written = written.or((slot.name == output).then_some(Tensor { memory, desc: slot.desc }));
        }
        self.plan(&op, tensors.clone())?;
        self.ops.push((op, tensors));
        Ok(written.ok_or("no such output")?)
    }

    /// Plans an op on the memory of its slots.
    pub(crate) fn plan(&mut self, op: &AnyDescriptor, tensors: Vec<usize>) -> Result<()> {
        self.plans.push((op.plan(&self.device, &PlanOptions::default())?, tensors));
        Ok(())
    }

    /// Plans the gradients of one tensor for all that it was made of, by memory.
    pub(crate) fn backward(&mut self, output: Tensor, gradient: Tensor) -> Result<HashMap<usize, usize>> {
        let mut gradients = HashMap::from([(output.memory, gradient.memory)]);
        for (op, tensors) in self.ops.clone().into_iter().rev() {
            let of: HashMap<&str, usize> =
                op.slots().iter().map(|slot| slot.name).zip(tensors.iter().copied()).collect();
            let slots =
                |access: Access| op.slots().iter().filter(move |slot| slot.access == access).map(|slot| slot.name);
            let arriving: Vec<_> = slots(Access::Out).filter(|name| gradients.contains_key(&of[name])).collect();
            let wanted: Vec<_> = slots(Access::In).filter(|name| self.is_wanted[of[name]]).collect();
            if arriving.is_empty() || wanted.is_empty() {
                continue;
            }
            let mut between = HashMap::new();
            for step in op.gradients(&arriving, &wanted)? {
                let mut tensors = Vec::new();
                for (slot, role) in step.slots() {
                    let new = |graph: &mut Self| -> Result<usize> {
                        Ok(graph.push(graph.device.alloc(slot.span_bytes)?, false))
                    };
                    tensors.push(match role {
                        Role::Forward(name) => of[name],
                        Role::GradientOf(name) => gradients[&of[name]],
                        Role::GradientFor(_) => new(self)?,
                        Role::Intermediate(id) if between.contains_key(id) => between[id],
                        Role::Intermediate(id) => *between.entry(*id).or_insert(new(self)?),
                    });
                }
                self.plan(&step.descriptor, tensors.clone())?;
                for ((slot, role), gradient) in step.slots().zip(tensors) {
                    let Role::GradientFor(inputs) = role else { continue };
                    for input in inputs {
                        // Of a tensor that several ops read, the gradients add up.
                        if let Some(&other) = gradients.get(&of[input]) {
                            let dtype = slot.desc.dtype();
                            let flat = TensorDesc::contiguous(dtype, &[slot.span_bytes / dtype.size_bytes()])?;
                            let add = AnyDescriptor::new(PointwiseDescriptor::binary(Function::Add, flat, flat)?);
                            let sum = self.push(self.device.alloc(slot.span_bytes)?, false);
                            self.plan(&add, vec![other, gradient, sum])?;
                            gradients.insert(of[input], sum);
                        } else {
                            gradients.insert(of[input], gradient);
                        }
                    }
                }
            }
        }
        Ok(gradients)
    }

    /// Plans a step of all parameters, which are of one type, at once. The program reads a parameter, its gradient, `states` tensors that are 0 at first,
    /// and scalars that all parameters share; it writes the parameter, its states, and the copy of a parameter that has a master.
    pub(crate) fn update(
        &mut self,
        program: Program,
        parameters: &[Tensor],
        gradients: &HashMap<usize, usize>,
        states: usize,
        shared: &[Tensor],
    ) -> Result<()> {
        let (mut sets, mut tensors, mut types) = (Vec::new(), Vec::new(), vec![DType::F32; 1 + states]);
        for p in parameters {
            let copy = self.masters.get(&p.memory).map(|_| p);
            let learning = *self.masters.get(&p.memory).unwrap_or(p);
            let zeros = vec![0f32; p.desc.elements() as usize];
            let state = |_| Ok(self.tensor(&zeros, p.desc.dims(), false)?.memory);
            let states = (0..states).map(state).collect::<Result<Vec<_>>>()?;
            let mut set = vec![learning.desc; 2 + states.len()];
            set[1] = p.desc;
            tensors.extend([learning.memory, gradients[&p.memory]].iter().chain(&states));
            // The first set has the scalars.
            if sets.is_empty() {
                set.extend(shared.iter().map(|scalar| scalar.desc));
                tensors.extend(shared.iter().map(|scalar| scalar.memory));
                types.extend(copy.map(|copy| copy.desc.dtype()));
            }
            tensors.extend([learning.memory].iter().chain(&states).chain(copy.map(|copy| &copy.memory)));
            sets.push(set);
        }
        let update = PointwiseDescriptor::new(program, sets.remove(0))?.outputs(types)?.sets(sets)?;
        self.plan(&AnyDescriptor::new(update), tensors)
    }

    /// Plans a step of AdamW of all parameters at once. What depends on the number of the step alone is computed before, by a program of scalars.
    pub(crate) fn adam_w(
        &mut self,
        adam: Adam,
        learning_rate: Tensor,
        parameters: &[Tensor],
        gradients: &HashMap<usize, usize>,
    ) -> Result<()> {
        let [step, rate, root, kept] = [(); 4].map(|()| self.tensor(&[0f32], &[], false));
        let (step, shared) = (step?, [rate?, root?, kept?]);
        let clock = PointwiseDescriptor::new(adam.clock()?, vec![step.desc, learning_rate.desc])?;
        let clocked = [step, learning_rate, step].into_iter().chain(shared).map(|scalar| scalar.memory).collect();
        self.plan(&AnyDescriptor::new(clock), clocked)?;
        let adam = Adam { copy: !self.masters.is_empty(), ..adam };
        self.update(adam.program()?, parameters, gradients, 2, &shared)
    }

    /// Makes some of the plans a step that runs again and again. On CUDA it is captured once, in the stream of this thread, whose order is that of what the
    /// device writes and reads.
    pub(crate) fn step(&self, plans: Range<usize>) -> Result<Box<dyn FnMut() -> Result<()> + '_>> {
        let scratch = self.scratch()?;
        #[cfg(feature = "cuda")]
        if self.device.backend() == baracuda_ops::Backend::Cuda {
            use baracuda_ops::cudarc::driver::{CudaContext, sys};
            // The primary context, in which the device has its memory.
            let stream = CudaContext::new(0)?.per_thread_stream();
            let mut queue = Queue::cudarc(&self.device, &stream)?;
            stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
            let ran = self.run(&mut queue, plans, &scratch);
            let captured = stream.end_capture(sys::CUgraphInstantiate_flags(0))?;
            ran?;
            let captured = captured.ok_or("the stream captured no graph")?;
            return Ok(Box::new(move || {
                // What the plans work in lives as long as the graph.
                let _ = &scratch;
                Ok(captured.launch()?)
            }));
        }
        let mut queue = self.device.queue();
        Ok(Box::new(move || self.run(&mut queue, plans.clone(), &scratch)))
    }

    /// Memory for any plan to work in.
    pub(crate) fn scratch(&self) -> Result<Buffer> {
        Ok(self.device.alloc(self.plans.iter().map(|(plan, _)| plan.workspace().bytes).max().unwrap_or(0))?)
    }

    /// Runs some of the plans, in the order in which they were made.
    pub(crate) fn run(&self, queue: &mut Queue<'_>, plans: Range<usize>, scratch: &Buffer) -> Result<()> {
        for (plan, tensors) in &self.plans[plans] {
            let operand = |(slot, &at): (&Slot, &usize)| match slot.access {
                Access::In => Operand::from(Mem::from(&self.memory[at])),
                _ => Operand::from(MemMut::from(&self.memory[at])),
            };
            let mut operands: Vec<Operand<'_>> = plan.slots().iter().zip(tensors).map(operand).collect();
            plan.run(queue, &mut operands, Workspace::new(scratch))?;
        }
        Ok(())
    }
}
