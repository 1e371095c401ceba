//! A tape that knows no op: it runs a forward and the steps of its gradients, and finds their operands by slots and roles alone.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use baracuda_ops::{
    Access, AnyDescriptor, AnyPlan, Buffer, Device, Mem, MemMut, Operand, PlanOptions, Role, Slot, Step, TensorDesc,
    Workspace,
};

use crate::values::{gather, offsets, scatter};

/// Values of tensors, in row-major order, by the names of operands.
pub type Values = BTreeMap<&'static str, Vec<f64>>;

/// A forward with the memory of its operands.
pub struct Tape<'d> {
    device: &'d Device,
    forward: Node,
}

/// A plan with the memory of its operands.
struct Node {
    plan: AnyPlan,
    operands: Vec<Buffer>,
    scratch: Buffer,
}

impl Node {
    fn new(device: &Device, plan: AnyPlan, operands: Vec<Buffer>) -> Result<Self> {
        let scratch = device.alloc(plan.workspace().bytes)?;
        Ok(Self { plan, operands, scratch })
    }

    fn run(&self, device: &Device) -> Result<()> {
        let mut operands = Vec::<Operand<'_>>::new();
        for (slot, buffer) in self.plan.slots().iter().zip(&self.operands) {
            operands.push(match slot.access {
                Access::In => Mem::buffer(buffer, 0, slot.span_bytes).into(),
                Access::Out | Access::InOut => MemMut::buffer(buffer, 0, slot.span_bytes).into(),
            });
        }
        Ok(self.plan.run(&mut device.queue(), &mut operands, Workspace::new(&self.scratch))?)
    }
}

/// Memory of a tensor, in which bytes that no element has are NaN.
fn alloc(device: &Device, desc: &TensorDesc, values: Option<&[f64]>) -> Result<Buffer> {
    let mut bytes = vec![0xff; desc.span_bytes().next_multiple_of(8) as usize];
    if let Some(values) = values {
        ensure!(values.len() as u64 == desc.elements(), "{} values for {desc:?}", values.len());
        scatter(desc, values, &mut bytes);
    }
    let buffer = device.alloc(bytes.len() as u64)?;
    device.write(&buffer, 0, &bytes)?;
    Ok(buffer)
}

fn read(device: &Device, desc: &TensorDesc, buffer: &Buffer) -> Result<Vec<f64>> {
    let words = device.queue().download::<u32>(buffer)?;
    Ok(gather(desc, bytemuck::cast_slice(&words)))
}

impl<'d> Tape<'d> {
    /// A forward on a device, with the values of what it reads.
    ///
    /// # Errors
    /// Those of the library, or a value that is missing.
    pub fn new(device: &'d Device, forward: &AnyDescriptor, inputs: &Values) -> Result<Self> {
        let plan = forward.plan(device, &PlanOptions::default())?;
        let operand = |slot: &Slot| alloc(device, &slot.desc, inputs.get(slot.name).map(Vec::as_slice));
        let operands = plan.slots().iter().map(operand).collect::<Result<_>>()?;
        Ok(Self { device, forward: Node::new(device, plan, operands)? })
    }

    /// Runs forward.
    ///
    /// # Errors
    /// The library's.
    pub fn forward(&self) -> Result<()> {
        self.forward.run(self.device)
    }

    /// The values of an operand of forward.
    ///
    /// # Errors
    /// The library's, or a name that forward does not have.
    pub fn values(&self, name: &str) -> Result<Vec<f64>> {
        let (slot, buffer) = self.operand(name)?;
        read(self.device, &slot.desc, buffer)
    }

    /// Writes the element of a tensor of f64 at an offset.
    ///
    /// # Errors
    /// As for [`values`](Self::values).
    pub fn set(&self, name: &str, offset: u64, value: f64) -> Result<()> {
        Ok(self.device.write(self.operand(name)?.1, offset * 8, &value.to_le_bytes())?)
    }

    /// A slot of forward and its memory.
    fn operand(&self, name: &str) -> Result<(&Slot, &Buffer)> {
        let mut operands = self.forward.plan.slots().iter().zip(&self.forward.operands);
        operands.find(|(slot, _)| slot.name == name).with_context(|| format!("forward has no {name}"))
    }

    /// Runs steps, given the gradients that arrive, and returns those that they are for: of each input the gradient of every element of its
    /// memory, so that an element which is read several times has the sum.
    ///
    /// # Errors
    /// The library's, or a role that leads nowhere.
    pub fn gradients(&self, steps: &[Step], arriving: &Values) -> Result<Values> {
        let (mut intermediates, mut gradients) = (BTreeMap::new(), Values::new());
        for step in steps {
            let mut operands = Vec::new();
            for (slot, role) in step.slots() {
                operands.push(match role {
                    Role::Forward(name) => self.operand(name)?.1.clone(),
                    Role::GradientOf(name) => {
                        // A step that reads it in other extents repeats what lies as the output does.
                        let output = self.operand(name)?.0.desc;
                        let desc = if output.dims() == slot.desc.dims() { slot.desc } else { output };
                        alloc(self.device, &desc, arriving.get(name).map(Vec::as_slice))?
                    }
                    Role::GradientFor(_) => alloc(self.device, &slot.desc, None)?,
                    Role::Intermediate(id) => match intermediates.get(id) {
                        Some(buffer) => Buffer::clone(buffer),
                        None => intermediates.entry(*id).or_insert(alloc(self.device, &slot.desc, None)?).clone(),
                    },
                });
            }
            let plan = step.descriptor.plan(self.device, &PlanOptions::default())?;
            let node = Node::new(self.device, plan, operands)?;
            node.run(self.device)?;
            for ((slot, role), buffer) in step.slots().zip(&node.operands) {
                let Role::GradientFor(inputs) = role else { continue };
                let values = read(self.device, &slot.desc, buffer)?;
                for input in inputs {
                    let of = &self.operand(input)?.0.desc;
                    let sums = gradients.entry(*input).or_insert_with(|| vec![0.0; span(of)]);
                    let extents = of.dims().iter().zip(slot.desc.dims()).map(|(&dim, &own)| dim.min(own));
                    let part = TensorDesc::strided(of.dtype(), &extents.collect::<Vec<_>>(), of.strides())?;
                    offsets(&part).into_iter().zip(&values).for_each(|(at, value)| sums[at as usize] += value);
                }
            }
        }
        Ok(gradients)
    }
}

/// Elements from a tensor's first to its last in memory.
fn span(desc: &TensorDesc) -> usize {
    (desc.span_bytes() / desc.dtype().size_bytes()) as usize
}

/// Whether elements of a tensor are read repeatedly, in as many bytes. Along an extent of 0 there are none.
fn is_repeated(of: &TensorDesc, desc: &TensorDesc) -> bool {
    of.dtype() == desc.dtype() && (of.span_bytes() == desc.span_bytes() || desc.is_empty())
}

/// Whether steps keep what roles promise.
///
/// # Errors
/// What they do not keep.
pub fn check(forward: &AnyDescriptor, steps: &[Step], arriving: &[&str], wanted: &[&str]) -> Result<()> {
    let of_forward = |name: &str| {
        forward.slots().iter().find(|slot| slot.name == name).with_context(|| format!("forward has no {name}"))
    };
    let (mut intermediates, mut found) = (Vec::<TensorDesc>::new(), BTreeSet::new());
    for step in steps {
        ensure!(step.roles.len() == step.descriptor.slots().len(), "{step:?}: not a role for each slot");
        // An intermediate is read once a step before has written it.
        let written = intermediates.len();
        for (slot, role) in step.slots() {
            let (is_read, desc) = (slot.access == Access::In, slot.desc);
            let holds = match role {
                Role::Forward(name) => {
                    let of = of_forward(name)?.desc;
                    is_read && (of == desc || (of.dims() != desc.dims() && is_repeated(&of, &desc)))
                }
                Role::GradientOf(name) => {
                    let of = of_forward(name)?.desc;
                    let is_whole = of.dims() == desc.dims() && of.dtype() == desc.dtype();
                    is_read && arriving.contains(name) && (is_whole || is_repeated(&of, &desc))
                }
                Role::GradientFor(inputs) => {
                    let mut fit = !is_read && !inputs.is_empty();
                    for input in inputs {
                        let of = of_forward(input)?.desc;
                        let mut extents = of.dims().iter().zip(desc.dims());
                        fit &= of.dtype() == desc.dtype() && of.rank() == desc.rank();
                        fit &= extents.all(|(of, own)| own == of || *own == 1);
                        fit &= wanted.contains(input) && found.insert(*input);
                    }
                    fit
                }
                Role::Intermediate(id) if is_read => {
                    *id < written && (intermediates[*id] == desc || is_repeated(&intermediates[*id], &desc))
                }
                Role::Intermediate(id) => {
                    intermediates.push(desc);
                    *id == intermediates.len() - 1
                }
            };
            ensure!(holds, "{step:?}: {} is not {role:?}", slot.name);
        }
    }
    ensure!(found.len() == wanted.len(), "the steps are for {found:?}, wanted are {wanted:?}");
    Ok(())
}
