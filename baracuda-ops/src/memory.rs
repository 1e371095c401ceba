//! Operands: memory that is borrowed for one run.

use std::marker::PhantomData;

#[cfg(feature = "cuda")]
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};

use crate::backend::Buffer;
use crate::dtype::{DType, Element};
use crate::slots::MAX_SLOTS;

/// Memory that a run reads.
///
/// Made from a [`Buffer`], a host slice, a wgpu buffer or a CUDA address; [`Mem::in_place`] stands for the memory of the operand's
/// in-place partner.
#[derive(Clone, Copy, Debug)]
pub struct Mem<'a>(pub(crate) View<'a>);

/// Memory that a run writes. Of host memory it is as exclusive as the slice it was made from.
#[derive(Debug)]
pub struct MemMut<'a>(pub(crate) View<'a>);

/// An operand in slot order, for [`AnyPlan::run`](crate::AnyPlan::run).
///
/// Operands are made once and passed to any number of runs, one after the other:
///
/// ```
/// # use baracuda_ops::{DType, Device, Mem, MemMut, Operand, Plan, PlanOptions, SoftmaxDescriptor, TensorDesc, Workspace};
/// # let device = Device::cpu();
/// # let x = TensorDesc::contiguous(DType::F32, &[1, 2])?;
/// # let plan = Plan::new(&device, SoftmaxDescriptor::new(x, 1)?, &PlanOptions::default())?.erase();
/// let (x, mut y) = ([0f32, 0.0], [0f32; 2]);
/// let mut operands: [Operand; 2] = [Mem::host(&x).into(), MemMut::host(&mut y).into()];
/// for _ in 0..3 {
///     plan.run(&mut device.queue(), &mut operands, Workspace::none())?;
/// }
/// assert_eq!(y, [0.5, 0.5]);
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
///
/// They are not `Copy`, and a run has them for itself, so that no two runs write the same host memory at once:
///
/// ```compile_fail,E0499
/// # use baracuda_ops::{DType, Device, Mem, MemMut, Operand, Plan, PlanOptions, SoftmaxDescriptor, TensorDesc, Workspace};
/// # let device = Device::cpu();
/// # let x = TensorDesc::contiguous(DType::F32, &[1, 2])?;
/// # let plan = Plan::new(&device, SoftmaxDescriptor::new(x, 1)?, &PlanOptions::default())?.erase();
/// let (x, mut y) = ([0f32, 0.0], [0f32; 2]);
/// let mut operands: [Operand; 2] = [Mem::host(&x).into(), MemMut::host(&mut y).into()];
/// std::thread::scope(|scope| {
///     scope.spawn(|| plan.run(&mut device.queue(), &mut operands, Workspace::none()));
///     scope.spawn(|| plan.run(&mut device.queue(), &mut operands, Workspace::none())); // borrowed mutably twice
/// });
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
///
/// ```compile_fail,E0382
/// # use baracuda_ops::{MemMut, Operand};
/// # let mut y = [0f32; 2];
/// let operand = Operand::from(MemMut::host(&mut y));
/// let twice = [operand, operand]; // moved
/// ```
#[derive(Debug)]
pub struct Operand<'a>(pub(crate) View<'a>);

/// The operand is copied only while what it was taken from is borrowed or consumed, so that a copy of a `MemMut` outlives no run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) bytes: u64,
    pub(crate) dtype: Option<DType>,
    pub(crate) is_writable: bool,
    borrow: PhantomData<&'a [u8]>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// The memory of the in-place partner.
    Partner,
    Host(HostAddress),
    Buffer {
        buffer: &'a Buffer,
        offset: u64,
    },
    #[cfg(feature = "cuda")]
    Cuda(u64),
    #[cfg(feature = "wgpu")]
    Wgpu {
        buffer: &'a ::wgpu::Buffer,
        offset: u64,
    },
}

/// Where elements of a slice, or bytes, begin; never null.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostAddress(*mut u8);

impl HostAddress {
    pub(crate) fn address(self) -> u64 {
        self.0 as u64
    }
}

// SAFETY: the memory is that of a slice of bytes or of `Element`s, plain data that any thread may read or write. It is borrowed for the
// lifetime of the `View`: shared in `Mem`, which is as `Send` and `Sync` as `&[T]`; exclusively in `MemMut`, `Operand`, `Workspace` and what
// they are parts of, which are as `Send` as `&mut [T]`. A shared reference to these gives no access to the memory.
unsafe impl Send for HostAddress {}
// SAFETY: as for Send.
unsafe impl Sync for HostAddress {}

impl<'a> View<'a> {
    fn new(place: Place<'a>, bytes: u64, dtype: Option<DType>, is_writable: bool) -> Self {
        Self { place, bytes, dtype, is_writable, borrow: PhantomData }
    }
}

impl<'a> Mem<'a> {
    /// The elements of a slice, for plans on the CPU.
    pub fn host<T: Element>(elements: &'a [T]) -> Self {
        let place = Place::Host(HostAddress(elements.as_ptr().cast::<u8>().cast_mut()));
        Self(View::new(place, size_of_val(elements) as u64, Some(T::DTYPE), false))
    }

    /// Bytes that hold elements of the operand's type, for plans on the CPU; their alignment is checked by the run.
    pub fn host_bytes(bytes: &'a [u8]) -> Self {
        let place = Place::Host(HostAddress(bytes.as_ptr().cast_mut()));
        Self(View::new(place, bytes.len() as u64, None, false))
    }

    /// The memory of the operand's in-place partner: `x` where `y` is, for instance.
    pub fn in_place() -> Self {
        Self(View::new(Place::Partner, 0, None, false))
    }

    /// `bytes` bytes of a buffer from `offset` on. A run refuses a range in which the operand, from its first byte to its last, does not
    /// lie inside the buffer, and an offset that breaks the promise of its descriptor, which
    /// [`TensorDesc::for_offset`](crate::TensorDesc::for_offset) lowers.
    pub fn buffer(buffer: &'a Buffer, offset: u64, bytes: u64) -> Self {
        Self(View::new(Place::Buffer { buffer, offset }, bytes, buffer.dtype, false))
    }

    /// Device memory of a CUDA context.
    ///
    /// # Safety
    /// Valid until the enqueued work, including replays of graphs that captured it, has completed, whichever thread enqueues it:
    /// - `bytes` bytes from `address` on are readable by the GPU of the plan's device;
    /// - nothing writes them meanwhile but work that is ordered with the queue's stream.
    #[cfg(feature = "cuda")]
    pub unsafe fn cuda(address: u64, bytes: u64) -> Self {
        Self(View::new(Place::Cuda(address), bytes, None, false))
    }

    /// `bytes` bytes of a wgpu buffer with `STORAGE` usage from `offset` on, a multiple of 4. On a borrowed device without the feature
    /// `IMMEDIATES`, [`Plan::run`](crate::Plan::run) takes multiples of the device's `min_storage_buffer_offset_alignment` only, 256 on many;
    /// [`Plan::bind`](crate::Plan::bind) takes any.
    ///
    /// The buffer is of the device's own wgpu `Instance`. One of another device of it is refused; one of another instance wgpu takes for
    /// whichever of its own has the same number.
    #[cfg(feature = "wgpu")]
    pub fn wgpu(buffer: &'a ::wgpu::Buffer, offset: u64, bytes: u64) -> Self {
        Self(View::new(Place::Wgpu { buffer, offset }, bytes, None, false))
    }
}

impl<'a> MemMut<'a> {
    /// The elements of a slice, for plans on the CPU.
    pub fn host<T: Element>(elements: &'a mut [T]) -> Self {
        let bytes = size_of_val(elements) as u64;
        let place = Place::Host(HostAddress(elements.as_mut_ptr().cast()));
        Self(View::new(place, bytes, Some(T::DTYPE), true))
    }

    /// Bytes for elements of the operand's type, for plans on the CPU; their alignment is checked by the run.
    pub fn host_bytes(bytes: &'a mut [u8]) -> Self {
        let place = Place::Host(HostAddress(bytes.as_mut_ptr()));
        Self(View::new(place, bytes.len() as u64, None, true))
    }

    /// `bytes` bytes of a buffer from `offset` on. A run refuses a range in which the operand, from its first byte to its last, does not
    /// lie inside the buffer, and an offset that breaks the promise of its descriptor, which
    /// [`TensorDesc::for_offset`](crate::TensorDesc::for_offset) lowers.
    pub fn buffer(buffer: &'a Buffer, offset: u64, bytes: u64) -> Self {
        Self(View::new(Place::Buffer { buffer, offset }, bytes, buffer.dtype, true))
    }

    /// Device memory of a CUDA context.
    ///
    /// # Safety
    /// Valid until the enqueued work, including replays of graphs that captured it, has completed, whichever thread enqueues it:
    /// - `bytes` bytes from `address` on are readable and writable by the GPU of the plan's device;
    /// - nothing reads or writes them meanwhile but work that is ordered with the queue's stream.
    #[cfg(feature = "cuda")]
    pub unsafe fn cuda(address: u64, bytes: u64) -> Self {
        Self(View::new(Place::Cuda(address), bytes, None, true))
    }

    /// `bytes` bytes of a wgpu buffer with `STORAGE` usage from `offset` on, a multiple of 4. On a borrowed device without the feature
    /// `IMMEDIATES`, [`Plan::run`](crate::Plan::run) takes multiples of the device's `min_storage_buffer_offset_alignment` only, 256 on many;
    /// [`Plan::bind`](crate::Plan::bind) takes any.
    ///
    /// The buffer is of the device's own wgpu `Instance`. One of another device of it is refused; one of another instance wgpu takes for
    /// whichever of its own has the same number.
    #[cfg(feature = "wgpu")]
    pub fn wgpu(buffer: &'a ::wgpu::Buffer, offset: u64, bytes: u64) -> Self {
        Self(View::new(Place::Wgpu { buffer, offset }, bytes, None, true))
    }
}

impl<'a> From<&'a Buffer> for Mem<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Self::buffer(buffer, 0, buffer.bytes)
    }
}

impl<'a> From<&'a Buffer> for MemMut<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Self::buffer(buffer, 0, buffer.bytes)
    }
}

impl<'a, T: Element> From<&'a [T]> for Mem<'a> {
    fn from(elements: &'a [T]) -> Self {
        Self::host(elements)
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for Mem<'a> {
    fn from(elements: &'a Vec<T>) -> Self {
        Self::host(elements)
    }
}

impl<'a, T: Element, const N: usize> From<&'a [T; N]> for Mem<'a> {
    fn from(elements: &'a [T; N]) -> Self {
        Self::host(elements)
    }
}

impl<'a, T: Element> From<&'a mut [T]> for MemMut<'a> {
    fn from(elements: &'a mut [T]) -> Self {
        Self::host(elements)
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for MemMut<'a> {
    fn from(elements: &'a mut Vec<T>) -> Self {
        Self::host(elements)
    }
}

impl<'a, T: Element, const N: usize> From<&'a mut [T; N]> for MemMut<'a> {
    fn from(elements: &'a mut [T; N]) -> Self {
        Self::host(elements)
    }
}

/// For reading or writing, whichever the slot asks for.
impl<'a> From<&'a Buffer> for Operand<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        MemMut::from(buffer).into()
    }
}

impl<'a> From<Mem<'a>> for Operand<'a> {
    fn from(mem: Mem<'a>) -> Self {
        Self(mem.0)
    }
}

impl<'a> From<MemMut<'a>> for Operand<'a> {
    fn from(mem: MemMut<'a>) -> Self {
        Self(mem.0)
    }
}

/// The operands of a run, at the indices of their rows in the family's table.
#[derive(Debug)]
pub struct Operands<'a> {
    pub(crate) views: [Option<View<'a>>; MAX_SLOTS],
    /// A bit for the index of each operand that is there.
    pub(crate) present: u32,
    /// The further ones: of rows behind the first [`MAX_SLOTS`], and of sets after the first, in the order of the slots.
    pub(crate) further: &'a [Operand<'a>],
}

impl<'a> Operands<'a> {
    /// Without an operand. This is no constant, because a constant would be copied as a whole.
    #[inline]
    pub(crate) fn none() -> Self {
        Self { views: [None; MAX_SLOTS], present: 0, further: &[] }
    }

    /// Adds the operand of a row of the family's table.
    #[inline]
    pub(crate) fn put(&mut self, index: usize, view: View<'a>) {
        self.views[index] = Some(view);
        self.present |= 1 << index;
    }

    /// The operand of a slot.
    pub(crate) fn view(&self, index: usize) -> Option<&View<'a>> {
        match index.checked_sub(MAX_SLOTS) {
            None => self.views[index].as_ref(),
            Some(at) => self.further.get(at).map(|operand| &operand.0),
        }
    }

    /// Notes that there are more operands than the op has rows, which no run accepts.
    pub(crate) fn put_too_many(&mut self) {
        const { assert!(MAX_SLOTS < u32::BITS as usize) };
        self.present |= 1 << MAX_SLOTS;
    }
}

/// The workspace of a run: the bytes that [`Plan::workspace`](crate::Plan::workspace) asks for. Its contents matter neither before
/// nor after.
#[derive(Debug)]
pub struct Workspace<'a>(pub(crate) Option<View<'a>>);

impl<'a> Workspace<'a> {
    /// For plans that need none, which also leave alone what they are given.
    pub fn none() -> Self {
        Self(None)
    }

    /// Memory that the run may overwrite.
    pub fn new(memory: impl Into<MemMut<'a>>) -> Self {
        // Any element type will do: the bytes have no meaning to the caller.
        Self(Some(View { dtype: None, ..memory.into().0 }))
    }
}

/// cudarc memory lent to runs on one stream. Dropped after the run, it records for cudarc that the stream uses the memory, so that
/// other streams, and cudarc's own free, wait for it.
#[cfg(feature = "cuda")]
pub struct Lent<'a, M> {
    memory: M,
    _guard: SyncOnDrop<'a>,
}

#[cfg(feature = "cuda")]
impl<'a> Mem<'a> {
    /// A cudarc slice or view, read on `stream`.
    pub fn cudarc<T>(slice: &'a impl DevicePtr<T>, stream: &'a CudaStream) -> Lent<'a, Self> {
        let bytes = (slice.len() * size_of::<T>()) as u64;
        let (address, guard) = slice.device_ptr(stream);
        // SAFETY: the slice is borrowed for 'a, and cudarc frees it after the work that the guard records.
        Lent { memory: unsafe { Self::cuda(address, bytes) }, _guard: guard }
    }
}

#[cfg(feature = "cuda")]
impl<'a> MemMut<'a> {
    /// A cudarc slice or view, written on `stream`.
    pub fn cudarc<T>(slice: &'a mut impl DevicePtrMut<T>, stream: &'a CudaStream) -> Lent<'a, Self> {
        let bytes = (slice.len() * size_of::<T>()) as u64;
        let (address, guard) = slice.device_ptr_mut(stream);
        // SAFETY: as for reading; the slice is borrowed mutably.
        Lent { memory: unsafe { Self::cuda(address, bytes) }, _guard: guard }
    }
}

#[cfg(feature = "cuda")]
impl<'l> From<&'l Lent<'_, Mem<'_>>> for Mem<'l> {
    fn from(lent: &'l Lent<'_, Mem<'_>>) -> Self {
        lent.memory
    }
}

#[cfg(feature = "cuda")]
impl<'l> From<&'l mut Lent<'_, MemMut<'_>>> for MemMut<'l> {
    fn from(lent: &'l mut Lent<'_, MemMut<'_>>) -> Self {
        Self(lent.memory.0)
    }
}
