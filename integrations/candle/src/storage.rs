//! Runs of plans on candle's memory: inputs are borrowed where they lie, outputs are new storages.

use std::sync::LazyLock;

use baracuda_ops::{
    Access, AnyDescriptor, AnyPlan, DType, Device, Element, Mem, MemMut, Operand, PlanCache, PlanOptions, Slot,
    TensorDesc, Workspace,
};
use candle_core::{CpuStorage, Error, Layout, Result, Storage};

use crate::error::{dtype, refused};

/// Plans of all devices, by device and descriptor.
static PLANS: LazyLock<PlanCache> = LazyLock::new(|| PlanCache::with_capacity(1024));

/// The host: one handle for all of candle's CPU devices, which are one.
static CPU: LazyLock<Device> = LazyLock::new(Device::cpu);

/// The plans that the functions of this crate have made, at most 1024: to look at what the cache has done, or to drop them.
pub fn plans() -> &'static PlanCache {
    &PLANS
}

/// A storage that an op reads, as candle passes it.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Cpu(&'a CpuStorage),
}

impl<'a> Source<'a> {
    /// # Errors
    /// The storage is of a device that this crate does not run on.
    pub(crate) fn of(op: &'static str, storage: &'a Storage) -> Result<Self> {
        match storage {
            Storage::Cpu(storage) => Ok(Self::Cpu(storage)),
            other => Err(elsewhere(op, &other.device())),
        }
    }
}

/// The device of baracuda-ops that stands for one of candle's.
///
/// # Errors
/// This crate does not run there.
pub(crate) fn device(op: &'static str, device: &candle_core::Device) -> Result<Device> {
    match device {
        candle_core::Device::Cpu => Ok(CPU.clone()),
        other => Err(elsewhere(op, other)),
    }
}

fn elsewhere(op: &'static str, device: &candle_core::Device) -> Error {
    Error::msg(format!("baracuda-candle {op}: runs on candle's CPU device, got {:?}", device.location())).bt()
}

/// A storage with the place of the first element.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) storage: Source<'a>,
    pub(crate) offset: usize,
}

/// How a tensor of candle lies, for a plan.
///
/// # Errors
/// The type is none of baracuda-ops, or there are more than 8 extents.
pub(crate) fn describe(op: &'static str, of: candle_core::DType, layout: &Layout) -> Result<TensorDesc> {
    let [dims, strides] =
        [layout.dims(), layout.stride()].map(|list| list.iter().map(|&n| n as u64).collect::<Vec<_>>());
    let of = dtype(op, of)?;
    let desc = TensorDesc::strided(of, &dims, &strides);
    // Plans promise alignment by the place in the storage, which begins at a multiple of what a type needs on the host, of 256 bytes on a GPU.
    let offset = layout.start_offset() as u64 * of.size_bytes();
    desc.and_then(|desc| desc.for_offset(offset)).map_err(refused(op))
}

/// The plan of a descriptor, from the cache if it has been made.
///
/// # Errors
/// What baracuda-ops refuses.
pub(crate) fn plan(op: &'static str, descriptor: &AnyDescriptor, device: &Device) -> Result<AnyPlan> {
    descriptor.cached_plan(&PLANS, device, &PlanOptions::default()).map_err(refused(op))
}

/// Runs an op: `inputs` in the order of the descriptor's slots, none where the slot is an output. The outputs are new storages, in the order of their
/// slots, each of as many elements as the slot spans.
///
/// # Errors
/// What baracuda-ops refuses, or a storage that ends before the operand does.
pub(crate) fn run(op: &'static str, descriptor: &AnyDescriptor, inputs: &[Option<Input<'_>>]) -> Result<Vec<Storage>> {
    let plan = plan(op, descriptor, &CPU)?;
    let written = |slot: &&Slot| slot.access != Access::In;
    let mut outputs = plan.slots().iter().filter(written).map(|slot| allocate(op, slot)).collect::<Result<Vec<_>>>()?;
    let mut fresh = outputs.iter_mut();
    let mut operands = Vec::with_capacity(inputs.len());
    for (slot, input) in plan.slots().iter().zip(inputs) {
        operands.push(match input {
            Some(Input { storage: Source::Cpu(storage), offset }) => read(op, storage, *offset, slot)?,
            None => write(op, fresh.next(), slot)?,
        });
    }
    let mut scratch = vec![0i64; elements(plan.workspace().bytes, DType::I64)];
    let workspace = if scratch.is_empty() { Workspace::none() } else { Workspace::new(&mut scratch) };
    plan.run(&mut CPU.queue(), &mut operands, workspace).map_err(refused(op))?;
    drop(operands);
    Ok(outputs.into_iter().map(Storage::Cpu).collect())
}

/// How many elements take so many bytes.
pub(crate) fn elements(bytes: u64, dtype: DType) -> usize {
    // What lies in memory has fewer than 2^63 bytes, which a usize of 64 bits holds; candle's shapes are of usize in any case.
    usize::try_from(bytes.div_ceil(dtype.size_bytes())).unwrap_or(usize::MAX)
}

/// A storage for the elements from a slot's first to its last.
fn allocate(op: &'static str, slot: &Slot) -> Result<CpuStorage> {
    fn zeros<T: Copy>(zero: T, slot: &Slot) -> Vec<T> {
        vec![zero; elements(slot.span_bytes, slot.desc.dtype())]
    }
    Ok(match slot.desc.dtype() {
        DType::F64 => CpuStorage::F64(zeros(0.0, slot)),
        DType::F32 => CpuStorage::F32(zeros(0.0, slot)),
        DType::F16 => CpuStorage::F16(zeros(half::f16::ZERO, slot)),
        DType::BF16 => CpuStorage::BF16(zeros(half::bf16::ZERO, slot)),
        DType::I64 => CpuStorage::I64(zeros(0, slot)),
        DType::I32 => CpuStorage::I32(zeros(0, slot)),
        DType::U32 => CpuStorage::U32(zeros(0, slot)),
        DType::U8 => CpuStorage::U8(zeros(0, slot)),
        other => return Err(mismatch(op, slot, other)),
    })
}

fn mismatch(op: &'static str, slot: &Slot, got: impl std::fmt::Debug) -> Error {
    let (name, expected) = (slot.name, slot.desc.dtype());
    Error::msg(format!("baracuda-candle {op}: operand {name} is {expected}, got {got:?}")).bt()
}

fn read<'a>(op: &'static str, storage: &'a CpuStorage, offset: usize, slot: &Slot) -> Result<Operand<'a>> {
    fn part<'a, T: Element>(op: &'static str, values: &'a [T], offset: usize, slot: &Slot) -> Result<Operand<'a>> {
        let count = elements(slot.span_bytes, slot.desc.dtype());
        let end = offset.saturating_add(count);
        match values.get(offset..end) {
            Some(values) => Ok(Mem::host(values).into()),
            None if count == 0 => Ok(Mem::host::<T>(&[]).into()),
            None => {
                let (name, held) = (slot.name, values.len());
                let words = format!("operand {name} ends at element {end} of a storage of {held}");
                Err(Error::msg(format!("baracuda-candle {op}: {words}")).bt())
            }
        }
    }
    match storage {
        CpuStorage::F64(values) => part(op, values, offset, slot),
        CpuStorage::F32(values) => part(op, values, offset, slot),
        CpuStorage::F16(values) => part(op, values, offset, slot),
        CpuStorage::BF16(values) => part(op, values, offset, slot),
        CpuStorage::I64(values) => part(op, values, offset, slot),
        CpuStorage::I32(values) => part(op, values, offset, slot),
        CpuStorage::U32(values) => part(op, values, offset, slot),
        CpuStorage::U8(values) => part(op, values, offset, slot),
        _ => Err(mismatch(op, slot, "a type that baracuda-ops does not have")),
    }
}

fn write<'a>(op: &'static str, storage: Option<&'a mut CpuStorage>, slot: &Slot) -> Result<Operand<'a>> {
    Ok(match storage {
        Some(CpuStorage::F64(values)) => MemMut::host(values).into(),
        Some(CpuStorage::F32(values)) => MemMut::host(values).into(),
        Some(CpuStorage::F16(values)) => MemMut::host(values).into(),
        Some(CpuStorage::BF16(values)) => MemMut::host(values).into(),
        Some(CpuStorage::I64(values)) => MemMut::host(values).into(),
        Some(CpuStorage::I32(values)) => MemMut::host(values).into(),
        Some(CpuStorage::U32(values)) => MemMut::host(values).into(),
        Some(CpuStorage::U8(values)) => MemMut::host(values).into(),
        _ => return Err(mismatch(op, slot, "no storage")),
    })
}
