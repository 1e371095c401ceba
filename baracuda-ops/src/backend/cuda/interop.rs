//! cudarc's contexts and streams as devices and queues. Nothing of the caller's is wrapped in an owning type.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use super::{Owner, Queue};
use crate::backend::{DeviceKind, QueueKind, foreign_queue};
use crate::error::Result;

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
