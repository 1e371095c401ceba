//! Runs on candle's CUDA device: enqueued on its stream, with memory of its allocator.
//!
//! The stream of `Device::new_cuda` is the per-thread default stream, another one in each thread. As for candle's own ops, who hands a tensor to another thread
//! synchronises the device first.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use baracuda_ops::{AnyDescriptor, DType, Device, Mem, MemMut, Operand, Queue, Slot, Workspace};
use candle_core::backend::BackendDevice;
use candle_core::cuda_backend::CudaStorageSlice;
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut, SyncOnDrop};
use candle_core::{CudaDevice, CudaStorage, Result, Storage};

use super::{Input, Source, elements, is_written, mismatch, plan, span, too_short};
use crate::error::{refused, stored_dtype};

/// A device for each CUDA context, by its address. It keeps the context alive, which candle's devices of one GPU share: it is the GPU's primary one.
static DEVICES: LazyLock<Mutex<HashMap<usize, Device>>> = LazyLock::new(Mutex::default);

pub(super) fn device(op: &'static str, device: &CudaDevice) -> Result<Device> {
    let stream = device.cuda_stream();
    let address = stream.context().cu_ctx() as usize;
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = devices.get(&address) {
        return Ok(device.clone());
    }
    let device = Device::cudarc(stream.context()).map_err(refused(op))?;
    devices.insert(address, device.clone());
    Ok(device)
}

pub(super) fn run(
    op: &'static str,
    descriptor: &AnyDescriptor,
    on: &CudaDevice,
    inputs: &[Option<Input<'_>>],
) -> Result<Vec<Storage>> {
    let (device, stream) = (device(op, on)?, on.cuda_stream());
    let plan = plan(op, descriptor, &device)?;
    let allocate = |slot: &Slot| -> Result<CudaStorage> {
        let dtype = stored_dtype(op, slot.desc.dtype())?;
        // SAFETY: the run writes all elements of an output; what may lie between them is not read.
        unsafe { on.alloc_uninit(&span(slot).into(), dtype) }
    };
    let mut outputs = plan.slots().iter().filter(is_written).map(allocate).collect::<Result<Vec<_>>>()?;
    let scratch = elements(plan.workspace().bytes, DType::U8);
    // SAFETY: what a workspace holds does not matter.
    let mut scratch = if scratch > 0 { Some(unsafe { on.alloc::<u8>(scratch) }?) } else { None };
    {
        // What cudarc records of uses when these are dropped, after the run, is what other streams wait for.
        let mut uses = Vec::new();
        let mut fresh = outputs.iter_mut();
        let mut operands = Vec::with_capacity(inputs.len());
        for (slot, input) in plan.slots().iter().zip(inputs) {
            let (operand, used) = match input {
                Some(Input { storage: Source::Cuda(storage), offset }) => read(op, storage, *offset, slot, &stream)?,
                Some(_) => return Err(mismatch(op, slot, "memory of the host")),
                None => write(op, fresh.next(), slot, &stream)?,
            };
            operands.push(operand);
            uses.push(used);
        }
        let mut scratch = scratch.as_mut().map(|scratch| MemMut::cudarc(scratch, &stream));
        let workspace = scratch.as_mut().map_or_else(Workspace::none, Workspace::new);
        let mut queue = Queue::cudarc(&device, &stream).map_err(refused(op))?;
        plan.run(&mut queue, &mut operands, workspace).map_err(refused(op))?;
    }
    Ok(outputs.into_iter().map(Storage::Cuda).collect())
}

type Used<'a> = (Operand<'a>, SyncOnDrop<'a>);

fn read<'a>(
    op: &'static str,
    storage: &'a CudaStorage,
    offset: usize,
    slot: &Slot,
    stream: &'a CudaStream,
) -> Result<Used<'a>> {
    fn part<'a, T>(
        op: &'static str,
        values: &'a CudaSlice<T>,
        offset: usize,
        slot: &Slot,
        stream: &'a CudaStream,
    ) -> Result<Used<'a>> {
        let count = span(slot);
        let offset = if count == 0 { 0 } else { offset };
        let part = values.try_slice(offset..offset.saturating_add(count));
        let part = part.ok_or_else(|| too_short(op, slot, offset, values.len()))?;
        let (address, used) = part.view_ptr(stream);
        // SAFETY: the range is one of the slice, which is borrowed while the run is enqueued. cudarc frees it in the order of its stream.
        Ok((unsafe { Mem::cuda(address, slot.span_bytes) }.into(), used))
    }
    elements_of!(op, slot, CudaStorageSlice, &storage.slice, values => part(op, values, offset, slot, stream)?)
}

fn write<'a>(
    op: &'static str,
    storage: Option<&'a mut CudaStorage>,
    slot: &Slot,
    stream: &'a CudaStream,
) -> Result<Used<'a>> {
    let storage = storage.ok_or_else(|| mismatch(op, slot, "no storage"))?;
    let used = elements_of!(op, slot, CudaStorageSlice, &mut storage.slice, values => values.device_ptr_mut(stream));
    let (address, used) = used?;
    // SAFETY: the slice holds what the slot spans, and is borrowed mutably while the run is enqueued. cudarc frees it in the order of its stream.
    Ok((unsafe { MemMut::cuda(address, slot.span_bytes) }.into(), used))
}
