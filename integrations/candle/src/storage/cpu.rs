//! Runs on candle's CPU device.

use std::sync::LazyLock;

use baracuda_ops::{AnyDescriptor, DType, Device, Element, Mem, MemMut, Operand, Slot, Workspace};
use candle_core::backend::BackendDevice;
use candle_core::cpu_backend::CpuDevice;
use candle_core::{CpuStorage, Result, Storage};

use super::{Input, Source, elements, is_written, mismatch, plan, span, too_short};
use crate::error::{refused, stored_dtype};

/// The host: one handle for all of candle's CPU devices, which are one.
static CPU: LazyLock<Device> = LazyLock::new(Device::cpu);

pub(super) fn device() -> Device {
    CPU.clone()
}

pub(super) fn run(op: &'static str, descriptor: &AnyDescriptor, inputs: &[Option<Input<'_>>]) -> Result<Vec<Storage>> {
    let plan = plan(op, descriptor, &CPU)?;
    let allocate = |slot: &Slot| CpuDevice.zeros_impl(&span(slot).into(), stored_dtype(op, slot.desc.dtype())?);
    let mut outputs = plan.slots().iter().filter(is_written).map(allocate).collect::<Result<Vec<_>>>()?;
    let mut fresh = outputs.iter_mut();
    let mut operands = Vec::with_capacity(inputs.len());
    for (slot, input) in plan.slots().iter().zip(inputs) {
        operands.push(match (input, slot.access) {
            (Some(Input { storage: Source::Cpu(storage), offset }), _) => read(op, storage, *offset, slot)?,
            _ => write(op, fresh.next(), slot)?,
        });
    }
    let mut scratch = vec![0i64; elements(plan.workspace().bytes, DType::I64)];
    let workspace = if scratch.is_empty() { Workspace::none() } else { Workspace::new(&mut scratch) };
    plan.run(&mut CPU.queue(), &mut operands, workspace).map_err(refused(op))?;
    drop(operands);
    Ok(outputs.into_iter().map(Storage::Cpu).collect())
}

fn read<'a>(op: &'static str, storage: &'a CpuStorage, offset: usize, slot: &Slot) -> Result<Operand<'a>> {
    fn part<'a, T: Element>(op: &'static str, values: &'a [T], offset: usize, slot: &Slot) -> Result<Operand<'a>> {
        let count = span(slot);
        let offset = if count == 0 { 0 } else { offset };
        let part = values.get(offset..offset.saturating_add(count));
        part.map(|part| Mem::host(part).into()).ok_or_else(|| too_short(op, slot, offset, values.len()))
    }
    elements_of!(op, slot, CpuStorage, storage, values => part(op, values, offset, slot)?)
}

fn write<'a>(op: &'static str, storage: Option<&'a mut CpuStorage>, slot: &Slot) -> Result<Operand<'a>> {
    let storage = storage.ok_or_else(|| mismatch(op, slot, "no storage"))?;
    elements_of!(op, slot, CpuStorage, storage, values => MemMut::host(values).into())
}
