//! Devices, queues and owned buffers. Each backend is one folder with the same items in the same order.

use std::fmt;
use std::num::NonZeroUsize;

use crate::dtype::{DType, Element};
use crate::error::{Error, Result, Start};
use crate::slots::MAX_SLOTS;
use crate::tensor::TensorDesc;

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(feature = "wgpu")]
pub(crate) mod wgpu;

/// What errors of downloads name as the op.
const DOWNLOAD: &str = "download";

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Backend {
    /// The reference, on the host.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
    /// What wgpu reaches: Vulkan, Metal, DX12.
    Wgpu,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Wgpu => "wgpu",
        })
    }
}

/// What the choice of a kernel may depend on: plain data from [`Device::props`], which may outlive the device.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceProps {
    /// The host.
    Cpu,
    /// A CUDA device.
    #[cfg(feature = "cuda")]
    Cuda(cuda::Props),
    /// A wgpu device.
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::Props),
}

impl DeviceProps {
    /// The kind of device.
    pub fn backend(&self) -> Backend {
        match self {
            Self::Cpu => Backend::Cpu,
            #[cfg(feature = "cuda")]
            Self::Cuda(_) => Backend::Cuda,
            #[cfg(feature = "wgpu")]
            Self::Wgpu(_) => Backend::Wgpu,
        }
    }

    /// Devices of every kind, to check choices where there are none.
    #[doc(hidden)]
    pub fn examples() -> Vec<Self> {
        #[allow(unused_mut, reason = "only the GPU features add devices")]
        let mut examples = vec![Self::Cpu];
        #[cfg(feature = "cuda")]
        examples.extend(cuda::Props::examples().map(Self::Cuda));
        #[cfg(feature = "wgpu")]
        examples.extend(wgpu::Variants::devices().map(Self::Wgpu));
        examples
    }
}

impl fmt::Display for DeviceProps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            #[cfg(feature = "cuda")]
            Self::Cuda(props) => props.fmt(f),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(props) => props.fmt(f),
        }
    }
}

/// A device on which plans are built: a handle that is cheap to clone.
///
/// It keeps the pipelines or modules that plans compiled on it until the last handle is dropped, plans and buffers included. They are
/// few, whatever shapes come and go: of extents they know some small numbers at most.
///
/// Two handles are equal if plans, queues and buffers of one work with the other: on CUDA if they share a context, on wgpu if one was
/// cloned from the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Device(pub(crate) DeviceKind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DeviceKind {
    Cpu(cpu::threads::Limit),
    #[cfg(feature = "cuda")]
    Cuda(cuda::Device),
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::Device),
}

impl Device {
    /// The best device of this machine: CUDA, then a wgpu adapter that is not a CPU, then the CPU. Decided here, once: no op moves to
    /// another device by itself.
    pub fn best() -> Self {
        #[cfg(feature = "cuda")]
        if let Some(device) = Self::cuda_all().next() {
            return device;
        }
        #[cfg(feature = "wgpu")]
        if let Some(device) = Self::wgpu_all().into_iter().find(|d| !d.is_software()) {
            return device;
        }
        Self::cpu()
    }

    /// Every device of this machine: the CPU, then CUDA, then wgpu.
    pub fn all() -> Vec<Self> {
        #[allow(unused_mut, reason = "only the GPU features add devices")]
        let mut devices = vec![Self::cpu()];
        #[cfg(feature = "cuda")]
        devices.extend(Self::cuda_all());
        #[cfg(feature = "wgpu")]
        devices.extend(Self::wgpu_all());
        devices
    }

    /// The host. A run returns when it is done; a large one takes every core that the process may run on.
    pub fn cpu() -> Self {
        Self(DeviceKind::Cpu(cpu::threads::Limit::NONE))
    }

    /// The host, with at most `threads` threads for a run of its queues, the one that calls `run` among them.
    ///
    /// It is equal to [`cpu`](Self::cpu): plans and buffers of either serve on a queue of the other, and results have the same bits. Which
    /// queue a plan runs on decides how many threads it has.
    pub fn cpu_with(threads: NonZeroUsize) -> Self {
        Self(DeviceKind::Cpu(cpu::threads::Limit::new(threads)))
    }

    /// CUDA device `ordinal`, in its primary context, which most libraries share.
    ///
    /// # Errors
    /// [`Error::NoDevice`] without a driver or such a device, [`Error::NoKernelImage`] if the kernels were not compiled for it.
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: u32) -> Result<Self> {
        cuda::Device::primary(ordinal).map(|d| Self(DeviceKind::Cuda(d)))
    }

    /// Every CUDA device that the kernels were compiled for: one that they were not hides none after it.
    #[cfg(feature = "cuda")]
    fn cuda_all() -> impl Iterator<Item = Self> {
        (0..cuda::count().unwrap_or(0)).filter_map(|ordinal| Self::cuda(ordinal).ok())
    }

    /// A CUDA context of the caller. Make it once and clone the handle: each call asks the driver for the device's properties. Devices of
    /// one context are equal, but each prepares the kernels of its plans for itself.
    ///
    /// # Safety
    /// - `context` is a `CUcontext` that stays valid until the last clone of the device, and everything made from it, is dropped.
    ///
    /// # Errors
    /// [`Error::NoDevice`] without a driver, [`Error::NoKernelImage`] if the kernels were not compiled for its GPU.
    #[cfg(feature = "cuda")]
    pub unsafe fn cuda_context(context: *mut std::ffi::c_void) -> Result<Self> {
        // SAFETY: the caller's promise is the same.
        unsafe { cuda::Device::borrowed(context) }.map(|d| Self(DeviceKind::Cuda(d)))
    }

    /// A wgpu device and its queue, both of the caller.
    ///
    /// Make it once and clone the handle: each call is a device of its own, with its own pipelines and order of submission, and plans,
    /// queues and buffers of one are refused by another. Should the device be lost, wgpu tells the caller's callback.
    ///
    /// Queues of [`queue`](Self::queue) only record; see there for what submits. Until then the caller's own submissions overtake what
    /// they hold.
    ///
    /// Waits for the work that the queue was given before.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if the queue is that of another wgpu device, [`Error::NoDevice`] if the device was requested with limits
    /// that leave no room for compute shaders, [`Error::DeviceLost`] if it is lost or destroyed, [`Error::OutOfMemory`] if it cannot hold
    /// the few bytes that every plan shares.
    #[cfg(feature = "wgpu")]
    pub fn wgpu(device: &::wgpu::Device, queue: &::wgpu::Queue) -> Result<Self> {
        wgpu::Device::borrowed(device, queue).map(|d| Self(DeviceKind::Wgpu(d)))
    }

    /// The wgpu device and queue, on wgpu: to make buffers and encoders for [`Mem::wgpu`](crate::Mem::wgpu) and [`Queue::wgpu`] on a
    /// device of the library. What is submitted to the queue overtakes what queues of [`queue`](Self::queue) have recorded: flush them
    /// first.
    #[cfg(feature = "wgpu")]
    pub fn wgpu_handles(&self) -> Option<(&::wgpu::Device, &::wgpu::Queue)> {
        match &self.0 {
            DeviceKind::Wgpu(device) => Some(device.handles()),
            _ => None,
        }
    }

    /// The best wgpu adapter of this machine: one that is not a CPU if there is one.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no adapter.
    #[cfg(feature = "wgpu")]
    pub fn wgpu_default() -> Result<Self> {
        wgpu::Device::best().map(|d| Self(DeviceKind::Wgpu(d)))
    }

    /// Every wgpu adapter of this machine, those that are not CPUs first; all from one `Instance`.
    #[cfg(feature = "wgpu")]
    pub fn wgpu_all() -> Vec<Self> {
        wgpu::Device::all().into_iter().map(|d| Self(DeviceKind::Wgpu(d))).collect()
    }

    /// The kind of device.
    pub fn backend(&self) -> Backend {
        match &self.0 {
            DeviceKind::Cpu(_) => Backend::Cpu,
            #[cfg(feature = "cuda")]
            DeviceKind::Cuda(_) => Backend::Cuda,
            #[cfg(feature = "wgpu")]
            DeviceKind::Wgpu(_) => Backend::Wgpu,
        }
    }

    /// Whether the device computes on the host's processor.
    pub fn is_software(&self) -> bool {
        match &self.0 {
            DeviceKind::Cpu(_) => true,
            #[cfg(feature = "cuda")]
            DeviceKind::Cuda(_) => false,
            #[cfg(feature = "wgpu")]
            DeviceKind::Wgpu(device) => device.props().is_cpu,
        }
    }

    /// What the choice of a kernel may depend on.
    pub fn props(&self) -> DeviceProps {
        match &self.0 {
            DeviceKind::Cpu(_) => DeviceProps::Cpu,
            #[cfg(feature = "cuda")]
            DeviceKind::Cuda(device) => DeviceProps::Cuda(device.props().clone()),
            #[cfg(feature = "wgpu")]
            DeviceKind::Wgpu(device) => DeviceProps::Wgpu(device.props().clone()),
        }
    }

    /// `bytes` bytes of zeros, for elements of any type.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::BufferTooLarge`] above the limit of a wgpu device, [`Error::DeviceLost`], or what the driver
    /// said.
    pub fn alloc(&self, bytes: u64) -> Result<Buffer> {
        let memory = match &self.0 {
            DeviceKind::Cpu(_) => Memory::Cpu(cpu::Memory::zeroed(bytes)?),
            #[cfg(feature = "cuda")]
            DeviceKind::Cuda(device) => Memory::Cuda(device.alloc(bytes)?),
            #[cfg(feature = "wgpu")]
            DeviceKind::Wgpu(device) => Memory::Wgpu(device.alloc(bytes)?),
        };
        Ok(Buffer { device: self.clone(), memory, bytes, dtype: None })
    }

    /// Zeros for a tensor: as many bytes as its layout spans, of its element type alone. Runs that take the buffer for an operand of another
    /// type are refused, and so are downloads as another type.
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Error, TensorDesc};
    /// let device = Device::cpu();
    /// let tensor = device.alloc_for(&TensorDesc::contiguous(DType::BF16, &[2, 3])?)?;
    /// assert_eq!((tensor.bytes(), tensor.dtype()), (12, Some(DType::BF16)));
    /// assert!(matches!(device.queue().download::<f32>(&tensor), Err(Error::WrongDType { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_for(&self, desc: &TensorDesc) -> Result<Buffer> {
        let buffer = self.alloc(desc.span_bytes())?;
        Ok(Buffer { dtype: Some(desc.dtype()), ..buffer })
    }

    /// A buffer with the elements of a slice. Runs take it for operands of that type alone; [`alloc`](Self::alloc) and
    /// [`write`](Self::write) make memory for any.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn upload<T: Element>(&self, elements: &[T]) -> Result<Buffer> {
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        let mut buffer = self.alloc(bytes.len() as u64)?;
        buffer.dtype = Some(T::DTYPE);
        self.write(&buffer, 0, bytes)?;
        Ok(buffer)
    }

    /// Writes bytes into a buffer of this device, ordered after what its owned queues were given before.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if the buffer is elsewhere, [`Error::TooSmall`] if the bytes do not fit,
    /// [`Error::BufferInUse`] on the CPU, or what the driver said.
    pub fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        self.holds(buffer, "write", offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        match (&self.0, &buffer.memory) {
            (DeviceKind::Cpu(_), Memory::Cpu(memory)) => memory.write(offset, bytes),
            #[cfg(feature = "cuda")]
            (DeviceKind::Cuda(device), Memory::Cuda(memory)) => device.write(memory, offset, bytes),
            #[cfg(feature = "wgpu")]
            (DeviceKind::Wgpu(device), Memory::Wgpu(memory)) => device.write(memory, offset, bytes),
            #[cfg(any(feature = "cuda", feature = "wgpu"))]
            _ => Err(self.mismatch("write", buffer)),
        }
    }

    /// Writes elements into a buffer of this device, from the element `at` on, ordered as [`write`](Self::write).
    ///
    /// ```
    /// use baracuda_ops::Device;
    /// let device = Device::cpu();
    /// let tensor = device.upload(&[1f32, 2.0, 3.0])?;
    /// device.write_slice(&tensor, 1, &[7f32, 8.0])?;
    /// assert_eq!(device.queue().download::<f32>(&tensor)?, [1.0, 7.0, 8.0]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDType`] if the buffer holds elements of another type, else as [`write`](Self::write).
    pub fn write_slice<T: Element>(&self, buffer: &Buffer, at: u64, elements: &[T]) -> Result<()> {
        if let Some(expected) = buffer.dtype.filter(|&dtype| dtype != T::DTYPE) {
            return Err(Error::WrongDType { op: "write", operand: "buffer", expected, got: T::DTYPE });
        }
        self.write(buffer, at.saturating_mul(size_of::<T>() as u64), bytemuck::cast_slice(elements))
    }

    /// The queue of the owned layer. All owned queues of a device share one order: a run sees what runs before it, on any of them, have
    /// written.
    ///
    /// On wgpu runs are recorded. [`Queue::flush`], [`Queue::finish`], [`Queue::download`], [`write`](Self::write), dropping a queue, and
    /// some hundreds of dispatches submit what all owned queues of the device have recorded. What the caller submits to a borrowed
    /// device in the meantime overtakes that: call [`Queue::flush`] before it.
    pub fn queue(&self) -> Queue<'static> {
        let kind = match &self.0 {
            DeviceKind::Cpu(limit) => QueueKind::Cpu(*limit),
            #[cfg(feature = "cuda")]
            DeviceKind::Cuda(device) => QueueKind::Cuda(device.queue()),
            #[cfg(feature = "wgpu")]
            DeviceKind::Wgpu(device) => QueueKind::Wgpu(device.queue()),
        };
        Queue { device: self.clone(), kind }
    }

    fn holds(&self, buffer: &Buffer, op: &'static str, offset: u64, bytes: u64) -> Result<()> {
        if buffer.device != *self {
            return Err(self.mismatch(op, buffer));
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= buffer.bytes => Ok(()),
            _ => Err(Error::TooSmall {
                op,
                operand: "buffer",
                need_bytes: bytes,
                got_bytes: buffer.bytes.saturating_sub(offset),
                offset,
                buffer_bytes: Some(buffer.bytes),
            }),
        }
    }

    fn mismatch(&self, op: &'static str, buffer: &Buffer) -> Error {
        let (expected, got) = (self.to_string(), buffer.device.to_string());
        Error::WrongDevice { op, operand: "buffer", expected, got }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            DeviceKind::Cpu(_) => f.write_str("cpu"),
            #[cfg(feature = "cuda")]
            DeviceKind::Cuda(device) => device.fmt(f),
            #[cfg(feature = "wgpu")]
            DeviceKind::Wgpu(device) => device.fmt(f),
        }
    }
}

/// Device memory that the library owns: a handle that is cheap to clone; the memory is freed when the last clone is dropped and the
/// work that uses it has completed.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub(crate) device: Device,
    pub(crate) memory: Memory,
    pub(crate) bytes: u64,
    pub(crate) dtype: Option<DType>,
}

#[derive(Clone, Debug)]
pub(crate) enum Memory {
    Cpu(cpu::Memory),
    #[cfg(feature = "cuda")]
    Cuda(cuda::Memory),
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::Memory),
}

impl Buffer {
    /// The device that holds the memory.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The element type that it was [uploaded](Device::upload) with or [allocated for](Device::alloc_for), if any.
    pub fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// The address of the first byte, on CUDA.
    #[cfg(feature = "cuda")]
    pub fn cuda_address(&self) -> Option<u64> {
        match &self.memory {
            Memory::Cuda(memory) => Some(memory.address()),
            _ => None,
        }
    }

    /// The wgpu buffer, on wgpu.
    #[cfg(feature = "wgpu")]
    pub fn wgpu_buffer(&self) -> Option<&::wgpu::Buffer> {
        match &self.memory {
            Memory::Wgpu(memory) => Some(memory.buffer()),
            _ => None,
        }
    }
}

/// Where runs are enqueued.
#[derive(Debug)]
pub struct Queue<'q> {
    pub(crate) device: Device,
    pub(crate) kind: QueueKind<'q>,
}

#[derive(Debug)]
pub(crate) enum QueueKind<'q> {
    /// The lifetime is that of a borrowed encoder or pass, which only wgpu has.
    Cpu(cpu::threads::Limit),
    #[cfg(feature = "cuda")]
    Cuda(cuda::Queue),
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::Queue<'q>),
    #[cfg(not(feature = "wgpu"))]
    #[expect(dead_code, reason = "names the lifetime in builds whose queues borrow nothing")]
    Borrowed(std::convert::Infallible, std::marker::PhantomData<&'q ()>),
}

impl<'q> Queue<'q> {
    /// A stream of the caller, capturing or not.
    ///
    /// # Safety
    /// - `stream` is a `CUstream` of the device's context that stays valid while the queue exists;
    /// - owned buffers used on it stay alive until that work has completed, and that work is ordered with the owned queue.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if the device is not a CUDA device or the stream belongs to another context.
    #[cfg(feature = "cuda")]
    pub unsafe fn cuda(device: &Device, stream: *mut std::ffi::c_void) -> Result<Self> {
        let DeviceKind::Cuda(cuda) = &device.0 else {
            return Err(foreign_queue(device, "a CUDA device"));
        };
        // SAFETY: the caller's promise is the same.
        let queue = unsafe { cuda.borrowed_queue(stream) }?;
        Ok(Self { device: device.clone(), kind: QueueKind::Cuda(queue) })
    }

    /// A command encoder that the caller made on the device: one compute pass for all runs, ended when the queue is dropped. Nothing is
    /// submitted.
    ///
    /// What wgpu refuses of a pass it tells when the caller finishes the encoder (`CommandEncoder::finish`), not before. So runs answer `Ok` although
    /// the encoder is inside of another pass, has been finished, or takes no more commands after an error.
    ///
    /// The encoder is of the device's own wgpu `Instance`. One of another device of it wgpu refuses when the encoder is finished; in one
    /// of another instance wgpu takes pipelines and bind groups for whichever of its own have the same numbers, or panics.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if the device is not a wgpu device, [`Error::Backend`] if wgpu refuses to begin the pass.
    #[cfg(feature = "wgpu")]
    pub fn wgpu(device: &Device, encoder: &'q mut ::wgpu::CommandEncoder) -> Result<Self> {
        let DeviceKind::Wgpu(wgpu) = &device.0 else { return Err(foreign_queue(device, "a wgpu device")) };
        Ok(Self { device: device.clone(), kind: QueueKind::Wgpu(wgpu::Queue::encoder(wgpu, encoder)?) })
    }

    /// A compute pass of the caller, as [`wgpu`](Self::wgpu) takes an encoder, of the same instance. Nothing is ended or submitted, and runs into a pass
    /// that has ended answer `Ok`: wgpu tells of it when the encoder is finished.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if the device is not a wgpu device.
    #[cfg(feature = "wgpu")]
    pub fn wgpu_pass(device: &Device, pass: &'q mut ::wgpu::ComputePass<'static>) -> Result<Self> {
        let DeviceKind::Wgpu(_) = device.0 else { return Err(foreign_queue(device, "a wgpu device")) };
        Ok(Self { device: device.clone(), kind: QueueKind::Wgpu(wgpu::Queue::pass(pass)) })
    }

    /// The queue's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Submits what was enqueued, and does not wait. Where a run starts by itself, on CUDA and the CPU, there is nothing to do.
    ///
    /// # Errors
    /// [`Error::Unsubmitted`] on a borrowed encoder or pass, which its owner submits. On wgpu, as [`finish`](Self::finish) but for
    /// [`Error::DeviceLost`], which is known later.
    pub fn flush(&mut self) -> Result<()> {
        match &mut self.kind {
            QueueKind::Cpu(_) => Ok(()),
            #[cfg(feature = "cuda")]
            QueueKind::Cuda(_) => Ok(()),
            #[cfg(feature = "wgpu")]
            QueueKind::Wgpu(queue) => queue.flush(),
            #[cfg(not(feature = "wgpu"))]
            QueueKind::Borrowed(never, _) => match *never {},
        }
    }

    /// Submits what was enqueued and waits for it.
    ///
    /// # Errors
    /// [`Error::Unsubmitted`] on a borrowed encoder or pass, which its owner submits; [`Error::DeviceLost`]; or what the driver said, on
    /// CUDA possibly of work enqueued earlier by others. On wgpu a run is lost if a buffer of it has been destroyed or mapped before it was
    /// submitted, and no other is. The first such error of a queue is returned once, to the queue, or if it has been dropped, to
    /// the next one of the device that asks.
    pub fn finish(&mut self) -> Result<()> {
        match &mut self.kind {
            QueueKind::Cpu(_) => Ok(()),
            #[cfg(feature = "cuda")]
            QueueKind::Cuda(queue) => queue.finish(),
            #[cfg(feature = "wgpu")]
            QueueKind::Wgpu(queue) => queue.finish(),
            #[cfg(not(feature = "wgpu"))]
            QueueKind::Borrowed(never, _) => match *never {},
        }
    }

    /// The elements of a buffer, after everything enqueued before.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if the buffer is elsewhere, [`Error::WrongDType`] if it was uploaded as another type,
    /// [`Error::TooSmall`] if it ends inside an element, [`Error::Unsubmitted`] on a borrowed encoder or pass, the errors of
    /// [`finish`](Self::finish), [`Error::BufferInUse`] on the CPU, [`Error::OutOfMemory`] of the host's memory, or what the driver said.
    pub fn download<T: Element>(&mut self, buffer: &Buffer) -> Result<Vec<T>> {
        self.holds_readable::<T>(buffer, 0, 0)?;
        let (got_bytes, size) = (buffer.bytes, size_of::<T>() as u64);
        if !got_bytes.is_multiple_of(size) {
            let need_bytes = got_bytes.div_ceil(size).saturating_mul(size);
            let (operand, offset, buffer_bytes) = ("buffer", 0, Some(got_bytes));
            return Err(Error::TooSmall { op: DOWNLOAD, operand, need_bytes, got_bytes, offset, buffer_bytes });
        }
        let out_of_memory = || Error::OutOfMemory { device: "cpu".into(), bytes: got_bytes };
        let count = usize::try_from(got_bytes / size).map_err(|_| out_of_memory())?;
        let mut elements = Vec::new();
        elements.try_reserve_exact(count).map_err(|_| out_of_memory())?;
        elements.resize(count, T::zeroed());
        self.download_range(buffer, 0, &mut elements)?;
        Ok(elements)
    }

    /// Fills `elements` from a buffer, from the byte `offset` on, after everything enqueued before. No other bytes of the buffer are
    /// copied, but on wgpu those of the words of 4 bytes in which the range begins and ends.
    ///
    /// ```
    /// use baracuda_ops::Device;
    /// let device = Device::cpu();
    /// let losses = device.upload(&[0.5f32, 0.25, 0.125])?;
    /// let mut last = [0f32];
    /// device.queue().download_range(&losses, 8, &mut last)?;
    /// assert_eq!(last, [0.125]);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misaligned`] if `offset` is not a multiple of the element's size, [`Error::TooSmall`] if the range ends outside the
    /// buffer, else as [`download`](Self::download); what `elements` hold is then unspecified.
    pub fn download_range<T: Element>(&mut self, buffer: &Buffer, offset: u64, elements: &mut [T]) -> Result<()> {
        self.holds_readable::<T>(buffer, offset, size_of_val(elements) as u64)?;
        self.finish()?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(elements);
        if bytes.is_empty() {
            return Ok(());
        }
        match (&self.device.0, &buffer.memory) {
            (DeviceKind::Cpu(_), Memory::Cpu(memory)) => memory.read(offset, bytes),
            #[cfg(feature = "cuda")]
            (DeviceKind::Cuda(device), Memory::Cuda(memory)) => device.read(memory, offset, bytes),
            #[cfg(feature = "wgpu")]
            (DeviceKind::Wgpu(device), Memory::Wgpu(memory)) => device.read(memory, offset, bytes),
            #[cfg(any(feature = "cuda", feature = "wgpu"))]
            _ => Err(self.device.mismatch(DOWNLOAD, buffer)),
        }
    }

    /// Refuses what cannot be downloaded as elements of `T`: `bytes` bytes of a buffer from `offset` on.
    fn holds_readable<T: Element>(&self, buffer: &Buffer, offset: u64, bytes: u64) -> Result<()> {
        const BUFFER: &str = "buffer";
        self.device.holds(buffer, DOWNLOAD, offset, bytes)?;
        if let Some(got) = buffer.dtype.filter(|&d| d != T::DTYPE) {
            return Err(Error::WrongDType { op: DOWNLOAD, operand: BUFFER, expected: T::DTYPE, got });
        }
        let need_bytes = size_of::<T>() as u64;
        if !offset.is_multiple_of(need_bytes) {
            let (start, detail) = (Start::Offset(offset), "; that is an element, and offsets are bytes");
            return Err(Error::Misaligned { op: DOWNLOAD, operand: BUFFER, need_bytes, start, detail });
        }
        #[cfg(feature = "wgpu")]
        if matches!(&self.kind, QueueKind::Wgpu(queue) if queue.is_borrowed()) {
            return Err(Error::Unsubmitted { op: DOWNLOAD });
        }
        Ok(())
    }
}

/// A queue of the caller's for a device of another kind.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn foreign_queue(device: &Device, expected: &str) -> Error {
    Error::WrongDevice { op: "queue", operand: "queue", expected: expected.into(), got: device.to_string() }
}

/// Where a checked operand lies: a range of addresses, or of one wgpu buffer; empty if the operand is absent or has no elements.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Location<'a> {
    #[cfg(feature = "wgpu")]
    pub(crate) buffer: Option<&'a ::wgpu::Buffer>,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Names the lifetime in builds whose locations borrow nothing.
    pub(crate) borrow: std::marker::PhantomData<&'a ()>,
}

impl Location<'_> {
    /// The address on the host or on CUDA; 0 if the range is empty.
    pub(crate) fn address(&self) -> u64 {
        self.start
    }

    /// The range of addresses alone, which borrows nothing.
    pub(crate) fn of_addresses(self) -> Location<'static> {
        Location { start: self.start, end: self.end, ..Location::default() }
    }
}

/// The checked operands at the indices of their rows, and the workspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Located<'a> {
    pub(crate) operands: [Location<'a>; MAX_SLOTS],
    /// The further ones, in the order of the slots.
    pub(crate) further: Further<'a>,
    pub(crate) workspace: Location<'a>,
}

/// Where further operands lie.
#[derive(Clone, Debug)]
pub(crate) enum Further<'a> {
    Own(Vec<Location<'a>>),
    /// In memory that a plan lends to a run.
    Lent(&'a [Location<'a>]),
}

impl Default for Further<'_> {
    fn default() -> Self {
        Self::Lent(&[])
    }
}

impl<'a> std::ops::Deref for Further<'a> {
    type Target = [Location<'a>];

    fn deref(&self) -> &[Location<'a>] {
        match self {
            Self::Own(locations) => locations,
            Self::Lent(locations) => locations,
        }
    }
}

impl<'a> Located<'a> {
    /// Where the operand of a slot lies.
    pub(crate) fn at(&self, index: usize) -> &Location<'a> {
        match index.checked_sub(MAX_SLOTS) {
            None => &self.operands[index],
            Some(at) => &self.further[at],
        }
    }

    /// The same, for backends whose locations are addresses and borrow nothing.
    pub(crate) fn addresses(&self) -> Located<'static> {
        Located {
            operands: self.operands.map(Location::of_addresses),
            further: Further::Own(self.further.iter().copied().map(Location::of_addresses).collect()),
            workspace: self.workspace.of_addresses(),
        }
    }
}
