//! A descriptor of baracuda-ops as a custom op of candle.
//!
//! Forward runs the descriptor's plan; what its gradients read besides inputs and output (statistics, a pre-activation) stays in the op, which candle's
//! graph keeps. Backward asks the descriptor for the steps of the gradients that are wanted, and runs them by the roles of their operands. No function here
//! knows what the op computes.

use std::collections::HashMap;
use std::sync::OnceLock;

use baracuda_ops::{Access, AnyDescriptor, CopyDescriptor, Role, Slot, Step, TensorDesc};
#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::op::BackpropOp;
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, Error, Layout, Result, Shape, Storage, StorageRef, Tensor,
};

use crate::error::refused;
#[cfg(feature = "cuda")]
use crate::storage::on_cuda;
use crate::storage::{self, Input, Source, on_cpu};

/// A call of an op: its operands under their names in the descriptor.
pub(crate) struct Call<'a> {
    /// The function that was called, for errors.
    pub(crate) op: &'static str,
    /// One to three, which have gradients.
    pub(crate) inputs: Vec<(&'static str, &'a Tensor)>,
    /// Those that have none: they live in the op.
    pub(crate) constants: Vec<(&'static str, &'a Tensor)>,
    /// The output that the call returns; others are kept for gradients.
    pub(crate) output: &'static str,
}

impl Call<'_> {
    /// Runs the op that `describe` makes of the layouts of the operands, inputs first, and records it where an input is tracked. `describe` is also told
    /// whether to save what gradients read.
    ///
    /// Operands are read where they lie. Where no plan serves that, or only a reference in plain loops, they are made contiguous first.
    ///
    /// # Errors
    /// What baracuda-ops refuses; operands of other shapes than the op's, or on other devices; a constant that needs a gradient.
    pub(crate) fn apply(
        self,
        describe: impl Fn(&[TensorDesc], bool) -> baracuda_ops::Result<AnyDescriptor>,
    ) -> Result<Tensor> {
        let Self { op, inputs, constants, output } = self;
        let names: Vec<&'static str> = inputs.iter().chain(&constants).map(|(name, _)| *name).collect();
        let mut tensors: Vec<Tensor> = inputs.iter().chain(&constants).map(|(_, tensor)| (*tensor).clone()).collect();
        let Some(first) = tensors.first() else { candle_core::bail!("baracuda-candle {op}: has no operands") };
        let device = storage::device(op, first.device())?;
        for (name, tensor) in names.iter().zip(&tensors) {
            if !tensor.device().same_device(first.device()) {
                let [lhs, rhs] = [first, tensor].map(|tensor| tensor.device().location());
                return Err(Error::DeviceMismatchBinaryOp { lhs, rhs, op }.context(format!("operand {name}")).bt());
            }
        }
        if let Some((name, _)) = constants.iter().find(|(_, tensor)| tensor.track_op() && tensor.dtype().is_float()) {
            candle_core::bail!("baracuda-candle {op}: has no gradient of {name}, which needs one: detach it");
        }
        let wanted: Vec<&'static str> =
            inputs.iter().filter(|(_, tensor)| tensor.track_op()).map(|(name, _)| *name).collect();

        let mut descs = tensors
            .iter()
            .map(|tensor| storage::describe(op, tensor.dtype(), tensor.layout()))
            .collect::<Result<Vec<_>>>()?;
        let described = |descs: &[TensorDesc]| {
            let mut forward = describe(descs, !wanted.is_empty()).map_err(refused(op))?;
            // Operands whose descriptors follow from others begin at multiples of 16 bytes, unless their layouts say that they may not.
            for (name, desc) in names.iter().zip(descs) {
                let lies = |slot: &&Slot| slot.name == *name && slot.desc.strides() == desc.strides();
                if forward.slots().iter().find(lies).is_some_and(|slot| slot.desc.align_bytes() > desc.align_bytes()) {
                    forward = forward.layout(name, *desc).map_err(refused(op))?;
                }
            }
            Ok::<_, Error>(forward)
        };
        let mut forward = described(&descs)?;
        let mut is_changed = false;
        for (at, (name, tensor)) in names.iter().zip(&tensors).enumerate() {
            let Some(slot) = forward.slots().iter().find(|slot| slot.name == *name) else { continue };
            if slot.desc.dims() != descs[at].dims() {
                let [expected, got] = [slot.desc, descs[at]].map(|desc| shape(&desc));
                return Err(Error::UnexpectedShape { msg: format!("{op}: {name}"), expected, got }.bt());
            }
            // The gradient of an element that is read repeatedly is one for each place.
            let is_repeated = |(&dim, &stride): (&u64, &u64)| dim > 1 && stride == 0;
            let is_repeated = descs[at].dims().iter().zip(descs[at].strides()).any(is_repeated);
            if (is_repeated && wanted.contains(name)) || slot.desc.strides() != descs[at].strides() {
                descs[at] = dense(op, tensor, &descs[at])?;
                is_changed = true;
            }
        }
        if is_changed {
            forward = described(&descs)?;
        }
        if !descs.iter().all(TensorDesc::is_contiguous) {
            let all_dense = tensors.iter().zip(&descs).map(|(tensor, desc)| dense(op, tensor, desc));
            let all_dense = all_dense.collect::<Result<Vec<_>>>()?;
            let kernel = |forward: &AnyDescriptor| {
                let plan = storage::plan(op, forward, &device)?;
                if !wanted.is_empty() {
                    for step in forward.gradients(&[output], &wanted).map_err(refused(op))? {
                        storage::plan(op, &step.descriptor, &device)?;
                    }
                }
                Ok::<_, Error>(plan.info().kernel)
            };
            let serves_well = match kernel(&forward) {
                Ok(name) => !name.ends_with("_reference") || kernel(&described(&all_dense)?)?.ends_with("_reference"),
                Err(_) => false,
            };
            if !serves_well {
                descs = all_dense;
                forward = described(&descs)?;
            }
        }
        for (tensor, desc) in tensors.iter_mut().zip(&descs) {
            if desc.is_contiguous() {
                *tensor = tensor.contiguous()?;
            }
        }

        let Some(slot) = forward.slots().iter().find(|slot| slot.name == output) else {
            candle_core::bail!("baracuda-candle {op}: has no output {output}")
        };
        let constants = constants.iter().map(|(name, _)| *name).zip(tensors.split_off(inputs.len())).collect();
        let inputs = inputs.iter().map(|(name, _)| *name).collect();
        let op = Op { op, shape: shape(&slot.desc), forward, inputs, constants, output, saved: OnceLock::new() };
        match &tensors[..] {
            [x] => x.apply_op1(op),
            [x, y] => x.apply_op2(y, op),
            [x, y, z] => x.apply_op3(y, z, op),
            _ => candle_core::bail!("baracuda-candle {}: an op of candle takes one to three tensors", op.op),
        }
    }
}

/// The descriptor of a tensor once it is contiguous; of one that is, its own.
fn dense(op: &'static str, tensor: &Tensor, desc: &TensorDesc) -> Result<TensorDesc> {
    if tensor.is_contiguous() {
        return Ok(*desc);
    }
    TensorDesc::contiguous(desc.dtype(), desc.dims()).map_err(refused(op))
}

fn shape(desc: &TensorDesc) -> Shape {
    // They come from shapes of candle.
    let dims: Vec<usize> = desc.dims().iter().map(|&dim| usize::try_from(dim).unwrap_or(usize::MAX)).collect();
    dims.into()
}

/// What candle's graph holds of a call.
struct Op {
    op: &'static str,
    forward: AnyDescriptor,
    shape: Shape,
    inputs: Vec<&'static str>,
    constants: Vec<(&'static str, Tensor)>,
    output: &'static str,
    /// What forward wrote besides the output, each as a list of its elements in memory.
    saved: OnceLock<Vec<(&'static str, Tensor)>>,
}

impl Op {
    fn run_forward(&self, args: &[(Source<'_>, &Layout)]) -> Result<(Storage, Shape)> {
        let (op, forward) = (self.op, &self.forward);
        let constants: Vec<_> =
            self.constants.iter().map(|(name, tensor)| (*name, tensor.storage_and_layout())).collect();
        let mut inputs = Vec::with_capacity(forward.slots().len());
        for slot in forward.slots() {
            let of_args = self.inputs.iter().position(|name| *name == slot.name).and_then(|at| args.get(at));
            let of_constants = constants.iter().find(|(name, _)| *name == slot.name);
            inputs.push(match (of_args, of_constants) {
                (Some((storage, layout)), _) => Some(Input { storage: *storage, offset: layout.start_offset() }),
                (None, Some((_, held))) => Some(input(op, held)?),
                (None, None) => None,
            });
        }
        let outputs = storage::run(op, forward, &inputs)?;
        let written = forward.slots().iter().filter(|slot| slot.access != Access::In);
        let (mut output, mut saved) = (None, Vec::new());
        for (slot, storage) in written.zip(outputs) {
            if slot.name == self.output {
                output = Some(storage);
            } else {
                saved.push((slot.name, list(storage, slot)));
            }
        }
        // candle runs an op once, when it is made.
        self.saved.get_or_init(|| saved);
        let output = output.ok_or_else(|| Error::msg(format!("baracuda-candle {op}: has no output")).bt())?;
        Ok((output, self.shape.clone()))
    }

    /// The gradients of the inputs that are tracked, in the order of the inputs.
    fn run_backward(&self, args: &[&Tensor], y: &Tensor, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let op = self.op;
        let mut gradients = vec![None; args.len()];
        let tracked = self.inputs.iter().zip(args).filter(|(_, tensor)| tensor.track_op());
        let wanted: Vec<&str> = tracked.map(|(name, _)| *name).collect();
        if wanted.is_empty() {
            return Ok(gradients);
        }
        let dy = dy.contiguous()?;
        let mut between: HashMap<usize, Tensor> = HashMap::new();
        for Step { descriptor, roles, .. } in self.forward.gradients(&[self.output], &wanted).map_err(refused(op))? {
            let operands = descriptor.slots().iter().zip(&roles);
            let read = operands.clone().map(|(slot, role)| match (slot.access, role) {
                (Access::In, Role::Forward(name)) => self.operand(name, args, y).map(Some),
                (Access::In, Role::GradientOf(_)) => Ok(Some(&dy)),
                (Access::In, Role::Intermediate(id)) => between.get(id).map(Some).ok_or_else(|| self.lacks(slot.name)),
                _ => Ok(None),
            });
            let read = read.collect::<Result<Vec<_>>>()?;
            let held: Vec<_> = read.iter().map(|tensor| tensor.map(Tensor::storage_and_layout)).collect();
            let inputs = held.iter().map(|held| held.as_ref().map(|held| input(op, held)).transpose());
            let outputs = storage::run(op, &descriptor, &inputs.collect::<Result<Vec<_>>>()?)?;
            drop(held);
            let written = operands.filter(|(slot, _)| slot.access != Access::In);
            for ((slot, role), storage) in written.zip(outputs) {
                match role {
                    Role::Intermediate(id) => drop(between.insert(*id, list(storage, slot))),
                    Role::GradientFor(names) => {
                        let gradient = tensor(op, storage, &slot.desc)?;
                        let of_names = self.inputs.iter().zip(&mut gradients).filter(|(name, _)| names.contains(name));
                        of_names.for_each(|(_, place)| *place = Some(gradient.clone()));
                    }
                    Role::Forward(_) | Role::GradientOf(_) => {}
                }
            }
        }
        Ok(gradients)
    }

    /// Forward's operand of a name.
    fn operand<'t>(&'t self, name: &str, args: &[&'t Tensor], y: &'t Tensor) -> Result<&'t Tensor> {
        if let Some(at) = self.inputs.iter().position(|input| *input == name) {
            return args.get(at).copied().ok_or_else(|| self.lacks(name));
        }
        if name == self.output {
            return Ok(y);
        }
        let saved = self.saved.get().into_iter().flatten();
        let mut held = self.constants.iter().chain(saved);
        held.find(|(held, _)| *held == name).map(|(_, tensor)| tensor).ok_or_else(|| self.lacks(name))
    }

    fn lacks(&self, name: &str) -> Error {
        Error::msg(format!("baracuda-candle {}: the gradient reads {name}, which forward has not kept", self.op)).bt()
    }
}

fn input<'a>(op: &'static str, (storage, layout): &'a (StorageRef<'_>, &Layout)) -> Result<Input<'a>> {
    Ok(Input { storage: Source::of(op, storage)?, offset: layout.start_offset() })
}

/// The elements of a storage in the order in which they lie, for plans, which know how to read them.
fn list(storage: Storage, slot: &Slot) -> Tensor {
    let count = storage::elements(slot.span_bytes, slot.desc.dtype());
    Tensor::from_storage(storage, count, BackpropOp::none(), false)
}

/// A storage that a plan has written as a tensor of candle. Where the elements are dense in another order of the extents it is a view; else they are
/// copied together.
pub(crate) fn tensor(op: &'static str, storage: Storage, desc: &TensorDesc) -> Result<Tensor> {
    let made = |storage, shape| Tensor::from_storage(storage, shape, BackpropOp::none(), false);
    if desc.is_contiguous() {
        return Ok(made(storage, shape(desc)));
    }
    let mut axes: Vec<usize> = (0..desc.rank()).collect();
    axes.sort_by_key(|&axis| std::cmp::Reverse(desc.strides()[axis]));
    let ordered = desc.permute(&axes).map_err(refused(op))?;
    if ordered.is_contiguous() {
        let mut places = vec![0; axes.len()];
        axes.iter().enumerate().for_each(|(place, &axis)| places[axis] = place);
        return made(storage, shape(&ordered)).permute(places);
    }
    let copy = AnyDescriptor::new(CopyDescriptor::new(*desc).map_err(refused(op))?);
    let source = Input { storage: Source::of(op, &storage)?, offset: 0 };
    let copied = storage::run(op, &copy, &[Some(source), None])?;
    let copied = copied.into_iter().next().ok_or_else(|| Error::msg("a copy writes one tensor").bt())?;
    Ok(made(copied, shape(desc)))
}

impl CustomOp1 for Op {
    fn name(&self) -> &'static str {
        self.op
    }

    fn cpu_fwd(&self, x: &CpuStorage, of_x: &Layout) -> Result<(CpuStorage, Shape)> {
        self.run_forward(&[(Source::Cpu(x), of_x)]).and_then(on_cpu)
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, of_x: &Layout) -> Result<(CudaStorage, Shape)> {
        self.run_forward(&[(Source::Cuda(x), of_x)]).and_then(on_cuda)
    }

    fn bwd(&self, x: &Tensor, res: &Tensor, grad_res: &Tensor) -> Result<Option<Tensor>> {
        let mut gradients = self.run_backward(&[x], res, grad_res)?.into_iter();
        Ok(gradients.next().flatten())
    }
}

impl CustomOp2 for Op {
    fn name(&self) -> &'static str {
        self.op
    }

    fn cpu_fwd(&self, x: &CpuStorage, of_x: &Layout, y: &CpuStorage, of_y: &Layout) -> Result<(CpuStorage, Shape)> {
        self.run_forward(&[(Source::Cpu(x), of_x), (Source::Cpu(y), of_y)]).and_then(on_cpu)
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, of_x: &Layout, y: &CudaStorage, of_y: &Layout) -> Result<(CudaStorage, Shape)> {
        self.run_forward(&[(Source::Cuda(x), of_x), (Source::Cuda(y), of_y)]).and_then(on_cuda)
    }

    fn bwd(&self, x: &Tensor, y: &Tensor, res: &Tensor, grad_res: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let mut gradients = self.run_backward(&[x, y], res, grad_res)?.into_iter();
        Ok((gradients.next().flatten(), gradients.next().flatten()))
    }
}

impl CustomOp3 for Op {
    fn name(&self) -> &'static str {
        self.op
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        of_x: &Layout,
        y: &CpuStorage,
        of_y: &Layout,
        z: &CpuStorage,
        of_z: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.run_forward(&[(Source::Cpu(x), of_x), (Source::Cpu(y), of_y), (Source::Cpu(z), of_z)]).and_then(on_cpu)
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        of_x: &Layout,
        y: &CudaStorage,
        of_y: &Layout,
        z: &CudaStorage,
        of_z: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.run_forward(&[(Source::Cuda(x), of_x), (Source::Cuda(y), of_y), (Source::Cuda(z), of_z)]).and_then(on_cuda)
    }

    fn bwd(
        &self,
        x: &Tensor,
        y: &Tensor,
        z: &Tensor,
        res: &Tensor,
        grad_res: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let mut gradients = self.run_backward(&[x, y, z], res, grad_res)?.into_iter();
        Ok((gradients.next().flatten(), gradients.next().flatten(), gradients.next().flatten()))
    }
}
