//! cudarc's contexts, streams and slices as devices, queues and operands. Nothing of the caller's is wrapped in an owning type.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};

use super::{Owner, Queue};
use crate::backend::{DeviceKind, QueueKind, foreign_queue};
use crate::error::Result;
use crate::memory::{Mem, MemMut};

/// cudarc memory lent to runs on one stream. Dropped after the run, it records for cudarc that the stream uses the memory, so that
/// other streams, and cudarc's own free, wait for it.
pub struct Lent<'a, M> {
    memory: M,
    _guard: SyncOnDrop<'a>,
}

impl<'a> Mem<'a> {
    /// A cudarc slice or view, read on `stream`.
    pub fn cudarc<T>(slice: &'a impl DevicePtr<T>, stream: &'a CudaStream) -> Lent<'a, Self> {
        let bytes = (slice.len() * size_of::<T>()) as u64;
        let (address, guard) = slice.device_ptr(stream);
        // SAFETY: the slice is borrowed for 'a, and cudarc frees it after the work that the guard records.
        Lent { memory: unsafe { Self::cuda(address, bytes) }, _guard: guard }
    }
}

impl<'a> MemMut<'a> {
    /// A cudarc slice or view, written on `stream`.
    pub fn cudarc<T>(slice: &'a mut impl DevicePtrMut<T>, stream: &'a CudaStream) -> Lent<'a, Self> {
        let bytes = (slice.len() * size_of::<T>()) as u64;
        let (address, guard) = slice.device_ptr_mut(stream);
        // SAFETY: as for reading; the slice is borrowed mutably.
        Lent { memory: unsafe { Self::cuda(address, bytes) }, _guard: guard }
    }
}

impl<'l> From<&'l Lent<'_, Mem<'_>>> for Mem<'l> {
    fn from(lent: &'l Lent<'_, Mem<'_>>) -> Self {
        lent.memory
    }
}

impl<'l> From<&'l mut Lent<'_, MemMut<'_>>> for MemMut<'l> {
    fn from(lent: &'l mut Lent<'_, MemMut<'_>>) -> Self {
        Self(lent.memory.0)
    }
}

impl crate::Device {
    /// The device of a cudarc context, which it keeps alive. Make it once and clone the handle: each call asks the driver for the device's
    /// properties. Devices of one context are equal, but each prepares the kernels of its plans for itself.
    ///
    /// # Errors
    /// As [`cuda`](Self::cuda).
    pub fn cudarc(context: &Arc<CudaContext>) -> Result<Self> {
        super::init()?;
        let device = super::Device::of_context(context.cu_ctx(), Owner::Cudarc(context.clone()))?;
        Ok(Self(DeviceKind::Cuda(device)))
    }
}

impl crate::Queue<'static> {
    /// A queue on a cudarc stream, which it keeps alive.
    ///
    /// # Errors
    /// As [`cuda`](crate::Queue::cuda).
    pub fn cudarc(device: &crate::Device, stream: &Arc<CudaStream>) -> Result<Self> {
        let DeviceKind::Cuda(cuda) = &device.0 else {
            return Err(foreign_queue(device, "a CUDA device"));
        };
        // SAFETY: the stream is alive, and the queue keeps it so.
        let queue = unsafe { cuda.borrowed_queue(stream.cu_stream().cast()) }?;
        Ok(Self { device: device.clone(), kind: QueueKind::Cuda(Queue { keep: Some(stream.clone()), ..queue }) })
    }
}
